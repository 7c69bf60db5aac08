/* SPDX-License-Identifier: MIT */
/*
 * Reading a segment for people. One reading serves resctl, the metrics page and the library's own questions, so they cannot disagree.
 *
 * Nothing is locked and nothing is moved, and others write all the time. What makes a reading coherent is that everything about a breaker
 * carries its generation: the breaker word is loaded once, and a tally, a bucket, a probe, a reason of another generation does not count.
 * Where two words must fit together and have no generation in common (permits and their limit), they are read again until the second
 * look agrees with the first, a few times.
 *
 * Calls are counted as admitted before they are counted as ended, so the ended ones are read first, in all shards, and the admitted ones
 * afterwards: a reading never shows more results than calls. enters is not counted at all; it is the sum.
 *
 * A damaged segment gives wrong values, never an impossible one, a crash or a loop: sizes come from struct map, every loop is bounded by
 * them, and every value is put inside its range.
 */
#include "inspect.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stddef.h>
#include <string.h>

#include "bounds.h"
#include "budget.h"
#include "chars.h"
#include "clock.h"
#include "note.h"
#include "process.h"
#include "rate.h"
#include "retries.h"
#include "share.h"
#include "throttle.h"
#include "transition.h"
#include "waiting.h"
#include "window.h"
#include "worker.h"

#define TRIES        4
#define POLICY_TRIES 64
/* The most that one counter shows: sums of all of them stay below 2^63. */
#define COUNTER_MOST ((UINT64_C(1) << 56) - 1)

static uint64_t add_up(uint64_t sum, uint64_t n)
{
	return n > COUNTER_MOST - sum ? COUNTER_MOST : sum + n;
}

static uint64_t load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

/* ---- blocks ---- */

static const struct {
	const char *name;
	uint64_t on;
	uint64_t shadow;
} parts[PARTS] = {
        [PART_BREAKER] = {"breaker", POLICY_BREAKER, POLICY_SHADOW_BREAKER},
        [PART_RETRY] = {"retry", POLICY_RETRY, 0},
        [PART_BUDGET] = {"budget", POLICY_BUDGET | POLICY_RETRY_CAP, POLICY_SHADOW_BUDGET},
        [PART_BULKHEAD] = {"bulkhead", POLICY_BULKHEAD, POLICY_SHADOW_BULKHEAD},
        [PART_RATE] = {"rate", POLICY_RATE, POLICY_SHADOW_RATE},
        [PART_THROTTLE] = {"throttle", POLICY_THROTTLE, POLICY_SHADOW_THROTTLE},
        [PART_TIMEOUT] = {"timeout", POLICY_TIMEOUT, POLICY_SHADOW_TIMEOUT},
        [PART_ONCE] = {"once", POLICY_ONCE, POLICY_SHADOW_ONCE},
};

const char *part_name(enum policy_part part)
{
	return parts[part].name;
}

enum part_mode part_mode_of(const struct policy *policy, enum policy_part part)
{
	if ((policy->flags & parts[part].on) == 0)
		return PART_OFF;
	return (policy->flags & parts[part].shadow) != 0 ? PART_SHADOW : PART_ENFORCE;
}

const char *part_mode_name(enum part_mode mode)
{
	static const char *const names[] = {"off", "shadow", "enforce"};

	return names[mode];
}

/* ---- counters ---- */

static void add_counters(const struct shard *shard, uint64_t sums[COUNTERS])
{
	/* acquire (in load): the admitted ones, read later, are not older than these. */
	for (unsigned i = 0; i < COUNTERS; i++) {
		if (i != COUNTER_admitted)
			sums[i] = add_up(sums[i], load(&shard->counters[i]));
	}
}

