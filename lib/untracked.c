/* SPDX-License-Identifier: MIT */
/*
 * Cells for untracked calls: see untracked.h. An array of words that is made when the first such call comes, and that a forked child finds
 * empty, because its parent's calls are not its own. A word is 0 or the permit of a call, which is never used twice at the same time.
 *
 * Orders: relaxed, because only the value itself is asked: whoever swaps it to 0 is the one who leaves.
 */
#include "untracked.h"

#include <pthread.h>

#include "process.h"
#include "words.h"

#define CELLS 16384u /* a power of two; beyond so many in one process a copy of a ticket is not told from it */
#define TRIES 256u

_Static_assert(UNTRACKED_BASE + CELLS <= NO_CELL, "cells fit the ticket");

static _Atomic uint64_t *_Atomic made;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_cells(void)
{
	/* release: the memory is there when its address can be seen. Pairs with cells_made. */
	atomic_store_explicit(&made, process_wiped_memory(CELLS * sizeof(uint64_t)), memory_order_release);
}

/* NULL: no call has needed them yet, or there is no memory. */
static _Atomic uint64_t *cells_made(void)
{
	return atomic_load_explicit(&made, memory_order_acquire);
}

uint32_t untracked_take(uint64_t permit)
{
	pthread_once(&once, make_cells);
	_Atomic uint64_t *cells = cells_made();

	if (cells == NULL)
		return NO_CELL;
	for (uint32_t i = 0; i < TRIES; i++) {
		uint32_t c = ((uint32_t)permit + i) % CELLS;
		uint64_t none = 0;
		if (atomic_load_explicit(&cells[c], memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(&cells[c], &none, permit, memory_order_relaxed, memory_order_relaxed))
			return UNTRACKED_BASE + c;
	}
	return NO_CELL;
}

bool untracked_release(uint32_t cell, uint64_t permit)
{
	_Atomic uint64_t *cells = cells_made();

	if (cell == NO_CELL)
		return true;
	if (cells == NULL || cell < UNTRACKED_BASE || cell - UNTRACKED_BASE >= CELLS)
		return false;
	return atomic_compare_exchange_strong_explicit(&cells[cell - UNTRACKED_BASE], &permit, 0, memory_order_relaxed,
	                                               memory_order_relaxed);
}

bool untracked_holds(uint32_t life)
{
	_Atomic uint64_t *cells = cells_made();

	for (uint32_t c = 0; cells != NULL && c < CELLS; c++)
		if (permit_life(atomic_load_explicit(&cells[c], memory_order_relaxed)) == life)
			return true;
	return false;
}
