/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: whoever writes down what happens to a service at three in the morning wants to be told today what in it cannot be so.
 * The file is as strict as a configuration: unknown keys, wrong values and contradictions are errors, all at once, each with its place.
 *
 * How: the text becomes a tree that knows its places (node.c). Where it is asked for, "short" is merged over it, and a file of --config
 * takes the place of the configuration; then each variant is merged over that (patch.c), and read by itself: scenario_config.c,
 * scenario_dependency.c, scenario_load.c, scenario_check.c. What is expected is read last, against all variants (scenario_expect.c). The
 * form that is not asked for (with "short", or without) is read too, for its mistakes alone.
 *
 * The same mistake is told once, however many variants inherit it; one that is only in some says in which.
 */
#include "scenario.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "config_draft.h"
#include "config_file.h"
#include "config_syntax.h"
#include "patch.h"
#include "scenario_read.h"

#define VARIANTS_MOST 32u

/* The texts that a rehearsal is read from. */
struct texts {
	struct nodes nodes;
	struct source scenario, config;
	const struct node *root, *config_root;
	char *config_text;
	const struct scenario_options *options;
	bool short_of_memory;
};

/* ---- one scenario ---- */

static void read_views(struct section *file, const struct node *variant, struct scenario *scenario)
{
	unsigned views = section_words(file, SK_VIEWS, 1u << VIEW_OWN | 1u << VIEW_SHARED);
	struct section section;

	if (variant && section_read(file->reading, variant, SB_VARIANT, &section)) {
		views = section_words(&section, SK_VARIANT_VIEWS, views);
		scenario->variant_about = section_text_copy(&section, SK_VARIANT_ABOUT);
	}
	for (unsigned i = 0; i < VIEWS; i++)
		scenario->views[i] = (views >> i & 1) != 0;
}

static void read_head(struct section *file, struct scenario *scenario)
{
	const struct scenario_options *options = file->reading->options;

	section_needs(file, SK_TITLE, "say in one line what is rehearsed");
	section_needs(file, SK_DURATION, "write how long it is played, such as \"10s\"");
	scenario->title = section_text_copy(file, SK_TITLE);
	scenario->about = section_text_copy(file, SK_ABOUT);
	snprintf(scenario->experiment, sizeof(scenario->experiment), "%s", section_text(file, SK_EXPERIMENT, ""));
	scenario->duration_ns = section_duration(file, SK_DURATION, (int64_t)scenario_rows[SK_DURATION].most);
	scenario->workers = (uint32_t)section_integer(file, SK_WORKERS, 8);
	scenario->threads = (uint32_t)section_integer(file, SK_THREADS, 1);
	scenario->order = (enum order)section_word(file, SK_ORDER, ORDER_ANY);
	scenario->backlog = (uint32_t)section_integer(file, SK_BACKLOG, UINT32_MAX);
	scenario->seed = section_integer(file, SK_SEED, 1);
	if (options->workers > 0)
		scenario->workers = options->workers;
}

/* variant: NULL where the file has none. */
static void read_scenario(struct reading *reading, const struct node *variant)
{
	struct section file;
	const struct node *part;

	if (!section_read(reading, reading->root, SB_FILE, &file))
		return;
	read_head(&file, reading->scenario);
	read_views(&file, variant, reading->scenario);
	configuration_read(reading);
	part = section_object(&file, SK_DEPENDENCIES);
	if (part)
		dependencies_read(reading, part);
	section_needs(&file, SK_LOAD, "write who calls, {\"NAME\": {...}}");
	part = section_object(&file, SK_LOAD);
	if (part)
		loads_read(reading, part);
	if (reading->problems->errors == 0 && !reading->short_of_memory)
		scenario_check(reading);
}

static void scenario_free(struct scenario *scenario)
{
	free(scenario->title);
	free(scenario->about);
	free(scenario->variant_about);
	json_decref(scenario->configuration);
	for (size_t i = 0; i < scenario->dependency_count; i++)
		dependency_free(&scenario->dependencies[i]);
	free(scenario->dependencies);
	for (size_t i = 0; i < scenario->load_count; i++)
		load_free(&scenario->loads[i]);
	free(scenario->loads);
	*scenario = (struct scenario){0};
}

/* ---- problems of several readings ---- */

static bool has_problem(const struct config_problems *problems, const struct config_problem *wanted)
{
	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];

		if (p->line == wanted->line && p->column == wanted->column && strcmp(p->text, wanted->text) == 0)
			return true;
	}
	return false;
}

