/* SPDX-License-Identifier: MIT */
/* The retry budget: exact in fixed point, clamped at both ends, no fraction lost, and conserved however many share it. */
#include "budget.h"
#include "record.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include "earned.h"
#include "failpoint.h"
#include "fixture.h"
#include "random.h"

#define MOST (UINT64_C(4294967295) * TOKEN)

static struct fixture f;

static struct policy plan(uint64_t ratio, uint64_t capacity, uint64_t per_second)
{
	struct policy policy;

	policy_defaults(&policy);
	policy.flags |= POLICY_CONFIGURED | POLICY_BUDGET;
	policy.budget_ratio = ratio;
	policy.budget_capacity = capacity;
	policy.budget_previous = capacity;
	policy.budget_per_second = per_second;
	return policy;
}

static void set_up(void)
{
	struct policy policy = plan(TOKEN / 10, 10 * TOKEN, 0);

	fixture_open(&f, &policy);
	fixture_at(&f, 0);
}

static void tear_down(void)
{
	map_close(&f.map);
}

/* A fresh bucket, with so many tokens in it, paid until now_ms. */
static void fresh(uint64_t ratio, uint64_t capacity, uint64_t per_second, uint64_t tokens, uint64_t now_ms)
{
	f.policy = plan(ratio, capacity, per_second);
	fixture_store(&f.state->tokens, tokens_make(WORD_LIVE, 0, tokens));
	fixture_store(&f.state->refilled_ms, now_ms);
}

static void reload(uint64_t capacity)
{
	f.policy.budget_previous = f.policy.budget_capacity;
	f.policy.budget_capacity = capacity;
	f.policy.budget_epoch = (f.policy.budget_epoch + 1) & 0xff;
}

/* At that time. */
static int withdraw(uint64_t now_ms)
{
	fixture_at(&f, now_ms);
	return budget_withdraw(&f.map, f.state, &f.policy, RESC_FAIL, now_ms);
}
static void deposit(void)
{
	ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, 0), 0);
}
static uint64_t now(uint64_t now_ms)
{
	return budget_now(&f.map, f.state, &f.policy, now_ms);
}

static void deposit_times(unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		deposit();
}

static unsigned drain(uint64_t now_ms)
{
	unsigned taken = 0;

	while (withdraw(now_ms) == 0)
		taken++;
	return taken;
}

START_TEST(starts_full)
{
	ck_assert_uint_eq(now(0), 10 * TOKEN);
	ck_assert_uint_eq(drain(0), 10);
}
END_TEST

START_TEST(D3_clamped_at_both_ends)
{
	deposit_times(1000000);
	ck_assert_uint_eq(now(0), 10 * TOKEN);
	ck_assert_uint_eq(drain(0), 10);
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(withdraw(0), 1);
	ck_assert_uint_eq(now(0), 0);
	deposit();
	ck_assert_uint_eq(now(0), TOKEN / 10);
}
END_TEST

START_TEST(D4_ratio_0_has_only_the_floor)
{
	fresh(0, 10 * TOKEN, TOKEN, 0, 0);
	deposit_times(1000);
	ck_assert_int_eq(withdraw(999), 1);
	ck_assert_int_eq(withdraw(1000), 0);
	ck_assert_int_eq(withdraw(1000), 1);
}
END_TEST

START_TEST(D4_one_retry_in_a_thousand_calls)
{
	fresh(TOKEN / 1000, 10 * TOKEN, 0, 0, 0);
	deposit_times(999);
	ck_assert_int_eq(withdraw(0), 1);
	deposit();
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_int_eq(withdraw(0), 1);
}
END_TEST

START_TEST(D4_extreme_ratios_and_sizes)
{
	static const uint64_t ratios[] = {0, TOKEN / 1000, TOKEN, 10 * TOKEN, 1000 * TOKEN};
	static const uint64_t capacities[] = {TOKEN, 1000 * TOKEN, MOST};

	for (size_t i = 0; i < 5; i++) {
		for (size_t j = 0; j < 3; j++) {
			fresh(ratios[i], capacities[j], 1000000 * TOKEN, capacities[j] - 1, 0);
			deposit_times(3);
			ck_assert_uint_eq(now(0), capacities[j] - (ratios[i] == 0));
			ck_assert_int_eq(withdraw(0), ratios[i] == 0 && capacities[j] == TOKEN);
			fresh(ratios[i], capacities[j], 1000000 * TOKEN, 0, 0);
			deposit_times(2);
			ck_assert_uint_eq(now(0), 2 * ratios[i] < capacities[j] ? 2 * ratios[i] : capacities[j]);
			ck_assert_uint_eq(now(TIME_MASK), capacities[j]);
			ck_assert_int_eq(withdraw(TIME_MASK), 0);
			ck_assert_uint_eq(now(TIME_MASK), capacities[j] - TOKEN);
		}
	}
}
END_TEST

START_TEST(D5_the_lone_failing_call)
{
	/* A failure changes nothing, so the answer before and after its leave is the same. */
	fresh(TOKEN, TOKEN, 0, TOKEN, 0);
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_int_eq(withdraw(0), 1);
	fresh(TOKEN, 6 * TOKEN, 0, 6 * TOKEN, 0);
	ck_assert_uint_eq(drain(0), 6);
}
END_TEST

START_TEST(a_full_bucket_is_not_written)
{
	/* What a deposit would write: the epoch of its policy. */
	fixture_store(&f.state->tokens, tokens_make(WORD_PREPARED, 0, 10 * TOKEN));
	deposit();
	ck_assert_uint_eq(fixture_load(&f.state->tokens), tokens_make(WORD_PREPARED, 0, 10 * TOKEN));
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_uint_eq(fixture_load(&f.state->tokens), tokens_make(WORD_LIVE, 0, 9 * TOKEN));
}
END_TEST

START_TEST(asking_does_not_change_anything)
{
	fresh(0, 10 * TOKEN, TOKEN, 0, 0);
	ck_assert_uint_eq(now(2500), 2500000);
	ck_assert_uint_eq(fixture_load(&f.state->refilled_ms), 0);
	ck_assert_uint_eq(fixture_load(&f.state->tokens), tokens_make(WORD_LIVE, 0, 0));
}
END_TEST

/* ---- costs and the threshold ---- */

static int after(enum resc_outcome outcome)
{
	return budget_withdraw(&f.map, f.state, &f.policy, outcome, 0);
}

START_TEST(a_timeout_may_cost_more)
{
	fresh(TOKEN / 10, 10 * TOKEN, 0, 10 * TOKEN, 0);
	f.policy.budget_cost = TOKEN / 2;
	f.policy.budget_timeout_cost = 4 * TOKEN;
	ck_assert_int_eq(after(RESC_TIMEOUT), 0);
	ck_assert_uint_eq(now(0), 6 * TOKEN);
	ck_assert_int_eq(after(RESC_FAIL), 0);
	ck_assert_uint_eq(now(0), 6 * TOKEN - TOKEN / 2);
	ck_assert_int_eq(after(RESC_TIMEOUT), 0);
	/* Too little for a time-out is enough for a failure; a refusal takes nothing. */
	ck_assert_int_eq(after(RESC_TIMEOUT), 1);
	ck_assert_uint_eq(now(0), TOKEN + TOKEN / 2);
	ck_assert_int_eq(after(RESC_FAIL), 0);
	ck_assert_int_eq(after(RESC_FAIL), 0);
	ck_assert_int_eq(after(RESC_FAIL), 0);
	ck_assert_int_eq(after(RESC_FAIL), 1);
}
END_TEST

