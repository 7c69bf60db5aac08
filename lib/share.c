/* SPDX-License-Identifier: MIT */
#include "share.h"

unsigned share_limit(const struct map *map, const struct policy *policy)
{
	return policy->limit > map->dims.permits ? map->dims.permits : (unsigned)policy->limit;
}

void share_recount(const struct map *map)
{
	(void)map;
}

unsigned share_workers(const struct map *map)
{
	(void)map;
	return 0;
}

void share_expect(const struct map *map, unsigned workers, uint64_t until_ms)
{
	(void)map, (void)workers, (void)until_ms;
}
