/* SPDX-License-Identifier: MIT */
/* The workers of a segment and what they hold. */
#ifndef RESCTL_ROSTER_H
#define RESCTL_ROSTER_H

#include "inspect.h"

struct roster_worker {
	struct inspect_worker seen;
	uint64_t permits; /* of the resources that were taken so far */
	uint64_t probes;
};

struct roster {
	struct roster_worker *workers; /* by life */
	size_t count;
	/* The holders of the resource that was taken last, by life. */
	uint32_t *lives;
	uint32_t *permits;
	size_t held;
};

/* Reads all slots. 0 or -ENOMEM. */
int roster_open(struct roster *roster, const struct map *map);
/* Reads who holds something of that resource, adds it to their sums, and returns the sum of the permits. */
uint32_t roster_take(struct roster *roster, const struct map *map, const struct inspect_resource *resource);
/* NULL: registered after roster_open, or reaped before it. */
struct roster_worker *roster_find(const struct roster *roster, uint32_t life);
void roster_close(struct roster *roster);

#endif
