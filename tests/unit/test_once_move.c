/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys and a segment that is superseded: no key is begun twice on the way, whoever moves it, and those in work come home.
 */
#include <errno.h>
#include <pthread.h>

#include "host.h"
#include "keys.h"
#include "move.h"
#include "named.h"
#include "once.h"
#include "record.h"
#include "worker.h"

static struct named old, next;
static resc *host, *late_host;
static resc_resource *pay;
static resc_resource *late; /* of a worker that has not made a call in the successor */
static char second[MAP_PATH_SIZE];

static void set_up(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_ONCE;
	p.once_ttl_ms = 10000;
	named_open(&old, &p);
	host = named_join(old.instance);
	pay = named_lookup(host, "payments");
	late_host = named_join(old.instance);
	late = named_lookup(late_host, "payments");
	memset(&next, 0, sizeof next);
	next.map.fd = -1;
}

static void tear_down(void)
{
	resc_close(host);
	resc_close(late_host);
	unlink(second);
	map_close(&next.map);
	named_close(&old);
}

/* ---- the steps of rescd ---- */

/* The successor, announced; its keys are not there. */
static void announce_from(const struct named *from, struct named *to, uint32_t keys)
{
	struct segment_dims dims = from->map.dims;
	struct resc_error err;
	struct policy p;
	uint64_t sequence;

	*to = *from;
	dims.once = keys;
	ck_assert_msg(map_create(&to->map, from->instance, &dims, &from->map, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	ck_assert_int_eq(policy_read(&from->map, from->index, &p, &sequence), 0);
	record_publish_moved(&to->map, from->index, "payments", &p, false);
	to->state = map_state(&to->map, to->index);
	map_path(second, to->instance, to->map.generation);
	ck_assert_int_eq(map_publish(&to->map, second), 0);
	fixture_store(&from->map.daemon->superseded, to->map.generation);
}

static void announce(void)
{
	announce_from(&old, &next, old.map.dims.once * 2);
}

static void both_at(uint64_t ms)
{
	named_at(&old, ms);
	if (next.map.base != NULL)
		named_at(&next, ms);
}

static bool settle(void)
{
	return once_settle(&old.map, &next.map);
}

/* All but the keys. */
static void move_words_only(void)
{
	move_words(&old.map, old.state, &next.map, next.state);
	move_permits(&old.map, old.state, &next.map, next.state);
}

static void move(void)
{
	ck_assert(once_move(&old.map, &next.map, ONCE_LIFE_OF_RESCD));
}

static struct once_usage usage(const struct named *n)
{
	struct once_usage u;

	once_usage(&n->map, &u);
	return u;
}

/* ---- what comes along ---- */

START_TEST(answers_and_unknown_keys_come_along_with_their_time)
{
	resc_once once;
	char key[16], answer[16];

	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		snprintf(answer, sizeof answer, "a%d", i);
		do_it(pay, key, answer);
	}
	resc *third = named_join(old.instance);
	ck_assert_int_eq(begin(named_lookup(third, "payments"), "lost", &once), 0);
	resc_close(third);
	announce();
	move();
	ck_assert_uint_eq(usage(&next).done, 20);
	for (int i = 0; i < 20; i++) {
		snprintf(key, sizeof key, "k%d", i);
		snprintf(answer, sizeof answer, "a%d", i);
		expect_answer(i % 2 == 0 ? pay : late, key, answer);
	}
	ck_assert_int_eq(ask(pay, "lost"), RESC_ONCE_UNKNOWN);
	ck_assert_int_eq(ask(pay, "new"), 0);
	both_at(11000);
	ck_assert_int_eq(ask(pay, "k0"), 0);
	ck_assert_int_eq(ask(late, "lost"), 0);
}
END_TEST

START_TEST(what_has_expired_stays_behind)
{
	do_it(pay, "k", "a");
	both_at(11000);
	announce();
	move();
	ck_assert_uint_eq(usage(&next).done, 0);
	ck_assert_int_eq(ask(pay, "k"), 0);
}
END_TEST

START_TEST(whoever_needs_the_keys_first_brings_them)
{
	/* rescd is dead, and moves nothing. */
	do_it(pay, "k", "a");
	announce();
	expect_answer(pay, "k", "a");
	ck_assert(once_is_ready(&next.map));
	ck_assert(once_is_closed(&old.map));
	ck_assert_int_eq(ask(late, "new"), 0);
}
END_TEST

START_TEST(a_worker_that_was_never_in_the_old_segment_brings_them_too)
{
	char path[MAP_PATH_SIZE];

	do_it(pay, "k", "a");
	/* As rescd does it: the old one keeps a name of its own. */
	map_path(path, old.instance, old.map.generation);
	ck_assert_int_eq(map_publish(&old.map, path), 0);
	announce();
	move_words_only();
	ck_assert_int_eq(rename(second, old.path), 0);
	resc *fresh = named_join(old.instance);
	expect_answer(named_lookup(fresh, "payments"), "k", "a");
	resc_close(fresh);
	unlink(path);
}
END_TEST

START_TEST(while_the_keys_cannot_be_had_nothing_begins)
{
	resc_once once;

	do_it(pay, "k", "a");
	announce();
	/* A segment whose own keys have not come has not all keys. */
	next.map.predecessor = old.map.generation;
	old.map.predecessor = 1;
	ck_assert(!once_move(&old.map, &next.map, ONCE_LIFE_OF_RESCD));
	old.map.predecessor = 0;
	move_words_only();
	/* The old one has no name, and this worker was never in it. */
	ck_assert_int_eq(rename(second, old.path), 0);
	resc *fresh = named_join(old.instance);
	ck_assert_int_eq(begin(named_lookup(fresh, "payments"), "k", &once), -EAGAIN);
	ck_assert_int_eq(begin(named_lookup(fresh, "payments"), "new", &once), -EAGAIN);
	move();
	expect_answer(named_lookup(fresh, "payments"), "k", "a");
	resc_close(fresh);
}
END_TEST

START_TEST(when_the_old_segment_is_gone_for_good_they_begin_without)
{
	resc_once once;

	ck_assert_int_eq(begin(late, "k", &once), 0);
	announce();
	move();
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	once_settle(NULL, &next.map);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_UNKNOWN);
}
END_TEST

