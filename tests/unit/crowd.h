/* SPDX-License-Identifier: MIT */
/*
 * How many are inside at once, as those see it who go in and out: the witness of every test of a limit. It may stand in memory that
 * processes share.
 *
 * most has the largest number in its lower half, and in its upper half how often it was forgotten: who was counted before that, and was
 * then stopped for a while, says nothing of the time since.
 */
#ifndef UNIT_CROWD_H
#define UNIT_CROWD_H

#include <stdatomic.h>
#include <stdint.h>

struct crowd {
	_Atomic uint32_t inside;
	_Atomic uint64_t most;
};

/* After a permit was got. */
static inline void crowd_enter(struct crowd *c)
{
	uint64_t seen = atomic_load_explicit(&c->most, memory_order_seq_cst);
	uint64_t since = seen >> 32;
	uint32_t now = atomic_fetch_add_explicit(&c->inside, 1, memory_order_seq_cst) + 1;

	while (seen >> 32 == since && now > (uint32_t)seen &&
	       !atomic_compare_exchange_weak_explicit(&c->most, &seen, since << 32 | now, memory_order_seq_cst, memory_order_seq_cst))
		continue;
}

/* Before it is given back. */
static inline void crowd_leave(struct crowd *c)
{
	atomic_fetch_sub_explicit(&c->inside, 1, memory_order_seq_cst);
}

static inline uint32_t crowd_most(const struct crowd *c)
{
	return (uint32_t)atomic_load_explicit(&c->most, memory_order_seq_cst);
}

/* By one only. */
static inline void crowd_forget(struct crowd *c)
{
	uint64_t since = atomic_load_explicit(&c->most, memory_order_seq_cst) >> 32;

	atomic_store_explicit(&c->most, (since + 1) << 32, memory_order_seq_cst);
}

#endif
