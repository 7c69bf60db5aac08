/* SPDX-License-Identifier: MIT */
/*
 * Questions to rescd. Here a child, or the test itself, plays rescd, so that it can be slow, stopped or absent at any step; the real one is
 * in tests/system/test_templates.py.
 */
#include "record.h"
#include "request.h"

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>

#include "named.h"
#include "thread.h"
#include "worker.h"

#define PATTERN "shard-"

static struct named n;
static _Atomic unsigned *questions; /* that were answered; children see it */
static pid_t rescd;

static void set_up(void)
{
	const struct segment_dims dims = {
	        .resources = 64, .workers = 16, .permits = 64, .shards = 8, .events = 64, .calls = 64, .waiting = 64, .once = 64};

	named_open_with(&n, &dims, NULL);
	fixture_store(&n.map.daemon->patterns, 1);
	questions = mmap(NULL, sizeof *questions, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(questions, MAP_FAILED);
	rescd = 0;
}

static void rescd_stop(void)
{
	if (rescd == 0)
		return;
	kill(rescd, SIGKILL);
	ck_assert_int_eq(fixture_wait(rescd), -SIGKILL);
	rescd = 0;
}

static void tear_down(void)
{
	rescd_stop();
	munmap((void *)questions, sizeof *questions);
	named_close(&n);
}

/* What the real one does, for names that start with PATTERN. */
static int make(const char *name)
{
	struct policy policy;

	if (policy_find(&n.map, name) >= 0)
		return 0;
	if (strncmp(name, PATTERN, strlen(PATTERN)) != 0)
		return -ENOENT;
	policy_private(&policy);
	policy.flags |= POLICY_MADE;
	int index = record_publish(&n.map, name, &policy);
	return index < 0 ? index : 0;
}

static void answer_all(void)
{
	struct question question = {0};

	while (request_next(&n.map, &question)) {
		atomic_fetch_add_explicit(questions, 1, memory_order_relaxed);
		request_answer(&n.map, &question, make(question.name));
	}
}

static void rescd_start(const char *failpoints)
{
	rescd = fork();
	ck_assert_int_ge(rescd, 0);
	if (rescd != 0)
		return;
	failpoint_set(failpoints);
	for (;;) {
		answer_all();
		usleep(200);
	}
}

static unsigned asked(void)
{
	return atomic_load_explicit(questions, memory_order_relaxed);
}

static unsigned places_taken(void)
{
	unsigned taken = 0;

	for (uint32_t i = 0; i < REQUESTS; i++)
		taken += fixture_load(&n.map.live->requests[i].state) != 0;
	return taken;
}

static uint64_t real_ms(void)
{
	return clock_read_ns(CLOCK_MONOTONIC) / 1000000;
}

/* A lookup that is refused. Its code; the text in *err. */
static int refused(resc *host, const char *name, struct resc_error *err)
{
	ck_assert_ptr_null(resc_lookup(host, name, err));
	ck_assert_msg(strstr(err->text, name) != NULL && strstr(err->text, n.instance) != NULL, "%s", err->text);
	return err->code;
}

/* rescd is there, and is asked again within a second or two. How soon it answers is the machine's affair: who asks is patient for 50 ms. */
static void until_answered(resc *host, const char *name)
{
	struct resc_error err;

	for (int i = 0; i < 300; i++) {
		if (resc_lookup(host, name, &err) != NULL)
			return;
		ck_assert_int_eq(err.code, -EAGAIN);
		named_sleep_ms(100);
	}
	ck_abort_msg("%s", err.text);
}

/* A worker process that looks a name up, and exits with the errno. */
static pid_t asker_start(const char *name, const char *failpoints)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid != 0)
		return pid;
	struct resc_error err = {0, ""};
	resc *host = named_join(n.instance);
	failpoint_set(failpoints);
	resc_lookup(host, name, &err);
	resc_close(host);
	_exit(-err.code);
}

static void wait_for_question(struct question *question)
{
	for (int i = 0; i < 20000; i++) {
		*question = (struct question){0};
		if (request_next(&n.map, question))
			return;
		usleep(500);
	}
	ck_abort_msg("nobody asks");
}

/* ---- asking ---- */

