/* SPDX-License-Identifier: MIT */
/*
 * resctl suggest, the arithmetic: shares and quantiles from the histogram agree with the times that went into it, no share is more exact
 * than it can be, and each note appears where its setting cannot work and nowhere else.
 */
#include "suggest.h"

#include <math.h>

#include "fixture.h"
#include "latency.h"

static struct suggest_facts facts;
static struct suggest_timeouts timeouts;
static struct suggest_limit limit;
static struct suggest_note notes[SUGGEST_NOTE_COUNT];
static size_t noted;

static void set_up(void)
{
	facts = (struct suggest_facts){.workers = 8};
	policy_defaults(&facts.policy);
}

static void tear_down(void) {}

static void measure(double us, uint64_t times)
{
	facts.latency.buckets[latency_bucket((uint64_t)us)] += times;
	facts.latency.count += times;
	facts.latency.sum_us += (uint64_t)us * times;
}

static void ended_ok(double us, uint64_t times)
{
	measure(us, times);
	facts.counters.ended_ok += times;
}

static void timed_out(double us, uint64_t times)
{
	measure(us, times);
	facts.counters.ended_timeout += times;
}

static void failed(double us, uint64_t times)
{
	measure(us, times);
	facts.counters.ended_fail += times;
}

static void cut_at(uint64_t ms)
{
	facts.policy.flags |= POLICY_TIMEOUT;
	facts.policy.timeout_attempt_ms = ms;
}

/* ---- 10,000 response times: 99.5 % log-normal with mu -2.6 and sigma 0.5, the others uniform between 200 and 750 ms ---- */

#define RESPONSES 10000

static double responses_us[RESPONSES];
static uint64_t seed;

static double uniform(void)
{
	uint64_t z = seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return ((double)((z ^ z >> 31) >> 11) + 0.5) / 9007199254740992.0;
}

static double response_us(void)
{
	if (uniform() >= 0.995)
		return (0.2 + 0.55 * uniform()) * 1e6;
	double radius = sqrt(-2 * log(uniform()));

	return exp(-2.6 + 0.5 * radius * cos(2 * acos(-1) * uniform())) * 1e6;
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* The seed of which the exact figures are nearest to the published ones. */
static void measure_responses(void)
{
	seed = 1205;
	for (unsigned i = 0; i < RESPONSES; i++) {
		responses_us[i] = response_us();
		ended_ok(responses_us[i], 1);
	}
	qsort(responses_us, RESPONSES, sizeof(responses_us[0]), compare);
}

static double exact_share(double us)
{
	unsigned below = 0;

	while (below < RESPONSES && responses_us[below] < us)
		below++;
	return (double)(RESPONSES - below) / RESPONSES;
}

static void is_near(double value, double wanted, double most)
{
	ck_assert_msg(fabs(value - wanted) <= most, "%g is not %g", value, wanted);
}

START_TEST(published_quantiles_come_out_of_the_histogram)
{
	measure_responses();
	suggest_timeouts(&facts, &timeouts);
	is_near(timeouts.p50_us, 75e3, 1e3);
	is_near(timeouts.p99_us, 259e3, 5e3);
	is_near(timeouts.p999_us, 649e3, 20e3);
	ck_assert(!timeouts.p99_is_least && !timeouts.p999_is_least);
}
END_TEST

START_TEST(published_shares_come_out_of_the_histogram)
{
	static const struct {
		uint64_t ms;
		double percent;
	} published[] = {{200, 2.80}, {300, 0.56}, {500, 0.17}, {800, 0}};

	measure_responses();
	for (size_t i = 0; i < sizeof(published) / sizeof(published[0]); i++) {
		struct suggest_share cut = suggest_cut_off(&facts, published[i].ms);

		/* An eighth of an octave is what the histogram knows. */
		is_near(cut.likely * 100, published[i].percent, 0.1);
	}
}
END_TEST

START_TEST(a_share_is_within_its_bounds_and_the_bounds_hold_the_truth)
{
	measure_responses();
	for (uint64_t ms = 1; ms < 1000; ms++) {
		struct suggest_share cut = suggest_cut_off(&facts, ms);
		double truth = exact_share((double)ms * 1000);

		ck_assert(cut.least <= cut.likely && cut.likely <= cut.most);
		ck_assert_msg(cut.least <= truth && truth <= cut.most, "%u ms: %g, and not %g to %g", (unsigned)ms, truth, cut.least,
		              cut.most);
	}
}
END_TEST

START_TEST(the_padded_p999_is_recommended)
{
	measure_responses();
	suggest_timeouts(&facts, &timeouts);
	ck_assert_int_ge(timeouts.recommended, 0);
	const struct suggest_timeout *best = &timeouts.list[timeouts.recommended];
	ck_assert_uint_eq(best->ms, 800);
	ck_assert_uint_eq(best->why, 1u << SUGGEST_P999_PADDED | 1u << SUGGEST_ROUND);
	ck_assert_double_eq(best->cut.most, 0);
	for (size_t i = 1; i < timeouts.count; i++) {
		ck_assert_uint_lt(timeouts.list[i - 1].ms, timeouts.list[i].ms);
		ck_assert_double_ge(timeouts.list[i - 1].cut.likely, timeouts.list[i].cut.likely);
	}
}
END_TEST

/* ---- too few, nothing, odd ---- */

START_TEST(too_few_calls_have_no_quantiles)
{
	ended_ok(50e3, 99);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.p50_us > 0 && timeouts.p99_us == 0 && timeouts.p999_us == 0 && timeouts.recommended == -1);
	ended_ok(50e3, 1);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.p99_us > 0 && timeouts.p999_us == 0);
	ck_assert((timeouts.list[timeouts.recommended].why & 1u << SUGGEST_P99_PADDED) != 0);
	ended_ok(50e3, 900);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.p999_us > 0 && (timeouts.list[timeouts.recommended].why & 1u << SUGGEST_P999_PADDED) != 0);
}
END_TEST

