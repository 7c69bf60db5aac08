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
/* Live workers, as a share counts them. */
unsigned share_workers(const struct map *map);
/* rescd, in a successor before it is announced: so many workers are on their way here, until then their shares count. */
void share_expect(const struct map *map, unsigned workers, uint64_t until_ms);

#endif
