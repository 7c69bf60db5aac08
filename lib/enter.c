/* SPDX-License-Identifier: MIT */
/*
 * resc_enter: admission is one transaction.
 *
 * The guards stand in the order in which least has to be undone: deadline, override, breaker (one load; closed costs nothing more),
 * client-side throttle, permit, rate token, probe lease. A refusal gives back what was taken and moves exactly one counter. A refusal is
 * never a failure of the dependency. A guard in shadow mode decides as always; what it would have refused is counted when the call
 * is admitted.
 *
 * A resource that has only a breaker and a bulkhead (view.plain) does not look at the other guards at all.
 *
 * Waiting, where the policy allows it, is not done here but between two tries (resc_enter is the loop): a call that waits for a permit has
 * a cell in the queue and nothing else; one that waits for the rate limit has its tokens and nothing else. Every try begins with
 * the breaker, so a call that waited does not go to a dependency that has failed meanwhile. Only the throttle, which draws, is asked once.
 *
 * An operator's injection, where one is in force and allowed, falls on calls that all guards have admitted. It is met after the read-side
 * section, with the ticket complete: a call that it fails is left like any other.
 *
 * A death between any two steps leaves a permit, a lease or a cell of the queue, which the reaper frees, or tokens of the rate limit, which
 * time brings back.
 */
#include <errno.h>

#include "bounds.h"
#include "budget.h"
#include "call.h"
#include "deadline.h"
#include "failpoint.h"
#include "injected.h"
#include "injection.h"
#include "override.h"
#include "permit.h"
#include "policy.h"
#include "rate.h"
#include "retries.h"
#include "share.h"
#include "throttle.h"
#include "ticket.h"
#include "untracked.h"
#include "waiting.h"

#define TRIES 16

/* A place in the queue for permits. */
struct queued {
	uint64_t mine; /* 0: none */
	uint64_t segment;
	uint32_t life;
	uint32_t cell;
};

/* What a call of a resource that is not plain has reserved, and what it waits for. Kept from try to try. */
struct reserved {
	bool paid; /* the rate limit, in an earlier try */
	bool waited;
	struct rate_taken rate;
	uint64_t paid_in;    /* generation of the segment where the tokens were taken */
	uint64_t ready_ns;   /* sleep until then: the rate limit; 0: not waiting for it */
	uint64_t give_up_ns; /* stop waiting for a permit; 0: not waiting yet */
	struct state *futex; /* sleep on its wait word; NULL: not waiting for a permit */
	uint32_t futex_value;
	uint32_t futex_bits;
	uint64_t slice_ns; /* sleep at most so long */
	struct queued queued;
	struct injected injected; /* where e->injected */
	uint64_t injected_ns;     /* when it was drawn, where it waits */
};

/* What a caller wants, and the time of the decision: read at most once a try, and only when a guard needs it. */
struct entering {
	const resc_options *options;
	uint64_t coarse_ns; /* 0: not read yet */
	uint64_t fine_ns;
	int64_t retry_after_ms;    /* for a refusal; -1: not known */
	uint32_t would;            /* bits by enum would: guards in shadow mode that would have refused */
	bool drawn;                /* the throttle has had its say: once a call, or who waits would be refused far too often */
	bool reserves;             /* *reserved has been made */
	bool injected;             /* an operator's injection fell on this call */
	struct reserved *reserved; /* room for it: a plain call never touches it */
};

static struct reserved *reserved(struct entering *e)
{
	struct reserved *r = e->reserved;

	if (e->reserves)
		return r;
	/* Field by field, and not what these make meaningful: the compiler would call for a string instruction, which costs as much as a
	 * guard. */
	r->paid = false;
	r->waited = false;
	r->rate.amount = 0;
	r->ready_ns = 0;
	r->give_up_ns = 0;
	r->futex = NULL;
	r->futex_value = 0;
	r->futex_bits = WAITING_ANY;
	r->slice_ns = WAITING_SLICE_NS;
	r->queued.mine = 0;
	e->reserves = true;
	return r;
}

static uint64_t coarse(const struct view *v, struct entering *e)
{
	if (e->coarse_ns == 0)
		e->coarse_ns = clock_coarse_ns(v->map);
	return e->coarse_ns;
}

static uint64_t coarse_ms(const struct view *v, struct entering *e)
{
	return clock_to_ms(v->map, coarse(v, e));
}

static uint64_t fine(const struct view *v, struct entering *e)
{
	if (e->fine_ns == 0)
		e->fine_ns = clock_fine_ns(v->map);
	return e->fine_ns;
}

static int refuse(const struct view *v, int answer)
{
	static const enum counter counters[] = {
#define X(NAME, name, text) [RESC_E_##NAME] = COUNTER_refused_##name,
	        RESC_REFUSALS(X)
#undef X
	};

	count(v, counters[answer]);
	return answer;
}

