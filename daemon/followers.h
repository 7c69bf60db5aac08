/* SPDX-License-Identifier: MIT */
/* Workers of former segments that have not come to the current one yet. */
#ifndef RESCD_FOLLOWERS_H
#define RESCD_FOLLOWERS_H

#include "succession.h"

/* The shares of the current segment count them too: each second. */
void followers_expect(const struct succession *succession, const struct map *current);

#endif