START_TEST(what_costs_nothing_is_always_granted_and_what_costs_too_much_never)
{
	fresh(0, 2 * TOKEN, 0, 0, 0);
	f.policy.budget_cost = 0;
	f.policy.budget_timeout_cost = 3 * TOKEN;
	ck_assert_int_eq(after(RESC_FAIL), 0);
	fresh(0, 2 * TOKEN, 0, 2 * TOKEN, 0);
	f.policy.budget_timeout_cost = 3 * TOKEN;
	ck_assert_int_eq(after(RESC_TIMEOUT), 1);
	ck_assert_uint_eq(now(0), 2 * TOKEN);
}
END_TEST

START_TEST(E17_L12_with_a_threshold_of_half_four_of_ten_are_granted)
{
	fresh(TOKEN / 10, 10 * TOKEN, 0, 10 * TOKEN, 0);
	f.policy.budget_threshold_ppm = 500000;
	for (uint64_t left = 9; left >= 6; left--) {
		ck_assert_int_eq(withdraw(0), 0);
		ck_assert_uint_eq(now(0), left * TOKEN);
	}
	ck_assert_int_eq(withdraw(0), 1);
	ck_assert_uint_eq(now(0), 5 * TOKEN); /* the failure is charged */
	/* Above half again: ten good calls are a token, which the next failure takes; one more makes the difference. */
	deposit_times(10);
	ck_assert_int_eq(withdraw(0), 1);
	deposit_times(11);
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_uint_eq(now(0), 5 * TOKEN + TOKEN / 10);
}
END_TEST

START_TEST(D3_with_a_threshold_failures_are_clamped_at_0)
{
	fresh(TOKEN / 10, 10 * TOKEN, 0, 10 * TOKEN, 0);
	f.policy.budget_threshold_ppm = 500000;
	f.policy.budget_cost = 3 * TOKEN;
	for (int i = 0; i < 1000; i++)
		withdraw(0);
	ck_assert_uint_eq(now(0), 0);
	deposit();
	ck_assert_uint_eq(now(0), TOKEN / 10);
	/* Retries come back as soon as more than half is there after the charge. */
	deposit_times(79);
	ck_assert_int_eq(withdraw(0), 1); /* 8 - 3 */
	deposit_times(31);
	ck_assert_int_eq(withdraw(0), 0); /* 8.1 - 3 */
}
END_TEST

START_TEST(L12_a_threshold_of_an_odd_capacity_is_exact)
{
	/* A third of a token: 333333 millionths are not above it, 333334 are. */
	fresh(0, TOKEN, 0, 0, 0);
	f.policy.budget_threshold_ppm = 333333;
	f.policy.budget_cost = 1;
	fixture_store(&f.state->tokens, tokens_make(WORD_LIVE, 0, 333335));
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_int_eq(withdraw(0), 1);
	/* 1000 tokens and more are legal. */
	fresh(0, MOST, 0, MOST, 0);
	f.policy.budget_threshold_ppm = 1000000;
	ck_assert_int_eq(withdraw(0), 1);
	f.policy.budget_threshold_ppm = 999999;
	ck_assert_int_eq(withdraw(0), 0);
}
END_TEST

/* ---- the floor ---- */

START_TEST(no_fraction_is_lost_to_frequent_asking)
{
	/* Rates whose millisecond is no whole number of millionths; asked each millisecond for 100 seconds. */
	static const uint64_t rates[] = {1, 3, 7, 333, 999, 1001, TOKEN / 3, TOKEN + 1, 12345678};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		uint64_t taken = 0;
		fresh(0, MOST, rates[i], 0, 0);
		for (uint64_t ms = 1; ms <= 100000; ms++)
			taken += withdraw(ms) == 0;
		ck_assert_uint_eq(taken * TOKEN + now(100000), rates[i] * 100);
	}
}
END_TEST

START_TEST(a_long_idle_time_only_fills)
{
	fresh(0, 10 * TOKEN, 1000000 * TOKEN, 0, 0);
	ck_assert_int_eq(withdraw(TIME_MASK), 0);
	ck_assert_uint_eq(now(TIME_MASK), 9 * TOKEN);
}
END_TEST

START_TEST(time_that_passed_while_full_is_not_kept)
{
	fresh(0, 10 * TOKEN, TOKEN, 10 * TOKEN, 0);
	ck_assert_uint_eq(drain(3600000), 10);
	ck_assert_int_eq(withdraw(3600999), 1);
	ck_assert_int_eq(withdraw(3601000), 0);
}
END_TEST

START_TEST(time_that_passed_while_deposits_filled_it_is_not_kept)
{
	fresh(TOKEN, 10 * TOKEN, TOKEN, 0, 0);
	deposit_times(20);
	ck_assert_uint_eq(drain(3600000), 10);
}
END_TEST

START_TEST(a_clock_that_is_a_tick_behind_pays_nothing_twice)
{
	fresh(0, 10 * TOKEN, TOKEN, 0, 0);
	ck_assert_int_eq(withdraw(1500), 0);
	ck_assert_int_eq(withdraw(1490), 1);
	ck_assert_uint_eq(fixture_load(&f.state->refilled_ms), 1500);
	ck_assert_int_eq(withdraw(2000), 0);
	ck_assert_uint_eq(now(2000), 0);
}
END_TEST

START_TEST(a_damaged_time_does_not_stop_the_floor)
{
	fresh(0, 10 * TOKEN, TOKEN, 0, UINT64_MAX);
	ck_assert_int_eq(withdraw(5000), 1);
	ck_assert_int_eq(withdraw(6000), 0);
}
END_TEST

START_TEST(a_worker_that_was_stopped_pays_nothing_twice)
{
	/* It read the clock, was stopped for a minute, and goes on with the time that it knows. */
	fresh(0, 100 * TOKEN, TOKEN, 0, 0);
	ck_assert_int_eq(withdraw(65000), 0);
	uint64_t refilled = fixture_load(&f.state->refilled_ms);
	ck_assert_int_eq(budget_withdraw(&f.map, f.state, &f.policy, RESC_FAIL, 5000), 0);
	ck_assert_uint_eq(fixture_load(&f.state->refilled_ms), refilled);
	ck_assert_uint_eq(now(65000), 63 * TOKEN);
}
END_TEST

