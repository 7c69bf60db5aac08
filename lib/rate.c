/* SPDX-License-Identifier: MIT */
#include "rate.h"

int rate_take(const struct map *map, struct state *state, const struct policy *policy, uint32_t cost, uint64_t now_ns,
              uint64_t most_wait_ns, struct rate_taken *taken, uint64_t *wait_ns)
{
	(void)map, (void)state, (void)policy, (void)cost, (void)now_ns, (void)most_wait_ns, (void)taken;
	*wait_ns = 0;
	return 0;
}

void rate_give_back(struct state *state, struct rate_taken *taken)
{
	(void)state, (void)taken;
}

void rate_fill(struct state *state, const struct policy *policy)
{
	(void)state, (void)policy;
}

uint64_t rate_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ns)
{
	(void)map, (void)state, (void)policy, (void)now_ns;
	return 0;
}
