/* SPDX-License-Identifier: MIT */
/* Resources made from patterns, as rescd makes, keeps and retires them. Here the questions are put by hand; see test_request for workers.
 */
#include "made.h"

#include <errno.h>

#include "apply.h"
#include "named.h"
#include "request.h"

#define HOUR_MS UINT64_C(3600000)

static struct config config;
static struct config_resource configured, pattern;
static struct loop loop;
static struct instance instance;
static struct made made;

static void fill(struct config_resource *resource, const char *name)
{
	snprintf(resource->name, sizeof resource->name, "%s", name);
	policy_private(&resource->policy);
}

static void at(uint64_t ms)
{
	fixture_store(&instance.map.live->clock_ns, instance.map.created_ns + ms * 1000000);
}

static void set_up(void)
{
	static uint32_t index;
	struct resc_error err = {0, ""};

	named_quiet();
	fill(&configured, "payments");
	fill(&pattern, "shard-*");
	config = (struct config){.gid = (gid_t)-1, .mode = 0600, .workers = 16, .made = 3, .idle_ms = 60000};
	config.count = config.pattern_count = 1;
	config.resources = &configured;
	config.patterns = &pattern;
	config.index = &index;
	ck_assert_int_eq(loop_open(&loop), 0);
	instance = (struct instance){.group = (gid_t)-1, .mode = 0600};
	named_instance(instance.name, "made");
	const struct instance_plan plan = {apply_dims(&config), apply_fresh, &config};
	ck_assert_msg(instance_open(&instance, &loop, &plan, &err) == 0, "%s", err.text);
	made = (struct made){.instance = &instance, .config = &config};
	at(1000);
}

static void tear_down(void)
{
	made_free(&made);
	unlink(instance.path);
	instance_close(&instance, false);
	loop_close(&loop);
}

/* Puts the question into a place of that segment, as request_ask leaves it, and takes the answer out. */
static int ask_in(const struct map *map, const char *name)
{
	struct request *request = &map->live->requests[3];

	for (size_t i = 0; i < SEGMENT_NAME_SIZE; i++)
		atomic_store_explicit(&request->name[i], i < strlen(name) ? name[i] : '\0', memory_order_relaxed);
	fixture_store(&request->state, UINT64_C(7) << 32 | 2);
	made_answer(&made);
	uint64_t w = fixture_load(&request->state);
	ck_assert_uint_eq(w >> 32, 7);
	ck_assert_uint_eq(w & 0xff, 3);
	fixture_store(&request->state, 0);
	return -(int)(w >> 8 & 0xffffff);
}

static int ask(const char *name)
{
	return ask_in(&instance.map, name);
}

static bool is_there(const char *name)
{
	return policy_find(&instance.map, name) >= 0;
}

static struct state *state_of(const char *name)
{
	int index = policy_find(&instance.map, name);

	ck_assert_int_ge(index, 0);
	return map_state(&instance.map, (uint32_t)index);
}

/* As a call that was admitted and has ended. */
static void call(const char *name)
{
	struct state *state = state_of(name);

	atomic_fetch_add_explicit(&map_shard(&instance.map, state, instance.map.dims.shards - 1)->counters[COUNTER_admitted], 1,
	                          memory_order_relaxed);
}

static void turn_at(uint64_t ms)
{
	at(ms);
	made_tick(&made);
}

/* ---- room ---- */

START_TEST(F10_the_one_too_many_is_refused_and_counted)
{
	ck_assert_int_eq(ask("shard-1"), 0);
	ck_assert_int_eq(ask("shard-2"), 0);
	ck_assert_int_eq(ask("shard-3"), 0);
	ck_assert_int_eq(ask("shard-4"), -ENOSPC);
	ck_assert_int_eq(ask("shard-4"), -ENOSPC);
	ck_assert_uint_eq(fixture_load(&instance.map.live->lookups_refused), 2);
	ck_assert_int_eq(ask("elsewhere"), -ENOENT);
	ck_assert_int_eq(ask("payments"), 0);
	ck_assert_int_eq(ask("shard-2"), 0);
	ck_assert_uint_eq(fixture_load(&instance.map.live->lookups_refused), 2);
	ck_assert(is_there("shard-1") && is_there("shard-2") && is_there("shard-3") && !is_there("shard-4"));
}
END_TEST

