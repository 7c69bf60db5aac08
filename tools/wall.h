/* SPDX-License-Identifier: MIT */
/* When was that? Segment time as wall clock. */
#ifndef RESCTL_WALL_H
#define RESCTL_WALL_H

#include "map.h"

/* Nanoseconds since 1970 at that millisecond of the segment. */
uint64_t wall_clock_ns(const struct map *map, uint64_t ms);

#endif