static bool all_have(const struct config_problems *lists, size_t count, const struct config_problem *wanted)
{
	for (size_t i = 0; i < count; i++) {
		if (!has_problem(&lists[i], wanted))
			return false;
	}
	return true;
}

/* Adds a list to another; `where` is said of those that not all of the lists have, unless they stand below `below`. */
static void fold(struct config_problems *to, const struct config_problems *from, const struct config_problems *lists, size_t count,
                 const char *below, const char *where)
{
	for (size_t i = 0; i < from->count; i++) {
		const struct config_problem *p = &from->items[i];
		bool say = strncmp(p->path, below, strlen(below)) != 0 && !all_have(lists, count, p);

		config_problems_add(to, p->warning, p->path, p->line, p->column, "%s%s", p->text, say ? where : "");
	}
}

/* ---- variants ---- */

static void check_change(struct reading *reading, const struct node *change)
{
	static const enum scenario_key keys[] = {SK_DURATION, SK_WORKERS,       SK_THREADS,      SK_ORDER, SK_BACKLOG,
	                                         SK_SEED,     SK_CONFIGURATION, SK_DEPENDENCIES, SK_LOAD};

	for (const struct node *child = change->first; child; child = child->next) {
		enum scenario_key id = scenario_key_find(SB_FILE, child->key);
		bool good = id == SK_NONE; /* told when the whole is read */

		for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++)
			good |= keys[i] == id;
		if (!good)
			node_key_error(reading->problems, child,
			               "a variant cannot change this; it can change duration, workers, threads, order, backlog, seed, "
			               "configuration, dependencies and load");
	}
}

/* The file with the change of a variant. NULL: out of memory. */
static const struct node *changed(struct texts *texts, struct reading *reading, const struct node *root, const struct node *variant)
{
	struct section section;
	const struct node *change;

	if (!section_read(reading, variant, SB_VARIANT, &section))
		return root;
	change = section_object(&section, SK_CHANGE);
	if (!change)
		return root;
	check_change(reading, change);
	/* Over a configuration that somebody else wrote a null need not find what it removes. */
	return patch_apply(&texts->nodes, root, change, texts->options->config ? NULL : reading->problems);
}

static void read_variant(struct texts *texts, bool brief, const struct node *root, const struct node *variant, struct scenario *out,
                         struct config_problems *problems)
{
	struct reading reading = {.problems = problems, .options = texts->options, .brief = brief, .scenario = out};

	if (variant) {
		check_label(&reading, variant);
		snprintf(out->variant, sizeof(out->variant), "%s", variant->key);
	}
	reading.root = variant ? changed(texts, &reading, root, variant) : root;
	if (reading.root)
		read_scenario(&reading, variant);
	config_free(&reading.config);
	texts->short_of_memory |= reading.short_of_memory || !reading.root;
}

/* ---- a form of the file ---- */

/* The variants of a form of the file, in its order; or one without a name. */
static void read_variants(struct texts *texts, bool brief, const struct node *root, struct scenarios *out, struct config_problems *problems)
{
	const struct node *list = node_child(root, scenario_rows[SK_VARIANTS].name);
	bool has_list = list && json_is_object(list->value) && list->first;
	size_t count = has_list ? node_count(list) : 1;
	const struct node *variant = has_list ? list->first : NULL;
	struct config_problems *lists;
	char where[SCENARIO_NAME + 40] = "";

	if (list && !has_list)
		node_error(problems, list, "this is no object with variants; write {\"NAME\": {...}}, or leave it out");
	if (count > VARIANTS_MOST) {
		node_error(problems, list, "%zu variants are too many; there can be %u", count, VARIANTS_MOST);
		return;
	}
	lists = calloc(count, sizeof(*lists));
	out->items = calloc(count, sizeof(*out->items));
	if (!lists || !out->items) {
		texts->short_of_memory = true;
		free(lists);
		return;
	}
	out->count = count;
	for (size_t i = 0; i < count; i++) {
		read_variant(texts, brief, root, variant, &out->items[i], &lists[i]);
		variant = variant ? variant->next : NULL;
	}
	for (size_t i = 0; i < out->count; i++) {
		snprintf(where, sizeof(where), " (in the variant \"%s\")", out->items[i].variant);
		fold(problems, &lists[i], lists, out->count, scenario_rows[SK_VARIANTS].name, where);
	}
	for (size_t i = 0; i < out->count; i++)
		config_problems_free(&lists[i]);
	free(lists);
}