START_TEST(settling_pays_by_the_old_rate)
{
	fresh(0, 100 * TOKEN, TOKEN, 0, 0);
	budget_settle(&f.map, f.state, &f.policy, 5000);
	f.policy.budget_per_second = 1000 * TOKEN;
	ck_assert_uint_eq(now(5000), 5 * TOKEN);
	/* A floor where there was none starts now, and not in the past. */
	fresh(0, 100 * TOKEN, 0, 0, 0);
	budget_settle(&f.map, f.state, &f.policy, 5000);
	f.policy.budget_per_second = TOKEN;
	ck_assert_uint_eq(now(5000), 0);
	ck_assert_uint_eq(now(6000), TOKEN);
}
END_TEST

/* ---- live changes ---- */

START_TEST(D8_a_changed_capacity_keeps_the_filled_share)
{
	fresh(0, UINT64_C(104857600) * TOKEN, 0, UINT64_C(90000000) * TOKEN, 0);
	reload(UINT64_C(1048576) * TOKEN);
	ck_assert_uint_eq(now(0), UINT64_C(900000) * TOKEN);
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_uint_eq(now(0), UINT64_C(899999) * TOKEN);

	fresh(TOKEN, 10 * TOKEN, 0, 8 * TOKEN, 0);
	reload(5 * TOKEN);
	ck_assert_uint_eq(drain(0), 4);
	fresh(TOKEN, 5 * TOKEN, 0, 5 * TOKEN, 0);
	reload(10 * TOKEN);
	ck_assert_uint_eq(drain(0), 10);
	deposit_times(20);
	ck_assert_uint_eq(now(0), 10 * TOKEN);
}
END_TEST

START_TEST(D8_a_share_is_kept_once)
{
	fresh(TOKEN / 10, 10 * TOKEN, 0, 4 * TOKEN, 0);
	reload(20 * TOKEN);
	deposit();
	ck_assert_uint_eq(now(0), 8 * TOKEN + TOKEN / 10);
	deposit();
	ck_assert_uint_eq(now(0), 8 * TOKEN + TOKEN / 5);
}
END_TEST

START_TEST(D8_epochs_wrap)
{
	fresh(0, 10 * TOKEN, 0, 0, 0);
	f.policy.budget_epoch = 255;
	fixture_store(&f.state->tokens, tokens_make(WORD_LIVE, 255, 4 * TOKEN));
	reload(20 * TOKEN);
	ck_assert_uint_eq(now(0), 8 * TOKEN);
	ck_assert_int_eq(withdraw(0), 0);
	ck_assert_uint_eq(tokens_epoch(fixture_load(&f.state->tokens)), 0);
}
END_TEST

START_TEST(D8_an_older_word_is_cut_to_the_capacity)
{
	fresh(0, 10 * TOKEN, 0, 8 * TOKEN, 0);
	reload(100 * TOKEN);
	reload(5 * TOKEN);
	ck_assert_uint_eq(now(0), 5 * TOKEN);
	ck_assert_uint_eq(drain(0), 5);
}
END_TEST

START_TEST(D8_a_caller_with_an_old_policy_changes_no_size)
{
	fresh(TOKEN, 5 * TOKEN, 0, 5 * TOKEN, 0);
	struct policy old = f.policy;
	reload(10 * TOKEN);
	ck_assert_int_eq(withdraw(0), 0); /* converted: 9 of 10 */

	ck_assert_int_eq(budget_deposit(&f.map, f.state, &old, 0), 0);
	ck_assert_uint_eq(now(0), 9 * TOKEN);
	ck_assert_uint_eq(budget_now(&f.map, f.state, &old, 0), 5 * TOKEN);
	ck_assert_int_eq(budget_withdraw(&f.map, f.state, &old, RESC_FAIL, 0), 0);
	ck_assert_uint_eq(now(0), 8 * TOKEN);
	ck_assert_uint_eq(tokens_epoch(fixture_load(&f.state->tokens)), 1);

	/* And where the new one is smaller, nobody who knows it sees more than it holds. */
	fresh(TOKEN, 10 * TOKEN, 0, 10 * TOKEN, 0);
	old = f.policy;
	reload(5 * TOKEN);
	ck_assert_int_eq(withdraw(0), 0);
	for (int i = 0; i < 9; i++)
		ck_assert_int_eq(budget_deposit(&f.map, f.state, &old, 0), 0);
	ck_assert_uint_eq(now(0), 5 * TOKEN);
	ck_assert_uint_eq(drain(0), 5);
}
END_TEST

START_TEST(reset_fills)
{
	drain(0);
	ck_assert_int_eq(budget_fill(&f.map, f.state, &f.policy), 0);
	ck_assert_uint_eq(now(0), 10 * TOKEN);
}
END_TEST

START_TEST(a_word_that_has_moved_sends_the_caller_on)
{
	static const unsigned kinds[] = {WORD_EMPTY, WORD_MOVED};

	f.policy.budget_per_second = TOKEN;
	for (size_t i = 0; i < 2; i++) {
		uint64_t w = tokens_make(kinds[i], 0, 5 * TOKEN);
		fixture_store(&f.state->tokens, w);
		ck_assert_int_eq(withdraw(1000), -ESTALE);
		ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, 0), -ESTALE);
		ck_assert_int_eq(budget_fill(&f.map, f.state, &f.policy), -ESTALE);
		ck_assert_uint_eq(now(1000), 0);
		ck_assert_uint_eq(fixture_load(&f.state->tokens), w);
		ck_assert_uint_eq(fixture_load(&f.state->refilled_ms), 0);
	}
}
END_TEST

START_TEST(whatever_the_bits_nothing_is_above_the_capacity)
{
	resc_seed(5);
	for (int i = 0; i < 40000; i++) {
		f.policy.budget_ratio = random_next() >> random_below(64);
		f.policy.budget_capacity = random_next() >> random_below(64);
		f.policy.budget_previous = random_next() >> random_below(64);
		f.policy.budget_per_second = random_next() >> random_below(64);
		f.policy.budget_epoch = random_below(4);
		f.policy.budget_cost = random_next() >> random_below(64);
		f.policy.budget_threshold_ppm = random_below(3) == 0 ? random_next() >> random_below(64) : 0;
		f.policy.budget_ttl_ms = random_below(2) == 0 ? random_next() >> random_below(64) : 0;
		policy_clamp(&f.policy, &f.map.dims);
		fixture_store(&f.state->tokens, random_next());
		fixture_store(&f.state->refilled_ms, random_next() >> random_below(64));
		for (unsigned k = 0; k < WINDOW_RING; k++)
			fixture_store(&f.state->earned[k], random_next());
		uint64_t ms = random_next() & TIME_MASK;
		ck_assert_uint_le(now(ms), f.policy.budget_capacity);
		withdraw(ms);
		budget_deposit(&f.map, f.state, &f.policy, 0);
		budget_settle(&f.map, f.state, &f.policy, ms);
		ck_assert_uint_le(now(ms), f.policy.budget_capacity);
	}
}
END_TEST

/* ---- tokens that expire ---- */

#define TTL 10000 /* ten slices of a second */

