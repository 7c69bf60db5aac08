/* SPDX-License-Identifier: MIT */
/*
 * A cap on retries in flight: at most the larger of a floor and a share of the calls in flight, as in Envoy's retry budget. Who is inside
 * with a retry says so in its permit cell, so nothing is counted twice and a death leaves nothing. See retries.c.
 */
#ifndef RESC_RETRIES_H
#define RESC_RETRIES_H

#include <stdbool.h>

#include "map.h"

/* Retries in flight now; *calls: all calls in flight. A pass over the permits. */
unsigned retries_count(const struct map *map, const struct state *state, unsigned *calls);
/*
 * May there be this one? entered: it has its cell, or had one as a retry that has just failed and asks again, and counts as being inside.
 * Otherwise it is one more. A share of the calls rounds down. A lone failing call gets the same answer before and after its leave: it
 * is one call in flight where there is none. Of several that enter at the same moment all may be told no.
 */
bool retries_fit(const struct map *map, const struct state *state, const struct policy *policy, bool entered);

#endif
