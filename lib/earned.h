/* SPDX-License-Identifier: MIT */
/*
 * Tokens of the retry budget that expire: when they were earned. Only where the policy has a ttl. See earned.c; the bucket is budget.c.
 *
 * What a depositor does: the slice first, then the tokens (release). What a withdrawer does: load the tokens (acquire), then ask
 * earned_live: no more than that is left of them.
 */
#ifndef RESC_EARNED_H
#define RESC_EARNED_H

#include <stdbool.h>

#include "map.h"

static inline bool earned_expires(const struct policy *policy)
{
	return policy->budget_ttl_ms != 0;
}

/* So much was earned at that time. False: that is so long ago that it has expired. A slice that holds the capacity is only read. */
bool earned_add(const struct map *map, struct state *state, const struct policy *policy, uint64_t at_ms, uint64_t amount);
/* The floor has paid `due` for the time between the two, evenly. Returns what of it has not expired. */
uint64_t earned_floor(const struct map *map, struct state *state, const struct policy *policy, uint64_t from_ms, uint64_t until_ms,
                      uint64_t due);
/* Everything that is in the bucket counts as earned now. */
void earned_renew(const struct map *map, struct state *state, const struct policy *policy);

/* What was earned and has not expired. For who changes the tokens: all slices are of one moment, which is now. */
uint64_t earned_live(const struct map *map, const struct state *state, const struct policy *policy);
/* The same at that time, for who only reads. */
uint64_t earned_at(const struct state *state, const struct policy *policy, uint64_t now_ms);
/* What was earned before this has expired. */
uint64_t earned_since(const struct policy *policy, uint64_t now_ms);

/* Drops the slices of policies before this one. rescd, before it writes another. */
void earned_clean(struct state *state, const struct policy *policy);
/* From a superseded segment to its successor: anyone, several at once, any number of times. Before and after the tokens are moved. */
void earned_carry(const struct state *old, struct state *new);

#endif
