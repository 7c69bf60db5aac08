/* SPDX-License-Identifier: MIT */
/* The figures of a rehearsal, each against a take that was made by hand and a value that was worked out by hand. */
#include "figures.h"

#include <math.h>

#include "fixture.h"
#include "latency.h"
#include "present.h"
#include "take.h"

#define ALL -1

/* Times in milliseconds; to ALL: to the end. */
struct row {
	const char *figure, *of;
	int64_t from, to;
	uint32_t nth;
	int64_t width;
	double value; /* NAN: there is none */
};

static double value_of(const struct take *take, const struct row *row)
{
	struct figure_ref ref = {
	        .view = -1,
	        .from_ns = row->from * MS,
	        .to_ns = row->to == ALL ? SCENARIO_FOREVER : row->to * MS,
	        .nth = row->nth,
	        .width_ns = row->width * MS,
	};

	snprintf(ref.figure, sizeof(ref.figure), "%s", row->figure);
	snprintf(ref.of, sizeof(ref.of), "%s", row->of);
	return figure_value(take, &ref);
}

static void check_row(const struct take *take, const struct row *row)
{
	double value = value_of(take, row);

	if (isnan(row->value) ? isnan(value) : fabs(value - row->value) < 1e-6 * fmax(1, fabs(row->value)))
		return;
	ck_abort_msg("%s of \"%s\" from %lld to %lld: %g, not %g", row->figure, row->of, (long long)row->from, (long long)row->to, value,
	             row->value);
}

#define WHOLE(figure, of, value)                                                                                                           \
	{                                                                                                                                  \
		figure, of, 0, ALL, 0, 0, value                                                                                            \
	}
#define PART(figure, of, from, to, value)                                                                                                  \
	{                                                                                                                                  \
		figure, of, from, to, 0, 0, value                                                                                          \
	}
#define NTH(figure, of, nth, value)                                                                                                        \
	{                                                                                                                                  \
		figure, of, 0, ALL, nth, 0, value                                                                                          \
	}
#define WIDTH(figure, of, width, value)                                                                                                    \
	{                                                                                                                                  \
		figure, of, 0, ALL, 0, width, value                                                                                        \
	}

