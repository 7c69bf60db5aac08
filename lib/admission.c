/* SPDX-License-Identifier: MIT */
/*
 * resc_enter and resc_leave: admission is one transaction.
 *
 * The guards stand in the order in which least has to be undone: deadline, override, breaker (one load; closed costs nothing more), permit,
 * probe lease. A refusal gives back what was taken and moves exactly one counter. A refusal is never a failure of the dependency.
 *
 * The ticket says everything that leave needs, sealed with a number of this process, so that garbage is noticed before anything in it is
 * believed. What it says about shared memory is proved there: a permit or lease is given back by CAS of its exact value.
 *
 * A death between any two steps leaves a permit or a lease, which the reaper frees, or a result that was not counted.
 */
#include <errno.h>
#include <string.h>
#include <sys/random.h>

#include "budget.h"
#include "call.h"
#include "count.h"
#include "deadline.h"
#include "failpoint.h"
#include "latency.h"
#include "override.h"
#include "permit.h"
#include "policy.h"

#define TRIES 16

_Static_assert(sizeof(resc_ticket) == 64, "a ticket is one cache line");

/* ---- tickets ---- */

static uint64_t secret(void)
{
	static _Atomic uint64_t number;
	uint64_t n = atomic_load_explicit(&number, memory_order_relaxed);
	uint64_t fresh = 0;

	if (__builtin_expect(n != 0, 1))
		return n;
	if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh)
		fresh = UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(uintptr_t)&number;
	fresh |= 1;
	return atomic_compare_exchange_strong_explicit(&number, &n, fresh, memory_order_relaxed, memory_order_relaxed) ? fresh : n;
}

static uint64_t rotate(uint64_t n, unsigned by)
{
	return n << by | n >> (64 - by);
}

static uint64_t seal_of(const resc_ticket *t)
{
	uint8_t probe; /* as a byte: garbage is no bool */

	memcpy(&probe, &t->probe, sizeof probe);
	uint64_t head = (uint64_t)t->shape << 56 | (uint64_t)probe << 48 | (uint64_t)t->breaker_generation << 32 | t->permit_cell;

	/* Rotated, so that no two fields cancel each other out. */
	return secret() ^ head ^ rotate(t->permit, 7) ^ rotate(t->probe_lease, 19) ^ rotate((uint64_t)(uintptr_t)t->resource, 31) ^
	       rotate(t->segment, 43) ^ rotate(t->started_ns, 53);
}

static void clear_ticket(resc_ticket *t)
{
	memset(t, 0, sizeof *t);
}

/* The lease's cell is not in its value: it travels in the top byte of the number of the permit's cell. */
#define CELL_BITS 24
_Static_assert(PERMITS_LIMIT <= 1u << 16 && PROBES_LIMIT <= 256, "cells fit the ticket");
#define NO_CELL ((1u << CELL_BITS) - 1)

static uint32_t ticket_cell(const resc_ticket *t)
{
	return t->permit_cell & NO_CELL;
}

static uint32_t ticket_probe_cell(const resc_ticket *t)
{
	return t->permit_cell >> CELL_BITS;
}

/* ---- enter ---- */

/* What a caller wants, and the time of the decision: read at most once a call, and only when a guard needs it. */
struct entering {
	const resc_options *options;
	uint64_t coarse_ns; /* 0: not read yet */
};

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

static int refuse(const struct view *v, int answer)
{
	static const enum counter counters[] = {
	        [RESC_E_OPEN] = COUNTER_refused_open,
	        [RESC_E_HALF_OPEN] = COUNTER_refused_half_open,
	        [RESC_E_FORCED_OPEN] = COUNTER_refused_forced_open,
	        [RESC_E_FULL] = COUNTER_refused_full,
	        [RESC_E_DEADLINE] = COUNTER_refused_deadline,
	};

	count(v, counters[answer]);
	return answer;
}

/* An override is there. CALL_AGAIN: it was over and is gone. 0: go on; *mode says how. */
static int override_enter(const struct view *v, struct entering *e, uint64_t word_seen, enum override_mode *mode)
{
	uint64_t now_ms = coarse_ms(v, e);
	uint64_t until = override_until_ms(word_seen);

	*mode = override_mode(word_seen);
	if (until != 0 && now_ms >= until) {
		override_expire(v->map, v->index, v->life, now_ms);
		return CALL_AGAIN;
	}
	return *mode == OVERRIDE_OPEN ? RESC_E_FORCED_OPEN : 0;
}

/* Where no bulkhead limits, the cell only says who is inside, and a call without one is admitted too. */
COLD static int take_any_permit(const struct view *v, uint64_t permit, resc_ticket *t)
{
	uint32_t cell = NO_CELL;
	int r = permit_acquire(v->map, v->state, permit, v->start, &cell);

	if (__builtin_expect(r == RESC_E_FULL, 0) && worker_sweep_maybe(v->map, v->state, real_coarse_ns() / 1000000, v->life))
		r = permit_acquire(v->map, v->state, permit, v->start, &cell);
	if (r == -ESTALE)
		return CALL_AGAIN;
	if (r == RESC_E_FULL && (v->policy.flags & POLICY_BULKHEAD) == 0) {
		count(v, COUNTER_untracked);
		cell = NO_CELL;
		r = 0;
	}
	t->permit_cell = cell;
	return r;
}

