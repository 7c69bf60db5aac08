/* SPDX-License-Identifier: MIT */
/*
 * Damage of a segment, as a list: {region:1, offset:3, bytes:8}. It is aimed at what is in use (the rest of a segment is all alike): a
 * region is named and not addressed, so that kept inputs mean the same in another layout. All of it can be undone.
 */
#ifndef FUZZ_DAMAGE_H
#define FUZZ_DAMAGE_H

#include <string.h>

#include "map.h"

#define DAMAGE      12u
#define DAMAGES_MAX 64u
/* Resources that are there. */
#define RESOURCES 3u

struct damage {
	size_t count;
	uint8_t *places[DAMAGES_MAX];
	uint8_t before[DAMAGES_MAX][8];
};

static inline uint8_t *damage_place(const struct map *map, const uint8_t damage[DAMAGE])
{
	struct state *state = map_state(map, 0);
	const struct {
		void *base;
		size_t size;
	} regions[] = {
	        {map->base, SEGMENT_PAGE},
	        {map->daemon, sizeof(struct segment_daemon)},
	        {map->policies, (RESOURCES + 1) * (sizeof(struct policy_record) + 2 * map->sizes.policy)},
	        {map->live, sizeof(struct segment_live)},
	        {map->workers, map->dims.workers * map->sizes.worker},
	        {map->states, RESOURCES * map->state_size},
	        {map->states, map->sizes.state},
	        {map->events, 16 * map->sizes.event},
	        {map_permits(map, state), map->dims.permits * sizeof(word)},
	        {map_waiting(map, state), map->dims.waiting * sizeof(word)},
	        {map_calls(map, state), map->dims.calls * sizeof(word)},
	        {map_shard(map, state, 0), map->dims.shards * map->sizes.shard},
	        {map->once_slots, map->dims.once * sizeof(word)},
	        {map->once_entries, 16 * map->sizes.once_entry},
	};
	size_t region = damage[0] % (sizeof(regions) / sizeof(regions[0]));
	size_t offset = ((size_t)damage[1] << 16 | (size_t)damage[2] << 8 | damage[3]) * 8;

	return (uint8_t *)regions[region].base + offset % (regions[region].size - 7) / 8 * 8;
}

static inline void damage_do(struct damage *damage, const struct map *map, const uint8_t *data, size_t size)
{
	damage->count = size / DAMAGE < DAMAGES_MAX ? size / DAMAGE : DAMAGES_MAX;
	for (size_t i = 0; i < damage->count; i++) {
		damage->places[i] = damage_place(map, data + i * DAMAGE);
		memcpy(damage->before[i], damage->places[i], 8);
		memcpy(damage->places[i], data + i * DAMAGE + 4, 8);
	}
}

static inline void damage_undo(const struct damage *damage)
{
	for (size_t i = damage->count; i-- > 0;)
		memcpy(damage->places[i], damage->before[i], 8);
}

#endif
