/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys: who is first, what the others are told, what a death at each step leaves, and how keys come into a successor.
 * Two hosts in one process are two workers; what has to die is a process of its own (a hand).
 */
#include <errno.h>
#include <pthread.h>

#include "host.h"
#include "keys.h"
#include "named.h"
#include "once.h"
#include "record.h"
#include "worker.h"

static struct named n;
static resc *host, *other_host;
static resc_resource *pay, *other;

static struct policy policy(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_ONCE;
	p.once_ttl_ms = 10000;
	return p;
}

static const struct segment_dims small = {
        .resources = 4, .workers = 16, .permits = 64, .shards = 8, .events = 64, .calls = 64, .waiting = 64, .once = ONCE_SET};

static void set_up(void)
{
	struct policy p = policy();

	named_open_with(&n, &small, &p);
	host = named_join(n.instance);
	pay = named_lookup(host, "payments");
	other_host = named_join(n.instance);
	other = named_lookup(other_host, "payments");
}

static void tear_down(void)
{
	resc_close(host);
	resc_close(other_host);
	named_close(&n);
}

static struct resc_counters counters(void)
{
	struct resc_counters c;

	ck_assert_int_eq(resc_counters(pay, &c), 0);
	return c;
}

static struct once_usage usage(void)
{
	struct once_usage u;

	once_usage(&n.map, &u);
	return u;
}

static void reload(void (*change)(struct policy *))
{
	struct policy p = policy();

	change(&p);
	named_reload(&n, &p);
}

static void free_on_death(struct policy *p)
{
	p->once_on_death = ON_DEATH_FREE;
}
static void waits(struct policy *p)
{
	p->once_max_wait_ms = 60000;
}
static void shadow(struct policy *p)
{
	p->flags |= POLICY_SHADOW_ONCE;
}
static void without(struct policy *p)
{
	p->flags &= ~(uint64_t)POLICY_ONCE;
}

/* ---- the answers ---- */

START_TEST(first_then_busy_then_the_stored_answer)
{
	resc_once once, again;

	ck_assert_int_eq(begin(pay, "order-1", &once), 0);
	ck_assert_int_eq(begin(other, "order-1", &again), RESC_ONCE_BUSY);
	ck_assert_int_eq(begin(pay, "order-1", &again), RESC_ONCE_BUSY); /* by the same worker too */
	ck_assert_uint_eq(usage().working, 1);
	ck_assert_int_eq(resc_once_done(&once, "paid", 4), 0);
	expect_answer(other, "order-1", "paid");
	expect_answer(pay, "order-1", "paid");
	struct resc_counters c = counters();
	ck_assert_uint_eq(c.once_first, 1);
	ck_assert_uint_eq(c.once_busy, 2);
	ck_assert_uint_eq(c.once_done, 1);
	ck_assert_uint_eq(c.once_replayed, 2);
	ck_assert_uint_eq(usage().working, 0);
	ck_assert_uint_eq(usage().done, 1);
	ck_assert_uint_eq(usage().size, ONCE_SET);
}
END_TEST

START_TEST(an_abandoned_key_is_free_at_once)
{
	resc_once once;

	ck_assert_int_eq(begin(pay, "order-1", &once), 0);
	ck_assert_int_eq(resc_once_abandon(&once), 0);
	ck_assert_uint_eq(usage().working, 0);
	do_it(other, "order-1", "x");
}
END_TEST

START_TEST(keys_of_any_bytes_and_answers_of_any_size)
{
	unsigned char key[RESC_ONCE_KEY_MAX + 1], answer[RESC_ONCE_ANSWER_MAX + 1];
	const size_t sizes[] = {1, 7, 8, 9, 63, 64, 254, RESC_ONCE_KEY_MAX};
	const size_t answers[] = {0, 1, 7, 8, 9, 511, RESC_ONCE_ANSWER_MAX, 100};
	resc_once once;

	/* Each is the beginning of the next, with bytes that end text. */
	for (size_t i = 0; i < sizeof key; i++)
		key[i] = (unsigned char)(i * 37);
	for (size_t i = 0; i < sizeof answer; i++)
		answer[i] = (unsigned char)(255 - i);
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(resc_once_begin(pay, key, sizes[i], NULL, &once), 0);
		ck_assert_int_eq(resc_once_done(&once, answer + i % 2, answers[i]), 0);
	}
	for (int i = 0; i < 8; i++) {
		ck_assert_int_eq(resc_once_begin(other, key, sizes[i], NULL, &once), RESC_ONCE_DONE);
		ck_assert_uint_eq(once.size, answers[i]);
		ck_assert_mem_eq(once.answer, answer + i % 2, answers[i]);
	}
}
END_TEST

START_TEST(wrong_arguments_record_nothing)
{
	char key[RESC_ONCE_KEY_MAX + 1] = "k", answer[RESC_ONCE_ANSWER_MAX + 1] = "a";
	resc_options options = RESC_OPTIONS_INIT;
	resc_once once;

	ck_assert_int_eq(resc_once_begin(NULL, key, 1, NULL, &once), -EINVAL);
	ck_assert_int_eq(resc_once_begin(pay, NULL, 1, NULL, &once), -EINVAL);
	ck_assert_int_eq(resc_once_begin(pay, key, 0, NULL, &once), -EINVAL);
	ck_assert_int_eq(resc_once_begin(pay, key, sizeof key, NULL, &once), -EINVAL);
	ck_assert_int_eq(resc_once_begin(pay, key, 1, NULL, NULL), -EINVAL);
	options.reserved = 1;
	ck_assert_int_eq(resc_once_begin(pay, key, 1, &options, &once), -EINVAL);
	options = (resc_options){RESC_NO_DEADLINE, RESC_NOT_IDEMPOTENT, 0, 0, 0};
	ck_assert_int_eq(resc_once_begin(pay, key, 1, &options, &once), -EINVAL);
	options = (resc_options){RESC_NO_DEADLINE, 0, RESC_LOW + 1, 0, 0};
	ck_assert_int_eq(resc_once_begin(pay, key, 1, &options, &once), -EINVAL);
	ck_assert_uint_eq(usage().working, 0);
	options = (resc_options){RESC_NO_DEADLINE, RESC_RETRY, 0, 0, 0};
	ck_assert_int_eq(resc_once_begin(pay, key, 1, &options, &once), 0);
	/* Too large: the key stays in work, and can still be done. */
	ck_assert_int_eq(resc_once_done(&once, answer, sizeof answer), -EINVAL);
	ck_assert_int_eq(resc_once_done(&once, NULL, 1), -EINVAL);
	ck_assert_int_eq(ask(other, "k"), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&once, NULL, 0), 0);
	expect_answer(other, "k", "");
}
END_TEST

