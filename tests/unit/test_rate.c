/* SPDX-License-Identifier: MIT */
/* The rate limit: exact GCRA, never more than burst + rate in any second, nothing lost or invented however many share it. */
#include "rate.h"
#include "record.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "failpoint.h"
#include "fixture.h"
#include "move.h"
#include "override.h"
#include "random.h"

#define MS     UINT64_C(1000000)    /* ns */
#define SECOND UINT64_C(1000000000) /* ns */
#define DAY    (86400 * SECOND)
#define UNITS  UINT64_C(4) /* of the word, in a nanosecond */

static struct fixture f;

static struct policy plan(uint64_t per_second, uint64_t burst)
{
	struct policy policy;

	policy_defaults(&policy);
	policy.flags |= POLICY_CONFIGURED | POLICY_RATE;
	policy.rate_per_second = per_second;
	policy.rate_burst = burst;
	return policy;
}

static void set_up(void)
{
	struct policy policy = plan(10 * TOKEN, 3);

	fixture_open(&f, &policy);
	fixture_at(&f, 0);
}

static void tear_down(void)
{
	map_close(&f.map);
}

static void at(uint64_t ns)
{
	atomic_store_explicit(&f.map.live->clock_ns, f.map.created_ns + ns, memory_order_relaxed);
}

/* As rescd does it on a reload, except that nobody settles: a worker is the first to notice. */
static void write_policy(uint64_t per_second, uint64_t burst)
{
	struct policy policy = plan(per_second, burst);
	uint64_t sequence;

	policy_write(&f.map, f.index, &policy);
	ck_assert_int_eq(policy_read(&f.map, f.index, &f.policy, &sequence), 0);
}

static void put(uint64_t time)
{
	fixture_store(&f.state->rate, rate_make(WORD_LIVE, (unsigned)f.policy.rate_epoch, time));
}

/* Full, at time 0. */
static void fresh(uint64_t per_second, uint64_t burst)
{
	write_policy(per_second, burst);
	put(0);
	at(0);
}

static struct rate_taken last;
static uint64_t wait_ns;

static int take_waiting(uint32_t cost, uint64_t ns, uint64_t most_wait_ns)
{
	at(ns);
	return rate_take(&f.map, f.state, &f.policy, cost, f.map.created_ns + ns, most_wait_ns, &last, &wait_ns);
}

static int take(uint32_t cost, uint64_t ns)
{
	int r = take_waiting(cost, ns, 0);

	ck_assert(r != 0 || wait_ns == 0);
	return r;
}

static uint64_t now(uint64_t ns)
{
	return rate_now(&f.map, f.state, &f.policy, f.map.created_ns + ns);
}

/* How many single tokens there are at that time; takes them. */
static uint64_t drain(uint64_t ns)
{
	uint64_t n = 0;

	while (n < 1000000 && take(1, ns) == 0)
		n++;
	return n;
}

static uint64_t word_now(void)
{
	return fixture_load(&f.state->rate);
}

/* ---- the sequence ---- */

START_TEST(starts_full_and_gives_the_burst_at_once)
{
	ck_assert_uint_eq(now(0), 3 * TOKEN);
	ck_assert_uint_eq(drain(0), 3);
	ck_assert_uint_eq(now(0), 0);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 100 * MS);
}
END_TEST

START_TEST(the_next_token_is_there_to_the_nanosecond)
{
	drain(0);
	ck_assert_int_eq(take(1, 100 * MS - 1), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 1);
	ck_assert_int_eq(take(1, 100 * MS), 0);
	ck_assert_int_eq(take(1, 100 * MS), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 100 * MS);
	ck_assert_uint_eq(now(250 * MS), 1500000);
	ck_assert_int_eq(take(2, 299 * MS), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, MS);
	ck_assert_int_eq(take(2, 300 * MS), 0);
}
END_TEST

START_TEST(a_wait_is_rounded_up_to_a_nanosecond)
{
	fresh(3 * TOKEN, 1);
	ck_assert_int_eq(take(1, 0), 0);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 333333334);
	ck_assert_int_eq(take(1, 333333333), RESC_E_RATE);
	ck_assert_int_eq(take(1, 333333334), 0);
}
END_TEST

START_TEST(a_refusal_changes_nothing)
{
	drain(0);
	uint64_t w = word_now();
	ck_assert_int_eq(take(1, 50 * MS), RESC_E_RATE);
	ck_assert_int_eq(take(4, 50 * MS), RESC_E_COST);
	ck_assert_int_eq(take_waiting(1, 50 * MS, 50 * MS - 1), RESC_E_RATE);
	ck_assert_uint_eq(word_now(), w);
	ck_assert_uint_eq(last.amount, 0);
}
END_TEST

