/* SPDX-License-Identifier: MIT */
/*
 * Guards beside the breaker, as resc_enter asks them: shadow modes, priorities, timeouts of probes, and what a refusal tells its caller.
 * The rate limit, the throttle, waiting and the cap on retries have tests of their own.
 */
#include "override.h"
#include "permit.h"
#include "scene.h"

static struct policy breaker(uint64_t flags)
{
	struct policy p;

	policy_private(&p);
	p.flags |= flags;
	p.failure_rate_ppm = 0;
	p.consecutive = 1;
	p.cooldown_ms = 1000;
	return p;
}

static struct policy bulkhead(uint64_t limit)
{
	struct policy p = breaker(POLICY_BULKHEAD);

	p.limit = limit;
	return p;
}

static struct inspect_resource look(void)
{
	return named_look(&n);
}

static int enter_as(enum resc_priority priority, resc_ticket *ticket)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = priority;
	return resc_enter(pay, &options, ticket);
}

static int enter(resc_ticket *ticket)
{
	return enter_as(RESC_NORMAL, ticket);
}

static void call(enum resc_outcome outcome)
{
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, outcome), 0);
}

/* What a refusal says about coming back. Nothing else is in the ticket. */
static int64_t hint(int expected)
{
	resc_ticket ticket;
	const resc_ticket zero = {.timeout_ms = 0};

	ck_assert_int_eq(enter(&ticket), expected);
	int64_t ms = ticket.retry_after_ms;
	ticket.retry_after_ms = 0;
	ck_assert_mem_eq(&ticket, &zero, sizeof ticket);
	return ms;
}

/* ---- shadow modes ---- */

START_TEST(a_breaker_in_shadow_mode_moves_and_refuses_nothing)
{
	use(breaker(POLICY_SHADOW_BREAKER));
	call(RESC_FAIL);
	ck_assert_uint_eq(look().breaker, TAG_OPEN);
	for (int i = 0; i < 5; i++)
		call(RESC_OK); /* results of an open breaker count for nothing */
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.counters.would_open, 5);
	ck_assert_uint_eq(r.counters.refused_open, 0);
	ck_assert_uint_eq(r.counters.admitted, 6);
	later(1000);
	resc_ticket probe, other;
	ck_assert_int_eq(enter(&probe), 0);
	ck_assert(probe.probe);
	ck_assert_int_eq(enter(&other), 0);
	ck_assert(!other.probe);
	ck_assert_uint_eq(look().counters.would_half_open, 1);
	ck_assert_int_eq(resc_leave(&other, RESC_FAIL), 0); /* not a result of the trial */
	ck_assert_uint_eq(look().breaker, TAG_HALF_OPEN);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
	ck_assert_uint_eq(look().breaker, TAG_CLOSED);
}
END_TEST

START_TEST(a_bulkhead_in_shadow_mode_counts_who_would_not_have_fitted)
{
	struct policy p = bulkhead(2);
	resc_ticket tickets[5];

	p.flags |= POLICY_SHADOW_BULKHEAD;
	use(p);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	ck_assert_uint_eq(look().in_flight, 5);
	ck_assert_uint_eq(look().counters.would_full, 3);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
	call(RESC_OK);
	ck_assert_uint_eq(look().counters.would_full, 3);
	ck_assert_uint_eq(look().counters.refused_full, 0);
}
END_TEST

START_TEST(from_shadow_to_enforce_nobody_loses_a_permit)
{
	struct policy p = bulkhead(2);
	resc_ticket tickets[4], more;

	p.flags |= POLICY_SHADOW_BULKHEAD;
	use(p);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	use(bulkhead(2));
	ck_assert_int_eq(enter(&more), RESC_E_FULL);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
	ck_assert_int_eq(enter(&more), RESC_E_FULL); /* two are still inside */
	ck_assert_int_eq(resc_leave(&tickets[2], RESC_OK), 0);
	ck_assert_int_eq(enter(&more), 0);
	ck_assert_int_eq(resc_leave(&more, RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&tickets[3], RESC_OK), 0);
	ck_assert_uint_eq(look().in_flight, 0);
}
END_TEST

START_TEST(a_call_that_another_guard_refuses_is_not_a_would)
{
	struct policy p = bulkhead(1);
	resc_ticket held, other;

	p.flags |= POLICY_SHADOW_BREAKER;
	use(p);
	call(RESC_FAIL);
	ck_assert_int_eq(enter(&held), 0);
	ck_assert_uint_eq(look().counters.would_open, 1);
	ck_assert_int_eq(enter(&other), RESC_E_FULL);
	ck_assert_uint_eq(look().counters.would_open, 1);
	ck_assert_uint_eq(look().counters.refused_full, 1);
	ck_assert_int_eq(resc_leave(&held, RESC_OK), 0);
}
END_TEST

