/* SPDX-License-Identifier: MIT */
/* Processes that use a segment of an instance which has no name any more. */
#ifndef RESCTL_SPLIT_H
#define RESCTL_SPLIT_H

/* Says on stderr that there are some, if there are. */
void split_tell(const char *instance);

#endif
