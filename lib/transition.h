/* SPDX-License-Identifier: MIT */
/*
 * Moving a breaker: the one place where its word changes. See transition.c.
 */
#ifndef RESC_TRANSITION_H
#define RESC_TRANSITION_H

#include "map.h"
#include "words.h"

/*
 * ONE CAS of the breaker word: expected -> {tag, streak, generation of expected + 1, ms_field}. ms_field is the due time for TAG_OPEN, else
 * since when. False: somebody else has moved it, and nothing was done. True: this call won, and has recorded it: reason, counter, event
 * (v0, v1 go into its value[]). life: the caller's, or 0. now_ms: the segment time that the decision was made with.
 */
bool breaker_transition(const struct map *map, uint32_t index, uint64_t expected, unsigned tag, unsigned streak, uint64_t ms_field,
                        enum reason reason, uint32_t life, uint64_t now_ms, uint64_t v0, uint64_t v1);

#endif
