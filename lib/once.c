/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys: which work was begun, by whom, and what came of it.
 *
 * Why this exists: a client gives up and asks again while its first request is still at work in another worker. A key that is stored when
 * the work is done does not see that; a key that is stored before it starts does. So begin records the key first, and who asks again learns
 * that it is in progress, or gets the answer. What must never happen is a second "first".
 *
 * The table is slots of 16 a set; a key can be in one set only, and nothing is probed beyond it. A set that is full of keys that have not
 * expired is an error, and nothing old is thrown out for something new. (A second set for each key would let the table fill up further, but
 * then a full one may not fit into its successor. Now each set of a successor has the keys of one set, or of a part of it.)
 *
 * Who writes what. A slot word (once.h) is changed only by CAS of the exact word seen. An entry is written by the owner of its slot alone,
 * while the word says CLAIMED, REVOKED (all but the answer) or STORING (answer and time); so nothing that is written late, by somebody who
 * was stopped, can fall into another key's entry. waiters is the exception: a needless wake-up harms nobody.
 *
 *	begin	1 look	every slot of the set. A committed entry of this key is the answer, an expired one becomes EMPTY
 *		2 claim	CAS EMPTY -> {life, version + 1, tag, CLAIMED}, then write the entry
 *		3 look	again. A committed entry of this key: free the claim, that is the answer. Another CLAIMED with the tag of the key
 *			(taken for the same key, it may not be written yet): in a higher slot it is revoked; to a lower one we give way,
 *			or after some tries revoke it too, so that nobody who is stopped is waited for
 *		4 commit	CAS CLAIMED -> RUNNING, which fails if somebody has revoked it: all over again
 *	done	CAS RUNNING -> STORING, write the answer, CAS -> DONE, wake
 *	abandon	CAS RUNNING -> EMPTY, wake
 *	settle	CAS UNKNOWN -> {life of the settler, STORING}; is the table closed by now? Then back to UNKNOWN. Else as done, or
 *		CAS -> EMPTY
 *	read	load the word, copy, load the word again: exactly the same, else again
 *
 * Why two cannot both commit: claim and second look are a store and a load on either side (Dekker, all four seq_cst), so of two with the
 * same key the one who claims later sees the other: CLAIMED, and then either takes its right or gives up its own; or committed.
 * [Committing by a store, no second look, and freeing the slot of a rival instead of revoking it break: see the model. A rival who is
 * stopped while it writes would go on writing in the entry of the next key.]
 *
 * Whoever is told UNKNOWN may find out what became of the work (the dependency knows), and settle the key for everybody. The word is the
 * only right to do so, so of two who settle one wins, and so does nobody who was told before somebody else died in settling it: that one
 * may have known that the work was done. Settling goes through STORING also where the key becomes free, because only there can it be
 * taken back: a mover (once_move.c) that read UNKNOWN has copied it, and what is settled here afterwards would never arrive.
 *
 * What a death, or a stop for ever, leaves:
 *	after 2, 3	CLAIMED, of a key that was not begun. Rivals revoke it. A stop keeps one slot; a death is reaped: EMPTY
 *	after 4, 'done'	RUNNING: a death is reaped, UNKNOWN or EMPTY as on_death says. A stop: busy, as long as its owner may go on
 *	in done		STORING: reaped to UNKNOWN whatever on_death says, because the work was done
 *	in settling	STORING: reaped to UNKNOWN, as it was. A stop: busy
 *	before a wake	sleepers look by themselves every 50 ms
 * RUNNING never expires while its owner lives. DONE and UNKNOWN expire ttl after the answer was stored, or the key was begun.
 *
 * Versions are 16 bits and lives are never used twice: a word can come again only after 65536 uses of the slot by the same life. A reader
 * or a CAS that slept that long, and met exactly that one, would be wrong.
 *
 * Loads of entries are acquires and stores are releases, word by word: whoever has seen a word of a later use also sees the slot changed.
 */
#include "once.h"

#include <string.h>

#include "clock.h"
#include "failpoint.h"
#include "futex.h"

