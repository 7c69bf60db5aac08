/* SPDX-License-Identifier: MIT */
/* A whole request in one call, and the question whether to try again: attempts, deadline, budget, and what is counted of them. */
#include <errno.h>

#include "budget.h"
#include "override.h"
#include "permit.h"
#include "retries.h"
#include "scene.h"

static struct policy plain(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_RETRY;
	p.failure_rate_ppm = 0;
	p.attempts = 3;
	p.backoff = BACKOFF_NONE;
	return p;
}

static void set_up(void)
{
	struct policy p = plain();

	scene_open(&p);
}

static void tear_down(void)
{
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0); /* whatever happened, nothing is held */
	scene_tear_down();
}

/* ---- a dependency that follows a script ---- */

struct script {
	enum resc_outcome outcomes[8]; /* of the attempts; the last one goes on */
	unsigned count;
	uint64_t takes_ms; /* each; or as long as it may */
	unsigned calls;
	int64_t timeouts[8];
	bool right_numbers;
};

static enum resc_outcome attempt(void *arg, int64_t timeout_ms, unsigned number)
{
	struct script *s = arg;
	unsigned i = s->calls++;

	if (number != s->calls)
		s->right_numbers = false;
	if (i < 8)
		s->timeouts[i] = timeout_ms;
	uint64_t takes = timeout_ms >= 0 && (uint64_t)timeout_ms < s->takes_ms ? (uint64_t)timeout_ms : s->takes_ms;
	at(scene_ms + takes);
	return s->outcomes[i < s->count ? i : s->count - 1];
}

static struct script always(enum resc_outcome outcome)
{
	return (struct script){.outcomes = {outcome}, .count = 1, .right_numbers = true};
}

static int run(struct script *s, const resc_options *options, int *last)
{
	*last = 99;
	int r = resc_run(pay, attempt, s, options, last);
	ck_assert(s->right_numbers);
	return r;
}

static void runs(struct script *s, int answer, int last_outcome, unsigned calls)
{
	int last;

	ck_assert_int_eq(run(s, NULL, &last), answer);
	ck_assert_int_eq(last, last_outcome);
	ck_assert_uint_eq(s->calls, calls);
}

/* ---- outcomes ---- */

START_TEST(the_first_good_answer_ends_it)
{
	static const enum resc_outcome good[] = {RESC_OK, RESC_IGNORED, RESC_CANCELLED};

	for (size_t i = 0; i < 3; i++) {
		struct script s = always(good[i]);
		runs(&s, 0, (int)good[i], 1);
	}
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.admitted, 3);
	ck_assert_uint_eq(r.counters.ended_ok, 1);
	ck_assert_uint_eq(r.counters.ended_ignored, 1);
	ck_assert_uint_eq(r.counters.ended_cancelled, 1);
	ck_assert_uint_eq(r.counters.retries, 0);
}
END_TEST

START_TEST(it_is_tried_until_it_works)
{
	struct script s = {.outcomes = {RESC_FAIL, RESC_TIMEOUT, RESC_OK}, .count = 3, .right_numbers = true};

	runs(&s, 0, RESC_OK, 3);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.admitted, 3);
	ck_assert_uint_eq(r.counters.retries, 2);
	ck_assert_uint_eq(r.counters.ended_fail, 1);
	ck_assert_uint_eq(r.counters.ended_timeout, 1);
}
END_TEST

START_TEST(it_is_tried_as_often_as_the_policy_says)
{
	static const unsigned attempts[] = {1, 2, 5};

	for (size_t i = 0; i < 3; i++) {
		struct policy p = plain();
		p.attempts = attempts[i];
		use(p);
		struct script s = always(RESC_FAIL);
		runs(&s, RESC_E_ATTEMPTS, RESC_FAIL, attempts[i]);
	}
	struct policy p = plain();
	p.flags &= ~(uint64_t)POLICY_RETRY;
	use(p);
	struct script s = always(RESC_TIMEOUT);
	runs(&s, RESC_E_ATTEMPTS, RESC_TIMEOUT, 1); /* no retry block: no retries */
}
END_TEST

START_TEST(an_outcome_that_is_none_is_a_failure)
{
	struct script s = always((enum resc_outcome)77);

	runs(&s, RESC_E_ATTEMPTS, RESC_FAIL, 3);
	ck_assert_uint_eq(named_look(&n).counters.ended_fail, 3);
}
END_TEST

