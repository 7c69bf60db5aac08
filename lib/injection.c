/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a rehearsal on one worker says nothing about a host. What is shared here is the decision: calls of all workers take
 * numbers from one counter, and the numbers say who fails, so a share of 20 % is 20 % of the host's calls, exactly, however many workers
 * there are and whichever of them call. The counter is never set back, because any run of consecutive numbers is as good as another.
 *
 * The protocol is in injection.h. It is that of an override, without a breaker to close at the end. Two things are different:
 *	- The setting decides, so what is in force has that of its setter, whole, from its first moment to its last; bytes of a text may be
 *	  another's. A setter who is overtaken may not set the word: so whoever overtakes him marks it, and his CAS fails. Nor may a setter
 *	  who was stopped change what is in force when he goes on: he changes the setting by CAS from what was there before he marked the
 *	  word, and that value does not come back, for each one in a place has the serial after that of the one before (of four bits:
 *	  until eight others have come). A call believes only the setting that has the serial of the word.
 *	- It always ends by itself, soon, and only where the configuration allows it. All look at the policy first: what rescd forbids
 *	  has no effect from the moment that the policy is written, and the word is only tidied up after it.
 *
 * While a segment is being superseded the word moves like the others (move.c), with its serial. A call that finds it moved is left alone.
 */
#include "injection.h"

#include <errno.h>

#include "bounds.h"
#include "call.h"
#include "chars.h"
#include "clock.h"
#include "event.h"
#include "failpoint.h"
#include "injected.h"
#include "note.h"
#include "policy.h"

#define TRIES   64
#define MILLION 1000000u

/* ---- common ---- */

static bool is_allowed(const struct map *map, uint32_t index)
{
	struct policy policy;
	uint64_t sequence;

	return policy_read(map, index, &policy, &sequence) == 0 && (policy.flags & POLICY_INJECTION) != 0;
}

/* 0 when the resource is in use here, with the word as it is; -ENOENT; -ENOTSUP; -ESTALE when it has moved on. */
static int look(const struct map *map, uint32_t index, uint64_t *seen)
{
	char name[SEGMENT_NAME_SIZE];

	if (index >= map->dims.resources || !policy_name(map, index, name))
		return -ENOENT;
	if (!map_has(map, 2))
		return -ENOTSUP;
	const struct state *state = map_state(map, index);
	unsigned tag = breaker_tag(atomic_load_explicit(&state->breaker, memory_order_acquire));
	*seen = atomic_load_explicit(&state->injection, memory_order_acquire);
	if (tag == TAG_MOVED || injection_kind(*seen) == WORD_MOVED)
		return -ESTALE;
	return tag == TAG_EMPTY ? -ENOENT : 0;
}

static struct override_text *text_slot(struct state *state, uint32_t serial)
{
	return &state->injection_text[serial & 1];
}

static word *setting_slot(struct state *state, uint32_t serial)
{
	return &state->injection_setting[serial & 1];
}

static void tell(const struct map *map, uint32_t index, uint32_t life, enum event_kind kind, uint64_t v0, uint64_t v1, const char *text)
{
	struct event event = {.kind = kind, .value = {v0, v1}};

	policy_name(map, index, event.resource);
	chars_copy(event.text, sizeof(event.text), text);
	event_write(map, life, &event);
}

const char *injection_end_name(enum injection_end end)
{
	static const char *const names[] = {"unknown", "expired", "stopped", "forbidden"};

	return (unsigned)end < sizeof(names) / sizeof(names[0]) ? names[end] : names[0];
}

/* ---- ending ---- */

/* Ends exactly what was seen. False: others have changed it; seen is what it is now. */
static bool end(const struct map *map, uint32_t index, uint32_t life, uint64_t *seen, enum injection_end how, const char *text)
{
	struct state *state = map_state(map, index);
	uint64_t was = *seen;
	/* While the word is in force; afterwards its slot is soon another's. */
	uint64_t setting = atomic_load_explicit(setting_slot(state, injection_serial(was)), memory_order_relaxed);

	FAILPOINT("injection.ending");
	/* acq_rel: what the setter did comes before, and the event after it. */
	if (!atomic_compare_exchange_strong_explicit(&state->injection, seen, injection_make(WORD_LIVE, false, injection_serial(was), 0),
	                                             memory_order_acq_rel, memory_order_acquire))
		return false;
	FAILPOINT("injection.gone");
	tell(map, index, life, EVENT_INJECTION_ENDED, setting, how, text);
	return true;
}

