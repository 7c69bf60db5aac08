/* SPDX-License-Identifier: MIT */
/*
 * Once a second one call looks whether the name still leads to our segment (it may have been removed and made again by hand), whether a
 * host's segment has appeared for a private view, and whether an old segment can be let go: tickets never move, so a superseded segment
 * stays mapped as long as a cell carries our life. And with rescd dead, it sees to what is still owed between a superseded segment
 * and its successor: permits, and idempotency keys.
 */
#include <errno.h>
#include <stdio.h>

#include "host.h"
#include "move.h"
#include "once.h"
#include "policy.h"
#include "untracked.h"
#include "words.h"

static bool holds_cells(const struct attachment *a)
{
	char name[SEGMENT_NAME_SIZE];

	if (once_holds(&a->map, a->worker.life) || untracked_holds(a->worker.life))
		return true;
	for (uint32_t i = 0; i < a->map.dims.resources; i++) {
		if ((a->used[i / 64] >> i % 64 & 1) == 0 || !policy_name_any(&a->map, i, name))
			continue;
		const struct state *state = map_state(&a->map, i);
		for (uint32_t c = 0; c < a->map.dims.permits; c++)
			if (permit_life(atomic_load_explicit(map_permit(&a->map, state, c), memory_order_relaxed)) == a->worker.life)
				return true;
	}
	return false;
}

/* Attachments that are not current and may still be in the hands of a call: the newest of them, or 0. */
static uint64_t newest_that_is_busy(const resc *host)
{
	for (const struct attachment *a = host->current == NULL ? NULL : host->current->older; a != NULL; a = a->older)
		if (!a->quiet)
			return a->order;
	return 0;
}

/*
 * A call that found its view before the attachment was replaced may take a cell in it at any moment until it ends. So first a grace period,
 * for all attachments up to `order`; then a look at the cells.
 */
static void let_go_of_old(resc *host, uint64_t order)
{
	struct attachment **link = host->current == NULL ? NULL : &host->current->older;

	while (link != NULL && *link != NULL) {
		struct attachment *a = *link;
		a->quiet = a->quiet || a->order <= order;
		if (!a->quiet || (a->worker.life != 0 && !host_finds_damaged(a) && holds_cells(a))) {
			link = &a->older;
			continue;
		}
		*link = a->older;
		host_retire_attachment(host, a);
	}
}

const struct map *host_open_predecessor(resc *host, struct map *opened, uint32_t *own_life)
{
	const struct map *map = &host->current->map;
	char path[MAP_PATH_SIZE];

	const struct attachment *a = host_predecessor(host);
	if (a != NULL) {
		*own_life = a->worker.life;
		return &a->map;
	}
	/* By its own name; or by the instance's, which leads to it until the last step of a supersession. */
	for (int i = 0; i < 2; i++) {
		map_path(path, host->instance, i == 0 ? map->predecessor : 0);
		if (map_open(opened, path, MAP_WORKER, NULL) != 0)
			continue;
		if (opened->generation == map->predecessor)
			return opened;
		map_close(opened);
	}
	return NULL;
}

/* Does a resource that we use still lack permits that are out in the segment before? */
static bool owes(const struct map *map, const struct resc_resource *resource, uint32_t *index)
{
	int found = policy_find_any(map, resource->name);

	if (found < 0)
		return false;
	*index = (uint32_t)found;
	return limit_debt(atomic_load_explicit(&map_state(map, *index)->limit, memory_order_relaxed)) != 0;
}

/* With rescd dead, whoever uses a resource sees to it that permits which were given back in the segment before count again. */
static void pay_debts(resc *host)
{
	const struct map *map = &host->current->map;
	struct map opened = {.fd = -1};
	const struct map *before = NULL;
	uint32_t own_life = 0;
	uint32_t index;

	if (map->private_mode || map->predecessor == 0)
		return;
	for (struct resc_resource *r = host->resources; r != NULL; r = r->next) {
		if (!owes(map, r, &index))
			continue;
		if (before == NULL) {
			before = host_open_predecessor(host, &opened, &own_life);
			if (before == NULL)
				break;
			worker_sweep(before, own_life);
		}
		if (!move_is_same(before, map, index))
			continue;
		/* Closing is the mover's. Where it is closed, what is left there only gets less. */
		if (limit_target(atomic_load_explicit(&map_state(before, index)->limit, memory_order_seq_cst)) == 0)
			move_permits(before, map_state(before, index), map, map_state(map, index));
	}
	map_close(&opened);
}

bool host_bring_keys(resc *host)
{
	struct map opened = {.fd = -1};
	uint32_t own_life = 0;
	bool there = false;

	pthread_mutex_lock(&host->lock);
	if (host_ensure_attached(host) == 0) {
		const struct attachment *a = host->current;
		const struct map *before = once_is_ready(&a->map) ? NULL : host_open_predecessor(host, &opened, &own_life);
		/* Nobody else's successor, and not one that was only announced. */
		if (before != NULL && map_superseded_by(before) == a->map.generation)
			once_move(before, &a->map, a->worker.life);
		there = once_is_ready(&a->map);
	}
	map_close(&opened);
	pthread_mutex_unlock(&host->lock);
	return there;
}

void host_look(resc *host)
{
	char path[MAP_PATH_SIZE];
	struct resc_error err = {0, ""};

	/* One thread looks; the others go on. */
	if (pthread_mutex_trylock(&host->lock) != 0)
		return;
	atomic_store_explicit(&host->next_look_ns, real_coarse_ns() + LOOK_INTERVAL_NS, memory_order_relaxed);
	map_path(path, host->instance, 0);
	if (host_ensure_attached(host) == 0 && (host->current->map.private_mode || !map_is_at(&host->current->map, path))) {
		if (host_attach_shared(host, &err))
			host->explained = false;
		else if (host->current->map.private_mode)
			snprintf(host->reason, sizeof host->reason, "%s", err.text);
	}
	if (host->current != NULL)
		pay_debts(host);
	uint64_t order = newest_that_is_busy(host);
	pthread_mutex_unlock(&host->lock);
	if (order != 0)
		wait_for_readers();
	pthread_mutex_lock(&host->lock);
	let_go_of_old(host, order);
	pthread_mutex_unlock(&host->lock);
	host_collect(host, false);
}
