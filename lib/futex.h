/* SPDX-License-Identifier: MIT */
/*
 * Sleeping on a shared word. The kernel's futex is the low half of it; processes share it, so it is not a private one.
 */
#ifndef RESC_FUTEX_H
#define RESC_FUTEX_H

#include <limits.h>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "segment.h"

static inline uint32_t *futex_of(word *w)
{
	return (uint32_t *)(void *)w + (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? 1 : 0);
}

/* Sleeps while the low half has that value, at most so long. May be woken for no reason. The word may have been unmapped meanwhile: that
 * only ends the sleep. */
static inline void futex_wait(word *w, uint32_t value, uint64_t ns)
{
	const struct timespec time = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};

	syscall(SYS_futex, futex_of(w), FUTEX_WAIT, value, &time, NULL, 0);
}

/* The same for who is woken for one of these bits only. until_ns: on CLOCK_MONOTONIC. */
static inline void futex_wait_for(word *w, uint32_t value, uint32_t bits, uint64_t until_ns)
{
	const struct timespec time = {.tv_sec = (time_t)(until_ns / 1000000000u), .tv_nsec = (long)(until_ns % 1000000000u)};

	syscall(SYS_futex, futex_of(w), FUTEX_WAIT_BITSET, value, &time, NULL, bits);
}

static inline void futex_wake_all(word *w)
{
	syscall(SYS_futex, futex_of(w), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* Those who wait for one of these bits, and those who wait for whatever comes. */
static inline void futex_wake_some(word *w, uint32_t bits)
{
	syscall(SYS_futex, futex_of(w), FUTEX_WAKE_BITSET, INT_MAX, NULL, NULL, bits);
}

#endif
