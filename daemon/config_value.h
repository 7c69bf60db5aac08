/* SPDX-License-Identifier: MIT */
/* Durations, shares and numbers as people write them, and back. The locale has no say in it. */
#ifndef RESCD_CONFIG_VALUE_H
#define RESCD_CONFIG_VALUE_H

#include <stdint.h>

#define VALUE_TEXT_SIZE 32
#define VALUE_MILLION   UINT64_C(1000000)

/* "1.5s" in nanoseconds; units us, ms, s, m, h; no sign, no spaces. UINT64_MAX: too long for 64 bits.
 * 0, -EINVAL (not a duration), or -EDOM (finer than a nanosecond). */
int value_duration(const char *text, uint64_t *ns);
/* "12.5%" in parts per million. UINT64_MAX: too much for 64 bits. 0, -EINVAL, or -EDOM (finer than one in a million). */
int value_percent(const char *text, uint64_t *ppm);
/* A number in millionths, rounded to the nearest. UINT64_MAX: too much. 0, -ERANGE (negative), or -EDOM (not 0, but would become 0). */
int value_millionths(double number, uint64_t *millionths);

/* In the largest unit that says it without a fraction: "90s", "1500ms". */
void value_duration_text(uint64_t ns, char text[VALUE_TEXT_SIZE]);
/* "0.125", "4294967295". */
void value_millionths_text(uint64_t millionths, char text[VALUE_TEXT_SIZE]);

#endif
