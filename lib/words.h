/* SPDX-License-Identifier: MIT */
/*
 * How the 64-bit words of a resource are packed. Pure functions: no shared access happens here.
 *
 *	breaker   63..61 state   60..56 streak   55..40 generation   39..0 time (ms): since when closed or half-open, the due time when open
 *	override  63..62 kind    61..60 mode     59..40 serial       39..0 until (ms; 0: no end)
 *	injection 63..62 kind    61..60 on       59..40 serial       39..0 until (ms)
 *	setting   63..60 serial  59..40 fail     39..20 share that is slowed   19..0 latency (ms)
 *	limit     63..48 version 47..32 debt     31..16 effective    15..0 target
 *	streak    63..48 generation  47..46 kind   31..0 failures
 *	tally     63..48 generation  47..32 ok   31..16 fail   15..0 slow
 *	tokens    63..62 kind    61..54 epoch    53..0 millionths of a token
 *	earned    63..62 epoch   61..40 tick   39..0 millionths of a token
 *	window    63..36 tick    35..24 generation   23..0 count
 *	probe     63..32 life    31..24 generation   23..0 granted (ms)
 *	permit    63..32 life    31 retry   30..0 call
 *	rate      63..62 kind    61..60 epoch   59..0 quarters of a nanosecond since the segment was made
 *	throttle  63..24 ms      23..20 every    19..0 parts per million
 *	call      63..48 generation  47..45 category + 1   44..0 number
 *	transition 63..48 generation 47..40 reason 39..0 ms
 *	recorded  18..16 state   15..0 generation
 *	counted   63..48 generation  47..0 count
 *	who       63..32 uid     31..0 pid
 *	numbers   63..32 value   31..0 value
 */
#ifndef RESC_WORDS_H
#define RESC_WORDS_H

#include <stdbool.h>
#include <stdint.h>

#define TIME_MASK ((UINT64_C(1) << 40) - 1)

/* ---- breaker ---- */

enum breaker_tag {
	TAG_EMPTY = 0, /* of a successor: nobody has prepared it */
	TAG_CLOSED = 1,
	TAG_OPEN = 2,
	TAG_HALF_OPEN = 3,
	TAG_MOVED = 4,    /* the successor's word counts */
	TAG_PREPARED = 4, /* added to 1..3: copied, but the old word still counts */
};

#define STREAK_MAX 31u

static inline uint64_t breaker_make(unsigned tag, unsigned streak, unsigned generation, uint64_t ms)
{
	return (uint64_t)tag << 61 | (uint64_t)(streak > STREAK_MAX ? STREAK_MAX : streak) << 56 |
	       (uint64_t)(generation & 0xffff) << 40 | (ms & TIME_MASK);
}
static inline unsigned breaker_tag(uint64_t w) { return (unsigned)(w >> 61); }
static inline unsigned breaker_streak(uint64_t w) { return (unsigned)(w >> 56) & STREAK_MAX; }
static inline uint16_t breaker_generation(uint64_t w) { return (uint16_t)(w >> 40); }
static inline uint64_t breaker_ms(uint64_t w) { return w & TIME_MASK; }
/* The state that a word stands for, prepared or not: TAG_CLOSED, TAG_OPEN or TAG_HALF_OPEN; anything else counts as closed. */
static inline unsigned breaker_state(uint64_t w)
{
	unsigned tag = breaker_tag(w) & 3;
	return tag == 0 ? TAG_CLOSED : tag;
}
static inline bool breaker_is_prepared(uint64_t w) { return breaker_tag(w) > TAG_PREPARED; }

/* Is generation a newer than b? They are 16 bits and wrap. */
static inline bool generation_newer(uint16_t a, uint16_t b) { return (int16_t)(uint16_t)(a - b) > 0; }

/* ---- override ---- */

enum override_mode { OVERRIDE_NONE = 0, OVERRIDE_OPEN = 1, OVERRIDE_CLOSED = 2, OVERRIDE_DISABLED = 3 };

static inline uint64_t override_make(unsigned kind, unsigned mode, uint32_t serial, uint64_t until_ms)
{
	return (uint64_t)kind << 62 | (uint64_t)(mode & 3) << 60 | (uint64_t)(serial & 0xfffff) << 40 | (until_ms & TIME_MASK);
}
static inline unsigned override_kind(uint64_t w) { return (unsigned)(w >> 62); }
static inline enum override_mode override_mode(uint64_t w) { return (enum override_mode)(w >> 60 & 3); }
static inline uint32_t override_serial(uint64_t w) { return (uint32_t)(w >> 40) & 0xfffff; }
static inline uint64_t override_until_ms(uint64_t w) { return w & TIME_MASK; }

