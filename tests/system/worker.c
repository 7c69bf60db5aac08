/* SPDX-License-Identifier: MIT */
/*
 * A worker that does what it is told: one command a line on standard input, one JSON object a line as the answer.
 *
 * Why this exists: the promises of this project are about many processes, and about what is left when one of them dies or forks at
 * a bad moment. A test in Python can start any number of these, hold calls open in each, and kill them where it wants. Every answer
 * is what the library said, without interpretation.
 *
 *	status | lookup NAME | enter NAME [DEADLINE_MS] | leave TICKET OUTCOME | garbage | retry NAME OUTCOME ATTEMPTS
 *	hold NAME COUNT | state NAME | counters NAME | fallback NAME KIND | run NAME OUTCOME[,OUTCOME...]
 *	loop NAME COUNT FAIL_SHARE SEED | busy NAME FAIL_SHARE SEED | idle | fork IN OUT | shadow | exec | spawn | fds | close
 *	exit STATUS | quit STATUS
 *
 * "leave" uses a copy of the ticket, so that the same ticket can be left twice. "busy" calls in a thread until "idle", which tells
 * what it saw. "fork" makes a child that answers on two named pipes; "shadow" one that the library never hears of, which
 * keeps all descriptors and does nothing. "exit" runs the handlers of exit, "quit" does not.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "resc.h"

#define TICKETS 4096
#define WORDS   8

/* A run of calls, and what became of them. */
struct load {
	pthread_t thread;
	atomic_bool stop;
	resc_resource *resource;
	uint64_t limit; /* 0: until stop */
	double fail_share;
	uint64_t seed;
	uint64_t enters, admitted, refused, errors, stale, leave_errors, ended_ok, ended_fail;
	uint64_t slowest_ns;
	int last_error;
	bool running;
};

struct worker {
	resc *host;
	resc_ticket tickets[TICKETS];
	unsigned next_ticket;
	struct load load;
};

extern char **environ;

/* ---- answering ---- */

static void answer(json_t *json)
{
	if (json == NULL)
		json = json_pack("{s:s}", "error", "no answer could be made");
	json_dumpf(json, stdout, JSON_COMPACT);
	putchar('\n');
	fflush(stdout);
	json_decref(json);
}

static void complain(const char *text)
{
	answer(json_pack("{s:s}", "error", text));
}

