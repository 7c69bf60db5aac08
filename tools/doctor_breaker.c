/* SPDX-License-Identifier: MIT */
/*
 * The breaker, what stands beside it, and an override of it.
 *
 * Why these do not alarm falsely: whatever carries the breaker's generation is written after the breaker came to it. It is read first
 * and the breaker then, so it is never newer, however long its author was stopped in between. (Generations wrap after 65536 transitions.
 * A word that nobody has touched for half of them looks newer to everybody; then it keeps its protocol from working, and is a finding
 * with right.)
 *	breaker.state
 *		a word is empty only in a successor that nobody has moved it into yet, and has moved only where there is one
 *	breaker.due
 *		the longest cooldown, or word of the dependency, is a day, and its jitter at most as much again
 *	breaker.verdict
 *		all results are in, and any call would draw the verdict. It stands only where its author was killed or is
 *		stopped, and nobody calls; to help it is anybody's right
 *	breaker.untold
 *		the last transition is not among the events: its author was killed or is stopped, and rescd, which writes it for
 *		the dead after two turns, has not
 *	override.over
 *		any call, and rescd each second, ends one whose time is over
 *	override.text
 *		the text of an override is there before the override is in force, and its slot is not used again before the one
 *		after it is. Somebody who sets another one may hold the slot for an instant; a kill in that instant loses the
 *		text
 */
#include <inttypes.h>

#include "call.h"
#include "clock.h"
#include "doctor.h"
#include "override.h"
#include "policy.h"
#include "transition.h"
#include "words.h"

#define DUE_MOST_MS (2 * UINT64_C(86400000))

/* ---- repairs ---- */

static void close_it(const struct doctor *d, const struct finding *f)
{
	uint64_t now_ms = clock_coarse_ms(d->map);

	breaker_transition(d->map, f->resource, f->seen, TAG_CLOSED, 0, now_ms, REASON_RESET, 0, now_ms, 0, 0);
}

static void start_trial(const struct doctor *d, const struct finding *f)
{
	uint64_t now_ms = clock_coarse_ms(d->map);

	breaker_transition(d->map, f->resource, f->seen, TAG_HALF_OPEN, breaker_streak(f->seen), now_ms, REASON_COOLDOWN_OVER, 0, now_ms, 0,
	                   0);
}

static void draw_verdict(const struct doctor *d, const struct finding *f)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(d->map, f->resource, &policy, &sequence) == 0)
		breaker_help(d->map, f->resource, &policy, clock_coarse_ms(d->map));
}

static void forget_tally(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&doctor_state(d, f)->tally, f->seen, 0);
}

static void begin_streak(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);

	doctor_swap(&state->streak, f->seen, streak_make(breaker_generation(doctor_load(&state->breaker)), WORD_LIVE, 0));
}

static void forget_reason(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&doctor_state(d, f)->transition, f->seen, 0);
}

static void catch_up(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);
	uint64_t w = doctor_load(&state->breaker);

	doctor_swap(&state->recorded, f->seen, recorded_make(breaker_state(w), breaker_generation(w)));
}

static void complete_record(const struct doctor *d, const struct finding *f)
{
	transition_complete(d->map, f->resource, 0);
}

static void end_override(const struct doctor *d, const struct finding *f)
{
	override_expire(d->map, f->resource, 0, clock_coarse_ms(d->map));
}

static void no_override(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&doctor_state(d, f)->override, f->seen, override_make(WORD_LIVE, OVERRIDE_NONE, override_serial(f->seen), 0));
}

/* ---- checks ---- */

static void look_at_state(struct doctor *d, uint64_t w)
{
	struct finding f = {.check = CHECK_BREAKER_STATE,
	                    .place = DOCTOR_ONE,
	                    .seen = w,
	                    .repair = close_it,
	                    .remedy = "close it, with a fresh window"};
	uint64_t now_ms = clock_coarse_ms(d->map);

	if (doctor_is_lost(d, breaker_tag(w) == TAG_EMPTY, breaker_tag(w) == TAG_MOVED))
		doctor_suspect(d, &f, "breaker", "%s: no call gets through",
		               breaker_tag(w) == TAG_EMPTY ? "has no state" : "has moved to a segment that is not there");
	f.check = CHECK_BREAKER_DUE;
	f.repair = start_trial;
	f.remedy = "start its trial now";
	if (breaker_state(w) == TAG_OPEN && breaker_ms(w) > now_ms + DUE_MOST_MS + DOCTOR_FUTURE_MS)
		doctor_suspect(d, &f, "breaker", "is open for another %" PRIu64 " hours; no cooldown is longer than 48",
		               (breaker_ms(w) - now_ms) / 3600000);
}