START_TEST(no_calls_have_no_candidates)
{
	cut_at(800);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.count == 0 && timeouts.recommended == -1 && timeouts.p50_us == 0);
	ck_assert_double_eq(suggest_cut_off(&facts, 100).most, 0);
	suggest_limit(&facts, &limit);
	ck_assert(limit.limit == 0 && limit.rate == 0 && limit.inside == 0 && !limit.held_down);
}
END_TEST

START_TEST(what_is_beyond_the_last_bucket_is_cut_off_by_every_timeout)
{
	ended_ok(1e12, 1000);
	suggest_timeouts(&facts, &timeouts);
	ck_assert_double_eq(suggest_cut_off(&facts, 86400000).likely, 1);
	ck_assert_double_eq(timeouts.list[0].cut.least, 1);
	/* How long they take is not known: so neither is what would cut them off. */
	ck_assert_double_eq(suggest_cut_off(&facts, 86400000).least, 0);
	ck_assert(timeouts.p99_is_least && timeouts.p999_is_least);
	ck_assert_double_eq(timeouts.p999_us, SUGGEST_LONGEST_US);
	ck_assert_int_eq(timeouts.recommended, -1);
	/* A timeout that has cut nothing off yet has cut these off as little. */
	cut_at(300);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.p50_is_least && timeouts.p99_is_least && timeouts.cut_at_ms == 0);
	ck_assert_double_eq(timeouts.p50_us, SUGGEST_LONGEST_US);
	ck_assert_double_eq(timeouts.p999_us, SUGGEST_LONGEST_US);
}
END_TEST

START_TEST(numbers_that_people_write)
{
	static const struct {
		double value;
		uint64_t rounded;
	} cases[] = {{0, 1},   {0.2, 1}, {1, 1},       {1.1, 2},     {2.5, 3},     {9.5, 10},
	             {10, 10}, {11, 12}, {310.8, 350}, {778.8, 800}, {1001, 1200}, {9001, 10000}};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
		ck_assert_uint_eq(suggest_round_up(cases[i].value), cases[i].rounded);
	ck_assert_uint_gt(suggest_round_up(1e30), 0);
}
END_TEST

