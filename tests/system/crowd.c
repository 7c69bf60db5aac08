/* SPDX-License-Identifier: MIT */
/*
 * Many workers: at once, or one generation after the other.
 *
 *	crowd gather INSTANCE RESOURCE WORKERS
 *	crowd generations INSTANCE RESOURCE GENERATIONS CALLS AT_ONCE SEED
 *
 * gather: all workers wait at one barrier until a line comes on standard input; then each opens its view and calls until that is shared,
 * for 10 s at most. Says in which segments they ended, how many were private at first, and what went wrong.
 *
 * generations: so many short lives of CALLS calls each, AT_ONCE of them at a time. Half end as they should; of the others one half kills
 * itself at a step that the seed chooses, before, inside or after a call, and one half is killed from outside at a moment that it chooses.
 * What each knows of its calls it keeps in memory that survives it, so that the test can hold the counters of the host against it.
 *
 * Prints one JSON object.
 */
#include <errno.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "resc.h"

#define WORKERS_MAX 256
#define PATIENCE_S  10

/* What a worker knows, kept by those who are still there when it is not. */
struct account {
	_Atomic uint64_t begun, admitted, ended, errors;
	_Atomic uint64_t generation; /* gather: of the segment; 0: none within the time */
	_Atomic bool private_first;
};

struct shared {
	pthread_barrier_t barrier;
	struct account accounts[WORKERS_MAX];
};

struct task {
	const char *instance, *resource;
	unsigned workers; /* at once */
	unsigned generations, calls;
	uint64_t seed;
	struct shared *shared;
};

/* How a life ends. */
enum end { PROPERLY, BEFORE_A_CALL, INSIDE_A_CALL, AFTER_A_CALL, FROM_OUTSIDE };

struct fate {
	enum end end;
	unsigned call; /* which call, for an end at one */
	long after_ns; /* from outside */
};

static void die(const char *what)
{
	fprintf(stderr, "crowd: %s\n", what);
	_exit(1);
}

/* splitmix64 */
static uint64_t draw(uint64_t *seed)
{
	uint64_t z = *seed += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void add(_Atomic uint64_t *n)
{
	atomic_fetch_add_explicit(n, 1, memory_order_relaxed);
}

static bool enter(resc_resource *resource, resc_ticket *ticket, struct account *account)
{
	add(&account->begun);
	int r = resc_enter(resource, NULL, ticket);
	if (r < 0)
		add(&account->errors);
	if (r == 0)
		add(&account->admitted);
	return r == 0;
}

static void leave(resc_ticket *ticket, struct account *account)
{
	if (resc_leave(ticket, RESC_OK) < 0)
		add(&account->errors);
	else
		add(&account->ended);
}

static void call(resc_resource *resource, struct account *account)
{
	resc_ticket ticket;

	if (enter(resource, &ticket, account))
		leave(&ticket, account);
}

static resc_resource *find(const struct task *task, resc **host)
{
	struct resc_error err;

	*host = resc_open(task->instance, &err);
	resc_resource *resource = *host == NULL ? NULL : resc_lookup(*host, task->resource, &err);
	if (resource == NULL)
		die(err.text);
	return resource;
}

static pid_t start(const struct task *task, struct account *account, const struct fate *fate,
                   void (*work)(const struct task *, struct account *, const struct fate *))
{
	pid_t child = fork();

	if (child < 0)
		die(strerror(errno));
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(task, account, fate);
		_exit(0);
	}
	return child;
}

/* ---- all at once ---- */

static void gather(const struct task *task, struct account *account, const struct fate *fate)
{
	const struct timespec pause = {.tv_nsec = 1000000};
	struct resc_status status;
	time_t until;
	resc *host;

	(void)fate;
	pthread_barrier_wait(&task->shared->barrier);
	resc_resource *resource = find(task, &host);
	resc_status(host, &status);
	account->private_first = status.mode == RESC_PRIVATE;
	for (until = time(NULL) + PATIENCE_S; status.mode == RESC_PRIVATE && time(NULL) <= until; resc_status(host, &status)) {
		nanosleep(&pause, NULL);
		call(resource, account);
	}
	call(resource, account);
	account->generation = status.generation;
	/* Nobody goes before all are there. */
	pthread_barrier_wait(&task->shared->barrier);
	resc_close(host);
}

static void gather_all(const struct task *task)
{
	pid_t children[WORKERS_MAX];
	char line[16];

	for (unsigned i = 0; i < task->workers; i++)
		children[i] = start(task, &task->shared->accounts[i], NULL, gather);
	if (fgets(line, sizeof(line), stdin) == NULL)
		die("nobody says go");
	pthread_barrier_wait(&task->shared->barrier);
	pthread_barrier_wait(&task->shared->barrier);
	for (unsigned i = 0; i < task->workers; i++) {
		int status;

		waitpid(children[i], &status, 0);
		if (status != 0)
			add(&task->shared->accounts[i].errors);
	}
}

