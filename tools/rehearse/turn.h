/* SPDX-License-Identifier: MIT */
/* Whose turn it is: which caller plays which request. See turn.c. */
#ifndef REHEARSE_TURN_H
#define REHEARSE_TURN_H

#include "board.h"

/* Of one worker; its threads share it. */
struct turn {
	const struct scenario *scenario;
	struct board *board;
	unsigned worker;
	_Atomic uint32_t taken; /* requests that are this worker's, where they go in turn */
};

/* The next request for a caller that is free, when it has arrived. NULL: there is none any more, or the rehearsal is over. */
struct request_note *turn_take(struct turn *turn);
/* It has ended, or will not: who comes after it may begin. */
void turn_over(struct turn *turn);

/* The parent, now and then: those that are rejected by now. */
void turn_look(const struct scenario *scenario, struct board *board);
/* The parent, when no caller lives any more: those that were rejected up to that time. */
void turn_last_look(const struct scenario *scenario, struct board *board, int64_t end_ns);

#endif
