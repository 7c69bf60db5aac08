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

#endif
