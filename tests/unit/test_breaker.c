/* SPDX-License-Identifier: MIT */
/* The breaker, as workers see it: when it opens and why, who is let through to try, and what a late or a dead caller cannot do to it. */
#include <errno.h>
#include <pthread.h>

#include <sys/mman.h>

#include "override.h"
#include "permit.h"
#include "random.h"
#include "scene.h"

/* No rule and no guard but what the test says. */
static struct policy plain(void)
{
	struct policy p;

	policy_private(&p);
	p.failure_rate_ppm = 0;
	p.min_calls = 1;
	p.limit = 1;
	return p;
}

static struct policy consecutive(uint64_t failures, uint64_t cooldown_ms)
{
	struct policy p = plain();

	p.consecutive = failures;
	p.cooldown_ms = cooldown_ms;
	return p;
}

static struct policy rate(uint64_t window_ms, uint64_t min_calls, uint64_t failure_rate_ppm)
{
	struct policy p = plain();

	p.window_ms = window_ms;
	p.min_calls = min_calls;
	p.failure_rate_ppm = failure_rate_ppm;
	return p;
}

static struct inspect_resource look(void)
{
	struct inspect_resource r = named_look(&n);
	struct resc_state s;

	/* The library's own answer is the same. */
	ck_assert_int_eq(resc_state(pay, &s), 0);
	ck_assert_int_eq(s.breaker, r.breaker == TAG_OPEN ? RESC_BREAKER_OPEN : r.breaker == TAG_HALF_OPEN ? RESC_HALF_OPEN : RESC_CLOSED);
	ck_assert_int_eq(s.probe_due, r.probe_due);
	ck_assert_uint_eq(s.generation, r.generation);
	ck_assert_uint_eq(s.probes_out, r.probes_out);
	return r;
}

static unsigned state(void)
{
	return look().breaker;
}

static int enter(resc_ticket *ticket)
{
	return resc_enter(pay, NULL, ticket);
}

/* One admitted call. Returns what leave said. */
static int call(enum resc_outcome outcome)
{
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	return resc_leave(&ticket, outcome);
}

static void call_for(enum resc_outcome outcome, uint64_t took_ms)
{
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	later(took_ms);
	ck_assert_int_eq(resc_leave(&ticket, outcome), 0);
}

static void calls(unsigned count, enum resc_outcome outcome)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(call(outcome), 0);
}

static int refused(void)
{
	resc_ticket ticket;
	int r = enter(&ticket);

	ck_assert_int_gt(r, 0);
	return r;
}

/* Open with consecutive failures. */
static void trip(void)
{
	calls((unsigned)n.policy.consecutive, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}

static void trip_and_cool(void)
{
	trip();
	at(look().due_ms);
}

/* ---- failures in a row ---- */

START_TEST(B1_failures_in_a_row_are_in_a_row)
{
	use(consecutive(2, 1000));
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(look().consecutive, 1);
	calls(10000, RESC_OK);
	ck_assert_uint_eq(look().consecutive, 0);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(look().consecutive, 1);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_TIMEOUT);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.reason, REASON_CONSECUTIVE);
	ck_assert_uint_eq(r.counters.opened, 1);
}
END_TEST

START_TEST(B1_neutral_outcomes_neither_count_nor_reset)
{
	use(consecutive(2, 1000));
	calls(1, RESC_FAIL);
	calls(50, RESC_IGNORED);
	calls(50, RESC_CANCELLED);
	ck_assert_uint_eq(look().consecutive, 1);
	ck_assert_uint_eq(look().window_calls, 1);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(B11_each_try_is_booked_and_a_refused_one_is_not)
{
	use(consecutive(5, 1000));
	for (int request = 0; request < 2; request++) {
		resc_retry_plan plan = RESC_RETRY_INIT;
		for (int attempt = 0; attempt < 3 && state() == TAG_CLOSED; attempt++) {
			int64_t wait;
			calls(1, RESC_FAIL);
			resc_retry(pay, &plan, RESC_FAIL, &wait);
		}
	}
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.counters.ended_fail, 5); /* on the fifth failure on the wire */
	ck_assert_int_eq(refused(), RESC_E_OPEN);
	r = look();
	ck_assert_uint_eq(r.counters.ended_fail, 5);
	ck_assert_uint_eq(r.counters.refused_open, 1);
	ck_assert_uint_eq(r.counters.enters, 6);
}
END_TEST

START_TEST(all_workers_learn_together)
{
	struct puppet p = puppet_start(n.instance, NULL);

	use(consecutive(4, 1000));
	calls(2, RESC_FAIL);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(puppet_enter(&p, 0), 0);
		ck_assert_int_eq(puppet_leave(&p, 0, RESC_FAIL), 0);
	}
	ck_assert_int_eq(refused(), RESC_E_OPEN);
	ck_assert_int_eq(puppet_enter(&p, 0), RESC_E_OPEN);
	puppet_quit(&p);
}
END_TEST

/* ---- rates over a window ---- */

