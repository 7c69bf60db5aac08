/* SPDX-License-Identifier: MIT */
/*
 * The configuration: what is accepted means what it says; what is not is refused with its place, all of it at once. Runs from the root of
 * the source (or RESC_SOURCE says where that is): the files of tests/config are the larger part of it.
 */
#include "config.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "config_key.h"
#include "config_place.h"
#include "config_value.h"
#include "fixture.h"
#include "policy.h"

#define MS     UINT64_C(1000000)
#define TOKENS UINT64_C(1000000)

static struct config config;
static struct config_problems problems;

static void clean(void)
{
	config_free(&config);
	config_problems_free(&problems);
}

static int parse(const char *text)
{
	clean();
	return config_parse(text, strlen(text), &config, &problems);
}

static const char *first_problem(void)
{
	return problems.count > 0 ? problems.items[0].text : "no problem";
}

/* The policy of the only resource of that block. */
static struct policy policy_of(const char *defaults, const char *block)
{
	char text[4096];

	snprintf(text, sizeof(text), "{\"defaults\": %s, \"resources\": {\"r\": %s}}", defaults, block);
	ck_assert_msg(parse(text) == 0, "%s: %s: %s", text, problems.count ? problems.items[0].path : "", first_problem());
	ck_assert_uint_eq(config.count, 1);
	return config.resources[0].policy;
}

static void source_path(char *path, size_t size, const char *name)
{
	const char *root = getenv("RESC_SOURCE");

	snprintf(path, size, "%s/%s", root ? root : ".", name);
}

/* All of a file, with a NUL behind it; NULL: there is none. */
static char *slurp(const char *path, size_t *size)
{
	FILE *file = fopen(path, "re");
	char *text = NULL;
	FILE *copy;
	int c;

	if (!file)
		return NULL;
	copy = open_memstream(&text, size);
	while ((c = getc(file)) != EOF)
		putc(c, copy);
	fclose(file);
	fclose(copy);
	return text;
}

/* ---- the corpus ---- */

static char *printed(const char *name)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	for (size_t i = 0; i < problems.count; i++) {
		char line[CONFIG_LINE_SIZE];
		config_problem_line(&problems.items[i], name, line, sizeof(line));
		fprintf(out, "%s\n", line);
	}
	fclose(out);
	return text;
}

/* Of a syntax error the words belong to the parser: there, what is expected ends before them. */
static void compare_lines(const char *name, char *expected, char *got)
{
	static const char syntax[] = ": this is not JSON";
	char *e, *g, *save_e, *save_g;

	for (e = strtok_r(expected, "\n", &save_e), g = strtok_r(got, "\n", &save_g); e && g;
	     e = strtok_r(NULL, "\n", &save_e), g = strtok_r(NULL, "\n", &save_g)) {
		size_t length = strlen(e);

		if (length > strlen(syntax) && strcmp(e + length - strlen(syntax), syntax) == 0)
			ck_assert_msg(strncmp(e, g, length) == 0, "%s:\nexpected %s...\ngot      %s", name, e, g);
		else
			ck_assert_msg(strcmp(e, g) == 0, "%s:\nexpected %s\ngot      %s", name, e, g);
	}
	ck_assert_msg(!e, "%s: expected and did not get: %s", name, e);
	ck_assert_msg(!g, "%s: got and did not expect: %s", name, g);
}

/* What rescd writes must not be changed by the check that makes any bytes safe. */
static void check_inside(const char *file, const struct config_resource *resource)
{
	const struct segment_dims dims = {.permits = PERMITS_LIMIT, .calls = CALLS_LIMIT, .waiting = WAITING_LIMIT};
	struct policy clamped = resource->policy;

	policy_clamp(&clamped, &dims);
	/* Without a bulkhead the limit is 0, and means nothing. */
	if ((clamped.flags & POLICY_BULKHEAD) == 0)
		clamped.limit = resource->policy.limit;
	ck_assert_msg(memcmp(&resource->policy, &clamped, sizeof(clamped)) == 0, "%s: %s", file, resource->name);
}

static void check_file(const char *directory, const char *name, bool good)
{
	char path[1024], expect[1100];
	size_t size;
	char *expected, *got;

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	snprintf(expect, sizeof(expect), "%.*s.expect", (int)(strlen(path) - strlen(".json")), path);
	clean();
	int r = config_load(path, &config, &problems);
	ck_assert_msg(r == (good ? 0 : -EINVAL), "%s: %d: %s", name, r, first_problem());
	ck_assert_msg((problems.errors == 0) == good, "%s", name);
	ck_assert_msg(good || (config.count == 0 && !config.resources), "%s: something is left of a bad file", name);
	got = printed(name);
	expected = slurp(expect, &size);
	if (!expected)
		expected = strdup("");
	ck_assert_msg(good || expected[0], "%s is missing", expect);
	compare_lines(name, expected, got);
	for (size_t i = 0; i < config.count; i++)
		check_inside(name, &config.resources[i]);
	for (size_t i = 0; i < config.pattern_count; i++)
		check_inside(name, &config.patterns[i]);
	free(expected);
	free(got);
}

static unsigned check_directory(const char *name, bool good)
{
	char path[512];
	unsigned count = 0;
	DIR *directory;
	struct dirent *entry;

	source_path(path, sizeof(path), name);
	directory = opendir(path);
	ck_assert_msg(directory != NULL, "%s: %s", path, strerror(errno));
	while ((entry = readdir(directory))) {
		size_t length = strlen(entry->d_name);

		if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0)
			continue;
		check_file(path, entry->d_name, good);
		count += 1;
	}
	closedir(directory);
	return count;
}

/* L01 to L19 are among them. */
START_TEST(valid_files_load_and_stay_in_the_ranges_of_the_library)
{
	ck_assert_uint_gt(check_directory("tests/config/valid", true), 25);
}
END_TEST

/* H1, H3, H4 and the rows of Appendix J. */
START_TEST(invalid_files_say_what_is_wrong_and_where)
{
	ck_assert_uint_gt(check_directory("tests/config/invalid", false), 60);
}
END_TEST

/* ---- values ---- */

START_TEST(every_key_is_stored)
{
	char path[512];

	source_path(path, sizeof(path), "tests/config/valid/every_key.json");
	clean();
	ck_assert_int_eq(config_load(path, &config, &problems), 0);
	ck_assert_str_eq(config.instance, "staging-2");
	ck_assert_str_eq(config.group, "");
	ck_assert_uint_eq(config.gid, (gid_t)-1);
	ck_assert_uint_eq(config.mode, 0640);
	ck_assert_str_eq(config.metrics, "[::1]:9464");
	ck_assert_str_eq(config.control, "/run/resc/staging-2.socket");
	ck_assert_uint_eq(config.workers, 4096);
	ck_assert_uint_eq(config.once_keys, 65536);
	ck_assert_uint_eq(config.made, 1000);
	ck_assert_uint_eq(config.idle_ms, 90000);
	ck_assert_uint_eq(config.count, 1);
	ck_assert_str_eq(config.resources[0].name, "db.orders:5432");
	struct policy expected;

	policy_defaults(&expected);
	expected.flags = POLICY_CONFIGURED | POLICY_BREAKER | POLICY_BUDGET | POLICY_BULKHEAD | POLICY_RETRY | POLICY_RATE |
	                 POLICY_THROTTLE | POLICY_ONCE | POLICY_RETRY_CAP | POLICY_TIMEOUT | POLICY_SHADOW_BUDGET | POLICY_SHADOW_BULKHEAD |
	                 POLICY_SHADOW_RATE | POLICY_SHADOW_THROTTLE;
	expected.consecutive = 5;
	expected.failure_rate_ppm = 125000;
	expected.slow_rate_ppm = 250000;
	expected.slow_call_ns = 750000;
	expected.window_ms = 60000;
	expected.min_calls = 50;
	expected.cooldown_ms = 1500;
	expected.cooldown_factor_ppm = 1500000;
	expected.cooldown_max_ms = 1800000;
	expected.jitter_ppm = 100000;
	expected.probes = 3;
	expected.successes = 3;
	expected.trial_failure_rate_ppm = 660000;
	expected.probe_timeout_ms = 2000;
	expected.retry_after_max_ms = 120000;
	expected.attempts = 4;
	expected.backoff = BACKOFF_FIXED;
	expected.backoff_jitter = JITTER_DECORRELATED;
	expected.base_ns = 250000;
	expected.cap_ns = 1000 * MS;
	expected.retry_on = 1u << RESC_TIMEOUT;
	expected.budget_ratio = TOKENS / 4;
	expected.budget_capacity = 100 * TOKENS;
	expected.budget_per_second = 2500000;
	expected.budget_previous = 100 * TOKENS;
	expected.budget_deposit = DEPOSIT_REQUEST;
	expected.budget_cost = 1500000;
	expected.budget_timeout_cost = 5 * TOKENS;
	expected.budget_ttl_ms = 20000;
	expected.budget_threshold_ppm = 500000;
	expected.retries_floor = 3;
	expected.retries_share_ppm = 200000;
	expected.limit = 32768;
	expected.max_wait_ms = 250;
	expected.max_waiting = 16384;
	expected.critical_ppm = 1000000;
	expected.normal_ppm = 900000;
	expected.low_ppm = 500000;
	expected.retry_after_ms = 3000;
	expected.rate_per_second = 500500000;
	expected.rate_burst = 100;
	expected.rate_max_wait_ms = 150;
	expected.rate_previous_per_second = 500500000;
	expected.rate_previous_burst = 100;
	expected.throttle_k_ppm = 1100000;
	expected.throttle_window_ms = 180000;
	expected.once_ttl_ms = 172800000;
	expected.once_max_wait_ms = 1500;
	expected.once_on_death = ON_DEATH_FREE;
	expected.timeout_attempt_ms = 2000;
	expected.timeout_connect_ms = 200;
	expected.timeout_total_ms = 5000;
	expected.timeout_probe_ms = 50;
	ck_assert_mem_eq(&config.resources[0].policy, &expected, sizeof(expected));

	ck_assert_uint_eq(config.pattern_count, 1);
	ck_assert_str_eq(config.patterns[0].name, "shard-*");
	policy_defaults(&expected);
	expected.flags |= POLICY_CONFIGURED | POLICY_BREAKER | POLICY_SHADOW_BREAKER;
	expected.window_calls = 100;
	expected.successes = 2;
	expected.limit = 1;
	expected.limit_share_ppm = 1500000;
	ck_assert_mem_eq(&config.patterns[0].policy, &expected, sizeof(expected));
}
END_TEST

