/* SPDX-License-Identifier: MIT */
/*
 * Registering, leaving, and reaping the dead: the protocol is in worker.h, its model in tests/model/permits.pml.
 *
 * A pid proves nothing (zombies answer, pids are reused, containers have their own), so life is proved by a kernel lock on a byte that is
 * never used twice. The kernel drops it whatever the death, and it can be asked for from any pid namespace that can open the file.
 *
 * Orders: the claim of a slot (CAS, release) comes after the lock of the byte, a system call; the reaper loads the slot (acquire) before it
 * asks for the lock. So a slot that is seen with a life has had its byte locked, and an unlocked byte means dead. Cells are freed with
 * release, so that the next holder's acquire sees nothing of the dead one's that comes later; the slot is freed last. Slots are claimed and
 * freed with seq_cst, because a look at the shares follows: see share.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "count.h"
#include "event.h"
#include "failpoint.h"
#include "layout.h"
#include "once.h"
#include "policy.h"
#include "process.h"
#include "request.h"
#include "share.h"
#include "transition.h"
#include "waiting.h"
#include "words.h"
#include "worker.h"

#define LIFE_TRIES 16

/* ---- the token ---- */

/*
 * A lock belongs to an open file description, and lives as long as something refers to it: descriptors, also the copies in children, and
 * mappings. The token's description is referred to by one page of this process alone (MADV_DONTFORK), and by no descriptor: so no child
 * has it (but one of vfork(), which is in our memory until its exec), and no program that closes all descriptors ends its own life. Exec
 * and death unmap the page.
 */
static int token_open(const struct map *map, struct worker *worker)
{
	int fd = map_reopen(map, O_RDWR);

	if (fd < 0)
		return fd;
	void *page = mmap(NULL, SEGMENT_PAGE, PROT_NONE, MAP_SHARED, fd, 0);
	int r = page == MAP_FAILED ? -errno : 0;
	if (r == 0 && madvise(page, SEGMENT_PAGE, MADV_DONTFORK) != 0) {
		r = -errno;
		munmap(page, SEGMENT_PAGE);
	}
	if (r != 0) {
		close(fd);
		return r;
	}
	worker->token = page;
	return fd;
}

static void token_drop(struct worker *worker)
{
	if (worker->token != NULL)
		munmap(worker->token, SEGMENT_PAGE);
	worker->token = NULL;
}

void worker_forsake(struct worker *worker)
{
	token_drop(worker);
	worker->life = 0;
}

static int life_lock(int fd, uint32_t life, short type)
{
	struct flock lock = {.l_type = type, .l_whence = SEEK_SET, .l_start = LOCK_LIFE + life, .l_len = 1};

	return fcntl(fd, F_OFD_SETLK, &lock) == 0 ? 0 : -errno;
}

bool life_is_held(const struct map *map, uint32_t life)
{
	/* When the kernel cannot say, nobody is declared dead. */
	return map_is_held(map, LOCK_LIFE + life) != 0;
}

/* ---- registering ---- */

/*
 * A life whose byte we hold. In a damaged segment a number may come that somebody has: then the next one. -EBUSY: so were all that were
 * tried, which only somebody does who locks what is not theirs.
 */
int life_take(const struct map *map, int fd, uint32_t *life)
{
	bool locked = false;

	for (int i = 0; i < LIFE_TRIES; i++) {
		/* Relaxed: only the number matters, and each is given once. */
		uint64_t n = atomic_fetch_add_explicit(&map->live->next_life, 1, memory_order_relaxed);
		if (n == 0)
			continue;
		if (n >= ORPHAN_LIFE)
			return -EOVERFLOW;
		FAILPOINT("register.life");
		int r = map->private_mode ? 0 : life_lock(fd, (uint32_t)n, F_WRLCK);
		if (r == 0) {
			*life = (uint32_t)n;
			return 0;
		}
		if (r != -EAGAIN && r != -EACCES)
			return r;
		locked = true;
	}
	return locked ? -EBUSY : -EOVERFLOW;
}

void life_give_back(int fd, uint32_t life)
{
	life_lock(fd, life, F_UNLCK);
}

static void write_identity(const struct map *map, struct worker_slot *slot, uint32_t life)
{
	char name[16] = "";
	int fd = open("/proc/self/comm", O_RDONLY | O_CLOEXEC);

	if (fd >= 0) {
		if (read(fd, name, sizeof name - 1) < 0)
			name[0] = '\0';
		close(fd);
	}
	name[strcspn(name, "\n")] = '\0';
	for (size_t i = 0; i < sizeof name; i++)
		atomic_store_explicit(&slot->name[i], name[i], memory_order_relaxed);
	atomic_store_explicit(&slot->pid, (uint64_t)getpid(), memory_order_relaxed);
	atomic_store_explicit(&slot->start_ticks, process_start_ticks(getpid()), memory_order_relaxed);
	atomic_store_explicit(&slot->pid_namespace, process_namespace("pid"), memory_order_relaxed);
	atomic_store_explicit(&slot->registered_ms, clock_coarse_ms(map), memory_order_relaxed);
	/* With the life: whoever has the slot next may be of a version that does not write here. */
	if (map_has(map, 1))
		atomic_store_explicit(&slot->version, (uint64_t)life << 32 | LAYOUT_VERSION, memory_order_relaxed);
	/* Release: who sees identity == life sees what belongs to it. */
	atomic_store_explicit(&slot->identity, life, memory_order_release);
	FAILPOINT("register.named");
}

