/* SPDX-License-Identifier: MIT */
/* Private mode: a worker without a segment works, says why, and joins within a second when there is one. */
#include <errno.h>

#include "named.h"
#include "permit.h"

static char instance[SEGMENT_NAME_SIZE];
static char path[MAP_PATH_SIZE];
static struct named n; /* not made by set_up */

static void set_up(void)
{
	named_quiet();
	named_instance(instance, "a");
	map_path(path, instance, 0);
}

static void tear_down(void)
{
	unlink(path);
}

static struct resc_status status_of(resc *host)
{
	struct resc_status status;

	ck_assert_int_eq(resc_status(host, &status), 0);
	return status;
}

static resc *alone(void)
{
	struct resc_error err = {1, "x"};
	resc *host = resc_open(instance, &err);

	ck_assert_ptr_nonnull(host);
	ck_assert_int_eq(err.code, 0);
	ck_assert_int_eq(status_of(host).mode, RESC_PRIVATE);
	return host;
}

/* A call now, and what enter said. One during which the host is joined is stale for it. */
static int call(resc_resource *resource, enum resc_outcome outcome)
{
	resc_ticket ticket;
	int r = resc_enter(resource, NULL, &ticket);

	if (r == 0)
		ck_assert_int_ge(resc_leave(&ticket, outcome), 0);
	return r;
}

START_TEST(a_program_of_another_version_gets_the_counters_that_both_know)
{
	struct {
		struct resc_counters known;
		uint64_t more;
	} newer;
	struct resc_counters all, older;
	resc *host = alone();
	resc_resource *resource = named_lookup(host, "payments");

	call(resource, RESC_OK);
	ck_assert_int_eq(resc_counters(resource, &all), 0);
	ck_assert_uint_eq(all.enters, 1);

	memset(&newer, 0xee, sizeof newer);
	ck_assert_int_eq(resc_counters_sized(resource, &newer.known, sizeof newer), 0);
	ck_assert_mem_eq(&newer.known, &all, sizeof all);
	ck_assert_uint_eq(newer.more, 0);

	memset(&older, 0xee, sizeof older);
	ck_assert_int_eq(resc_counters_sized(resource, &older, offsetof(struct resc_counters, admitted)), 0);
	ck_assert_uint_eq(older.enters, 1);
	ck_assert_uint_eq(older.admitted, UINT64_C(0xeeeeeeeeeeeeeeee));
	resc_close(host);
}
END_TEST

/* Calls for a little more than a second of real time. */
static void call_for_a_second(resc_resource *resource)
{
	for (int i = 0; i < 12; i++) {
		call(resource, RESC_OK);
		named_sleep_ms(100);
	}
}

/* ---- alone ---- */

START_TEST(without_a_segment_it_is_private_and_says_why)
{
	resc *host = alone();
	struct resc_status status = status_of(host);

	ck_assert_uint_eq(status.generation, 0);
	ck_assert_str_eq(status.instance, instance);
	ck_assert_msg(strstr(status.reason, path) != NULL && strstr(status.reason, "rescd") != NULL, "%s", status.reason);
	resc_close(host);
}
END_TEST

START_TEST(it_has_the_documented_defaults)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");
	struct resc_state s;

	/* 50 % of at least 20 calls. */
	for (int i = 0; i < 19; i++)
		ck_assert_int_eq(call(pay, i < 10 ? RESC_OK : RESC_FAIL), 0);
	ck_assert_int_eq(resc_state(pay, &s), 0);
	ck_assert_int_eq(s.breaker, RESC_CLOSED);
	ck_assert_int_eq(call(pay, RESC_FAIL), 0);
	ck_assert_int_eq(call(pay, RESC_OK), RESC_E_OPEN);
	ck_assert_int_eq(resc_state(pay, &s), 0);
	ck_assert_int_eq(s.breaker, RESC_BREAKER_OPEN);
	ck_assert_uint_eq(s.limit, 0);
	ck_assert_double_eq(s.retry_tokens, -1);
	ck_assert_int_eq(s.due_ms, 5000);
	/* Another resource is another one. */
	ck_assert_int_eq(call(named_lookup(host, "other"), RESC_OK), 0);
	resc_close(host);
}
END_TEST

START_TEST(handles_are_the_same_for_the_same_name)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");

	ck_assert_ptr_eq(named_lookup(host, "payments"), pay);
	ck_assert_ptr_ne(named_lookup(host, "Payments"), pay);
	ck_assert_str_eq(resc_name(pay), "payments");
	ck_assert_str_eq(resc_name(NULL), "");
	resc_close(host);
}
END_TEST

