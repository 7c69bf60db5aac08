/* SPDX-License-Identifier: MIT */
/*
 * Retry budget, rate limit and throttle.
 *
 * Why these do not alarm falsely: the clock is read after the word.
 *	budget.word, rate.word
 *		a word is empty only in a successor that nobody has moved it into yet, and has moved only where there is one
 *	budget.paid
 *		whoever claims an interval of the floor writes the time at which it did
 *	rate.time
 *		by the newest policy, which was read before the word, no take goes further into the future than a full bucket
 *		and a day of waiting (rate.c); a word of another epoch is not judged
 *	throttle.share, throttle.since
 *		the same; a share is at most one
 *
 * Not findings: tokens above the capacity (a worker that has not seen a smaller one yet may write them; the next who takes cuts them);
 * slices of another epoch or time, whatever they hold (they do not count).
 */
#include <inttypes.h>

#include "budget.h"
#include "clock.h"
#include "doctor.h"
#include "policy.h"
#include "rate.h"
#include "throttle.h"
#include "words.h"

/* ---- repairs ---- */

static void fill_budget(const struct doctor *d, const struct finding *f)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(d->map, f->resource, &policy, &sequence) == 0)
		doctor_swap(&doctor_state(d, f)->tokens, f->seen,
		            tokens_make(WORD_LIVE, (unsigned)policy.budget_epoch, policy.budget_capacity));
}

static void pay_from_now(const struct doctor *d, const struct finding *f)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(d->map, f->resource, &policy, &sequence) == 0)
		budget_settle(d->map, doctor_state(d, f), &policy, clock_coarse_ms(d->map));
}

static void fill_rate(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&doctor_state(d, f)->rate, f->seen, rate_make(WORD_LIVE, rate_epoch(f->seen), 0));
}

static void mend_rate(const struct doctor *d, const struct finding *f)
{
	rate_settle(d->map, doctor_state(d, f));
}

static void no_throttling(const struct doctor *d, const struct finding *f)
{
	/* The next call that ends works it out. */
	doctor_swap(&doctor_state(d, f)->throttle, f->seen, throttle_make(clock_coarse_ms(d->map), 0, 0));
}

static void since_the_beginning(const struct doctor *d, const struct finding *f)
{
	/* What who counts takes it for already. */
	doctor_swap(&doctor_state(d, f)->throttle_since, f->seen, 0);
}

/* ---- checks ---- */

static bool is_future(const struct doctor *d, uint64_t ms)
{
	return ms > clock_coarse_ms(d->map) + DOCTOR_FUTURE_MS;
}

static void look_at_budget(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_BUDGET_WORD, .place = DOCTOR_ONE, .seen = doctor_load(&state->tokens)};

	f.repair = fill_budget;
	f.remedy = "fill it";
	if (doctor_is_lost(d, tokens_kind(f.seen) == WORD_EMPTY, tokens_kind(f.seen) == WORD_MOVED))
		doctor_suspect(d, &f, "budget", "is in no segment: no retry is granted");
	f.check = CHECK_BUDGET_PAID;
	f.seen = doctor_load(&state->refilled_ms);
	f.repair = pay_from_now;
	f.remedy = "let it flow from now on";
	if (is_future(d, f.seen & TIME_MASK))
		doctor_suspect(d, &f, "budget", "got its tokens of each second for a time that has not come: nothing flows in");
}

static void look_at_rate(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_RATE_WORD, .place = DOCTOR_ONE, .seen = doctor_load(&state->rate)};

	f.repair = fill_rate;
	f.remedy = "fill it";
	if (doctor_is_lost(d, rate_kind(f.seen) == WORD_EMPTY, rate_kind(f.seen) == WORD_MOVED))
		doctor_suspect(d, &f, "rate", "is in no segment: no call gets through");
	f.check = CHECK_RATE_TIME;
	f.repair = mend_rate;
	f.remedy = "empty it: it fills again from now on";
	if (d->has_policy && !rate_is_possible(d->map, state, &d->policy))
		doctor_suspect(d, &f, "rate", "is used up for longer than any call may wait");
}

static void look_at_throttle(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_THROTTLE_SHARE, .place = DOCTOR_ONE, .seen = doctor_load(&state->throttle)};

	f.repair = no_throttling;
	f.remedy = "let it be worked out again";
	if (throttle_ppm(f.seen) > 1000000 || is_future(d, throttle_ms(f.seen)))
		doctor_suspect(d, &f, "throttle", "refuses %" PRIu32 " of a million calls, as of %" PRIu64 " ms: that cannot be",
		               throttle_ppm(f.seen), throttle_ms(f.seen));
	f.check = CHECK_THROTTLE_SINCE;
	f.seen = doctor_load(&state->throttle_since);
	f.repair = since_the_beginning;
	f.remedy = "count all of its window";
	if (is_future(d, f.seen))
		doctor_suspect(d, &f, "throttle", "was reset at a time that has not come (%" PRIu64 " ms)", f.seen);
}

void doctor_look_at_tokens(struct doctor *doctor)
{
	const struct state *state = map_state(doctor->map, doctor->resource);

	look_at_budget(doctor, state);
	look_at_rate(doctor, state);
	look_at_throttle(doctor, state);
}
