/* SPDX-License-Identifier: MIT */
/* The clock of deadlines. In release builds it is CLOCK_MONOTONIC and nothing can change that. */
#ifndef RESC_DEADLINE_H
#define RESC_DEADLINE_H

#include "segment.h"

/* Milliseconds from now to a deadline that is not past, rounded up. now is not negative, so nothing overflows. */
static inline int64_t deadline_left_ms(int64_t deadline_ns, int64_t now_ns)
{
	int64_t left = deadline_ns - now_ns;
	return left / 1000000 + (left % 1000000 != 0);
}

#ifdef RESC_TEST_CLOCK
/* From now on deadlines follow this word (a test clock). NULL: the real clock again; say so before the word is unmapped. */
void deadline_use_clock(const word *clock_ns);
#endif

#endif