START_TEST(a_cost_above_the_burst_is_impossible)
{
	ck_assert_int_eq(take(4, 0), RESC_E_COST);
	ck_assert_uint_eq(wait_ns, 0);
	ck_assert_int_eq(take_waiting(4, 0, DAY), RESC_E_COST);
	ck_assert_int_eq(take(UINT32_MAX, 0), RESC_E_COST);
	ck_assert_int_eq(take(3, 0), 0);
	ck_assert_uint_eq(now(0), 0);
}
END_TEST

START_TEST(a_cost_of_0_is_one_token)
{
	ck_assert_int_eq(take(0, 0), 0);
	ck_assert_uint_eq(now(0), 2 * TOKEN);
}
END_TEST

START_TEST(idle_time_only_fills)
{
	drain(0);
	ck_assert_uint_eq(now(DAY), 3 * TOKEN);
	ck_assert_uint_eq(drain(DAY), 3);
	ck_assert_int_eq(take(1, DAY + 100 * MS - 1), RESC_E_RATE);
	ck_assert_int_eq(take(1, DAY + 100 * MS), 0);
}
END_TEST

START_TEST(no_fraction_is_lost_to_frequent_asking)
{
	/* Rates whose token is no whole number of nanoseconds; asked each 100 us for 20 s. */
	static const uint64_t rates[] = {1, 3, 7, 333, 999, 1001};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		uint64_t taken = 0;
		fresh(rates[i] * TOKEN, 5);
		/* Once more at the end, for what the rounding up of up to 20000 takes comes to. */
		for (uint64_t ns = 0; ns <= 20 * SECOND + MS / 10; ns += MS / 10)
			taken += take(1, ns) == 0;
		ck_assert_uint_eq(taken, 5 + rates[i] * 20);
	}
}
END_TEST

START_TEST(a_burst_of_single_tokens_is_there_whatever_the_rounding)
{
	static const uint64_t rates[] = {1, 3, 7, 333, 1001, 123457, 1000003, 30000001};

	for (size_t i = 0; i < sizeof(rates) / sizeof(rates[0]); i++) {
		fresh(rates[i] * TOKEN, 100);
		ck_assert_uint_eq(drain(0), 100);
	}
}
END_TEST

START_TEST(D4_extreme_rates_and_sizes)
{
	/* A token in eleven days and a half. */
	fresh(1, 1);
	ck_assert_int_eq(take(1, 0), 0);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 1000000 * SECOND);
	ck_assert_int_eq(take(1, 1000000 * SECOND - 1), RESC_E_RATE);
	ck_assert_int_eq(take(1, 1000000 * SECOND), 0);

	/* A thousand millions a second: a token a nanosecond. */
	fresh(UINT64_C(1000000000) * TOKEN, UINT32_MAX);
	ck_assert_int_eq(take(UINT32_MAX, 0), 0);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 1);
	ck_assert_int_eq(take(1, 1), 0);
	ck_assert_int_eq(take(1, 1), RESC_E_RATE);
	ck_assert_int_eq(take(1000, 1001), 0);

	/* The largest burst at the lowest rate would take 136 millions of years to fill: it is cut, and never wraps. */
	fresh(1, UINT32_MAX);
	ck_assert_int_eq(take(UINT32_MAX, 0), RESC_E_COST);
	ck_assert_uint_eq(drain(0), (UINT64_C(1) << 59) / (1000000 * SECOND * UNITS));
	ck_assert_int_eq(take(1, DAY), RESC_E_RATE);

	fresh(1, 4000);
	ck_assert_uint_eq(drain(0), (UINT64_C(1) << 59) / (1000000 * SECOND * UNITS));

	/* A burst whose rounding could come to a token. */
	fresh(UINT64_C(100000000) * TOKEN, 1000);
	ck_assert_uint_eq(drain(0), 1000);
	ck_assert_uint_eq(wait_ns, 10);

	/* Bytes: the cost is large, and what is rounded is next to nothing. */
	fresh(UINT64_C(900000000) * TOKEN, 1048576);
	uint64_t taken = 0;
	for (uint64_t ns = 0; ns <= SECOND; ns += 500)
		taken += take(1500, ns) == 0 ? 1500 : 0;
	ck_assert_uint_le(taken, 1048576 + 900000000);
	ck_assert_uint_ge(taken, 1048576 + 899900000);
}
END_TEST

START_TEST(at_the_end_of_its_time_it_refuses)
{
	/* Nine years after its creation. */
	uint64_t end = RATE_TIME_MASK / UNITS;

	fresh(10 * TOKEN, 3);
	ck_assert_int_eq(take(1, end - 1000 * SECOND), 0);
	ck_assert_int_eq(take(1, end), RESC_E_RATE);
	ck_assert_int_eq(take(1, UINT64_MAX - f.map.created_ns), RESC_E_RATE);
	ck_assert_uint_le(rate_time(word_now()), RATE_TIME_MASK);
}
END_TEST

