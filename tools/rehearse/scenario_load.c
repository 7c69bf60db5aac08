/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a load says through which resources its requests go, what they call, and when they come. All of it must be there: a
 * resource that the configuration does not have would be no guard at all, and a rate beside a burst is two loads.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"
#include "scenario_read.h"

#define LOADS_MOST 64u
#define RATES_MOST 3600u
#define RATE_MOST  1e6
#define SECOND     1e9
#define SIGMAS     8 /* random arrivals are never that many more than expected */

#define COUNT(keys) (sizeof(keys) / sizeof((keys)[0]))

/* ---- how many ---- */

static double load_requests(const struct load *load)
{
	double count = 0, from = (double)load->from_ns / SECOND, to = (double)load->to_ns / SECOND;

	if (load->arrivals == ARRIVALS_AT)
		return (double)load->at_count;
	for (size_t i = 0; i < load->rate_count; i++) {
		double begin = from + (double)i, end = i + 1 == load->rate_count ? to : fmin(begin + 1, to);

		if (begin < end)
			count += load->rates[i] * (end - begin);
	}
	return load->arrivals == ARRIVALS_POISSON ? count + SIGMAS * sqrt(count) + 1 : ceil(count) + 1;
}

double scenario_requests(const struct scenario *scenario)
{
	double count = 0;

	for (size_t i = 0; i < scenario->load_count; i++)
		count += load_requests(&scenario->loads[i]);
	return count;
}

/* ---- through which resources ---- */

/* The scenario may have a configuration too, in which the name is: so one of the command line is told by its file. */
static void say_unknown(struct reading *reading, const struct node *node, const char *name)
{
	const char *where = reading->options->config ? reading->options->config : "the configuration";
	const char **names = reading_memory(reading, reading->config.count, sizeof(char *));
	char advice[300];

	for (size_t i = 0; names && i < reading->config.count; i++)
		names[i] = reading->config.resources[i].name;
	if (names) {
		advise_name(name, names, reading->config.count, advice, sizeof(advice));
		node_error(reading->problems, node, "%s has no resource of that name; %s", where, advice);
	}
	free(names);
}

/* The index of a resource in the scenario; a new one where no load has named it before. False: there is no room. */
static bool index_of(struct scenario *scenario, const char *name, uint32_t *index)
{
	for (*index = 0; *index < scenario->resource_count; *index += 1) {
		if (strcmp(scenario->resources[*index], name) == 0)
			return true;
	}
	if (scenario->resource_count == SCENARIO_RESOURCES)
		return false;
	snprintf(scenario->resources[scenario->resource_count++], SCENARIO_NAME, "%s", name);
	return true;
}

static bool is_in_chain(const struct load *load, uint32_t index)
{
	for (size_t i = 0; i < load->chain_count; i++) {
		if (load->chain[i] == index)
			return true;
	}
	return false;
}

/* False: refused, with a problem. */
static bool add_resource(struct reading *reading, const struct node *node, struct load *load)
{
	const char *name = json_string_value(node->value);
	struct resc_error err;
	uint32_t index;

	if (!name)
		return refuse_type(reading, node, SK_RESOURCE);
	if (name_check(name, &err) < 0) {
		node_error(reading->problems, node, "%s", err.text);
	} else if (reading->has_config && !configuration_policy(reading, name)) {
		say_unknown(reading, node, name);
	} else if (!index_of(reading->scenario, name, &index)) {
		node_error(reading->problems, node, "there are more than %u resources in the loads; name fewer", SCENARIO_RESOURCES);
	} else if (is_in_chain(load, index)) {
		node_error(reading->problems, node, "it is named twice; a request goes through each resource once");
	} else {
		load->chain[load->chain_count++] = index;
		return true;
	}
	return false;
}

static void read_chain(struct section *section, struct load *load)
{
	const struct node *node = section->at[SK_RESOURCE];

	if (!section_needs(section, SK_RESOURCE, "name the resource that guards its calls"))
		return;
	if (!json_is_array(node->value)) {
		section->bad |= !add_resource(section->reading, node, load);
		return;
	}
	if (node_count(node) == 0 || node_count(node) > SCENARIO_CHAIN) {
		section_error(section, SK_RESOURCE, "%zu resources; a request goes through 1 to %u", node_count(node), SCENARIO_CHAIN);
		return;
	}
	for (const struct node *child = node->first; child; child = child->next)
		section->bad |= !add_resource(section->reading, child, load);
}

/* ---- what is called ---- */

static int find_dependency(const struct scenario *scenario, const char *name)
{
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		if (strcmp(scenario->dependencies[i].name, name) == 0)
			return (int)i;
	}
	return -1;
}

static void say_no_dependency(struct section *section, const char *name)
{
	const struct scenario *scenario = section->reading->scenario;
	const char *names[SCENARIO_DEPENDENCIES];
	char advice[300];

	for (size_t i = 0; i < scenario->dependency_count; i++)
		names[i] = scenario->dependencies[i].name;
	advise_name(name, names, scenario->dependency_count, advice, sizeof(advice));
	section_error(section, SK_DEPENDENCY, "there is no dependency of that name; %s", advice);
}

