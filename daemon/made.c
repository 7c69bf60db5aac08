/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a host has shards, tenants and remote peers whose names no configuration knows. It says what each of a kind gets
 * ("shard-*"), and the resource is made when the first worker looks it up. There may be more names in the life of a host than there
 * is room, so what nobody calls any more has to go.
 *
 * What it guarantees:
 *	- One record a name, whoever asks at the same time; rescd alone writes records.
 *	- At most "made" of them at a time. When there is no room, the one that was idle longest goes first, whatever "idle" says, but
 *	  only one that is at rest and was not called for a second. If there is none, the answer is -ENOSPC and is counted.
 *	- At rest: nobody is inside or waits, no override, no injection, and the breaker is closed. An open one is what the next caller
 *	  must find, so it stays, until its probe was due for an hour (or for "idle", if that is longer) and nobody came: that
 *	  dependency is not asked for any more, and a table full of the dead would be closed to the living. The same for one that is
 *	  half-open, whose probe was cancelled or died, when nobody has called for so long.
 *	- The configuration's own resources are never retired here.
 *
 * How idleness is seen: by the sum of a resource's counters, which every call moves, looked at each second, or where there are very
 * many, each ten seconds at least. So no call has to write the time, and "idle" is kept to within that. A call that comes between the
 * look and the retiring is inside a retired record: it leaves as always, and the next call asks for the record again.
 *
 * A record belongs to one name for the life of a segment, so the retired fill the table. When no free record is left, the segment is
 * replaced: the successor leaves them out. It is made large enough that a quarter of it is free then, and twice as large when the
 * last time was less than ten minutes ago: so the cost of replacing is spread over many names, and the table grows geometrically, up
 * to RESOURCES_LIMIT. While a call that began before the last replacement is still inside, there can be no other (succession.c), and
 * new names are refused.
 */
#include "made.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "apply.h"
#include "bounds.h"
#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "log.h"
#include "once.h"
#include "permit.h"
#include "policy.h"
#include "record.h"
#include "request.h"
#include "states.h"
#include "transition.h"
#include "waiting.h"
#include "words.h"

#define REST_MS       1000u             /* not called for so long: may make room */
#define FORGOTTEN_MS  UINT64_C(3600000) /* open, and nobody came for the probe */
#define LOOK_LEAST_MS 1000u
#define LOOK_MOST_MS  10000u
#define LONGEST       64u
#define LOOK_SHARDS   100u                   /* a millisecond, on average */
#define REPLACE_NS    UINT64_C(1000000000)   /* not more often than this */
#define SOON_NS       UINT64_C(600000000000) /* again within this time: a larger table */

static uint64_t load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

/* ---- what is there ---- */

static bool is_made(const struct map *map, uint32_t index)
{
	return load(&map_policy(map, index)->name_hash) != 0 && (policy_flags(map, index) & POLICY_MADE) != 0;
}

static uint32_t count_made(const struct map *map)
{
	uint32_t count = 0;

	for (uint32_t i = 0; i < states_in_use(map); i++)
		count += is_made(map, i);
	return count;
}

/* Room for what is seen of each record. Indices stay from a segment to its successor. */
static bool seen_fits(struct made *made)
{
	const struct map *map = &made->instance->map;
	struct made_seen *seen;

	if (made->generation == map->generation)
		return true;
	if (map->dims.resources > made->size) {
		seen = realloc(made->seen, map->dims.resources * sizeof(*seen));
		if (!seen)
			return false;
		memset(seen + made->size, 0, (map->dims.resources - made->size) * sizeof(*seen));
		made->seen = seen;
		made->size = map->dims.resources;
	}
	made->generation = map->generation;
	return true;
}

/* ---- idle ---- */

static uint64_t count_of(const struct shard *shard)
{
	uint64_t sum = 0;

	/* relaxed: whether it moves is all that matters */
	for (unsigned i = 0; i < COUNTERS; i++)
		sum += atomic_load_explicit(&shard->counters[i], memory_order_relaxed);
	return sum;
}