/* A full bucket at time 0, and no slice of an earlier test. */
static void expiring(uint64_t ratio, uint64_t capacity, uint64_t per_second, uint64_t ttl_ms)
{
	fixture_at(&f, 0);
	for (unsigned i = 0; i < WINDOW_RING; i++)
		fixture_store(&f.state->earned[i], 0);
	f.policy = plan(ratio, capacity, per_second);
	f.policy.budget_ttl_ms = ttl_ms;
	budget_start(&f.map, f.state, &f.policy, 0);
}

static void deposit_at(uint64_t ms)
{
	fixture_at(&f, ms);
	ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, ms), 0);
}

static void deposits_at(uint64_t ms, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		deposit_at(ms);
}

START_TEST(L13_what_a_bucket_starts_with_expires)
{
	expiring(TOKEN / 5, 10 * TOKEN, 0, TTL);
	ck_assert_uint_eq(now(9999), 10 * TOKEN);
	ck_assert_uint_eq(now(10000), 0);
	ck_assert_int_eq(withdraw(9999), 0);
	ck_assert_uint_eq(drain(9999), 9);
	expiring(TOKEN / 5, 10 * TOKEN, 0, TTL);
	ck_assert_int_eq(withdraw(10000), 1);
	/* A ttl of two minutes, and one of a day. */
	static const uint64_t ttls[] = {120000, 86400000, 10, 7, 1, 999, 12345};
	for (size_t i = 0; i < sizeof ttls / sizeof ttls[0]; i++) {
		expiring(TOKEN / 5, 10 * TOKEN, 0, ttls[i]);
		ck_assert_int_eq(withdraw(ttls[i] - ttls[i] / 10 - 1), 0);
		ck_assert_int_eq(withdraw(ttls[i]), 1);
	}
}
END_TEST

START_TEST(deposits_expire_in_the_order_of_their_age)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	ck_assert_uint_eq(drain(0), 10);
	deposits_at(1000, 3);
	deposits_at(5000, 4);
	ck_assert_int_eq(withdraw(6000), 0); /* one of the older */
	ck_assert_uint_eq(now(10999), 6 * TOKEN);
	ck_assert_uint_eq(now(11000), 4 * TOKEN);
	ck_assert_int_eq(withdraw(11000), 0);
	ck_assert_uint_eq(now(14999), 3 * TOKEN);
	ck_assert_uint_eq(now(15000), 0);
}
END_TEST

START_TEST(a_deposit_into_a_full_bucket_renews_it)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	deposits_at(8000, 4);
	ck_assert_uint_eq(now(9999), 10 * TOKEN);
	ck_assert_uint_eq(now(10000), 4 * TOKEN);
	ck_assert_uint_eq(drain(10000), 4);
	/* Nothing is in it twice. */
	ck_assert_uint_eq(now(17999), 0);
}
END_TEST

START_TEST(a_slice_that_holds_the_capacity_is_only_read)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	deposits_at(3000, 9);
	uint64_t slice = fixture_load(&f.state->earned[3]);
	ck_assert_uint_eq(slice, earned_make(0, 3, 9 * TOKEN));
	deposits_at(3500, 2);
	ck_assert_uint_eq(fixture_load(&f.state->earned[3]), earned_make(0, 3, 10 * TOKEN));
	/* What another deposit would write: the kind of the word. */
	uint64_t w = tokens_make(WORD_PREPARED, 0, 10 * TOKEN);
	fixture_store(&f.state->tokens, w);
	deposits_at(3999, 1000);
	ck_assert_uint_eq(fixture_load(&f.state->tokens), w);
	ck_assert_uint_eq(fixture_load(&f.state->earned[3]), earned_make(0, 3, 10 * TOKEN));
}
END_TEST

START_TEST(L13_the_floor_expires_too_and_each_second_of_it_at_its_time)
{
	expiring(0, 20 * TOKEN, TOKEN, TTL);
	ck_assert_uint_eq(drain(0), 20);
	/* Nobody asks for an hour: what flowed in during the last ten seconds is there, this slice included. */
	ck_assert_uint_eq(now(3600500), 9500000);
	ck_assert_uint_eq(drain(3600500), 9);
	ck_assert_uint_eq(now(3600500), 500000);
	ck_assert_uint_eq(now(3600999), 999000);
	/* What is left of it is of this moment. */
	ck_assert_int_eq(withdraw(3601000), 0);
	ck_assert_uint_eq(now(3601000), 0);
}
END_TEST

START_TEST(an_old_full_bucket_is_what_the_floor_paid_lately)
{
	expiring(0, 20 * TOKEN, TOKEN, TTL);
	ck_assert_uint_eq(now(3600000), 9 * TOKEN);
	ck_assert_uint_eq(drain(3600000), 9);
	/* And one that is smaller than that is full. */
	expiring(0, 5 * TOKEN, TOKEN, TTL);
	ck_assert_uint_eq(now(3600000), 5 * TOKEN);
	ck_assert_uint_eq(drain(3600000), 5);
	ck_assert_int_eq(withdraw(3600999), 1);
}
END_TEST

START_TEST(no_fraction_of_a_floor_that_expires_is_lost_to_frequent_asking)
{
	static const uint64_t rates[] = {1, 333, 1001, TOKEN / 3, 12345678};

	for (size_t i = 0; i < sizeof rates / sizeof rates[0]; i++) {
		uint64_t taken = 0;
		expiring(0, 100 * TOKEN, rates[i], 86400000);
		drain(0);
		for (uint64_t ms = 1; ms <= 10000; ms++)
			taken += withdraw(ms) == 0;
		ck_assert_uint_eq(taken * TOKEN + now(10000), rates[i] * 10);
	}
}
END_TEST

START_TEST(with_a_threshold_too_what_has_expired_is_gone)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	f.policy.budget_threshold_ppm = 500000;
	deposits_at(9000, 7);
	ck_assert_int_eq(withdraw(9999), 0);  /* 9 are left */
	ck_assert_int_eq(withdraw(10000), 0); /* 7 - 1 */
	ck_assert_int_eq(withdraw(10000), 1);
	ck_assert_uint_eq(now(10000), 5 * TOKEN);
}
END_TEST

START_TEST(reset_fills_with_tokens_of_this_moment)
{
	expiring(0, 10 * TOKEN, 0, TTL);
	fixture_at(&f, 20000);
	ck_assert_uint_eq(now(20000), 0);
	ck_assert_int_eq(budget_fill(&f.map, f.state, &f.policy), 0);
	ck_assert_uint_eq(now(29999), 10 * TOKEN);
	ck_assert_uint_eq(now(30000), 0);
	/* Also where the slice of now has nearly as much as it can hold. */
	expiring(1000 * TOKEN, 1000000 * TOKEN, 0, TTL);
	deposits_at(10500, 900);
	ck_assert_int_eq(budget_fill(&f.map, f.state, &f.policy), 0);
	ck_assert_uint_eq(now(10500), 1000000 * TOKEN);
}
END_TEST

/* As rescd does it. */
static void reload_to(uint64_t capacity, uint64_t ttl_ms, uint64_t ms)
{
	fixture_at(&f, ms);
	budget_settle(&f.map, f.state, &f.policy, ms);
	reload(capacity);
	f.policy.budget_ttl_ms = ttl_ms;
}

