/* SPDX-License-Identifier: MIT */
/*
 * Inside a call: what the guards and the calls that ask them share. Everything here runs in a read-side section with a current view.
 */
#ifndef RESC_CALL_H
#define RESC_CALL_H

#include "clock.h"
#include "failpoint.h"
#include "host.h"
#include "words.h"

/* Off the usual path: kept out of line, so that the usual path stays short. */
#define COLD __attribute__((cold, noinline))

/* Out of line too, but as quick as the compiler can: each call of a resource that has more than a breaker and a limit takes it. */
#define APART __attribute__((noinline))

/* Part of the usual path of a call, though another path has it too. */
#define USUAL inline __attribute__((always_inline))

/* Inside the library only: the view is not good any more, make it anew and start over. Never returned to callers. */
#define CALL_AGAIN INT32_MIN
/* The same: sleep, outside of the read-side section, and start over. */
#define CALL_WAIT (INT32_MIN + 1)

static inline bool options_are_sound(const resc_options *o)
{
	return o->reserved == 0 && (o->flags & ~(RESC_RETRIED_UPSTREAM | RESC_RETRY)) == 0 && o->priority <= RESC_LOW;
}

/*
 * Adds to a word of a shard: plainly where it is this thread's alone, atomically in the common one. Relaxed: counters order nothing. A
 * death between load and store loses this one count. A stop there loses nothing: the shard has no other owner before this life is over.
 */
static inline bool owns_shard(const struct view *v)
{
	return v->own != NULL && v->owner_thread == thread_self();
}

static inline struct shard *shard_of(const struct view *v)
{
	return owns_shard(v) ? v->own : v->common;
}

static inline void add_to(const struct view *v, word *place_in_own, word *place_in_common, uint64_t n)
{
	if (__builtin_expect(!owns_shard(v), 0)) {
		atomic_fetch_add_explicit(place_in_common, n, memory_order_relaxed);
		return;
	}
	uint64_t seen = atomic_load_explicit(place_in_own, memory_order_relaxed);
	FAILPOINT("count.adding");
	atomic_store_explicit(place_in_own, seen + n, memory_order_relaxed);
}

static inline void count(const struct view *v, enum counter counter)
{
	struct shard *shard = shard_of(v);
	add_to(v, &shard->counters[counter], &shard->counters[counter], 1);
}

/* Perhaps what is full is full of the dead, and nobody has noticed. True: somebody was reaped, so look again. Seldom looks itself. */
static inline bool sweep_the_dead(const struct view *v)
{
	return worker_sweep_maybe(v->map, v->state, real_coarse_ns() / 1000000, v->life);
}

struct probe {
	uint32_t cell;
	uint64_t lease;
	uint16_t generation;
};

/*
 * The breaker is not closed, and the call holds its permit: get a probe lease. 0 with *probe; 0 with probe->lease 0 when the breaker has
 * closed meanwhile (an ordinary call of that generation); RESC_E_OPEN; RESC_E_HALF_OPEN; CALL_AGAIN.
 */
int breaker_probe(const struct view *v, uint64_t now_ms, struct probe *probe);
/* What the tally of a trial demands: REASON_NONE nothing yet, PROBES_OK to close, the others to open again. */
enum reason breaker_judge_trial(const struct policy *policy, uint64_t tally);
/* Draws the verdict of a trial whose tally is complete, for who has counted and has not come to it. True: the breaker should be looked at
 * again. */
bool breaker_help(const struct map *map, uint32_t index, const struct policy *policy, uint64_t now_ms);
/* Ends a lease. False: it was taken over, and the result must touch nothing. */
bool breaker_probe_end(struct state *state, uint32_t cell, uint64_t lease);
/* How a call ended, for the breaker. */
struct result {
	enum resc_outcome outcome;
	bool slow;
	uint64_t now_ms;
	int64_t retry_after_ms; /* the dependency's own word on when to come back; below 0: none */
};
/* The result of a probe whose lease has been ended: tally and verdict. 0, RESC_STALE, CALL_AGAIN. */
int breaker_probe_result(const struct view *v, uint16_t generation, const struct result *result);
/* The result of an ordinary call: window, streak, trip. 0, RESC_STALE, CALL_AGAIN. */
int breaker_result(const struct view *v, uint16_t generation, const struct result *result);

#endif