START_TEST(timeouts_in_shadow_mode_are_counted_and_not_given)
{
	struct policy p = breaker(POLICY_SHADOW_TIMEOUT);
	resc_ticket ticket;

	p.flags &= ~(uint64_t)POLICY_LATENCY;
	p.timeout_attempt_ms = 100;
	use(p);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(ticket.timeout_ms, -1);
	later(100);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(look().counters.would_timeout, 0);
	ck_assert_int_eq(enter(&ticket), 0);
	later(101);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(look().counters.would_timeout, 1);
}
END_TEST

START_TEST(who_asks_for_timeouts_in_shadow_mode_is_not_told)
{
	struct policy p = breaker(POLICY_TIMEOUT | POLICY_SHADOW_TIMEOUT);
	struct resc_timeouts told;

	p.timeout_attempt_ms = p.timeout_connect_ms = p.timeout_total_ms = p.timeout_probe_ms = 100;
	use(p);
	ck_assert_int_eq(resc_timeouts(pay, &told), 0);
	ck_assert_int_eq(told.attempt_ms, -1);
	ck_assert_int_eq(told.connect_ms, -1);
	ck_assert_int_eq(told.total_ms, -1);
	ck_assert_int_eq(told.probe_ms, -1);
}
END_TEST

START_TEST(the_timeout_of_a_probe_in_shadow_mode_is_that_of_a_probe)
{
	struct policy p = breaker(POLICY_SHADOW_TIMEOUT);
	resc_ticket ticket;

	p.timeout_attempt_ms = 100;
	p.timeout_probe_ms = 50;
	use(p);
	call(RESC_FAIL);
	later(1000);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert(ticket.probe);
	later(51);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(look().counters.would_timeout, 1);
}
END_TEST

/* ---- priorities ---- */

static struct policy shares(uint64_t limit, uint64_t critical, uint64_t normal, uint64_t low)
{
	struct policy p = bulkhead(limit);

	p.critical_ppm = critical;
	p.normal_ppm = normal;
	p.low_ppm = low;
	return p;
}

START_TEST(low_priority_is_refused_first_whoever_fills_the_bulkhead)
{
	resc_ticket tickets[10], refused;

	use(shares(10, 1000000, 800000, 500000));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter_as(RESC_CRITICAL, &tickets[i]), 0);
	ck_assert_int_eq(enter_as(RESC_LOW, &tickets[4]), 0);
	ck_assert_int_eq(enter_as(RESC_LOW, &refused), RESC_E_PRIORITY); /* half is used */
	for (int i = 5; i < 8; i++)
		ck_assert_int_eq(enter_as(RESC_NORMAL, &tickets[i]), 0);
	ck_assert_int_eq(enter_as(RESC_NORMAL, &refused), RESC_E_PRIORITY);
	for (int i = 8; i < 10; i++)
		ck_assert_int_eq(enter_as(RESC_CRITICAL, &tickets[i]), 0);
	ck_assert_int_eq(enter_as(RESC_CRITICAL, &refused), RESC_E_FULL);
	ck_assert_int_eq(enter_as(RESC_LOW, &refused), RESC_E_FULL);
	ck_assert_uint_eq(look().in_flight, 10);
	ck_assert_uint_eq(look().counters.refused_priority, 2);
	ck_assert_uint_eq(look().counters.refused_full, 2);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
	ck_assert_uint_eq(look().in_flight, 0);
}
END_TEST

