/* SPDX-License-Identifier: MIT */
/*
 * A worker that does what it is told: one command a line on standard input, one JSON object a line as the answer.
 *
 * Why this exists: the promises of this project are about many processes, and about what is left when one of them dies or forks at
 * a bad moment. A test in Python can start any number of these, hold calls open in each, and kill them where it wants. Every answer
 * is what the library said, without interpretation.
 *
 *	status | lookup NAME | enter NAME [OPTION...] | leave TICKET OUTCOME [RETRY_AFTER_MS] | garbage
 *	hold NAME COUNT [OPTION...] | calls NAME OUTCOME[*TIMES],... [OPTION...] | retry NAME OUTCOME ATTEMPTS [OPTION...]
 *	run NAME OUTCOME,... [OPTION...] | state NAME | counters NAME | timeouts NAME | fallback NAME KIND
 *	loop NAME COUNT FAIL_SHARE SEED [OPTION...] | busy NAME FAIL_SHARE SEED [OPTION...] | idle
 *	once_begin NAME KEY [OPTION...] | once_done NUMBER ANSWER | once_abandon NUMBER
 *	deadline_parse ms|grpc TEXT | deadline_format ms|grpc NS|none | retry_after TEXT | within PARENT_MS MS
 *	seed NUMBER | advance NS | fork IN OUT [bare|signal] | run_fork NAME IN OUT | daemonize | shadow | exec | spawn [vfork] | fds
 *	close_descriptors | cover_descriptors FILE | limit RESOURCE NUMBER | drop ID [ROOT] | leave_main
 *	close | exit STATUS | quit STATUS | abort
 *
 * An OPTION of a call is deadline=MS (from now), priority=critical|normal|low, cost=N, flags=N or reserved=N; for enter also ticket=N,
 * the place of the ticket. Of a retry it is deadline=MS, flags=N, pushback=MS or previous=NS. TEXT, KEY and ANSWER are in
 * hexadecimal, "-" for none.
 *
 * "leave" uses a copy of the ticket, so that the same ticket can be left twice. "busy" calls in a thread until "idle", which tells
 * what it saw. "advance" moves the test clock, and says what time it is in the segment. "fork" makes a child that answers on two
 * named pipes; "shadow" one that the library never hears of, which keeps all descriptors and does nothing. "exit" runs the
 * handlers of exit, "quit" does not.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <jansson.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "counters.h"
#include "resc.h"
#include "test_clock.h"

#define TICKETS 4096
#define KEYS    4096
#define WORDS   16
#define BYTES   1024 /* of a text in hexadecimal */

/* A run of calls, and what became of them. */
struct load {
	pthread_t thread;
	atomic_bool stop;
	resc_resource *resource;
	resc_options options;
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
	resc_once keys[KEYS];
	unsigned next_key;
	struct load load;
};

