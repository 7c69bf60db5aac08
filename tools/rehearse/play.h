/* SPDX-License-Identifier: MIT */
/* Plays one request, as a worker's own code would: with the public interface of libresc only. See play.c. */
#ifndef REHEARSE_PLAY_H
#define REHEARSE_PLAY_H

#include "call.h"

/* A thread of a worker. */
struct player {
	const struct scenario *scenario;
	struct board *board;
	unsigned worker;
	resc_resource *const *resources; /* by their index in the scenario */
	struct caller *caller;
	struct attempt_note spare; /* for what finds no room on the board */
};

/*
 * From its beginning to its end, or to that of the rehearsal: then its note stays undone. 0; or a negative answer of libresc, which no
 * scenario can mean, after saying on stderr what it was.
 */
int play(struct player *player, struct request_note *note);

#endif