START_TEST(D8_a_changed_capacity_or_ttl_gives_what_is_there_a_new_life)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	ck_assert_int_eq(withdraw(5000), 0);
	reload_to(20 * TOKEN, TTL, 5000);
	ck_assert_uint_eq(now(5000), 18 * TOKEN);
	ck_assert_int_eq(withdraw(9000), 0);
	ck_assert_uint_eq(now(18999), 17 * TOKEN);
	ck_assert_uint_eq(now(19000), 0);
	/* Another ttl means other ticks. */
	reload_to(20 * TOKEN, 1000, 18000);
	deposit_at(18050);
	ck_assert_uint_eq(now(18999), 18 * TOKEN);
	ck_assert_uint_eq(now(19049), 0);
}
END_TEST

START_TEST(D8_a_ttl_where_there_was_none_starts_now)
{
	expiring(TOKEN, 10 * TOKEN, 0, 0);
	ck_assert_int_eq(withdraw(1000000), 0);
	reload_to(10 * TOKEN, TTL, 2000000);
	ck_assert_uint_eq(now(2000000), 9 * TOKEN);
	ck_assert_int_eq(withdraw(2000000), 0);
	ck_assert_uint_eq(now(2009999), 8 * TOKEN);
	ck_assert_uint_eq(now(2010000), 0);
	/* And where it is taken away, nothing expires any more; what had is not back. */
	deposits_at(2010000, 4);
	reload_to(10 * TOKEN, 0, 2010000);
	ck_assert_uint_eq(now(TIME_MASK), 4 * TOKEN);
	deposit_at(2010000);
	ck_assert_uint_eq(now(TIME_MASK), 5 * TOKEN);
}
END_TEST

START_TEST(a_new_life_is_given_once)
{
	/* A full bucket of the epoch before: the first deposit gives it a new life, the others do not. */
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	reload(10 * TOKEN);
	f.policy.budget_ttl_ms = 2 * TTL;
	deposit_at(2000);
	deposit_at(21000);
	ck_assert_uint_eq(now(21999), 10 * TOKEN);
	ck_assert_uint_eq(now(22000), TOKEN);
}
END_TEST

START_TEST(a_policy_that_is_written_with_another_ttl_has_another_epoch)
{
	struct policy policy = f.policy;
	uint64_t sequence;

	policy.budget_ttl_ms = TTL;
	policy_write(&f.map, f.index, &policy);
	ck_assert_int_eq(policy_read(&f.map, f.index, &f.policy, &sequence), 0);
	ck_assert_uint_eq(f.policy.budget_epoch, 1);
	fixture_at(&f, 50000);
	ck_assert_int_eq(withdraw(50000), 0);
	ck_assert_uint_eq(now(50000), 9 * TOKEN);
	ck_assert_uint_eq(now(59999), 9 * TOKEN);
	ck_assert_uint_eq(now(60000), 0);
	/* A name that comes back gets a bucket that is full now. */
	record_retire(&f.map, f.index);
	fixture_at(&f, 90000);
	fixture_publish(&f, &policy);
	ck_assert_uint_eq(now(99999), 10 * TOKEN);
	ck_assert_uint_eq(now(100000), 0);
}
END_TEST

START_TEST(D8_a_caller_with_an_old_policy_harms_no_newer_slice)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	struct policy old = f.policy;
	fixture_at(&f, 5000);
	reload(20 * TOKEN);
	f.policy.budget_ttl_ms = 2 * TTL;
	ck_assert_int_eq(withdraw(5000), 0); /* the slice of now is in another place, and holds 20 */
	for (uint64_t ms = 5000; ms < 25000; ms += 500) {
		fixture_at(&f, ms);
		ck_assert_int_eq(budget_deposit(&f.map, f.state, &old, ms), 0);
	}
	ck_assert_uint_eq(now(23999), 19 * TOKEN);
	ck_assert_int_eq(budget_withdraw(&f.map, f.state, &old, RESC_FAIL, 23999), 0);
	ck_assert_uint_eq(now(23999), 18 * TOKEN);
}
END_TEST

START_TEST(a_depositor_that_was_stopped_brings_no_old_deposit)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	ck_assert_uint_eq(drain(0), 10);
	deposits_at(20000, 3);
	/* It read the clock at 4 s; tick 4 has the place of tick 20. */
	ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, 4000), 0);
	ck_assert_uint_eq(now(20000), 3 * TOKEN);
	ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, 10999), 0);
	ck_assert_uint_eq(now(20000), 3 * TOKEN);
	/* Not long ago is not too late. */
	ck_assert_int_eq(budget_deposit(&f.map, f.state, &f.policy, 11000), 0);
	ck_assert_uint_eq(now(20000), 4 * TOKEN);
	ck_assert_uint_eq(now(21000), 3 * TOKEN);
}
END_TEST

START_TEST(damaged_slices_are_replaced_and_do_not_fill_the_bucket)
{
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	drain(0);
	for (unsigned i = 0; i < WINDOW_RING; i++)
		fixture_store(&f.state->earned[i], earned_make(0, 1000 + i, EARNED_MASK));
	ck_assert_uint_eq(now(5000), 0);
	for (uint64_t tick = 0; tick < 16; tick++) {
		deposit_at(5000 + tick * 1000);
		ck_assert_int_eq(withdraw(5000 + tick * 1000), 0);
	}
}
END_TEST

START_TEST(carried_slices_keep_their_age)
{
	struct policy policy = f.policy;
	struct state *next = map_state(&f.map, (uint32_t)record_publish(&f.map, "next", &policy));

	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	drain(0);
	deposits_at(1000, 3);
	deposits_at(5000, 4);
	uint64_t w = fixture_load(&f.state->tokens);
	for (int i = 0; i < 3; i++)
		budget_carry(f.state, next);
	fixture_store(&next->tokens, w);
	ck_assert_uint_eq(budget_now(&f.map, next, &f.policy, 10999), 7 * TOKEN);
	ck_assert_uint_eq(budget_now(&f.map, next, &f.policy, 11000), 4 * TOKEN);
	/* A late deposit into the old one is carried too, and nothing newer is lost. */
	deposit_at(6000);
	deposit_at(15000); /* the place of a tick that was never used */
	fixture_store(&next->earned[5], earned_make(0, 21, 2 * TOKEN));
	budget_carry(f.state, next);
	ck_assert_uint_eq(fixture_load(&next->earned[5]), earned_make(0, 21, 2 * TOKEN));
	ck_assert_uint_eq(fixture_load(&next->earned[6]), earned_make(0, 6, TOKEN));
	ck_assert_uint_eq(fixture_load(&next->earned[15]), earned_make(0, 15, TOKEN));
}
END_TEST

