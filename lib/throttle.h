/* SPDX-License-Identifier: MIT */
/*
 * Client-side throttling: refuse with probability max(0, (requests - K * accepts) / (requests + 1)) over a window ("Handling Overload" in
 * Site Reliability Engineering, 2016). The window is that of the whole host. See throttle.c.
 */
#ifndef RESC_THROTTLE_H
#define RESC_THROTTLE_H

#include "map.h"
#include "words.h"

struct view;

/*
 * The share was 0 when it was last worked out: nothing is refused, and nobody has to know the time. Each call is counted when it ends, and
 * whoever counts works the share out again when it is old.
 */
static inline bool throttle_is_idle(const struct state *state)
{
	return throttle_ppm(atomic_load_explicit(&state->throttle, memory_order_relaxed)) == 0;
}
/* Shall this call be refused? Draws a random number where some are. Counts nothing. */
bool throttle_refuses(const struct view *v, uint64_t now_ms);
/* A call that ended, or (accepted false) was refused by the throttle itself. Outcomes that say nothing are not counted by the caller. */
void throttle_count(const struct view *v, bool accepted, uint64_t now_ms);
/* Requests and accepts in the window now, and the share that is refused, in parts per million. Writes nothing. */
uint32_t throttle_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint64_t *requests,
                      uint64_t *accepts);
/* Nothing that was counted until now counts any more: for an operator's reset, and a record that gets another name. */
void throttle_forget(struct state *state, uint64_t now_ms);

#endif
