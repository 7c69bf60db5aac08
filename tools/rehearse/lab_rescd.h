/* SPDX-License-Identifier: MIT */
/* The rescd of a take, with an instance that goes with this process. See lab_rescd.c. */
#ifndef REHEARSE_LAB_RESCD_H
#define REHEARSE_LAB_RESCD_H

#include <jansson.h>

#include "children.h"
#include "map.h"

struct lab_rescd {
	char instance[SEGMENT_NAME_SIZE];
	pid_t pid;      /* 0: none */
	int life;       /* the end of the pipe that it lives on; -1: none */
	int log;        /* what it says; -1: that goes to stderr */
	struct map map; /* base NULL: not yet */
};

/*
 * Starts the program with that configuration; it is ready when this returns. 0, or -errno after saying on stderr what is wrong, with what
 * rescd said itself; -EINTR, and nothing is said, when a signal came before it was ready. Either way lab_rescd_stop is to be called.
 */
int lab_rescd_start(struct lab_rescd *rescd, const char *program, json_t *configuration, bool verbose);
/* What it said, to stderr. */
void lab_rescd_tell(const struct lab_rescd *rescd);
/* Ends it, and sees to it that its segment and its socket are gone. */
void lab_rescd_stop(struct lab_rescd *rescd);

/* Removes what was left by rehearsals that were killed together with their rescd. */
void lab_rescd_sweep(void);

#endif