/* A refusal that knows when it is worth to come back. */
static int refuse_until(struct entering *e, int answer, uint64_t now_ms, uint64_t until_ms)
{
	e->retry_after_ms = until_ms > now_ms ? (int64_t)(until_ms - now_ms) : 0;
	return answer;
}

/* ---- shadow mode ---- */

enum would { WOULD_OPEN, WOULD_HALF_OPEN, WOULD_FULL, WOULD_PRIORITY, WOULD_RATE, WOULD_THROTTLE, WOULD_BUDGET, WOULDS };

static bool in_shadow(const struct view *v, uint64_t flag)
{
	return (v->policy.flags & flag) != 0;
}

static int would_refuse(struct entering *e, enum would would)
{
	e->would |= 1u << would;
	return 0;
}

COLD static void count_woulds(const struct view *v, uint32_t woulds)
{
	static const enum counter counters[WOULDS] = {
	        [WOULD_OPEN] = COUNTER_would_open,     [WOULD_HALF_OPEN] = COUNTER_would_half_open,
	        [WOULD_FULL] = COUNTER_would_full,     [WOULD_PRIORITY] = COUNTER_would_priority,
	        [WOULD_RATE] = COUNTER_would_rate,     [WOULD_THROTTLE] = COUNTER_would_throttle,
	        [WOULD_BUDGET] = COUNTER_would_budget,
	};

	for (unsigned i = 0; i < WOULDS; i++)
		if ((woulds >> i & 1) != 0)
			count(v, counters[i]);
}

/* ---- deadline, override, breaker ---- */

/* An operator has said something about this resource. CALL_AGAIN: it was over and is gone. 0: go on, past the breaker. */
COLD static int pass_override(const struct view *v, struct entering *e, uint64_t w, uint64_t override, resc_ticket *t)
{
	uint64_t now_ms = coarse_ms(v, e);
	uint64_t until = override_until_ms(override);

	if (until != 0 && now_ms >= until) {
		override_expire(v->map, v->index, v->life, now_ms);
		return CALL_AGAIN;
	}
	if (override_mode(override) == OVERRIDE_OPEN)
		return until == 0 ? RESC_E_FORCED_OPEN : refuse_until(e, RESC_E_FORCED_OPEN, now_ms, until);
	if (breaker_tag(w) == TAG_MOVED || breaker_tag(w) == TAG_EMPTY)
		return CALL_AGAIN;
	t->breaker_generation = breaker_generation(w);
	t->shape = override_mode(override) == OVERRIDE_DISABLED ? SHAPE_UNRECORDED : 0;
	return 0;
}

/* The breaker was seen in word w, and it is not closed. *probe: the call needs a lease. */
static inline int pass_open_breaker(const struct view *v, struct entering *e, uint64_t w, resc_ticket *t, bool *probe)
{
	if (breaker_tag(w) == TAG_MOVED || breaker_tag(w) == TAG_EMPTY)
		return CALL_AGAIN;
	t->breaker_generation = breaker_generation(w);
	*probe = breaker_state(w) == TAG_HALF_OPEN || coarse_ms(v, e) >= breaker_ms(w);
	if (*probe)
		return 0;
	if (in_shadow(v, POLICY_SHADOW_BREAKER))
		return would_refuse(e, WOULD_OPEN);
	return refuse_until(e, RESC_E_OPEN, coarse_ms(v, e), breaker_ms(w));
}

static inline int pass_breaker(const struct view *v, struct entering *e, resc_ticket *t, bool *probe)
{
	uint64_t w = atomic_load_explicit(&v->state->breaker, memory_order_acquire);
	uint64_t override = atomic_load_explicit(&v->state->override, memory_order_acquire);

	if (__builtin_expect(override_mode(override) != OVERRIDE_NONE, 0))
		return pass_override(v, e, w, override, t);
	if ((v->policy.flags & POLICY_BREAKER) == 0)
		return 0;
	if (__builtin_expect(breaker_tag(w) != TAG_CLOSED && breaker_tag(w) != TAG_CLOSED + TAG_PREPARED, 0))
		return pass_open_breaker(v, e, w, t, probe);
	t->breaker_generation = breaker_generation(w);
	return 0;
}

/* ---- throttle ---- */

static inline int pass_throttle(const struct view *v, struct entering *e, const resc_ticket *t)
{
	/* "disabled" by an operator: nothing is refused for what the dependency did. */
	if ((v->policy.flags & POLICY_THROTTLE) == 0 || (t->shape & SHAPE_UNRECORDED) != 0 || e->drawn)
		return 0;
	e->drawn = true;
	if (throttle_is_idle(v->state) || !throttle_refuses(v, coarse_ms(v, e)))
		return 0;
	if (in_shadow(v, POLICY_SHADOW_THROTTLE))
		return would_refuse(e, WOULD_THROTTLE);
	throttle_count(v, false, coarse_ms(v, e));
	return RESC_E_THROTTLED;
}

