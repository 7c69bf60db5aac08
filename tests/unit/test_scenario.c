/* SPDX-License-Identifier: MIT */
/*
 * The scenario file: what is accepted means what it says; what is not is refused with its place, all of it at once. Runs from the root of
 * the source (or RESC_SOURCE says where that is): the files of tests/scenarios are the larger part of it.
 */
#include "scenario.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixture.h"
#include "patch.h"

#define MS     INT64_C(1000000)
#define SECOND (1000 * MS)

static struct scenarios scenarios;
static struct config_problems problems;

static void clean(void)
{
	scenarios_free(&scenarios);
	config_problems_free(&problems);
}

static void source_path(char *path, size_t size, const char *name)
{
	const char *root = getenv("RESC_SOURCE");

	snprintf(path, size, "%s/%s", root ? root : ".", name);
}

static int load_with(const char *name, const struct scenario_options *options)
{
	char path[1024];

	clean();
	source_path(path, sizeof(path), name);
	return scenarios_load(path, options, &scenarios, &problems);
}

static int parse_with(const char *text, const struct scenario_options *options)
{
	clean();
	return scenarios_parse(text, strlen(text), options, &scenarios, &problems);
}

static const char *first_problem(void)
{
	return problems.count > 0 ? problems.items[0].text : "no problem";
}

