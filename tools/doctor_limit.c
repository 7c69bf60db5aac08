/* SPDX-License-Identifier: MIT */
/*
 * The limit of a bulkhead, and the word that calls wait on. Who is inside is in doctor_holders.c.
 *
 * Why these do not alarm falsely:
 *	limit.word
 *		every step leaves the effective limit and the debt together at most the target, or the effective limit 0; a
 *		target is 0 only in a segment that was superseded
 *	limit.debt
 *		only a successor owes anything
 *	limit.target
 *		rescd sets it when it has written a policy, and whoever comes, goes or reaps where it is a share of the workers;
 *		rescd again each second. The policy was read before the word
 *	limit.settle
 *		whoever would be refused raises it as far as the holders allow, and rescd each second
 *	waiting.word
 *		no step writes its upper half
 *
 * Not findings, because they are legal: a permit beyond the limit (its owner may be stopped before it looks at the limit again, and is
 * not inside); the bit of the wait word with nobody waiting (a waiter that gave up leaves it to the next who gives a permit back); an
 * effective limit below the target while holders are beyond it.
 */
#include <inttypes.h>

#include "bounds.h"
#include "doctor.h"
#include "permit.h"
#include "policy.h"
#include "share.h"
#include "waiting.h"
#include "words.h"

/* ---- repairs ---- */

/* As a limit that is set lower: nothing is effective until the holders were counted. */
static void make_anew(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);
	unsigned debt = d->map->predecessor == 0 ? 0 : limit_debt(f->seen);
	struct policy policy;
	uint64_t sequence;

	if (policy_read(d->map, f->resource, &policy, &sequence) != 0)
		return;
	unsigned target = share_target(d->map, &policy);
	uint64_t next = limit_make(target, 0, (unsigned)smaller(debt, target), limit_version(f->seen) + 1);
	if (doctor_swap(&state->limit, f->seen, next))
		permit_settle(d->map, state);
}

static void forgive_debt(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);

	if (doctor_swap(&state->limit, f->seen, limit_make(limit_target(f->seen), limit_effective(f->seen), 0, limit_version(f->seen) + 1)))
		permit_settle(d->map, state);
}

static void set_target(const struct doctor *d, const struct finding *f)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(d->map, f->resource, &policy, &sequence) == 0)
		permit_set_limit(d->map, doctor_state(d, f), share_target(d->map, &policy));
}

static void settle(const struct doctor *d, const struct finding *f)
{
	permit_settle(d->map, doctor_state(d, f));
}

static void clear_upper_half(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);

	if (doctor_swap(&state->wait, f->seen, f->seen & UINT32_MAX))
		waiting_wake_all(state);
}

/* ---- checks ---- */

/* Returns whether the word is one that the others can be judged by. */
static bool look_at_word(struct doctor *d, uint64_t w)
{
	struct finding f = {.check = CHECK_LIMIT_WORD,
	                    .place = DOCTOR_ONE,
	                    .seen = w,
	                    .repair = make_anew,
	                    .remedy = "set it by the policy and the holders"};
	unsigned target = limit_target(w), effective = limit_effective(w), debt = limit_debt(w);

	if (target == 0) {
		if (doctor_is_lost(d, false, true))
			doctor_suspect(d, &f, "limit", "is closed as in a superseded segment: no call gets through");
		return false;
	}
	bool possible = target <= d->map->dims.permits && (effective == 0 || effective + debt <= target);
	if (!possible)
		doctor_suspect(d, &f, "limit", "is %u, of which %u are effective and %u owed: that cannot be", target, effective, debt);
	return possible;
}

static void look_at_target(struct doctor *d, uint64_t w)
{
	struct finding f = {.check = CHECK_LIMIT_TARGET, .place = DOCTOR_ONE, .seen = w, .repair = set_target, .remedy = "set it"};

	if (!d->has_policy)
		return;
	f.more = share_target(d->map, &d->policy);
	if (f.more != limit_target(w))
		doctor_suspect(d, &f, "limit", "is %u, and the policy%s says %" PRIu64, limit_target(w),
		               d->policy.limit_share_ppm != 0 ? " (a share of the workers)" : "", f.more);
}

void doctor_look_at_limit(struct doctor *doctor)
{
	const struct state *state = map_state(doctor->map, doctor->resource);
	struct finding f = {.check = CHECK_LIMIT_DEBT, .place = DOCTOR_ONE, .seen = doctor_load(&state->limit)};

	if (look_at_word(doctor, f.seen)) {
		f.repair = forgive_debt;
		f.remedy = "forgive the debt";
		if (limit_debt(f.seen) > 0 && doctor->map->predecessor == 0)
			doctor_suspect(doctor, &f, "limit", "owes %u to a segment before this one, and there was none", limit_debt(f.seen));
		look_at_target(doctor, f.seen);
		f.check = CHECK_LIMIT_SETTLE;
		f.repair = settle;
		f.remedy = "raise it";
		if (permit_settled(doctor->map, state, f.seen) > limit_effective(f.seen))
			doctor_suspect(doctor, &f, "limit", "is %u, of which only %u are effective, and the holders allow more",
			               limit_target(f.seen), limit_effective(f.seen));
	}
	f.check = CHECK_WAITING_WORD;
	f.seen = doctor_load(&state->wait);
	f.repair = clear_upper_half;
	f.remedy = "clear it";
	if (f.seen > UINT32_MAX)
		doctor_suspect(doctor, &f, "wait word", "has %08" PRIx64 " in its upper half", f.seen >> 32);
}