/* ---- permit ---- */

static void give_back_permit(const struct view *v, const resc_ticket *t)
{
	if (!ticket_is_tracked(t))
		untracked_release(ticket_cell(t), t->permit);
	else if (permit_release(v->map, v->state, ticket_cell(t), t->permit) && v->waits)
		waiting_signal_next(v->map, v->state);
}

/* What the dead have left is for who waits already: they were woken, and look when it is their turn, as this call does if it is one of
 * them. */
static bool is_first(const struct view *v)
{
	return !v->waits || waiting_is_nobody(v->state);
}

/* Where no bulkhead limits, the cell only says who is inside, and a call without one is admitted too. last: no guard comes after this, so
 * it is admitted for certain and counted here; else take_probe or settle_admitted counts it. So the usual path has no part in this. */
COLD static int take_any_permit(const struct view *v, uint64_t permit, bool last, resc_ticket *t)
{
	uint32_t cell = NO_CELL;
	int r = permit_acquire(v->map, v->state, permit, v->start, &cell);

	if (__builtin_expect(r == RESC_E_FULL, 0) && sweep_the_dead(v) && is_first(v))
		r = permit_acquire(v->map, v->state, permit, v->start, &cell);
	if (r == -ESTALE)
		return CALL_AGAIN;
	if (r == RESC_E_FULL && (v->policy.flags & (POLICY_BULKHEAD | POLICY_SHADOW_BULKHEAD)) != POLICY_BULKHEAD) {
		if (last)
			count(v, COUNTER_untracked);
		cell = untracked_take(permit);
		r = 0;
	}
	t->permit_cell = cell;
	return r;
}

/* The limit of the bulkhead now. Where it is a share, the limit word has it; in shadow mode that word limits nothing. */
static uint32_t limit_now(const struct view *v)
{
	if (v->policy.limit_share_ppm == 0)
		return (uint32_t)v->policy.limit;
	if (in_shadow(v, POLICY_SHADOW_BULKHEAD))
		return share_limit(v->map, &v->policy);
	return limit_target(atomic_load_explicit(&v->state->limit, memory_order_relaxed));
}

/* A bulkhead in shadow mode: first the cells that it would give out, then any. */
COLD static int take_shadow_permit(const struct view *v, struct entering *e, uint64_t permit, resc_ticket *t)
{
	uint32_t cell;

	if (permit_acquire_below(v->map, v->state, permit, v->start, limit_now(v), &cell)) {
		t->permit_cell = cell;
		return 0;
	}
	would_refuse(e, WOULD_FULL);
	return take_any_permit(v, permit, false, t);
}

/* A cell for this call. last: no guard comes after this. */
static USUAL int take_permit(const struct view *v, struct entering *e, bool last, resc_ticket *t)
{
	uint64_t permit = permit_make(v->life, thread_call_number());

	if (__builtin_expect((e->options->flags & RESC_RETRY) != 0, 0))
		permit |= PERMIT_RETRY;
	t->permit = permit;
	t->permit_cell = v->start;
	if (__builtin_expect(permit_acquire_home(v->state, v->home, v->start, permit), 1))
		return 0;
	if (in_shadow(v, POLICY_SHADOW_BULKHEAD))
		return take_shadow_permit(v, e, permit, t);
	return take_any_permit(v, permit, last, t);
}

static uint64_t priority_ppm(const struct policy *policy, uint32_t priority)
{
	return priority == RESC_CRITICAL ? policy->critical_ppm : priority == RESC_LOW ? policy->low_ppm : policy->normal_ppm;
}

/* How much of n calls of that priority may use: at least 1, or they would never come in. */
static uint64_t share_of(const struct view *v, uint32_t priority, uint64_t n)
{
	uint64_t share = n * priority_ppm(&v->policy, priority) / 1000000;

	return share == 0 ? 1 : share;
}

static uint64_t priority_share(const struct view *v, const struct entering *e, uint64_t n)
{
	return share_of(v, e->options->priority, n);
}

/*
 * The call has its cell. Of several that come in at the same moment each sees the others, so never more than the share are admitted; it may
 * be that fewer are.
 */
static bool fits_priority(const struct view *v, const struct entering *e)
{
	if (priority_ppm(&v->policy, e->options->priority) >= 1000000)
		return true;
	return permit_occupied(v->map, v->state) <= priority_share(v, e, limit_now(v));
}

/* What a bulkhead says beside "full": the share of a priority, and the cap on retries. The call has its cell, and gives it back on a
 * refusal. */
