/* SPDX-License-Identifier: MIT */
/* Who ends the process groups of programs when nobody else is left to. See guard.c. */
#ifndef REHEARSE_GUARD_H
#define REHEARSE_GUARD_H

#include <sys/types.h>

struct guard {
	pid_t pid; /* 0: none */
	int fd;    /* what it is told goes here, and its end means that this process has gone */
};

#define GUARD_NONE ((struct guard){.fd = -1})

/* 0, or -errno after saying on stderr why. */
int guard_start(struct guard *guard);
/* From now on that group ends with this process. A guard that has gone itself is the stage's to notice. */
void guard_watch(struct guard *guard, pid_t group);
/* Not any more. Before its leader is waited for: after that the number may be another's. */
void guard_forget(struct guard *guard, pid_t group);
void guard_end(struct guard *guard);

#endif