/* All of a file, with a NUL behind it; NULL: there is none. */
static char *slurp(const char *path)
{
	FILE *file = fopen(path, "re"), *copy;
	char *text = NULL;
	size_t size;
	int c;

	if (!file)
		return NULL;
	copy = open_memstream(&text, &size);
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

static void check_file(const char *directory, const char *name, bool good)
{
	const struct scenario_options options = {0};
	char path[1024], expect[1100], place[600];
	char *expected, *got;
	int r;

	snprintf(place, sizeof(place), "tests/scenarios/%s/%s", directory, name);
	source_path(path, sizeof(path), place);
	snprintf(expect, sizeof(expect), "%.*s.expect", (int)(strlen(path) - strlen(".json")), path);
	r = load_with(place, &options);
	ck_assert_msg(r == (good ? 0 : -EINVAL), "%s: %d: %s", name, r, first_problem());
	ck_assert_msg(good || (scenarios.count == 0 && !scenarios.items), "%s: something is left of a bad file", name);
	got = printed(name);
	expected = slurp(expect);
	ck_assert_msg(expected || good, "%s is missing", expect);
	ck_assert_msg(strcmp(expected ? expected : "", got) == 0, "%s:\nexpected\n%sgot\n%s", name, expected ? expected : "", got);
	free(expected);
	free(got);
}

static unsigned check_directory(const char *name, bool good)
{
	char path[1024], place[600];
	const struct dirent *entry;
	unsigned count = 0;
	DIR *directory;

	snprintf(place, sizeof(place), "tests/scenarios/%s", name);
	source_path(path, sizeof(path), place);
	directory = opendir(path);
	ck_assert_ptr_nonnull(directory);
	while ((entry = readdir(directory)) != NULL) {
		size_t length = strlen(entry->d_name);

		if (length < 6 || strcmp(entry->d_name + length - 5, ".json") != 0)
			continue;
		check_file(name, entry->d_name, good);
		count += 1;
	}
	closedir(directory);
	return count;
}

START_TEST(what_is_right_is_accepted)
{
	ck_assert_uint_ge(check_directory("valid", true), 3);
}
END_TEST

START_TEST(what_is_wrong_is_told_with_its_place_and_all_at_once)
{
	ck_assert_uint_ge(check_directory("invalid", false), 15);
}
END_TEST

/* Both forms of every scenario that is handed out. */
START_TEST(the_examples_have_no_problems)
{
	char path[1024], place[600];
	const struct dirent *entry;
	DIR *directory;

	source_path(path, sizeof(path), "examples/scenarios");
	directory = opendir(path);
	ck_assert_ptr_nonnull(directory);
	while ((entry = readdir(directory)) != NULL) {
		if (entry->d_name[0] == '.')
			continue;
		snprintf(place, sizeof(place), "examples/scenarios/%s", entry->d_name);
		for (int brief = 0; brief < 2; brief++) {
			int r = load_with(place, &(struct scenario_options){.brief = brief});

			ck_assert_msg(r == 0 && problems.count == 0, "%s: %d: %s", place, r, first_problem());
		}
	}
	closedir(directory);
}
END_TEST

/* ---- what it means ---- */

static const struct scenario *every_key(const struct scenario_options *options)
{
	int r = load_with("tests/scenarios/valid/every_key.json", options);

	ck_assert_msg(r == 0, "%s", first_problem());
	return scenarios.items;
}

START_TEST(the_head_is_as_it_is_written)
{
	const struct scenario *s = every_key(&(struct scenario_options){0});

	ck_assert_uint_eq(scenarios.count, 2);
	ck_assert_str_eq(s->title, "Every key that there is");
	ck_assert_str_eq(s->about, "What it says means nothing.");
	ck_assert_str_eq(s->experiment, "E0");
	ck_assert_str_eq(s->variant, "as it is");
	ck_assert_str_eq(s->variant_about, "nothing is changed");
	ck_assert_int_eq(s->duration_ns, 10 * SECOND);
	ck_assert_uint_eq(s->workers, 4);
	ck_assert_uint_eq(s->threads, 2);
	ck_assert_int_eq(s->order, ORDER_IN_TURN);
	ck_assert_uint_eq(s->backlog, 50);
	ck_assert_uint_eq(s->seed, 7);
	ck_assert(s->views[VIEW_OWN] && s->views[VIEW_SHARED]);
	/* edge twice, and prices once each time, because it is told that edge retries */
	ck_assert_uint_eq(s->slowest_attempts, 4);
}
END_TEST

START_TEST(dependencies_are_as_they_are_written)
{
	const struct dependency *d = every_key(&(struct scenario_options){0})->dependencies;

	ck_assert_str_eq(d[0].name, "prices");
	ck_assert_int_eq(d[0].kind, DEPENDENCY_SERVER);
	ck_assert_uint_eq(d[0].latency_count, 3);
	ck_assert_int_eq(d[0].latency[0].kind, SPAN_LOGNORMAL);
	ck_assert_double_eq(d[0].latency[0].mu, -2.6);
	ck_assert_double_eq(d[0].latency[0].sigma, 0.5);
	ck_assert_double_eq_tol(d[0].latency[1].share, 0.06, 1e-9);
	ck_assert_int_eq(d[0].latency[1].to_ns, 750 * MS);
	ck_assert_int_eq(d[0].latency[2].from_ns, SECOND);
	ck_assert_int_eq(d[0].cpu_ns, 2500000);
	ck_assert_uint_eq(d[0].capacity, 12);
	ck_assert_uint_eq(d[0].queue, 5);
	ck_assert_double_eq(d[0].accepts_per_second, 100.5);
	ck_assert_int_eq(d[1].latency[0].from_ns, 5 * MS);
	ck_assert_int_eq(d[2].kind, DEPENDENCY_ADDRESS);
	ck_assert_str_eq(d[2].address, "https://example.org/health");
	ck_assert_str_eq(d[3].send, "PING\r\n");
	ck_assert_str_eq(d[3].expect, "+PONG");
	ck_assert_int_eq(d[4].kind, DEPENDENCY_PROGRAM);
	ck_assert_str_eq(d[4].program[2], "{port}");
	ck_assert_str_eq(d[4].program[4], "");
	ck_assert_ptr_null(d[4].program[5]);
}
END_TEST

START_TEST(faults_are_as_they_are_written)
{
	const struct scenario *s = every_key(&(struct scenario_options){0});
	const struct fault *f = s->dependencies[0].faults;
	int64_t from, to;

	ck_assert_uint_eq(s->dependencies[0].fault_count, 6);
	ck_assert_int_eq(f[0].from_ns, 2 * SECOND);
	ck_assert_int_eq(f[0].to_ns, 4 * SECOND);
	ck_assert_uint_eq(f[0].tries, 2);
	ck_assert_double_eq(f[0].share, 0.05);
	ck_assert_int_eq(f[1].to_ns, SCENARIO_FOREVER);
	ck_assert_int_eq(f[1].latency_ns, 800 * MS);
	ck_assert_int_eq(f[1].retry_after_ms, -1);
	ck_assert_uint_eq(f[2].from_request, 10);
	ck_assert_uint_eq(f[2].to_request, 24);
	ck_assert_int_eq(f[2].retry_after_ms, 2000);
	ck_assert_uint_eq(f[3].from_request, 1);
	ck_assert_uint_eq(f[5].capacity, 2);
	ck_assert_str_eq(fault_name(f[4].kind), "refuse");

	/* [from, to); by number it has no time; flapping: down first, then up */
	ck_assert(!fault_is_on(&f[0], 2 * SECOND - 1) && fault_is_on(&f[0], 2 * SECOND));
	ck_assert(fault_is_on(&f[0], 4 * SECOND - 1) && !fault_is_on(&f[0], 4 * SECOND));
	ck_assert(!fault_is_on(&f[2], SECOND));
	ck_assert(fault_is_on(&f[1], SECOND) && !fault_is_on(&f[1], 1500 * MS) && fault_is_on(&f[1], 2500 * MS));
	ck_assert(scenario_fault_time(s, &from, &to));
	ck_assert_int_eq(from, 0);
	ck_assert_int_eq(to, 10 * SECOND);
}
END_TEST

START_TEST(loads_are_as_they_are_written)
{
	const struct scenario *s = every_key(&(struct scenario_options){0});
	const struct load *l = s->loads;

	ck_assert_uint_eq(s->load_count, 8);
	ck_assert_uint_eq(l[0].chain_count, 2);
	ck_assert_str_eq(s->resources[l[0].chain[0]], "edge");
	ck_assert_str_eq(s->resources[l[0].chain[1]], "prices");
	ck_assert_int_eq(l[0].dependency, 0);
	ck_assert_int_eq(l[0].arrivals, ARRIVALS_POISSON);
	ck_assert_uint_eq(l[0].rate_count, 3);
	ck_assert_double_eq(l[0].rates[2], 20.5);
	ck_assert_int_eq(l[0].from_ns, SECOND);
	ck_assert_int_eq(l[0].to_ns, 9 * SECOND);
	ck_assert_int_eq(l[0].priority, RESC_CRITICAL);
	ck_assert_uint_eq(l[0].cost, 2);
	ck_assert_int_eq(l[0].deadline_ns, SECOND);
	ck_assert_int_eq(l[0].patience_ns, 2 * SECOND);
	ck_assert_str_eq(l[0].fallback, "stale");
	ck_assert_int_eq(l[0].keyed, KEYED_AFTER);
	ck_assert_ptr_null(l[0].key);
	ck_assert(l[0].retries && l[0].retried_upstream);

	ck_assert_uint_eq(l[1].at_count, 3);
	ck_assert_int_eq(l[1].at[2], 500 * MS);
	ck_assert_int_eq(l[1].priority, RESC_LOW);
	ck_assert(!l[1].retries);
	ck_assert_int_eq(l[1].dependency, 1);
	ck_assert_int_eq(l[2].at[1], 5 * SECOND);
	ck_assert_int_eq(l[2].keyed, KEYED_BEFORE);
	ck_assert_str_eq(l[2].key, "order-1");
	ck_assert_int_eq(l[3].at[3], 2150 * MS);
	ck_assert_int_eq(l[4].dependency, -1);
	ck_assert_int_eq(l[4].work_ns, 20 * MS);
	ck_assert_int_eq(l[4].to_ns, 10 * SECOND);
}
END_TEST

START_TEST(expectations_are_as_they_are_written)
{
	const struct expectation *e;

	every_key(&(struct scenario_options){0});
	e = scenarios.expectations;
	ck_assert_uint_eq(scenarios.expectation_count, 5);
	ck_assert_str_eq(e[0].what.figure, "served");
	ck_assert_str_eq(e[0].what.of, "users");
	ck_assert_str_eq(e[0].what.variant, "");
	ck_assert_int_eq(e[0].what.view, -1);
	ck_assert_int_eq(e[0].what.to_ns, SCENARIO_FOREVER);
	ck_assert_int_eq(e[0].relation, IS_AT_LEAST);
	ck_assert_str_eq(e[0].why, "it is so");
	ck_assert(!e[0].has_published);
	ck_assert_int_eq(e[1].what.view, VIEW_OWN);
	ck_assert_double_eq_tol(e[1].value, 0.49, 1e-9);
	ck_assert_double_eq_tol(e[1].tolerance, 0.02, 1e-9);
	ck_assert(e[1].has_published);
	ck_assert_double_eq(e[1].published, 0.5);
	/* of the published value, and a tenth of it */
	ck_assert_double_eq(e[2].value, 1522);
	ck_assert_double_eq_tol(e[2].tolerance, 152.2, 1e-9);
	ck_assert_uint_eq(e[2].what.nth, 2);
	ck_assert_int_eq(e[3].what.width_ns, 10 * MS);
	ck_assert(e[4].relative && e[4].to.view == VIEW_SHARED);
	ck_assert_str_eq(e[4].to.variant, "as it is");
	ck_assert_uint_eq(scenarios.comparison_count, 1);
	ck_assert(scenarios.comparisons[0].less_is_better);
	ck_assert(scenarios.game_day.given);
	ck_assert_uint_eq(scenarios.game_day.steady_count, 1);
	ck_assert_double_eq(scenarios.game_day.answers[QUESTION_PROTECTED][0].value, 1500);
}
END_TEST

/* ---- patches ---- */

START_TEST(a_variant_is_the_file_with_its_changes)
{
	const struct scenario *s = every_key(&(struct scenario_options){0}) + 1;

	ck_assert_str_eq(s->variant, "without a breaker");
	ck_assert_uint_eq(s->workers, 8);
	ck_assert_uint_eq(s->backlog, UINT32_MAX);
	ck_assert_int_eq(s->duration_ns, 11 * SECOND);
	ck_assert(!s->views[VIEW_OWN] && s->views[VIEW_SHARED]);
	ck_assert_uint_eq(s->load_count, 7);
	ck_assert_uint_eq(s->dependencies[0].capacity, 10);
	ck_assert_uint_eq(s->dependencies[0].queue, 5);
	ck_assert(json_is_false(json_object_get(json_object_get(json_object_get(s->configuration, "resources"), "prices"), "breaker")));
	/* and the others are not changed by it */
	ck_assert(json_is_object(
	        json_object_get(json_object_get(json_object_get(scenarios.items[0].configuration, "resources"), "prices"), "breaker")));
}
END_TEST

/* The examples of RFC 7396, appendix A. */
static const struct {
	const char *target, *patch, *merged;
} merges[] = {
        {"{\"a\":\"b\"}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"b\":\"c\"}", "{\"a\":\"b\",\"b\":\"c\"}"},
        {"{\"a\":\"b\"}", "{\"a\":null}", "{}"},
        {"{\"a\":\"b\",\"b\":\"c\"}", "{\"a\":null}", "{\"b\":\"c\"}"},
        {"{\"a\":[\"b\"]}", "{\"a\":\"c\"}", "{\"a\":\"c\"}"},
        {"{\"a\":\"c\"}", "{\"a\":[\"b\"]}", "{\"a\":[\"b\"]}"},
        {"{\"a\":{\"b\":\"c\"}}", "{\"a\":{\"b\":\"d\",\"c\":null}}", "{\"a\":{\"b\":\"d\"}}"},
        {"{\"a\":[{\"b\":\"c\"}]}", "{\"a\":[1]}", "{\"a\":[1]}"},
        {"[\"a\",\"b\"]", "[\"c\",\"d\"]", "[\"c\",\"d\"]"},
        {"{\"a\":\"b\"}", "[\"c\"]", "[\"c\"]"},
        {"{\"a\":\"foo\"}", "null", "null"},
        {"{\"a\":\"foo\"}", "\"bar\"", "\"bar\""},
        {"{\"e\":null}", "{\"a\":1}", "{\"e\":null,\"a\":1}"},
        {"[1,2]", "{\"a\":\"b\",\"c\":null}", "{\"a\":\"b\"}"},
        {"{}", "{\"a\":{\"bb\":{\"ccc\":null}}}", "{\"a\":{\"bb\":{}}}"},
};

static void make_source(const char *text, struct source *source)
{
	*source = (struct source){.root = json_loads(text, JSON_DECODE_ANY, NULL)};
	ck_assert_ptr_nonnull(source->root);
	ck_assert_int_eq(places_scan(text, strlen(text), &source->places), 0);
}

START_TEST(a_patch_is_merged_as_the_rfc_says)
{
	struct source target, patch;
	struct nodes nodes = {0};
	json_t *merged;
	char *text;

	make_source(merges[_i].target, &target);
	make_source(merges[_i].patch, &patch);
	merged = node_json(patch_apply(&nodes, node_tree(&nodes, &target), node_tree(&nodes, &patch), NULL));
	text = json_dumps(merged, JSON_COMPACT | JSON_ENCODE_ANY);
	ck_assert_str_eq(text, merges[_i].merged);
	free(text);
	json_decref(merged);
	nodes_free(&nodes);
	json_decref(target.root);
	json_decref(patch.root);
	places_free(&target.places);
	places_free(&patch.places);
}
END_TEST

START_TEST(the_short_form_is_asked_for)
{
	every_key(&(struct scenario_options){.brief = true});
	ck_assert_uint_eq(scenarios.count, 1);
	ck_assert_str_eq(scenarios.items[0].variant, "as it is");
}
END_TEST

/* ---- the command line ---- */

START_TEST(one_variant_other_workers_and_another_view_can_be_asked_for)
{
	const struct scenario *s =
	        every_key(&(struct scenario_options){.variant = "without a breaker", .workers = 3, .views = 1 << VIEW_OWN});

	ck_assert_uint_eq(scenarios.count, 1);
	ck_assert_str_eq(s->variant, "without a breaker");
	ck_assert_uint_eq(s->workers, 3);
	ck_assert(s->views[VIEW_OWN] && !s->views[VIEW_SHARED]);
	/* what is expected of the others stays, for who judges knows what was played */
	ck_assert_uint_eq(scenarios.expectation_count, 5);
}
END_TEST

START_TEST(a_variant_that_is_not_there_is_an_error)
{
	ck_assert_int_eq(load_with("tests/scenarios/valid/every_key.json", &(struct scenario_options){.variant = "without breaker"}),
	                 -EINVAL);
	ck_assert_str_eq(first_problem(), "there is no variant \"without breaker\"; did you mean \"without a breaker\"?");
	ck_assert_int_eq(load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.variant = "other"}), -EINVAL);
	ck_assert_str_eq(first_problem(), "there is no variant \"other\"; there are none");
	ck_assert_int_eq(load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.workers = 257}), -EINVAL);
	ck_assert_str_eq(first_problem(), "257 workers are too many; there can be 256");
}
END_TEST