START_TEST(a_name_that_matches_a_pattern_gets_its_record_when_it_is_looked_up)
{
	rescd_start(NULL);
	resc *host = named_join(n.instance);
	resc_resource *shard = named_lookup(host, "shard-7");
	resc_ticket ticket;

	ck_assert_int_ge(policy_find(&n.map, "shard-7"), 0);
	ck_assert_int_eq(resc_enter(shard, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_ptr_eq(named_lookup(host, "shard-7"), shard);
	ck_assert_uint_eq(asked(), 1);
	ck_assert_uint_eq(places_taken(), 0);
	resc_close(host);
}
END_TEST

START_TEST(a_name_that_matches_nothing_is_refused_with_words)
{
	struct resc_error err;

	rescd_start(NULL);
	resc *host = named_join(n.instance);
	ck_assert_int_eq(refused(host, "paymenst", &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "pattern"));
	ck_assert_uint_eq(places_taken(), 0);
	resc_close(host);
}
END_TEST

START_TEST(where_there_are_no_patterns_nobody_is_asked)
{
	struct resc_error err;

	fixture_store(&n.map.daemon->patterns, 0);
	resc *host = named_join(n.instance);
	uint64_t before = real_ms();
	ck_assert_int_eq(refused(host, "shard-7", &err), -ENOENT);
	ck_assert_ptr_null(strstr(err.text, "pattern"));
	ck_assert_uint_lt(real_ms() - before, REQUEST_PATIENCE_MS);
	resc_close(host);
}
END_TEST

START_TEST(a_full_table_is_an_error_that_says_what_to_raise)
{
	struct policy policy;
	char name[SEGMENT_NAME_SIZE];
	struct resc_error err;

	policy_private(&policy);
	for (uint32_t i = 1; i < n.map.dims.resources; i++) {
		snprintf(name, sizeof name, "taken-%u", i);
		ck_assert_int_ge(record_publish(&n.map, name, &policy), 0);
	}
	rescd_start(NULL);
	resc *host = named_join(n.instance);
	ck_assert_int_eq(refused(host, "shard-7", &err), -ENOSPC);
	ck_assert_ptr_nonnull(strstr(err.text, "raise \"made\""));
	resc_close(host);
}
END_TEST

/* ---- no answer ---- */

static void *lookup_shard(void *host)
{
	return named_lookup(host, "shard-7");
}

START_TEST(a_rescd_that_does_not_answer_is_an_error_after_a_bounded_time_and_works_when_it_is_back)
{
	struct resc_error err;
	resc *host = named_join(n.instance);
	uint64_t before = real_ms();

	ck_assert_int_eq(refused(host, "shard-7", &err), -EAGAIN);
	ck_assert_ptr_nonnull(strstr(err.text, "does not answer"));
	ck_assert_uint_ge(real_ms() - before, REQUEST_PATIENCE_MS);
	ck_assert_uint_eq(places_taken(), 0);
	/* Nobody here waits for it again right away, whatever the name. */
	before = real_ms();
	ck_assert_int_eq(refused(host, "shard-8", &err), -EAGAIN);
	ck_assert_uint_lt(real_ms() - before, 500);
	/* After a second somebody looks whether it is back, but does not wait for it as long as the first time. */
	named_sleep_ms(1100);
	before = real_ms();
	ck_assert_int_eq(refused(host, "shard-7", &err), -EAGAIN);
	ck_assert_uint_lt(real_ms() - before, 500);
	rescd_start(NULL);
	until_answered(host, "shard-7");
	resc_close(host);
}
END_TEST

START_TEST(a_lookup_that_waits_keeps_no_other_thread_and_no_child_from_working)
{
	pid_t asker = fork();

	if (asker == 0) {
		/* rescd is absent, so this waits. The child of this process has a copy of the lock. */
		resc *host = named_join(n.instance);
		resc_resource *pay = named_lookup(host, "payments");
		resc_ticket ticket;
		pthread_t thread;
		struct question question;

		pthread_create(&thread, NULL, lookup_shard, host);
		wait_for_question(&question);
		fixture_store(&map_policy(&n.map, n.index)->sequence, fixture_load(&map_policy(&n.map, n.index)->sequence) + 2);
		uint64_t before = real_ms();
		if (resc_enter(pay, NULL, &ticket) != 0 || resc_leave(&ticket, RESC_OK) != 0)
			_exit(1);
		pid_t child = fork();
		if (child == 0)
			_exit(resc_enter(pay, NULL, &ticket) != 0 || resc_leave(&ticket, RESC_OK) != 0);
		if (fixture_wait(child) != 0)
			_exit(2);
		_exit(real_ms() - before < REQUEST_PATIENCE_MS / 2 ? 0 : 3);
	}
	ck_assert_int_eq(fixture_wait(asker), 0);
}
END_TEST

static void *try_shard(void *host)
{
	struct resc_error err = {0, ""};

	return resc_lookup(host, "shard-7", &err) == NULL && err.code == -EAGAIN ? host : NULL;
}

START_TEST(a_segment_stays_as_long_as_a_question_waits_in_it)
{
	struct named old = n;
	struct question question;
	struct resc_status status;
	resc_ticket ticket;
	pthread_t thread;
	void *refused_by;

	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	ck_assert_int_eq(pthread_create(&thread, NULL, try_shard, host), 0);
	wait_for_question(&question);
	/* Somebody puts another one in its place; the calls of this thread find it, and let the old one go. */
	named_open(&n, NULL);
	for (int i = 0; i < 140; i++) {
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		ck_assert_int_ge(resc_leave(&ticket, RESC_OK), 0);
		named_sleep_ms(10);
	}
	ck_assert_int_eq(resc_status(host, &status), 0);
	ck_assert_uint_eq(status.generation, n.map.generation);
	ck_assert_int_eq(pthread_join(thread, &refused_by), 0);
	ck_assert_ptr_eq(refused_by, host);
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	resc_close(host);
	map_close(&old.map);
}
END_TEST

START_TEST(an_answer_that_comes_too_late_answers_no_later_question)
{
	struct question late, second;
	uint32_t life = 77;

	/* The same worker, in the same place. */
	pid_t first = fork();
	if (first == 0)
		_exit(request_ask(&n.map, life, "shard-1", 100) == -EAGAIN ? 0 : 1);
	wait_for_question(&late);
	ck_assert_int_eq(fixture_wait(first), 0);
	ck_assert_uint_eq(places_taken(), 0);

	pid_t asker = fork();
	if (asker == 0) {
		thread_call_number();
		_exit(request_ask(&n.map, life, "elsewhere", 5000) == -ENOENT ? 0 : 1);
	}
	wait_for_question(&second);
	ck_assert_uint_eq(second.at, late.at);
	request_answer(&n.map, &late, 0);
	ck_assert_uint_eq(fixture_load(&n.map.live->requests[second.at - 1].state), second.word);
	request_answer(&n.map, &second, -ENOENT);
	ck_assert_int_eq(fixture_wait(asker), 0);
}
END_TEST

/* ---- many ---- */

START_TEST(when_all_places_are_taken_the_next_one_waits_for_one)
{
	for (uint32_t i = 0; i < REQUESTS; i++)
		fixture_store(&n.map.live->requests[i].state, UINT64_C(1) << 32 | 1);
	ck_assert_int_eq(request_ask(&n.map, 7, "shard-1", 20), -EAGAIN);
	ck_assert_uint_eq(places_taken(), REQUESTS);

	pid_t asker = fork();
	if (asker == 0)
		_exit(request_ask(&n.map, 7, "shard-1", 5000) == 0 ? 0 : 1);
	named_sleep_ms(20);
	fixture_store(&n.map.live->requests[5].state, 0);
	rescd_start(NULL);
	ck_assert_int_eq(fixture_wait(asker), 0);
}
END_TEST

START_TEST(many_workers_that_ask_for_the_same_names_get_one_record_each)
{
	enum { WORKERS = 12, NAMES = 40 };
	char name[SEGMENT_NAME_SIZE], other[SEGMENT_NAME_SIZE];
	pid_t pids[WORKERS];

	rescd_start(NULL);
	for (unsigned w = 0; w < WORKERS; w++) {
		pids[w] = fork();
		if (pids[w] != 0)
			continue;
		resc *host = named_join(n.instance);
		for (unsigned i = 0; i < NAMES; i++) {
			snprintf(name, sizeof name, PATTERN "%u", i);
			named_lookup(host, name);
		}
		resc_close(host);
		_exit(0);
	}
	for (unsigned w = 0; w < WORKERS; w++)
		ck_assert_int_eq(fixture_wait(pids[w]), 0);
	ck_assert_uint_eq(fixture_load(&n.map.daemon->resources), NAMES + 1);
	for (uint32_t i = 0; i <= NAMES; i++)
		for (uint32_t k = 0; k < i; k++)
			ck_assert(policy_name(&n.map, i, name) && policy_name(&n.map, k, other) && strcmp(name, other) != 0);
	ck_assert_uint_eq(places_taken(), 0);
}
END_TEST

START_TEST(threads_that_look_up_the_same_new_name_get_the_same_handle)
{
	pthread_t threads[4];
	void *handles[4];

	rescd_start("request.answering=sleep:20");
	resc *host = named_join(n.instance);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, lookup_shard, host), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_join(threads[i], &handles[i]), 0);
	for (int i = 1; i < 4; i++)
		ck_assert_ptr_eq(handles[i], handles[0]);
	resc_close(host);
}
END_TEST