START_TEST(F10_the_longest_idle_makes_room_after_a_second)
{
	ck_assert_int_eq(ask("shard-1"), 0);
	turn_at(2000);
	ck_assert_int_eq(ask("shard-2"), 0);
	turn_at(4000);
	ck_assert_int_eq(ask("shard-3"), 0);
	call("shard-1");
	turn_at(5000);
	/* Now 2 is the oldest: 1 was called. */
	ck_assert_int_eq(ask("shard-4"), 0);
	ck_assert(is_there("shard-1") && !is_there("shard-2") && is_there("shard-3"));
	/* 3 is a second old, and was called just now, though nobody has looked since. */
	call("shard-3");
	ck_assert_int_eq(ask("shard-5"), -ENOSPC);
	at(5999);
	ck_assert_int_eq(ask("shard-5"), -ENOSPC);
	at(6000);
	ck_assert_int_eq(ask("shard-5"), 0);
	ck_assert(!is_there("shard-1") && is_there("shard-3") && is_there("shard-4"));
}
END_TEST

START_TEST(F10_fewer_may_be_made_from_now_on)
{
	ck_assert_int_eq(ask("shard-1"), 0);
	ck_assert_int_eq(ask("shard-2"), 0);
	ck_assert_int_eq(ask("shard-3"), 0);
	config.made = 1;
	turn_at(3000);
	ck_assert(is_there("shard-1") && is_there("shard-2") && is_there("shard-3")); /* nobody is thrown out for it */
	ck_assert_int_eq(ask("shard-4"), 0);
	ck_assert(!is_there("shard-1") && !is_there("shard-2") && !is_there("shard-3"));
}
END_TEST

START_TEST(F10_the_longest_idle_goes_first_also_behind_very_many_who_were_called_since)
{
	struct resc_error err = {0, ""};
	char name[SEGMENT_NAME_SIZE];

	config.made = 300;
	json_t *report = json_object();
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	json_decref(report);
	/* The youngest stands first. */
	for (unsigned i = 300; i > 0; i--) {
		snprintf(name, sizeof name, "shard-%u", i);
		at(1000 + (300 - i) * 10);
		ck_assert_int_eq(ask(name), 0);
	}
	/* The 200 oldest are called; nobody has looked since. */
	for (unsigned i = 101; i <= 300; i++) {
		snprintf(name, sizeof name, "shard-%u", i);
		call(name);
	}
	at(10000);
	ck_assert_int_eq(ask("shard-x"), 0);
	ck_assert(!is_there("shard-100") && is_there("shard-99") && is_there("shard-101") && is_there("shard-1") && is_there("shard-300"));
	/* Two more than may be: they and the place for the new one. */
	config.made = 298;
	ck_assert_int_eq(ask("shard-y"), 0);
	ck_assert(!is_there("shard-99") && !is_there("shard-98") && !is_there("shard-97") && is_there("shard-96"));
}
END_TEST

/* ---- idle ---- */

START_TEST(who_is_idle_for_that_long_is_retired_and_the_configured_never)
{
	ck_assert_int_eq(ask("shard-1"), 0);
	ck_assert_int_eq(ask("shard-2"), 0);
	turn_at(30000);
	call("shard-2");
	turn_at(60999);
	ck_assert(is_there("shard-1"));
	turn_at(62000);
	ck_assert(!is_there("shard-1") && is_there("shard-2"));
	turn_at(60999 + 60000);
	ck_assert(!is_there("shard-2") && is_there("payments"));
	turn_at(1000 * HOUR_MS);
	ck_assert(is_there("payments"));
}
END_TEST

START_TEST(without_a_time_the_idle_stay_until_there_is_no_room)
{
	config.idle_ms = 0;
	ck_assert_int_eq(ask("shard-1"), 0);
	turn_at(100 * HOUR_MS);
	ck_assert(is_there("shard-1"));
}
END_TEST

/* What keeps a resource that nobody calls. Each is put into its state by hand. */
static void hold_permit(struct state *state)
{
	fixture_store(map_permit(&instance.map, state, 5), permit_make(7, 1));
}
static void take_probe(struct state *state)
{
	fixture_store(&state->probes[3], probe_make(7, 1, 1000));
}
static void override(struct state *state)
{
	fixture_store(&state->override, override_make(WORD_LIVE, OVERRIDE_CLOSED, 1, 0));
}
static void open_for_long(struct state *state)
{
	fixture_store(&state->breaker, breaker_make(TAG_OPEN, 0, 1, 10 * HOUR_MS));
}
static void wait_for_permit(struct state *state)
{
	fixture_store(map_waiting(&instance.map, state), permit_make(7, 1));
}
static void owe(struct state *state)
{
	uint64_t w = fixture_load(&state->limit);

	fixture_store(&state->limit, limit_make(limit_target(w), limit_effective(w), 1, limit_version(w)));
}

static void (*const keepers[])(struct state *) = {hold_permit, take_probe, override, open_for_long, wait_for_permit, owe};

