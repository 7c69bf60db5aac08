/* SPDX-License-Identifier: MIT */
#ifndef REHEARSE_WORKER_H
#define REHEARSE_WORKER_H

#include "board.h"

/*
 * The life of a prefork worker, in its own process after fork(): its threads take requests from the board, guard their calls with libresc
 * as any worker does, and note down what happened. Returns when the rehearsal is over. instance: of the segment; own: with the resources
 * "NAME.WORKER" (see view_resource). False after saying on stderr what is wrong.
 */
bool worker_run(const struct scenario *scenario, struct board *board, const char *instance, enum view view, unsigned number);

#endif
