/* SPDX-License-Identifier: MIT */
/*
 * The stage of one take.
 *
 * Entrances, in the order of what needs what: the board, on which everybody writes; the dependencies, which know their ports when they
 * listen; rescd with the instance; the workers. When every caller has looked up its resources and has its connection, all of them
 * get the same start, a little later, so that nobody is late for it.
 *
 * While it is played, this process turns about each 10 ms: what scripts do to programs, samples, transitions, the backlog, the look of
 * whoever asked for the take. Whatever ends that should not (a worker, a dependency, rescd) ends the take, and then there is no result: a
 * rehearsal with a worker less is another one, and one with a worker that was stopped for a while, too. The same goes for notes that found
 * no room, and for this process itself: when it stood still, scripts of programs went on late, and nobody saw what a game day has to see.
 *
 * Exits. Callers in the middle of something get a moment to give back what they hold; their notes stay undone, as do those of requests
 * that nobody took. Only then, with nobody left who writes, what is known of those is added (who was rejected, whose client has gone), and
 * the totals are read.
 *
 * A signal only sets a flag (signals.c), which ends the turning; so there is one way out, and it passes the clean-up.
 */
#include "stage.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "balance.h"
#include "children.h"
#include "dependency.h"
#include "lab_rescd.h"
#include "sampler.h"
#include "signals.h"
#include "turn.h"
#include "view_config.h"
#include "worker.h"

#define TURN_NS        INT64_C(10000000)
#define LOOK_NS        INT64_C(200000000)
#define STOP_LOOK_NS   INT64_C(200000000)
#define STOPPED_NS     INT64_C(100000000)   /* between two turns: a stop that is no shorter may have changed something */
#define STILL_NS       INT64_C(4000000000)  /* between two turns at most; a host whose processors are all taken makes it wait for 3 s */
#define PATIENCE_NS    INT64_C(200000000)   /* with callers in the middle of something */
#define START_NS       INT64_C(30000000000) /* until everybody is there */
#define LEAD_NS        INT64_C(20000000)    /* from the word to the start */
#define LEAD_CALLER_NS INT64_C(20000)       /* and for each caller that has to wake up */

struct stage {
	const struct scenario *scenario;
	enum view view;
	const struct stage_options *options;
	struct take *take;
	struct lab_rescd rescd;
	struct dependencies *dependencies;
	struct children children;
	struct sampler sampler;
	int64_t look_ns;      /* when the next one is due */
	int64_t turn_ns;      /* when the last turn was */
	int64_t stop_look_ns; /* when it is looked whether one of the others was stopped */
};

/* ---- what must not happen ---- */

static int child_ended(const struct stage *stage, const struct child *child)
{
	char text[128];

	child_end_text(child, text, sizeof(text));
	fprintf(stderr, "resctl rehearse: %s (process %ld) %s in the middle of the rehearsal; without it there is no result\n", child->name,
	        (long)child->pid, text);
	if (child->pid == stage->rescd.pid)
		lab_rescd_tell(&stage->rescd);
	return -ECHILD;
}

static int check_stops(const struct stage *stage)
{
	bool goes_on;
	const struct child *child = children_stopped(&stage->children, &goes_on);

	if (child == NULL)
		return 0;
	fprintf(stderr,
	        "resctl rehearse: %s (process %ld) was stopped%s in the middle of the rehearsal, and all others went on; so there is no "
	        "result\n",
	        child->name, (long)child->pid, goes_on ? ", and went on," : "");
	return -ECHILD;
}

static int check_rooms(const struct board *board)
{
	/* relaxed: whoever drew a number without room will find none later either */
	uint32_t attempts = atomic_load_explicit(&board->attempts, memory_order_relaxed);
	uint32_t receipts = atomic_load_explicit(&board->receipts, memory_order_relaxed);

	if (attempts <= board->attempt_room && receipts <= board->receipt_room)
		return 0;
	fprintf(stderr, "resctl rehearse: more attempts than there is room to note (%u): shorten the rehearsal, or lower its rates\n",
	        board->attempt_room);
	return -ENOSPC;
}

/* Its calls failed, and the dependency has nothing to do with it. */
static int check_lacks(const struct board *board)
{
	int error = atomic_load_explicit(&board->lacked, memory_order_relaxed);

	if (error == 0)
		return 0;
	fprintf(stderr, "resctl rehearse: what a worker needs for its calls this host does not give it (%s); so there is no result\n",
	        strerror(error));
	return -error;
}

/* ---- entrances ---- */

static int new_board(struct stage *stage)
{
	stage->take->board = board_new(stage->scenario);
	if (stage->take->board != NULL)
		return 0;
	int r = -errno;
	if (r == -E2BIG)
		fprintf(stderr, "resctl rehearse: the load is more than %u requests: shorten the rehearsal, or lower its rates\n",
		        SCENARIO_REQUESTS);
	else
		fprintf(stderr, "resctl rehearse: no memory for the notes of the rehearsal: %s\n", strerror(-r));
	return r;
}