START_TEST(the_same_key_of_another_resource_is_another_key)
{
	struct policy p = policy();

	record_publish(&n.map, "ledger", &p);
	resc_resource *ledger = named_lookup(host, "ledger");
	do_it(pay, "order-1", "a");
	do_it(ledger, "order-1", "b");
	expect_answer(other, "order-1", "a");
	expect_answer(ledger, "order-1", "b");
}
END_TEST

START_TEST(without_the_policy_it_says_so)
{
	resc_once once;

	reload(without);
	ck_assert_int_eq(begin(pay, "k", &once), -ENOTSUP);
	ck_assert_int_eq(resc_once_done(&once, NULL, 0), -EINVAL);
}
END_TEST

START_TEST(in_shadow_everybody_is_first_and_repetitions_are_counted)
{
	resc_once once, again, third;

	reload(shadow);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	ck_assert_int_eq(begin(other, "k", &again), 0);
	ck_assert_int_eq(resc_once_done(&again, "no", 2), 0);
	ck_assert_int_eq(resc_once_done(&once, "yes", 3), 0);
	ck_assert_int_eq(begin(other, "k", &third), 0);
	ck_assert_uint_eq(third.size, 0);
	ck_assert_int_eq(resc_once_abandon(&third), 0);
	struct resc_counters c = counters();
	ck_assert_uint_eq(c.would_once, 2);
	ck_assert_uint_eq(c.once_first, 1);
	ck_assert_uint_eq(c.once_done, 1);
	ck_assert_uint_eq(c.once_busy + c.once_replayed, 0);
	reload(waits);
	expect_answer(pay, "k", "yes");
}
END_TEST

/* ---- tickets ---- */

START_TEST(a_ticket_ends_once)
{
	resc_once once, copy;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	copy = once;
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	ck_assert_int_eq(resc_once_done(&once, "b", 1), -EINVAL);
	ck_assert_int_eq(resc_once_abandon(&once), -EINVAL);
	ck_assert_int_eq(resc_once_done(&copy, "b", 1), -ESTALE);
	expect_answer(other, "k", "a");
	/* Nor does a copy of one use touch the next one of its slot. */
	named_at(&n, 20000);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	copy = once;
	ck_assert_int_eq(resc_once_abandon(&once), 0);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	ck_assert_uint_eq(once.slot, copy.slot);
	ck_assert_int_eq(resc_once_abandon(&copy), -ESTALE);
	ck_assert_int_eq(ask(other, "k"), RESC_ONCE_BUSY);
}
END_TEST

START_TEST(garbage_is_no_ticket)
{
	resc_once once, good;

	ck_assert_int_eq(resc_once_done(NULL, NULL, 0), -EINVAL);
	ck_assert_int_eq(resc_once_abandon(NULL), -EINVAL);
	memset(&once, 0, sizeof once);
	ck_assert_int_eq(resc_once_done(&once, NULL, 0), -EINVAL);
	memset(&once, 0xa5, sizeof once);
	ck_assert_int_eq(resc_once_abandon(&once), -EINVAL);
	ck_assert_int_eq(begin(pay, "k", &good), 0);
	for (size_t i = 0; i < offsetof(resc_once, answer); i++) {
		if (i >= offsetof(resc_once, size) && i < offsetof(resc_once, size) + sizeof good.size)
			continue; /* the caller's to read */
		once = good;
		((unsigned char *)&once)[i] ^= 0x10;
		ck_assert_int_eq(resc_once_done(&once, "x", 1), -EINVAL);
	}
	/* The answer of a known key is no ticket. */
	ck_assert_int_eq(begin(other, "k", &once), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&once, "x", 1), -EINVAL);
	ck_assert_int_eq(resc_once_done(&good, "y", 1), 0);
	ck_assert_int_eq(begin(other, "k", &once), RESC_ONCE_DONE);
	ck_assert_int_eq(resc_once_abandon(&once), -EINVAL);
	expect_answer(other, "k", "y");
}
END_TEST

START_TEST(G_a_child_does_not_end_its_parents_key)
{
	resc_once once;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	pid_t child = fork();
	if (child == 0) {
		resc_once copy = once, again;
		bool right = resc_once_done(&copy, "child", 5) == -ESTALE;
		copy = once;
		right = right && resc_once_abandon(&copy) == -ESTALE;
		right = right && begin(pay, "k", &again) == RESC_ONCE_BUSY;
		right = right && begin(pay, "its own", &again) == 0 && resc_once_done(&again, "c", 1) == 0;
		_exit(right ? 0 : 1);
	}
	ck_assert_int_eq(fixture_wait(child), 0);
	ck_assert_int_eq(resc_once_done(&once, "parent", 6), 0);
	expect_answer(other, "k", "parent");
	expect_answer(other, "its own", "c");
}
END_TEST

