/* SPDX-License-Identifier: MIT */
/*
 * A worker of test_every_step.py: calls, retries and keys in a loop, and an account of it all that outlives its death.
 *
 *	step_worker INSTANCE BOARD PLACE SEED WHAT
 *
 * Why this exists: a process that is killed at a failpoint cannot say what it was doing, and those that run beside it cannot be asked while
 * they run. So everybody writes into a board, a file that the test maps too: what it is about to do, what came of it, how long it took. The
 * words of the board are named in test_every_step.py as here.
 *
 * WHAT is "calls"; "names" looks up a name of a pattern in each turn; "comes" opens and closes its view in each turn; "keys" adds no
 * calls to the keys; "clock" also lets the test clock run while the board says so.
 *
 * A call of "ledger" or "pool" never waits by its policy: it is measured in wall time, in processor time, and by how often the process gave
 * the processor away by itself, which must be never, however busy the machine is. A call of "payments" may wait in its queue.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>

#include "resc.h"
#include "test_clock.h"

#define KEYS        32
#define NAMES       9 /* one more than rescd makes: one is always missing. And no more: each takes up a place of the table for good */
#define BOARD_WORDS 4096
#define FIRST       256 /* word of the first place */
#define PLACE       256 /* words of a place */
#define BUCKETS     48
#define LEDGER_RUN  10 /* calls of the ledger in a turn */

/* Of the board. */
enum { PERIOD, SPEED, MORTAL, DOUBLE_FIRST, WRONG_ANSWER, OWNERS = 64 };

/* Of a place. */
enum {
	COMMAND,
	OBEYED, /* the command that is being obeyed */
	PHASE,
	RESOURCE,
	TURNS,
	ERRORS,
	LAST_ERROR,
	SEEN_PERIOD,
	CALLS,
	WORST_WALL,
	WORST_CPU,
	SWITCHES,
	WORST_QUEUE,
	OUTCOME,
	WALLS = 16,
	TALLIES = 64
};

/* In the low two bits of a command; the rest is a number, so that who has given one knows when it is obeyed. */
enum { PAUSE, RUN, END };
enum phase { OUTSIDE, OPENING, ENTERING, INSIDE, LEAVING, RETRYING, BEGINNING, FINISHING, LOOKING_UP, CLOSING };
enum resource { PAYMENTS, LEDGER, POOL, RESOURCES };

/* Of a resource. */
enum {
	ADMITTED,
	REFUSED,
	ENDED_OK,
	ENDED_FAIL,
	STALE,
	GRANTED,
	NOT_GRANTED,
	FIRST_KEY,
	DONE_KEY,
	REPLAYED,
	BUSY_KEY,
	UNKNOWN_KEY,
	STALE_PROBE, /* of an outcome that was ok */
	TALLY = 16
};

struct member {
	_Atomic uint64_t *board;
	_Atomic uint64_t *place;
	const char *instance;
	unsigned number;
	const char *what;
	uint64_t seed;
	unsigned names;
	resc *host;
	resc_resource *resource[RESOURCES];
};

/* What a call took. */
struct cost {
	uint64_t wall_ns;
	uint64_t cpu_ns;
	uint64_t switches;
	uint64_t faults;
};

/* ---- the board: a word has one writer, and a test that looks at any time ---- */

static uint64_t get(_Atomic uint64_t *words, unsigned i)
{
	return atomic_load_explicit(&words[i], memory_order_acquire);
}

static void put(_Atomic uint64_t *words, unsigned i, uint64_t value)
{
	atomic_store_explicit(&words[i], value, memory_order_release);
}

static void add(_Atomic uint64_t *words, unsigned i, uint64_t n)
{
	put(words, i, get(words, i) + n);
}

static void tally(struct member *m, enum resource r, unsigned what)
{
	add(m->place, TALLIES + r * TALLY + what, 1);
}

static void about_to(struct member *m, enum phase phase, enum resource r)
{
	put(m->place, RESOURCE, r);
	put(m->place, PHASE, phase);
}

static void note_error(struct member *m, int error)
{
	add(m->place, ERRORS, 1);
	put(m->place, LAST_ERROR, (uint64_t)-error | get(m->place, PHASE) << 32);
}

