/* SPDX-License-Identifier: MIT */
/* Names and their records: into use, changed, out of use. See record.c. */
#ifndef RESC_RECORD_H
#define RESC_RECORD_H

#include "policy.h"

/*
 * A record belongs to one name for the life of the segment, so that a worker which is slow to notice never adds to somebody else's
 * counters. A name that was retired and comes back gets its record back: breaker closed, budget full, counters where they were, and
 * whoever was still inside still holds its permit. Free records are taken until the table is full; then it is time for a successor.
 *
 * record_publish puts a name in use; rescd, or a private view. Returns its index, or -ENOSPC.
 */
int record_publish(const struct map *map, const char *name, const struct policy *policy);
/* Is there a record for that name, its own or a free one? */
bool record_has_room(const struct map *map, const char *name);
/* The same for a fresh successor, at the index that it had: its state words stay empty until they are moved (move.h), its limit is born in
 * debt. name may be a retired one: retired is then true. */
void record_publish_moved(const struct map *map, uint32_t index, const char *name, const struct policy *policy, bool retired);
/* Takes a record out of use: lookups do not find it, calls get -ENOENT; its state and whoever is inside stay. rescd. */
void record_retire(const struct map *map, uint32_t index);

/* Applies a changed policy to the state of a live resource: the bulkhead's limit, the budget's capacity. rescd only;
 * after policy_write. Holders, windows, breaker state stay. */
void record_apply(const struct map *map, uint32_t index, const struct policy *policy);

#endif
