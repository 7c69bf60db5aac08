/* SPDX-License-Identifier: MIT */
/*
 * Keys on their way from a superseded segment to its successor.
 *
 * What is guaranteed: no key that was done, is unknown, or is in work in the old table can be begun in the new one. So nothing begins in
 * the new table before all keys are there, and nothing in the old one after it was closed.
 *
 *	close	once_closed = 1 in the old segment; then read its slots. Who records a key there looks at that word afterwards, so a key
 *		that was begun is seen here (once_call.c)
 *	copy	DONE and UNKNOWN as they are; RUNNING, STORING and AWAY become AWAY{number of the old slot}, with the old word as origin. An
 *		entry is inserted as a begin inserts one (once.c), and what is there already is left alone
 *	ready	when a whole pass found everything in place: once_ready = 1 (release)
 *
 * Anyone may do this, several at once; a mover that dies leaves claims, which are revoked by the others and reaped. rescd has no life:
 * its claims have a number of their own, and the next rescd frees them. A mover that was stopped and goes on later finds its keys there, or
 * inserts one that is over: DONE and UNKNOWN have expired then, and AWAY is settled like all others.
 *
 * A mover that was stopped with an unknown key may bring it when it was settled as free here: then it is unknown once more, until it is
 * settled again. That keeps work from being done, and never lets it be done twice.
 *
 * Tickets never move: done, abandon and a death change the old slot. rescd looks at it each second (settle), and what became of the key
 * there becomes of it here. rescd alone, so that the answer has one writer; while it is dead or stopped, the keys that are away stay busy.
 * The old segment is kept until none is away. If it is gone all the same, nobody knows: UNKNOWN.
 *
 * A successor has at least as many slots, and a set of the old one is spread over whole sets of the new one, so there is room; only slots
 * that belong to movers who are stopped in the middle may be missing in a full set. Then the move ends there, and is tried again.
 */
#include "clock.h"
#include "failpoint.h"
#include "once.h"

#define TRIES 64

static uint64_t load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

static bool is_away_or_in_work(uint64_t w)
{
	return once_phase(w) == ONCE_RUNNING || once_phase(w) == ONCE_STORING || once_phase(w) == ONCE_AWAY;
}

/* ---- moving ---- */

/* The key of a slot that was seen committed. True: it is in the new table, or over. */
static bool copy_entry(const struct once_place *old, struct once_image *image, const struct map *to, uint32_t life)
{
	bool away = is_away_or_in_work(old->seen);
	enum once_phase phase = away ? ONCE_AWAY : once_phase(old->seen);
	uint64_t now_ms = clock_coarse_ms(to);
	struct once_place place;

	if (!away && image->expires_ms <= now_ms)
		return true;
	image->origin = old->seen;
	enum once_inserted r = once_insert(to, image, life, phase, away ? old->slot : 0, now_ms, &place);
	return r == ONCE_INSERTED || r == ONCE_KNOWN;
}

static bool move_slot(const struct map *from, uint32_t slot, const struct map *to, uint32_t life)
{
	struct once_image image;

	for (int i = 0; i < TRIES; i++) {
		/* seq_cst: comes after the closing, for everybody. */
		struct once_place old = {slot, atomic_load_explicit(&from->once_slots[slot], memory_order_seq_cst)};
		if (once_phase(old.seen) < ONCE_RUNNING)
			return true;
		if (once_read(from, &old, &image))
			return copy_entry(&old, &image, to, life);
		if (load(&from->once_slots[slot]) == old.seen)
			return true; /* damaged: there is no key in it */
	}
	return false;
}

bool once_move(const struct map *from, const struct map *to, uint32_t life)
{
	if (once_is_ready(to))
		return true;
	/* Its own predecessor's keys are still to come. */
	if (!once_is_ready(from))
		return false;
	atomic_store_explicit(&from->live->once_closed, 1, memory_order_seq_cst);
	FAILPOINT("once.closed");
	for (uint32_t i = 0; i < from->dims.once; i++) {
		bool moved = move_slot(from, i, to, life);
		if (once_is_ready(to))
			return true;
		/* To go on would help nobody, and each key without room takes long to say so. */
		if (!moved)
			return false;
	}
	FAILPOINT("once.moved");
	/* Release: who sees it sees the keys. */
	atomic_store_explicit(&to->live->once_ready, 1, memory_order_release);
	return true;
}

/* ---- settling ---- */

/* Done over there: answer and time come here, then the word. The slot here is AWAY, so nobody else writes its entry. */
static bool take_answer(const struct map *from, const struct once_place *old, const struct map *to, const struct once_place *away)
{
	struct once_entry *entry = map_once_entry(to, away->slot);
	struct once_image image;

	if (!once_read(from, old, &image))
		return false;
	for (size_t i = 0; i * 8 < image.answer_size; i++)
		atomic_store_explicit(&entry->answer[i], image.answer[i], memory_order_release);
	atomic_store_explicit(&entry->answer_size, image.answer_size, memory_order_release);
	atomic_store_explicit(&entry->expires_ms, image.expires_ms, memory_order_release);
	FAILPOINT("once.taken");
	return once_turn(to, away, once_with(away->seen, ONCE_DONE));
}

/* True: it is not away any more. */
static bool settle_slot(const struct map *from, const struct map *to, const struct once_place *away)
{
	uint64_t origin = load(&map_once_entry(to, away->slot)->origin);
	uint32_t slot = once_owner(away->seen);

	/* No such segment, or no such slot (damage): nobody can say any more what became of it. */
	if (from == NULL || slot >= from->dims.once)
		return once_turn(to, away, once_with(away->seen, ONCE_UNKNOWN));
	struct once_place old = {slot, load(&from->once_slots[slot])};
	if (!once_same_use(old.seen, origin) || once_phase(old.seen) < ONCE_RUNNING)
		return once_turn(to, away, once_freed(away->seen));
	if (once_phase(old.seen) == ONCE_UNKNOWN)
		return once_turn(to, away, once_with(away->seen, ONCE_UNKNOWN));
	return once_phase(old.seen) == ONCE_DONE && take_answer(from, &old, to, away);
}

bool once_settle(const struct map *from, const struct map *to)
{
	bool none = from == NULL || once_move(from, to, ONCE_LIFE_OF_RESCD);

	for (uint32_t i = 0; i < to->dims.once; i++) {
		struct once_place place = {i, load(&to->once_slots[i])};
		if (once_phase(place.seen) == ONCE_AWAY)
			none = settle_slot(from, to, &place) && none;
	}
	if (from == NULL)
		atomic_store_explicit(&to->live->once_ready, 1, memory_order_release);
	return none;
}
