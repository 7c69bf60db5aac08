/* SPDX-License-Identifier: MIT */
#ifndef DEMO_WORKER_H
#define DEMO_WORKER_H

#include "dependency.h"

/* The life of a prefork worker: serves its requests from board->start_ns to board->end_ns, then returns. */
void worker_run(unsigned number, resc_resource *prices, const struct dependency *dependency, struct board *board);

#endif