/* ---- injection ---- */

static inline uint64_t injection_make(unsigned kind, bool on, uint32_t serial, uint64_t until_ms)
{
	return override_make(kind, on ? 1 : 0, serial, until_ms);
}
static inline unsigned injection_kind(uint64_t w) { return override_kind(w); }
static inline bool injection_is_on(uint64_t w) { return (w >> 60 & 3) != 0; }
static inline uint32_t injection_serial(uint64_t w) { return override_serial(w); }
static inline uint64_t injection_until_ms(uint64_t w) { return override_until_ms(w); }

#define SETTING_MASK UINT64_C(0xfffff)

static inline uint64_t setting_make(uint32_t serial, uint32_t fail_ppm, uint32_t share_ppm, uint32_t latency_ms)
{
	return (uint64_t)(serial & 0xf) << 60 | (fail_ppm & SETTING_MASK) << 40 | (share_ppm & SETTING_MASK) << 20 |
	       (latency_ms & SETTING_MASK);
}
static inline uint32_t setting_serial(uint64_t w) { return (uint32_t)(w >> 60); }
static inline uint32_t setting_fail_ppm(uint64_t w) { return (uint32_t)(w >> 40 & SETTING_MASK); }
static inline uint32_t setting_share_ppm(uint64_t w) { return (uint32_t)(w >> 20 & SETTING_MASK); }
static inline uint32_t setting_latency_ms(uint64_t w) { return (uint32_t)(w & SETTING_MASK); }

/* ---- limit ---- */

static inline uint64_t limit_make(unsigned target, unsigned effective, unsigned debt, unsigned version)
{
	return (uint64_t)(version & 0xffff) << 48 | (uint64_t)(debt & 0xffff) << 32 | (uint64_t)(effective & 0xffff) << 16 |
	       (target & 0xffff);
}
static inline unsigned limit_target(uint64_t w) { return (unsigned)(w & 0xffff); }
static inline unsigned limit_effective(uint64_t w) { return (unsigned)(w >> 16) & 0xffff; }
static inline unsigned limit_debt(uint64_t w) { return (unsigned)(w >> 32) & 0xffff; }
static inline unsigned limit_version(uint64_t w) { return (unsigned)(w >> 48); }

/* ---- streak, tally ---- */

static inline uint64_t streak_make(uint16_t generation, unsigned kind, uint32_t failures)
{
	return (uint64_t)generation << 48 | (uint64_t)(kind & 3) << 46 | failures;
}
static inline uint16_t streak_generation(uint64_t w) { return (uint16_t)(w >> 48); }
static inline unsigned streak_kind(uint64_t w) { return (unsigned)(w >> 46) & 3; }
static inline uint32_t streak_failures(uint64_t w) { return (uint32_t)w; }

static inline uint64_t tally_make(uint16_t generation, unsigned ok, unsigned fail, unsigned slow)
{
	return (uint64_t)generation << 48 | (uint64_t)(ok & 0xffff) << 32 | (uint64_t)(fail & 0xffff) << 16 | (slow & 0xffff);
}
static inline uint16_t tally_generation(uint64_t w) { return (uint16_t)(w >> 48); }
static inline unsigned tally_ok(uint64_t w) { return (unsigned)(w >> 32) & 0xffff; }
static inline unsigned tally_fail(uint64_t w) { return (unsigned)(w >> 16) & 0xffff; }
static inline unsigned tally_slow(uint64_t w) { return (unsigned)w & 0xffff; }

/* ---- tokens ---- */

#define TOKEN UINT64_C(1000000) /* one token, in millionths */
#define TOKENS_MASK ((UINT64_C(1) << 54) - 1)

static inline uint64_t tokens_make(unsigned kind, unsigned epoch, uint64_t tokens)
{
	return (uint64_t)kind << 62 | (uint64_t)(epoch & 0xff) << 54 | (tokens & TOKENS_MASK);
}
static inline unsigned tokens_kind(uint64_t w) { return (unsigned)(w >> 62); }
static inline unsigned tokens_epoch(uint64_t w) { return (unsigned)(w >> 54) & 0xff; }
static inline uint64_t tokens_count(uint64_t w) { return w & TOKENS_MASK; }

