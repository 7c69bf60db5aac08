/* SPDX-License-Identifier: MIT */
/* What a script does to a call, and the model of the server, to the nanosecond: no process and no clock. */
#include <check.h>
#include <math.h>
#include <stdlib.h>

#include "agenda.h"
#include "fixture.h"
#include "processor.h"
#include "script.h"

#define MS INT64_C(1000000)

static struct span spans[2];
static struct fault faults[4];
static struct dependency dependency;
static struct scenario scenario;
static struct processor processor;

static void set_up(void)
{
	spans[0] = (struct span){.kind = SPAN_FIXED, .share = 1, .from_ns = 20 * MS};
	dependency = (struct dependency){.name = "prices", .latency = spans, .latency_count = 1, .faults = faults};
	scenario = (struct scenario){.seed = 1, .dependencies = &dependency, .dependency_count = 1};
	processor_start(&processor, &dependency, 0);
}

static struct fault *add_fault(enum fault_kind kind)
{
	struct fault *fault = &faults[dependency.fault_count++];
	*fault = (struct fault){.kind = kind, .share = 1, .retry_after_ms = -1, .to_ns = SCENARIO_FOREVER};
	return fault;
}

static struct deal deal_of(int64_t at_ms, uint32_t number, uint16_t try)
{
	struct cue cue = {.at_ns = at_ms * MS, .request = number - 1, .number = number, .try = try};
	return script_deal(&scenario, 0, &cue);
}

/* ---- the script ---- */

START_TEST(without_faults_it_works)
{
	struct deal deal = deal_of(0, 1, 1);
	ck_assert_int_eq(deal.kind, DEAL_WORK);
	ck_assert(!deal.during_fault);
	ck_assert_int_eq(deal.extra_ns, 0);
	ck_assert_int_eq(deal.retry_after_ms, -1);
	ck_assert_uint_eq(deal.capacity, UINT32_MAX);
}
END_TEST

START_TEST(a_fault_is_on_from_its_beginning_to_its_end)
{
	struct fault *fault = add_fault(FAULT_HANG);
	fault->from_ns = 1000 * MS;
	fault->to_ns = 3000 * MS;
	ck_assert_int_eq(deal_of(999, 1, 1).kind, DEAL_WORK);
	ck_assert_int_eq(deal_of(1000, 1, 1).kind, DEAL_HANG);
	ck_assert_int_eq(deal_of(2999, 1, 1).kind, DEAL_HANG);
	ck_assert(deal_of(2999, 1, 1).during_fault);
	ck_assert_int_eq(deal_of(3000, 1, 1).kind, DEAL_WORK);
	ck_assert(!deal_of(3000, 1, 1).during_fault);
}
END_TEST

START_TEST(E8_a_fault_for_some_requests_does_not_look_at_the_time)
{
	struct fault *fault = add_fault(FAULT_HANG);
	fault->from_request = 10;
	fault->to_request = 24;
	ck_assert_int_eq(deal_of(0, 9, 1).kind, DEAL_WORK);
	ck_assert_int_eq(deal_of(0, 10, 1).kind, DEAL_HANG);
	ck_assert_int_eq(deal_of(999999, 24, 7).kind, DEAL_HANG);
	ck_assert_int_eq(deal_of(0, 25, 1).kind, DEAL_WORK);
	ck_assert_int_eq(script_next_change(&dependency, 0), SCENARIO_FOREVER);
}
END_TEST

START_TEST(E2_a_fault_may_be_for_the_first_tries)
{
	add_fault(FAULT_HANG)->tries = 2;
	ck_assert_int_eq(deal_of(0, 1, 1).kind, DEAL_HANG);
	ck_assert_int_eq(deal_of(0, 1, 2).kind, DEAL_HANG);
	ck_assert_int_eq(deal_of(0, 1, 3).kind, DEAL_WORK);
	ck_assert(!deal_of(0, 1, 3).during_fault);
}
END_TEST

