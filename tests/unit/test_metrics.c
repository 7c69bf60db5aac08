/* SPDX-License-Identifier: MIT */
/* The metrics page as text: what is on it, in both dialects. What a real parser says of it is in tests/system/test_metrics.py. */
#include "metrics.h"
#include "record.h"

#include "count.h"
#include "fixture.h"
#include "injection.h"
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

static void ck_assert_line(const char *line)
{
	char whole[256];

	snprintf(whole, sizeof(whole), "%s\n", line);
	ck_assert_msg(strstr(page, whole) != NULL, "missing: %s", line);
}

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
	static const char *const events[] = {"first", "done", "replayed", "busy", "unknown", "full"};
	for (size_t i = 0; i < sizeof(events) / sizeof(events[0]); i++) {
		char line[96];
		snprintf(line, sizeof(line), "resc_once_total{resource=\"payments\",event=\"%s\"} 0", events[i]);
		ck_assert_line(line);
	}
	ck_assert_line("resc_would_refuse_total{resource=\"payments\",reason=\"full\"} 0");
	ck_assert_line("resc_breaker_state{resource=\"payments\"} 0");
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"breaker\"} 2");
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"rate\"} 0");
	ck_assert_line("resc_permits_waiting{resource=\"payments\"} 0");
	ck_assert_line("resc_retries_in_flight{resource=\"payments\"} 0");
	ck_assert_line("resc_rate_tokens{resource=\"payments\"} 0.000000");
	ck_assert_line("resc_throttle_ratio{resource=\"payments\"} 0.000000");
	ck_assert_line("resc_once_keys{state=\"working\"} 0");
	ck_assert_line("resc_lookups_refused_total 0");
	ck_assert_line("resc_latency_seconds_bucket{resource=\"payments\",le=\"+Inf\"} 0");
	ck_assert_line("resc_latency_seconds_count{resource=\"payments\"} 0");
	ck_assert_line("resc_workers 0");
}
END_TEST

START_TEST(J3_a_removed_resource_vanishes_and_comes_back)
{
	count_common(&f.map, f.state, COUNTER_admitted, 3);
	record_retire(&f.map, f.index);
	write_page(false);
	ck_assert_ptr_null(strstr(page, "payments"));
	ck_assert_int_eq(record_publish(&f.map, "payments", &f.policy), (int)f.index);
	write_page(false);
	ck_assert_line("resc_admitted_total{resource=\"payments\"} 3");
}
END_TEST

/* The line of a sample with that value, up to its name; fails unless there is exactly one. */
static void expect_once(uint64_t value, const char *counter)
{
	char end[32];
	const char *at;

	snprintf(end, sizeof(end), "} %llu\n", (unsigned long long)value);
	at = strstr(page, end);
	ck_assert_msg(at != NULL, "%s is not on the page", counter);
	ck_assert_msg(strstr(at + 1, end) == NULL, "%s is on the page twice", counter);
}

START_TEST(every_counter_is_on_the_page_once)
{
	static const char *const names[COUNTERS] = {
#define X(name, text) [COUNTER_##name] = #name,
	        RESC_COUNTERS(X)
#undef X
#define X(NAME, name, text) [COUNTER_refused_##name] = "refused_" #name,
	                RESC_REFUSALS(X)
#undef X
#define X(name, text) [COUNTER_fallback_##name] = "fallback_" #name,
	                        RESC_FALLBACKS(X)
#undef X
	};

	for (unsigned i = 0; i < COUNTERS; i++)
		fixture_store(&map_shard(&f.map, f.state, 0)->counters[i], 7000000 + 1000 * i);
	write_page(false);
	for (unsigned i = 0; i < COUNTERS; i++)
		if (names[i] != NULL) /* else: room in a range */
			expect_once(7000000 + 1000 * i, names[i]);
}
END_TEST

START_TEST(a_guard_in_shadow_mode_says_so)
{
	f.policy.flags |= POLICY_SHADOW_BREAKER | POLICY_RATE | POLICY_SHADOW_RATE | POLICY_RETRY_CAP | POLICY_MADE;
	policy_write(&f.map, f.index, &f.policy);
	write_page(false);
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"breaker\"} 1");
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"rate\"} 1");
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"budget\"} 2");
	ck_assert_line("resc_policy_mode{resource=\"payments\",policy=\"throttle\"} 0");
	ck_assert_line("resc_rate_burst{resource=\"payments\"} 100");
	ck_assert_line("resc_rate_limit_per_second{resource=\"payments\"} 100.000000");
	ck_assert_line("resc_resources_made 1");
}
END_TEST

START_TEST(an_injection_says_what_it_does_and_how_long)
{
	const struct injection injection = {.fail_ppm = 200000, .share_ppm = 500000, .latency_ms = 300};

	f.policy.flags |= POLICY_INJECTION;
	policy_write(&f.map, f.index, &f.policy);
	write_page(false);
	ck_assert_line("resc_injection_left_seconds{resource=\"payments\"} 0.000000");
	ck_assert_int_eq(injection_set(&f.map, f.index, &injection, 60000, "game day"), 0);
	write_page(false);
	ck_assert_line("resc_injection_fail_ratio{resource=\"payments\"} 0.200000");
	ck_assert_line("resc_injection_latency_ratio{resource=\"payments\"} 0.500000");
	ck_assert_line("resc_injection_latency_seconds{resource=\"payments\"} 0.300000");
	ck_assert_line("resc_injection_left_seconds{resource=\"payments\"} 60.000000");
	ck_assert_line("resc_injection_calls_total{resource=\"payments\",fault=\"failures\"} 0");
}
END_TEST

START_TEST(retries_are_among_the_calls_inside)
{
	fixture_store(map_permit(&f.map, f.state, 0), permit_make(1, 1));
	fixture_store(map_permit(&f.map, f.state, 9), permit_make(1, 2) | PERMIT_RETRY);
	write_page(false);
	ck_assert_line("resc_permits_in_use{resource=\"payments\"} 2");
	ck_assert_line("resc_retries_in_flight{resource=\"payments\"} 1");
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
	struct policy_record *record = map_policy(&f.map, f.index);

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
	const TTest *const tests[] = {
	        J3_every_series_is_there_at_zero,
	        J3_a_removed_resource_vanishes_and_comes_back,
	        the_dialects_differ_where_they_must,
	        every_counter_is_on_the_page_once,
	        a_guard_in_shadow_mode_says_so,
	        an_injection_says_what_it_does_and_how_long,
	        retries_are_among_the_calls_inside,
	        states_and_overrides_as_numbers,
	        a_name_that_is_none_does_not_break_the_page,
	};

	return FIXTURE_RUN("metrics", tests, set_up, tear_down);
}
