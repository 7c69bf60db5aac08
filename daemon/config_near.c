/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "unknown key" sends people to the manual, and "did you mean" back to their work. What is near is decided here once, for
 * the keys of all files, and for the names in them.
 */
#include "config_near.h"

#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#define NEAR_SIZE 64 /* no name is longer */

static unsigned least_of(unsigned a, unsigned b)
{
	return a < b ? a : b;
}

/* In any locale. */
static char small_letter(char c)
{
	return c >= 'A' && c <= 'Z' ? (char)(c + ('a' - 'A')) : c;
}

static bool same_letter(char a, char b)
{
	return small_letter(a) == small_letter(b);
}

/* Optimal string alignment distance. Both are shorter than NEAR_SIZE. */
static unsigned distance(const char *a, size_t m, const char *b, size_t n)
{
	unsigned rows[NEAR_SIZE][NEAR_SIZE];

	for (size_t i = 0; i <= m; i++) {
		for (size_t j = 0; j <= n; j++) {
			if (i == 0 || j == 0) {
				rows[i][j] = (unsigned)(i + j);
				continue;
			}
			rows[i][j] = least_of(rows[i - 1][j - 1] + !same_letter(a[i - 1], b[j - 1]),
			                      least_of(rows[i - 1][j], rows[i][j - 1]) + 1);
			if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
				rows[i][j] = least_of(rows[i][j], rows[i - 2][j - 2] + 1);
		}
	}
	return rows[m][n];
}

unsigned near_distance(const char *word, const char *name)
{
	size_t m = strlen(word), n = strlen(name);
	unsigned d;

	if (m >= NEAR_SIZE || n >= NEAR_SIZE)
		return NEAR_NOT;
	d = distance(word, m, name, n);
	return d <= (m + 2) / 3 ? d : NEAR_NOT;
}
