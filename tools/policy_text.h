/* SPDX-License-Identifier: MIT */
/* A policy as the configuration writes it, and what follows from it, in words. */
#ifndef RESCTL_POLICY_TEXT_H
#define RESCTL_POLICY_TEXT_H

#include "inspect.h"
#include "line.h"
#include "table.h"

/* Fields, a block each; at the end the names of those that are off. */
void print_policy(const struct screen *screen, const struct map *map, const struct inspect_resource *resource);

/* A rate that no traffic can reach, so that it never opens the breaker: then says why. */
bool policy_is_blind(const struct policy *policy, struct line *why);

/* ", in the last 10s", ", of the last 100 calls": the breaker's window. */
struct window_text {
	char s[64];
};
struct window_text window_words(const struct policy *policy);

#endif
