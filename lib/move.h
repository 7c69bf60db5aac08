/* SPDX-License-Identifier: MIT */
/*
 * From a superseded segment to its successor. Everything here may be done by anybody, by several at once, any number
 * of times, and be cut off anywhere by a death.
 *
 * Words (breaker, override, injection, streak, tokens, rate): r = load new (empty or prepared) -> w = load old; MOVED: done -> CAS new r ->
 * prepared|w -> CAS old w -> MOVED; on a failed CAS start again.
 * Permits: the new limit is born {target, effective 0, debt target}; close the old one {0, 0, 0} for good -> occupied = old cells that are
 * not 0 -> debt = min(debt, occupied).
 * Counters and windows: the sum over the old shards is put into the new `carried` by CAS-max, again and again until the old one is empty.
 */
#ifndef RESC_MOVE_H
#define RESC_MOVE_H

#include "map.h"

/* Has this record the same name in both, retired or not? Indices stay; a name that was dropped makes room for another. */
bool move_is_same(const struct map *from, const struct map *to, uint32_t index);
/* All that follows, of a record that is the same in both. Returns the debt that is left. */
unsigned move_resource(const struct map *from, const struct map *to, uint32_t index);
/* Moves the words of one resource. On return the new ones count. */
void move_words(const struct map *from, struct state *old, const struct map *to, struct state *new);
/* Closes the old permits and lowers the debt. Returns the debt that is left. */
unsigned move_permits(const struct map *from, struct state *old, const struct map *to, struct state *new);
/* For rescd, each second: ghosts of leases that have ended without their owner. Returns how many there are. */
unsigned move_ghosts(const struct state *old, struct state *new);
/* Carries counters, latencies and window buckets. */
void move_carry(const struct map *from, struct state *old, const struct map *to, struct state *new);

#endif
