/* SPDX-License-Identifier: MIT */
/* The process that plays all servers of the lab's own. */
#ifndef REHEARSE_SERVER_H
#define REHEARSE_SERVER_H

#include <sys/types.h>

#include "board.h"

/*
 * Starts it: each dependency of the kind DEPENDENCY_SERVER listens on a port of 127.0.0.1 (unless its script begins with nobody listening),
 * ports[] says which. Its pid, or -errno after saying on stderr what is wrong.
 */
pid_t server_start(const struct scenario *scenario, struct board *board, uint16_t *ports);

#endif