static inline int pass_shares(const struct view *v, struct entering *e, const resc_ticket *t)
{
	int r = 0;

	/* A bulkhead in shadow mode that is full has said so. */
	bool full = (e->would >> WOULD_FULL & 1) != 0;
	if (v->shares && !full && !fits_priority(v, e))
		r = in_shadow(v, POLICY_SHADOW_BULKHEAD) ? would_refuse(e, WOULD_PRIORITY) : RESC_E_PRIORITY;
	if (r == 0 && (v->policy.flags & POLICY_RETRY_CAP) != 0 && permit_is_retry(t->permit) &&
	    !retries_fit(v->map, v->state, &v->policy, true))
		r = in_shadow(v, POLICY_SHADOW_BUDGET) ? would_refuse(e, WOULD_BUDGET) : RESC_E_RETRIES;
	if (r != 0)
		give_back_permit(v, t);
	return r;
}

/*
 * The share of this priority is used up, while the bulkhead has room for others. Asked before a cell is taken: a call that waits for its
 * share would otherwise take a cell and give it back at every look, and wake everybody each time, itself included.
 */
static bool has_no_share_left(const struct view *v, const struct entering *e)
{
	if (!v->waits || !v->shares || priority_ppm(&v->policy, e->options->priority) >= 1000000)
		return false;
	unsigned occupied = permit_occupied(v->map, v->state);
	return occupied >= priority_share(v, e, limit_now(v)) && occupied < limit_now(v);
}

static inline int try_permit_and_shares(const struct view *v, struct entering *e, resc_ticket *t)
{
	if (has_no_share_left(v, e))
		return RESC_E_PRIORITY;
	int r = take_permit(v, e, false, t);
	return r == 0 ? pass_shares(v, e, t) : r;
}

static inline int take_permit_and_shares(const struct view *v, struct entering *e, resc_ticket *t)
{
	int r = try_permit_and_shares(v, e, t);

	/* What fills a share may be the dead: as for a full bulkhead in take_any_permit. */
	if ((r == RESC_E_PRIORITY || r == RESC_E_RETRIES) && sweep_the_dead(v) && (r == RESC_E_RETRIES || is_first(v)))
		r = try_permit_and_shares(v, e, t);
	return r;
}

/* ---- waiting for a permit ---- */

static bool stands_here(const struct view *v, const struct queued *q)
{
	return q->segment == v->generation && q->life == v->life;
}

static bool is_in_queue(const struct entering *e)
{
	return e->reserves && e->reserved->queued.mine != 0;
}

static void leave_queue(const struct view *v, struct entering *e)
{
	struct queued *q = &e->reserved->queued;

	if (!is_in_queue(e) || !stands_here(v, q))
		return;
	waiting_leave(v->map, v->state, q->cell, q->mine);
	q->mine = 0;
}

/* As one who stands behind all of its rank. */
static uint64_t newcomer(const struct view *v, const struct entering *e)
{
	const uint32_t priority = e->options->priority;

	return waiting_make(v->life, priority == RESC_CRITICAL ? WAITING_CRITICAL : priority == RESC_LOW ? WAITING_LOW : WAITING_NORMAL, 0);
}

static bool is_turn(const struct view *v, uint64_t mine, uint64_t now_ms)
{
	const uint32_t limit = limit_now(v);
	const struct waiting_shares shares = {.of = {[WAITING_LOW] = share_of(v, RESC_LOW, limit),
	                                             [WAITING_NORMAL] = share_of(v, RESC_NORMAL, limit),
	                                             [WAITING_CRITICAL] = share_of(v, RESC_CRITICAL, limit)}};

	return waiting_is_turn(v->map, v->state, mine, &shares, now_ms + waiting_real_ms());
}

/* Where others are in line a newcomer does not go before them. */
COLD static bool lets_others_go_first(const struct view *v, struct entering *e)
{
	return v->in_line && !is_turn(v, newcomer(v, e), coarse_ms(v, e));
}

static int join_queue(const struct view *v, struct entering *e)
{
	struct queued *q = &reserved(e)->queued;
	struct queued place = {.segment = v->generation, .life = v->life};

	if (q->mine != 0)
		return stands_here(v, q) ? 0 : CALL_AGAIN;
	place.mine = v->in_line ? newcomer(v, e) | waiting_make(0, 0, waiting_draw(v->state)) : permit_make(v->life, thread_call_number());
	int r = waiting_join(v->map, v->state, place.mine, (uint32_t)priority_share(v, e, v->policy.max_waiting), &place.cell);
	if (r != 0)
		return r;
	FAILPOINT("enter.queued");
	*q = place;
	if (e->reserved->give_up_ns == 0) {
		uint64_t deadline = e->options->deadline_ns == RESC_NO_DEADLINE ? UINT64_MAX : (uint64_t)e->options->deadline_ns;
		e->reserved->give_up_ns = smaller(fine(v, e) + v->policy.max_wait_ms * 1000000, deadline);
	}
	return 0;
}