static uint64_t next_random(struct member *m)
{
	m->seed ^= m->seed >> 12;
	m->seed ^= m->seed << 25;
	m->seed ^= m->seed >> 27;
	return m->seed * UINT64_C(0x2545f4914f6cdd1d) >> 16;
}

static bool chance(struct member *m, unsigned percent)
{
	return next_random(m) % 100 < percent;
}

/* ---- measuring ---- */

static uint64_t clock_now(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static struct cost cost_now(void)
{
	struct rusage used;

	getrusage(RUSAGE_THREAD, &used);
	return (struct cost){clock_now(CLOCK_MONOTONIC), clock_now(CLOCK_THREAD_CPUTIME_ID), (uint64_t)used.ru_nvcsw,
	                     (uint64_t)used.ru_minflt + (uint64_t)used.ru_majflt};
}

static void raise_to(struct member *m, unsigned which, uint64_t value)
{
	if (value > get(m->place, which))
		put(m->place, which, value);
}

static void new_period(struct member *m)
{
	uint64_t period = get(m->board, PERIOD);

	if (get(m->place, SEEN_PERIOD) == period)
		return;
	put(m->place, CALLS, 0);
	for (unsigned i = WORST_WALL; i <= WORST_QUEUE; i++)
		put(m->place, i, 0);
	for (unsigned i = 0; i < BUCKETS; i++)
		put(m->place, WALLS + i, 0);
	put(m->place, SEEN_PERIOD, period);
}

static void add_cost(struct member *m, enum resource r, const struct cost *before)
{
	const struct cost after = cost_now();
	uint64_t wall_ns = after.wall_ns - before->wall_ns;

	raise_to(m, WORST_CPU, after.cpu_ns - before->cpu_ns);
	if (r == PAYMENTS) {
		raise_to(m, WORST_QUEUE, wall_ns);
		return;
	}
	add(m->place, CALLS, 1);
	/* Who touches a page for the first time may wait for another who does at the same moment: that is the kernel's, and short. */
	if (after.faults == before->faults)
		add(m->place, SWITCHES, after.switches - before->switches);
	raise_to(m, WORST_WALL, wall_ns);
	unsigned bucket = 63u - (unsigned)__builtin_clzll(wall_ns | 1);
	add(m->place, WALLS + (bucket < BUCKETS ? bucket : BUCKETS - 1), 1);
}

/* ---- calls ---- */

static void pause_ns(long ns)
{
	const struct timespec t = {0, ns};

	nanosleep(&t, NULL);
}

static void leave(struct member *m, enum resource r, resc_ticket *t, enum resc_outcome outcome)
{
	const bool probe = t->probe;

	put(m->place, OUTCOME, outcome);
	about_to(m, LEAVING, r);
	int answer = resc_leave(t, outcome);
	if (answer < 0)
		note_error(m, answer);
	tally(m, r, outcome == RESC_OK ? ENDED_OK : ENDED_FAIL);
	if (answer == RESC_STALE)
		tally(m, r, STALE);
	if (answer == RESC_STALE && probe && outcome == RESC_OK)
		tally(m, r, STALE_PROBE);
	about_to(m, OUTSIDE, r);
}

static void ask_retry(struct member *m, enum resource r)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	int64_t wait_ns;

	about_to(m, RETRYING, r);
	int answer = resc_retry(m->resource[r], &plan, RESC_FAIL, &wait_ns);
	if (answer < 0)
		note_error(m, answer);
	else
		tally(m, r, answer == 0 ? GRANTED : NOT_GRANTED);
	about_to(m, OUTSIDE, r);
}

