/* SPDX-License-Identifier: MIT */
/*
 * A prefork worker: one request at a time, each of which needs a price from the dependency.
 *
 * Requests arrive at times that are fixed beforehand (from a seed), whether the worker is free or not, because clients do not
 * wait until a server feels well. A request that finds its worker busy waits for it, and that wait counts.
 *
 * The handle was looked up in the parent, before the fork, as prefork servers do it. Everything that the worker knows of the
 * other workers is behind `prices`.
 */
#include "worker.h"

#include <time.h>
#include <unistd.h>

struct worker {
	resc_resource *prices;
	const struct dependency *dependency;
	struct board *board;
	struct lane *lane;
	int connection;
	uint64_t random;
};

static void sleep_until(int64_t ns)
{
	struct timespec t = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0)
		;
}

static void note_inside(struct board *board)
{
	unsigned inside = atomic_fetch_add_explicit(&board->inside, 1, memory_order_relaxed) + 1;
	unsigned most = atomic_load_explicit(&board->inside_most, memory_order_relaxed);
	while (inside > most &&
	       !atomic_compare_exchange_weak_explicit(&board->inside_most, &most, inside, memory_order_relaxed, memory_order_relaxed))
		;
}

/* One attempt: what a worker would do anyway. */
static enum resc_outcome ask(struct worker *worker, const resc_ticket *ticket, unsigned item)
{
	note_inside(worker->board);
	enum resc_outcome outcome = dependency_ask(worker->dependency, &worker->connection, item, ticket->probe, ticket->timeout_ms);
	atomic_fetch_sub_explicit(&worker->board->inside, 1, memory_order_relaxed);
	return outcome;
}

/*
 * The price of an item: admission, attempt, outcome, and again if the policy says so. 0, or the answer that ended it.
 * (resc_run does this in one call. Here it is in the open, because the demo counts each step.)
 */
static int get_price(struct worker *worker, unsigned item, int64_t deadline_ns, unsigned *attempts)
{
	resc_options options = RESC_OPTIONS_INIT;
	resc_retry_plan plan = RESC_RETRY_INIT;
	options.deadline_ns = plan.deadline_ns = deadline_ns;

	for (;;) {
		resc_ticket ticket;
		int answer = resc_enter(worker->prices, &options, &ticket);
		if (answer != 0)
			return answer;
		enum resc_outcome outcome = ask(worker, &ticket, item);
		++*attempts;
		resc_leave(&ticket, outcome);
		if (outcome == RESC_OK)
			return 0;

		int64_t wait_ns;
		answer = resc_retry(worker->prices, &plan, outcome, &wait_ns);
		if (answer != 0)
			return answer;
		sleep_until(resc_now_ns() + wait_ns);
	}
}

/* The breaker has said no for the first time since the fault began: how many calls had to fail for that? */
static void note_stopped(struct worker *worker, int answer)
{
	struct lane *lane = worker->lane;
	struct board *board = worker->board;

	if (answer != RESC_E_OPEN && answer != RESC_E_HALF_OPEN)
		return;
	if (atomic_load_explicit(&lane->stopped, memory_order_relaxed) ||
	    atomic_load_explicit(&board->fault, memory_order_relaxed) == FAULT_NONE)
		return;
	lane->failing_when_stopped = atomic_load_explicit(&board->failing, memory_order_relaxed) -
	                             atomic_load_explicit(&board->failing_probes, memory_order_relaxed);
	/* Release: who sees the mark sees the figure. */
	atomic_store_explicit(&lane->stopped, 1, memory_order_release);
}

static void serve(struct worker *worker, struct request *request, unsigned item)
{
	int64_t arrived_ns = worker->board->start_ns + request->arrived_ns;
	int64_t deadline_ns = arrived_ns + worker->board->patience_ns;

	request->begun_ns = resc_now_ns() - worker->board->start_ns;
	int answer = get_price(worker, item, deadline_ns, &request->attempts);
	note_stopped(worker, answer);
	request->served = answer == 0 ? SERVED_LIVE : SERVED_STALE;
	if (resc_now_ns() >= deadline_ns)
		request->served = SERVED_LATE;
	else if (answer != 0)
		resc_fallback(worker->prices, "stale"); /* the last known price, from the worker's memory */
	request->ended_ns = resc_now_ns() - worker->board->start_ns;
}

/* Half to one and a half times the mean. */
static int64_t next_gap_ns(struct worker *worker)
{
	uint64_t period = (uint64_t)worker->board->period_ns;
	return (int64_t)(period / 2 + board_random(&worker->random) % period);
}

void worker_run(unsigned number, resc_resource *prices, const struct dependency *dependency, struct board *board)
{
	struct worker worker = {
	        .prices = prices,
	        .dependency = dependency,
	        .board = board,
	        .lane = &board->lanes[number],
	        .connection = -1,
	        .random = board->seed + number,
	};
	resc_seed(board->seed + number);

	int64_t arrived_ns = next_gap_ns(&worker) - board->period_ns / 2;
	for (unsigned i = 0; i < DEMO_REQUESTS && board->start_ns + arrived_ns < board->end_ns; i++) {
		struct request *request = &worker.lane->requests[i];
		request->arrived_ns = arrived_ns;
		sleep_until(board->start_ns + arrived_ns);
		serve(&worker, request, (unsigned)board_random(&worker.random) % 100);
		atomic_fetch_add_explicit(&worker.lane->served[request->served], 1, memory_order_relaxed);
		/* Release: who sees the count sees the request. */
		atomic_store_explicit(&worker.lane->count, i + 1, memory_order_release);
		arrived_ns += next_gap_ns(&worker);
	}
	if (worker.connection >= 0)
		close(worker.connection);
}
