/* SPDX-License-Identifier: MIT */
/* When the requests of a rehearsal arrive: exactly as many as the rates say, and the same ones whenever it is played. */
#include "schedule.h"

#include <errno.h>

#include "fixture.h"

#define SECOND INT64_C(1000000000)
#define MS     INT64_C(1000000)

static struct load load_of(const char *name, enum arrivals arrivals, double *rates, size_t count)
{
	struct load load = {.arrivals = arrivals, .rates = rates, .rate_count = count, .to_ns = SCENARIO_FOREVER};

	strcpy(load.name, name);
	return load;
}

static struct schedule schedule_of(struct load *loads, size_t count, int64_t duration_ns)
{
	const struct scenario scenario = {.loads = loads, .load_count = count, .duration_ns = duration_ns, .seed = 1};
	struct schedule schedule;

	ck_assert_int_eq(schedule_make(&scenario, &schedule), 0);
	return schedule;
}

static size_t arrivals_in(const struct schedule *schedule, int64_t from_ns, int64_t to_ns)
{
	size_t count = 0;

	for (size_t i = 0; i < schedule->count; i++)
		count += schedule->items[i].at_ns >= from_ns && schedule->items[i].at_ns < to_ns;
	return count;
}

START_TEST(an_even_load_has_its_rate_exactly)
{
	double rate = 20;
	struct load load = load_of("users", ARRIVALS_EVEN, &rate, 1);
	struct schedule schedule = schedule_of(&load, 1, 5 * SECOND);

	ck_assert_uint_eq(schedule.count, 100);
	for (size_t i = 0; i < schedule.count; i++) {
		ck_assert_int_eq(schedule.items[i].at_ns, (int64_t)i * 50 * MS);
		ck_assert_uint_eq(schedule.items[i].number, i + 1);
	}
	schedule_free(&schedule);
}
END_TEST

START_TEST(a_staircase_has_each_rate_in_its_second_and_the_last_one_goes_on)
{
	double rates[] = {450, 2400, 0, 0.5, 450};
	struct load load = load_of("users", ARRIVALS_EVEN, rates, 5);
	struct schedule schedule = schedule_of(&load, 1, 8 * SECOND);

	ck_assert_uint_eq(arrivals_in(&schedule, 0, SECOND), 450);
	ck_assert_uint_eq(arrivals_in(&schedule, SECOND, 2 * SECOND), 2400);
	ck_assert_uint_eq(arrivals_in(&schedule, 2 * SECOND, 3 * SECOND), 0);
	ck_assert_uint_eq(arrivals_in(&schedule, 3 * SECOND, 4 * SECOND), 1);
	for (int second = 4; second < 8; second++)
		ck_assert_uint_eq(arrivals_in(&schedule, second * SECOND, (second + 1) * SECOND), 450);
	schedule_free(&schedule);
}
END_TEST

/* No rate is lost or won where it is no binary fraction. */
START_TEST(rates_that_are_no_exact_numbers_add_up)
{
	double rates[] = {0.1, 0.2, 0.3, 0.4, 1.0 / 3, 1.0 / 3, 1.0 / 3, 1};
	struct load load = load_of("users", ARRIVALS_EVEN, rates, 8);
	struct schedule schedule = schedule_of(&load, 1, 8 * SECOND);

	ck_assert_uint_eq(schedule.count, 3);
	ck_assert_int_eq(schedule.items[0].at_ns, 0);
	ck_assert_int_eq(schedule.items[1].at_ns / MS, 4000);
	ck_assert_int_eq(schedule.items[2].at_ns / MS, 7000);
	schedule_free(&schedule);
}
END_TEST

START_TEST(a_load_has_its_own_time)
{
	double rate = 10;
	struct load loads[] = {load_of("middle", ARRIVALS_EVEN, &rate, 1), load_of("never", ARRIVALS_EVEN, &rate, 1)};

	loads[0].from_ns = 500 * MS;
	loads[0].to_ns = 1500 * MS;
	loads[1].from_ns = 3 * SECOND;
	struct schedule schedule = schedule_of(loads, 2, 3 * SECOND);
	ck_assert_uint_eq(schedule.count, 10);
	ck_assert_int_eq(schedule.items[0].at_ns, 500 * MS);
	ck_assert_int_eq(schedule.items[9].at_ns, 1400 * MS);
	schedule_free(&schedule);
}
END_TEST

