/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in any region of a live segment, under a worker that is attached: it answers something, soon; it never crashes, hangs, or
 * believes an index. And when the bytes are good again, so is the worker.
 *
 * One resource has every guard, one has them all in shadow mode with a limit that is a share, and one has but a breaker and a limit. Calls
 * are made in fours, so that the last one waits; who sleeps moves the clock on instead (sleepless.h).
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/mman.h>

#include "event.h"
#include "every_guard.h"
#include "host.h"
#include "made.h"
#include "metrics.h"
#include "move.h"
#include "named.h"
#include "once.h"
#include "override.h"
#include "permit.h"
#include "random.h"
#include "record.h"
#include "share.h"
#include "sleepless.h"
#include "states.h"
#include "worker.h"

#define RESOURCES 3u
#define TICKETS   4u
#define REGIONS   8u
#define ALL       (REGIONS - 1) /* the region that is all of them */
#define STATES    4u

static struct named n;
static struct map successor; /* an empty one, to move into */
static resc *host;
static resc_resource *resources[RESOURCES];
static const char *const resource_names[RESOURCES] = {"payments", "ledger", "search"};
static uint8_t *good;
static FILE *sink;

/* What rescd has in its memory. */
static struct config config;
static struct config_resource pattern;
static struct instance instance;
static struct made made;

struct region {
	size_t offset, size;
};
static struct region regions[REGIONS];

static size_t offset_of(const void *p)
{
	return (size_t)((const uint8_t *)p - n.map.base);
}

static void find_regions(void)
{
	const size_t starts[REGIONS] = {
	        offset_of(n.map.daemon), offset_of(n.map.policies), offset_of(n.map.live),       offset_of(n.map.workers),
	        offset_of(n.map.states), offset_of(n.map.events),   offset_of(n.map.once_slots), n.map.size};

	for (size_t i = 0; i < ALL; i++)
		regions[i] = (struct region){starts[i], starts[i + 1] - starts[i]};
	regions[ALL] = (struct region){starts[0], n.map.size - starts[0]};
}

/* Answers what workers ask while they sleep. There are no more records than these, and never a larger segment. */
static void rescd_answers(void)
{
	made.replaced_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
	made_answer(&made);
}

static void start_rescd(void)
{
	snprintf(pattern.name, sizeof pattern.name, "shard-*");
	every_guard(&pattern.policy);
	config = (struct config){.made = 2, .idle_ms = 60000, .pattern_count = 1, .patterns = &pattern};
	instance = (struct instance){.map = n.map};
	made = (struct made){.instance = &instance, .config = &config};
	fixture_store(&n.map.daemon->patterns, 1);
}

