/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a limit with a typing error in its name is a limit that is not there, and nobody notices before the night when it is
 * needed. So the file is strict: whatever is not understood completely is an error, with path, line and column, and all errors are told at
 * once. Either all of it is used or nothing.
 *
 * How: config_file.c reads it, and refuses what is no text. jansson parses it (config_syntax.c); config_place.c says where each key stands.
 * Then the keys are walked in the order of the file against the table of config_key.c. A resource starts as a copy of the defaults
 * (config_draft.c), its own keys go over it one by one, and the whole is looked at for contradictions (config_sense.c). A contradiction is
 * blamed on the key nearest to the resource, so one between two keys of the defaults is told once and not for each resource.
 *
 * jansson keeps the last of doubled keys, so this walk reads the last one too. All the others are errors.
 */
#include "config.h"

#include <arpa/inet.h>
#include <errno.h>
#include <grp.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "config_draft.h"
#include "config_file.h"
#include "config_sense.h"
#include "config_syntax.h"
#include "error.h"
#include "map.h"

#define SUCCESSOR_DIGITS 16 /* of the generation in the name of a successor: see map_path() */

/* What to do about a group that the host does not have. */
enum group_is { GROUP_NOT_LOOKED_UP, GROUP_WANTED, GROUP_NEEDED };

struct parser {
	struct reader reader;
	struct config *config;
	struct draft defaults;
	enum group_is group;
	bool has_resources;
	uint32_t from[KEYS]; /* the places of the file's own keys; PLACE_NONE: not given */
};

/* ---- keys of the file ---- */

static int check_instance(const char *text, struct resc_error *err)
{
	const char *dot = strrchr(text, '.');
	int r = name_check(text, err);

	if (r == 0 && dot && strlen(dot + 1) == SUCCESSOR_DIGITS && strspn(dot + 1, "0123456789abcdef") == SUCCESSOR_DIGITS)
		return error_set(err, -EINVAL, "the name ends like that of a successor's file, with a dot and 16 hexadecimal digits");
	return r;
}

static int check_group(const char *text, struct resc_error *err)
{
	if (strlen(text) >= CONFIG_GROUP_SIZE)
		return error_set(err, -EINVAL, "the name is longer than %d bytes", CONFIG_GROUP_SIZE - 1);
	return text[strcspn(text, ":/, \t\n")] ? error_set(err, -EINVAL, "this cannot be the name of a group") : 0;
}

static int check_control(const char *text, struct resc_error *err)
{
	size_t length = strlen(text);

	if (length == 0)
		return 0;
	if (text[0] != '/' || text[length - 1] == '/')
		return error_set(err, -EINVAL, "an absolute path is needed, such as \"/run/resc/control\"");
	if (length >= CONFIG_CONTROL_SIZE)
		return error_set(err, -EINVAL, "the path has %zu bytes, and a socket's path at most %d", length, CONFIG_CONTROL_SIZE - 1);
	return 0;
}

static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= 5 && text[digits] == '\0' && strtoul(text, NULL, 10) <= 65535;
}