static void call(struct member *m, enum resource r, const resc_options *options, bool fails, long hold_ns)
{
	struct cost before = cost_now();
	resc_ticket t;

	about_to(m, ENTERING, r);
	int answer = resc_enter(m->resource[r], options, &t);
	if (answer < 0)
		note_error(m, answer);
	if (answer == RESC_E_INJECTED) {
		tally(m, r, ADMITTED);
		tally(m, r, ENDED_FAIL);
		about_to(m, OUTSIDE, r);
		add_cost(m, r, &before);
		return;
	}
	if (answer != 0) {
		tally(m, r, REFUSED);
		about_to(m, OUTSIDE, r);
		add_cost(m, r, &before);
		return;
	}
	tally(m, r, ADMITTED);
	about_to(m, INSIDE, r);
	if (hold_ns > 0) {
		add_cost(m, r, &before);
		pause_ns(hold_ns);
		before = cost_now();
	}
	leave(m, r, &t, fails ? RESC_FAIL : RESC_OK);
	add_cost(m, r, &before);
	if (fails)
		ask_retry(m, r);
}

static void call_payments(struct member *m)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = (uint32_t)(next_random(m) % 3);
	options.flags = chance(m, 20) ? RESC_RETRY : 0;
	/* Held for a while: others meet a full bulkhead, and wait. */
	call(m, PAYMENTS, &options, chance(m, 30), chance(m, 60) ? (long)(next_random(m) % 400000) : 0);
}

static void call_all(struct member *m)
{
	bool bad = chance(m, 10);

	for (unsigned i = 0; i < LEDGER_RUN; i++)
		call(m, LEDGER, NULL, bad && chance(m, 80), 0);
	call(m, POOL, NULL, false, chance(m, 50) ? 20000 : 0);
	call_payments(m);
	call_payments(m);
}

/* ---- keys ---- */

/* Who is told "first" is the only one, until it says that it is done. The owner before may be one that was killed in the middle. */
static void own_key(struct member *m, unsigned key)
{
	uint64_t before = atomic_exchange_explicit(&m->board[OWNERS + key], m->number + 1, memory_order_seq_cst);

	if (before != 0 && (get(m->board, MORTAL) >> (before - 1) & 1) == 0)
		atomic_fetch_add_explicit(&m->board[DOUBLE_FIRST], 1, memory_order_relaxed);
}

static void finish_key(struct member *m, resc_once *once, unsigned key)
{
	uint64_t stored = key;

	put(m->board, OWNERS + key, 0);
	about_to(m, FINISHING, PAYMENTS);
	bool done = !chance(m, 30);
	int answer = done ? resc_once_done(once, &stored, sizeof stored) : resc_once_abandon(once);
	if (answer != 0)
		note_error(m, answer);
	else if (done)
		tally(m, PAYMENTS, DONE_KEY);
}

static void check_answer(struct member *m, const resc_once *once, unsigned key)
{
	uint64_t stored = UINT64_MAX;

	memcpy(&stored, once->answer, sizeof stored);
	if (once->size != sizeof stored || stored != key)
		atomic_fetch_add_explicit(&m->board[WRONG_ANSWER], 1, memory_order_relaxed);
}

static void use_key(struct member *m)
{
	static resc_once once;
	unsigned key = (unsigned)(next_random(m) % KEYS);

	about_to(m, BEGINNING, PAYMENTS);
	int answer = resc_once_begin(m->resource[PAYMENTS], &key, sizeof key, NULL, &once);
	if (answer == 0) {
		own_key(m, key);
		tally(m, PAYMENTS, FIRST_KEY);
		finish_key(m, &once, key);
	} else if (answer == RESC_ONCE_DONE) {
		tally(m, PAYMENTS, REPLAYED);
		check_answer(m, &once, key);
	} else if (answer == RESC_ONCE_BUSY) {
		tally(m, PAYMENTS, BUSY_KEY);
	} else if (answer == RESC_ONCE_UNKNOWN) {
		/* We know: nothing was done. Whoever says so second is told that it is settled. */
		tally(m, PAYMENTS, UNKNOWN_KEY);
		about_to(m, FINISHING, PAYMENTS);
		resc_once_abandon(&once);
	} else {
		note_error(m, answer);
	}
	about_to(m, OUTSIDE, PAYMENTS);
}

/* ---- turns ---- */

static bool come(struct member *m)
{
	static const char *const names[RESOURCES] = {"payments", "ledger", "pool"};
	struct resc_error err;

	about_to(m, OPENING, 0);
	m->host = resc_open(m->instance, &err);
	for (unsigned i = 0; m->host != NULL && i < RESOURCES; i++)
		m->resource[i] = resc_lookup(m->host, names[i], &err);
	about_to(m, OUTSIDE, 0);
	return m->host != NULL && m->resource[RESOURCES - 1] != NULL;
}

