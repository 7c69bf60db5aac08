/* SPDX-License-Identifier: MIT */
/*
 * One run: start rescd and the dependency, fork the workers, break the dependency and mend it, count.
 *
 * The two views differ in one thing only, the names that the workers look up. On the shared view all eight guard their calls with the
 * resource "prices". On its own view worker 3 has "prices-3", with the very same policy: that is what a breaker library inside each
 * process gives.
 */
#include "run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "child.h"
#include "worker.h"

#define TICK_NS  INT64_C(500000000)
#define SLICE_NS INT64_C(250000000) /* of the worst attempts per request */

static const char policy[] = "{ \"breaker\": { \"consecutive\": 5, \"cooldown\": \"700ms\", \"probes\": 1, \"probe_timeout\": \"2s\" },\n"
                             "      \"retry\": { \"attempts\": 3, \"base\": \"20ms\", \"cap\": \"100ms\", \"budget\": { \"ratio\": 0.1, "
                             "\"capacity\": 10 } },\n"
                             "      \"bulkhead\": { \"limit\": 7 }, \"timeout\": { \"attempt\": \"150ms\" } }";

struct run {
	const struct story *story;
	enum view view;
	struct board *board;
	struct dependency dependency;
	pid_t rescd;
	pid_t workers[DEMO_WORKERS];
	char instance[32];
	char config[512];
	char log[512];
	char control[512];
	resc *host;
	resc_resource *prices[DEMO_WORKERS];
};

/* ---- rescd ---- */

static void resource_name(const struct run *run, unsigned worker, char name[16])
{
	if (run->view == VIEW_SHARED)
		snprintf(name, 16, "prices");
	else
		snprintf(name, 16, "prices-%u", worker + 1);
}

static int write_config(struct run *run)
{
	char name[16];
	FILE *file = fopen(run->config, "we");
	if (file == NULL) {
		fprintf(stderr, "demo: cannot write %s: %s\n", run->config, strerror(errno));
		return -errno;
	}
	fprintf(file, "{ \"instance\": \"%s\",\n  \"resources\": {\n", run->instance);
	unsigned count = run->view == VIEW_SHARED ? 1 : DEMO_WORKERS;
	for (unsigned i = 0; i < count; i++) {
		resource_name(run, i, name);
		fprintf(file, "    \"%s\": %s%s\n", name, policy, i + 1 < count ? "," : "");
	}
	fprintf(file, "  } }\n");
	return fclose(file) == 0 ? 0 : -EIO;
}

static void show_log(const struct run *run)
{
	char line[512];
	FILE *file = fopen(run->log, "re");
	while (file != NULL && fgets(line, sizeof(line), file))
		fprintf(stderr, "  %s", line);
	if (file != NULL)
		fclose(file);
}

/* rescd is ready when a worker can join: the view is not private any more. */
static int join(struct run *run)
{
	struct resc_error err;
	int64_t deadline = resc_deadline_after_ms(5000);
	char path[64];

	snprintf(path, sizeof(path), "/dev/shm/resc.%s", run->instance);
	while (access(path, F_OK) != 0) {
		if (child_ended(&run->rescd) || resc_now_ns() >= deadline) {
			fprintf(stderr, "demo: rescd did not start:\n");
			show_log(run);
			return -ECHILD;
		}
		int got = child_sleep_until(resc_now_ns() + 10000000);
		if (got != 0)
			return got;
	}
	run->host = resc_open(run->instance, &err);
	if (run->host == NULL) {
		fprintf(stderr, "demo: %s\n", err.text);
		return err.code;
	}
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		char name[16];
		resource_name(run, i, name);
		run->prices[i] = resc_lookup(run->host, name, &err);
		if (run->prices[i] == NULL) {
			fprintf(stderr, "demo: %s\n", err.text);
			return err.code;
		}
	}
	return 0;
}

static int start_rescd(struct run *run)
{
	int r = write_config(run);
	if (r != 0)
		return r;
	char *const argv[] = {(char *)(uintptr_t)run->story->rescd, "--config", run->config, "--control", run->control, NULL};
	run->rescd = child_start(argv, run->log);
	return run->rescd < 0 ? run->rescd : join(run);
}

static void stop_rescd(struct run *run)
{
	char path[64];

	resc_close(run->host);
	if (run->rescd > 0)
		child_stop(&run->rescd, SIGTERM);
	/* rescd leaves the segment for the workers, on purpose. Nobody needs this one any more. */
	snprintf(path, sizeof(path), "/dev/shm/resc.%s", run->instance);
	unlink(path);
	unlink(run->config);
	unlink(run->control);
	unlink(run->log);
}

/* ---- progress ---- */

