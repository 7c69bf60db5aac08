/* SPDX-License-Identifier: MIT */
/* Policies with every guard there is, for tests of what happens when nothing is as it should be. */
#ifndef UNIT_EVERY_GUARD_H
#define UNIT_EVERY_GUARD_H

#include "policy.h"
#include "words.h"

/* All of them enforced, small, and with waits: three calls use up what there is. */
static inline void every_guard(struct policy *p)
{
	policy_private(p);
	p->flags |= POLICY_RETRY | POLICY_BUDGET | POLICY_RETRY_CAP | POLICY_BULKHEAD | POLICY_RATE | POLICY_THROTTLE | POLICY_TIMEOUT |
	            POLICY_INJECTION;
	p->window_calls = 16;
	p->min_calls = 4;
	p->slow_rate_ppm = 800000;
	p->slow_call_ns = 1000000;
	p->jitter_ppm = 100000;
	p->probes = p->successes = 2;
	p->trial_failure_rate_ppm = 500000;
	p->budget_deposit = DEPOSIT_REQUEST;
	p->budget_timeout_cost = 2 * TOKEN;
	p->budget_ttl_ms = 10000;
	p->budget_threshold_ppm = 500000;
	p->budget_per_second = TOKEN;
	p->retries_floor = 1;
	p->retries_share_ppm = 200000;
	p->limit = 3;
	p->max_wait_ms = 300;
	p->max_waiting = 4;
	p->low_ppm = 500000;
	p->retry_after_ms = 50;
	p->rate_per_second = 100 * TOKEN;
	p->rate_burst = 8;
	p->rate_max_wait_ms = 200;
	p->once_max_wait_ms = 100;
	p->timeout_attempt_ms = 500;
	p->timeout_probe_ms = 100;
	p->timeout_total_ms = 5000;
}

/* The same, but a window of time, a limit that is a share of the workers, and nothing is refused. */
static inline void every_guard_in_shadow(struct policy *p)
{
	every_guard(p);
	p->flags |= POLICY_SHADOW_BREAKER | POLICY_SHADOW_BUDGET | POLICY_SHADOW_BULKHEAD | POLICY_SHADOW_RATE | POLICY_SHADOW_THROTTLE |
	            POLICY_SHADOW_TIMEOUT | POLICY_SHADOW_ONCE;
	p->window_calls = 0;
	p->consecutive = 3;
	p->trial_failure_rate_ppm = 0;
	p->budget_deposit = DEPOSIT_SUCCESS;
	p->budget_ttl_ms = p->budget_threshold_ppm = 0;
	p->limit_share_ppm = 2000000;
	p->once_on_death = ON_DEATH_FREE;
}

/* A front door: the limit is a share of the workers, and calls wait for it. No breaker. */
static inline void every_wait(struct policy *p)
{
	every_guard(p);
	p->flags &= ~(uint64_t)(POLICY_BREAKER | POLICY_RETRY_CAP | POLICY_THROTTLE);
	p->limit_share_ppm = 2000000;
	p->rate_per_second = 10 * TOKEN;
	p->rate_burst = 4;
	p->once_on_death = ON_DEATH_FREE;
}

#endif