START_TEST(F10_its_table_has_an_end_and_says_so)
{
	resc *host = alone();
	struct resc_error err;
	char name[32];
	int i;

	for (i = 0; i < 1000; i++) {
		snprintf(name, sizeof name, "resource-%d", i);
		if (resc_lookup(host, name, &err) == NULL)
			break;
	}
	ck_assert_int_eq(i, 64);
	ck_assert_int_eq(err.code, -ENOSPC);
	ck_assert_int_eq(call(named_lookup(host, "resource-0"), RESC_OK), 0);
	resc_close(host);
}
END_TEST

START_TEST(bad_names_are_errors)
{
	resc *host = alone();
	struct resc_error err;

	ck_assert_ptr_null(resc_lookup(host, "", &err));
	ck_assert_int_eq(err.code, -EINVAL);
	ck_assert_ptr_null(resc_lookup(host, NULL, &err));
	ck_assert_ptr_null(resc_lookup(host, "a/b", NULL));
	ck_assert_ptr_null(resc_lookup(NULL, "a", &err));
	ck_assert_int_eq(err.code, -EINVAL);
	resc_close(host);
	resc_close(NULL);
}
END_TEST

START_TEST(the_instance_comes_from_the_environment)
{
	struct resc_status status;

	setenv("RESC_INSTANCE", instance, 1);
	resc *host = resc_open(NULL, NULL);
	status = status_of(host);
	ck_assert_str_eq(status.instance, instance);
	resc_close(host);
	setenv("RESC_INSTANCE", "not/good", 1);
	ck_assert_ptr_null(resc_open(NULL, NULL));
	host = resc_open(instance, NULL); /* what is said counts */
	ck_assert_ptr_nonnull(host);
	resc_close(host);
	unsetenv("RESC_INSTANCE");
}
END_TEST

START_TEST(a_forked_child_has_a_view_of_its_own)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");
	resc_ticket ticket;
	struct resc_state s;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	pid_t pid = fork();
	if (pid == 0) {
		resc_ticket copy = ticket;
		ck_assert_int_eq(resc_leave(&copy, RESC_OK), -ESTALE);
		for (int i = 0; i < 20; i++)
			ck_assert_int_eq(call(pay, RESC_FAIL), 0);
		ck_assert_int_eq(call(pay, RESC_OK), RESC_E_OPEN);
		ck_assert_int_eq(status_of(host).mode, RESC_PRIVATE);
		copy = ticket;
		ck_assert_int_eq(resc_leave(&copy, RESC_OK), -ESTALE);
		resc_close(host);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_int_eq(resc_state(pay, &s), 0);
	ck_assert_int_eq(s.breaker, RESC_CLOSED);
	ck_assert_uint_eq(s.in_flight, 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	resc_close(host);
}
END_TEST

START_TEST(the_reason_is_said_once)
{
	char text[4096];
	char file[] = "/tmp/unit-stderr-XXXXXX";
	int fd = mkstemp(file);

	ck_assert_int_ge(fd, 0);
	dup2(fd, STDERR_FILENO);
	resc *host = alone();
	call_for_a_second(named_lookup(host, "payments"));
	resc_close(host);
	ssize_t length = pread(fd, text, sizeof text - 1, 0);
	ck_assert_int_gt(length, 0);
	text[length] = '\0';
	unlink(file);
	ck_assert_ptr_nonnull(strstr(text, "private mode"));
	ck_assert_ptr_eq(strchr(text, '\n'), text + length - 1); /* one line */
}
END_TEST

/* ---- joining ---- */

START_TEST(it_joins_within_a_second_when_the_segment_appears)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");

	ck_assert_int_eq(call(pay, RESC_OK), 0);
	named_open(&n, NULL);
	ck_assert_str_eq(n.path, path);
	call_for_a_second(pay);
	struct resc_status status = status_of(host);
	ck_assert_int_eq(status.mode, RESC_SHARED);
	ck_assert_uint_eq(status.generation, n.map.generation);
	ck_assert_str_eq(status.reason, "");
	struct inspect_resource before = named_look(&n);
	ck_assert_int_eq(call(pay, RESC_OK), 0); /* the same handle */
	ck_assert_uint_eq(named_look(&n).counters.ended_ok, before.counters.ended_ok + 1);
	resc_close(host);
	named_close(&n);
}
END_TEST

START_TEST(it_joins_also_when_its_own_breaker_refuses)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");

	for (int i = 0; i < 20; i++)
		call(pay, RESC_FAIL);
	ck_assert_int_eq(call(pay, RESC_OK), RESC_E_OPEN);
	named_open(&n, NULL);
	call_for_a_second(pay);
	ck_assert_int_eq(call(pay, RESC_OK), 0);
	ck_assert_int_eq(status_of(host).mode, RESC_SHARED);
	resc_close(host);
	named_close(&n);
}
END_TEST

