/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a permit: who waits is woken when there is something to take, nobody is handed anything that he could lose, and the queue has
 * room again for whatever reason somebody is no longer in it.
 *
 * Callers here do by hand what admission does. Whether somebody is asleep is seen in /proc; how long a sleep takes is only asked where a
 * slice is the point.
 */
#include "waiting.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "crowd.h"
#include "named.h"
#include "permit.h"
#include "random.h"
#include "worker.h"

#define LIMIT   8
#define QUEUE   8
#define LONG_MS 20000u
#define NS      UINT64_C(1000000)

static struct named n;

static struct policy with_limit(unsigned limit)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD;
	p.limit = limit;
	p.max_wait_ms = 100;
	p.max_waiting = QUEUE;
	return p;
}

static void set_up(void)
{
	struct policy p = with_limit(LIMIT);

	waiting_in_real_time = false;
	named_open(&n, &p);
}

static void tear_down(void)
{
	named_close(&n);
}

static uint64_t now_ns(void)
{
	return clock_read_ns(CLOCK_MONOTONIC);
}

/* ---- callers ---- */

/* A worker, as far as waiting is concerned. Its map is its own, and so its token. */
struct caller {
	struct map map;
	struct worker worker;
	struct state *state;
	uint32_t calls;
};

/* Without an assertion: one who is killed in the middle of such a message spoils it for all. */
static bool has_come(struct caller *c)
{
	memset(c, 0, sizeof *c);
	if (map_open(&c->map, n.path, MAP_WORKER, NULL) != 0 || worker_register(&c->map, &c->worker) != 0)
		return false;
	c->state = map_state(&c->map, n.index);
	return true;
}

static void come(struct caller *c)
{
	ck_assert(has_come(c));
}

static void go(struct caller *c)
{
	worker_unregister(&c->map, &c->worker);
	map_close(&c->map);
}

struct held {
	uint64_t permit;
	uint32_t cell;
};

static int take(struct caller *c, struct held *h)
{
	h->permit = permit_make(c->worker.life, ++c->calls);
	return permit_acquire(&c->map, c->state, h->permit, c->worker.slot, &h->cell);
}

static bool is_given_back(struct caller *c, const struct held *h)
{
	bool released = permit_release(&c->map, c->state, h->cell, h->permit);

	waiting_signal_next(&c->map, c->state);
	return released;
}

static void give(struct caller *c, const struct held *h)
{
	ck_assert(is_given_back(c, h));
}

static unsigned limit_now(void)
{
	return limit_target(fixture_load(&n.state->limit));
}

/* Asleep for a whole slice on a word that nobody has touched, beside a cell that stays free: nobody is going to wake us. */
static bool was_forgotten(const struct caller *c, uint32_t value)
{
	for (int i = 0; i < 3000; i++) {
		if ((uint32_t)fixture_load(&c->state->wait) != value || permit_occupied(&c->map, c->state) >= limit_now())
			return false;
		named_sleep_ms(1);
	}
	return true;
}

static struct waiting_shares all_may(uint64_t share)
{
	return (struct waiting_shares){{share, share, share}};
}

static bool is_turn(struct caller *c, uint64_t mine)
{
	const struct waiting_shares shares = all_may(limit_now());

	return waiting_is_turn(&c->map, c->state, mine, &shares, 0);
}

/* 0, RESC_E_FULL, RESC_E_QUEUE_FULL; -ETIME: a wake-up was lost. Nobody is passed here: who comes too late for his turn is waited for. */
static int take_or_wait(struct caller *c, struct held *h, uint32_t most, uint64_t ms)
{
	uint64_t end = now_ns() + ms * NS, now, slept = 0;
	uint32_t cell, value = 0;
	int r = waiting_is_nobody(c->state) || is_turn(c, waiting_make(c->worker.life, 1, 0)) ? take(c, h) : RESC_E_FULL;

	if (r != RESC_E_FULL)
		return r;
	uint64_t mine = waiting_make(c->worker.life, 1, waiting_draw(c->state));
	r = waiting_join(&c->map, c->state, mine, most, &cell);
	if (r != 0)
		return r;
	for (;;) {
		if (slept >= WAITING_SLICE_NS && was_forgotten(c, value)) {
			r = -ETIME;
			break;
		}
		value = waiting_announce(c->state);
		r = is_turn(c, mine) ? take(c, h) : RESC_E_FULL;
		now = now_ns();
		if (r != RESC_E_FULL || now >= end)
			break;
		waiting_sleep(c->state, value, waiting_bit(mine), end - now);
		slept = now_ns() - now;
	}
	waiting_leave(&c->map, c->state, cell, mine);
	return r;
}

static void fill(struct caller *c, struct held *held)
{
	for (int i = 0; i < LIMIT; i++)
		ck_assert_int_eq(take(c, &held[i]), 0);
}

/* ---- sleepers ---- */

enum { WOKEN, NOT_ASLEEP, TOO_LATE };

/* A process that says that it waits, and sleeps until it is woken; in one piece, so that no slice can pass for a wake-up. */
static pid_t sleeper(void)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		const struct timespec long_time = {.tv_sec = LONG_MS / 1000};
		uint32_t value = waiting_announce(n.state);
		if (syscall(SYS_futex, &n.state->wait, FUTEX_WAIT, value, &long_time, NULL, 0) == 0)
			_exit(WOKEN);
		_exit(errno == ETIMEDOUT ? TOO_LATE : NOT_ASLEEP);
	}
	return pid;
}

static char process_state(pid_t pid)
{
	char path[64], text[512] = "";

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return '?';
	if (read(fd, text, sizeof text - 1) < 0)
		text[0] = '\0';
	close(fd);
	const char *p = strrchr(text, ')');
	return p == NULL ? '?' : p[2];
}

/* It has announced itself and is in the kernel. */
static void until_asleep(pid_t pid)
{
	while ((fixture_load(&n.state->wait) & WAITING_BIT) == 0 || process_state(pid) != 'S')
		named_sleep_ms(1);
}

static pid_t fallen_asleep(void)
{
	pid_t pid = sleeper();

	until_asleep(pid);
	return pid;
}

static void expect_woken(pid_t pid)
{
	ck_assert_int_eq(fixture_wait(pid), WOKEN);
}

/* ---- the queue ---- */

START_TEST(no_more_wait_than_may)
{
	uint32_t cells[QUEUE + 1];

	for (uint32_t i = 0; i < QUEUE; i++) {
		ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, i), QUEUE, &cells[i]), 0);
		ck_assert_uint_eq(waiting_count(&n.map, n.state), i + 1);
	}
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, 99), QUEUE, &cells[QUEUE]), RESC_E_QUEUE_FULL);
	waiting_leave(&n.map, n.state, cells[3], permit_make(1, 3));
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, 99), QUEUE, &cells[QUEUE]), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), QUEUE);
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, 100), 0, &cells[0]), RESC_E_QUEUE_FULL);
}
END_TEST