START_TEST(defaults_are_those_of_the_library)
{
	struct policy expected, got = policy_of("{}", "{}");

	policy_defaults(&expected);
	expected.flags |= POLICY_CONFIGURED;
	ck_assert_mem_eq(&got, &expected, sizeof(expected));
	ck_assert_str_eq(config.instance, "default");
	ck_assert_uint_eq(config.mode, 0660);
	ck_assert_uint_eq(config.workers, 1024);
	ck_assert_str_eq(config.metrics, "");
	ck_assert_str_eq(config.control, "");
	ck_assert_uint_eq(config.gid, (gid_t)-1);
	ck_assert_uint_eq(config.once_keys, 0);
	ck_assert_uint_eq(config.made, 0);
	ck_assert_uint_eq(config.idle_ms, 3600000);
	ck_assert_int_eq(parse("{\"resources\": {\"*\": {\"once\": {}}}}"), 0);
	ck_assert_uint_eq(config.once_keys, 16384);
	ck_assert_uint_eq(config.made, 256);
}
END_TEST

START_TEST(durations)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ns;
	} cases[] = {
	        {"1us", 0, 1000},
	        {"0.001us", 0, 1},
	        {"1ms", 0, MS},
	        {"1.5s", 0, 1500 * MS},
	        {"0.1s", 0, 100 * MS},
	        {"2m", 0, 120000 * MS},
	        {"24h", 0, 86400000 * MS},
	        {"007s", 0, 7000 * MS},
	        {"1.000000000s", 0, 1000 * MS},
	        {"1.0000000000s", 0, 1000 * MS},
	        {"0s", 0, 0},
	        {"5124095h", 0, UINT64_C(18446742000000000000)},
	        {"5124096h", 0, UINT64_MAX},
	        {"18446744073709551615us", 0, UINT64_MAX},
	        {"18446744073709551616us", 0, UINT64_MAX},
	        {"99999999999999999999999999999999999999999s", 0, UINT64_MAX},
	        {"0.0001us", -EDOM, 0},
	        {"0.0000000001s", -EDOM, 0},
	        {"1.5us", 0, 1500},
	        {"", -EINVAL, 0},
	        {"s", -EINVAL, 0},
	        {"5", -EINVAL, 0},
	        {"5 s", -EINVAL, 0},
	        {" 5s", -EINVAL, 0},
	        {"5s ", -EINVAL, 0},
	        {"-5s", -EINVAL, 0},
	        {"+5s", -EINVAL, 0},
	        {"1,5s", -EINVAL, 0},
	        {".5s", -EINVAL, 0},
	        {"5.s", -EINVAL, 0},
	        {"1e3ms", -EINVAL, 0},
	        {"0x10s", -EINVAL, 0},
	        {"5S", -EINVAL, 0},
	        {"5d", -EINVAL, 0},
	        {"5ns", -EINVAL, 0},
	        {"1m30s", -EINVAL, 0},
	        {"1.5.5s", -EINVAL, 0},
	        {"infs", -EINVAL, 0},
	        {"\xd9\xa5s", -EINVAL, 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ns = 0;
		int r = value_duration(cases[i].text, &ns);

		ck_assert_msg(r == cases[i].r && ns == cases[i].ns, "\"%s\": %d, %llu", cases[i].text, r, (unsigned long long)ns);
	}
}
END_TEST

START_TEST(shares)
{
	static const struct {
		const char *text;
		int r;
		uint64_t ppm;
	} cases[] = {
	        {"12.5%", 0, 125000},   {"100%", 0, 1000000},   {"0.0001%", 0, 1},
	        {"0%", 0, 0},           {"1000%", 0, 10000000}, {"33.3333%", 0, 333333},
	        {"0.00001%", -EDOM, 0}, {"12,5%", -EINVAL, 0},  {"50", -EINVAL, 0},
	        {"50 %", -EINVAL, 0},   {"-1%", -EINVAL, 0},    {"%", -EINVAL, 0},
	        {"50%%", -EINVAL, 0},   {"", -EINVAL, 0},       {"99999999999999999999999%", 0, UINT64_MAX},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t ppm = 0;
		int r = value_percent(cases[i].text, &ppm);

		ck_assert_msg(r == cases[i].r && ppm == cases[i].ppm, "\"%s\": %d, %llu", cases[i].text, r, (unsigned long long)ppm);
	}
}
END_TEST

START_TEST(values_in_words)
{
	char text[VALUE_TEXT_SIZE];
	uint64_t back;

	static const char *const written[] = {"1us", "750us", "100ms", "1500ms", "10s", "90s", "2m", "24h"};
	for (size_t i = 0; i < sizeof(written) / sizeof(written[0]); i++) {
		ck_assert_int_eq(value_duration(written[i], &back), 0);
		value_duration_text(back, text);
		ck_assert_str_eq(text, written[i]);
	}
	value_duration_text(0, text);
	ck_assert_str_eq(text, "0s");
	value_duration_text(1001, text);
	ck_assert_str_eq(text, "1.001us");
	value_duration_text(UINT64_MAX, text);
	ck_assert_str_eq(text, "18446744073709551.615us");
	value_millionths_text(0, text);
	ck_assert_str_eq(text, "0");
	value_millionths_text(125000, text);
	ck_assert_str_eq(text, "0.125");
	value_millionths_text(UINT64_C(4294967295000000), text);
	ck_assert_str_eq(text, "4294967295");
	value_millionths_text(1, text);
	ck_assert_str_eq(text, "0.000001");
}
END_TEST