START_TEST(B2_no_call_outside_the_window_counts)
{
	use(rate(5000, 3, 1000000));
	at(10000);
	calls(1, RESC_FAIL);
	at(15000);
	calls(1, RESC_FAIL);
	at(16000);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(look().window_failures, 2);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	at(16500);
	calls(1, RESC_FAIL);
	ck_assert_int_eq(look().reason, REASON_FAILURE_RATE);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(B2_the_window_is_nine_tenths_to_all_of_its_length)
{
	/* A call at the start of a bucket counts for the whole window, at its end for one bucket less; never longer. */
	static const struct {
		uint64_t first, second;
		bool inside;
	} cases[] = {{20000, 24999, true}, {20000, 25000, false}, {20499, 24999, true}, {20499, 25000, false}};

	for (size_t i = 0; i < 4; i++) {
		use(rate(5000, 2, 1000000));
		at(cases[i].first);
		calls(1, RESC_FAIL);
		at(cases[i].second);
		calls(1, RESC_FAIL);
		ck_assert_uint_eq(state(), cases[i].inside ? TAG_OPEN : TAG_CLOSED);
		ck_assert_int_eq(override_reset(&n.map, n.index, ""), 0);
	}
}
END_TEST

START_TEST(B2_however_long_the_idle_time_before)
{
	static const uint64_t idles[] = {5000, 8000, 16 * 500, 32 * 500, 3600000, 86400000, UINT64_C(1) << 36};

	use(rate(5000, 2, 1000000));
	for (size_t i = 0; i < sizeof idles / sizeof idles[0]; i++) {
		calls(1, RESC_FAIL);
		later(idles[i]);
		struct inspect_resource r = look();
		ck_assert_uint_eq(r.window_calls, 0);
		calls(1, RESC_FAIL);
		/* The first one of a new bucket counts like any other. */
		ck_assert_uint_eq(look().window_calls, 1);
		ck_assert_uint_eq(state(), TAG_CLOSED);
		later(5000);
	}
}
END_TEST

START_TEST(B5_at_the_threshold_it_opens)
{
	use(rate(10000, 10, 1000000));
	calls(9, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED); /* 9 of at least 10 */
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);

	override_reset(&n.map, n.index, "");
	use(rate(10000, 10, 500000));
	calls(5, RESC_FAIL);
	calls(4, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_OK); /* the call that makes them ten is a good one */
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.reason, REASON_FAILURE_RATE);

	override_reset(&n.map, n.index, "");
	calls(6, RESC_OK);
	calls(4, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED); /* 5 of 11 */
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN); /* 6 of 12 */
}
END_TEST

START_TEST(B5_fractions_of_a_percent)
{
	use(rate(10000, 10, 1000)); /* 0.1 % */
	calls(1000, RESC_OK);
	calls(1, RESC_FAIL); /* 1 of 1001 */
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(B5_only_good_calls_never_open_it)
{
	use(rate(10000, 1, 1));
	calls(5000, RESC_OK);
	calls(50, RESC_IGNORED);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(B7_the_window_rolls)
{
	use(rate(10000, 20, 500000));
	for (int tenth = 0; tenth < 100; tenth++) {
		calls(100, RESC_OK);
		later(100);
	}
	/* A tumbling window would have begun anew here, and seen 90 % of failures. */
	for (int tenth = 0; tenth < 10; tenth++) {
		for (int i = 0; i < 100; i++) {
			ck_assert_int_eq(call(i % 10 == 0 ? RESC_OK : RESC_FAIL), 0);
			ck_assert_uint_eq(fixture_load(&n.state->breaker) >> 61, TAG_CLOSED);
		}
		later(100);
	}
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.window_failures, 900);
	ck_assert_uint_ge(r.window_calls, 9000);
}
END_TEST

START_TEST(H6_a_new_window_length_starts_a_window_and_keeps_the_state)
{
	use(rate(10000, 20, 500000));
	calls(19, RESC_FAIL);
	use(rate(60000, 20, 500000));
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_le(look().window_calls, 20);
	use(consecutive(1, 30000));
	calls(1, RESC_FAIL);
	uint64_t due = look().due_ms;
	uint64_t word_before = fixture_load(&n.state->breaker);
	use(consecutive(1, 30000));
	struct policy p = consecutive(1, 30000);
	p.attempts = 9;
	use(p);
	ck_assert_uint_eq(fixture_load(&n.state->breaker), word_before);
	ck_assert_uint_eq(look().due_ms, due);
}
END_TEST

/* ---- slow calls ---- */

static struct policy slow(uint64_t slow_ms, uint64_t slow_rate_ppm, uint64_t probes)
{
	struct policy p = plain();

	p.slow_call_ns = slow_ms * 1000000;
	p.slow_rate_ppm = slow_rate_ppm;
	p.min_calls = 2;
	p.probes = p.successes = probes;
	p.cooldown_ms = 100;
	return p;
}

START_TEST(A11_slow_is_strictly_longer)
{
	static const struct {
		uint64_t took_ms;
		bool slow;
	} cases[] = {{999, false}, {1000, false}, {1001, true}};

	for (size_t i = 0; i < 3; i++) {
		use(slow(1000, 500000, 1));
		call_for(RESC_OK, cases[i].took_ms);
		ck_assert_uint_eq(look().window_slow, cases[i].slow);
		call_for(RESC_OK, 1);
		struct inspect_resource r = look();
		ck_assert_uint_eq(r.breaker, cases[i].slow ? TAG_OPEN : TAG_CLOSED);
		if (cases[i].slow)
			ck_assert_int_eq(r.reason, REASON_SLOW_RATE);
		override_reset(&n.map, n.index, "");
	}
}
END_TEST

START_TEST(A11_a_slow_success_of_a_probe_opens_it_again_and_says_so)
{
	use(slow(1000, 500000, 2));
	for (int i = 0; i < 2; i++)
		call_for(RESC_OK, 1500);
	ck_assert_uint_eq(state(), TAG_OPEN);
	later(100);
	call_for(RESC_OK, 5000);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.reason, REASON_PROBE_SLOW);
	ck_assert_uint_eq(r.reopened, 1);

	/* Without the rule the same two probes close it. */
	struct policy p = slow(1000, 0, 2);
	p.consecutive = 1;
	use(p);
	at(look().due_ms);
	call_for(RESC_OK, 5000);
	call_for(RESC_OK, 5000);
	r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_int_eq(r.reason, REASON_PROBES_OK);
}
END_TEST

START_TEST(failed_and_slow_is_in_both_tallies_and_one_call)
{
	struct policy p = slow(10, 1000000, 1);

	p.min_calls = 100;
	use(p);
	call_for(RESC_FAIL, 20);
	call_for(RESC_OK, 20);
	call_for(RESC_FAIL, 1);
	call_for(RESC_OK, 1);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.window_calls, 4);
	ck_assert_uint_eq(r.window_failures, 2);
	ck_assert_uint_eq(r.window_slow, 2);
	ck_assert_uint_eq(r.counters.slow, 2);
	ck_assert_uint_eq(r.latency.count, 4);
}
END_TEST