static int start_dependencies(struct stage *stage)
{
	pid_t pids[SCENARIO_DEPENDENCIES + 1];
	size_t count = 0;
	int r = 0;

	stage->dependencies = dependencies_start(stage->scenario, stage->take->board, pids, &count);
	if (stage->dependencies == NULL)
		return signals_came() != 0 ? -EINTR : -ECHILD;
	for (size_t i = 0; i < count && r == 0; i++)
		r = children_add(&stage->children, "a dependency", pids[i], false);
	return r;
}

static int start_rescd(struct stage *stage)
{
	const char *problem;
	json_t *configuration = view_configuration(stage->scenario, stage->view, &problem);

	if (configuration == NULL) {
		fprintf(stderr, "resctl rehearse: no configuration for the %s view: %s\n", view_name(stage->view),
		        problem != NULL ? problem : "out of memory");
		return problem != NULL ? -EINVAL : -ENOMEM;
	}
	int r = lab_rescd_start(&stage->rescd, stage->options->rescd, configuration, stage->options->verbose);
	json_decref(configuration);
	return r < 0 ? r : children_add(&stage->children, "rescd", stage->rescd.pid, false);
}

static int start_worker(struct stage *stage, unsigned number)
{
	char name[CHILD_NAME];
	pid_t pid = child_fork();

	if (pid == 0)
		_exit(worker_run(stage->scenario, stage->take->board, stage->rescd.instance, stage->view, number) ? EXIT_SUCCESS
		                                                                                                  : EXIT_FAILURE);
	if (pid < 0)
		return -ECHILD;
	snprintf(name, sizeof(name), "worker %u", number);
	int r = children_add(&stage->children, name, pid, true);
	if (r < 0)
		kill(pid, SIGKILL);
	return r;
}

static int start_workers(struct stage *stage)
{
	int r = 0;

	/* Or each child would write it again. */
	fflush(NULL);
	for (unsigned i = 0; i < stage->scenario->workers && r == 0 && signals_came() == 0; i++)
		r = start_worker(stage, i);
	return r;
}

static int64_t clock_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Until all callers are there. */
static int wait_for_callers(struct stage *stage)
{
	struct board *board = stage->take->board;
	uint32_t wanted = stage->scenario->workers * stage->scenario->threads, ready;
	int64_t until_ns = clock_now() + START_NS;

	/* acquire: what they did before they said so */
	while ((ready = atomic_load_explicit(&board->ready, memory_order_acquire)) < wanted && signals_came() == 0) {
		const struct child *ended = children_wait(&stage->children, TURN_NS / 5);
		if (ended != NULL)
			return child_ended(stage, ended);
		if (clock_now() < until_ns)
			continue;
		fprintf(stderr,
		        "resctl rehearse: of %u callers only %u are there after 30 s: the host is too busy, or there are too many\n",
		        wanted, ready);
		return -ETIMEDOUT;
	}
	return 0;
}

static int enter(struct stage *stage)
{
	int r = children_init(&stage->children, stage->scenario->workers + SCENARIO_DEPENDENCIES + 2);

	if (r == 0)
		r = new_board(stage);
	if (r == 0)
		r = start_dependencies(stage);
	if (r == 0)
		r = start_rescd(stage);
	if (r == 0)
		r = start_workers(stage);
	if (r == 0)
		r = wait_for_callers(stage);
	if (r == 0 && signals_came() == 0)
		r = sampler_open(&stage->sampler, &stage->rescd.map, stage->take);
	return r;
}

/* ---- the play ---- */

static void update_take(struct take *take, int64_t now_ns)
{
	uint32_t attempts = atomic_load_explicit(&take->board->attempts, memory_order_relaxed);
	uint32_t receipts = atomic_load_explicit(&take->board->receipts, memory_order_relaxed);

	take->duration_ns = now_ns < 0 ? 0 : now_ns < take->scenario->duration_ns ? now_ns : take->scenario->duration_ns;
	take->attempt_count = attempts < take->board->attempt_room ? attempts : take->board->attempt_room;
	take->receipt_count = receipts < take->board->receipt_room ? receipts : take->board->receipt_room;
}

/* True: whoever looks has seen enough. */
static bool look(struct stage *stage, int64_t now_ns)
{
	if (stage->options->look == NULL || now_ns < stage->look_ns)
		return false;
	stage->look_ns = now_ns + LOOK_NS;
	update_take(stage->take, now_ns);
	return stage->options->look(stage->options->arg, stage->take, &stage->take->stopped);
}

/* Stopped (Ctrl-Z), or held up (Ctrl-S), or on a host that sleeps or has no time for it. The others play on meanwhile, some of them. */
static int check_pace(struct stage *stage, int64_t now_ns)
{
	int64_t still_ns = now_ns - stage->turn_ns;
	bool stopped = signals_went_on() && still_ns >= STOPPED_NS;

	stage->turn_ns = now_ns;
	if (stopped) {
		fprintf(stderr,
		        "resctl rehearse: this process was stopped for %.1f s in the middle of the rehearsal, and all others went on; what "
		        "it had to see and to do then is missing, so there is no result\n",
		        (double)still_ns / 1e9);
		return -ETIME;
	}
	if (still_ns <= STILL_NS)
		return 0;
	fprintf(stderr,
	        "resctl rehearse: this process stood still for %.1f s in the middle of the rehearsal (is the host too busy?); what it had "
	        "to see and to do then is missing, so there is no result\n",
	        (double)still_ns / 1e9);
	return -ETIME;
}