static void sum_counters(const struct map *map, const struct state *state, uint64_t sums[COUNTERS])
{
	for (unsigned i = 0; i < COUNTERS; i++)
		sums[i] = 0;
	for (uint32_t i = 0; i < map->dims.shards; i++)
		add_counters(map_shard(map, state, i), sums);
	add_counters(map_carried(map, state), sums);
	for (unsigned tag = TAG_CLOSED; tag <= TAG_HALF_OPEN; tag++)
		sums[transition_counter(tag)] = add_up(sums[transition_counter(tag)], transition_count(state, tag));

	for (uint32_t i = 0; i < map->dims.shards; i++)
		sums[COUNTER_admitted] = add_up(sums[COUNTER_admitted], load(&map_shard(map, state, i)->counters[COUNTER_admitted]));
	sums[COUNTER_admitted] = add_up(sums[COUNTER_admitted], load(&map_carried(map, state)->counters[COUNTER_admitted]));
}

void inspect_counters(const struct map *map, const struct state *state, struct resc_counters *out)
{
	uint64_t sums[COUNTERS];

	sum_counters(map, state, sums);
#define X(name, text) out->name = sums[COUNTER_##name];
	RESC_COUNTERS(X)
#undef X
#define X(NAME, name, text) out->refused_##name = sums[COUNTER_refused_##name];
	RESC_REFUSALS(X)
#undef X
#define X(name, text) out->fallback_##name = sums[COUNTER_fallback_##name];
	RESC_FALLBACKS(X)
#undef X
	out->enters = out->admitted;
#define X(NAME, name, text) out->enters += out->refused_##name;
	RESC_REFUSALS(X)
#undef X
}

#define PLACE(counter)       {#counter, offsetof(struct resc_counters, counter)},
#define X(name, text)        PLACE(name)
#define XR(NAME, name, text) PLACE(refused_##name)
#define XF(name, text)       PLACE(fallback_##name)
static const struct {
	const char *name;
	size_t offset;
} counter_places[] = {PLACE(enters) RESC_COUNTERS(X) RESC_REFUSALS(XR) RESC_FALLBACKS(XF)};
#undef XF
#undef XR
#undef X
#undef PLACE
_Static_assert(sizeof(counter_places) / sizeof(counter_places[0]) == COUNTERS_SHOWN, "every counter has its place");

const char *counter_name(unsigned i)
{
	return counter_places[i].name;
}

uint64_t counter_value(const struct resc_counters *counters, unsigned i)
{
	uint64_t value;

	memcpy(&value, (const char *)counters + counter_places[i].offset, sizeof(value));
	return value;
}

/* ---- latency ---- */

static void add_latency(const struct shard *shard, struct inspect_latency *out)
{
	out->sum_us = add_up(out->sum_us, load(&shard->latency_sum_us));
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		out->buckets[i] = add_up(out->buckets[i], load(&shard->latency[i]));
}

static void read_latency(const struct map *map, const struct state *state, struct inspect_latency *out)
{
	for (uint32_t i = 0; i < map->dims.shards; i++)
		add_latency(map_shard(map, state, i), out);
	add_latency(map_carried(map, state), out);
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		out->buckets[i] = smaller(out->buckets[i], COUNTER_MOST - out->count);
		out->count += out->buckets[i];
	}
}

uint64_t latency_edge_us(unsigned bucket)
{
	if (bucket >= LATENCY_BUCKETS)
		bucket = LATENCY_BUCKETS - 1;
	if (bucket < 8)
		return bucket + 1;
	return (uint64_t)(bucket % 8 + 9) << (bucket / 8 - 1);
}

uint64_t latency_quantile_us(const struct inspect_latency *latency, double q)
{
	uint64_t seen = 0;

	if (latency->count == 0)
		return 0;
	double share = q >= 1 ? 1 : q > 0 ? q : 0; /* not a number: 0 */
	double rank = share * (double)latency->count;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		seen += latency->buckets[i];
		if (seen > 0 && (double)seen >= rank)
			return latency_edge_us(i);
	}
	return latency_edge_us(LATENCY_BUCKETS - 1);
}

/* ---- breaker ---- */