/* The same, with the reason that was given for it. */
static bool end_with_its_text(const struct map *map, uint32_t index, uint32_t life, uint64_t *seen, enum injection_end how)
{
	struct note note;

	note_read(text_slot(map_state(map, index), injection_serial(*seen)), injection_serial(*seen), &note);
	return end(map, index, life, seen, how, note.text);
}

void injection_expire(const struct map *map, uint32_t index, uint32_t life, uint64_t now_ms)
{
	uint64_t seen;

	if (look(map, index, &seen) == 0 && injection_is_on(seen) && !injection_holds(seen, now_ms))
		end_with_its_text(map, index, life, &seen, INJECTION_EXPIRED);
}

void injection_forbid(const struct map *map, uint32_t index)
{
	uint64_t seen;

	for (int i = 0; i < TRIES; i++)
		if (look(map, index, &seen) != 0 || !injection_is_on(seen) || end_with_its_text(map, index, 0, &seen, INJECTION_FORBIDDEN))
			return;
}

int injection_stop(const struct map *map, uint32_t index, const char *text)
{
	uint64_t seen;

	for (int i = 0; i < TRIES; i++) {
		int r = look(map, index, &seen);
		if (r != 0)
			return r;
		uint64_t now_ms = clock_coarse_ms(map);
		if (!injection_holds(seen, now_ms)) {
			injection_expire(map, index, 0, now_ms);
			return -ESRCH;
		}
		if (end(map, index, 0, &seen, INJECTION_STOPPED, text))
			return 0;
	}
	return -EBUSY;
}

/* ---- setting ---- */

static bool is_sound(const struct injection *i, uint64_t for_ms)
{
	bool slows = i->latency_ms != 0 && i->share_ppm != 0;

	return i->fail_ppm <= MILLION && i->share_ppm <= MILLION && i->latency_ms <= INJECTION_LATENCY_MOST_MS &&
	       (i->fail_ppm != 0 || slows) && for_ms != 0 && for_ms <= INJECTION_MOST_MS;
}

static uint64_t setting_of(uint32_t serial, const struct injection *i)
{
	return setting_make(serial, i->fail_ppm, i->share_ppm, i->latency_ms);
}

/* That word, as no other setter expects it. It means the same: an end is a millisecond earlier, and what is off has none. */
static uint64_t marked(uint64_t w)
{
	bool on = injection_is_on(w);

	return injection_make(WORD_LIVE, on, injection_serial(w), on ? injection_until_ms(w) - 1 : injection_until_ms(w) + 1);
}

/* The first serial after that of w which has these four last bits, and so the next one's place; of the lowest bit only its place counts. */
static uint32_t serial_after(uint64_t w, uint32_t last_bits)
{
	uint32_t next = injection_serial(w) + 1;

	return (next + ((last_bits - next) & 0xe)) & 0xfffff;
}

struct wish {
	const struct injection *what;
	uint64_t now_ms, for_ms;
	const char *text;
};

/* Marks the word, and puts setting and text into their places. What the word is to be; 0: somebody else was faster, look at it again. */
static uint64_t prepare(struct state *state, uint64_t *seen, const struct wish *wish)
{
	uint32_t next = injection_serial(*seen) + 1;
	word *setting = setting_slot(state, next);
	/* Before the mark: who puts another one there and sets the word has marked it after us, so that one we have not seen. */
	uint64_t before = atomic_load_explicit(setting, memory_order_acquire);
	uint32_t serial = serial_after(*seen, setting_serial(before) + 2);
	uint64_t claim =
	        note_claim(text_slot(state, next), serial_after(*seen, setting_serial(before)), &state->injection, *seen, marked(*seen));

	if (claim == 0)
		return 0;
	*seen = marked(*seen);
	FAILPOINT("injection.claimed");
	if (!atomic_compare_exchange_strong_explicit(setting, &before, setting_of(serial, wish->what), memory_order_acq_rel,
	                                             memory_order_relaxed))
		return 0;
	FAILPOINT("injection.setting");
	if (!note_write(text_slot(state, next), claim, serial, wish->now_ms, wish->text))
		return 0;
	return injection_make(WORD_LIVE, true, serial, wish->now_ms + wish->for_ms);
}

