/* SPDX-License-Identifier: MIT */
/*
 * Views: everything that a call of one resource needs, found once, when something has changed, so that a call finds it through one pointer.
 * A view is built under the host's lock and never changed after it was published.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "failpoint.h"
#include "host.h"
#include "move.h"
#include "policy.h"
#include "record.h"
#include "share.h"
#include "window.h"
#include "words.h"

/* A shard for this worker alone, the one that it has already, or NULL. A death leaves its life in `owner`, which the reaper clears. */
static struct shard *claim_shard(const struct map *map, struct state *state, uint32_t life)
{
	uint32_t claimable = map_first_common_shard(map);

	for (uint32_t i = 0; i < claimable; i++) {
		struct shard *shard = map_shard(map, state, i);
		if (atomic_load_explicit(&shard->owner, memory_order_relaxed) == life)
			return shard;
	}
	for (uint32_t i = 0; i < claimable; i++) {
		struct shard *shard = map_shard(map, state, i);
		uint64_t none = 0;
		/* Acquire pairs with the release of whoever freed it: we go on counting from what the last owner left. */
		if (atomic_load_explicit(&shard->owner, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(&shard->owner, &none, life, memory_order_acq_rel, memory_order_relaxed)) {
			FAILPOINT("shard.claimed");
			return shard;
		}
	}
	return NULL;
}

static bool is_empty(const struct map *map, uint32_t index)
{
	return breaker_tag(atomic_load_explicit(&map_state(map, index)->breaker, memory_order_acquire)) == TAG_EMPTY;
}

/*
 * In a successor: the resource's words are moved before its first call there. The first call may come when we have let go of the old
 * segment, or were never in it, and rescd may be dead: then it is opened once more.
 */
static void move_from_predecessor(resc *host, const struct map *map, uint32_t index)
{
	const struct attachment *before = host_predecessor(host);
	struct map opened = {.fd = -1};
	uint32_t own_life = 0;
	const struct map *from = before != NULL ? &before->map : NULL;

	if (from == NULL && map->predecessor != 0 && is_empty(map, index))
		from = host_open_predecessor(host, &opened, &own_life);
	/* Counters too: so that none goes back for who looks here before rescd has carried them. */
	if (from != NULL && move_is_same(from, map, index))
		move_resource(from, map, index);
	map_close(&opened);
}

static int find_index(const struct attachment *a, const char *name)
{
	int index = policy_find(&a->map, name);
	struct policy policy;

	if (index >= 0 || !a->map.private_mode)
		return index;
	policy_private(&policy);
	return record_publish(&a->map, name, &policy);
}

static bool has_shares(const struct policy *p)
{
	return (p->flags & POLICY_BULKHEAD) != 0 && p->critical_ppm + p->normal_ppm + p->low_ppm != 3000000;
}

/* Are there guards that an ordinary call has to be asked for one by one? */
static bool is_plain(const struct policy *p)
{
	const uint64_t others = POLICY_RATE | POLICY_THROTTLE | POLICY_RETRY_CAP | POLICY_SHADOW_BREAKER | POLICY_SHADOW_BULKHEAD;
	bool queue = (p->flags & POLICY_BULKHEAD) != 0 && (p->max_wait_ms != 0 || p->retry_after_ms != 0);
	bool deposits = (p->flags & POLICY_BUDGET) != 0 && p->budget_deposit == DEPOSIT_REQUEST;

	return (p->flags & others) == 0 && !has_shares(p) && !queue && !deposits;
}

/*
 * Workers start at different cells, below the limit. In shadow mode nothing holds them back from a cell that a share does not have any
 * more: then the start is beyond all of them, and they look from the first below the limit of the moment.
 */
static void choose_home(struct view *v, const struct attachment *a)
{
	const uint32_t cells = a->map.dims.permits;
	bool limited = (v->policy.flags & POLICY_BULKHEAD) != 0;

	v->start = a->worker.slot % (limited ? share_limit(&a->map, &v->policy) : cells);
	v->home = map_permit(&a->map, v->state, v->start);
	if (limited && (v->policy.flags & POLICY_SHADOW_BULKHEAD) != 0 && v->policy.limit_share_ppm != 0)
		v->start += cells;
}

static void fill_view(struct view *v, struct attachment *a, uint32_t index, const struct view *before)
{
	v->attachment = a;
	a->used[index / 64] |= UINT64_C(1) << index % 64;
	v->map = &a->map;
	v->index = index;
	v->record = map_policy(&a->map, index);
	v->state = map_state(&a->map, index);
	v->generation = a->map.generation;
	v->epoch = a->epoch;
	v->superseded = map_superseded_by(&a->map);
	v->life = a->worker.life;
	v->private_mode = a->map.private_mode;
	choose_home(v, a);
	v->judged = &v->judged_last;
	v->own = claim_shard(&a->map, v->state, v->life);
	/* Another thread may still be in a call with the view before: the shard's thread stays the same for this life. */
	bool same_life = before != NULL && before->life == v->life && before->generation == v->generation && before->epoch == v->epoch;
	v->owner_thread = same_life && before->own != NULL ? before->owner_thread : thread_self();
	v->common = map_shard(&a->map, v->state, a->map.dims.shards - 1 - a->worker.slot % (a->map.dims.shards / 4));
	v->tick_ms = window_tick_ms(&v->policy);
	v->tick_factor = UINT64_MAX / v->tick_ms + 1;
	v->throttle_tick_ms = window_bucket_ms(v->policy.throttle_window_ms);
	v->throttle_factor = UINT64_MAX / v->throttle_tick_ms + 1;
	bool slow_matters = (v->policy.flags & POLICY_BREAKER) != 0 && v->policy.slow_rate_ppm != 0;
	v->measure = (v->policy.flags & (POLICY_LATENCY | POLICY_SHADOW_TIMEOUT)) != 0 || slow_matters;
	v->rate_limit = rate_limit_of(v->policy.rate_per_second, v->policy.rate_burst);
	v->shares = has_shares(&v->policy);
	v->plain = is_plain(&v->policy);
	v->injects = (v->policy.flags & POLICY_INJECTION) != 0 && map_has(&a->map, 2);
	v->in_line = map_has(&a->map, 2);
	v->waits = (v->policy.flags & (POLICY_BULKHEAD | POLICY_SHADOW_BULKHEAD)) == POLICY_BULKHEAD && v->policy.max_wait_ms != 0;
}

static int build_view(struct resc_resource *resource, struct attachment *a, struct view **out)
{
	struct view *v = NULL;
	int index = find_index(a, resource->name);

	if (index < 0)
		return index;
	move_from_predecessor(resource->host, &a->map, (uint32_t)index);
	if (is_empty(&a->map, (uint32_t)index))
		return -EAGAIN; /* a successor that we cannot fill */
	if (posix_memalign((void **)&v, SEGMENT_LINE, sizeof *v) != 0)
		return -ENOMEM;
	memset(v, 0, sizeof *v);
	int r = policy_read(&a->map, (uint32_t)index, &v->policy, &v->sequence);
	if (r == 0 && (v->policy.flags & POLICY_CONFIGURED) == 0)
		r = -ENOENT;
	if (r != 0) {
		free(v);
		return r;
	}
	fill_view(v, a, (uint32_t)index, atomic_load_explicit(&resource->view, memory_order_relaxed));
	*out = v;
	return 0;
}

int host_refresh_view(struct resc_resource *resource)
{
	resc *host = resource->host;
	struct view *fresh = NULL;
	int r = host_ensure_attached(host);

	if (r == 0)
		r = build_view(resource, host->current, &fresh);
	if (r != 0)
		return r;
	/* Release: the view is complete when it can be seen. */
	host_retire_view(host, atomic_exchange_explicit(&resource->view, fresh, memory_order_acq_rel));
	return 0;
}
