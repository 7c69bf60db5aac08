/* SPDX-License-Identifier: MIT */
/* How near a misspelt name is to the one that was meant. */
#ifndef RESCD_CONFIG_NEAR_H
#define RESCD_CONFIG_NEAR_H

#include <limits.h>

#define NEAR_NOT UINT_MAX

/* The letters that are wrong, missing, too many or swapped, in either case; NEAR_NOT: more than one in three of the word. */
unsigned near_distance(const char *word, const char *name);

#endif
