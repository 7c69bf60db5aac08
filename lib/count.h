/* SPDX-License-Identifier: MIT */
/*
 * Counting what happens seldom: transitions, reclaims, whatever is done by a process that is not on its own shard. The last shard of a
 * resource is always SHARD_COMMON: everybody's, added to atomically. A death loses nothing.
 */
#ifndef RESC_COUNT_H
#define RESC_COUNT_H

#include "map.h"

static inline void count_common(const struct map *map, struct state *state, enum counter counter, uint64_t n)
{
	/* relaxed: a counter orders nothing. */
	atomic_fetch_add_explicit(&map_shard(map, state, map->dims.shards - 1)->counters[counter], n, memory_order_relaxed);
}

#endif
