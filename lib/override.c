/* SPDX-License-Identifier: MIT */
/*
 * Overrides. An operator at three in the morning types one command, and every worker obeys at its next call, whether rescd is alive or not:
 * resctl changes the word itself, and the workers read it on each call.
 *
 * Setting: load the word -> text into the slot of the next serial (see note.h) -> CAS the word to {mode, until, serial + 1}. The word is
 * what counts. The text only explains it.
 *
 * Ending, released or expired, by anybody: load breaker, load override (in this order), CAS the breaker to {closed, generation + 1}, CAS
 * the override away. Whoever lost the first CAS starts again and finds what the winner made; whoever lost the second one has only closed a
 * breaker that was under an override anyway. The order of the loads matters: a breaker loaded after the override could be one that opened
 * by itself after somebody else had ended the override, and it would be closed. The event is written by who wins the second CAS, so once.
 *
 * A death after the first CAS leaves a closed breaker under the override, and the next who sees it goes on from there.
 *
 * An override that is released keeps its serial, with mode none: serials only grow (20 bits, wrapping), so no CAS mistakes one for
 * another.
 */
#include "override.h"

#include <errno.h>

#include "budget.h"
#include "chars.h"
#include "clock.h"
#include "event.h"
#include "failpoint.h"
#include "note.h"
#include "policy.h"
#include "rate.h"
#include "throttle.h"
#include "transition.h"

#define TRIES 64

/* ---- common ---- */

/* 0 when the resource is in use here; -ENOENT; -ESTALE when a word of it has moved on. Loads the breaker, then the override (acquire). */
static int look(const struct map *map, uint32_t index, uint64_t *breaker, uint64_t *override)
{
	char name[SEGMENT_NAME_SIZE];

	if (index >= map->dims.resources || !policy_name(map, index, name))
		return -ENOENT;
	struct state *state = map_state(map, index);
	*breaker = atomic_load_explicit(&state->breaker, memory_order_acquire);
	*override = atomic_load_explicit(&state->override, memory_order_acquire);
	if (breaker_tag(*breaker) == TAG_MOVED || override_kind(*override) == WORD_MOVED)
		return -ESTALE;
	if (breaker_tag(*breaker) == TAG_EMPTY)
		return -ENOENT;
	return 0;
}

static bool in_force(uint64_t w)
{
	return override_kind(w) != WORD_MOVED && override_mode(w) != OVERRIDE_NONE;
}

static bool is_over(uint64_t w, uint64_t now_ms)
{
	return in_force(w) && override_until_ms(w) != 0 && now_ms >= override_until_ms(w);
}

static void tell(const struct map *map, uint32_t index, uint32_t life, enum event_kind kind, uint64_t breaker, const uint64_t value[2],
                 const char *text)
{
	struct event event = {
	        .kind = kind,
	        .generation = breaker_generation(breaker),
	        .value = {value[0], value[1]},
	};

	policy_name(map, index, event.resource);
	chars_copy(event.text, sizeof(event.text), text);
	event_write(map, life, &event);
}

/* ---- the text ---- */

static struct override_text *text_slot(struct state *state, uint32_t serial)
{
	return &state->override_text[serial & 1];
}

/* Puts the text of the next override into its slot. False: somebody else was faster; look at the word again. */
static bool text_put(struct state *state, uint64_t word_seen, uint32_t serial, uint64_t now_ms, const char *text)
{
	struct override_text *slot = text_slot(state, serial);
	uint64_t claim = note_claim(slot, serial, &state->override, word_seen, word_seen);

	return claim != 0 && note_write(slot, claim, serial, now_ms, text);
}

/* ---- setting ---- */

static uint64_t until(uint64_t now_ms, uint64_t for_ms)
{
	if (for_ms == 0)
		return 0;
	return for_ms > TIME_MASK - now_ms ? TIME_MASK : now_ms + for_ms;
}

/* Is it really there? Yes also when it has been there and has ended since, by its own time or another hand. */
static int verify(struct state *state, uint64_t set)
{
	uint64_t w = atomic_load_explicit(&state->override, memory_order_acquire);

	if (override_kind(w) == WORD_MOVED)
		return -ESTALE;
	return override_serial(w) == override_serial(set) ? 0 : -EBUSY;
}

