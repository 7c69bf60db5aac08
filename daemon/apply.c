/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a reload must change what the operator changed, and nothing else. States, windows, tokens and permits stay where they
 * are; a policy that is the same is not even written, so that no worker has to look at it again.
 *
 * The rule for records: a record belongs to one name for the life of a segment. A resource that is removed from the configuration is
 * retired: lookups do not find it, calls get -ENOENT, and those that are inside give back their permits as always. If its name comes
 * back, it gets its record back, breaker closed and budget full, and whoever is still inside still counts. A record of another name is
 * never reused, because a worker that is slow to notice would count into it. When free records run out, the table is replaced by a
 * successor, which leaves out the retired ones that are empty.
 *
 * Patterns are no records. What was made from one (made.c) follows the pattern that its name matches now, with its state; so does a
 * resource that is removed while a pattern matches its name, because its next lookup would make it again. Where none matches any more
 * it is retired, and where the configuration names it, it is the configuration's from then on.
 *
 * What can fail is done first: the successor. After that only memory is written, so a reload is applied as a whole or refused as a whole.
 */
#include "apply.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "budget.h"
#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "injection.h"
#include "log.h"
#include "permit.h"
#include "policy.h"
#include "record.h"
#include "states.h"

static uint32_t at_least(uint32_t a, uint64_t b)
{
	return b <= a ? a : b > UINT32_MAX ? UINT32_MAX : (uint32_t)b;
}

/* What one policy needs room for. A share of the live workers may become as large as their number times the share. */
static void add_needs(struct map_needs *needs, const struct policy *policy, uint32_t workers)
{
	if ((policy->flags & POLICY_BULKHEAD) != 0) {
		uint64_t limit = policy->limit_share_ppm == 0 ? policy->limit : (workers * policy->limit_share_ppm + 999999) / 1000000;

		needs->permits = at_least(needs->permits, limit > PERMITS_LIMIT ? PERMITS_LIMIT : limit);
		if (policy->max_wait_ms != 0)
			needs->waiting = at_least(needs->waiting, policy->max_waiting);
	}
	if ((policy->flags & POLICY_BREAKER) != 0)
		needs->calls = at_least(needs->calls, policy->window_calls);
}

static struct map_needs needs_of(const struct config *config)
{
	struct map_needs needs = {.resources = (uint32_t)config->count, .workers = config->workers, .once = config->once_keys};

	for (size_t i = 0; i < config->count; i++)
		add_needs(&needs, &config->resources[i].policy, config->workers);
	for (size_t i = 0; i < config->pattern_count; i++)
		add_needs(&needs, &config->patterns[i].policy, config->workers);
	if (config->pattern_count > 0)
		needs.resources = at_least(needs.resources, (uint64_t)needs.resources + config->made);
	return needs;
}

struct segment_dims apply_dims(const struct config *config)
{
	struct segment_dims dims;
	const struct map_needs needs = needs_of(config);

	map_dims(&dims, &needs);
	return dims;
}

static struct policy wanted(const struct config_resource *resource, const struct map *map)
{
	struct policy policy = resource->policy;

	policy.flags |= POLICY_CONFIGURED;
	policy_clamp(&policy, &map->dims);
	return policy;
}

struct policy apply_pattern(const struct config_resource *pattern, const struct map *map)
{
	struct policy policy = wanted(pattern, map);

	policy.flags |= POLICY_MADE;
	return policy;
}

/* From now on, names that no record has may be asked for, or not. */
static void announce_patterns(const struct map *map, const struct config *config)
{
	atomic_store_explicit(&map->daemon->patterns, config->pattern_count, memory_order_release);
}

int apply_fresh(const struct map *map, const void *arg, struct resc_error *err)
{
	const struct config *config = arg;

	for (size_t i = 0; i < config->count; i++) {
		struct policy policy = wanted(&config->resources[i], map);

		if (record_publish(map, config->resources[i].name, &policy) < 0)
			return error_set(err, -ENOSPC, "%zu resources are more than a segment can hold (%u)", config->count,
			                 RESOURCES_LIMIT);
		states_forget_now_and_then(map, (uint32_t)i);
	}
	announce_patterns(map, config);
	return 0;
}

/* ---- growing ---- */

/* Records that are taken: in use, or retired. And the names of the configuration that have none. */
static void count_records(const struct map *map, const struct config *config, uint32_t *taken, uint32_t *missing)
{
	char name[SEGMENT_NAME_SIZE];
	uint32_t known = 0;

	*taken = 0;
	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if (!policy_name_any(map, i, name))
			continue;
		*taken += 1;
		known += config_find(config, name) != NULL;
	}
	*missing = (uint32_t)config->count - known;
}

uint32_t apply_records_kept(const struct map *map)
{
	char name[SEGMENT_NAME_SIZE];
	uint32_t kept = 0;

	for (uint32_t i = 0; i < map->dims.resources; i++)
		kept += policy_name(map, i, name) || (policy_name_any(map, i, name) && permit_occupied(map, map_state(map, i)) != 0);
	return kept;
}

