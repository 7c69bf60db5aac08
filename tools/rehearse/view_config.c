/* SPDX-License-Identifier: MIT */
/*
 * What a library inside each process would do is played with the very code that is shared: on its own view worker 3 has "prices.3" with the
 * policy of "prices", and nobody else calls that. So the difference between two takes is who shares what, and nothing else. A limit of ten
 * is then ten for each worker, a budget one for each, as they are where every process has its own.
 *
 * The instance is the laboratory's alone: name, control socket and metrics page are none of the configuration's, nor are group and mode
 * (the file may come from another host, or from one where it serves real workers).
 */
#include "view_config.h"

#include <stdio.h>
#include <string.h>

#include "config.h"

#define SPARE_WORKERS 16u /* beside the workers of the scenario */

void view_resource(char name[VIEW_NAME_SIZE], const char *resource, enum view view, unsigned worker)
{
	if (view == VIEW_SHARED)
		snprintf(name, VIEW_NAME_SIZE, "%s", resource);
	else
		snprintf(name, VIEW_NAME_SIZE, "%s.%u", resource, worker);
}

/* ---- policies ---- */

static bool pattern_matches(const char *pattern, const char *name)
{
	size_t length = strlen(pattern);

	return length > 0 && pattern[length - 1] == '*' && strncmp(pattern, name, length - 1) == 0;
}

/* As rescd finds it: that of the name, else that of the longest pattern. NULL: the configuration has neither. */
static json_t *policy_of(json_t *resources, const char *name)
{
	json_t *found = json_object_get(resources, name), *value;
	size_t longest = 0;
	const char *key;

	if (found != NULL)
		return found;
	json_object_foreach(resources, key, value)
	{
		if (pattern_matches(key, name) && strlen(key) > longest) {
			longest = strlen(key);
			found = value;
		}
	}
	return found;
}

static bool copy_policies(json_t *copies, const struct scenario *scenario, const char *name, json_t *policy, const char **problem)
{
	for (unsigned worker = 0; worker < scenario->workers; worker++) {
		char copy[VIEW_NAME_SIZE];
		view_resource(copy, name, VIEW_OWN, worker);
		if (strlen(copy) > RESC_NAME_MAX) {
			*problem =
			        "the name of a resource is too long to be followed by a worker's number, as it is on own views: at most 59 "
			        "characters";
			return false;
		}
		if (json_object_set(copies, copy, policy) < 0)
			return false;
	}
	return true;
}

/* The resources that the load names, one for each worker, and no others. */
static json_t *own_resources(const struct scenario *scenario, const char **problem)
{
	json_t *resources = json_object_get(scenario->configuration, "resources");
	json_t *copies = json_object();

	for (size_t i = 0; i < scenario->resource_count && copies != NULL; i++) {
		json_t *policy = policy_of(resources, scenario->resources[i]);
		if (policy == NULL)
			*problem = "the load names a resource that the configuration does not have";
		if (policy != NULL && copy_policies(copies, scenario, scenario->resources[i], policy, problem))
			continue;
		json_decref(copies);
		return NULL;
	}
	return copies;
}

/* ---- the file ---- */

static unsigned room_for_workers(const struct scenario *scenario)
{
	return scenario->workers + SPARE_WORKERS < CONFIG_WORKERS_LEAST ? CONFIG_WORKERS_LEAST : scenario->workers + SPARE_WORKERS;
}

static bool make_private(json_t *file, const struct scenario *scenario)
{
	static const char *const not_ours[] = {"instance", "control", "metrics", "group"};

	for (size_t i = 0; i < sizeof(not_ours) / sizeof(*not_ours); i++)
		json_object_del(file, not_ours[i]);
	return json_object_set_new(file, "mode", json_string("0600")) == 0 &&
	       json_object_set_new(file, "workers", json_integer(room_for_workers(scenario))) == 0;
}

json_t *view_configuration(const struct scenario *scenario, enum view view, const char **problem)
{
	json_t *file = json_copy(scenario->configuration);
	bool good = file != NULL;

	*problem = NULL;
	if (good && view == VIEW_OWN) {
		/* Of patterns alone. */
		json_object_del(file, "made");
		json_object_del(file, "idle");
		good = json_object_set_new(file, "resources", own_resources(scenario, problem)) == 0;
	}
	if (good && make_private(file, scenario))
		return file;
	json_decref(file);
	return NULL;
}
