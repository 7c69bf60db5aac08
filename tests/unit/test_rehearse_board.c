/* SPDX-License-Identifier: MIT */
/*
 * The board of a rehearsal and the turns on it: notes of several processes, who plays what, and who is rejected at the door. Time is moved
 * by saying that the rehearsal started long ago.
 */
#include "board.h"

#include <errno.h>
#include <signal.h>
#include <time.h>

#include "fixture.h"
#include "turn.h"

#define SECOND  INT64_C(1000000000)
#define MS      INT64_C(1000000)
#define WORKERS 4

static int64_t at[1000];
static struct load load;
static struct scenario scenario;
static struct board *board;

static void set_up(void)
{
	load = (struct load){.arrivals = ARRIVALS_AT, .at = at};
	scenario = (struct scenario){.loads = &load,
	                             .load_count = 1,
	                             .duration_ns = 1000 * SECOND,
	                             .workers = WORKERS,
	                             .threads = 1,
	                             .backlog = UINT32_MAX,
	                             .slowest_attempts = 2};
}

static void tear_down(void)
{
	board_free(board);
	board = NULL;
}

/* One each so many nanoseconds. */
static void offer(size_t count, int64_t every_ns)
{
	for (size_t i = 0; i < count; i++)
		at[i] = (int64_t)i * every_ns;
	load.at_count = count;
	board = board_new(&scenario);
	ck_assert_ptr_nonnull(board);
}

static int64_t clock_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * SECOND + t.tv_nsec;
}

static void start_ago(int64_t ns)
{
	board_start(board, clock_ns() - ns);
}

static struct turn turn_of(unsigned worker)
{
	return (struct turn){&scenario, board, worker, 0};
}

static uint32_t index_of(const struct request_note *note)
{
	ck_assert_ptr_nonnull(note);
	return (uint32_t)(note - board->requests);
}

/* ---- notes ---- */

START_TEST(the_schedule_is_on_it)
{
	offer(3, 50 * MS);
	ck_assert_uint_eq(board->request_count, 3);
	ck_assert_int_eq(board->requests[2].arrival_ns, 100 * MS);
	ck_assert_uint_eq(board->requests[2].number, 3);
	ck_assert_uint_eq(board->requests[2].served, SERVED_NOT_YET);
}
END_TEST

START_TEST(a_board_without_requests_is_one)
{
	offer(0, 0);
	start_ago(SECOND);
	struct turn turn = turn_of(0);
	ck_assert_ptr_null(turn_take(&turn));
}
END_TEST

START_TEST(more_requests_than_there_may_be_are_refused)
{
	double rate = 2000000;

	load = (struct load){.rates = &rate, .rate_count = 1, .to_ns = SCENARIO_FOREVER};
	errno = 0;
	ck_assert_ptr_null(board_new(&scenario));
	ck_assert_int_eq(errno, E2BIG);
}
END_TEST

START_TEST(there_is_room_for_what_the_requests_can_cause_and_what_is_beyond_is_noticed)
{
	offer(3, MS);
	for (int i = 0; i < 6; i++)
		ck_assert_ptr_eq(board_attempt(board), &board->attempt_notes[i]);
	ck_assert_uint_eq(atomic_load(&board->attempts), 6);
	for (int i = 0; i < 10; i++)
		ck_assert_ptr_null(board_attempt(board));
	ck_assert_uint_gt(atomic_load(&board->attempts), board->attempt_room);
	ck_assert_ptr_eq(board_receipt(board), &board->receipt_notes[0]);
}
END_TEST

