/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: one process plays all the servers of a rehearsal, and a server that takes two seconds for a request has thousands of
 * them open. Whatever their number, the next thing to do is at the top of a heap.
 */
#include "agenda.h"

#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>

static bool is_before(const struct agenda_item *a, const struct agenda_item *b)
{
	return a->due_ns != b->due_ns ? a->due_ns < b->due_ns : a->order < b->order;
}

static int make_room(struct agenda *agenda)
{
	if (agenda->count < agenda->room)
		return 0;
	size_t room = agenda->room == 0 ? 256 : 2 * agenda->room;
	struct agenda_item *items = realloc(agenda->items, room * sizeof(*items));
	if (!items)
		return -ENOMEM;
	agenda->items = items;
	agenda->room = room;
	return 0;
}

int agenda_add(struct agenda *agenda, int64_t due_ns, struct work *work)
{
	int r = make_room(agenda);
	if (r != 0)
		return r;
	struct agenda_item item = {.due_ns = due_ns, .order = agenda->order++, .work = work};
	size_t i = agenda->count++;
	for (; i > 0 && is_before(&item, &agenda->items[(i - 1) / 2]); i = (i - 1) / 2)
		agenda->items[i] = agenda->items[(i - 1) / 2];
	agenda->items[i] = item;
	return 0;
}

int64_t agenda_due_ns(const struct agenda *agenda)
{
	return agenda->count == 0 ? INT64_MAX : agenda->items[0].due_ns;
}

struct work *agenda_take(struct agenda *agenda)
{
	if (agenda->count == 0)
		return NULL;
	struct work *first = agenda->items[0].work;
	struct agenda_item last = agenda->items[--agenda->count];
	size_t i = 0;
	for (;;) {
		size_t child = 2 * i + 1;
		if (child >= agenda->count)
			break;
		if (child + 1 < agenda->count && is_before(&agenda->items[child + 1], &agenda->items[child]))
			child++;
		if (!is_before(&agenda->items[child], &last))
			break;
		agenda->items[i] = agenda->items[child];
		i = child;
	}
	agenda->items[i] = last;
	return first;
}

void agenda_free(struct agenda *agenda)
{
	free(agenda->items);
	*agenda = (struct agenda){0};
}