START_TEST(closing_is_like_a_death)
{
	resc_once once;

	for (int i = 0; i < 2; i++) {
		resc *third = named_join(n.instance);
		resc_resource *resource = named_lookup(third, "payments");
		const char *key = i == 0 ? "a" : "b";
		ck_assert_int_eq(begin(resource, key, &once), 0);
		resc_close(third);
		ck_assert_int_eq(ask(pay, key), i == 0 ? RESC_ONCE_UNKNOWN : 0);
		reload(free_on_death);
	}
}
END_TEST

/* ---- time ---- */

START_TEST(an_answer_is_kept_for_its_ttl_after_it_was_stored)
{
	resc_once once;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	named_at(&n, 9000);
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	named_at(&n, 18999);
	expect_answer(other, "k", "a");
	ck_assert_uint_eq(usage().expired, 0);
	named_at(&n, 19000);
	ck_assert_uint_eq(usage().expired, 1);
	do_it(other, "k", "b");
	expect_answer(pay, "k", "b");
}
END_TEST

START_TEST(a_key_in_work_never_expires)
{
	resc_once once;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	named_at(&n, 86400000);
	ck_assert_int_eq(ask(other, "k"), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	expect_answer(other, "k", "a");
}
END_TEST

START_TEST(an_unknown_key_expires)
{
	resc_once once;
	resc *third = named_join(n.instance);

	ck_assert_int_eq(begin(named_lookup(third, "payments"), "k", &once), 0);
	resc_close(third);
	named_at(&n, 10999);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_UNKNOWN);
	ck_assert_uint_eq(usage().unknown, 1);
	named_at(&n, 11000);
	ck_assert_int_eq(ask(pay, "k"), 0);
}
END_TEST

/* ---- room ---- */

static void fill(unsigned count)
{
	char key[16];

	for (unsigned i = 0; i < count; i++) {
		snprintf(key, sizeof key, "fill-%u", i);
		do_it(pay, key, "x");
	}
}

START_TEST(a_full_table_is_an_error_and_nothing_is_thrown_out)
{
	resc_once once;

	fill(ONCE_SET);
	ck_assert_int_eq(begin(other, "one more", &once), -ENOSPC);
	ck_assert_uint_eq(counters().once_full, 1);
	expect_answer(other, "fill-0", "x");
	expect_answer(other, "fill-15", "x");
	ck_assert_int_eq(resc_once_done(&once, "x", 1), -EINVAL);
	/* In shadow mode that refuses nobody either. */
	reload(shadow);
	ck_assert_int_eq(begin(other, "one more", &once), 0);
	ck_assert_uint_eq(counters().once_full, 2);
	ck_assert_int_eq(resc_once_done(&once, "x", 1), 0);
}
END_TEST

START_TEST(a_full_table_has_room_when_something_expires)
{
	fill(ONCE_SET - 1);
	named_at(&n, 5000);
	do_it(pay, "later", "l");
	named_at(&n, 11000);
	do_it(other, "one more", "y");
	expect_answer(other, "later", "l");
	ck_assert_int_eq(ask(other, "fill-3"), 0);
}
END_TEST

/* ---- waiting ---- */

struct waiter {
	pthread_t thread;
	resc_resource *resource;
	resc_options options;
	resc_once once;
	_Atomic int r;
};

static void *wait_for_it(void *arg)
{
	struct waiter *w = arg;

	w->r = resc_once_begin(w->resource, "k", 1, &w->options, &w->once);
	return NULL;
}

static void start_waiter_until(struct waiter *w, resc_resource *resource, int64_t deadline_ns)
{
	*w = (struct waiter){.resource = resource, .options = RESC_OPTIONS_INIT, .r = -1000};
	w->options.deadline_ns = deadline_ns;
	ck_assert_int_eq(pthread_create(&w->thread, NULL, wait_for_it, w), 0);
}

static void start_waiter(struct waiter *w, resc_resource *resource)
{
	start_waiter_until(w, resource, RESC_NO_DEADLINE);
}

static uint64_t sleepers(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < n.map.dims.once; i++)
		sum += fixture_load(&map_once_entry(&n.map, i)->waiters);
	return sum;
}

static void until_it_sleeps(void)
{
	for (int i = 0; i < 20000 && sleepers() == 0; i++)
		named_sleep_ms(1);
	ck_assert_uint_eq(sleepers(), 1);
}

static int end_waiter(struct waiter *w)
{
	ck_assert_int_eq(pthread_join(w->thread, NULL), 0);
	return w->r;
}

START_TEST(who_waits_gets_the_answer)
{
	struct waiter w;
	resc_once once;

	reload(waits);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	start_waiter(&w, other);
	until_it_sleeps();
	ck_assert_int_eq(resc_once_done(&once, "late", 4), 0);
	ck_assert_int_eq(end_waiter(&w), RESC_ONCE_DONE);
	ck_assert_mem_eq(w.once.answer, "late", 4);
	ck_assert_uint_eq(counters().once_busy, 0);
	ck_assert_uint_eq(counters().once_replayed, 1);
}
END_TEST

START_TEST(who_waits_for_an_abandoned_key_is_first)
{
	struct waiter w;
	resc_once once;

	reload(waits);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	start_waiter(&w, other);
	until_it_sleeps();
	ck_assert_int_eq(resc_once_abandon(&once), 0);
	ck_assert_int_eq(end_waiter(&w), 0);
	ck_assert_int_eq(resc_once_done(&w.once, "b", 1), 0);
	expect_answer(pay, "k", "b");
}
END_TEST

START_TEST(waiting_ends_with_max_wait)
{
	struct waiter w;
	resc_once once;

	reload(waits);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	start_waiter(&w, other);
	until_it_sleeps();
	named_sleep_ms(120); /* slices pass, and time stands still */
	ck_assert_int_eq(w.r, -1000);
	named_at(&n, 1000 + 60000);
	ck_assert_int_eq(end_waiter(&w), RESC_ONCE_BUSY);
	ck_assert_uint_eq(counters().once_busy, 1);
}
END_TEST