/* A name is only looked at, not looked up: a file is good or bad by itself. */
static bool is_host(const char *host)
{
	static const char name[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-";
	struct in6_addr address;
	size_t length = strlen(host);

	if (host[0] == '[') {
		char inner[CONFIG_METRICS_SIZE];

		snprintf(inner, sizeof(inner), "%.*s", (int)length - 2, host + 1);
		return length > 2 && host[length - 1] == ']' && inet_pton(AF_INET6, inner, &address) == 1;
	}
	if (host[strspn(host, "0123456789.")] == '\0')
		return inet_pton(AF_INET, host, &address) == 1;
	return host[strspn(host, name)] == '\0';
}

static int check_metrics(const char *text, struct resc_error *err)
{
	char host[CONFIG_METRICS_SIZE];
	const char *colon = strrchr(text, ':');

	if (text[0] == '\0')
		return 0;
	if (strlen(text) >= CONFIG_METRICS_SIZE)
		return error_set(err, -EINVAL, "it is longer than %d bytes; write an address instead of a name", CONFIG_METRICS_SIZE - 1);
	if (!colon || !is_port(colon + 1))
		return error_set(err, -EINVAL, "a host and a port are needed, such as \"127.0.0.1:9464\"");
	if (colon == text)
		return error_set(err, -EINVAL, "the host is missing; for all addresses of the host write \"0.0.0.0%s\" or \"[::]%s\"", text,
		                 text);
	snprintf(host, sizeof(host), "%.*s", (int)(colon - text), text);
	if (is_host(host))
		return 0;
	if (strchr(host, ':') && host[0] != '[')
		return error_set(err, -EINVAL, "an IPv6 address stands in brackets, such as \"[::1]:9464\"");
	return error_set(err, -EINVAL, "this is neither an address nor the name of a host");
}

static int check_mode(const char *text, struct resc_error *err)
{
	static const char *const modes[] = {"0600", "0640", "0644", "0660", "0664"};

	for (size_t i = 0; i < sizeof(modes) / sizeof(modes[0]); i++) {
		if (strcmp(text, modes[i]) == 0 || strcmp(text, modes[i] + 1) == 0)
			return 0;
	}
	return error_set(
	        err, -EINVAL,
	        "write \"0600\" (owner only), \"0640\" (the group may look) or \"0660\" (the group may work); \"0644\" and \"0664\" let "
	        "all others look too; nobody else may write");
}

/* Where the text of a key of the file goes, and who checks it. */
struct target {
	char *to;
	size_t size;
	int (*check)(const char *text, struct resc_error *err);
};

static struct target target_of(struct config *config, enum key_id id, char mode[8])
{
	switch (id) {
	case KEY_INSTANCE:
		return (struct target){config->instance, sizeof(config->instance), check_instance};
	case KEY_GROUP:
		return (struct target){config->group, sizeof(config->group), check_group};
	case KEY_METRICS:
		return (struct target){config->metrics, sizeof(config->metrics), check_metrics};
	case KEY_CONTROL:
		return (struct target){config->control, sizeof(config->control), check_control};
	default:
		return (struct target){mode, 8, check_mode};
	}
}

static void look_up_group(struct parser *parser, uint32_t place)
{
	const char *name = parser->config->group;
	const struct group *group;

	if (parser->group == GROUP_NOT_LOOKED_UP || name[0] == '\0')
		return;
	errno = 0;
	group = getgrnam(name);
	if (group)
		parser->config->gid = group->gr_gid;
	else if (parser->group == GROUP_WANTED)
		reader_warning(&parser->reader, place, "this host has no group \"%s\"; rescd will not start here without it", name);
	else
		reader_error(&parser->reader, place, "this host has no group \"%s\"; make it with groupadd, or name another", name);
}

static void take_text(struct parser *parser, enum key_id id, const json_t *value, uint32_t place)
{
	char mode[8] = "";
	struct target target = target_of(parser->config, id, mode);
	const char *text = read_text(&parser->reader, id, value, place);
	struct resc_error err;

	if (!text)
		return;
	if (target.check(text, &err) < 0) {
		reader_error(&parser->reader, place, "%s", err.text);
		return;
	}
	snprintf(target.to, target.size, "%s", text);
	if (id == KEY_MODE)
		parser->config->mode = (mode_t)strtoul(mode, NULL, 8);
	if (id == KEY_GROUP)
		look_up_group(parser, place);
}

/* ---- resources ---- */

static bool is_pattern(const char *name)
{
	size_t length = strlen(name);

	return length > 0 && name[length - 1] == '*';
}

/* A pattern is the start of a name, which may be empty, and a '*'. */
static int check_resource_name(const char *name, struct resc_error *err)
{
	char start[SEGMENT_NAME_SIZE];
	const char *star = strchr(name, '*');

	if (!star || strlen(name) >= sizeof(start))
		return name_check(name, err);
	if (star[1] != '\0')
		return error_set(err, -EINVAL, "a '*' can only be the last character: a pattern is the start of names");
	snprintf(start, sizeof(start), "%.*s", (int)(star - name), name);
	return start[0] == '\0' ? 0 : name_check(start, err);
}

static bool is_name(struct parser *parser, uint32_t place)
{
	const struct place *at = &parser->reader.places.items[place];
	struct resc_error err;

	if (at->dropped)
		return false;
	if (check_resource_name(at->key, &err) == 0)
		return true;
	reader_key_error(&parser->reader, place, "%s", err.text);
	return false;
}

static void take_resource(struct parser *parser, const json_t *value, uint32_t place)
{
	struct reader *reader = &parser->reader;
	struct config *config = parser->config;
	struct config_resource *resource;
	struct draft draft = parser->defaults;

	if (!is_name(parser, place))
		return;
	if (!json_is_object(value)) {
		reader_error(reader, place, "a resource is an object {...}; to have the defaults alone, write {}");
		return;
	}
	draft_read(reader, &draft, value, place);
	draft_check(reader, &draft);
	if (is_pattern(reader->places.items[place].key))
		resource = &config->patterns[config->pattern_count++];
	else
		resource = &config->resources[config->count++];
	snprintf(resource->name, sizeof(resource->name), "%s", reader->places.items[place].key);
	resource->policy = draft_policy(&draft);
}

/* The longest first; of the same length in the order of the alphabet. */
static int compare_patterns(const void *left, const void *right)
{
	const struct config_resource *a = left, *b = right;
	size_t x = strlen(a->name), y = strlen(b->name);

	return x != y ? (x > y ? -1 : 1) : strcmp(a->name, b->name);
}

static int take_resources(struct parser *parser, const json_t *object, uint32_t place)
{
	const struct places *places = &parser->reader.places;
	struct config *config = parser->config;
	size_t counts[2] = {0, 0}; /* names, patterns */

	for (uint32_t i = places->items[place].first; i != PLACE_NONE; i = places->items[i].next)
		counts[is_pattern(places->items[i].key)] += 1;
	if (counts[0] + counts[1] > RESOURCES_LIMIT) {
		reader_error(&parser->reader, place, "%zu resources are too many; there can be %u", counts[0] + counts[1], RESOURCES_LIMIT);
		return 0;
	}
	if (counts[0] + counts[1] == 0)
		reader_warning(&parser->reader, place, "there are no resources, so nothing is guarded");
	config->resources = calloc(counts[0] + 1, sizeof(*config->resources));
	config->patterns = calloc(counts[1] + 1, sizeof(*config->patterns));
	if (!config->resources || !config->patterns)
		return -ENOMEM;
	for (uint32_t i = places->items[place].first; i != PLACE_NONE; i = places->items[i].next)
		take_resource(parser, json_object_get(object, places->items[i].key), i);
	qsort(config->patterns, config->pattern_count, sizeof(*config->patterns), compare_patterns);
	return 0;
}

static int compare_resources(const void *left, const void *right, void *arg)
{
	const struct config_resource *resources = arg;

	return strcmp(resources[*(const uint32_t *)left].name, resources[*(const uint32_t *)right].name);
}

static int make_index(struct config *config)
{
	config->index = calloc(config->count + 1, sizeof(*config->index));
	if (!config->index)
		return -ENOMEM;
	for (size_t i = 0; i < config->count; i++)
		config->index[i] = (uint32_t)i;
	if (config->count > 1)
		qsort_r(config->index, config->count, sizeof(*config->index), compare_resources, config->resources);
	return 0;
}

const struct config_resource *config_find(const struct config *config, const char *name)
{
	size_t low = 0, high = config->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;
		const struct config_resource *resource = &config->resources[config->index[middle]];
		int order = strcmp(name, resource->name);

		if (order == 0)
			return resource;
		if (order < 0)
			high = middle;
		else
			low = middle + 1;
	}
	return NULL;
}

