/* SPDX-License-Identifier: MIT */
/*
 * Permits: who is inside. A cell is 0 or its holder's {life, call}; the cell alone is the truth.
 *
 * Acquire: load the limit word -> CAS a free cell below the effective limit 0 -> mine -> load the limit word again; a cell that is no
 * longer below it is given back, start over. Release: CAS mine -> 0. Set a limit: CAS of the word to {target, 0 if lower else effective,
 * debt, version+1}; a raise while there is a debt raises that by as much. Settle (before anybody answers "full", and by rescd): effective =
 * the largest e <= target - debt with e + occupied cells at or beyond e <= target - debt, by CAS of the word seen. A death leaves a cell,
 * which the reaper clears, or an unsettled word, which the next one settles. A word with target 0 is closed for good: the segment was
 * superseded.
 */
#ifndef RESC_PERMIT_H
#define RESC_PERMIT_H

#include "failpoint.h"
#include "map.h"
#include "waiting.h"
#include "words.h"

/* The usual case, inlined: the cell where this worker starts is free, and the limit did not move. False: nothing was taken. */
static inline bool permit_acquire_home(struct state *state, word *home, uint32_t start, uint64_t permit)
{
	uint64_t w = atomic_load_explicit(&state->limit, memory_order_seq_cst);
	uint64_t none = 0;

	FAILPOINT("permit.looked");
	if (start >= limit_effective(w) || atomic_load_explicit(home, memory_order_relaxed) != 0 ||
	    !atomic_compare_exchange_strong_explicit(home, &none, permit, memory_order_seq_cst, memory_order_relaxed))
		return false;
	FAILPOINT("permit.taken");
	if (__builtin_expect(atomic_load_explicit(&state->limit, memory_order_seq_cst) == w, 1))
		return true;
	atomic_compare_exchange_strong_explicit(home, &permit, 0, memory_order_seq_cst, memory_order_relaxed);
	waiting_signal(state); /* who looked in between saw a cell that was taken */
	return false;
}

/* Takes a cell, looking from `start`. 0; RESC_E_FULL; -ESTALE when the bulkhead is closed for good. */
int permit_acquire(const struct map *map, struct state *state, uint64_t permit, uint32_t start, uint32_t *cell);
/* Takes a cell below a number that is smaller than the limit. False: none was free. */
bool permit_acquire_below(const struct map *map, struct state *state, uint64_t permit, uint32_t start, uint32_t below, uint32_t *cell);
/* False: the cell is not this permit's any more (a stale ticket); nothing was changed. Where calls wait, waiting_signal comes next. */
static inline bool permit_release(const struct map *map, struct state *state, uint32_t cell, uint64_t permit)
{
	return cell < map->dims.permits && atomic_compare_exchange_strong_explicit(map_permit(map, state, cell), &permit, 0,
	                                                                           memory_order_seq_cst, memory_order_relaxed);
}
/* The effective limit that the holders of this moment allow for the limit word w. Never below the one in it. */
unsigned permit_settled(const struct map *map, const struct state *state, uint64_t w);
/* Raises the effective limit as far as the holders allow. True if it moved. */
bool permit_settle(const struct map *map, struct state *state);
void permit_set_limit(const struct map *map, struct state *state, unsigned target);
/* Closes for good. Permits that are held can still be released. */
void permit_close(struct state *state);
/* The segment that is owed to is gone: nobody can say any more who gave back what. False: nothing is owed. */
bool permit_forgive(const struct map *map, struct state *state);
/* Cells below this number may be held: the limit, or, where holders may sit beyond it, all. A limit is effective only when nobody is
 * beyond. */
unsigned permit_reach(const struct map *map, const struct state *state);
/* Cells that are not 0. */
unsigned permit_occupied(const struct map *map, const struct state *state);

struct permit_use {
	unsigned held; /* cells that are not 0 */
	unsigned free; /* cells below the effective limit that are 0: while a lowered limit settles, not what is left of it */
};
struct permit_use permit_use(const struct map *map, const struct state *state);

#endif