START_TEST(the_queue_ends_with_the_segments_cells)
{
	uint32_t cell, waiting = n.map.dims.waiting;

	for (uint32_t i = 0; i < waiting; i++)
		ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, i), UINT32_MAX, &cell), 0);
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(2, 0), UINT32_MAX, &cell), RESC_E_QUEUE_FULL);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), waiting);
	/* The cells end where the next array begins. */
	ck_assert_ptr_eq(&map_waiting(&n.map, n.state)[waiting], map_calls(&n.map, n.state));
	ck_assert_uint_eq(fixture_load(map_calls(&n.map, n.state)), 0);
}
END_TEST

START_TEST(who_may_use_half_of_the_queue_is_refused_when_others_fill_it)
{
	uint32_t cells[QUEUE], cell;

	/* Four with a right to all of it wait in the second half; the first half is empty again. */
	for (uint32_t i = 0; i < QUEUE; i++)
		ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, i), QUEUE, &cells[i]), 0);
	for (uint32_t i = 0; i < QUEUE / 2; i++)
		waiting_leave(&n.map, n.state, cells[i], permit_make(1, i));
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(2, 0), QUEUE / 2, &cell), RESC_E_QUEUE_FULL);
	waiting_leave(&n.map, n.state, cells[QUEUE - 1], permit_make(1, QUEUE - 1));
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(2, 0), QUEUE / 2, &cell), 0);
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(2, 1), QUEUE / 2, &cell), RESC_E_QUEUE_FULL);
	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(1, 9), QUEUE, &cell), 0);
}
END_TEST

START_TEST(only_the_very_waiter_gives_its_place_back)
{
	uint32_t cell;

	ck_assert_int_eq(waiting_join(&n.map, n.state, permit_make(7, 1), QUEUE, &cell), 0);
	waiting_leave(&n.map, n.state, cell, permit_make(7, 2));
	waiting_leave(&n.map, n.state, cell, permit_make(8, 1));
	waiting_leave(&n.map, n.state, cell + 1, permit_make(7, 1));
	waiting_leave(&n.map, n.state, n.map.dims.waiting, permit_make(7, 1));
	waiting_leave(&n.map, n.state, UINT32_MAX, permit_make(7, 1));
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 1);
	waiting_leave(&n.map, n.state, cell, permit_make(7, 1));
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	waiting_leave(&n.map, n.state, cell, permit_make(7, 1));
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
}
END_TEST

/* ---- the line ---- */

enum { LOW = WAITING_LOW, NORMAL = WAITING_NORMAL, CRITICAL = WAITING_CRITICAL };

/* In the queue, with the next place. */
static uint64_t stands_of(uint32_t life, unsigned rank, uint32_t *cell)
{
	uint64_t mine = waiting_make(life, rank, waiting_draw(n.state));

	ck_assert_int_eq(waiting_join(&n.map, n.state, mine, QUEUE, cell), 0);
	return mine;
}

static uint64_t stands(unsigned rank, uint32_t *cell)
{
	static uint32_t life = 100;

	return stands_of(life++, rank, cell);
}

static bool has_turn_at(uint64_t mine, unsigned share, uint64_t ms)
{
	const struct waiting_shares shares = all_may(share);

	return waiting_is_turn(&n.map, n.state, mine, &shares, ms);
}

static bool has_turn(uint64_t mine, unsigned share)
{
	return has_turn_at(mine, share, 0);
}

START_TEST(so_many_have_their_turn_as_permits_are_free)
{
	const uint64_t newcomer = waiting_make(9, NORMAL, 0);
	uint64_t mine[4];
	uint32_t cells[4];
	struct caller c;
	struct held held[LIMIT];

	come(&c);
	ck_assert(waiting_is_nobody(n.state));
	fill(&c, held);
	for (int i = 0; i < 4; i++)
		mine[i] = stands(NORMAL, &cells[i]);
	ck_assert(!waiting_is_nobody(n.state));
	/* None is free: a look says so, and settles. */
	ck_assert(has_turn(mine[3], LIMIT) && has_turn(newcomer, LIMIT));
	give(&c, &held[0]);
	ck_assert(has_turn(mine[0], LIMIT));
	ck_assert(!has_turn(mine[1], LIMIT) && !has_turn(newcomer, LIMIT));
	give(&c, &held[1]);
	ck_assert(has_turn(mine[1], LIMIT) && !has_turn(mine[2], LIMIT));
	/* Of a share that is used up it is said by a look. */
	ck_assert(has_turn(mine[2], LIMIT - 2) && !has_turn(mine[2], LIMIT - 1));
	for (int i = 2; i < 5; i++)
		give(&c, &held[i]);
	ck_assert(has_turn(mine[3], LIMIT) && has_turn(newcomer, LIMIT));
	for (int i = 0; i < 4; i++)
		waiting_leave(&n.map, n.state, cells[i], mine[i]);
	ck_assert(waiting_is_nobody(n.state));
	go(&c);
}
END_TEST

START_TEST(a_higher_rank_stands_before_whoever_came_first)
{
	uint32_t cells[3];
	uint64_t low = stands(LOW, &cells[0]), normal = stands(NORMAL, &cells[1]), critical = stands(CRITICAL, &cells[2]);

	ck_assert(has_turn(critical, 1) && !has_turn(normal, 1) && !has_turn(low, 1));
	ck_assert(has_turn(normal, 2) && !has_turn(low, 2));
	ck_assert(has_turn(low, 3));
	/* Newcomers: behind all of their rank. */
	ck_assert(!has_turn(waiting_make(9, CRITICAL, 0), 1) && has_turn(waiting_make(9, CRITICAL, 0), 2));
	ck_assert(!has_turn(waiting_make(9, LOW, 0), 3) && has_turn(waiting_make(9, LOW, 0), 4));
}
END_TEST

START_TEST(a_rank_whose_share_is_used_up_stands_in_nobodys_way)
{
	const struct waiting_shares shares = {.of = {[LOW] = LIMIT, [NORMAL] = LIMIT / 2, [CRITICAL] = LIMIT}};
	struct caller c;
	struct held held;
	uint32_t cells[LIMIT];

	come(&c);
	for (int i = 0; i < LIMIT / 2; i++)
		ck_assert_int_eq(take(&c, &held), 0);
	/* As many as permits are free, and more. */
	for (int i = 0; i < LIMIT / 2 + 1; i++)
		stands(NORMAL, &cells[i]);
	ck_assert(waiting_is_turn(&n.map, n.state, waiting_make(9, LOW, 0), &shares, 0));
	ck_assert(!has_turn(waiting_make(9, LOW, 0), LIMIT));
	go(&c);
}
END_TEST