static const struct row rows[] = {
        WHOLE("offered", "users", 13),
        WHOLE("offered", "jobs", 2),
        WHOLE("offered", "", 15),
        PART("offered", "users", 1000, 1200, 1), /* [from, to) */
        PART("offered", "users", 4000, ALL, 0),
        WHOLE("served", "users", 5),
        WHOLE("served", "", 7),
        PART("served", "users", 0, 1000, 2),
        WHOLE("fallback", "users", 3),
        WHOLE("failed", "users", 1),
        WHOLE("late", "users", 1),
        WHOLE("rejected", "users", 1),
        WHOLE("stored", "users", 1),
        WHOLE("unfinished", "users", 1),
        WHOLE("success_share", "users", 6.0 / 13),
        PART("success_share", "users", 3600, ALL, NAN),
        WHOLE("answered_share", "users", 9.0 / 13),
        WHOLE("error_share", "users", 4.0 / 13),
        WHOLE("latency_mean", "users", 1667.0 / 11),
        PART("latency_mean", "users", 0, 1000, 20),
        WHOLE("latency_p50", "users", 50),
        WHOLE("latency_p95", "users", 1000),
        PART("latency_p95", "users", 0, 1400, 300), /* 10, 30, 100, 300 */
        WHOLE("latency_p99", "users", 1000),
        WHOLE("latency_max", "users", 1000),
        WHOLE("latency_max", "jobs", 80),
        PART("latency_max", "users", 3500, 3600, NAN), /* nothing has ended */
        WHOLE("served_latency_p50", "users", 20),
        WHOLE("served_latency_p95", "users", 100),
        WHOLE("served_latency_p99", "users", 100),
        WHOLE("served_latency_max", "users", 100),
        PART("served_latency_max", "users", 0, 1000, 30),
        WHOLE("wait_mean", "users", 107.0 / 11),
        WHOLE("wait_p50", "users", 5),
        WHOLE("wait_p95", "users", 50),
        WHOLE("wait_max", "users", 50),
        PART("wait_max", "users", 1600, 1601, 2), /* was never let in: to its end */
        WHOLE("attempts_per_request", "users", 12.0 / 9),
        PART("attempts_per_request", "users", 3000, 3001, NAN), /* answered without an attempt */
        WHOLE("attempts_per_request_worst", "users", 1.75),
        PART("attempts_per_request_worst", "users", 1200, ALL, 1.5),
        PART("attempts_per_request_worst", "users", 1200, 1401, 2),

        WHOLE("attempts", "prices", 13),
        WHOLE("attempts", "stock", 6),
        WHOLE("attempts", "", 19),
        PART("attempts", "prices", 1060, 1310, 2),
        WHOLE("oks", "prices", 5),
        WHOLE("failures", "prices", 5),
        WHOLE("timeouts", "prices", 3),
        WHOLE("ignored", "stock", 1),
        WHOLE("cancelled", "stock", 1),
        WHOLE("retries", "prices", 3),
        WHOLE("retries", "stock", 0),
        WHOLE("retries_per_second_worst", "prices", 3),
        PART("retries_per_second_worst", "prices", 310, ALL, 2), /* 1,060 | 1,310 and 1,400 */
        WHOLE("retries_per_second_worst", "stock", 0),
        WHOLE("injected", "prices", 1),
        WHOLE("probes", "prices", 2),
        WHOLE("probes_in_fault", "prices", 1),
        WHOLE("failing_calls", "prices", 8),
        WHOLE("failing_calls", "stock", 0), /* they failed, without a fault */
        WHOLE("failing_before_stop", "prices", 6),
        WHOLE("failing_before_stop", "stock", 0),
        WHOLE("attempt_latency_p50", "prices", 20),
        WHOLE("attempt_latency_p99", "prices", 90),
        WHOLE("attempt_latency_p999", "prices", 90),
        WHOLE("attempt_latency_p50", "stock", NAN),
        WIDTH("attempt_cut_off", "prices", 30, 0.4),
        WIDTH("attempt_cut_off", "prices", 90, 0), /* strictly longer */
        WIDTH("attempt_cut_off", "prices", 0, NAN),
        WIDTH("retries_busiest_slot", "prices", 100, 1),
        WIDTH("retries_busiest_slot", "prices", 300, 2),
        WIDTH("retries_busiest_slot", "prices", 0, NAN),
        WIDTH("retries_slots", "prices", 100, 3),
        WIDTH("retries_slots", "prices", 300, 2),
        WIDTH("retries_slots", "stock", 300, 0),
        WHOLE("retries_last", "prices", 1400),
        WHOLE("retries_last", "stock", NAN),
        WHOLE("fallbacks", "prices", 4),
        WHOLE("fallbacks", "", 6),

        WHOLE("refused", "prices", 3),
        WHOLE("refused", "stock", 10),
        PART("refused", "prices", 1700, 1800, 1),
        WHOLE("refused_open", "prices", 2),
        WHOLE("refused_half_open", "prices", 1),
        WHOLE("refused_forced_open", "stock", 1),
        WHOLE("refused_full", "stock", 1),
        WHOLE("refused_queue_full", "stock", 2),
        WHOLE("refused_priority", "stock", 1),
        WHOLE("refused_rate", "stock", 1),
        WHOLE("refused_cost", "stock", 1),
        WHOLE("refused_throttled", "stock", 1),
        WHOLE("refused_retries", "stock", 1),
        WHOLE("refused_deadline", "stock", 1),
        WHOLE("broken", "stock", 1),
        WHOLE("retry_attempts", "prices", 1),
        WHOLE("retry_budget", "prices", 1),
        WHOLE("retry_deadline", "prices", 1),
        WHOLE("retry_not_retryable", "stock", 1),
        WHOLE("retry_upstream", "stock", 1),
        WHOLE("retry_pushback", "stock", 1),
        WHOLE("retry_in_flight", "stock", 1),

        WHOLE("opened", "prices", 2),
        PART("opened", "prices", 1500, 1950, 1),
        WHOLE("half_opened", "prices", 2),
        WHOLE("closed", "prices", 1),
        WHOLE("closed", "stock", 0),
        NTH("opened_at", "prices", 1, 1500),
        NTH("opened_at", "prices", 2, 1950),
        NTH("opened_at", "prices", 3, NAN),
        WHOLE("opened_at", "prices", 1500), /* the first */
        PART("opened_at", "prices", 1501, ALL, 1950),
        NTH("half_opened_at", "prices", 2, 2100),
        NTH("closed_at", "prices", 1, 2120),
        NTH("closed_at", "", 1, 2120),
        WHOLE("open_time", "prices", 620),
        PART("open_time", "prices", 1800, 2000, 200),
        PART("open_time", "prices", 2100, 9000, 20),
        WHOLE("open_time", "stock", 0),
        WHOLE("recovered_after", "prices", 1300),
        WHOLE("recovered_after", "stock", NAN), /* there was no fault */

        WHOLE("permits_most", "prices", 4),
        WHOLE("permits_most", "", 5), /* at one look */
        PART("permits_most", "prices", 0, 40, 2),
        WHOLE("waiting_most", "prices", 1),
        WHOLE("waiting_most", "", 5),
        WHOLE("tokens_least", "prices", 3.5),
        WHOLE("tokens_least", "stock", NAN),
        WHOLE("rate_tokens_least", "stock", 2),
        WHOLE("throttle_most", "stock", 0.5),
        WHOLE("histogram_p50", "stock", NAN),
        WHOLE("histogram_p99", "stock", NAN),
        WHOLE("histogram_p999", "stock", NAN),
        WIDTH("cut_off", "prices", 50, 0.02),
        WIDTH("cut_off", "prices", 1, 1),
        WIDTH("cut_off", "prices", 200, 0),
        WIDTH("cut_off", "prices", 0, NAN),
        WIDTH("cut_off", "stock", 50, NAN),

        WHOLE("received", "prices", 10),
        WHOLE("received", "store", 1),
        WHOLE("received", "", 11),
        PART("received", "prices", 1001, 1061, 1),
        WHOLE("received_in_fault", "prices", 6),
        WHOLE("received_per_second_worst", "prices", 6),
        PART("received_per_second_worst", "prices", 300, ALL, 5), /* 1,001 to 1,251 | 1,311 to 2,211 */
        WHOLE("answered", "prices", 3),
        WHOLE("completed", "prices", 4),
        WHOLE("errors", "prices", 1),
        WHOLE("shed", "prices", 1),
        WHOLE("hung", "prices", 2),
        WHOLE("reset", "prices", 1),
        WHOLE("pending", "prices", 1),
        WHOLE("accepted_share", "prices", 0.3),
        PART("accepted_share", "prices", 3000, ALL, NAN),
        WHOLE("amplification", "prices", 10.0 / 13),
        WHOLE("amplification", "store", 0.5),
        WHOLE("amplification", "", 11.0 / 15),
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))

