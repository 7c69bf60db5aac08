/* SPDX-License-Identifier: MIT */
/*
 * Policies and names in the segment. The protocol is in policy.h.
 *
 * What pairs with what: the writer's release store of the sequence pairs with the reader's acquire load of it; the reader's acquire fence
 * before its second look keeps its copying in front of that look. The writer's seq_cst fence after the store keeps the next fill (of the
 * other copy) behind it, so a reader that saw s cannot see bytes of s+2 without also seeing a sequence other than s.
 */
#include <errno.h>
#include <string.h>

#include "failpoint.h"
#include "policy.h"
#include "words.h"

#define READ_TRIES   16
#define POLICY_WORDS (sizeof(struct policy) / 8)

/* In a segment of another minor a copy may be longer or shorter than ours. What it does not have reads as 0: not used. */
static size_t words_in_common(const struct map *map)
{
	const size_t there = map->sizes.policy / 8;

	return there < POLICY_WORDS ? there : POLICY_WORDS;
}

void policy_defaults(struct policy *p)
{
	memset(p, 0, sizeof *p);
	p->flags = POLICY_LATENCY;
	p->failure_rate_ppm = 500000;
	p->window_ms = 10000;
	p->min_calls = 20;
	p->cooldown_ms = 5000;
	p->cooldown_factor_ppm = 1000000;
	p->cooldown_max_ms = 86400000;
	p->probes = 1;
	p->successes = 1;
	p->probe_timeout_ms = 30000;
	p->attempts = 3;
	p->backoff = BACKOFF_EXPONENTIAL;
	p->backoff_jitter = JITTER_FULL;
	p->base_ns = 100000000;
	p->cap_ns = 2000000000;
	p->retry_on = 1u << RESC_FAIL | 1u << RESC_TIMEOUT;
	p->retry_after_max_ms = 60000;
	p->budget_cost = TOKEN;
	p->budget_timeout_cost = TOKEN;
	p->critical_ppm = 1000000;
	p->normal_ppm = 1000000;
	p->low_ppm = 1000000;
	p->max_waiting = 64;
	p->rate_per_second = 100 * TOKEN;
	p->rate_burst = 100;
	p->rate_previous_per_second = p->rate_per_second;
	p->rate_previous_burst = p->rate_burst;
	p->throttle_k_ppm = 2000000;
	p->throttle_window_ms = 120000;
	p->once_ttl_ms = 86400000;
	p->budget_ratio = TOKEN / 10;
	p->budget_capacity = 10 * TOKEN;
	p->budget_previous = p->budget_capacity;
}

void policy_private(struct policy *p)
{
	policy_defaults(p);
	p->flags |= POLICY_CONFIGURED | POLICY_BREAKER | POLICY_ONCE;
}

static void put_inside(uint64_t *value, uint64_t least, uint64_t most)
{
	if (*value < least)
		*value = least;
	if (*value > most)
		*value = most;
}

