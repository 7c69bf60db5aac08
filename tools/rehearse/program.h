/* SPDX-License-Identifier: MIT */
/* A program as a dependency: started by the lab, stopped and ended by its script. */
#ifndef REHEARSE_PROGRAM_H
#define REHEARSE_PROGRAM_H

#include <sys/types.h>

#include "guard.h"
#include "scenario.h"

#define PROGRAM_OUTPUT 2048

struct program {
	const struct dependency *dependency;
	struct guard *guard;
	uint16_t port;
	pid_t pid;    /* of its process group too; 0: it does not run */
	bool stopped; /* by SIGSTOP */
	int output;   /* what it writes comes here; -1: nothing */
	char last[PROGRAM_OUTPUT];
	size_t length; /* of last */
};

/* Starts it on a free port, and returns when it listens. 0, or -errno after saying on stderr what is wrong; -EINTR, and
 * nothing is said, when a signal came before that. */
int program_start(struct program *program, const struct dependency *dependency, struct guard *guard);
/* Does what its script says. 0, or -errno after saying on stderr that it ended by itself, was stopped or
 * continued by somebody else, or cannot be started again. */
int program_turn(struct program *program, int64_t at_ns);
void program_end(struct program *program);

#endif
