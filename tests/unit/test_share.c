/* SPDX-License-Identifier: MIT */
/* Limits that are a share of the live workers: they follow whoever comes, goes and dies, also when that happens at once, and take no
 * permit. */
#include "record.h"
#include "share.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>

#include "named.h"
#include "permit.h"
#include "states.h"
#include "worker.h"

static struct named n;

/* ppm of the live workers. */
static struct policy with_share(uint64_t ppm)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD;
	p.limit_share_ppm = ppm;
	return p;
}

static void set_up(void)
{
	struct policy p = with_share(500000);

	named_open(&n, &p);
}

static void tear_down(void)
{
	named_close(&n);
}

static unsigned target(void)
{
	return limit_target(fixture_load(&n.state->limit));
}

/* A worker of this process, with a token of its own. */
struct member {
	struct map map;
	struct worker worker;
};

static void come(struct member *m)
{
	struct resc_error err;

	memset(m, 0, sizeof *m);
	ck_assert_msg(map_open(&m->map, n.path, MAP_WORKER, &err) == 0, "%s", err.text);
	ck_assert_int_eq(worker_register(&m->map, &m->worker), 0);
}

static void go(struct member *m)
{
	worker_unregister(&m->map, &m->worker);
	map_close(&m->map);
}

/* A child that registers, stops, and does nothing more; failpoints as in failpoint.h, or NULL. */
static pid_t child(const char *failpoints)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct member m;
		failpoint_set(failpoints);
		come(&m);
		raise(SIGSTOP);
		_exit(0);
	}
	return pid;
}

static void kill_child(pid_t pid)
{
	kill(pid, SIGKILL);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
}

static void until_stopped(pid_t pid)
{
	struct puppet p = {pid, -1, -1};

	puppet_wait_stopped(&p);
}

/* ---- how much ---- */

static void put_workers(unsigned count)
{
	for (uint32_t i = 0; i < n.map.dims.workers; i++)
		fixture_store(&map_worker(&n.map, i)->life, i < count ? 1000 + i : 0);
}

START_TEST(a_limit_is_the_share_rounded_up_at_least_1_and_at_most_the_cells)
{
	static const struct {
		uint64_t ppm;
		unsigned workers;
		unsigned limit;
	} cases[] = {
	        {500000, 0, 1},  {500000, 1, 1},    {500000, 2, 1},    {500000, 3, 2},    {500000, 4, 2},      {500000, 16, 8},
	        {1, 16, 1},      {62500, 16, 1},    {62501, 16, 2},    {333333, 3, 1},    {333334, 3, 2},      {1000000, 7, 7},
	        {2500000, 3, 8}, {4000000, 16, 64}, {4000001, 16, 64}, {10000000, 6, 60}, {1000000000, 1, 64}, {1000000000, 16, 64},
	};

	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		struct policy p = with_share(cases[i].ppm);
		put_workers(cases[i].workers);
		ck_assert_uint_eq(share_limit(&n.map, &p), cases[i].limit);
		named_reload(&n, &p);
		ck_assert_uint_eq(target(), cases[i].limit);
		ck_assert_uint_eq(limit_effective(fixture_load(&n.state->limit)), cases[i].limit);
	}
	put_workers(0);
}
END_TEST

START_TEST(a_number_is_a_number_whatever_the_workers)
{
	struct policy p = with_share(0);

	p.limit = 5;
	put_workers(16);
	ck_assert_uint_eq(share_limit(&n.map, &p), 5);
	p.limit = 5000;
	ck_assert_uint_eq(share_limit(&n.map, &p), n.map.dims.permits);
	put_workers(0);
}
END_TEST

START_TEST(what_limits_nothing_has_all_cells)
{
	struct policy p = with_share(500000);

	p.flags |= POLICY_SHADOW_BULKHEAD;
	ck_assert_uint_eq(share_target(&n.map, &p), n.map.dims.permits);
	ck_assert_uint_eq(share_limit(&n.map, &p), 1); /* what it would be */
	p = with_share(500000);
	p.flags &= ~(uint64_t)POLICY_BULKHEAD;
	ck_assert_uint_eq(share_target(&n.map, &p), n.map.dims.permits);
}
END_TEST

/* ---- who comes and goes ---- */