static int outcome_of(const char *word)
{
#define X(NAME, name, text)                                                                                                                \
	if (strcmp(word, #name) == 0)                                                                                                      \
		return RESC_##NAME;
	RESC_OUTCOMES(X)
#undef X
	return -1;
}

static json_t *result(int r)
{
	return json_pack("{s:i, s:s}", "r", r, "answer", resc_answer_name(r));
}

/* The handle, or NULL after the error was told. */
static resc_resource *resource_of(struct worker *w, const char *name)
{
	struct resc_error err = {0};
	resc_resource *resource = resc_lookup(w->host, name, &err);

	if (resource == NULL)
		answer(json_pack("{s:i, s:s}", "r", err.code, "error", err.text));
	return resource;
}

/* ---- single calls ---- */

static void do_status(struct worker *w)
{
	struct resc_status s;
	char generation[17];

	int r = resc_status(w->host, &s);
	snprintf(generation, sizeof(generation), "%016llx", (unsigned long long)s.generation);
	answer(json_pack("{s:i, s:s, s:s, s:I, s:s, s:s, s:i}", "r", r, "mode", s.mode == RESC_SHARED ? "shared" : "private", "generation",
	                 generation, "worker", (json_int_t)s.worker, "instance", s.instance, "reason", s.reason, "pid", (int)getpid()));
}

static int enter(struct worker *w, resc_resource *resource, const resc_options *options, unsigned *number)
{
	*number = w->next_ticket++ % TICKETS;
	return resc_enter(resource, options, &w->tickets[*number]);
}

static void do_enter(struct worker *w, const char *name, const char *deadline_ms)
{
	resc_options options = RESC_OPTIONS_INIT;
	resc_resource *resource = resource_of(w, name);
	unsigned number;

	if (resource == NULL)
		return;
	if (deadline_ms != NULL)
		options.deadline_ns = resc_deadline_after_ms(atoll(deadline_ms));
	int r = enter(w, resource, &options, &number);
	const resc_ticket *t = &w->tickets[number];
	answer(json_pack("{s:i, s:s, s:I, s:b, s:I}", "r", r, "answer", resc_answer_name(r), "ticket", (json_int_t)number, "probe",
	                 t->probe, "timeout_ms", (json_int_t)t->timeout_ms));
}

static void do_leave(struct worker *w, const char *ticket, const char *outcome)
{
	resc_ticket copy = w->tickets[strtoul(ticket, NULL, 10) % TICKETS];

	answer(result(resc_leave(&copy, (enum resc_outcome)outcome_of(outcome))));
}

/* Tickets that are none: zeroed, random, and a good one with each of its bytes changed. None of the answers may be 0. */
static void do_garbage(const struct worker *w)
{
	resc_ticket t = {0};
	unsigned accepted = 0, tried = 0;

	accepted += resc_leave(&t, RESC_OK) == 0;
	accepted += resc_leave(NULL, RESC_OK) == 0;
	memset(&t, 0xa5, sizeof(t));
	accepted += resc_leave(&t, RESC_OK) == 0;
	for (size_t i = offsetof(resc_ticket, shape); i < sizeof(t); i++) {
		unsigned char bytes[sizeof(t)];

		memcpy(bytes, &w->tickets[0], sizeof(t));
		bytes[i] ^= 0x10;
		memcpy(&t, bytes, sizeof(t));
		accepted += resc_leave(&t, RESC_FAIL) >= 0;
		tried++;
	}
	answer(json_pack("{s:i, s:i}", "accepted", (int)accepted, "tried", (int)tried + 3));
}

static void do_hold(struct worker *w, const char *name, const char *count)
{
	resc_resource *resource = resource_of(w, name);
	json_t *tickets = json_array();
	unsigned number;
	int r = 0;

	for (long i = resource == NULL ? 0 : atol(count); i > 0 && r == 0; i--)
		if ((r = enter(w, resource, NULL, &number)) == 0)
			json_array_append_new(tickets, json_integer(number));
	if (resource != NULL)
		answer(json_pack("{s:i, s:s, s:i, s:o}", "r", r, "answer", resc_answer_name(r), "held", (int)json_array_size(tickets),
		                 "tickets", tickets));
	else
		json_decref(tickets);
}

static void do_retry(struct worker *w, const char *name, const char *outcome, const char *attempts)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	resc_resource *resource = resource_of(w, name);
	int64_t wait_ns = 0;

	if (resource == NULL)
		return;
	plan.attempts = (uint32_t)strtoul(attempts, NULL, 10);
	int r = resc_retry(resource, &plan, (enum resc_outcome)outcome_of(outcome), &wait_ns);
	answer(json_pack("{s:i, s:s, s:I}", "r", r, "answer", resc_answer_name(r), "wait_ns", (json_int_t)wait_ns));
}

static void do_state(struct worker *w, const char *name)
{
	static const char *const names[] = {"closed", "open", "half_open"};
	resc_resource *resource = resource_of(w, name);
	struct resc_state s = {0};

	if (resource == NULL)
		return;
	int r = resc_state(resource, &s);
	answer(json_pack("{s:i, s:s, s:b, s:i, s:i, s:i, s:i, s:I, s:b, s:f}", "r", r, "state", names[s.breaker % 3], "probe_due",
	                 s.probe_due, "generation", (int)s.generation, "probes_out", (int)s.probes_out, "in_flight", (int)s.in_flight,
	                 "limit", (int)s.limit, "due_ms", (json_int_t)s.due_ms, "forced", s.forced, "tokens", s.retry_tokens));
}

static void do_counters(struct worker *w, const char *name)
{
	resc_resource *resource = resource_of(w, name);
	struct resc_counters c = {0};

	if (resource == NULL)
		return;
	json_t *o = json_pack("{s:i}", "r", resc_counters(resource, &c));
	json_object_set_new(o, "enters", json_integer((json_int_t)c.enters));
#define X(n, text) json_object_set_new(o, #n, json_integer((json_int_t)c.n));
	RESC_COUNTERS(X)
#undef X
#define X(NAME, n, text) json_object_set_new(o, "refused_" #n, json_integer((json_int_t)c.refused_##n));
	RESC_REFUSALS(X)
#undef X
#define X(n, text) json_object_set_new(o, "fallback_" #n, json_integer((json_int_t)c.fallback_##n));
	RESC_FALLBACKS(X)
#undef X
	answer(o);
}

static void do_fallback(struct worker *w, const char *name, const char *kind)
{
	resc_resource *resource = resource_of(w, name);

	if (resource != NULL)
		answer(result(resc_fallback(resource, kind)));
}

/* ---- resc_run ---- */

struct script {
	char *rest;
	unsigned made;
};

static enum resc_outcome scripted(void *arg, int64_t timeout_ms, unsigned attempt)
{
	struct script *script = arg;
	const char *word = strsep(&script->rest, ",");

	(void)timeout_ms;
	script->made = attempt;
	return word == NULL ? RESC_OK : (enum resc_outcome)outcome_of(word);
}

static void do_run(struct worker *w, const char *name, char *outcomes)
{
	struct script script = {outcomes, 0};
	resc_resource *resource = resource_of(w, name);
	int last;

	if (resource == NULL)
		return;
	int r = resc_run(resource, scripted, &script, NULL, &last);
	answer(json_pack("{s:i, s:s, s:i, s:i}", "r", r, "answer", resc_answer_name(r), "attempts", (int)script.made, "last", last));
}

/* ---- load ---- */

static uint64_t real_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* xorshift64*: the same calls each time. */
static double next_share(uint64_t *seed)
{
	*seed ^= *seed >> 12;
	*seed ^= *seed << 25;
	*seed ^= *seed >> 27;
	return (double)(*seed * UINT64_C(0x2545f4914f6cdd1d) >> 11) / (double)(UINT64_C(1) << 53);
}

static void one_call(struct load *load)
{
	resc_ticket t;
	bool fails = next_share(&load->seed) < load->fail_share;
	uint64_t began = real_ns();
	int r = resc_enter(load->resource, NULL, &t);

	load->enters++;
	if (r > 0)
		load->refused++;
	if (r < 0) {
		load->errors++;
		load->last_error = r;
	}
	if (r == 0) {
		load->admitted++;
		r = resc_leave(&t, fails ? RESC_FAIL : RESC_OK);
		*(fails ? &load->ended_fail : &load->ended_ok) += 1;
		load->stale += r == RESC_STALE;
		if (r < 0) {
			load->leave_errors++;
			load->last_error = r;
		}
	}
	uint64_t took = real_ns() - began;
	if (took > load->slowest_ns)
		load->slowest_ns = took;
}

static void *run_load(void *arg)
{
	struct load *load = arg;

	while ((load->limit == 0 || load->enters < load->limit) && !atomic_load_explicit(&load->stop, memory_order_relaxed))
		one_call(load);
	return NULL;
}

static bool prepare_load(struct worker *w, const char *name, const char *count, const char *share, const char *seed)
{
	w->load = (struct load){.resource = resource_of(w, name), .limit = strtoull(count, NULL, 10)};
	w->load.fail_share = atof(share);
	w->load.seed = strtoull(seed, NULL, 10) | 1;
	return w->load.resource != NULL;
}

static void tell_load(const struct load *l)
{
	answer(json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:i}", "enters", (json_int_t)l->enters, "admitted",
	                 (json_int_t)l->admitted, "refused", (json_int_t)l->refused, "errors", (json_int_t)l->errors, "stale",
	                 (json_int_t)l->stale, "leave_errors", (json_int_t)l->leave_errors, "ok", (json_int_t)l->ended_ok, "fail",
	                 (json_int_t)l->ended_fail, "slowest_us", (json_int_t)(l->slowest_ns / 1000), "last_error", l->last_error));
}