int override_set(const struct map *map, uint32_t index, enum override_mode mode, uint64_t for_ms, const char *text)
{
	uint64_t breaker, seen;

	if (mode != OVERRIDE_OPEN && mode != OVERRIDE_CLOSED && mode != OVERRIDE_DISABLED)
		return -EINVAL;
	for (int i = 0; i < TRIES; i++) {
		int r = look(map, index, &breaker, &seen);
		if (r != 0)
			return r;
		struct state *state = map_state(map, index);
		uint64_t now = clock_coarse_ms(map);
		if (is_over(seen, now)) {
			override_expire(map, index, 0, now);
			continue;
		}
		uint32_t serial = (override_serial(seen) + 1) & 0xfffff;
		uint64_t next = override_make(WORD_LIVE, mode, serial, until(now, for_ms));
		if (override_kind(seen) == WORD_EMPTY || !text_put(state, seen, serial, now, text))
			continue;
		FAILPOINT("override.text");
		/* release: who sees the word sees its text. acquire: what the one before did. */
		if (!atomic_compare_exchange_strong_explicit(&state->override, &seen, next, memory_order_acq_rel, memory_order_relaxed))
			continue;
		FAILPOINT("override.set");
		transition_complete(map, index, 0);
		tell(map, index, 0, EVENT_FORCED, breaker, (const uint64_t[2]){for_ms, mode}, text);
		return verify(state, next);
	}
	return -EBUSY;
}

/* ---- ending ---- */

/*
 * Ends exactly the override that was seen. 0: it is gone, by us or by others; -EAGAIN: the breaker moved, look again.
 */
static int end(const struct map *map, uint32_t index, uint32_t life, uint64_t breaker, uint64_t seen, uint64_t now_ms, enum event_kind kind,
               const char *text)
{
	struct state *state = map_state(map, index);
	uint64_t none = override_make(WORD_LIVE, OVERRIDE_NONE, override_serial(seen), 0);

	FAILPOINT("override.ending");
	if (!breaker_transition(map, index, breaker, TAG_CLOSED, 0, now_ms, REASON_OVERRIDE_OVER, life, now_ms, 0, 0))
		return -EAGAIN;
	FAILPOINT("override.closed");
	/* acq_rel: the breaker's new word is seen by who sees that the override is gone. */
	if (!atomic_compare_exchange_strong_explicit(&state->override, &seen, none, memory_order_acq_rel, memory_order_relaxed))
		return override_kind(seen) == WORD_MOVED ? -ESTALE : 0;
	FAILPOINT("override.gone");
	tell(map, index, life, kind, atomic_load_explicit(&state->breaker, memory_order_relaxed),
	     (const uint64_t[2]){0, override_mode(seen)}, text);
	return 0;
}

int override_release(const struct map *map, uint32_t index, const char *text)
{
	uint64_t breaker, seen;

	for (int i = 0; i < TRIES; i++) {
		int r = look(map, index, &breaker, &seen);
		if (r != 0)
			return r;
		uint64_t now = clock_coarse_ms(map);
		if (is_over(seen, now))
			override_expire(map, index, 0, now);
		if (!in_force(seen) || is_over(seen, now))
			return -ESRCH;
		r = end(map, index, 0, breaker, seen, now, EVENT_RELEASED, text);
		if (r != -EAGAIN)
			return r;
	}
	return -EBUSY;
}

bool override_expire(const struct map *map, uint32_t index, uint32_t life, uint64_t now_ms)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t breaker, seen;
		if (look(map, index, &breaker, &seen) != 0)
			return false;
		if (!is_over(seen, now_ms))
			return !in_force(seen);
		struct note note;
		note_read(text_slot(map_state(map, index), override_serial(seen)), override_serial(seen), &note);
		int r = end(map, index, life, breaker, seen, now_ms, EVENT_EXPIRED, note.text);
		if (r != 0 && r != -EAGAIN)
			return false;
	}
	return false;
}

/* ---- resetting ---- */

/* Budget and rate limit are full, and the throttle has seen nothing. */
static int refill(const struct map *map, uint32_t index, uint64_t now_ms)
{
	struct state *state = map_state(map, index);
	struct policy policy;
	uint64_t sequence;

	int r = policy_read(map, index, &policy, &sequence);
	if (r != 0)
		return -EBUSY;
	throttle_forget(state, now_ms);
	r = budget_fill(map, state, &policy);
	return r != 0 ? r : rate_fill(state);
}

int override_reset(const struct map *map, uint32_t index, const char *text)
{
	uint64_t breaker, seen;

	for (int i = 0; i < TRIES; i++) {
		int r = look(map, index, &breaker, &seen);
		if (r != 0)
			return r;
		uint64_t now = clock_coarse_ms(map);
		/* The new generation is the fresh window, and the streak and tally of the old one count no more. */
		if (!breaker_transition(map, index, breaker, TAG_CLOSED, 0, now, REASON_RESET, 0, now, 0, 0))
			continue;
		FAILPOINT("reset.closed");
		r = refill(map, index, now);
		FAILPOINT("reset.filled");
		if (r == 0)
			tell(map, index, 0, EVENT_RESET, atomic_load_explicit(&map_state(map, index)->breaker, memory_order_relaxed),
			     (const uint64_t[2]){0, 0}, text);
		return r;
	}
	return -EBUSY;
}

const char *override_mode_name(enum override_mode mode)
{
	static const char *const names[] = {"none", "open", "closed", "disabled"};

	return (unsigned)mode < sizeof(names) / sizeof(names[0]) ? names[mode] : "unknown";
}
