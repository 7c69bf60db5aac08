/* SPDX-License-Identifier: MIT */
/*
 * The rate limit of a resource: the generic cell rate algorithm (GCRA: ITU-T I.371; a leaky bucket as a meter), for all workers of the
 * host together, in one word {kind, epoch, theoretical arrival time}. See rate.c.
 */
#ifndef RESC_RATE_H
#define RESC_RATE_H

#include "map.h"

/* What a take changed, so that it can be given back. Zero: nothing. Times are in quarters of a nanosecond. */
struct rate_taken {
	uint64_t before;
	uint64_t after;
	uint64_t amount;
	uint64_t depth;
};

/* A policy in the units of the word. Working it out costs two divisions, so a view keeps it. */
struct rate_limit {
	uint64_t per_second; /* millionths */
	uint64_t burst;
	uint64_t token; /* the time of one */
	uint64_t depth;
};
struct rate_limit rate_limit_of(uint64_t per_second, uint64_t burst);

/*
 * Takes cost tokens (0 counts as 1). now_ns: of clock_fine_ns. most_wait_ns: how long the caller would wait (a day at most); 0: not at all.
 *	0		taken, and conforming after *wait_ns (0: now; at most most_wait_ns)
 *	RESC_E_RATE	nothing was taken; it would conform after *wait_ns
 *	RESC_E_COST	above the burst: it never can
 *	-ESTALE		the word has moved to the successor, or is not there yet
 */
int rate_take(const struct map *map, struct state *state, const struct policy *policy, uint32_t cost, uint64_t now_ns,
              uint64_t most_wait_ns, struct rate_taken *taken, uint64_t *wait_ns);
/* The same, by who has worked out the limit of that policy before. */
int rate_take_by(const struct map *map, struct state *state, const struct policy *policy, const struct rate_limit *limit, uint32_t cost,
                 uint64_t now_ns, uint64_t most_wait_ns, struct rate_taken *taken, uint64_t *wait_ns);
/* Another guard refused. Where nobody has taken since, the word is exactly as before; otherwise the tokens are put back. Zeroes *taken. */
void rate_give_back(const struct map *map, struct state *state, struct rate_taken *taken);
/* For rescd, after it has written another policy: the new rate counts from this moment, not from when somebody takes. */
void rate_settle(const struct map *map, struct state *state);
/* Could takes by that policy, which is the newest, have made the word? Another epoch's are not judged. Writes nothing. */
bool rate_is_possible(const struct map *map, const struct state *state, const struct policy *policy);
/* Makes it full, for an operator's reset. 0, or -ESTALE. */
int rate_fill(struct state *state);
/* Millionths of a token that are there at that time: 0..burst. Writes nothing. */
uint64_t rate_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ns);

#endif
