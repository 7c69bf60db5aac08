/* SPDX-License-Identifier: MIT */
/*
 * What the tests of workers share: a segment that has a name, as rescd makes it; its clock; and puppets, which are worker processes that do
 * one step at a time.
 *
 * The name has the pid of the test program in it, and named_run removes what failed tests leave.
 */
#ifndef UNIT_NAMED_H
#define UNIT_NAMED_H

#include <fcntl.h>
#include <glob.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "failpoint.h"
#include "fixture.h"
#include "inspect.h"
#include "record.h"
#include "resc.h"

struct named {
	struct map map;
	struct policy policy;
	uint32_t index;
	struct state *state;
	char instance[SEGMENT_NAME_SIZE];
	char path[MAP_PATH_SIZE];
};

static pid_t named_program; /* set by named_run, before any test forks */

static inline void named_instance(char *instance, const char *what)
{
	snprintf(instance, SEGMENT_NAME_SIZE, "unit-%d-%d-%s", (int)named_program, (int)getpid(), what);
}

static inline void named_at(const struct named *n, uint64_t ms)
{
	atomic_store_explicit(&n->map.live->clock_ns, n->map.created_ns + ms * 1000000, memory_order_relaxed);
}

static inline void named_add(struct named *n, const char *name, const struct policy *policy)
{
	uint64_t sequence;
	int index = record_publish(&n->map, name, policy);

	ck_assert_int_ge(index, 0);
	n->index = (uint32_t)index;
	n->state = map_state(&n->map, n->index);
	ck_assert_int_eq(policy_read(&n->map, n->index, &n->policy, &sequence), 0);
}