static void do_loop(struct worker *w, char **words)
{
	if (!prepare_load(w, words[1], words[2], words[3], words[4]))
		return;
	run_load(&w->load);
	tell_load(&w->load);
}

static void do_busy(struct worker *w, char **words)
{
	if (!prepare_load(w, words[1], "0", words[2], words[3]))
		return;
	w->load.running = pthread_create(&w->load.thread, NULL, run_load, &w->load) == 0;
	answer(json_pack("{s:b}", "busy", w->load.running));
}

static void do_idle(struct worker *w)
{
	if (w->load.running) {
		atomic_store_explicit(&w->load.stop, true, memory_order_relaxed);
		pthread_join(w->load.thread, NULL);
		w->load.running = false;
	}
	tell_load(&w->load);
}

/* ---- other processes ---- */

/* What this process has open, as the kernel names it. */
static void do_fds(void)
{
	json_t *fds = json_array();
	DIR *directory = opendir("/proc/self/fd");
	const struct dirent *entry;
	char target[512];

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		ssize_t n = readlinkat(dirfd(directory), entry->d_name, target, sizeof(target) - 1);

		if (n < 0)
			continue;
		target[n] = '\0';
		json_array_append_new(fds, json_string(target));
	}
	if (directory != NULL)
		closedir(directory);
	answer(json_pack("{s:o, s:i}", "fds", fds, "pid", (int)getpid()));
}