/* ---- keys in work ---- */

START_TEST(a_key_in_work_is_busy_until_its_owner_is_done)
{
	resc_once once;

	ck_assert_int_eq(begin(late, "k", &once), 0);
	announce();
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	ck_assert_uint_eq(usage(&next).working, 1);
	ck_assert(!settle());
	both_at(50000); /* it does not expire */
	ck_assert(!settle());
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&once, "late", 4), 0);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY); /* until rescd looks */
	ck_assert(settle());
	expect_answer(pay, "k", "late");
	both_at(59999);
	expect_answer(late, "k", "late");
	both_at(60000);
	ck_assert_int_eq(ask(late, "k"), 0);
}
END_TEST

START_TEST(an_owner_that_is_in_the_successor_already_ends_its_key_in_the_old_one)
{
	resc_once once, abandoned;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	ck_assert_int_eq(begin(pay, "left", &abandoned), 0);
	announce();
	ck_assert_int_eq(ask(pay, "other"), 0);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	ck_assert_int_eq(resc_once_done(&once, "mine", 4), 0);
	ck_assert_int_eq(resc_once_abandon(&abandoned), 0);
	ck_assert(settle());
	expect_answer(late, "k", "mine");
	ck_assert_int_eq(ask(late, "left"), 0);
	struct resc_counters c;
	ck_assert_int_eq(resc_counters(pay, &c), 0);
	move_carry(&old.map, old.state, &next.map, next.state);
	ck_assert_int_eq(resc_counters(pay, &c), 0);
	ck_assert_uint_eq(c.once_done, 1);
}
END_TEST

START_TEST(the_attachment_stays_as_long_as_a_key_is_in_work_in_it)
{
	resc_once once;
	resc_ticket ticket;

	ck_assert_int_eq(begin(pay, "k", &once), 0);
	announce();
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(ask(pay, "other"), 0);
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		named_sleep_ms(1050);
	}
	ck_assert_int_eq(resc_once_done(&once, "mine", 4), 0);
	ck_assert(settle());
	expect_answer(pay, "k", "mine");
}
END_TEST

START_TEST(a_death_with_a_key_that_is_away_is_as_its_policy_says)
{
	resc_once once;

	for (int i = 0; i < 2; i++) {
		struct policy p = old.policy;
		p.once_on_death = i == 0 ? ON_DEATH_UNKNOWN : ON_DEATH_FREE;
		named_reload(&old, &p);
		resc *third = named_join(old.instance);
		ck_assert_int_eq(begin(named_lookup(third, "payments"), "k", &once), 0);
		announce();
		ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
		resc_close(third);
		ck_assert(settle());
		ck_assert_int_eq(ask(pay, "k"), i == 0 ? RESC_ONCE_UNKNOWN : 0);
		tear_down();
		set_up();
	}
}
END_TEST

START_TEST(through_a_chain_of_segments_a_key_comes_home)
{
	static struct named third;
	resc_once once;
	char first_name[MAP_PATH_SIZE];

	ck_assert_int_eq(begin(late, "k", &once), 0);
	announce();
	snprintf(first_name, sizeof first_name, "%s", second);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	announce_from(&next, &third, next.map.dims.once);
	ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
	ck_assert(!once_settle(&next.map, &third.map));
	ck_assert_int_eq(resc_once_done(&once, "home", 4), 0);
	ck_assert(settle());
	ck_assert(once_settle(&next.map, &third.map));
	expect_answer(pay, "k", "home");
	unlink(first_name);
	map_close(&third.map);
}
END_TEST