START_TEST(an_interval_of_the_floor_is_not_paid_again_in_the_successor)
{
	struct policy policy = plan(0, 10 * TOKEN, TOKEN);
	struct state *next = map_state(&f.map, (uint32_t)record_publish(&f.map, "next", &policy));

	fresh(0, 10 * TOKEN, TOKEN, 0, 0);
	budget_carry(f.state, next);
	ck_assert_int_eq(withdraw(2500), 0);
	fixture_store(&next->tokens, fixture_load(&f.state->tokens)); /* moved */
	budget_carry(f.state, next);
	ck_assert_uint_eq(budget_now(&f.map, next, &f.policy, 2500), TOKEN + TOKEN / 2);
	/* Nor is it taken back. */
	fixture_store(&f.state->refilled_ms, 1000);
	budget_carry(f.state, next);
	ck_assert_uint_eq(fixture_load(&next->refilled_ms), 2500);
}
END_TEST

START_TEST(D10_death_between_slice_and_tokens_loses_that_deposit)
{
	struct fixture private = f;
	struct policy policy = plan(TOKEN, 10 * TOKEN, 0);

	policy.budget_ttl_ms = TTL;
	fixture_open_shared(&f, &policy);
	expiring(TOKEN, 10 * TOKEN, 0, TTL);
	drain(0);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("budget.earned=kill");
		deposit_at(1000);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(now(1000), 0);
	deposits_at(2000, 2);
	ck_assert_uint_eq(drain(2000), 2);
	map_close(&f.map);
	f = private;
}
END_TEST

/* The bucket as a list of deposits, oldest first; thousandths of a millionth. A deposit is of its slice. */
#define KEPT 64
struct aged {
	unsigned __int128 amount[KEPT];
	uint64_t tick[KEPT];
	uint64_t slice_ms;
};

static unsigned __int128 aged_total(const struct aged *a)
{
	unsigned __int128 total = 0;

	for (int i = 0; i < KEPT; i++)
		total += a->amount[i];
	return total;
}

static void aged_take(struct aged *a, unsigned __int128 amount)
{
	for (;;) {
		int oldest = -1;
		for (int i = 0; i < KEPT; i++)
			if (a->amount[i] > 0 && (oldest < 0 || a->tick[i] < a->tick[oldest]))
				oldest = i;
		if (oldest < 0 || amount == 0)
			return;
		unsigned __int128 taken = amount < a->amount[oldest] ? amount : a->amount[oldest];
		a->amount[oldest] -= taken;
		amount -= taken;
	}
}

static void aged_expire(struct aged *a, uint64_t ms)
{
	for (int i = 0; i < KEPT; i++)
		if (a->tick[i] + 10 <= ms / a->slice_ms)
			a->amount[i] = 0;
}

static void aged_put(struct aged *a, uint64_t ms, unsigned __int128 amount)
{
	uint64_t tick = ms / a->slice_ms;
	unsigned __int128 most = (unsigned __int128)f.policy.budget_capacity * 1000;

	aged_expire(a, ms);
	if (a->tick[tick % KEPT] != tick)
		a->amount[tick % KEPT] = 0;
	a->tick[tick % KEPT] = tick;
	a->amount[tick % KEPT] += amount;
	/* What runs over takes the place of the oldest. */
	if (aged_total(a) > most)
		aged_take(a, aged_total(a) - most);
}

/* Equal but for the fraction of a millionth that each of ten slices rounds away. */
static void expect_as_aged(struct aged *a, uint64_t ms)
{
	aged_expire(a, ms);
	int64_t difference = (int64_t)now(ms) - (int64_t)(uint64_t)(aged_total(a) / 1000);

	ck_assert_int_le(difference, 2);
	ck_assert_int_ge(difference, f.policy.budget_per_second == 0 ? 0 : -15);
}

static void aged_flow(struct aged *a, uint64_t *ms, uint64_t until)
{
	if (f.policy.budget_per_second == 0)
		*ms = until;
	for (; *ms < until; (*ms)++)
		aged_put(a, *ms, f.policy.budget_per_second);
}

static void play_aged(uint64_t seed, bool floor)
{
	struct aged a = {.slice_ms = 0};
	uint64_t ms = 0;

	resc_seed(seed);
	uint64_t capacity = (1 + random_below(20)) * TOKEN;
	a.slice_ms = 1 + random_below(20);
	expiring(random_below(2 * TOKEN), capacity, floor ? random_below(50 * TOKEN) : 0, a.slice_ms * 10);
	aged_put(&a, 0, (unsigned __int128)capacity * 1000);
	for (int i = 0; i < 2000; i++) {
		uint64_t next = ms + (random_below(16) == 0 ? random_below(a.slice_ms * 15) : random_below(a.slice_ms));
		aged_flow(&a, &ms, next);
		aged_expire(&a, ms);
		if (random_below(2) == 0) {
			deposit_at(ms);
			aged_put(&a, ms, (unsigned __int128)f.policy.budget_ratio * 1000);
		} else if (withdraw(ms) == 0) {
			ck_assert_uint_ge((uint64_t)(aged_total(&a) / 1000) + 2, TOKEN);
			aged_take(&a, (unsigned __int128)TOKEN * 1000);
		} else {
			ck_assert_uint_lt((uint64_t)(aged_total(&a) / 1000), TOKEN + 16);
		}
		expect_as_aged(&a, ms);
	}
}

START_TEST(random_sequences_expire_as_a_list_of_deposits_says)
{
	for (uint64_t seed = 1; seed <= 60; seed++)
		play_aged(seed, false);
}
END_TEST

START_TEST(random_sequences_with_a_floor_expire_as_a_list_of_deposits_says)
{
	for (uint64_t seed = 1; seed <= 30; seed++)
		play_aged(seed, true);
}
END_TEST

/* ---- random sequences against a model ---- */

/* The bucket as one would write it down: thousandths of a millionth, so that a millisecond of any floor is a whole number. */
struct model {
	unsigned __int128 level;
	uint64_t paid_ms;
};

static void model_pay(struct model *m, uint64_t now_ms)
{
	unsigned __int128 most = (unsigned __int128)f.policy.budget_capacity * 1000;

	m->level += (unsigned __int128)f.policy.budget_per_second * (now_ms - m->paid_ms);
	m->level = m->level > most ? most : m->level;
	m->paid_ms = now_ms;
}

static void model_deposit(struct model *m)
{
	unsigned __int128 most = (unsigned __int128)f.policy.budget_capacity * 1000;

	m->level += (unsigned __int128)f.policy.budget_ratio * 1000;
	m->level = m->level > most ? most : m->level;
}

/* Equal but for the fraction of a millionth that has not been paid yet, or was kept where the model's bucket ran over. */
static void expect_as(const struct model *m, uint64_t now_ms)
{
	int64_t difference = (int64_t)now(now_ms) - (int64_t)(uint64_t)(m->level / 1000);

	ck_assert_int_le(difference, 1);
	ck_assert_int_ge(difference, -1);
}