START_TEST(while_a_lowered_limit_settles_there_is_an_order_too)
{
	struct caller c;
	struct held held[LIMIT];
	uint32_t cells[2];

	come(&c);
	fill(&c, held);
	permit_set_limit(&n.map, n.state, LIMIT / 2);
	uint64_t first = stands(NORMAL, &cells[0]), second = stands(NORMAL, &cells[1]);
	/* One is left beyond the limit, and two below it. */
	for (unsigned i = 0; i < LIMIT; i++)
		if (held[i].cell != 0 && held[i].cell != 1 && held[i].cell != LIMIT - 1)
			give(&c, &held[i]);
	permit_settle(&n.map, n.state);
	ck_assert_uint_eq(permit_use(&n.map, n.state).held, 3);
	ck_assert_uint_eq(permit_use(&n.map, n.state).free, 1);
	ck_assert(has_turn(first, LIMIT / 2));
	ck_assert(!has_turn(second, LIMIT / 2));
	go(&c);
}
END_TEST

START_TEST(who_does_not_come_is_passed_by_those_behind_him_together)
{
	uint32_t cells[4];
	uint64_t stopped = stands_of(50, NORMAL, &cells[0]), too = stands_of(50, NORMAL, &cells[1]), third = stands(NORMAL, &cells[2]),
	         fourth = stands(NORMAL, &cells[3]);

	/* One begins to wait for it, and another finds that it was long enough; whatever happens to the word meanwhile. */
	ck_assert(!has_turn_at(third, 1, 100));
	waiting_announce(n.state);
	waiting_signal(n.state);
	ck_assert(!has_turn_at(waiting_make(9, NORMAL, 0), 1, 100 + WAITING_PATIENCE_MS - 1));
	ck_assert(!has_turn_at(fourth, 1, 100 + WAITING_PATIENCE_MS));
	/* The process is stopped, so its calls are passed at once; who was first behind it is not. */
	ck_assert_uint_eq(fixture_load(&n.state->passed), waiting_place(too));
	ck_assert(has_turn_at(third, 1, 100 + WAITING_PATIENCE_MS));
	/* Who was passed stands in nobody's way, and nobody in his. */
	ck_assert(has_turn(stopped, 1) && has_turn(too, 1));
	waiting_leave(&n.map, n.state, cells[2], third);
	ck_assert(has_turn_at(fourth, 1, 100 + WAITING_PATIENCE_MS));
}
END_TEST

START_TEST(who_looks_with_an_older_time_in_hand_does_not_pass)
{
	uint32_t cells[2];

	stands(NORMAL, &cells[0]);
	uint64_t second = stands(NORMAL, &cells[1]);
	ck_assert(!has_turn_at(second, 1, 1000));
	ck_assert(!has_turn_at(second, 1, 999));
	ck_assert(!has_turn_at(second, 1, 980));
	ck_assert(has_turn_at(second, 1, 1000 + WAITING_PATIENCE_MS));
}
END_TEST

START_TEST(nobody_is_passed_for_the_time_in_which_no_permit_was_free)
{
	struct caller c;
	struct held held;
	uint32_t cells[2];

	come(&c);
	stands(NORMAL, &cells[0]);
	uint64_t second = stands(NORMAL, &cells[1]);
	ck_assert(!has_turn_at(second, 1, 100));
	permit_set_limit(&n.map, n.state, 1);
	ck_assert_int_eq(take(&c, &held), 0);
	ck_assert(has_turn_at(second, 1, 101));
	give(&c, &held);
	ck_assert(!has_turn_at(second, 1, 500));
	ck_assert_uint_eq(fixture_load(&n.state->passed), 0);
	go(&c);
}
END_TEST

START_TEST(who_goes_wakes_the_others_where_a_permit_is_free)
{
	struct caller c;
	struct held held[LIMIT];
	uint32_t cells[2];

	come(&c);
	fill(&c, held);
	uint64_t first = stands(NORMAL, &cells[0]), second = stands(NORMAL, &cells[1]);
	uint32_t value = waiting_announce(n.state);
	/* Whoever gives one back wakes all, so there is nothing to do. */
	waiting_leave(&n.map, n.state, cells[0], first);
	ck_assert_uint_eq((uint32_t)fixture_load(&n.state->wait), value);
	first = stands(NORMAL, &cells[0]);
	give(&c, &held[0]);
	pid_t pid = fallen_asleep();
	waiting_leave(&n.map, n.state, cells[1], second);
	expect_woken(pid);
	/* Nobody is left. */
	value = waiting_announce(n.state);
	waiting_leave(&n.map, n.state, cells[0], first);
	ck_assert_uint_eq((uint32_t)fixture_load(&n.state->wait), value);
	go(&c);
}
END_TEST

START_TEST(any_bytes_where_the_line_should_be_are_put_right)
{
	static const uint64_t damage[] = {0, 1, PLACE_MASK, UINT32_MAX, UINT64_MAX / 2, UINT64_MAX};
	uint32_t cell;

	for (size_t i = 0; i < sizeof damage / sizeof damage[0]; i++)
		for (size_t j = 0; j < sizeof damage / sizeof damage[0]; j++) {
			fixture_store(&n.state->drawn, damage[i]);
			fixture_store(&n.state->passed, damage[j]);
			uint64_t mine = stands(NORMAL, &cell);
			ck_assert(has_turn(mine, 1));
			waiting_leave(&n.map, n.state, cell, mine);
			ck_assert_uint_eq(fixture_load(&n.state->passed), fixture_load(&n.state->drawn));
			/* A cell with any number is somebody who is passed, or before whom one has to be patient once. */
			fixture_store(&map_waiting(&n.map, n.state)[0], damage[i] | UINT64_C(1) << 32);
			mine = stands(NORMAL, &cell);
			fixture_store(&n.state->front, damage[j]);
			ck_assert(has_turn_at(mine, 1, 100) || has_turn_at(mine, 1, 100 + WAITING_PATIENCE_MS));
			waiting_leave(&n.map, n.state, cell, mine);
			fixture_store(&map_waiting(&n.map, n.state)[0], 0);
		}
}
END_TEST

START_TEST(a_view_that_is_gone_leaves_no_place_taken)
{
	resc *host = named_join(n.instance);
	struct resc_status status;
	uint32_t cells[2];

	named_lookup(host, "payments");
	resc_status(host, &status);
	uint64_t mine = permit_make((uint32_t)status.worker, 1), other = permit_make((uint32_t)status.worker + 1, 1);
	/* What is still there when the view ends goes with it, and nobody else's. */
	ck_assert_int_eq(waiting_join(&n.map, n.state, mine, QUEUE, &cells[0]), 0);
	ck_assert_int_eq(waiting_join(&n.map, n.state, other, QUEUE, &cells[1]), 0);
	resc_close(host);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 1);
}
END_TEST

/* ---- the word ---- */

START_TEST(where_nobody_has_waited_nobody_touches_the_word)
{
	struct caller c;
	struct held h;

	come(&c);
	ck_assert_int_eq(take(&c, &h), 0);
	give(&c, &h);
	waiting_wake_all(n.state);
	go(&c);
	ck_assert_uint_eq(fixture_load(&n.state->wait), 0);
}
END_TEST