static int turn(struct stage *stage, int64_t now_ns)
{
	int r = check_pace(stage, now_ns);

	if (r == 0)
		r = dependencies_turn(stage->dependencies, now_ns);
	if (r == 0)
		r = sampler_turn(&stage->sampler);
	if (r == 0)
		r = check_rooms(stage->take->board);
	if (r == 0)
		r = check_lacks(stage->take->board);
	if (r == 0 && now_ns >= stage->stop_look_ns) {
		stage->stop_look_ns = now_ns + STOP_LOOK_NS;
		r = check_stops(stage);
	}
	turn_look(stage->scenario, stage->take->board);
	return r;
}

static int play_it(struct stage *stage)
{
	struct board *board = stage->take->board;
	int64_t callers = (int64_t)stage->scenario->workers * stage->scenario->threads;
	int64_t end_ns = stage->scenario->duration_ns;

	board_start(board, clock_now() + LEAD_NS + callers * LEAD_CALLER_NS);
	for (int64_t now_ns = board_now(board); now_ns < end_ns && signals_came() == 0; now_ns = board_now(board)) {
		int r = turn(stage, now_ns);
		if (r < 0)
			return r;
		if (look(stage, now_ns))
			break;
		now_ns = board_now(board);
		int64_t pause_ns = end_ns - now_ns < TURN_NS ? end_ns - now_ns : TURN_NS;
		const struct child *ended = children_wait(&stage->children, pause_ns > 0 ? pause_ns : 0);
		if (ended != NULL && signals_came() == 0)
			return child_ended(stage, ended);
	}
	update_take(stage->take, board_now(board));
	if (signals_came() != 0)
		return 0;
	if (stage->take->stopped == NULL) {
		stage->look_ns = 0;
		look(stage, board_now(board));
	}
	int r = check_pace(stage, board_now(board));
	return r < 0 ? r : check_stops(stage);
}

/* ---- exits ---- */

/* Whose client has gone, whether anybody works on it or not. */
static void note_late(const struct scenario *scenario, struct board *board, int64_t end_ns)
{
	for (uint32_t i = 0; i < board->request_count; i++) {
		struct request_note *note = &board->requests[i];
		int64_t patience_ns = scenario->loads[note->load].patience_ns;
		if (patience_ns == 0 || note->arrival_ns + patience_ns > end_ns ||
		    atomic_load_explicit(&note->done, memory_order_relaxed) != 0)
			continue;
		note->ended_ns = note->arrival_ns + patience_ns;
		board_request_ended(board, note, SERVED_LATE);
	}
}

static int conclude(struct stage *stage)
{
	struct take *take = stage->take;
	int64_t end_ns = take->duration_ns;

	turn_last_look(stage->scenario, take->board, end_ns);
	note_late(stage->scenario, take->board, end_ns);
	int r = sampler_total(&stage->sampler);
	update_take(take, end_ns);
	if (r == 0)
		r = check_rooms(take->board);
	if (r == 0)
		r = check_lacks(take->board);
	return r < 0 ? r : balance_check(take);
}

static int leave(struct stage *stage, int r)
{
	bool played = r == 0 && stage->sampler.map != NULL;

	if (stage->take->board != NULL)
		board_end(stage->take->board);
	bool good = children_end(&stage->children, played ? PATIENCE_NS : 0);
	if (stage->dependencies != NULL)
		dependencies_stop(stage->dependencies);
	if (played && !good) {
		fprintf(stderr, "resctl rehearse: a worker of the rehearsal failed at its end; without it there is no result\n");
		r = -ECHILD;
	}
	if (played && r == 0)
		r = conclude(stage);
	sampler_close(&stage->sampler);
	lab_rescd_stop(&stage->rescd);
	children_free(&stage->children);
	return r;
}

int stage_play(const struct scenario *scenario, enum view view, const struct stage_options *options, struct take *out)
{
	struct stage stage = {.scenario = scenario, .view = view, .options = options, .take = out, .rescd = {.life = -1, .log = -1}};
	struct signals_before before;

	*out = (struct take){.scenario = scenario, .view = view};
	signals_catch(&before);
	int r = enter(&stage);
	if (r == 0 && signals_came() == 0)
		r = play_it(&stage);
	r = leave(&stage, r);
	if ((r == 0 || r == -EINTR) && signals_came() != 0)
		r = signals_came();
	signals_restore(&before);
	if (r < 0)
		take_free(out);
	return r;
}

void stage_sweep(void)
{
	lab_rescd_sweep();
}

void take_free(struct take *take)
{
	board_free(take->board);
	free(take->samples);
	free(take->transitions);
	*take = (struct take){0};
}