START_TEST(a_clock_from_before_the_segment_is_its_start)
{
	struct rate_taken taken;

	ck_assert_int_eq(rate_take(&f.map, f.state, &f.policy, 3, 0, 0, &taken, &wait_ns), 0);
	ck_assert_uint_eq(word_now(), rate_make(WORD_LIVE, 0, 3 * 100 * MS * UNITS));
}
END_TEST

/* ---- against exact arithmetic ---- */

/*
 * The same limit in whole fractions: time in units times per_second, so that a token is a whole number. It follows what the library admits,
 * and says what an exact limit would have said.
 */
struct exact {
	unsigned __int128 full_at;
	uint64_t per_second;
	uint64_t burst;
	uint64_t takes; /* since it was full */
};

#define TOKEN_EXACT ((unsigned __int128)UNITS * SECOND * TOKEN)

static unsigned __int128 exact_missing(const struct exact *e, uint64_t ns)
{
	unsigned __int128 t = (unsigned __int128)ns * UNITS * e->per_second;
	return e->full_at > t ? e->full_at - t : 0;
}

static void check_answer(struct exact *e, int r, uint32_t cost, uint64_t ns)
{
	unsigned __int128 lacking = exact_missing(e, ns);
	unsigned __int128 with = lacking + cost * TOKEN_EXACT;
	unsigned __int128 rounding = (unsigned __int128)(e->takes + 1) * e->per_second; /* a unit a take at most */

	if (lacking == 0)
		e->takes = 0;
	if (cost > e->burst) {
		ck_assert_int_eq(r, RESC_E_COST);
	} else if (r == 0) {
		ck_assert(with < (e->burst + 1) * TOKEN_EXACT);
		/* Where a token is a whole number of units there is no rounding, and no grace. */
		ck_assert(TOKEN_EXACT % e->per_second != 0 || with <= e->burst * TOKEN_EXACT);
		e->full_at = (unsigned __int128)ns * UNITS * e->per_second + with;
		e->takes++;
	} else {
		ck_assert_int_eq(r, RESC_E_RATE);
		ck_assert(with + rounding > e->burst * TOKEN_EXACT);
		ck_assert(TOKEN_EXACT % e->per_second != 0 || with > e->burst * TOKEN_EXACT);
	}
	unsigned __int128 time = (unsigned __int128)rate_time(word_now()) * e->per_second;
	ck_assert(r != 0 || (time >= e->full_at && time <= e->full_at + rounding));
}

static uint64_t random_rate(void)
{
	static const uint64_t usual[] = {1, 2, 5, 10, 25, 100, 500, 1000, 10000, 1000000};

	if (random_below(2) == 0)
		return usual[random_below(sizeof(usual) / sizeof(usual[0]))] * TOKEN;
	return 1 + random_below(UINT64_C(1) << (10 + random_below(39)));
}

START_TEST(random_sequences_are_as_exact_arithmetic_says)
{
	resc_seed(11);
	for (int round = 0; round < 500; round++) {
		uint64_t ns = random_below(SECOND);
		struct exact e = {.per_second = random_rate(), .burst = 1 + random_below(UINT64_C(1) << random_below(14))};
		/* Steps of about a token, from none to many. */
		uint64_t token_ns = SECOND * TOKEN / e.per_second + 1;
		fresh(e.per_second, e.burst);
		for (int i = 0; i < 200; i++) {
			uint32_t cost = 1 + (uint32_t)random_below(random_below(2) == 0 ? 1 : e.burst + e.burst / 16 + 1);
			check_answer(&e, take(cost, ns), cost, ns);
			ns += random_below(3) == 0 ? 0 : random_below(token_ns * 2 * (1 + random_below(3) * e.burst / 2));
			if (ns > UINT64_C(100000000) * SECOND)
				break;
		}
	}
}
END_TEST

struct admitted {
	uint64_t ns;
	uint64_t cost;
};

/* In each second that begins with a call. */
static void check_seconds(const struct admitted *calls, size_t n, uint64_t burst, uint64_t rate)
{
	uint64_t sum = 0;

	for (size_t first = 0, end = 0; first < n; sum -= calls[first++].cost) {
		for (; end < n && calls[end].ns <= calls[first].ns + SECOND; end++)
			sum += calls[end].cost;
		ck_assert_uint_le(sum, burst + rate);
	}
}

