/* SPDX-License-Identifier: MIT */
/* Contradictions between the values of a resource, each of which is good by itself. */
#ifndef RESCD_CONFIG_SENSE_H
#define RESCD_CONFIG_SENSE_H

#include "config_draft.h"

/* The warning about a resource without any guard. */
#define CONFIG_NOTHING_ON "no block is on, so nothing guards this resource"

/* Adds errors for what cannot be meant, and warnings for what has no effect or hardly the one that was wanted. */
void draft_check(struct reader *reader, const struct draft *draft);

/* Calls that the rate limit lets into the breaker's window of time, at most. */
uint64_t calls_in_window(const struct policy *policy);

#endif