START_TEST(wrong_arguments_are_errors)
{
	struct script s = always(RESC_OK);
	resc_options options = RESC_OPTIONS_INIT;
	int last;

	ck_assert_int_eq(resc_run(NULL, attempt, &s, NULL, &last), -EINVAL);
	ck_assert_int_eq(resc_run(pay, NULL, &s, NULL, &last), -EINVAL);
	options.reserved = 1;
	ck_assert_int_eq(run(&s, &options, &last), -EINVAL);
	ck_assert_int_eq(last, -1);
	ck_assert_uint_eq(s.calls, 0);
	ck_assert_int_eq(resc_run(pay, attempt, &s, NULL, NULL), 0);
}
END_TEST

/* ---- refusals ---- */

START_TEST(a_refused_request_makes_no_attempt)
{
	struct script s = always(RESC_OK);

	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 0, ""), 0);
	runs(&s, RESC_E_FORCED_OPEN, -1, 0);
}
END_TEST

START_TEST(B11_the_breaker_may_end_it_between_two_attempts)
{
	struct policy p = plain();

	p.consecutive = 2;
	p.attempts = 5;
	use(p);
	struct script s = always(RESC_FAIL);
	runs(&s, RESC_E_OPEN, RESC_FAIL, 2);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.ended_fail, 2); /* the refused try is not booked as a failure */
	ck_assert_uint_eq(r.counters.refused_open, 1);
}
END_TEST

START_TEST(E6_only_one_layer_retries)
{
	resc_options options = RESC_OPTIONS_INIT;
	struct script s = always(RESC_FAIL);
	int last;

	options.flags = RESC_RETRIED_UPSTREAM;
	ck_assert_int_eq(run(&s, &options, &last), RESC_E_UPSTREAM);
	ck_assert_uint_eq(s.calls, 1);
	ck_assert_int_eq(last, RESC_FAIL);
	ck_assert_uint_eq(named_look(&n).counters.retry_upstream, 1);
}
END_TEST

START_TEST(an_empty_budget_ends_it)
{
	struct policy p = plain();

	p.flags |= POLICY_BUDGET;
	p.attempts = 10;
	p.budget_capacity = 4 * TOKEN;
	p.budget_ratio = TOKEN / 10;
	use(p);
	override_reset(&n.map, n.index, "");
	struct script s = always(RESC_FAIL);
	runs(&s, RESC_E_BUDGET, RESC_FAIL, 5); /* one, and four tokens */
	ck_assert_double_eq(named_look(&n).tokens, 0);
	/* Ten good calls are a token. */
	for (int i = 0; i < 10; i++) {
		struct script good = always(RESC_OK);
		runs(&good, 0, RESC_OK, 1);
	}
	s = always(RESC_FAIL);
	runs(&s, RESC_E_BUDGET, RESC_FAIL, 2);
}
END_TEST

/* ---- time ---- */

static struct policy e2(void)
{
	struct policy p = plain();

	p.timeout_total_ms = 1000;
	p.timeout_attempt_ms = 400;
	return p;
}

START_TEST(E2_a_dependency_that_hangs_costs_the_total_timeout_and_no_more)
{
	struct script s = always(RESC_TIMEOUT);

	use(e2());
	s.takes_ms = 1000000;
	uint64_t start = scene_ms;
	runs(&s, RESC_E_ATTEMPTS, RESC_TIMEOUT, 3);
	ck_assert_int_eq(s.timeouts[0], 400);
	ck_assert_int_eq(s.timeouts[1], 400);
	ck_assert_int_eq(s.timeouts[2], 200); /* what was left */
	ck_assert_uint_eq(scene_ms - start, 1000);
}
END_TEST

START_TEST(E2_one_that_works_from_the_third_try)
{
	struct script s = {.outcomes = {RESC_TIMEOUT, RESC_TIMEOUT, RESC_OK}, .count = 3, .takes_ms = 150, .right_numbers = true};

	use(e2());
	runs(&s, 0, RESC_OK, 3);
}
END_TEST

START_TEST(no_retry_that_would_begin_after_the_deadline)
{
	struct policy p = e2();
	struct script s = always(RESC_TIMEOUT);

	p.backoff = BACKOFF_FIXED;
	p.backoff_jitter = JITTER_NONE;
	p.base_ns = p.cap_ns = 700000000;
	use(p);
	s.takes_ms = 400;
	uint64_t start = scene_ms;
	runs(&s, RESC_E_RETRY_DEADLINE, RESC_TIMEOUT, 1); /* 400 + 700 > 1000 */
	ck_assert_uint_eq(scene_ms - start, 400);
	ck_assert_uint_eq(named_look(&n).counters.retry_deadline, 1);
}
END_TEST