static void write_file(char path[32], const char *text)
{
	int fd;

	snprintf(path, 32, "/tmp/resc-scenario-XXXXXX");
	fd = mkostemp(path, O_CLOEXEC);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	close(fd);
}

START_TEST(a_configuration_of_ones_own_takes_the_place_of_the_scenarios)
{
	char path[32];
	int r;

	write_file(path, "{\"instance\": \"mine\", \"workers\": 16, \"resources\": {\"*\": {\"retry\": {\"attempts\": 4}}}}");
	r = load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.config = path});
	unlink(path);
	ck_assert_msg(r == 0, "%s", first_problem());
	ck_assert_uint_eq(scenarios.items[0].slowest_attempts, 4);
	/* what is the lab's own is passed over */
	ck_assert_uint_eq(json_object_size(scenarios.items[0].configuration), 1);
}
END_TEST

START_TEST(problems_of_a_configuration_of_ones_own_name_its_file_and_line)
{
	char path[32], expected[128];
	int r;

	write_file(path, "{\n \"resources\": {\"prices\": {\"braker\": {}}}}");
	r = load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.config = path});
	ck_assert_int_eq(r, -EINVAL);
	snprintf(expected, sizeof(expected), "%s:2:27: resources.prices.braker", path);
	ck_assert_str_eq(problems.items[0].path, expected);
	ck_assert_str_eq(first_problem(), "unknown key; did you mean \"breaker\"?");
	unlink(path);

	write_file(path, "{\"resources\": {\"price\": {\"latency\": false}}}");
	r = load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.config = path});
	unlink(path);
	ck_assert_int_eq(r, -EINVAL);
	ck_assert_str_eq(problems.items[0].path, "load.users.resource");
	snprintf(expected, sizeof(expected), "%s has no resource of that name; did you mean \"price\"?", path);
	ck_assert_str_eq(first_problem(), expected);

	ck_assert_int_lt(load_with("tests/scenarios/valid/least.json", &(struct scenario_options){.config = "/nonexistent"}), 0);
	ck_assert_str_eq(problems.items[0].path, "/nonexistent");
}
END_TEST