static void look_at_verdict(struct doctor *d, const struct state *state, uint64_t w)
{
	const struct finding f = {.check = CHECK_BREAKER_VERDICT,
	                          .place = DOCTOR_ONE,
	                          .seen = w,
	                          .more = doctor_load(&state->tally),
	                          .repair = draw_verdict,
	                          .remedy = "draw it"};

	if (d->has_policy && breaker_tag(w) == TAG_HALF_OPEN && tally_generation(f.more) == breaker_generation(w) &&
	    breaker_judge_trial(&d->policy, f.more) != REASON_NONE)
		doctor_suspect(d, &f, "trial", "is over (%u ok, %u failed), and nobody has drawn the verdict", tally_ok(f.more),
		               tally_fail(f.more));
}

/* Is a word of the generation of one that the breaker has not come to yet? The word was loaded before. */
static bool is_ahead(const struct state *state, unsigned generation)
{
	return generation_newer((uint16_t)generation, breaker_generation(doctor_load(&state->breaker)));
}

static void look_at_tally(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_BREAKER_TALLY, .place = DOCTOR_ONE, .seen = doctor_load(&state->tally)};

	f.repair = forget_tally;
	f.remedy = "forget it";
	if (f.seen != 0 && is_ahead(state, tally_generation(f.seen)))
		doctor_suspect(d, &f, "tally", "is of a trial that has not begun: results of probes do not count");
}

static void look_at_streak(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_BREAKER_STREAK, .place = DOCTOR_ONE, .seen = doctor_load(&state->streak)};
	unsigned kind = streak_kind(f.seen);

	f.repair = begin_streak;
	f.remedy = "begin it again";
	if (doctor_is_lost(d, kind == WORD_EMPTY, kind == WORD_MOVED) || is_ahead(state, streak_generation(f.seen)))
		doctor_suspect(d, &f, "streak", "of failures is of a generation that the breaker has not come to: it is not counted");
}

static void look_at_record(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_BREAKER_REASON, .place = DOCTOR_ONE, .seen = doctor_load(&state->transition)};

	f.repair = forget_reason;
	f.remedy = "forget it";
	if (f.seen != 0 && is_ahead(state, transition_generation(f.seen)))
		doctor_suspect(d, &f, "reason", "of the last transition is one of a generation that the breaker has not come to");
	f.check = CHECK_BREAKER_EVENT;
	f.seen = doctor_load(&state->recorded);
	f.repair = catch_up;
	f.remedy = "set it right";
	if (is_ahead(state, recorded_generation(f.seen))) {
		doctor_suspect(d, &f, "events", "are ahead of the breaker: those of the dead are not written");
		return;
	}
	f.check = CHECK_BREAKER_UNTOLD;
	f.more = doctor_load(&state->breaker);
	f.repair = complete_record;
	f.remedy = "write it for its author";
	if (!doctor_is_lost(d, false, breaker_tag(f.more) == TAG_MOVED) &&
	    generation_newer(breaker_generation(f.more), recorded_generation(f.seen)))
		doctor_suspect(d, &f, "events", "do not have the last transition: its author was killed, or is stopped");
}

static void look_at_override(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_OVERRIDE_WORD, .place = DOCTOR_ONE, .seen = doctor_load(&state->override)};
	unsigned kind = override_kind(f.seen);
	uint64_t until_ms = override_until_ms(f.seen);

	f.repair = no_override;
	f.remedy = "end it";
	if (doctor_is_lost(d, kind == WORD_EMPTY, kind == WORD_MOVED)) {
		doctor_suspect(d, &f, "override", "is in no segment: nothing can be forced");
		return;
	}
	if (kind == WORD_MOVED || override_mode(f.seen) == OVERRIDE_NONE)
		return;
	f.check = CHECK_OVERRIDE_OVER;
	f.repair = end_override;
	if (until_ms != 0 && clock_coarse_ms(d->map) >= until_ms)
		doctor_suspect(d, &f, "override", "%s is over, and is in force", override_mode_name(override_mode(f.seen)));
	f.check = CHECK_OVERRIDE_TEXT;
	f.more = doctor_load(&state->override_text[override_serial(f.seen) & 1].serial);
	f.repair = NULL;
	f.remedy = "release it, or force again";
	if (f.more != override_serial(f.seen))
		doctor_suspect(d, &f, "override", "%s is in force, and its reason was lost", override_mode_name(override_mode(f.seen)));
}

void doctor_look_at_breaker(struct doctor *doctor)
{
	const struct state *state = map_state(doctor->map, doctor->resource);
	uint64_t w = doctor_load(&state->breaker);

	look_at_state(doctor, w);
	look_at_override(doctor, state);
	if (breaker_tag(w) == TAG_EMPTY || breaker_tag(w) == TAG_MOVED)
		return;
	look_at_verdict(doctor, state, w);
	look_at_tally(doctor, state);
	look_at_streak(doctor, state);
	look_at_record(doctor, state);
}