START_TEST(each_figure_has_the_value_that_was_worked_out_by_hand)
{
	struct made *m = made_story(VIEW_SHARED);

	for (size_t i = 0; i < ROWS; i++)
		check_row(&m->take, &rows[i]);
	free(m);
}
END_TEST

START_TEST(each_figure_of_the_table_is_here)
{
	size_t count;
	const struct figure *figures = figures_all(&count);

	for (size_t i = 0; i < count; i++) {
		size_t row = 0;
		while (row < ROWS && strcmp(rows[row].figure, figures[i].name) != 0)
			row++;
		ck_assert_msg(row < ROWS, "nobody has worked out %s", figures[i].name);
		ck_assert_ptr_eq(figure_find(figures[i].name), &figures[i]);
		ck_assert_uint_lt(strlen(figures[i].name), sizeof(((struct figure_ref *)NULL)->figure));
		ck_assert(figures[i].text[0] != '\0' && figures[i].definition[0] != '\0');
	}
	ck_assert_ptr_null(figure_find("no_such_figure"));
	ck_assert_ptr_null(figure_find(""));
}
END_TEST

/* A quantile of the histogram lies within its bucket, which is an eighth wide. */
START_TEST(quantiles_of_the_histogram_lie_within_their_bucket)
{
	static const struct {
		const char *figure;
		uint64_t us;
	} quantiles[] = {{"histogram_p50", 10000}, {"histogram_p99", 100000}, {"histogram_p999", 100000}};
	struct made *m = made_story(VIEW_SHARED);

	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++) {
		unsigned bucket = latency_bucket(quantiles[i].us);
		const struct row row = WHOLE(quantiles[i].figure, "prices", 0);
		double ms = value_of(&m->take, &row);
		ck_assert_double_ge(ms, (double)latency_edge_us(bucket - 1) / 1e3);
		ck_assert_double_le(ms, (double)latency_edge_us(bucket) / 1e3);
	}
	free(m);
}
END_TEST

