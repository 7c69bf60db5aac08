/* SPDX-License-Identifier: MIT */
/*
 * Retries: whether to try again, and when. And resc_run, a whole request in one call.
 *
 * The plan belongs to the caller and counts the attempts of one request. The budget belongs to the host: all workers withdraw from one
 * bucket, so that retries stay a share of what succeeds, however many workers there are. The answer does not depend on whether the failed
 * attempt has been left yet: a failure pays nothing in, and the cap on retries in flight takes care of it (retries.c).
 *
 * The order of the questions is that of what they say. First what this request is (an outcome that is retried, not retried upstream, not
 * told to stay away by the server, attempts left, time left); then what the host allows (the cap, the budget). The token is taken last, so
 * whatever refuses before it costs nothing. Only a budget with a threshold is different: it counts failures, as gRPC's retry throttling
 * does (gRFC A6), so each failure of a kind that is retried is charged first, also when the answer is no for another reason.
 *
 * Nothing is charged or counted twice when the view is not good any more: the budget says so before it takes anything, and what would
 * have been refused in shadow mode is counted with the answer. Of that the tokens are counted here, and the cap by resc_enter, whose
 * answer binds: else one retry would be counted twice, for the same reason.
 *
 * A server's pushback is waited for exactly: no jitter, because the server spreads its clients itself, and no cap. It leaves the backoff of
 * later attempts as it was.
 */
#include <errno.h>
#include <time.h>

#include "backoff.h"
#include "budget.h"
#include "call.h"
#include "deadline.h"
#include "retries.h"

#define TRIES 16

static int refuse_retry(const struct view *v, int answer)
{
	static const enum counter counters[] = {
	        [0] = /* RESC_E_ATTEMPTS, the first of them */ COUNTER_retry_attempts,
	        [RESC_E_BUDGET - RESC_E_ATTEMPTS] = COUNTER_retry_budget,
	        [RESC_E_RETRY_DEADLINE - RESC_E_ATTEMPTS] = COUNTER_retry_deadline,
	        [RESC_E_NOT_RETRYABLE - RESC_E_ATTEMPTS] = COUNTER_retry_not_retryable,
	        [RESC_E_UPSTREAM - RESC_E_ATTEMPTS] = COUNTER_retry_upstream,
	        [RESC_E_PUSHBACK - RESC_E_ATTEMPTS] = COUNTER_retry_pushback,
	        [RESC_E_RETRY_IN_FLIGHT - RESC_E_ATTEMPTS] = COUNTER_retry_in_flight,
	};

	count(v, counters[answer - RESC_E_ATTEMPTS]);
	return answer;
}

static bool passes_deadline(int64_t deadline_ns, int64_t wait_ns)
{
	if (deadline_ns == RESC_NO_DEADLINE)
		return false;
	int64_t now = resc_now_ns();
	return deadline_ns <= now || wait_ns >= deadline_ns - now;
}

/* A plan that its caller has spoilt does not begin anew. */
static uint32_t one_more(uint32_t attempts)
{
	return attempts == UINT32_MAX ? attempts : attempts + 1;
}

/* ---- what this request is ---- */

static bool is_retried(const struct policy *policy, enum resc_outcome outcome)
{
	return (outcome == RESC_FAIL || outcome == RESC_TIMEOUT) && (policy->retry_on >> outcome & 1) != 0;
}

static bool has_pushback(const resc_retry_plan *plan)
{
	return plan->pushback_ms != RESC_NO_PUSHBACK;
}

/* 0 with *wait_ns, or why not. */
static int ask_request(const struct view *v, const resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns)
{
	uint32_t attempts = one_more(plan->attempts);

	if (!is_retried(&v->policy, outcome) || (plan->flags & RESC_NOT_IDEMPOTENT) != 0)
		return RESC_E_NOT_RETRYABLE;
	if ((plan->flags & RESC_RETRIED_UPSTREAM) != 0)
		return RESC_E_UPSTREAM;
	if (has_pushback(plan) && plan->pushback_ms < 0)
		return RESC_E_PUSHBACK;
	if ((v->policy.flags & POLICY_RETRY) == 0 || attempts >= v->policy.attempts)
		return RESC_E_ATTEMPTS;
	if (has_pushback(plan)) {
		*wait_ns = plan->pushback_ms > INT64_MAX / 1000000 ? INT64_MAX : plan->pushback_ms * 1000000;
	} else {
		uint64_t previous = plan->previous_wait_ns < 0 ? 0 : (uint64_t)plan->previous_wait_ns;
		*wait_ns = (int64_t)backoff_wait_ns(&v->policy, attempts, previous);
	}
	return passes_deadline(plan->deadline_ns, *wait_ns) ? RESC_E_RETRY_DEADLINE : 0;
}

/* ---- what the host allows ---- */

static bool counts_failures(const struct policy *policy)
{
	return (policy->flags & POLICY_BUDGET) != 0 && policy->budget_threshold_ppm != 0;
}

/* 0, RESC_E_BUDGET, CALL_AGAIN. */
static int ask_budget(const struct view *v, enum resc_outcome outcome)
{
	int r = budget_withdraw(v->map, v->state, &v->policy, outcome, clock_coarse_ms(v->map));

	if (r == -ESTALE)
		return CALL_AGAIN;
	return r == 0 ? 0 : RESC_E_BUDGET;
}