/*
 * Of the shards that somebody may add to: the others do not move, and with few workers they are most. Where a shard is claimed or freed the
 * sum moves as well: then somebody came or went, and counts as a caller.
 */
static uint64_t counted(const struct map *map, uint32_t index)
{
	const struct state *state = map_state(map, index);
	uint64_t sum = count_of(map_carried(map, state));

	for (uint32_t i = 0; i < map->dims.shards; i++) {
		const struct shard *shard = map_shard(map, state, i);

		if (atomic_load_explicit(&shard->owner, memory_order_relaxed) != 0)
			sum += count_of(shard);
	}
	for (unsigned tag = TAG_CLOSED; tag <= TAG_HALF_OPEN; tag++)
		sum += transition_count(state, tag);
	return sum;
}

/* For how long its counters have not moved, as far as it was looked. */
static uint64_t look(struct made *made, uint32_t index, uint64_t now_ms)
{
	struct made_seen *seen = &made->seen[index];
	uint64_t sum = counted(&made->instance->map, index);

	if (!seen->known || seen->counted != sum || seen->since_ms > now_ms)
		*seen = (struct made_seen){.known = true, .counted = sum, .since_ms = now_ms};
	return now_ms - seen->since_ms;
}

static bool breaker_rests(const struct made *made, uint32_t index, uint64_t now_ms)
{
	uint64_t breaker = load(&map_state(&made->instance->map, index)->breaker);
	uint64_t patience_ms = larger(FORGOTTEN_MS, made->config->idle_ms);

	switch (breaker_tag(breaker)) {
	case TAG_CLOSED:
		return true;
	case TAG_OPEN:
		return now_ms > breaker_ms(breaker) + patience_ms;
	case TAG_HALF_OPEN:
		return now_ms > made->seen[index].since_ms + patience_ms;
	default: /* Prepared: its state still counts in the segment before. */
		return false;
	}
}

static bool probes_are_out(const struct state *state)
{
	for (uint32_t i = 0; i < PROBES_LIMIT; i++)
		if (load(&state->probes[i]) != 0)
			return true;
	return false;
}

/* Of whichever resource: one that has keys can wait. The table may have a million places, so it is gone through once a pass, if at all. */
static bool keys_are_in_work(struct made *made, uint32_t index)
{
	const struct map *map = &made->instance->map;
	struct once_usage usage;

	if ((policy_flags(map, index) & POLICY_ONCE) == 0)
		return false;
	if (!made->keys_known) {
		once_usage(map, &usage);
		made->keys_working = usage.working != 0;
		made->keys_known = true;
	}
	return made->keys_working;
}

static bool is_injected(const struct map *map, const struct state *state)
{
	return map_has(map, 2) && injection_is_on(load(&state->injection));
}

static bool rests(struct made *made, uint32_t index, uint64_t now_ms)
{
	const struct map *map = &made->instance->map;
	const struct state *state = map_state(map, index);

	return breaker_rests(made, index, now_ms) && override_mode(load(&state->override)) == OVERRIDE_NONE && !is_injected(map, state) &&
	       limit_debt(load(&state->limit)) == 0 && permit_occupied(map, state) == 0 && waiting_count(map, state) == 0 &&
	       !probes_are_out(state) && !keys_are_in_work(made, index);
}

static void retire(struct made *made, uint32_t index, uint64_t idle_ms, const char *why)
{
	char name[SEGMENT_NAME_SIZE] = "";

	policy_name(&made->instance->map, index, name);
	record_retire(&made->instance->map, index);
	FAILPOINT("made.retired");
	made->seen[index].known = false;
	log_line("retired '%s', idle for %" PRIu64 " s%s", name, idle_ms / 1000, why);
}