/* A look at the permits, where it is this call's turn. After its last slice it looks in any case: better out of turn than not at all. */
static int look_in_turn(const struct view *v, struct entering *e, resc_ticket *t, uint64_t now_ns)
{
	struct reserved *held = e->reserved;

	held->slice_ns = WAITING_SLICE_NS;
	held->futex_value = waiting_announce(v->state);
	held->futex_bits = v->in_line ? waiting_bit(held->queued.mine) : WAITING_ANY;
	FAILPOINT("enter.announced");
	/* What the dead have left is this call's too then: there is no next look. */
	if (now_ns >= held->give_up_ns)
		sweep_the_dead(v);
	if (now_ns >= held->give_up_ns || !v->in_line || is_turn(v, held->queued.mine, clock_to_ms(v->map, now_ns)))
		return take_permit_and_shares(v, e, t);
	held->slice_ns = WAITING_PATIENCE_MS * 1000000;
	return RESC_E_FULL;
}

/*
 * The bulkhead has refused, or it is another's turn, and the policy says to wait. Announce it, and look once more: a permit that is given
 * back after this look finds the bit, and wakes us.
 */
COLD static int wait_for_permit(const struct view *v, struct entering *e, resc_ticket *t)
{
	int r = join_queue(v, e);

	/* Perhaps it is full of the dead. Where it is full of those who do not come, who looks whether it is his turn passes them. */
	if (r == RESC_E_QUEUE_FULL && sweep_the_dead(v))
		r = join_queue(v, e);
	if (r != 0)
		return r;
	uint64_t now_ns = clock_fine_ns(v->map);
	r = look_in_turn(v, e, t, now_ns);
	if (now_ns >= e->reserved->give_up_ns || (r != RESC_E_FULL && r != RESC_E_PRIORITY))
		return r;
	e->reserved->futex = v->state;
	return CALL_WAIT;
}

/* The same where calls may wait. Who is in line already looks when it is its turn. */
static inline int take_permit_in_turn(const struct view *v, struct entering *e, resc_ticket *t)
{
	int r = RESC_E_FULL;

	if (!is_in_queue(e) && (__builtin_expect(waiting_is_nobody(v->state), 1) || !lets_others_go_first(v, e)))
		r = take_permit_and_shares(v, e, t);
	return r == RESC_E_FULL || r == RESC_E_PRIORITY ? wait_for_permit(v, e, t) : r;
}

/* The bulkhead of a resource that has more than a limit. */
static inline int pass_bulkhead(const struct view *v, struct entering *e, resc_ticket *t)
{
	int r = v->waits ? take_permit_in_turn(v, e, t) : take_permit_and_shares(v, e, t);

	if (r != CALL_WAIT)
		leave_queue(v, e);
	if ((r == RESC_E_FULL || r == RESC_E_PRIORITY || r == RESC_E_QUEUE_FULL) && v->policy.retry_after_ms != 0)
		e->retry_after_ms = (int64_t)v->policy.retry_after_ms;
	return r;
}

/* ---- rate ---- */

/* How long this call would wait for the rate limit. */
static uint64_t patience_ns(const struct view *v, const struct entering *e, uint64_t now_ns)
{
	uint64_t most = v->policy.rate_max_wait_ms * 1000000;

	if (e->options->deadline_ns == RESC_NO_DEADLINE)
		return most;
	uint64_t deadline = (uint64_t)e->options->deadline_ns;
	return smaller(most, deadline > now_ns ? deadline - now_ns : 0);
}

/* Tokens that are there only later are taken now, and slept for without the permit. */
static inline int pass_rate(const struct view *v, struct entering *e, const resc_ticket *t)
{
	uint64_t wait_ns = 0;

	if ((v->policy.flags & POLICY_RATE) == 0 || reserved(e)->paid)
		return 0;
	bool shadow = in_shadow(v, POLICY_SHADOW_RATE);
	uint64_t now_ns = fine(v, e);
	int r = rate_take_by(v->map, v->state, &v->policy, &v->rate_limit, e->options->cost, now_ns, shadow ? 0 : patience_ns(v, e, now_ns),
	                     &e->reserved->rate, &wait_ns);
	FAILPOINT("enter.rate");
	if (r == 0 && wait_ns == 0)
		return 0;
	if (r > 0 && shadow)
		return would_refuse(e, WOULD_RATE);
	give_back_permit(v, t);
	if (r == -ESTALE)
		return CALL_AGAIN;
	if (r == RESC_E_RATE)
		e->retry_after_ms = (int64_t)((wait_ns + 999999) / 1000000);
	if (r != 0)
		return r;
	e->reserved->paid = true;
	e->reserved->paid_in = v->generation;
	e->reserved->ready_ns = now_ns + wait_ns;
	return CALL_WAIT;
}

