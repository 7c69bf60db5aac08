/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in a segment: a worker that is attached to it neither crashes nor hangs, nor does rescd; and whoever attaches is told why not.
 *
 * An input is a program for three parties that share a real segment, a file with a name: *somebody* who stores words in any region of it,
 * the header's copies included; a *worker* with tickets and handles, who was there before; and an *operator* or *rescd*, who force, reset,
 * reap, reload, supersede and read. Each step is a byte that says what, and the bytes that it needs. So damage comes between any two calls,
 * and what calls make of it is damaged again. At the end the worker closes its view, whatever is left of the segment.
 *
 * Each input starts with the same segment, byte by byte, and a fresh worker in it. The clock is a word of the segment like any other, and
 * who sleeps moves it instead, so an input means the same whenever it is run. libFuzzer's -timeout, or alarm(2), watches for loops.
 *
 * What is checked besides: answers are of the documented ones, a refusal leaves a zeroed ticket, and what inspection says is possible.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>

#include "clock.h"
#include "event.h"
#include "host.h"
#include "inspect.h"
#include "map.h"
#include "metrics.h"
#include "move.h"
#include "override.h"
#include "permit.h"
#include "policy.h"
#include "standalone.h"
#include "states.h"
#include "words.h"
#include "worker.h"

#define RESOURCES  3u
#define TICKETS    8u
#define STEPS_MAX  200u
#define SLEEPS_MAX 10000u

static const struct segment_dims small = {
        .resources = 4, .workers = 4, .permits = 64, .shards = 4, .events = 16, .calls = 64, .waiting = 16, .once = 16};
static const char *const names[] = {"payments", "ledger", "search", "unknown"};

/* Of the process. */
static struct {
	bool ready;
	char instance[32];
	char path[MAP_PATH_SIZE];
	char copy_path[MAP_PATH_SIZE + 8];
	struct map rescd;
	uint8_t *pristine;
	FILE *sink;
} base;

/* Of one input. */
static struct {
	resc *host;
	resc_resource *resources[RESOURCES];
	resc_ticket tickets[TICKETS];
	resc_retry_plan plan;
	struct map successor; /* base NULL: there is none */
	char successor_path[MAP_PATH_SIZE];
	struct states_watch watch;
	unsigned sleeps;
	unsigned sleeps_in_step;
} now;

/*
 * Whoever sleeps until a time of the clock sleeps again until it has come. So time passes on the clock of the worker's segment, and
 * faster with each sleep of a step: a day, which is as long as anything can wait, is over after some twenty.
 */
static void sleep_for(const struct timespec *wanted)
{
	uint64_t ns = (uint64_t)wanted->tv_sec * 1000000000u + (uint64_t)wanted->tv_nsec;

	REQUIRE(wanted->tv_sec >= 0 && wanted->tv_nsec >= 0 && wanted->tv_nsec < 1000000000);
	REQUIRE(++now.sleeps < SLEEPS_MAX);
	if (now.host != NULL && now.host->current != NULL)
		atomic_fetch_add_explicit(&now.host->current->map.live->clock_ns, ns << (now.sleeps_in_step++ & 31), memory_order_relaxed);
}

/* The linker puts these in the place of nanosleep and syscall (--wrap). */
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	sleep_for(wanted);
	return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number != SYS_futex || b != FUTEX_WAIT)
		return __real_syscall(number, a, b, c, d, e, f);
	/* Nobody else is there to wake it. */
	sleep_for((const struct timespec *)d);
	errno = ETIMEDOUT;
	return -1;
}

/* ---- the segment and the worker ---- */

static void clean_up(void)
{
	unlink(base.path);
	unlink(base.copy_path);
}

static void all_guards(struct policy *policy)
{
	policy_defaults(policy);
	policy->flags |= POLICY_CONFIGURED | POLICY_BREAKER | POLICY_BUDGET | POLICY_RETRY | POLICY_BULKHEAD;
	policy->consecutive = 3;
	policy->min_calls = 4;
	policy->slow_rate_ppm = 800000;
	policy->slow_call_ns = 1000000;
	policy->probes = 2;
	policy->successes = 2;
	policy->jitter_ppm = 100000;
	policy->budget_per_second = TOKEN;
	policy->limit = 3;
	policy->timeout_attempt_ms = 500;
	policy->timeout_total_ms = 5000;
}