START_TEST(waiting_is_cut_to_the_deadline)
{
	resc_options options = RESC_OPTIONS_INIT;
	struct waiter w;
	resc_once once, again;

	reload(waits);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	options.deadline_ns = resc_deadline_after_ms(0);
	ck_assert_int_eq(resc_once_begin(other, "k", 1, &options, &again), RESC_ONCE_BUSY);
	start_waiter_until(&w, other, resc_deadline_after_ms(500));
	until_it_sleeps();
	named_at(&n, 1499);
	named_sleep_ms(60);
	ck_assert_int_eq(w.r, -1000);
	named_at(&n, 1500);
	ck_assert_int_eq(end_waiter(&w), RESC_ONCE_BUSY);
	/* A known answer needs no time. */
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	ck_assert_int_eq(resc_once_begin(other, "k", 1, &options, &again), RESC_ONCE_DONE);
}
END_TEST

/* ---- hands: processes that die or stop at a step ---- */

enum order { ORDER_BEGIN, ORDER_DONE, ORDER_ABANDON, ORDER_QUIT };

struct hand {
	pid_t pid;
	int to;
	int from;
};

_Noreturn static void hand_main(const char *failpoints, int from, int to)
{
	unsigned char order;
	resc_once once;
	int r;

	failpoint_set(failpoints);
	resc_resource *resource = named_lookup(named_join(n.instance), "payments");
	while (read(from, &order, 1) == 1 && order != ORDER_QUIT) {
		r = order == ORDER_BEGIN  ? begin(resource, "k", &once)
		    : order == ORDER_DONE ? resc_once_done(&once, "hand", 4)
		                          : resc_once_abandon(&once);
		if (write(to, &r, sizeof r) != (ssize_t)sizeof r)
			break;
	}
	_exit(0);
}

static struct hand hand_start(const char *failpoints)
{
	int to[2], from[2];

	ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
	ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
	pid_t pid = fork();
	if (pid == 0) {
		close(to[1]);
		close(from[0]);
		hand_main(failpoints, to[0], from[1]);
	}
	close(to[0]);
	close(from[1]);
	return (struct hand){pid, to[1], from[0]};
}

static void hand_tell(const struct hand *h, enum order order)
{
	unsigned char byte = (unsigned char)order;

	ck_assert_int_eq(write(h->to, &byte, 1), 1);
}

/* -1000: it is dead. */
static int hand_answer(const struct hand *h)
{
	int r;

	return read(h->from, &r, sizeof r) == (ssize_t)sizeof r ? r : -1000;
}

static int hand_do(const struct hand *h, enum order order)
{
	hand_tell(h, order);
	return hand_answer(h);
}

static void hand_end(struct hand *h, int signal)
{
	if (signal != 0)
		kill(h->pid, signal);
	close(h->to);
	close(h->from);
	ck_assert_int_eq(fixture_wait(h->pid), signal == 0 ? 0 : -signal);
}

static void hand_wait_stopped(const struct hand *h)
{
	int status;

	ck_assert_int_eq(waitpid(h->pid, &status, WUNTRACED), h->pid);
	ck_assert(WIFSTOPPED(status));
}

/* Dies at that point, of a begin or of what comes after it; what the next one is told. */
static int after_death_at(const char *point, enum order order)
{
	char spec[64];

	snprintf(spec, sizeof spec, "%s=kill", point);
	struct hand h = hand_start(spec);
	if (order != ORDER_BEGIN)
		ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), 0);
	ck_assert_int_eq(hand_do(&h, order), -1000);
	ck_assert_int_eq(fixture_wait(h.pid), -SIGKILL);
	close(h.to);
	close(h.from);
	named_sleep_ms(SWEEP_INTERVAL_MS + 10); /* the dead are looked for so often only */
	int r = ask(pay, "k");
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(usage().working, 0);
	return r;
}

START_TEST(F_a_death_before_the_key_is_recorded_leaves_nothing)
{
	static const char *const points[] = {"once.claimed", "once.written", "once.looked"};

	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(after_death_at(points[i], ORDER_BEGIN), 0);
}
END_TEST

START_TEST(F_a_death_in_the_middle_is_unknown)
{
	ck_assert_int_eq(after_death_at("once.recorded", ORDER_BEGIN), RESC_ONCE_UNKNOWN);
	ck_assert_uint_eq(counters().once_unknown, 1);
	named_at(&n, 20000);
	ck_assert_int_eq(after_death_at("once.storing", ORDER_DONE), RESC_ONCE_UNKNOWN);
	named_at(&n, 40000);
	ck_assert_int_eq(after_death_at("once.stored", ORDER_DONE), RESC_ONCE_UNKNOWN);
	named_at(&n, 60000);
	ck_assert_int_eq(after_death_at("once.turned", ORDER_DONE), RESC_ONCE_DONE);
}
END_TEST

START_TEST(F_a_death_in_the_middle_is_free_again_where_that_is_said)
{
	reload(free_on_death);
	ck_assert_int_eq(after_death_at("once.recorded", ORDER_BEGIN), 0);
	ck_assert_int_eq(after_death_at("once.turned", ORDER_ABANDON), 0);
	/* But not when the work was done: then it is not known whether its answer arrived. */
	ck_assert_int_eq(after_death_at("once.storing", ORDER_DONE), RESC_ONCE_UNKNOWN);
	named_at(&n, 20000);
	ck_assert_int_eq(after_death_at("once.stored", ORDER_DONE), RESC_ONCE_UNKNOWN);
}
END_TEST