uint64_t inspect_cooldown_ms(const struct policy *policy, unsigned reopened)
{
	uint64_t most = policy->cooldown_max_ms == 0 ? TIME_MASK : smaller(policy->cooldown_max_ms, TIME_MASK);
	uint64_t ms = smaller(policy->cooldown_ms, most);

	for (unsigned i = 0; i < reopened && i < STREAK_MAX && ms < most; i++) {
		unsigned __int128 longer = (unsigned __int128)ms * policy->cooldown_factor_ppm / 1000000;
		ms = longer > most ? most : (uint64_t)longer;
	}
	return ms;
}

/* When it came into its state: as the winner of that transition wrote it, or, where it died before it did, from the word. */
static uint64_t since(const struct inspect_resource *r, uint64_t breaker, uint64_t transition)
{
	uint64_t ms = breaker_ms(breaker);

	if (transition_generation(transition) == r->generation && transition_reason(transition) != REASON_NONE) {
		ms = transition_ms(transition);
	} else if (r->breaker == TAG_OPEN) {
		uint64_t cooldown = inspect_cooldown_ms(&r->policy, r->reopened);
		ms = ms > cooldown ? ms - cooldown : 0;
	}
	return smaller(ms, r->now_ms);
}

static enum reason reason_of(const struct inspect_resource *r, uint64_t transition)
{
	if (transition_generation(transition) != r->generation || transition_reason(transition) >= REASONS)
		return REASON_NONE;
	return (enum reason)transition_reason(transition);
}

static void read_breaker(struct inspect_resource *r, uint64_t breaker, uint64_t transition)
{
	r->breaker = breaker_state(breaker);
	r->generation = breaker_generation(breaker);
	r->reopened = r->breaker == TAG_CLOSED ? 0 : breaker_streak(breaker);
	r->due_ms = r->breaker == TAG_OPEN ? breaker_ms(breaker) : 0;
	r->probe_due = r->breaker == TAG_OPEN && r->now_ms >= r->due_ms;
	r->since_ms = since(r, breaker, transition);
	r->reason = reason_of(r, transition);
}

static void read_window(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	uint64_t sums[WINDOW_CATEGORIES];

	window_sum(map, state, &r->policy, r->now_ms, r->generation, sums);
	r->window_failures = sums[WINDOW_FAIL] + sums[WINDOW_FAIL_SLOW];
	r->window_slow = sums[WINDOW_OK_SLOW] + sums[WINDOW_FAIL_SLOW];
	r->window_calls = r->window_failures + sums[WINDOW_OK] + sums[WINDOW_OK_SLOW];
}

static void read_trial(struct inspect_resource *r, uint64_t streak, uint64_t tally, const uint64_t probes[PROBES_LIMIT])
{
	if (streak_generation(streak) == r->generation && streak_kind(streak) != WORD_MOVED)
		r->consecutive = streak_failures(streak);
	if (r->breaker != TAG_HALF_OPEN)
		return;
	if (tally_generation(tally) == r->generation) {
		r->trial_ok = tally_ok(tally);
		r->trial_failed = tally_fail(tally);
	}
	for (unsigned i = 0; i < PROBES_LIMIT && r->probes_out < r->policy.probes; i++) {
		if (probe_life(probes[i]) != 0 && probe_generation(probes[i]) == (r->generation & 0xff) &&
		    probe_age_ms(probes[i], r->now_ms) < r->policy.probe_timeout_ms)
			r->probes_out++;
	}
}

/* ---- override ---- */

static void read_override(const struct state *state, uint64_t w, uint64_t now_ms, struct inspect_override *out)
{
	uint64_t until = override_until_ms(w);
	struct note note;

	if (override_kind(w) == WORD_MOVED || override_mode(w) == OVERRIDE_NONE || (until != 0 && now_ms >= until))
		return;
	out->mode = override_mode(w);
	out->until_ms = until;
	out->serial = override_serial(w);
	bool there = note_read(&state->override_text[out->serial & 1], out->serial, &note);
	out->uid = note.uid;
	out->set_ms = there ? smaller(note.at_ms, now_ms) : now_ms;
	memcpy(out->text, note.text, sizeof(out->text));
}

