/* SPDX-License-Identifier: MIT */
/*
 * Permits: the protocol is in permit.h, its model in tests/model.
 *
 * Orders: taking a cell and then looking at the limit again, against closing or lowering the limit and then looking at the cells, is the
 * store-load pattern (Dekker): all four accesses are seq_cst. On x86 that costs nothing beyond the CAS itself. A release pairs with the
 * next acquire of the same cell; it is seq_cst too, because the releaser then looks whether somebody waits (waiting.c).
 */
#include <errno.h>

#include "failpoint.h"
#include "permit.h"
#include "words.h"

#define TRIES 64

static unsigned bounded(const struct map *map, unsigned cells)
{
	return cells > map->dims.permits ? map->dims.permits : cells;
}

/* One pass over the cells below `effective`. False: at no moment of the pass was any of them seen free and still free at the CAS. */
static bool take_a_cell(const struct map *map, struct state *state, uint64_t permit, uint32_t start, unsigned effective, uint32_t *cell)
{
	const struct map_cells cells = map_cells(map, state);
	uint32_t c = start < effective ? start : start % effective;

	for (unsigned i = 0; i < effective; i++) {
		word *place = map_cell(cells, c);
		uint64_t none = 0;
		if (atomic_load_explicit(place, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(place, &none, permit, memory_order_seq_cst, memory_order_relaxed)) {
			*cell = c;
			return true;
		}
		if (++c == effective)
			c = 0;
	}
	return false;
}

int permit_acquire(const struct map *map, struct state *state, uint64_t permit, uint32_t start, uint32_t *cell)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t w = atomic_load_explicit(&state->limit, memory_order_seq_cst);
		unsigned effective = bounded(map, limit_effective(w));
		if (limit_target(w) == 0)
			return -ESTALE;
		if (effective > 0 && take_a_cell(map, state, permit, start, effective, cell)) {
			FAILPOINT("permit.taken");
			uint64_t again = atomic_load_explicit(&state->limit, memory_order_seq_cst);
			if (__builtin_expect(again == w || *cell < limit_effective(again), 1))
				return 0;
			permit_release(map, state, *cell, permit);
			waiting_signal(state);
			continue;
		}
		if (limit_effective(w) >= limit_target(w) || !permit_settle(map, state))
			return RESC_E_FULL;
	}
	return RESC_E_FULL;
}

bool permit_acquire_below(const struct map *map, struct state *state, uint64_t permit, uint32_t start, uint32_t below, uint32_t *cell)
{
	unsigned effective = bounded(map, limit_effective(atomic_load_explicit(&state->limit, memory_order_seq_cst)));

	if (effective > below)
		effective = below;
	if (effective == 0 || !take_a_cell(map, state, permit, start, effective, cell))
		return false;
	if (*cell < limit_effective(atomic_load_explicit(&state->limit, memory_order_seq_cst)))
		return true;
	permit_release(map, state, *cell, permit);
	return false;
}

unsigned permit_settled(const struct map *map, const struct state *state, uint64_t w)
{
	const struct map_cells cells = map_cells(map, state);
	unsigned target = bounded(map, limit_target(w));
	unsigned allowed = limit_debt(w) >= target ? 0 : target - limit_debt(w);
	unsigned occupied = 0;
	unsigned e = map->dims.permits;

	if (limit_effective(w) >= allowed)
		return limit_effective(w);
	/* From the far end: occupied counts the cells at or beyond e. The first e that fits is the largest. */
	while (e > allowed || e + occupied > allowed) {
		if (e == 0)
			return limit_effective(w);
		e--;
		occupied += atomic_load_explicit(map_cell(cells, e), memory_order_seq_cst) != 0;
	}
	return e;
}

bool permit_settle(const struct map *map, struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_seq_cst);
	unsigned e = permit_settled(map, state, w);

	if (e <= limit_effective(w))
		return false;
	FAILPOINT("limit.settle");
	if (!atomic_compare_exchange_strong_explicit(&state->limit, &w, limit_make(limit_target(w), e, limit_debt(w), limit_version(w)),
	                                             memory_order_seq_cst, memory_order_relaxed))
		return false;
	waiting_wake_all(state);
	return true;
}

void permit_set_limit(const struct map *map, struct state *state, unsigned target)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_relaxed);
	uint64_t next;

	target = bounded(map, target == 0 ? 1 : target);
	do {
		if (limit_target(w) == 0 || limit_target(w) == target)
			return;
		/* A debt was cut to the target: the superseded segment may have more holders than it says, so a raise raises it too. */
		unsigned debt = limit_debt(w);
		if (debt > 0 && target > limit_target(w))
			debt += target - limit_target(w);
		next = limit_make(target, target < limit_target(w) ? 0 : limit_effective(w), debt > UINT16_MAX ? UINT16_MAX : debt,
		                  limit_version(w) + 1);
	} while (!atomic_compare_exchange_weak_explicit(&state->limit, &w, next, memory_order_seq_cst, memory_order_relaxed));
	FAILPOINT("limit.set");
	permit_settle(map, state);
}

void permit_close(struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_relaxed);

	do {
		if (limit_target(w) == 0)
			return;
	} while (!atomic_compare_exchange_weak_explicit(&state->limit, &w, limit_make(0, 0, 0, limit_version(w) + 1), memory_order_seq_cst,
	                                                memory_order_relaxed));
	waiting_wake_all(state);
}

bool permit_forgive(const struct map *map, struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_relaxed);

	do {
		if (limit_debt(w) == 0)
			return false;
	} while (!atomic_compare_exchange_weak_explicit(&state->limit, &w,
	                                                limit_make(limit_target(w), limit_effective(w), 0, limit_version(w)),
	                                                memory_order_seq_cst, memory_order_relaxed));
	permit_settle(map, state);
	return true;
}

unsigned permit_reach(const struct map *map, const struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_seq_cst);
	bool settled = limit_target(w) != 0 && limit_effective(w) == limit_target(w);

	return settled ? bounded(map, limit_target(w)) : map->dims.permits;
}

struct permit_use permit_use(const struct map *map, const struct state *state)
{
	const struct map_cells cells = map_cells(map, state);
	unsigned reach = permit_reach(map, state);
	unsigned effective = limit_effective(atomic_load_explicit(&state->limit, memory_order_seq_cst));
	struct permit_use use = {0, 0};

	for (uint32_t i = 0; i < reach; i++) {
		bool is_held = atomic_load_explicit(map_cell(cells, i), memory_order_seq_cst) != 0;
		use.held += is_held;
		use.free += !is_held && i < effective;
	}
	return use;
}

unsigned permit_occupied(const struct map *map, const struct state *state)
{
	const struct map_cells cells = map_cells(map, state);
	unsigned reach = permit_reach(map, state);
	unsigned n = 0;

	/* On the path of a call that has a share: so it counts nothing else. */
	for (uint32_t i = 0; i < reach; i++)
		n += atomic_load_explicit(map_cell(cells, i), memory_order_seq_cst) != 0;
	return n;
}