/* ---- who is not healthy ---- */

START_TEST(failures_make_a_share_a_range)
{
	ended_ok(10e3, 900);
	ended_ok(700e3, 60);
	failed(700e3, 40);
	struct suggest_share cut = suggest_cut_off(&facts, 500);
	/* 100 took longer. All 40 failures may be among them, or none. */
	is_near(cut.likely, 0.1, 1e-9);
	is_near(cut.least, 60.0 / 960, 1e-9);
	is_near(cut.most, 0.1, 1e-9);
	/* Nobody took longer, healthy or not. */
	cut = suggest_cut_off(&facts, 800);
	ck_assert_double_eq(cut.most, 0);
}
END_TEST

START_TEST(who_was_made_to_wait_says_nothing_of_health)
{
	ended_ok(10e3, 900);
	ended_ok(700e3, 100);
	facts.counters.injected_delays = 100;
	suggest_timeouts(&facts, &timeouts);
	ck_assert_uint_eq(timeouts.injected, 100);
	ck_assert_uint_eq(timeouts.not_healthy, 100);
	ck_assert_double_eq(suggest_cut_off(&facts, 500).least, 0);
	ck_assert(timeouts.delayed == 100 && timeouts.failed == 0 && timeouts.timed_out == 0);
	facts.counters.injected_failures = 200;
	suggest_timeouts(&facts, &timeouts);
	ck_assert(timeouts.delayed == 100 && timeouts.injected == 200);
}
END_TEST

START_TEST(more_failures_than_long_calls_may_be_all_of_them)
{
	ended_ok(10e3, 500);
	failed(700e3, 500);
	struct suggest_share cut = suggest_cut_off(&facts, 100);
	ck_assert_double_eq(cut.least, 0);
	is_near(cut.most, 0.5, 1e-9);
}
END_TEST

START_TEST(calls_from_before_they_were_measured_do_not_count)
{
	ended_ok(10e3, 1000);
	failed(700e3, 100);
	facts.counters.ended_ok += 10000;
	facts.counters.ended_fail += 1000;
	suggest_timeouts(&facts, &timeouts);
	ck_assert_uint_eq(timeouts.not_healthy, 100);
}
END_TEST

START_TEST(a_tail_that_is_cut_off_is_not_known)
{
	cut_at(300);
	ended_ok(75e3, 9944);
	timed_out(300.4e3, 56);
	suggest_timeouts(&facts, &timeouts);
	ck_assert_uint_eq(timeouts.timed_out, 56);
	ck_assert_uint_eq(timeouts.cut_at_ms, 300);
	ck_assert(!timeouts.p50_is_least && !timeouts.p99_is_least && timeouts.p999_is_least);
	is_near(timeouts.p999_us, 300e3, 1);
	ck_assert_int_eq(timeouts.recommended, -1);
	for (size_t i = 0; i < timeouts.count; i++)
		ck_assert((timeouts.list[i].why & (1u << SUGGEST_P999 | 1u << SUGGEST_P999_PADDED)) == 0);
	/* Shorter: all of them, for certain. Longer: none that is known, and perhaps as many. */
	struct suggest_share shorter = suggest_cut_off(&facts, 299), present = suggest_cut_off(&facts, 300),
	                     longer = suggest_cut_off(&facts, 500);
	is_near(shorter.likely, 0.0056, 1e-9);
	is_near(present.likely, 0.0056, 1e-9);
	ck_assert_double_eq(longer.likely, 0);
	is_near(longer.most, 0.0056, 1e-9);
}
END_TEST

START_TEST(few_that_are_cut_off_hide_no_quantile)
{
	cut_at(300);
	ended_ok(75e3, 9995);
	timed_out(300.4e3, 5);
	suggest_timeouts(&facts, &timeouts);
	ck_assert(!timeouts.p999_is_least && timeouts.recommended >= 0);
}
END_TEST