/* H3: what each numeric key says to each of a list of values. The ranges stand here once more, by hand. */
enum numeric { WHOLE, NUMBER, SHARE, DURATION, DURATION_OR_WHOLE, WHOLE_OR_SHARE };
struct numeric_key {
	const char *path; /* from the resource; without a dot: of the file */
	enum numeric type;
	double least, most;  /* of a duration in ms; of a key with two types: of the whole number */
	const char *good[2]; /* the ends of the range */
	const char *below, *above;
	const char *with; /* what else the block needs */
};
static const struct numeric_key numeric_keys[] = {
        {"workers", WHOLE, 16, 16384, {"16", "16384"}, "15", "16385", NULL},
        {"once_keys", WHOLE, 16, 1048576, {"16", "1048576"}, "15", "1048577", NULL},
        {"made", WHOLE, 1, 16384, {"1", "16384"}, "0", "16385", NULL},
        {"idle", DURATION, 0, 2592000000, {"\"0s\"", "\"720h\""}, "\"-1s\"", "\"720.1h\"", NULL},
        {"breaker.consecutive", WHOLE, 1, 1e6, {"1", "1000000"}, "0", "1000001", NULL},
        {"breaker.failure_rate", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001", NULL},
        {"breaker.slow_rate", SHARE, 1e-6, 1, {"\"0.0001%\"", "\"100%\""}, "\"0%\"", "\"100.0001%\"", "\"slow_call\":\"1s\","},
        {"breaker.slow_call", DURATION, 0.001, 86400000, {"\"1us\"", "\"24h\""}, "\"0.999us\"", "\"86400.000000001s\"", NULL},
        {"breaker.window", DURATION_OR_WHOLE, 1, 16384, {"\"100ms\"", "\"24h\""}, "\"99ms\"", "\"86400001ms\"", NULL},
        {"breaker.window", DURATION_OR_WHOLE, 1, 16384, {"1", "16384"}, "0", "16385", NULL},
        {"breaker.min_calls", WHOLE, 1, 1e6, {"1", "1000000"}, "0", "1000001", NULL},
        {"breaker.cooldown", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0.5ms\"", "\"86400.001s\"", NULL},
        {"breaker.cooldown_factor", NUMBER, 1, 100, {"1", "100"}, "0.999999", "100.000001", NULL},
        {"breaker.cooldown_max", DURATION, 1, 86400000, {"\"5s\"", "\"24h\""}, "\"0s\"", "\"86400.001s\"", NULL},
        {"breaker.jitter", SHARE, 0, 1, {"0", "1"}, "-0.000001", "1.000001", NULL},
        {"breaker.probes", WHOLE, 1, 64, {"1", "64"}, "0", "65", NULL},
        {"breaker.successes", WHOLE, 1, 10000, {"1", "10000"}, "0", "10001", NULL},
        {"breaker.trial_failure_rate", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001", NULL},
        {"breaker.retry_after_max", DURATION, 0, 86400000, {"\"0s\"", "\"24h\""}, "\"-1ms\"", "\"86400001ms\"", NULL},
        {"breaker.probe_timeout", DURATION, 1, 3600000, {"\"1ms\"", "\"1h\""}, "\"0ms\"", "\"3600001ms\"", NULL},
        {"retry.attempts", WHOLE, 1, 100, {"1", "100"}, "0", "101", NULL},
        {"retry.base", DURATION, 0.001, 86400000, {"\"1us\"", "\"2s\""}, "\"0us\"", "\"24.1h\"", NULL},
        {"retry.cap", DURATION, 0.001, 86400000, {"\"100ms\"", "\"24h\""}, "\"0us\"", "\"24.1h\"", NULL},
        {"retry.budget.ratio", NUMBER, 0, 1000, {"0", "1000"}, "-0.1", "1000.1", NULL},
        {"retry.budget.capacity", WHOLE, 1, 4294967295, {"1", "4294967295"}, "0", "4294967296", NULL},
        {"retry.budget.per_second", NUMBER, 0, 1e6, {"0", "1000000"}, "-1", "1000000.1", NULL},
        {"retry.budget.cost", NUMBER, 0.001, 1000, {"0.001", "1000"}, "0.000999", "1000.000001", NULL},
        {"retry.budget.timeout_cost", NUMBER, 0.001, 1000, {"0.001", "1000"}, "0.000999", "1000.000001", NULL},
        {"retry.budget.ttl", DURATION, 100, 86400000, {"\"100ms\"", "\"24h\""}, "\"0s\"", "\"86400001ms\"", NULL},
        {"retry.budget.threshold", SHARE, 0, 1, {"0", "1"}, "-0.000001", "1.000001", NULL},
        {"retry.budget.in_flight_floor", WHOLE, 0, 4294967295, {"0", "4294967295"}, "-1", "4294967296", NULL},
        {"retry.budget.in_flight_share", NUMBER, 0, 1000, {"0", "1000"}, "-0.1", "1000.1", NULL},
        {"bulkhead.limit", WHOLE_OR_SHARE, 1, 32768, {"1", "32768"}, "0", "32769", NULL},
        {"bulkhead.limit", WHOLE_OR_SHARE, 1, 32768, {"0.000001", "\"1000%\""}, "0.0", "\"1000.0001%\"", NULL},
        {"bulkhead.limit", WHOLE_OR_SHARE, 1, 32768, {"\"0.0001%\"", "1.0"}, "\"0%\"", "1.000001", NULL},
        {"bulkhead.max_wait", DURATION, 0, 86400000, {"\"0s\"", "\"24h\""}, "\"-0s\"", "\"86400001ms\"", "\"limit\": 1,"},
        {"bulkhead.max_waiting", WHOLE, 1, 16384, {"1", "16384"}, "0", "16385", "\"limit\": 1,"},
        {"bulkhead.critical", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001", "\"limit\": 1,"},
        {"bulkhead.normal", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001", "\"limit\": 1,"},
        {"bulkhead.low", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001", "\"limit\": 1,"},
        {"bulkhead.retry_after", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0s\"", "\"86400001ms\"", "\"limit\": 1,"},
        {"rate.per_second", NUMBER, 1e-6, 1e9, {"0.000001", "1000000000"}, "0", "1000000000.1", NULL},
        {"rate.burst", WHOLE, 1, 4294967295, {"1", "4294967295"}, "0", "4294967296", "\"per_second\": 1,"},
        {"rate.max_wait", DURATION, 0, 86400000, {"\"0s\"", "\"24h\""}, "\"-0s\"", "\"86400001ms\"", "\"per_second\": 1,"},
        {"throttle.k", NUMBER, 1, 1000, {"1", "1000"}, "0.999999", "1000.000001", NULL},
        {"throttle.window", DURATION, 100, 86400000, {"\"100ms\"", "\"24h\""}, "\"0s\"", "\"86400001ms\"", NULL},
        {"timeout.probe", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\"", NULL},
        {"once.ttl", DURATION, 1, 2592000000, {"\"1ms\"", "\"720h\""}, "\"0s\"", "\"720.1h\"", NULL},
        {"once.max_wait", DURATION, 0, 3600000, {"\"0s\"", "\"1h\""}, "\"-0s\"", "\"3600001ms\"", NULL},
        {"timeout.attempt", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\"", NULL},
        {"timeout.connect", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\"", NULL},
        {"timeout.total", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\"", NULL},
};
#define NUMERIC_KEYS (sizeof(numeric_keys) / sizeof(numeric_keys[0]))

/* A file with that value; it stands at column 1 of line 2. The path of a message about it goes to *path. */
static int parse_numeric(const struct numeric_key *key, const char *value, char path[128])
{
	char text[1024], blocks[128], open[256] = "", close[16] = "", *part, *save;

	if (!strchr(key->path, '.')) {
		snprintf(path, 128, "%s", key->path);
		snprintf(text, sizeof(text), "{\"resources\": {}, \"%s\":\n%s}", key->path, value);
		return parse(text);
	}
	snprintf(path, 128, "resources.r.%s", key->path);
	snprintf(blocks, sizeof(blocks), "%s", key->path);
	for (part = strtok_r(blocks, ".", &save); part; part = strtok_r(NULL, ".", &save)) {
		size_t used = strlen(open);

		/* What the block needs stands behind its name, in front of the key: the last of them. */
		snprintf(open + used, sizeof(open) - used, "{%s\"%s\":", used > 0 && key->with ? key->with : "", part);
		strcat(close, "}");
	}
	snprintf(text, sizeof(text), "{\"resources\": {\"r\": %s\n%s%s}}", open, value, close);
	return parse(text);
}

static bool numeric_is_right(const struct numeric_key *key, const char *value, bool number, double as_number)
{
	bool whole = number && !strpbrk(value, ".e");

	switch (key->type) {
	case WHOLE:
		return whole && as_number >= key->least && as_number <= key->most;
	case NUMBER:
	case SHARE:
		return number && as_number >= key->least && as_number <= key->most;
	case DURATION:
		return false;
	case DURATION_OR_WHOLE:
		return whole && as_number >= key->least && as_number <= key->most;
	case WHOLE_OR_SHARE:
		if (whole)
			return as_number >= key->least && as_number <= key->most;
		return number && as_number > 0 && as_number <= 1;
	}
	return false;
}

static void check_numeric(const struct numeric_key *key, const char *value, bool right)
{
	char path[128];
	int r = parse_numeric(key, value, path);

	if (right) {
		ck_assert_msg(r == 0, "%s: %s was refused: %s", path, value, first_problem());
		return;
	}
	ck_assert_msg(r == -EINVAL, "%s: %s was accepted", path, value);
	ck_assert_msg(problems.errors == 1, "%s: %s: %zu errors, the second: %s", path, value, problems.errors,
	              problems.count > 1 ? problems.items[1].text : "");
	ck_assert_msg(strcmp(problems.items[0].path, path) == 0, "%s: %s: the message is about %s", path, value, problems.items[0].path);
	ck_assert_msg(problems.items[0].line == 2 && problems.items[0].column == 1, "%s: %s: at %d:%d", path, value, problems.items[0].line,
	              problems.items[0].column);
	ck_assert_msg(strstr(problems.items[0].text, "; write ") != NULL, "%s: %s: no remedy: %s", path, value, problems.items[0].text);
}

START_TEST(every_numeric_key_refuses_wrong_types_and_ranges)
{
	static const struct {
		const char *text;
		bool number;
		double as_number;
	} values[] = {
	        {"-1", true, -1},
	        {"0", true, 0},
	        {"2147483648", true, 2147483648.0},
	        {"4294967296", true, 4294967296.0},
	        {"9223372036854775807", true, 9.3e18},
	        {"1e3", true, 1e3},
	        {"50.0", true, 50},
	        {"0.5", true, 0.5},
	        {"1e-400", true, 0},
	        {"1e308", true, 1e308},
	        {"\"50\"", false, 0},
	        {"\"\"", false, 0},
	        {"true", false, 0},
	        {"false", false, 0},
	        {"null", false, 0},
	        {"[]", false, 0},
	        {"[1]", false, 0},
	        {"{}", false, 0},
	};
	const struct numeric_key *key = &numeric_keys[_i];

	for (size_t i = 0; i < sizeof(values) / sizeof(values[0]); i++)
		check_numeric(key, values[i].text, numeric_is_right(key, values[i].text, values[i].number, values[i].as_number));
	check_numeric(key, key->good[0], true);
	check_numeric(key, key->good[1], true);
	check_numeric(key, key->below, false);
	check_numeric(key, key->above, false);
}
END_TEST

/* Where zero has no meaning it is refused, and where it has one the manual says so. */
START_TEST(E6_zero_durations_are_refused_or_documented)
{
	unsigned allowed = 0;

	for (enum key_id id = 0; id < KEYS; id++) {
		const struct key *key = &config_keys[id];
		bool duration = key->type == KEY_MILLISECONDS || key->type == KEY_NANOSECONDS;

		if (!duration)
			continue;
		ck_assert_msg((key->least == 0) == (strstr(key->text, "`\"0s\"`: ") != NULL), "%s: %s", key->name, key->text);
		allowed += key->least == 0;
	}
	ck_assert_uint_eq(allowed, 5);
}
END_TEST

/* ---- merging ---- */

START_TEST(faults_are_injected_only_where_it_is_allowed)
{
	ck_assert_uint_eq(policy_of("{}", "{}").flags & POLICY_INJECTION, 0);
	ck_assert_uint_eq(policy_of("{}", "{\"injection\": true}").flags & POLICY_INJECTION, POLICY_INJECTION);
	ck_assert_uint_eq(policy_of("{\"injection\": true}", "{}").flags & POLICY_INJECTION, POLICY_INJECTION);
	ck_assert_uint_eq(policy_of("{\"injection\": true}", "{\"injection\": false}").flags & POLICY_INJECTION, 0);
	ck_assert_int_eq(parse("{\"resources\": {\"r\": {\"injection\": \"yes\"}}}"), -EINVAL);
}
END_TEST

START_TEST(keys_are_merged_over_the_defaults)
{
	char path[512];
	const struct policy *p;
	const uint64_t all = POLICY_CONFIGURED | POLICY_BREAKER | POLICY_BUDGET | POLICY_BULKHEAD | POLICY_RETRY;

	source_path(path, sizeof(path), "tests/config/valid/merge.json");
	clean();
	ck_assert_int_eq(config_load(path, &config, &problems), 0);

	p = &config_find(&config, "inherits")->policy;
	ck_assert_uint_eq(p->flags, all);
	ck_assert_uint_eq(p->failure_rate_ppm, 400000);
	ck_assert_uint_eq(p->window_ms, 20000);
	ck_assert_uint_eq(p->min_calls, 20);
	ck_assert_uint_eq(p->attempts, 5);
	ck_assert_uint_eq(p->budget_capacity, 50 * TOKENS);
	ck_assert_uint_eq(p->budget_ratio, TOKENS / 10);
	ck_assert_uint_eq(p->limit, 10);

	p = &config_find(&config, "overrides")->policy;
	ck_assert_uint_eq(p->flags, all | POLICY_LATENCY);
	ck_assert_uint_eq(p->failure_rate_ppm, 400000);
	ck_assert_uint_eq(p->window_ms, 30000);
	ck_assert_uint_eq(p->budget_capacity, 50 * TOKENS);
	ck_assert_uint_eq(p->budget_ratio, TOKENS / 5);
	ck_assert_uint_eq(p->limit, 5);

	p = &config_find(&config, "switches_off")->policy;
	ck_assert_uint_eq(p->flags, POLICY_CONFIGURED | POLICY_RETRY);
	ck_assert_uint_eq(p->attempts, 5);

	p = &config_find(&config, "all_off")->policy;
	ck_assert_uint_eq(p->flags, POLICY_CONFIGURED | POLICY_TIMEOUT);
	ck_assert_uint_eq(p->timeout_total_ms, 3000);
	ck_assert_ptr_null(config_find(&config, "nobody"));
	ck_assert_ptr_null(config_find(&config, ""));
}
END_TEST

START_TEST(a_breaker_opens_by_the_rules_that_are_given)
{
	struct policy p = policy_of("{}", "{\"breaker\": {}}");

	ck_assert_uint_eq(p.flags & POLICY_BREAKER, POLICY_BREAKER);
	ck_assert_uint_eq(p.failure_rate_ppm, 500000);
	ck_assert_uint_eq(p.consecutive, 0);
	p = policy_of("{}", "{\"breaker\": {\"consecutive\": 5}}");
	ck_assert_uint_eq(p.failure_rate_ppm, 0);
	ck_assert_uint_eq(p.consecutive, 5);
	p = policy_of("{}", "{\"breaker\": {\"slow_call\": \"1s\", \"slow_rate\": 0.5}}");
	ck_assert_uint_eq(p.failure_rate_ppm, 0);
	ck_assert_uint_eq(p.slow_rate_ppm, 500000);
	p = policy_of("{\"breaker\": {\"failure_rate\": 0.3}}", "{\"breaker\": {\"consecutive\": 5}}");
	ck_assert_uint_eq(p.failure_rate_ppm, 300000);
	ck_assert_uint_eq(p.consecutive, 5);
}
END_TEST

START_TEST(successes_follow_probes)
{
	struct policy p = policy_of("{\"breaker\": {\"probes\": 3}}", "{}");

	ck_assert_uint_eq(p.successes, 3);
	p = policy_of("{\"breaker\": {\"probes\": 3}}", "{\"breaker\": {\"probes\": 5}}");
	ck_assert_uint_eq(p.successes, 5);
	p = policy_of("{\"breaker\": {\"successes\": 2}}", "{\"breaker\": {\"probes\": 5}}");
	ck_assert_uint_eq(p.successes, 2);
}
END_TEST

START_TEST(retries_have_a_budget_unless_somebody_says_otherwise)
{
	static const struct {
		const char *defaults, *block;
		uint64_t flags;
	} cases[] = {
	        {"{}", "{\"retry\": {}}", POLICY_RETRY | POLICY_BUDGET},
	        {"{}", "{\"retry\": {\"budget\": false}}", POLICY_RETRY},
	        {"{}", "{\"retry\": false}", 0},
	        {"{\"retry\": {\"budget\": false}}", "{}", POLICY_RETRY},
	        {"{\"retry\": {\"budget\": false}}", "{\"retry\": {}}", POLICY_RETRY},
	        {"{\"retry\": {\"budget\": false}}", "{\"retry\": {\"budget\": {}}}", POLICY_RETRY | POLICY_BUDGET},
	        {"{\"retry\": {}}", "{\"retry\": false}", 0},
	        {"{\"retry\": false}", "{\"retry\": {}}", POLICY_RETRY | POLICY_BUDGET},
	        {"{}", "{}", 0},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct policy p = policy_of(cases[i].defaults, cases[i].block);

		ck_assert_uint_eq(p.flags & (POLICY_RETRY | POLICY_BUDGET), cases[i].flags);
	}
}
END_TEST

START_TEST(a_window_is_of_time_or_of_calls)
{
	struct policy p = policy_of("{}", "{\"breaker\": {\"window\": 50}}");

	ck_assert_uint_eq(p.window_calls, 50);
	p = policy_of("{\"breaker\": {\"window\": 50}}", "{\"breaker\": {\"window\": \"30s\"}}");
	ck_assert_uint_eq(p.window_calls, 0);
	ck_assert_uint_eq(p.window_ms, 30000);
	p = policy_of("{\"breaker\": {\"window\": \"30s\"}}", "{\"breaker\": {\"window\": 16384}}");
	ck_assert_uint_eq(p.window_calls, 16384);
}
END_TEST

/* L03: what resilience4j does. */
START_TEST(L03_min_calls_above_a_window_of_calls_are_the_window)
{
	struct policy p = policy_of("{}", "{\"breaker\": {\"window\": 5, \"min_calls\": 10}}");

	ck_assert_uint_eq(p.min_calls, 5);
	p = policy_of("{}", "{\"breaker\": {\"window\": 5}}");
	ck_assert_uint_eq(p.min_calls, 5);
	p = policy_of("{}", "{\"breaker\": {\"window\": 5, \"min_calls\": 4}}");
	ck_assert_uint_eq(p.min_calls, 4);
	p = policy_of("{}", "{\"breaker\": {\"window\": \"5s\", \"min_calls\": 10}}");
	ck_assert_uint_eq(p.min_calls, 10);
}
END_TEST

START_TEST(a_limit_is_a_number_or_a_share_of_the_workers)
{
	static const struct {
		const char *defaults, *block;
		uint64_t limit, share_ppm, waiting;
	} cases[] = {
	        {"{}", "{\"bulkhead\": {\"limit\": 80}}", 80, 0, 80},
	        {"{}", "{\"bulkhead\": {\"limit\": 32768}}", 32768, 0, 16384},
	        {"{}", "{\"bulkhead\": {\"limit\": 80, \"max_waiting\": 5, \"max_wait\": \"1s\"}}", 80, 0, 5},
	        {"{}", "{\"bulkhead\": {\"limit\": 0.5}}", 1, 500000, 64},
	        {"{}", "{\"bulkhead\": {\"limit\": 1.0}}", 1, 1000000, 64},
	        {"{}", "{\"bulkhead\": {\"limit\": \"250%\"}}", 1, 2500000, 64},
	        {"{\"bulkhead\": {\"limit\": 0.5}}", "{\"bulkhead\": {\"limit\": 7}}", 7, 0, 7},
	        {"{\"bulkhead\": {\"limit\": 7}}", "{\"bulkhead\": {\"limit\": \"50%\"}}", 1, 500000, 64},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct policy p = policy_of(cases[i].defaults, cases[i].block);

		ck_assert_msg(p.limit == cases[i].limit && p.limit_share_ppm == cases[i].share_ppm && p.max_waiting == cases[i].waiting,
		              "%s %s", cases[i].defaults, cases[i].block);
	}
}
END_TEST

START_TEST(a_rate_has_a_burst_of_a_second)
{
	static const struct {
		const char *block;
		uint64_t burst;
	} cases[] = {
	        {"{\"rate\": {\"per_second\": 0.5}}", 1},
	        {"{\"rate\": {\"per_second\": 100}}", 100},
	        {"{\"rate\": {\"per_second\": 100.5}}", 101},
	        {"{\"rate\": {\"per_second\": 1e9}}", 1000000000},
	        {"{\"rate\": {\"per_second\": 100, \"burst\": 7}}", 7},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct policy p = policy_of("{}", cases[i].block);

		ck_assert_uint_eq(p.flags & POLICY_RATE, POLICY_RATE);
		ck_assert_uint_eq(p.rate_burst, cases[i].burst);
		ck_assert_uint_eq(p.rate_previous_burst, cases[i].burst);
		ck_assert_uint_eq(p.rate_previous_per_second, p.rate_per_second);
	}
}
END_TEST

/* L08, L19: who asks for the cap alone gets no tokens beside it. */
START_TEST(a_budget_is_tokens_or_a_cap_or_both)
{
	static const struct {
		const char *defaults, *budget;
		uint64_t flags;
	} cases[] = {
	        {"{}", "{}", POLICY_BUDGET},
	        {"{}", "{\"ratio\": 0.2}", POLICY_BUDGET},
	        {"{}", "{\"in_flight_floor\": 3}", POLICY_RETRY_CAP},
	        {"{}", "{\"in_flight_share\": 0.25, \"in_flight_floor\": 10}", POLICY_RETRY_CAP},
	        {"{}", "{\"in_flight_share\": 0.25, \"ratio\": 0.2}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"capacity\": 10}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"per_second\": 1}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"deposit\": \"request\"}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"cost\": 2}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"timeout_cost\": 2}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"ttl\": \"10s\"}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{}", "{\"in_flight_share\": 0.25, \"threshold\": 0.5}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{\"ratio\": 0.2}", "{\"in_flight_floor\": 3}", POLICY_RETRY_CAP | POLICY_BUDGET},
	        {"{\"in_flight_floor\": 3}", "false", 0},
	        {"{}", "{\"mode\": \"off\", \"in_flight_floor\": 3}", 0},
	        {"{}", "{\"mode\": \"shadow\", \"in_flight_floor\": 3}", POLICY_RETRY_CAP | POLICY_SHADOW_BUDGET},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		char defaults[128], block[256];

		snprintf(defaults, sizeof(defaults), "{\"retry\": {\"budget\": %s}}", cases[i].defaults);
		snprintf(block, sizeof(block), "{\"retry\": {\"budget\": %s}}", cases[i].budget);
		struct policy p = policy_of(defaults, block);
		ck_assert_msg((p.flags & (POLICY_BUDGET | POLICY_RETRY_CAP | POLICY_SHADOW_BUDGET)) == cases[i].flags, "%s %s", defaults,
		              block);
	}
}
END_TEST

START_TEST(a_timeout_costs_what_a_retry_costs_unless_it_is_said)
{
	struct policy p = policy_of("{}", "{\"retry\": {\"budget\": {\"cost\": 5}}}");

	ck_assert_uint_eq(p.budget_cost, 5 * TOKENS);
	ck_assert_uint_eq(p.budget_timeout_cost, 5 * TOKENS);
	p = policy_of("{}", "{\"retry\": {\"budget\": {\"timeout_cost\": 10}}}");
	ck_assert_uint_eq(p.budget_cost, TOKENS);
	ck_assert_uint_eq(p.budget_timeout_cost, 10 * TOKENS);
}
END_TEST

START_TEST(retries_follow_the_outcomes_that_are_named)
{
	ck_assert_uint_eq(policy_of("{}", "{\"retry\": {}}").retry_on, 1u << RESC_FAIL | 1u << RESC_TIMEOUT);
	ck_assert_uint_eq(policy_of("{}", "{\"retry\": {\"retry_on\": [\"fail\"]}}").retry_on, 1u << RESC_FAIL);
	ck_assert_uint_eq(policy_of("{}", "{\"retry\": {\"retry_on\": [\"timeout\", \"fail\"]}}").retry_on,
	                  1u << RESC_FAIL | 1u << RESC_TIMEOUT);
}
END_TEST

/* A block says it, or the resource, or the defaults; the budget follows the retries. */
START_TEST(modes_are_of_the_block_or_of_the_resource)
{
	static const struct {
		const char *defaults, *block;
		uint64_t flags;
	} cases[] = {
	        {"{}", "{\"breaker\": {\"mode\": \"enforce\"}}", POLICY_BREAKER},
	        {"{}", "{\"breaker\": {\"mode\": \"shadow\"}}", POLICY_BREAKER | POLICY_SHADOW_BREAKER},
	        {"{}", "{\"breaker\": {\"mode\": \"off\"}, \"once\": {}}", POLICY_ONCE},
	        {"{}", "{\"mode\": \"shadow\", \"breaker\": {}, \"rate\": {\"per_second\": 1, \"mode\": \"enforce\"}}",
	         POLICY_BREAKER | POLICY_SHADOW_BREAKER | POLICY_RATE},
	        {"{\"mode\": \"shadow\"}", "{\"throttle\": {}}", POLICY_THROTTLE | POLICY_SHADOW_THROTTLE},
	        {"{\"mode\": \"shadow\"}", "{\"mode\": \"enforce\", \"throttle\": {}}", POLICY_THROTTLE},
	        {"{\"mode\": \"shadow\"}", "{\"retry\": {}}", POLICY_RETRY | POLICY_BUDGET | POLICY_SHADOW_BUDGET},
	        {"{}", "{\"retry\": {\"mode\": \"shadow\"}}", POLICY_RETRY | POLICY_BUDGET | POLICY_SHADOW_BUDGET},
	        {"{}", "{\"retry\": {\"mode\": \"shadow\", \"budget\": {\"mode\": \"enforce\"}}}", POLICY_RETRY | POLICY_BUDGET},
	        {"{}", "{\"retry\": {\"mode\": \"off\"}, \"breaker\": {}}", POLICY_BREAKER},
	        {"{}", "{\"retry\": {\"budget\": {\"mode\": \"off\"}}}", POLICY_RETRY},
	        {"{\"breaker\": {\"mode\": \"off\"}}", "{\"breaker\": {}, \"retry\": {}}", POLICY_RETRY | POLICY_BUDGET},
	        {"{\"breaker\": {\"mode\": \"off\"}}", "{\"breaker\": {\"mode\": \"enforce\"}}", POLICY_BREAKER},
	        {"{}", "{\"mode\": \"shadow\", \"bulkhead\": {\"limit\": 1}, \"timeout\": {\"total\": \"1s\"}, \"once\": {}}",
	         POLICY_BULKHEAD | POLICY_SHADOW_BULKHEAD | POLICY_TIMEOUT | POLICY_SHADOW_TIMEOUT | POLICY_ONCE | POLICY_SHADOW_ONCE},
	        {"{}", "{\"rate\": {\"per_second\": 1, \"mode\": \"shadow\"}}", POLICY_RATE | POLICY_SHADOW_RATE},
	        {"{\"mode\": \"shadow\", \"breaker\": {}}", "{\"breaker\": false, \"once\": {\"mode\": \"enforce\"}}", POLICY_ONCE},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		uint64_t flags = policy_of(cases[i].defaults, cases[i].block).flags & ~(uint64_t)(POLICY_CONFIGURED | POLICY_LATENCY);

		ck_assert_msg(flags == cases[i].flags, "%s %s: %llx", cases[i].defaults, cases[i].block, (unsigned long long)flags);
	}
}
END_TEST

START_TEST(timeouts_that_are_switched_off_are_none)
{
	struct policy p = policy_of("{\"timeout\": {\"attempt\": \"1s\", \"total\": \"2s\", \"probe\": \"1s\"}}",
	                            "{\"timeout\": false, \"breaker\": {}}");

	ck_assert_uint_eq(p.timeout_attempt_ms, 0);
	ck_assert_uint_eq(p.timeout_total_ms, 0);
	ck_assert_uint_eq(p.timeout_probe_ms, 0);
}
END_TEST

/* A value that is wrong by itself is one mistake, not two. */
START_TEST(no_contradiction_is_made_up_from_a_refused_value)
{
	static const char *const blocks[] = {
	        "{\"breaker\": {\"slow_rate\": 0.5, \"slow_call\": 800}}",
	        "{\"retry\": {\"base\": \"3s\", \"cap\": 5}}",
	        "{\"timeout\": {\"attempt\": 2000, \"connect\": \"1h\"}}",
	        "{\"bulkhead\": {\"limit\": \"80\"}}",
	        "{\"bulkhead\": {\"limits\": 80}}",
	        "{\"breaker\": {\"cooldown\": \"10s\", \"cooldown_max\": 5}}",
	        "{\"braeker\": {}}",
	};

	for (size_t i = 0; i < sizeof(blocks) / sizeof(blocks[0]); i++) {
		char text[256];

		snprintf(text, sizeof(text), "{\"resources\": {\"r\": %s}}", blocks[i]);
		ck_assert_int_eq(parse(text), -EINVAL);
		ck_assert_msg(problems.count == 1, "%s: %zu problems", blocks[i], problems.count);
	}
}
END_TEST

/* ---- patterns ---- */

START_TEST(the_longest_pattern_wins)
{
	static const struct {
		const char *name, *pattern;
	} cases[] = {
	        {"shard-7", "shard-*"},
	        {"shard-", "shard-*"},
	        {"shard-eu-1", "shard-eu-*"},
	        {"shard-e", "shard-*"},
	        {"shar", "*"},
	        {"payments-2", "*"},
	        {"", "*"},
	        {"shard-eu-", "shard-eu-*"},
	};

	ck_assert_int_eq(parse("{\"resources\": {\"*\": {\"once\": {}}, \"shard-*\": {\"once\": {}}, \"payments\": {\"once\": {}},"
	                       " \"shard-eu-*\": {\"once\": {}}}}"),
	                 0);
	ck_assert_uint_eq(config.count, 1);
	ck_assert_uint_eq(config.pattern_count, 3);
	ck_assert_str_eq(config.patterns[0].name, "shard-eu-*");
	ck_assert_str_eq(config.patterns[2].name, "*");
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct config_resource *found = config_match(&config, cases[i].name);

		ck_assert_ptr_nonnull(found);
		ck_assert_str_eq(found->name, cases[i].pattern);
	}
	ck_assert_ptr_null(config_find(&config, "shard-*"));
	ck_assert_ptr_nonnull(config_find(&config, "payments"));
	ck_assert_int_eq(parse("{\"resources\": {\"shard-*\": {\"once\": {}}}}"), 0);
	ck_assert_ptr_null(config_match(&config, "payments"));
	ck_assert_ptr_null(config_match(&config, "shard"));
}
END_TEST

START_TEST(patterns_inherit_the_defaults)
{
	ck_assert_int_eq(parse("{\"defaults\": {\"breaker\": {\"cooldown\": \"7s\"}}, \"resources\": {\"*\": {}}}"), 0);
	ck_assert_uint_eq(config.patterns[0].policy.flags & POLICY_BREAKER, POLICY_BREAKER);
	ck_assert_uint_eq(config.patterns[0].policy.cooldown_ms, 7000);
}
END_TEST

/* ---- keys of the file ---- */

START_TEST(addresses_of_the_metrics_page)
{
	static const char *const good[] = {"",
	                                   "127.0.0.1:9464",
	                                   "127.0.0.1:0",
	                                   "0.0.0.0:65535",
	                                   "[::1]:9464",
	                                   "[::]:1",
	                                   "localhost:9464",
	                                   "metrics.example.org:9464",
	                                   "[2001:db8::1]:9464"};
	static const char *const bad[] = {"9464",
	                                  ":9464",
	                                  "127.0.0.1",
	                                  "127.0.0.1:",
	                                  "127.0.0.1:65536",
	                                  "127.0.0.1:99999999999999999999",
	                                  "127.0.0.1:-1",
	                                  "127.0.0.1: 80",
	                                  "127.0.0.1:80 ",
	                                  "127.0.0.256:80",
	                                  "127.1:80",
	                                  "::1:80",
	                                  "[::1:80",
	                                  "::1]:80",
	                                  "[]:80",
	                                  "[:80",
	                                  "]:80",
	                                  "[127.0.0.1]:80",
	                                  "a b:80",
	                                  "http://127.0.0.1:80",
	                                  "127.0.0.1:80/metrics",
	                                  "an-address-that-is-longer-than-all-that-are-needed.example.org:80"};
	char text[256];

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		snprintf(text, sizeof(text), "{\"metrics\": \"%s\", \"resources\": {}}", good[i]);
		ck_assert_msg(parse(text) == 0, "%s: %s", good[i], first_problem());
		ck_assert_str_eq(config.metrics, good[i]);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		snprintf(text, sizeof(text), "{\"metrics\": \"%s\", \"resources\": {}}", bad[i]);
		ck_assert_msg(parse(text) == -EINVAL, "%s was accepted", bad[i]);
		ck_assert_str_eq(problems.items[0].path, "metrics");
	}
}
END_TEST