static void give_back_all(const struct view *v, struct entering *e, const resc_ticket *t)
{
	/* Tokens that were slept for stay ours for the next try. */
	if (e->reserves && !e->reserved->paid)
		rate_give_back(v->map, v->state, &e->reserved->rate);
	give_back_permit(v, t);
}

/* ---- lease ---- */

/* Last: losing a lease hurts most. */
COLD static int take_probe(const struct view *v, struct entering *e, resc_ticket *t)
{
	struct probe probe = {0, 0, 0};

	FAILPOINT("enter.permit");
	int r = breaker_probe(v, coarse_ms(v, e), &probe);
	if ((r == RESC_E_HALF_OPEN || r == RESC_E_OPEN) && in_shadow(v, POLICY_SHADOW_BREAKER))
		return would_refuse(e, r == RESC_E_OPEN ? WOULD_OPEN : WOULD_HALF_OPEN);
	if (r != 0) {
		give_back_all(v, e, t);
		return r;
	}
	t->breaker_generation = probe.generation;
	t->probe_lease = probe.lease;
	t->probe = probe.lease != 0;
	t->permit_cell |= probe.cell << TICKET_CELL_BITS;
	/* In a resource that is plain this was the last guard; else see settle_admitted. */
	if (v->plain && !ticket_is_tracked(t))
		count(v, COUNTER_untracked);
	return 0;
}

/* ---- all of them ---- */

/* The guards of a resource that is not plain, between breaker and lease. */
APART static int pass_others(const struct view *v, struct entering *e, resc_ticket *t)
{
	int r = pass_throttle(v, e, t);

	if (r == 0)
		r = pass_bulkhead(v, e, t);
	return r == 0 ? pass_rate(v, e, t) : r;
}

/* A request pays into the retry budget when it is admitted; a retry does not. False: the word has moved, and everything was given back. */
static bool deposit_request(const struct view *v, struct entering *e, const resc_ticket *t)
{
	if ((v->policy.flags & POLICY_BUDGET) == 0 || v->policy.budget_deposit != DEPOSIT_REQUEST || permit_is_retry(t->permit) ||
	    budget_is_full(v->state, &v->policy))
		return true;
	/* Without an expiry the time does not matter. */
	uint64_t now_ms = v->policy.budget_ttl_ms == 0 ? 0 : coarse_ms(v, e);
	if (budget_deposit(v->map, v->state, &v->policy, now_ms) == 0)
		return true;
	if (t->probe)
		breaker_probe_end(v->state, ticket_probe_cell(t), t->probe_lease);
	give_back_all(v, e, t);
	return false;
}

/* How long the attempt may take: the policy's word or what is left of the deadline. now is read only where there is a deadline. */
static int64_t attempt_timeout_ms(const struct policy *policy, bool probe, int64_t deadline_ns, int64_t now_ns)
{
	uint64_t policy_ms = policy_attempt_ms(policy, probe);
	int64_t limit = policy_ms == 0 || (policy->flags & POLICY_SHADOW_TIMEOUT) != 0 ? -1 : (int64_t)policy_ms;

	if (deadline_ns == RESC_NO_DEADLINE)
		return limit;
	int64_t left = deadline_left_ms(deadline_ns, now_ns);
	return limit >= 0 && limit < left ? limit : left;
}

/* Does an operator's injection fall on this call? Asked when it is admitted, and counted as such: each number is a call. */
COLD static void draw_injection(const struct view *v, struct entering *e)
{
	struct injected *injected = &reserved(e)->injected;

	e->injected = injection_draw(v, coarse_ms(v, e), injected);
	if (!e->injected)
		return;
	if (injected->latency_ms != 0) {
		e->reserved->injected_ns = (uint64_t)resc_now_ns();
		count(v, COUNTER_injected_delays);
	}
	if (injected->fails)
		count(v, COUNTER_injected_failures);
}

/* What else there is to do for a call that was admitted by a resource that is not plain. */
APART static bool settle_admitted(const struct view *v, struct entering *e, const resc_ticket *t)
{
	if (!deposit_request(v, e, t))
		return false;
	if (e->would != 0)
		count_woulds(v, e->would);
	if (e->reserves && e->reserved->waited)
		count(v, COUNTER_waited);
	if (!ticket_is_tracked(t))
		count(v, COUNTER_untracked);
	return true;
}

/* A refusal is counted last: one who has waited goes out of the line before that, whichever guard it was. */
static inline int turn_away(const struct view *v, struct entering *e, int reason)
{
	if (__builtin_expect(e->reserves, 0))
		leave_queue(v, e);
	return refuse(v, reason);
}