START_TEST(one_that_flaps_goes_down_first)
{
	struct fault *fault = add_fault(FAULT_ERRORS);
	fault->from_ns = 1000 * MS;
	fault->to_ns = 4200 * MS;
	fault->down_ns = 500 * MS;
	fault->up_ns = 1000 * MS;
	static const struct {
		int64_t at_ms;
		bool on;
		int64_t next_ms;
	} moments[] = {{0, false, 1000},    {999, false, 1000}, {1000, true, 1500},  {1499, true, 1500},
	               {1500, false, 2500}, {2500, true, 3000}, {3999, false, 4000}, {4000, true, 4200}};
	for (size_t i = 0; i < sizeof(moments) / sizeof(moments[0]); i++) {
		ck_assert_int_eq(deal_of(moments[i].at_ms, 1, 1).kind == DEAL_ERROR, moments[i].on);
		ck_assert_int_eq(script_next_change(&dependency, moments[i].at_ms * MS), moments[i].next_ms * MS);
	}
	ck_assert_int_eq(deal_of(4200, 1, 1).kind, DEAL_WORK);
	ck_assert_int_eq(script_next_change(&dependency, 4200 * MS), SCENARIO_FOREVER);
}
END_TEST

START_TEST(E15_a_share_hits_that_share_and_always_the_same_calls)
{
	add_fault(FAULT_HANG)->share = 0.05;
	unsigned hit = 0;
	for (uint32_t number = 1; number <= 20000; number++) {
		struct deal deal = deal_of(number, number, 1);
		ck_assert(deal.during_fault);
		ck_assert_int_eq(deal.kind, deal_of(77777, number, 1).kind);
		hit += deal.kind == DEAL_HANG;
	}
	ck_assert_uint_ge(hit, 900);
	ck_assert_uint_le(hit, 1100);
}
END_TEST

START_TEST(another_try_seed_or_dependency_is_another_draw)
{
	struct dependency two[2] = {dependency, dependency};
	unsigned tries = 0, seeds = 0, others = 0;

	add_fault(FAULT_HANG)->share = 0.5;
	two[0] = two[1] = dependency;
	scenario.dependencies = two;
	scenario.dependency_count = 2;
	for (uint32_t i = 0; i < 1000; i++) {
		struct cue cue = {.request = i, .number = i + 1, .try = 1};
		enum deal_kind kind = script_deal(&scenario, 0, &cue).kind;
		others += kind != script_deal(&scenario, 1, &cue).kind;
		scenario.seed = 2;
		seeds += kind != script_deal(&scenario, 0, &cue).kind;
		scenario.seed = 1;
		cue.try = 2;
		tries += kind != script_deal(&scenario, 0, &cue).kind;
	}
	ck_assert(tries > 400 && tries < 600);
	ck_assert(seeds > 400 && seeds < 600);
	ck_assert(others > 400 && others < 600);
}
END_TEST

START_TEST(the_first_fault_that_stops_decides_delays_add_up_the_least_capacity_holds)
{
	dependency.capacity = 12;
	add_fault(FAULT_SLOW)->latency_ns = 5 * MS;
	add_fault(FAULT_SLOW)->latency_ns = 7 * MS;
	add_fault(FAULT_CAPACITY)->capacity = 2;
	struct deal deal = deal_of(0, 1, 1);
	ck_assert_int_eq(deal.kind, DEAL_WORK);
	ck_assert_int_eq(deal.extra_ns, 12 * MS);
	ck_assert_uint_eq(deal.capacity, 2);

	dependency.fault_count = 0;
	add_fault(FAULT_CAPACITY)->capacity = 99;
	add_fault(FAULT_ERRORS)->retry_after_ms = 2000;
	add_fault(FAULT_RESET);
	deal = deal_of(0, 1, 1);
	ck_assert_int_eq(deal.kind, DEAL_ERROR);
	ck_assert_int_eq(deal.retry_after_ms, 2000);
	ck_assert_uint_eq(deal.capacity, 12);
}
END_TEST

START_TEST(refusing_is_a_matter_of_the_port)
{
	struct fault *fault = add_fault(FAULT_REFUSE);
	fault->from_ns = 10 * MS;
	fault->to_ns = 20 * MS;
	ck_assert(script_listens(&dependency, 9 * MS));
	ck_assert(!script_listens(&dependency, 10 * MS));
	ck_assert(script_listens(&dependency, 20 * MS));
	ck_assert_int_eq(deal_of(15, 1, 1).kind, DEAL_WORK);
	ck_assert(deal_of(15, 1, 1).during_fault);
}
END_TEST

/* ---- how long the work takes ---- */

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return x < y ? -1 : x > y;
}

#define DRAWS 10000
static int64_t draws[DRAWS];

