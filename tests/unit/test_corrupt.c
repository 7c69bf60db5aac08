/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in any region of a live segment, under a worker that is attached: it answers something, soon; it never crashes, hangs, or
 * believes an index. And when the bytes are good again, so is the worker.
 */
#include <errno.h>
#include <pthread.h>

#include "event.h"
#include "move.h"
#include "named.h"
#include "override.h"
#include "permit.h"
#include "random.h"
#include "worker.h"

static struct named n;
static struct map successor; /* an empty one, to move into */
static resc *host;
static resc_resource *pay;
static uint8_t *good;

struct region {
	const char *name;
	size_t offset, size;
};
static struct region regions[7];

static size_t offset_of(const void *p)
{
	return (size_t)((const uint8_t *)p - n.map.base);
}

static void set_up(void)
{
	struct policy p;
	struct resc_error err;
	resc_ticket ticket;

	named_quiet();
	resc_seed(20240607);
	policy_private(&p);
	p.flags |= POLICY_BULKHEAD | POLICY_BUDGET | POLICY_RETRY;
	p.backoff = BACKOFF_NONE;
	p.limit = 8;
	named_open(&n, &p);
	host = named_join(n.instance);
	pay = named_lookup(host, "payments");
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_int_eq(map_create(&successor, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	good = malloc(n.map.size);
	memcpy(good, n.map.base, n.map.size);

	const size_t starts[] = {offset_of(n.map.daemon),
	                         offset_of(n.map.policies),
	                         offset_of(n.map.live),
	                         offset_of(n.map.workers),
	                         offset_of(n.map.states),
	                         offset_of(n.map.events),
	                         n.map.size};
	static const char *const names[] = {"daemon", "policies", "live", "workers", "states", "events"};
	for (size_t i = 0; i < 6; i++)
		regions[i] = (struct region){names[i], starts[i], starts[i + 1] - starts[i]};
	regions[6] = (struct region){"all", starts[0], n.map.size - starts[0]};
}

static void tear_down(void)
{
	resc_close(host);
	map_close(&successor);
	named_close(&n);
	free(good);
}

/* ---- bytes ---- */

static word *word_at(size_t offset)
{
	return (word *)(void *)(n.map.base + offset);
}

static uint64_t odd_number(void)
{
	switch (random_below(6)) {
	case 0:
		return 0;
	case 1:
		return UINT64_MAX;
	case 2:
		return random_below(256);
	case 3:
		return UINT64_C(1) << random_below(64);
	default:
		return random_next() >> random_below(64);
	}
}

/* How much of it: every word, or one in so many. */
static void corrupt(const struct region *r, uint64_t one_in)
{
	for (size_t at = r->offset; at + 8 <= r->offset + r->size; at += 8)
		if (random_below(one_in) == 0)
			atomic_store_explicit(word_at(at), odd_number(), memory_order_relaxed);
}

static void fill(const struct region *r, uint64_t value)
{
	for (size_t at = r->offset; at + 8 <= r->offset + r->size; at += 8)
		atomic_store_explicit(word_at(at), value, memory_order_relaxed);
}

static void restore(void)
{
	for (size_t at = regions[6].offset; at + 8 <= n.map.size; at += 8) {
		uint64_t value;
		memcpy(&value, good + at, 8);
		atomic_store_explicit(word_at(at), value, memory_order_relaxed);
	}
}

/* ---- what a worker does ---- */

static bool is_an_answer(int r)
{
	return r >= RESC_E_OPEN && r <= RESC_E_RETRIES;
}

static enum resc_outcome do_nothing(void *arg, int64_t timeout_ms, unsigned attempt)
{
	(void)arg;
	(void)timeout_ms;
	return attempt % 2 != 0 ? RESC_FAIL : RESC_OK;
}

static void call(resc_resource *resource)
{
	for (int i = 0; i < 4; i++) {
		resc_ticket ticket;
		int r = resc_enter(resource, NULL, &ticket);
		ck_assert_msg(r <= 0 || is_an_answer(r), "enter: %d", r);
		if (r != 0)
			continue;
		ck_assert(ticket.timeout_ms == -1 || ticket.timeout_ms > 0);
		r = resc_leave(&ticket, i % 2 != 0 ? RESC_FAIL : RESC_OK);
		ck_assert_msg(r <= 0 || r == RESC_STALE, "leave: %d", r);
	}
}

static void ask(resc_resource *resource)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	struct resc_counters counters;
	struct resc_state state;
	int64_t wait = 0;

	int r = resc_retry(resource, &plan, RESC_FAIL, &wait);
	ck_assert(r <= 0 || (r >= RESC_E_ATTEMPTS && r <= RESC_E_RETRY_IN_FLIGHT));
	ck_assert_int_ge(wait, 0);
	if (resc_state(resource, &state) == 0)
		ck_assert(state.due_ms >= -1 && state.in_flight <= n.map.dims.permits && state.probes_out <= PROBES_LIMIT);
	if (resc_counters(resource, &counters) == 0)
		ck_assert_uint_le(counters.enters, INT64_MAX);
	resc_fallback(resource, "cache");
}

/* What resctl and rescd read and do. */
static void inspect(void)
{
	static struct event events[64];
	struct inspect_resource resource;
	struct inspect_worker worker;
	struct inspect_daemon daemon;
	uint32_t lives[64], permits[64];

	for (uint32_t i = 0; i < n.map.dims.resources; i++) {
		inspect_resource(&n.map, i, &resource);
		inspect_holders(&n.map, i, lives, permits, 64);
	}
	for (uint32_t i = 0; i < n.map.dims.workers; i++)
		inspect_worker(&n.map, i, &worker);
	inspect_daemon(&n.map, &daemon);
	ck_assert_uint_le(event_read(&n.map, 0, events, 64), 64);
	policy_find(&n.map, "payments");
	policy_find_any(&n.map, "nothing");
}

static void mend(void)
{
	worker_sweep(&n.map, 0);
	permit_settle(&n.map, n.state);
	override_expire(&n.map, n.index, 0, clock_coarse_ms(&n.map));
	move_words(&n.map, n.state, &successor, map_state(&successor, n.index));
	move_carry(&n.map, n.state, &successor, map_state(&successor, n.index));
}

static void newcomer(void)
{
	resc *other = resc_open(n.instance, NULL);
	struct resc_status status;

	ck_assert_ptr_nonnull(other);
	ck_assert_int_eq(resc_status(other, &status), 0);
	/* There is no rescd, and to ask it takes a second and a half: what is bad in the questions is in test_request. */
	fixture_store(&n.map.daemon->patterns, 0);
	resc_resource *resource = resc_lookup(other, "payments", NULL);
	if (resource != NULL)
		call(resource);
	resc_close(other);
}

static void everything(unsigned round)
{
	call(pay);
	ask(pay);
	resc_run(pay, do_nothing, NULL, NULL, NULL);
	inspect();
	if (round % 4 == 0)
		newcomer();
	if (round % 4 == 1)
		mend();
	call(pay);
}

/* All is as before: calls are admitted, and counted. */
static void works_again(void)
{
	resc_ticket ticket;

	restore();
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.ended_ok, 2);
	ck_assert_uint_eq(r.in_flight, 0);
	restore();
}