START_TEST(F_who_is_stopped_before_its_key_is_recorded_is_not_waited_for)
{
	static const char *const points[] = {"once.claimed", "once.written", "once.looked"};
	char spec[64];

	for (size_t i = 0; i < 3; i++) {
		snprintf(spec, sizeof spec, "%s@1=stop", points[i]);
		struct hand h = hand_start(spec);
		hand_tell(&h, ORDER_BEGIN);
		hand_wait_stopped(&h);
		do_it(pay, "k", "mine");
		/* Its slot is not given to another key, in whose entry it would write. */
		fill(ONCE_SET - 2);
		resc_once once;
		ck_assert_int_eq(begin(pay, "too many", &once), -ENOSPC);
		kill(h.pid, SIGCONT);
		ck_assert_int_eq(hand_answer(&h), RESC_ONCE_DONE);
		expect_answer(other, "k", "mine");
		do_it(pay, "not too many", "x");
		hand_end(&h, 0);
		named_at(&n, 1000 + (i + 1) * 20000);
	}
}
END_TEST

START_TEST(F_who_is_stopped_before_its_claim_looks_again_after_it)
{
	resc_once begun[ONCE_SET], x, y, mine;
	char key[16];

	for (unsigned i = 0; i < ONCE_SET - 1; i++) {
		snprintf(key, sizeof key, "fill-%u", i);
		ck_assert_int_eq(begin(pay, key, &begun[i]), 0);
	}
	struct hand h = hand_start("once.absent@1=stop");
	hand_tell(&h, ORDER_BEGIN);
	hand_wait_stopped(&h); /* it has seen the only empty slot */
	uint32_t another = begun[0].slot;
	ck_assert_int_eq(resc_once_abandon(&begun[0]), 0);
	ck_assert_int_eq(begin(pay, "x", &x), 0);
	ck_assert_int_eq(begin(pay, "y", &y), 0);
	ck_assert_int_eq(resc_once_abandon(x.slot == another ? &x : &y), 0);
	ck_assert_int_eq(begin(pay, "k", &mine), 0);
	ck_assert_uint_eq(mine.slot, another);
	ck_assert_int_eq(resc_once_abandon(x.seal != 0 ? &x : &y), 0); /* the one that it saw is empty again */
	kill(h.pid, SIGCONT);
	ck_assert_int_eq(hand_answer(&h), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&mine, "m", 1), 0);
	expect_answer(other, "k", "m");
	hand_end(&h, 0);
}
END_TEST

START_TEST(F_who_is_stopped_with_a_key_keeps_it)
{
	static const char *const points[] = {"once.recorded", "once.storing", "once.stored"};
	char spec[64];

	for (size_t i = 0; i < 3; i++) {
		snprintf(spec, sizeof spec, "%s=stop", points[i]);
		named_at(&n, 100000 * i + 1000);
		struct hand h = hand_start(spec);
		hand_tell(&h, ORDER_BEGIN);
		if (i > 0) {
			ck_assert_int_eq(hand_answer(&h), 0);
			hand_tell(&h, ORDER_DONE);
		}
		hand_wait_stopped(&h);
		/* In work it has no end; in done, its end is known already. */
		named_at(&n, 100000 * i + (i == 0 ? 50000 : 10000));
		ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
		kill(h.pid, SIGCONT);
		ck_assert_int_eq(hand_answer(&h), 0);
		if (i == 0)
			ck_assert_int_eq(hand_do(&h, ORDER_DONE), 0);
		expect_answer(pay, "k", "hand");
		hand_end(&h, 0);
	}
}
END_TEST

START_TEST(F_a_reaper_that_dies_is_followed_by_the_next)
{
	static const char *const points[] = {"once.turned", "reap.once", "reap.cells"};
	char spec[64];

	for (size_t i = 0; i < 3; i++) {
		struct hand h = hand_start(NULL);
		ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), 0);
		hand_end(&h, SIGKILL);
		pid_t reaper = fork();
		if (reaper == 0) {
			snprintf(spec, sizeof spec, "%s=kill", points[i]);
			failpoint_set(spec);
			worker_sweep(&n.map, 0);
			_exit(1);
		}
		ck_assert_int_eq(fixture_wait(reaper), -SIGKILL);
		worker_sweep(&n.map, 0);
		ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_UNKNOWN);
		named_at(&n, 1000 + (i + 1) * 20000);
	}
}
END_TEST

START_TEST(F_a_claim_that_is_revoked_while_its_dead_owner_is_reaped_is_freed)
{
	resc_once once;
	struct hand h = hand_start("once.written=kill");

	ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), -1000);
	ck_assert_int_eq(fixture_wait(h.pid), -SIGKILL);
	ck_assert_int_eq(begin(pay, "k", &once), 0); /* revokes it */
	ck_assert_uint_eq(usage().working, 2);
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(usage().working, 1);
	close(h.to);
	close(h.from);
}
END_TEST

START_TEST(who_waits_learns_of_a_death)
{
	struct waiter w;
	struct hand h = hand_start(NULL);

	reload(waits);
	ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), 0);
	start_waiter(&w, other);
	until_it_sleeps();
	hand_end(&h, SIGKILL);
	ck_assert_int_eq(end_waiter(&w), RESC_ONCE_UNKNOWN);
}
END_TEST

/* ---- settling what is unknown ---- */

static void make_unknown(const char *key)
{
	resc_once once;
	resc *third = named_join(n.instance);

	ck_assert_int_eq(begin(named_lookup(third, "payments"), key, &once), 0);
	resc_close(third);
}

static void begin_unknown(resc_resource *resource, resc_once *once)
{
	ck_assert_int_eq(begin(resource, "k", once), RESC_ONCE_UNKNOWN);
}