/* ---- injection ---- */

/* As a call would see it: what the policy does not allow, or whose setting is another's, does nothing. */
static void read_injection(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	struct inspect_injection in = {.on = true};
	struct note note;

	if (!map_has(map, 2) || (r->policy.flags & POLICY_INJECTION) == 0)
		return;
	uint64_t w = load(&state->injection);
	if (!injection_holds(w, r->now_ms) || !injection_read(state, w, &in.what))
		return;
	in.until_ms = injection_until_ms(w);
	bool there = note_read(&state->injection_text[injection_serial(w) & 1], injection_serial(w), &note);
	in.uid = note.uid;
	in.set_ms = there ? smaller(note.at_ms, r->now_ms) : r->now_ms;
	memcpy(in.text, note.text, sizeof(in.text));
	r->injection = in;
}

/* ---- bulkhead ---- */

static void read_permits(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	uint64_t limit = load(&state->limit);

	r->retries = retries_count(map, state, &r->in_flight);
	/* A limit that moved during the pass may not be the one that the holders came in under. */
	for (int i = 0; i < TRIES && load(&state->limit) != limit; i++) {
		limit = load(&state->limit);
		r->retries = retries_count(map, state, &r->in_flight);
	}
	r->waiting = (uint32_t)smaller(waiting_count(map, state), map->dims.waiting);
	r->limited = (r->policy.flags & POLICY_BULKHEAD) != 0;
	if (!r->limited)
		return;
	if (part_mode_of(&r->policy, PART_BULKHEAD) == PART_SHADOW) {
		/* The word limits nothing; what is asked about is the limit that would. */
		r->limit = r->effective = (uint32_t)smaller(share_limit(map, &r->policy), map->dims.permits);
		return;
	}
	r->limit = (uint32_t)smaller(limit_target(limit), map->dims.permits);
	r->effective = (uint32_t)smaller(limit_effective(limit), r->limit);
	r->debt = (uint32_t)smaller(limit_debt(limit), map->dims.permits);
}

/* ---- the whole resource ---- */

static void read_policy(const struct map *map, uint32_t index, struct policy *policy)
{
	uint64_t sequence;

	for (int i = 0; i < POLICY_TRIES; i++) {
		if (policy_read(map, index, policy, &sequence) == 0)
			return;
		sched_yield();
	}
	/* rescd does not write a thousand times in a row: the segment is damaged. */
	policy_defaults(policy);
}

static void read_budget(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	r->budgeted = (r->policy.flags & POLICY_BUDGET) != 0;
	if (!r->budgeted)
		return;
	r->tokens = (double)budget_now(map, state, &r->policy, r->now_ms) / (double)TOKEN;
	r->capacity = (double)r->policy.budget_capacity / (double)TOKEN;
}

static void read_rate(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	r->rated = (r->policy.flags & POLICY_RATE) != 0;
	if (!r->rated)
		return;
	uint64_t tokens = rate_now(map, state, &r->policy, clock_fine_ns(map));
	r->rate_tokens = (double)smaller(tokens, r->policy.rate_burst * TOKEN) / (double)TOKEN;
}

static void read_throttle(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	r->throttled = (r->policy.flags & POLICY_THROTTLE) != 0;
	if (!r->throttled)
		return;
	r->throttle_ppm = throttle_now(map, state, &r->policy, r->now_ms, &r->throttle_requests, &r->throttle_accepts);
	r->throttle_ppm = (uint32_t)smaller(r->throttle_ppm, 1000000);
	r->throttle_requests = smaller(r->throttle_requests, COUNTER_MOST);
	r->throttle_accepts = smaller(r->throttle_accepts, r->throttle_requests);
}

