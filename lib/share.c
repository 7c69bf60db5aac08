/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the right limit of a bulkhead depends on how many workers there are, and that number changes with the load. "Half of the
 * workers may wait for payments" stays true when the pool grows; a number does not.
 *
 * What it guarantees: when nobody registers, leaves or is reaped any more, and one recount has been done after that, each limit is
 * ceil(share * live workers), at least 1 and at most the permit cells. On the way it is the right one for some moment of the last recounts.
 * No permit is taken from its holder: permit_set_limit sees to that.
 *
 * The protocol: whoever changes the number of workers (register, leave, reap), recounts afterwards: count the slots that are taken -> set
 * the limits -> count again; where the number has moved, start over. Of two who do it at once, one may set an older number last; but its
 * write of the limit comes after the other's, so its second count sees what the other saw, and it sets the limit again. A death between the
 * steps leaves an older limit, which the next one who recounts sets right: rescd, each second.
 *
 * Orders: a slot is claimed and freed by CAS, the limit is set by a seq_cst CAS, so who overwrites a limit sees the slots that were counted
 * for it. `shares` in segment_daemon says how many records have to be looked at, so that nobody pays where there is no share: rescd stores
 * it and then counts the slots, a worker takes its slot and then loads it (seq_cst all four): one of the two sees the other.
 *
 * In a successor the workers come one by one, with their next call. The limits shall not collapse meanwhile, so those that are still to
 * come count too: rescd says how many there are, each second.
 */
#include "share.h"

#include "clock.h"
#include "failpoint.h"
#include "permit.h"
#include "policy.h"
#include "words.h"

#define TRIES 16

unsigned share_taken(const struct map *map)
{
	unsigned taken = 0;

	for (uint32_t i = 0; i < map->dims.workers; i++)
		taken += atomic_load_explicit(&map_worker(map, i)->life, memory_order_seq_cst) != 0;
	return taken;
}

static unsigned expected(const struct map *map)
{
	/* relaxed: it is written before anybody can be here, and later only passes. */
	uint64_t w = atomic_load_explicit(&map->live->expected_workers, memory_order_relaxed);

	if (w == 0 || clock_coarse_ms(map) >= (w & TIME_MASK))
		return 0;
	return (unsigned)(w >> 40) > map->dims.workers ? map->dims.workers : (unsigned)(w >> 40);
}

unsigned share_workers(const struct map *map)
{
	unsigned taken = share_taken(map);
	unsigned coming = expected(map);

	return taken > coming ? taken : coming;
}

void share_expect(const struct map *map, unsigned workers, uint64_t until_ms)
{
	const uint64_t most = WORKERS_LIMIT;

	atomic_store_explicit(&map->live->expected_workers, (workers > most ? most : workers) << 40 | (until_ms & TIME_MASK),
	                      memory_order_relaxed);
}

bool share_is_expecting(const struct map *map)
{
	return expected(map) != 0;
}

static bool has_share(const struct policy *policy)
{
	return (policy->flags & POLICY_BULKHEAD) != 0 && policy->limit_share_ppm != 0;
}

static unsigned limit_for(const struct map *map, const struct policy *policy, unsigned workers)
{
	const unsigned cells = map->dims.permits;
	uint64_t limit = policy->limit;

	/* The share is at most 1000, the workers at most 2^14: far from 2^64. */
	if (has_share(policy))
		limit = (workers * policy->limit_share_ppm + 999999) / 1000000;
	if (limit == 0)
		return 1;
	return limit > cells ? cells : (unsigned)limit;
}

/* Without a bulkhead nothing is limited; nor in shadow mode, where who comes in beyond the limit is counted. */
static unsigned target_for(const struct map *map, const struct policy *policy, unsigned workers)
{
	bool enforced = (policy->flags & (POLICY_BULKHEAD | POLICY_SHADOW_BULKHEAD)) == POLICY_BULKHEAD;

	return enforced ? limit_for(map, policy, workers) : map->dims.permits;
}

unsigned share_limit(const struct map *map, const struct policy *policy)
{
	return limit_for(map, policy, has_share(policy) ? share_workers(map) : 0);
}

unsigned share_target(const struct map *map, const struct policy *policy)
{
	return target_for(map, policy, has_share(policy) ? share_workers(map) : 0);
}

void share_follow(const struct map *map, uint32_t index, const struct policy *policy)
{
	/* relaxed: rescd is the only writer. It only grows: see set_limits. */
	if (has_share(policy) && atomic_load_explicit(&map->daemon->shares, memory_order_relaxed) <= index)
		atomic_store_explicit(&map->daemon->shares, (uint64_t)index + 1, memory_order_seq_cst);
}

static uint32_t records_with_shares(const struct map *map)
{
	uint64_t n = atomic_load_explicit(&map->daemon->shares, memory_order_seq_cst);

	return n < map->dims.resources ? (uint32_t)n : map->dims.resources;
}

static void set_limits(const struct map *map, uint32_t records, unsigned workers)
{
	struct policy policy;
	uint64_t sequence;

	for (uint32_t i = 0; i < records; i++) {
		/* acquire: as policy_name. Retired: its limit is set when its name comes back. */
		if (atomic_load_explicit(&map_policy(map, i)->name_hash, memory_order_acquire) == 0)
			continue;
		/* Whatever its policy says now: a share that has just become a number may have been set by who had read the share. */
		if (policy_read(map, i, &policy, &sequence) == 0)
			permit_set_limit(map, map_state(map, i), target_for(map, &policy, workers));
	}
}

void share_recount(const struct map *map)
{
	uint32_t records = records_with_shares(map);
	unsigned workers = records == 0 ? 0 : share_workers(map);

	/* Whoever makes us start over recounts too, so somebody ends with the last number. */
	for (int i = 0; i < TRIES && records > 0; i++) {
		FAILPOINT("share.counted");
		set_limits(map, records, workers);
		FAILPOINT("share.set");
		unsigned now = share_workers(map);
		if (now == workers)
			return;
		workers = now;
	}
}
