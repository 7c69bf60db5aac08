/* SPDX-License-Identifier: MIT */
/*
 * resc_leave: gives back what a ticket holds, then counts the outcome.
 *
 * First the permit, by CAS of its exact value in the segment where it was taken: only who still has it goes on, so a ticket is left once,
 * whoever has copies of it. Then the lease of a probe; where that was taken over, the result touches nothing. Then the outcome, in the
 * current segment: counters, latency, retry budget, throttle, breaker.
 *
 * A death between any two steps leaves a permit or a lease, which the reaper frees, or a result that was not counted.
 */
#include <errno.h>

#include "budget.h"
#include "call.h"
#include "count.h"
#include "failpoint.h"
#include "latency.h"
#include "permit.h"
#include "policy.h"
#include "throttle.h"
#include "ticket.h"
#include "untracked.h"
#include "waiting.h"

#define TRIES 16

static const enum counter outcome_counters[] = {
        [RESC_OK] = COUNTER_ended_ok,           [RESC_FAIL] = COUNTER_ended_fail,           [RESC_TIMEOUT] = COUNTER_ended_timeout,
        [RESC_IGNORED] = COUNTER_ended_ignored, [RESC_CANCELLED] = COUNTER_ended_cancelled,
};

/* What the ticket held, and where its result belongs. */
struct ending {
	enum resc_outcome outcome;
	bool lease_lost; /* a probe whose lease was taken over: its result touches nothing */
	bool ghost_laid; /* the lease was out in a superseded segment, and its ghost is gone */
	bool counted;    /* outcome and latency are in the counters already */
	bool slow;
	bool paid;              /* the budget has its deposit */
	bool throttled;         /* the throttle has its count */
	int64_t retry_after_ms; /* the dependency's word; below 0: none */
	uint64_t coarse_ns;     /* the time of the decision */
};

/* Counts how long the call took. True: it was slow. */
static bool measure(const struct view *v, const resc_ticket *t)
{
	if (t->started_ns == 0)
		return false;
	uint64_t now = clock_fine_ns(v->map);
	uint64_t took_ns = now > t->started_ns ? now - t->started_ns : 0;
	struct shard *shard = shard_of(v);
	word *bucket = &shard->latency[latency_bucket(took_ns / 1000)];
	add_to(v, bucket, bucket, 1);
	add_to(v, &shard->latency_sum_us, &shard->latency_sum_us, took_ns / 1000);
	if (__builtin_expect((v->policy.flags & POLICY_SHADOW_TIMEOUT) != 0, 0)) {
		uint64_t limit_ms = policy_attempt_ms(&v->policy, t->probe);
		if (limit_ms != 0 && took_ns > limit_ms * 1000000)
			count(v, COUNTER_would_timeout);
	}
	return v->policy.slow_rate_ppm != 0 && took_ns > v->policy.slow_call_ns;
}

static int pay_in(const struct view *v, const struct ending *e)
{
	if (e->outcome != RESC_OK || (v->policy.flags & POLICY_BUDGET) == 0 || v->policy.budget_deposit != DEPOSIT_SUCCESS ||
	    budget_is_full(v->state, &v->policy))
		return 0;
	return budget_deposit(v->map, v->state, &v->policy, clock_to_ms(v->map, e->coarse_ns));
}

/* Who gave up first says nothing about the dependency; an answer that was not wanted is an answer. */
static void tell_throttle(const struct view *v, struct ending *e)
{
	if ((v->policy.flags & POLICY_THROTTLE) == 0 || e->outcome == RESC_CANCELLED || e->throttled)
		return;
	throttle_count(v, e->outcome == RESC_OK || e->outcome == RESC_IGNORED, clock_to_ms(v->map, e->coarse_ns));
	e->throttled = true;
}

static USUAL int tell_breaker(const struct view *v, const resc_ticket *t, const struct ending *e)
{
	const struct result result = {
	        .outcome = e->outcome,
	        .slow = e->slow,
	        .now_ms = clock_to_ms(v->map, e->coarse_ns),
	        .retry_after_ms = e->retry_after_ms,
	};

	return t->probe ? breaker_probe_result(v, t->breaker_generation, &result) : breaker_result(v, t->breaker_generation, &result);
}

/* The outcome, for counters, latency, budget and breaker. 0, RESC_STALE, CALL_AGAIN (then only the breaker's part is left to do). */
static USUAL int account(const struct view *v, const resc_ticket *t, struct ending *e)
{
	if (!e->counted) {
		count(v, outcome_counters[e->outcome]);
		e->slow = measure(v, t);
		if (e->slow)
			count(v, COUNTER_slow);
		e->counted = true;
	}
	if (e->lease_lost) {
		count(v, COUNTER_stale);
		return RESC_STALE;
	}
	if (!e->paid && pay_in(v, e) == -ESTALE)
		return CALL_AGAIN;
	e->paid = true;
	if ((t->shape & SHAPE_UNRECORDED) != 0)
		return 0;
	tell_throttle(v, e);
	if ((v->policy.flags & POLICY_BREAKER) == 0)
		return 0;
	int r = tell_breaker(v, t, e);
	if (r == RESC_STALE)
		count(v, COUNTER_stale);
	return r;
}