/* One look at the words that admission changes. False when the breaker moved meanwhile. */
static bool read_state(const struct map *map, const struct state *state, struct inspect_resource *r)
{
	uint64_t probes[PROBES_LIMIT];

	uint64_t breaker = load(&state->breaker);
	uint64_t transition = load(&state->transition);
	uint64_t override = load(&state->override);
	uint64_t streak = load(&state->streak);
	uint64_t tally = load(&state->tally);
	for (unsigned i = 0; i < PROBES_LIMIT; i++)
		probes[i] = load(&state->probes[i]);
	/* The clock after the words: nothing in them is of the future. */
	r->now_ms = clock_coarse_ms(map);
	read_breaker(r, breaker, transition);
	read_override(state, override, r->now_ms, &r->override);
	read_injection(map, state, r);
	read_window(map, state, r);
	read_trial(r, streak, tally, probes);
	return load(&state->breaker) == breaker;
}

int inspect_resource(const struct map *map, uint32_t index, struct inspect_resource *out)
{
	struct inspect_resource start = {.index = index};

	if (index >= map->dims.resources || !policy_name(map, index, start.name))
		return -ENOENT;
	chars_clean(start.name, sizeof(start.name));
	read_policy(map, index, &start.policy);
	const struct state *state = map_state(map, index);
	/* Each look is coherent by itself; another one only gives the newer state. */
	for (int i = 0; i < TRIES; i++) {
		*out = start;
		if (read_state(map, state, out))
			break;
	}
	read_permits(map, state, out);
	read_budget(map, state, out);
	read_rate(map, state, out);
	read_throttle(map, state, out);
	inspect_counters(map, state, &out->counters);
	read_latency(map, state, &out->latency);
	return 0;
}

/* ---- workers ---- */

static pid_t pid_of(uint64_t w)
{
	return w > INT32_MAX ? 0 : (pid_t)w;
}

/* 0: it is too old to have written it. */
static uint32_t version_of(const struct map *map, const struct worker_slot *slot, uint64_t life)
{
	uint64_t w = map_has(map, 1) ? load(&slot->version) : 0;

	return w >> 32 == life ? (uint32_t)w : 0;
}

/* What a worker wrote about itself; nothing when it has not yet, or when the slot has changed hands. */
static void read_identity(const struct map *map, const struct worker_slot *slot, struct inspect_worker *out)
{
	struct inspect_worker with = *out;

	if (load(&slot->identity) != out->life)
		return;
	with.pid = pid_of(load(&slot->pid));
	with.start_ticks = load(&slot->start_ticks) & INT64_MAX;
	with.pid_namespace = load(&slot->pid_namespace) & INT64_MAX;
	with.registered_ms = smaller(load(&slot->registered_ms), clock_coarse_ms(map));
	chars_load(slot->name, sizeof(slot->name), with.name);
	with.version = version_of(map, slot, out->life);
	with.same_namespace = with.pid_namespace != 0 && with.pid_namespace == process_namespace("pid");
	if (load(&slot->identity) == out->life && load(&slot->life) == out->life)
		*out = with;
}

int inspect_worker(const struct map *map, uint32_t slot, struct inspect_worker *out)
{
	if (slot >= map->dims.workers)
		return -ENOENT;
	uint64_t life = load(&map_worker(map, slot)->life);
	if (life == 0 || life > UINT32_MAX)
		return -ENOENT;
	*out = (struct inspect_worker){.slot = slot, .life = (uint32_t)life};
	read_identity(map, map_worker(map, slot), out);
	/* In private mode there is one worker: this process. */
	out->alive = map->private_mode || life_is_held(map, out->life);
	return 0;
}

/* Where that life is among the first count of lives[], which are sorted; or where it belongs. */
static size_t find_life(const uint32_t *lives, size_t count, uint32_t life)
{
	size_t low = 0;

	while (low < count) {
		size_t middle = low + (count - low) / 2;
		if (lives[middle] < life)
			low = middle + 1;
		else
			count = middle;
	}
	return low;
}

