/* SPDX-License-Identifier: MIT */
/*
 * Many threads of one worker, each with several calls in flight, while the configuration is reloaded and the segment is replaced: every
 * ticket can be left once, the limit holds, and the counters add up exactly.
 */
#include <errno.h>
#include <pthread.h>

#include "crowd.h"
#include "host.h"
#include "move.h"
#include "named.h"
#include "permit.h"
#include "record.h"

#define THREADS  8
#define SEGMENTS 4
#define LIMIT    6
#define IN_HAND  3

static struct named chain[SEGMENTS];
static unsigned newest;
static resc *host;
static resc_resource *pay;
static atomic_bool done;
static struct crowd crowd;

struct tally {
	uint64_t refused[RESC_E_DEADLINE + 1];
	uint64_t admitted;
	uint64_t ended[RESC_CANCELLED + 1];
	uint64_t stale;
	uint64_t fallbacks;
};

static struct policy policy(unsigned round)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD | POLICY_BUDGET;
	p.limit = LIMIT;
	p.min_calls = 5 + round % 3;
	p.cooldown_ms = 3 + round % 5;
	p.failure_rate_ppm = 450000;
	p.window_ms = 1000;
	p.probes = 2;
	p.successes = 2;
	p.probe_timeout_ms = 3600000;
	return p;
}

static void set_up(void)
{
	struct policy p = policy(0);

	newest = 0;
	named_open(&chain[0], &p);
	host = named_join(chain[0].instance);
	pay = named_lookup(host, "payments");
	atomic_store(&done, false);
	crowd = (struct crowd){0};
}

static void tear_down(void)
{
	resc_close(host);
	for (unsigned i = newest; i > 0; i--)
		map_close(&chain[i].map);
	named_close(&chain[0]);
}

/* ---- what rescd does ---- */

static unsigned carry(void)
{
	unsigned debts = 0;

	for (unsigned i = 0; i < newest; i++) {
		move_words(&chain[i].map, chain[i].state, &chain[i + 1].map, chain[i + 1].state);
		debts += move_permits(&chain[i].map, chain[i].state, &chain[i + 1].map, chain[i + 1].state);
		move_carry(&chain[i].map, chain[i].state, &chain[i + 1].map, chain[i + 1].state);
	}
	return debts;
}

static void supersede(void)
{
	struct named *from = &chain[newest], *to = &chain[newest + 1];
	char second[MAP_PATH_SIZE];
	struct resc_error err;

	/* Only when the last one owes nothing. */
	while (carry() != 0)
		named_sleep_ms(1);
	*to = *from;
	ck_assert_int_eq(map_create(&to->map, from->instance, &from->map.dims, &from->map, 0600, (gid_t)-1, &err), 0);
	to->state = map_state(&to->map, to->index);
	record_publish_moved(&to->map, to->index, "payments", &from->policy, false);
	map_path(second, to->instance, to->map.generation);
	ck_assert_int_eq(map_publish(&to->map, second), 0);
	fixture_store(&from->map.daemon->superseded, to->map.generation);
	newest++;
	carry();
	ck_assert_int_eq(rename(second, to->path), 0);
}

static void clock_forward(void)
{
	uint64_t ms = clock_coarse_ms(&chain[newest].map) + 1;

	for (unsigned i = 0; i <= newest; i++)
		named_at(&chain[i], ms);
}

/* ---- what a thread does ---- */

static bool enter(resc_ticket *ticket, struct tally *t)
{
	int r = resc_enter(pay, NULL, ticket);

	ck_assert_msg(r >= 0 && r <= RESC_E_DEADLINE, "enter: %d", r);
	if (r != 0) {
		t->refused[r]++;
		return false;
	}
	crowd_enter(&crowd);
	t->admitted++;
	return true;
}

static void leave(resc_ticket *ticket, unsigned dice, struct tally *t)
{
	static const enum resc_outcome outcomes[] = {RESC_OK, RESC_FAIL,    RESC_OK,   RESC_TIMEOUT,
	                                             RESC_OK, RESC_IGNORED, RESC_FAIL, RESC_CANCELLED};
	enum resc_outcome outcome = outcomes[dice % 8];

	crowd_leave(&crowd);
	int r = resc_leave(ticket, outcome);
	ck_assert_msg(r == 0 || r == RESC_STALE, "leave: %d", r);
	t->ended[outcome]++;
	t->stale += r == RESC_STALE;
}

static void *work(void *arg)
{
	struct tally *t = arg;
	unsigned dice = (unsigned)(uintptr_t)arg >> 4;

	while (!atomic_load(&done)) {
		resc_ticket tickets[IN_HAND];
		unsigned count = 0;
		for (unsigned i = 0; i < IN_HAND; i++)
			count += enter(&tickets[count], t);
		dice = dice * 1103515245 + 12345;
		if (dice >> 16 & 1)
			sched_yield();
		for (unsigned i = 0; i < count; i++)
			leave(&tickets[i], dice >> (16 + i), t);
		if ((dice >> 20) % 16 == 0)
			t->fallbacks += resc_fallback(pay, "cache") == 0;
		if (count == 0)
			sched_yield();
	}
	return NULL;
}