static void draw_all(void)
{
	for (uint32_t i = 0; i < DRAWS; i++) {
		struct cue cue = {.request = i, .number = i + 1, .try = 1};
		draws[i] = script_latency_ns(&scenario, 0, &cue);
		ck_assert_int_eq(draws[i], script_latency_ns(&scenario, 0, &cue));
	}
	qsort(draws, DRAWS, sizeof(draws[0]), by_value);
}

START_TEST(a_fixed_time_is_fixed)
{
	draw_all();
	ck_assert_int_eq(draws[0], 20 * MS);
	ck_assert_int_eq(draws[DRAWS - 1], 20 * MS);
}
END_TEST

START_TEST(a_uniform_time_is_anywhere_between)
{
	spans[0] = (struct span){.kind = SPAN_UNIFORM, .share = 1, .from_ns = 100 * MS, .to_ns = 200 * MS};
	draw_all();
	ck_assert_int_ge(draws[0], 100 * MS);
	ck_assert_int_lt(draws[0], 101 * MS);
	ck_assert_int_le(draws[DRAWS - 1], 200 * MS);
	ck_assert_int_gt(draws[DRAWS - 1], 199 * MS);
	ck_assert_int_gt(draws[DRAWS / 2], 147 * MS);
	ck_assert_int_lt(draws[DRAWS / 2], 153 * MS);
}
END_TEST

static double cut_off(int64_t ns)
{
	size_t count = 0;
	for (size_t i = 0; i < DRAWS; i++)
		count += draws[i] > ns;
	return (double)count / DRAWS;
}

START_TEST(E11_the_mixture_has_the_published_percentiles)
{
	spans[0] = (struct span){.kind = SPAN_LOGNORMAL, .share = 0.995, .mu = -2.6, .sigma = 0.5};
	spans[1] = (struct span){.kind = SPAN_UNIFORM, .share = 0.005, .from_ns = 200 * MS, .to_ns = 750 * MS};
	dependency.latency_count = 2;
	draw_all();
	ck_assert_double_eq_tol((double)draws[DRAWS / 2] / MS, 75, 2);
	ck_assert_double_eq_tol((double)draws[DRAWS * 99 / 100] / MS, 259, 25);
	ck_assert_double_eq_tol((double)draws[DRAWS * 999 / 1000] / MS, 649, 60);
	ck_assert_double_eq_tol(cut_off(200 * MS), 0.028, 0.004);
	ck_assert_double_eq_tol(cut_off(300 * MS), 0.0056, 0.0015);
	ck_assert_double_eq(cut_off(800 * MS), 0);
}
END_TEST

/* ---- the agenda ---- */

START_TEST(what_is_due_first_is_done_first_and_at_the_same_time_what_came_first)
{
	enum { WORKS = 2000 };
	static struct work works[WORKS];
	struct agenda agenda = {0};
	uint32_t dice = 1;

	ck_assert_int_eq(agenda_due_ns(&agenda), INT64_MAX);
	for (uint32_t i = 0; i < WORKS; i++) {
		dice = dice * 1664525u + 1013904223u;
		works[i].cue.request = i;
		works[i].latency_ns = dice >> 24;
		ck_assert_int_eq(agenda_add(&agenda, works[i].latency_ns, &works[i]), 0);
	}
	struct work *last = NULL;
	for (int i = 0; i < WORKS; i++) {
		int64_t due_ns = agenda_due_ns(&agenda);
		struct work *work = agenda_take(&agenda);
		ck_assert_int_eq(work->latency_ns, due_ns);
		if (last)
			ck_assert(last->latency_ns < due_ns || (last->latency_ns == due_ns && last->cue.request < work->cue.request));
		last = work;
	}
	ck_assert_ptr_null(agenda_take(&agenda));
	agenda_free(&agenda);
}
END_TEST

/* ---- the processor ---- */

static struct work works[16];

static void arrive(unsigned i, int64_t at_ms)
{
	works[i] = (struct work){.cue = {.at_ns = at_ms * MS}};
	ck_assert_int_eq(processor_wait(&processor, &works[i]), 0);
}

