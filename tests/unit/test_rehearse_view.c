/* SPDX-License-Identifier: MIT */
/* The configuration of each view: the same policies, for all together or for each worker, on an instance that is the laboratory's. */
#include "view_config.h"

#include <string.h>

#include "config.h"
#include "fixture.h"

static struct scenario scenario;

static void set_up(void)
{
	static const char text[] = "{\"instance\": \"default\", \"group\": \"nobody-has-this\", \"mode\": \"0664\", \"workers\": 100,"
	                           " \"metrics\": \"127.0.0.1:9464\", \"control\": \"/run/x.sock\", \"made\": 7, \"idle\": \"1m\","
	                           " \"defaults\": {\"timeout\": {\"attempt\": \"70ms\"}},"
	                           " \"resources\": {"
	                           " \"prices\": {\"bulkhead\": {\"limit\": 10}},"
	                           " \"unused\": {\"bulkhead\": {\"limit\": 11}},"
	                           " \"shard-*\": {\"bulkhead\": {\"limit\": 12}},"
	                           " \"shard-west-*\": {\"bulkhead\": {\"limit\": 13}}}}";
	json_error_t error;

	scenario = (struct scenario){.workers = 3,
	                             .configuration = json_loads(text, 0, &error),
	                             .resources = {"prices", "shard-east-1", "shard-west-1"},
	                             .resource_count = 3};
	ck_assert_msg(scenario.configuration != NULL, "%s", error.text);
}

static void tear_down(void)
{
	json_decref(scenario.configuration);
}

/* As rescd reads it. */
static void read_view(enum view view, struct config *config)
{
	const char *problem;
	struct config_problems problems = {0};
	json_t *before = json_deep_copy(scenario.configuration);
	json_t *file = view_configuration(&scenario, view, &problem);

	ck_assert_ptr_nonnull(file);
	char *text = json_dumps(file, JSON_COMPACT);
	ck_assert_int_eq(config_parse(text, strlen(text), config, &problems), 0);
	ck_assert_uint_eq(problems.count, 0);
	ck_assert(json_equal(before, scenario.configuration));
	config_problems_free(&problems);
	free(text);
	json_decref(file);
	json_decref(before);
}

static void is_limited(const struct config *config, const char *name, uint64_t limit)
{
	const struct config_resource *resource = config_find(config, name);

	ck_assert_msg(resource != NULL, "%s", name);
	ck_assert_uint_eq(resource->policy.limit, limit);
	ck_assert_uint_eq(resource->policy.timeout_attempt_ms, 70);
}

static void is_the_laboratorys(const struct config *config)
{
	ck_assert_str_eq(config->instance, "default"); /* the command line says another one */
	ck_assert_str_eq(config->group, "");
	ck_assert_str_eq(config->metrics, "");
	ck_assert_str_eq(config->control, "");
	ck_assert_uint_eq(config->mode, 0600);
	ck_assert_uint_ge(config->workers, scenario.workers);
}

START_TEST(the_shared_view_is_the_configuration_as_it_is)
{
	struct config config;

	read_view(VIEW_SHARED, &config);
	is_the_laboratorys(&config);
	is_limited(&config, "prices", 10);
	is_limited(&config, "unused", 11);
	ck_assert_uint_eq(config.pattern_count, 2);
	ck_assert_uint_eq(config.made, 7);
	config_free(&config);
}
END_TEST

START_TEST(own_views_have_each_resource_of_the_load_once_a_worker)
{
	struct config config;

	read_view(VIEW_OWN, &config);
	is_the_laboratorys(&config);
	ck_assert_uint_eq(config.count, 9);
	ck_assert_uint_eq(config.pattern_count, 0);
	for (unsigned worker = 0; worker < 3; worker++) {
		char name[VIEW_NAME_SIZE];
		view_resource(name, "prices", VIEW_OWN, worker);
		is_limited(&config, name, 10);
		view_resource(name, "shard-east-1", VIEW_OWN, worker);
		is_limited(&config, name, 12);
		view_resource(name, "shard-west-1", VIEW_OWN, worker);
		is_limited(&config, name, 13); /* of the longest pattern, as rescd has it */
	}
	config_free(&config);
}
END_TEST

START_TEST(names_say_whose_they_are)
{
	char name[VIEW_NAME_SIZE];

	view_resource(name, "prices", VIEW_SHARED, 3);
	ck_assert_str_eq(name, "prices");
	view_resource(name, "prices", VIEW_OWN, 3);
	ck_assert_str_eq(name, "prices.3");
}
END_TEST

START_TEST(what_cannot_be_copied_says_why)
{
	const char *problem;

	strcpy(scenario.resources[1], "unknown");
	ck_assert_ptr_null(view_configuration(&scenario, VIEW_OWN, &problem));
	ck_assert_ptr_nonnull(strstr(problem, "does not have"));
	memset(scenario.resources[1], 'x', RESC_NAME_MAX);
	memcpy(scenario.resources[1], "shard-", 6);
	ck_assert_ptr_null(view_configuration(&scenario, VIEW_OWN, &problem));
	ck_assert_ptr_nonnull(strstr(problem, "too long"));
}
END_TEST

START_TEST(there_is_room_for_every_worker)
{
	struct config config;

	scenario.workers = SCENARIO_WORKERS;
	read_view(VIEW_OWN, &config);
	ck_assert_uint_gt(config.workers, SCENARIO_WORKERS);
	ck_assert_uint_eq(config.count, 3 * SCENARIO_WORKERS);
	config_free(&config);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        the_shared_view_is_the_configuration_as_it_is,
	        own_views_have_each_resource_of_the_load_once_a_worker,
	        names_say_whose_they_are,
	        what_cannot_be_copied_says_why,
	        there_is_room_for_every_worker,
	};

	return FIXTURE_RUN("rehearse_view", tests, set_up, tear_down);
}
