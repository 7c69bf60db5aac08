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

static inline void futex_wake_all(word *w)
{
	syscall(SYS_futex, futex_of(w), FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

#endif
