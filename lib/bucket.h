/* SPDX-License-Identifier: MIT */
/*
 * Counting a call in a bucket of a window, {tag, count}. A bucket with another tag is of another time: it begins anew with the first call
 * that is counted in it, and nothing ever has to be cleared. Of two tags the newer one is the larger, in 40 bits that wrap.
 *
 * Relaxed throughout: tag and count are one word, and no bucket says anything about another.
 */
#ifndef RESC_BUCKET_H
#define RESC_BUCKET_H

#include "call.h"

/* In a shard that is this thread's alone: plain loads and stores. The count with this call in it; 0: it is full, and nothing was counted.
 */
static inline uint32_t bucket_count_in_own(word *bucket, uint64_t tag)
{
	uint64_t w = atomic_load_explicit(bucket, memory_order_relaxed);
	uint32_t n = bucket_tag_of(w) == tag ? bucket_count(w) : 0;

	if (n == BUCKET_MAX)
		return 0;
	FAILPOINT("bucket.adding");
	atomic_store_explicit(bucket, bucket_make(tag, n + 1), memory_order_relaxed);
	return n + 1;
}

/*
 * In a shard that others add to as well. 0 also where the bucket is of a newer tag: ours is over since long, and nobody would count it. A
 * tag that is further ahead than two laps of the ring is not newer: it is of a window of another length, or damage. (So who was stopped for
 * longer than two laps empties a bucket.)
 */
static inline uint32_t bucket_count_in_common(word *bucket, uint64_t tag, uint64_t two_laps)
{
	uint64_t w = atomic_load_explicit(bucket, memory_order_relaxed);
	uint32_t n;

	/* A CAS fails when somebody else's succeeded (or spuriously): the host as a whole gets on. */
	do {
		uint64_t ahead = (bucket_tag_of(w) - tag) & BUCKET_TAG_MASK;
		bool same = ahead == 0;
		if (!same && ahead <= two_laps && bucket_count(w) != 0)
			return 0;
		n = same ? bucket_count(w) : 0;
		if (n == BUCKET_MAX)
			return 0;
	} while (!atomic_compare_exchange_weak_explicit(bucket, &w, bucket_make(tag, n + 1), memory_order_relaxed, memory_order_relaxed));
	return n + 1;
}

/* bucket: in shard_of(v). lap: how much later the tag is when the same place is used again. */
static inline uint32_t bucket_count_call(const struct view *v, word *bucket, uint64_t tag, uint64_t lap)
{
	return __builtin_expect(owns_shard(v), 1) ? bucket_count_in_own(bucket, tag) : bucket_count_in_common(bucket, tag, 2 * lap);
}

#endif