START_TEST(an_unknown_key_is_settled_with_an_answer)
{
	resc_once once;

	make_unknown("k");
	named_at(&n, 9000);
	begin_unknown(pay, &once);
	ck_assert_uint_eq(once.size, 0);
	ck_assert_int_eq(resc_once_done(&once, "asked", 5), 0);
	ck_assert_int_eq(resc_once_done(&once, "asked", 5), -EINVAL); /* the ticket is used up */
	expect_answer(other, "k", "asked");
	ck_assert_uint_eq(usage().unknown, 0);
	ck_assert_uint_eq(counters().once_unknown, 1);
	ck_assert_uint_eq(counters().once_done, 1);
	named_at(&n, 18999); /* its ttl begins anew */
	expect_answer(other, "k", "asked");
	named_at(&n, 19000);
	ck_assert_int_eq(ask(other, "k"), 0);
}
END_TEST

START_TEST(an_unknown_key_is_settled_as_free)
{
	resc_once once;

	make_unknown("k");
	begin_unknown(pay, &once);
	ck_assert_int_eq(resc_once_abandon(&once), 0);
	ck_assert_uint_eq(usage().unknown + usage().working, 0);
	ck_assert_uint_eq(counters().once_done, 0);
	do_it(other, "k", "anew");
	expect_answer(pay, "k", "anew");
}
END_TEST

START_TEST(of_two_who_settle_one_is_told_that_it_came_too_late)
{
	resc_once one, two;

	for (int i = 0; i < 4; i++) {
		make_unknown("k");
		begin_unknown(pay, &one);
		begin_unknown(other, &two);
		ck_assert_int_eq(i / 2 == 0 ? resc_once_done(&one, "one", 3) : resc_once_abandon(&one), 0);
		ck_assert_int_eq(i % 2 == 0 ? resc_once_done(&two, "two", 3) : resc_once_abandon(&two), -ESTALE);
		if (i / 2 == 0)
			expect_answer(other, "k", "one");
		else
			ck_assert_int_eq(ask(other, "k"), 0);
		named_at(&n, 1000 + 20000 * (unsigned)(i + 1));
	}
	ck_assert_uint_eq(counters().once_done, 2);
}
END_TEST

START_TEST(a_late_settler_does_not_touch_work_that_was_begun_since)
{
	resc_once unknown, late, work;

	make_unknown("k");
	begin_unknown(pay, &unknown);
	late = unknown;
	ck_assert_int_eq(resc_once_abandon(&unknown), 0);
	ck_assert_int_eq(begin(other, "k", &work), 0);
	ck_assert_uint_eq(work.slot, late.slot);
	unknown = late;
	ck_assert_int_eq(resc_once_abandon(&unknown), -ESTALE);
	ck_assert_int_eq(resc_once_done(&late, "late", 4), -ESTALE);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&work, "work", 4), 0);
	expect_answer(pay, "k", "work");
}
END_TEST

START_TEST(an_unknown_key_that_has_expired_is_settled_until_somebody_begins_it)
{
	resc_once once, work;

	make_unknown("k");
	begin_unknown(pay, &once);
	named_at(&n, 11000);
	ck_assert_int_eq(resc_once_done(&once, "known", 5), 0);
	expect_answer(other, "k", "known");
	make_unknown("x");
	ck_assert_int_eq(begin(pay, "x", &once), RESC_ONCE_UNKNOWN);
	named_at(&n, 21000);
	ck_assert_int_eq(begin(other, "x", &work), 0);
	ck_assert_int_eq(resc_once_done(&once, "known", 5), -ESTALE);
	ck_assert_int_eq(resc_once_abandon(&work), 0);
}
END_TEST

START_TEST(F_who_dies_in_settling_leaves_it_unknown)
{
	static const char *const points[] = {"once.storing", "once.storing", "once.stored"};
	const enum order orders[] = {ORDER_ABANDON, ORDER_DONE, ORDER_DONE};
	resc_once before, after;
	char spec[64];

	for (int i = 0; i < 6; i++) {
		make_unknown("k");
		begin_unknown(pay, &before);
		/* Whatever that says: for all that is known the work was done. */
		if (i >= 3)
			fixture_store(&map_once_entry(&n.map, before.slot)->on_death, ON_DEATH_FREE);
		snprintf(spec, sizeof spec, "%s=kill", points[i % 3]);
		struct hand h = hand_start(spec);
		ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), RESC_ONCE_UNKNOWN);
		ck_assert_int_eq(hand_do(&h, orders[i % 3]), -1000);
		ck_assert_int_eq(fixture_wait(h.pid), -SIGKILL);
		ck_assert_uint_eq(usage().working, 1);
		worker_sweep(&n.map, 0);
		begin_unknown(other, &after);
		/* Who was told before that death may not know what the dead one knew. */
		ck_assert_int_eq(resc_once_abandon(&before), -ESTALE);
		ck_assert_int_eq(resc_once_done(&after, "after", 5), 0);
		expect_answer(pay, "k", "after");
		close(h.to);
		close(h.from);
		named_at(&n, 1000 + 20000 * (unsigned)(i + 1));
	}
}
END_TEST

START_TEST(F_while_somebody_settles_the_key_is_busy)
{
	struct waiter w;
	struct hand h = hand_start("once.storing=stop");

	make_unknown("k");
	ck_assert_int_eq(hand_do(&h, ORDER_BEGIN), RESC_ONCE_UNKNOWN);
	hand_tell(&h, ORDER_DONE);
	hand_wait_stopped(&h);
	named_at(&n, 9000);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	reload(waits);
	start_waiter(&w, other);
	named_sleep_ms(20);
	kill(h.pid, SIGCONT);
	ck_assert_int_eq(hand_answer(&h), 0);
	ck_assert_int_eq(end_waiter(&w), RESC_ONCE_DONE);
	hand_end(&h, 0);
}
END_TEST

