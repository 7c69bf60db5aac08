/* SPDX-License-Identifier: MIT */
/*
 * Moving a resource from a superseded segment to its successor: the protocol is in move.h, its models in tests/model.
 *
 * What a death leaves: a word that is prepared in the new segment and still counts in the old one (the next mover prepares it again), or
 * one that is moved and still marked prepared (everybody reads it as live). Tickets never move: permits and probe leases of the old segment
 * are given back there. So that a trial does not get more probes than it may, each lease that is out in the old segment has a ghost in the
 * new one ({no life, generation, granted}): its owner removes it. Where the owner is dead, or gave the lease back because the breaker had
 * moved, rescd does: it makes it an orphan, and a second later frees the cell (the second is for owners who are between their two steps).
 * With rescd dead, it expires like any lease.
 */
#include <string.h>

#include "budget.h"
#include "clock.h"
#include "failpoint.h"
#include "move.h"
#include "permit.h"
#include "policy.h"
#include "transition.h"
#include "window.h"
#include "words.h"

#define TRIES 1000

bool move_is_same(const struct map *from, const struct map *to, uint32_t index)
{
	char old_name[SEGMENT_NAME_SIZE], new_name[SEGMENT_NAME_SIZE];

	return index < from->dims.resources && index < to->dims.resources && policy_name_any(from, index, old_name) &&
	       policy_name_any(to, index, new_name) && strcmp(old_name, new_name) == 0;
}

/* override, injection, streak, tokens and rate carry an enum word_kind at this bit. */
static unsigned kind_of(uint64_t w, unsigned shift)
{
	return (unsigned)(w >> shift) & 3;
}

static uint64_t with_kind(uint64_t w, unsigned shift, enum word_kind kind)
{
	return (w & ~(UINT64_C(3) << shift)) | (uint64_t)kind << shift;
}

static bool swap(word *place, uint64_t seen, uint64_t next)
{
	return atomic_compare_exchange_strong_explicit(place, &seen, next, memory_order_acq_rel, memory_order_acquire);
}

static void raise_to(word *place, uint64_t value)
{
	uint64_t seen = atomic_load_explicit(place, memory_order_relaxed);

	while (seen < value && !atomic_compare_exchange_weak_explicit(place, &seen, value, memory_order_relaxed, memory_order_relaxed))
		;
}

static void move_word(word *old, word *new, unsigned shift)
{
	for (int i = 0; i < TRIES; i++) {
		uint64_t r = atomic_load_explicit(new, memory_order_acquire);
		uint64_t w = atomic_load_explicit(old, memory_order_acquire);
		if (kind_of(w, shift) == WORD_MOVED) {
			/* The old word's last value, not the prepared one: a value that came back may have been prepared in between. */
			if (kind_of(r, shift) == WORD_PREPARED)
				swap(new, r, with_kind(w, shift, WORD_LIVE));
			return;
		}
		if (kind_of(r, shift) == WORD_LIVE)
			return;
		if (!swap(new, r, with_kind(w, shift, WORD_PREPARED)))
			continue;
		FAILPOINT("move.prepared");
		swap(old, w, with_kind(w, shift, WORD_MOVED));
		FAILPOINT("move.marked");
	}
}

/*
 * The record of the last transition is complete in the old one, and is here what the next transition in the new one follows. Only ever to a
 * newer generation: a mover that was stopped here does not set back what workers have recorded in the new one since.
 */
static void follow_record(struct state *old, struct state *new, uint64_t w)
{
	uint64_t told = atomic_load_explicit(&old->transition, memory_order_acquire);
	uint64_t seen = atomic_load_explicit(&new->recorded, memory_order_relaxed);
	uint16_t generation = breaker_generation(w);

	while ((seen == 0 || generation_newer(generation, recorded_generation(seen))) &&
	       !atomic_compare_exchange_weak_explicit(&new->recorded, &seen, recorded_make(breaker_state(w), generation),
	                                              memory_order_acq_rel, memory_order_relaxed))
		;
	seen = atomic_load_explicit(&new->transition, memory_order_relaxed);
	while (transition_generation(told) == generation && (seen == 0 || generation_newer(generation, transition_generation(seen))) &&
	       !atomic_compare_exchange_weak_explicit(&new->transition, &seen, told, memory_order_acq_rel, memory_order_relaxed))
		;
}