/* ---- open ---- */

START_TEST(E13_the_published_timeline)
{
	static const struct {
		uint64_t second;
		enum resc_outcome dependency;
		int answer;
		unsigned state_after;
	} steps[] = {
	        {0, RESC_OK, 0, TAG_CLOSED},          {5, RESC_FAIL, 0, TAG_CLOSED},         {6, RESC_FAIL, 0, TAG_CLOSED},
	        {7, RESC_FAIL, 0, TAG_OPEN},          {8, RESC_FAIL, RESC_E_OPEN, TAG_OPEN}, {20, RESC_FAIL, RESC_E_OPEN, TAG_OPEN},
	        {40, RESC_FAIL, 0, TAG_OPEN},         /* the trial fails */
	        {55, RESC_OK, RESC_E_OPEN, TAG_OPEN}, /* refused although healthy */
	        {75, RESC_OK, 0, TAG_CLOSED},         /* the trial succeeds */
	        {76, RESC_OK, 0, TAG_CLOSED},
	};

	use(consecutive(3, 30000));
	for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
		resc_ticket ticket;
		at(1000 + steps[i].second * 1000);
		int r = enter(&ticket);
		ck_assert_msg(r == steps[i].answer, "at %d s: %d", (int)steps[i].second, r);
		if (r == 0) {
			ck_assert_int_eq(ticket.probe, steps[i].second == 40 || steps[i].second == 75);
			ck_assert_int_eq(resc_leave(&ticket, steps[i].dependency), 0);
		}
		ck_assert_msg(state() == steps[i].state_after, "at %d s", (int)steps[i].second);
	}
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.counters.opened, 2);
	ck_assert_uint_eq(r.counters.half_opened, 2);
	ck_assert_uint_eq(r.counters.closed, 1);
	ck_assert_uint_eq(r.counters.probes, 2);
	ck_assert_uint_eq(r.counters.refused_open, 3);
}
END_TEST

START_TEST(K4_without_traffic_it_stays_open_and_a_probe_is_due)
{
	use(consecutive(1, 5000));
	trip();
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.since_ms, scene_ms);
	ck_assert_uint_eq(r.due_ms, scene_ms + 5000);
	ck_assert(!r.probe_due);
	later(3600000);
	uint64_t word_before = fixture_load(&n.state->breaker);
	for (int i = 0; i < 10; i++) {
		r = look();
		ck_assert_uint_eq(r.breaker, TAG_OPEN);
		ck_assert(r.probe_due);
		ck_assert_uint_eq(r.probes_out, 0);
	}
	ck_assert_uint_eq(fixture_load(&n.state->breaker), word_before); /* reading moves nothing */
	struct resc_state s;
	resc_state(pay, &s);
	ck_assert_int_eq(s.due_ms, 0);
}
END_TEST

START_TEST(one_millisecond_before_it_is_due_it_refuses)
{
	use(consecutive(1, 5000));
	trip();
	later(4999);
	ck_assert_int_eq(refused(), RESC_E_OPEN);
	struct resc_state s;
	resc_state(pay, &s);
	ck_assert_int_eq(s.due_ms, 1);
	later(1);
	ck_assert_int_eq(call(RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(the_cooldown_grows_with_each_reopening_up_to_its_maximum)
{
	static const uint64_t cooldowns[] = {100, 200, 350, 350, 350};
	struct policy p = consecutive(1, 100);

	p.cooldown_factor_ppm = 2000000;
	p.cooldown_max_ms = 350;
	use(p);
	for (size_t i = 0; i < 5; i++) {
		calls(1, RESC_FAIL);
		struct inspect_resource r = look();
		ck_assert_uint_eq(r.reopened, i);
		ck_assert_uint_eq(r.due_ms - scene_ms, cooldowns[i]);
		at(r.due_ms);
	}
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(look().due_ms - scene_ms, 100); /* back to the first after a close */
}
END_TEST

START_TEST(the_streak_of_reopenings_does_not_wrap)
{
	struct policy p = consecutive(1, 100);

	p.cooldown_factor_ppm = 1100000;
	use(p);
	uint64_t last = 0;
	for (int i = 0; i < 60; i++) {
		calls(1, RESC_FAIL);
		struct inspect_resource r = look();
		ck_assert_uint_ge(r.due_ms - scene_ms, last);
		last = r.due_ms - scene_ms;
		at(r.due_ms);
	}
}
END_TEST

START_TEST(A7_jitter_lengthens_by_up_to_its_share_and_is_drawn_once)
{
	struct policy p = consecutive(1, 60000);
	uint64_t least = UINT64_MAX, most = 0;
	struct puppet other = puppet_start(n.instance, NULL);

	p.jitter_ppm = 150000;
	use(p);
	for (int i = 0; i < 100; i++) {
		trip();
		uint64_t due = look().due_ms, drawn = due - scene_ms;
		ck_assert_uint_ge(drawn, 60000);
		ck_assert_uint_le(drawn, 69000);
		least = drawn < least ? drawn : least;
		most = drawn > most ? drawn : most;
		/* Each worker reads the same due time: refused until then, admitted from then on. */
		at(due - 1);
		ck_assert_int_eq(refused(), RESC_E_OPEN);
		ck_assert_int_eq(puppet_enter(&other, 0), RESC_E_OPEN);
		ck_assert_uint_eq(look().due_ms, due);
		at(due);
		ck_assert_int_eq(puppet_enter(&other, 0), 0);
		ck_assert_int_eq(puppet_leave(&other, 0, RESC_OK), 0);
		ck_assert_uint_eq(state(), TAG_CLOSED);
	}
	ck_assert_uint_lt(least, 62000);
	ck_assert_uint_gt(most, 67000);
	puppet_quit(&other);
}
END_TEST

START_TEST(A7_the_ends_of_jitter)
{
	struct policy p = consecutive(1, 1000);

	for (int i = 0; i < 50; i++) {
		p.jitter_ppm = 0;
		use(p);
		trip();
		ck_assert_uint_eq(look().due_ms, scene_ms + 1000);
		override_reset(&n.map, n.index, "");
		p.jitter_ppm = 1000000;
		use(p);
		trip();
		ck_assert_uint_ge(look().due_ms, scene_ms + 1000);
		ck_assert_uint_le(look().due_ms, scene_ms + 2000);
		override_reset(&n.map, n.index, "");
	}
}
END_TEST

START_TEST(late_results_are_stale_and_move_nothing)
{
	resc_ticket late[4];

	use(consecutive(2, 1000));
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter(&late[i]), 0);
	trip();
	uint64_t word_before = fixture_load(&n.state->breaker);
	ck_assert_int_eq(resc_leave(&late[0], RESC_FAIL), RESC_STALE);
	ck_assert_int_eq(resc_leave(&late[1], RESC_OK), RESC_STALE);
	ck_assert_uint_eq(fixture_load(&n.state->breaker), word_before);
	later(1000);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	/* Closed again, and they are of two generations ago. */
	ck_assert_int_eq(resc_leave(&late[2], RESC_FAIL), RESC_STALE);
	ck_assert_int_eq(resc_leave(&late[3], RESC_FAIL), RESC_STALE);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.consecutive, 0);
	ck_assert_uint_eq(r.window_calls, 0);
	ck_assert_uint_eq(r.counters.stale, 4);
	ck_assert_uint_eq(r.in_flight, 0);
}
END_TEST

/* ---- half-open ---- */

static struct policy trial(uint64_t probes, uint64_t successes)
{
	struct policy p = consecutive(3, 200);

	p.probes = probes;
	p.successes = successes;
	p.probe_timeout_ms = 500;
	return p;
}

START_TEST(at_most_so_many_probes_are_out)
{
	resc_ticket probes[3];

	use(trial(3, 3));
	trip_and_cool();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(enter(&probes[i]), 0);
		ck_assert(probes[i].probe);
	}
	for (int i = 0; i < 29; i++)
		ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_HALF_OPEN);
	ck_assert_uint_eq(r.probes_out, 3);
	ck_assert_uint_eq(r.in_flight, 3); /* who was refused gave its permit back */
	for (int i = 0; i < 3; i++) {
		ck_assert_uint_eq(state(), TAG_HALF_OPEN);
		ck_assert_int_eq(resc_leave(&probes[i], RESC_OK), 0);
	}
	r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.counters.refused_half_open, 29);
	ck_assert_uint_eq(r.counters.half_opened, 1);
	ck_assert_uint_eq(r.counters.closed, 1);
}
END_TEST