START_TEST(the_callers_deadline_counts_where_it_is_nearer)
{
	resc_options options = RESC_OPTIONS_INIT;
	struct script s = always(RESC_OK);
	int last;

	use(e2());
	options.deadline_ns = resc_deadline_after_ms(100);
	ck_assert_int_eq(run(&s, &options, &last), 0);
	ck_assert_int_eq(s.timeouts[0], 100);
	options.deadline_ns = resc_deadline_after_ms(5000);
	s = always(RESC_OK);
	ck_assert_int_eq(run(&s, &options, &last), 0);
	ck_assert_int_eq(s.timeouts[0], 400);
	options.deadline_ns = resc_now_ns();
	s = always(RESC_OK);
	ck_assert_int_eq(run(&s, &options, &last), RESC_E_DEADLINE);
	ck_assert_uint_eq(s.calls, 0);
	ck_assert_int_eq(last, -1);
}
END_TEST

START_TEST(without_any_timeout_there_is_none)
{
	struct script s = always(RESC_OK);

	runs(&s, 0, RESC_OK, 1);
	ck_assert_int_eq(s.timeouts[0], -1);
}
END_TEST

START_TEST(it_waits_between_attempts)
{
	struct policy p = plain();
	struct timespec a, b;

	p.backoff = BACKOFF_FIXED;
	p.backoff_jitter = JITTER_NONE;
	p.base_ns = p.cap_ns = 20000000;
	use(p);
	struct script s = always(RESC_FAIL);
	clock_gettime(CLOCK_MONOTONIC, &a);
	runs(&s, RESC_E_ATTEMPTS, RESC_FAIL, 3);
	clock_gettime(CLOCK_MONOTONIC, &b);
	ck_assert_int_ge((b.tv_sec - a.tv_sec) * 1000 + (b.tv_nsec - a.tv_nsec) / 1000000, 39);
}
END_TEST

/* ---- the question alone ---- */

static int ask(resc_retry_plan *plan, enum resc_outcome outcome)
{
	int64_t wait = -1;
	int r = resc_retry(pay, plan, outcome, &wait);

	ck_assert_int_ge(wait, 0);
	ck_assert(r == 0 || wait == 0);
	return r;
}

START_TEST(only_failures_are_retried)
{
	static const struct {
		enum resc_outcome outcome;
		int answer;
	} cases[] = {{RESC_OK, RESC_E_NOT_RETRYABLE},
	             {RESC_FAIL, 0},
	             {RESC_TIMEOUT, 0},
	             {RESC_IGNORED, RESC_E_NOT_RETRYABLE},
	             {RESC_CANCELLED, RESC_E_NOT_RETRYABLE}};

	for (size_t i = 0; i < 5; i++) {
		resc_retry_plan plan = RESC_RETRY_INIT;
		ck_assert_int_eq(ask(&plan, cases[i].outcome), cases[i].answer);
		ck_assert_uint_eq(plan.attempts, 1);
	}
	ck_assert_uint_eq(named_look(&n).counters.retry_not_retryable, 3);
	ck_assert_uint_eq(named_look(&n).counters.retries, 2);
}
END_TEST

START_TEST(each_answer_moves_one_counter_and_only_yes_takes_a_token)
{
	struct policy p = plain();
	resc_retry_plan plan = RESC_RETRY_INIT;

	p.flags |= POLICY_BUDGET;
	p.budget_capacity = 10 * TOKEN;
	use(p);
	ck_assert_int_eq(ask(&plan, RESC_OK), RESC_E_NOT_RETRYABLE);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.flags = RESC_RETRIED_UPSTREAM;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_UPSTREAM);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.attempts = 2;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_ATTEMPTS);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.deadline_ns = resc_now_ns();
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_RETRY_DEADLINE);
	struct inspect_resource r = named_look(&n);
	ck_assert_double_eq(r.tokens, 10);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), 0);
	r = named_look(&n);
	ck_assert_double_eq(r.tokens, 9);
	ck_assert_uint_eq(r.counters.retry_not_retryable, 1);
	ck_assert_uint_eq(r.counters.retry_upstream, 1);
	ck_assert_uint_eq(r.counters.retry_attempts, 1);
	ck_assert_uint_eq(r.counters.retry_deadline, 1);
	ck_assert_uint_eq(r.counters.retries, 1);
	ck_assert_uint_eq(r.counters.enters, 0); /* they are no refusals of calls */
}
END_TEST

START_TEST(D5_the_answer_for_a_lone_failing_call_is_the_same_before_and_after_its_leave)
{
	for (int after = 0; after < 2; after++) {
		struct policy p = plain();
		resc_retry_plan plan = RESC_RETRY_INIT;
		resc_ticket ticket;
		p.flags |= POLICY_BUDGET;
		p.budget_ratio = TOKEN;
		p.budget_capacity = TOKEN;
		use(p);
		override_reset(&n.map, n.index, "");
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		if (after)
			ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
		ck_assert_int_eq(ask(&plan, RESC_FAIL), 0);
		if (!after)
			ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
		ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_BUDGET);
	}
}
END_TEST