/* ---- loops ---- */

START_TEST(a_loop_of_lookups_that_are_refused_is_no_load_for_rescd)
{
	struct resc_error err;

	rescd_start(NULL);
	resc *host = named_join(n.instance);
	uint64_t began = real_ms();
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(refused(host, "paymenst", &err), -ENOENT);
	ck_assert_uint_le(asked(), 1 + (real_ms() - began) / 900);
	/* Another configuration may have it. */
	unsigned before = asked();
	fixture_store(&n.map.daemon->reloads, 7);
	ck_assert_int_eq(refused(host, "paymenst", &err), -ENOENT);
	ck_assert_uint_eq(asked(), before + 1);
	resc_close(host);
}
END_TEST

START_TEST(a_call_of_a_retired_resource_asks_for_it_again)
{
	resc_ticket ticket;

	rescd_start(NULL);
	resc *host = named_join(n.instance);
	resc_resource *shard = named_lookup(host, "shard-7");
	ck_assert_int_eq(resc_enter(shard, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	record_retire(&n.map, (uint32_t)policy_find(&n.map, "shard-7"));
	ck_assert_int_eq(policy_find(&n.map, "shard-7"), -ENOENT);
	ck_assert_int_eq(resc_enter(shard, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(asked(), 2);
	resc_close(host);
}
END_TEST

START_TEST(a_call_of_a_retired_resource_waits_for_a_dead_rescd_once_a_second_and_briefly)
{
	resc_ticket ticket;

	rescd_start(NULL);
	resc *host = named_join(n.instance);
	resc_resource *shard = named_lookup(host, "shard-7");
	rescd_stop();
	record_retire(&n.map, (uint32_t)policy_find(&n.map, "shard-7"));
	uint64_t began = real_ms();
	ck_assert_int_eq(resc_enter(shard, NULL, &ticket), -EAGAIN);
	uint64_t first = real_ms() - began;
	ck_assert_uint_ge(first, REQUEST_CALL_PATIENCE_MS);
	ck_assert_uint_lt(first, REQUEST_PATIENCE_MS);
	began = real_ms();
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(resc_enter(shard, NULL, &ticket), -EAGAIN);
	ck_assert_uint_lt(real_ms() - began, 10 * REQUEST_CALL_PATIENCE_MS);
	rescd_start(NULL);
	int r = -EAGAIN;
	for (int i = 0; i < 300 && r == -EAGAIN; i++) {
		named_sleep_ms(100);
		r = resc_enter(shard, NULL, &ticket);
	}
	ck_assert_int_eq(r, 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	resc_close(host);
}
END_TEST

/* ---- deaths ---- */

static const char *const steps[] = {"request.taken", "request.named", "request.asked", "request.answered"};

START_TEST(F7_a_death_in_the_middle_of_a_question_leaves_a_place_that_the_reaper_frees)
{
	char spec[64];

	rescd_start(NULL);
	snprintf(spec, sizeof spec, "%s=kill", steps[_i]);
	ck_assert_int_eq(fixture_wait(asker_start("shard-7", spec)), -SIGKILL);
	ck_assert_uint_eq(places_taken(), 1);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(places_taken(), 0);
	ck_assert_int_eq(fixture_wait(asker_start("shard-7", NULL)), 0);
}
END_TEST

START_TEST(F7_a_stopped_asker_is_in_nobodys_way)
{
	char spec[64];
	int status;

	rescd_start(NULL);
	snprintf(spec, sizeof spec, "%s=stop", steps[_i]);
	pid_t stopped = asker_start("shard-7", spec);
	ck_assert_int_eq(waitpid(stopped, &status, WUNTRACED), stopped);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(fixture_wait(asker_start("shard-7", NULL)), 0);
	ck_assert_int_eq(fixture_wait(asker_start("shard-8", NULL)), 0);
	kill(stopped, SIGCONT);
	ck_assert_int_eq(fixture_wait(stopped), 0);
	ck_assert_uint_eq(places_taken(), 0);
}
END_TEST

START_TEST(F7_a_rescd_that_dies_before_its_answer_leaves_the_question_to_the_next)
{
	rescd_start("request.answering=kill");
	pid_t asker = asker_start("shard-7", NULL);
	ck_assert_int_eq(fixture_wait(rescd), -SIGKILL);
	rescd_start(NULL);
	ck_assert_int_eq(fixture_wait(asker), 0);
	ck_assert_uint_eq(fixture_load(&n.map.daemon->resources), 2);
}
END_TEST

/* ---- damage ---- */

static void put_question(uint32_t place, const char *bytes, size_t size)
{
	struct request *request = &n.map.live->requests[place];

	for (size_t i = 0; i < SEGMENT_NAME_SIZE; i++)
		atomic_store_explicit(&request->name[i], bytes[i < size ? i : size - 1], memory_order_relaxed);
	fixture_store(&request->state, UINT64_C(9) << 32 | 2);
}

START_TEST(a_torn_name_is_refused_and_not_made)
{
	struct question question = {0};

	put_question(0, "", 1);
	put_question(1, "shard-\n", 8);
	put_question(2, "../shard-1", 11);
	put_question(3, "shard-\xff\xfe", 9);
	put_question(4, "x", 1); /* without an end */
	put_question(5, "shard-good", 11);
	ck_assert(request_next(&n.map, &question));
	/* 63 characters are the longest name, so the one without an end is cut to a good one. */
	if (strcmp(question.name, "shard-good") != 0)
		ck_assert(request_next(&n.map, &question));
	ck_assert_str_eq(question.name, "shard-good");
	ck_assert(!request_next(&n.map, &question));
	for (uint32_t i = 0; i < 4; i++)
		ck_assert_uint_eq(fixture_load(&n.map.live->requests[i].state), UINT64_C(9) << 32 | (uint64_t)EINVAL << 8 | 3);
}
END_TEST

START_TEST(damaged_places_hold_nobody_up_for_ever)
{
	static const uint64_t damage[] = {UINT64_MAX, 1, 2, 3, 0xff, UINT64_C(7) << 32, UINT64_C(7) << 32 | 0x42, 0x123456789abcdef0};

	for (uint32_t i = 0; i < REQUESTS; i++)
		fixture_store(&n.map.live->requests[i].state, damage[i % (sizeof damage / sizeof damage[0])]);
	ck_assert_int_eq(request_ask(&n.map, 7, "shard-1", 20), -EAGAIN);
	answer_all();
	request_reap(&n.map, 7);
	ck_assert_int_eq(request_ask(&n.map, 7, "shard-1", 20), -EAGAIN);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_name_that_matches_a_pattern_gets_its_record_when_it_is_looked_up,
	        a_name_that_matches_nothing_is_refused_with_words,
	        where_there_are_no_patterns_nobody_is_asked,
	        a_full_table_is_an_error_that_says_what_to_raise,
	        a_rescd_that_does_not_answer_is_an_error_after_a_bounded_time_and_works_when_it_is_back,
	        a_lookup_that_waits_keeps_no_other_thread_and_no_child_from_working,
	        a_segment_stays_as_long_as_a_question_waits_in_it,
	        an_answer_that_comes_too_late_answers_no_later_question,
	        when_all_places_are_taken_the_next_one_waits_for_one,
	        many_workers_that_ask_for_the_same_names_get_one_record_each,
	        threads_that_look_up_the_same_new_name_get_the_same_handle,
	        a_loop_of_lookups_that_are_refused_is_no_load_for_rescd,
	        a_call_of_a_retired_resource_asks_for_it_again,
	        a_call_of_a_retired_resource_waits_for_a_dead_rescd_once_a_second_and_briefly,
	        F7_a_rescd_that_dies_before_its_answer_leaves_the_question_to_the_next,
	        a_torn_name_is_refused_and_not_made,
	        damaged_places_hold_nobody_up_for_ever,
	};
	const int count = (int)(sizeof steps / sizeof steps[0]);

	TCase *tcase = FIXTURE_CASE("request", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, F7_a_death_in_the_middle_of_a_question_leaves_a_place_that_the_reaper_frees, 0, count);
	tcase_add_loop_test(tcase, F7_a_stopped_asker_is_in_nobodys_way, 0, count);
	return named_run(fixture_suite("request", tcase));
}
