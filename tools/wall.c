/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: all times in a segment are on the monotonic clock, and people read the wall clock. The segment knows what that was when
 * it was made, which is right until the machine sleeps (the monotonic clock stands still) or the wall clock is set, as it often is
 * soon after a boot. Then counting back from now is right for everything that happened since, so that is done when the two disagree
 * by more than slewing explains. Otherwise from the creation: it gives the same answer each time.
 *
 * In the test build segment time is a word that tests move, and only the creation has a wall clock.
 */
#include "wall.h"

#include "clock.h"

#define NS_PER_MS UINT64_C(1000000)

#ifndef RESC_TEST_CLOCK
#define DISAGREE_MS 2000
#endif

uint64_t wall_clock_ns(const struct map *map, uint64_t ms)
{
	uint64_t from_creation = map->created_real_ns + ms * NS_PER_MS;
#ifndef RESC_TEST_CLOCK
	uint64_t real_ms = clock_read_ns(CLOCK_REALTIME) / NS_PER_MS, now_ms = clock_coarse_ms(map);
	int64_t drift = (int64_t)(real_ms - now_ms - map->created_real_ns / NS_PER_MS);
	if ((drift > DISAGREE_MS || drift < -DISAGREE_MS) && real_ms > now_ms)
		return (real_ms - now_ms + ms) * NS_PER_MS;
#endif
	return from_creation;
}
