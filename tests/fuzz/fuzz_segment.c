/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in a segment: a worker that is attached to it neither crashes nor hangs, nor does rescd; and whoever attaches is told why not.
 *
 * An input is a program for three parties that share a real segment, a file with a name: *somebody* who stores words in any region of it,
 * the header's copies included; a *worker* with tickets and handles, who was there before; and an *operator* or *rescd*, who force, reset,
 * reap, reload, supersede, answer and read. Each step is a byte that says what, and the bytes that it needs. So damage comes between any
 * two calls, and what calls make of it is damaged again.
 *
 * And in the middle of them: an *ambush* is a small program of its own that somebody, an operator or rescd runs between two steps of a
 * protocol, at the n-th failpoint that is met from where it was laid. So what a stop at the worst moment and a fast neighbour do to a call
 * is a byte of the input, and not luck.
 *
 * At the end the damage is undone, and the worker is asked to serve again; then it closes its view.
 *
 * Each input starts with the same segment, byte by byte, and a fresh worker in it. The clock is a word of the segment like any other, and
 * who sleeps moves it instead, so an input means the same whenever it is run. libFuzzer's -timeout, or alarm(2), watches for loops.
 *
 * What is checked besides: answers are of the documented ones, a refusal leaves a zeroed ticket, what inspection says is possible, and the
 * accounts are right once the bytes are.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../unit/every_guard.h"
#include "../unit/sleepless.h"
#include "clock.h"
#include "event.h"
#include "failpoint.h"
#include "host.h"
#include "inspect.h"
#include "made.h"
#include "map.h"
#include "metrics.h"
#include "move.h"
#include "note.h"
#include "once.h"
#include "override.h"
#include "permit.h"
#include "policy.h"
#include "record.h"
#include "request.h"
#include "share.h"
#include "standalone.h"
#include "states.h"
#include "ticket.h"
#include "waiting.h"
#include "words.h"
#include "worker.h"

#define RESOURCES 3u
#define TICKETS   8u
#define KEYS      4u
#define STEPS_MAX 200u
#define AMBUSHES  4u
/* Nine years. */
#define UPTIME_MOST_NS (UINT64_C(1) << 58)

static const struct segment_dims small = {
        .resources = 4, .workers = 4, .permits = 64, .shards = 4, .events = 16, .calls = 64, .waiting = 16, .once = 16};
/* Those that are configured, one that is made from a pattern, and one that is not. */
static const char *const names[] = {"payments", "ledger", "search", "shard-1", "unknown"};

/* Of the process. */
static struct {
	bool ready;
	char instance[32];
	char path[MAP_PATH_SIZE];
	char copy_path[MAP_PATH_SIZE + 8];
	struct map rescd;
	uint8_t *pristine;
	FILE *sink;
	struct config config;
	struct config_resource pattern;
} base;

/* Laid, and not met yet: left is how many failpoints before it. */
struct ambush {
	unsigned left; /* 0: none */
	struct input in;
};

/* Of one input. */
static struct {
	resc *host;
	resc_resource *resources[RESOURCES];
	resc_ticket tickets[TICKETS];
	resc_once keys[KEYS];
	resc_retry_plan plan;
	struct map successor; /* base NULL: there is none */
	char successor_path[MAP_PATH_SIZE];
	struct instance instance;
	struct made made;
	struct ambush ambushes[AMBUSHES];
	bool ambushed;   /* one is going on; they do not meet each other */
	uint64_t undone; /* see undo_damage */
	bool rescd_busy; /* there is one rescd, which does one thing at a time */
} now;

/* ---- the segment and the worker ---- */

static void clean_up(void)
{
	unlink(base.path);
	unlink(base.copy_path);
}

/* While the worker sleeps, rescd answers its questions. It never needs a larger segment: that is for test_made. */
static void rescd_answers(void)
{
	if (now.rescd_busy)
		return;
	now.rescd_busy = true;
	now.made.replaced_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
	made_answer(&now.made);
	now.rescd_busy = false;
}

static void configure_patterns(void)
{
	snprintf(base.pattern.name, sizeof base.pattern.name, "shard-*");
	every_guard(&base.pattern.policy);
	base.config = (struct config){.made = 2, .idle_ms = 60000, .pattern_count = 1, .patterns = &base.pattern};
	atomic_store_explicit(&base.rescd.daemon->patterns, 1, memory_order_relaxed);
}

static void publish_all(void)
{
	static void (*const guards[RESOURCES])(struct policy * policy) = {every_guard, every_guard_in_shadow, every_wait};
	struct policy policy;

	for (uint32_t i = 0; i < RESOURCES; i++) {
		guards[i](&policy);
		REQUIRE(record_publish(&base.rescd, names[i], &policy) == (int)i);
	}
}