START_TEST(no_mode_lets_others_write)
{
	char text[64];

	for (unsigned mode = 0; mode <= 07777; mode++) {
		bool good = mode == 0600 || mode == 0640 || mode == 0644 || mode == 0660 || mode == 0664;

		snprintf(text, sizeof(text), "{\"mode\": \"%04o\", \"resources\": {}}", mode);
		ck_assert_msg(parse(text) == (good ? 0 : -EINVAL), "%04o", mode);
		if (good)
			ck_assert_uint_eq(config.mode, mode);
	}
	ck_assert_int_eq(parse("{\"mode\": \"640\", \"resources\": {}}"), 0);
	ck_assert_uint_eq(config.mode, 0640);
}
END_TEST

static void write_file(const char *path, const char *text, size_t size)
{
	FILE *file = fopen(path, "we");

	ck_assert_ptr_nonnull(file);
	ck_assert_uint_eq(fwrite(text, 1, size, file), size);
	ck_assert_int_eq(fclose(file), 0);
}

static char directory[] = "/tmp/resc-config-XXXXXX";
static char file_path[64];

static void make_directory(void)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(file_path, sizeof(file_path), "%s/resc.json", directory);
}

static void remove_directory(void)
{
	clean();
	unlink(file_path);
	rmdir(file_path);
	rmdir(directory);
}