/* A cell for this call. */
static inline int take_permit(const struct view *v, resc_ticket *t)
{
	uint64_t permit = permit_make(v->life, thread_call_number());

	t->permit = permit;
	t->permit_cell = v->start;
	if (__builtin_expect(permit_acquire_home(v->state, v->home, v->start, permit), 1))
		return 0;
	return take_any_permit(v, permit, t);
}

static void give_back_permit(const struct view *v, const resc_ticket *t)
{
	if (ticket_cell(t) != NO_CELL)
		permit_release(v->map, v->state, ticket_cell(t), t->permit);
}

/* How long the attempt may take: the policy's word or what is left of the deadline. now is read only where there is a deadline. */
static int64_t attempt_timeout_ms(const struct policy *policy, int64_t deadline_ns, int64_t now_ns)
{
	int64_t limit = policy->timeout_attempt_ms == 0 ? -1 : (int64_t)policy->timeout_attempt_ms;

	if (deadline_ns == RESC_NO_DEADLINE)
		return limit;
	int64_t left = deadline_left_ms(deadline_ns, now_ns);
	return limit >= 0 && limit < left ? limit : left;
}

/* Permit first, then the lease: losing a lease hurts most. */
COLD static int take_probe(const struct view *v, struct entering *e, resc_ticket *t)
{
	struct probe probe = {0, 0, 0};
	int r = take_permit(v, t);

	if (r != 0)
		return r;
	FAILPOINT("enter.permit");
	r = breaker_probe(v, coarse_ms(v, e), &probe);
	if (r != 0) {
		give_back_permit(v, t);
		return r;
	}
	t->breaker_generation = probe.generation;
	t->probe_lease = probe.lease;
	t->probe = probe.lease != 0;
	t->permit_cell |= probe.cell << CELL_BITS;
	return 0;
}

/* The breaker was seen in word w, and no override stands in front of it. */
static inline int pass_breaker(const struct view *v, struct entering *e, uint64_t w, resc_ticket *t)
{
	if (__builtin_expect(breaker_tag(w) == TAG_CLOSED || breaker_tag(w) == TAG_CLOSED + TAG_PREPARED, 1)) {
		t->breaker_generation = breaker_generation(w);
		return take_permit(v, t);
	}
	if (breaker_tag(w) == TAG_MOVED || breaker_tag(w) == TAG_EMPTY)
		return CALL_AGAIN;
	if (breaker_state(w) == TAG_OPEN && coarse_ms(v, e) < breaker_ms(w))
		return RESC_E_OPEN;
	return take_probe(v, e, t);
}

/* An operator has said something about this resource. */
COLD static int admit_overridden(const struct view *v, struct entering *e, uint64_t w, uint64_t override, resc_ticket *t)
{
	enum override_mode mode;
	int r = override_enter(v, e, override, &mode);

	if (r != 0)
		return r;
	if (breaker_tag(w) == TAG_MOVED || breaker_tag(w) == TAG_EMPTY)
		return CALL_AGAIN;
	t->breaker_generation = breaker_generation(w);
	r = take_permit(v, t);
	t->shape = mode == OVERRIDE_DISABLED ? SHAPE_UNRECORDED : 0;
	return r;
}

/* Every guard of the resource, or none. The ticket was zero. */
static inline int admit(const struct view *v, struct entering *e, resc_ticket *t)
{
	int64_t now_ns = 0;
	uint64_t w = atomic_load_explicit(&v->state->breaker, memory_order_acquire);
	uint64_t override = atomic_load_explicit(&v->state->override, memory_order_acquire);
	int r;

	if (__builtin_expect(e->options->deadline_ns != RESC_NO_DEADLINE, 0)) {
		now_ns = resc_now_ns();
		if (e->options->deadline_ns <= now_ns)
			return refuse(v, RESC_E_DEADLINE);
	}
	if (__builtin_expect(override_mode(override) != OVERRIDE_NONE, 0))
		r = admit_overridden(v, e, w, override, t);
	else if ((v->policy.flags & POLICY_BREAKER) != 0)
		r = pass_breaker(v, e, w, t);
	else
		r = take_permit(v, t);
	if (r != 0)
		return r == CALL_AGAIN ? r : refuse(v, r);
	FAILPOINT("enter.admitted");
	count(v, COUNTER_admitted);
	t->shape |= SHAPE_TICKET;
	t->timeout_ms = attempt_timeout_ms(&v->policy, e->options->deadline_ns, now_ns);
	t->segment = v->generation;
	t->started_ns = v->measure ? clock_fine_ns(v->map) : 0;
	return 0;
}