int apply_replace(struct instance *instance, const struct config *config, uint32_t resources, struct resc_error *err)
{
	const struct segment_dims *now = &instance->map.dims;
	struct map_needs needs = needs_of(config);
	struct segment_dims dims;

	/* It keeps the indices of the records, so it is never smaller. */
	needs.resources = at_least(now->resources, at_least(needs.resources, resources));
	needs.workers = at_least(now->workers, needs.workers);
	needs.permits = at_least(now->permits, needs.permits);
	needs.calls = at_least(now->calls, needs.calls);
	needs.waiting = at_least(now->waiting, needs.waiting);
	needs.once = at_least(now->once, needs.once);
	map_dims(&dims, &needs);
	dims.resources = at_least(dims.resources, now->resources);
	dims.shards = at_least(dims.shards, now->shards);
	return instance_replace(instance, &dims, err);
}

/* 0, and *replaced says whether it had to be. */
static int make_room(struct instance *instance, const struct config *config, bool *replaced, struct resc_error *err)
{
	const struct segment_dims *now = &instance->map.dims;
	const struct map_needs needs = needs_of(config);
	uint32_t taken, missing;

	count_records(&instance->map, config, &taken, &missing);
	*replaced = missing > now->resources - taken || needs.permits > now->permits || needs.workers > now->workers ||
	            needs.calls > now->calls || needs.waiting > now->waiting || needs.once > now->once ||
	            (config->pattern_count > 0 && needs.resources > now->resources);
	if (!*replaced && !instance_is_of_other_version(instance))
		return 0;
	int r = apply_replace(instance, config, apply_records_kept(&instance->map) + missing, err);
	/* There is room; the change of version can wait: see instance_tick. */
	if (r < 0 && !*replaced)
		return 0;
	*replaced = true;
	return r;
}

/* ---- writing ---- */

static bool same_policy(const struct policy *a, const struct policy *b)
{
	struct policy x = *a, y = *b;

	/* The segment's own memory of an earlier capacity or rate is no setting. */
	x.budget_epoch = y.budget_epoch = 0;
	x.budget_previous = y.budget_previous = 0;
	x.rate_epoch = y.rate_epoch = 0;
	x.rate_previous_per_second = y.rate_previous_per_second = 0;
	x.rate_previous_burst = y.rate_previous_burst = 0;
	return memcmp(&x, &y, sizeof(x)) == 0;
}

static void add_name(json_t *report, const char *key, const char *name)
{
	json_array_append_new(json_object_get(report, key), json_string(name));
}

static void write_resource(const struct map *map, const char *name, const struct policy *policy, json_t *report)
{
	int index = policy_find(map, name);
	struct policy current;
	uint64_t sequence;

	if (index < 0) {
		/* There is room: make_room has counted. */
		if (record_publish(map, name, policy) >= 0)
			add_name(report, "added", name);
		return;
	}
	if (policy_read(map, (uint32_t)index, &current, &sequence) == 0) {
		if (same_policy(&current, policy))
			return;
		/* What flowed in until now did so at the old rate. */
		if ((current.flags & POLICY_BUDGET) != 0)
			budget_settle(map, map_state(map, (uint32_t)index), &current, clock_coarse_ms(map));
	}
	FAILPOINT("apply.settled");
	policy_write(map, (uint32_t)index, policy);
	FAILPOINT("apply.written");
	if ((policy->flags & POLICY_INJECTION) == 0)
		injection_forbid(map, (uint32_t)index);
	record_apply(map, (uint32_t)index, policy);
	add_name(report, "changed", name);
}

/* Records whose name the configuration does not have: they follow a pattern, or go. */
static void write_others(const struct map *map, const struct config *config, json_t *report)
{
	char name[SEGMENT_NAME_SIZE];

	for (uint32_t i = 0; i < states_in_use(map); i++) {
		const struct config_resource *pattern;

		if (!policy_name(map, i, name) || config_find(config, name))
			continue;
		pattern = config_match(config, name);
		if (pattern) {
			struct policy policy = apply_pattern(pattern, map);

			write_resource(map, name, &policy, report);
			continue;
		}
		injection_forbid(map, i);
		record_retire(map, i);
		add_name(report, "removed", name);
	}
}

int apply_config(struct instance *instance, const struct config *config, json_t *report, struct resc_error *err)
{
	bool replaced;
	int r = make_room(instance, config, &replaced, err);

	if (r < 0)
		return r;
	json_object_set_new(report, "changed", json_array());
	json_object_set_new(report, "added", json_array());
	json_object_set_new(report, "removed", json_array());
	json_object_set_new(report, "replaced", json_boolean(replaced));
	for (size_t i = 0; i < config->count; i++) {
		struct policy policy = wanted(&config->resources[i], &instance->map);

		write_resource(&instance->map, config->resources[i].name, &policy, report);
	}
	write_others(&instance->map, config, report);
	announce_patterns(&instance->map, config);
	states_forget(&instance->map);
	return 0;
}