/* Begins with one, and is through with it at that time. */
static void has_it_until(const struct work *expected, uint64_t dice, int64_t from_ms, int64_t until_ms)
{
	int64_t from_ns;
	struct work *work = processor_begin(&processor, &dependency, dice, &from_ns);
	ck_assert_ptr_eq(work, expected);
	ck_assert_int_eq(work->stage, WORK_ON_PROCESSOR);
	ck_assert_int_eq(from_ns, from_ms * MS);
	ck_assert_int_eq(processor.free_ns, until_ms * MS);
}

START_TEST(E4_each_request_has_the_processor_for_its_time_one_after_the_other)
{
	int64_t from_ns;
	dependency.cpu_ns = 10 * MS;
	ck_assert_ptr_null(processor_begin(&processor, &dependency, 0, &from_ns));
	arrive(0, 5);
	has_it_until(&works[0], 7, 5, 15);
	arrive(1, 6);
	arrive(2, 7);
	ck_assert_ptr_null(processor_begin(&processor, &dependency, 0, &from_ns)); /* it is busy */
	processor_release(&processor);
	has_it_until(&works[2], 1, 15, 25); /* which one is a matter of the dice */
	processor_release(&processor);
	has_it_until(&works[1], 1, 25, 35); /* and nothing is lost when somebody is late to see it */
	processor_release(&processor);
	arrive(3, 100);
	has_it_until(&works[3], 0, 100, 110); /* it was idle */
}
END_TEST

START_TEST(who_has_gone_before_he_was_read_costs_nothing)
{
	dependency.cpu_ns = 10 * MS;
	for (unsigned i = 0; i < 4; i++)
		arrive(i, 0);
	processor_withdraw(&processor, &works[1]);
	processor_withdraw(&processor, &works[3]);
	ck_assert_uint_eq(processor.unread_count, 2);
	has_it_until(&works[0], 2, 0, 10);
	processor_release(&processor);
	has_it_until(&works[2], 3, 10, 20);
	ck_assert_uint_eq(processor.unread_count, 0);
}
END_TEST

START_TEST(many_that_wait_are_all_read_once)
{
	enum { WAITING = 1000 };
	static struct work many[WAITING];
	int64_t from_ns;
	dependency.cpu_ns = 1;
	for (uint32_t i = 0; i < WAITING; i++) {
		many[i].cue.request = i;
		ck_assert_int_eq(processor_wait(&processor, &many[i]), 0);
	}
	unsigned in_order = 0;
	for (uint32_t i = 0; i < WAITING; i++) {
		struct work *work = processor_begin(&processor, &dependency, script_dice(&scenario, 0, i), &from_ns);
		ck_assert_int_eq(from_ns, i);
		ck_assert_int_eq(work->index != UINT32_MAX, 1);
		work->index = UINT32_MAX; /* read */
		in_order += work->cue.request == i;
		processor_release(&processor);
	}
	ck_assert_uint_lt(in_order, 50);
}
END_TEST

/* ---- its places and its queue ---- */

/* When it is to be answered, in ms; -1: it waits. */
static int64_t take(unsigned i, int64_t at_ms)
{
	struct deal deal = deal_of(at_ms, i + 1, 1);
	works[i] = (struct work){.latency_ns = spans[0].from_ns};
	int64_t due_ns = processor_judge(&processor, &dependency, &deal, &works[i], at_ms * MS);
	ck_assert_int_eq(works[i].stage, WORK_JUDGED);
	return due_ns == SCENARIO_FOREVER ? -1 : due_ns / MS;
}

START_TEST(a_place_is_kept_until_the_answer)
{
	dependency.capacity = 2;
	ck_assert_int_eq(take(0, 0), 20);
	ck_assert_int_eq(take(1, 0), 20);
	ck_assert_int_eq(take(2, 5), 5);
	ck_assert_uint_eq(works[2].receipt, RECEIPT_SHED);
	processor_leave(&processor, &works[0]);
	ck_assert_int_eq(take(3, 20), 40);
	ck_assert_uint_eq(works[3].receipt, RECEIPT_OK);
	processor_leave(&processor, &works[1]);
	processor_leave(&processor, &works[2]); /* has no place to give back */
	processor_leave(&processor, &works[3]);
	ck_assert_uint_eq(processor.inside, 0);
}
END_TEST

