/* SPDX-License-Identifier: MIT */
/*
 * Counters and windows.
 *
 * Why these do not alarm falsely:
 *	counters.ended
 *		a call is counted as admitted before it can end, and both stay where they are counted; the ended ones are read
 *		first. In a successor, counters of the segment before come along at different moments, so it is not judged there
 *	window.future, window.throttle
 *		a bucket is of the tick in which its call ended, by a clock of this host; the clock is read after the bucket.
 *		Only what would be counted as soon as its tick comes is judged: of this breaker generation, and of the window's
 *		length, at most two laps ahead. Buckets of another length have tags that are far from these
 *	window.calls
 *		a number is taken from the cursor before it stands in the ring, and stands at its place; the ring is read before
 *		the cursor. In a successor, calls that ended late in the segment before may be a little ahead
 *
 * A bucket of the future is removed by CAS, also in a shard whose owner adds with plain stores: it would begin anew there in any case.
 */
#include <inttypes.h>

#include "clock.h"
#include "doctor.h"
#include "window.h"
#include "words.h"

#define LATE_CALLS (UINT64_C(1) << 20) /* that ended in the superseded segment */
#define SKEW_MS    1000u               /* much more than the clocks of two processors differ */

/* ---- counters ---- */

/* All of them, with the carried one, which comes after the shards. */
static uint64_t sum_of(const struct map *map, struct state *state, enum counter counter)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i <= map->dims.shards; i++)
		sum += doctor_load(&map_shard(map, state, i)->counters[counter]);
	return sum;
}

static void look_at_counters(struct doctor *d, struct state *state)
{
	const struct finding f = {.check = CHECK_COUNTERS_ENDED,
	                          .place = DOCTOR_ONE,
	                          .remedy = "nobody can say which of them are right; calls do not depend on them"};
	uint64_t ended = 0;

	if (d->map->predecessor != 0)
		return;
#define X(NAME, name, text) ended += sum_of(d->map, state, COUNTER_ended_##name);
	RESC_OUTCOMES(X)
#undef X
	uint64_t admitted = sum_of(d->map, state, COUNTER_admitted);
	if (ended > admitted)
		doctor_suspect(d, &f, "counters", "say that %" PRIu64 " calls ended, and %" PRIu64 " were admitted", ended, admitted);
}

/* ---- windows of time ---- */

static void empty_bucket(const struct doctor *d, const struct finding *f)
{
	struct shard *shard = map_shard(d->map, doctor_state(d, f), (uint32_t)(f->place / (WINDOW_RING * WINDOW_CATEGORIES)));
	unsigned bucket = f->place % (WINDOW_RING * WINDOW_CATEGORIES);

	doctor_swap(&shard->window[bucket / WINDOW_CATEGORIES][bucket % WINDOW_CATEGORIES], f->seen, 0);
}

/* Will it be counted, later, though its tick has not come? */
static bool will_count(const struct doctor *d, uint64_t bucket, uint16_t generation)
{
	uint64_t tick_ms = window_tick_ms(&d->policy);
	uint64_t now = window_tick(&d->policy, clock_coarse_ms(d->map));
	uint64_t ahead = ((bucket_tag_of(bucket) >> 12) - (window_tag(tick_ms, now, 0) >> 12)) & TICK_MASK;

	return bucket_count(bucket) != 0 && (bucket_tag_of(bucket) & 0xfff) == (generation & 0xfffu) && ahead > 1 &&
	       ahead <= UINT64_C(2) * WINDOW_RING && ahead * tick_ms > SKEW_MS;
}

static void look_at_window(struct doctor *d, struct state *state, uint32_t shard)
{
	uint16_t generation = breaker_generation(doctor_load(&state->breaker));
	struct finding f = {.check = CHECK_WINDOW_FUTURE, .repair = empty_bucket, .remedy = "forget it"};

	for (uint32_t i = 0; i < WINDOW_RING * WINDOW_CATEGORIES; i++) {
		f.place = shard * WINDOW_RING * WINDOW_CATEGORIES + i;
		f.seen = doctor_load(&map_shard(d->map, state, shard)->window[i / WINDOW_CATEGORIES][i % WINDOW_CATEGORIES]);
		if (f.seen != 0 && will_count(d, f.seen, generation))
			doctor_suspect(d, &f, "bucket", "has %" PRIu32 " calls of a time that has not come", bucket_count(f.seen));
	}
}

static void empty_throttle(const struct doctor *d, const struct finding *f)
{
	struct shard *shard = map_shard(d->map, doctor_state(d, f), f->place / (WINDOW_RING * 2));
	unsigned bucket = f->place % (WINDOW_RING * 2);

	doctor_swap(&shard->throttle[bucket / 2][bucket % 2], f->seen, 0);
}

static void look_at_throttle(struct doctor *d, struct state *state, uint32_t shard)
{
	struct finding f = {.check = CHECK_WINDOW_THROTTLE, .repair = empty_throttle, .remedy = "forget it"};

	for (uint32_t i = 0; i < WINDOW_RING * 2; i++) {
		f.place = shard * WINDOW_RING * 2 + i;
		f.seen = doctor_load(&map_shard(d->map, state, shard)->throttle[i / 2][i % 2]);
		if (bucket_tag_of(f.seen) > clock_coarse_ms(d->map) + DOCTOR_FUTURE_MS)
			doctor_suspect(d, &f, "throttle", "has %" PRIu32 " calls of a time that has not come", bucket_count(f.seen));
	}
}

/* ---- windows by number of calls ---- */

static void empty_place(const struct doctor *d, const struct finding *f)
{
	doctor_swap(map_calls(d->map, doctor_state(d, f)) + f->place, f->seen, 0);
}

static void look_at_calls(struct doctor *d, struct state *state)
{
	struct finding f = {.check = CHECK_WINDOW_CALLS, .repair = empty_place, .remedy = "forget it"};

	for (f.place = 0; f.place < d->map->dims.calls; f.place++) {
		f.seen = doctor_load(map_calls(d->map, state) + f.place);
		/* relaxed would do: its own word says what it is; acquire, so that the cursor is read after it. */
		uint64_t next = doctor_load(&state->calls) + (d->map->predecessor == 0 ? 0 : LATE_CALLS);
		unsigned category = call_category_plus_one(f.seen);
		bool possible = category <= WINDOW_CATEGORIES && call_number(f.seen) < next &&
		                (call_number(f.seen) & (d->map->dims.calls - 1)) == f.place;
		if (f.seen != 0 && !possible)
			doctor_suspect(d, &f, "call", "has the number %" PRIu64 ", which was not given out, or stands elsewhere",
			               call_number(f.seen));
	}
}

void doctor_look_at_windows(struct doctor *doctor)
{
	struct state *state = map_state(doctor->map, doctor->resource);

	look_at_counters(doctor, state);
	look_at_calls(doctor, state);
	for (uint32_t i = 0; i <= doctor->map->dims.shards; i++) {
		if (doctor->has_policy)
			look_at_window(doctor, state, i);
		look_at_throttle(doctor, state, i);
	}
}