static bool claim_slot(const struct map *map, struct worker *worker)
{
	for (uint32_t i = 0; i < map->dims.workers; i++) {
		word *place = &map_worker(map, i)->life;
		uint64_t none = 0;
		if (atomic_load_explicit(place, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(place, &none, worker->life, memory_order_seq_cst, memory_order_relaxed)) {
			worker->slot = i;
			return true;
		}
	}
	return false;
}

/* The table is full: the dead first, then once more, also when it was somebody else who reaped them. */
static bool claim_slot_of_dead(const struct map *map, struct worker *worker)
{
	FAILPOINT("register.full");
	worker_sweep(map, worker->life);
	return claim_slot(map, worker);
}

/* A life and its token. The page keeps the lock, so the descriptor goes at once. */
static int begin_life(const struct map *map, struct worker *worker)
{
	int fd = map->private_mode ? -1 : token_open(map, worker);

	if (fd < 0 && !map->private_mode)
		return fd;
	int r = life_take(map, fd, &worker->life);
	if (fd >= 0)
		close(fd);
	if (r != 0)
		token_drop(worker);
	return r;
}

int worker_register(const struct map *map, struct worker *worker)
{
	*worker = (struct worker){0};
	int r = begin_life(map, worker);

	if (r != 0)
		return r;
	FAILPOINT("register.locked");
	if (!claim_slot(map, worker) && !claim_slot_of_dead(map, worker)) {
		token_drop(worker);
		worker->life = 0;
		return -ENOSPC;
	}
	FAILPOINT("register.claimed");
	write_identity(map, map_worker(map, worker->slot), worker->life);
	share_recount(map);
	return 0;
}

/* ---- leaving and reaping ---- */

static void free_word(word *place, uint64_t seen)
{
	/* That exact value: it may have been freed and taken by another meanwhile. */
	atomic_compare_exchange_strong_explicit(place, &seen, 0, memory_order_seq_cst, memory_order_relaxed);
}

/* What a reaper found of a life. Of several, each may find a part. */
struct found {
	unsigned permits;
	unsigned probes;
};

static void free_permits(const struct map *map, struct state *state, uint32_t life, struct found *found)
{
	for (uint32_t i = 0; i < map->dims.permits; i++) {
		word *place = map_permit(map, state, i);
		uint64_t seen = atomic_load_explicit(place, memory_order_relaxed);
		if (seen == 0 || permit_life(seen) != life)
			continue;
		found->permits++;
		/* seq_cst: then comes the look whether somebody waits. */
		if (atomic_compare_exchange_strong_explicit(place, &seen, 0, memory_order_seq_cst, memory_order_relaxed))
			count_common(map, state, COUNTER_permits_reclaimed, 1);
		FAILPOINT("reap.permit");
	}
}

static void free_probes(const struct map *map, struct state *state, uint32_t life, struct found *found)
{
	for (uint32_t i = 0; i < PROBES_LIMIT; i++) {
		uint64_t seen = atomic_load_explicit(&state->probes[i], memory_order_relaxed);
		if (seen == 0 || probe_life(seen) != life)
			continue;
		found->probes++;
		if (atomic_compare_exchange_strong_explicit(&state->probes[i], &seen, 0, memory_order_release, memory_order_relaxed))
			count_common(map, state, COUNTER_probes_reclaimed, 1);
		FAILPOINT("reap.probe");
	}
}

/* Places in the queue. Then whoever waits looks again: permits are free, or the dead one did not come to wake them. */
static void free_waiting(const struct map *map, struct state *state, uint32_t life)
{
	word *cells = map_waiting(map, state);

	for (uint32_t i = 0; i < map->dims.waiting; i++) {
		uint64_t seen = atomic_load_explicit(&cells[i], memory_order_relaxed);
		if (permit_life(seen) == life)
			free_word(&cells[i], seen);
	}
	FAILPOINT("reap.waiting");
	waiting_wake_all(state);
}

static void free_shards(const struct map *map, struct state *state, uint32_t life)
{
	for (uint32_t i = 0; i < map->dims.shards; i++) {
		word *owner = &map_shard(map, state, i)->owner;
		if (atomic_load_explicit(owner, memory_order_relaxed) != life)
			continue;
		free_word(owner, life);
		FAILPOINT("reap.shard");
	}
}

/* Every cell of every kind that carries this life, in the resources that it used (NULL: in all). */
static struct found free_cells(const struct map *map, uint32_t life, uint32_t own_life, const uint64_t *used)
{
	struct found found = {0, 0};
	char name[SEGMENT_NAME_SIZE];

	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if ((used != NULL && (used[i / 64] >> i % 64 & 1) == 0) || !policy_name_any(map, i, name))
			continue;
		struct state *state = map_state(map, i);
		free_permits(map, state, life, &found);
		free_probes(map, state, life, &found);
		free_waiting(map, state, life);
		free_shards(map, state, life);
		/* Perhaps it died in the middle of the record of a transition. */
		if (used == NULL)
			transition_complete(map, i, own_life);
	}
	once_reap(map, life);
	/* Who leaves by itself is not in the middle of an event or of a question. */
	if (used != NULL)
		return found;
	request_reap(map, life);
	for (uint32_t i = 0; i < map->dims.events; i++) {
		word *stamp = &map_event(map, i)->stamp;
		if (atomic_load_explicit(stamp, memory_order_relaxed) == (EVENT_BUSY | life))
			free_word(stamp, EVENT_BUSY | life);
	}
	return found;
}

