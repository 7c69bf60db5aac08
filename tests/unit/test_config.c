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

#include "config_place.h"
#include "config_value.h"
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

	ck_assert_int_eq(config_problems_print(&problems, name, out), 0);
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

START_TEST(valid_files_load)
{
	ck_assert_uint_gt(check_directory("tests/config/valid", true), 5);
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
	ck_assert_uint_eq(config.count, 1);
	ck_assert_str_eq(config.resources[0].name, "db.orders:5432");
	struct policy expected;

	policy_defaults(&expected);
	expected.flags = POLICY_CONFIGURED | POLICY_BREAKER | POLICY_BUDGET | POLICY_BULKHEAD | POLICY_RETRY;
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
	expected.successes = 5;
	expected.probe_timeout_ms = 2000;
	expected.attempts = 4;
	expected.backoff = BACKOFF_FIXED;
	expected.backoff_jitter = JITTER_DECORRELATED;
	expected.base_ns = 250000;
	expected.cap_ns = 1000 * MS;
	expected.budget_ratio = TOKENS / 4;
	expected.budget_capacity = 100 * TOKENS;
	expected.budget_per_second = 2500000;
	expected.budget_previous = 100 * TOKENS;
	expected.limit = 32768;
	expected.timeout_attempt_ms = 2000;
	expected.timeout_connect_ms = 200;
	expected.timeout_total_ms = 5000;
	ck_assert_mem_eq(&config.resources[0].policy, &expected, sizeof(expected));
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
}
END_TEST

/* What rescd writes must not be changed by the check that makes any bytes safe. */
START_TEST(accepted_values_are_inside_the_ranges_of_the_library)
{
	static const char *const files[] = {"limits_low", "limits_high", "every_key", "merge", "real_life"};
	const struct segment_dims dims = {.permits = PERMITS_LIMIT, .calls = CALLS_LIMIT, .waiting = WAITING_LIMIT};

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		char name[64], path[512];

		snprintf(name, sizeof(name), "tests/config/valid/%s.json", files[i]);
		source_path(path, sizeof(path), name);
		clean();
		ck_assert_int_eq(config_load(path, &config, &problems), 0);
		for (size_t k = 0; k < config.count; k++) {
			struct policy policy = config.resources[k].policy, clamped = policy;

			policy_clamp(&clamped, &dims);
			/* Without a bulkhead the limit is 0, and means nothing. */
			if ((policy.flags & POLICY_BULKHEAD) == 0)
				clamped.limit = policy.limit;
			ck_assert_msg(memcmp(&policy, &clamped, sizeof(policy)) == 0, "%s: %s", files[i], config.resources[k].name);
		}
	}
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
enum numeric { WHOLE, NUMBER, SHARE, DURATION };
struct numeric_key {
	const char *path; /* from the resource; "workers": of the file */
	enum numeric type;
	double least, most;  /* of a duration in ms */
	const char *good[2]; /* the ends of the range */
	const char *below, *above;
};
static const struct numeric_key numeric_keys[] = {
        {"workers", WHOLE, 16, 16384, {"16", "16384"}, "15", "16385"},
        {"breaker.consecutive", WHOLE, 1, 1e6, {"1", "1000000"}, "0", "1000001"},
        {"breaker.failure_rate", SHARE, 1e-6, 1, {"0.000001", "1"}, "0", "1.000001"},
        {"breaker.slow_rate", SHARE, 1e-6, 1, {"\"0.0001%\"", "\"100%\""}, "\"0%\"", "\"100.0001%\""},
        {"breaker.slow_call", DURATION, 0.001, 86400000, {"\"1us\"", "\"24h\""}, "\"0.999us\"", "\"86400.000000001s\""},
        {"breaker.window", DURATION, 100, 86400000, {"\"100ms\"", "\"24h\""}, "\"99ms\"", "\"86400001ms\""},
        {"breaker.min_calls", WHOLE, 1, 1e6, {"1", "1000000"}, "0", "1000001"},
        {"breaker.cooldown", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0.5ms\"", "\"86400.001s\""},
        {"breaker.cooldown_factor", NUMBER, 1, 100, {"1", "100"}, "0.999999", "100.000001"},
        {"breaker.cooldown_max", DURATION, 1, 86400000, {"\"5s\"", "\"24h\""}, "\"0s\"", "\"86400.001s\""},
        {"breaker.jitter", SHARE, 0, 1, {"0", "1"}, "-0.000001", "1.000001"},
        {"breaker.probes", WHOLE, 1, 64, {"1", "64"}, "0", "65"},
        {"breaker.successes", WHOLE, 1, 10000, {"1", "10000"}, "0", "10001"},
        {"breaker.probe_timeout", DURATION, 1, 3600000, {"\"1ms\"", "\"1h\""}, "\"0ms\"", "\"3600001ms\""},
        {"retry.attempts", WHOLE, 1, 100, {"1", "100"}, "0", "101"},
        {"retry.base", DURATION, 0.001, 86400000, {"\"1us\"", "\"2s\""}, "\"0us\"", "\"24.1h\""},
        {"retry.cap", DURATION, 0.001, 86400000, {"\"100ms\"", "\"24h\""}, "\"0us\"", "\"24.1h\""},
        {"retry.budget.ratio", NUMBER, 0, 1000, {"0", "1000"}, "-0.1", "1000.1"},
        {"retry.budget.capacity", WHOLE, 1, 4294967295, {"1", "4294967295"}, "0", "4294967296"},
        {"retry.budget.per_second", NUMBER, 0, 1e6, {"0", "1000000"}, "-1", "1000000.1"},
        {"bulkhead.limit", WHOLE, 1, 32768, {"1", "32768"}, "0", "32769"},
        {"timeout.attempt", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\""},
        {"timeout.connect", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\""},
        {"timeout.total", DURATION, 1, 86400000, {"\"1ms\"", "\"24h\""}, "\"0ms\"", "\"86400001ms\""},
};
#define NUMERIC_KEYS (sizeof(numeric_keys) / sizeof(numeric_keys[0]))