START_TEST(a_share_of_a_small_limit_is_at_least_one_call)
{
	resc_ticket ticket, refused;

	use(shares(1, 1000000, 1000000, 1));
	ck_assert_int_eq(enter_as(RESC_LOW, &ticket), 0);
	ck_assert_int_eq(enter_as(RESC_LOW, &refused), RESC_E_FULL);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

START_TEST(shares_follow_a_limit_that_is_being_lowered)
{
	resc_ticket tickets[6], refused;

	use(shares(10, 1000000, 1000000, 500000));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter_as(RESC_CRITICAL, &tickets[i]), 0);
	use(shares(8, 1000000, 1000000, 500000));
	ck_assert_int_eq(enter_as(RESC_LOW, &refused), RESC_E_PRIORITY); /* four of eight are in use */
	ck_assert_int_eq(resc_leave(&tickets[0], RESC_OK), 0);
	ck_assert_int_eq(enter_as(RESC_LOW, &tickets[0]), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
}
END_TEST

START_TEST(a_bulkhead_in_shadow_mode_counts_priorities)
{
	struct policy p = shares(4, 1000000, 1000000, 500000);
	resc_ticket tickets[3];

	p.flags |= POLICY_SHADOW_BULKHEAD;
	use(p);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter_as(RESC_LOW, &tickets[i]), 0);
	ck_assert_uint_eq(look().counters.would_priority, 1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
}
END_TEST

START_TEST(a_share_in_shadow_mode_follows_workers_that_leave)
{
	resc *others[3];
	resc_ticket tickets[2];
	struct policy p = bulkhead(1);

	p.flags |= POLICY_SHADOW_BULKHEAD;
	p.limit_share_ppm = 1000000;
	for (int i = 0; i < 3; i++)
		others[i] = named_join(n.instance);
	resc *last = named_join(n.instance);
	use(p);
	resc_resource *its = named_lookup(last, "payments");
	for (int i = 0; i < 3; i++)
		resc_close(others[i]);
	resc_close(host);
	host = last;
	ck_assert_uint_eq(look().limit, 1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(resc_enter(its, NULL, &tickets[i]), 0);
	ck_assert_uint_eq(look().counters.would_full, 1);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
}
END_TEST

START_TEST(a_full_bulkhead_in_shadow_mode_is_full_and_no_more)
{
	resc_ticket tickets[3];
	struct policy p = shares(2, 1000000, 1000000, 500000);

	p.flags |= POLICY_SHADOW_BULKHEAD;
	use(p);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(enter_as(RESC_NORMAL, &tickets[i]), 0);
	ck_assert_int_eq(enter_as(RESC_LOW, &tickets[2]), 0);
	/* As it would be said without the shadow: one reason a call. */
	ck_assert_uint_eq(look().counters.would_full, 1);
	ck_assert_uint_eq(look().counters.would_priority, 0);
}
END_TEST

/* ---- what a refusal tells ---- */

START_TEST(an_open_breaker_says_when_it_is_due)
{
	use(breaker(0));
	call(RESC_FAIL);
	later(300);
	ck_assert_int_eq(hint(RESC_E_OPEN), 700);
	later(699);
	ck_assert_int_eq(hint(RESC_E_OPEN), 1);
}
END_TEST

START_TEST(an_override_says_when_it_ends)
{
	use(breaker(0));
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 5000, "unit"), 0);
	later(1000);
	ck_assert_int_eq(hint(RESC_E_FORCED_OPEN), 4000);
}
END_TEST

START_TEST(a_full_bulkhead_says_what_its_policy_says)
{
	struct policy p = bulkhead(1);
	resc_ticket held;

	use(p);
	ck_assert_int_eq(enter(&held), 0);
	ck_assert_int_eq(hint(RESC_E_FULL), -1);
	p.retry_after_ms = 2500;
	use(p);
	ck_assert_int_eq(hint(RESC_E_FULL), 2500);
	ck_assert_int_eq(resc_leave(&held, RESC_OK), 0);
}
END_TEST

START_TEST(who_waits_for_a_probe_is_told_nothing)
{
	resc_ticket probe;

	use(breaker(0));
	call(RESC_FAIL);
	later(1000);
	ck_assert_int_eq(enter(&probe), 0);
	ck_assert_int_eq(hint(RESC_E_HALF_OPEN), -1);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
}
END_TEST

/* ---- timeouts ---- */

START_TEST(L14_a_probe_has_a_timeout_of_its_own)
{
	struct policy p = breaker(0);
	struct resc_timeouts timeouts;
	resc_options options = RESC_OPTIONS_INIT;
	resc_ticket ticket;

	p.timeout_attempt_ms = 800;
	p.timeout_probe_ms = 50;
	use(p);
	ck_assert_int_eq(resc_timeouts(pay, &timeouts), 0);
	ck_assert_int_eq(timeouts.probe_ms, 50);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(ticket.timeout_ms, 800);
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
	later(1000);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert(ticket.probe);
	ck_assert_int_eq(ticket.timeout_ms, 50);
	ck_assert_int_eq(resc_leave(&ticket, RESC_CANCELLED), 0);
	options.deadline_ns = resc_deadline_after_ms(20);
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), 0);
	ck_assert_int_eq(ticket.timeout_ms, 20);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(ticket.timeout_ms, 800);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_breaker_in_shadow_mode_moves_and_refuses_nothing,
	        a_bulkhead_in_shadow_mode_counts_who_would_not_have_fitted,
	        from_shadow_to_enforce_nobody_loses_a_permit,
	        a_call_that_another_guard_refuses_is_not_a_would,
	        timeouts_in_shadow_mode_are_counted_and_not_given,
	        who_asks_for_timeouts_in_shadow_mode_is_not_told,
	        the_timeout_of_a_probe_in_shadow_mode_is_that_of_a_probe,
	        low_priority_is_refused_first_whoever_fills_the_bulkhead,
	        a_share_in_shadow_mode_follows_workers_that_leave,
	        a_full_bulkhead_in_shadow_mode_is_full_and_no_more,
	        a_share_of_a_small_limit_is_at_least_one_call,
	        shares_follow_a_limit_that_is_being_lowered,
	        a_bulkhead_in_shadow_mode_counts_priorities,
	        an_open_breaker_says_when_it_is_due,
	        an_override_says_when_it_ends,
	        a_full_bulkhead_says_what_its_policy_says,
	        who_waits_for_a_probe_is_told_nothing,
	        L14_a_probe_has_a_timeout_of_its_own,
	};

	return FIXTURE_RUN("guards", tests, scene_set_up, scene_tear_down);
}