/* Gives back what the ticket holds in its own segment. -ESTALE: the permit is not its own any more, nothing was changed. */
static inline int give_back(const struct map *map, struct state *state, bool waits, const resc_ticket *t, struct ending *e)
{
	const uint32_t cell = ticket_cell(t);

	if (__builtin_expect(ticket_is_tracked(t), 1) ? !permit_release(map, state, cell, t->permit) : !untracked_release(cell, t->permit))
		return -ESTALE;
	FAILPOINT("leave.released");
	if (__builtin_expect(waits, 0))
		waiting_signal_next(map, state);
	FAILPOINT("leave.permit");
	if (t->probe)
		e->lease_lost = !breaker_probe_end(state, ticket_probe_cell(t), t->probe_lease);
	FAILPOINT("leave.lease");
	return 0;
}

/* The call began in a segment that the current one does not come from, a private or a removed one: it is counted there alone. */
static int end_outside(const struct map *map, struct state *state, const struct ending *e)
{
	count_common(map, state, outcome_counters[e->outcome], 1);
	count_common(map, state, COUNTER_stale, 1);
	return RESC_STALE;
}

/* The segment of the ticket is not the current one, or this is another process: find it among the older ones. */
COLD static int give_back_elsewhere(struct resc_resource *resource, const resc_ticket *t, struct ending *e)
{
	resc *host = resource->host;
	int r = -ESTALE;

	pthread_mutex_lock(&host->lock);
	struct attachment *a = host_attachment(host, t->segment, permit_life(t->permit));
	int index = a == NULL ? -ENOENT : policy_find_any(&a->map, resource->name);
	if (index >= 0) {
		struct state *state = map_state(&a->map, (uint32_t)index);
		r = give_back(&a->map, state, true, t, e);
		if (r == 0 && !host_follows(host, a))
			r = end_outside(&a->map, state, e);
		else if (r == 0)
			host_lower_debt(host, a, state, resource->name);
	}
	pthread_mutex_unlock(&host->lock);
	return r;
}

/* A probe of a superseded segment: its ghost in the successor goes with it. Without a ghost the lease was taken over there. */
static void lay_ghost(const struct view *v, const resc_ticket *t, struct ending *e)
{
	if (!t->probe || v->generation == t->segment || e->ghost_laid)
		return;
	e->ghost_laid = breaker_probe_end(v->state, ticket_probe_cell(t), probe_ghost(t->probe_lease)) ||
	                breaker_probe_end(v->state, ticket_probe_cell(t), probe_orphan(t->probe_lease));
	if (!e->ghost_laid)
		e->lease_lost = true;
}

COLD static int account_until_done(struct resc_resource *resource, const resc_ticket *t, struct ending *e)
{
	for (int i = 0; i < TRIES; i++) {
		read_lock();
		const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
		int r = CALL_AGAIN;
		if (v != NULL && v->epoch == process_epoch()) {
			lay_ghost(v, t, e);
			e->coarse_ns = clock_coarse_ns(v->map);
			r = account(v, t, e);
		}
		read_unlock();
		if (r != CALL_AGAIN)
			return r;
		/* Not configured any more, or nowhere to count it: everything was given back. */
		if (resource_refresh(resource) < 0)
			return 0;
	}
	return 0;
}

static int leave(struct resc_resource *resource, const resc_ticket *t, struct ending *e)
{
	int given = CALL_AGAIN;
	int done = CALL_AGAIN;
	bool late = false;

	read_lock();
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	if (__builtin_expect(v != NULL && v->generation == t->segment && v->life == permit_life(t->permit) && v->epoch == process_epoch(),
	                     1)) {
		e->coarse_ns = clock_coarse_ns(v->map);
		given = give_back(v->map, v->state, v->waits, t, e);
		if (given == 0)
			done = account(v, t, e);
		late = map_superseded_by(v->map) != v->superseded;
	}
	read_unlock();
	/* Counted in a segment that has a successor, perhaps after rescd looked there last: a view of the successor carries it over. */
	if (__builtin_expect(late, 0))
		resource_refresh(resource);
	if (__builtin_expect(done != CALL_AGAIN, 1))
		return done;
	if (given == CALL_AGAIN)
		given = give_back_elsewhere(resource, t, e);
	return given != 0 ? given : account_until_done(resource, t, e);
}

int resc_leave_after(resc_ticket *ticket, enum resc_outcome outcome, int64_t retry_after_ms)
{
	if (ticket == NULL || (unsigned)outcome > RESC_CANCELLED || (ticket->shape & ~SHAPE_UNRECORDED) != SHAPE_TICKET ||
	    ticket->seal != ticket_seal(ticket))
		return -EINVAL;
	struct resc_resource *resource = ticket->resource;
	struct ending e = {.outcome = outcome, .retry_after_ms = retry_after_ms};
	int r = leave(resource, ticket, &e);
	/* What is stale stays stale: a copy of it fails in the same way. */
	ticket_clear(ticket);
	if (host_look_is_due(resource->host, e.coarse_ns))
		host_look(resource->host);
	return r;
}

int resc_leave(resc_ticket *ticket, enum resc_outcome outcome)
{
	return resc_leave_after(ticket, outcome, -1);
}