START_TEST(successes_may_be_more_or_fewer_than_probes)
{
	resc_ticket probes[3];

	use(trial(1, 4));
	trip_and_cool();
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(look().trial_ok, (unsigned)i);
		calls(1, RESC_OK);
	}
	ck_assert_uint_eq(state(), TAG_CLOSED);

	use(trial(3, 1));
	trip_and_cool();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&probes[i]), 0);
	ck_assert_int_eq(resc_leave(&probes[0], RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_int_eq(resc_leave(&probes[1], RESC_FAIL), RESC_STALE); /* the verdict was there */
	ck_assert_int_eq(resc_leave(&probes[2], RESC_IGNORED), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(one_failure_opens_it_again)
{
	resc_ticket probes[3];

	use(trial(3, 3));
	trip_and_cool();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&probes[i]), 0);
	ck_assert_int_eq(resc_leave(&probes[0], RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&probes[1], RESC_TIMEOUT), 0);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.reason, REASON_PROBE_FAILED);
	ck_assert_int_eq(resc_leave(&probes[2], RESC_OK), RESC_STALE);
	ck_assert_uint_eq(look().due_ms, r.due_ms);
	ck_assert_uint_eq(look().probes_out, 0);
}
END_TEST

START_TEST(A4_neutral_outcomes_give_the_lease_back_at_once)
{
	static const enum resc_outcome neutral[] = {RESC_IGNORED, RESC_CANCELLED};

	for (size_t k = 0; k < 2; k++) {
		resc_ticket p1, p2, p3, p4;
		use(trial(2, 2));
		trip_and_cool();
		ck_assert_int_eq(enter(&p1), 0);
		ck_assert_int_eq(enter(&p2), 0);
		ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
		ck_assert_int_eq(resc_leave(&p1, neutral[k]), 0);
		ck_assert_int_eq(resc_leave(&p2, neutral[k]), 0);
		ck_assert_uint_eq(look().probes_out, 0);
		ck_assert_int_eq(enter(&p3), 0);
		ck_assert_int_eq(enter(&p4), 0);
		ck_assert_int_eq(resc_leave(&p3, RESC_OK), 0);
		ck_assert_int_eq(resc_leave(&p4, neutral[k]), 0); /* the last one */
		ck_assert_uint_eq(look().probes_out, 0);
		ck_assert_uint_eq(state(), TAG_HALF_OPEN);
		calls(1, RESC_OK);
		ck_assert_uint_eq(state(), TAG_CLOSED);
	}
}
END_TEST

START_TEST(A4_mostly_ignored_results_close_it_all_the_same)
{
	unsigned admitted = 0;

	use(trial(5, 5));
	trip_and_cool();
	while (state() != TAG_CLOSED && admitted < 100) {
		admitted++;
		ck_assert_int_eq(call(admitted % 5 == 0 ? RESC_OK : RESC_IGNORED), 0);
	}
	ck_assert_uint_eq(admitted, 25);
}
END_TEST