/* ---- earned: a slice of what was deposited ---- */

#define EARNED_MASK ((UINT64_C(1) << 40) - 1)
#define EARNED_TICK_MASK ((UINT64_C(1) << 22) - 1)

static inline uint64_t earned_make(unsigned epoch, uint64_t tick, uint64_t amount)
{
	return (uint64_t)(epoch & 3) << 62 | (tick & EARNED_TICK_MASK) << 40 | (amount & EARNED_MASK);
}
static inline unsigned earned_epoch(uint64_t w) { return (unsigned)(w >> 62); }
static inline uint64_t earned_tick(uint64_t w) { return w >> 40 & EARNED_TICK_MASK; }
static inline uint64_t earned_amount(uint64_t w) { return w & EARNED_MASK; }

/* ---- window bucket ---- */

#define BUCKET_MAX 0xffffffu
#define BUCKET_TAG_MASK ((UINT64_C(1) << 40) - 1)
#define TICK_MASK ((UINT64_C(1) << 28) - 1)

static inline uint64_t bucket_tag(uint64_t tick, uint16_t generation)
{
	return (tick & TICK_MASK) << 12 | (generation & 0xfff);
}
static inline uint64_t bucket_make(uint64_t tag, uint32_t count) { return tag << 24 | count; }
static inline uint64_t bucket_tag_of(uint64_t w) { return w >> 24; }
static inline uint32_t bucket_count(uint64_t w) { return (uint32_t)(w & BUCKET_MAX); }

/* ---- probe and permit cells ---- */

static inline uint64_t probe_make(uint32_t life, unsigned generation, uint64_t granted_ms)
{
	return (uint64_t)life << 32 | (uint64_t)(generation & 0xff) << 24 | (granted_ms & 0xffffff);
}
static inline uint32_t probe_life(uint64_t w) { return (uint32_t)(w >> 32); }
static inline unsigned probe_generation(uint64_t w) { return (unsigned)(w >> 24) & 0xff; }
static inline uint64_t probe_age_ms(uint64_t w, uint64_t now_ms) { return (now_ms - w) & 0xffffff; }

/* Stands in a successor for a lease that is out in the superseded segment. No life has this number, or the one before. */
#define GHOST_LIFE UINT32_MAX
static inline uint64_t probe_ghost(uint64_t w) { return (uint64_t)GHOST_LIFE << 32 | (w & 0xffffffff); }
/* A ghost whose lease has ended, and whose owner may be about to remove it. */
#define ORPHAN_LIFE (UINT32_MAX - 1)
static inline uint64_t probe_orphan(uint64_t w) { return (uint64_t)ORPHAN_LIFE << 32 | (w & 0xffffffff); }
static inline bool probe_is_ghost(uint64_t w) { return probe_life(w) >= ORPHAN_LIFE; }

#define PERMIT_RETRY UINT64_C(0x80000000) /* the call is a retry */
static inline uint64_t permit_make(uint32_t life, uint32_t call) { return (uint64_t)life << 32 | (call & 0x7fffffff); }
static inline uint32_t permit_life(uint64_t w) { return (uint32_t)(w >> 32); }
static inline bool permit_is_retry(uint64_t w) { return (w & PERMIT_RETRY) != 0; }

/* ---- waiting ---- */

#define PLACE_MASK UINT32_C(0x3fffffff)
static inline uint64_t waiting_make(uint32_t life, unsigned rank, uint64_t place)
{
	return (uint64_t)life << 32 | (uint64_t)(rank & 3) << 30 | (place & PLACE_MASK);
}
static inline unsigned waiting_rank(uint64_t w) { return (unsigned)(w >> 30) & 3; }
static inline uint32_t waiting_place(uint64_t w) { return (uint32_t)w & PLACE_MASK; }

#define FRONT_MS_MASK ((UINT64_C(1) << 34) - 1)
static inline uint64_t front_make(uint32_t place, uint64_t ms) { return (uint64_t)(place & PLACE_MASK) << 34 | (ms & FRONT_MS_MASK); }
static inline uint32_t front_place(uint64_t w) { return (uint32_t)(w >> 34); }
/* Whoever writes it may have read a later time than who looks: below a second that is no age. More is damage, and long ago. */
static inline uint64_t front_age_ms(uint64_t w, uint64_t now_ms)
{
	return ((now_ms - w) & FRONT_MS_MASK) > FRONT_MS_MASK - 1000 ? 0 : (now_ms - w) & FRONT_MS_MASK;
}

