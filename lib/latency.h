/* SPDX-License-Identifier: MIT */
/*
 * The latency histogram: log-linear, eight buckets an octave, so a value is known within an eighth from 1 us to over four minutes. Below
 * 8 us each microsecond has a bucket of its own; the last bucket takes everything above.
 */
#ifndef RESC_LATENCY_H
#define RESC_LATENCY_H

#include "segment.h"

static inline uint32_t latency_bucket(uint64_t us)
{
	if (us < 8)
		return (uint32_t)us;
	unsigned octave = 63u - (unsigned)__builtin_clzll(us);
	uint32_t index = (octave - 2) * 8 + (uint32_t)(us >> (octave - 3) & 7);
	return index < LATENCY_BUCKETS ? index : LATENCY_BUCKETS - 1;
}

#endif