START_TEST(A1_the_lease_of_a_dead_owner_is_taken_back)
{
	struct puppet w1 = puppet_start(n.instance, NULL);

	use(trial(1, 1));
	trip_and_cool();
	ck_assert_int_eq(puppet_enter(&w1, 0), 0);
	ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
	puppet_kill(&w1);
	/* Found dead by whoever asks, and at the latest when the lease is over. */
	resc_ticket probe;
	unsigned refusals = 0;
	while (enter(&probe) != 0) {
		ck_assert_uint_lt(++refusals, 10);
		named_sleep_ms(20);
		later(40);
	}
	ck_assert(probe.probe);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.probes_out, 1);
	ck_assert_uint_eq(r.counters.probes_reclaimed, 1);
	ck_assert_uint_eq(r.in_flight, 1);
	ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(A1_A2_an_overdue_lease_is_taken_over_and_the_late_report_is_stale)
{
	static const enum resc_outcome reports[] = {RESC_FAIL, RESC_OK, RESC_IGNORED};

	for (size_t k = 0; k < 3; k++) {
		struct puppet w1 = puppet_start(n.instance, NULL);
		resc_ticket probe;
		use(trial(1, 1));
		trip_and_cool();
		ck_assert_int_eq(puppet_enter(&w1, 0), 0);
		puppet_stop(&w1);
		later(499);
		ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
		later(1);
		ck_assert_int_eq(enter(&probe), 0);
		ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
		struct inspect_resource before = look();
		ck_assert_uint_eq(before.counters.probes_reclaimed, k + 1);

		kill(w1.pid, SIGCONT);
		ck_assert_int_eq(puppet_leave(&w1, 0, reports[k]), RESC_STALE);
		struct inspect_resource r = look();
		ck_assert_uint_eq(r.breaker, TAG_HALF_OPEN);
		ck_assert_uint_eq(r.generation, before.generation);
		ck_assert_uint_eq(r.probes_out, 1);
		ck_assert_uint_eq(r.trial_ok + r.trial_failed, 0);
		ck_assert_uint_eq(r.counters.stale, k + 1);
		ck_assert_uint_eq(r.in_flight, 1);
		ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
		ck_assert_uint_eq(state(), TAG_CLOSED);
		puppet_quit(&w1);
	}
}
END_TEST

START_TEST(A6_who_read_the_clock_before_the_lease_was_granted_does_not_take_it)
{
	/* It has seen that a probe is due, and goes on when another has got it, a few milliseconds later. */
	struct puppet slow_one = puppet_start(n.instance, "enter.permit=stop");
	resc_ticket probe;

	use(trial(1, 1));
	trip_and_cool();
	puppet_tell(&slow_one, PUPPET_ENTER, 0, RESC_OK);
	puppet_wait_stopped(&slow_one);
	later(4);
	ck_assert_int_eq(enter(&probe), 0);
	ck_assert(probe.probe);
	kill(slow_one.pid, SIGCONT);
	ck_assert_int_eq(puppet_answer(&slow_one), RESC_E_HALF_OPEN);
	ck_assert_uint_eq(look().counters.probes, 1);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	puppet_quit(&slow_one);
}
END_TEST

START_TEST(A6_a_lease_lasts_from_when_it_was_granted)
{
	/* Stopped for longer than a lease lasts, between the clock and the lease: it has all of it all the same. */
	struct puppet slow_one = puppet_start(n.instance, "enter.permit=stop");

	use(trial(1, 1));
	trip_and_cool();
	puppet_tell(&slow_one, PUPPET_ENTER, 0, RESC_OK);
	puppet_wait_stopped(&slow_one);
	later(5000);
	kill(slow_one.pid, SIGCONT);
	ck_assert_int_eq(puppet_answer(&slow_one), 0);
	later(499);
	ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
	ck_assert_int_eq(puppet_leave(&slow_one, 0, RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	puppet_quit(&slow_one);
}
END_TEST

#define HERD 8
static pthread_barrier_t barrier;
static atomic_uint herd_admitted;

static void *herd_member(void *arg)
{
	(void)arg;
	for (int round = 0; round < 60; round++) {
		resc_ticket ticket;
		pthread_barrier_wait(&barrier); /* due now */
		int r = enter(&ticket);
		ck_assert(r == 0 || r == RESC_E_HALF_OPEN || r == RESC_E_OPEN);
		if (r == 0)
			atomic_fetch_add(&herd_admitted, 1);
		pthread_barrier_wait(&barrier); /* nobody leaves before */
		if (r == 0)
			ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		pthread_barrier_wait(&barrier); /* all have left */
	}
	return NULL;
}

START_TEST(A6_exactly_so_many_of_a_herd)
{
	pthread_t threads[HERD];

	use(trial(3, 3));
	pthread_barrier_init(&barrier, NULL, HERD + 1);
	for (int i = 0; i < HERD; i++)
		pthread_create(&threads[i], NULL, herd_member, NULL);
	for (int round = 0; round < 60; round++) {
		trip_and_cool();
		atomic_store(&herd_admitted, 0);
		pthread_barrier_wait(&barrier);
		pthread_barrier_wait(&barrier);
		ck_assert_uint_eq(atomic_load(&herd_admitted), 3);
		pthread_barrier_wait(&barrier);
		ck_assert_uint_eq(state(), TAG_CLOSED);
	}
	for (int i = 0; i < HERD; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(look().counters.half_opened, 60);
	ck_assert_uint_eq(look().counters.closed, 60);
}
END_TEST

/* ---- guards after the breaker ---- */

START_TEST(A5_refused_by_a_full_bulkhead_leaves_the_breaker_open_and_due)
{
	resc_ticket holder, ticket;
	struct policy p = trial(1, 1);

	p.flags |= POLICY_BULKHEAD;
	p.limit = 4;
	use(p);
	resc_ticket more[3];
	ck_assert_int_eq(enter(&holder), 0);
	trip_and_cool();
	p.limit = 1;
	use(p);
	struct inspect_resource before = look();
	ck_assert_int_eq(enter(&ticket), RESC_E_FULL);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.probes_out, 0);
	ck_assert_uint_eq(r.in_flight, 1);
	ck_assert_uint_eq(r.counters.refused_full, before.counters.refused_full + 1);
	ck_assert_uint_eq(r.counters.enters, before.counters.enters + 1);
	ck_assert_uint_eq(r.counters.refused_open + r.counters.refused_half_open, 0);
	ck_assert_int_eq(resc_leave(&holder, RESC_OK), RESC_STALE);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert(ticket.probe);
	ck_assert_int_eq(enter(&more[0]), RESC_E_FULL); /* the probe has the one permit */
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(A5_refused_by_the_trial_gives_the_permit_back)
{
	resc_ticket probe;
	struct policy p = trial(1, 1);

	p.flags |= POLICY_BULKHEAD;
	p.limit = 2;
	use(p);
	trip_and_cool();
	ck_assert_int_eq(enter(&probe), 0);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(refused(), RESC_E_HALF_OPEN);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
}
END_TEST

START_TEST(A5_a_deadline_that_is_past_takes_nothing)
{
	resc_ticket ticket;
	resc_options options = RESC_OPTIONS_INIT;

	use(trial(1, 1));
	trip_and_cool();
	uint64_t word_before = fixture_load(&n.state->breaker);
	options.deadline_ns = resc_now_ns();
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), RESC_E_DEADLINE);
	options.deadline_ns = 0;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), RESC_E_DEADLINE);
	options.deadline_ns = INT64_MIN;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), RESC_E_DEADLINE);
	ck_assert_uint_eq(fixture_load(&n.state->breaker), word_before);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert_uint_eq(r.counters.refused_deadline, 3);
	options.deadline_ns = resc_deadline_after_ms(10);
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), 0);
	ck_assert_int_eq(ticket.timeout_ms, 10);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