/* A root whose configuration is that of --config. NULL: out of memory. */
static const struct node *with_config(struct texts *texts, const struct node *root)
{
	const char *key = scenario_rows[SK_CONFIGURATION].name;
	struct node *copy = node_copy(&texts->nodes, root), *config = node_copy(&texts->nodes, texts->config_root);

	if (!copy || !config)
		return NULL;
	for (const struct node *child = root->first; child; child = child->next) {
		struct node *same = node_copy(&texts->nodes, child);

		if (!same)
			return NULL;
		same->first = child->first;
		same->last = child->last;
		if (strcmp(child->key, key) != 0)
			node_append(copy, same);
	}
	config->key = key;
	config->first = texts->config_root->first;
	config->last = texts->config_root->last;
	node_append(copy, config);
	return copy;
}

/* The file with "short" merged over it, or without. NULL: out of memory. */
static const struct node *form_of(struct texts *texts, bool brief, struct config_problems *problems)
{
	const struct node *root = texts->root, *change = node_child(root, scenario_rows[SK_SHORT].name);

	if (brief && change && json_is_object(change->value)) {
		const struct node *again = node_child(change, scenario_rows[SK_SHORT].name);

		if (again)
			node_key_error(problems, again, "\"short\" cannot change itself; leave it out");
		root = patch_apply(&texts->nodes, root, change, texts->options->config ? NULL : problems);
	} else if (change && !json_is_object(change->value)) {
		node_error(problems, change, "this is no object; write the changes for --short, {...}");
	}
	return root && texts->config_root ? with_config(texts, root) : root;
}

static void read_form(struct texts *texts, bool brief, struct scenarios *out, struct config_problems *problems)
{
	const struct node *root = form_of(texts, brief, problems);
	struct reading reading = {.problems = problems, .options = texts->options, .brief = brief};
	struct expecting expecting = {.reading = &reading};

	if (!root) {
		texts->short_of_memory = true;
		return;
	}
	read_variants(texts, brief, root, out, problems);
	if (texts->short_of_memory)
		return;
	/* In what has errors names cannot be looked up: what is missing may be there under another name. */
	expecting.items = out->items;
	expecting.count = problems->errors == 0 ? out->count : 0;
	expectations_read(&expecting, root, out);
	texts->short_of_memory |= reading.short_of_memory;
}

/* ---- what the command line says ---- */

static void free_item(struct scenarios *scenarios, size_t index)
{
	scenario_free(&scenarios->items[index]);
	scenarios->count -= 1;
	memmove(&scenarios->items[index], &scenarios->items[index + 1], (scenarios->count - index) * sizeof(scenarios->items[0]));
}

static void choose_variant(struct scenarios *scenarios, const char *name, struct config_problems *problems)
{
	const char *names[VARIANTS_MOST] = {NULL};
	bool named = scenarios->items[0].variant[0] != '\0', found = false;
	char advice[300];

	for (size_t i = 0; i < scenarios->count; i++) {
		names[i] = scenarios->items[i].variant;
		found |= strcmp(names[i], name) == 0;
	}
	if (!found) {
		advise_name(name, names, named ? scenarios->count : 0, advice, sizeof(advice));
		config_problems_add(problems, false, "", 0, 0, "there is no variant \"%.63s\"; %s", name, advice);
		return;
	}
	for (size_t i = scenarios->count; i > 0; i--) {
		if (strcmp(scenarios->items[i - 1].variant, name) != 0)
			free_item(scenarios, i - 1);
	}
}

static void apply_options(struct scenarios *scenarios, const struct scenario_options *options, struct config_problems *problems)
{
	if (options->variant)
		choose_variant(scenarios, options->variant, problems);
	for (size_t i = 0; i < scenarios->count && options->views != 0; i++) {
		for (unsigned view = 0; view < VIEWS; view++)
			scenarios->items[i].views[view] = ((unsigned)options->views >> view & 1) != 0;
	}
}

/* ---- texts ---- */

static bool is_blank(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (!strchr(" \t\r\n", text[i]) || text[i] == '\0')
			return false;
	}
	return true;
}

/* A text as a tree. 0 or -errno, and a problem says why. */
static int read_source(struct texts *texts, const char *text, size_t size, struct source *source, const struct node **root,
                       struct config_problems *problems)
{
	int r;

	source->root = config_json(text, size, problems);
	if (!source->root)
		return -EINVAL;
	r = places_scan(text, size, &source->places);
	if (r < 0)
		return r;
	*root = node_tree(&texts->nodes, source);
	return *root ? 0 : -ENOMEM;
}

