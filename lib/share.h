/* SPDX-License-Identifier: MIT */
/* A bulkhead's limit as a share of the live workers, after Semian's quota. See share.c. */
#ifndef RESC_SHARE_H
#define RESC_SHARE_H

#include "map.h"

/* The limit of a bulkhead now, in whatever mode: its number, or its share of the live workers, rounded up. 1..dims.permits. */
unsigned share_limit(const struct map *map, const struct policy *policy);
/* What the limit word is set to for it: all permit cells where there is no bulkhead, or one in shadow mode. */
unsigned share_target(const struct map *map, const struct policy *policy);
/* rescd, before it works out a limit: from now on that record's limit follows the workers, if its policy says so. */
void share_follow(const struct map *map, uint32_t index, const struct policy *policy);
/* Workers came or went: sets the limits of all resources that have a share. Anyone, any number at once. */
void share_recount(const struct map *map);
/* Live workers, as a share counts them: those that are here, or those that are expected where they are more. */
unsigned share_workers(const struct map *map);
/* Those that are here. */
unsigned share_taken(const struct map *map);
/* rescd, in a successor: so many workers there are with those that have not come yet, until that time at most; 0: all are here. */
void share_expect(const struct map *map, unsigned workers, uint64_t until_ms);
bool share_is_expecting(const struct map *map);

#endif
