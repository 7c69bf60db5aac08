/* SPDX-License-Identifier: MIT */
#include "once.h"

#include <errno.h>
#include <string.h>

void once_reap(const struct map *map, uint32_t life)
{
	(void)map, (void)life;
}

bool once_holds(const struct map *map, uint32_t life)
{
	(void)map, (void)life;
	return false;
}

void once_move(const struct map *from, const struct map *to)
{
	(void)from, (void)to;
}

bool once_settle(const struct map *from, const struct map *to)
{
	(void)from, (void)to;
	return true;
}

void once_usage(const struct map *map, struct once_usage *out)
{
	memset(out, 0, sizeof *out);
	out->size = map->dims.once;
}

int resc_once_begin(resc_resource *resource, const void *key, size_t key_size, const resc_options *options, resc_once *once)
{
	(void)resource, (void)key, (void)key_size, (void)options, (void)once;
	return -ENOTSUP;
}

int resc_once_done(resc_once *once, const void *answer, size_t size)
{
	(void)once, (void)answer, (void)size;
	return -EINVAL;
}

int resc_once_abandon(resc_once *once)
{
	(void)once;
	return -EINVAL;
}
