/* SPDX-License-Identifier: MIT */
/* Failpoints do what they say, at the time that they say, and a specification that cannot be read is not ignored. */
#include "failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>

#include "fixture.h"

static char directory[] = "/tmp/resc-failpoint-XXXXXX";
static char file[64];
static char spec[128];

static void set_up(void)
{
	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(file, sizeof(file), "%s/here", directory);
}

static void tear_down(void)
{
	unlink(file);
	rmdir(directory);
}

/* Meets "a" three times and "b" once, in a child. Its end; 3 when nothing happened. */
static int child_with(const char *points)
{
	pid_t pid = fork();

	if (pid == 0) {
		if (failpoint_set(points) != 0)
			_exit(99);
		for (int i = 0; i < 3; i++)
			FAILPOINT("a");
		FAILPOINT("b");
		_exit(3);
	}
	return fixture_wait(pid);
}

START_TEST(actions)
{
	ck_assert_int_eq(child_with(NULL), 3);
	ck_assert_int_eq(child_with(""), 3);
	ck_assert_int_eq(child_with("c=kill"), 3);
	ck_assert_int_eq(child_with("a=kill"), -SIGKILL);
	ck_assert_int_eq(child_with("a=exit:7"), 7);
	ck_assert_int_eq(child_with("a=sleep:1"), 3);
	ck_assert_int_eq(child_with("c=kill,b=exit:8"), 8);
}
END_TEST

START_TEST(the_nth_time_only)
{
	ck_assert_int_eq(child_with("a@3=exit:7,b=exit:8"), 7);
	ck_assert_int_eq(child_with("a@4=exit:7,b=exit:8"), 8);
	ck_assert_int_eq(child_with("a@1=exit:5,a@2=exit:6"), 5);
}
END_TEST

START_TEST(touch_and_wait_meet)
{
	snprintf(spec, sizeof(spec), "a=wait:%s,b=exit:4", file);
	pid_t pid = fork();
	if (pid == 0)
		_exit(child_with(spec));
	usleep(20000);
	ck_assert_int_eq(waitpid(pid, NULL, WNOHANG), 0);
	char touch[128];
	snprintf(touch, sizeof(touch), "b=touch:%s", file);
	ck_assert_int_eq(child_with(touch), 3);
	ck_assert_int_eq(fixture_wait(pid), 4);
}
END_TEST

START_TEST(what_cannot_be_read_is_refused)
{
	static const char *const bad[] = {"a",          "a=",      "=kill",    "a=murder", "a=kill:1", "a=exit",  "a=exit:", "a=exit:x",
	                                  "a=sleep:-1", "a@=kill", "a@0=kill", "a@x=kill", "a=wait",   "a=wait:", "a=kill,b"};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(failpoint_set(bad[i]) == -EINVAL, "%s", bad[i]);
}
END_TEST

/* Runs this program again with RESC_FAILPOINT, to meet "a". */
static int program_with(const char *points)
{
	pid_t pid = fork();

	if (pid == 0) {
		setenv("RESC_FAILPOINT", points, 1);
		int null = open("/dev/null", O_WRONLY);
		dup2(null, STDERR_FILENO);
		execl("/proc/self/exe", "test_failpoint", "meet", (char *)NULL);
		_exit(98);
	}
	return fixture_wait(pid);
}

START_TEST(the_environment_is_read)
{
	ck_assert_int_eq(program_with("a=exit:9"), 9);
	ck_assert_int_eq(program_with("b=exit:9"), 0);
	ck_assert_int_eq(program_with("a=exti:9"), -SIGABRT);
}
END_TEST

static unsigned met;

static void count(void)
{
	met++;
}

START_TEST(a_watcher_is_told_of_each_point)
{
	failpoint_watch(count);
	FAILPOINT("a");
	FAILPOINT("b");
	ck_assert_uint_eq(met, 2);
	failpoint_watch(NULL);
	FAILPOINT("a");
	ck_assert_uint_eq(met, 2);
}
END_TEST

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
	        actions,
	        the_nth_time_only,
	        touch_and_wait_meet,
	        what_cannot_be_read_is_refused,
	        the_environment_is_read,
	        a_watcher_is_told_of_each_point,
	};

	(void)argv;
	if (argc > 1) {
		FAILPOINT("a");
		return 0;
	}
	return FIXTURE_RUN("failpoint", tests, set_up, tear_down);
}