START_TEST(what_a_child_notes_its_parent_reads)
{
	offer(2, MS);
	pid_t pid = fork();
	if (pid == 0) {
		board_attempt(board)->answer = RESC_E_OPEN;
		board_request_ended(board, &board->requests[1], SERVED_FALLBACK);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_int_eq(board->attempt_notes[0].answer, RESC_E_OPEN);
	ck_assert_uint_eq(atomic_load(&board->requests[1].done), 1);
	ck_assert_uint_eq(board->requests[1].served, SERVED_FALLBACK);
	ck_assert_uint_eq(atomic_load(&board->served[SERVED_FALLBACK]), 1);
}
END_TEST

/* ---- time ---- */

START_TEST(before_the_start_it_is_early)
{
	offer(1, MS);
	ck_assert_int_lt(board_now(board), 0);
	start_ago(-SECOND);
	ck_assert_int_lt(board_now(board), 0);
	board_start(board, clock_ns() - SECOND);
	ck_assert_int_ge(board_now(board), SECOND);
}
END_TEST

START_TEST(the_end_wakes_who_sleeps_and_who_waits_for_the_start)
{
	offer(1, MS);
	start_ago(0);
	pid_t sleeper = fork();
	if (sleeper == 0)
		_exit(board_sleep_until(board, SCENARIO_FOREVER) ? 1 : 0);
	board_end(board);
	ck_assert_int_eq(fixture_wait(sleeper), 0);
	ck_assert(!board_sleep_until(board, 0));
	board_free(board);

	offer(1, MS);
	pid_t waiter = fork();
	if (waiter == 0)
		_exit(board_wait_for_start(board) ? 1 : 0);
	board_end(board);
	ck_assert_int_eq(fixture_wait(waiter), 0);
}
END_TEST

START_TEST(who_sleeps_wakes_in_time)
{
	offer(1, MS);
	start_ago(0);
	ck_assert(board_sleep_until(board, 20 * MS));
	ck_assert_int_ge(board_now(board), 20 * MS);
	ck_assert(board_sleep_until(board, 0));
}
END_TEST

/* ---- turns ---- */

static void note_taker(struct turn *turn)
{
	struct request_note *note;

	while ((note = turn_take(turn)) != NULL) {
		note->attempts++;
		note->worker = (uint16_t)turn->worker;
		turn_over(turn);
	}
}

/* All of them in processes of their own. */
static void play_all(void)
{
	pid_t pids[WORKERS];

	for (unsigned i = 0; i < WORKERS; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		struct turn turn = turn_of(i);
		note_taker(&turn);
		_exit(0);
	}
	for (unsigned i = 0; i < WORKERS; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
}

START_TEST(each_request_is_taken_once_by_whoever_is_free)
{
	offer(1000, 1);
	start_ago(SECOND);
	play_all();
	for (uint32_t i = 0; i < 1000; i++)
		ck_assert_uint_eq(board->requests[i].attempts, 1);
	ck_assert_uint_eq(atomic_load(&board->ended), 1000);
}
END_TEST

START_TEST(in_turn_request_i_is_of_worker_i_modulo_workers)
{
	scenario.order = ORDER_IN_TURN;
	offer(101, 1);
	start_ago(SECOND);
	play_all();
	for (uint32_t i = 0; i < 101; i++) {
		ck_assert_uint_eq(board->requests[i].attempts, 1);
		ck_assert_uint_eq(board->requests[i].worker, i % WORKERS);
	}
}
END_TEST

START_TEST(one_at_a_time_nobody_begins_before_the_one_before_has_ended)
{
	scenario.order = ORDER_SINGLE;
	offer(40, 1);
	start_ago(SECOND);
	play_all();
	for (uint32_t i = 0; i < 40; i++)
		ck_assert_uint_eq(board->requests[i].worker, i % WORKERS);
	for (uint32_t i = 1; i < 40; i++)
		ck_assert_int_ge(board->requests[i].arrival_ns, board->requests[i - 1].arrival_ns);
}
END_TEST

START_TEST(one_at_a_time_who_is_late_makes_those_behind_him_late)
{
	scenario.order = ORDER_SINGLE;
	scenario.workers = 1;
	offer(3, 50 * MS);
	start_ago(10 * SECOND); /* the first takes so long */
	struct turn turn = turn_of(0);
	ck_assert_ptr_eq(turn_take(&turn), &board->requests[0]);
	turn_over(&turn);
	ck_assert_ptr_eq(turn_take(&turn), &board->requests[1]);
	turn_over(&turn);
	ck_assert_ptr_eq(turn_take(&turn), &board->requests[2]);
	ck_assert_int_ge(board->requests[1].arrival_ns, 10 * SECOND);
	ck_assert_int_ge(board->requests[2].arrival_ns, board->requests[1].arrival_ns + 50 * MS);
}
END_TEST

START_TEST(nobody_plays_what_comes_after_the_end)
{
	offer(2, 500 * SECOND);
	start_ago(SECOND);
	struct turn turn = turn_of(0);
	ck_assert_uint_eq(index_of(turn_take(&turn)), 0);
	board_end(board);
	ck_assert_ptr_null(turn_take(&turn));
	ck_assert_uint_eq(board->requests[1].served, SERVED_NOT_YET);
}
END_TEST

/* ---- the backlog ---- */

static void is_rejected(uint32_t index)
{
	const struct request_note *note = &board->requests[index];

	ck_assert_uint_eq(note->served, SERVED_REJECTED);
	ck_assert_uint_eq(atomic_load(&note->done), 1);
	ck_assert_int_eq(note->ended_ns, note->arrival_ns);
}

START_TEST(who_comes_late_finds_as_many_waiting_as_there_is_room_for)
{
	scenario.backlog = 2;
	offer(5, MS);
	start_ago(SECOND);
	struct turn turn = turn_of(0);
	ck_assert_uint_eq(index_of(turn_take(&turn)), 0);
	ck_assert_uint_eq(index_of(turn_take(&turn)), 1);
	ck_assert_ptr_null(turn_take(&turn));
	for (uint32_t i = 2; i < 5; i++)
		is_rejected(i);
	ck_assert_uint_eq(atomic_load(&board->served[SERVED_REJECTED]), 3);
}
END_TEST

START_TEST(who_is_taken_makes_room_and_the_line_goes_on_behind_who_was_rejected)
{
	scenario.backlog = 2;
	offer(8, 100 * SECOND);
	start_ago(350 * SECOND); /* 0, 1, 2 and 3 have arrived */
	struct turn turn = turn_of(0);
	ck_assert_uint_eq(index_of(turn_take(&turn)), 0);
	is_rejected(2);
	is_rejected(3);
	board->start_ns -= 100 * SECOND; /* 4 finds room beside 1 */
	ck_assert_uint_eq(index_of(turn_take(&turn)), 1);
	ck_assert_uint_eq(board->requests[4].served, SERVED_NOT_YET);
	ck_assert_uint_eq(index_of(turn_take(&turn)), 4);
	ck_assert_uint_eq(board->line_waiting, 0);
}
END_TEST

/* Who is idle waits for the next one to come, so that one needs no place. Nobody is given what came before him. */
START_TEST(without_a_backlog_idle_workers_still_get_what_arrives)
{
	struct request_note *note;
	uint32_t next = 0;

	scenario.backlog = 0;
	offer(4, 20 * MS);
	start_ago(MS); /* the first arrived when nobody was there */
	struct turn turn = turn_of(0);
	for (int64_t came = board_now(board); (note = turn_take(&turn)) != NULL; came = board_now(board)) {
		ck_assert_int_ge(note->arrival_ns, came);
		ck_assert_int_ge(board_now(board), note->arrival_ns);
		while (next < index_of(note))
			is_rejected(next++);
		next++;
	}
	while (next < 4)
		is_rejected(next++);
	is_rejected(0);
}
END_TEST

START_TEST(the_parent_sees_who_is_rejected_while_all_are_busy)
{
	scenario.backlog = 1;
	offer(4, MS);
	start_ago(SECOND);
	turn_look(&scenario, board);
	ck_assert_uint_eq(board->line_waiting, 1);
	is_rejected(1);
	is_rejected(3);
}
END_TEST

START_TEST(the_last_look_is_at_the_end_whoever_has_the_door)
{
	scenario.backlog = 1;
	offer(4, SECOND);
	start_ago(0);
	atomic_store(&board->door, 1); /* somebody was killed with it */
	turn_look(&scenario, board);
	ck_assert_uint_eq(board->line_end, 0);
	turn_last_look(&scenario, board, 2 * SECOND);
	ck_assert_uint_eq(board->line_end, 3);
	is_rejected(1);
	is_rejected(2);
}
END_TEST

START_TEST(several_at_the_door_neither_lose_nor_double_anybody)
{
	unsigned rejected = 0, taken = 0;

	scenario.backlog = 500;
	offer(1000, 1);
	start_ago(SECOND);
	play_all();
	for (uint32_t i = 0; i < 1000; i++) {
		bool is_out = board->requests[i].served == SERVED_REJECTED;
		ck_assert_uint_eq(board->requests[i].attempts, is_out ? 0 : 1);
		rejected += is_out;
		taken += board->requests[i].attempts;
	}
	ck_assert_uint_eq(taken, 500);
	ck_assert_uint_eq(rejected, 500);
	ck_assert_uint_eq(atomic_load(&board->ended), 1000);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        the_schedule_is_on_it,
	        a_board_without_requests_is_one,
	        more_requests_than_there_may_be_are_refused,
	        there_is_room_for_what_the_requests_can_cause_and_what_is_beyond_is_noticed,
	        what_a_child_notes_its_parent_reads,
	        before_the_start_it_is_early,
	        the_end_wakes_who_sleeps_and_who_waits_for_the_start,
	        who_sleeps_wakes_in_time,
	        each_request_is_taken_once_by_whoever_is_free,
	        in_turn_request_i_is_of_worker_i_modulo_workers,
	        one_at_a_time_nobody_begins_before_the_one_before_has_ended,
	        one_at_a_time_who_is_late_makes_those_behind_him_late,
	        nobody_plays_what_comes_after_the_end,
	        who_comes_late_finds_as_many_waiting_as_there_is_room_for,
	        who_is_taken_makes_room_and_the_line_goes_on_behind_who_was_rejected,
	        without_a_backlog_idle_workers_still_get_what_arrives,
	        the_parent_sees_who_is_rejected_while_all_are_busy,
	        the_last_look_is_at_the_end_whoever_has_the_door,
	        several_at_the_door_neither_lose_nor_double_anybody,
	};

	return FIXTURE_RUN("rehearse_board", tests, set_up, tear_down);
}