START_TEST(D3_a_day_of_success_banks_no_more_than_the_capacity)
{
	struct policy p = plain();

	p.flags |= POLICY_BUDGET;
	p.attempts = 100;
	p.budget_capacity = 10 * TOKEN;
	use(p);
	for (int i = 0; i < 20000; i++) {
		resc_ticket ticket;
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	}
	ck_assert_double_eq(named_look(&n).tokens, 10);
	resc_retry_plan plan = RESC_RETRY_INIT;
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(ask(&plan, RESC_FAIL), 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_BUDGET);
	ck_assert_double_eq(named_look(&n).tokens, 0);
}
END_TEST

static void expect_counted(uint64_t retries, uint64_t budget, uint64_t in_flight, uint64_t would)
{
	struct inspect_resource r = named_look(&n);

	ck_assert_uint_eq(r.counters.retries, retries);
	ck_assert_uint_eq(r.counters.retry_budget, budget);
	ck_assert_uint_eq(r.counters.retry_in_flight, in_flight);
	ck_assert_uint_eq(r.counters.would_budget, would);
}

static int ask_new(enum resc_outcome outcome)
{
	resc_retry_plan plan = RESC_RETRY_INIT;

	return ask(&plan, outcome);
}

START_TEST(only_what_the_policy_names_is_retried)
{
	struct policy p = plain();

	p.retry_on = 1u << RESC_TIMEOUT;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_NOT_RETRYABLE);
	ck_assert_int_eq(ask_new(RESC_TIMEOUT), 0);
	p.retry_on = 1u << RESC_FAIL;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	ck_assert_int_eq(ask_new(RESC_TIMEOUT), RESC_E_NOT_RETRYABLE);
	p.retry_on = 0;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_NOT_RETRYABLE);
	/* Damage in the policy does not make a success one. */
	p.retry_on = 1u << RESC_OK | 1u << RESC_TIMEOUT;
	use(p);
	ck_assert_int_eq(ask_new(RESC_OK), RESC_E_NOT_RETRYABLE);
	/* A whole request ends with the answer to its first failure. */
	struct script s = always(RESC_FAIL);
	p.retry_on = 1u << RESC_TIMEOUT;
	use(p);
	runs(&s, RESC_E_NOT_RETRYABLE, RESC_FAIL, 1);
}
END_TEST

START_TEST(what_may_have_had_its_effect_is_not_repeated)
{
	resc_retry_plan plan = RESC_RETRY_INIT;

	plan.flags = RESC_NOT_IDEMPOTENT;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_NOT_RETRYABLE);
	ck_assert_int_eq(ask(&plan, RESC_TIMEOUT), RESC_E_NOT_RETRYABLE);
	plan.flags |= RESC_RETRIED_UPSTREAM; /* the first question answers */
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_NOT_RETRYABLE);
	ck_assert_uint_eq(named_look(&n).counters.retry_not_retryable, 3);
}
END_TEST

/* ---- the server's word ---- */

START_TEST(a_pushback_is_waited_for_exactly_and_used_once)
{
	struct policy p = plain();
	resc_retry_plan plan = RESC_RETRY_INIT;
	int64_t wait;

	p.attempts = 10;
	p.backoff = BACKOFF_FIXED;
	p.backoff_jitter = JITTER_NONE;
	p.base_ns = 3000000;
	p.cap_ns = 5000000;
	use(p);
	plan.pushback_ms = 7000; /* beyond the cap */
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(wait, INT64_C(7000000000));
	ck_assert_int_eq(plan.pushback_ms, RESC_NO_PUSHBACK);
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(wait, 3000000);
	plan.pushback_ms = 0; /* at once */
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(wait, 0);
	plan.pushback_ms = INT64_MAX;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(wait, INT64_MAX);
	ck_assert_uint_eq(named_look(&n).counters.retries, 4);
}
END_TEST

START_TEST(a_pushback_leaves_the_backoff_of_later_attempts_alone)
{
	struct policy p = plain();
	resc_retry_plan plan = RESC_RETRY_INIT;
	int64_t wait;

	p.attempts = 100;
	p.backoff = BACKOFF_EXPONENTIAL;
	p.backoff_jitter = JITTER_DECORRELATED;
	p.base_ns = 1000;
	p.cap_ns = INT64_C(3600) * 1000000000;
	use(p);
	plan.pushback_ms = 600000;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_le(wait, 3000); /* three times the base, not three times ten minutes */
}
END_TEST