START_TEST(F10_who_is_not_at_rest_is_not_retired_however_long_nobody_calls)
{
	config.made = 1;
	ck_assert_int_eq(ask("shard-1"), 0);
	keepers[_i](state_of("shard-1"));
	turn_at(5 * HOUR_MS);
	turn_at(6 * HOUR_MS);
	ck_assert(is_there("shard-1"));
	ck_assert_int_eq(ask("shard-2"), -ENOSPC);
}
END_TEST

START_TEST(F10_an_open_breaker_whose_probe_nobody_wants_is_forgotten_after_an_hour)
{
	config.made = 1;
	ck_assert_int_eq(ask("shard-1"), 0);
	fixture_store(&state_of("shard-1")->breaker, breaker_make(TAG_OPEN, 0, 1, 10000));
	turn_at(10000 + HOUR_MS);
	ck_assert(is_there("shard-1"));
	ck_assert_int_eq(ask("shard-2"), -ENOSPC);
	turn_at(10000 + HOUR_MS + 1000);
	ck_assert(!is_there("shard-1"));
}
END_TEST

START_TEST(F10_a_trial_that_nobody_goes_on_with_is_forgotten_after_an_hour)
{
	config.made = 1;
	ck_assert_int_eq(ask("shard-1"), 0);
	turn_at(2000);
	fixture_store(&state_of("shard-1")->breaker, breaker_make(TAG_HALF_OPEN, 0, 1, 2000));
	turn_at(HOUR_MS);
	call("shard-1"); /* whose probe was cancelled */
	turn_at(HOUR_MS + 1000);
	turn_at(2 * HOUR_MS + 1000);
	ck_assert(is_there("shard-1"));
	ck_assert_int_eq(ask("shard-2"), -ENOSPC);
	turn_at(2 * HOUR_MS + 2000);
	ck_assert(!is_there("shard-1"));
	ck_assert_int_eq(ask("shard-2"), 0);
}
END_TEST

/* ---- the table ---- */

/* Makes names until the table is used up and the next one replaces the segment. Returns how many. */
static unsigned use_up(const char *prefix, uint64_t *ms)
{
	uint64_t generation = instance.map.generation;
	char name[SEGMENT_NAME_SIZE];
	unsigned n = 0;

	while (instance.map.generation == generation && n < 1000) {
		snprintf(name, sizeof name, "shard-%s-%u", prefix, n++);
		at(*ms += 1000);
		ck_assert_int_eq(ask(name), 0);
		ck_assert(is_there(name));
	}
	return n;
}

START_TEST(a_table_that_the_retired_have_filled_is_replaced_and_grows)
{
	uint64_t ms = 1000;

	ck_assert_int_eq(ask("shard-open"), 0);
	fixture_store(&state_of("shard-open")->breaker, breaker_make(TAG_OPEN, 0, 9, 10 * HOUR_MS));
	ck_assert_int_eq(ask("shard-1"), 0);
	fixture_store(&instance.map.live->lookups_refused, 5);
	ck_assert_uint_eq(instance.map.dims.resources, 16);
	ck_assert_uint_eq(use_up("a", &ms), 14); /* 16 records, 3 of them in use at the beginning */
	ck_assert_uint_eq(instance.map.dims.resources, 16);
	ck_assert_int_eq(breaker_tag(fixture_load(&state_of("shard-open")->breaker)), TAG_OPEN);
	ck_assert(is_there("payments"));
	ck_assert_uint_eq(fixture_load(&instance.map.live->lookups_refused), 5);
	ck_assert_uint_eq(fixture_load(&instance.map.daemon->patterns), 1);

	named_sleep_ms(1050); /* not more often than each second */
	ck_assert_uint_ge(use_up("b", &ms), 10);
	ck_assert_uint_eq(instance.map.dims.resources, 32);
}
END_TEST

START_TEST(the_table_is_not_replaced_twice_in_a_second)
{
	char name[SEGMENT_NAME_SIZE];
	uint64_t ms = 1000;
	int r = 0;

	use_up("a", &ms);
	uint64_t generation = instance.map.generation;
	for (unsigned i = 0; i < 32 && r == 0; i++) {
		snprintf(name, sizeof name, "shard-b-%u", i);
		at(ms += 1000);
		r = ask(name);
	}
	ck_assert_int_eq(r, -ENOSPC);
	ck_assert_uint_eq(instance.map.generation, generation);
}
END_TEST