/* ---- the tests: a region each ---- */

#define ROUNDS 150

START_TEST(random_words_in_a_region)
{
	const struct region *r = &regions[_i];

	alarm(50);
	for (unsigned round = 0; round < ROUNDS; round++) {
		static const uint64_t densities[] = {1, 3, 50, 1000};
		corrupt(r, densities[round % 4]);
		everything(round);
		works_again();
	}
}
END_TEST

START_TEST(the_same_word_all_over_a_region)
{
	static const uint64_t values[] = {
	        0, UINT64_MAX, 1, UINT64_C(0x8000000000000000), UINT64_C(0xaaaaaaaaaaaaaaaa), UINT64_C(0xffffffff)};
	const struct region *r = &regions[_i];

	alarm(50);
	for (unsigned round = 0; round < 6; round++) {
		fill(r, values[round]);
		everything(round);
		works_again();
	}
}
END_TEST

START_TEST(each_word_of_a_resource_is_bad_in_turn)
{
	alarm(50);
	for (size_t at = offsetof(struct state, breaker); at < offsetof(struct state, carried); at += 8) {
		for (unsigned kind = 0; kind < 3; kind++) {
			atomic_store_explicit(word_at(offset_of(n.state) + at), kind == 0 ? UINT64_MAX : odd_number(),
			                      memory_order_relaxed);
			call(pay);
			ask(pay);
			call(pay);
			restore();
		}
	}
	works_again();
}
END_TEST

START_TEST(a_ticket_that_is_out_while_its_segment_goes_bad)
{
	alarm(50);
	for (unsigned round = 0; round < 80; round++) {
		resc_ticket ticket;
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		corrupt(&regions[round % 7], 1 + round % 5);
		int r = resc_leave(&ticket, RESC_FAIL);
		ck_assert(r <= 0 || r == RESC_STALE);
		works_again();
	}
}
END_TEST

static atomic_bool done;

static void *go_on_calling(void *arg)
{
	(void)arg;
	while (!atomic_load(&done)) {
		call(pay);
		ask(pay);
	}
	return NULL;
}

START_TEST(bytes_that_change_under_the_hands_of_threads)
{
	pthread_t threads[2];

	alarm(50);
	atomic_store(&done, false);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, go_on_calling, NULL);
	for (unsigned round = 0; round < 70; round++) {
		corrupt(&regions[round % 7], 1 + round % 9 * 20);
		inspect();
		named_sleep_ms(2);
		if (round % 3 == 0)
			restore();
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	restore();
	resc_ticket ticket;
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

START_TEST(an_operator_on_a_bad_segment)
{
	alarm(50);
	for (unsigned round = 0; round < 12; round++) {
		corrupt(&regions[4], 1 + round % 3);
		override_set(&n.map, n.index, OVERRIDE_OPEN, 1000, "why");
		override_release(&n.map, n.index, "why");
		override_reset(&n.map, n.index, "why");
		restore();
	}
	works_again();
}
END_TEST

START_TEST(a_fork_on_a_bad_segment)
{
	for (unsigned round = 0; round < 14; round++) {
		corrupt(&regions[round % 7], 2);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(20);
			call(pay);
			resc_close(host);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
		restore();
	}
	works_again();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("corrupt");
	TCase *tests = tcase_create("corrupt");
	const TTest *const all[] = {
	        each_word_of_a_resource_is_bad_in_turn,
	        a_ticket_that_is_out_while_its_segment_goes_bad,
	        bytes_that_change_under_the_hands_of_threads,
	        an_operator_on_a_bad_segment,
	        a_fork_on_a_bad_segment,
	};

	tcase_add_checked_fixture(tests, set_up, tear_down);
	tcase_set_timeout(tests, 60);
	tcase_add_loop_test(tests, random_words_in_a_region, 0, 7);
	tcase_add_loop_test(tests, the_same_word_all_over_a_region, 0, 7);
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		tcase_add_test(tests, all[i]);
	suite_add_tcase(suite, tests);
	return named_run(suite);
}