START_TEST(a_server_that_says_no_is_not_asked_again)
{
	resc_retry_plan plan = RESC_RETRY_INIT;

	plan.pushback_ms = -1;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_PUSHBACK);
	ck_assert_int_eq(plan.pushback_ms, RESC_NO_PUSHBACK);
	ck_assert_uint_eq(plan.attempts, 1);
	plan.pushback_ms = INT64_MIN + 1;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_PUSHBACK);
	ck_assert_uint_eq(named_look(&n).counters.retry_pushback, 2);
	/* An outcome that is not retried comes first, and uses it up too. */
	plan.pushback_ms = -1;
	ck_assert_int_eq(ask(&plan, RESC_OK), RESC_E_NOT_RETRYABLE);
	ck_assert_int_eq(plan.pushback_ms, RESC_NO_PUSHBACK);
}
END_TEST

START_TEST(a_pushback_beyond_the_deadline_ends_it)
{
	resc_retry_plan plan = RESC_RETRY_INIT;

	plan.deadline_ns = resc_deadline_after_ms(1000);
	plan.pushback_ms = 999;
	int64_t wait;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	plan.pushback_ms = 1000;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_RETRY_DEADLINE);
	plan.attempts = 0;
	plan.pushback_ms = INT64_MAX; /* nothing wraps */
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_RETRY_DEADLINE);
	ck_assert_uint_eq(named_look(&n).counters.retry_deadline, 2);
}
END_TEST

START_TEST(an_error_uses_no_pushback)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	int64_t wait;

	plan.pushback_ms = 250;
	plan.flags = 8;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), -EINVAL);
	ck_assert_int_eq(plan.pushback_ms, 250);
}
END_TEST

/* ---- the budget with a threshold ---- */

static struct policy throttled(void)
{
	struct policy p = plain();

	p.flags |= POLICY_BUDGET;
	p.attempts = 100;
	p.budget_capacity = 10 * TOKEN;
	p.budget_threshold_ppm = 500000;
	return p;
}

START_TEST(E17_from_full_four_retries_and_none_until_more_than_half_is_there)
{
	use(throttled());
	struct script s = always(RESC_FAIL);
	runs(&s, RESC_E_BUDGET, RESC_FAIL, 5);
	ck_assert_double_eq(named_look(&n).tokens, 5);
	expect_counted(4, 1, 0, 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(ask_new(RESC_TIMEOUT), RESC_E_BUDGET);
	ck_assert_double_eq(named_look(&n).tokens, 0);
	/* 61 good calls are 6.1 tokens. */
	for (int i = 0; i < 61; i++) {
		struct script good = always(RESC_OK);
		runs(&good, 0, RESC_OK, 1);
	}
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_BUDGET);
}
END_TEST

START_TEST(with_a_threshold_every_failure_is_charged_once_whatever_the_answer)
{
	struct policy p = throttled();
	resc_retry_plan plan = RESC_RETRY_INIT;

	p.attempts = 2;
	use(p);
	plan.attempts = 1;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_ATTEMPTS);
	ck_assert_double_eq(named_look(&n).tokens, 9);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.flags = RESC_RETRIED_UPSTREAM;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_UPSTREAM);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.pushback_ms = -1;
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_PUSHBACK);
	ck_assert_double_eq(named_look(&n).tokens, 7);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.deadline_ns = resc_now_ns();
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_RETRY_DEADLINE);
	ck_assert_double_eq(named_look(&n).tokens, 6);
	/* What is no failure is not. */
	ck_assert_int_eq(ask_new(RESC_OK), RESC_E_NOT_RETRYABLE);
	ck_assert_int_eq(ask_new(RESC_CANCELLED), RESC_E_NOT_RETRYABLE);
	ck_assert_double_eq(named_look(&n).tokens, 6);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_BUDGET);
	ck_assert_double_eq(named_look(&n).tokens, 5);
	expect_counted(0, 1, 0, 0);
}
END_TEST

START_TEST(a_timeout_costs_what_the_policy_says)
{
	struct policy p = throttled();

	p.budget_threshold_ppm = 0;
	p.budget_timeout_cost = 5 * TOKEN;
	use(p);
	ck_assert_int_eq(ask_new(RESC_TIMEOUT), 0);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	ck_assert_int_eq(ask_new(RESC_TIMEOUT), RESC_E_BUDGET);
	ck_assert_double_eq(named_look(&n).tokens, 4);
}
END_TEST

/* ---- the cap on retries in flight ---- */

static struct policy capped(uint64_t floor, uint64_t share_ppm)
{
	struct policy p = plain();

	p.flags |= POLICY_RETRY_CAP;
	p.attempts = 100;
	p.retries_floor = floor;
	p.retries_share_ppm = share_ppm;
	return p;
}