START_TEST(a_child_may_settle_what_its_parent_was_told)
{
	resc_once once;

	make_unknown("k");
	begin_unknown(pay, &once);
	pid_t child = fork();
	if (child == 0) {
		resc_once copy = once;
		_exit(resc_once_done(&copy, "child", 5) == 0 ? 0 : 1);
	}
	ck_assert_int_eq(fixture_wait(child), 0);
	ck_assert_int_eq(resc_once_abandon(&once), -ESTALE);
	expect_answer(other, "k", "child");
}
END_TEST

START_TEST(a_reload_does_not_end_the_right_to_settle)
{
	resc_once once;

	make_unknown("k");
	begin_unknown(pay, &once);
	reload(waits);
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	expect_answer(other, "k", "a");
}
END_TEST

START_TEST(in_shadow_nobody_settles)
{
	resc_once once;

	make_unknown("k");
	reload(shadow);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	ck_assert_int_eq(begin(pay, "k", &once), 0);
	ck_assert_int_eq(resc_once_abandon(&once), 0);
	ck_assert_uint_eq(counters().would_once, 2);
	ck_assert_uint_eq(counters().once_done, 0);
	reload(waits);
	begin_unknown(pay, &once);
	/* But who was told so before the change still may. */
	reload(shadow);
	ck_assert_int_eq(resc_once_done(&once, "b", 1), 0);
	reload(waits);
	expect_answer(other, "k", "b");
}
END_TEST

START_TEST(an_answer_that_is_damaged_is_unknown_and_can_be_settled)
{
	resc_once one, two;

	do_it(pay, "k", "a");
	for (uint32_t i = 0; i < n.map.dims.once; i++)
		fixture_store(&map_once_entry(&n.map, i)->answer_size, RESC_ONCE_ANSWER_MAX + 1);
	begin_unknown(pay, &one);
	begin_unknown(other, &two);
	ck_assert_int_eq(resc_once_done(&one, "b", 1), 0);
	ck_assert_int_eq(resc_once_done(&two, "c", 1), -ESTALE);
	expect_answer(other, "k", "b");
}
END_TEST

/* ---- many at once ---- */

#define RACERS 4
#define ROUNDS 400

struct racer {
	pthread_t thread;
	resc_resource *resource;
	unsigned first, done, busy, wrong;
	pthread_barrier_t *barrier;
};

static void *race(void *arg)
{
	struct racer *r = arg;
	char key[32], answer[32];
	resc_once once;

	for (int i = 0; i < ROUNDS; i++) {
		int length = snprintf(key, sizeof key, "race-%d", i);
		snprintf(answer, sizeof answer, "answer-%d", i);
		pthread_barrier_wait(r->barrier);
		int got = resc_once_begin(r->resource, key, (size_t)length, NULL, &once);
		if (got == 0 && resc_once_done(&once, answer, strlen(answer)) == 0)
			r->first++;
		else if (got == RESC_ONCE_DONE && once.size == strlen(answer) && memcmp(once.answer, answer, once.size) == 0)
			r->done++;
		else if (got == RESC_ONCE_BUSY)
			r->busy++;
		else
			r->wrong++;
		/* Between the rounds everything expires. */
		if (pthread_barrier_wait(r->barrier) == PTHREAD_BARRIER_SERIAL_THREAD)
			named_at(&n, 1000 + (unsigned)(i + 1) * 20000);
	}
	return NULL;
}

START_TEST(of_threads_and_workers_that_come_at_once_one_is_first)
{
	struct racer racers[RACERS];
	pthread_barrier_t barrier;
	unsigned first = 0;

	pthread_barrier_init(&barrier, NULL, RACERS);
	for (int i = 0; i < RACERS; i++) {
		racers[i] = (struct racer){.resource = i % 2 == 0 ? pay : other, .barrier = &barrier};
		ck_assert_int_eq(pthread_create(&racers[i].thread, NULL, race, &racers[i]), 0);
	}
	for (int i = 0; i < RACERS; i++) {
		pthread_join(racers[i].thread, NULL);
		first += racers[i].first;
		ck_assert_uint_eq(racers[i].wrong, 0);
	}
	ck_assert_uint_eq(first, ROUNDS);
	ck_assert_uint_eq(counters().once_first, ROUNDS);
	pthread_barrier_destroy(&barrier);
}
END_TEST

/* ---- damage ---- */

START_TEST(F_any_bytes_in_the_table_are_survived)
{
	uint64_t seed = 88172645463325252u;
	resc_once once;

	for (unsigned round = 0; round < 2000; round++) {
		for (uint32_t i = 0; i < n.map.dims.once; i++) {
			uint64_t *words = (uint64_t *)(void *)map_once_entry(&n.map, i);
			for (size_t w = 0; w < sizeof(struct once_entry) / 8; w += round % 7 + 1)
				words[w] = seed = seed * 6364136223846793005u + 1442695040888963407u;
			/* Often the tag of the key, so that the entry is looked at. */
			uint64_t mine = once_make((uint32_t)seed, (unsigned)(seed >> 7), 0, (enum once_phase)(seed >> 40 & 7));
			struct once_image image;
			once_image_init(&image, "payments", "k", 1);
			fixture_store(&n.map.once_slots[i], mine | (image.hash >> 51) << 3);
			if (round % 2 == 0) {
				fixture_store(&map_once_entry(&n.map, i)->hash, image.hash);
				fixture_store(&map_once_entry(&n.map, i)->key_size, 1);
				memcpy((void *)(uintptr_t)map_once_entry(&n.map, i)->resource, image.resource, sizeof image.resource);
				memcpy((void *)(uintptr_t)map_once_entry(&n.map, i)->key, image.key, 8);
			}
		}
		int r = begin(pay, "k", &once);
		ck_assert_msg(r == 0 || r == -ENOSPC || (r >= RESC_ONCE_BUSY && r <= RESC_ONCE_UNKNOWN), "%d", r);
		ck_assert_uint_le(once.size, RESC_ONCE_ANSWER_MAX);
		if (r == 0 || r == RESC_ONCE_UNKNOWN)
			ck_assert_int_eq(resc_once_done(&once, "x", 1), 0);
		usage();
		once_reap(&n.map, (uint32_t)seed);
	}
}
END_TEST