void policy_clamp(struct policy *p, const struct segment_dims *dims)
{
	const uint64_t day_ms = 86400000;
	const uint64_t day_ns = day_ms * 1000000;

	put_inside(&p->consecutive, 0, UINT32_MAX);
	put_inside(&p->failure_rate_ppm, 0, 1000000);
	put_inside(&p->slow_rate_ppm, 0, 1000000);
	put_inside(&p->slow_call_ns, 0, day_ns);
	put_inside(&p->window_ms, 100, day_ms);
	put_inside(&p->min_calls, 1, UINT32_MAX);
	put_inside(&p->cooldown_ms, 1, day_ms);
	put_inside(&p->cooldown_factor_ppm, 1000000, 100000000);
	put_inside(&p->cooldown_max_ms, 1, day_ms);
	put_inside(&p->jitter_ppm, 0, 1000000);
	put_inside(&p->probes, 1, PROBES_LIMIT);
	put_inside(&p->successes, 1, 10000);
	put_inside(&p->probe_timeout_ms, 1, 3600000);
	put_inside(&p->attempts, 1, 100);
	put_inside(&p->backoff, BACKOFF_NONE, BACKOFF_EXPONENTIAL);
	put_inside(&p->backoff_jitter, JITTER_NONE, JITTER_PROPORTIONAL);
	put_inside(&p->base_ns, 0, day_ns);
	put_inside(&p->cap_ns, 0, day_ns);
	put_inside(&p->budget_ratio, 0, 1000 * TOKEN);
	put_inside(&p->budget_capacity, TOKEN, UINT64_C(4294967295) * TOKEN);
	put_inside(&p->budget_previous, TOKEN, UINT64_C(4294967295) * TOKEN);
	put_inside(&p->budget_per_second, 0, 1000000 * TOKEN);
	put_inside(&p->limit, 1, dims->permits);
	put_inside(&p->window_calls, 0, dims->calls);
	/* A window that is never that full: what it holds is enough. */
	if (p->window_calls != 0)
		put_inside(&p->min_calls, 1, p->window_calls);
	put_inside(&p->trial_failure_rate_ppm, 0, 1000000);
	put_inside(&p->retry_after_max_ms, 0, day_ms);
	put_inside(&p->retry_on, 0, (1u << RESC_FAIL | 1u << RESC_TIMEOUT));
	put_inside(&p->budget_deposit, DEPOSIT_SUCCESS, DEPOSIT_REQUEST);
	put_inside(&p->budget_cost, 0, 1000 * TOKEN);
	put_inside(&p->budget_timeout_cost, 0, 1000 * TOKEN);
	put_inside(&p->budget_ttl_ms, 0, day_ms);
	put_inside(&p->budget_threshold_ppm, 0, 1000000);
	put_inside(&p->retries_floor, 0, UINT32_MAX);
	put_inside(&p->retries_share_ppm, 0, 1000000000);
	put_inside(&p->limit_share_ppm, 0, 1000000000);
	put_inside(&p->max_wait_ms, 0, day_ms);
	put_inside(&p->max_waiting, 1, dims->waiting);
	put_inside(&p->critical_ppm, 1, 1000000);
	put_inside(&p->normal_ppm, 1, 1000000);
	put_inside(&p->low_ppm, 1, 1000000);
	put_inside(&p->retry_after_ms, 0, day_ms);
	put_inside(&p->rate_per_second, 1, UINT64_C(1000000000) * TOKEN);
	put_inside(&p->rate_previous_per_second, 1, UINT64_C(1000000000) * TOKEN);
	put_inside(&p->rate_burst, 1, UINT32_MAX);
	put_inside(&p->rate_previous_burst, 1, UINT32_MAX);
	put_inside(&p->rate_max_wait_ms, 0, day_ms);
	put_inside(&p->throttle_k_ppm, 1000000, 1000000000);
	put_inside(&p->throttle_window_ms, 100, day_ms);
	put_inside(&p->once_ttl_ms, 1, UINT64_C(30) * day_ms);
	put_inside(&p->once_max_wait_ms, 0, 3600000);
	put_inside(&p->once_on_death, ON_DEATH_UNKNOWN, ON_DEATH_FREE);
	put_inside(&p->timeout_probe_ms, 0, day_ms);
	put_inside(&p->timeout_attempt_ms, 0, day_ms);
	put_inside(&p->timeout_connect_ms, 0, day_ms);
	put_inside(&p->timeout_total_ms, 0, day_ms);
}

bool policy_read_raw(const struct map *map, uint32_t index, struct policy *policy, uint64_t *sequence)
{
	struct policy_record *record = map_policy(map, index);
	const size_t count = words_in_common(map);
	uint64_t words[POLICY_WORDS] = {0};
	uint64_t s = atomic_load_explicit(&record->sequence, memory_order_acquire);
	const word *copy = policy_copy(map, record, s);

	for (size_t k = 0; k < count; k++) {
		words[k] = atomic_load_explicit(&copy[k], memory_order_relaxed);
		if (k == POLICY_WORDS / 2)
			FAILPOINT("policy.reading");
	}
	atomic_thread_fence(memory_order_acquire);
	memcpy(policy, words, sizeof *policy);
	*sequence = s;
	return atomic_load_explicit(&record->sequence, memory_order_relaxed) == s;
}

int policy_read(const struct map *map, uint32_t index, struct policy *policy, uint64_t *sequence)
{
	struct policy read;

	for (int i = 0; i < READ_TRIES; i++) {
		if (!policy_read_raw(map, index, &read, sequence))
			continue;
		*policy = read;
		policy_clamp(policy, &map->dims);
		return 0;
	}
	return -EAGAIN;
}

