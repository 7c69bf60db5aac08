/* SPDX-License-Identifier: MIT */
/* When the requests of a scenario arrive: all loads together, in order of time. */
#ifndef REHEARSE_SCHEDULE_H
#define REHEARSE_SCHEDULE_H

#include <stddef.h>

#include "scenario.h"

struct arrival {
	int64_t at_ns;
	uint32_t load;
	uint32_t number; /* from 1, in its load */
};

struct schedule {
	struct arrival *items; /* in order of time, then of load */
	size_t count;
};

/* 0; -E2BIG: more than SCENARIO_REQUESTS; -ENOMEM. A load whose first request would come after the end has none. */
int schedule_make(const struct scenario *scenario, struct schedule *out);
void schedule_free(struct schedule *schedule);

#endif
