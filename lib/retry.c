/* SPDX-License-Identifier: MIT */
/*
 * Retries: whether to try again, and when. And resc_run, a whole request in one call.
 *
 * The plan belongs to the caller and counts the attempts of one request. The budget belongs to the host: all workers withdraw from one
 * bucket, so that retries stay a share of what succeeds, however many workers there are. The answer does not depend on whether the failed
 * attempt has been left yet: only successes pay in.
 */
#include <errno.h>
#include <time.h>

#include "backoff.h"
#include "budget.h"
#include "call.h"
#include "deadline.h"

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

/* The token is taken last: whatever refuses before it costs nothing. */
static int decide(const struct view *v, const resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns)
{
	uint32_t attempts = one_more(plan->attempts);
	bool retries = (v->policy.flags & POLICY_RETRY) != 0;

	if (outcome != RESC_FAIL && outcome != RESC_TIMEOUT)
		return refuse_retry(v, RESC_E_NOT_RETRYABLE);
	if ((plan->flags & RESC_RETRIED_UPSTREAM) != 0)
		return refuse_retry(v, RESC_E_UPSTREAM);
	if (!retries || attempts >= v->policy.attempts)
		return refuse_retry(v, RESC_E_ATTEMPTS);
	uint64_t wait = backoff_wait_ns(&v->policy, attempts, plan->previous_wait_ns < 0 ? 0 : (uint64_t)plan->previous_wait_ns);
	*wait_ns = wait > INT64_MAX ? INT64_MAX : (int64_t)wait;
	if (passes_deadline(plan->deadline_ns, *wait_ns))
		return refuse_retry(v, RESC_E_RETRY_DEADLINE);
	if ((v->policy.flags & POLICY_BUDGET) != 0) {
		int r = budget_withdraw(v->map, v->state, &v->policy, outcome, clock_coarse_ms(v->map));
		if (r == -ESTALE)
			return CALL_AGAIN;
		if (r != 0)
			return refuse_retry(v, RESC_E_BUDGET);
	}
	count(v, COUNTER_retries);
	return 0;
}

int resc_retry(resc_resource *resource, resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns)
{
	int64_t wait = 0;

	if (resource == NULL || plan == NULL || wait_ns == NULL || (unsigned)outcome > RESC_CANCELLED ||
	    (plan->flags & ~RESC_RETRIED_UPSTREAM) != 0)
		return -EINVAL;
	*wait_ns = 0;
	for (int i = 0; i < TRIES; i++) {
		read_lock();
		const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
		int r = view_is_current(v) ? decide(v, plan, outcome, &wait) : CALL_AGAIN;
		read_unlock();
		if (r == CALL_AGAIN) {
			r = resource_refresh(resource);
			if (r < 0 && r != -EAGAIN)
				return r;
			continue;
		}
		plan->attempts = one_more(plan->attempts);
		if (r == 0) {
			plan->previous_wait_ns = wait;
			*wait_ns = wait;
		}
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
		if (v != NULL)
			total = (int64_t)v->policy.timeout_total_ms;
		read_unlock();
	}
	return total == 0 ? deadline_ns : resc_deadline_within_ms(deadline_ns, total);
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
	resc_retry_plan plan = {.flags = o.flags, .deadline_ns = o.deadline_ns};
	for (unsigned n = 1;; n++) {
		resc_ticket ticket;
		int64_t wait_ns;
		int r = resc_enter(resource, &o, &ticket);
		if (r != 0)
			return r;
		enum resc_outcome outcome = attempt(arg, ticket.timeout_ms, n);
		if ((unsigned)outcome > RESC_CANCELLED)
			outcome = RESC_FAIL;
		resc_leave(&ticket, outcome);
		if (last != NULL)
			*last = (int)outcome;
		if (outcome != RESC_FAIL && outcome != RESC_TIMEOUT)
			return 0;
		r = resc_retry(resource, &plan, outcome, &wait_ns);
		if (r != 0)
			return r;
		sleep_ns(wait_ns);
	}
}