/* ---- rate ---- */

#define RATE_TIME_MASK ((UINT64_C(1) << 60) - 1)

static inline uint64_t rate_make(unsigned kind, unsigned epoch, uint64_t time)
{
	return (uint64_t)kind << 62 | (uint64_t)(epoch & 3) << 60 | (time & RATE_TIME_MASK);
}
static inline unsigned rate_kind(uint64_t w) { return (unsigned)(w >> 62); }
static inline unsigned rate_epoch(uint64_t w) { return (unsigned)(w >> 60) & 3; }
static inline uint64_t rate_time(uint64_t w) { return w & RATE_TIME_MASK; }

/* ---- throttle ---- */

/* every: worked out again after 2^every calls that somebody counted */
static inline uint64_t throttle_make(uint64_t ms, unsigned every, uint32_t ppm)
{
	return ms << 24 | (uint64_t)(every & 0xf) << 20 | (ppm & 0xfffff);
}
static inline uint64_t throttle_ms(uint64_t w) { return w >> 24; }
static inline unsigned throttle_every(uint64_t w) { return (unsigned)(w >> 20) & 0xf; }
static inline uint32_t throttle_ppm(uint64_t w) { return (uint32_t)w & 0xfffff; }

/* ---- a call in a window by number of calls ---- */

#define CALL_NUMBER_MASK ((UINT64_C(1) << 45) - 1)

static inline uint64_t call_make(uint16_t generation, unsigned category, uint64_t number)
{
	return (uint64_t)generation << 48 | (uint64_t)(category + 1) << 45 | (number & CALL_NUMBER_MASK);
}
static inline uint16_t call_generation(uint64_t w) { return (uint16_t)(w >> 48); }
/* 0: no call was ever here. */
static inline unsigned call_category_plus_one(uint64_t w) { return (unsigned)(w >> 45) & 7; }
static inline uint64_t call_number(uint64_t w) { return w & CALL_NUMBER_MASK; }

/* ---- transition ---- */

static inline uint64_t transition_make(uint16_t generation, unsigned reason, uint64_t ms)
{
	return (uint64_t)generation << 48 | (uint64_t)(reason & 0xff) << 40 | (ms & TIME_MASK);
}
static inline uint16_t transition_generation(uint64_t w) { return (uint16_t)(w >> 48); }
static inline unsigned transition_reason(uint64_t w) { return (unsigned)(w >> 40) & 0xff; }
static inline uint64_t transition_ms(uint64_t w) { return w & TIME_MASK; }

/* ---- the record of a transition ---- */

static inline uint64_t recorded_make(unsigned state, uint16_t generation) { return (uint64_t)(state & 7) << 16 | generation; }
static inline uint16_t recorded_generation(uint64_t w) { return (uint16_t)w; }
static inline unsigned recorded_state(uint64_t w) { return (unsigned)(w >> 16) & 3; }

#define COUNTED_MASK ((UINT64_C(1) << 48) - 1)

static inline uint64_t counted_make(uint16_t generation, uint64_t count)
{
	return (uint64_t)generation << 48 | (count & COUNTED_MASK);
}
static inline uint16_t counted_generation(uint64_t w) { return (uint16_t)(w >> 48); }
static inline uint64_t counted_count(uint64_t w) { return w & COUNTED_MASK; }

static inline uint64_t who_make(uint32_t pid, uint32_t uid) { return (uint64_t)uid << 32 | pid; }
static inline uint32_t who_pid(uint64_t w) { return (uint32_t)w; }
static inline uint32_t who_uid(uint64_t w) { return (uint32_t)(w >> 32); }

static inline uint64_t numbers_make(uint64_t v0, uint64_t v1)
{
	return (v0 > UINT32_MAX ? UINT32_MAX : v0) << 32 | (v1 > UINT32_MAX ? UINT32_MAX : v1);
}
static inline uint64_t numbers_first(uint64_t w) { return w >> 32; }
static inline uint64_t numbers_second(uint64_t w) { return w & UINT32_MAX; }

#endif