void worker_unregister_from(const struct map *map, struct worker *worker, const uint64_t *used)
{
	uint64_t life = worker->life;

	if (life == 0)
		return;
	free_cells(map, worker->life, worker->life, used);
	FAILPOINT("unregister.cells");
	if (worker->slot < map->dims.workers)
		free_word(&map_worker(map, worker->slot)->life, life);
	FAILPOINT("unregister.freed");
	token_drop(worker);
	worker->life = 0;
	share_recount(map);
}

static uint64_t pid_of(const struct worker_slot *slot, uint32_t life)
{
	/* Acquire: pairs with the release in write_identity. */
	return atomic_load_explicit(&slot->identity, memory_order_acquire) == life ? atomic_load_explicit(&slot->pid, memory_order_relaxed)
	                                                                           : 0;
}

/*
 * Before the slot is freed: so each death is told at least once, and event_read gives it once. What is told is what the first one found who
 * came so far.
 */
static void tell(const struct map *map, uint32_t slot, uint32_t life, bool certain, uint32_t own_life, const struct found *found)
{
	const struct worker_slot *dead = map_worker(map, slot);
	struct event event = {.kind = EVENT_REAPED, .value = {life, pid_of(dead, life)}};

	/* Another one was quicker. */
	if (atomic_load_explicit(&dead->life, memory_order_acquire) != life)
		return;
	snprintf(event.text, sizeof event.text, "%u permit%s, %u probe%s, learnt by %s", found->permits, found->permits == 1 ? "" : "s",
	         found->probes, found->probes == 1 ? "" : "s", certain ? "pidfd" : "token");
	event_write(map, own_life, &event);
}

bool worker_reap(const struct map *map, uint32_t slot, uint32_t life, bool certain, uint32_t own_life)
{
	if (slot >= map->dims.workers || life == 0 || life == own_life)
		return false;
	if (atomic_load_explicit(&map_worker(map, slot)->life, memory_order_acquire) != life)
		return true;
	if (!certain && life_is_held(map, life))
		return false;
	FAILPOINT("reap.dead");
	const struct found found = free_cells(map, life, own_life, NULL);
	FAILPOINT("reap.cells");
	tell(map, slot, life, certain, own_life, &found);
	FAILPOINT("reap.told");
	uint64_t seen = life;
	if (atomic_compare_exchange_strong_explicit(&map_worker(map, slot)->life, &seen, 0, memory_order_seq_cst, memory_order_relaxed))
		atomic_fetch_add_explicit(&map->live->lives_reaped, 1, memory_order_relaxed);
	FAILPOINT("reap.freed");
	return true;
}

unsigned worker_sweep(const struct map *map, uint32_t own_life)
{
	unsigned reaped = 0;

	if (map->private_mode)
		return 0;
	for (uint32_t i = 0; i < map->dims.workers; i++) {
		uint64_t life = atomic_load_explicit(&map_worker(map, i)->life, memory_order_acquire);
		if (life > UINT32_MAX) {
			free_word(&map_worker(map, i)->life, life); /* no life looks like this: damage */
			continue;
		}
		if (life != 0 && worker_reap(map, i, (uint32_t)life, false, own_life))
			reaped++;
	}
	if (reaped > 0)
		share_recount(map);
	return reaped;
}

bool worker_sweep_maybe(const struct map *map, struct state *state, uint64_t now_ms, uint32_t own_life)
{
	uint64_t last = atomic_load_explicit(&state->swept_ms, memory_order_relaxed);

	/* A time in the future is damage, and counts as long ago. */
	if (map->private_mode || (last <= now_ms && now_ms - last < SWEEP_INTERVAL_MS))
		return false;
	if (!atomic_compare_exchange_strong_explicit(&state->swept_ms, &last, now_ms, memory_order_relaxed, memory_order_relaxed))
		return false;
	return worker_sweep(map, own_life) > 0;
}