START_TEST(errors_of_a_fault_take_no_place_and_no_time)
{
	dependency.capacity = 1;
	add_fault(FAULT_ERRORS)->to_ns = 50 * MS;
	ck_assert_int_eq(take(0, 0), 0);
	ck_assert_int_eq(take(1, 0), 0);
	ck_assert_uint_eq(works[0].receipt, RECEIPT_ERROR);
	ck_assert_uint_eq(works[1].receipt, RECEIPT_ERROR);
	ck_assert_int_eq(take(2, 50), 70);
	ck_assert_uint_eq(works[2].receipt, RECEIPT_OK);
}
END_TEST

START_TEST(E10_four_at_once_and_eight_wait)
{
	int64_t due_ns;
	dependency.capacity = 4;
	dependency.queue = 8;
	for (unsigned i = 0; i < 4; i++)
		ck_assert_int_eq(take(i, 0), 20);
	for (unsigned i = 4; i < 12; i++)
		ck_assert_int_eq(take(i, 0), -1);
	ck_assert_int_eq(take(12, 0), 0);
	ck_assert_uint_eq(works[12].receipt, RECEIPT_SHED);
	ck_assert_ptr_null(processor_next(&processor, 4, 10 * MS, &due_ns));
	processor_leave(&processor, &works[2]);
	ck_assert_ptr_eq(processor_next(&processor, 4, 20 * MS, &due_ns), &works[4]); /* who came first */
	ck_assert_int_eq(due_ns, 40 * MS);
	ck_assert_ptr_null(processor_next(&processor, 4, 20 * MS, &due_ns));
	ck_assert_uint_eq(processor.waiting, 7);
	for (unsigned i = 5; i < 12; i++)
		ck_assert_ptr_eq(processor_next(&processor, UINT32_MAX, 20 * MS, &due_ns), &works[i]);
	ck_assert_ptr_null(processor_next(&processor, UINT32_MAX, 20 * MS, &due_ns));
	ck_assert_int_eq(take(13, 30), -1); /* the queue is empty, and works again */
	ck_assert_ptr_eq(processor_next(&processor, UINT32_MAX, 30 * MS, &due_ns), &works[13]);
}
END_TEST

START_TEST(E16_it_accepts_its_rate_and_a_tenth_of_a_second_of_it_at_once)
{
	unsigned accepted = 0;
	dependency.accepts_per_second = 100;
	processor_start(&processor, &dependency, 0);
	for (unsigned i = 0; i < 16; i++) {
		take(i, 0);
		accepted += works[i].receipt == RECEIPT_OK;
	}
	ck_assert_uint_eq(accepted, 10);
	take(0, 9);
	ck_assert_uint_eq(works[0].receipt, RECEIPT_SHED);
	take(0, 10);
	ck_assert_uint_eq(works[0].receipt, RECEIPT_OK);
	/* 400 a second for ten seconds: a quarter of them. */
	accepted = 0;
	for (unsigned i = 0; i < 4000; i++) {
		struct deal deal = deal_of(0, 1, 1);
		struct work work = {0};
		processor_judge(&processor, &dependency, &deal, &work, 10 * MS + (i + 1) * 5 * MS / 2);
		accepted += work.receipt == RECEIPT_OK;
	}
	ck_assert_uint_eq(accepted, 1000);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        without_faults_it_works,
	        a_fault_is_on_from_its_beginning_to_its_end,
	        E8_a_fault_for_some_requests_does_not_look_at_the_time,
	        E2_a_fault_may_be_for_the_first_tries,
	        one_that_flaps_goes_down_first,
	        E15_a_share_hits_that_share_and_always_the_same_calls,
	        another_try_seed_or_dependency_is_another_draw,
	        the_first_fault_that_stops_decides_delays_add_up_the_least_capacity_holds,
	        refusing_is_a_matter_of_the_port,
	        a_fixed_time_is_fixed,
	        a_uniform_time_is_anywhere_between,
	        E11_the_mixture_has_the_published_percentiles,
	        what_is_due_first_is_done_first_and_at_the_same_time_what_came_first,
	        E4_each_request_has_the_processor_for_its_time_one_after_the_other,
	        who_has_gone_before_he_was_read_costs_nothing,
	        many_that_wait_are_all_read_once,
	        a_place_is_kept_until_the_answer,
	        errors_of_a_fault_take_no_place_and_no_time,
	        E10_four_at_once_and_eight_wait,
	        E16_it_accepts_its_rate_and_a_tenth_of_a_second_of_it_at_once,
	};

	return FIXTURE_RUN("rehearse_script", tests, set_up, NULL);
}
