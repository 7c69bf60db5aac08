/* SPDX-License-Identifier: MIT */
/* Finding the segment that the workers of an instance use now. */
#ifndef RESCTL_ATTACH_H
#define RESCTL_ATTACH_H

#include "map.h"

/* 0, or -errno with err; says nothing. -ENOENT: there is none. -ENOLINK: it was replaced by one that is gone. */
int open_current(struct map *map, const char *instance, enum map_access access, struct resc_error *err);

#endif