START_TEST(timeouts_of_the_callers_own_may_hide_anything)
{
	ended_ok(75e3, 900);
	timed_out(50e3, 100);
	suggest_timeouts(&facts, &timeouts);
	ck_assert_uint_eq(timeouts.cut_at_ms, 0);
	ck_assert(timeouts.p99_is_least && timeouts.recommended == -1);
	is_near(suggest_cut_off(&facts, 500).most, 0.1, 1e-9);
}
END_TEST

/* It was raised: those that the shorter one cut off did not take as long as today's. */
START_TEST(who_was_cut_off_by_an_earlier_timeout_says_nothing_of_todays)
{
	cut_at(1000);
	ended_ok(75e3, 9500);
	timed_out(200e3, 500);
	suggest_timeouts(&facts, &timeouts);
	ck_assert_uint_eq(timeouts.timed_out, 500);
	ck_assert_uint_eq(timeouts.cut_at_ms, 0);
	ck_assert_double_eq(suggest_cut_off(&facts, 1000).likely, 0);
	is_near(suggest_cut_off(&facts, 1000).most, 0.05, 1e-9);
	for (size_t i = 0; i < suggest_notes(&facts, notes); i++)
		ck_assert_int_ne(notes[i].id, SUGGEST_NOTE_TIMEOUT_SHORT);
}
END_TEST

/* ---- limits ---- */

static void load_for(double seconds, uint64_t calls, uint64_t us)
{
	facts.load = (struct suggest_load){
	        .watched = true, .seconds = seconds, .asked = calls, .admitted = calls, .measured = calls, .sum_us = calls * us};
}

START_TEST(a_limit_is_the_rate_times_p99_or_what_was_seen)
{
	ended_ok(100e3, 980);
	ended_ok(400e3, 20);
	load_for(10, 1000, 106000);
	suggest_limit(&facts, &limit);
	is_near(limit.rate, 100, 1e-9);
	is_near(limit.inside, 10.6, 1e-9);
	is_near(limit.inside_p99, 100 * limit.p99_us / 1e6, 1e-9);
	ck_assert_uint_eq(limit.limit, (uint32_t)ceil(limit.inside_p99));
	facts.load.in_flight = (struct suggest_spread){.samples = 150, .p50 = 10, .p99 = 30, .p999 = 41, .most = 41};
	suggest_limit(&facts, &limit);
	ck_assert_uint_eq(limit.limit, 62);
	ck_assert(!limit.held_down);
}
END_TEST

START_TEST(a_limit_that_was_reached_held_the_load_down)
{
	load_for(10, 1000, 100000);
	facts.limit = 10;
	facts.load.in_flight = (struct suggest_spread){.samples = 150, .p50 = 10, .p99 = 10, .p999 = 10, .most = 10};
	suggest_limit(&facts, &limit);
	ck_assert(!limit.held_down); /* it is not enforced */
	facts.policy.flags |= POLICY_BULKHEAD;
	suggest_limit(&facts, &limit);
	ck_assert(limit.held_down);
	facts.load.no_room = 1000; /* they would have been inside as well */
	suggest_limit(&facts, &limit);
	is_near(limit.inside, 20, 1e-9);
	facts.policy.flags |= POLICY_SHADOW_BULKHEAD;
	suggest_limit(&facts, &limit);
	ck_assert(!limit.held_down);
}
END_TEST

START_TEST(spreads)
{
	uint32_t values[1000];

	ck_assert_uint_eq(suggest_spread(values, 0).samples, 0);
	for (uint32_t i = 0; i < 1000; i++)
		values[i] = 1000 - i;
	struct suggest_spread s = suggest_spread(values, 1000);
	ck_assert_uint_eq(s.p50, 500);
	ck_assert_uint_eq(s.p99, 990);
	ck_assert_uint_eq(s.p999, 999);
	ck_assert_uint_eq(s.most, 1000);
	values[0] = 7;
	ck_assert_uint_eq(suggest_spread(values, 1).p999, 7);
}
END_TEST

/* ---- settings that cannot work ---- */