START_TEST(the_timeout_is_the_shorter_of_policy_and_deadline)
{
	static const struct {
		uint64_t attempt_ms;
		int64_t deadline_ms;
		int64_t timeout_ms;
	} cases[] = {{0, -1, -1}, {800, -1, 800}, {0, 300, 300}, {800, 300, 300}, {200, 300, 200}};

	for (size_t i = 0; i < 5; i++) {
		resc_options options = RESC_OPTIONS_INIT;
		resc_ticket ticket;
		struct policy p = plain();
		p.timeout_attempt_ms = cases[i].attempt_ms;
		use(p);
		if (cases[i].deadline_ms >= 0)
			options.deadline_ns = resc_deadline_after_ms(cases[i].deadline_ms);
		ck_assert_int_eq(resc_enter(pay, &options, &ticket), 0);
		ck_assert_int_eq(ticket.timeout_ms, cases[i].timeout_ms);
		resc_leave(&ticket, RESC_OK);
	}
}
END_TEST

START_TEST(wrong_arguments_are_errors_that_take_nothing)
{
	resc_options options = RESC_OPTIONS_INIT;
	const resc_ticket zero = {.timeout_ms = 0};
	resc_ticket ticket;

	memset(&ticket, 1, sizeof ticket);
	ck_assert_int_eq(resc_enter(NULL, NULL, &ticket), -EINVAL);
	ck_assert_mem_eq(&ticket, &zero, sizeof ticket);
	ck_assert_int_eq(resc_enter(pay, NULL, NULL), -EINVAL);
	options.reserved = 1;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), -EINVAL);
	options.reserved = 0;
	options.flags = RESC_NOT_IDEMPOTENT; /* of a plan */
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), -EINVAL);
	options.flags = 8;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), -EINVAL);
	options.flags = 0;
	options.priority = 3;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), -EINVAL);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, (enum resc_outcome)5), -EINVAL);
	ck_assert_int_eq(resc_leave(&ticket, (enum resc_outcome) - 1), -EINVAL);
	ck_assert_int_eq(resc_leave(NULL, RESC_OK), -EINVAL);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0); /* it was still good */
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.counters.enters, 1);
	ck_assert_uint_eq(r.in_flight, 0);
}
END_TEST

START_TEST(without_a_breaker_nothing_opens)
{
	struct policy p = consecutive(1, 1000);

	p.flags &= ~(uint64_t)POLICY_BREAKER;
	use(p);
	calls(50, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_uint_eq(look().counters.ended_fail, 50);
}
END_TEST

/* ---- overrides ---- */

START_TEST(forced_open_refuses_at_once_and_never_half_opens)
{
	struct puppet other = puppet_start(n.instance, NULL);

	use(consecutive(1, 100));
	trip_and_cool();
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 2000, "vendor maintenance"), 0);
	uint64_t word_before = fixture_load(&n.state->breaker);
	for (int i = 0; i < 19; i++) {
		ck_assert_int_eq(refused(), RESC_E_FORCED_OPEN);
		ck_assert_int_eq(puppet_enter(&other, 0), RESC_E_FORCED_OPEN);
		later(100);
	}
	ck_assert_uint_eq(fixture_load(&n.state->breaker), word_before);
	later(100);
	ck_assert_int_eq(puppet_enter(&other, 0), 0); /* it ended by itself */
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_int_eq(look().reason, REASON_OVERRIDE_OVER);
	ck_assert_int_eq(puppet_leave(&other, 0, RESC_OK), 0);
	puppet_quit(&other);
}
END_TEST

START_TEST(forced_closed_lets_all_through_and_still_records)
{
	use(consecutive(2, 100));
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_CLOSED, 0, ""), 0);
	calls(50, RESC_FAIL);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.window_failures, 50);
	ck_assert_uint_eq(r.counters.ended_fail, 50);
	ck_assert_int_eq(override_release(&n.map, n.index, ""), 0);
	r = look();
	ck_assert_uint_eq(r.window_calls, 0); /* a fresh window */
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(disabled_lets_all_through_and_records_nothing_for_the_breaker)
{
	resc_ticket ticket;

	use(consecutive(2, 100));
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_DISABLED, 0, ""), 0);
	calls(50, RESC_FAIL);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.window_calls, 0);
	ck_assert_uint_eq(r.consecutive, 0);
	ck_assert_uint_eq(r.counters.ended_fail, 50);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(override_release(&n.map, n.index, ""), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0); /* as it was admitted */
	ck_assert_uint_eq(look().consecutive, 0);
}
END_TEST

