/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a permit: a bounded queue of cells, and a futex.
 *
 * The wait word is {generation:31, waiters:1} in its low half. Waiter: take a cell of the queue -> CAS the bit on -> look for a permit
 * again
 * -> futex wait on the value seen, in slices of at most 50 ms. Releaser (where waiting is on): free the permit -> load the word; only where
 * the bit is set: CAS {generation, 1} -> {generation+1, 0}, wake all. Reaper: permits, then generation+1 and wake all, then the slot. A
 * death leaves a cell in the queue, which the reaper clears; nothing is ever handed to a waiter, so nothing is lost with one.
 */
#ifndef RESC_WAITING_H
#define RESC_WAITING_H

#include "failpoint.h"
#include "map.h"

#define WAITING_SLICE_NS UINT64_C(50000000)
#define WAITING_BIT      UINT64_C(1)

/*
 * Takes a cell of the queue, while fewer than `most` calls wait. 0; RESC_E_QUEUE_FULL. mine: as a permit, {life, call}. The dead may be
 * among those who wait: sweep (worker_sweep_maybe) and try again before that is said to a caller.
 */
int waiting_join(const struct map *map, struct state *state, uint64_t mine, uint32_t most, uint32_t *cell);
/* Gives it back. It may be gone already (reaped, by a segment that thought us dead). */
void waiting_leave(const struct map *map, struct state *state, uint32_t cell, uint64_t mine);
/* Sets the bit. Returns the value to sleep on. The caller then looks for a permit once more before it sleeps. */
uint32_t waiting_announce(struct state *state);
/* Sleeps while the word has that value, at most that long and at most a slice. Not in a read-side section: the address may have been
 * unmapped meanwhile, which only ends the sleep. */
void waiting_sleep(struct state *state, uint32_t value, uint64_t ns);
/* Somebody waits: the second half of waiting_signal. */
void waiting_wake(struct state *state, uint64_t seen);
/* A permit was given back. */
static inline void waiting_signal(struct state *state)
{
	FAILPOINT("signal.freed");
	/* seq_cst, as the CAS that gave the permit back: see waiting.c. Where nobody waits, this is all. */
	uint64_t w = atomic_load_explicit(&state->wait, memory_order_seq_cst);
	if (__builtin_expect((w & WAITING_BIT) != 0, 0))
		waiting_wake(state, w);
}
/* Cells were reaped, a limit was raised, or the segment was superseded: everybody looks again. */
void waiting_wake_all(struct state *state);
/* Calls that wait now. */
unsigned waiting_count(const struct map *map, const struct state *state);

#endif
