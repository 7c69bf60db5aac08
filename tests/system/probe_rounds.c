/* SPDX-License-Identifier: MIT */
/*
 * Exactly N probes on the whole host, round after round.
 *
 *	probe_rounds INSTANCE RESOURCE PROCESSES ROUNDS COOLDOWN_MS
 *
 * Each round: one process fails until the breaker is open; the cooldown passes; all processes, let loose by one barrier, ask at once;
 * nobody leaves before everybody has asked; those that were admitted report ok. In the test build the cooldown is a step of the clock
 * word of the segment, which this program finds by the header; in a release build it is waited for.
 *
 * Prints one JSON object: the fewest and the most admitted in a round, how many were probes, other answers, the processor time used.
 * The test compares that with the counters of the host.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "resc.h"
#include "test_clock.h"

#define FAILURES_MAX 1000

struct shared {
	pthread_barrier_t barrier;
	_Atomic unsigned admitted; /* in this round */
	_Atomic unsigned probes;
	_Atomic unsigned refused_half_open;
	_Atomic unsigned other; /* any answer that should not be */
	_Atomic unsigned leave_failed;
	unsigned fewest, most, not_opened, not_closed;
};

struct task {
	const char *instance;
	const char *resource;
	unsigned processes;
	unsigned rounds;
	uint64_t cooldown_ms;
	struct shared *shared;
};

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "probe_rounds: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void meet(const struct task *task)
{
	int r = pthread_barrier_wait(&task->shared->barrier);

	if (r != 0 && r != PTHREAD_BARRIER_SERIAL_THREAD)
		die("barrier");
}

/* ---- the leader's part ---- */

static void pass_time(word *clock, uint64_t ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	if (clock != NULL)
		atomic_fetch_add_explicit(clock, ms * 1000000u, memory_order_seq_cst);
	else
		nanosleep(&left, NULL);
}

static void open_breaker(const struct task *task, resc_resource *resource)
{
	struct resc_state state = {0};

	for (int i = 0; i < FAILURES_MAX && state.breaker != RESC_BREAKER_OPEN; i++) {
		resc_ticket t;

		if (resc_enter(resource, NULL, &t) == 0)
			resc_leave(&t, RESC_FAIL);
		resc_state(resource, &state);
	}
	task->shared->not_opened += state.breaker != RESC_BREAKER_OPEN;
}

static void close_round(const struct task *task, resc_resource *resource)
{
	struct shared *s = task->shared;
	struct resc_state state = {0};
	unsigned admitted = atomic_exchange(&s->admitted, 0);

	if (admitted < s->fewest)
		s->fewest = admitted;
	if (admitted > s->most)
		s->most = admitted;
	resc_state(resource, &state);
	s->not_closed += state.breaker != RESC_CLOSED || state.probes_out != 0;
}

/* ---- everybody's part ---- */

static void ask(const struct task *task, resc_resource *resource, resc_ticket *t, int *r)
{
	struct shared *s = task->shared;

	*r = resc_enter(resource, NULL, t);
	if (*r == 0) {
		atomic_fetch_add(&s->admitted, 1);
		atomic_fetch_add(&s->probes, t->probe);
	} else {
		atomic_fetch_add(*r == RESC_E_HALF_OPEN ? &s->refused_half_open : &s->other, 1);
	}
}

static void work(const struct task *task, bool leader)
{
	struct resc_error err;
	resc *host = resc_open(task->instance, &err);
	resc_resource *resource = resc_lookup(host, task->resource, &err);
	struct clock_view time = {NULL, 0};

	if (resource == NULL)
		die(err.text);
	if (leader && (time = clock_open(task->instance)).base == NULL)
		die(task->instance);
	word *clock = clock_word(&time);
	for (unsigned round = 0; round < task->rounds; round++) {
		resc_ticket t;
		int r;

		if (leader) {
			open_breaker(task, resource);
			pass_time(clock, task->cooldown_ms + 1);
		}
		meet(task);
		ask(task, resource, &t, &r);
		meet(task);
		if (r == 0 && resc_leave(&t, RESC_OK) != 0)
			atomic_fetch_add(&task->shared->leave_failed, 1);
		meet(task);
		if (leader)
			close_round(task, resource);
	}
	clock_close(&time);
	resc_close(host);
}

static struct shared *share(unsigned processes)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;

	if (s == MAP_FAILED)
		die("mmap");
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->barrier, &attributes, processes);
	s->fewest = UINT32_MAX;
	return s;
}

/* A process that dies would leave the others at the barrier for ever: then all end. */
static bool wait_for_all(const pid_t *children, unsigned count)
{
	bool well = true;

	for (unsigned left = count; left > 0; left--) {
		int status = 0;
		pid_t child = wait(&status);

		if (child < 0 || status == 0)
			continue;
		well = false;
		for (unsigned i = 0; i < count; i++)
			kill(children[i], SIGKILL);
	}
	return well;
}

static void report(const struct shared *s)
{
	struct rusage used;

	getrusage(RUSAGE_CHILDREN, &used);
	double cpu = (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
	json_t *o = json_pack("{s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:f}", "fewest", (int)s->fewest, "most", (int)s->most, "probes",
	                      (int)s->probes, "refused_half_open", (int)s->refused_half_open, "other", (int)s->other, "leave_failed",
	                      (int)s->leave_failed, "not_opened", (int)s->not_opened, "not_closed", (int)s->not_closed, "cpu_s", cpu);

	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
}

int main(int argc, char **argv)
{
	if (argc != 6) {
		fprintf(stderr, "usage: probe_rounds INSTANCE RESOURCE PROCESSES ROUNDS COOLDOWN_MS\n");
		return 2;
	}
	struct task task = {argv[1], argv[2], (unsigned)atoi(argv[3]), (unsigned)atoi(argv[4]), strtoull(argv[5], NULL, 10), NULL};
	pid_t children[256];

	if (task.processes < 1 || task.processes > 256)
		return 2;
	task.shared = share(task.processes);
	for (unsigned i = 0; i < task.processes; i++) {
		children[i] = fork();
		if (children[i] < 0)
			die("fork");
		if (children[i] == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			work(&task, i == 0);
			_exit(0);
		}
	}
	if (!wait_for_all(children, task.processes))
		return 1;
	report(task.shared);
	return 0;
}
