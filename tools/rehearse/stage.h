/* SPDX-License-Identifier: MIT */
/* The stage: a private instance, its dependencies and its workers, for the length of one take. */
#ifndef REHEARSE_STAGE_H
#define REHEARSE_STAGE_H

#include "take.h"

struct stage_options {
	const char *rescd; /* path of the program */
	/* Called about each 200 ms with the take so far, from the parent; true: stop here, *stopped says why. May be NULL. */
	bool (*look)(void *arg, const struct take *take, const char **stopped);
	void *arg;
	bool verbose; /* what rescd says goes to stderr */
};

/*
 * Plays a scenario on a view. 0, and *out is to be given to take_free; a signal's number when SIGINT or SIGTERM ended it (also to be
 * freed); or -errno, after saying on stderr what is wrong. Whatever happens, and if this process is killed: no process, no segment and no
 * socket are left.
 */
int stage_play(const struct scenario *scenario, enum view view, const struct stage_options *options, struct take *out);

/* Removes what a rehearsal left that was killed together with its rescd. Called before the first take. */
void stage_sweep(void);

#endif