static void first_calls(void)
{
	for (unsigned i = 0; i < RESOURCES; i++) {
		resc_ticket ticket;
		resources[i] = named_lookup(host, resource_names[i]);
		ck_assert_int_eq(resc_enter(resources[i], NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	}
}

static void set_up(void)
{
	struct policy p;
	struct resc_error err;

	named_quiet();
	resc_seed(20240607);
	every_guard(&p);
	named_open(&n, &p);
	every_guard_in_shadow(&p);
	ck_assert_int_eq(record_publish(&n.map, resource_names[1], &p), 1);
	policy_private(&p);
	p.flags |= POLICY_BULKHEAD | POLICY_BUDGET | POLICY_RETRY;
	p.backoff = BACKOFF_NONE;
	p.limit = 8;
	ck_assert_int_eq(record_publish(&n.map, resource_names[2], &p), 2);
	start_rescd();
	atomic_store(&sleepless_clocks[0], &n.map.live->clock_ns);
	sleepless_meanwhile = rescd_answers;
	host = named_join(n.instance);
	first_calls();
	ck_assert_int_eq(map_create(&successor, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	good = malloc(n.map.size);
	sink = fopen("/dev/null", "w");
	ck_assert(good != NULL && sink != NULL);
	memcpy(good, n.map.base, n.map.size);
	find_regions();
}

static void tear_down(void)
{
	resc_close(host);
	atomic_store(&sleepless_clocks[0], NULL);
	made_free(&made);
	fclose(sink);
	map_close(&successor);
	named_close(&n);
	free(good);
}

/* ---- bytes ---- */

static word *word_at(size_t offset)
{
	return (word *)(void *)(n.map.base + offset);
}

/* The test clock says something that a clock could say. */
static void store_at(size_t offset, uint64_t value)
{
	word *place = word_at(offset);

	if (place == &n.map.live->clock_ns)
		value %= SLEEPLESS_DAMAGE;
	atomic_store_explicit(place, value, memory_order_relaxed);
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
			store_at(at, odd_number());
}

static void fill(const struct region *r, uint64_t value)
{
	for (size_t at = r->offset; at + 8 <= r->offset + r->size; at += 8)
		store_at(at, value);
}

/* As rescd leaves it that writes every policy anew: a worker may have read a bad one under the sequence that is there now. */
static void restore(void)
{
	static uint64_t written;

	written += 2; /* the same copy */
	for (size_t at = regions[ALL].offset; at + 8 <= n.map.size; at += 8) {
		uint64_t value;
		memcpy(&value, good + at, 8);
		store_at(at, value);
	}
	for (uint32_t i = 0; i < RESOURCES; i++)
		atomic_fetch_add_explicit(&map_policy(&n.map, i)->sequence, written, memory_order_release);
}

/* ---- what a worker does ---- */

static bool is_an_answer(int r)
{
	return (r >= RESC_E_OPEN && r <= RESC_E_RETRIES) || r == RESC_E_INJECTED || r == RESC_E_INJECTED_TIMEOUT;
}

static enum resc_outcome do_nothing(void *arg, int64_t timeout_ms, unsigned attempt)
{
	(void)arg;
	(void)timeout_ms;
	return attempt % 2 != 0 ? RESC_FAIL : RESC_OK;
}

static void enter(resc_resource *resource, unsigned i, resc_ticket *ticket)
{
	const resc_options options[TICKETS] = {
	        {RESC_NO_DEADLINE, 0, RESC_NORMAL, 0, 0},
	        {RESC_NO_DEADLINE, RESC_RETRY, RESC_LOW, 2, 0},
	        {resc_deadline_after_ms(100), RESC_RETRIED_UPSTREAM, RESC_CRITICAL, 1, 0},
	        {RESC_NO_DEADLINE, 0, RESC_LOW, 3, 0},
	};

	sleepless_step();
	int r = resc_enter(resource, &options[i], ticket);
	ck_assert_msg(r <= 0 || is_an_answer(r), "enter: %d", r);
	if (r == 0)
		ck_assert(ticket->timeout_ms == -1 || ticket->timeout_ms > 0);
	else
		ck_assert_int_ge(ticket->retry_after_ms, r > 0 ? -1 : 0);
}

/* Four that are inside at the same time, where that is allowed. */
static void call(resc_resource *resource)
{
	resc_ticket tickets[TICKETS];

	for (unsigned i = 0; i < TICKETS; i++)
		enter(resource, i, &tickets[i]);
	for (unsigned i = 0; i < TICKETS; i++) {
		sleepless_step();
		/* A ticket of who was refused is an error, too. */
		int r = resc_leave_after(&tickets[i], i % 2 != 0 ? RESC_FAIL : RESC_OK, i == 3 ? 1000 : -1);
		ck_assert_msg(r <= 0 || r == RESC_STALE, "leave: %d", r);
	}
}

static void repeat(resc_resource *resource)
{
	resc_once once[3];
	int r[3];

	for (unsigned i = 0; i < 3; i++) {
		sleepless_step();
		/* The first and the last are the same. */
		r[i] = resc_once_begin(resource, &"keys"[i % 2], 3, NULL, &once[i]);
		ck_assert_msg(r[i] <= 0 || (r[i] >= RESC_ONCE_BUSY && r[i] <= RESC_ONCE_UNKNOWN), "begin: %d", r[i]);
		ck_assert(r[i] != RESC_ONCE_DONE || once[i].size <= RESC_ONCE_ANSWER_MAX);
	}
	sleepless_step();
	ck_assert_int_le(resc_once_done(&once[0], "answer", 6), 0);
	ck_assert_int_le(resc_once_abandon(&once[1]), 0);
}

static void retry(resc_resource *resource, resc_retry_plan plan, enum resc_outcome outcome)
{
	int64_t wait = 0;

	sleepless_step();
	int r = resc_retry(resource, &plan, outcome, &wait);
	ck_assert_msg(r <= 0 || (r >= RESC_E_ATTEMPTS && r <= RESC_E_RETRY_IN_FLIGHT), "retry: %d", r);
	ck_assert_int_ge(wait, 0);
}

static void ask(resc_resource *resource)
{
	struct resc_counters counters;
	struct resc_state state;
	struct resc_timeouts timeouts;

	retry(resource, (resc_retry_plan)RESC_RETRY_INIT, RESC_FAIL);
	retry(resource, (resc_retry_plan){1, 0, resc_deadline_after_ms(1000), 5, RESC_NO_PUSHBACK}, RESC_TIMEOUT);
	retry(resource, (resc_retry_plan){0, 0, RESC_NO_DEADLINE, 0, 250}, RESC_FAIL);
	sleepless_step();
	if (resc_state(resource, &state) == 0) {
		ck_assert(state.due_ms >= -1 && state.in_flight <= n.map.dims.permits && state.probes_out <= PROBES_LIMIT);
		ck_assert(state.waiting <= n.map.dims.waiting && state.retries <= state.in_flight);
		ck_assert(state.retry_tokens >= -1 && state.rate_tokens >= -1 && state.throttle >= -1 && state.throttle <= 1);
	}
	if (resc_counters(resource, &counters) == 0)
		ck_assert_uint_le(counters.enters, INT64_MAX);
	if (resc_timeouts(resource, &timeouts) == 0)
		ck_assert(timeouts.total_ms >= -1 && timeouts.probe_ms >= -1);
	resc_fallback(resource, "cache");
}

static void use_all(void)
{
	for (unsigned i = 0; i < RESOURCES; i++) {
		call(resources[i]);
		ask(resources[i]);
		repeat(resources[i]);
		sleepless_step();
		resc_run(resources[i], do_nothing, NULL, NULL, NULL);
	}
}

/* Names that rescd has to be asked for: one that a pattern fits, and one that none does. */
static void look_up(void)
{
	resc_resource *shard;

	sleepless_step();
	shard = resc_lookup(host, "shard-1", NULL);
	if (shard != NULL)
		call(shard);
	sleepless_step();
	resc_lookup(host, "nothing", NULL);
}

/* ---- what resctl and rescd do ---- */

static void inspect(void)
{
	static struct event events[64];
	struct inspect_resource resource;
	struct inspect_worker worker;
	struct inspect_daemon daemon;
	struct once_usage usage;
	uint32_t lives[64], permits[64];

	for (uint32_t i = 0; i < n.map.dims.resources; i++) {
		inspect_resource(&n.map, i, &resource);
		inspect_holders(&n.map, i, lives, permits, 64);
	}
	for (uint32_t i = 0; i < n.map.dims.workers; i++)
		inspect_worker(&n.map, i, &worker);
	inspect_daemon(&n.map, &daemon);
	inspect_once(&n.map, &usage);
	ck_assert_uint_le(usage.working + usage.done + usage.unknown, usage.size);
	ck_assert_uint_le(event_read(&n.map, 0, events, 64), 64);
	policy_find(&n.map, "payments");
	policy_find_any(&n.map, "nothing");
}

/* A turn of rescd, at which all is late. */
static void turn(void)
{
	sleepless_step();
	states_tick(&n.map);
	made.replaced_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
	made.looked_ms = 0;
	made_tick(&made);
	once_settle(NULL, &n.map);
	ck_assert_int_eq(metrics_write(sink, &n.map, true), 0);
}

/* Into a successor, and what is looked after there. */
static void move(void)
{
	for (uint32_t i = 0; i < RESOURCES; i++) {
		struct state *old = map_state(&n.map, i), *new = map_state(&successor, i);
		move_words(&n.map, old, &successor, new);
		move_permits(&n.map, old, &successor, new);
		move_carry(&n.map, old, &successor, new);
	}
	once_move(&n.map, &successor, 1);
	once_settle(&n.map, &successor);
	atomic_store(&successor.live->once_ready, 0);
}

static void mend(void)
{
	sleepless_step();
	worker_sweep(&n.map, 0);
	for (uint32_t i = 0; i < RESOURCES; i++) {
		permit_settle(&n.map, map_state(&n.map, i));
		override_expire(&n.map, i, 0, clock_coarse_ms(&n.map));
	}
	share_recount(&n.map);
}

static void newcomer(void)
{
	resc *other = resc_open(n.instance, NULL);
	struct resc_status status;

	ck_assert_ptr_nonnull(other);
	ck_assert_int_eq(resc_status(other, &status), 0);
	sleepless_step();
	resc_resource *resource = resc_lookup(other, "payments", NULL);
	if (resource != NULL)
		call(resource);
	resc_close(other);
	deadline_use_clock(&n.map.live->clock_ns);
}

static void everything(unsigned round)
{
	static void (*const others[])(void) = {newcomer, mend, turn, look_up, move};

	use_all();
	inspect();
	others[round % (sizeof others / sizeof others[0])]();
	call(resources[0]);
}

/* All is as before: calls are admitted, and counted. Who has left a damaged segment looks for it once a second. */
static void works_again(void)
{
	restore();
	host_look(host);
	restore();
	for (uint32_t i = 0; i < RESOURCES; i++) {
		struct inspect_resource r;
		resc_ticket ticket;
		ck_assert_int_eq(resc_enter(resources[i], NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		ck_assert_int_eq(inspect_resource(&n.map, i, &r), 0);
		ck_assert_uint_eq(r.counters.ended_ok, 2);
		ck_assert_uint_eq(r.in_flight, 0);
	}
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
	for (size_t at = offsetof(struct state, breaker); at < sizeof(struct state); at += 8) {
		for (unsigned kind = 0; kind < 3; kind++) {
			store_at(offset_of(map_state(&n.map, 0)) + at, kind == 0 ? UINT64_MAX : odd_number());
			call(resources[0]);
			ask(resources[0]);
			call(resources[0]);
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
		ck_assert_int_eq(resc_enter(resources[round % RESOURCES], NULL, &ticket), 0);
		corrupt(&regions[round % REGIONS], 1 + round % 5);
		sleepless_step();
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
		call(resources[0]);
		ask(resources[1]);
		repeat(resources[0]);
		call(resources[2]);
	}
	return NULL;
}

START_TEST(bytes_that_change_under_the_hands_of_threads)
{
	pthread_t threads[2];

	alarm(50);
	atomic_store(&done, false);
	sleepless_meanwhile = NULL; /* rescd is one thread */
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, go_on_calling, NULL);
	for (unsigned round = 0; round < 70; round++) {
		corrupt(&regions[round % REGIONS], 1 + round % 9 * 20);
		inspect();
		poll(NULL, 0, 2);
		if (round % 3 == 0)
			restore();
	}
	atomic_store(&done, true);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	works_again();
}
END_TEST

#define PROCESSES 3

/* Between the test and its children. */
struct stage {
	atomic_bool calm;   /* nobody damages anything any more */
	atomic_uint paused; /* children who know that */
	atomic_bool good;   /* the damage is undone */
};

static void wait_for(atomic_bool *flag)
{
	while (!atomic_load(flag))
		poll(NULL, 0, 1);
}

/* Calls on, while its segment changes; and when the bytes are good again, it is served. */
static void child_that_calls(struct stage *stage)
{
	resc_ticket ticket;

	alarm(50);
	while (!atomic_load(&stage->calm)) {
		call(resources[0]);
		repeat(resources[1]);
		call(resources[2]);
	}
	atomic_fetch_add(&stage->paused, 1);
	wait_for(&stage->good);
	for (unsigned i = 0; i < RESOURCES; i++) {
		sleepless_step();
		ck_assert_int_eq(resc_enter(resources[i], NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	}
	resc_close(host);
	_exit(0);
}

START_TEST(bytes_that_change_under_the_hands_of_processes)
{
	struct stage *stage = mmap(NULL, sizeof *stage, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[PROCESSES];

	alarm(50);
	ck_assert_ptr_ne(stage, MAP_FAILED);
	sleepless_meanwhile = NULL; /* rescd is one process */
	for (int i = 0; i < PROCESSES; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			child_that_calls(stage);
	}
	for (unsigned round = 0; round < 60; round++) {
		corrupt(&regions[round % REGIONS], 1 + round % 9 * 20);
		poll(NULL, 0, 2);
		if (round % 3 == 0)
			restore();
	}
	atomic_store(&stage->calm, true);
	while (atomic_load(&stage->paused) < PROCESSES)
		poll(NULL, 0, 1);
	restore();
	atomic_store(&stage->good, true);
	for (int i = 0; i < PROCESSES; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
	restore();
	works_again();
}
END_TEST

START_TEST(an_operator_on_a_bad_segment)
{
	alarm(50);
	for (unsigned round = 0; round < 12; round++) {
		corrupt(&regions[STATES], 1 + round % 3);
		sleepless_step();
		override_set(&n.map, 0, OVERRIDE_OPEN, 1000, "why");
		override_release(&n.map, 0, "why");
		override_reset(&n.map, 0, "why");
		restore();
	}
	works_again();
}
END_TEST

START_TEST(a_fork_on_a_bad_segment)
{
	for (unsigned round = 0; round < 2 * REGIONS; round++) {
		corrupt(&regions[round % REGIONS], 2);
		pid_t pid = fork();
		if (pid == 0) {
			alarm(20);
			call(resources[0]);
			repeat(resources[0]);
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
	const TTest *const tests[] = {
	        each_word_of_a_resource_is_bad_in_turn,
	        a_ticket_that_is_out_while_its_segment_goes_bad,
	        bytes_that_change_under_the_hands_of_threads,
	        bytes_that_change_under_the_hands_of_processes,
	        an_operator_on_a_bad_segment,
	        a_fork_on_a_bad_segment,
	};
	TCase *tcase = FIXTURE_CASE("corrupt", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, random_words_in_a_region, 0, REGIONS);
	tcase_add_loop_test(tcase, the_same_word_all_over_a_region, 0, REGIONS);
	return named_run(fixture_suite("corrupt", tcase));
}