START_TEST(a_bulkhead_holds_under_an_override)
{
	resc_ticket ticket;
	struct policy p = consecutive(2, 100);

	p.flags |= POLICY_BULKHEAD;
	p.limit = 1;
	use(p);
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_CLOSED, 0, ""), 0);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_int_eq(refused(), RESC_E_FULL);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

/* ---- deaths ---- */

/* Enters (and leaves) in a process that dies at that point. */
static void die(const char *failpoint, bool leaves, enum resc_outcome outcome)
{
	struct puppet p = puppet_start(n.instance, failpoint);

	puppet_tell(&p, PUPPET_ENTER, 0, RESC_OK);
	if (leaves) {
		ck_assert_int_eq(puppet_answer(&p), 0);
		puppet_tell(&p, PUPPET_LEAVE, 0, outcome);
	}
	ck_assert_int_eq(fixture_wait(p.pid), -SIGKILL);
	puppet_close(&p);
}

/* Calls until one is admitted; the dead are found on the way. */
static void call_soon(enum resc_outcome outcome)
{
	resc_ticket ticket;

	for (int i = 0; i < 20 && enter(&ticket) != 0; i++)
		named_sleep_ms(10);
	ck_assert_int_eq(resc_leave(&ticket, outcome), 0);
}

START_TEST(F7_death_after_half_opening_leaves_a_trial_that_goes_on)
{
	use(trial(1, 1));
	trip_and_cool();
	die("enter.half_open=kill", false, RESC_OK);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN);
	call_soon(RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(F7_death_with_a_lease_before_the_second_look)
{
	use(trial(1, 1));
	trip_and_cool();
	die("probe.leased=kill", false, RESC_OK);
	call_soon(RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

START_TEST(F7_death_between_tally_and_verdict_is_helped)
{
	static const enum resc_outcome outcomes[] = {RESC_OK, RESC_FAIL};

	for (size_t i = 0; i < 2; i++) {
		use(trial(1, 1));
		trip_and_cool();
		die("leave.tally=kill", true, outcomes[i]);
		ck_assert_uint_eq(state(), TAG_HALF_OPEN);
		resc_ticket ticket;
		if (outcomes[i] == RESC_OK) {
			ck_assert_int_eq(enter(&ticket), 0);
			ck_assert(!ticket.probe); /* the trial was over: an ordinary call */
			ck_assert_uint_eq(state(), TAG_CLOSED);
			ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		} else {
			ck_assert_int_eq(refused(), RESC_E_OPEN);
			ck_assert_int_eq(look().reason, REASON_PROBE_FAILED);
		}
	}
}
END_TEST

START_TEST(F7_death_between_lease_and_tally_costs_one_probe)
{
	use(trial(1, 1));
	trip_and_cool();
	die("leave.lease=kill", true, RESC_FAIL);
	ck_assert_uint_eq(look().probes_out, 0);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(F7_death_after_counting_leaves_the_verdict_to_the_next)
{
	use(consecutive(3, 1000));
	calls(1, RESC_FAIL);
	die("leave.counted=kill", true, RESC_FAIL);
	ck_assert_uint_eq(look().consecutive, 2);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);

	override_reset(&n.map, n.index, "");
	use(rate(10000, 4, 500000));
	calls(3, RESC_FAIL);
	die("trip.summed=kill", true, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(a_sum_that_is_too_old_trips_nothing)
{
	/* It has added up the failures of its generation, and then an operator resets the breaker. */
	struct puppet p = puppet_start(n.instance, "trip.summed=stop");

	use(rate(10000, 4, 500000));
	calls(3, RESC_FAIL);
	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	puppet_tell(&p, PUPPET_LEAVE, 0, RESC_FAIL);
	puppet_wait_stopped(&p);
	ck_assert_int_eq(override_reset(&n.map, n.index, ""), 0);
	kill(p.pid, SIGCONT);
	ck_assert_int_eq(puppet_answer(&p), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_uint_eq(look().counters.opened, 0);
	puppet_quit(&p);
}
END_TEST

START_TEST(two_that_trip_at_once_open_it_once)
{
	struct puppet a = puppet_start(n.instance, "leave.counted=stop"), b = puppet_start(n.instance, NULL);

	use(consecutive(2, 1000));
	ck_assert_int_eq(puppet_enter(&a, 0), 0);
	ck_assert_int_eq(puppet_enter(&b, 0), 0);
	puppet_tell(&a, PUPPET_LEAVE, 0, RESC_FAIL);
	puppet_wait_stopped(&a);
	ck_assert_int_eq(puppet_leave(&b, 0, RESC_FAIL), 0);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	later(300);
	kill(a.pid, SIGCONT);
	puppet_answer(&a);
	ck_assert_uint_eq(look().due_ms, r.due_ms); /* late failures never move it */
	ck_assert_uint_eq(look().counters.opened, 1);
	puppet_quit(&a);
	puppet_quit(&b);
}
END_TEST

/* ---- words that wrap ---- */

START_TEST(generations_wrap)
{
	use(trial(1, 1));
	for (unsigned start = 0; start < 3; start++) {
		static const uint16_t starts[] = {0xfff8, 0x00f8, 0x0ff8};
		uint64_t w = fixture_load(&n.state->breaker);
		fixture_store(&n.state->breaker, breaker_make(TAG_CLOSED, 0, starts[start], breaker_ms(w)));
		fixture_store(&n.state->streak, streak_make(starts[start], WORD_LIVE, 0));
		for (int i = 0; i < 12; i++) {
			trip_and_cool();
			calls(1, RESC_OK);
			ck_assert_uint_eq(state(), TAG_CLOSED);
		}
	}
}
END_TEST

/* ---- many at once, and somebody who looks ---- */

static atomic_uint *failing; /* shared with the children */

_Noreturn static void caller(unsigned seed)
{
	resc *mine = named_join(n.instance);
	resc_resource *resource = named_lookup(mine, "payments");

	srand(seed);
	while (getppid() != 1) {
		resc_ticket ticket;
		if (resc_enter(resource, NULL, &ticket) == 0)
			resc_leave(&ticket, atomic_load(failing) && rand() % 10 < 6 ? RESC_FAIL : RESC_OK);
		else
			sched_yield();
	}
	_exit(0);
}

static void check_invariants(void)
{
	struct inspect_resource r = named_look(&n);

	ck_assert(r.breaker != TAG_OPEN || (r.since_ms <= r.now_ms && r.due_ms >= r.since_ms && r.due_ms != 0));
	ck_assert(r.breaker == TAG_OPEN || (r.due_ms == 0 && !r.probe_due));
	ck_assert(r.breaker == TAG_HALF_OPEN || r.probes_out == 0);
	ck_assert_uint_le(r.probes_out, r.policy.probes);
	ck_assert_uint_le(r.window_failures, r.window_calls);
	ck_assert_uint_eq(r.counters.enters, r.counters.admitted + r.counters.refused_open + r.counters.refused_half_open +
	                                             r.counters.refused_full + r.counters.refused_forced_open +
	                                             r.counters.refused_deadline);
	ck_assert_uint_ge(r.counters.admitted, r.counters.ended_ok + r.counters.ended_fail);
}

START_TEST(A10_no_impossible_state_is_ever_seen_and_it_recovers)
{
	pid_t pids[4];
	struct policy p = consecutive(3, 9);

	p.probe_timeout_ms = 20;
	use(p);
	failing = mmap(NULL, sizeof *failing, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(failing, MAP_FAILED);
	atomic_store(failing, 1);
	for (unsigned i = 0; i < 4; i++)
		if ((pids[i] = fork()) == 0)
			caller(i);
	for (int ms = 0; ms < 400; ms++) {
		later(1);
		if (ms % 80 == 79) {
			unsigned k = (unsigned)ms / 80 % 4;
			kill(pids[k], SIGKILL);
			fixture_wait(pids[k]);
			if ((pids[k] = fork()) == 0)
				caller((unsigned)ms);
		}
		for (int look_again = 0; look_again < 20; look_again++)
			check_invariants();
		named_sleep_ms(1);
	}
	ck_assert_uint_gt(look().counters.opened, 5);
	atomic_store(failing, 0);
	for (int turn = 0; turn < 5000 && (turn < 60 || look().breaker != TAG_CLOSED); turn++) {
		if (turn < 60) /* it has two cooldowns and a lease of test time; the rest is for the scheduler */
			later(1);
		named_sleep_ms(2);
	}
	ck_assert_uint_eq(look().breaker, TAG_CLOSED);
	for (int i = 0; i < 4; i++) {
		kill(pids[i], SIGKILL);
		fixture_wait(pids[i]);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        B1_failures_in_a_row_are_in_a_row,
	        B1_neutral_outcomes_neither_count_nor_reset,
	        B11_each_try_is_booked_and_a_refused_one_is_not,
	        all_workers_learn_together,
	        B2_no_call_outside_the_window_counts,
	        B2_the_window_is_nine_tenths_to_all_of_its_length,
	        B2_however_long_the_idle_time_before,
	        B5_at_the_threshold_it_opens,
	        B5_fractions_of_a_percent,
	        B5_only_good_calls_never_open_it,
	        B7_the_window_rolls,
	        H6_a_new_window_length_starts_a_window_and_keeps_the_state,
	        A11_slow_is_strictly_longer,
	        A11_a_slow_success_of_a_probe_opens_it_again_and_says_so,
	        failed_and_slow_is_in_both_tallies_and_one_call,
	        E13_the_published_timeline,
	        K4_without_traffic_it_stays_open_and_a_probe_is_due,
	        one_millisecond_before_it_is_due_it_refuses,
	        the_cooldown_grows_with_each_reopening_up_to_its_maximum,
	        the_streak_of_reopenings_does_not_wrap,
	        A7_jitter_lengthens_by_up_to_its_share_and_is_drawn_once,
	        A7_the_ends_of_jitter,
	        late_results_are_stale_and_move_nothing,
	        at_most_so_many_probes_are_out,
	        successes_may_be_more_or_fewer_than_probes,
	        one_failure_opens_it_again,
	        A4_neutral_outcomes_give_the_lease_back_at_once,
	        A4_mostly_ignored_results_close_it_all_the_same,
	        A1_the_lease_of_a_dead_owner_is_taken_back,
	        A1_A2_an_overdue_lease_is_taken_over_and_the_late_report_is_stale,
	        A6_who_read_the_clock_before_the_lease_was_granted_does_not_take_it,
	        A6_a_lease_lasts_from_when_it_was_granted,
	        A6_exactly_so_many_of_a_herd,
	        A5_refused_by_a_full_bulkhead_leaves_the_breaker_open_and_due,
	        A5_refused_by_the_trial_gives_the_permit_back,
	        A5_a_deadline_that_is_past_takes_nothing,
	        the_timeout_is_the_shorter_of_policy_and_deadline,
	        wrong_arguments_are_errors_that_take_nothing,
	        without_a_breaker_nothing_opens,
	        forced_open_refuses_at_once_and_never_half_opens,
	        forced_closed_lets_all_through_and_still_records,
	        disabled_lets_all_through_and_records_nothing_for_the_breaker,
	        a_bulkhead_holds_under_an_override,
	        F7_death_after_half_opening_leaves_a_trial_that_goes_on,
	        F7_death_with_a_lease_before_the_second_look,
	        F7_death_between_tally_and_verdict_is_helped,
	        F7_death_between_lease_and_tally_costs_one_probe,
	        F7_death_after_counting_leaves_the_verdict_to_the_next,
	        a_sum_that_is_too_old_trips_nothing,
	        two_that_trip_at_once_open_it_once,
	        generations_wrap,
	        A10_no_impossible_state_is_ever_seen_and_it_recovers,
	};

	return NAMED_RUN("breaker", tests, scene_set_up, scene_tear_down);
}
