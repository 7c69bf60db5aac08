/* SPDX-License-Identifier: MIT */
/* A JSON merge patch (RFC 7396): objects are merged key by key, null removes a key, and anything else replaces what was there. */
#ifndef REHEARSE_PATCH_H
#define REHEARSE_PATCH_H

#include "node.h"

/*
 * The target (NULL: there is none) with the patch over it: a tree of its own, whose nodes say where each value was written. A null that
 * removes nothing is a problem, where problems is not NULL. NULL: out of memory.
 */
struct node *patch_apply(struct nodes *nodes, const struct node *target, const struct node *patch, struct config_problems *problems);

#endif