const struct config_resource *config_match(const struct config *config, const char *name)
{
	for (size_t i = 0; i < config->pattern_count; i++) {
		size_t length = strlen(config->patterns[i].name) - 1;

		if (strncmp(config->patterns[i].name, name, length) == 0)
			return &config->patterns[i];
	}
	return NULL;
}

/* ---- the file ---- */

static void take_number(struct parser *parser, enum key_id id, const json_t *value, uint32_t place)
{
	uint64_t number;

	if (!read_value(&parser->reader, id, value, place, &number))
		return;
	if (id == KEY_WORKERS)
		parser->config->workers = (uint32_t)number;
	else if (id == KEY_ONCE_KEYS)
		parser->config->once_keys = (uint32_t)number;
	else if (id == KEY_MADE)
		parser->config->made = (uint32_t)number;
	else
		parser->config->idle_ms = number;
}

/* The value of one key of the file. The defaults were read before, wherever they stand. */
static int take_key(struct parser *parser, enum key_id id, const json_t *value, uint32_t place)
{
	struct reader *reader = &parser->reader;

	parser->from[id] = place;
	switch (id) {
	case KEY_WORKERS:
	case KEY_ONCE_KEYS:
	case KEY_MADE:
	case KEY_IDLE:
		take_number(parser, id, value, place);
		return 0;
	case KEY_DEFAULTS:
		return 0;
	case KEY_RESOURCES:
		parser->has_resources = true;
		return read_object(reader, id, value, place) ? take_resources(parser, value, place) : 0;
	default:
		take_text(parser, id, value, place);
		return 0;
	}
}

static void take_defaults(struct parser *parser, const json_t *root)
{
	const struct places *places = &parser->reader.places;

	draft_start(&parser->defaults);
	for (uint32_t i = places->items[PLACE_ROOT].first; i != PLACE_NONE; i = places->items[i].next) {
		const json_t *value = json_object_get(root, places->items[i].key);

		if (places->items[i].dropped || strcmp(places->items[i].key, config_keys[KEY_DEFAULTS].name) != 0)
			continue;
		if (read_object(&parser->reader, KEY_DEFAULTS, value, i))
			draft_read(&parser->reader, &parser->defaults, value, i);
		return;
	}
}

static bool has_once(const struct config_resource *resources, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		if ((resources[i].policy.flags & POLICY_ONCE) != 0)
			return true;
	}
	return false;
}

static void no_effect(struct parser *parser, enum key_id id, const char *without)
{
	/* Of a file with errors nobody knows what is missing in it. */
	if (parser->from[id] != PLACE_NONE && parser->reader.problems->errors == 0)
		reader_warning(&parser->reader, parser->from[id], "has no effect without %s", without);
}