START_TEST(in_any_second_at_most_burst_and_rate)
{
	static struct admitted calls[20000];

	resc_seed(12);
	for (int round = 0; round < 300; round++) {
		uint64_t rate = 1 + random_below(UINT64_C(1) << (1 + random_below(10)));
		uint64_t burst = 1 + random_below(UINT64_C(1) << (1 + random_below(9)));
		uint64_t wait_most = random_below(2) == 0 ? 0 : random_below(3 * SECOND);
		uint64_t begins = 0;
		size_t n = 0;
		fresh(rate * TOKEN, burst);
		for (uint64_t ns = 0; n < 5000 && ns < 20 * SECOND;) {
			uint32_t cost = (uint32_t)(random_below(4) == 0 ? 1 + random_below(burst) : 1);
			if (take_waiting(cost, ns, wait_most) == 0) {
				/* Calls that wait begin in the order in which they took. */
				ck_assert_uint_ge(ns + wait_ns, begins);
				ck_assert_uint_le(wait_ns, wait_most);
				begins = ns + wait_ns;
				calls[n++] = (struct admitted){begins, cost};
			} else if (random_below(8) == 0) {
				ns += random_below(2 * SECOND);
			}
			ns += random_below(4) == 0 ? random_below(SECOND / rate + 1) : random_below(1000);
		}
		check_seconds(calls, n, burst, rate);
	}
}
END_TEST

/* ---- waiting ---- */

START_TEST(who_may_wait_takes_a_time_in_the_order_of_arrival)
{
	drain(0);
	for (uint64_t i = 1; i <= 5; i++) {
		ck_assert_int_eq(take_waiting(1, 0, 500 * MS), 0);
		ck_assert_uint_eq(wait_ns, i * 100 * MS);
	}
	ck_assert_int_eq(take_waiting(1, 0, 500 * MS), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 600 * MS);
	/* Later, but behind those who wait. */
	ck_assert_int_eq(take_waiting(1, 499 * MS, 0), RESC_E_RATE);
	ck_assert_int_eq(take_waiting(1, 500 * MS, 100 * MS), 0);
	ck_assert_uint_eq(wait_ns, 100 * MS);
	ck_assert_uint_eq(now(500 * MS), 0);
}
END_TEST

START_TEST(nobody_waits_longer_than_a_day)
{
	fresh(1, 1);
	ck_assert_int_eq(take(1, 0), 0);
	ck_assert_int_eq(take_waiting(1, 0, UINT64_MAX), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 1000000 * SECOND);
	ck_assert_int_eq(take_waiting(1, 1000000 * SECOND - DAY, UINT64_MAX), 0);
	ck_assert_uint_eq(wait_ns, DAY);
}
END_TEST

/* ---- giving back ---- */

START_TEST(given_back_alone_the_word_is_as_before)
{
	uint64_t before = rate_make(WORD_LIVE, 0, 40 * MS * UNITS);

	fixture_store(&f.state->rate, rate_make(WORD_PREPARED, 0, 40 * MS * UNITS));
	ck_assert_int_eq(take(2, 7 * MS), 0);
	ck_assert_uint_ne(word_now(), before);
	at(90 * MS);
	rate_give_back(&f.map, f.state, &last);
	ck_assert_uint_eq(word_now(), before);
}
END_TEST

START_TEST(what_was_given_back_is_zeroed)
{
	ck_assert_int_eq(take(1, 0), 0);
	rate_give_back(&f.map, f.state, &last);
	rate_give_back(&f.map, f.state, &last);
	ck_assert_uint_eq(last.amount + last.before + last.after + last.depth, 0);
	ck_assert_uint_eq(now(0), 3 * TOKEN);
}
END_TEST

START_TEST(given_back_after_others_took_it_is_subtracted)
{
	ck_assert_int_eq(take(1, 0), 0);
	struct rate_taken mine = last;
	ck_assert_int_eq(take(2, 0), 0);
	rate_give_back(&f.map, f.state, &mine);
	ck_assert_uint_eq(now(0), TOKEN);
	ck_assert_uint_eq(drain(0), 1);
}
END_TEST

START_TEST(giving_back_never_saves_up_more_than_a_full_bucket)
{
	/* All three at 0. At 300 ms the bucket is full again by itself, and another takes three: then the first three come back. */
	ck_assert_int_eq(take(3, 0), 0);
	struct rate_taken mine = last;
	ck_assert_int_eq(take(3, 300 * MS), 0);
	rate_give_back(&f.map, f.state, &mine);
	ck_assert_uint_eq(drain(300 * MS), 0);

	/* Half of the time: half of it had run over. */
	fresh(10 * TOKEN, 4);
	ck_assert_int_eq(take(2, 0), 0);
	mine = last;
	ck_assert_int_eq(take(1, 100 * MS), 0);
	rate_give_back(&f.map, f.state, &mine);
	ck_assert_uint_eq(drain(100 * MS), 3);
}
END_TEST

START_TEST(nothing_comes_back_while_somebody_waits)
{
	fresh(10 * TOKEN, 1);
	ck_assert_int_eq(take(1, 0), 0);
	struct rate_taken mine = last;
	ck_assert_int_eq(take_waiting(1, 0, SECOND), 0);
	ck_assert_uint_eq(wait_ns, 100 * MS);
	rate_give_back(&f.map, f.state, &mine);
	/* Another one would begin together with the one that waits. */
	ck_assert_int_eq(take_waiting(1, 0, SECOND), 0);
	ck_assert_uint_eq(wait_ns, 200 * MS);
}
END_TEST

