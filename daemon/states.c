/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the protocols of the library are complete without rescd, but they go on only when somebody calls. An override (or an
 * injection) on a resource that nobody calls would stay in force on paper, an overdue probe would show as out, a raised limit would stay
 * low, and the verdict of a trial or the record of a transition whose author was killed would wait for the next one. So rescd looks once a
 * second.
 *
 * What it guarantees: whatever it does here, any worker may do at the same moment; each is one CAS of the value that was seen. The pass
 * reads the first lines of each state with pread(2), which needs no page of ours, and goes to the state itself only where that reading
 * says that there may be something to do. So a large idle segment costs rescd no memory and hardly any time.
 */
#include "states.h"

#include <stddef.h>
#include <sys/mman.h>
#include <unistd.h>

#include "call.h"
#include "clock.h"
#include "count.h"
#include "injection.h"
#include "override.h"
#include "permit.h"
#include "policy.h"
#include "record.h"
#include "share.h"
#include "transition.h"
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
static void free_overdue_probes(const struct map *map, const struct policy *policy, struct state *state, uint16_t generation)
{
	for (uint32_t i = 0; i < PROBES_LIMIT; i++) {
		/* acquire: the clock is read after the lease, so it is not younger than now */
		uint64_t cell = atomic_load_explicit(&state->probes[i], memory_order_acquire);
		uint64_t age = probe_age_ms(cell, clock_coarse_ms(map));

		/* An age in the upper half of its 24 bits is a lease from the future: damage, or a clock that was set back by a test. */
		if (cell == 0 || probe_generation(cell) != (generation & 0xff) || age <= policy->probe_timeout_ms || age >= 0x800000)
			continue;
		/* acq_rel: as its release by the owner */
		if (atomic_compare_exchange_strong_explicit(&state->probes[i], &cell, 0, memory_order_acq_rel, memory_order_relaxed))
			count_common(map, state, COUNTER_probes_reclaimed, 1);
	}
}

/* The verdict of a trial is drawn by whoever brings the last result; where that one was killed, by the next call, or here. */
static void look_at_trial(const struct map *map, uint32_t index, struct state *state, uint16_t generation)
{
	struct policy policy;
	uint64_t sequence;

	if (policy_read(map, index, &policy, &sequence) < 0)
		return;
	breaker_help(map, index, &policy, clock_coarse_ms(map));
	free_overdue_probes(map, &policy, state, generation);
}

/* ---- the pass ---- */

static void look_at_state(const struct map *map, uint32_t index)
{
	struct state *state = map_state(map, index);
	/* Its author may be at it this very moment: then one of the two drops what the other has written. */
	uint64_t breaker = transition_complete(map, index, 0);

	override_expire(map, index, 0, clock_coarse_ms(map));
	injection_expire(map, index, 0, clock_coarse_ms(map));
	if ((policy_flags(map, index) & POLICY_INJECTION) == 0)
		injection_forbid(map, index);
	if (breaker_tag(breaker) == TAG_HALF_OPEN)
		look_at_trial(map, index, state, breaker_generation(breaker));
	permit_settle(map, state);
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

/* An injection that is over, or was set in the moment in which the policy forbade it. */
static bool needs_its_end(const struct map *map, uint32_t index, uint64_t injection, uint64_t now_ms)
{
	return map_has(map, 2) && injection_is_on(injection) &&
	       (!injection_holds(injection, now_ms) || (policy_flags(map, index) & POLICY_INJECTION) == 0);
}

/* Words that change meanwhile may be read half old and half new: then there is a look too many, or one a second later. */
static bool worth_a_look(const struct map *map, uint32_t index, const struct glance *glance, uint64_t now_ms)
{
	uint64_t breaker = GLANCE(glance, breaker), override = GLANCE(glance, override), limit = GLANCE(glance, limit);
	uint64_t until_ms = override_until_ms(override);

	return breaker_tag(breaker) == TAG_HALF_OPEN || breaker_generation(breaker) != recorded_generation(GLANCE(glance, recorded)) ||
	       (override_mode(override) != OVERRIDE_NONE && until_ms != 0 && until_ms <= now_ms) ||
	       needs_its_end(map, index, GLANCE(glance, injection), now_ms) ||
	       limit_effective(limit) + limit_debt(limit) < limit_target(limit);
}

void states_tick(const struct map *map)
{
	/* For who died between its count of the workers and the limits, and for workers that were expected and did not come. */
	share_recount(map);
	for (uint32_t i = 0; i < states_in_use(map); i++) {
		struct glance glance;

		/* acquire: pairs with the release of the hash by record_publish */
		if (atomic_load_explicit(&map_policy(map, i)->name_hash, memory_order_acquire) == 0)
			continue;
		if (glance_at(map, i, &glance) && worth_a_look(map, i, &glance, clock_coarse_ms(map)))
			look_at_state(map, i);
	}
	states_forget(map);
}