#define TRIES    256 /* of one who begins: then the key is contested */
#define PATIENCE 64  /* tries after which no rival is given way to */
#define AGAIN    16  /* looks at a slot that changes all the time */
#define NO_SLOT  UINT32_MAX

static uint64_t load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

static void store(word *w, uint64_t value)
{
	atomic_store_explicit(w, value, memory_order_release);
}

static bool swap(word *place, uint64_t seen, uint64_t next)
{
	return atomic_compare_exchange_strong_explicit(place, &seen, next, memory_order_seq_cst, memory_order_relaxed);
}

static void load_words(const word *from, uint64_t *to, size_t bytes)
{
	for (size_t i = 0; i * 8 < bytes; i++)
		to[i] = load(&from[i]);
}

static void store_words(word *to, const uint64_t *from, size_t bytes)
{
	for (size_t i = 0; i * 8 < bytes; i++)
		store(&to[i], from[i]);
}

/* ---- keys ---- */

void once_image_init(struct once_image *image, const char *resource, const void *key, size_t size)
{
	size_t length = strlen(resource);

	memset(image, 0, offsetof(struct once_image, answer));
	memcpy(image->resource, resource, length);
	memcpy(image->key, key, size);
	image->key_size = (uint32_t)size;
	/* The finalizer of splitmix64: set and tag are of bits that FNV alone mixes badly. */
	uint64_t h = fnv1a(resource, length) * UINT64_C(0x9e3779b97f4a7c15) + fnv1a(key, size);
	h = (h ^ h >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	h = (h ^ h >> 27) * UINT64_C(0x94d049bb133111eb);
	image->hash = h ^ h >> 31;
}

static unsigned tag_of(const struct once_image *image)
{
	return (unsigned)(image->hash >> 51);
}

static bool same_words(const word *shared, const uint64_t *ours, size_t bytes)
{
	for (size_t i = 0; i * 8 < bytes; i++)
		if (load(&shared[i]) != ours[i])
			return false;
	return true;
}

static bool same_key(const struct once_entry *entry, const struct once_image *image)
{
	return load(&entry->hash) == image->hash && load(&entry->key_size) == image->key_size &&
	       same_words(entry->resource, image->resource, sizeof image->resource) && same_words(entry->key, image->key, image->key_size);
}

static bool has_expired(const struct once_entry *entry, uint64_t w, uint64_t now_ms)
{
	return (once_phase(w) == ONCE_DONE || once_phase(w) == ONCE_UNKNOWN) && load(&entry->expires_ms) <= now_ms;
}

static uint32_t set_of(const struct map *map, uint64_t hash)
{
	return ((uint32_t)hash & (map->dims.once / ONCE_SET - 1)) * ONCE_SET;
}

bool once_fits(const struct map *map, const struct once_place *place, const struct once_image *image)
{
	char resource[SEGMENT_NAME_SIZE + 1] = "";
	struct once_image own;

	memcpy(resource, image->resource, SEGMENT_NAME_SIZE);
	if (strlen(resource) >= SEGMENT_NAME_SIZE)
		return false;
	once_image_init(&own, resource, image->key, image->key_size);
	return own.hash == image->hash && memcmp(own.resource, image->resource, sizeof own.resource) == 0 &&
	       memcmp(own.key, image->key, sizeof own.key) == 0 && tag_of(&own) == once_tag(place->seen) &&
	       set_of(map, own.hash) == place->slot / ONCE_SET * ONCE_SET;
}

/* ---- looking at a set ---- */

struct look {
	const struct map *map;
	const struct once_image *image;
	uint64_t now_ms;
	uint32_t own; /* our claim, or NO_SLOT */
	bool insist;  /* no rival is given way to */
	uint32_t empty;
	struct once_place known;
};

enum seen { SEEN_NOTHING, SEEN_KNOWN, SEEN_RIVAL };

/* A claim with our tag. True: it is out of the way. */
static bool pass_rival(const struct look *l, uint32_t slot, uint64_t w, bool *give_way)
{
	*give_way = !l->insist && (l->own == NO_SLOT || slot < l->own);
	return !*give_way && swap(&l->map->once_slots[slot], w, once_with(w, ONCE_REVOKED));
}

static enum seen look_at(struct look *l, uint32_t slot)
{
	word *place = &l->map->once_slots[slot];
	const struct once_entry *entry = map_once_entry(l->map, slot);

	for (int i = 0; i < AGAIN; i++) {
		/* seq_cst: comes after our claim, for everybody. */
		uint64_t w = atomic_load_explicit(place, memory_order_seq_cst);
		bool give_way = false;
		if (once_phase(w) == ONCE_EMPTY && l->empty == NO_SLOT)
			l->empty = slot;
		if (once_phase(w) == ONCE_EMPTY || once_phase(w) == ONCE_REVOKED || once_tag(w) != tag_of(l->image))
			return SEEN_NOTHING;
		if (once_phase(w) == ONCE_CLAIMED) {
			if (pass_rival(l, slot, w, &give_way))
				return SEEN_NOTHING;
			if (give_way)
				return SEEN_RIVAL;
			continue;
		}
		bool same = same_key(entry, l->image);
		bool expired = has_expired(entry, w, l->now_ms);
		if (load(place) != w)
			continue;
		if (!same)
			return SEEN_NOTHING;
		if (expired) {
			swap(place, w, once_freed(w));
			continue;
		}
		l->known = (struct once_place){slot, w};
		return SEEN_KNOWN;
	}
	return SEEN_RIVAL;
}

/* All slots of the set but our own, from a place that differs from key to key. */
static enum seen look_over(struct look *l)
{
	uint32_t first = set_of(l->map, l->image->hash);
	uint32_t start = (uint32_t)(l->image->hash >> 40);
	enum seen all = SEEN_NOTHING;

	l->empty = NO_SLOT;
	for (uint32_t i = 0; i < ONCE_SET; i++) {
		uint32_t slot = first + (start + i) % ONCE_SET;
		enum seen one = slot == l->own ? SEEN_NOTHING : look_at(l, slot);
		if (one == SEEN_KNOWN)
			return one;
		if (one == SEEN_RIVAL)
			all = one;
	}
	return all;
}

enum room { ROOM_NONE, ROOM_PERHAPS, ROOM_NOW };

/* No empty slot was seen: the expired go, whosever key it was. ROOM_PERHAPS: somebody has a claim that may come to nothing. */
static enum room make_room(const struct map *map, uint64_t hash, uint64_t now_ms)
{
	uint32_t first = set_of(map, hash);
	enum room room = ROOM_NONE;

	for (uint32_t slot = first; slot < first + ONCE_SET; slot++) {
		uint64_t w = load(&map->once_slots[slot]);
		/* The time may be of a later use of the slot: then the CAS fails. */
		bool expired = has_expired(map_once_entry(map, slot), w, now_ms);
		if (expired)
			swap(&map->once_slots[slot], w, once_freed(w));
		if (expired || once_phase(w) == ONCE_EMPTY)
			room = ROOM_NOW;
		else if (room == ROOM_NONE && once_phase(w) < ONCE_RUNNING)
			room = ROOM_PERHAPS;
	}
	return room;
}

/* ---- recording ---- */

static bool claim(const struct look *l, uint32_t slot, uint32_t life, struct once_place *mine)
{
	uint64_t w = load(&l->map->once_slots[slot]);

	*mine = (struct once_place){slot, once_make(life, once_version(w) + 1, tag_of(l->image), ONCE_CLAIMED)};
	return once_phase(w) == ONCE_EMPTY && swap(&l->map->once_slots[slot], w, mine->seen);
}

static void write_entry(struct once_entry *entry, const struct once_image *image)
{
	store(&entry->hash, image->hash);
	store(&entry->expires_ms, image->expires_ms);
	store(&entry->on_death, image->on_death);
	store(&entry->origin, image->origin);
	store(&entry->key_size, image->key_size);
	store(&entry->answer_size, image->answer_size);
	store_words(entry->resource, image->resource, sizeof image->resource);
	store_words(entry->key, image->key, image->key_size);
	store_words(entry->answer, image->answer, image->answer_size);
}

/* Our claim, revoked or not. */
static void give_up(const struct map *map, const struct once_place *mine)
{
	word *place = &map->once_slots[mine->slot];

	if (!swap(place, mine->seen, once_freed(mine->seen)))
		swap(place, once_with(mine->seen, ONCE_REVOKED), once_freed(mine->seen));
}

/* Steps 2 to 4. ONCE_CONTESTED: start over. */
static enum once_inserted record(struct look *l, uint32_t life, uint64_t phase_and_owner, struct once_place *place)
{
	struct once_place mine;

	FAILPOINT("once.absent");
	if (!claim(l, l->empty, life, &mine))
		return ONCE_CONTESTED;
	FAILPOINT("once.claimed");
	write_entry(map_once_entry(l->map, mine.slot), l->image);
	FAILPOINT("once.written");
	l->own = mine.slot;
	enum seen seen = look_over(l);
	FAILPOINT("once.looked");
	uint64_t committed =
	        once_make(once_owner(phase_and_owner), once_version(mine.seen), once_tag(mine.seen), once_phase(phase_and_owner));
	if (seen == SEEN_NOTHING && swap(&l->map->once_slots[mine.slot], mine.seen, committed)) {
		*place = (struct once_place){mine.slot, committed};
		FAILPOINT("once.recorded");
		return ONCE_INSERTED;
	}
	give_up(l->map, &mine);
	*place = l->known;
	return seen == SEEN_KNOWN ? ONCE_KNOWN : ONCE_CONTESTED;
}

/* One try. ONCE_CONTESTED, and *full: it is worth another one. */
static enum once_inserted try_to_insert(struct look *l, uint32_t life, uint64_t phase_and_owner, struct once_place *place, bool *full)
{
	enum seen seen = look_over(l);

	*full = false;
	*place = l->known;
	if (seen == SEEN_KNOWN)
		return ONCE_KNOWN;
	if (seen == SEEN_RIVAL)
		return ONCE_CONTESTED;
	if (l->empty != NO_SLOT)
		return record(l, life, phase_and_owner, place);
	enum room room = make_room(l->map, l->image->hash, l->now_ms);
	*full = room != ROOM_NOW;
	return room == ROOM_NONE ? ONCE_FULL : ONCE_CONTESTED;
}

enum once_inserted once_insert(const struct map *map, const struct once_image *image, uint32_t life, enum once_phase phase, uint32_t owner,
                               uint64_t now_ms, struct once_place *place)
{
	bool full = false;

	for (int i = 0; i < TRIES; i++) {
		struct look l = {.map = map, .image = image, .now_ms = now_ms, .own = NO_SLOT, .insist = i >= PATIENCE};
		enum once_inserted r = try_to_insert(&l, life, once_make(owner, 0, 0, phase), place, &full);
		if (r != ONCE_CONTESTED)
			return r;
	}
	return full ? ONCE_FULL : ONCE_CONTESTED;
}

/* ---- what is recorded ---- */

bool once_read(const struct map *map, const struct once_place *place, struct once_image *image)
{
	const struct once_entry *entry = map_once_entry(map, place->slot);
	uint64_t key_size = load(&entry->key_size);
	uint64_t answer_size = once_phase(place->seen) == ONCE_DONE ? load(&entry->answer_size) : 0;

	memset(image, 0, offsetof(struct once_image, answer));
	if (key_size == 0 || key_size > RESC_ONCE_KEY_MAX || answer_size > RESC_ONCE_ANSWER_MAX)
		return false; /* another use, or damage */
	image->hash = load(&entry->hash);
	image->expires_ms = load(&entry->expires_ms);
	image->on_death = load(&entry->on_death);
	image->origin = load(&entry->origin);
	image->key_size = (uint32_t)key_size;
	image->answer_size = (uint32_t)answer_size;
	load_words(entry->resource, image->resource, sizeof image->resource);
	load_words(entry->key, image->key, key_size);
	load_words(entry->answer, image->answer, answer_size);
	return load(&map->once_slots[place->slot]) == place->seen;
}

/* Whoever has announced itself after the change sees the change; whoever did before is woken (Dekker again). */
static void wake(const struct map *map, uint32_t slot)
{
	word *waiters = &map_once_entry(map, slot)->waiters;

	if (atomic_load_explicit(waiters, memory_order_seq_cst) == 0)
		return;
	atomic_store_explicit(waiters, 0, memory_order_seq_cst);
	futex_wake_all(&map->once_slots[slot]);
}

bool once_turn(const struct map *map, const struct once_place *place, uint64_t next)
{
	if (!swap(&map->once_slots[place->slot], place->seen, next))
		return false;
	FAILPOINT("once.turned");
	wake(map, place->slot);
	return true;
}

bool once_take(const struct map *map, uint32_t life, struct once_place *place)
{
	uint64_t storing = once_make(life, once_version(place->seen), once_tag(place->seen), ONCE_STORING);

	/* Copies of one ticket in two threads, or two who settle: one of them goes on. */
	if (!swap(&map->once_slots[place->slot], place->seen, storing))
		return false;
	place->seen = storing;
	FAILPOINT("once.storing");
	return true;
}

bool once_store(const struct map *map, const struct once_place *place, const void *answer, size_t size, uint64_t expires_ms)
{
	struct once_entry *entry = map_once_entry(map, place->slot);
	uint64_t words[RESC_ONCE_ANSWER_MAX / 8] = {0};

	if (size > 0)
		memcpy(words, answer, size);
	store_words(entry->answer, words, size);
	store(&entry->answer_size, size);
	store(&entry->expires_ms, expires_ms);
	FAILPOINT("once.stored");
	return once_turn(map, place, once_with(place->seen, ONCE_DONE));
}

/* ---- the dead, and people ---- */

static bool is_in_work(uint64_t w)
{
	return once_phase(w) >= ONCE_CLAIMED && once_phase(w) <= ONCE_STORING;
}

/* What a word of the dead becomes. */
static uint64_t without_owner(const struct once_entry *entry, uint64_t w)
{
	bool begun = once_phase(w) == ONCE_RUNNING || once_phase(w) == ONCE_STORING;
	bool free = once_phase(w) == ONCE_RUNNING && load(&entry->on_death) == ON_DEATH_FREE;

	return begun && !free ? once_with(w, ONCE_UNKNOWN) : once_freed(w);
}

/* A rival may revoke a dead one's claim at this very moment: so not one try. */
static void reap_slot(const struct map *map, uint32_t slot, uint32_t life)
{
	for (int i = 0; i < AGAIN; i++) {
		/* Acquire: the entry is at least as new as the word. */
		struct once_place place = {slot, load(&map->once_slots[slot])};
		if (once_owner(place.seen) != life || !is_in_work(place.seen))
			return;
		if (once_turn(map, &place, without_owner(map_once_entry(map, slot), place.seen)))
			return;
	}
}

void once_reap(const struct map *map, uint32_t life)
{
	for (uint32_t i = 0; i < map->dims.once; i++) {
		uint64_t w = atomic_load_explicit(&map->once_slots[i], memory_order_relaxed);
		if (once_owner(w) != life || !is_in_work(w))
			continue;
		reap_slot(map, i, life);
		FAILPOINT("reap.once");
	}
}

bool once_holds(const struct map *map, uint32_t life)
{
	for (uint32_t i = 0; i < map->dims.once; i++) {
		uint64_t w = atomic_load_explicit(&map->once_slots[i], memory_order_relaxed);
		if (once_owner(w) == life && is_in_work(w))
			return true;
	}
	return false;
}

void once_usage(const struct map *map, struct once_usage *out)
{
	uint64_t now_ms = clock_coarse_ms(map);

	*out = (struct once_usage){.size = map->dims.once};
	for (uint32_t i = 0; i < map->dims.once; i++) {
		uint64_t w = load(&map->once_slots[i]);
		out->working += is_in_work(w) || once_phase(w) == ONCE_AWAY;
		out->done += once_phase(w) == ONCE_DONE;
		out->unknown += once_phase(w) == ONCE_UNKNOWN;
		out->expired += has_expired(map_once_entry(map, i), w, now_ms);
	}
}