START_TEST(poisson_is_the_same_again_and_no_other_load_moves_it)
{
	double rates[] = {100, 300};
	struct load loads[] = {load_of("users", ARRIVALS_POISSON, rates, 2), load_of("more", ARRIVALS_POISSON, rates, 2)};
	struct schedule alone = schedule_of(loads, 1, 10 * SECOND), again = schedule_of(loads, 1, 10 * SECOND);
	struct schedule both = schedule_of(loads, 2, 10 * SECOND);
	size_t at = 0;

	ck_assert_uint_eq(alone.count, again.count);
	ck_assert_mem_eq(alone.items, again.items, alone.count * sizeof(*alone.items));
	for (size_t i = 0; i < both.count; i++) {
		if (both.items[i].load == 0)
			ck_assert_int_eq(both.items[i].at_ns, alone.items[at++].at_ns);
		if (i > 0)
			ck_assert_int_ge(both.items[i].at_ns, both.items[i - 1].at_ns);
	}
	ck_assert_uint_eq(at, alone.count);
	/* 2800 are due; three standard deviations are 159. */
	ck_assert_uint_gt(alone.count, 2641);
	ck_assert_uint_lt(alone.count, 2959);
	ck_assert_uint_lt(arrivals_in(&alone, 0, SECOND), 140);
	schedule_free(&alone);
	schedule_free(&again);
	schedule_free(&both);
}
END_TEST

START_TEST(another_seed_is_another_poisson_load)
{
	double rate = 50;
	struct load load = load_of("users", ARRIVALS_POISSON, &rate, 1);
	struct schedule one = schedule_of(&load, 1, SECOND), other;
	const struct scenario scenario = {.loads = &load, .load_count = 1, .duration_ns = SECOND, .seed = 2};

	ck_assert_int_eq(schedule_make(&scenario, &other), 0);
	ck_assert_int_ne(one.items[0].at_ns, other.items[0].at_ns);
	schedule_free(&one);
	schedule_free(&other);
}
END_TEST

START_TEST(given_times_come_as_they_are_up_to_the_end)
{
	int64_t at[] = {0, 0, 0, 5 * SECOND, 6 * SECOND}, other[] = {0, SECOND};
	struct load loads[] = {{.arrivals = ARRIVALS_AT, .at = at, .at_count = 5}, {.arrivals = ARRIVALS_AT, .at = other, .at_count = 2}};
	struct schedule schedule = schedule_of(loads, 2, 6 * SECOND);
	const struct arrival wanted[] = {{0, 0, 1}, {0, 0, 2}, {0, 0, 3}, {0, 1, 1}, {SECOND, 1, 2}, {5 * SECOND, 0, 4}};

	ck_assert_uint_eq(schedule.count, 6);
	for (size_t i = 0; i < 6; i++) {
		ck_assert_int_eq(schedule.items[i].at_ns, wanted[i].at_ns);
		ck_assert_uint_eq(schedule.items[i].load, wanted[i].load);
		ck_assert_uint_eq(schedule.items[i].number, wanted[i].number);
	}
	schedule_free(&schedule);
}
END_TEST

START_TEST(too_many_are_refused)
{
	double rate = SCENARIO_REQUESTS;
	struct load load = load_of("users", ARRIVALS_EVEN, &rate, 1);
	struct scenario scenario = {.loads = &load, .load_count = 1, .duration_ns = SECOND};
	struct schedule schedule;

	ck_assert_int_eq(schedule_make(&scenario, &schedule), 0);
	ck_assert_uint_eq(schedule.count, SCENARIO_REQUESTS);
	schedule_free(&schedule);
	scenario.duration_ns += 10 * MS;
	ck_assert_int_eq(schedule_make(&scenario, &schedule), -E2BIG);
	ck_assert_ptr_null(schedule.items);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        an_even_load_has_its_rate_exactly,
	        a_staircase_has_each_rate_in_its_second_and_the_last_one_goes_on,
	        rates_that_are_no_exact_numbers_add_up,
	        a_load_has_its_own_time,
	        poisson_is_the_same_again_and_no_other_load_moves_it,
	        another_seed_is_another_poisson_load,
	        given_times_come_as_they_are_up_to_the_end,
	        too_many_are_refused,
	};

	return FIXTURE_RUN("rehearse_schedule", tests, NULL, NULL);
}