static void move_breaker(const struct map *from, uint32_t index, struct state *next)
{
	struct state *before = map_state(from, index);
	word *old = &before->breaker, *new = &next->breaker;

	for (int i = 0; i < TRIES; i++) {
		uint64_t r = atomic_load_explicit(new, memory_order_acquire);
		uint64_t w = transition_complete(from, index, 0);
		if (breaker_tag(w) == TAG_MOVED) {
			if (breaker_is_prepared(r))
				swap(new, r, breaker_make(breaker_state(r), breaker_streak(r), breaker_generation(r), breaker_ms(r)));
			return;
		}
		if (breaker_tag(r) != TAG_EMPTY && !breaker_is_prepared(r))
			return;
		follow_record(before, next, w);
		uint64_t prepared = breaker_make(breaker_state(w) + TAG_PREPARED, breaker_streak(w), breaker_generation(w), breaker_ms(w));
		if (!swap(new, r, prepared))
			continue;
		FAILPOINT("move.breaker_prepared");
		swap(old, w, breaker_make(TAG_MOVED, breaker_streak(w), breaker_generation(w), breaker_ms(w)));
		FAILPOINT("move.breaker_marked");
	}
}

/* For what only helps people or is rebuilt soon: the first copy wins. */
static void copy_once(word *old, word *new)
{
	if (atomic_load_explicit(new, memory_order_relaxed) == 0)
		swap(new, 0, atomic_load_explicit(old, memory_order_acquire));
}

static void copy_text(struct override_text *old, struct override_text *new)
{
	uint64_t serial = atomic_load_explicit(&old->serial, memory_order_acquire);

	if (atomic_load_explicit(&new->serial, memory_order_relaxed) != 0)
		return;
	atomic_store_explicit(&new->uid, atomic_load_explicit(&old->uid, memory_order_relaxed), memory_order_relaxed);
	atomic_store_explicit(&new->at_ms, atomic_load_explicit(&old->at_ms, memory_order_relaxed), memory_order_relaxed);
	for (size_t i = 0; i < OVERRIDE_TEXT; i++)
		atomic_store_explicit(&new->text[i], atomic_load_explicit(&old->text[i], memory_order_relaxed), memory_order_relaxed);
	swap(&new->serial, 0, serial);
}

static void leave_ghosts(struct state *old, struct state *new)
{
	for (uint32_t i = 0; i < PROBES_LIMIT; i++) {
		uint64_t lease = atomic_load_explicit(&old->probes[i], memory_order_seq_cst);
		uint64_t ghost = probe_ghost(lease);
		if (lease == 0 || !swap(&new->probes[i], 0, ghost))
			continue;
		FAILPOINT("move.ghost");
		/* Its owner may have left between the two: it looked for the ghost before it was there. */
		if (atomic_load_explicit(&old->probes[i], memory_order_seq_cst) != lease)
			swap(&new->probes[i], ghost, 0);
	}
}

/*
 * The successor has a state of its own: it left out the record, because nobody called it any more, and the name came back later. Then what
 * is in the old one is another time's, but for its counters. In this order: a word that was moved is live in the new one only after the old
 * one says so.
 */
static bool began_anew(const struct state *old, const struct state *new)
{
	uint64_t r = atomic_load_explicit(&new->breaker, memory_order_acquire);

	return breaker_tag(r) != TAG_EMPTY && !breaker_is_prepared(r) &&
	       breaker_tag(atomic_load_explicit(&old->breaker, memory_order_acquire)) != TAG_MOVED;
}

/*
 * What was copied may be from before an operator set the injection that was moved, where a mover was stopped or died in between. It is put
 * right only as long as it is of another serial: what a setter in the new one writes has the next one, and another place.
 */
static void follow_setting(struct state *old, struct state *new)
{
	uint64_t w = atomic_load_explicit(&new->injection, memory_order_acquire);
	uint32_t serial = injection_serial(w);
	uint64_t seen = atomic_load_explicit(&new->injection_setting[serial & 1], memory_order_acquire);
	uint64_t setting = atomic_load_explicit(&old->injection_setting[serial & 1], memory_order_acquire);

	if (setting_serial(seen) != (serial & 0xf) && setting_serial(setting) == (serial & 0xf))
		swap(&new->injection_setting[serial & 1], seen, setting);
}

