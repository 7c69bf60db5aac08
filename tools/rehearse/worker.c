/* SPDX-License-Identifier: MIT */
/*
 * A worker of a rehearsal is what libresc is for: a process that was forked, opens the instance's view, looks up its resources once, and
 * serves requests with its threads. A view that is not the shared one of this rehearsal would make every figure worthless, so
 * it is no worker then.
 *
 * Everybody is there before the rehearsal starts: each thread reports when it has all that it needs, and waits for the word.
 */
#include "worker.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "children.h"
#include "play.h"
#include "turn.h"
#include "view_config.h"

/* Thousands of threads stand on one host. A name resolver and TLS need most of it; what is not touched costs nothing. */
#define STACK_SIZE ((size_t)256 << 10)

struct worker {
	const struct scenario *scenario;
	struct board *board;
	unsigned number;
	resc *host;
	resc_resource *resources[SCENARIO_RESOURCES];
	struct turn turn;
	_Atomic uint32_t threads; /* numbers drawn by them */
};

/* ---- the view ---- */

static bool open_view(struct worker *worker, const char *instance)
{
	struct resc_error err;
	struct resc_status status;

	worker->host = resc_open(instance, &err);
	if (worker->host == NULL) {
		fprintf(stderr, "resctl rehearse: worker %u: %s\n", worker->number, err.text);
		return false;
	}
	if (resc_status(worker->host, &status) == 0 && status.mode == RESC_SHARED)
		return true;
	fprintf(stderr, "resctl rehearse: worker %u: the instance of this rehearsal cannot be used: %s\n", worker->number, status.reason);
	return false;
}

static bool look_up(struct worker *worker, enum view view)
{
	for (size_t i = 0; i < worker->scenario->resource_count; i++) {
		struct resc_error err;
		char name[VIEW_NAME_SIZE];
		view_resource(name, worker->scenario->resources[i], view, worker->number);
		worker->resources[i] = resc_lookup(worker->host, name, &err);
		if (worker->resources[i] == NULL) {
			fprintf(stderr, "resctl rehearse: worker %u: resource '%s': %s\n", worker->number, name, err.text);
			return false;
		}
	}
	return true;
}

/* ---- a thread ---- */

/* The jitter of a caller: from the seed, and the same one for the same caller on each view. */
static uint64_t seed_of(const struct worker *worker, uint32_t thread)
{
	uint64_t caller = (uint64_t)worker->number * worker->scenario->threads + thread;

	return worker->scenario->seed + (caller + 1) * UINT64_C(0x9e3779b97f4a7c15);
}

/* With a caller less it is another rehearsal: the stage sees the process end, and ends it. */
static _Noreturn void give_up(void)
{
	_exit(EXIT_FAILURE);
}

static void play_all(struct worker *worker, struct player *player)
{
	struct request_note *note;

	while ((note = turn_take(&worker->turn)) != NULL) {
		if (play(player, note) < 0)
			give_up();
		turn_over(&worker->turn);
	}
	/* Idle, as workers are most of the time; one that ends early is a dead one to the stage. */
	board_sleep_until(worker->board, SCENARIO_FOREVER);
}

static void *serve(void *arg)
{
	struct worker *worker = arg;
	struct player player = {
	        .scenario = worker->scenario, .board = worker->board, .worker = worker->number, .resources = worker->resources};
	uint32_t thread = atomic_fetch_add_explicit(&worker->threads, 1, memory_order_relaxed);

	resc_seed(seed_of(worker, thread));
	player.caller = caller_new(worker->scenario, worker->board);
	if (player.caller == NULL) {
		fprintf(stderr, "resctl rehearse: worker %u: out of memory\n", worker->number);
		give_up();
	}
	atomic_fetch_add_explicit(&worker->board->ready, 1, memory_order_release);
	if (board_wait_for_start(worker->board))
		play_all(worker, &player);
	caller_free(player.caller);
	return NULL;
}

static bool run_threads(struct worker *worker)
{
	uint32_t wanted = worker->scenario->threads, count = 0;
	pthread_t *threads = calloc(wanted, sizeof(*threads));
	pthread_attr_t attr;
	int r = threads == NULL ? ENOMEM : pthread_attr_init(&attr);

	if (r == 0) {
		pthread_attr_setstacksize(&attr, STACK_SIZE);
		while (count < wanted && r == 0) {
			r = pthread_create(&threads[count], &attr, serve, worker);
			count += r == 0;
		}
		pthread_attr_destroy(&attr);
	}
	if (r != 0)
		fprintf(stderr, "resctl rehearse: worker %u: thread %u: %s%s\n", worker->number, (unsigned)count + 1, strerror(r),
		        child_remedy(r));
	else
		for (uint32_t i = 0; i < count; i++)
			pthread_join(threads[i], NULL);
	free(threads);
	return r == 0;
}

bool worker_run(const struct scenario *scenario, struct board *board, const char *instance, enum view view, unsigned number)
{
	struct worker worker = {.scenario = scenario, .board = board, .number = number, .turn = {scenario, board, number, 0}};
	char name[16];

	snprintf(name, sizeof(name), "worker %u", number);
	prctl(PR_SET_NAME, name);
	/* A request begins when it arrives, and not some 50 us later. */
	prctl(PR_SET_TIMERSLACK, 1UL);
	if (!open_view(&worker, instance) || !look_up(&worker, view) || !run_threads(&worker))
		return false;
	resc_close(worker.host);
	return true;
}
