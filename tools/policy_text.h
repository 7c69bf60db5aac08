/* SPDX-License-Identifier: MIT */
/* A policy as the configuration writes it, and what follows from it, in words. */
#ifndef RESCTL_POLICY_TEXT_H
#define RESCTL_POLICY_TEXT_H

#include "inspect.h"
#include "table.h"

/* Fields, a block each; at the end the names of those that are off. */
void print_policy(const struct screen *screen, const struct map *map, const struct inspect_resource *resource);

/* ", in the last 10s", ", of the last 100 calls": the breaker's window. */
struct window_text {
	char s[64];
};
struct window_text window_words(const struct policy *policy);

/*
 * The failures (or slow calls) that a rate needs at least, and among how many calls: below min_calls nothing is decided.
 * 50 % with min_calls 20: 10 of 20.
 */
uint64_t rate_least(uint64_t rate_ppm, uint64_t min_calls);
/* The most calls that the window can hold, as far as the policy limits them: by its own length, or by the rate limit. UINT64_MAX: any. */
uint64_t window_most(const struct policy *policy);

#endif