START_TEST(of_an_unknown_name_there_is_no_figure)
{
	struct made *m = made_story(VIEW_SHARED);
	const struct row unknown[] = {WHOLE("offered", "nobody", NAN), WHOLE("attempts", "users", NAN), WHOLE("received", "stock", NAN),
	                              WHOLE("no_such_figure", "", NAN)};

	for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
		check_row(&m->take, &unknown[i]);
	free(m);
}
END_TEST

START_TEST(an_empty_take_has_counts_of_nothing_and_no_shares)
{
	struct made *m = made_new(VIEW_OWN);
	size_t count;
	const struct figure *figures = figures_all(&count);

	m->take.duration_ns = 0;
	for (size_t i = 0; i < count; i++) {
		const struct row row = {figures[i].name, "", 0, ALL, 1, 10, 0};
		double value = value_of(&m->take, &row);
		bool is_open_time = strcmp(figures[i].name, "open_time") == 0;
		if (figures[i].unit == UNIT_COUNT || is_open_time)
			ck_assert_msg(value == 0, "%s: %g", figures[i].name, value);
		else
			ck_assert_msg(isnan(value), "%s: %g", figures[i].name, value);
	}
	free(m);
}
END_TEST

/* Who was never refused was hurt to the end. */
START_TEST(one_worker_that_never_stopped_makes_all_failing_calls_count)
{
	struct made *m = made_story(VIEW_OWN);
	const struct row row = WHOLE("failing_before_stop", "prices", 7);

	for (size_t i = 0; i < m->take.attempt_count; i++)
		if (m->attempts[i].worker == 2 && m->attempts[i].answer == RESC_E_OPEN)
			m->attempts[i].answer = RESC_E_FULL;
	check_row(&m->take, &row);
	free(m);
}
END_TEST

/* A worker that is refused only after the fault has not stopped in it; one that asks nothing in it need not stop. */
START_TEST(a_stop_is_within_the_fault)
{
	struct made *m = made_story(VIEW_OWN);
	const struct row all = WHOLE("failing_before_stop", "prices", 7), without = WHOLE("failing_before_stop", "prices", 5);

	for (size_t i = 0; i < m->take.attempt_count; i++)
		if (m->attempts[i].worker == 2 && m->attempts[i].answer == RESC_E_OPEN)
			m->attempts[i].asked_ns = m->attempts[i].entered_ns = 2000 * MS;
	check_row(&m->take, &all);
	for (size_t i = 0; i < m->take.attempt_count; i++)
		if (m->attempts[i].worker == 2 && m->attempts[i].resource == PRICES && m->attempts[i].asked_ns < 2000 * MS)
			m->attempts[i].asked_ns = 900 * MS, m->attempts[i].during_fault = false;
	check_row(&m->take, &without);
	free(m);
}
END_TEST

START_TEST(who_never_serves_fresh_again_has_not_recovered)
{
	struct made *m = made_story(VIEW_SHARED);
	const struct row row = WHOLE("recovered_after", "prices", NAN);

	for (uint32_t i = 0; i < m->board.request_count; i++)
		if (m->requests[i].worker == 1 && m->requests[i].ended_ns > 2000 * MS)
			m->requests[i].served = SERVED_FALLBACK;
	check_row(&m->take, &row);
	free(m);
}
END_TEST

