/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys in the segment. The protocol, and what a death leaves, is in once.c; its model is tests/model/once.pml. The calls of a
 * worker are in once_call.c, the way into a successor in once_move.c.
 *
 * A slot word is {owner:32, version:16, tag:13, phase:3}. Its low half changes with each transition and is a futex. The version grows with
 * each claim and stays in an empty slot; so a word that was seen belongs to one use of the slot, and every change is a CAS of that word.
 */
#ifndef RESC_ONCE_H
#define RESC_ONCE_H

#include <stdbool.h>

#include "map.h"

enum once_phase {
	ONCE_EMPTY = 0,
	ONCE_CLAIMED = 1, /* its owner writes the entry */
	ONCE_REVOKED = 2, /* a rival took the right away; the owner, who may be writing still, frees it */
	ONCE_RUNNING = 3, /* recorded: the owner works on the key */
	ONCE_STORING = 4, /* the owner writes the answer, or settles an unknown key */
	ONCE_DONE = 5,
	ONCE_UNKNOWN = 6, /* its owner died */
	ONCE_AWAY = 7,    /* in work in the superseded segment; owner is the number of the slot there */
};

static inline uint64_t once_make(uint32_t owner, unsigned version, unsigned tag, enum once_phase phase)
{
	return (uint64_t)owner << 32 | (uint64_t)(version & 0xffff) << 16 | (uint64_t)(tag & 0x1fff) << 3 | (uint64_t)phase;
}
static inline uint32_t once_owner(uint64_t w)
{
	return (uint32_t)(w >> 32);
}
static inline unsigned once_version(uint64_t w)
{
	return (unsigned)(w >> 16) & 0xffff;
}
static inline unsigned once_tag(uint64_t w)
{
	return (unsigned)(w >> 3) & 0x1fff;
}
static inline enum once_phase once_phase(uint64_t w)
{
	return (enum once_phase)(w & 7);
}
static inline uint64_t once_with(uint64_t w, enum once_phase phase)
{
	return (w & ~UINT64_C(7)) | (uint64_t)phase;
}
/* Empty again: nothing is left but the version. */
static inline uint64_t once_freed(uint64_t w)
{
	return once_make(0, once_version(w), 0, ONCE_EMPTY);
}
/* Are these two words of one use of a slot? */
static inline bool once_same_use(uint64_t a, uint64_t b)
{
	return (uint32_t)a >> 3 == (uint32_t)b >> 3;
}

/* A key of a resource, and what an entry says of it; in this process's memory. */
struct once_image {
	uint64_t hash;
	uint64_t expires_ms;
	uint64_t on_death;
	uint64_t origin;
	uint32_t key_size;
	uint32_t answer_size;
	uint64_t resource[SEGMENT_NAME_SIZE / 8];
	uint64_t key[256 / 8];
	uint64_t answer[RESC_ONCE_ANSWER_MAX / 8];
};

/* Where a key was found, and the slot word of that moment. */
struct once_place {
	uint32_t slot;
	uint64_t seen;
};

/* A key that has no answer. size is 1 to RESC_ONCE_KEY_MAX. */
void once_image_init(struct once_image *image, const char *resource, const void *key, size_t size);

enum once_inserted {
	ONCE_INSERTED,  /* by us: place is ours */
	ONCE_KNOWN,     /* somebody else's, in place */
	ONCE_CONTESTED, /* somebody else is about to record it */
	ONCE_FULL,
};

/* Finds the key, or records it as life's, in that phase; after that owner is who the word names. now_ms: what has expired by then is gone.
 */
enum once_inserted once_insert(const struct map *map, const struct once_image *image, uint32_t life, enum once_phase phase, uint32_t owner,
                               uint64_t now_ms, struct once_place *place);
/* A copy of a committed entry, of one use: false when the slot has moved on. With its answer if it has one. */
bool once_read(const struct map *map, const struct once_place *place, struct once_image *image);
/* Can that copy be found where it was read: are hash, tag and set those of its resource and key, and the bytes behind them zero? */
bool once_fits(const struct map *map, const struct once_place *place, const struct once_image *image);
/* RUNNING or UNKNOWN -> STORING of that life, and *place with it. False: it is not that word any more, and nothing was changed. */
bool once_take(const struct map *map, uint32_t life, struct once_place *place);
/* STORING, taken by us -> DONE with an answer. False: our life was ended meanwhile. */
bool once_store(const struct map *map, const struct once_place *place, const void *answer, size_t size, uint64_t expires_ms);
/* That very word becomes the other; sleepers are woken. False: it has moved on. */
bool once_turn(const struct map *map, const struct once_place *place, uint64_t next);

/* Will this key be noticed? No word of a key counts here: a successor into which the keys have not been brought yet. */
static inline bool once_is_ready(const struct map *map)
{
	/* Acquire: the keys are there when it says so. */
	return map->predecessor == 0 || atomic_load_explicit(&map->live->once_ready, memory_order_acquire) != 0;
}
/* No key can begin here any more: the successor counts. seq_cst: whoever has committed a key looks here after that. */
static inline bool once_is_closed(const struct map *map)
{
	return atomic_load_explicit(&map->live->once_closed, memory_order_seq_cst) != 0;
}

/* A life ended: its keys become unknown or free, as their policies say. For the reaper, and for a worker that leaves. */
void once_reap(const struct map *map, uint32_t life);
/* Does that life have a key in work here? Then its attachment must stay. */
bool once_holds(const struct map *map, uint32_t life);

/* The claims of rescd, which has no life of its own, while it moves keys. */
#define ONCE_LIFE_OF_RESCD UINT32_MAX
/*
 * From a superseded segment to its successor. Anyone, any number at once: closes the old table; done and unknown keys are copied, those in
 * work stay there and are away in the new one. True when all are there and keys can begin in the new one. life: of the mover, in `to`.
 */
bool once_move(const struct map *from, const struct map *to, uint32_t life);
/*
 * Looks after the keys that are away, each second: takes over what became of them in the old segment. True: none is left. rescd alone.
 * from NULL: that segment is gone for good. Then no more keys come from it, and what is away is unknown.
 */
bool once_settle(const struct map *from, const struct map *to);

struct once_usage {
	uint32_t size;
	uint32_t working;
	uint32_t done;
	uint32_t unknown;
	uint32_t expired; /* of done and unknown: free for the next */
};
/* For people. */
void once_usage(const struct map *map, struct once_usage *out);

#endif
