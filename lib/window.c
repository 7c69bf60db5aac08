/* SPDX-License-Identifier: MIT */
/*
 * Reading the window. Writers add to buckets of their own shard at any moment, also while this runs: a sum may miss a call that is being
 * counted right now, and never counts one twice or one of another generation. Whoever trips a breaker on a sum does it by CAS of the
 * breaker word that it loaded first, so a sum that is too old trips nothing.
 */
#include "window.h"

static void add_shard(const struct shard *shard, uint64_t first, uint64_t last, uint16_t generation, uint64_t *sums)
{
	for (uint64_t tick = first; tick <= last; tick++) {
		const word *bucket = shard->window[tick % WINDOW_RING];
		uint64_t tag = bucket_tag(tick, generation);
		for (unsigned category = 0; category < WINDOW_CATEGORIES; category++) {
			/* relaxed: tag and count are one word, and no bucket says anything about another. */
			uint64_t w = atomic_load_explicit(&bucket[category], memory_order_relaxed);
			if (bucket_tag_of(w) == tag)
				sums[category] += bucket_count(w);
		}
	}
}

void window_sum(const struct map *map, const struct state *state, uint64_t tick, uint16_t generation, uint64_t sums[WINDOW_CATEGORIES])
{
	uint64_t last = tick < UINT64_MAX ? tick : UINT64_MAX - 1;
	uint64_t first = last < WINDOW_BUCKETS - 1 ? 0 : last - (WINDOW_BUCKETS - 1);

	for (unsigned category = 0; category < WINDOW_CATEGORIES; category++)
		sums[category] = 0;
	for (uint32_t i = 0; i < map->dims.shards; i++)
		add_shard(map_shard(map, state, i), first, last, generation, sums);
	add_shard(&state->carried, first, last, generation, sums);
}