/* ---- settling what is unknown ---- */

static void make_unknown(void)
{
	resc_once once;
	resc *third = named_join(old.instance);

	ck_assert_int_eq(begin(named_lookup(third, "payments"), "k", &once), 0);
	resc_close(third);
}

START_TEST(an_unknown_key_that_has_come_along_is_settled_in_the_successor_alone)
{
	resc_once before, after;

	for (int i = 0; i < 4; i++) {
		make_unknown();
		ck_assert_int_eq(begin(late, "k", &before), RESC_ONCE_UNKNOWN);
		announce();
		move();
		if (i / 2 == 1) /* in the successor already */
			ck_assert_int_eq(ask(late, "other"), 0);
		ck_assert_int_eq(i % 2 == 0 ? resc_once_done(&before, "lost", 4) : resc_once_abandon(&before), -ESTALE);
		ck_assert_uint_eq(usage(&old).unknown, 1);
		ck_assert_int_eq(begin(late, "k", &after), RESC_ONCE_UNKNOWN);
		ck_assert_int_eq(resc_once_done(&after, "found", 5), 0);
		expect_answer(pay, "k", "found");
		ck_assert(settle());
		expect_answer(late, "k", "found");
		tear_down();
		set_up();
	}
}
END_TEST

/* Stopped before it looks whether the table is closed, and after that. */
START_TEST(who_is_overtaken_in_settling_settles_for_the_successor_or_not_at_all)
{
	static const char *const specs[] = {"once.storing=stop", "once.stored=stop", "once.stored=kill"};
	int status;

	for (size_t i = 0; i < 3; i++) {
		make_unknown();
		pid_t child = fork();
		if (child == 0) {
			resc_once once;
			resc_resource *resource = named_lookup(named_join(old.instance), "payments");
			if (begin(resource, "k", &once) != RESC_ONCE_UNKNOWN)
				_exit(1);
			failpoint_set(specs[i]);
			_exit(resc_once_done(&once, "home", 4) == (i == 0 ? -ESTALE : 0) ? 0 : 2);
		}
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		announce();
		move();
		ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY); /* it is away */
		if (WIFSTOPPED(status)) {
			kill(child, SIGCONT);
			ck_assert_int_eq(fixture_wait(child), 0);
		}
		worker_sweep(&old.map, 0);
		ck_assert(settle());
		if (i == 1)
			expect_answer(pay, "k", "home");
		else
			ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_UNKNOWN);
		tear_down();
		set_up();
	}
}
END_TEST

/* ---- at the same time ---- */

