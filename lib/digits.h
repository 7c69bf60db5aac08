/* SPDX-License-Identifier: MIT */
/* Decimal numbers in headers. Strict, whatever the locale: digits, and nothing else. */
#ifndef RESC_DIGITS_H
#define RESC_DIGITS_H

#include <stddef.h>
#include <stdint.h>

/* The number that these characters are; what is too large becomes INT64_MAX. -1: none, or something else than digits. */
static inline int64_t digits_read(const char *text, size_t length)
{
	int64_t value = 0;

	if (length == 0)
		return -1;
	for (size_t i = 0; i < length; i++) {
		if (text[i] < '0' || text[i] > '9')
			return -1;
		int64_t digit = text[i] - '0';
		value = value > (INT64_MAX - digit) / 10 ? INT64_MAX : value * 10 + digit;
	}
	return value;
}

#endif