START_TEST(C5_limits_follow_those_who_come_and_go)
{
	struct member members[6];

	for (unsigned i = 0; i < 6; i++) {
		come(&members[i]);
		ck_assert_uint_eq(target(), (i + 2) / 2);
	}
	for (unsigned i = 6; i > 0; i--) {
		ck_assert_uint_eq(target(), (i + 1) / 2);
		go(&members[i - 1]);
	}
	ck_assert_uint_eq(target(), 1);
}
END_TEST

START_TEST(C5_the_dead_count_until_they_are_reaped_and_a_sweep_counts_once)
{
	pid_t pids[8];
	struct policy p = with_share(1000000);

	named_reload(&n, &p);
	for (unsigned i = 0; i < 8; i++)
		pids[i] = child(NULL);
	for (unsigned i = 0; i < 8; i++)
		until_stopped(pids[i]);
	ck_assert_uint_eq(target(), 8);
	for (unsigned i = 0; i < 5; i++)
		kill_child(pids[i]);
	ck_assert_uint_eq(target(), 8);
	unsigned version = limit_version(fixture_load(&n.state->limit));
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 5);
	ck_assert_uint_eq(target(), 3);
	ck_assert_uint_eq(limit_version(fixture_load(&n.state->limit)), version + 1);
	for (unsigned i = 5; i < 8; i++)
		kill_child(pids[i]);
	worker_sweep(&n.map, 0);
}
END_TEST

START_TEST(C5_a_falling_number_of_workers_takes_no_permit_from_its_holder)
{
	struct member members[8];
	uint32_t cells[8], cell;
	struct policy p = with_share(1000000);

	named_reload(&n, &p);
	for (unsigned i = 0; i < 8; i++)
		come(&members[i]);
	for (uint32_t i = 0; i < 8; i++)
		ck_assert_int_eq(permit_acquire(&n.map, n.state, permit_make(members[0].worker.life, i), i, &cells[i]), 0);
	for (unsigned i = 4; i < 8; i++)
		go(&members[i]);
	ck_assert_uint_eq(target(), 4);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 8);
	for (uint32_t i = 0; i < 8; i++) {
		/* Nobody comes in before fewer than four are inside. */
		ck_assert_int_eq(permit_acquire(&n.map, n.state, permit_make(members[1].worker.life, i), i, &cell),
		                 i < 5 ? RESC_E_FULL : 0);
		ck_assert(permit_release(&n.map, n.state, cells[i], permit_make(members[0].worker.life, i)));
	}
	for (unsigned i = 0; i < 4; i++)
		go(&members[i]);
}
END_TEST

START_TEST(F8_who_attaches_and_leaves_changes_nothing_but_the_limit)
{
	struct member m;
	uint32_t cell;

	ck_assert_int_eq(permit_acquire(&n.map, n.state, permit_make(5000, 1), 0, &cell), 0);
	struct inspect_resource before = named_look(&n);
	for (int i = 0; i < 10; i++) {
		come(&m);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
		go(&m);
	}
	struct inspect_resource after = named_look(&n);
	ck_assert_uint_eq(before.in_flight, after.in_flight);
	ck_assert_mem_eq(&before.counters, &after.counters, sizeof before.counters);
	ck_assert_uint_eq(target(), 1);
}
END_TEST

/* ---- at once, and deaths in between ---- */

START_TEST(two_who_register_at_once_end_with_both)
{
	struct member m;
	struct policy p = with_share(1000000);

	named_reload(&n, &p);
	/* It has counted one; before it sets the limit, there are two. */
	pid_t slow = child("share.counted@1=stop");
	until_stopped(slow);
	come(&m);
	ck_assert_uint_eq(target(), 2);
	kill(slow, SIGCONT);
	/* It sets 1, counts again, and sets 2. */
	while (limit_version(fixture_load(&n.state->limit)) < 4)
		named_sleep_ms(1);
	ck_assert_uint_eq(target(), 2);
	kill_child(slow);
	go(&m);
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(target(), 1);
}
END_TEST

START_TEST(who_leaves_while_another_registers_is_not_counted_in_the_end)
{
	struct member m;
	struct policy p = with_share(1000000);

	named_reload(&n, &p);
	come(&m);
	pid_t slow = child("share.counted@1=stop");
	until_stopped(slow);
	go(&m);
	ck_assert_uint_eq(target(), 1);
	unsigned version = limit_version(fixture_load(&n.state->limit));
	kill(slow, SIGCONT);
	while (limit_version(fixture_load(&n.state->limit)) < version + 2)
		named_sleep_ms(1);
	ck_assert_uint_eq(target(), 1);
	kill_child(slow);
	worker_sweep(&n.map, 0);
}
END_TEST

