/* SPDX-License-Identifier: MIT */
/*
 * Calls that are inside without a cell of the segment: where no bulkhead limits, a call is admitted although none is left. What it lacks is
 * the cell that says, by the CAS that frees it, that a ticket is left once. So it gets one in memory of this process alone.
 */
#ifndef RESC_UNTRACKED_H
#define RESC_UNTRACKED_H

#include <stdbool.h>
#include <stdint.h>

#include "ticket.h"

/* A cell for that call: a number for its ticket, at least UNTRACKED_BASE; NO_CELL when there is none left here either. */
uint32_t untracked_take(uint64_t permit);
/* False: it was left before. NO_CELL is always left. */
bool untracked_release(uint32_t cell, uint64_t permit);
/* Is such a call of that life inside? A look at all cells. */
bool untracked_holds(uint32_t life);

#endif