/* So many calls of somebody else, the first of them retries. */
static void inside(unsigned calls, unsigned retries)
{
	for (unsigned i = 0; i < n.map.dims.permits; i++)
		fixture_store(map_permit(&n.map, n.state, i),
		              i >= calls ? 0 : permit_make(UINT32_MAX - 1, i + 1) | (i < retries ? PERMIT_RETRY : 0));
}

START_TEST(L19_retries_in_flight_are_capped)
{
	use(capped(2, 250000));
	inside(8, 1);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	inside(8, 2);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_RETRY_IN_FLIGHT);
	inside(12, 2);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	inside(0, 0);
	expect_counted(2, 0, 1, 0);
}
END_TEST

START_TEST(a_retry_that_failed_takes_its_own_place_again)
{
	resc_retry_plan plan = RESC_RETRY_INIT;

	use(capped(1, 0));
	inside(1, 0);
	ck_assert_int_eq(ask(&plan, RESC_FAIL), 0);
	/* The second attempt failed: it is inside as a retry, or has just left. */
	for (unsigned i = 0; i < 2; i++) {
		inside(i, i);
		ck_assert_int_eq(ask(&plan, RESC_FAIL), 0);
	}
	inside(2, 2);
	ck_assert_int_eq(ask(&plan, RESC_FAIL), RESC_E_RETRY_IN_FLIGHT);
	inside(0, 0);
}
END_TEST

START_TEST(D5_the_cap_gives_a_lone_failing_call_the_same_answer_before_and_after_its_leave)
{
	for (unsigned i = 0; i < 2; i++) {
		inside(i, 0);
		use(capped(0, 1000000));
		ck_assert_int_eq(ask_new(RESC_FAIL), 0);
		use(capped(0, 999999));
		ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_RETRY_IN_FLIGHT);
	}
	inside(0, 0);
}
END_TEST

START_TEST(what_the_cap_refuses_takes_no_token)
{
	struct policy p = capped(0, 0);

	p.flags |= POLICY_BUDGET;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_RETRY_IN_FLIGHT);
	ck_assert_double_eq(named_look(&n).tokens, 10);
	p.budget_threshold_ppm = 500000; /* a failure is one, though */
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_RETRY_IN_FLIGHT);
	ck_assert_double_eq(named_look(&n).tokens, 9);
}
END_TEST

/* What is inside while each attempt runs. */
struct watched {
	unsigned attempts;
	unsigned retries[4];
	double tokens[4];
};

static enum resc_outcome watch(void *arg, int64_t timeout_ms, unsigned number)
{
	struct watched *w = arg;
	unsigned calls;

	(void)timeout_ms;
	ck_assert_uint_le(number, 4);
	w->attempts = number;
	w->retries[number - 1] = retries_count(&n.map, n.state, &calls);
	w->tokens[number - 1] = named_look(&n).tokens;
	ck_assert_uint_eq(calls, 1);
	return RESC_FAIL;
}

START_TEST(attempts_after_the_first_are_retries_in_flight_and_deposit_nothing)
{
	struct watched w = {.attempts = 0};
	struct policy p = capped(1, 0);
	int last;

	p.flags |= POLICY_BUDGET;
	p.attempts = 3;
	p.budget_deposit = DEPOSIT_REQUEST;
	p.budget_ratio = TOKEN / 2;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0); /* so that the bucket is not full: 9 */
	ck_assert_int_eq(resc_run(pay, watch, &w, NULL, &last), RESC_E_ATTEMPTS);
	ck_assert_uint_eq(w.attempts, 3);
	ck_assert_uint_eq(w.retries[0], 0);
	ck_assert_uint_eq(w.retries[1], 1);
	ck_assert_uint_eq(w.retries[2], 1);
	ck_assert_double_eq(w.tokens[0], 9.5);
	ck_assert_double_eq(w.tokens[1], 8.5);
	ck_assert_double_eq(w.tokens[2], 7.5);
	/* A request that is a retry of the caller's own is one from the first attempt on. */
	resc_options options = RESC_OPTIONS_INIT;
	options.flags = RESC_RETRY;
	ck_assert_int_eq(resc_run(pay, watch, &w, &options, &last), RESC_E_ATTEMPTS);
	ck_assert_uint_eq(w.retries[0], 1);
	ck_assert_double_eq(w.tokens[0], 7.5);
}
END_TEST