static const struct suggest_note *find_note(enum suggest_note_id id)
{
	noted = suggest_notes(&facts, notes);
	ck_assert_uint_le(noted, SUGGEST_NOTE_COUNT);
	for (size_t i = 0; i < noted; i++)
		if (notes[i].id == id)
			return &notes[i];
	return NULL;
}

static bool is_noted(enum suggest_note_id id)
{
	return find_note(id) != NULL;
}

/* 100 calls a second of 80 ms, 8 inside on average, that contradict nothing. */
static void healthy(void)
{
	ended_ok(75e3, 9900);
	ended_ok(200e3, 100);
	load_for(3, 300, 80000);
	facts.load.in_flight = (struct suggest_spread){.samples = 150, .p50 = 8, .p99 = 12, .p999 = 13, .most = 13};
	facts.workers = 64;
	facts.limit = 20;
	facts.policy.flags |= POLICY_BREAKER | POLICY_RETRY | POLICY_BUDGET | POLICY_BULKHEAD | POLICY_RATE | POLICY_THROTTLE;
	facts.policy.failure_rate_ppm = 500000;
	facts.policy.slow_rate_ppm = 500000;
	facts.policy.slow_call_ns = 150000000;
	facts.policy.limit = 20;
	facts.policy.rate_per_second = 1000 * TOKEN;
	facts.policy.rate_burst = 1000;
	cut_at(300);
	facts.policy.timeout_total_ms = 5000;
}

START_TEST(what_works_has_no_note)
{
	healthy();
	noted = suggest_notes(&facts, notes);
	ck_assert_msg(noted == 0, "%s: %s", suggest_note_name(notes[0].id), notes[0].text);
}
END_TEST

START_TEST(timeouts_that_are_too_short_or_too_long)
{
	healthy();
	cut_at(100);
	ck_assert(!is_noted(SUGGEST_NOTE_TIMEOUT_SHORT)); /* 1 % is what p99 says */
	cut_at(60);
	ck_assert(is_noted(SUGGEST_NOTE_TIMEOUT_SHORT));
	cut_at(100000);
	const struct suggest_note *note = find_note(SUGGEST_NOTE_TIMEOUT_LONG);
	ck_assert_ptr_nonnull(note);
	ck_assert_msg(strstr(note->text, "5% of the 100 calls a second hung, 500 would be inside at once"), "%s", note->text);
	ck_assert(!note->shadow);
	facts.policy.flags |= POLICY_SHADOW_TIMEOUT;
	ck_assert(find_note(SUGGEST_NOTE_TIMEOUT_LONG)->shadow);
	facts.policy.flags &= ~(uint64_t)POLICY_TIMEOUT;
	ck_assert(!is_noted(SUGGEST_NOTE_TIMEOUT_LONG));
}
END_TEST

/* What an operator did to the calls of a game day is no ordinary day. */
START_TEST(what_was_injected_is_blamed_on_no_setting)
{
	healthy();
	facts.policy.slow_rate_ppm = 100000;
	ended_ok(250e3, 2000);
	timed_out(300e3, 2000);
	ck_assert(is_noted(SUGGEST_NOTE_TIMEOUT_SHORT) && is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW));
	facts.counters.injected_delays = 4000;
	ck_assert(!is_noted(SUGGEST_NOTE_TIMEOUT_SHORT) && !is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW));
	/* More than they can account for. */
	timed_out(300e3, 4000);
	ck_assert(is_noted(SUGGEST_NOTE_TIMEOUT_SHORT) && is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW));
}
END_TEST

START_TEST(injected_failures_empty_no_budget)
{
	healthy();
	facts.policy.attempts = 3;
	facts.counters.retry_budget = 10;
	failed(75e3, 3000);
	ck_assert(is_noted(SUGGEST_NOTE_BUDGET_RATIO));
	facts.counters.injected_failures = 2900;
	ck_assert(!is_noted(SUGGEST_NOTE_BUDGET_RATIO));
}
END_TEST

