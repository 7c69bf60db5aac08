/* SPDX-License-Identifier: MIT */
/*
 * Reading the window. Writers add to buckets of their own shard at any moment, also while this runs: a sum may miss a call that is being
 * counted right now, and never counts one twice or one of another generation. Whoever trips a breaker on a sum does it by CAS of the
 * breaker word that it loaded first, so a sum that is too old trips nothing.
 */
#include "window.h"

#include "failpoint.h"

/* The ticks first..last of that length, in one generation. */
struct span {
	uint64_t tick_ms;
	uint64_t first;
	uint64_t last;
	uint16_t generation;
};

static void add_shard(const struct shard *shard, const struct span *span, uint64_t *sums)
{
	for (uint64_t tick = span->first; tick <= span->last; tick++) {
		const word *bucket = shard->window[tick % WINDOW_RING];
		uint64_t tag = window_tag(span->tick_ms, tick, span->generation);
		for (unsigned category = 0; category < WINDOW_CATEGORIES; category++)
			sums[category] += bucket_count_of(&bucket[category], tag);
	}
}

static void sum_ticks(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint16_t generation,
                      uint64_t sums[WINDOW_CATEGORIES])
{
	struct span span = {.tick_ms = window_tick_ms(policy), .last = window_tick(policy, now_ms), .generation = generation};

	span.first = span.last < WINDOW_BUCKETS - 1 ? 0 : span.last - (WINDOW_BUCKETS - 1);
	for (uint32_t i = 0; i < map->dims.shards; i++)
		add_shard(map_shard(map, state, i), &span, sums);
	add_shard(map_carried(map, state), &span, sums);
}

/* ---- by number of calls ---- */

static word *place_of(const struct map *map, const struct state *state, uint64_t number)
{
	return map_calls(map, state) + (number & (map->dims.calls - 1));
}

static void sum_calls(const struct map *map, const struct state *state, uint64_t n, uint16_t generation, uint64_t sums[WINDOW_CATEGORIES])
{
	/* seq_cst: pairs with the fence after counting, so that of two who count and then add up, one sees both. */
	uint64_t next = atomic_load_explicit(&state->calls, memory_order_seq_cst);

	if (n > map->dims.calls)
		n = map->dims.calls;
	if (n > next)
		n = next;
	for (uint64_t number = next - n; number != next; number++) {
		/* relaxed: category, generation and number are one word. */
		uint64_t w = atomic_load_explicit(place_of(map, state, number), memory_order_relaxed);
		unsigned category = call_category_plus_one(w);
		if (category >= 1 && category <= WINDOW_CATEGORIES && call_generation(w) == generation &&
		    call_number(w) == (number & CALL_NUMBER_MASK))
			sums[category - 1]++;
	}
}

void window_count_call(const struct map *map, struct state *state, uint16_t generation, enum window_category category)
{
	/* relaxed: the number alone; what is at its place says itself whether it counts. */
	uint64_t number = atomic_fetch_add_explicit(&state->calls, 1, memory_order_relaxed);
	word *place = place_of(map, state, number);
	uint64_t w = atomic_load_explicit(place, memory_order_relaxed);
	uint64_t next = call_make(generation, category, number);

	FAILPOINT("window.numbered");
	do {
		/* 45 bits do not wrap in practice; a place with a newer number is of a later lap, and ours is out of every window. */
		if (call_category_plus_one(w) != 0 && call_number(w) > call_number(next))
			return;
	} while (!atomic_compare_exchange_weak_explicit(place, &w, next, memory_order_relaxed, memory_order_relaxed));
}

/* ---- both ---- */

void window_sum(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint16_t generation,
                uint64_t sums[WINDOW_CATEGORIES])
{
	for (unsigned category = 0; category < WINDOW_CATEGORIES; category++)
		sums[category] = 0;
	if (policy->window_calls != 0)
		sum_calls(map, state, policy->window_calls, generation, sums);
	else
		sum_ticks(map, state, policy, now_ms, generation, sums);
}