/* Setting and text first: who sees the word in the new one finds them there. */
static void move_injection(const struct map *from, struct state *old, const struct map *to, struct state *new)
{
	if (!map_has(from, 2) || !map_has(to, 2))
		return;
	for (unsigned i = 0; i < 2; i++) {
		copy_once(&old->injection_setting[i], &new->injection_setting[i]);
		copy_text(&old->injection_text[i], &new->injection_text[i]);
	}
	raise_to(&new->injected, atomic_load_explicit(&old->injected, memory_order_relaxed));
	move_word(&old->injection, &new->injection, 62);
	follow_setting(old, new);
}

void move_words(const struct map *from, struct state *old, const struct map *to, struct state *new)
{
	if (began_anew(old, new))
		return;
	if (breaker_tag(atomic_load_explicit(&old->breaker, memory_order_acquire)) != TAG_MOVED) {
		leave_ghosts(old, new);
		copy_once(&old->tally, &new->tally);
		copy_once(&old->bad_tick, &new->bad_tick);
		copy_once(&old->throttle, &new->throttle);
		copy_text(&old->override_text[0], &new->override_text[0]);
		copy_text(&old->override_text[1], &new->override_text[1]);
	}
	/* Before anybody counts in the new one: its numbers go on where the old ones are. */
	raise_to(&new->calls, atomic_load_explicit(&old->calls, memory_order_relaxed));
	move_word(&old->override, &new->override, 62);
	move_injection(from, old, to, new);
	move_word(&old->streak, &new->streak, 46);
	/* Twice: what is in the tokens that were moved was earned, and its interval claimed, before. */
	budget_carry(old, new);
	move_word(&old->tokens, &new->tokens, 62);
	budget_carry(old, new);
	move_word(&old->rate, &new->rate, 62);
	/* Last: who sees that the breaker has moved finds the others moved too. */
	move_breaker(from, map_index(from, old), new);
}

unsigned move_ghosts(const struct state *old, struct state *new)
{
	unsigned out = 0;

	for (uint32_t i = 0; i < PROBES_LIMIT; i++) {
		uint64_t ghost = atomic_load_explicit(&new->probes[i], memory_order_seq_cst);
		if (!probe_is_ghost(ghost))
			continue;
		out++;
		/* No lease is taken in the old segment any more, so one that is gone does not come back. */
		uint64_t lease = atomic_load_explicit(&old->probes[i], memory_order_seq_cst);
		if (probe_life(ghost) == ORPHAN_LIFE)
			swap(&new->probes[i], ghost, 0);
		else if (probe_ghost(lease) != ghost)
			swap(&new->probes[i], ghost, probe_orphan(ghost));
	}
	return out;
}

unsigned move_permits(const struct map *from, struct state *old, const struct map *to, struct state *new)
{
	permit_close(old);
	FAILPOINT("move.closed");
	unsigned occupied = permit_occupied(from, old);
	uint64_t w = atomic_load_explicit(&new->limit, memory_order_seq_cst);
	while (occupied < limit_debt(w) &&
	       !atomic_compare_exchange_weak_explicit(&new->limit, &w,
	                                              limit_make(limit_target(w), limit_effective(w), occupied, limit_version(w)),
	                                              memory_order_seq_cst, memory_order_seq_cst))
		;
	permit_settle(to, new);
	return limit_debt(atomic_load_explicit(&new->limit, memory_order_relaxed));
}

static word *word_at(const struct shard *shard, size_t offset)
{
	return (word *)((uintptr_t)shard + offset);
}

/* The sum over all old shards of the word that stands `offset` bytes into each. */
static uint64_t sum_at(const struct map *from, const struct state *old, size_t offset)
{
	uint64_t sum = atomic_load_explicit(word_at(map_carried(from, old), offset), memory_order_relaxed);

	for (uint32_t i = 0; i < from->dims.shards; i++)
		sum += atomic_load_explicit(word_at(map_shard(from, old, i), offset), memory_order_relaxed);
	return sum;
}

/* The buckets with that tag that stand `offset` bytes into each shard. */
static void carry_bucket(const struct map *from, const struct state *old, const struct shard *carried, size_t offset, uint64_t tag)
{
	word *target = word_at(carried, offset);
	uint32_t count = bucket_count_of(word_at(map_carried(from, old), offset), tag);

	for (uint32_t i = 0; i < from->dims.shards; i++)
		count += bucket_count_of(word_at(map_shard(from, old, i), offset), tag);
	if (count == 0)
		return;
	uint64_t seen = atomic_load_explicit(target, memory_order_relaxed);
	uint64_t next = bucket_make(tag, count > BUCKET_MAX ? BUCKET_MAX : count);
	if (bucket_tag_of(seen) != tag || bucket_count(seen) < bucket_count(next))
		swap(target, seen, next);
}