START_TEST(D5_six_calls_that_fail_together_are_all_retried)
{
	/* Asked before the leave, and after it. */
	for (int before = 0; before < 2; before++) {
		struct policy p = capped(0, 1000000);
		resc_ticket tickets[6];
		resc_options options = RESC_OPTIONS_INIT;
		p.flags |= POLICY_BUDGET;
		p.budget_ratio = 0;
		p.budget_capacity = 6 * TOKEN;
		use(p);
		override_reset(&n.map, n.index, "");
		for (int i = 0; i < 6; i++)
			ck_assert_int_eq(resc_enter(pay, NULL, &tickets[i]), 0);
		options.flags = RESC_RETRY;
		for (int i = 0; i < 6; i++) {
			if (before)
				ck_assert_int_eq(ask_new(RESC_FAIL), 0);
			ck_assert_int_eq(resc_leave(&tickets[i], RESC_FAIL), 0);
			if (!before)
				ck_assert_int_eq(ask_new(RESC_FAIL), 0);
			ck_assert_int_eq(resc_enter(pay, &options, &tickets[i]), 0);
		}
		ck_assert_int_eq(ask_new(RESC_FAIL), RESC_E_BUDGET);
		for (int i = 0; i < 6; i++)
			ck_assert_int_eq(resc_leave(&tickets[i], RESC_FAIL), 0);
	}
}
END_TEST

static int enter_as_retry(resc_ticket *ticket)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.flags = RESC_RETRY;
	return resc_enter(pay, &options, ticket);
}

START_TEST(the_cap_binds_at_the_door)
{
	resc_ticket one, other;

	use(capped(1, 0));
	ck_assert_int_eq(enter_as_retry(&one), 0);
	ck_assert_int_eq(enter_as_retry(&other), RESC_E_RETRIES);
	ck_assert_int_eq(resc_leave(&one, RESC_OK), 0);
	ck_assert_int_eq(enter_as_retry(&one), 0);
	ck_assert_int_eq(resc_leave(&one, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&n).counters.refused_retries, 1);
}
END_TEST

/* ---- shadow mode ---- */

START_TEST(a_retry_beyond_the_cap_in_shadow_mode_is_counted_once_and_at_the_door)
{
	struct policy p = capped(0, 0);
	resc_ticket ticket;

	p.flags |= POLICY_SHADOW_BUDGET;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	expect_counted(1, 0, 0, 0);
	ck_assert_int_eq(enter_as_retry(&ticket), 0);
	expect_counted(1, 0, 0, 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	/* Also with a budget that has no token: the cap is asked before it. */
	p.flags |= POLICY_BUDGET;
	p.budget_capacity = TOKEN;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	expect_counted(3, 0, 0, 1);
	ck_assert_int_eq(enter_as_retry(&ticket), 0);
	expect_counted(3, 0, 0, 2);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	/* A whole request: two retries, each once. */
	struct script s = always(RESC_FAIL);
	p.attempts = 3;
	use(p);
	runs(&s, RESC_E_ATTEMPTS, RESC_FAIL, 3);
	expect_counted(5, 0, 0, 4);
}
END_TEST

START_TEST(a_budget_in_shadow_mode_counts_once_and_refuses_nothing)
{
	struct policy p = capped(0, 0);

	p.flags |= POLICY_BUDGET | POLICY_SHADOW_BUDGET;
	p.budget_capacity = TOKEN;
	use(p);
	override_reset(&n.map, n.index, "");
	ck_assert_int_eq(ask_new(RESC_FAIL), 0); /* the cap would have refused: for the door to count */
	expect_counted(1, 0, 0, 0);
	p.flags &= ~(uint64_t)POLICY_RETRY_CAP;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0); /* a token was there */
	expect_counted(2, 0, 0, 0);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	expect_counted(3, 0, 0, 1);
	p.budget_threshold_ppm = 500000;
	use(p);
	ck_assert_int_eq(ask_new(RESC_FAIL), 0);
	expect_counted(4, 0, 0, 2);
	ck_assert_int_eq(ask_new(RESC_OK), RESC_E_NOT_RETRYABLE); /* what the request is, is not in shadow */
	expect_counted(4, 0, 0, 2);
}
END_TEST

START_TEST(a_total_timeout_in_shadow_mode_cuts_nothing)
{
	struct policy p = e2();
	struct script s = always(RESC_TIMEOUT);

	p.flags |= POLICY_SHADOW_TIMEOUT;
	p.timeout_attempt_ms = 0;
	use(p);
	s.takes_ms = 700;
	runs(&s, RESC_E_ATTEMPTS, RESC_TIMEOUT, 3);
	ck_assert_int_eq(s.timeouts[2], -1);
}
END_TEST

