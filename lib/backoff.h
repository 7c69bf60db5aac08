/* SPDX-License-Identifier: MIT */
/* How long to wait before the next attempt. See backoff.c. */
#ifndef RESC_BACKOFF_H
#define RESC_BACKOFF_H

#include "segment.h"

/*
 * attempts_done: attempts that have ended, at least 1. previous_wait_ns: what this function said the last time for the same request, 0 at
 * first (decorrelated jitter needs it). At most INT64_MAX, and at most the policy's cap where it has one.
 */
uint64_t backoff_wait_ns(const struct policy *policy, unsigned attempts_done, uint64_t previous_wait_ns);

#endif
