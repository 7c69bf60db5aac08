/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: each part of a scenario can be sound, and the whole still be more than a machine can play: too many callers, too many
 * requests, names that are too long for a worker's own copy of a resource. That is told before anything is started.
 */
#include <string.h>

#include "scenario_read.h"

#define ATTEMPTS_MOST 1000000u
#define OWN_DIGITS    4 /* of the worker in the name of its own resource: ".255" */

/* The value that makes it so, for a message: its node, or the whole file. */
static const struct node *node_of(const struct reading *reading, enum scenario_key id)
{
	const struct node *node = node_child(reading->root, scenario_rows[id].name);

	return node ? node : reading->root;
}

static void check_callers(struct reading *reading)
{
	const struct scenario *scenario = reading->scenario;

	if ((uint64_t)scenario->workers * scenario->threads > SCENARIO_CALLERS)
		node_key_error(reading->problems, node_of(reading, SK_THREADS),
		               "%u workers with %u threads each are %u callers; there can be %u in all", scenario->workers,
		               scenario->threads, scenario->workers * scenario->threads, SCENARIO_CALLERS);
	if (scenario->order == ORDER_SINGLE && scenario->threads > 1)
		node_key_error(reading->problems, node_of(reading, SK_THREADS),
		               "one request at a time needs one thread; leave `threads` out, or choose another `order`");
}

static void check_requests(struct reading *reading)
{
	double count = scenario_requests(reading->scenario);

	if (count > SCENARIO_REQUESTS)
		node_key_error(reading->problems, node_of(reading, SK_LOAD),
		               "these are some %.0f requests; there can be %u: let fewer come, or shorten `duration`", count,
		               SCENARIO_REQUESTS);
}

static void check_used(struct reading *reading)
{
	const struct scenario *scenario = reading->scenario;
	const struct node *dependencies = node_child(reading->root, scenario_rows[SK_DEPENDENCIES].name);

	for (size_t i = 0; i < scenario->dependency_count; i++) {
		bool used = false;

		for (size_t j = 0; j < scenario->load_count; j++)
			used |= scenario->loads[j].dependency == (int)i;
		if (!used)
			node_warning(reading->problems, node_child(dependencies, scenario->dependencies[i].name), "no load calls it");
	}
}

/* Is the name of a worker's own copy taken? */
static bool is_taken(const struct reading *reading, const char *name)
{
	char copy[SCENARIO_NAME + 16];

	for (uint32_t i = 0; i < reading->scenario->workers; i++) {
		snprintf(copy, sizeof(copy), "%s.%u", name, i);
		if (config_find(&reading->config, copy))
			return true;
	}
	return false;
}

/* On own views each worker has a copy of each resource, named "NAME.WORKER". */
static void check_copies(struct reading *reading)
{
	const struct scenario *scenario = reading->scenario;
	size_t count = reading->config.count + scenario->resource_count * scenario->workers;

	if (count > RESOURCES_LIMIT)
		node_key_error(reading->problems, node_of(reading, SK_WORKERS),
		               "on own views %u workers need %zu resources; there can be %u: take fewer, or the shared view alone",
		               scenario->workers, count, RESOURCES_LIMIT);
	for (size_t i = 0; i < scenario->resource_count; i++) {
		if (strlen(scenario->resources[i]) + OWN_DIGITS > RESC_NAME_MAX)
			node_key_error(reading->problems, node_of(reading, SK_LOAD),
			               "the resource \"%.20s...\" has a name too long for own views; at most %d characters",
			               scenario->resources[i], RESC_NAME_MAX - OWN_DIGITS);
		if (is_taken(reading, scenario->resources[i]))
			node_key_error(reading->problems, node_of(reading, SK_CONFIGURATION),
			               "there are resources \"%s\" and \"%.40s.NUMBER\"; on own views that is the name of a worker's copy, "
			               "so rename one",
			               scenario->resources[i], scenario->resources[i]);
	}
}

/* Of one request: each attempt of a layer is a whole request for the layer below. */
static uint64_t attempts_of(const struct reading *reading, const struct load *load)
{
	uint64_t here = 1, all = 0;

	for (size_t i = 0; i < load->chain_count; i++) {
		const struct policy *policy = configuration_policy(reading, reading->scenario->resources[load->chain[i]]);
		bool retries = load->retries && !(load->retried_upstream && i > 0) && policy && (policy->flags & POLICY_RETRY) != 0;

		here *= retries ? policy->attempts : 1;
		here = here < ATTEMPTS_MOST ? here : ATTEMPTS_MOST;
		all += here;
	}
	return all < ATTEMPTS_MOST ? all : ATTEMPTS_MOST;
}

static void settle_attempts(struct reading *reading)
{
	struct scenario *scenario = reading->scenario;

	for (size_t i = 0; i < scenario->load_count; i++) {
		uint32_t attempts = (uint32_t)attempts_of(reading, &scenario->loads[i]);

		if (attempts > scenario->slowest_attempts)
			scenario->slowest_attempts = attempts;
	}
}

void scenario_check(struct reading *reading)
{
	check_callers(reading);
	check_used(reading);
	check_requests(reading);
	if (reading->scenario->views[VIEW_OWN] || (reading->options->views >> VIEW_OWN & 1) != 0)
		check_copies(reading);
	settle_attempts(reading);
}
