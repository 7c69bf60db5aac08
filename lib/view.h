/* SPDX-License-Identifier: MIT */
/* What a call of one resource works with. See view.c. */
#ifndef RESC_VIEW_H
#define RESC_VIEW_H

#include "map.h"
#include "process.h"
#include "rate.h"

struct attachment;

/*
 * Everything that a call of one resource needs, found once: immutable after it was published, replaced as a whole, freed after a grace
 * period. It is current as long as four words are as they were: see view_is_current.
 */
struct view {
	struct attachment *attachment;
	const struct map *map;
	struct policy_record *record;
	struct state *state;
	struct shard *own;        /* this worker's alone, or NULL */
	const void *owner_thread; /* who adds to `own` without atomics */
	struct shard *common;     /* everybody's */
	uint64_t generation;      /* of the segment */
	uint64_t epoch;
	uint64_t superseded;  /* as it was seen */
	uint64_t sequence;    /* of the policy */
	uint64_t tick_ms;     /* of the breaker's window */
	uint64_t tick_factor; /* 2^64 / tick, rounded up: see view_tick */
	uint64_t throttle_tick_ms;
	uint64_t throttle_factor; /* the same for the window of the throttle */
	word *home;               /* the permit cell to try first */
	uint32_t index;
	uint32_t life;
	uint32_t start;   /* its number */
	word *judged;     /* {generation:16, tick:48}: judged_last, in a view that is otherwise constant */
	word judged_last; /* the window was added up in this tick, with enough calls, and did not trip: see breaker.c */
	struct rate_limit rate_limit;
	bool measure; /* read the fine clock */
	bool plain;   /* nothing but breaker, bulkhead, budget and timeouts, all enforced: the other guards are not looked at */
	bool shares;  /* some priority may use only a part of the bulkhead */
	bool waits;   /* calls may wait for a permit, so whoever gives one back says so */
	bool in_line; /* they have places in line: a segment of minor 2 */
	bool injects; /* an operator may have calls fail */
	bool private_mode;
	struct policy policy;
	struct view *next_retired;
};

/* now_ms / tick without a division: exact, because now_ms < 2^40 and tick < 2^24. */
static inline uint64_t view_tick(const struct view *v, uint64_t now_ms)
{
	return (uint64_t)((unsigned __int128)now_ms * v->tick_factor >> 64);
}

static inline uint64_t view_throttle_tick(const struct view *v, uint64_t now_ms)
{
	return (uint64_t)((unsigned __int128)now_ms * v->throttle_factor >> 64);
}

static inline bool view_is_current(const struct view *v)
{
	/* Acquire on both: a new policy, or a successor, is complete when it is announced. */
	return v != NULL && atomic_load_explicit(&v->record->sequence, memory_order_acquire) == v->sequence &&
	       atomic_load_explicit(&v->map->daemon->superseded, memory_order_acquire) == v->superseded && process_epoch() == v->epoch;
}

#endif