START_TEST(a_wake_up_is_a_new_generation_without_the_bit)
{
	uint32_t first = waiting_announce(n.state);

	ck_assert_uint_eq(fixture_load(&n.state->wait), first);
	ck_assert_uint_eq(first & 1, 1);
	ck_assert_uint_eq(waiting_announce(n.state), first); /* the second waiter of a generation */
	waiting_signal(n.state);
	uint64_t after = fixture_load(&n.state->wait);
	ck_assert_uint_eq(after & 1, 0);
	ck_assert_uint_ne(after >> 1, first >> 1);
	waiting_signal(n.state); /* nobody waits: a load */
	ck_assert_uint_eq(fixture_load(&n.state->wait), after);
	uint32_t second = waiting_announce(n.state);
	ck_assert_uint_ne(second, first);
	waiting_wake_all(n.state); /* the bit is the waiters' */
	ck_assert_uint_eq(fixture_load(&n.state->wait) & 1, 1);
	ck_assert_uint_ne(fixture_load(&n.state->wait), second);
}
END_TEST

START_TEST(the_generation_wraps_inside_its_half_and_leaves_0_out)
{
	fixture_store(&n.state->wait, UINT32_MAX);
	waiting_signal(n.state);
	ck_assert_uint_eq(fixture_load(&n.state->wait), 2);
	fixture_store(&n.state->wait, UINT32_MAX - 1);
	waiting_wake_all(n.state);
	ck_assert_uint_eq(fixture_load(&n.state->wait), 2);
	fixture_store(&n.state->wait, UINT32_MAX);
	waiting_wake_all(n.state);
	ck_assert_uint_eq(fixture_load(&n.state->wait), 3);
	/* Damage in the other half is no generation. */
	fixture_store(&n.state->wait, UINT64_MAX);
	waiting_signal(n.state);
	ck_assert_uint_eq(fixture_load(&n.state->wait), 2);
}
END_TEST

START_TEST(a_value_that_has_moved_is_not_slept_on)
{
	uint32_t value = waiting_announce(n.state);

	waiting_signal(n.state);
	uint64_t began = now_ns();
	for (int i = 0; i < 100; i++)
		waiting_sleep(n.state, value, WAITING_ANY, 60 * 1000 * NS);
	ck_assert_uint_lt(now_ns() - began, 20 * WAITING_SLICE_NS); /* 100 slices would be 5 s */
}
END_TEST

START_TEST(a_sleep_is_a_slice_at_most_and_not_longer_than_was_asked)
{
	uint32_t value = waiting_announce(n.state);
	uint64_t began = now_ns();

	waiting_sleep(n.state, value, WAITING_ANY, UINT64_MAX);
	uint64_t took = now_ns() - began;
	ck_assert_uint_ge(took, WAITING_SLICE_NS);
	ck_assert_uint_lt(took, 40 * WAITING_SLICE_NS);
	began = now_ns();
	for (uint64_t i = 0; i < 20; i++)
		waiting_sleep(n.state, value, WAITING_ANY, i % 2);
	ck_assert_uint_lt(now_ns() - began, 10 * WAITING_SLICE_NS);
}
END_TEST

START_TEST(memory_that_is_gone_ends_the_sleep)
{
	struct state *gone = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	ck_assert_ptr_ne(gone, MAP_FAILED);
	munmap(gone, 1 << 16);
	waiting_sleep(gone, 1, WAITING_ANY, 10 * 1000 * NS);
}
END_TEST

/* ---- who wakes ---- */

START_TEST(who_gives_back_wakes_all_who_wait)
{
	struct caller c;
	struct held held[LIMIT];
	pid_t pids[4];

	come(&c);
	fill(&c, held);
	for (int i = 0; i < 4; i++)
		pids[i] = sleeper();
	for (int i = 0; i < 4; i++)
		until_asleep(pids[i]);
	give(&c, &held[0]);
	for (int i = 0; i < 4; i++)
		expect_woken(pids[i]);
	go(&c);
}
END_TEST

/* As sleeper(), with a place in line. It is a worker of its own, and dead when it was woken. */
static pid_t sleeper_in_line(void)
{
	unsigned before = waiting_count(&n.map, n.state);
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct caller c;
		uint32_t cell;
		come(&c);
		uint64_t mine = waiting_make(c.worker.life, 1, waiting_draw(n.state));
		if (waiting_join(&c.map, c.state, mine, QUEUE, &cell) != 0)
			_exit(NOT_ASLEEP);
		uint32_t value = waiting_announce(c.state);
		long r = syscall(SYS_futex, &c.state->wait, FUTEX_WAIT_BITSET, value, NULL, NULL, waiting_bit(mine));
		_exit(r == 0 ? WOKEN : NOT_ASLEEP);
	}
	while (waiting_count(&n.map, n.state) != before + 1)
		named_sleep_ms(1);
	until_asleep(pid);
	return pid;
}

START_TEST(of_a_long_line_the_first_is_woken_and_one_behind_him)
{
	struct caller c;
	struct held held[LIMIT];
	pid_t pids[4];

	come(&c);
	fill(&c, held);
	for (int i = 0; i < 4; i++)
		pids[i] = sleeper_in_line();
	give(&c, &held[0]);
	expect_woken(pids[0]);
	expect_woken(pids[1]);
	named_sleep_ms(20);
	ck_assert_int_eq(process_state(pids[2]), 'S');
	ck_assert_int_eq(process_state(pids[3]), 'S');
	/* So the next one who gives back has somebody to wake. */
	ck_assert_uint_eq(fixture_load(&n.state->wait) & WAITING_BIT, WAITING_BIT);
	/* Who reaps those who died at it wakes all. */
	worker_sweep(&n.map, c.worker.life);
	expect_woken(pids[2]);
	expect_woken(pids[3]);
	go(&c);
}
END_TEST

START_TEST(a_raised_limit_wakes)
{
	struct caller c;
	struct held held[LIMIT], more;
	struct policy p = with_limit(LIMIT + 1);

	come(&c);
	fill(&c, held);
	pid_t pid = fallen_asleep();
	named_reload(&n, &p);
	expect_woken(pid);
	ck_assert_int_eq(take(&c, &more), 0);
	go(&c);
}
END_TEST

START_TEST(a_segment_that_is_superseded_wakes)
{
	pid_t pid = fallen_asleep();

	permit_close(n.state);
	expect_woken(pid);
	uint64_t word_after = fixture_load(&n.state->wait);
	permit_close(n.state); /* movers close again and again */
	ck_assert_uint_eq(fixture_load(&n.state->wait), word_after);
}
END_TEST

START_TEST(a_worker_that_leaves_wakes)
{
	struct caller c;
	struct held held[LIMIT];

	come(&c);
	fill(&c, held);
	pid_t pid = fallen_asleep();
	go(&c);
	expect_woken(pid);
}
END_TEST