/* Is it really there? Yes also when it has been there and has ended since. rescd may have forbidden it while it was set. */
static int verify(const struct map *map, uint32_t index, uint64_t set)
{
	uint64_t w = atomic_load_explicit(&map_state(map, index)->injection, memory_order_acquire);

	if (injection_kind(w) == WORD_MOVED)
		return -ESTALE;
	if (injection_serial(w) != injection_serial(set))
		return -EBUSY;
	if (is_allowed(map, index))
		return 0;
	injection_forbid(map, index);
	return -EPERM;
}

int injection_set(const struct map *map, uint32_t index, const struct injection *injection, uint64_t for_ms, const char *text)
{
	struct wish wish = {.what = injection, .for_ms = for_ms, .text = text};
	uint64_t seen;

	if (!is_sound(injection, for_ms))
		return -EINVAL;
	for (int i = 0; i < TRIES; i++) {
		int r = look(map, index, &seen);
		if (r == 0 && !is_allowed(map, index))
			r = -EPERM;
		if (r != 0)
			return r;
		struct state *state = map_state(map, index);
		wish.now_ms = clock_coarse_ms(map);
		if (injection_is_on(seen) && !injection_holds(seen, wish.now_ms)) {
			injection_expire(map, index, 0, wish.now_ms);
			continue;
		}
		uint64_t next = prepare(state, &seen, &wish);
		if (next == 0)
			continue;
		FAILPOINT("injection.text");
		/* release: who sees the word sees its setting. acquire: what the one before did. */
		if (!atomic_compare_exchange_strong_explicit(&state->injection, &seen, next, memory_order_acq_rel, memory_order_relaxed))
			continue;
		FAILPOINT("injection.set");
		tell(map, index, 0, EVENT_INJECTED, setting_of(injection_serial(next), injection), for_ms, text);
		return verify(map, index, next);
	}
	return -EBUSY;
}

/* ---- calls ---- */

static struct injection unpack(uint64_t setting)
{
	return (struct injection){
	        .fail_ppm = (uint32_t)smaller(setting_fail_ppm(setting), MILLION),
	        .share_ppm = (uint32_t)smaller(setting_share_ppm(setting), MILLION),
	        .latency_ms = (uint32_t)smaller(setting_latency_ms(setting), INJECTION_LATENCY_MOST_MS),
	};
}

struct injection injection_of_event(const struct event *event)
{
	return unpack(event->value[0]);
}

bool injection_read(const struct state *state, uint64_t w, struct injection *injection)
{
	uint32_t serial = injection_serial(w);
	uint64_t setting = atomic_load_explicit(&state->injection_setting[serial & 1], memory_order_acquire);

	*injection = unpack(setting);
	return setting_serial(setting) == (serial & 0xf);
}

bool injection_falls(uint64_t n, uint32_t ppm, uint32_t phase)
{
	/* A million calls are a whole number of periods of any share. */
	uint64_t at = n % MILLION * ppm + phase;

	return (at + ppm) / MILLION != at / MILLION;
}

bool injection_draw(const struct view *v, uint64_t now_ms, struct injected *injected)
{
	uint64_t w = atomic_load_explicit(&v->state->injection, memory_order_acquire);
	struct injection injection;

	if (!injection_holds(w, now_ms)) {
		injection_expire(v->map, v->index, v->life, now_ms);
		return false;
	}
	if (!injection_read(v->state, w, &injection))
		return false;
	/* relaxed: each number is given once, and orders nothing */
	uint64_t n = atomic_fetch_add_explicit(&v->state->injected, 1, memory_order_relaxed);
	bool slow = injection_falls(n, injection.share_ppm, MILLION / 2);
	injected->fails = injection_falls(n, injection.fail_ppm, 0);
	injected->latency_ms = slow ? injection.latency_ms : 0;
	injected->serial = injection_serial(w);
	return injected->fails || injected->latency_ms != 0;
}

bool injection_goes_on(const struct view *v, uint32_t serial)
{
	if (v == NULL)
		return true;
	if (!v->injects)
		return false;
	uint64_t w = atomic_load_explicit(&v->state->injection, memory_order_acquire);
	return injection_kind(w) == WORD_MOVED || (injection_holds(w, clock_coarse_ms(v->map)) && injection_serial(w) == serial);
}