START_TEST(what_was_taken_at_another_rate_does_not_come_back)
{
	ck_assert_int_eq(take(1, 0), 0);
	struct rate_taken mine = last;
	write_policy(1000 * TOKEN, 30);
	rate_settle(&f.map, f.state);
	uint64_t w = word_now();
	rate_give_back(&f.map, f.state, &mine);
	ck_assert_uint_eq(word_now(), w);
}
END_TEST

START_TEST(random_giving_back_never_gives_more_than_burst_and_rate)
{
	static struct admitted calls[20000];
	struct rate_taken held[4];

	resc_seed(13);
	for (int round = 0; round < 300; round++) {
		uint64_t rate = 1 + random_below(1000);
		uint64_t burst = 4 + random_below(100);
		unsigned holding = 0;
		size_t n = 0;
		fresh(rate * TOKEN, burst);
		for (uint64_t ns = 0; n < 5000 && ns < 5 * SECOND; ns += random_below(SECOND / rate)) {
			int what = (int)random_below(4);
			uint32_t cost = 1 + (uint32_t)random_below(4);
			if (what == 0 && holding > 0) {
				at(ns);
				rate_give_back(&f.map, f.state, &held[--holding]);
			} else if (take(cost, ns) == 0 && what == 1 && holding < 4) {
				held[holding++] = last; /* will be given back: nobody has called */
			} else if (last.amount != 0) {
				calls[n++] = (struct admitted){ns, cost};
			}
			ns += random_below(64) == 0 ? random_below(SECOND) : 0;
		}
		check_seconds(calls, n, burst, rate);
	}
}
END_TEST

/* ---- another rate ---- */

START_TEST(D8_a_changed_burst_keeps_the_filled_share)
{
	fresh(TOKEN, 10);
	ck_assert_int_eq(take(2, 0), 0);
	write_policy(TOKEN, 5);
	ck_assert_uint_eq(now(0), 4 * TOKEN);
	ck_assert_uint_eq(drain(0), 4);
	write_policy(TOKEN, 10);
	ck_assert_uint_eq(now(0), 0);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_int_eq(take(1, SECOND), 0);
}
END_TEST

START_TEST(D8_a_change_invents_nothing)
{
	/* Half of a unit that is missing is a unit. */
	fresh(TOKEN, 10);
	put(1);
	write_policy(TOKEN, 5);
	rate_settle(&f.map, f.state);
	ck_assert_uint_eq(rate_time(word_now()), 1);
}
END_TEST

START_TEST(D8_a_large_bucket_is_cut_to_a_small_one)
{
	fresh(UINT64_C(104857600) * TOKEN, 104857600);
	ck_assert_int_eq(take(14857600, 0), 0);
	ck_assert_uint_eq(now(0) / TOKEN, 90000000);
	write_policy(UINT64_C(1048576) * TOKEN, 1048576);
	ck_assert_uint_le(now(0), UINT64_C(1048576) * TOKEN);
	ck_assert_uint_eq(now(0) / TOKEN, 1048576ull * 90000000 / 104857600);
	ck_assert_int_eq(take(1048576, 0), RESC_E_RATE);
	ck_assert_int_eq(take(900000, 0), 0);
	ck_assert_uint_lt(now(0), TOKEN);
	/* From that instant at the new rate. */
	ck_assert_int_eq(take(1048576, SECOND - MS), RESC_E_RATE);
	ck_assert_int_eq(take(1048576, SECOND), 0);
}
END_TEST

START_TEST(D8_the_new_rate_counts_from_the_first_refusal)
{
	/* One an hour, and empty; then a thousand a second. A refused call is enough. */
	fresh(TOKEN / 3600 + 1, 10);
	ck_assert_uint_eq(drain(0), 10);
	write_policy(1000 * TOKEN, 10);
	ck_assert_int_eq(take(1, 0), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, MS);
	ck_assert_int_eq(take(1, MS), 0);
	ck_assert_uint_eq(drain(DAY), 10);
}
END_TEST

START_TEST(D8_rescd_makes_it_count_at_once)
{
	fresh(TOKEN / 3600 + 1, 10);
	ck_assert_uint_eq(drain(0), 10);
	write_policy(1000 * TOKEN, 10);
	record_apply(&f.map, f.index, &f.policy);
	ck_assert_uint_eq(rate_epoch(word_now()), f.policy.rate_epoch);
	ck_assert_uint_eq(drain(5 * MS), 5);
}
END_TEST

START_TEST(D8_who_waits_keeps_its_time)
{
	fresh(10 * TOKEN, 2);
	ck_assert_uint_eq(drain(0), 2);
	for (uint64_t i = 1; i <= 3; i++)
		ck_assert_int_eq(take_waiting(1, 0, SECOND), 0);
	write_policy(100 * TOKEN, 4);
	ck_assert_int_eq(take_waiting(1, 0, SECOND), 0);
	ck_assert_uint_eq(wait_ns, 310 * MS);
}
END_TEST