static bool look_is_due(const struct made *made, uint64_t now_ms)
{
	uint64_t every_ms = (uint64_t)made->count * made->instance->map.dims.shards / LOOK_SHARDS;

	every_ms = smaller(larger(every_ms, LOOK_LEAST_MS), LOOK_MOST_MS);
	return now_ms < made->looked_ms || now_ms - made->looked_ms >= every_ms;
}

static void look_at_all(struct made *made, uint64_t now_ms)
{
	const struct map *map = &made->instance->map;
	uint64_t limit_ms = made->config->idle_ms;

	made->looked_ms = now_ms;
	made->count = 0;
	made->keys_known = false;
	for (uint32_t i = 0; i < states_in_use(map); i++) {
		if (!is_made(map, i)) {
			made->seen[i].known = false;
			continue;
		}
		uint64_t idle_ms = look(made, i, now_ms);
		made->count++;
		if (limit_ms != 0 && idle_ms >= limit_ms && rests(made, i, now_ms))
			retire(made, i, idle_ms, "");
		states_forget_now_and_then(map, i);
	}
	states_forget(map);
}

/* ---- room ---- */

/* Worth another look: idle for REST_MS when it was looked at last, and not passed over since. */
static bool may_go(const struct made_seen *seen, uint64_t now_ms)
{
	return seen->known && seen->since_ms + REST_MS <= now_ms && (!seen->passed || seen->passed_ms + REST_MS <= now_ms);
}

/* Those that were idle longest, the longest first: up to LONGEST of them. Their number. */
static unsigned longest_idle(const struct made *made, uint64_t now_ms, uint32_t found[LONGEST])
{
	const struct map *map = &made->instance->map;
	const struct made_seen *seen = made->seen;
	unsigned count = 0;

	for (uint32_t i = 0; i < states_in_use(map); i++) {
		if (!may_go(&seen[i], now_ms) || (count == LONGEST && seen[i].since_ms >= seen[found[count - 1]].since_ms) ||
		    !is_made(map, i))
			continue;
		unsigned at = count < LONGEST ? count++ : LONGEST - 1;

		for (; at > 0 && seen[i].since_ms < seen[found[at - 1]].since_ms; at--)
			found[at] = found[at - 1];
		found[at] = i;
	}
	return count;
}

/* Looks again at it before it goes: it may have been called since. Who was, or is not at rest, is passed over for REST_MS. */
static bool retire_if_it_rests(struct made *made, uint32_t index, uint64_t now_ms)
{
	uint64_t idle_ms = look(made, index, now_ms);

	if (idle_ms >= REST_MS && rests(made, index, now_ms)) {
		retire(made, index, idle_ms, ", to make room");
		return true;
	}
	made->seen[index].passed = true;
	made->seen[index].passed_ms = now_ms;
	return false;
}

/* So many of them, if there are. They are sought many at a time: where all are busy, one at a time would be as slow as the square. */
static bool retire_some(struct made *made, uint32_t wanted)
{
	uint64_t now_ms = clock_coarse_ms(&made->instance->map);
	uint32_t found[LONGEST];
	unsigned count;

	made->keys_known = false;
	while (wanted > 0 && (count = longest_idle(made, now_ms, found)) > 0)
		for (unsigned i = 0; i < count && wanted > 0; i++)
			wanted -= retire_if_it_rests(made, found[i], now_ms);
	return wanted == 0;
}

/* All records are used up, and some of them by the retired. */
static bool replace(struct made *made)
{
	uint32_t size = made->instance->map.dims.resources, kept = apply_records_kept(&made->instance->map), least = size;
	uint64_t now_ns = clock_read_ns(CLOCK_MONOTONIC_COARSE);
	struct resc_error err = {0};
	int r = -ENOSPC;

	if (made->replaced_ns != 0 && now_ns - made->replaced_ns < REPLACE_NS)
		return false;
	if (made->replaced_ns != 0 && now_ns - made->replaced_ns < SOON_NS)
		size *= 2;
	while (kept >= size - size / 4 && size < RESOURCES_LIMIT)
		size *= 2;
	made->replaced_ns = now_ns;
	/* Where there is no memory for a larger one, the same size does if something is left out. */
	if (kept < size && size <= RESOURCES_LIMIT)
		r = apply_replace(made->instance, made->config, size, &err);
	if (r < 0 && size > least && kept < least)
		r = apply_replace(made->instance, made->config, least, &err);
	if (r < 0 && err.text[0] && !made->told)
		log_line("the table of %" PRIu32 " resources is used up, and cannot be replaced now: %s", least, err.text);
	return r == 0 && seen_fits(made);
}

