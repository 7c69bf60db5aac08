/* SPDX-License-Identifier: MIT */
/*
 * Sleeping, in a test of damaged segments: whoever sleeps moves the test clock on instead, and goes on at once. The linker puts these in
 * the place of nanosleep and syscall (--wrap, see the Makefile). Needs the test clock.
 *
 * A damaged policy may say to wait for a day, and on a clock that stands still a day never ends. So each sleep takes as long as was asked
 * for, and from the ninth of one step on always twice as long: a day is over soon, and so is a century, where a clock was damaged in
 * the middle of a wait. Who goes on sleeping then does so for ever, and is aborted.
 */
#ifndef UNIT_SLEEPLESS_H
#define UNIT_SLEEPLESS_H

#include <errno.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>

#include "deadline.h"

#define SLEEPLESS_AS_ASKED 8u
#define SLEEPLESS_MOST     4096u
/* Damage is cut to a time that a clock could say; the clock of a sleeper goes farther than any wait from there. So nothing overflows. */
#define SLEEPLESS_DAMAGE (UINT64_C(1) << 60)
#define SLEEPLESS_END    (UINT64_C(1) << 62)

/* The clocks of the segments that are there; deadlines follow the first. NULL: none. */
static word *_Atomic sleepless_clocks[2];
/* What somebody else does meanwhile, or NULL. */
static void (*sleepless_meanwhile)(void);
static _Thread_local unsigned sleepless_count;

/* A step begins: a call, or the like. */
static inline void sleepless_step(void)
{
	sleepless_count = 0;
}

/* After damage. */
static inline void sleepless_tame(void)
{
	for (unsigned i = 0; i < 2; i++) {
		word *clock = atomic_load_explicit(&sleepless_clocks[i], memory_order_acquire);
		if (clock != NULL && atomic_load_explicit(clock, memory_order_relaxed) > SLEEPLESS_DAMAGE)
			atomic_fetch_and_explicit(clock, SLEEPLESS_DAMAGE - 1, memory_order_relaxed);
	}
}

static inline void sleepless_move(word *clock, uint64_t ns)
{
	/* Relaxed: a clock orders nothing. A failure: another thread has slept, which moves it as well. */
	uint64_t now = atomic_load_explicit(clock, memory_order_relaxed);
	uint64_t next = now > SLEEPLESS_END || SLEEPLESS_END - now < ns ? SLEEPLESS_END : now + ns;

	atomic_compare_exchange_strong_explicit(clock, &now, next, memory_order_relaxed, memory_order_relaxed);
}

static inline void sleepless_sleep(const struct timespec *wanted)
{
	bool sound = wanted->tv_sec >= 0 && wanted->tv_nsec >= 0 && wanted->tv_nsec < 1000000000;
	uint64_t ns = sound ? (uint64_t)wanted->tv_sec * 1000000000u + (uint64_t)wanted->tv_nsec : 0;
	unsigned twice = sleepless_count < SLEEPLESS_AS_ASKED ? 0 : sleepless_count - SLEEPLESS_AS_ASKED;

	if (!sound || ++sleepless_count > SLEEPLESS_MOST) {
		fprintf(stderr, "slept %u times, and now for %lld s and %ld ns\n", sleepless_count, (long long)wanted->tv_sec,
		        wanted->tv_nsec);
		abort();
	}
	if (twice >= 62 || ns > SLEEPLESS_END >> twice)
		ns = SLEEPLESS_END;
	else
		ns <<= twice;
	/* A view that was closed or went private meanwhile has taken its clock along. */
	if (atomic_load_explicit(&sleepless_clocks[0], memory_order_acquire) != NULL)
		deadline_use_clock(atomic_load_explicit(&sleepless_clocks[0], memory_order_acquire));
	for (unsigned i = 0; i < 2; i++) {
		word *clock = atomic_load_explicit(&sleepless_clocks[i], memory_order_acquire);
		if (clock != NULL)
			sleepless_move(clock, ns);
	}
	if (sleepless_meanwhile != NULL)
		sleepless_meanwhile();
}

/* Until then, in whole milliseconds: the real clock has gone on since the sleeper asked it. */
static inline struct timespec sleepless_left(const struct timespec *until)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	int64_t ns = (until->tv_sec - now.tv_sec) * INT64_C(1000000000) + until->tv_nsec - now.tv_nsec;
	int64_t ms = ns < 0 ? 0 : (ns + 999999) / 1000000;
	return (struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
}

int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	(void)left;
	sleepless_sleep(wanted);
	return 0;
}

long __real_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f);
long __wrap_syscall(long number, long a, long b, long c, long d, long e, long f)
{
	if (number != SYS_futex || (b != FUTEX_WAIT && b != FUTEX_WAIT_BITSET))
		return __real_syscall(number, a, b, c, d, e, f);
	/* Woken, or not: whoever sleeps looks again. */
	const struct timespec left = b == FUTEX_WAIT ? *(const struct timespec *)d : sleepless_left((const struct timespec *)d);
	sleepless_sleep(&left);
	errno = ETIMEDOUT;
	return -1;
}

#endif