START_TEST(D8_a_caller_with_an_old_policy_uses_the_new_one)
{
	fresh(TOKEN / 3600 + 1, 10);
	struct policy old = f.policy;
	struct rate_taken taken;

	write_policy(1000 * TOKEN, 20);
	ck_assert_int_eq(take(1, 0), 0);
	/* By its own policy this one token would be an hour. */
	ck_assert_int_eq(rate_take(&f.map, f.state, &old, 1, f.map.created_ns, 0, &taken, &wait_ns), 0);
	ck_assert_uint_eq(now(0), 18 * TOKEN);
	ck_assert_uint_eq(taken.amount, MS * UNITS);
	ck_assert_uint_eq(rate_epoch(word_now()), f.policy.rate_epoch);
}
END_TEST

START_TEST(D8_epochs_wrap)
{
	fresh(TOKEN, 8);
	ck_assert_int_eq(take(4, 0), 0);
	for (int i = 0; i < 9; i++) {
		write_policy(TOKEN, i % 2 == 0 ? 16 : 8);
		rate_settle(&f.map, f.state);
		ck_assert_uint_eq(now(0), (i % 2 == 0 ? 8 : 4) * TOKEN);
	}
}
END_TEST

START_TEST(D8_a_word_of_several_changes_ago_is_cut)
{
	for (int changes = 2; changes <= 3; changes++) {
		fresh(TOKEN, 1000);
		ck_assert_int_eq(take(1000, 0), 0);
		for (int i = 0; i < changes; i++)
			write_policy((uint64_t)(10 + i) * TOKEN, 10);
		ck_assert_uint_eq(now(0), 0);
		ck_assert_int_eq(take(1, 0), RESC_E_RATE);
		ck_assert_uint_eq(rate_epoch(word_now()), f.policy.rate_epoch);
		ck_assert_uint_eq(now(2 * SECOND), 10 * TOKEN);
		ck_assert_uint_eq(drain(2 * SECOND), 10);
	}
}
END_TEST

START_TEST(another_policy_that_has_the_same_rate_changes_nothing)
{
	ck_assert_int_eq(take(2, 0), 0);
	uint64_t w = word_now();
	write_policy(10 * TOKEN, 3);
	record_apply(&f.map, f.index, &f.policy);
	ck_assert_int_eq(take(2, 0), RESC_E_RATE);
	ck_assert_uint_eq(word_now(), w);
}
END_TEST

/* ---- damage ---- */

START_TEST(a_damaged_time_counts_as_empty_and_fills_again)
{
	put(RATE_TIME_MASK);
	ck_assert_uint_eq(now(SECOND), 0);
	ck_assert_int_eq(take(1, SECOND), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 100 * MS);
	ck_assert_uint_eq(drain(SECOND + 200 * MS), 2);
	ck_assert_uint_eq(drain(SECOND + 500 * MS), 3);
}
END_TEST

START_TEST(a_worker_that_was_stopped_takes_no_honest_time_for_damage)
{
	/* It read the clock, was stopped for three days, and goes on with the time that it knows. */
	ck_assert_uint_eq(drain(3 * DAY), 3);
	uint64_t w = word_now();
	struct rate_taken taken;
	ck_assert_int_eq(rate_take(&f.map, f.state, &f.policy, 1, f.map.created_ns + 5, 0, &taken, &wait_ns), RESC_E_RATE);
	ck_assert_uint_eq(wait_ns, 100 * MS);
	ck_assert_uint_eq(word_now(), w);
}
END_TEST

START_TEST(whatever_the_bits_it_ends_and_nothing_is_above_the_burst)
{
	resc_seed(14);
	for (int i = 0; i < 40000; i++) {
		uint64_t ns = random_next() >> random_below(64) >> 6;
		uint64_t w = random_next() >> random_below(64) << random_below(64);
		if (i % 64 == 0)
			write_policy(1 + random_below(UINT64_C(1) << random_below(50)), 1 + random_below(UINT64_C(1) << random_below(33)));
		fixture_store(&f.state->rate, w);
		ck_assert_uint_le(now(ns), f.policy.rate_burst * TOKEN);
		int r = take_waiting((uint32_t)(random_next() >> random_below(64)), ns, random_next() >> random_below(64));
		bool here = rate_kind(w) == WORD_LIVE || rate_kind(w) == WORD_PREPARED;
		ck_assert_int_eq(r == -ESTALE, !here);
		ck_assert(here || word_now() == w);
		rate_give_back(&f.map, f.state, &last);
		ck_assert_uint_le(now(ns), f.policy.rate_burst * TOKEN);
	}
}
END_TEST