/* With "payments"; NULL: the defaults with a breaker. It is 1000 ms old. */
static inline void named_open_with(struct named *n, const struct segment_dims *dims, const struct policy *policy)
{
	struct policy defaults;
	struct resc_error err;

	policy_private(&defaults);
	named_instance(n->instance, "a");
	map_path(n->path, n->instance, 0);
	unlink(n->path);
	ck_assert_msg(map_create(&n->map, n->instance, dims, NULL, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	named_at(n, 1000);
	named_add(n, "payments", policy == NULL ? &defaults : policy);
	ck_assert_int_eq(map_publish(&n->map, n->path), 0);
}

static inline void named_open(struct named *n, const struct policy *policy)
{
	const struct segment_dims dims = {
	        .resources = 4, .workers = 16, .permits = 64, .shards = 8, .events = 64, .calls = 64, .waiting = 64, .once = 64};

	named_open_with(n, &dims, policy);
}

static inline void named_close(struct named *n)
{
	unlink(n->path);
	map_close(&n->map);
}

/* As rescd does it on a reload. */
static inline void named_reload(struct named *n, const struct policy *policy)
{
	n->policy = *policy;
	policy_write(&n->map, n->index, policy);
	record_apply(&n->map, n->index, policy);
}

static inline struct inspect_resource named_look(const struct named *n)
{
	struct inspect_resource r;

	ck_assert_int_eq(inspect_resource(&n->map, n->index, &r), 0);
	return r;
}

static inline resc_resource *named_lookup(resc *host, const char *name)
{
	struct resc_error err = {0, ""};
	resc_resource *resource = resc_lookup(host, name, &err);

	ck_assert_msg(resource != NULL, "%s", err.text);
	return resource;
}

static inline resc *named_join(const char *instance)
{
	struct resc_error err = {0, ""};
	struct resc_status status;
	resc *host = resc_open(instance, &err);

	ck_assert_msg(host != NULL, "%s", err.text);
	ck_assert_int_eq(resc_status(host, &status), 0);
	ck_assert_msg(status.mode == RESC_SHARED, "%s", status.reason);
	return host;
}

/* What private mode says on stderr is not for the reader of a test's output. */
static inline void named_quiet(void)
{
	int fd = open("/dev/null", O_WRONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	dup2(fd, STDERR_FILENO);
	close(fd);
}

static inline void named_sleep_ms(unsigned ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) != 0)
		continue;
}

/* ---- puppets ---- */

#define PUPPET_TICKETS 64

enum puppet_op { PUPPET_ENTER, PUPPET_LEAVE, PUPPET_QUIT, PUPPET_LIFE };

struct puppet {
	pid_t pid;
	int to;
	int from;
};

struct puppet_command {
	uint32_t op;
	uint32_t ticket;
	uint32_t outcome;
};

static inline int64_t puppet_do(resc *host, resc_resource *pay, resc_ticket *tickets, const struct puppet_command *c)
{
	struct resc_status status;

	switch (c->op) {
	case PUPPET_ENTER:
		return resc_enter(pay, NULL, &tickets[c->ticket]);
	case PUPPET_LEAVE:
		return resc_leave(&tickets[c->ticket], (enum resc_outcome)c->outcome);
	case PUPPET_LIFE:
		resc_status(host, &status);
		return (int64_t)status.worker;
	default:
		resc_close(host);
		_exit(0);
	}
}

_Noreturn static inline void puppet_main(const char *instance, const char *failpoints, int from, int to)
{
	static resc_ticket tickets[PUPPET_TICKETS];
	struct puppet_command c;

	failpoint_set(failpoints);
	resc *host = named_join(instance);
	resc_resource *pay = named_lookup(host, "payments");
	while (read(from, &c, sizeof c) == (ssize_t)sizeof c) {
		int64_t result = puppet_do(host, pay, tickets, &c);
		if (write(to, &result, sizeof result) != (ssize_t)sizeof result)
			break;
	}
	_exit(1);
}

/* A worker of its own process. failpoints: as in failpoint.h, or NULL. */
static inline struct puppet puppet_start(const char *instance, const char *failpoints)
{
	int to[2], from[2];

	ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
	pid_t pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		close(to[1]);
		close(from[0]);
		puppet_main(instance, failpoints, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return (struct puppet){pid, to[1], from[0]};
}

/* Says what to do, and does not wait: it may stop or die on the way. */
static inline void puppet_tell(const struct puppet *p, enum puppet_op op, uint32_t ticket, enum resc_outcome outcome)
{
	struct puppet_command c = {(uint32_t)op, ticket, (uint32_t)outcome};

	ck_assert_int_eq(write(p->to, &c, sizeof c), (ssize_t)sizeof c);
}

/* What it answered; -1000 when it is dead. */
static inline int64_t puppet_answer(const struct puppet *p)
{
	int64_t result;

	return read(p->from, &result, sizeof result) == (ssize_t)sizeof result ? result : -1000;
}

static inline int64_t puppet_enter(const struct puppet *p, uint32_t ticket)
{
	puppet_tell(p, PUPPET_ENTER, ticket, RESC_OK);
	return puppet_answer(p);
}

static inline int64_t puppet_leave(const struct puppet *p, uint32_t ticket, enum resc_outcome outcome)
{
	puppet_tell(p, PUPPET_LEAVE, ticket, outcome);
	return puppet_answer(p);
}

/* It has attached when this returns. */
static inline uint32_t puppet_life(const struct puppet *p)
{
	puppet_tell(p, PUPPET_LIFE, 0, RESC_OK);
	return (uint32_t)puppet_answer(p);
}

static inline void puppet_wait_stopped(const struct puppet *p)
{
	int status;

	ck_assert_int_eq(waitpid(p->pid, &status, WUNTRACED), p->pid);
	ck_assert(WIFSTOPPED(status));
}

static inline void puppet_stop(const struct puppet *p)
{
	kill(p->pid, SIGSTOP);
	puppet_wait_stopped(p);
}

static inline void puppet_close(struct puppet *p)
{
	close(p->to);
	close(p->from);
}

static inline void puppet_kill(struct puppet *p)
{
	kill(p->pid, SIGKILL);
	ck_assert_int_eq(fixture_wait(p->pid), -SIGKILL);
	puppet_close(p);
}

static inline void puppet_quit(struct puppet *p)
{
	puppet_tell(p, PUPPET_QUIT, 0, RESC_OK);
	ck_assert_int_eq(fixture_wait(p->pid), 0);
	puppet_close(p);
}

/* ---- running ---- */

/* Runs a suite, and removes what failed tests have left. */
static inline int named_run(Suite *suite)
{
	char pattern[128];
	glob_t left;

	named_program = getpid();
	int result = fixture_run(suite);
	snprintf(pattern, sizeof pattern, SEGMENT_DIR SEGMENT_PREFIX "unit-%d-*", (int)named_program);
	if (glob(pattern, 0, NULL, &left) == 0) {
		for (size_t i = 0; i < left.gl_pathc; i++)
			unlink(left.gl_pathv[i]);
		globfree(&left);
	}
	return result;
}
#define NAMED_RUN(name, tests, set_up, tear_down) named_run(fixture_suite(name, FIXTURE_CASE(name, tests, set_up, tear_down)))

#endif