/* ---- one after the other ---- */

static void end_here(const struct fate *fate, enum end end, unsigned number)
{
	if (fate->end == end && fate->call == number)
		raise(SIGKILL);
}

static void live(const struct task *task, struct account *account, const struct fate *fate)
{
	resc_ticket ticket;
	resc *host;
	resc_resource *resource = find(task, &host);

	/* Who is killed from outside goes on until then. */
	for (unsigned i = 0; i < task->calls || fate->end == FROM_OUTSIDE; i++) {
		end_here(fate, BEFORE_A_CALL, i);
		if (!enter(resource, &ticket, account))
			continue;
		end_here(fate, INSIDE_A_CALL, i);
		leave(&ticket, account);
		end_here(fate, AFTER_A_CALL, i);
	}
	resc_close(host);
}

static struct fate draw_fate(const struct task *task, uint64_t *seed)
{
	struct fate fate = {PROPERLY, (unsigned)(draw(seed) % task->calls), (long)(draw(seed) % 1000000)};

	if (draw(seed) % 2 == 0)
		fate.end = draw(seed) % 2 == 0 ? FROM_OUTSIDE : BEFORE_A_CALL + (unsigned)(draw(seed) % 3);
	return fate;
}

/* Waits until one of the children is gone: its place is free. */
static unsigned reap_one(const struct task *task, pid_t *children, unsigned *killed)
{
	int status;
	pid_t pid = wait(&status);

	for (unsigned i = 0; i < task->workers; i++) {
		if (children[i] != pid)
			continue;
		children[i] = 0;
		*killed += WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
		if (WIFEXITED(status) && WEXITSTATUS(status) != 0)
			add(&task->shared->accounts[i].errors);
		return i;
	}
	die("a child that nobody knows");
	return 0;
}

static unsigned run_generations(const struct task *task)
{
	pid_t children[WORKERS_MAX] = {0};
	uint64_t seed = task->seed;
	unsigned killed = 0;

	for (unsigned i = 0; i < task->generations + task->workers; i++) {
		unsigned place = i < task->workers ? i : reap_one(task, children, &killed);
		if (i >= task->generations)
			continue;
		struct fate fate = draw_fate(task, &seed);
		children[place] = start(task, &task->shared->accounts[place], &fate, live);
		if (fate.end != FROM_OUTSIDE)
			continue;
		nanosleep(&(struct timespec){.tv_nsec = fate.after_ns}, NULL);
		kill(children[place], SIGKILL);
	}
	return killed;
}

/* ---- telling ---- */

static json_t *report(const struct task *task, unsigned killed)
{
	json_t *generations = json_object();
	struct account sum = {0};
	unsigned private_first = 0;

	for (unsigned i = 0; i < task->workers; i++) {
		const struct account *a = &task->shared->accounts[i];
		char name[17];

		sum.begun += a->begun;
		sum.admitted += a->admitted;
		sum.ended += a->ended;
		sum.errors += a->errors;
		private_first += a->private_first;
		snprintf(name, sizeof(name), "%016llx", (unsigned long long)a->generation);
		json_object_set_new(generations, name, json_integer(json_integer_value(json_object_get(generations, name)) + 1));
	}
	return json_pack("{s:I, s:I, s:I, s:I, s:i, s:i, s:o}", "begun", (json_int_t)sum.begun, "admitted", (json_int_t)sum.admitted,
	                 "ended", (json_int_t)sum.ended, "errors", (json_int_t)sum.errors, "killed", (int)killed, "private_first",
	                 (int)private_first, "generations", generations);
}

static struct shared *share(unsigned workers)
{
	struct shared *s = mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attributes;

	if (s == MAP_FAILED)
		die("mmap");
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(&s->barrier, &attributes, workers + 1);
	return s;
}

int main(int argc, char **argv)
{
	bool all = argc == 5 && strcmp(argv[1], "gather") == 0;
	unsigned killed = 0;

	if (!all && (argc != 8 || strcmp(argv[1], "generations") != 0)) {
		fprintf(stderr, "usage: crowd gather INSTANCE RESOURCE WORKERS\n"
		                "       crowd generations INSTANCE RESOURCE GENERATIONS CALLS AT_ONCE SEED\n");
		return 2;
	}
	struct task task = {.instance = argv[2], .resource = argv[3], .workers = (unsigned)atoi(argv[all ? 4 : 6])};
	if (task.workers < 1 || task.workers > WORKERS_MAX)
		return 2;
	task.shared = share(task.workers);
	if (all) {
		gather_all(&task);
	} else {
		task.generations = (unsigned)atoi(argv[4]);
		task.calls = (unsigned)atoi(argv[5]);
		task.seed = strtoull(argv[7], NULL, 10);
		killed = run_generations(&task);
	}
	json_t *o = report(&task, killed);
	json_dumpf(o, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(o);
	return 0;
}
