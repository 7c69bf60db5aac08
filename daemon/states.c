/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the protocols of the library are complete without rescd, but they go on only when somebody calls. An override on a
 * resource that nobody calls would stay in force on paper, an overdue probe would show as out, a raised limit would stay low, and the
 * event of a transition whose author was killed would never be written. So rescd looks once a second.
 *
 * What it guarantees: whatever it does here, any worker may do at the same moment; each is one CAS of the value that was seen. The pass
 * reads the first lines of each state with pread(2), which needs no page of ours, and goes to the state itself only where that reading
 * says that there may be something to do. So a large idle segment costs rescd no memory and hardly any time.
 */
#include "states.h"

#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "count.h"
#include "event.h"
#include "log.h"
#include "override.h"
#include "permit.h"
#include "policy.h"
#include "record.h"
#include "share.h"
#include "words.h"

/* The kernel maps up to 64 KiB around a fault, so this many states are at most 2 MiB more. */
#define FORGET_EVERY 32u

uint32_t states_in_use(const struct map *map)
{
	uint64_t n = atomic_load_explicit(&map->daemon->resources, memory_order_acquire);

	return n < map->dims.resources ? (uint32_t)n : map->dims.resources;
}

void states_forget(const struct map *map)
{
	/* Drops our page table entries of a shared mapping, not the pages. In a private one it would drop the pages. */
	if (!map->private_mode)
		madvise(map->states, (size_t)map->dims.resources * map->state_size, MADV_DONTNEED);
}

void states_forget_now_and_then(const struct map *map, uint32_t index)
{
	if (index % FORGET_EVERY == FORGET_EVERY - 1)
		states_forget(map);
}

/* ---- probes ---- */

/* A lease of the current trial that ran out. Its owner is told that it came too late, if it ever comes. */
static void free_overdue_probes(const struct map *map, uint32_t index, struct state *state, uint16_t generation)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(map, index, &policy, &sequence) < 0)
		return;
	for (uint32_t i = 0; i < PROBES_LIMIT; i++) {
		/* acquire: the clock is read after the lease, so it is not younger than now */
		uint64_t cell = atomic_load_explicit(&state->probes[i], memory_order_acquire);
		uint64_t age = probe_age_ms(cell, clock_coarse_ms(map));

		/* An age in the upper half of its 24 bits is a lease from the future: damage, or a clock that was set back by a test. */
		if (cell == 0 || probe_generation(cell) != (generation & 0xff) || age <= policy.probe_timeout_ms || age >= 0x800000)
			continue;
		/* acq_rel: as its release by the owner */
		if (atomic_compare_exchange_strong_explicit(&state->probes[i], &cell, 0, memory_order_acq_rel, memory_order_relaxed))
			count_common(map, state, COUNTER_probes_reclaimed, 1);
	}
}

/* ---- events of the dead ---- */

static unsigned state_before(unsigned state, enum reason reason)
{
	if (state == TAG_HALF_OPEN)
		return TAG_OPEN;
	if (reason == REASON_PROBE_FAILED || reason == REASON_PROBE_SLOW || reason == REASON_PROBES_OK)
		return TAG_HALF_OPEN;
	return state == TAG_OPEN ? TAG_CLOSED : TAG_OPEN;
}

static void write_event_for_the_dead(const struct map *map, uint32_t index, struct state *state, uint64_t breaker, uint64_t seen)
{
	uint64_t transition = atomic_load_explicit(&state->transition, memory_order_acquire);
	uint16_t generation = breaker_generation(breaker);
	struct event event = {.kind = EVENT_BREAKER, .to = breaker_state(breaker), .generation = generation};

	if (transition_generation(transition) == generation && transition_reason(transition) < REASONS)
		event.reason = (enum reason)transition_reason(transition);
	event.from = state_before(event.to, event.reason);
	if (!policy_name(map, index, event.resource))
		return;
	event_write(map, 0, &event);
	/* A failed CAS: its author lives after all, or the next transition is there. event_read gives a transition once. */
	atomic_compare_exchange_strong_explicit(&state->event_generation, &seen, generation, memory_order_release, memory_order_relaxed);
	log_debug("wrote the event of a transition of %s whose author is gone", event.resource);
}