START_TEST(from_a_fault_that_has_not_ended_nobody_recovers)
{
	struct made *m = made_story(VIEW_SHARED);
	const struct row row = WHOLE("recovered_after", "prices", NAN);

	m->fault.to_ns = SCENARIO_FOREVER;
	check_row(&m->take, &row);
	m->fault.to_ns = 2000 * MS;
	m->take.duration_ns = 1500 * MS; /* stopped in the middle of it */
	check_row(&m->take, &row);
	free(m);
}
END_TEST

/* A fault by the numbers of requests ends when the last call has met it. */
START_TEST(a_fault_by_request_ends_with_the_last_call_that_met_it)
{
	struct made *m = made_story(VIEW_SHARED);
	const struct row row = WHOLE("recovered_after", "prices", 3300 - 1421);

	m->fault = (struct fault){.kind = FAULT_HANG, .from_request = 3, .to_request = 8, .share = 1};
	check_row(&m->take, &row);
	free(m);
}
END_TEST

START_TEST(on_own_views_open_time_is_the_mean_over_the_workers)
{
	struct made *m = made_new(VIEW_OWN);
	const struct row rows_of_own[] = {WHOLE("open_time", "prices", 500), PART("open_time", "prices", 0, 3500, 1000.0 / 3),
	                                  WHOLE("opened", "prices", 2), NTH("opened_at", "prices", 2, 3000)};

	made_move(m, PRICES, 0, 1500, RESC_CLOSED, RESC_BREAKER_OPEN);
	made_move(m, PRICES, 0, 2000, RESC_BREAKER_OPEN, RESC_CLOSED);
	made_move(m, PRICES, 1, 3000, RESC_CLOSED, RESC_BREAKER_OPEN); /* and stays so */
	for (size_t i = 0; i < sizeof(rows_of_own) / sizeof(rows_of_own[0]); i++)
		check_row(&m->take, &rows_of_own[i]);
	free(m);
}
END_TEST

START_TEST(on_own_views_calls_inside_are_those_of_all_workers)
{
	struct made *m = made_new(VIEW_OWN);
	const struct row most = WHOLE("permits_most", "prices", 5), least = WHOLE("tokens_least", "prices", 1);

	for (uint16_t worker = 0; worker < 3; worker++) {
		struct sample *sample = made_sample(m, PRICES, 20, worker, 0);
		sample->worker = worker;
		sample->tokens = (float)(3 - worker);
	}
	made_sample(m, PRICES, 40, 5, 0);
	check_row(&m->take, &most);
	check_row(&m->take, &least);
	free(m);
}
END_TEST

/* What was cut short counts what came, and not what the schedule still had. */
START_TEST(a_take_that_was_stopped_has_the_requests_that_arrived)
{
	struct made *m = made_story(VIEW_SHARED);
	const struct row offered = WHOLE("offered", "users", 12), unfinished = WHOLE("unfinished", "users", 0);

	m->take.duration_ns = 3400 * MS;
	check_row(&m->take, &offered);
	check_row(&m->take, &unfinished);
	free(m);
}
END_TEST

/* ---- seconds ---- */

START_TEST(seconds_add_up_to_the_figures)
{
	struct made *m = made_story(VIEW_SHARED);
	size_t count;
	struct second *seconds = take_seconds(&m->take, -1, 1000 * MS, &count), sum = {0};

	ck_assert_uint_eq(count, 4);
	for (size_t i = 0; i < count; i++) {
		sum.offered += seconds[i].offered;
		sum.attempts += seconds[i].attempts;
		sum.received += seconds[i].received;
		sum.shed += seconds[i].shed;
		sum.retries += seconds[i].retries;
		sum.refused[RESC_E_OPEN] += seconds[i].refused[RESC_E_OPEN];
		sum.refused[RESC_E_QUEUE_FULL] += seconds[i].refused[RESC_E_QUEUE_FULL];
		sum.no_retry[RESC_E_BUDGET - RESC_E_ATTEMPTS] += seconds[i].no_retry[RESC_E_BUDGET - RESC_E_ATTEMPTS];
		sum.served[SERVED_NOT_YET] += seconds[i].served[SERVED_NOT_YET];
	}
	ck_assert_uint_eq(sum.offered, 15);
	ck_assert_uint_eq(sum.attempts, 19);
	ck_assert_uint_eq(sum.received, 11);
	ck_assert_uint_eq(sum.shed, 1);
	ck_assert_uint_eq(sum.retries, 3);
	ck_assert_uint_eq(sum.refused[RESC_E_OPEN], 2);
	ck_assert_uint_eq(sum.refused[RESC_E_QUEUE_FULL], 2);
	ck_assert_uint_eq(sum.no_retry[RESC_E_BUDGET - RESC_E_ATTEMPTS], 1);
	ck_assert_uint_eq(sum.served[SERVED_NOT_YET], 1);
	free(seconds);
	free(m);
}
END_TEST

