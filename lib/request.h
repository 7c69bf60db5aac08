/* SPDX-License-Identifier: MIT */
/*
 * Asking rescd for a record: a name that no record has may match a pattern of the configuration. Policies are written by rescd alone, so a
 * worker asks, during resc_lookup and never on the call path. See request.c.
 */
#ifndef RESC_REQUEST_H
#define RESC_REQUEST_H

#include "map.h"

#define REQUEST_PATIENCE_MS 1000u

/*
 * Asks, and waits for the answer, at most REQUEST_PATIENCE_MS. 0: there is a record now. -ENOENT no pattern matches; -ENOSPC the table is
 * full; -EAGAIN rescd does not answer (it is dead or stopped), or too many ask at once.
 */
int request_ask(const struct map *map, uint32_t life, const char *name);
/* rescd: the next question that nobody has answered. False: none. name is checked. */
bool request_next(const struct map *map, uint32_t *at, char name[SEGMENT_NAME_SIZE]);
/* rescd: 0, or a negative errno. */
void request_answer(const struct map *map, uint32_t at, int answer);
/* The questions of a dead worker. */
void request_reap(const struct map *map, uint32_t life);

#endif
