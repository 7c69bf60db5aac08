/* SPDX-License-Identifier: MIT */
/*
 * Policies in the segment: two copies and a sequence.
 *
 * Writer (rescd alone, under its lock): s = load the shared sequence -> fill copy (s+1)&1 -> store s+1 (release) -> full fence
 * before the next fill. A death in the middle leaves copy s&1 valid and the next writer fills the same copy again.
 * Reader: s = sequence (acquire) -> copy -> acquire fence -> sequence again: exactly s, else again, a few times. Never waits.
 */
#ifndef RESC_POLICY_H
#define RESC_POLICY_H

#include <stddef.h>

#include "map.h"

/* The documented defaults of every key. flags: POLICY_LATENCY alone; a block that is there switches its policy on. In a breaker block
 * without consecutive, failure_rate and slow_rate, the failure rate is 50 %. */
void policy_defaults(struct policy *policy);
/* What a resource has in private mode: the defaults with a breaker (50 % of at least 20 calls in 10 s) and no other guard. */
void policy_private(struct policy *policy);

/* Makes any bytes safe to compute with: every field is put inside its range. What rescd wrote is not changed by it. */
void policy_clamp(struct policy *policy, const struct segment_dims *dims);

/* The timeout of an attempt, in whatever mode; 0: none. */
static inline uint64_t policy_attempt_ms(const struct policy *policy, bool probe)
{
	return probe && policy->timeout_probe_ms != 0 ? policy->timeout_probe_ms : policy->timeout_attempt_ms;
}

/* A consistent, clamped copy. Returns its sequence in *sequence. -EAGAIN when the writer was too fast for several tries. */
int policy_read(const struct map *map, uint32_t index, struct policy *policy, uint64_t *sequence);
/* One try, as the bytes stand there. False: rescd wrote meanwhile, and they may be of two policies. */
bool policy_read_raw(const struct map *map, uint32_t index, struct policy *policy, uint64_t *sequence);

/* The copy that a sequence names. */
static inline word *policy_copy(const struct map *map, struct policy_record *record, uint64_t sequence)
{
	return record->copies + (sequence & 1) * (map->sizes.policy / 8);
}

/* The flags alone; rescd only, who writes them. */
static inline uint64_t policy_flags(const struct map *map, uint32_t index)
{
	struct policy_record *record = map_policy(map, index);
	/* Relaxed: no other process writes here. */
	uint64_t s = atomic_load_explicit(&record->sequence, memory_order_relaxed);

	return atomic_load_explicit(policy_copy(map, record, s) + offsetof(struct policy, flags) / 8, memory_order_relaxed);
}

/* Writes a policy; rescd only. Where the budget's capacity or ttl changes, the copy in the segment gets the next budget_epoch,
 * where the rate limit changes the next rate_epoch. */
void policy_write(const struct map *map, uint32_t index, const struct policy *policy);

/* The same as it is, epochs and all. */
void policy_store(const struct map *map, uint32_t index, const struct policy *policy);

/* The record of that name, or -ENOENT. */
int policy_find(const struct map *map, const char *name);
/* The same, retired or not. */
int policy_find_any(const struct map *map, const char *name);
/* Copies the name of a record; false when the record is not in use. policy_name_any: retired ones too. */
bool policy_name_any(const struct map *map, uint32_t index, char name[SEGMENT_NAME_SIZE]);
bool policy_name(const struct map *map, uint32_t index, char name[SEGMENT_NAME_SIZE]);

/* What makes a name visible; never 0. */
uint64_t policy_name_hash(const char *name);
/* Writes the name of a record that nobody can look up; and makes it visible: who sees the name then sees what was written before. rescd. */
void policy_put_name(struct policy_record *record, const char *name);
void policy_show_name(struct policy_record *record, const char *name);
/* No name was ever put there. */
bool policy_is_free(const struct policy_record *record);

#endif
