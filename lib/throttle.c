/* SPDX-License-Identifier: MIT */
#include "throttle.h"

bool throttle_refuses(const struct view *v, uint64_t now_ms)
{
	(void)v, (void)now_ms;
	return false;
}

void throttle_count(const struct view *v, bool accepted, uint64_t now_ms)
{
	(void)v, (void)accepted, (void)now_ms;
}

uint32_t throttle_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint64_t *requests,
                      uint64_t *accepts)
{
	(void)map, (void)state, (void)policy, (void)now_ms;
	*requests = *accepts = 0;
	return 0;
}