START_TEST(groups_are_looked_up_where_the_file_is_used)
{
	char text[256];
	const struct group *group = getgrgid(getegid());

	snprintf(text, sizeof(text), "{\"group\": \"no-such-group-here\", \"resources\": {\"r\": {\"breaker\": {}}}}");
	write_file(file_path, text, strlen(text));
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), -EINVAL);
	ck_assert_uint_eq(problems.errors, 1);
	ck_assert_str_eq(problems.items[0].path, "group");
	ck_assert_int_eq(problems.items[0].column, 11);
	clean();
	ck_assert_int_eq(config_check(file_path, &config, &problems), 0);
	ck_assert_uint_eq(problems.warnings, 1);
	ck_assert(problems.items[0].warning);
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(problems.count, 0);
	ck_assert_str_eq(config.group, "no-such-group-here");
	ck_assert_uint_eq(config.gid, (gid_t)-1);
	if (!group)
		return;
	snprintf(text, sizeof(text), "{\"group\": \"%s\", \"resources\": {}}", group->gr_name);
	write_file(file_path, text, strlen(text));
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	ck_assert_uint_eq(config.gid, getegid());
}
END_TEST

/* ---- files (H7) ---- */

static void is_refused(int code, const char *words)
{
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), code);
	ck_assert_uint_eq(problems.errors, 1);
	ck_assert_msg(strstr(first_problem(), words) != NULL, "\"%s\" is not in: %s", words, first_problem());
	ck_assert_int_eq(problems.items[0].line, 0);
	ck_assert_str_eq(problems.items[0].path, "");
}