START_TEST(F7_a_death_between_count_and_limit_is_set_right_by_rescd_in_its_turn)
{
	struct policy p = with_share(1000000);
	struct member m;

	named_reload(&n, &p);
	/* It leaves a limit that is too low: it died before it set its own. */
	pid_t pid = child("share.counted=kill");
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	come(&m);
	ck_assert_uint_eq(target(), 2); /* the dead counts until it is reaped */
	/* And one that is too high, set by a slow one who died before it counted again. */
	pid = child("share.counted@1=stop,share.set@1=kill");
	until_stopped(pid);
	go(&m);
	ck_assert_uint_eq(target(), 2);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(target(), 3);
	states_tick(&n.map);
	ck_assert_uint_eq(target(), 2);
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(target(), 1);
}
END_TEST

START_TEST(F7_a_death_between_the_slot_and_the_limit_while_leaving_is_set_right_too)
{
	struct policy p = with_share(1000000);
	struct member m;

	named_reload(&n, &p);
	come(&m);
	pid_t pid = fork();
	if (pid == 0) {
		struct member mine;
		come(&mine);
		failpoint_set("unregister.freed=kill");
		go(&mine);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(target(), 2);
	states_tick(&n.map);
	ck_assert_uint_eq(target(), 1);
	go(&m);
}
END_TEST

#define THREADS 4

static void *come_and_go(void *arg)
{
	for (int i = 0; i < 100; i++) {
		struct member m;
		come(&m);
		if (i % 3 != 0)
			sched_yield();
		go(&m);
	}
	return arg;
}

START_TEST(whoever_is_last_counts_right_when_many_come_and_go_at_once)
{
	struct policy p = with_share(1000000);
	pthread_t threads[THREADS];
	struct member stays[3];

	named_reload(&n, &p);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, come_and_go, NULL), 0);
	for (int i = 0; i < 3; i++)
		come(&stays[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(target(), 3);
	for (int i = 0; i < 3; i++)
		go(&stays[i]);
	ck_assert_uint_eq(target(), 1);
}
END_TEST

/* ---- which ones ---- */

START_TEST(only_those_with_a_share_follow)
{
	struct policy fixed = with_share(0), shadow = with_share(500000), open;
	struct named other[3];
	struct member m[4];

	fixed.limit = 3;
	shadow.flags |= POLICY_SHADOW_BULKHEAD;
	policy_private(&open);
	const struct policy *policies[] = {&fixed, &shadow, &open};
	for (int i = 0; i < 3; i++) {
		char name[] = {(char)('a' + i), '\0'};
		other[i] = n;
		named_add(&other[i], name, policies[i]);
	}
	for (int i = 0; i < 4; i++)
		come(&m[i]);
	ck_assert_uint_eq(target(), 2);
	ck_assert_uint_eq(limit_target(fixture_load(&other[0].state->limit)), 3);
	ck_assert_uint_eq(limit_target(fixture_load(&other[1].state->limit)), n.map.dims.permits);
	ck_assert_uint_eq(limit_target(fixture_load(&other[2].state->limit)), n.map.dims.permits);
	for (int i = 0; i < 4; i++)
		go(&m[i]);
}
END_TEST

START_TEST(where_there_is_no_share_nobody_looks)
{
	struct named plain;
	struct policy p = with_share(0);
	struct member m;

	named_close(&n);
	p.limit = 5;
	named_open(&plain, &p);
	n = plain;
	ck_assert_uint_eq(fixture_load(&n.map.daemon->shares), 0);
	/* No place is met at which a recount would be seen. */
	failpoint_set("share.counted=exit:3");
	come(&m);
	go(&m);
	failpoint_set(NULL);
	p = with_share(500000);
	named_reload(&n, &p);
	ck_assert_uint_eq(fixture_load(&n.map.daemon->shares), n.index + 1);
}
END_TEST

START_TEST(a_share_that_becomes_a_number_is_one_whoever_had_read_the_share)
{
	struct policy p = with_share(0);

	p.limit = 7;
	/* It works with the old policy, and sets the limit after the new one was applied. */
	named_reload(&n, &p);
	permit_set_limit(&n.map, n.state, 1);
	states_tick(&n.map);
	ck_assert_uint_eq(target(), 7);
}
END_TEST

START_TEST(a_retired_name_gets_the_share_of_the_day_when_it_comes_back)
{
	struct policy p = n.policy;
	struct member m[4];

	record_retire(&n.map, n.index);
	for (int i = 0; i < 4; i++)
		come(&m[i]);
	ck_assert_uint_eq(target(), 1);
	named_add(&n, "payments", &p);
	ck_assert_uint_eq(target(), 2);
	for (int i = 0; i < 4; i++)
		go(&m[i]);
}
END_TEST

/* ---- a successor ---- */

START_TEST(in_a_successor_those_who_are_on_their_way_count_for_a_while)
{
	struct resc_error err;
	struct named next = n;

	put_workers(10);
	ck_assert_int_eq(map_create(&next.map, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	named_at(&next, 1000);
	share_expect(&next.map, share_workers(&n.map), 6000);
	record_publish_moved(&next.map, n.index, "payments", &n.policy, false);
	next.state = map_state(&next.map, n.index);
	ck_assert_uint_eq(limit_target(fixture_load(&next.state->limit)), 5);
	/* The first ones who come do not lower it. */
	fixture_store(&map_worker(&next.map, 0)->life, 1);
	share_recount(&next.map);
	ck_assert_uint_eq(limit_target(fixture_load(&next.state->limit)), 5);
	/* More than expected count. */
	for (uint32_t i = 0; i < 14; i++)
		fixture_store(&map_worker(&next.map, i)->life, i + 1);
	share_recount(&next.map);
	ck_assert_uint_eq(limit_target(fixture_load(&next.state->limit)), 7);
	for (uint32_t i = 2; i < 14; i++)
		fixture_store(&map_worker(&next.map, i)->life, 0);
	named_at(&next, 5999);
	states_tick(&next.map);
	ck_assert_uint_eq(limit_target(fixture_load(&next.state->limit)), 5);
	named_at(&next, 6000);
	states_tick(&next.map);
	ck_assert_uint_eq(limit_target(fixture_load(&next.state->limit)), 1);
	map_close(&next.map);
	put_workers(0);
}
END_TEST

START_TEST(an_expectation_beyond_the_slots_is_the_slots)
{
	share_expect(&n.map, UINT32_MAX, TIME_MASK);
	ck_assert_uint_eq(share_workers(&n.map), n.map.dims.workers);
	fixture_store(&n.map.live->expected_workers, UINT64_MAX);
	ck_assert_uint_eq(share_workers(&n.map), n.map.dims.workers);
	share_expect(&n.map, 3, 2000);
	ck_assert_uint_eq(share_workers(&n.map), 3);
	named_at(&n, 2000);
	ck_assert_uint_eq(share_workers(&n.map), 0);
}
END_TEST

START_TEST(damage_in_the_number_of_records_is_bounded)
{
	fixture_store(&n.map.daemon->shares, UINT64_MAX);
	put_workers(8);
	share_recount(&n.map);
	ck_assert_uint_eq(target(), 4);
	put_workers(0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_limit_is_the_share_rounded_up_at_least_1_and_at_most_the_cells,
	        a_number_is_a_number_whatever_the_workers,
	        what_limits_nothing_has_all_cells,
	        C5_limits_follow_those_who_come_and_go,
	        C5_the_dead_count_until_they_are_reaped_and_a_sweep_counts_once,
	        C5_a_falling_number_of_workers_takes_no_permit_from_its_holder,
	        F8_who_attaches_and_leaves_changes_nothing_but_the_limit,
	        two_who_register_at_once_end_with_both,
	        who_leaves_while_another_registers_is_not_counted_in_the_end,
	        F7_a_death_between_count_and_limit_is_set_right_by_rescd_in_its_turn,
	        F7_a_death_between_the_slot_and_the_limit_while_leaving_is_set_right_too,
	        whoever_is_last_counts_right_when_many_come_and_go_at_once,
	        only_those_with_a_share_follow,
	        where_there_is_no_share_nobody_looks,
	        a_share_that_becomes_a_number_is_one_whoever_had_read_the_share,
	        a_retired_name_gets_the_share_of_the_day_when_it_comes_back,
	        in_a_successor_those_who_are_on_their_way_count_for_a_while,
	        an_expectation_beyond_the_slots_is_the_slots,
	        damage_in_the_number_of_records_is_bounded,
	};

	return NAMED_RUN("share", tests, set_up, tear_down);
}