size_t inspect_holders(const struct map *map, uint32_t index, uint32_t *lives, uint32_t *permits, size_t max)
{
	size_t count = 0;

	if (index >= map->dims.resources)
		return 0;
	const struct state *state = map_state(map, index);
	for (uint32_t i = 0; i < map->dims.permits; i++) {
		uint32_t life = permit_life(load(map_permit(map, state, i)));
		if (life == 0)
			continue;
		size_t at = find_life(lives, count, life);
		if (at < count && lives[at] == life) {
			permits[at]++;
		} else if (count < max) {
			memmove(&lives[at + 1], &lives[at], (count - at) * sizeof(*lives));
			memmove(&permits[at + 1], &permits[at], (count - at) * sizeof(*permits));
			lives[at] = life;
			permits[at] = 1;
			count++;
		}
	}
	return count;
}

/* ---- daemon ---- */

/* Does somebody hold the daemon's lock? The kernel says it without being asked to wait, and forgets it with the holder's death. */
static bool daemon_lives(const struct map *map)
{
	if (map->private_mode)
		return false;
	if (map->access == MAP_OWNER) /* that is us, and a lock of our own is never in our way */
		return true;
	return map_is_held(map, LOCK_DAEMON) == 1;
}

static void read_reload_text(const struct segment_daemon *daemon, char text[RELOAD_TEXT_SIZE])
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t sequence = load(&daemon->reload_sequence);
		if ((sequence & 1) == 0) {
			chars_load(daemon->reload_text, RELOAD_TEXT_SIZE, text);
			if (load(&daemon->reload_sequence) == sequence)
				return;
		}
		sched_yield();
	}
	text[0] = '\0';
}

/* Those that register just now are not older than anything. */
static void count_workers(const struct map *map, struct inspect_daemon *out)
{
	for (uint32_t i = 0; i < map->dims.workers; i++) {
		const struct worker_slot *slot = map_worker(map, i);
		uint64_t life = load(&slot->life);

		if (life == 0 || life > UINT32_MAX)
			continue;
		out->workers++;
		out->workers_older += load(&slot->identity) == life && version_of(map, slot, life) < out->version;
	}
}

void inspect_daemon(const struct map *map, struct inspect_daemon *out)
{
	const struct segment_daemon *daemon = map->daemon;

	*out = (struct inspect_daemon){
	        .alive = daemon_lives(map),
	        .pid = pid_of(load(&daemon->pid)),
	        .heartbeat_ms = load(&daemon->heartbeat_ms),
	        .started_ms = load(&daemon->started_ms),
	        .reloads = smaller(load(&daemon->reloads), COUNTER_MOST),
	        .reloads_failed = smaller(load(&daemon->reloads_failed), COUNTER_MOST),
	        .reload_failed = load(&daemon->reload_failed) != 0,
	        .reload_ms = load(&daemon->reload_ms),
	        .resources = (uint32_t)smaller(load(&daemon->resources), map->dims.resources),
	        .version = map_has(map, 1) ? (uint32_t)load(&daemon->version) : 0,
	        .lives_reaped = smaller(load(&map->live->lives_reaped), COUNTER_MOST),
	        .lookups_refused = smaller(load(&map->live->lookups_refused), COUNTER_MOST),
	};
	count_workers(map, out);
	/* The clock after the times: none of them is of the future. */
	out->now_ms = clock_coarse_ms(map);
	out->heartbeat_ms = smaller(out->heartbeat_ms, out->now_ms);
	out->started_ms = smaller(out->started_ms, out->now_ms);
	out->reload_ms = smaller(out->reload_ms, out->now_ms);
	if (out->reload_failed)
		read_reload_text(daemon, out->reload_text);
	chars_load(daemon->control, sizeof(daemon->control), out->control);
}

/* ---- idempotency keys ---- */

void inspect_once(const struct map *map, struct once_usage *out)
{
	once_usage(map, out);
	/* Slots change hands during the pass: what was counted twice is left out. */
	out->size = map->dims.once;
	out->working = (uint32_t)smaller(out->working, out->size);
	out->done = (uint32_t)smaller(out->done, out->size - out->working);
	out->unknown = (uint32_t)smaller(out->unknown, out->size - out->working - out->done);
	out->expired = (uint32_t)smaller(out->expired, out->done + out->unknown);
}