struct command {
	const char *name;
	unsigned least; /* words, its name included */
	unsigned most;
	void (*obey)(struct worker *w, char **words);
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

static int outcome_of(const char *said)
{
#define X(NAME, name, text)                                                                                                                \
	if (strcmp(said, #name) == 0)                                                                                                      \
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

/* ---- words ---- */

/* The value of NAME=VALUE among the words after the first few, or NULL. */
static const char *option(char **words, unsigned from, const char *name)
{
	size_t length = strlen(name);

	for (unsigned i = from; i < WORDS && words[i] != NULL; i++)
		if (strncmp(words[i], name, length) == 0 && words[i][length] == '=')
			return words[i] + length + 1;
	return NULL;
}

static int64_t number_option(char **words, unsigned from, const char *name, int64_t otherwise)
{
	const char *text = option(words, from, name);

	return text == NULL ? otherwise : strtoll(text, NULL, 10);
}

static int64_t deadline_option(char **words, unsigned from)
{
	const char *text = option(words, from, "deadline");

	return text == NULL ? RESC_NO_DEADLINE : resc_deadline_after_ms(strtoll(text, NULL, 10));
}

/* A number stands for itself, so that a test can say one that is none. */
static uint32_t priority_option(char **words, unsigned from)
{
	static const char *const names[] = {[RESC_NORMAL] = "normal", [RESC_CRITICAL] = "critical", [RESC_LOW] = "low"};
	const char *text = option(words, from, "priority");

	for (unsigned i = 0; text != NULL && i < sizeof(names) / sizeof(*names); i++)
		if (strcmp(text, names[i]) == 0)
			return i;
	return text == NULL ? RESC_NORMAL : (uint32_t)strtoul(text, NULL, 10);
}

static resc_options options_from(char **words, unsigned from)
{
	return (resc_options){
	        .deadline_ns = deadline_option(words, from),
	        .flags = (uint32_t)number_option(words, from, "flags", 0),
	        .priority = priority_option(words, from),
	        .cost = (uint32_t)number_option(words, from, "cost", 0),
	        .reserved = (uint32_t)number_option(words, from, "reserved", 0),
	};
}

/* Writes the bytes, a NUL behind them. How many. */
static size_t unhex(const char *text, unsigned char bytes[BYTES + 1])
{
	size_t n = 0;
	unsigned byte;

	while (n < BYTES && sscanf(text + 2 * n, "%2x", &byte) == 1 && text[2 * n + 1] != '\0')
		bytes[n++] = (unsigned char)byte;
	bytes[n] = '\0';
	return n;
}

static json_t *hex(const unsigned char *bytes, size_t size)
{
	char text[2 * RESC_ONCE_ANSWER_MAX + 1] = "";

	for (size_t i = 0; i < size && i < RESC_ONCE_ANSWER_MAX; i++)
		snprintf(text + 2 * i, 3, "%02x", bytes[i]);
	return json_string(text);
}

/* ---- single calls ---- */

static void do_status(struct worker *w, char **words)
{
	struct resc_status s;
	char generation[17];

	(void)words;
	int r = resc_status(w->host, &s);
	snprintf(generation, sizeof(generation), "%016llx", (unsigned long long)s.generation);
	answer(json_pack("{s:i, s:s, s:s, s:I, s:s, s:s, s:i}", "r", r, "mode", s.mode == RESC_SHARED ? "shared" : "private", "generation",
	                 generation, "worker", (json_int_t)s.worker, "instance", s.instance, "reason", s.reason, "pid", (int)getpid()));
}

static void do_lookup(struct worker *w, char **words)
{
	if (resource_of(w, words[1]) != NULL)
		answer(result(0));
}

static int enter(struct worker *w, resc_resource *resource, const resc_options *options, unsigned *number)
{
	*number = w->next_ticket++ % TICKETS;
	return resc_enter(resource, options, &w->tickets[*number]);
}

/* The place of the ticket may be chosen, by who sends several commands before the first answer. */

static void do_enter(struct worker *w, char **words)
{
	resc_options options = options_from(words, 2);
	resc_resource *resource = resource_of(w, words[1]);
	unsigned number;

	if (resource == NULL)
		return;
	w->next_ticket = (unsigned)number_option(words, 2, "ticket", w->next_ticket);
	int r = enter(w, resource, &options, &number);
	const resc_ticket *t = &w->tickets[number];
	/* One word of the ticket has both meanings. */
	answer(json_pack("{s:i, s:s, s:I, s:b, s:I}", "r", r, "answer", resc_answer_name(r), "ticket", (json_int_t)number, "probe",
	                 t->probe, r > 0 ? "retry_after_ms" : "timeout_ms", (json_int_t)(r > 0 ? t->retry_after_ms : t->timeout_ms)));
}

static void do_leave(struct worker *w, char **words)
{
	resc_ticket copy = w->tickets[strtoul(words[1], NULL, 10) % TICKETS];
	enum resc_outcome outcome = (enum resc_outcome)outcome_of(words[2]);

	answer(result(words[3] == NULL ? resc_leave(&copy, outcome) : resc_leave_after(&copy, outcome, strtoll(words[3], NULL, 10))));
}

/* Tickets that are none: zeroed, random, and a good one with each of its bytes changed. None of the answers may be 0. */
static void do_garbage(struct worker *w, char **words)
{
	resc_ticket t = {0};
	unsigned accepted = 0, tried = 0;

	(void)words;
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

static void do_hold(struct worker *w, char **words)
{
	resc_options options = options_from(words, 3);
	resc_resource *resource = resource_of(w, words[1]);
	unsigned number;
	int r = 0;

	if (resource == NULL)
		return;
	json_t *tickets = json_array();
	for (long i = atol(words[2]); i > 0 && r == 0; i--)
		if ((r = enter(w, resource, &options, &number)) == 0)
			json_array_append_new(tickets, json_integer(number));
	answer(json_pack("{s:i, s:s, s:i, s:o}", "r", r, "answer", resc_answer_name(r), "held", (int)json_array_size(tickets), "tickets",
	                 tickets));
}

static void do_retry(struct worker *w, char **words)
{
	resc_retry_plan plan = {
	        .attempts = (uint32_t)strtoul(words[3], NULL, 10),
	        .flags = (uint32_t)number_option(words, 4, "flags", 0),
	        .deadline_ns = deadline_option(words, 4),
	        .previous_wait_ns = number_option(words, 4, "previous", 0),
	        .pushback_ms = number_option(words, 4, "pushback", RESC_NO_PUSHBACK),
	};
	resc_resource *resource = resource_of(w, words[1]);
	int64_t wait_ns = 0;

	if (resource == NULL)
		return;
	int r = resc_retry(resource, &plan, (enum resc_outcome)outcome_of(words[2]), &wait_ns);
	answer(json_pack("{s:i, s:s, s:I, s:I, s:I, s:b}", "r", r, "answer", resc_answer_name(r), "wait_ns", (json_int_t)wait_ns,
	                 "attempts", (json_int_t)plan.attempts, "previous_wait_ns", (json_int_t)plan.previous_wait_ns, "pushback_left",
	                 plan.pushback_ms != RESC_NO_PUSHBACK));
}

static void do_state(struct worker *w, char **words)
{
	static const char *const names[] = {"closed", "open", "half_open"};
	resc_resource *resource = resource_of(w, words[1]);
	struct resc_state s = {0};

	if (resource == NULL)
		return;
	int r = resc_state(resource, &s);
	answer(json_pack("{s:i, s:s, s:b, s:i, s:i, s:i, s:i, s:I, s:b, s:f, s:i, s:i, s:f, s:f}", "r", r, "state", names[s.breaker % 3],
	                 "probe_due", s.probe_due, "generation", (int)s.generation, "probes_out", (int)s.probes_out, "in_flight",
	                 (int)s.in_flight, "limit", (int)s.limit, "due_ms", (json_int_t)s.due_ms, "forced", s.forced, "tokens",
	                 s.retry_tokens, "waiting", (int)s.waiting, "retries", (int)s.retries, "rate_tokens", s.rate_tokens, "throttle",
	                 s.throttle));
}

static void do_counters(struct worker *w, char **words)
{
	resc_resource *resource = resource_of(w, words[1]);
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

static void do_timeouts(struct worker *w, char **words)
{
	resc_resource *resource = resource_of(w, words[1]);
	struct resc_timeouts t = {0};

	if (resource == NULL)
		return;
	int r = resc_timeouts(resource, &t);
	answer(json_pack("{s:i, s:I, s:I, s:I, s:I}", "r", r, "attempt_ms", (json_int_t)t.attempt_ms, "connect_ms",
	                 (json_int_t)t.connect_ms, "total_ms", (json_int_t)t.total_ms, "probe_ms", (json_int_t)t.probe_ms));
}

static void do_fallback(struct worker *w, char **words)
{
	resc_resource *resource = resource_of(w, words[1]);

	if (resource != NULL)
		answer(result(resc_fallback(resource, words[2])));
}

static void do_seed(struct worker *w, char **words)
{
	(void)w;
	resc_seed(strtoull(words[1], NULL, 10));
	answer(result(0));
}

/* ---- idempotency ---- */

static void do_once_begin(struct worker *w, char **words)
{
	unsigned char key[BYTES + 1];
	resc_options options = options_from(words, 3);
	resc_resource *resource = resource_of(w, words[1]);
	unsigned number = w->next_key++ % KEYS;
	resc_once *once = &w->keys[number];

	if (resource == NULL)
		return;
	int r = resc_once_begin(resource, key, unhex(words[2], key), &options, once);
	bool done = r == RESC_ONCE_DONE;
	answer(json_pack("{s:i, s:s, s:i, s:i, s:o}", "r", r, "answer", resc_answer_name(r), "key", (int)number, "size",
	                 done ? (int)once->size : 0, "stored", hex(once->answer, done ? once->size : 0)));
}

static void do_once_done(struct worker *w, char **words)
{
	unsigned char stored[BYTES + 1];
	size_t size = unhex(words[2], stored);

	answer(result(resc_once_done(&w->keys[strtoul(words[1], NULL, 10) % KEYS], stored, size)));
}

static void do_once_abandon(struct worker *w, char **words)
{
	answer(result(resc_once_abandon(&w->keys[strtoul(words[1], NULL, 10) % KEYS])));
}

/* ---- times ---- */

static void tell_deadline(int r, int64_t deadline_ns)
{
	bool infinite = deadline_ns == RESC_NO_DEADLINE;

	answer(json_pack("{s:i, s:b, s:I, s:I}", "r", r, "infinite", infinite, "left_ms", (json_int_t)resc_deadline_left_ms(deadline_ns),
	                 "left_ns", (json_int_t)(infinite ? -1 : deadline_ns - resc_now_ns())));
}

static void do_deadline_parse(struct worker *w, char **words)
{
	unsigned char text[BYTES + 1];
	int64_t deadline_ns = 0;

	(void)w;
	unhex(words[2], text);
	int r = (strcmp(words[1], "grpc") == 0 ? resc_deadline_parse_grpc : resc_deadline_parse)((const char *)text, &deadline_ns);
	tell_deadline(r, r == 0 ? deadline_ns : 0);
}

static void do_deadline_format(struct worker *w, char **words)
{
	int64_t deadline_ns = strcmp(words[2], "none") == 0 ? RESC_NO_DEADLINE : resc_now_ns() + strtoll(words[2], NULL, 10);
	char text[64] = "";

	(void)w;
	int r = (strcmp(words[1], "grpc") == 0 ? resc_deadline_format_grpc : resc_deadline_format)(deadline_ns, text, sizeof(text));
	answer(json_pack("{s:i, s:s}", "r", r, "text", text));
}

static void do_within(struct worker *w, char **words)
{
	int64_t parent_ns = resc_deadline_after_ms(strtoll(words[1], NULL, 10));

	(void)w;
	tell_deadline(0, resc_deadline_within_ms(parent_ns, strtoll(words[2], NULL, 10)));
}

static void do_retry_after(struct worker *w, char **words)
{
	unsigned char text[BYTES + 1];
	int64_t ms = -1;

	(void)w;
	unhex(words[1], text);
	int r = resc_retry_after_parse((const char *)text, &ms);
	answer(json_pack("{s:i, s:I}", "r", r, "ms", (json_int_t)ms));
}

static void do_advance(struct worker *w, char **words)
{
	uint64_t by = strtoull(words[1], NULL, 10);
	struct resc_status s = {0};

	resc_status(w->host, &s);
	struct clock_view view = clock_open(s.instance);
	word *clock = clock_word(&view);
	if (clock == NULL) {
		complain("there is no test clock");
	} else {
		uint64_t now_ns = atomic_fetch_add_explicit(clock, by, memory_order_seq_cst) + by;

		answer(json_pack("{s:I}", "now_ns", (json_int_t)(now_ns - view.base->created_ns)));
	}
	clock_close(&view);
}

/* ---- several calls ---- */

/* One whole call: the answer of enter where it was refused, else that of leave. */
static const char *whole_call(resc_resource *resource, const resc_options *options, const char *outcome)
{
	resc_ticket t;
	int r = resc_enter(resource, options, &t);

	return resc_answer_name(r != 0 ? r : resc_leave(&t, (enum resc_outcome)outcome_of(outcome)));
}

/* Adds an answer to a list of [answer, how often in a row]. */
static void add_to_runs(json_t *runs, const char *said)
{
	json_t *last = json_array_get(runs, json_array_size(runs) - 1);

	if (last != NULL && strcmp(json_string_value(json_array_get(last, 0)), said) == 0)
		json_array_set_new(last, 1, json_integer(json_integer_value(json_array_get(last, 1)) + 1));
	else
		json_array_append_new(runs, json_pack("[s, i]", said, 1));
}

static void do_calls(struct worker *w, char **words)
{
	resc_options options = options_from(words, 3);
	resc_resource *resource = resource_of(w, words[1]);
	char *rest = words[2], *outcome;

	if (resource == NULL)
		return;
	json_t *runs = json_array();
	while ((outcome = strsep(&rest, ",")) != NULL) {
		char *times = strchr(outcome, '*');

		if (times != NULL)
			*times = '\0';
		for (long i = times == NULL ? 1 : atol(times + 1); i > 0; i--)
			add_to_runs(runs, whole_call(resource, &options, outcome));
	}
	answer(json_pack("{s:o}", "answers", runs));
}

/* ---- resc_run ---- */

struct script {
	char *rest;
	unsigned made;
};

static enum resc_outcome scripted(void *arg, int64_t timeout_ms, unsigned attempt)
{
	struct script *script = arg;
	const char *said = strsep(&script->rest, ",");

	(void)timeout_ms;
	script->made = attempt;
	return said == NULL ? RESC_OK : (enum resc_outcome)outcome_of(said);
}

static void do_run(struct worker *w, char **words)
{
	struct script script = {words[2], 0};
	resc_options options = options_from(words, 3);
	resc_resource *resource = resource_of(w, words[1]);
	int last;

	if (resource == NULL)
		return;
	int r = resc_run(resource, scripted, &script, &options, &last);
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
	int r = resc_enter(load->resource, &load->options, &t);

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

/* words: FAIL_SHARE SEED [OPTION...] */
static bool prepare_load(struct worker *w, const char *name, uint64_t limit, char **words)
{
	w->load = (struct load){.resource = resource_of(w, name), .limit = limit, .options = options_from(words, 2)};
	w->load.fail_share = atof(words[0]);
	w->load.seed = strtoull(words[1], NULL, 10) | 1;
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
	if (!prepare_load(w, words[1], strtoull(words[2], NULL, 10), words + 3))
		return;
	run_load(&w->load);
	tell_load(&w->load);
}

static void do_busy(struct worker *w, char **words)
{
	if (!prepare_load(w, words[1], 0, words + 2))
		return;
	w->load.running = pthread_create(&w->load.thread, NULL, run_load, &w->load) == 0;
	answer(json_pack("{s:b}", "busy", w->load.running));
}

static void do_idle(struct worker *w, char **words)
{
	(void)words;
	if (w->load.running) {
		atomic_store_explicit(&w->load.stop, true, memory_order_relaxed);
		pthread_join(w->load.thread, NULL);
		w->load.running = false;
	}
	tell_load(&w->load);
}

/* ---- other processes ---- */

/* What this process has open, as the kernel names it. */
static void do_fds(struct worker *w, char **words)
{
	(void)w;
	(void)words;
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

/* A child that the library does not hear of: no handler of pthread_atfork runs. */
static pid_t fork_bare(void)
{
	return (pid_t)syscall(SYS_clone, SIGCHLD, NULL, NULL, NULL, NULL);
}

static volatile pid_t forked_by_handler;

static void fork_in_handler(int number)
{
	(void)number;
	forked_by_handler = fork();
}

static pid_t fork_in_a_signal_handler(void)
{
	signal(SIGUSR1, fork_in_handler);
	raise(SIGUSR1);
	return forked_by_handler;
}

static pid_t fork_as(const char *how)
{
	if (how != NULL && strcmp(how, "bare") == 0)
		return fork_bare();
	if (how != NULL && strcmp(how, "signal") == 0)
		return fork_in_a_signal_handler();
	return fork();
}

/* The child goes on with two named pipes instead of the parent's. */
static void answer_on(const char *in, const char *out)
{
	int from = open(in, O_RDONLY), to = open(out, O_WRONLY);

	if (from < 0 || to < 0 || dup2(from, STDIN_FILENO) < 0 || dup2(to, STDOUT_FILENO) < 0)
		_exit(9);
	close(from);
	close(to);
}

static void do_fork(struct worker *w, char **words)
{
	(void)w;
	fflush(stdout);
	pid_t child = fork_as(words[3]);

	if (child != 0)
		answer(json_pack("{s:i}", "child", (int)child));
	else
		answer_on(words[1], words[2]);
}

/* The attempt of a request forks: the child comes out of resc_run too. */
struct forking {
	char **words;
	pid_t child;
};

static enum resc_outcome attempt_that_forks(void *arg, int64_t timeout_ms, unsigned attempt)
{
	struct forking *f = arg;

	(void)timeout_ms;
	(void)attempt;
	fflush(stdout);
	f->child = fork();
	if (f->child == 0)
		answer_on(f->words[2], f->words[3]);
	return RESC_OK;
}

static void do_run_fork(struct worker *w, char **words)
{
	struct forking f = {words, -1};
	resc_resource *resource = resource_of(w, words[1]);

	if (resource == NULL)
		return;
	int r = resc_run(resource, attempt_that_forks, &f, NULL, NULL);
	answer(json_pack("{s:i, s:i}", "r", r, "child", (int)f.child));
}

/* As daemons do it: the process that opened the view exits, and its grandchild goes on. */
static void do_daemonize(struct worker *w, char **words)
{
	(void)words;
	fflush(stdout);
	if (fork() != 0)
		_exit(0);
	setsid();
	if (fork() != 0)
		_exit(0);
	do_status(w, NULL);
}

/* All descriptors that this program did not open itself, as daemons do. */
static void do_close_descriptors(struct worker *w, char **words)
{
	(void)w;
	(void)words;
	answer(result(close_range(STDERR_FILENO + 1, ~0U, 0) == 0 ? 0 : -errno));
}

/* Another file under the number of every descriptor that leads to a segment. How many. */
static void do_cover_descriptors(struct worker *w, char **words)
{
	char path[32], target[512];
	int file = open(words[1], O_RDWR | O_CREAT | O_CLOEXEC, 0600), covered = 0;

	(void)w;
	for (int fd = STDERR_FILENO + 1; file >= 0 && fd < 256; fd++) {
		snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
		ssize_t n = readlink(path, target, sizeof(target) - 1);
		target[n < 0 ? 0 : n] = '\0';
		if (strstr(target, "/resc.") != NULL)
			covered += dup2(file, fd) == fd;
	}
	answer(json_pack("{s:i}", "covered", covered));
}

/* No descriptor can be opened any more, no memory mapped, ...: number as in <sys/resource.h>. */
static void do_limit(struct worker *w, char **words)
{
	const struct rlimit limit = {strtoul(words[2], NULL, 10), strtoul(words[2], NULL, 10)};

	(void)w;
	answer(result(setrlimit((__rlimit_resource_t)atoi(words[1]), &limit) == 0 ? 0 : -errno));
}

/* Another root directory, then another user: what servers do after they have opened what they need. */
static void do_drop(struct worker *w, char **words)
{
	const unsigned id = (unsigned)strtoul(words[1], NULL, 10);
	bool done = (words[2] == NULL || (chroot(words[2]) == 0 && chdir("/") == 0)) && setgroups(0, NULL) == 0 && setgid(id) == 0 &&
	            setuid(id) == 0;

	(void)w;
	answer(result(done ? 0 : -errno));
}

/* A child that never says anything, and keeps all that it got from us, also when we are dead. */
static void do_shadow(struct worker *w, char **words)
{
	(void)w;
	(void)words;
	fflush(stdout);
	pid_t child = fork_bare();

	if (child == 0) {
		close(STDOUT_FILENO);
		for (;;)
			pause();
	}
	answer(json_pack("{s:i}", "child", (int)child));
}

/* A program that knows nothing of the library, in the place of this one. */
static void do_exec(struct worker *w, char **words)
{
	char *arguments[] = {"worker", "--fds", NULL};

	(void)w;
	(void)words;
	execv("/proc/self/exe", arguments);
	complain(strerror(errno));
}

static pid_t spawn_by_vfork(char **arguments)
{
	pid_t child = vfork(); /* NOLINT(clang-analyzer-security.insecureAPI.vfork): it is what is tried here */

	if (child == 0) {
		execv("/proc/self/exe", arguments);
		_exit(9);
	}
	return child;
}

/* The same, beside this one; its answer is ours. */
static void do_spawn(struct worker *w, char **words)
{
	char *arguments[] = {"worker", "--fds", NULL};
	pid_t child = -1;
	int status;

	(void)w;
	fflush(stdout);
	if (words[1] != NULL && strcmp(words[1], "vfork") == 0)
		child = spawn_by_vfork(arguments);
	else if (posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) != 0)
		child = -1;
	if (child < 0 || waitpid(child, &status, 0) != child)
		complain("cannot spawn");
}

static void do_close(struct worker *w, char **words)
{
	(void)words;
	resc_close(w->host);
	w->host = NULL;
	answer(result(0));
}

static void *serve(void *arg);

/* The first thread ends, another one goes on: to /proc the process looks like a zombie. */
static void do_leave_main(struct worker *w, char **words)
{
	pthread_t thread;

	(void)words;
	if (pthread_create(&thread, NULL, serve, w) != 0) {
		complain("no thread");
		return;
	}
	answer(result(0));
	pthread_exit(NULL);
}

static void do_exit(struct worker *w, char **words)
{
	(void)w;
	exit(words[1] == NULL ? 0 : atoi(words[1]));
}

static void do_quit(struct worker *w, char **words)
{
	(void)w;
	_exit(words[1] == NULL ? 0 : atoi(words[1]));
}

static void do_abort(struct worker *w, char **words)
{
	const struct rlimit none = {0, 0};

	(void)w;
	(void)words;
	setrlimit(RLIMIT_CORE, &none);
	abort();
}

/* ---- commands ---- */

static const struct command commands[] = {
        {"enter", 2, WORDS, do_enter},
        {"leave", 3, 4, do_leave},
        {"advance", 2, 2, do_advance},
        {"retry", 4, WORDS, do_retry},
        {"state", 2, 2, do_state},
        {"counters", 2, 2, do_counters},
        {"timeouts", 2, 2, do_timeouts},
        {"hold", 3, WORDS, do_hold},
        {"calls", 3, WORDS, do_calls},
        {"run", 3, WORDS, do_run},
        {"loop", 5, WORDS, do_loop},
        {"busy", 4, WORDS, do_busy},
        {"idle", 1, 1, do_idle},
        {"fallback", 3, 3, do_fallback},
        {"once_begin", 3, WORDS, do_once_begin},
        {"once_done", 3, 3, do_once_done},
        {"once_abandon", 2, 2, do_once_abandon},
        {"deadline_parse", 3, 3, do_deadline_parse},
        {"deadline_format", 3, 3, do_deadline_format},
        {"within", 3, 3, do_within},
        {"retry_after", 2, 2, do_retry_after},
        {"seed", 2, 2, do_seed},
        {"status", 1, 1, do_status},
        {"lookup", 2, 2, do_lookup},
        {"garbage", 1, 1, do_garbage},
        {"fork", 3, 4, do_fork},
        {"run_fork", 4, 4, do_run_fork},
        {"daemonize", 1, 1, do_daemonize},
        {"close_descriptors", 1, 1, do_close_descriptors},
        {"cover_descriptors", 2, 2, do_cover_descriptors},
        {"limit", 3, 3, do_limit},
        {"drop", 2, 3, do_drop},
        {"shadow", 1, 1, do_shadow},
        {"exec", 1, 1, do_exec},
        {"spawn", 1, 2, do_spawn},
        {"fds", 1, 1, do_fds},
        {"close", 1, 1, do_close},
        {"exit", 1, 2, do_exit},
        {"quit", 1, 2, do_quit},
        {"abort", 1, 1, do_abort},
        {"leave_main", 1, 1, do_leave_main},
};

static unsigned split(char *line, char **words)
{
	unsigned n = 0;
	char *rest = NULL;

	memset(words, 0, WORDS * sizeof(*words));
	for (char *next = strtok_r(line, " \n", &rest); next != NULL && n < WORDS; next = strtok_r(NULL, " \n", &rest))
		words[n++] = next;
	return n;
}

static void obey(struct worker *w, char **words, unsigned n)
{
	for (size_t i = 0; i < sizeof(commands) / sizeof(*commands); i++) {
		const struct command *c = &commands[i];

		if (strcmp(c->name, words[0]) != 0)
			continue;
		if (n < c->least || n > c->most)
			complain("not the words of this command");
		else
			c->obey(w, words);
		return;
	}
	complain("no such command");
}

static void *serve(void *arg)
{
	struct worker *w = arg;
	char line[4096], *words[WORDS];

	while (fgets(line, sizeof(line), stdin) != NULL) {
		unsigned n = split(line, words);

		if (n > 0)
			obey(w, words, n);
	}
	resc_close(w->host);
	exit(0);
}

int main(int argc, char **argv)
{
	static struct worker w;
	struct resc_error err;

	if (argc == 2 && strcmp(argv[1], "--fds") == 0) {
		do_fds(&w, NULL);
		return 0;
	}
	w.host = resc_open(argc > 1 ? argv[1] : NULL, &err);
	if (w.host == NULL) {
		answer(json_pack("{s:i, s:s}", "r", err.code, "error", err.text));
		return 1;
	}
	do_status(&w, NULL);
	serve(&w);
}
