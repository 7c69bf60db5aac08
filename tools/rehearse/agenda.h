/* SPDX-License-Identifier: MIT */
/* What the lab's servers have to do, in the order in which it is due; what is due at the same time in the order in which it came. */
#ifndef REHEARSE_AGENDA_H
#define REHEARSE_AGENDA_H

#include <stddef.h>
#include <stdint.h>

struct work;

struct agenda {
	struct agenda_item {
		int64_t due_ns;
		uint64_t order;
		struct work *work;
	} * items; /* a binary heap: nothing is due before its parent */
	size_t count, room;
	uint64_t order;
};

/* 0 or -ENOMEM. */
int agenda_add(struct agenda *agenda, int64_t due_ns, struct work *work);
/* When the first one is due; INT64_MAX: there is none. */
int64_t agenda_due_ns(const struct agenda *agenda);
/* Takes the first one; NULL: there is none. */
struct work *agenda_take(struct agenda *agenda);
void agenda_free(struct agenda *agenda);

#endif