static void play(uint64_t seed)
{
	struct model m = {0, 0};
	uint64_t ms = 0;

	resc_seed(seed);
	uint64_t capacity = (1 + random_below(50)) * TOKEN;
	uint64_t start = random_below(capacity + 1);
	fresh(random_below(2 * TOKEN), capacity, random_below(3) * random_below(5 * TOKEN), start, 0);
	m.level = (unsigned __int128)start * 1000;
	for (int i = 0; i < 2000; i++) {
		ms += random_below(4) == 0 ? random_below(2000) : random_below(3);
		model_pay(&m, ms);
		if (random_below(2) == 0) {
			deposit();
			model_deposit(&m);
		} else if (withdraw(ms) == 0) {
			ck_assert_uint_ge((uint64_t)(m.level / 1000) + 1, TOKEN);
			m.level = m.level < TOKEN * 1000 ? 0 : m.level - TOKEN * 1000;
		} else {
			ck_assert_uint_lt((uint64_t)(m.level / 1000), TOKEN + 1);
		}
		expect_as(&m, ms);
	}
}

START_TEST(random_sequences_are_as_the_model_says)
{
	for (uint64_t seed = 1; seed <= 100; seed++)
		play(seed);
}
END_TEST

/* ---- many at once ---- */

#define THREADS    4
#define OPERATIONS 50000

struct worker_result {
	uint64_t seed;
	uint64_t deposits;
	uint64_t grants;
};

static void *work(void *arg)
{
	struct worker_result *result = arg;
	struct policy policy = f.policy;

	resc_seed(result->seed);
	for (int i = 0; i < OPERATIONS; i++) {
		uint64_t ms = clock_coarse_ms(&f.map);
		if (policy.budget_per_second != 0 && random_below(8) == 0)
			atomic_fetch_add_explicit(&f.map.live->clock_ns, 1000000, memory_order_relaxed);
		if (random_below(3) != 0) {
			budget_deposit(&f.map, f.state, &policy, 0);
			result->deposits++;
		} else {
			result->grants += budget_withdraw(&f.map, f.state, &policy, RESC_FAIL, ms) == 0;
		}
	}
	return NULL;
}

static struct worker_result run_workers(void)
{
	struct worker_result results[THREADS] = {0};
	struct worker_result sum = {0};
	pthread_t threads[THREADS];

	fixture_at(&f, 0);
	for (uint64_t i = 0; i < THREADS; i++) {
		results[i].seed = i + 1;
		pthread_create(&threads[i], NULL, work, &results[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum.deposits += results[i].deposits;
		sum.grants += results[i].grants;
	}
	return sum;
}

START_TEST(D10_nothing_is_lost_or_invented)
{
	const uint64_t start = 1000 * TOKEN;

	fresh(TOKEN / 10, MOST, 0, start, 0);
	struct worker_result sum = run_workers();
	ck_assert_uint_eq(now(0) + sum.grants * TOKEN, start + sum.deposits * (TOKEN / 10));
	uint64_t left = now(0) / TOKEN;
	ck_assert_uint_eq(drain(0), left);
}
END_TEST

START_TEST(D10_a_small_bucket_never_gives_more_than_it_got)
{
	const uint64_t start = 3 * TOKEN;

	fresh(TOKEN / 10, 3 * TOKEN, 0, start, 0);
	struct worker_result sum = run_workers();
	ck_assert_uint_le(sum.grants * TOKEN, start + sum.deposits * (TOKEN / 10));
	ck_assert_uint_le(now(0), 3 * TOKEN);
}
END_TEST

START_TEST(D10_an_interval_of_the_floor_is_paid_once)
{
	/* The clock goes on while they work; the bucket is never full, so each millisecond must be there exactly once. */
	fresh(TOKEN / 10, MOST, 1234567, 1000 * TOKEN, 0);
	struct worker_result sum = run_workers();
	uint64_t ms = clock_coarse_ms(&f.map);
	uint64_t paid = now(ms) + sum.grants * TOKEN - 1000 * TOKEN - sum.deposits * (TOKEN / 10);
	ck_assert_uint_ge(paid + 1, 1234567 * ms / 1000);
	ck_assert_uint_le(paid, 1234567 * ms / 1000);
}
END_TEST

/* ---- many processes, and some are killed ---- */

#define PROCESSES 32
#define KILLED    4
/* TSan sees one process at a time, slowly; what is to be seen here are the sums. */
#ifdef __SANITIZE_THREAD__
#define EACH 50000
#else
#define EACH 1000000
#endif

/* What a process has done, counted after each operation: a death may leave one that was done and not counted. */
struct account {
	_Alignas(SEGMENT_LINE) word deposits;
	word grants;
	word refusals;
};

static uint64_t operations(const struct account *a)
{
	return fixture_load(&a->deposits) + fixture_load(&a->grants) + fixture_load(&a->refusals);
}

static void count_one(word *counter)
{
	fixture_store(counter, fixture_load(counter) + 1);
}

_Noreturn static void work_in_a_process(struct account *a, uint64_t seed, uint64_t count)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	resc_seed(seed);
	for (uint64_t i = 0; i < count; i++) {
		if (random_below(3) != 0) {
			budget_deposit(&f.map, f.state, &f.policy, 0);
			count_one(&a->deposits);
		} else {
			count_one(budget_withdraw(&f.map, f.state, &f.policy, RESC_FAIL, 0) == 0 ? &a->grants : &a->refusals);
		}
	}
	_exit(0);
}

/* Kills it somewhere in the middle of its work, which has no end. */
static void kill_in_the_middle(pid_t pid, const struct account *a, uint64_t after)
{
	while (operations(a) < after)
		sched_yield();
	kill(pid, SIGKILL);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
}

/* The sums of all in *sum. */
static void run_processes(uint64_t seed, uint64_t count, struct account *sum)
{
	struct account *accounts = mmap(NULL, PROCESSES * sizeof *accounts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[PROCESSES];

	ck_assert_ptr_ne(accounts, MAP_FAILED);
	for (uint64_t i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		ck_assert_int_ge(pids[i], 0);
		if (pids[i] == 0)
			work_in_a_process(&accounts[i], seed + i, i < KILLED ? UINT64_MAX : count);
	}
	resc_seed(seed);
	for (int i = 0; i < KILLED; i++)
		kill_in_the_middle(pids[i], &accounts[i], count / 100 + random_below(count / 2));
	for (int i = KILLED; i < PROCESSES; i++) {
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
		ck_assert_uint_eq(operations(&accounts[i]), count);
	}
	for (int i = 0; i < PROCESSES; i++) {
		fixture_store(&sum->deposits, fixture_load(&sum->deposits) + fixture_load(&accounts[i].deposits));
		fixture_store(&sum->grants, fixture_load(&sum->grants) + fixture_load(&accounts[i].grants));
	}
	munmap(accounts, PROCESSES * sizeof *accounts);
}

static void expect_conserved(uint64_t ttl_ms, uint64_t capacity, uint64_t count)
{
	struct fixture private = f;
	struct policy policy = plan(TOKEN / 10, capacity, 0);
	struct account sum = {.deposits = 0};

	policy.budget_ttl_ms = ttl_ms;
	fixture_open_shared(&f, &policy);
	expiring(TOKEN / 10, capacity, 0, ttl_ms);
	fixture_store(&f.state->tokens, tokens_make(WORD_LIVE, 0, 1000 * TOKEN));
	run_processes(count, count, &sum);
	/* Of each killed process one operation may be done and not counted: a deposit, or a retry. */
	uint64_t got = 1000 * TOKEN + fixture_load(&sum.deposits) * (TOKEN / 10);
	uint64_t gave = now(0) + fixture_load(&sum.grants) * TOKEN;
	ck_assert_uint_le(gave, got + KILLED * (TOKEN / 10));
	ck_assert_uint_ge(gave + KILLED * TOKEN, got);
	/* To the end: it gives what it has, to less than one. */
	uint64_t left = now(0) / TOKEN;
	ck_assert_uint_eq(drain(0), left);
	ck_assert_uint_lt(now(0), TOKEN);
	map_close(&f.map);
	f = private;
}

START_TEST(D10_32_processes_of_which_some_are_killed)
{
	expect_conserved(0, MOST, EACH);
}
END_TEST

START_TEST(D10_32_processes_share_tokens_that_expire)
{
	expect_conserved(TTL, 1000000 * TOKEN, EACH / 10);
}
END_TEST

START_TEST(a_claimer_that_is_stopped_brings_no_old_time_back)
{
	/* An hour passed while the bucket was full. Its claimer is stopped before it adds, and others empty the bucket. */
	struct fixture private = f;
	struct policy policy = plan(0, 10 * TOKEN, TOKEN);
	int status;

	fixture_open_shared(&f, &policy);
	fresh(0, 10 * TOKEN, TOKEN, 10 * TOKEN, 0);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("budget.claimed=stop");
		_exit(withdraw(3600000));
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_uint_eq(drain(3600000), 10);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 1);
	ck_assert_uint_eq(now(3600000), 0);
	map_close(&f.map);
	f = private;
}
END_TEST

START_TEST(a_claimer_that_is_stopped_brings_nothing_that_has_expired)
{
	/* It is stopped for a ttl before the slices, which are full; then others earn a token, and spend it. */
	struct fixture private = f;
	struct policy policy = plan(TOKEN, TOKEN, TOKEN);
	int status;

	policy.budget_ttl_ms = TTL;
	fixture_open_shared(&f, &policy);
	expiring(TOKEN, TOKEN, TOKEN, TTL);
	ck_assert_int_eq(withdraw(0), 0);
	deposits_at(500, 1);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("budget.claimed=stop");
		fixture_store(&f.state->tokens, tokens_make(WORD_LIVE, 0, 0)); /* spent */
		_exit(withdraw(900));
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	deposits_at(20000, 1);
	fixture_store(&f.state->refilled_ms, 20000);
	ck_assert_int_eq(withdraw(20000), 0);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 1);
	ck_assert_uint_eq(now(20000), 0);
	ck_assert_uint_eq(tokens_count(fixture_load(&f.state->tokens)), 0);
	map_close(&f.map);
	f = private;
}
END_TEST