/* Room for what no resource uses is not taken. */
static void settle_room(struct parser *parser)
{
	struct config *config = parser->config;
	bool once = has_once(config->resources, config->count) || has_once(config->patterns, config->pattern_count);

	if (!once)
		no_effect(parser, KEY_ONCE_KEYS, "a resource that has \"once\"");
	else if ((config->mode & S_IROTH) != 0)
		reader_warning(&parser->reader, parser->from[KEY_MODE],
		               "every user of the host can read the idempotency keys and the answers that are kept with them");
	if (config->pattern_count == 0) {
		no_effect(parser, KEY_MADE, "a pattern in resources, such as \"shard-*\"");
		no_effect(parser, KEY_IDLE, "a pattern in resources, such as \"shard-*\"");
	}
	config->once_keys = once ? config->once_keys : 0;
	config->made = config->pattern_count > 0 ? config->made : 0;
	if (config->count + config->made <= RESOURCES_LIMIT)
		return;
	reader_warning(&parser->reader, parser->from[KEY_RESOURCES], "with %zu resources there is room for %zu that are made from patterns",
	               config->count, RESOURCES_LIMIT - config->count);
	config->made = RESOURCES_LIMIT - (uint32_t)config->count;
}

static int take_file(struct parser *parser, const json_t *root)
{
	const struct places *places = &parser->reader.places;
	int r = 0;

	if (!json_is_object(root)) {
		reader_error(&parser->reader, PLACE_ROOT, "the file must be one object {...}");
		return 0;
	}
	read_doubles(&parser->reader);
	take_defaults(parser, root);
	for (uint32_t i = places->items[PLACE_ROOT].first; r == 0 && i != PLACE_NONE; i = places->items[i].next) {
		enum key_id id = read_key(&parser->reader, BLOCK_FILE, i);

		if (id != KEY_NONE)
			r = take_key(parser, id, json_object_get(root, places->items[i].key), i);
	}
	if (r == 0 && !parser->has_resources)
		reader_key_error(&parser->reader, PLACE_ROOT, "resources is missing; to have none, write \"resources\": {}");
	if (r == 0)
		settle_room(parser);
	return r == 0 ? make_index(parser->config) : r;
}

/* ---- all of it ---- */

static void start(struct config *config)
{
	*config = (struct config){
	        .gid = (gid_t)-1,
	        .mode = CONFIG_MODE,
	        .workers = CONFIG_WORKERS,
	        .once_keys = CONFIG_ONCE_KEYS,
	        .made = CONFIG_MADE,
	        .idle_ms = CONFIG_IDLE_MS,
	};
	snprintf(config->instance, sizeof(config->instance), "default");
}

static int parse_checked(const char *text, size_t size, struct parser *parser, struct config_problems *problems)
{
	json_t *root = config_json(text, size, problems);
	int r;

	if (!root)
		return -EINVAL;
	r = places_scan(text, size, &parser->reader.places);
	if (r == 0) {
		r = take_file(parser, root);
		places_free(&parser->reader.places);
	}
	json_decref(root);
	return r;
}

static int parse(const char *text, size_t size, enum group_is group, struct config *out, struct config_problems *problems)
{
	struct parser parser = {.reader.problems = problems, .config = out, .group = group};
	int r = config_text_check(text, size, problems);

	for (size_t i = 0; i < KEYS; i++)
		parser.from[i] = PLACE_NONE;
	start(out);
	if (r == 0)
		r = parse_checked(text, size, &parser, problems);
	if (r == -ENOMEM)
		config_problems_add(problems, false, "", 0, 0, "does not fit in memory");
	config_problems_finish(problems);
	if (r == 0 && problems->errors > 0)
		r = -EINVAL;
	if (r < 0)
		config_free(out);
	return r;
}

int config_parse(const char *text, size_t size, struct config *out, struct config_problems *problems)
{
	return parse(text, size, GROUP_NOT_LOOKED_UP, out, problems);
}

static int load(const char *path, enum group_is group, struct config *out, struct config_problems *problems)
{
	char *text;
	size_t size;
	int r = config_file_read(path, &text, &size, problems);

	if (r < 0) {
		*out = (struct config){0};
		return r;
	}
	r = parse(text, size, group, out, problems);
	free(text);
	return r;
}

int config_load(const char *path, struct config *out, struct config_problems *problems)
{
	return load(path, GROUP_NEEDED, out, problems);
}

int config_check(const char *path, struct config *out, struct config_problems *problems)
{
	return load(path, GROUP_WANTED, out, problems);
}

void config_free(struct config *config)
{
	free(config->resources);
	free(config->patterns);
	free(config->index);
	*config = (struct config){0};
}
