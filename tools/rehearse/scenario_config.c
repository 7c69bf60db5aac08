/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what is rehearsed must be what rescd would do, so the configuration of a scenario is read by the code that reads
 * resc.json, and has all its strictness. It may be put together from the file, its "short" and a variant's change; then rescd's parser sees
 * a text that nobody wrote, and its problems are led back to where each value is written.
 *
 * What belongs to the lab is not the scenario's to say: instance, group, mode, metrics, control and workers. In a file that was given with
 * --config they stand for good reason, and are passed over.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "config_sense.h"
#include "scenario_read.h"

static bool is_the_labs(const char *key)
{
	static const char *const keys[] = {"instance", "group", "mode", "metrics", "control", "workers"};

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		if (strcmp(keys[i], key) == 0)
			return true;
	}
	return false;
}

/* Its own keys, as rescd would read them. NULL: out of memory. */
static json_t *collect(struct reading *reading, const struct node *node)
{
	json_t *all = json_object();

	for (const struct node *child = node->first; all && child; child = child->next) {
		json_t *value;

		if (is_the_labs(child->key)) {
			if (!child->source->file)
				node_key_error(reading->problems, child, "is the lab's own; leave it out");
			continue;
		}
		value = node_json(child);
		if (!value || json_object_set_new(all, child->key, value) < 0) {
			json_decref(all);
			return NULL;
		}
	}
	return all;
}

/* ---- where a problem is ---- */

/* The place of a text, and the node that it was made from. */
struct origin {
	const struct places *places;
	const struct node **nodes; /* one for each place */
};

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
static void trace(struct origin *origin, uint32_t place, const struct node *node)
{
	const struct place *items = origin->places->items;
	const struct node *child = node->first;

	origin->nodes[place] = node;
	for (uint32_t i = items[place].first; i != PLACE_NONE; i = items[i].next) {
		while (child && strcmp(child->key, items[i].key) != 0)
			child = child->next;
		if (!child)
			return;
		trace(origin, i, child);
		child = child->next;
	}
}

static bool is_at(const struct place *place, const struct config_problem *problem, bool *at_key)
{
	*at_key = place->line == problem->line && place->column == problem->column;
	return *at_key || (place->value_line == problem->line && place->value_column == problem->column);
}

static void lead_back(struct reading *reading, const struct origin *origin, const struct config_problem *problem, const struct node *root)
{
	const struct node *node = root;
	bool at_key = false;

	/* What happens without any guard is a fair question here. */
	if (strcmp(problem->text, CONFIG_NOTHING_ON) == 0)
		return;
	for (uint32_t i = 0; i < origin->places->count && problem->line > 0; i++) {
		if (origin->nodes[i] && is_at(&origin->places->items[i], problem, &at_key)) {
			node = origin->nodes[i];
			break;
		}
	}
	if (problem->warning)
		node_warning(reading->problems, node, "%s", problem->text);
	else if (at_key)
		node_key_error(reading->problems, node, "%s", problem->text);
	else
		node_error(reading->problems, node, "%s", problem->text);
}

static void lead_all_back(struct reading *reading, const char *text, const struct node *root, const struct config_problems *problems)
{
	struct places places;
	struct origin origin = {.places = &places};

	if (problems->count == 0)
		return;
	if (places_scan(text, strlen(text), &places) < 0) {
		reading->short_of_memory = true;
		return;
	}
	origin.nodes = reading_memory(reading, places.count, sizeof(const struct node *));
	if (origin.nodes) {
		trace(&origin, PLACE_ROOT, root);
		for (size_t i = 0; i < problems->count; i++)
			lead_back(reading, &origin, &problems->items[i], root);
	}
	free(origin.nodes);
	places_free(&places);
}

/* ---- reading ---- */

static void parse(struct reading *reading, const struct node *node)
{
	struct config_problems problems = {0};
	char *text = json_dumps(reading->scenario->configuration, JSON_COMPACT);
	int r;

	if (!text) {
		reading->short_of_memory = true;
		return;
	}
	r = config_parse(text, strlen(text), &reading->config, &problems);
	reading->has_config = r == 0;
	reading->short_of_memory |= r == -ENOMEM;
	lead_all_back(reading, text, node, &problems);
	config_problems_free(&problems);
	free(text);
}

void configuration_read(struct reading *reading)
{
	const struct node *node = node_child(reading->root, scenario_rows[SK_CONFIGURATION].name);

	if (!node) {
		node_key_error(reading->problems, reading->root, "\"configuration\" is missing; write one, or give a file with --config");
		return;
	}
	if (!json_is_object(node->value)) {
		refuse_type(reading, node, SK_CONFIGURATION);
		return;
	}
	reading->scenario->configuration = collect(reading, node);
	if (reading->scenario->configuration)
		parse(reading, node);
	else
		reading->short_of_memory = true;
}

const struct policy *configuration_policy(const struct reading *reading, const char *name)
{
	const struct config_resource *resource = config_find(&reading->config, name);

	if (!resource)
		resource = config_match(&reading->config, name);
	return resource ? &resource->policy : NULL;
}