/* In the generation that counts. */
static void carry_tick(const struct map *from, const struct state *old, const struct map *to, struct state *new, uint64_t tick,
                       uint64_t tick_ms)
{
	uint16_t generation = breaker_generation(atomic_load_explicit(&new->breaker, memory_order_relaxed));
	const struct shard *carried = map_carried(to, new);
	size_t offset = offsetof(struct shard, window) + tick % WINDOW_RING * sizeof carried->window[0];

	for (unsigned category = 0; category < WINDOW_CATEGORIES; category++)
		carry_bucket(from, old, carried, offset + category * sizeof(word), window_tag(tick_ms, tick, generation));
}

static void carry_throttle_tick(const struct map *from, const struct state *old, const struct shard *carried, uint64_t tick,
                                uint64_t tick_ms)
{
	size_t offset = offsetof(struct shard, throttle) + tick % WINDOW_RING * sizeof carried->throttle[0];

	for (unsigned i = 0; i < 2; i++)
		carry_bucket(from, old, carried, offset + i * sizeof(word), tick * tick_ms);
}

/* The last lap of both rings, as long as the policy says now. Ticks of another length do not count any more. */
static void carry_windows(const struct map *from, const struct state *old, const struct map *to, struct state *new)
{
	struct policy policy;
	uint64_t sequence;
	uint64_t now_ms = clock_coarse_ms(to);

	/* rescd is writing it: the next time. */
	if (policy_read(to, map_index(to, new), &policy, &sequence) != 0)
		return;
	uint64_t tick_ms = window_tick_ms(&policy);
	uint64_t throttle_ms = window_bucket_ms(policy.throttle_window_ms);
	for (uint64_t age = 0; age < WINDOW_RING; age++) {
		if (age <= now_ms / tick_ms)
			carry_tick(from, old, to, new, now_ms / tick_ms - age, tick_ms);
		if (age <= now_ms / throttle_ms)
			carry_throttle_tick(from, old, map_carried(to, new), now_ms / throttle_ms - age, throttle_ms);
	}
}

/* The ring of a window by number of calls. Calls that were counted in the new one have newer numbers, or the same: then one is lost. */
static void carry_calls(const struct map *from, const struct state *old, const struct map *to, struct state *new)
{
	for (uint32_t i = 0; i < from->dims.calls; i++) {
		uint64_t w = atomic_load_explicit(map_calls(from, old) + i, memory_order_relaxed);
		word *place = map_calls(to, new) + (call_number(w) & (to->dims.calls - 1));
		uint64_t seen = atomic_load_explicit(place, memory_order_relaxed);
		if (call_category_plus_one(w) != 0 && (call_category_plus_one(seen) == 0 || call_number(seen) < call_number(w)))
			swap(place, seen, w);
	}
}

static uint64_t counted_transitions(const struct state *old, unsigned counter)
{
	for (unsigned tag = TAG_CLOSED; tag <= TAG_HALF_OPEN; tag++)
		if (transition_counter(tag) == counter)
			return transition_count(old, tag);
	return 0;
}

void move_carry(const struct map *from, struct state *old, const struct map *to, struct state *new)
{
	struct shard *carried = map_carried(to, new);

	/* All of them, also those that only a newer version knows. */
	for (unsigned i = 0; i < COUNTERS; i++)
		raise_to(&carried->counters[i],
		         sum_at(from, old, offsetof(struct shard, counters) + i * sizeof(word)) + counted_transitions(old, i));
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		raise_to(&carried->latency[i], sum_at(from, old, offsetof(struct shard, latency) + i * sizeof(word)));
	raise_to(&carried->latency_sum_us, sum_at(from, old, offsetof(struct shard, latency_sum_us)));
	FAILPOINT("move.counters");
	if (began_anew(old, new))
		return;
	carry_calls(from, old, to, new);
	/* Before the buckets: none of what was forgotten comes back. */
	raise_to(&new->throttle_since, atomic_load_explicit(&old->throttle_since, memory_order_relaxed));
	carry_windows(from, old, to, new);
}

unsigned move_resource(const struct map *from, const struct map *to, uint32_t index)
{
	struct state *old = map_state(from, index);
	struct state *new = map_state(to, index);

	move_words(from, old, to, new);
	unsigned debt = move_permits(from, old, to, new);
	move_carry(from, old, to, new);
	return debt;
}