START_TEST(a_policy_of_zeros_divides_by_nothing)
{
	struct policy zero;
	struct rate_taken taken;

	memset(&zero, 0, sizeof zero);
	put(0);
	ck_assert_int_eq(rate_take(&f.map, f.state, &zero, 1, f.map.created_ns, 0, &taken, &wait_ns), 0);
	ck_assert_int_eq(rate_take(&f.map, f.state, &zero, 1, f.map.created_ns, 0, &taken, &wait_ns), RESC_E_RATE);
	ck_assert_uint_eq(rate_now(&f.map, f.state, &zero, f.map.created_ns), 0);
}
END_TEST

/* ---- succession, reset ---- */

START_TEST(a_word_that_has_moved_sends_the_caller_on)
{
	static const unsigned kinds[] = {WORD_EMPTY, WORD_MOVED};

	ck_assert_int_eq(take(1, 0), 0);
	for (size_t i = 0; i < 2; i++) {
		struct rate_taken mine = last;
		uint64_t w = rate_make(kinds[i], 0, 5);
		fixture_store(&f.state->rate, w);
		ck_assert_int_eq(rate_take(&f.map, f.state, &f.policy, 1, f.map.created_ns, 0, &(struct rate_taken){0, 0, 0, 0}, &wait_ns),
		                 -ESTALE);
		rate_give_back(&f.map, f.state, &mine);
		rate_settle(&f.map, f.state);
		ck_assert_int_eq(rate_fill(f.state), -ESTALE);
		ck_assert_uint_eq(now(0), 0);
		ck_assert_uint_eq(word_now(), w);
	}
}
END_TEST

START_TEST(it_moves_to_the_successor_as_it_is)
{
	struct map to;
	struct resc_error err;
	uint64_t taken_ns = f.map.created_ns;

	ck_assert_int_eq(map_create(&to, "unit", &f.map.dims, &f.map, 0600, (gid_t)-1, &err), 0);
	record_publish_moved(&to, f.index, "payments", &f.policy, false);
	struct state *new = map_state(&to, f.index);
	struct rate_taken taken;
	ck_assert_int_eq(rate_take(&to, new, &f.policy, 1, taken_ns, 0, &taken, &wait_ns), -ESTALE);
	ck_assert_int_eq(take(2, 0), 0);
	move_words(&f.map, f.state, &to, new);
	ck_assert_int_eq(take(1, 0), -ESTALE);
	ck_assert_uint_eq(rate_now(&to, new, &f.policy, taken_ns), TOKEN);
	ck_assert_int_eq(rate_take(&to, new, &f.policy, 1, taken_ns, 0, &taken, &wait_ns), 0);
	/* Again, by another one who is late. */
	move_words(&f.map, f.state, &to, new);
	ck_assert_int_eq(rate_take(&to, new, &f.policy, 1, taken_ns, 0, &taken, &wait_ns), RESC_E_RATE);
	map_close(&to);
}
END_TEST

START_TEST(reset_fills)
{
	ck_assert_uint_eq(drain(0), 3);
	ck_assert_int_eq(override_reset(&f.map, f.index, "test"), 0);
	ck_assert_uint_eq(now(0), 3 * TOKEN);
	ck_assert_uint_eq(drain(0), 3);
}
END_TEST

START_TEST(no_more_than_the_burst_is_shown_whatever_the_rounding)
{
	fresh(3 * TOKEN, 1000000);
	put(1);
	ck_assert_uint_eq(now(0), 1000000 * TOKEN);
}
END_TEST

START_TEST(asking_writes_nothing)
{
	uint64_t w = rate_make(WORD_PREPARED, 2, RATE_TIME_MASK);

	fixture_store(&f.state->rate, w);
	now(SECOND);
	ck_assert_uint_eq(word_now(), w);
}
END_TEST

/* ---- many at once ---- */

#define THREADS 4
#define OPS     50000

struct result {
	uint64_t seed;
	uint64_t grants;
	uint64_t given_back;
	bool clock_runs;
};

static void *work(void *argument)
{
	struct result *result = argument;
	struct rate_taken taken;
	uint64_t ns;

	resc_seed(result->seed);
	for (int i = 0; i < OPS; i++) {
		if (result->clock_runs && random_below(4) == 0)
			atomic_fetch_add_explicit(&f.map.live->clock_ns, random_below(1000), memory_order_relaxed);
		uint64_t t = atomic_load_explicit(&f.map.live->clock_ns, memory_order_relaxed);
		if (rate_take(&f.map, f.state, &f.policy, 1, t, 0, &taken, &ns) != 0)
			continue;
		if (random_below(4) == 0) {
			rate_give_back(&f.map, f.state, &taken);
			result->given_back++;
		} else {
			result->grants++;
		}
	}
	return NULL;
}

static struct result run_threads(bool clock_runs)
{
	struct result results[THREADS] = {0};
	struct result sum = {0};
	pthread_t threads[THREADS];

	for (uint64_t i = 0; i < THREADS; i++) {
		results[i].seed = i + 1;
		results[i].clock_runs = clock_runs;
		pthread_create(&threads[i], NULL, work, &results[i]);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		sum.grants += results[i].grants;
		sum.given_back += results[i].given_back;
	}
	return sum;
}