START_TEST(a_begin_that_is_overtaken_by_the_closing_begins_in_the_successor)
{
	static const char *const points[] = {"once.claimed", "once.looked", "once.recorded"};
	char spec[64];
	int status;

	for (size_t i = 0; i < 3; i++) {
		pid_t child = fork();
		if (child == 0) {
			resc_once once;
			resc *own = named_join(old.instance);
			resc_resource *resource = named_lookup(own, "payments");
			snprintf(spec, sizeof spec, "%s@1=stop", points[i]);
			failpoint_set(spec);
			int r = begin(resource, "k", &once);
			_exit(r == RESC_ONCE_DONE && memcmp(once.answer, "mine", 4) == 0 ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		ck_assert(WIFSTOPPED(status));
		announce();
		move();
		if (i == 2) {
			/* Recorded, and not told: away until it is taken back. */
			ck_assert_int_eq(ask(pay, "k"), RESC_ONCE_BUSY);
		} else {
			do_it(pay, "k", "mine");
		}
		kill(child, SIGCONT);
		if (i == 2) {
			/* It takes its record back, and is told that the key is away: by itself. */
			ck_assert_int_eq(fixture_wait(child), 1);
			ck_assert(settle());
			ck_assert_int_eq(ask(pay, "k"), 0);
		} else {
			ck_assert_int_eq(fixture_wait(child), 0);
		}
		tear_down();
		set_up();
	}
}
END_TEST

START_TEST(movers_may_die_or_stop_at_any_step)
{
	static const char *const specs[] = {"once.closed=kill",    "once.claimed=kill",    "once.written=kill", "once.looked@3=kill",
	                                    "once.recorded=kill",  "once.recorded@5=kill", "once.moved=kill",   "once.claimed=stop",
	                                    "once.written@4=stop", "once.looked=stop",     "once.moved=stop"};
	char key[16];
	int status;

	for (size_t i = 0; i < sizeof specs / sizeof *specs; i++) {
		for (int k = 0; k < 12; k++) {
			snprintf(key, sizeof key, "k%d", k);
			do_it(pay, key, key);
		}
		announce();
		pid_t child = fork();
		if (child == 0) {
			failpoint_set(specs[i]);
			_exit(ask(late, "k0") == RESC_ONCE_DONE ? 0 : 1);
		}
		ck_assert_int_eq(waitpid(child, &status, WUNTRACED), child);
		for (int k = 0; k < 12; k++) {
			snprintf(key, sizeof key, "k%d", k);
			expect_answer(pay, key, key);
		}
		ck_assert_uint_eq(usage(&next).done, 12);
		if (WIFSTOPPED(status)) {
			kill(child, SIGCONT);
			ck_assert_int_eq(fixture_wait(child), 0);
		}
		worker_sweep(&next.map, 0);
		ck_assert_uint_eq(usage(&next).working, 0);
		ck_assert_uint_eq(usage(&next).done, 12);
		tear_down();
		set_up();
	}
}
END_TEST

static void *move_it(void *life)
{
	once_move(&old.map, &next.map, *(const uint32_t *)life);
	return NULL;
}

START_TEST(movers_at_once_make_no_key_two)
{
	for (int round = 0; round < 20; round++) {
		pthread_t threads[4];
		uint32_t lives[] = {1001, 1002, 1003, ONCE_LIFE_OF_RESCD};
		char key[16];
		for (int k = 0; k < 12; k++) {
			snprintf(key, sizeof key, "k%d", k);
			do_it(pay, key, key);
		}
		announce_from(&old, &next, old.map.dims.once);
		for (int i = 0; i < 4; i++)
			ck_assert_int_eq(pthread_create(&threads[i], NULL, move_it, &lives[i]), 0);
		for (int i = 0; i < 4; i++)
			pthread_join(threads[i], NULL);
		ck_assert(once_is_ready(&next.map));
		ck_assert_uint_eq(usage(&next).done, 12);
		ck_assert_uint_eq(usage(&next).working, 0);
		for (int k = 0; k < 12; k++) {
			snprintf(key, sizeof key, "k%d", k);
			expect_answer(late, key, key);
		}
		tear_down();
		set_up();
	}
}
END_TEST

START_TEST(any_bytes_in_either_table_are_survived)
{
	uint64_t seed = 88172645463325252u;

	for (int round = 0; round < 30; round++) {
		announce_from(&old, &next, old.map.dims.once);
		for (uint32_t i = 0; i < old.map.dims.once; i++) {
			uint64_t *words = (uint64_t *)(void *)map_once_entry(&old.map, i);
			for (size_t w = 0; w < sizeof(struct once_entry) / 8; w++)
				words[w] = seed = seed * 6364136223846793005u + 1442695040888963407u;
			fixture_store(&old.map.once_slots[i], seed >> 7);
			if (i % 2 == 0) {
				fixture_store(&map_once_entry(&old.map, i)->key_size, 1 + seed % 255);
				fixture_store(&map_once_entry(&old.map, i)->answer_size, seed % 700);
			}
			fixture_store(&next.map.once_slots[i], i % 5 == 0 ? seed >> 9 : 0);
		}
		once_move(&old.map, &next.map, 7);
		settle();
		once_settle(NULL, &next.map);
		ck_assert(once_is_ready(&next.map));
		int r = ask(pay, "k");
		ck_assert_msg(r == 0 || r == -ENOSPC || (r >= RESC_ONCE_BUSY && r <= RESC_ONCE_UNKNOWN), "%d", r);
		tear_down();
		set_up();
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        answers_and_unknown_keys_come_along_with_their_time,
	        what_has_expired_stays_behind,
	        whoever_needs_the_keys_first_brings_them,
	        a_worker_that_was_never_in_the_old_segment_brings_them_too,
	        while_the_keys_cannot_be_had_nothing_begins,
	        when_the_old_segment_is_gone_for_good_they_begin_without,
	        a_key_in_work_is_busy_until_its_owner_is_done,
	        an_owner_that_is_in_the_successor_already_ends_its_key_in_the_old_one,
	        the_attachment_stays_as_long_as_a_key_is_in_work_in_it,
	        a_death_with_a_key_that_is_away_is_as_its_policy_says,
	        through_a_chain_of_segments_a_key_comes_home,
	        an_unknown_key_that_has_come_along_is_settled_in_the_successor_alone,
	        who_is_overtaken_in_settling_settles_for_the_successor_or_not_at_all,
	        a_begin_that_is_overtaken_by_the_closing_begins_in_the_successor,
	        movers_may_die_or_stop_at_any_step,
	        movers_at_once_make_no_key_two,
	        any_bytes_in_either_table_are_survived,
	};

	return NAMED_RUN("once_move", tests, set_up, tear_down);
}
