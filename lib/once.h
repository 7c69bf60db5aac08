/* SPDX-License-Identifier: MIT */
/* Idempotency keys in the segment. The protocol, and what a death leaves, is in once.c; its model in tests/model/once.pml. */
#ifndef RESC_ONCE_H
#define RESC_ONCE_H

#include "map.h"

/* A life ended: its keys become unknown or free, as their policies say. For the reaper, and for a worker that leaves. */
void once_reap(const struct map *map, uint32_t life);
/* Does that life have a key in work here? Then its attachment must stay. */
bool once_holds(const struct map *map, uint32_t life);
/* From a superseded segment to its successor. Anyone, any number at once; *done keys and those of the dead are copied, those in work stay
 * and are marked as away in the new one. Once it has been done completely, keys can begin in the new one. */
void once_move(const struct map *from, const struct map *to);
/* Looks after the keys that are away: copies what their owners stored in the old segment. True: none is left. rescd, each second. */
bool once_settle(const struct map *from, const struct map *to);

struct once_usage {
	uint32_t size;
	uint32_t working;
	uint32_t done;
	uint32_t unknown;
	uint32_t expired; /* of done and unknown: free for the next */
};
/* For people. index UINT32_MAX: of all resources. */
void once_usage(const struct map *map, struct once_usage *out);

#endif
