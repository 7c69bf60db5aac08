/* SPDX-License-Identifier: MIT */
/* The clock of deadlines. In release builds it is CLOCK_MONOTONIC and nothing can change that. */
#ifndef RESC_DEADLINE_H
#define RESC_DEADLINE_H

#include "segment.h"

#ifdef RESC_TEST_CLOCK
/* From now on deadlines follow this word (a test clock). NULL: the real clock again; say so before the word is unmapped. */
void deadline_use_clock(const word *clock_ns);
#endif

#endif