START_TEST(attempts_that_do_not_fit)
{
	healthy();
	facts.policy.attempts = 3;
	facts.policy.backoff = BACKOFF_EXPONENTIAL;
	facts.policy.base_ns = 100000000;
	facts.policy.cap_ns = 2000000000;
	facts.policy.timeout_total_ms = 1200; /* 3 * 300 + 100 + 200 */
	ck_assert(!is_noted(SUGGEST_NOTE_RETRY_TOTAL));
	facts.policy.timeout_total_ms = 1199;
	const struct suggest_note *note = find_note(SUGGEST_NOTE_RETRY_TOTAL);
	ck_assert_ptr_nonnull(note);
	ck_assert_msg(strstr(note->text, "there is time for 2"), "%s", note->text);
	facts.policy.backoff = BACKOFF_NONE;
	ck_assert(!is_noted(SUGGEST_NOTE_RETRY_TOTAL));
	facts.policy.timeout_total_ms = 0;
	ck_assert(!is_noted(SUGGEST_NOTE_RETRY_TOTAL));
}
END_TEST

START_TEST(budgets_that_cannot_pay)
{
	healthy();
	facts.policy.attempts = 4;
	facts.policy.budget_cost = TOKEN;
	facts.policy.budget_capacity = 3 * TOKEN;
	ck_assert(!is_noted(SUGGEST_NOTE_BUDGET_CAPACITY));
	facts.policy.budget_capacity = 2 * TOKEN;
	ck_assert(is_noted(SUGGEST_NOTE_BUDGET_CAPACITY));
	/* 0.1 a success pays for 3 retries each of 3.2 % of the requests. */
	facts.policy.budget_ratio = TOKEN / 10;
	facts.policy.budget_per_second = 0;
	facts.counters.ended_fail = 400;
	facts.counters.retry_budget = 10;
	ck_assert(is_noted(SUGGEST_NOTE_BUDGET_RATIO));
	facts.counters.ended_fail = 300;
	ck_assert(!is_noted(SUGGEST_NOTE_BUDGET_RATIO));
}
END_TEST

START_TEST(breakers_that_never_open_or_always)
{
	healthy();
	facts.policy.window_ms = 10000;
	facts.policy.min_calls = 1000;
	ck_assert(!is_noted(SUGGEST_NOTE_BREAKER_QUIET));
	facts.policy.min_calls = 1001;
	ck_assert(is_noted(SUGGEST_NOTE_BREAKER_QUIET));
	/* It is open, and that is why few are let in. */
	facts.load.asked = 600;
	ck_assert(!is_noted(SUGGEST_NOTE_BREAKER_QUIET));
	facts.load.asked = 300;
	facts.policy.rate_per_second = TOKEN;
	facts.policy.rate_burst = 1;
	ck_assert(is_noted(SUGGEST_NOTE_BREAKER_BLIND) && !is_noted(SUGGEST_NOTE_BREAKER_QUIET));
	facts.policy.slow_call_ns = 300000000;
	ck_assert(is_noted(SUGGEST_NOTE_BREAKER_NEVER_SLOW) && !is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW));
	facts.policy.slow_call_ns = 50000000;
	ck_assert(is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW) && !is_noted(SUGGEST_NOTE_BREAKER_NEVER_SLOW));
	facts.policy.slow_rate_ppm = 0;
	ck_assert(!is_noted(SUGGEST_NOTE_BREAKER_ALWAYS_SLOW));
}
END_TEST

START_TEST(trials_that_are_in_each_others_way)
{
	healthy();
	facts.policy.cooldown_ms = 299;
	facts.policy.probe_timeout_ms = 299;
	ck_assert(is_noted(SUGGEST_NOTE_BREAKER_COOLDOWN) && is_noted(SUGGEST_NOTE_BREAKER_PROBE));
	facts.policy.timeout_probe_ms = 100;
	ck_assert(!is_noted(SUGGEST_NOTE_BREAKER_COOLDOWN) && !is_noted(SUGGEST_NOTE_BREAKER_PROBE));
}
END_TEST