START_TEST(a_second_has_what_arrived_in_it)
{
	struct made *m = made_story(VIEW_SHARED);
	size_t count;
	struct second *seconds = take_seconds(&m->take, USERS, 1000 * MS, &count);

	ck_assert_uint_eq(seconds[0].offered, 3);
	ck_assert_uint_eq(seconds[0].served[SERVED_REJECTED], 1);
	ck_assert_uint_eq(seconds[0].attempts, 2); /* those of the jobs are not here */
	ck_assert_double_eq(seconds[0].p50_ms, 10);
	ck_assert_double_eq(seconds[0].p99_ms, 30);
	ck_assert_uint_eq(seconds[1].served[SERVED_LATE], 1); /* its end is in the next */
	ck_assert_double_eq(seconds[1].p95_ms, 1000);
	ck_assert_uint_eq(seconds[3].served[SERVED_STORED], 1);
	free(seconds);
	seconds = take_seconds(&m->take, JOBS, 1000 * MS, &count);
	ck_assert(isnan(seconds[1].p50_ms));
	ck_assert_uint_eq(seconds[1].offered, 0);
	free(seconds);
	m->take.duration_ns = 0;
	seconds = take_seconds(&m->take, -1, 1000 * MS, &count);
	ck_assert_ptr_nonnull(seconds);
	ck_assert_uint_eq(count, 0);
	free(seconds);
	free(m);
}
END_TEST

/* ---- words ---- */

START_TEST(values_are_said_with_their_unit)
{
	ck_assert_str_eq(figure_value_text(UNIT_COUNT, 1204).s, "1,204");
	ck_assert_str_eq(figure_value_text(UNIT_COUNT, 0).s, "0");
	ck_assert_str_eq(figure_value_text(UNIT_SHARE, 0.982).s, "98.2%");
	ck_assert_str_eq(figure_value_text(UNIT_SHARE, 0.0056).s, "0.56%");
	ck_assert_str_eq(figure_value_text(UNIT_SHARE, 1).s, "100%");
	ck_assert_str_eq(figure_value_text(UNIT_MS, 301.4).s, "301ms");
	ck_assert_str_eq(figure_value_text(UNIT_MS, 21.36).s, "21.4ms");
	ck_assert_str_eq(figure_value_text(UNIT_MS, 15500).s, "15,500ms");
	ck_assert_str_eq(figure_value_text(UNIT_RATIO, 1.0666).s, "1.07");
	ck_assert_str_eq(figure_value_text(UNIT_MS, NAN).s, "none");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        each_figure_has_the_value_that_was_worked_out_by_hand,
	        each_figure_of_the_table_is_here,
	        quantiles_of_the_histogram_lie_within_their_bucket,
	        of_an_unknown_name_there_is_no_figure,
	        an_empty_take_has_counts_of_nothing_and_no_shares,
	        one_worker_that_never_stopped_makes_all_failing_calls_count,
	        a_stop_is_within_the_fault,
	        who_never_serves_fresh_again_has_not_recovered,
	        from_a_fault_that_has_not_ended_nobody_recovers,
	        a_fault_by_request_ends_with_the_last_call_that_met_it,
	        on_own_views_open_time_is_the_mean_over_the_workers,
	        on_own_views_calls_inside_are_those_of_all_workers,
	        a_take_that_was_stopped_has_the_requests_that_arrived,
	        seconds_add_up_to_the_figures,
	        a_second_has_what_arrived_in_it,
	        values_are_said_with_their_unit,
	};

	return FIXTURE_RUN("figures", tests, NULL, NULL);
}