START_TEST(who_takes_a_cell_beyond_a_lowered_limit_and_gives_it_back_wakes)
{
	struct policy p = with_limit(LIMIT / 2);
	pid_t pid = fork();

	if (pid == 0) {
		struct caller slow;
		struct held h;
		come(&slow);
		/* Dead before it raises the limit, which would wake too. */
		failpoint_set("permit.taken@1=stop,limit.settle=kill");
		h.permit = permit_make(slow.worker.life, 1);
		permit_acquire(&slow.map, slow.state, h.permit, LIMIT - 1, &h.cell);
		_exit(1);
	}
	struct puppet slow = {pid, -1, -1};
	puppet_wait_stopped(&slow);
	named_reload(&n, &p);
	/* With that cell taken, one fewer may come in. */
	struct caller c;
	struct held h;
	come(&c);
	for (int i = 0; i < LIMIT / 2 - 1; i++)
		ck_assert_int_eq(take(&c, &h), 0);
	ck_assert_int_eq(take(&c, &h), RESC_E_FULL);
	pid_t waiter = fallen_asleep();
	kill(pid, SIGCONT);
	expect_woken(waiter);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	go(&c);
}
END_TEST

/* ---- deaths ---- */

START_TEST(C1_the_death_of_a_holder_wakes_when_it_is_reaped)
{
	pid_t holder = fork();

	if (holder == 0) {
		struct caller c;
		struct held held[LIMIT];
		come(&c);
		fill(&c, held);
		pause();
	}
	while (permit_occupied(&n.map, n.state) < LIMIT)
		named_sleep_ms(1);
	pid_t waiter = fallen_asleep();
	kill(holder, SIGKILL);
	ck_assert_int_eq(fixture_wait(holder), -SIGKILL);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	expect_woken(waiter);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

START_TEST(C1_a_waiter_that_is_killed_at_any_step_leaves_nothing)
{
	static const char *const points[] = {"waiting.joined=kill", "waiting.announced=kill", "waiting.sleep=kill",
	                                     "waiting.announced@2=kill"};
	struct caller c;
	struct held held[LIMIT], h;

	come(&c);
	fill(&c, held);
	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct caller mine;
			come(&mine);
			failpoint_set(points[i]);
			take_or_wait(&mine, &h, QUEUE, LONG_MS);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
		ck_assert_uint_eq(waiting_count(&n.map, n.state), 1);
		ck_assert_uint_eq(worker_sweep(&n.map, c.worker.life), 1);
		ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	}
	/* What comes free later is for the living. */
	for (int i = 0; i < LIMIT; i++)
		give(&c, &held[i]);
	for (int i = 0; i < LIMIT; i++)
		ck_assert_int_eq(take(&c, &h), 0);
	go(&c);
}
END_TEST

START_TEST(C1_a_queue_of_the_dead_has_room_after_a_sweep)
{
	struct caller c;
	uint32_t cell;

	come(&c);
	for (int i = 0; i < QUEUE; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct caller mine;
			come(&mine);
			_exit(waiting_join(&mine.map, mine.state, permit_make(mine.worker.life, 1), QUEUE, &cell));
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
	}
	ck_assert_int_eq(waiting_join(&c.map, c.state, permit_make(c.worker.life, 1), QUEUE, &cell), RESC_E_QUEUE_FULL);
	ck_assert(worker_sweep_maybe(&c.map, c.state, 100000, c.worker.life));
	ck_assert_int_eq(waiting_join(&c.map, c.state, permit_make(c.worker.life, 1), QUEUE, &cell), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 1);
	go(&c);
}
END_TEST

START_TEST(a_releaser_that_dies_before_it_wakes_is_made_up_for_by_its_reaper)
{
	static const char *const points[] = {"signal.freed=kill", "signal.moved=kill"};

	for (size_t i = 0; i < 2; i++) {
		int gate[2];
		char byte;
		ck_assert_int_eq(pipe(gate), 0);
		pid_t releaser = fork();
		if (releaser == 0) {
			struct caller c;
			struct held held[LIMIT];
			come(&c);
			fill(&c, held);
			failpoint_set(points[i]);
			if (read(gate[0], &byte, 1) == 1)
				give(&c, &held[0]);
			_exit(0);
		}
		while (permit_occupied(&n.map, n.state) < LIMIT)
			named_sleep_ms(1);
		pid_t waiter = fallen_asleep();
		ck_assert_int_eq(write(gate[1], "x", 1), 1);
		ck_assert_int_eq(fixture_wait(releaser), -SIGKILL);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), LIMIT - 1);
		ck_assert_int_eq(process_state(waiter), 'S');
		ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
		expect_woken(waiter);
		close(gate[0]);
		close(gate[1]);
	}
}
END_TEST

START_TEST(a_reaper_that_dies_before_it_wakes_is_made_up_for_by_the_next)
{
	static const char *const points[] = {"reap.permit@1=kill", "reap.waiting=kill", "signal.moved=kill", "reap.cells=kill"};

	for (size_t i = 0; i < sizeof points / sizeof points[0]; i++) {
		pid_t holder = fork();
		if (holder == 0) {
			struct caller c;
			struct held held[LIMIT];
			come(&c);
			fill(&c, held);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(holder), 0);
		pid_t waiter = fallen_asleep();
		pid_t reaper = fork();
		if (reaper == 0) {
			failpoint_set(points[i]);
			worker_sweep(&n.map, 0);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(reaper), -SIGKILL);
		ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
		expect_woken(waiter);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	}
}
END_TEST

START_TEST(a_releaser_that_is_stopped_before_it_wakes_costs_a_slice)
{
	int gate[2];
	char byte;
	struct caller c;
	struct held h;

	ck_assert_int_eq(pipe(gate), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct caller holder;
		struct held held[LIMIT];
		come(&holder);
		fill(&holder, held);
		failpoint_set("signal.freed=stop");
		if (read(gate[0], &byte, 1) == 1)
			give(&holder, &held[0]);
		pause();
	}
	while (permit_occupied(&n.map, n.state) < LIMIT)
		named_sleep_ms(1);
	pid_t waiter = fork();
	if (waiter == 0) {
		come(&c);
		uint64_t began = now_ns();
		uint32_t place;
		int r = waiting_join(&c.map, c.state, permit_make(c.worker.life, 1), QUEUE, &place);
		while (r == 0 && take(&c, &h) != 0 && now_ns() - began < LONG_MS * NS)
			waiting_sleep(c.state, waiting_announce(c.state), WAITING_ANY, LONG_MS * NS);
		_exit(r == 0 && now_ns() - began < LONG_MS / 2 * NS ? 0 : 1);
	}
	until_asleep(waiter);
	ck_assert_int_eq(write(gate[1], "x", 1), 1);
	ck_assert_int_eq(fixture_wait(waiter), 0);
	struct puppet stopped = {pid, gate[0], gate[1]};
	puppet_wait_stopped(&stopped);
	puppet_kill(&stopped);
}
END_TEST

/* ---- giving up ---- */