static void start(void)
{
	struct resc_error err;

	snprintf(base.instance, sizeof base.instance, "fuzz-%d", (int)getpid());
	map_path(base.path, base.instance, 0);
	snprintf(base.copy_path, sizeof base.copy_path, "%s.copy", base.path);
	atexit(clean_up);
	if (map_create(&base.rescd, base.instance, &small, NULL, 0600, (gid_t)-1, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	publish_all();
	configure_patterns();
	REQUIRE(map_publish(&base.rescd, base.path) == 0);
	base.pristine = malloc(base.rescd.size);
	base.sink = fopen("/dev/null", "w");
	REQUIRE(base.pristine != NULL && base.sink != NULL);
	memcpy(base.pristine, base.rescd.base, base.rescd.size);
	base.ready = true;
}

static void meet(void);

static void begin(void)
{
	struct resc_error err;

	memset(&now, 0, sizeof now);
	memcpy(base.rescd.base, base.pristine, base.rescd.size);
	resc_seed(1);
	waiting_in_real_time = false;
	atomic_store(&sleepless_clocks[0], &base.rescd.live->clock_ns);
	sleepless_meanwhile = rescd_answers;
	failpoint_watch(meet);
	sleepless_step();
	now.plan = (resc_retry_plan)RESC_RETRY_INIT;
	now.instance.map = base.rescd;
	now.made = (struct made){.instance = &now.instance, .config = &base.config};
	now.host = resc_open(base.instance, &err);
	REQUIRE(now.host != NULL);
	for (unsigned i = 0; i < RESOURCES; i++) {
		now.resources[i] = resc_lookup(now.host, names[i], &err);
		REQUIRE(now.resources[i] != NULL);
	}
}

/* Nobody but the test has the successor open any more, and its name is gone. */
static void forget_successor(void)
{
	atomic_store(&sleepless_clocks[1], NULL);
	if (now.successor.base == NULL)
		return;
	unlink(now.successor_path);
	map_close(&now.successor);
}

/* As it was, but for the time, which goes on, unless it was damaged too: no host is up so long. Policies as rescd leaves them that writes
 * each anew. */
static void undo_damage(void)
{
	uint64_t clock = atomic_load_explicit(&base.rescd.live->clock_ns, memory_order_relaxed);

	memcpy(base.rescd.base, base.pristine, base.rescd.size);
	if (clock < UPTIME_MOST_NS)
		atomic_store_explicit(&base.rescd.live->clock_ns, clock, memory_order_relaxed);
	now.undone += 2; /* the same copy */
	for (uint32_t i = 0; i < RESOURCES; i++)
		atomic_fetch_add_explicit(&map_policy(&base.rescd, i)->sequence, now.undone, memory_order_release);
	atomic_store(&sleepless_clocks[0], &base.rescd.live->clock_ns);
	deadline_use_clock(&base.rescd.live->clock_ns);
	forget_successor();
}

/* The bytes are good again, and so is the worker, after the look that a call does once a second. */
static void serve_again(void)
{
	struct inspect_resource seen;
	resc_ticket ticket;

	undo_damage();
	host_look(now.host);
	for (uint32_t i = 0; i < RESOURCES; i++) {
		sleepless_step();
		REQUIRE(resc_enter(now.resources[i], NULL, &ticket) == 0);
		REQUIRE(inspect_resource(&base.rescd, i, &seen) == 0 && seen.in_flight == 1);
		REQUIRE(resc_leave(&ticket, RESC_OK) == 0);
		REQUIRE(inspect_resource(&base.rescd, i, &seen) == 0 && seen.in_flight == 0);
		REQUIRE(seen.counters.enters == 1 && seen.counters.admitted == 1 && seen.counters.ended_ok == 1);
	}
}

static void end(void)
{
	serve_again();
	resc_close(now.host);
	made_free(&now.made);
}

/* The segment that a step is about: the first one, or its successor where there is one. */
static const struct map *some_map(uint8_t which)
{
	return (which & 0x80) != 0 && now.successor.base != NULL ? &now.successor : &base.rescd;
}

/* ---- somebody stores a word ---- */

static void *some_word(struct input *in)
{
	uint8_t which = take_byte(in);
	size_t offset = (size_t)take_number(in, 2);
	const struct map *map = some_map(which);
	uint32_t i = which >> 4 & 3;
	struct state *state = map_state(map, i);
	const struct {
		void *place;
		size_t size;
	} regions[] = {
	        {map->daemon, offsetof(struct segment_daemon, control)},
	        {map->daemon, sizeof *map->daemon},
	        {map_policy(map, i), 16 + SEGMENT_NAME_SIZE},
	        {map_policy(map, i)->copies, 2 * (size_t)map->sizes.policy},
	        {map->live, sizeof *map->live},
	        {map->workers, (size_t)map->dims.workers * map->sizes.worker},
	        {state, 13 * 8},
	        {state, offsetof(struct state, probes)},
	        {state->probes, sizeof state->probes},
	        {map_carried(map, state), map->sizes.shard},
	        {map_permits(map, state), map->dims.permits * 8},
	        {map_shard(map, state, 0), (size_t)map->dims.shards * map->sizes.shard},
	        {map->events, (size_t)map->dims.events * map->sizes.event},
	        {map->policies, (size_t)((uint8_t *)map->live - map->policies)},
	        {map->states, map->dims.resources * map->state_size},
	        {state, 4 * 8},
	        {&state->rate, offsetof(struct state, override_text) - offsetof(struct state, rate)},
	        {state->earned, sizeof state->earned},
	        {map_waiting(map, state), map->dims.waiting * 8},
	        {map_calls(map, state), map->dims.calls * 8},
	        {map->once_slots, map->dims.once * 8},
	        {map->once_entries, (size_t)map->dims.once * map->sizes.once_entry},
	        {map->live->requests, sizeof map->live->requests},
	        {map->live, offsetof(struct segment_live, requests)},
	};
	/* Bit 6 is for the regions beyond the sixteenth. */
	size_t region = ((which & 15u) + ((which & 0x40) != 0 ? 16u : 0)) % (sizeof regions / sizeof regions[0]);
	uint8_t *place = (uint8_t *)regions[region].place;

	return place + offset * 8 % (regions[region].size / 8 * 8);
}

static uint64_t some_newer_value(unsigned which, uint64_t rest)
{
	const uint64_t claim = now.keys[0].claim;

	switch (which) {
	case 16:
		return rate_make((unsigned)rest & 3, (unsigned)rest >> 2 & 3, (rest >> 4) << 40);
	case 17:
		return earned_make((unsigned)rest & 3, rest >> 2 & 15, TOKEN * (rest >> 6));
	case 18:
		return throttle_make(rest >> 8 << 8, (unsigned)rest & 15, (uint32_t)(rest >> 4 & 15) * 70000);
	case 19:
		return call_make((uint16_t)rest >> 6 & 3, (unsigned)rest & 7, rest >> 3);
	case 20:
		return once_make((uint32_t)rest & 15, (unsigned)rest >> 8, once_tag(claim), (enum once_phase)(rest >> 4 & 7));
	case 21:
		return once_with(claim, (enum once_phase)(rest & 7));
	case 22: /* a question: see request.c */
		return (rest & 7) << 32 | (rest >> 5 & 0xff) << 8 | (rest >> 3 & 3);
	default: /* the word of those who wait */
		return rest << 16 | (rest & 1);
	}
}

/* Values that mean something, of which random bytes would seldom think. */
static uint64_t some_value(struct input *in)
{
	const struct resc_ticket *t = &now.tickets[0];
	uint8_t which = take_byte(in);
	uint64_t rest = take_number(in, 2);
	uint64_t generation = breaker_generation(atomic_load_explicit(&map_state(&base.rescd, 0)->breaker, memory_order_relaxed));

	switch (which % 24) {
	case 0:
		return rest;
	case 1:
		return UINT64_MAX - rest;
	case 2:
		return UINT64_C(1) << (rest % 64);
	case 3:
		return breaker_make((unsigned)rest & 7, (unsigned)rest >> 3, (unsigned)generation, rest);
	case 4:
		return override_make((unsigned)rest & 3, (unsigned)rest >> 2, (uint32_t)rest >> 4, rest);
	case 5:
		return limit_make((unsigned)rest & 0xff, (unsigned)rest >> 8, (unsigned)rest >> 4 & 3, 1);
	case 6:
		return streak_make((uint16_t)generation, (unsigned)rest & 3, (uint32_t)rest >> 2);
	case 7:
		return tally_make((uint16_t)generation, (unsigned)rest & 15, (unsigned)rest >> 4 & 15, (unsigned)rest >> 8 & 15);
	case 8:
		return tokens_make((unsigned)rest & 3, (unsigned)rest >> 2 & 3, TOKEN * (rest >> 4));
	case 9:
		return bucket_make(bucket_tag(rest >> 8, (uint16_t)generation), (uint32_t)rest & 0xff);
	case 10:
		return probe_make((uint32_t)rest & 7, (unsigned)generation, rest >> 3);
	case 11:
		return permit_make((uint32_t)rest & 7, (uint32_t)rest >> 3);
	case 12:
		return EVENT_BUSY | rest;
	case 13:
		return t->permit;
	case 14:
		return now.successor.base != NULL && rest % 2 != 0 ? now.successor.generation : base.rescd.generation;
	case 15:
		return (rest & 1) != 0 ? SHARD_COMMON : NOTE_WRITING | rest;
	default:
		return some_newer_value(which % 24, rest);
	}
}

static void store_word(struct input *in)
{
	word *place = some_word(in);

	atomic_store_explicit(place, take_number(in, 8), memory_order_relaxed);
}

static void store_value(struct input *in)
{
	word *place = some_word(in);

	atomic_store_explicit(place, some_value(in), memory_order_relaxed);
}

static void flip_byte(struct input *in)
{
	uint8_t *place = some_word(in);
	uint8_t bits = take_byte(in);

	place[bits & 7] ^= take_byte(in);
}

static void copy_word(struct input *in)
{
	word *to = some_word(in);
	const word *from = some_word(in);

	atomic_store_explicit(to, atomic_load_explicit(from, memory_order_relaxed), memory_order_relaxed);
}

static void fill_region(struct input *in)
{
	word *from = some_word(in);
	const struct map *map =
	        (uint8_t *)from >= base.rescd.base && (uint8_t *)from < base.rescd.base + base.rescd.size ? &base.rescd : &now.successor;
	size_t room = map->size - (size_t)((uint8_t *)from - map->base);
	size_t count = 8 * (1 + (size_t)take_byte(in));
	uint64_t value = take_number(in, 8);

	for (size_t i = 0; i < count && i < room / 8; i++)
		atomic_store_explicit(&from[i], value, memory_order_relaxed);
}

/* ---- the worker ---- */

static bool is_zero(const void *p, size_t size)
{
	const uint8_t *bytes = p;

	for (size_t i = 0; i < size; i++)
		if (bytes[i] != 0)
			return false;
	return true;
}

static resc_resource *some_resource(uint8_t which)
{
	return now.resources[which % RESOURCES];
}

static int64_t some_deadline(struct input *in)
{
	uint8_t which = take_byte(in);

	switch (which % 4) {
	case 0:
		return RESC_NO_DEADLINE;
	case 1:
		return resc_deadline_after_ms((int64_t)take_byte(in));
	case 2:
		return RESC_NO_DEADLINE - which;
	default:
		return (int64_t)take_number(in, 8);
	}
}

/* Cells outside of the tables would be somebody else's words. Their numbers are as in ticket.h. */
static void check_ticket(const resc_ticket *ticket)
{
	uint32_t cell = ticket->permit_cell & 0xffffff;

	REQUIRE(ticket->timeout_ms >= 1 || ticket->timeout_ms == -1);
	REQUIRE(cell < 2 * small.permits || cell >= UNTRACKED_BASE);
	REQUIRE(ticket->permit_cell >> 24 < PROBES_LIMIT || cell == 0xffffff);
}

static void enter_with(uint8_t which, const resc_options *options)
{
	resc_ticket *ticket = &now.tickets[which >> 4 & (TICKETS - 1)];
	int r = resc_enter(some_resource(which & 15), options, ticket);

	REQUIRE((r >= -4095 && r <= RESC_E_RETRIES) || r == RESC_E_INJECTED || r == RESC_E_INJECTED_TIMEOUT);
	if (r == 0) {
		check_ticket(ticket);
		return;
	}
	REQUIRE(ticket->retry_after_ms >= (r > 0 ? -1 : 0) && (r > 0 || ticket->retry_after_ms == 0));
	ticket->retry_after_ms = 0;
	REQUIRE(is_zero(ticket, sizeof *ticket));
}

static void enter(struct input *in)
{
	uint8_t which = take_byte(in);
	resc_options options = RESC_OPTIONS_INIT;

	if ((which & 0x80) != 0)
		options.deadline_ns = some_deadline(in);
	enter_with(which, &options);
}

/* With everything else that a caller can say. */
static void enter_as(struct input *in)
{
	uint8_t which = take_byte(in);
	uint8_t how = take_byte(in);
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = how & 3;
	options.flags = how >> 2 & 3;
	options.cost = how >> 4 & 7;
	enter_with(which, &options);
}

static void leave(struct input *in)
{
	uint8_t which = take_byte(in);
	resc_ticket *ticket = &now.tickets[which >> 4 & (TICKETS - 1)];
	bool held = !is_zero(ticket, sizeof *ticket);
	resc_ticket copy = *ticket;
	int r = resc_leave(ticket, (enum resc_outcome)(which & 7));

	REQUIRE(r == 0 || r == RESC_STALE || r == -EINVAL || r == -ESTALE);
	if (!held || (which & 7) > RESC_CANCELLED)
		REQUIRE(r == -EINVAL);
	else
		REQUIRE(is_zero(ticket, sizeof *ticket));
	/* A copy of a ticket that was left: whatever happened to its cell, it is not believed a second time. */
	if ((which & 8) != 0)
		resc_leave(&copy, RESC_FAIL);
}

/* With the dependency's own word on when to come back. */
static void leave_after(struct input *in)
{
	uint8_t which = take_byte(in);
	int r = resc_leave_after(&now.tickets[which >> 4 & (TICKETS - 1)], (enum resc_outcome)(which & 7), (int64_t)take_number(in, 2) - 1);

	REQUIRE(r == 0 || r == RESC_STALE || r == -EINVAL || r == -ESTALE);
}

/* Any byte of a ticket but those of timeout_ms: the seal does not fit, and nothing in it is believed. */
static void leave_damaged(struct input *in)
{
	uint8_t which = take_byte(in);
	resc_ticket damaged = now.tickets[which & (TICKETS - 1)];
	size_t offset = offsetof(resc_ticket, probe) + take_byte(in) % (sizeof damaged - offsetof(resc_ticket, probe));
	uint8_t difference = take_byte(in);

	((uint8_t *)&damaged)[offset] ^= difference == 0 ? 1 : difference;
	REQUIRE(resc_leave(&damaged, RESC_OK) == -EINVAL);
}

static void retry(struct input *in)
{
	uint8_t which = take_byte(in);
	int64_t wait_ns;

	if ((which & 0x40) != 0)
		now.plan = (resc_retry_plan)RESC_RETRY_INIT;
	if ((which & 0x80) != 0)
		now.plan.deadline_ns = some_deadline(in);
	if ((which & 0x20) != 0)
		now.plan.pushback_ms = (int64_t)take_number(in, 2) - 1;
	int r = resc_retry(some_resource(which & 3), &now.plan, (enum resc_outcome)(which >> 2 & 7), &wait_ns);
	REQUIRE(r >= -4095 && (r <= 0 || (r >= RESC_E_ATTEMPTS && r <= RESC_E_RETRY_IN_FLIGHT)));
	REQUIRE(r == -EINVAL || wait_ns >= 0);
}

static void begin_key(struct input *in)
{
	uint8_t which = take_byte(in);
	resc_once *once = &now.keys[which >> 2 & (KEYS - 1)];
	resc_options options = RESC_OPTIONS_INIT;
	const char key = (char)('a' + (which >> 4 & 3));

	if ((which & 0x80) != 0)
		options.deadline_ns = some_deadline(in);
	int r = resc_once_begin(some_resource(which & 3), &key, 1, &options, once);
	REQUIRE(r >= -4095 && (r <= 0 || (r >= RESC_ONCE_BUSY && r <= RESC_ONCE_UNKNOWN)));
	/* Good for settling it too. */
	REQUIRE(r == 0 || r == RESC_ONCE_UNKNOWN || once->resource == NULL);
	REQUIRE(r != RESC_ONCE_DONE || once->size <= RESC_ONCE_ANSWER_MAX);
}

static void end_key(struct input *in)
{
	static const char answer[RESC_ONCE_ANSWER_MAX] = "answer";
	uint8_t which = take_byte(in);
	resc_once *once = &now.keys[which & (KEYS - 1)];
	bool held = once->resource != NULL;
	resc_once copy = *once;
	int r = (which & 4) != 0 ? resc_once_abandon(once) : resc_once_done(once, answer, (size_t)(which >> 3) * 16);

	REQUIRE(r == 0 || r == -EINVAL || r == -ESTALE);
	REQUIRE(held || r == -EINVAL);
	/* A copy of one that is over: whatever became of its slot. */
	if ((which & 0x80) != 0)
		resc_once_done(&copy, answer, 1);
}

/* Any byte of what is the library's. */
static void end_damaged_key(struct input *in)
{
	resc_once damaged = now.keys[take_byte(in) & (KEYS - 1)];
	size_t offset = take_byte(in) % (offsetof(resc_once, answer) - 8);
	uint8_t difference = take_byte(in);

	/* How long the answer is, is the caller's to read. */
	if (offset >= offsetof(resc_once, size))
		offset = offsetof(resc_once, seal);
	((uint8_t *)&damaged)[offset] ^= difference == 0 ? 1 : difference;
	REQUIRE(resc_once_done(&damaged, "", 0) == -EINVAL);
}

static enum resc_outcome attempt(void *arg, int64_t timeout_ms, unsigned n)
{
	const uint8_t *outcomes = arg;

	REQUIRE(timeout_ms == -1 || timeout_ms >= 1);
	REQUIRE(n <= 101);
	return (enum resc_outcome)(*outcomes >> n % 4 & 3);
}

static void run(struct input *in)
{
	uint8_t which = take_byte(in);
	uint8_t outcomes = take_byte(in);
	resc_options options = RESC_OPTIONS_INIT;
	int last;

	if ((which & 0x80) != 0)
		options.deadline_ns = some_deadline(in);
	int r = resc_run(some_resource(which), attempt, &outcomes, &options, &last);
	REQUIRE(r >= -4095 && r <= RESC_E_RETRY_IN_FLIGHT && last >= -1 && last <= RESC_CANCELLED);
}

static void ask(struct input *in)
{
	static const char *const kinds[] = {"stale", "cache", "nonsense", ""};
	resc_resource *resource = some_resource(take_byte(in));
	struct resc_state state;
	struct resc_counters counters;
	struct resc_timeouts timeouts;
	struct resc_status status;

	if (resc_state(resource, &state) == 0) {
		REQUIRE(state.breaker <= RESC_HALF_OPEN && state.due_ms >= -1 && state.probes_out <= PROBES_LIMIT);
		REQUIRE(state.retry_tokens >= -1 && isfinite(state.retry_tokens));
	}
	if (resc_counters(resource, &counters) == 0) {
		uint64_t refused = 0;
#define X(NAME, name, text) refused += counters.refused_##name;
		RESC_REFUSALS(X)
#undef X
		REQUIRE(counters.enters == counters.admitted + refused);
	}
	resc_timeouts(resource, &timeouts);
	resc_fallback(resource, kinds[take_byte(in) & 3]);
	REQUIRE(resc_status(now.host, &status) == 0 && memchr(status.reason, '\0', sizeof status.reason) != NULL);
}

/* The handles are stable, and other names are found or not. */
static void look_up(struct input *in)
{
	struct resc_error err;
	unsigned which = take_byte(in) % (sizeof names / sizeof names[0]);
	resc_resource *found = resc_lookup(now.host, names[which], &err);

	if (which < RESOURCES)
		REQUIRE(found == now.resources[which]);
	REQUIRE(found != NULL || err.text[0] != '\0');
	if (found != NULL)
		resc_fallback(found, "");
}

/* A second view of the same process. */
static void newcomer(struct input *in)
{
	resc_ticket ticket;
	resc *host = resc_open(base.instance, NULL);

	REQUIRE(host != NULL);
	resc_resource *resource = resc_lookup(host, names[take_byte(in) % (sizeof names / sizeof names[0])], NULL);
	if (resource != NULL && resc_enter(resource, NULL, &ticket) == 0)
		REQUIRE(resc_leave(&ticket, RESC_OK) <= RESC_STALE);
	resc_close(host);
	deadline_use_clock(&base.rescd.live->clock_ns);
}

static void advance(struct input *in)
{
	static const uint64_t steps_ms[] = {1, 10, 100, 1000, 5000, 10000, 60000, 86400000};

	atomic_fetch_add_explicit(&some_map(take_byte(in))->live->clock_ns, steps_ms[take_byte(in) & 7] * 1000000, memory_order_relaxed);
}

/* What a call does once a second. */
static void look(struct input *in)
{
	(void)in;
	host_look(now.host);
}

/* ---- the operator and rescd ---- */

static void force(struct input *in)
{
	uint8_t which = take_byte(in);
	const struct map *map = some_map(which);
	uint32_t index = which & 3;

	switch (which >> 2 & 3) {
	case 0:
		override_set(map, index, (enum override_mode)take_byte(in), take_number(in, 2), "because");
		break;
	case 1:
		override_release(map, index, "enough");
		break;
	case 2:
		override_reset(map, index, "");
		break;
	default:
		override_expire(map, index, 0, clock_coarse_ms(map));
		break;
	}
}

static void check_resource(const struct inspect_resource *r)
{
	REQUIRE(r->breaker >= TAG_CLOSED && r->breaker <= TAG_HALF_OPEN);
	REQUIRE(r->window_failures <= r->window_calls && r->window_slow <= r->window_calls);
	REQUIRE(r->probes_out <= r->policy.probes && (r->breaker == TAG_HALF_OPEN || r->probes_out == 0));
	REQUIRE(isfinite(r->tokens) && r->tokens >= 0 && r->tokens <= r->capacity);
	REQUIRE(r->retries <= r->in_flight && r->effective <= r->limit && r->throttle_ppm <= 1000000);
	REQUIRE(r->throttle_accepts <= r->throttle_requests);
	REQUIRE(r->rate_tokens >= 0 && r->rate_tokens <= (double)r->policy.rate_burst);
	REQUIRE(memchr(r->name, '\0', sizeof r->name) != NULL && memchr(r->override.text, '\0', sizeof r->override.text) != NULL);
	for (unsigned q = 0; q <= 4; q++)
		latency_quantile_us(&r->latency, q / 4.0);
}

static void inspect(struct input *in)
{
	const struct map *map = some_map(take_byte(in));
	struct inspect_resource resource;
	struct inspect_worker worker;
	struct inspect_daemon daemon;
	struct once_usage usage;
	struct event events[16];
	uint32_t lives[4], permits[4];

	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if (inspect_resource(map, i, &resource) == 0)
			check_resource(&resource);
		REQUIRE(inspect_holders(map, i, lives, permits, 4) <= 4);
	}
	for (uint32_t i = 0; i < map->dims.workers; i++)
		inspect_worker(map, i, &worker);
	inspect_once(map, &usage);
	REQUIRE(usage.working + usage.done + usage.unknown <= usage.size && usage.expired <= usage.done + usage.unknown);
	inspect_daemon(map, &daemon);
	REQUIRE(memchr(daemon.control, '\0', sizeof daemon.control) != NULL);
	REQUIRE(memchr(daemon.reload_text, '\0', sizeof daemon.reload_text) != NULL);
	uint64_t after = take_byte(in);
	size_t count = event_read(map, after, events, 1 + after % 16);
	for (size_t i = 0; i < count; i++)
		REQUIRE(events[i].number > after && events[i].kind < EVENT_KINDS && events[i].reason < REASONS);
}

static void show_metrics(struct input *in)
{
	uint8_t which = take_byte(in);

	REQUIRE(metrics_write(base.sink, some_map(which), (which & 1) != 0) == 0);
}

static void reap(struct input *in)
{
	uint8_t which = take_byte(in);
	const struct map *map = some_map(which);

	if ((which & 1) != 0)
		worker_reap(map, which >> 1 & 7, take_byte(in), (which & 0x10) != 0, 0);
	else
		worker_sweep(map, 0);
}

/* A turn of rescd. */
static void tick(struct input *in)
{
	uint8_t which = take_byte(in);

	switch (which & 3) {
	case 1:
		share_recount(some_map(which));
		break;
	case 2:
		now.made.replaced_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
		made_tick(&now.made);
		break;
	default:
		states_tick(some_map(which));
		break;
	}
}

/* Keys that are away, or would be. */
static void settle(struct input *in)
{
	uint8_t which = take_byte(in);
	bool replaced = now.successor.base != NULL;

	if ((which & 1) != 0 && replaced)
		once_move(&base.rescd, &now.successor, 1 + (uint32_t)(which >> 1 & 3));
	else
		once_settle(replaced && (which & 2) != 0 ? &base.rescd : NULL, some_map(which));
}

/* Some fields are whatever rescd would write, were it mad: readers clamp them. */
static void some_policy(struct input *in, uint8_t which, struct policy *policy)
{
	static void (*const guards[])(struct policy * policy) = {every_guard, every_guard_in_shadow, every_wait, policy_private};
	uint64_t words[sizeof *policy / 8];

	guards[which >> 2 & 3](policy);
	memcpy(words, policy, sizeof words);
	for (unsigned n = take_byte(in) & 3; n > 0; n--) {
		uint8_t field = take_byte(in);
		words[field % (sizeof words / sizeof words[0])] = take_number(in, (field & 0x80) != 0 ? 8 : 2);
	}
	memcpy(policy, words, sizeof words);
}

static void configure(struct input *in)
{
	uint8_t which = take_byte(in);
	const struct map *map = some_map(which);
	struct policy policy;

	some_policy(in, which, &policy);
	switch (which >> 4 & 3) {
	case 0:
		record_publish(map, names[which & 3], &policy);
		break;
	case 1:
		record_retire(map, which & 3);
		break;
	default:
		policy_write(map, which & 3, &policy);
		policy_clamp(&policy, &map->dims);
		record_apply(map, which & 3, &policy);
		break;
	}
}

/* A larger segment, built and announced as rescd does it. Once in an input. */
static void supersede(struct input *in)
{
	struct segment_dims dims = small;
	struct resc_error err;
	struct policy policy;
	uint64_t sequence;
	struct map made;

	dims.permits <<= take_byte(in) & 1;
	/* Nobody knows it before it is complete, those neither who lie in ambush. */
	if (now.successor.base != NULL || map_create(&made, base.instance, &dims, &base.rescd, 0600, (gid_t)-1, &err) != 0)
		return;
	now.successor = made;
	for (uint32_t i = 0; i < RESOURCES; i++)
		if (policy_read(&base.rescd, i, &policy, &sequence) == 0)
			record_publish_moved(&now.successor, i, names[i], &policy, false);
	atomic_store(&sleepless_clocks[1], &now.successor.live->clock_ns);
	map_path(now.successor_path, base.instance, now.successor.generation);
	REQUIRE(map_publish(&now.successor, now.successor_path) == 0);
	atomic_store_explicit(&base.rescd.daemon->superseded, now.successor.generation, memory_order_release);
}

static void move(struct input *in)
{
	uint32_t i = take_byte(in) % RESOURCES;
	const struct map *from = &base.rescd, *to = &now.successor;

	if (to->base == NULL)
		return;
	move_words(from, map_state(from, i), to, map_state(to, i));
	move_permits(from, map_state(from, i), to, map_state(to, i));
	move_carry(from, map_state(from, i), to, map_state(to, i));
}

/* ---- somebody attaches to a damaged copy ---- */

static uint64_t checksum_of(const uint8_t *page)
{
	uint8_t copy[SEGMENT_PAGE];

	memcpy(copy, page, sizeof copy);
	memset(copy + offsetof(struct segment_header, checksum), 0, 8);
	memset(copy + offsetof(struct segment_header, ready), 0, 8);
	return fnv1a(copy, sizeof copy);
}

static uint64_t page_up(uint64_t n)
{
	return (n + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
}

/* Offsets and size that follow from the dimensions and sizes, whatever they are. */
static void lay_out(uint8_t *page)
{
	struct segment_header h;

	memcpy(&h, page, sizeof h);
	uint64_t words = (uint64_t)h.dims.permits + h.dims.waiting + h.dims.calls;
	uint64_t state = h.sizes.state + words * 8 + (h.dims.shards + UINT64_C(1)) * h.sizes.shard;
	h.live_offset = page_up(h.policies_offset + h.dims.resources * (sizeof(struct policy_record) + UINT64_C(2) * h.sizes.policy));
	h.workers_offset = h.live_offset + SEGMENT_PAGE;
	h.states_offset = page_up(h.workers_offset + (uint64_t)h.dims.workers * h.sizes.worker);
	h.events_offset = page_up(h.states_offset + (uint64_t)h.dims.resources * state);
	h.once_offset = page_up(h.events_offset + (uint64_t)h.dims.events * h.sizes.event);
	h.total_size = page_up(h.once_offset + h.dims.once * (UINT64_C(8) + h.sizes.once_entry));
	memcpy(page, &h, sizeof h);
}

enum forgery { LEFT_ALONE, CUT, SIZE_FITS, LAID_OUT };

/* A few words of the header. A forger makes the rest fit, and the checksum right, so that the checks behind it are met. */
static void damage_header(struct input *in, uint8_t *page, unsigned words, enum forgery forgery, bool honest)
{
	while (words-- > 0) {
		size_t offset = (size_t)take_byte(in) * 8 % (sizeof(struct segment_header) + 64);
		uint64_t value = take_number(in, 8);
		memcpy(page + offset, &value, 8);
	}
	if (forgery == LAID_OUT)
		lay_out(page);
	if (honest || forgery == LAID_OUT) {
		uint64_t sum = checksum_of(page);
		memcpy(page + offsetof(struct segment_header, checksum), &sum, 8);
	}
}

static void write_copy(const uint8_t *page, size_t size)
{
	int fd = open(base.copy_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	REQUIRE(fd >= 0 && pwrite(fd, base.rescd.base, base.rescd.size, 0) == (ssize_t)base.rescd.size);
	REQUIRE(pwrite(fd, page, SEGMENT_PAGE, 0) == SEGMENT_PAGE && ftruncate(fd, (off_t)size) == 0);
	close(fd);
}

/* The name under which the copy lies is the one that its header has, so that the rest of it is looked at too. */
static void name_copy(uint8_t *page)
{
	const char *instance = base.copy_path + strlen(SEGMENT_DIR SEGMENT_PREFIX);
	uint8_t *field = page + offsetof(struct segment_header, instance);

	memset(field, 0, SEGMENT_NAME_SIZE);
	memcpy(field, instance, strlen(instance));
	uint64_t sum = checksum_of(page);
	memcpy(page + offsetof(struct segment_header, checksum), &sum, 8);
}

static void attach(struct input *in)
{
	static const enum map_access accesses[] = {MAP_WORKER, MAP_OWNER, MAP_READER};
	uint8_t which = take_byte(in);
	uint8_t page[SEGMENT_PAGE];
	struct segment_header header;
	struct resc_error err = {0, ""};
	struct inspect_resource resource;
	struct map map;

	memcpy(page, base.rescd.base, sizeof page);
	name_copy(page);
	enum forgery forgery = which >> 4 & 3;
	damage_header(in, page, which & 7, forgery, (which & 8) != 0);
	memcpy(&header, page, sizeof header);
	size_t size = base.rescd.size;
	if (forgery == CUT)
		size = take_number(in, 3) % (2 * size);
	if (forgery >= SIZE_FITS && header.total_size < (UINT64_C(1) << 26))
		size = header.total_size;
	write_copy(page, size);
	int r = map_open(&map, base.copy_path, accesses[(which >> 6) % 3], &err);
	unlink(base.copy_path);
	if (r != 0) {
		REQUIRE(r < 0 && err.text[0] != '\0' && map.base == NULL);
		return;
	}
	/* What lies behind its end is nobody's. */
	REQUIRE(map.size <= size && map.dims.resources - 1 < RESOURCES_LIMIT && map.dims.permits <= PERMITS_LIMIT);
	REQUIRE(map.dims.permits >= 64 && map.dims.shards >= 4 && map.dims.shards <= SHARDS_LIMIT && map.dims.events >= 16);
	REQUIRE(map.dims.calls >= 64 && map.dims.calls <= CALLS_LIMIT && map.dims.waiting >= 16 && map.dims.waiting <= WAITING_LIMIT);
	REQUIRE(map.dims.once >= ONCE_SET && map.dims.once <= ONCE_LIMIT);
	for (uint32_t i = 0; i < map.dims.resources; i++)
		if (inspect_resource(&map, i, &resource) == 0)
			check_resource(&resource);
	map_close(&map);
}

/* ---- somebody in the middle of a call ---- */

static void undo(struct input *in)
{
	(void)in;
	if (now.successor.base == NULL)
		undo_damage();
}

/* What others do meanwhile. Nothing in here is done by the worker's own process. */
static void (*const ambushers[])(struct input *in) = {
        store_word, store_value, flip_byte, copy_word, fill_region, advance,   force, inspect,
        reap,       tick,        settle,    configure, move,        supersede, undo,
};

static bool is_rescd(void (*step)(struct input *in))
{
	return step == tick || step == settle || step == configure || step == supersede;
}

/* A step of somebody; one of rescd waits in vain where rescd is in the middle of another. */
static void do_step(void (*step)(struct input *in), struct input *in)
{
	bool rescd = is_rescd(step);

	if (rescd && now.rescd_busy)
		return;
	now.rescd_busy |= rescd;
	step(in);
	if (rescd)
		now.rescd_busy = false;
	sleepless_tame();
}

static void meet(void)
{
	for (unsigned i = 0; i < AMBUSHES && !now.ambushed; i++) {
		struct ambush *a = &now.ambushes[i];
		if (a->left == 0 || --a->left > 0)
			continue;
		now.ambushed = true;
		while (a->in.size > 0)
			do_step(ambushers[take_byte(&a->in) % (sizeof ambushers / sizeof ambushers[0])], &a->in);
		now.ambushed = false;
	}
}

/* How many failpoints from here, and how long its program is, which follows. */
static void lay_ambush(struct input *in)
{
	uint8_t which = take_byte(in);
	size_t size = take_byte(in) % 64;
	struct ambush *a = &now.ambushes[which % AMBUSHES];

	if (size > in->size)
		size = in->size;
	*a = (struct ambush){1 + which / AMBUSHES, {in->data, size}};
	in->data += size;
	in->size -= size;
}

/* ---- running ---- */

/* New ones at the end, so that kept inputs go on meaning what their names say. */
static void (*const steps[])(struct input *in) = {
        store_word,  store_value, flip_byte, copy_word,  fill_region, enter,         enter_as,  leave,     leave,        retry,
        run,         ask,         look_up,   advance,    look,        force,         force,     inspect,   show_metrics, reap,
        tick,        configure,   supersede, move,       attach,      leave_damaged, begin_key, begin_key, end_key,      end_damaged_key,
        leave_after, settle,      newcomer,  lay_ambush, undo,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!base.ready)
		start();
	begin();
	for (unsigned n = 0; n < STEPS_MAX && in.size > 0; n++) {
		sleepless_step();
		do_step(steps[take_byte(&in) % (sizeof steps / sizeof steps[0])], &in);
	}
	memset(now.ambushes, 0, sizeof now.ambushes);
	end();
	return 0;
}
