/* SPDX-License-Identifier: MIT */
/*
 * The cap on retries in flight: the other half of a retry budget. A bucket of tokens follows what happened over seconds; this follows what
 * is inside at this moment, so it acts at once when a dependency hangs and retries pile up.
 *
 * There is no counter that could leak. A call that entered as a retry says so in its permit cell (PERMIT_RETRY in words.h), so the cells
 * are counted, and a death leaves a cell, which the reaper clears. Nothing is written here. A pass is not one instant: calls that come and
 * go meanwhile are seen or not. Two that take their cells at the same moment may each see the other and both be told no; both are never
 * told yes beyond the cap, because each has its cell before it counts (seq_cst on both sides, as for the limit in permit.c).
 *
 * The cap is asked twice. resc_retry asks first, so that a request that has no chance ends at once and without a wait. resc_enter
 * asks again, with the cell taken, and that answer is the one that binds; so it is the one that counts where the cap is in shadow mode.
 *
 * Who asks may have left its failed attempt already, or not; the library does not know which, and the answer for a call that is alone must
 * not depend on it. So a call that asks is itself at least one call in flight: where all cells are retries, there is one call more than
 * they are. And a retry that failed and asks again takes its own place: it counts as being inside, once, whether its cell is still there or
 * not.
 */
#include "retries.h"

#include "bounds.h"
#include "permit.h"
#include "words.h"

unsigned retries_count(const struct map *map, const struct state *state, unsigned *calls)
{
	const struct map_cells cells = map_cells(map, state);
	unsigned reach = permit_reach(map, state);
	unsigned inside = 0;
	unsigned retries = 0;

	for (uint32_t i = 0; i < reach; i++) {
		uint64_t permit = atomic_load_explicit(map_cell(cells, i), memory_order_seq_cst);
		inside += permit != 0;
		retries += permit != 0 && permit_is_retry(permit);
	}
	*calls = inside;
	return retries;
}

bool retries_fit(const struct map *map, const struct state *state, const struct policy *policy, bool entered)
{
	unsigned calls;

	/* No pass where there cannot be so many: a floor that means "unlimited" costs nothing. */
	if (policy->retries_floor > map->dims.permits)
		return true;
	uint64_t retries = retries_count(map, state, &calls);
	retries = entered ? larger(retries, 1) : retries + 1;
	/* At most (2^15 + 1) * 10^9. */
	uint64_t share = larger(calls, retries) * policy->retries_share_ppm / 1000000;
	return retries <= larger(policy->retries_floor, share);
}