static void do_fork(const char *in, const char *out)
{
	fflush(stdout);
	pid_t child = fork();

	if (child != 0) {
		answer(json_pack("{s:i}", "child", (int)child));
		return;
	}
	int from = open(in, O_RDONLY), to = open(out, O_WRONLY);
	if (from < 0 || to < 0 || dup2(from, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0)
		_exit(9);
	close(from);
	close(to);
}

/* As a program does that forks without the C library's handlers. The child holds our liveness token, also when we are dead. */
static void do_shadow(void)
{
	fflush(stdout);
	long child = syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);

	if (child == 0) {
		close(STDOUT_FILENO);
		for (;;)
			pause();
	}
	answer(json_pack("{s:i}", "child", (int)child));
}

/* A program that knows nothing of the library, in the place of this one. */
static void do_exec(void)
{
	char *arguments[] = {"worker", "--fds", NULL};

	execv("/proc/self/exe", arguments);
	complain(strerror(errno));
}

/* The same, beside this one; its answer is ours. */
static void do_spawn(void)
{
	char *arguments[] = {"worker", "--fds", NULL};
	pid_t child;
	int status;

	fflush(stdout);
	if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0 || waitpid(child, &status, 0) != child)
		complain("cannot spawn");
}

/* ---- commands ---- */

static unsigned split(char *line, char **words)
{
	unsigned n = 0;
	char *rest = NULL;

	memset(words, 0, WORDS * sizeof(*words));
	for (char *word = strtok_r(line, " \n", &rest); word != NULL && n < WORDS; word = strtok_r(NULL, " \n", &rest))
		words[n++] = word;
	return n;
}

static void obey_without_name(struct worker *w, char **words)
{
	if (strcmp(words[0], "status") == 0)
		do_status(w);
	else if (strcmp(words[0], "garbage") == 0)
		do_garbage(w);
	else if (strcmp(words[0], "idle") == 0)
		do_idle(w);
	else if (strcmp(words[0], "shadow") == 0)
		do_shadow();
	else if (strcmp(words[0], "exec") == 0)
		do_exec();
	else if (strcmp(words[0], "spawn") == 0)
		do_spawn();
	else if (strcmp(words[0], "fds") == 0)
		do_fds();
	else
		complain("no such command");
}

static void obey_with_name(struct worker *w, char **words, unsigned n)
{
	const char *command = words[0];

	if (strcmp(command, "enter") == 0)
		do_enter(w, words[1], words[2]);
	else if (strcmp(command, "leave") == 0 && n == 3)
		do_leave(w, words[1], words[2]);
	else if (strcmp(command, "hold") == 0 && n == 3)
		do_hold(w, words[1], words[2]);
	else if (strcmp(command, "retry") == 0 && n == 4)
		do_retry(w, words[1], words[2], words[3]);
	else if (strcmp(command, "state") == 0)
		do_state(w, words[1]);
	else if (strcmp(command, "counters") == 0)
		do_counters(w, words[1]);
	else if (strcmp(command, "fallback") == 0 && n == 3)
		do_fallback(w, words[1], words[2]);
	else if (strcmp(command, "run") == 0 && n == 3)
		do_run(w, words[1], words[2]);
	else if (strcmp(command, "loop") == 0 && n == 5)
		do_loop(w, words);
	else if (strcmp(command, "busy") == 0 && n == 4)
		do_busy(w, words);
	else if (strcmp(command, "fork") == 0 && n == 3)
		do_fork(words[1], words[2]);
	else
		complain("no such command, or not its words");
}

static void do_lookup(struct worker *w, const char *name)
{
	if (resource_of(w, name) != NULL)
		answer(result(0));
}

static void obey(struct worker *w, char **words, unsigned n)
{
	if (strcmp(words[0], "quit") == 0)
		_exit(n > 1 ? atoi(words[1]) : 0);
	if (strcmp(words[0], "exit") == 0)
		exit(n > 1 ? atoi(words[1]) : 0);
	if (strcmp(words[0], "close") == 0) {
		resc_close(w->host);
		w->host = NULL;
		answer(result(0));
	} else if (strcmp(words[0], "lookup") == 0 && n == 2) {
		do_lookup(w, words[1]);
	} else if (n > 1) {
		obey_with_name(w, words, n);
	} else {
		obey_without_name(w, words);
	}
}

int main(int argc, char **argv)
{
	static struct worker w;
	struct resc_error err;
	char line[1024], *words[WORDS];

	if (argc == 2 && strcmp(argv[1], "--fds") == 0) {
		do_fds();
		return 0;
	}
	w.host = resc_open(argc > 1 ? argv[1] : NULL, &err);
	if (w.host == NULL) {
		answer(json_pack("{s:i, s:s}", "r", err.code, "error", err.text));
		return 1;
	}
	do_status(&w);
	while (fgets(line, sizeof(line), stdin) != NULL) {
		unsigned n = split(line, words);

		if (n > 0)
			obey(&w, words, n);
	}
	resc_close(w.host);
	return 0;
}