START_TEST(what_is_no_file_is_refused)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd;

	is_refused(-ENOENT, "No such file");
	ck_assert_int_eq(mkdir(file_path, 0700), 0);
	is_refused(-EINVAL, "is a directory");
	ck_assert_int_eq(rmdir(file_path), 0);
	/* Nobody writes to it: this must not hang. */
	ck_assert_int_eq(mkfifo(file_path, 0600), 0);
	is_refused(-EINVAL, "is a FIFO");
	ck_assert_int_eq(unlink(file_path), 0);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	strcpy(address.sun_path, file_path);
	ck_assert_int_eq(bind(fd, (const struct sockaddr *)&address, sizeof(address)), 0);
	is_refused(-EINVAL, "is a socket");
	close(fd);
	ck_assert_int_eq(unlink(file_path), 0);
	ck_assert_int_eq(symlink("/dev/zero", file_path), 0);
	is_refused(-EINVAL, "is a device");
	ck_assert_int_eq(unlink(file_path), 0);
	ck_assert_int_eq(symlink("resc.json", file_path), 0);
	is_refused(-ELOOP, "cannot be opened");
}
END_TEST

START_TEST(an_unreadable_file_is_refused)
{
	write_file(file_path, "{}", 2);
	ck_assert_int_eq(chmod(file_path, 0), 0);
	/* In this forked test only. */
	if (geteuid() == 0)
		ck_assert_int_eq(seteuid(65534), 0);
	chmod(directory, 0755);
	clean();
	int r = config_load(file_path, &config, &problems);
	if (getuid() == 0)
		ck_assert_int_eq(seteuid(0), 0);
	ck_assert_int_eq(r, -EACCES);
	ck_assert_ptr_nonnull(strstr(first_problem(), "cannot be opened"));
}
END_TEST

