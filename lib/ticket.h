/* SPDX-License-Identifier: MIT */
/*
 * What a caller holds between two calls, and brings back: sealed with a number of this process, so that garbage is noticed before anything
 * in it is believed. What a ticket says about shared memory is proved there: a permit or a lease is given back by CAS of its exact value.
 */
#ifndef RESC_TICKET_H
#define RESC_TICKET_H

#include <string.h>

#include "segment.h"

_Static_assert(sizeof(resc_ticket) == 64, "a ticket is one cache line");

#define SHAPE_TICKET     0x52u /* low bits of resc_ticket.shape; a zeroed ticket has none */
#define SHAPE_UNRECORDED 0x80u /* admitted while an override said "disabled": its outcome is counted, but not for the breaker */

/* 0: not drawn yet. */
extern _Atomic uint64_t seal_number;
uint64_t seal_draw(void);

static inline uint64_t seal_secret(void)
{
	uint64_t n = atomic_load_explicit(&seal_number, memory_order_relaxed);

	return __builtin_expect(n != 0, 1) ? n : seal_draw();
}

static inline uint64_t seal_rotate(uint64_t n, unsigned by)
{
	return n << by | n >> (64 - by);
}

static inline uint64_t ticket_seal(const resc_ticket *t)
{
	uint8_t probe; /* as a byte: garbage is no bool */

	memcpy(&probe, &t->probe, sizeof probe);
	uint64_t head = (uint64_t)t->shape << 56 | (uint64_t)probe << 48 | (uint64_t)t->breaker_generation << 32 | t->permit_cell;

	/* Rotated, so that no two fields cancel each other out. */
	return seal_secret() ^ head ^ seal_rotate(t->permit, 7) ^ seal_rotate(t->probe_lease, 19) ^
	       seal_rotate((uint64_t)(uintptr_t)t->resource, 31) ^ seal_rotate(t->segment, 43) ^ seal_rotate(t->started_ns, 53);
}

static inline void ticket_clear(resc_ticket *t)
{
	memset(t, 0, sizeof *t);
}

/* The lease's cell is not in its value: it travels in the top byte of the number of the permit's cell. */
#define TICKET_CELL_BITS 24
_Static_assert(PERMITS_LIMIT <= 1u << 16 && PROBES_LIMIT <= 256, "cells fit the ticket");
#define NO_CELL ((1u << TICKET_CELL_BITS) - 1)
/* Numbers from here on are of cells in this process alone: see untracked.h. */
#define UNTRACKED_BASE (1u << 23)

static inline uint32_t ticket_cell(const resc_ticket *t)
{
	return t->permit_cell & NO_CELL;
}

static inline bool ticket_is_tracked(const resc_ticket *t)
{
	return ticket_cell(t) < UNTRACKED_BASE;
}

static inline uint32_t ticket_probe_cell(const resc_ticket *t)
{
	return t->permit_cell >> TICKET_CELL_BITS;
}

#endif