/* The file of --config, which must be good by itself; its problems name it. */
static int read_config(struct texts *texts, const char *path, struct config_problems *problems)
{
	struct config_problems own = {0};
	struct config config;
	char where[160];
	size_t size;
	int r = config_file_read(path, &texts->config_text, &size, &own);

	if (r == 0) {
		r = config_parse(texts->config_text, size, &config, &own);
		config_free(&config);
	}
	for (size_t i = 0; i < own.count; i++) {
		const struct config_problem *p = &own.items[i];
		char line[24] = "";

		if (p->line > 0)
			snprintf(line, sizeof(line), ":%d:%d", p->line, p->column);
		snprintf(where, sizeof(where), "%.80s%s%s%.50s", path, line, p->path[0] ? ": " : "", p->path);
		config_problems_add(problems, p->warning, where, 0, 0, "%s", p->text);
	}
	config_problems_free(&own);
	if (r < 0)
		return r;
	texts->config.file = path;
	return read_source(texts, texts->config_text, size, &texts->config, &texts->config_root, problems);
}

static int read_scenario_text(struct texts *texts, const char *text, size_t size, struct config_problems *problems)
{
	struct reader reader = {.problems = problems};
	int r;

	if (is_blank(text, size)) {
		config_problems_add(problems, false, "", 0, 0, "is empty; docs/scenarios.md says how to write a scenario");
		return -EINVAL;
	}
	r = config_text_check(text, size, problems);
	if (r == 0)
		r = read_source(texts, text, size, &texts->scenario, &texts->root, problems);
	if (r < 0)
		return r;
	reader.places = texts->scenario.places;
	if (!json_is_object(texts->scenario.root)) {
		node_error(problems, texts->root, "the file must be one object {...}");
		return -EINVAL;
	}
	read_doubles(&reader);
	return 0;
}

static void free_source(struct source *source)
{
	places_free(&source->places);
	json_decref(source->root);
}

static void free_texts(struct texts *texts)
{
	nodes_free(&texts->nodes);
	free_source(&texts->scenario);
	free_source(&texts->config);
	free(texts->config_text);
}

/* ---- all of it ---- */

/* Both forms; the one that is asked for is kept. */
static void read_forms(struct texts *texts, struct scenarios *out, struct config_problems *problems)
{
	bool brief = texts->options->brief;
	struct scenarios other = {0};
	struct config_problems forms[2] = {{0}, {0}};
	const char *key = scenario_rows[SK_SHORT].name;

	read_form(texts, brief, out, &forms[0]);
	fold(problems, &forms[0], forms, 0, "", "");
	if (node_child(texts->root, key)) {
		read_form(texts, !brief, &other, &forms[1]);
		fold(problems, &forms[1], &forms[0], 1, key, brief ? " (without --short)" : " (with --short)");
		scenarios_free(&other);
	}
	config_problems_free(&forms[0]);
	config_problems_free(&forms[1]);
}

int scenarios_parse(const char *text, size_t size, const struct scenario_options *options, struct scenarios *out,
                    struct config_problems *problems)
{
	struct texts texts = {.options = options};
	int r;

	*out = (struct scenarios){0};
	if (options->workers > SCENARIO_WORKERS)
		config_problems_add(problems, false, "", 0, 0, "%u workers are too many; there can be %u", options->workers,
		                    SCENARIO_WORKERS);
	r = read_scenario_text(&texts, text, size, problems);
	if (r == 0 && options->config)
		r = read_config(&texts, options->config, problems);
	if (r == 0)
		read_forms(&texts, out, problems);
	if (r == 0 && problems->errors == 0 && !texts.short_of_memory)
		apply_options(out, options, problems);
	if (r == -ENOMEM || texts.short_of_memory) {
		config_problems_add(problems, false, "", 0, 0, "does not fit in memory");
		r = -ENOMEM;
	}
	free_texts(&texts);
	config_problems_finish(problems);
	if (r == 0 && problems->errors > 0)
		r = -EINVAL;
	if (r < 0)
		scenarios_free(out);
	return r;
}

int scenarios_load(const char *path, const struct scenario_options *options, struct scenarios *out, struct config_problems *problems)
{
	char *text;
	size_t size;
	int r = config_file_read(path, &text, &size, problems);

	*out = (struct scenarios){0};
	if (r < 0)
		return r;
	r = scenarios_parse(text, size, options, out, problems);
	free(text);
	return r;
}

void scenarios_free(struct scenarios *scenarios)
{
	expectations_free(scenarios);
	for (size_t i = 0; i < scenarios->count; i++)
		scenario_free(&scenarios->items[i]);
	free(scenarios->items);
	*scenarios = (struct scenarios){0};
}
