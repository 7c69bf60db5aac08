/* SPDX-License-Identifier: MIT */
/*
 * Overrides: an operator's word beside the breaker. Written directly, by resctl, so that it works with rescd dead.
 *
 * Set: text into the slot of serial+1 -> CAS the word {mode, until, serial+1}. End (released, or expired: whoever sees it first): load
 * breaker, load override, CAS the breaker to {closed, generation+1}, then CAS the override away; a racer's CAS fails on the generation.
 * A death between the two CAS leaves a closed breaker under the override, and the next who sees it goes on.
 *
 * Every function: -ESTALE when the segment was superseded and the word has moved; attach again.
 */
#ifndef RESC_OVERRIDE_H
#define RESC_OVERRIDE_H

#include <sys/types.h>

#include "map.h"
#include "words.h"

/*
 * Forces a resource. for_ms 0: until released. text: the reason, cut to fit. Verifies that the word is there before it says so.
 * 0; -EINVAL no such mode; -ENOENT; -EBUSY when others changed it at the same moment, several times.
 */
int override_set(const struct map *map, uint32_t index, enum override_mode mode, uint64_t for_ms, const char *text);
/* Ends an override. 0; -ENOENT no such resource; -ESRCH when there is none in force; -EBUSY. */
int override_release(const struct map *map, uint32_t index, const char *text);
/* Breaker closed, fresh window, streak 0, full budget and rate limit, nothing throttled. An override stays. 0, -ENOENT, -EBUSY. */
int override_reset(const struct map *map, uint32_t index, const char *text);
/* Ends an override whose time is over. True if it is gone now. Anybody; also from a worker's call. */
bool override_expire(const struct map *map, uint32_t index, uint32_t life, uint64_t now_ms);

const char *override_mode_name(enum override_mode mode);

#endif