static const char *phase_name(const struct timeline *t, int64_t now_ns)
{
	return now_ns < t->hang_ns ? "healthy" : now_ns < t->errors_ns ? "hangs" : now_ns < t->recovery_ns ? "errors" : "healthy again";
}

static void breaker_letters(const struct run *run, char letters[DEMO_WORKERS + 1])
{
	static const char letter[] = {[RESC_CLOSED] = '.', [RESC_BREAKER_OPEN] = 'O', [RESC_HALF_OPEN] = 'h'};
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		struct resc_state state;
		letters[i] = resc_state(run->prices[i], &state) == 0 ? letter[state.breaker] : '?';
	}
	letters[DEMO_WORKERS] = '\0';
}

static void print_progress(const struct run *run, int64_t now_ns)
{
	static unsigned before[SERVED_KINDS];
	char letters[DEMO_WORKERS + 1];
	unsigned sums[SERVED_KINDS] = {0};

	for (unsigned i = 0; i < DEMO_WORKERS; i++)
		for (unsigned k = 0; k < SERVED_KINDS; k++)
			sums[k] += atomic_load_explicit(&run->board->lanes[i].served[k], memory_order_relaxed);
	if (now_ns <= TICK_NS)
		memset(before, 0, sizeof(before));
	breaker_letters(run, letters);
	printf("  %4.1f s  %-14s %s  %5u %5u %5u  %7u\n", (double)now_ns / 1e9, phase_name(&run->story->timeline, now_ns - 1), letters,
	       sums[SERVED_LIVE] - before[SERVED_LIVE], sums[SERVED_STALE] - before[SERVED_STALE], sums[SERVED_LATE] - before[SERVED_LATE],
	       atomic_load_explicit(&run->board->failing, memory_order_relaxed));
	memcpy(before, sums, sizeof(before));
	fflush(stdout);
}

/* ---- the story ---- */

static int fork_workers(struct run *run)
{
	struct board *board = run->board;
	board->start_ns = resc_now_ns() + 50000000;
	board->end_ns = board->start_ns + run->story->timeline.end_ns;
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		pid_t pid = child_fork();
		if (pid < 0) {
			fprintf(stderr, "demo: cannot fork a worker: %s\n", strerror(-pid));
			return pid;
		}
		if (pid == 0) {
			worker_run(i, run->prices[i], &run->dependency, board);
			resc_close(run->host);
			_exit(0);
		}
		run->workers[i] = pid;
	}
	return 0;
}

/*
 * Whoever ends before the story does spoils the figures, and that must not look like a result. (Without rescd the workers would go
 * on just so; but then it is somebody else's story.)
 */
static int check_cast(struct run *run, bool workers)
{
	const char *gone = NULL;

	if (child_ended(&run->dependency.pid))
		gone = run->story->kind->what;
	if (child_ended(&run->rescd))
		gone = "rescd";
	for (unsigned i = 0; workers && i < DEMO_WORKERS; i++)
		if (child_ended(&run->workers[i]))
			gone = "a worker";
	if (gone != NULL) {
		fprintf(stderr, "demo: %s has ended before its time\n", gone);
		return -ECHILD;
	}
	if (ferror(stdout)) {
		fprintf(stderr, "demo: nobody reads what it prints\n");
		return -EPIPE;
	}
	return 0;
}

/* Sleeps until a moment of the run, with a line of progress for each half second. */
static int play_until(struct run *run, int64_t *now_ns, int64_t until_ns)
{
	while (*now_ns < until_ns) {
		int64_t next = (*now_ns / TICK_NS + 1) * TICK_NS;
		if (next > until_ns)
			next = until_ns;
		int got = child_sleep_until(run->board->start_ns + next);
		if (got != 0)
			return got;
		*now_ns = next;
		if (next % TICK_NS == 0)
			print_progress(run, next);
		int r = check_cast(run, next < run->story->timeline.end_ns);
		if (r != 0)
			return r;
	}
	return 0;
}

static int play(struct run *run)
{
	const struct timeline *t = &run->story->timeline;
	const struct {
		int64_t until_ns;
		enum fault then;
	} acts[] = {{t->hang_ns, FAULT_HANG}, {t->errors_ns, FAULT_ERRORS}, {t->recovery_ns, FAULT_NONE}, {t->end_ns, FAULT_NONE}};
	int64_t now_ns = 0;

	printf("  %6s  %-14s %-8s  %5s %5s %5s  %7s\n", "", "dependency", "breakers", "live", "stale", "late", "failing");
	for (unsigned i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		int r = play_until(run, &now_ns, acts[i].until_ns);
		if (r != 0)
			return r;
		if (i + 1 == sizeof(acts) / sizeof(acts[0]))
			break;
		r = dependency_set(&run->dependency, acts[i].then);
		if (r != 0) {
			fprintf(stderr, "demo: cannot switch the dependency: %s\n", strerror(-r));
			return r;
		}
	}
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		if (child_wait(&run->workers[i], 3000))
			continue;
		fprintf(stderr, "demo: worker %u does not come to an end\n", i + 1);
		return -ETIMEDOUT;
	}
	return 0;
}