START_TEST(a_file_that_is_too_large_is_refused)
{
	static const char good[] = "{\"resources\": {\"r\": {\"breaker\": {}}}}";
	char *text = malloc(CONFIG_SIZE_LIMIT + 1);

	memset(text, ' ', CONFIG_SIZE_LIMIT + 1);
	memcpy(text, good, strlen(good));
	write_file(file_path, text, CONFIG_SIZE_LIMIT);
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	write_file(file_path, text, CONFIG_SIZE_LIMIT + 1);
	is_refused(-EINVAL, "is too large");
	/* Sparse, and far larger than memory. */
	ck_assert_int_eq(truncate(file_path, INT64_C(1) << 40), 0);
	is_refused(-EINVAL, "is too large");
	free(text);
}
END_TEST

/* Rename over, written in place, a swapped link: each load reads what is there now. */
START_TEST(each_load_reads_the_file_again)
{
	static const char one[] = "{\"workers\": 100, \"resources\": {}}", two[] = "{\"workers\": 200, \"resources\": {}}";
	char other[80];

	snprintf(other, sizeof(other), "%s.new", file_path);
	write_file(file_path, one, strlen(one));
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	ck_assert_uint_eq(config.workers, 100);
	write_file(file_path, two, strlen(two));
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	ck_assert_uint_eq(config.workers, 200);
	write_file(other, one, strlen(one));
	ck_assert_int_eq(rename(other, file_path), 0);
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	ck_assert_uint_eq(config.workers, 100);
	write_file(other, two, strlen(two));
	ck_assert_int_eq(unlink(file_path), 0);
	ck_assert_int_eq(symlink(other, file_path), 0);
	clean();
	ck_assert_int_eq(config_load(file_path, &config, &problems), 0);
	ck_assert_uint_eq(config.workers, 200);
	unlink(other);
}
END_TEST

/* ---- any text ---- */

static char *load_source(const char *name, size_t *size)
{
	char path[512];
	char *text;

	source_path(path, sizeof(path), name);
	text = slurp(path, size);
	ck_assert_msg(text != NULL, "%s is missing", path);
	return text;
}

/* In a buffer of exactly that size, so that a sanitizer sees any read beyond it. */
static int parse_exactly(const char *text, size_t size)
{
	char *copy = malloc(size > 0 ? size : 1);
	int r;

	memcpy(copy, text, size);
	clean();
	r = config_parse(copy, size, &config, &problems);
	free(copy);
	ck_assert(r == 0 || r == -EINVAL);
	ck_assert((r == 0) == (problems.errors == 0));
	return r;
}

START_TEST(half_a_file_is_never_accepted)
{
	size_t size;
	char *text = load_source("tests/config/valid/example.json", &size);

	/* The file ends with a line feed, which may be missing. */
	for (size_t i = 0; i + 1 < size; i++)
		ck_assert_int_eq(parse_exactly(text, i), -EINVAL);
	ck_assert_int_eq(parse_exactly(text, size - 1), 0);
	free(text);
}
END_TEST

static uint64_t random_next(uint64_t *state)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return *state;
}

START_TEST(changed_bytes_are_survived)
{
	static const char alphabet[] = "{}[]\":,\\u0a1e.-% \n\xff\xc3";
	uint64_t state = 0x9e3779b97f4a7c15;
	size_t size;
	char *text = load_source("tests/config/valid/every_key.json", &size), *changed = malloc(size);

	for (int round = 0; round < 4000; round++) {
		memcpy(changed, text, size);
		for (uint64_t n = random_next(&state) % 4 + 1; n > 0; n--)
			changed[random_next(&state) % size] = alphabet[random_next(&state) % (sizeof(alphabet) - 1)];
		parse_exactly(changed, size);
	}
	free(changed);
	free(text);
}
END_TEST

/* The scanner of places alone, on what no parser accepted. */
START_TEST(places_survive_any_bytes)
{
	static const char alphabet[] = "{}[]\":,\\ud8a0 1\n\xff";
	uint64_t state = 88172645463325252;

	for (int round = 0; round < 20000; round++) {
		size_t size = random_next(&state) % 40;
		char *text = malloc(size > 0 ? size : 1);
		struct places places;

		for (size_t i = 0; i < size; i++)
			text[i] = alphabet[random_next(&state) % (sizeof(alphabet) - 1)];
		if (places_scan(text, size, &places) == 0)
			places_free(&places);
		free(text);
	}
}
END_TEST

START_TEST(places_count_characters_and_decode_keys)
{
	static const char text[] =
	        "{\n \"caf\xc3\xa9\": {\"\\u00e9\\ud83d\\ude00\\n\\\"\": 1,\t\"b.c\": [ {\"d\": true} ]},\r\n \"e\" : null }";
	struct places places;
	char path[64];

	ck_assert_int_eq(places_scan(text, strlen(text), &places), 0);
	ck_assert_uint_eq(places.count, 7);
	ck_assert_str_eq(places.items[1].key, "caf\xc3\xa9");
	ck_assert_int_eq(places.items[1].line, 2);
	ck_assert_int_eq(places.items[1].column, 2);
	ck_assert_int_eq(places.items[1].value_column, 10);
	ck_assert_str_eq(places.items[2].key, "\xc3\xa9\xf0\x9f\x98\x80\n\"");
	ck_assert_int_eq(places.items[2].column, 11);
	ck_assert_str_eq(places.items[3].key, "b.c");
	ck_assert_int_eq(places.items[3].kind, PLACE_ARRAY);
	places_path(&places, 3, path, sizeof(path));
	ck_assert_str_eq(path, "caf\xc3\xa9.\"b.c\"");
	ck_assert_str_eq(places.items[5].key, "d");
	places_path(&places, 5, path, sizeof(path));
	ck_assert_str_eq(path, "caf\xc3\xa9.\"b.c\"[0].d");
	ck_assert_str_eq(places.items[6].key, "e");
	ck_assert_int_eq(places.items[6].line, 3);
	ck_assert_int_eq(places.items[6].value_column, 8);
	ck_assert_uint_eq(places.items[6].length, 4);
	places_free(&places);
}
END_TEST

START_TEST(depth_is_no_danger)
{
	size_t depth = 100000;
	char *text = malloc(2 * depth);
	struct places places;

	memset(text, '[', depth);
	memset(text + depth, ']', depth);
	ck_assert_int_eq(parse_exactly(text, depth), -EINVAL);
	ck_assert_int_eq(parse_exactly(text, 2 * depth), -EINVAL);
	ck_assert_int_eq(places_scan(text, 2 * depth, &places), 0);
	ck_assert_uint_eq(places.count, depth);
	places_free(&places);
	free(text);
}
END_TEST

/* ---- many ---- */

