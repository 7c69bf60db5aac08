/* SPDX-License-Identifier: MIT */
/*
 * Records: a name comes into use, changes its policy, goes out of use. Only rescd (or the owner of a private view) does this.
 *
 * The order is that of who may look: policy and state first, then the name, then its hash, which is what makes it visible (release); going
 * out of use takes the hash away first. So a worker that finds a name finds everything that belongs to it. A death in the middle leaves a
 * record that nobody sees, and that the next publication of its name, or of a new one, fills again.
 */
#include "record.h"

#include <errno.h>

#include "budget.h"
#include "clock.h"
#include "failpoint.h"
#include "permit.h"
#include "rate.h"
#include "share.h"
#include "throttle.h"
#include "words.h"

static void mark_common_shards(const struct map *map, struct state *state)
{
	for (uint32_t i = map_first_common_shard(map); i < map->dims.shards; i++)
		atomic_store_explicit(&map_shard(map, state, i)->owner, SHARD_COMMON, memory_order_relaxed);
}

/* Closed, budget full. For a record that nobody can look up now; who comes late with an older generation finds that it has moved on. */
static void fresh_state(const struct map *map, uint32_t index, const struct policy *policy)
{
	struct state *state = map_state(map, index);
	uint64_t now = clock_coarse_ms(map);
	uint64_t old = atomic_load_explicit(&state->breaker, memory_order_relaxed);
	uint16_t generation = (uint16_t)(breaker_generation(old) + 1);
	uint64_t override = atomic_load_explicit(&state->override, memory_order_relaxed);
	unsigned limit = share_target(map, policy);

	mark_common_shards(map, state);
	atomic_store_explicit(&state->streak, streak_make(generation, WORD_LIVE, 0), memory_order_relaxed);
	atomic_store_explicit(&state->override, override_make(WORD_LIVE, OVERRIDE_NONE, override_serial(override), 0),
	                      memory_order_relaxed);
	if (map_has(map, 2)) {
		uint64_t injection = atomic_load_explicit(&state->injection, memory_order_relaxed);
		atomic_store_explicit(&state->injection, injection_make(WORD_LIVE, false, injection_serial(injection), 0),
		                      memory_order_relaxed);
	}
	budget_start(map, state, policy, now);
	atomic_store_explicit(&state->rate, rate_make(WORD_LIVE, (unsigned)policy->rate_epoch, 0), memory_order_relaxed);
	if (breaker_tag(old) != TAG_EMPTY)
		throttle_forget(state, now);
	atomic_store_explicit(&state->transition, transition_make(generation, REASON_NONE, now), memory_order_relaxed);
	atomic_store_explicit(&state->recorded, recorded_make(TAG_CLOSED, generation), memory_order_relaxed);
	if (limit_target(atomic_load_explicit(&state->limit, memory_order_relaxed)) == 0)
		atomic_store_explicit(&state->limit, limit_make(limit, limit, 0, 1), memory_order_relaxed);
	atomic_store_explicit(&state->breaker, breaker_make(TAG_CLOSED, 0, generation, now), memory_order_release);
}

static int find_free(const struct map *map)
{
	for (uint32_t i = 0; i < map->dims.resources; i++)
		if (policy_is_free(map_policy(map, i)))
			return (int)i;
	return -ENOSPC;
}

bool record_has_room(const struct map *map, const char *name)
{
	return find_free(map) >= 0 || policy_find_any(map, name) >= 0;
}

static void count_record(const struct map *map, uint32_t index)
{
	/* rescd is the only writer. */
	if (atomic_load_explicit(&map->daemon->resources, memory_order_relaxed) <= index)
		atomic_store_explicit(&map->daemon->resources, (uint64_t)index + 1, memory_order_release);
}

void record_apply(const struct map *map, uint32_t index, const struct policy *policy)
{
	share_follow(map, index, policy);
	/* The budget follows by its epoch: whoever touches the tokens next converts them. The rate limit refills by time alone, so it is
	 * converted at once. */
	rate_settle(map, map_state(map, index));
	permit_set_limit(map, map_state(map, index), share_target(map, policy));
}

int record_publish(const struct map *map, const char *name, const struct policy *policy)
{
	struct policy written;
	uint64_t sequence;
	int index = policy_find_any(map, name);

	if (index < 0)
		index = find_free(map);
	if (index < 0)
		return index;
	policy_write(map, (uint32_t)index, policy);
	if (policy_read(map, (uint32_t)index, &written, &sequence) != 0)
		written = *policy;
	fresh_state(map, (uint32_t)index, &written);
	record_apply(map, (uint32_t)index, &written);
	FAILPOINT("publish.state");
	policy_put_name(map_policy(map, (uint32_t)index), name);
	FAILPOINT("publish.named");
	policy_show_name(map_policy(map, (uint32_t)index), name);
	FAILPOINT("publish.shown");
	count_record(map, (uint32_t)index);
	return index;
}

void record_publish_moved(const struct map *map, uint32_t index, const char *name, const struct policy *policy, bool retired)
{
	struct policy_record *record = map_policy(map, index);
	struct state *state = map_state(map, index);

	share_follow(map, index, policy);
	unsigned target = share_target(map, policy);
	/* As it is: epoch and previous capacity belong to the tokens that will be moved. */
	policy_store(map, index, policy);
	mark_common_shards(map, state);
	atomic_store_explicit(&state->limit, limit_make(target, 0, target, 1), memory_order_relaxed);
	policy_put_name(record, name);
	if (!retired)
		policy_show_name(record, name);
	count_record(map, index);
}

void record_retire(const struct map *map, uint32_t index)
{
	struct policy policy;
	uint64_t sequence;

	atomic_store_explicit(&map_policy(map, index)->name_hash, 0, memory_order_release);
	FAILPOINT("retire.hidden");
	/* A new sequence, so that every worker looks at the record again on its next call. */
	if (policy_read(map, index, &policy, &sequence) == 0) {
		policy.flags &= ~(uint64_t)POLICY_CONFIGURED;
		policy_store(map, index, &policy);
	}
}
