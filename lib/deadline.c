/* SPDX-License-Identifier: MIT */
/*
 * Deadlines: absolute nanoseconds on CLOCK_MONOTONIC, so that a step of the wall clock does nothing. RESC_NO_DEADLINE is infinite and stays
 * infinite; everything else saturates instead of wrapping, so a huge timeout never becomes a deadline in the past.
 *
 * In a header a deadline is what is left, in milliseconds: hosts do not share a clock. It is rounded up, so that a live deadline never
 * arrives as 0, and a child made from it may outlive its parent by less than a millisecond plus the time on the wire.
 */
#include "deadline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"

#define NS_PER_MS     INT64_C(1000000)
#define INFINITE_TEXT "infinite"

#ifdef RESC_TEST_CLOCK
static const word *_Atomic test_clock;

void deadline_use_clock(const word *clock_ns)
{
	/* release: pairs with the load in resc_now_ns. */
	atomic_store_explicit(&test_clock, clock_ns, memory_order_release);
}
#endif

int64_t resc_now_ns(void)
{
#ifdef RESC_TEST_CLOCK
	const word *clock_ns = atomic_load_explicit(&test_clock, memory_order_acquire);
	if (clock_ns != NULL)
		return (int64_t)(atomic_load_explicit(clock_ns, memory_order_relaxed) & INT64_MAX);
#endif
	return (int64_t)clock_read_ns(CLOCK_MONOTONIC);
}

int64_t resc_deadline_after_ms(int64_t ms)
{
	int64_t now = resc_now_ns();

	if (ms <= 0)
		return now;
	if (ms > (RESC_NO_DEADLINE - now) / NS_PER_MS)
		return RESC_NO_DEADLINE;
	return now + ms * NS_PER_MS;
}

int64_t resc_deadline_within_ms(int64_t parent_ns, int64_t ms)
{
	int64_t child = resc_deadline_after_ms(ms);

	return child < parent_ns ? child : parent_ns;
}

int64_t resc_deadline_left_ms(int64_t deadline_ns)
{
	if (deadline_ns == RESC_NO_DEADLINE)
		return -1;
	int64_t now = resc_now_ns();
	if (deadline_ns <= now)
		return 0;
	return deadline_left_ms(deadline_ns, now);
}

/* Digits only, at least one; what is too large becomes INT64_MAX. -1: something else. */
static int64_t read_number(const char *text)
{
	int64_t value = 0;

	if (*text == '\0')
		return -1;
	for (; *text != '\0'; text++) {
		if (*text < '0' || *text > '9')
			return -1;
		int64_t digit = *text - '0';
		value = value > (INT64_MAX - digit) / 10 ? INT64_MAX : value * 10 + digit;
	}
	return value;
}

int resc_deadline_parse(const char *text, int64_t *deadline_ns)
{
	if (text == NULL || deadline_ns == NULL)
		return -EINVAL;
	if (strcmp(text, INFINITE_TEXT) == 0) {
		*deadline_ns = RESC_NO_DEADLINE;
		return 0;
	}
	int64_t ms = read_number(text);
	if (ms < 0)
		return -EINVAL;
	*deadline_ns = resc_deadline_after_ms(ms);
	return 0;
}

int resc_deadline_format(int64_t deadline_ns, char *text, size_t size)
{
	char whole[24];
	int64_t left = resc_deadline_left_ms(deadline_ns);
	int length = left < 0 ? snprintf(whole, sizeof(whole), INFINITE_TEXT) : snprintf(whole, sizeof(whole), "%" PRId64, left);

	if (text == NULL || (size_t)length >= size)
		return -ENOSPC;
	memcpy(text, whole, (size_t)length + 1);
	return length;
}