/* Lagging now and at the turn before: a second for something that takes its author a microsecond. */
static void look_for_lost_event(const struct map *map, uint32_t index, struct state *state, uint64_t breaker, struct states_lag *lag)
{
	uint64_t seen = atomic_load_explicit(&state->event_generation, memory_order_acquire);
	uint16_t generation = breaker_generation(breaker);
	bool lagging = generation_newer(generation, (uint16_t)seen);

	if (lagging && lag->lagging && lag->breaker_generation == generation) {
		write_event_for_the_dead(map, index, state, breaker, seen);
		lagging = false;
	}
	lag->lagging = lagging;
	lag->breaker_generation = generation;
}

/* ---- the pass ---- */

static void look_at_state(const struct map *map, uint32_t index, struct states_lag *lag)
{
	struct state *state = map_state(map, index);
	uint64_t breaker = atomic_load_explicit(&state->breaker, memory_order_acquire);

	override_expire(map, index, 0, clock_coarse_ms(map));
	if (breaker_tag(breaker) == TAG_HALF_OPEN)
		free_overdue_probes(map, index, state, breaker_generation(breaker));
	permit_settle(map, state);
	look_for_lost_event(map, index, state, breaker, lag);
}

/* The words of a state that say whether there is something to do. */
struct glance {
	uint64_t words[offsetof(struct state, tokens) / 8];
};
#define GLANCE(glance, field) ((glance)->words[offsetof(struct state, field) / 8])

static bool glance_at(const struct map *map, uint32_t index, struct glance *glance)
{
	off_t offset = (off_t)((size_t)(map->states - map->base) + (size_t)index * map->state_size);

	return pread(map->fd, glance, sizeof(*glance), offset) == (ssize_t)sizeof(*glance);
}

/* Words that change meanwhile may be read half old and half new: then there is a look too many, or one a second later. */
static bool worth_a_look(const struct glance *glance, const struct states_lag *lag, uint64_t now_ms)
{
	uint64_t breaker = GLANCE(glance, breaker), override = GLANCE(glance, override), limit = GLANCE(glance, limit);
	uint64_t until_ms = override_until_ms(override);

	return lag->lagging || breaker_tag(breaker) == TAG_HALF_OPEN ||
	       generation_newer(breaker_generation(breaker), (uint16_t)GLANCE(glance, event_generation)) ||
	       (override_mode(override) != OVERRIDE_NONE && until_ms != 0 && until_ms <= now_ms) ||
	       limit_effective(limit) + limit_debt(limit) < limit_target(limit);
}

/* What was seen belongs to a segment and to its size. */
static bool watch_fits(const struct map *map, struct states_watch *watch)
{
	if (watch->generation == map->generation)
		return watch->lags != NULL;
	free(watch->lags);
	watch->lags = calloc(map->dims.resources, sizeof(*watch->lags));
	watch->generation = watch->lags ? map->generation : 0;
	return watch->lags != NULL;
}

void states_tick(const struct map *map, struct states_watch *watch)
{
	/* For who died between its count of the workers and the limits, and for workers that were expected and did not come. */
	share_recount(map);
	if (!watch_fits(map, watch))
		return;
	for (uint32_t i = 0; i < states_in_use(map); i++) {
		struct glance glance;

		/* acquire: pairs with the release of the hash by record_publish */
		if (atomic_load_explicit(&map_policy(map, i)->name_hash, memory_order_acquire) == 0)
			continue;
		if (glance_at(map, i, &glance) && worth_a_look(&glance, &watch->lags[i], clock_coarse_ms(map)))
			look_at_state(map, i, &watch->lags[i]);
	}
	states_forget(map);
}

void states_watch_free(struct states_watch *watch)
{
	free(watch->lags);
	*watch = (struct states_watch){0};
}