static char *many(size_t count, const char *format)
{
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);

	fputs("{\"resources\": {", out);
	for (size_t i = 0; i < count; i++) {
		fputs(i > 0 ? ",\n" : "", out);
		fprintf(out, "\"r%zu\": %s", i, format);
	}
	fputs("}}", out);
	fclose(out);
	return text;
}

START_TEST(as_many_resources_as_a_segment_can_hold)
{
	char *text = many(RESOURCES_LIMIT, "{\"breaker\": {\"consecutive\": 5, \"cooldown\": \"10s\"}, \"bulkhead\": {\"limit\": 80}}");
	char name[32];

	ck_assert_uint_lt(strlen(text), CONFIG_SIZE_LIMIT);
	ck_assert_int_eq(parse(text), 0);
	ck_assert_uint_eq(config.count, RESOURCES_LIMIT);
	for (size_t i = 0; i < RESOURCES_LIMIT; i++) {
		snprintf(name, sizeof(name), "r%zu", i);
		ck_assert_ptr_eq(config_find(&config, name), &config.resources[i]);
	}
	free(text);
	text = many(RESOURCES_LIMIT + 1, "{\"breaker\": {}}");
	ck_assert_int_eq(parse(text), -EINVAL);
	ck_assert_uint_eq(problems.errors, 1);
	ck_assert_ptr_nonnull(strstr(first_problem(), "too many"));
	free(text);
}
END_TEST

/* A generated file with a mistake in each resource: bounded output, in bounded time, and errors are not crowded out by warnings. */
START_TEST(problems_are_bounded)
{
	char *text = many(10000, "{}"), *with_error = malloc(strlen(text) + 100);

	sprintf(with_error, "{\"workers\": 1, %s", text + 1);
	ck_assert_int_eq(parse(with_error), -EINVAL);
	ck_assert_uint_eq(problems.errors, 1);
	ck_assert_uint_eq(problems.warnings, 10000);
	ck_assert_uint_eq(problems.count, 1 + CONFIG_PROBLEMS_SHOWN + 1);
	ck_assert_str_eq(problems.items[0].path, "workers");
	ck_assert_str_eq(problems.items[problems.count - 1].text, "... and 9900 more warnings");
	free(with_error);
	free(text);
	text = many(10000, "{\"breaker\": {\"cooldwn\": 1}}");
	ck_assert_int_eq(parse(text), -EINVAL);
	ck_assert_uint_eq(problems.errors, 10000);
	ck_assert_uint_eq(problems.count, CONFIG_PROBLEMS_SHOWN + 1);
	ck_assert_int_eq(problems.items[0].line, 1);
	ck_assert_int_eq(problems.items[99].line, 100);
	ck_assert_str_eq(problems.items[100].text, "... and 9900 more errors");
	free(text);
}
END_TEST

/* ---- the locale ---- */

/* de_DE.UTF-8, made for this test where the host has the sources of locales but not this one. */
static bool use_german(void)
{
	char command[512], path[128];

	if (setlocale(LC_ALL, "de_DE.UTF-8"))
		return true;
	snprintf(path, sizeof(path), "%s/locale", directory);
	snprintf(command, sizeof(command), "mkdir %s && localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8 >/dev/null 2>&1", path, path);
	if (system(command) != 0)
		return false;
	setenv("LOCPATH", path, 1);
	return setlocale(LC_ALL, "de_DE.UTF-8") != NULL;
}

START_TEST(the_locale_has_no_say)
{
	struct policy p;
	char command[128], number[16];

	if (!use_german()) {
		fputs("test_config: no German locale here: the_locale_has_no_say was not tested\n", stderr);
		return;
	}
	snprintf(number, sizeof(number), "%.1f", 1.5);
	ck_assert_str_eq(number, "1,5");
	p = policy_of("{}", "{\"breaker\": {\"failure_rate\": 0.25, \"slow_call\": \"1.5s\", \"slow_rate\": \"12.5%\"}}");
	ck_assert_uint_eq(p.failure_rate_ppm, 250000);
	ck_assert_uint_eq(p.slow_call_ns, 1500 * MS);
	ck_assert_uint_eq(p.slow_rate_ppm, 125000);
	ck_assert_int_eq(parse("{\"resources\": {\"r\": {\"breaker\": {\"cooldown\": \"1,5s\", \"cooldown_factor\": 0.5}}}}"), -EINVAL);
	ck_assert_uint_eq(problems.errors, 2);
	ck_assert_str_eq(problems.items[1].text, "0.5 is out of range; write a number from 1 to 100");
	setlocale(LC_ALL, "C");
	snprintf(command, sizeof(command), "rm -rf %s/locale", directory);
	ck_assert_int_eq(system(command), 0);
}
END_TEST

/* ---- the manual ---- */

START_TEST(the_manual_has_the_table_of_the_program)
{
	static const char begin[] = "<!-- keys: begin -->\n", end[] = "<!-- keys: end -->";
	size_t size, table_size;
	char *page = load_source("docs/configuration.md", &size), *table = NULL, *from, *to;
	FILE *out = open_memstream(&table, &table_size);

	config_print_defaults(out);
	fclose(out);
	from = strstr(page, begin);
	to = strstr(page, end);
	ck_assert(from && to && from < to);
	*to = '\0';
	ck_assert_str_eq(from + strlen(begin), table);
	free(table);
	free(page);
}
END_TEST

/* Every block that is marked as JSON is a file that loads without a warning. */
static unsigned load_examples(const char *name)
{
	static const char begin[] = "```json\n", end[] = "```";
	size_t size;
	unsigned count = 0;
	char *page = load_source(name, &size), *at = page, *stop;

	while ((at = strstr(at, begin))) {
		at += strlen(begin);
		stop = strstr(at, end);
		ck_assert_ptr_nonnull(stop);
		clean();
		ck_assert_msg(config_parse(at, (size_t)(stop - at), &config, &problems) == 0, "%s, example %u: %s: %s", name, count,
		              problems.count ? problems.items[0].path : "", first_problem());
		ck_assert_msg(problems.warnings == 0, "%s, example %u: %s", name, count, first_problem());
		count += 1;
		at = stop + strlen(end);
	}
	free(page);
	return count;
}

START_TEST(the_examples_of_the_manual_load)
{
	ck_assert_uint_ge(load_examples("docs/configuration.md"), 1);
	ck_assert_uint_ge(load_examples("docs/coming-from.md"), 1);
}
END_TEST

int main(void)
{
	const TTest *const texts[] = {
	        valid_files_load_and_stay_in_the_ranges_of_the_library,
	        invalid_files_say_what_is_wrong_and_where,
	        every_key_is_stored,
	        defaults_are_those_of_the_library,
	        durations,
	        shares,
	        values_in_words,
	        E6_zero_durations_are_refused_or_documented,
	        faults_are_injected_only_where_it_is_allowed,
	        keys_are_merged_over_the_defaults,
	        a_breaker_opens_by_the_rules_that_are_given,
	        successes_follow_probes,
	        retries_have_a_budget_unless_somebody_says_otherwise,
	        a_window_is_of_time_or_of_calls,
	        L03_min_calls_above_a_window_of_calls_are_the_window,
	        a_limit_is_a_number_or_a_share_of_the_workers,
	        a_rate_has_a_burst_of_a_second,
	        a_budget_is_tokens_or_a_cap_or_both,
	        a_timeout_costs_what_a_retry_costs_unless_it_is_said,
	        retries_follow_the_outcomes_that_are_named,
	        modes_are_of_the_block_or_of_the_resource,
	        the_longest_pattern_wins,
	        patterns_inherit_the_defaults,
	        timeouts_that_are_switched_off_are_none,
	        no_contradiction_is_made_up_from_a_refused_value,
	        addresses_of_the_metrics_page,
	        no_mode_lets_others_write,
	        half_a_file_is_never_accepted,
	        changed_bytes_are_survived,
	        places_survive_any_bytes,
	        places_count_characters_and_decode_keys,
	        depth_is_no_danger,
	        as_many_resources_as_a_segment_can_hold,
	        problems_are_bounded,
	        the_manual_has_the_table_of_the_program,
	        the_examples_of_the_manual_load,
	};
	const TTest *const files[] = {
	        groups_are_looked_up_where_the_file_is_used, what_is_no_file_is_refused,     an_unreadable_file_is_refused,
	        a_file_that_is_too_large_is_refused,         each_load_reads_the_file_again, the_locale_has_no_say,
	};
	TCase *text = FIXTURE_CASE("text", texts, NULL, clean);

	tcase_add_loop_test(text, every_numeric_key_refuses_wrong_types_and_ranges, 0, (int)NUMERIC_KEYS);
	Suite *suite = fixture_suite("configuration", text);
	suite_add_tcase(suite, FIXTURE_CASE("files", files, make_directory, remove_directory));
	return fixture_run(suite);
}
