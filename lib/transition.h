/* SPDX-License-Identifier: MIT */
/*
 * Moving a breaker: the one place where its word changes. See transition.c.
 */
#ifndef RESC_TRANSITION_H
#define RESC_TRANSITION_H

#include "map.h"
#include "words.h"

/*
 * ONE CAS of the breaker word: expected -> {tag, streak, generation of expected + 1, ms_field}. ms_field is the due time for TAG_OPEN, else
 * since when. False: somebody else has moved it, and nothing was done. True: this call won, and has recorded it: reason, counter, event
 * (v0, v1 go into its value[]). life: the caller's, or 0. now_ms: the segment time that the decision was made with.
 */
bool breaker_transition(const struct map *map, uint32_t index, uint64_t expected, unsigned tag, unsigned streak, uint64_t ms_field,
                        enum reason reason, uint32_t life, uint64_t now_ms, uint64_t v0, uint64_t v1);

/*
 * How often a breaker came into that state in this segment: see transition.c. What was counted in the ones before is in state.carried.
 */
static inline uint64_t transition_count(const struct state *state, unsigned tag)
{
	/* acquire: as the counters that it is shown with */
	return counted_count(atomic_load_explicit(&state->counted[tag - TAG_CLOSED], memory_order_acquire));
}
static inline enum counter transition_counter(unsigned tag)
{
	static const enum counter counters[] = {COUNTER_closed, COUNTER_opened, COUNTER_half_opened};

	return counters[tag - TAG_CLOSED];
}

/*
 * Completes the record of the last transition, where its author died or was stopped before he had. One look where there is nothing to do.
 * For rescd, resctl, and who reaps or moves. Returns the breaker word whose record is complete; 0: it moved again and again.
 */
uint64_t transition_complete(const struct map *map, uint32_t index, uint32_t life);

#endif