/* ---- figures ---- */

static double worst_attempts(const struct board *board, int64_t end_ns)
{
	double worst = 0;
	for (int64_t from = 0; from < end_ns; from += SLICE_NS) {
		unsigned requests = 0, attempts = 0;
		for (unsigned i = 0; i < DEMO_WORKERS; i++) {
			const struct lane *lane = &board->lanes[i];
			unsigned count = atomic_load_explicit(&lane->count, memory_order_acquire);
			for (unsigned n = 0; n < count; n++) {
				const struct request *request = &lane->requests[n];
				/* By when they were begun. Those that were not let through at all made no attempt. */
				if (request->begun_ns < from || request->begun_ns >= from + SLICE_NS || request->attempts == 0)
					continue;
				requests++;
				attempts += request->attempts;
			}
		}
		if (requests > 0 && (double)attempts / requests > worst)
			worst = (double)attempts / requests;
	}
	return worst;
}

/* From the moment when the dependency was well again until the last worker had its first fresh price. */
static int64_t time_to_recover(const struct board *board, int64_t recovery_ns)
{
	int64_t last = 0;
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		const struct lane *lane = &board->lanes[i];
		unsigned count = atomic_load_explicit(&lane->count, memory_order_acquire);
		unsigned n = 0;
		while (n < count && !(lane->requests[n].served == SERVED_LIVE && lane->requests[n].ended_ns >= recovery_ns))
			n++;
		if (n == count)
			return -1;
		if (lane->requests[n].ended_ns - recovery_ns > last)
			last = lane->requests[n].ended_ns - recovery_ns;
	}
	return last;
}

static void collect(const struct run *run, struct figures *figures)
{
	const struct board *board = run->board;
	*figures = (struct figures){
	        .failing = atomic_load_explicit(&board->failing, memory_order_relaxed),
	        .probes = atomic_load_explicit(&board->failing_probes, memory_order_relaxed),
	        .attempts_worst = worst_attempts(board, run->story->timeline.end_ns),
	        .recovered_ns = time_to_recover(board, run->story->timeline.recovery_ns),
	};
	for (unsigned i = 0; i < DEMO_WORKERS; i++) {
		const struct lane *lane = &board->lanes[i];
		figures->live += atomic_load_explicit(&lane->served[SERVED_LIVE], memory_order_relaxed);
		figures->stale += atomic_load_explicit(&lane->served[SERVED_STALE], memory_order_relaxed);
		figures->late += atomic_load_explicit(&lane->served[SERVED_LATE], memory_order_relaxed);
		/* One that never stopped was hurt to the end. */
		unsigned failing = figures->failing - figures->probes;
		if (atomic_load_explicit(&lane->stopped, memory_order_acquire))
			failing = lane->failing_when_stopped;
		if (failing > figures->failing_before_stop)
			figures->failing_before_stop = failing;
	}
}

static int start(struct run *run)
{
	run->board = mmap(NULL, sizeof(*run->board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (run->board == MAP_FAILED) {
		run->board = NULL;
		return -ENOMEM;
	}
	run->board->patience_ns = 1000000000;
	run->board->period_ns = 25000000;
	run->board->seed = run->story->seed;
	int r = dependency_start(&run->dependency, run->story->kind, run->board, run->story->dir);
	if (r == 0)
		r = start_rescd(run);
	return r != 0 ? r : fork_workers(run);
}

int run_story(const struct story *story, enum view view, struct figures *figures)
{
	struct run run = {.story = story, .view = view, .dependency = {.control = -1}};
	snprintf(run.instance, sizeof(run.instance), "demo-%ld-%s", (long)getpid(), view == VIEW_SHARED ? "shared" : "own");
	snprintf(run.config, sizeof(run.config), "%s/resc.json", story->dir);
	snprintf(run.log, sizeof(run.log), "%s/rescd.log", story->dir);
	snprintf(run.control, sizeof(run.control), "%s/rescd.sock", story->dir);

	int r = start(&run);
	if (r == 0)
		r = play(&run);
	if (r == 0)
		collect(&run, figures);
	for (unsigned i = 0; i < DEMO_WORKERS; i++)
		if (run.workers[i] > 0)
			child_stop(&run.workers[i], SIGKILL);
	dependency_stop(&run.dependency);
	stop_rescd(&run);
	if (run.board != NULL)
		munmap(run.board, sizeof(*run.board));
	return r;
}
