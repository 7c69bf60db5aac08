/* SPDX-License-Identifier: MIT */
/*
 * Which caller plays which request.
 *
 * ORDER_ANY: who is free takes the next one, as processes do that accept from one socket, and sleeps until it arrives. So every free caller
 * has a request of its own to wait for, in order of arrival, and nobody is woken in vain. One that finds its request arrived already had
 * let it wait: all callers were busy.
 *
 * ORDER_IN_TURN: request i belongs to worker i modulo their number, and its threads take them in order.
 *
 * ORDER_SINGLE: the same, and `ended` counts the requests of the whole host that are over: i begins when it is i. This is one client in a
 * loop, as most small experiments have it: it makes a call each 50 ms, and where one takes 100 ms the next is late, and all behind it
 * are. So what was late is added to the arrivals of those that follow (`shift_ns`, written by whose turn it is).
 *
 * The backlog. A request that arrives when so many wait already is rejected. Nobody stands at the door to decide that at the very moment,
 * and nobody has to: what happened at the door depends on two things only, when requests arrived and when callers came. The first is in the
 * schedule, the second is when a caller holds the lock. So a caller that comes at t first catches up with the arrivals up to t: each of
 * them waits when there is room, or is rejected (at its arrival, whenever that is found out). Then it takes the first that waits, or, if
 * nobody does, the next that will arrive, which then does not wait for a caller. t is read under the lock, so times follow the order
 * of the lock, and the outcome is the same as with a doorman who never blinks. The parent catches up as well, for the live table, but
 * does not wait for the lock: a caller may have been killed with it.
 *
 *	[0, line_head)         taken or rejected
 *	[line_head, line_end)  arrived: waiting (line_waiting of them) or rejected, which their note says
 *	[line_end, count)      nobody has looked at them
 */
#include "turn.h"

#include <limits.h>
#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define NONE     UINT32_MAX
#define SLICE_NS 20000000 /* the end is looked for so often by who waits for another request to end */

/* ---- the backlog ---- */

static bool try_door(struct board *board)
{
	/* acquire, with the release in unlock_door: the line as the last one left it */
	return atomic_exchange_explicit(&board->door, 1, memory_order_acquire) == 0;
}

static void unlock_door(struct board *board)
{
	atomic_store_explicit(&board->door, 0, memory_order_release);
}

/* False: the rehearsal was over before the door was free. */
static bool lock_door(struct board *board)
{
	while (!try_door(board)) {
		if (board_is_over(board))
			return false;
		sched_yield();
	}
	return true;
}

static void reject(struct board *board, struct request_note *note)
{
	note->ended_ns = note->arrival_ns;
	board_request_ended(board, note, SERVED_REJECTED);
	atomic_fetch_add_explicit(&board->ended, 1, memory_order_relaxed);
}

/* What has arrived up to then. Under the lock. */
static void catch_up(const struct scenario *scenario, struct board *board, int64_t now_ns)
{
	for (; board->line_end < board->request_count; board->line_end++) {
		struct request_note *note = &board->requests[board->line_end];
		if (note->arrival_ns > now_ns)
			return;
		if (board->line_waiting < scenario->backlog)
			board->line_waiting++;
		else
			reject(board, note);
	}
}

static uint32_t first_waiting(struct board *board)
{
	while (board->requests[board->line_head].served == SERVED_REJECTED)
		board->line_head++;
	board->line_waiting--;
	return board->line_head++;
}

static uint32_t next_to_arrive(struct board *board)
{
	if (board->line_end == board->request_count)
		return NONE;
	board->line_head = ++board->line_end;
	return board->line_head - 1;
}

static uint32_t take_from_line(const struct scenario *scenario, struct board *board)
{
	if (!lock_door(board))
		return NONE;
	catch_up(scenario, board, board_now(board));
	uint32_t index = board->line_waiting > 0 ? first_waiting(board) : next_to_arrive(board);
	unlock_door(board);
	return index;
}

static bool has_backlog(const struct scenario *scenario)
{
	return scenario->backlog != UINT32_MAX && scenario->order == ORDER_ANY;
}

void turn_look(const struct scenario *scenario, struct board *board)
{
	if (!has_backlog(scenario) || !try_door(board))
		return;
	catch_up(scenario, board, board_now(board));
	unlock_door(board);
}

void turn_last_look(const struct scenario *scenario, struct board *board, int64_t end_ns)
{
	if (has_backlog(scenario))
		catch_up(scenario, board, end_ns);
}

/* ---- the others ---- */

static uint32_t take_any(struct board *board)
{
	/* Looked at first: idle callers that come again and again would let it overflow. */
	if (atomic_load_explicit(&board->next, memory_order_relaxed) >= board->request_count)
		return NONE;
	uint32_t index = atomic_fetch_add_explicit(&board->next, 1, memory_order_relaxed);
	return index < board->request_count ? index : NONE;
}

static uint32_t take_in_turn(struct turn *turn)
{
	uint32_t count = turn->board->request_count;

	if (atomic_load_explicit(&turn->taken, memory_order_relaxed) >= count)
		return NONE;
	uint64_t round = atomic_fetch_add_explicit(&turn->taken, 1, memory_order_relaxed);
	uint64_t index = round * turn->scenario->workers + turn->worker;
	return index < count ? (uint32_t)index : NONE;
}

/* Until all before it have ended. False: the rehearsal is over. */
static bool wait_for_others(struct board *board, uint32_t index)
{
	const struct timespec slice = {.tv_nsec = SLICE_NS};

	while (!board_is_over(board)) {
		/* acquire, with the release in turn_over: what the one before did is done */
		uint32_t ended = atomic_load_explicit(&board->ended, memory_order_acquire);
		if (ended >= index)
			return true;
		syscall(SYS_futex, &board->ended, FUTEX_WAIT, ended, &slice, NULL, 0);
	}
	return false;
}

static uint32_t take(struct turn *turn)
{
	if (turn->scenario->order != ORDER_ANY)
		return take_in_turn(turn);
	return has_backlog(turn->scenario) ? take_from_line(turn->scenario, turn->board) : take_any(turn->board);
}

/* Comes when it is due, or now, if that is over; and those behind it as much later. */
static void shift(struct board *board, struct request_note *note)
{
	int64_t now_ns = board_now(board);

	note->arrival_ns += board->shift_ns;
	if (note->arrival_ns >= now_ns)
		return;
	board->shift_ns += now_ns - note->arrival_ns;
	note->arrival_ns = now_ns;
}

struct request_note *turn_take(struct turn *turn)
{
	uint32_t index = take(turn);

	if (index == NONE)
		return NULL;
	struct request_note *note = &turn->board->requests[index];
	if (turn->scenario->order == ORDER_SINGLE) {
		if (!wait_for_others(turn->board, index))
			return NULL;
		shift(turn->board, note);
	}
	return board_sleep_until(turn->board, note->arrival_ns) ? note : NULL;
}

void turn_over(struct turn *turn)
{
	atomic_fetch_add_explicit(&turn->board->ended, 1, memory_order_release);
	if (turn->scenario->order == ORDER_SINGLE)
		syscall(SYS_futex, &turn->board->ended, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}