START_TEST(limits_that_refuse_in_health_or_never)
{
	healthy();
	facts.limit = 7;
	ck_assert_ptr_nonnull(strstr(find_note(SUGGEST_NOTE_BULKHEAD_TIGHT)->text, "refuses while all is well; raise it"));
	/* In an outage a larger one only lets more calls hang. */
	facts.load.failed = 1;
	ck_assert_ptr_nonnull(
	        strstr(find_note(SUGGEST_NOTE_BULKHEAD_TIGHT)->text, "raise it, unless they take so long because something fails"));
	facts.limit = 64;
	ck_assert(is_noted(SUGGEST_NOTE_BULKHEAD_IDLE));
	/* There is no limit below the only worker. */
	facts.workers = 1;
	facts.load.in_flight.most = 1;
	ck_assert(!is_noted(SUGGEST_NOTE_BULKHEAD_IDLE));
	facts.workers = 64;
	facts.load.in_flight.most = 65; /* a worker has more than one call */
	ck_assert(!is_noted(SUGGEST_NOTE_BULKHEAD_IDLE));
	facts.policy.rate_per_second = 50 * TOKEN;
	facts.policy.rate_burst = 150;
	ck_assert(!is_noted(SUGGEST_NOTE_RATE_TIGHT));
	facts.policy.rate_burst = 149;
	ck_assert(is_noted(SUGGEST_NOTE_RATE_TIGHT));
	facts.load.seconds = 0;
	ck_assert(!is_noted(SUGGEST_NOTE_RATE_TIGHT) && !is_noted(SUGGEST_NOTE_BULKHEAD_TIGHT));
}
END_TEST

START_TEST(waits_that_end_too_late_and_a_throttle_that_is_too_sharp)
{
	healthy();
	facts.policy.max_wait_ms = facts.policy.rate_max_wait_ms = 5001;
	ck_assert(is_noted(SUGGEST_NOTE_BULKHEAD_WAIT) && is_noted(SUGGEST_NOTE_RATE_WAIT));
	facts.policy.max_wait_ms = facts.policy.rate_max_wait_ms = 5000;
	ck_assert(!is_noted(SUGGEST_NOTE_BULKHEAD_WAIT) && !is_noted(SUGGEST_NOTE_RATE_WAIT));
	facts.policy.timeout_total_ms = 0;
	ck_assert(is_noted(SUGGEST_NOTE_BULKHEAD_WAIT));
	facts.policy.throttle_k_ppm = 1000000;
	ck_assert(is_noted(SUGGEST_NOTE_THROTTLE_K));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        published_quantiles_come_out_of_the_histogram,
	        published_shares_come_out_of_the_histogram,
	        a_share_is_within_its_bounds_and_the_bounds_hold_the_truth,
	        the_padded_p999_is_recommended,
	        too_few_calls_have_no_quantiles,
	        no_calls_have_no_candidates,
	        what_is_beyond_the_last_bucket_is_cut_off_by_every_timeout,
	        numbers_that_people_write,
	        failures_make_a_share_a_range,
	        who_was_made_to_wait_says_nothing_of_health,
	        more_failures_than_long_calls_may_be_all_of_them,
	        calls_from_before_they_were_measured_do_not_count,
	        a_tail_that_is_cut_off_is_not_known,
	        few_that_are_cut_off_hide_no_quantile,
	        timeouts_of_the_callers_own_may_hide_anything,
	        who_was_cut_off_by_an_earlier_timeout_says_nothing_of_todays,
	        a_limit_is_the_rate_times_p99_or_what_was_seen,
	        a_limit_that_was_reached_held_the_load_down,
	        spreads,
	        what_works_has_no_note,
	        timeouts_that_are_too_short_or_too_long,
	        what_was_injected_is_blamed_on_no_setting,
	        injected_failures_empty_no_budget,
	        attempts_that_do_not_fit,
	        budgets_that_cannot_pay,
	        breakers_that_never_open_or_always,
	        trials_that_are_in_each_others_way,
	        limits_that_refuse_in_health_or_never,
	        waits_that_end_too_late_and_a_throttle_that_is_too_sharp,
	};

	return FIXTURE_RUN("suggest", tests, set_up, tear_down);
}