START_TEST(a_refusal_names_what_is_in_the_way)
{
	char name[SEGMENT_NAME_SIZE], told[4096];
	FILE *log = tmpfile();
	uint64_t ms = 1000;
	int r = 0;

	ck_assert_ptr_nonnull(log);
	use_up("a", &ms);
	ck_assert_int_ge(dup2(fileno(log), STDERR_FILENO), 0);
	for (unsigned i = 0; i < 32 && r == 0; i++) {
		snprintf(name, sizeof name, "shard-b-%u", i);
		at(ms += 1000);
		r = ask(name);
	}
	ck_assert_int_eq(r, -ENOSPC);
	rewind(log);
	told[fread(told, 1, sizeof told - 1, log)] = '\0';
	ck_assert_ptr_nonnull(strstr(told, "cannot be replaced at the moment"));
	ck_assert_ptr_null(strstr(told, "raise \"made\""));
	fclose(log);
}
END_TEST

START_TEST(a_question_in_a_superseded_segment_is_answered_and_made_in_the_current_one)
{
	struct resc_error err = {0, ""};
	struct segment_dims dims = instance.map.dims;

	ck_assert_int_eq(instance_replace(&instance, &dims, &err), 0);
	ck_assert_uint_eq(instance.succession.count, 1);
	const struct map *former = &instance.succession.former[0].map;
	ck_assert_int_eq(ask_in(former, "shard-1"), 0);
	ck_assert(is_there("shard-1"));
	ck_assert_int_eq(policy_find(former, "shard-1"), -ENOENT);
}
END_TEST

/* ---- reload ---- */

START_TEST(H6_a_made_one_follows_its_pattern_is_named_and_is_retired)
{
	struct config_resource both[2] = {configured, configured};
	uint32_t index[2] = {0, 1};
	struct resc_error err = {0, ""};
	struct policy policy;
	uint64_t sequence;

	ck_assert_int_eq(ask("shard-1"), 0);
	uint32_t i = (uint32_t)policy_find(&instance.map, "shard-1");
	fixture_store(&state_of("shard-1")->breaker, breaker_make(TAG_OPEN, 2, 9, 77));

	pattern.policy.cooldown_ms = 4321;
	json_t *report = json_object();
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	ck_assert_uint_eq(json_array_size(json_object_get(report, "changed")), 1);
	ck_assert_int_eq(policy_read(&instance.map, i, &policy, &sequence), 0);
	ck_assert(policy.cooldown_ms == 4321 && (policy.flags & POLICY_MADE) != 0);

	fill(&both[1], "shard-1");
	config.resources = both;
	config.index = index;
	config.count = 2;
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	ck_assert_int_eq(policy_read(&instance.map, i, &policy, &sequence), 0);
	ck_assert_uint_eq(policy.flags & (POLICY_MADE | POLICY_CONFIGURED), POLICY_CONFIGURED);

	config.count = 1;
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	ck_assert_int_eq(policy_read(&instance.map, i, &policy, &sequence), 0);
	ck_assert_uint_ne(policy.flags & POLICY_MADE, 0);
	ck_assert_uint_eq(fixture_load(&state_of("shard-1")->breaker), breaker_make(TAG_OPEN, 2, 9, 77));

	config.pattern_count = 0;
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	ck_assert(!is_there("shard-1") && is_there("payments"));
	ck_assert_uint_eq(fixture_load(&instance.map.daemon->patterns), 0);
	json_decref(report);
}
END_TEST

START_TEST(a_reload_that_promises_more_room_makes_it)
{
	struct resc_error err = {0, ""};

	config.made = 100;
	json_t *report = json_object();
	ck_assert_int_eq(apply_config(&instance, &config, report, &err), 0);
	ck_assert(json_is_true(json_object_get(report, "replaced")));
	ck_assert_uint_ge(instance.map.dims.resources, 101);
	json_decref(report);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        F10_the_one_too_many_is_refused_and_counted,
	        F10_the_longest_idle_makes_room_after_a_second,
	        F10_fewer_may_be_made_from_now_on,
	        F10_the_longest_idle_goes_first_also_behind_very_many_who_were_called_since,
	        who_is_idle_for_that_long_is_retired_and_the_configured_never,
	        without_a_time_the_idle_stay_until_there_is_no_room,
	        F10_an_open_breaker_whose_probe_nobody_wants_is_forgotten_after_an_hour,
	        F10_a_trial_that_nobody_goes_on_with_is_forgotten_after_an_hour,
	        a_table_that_the_retired_have_filled_is_replaced_and_grows,
	        the_table_is_not_replaced_twice_in_a_second,
	        a_refusal_names_what_is_in_the_way,
	        a_question_in_a_superseded_segment_is_answered_and_made_in_the_current_one,
	        H6_a_made_one_follows_its_pattern_is_named_and_is_retired,
	        a_reload_that_promises_more_room_makes_it,
	};
	TCase *tcase = FIXTURE_CASE("made", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, F10_who_is_not_at_rest_is_not_retired_however_long_nobody_calls, 0,
	                    (int)(sizeof keepers / sizeof keepers[0]));
	return named_run(fixture_suite("made", tcase));
}