/* Over a configuration that was written for something else a variant's null need not find what it removes. */
START_TEST(a_variant_goes_over_a_configuration_of_ones_own)
{
	static const char scenario[] =
	        "{\"title\": \"x\", \"duration\": \"1s\", \"load\": {\"users\": {\"resource\": \"prices\", \"work\": \"1ms\", \"rate\": "
	        "5}},"
	        "\"variants\": {\"a\": {}, \"b\": {\"change\": {\"configuration\": {\"resources\": {\"prices\": {\"breaker\": null}}}}}}}";
	char path[32];
	int r;

	write_file(path, "{\"resources\": {\"prices\": {\"bulkhead\": {\"limit\": 5}}}}");
	r = parse_with(scenario, &(struct scenario_options){.config = path});
	unlink(path);
	ck_assert_msg(r == 0, "%s", first_problem());
	ck_assert_int_eq(parse_with(scenario, &(struct scenario_options){0}), -EINVAL);
}
END_TEST

/* ---- the manual ---- */

static void compare_page(void (*print)(FILE *out), const char *begin, const char *end)
{
	char path[1024];
	char *page, *table = NULL, *found;
	size_t size;
	FILE *out = open_memstream(&table, &size);

	print(out);
	fclose(out);
	source_path(path, sizeof(path), "docs/scenarios.md");
	page = slurp(path);
	ck_assert_ptr_nonnull(page);
	found = strstr(page, begin);
	ck_assert_ptr_nonnull(found);
	found += strlen(begin);
	/* Line by line: the whole is too long for a message. */
	for (const char *line = table; *line; line += strcspn(line, "\n") + 1, found += strcspn(found, "\n") + 1)
		ck_assert_msg(strncmp(found, line, strcspn(line, "\n") + 1) == 0,
		              "docs/scenarios.md does not have this line at its place: %.*s", (int)strcspn(line, "\n"), line);
	ck_assert_msg(strncmp(found, end, strlen(end)) == 0, "docs/scenarios.md has more than the program prints");
	free(table);
	free(page);
}

