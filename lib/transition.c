/* SPDX-License-Identifier: MIT */
/*
 * A transition is one CAS of the breaker word; it adds one to the generation. Everything else here is the record of it, written by the
 * process whose CAS won: why (state.transition), how often (counters), and the event. The word alone decides; the record may come late,
 * or, when the winner dies, not at all:
 *
 *	died before state.transition	readers derive the time from the word, and know no reason
 *	died before the event		state.event_generation stays behind the word's generation, and rescd writes the event
 *	died before event_generation	rescd writes the event a second time, and event_read gives it once
 *
 * A winner may be stopped between its CAS and its record while others make the next transition. Its record must then not cover
 * theirs: record() looks whether the breaker is still of its generation *after* loading the value that it replaces, and replaces that
 * value by CAS. So whoever made the newest transition has the last word, whatever the order of wake-ups.
 */
#include "transition.h"

#include "count.h"
#include "event.h"
#include "failpoint.h"
#include "policy.h"

#define RECORD_TRIES 8

static void record(const struct state *state, word *place, uint64_t value, uint16_t generation)
{
	/* A failed CAS: another winner was here. The next turn finds that the breaker has moved on, or that it was an older one. */
	for (int i = 0; i < RECORD_TRIES; i++) {
		uint64_t seen = atomic_load_explicit(place, memory_order_acquire);
		uint64_t breaker = atomic_load_explicit(&state->breaker, memory_order_acquire);
		if (breaker_generation(breaker) != generation)
			return;
		/* release: who reads the record sees the breaker word that it speaks of. */
		if (atomic_compare_exchange_strong_explicit(place, &seen, value, memory_order_acq_rel, memory_order_relaxed))
			return;
	}
}

static void count_transition(const struct map *map, struct state *state, unsigned from, unsigned to)
{
	if (from == to) /* a reset of a closed breaker gives it a new generation, but it did not close */
		return;
	switch (to) {
	case TAG_OPEN:
		count_common(map, state, COUNTER_opened, 1);
		break;
	case TAG_HALF_OPEN:
		count_common(map, state, COUNTER_half_opened, 1);
		break;
	default:
		count_common(map, state, COUNTER_closed, 1);
		break;
	}
}

bool breaker_transition(const struct map *map, uint32_t index, uint64_t expected, unsigned tag, unsigned streak, uint64_t ms_field,
                        enum reason reason, uint32_t life, uint64_t now_ms, uint64_t v0, uint64_t v1)
{
	struct state *state = map_state(map, index);
	uint16_t generation = (uint16_t)(breaker_generation(expected) + 1);
	uint64_t next = breaker_make(tag, streak, generation, ms_field);

	/* acq_rel: what the winner saw (tallies, windows) comes before the new generation for everybody who loads it with acquire. */
	if (!atomic_compare_exchange_strong_explicit(&state->breaker, &expected, next, memory_order_acq_rel, memory_order_relaxed))
		return false;
	FAILPOINT("transition.won");

	record(state, &state->transition, transition_make(generation, reason, now_ms), generation);
	count_transition(map, state, breaker_state(expected), tag);
	FAILPOINT("transition.recorded");

	struct event event = {
	        .kind = EVENT_BREAKER,
	        .from = breaker_state(expected),
	        .to = tag,
	        .reason = reason,
	        .generation = generation,
	        .value = {v0, v1},
	};
	policy_name(map, index, event.resource);
	event_write(map, life, &event);
	FAILPOINT("transition.event");
	record(state, &state->event_generation, generation, generation);
	return true;
}