static void go(struct member *m)
{
	about_to(m, CLOSING, 0);
	resc_close(m->host);
	about_to(m, OUTSIDE, 0);
}

static void look_up_name(struct member *m)
{
	char name[64];

	snprintf(name, sizeof name, "shard-%u", m->names++ % NAMES);
	about_to(m, LOOKING_UP, 0);
	resc_lookup(m->host, name, NULL);
	about_to(m, OUTSIDE, 0);
}

static bool is(const struct member *m, const char *what)
{
	return strcmp(m->what, what) == 0;
}

static bool take_turn(struct member *m)
{
	new_period(m);
	if (is(m, "names"))
		look_up_name(m);
	if (!is(m, "keys"))
		call_all(m);
	use_key(m);
	if (is(m, "comes")) {
		go(m);
		if (!come(m))
			return false;
	}
	add(m->place, TURNS, 1);
	return true;
}

static bool run(struct member *m)
{
	for (;;) {
		uint64_t command = get(m->place, COMMAND);

		if ((command & 3) == END)
			return true;
		put(m->place, OBEYED, command);
		if ((command & 3) == RUN && !take_turn(m))
			return false;
		pause_ns(1000000);
	}
}

/* ---- the test clock ---- */

static void move_clock(const struct clock_view *view, uint64_t ns)
{
	word *clock = clock_word(view);

	if (clock != NULL)
		atomic_fetch_add_explicit(clock, ns, memory_order_seq_cst);
}

/* Who has superseded it, while its name still leads to the old one: the workers are there already. */
static struct clock_view open_successor(const char *instance, const struct clock_view *view)
{
	char name[64];

	if (clock_word(view) == NULL)
		return (struct clock_view){NULL, 0};
	const struct segment_daemon *daemon = (const void *)((const char *)view->base + view->base->daemon_offset);
	uint64_t successor = atomic_load_explicit(&daemon->superseded, memory_order_acquire);
	snprintf(name, sizeof name, "%.40s.%016llx", instance, (unsigned long long)successor);
	return successor == 0 ? (struct clock_view){NULL, 0} : clock_open(name);
}

/* SPEED times as fast as the real one. */
static void *run_clock(void *arg)
{
	struct member *m = arg;
	struct clock_view view = {NULL, 0}, successor = {NULL, 0};
	uint64_t before = clock_now(CLOCK_MONOTONIC);

	for (unsigned turn = 0;; turn++) {
		if (turn % 8 == 0) {
			clock_close(&view);
			clock_close(&successor);
			view = clock_open(m->instance);
			successor = open_successor(m->instance, &view);
		}
		pause_ns(1000000);
		uint64_t now = clock_now(CLOCK_MONOTONIC);
		uint64_t ns = (now - before) * get(m->board, SPEED);
		move_clock(&view, ns);
		move_clock(&successor, ns);
		before = now;
	}
	return NULL;
}

static _Atomic uint64_t *map_board(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC);
	void *board = mmap(NULL, BOARD_WORDS * sizeof(uint64_t), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	close(fd);
	return board == MAP_FAILED ? NULL : board;
}

int main(int argc, char **argv)
{
	static struct member m;
	pthread_t clock;

	if (argc != 6) {
		fprintf(stderr, "usage: step_worker INSTANCE BOARD PLACE SEED WHAT\n");
		return 2;
	}
	m = (struct member){.instance = argv[1],
	                    .board = map_board(argv[2]),
	                    .number = (unsigned)atoi(argv[3]),
	                    .seed = strtoull(argv[4], NULL, 10) * 2 + 1,
	                    .what = argv[5]};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (m.board == NULL || m.number >= (BOARD_WORDS - FIRST) / PLACE)
		return 2;
	m.place = m.board + FIRST + m.number * PLACE;
	if (!come(&m))
		return 1;
	if (is(&m, "clock") && pthread_create(&clock, NULL, run_clock, &m) != 0)
		return 1;
	if (!run(&m))
		return 1;
	go(&m);
	return 0;
}