/* One try. *look: it is time for the look of once a second. */
static inline int try_to_enter(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
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

/* The view is not good any more, or a word moved: make it anew and try again. */
COLD static int enter_again(struct resc_resource *resource, struct entering *e, resc_ticket *t, bool *look)
{
	for (int i = 0; i < TRIES; i++) {
		int r = resource_refresh(resource);
		if (r < 0 && r != -EAGAIN)
			return r;
		e->coarse_ns = 0;
		clear_ticket(t);
		r = try_to_enter(resource, e, t, look);
		if (r != CALL_AGAIN)
			return r;
	}
	return -EAGAIN;
}

int resc_enter(resc_resource *resource, const resc_options *options, resc_ticket *ticket)
{
	static const resc_options none = RESC_OPTIONS_INIT;

	if (__builtin_expect(ticket == NULL || resource == NULL, 0))
		return -EINVAL;
	clear_ticket(ticket);
	if (options == NULL)
		options = &none;
	else if (options->reserved != 0 || (options->flags & ~RESC_RETRIED_UPSTREAM) != 0)
		return -EINVAL;
	struct entering e = {options, 0};
	bool look = false;
	int r = try_to_enter(resource, &e, ticket, &look);
	if (__builtin_expect(r == CALL_AGAIN, 0))
		r = enter_again(resource, &e, ticket, &look);
	if (__builtin_expect(look, 0))
		host_look(resource->host);
	if (__builtin_expect(r != 0, 0)) {
		clear_ticket(ticket);
		return r;
	}
	ticket->resource = resource;
	ticket->seal = seal_of(ticket);
	return 0;
}

/* ---- leave ---- */

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
	bool paid;          /* the budget has its deposit */
	uint64_t coarse_ns; /* the time of the decision */
};

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
	return v->policy.slow_rate_ppm != 0 && took_ns > v->policy.slow_call_ns;
}

static int pay_in(const struct view *v, enum resc_outcome outcome)
{
	if (outcome == RESC_OK && (v->policy.flags & POLICY_BUDGET) != 0)
		return budget_deposit(v->map, v->state, &v->policy, clock_coarse_ms(v->map));
	return 0;
}

/* The outcome, for counters, latency, budget and breaker. 0, RESC_STALE, CALL_AGAIN (then only the breaker's part is left to do). */
static inline int account(const struct view *v, const resc_ticket *t, struct ending *e)
{
	int r;

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
	if (!e->paid && pay_in(v, e->outcome) == -ESTALE)
		return CALL_AGAIN;
	e->paid = true;
	if ((v->policy.flags & POLICY_BREAKER) == 0 || (t->shape & SHAPE_UNRECORDED) != 0)
		return 0;
	uint64_t now_ms = clock_to_ms(v->map, e->coarse_ns);
	if (t->probe)
		r = breaker_probe_result(v, t->breaker_generation, e->outcome, e->slow, now_ms);
	else
		r = breaker_result(v, t->breaker_generation, e->outcome, e->slow, now_ms);
	if (r == RESC_STALE)
		count(v, COUNTER_stale);
	return r;
}

/* Gives back what the ticket holds in its own segment. -ESTALE: the permit is not its own any more, nothing was changed. */
static inline int give_back(const struct map *map, struct state *state, const resc_ticket *t, struct ending *e)
{
	if (ticket_cell(t) != NO_CELL && !permit_release(map, state, ticket_cell(t), t->permit))
		return -ESTALE;
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
		r = give_back(&a->map, state, t, e);
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
	e->ghost_laid = breaker_probe_end(v->state, ticket_probe_cell(t), probe_ghost(t->probe_lease));
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

	read_lock();
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	if (__builtin_expect(v != NULL && v->generation == t->segment && v->life == permit_life(t->permit) && v->epoch == process_epoch(),
	                     1)) {
		e->coarse_ns = clock_coarse_ns(v->map);
		given = give_back(v->map, v->state, t, e);
		if (given == 0)
			done = account(v, t, e);
	}
	read_unlock();
	if (__builtin_expect(done != CALL_AGAIN, 1))
		return done;
	if (given == CALL_AGAIN)
		given = give_back_elsewhere(resource, t, e);
	return given != 0 ? given : account_until_done(resource, t, e);
}

int resc_leave(resc_ticket *ticket, enum resc_outcome outcome)
{
	if (ticket == NULL || (unsigned)outcome > RESC_CANCELLED || (ticket->shape & ~SHAPE_UNRECORDED) != SHAPE_TICKET ||
	    ticket->seal != seal_of(ticket))
		return -EINVAL;
	struct resc_resource *resource = ticket->resource;
	struct ending e = {.outcome = outcome};
	int r = leave(resource, ticket, &e);
	/* What is stale stays stale: a copy of it fails in the same way. */
	clear_ticket(ticket);
	if (host_look_is_due(resource->host, e.coarse_ns))
		host_look(resource->host);
	return r;
}
