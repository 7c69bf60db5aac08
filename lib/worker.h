/* SPDX-License-Identifier: MIT */
/*
 * Lives, liveness tokens, and the dead.
 *
 * Register: life = fetch_add(next_life) -> lock its byte -> CAS a slot 0 -> life. Leave: CAS slot life -> 0 -> unlock.
 * Reap (anybody, any number at once): w = load slot -> is the byte of w unlocked? -> CAS every cell of every kind of w to 0 ->
 * bump the wait words -> tell it (event) -> CAS slot w -> 0, last. A death in the middle of a reap leaves the slot, and the next one does
 * it all again. Not to be reordered: lock before claim, load before test, slot last, CAS and never store (the models show what breaks).
 */
#ifndef RESC_WORKER_H
#define RESC_WORKER_H

#include "map.h"

struct worker {
	uint32_t life; /* 0: not registered */
	uint32_t slot;
	void *token; /* the page that keeps the lock: see worker.c. NULL in private mode */
};

/* 0; -ENOSPC all slots taken by the living (the dead are reaped first); -EOVERFLOW, -EBUSY, -errno as life_take, or of the token. */
int worker_register(const struct map *map, struct worker *worker);
/* Gives back every cell, then the slot, then the token. used: a bit a resource that this life may have cells in; NULL: all. */
void worker_unregister_from(const struct map *map, struct worker *worker, const uint64_t *used);
static inline void worker_unregister(const struct map *map, struct worker *worker)
{
	worker_unregister_from(map, worker, NULL);
}

/* Gives up the token alone, where nothing in the segment may be touched any more. */
void worker_forsake(struct worker *worker);

/*
 * A life without a slot; the description of fd holds its token until life_give_back. 0; -EOVERFLOW lives used up; -EBUSY; -errno of the
 * lock.
 */
int life_take(const struct map *map, int fd, uint32_t *life);
void life_give_back(int fd, uint32_t life);

/* Is the token of that life held by another open file description than this map's? When the kernel cannot be asked: yes. */
bool life_is_held(const struct map *map, uint32_t life);

/*
 * Reaps the life in a slot if it is dead. certain: the caller knows that it is (its pidfd said so): the token is not asked, because a
 * child of vfork() that has not called exec() yet still holds it. True if that life is gone from the slot now. own_life: the caller's.
 */
bool worker_reap(const struct map *map, uint32_t slot, uint32_t life, bool certain, uint32_t own_life);
/* Looks at all slots. Returns how many were reaped. */
unsigned worker_sweep(const struct map *map, uint32_t own_life);
/* The same from a call that met a full bulkhead or an outstanding probe: at most once in SWEEP_INTERVAL_MS over all workers, by the real
 * coarse clock (also in the test build: deaths are real). True if somebody was reaped. */
#define SWEEP_INTERVAL_MS 50u
bool worker_sweep_maybe(const struct map *map, struct state *state, uint64_t now_ms, uint32_t own_life);

#endif