START_TEST(C3_waiters_that_time_out_get_nothing_and_take_nothing_along)
{
	struct caller c;
	struct held held[LIMIT], again[LIMIT + 1];
	pid_t pids[QUEUE];

	come(&c);
	fill(&c, held);
	for (int i = 0; i < QUEUE; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		struct caller mine;
		struct held h;
		come(&mine);
		int r = take_or_wait(&mine, &h, QUEUE, 50);
		go(&mine);
		_exit(r);
	}
	for (int i = 0; i < QUEUE; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), RESC_E_FULL);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	for (int i = 0; i < LIMIT; i++)
		give(&c, &held[i]);
	for (int i = 0; i < LIMIT; i++)
		ck_assert_int_eq(take(&c, &again[i]), 0);
	ck_assert_int_eq(take(&c, &again[LIMIT]), RESC_E_FULL);
	go(&c);
}
END_TEST

/* ---- through resc_enter ---- */

/* limit 4, of which low priority may use half; who waits does so until the test moves the clock. */
static struct policy with_low(void)
{
	struct policy p = with_limit(4);

	p.max_wait_ms = 1000;
	p.low_ppm = 500000;
	return p;
}

static int enter_as(resc_resource *pay, enum resc_priority priority, resc_ticket *ticket)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = priority;
	return resc_enter(pay, &options, ticket);
}

/* A worker process that enters once, and exits with the answer, holding what it has got. */
static pid_t enters(enum resc_priority priority)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		resc_ticket ticket;
		_exit(enter_as(named_lookup(named_join(n.instance), "payments"), priority, &ticket));
	}
	return pid;
}

static void until_waiting(unsigned count)
{
	while (waiting_count(&n.map, n.state) != count)
		named_sleep_ms(1);
}

struct room {
	resc *host;
	resc_resource *pay;
	resc_ticket tickets[4];
};

/* The test's own calls: so many are inside. */
static void occupy(struct room *room, unsigned count)
{
	const struct policy p = with_low();

	named_reload(&n, &p);
	room->host = named_join(n.instance);
	room->pay = named_lookup(room->host, "payments");
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(enter_as(room->pay, RESC_NORMAL, &room->tickets[i]), 0);
}

START_TEST(a_call_that_waits_gets_what_comes_free)
{
	struct room room;

	occupy(&room, 4);
	pid_t pid = enters(RESC_NORMAL);
	until_waiting(1);
	until_asleep(pid);
	ck_assert_int_eq(resc_leave(&room.tickets[2], RESC_OK), 0);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.admitted, 5);
	ck_assert_uint_eq(r.counters.waited, 1);
	ck_assert_uint_eq(r.counters.refused_full, 0);
	resc_close(room.host);
}
END_TEST

/* Waits in line. */
static pid_t comes(enum resc_priority priority)
{
	unsigned before = waiting_count(&n.map, n.state);
	pid_t pid = enters(priority);

	until_waiting(before + 1);
	return pid;
}

static pid_t comes_and_is_stopped(void)
{
	pid_t pid = comes(RESC_NORMAL);

	until_asleep(pid);
	kill(pid, SIGSTOP);
	while (process_state(pid) != 'T')
		named_sleep_ms(1);
	return pid;
}