/* A file with that value; it stands at column 1 of line 2. The path of a message about it goes to *path. */
static int parse_numeric(const struct numeric_key *key, const char *value, char path[128])
{
	char text[1024], blocks[128], open[256] = "", close[16] = "", *part, *save;
	bool slow = strstr(key->path, "slow_rate") != NULL;

	if (strcmp(key->path, "workers") == 0) {
		snprintf(path, 128, "workers");
		snprintf(text, sizeof(text), "{\"resources\": {}, \"workers\":\n%s}", value);
		return parse(text);
	}
	snprintf(path, 128, "resources.r.%s", key->path);
	snprintf(blocks, sizeof(blocks), "%s", key->path);
	for (part = strtok_r(blocks, ".", &save); part; part = strtok_r(NULL, ".", &save)) {
		size_t used = strlen(open);

		snprintf(open + used, sizeof(open) - used, "{\"%s\":", part);
		strcat(close, "}");
	}
	if (slow)
		snprintf(open, sizeof(open), "{\"breaker\":{\"slow_call\":\"1s\",\"slow_rate\":");
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

/* ---- merging ---- */

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
	ck_assert_uint_eq(p->flags, POLICY_CONFIGURED);
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

START_TEST(timeouts_that_are_switched_off_are_none)
{
	struct policy p = policy_of("{\"timeout\": {\"attempt\": \"1s\", \"total\": \"2s\"}}", "{\"timeout\": false, \"breaker\": {}}");

	ck_assert_uint_eq(p.timeout_attempt_ms, 0);
	ck_assert_uint_eq(p.timeout_total_ms, 0);
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

START_TEST(modes_give_nothing_to_others)
{
	char text[64];

	for (unsigned mode = 0; mode <= 07777; mode++) {
		bool good = mode == 0600 || mode == 0640 || mode == 0660;

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

/* The examples of the manual: every block that is marked as JSON is a file that loads. */
START_TEST(the_examples_of_the_manual_load)
{
	static const char begin[] = "```json\n", end[] = "```";
	size_t size;
	unsigned count = 0;
	char *page = load_source("docs/configuration.md", &size), *at = page, *stop;

	while ((at = strstr(at, begin))) {
		at += strlen(begin);
		stop = strstr(at, end);
		ck_assert_ptr_nonnull(stop);
		clean();
		ck_assert_msg(config_parse(at, (size_t)(stop - at), &config, &problems) == 0, "example %u: %s: %s", count,
		              problems.count ? problems.items[0].path : "", first_problem());
		ck_assert_msg(problems.warnings == 0, "example %u: %s", count, first_problem());
		count += 1;
		at = stop + strlen(end);
	}
	ck_assert_uint_ge(count, 1);
	free(page);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("configuration");
	TCase *text = tcase_create("text"), *files = tcase_create("files");

	tcase_add_checked_fixture(text, NULL, clean);
	tcase_set_timeout(text, 60);
	tcase_add_test(text, valid_files_load);
	tcase_add_test(text, invalid_files_say_what_is_wrong_and_where);
	tcase_add_test(text, every_key_is_stored);
	tcase_add_test(text, defaults_are_those_of_the_library);
	tcase_add_test(text, accepted_values_are_inside_the_ranges_of_the_library);
	tcase_add_test(text, durations);
	tcase_add_test(text, shares);
	tcase_add_test(text, values_in_words);
	tcase_add_loop_test(text, every_numeric_key_refuses_wrong_types_and_ranges, 0, (int)NUMERIC_KEYS);
	tcase_add_test(text, keys_are_merged_over_the_defaults);
	tcase_add_test(text, a_breaker_opens_by_the_rules_that_are_given);
	tcase_add_test(text, successes_follow_probes);
	tcase_add_test(text, retries_have_a_budget_unless_somebody_says_otherwise);
	tcase_add_test(text, timeouts_that_are_switched_off_are_none);
	tcase_add_test(text, no_contradiction_is_made_up_from_a_refused_value);
	tcase_add_test(text, addresses_of_the_metrics_page);
	tcase_add_test(text, modes_give_nothing_to_others);
	tcase_add_test(text, half_a_file_is_never_accepted);
	tcase_add_test(text, changed_bytes_are_survived);
	tcase_add_test(text, places_survive_any_bytes);
	tcase_add_test(text, places_count_characters_and_decode_keys);
	tcase_add_test(text, depth_is_no_danger);
	tcase_add_test(text, as_many_resources_as_a_segment_can_hold);
	tcase_add_test(text, problems_are_bounded);
	tcase_add_test(text, the_manual_has_the_table_of_the_program);
	tcase_add_test(text, the_examples_of_the_manual_load);
	suite_add_tcase(s, text);

	tcase_add_checked_fixture(files, make_directory, remove_directory);
	tcase_set_timeout(files, 60);
	tcase_add_test(files, groups_are_looked_up_where_the_file_is_used);
	tcase_add_test(files, what_is_no_file_is_refused);
	tcase_add_test(files, an_unreadable_file_is_refused);
	tcase_add_test(files, a_file_that_is_too_large_is_refused);
	tcase_add_test(files, each_load_reads_the_file_again);
	tcase_add_test(files, the_locale_has_no_say);
	suite_add_tcase(s, files);
	return s;
}

int main(void)
{
	SRunner *runner = srunner_create(suite());

	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
