/* SPDX-License-Identifier: MIT */
/* rescd starts over when somebody has cut, or overwritten, the segment under it. */
#ifndef RESCD_START_OVER_H
#define RESCD_START_OVER_H

#include "map.h"

/* From now on a SIGBUS because the file was cut starts over, with these arguments. map may not be there yet, and may change. */
void start_over_prepare(char **argv, const struct map *map);
/* Starts over where the segment is not what it was. */
void start_over_if_damaged(void);

#endif
