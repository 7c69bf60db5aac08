/* SPDX-License-Identifier: MIT */
/*
 * Injected faults. None of these findings makes more calls fail than an operator has asked for: what is over, forbidden, or not believed
 * does nothing. But whoever reads the segment should not take it for something.
 *
 * Why these do not alarm falsely:
 *	injection.word
 *		moved only where there is a successor; and no setter writes an end that is further away than an hour
 *	injection.over
 *		any call, and rescd each second, ends one whose time is over
 *	injection.forbidden
 *		rescd ends it after it has written the policy, and again each second; resctl looks at the policy after it has set it
 *	injection.setting
 *		is there before the injection is in force, and its slot is not used again before the one after it is
 *	injection.text
 *		the same; but somebody who sets another one may hold the slot for an instant, and a kill in that instant loses the text
 */
#include "clock.h"
#include "doctor.h"
#include "injection.h"
#include "words.h"

static void end_it(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&doctor_state(d, f)->injection, f->seen, injection_make(WORD_LIVE, false, injection_serial(f->seen), 0));
}

static void expire_it(const struct doctor *d, const struct finding *f)
{
	injection_expire(d->map, f->resource, 0, clock_coarse_ms(d->map));
}

static void forbid_it(const struct doctor *d, const struct finding *f)
{
	injection_forbid(d->map, f->resource);
}

/* The word says that one is in force, and it is. */
static void look_at_what_holds(struct doctor *d, const struct state *state, struct finding f)
{
	struct injection injection;

	f.check = CHECK_INJECTION_FORBIDDEN;
	f.repair = forbid_it;
	if (d->has_policy && (d->policy.flags & POLICY_INJECTION) == 0)
		doctor_suspect(d, &f, "injection", "is in force, and the policy does not allow it: nothing is injected");
	f.check = CHECK_INJECTION_SETTING;
	f.repair = end_it;
	f.more = doctor_load(&state->injection_setting[injection_serial(f.seen) & 1]);
	if (!injection_read(state, f.seen, &injection))
		doctor_suspect(d, &f, "injection", "is in force, and what it does was lost: nothing is injected");
	f.check = CHECK_INJECTION_TEXT;
	f.repair = NULL;
	f.remedy = "stop it, or inject again";
	f.more = doctor_load(&state->injection_text[injection_serial(f.seen) & 1].serial);
	if (f.more != injection_serial(f.seen))
		doctor_suspect(d, &f, "injection", "is in force, and its reason was lost");
}

void doctor_look_at_injection(struct doctor *doctor)
{
	const struct state *state = map_state(doctor->map, doctor->resource);
	struct finding f = {.check = CHECK_INJECTION_WORD, .place = DOCTOR_ONE, .repair = end_it, .remedy = "end it"};

	if (!map_has(doctor->map, 2))
		return;
	f.seen = doctor_load(&state->injection);
	uint64_t until_ms = injection_until_ms(f.seen), now_ms = clock_coarse_ms(doctor->map);
	if (doctor_is_lost(doctor, false, injection_kind(f.seen) == WORD_MOVED)) {
		doctor_suspect(doctor, &f, "injection", "is in no segment: nothing can be injected");
		return;
	}
	if (injection_kind(f.seen) == WORD_MOVED || !injection_is_on(f.seen))
		return;
	if (injection_holds(f.seen, now_ms)) {
		look_at_what_holds(doctor, state, f);
	} else if (now_ms >= until_ms) {
		f.check = CHECK_INJECTION_OVER;
		f.repair = expire_it;
		doctor_suspect(doctor, &f, "injection", "is over, and is in force");
	} else {
		doctor_suspect(doctor, &f, "injection", "ends later than any can: nothing is injected");
	}
}