static void read_target(struct section *section, struct load *load)
{
	struct scenario *scenario = section->reading->scenario;
	const char *name = section_text(section, SK_DEPENDENCY, NULL);

	load->dependency = -1;
	load->work_ns = section_duration(section, SK_WORK, 0);
	if (section->bad)
		return;
	if (section->at[SK_WORK]) {
		section_forbids(section, SK_DEPENDENCY, "with `work` nothing is called");
		return;
	}
	if (!name)
		name = scenario->resources[load->chain[load->chain_count - 1]];
	load->dependency = find_dependency(scenario, name);
	if (load->dependency >= 0)
		return;
	if (section->at[SK_DEPENDENCY])
		say_no_dependency(section, name);
	else
		section_error(section, SK_DEPENDENCY,
		              "there is no dependency \"%s\"; name another with `dependency`, or say with `work` how long it takes", name);
}

/* ---- when they come ---- */

static void read_rates(struct section *section, struct load *load)
{
	struct reading *reading = section->reading;
	const struct node *node = section->at[SK_RATE], *first = json_is_array(node->value) ? node->first : node;
	size_t count = json_is_array(node->value) ? node_count(node) : 1;
	double sum = 0;

	if (count == 0 || count > RATES_MOST) {
		section_error(section, SK_RATE, "%zu values; there can be 1 to %u", count, RATES_MOST);
		return;
	}
	load->rates = reading_memory(reading, count, sizeof(double));
	for (const struct node *one = first; load->rates && load->rate_count < count; one = one->next) {
		if (!value_of_number(reading, one, SK_RATE, 0, RATE_MOST, &load->rates[load->rate_count])) {
			section->bad = true;
			return;
		}
		sum += load->rates[load->rate_count++];
	}
	if (load->rates && sum <= 0)
		section_error(section, SK_RATE, "nobody comes; write a number above 0, or leave the load out");
}

static void read_at(struct section *section, struct load *load)
{
	struct reading *reading = section->reading;
	const struct node *list = section_list(section, SK_AT, SCENARIO_REQUESTS);
	int64_t before = 0;

	if (!list)
		return;
	load->at = reading_memory(reading, node_count(list), sizeof(int64_t));
	for (const struct node *one = list->first; load->at && one; one = one->next) {
		int64_t *at = &load->at[load->at_count];

		if (!value_of_duration(reading, one, SK_LOAD_FROM, at)) {
			section->bad = true;
			return;
		}
		if (*at < before || *at >= reading->scenario->duration_ns) {
			section->bad = !refuse(reading, one, SK_AT,
			                       *at < before ? "is before the one before it" : "is when the rehearsal is over");
			return;
		}
		before = *at;
		load->at_count += 1;
	}
	if (load->at && load->at_count == 0)
		section_error(section, SK_AT, "is empty; write when the requests come");
}

/* So many from `from` on, at even distances (0: all at once). */
static void read_row(struct section *section, enum scenario_key id, struct load *load)
{
	uint64_t count = section_integer(section, id, 0);
	int64_t every = section_duration(section, SK_EVERY, 0), duration = section->reading->scenario->duration_ns;

	if (section->bad)
		return;
	if ((double)load->from_ns + (double)(count - 1) * (double)every >= (double)duration) {
		section_error(section, id, "the last one would come when the rehearsal is over; lengthen `duration`, or let fewer come");
		return;
	}
	if (scenario_requests(section->reading->scenario) + (double)count > SCENARIO_REQUESTS) {
		section_error(section, id, "with the loads before it there can be %u requests; let fewer come", SCENARIO_REQUESTS);
		return;
	}
	load->at = reading_memory(section->reading, count, sizeof(int64_t));
	for (uint64_t i = 0; load->at && i < count; i++)
		load->at[load->at_count++] = load->from_ns + (int64_t)i * every;
}

/* One of rate, burst, at, and count with every. SCENARIO_KEYS: none of them, or several, and a problem says so. */
static enum scenario_key which(struct section *section)
{
	static const enum scenario_key ways[] = {SK_RATE, SK_BURST, SK_AT, SK_COUNT};
	enum scenario_key found = SK_NONE;

	for (size_t i = 0; i < COUNT(ways); i++) {
		if (!section->at[ways[i]])
			continue;
		if (found != SK_NONE) {
			section_error(section, ways[i], "there is `%s` already; write two loads, or leave one out",
			              scenario_rows[found].name);
			return SK_NONE;
		}
		found = ways[i];
	}
	if (found == SK_NONE)
		node_key_error(section->reading->problems, section->node,
		               "nothing says when its requests come; write one of rate, burst, at, or count with every");
	return found;
}

