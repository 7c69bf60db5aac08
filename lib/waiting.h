/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a permit: a bounded queue of cells with places in line, and a futex.
 *
 * The wait word is {generation:31, waiters:1} in its low half. Waiter: draw a place -> take a cell of the queue -> CAS the bit on -> look
 * for a permit, where it is its turn -> futex wait on the value seen, in slices of at most 50 ms. Releaser (where waiting is on): free the
 * permit -> load the word; only where the bit is set: look at the line -> CAS {generation, 1} -> {generation+1, 1}, wake the first of each
 * rank and one behind him; where no more are in line: CAS to {generation+1, 0}, wake all. Reaper: permits and cells, then generation+1 and
 * wake all, then the slot. A death leaves a cell in the queue, which the reaper clears; nothing is ever handed to a
 * waiter, so nothing is lost with one.
 *
 * The line. A cell of the queue is {life, rank, place}. Before a waiter stand those of a higher rank whose share is not used up, and those
 * of its own with a smaller place. It is somebody's turn where nobody stands before him, or fewer than permits are free to him; a newcomer
 * stands behind all of his rank. Who goes out of the queue, for whatever reason, frees his cell -> looks at the others -> is anybody there
 * and a permit free: as a releaser. It is nobody's right: whom others have seen at the front, beside a free permit, for some time, by
 * state.front, they pass (state.passed, which only grows). So one that is stopped costs the others a moment, once.
 */
#ifndef RESC_WAITING_H
#define RESC_WAITING_H

#include "clock.h"
#include "failpoint.h"
#include "map.h"
#include "words.h"

#define WAITING_SLICE_NS    UINT64_C(50000000)
#define WAITING_PATIENCE_MS UINT64_C(10) /* so long may whose turn it is take to come */
#define WAITING_BIT         UINT64_C(1)

/*
 * How soon somebody comes is up to the scheduler, and so a matter of real time, also where a test lets the clock stand still: what to add
 * to the time of the segment. A unit test that must not be hurried has it stand still as well.
 */
#ifdef RESC_TEST_CLOCK
extern bool waiting_in_real_time;
static inline uint64_t waiting_real_ms(void)
{
	return waiting_in_real_time ? clock_read_ns(CLOCK_MONOTONIC_COARSE) / 1000000 : 0;
}
#else
static inline uint64_t waiting_real_ms(void)
{
	return 0;
}
#endif

enum waiting_rank { WAITING_LOW, WAITING_NORMAL, WAITING_CRITICAL, WAITING_RANKS };

/* So many permits may be held when one of that rank comes in. */
struct waiting_shares {
	uint64_t of[WAITING_RANKS];
};

/* The next place in line. Who has drawn one and does not come takes nothing along. */
static inline uint64_t waiting_draw(struct state *state)
{
	/* Relaxed: only the number matters, and each is given once. Those whose low bits are 0 are a newcomer's. */
	uint64_t place = atomic_fetch_add_explicit(&state->drawn, 1, memory_order_relaxed) + 1;

	return (place & PLACE_MASK) != 0 ? place : atomic_fetch_add_explicit(&state->drawn, 1, memory_order_relaxed) + 1;
}
/* Nobody is in line whom a newcomer would have to let go first. The other answer may be late: waiting_is_turn looks. */
static inline bool waiting_is_nobody(const struct state *state)
{
	/* Relaxed: a hint. A sum that has wrapped is damage, and is put right by who leaves the queue. */
	return atomic_load_explicit(&state->passed, memory_order_relaxed) >= atomic_load_explicit(&state->drawn, memory_order_relaxed);
}
/*
 * Is it the turn of who has `mine` in the queue, or of a newcomer ({life, rank, 0})? Also true where none is free: a look says so, and
 * settles a limit. Who stands before and does not come is passed.
 */
bool waiting_is_turn(const struct map *map, struct state *state, uint64_t mine, const struct waiting_shares *shares, uint64_t now_ms);
/*
 * Takes a cell of the queue, while fewer than `most` calls wait. 0; RESC_E_QUEUE_FULL. mine: waiting_make() with a place that was drawn (in
 * a segment before minor 2: as a permit). The dead may be among those who wait: sweep (worker_sweep_maybe) and try again before that is
 * said to a caller.
 */
int waiting_join(const struct map *map, struct state *state, uint64_t mine, uint32_t most, uint32_t *cell);
/* Gives it back, and wakes the others where there is something for them. It may be gone already (reaped, by a segment that thought us
 * dead). */
void waiting_leave(const struct map *map, struct state *state, uint32_t cell, uint64_t mine);
/* Sets the bit. Returns the value to sleep on. The caller then looks for a permit once more before it sleeps. */
uint32_t waiting_announce(struct state *state);
/* Who sleeps is woken with all, and, by this bit, with some. */
static inline uint32_t waiting_bit(uint64_t mine)
{
	return UINT32_C(1) << (waiting_place(mine) & 31);
}
#define WAITING_ANY UINT32_MAX
/* Sleeps while the word has that value, at most that long and at most a slice. Not in a read-side section: the address may have been
 * unmapped meanwhile, which only ends the sleep. */
void waiting_sleep(struct state *state, uint32_t value, uint32_t bits, uint64_t ns);
/* Somebody waits: the second halves of waiting_signal and waiting_signal_next. */
void waiting_wake(struct state *state, uint64_t seen);
void waiting_wake_next(const struct map *map, struct state *state, uint64_t seen);
/* A permit was given back. */
static inline void waiting_signal(struct state *state)
{
	FAILPOINT("signal.freed");
	/* seq_cst, as the CAS that gave the permit back: see waiting.c. Where nobody waits, this is all. */
	uint64_t w = atomic_load_explicit(&state->wait, memory_order_seq_cst);
	if (__builtin_expect((w & WAITING_BIT) != 0, 0))
		waiting_wake(state, w);
}
/* The same, and of a long line only the first are woken. */
static inline void waiting_signal_next(const struct map *map, struct state *state)
{
	FAILPOINT("signal.freed");
	uint64_t w = atomic_load_explicit(&state->wait, memory_order_seq_cst);
	if (__builtin_expect((w & WAITING_BIT) != 0, 0))
		waiting_wake_next(map, state, w);
}
/* Cells were reaped, a limit was raised, or the segment was superseded: everybody looks again. */
void waiting_wake_all(struct state *state);
/* Calls that wait now. */
unsigned waiting_count(const struct map *map, const struct state *state);

#endif
