/* SPDX-License-Identifier: MIT */
/*
 * Backoff spreads retries over time, jitter spreads them over the workers; the names and formulas are those of "Exponential Backoff And
 * Jitter" (AWS Architecture Blog, 2015), with w = the wait without jitter:
 *
 *	none		w
 *	full		0 .. w
 *	equal		w/2 .. w
 *	decorrelated	base .. 3 * previous wait, at most the cap (it makes its own growth, so the kind of backoff does not matter)
 *	proportional	0.8 w .. 1.2 w
 *
 * Backoff none waits not at all, whatever the jitter. The cap is never passed. Where 1.2 w would pass it, the upper end of the range is
 * lowered, and not the result: cutting the result would make many workers wait for exactly the cap, and come back together.
 *
 * Pure but for the random numbers of the calling thread. Saturating: no policy and no number of attempts makes it wrap.
 */
#include "backoff.h"

#include "bounds.h"
#include "random.h"

/* low..high, both included. */
static uint64_t between(uint64_t low, uint64_t high)
{
	return high <= low ? low : low + random_below(high - low + 1);
}

static uint64_t times(uint64_t a, uint64_t b, uint64_t most)
{
	unsigned __int128 product = (unsigned __int128)a * b;
	return product > most ? most : (uint64_t)product;
}

/* base * 2^(n-1), at most `most`. */
static uint64_t exponential(uint64_t base, unsigned attempts_done, uint64_t most)
{
	unsigned doublings = attempts_done > 1 ? attempts_done - 1 : 0;

	return times(base, UINT64_C(1) << (doublings < 63 ? doublings : 63), most);
}

uint64_t backoff_wait_ns(const struct policy *policy, unsigned attempts_done, uint64_t previous_wait_ns)
{
	uint64_t most = policy->cap_ns == 0 ? INT64_MAX : smaller(policy->cap_ns, INT64_MAX);
	uint64_t base = smaller(policy->base_ns, most);

	if (policy->backoff == BACKOFF_NONE)
		return 0;
	uint64_t wait = policy->backoff == BACKOFF_EXPONENTIAL ? exponential(base, attempts_done, most) : base;
	switch (policy->backoff_jitter) {
	case JITTER_FULL:
		return between(0, wait);
	case JITTER_EQUAL:
		return between(wait / 2, wait);
	case JITTER_DECORRELATED:
		return smaller(most, between(base, times(previous_wait_ns > base ? previous_wait_ns : base, 3, INT64_MAX)));
	case JITTER_PROPORTIONAL:
		return between(wait - wait / 5, smaller(most, wait + wait / 5));
	default:
		return wait;
	}
}