static void add(struct tally *sum, const struct tally *t)
{
	for (size_t i = 0; i <= RESC_E_DEADLINE; i++)
		sum->refused[i] += t->refused[i];
	for (size_t i = 0; i <= RESC_CANCELLED; i++)
		sum->ended[i] += t->ended[i];
	sum->admitted += t->admitted;
	sum->stale += t->stale;
	sum->fallbacks += t->fallbacks;
}

static void compare(const struct tally *sum, const struct resc_counters *c)
{
	ck_assert_uint_gt(sum->admitted, 0);
	ck_assert_uint_eq(c->admitted, sum->admitted);
	ck_assert_uint_eq(c->ended_ok, sum->ended[RESC_OK]);
	ck_assert_uint_eq(c->ended_fail, sum->ended[RESC_FAIL]);
	ck_assert_uint_eq(c->ended_timeout, sum->ended[RESC_TIMEOUT]);
	ck_assert_uint_eq(c->ended_ignored, sum->ended[RESC_IGNORED]);
	ck_assert_uint_eq(c->ended_cancelled, sum->ended[RESC_CANCELLED]);
	ck_assert_uint_eq(c->refused_open, sum->refused[RESC_E_OPEN]);
	ck_assert_uint_eq(c->refused_half_open, sum->refused[RESC_E_HALF_OPEN]);
	ck_assert_uint_eq(c->refused_full, sum->refused[RESC_E_FULL]);
	ck_assert_uint_eq(c->stale, sum->stale);
	ck_assert_uint_eq(c->fallback_cache, sum->fallbacks);
	ck_assert_uint_eq(c->admitted, c->ended_ok + c->ended_fail + c->ended_timeout + c->ended_ignored + c->ended_cancelled);
}

/* Runs the threads; every millisecond of real time, turn says what else happens. */
static void run(unsigned turns, void (*turn)(unsigned))
{
	pthread_t threads[THREADS];
	static struct tally tallies[THREADS];
	struct tally sum;

	memset(tallies, 0, sizeof tallies);
	memset(&sum, 0, sizeof sum);
	for (int i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, work, &tallies[i]), 0);
	for (unsigned i = 0; i < turns; i++) {
		clock_forward();
		turn(i);
		named_sleep_ms(1);
	}
	atomic_store(&done, true);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		add(&sum, &tallies[i]);
	}
	ck_assert_uint_eq(carry(), 0);
	struct inspect_resource r = named_look(&chain[newest]);
	compare(&sum, &r.counters);
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert_uint_eq(r.probes_out, 0);
	ck_assert_uint_le(crowd_most(&crowd), LIMIT);
	for (unsigned i = 0; i <= newest; i++)
		ck_assert_uint_eq(permit_occupied(&chain[i].map, chain[i].state), 0);
}

static void nothing_else(unsigned turn)
{
	(void)turn;
}

static void reload(unsigned turn)
{
	struct policy p = policy(turn);

	if (turn % 5 == 0)
		named_reload(&chain[newest], &p);
}

static void reload_replace_and_look(unsigned turn)
{
	reload(turn);
	if (turn % 60 == 30 && newest + 1 < SEGMENTS)
		supersede();
	carry();
	/* Each call looks once a second; so that it meets the others, here all the time. */
	host_look(host);
}

START_TEST(counters_add_up_over_threads)
{
	run(150, nothing_else);
}
END_TEST

START_TEST(counters_add_up_over_reloads)
{
	run(200, reload);
	ck_assert_uint_gt(named_look(&chain[0]).counters.opened, 0);
}
END_TEST

START_TEST(counters_add_up_and_the_limit_holds_over_reloads_and_successors)
{
	run(300, reload_replace_and_look);
	ck_assert_uint_eq(newest, SEGMENTS - 1);
	ck_assert_uint_gt(named_look(&chain[newest]).counters.opened, 0);
}
END_TEST

/* ---- tickets from hand to hand ---- */

#define HANDED 4000

static resc_ticket handed[HANDED];
static atomic_uint entered_count;

static void *enter_only(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < HANDED; i++) {
		while (resc_enter(pay, NULL, &handed[i]) != 0)
			sched_yield();
		atomic_fetch_add(&entered_count, 1);
	}
	return NULL;
}

static void *leave_only(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < HANDED; i++) {
		while (atomic_load(&entered_count) <= i)
			sched_yield();
		ck_assert_int_eq(resc_leave(&handed[i], RESC_OK), 0);
	}
	return NULL;
}

START_TEST(a_ticket_may_be_left_by_another_thread)
{
	pthread_t a, b;

	atomic_store(&entered_count, 0);
	pthread_create(&a, NULL, enter_only, NULL);
	pthread_create(&b, NULL, leave_only, NULL);
	pthread_join(a, NULL);
	pthread_join(b, NULL);
	struct inspect_resource r = named_look(&chain[0]);
	ck_assert_uint_eq(r.counters.admitted, HANDED);
	ck_assert_uint_eq(r.counters.ended_ok, HANDED);
	ck_assert_uint_eq(r.window_calls, HANDED);
	ck_assert_uint_eq(r.in_flight, 0);
}
END_TEST