START_TEST(who_waits_comes_in_by_priority_and_then_in_the_order_of_arrival)
{
	enum { WAITERS = 6 };
	static const struct {
		enum resc_priority priority;
		int turn;
	} waiters[WAITERS] = {{RESC_LOW, 4}, {RESC_NORMAL, 2}, {RESC_LOW, 5}, {RESC_CRITICAL, 0}, {RESC_CRITICAL, 1}, {RESC_NORMAL, 3}};
	struct policy p = with_low();
	struct room room;
	pid_t pids[WAITERS];

	/* Each writes down that it is in while it is. */
	_Atomic int *in = mmap(NULL, SEGMENT_PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(in, MAP_FAILED);
	occupy(&room, 1);
	p.limit = 1;
	named_reload(&n, &p);
	permit_set_limit(&n.map, n.state, 1);
	for (int i = 0; i < WAITERS; i++) {
		pids[i] = fork();
		if (pids[i] == 0) {
			resc_ticket ticket;
			int r = enter_as(named_lookup(named_join(n.instance), "payments"), waiters[i].priority, &ticket);
			in[1 + atomic_fetch_add(&in[0], 1)] = i;
			_exit(r);
		}
		until_waiting((unsigned)i + 1);
	}
	ck_assert_int_eq(resc_leave(&room.tickets[0], RESC_OK), 0);
	for (int i = 0; i < WAITERS; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
	for (int i = 0; i < WAITERS; i++)
		ck_assert_int_eq(waiters[in[1 + i]].turn, i);
	munmap((void *)in, SEGMENT_PAGE);
	resc_close(room.host);
}
END_TEST

START_TEST(a_newcomer_does_not_go_before_who_waits_and_passes_who_does_not_come)
{
	struct room room;
	resc_ticket ticket;

	occupy(&room, 4);
	pid_t stopped = comes_and_is_stopped();
	ck_assert_int_eq(resc_leave(&room.tickets[0], RESC_OK), 0);
	pid_t newcomer = comes(RESC_NORMAL);
	named_sleep_ms(120); /* some slices, but the clock stands still */
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 2);
	ck_assert_uint_eq(fixture_load(&n.state->passed), 0);
	/* Somebody of a higher rank does not stand behind them. */
	ck_assert_int_eq(enter_as(room.pay, RESC_CRITICAL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	/* In several steps: patience begins anew where somebody was woken. */
	for (unsigned ms = 1000; waiting_count(&n.map, n.state) == 2; named_sleep_ms(60))
		named_at(&n, ms += WAITING_SLICE_NS / NS);
	ck_assert_int_eq(fixture_wait(newcomer), 0);
	/* Only once: who comes now does not wait. */
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(fixture_load(&n.state->passed), 2);
	ck_assert_int_eq(enter_as(room.pay, RESC_NORMAL, &ticket), 0);
	ck_assert_uint_eq(named_look(&n).counters.waited, 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	/* It has lost its place, and comes in when it goes on. */
	kill(stopped, SIGCONT);
	ck_assert_int_eq(fixture_wait(stopped), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	resc_close(room.host);
}
END_TEST

START_TEST(a_newcomer_goes_past_a_full_line_only_where_nobody_in_it_comes)
{
	struct policy p = with_low();
	struct room room;
	pid_t stopped[2];

	occupy(&room, 4);
	p.max_waiting = 2;
	named_reload(&n, &p);
	for (int i = 0; i < 2; i++)
		stopped[i] = comes_and_is_stopped();
	ck_assert_int_eq(enter_as(room.pay, RESC_NORMAL, &(resc_ticket){0}), RESC_E_QUEUE_FULL);
	ck_assert_int_eq(resc_leave(&room.tickets[0], RESC_OK), 0);
	/* They may be on their way; each has its time. */
	for (unsigned ms = 1000; ms <= 1000 + WAITING_PATIENCE_MS; ms += WAITING_PATIENCE_MS) {
		named_at(&n, ms);
		ck_assert_int_eq(enter_as(room.pay, RESC_NORMAL, &(resc_ticket){0}), RESC_E_QUEUE_FULL);
	}
	named_at(&n, 1000 + 2 * WAITING_PATIENCE_MS);
	ck_assert_int_eq(enter_as(room.pay, RESC_NORMAL, &room.tickets[0]), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(resc_leave(&room.tickets[i], RESC_OK), 0);
		kill(stopped[i], SIGCONT);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fixture_wait(stopped[i]), 0);
	resc_close(room.host);
}
END_TEST

/* The first number lets a call of two pass a throttle that refuses every other one; the next five would not. */
static uint64_t seed_that_passes_once(void)
{
	for (uint64_t seed = 1;; seed++) {
		unsigned refused = 0;
		resc_seed(seed);
		if (random_below(1000000) < 500000)
			continue;
		while (refused < 5 && random_below(1000000) < 500000)
			refused++;
		if (refused == 5)
			return seed;
	}
}

START_TEST(who_waits_is_not_throttled_again_at_each_look)
{
	struct room room;
	struct policy p = with_low();

	occupy(&room, 4);
	p.flags |= POLICY_THROTTLE;
	named_reload(&n, &p);
	fixture_store(&n.state->throttle, throttle_make(1000, 0, 500000));
	pid_t pid = fork();
	if (pid == 0) {
		resc_ticket ticket;
		resc_resource *pay = named_lookup(named_join(n.instance), "payments");
		resc_seed(seed_that_passes_once());
		_exit(enter_as(pay, RESC_NORMAL, &ticket));
	}
	until_waiting(1);
	until_asleep(pid);
	ck_assert_int_eq(resc_leave(&room.tickets[2], RESC_CANCELLED), 0); /* the throttle does not count it */
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(named_look(&n).counters.refused_throttled, 0);
	resc_close(room.host);
}
END_TEST

START_TEST(who_waits_is_counted_once_by_a_throttle_in_shadow_mode)
{
	struct room room;
	struct policy p = with_low();

	occupy(&room, 4);
	p.flags |= POLICY_THROTTLE | POLICY_SHADOW_THROTTLE;
	named_reload(&n, &p);
	fixture_store(&n.state->throttle, throttle_make(1000, 0, 999999));
	pid_t pid = enters(RESC_NORMAL);
	until_waiting(1);
	until_asleep(pid);
	/* What it was told first is what counts. */
	fixture_store(&n.state->throttle, throttle_make(1000, 0, 0));
	ck_assert_int_eq(resc_leave(&room.tickets[2], RESC_CANCELLED), 0);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(named_look(&n).counters.would_throttle, 1);
	resc_close(room.host);
}
END_TEST

START_TEST(C3_calls_that_wait_in_vain_leave_all_permits_to_those_who_come_later)
{
	struct room room;
	pid_t pids[QUEUE], more;
	resc_ticket late[4];

	occupy(&room, 4);
	for (int i = 0; i < QUEUE; i++)
		pids[i] = enters(RESC_NORMAL);
	until_waiting(QUEUE);
	more = enters(RESC_NORMAL);
	ck_assert_int_eq(fixture_wait(more), RESC_E_QUEUE_FULL);
	named_at(&n, 2000);
	for (int i = 0; i < QUEUE; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), RESC_E_FULL);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(resc_leave(&room.tickets[i], RESC_OK), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter_as(room.pay, RESC_NORMAL, &late[i]), 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.refused_full, QUEUE);
	ck_assert_uint_eq(r.counters.refused_queue_full, 1);
	ck_assert_uint_eq(r.counters.admitted, 8);
	resc_close(room.host);
}
END_TEST

START_TEST(who_waits_for_the_share_of_its_priority_wakes_nobody)
{
	struct room room;

	occupy(&room, 2);
	pid_t first = enters(RESC_LOW), second = enters(RESC_LOW);
	until_waiting(2);
	until_asleep(first);
	until_asleep(second);
	uint64_t before = fixture_load(&n.state->wait);
	named_sleep_ms(200); /* some slices: there are free cells, but not for them */
	ck_assert_uint_eq(fixture_load(&n.state->wait), before);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 2);
	/* One may come in; what it holds is a dead worker's then, so the other follows when it is reaped. */
	ck_assert_int_eq(resc_leave(&room.tickets[0], RESC_OK), 0);
	int status;
	pid_t one = wait(&status);
	ck_assert(one == first || one == second);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
	worker_sweep(&n.map, 0);
	ck_assert_int_eq(fixture_wait(one == first ? second : first), 0);
	resc_close(room.host);
}
END_TEST

START_TEST(C1_a_share_that_the_dead_have_filled_is_free_again_without_rescd)
{
	struct room room;
	struct policy p = with_low();
	resc_ticket ticket;

	occupy(&room, 0);
	p.max_wait_ms = 0;
	named_reload(&n, &p);
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(fixture_wait(enters(RESC_LOW)), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 2);
	/* Calls look for the dead at most once in an interval. */
	named_sleep_ms(SWEEP_INTERVAL_MS + 20);
	ck_assert_int_eq(enter_as(room.pay, RESC_LOW, &ticket), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	resc_close(room.host);
}
END_TEST

START_TEST(C1_the_last_look_of_a_call_finds_the_dead_and_has_what_they_left)
{
	struct room room;

	occupy(&room, 0);
	pid_t holder = fork();
	if (holder == 0) {
		occupy(&room, 4);
		pause();
	}
	while (permit_occupied(&n.map, n.state) < 4)
		named_sleep_ms(1);
	failpoint_set("enter.announced@1=stop,enter.announced@2=stop");
	pid_t pid = enters(RESC_NORMAL);
	failpoint_set("");
	struct puppet waiter = {pid, -1, -1};
	puppet_wait_stopped(&waiter);
	kill(holder, SIGKILL);
	ck_assert_int_eq(fixture_wait(holder), -SIGKILL);
	/* Somebody else has looked for the dead just now; then the wait is over. */
	named_at(&n, 3000);
	fixture_store(&n.state->swept_ms, clock_read_ns(CLOCK_MONOTONIC_COARSE) / NS);
	kill(pid, SIGCONT);
	puppet_wait_stopped(&waiter);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 4);
	named_sleep_ms(SWEEP_INTERVAL_MS + 20);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
}
END_TEST

START_TEST(C1_a_call_that_waits_finds_the_dead_without_rescd)
{
	struct room room;
	pid_t pids[4];

	occupy(&room, 0);
	for (int i = 0; i < 4; i++)
		pids[i] = enters(RESC_NORMAL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 4);
	ck_assert_int_eq(fixture_wait(enters(RESC_NORMAL)), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	resc_close(room.host);
}
END_TEST

/* ---- many at once ---- */

#define STRESS_LIMIT 2

struct stress {
	struct crowd crowd;
	_Atomic unsigned done;
	_Atomic unsigned lost; /* wake-ups, and permits that were another's when they were given back */
	_Atomic unsigned refused;
};

static struct stress *stress; /* shared with children */

static void with_stress(void)
{
	struct policy p = with_limit(STRESS_LIMIT);

	named_reload(&n, &p);
	stress = mmap(NULL, sizeof *stress, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ck_assert_ptr_ne(stress, MAP_FAILED);
}

/* A generator of its own, so that a seed says what a caller does. */
static unsigned dice(unsigned *seed, unsigned below)
{
	*seed = *seed * 1664525u + 1013904223u;
	return (*seed >> 8) % below;
}

static void in_and_out(struct caller *c, unsigned *seed)
{
	struct held h;
	int r = take_or_wait(c, &h, QUEUE, LONG_MS);

	if (r != 0) {
		atomic_fetch_add(r == -ETIME ? &stress->lost : &stress->refused, 1);
		return;
	}
	crowd_enter(&stress->crowd);
	for (unsigned i = dice(seed, 400); i > 0; i--)
		atomic_signal_fence(memory_order_seq_cst);
	sched_yield();
	crowd_leave(&stress->crowd);
	if (!is_given_back(c, &h))
		atomic_fetch_add(&stress->lost, 1);
	atomic_fetch_add(&stress->done, 1);
}

#define STRESS_THREADS 4
#define STRESS_ROUNDS  1500u

static void *stress_thread(void *arg)
{
	unsigned seed = *(unsigned *)arg;
	/* The fixture's own map, so that a sanitizer sees that all of them use the same memory. */
	struct caller c = {.map = n.map, .worker = {.life = seed + 1, .slot = seed}, .state = n.state};

	for (unsigned i = 0; i < STRESS_ROUNDS; i++)
		in_and_out(&c, &seed);
	return NULL;
}

START_TEST(no_wake_up_is_lost_among_threads)
{
	pthread_t threads[STRESS_THREADS];
	unsigned seeds[STRESS_THREADS];

	with_stress();
	for (unsigned i = 0; i < STRESS_THREADS; i++) {
		seeds[i] = i;
		ck_assert_int_eq(pthread_create(&threads[i], NULL, stress_thread, &seeds[i]), 0);
	}
	for (unsigned i = 0; i < STRESS_THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&stress->lost), 0);
	ck_assert_uint_eq(atomic_load(&stress->refused), 0);
	ck_assert_uint_eq(atomic_load(&stress->done), STRESS_THREADS * STRESS_ROUNDS);
	ck_assert_uint_le(crowd_most(&stress->crowd), STRESS_LIMIT);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
	ck_assert_uint_gt(fixture_load(&n.state->wait) / 2, STRESS_ROUNDS / 10); /* they did wait */
}
END_TEST

static pid_t stress_child(unsigned seed)
{
	pid_t pid = fork();

	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		struct caller c;
		if (!has_come(&c))
			_exit(1);
		for (;;)
			in_and_out(&c, &seed);
	}
	return pid;
}

START_TEST(C1_killed_anywhere_holders_and_waiters_leave_the_others_working)
{
	pid_t pids[6];
	unsigned seed = 20;

	with_stress();
	for (unsigned i = 0; i < 6; i++)
		pids[i] = stress_child(i);
	for (unsigned i = 0; i < 60; i++) {
		unsigned victim = dice(&seed, 6), before = atomic_load(&stress->done);
		const struct timespec pause_for = {.tv_nsec = dice(&seed, 3000) * 1000L};
		nanosleep(&pause_for, NULL);
		kill(pids[victim], SIGKILL);
		ck_assert_int_eq(fixture_wait(pids[victim]), -SIGKILL);
		worker_sweep(&n.map, 0);
		pids[victim] = stress_child(i + 6);
		while (atomic_load(&stress->done) == before)
			named_sleep_ms(1);
	}
	for (unsigned i = 0; i < 6; i++) {
		kill(pids[i], SIGKILL);
		ck_assert_int_eq(fixture_wait(pids[i]), -SIGKILL);
	}
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(atomic_load(&stress->lost), 0);
	ck_assert_uint_eq(atomic_load(&stress->refused), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	ck_assert_uint_eq(waiting_count(&n.map, n.state), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        no_more_wait_than_may,
	        the_queue_ends_with_the_segments_cells,
	        who_may_use_half_of_the_queue_is_refused_when_others_fill_it,
	        only_the_very_waiter_gives_its_place_back,
	        so_many_have_their_turn_as_permits_are_free,
	        a_higher_rank_stands_before_whoever_came_first,
	        a_rank_whose_share_is_used_up_stands_in_nobodys_way,
	        while_a_lowered_limit_settles_there_is_an_order_too,
	        who_does_not_come_is_passed_by_those_behind_him_together,
	        who_looks_with_an_older_time_in_hand_does_not_pass,
	        nobody_is_passed_for_the_time_in_which_no_permit_was_free,
	        who_goes_wakes_the_others_where_a_permit_is_free,
	        any_bytes_where_the_line_should_be_are_put_right,
	        a_view_that_is_gone_leaves_no_place_taken,
	        where_nobody_has_waited_nobody_touches_the_word,
	        a_wake_up_is_a_new_generation_without_the_bit,
	        the_generation_wraps_inside_its_half_and_leaves_0_out,
	        a_value_that_has_moved_is_not_slept_on,
	        a_sleep_is_a_slice_at_most_and_not_longer_than_was_asked,
	        memory_that_is_gone_ends_the_sleep,
	        who_gives_back_wakes_all_who_wait,
	        of_a_long_line_the_first_is_woken_and_one_behind_him,
	        a_raised_limit_wakes,
	        a_segment_that_is_superseded_wakes,
	        a_worker_that_leaves_wakes,
	        who_takes_a_cell_beyond_a_lowered_limit_and_gives_it_back_wakes,
	        C1_the_death_of_a_holder_wakes_when_it_is_reaped,
	        C1_a_waiter_that_is_killed_at_any_step_leaves_nothing,
	        C1_a_queue_of_the_dead_has_room_after_a_sweep,
	        a_releaser_that_dies_before_it_wakes_is_made_up_for_by_its_reaper,
	        a_reaper_that_dies_before_it_wakes_is_made_up_for_by_the_next,
	        a_releaser_that_is_stopped_before_it_wakes_costs_a_slice,
	        C3_waiters_that_time_out_get_nothing_and_take_nothing_along,
	        a_call_that_waits_gets_what_comes_free,
	        who_waits_comes_in_by_priority_and_then_in_the_order_of_arrival,
	        a_newcomer_does_not_go_before_who_waits_and_passes_who_does_not_come,
	        a_newcomer_goes_past_a_full_line_only_where_nobody_in_it_comes,
	        who_waits_is_not_throttled_again_at_each_look,
	        who_waits_is_counted_once_by_a_throttle_in_shadow_mode,
	        C3_calls_that_wait_in_vain_leave_all_permits_to_those_who_come_later,
	        who_waits_for_the_share_of_its_priority_wakes_nobody,
	        C1_a_share_that_the_dead_have_filled_is_free_again_without_rescd,
	        C1_the_last_look_of_a_call_finds_the_dead_and_has_what_they_left,
	        C1_a_call_that_waits_finds_the_dead_without_rescd,
	        no_wake_up_is_lost_among_threads,
	        C1_killed_anywhere_holders_and_waiters_leave_the_others_working,
	};

	return NAMED_RUN("waiting", tests, set_up, tear_down);
}
