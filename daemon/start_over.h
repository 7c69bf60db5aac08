/* SPDX-License-Identifier: MIT */
/* rescd starts over when somebody has cut, or overwritten, the segment under it. */
#ifndef RESCD_START_OVER_H
#define RESCD_START_OVER_H

#include "instance.h"

/* From now on a SIGBUS because a file was cut starts over, with these arguments. The instance may not be open yet. */
void start_over_prepare(char **argv, const struct instance *instance);
/* Starts over where a segment is not what it was. */
void start_over_if_damaged(void);

#endif
