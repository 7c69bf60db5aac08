/* SPDX-License-Identifier: MIT */
/* Retry-After, as resc_retry_after_parse reads it. See retry_after.c. */
#ifndef RESC_RETRY_AFTER_H
#define RESC_RETRY_AFTER_H

#include <stdint.h>

/* At that time of the wall clock (milliseconds since 1970, at least 0). 0 with *ms, or -EINVAL. */
int retry_after_parse(const char *text, int64_t now_ms, int64_t *ms);

#endif