/* A front door: calls wait for a share of the workers and for the rate limit, and there is more than one priority. */
static void waiting_guards(struct policy *policy)
{
	policy_private(policy);
	policy->flags |= POLICY_BULKHEAD | POLICY_RATE | POLICY_THROTTLE | POLICY_RETRY | POLICY_RETRY_CAP;
	policy->limit_share_ppm = 2000000;
	policy->max_wait_ms = 300;
	policy->max_waiting = 4;
	policy->low_ppm = 500000;
	policy->rate_per_second = 10 * TOKEN;
	policy->rate_burst = 4;
	policy->rate_max_wait_ms = 200;
	policy->retries_floor = 1;
}

static void start(void)
{
	struct resc_error err;
	struct policy policy;

	snprintf(base.instance, sizeof base.instance, "fuzz-%d", (int)getpid());
	map_path(base.path, base.instance, 0);
	snprintf(base.copy_path, sizeof base.copy_path, "%s.copy", base.path);
	atexit(clean_up);
	if (map_create(&base.rescd, base.instance, &small, NULL, 0600, (gid_t)-1, &err) != 0) {
		fprintf(stderr, "%s\n", err.text);
		abort();
	}
	all_guards(&policy);
	for (uint32_t i = 0; i < RESOURCES; i++) {
		REQUIRE(policy_publish(&base.rescd, names[i], &policy) == (int)i);
		policy.consecutive = 0;
		if (i == 1)
			waiting_guards(&policy);
	}
	REQUIRE(map_publish(&base.rescd, base.path) == 0);
	base.pristine = malloc(base.rescd.size);
	base.sink = fopen("/dev/null", "w");
	REQUIRE(base.pristine != NULL && base.sink != NULL);
	memcpy(base.pristine, base.rescd.base, base.rescd.size);
	base.ready = true;
}

static void begin(void)
{
	struct resc_error err;

	memset(&now, 0, sizeof now);
	memcpy(base.rescd.base, base.pristine, base.rescd.size);
	resc_seed(1);
	now.plan = (resc_retry_plan)RESC_RETRY_INIT;
	now.host = resc_open(base.instance, &err);
	REQUIRE(now.host != NULL);
	for (unsigned i = 0; i < RESOURCES; i++) {
		now.resources[i] = resc_lookup(now.host, names[i], &err);
		REQUIRE(now.resources[i] != NULL);
	}
}

static void end(void)
{
	resc_close(now.host);
	states_watch_free(&now.watch);
	if (now.successor.base != NULL) {
		unlink(now.successor_path);
		map_close(&now.successor);
	}
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
	uint32_t i = (which >> 4 & 7) % RESOURCES;
	struct state *state = map_state(map, i);
	const struct {
		void *place;
		size_t size;
	} regions[] = {
	        {map->daemon, offsetof(struct segment_daemon, control)},
	        {map->daemon, sizeof *map->daemon},
	        {&map->policies[i], 16 + SEGMENT_NAME_SIZE},
	        {map->policies[i].copies, sizeof map->policies[i].copies},
	        {map->live, sizeof *map->live},
	        {map->workers, map->dims.workers * sizeof *map->workers},
	        {state, 13 * 8},
	        {state, offsetof(struct state, probes)},
	        {state->probes, sizeof state->probes},
	        {&state->carried, sizeof state->carried},
	        {map_permits(map, state), map->dims.permits * 8},
	        {map_shard(map, state, 0), map->dims.shards * sizeof(struct shard)},
	        {map->events, map->dims.events * sizeof *map->events},
	        {map->policies, map->dims.resources * sizeof *map->policies},
	        {map->states, map->dims.resources * map->state_size},
	        {state, 4 * 8},
	};
	size_t region = (which & 15) % (sizeof regions / sizeof regions[0]);
	uint8_t *place = (uint8_t *)regions[region].place;

	return place + offset * 8 % (regions[region].size / 8 * 8);
}

