/* SPDX-License-Identifier: MIT */
/*
 * Time. One clock, CLOCK_MONOTONIC, through these functions only. Milliseconds are since the creation of the segment.
 * clock_coarse_ms is for decisions and buckets (a few ns, accurate to a scheduler tick: 1 to 10 ms); clock_fine_ns is for
 * latencies. In the test build both read the test clock, a word of the segment.
 */
#ifndef RESC_CLOCK_H
#define RESC_CLOCK_H

#include <time.h>

#include "map.h"

static inline uint64_t clock_read_ns(clockid_t id)
{
	struct timespec t;
	clock_gettime(id, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline uint64_t clock_fine_ns(const struct map *map)
{
#ifdef RESC_TEST_CLOCK
	return atomic_load_explicit(&map->live->clock_ns, memory_order_relaxed);
#else
	(void)map;
	return clock_read_ns(CLOCK_MONOTONIC);
#endif
}

static inline uint64_t clock_coarse_ns(const struct map *map)
{
#ifdef RESC_TEST_CLOCK
	return atomic_load_explicit(&map->live->clock_ns, memory_order_relaxed);
#else
	(void)map;
	return clock_read_ns(CLOCK_MONOTONIC_COARSE);
#endif
}

/* Milliseconds since the segment was made; 0 for a clock that says it was before that. */
static inline uint64_t clock_to_ms(const struct map *map, uint64_t now_ns)
{
	return now_ns <= map->created_ns ? 0 : (now_ns - map->created_ns) / 1000000u & ((UINT64_C(1) << 40) - 1);
}

static inline uint64_t clock_coarse_ms(const struct map *map)
{
	return clock_to_ms(map, clock_coarse_ns(map));
}

#endif
