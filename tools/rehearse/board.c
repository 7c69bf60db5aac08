/* SPDX-License-Identifier: MIT */
/*
 * Why the board is anonymous memory, made before the first fork: it has no name, so nothing of it can be left behind, and it has the same
 * address in all processes, so notes need no translation.
 *
 * Rooms. The schedule says how many requests there are. What they can cause is bounded by the most attempts that one of them can make,
 * which with five layers of three attempts each is hundreds; so the rooms are large, but reserved nowhere: a page costs memory when the
 * first note is written on it. A note that finds no room is lost; its number was drawn all the same, and so the stage sees it.
 *
 * Order. `go` and `stop` are stored with release and read with acquire: who sees `go` sees start_ns. `done` of a note pairs in the same
 * way with all of its fields. Numbers are drawn with relaxed fetch_add: they only have to differ.
 *
 * Sleeping callers wait on the futex of `stop` with a timeout, so that the end wakes all of them at once, whatever they wait for.
 */
#include "board.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "schedule.h"

#define ROOM_LIMIT (UINT64_C(1) << 28) /* notes of a kind: more than processes can make in the longest rehearsal */

/* ---- the memory ---- */

static void *reserve(size_t count, size_t size)
{
	void *memory = mmap(NULL, count * size + 1, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	return memory == MAP_FAILED ? NULL : memory;
}

static void give_back(void *memory, size_t count, size_t size)
{
	if (memory != NULL)
		munmap(memory, count * size + 1);
}

static uint32_t room_for(const struct scenario *scenario, size_t requests)
{
	uint64_t room = requests * (uint64_t)(scenario->slowest_attempts == 0 ? 1 : scenario->slowest_attempts);

	return (uint32_t)(room < ROOM_LIMIT ? room : ROOM_LIMIT);
}

static void write_schedule(struct board *board, const struct schedule *schedule)
{
	for (size_t i = 0; i < schedule->count; i++) {
		const struct arrival *arrival = &schedule->items[i];
		board->requests[i].arrival_ns = arrival->at_ns;
		board->requests[i].load = arrival->load;
		board->requests[i].number = arrival->number;
	}
}

static struct board *board_of(const struct scenario *scenario, const struct schedule *schedule)
{
	struct board *board = reserve(1, sizeof(*board));

	if (board == NULL)
		return NULL;
	board->request_count = (uint32_t)schedule->count;
	board->attempt_room = board->receipt_room = room_for(scenario, schedule->count);
	board->requests = reserve(board->request_count, sizeof(*board->requests));
	board->attempt_notes = reserve(board->attempt_room, sizeof(*board->attempt_notes));
	board->receipt_notes = reserve(board->receipt_room, sizeof(*board->receipt_notes));
	if (board->requests != NULL && board->attempt_notes != NULL && board->receipt_notes != NULL) {
		write_schedule(board, schedule);
		return board;
	}
	board_free(board);
	errno = ENOMEM;
	return NULL;
}

struct board *board_new(const struct scenario *scenario)
{
	struct schedule schedule;
	int r = schedule_make(scenario, &schedule);

	if (r < 0) {
		errno = -r;
		return NULL;
	}
	struct board *board = board_of(scenario, &schedule);
	schedule_free(&schedule);
	return board;
}

void board_free(struct board *board)
{
	if (board == NULL)
		return;
	give_back(board->requests, board->request_count, sizeof(*board->requests));
	give_back(board->attempt_notes, board->attempt_room, sizeof(*board->attempt_notes));
	give_back(board->receipt_notes, board->receipt_room, sizeof(*board->receipt_notes));
	give_back(board, 1, sizeof(*board));
}

/* ---- notes ---- */

/* Numbers beyond the room are drawn too. Not for ever: 2^32 of them would begin anew, and take the notes of others. */
static bool draw(_Atomic uint32_t *numbers, uint32_t room, uint32_t *number)
{
	if (atomic_load_explicit(numbers, memory_order_relaxed) > room)
		return false;
	*number = atomic_fetch_add_explicit(numbers, 1, memory_order_relaxed);
	return *number < room;
}

struct attempt_note *board_attempt(struct board *board)
{
	uint32_t number;

	return draw(&board->attempts, board->attempt_room, &number) ? &board->attempt_notes[number] : NULL;
}

struct receipt_note *board_receipt(struct board *board)
{
	uint32_t number;

	return draw(&board->receipts, board->receipt_room, &number) ? &board->receipt_notes[number] : NULL;
}

void board_request_ended(struct board *board, struct request_note *note, enum served served)
{
	note->served = (uint8_t)served;
	/* release: the note is complete */
	atomic_store_explicit(&note->done, 1, memory_order_release);
	atomic_fetch_add_explicit(&board->served[served], 1, memory_order_relaxed);
}

/* ---- time ---- */

static int64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t board_now(const struct board *board)
{
	/* acquire: start_ns was written before */
	if (atomic_load_explicit(&board->go, memory_order_acquire) == 0)
		return -1;
	return clock_now() - board->start_ns;
}

/* ---- beginning, end, and sleep in between ---- */

/* Until the word is not 0 any more, or until that time of CLOCK_MONOTONIC; at_ns INT64_MAX: without an end. */
static void sleep_on(_Atomic uint32_t *word, int64_t at_ns)
{
	struct timespec time = {.tv_sec = at_ns / 1000000000, .tv_nsec = at_ns % 1000000000};

	syscall(SYS_futex, word, FUTEX_WAIT_BITSET, 0, at_ns == INT64_MAX ? NULL : &time, NULL, FUTEX_BITSET_MATCH_ANY);
}

static void set(_Atomic uint32_t *word)
{
	/* release: what the parent wrote before */
	atomic_store_explicit(word, 1, memory_order_release);
	syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void board_start(struct board *board, int64_t start_ns)
{
	board->start_ns = start_ns;
	set(&board->go);
}

void board_end(struct board *board)
{
	set(&board->stop);
	/* Who still waits for the start has to hear of it too. */
	set(&board->go);
}

bool board_is_over(const struct board *board)
{
	return atomic_load_explicit(&board->stop, memory_order_acquire) != 0;
}

bool board_wait_for_start(struct board *board)
{
	while (atomic_load_explicit(&board->go, memory_order_acquire) == 0)
		sleep_on(&board->go, INT64_MAX);
	return !board_is_over(board);
}

bool board_sleep_until(struct board *board, int64_t at_ns)
{
	int64_t end_ns = at_ns > INT64_MAX - board->start_ns ? INT64_MAX : board->start_ns + at_ns;

	while (!board_is_over(board)) {
		if (clock_now() >= end_ns)
			return true;
		sleep_on(&board->stop, end_ns);
	}
	return false;
}