/* Every guard of the resource, or none. The ticket was zero. */
static USUAL int admit(const struct view *v, struct entering *e, resc_ticket *t)
{
	int64_t now_ns = 0;
	bool probe = false;

	if (__builtin_expect(e->options->deadline_ns != RESC_NO_DEADLINE, 0)) {
		now_ns = resc_now_ns();
		if (e->options->deadline_ns <= now_ns)
			return turn_away(v, e, RESC_E_DEADLINE);
	}
	int r = pass_breaker(v, e, t, &probe);
	if (__builtin_expect(r == 0, 1))
		r = __builtin_expect(v->plain, 1) ? take_permit(v, e, !probe, t) : pass_others(v, e, t);
	if (__builtin_expect(probe, 0) && r == 0)
		r = take_probe(v, e, t);
	if (__builtin_expect(r != 0, 0))
		return r == CALL_AGAIN || r == CALL_WAIT ? r : turn_away(v, e, r);
	if (__builtin_expect(!v->plain, 0) && !settle_admitted(v, e, t))
		return CALL_AGAIN;
	FAILPOINT("enter.admitted");
	count(v, COUNTER_admitted);
	t->shape |= SHAPE_TICKET;
	t->timeout_ms = attempt_timeout_ms(&v->policy, t->probe, e->options->deadline_ns, now_ns);
	t->segment = v->generation;
	t->started_ns = v->measure ? fine(v, e) : 0;
	if (__builtin_expect(v->injects, 0) && injection_is_on(atomic_load_explicit(&v->state->injection, memory_order_relaxed)))
		draw_injection(v, e);
	return 0;
}

/* ---- trying, and trying again ---- */

