/* SPDX-License-Identifier: MIT */
/* The dependencies of a scenario, on the side of the stage. */
#ifndef REHEARSE_DEPENDENCY_H
#define REHEARSE_DEPENDENCY_H

#include <sys/types.h>

#include "board.h"

struct dependencies;

/*
 * Starts all of them, before the workers: the lab's own servers in one process of their own, each on a port of 127.0.0.1, and programs.
 * They are ready when it returns, and the addresses of both are in the scenario until dependencies_stop. NULL after saying on stderr what
 * is wrong. children[] gets the pids of those that must not end before the take does (the stage watches them, and waits for none), *count
 * how many: two at most. Programs are not among them: their scripts end them, and dependencies_turn knows.
 */
struct dependencies *dependencies_start(const struct scenario *scenario, struct board *board, pid_t *children, size_t *count);
/*
 * Called by the stage each 10 ms or so: the scripts of programs (their stops and ends). 0, or -errno after saying on stderr what is wrong:
 * one has ended by itself.
 */
int dependencies_turn(struct dependencies *dependencies, int64_t now_ns);
/* Ends them. */
void dependencies_stop(struct dependencies *dependencies);

#endif