static bool make_room(struct made *made, const char *name)
{
	const struct map *map = &made->instance->map;
	uint32_t count = count_made(map);

	if (count >= made->config->made && !retire_some(made, count - made->config->made + 1))
		return false;
	return record_has_room(map, name) || replace(made);
}

/* ---- questions ---- */

static int refuse(struct made *made, const char *name)
{
	uint32_t count = count_made(&made->instance->map);

	/* rescd is the only one who counts here; relaxed: a counter orders nothing */
	atomic_fetch_add_explicit(&made->instance->map.live->lookups_refused, 1, memory_order_relaxed);
	if (!made->told && count >= made->config->made)
		log_line("no room for '%s': %" PRIu32 " resources that were made from patterns are in use; raise \"made\"", name, count);
	else if (!made->told)
		log_line("no room for '%s': all %" PRIu32 " places of the table have been used, and it cannot be replaced at the moment",
		         name, made->instance->map.dims.resources);
	made->told = true;
	return -ENOSPC;
}

static int make(struct made *made, const char *name)
{
	const struct config_resource *pattern;
	struct policy policy;
	int index;

	if (policy_find(&made->instance->map, name) >= 0)
		return 0;
	pattern = config_match(made->config, name);
	if (!pattern)
		return -ENOENT;
	if (!seen_fits(made) || !make_room(made, name))
		return refuse(made, name);
	policy = apply_pattern(pattern, &made->instance->map);
	index = record_publish(&made->instance->map, name, &policy);
	if (index < 0)
		return refuse(made, name);
	made->seen[index].known = false;
	look(made, (uint32_t)index, clock_coarse_ms(&made->instance->map));
	made->told = false;
	log_line("made '%s' from '%s'", name, pattern->name);
	return 0;
}

/* The segment of that generation, current or former, where it is now. */
static const struct map *map_of(const struct instance *instance, uint64_t generation)
{
	if (instance->map.generation == generation)
		return &instance->map;
	for (unsigned i = 0; i < instance->succession.count; i++)
		if (instance->succession.former[i].map.generation == generation)
			return &instance->succession.former[i].map;
	return NULL;
}

/* An answer may replace the segment that the question stands in. Its record is in the current one, where the asker will follow. */
static void answer_in(struct made *made, uint64_t generation)
{
	struct question question = {0};
	const struct map *map;

	while ((map = map_of(made->instance, generation)) && request_next(map, &question)) {
		int answer = make(made, question.name);

		map = map_of(made->instance, generation);
		if (map)
			request_answer(map, &question, answer);
	}
}

void made_answer(struct made *made)
{
	uint64_t generations[SUCCESSION_MAX + 1];
	unsigned count = 0;

	for (; count < made->instance->succession.count; count++)
		generations[count] = made->instance->succession.former[count].map.generation;
	generations[count++] = made->instance->map.generation;
	for (unsigned i = 0; i < count; i++)
		answer_in(made, generations[i]);
}

void made_tick(struct made *made)
{
	uint64_t now_ms = clock_coarse_ms(&made->instance->map);

	made_answer(made);
	if (made->config->pattern_count > 0 && seen_fits(made) && look_is_due(made, now_ms))
		look_at_all(made, now_ms);
}

void made_free(struct made *made)
{
	free(made->seen);
	*made = (struct made){0};
}
