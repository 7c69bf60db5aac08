/* SPDX-License-Identifier: MIT */
/* The metrics page as text: what is on it, in both dialects. What a real parser says of it is in tests/system/test_metrics.py. */
#include "metrics.h"

#include "count.h"
#include "fixture.h"
#include "override.h"

static struct fixture f;
static char *page;
static size_t size;

static void set_up(void)
{
	fixture_open_shared(&f, NULL);
	fixture_at(&f, 1000);
}

static void tear_down(void)
{
	free(page);
	page = NULL;
	map_close(&f.map);
}

static void write_page(bool openmetrics)
{
	FILE *out;

	free(page);
	page = NULL;
	out = open_memstream(&page, &size);
	ck_assert_ptr_nonnull(out);
	ck_assert_int_eq(metrics_write(out, &f.map, openmetrics), 0);
	fclose(out);
}

#define ck_assert_line(line) ck_assert_msg(strstr(page, line "\n") != NULL, "missing: %s", line)

START_TEST(J3_every_series_is_there_at_zero)
{
	write_page(false);
#define X(NAME, name, text) ck_assert_line("resc_calls_total{resource=\"payments\",outcome=\"" #name "\"} 0");
	RESC_OUTCOMES(X)
#undef X
#define X(NAME, name, text) ck_assert_line("resc_refusals_total{resource=\"payments\",reason=\"" #name "\"} 0");
	RESC_REFUSALS(X)
#undef X
#define X(NAME, name, text) ck_assert_line("resc_retries_refused_total{resource=\"payments\",reason=\"" #name "\"} 0");
	RESC_RETRY_REFUSALS(X)
#undef X
#define X(name, text) ck_assert_line("resc_fallbacks_total{resource=\"payments\",kind=\"" #name "\"} 0");
	RESC_FALLBACKS(X)
#undef X
	ck_assert_line("resc_breaker_state{resource=\"payments\"} 0");
	ck_assert_line("resc_latency_seconds_bucket{resource=\"payments\",le=\"+Inf\"} 0");
	ck_assert_line("resc_latency_seconds_count{resource=\"payments\"} 0");
	ck_assert_line("resc_workers 0");
}
END_TEST

START_TEST(J3_a_removed_resource_vanishes_and_comes_back)
{
	count_common(&f.map, f.state, COUNTER_admitted, 3);
	policy_retire(&f.map, f.index);
	write_page(false);
	ck_assert_ptr_null(strstr(page, "payments"));
	ck_assert_int_eq(policy_publish(&f.map, "payments", &f.policy), (int)f.index);
	write_page(false);
	ck_assert_line("resc_admitted_total{resource=\"payments\"} 3");
}
END_TEST

START_TEST(the_dialects_differ_where_they_must)
{
	write_page(false);
	ck_assert_line("# TYPE resc_admitted_total counter");
	ck_assert_line("# TYPE resc_build_info gauge");
	ck_assert_ptr_null(strstr(page, "# EOF"));
	write_page(true);
	ck_assert_line("# TYPE resc_admitted counter");
	ck_assert_line("# TYPE resc_build info");
	ck_assert_str_eq(page + size - 6, "# EOF\n");
}
END_TEST

START_TEST(states_and_overrides_as_numbers)
{
	fixture_store(&f.state->breaker, breaker_make(TAG_OPEN, 0, 5, 9000));
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_DISABLED, 0, "x"), 0);
	write_page(false);
	ck_assert_line("resc_breaker_state{resource=\"payments\"} 1");
	ck_assert_line("resc_override_info{resource=\"payments\",mode=\"disabled\"} 1");
	ck_assert_line("resc_override_info{resource=\"payments\",mode=\"open\"} 0");
	fixture_store(&f.state->breaker, breaker_make(TAG_HALF_OPEN, 0, 6, 1000));
	write_page(false);
	ck_assert_line("resc_breaker_state{resource=\"payments\"} 2");
}
END_TEST

START_TEST(a_name_that_is_none_does_not_break_the_page)
{
	const char evil[] = "a\"b\\c\nd\x01\xff";
	struct policy_record *record = &f.map.policies[f.index];

	for (size_t i = 0; i < sizeof(evil); i++)
		atomic_store_explicit(&record->name[i], evil[i], memory_order_relaxed);
	write_page(false);
	for (const char *line = page; *line; line = strchr(line, '\n') + 1)
		ck_assert(strncmp(line, "resc_", 5) == 0 || line[0] == '#');
	for (size_t i = 0; i < size; i++)
		ck_assert(page[i] == '\n' || (page[i] >= ' ' && page[i] < 0x7f));
}
END_TEST

int main(void)
{
	const TTest *const all[] = {
	        J3_every_series_is_there_at_zero, J3_a_removed_resource_vanishes_and_comes_back, the_dialects_differ_where_they_must,
	        states_and_overrides_as_numbers,  a_name_that_is_none_does_not_break_the_page,
	};
	Suite *suite = suite_create("metrics");
	TCase *tests = tcase_create("metrics");

	tcase_add_checked_fixture(tests, set_up, tear_down);
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		tcase_add_test(tests, all[i]);
	suite_add_tcase(suite, tests);
	return fixture_run(suite);
}
