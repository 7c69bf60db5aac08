/* SPDX-License-Identifier: MIT */
#include "waiting.h"

int waiting_join(const struct map *map, struct state *state, uint64_t mine, uint32_t most, uint32_t *cell)
{
	(void)map, (void)state, (void)mine, (void)most, (void)cell;
	return RESC_E_QUEUE_FULL;
}

void waiting_leave(const struct map *map, struct state *state, uint32_t cell, uint64_t mine)
{
	(void)map, (void)state, (void)cell, (void)mine;
}

uint32_t waiting_announce(struct state *state)
{
	(void)state;
	return 0;
}

void waiting_sleep(struct state *state, uint32_t value, uint64_t ns)
{
	(void)state, (void)value, (void)ns;
}

void waiting_signal(struct state *state)
{
	(void)state;
}

void waiting_wake_all(struct state *state)
{
	(void)state;
}

unsigned waiting_count(const struct map *map, const struct state *state)
{
	(void)map, (void)state;
	return 0;
}