START_TEST(the_page_has_the_keys_and_figures_of_the_program)
{
	compare_page(scenario_print_keys, "<!-- keys: begin -->\n", "<!-- keys: end -->");
	compare_page(scenario_print_figures, "<!-- figures: begin -->\n", "<!-- figures: end -->");
}
END_TEST

/* The first example of the page, as it stands. */
START_TEST(the_example_of_the_page_is_accepted)
{
	char path[1024], *page, *begin, *end;
	int r;

	source_path(path, sizeof(path), "docs/scenarios.md");
	page = slurp(path);
	ck_assert_ptr_nonnull(page);
	begin = strstr(page, "```json\n") + strlen("```json\n");
	end = strstr(begin, "```");
	*end = '\0';
	r = parse_with(begin, &(struct scenario_options){0});
	ck_assert_msg(r == 0 && problems.count == 0, "%s", first_problem());
	free(page);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        what_is_right_is_accepted,
	        what_is_wrong_is_told_with_its_place_and_all_at_once,
	        the_examples_have_no_problems,
	        the_head_is_as_it_is_written,
	        dependencies_are_as_they_are_written,
	        faults_are_as_they_are_written,
	        loads_are_as_they_are_written,
	        expectations_are_as_they_are_written,
	        a_variant_is_the_file_with_its_changes,
	        the_short_form_is_asked_for,
	        one_variant_other_workers_and_another_view_can_be_asked_for,
	        a_variant_that_is_not_there_is_an_error,
	        a_configuration_of_ones_own_takes_the_place_of_the_scenarios,
	        problems_of_a_configuration_of_ones_own_name_its_file_and_line,
	        a_variant_goes_over_a_configuration_of_ones_own,
	        the_page_has_the_keys_and_figures_of_the_program,
	        the_example_of_the_page_is_accepted,
	};
	TCase *tcase = FIXTURE_CASE("scenarios", tests, NULL, clean);

	tcase_add_loop_test(tcase, a_patch_is_merged_as_the_rfc_says, 0, (int)(sizeof(merges) / sizeof(merges[0])));
	return fixture_run(fixture_suite("scenarios", tcase));
}