START_TEST(D10_death_of_a_claimer_loses_that_interval_at_most)
{
	struct fixture private = f;
	struct policy policy = plan(0, 100 * TOKEN, TOKEN);

	fixture_open_shared(&f, &policy);
	fresh(0, 100 * TOKEN, TOKEN, 0, 0);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("budget.claimed=kill");
		withdraw(5000);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(now(5000), 0);
	ck_assert_int_eq(withdraw(6000), 0);
	map_close(&f.map);
	f = private;
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        starts_full,
	        D3_clamped_at_both_ends,
	        D4_ratio_0_has_only_the_floor,
	        D4_one_retry_in_a_thousand_calls,
	        D4_extreme_ratios_and_sizes,
	        D5_the_lone_failing_call,
	        a_full_bucket_is_not_written,
	        asking_does_not_change_anything,
	        a_timeout_may_cost_more,
	        what_costs_nothing_is_always_granted_and_what_costs_too_much_never,
	        E17_L12_with_a_threshold_of_half_four_of_ten_are_granted,
	        D3_with_a_threshold_failures_are_clamped_at_0,
	        L12_a_threshold_of_an_odd_capacity_is_exact,
	        no_fraction_is_lost_to_frequent_asking,
	        a_long_idle_time_only_fills,
	        time_that_passed_while_full_is_not_kept,
	        time_that_passed_while_deposits_filled_it_is_not_kept,
	        a_clock_that_is_a_tick_behind_pays_nothing_twice,
	        a_damaged_time_does_not_stop_the_floor,
	        a_worker_that_was_stopped_pays_nothing_twice,
	        settling_pays_by_the_old_rate,
	        D8_a_changed_capacity_keeps_the_filled_share,
	        D8_a_share_is_kept_once,
	        D8_epochs_wrap,
	        D8_an_older_word_is_cut_to_the_capacity,
	        D8_a_caller_with_an_old_policy_changes_no_size,
	        reset_fills,
	        a_word_that_has_moved_sends_the_caller_on,
	        whatever_the_bits_nothing_is_above_the_capacity,
	        L13_what_a_bucket_starts_with_expires,
	        deposits_expire_in_the_order_of_their_age,
	        a_deposit_into_a_full_bucket_renews_it,
	        a_slice_that_holds_the_capacity_is_only_read,
	        L13_the_floor_expires_too_and_each_second_of_it_at_its_time,
	        an_old_full_bucket_is_what_the_floor_paid_lately,
	        no_fraction_of_a_floor_that_expires_is_lost_to_frequent_asking,
	        with_a_threshold_too_what_has_expired_is_gone,
	        reset_fills_with_tokens_of_this_moment,
	        D8_a_changed_capacity_or_ttl_gives_what_is_there_a_new_life,
	        D8_a_ttl_where_there_was_none_starts_now,
	        a_new_life_is_given_once,
	        a_policy_that_is_written_with_another_ttl_has_another_epoch,
	        D8_a_caller_with_an_old_policy_harms_no_newer_slice,
	        a_depositor_that_was_stopped_brings_no_old_deposit,
	        damaged_slices_are_replaced_and_do_not_fill_the_bucket,
	        carried_slices_keep_their_age,
	        an_interval_of_the_floor_is_not_paid_again_in_the_successor,
	        D10_death_between_slice_and_tokens_loses_that_deposit,
	        random_sequences_expire_as_a_list_of_deposits_says,
	        random_sequences_with_a_floor_expire_as_a_list_of_deposits_says,
	        random_sequences_are_as_the_model_says,
	        D10_nothing_is_lost_or_invented,
	        D10_a_small_bucket_never_gives_more_than_it_got,
	        D10_an_interval_of_the_floor_is_paid_once,
	        D10_32_processes_of_which_some_are_killed,
	        D10_32_processes_share_tokens_that_expire,
	        a_claimer_that_is_stopped_brings_no_old_time_back,
	        a_claimer_that_is_stopped_brings_nothing_that_has_expired,
	        D10_death_of_a_claimer_loses_that_interval_at_most,
	};

	return FIXTURE_RUN("budget", tests, set_up, tear_down);
}
