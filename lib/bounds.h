/* SPDX-License-Identifier: MIT */
/* Of two numbers. */
#ifndef RESC_BOUNDS_H
#define RESC_BOUNDS_H

#include <stdint.h>

static inline uint64_t smaller(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static inline uint64_t larger(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

#endif