/* budget: what it said where it was asked first, else 0. */
static int ask_host(const struct view *v, const resc_retry_plan *plan, enum resc_outcome outcome, int budget)
{
	bool capped = (v->policy.flags & POLICY_RETRY_CAP) != 0;

	/* What failed was a retry itself from the second attempt on: it takes its own place again. */
	if (capped && !retries_fit(v->map, v->state, &v->policy, plan->attempts > 0))
		return RESC_E_RETRY_IN_FLIGHT;
	if ((v->policy.flags & POLICY_BUDGET) == 0 || counts_failures(&v->policy))
		return budget;
	return ask_budget(v, outcome);
}

static int decide(const struct view *v, const resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns)
{
	int budget = 0;

	if (counts_failures(&v->policy) && is_retried(&v->policy, outcome))
		budget = ask_budget(v, outcome);
	if (budget == CALL_AGAIN)
		return CALL_AGAIN;
	int r = ask_request(v, plan, outcome, wait_ns);
	if (r != 0)
		return refuse_retry(v, r);
	r = ask_host(v, plan, outcome, budget);
	if (r == CALL_AGAIN)
		return CALL_AGAIN;
	if (r != 0 && (v->policy.flags & POLICY_SHADOW_BUDGET) == 0)
		return refuse_retry(v, r);
	/* Beyond the cap: the door counts it, if it is so there too. */
	if (r == RESC_E_BUDGET)
		count(v, COUNTER_would_budget);
	count(v, COUNTER_retries);
	return 0;
}

/* The plan after an answer: it has one attempt more, and the server's word was used. */
static int answered(resc_retry_plan *plan, int answer, int64_t wait_ns, int64_t *wait_out)
{
	plan->attempts = one_more(plan->attempts);
	if (answer == 0) {
		if (!has_pushback(plan))
			plan->previous_wait_ns = wait_ns;
		*wait_out = wait_ns;
	}
	plan->pushback_ms = RESC_NO_PUSHBACK;
	return answer;
}

int resc_retry(resc_resource *resource, resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns)
{
	int64_t wait = 0;

	if (resource == NULL || plan == NULL || wait_ns == NULL || (unsigned)outcome > RESC_CANCELLED ||
	    (plan->flags & ~(RESC_RETRIED_UPSTREAM | RESC_NOT_IDEMPOTENT)) != 0)
		return -EINVAL;
	*wait_ns = 0;
	for (int i = 0; i < TRIES; i++) {
		read_lock();
		const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
		int r = view_is_current(v) ? decide(v, plan, outcome, &wait) : CALL_AGAIN;
		read_unlock();
		if (r != CALL_AGAIN)
			return answered(plan, r, wait, wait_ns);
		r = resource_refresh(resource);
		if (r < 0 && r != -EAGAIN)
			return r;
	}
	return -EAGAIN;
}

/* ---- a whole request ---- */

static void sleep_ns(int64_t ns)
{
	struct timespec left = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

/* The policy's total timeout, or the caller's deadline: whichever comes first. Without a view nothing is admitted either. */
static int64_t request_deadline(resc_resource *resource, int64_t deadline_ns)
{
	int64_t total = 0;
	bool current = false;

	for (int i = 0; i < 2 && !current; i++) {
		if (i > 0 && resource_refresh(resource) < 0)
			break;
		read_lock();
		const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
		current = view_is_current(v);
		/* In shadow mode timeouts cut nothing. */
		if (v != NULL)
			total = (v->policy.flags & POLICY_SHADOW_TIMEOUT) != 0 ? 0 : (int64_t)v->policy.timeout_total_ms;
		read_unlock();
	}
	return total == 0 ? deadline_ns : resc_deadline_within_ms(deadline_ns, total);
}

/* A call that was admitted, from here to its outcome. */
static enum resc_outcome attempt_one(resc_ticket *ticket, resc_attempt_fn attempt, void *arg, unsigned n)
{
	enum resc_outcome outcome = attempt(arg, ticket->timeout_ms, n);

	if ((unsigned)outcome > RESC_CANCELLED)
		outcome = RESC_FAIL;
	resc_leave(ticket, outcome);
	return outcome;
}

int resc_run(resc_resource *resource, resc_attempt_fn attempt, void *arg, const resc_options *options, int *last)
{
	resc_options o = RESC_OPTIONS_INIT;

	if (last != NULL)
		*last = -1;
	if (resource == NULL || attempt == NULL)
		return -EINVAL;
	if (options != NULL)
		o = *options;
	o.deadline_ns = request_deadline(resource, o.deadline_ns);
	resc_retry_plan plan = RESC_RETRY_INIT;
	plan.flags = o.flags & RESC_RETRIED_UPSTREAM;
	plan.deadline_ns = o.deadline_ns;
	for (unsigned n = 1;; n++) {
		resc_ticket ticket;
		int64_t wait_ns;
		enum resc_outcome outcome = RESC_OK;
		int r = resc_enter(resource, &o, &ticket);
		if (r == RESC_E_INJECTED || r == RESC_E_INJECTED_TIMEOUT)
			outcome = r == RESC_E_INJECTED ? RESC_FAIL : RESC_TIMEOUT;
		else if (r != 0)
			return r;
		else
			outcome = attempt_one(&ticket, attempt, arg, n);
		if (last != NULL)
			*last = (int)outcome;
		if (outcome != RESC_FAIL && outcome != RESC_TIMEOUT)
			return 0;
		r = resc_retry(resource, &plan, outcome, &wait_ns);
		if (r != 0)
			return r;
		sleep_ns(wait_ns);
		o.flags |= RESC_RETRY;
	}
}