/* Values that mean something, of which random bytes would seldom think. */
static uint64_t some_value(struct input *in)
{
	const struct resc_ticket *t = &now.tickets[0];
	uint8_t which = take_byte(in);
	uint64_t rest = take_number(in, 2);
	uint64_t generation = breaker_generation(atomic_load_explicit(&map_state(&base.rescd, 0)->breaker, memory_order_relaxed));

	switch (which % 16) {
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
	default:
		return (rest & 1) != 0 ? SHARD_COMMON : OVERRIDE_WRITING | rest;
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
	REQUIRE(cell < 2 * small.permits || cell == 0xffffff);
	REQUIRE(ticket->permit_cell >> 24 < PROBES_LIMIT || cell == 0xffffff);
}

static void enter_with(uint8_t which, const resc_options *options)
{
	resc_ticket *ticket = &now.tickets[which >> 4 & (TICKETS - 1)];
	int r = resc_enter(some_resource(which & 15), options, ticket);

	REQUIRE(r >= -4095 && r <= RESC_E_RETRIES);
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
	int r = resc_retry(some_resource(which & 3), &now.plan, (enum resc_outcome)(which >> 2 & 7), &wait_ns);
	REQUIRE(r >= -4095 && (r <= 0 || (r >= RESC_E_ATTEMPTS && r <= RESC_E_RETRY_IN_FLIGHT)));
	REQUIRE(r == -EINVAL || wait_ns >= 0);
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
	struct event events[16];
	uint32_t lives[4], permits[4];

	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if (inspect_resource(map, i, &resource) == 0)
			check_resource(&resource);
		REQUIRE(inspect_holders(map, i, lives, permits, 4) <= 4);
	}
	for (uint32_t i = 0; i < map->dims.workers; i++)
		inspect_worker(map, i, &worker);
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

static void tick(struct input *in)
{
	states_tick(some_map(take_byte(in)), &now.watch);
}

static void configure(struct input *in)
{
	uint8_t which = take_byte(in);
	const struct map *map = some_map(which);
	struct policy policy;

	policy_private(&policy);
	if ((which & 4) != 0)
		all_guards(&policy);
	policy.limit = 1 + (uint64_t)take_byte(in);
	policy.budget_capacity = TOKEN * (1 + (uint64_t)take_byte(in));
	policy_clamp(&policy, &map->dims);
	switch (which >> 4 & 3) {
	case 0:
		policy_publish(map, names[which & 3], &policy);
		break;
	case 1:
		policy_retire(map, which & 3);
		break;
	default:
		policy_write(map, which & 3, &policy);
		policy_apply(map, which & 3, &policy);
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

	dims.permits <<= take_byte(in) & 1;
	if (now.successor.base != NULL || map_create(&now.successor, base.instance, &dims, &base.rescd, 0600, (gid_t)-1, &err) != 0)
		return;
	for (uint32_t i = 0; i < RESOURCES; i++)
		if (policy_read(&base.rescd, i, &policy, &sequence) == 0)
			policy_publish_moved(&now.successor, i, names[i], &policy, false);
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
	struct segment_header header;
	uint8_t copy[SEGMENT_PAGE] = {0};

	memcpy(&header, page, sizeof header);
	header.checksum = 0;
	memcpy(copy, &header, offsetof(struct segment_header, ready));
	return fnv1a(copy, sizeof copy);
}

static uint64_t page_up(uint64_t n)
{
	return (n + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
}

/* Offsets and size that follow from the dimensions, whatever they are. */
static void lay_out(uint8_t *page)
{
	struct segment_header h;

	memcpy(&h, page, sizeof h);
	uint64_t state = sizeof(struct state) + (uint64_t)h.dims.permits * 8 + (uint64_t)h.dims.shards * sizeof(struct shard);
	h.live_offset = page_up(h.policies_offset + (uint64_t)h.dims.resources * sizeof(struct policy_record));
	h.workers_offset = h.live_offset + SEGMENT_PAGE;
	h.states_offset = page_up(h.workers_offset + (uint64_t)h.dims.workers * sizeof(struct worker_slot));
	h.events_offset = page_up(h.states_offset + (uint64_t)h.dims.resources * state);
	h.total_size = page_up(h.events_offset + (uint64_t)h.dims.events * sizeof(struct event_record));
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
	REQUIRE(map.size == size && map.dims.resources - 1 < RESOURCES_LIMIT && map.dims.permits <= PERMITS_LIMIT);
	REQUIRE(map.dims.permits >= 64 && map.dims.shards >= 4 && map.dims.shards <= SHARDS_LIMIT && map.dims.events >= 16);
	for (uint32_t i = 0; i < map.dims.resources; i++)
		if (inspect_resource(&map, i, &resource) == 0)
			check_resource(&resource);
	map_close(&map);
}

/* ---- running ---- */

static void (*const steps[])(struct input *in) = {
        store_word,   store_value, flip_byte, copy_word, fill_region, enter, enter_as, leave,         leave,
        retry,        run,         ask,       look_up,   advance,     look,  force,    force,         inspect,
        show_metrics, reap,        tick,      configure, supersede,   move,  attach,   leave_damaged,
};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct input in = {data, size};

	if (!base.ready)
		start();
	begin();
	for (unsigned n = 0; n < STEPS_MAX && in.size > 0; n++) {
		now.sleeps_in_step = 0;
		steps[take_byte(&in) % (sizeof steps / sizeof steps[0])](&in);
	}
	end();
	return 0;
}
