/* SPDX-License-Identifier: MIT */
/* The scene of the tests of calls: a host with "payments", one worker of it, and its clock, which stands at 1000 ms at the beginning. */
#ifndef UNIT_SCENE_H
#define UNIT_SCENE_H

#include "named.h"

static struct named n;
static resc *host;
static resc_resource *pay;
static uint64_t scene_ms;

static inline void at(uint64_t ms)
{
	scene_ms = ms;
	named_at(&n, ms);
}

static inline void later(uint64_t ms)
{
	at(scene_ms + ms);
}

static inline void use(struct policy p)
{
	named_reload(&n, &p);
}

/* NULL: the defaults with a breaker. */
static inline void scene_open(const struct policy *policy)
{
	named_open(&n, policy);
	host = named_join(n.instance);
	pay = named_lookup(host, "payments");
	at(1000);
}

static inline void scene_set_up(void)
{
	scene_open(NULL);
}

static inline void scene_tear_down(void)
{
	resc_close(host);
	named_close(&n);
}

#endif