static void *one_call(void *arg)
{
	resc_ticket ticket;

	(void)arg;
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	return NULL;
}

START_TEST(threads_that_come_and_go_lose_no_count)
{
	for (int i = 0; i < 400; i++) {
		pthread_t threads[3];
		for (int k = 0; k < 3; k++)
			ck_assert_int_eq(pthread_create(&threads[k], NULL, one_call, NULL), 0);
		for (int k = 0; k < 3; k++)
			pthread_join(threads[k], NULL);
	}
	struct inspect_resource r = named_look(&chain[0]);
	ck_assert_uint_eq(r.counters.ended_ok, 1200);
	ck_assert_uint_eq(r.window_calls, 1200);
}
END_TEST

START_TEST(a_reload_seen_by_another_thread_leaves_the_shard_with_its_thread)
{
	/* Two threads that took it for theirs would lose counts: it is added to without atomics. */
	const struct view *v = atomic_load(&pay->view);
	const void *owner = v->owner_thread;
	const struct shard *own = v->own;
	struct policy p = policy(1);
	pthread_t thread;

	ck_assert_ptr_nonnull(own);
	ck_assert_ptr_eq(owner, thread_self());
	for (int i = 0; i < 5; i++) {
		named_reload(&chain[0], &p);
		pthread_create(&thread, NULL, one_call, NULL);
		pthread_join(thread, NULL);
		v = atomic_load(&pay->view);
		ck_assert_ptr_eq(v->own, own);
		ck_assert_ptr_eq(v->owner_thread, owner);
	}
	ck_assert_uint_eq(named_look(&chain[0]).counters.ended_ok, 5);
}
END_TEST

/* A copy left by all at once: one of them wins. */
static resc_ticket shared;
static pthread_barrier_t barrier;
static atomic_uint won;

static void *leave_a_copy(void *arg)
{
	resc_ticket copy = shared;

	(void)arg;
	pthread_barrier_wait(&barrier);
	int r = resc_leave(&copy, RESC_FAIL);
	ck_assert(r == 0 || r == -ESTALE);
	if (r == 0)
		atomic_fetch_add(&won, 1);
	return NULL;
}

START_TEST(copies_left_at_once_count_once)
{
	struct policy p = policy(0);

	p.failure_rate_ppm = 0;
	p.consecutive = 1000;
	named_reload(&chain[0], &p);
	pthread_barrier_init(&barrier, NULL, 4);
	for (unsigned round = 1; round <= 100; round++) {
		pthread_t threads[4];
		ck_assert_int_eq(resc_enter(pay, NULL, &shared), 0);
		for (int i = 0; i < 4; i++)
			pthread_create(&threads[i], NULL, leave_a_copy, NULL);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		ck_assert_uint_eq(atomic_load(&won), round);
	}
	ck_assert_uint_eq(named_look(&chain[0]).consecutive, 100);
}
END_TEST

/* ---- opening, closing, forking beside calls ---- */

static void *open_and_close(void *arg)
{
	(void)arg;
	while (!atomic_load(&done)) {
		resc *mine = named_join(chain[0].instance);
		resc_ticket ticket;
		resc_resource *resource = named_lookup(mine, "payments");
		if (resc_enter(resource, NULL, &ticket) == 0)
			resc_leave(&ticket, RESC_OK);
		resc_close(mine);
	}
	return NULL;
}

static void *call_on(void *arg)
{
	struct tally ignored;

	(void)arg;
	memset(&ignored, 0, sizeof ignored);
	while (!atomic_load(&done)) {
		resc_ticket ticket;
		if (enter(&ticket, &ignored))
			leave(&ticket, 0, &ignored);
	}
	return NULL;
}

START_TEST(G4_forks_beside_calls_and_views_that_come_and_go)
{
	pthread_t callers[2], opener;

	for (int i = 0; i < 2; i++)
		pthread_create(&callers[i], NULL, call_on, NULL);
	pthread_create(&opener, NULL, open_and_close, NULL);
	for (int i = 0; i < 25; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			resc_ticket ticket;
			alarm(20);
			int r = resc_enter(pay, NULL, &ticket);
			_exit(r == 0 ? resc_leave(&ticket, RESC_OK) : r == RESC_E_FULL ? 0 : 1);
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(callers[i], NULL);
	pthread_join(opener, NULL);
	worker_sweep(&chain[0].map, 0);
	ck_assert_uint_eq(permit_occupied(&chain[0].map, chain[0].state), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        counters_add_up_over_threads,
	        counters_add_up_over_reloads,
	        counters_add_up_and_the_limit_holds_over_reloads_and_successors,
	        a_ticket_may_be_left_by_another_thread,
	        threads_that_come_and_go_lose_no_count,
	        a_reload_seen_by_another_thread_leaves_the_shard_with_its_thread,
	        copies_left_at_once_count_once,
	        G4_forks_beside_calls_and_views_that_come_and_go,
	};

	return NAMED_RUN("threads", tests, set_up, tear_down);
}
