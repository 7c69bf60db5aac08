/* SPDX-License-Identifier: MIT */
/*
 * The rolling window: WINDOW_BUCKETS buckets, each as long as a tick. A bucket is tagged with its tick and the breaker's generation, so
 * that nothing ever has to be cleared: a bucket of another time, or from before a transition, simply does not count.
 *
 * A window that ends at tick t is made of the ticks t-9..t. The newest bucket is not over yet, so the window is between nine tenths of
 * window_ms and all of it (rounded up to whole ticks); it is never longer.
 *
 * A window of another length has other ticks. Their numbers are those of other times, so the tag tells ticks of different lengths apart:
 * what was counted before a reload does not count in the new window, now or when its ticks have come to the same numbers.
 *
 * A window by number of calls is a ring that all workers share: number = fetch_add(calls) -> CAS of place number & mask to {generation,
 * category, number}, unless a newer one is there. The window is the last N numbers; one that is not there yet (its writer is between the
 * two steps, stopped or dead), or is of another generation, does not count.
 */
#ifndef RESC_WINDOW_H
#define RESC_WINDOW_H

#include "map.h"
#include "words.h"

/* How long each bucket of a window is. */
static inline uint64_t window_bucket_ms(uint64_t window_ms)
{
	uint64_t ms = window_ms / WINDOW_BUCKETS + (window_ms % WINDOW_BUCKETS != 0);
	return ms == 0 ? 1 : ms;
}

static inline uint64_t window_tick_ms(const struct policy *policy)
{
	return window_bucket_ms(policy->window_ms);
}

static inline uint64_t window_tick(const struct policy *policy, uint64_t now_ms)
{
	return now_ms / window_tick_ms(policy);
}

/* The tag of a bucket. 2^28 divided by the golden ratio: two lengths are far apart from each other. */
static inline uint64_t window_tag(uint64_t tick_ms, uint64_t tick, uint16_t generation)
{
	return bucket_tag(tick + tick_ms * 165901931, generation);
}

/* The calls in a bucket, where it is of that tag. */
static inline uint32_t bucket_count_of(const word *bucket, uint64_t tag)
{
	/* relaxed: tag and count are one word, and no bucket says anything about another. */
	uint64_t w = atomic_load_explicit(bucket, memory_order_relaxed);

	return bucket_tag_of(w) == tag ? bucket_count(w) : 0;
}

/*
 * Adds up the window of a policy as it is at now_ms: all shards and what was carried over, or the last calls. The caller has loaded
 * (acquire) the breaker word of that generation before.
 */
void window_sum(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint16_t generation,
                uint64_t sums[WINDOW_CATEGORIES]);
/* Counts a call in a window by number of calls. */
void window_count_call(const struct map *map, struct state *state, uint16_t generation, enum window_category category);

#endif