/* ---- private mode ---- */

/* Not when it has tried each of thousands of keys in vain: a worker brings them in the middle of a call. */
START_TEST(a_move_ends_at_the_first_key_that_finds_no_room)
{
	struct segment_dims dims = small;
	struct map from, to;
	struct resc_error err;

	dims.once = 4096;
	ck_assert_int_eq(map_create(&from, n.instance, &dims, NULL, 0600, (gid_t)-1, &err), 0);
	ck_assert_int_eq(map_create(&to, n.instance, &dims, &from, 0600, (gid_t)-1, &err), 0);
	for (unsigned i = 0; i < 1000; i++) {
		struct once_image image;
		struct once_place place;
		once_image_init(&image, "payments", &i, sizeof i);
		image.expires_ms = TIME_MASK;
		ck_assert_int_eq(once_insert(&from, &image, 7, ONCE_RUNNING, 7, 0, &place), ONCE_INSERTED);
	}
	for (unsigned i = 0; i < dims.once; i++)
		fixture_store(&to.once_slots[i], once_make(3, 1, 1, ONCE_REVOKED));
	clock_t began = clock();
	ck_assert(!once_move(&from, &to, 1));
	ck_assert_int_lt(clock() - began, CLOCKS_PER_SEC / 5);
	/* Claims that were given up: now there is room, and the next try brings them all. */
	for (unsigned i = 0; i < dims.once; i++)
		fixture_store(&to.once_slots[i], once_freed(once_make(3, 1, 1, ONCE_REVOKED)));
	ck_assert(once_move(&from, &to, 1));
	struct once_usage u;
	once_usage(&to, &u);
	ck_assert_uint_eq(u.working, 1000);
	map_close(&to);
	map_close(&from);
}
END_TEST

START_TEST(private_mode_knows_keys_of_its_own_process)
{
	char instance[SEGMENT_NAME_SIZE];
	struct resc_error err;
	resc_once once, again;

	named_quiet();
	named_instance(instance, "nobody");
	resc *alone = resc_open(instance, &err);
	resc_resource *resource = named_lookup(alone, "payments");
	ck_assert_int_eq(begin(resource, "k", &once), 0);
	ck_assert_int_eq(begin(resource, "k", &again), RESC_ONCE_BUSY);
	pid_t child = fork();
	if (child == 0)
		_exit(resc_once_done(&once, "c", 1) == -ESTALE && begin(resource, "k", &again) == 0 ? 0 : 1);
	ck_assert_int_eq(fixture_wait(child), 0);
	ck_assert_int_eq(resc_once_done(&once, "a", 1), 0);
	expect_answer(resource, "k", "a");
	resc_close(alone);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        first_then_busy_then_the_stored_answer,
	        an_abandoned_key_is_free_at_once,
	        keys_of_any_bytes_and_answers_of_any_size,
	        wrong_arguments_record_nothing,
	        the_same_key_of_another_resource_is_another_key,
	        without_the_policy_it_says_so,
	        in_shadow_everybody_is_first_and_repetitions_are_counted,
	        a_ticket_ends_once,
	        garbage_is_no_ticket,
	        G_a_child_does_not_end_its_parents_key,
	        closing_is_like_a_death,
	        an_answer_is_kept_for_its_ttl_after_it_was_stored,
	        a_key_in_work_never_expires,
	        an_unknown_key_expires,
	        a_full_table_is_an_error_and_nothing_is_thrown_out,
	        a_full_table_has_room_when_something_expires,
	        who_waits_gets_the_answer,
	        who_waits_for_an_abandoned_key_is_first,
	        waiting_ends_with_max_wait,
	        waiting_is_cut_to_the_deadline,
	        F_a_death_before_the_key_is_recorded_leaves_nothing,
	        F_a_death_in_the_middle_is_unknown,
	        F_a_death_in_the_middle_is_free_again_where_that_is_said,
	        F_who_is_stopped_before_its_key_is_recorded_is_not_waited_for,
	        F_who_is_stopped_before_its_claim_looks_again_after_it,
	        F_who_is_stopped_with_a_key_keeps_it,
	        F_a_reaper_that_dies_is_followed_by_the_next,
	        F_a_claim_that_is_revoked_while_its_dead_owner_is_reaped_is_freed,
	        who_waits_learns_of_a_death,
	        an_unknown_key_is_settled_with_an_answer,
	        an_unknown_key_is_settled_as_free,
	        of_two_who_settle_one_is_told_that_it_came_too_late,
	        a_late_settler_does_not_touch_work_that_was_begun_since,
	        an_unknown_key_that_has_expired_is_settled_until_somebody_begins_it,
	        F_who_dies_in_settling_leaves_it_unknown,
	        F_while_somebody_settles_the_key_is_busy,
	        a_child_may_settle_what_its_parent_was_told,
	        a_reload_does_not_end_the_right_to_settle,
	        in_shadow_nobody_settles,
	        an_answer_that_is_damaged_is_unknown_and_can_be_settled,
	        of_threads_and_workers_that_come_at_once_one_is_first,
	        F_any_bytes_in_the_table_are_survived,
	        a_move_ends_at_the_first_key_that_finds_no_room,
	        private_mode_knows_keys_of_its_own_process,
	};

	return NAMED_RUN("once", tests, set_up, tear_down);
}