START_TEST(a_ticket_of_before_is_given_back_where_it_was_taken)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");
	resc_ticket ticket, copy;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	named_open(&n, NULL);
	call_for_a_second(pay);
	ck_assert_int_eq(status_of(host).mode, RESC_SHARED);
	copy = ticket;
	struct inspect_resource before = named_look(&n);
	/* It says nothing about the host's view: it was not admitted there. */
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), RESC_STALE);
	struct inspect_resource after = named_look(&n);
	ck_assert_mem_eq(&before.counters, &after.counters, sizeof before.counters);
	ck_assert_uint_eq(after.window_calls, before.window_calls);
	ck_assert_uint_eq(after.consecutive, 0);
	ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
	/* The private view is let go then, and nothing goes wrong. */
	call_for_a_second(pay);
	ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -EINVAL);
	resc_close(host);
	named_close(&n);
}
END_TEST

START_TEST(a_resource_that_the_host_does_not_have_is_an_error_from_then_on)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments"), *other = named_lookup(host, "other");
	struct resc_error err;
	struct resc_counters counters;
	resc_ticket ticket;
	int64_t wait;

	ck_assert_int_eq(call(other, RESC_OK), 0);
	named_open(&n, NULL);
	call_for_a_second(pay);
	ck_assert_int_eq(status_of(host).mode, RESC_SHARED);
	/* Never silently unguarded. */
	memset(&ticket, 1, sizeof ticket);
	ck_assert_int_eq(resc_enter(other, NULL, &ticket), -ENOENT);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), -EINVAL);
	ck_assert_int_eq(resc_counters(other, &counters), -ENOENT);
	ck_assert_int_eq(resc_fallback(other, "cache"), -ENOENT);
	resc_retry_plan plan = RESC_RETRY_INIT;
	ck_assert_int_eq(resc_retry(other, &plan, RESC_FAIL, &wait), -ENOENT);
	ck_assert_ptr_null(resc_lookup(host, "third", &err));
	ck_assert_int_eq(err.code, -ENOENT);
	ck_assert_msg(strstr(err.text, "third") != NULL, "%s", err.text);
	/* And comes back when it is configured. */
	named_add(&n, "other", &n.policy);
	ck_assert_int_eq(call(other, RESC_OK), 0);
	resc_close(host);
	named_close(&n);
}
END_TEST

START_TEST(F3_a_segment_that_was_removed_is_used_until_there_is_another)
{
	named_open(&n, NULL);
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	struct named second = n;
	struct resc_error err;

	ck_assert_int_eq(call(pay, RESC_OK), 0);
	unlink(n.path);
	call_for_a_second(pay);
	ck_assert_uint_eq(status_of(host).generation, n.map.generation);
	ck_assert_int_eq(map_create(&second.map, n.instance, &n.map.dims, NULL, 0600, (gid_t)-1, &err), 0);
	named_at(&second, 1000);
	named_add(&second, "payments", &n.policy);
	ck_assert_int_eq(map_publish(&second.map, n.path), 0);
	call_for_a_second(pay);
	ck_assert_uint_eq(status_of(host).generation, second.map.generation);
	ck_assert_uint_gt(named_look(&second).counters.ended_ok, 0);
	resc_close(host);
	map_close(&second.map);
	named_close(&n);
}
END_TEST

START_TEST(a_damaged_segment_is_not_joined_and_the_reason_follows)
{
	resc *host = alone();
	resc_resource *pay = named_lookup(host, "payments");

	ck_assert_ptr_nonnull(strstr(status_of(host).reason, "there is no"));
	int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
	ck_assert_int_eq(ftruncate(fd, 100000), 0);
	close(fd);
	call_for_a_second(pay);
	ck_assert_int_eq(status_of(host).mode, RESC_PRIVATE);
	ck_assert_msg(strstr(status_of(host).reason, "not a segment") != NULL, "%s", status_of(host).reason);
	ck_assert_int_eq(call(pay, RESC_OK), 0);
	resc_close(host);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        without_a_segment_it_is_private_and_says_why,
	        it_has_the_documented_defaults,
	        handles_are_the_same_for_the_same_name,
	        a_program_of_another_version_gets_the_counters_that_both_know,
	        F10_its_table_has_an_end_and_says_so,
	        bad_names_are_errors,
	        the_instance_comes_from_the_environment,
	        a_forked_child_has_a_view_of_its_own,
	        the_reason_is_said_once,
	        it_joins_within_a_second_when_the_segment_appears,
	        it_joins_also_when_its_own_breaker_refuses,
	        a_ticket_of_before_is_given_back_where_it_was_taken,
	        a_resource_that_the_host_does_not_have_is_an_error_from_then_on,
	        F3_a_segment_that_was_removed_is_used_until_there_is_another,
	        a_damaged_segment_is_not_joined_and_the_reason_follows,
	};

	return NAMED_RUN("private", tests, set_up, tear_down);
}
