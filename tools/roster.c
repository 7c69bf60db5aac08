/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a permit cell names a life, and people know pids. The roster is read once, and then each resource's cells in one
 * pass, so that the sum of a resource's holders is what is said to be in use: one look, no two numbers that differ.
 */
#include "roster.h"

#include <errno.h>
#include <stdlib.h>

static int by_life(const void *a, const void *b)
{
	uint32_t x = ((const struct roster_worker *)a)->seen.life, y = ((const struct roster_worker *)b)->seen.life;

	return x < y ? -1 : x > y;
}

int roster_open(struct roster *roster, const struct map *map)
{
	*roster = (struct roster){
	        .workers = calloc(map->dims.workers, sizeof(*roster->workers)),
	        .lives = calloc(map->dims.permits, sizeof(*roster->lives)),
	        .permits = calloc(map->dims.permits, sizeof(*roster->permits)),
	};
	if (roster->workers == NULL || roster->lives == NULL || roster->permits == NULL) {
		roster_close(roster);
		return -ENOMEM;
	}
	for (uint32_t i = 0; i < map->dims.workers; i++)
		if (inspect_worker(map, i, &roster->workers[roster->count].seen) == 0)
			roster->count++;
	qsort(roster->workers, roster->count, sizeof(*roster->workers), by_life);
	return 0;
}

struct roster_worker *roster_find(const struct roster *roster, uint32_t life)
{
	const struct roster_worker key = {.seen = {.life = life}};

	return bsearch(&key, roster->workers, roster->count, sizeof(key), by_life);
}

/* Probe leases as inspect counts them: of this trial, and not overdue. */
static void take_probes(struct roster *roster, const struct map *map, const struct inspect_resource *resource)
{
	const struct state *state = map_state(map, resource->index);

	if (resource->breaker != TAG_HALF_OPEN)
		return;
	for (unsigned i = 0; i < PROBES_LIMIT; i++) {
		uint64_t cell = atomic_load_explicit(&state->probes[i], memory_order_acquire);
		struct roster_worker *worker = roster_find(roster, probe_life(cell));

		if (worker != NULL && probe_generation(cell) == (resource->generation & 0xff) &&
		    probe_age_ms(cell, resource->now_ms) < resource->policy.probe_timeout_ms)
			worker->probes++;
	}
}

uint32_t roster_take(struct roster *roster, const struct map *map, const struct inspect_resource *resource)
{
	uint32_t sum = 0;

	roster->held = inspect_holders(map, resource->index, roster->lives, roster->permits, map->dims.permits);
	for (size_t i = 0; i < roster->held; i++) {
		struct roster_worker *worker = roster_find(roster, roster->lives[i]);

		if (worker != NULL)
			worker->permits += roster->permits[i];
		sum += roster->permits[i];
	}
	take_probes(roster, map, resource);
	return sum;
}

void roster_close(struct roster *roster)
{
	free(roster->workers);
	free(roster->lives);
	free(roster->permits);
	*roster = (struct roster){0};
}