/* One try. *look: it is time for the look of once a second. */
static USUAL int try_to_enter(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
{
	read_lock();
	/* Acquire: the view is complete when it can be seen. */
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	int r = __builtin_expect(view_is_current(v), 1) ? admit(v, e, t) : CALL_AGAIN;
	*look = false;
	if (__builtin_expect(v != NULL && (r > 0 || v->private_mode), 0))
		*look = host_look_is_due(resource->host, coarse(v, e));
	read_unlock();
	return r;
}

/* Another try: everything that was found out about the moment is found out anew. */
COLD static int try_anew(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
{
	e->coarse_ns = 0;
	e->fine_ns = 0;
	e->would &= 1u << WOULD_THROTTLE; /* as it was drawn */
	e->retry_after_ms = -1;
	if (e->reserves) {
		e->reserved->ready_ns = 0;
		e->reserved->futex = NULL;
	}
	ticket_clear(t);
	return try_to_enter(resource, e, t, look);
}

/* The place in the queue, in whatever segment it is. */
static void leave_queue_anywhere(struct resc_resource *resource, struct queued *queued)
{
	resc *host = resource->host;

	pthread_mutex_lock(&host->lock);
	struct attachment *a = host_attachment(host, queued->segment, queued->life);
	int index = a == NULL ? -ENOENT : policy_find_any(&a->map, resource->name);
	if (index >= 0)
		waiting_leave(&a->map, map_state(&a->map, (uint32_t)index), queued->cell, queued->mine);
	pthread_mutex_unlock(&host->lock);
	queued->mine = 0;
}

/* A call that waited in a segment which has a successor: it waits there now, so it needs a place there. */
static void leave_old_queue(struct resc_resource *resource, struct entering *e)
{
	if (!is_in_queue(e))
		return;
	read_lock();
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	bool here = v != NULL && stands_here(v, &e->reserved->queued);
	read_unlock();
	if (!here)
		leave_queue_anywhere(resource, &e->reserved->queued);
}

/* The view is not good any more, or a word moved: make it anew and try again. */
COLD static int enter_again(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
{
	for (int i = 0; i < TRIES; i++) {
		int r = resource_refresh(resource);
		if (r < 0 && r != -EAGAIN)
			return r;
		leave_old_queue(resource, e);
		r = try_anew(resource, e, t, look);
		if (r != CALL_AGAIN)
			return r;
	}
	return -EAGAIN;
}

static void sleep_slice(uint64_t ns)
{
	struct timespec slice = {.tv_sec = 0, .tv_nsec = (long)smaller(ns, WAITING_SLICE_NS)};

	nanosleep(&slice, NULL);
}

/* On the clock of deadlines, which in a test is moved by hand: so it is asked again at least every slice. */
static void sleep_until(uint64_t ns)
{
	for (uint64_t now = (uint64_t)resc_now_ns(); now < ns; now = (uint64_t)resc_now_ns())
		sleep_slice(ns - now);
}

/* A call that slept for its tokens, and was then refused by another guard. In another segment than the one where they were taken they are
 * lost. */
static void give_back_tokens(struct resc_resource *resource, struct entering *e)
{
	read_lock();
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	if (view_is_current(v) && v->generation == e->reserved->paid_in)
		rate_give_back(v->map, v->state, &e->reserved->rate);
	read_unlock();
}

/* Sleeps, outside of read-side sections, and tries again, until a guard says yes or no. Each wait has its end: give_up_ns, ready_ns. */
COLD static int enter_after_waiting(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
{
	int r = CALL_WAIT;

	while (r == CALL_WAIT) {
		struct reserved *held = reserved(e);
		held->waited = true;
		if (held->ready_ns != 0) {
			sleep_until(held->ready_ns);
		} else {
			uint64_t now = (uint64_t)resc_now_ns();
			uint64_t left = now < held->give_up_ns ? held->give_up_ns - now : 0;
			waiting_sleep(held->futex, held->futex_value, held->futex_bits, smaller(left, held->slice_ns));
		}
		r = try_anew(resource, e, t, look);
		if (r == CALL_AGAIN)
			r = enter_again(resource, e, t, look);
	}
	if (e->reserved->queued.mine != 0)
		leave_queue_anywhere(resource, &e->reserved->queued);
	if (r != 0 && e->reserved->paid)
		give_back_tokens(resource, e);
	return r;
}

/* ---- injected faults ---- */

COLD static bool goes_on_here(struct resc_resource *resource, uint32_t serial, bool *current)
{
	read_lock();
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	*current = view_is_current(v);
	bool on = injection_goes_on(v, serial);
	read_unlock();
	return on;
}

/* Who ends it does so in the current segment, and perhaps nobody else of this process looks there while this call sleeps. */
COLD static bool goes_on(struct resc_resource *resource, uint32_t serial)
{
	bool current;
	bool on = goes_on_here(resource, serial, &current);

	if (current)
		return on;
	return resource_refresh(resource) != -ENOENT && goes_on_here(resource, serial, &current);
}

/* Milliseconds that the call has lost. It does not sleep on where the operator has ended it. */
COLD static int64_t sleep_injected(struct resc_resource *resource, uint64_t began, int64_t ms, uint32_t serial)
{
	const uint64_t end = began + (uint64_t)ms * 1000000;
	uint64_t now = (uint64_t)resc_now_ns();

	while (now < end && goes_on(resource, serial)) {
		sleep_slice(end - now);
		now = (uint64_t)resc_now_ns();
	}
	return now > began ? (int64_t)((now - began) / 1000000) : 0;
}

/*
 * The call is admitted, and an operator has it wait, fail, or both: what the dependency would do to it, so it is left here as one that the
 * dependency did it to. 0: it was slowed, or it was over while it waited, and the call goes on with the time that is left of it.
 */
COLD static int meet_injection(const struct entering *e, resc_ticket *t)
{
	const struct injected *injected = &e->reserved->injected;
	int64_t limit_ms = t->timeout_ms;
	bool cut = limit_ms >= 0 && injected->latency_ms >= limit_ms;
	int64_t wait_ms = cut ? limit_ms : injected->latency_ms, ms = 0;

	if (wait_ms != 0)
		ms = sleep_injected(t->resource, e->reserved->injected_ns, wait_ms, injected->serial);
	bool late = cut && ms >= limit_ms, over = ms < wait_ms;

	FAILPOINT("enter.injected");
	if (!late && (over || !injected->fails)) {
		if (limit_ms >= 0)
			t->timeout_ms = ms < limit_ms ? limit_ms - ms : 1;
		return 0;
	}
	resc_leave(t, late ? RESC_TIMEOUT : RESC_FAIL);
	t->retry_after_ms = -1;
	return late ? RESC_E_INJECTED_TIMEOUT : RESC_E_INJECTED;
}

int resc_enter(resc_resource *resource, const resc_options *options, resc_ticket *ticket)
{
	static const resc_options none = RESC_OPTIONS_INIT;

	if (__builtin_expect(ticket == NULL, 0))
		return -EINVAL;
	ticket_clear(ticket);
	if (options == NULL)
		options = &none;
	if (__builtin_expect(resource == NULL || !options_are_sound(options), 0))
		return -EINVAL;
	struct reserved room;
	struct entering e = {.options = options, .retry_after_ms = -1, .reserved = &room};
	bool look = false;
	int r = try_to_enter(resource, &e, ticket, &look);
	if (__builtin_expect(r == CALL_AGAIN, 0))
		r = enter_again(resource, &e, ticket, &look);
	if (__builtin_expect(r == CALL_WAIT, 0))
		r = enter_after_waiting(resource, &e, ticket, &look);
	if (__builtin_expect(look, 0))
		host_look(resource->host);
	if (__builtin_expect(r != 0, 0)) {
		ticket_clear(ticket);
		ticket->retry_after_ms = r > 0 ? e.retry_after_ms : 0;
		return r;
	}
	ticket->resource = resource;
	ticket->seal = ticket_seal(ticket);
	return __builtin_expect(e.injected, 0) ? meet_injection(&e, ticket) : 0;
}
