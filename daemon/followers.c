/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: workers come to a successor with their next call. Who is idle stays registered in the former segment, perhaps for
 * hours, and is a worker all the same: a bulkhead whose limit is a share of the workers must not shrink because some of them have
 * nothing to do.
 *
 * What it guarantees: each second the current segment is told how many workers there are that are in a former one alone. A process is told
 * from another by what its slot says of it; one that is in both, because it still holds a permit in the former, counts once. Who died there
 * was reaped there. With rescd dead the last number holds for a while (EXPECT_MS), and then who has not called is not counted.
 */
#include "followers.h"

#include <stdlib.h>

#include "clock.h"
#include "share.h"

#define EXPECT_MS 60000u

/* A process, as its slot tells it. */
struct identity {
	uint64_t pid, start_ticks, pid_namespace;
};

struct crowd {
	struct identity *members; /* sorted */
	size_t count;
};

static int compare(const void *one, const void *other)
{
	const struct identity *a = one, *b = other;

	if (a->pid != b->pid)
		return a->pid < b->pid ? -1 : 1;
	if (a->start_ticks != b->start_ticks)
		return a->start_ticks < b->start_ticks ? -1 : 1;
	return a->pid_namespace < b->pid_namespace ? -1 : a->pid_namespace > b->pid_namespace;
}

static bool is_among(const struct crowd *crowd, const struct identity *who)
{
	return crowd->count > 0 && bsearch(who, crowd->members, crowd->count, sizeof(*who), compare) != NULL;
}

/* False: nobody is there, or he has not written yet who he is. */
static bool read_identity(const struct worker_slot *slot, struct identity *who)
{
	/* Acquire: pairs with the release of identity, after what belongs to it. */
	uint64_t life = atomic_load_explicit(&slot->life, memory_order_acquire);

	if (life == 0 || atomic_load_explicit(&slot->identity, memory_order_acquire) != life)
		return false;
	/* Relaxed: of somebody who comes or goes at this moment it may be wrong, until the next second. */
	who->pid = atomic_load_explicit(&slot->pid, memory_order_relaxed);
	who->start_ticks = atomic_load_explicit(&slot->start_ticks, memory_order_relaxed);
	who->pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed);
	return true;
}

/* Adds those of a segment that are not there yet. How many; the crowd has room. */
static unsigned add_members(struct crowd *crowd, const struct map *map)
{
	const struct crowd before = *crowd;
	struct identity who;

	for (uint32_t i = 0; i < map->dims.workers; i++)
		if (read_identity(map_worker(map, i), &who) && !is_among(&before, &who))
			crowd->members[crowd->count++] = who;
	qsort(crowd->members, crowd->count, sizeof(*crowd->members), compare);
	return (unsigned)(crowd->count - before.count);
}

/* In former segments alone. */
static unsigned count_absent(const struct succession *succession, const struct map *current)
{
	size_t room = current->dims.workers;
	unsigned absent = 0;

	for (unsigned i = 0; i < succession->count; i++)
		room += succession->former[i].map.dims.workers;
	struct crowd crowd = {calloc(room, sizeof(struct identity)), 0};
	if (crowd.members == NULL)
		return 0;
	add_members(&crowd, current);
	for (unsigned i = succession->count; i > 0; i--)
		absent += add_members(&crowd, &succession->former[i - 1].map);
	free(crowd.members);
	return absent;
}

void followers_expect(const struct succession *succession, const struct map *current)
{
	unsigned absent = succession->count == 0 ? 0 : count_absent(succession, current);

	if (absent == 0 && !share_is_expecting(current))
		return;
	share_expect(current, absent == 0 ? 0 : share_taken(current) + absent, clock_coarse_ms(current) + EXPECT_MS);
	share_recount(current);
}
