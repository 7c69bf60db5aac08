/* SPDX-License-Identifier: MIT */
/*
 * Asking rescd for a record: a name that no record has may match a pattern of the configuration. Policies are written by rescd alone, so a
 * worker asks: in resc_lookup, and in a call whose resource was retired. See request.c.
 */
#ifndef RESC_REQUEST_H
#define RESC_REQUEST_H

#include "map.h"

/* For a lookup: long enough for a restart of rescd. For a call, which should not notice that rescd is stopped, and for the next lookups
 * after one that waited in vain. */
#define REQUEST_PATIENCE_MS      1500u
#define REQUEST_CALL_PATIENCE_MS 50u

/*
 * Asks, and waits for the answer, at most that long. 0: there is a record now. -ENOENT no pattern matches; -ENOSPC there is no room;
 * -EAGAIN rescd does not answer (it is dead or stopped), or too many ask at once. Not in a read-side section.
 */
int request_ask(const struct map *map, uint32_t life, const char *name, uint32_t patience_ms);

/* A question as rescd has read it. */
struct question {
	uint32_t at;   /* where to look next; 0 at the beginning */
	uint64_t word; /* what was in the place */
	char name[SEGMENT_NAME_SIZE];
};

/* rescd: the next question that nobody has answered. False: none. The name is checked. */
bool request_next(const struct map *map, struct question *question);
/* rescd: 0, or a negative errno, to what request_next has returned last. */
void request_answer(const struct map *map, const struct question *question, int answer);
/* Of the word of a place: the life of its asker; and could this protocol have written it? */
uint32_t request_life(uint64_t w);
bool request_is_possible(uint64_t w);
/* The questions of a dead worker. */
void request_reap(const struct map *map, uint32_t life);

#endif