START_TEST(wrong_plans_are_errors)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	int64_t wait;

	ck_assert_int_eq(resc_retry(NULL, &plan, RESC_FAIL, &wait), -EINVAL);
	ck_assert_int_eq(resc_retry(pay, NULL, RESC_FAIL, &wait), -EINVAL);
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, NULL), -EINVAL);
	ck_assert_int_eq(resc_retry(pay, &plan, (enum resc_outcome)5, &wait), -EINVAL);
	plan.flags = RESC_RETRY; /* of options only */
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), -EINVAL);
	plan.flags = 8;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), -EINVAL);
	ck_assert_uint_eq(plan.attempts, 0);
	/* Garbage in what is the library's own is bounded. */
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.previous_wait_ns = INT64_MIN;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	plan = (resc_retry_plan)RESC_RETRY_INIT;
	plan.attempts = UINT32_MAX;
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), RESC_E_ATTEMPTS);
	ck_assert_uint_eq(plan.attempts, UINT32_MAX);
}
END_TEST

/* ---- fallbacks ---- */

START_TEST(fallbacks_are_counted_by_kind)
{
	static const char *const kinds[] = {"stale", "cache", "default", "empty", "alternative", "whatever", ""};

	for (size_t i = 0; i < 7; i++)
		for (size_t k = 0; k <= i; k++)
			ck_assert_int_eq(resc_fallback(pay, kinds[i]), 0);
	struct resc_counters c;
	ck_assert_int_eq(resc_counters(pay, &c), 0);
	ck_assert_uint_eq(c.fallback_stale, 1);
	ck_assert_uint_eq(c.fallback_cache, 2);
	ck_assert_uint_eq(c.fallback_default, 3);
	ck_assert_uint_eq(c.fallback_empty, 4);
	ck_assert_uint_eq(c.fallback_alternative, 5);
	ck_assert_uint_eq(c.fallback_other, 13);
	ck_assert_int_eq(resc_fallback(NULL, "cache"), -EINVAL);
	ck_assert_int_eq(resc_fallback(pay, NULL), -EINVAL);
	ck_assert_int_eq(resc_counters(NULL, &c), -EINVAL);
	ck_assert_int_eq(resc_counters(pay, NULL), -EINVAL);
	ck_assert_int_eq(resc_state(NULL, NULL), -EINVAL);
	ck_assert_int_eq(resc_status(NULL, NULL), -EINVAL);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        the_first_good_answer_ends_it,
	        it_is_tried_until_it_works,
	        it_is_tried_as_often_as_the_policy_says,
	        an_outcome_that_is_none_is_a_failure,
	        wrong_arguments_are_errors,
	        a_refused_request_makes_no_attempt,
	        B11_the_breaker_may_end_it_between_two_attempts,
	        E6_only_one_layer_retries,
	        an_empty_budget_ends_it,
	        E2_a_dependency_that_hangs_costs_the_total_timeout_and_no_more,
	        E2_one_that_works_from_the_third_try,
	        no_retry_that_would_begin_after_the_deadline,
	        the_callers_deadline_counts_where_it_is_nearer,
	        without_any_timeout_there_is_none,
	        it_waits_between_attempts,
	        only_failures_are_retried,
	        each_answer_moves_one_counter_and_only_yes_takes_a_token,
	        D5_the_answer_for_a_lone_failing_call_is_the_same_before_and_after_its_leave,
	        D3_a_day_of_success_banks_no_more_than_the_capacity,
	        only_what_the_policy_names_is_retried,
	        what_may_have_had_its_effect_is_not_repeated,
	        a_pushback_is_waited_for_exactly_and_used_once,
	        a_pushback_leaves_the_backoff_of_later_attempts_alone,
	        a_server_that_says_no_is_not_asked_again,
	        a_pushback_beyond_the_deadline_ends_it,
	        an_error_uses_no_pushback,
	        E17_from_full_four_retries_and_none_until_more_than_half_is_there,
	        with_a_threshold_every_failure_is_charged_once_whatever_the_answer,
	        a_timeout_costs_what_the_policy_says,
	        L19_retries_in_flight_are_capped,
	        a_retry_that_failed_takes_its_own_place_again,
	        D5_the_cap_gives_a_lone_failing_call_the_same_answer_before_and_after_its_leave,
	        what_the_cap_refuses_takes_no_token,
	        attempts_after_the_first_are_retries_in_flight_and_deposit_nothing,
	        D5_six_calls_that_fail_together_are_all_retried,
	        the_cap_binds_at_the_door,
	        a_retry_beyond_the_cap_in_shadow_mode_is_counted_once_and_at_the_door,
	        a_budget_in_shadow_mode_counts_once_and_refuses_nothing,
	        a_total_timeout_in_shadow_mode_cuts_nothing,
	        wrong_plans_are_errors,
	        fallbacks_are_counted_by_kind,
	};

	return NAMED_RUN("run", tests, set_up, tear_down);
}