START_TEST(threads_lose_and_invent_nothing)
{
	/* Time stands still: what was taken and not given back is what is missing, to the last unit. */
	fresh(3 * TOKEN, 10000000);
	struct result sum = run_threads(false);
	ck_assert_uint_gt(sum.given_back, OPS / 2);
	ck_assert_uint_eq(rate_time(word_now()), sum.grants * UINT64_C(1333333334));
}
END_TEST

START_TEST(threads_get_the_burst_and_the_rate_and_no_more)
{
	fresh(1000000 * TOKEN, 100);
	struct result sum = run_threads(true);
	uint64_t ns = atomic_load_explicit(&f.map.live->clock_ns, memory_order_relaxed) - f.map.created_ns;
	ck_assert_uint_gt(ns, 10 * MS);
	ck_assert_uint_le(sum.grants, 100 + ns / 1000);
	/* Asked all the time, it is never full, so nothing runs over but what comes back late. */
	ck_assert_uint_ge(sum.grants + sum.given_back + 100, ns / 1000);
}
END_TEST

START_TEST(a_death_before_the_take_takes_nothing)
{
	struct fixture private = f;
	struct policy policy = plan(10 * TOKEN, 3);

	fixture_open_shared(&f, &policy);
	at(0);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("rate.take=kill");
		take(1, 0);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(drain(0), 3);
	map_close(&f.map);
	f = private;
}
END_TEST

START_TEST(a_mender_that_was_stopped_mends_nothing_twice)
{
	/* It is stopped between its look at a damaged word and the CAS; others mend it and take. */
	struct fixture private = f;
	struct policy policy = plan(10 * TOKEN, 3);
	int status;

	fixture_open_shared(&f, &policy);
	put(RATE_TIME_MASK);
	at(SECOND);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("rate.mend=stop");
		_exit(take(1, SECOND) == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(take(1, SECOND), RESC_E_RATE);
	ck_assert_uint_eq(drain(2 * SECOND), 3);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 1);
	ck_assert_uint_eq(now(2 * SECOND), 0);
	map_close(&f.map);
	f = private;
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        starts_full_and_gives_the_burst_at_once,
	        the_next_token_is_there_to_the_nanosecond,
	        a_wait_is_rounded_up_to_a_nanosecond,
	        a_refusal_changes_nothing,
	        a_cost_above_the_burst_is_impossible,
	        a_cost_of_0_is_one_token,
	        idle_time_only_fills,
	        no_fraction_is_lost_to_frequent_asking,
	        a_burst_of_single_tokens_is_there_whatever_the_rounding,
	        D4_extreme_rates_and_sizes,
	        at_the_end_of_its_time_it_refuses,
	        a_clock_from_before_the_segment_is_its_start,
	        random_sequences_are_as_exact_arithmetic_says,
	        in_any_second_at_most_burst_and_rate,
	        who_may_wait_takes_a_time_in_the_order_of_arrival,
	        nobody_waits_longer_than_a_day,
	        given_back_alone_the_word_is_as_before,
	        what_was_given_back_is_zeroed,
	        given_back_after_others_took_it_is_subtracted,
	        giving_back_never_saves_up_more_than_a_full_bucket,
	        nothing_comes_back_while_somebody_waits,
	        what_was_taken_at_another_rate_does_not_come_back,
	        random_giving_back_never_gives_more_than_burst_and_rate,
	        D8_a_changed_burst_keeps_the_filled_share,
	        D8_a_change_invents_nothing,
	        D8_a_large_bucket_is_cut_to_a_small_one,
	        D8_the_new_rate_counts_from_the_first_refusal,
	        D8_rescd_makes_it_count_at_once,
	        D8_who_waits_keeps_its_time,
	        D8_a_caller_with_an_old_policy_uses_the_new_one,
	        D8_epochs_wrap,
	        D8_a_word_of_several_changes_ago_is_cut,
	        another_policy_that_has_the_same_rate_changes_nothing,
	        a_damaged_time_counts_as_empty_and_fills_again,
	        a_worker_that_was_stopped_takes_no_honest_time_for_damage,
	        whatever_the_bits_it_ends_and_nothing_is_above_the_burst,
	        a_policy_of_zeros_divides_by_nothing,
	        a_word_that_has_moved_sends_the_caller_on,
	        it_moves_to_the_successor_as_it_is,
	        reset_fills,
	        no_more_than_the_burst_is_shown_whatever_the_rounding,
	        asking_writes_nothing,
	        threads_lose_and_invent_nothing,
	        threads_get_the_burst_and_the_rate_and_no_more,
	        a_death_before_the_take_takes_nothing,
	        a_mender_that_was_stopped_mends_nothing_twice,
	};

	return FIXTURE_RUN("rate", tests, set_up, tear_down);
}
