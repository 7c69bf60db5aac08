/* SPDX-License-Identifier: MIT */
/*
 * Deadlines: absolute nanoseconds on CLOCK_MONOTONIC, so that a step of the wall clock does nothing. RESC_NO_DEADLINE is infinite and stays
 * infinite; everything else saturates instead of wrapping, so a huge timeout never becomes a deadline in the past.
 *
 * In a header a deadline is what is left, in milliseconds: hosts do not share a clock. It is rounded up, so that a live deadline never
 * arrives as 0, and a child made from it may outlive its parent by less than a millisecond plus the time on the wire.
 *
 * grpc-timeout says the same with a unit, so that short ones are exact: the finest unit whose number has at most 8 digits. A deadline that
 * is past is "0n", which other implementations write and read too. 99999999 hours are more than the clock has, and mean: none.
 */
#include "deadline.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "digits.h"

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

/* So many units of so many nanoseconds from now, saturating. */
static int64_t after(int64_t units, int64_t unit_ns)
{
	int64_t now = resc_now_ns();

	if (units <= 0)
		return now;
	if (units > (RESC_NO_DEADLINE - now) / unit_ns)
		return RESC_NO_DEADLINE;
	return now + units * unit_ns;
}

int64_t resc_deadline_after_ms(int64_t ms)
{
	return after(ms, NS_PER_MS);
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

int resc_deadline_parse(const char *text, int64_t *deadline_ns)
{
	if (text == NULL || deadline_ns == NULL)
		return -EINVAL;
	if (strcmp(text, INFINITE_TEXT) == 0) {
		*deadline_ns = RESC_NO_DEADLINE;
		return 0;
	}
	int64_t ms = digits_read(text, strlen(text));
	if (ms < 0)
		return -EINVAL;
	*deadline_ns = resc_deadline_after_ms(ms);
	return 0;
}

/* The length, or -ENOSPC. */
static int put(const char *whole, int length, char *text, size_t size)
{
	if (text == NULL || (size_t)length >= size)
		return -ENOSPC;
	memcpy(text, whole, (size_t)length + 1);
	return length;
}

int resc_deadline_format(int64_t deadline_ns, char *text, size_t size)
{
	char whole[24];
	int64_t left = resc_deadline_left_ms(deadline_ns);
	int length = left < 0 ? snprintf(whole, sizeof(whole), INFINITE_TEXT) : snprintf(whole, sizeof(whole), "%" PRId64, left);

	return put(whole, length, text, size);
}

/* ---- grpc-timeout ---- */

#define GRPC_DIGITS 8u
#define GRPC_MOST   INT64_C(99999999)

/* From the finest to the coarsest. */
static const struct {
	char letter;
	int64_t ns;
} units[] = {
        {'n', 1}, {'u', 1000}, {'m', NS_PER_MS}, {'S', 1000 * NS_PER_MS}, {'M', 60000 * NS_PER_MS}, {'H', 3600000 * NS_PER_MS},
};
#define UNITS (sizeof(units) / sizeof(units[0]))

int resc_deadline_parse_grpc(const char *text, int64_t *deadline_ns)
{
	if (text == NULL || deadline_ns == NULL)
		return -EINVAL;
	size_t digits = strnlen(text, GRPC_DIGITS + 2);
	if (digits < 2 || digits > GRPC_DIGITS + 1)
		return -EINVAL;
	char letter = text[--digits];
	int64_t number = digits_read(text, digits);
	for (size_t i = 0; i < UNITS && number >= 0; i++) {
		if (units[i].letter != letter)
			continue;
		*deadline_ns = after(number, units[i].ns);
		return 0;
	}
	return -EINVAL;
}

int resc_deadline_format_grpc(int64_t deadline_ns, char *text, size_t size)
{
	char whole[16];
	size_t i = 0;

	if (deadline_ns == RESC_NO_DEADLINE)
		return put("", 0, text, size);
	int64_t now = resc_now_ns();
	int64_t left = deadline_ns > now ? deadline_ns - now : 0;
	/* Ends at the latest with hours: INT64_MAX nanoseconds are 7 digits of them. */
	while (i < UNITS - 1 && left > GRPC_MOST * units[i].ns)
		i++;
	int64_t number = left / units[i].ns + (left % units[i].ns != 0);
	return put(whole, snprintf(whole, sizeof(whole), "%" PRId64 "%c", number, units[i].letter), text, size);
}