static void check_ways(struct section *section, enum scenario_key way)
{
	if (way != SK_RATE) {
		section_forbids(section, SK_ARRIVALS, "only a `rate` has it");
		section_forbids(section, SK_LOAD_TO, "only a `rate` has it");
	}
	if (way == SK_AT)
		section_forbids(section, SK_LOAD_FROM, "`at` says all times");
	if (way == SK_COUNT)
		section_needs(section, SK_EVERY, "how far apart do they come?");
	else
		section_forbids(section, SK_EVERY, "only a `count` has it");
}

static void check_span(struct section *section, const struct load *load)
{
	int64_t duration = section->reading->scenario->duration_ns;

	if (load->from_ns >= load->to_ns && section->at[SK_LOAD_TO])
		section_error(section, SK_LOAD_TO, "the load is over before it begins; `to` must be later than `from`");
	else if (load->from_ns >= duration)
		section_error(section, SK_LOAD_FROM, "the load begins when the rehearsal is over; begin earlier, or lengthen `duration`");
	else if (load->to_ns > duration)
		section_error(section, SK_LOAD_TO, "the rehearsal is over before; leave `to` out, or lengthen `duration`");
}

static void read_arrivals(struct section *section, struct load *load)
{
	enum scenario_key way = which(section);

	load->from_ns = section_duration(section, SK_LOAD_FROM, 0);
	load->to_ns = section_duration(section, SK_LOAD_TO, section->reading->scenario->duration_ns);
	if (section->reading->brief && load->to_ns > section->reading->scenario->duration_ns)
		load->to_ns = section->reading->scenario->duration_ns;
	load->arrivals = way == SK_RATE ? (enum arrivals)section_word(section, SK_ARRIVALS, ARRIVALS_EVEN) : ARRIVALS_AT;
	if (way == SK_NONE)
		return;
	check_ways(section, way);
	if (!section->bad)
		check_span(section, load);
	if (way == SK_RATE)
		read_rates(section, load);
	else if (way == SK_AT)
		read_at(section, load);
	else
		read_row(section, way, load);
}

/* ---- what they are like ---- */

static bool has_once(const struct reading *reading, const struct load *load)
{
	for (size_t i = 0; i < load->chain_count; i++) {
		const struct policy *policy = configuration_policy(reading, reading->scenario->resources[load->chain[i]]);

		if (policy && (policy->flags & POLICY_ONCE) != 0)
			return true;
	}
	return false;
}

static void read_key(struct section *section, struct load *load)
{
	const char *key = section_text(section, SK_KEY, NULL);
	unsigned store = section_word(section, SK_STORE, 0);

	if (!key) {
		if (!section->at[SK_KEY])
			section_forbids(section, SK_STORE, "without `key` nothing is stored");
		return;
	}
	load->keyed = store == 0 ? KEYED_BEFORE : KEYED_AFTER;
	load->key = strcmp(key, "each") == 0 ? NULL : reading_copy(section->reading, key);
	if (!section->bad && section->reading->has_config && !has_once(section->reading, load))
		section_error(section, SK_KEY,
		              "no resource of this load has `once`, so keys are not kept; give it \"once\": {}, or leave `key` out");
}

static void read_manners(struct section *section, struct load *load)
{
	unsigned fallback = section_word(section, SK_FALLBACK, 0);

	load->priority = (enum resc_priority)section_word(section, SK_PRIORITY, RESC_NORMAL);
	load->cost = (uint32_t)section_integer(section, SK_COST, 1);
	load->deadline_ns = section_duration(section, SK_DEADLINE, 0);
	load->patience_ns = section_duration(section, SK_PATIENCE, 0);
	load->retries = section_boolean(section, SK_RETRIES, true);
	load->retried_upstream = section_boolean(section, SK_RETRIED_UPSTREAM, false);
	if (section->at[SK_FALLBACK])
		snprintf(load->fallback, sizeof(load->fallback), "%s", scenario_rows[SK_FALLBACK].words[fallback]);
	if (load->chain_count == 1)
		section_forbids(section, SK_RETRIED_UPSTREAM, "with one resource there is nobody to be told");
}

static void read_load(struct reading *reading, const struct node *node, struct load *load)
{
	struct section section;

	*load = (struct load){.dependency = -1, .cost = 1};
	snprintf(load->name, sizeof(load->name), "%s", node->key);
	check_label(reading, node);
	if (!section_read(reading, node, SB_LOAD, &section))
		return;
	read_chain(&section, load);
	read_target(&section, load);
	read_manners(&section, load);
	read_key(&section, load);
	read_arrivals(&section, load);
}

void loads_read(struct reading *reading, const struct node *node)
{
	struct scenario *scenario = reading->scenario;
	size_t count = node_count(node);

	if (count == 0 || count > LOADS_MOST) {
		node_error(reading->problems, node, "%zu loads; there can be 1 to %u", count, LOADS_MOST);
		return;
	}
	scenario->loads = reading_memory(reading, count, sizeof(struct load));
	for (const struct node *child = node->first; scenario->loads && child; child = child->next)
		read_load(reading, child, &scenario->loads[scenario->load_count++]);
}

void load_free(struct load *load)
{
	free(load->rates);
	free(load->at);
	free(load->key);
}
