/* SPDX-License-Identifier: MIT */
/*
 * Injected faults: an operator has a share of the calls fail or wait, on a host that serves, to see what its callers make of it.
 *
 * Who writes: resctl, directly; whoever finds it over or forbidden ends it. Set: load the word {on, serial, until} -> load the setting in
 * the place of the next serial -> claim its text (note.h) -> CAS the word to itself, marked -> CAS the setting, which carries a serial that
 * is 2 above that of the one before in its place -> text -> CAS the marked word to {on, that serial, until}. End: CAS the word to {off,
 * serial}; who wins writes the event. A call loads the word, then the setting of its serial, then takes a number. The model is
 * tests/model/injection.pml. A death before the last CAS leaves what was in force (its end a millisecond earlier, by the mark), and a slot
 * that the next setter takes over; one after it leaves the injection in force without its event. Nothing has to be repaired: `until` is
 * looked at on each use, and it is never further away than INJECTION_MOST_MS.
 */
#ifndef RESC_INJECTION_H
#define RESC_INJECTION_H

#include <stdbool.h>

#include "map.h"
#include "words.h"

#define INJECTION_MOST_MS         3600000u /* the longest one */
#define INJECTION_LATENCY_MOST_MS 60000u   /* the longest that a call is made to wait */
#define INJECTION_FUTURE_MS       10000u   /* coarse clocks of two processors differ by a tick; this is much more */

struct injection {
	uint32_t fail_ppm;
	uint32_t share_ppm; /* of calls that wait */
	uint32_t latency_ms;
};

/*
 * Injects for that time. text: the reason, cut to fit. Verifies that it is there before it says so. 0; -EINVAL nothing to inject, or out
 * of range; -ENOENT no such resource; -EPERM the policy does not allow it; -ENOTSUP the segment is of a format without; -EBUSY others
 * changed it at the same moment, several times; -ESTALE the segment was superseded: attach again.
 */
int injection_set(const struct map *map, uint32_t index, const struct injection *injection, uint64_t for_ms, const char *text);
/* Ends it before its time. 0; -ESRCH none is in force; -ENOENT, -ENOTSUP, -EBUSY, -ESTALE as above. */
int injection_stop(const struct map *map, uint32_t index, const char *text);

/* Why one ended: the second value of its event. */
enum injection_end { INJECTION_EXPIRED = 1, INJECTION_STOPPED, INJECTION_FORBIDDEN };
const char *injection_end_name(enum injection_end end); /* "expired", "stopped", "forbidden" */

/* What was injected, by an event of kind INJECTED or INJECTION_ENDED. */
struct event;
struct injection injection_of_event(const struct event *event);

/* Ends one whose time is over. Anybody; also from a worker's call. */
void injection_expire(const struct map *map, uint32_t index, uint32_t life, uint64_t now_ms);
/* The policy does not allow it any more: ends whatever is in force. For rescd. */
void injection_forbid(const struct map *map, uint32_t index);

/* Is one in force, by that word at that time? One that ends later than any can is damage, and is not. */
static inline bool injection_holds(uint64_t w, uint64_t now_ms)
{
	return injection_is_on(w) && injection_kind(w) != WORD_MOVED && now_ms < injection_until_ms(w) &&
	       injection_until_ms(w) - now_ms <= INJECTION_MOST_MS + INJECTION_FUTURE_MS;
}
/* What it does, by its setting: each within its range. False: the setting is of another one. */
bool injection_read(const struct state *state, uint64_t w, struct injection *injection);
/*
 * Does the share fall on call number n? Exact: of so many consecutive calls that the share of them is a whole number, just that many.
 * phase (of a million): two shares with different phases do not fall on the same calls only because they are as large.
 */
bool injection_falls(uint64_t n, uint32_t ppm, uint32_t phase);

#endif