void policy_store(const struct map *map, uint32_t index, const struct policy *policy)
{
	struct policy_record *record = map_policy(map, index);
	const size_t count = words_in_common(map);
	uint64_t words[POLICY_WORDS];
	/* Relaxed: rescd is the only writer. The shared sequence, not a memory of it: rescd may have been restarted. */
	uint64_t s = atomic_load_explicit(&record->sequence, memory_order_relaxed);
	word *copy = policy_copy(map, record, s + 1);

	memcpy(words, policy, sizeof words);
	for (size_t k = 0; k < count; k++) {
		atomic_store_explicit(&copy[k], words[k], memory_order_relaxed);
		if (k == POLICY_WORDS / 2)
			FAILPOINT("policy.half");
	}
	FAILPOINT("policy.filled");
	atomic_store_explicit(&record->sequence, s + 1, memory_order_release);
	atomic_thread_fence(memory_order_seq_cst);
}

void policy_write(const struct map *map, uint32_t index, const struct policy *policy)
{
	struct policy old;
	struct policy next = *policy;
	uint64_t sequence;

	next.budget_epoch = 0;
	next.budget_previous = next.budget_capacity;
	next.rate_epoch = 0;
	next.rate_previous_per_second = next.rate_per_second;
	next.rate_previous_burst = next.rate_burst;
	if (policy_read(map, index, &old, &sequence) == 0 && sequence > 0) {
		bool changed = old.budget_capacity != next.budget_capacity || old.budget_ttl_ms != next.budget_ttl_ms;
		next.budget_epoch = (old.budget_epoch + (changed ? 1 : 0)) & 0xff;
		next.budget_previous = changed ? old.budget_capacity : old.budget_previous;
		changed = old.rate_per_second != next.rate_per_second || old.rate_burst != next.rate_burst;
		next.rate_epoch = (old.rate_epoch + (changed ? 1 : 0)) & 3;
		next.rate_previous_per_second = changed ? old.rate_per_second : old.rate_previous_per_second;
		next.rate_previous_burst = changed ? old.rate_burst : old.rate_previous_burst;
	}
	policy_store(map, index, &next);
}

uint64_t policy_name_hash(const char *name)
{
	uint64_t hash = fnv1a(name, strlen(name));

	return hash == 0 ? 1 : hash;
}

void policy_put_name(struct policy_record *record, const char *name)
{
	size_t length = strnlen(name, SEGMENT_NAME_SIZE - 1);

	for (size_t i = 0; i < SEGMENT_NAME_SIZE; i++)
		atomic_store_explicit(&record->name[i], i < length ? name[i] : '\0', memory_order_relaxed);
}

void policy_show_name(struct policy_record *record, const char *name)
{
	/* Release: who sees the hash sees the name, the policy and the state. */
	atomic_store_explicit(&record->name_hash, policy_name_hash(name), memory_order_release);
}

/* Whole, and stops where they differ: a table may have very many names. */
static bool has_name(const struct policy_record *record, const char *name)
{
	for (size_t i = 0; i < SEGMENT_NAME_SIZE; i++) {
		char c = atomic_load_explicit(&record->name[i], memory_order_relaxed);
		if (c != name[i])
			return false;
		if (c == '\0')
			return true;
	}
	return false;
}

bool policy_is_free(const struct policy_record *record)
{
	return atomic_load_explicit(&record->name[0], memory_order_relaxed) == '\0';
}

int policy_find_any(const struct map *map, const char *name)
{
	for (uint32_t i = 0; i < map->dims.resources; i++)
		if (!policy_is_free(map_policy(map, i)) && has_name(map_policy(map, i), name))
			return (int)i;
	return -ENOENT;
}

bool policy_name_any(const struct map *map, uint32_t index, char name[SEGMENT_NAME_SIZE])
{
	struct policy_record *record = map_policy(map, index);

	for (size_t i = 0; i < SEGMENT_NAME_SIZE; i++)
		name[i] = atomic_load_explicit(&record->name[i], memory_order_relaxed);
	name[SEGMENT_NAME_SIZE - 1] = '\0';
	return name[0] != '\0';
}

bool policy_name(const struct map *map, uint32_t index, char name[SEGMENT_NAME_SIZE])
{
	/* Acquire: pairs with policy_show_name. */
	if (atomic_load_explicit(&map_policy(map, index)->name_hash, memory_order_acquire) == 0)
		return false;
	return policy_name_any(map, index, name);
}

int policy_find(const struct map *map, const char *name)
{
	uint64_t hash = policy_name_hash(name);
	char there[SEGMENT_NAME_SIZE];

	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if (atomic_load_explicit(&map_policy(map, i)->name_hash, memory_order_acquire) != hash)
			continue;
		if (policy_name(map, i, there) && strcmp(there, name) == 0)
			return (int)i;
	}
	return -ENOENT;
}
