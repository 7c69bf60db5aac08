/* SPDX-License-Identifier: MIT */
/* What the unit tests of one resource share: a segment with one resource, its clock, and main(). */
#ifndef UNIT_FIXTURE_H
#define UNIT_FIXTURE_H

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "clock.h"
#include "map.h"
#include "policy.h"
#include "record.h"
#include "words.h"

struct fixture {
	struct map map;
	struct policy policy;
	uint32_t index;
	struct state *state;
};

/* Publishes "payments" with that policy; NULL: the defaults with a breaker. */
static inline void fixture_publish(struct fixture *f, const struct policy *policy)
{
	uint64_t sequence;

	if (policy == NULL)
		policy_private(&f->policy);
	else
		f->policy = *policy;
	int index = record_publish(&f->map, "payments", &f->policy);
	ck_assert_int_ge(index, 0);
	f->index = (uint32_t)index;
	f->state = map_state(&f->map, f->index);
	ck_assert_int_eq(policy_read(&f->map, f->index, &f->policy, &sequence), 0);
}

/* A private segment: what forked children do in it stays theirs. */
static inline void fixture_open(struct fixture *f, const struct policy *policy)
{
	struct resc_error err;

	ck_assert_msg(map_private(&f->map, "unit", &err) == 0, "%s", err.text);
	fixture_publish(f, policy);
}

/* A segment that forked children share. It has no name, so nothing is left behind. */
static inline void fixture_open_shared(struct fixture *f, const struct policy *policy)
{
	struct segment_dims dims;
	struct resc_error err;

	const struct map_needs needs = {.resources = 16, .workers = 16, .permits = 64};
	map_dims(&dims, &needs);
	ck_assert_msg(map_create(&f->map, "unit", &dims, NULL, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	fixture_publish(f, policy);
}

#ifdef RESC_TEST_CLOCK
/* Sets the time of the segment. */
static inline void fixture_at(struct fixture *f, uint64_t ms)
{
	atomic_store_explicit(&f->map.live->clock_ns, f->map.created_ns + ms * 1000000, memory_order_relaxed);
}
#endif

static inline uint64_t fixture_load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}
static inline void fixture_store(word *w, uint64_t value)
{
	atomic_store_explicit(w, value, memory_order_release);
}

/* Waits for a child. Its exit status, or -signal. */
static inline int fixture_wait(pid_t pid)
{
	int status;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

/* Those tests, each between set_up and tear_down. They may take long on a machine that has much to do; who hangs is stopped all the same.
 */
static inline TCase *fixture_case(const char *name, const TTest *const *tests, size_t count, void (*set_up)(void), void (*tear_down)(void))
{
	TCase *tcase = tcase_create(name);

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 120);
	for (size_t i = 0; i < count; i++)
		tcase_add_test(tcase, tests[i]);
	return tcase;
}
#define FIXTURE_CASE(name, tests, set_up, tear_down) fixture_case(name, tests, sizeof(tests) / sizeof((tests)[0]), set_up, tear_down)

static inline Suite *fixture_suite(const char *name, TCase *tcase)
{
	Suite *suite = suite_create(name);

	suite_add_tcase(suite, tcase);
	return suite;
}

/* Runs a suite: 0 when everything passed. */
static inline int fixture_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);

	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
#define FIXTURE_RUN(name, tests, set_up, tear_down) fixture_run(fixture_suite(name, FIXTURE_CASE(name, tests, set_up, tear_down)))

#endif
