/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a worker that is killed holds permits and probe leases, and a dependency may have only one of them. Whoever meets
 * a full bulkhead or an overdue probe reaps too (see worker.h), so nothing here is needed for correctness; rescd makes it quick.
 *
 * Three ways to learn of a death, each covering what the one before cannot see:
 *
 *	pidfd    A worker in our pid namespace: readable at the moment of its death. The pid in the slot proves nothing, so the order is:
 *	         read the slot (identity == life) -> open the pidfd -> compare the start time of whoever has that pid now -> read the
 *	         slot again. Only then is the pidfd that of the life. Its word is final: the token is not asked.
 *	inotify  The last close of the segment file by a dead process is an event in every namespace. It says that somebody went, not
 *	         who: so the tokens are asked. An open says that somebody is about to register, a few microseconds or a scheduler's
 *	         mood later: so the slots are looked at after 0, 2, 10 and 50 ms. A worker with a question opens it too (request.h).
 *	sweep    Each second the tokens of those without a pidfd are asked, whatever happened; of all of them now and then, which also
 *	         finds a worker that lives on without its token (an exec closes it, and that is seen by inotify at once).
 *
 * A superseded segment is watched like the current one until it is empty. Watches hang on slots, so there are never more pidfds
 * than slots; where descriptors run out, the tokens do the work alone.
 */
#include "reaper.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/inotify.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "log.h"
#include "process.h"
#include "share.h"
#include "states.h"
#include "words.h"
#include "worker.h"

static const unsigned scan_ms[] = {0, 2, 10, 50};
#define SCANS         (sizeof(scan_ms) / sizeof(scan_ms[0]))
#define ASK_ALL_TURNS 8u

/* A worker that we hold a pidfd of. */
struct watched {
	struct watch watch; /* fd -1: none */
	struct reaper *reaper;
	struct reaper_map *owner;
	uint32_t life;
};

struct reaper_map {
	struct reaper_map *next;
	struct map map; /* a copy: the descriptor and the pages are the owner's */
	int watch;      /* of inotify; -1: none */
	struct watched slots[];
};

/* What a slot says about its worker. life 0: free. pid 0: not written yet. */
struct occupant {
	uint32_t life;
	pid_t pid;
	uint64_t start_ticks;
	uint64_t pid_namespace;
	char name[16];
};

static struct occupant slot_read(const struct worker_slot *slot)
{
	struct occupant worker = {.life = (uint32_t)atomic_load_explicit(&slot->life, memory_order_acquire)};

	/* Pairs with the release store of identity after the fields; read again, because the next occupant may be writing them. */
	if (worker.life == 0 || atomic_load_explicit(&slot->identity, memory_order_acquire) != worker.life)
		return worker;
	worker.pid = (pid_t)atomic_load_explicit(&slot->pid, memory_order_relaxed);
	worker.start_ticks = atomic_load_explicit(&slot->start_ticks, memory_order_relaxed);
	worker.pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed);
	for (size_t i = 0; i < sizeof(worker.name) - 1; i++)
		worker.name[i] = atomic_load_explicit(&slot->name[i], memory_order_relaxed);
	atomic_thread_fence(memory_order_acquire);
	if (atomic_load_explicit(&slot->identity, memory_order_relaxed) != worker.life || worker.pid < 0)
		worker.pid = 0;
	return worker;
}

static bool slot_has(const struct map *map, uint32_t slot, uint32_t life)
{
	return atomic_load_explicit(&map_worker(map, slot)->life, memory_order_acquire) == life;
}

/* ---- reaping ---- */

static void count_cells(const struct map *map, uint32_t life, unsigned *permits, unsigned *probes)
{
	for (uint32_t i = 0; i < states_in_use(map); i++) {
		struct state *state = map_state(map, i);
		word *cells = map_permits(map, state);

		for (uint32_t p = 0; p < map->dims.permits; p++)
			*permits += permit_life(atomic_load_explicit(&cells[p], memory_order_relaxed)) == life;
		for (uint32_t p = 0; p < PROBES_LIMIT; p++)
			*probes += probe_life(atomic_load_explicit(&state->probes[p], memory_order_relaxed)) == life;
	}
}

static void report(const struct occupant *worker, unsigned permits, unsigned probes, const char *how)
{
	log_line("worker died: pid %d, life %" PRIu32 ", name '%s': took back %u permit%s, %u probe%s, learnt by %s", (int)worker->pid,
	         worker->life, worker->name, permits, permits == 1 ? "" : "s", probes, probes == 1 ? "" : "s", how);
}

/*
 * True if that life is gone from the slot. The states that this touches are forgotten by reaper_tick and not here: workers often die
 * together, and the next one's cells are on the same pages.
 */
static bool reap(struct reaper *reaper, const struct map *map, uint32_t slot, const struct occupant *worker, bool certain)
{
	unsigned permits = 0, probes = 0;

	if (!slot_has(map, slot, worker->life))
		return true;
	if (!certain && life_is_held(map, worker->life))
		return false;
	count_cells(map, worker->life, &permits, &probes);
	if (!slot_has(map, slot, worker->life))
		return true; /* another reaper was quicker: what we counted is its to tell */
	if (!worker_reap(map, slot, worker->life, certain, 0))
		return false;
	report(worker, permits, probes, certain ? "pidfd" : "token");
	if (permits > 0 && reaper->freed && map_superseded_by(map) != 0)
		reaper->freed(reaper->arg);
	return true;
}

static void pidfd_ready(void *arg, uint32_t events)
{
	struct watched *watched = arg;
	struct reaper_map *owner = watched->owner;
	uint32_t slot = (uint32_t)(watched - owner->slots);
	struct occupant worker = slot_read(map_worker(&owner->map, slot));

	(void)events;
	loop_remove(watched->reaper->loop, &watched->watch);
	if (worker.life == watched->life && reap(watched->reaper, &owner->map, slot, &worker, true))
		share_recount(&owner->map);
}

/* ---- watching ---- */

static int open_pidfd(struct reaper *reaper, pid_t pid)
{
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);

	if (fd >= 0)
		return fd;
	if ((errno == EMFILE || errno == ENFILE) && !reaper->told_no_pidfd) {
		reaper->told_no_pidfd = true;
		log_line("no descriptors left for pidfds: the deaths of further workers are learnt within a second instead of at once");
	}
	return -errno;
}

static void watch_worker(struct reaper *reaper, struct reaper_map *owner, uint32_t slot, const struct occupant *worker)
{
	struct watched *watched = &owner->slots[slot];
	uint64_t ticks;
	int fd;

	if (worker->pid == 0 || reaper->pid_namespace == 0 || worker->pid_namespace != reaper->pid_namespace)
		return;
	fd = open_pidfd(reaper, worker->pid);
	if (fd == -ESRCH) {
		reap(reaper, &owner->map, slot, worker, true);
		return;
	}
	if (fd < 0)
		return;
	ticks = process_start_ticks(worker->pid);
	if (ticks == 0 || ticks != worker->start_ticks || !slot_has(&owner->map, slot, worker->life)) {
		close(fd); /* somebody else has that pid now: its token decides */
		return;
	}
	watched->reaper = reaper;
	watched->owner = owner;
	watched->life = worker->life;
	watched->watch.ready = pidfd_ready;
	watched->watch.arg = watched;
	if (loop_add(reaper->loop, &watched->watch, fd, EPOLLIN) < 0)
		close(fd);
}

static void look_at_slot(struct reaper *reaper, struct reaper_map *owner, uint32_t slot, bool ask_all)
{
	struct watched *watched = &owner->slots[slot];
	struct occupant worker = slot_read(map_worker(&owner->map, slot));

	if (watched->watch.fd >= 0 && watched->life != worker.life)
		loop_remove(reaper->loop, &watched->watch);
	if (worker.life == 0 || (watched->watch.fd >= 0 && !ask_all) || reap(reaper, &owner->map, slot, &worker, false))
		return;
	if (watched->watch.fd < 0)
		watch_worker(reaper, owner, slot, &worker);
}

static void sweep(struct reaper *reaper, bool ask_all)
{
	for (struct reaper_map *owner = reaper->maps; owner; owner = owner->next) {
		for (uint32_t slot = 0; slot < owner->map.dims.workers; slot++)
			look_at_slot(reaper, owner, slot, ask_all);
		/* Once for all who died together. */
		share_recount(&owner->map);
	}
}

void reaper_tick(struct reaper *reaper)
{
	sweep(reaper, ++reaper->turn % ASK_ALL_TURNS == 0);
	for (const struct reaper_map *owner = reaper->maps; owner; owner = owner->next)
		states_forget(&owner->map);
}

/* ---- the segment file ---- */

static void scan_due(void *arg)
{
	struct reaper *reaper = arg;

	sweep(reaper, true);
	reaper->stage++;
	if (reaper->again) {
		/* Not from 0: a flood of opens must not become a flood of scans. */
		reaper->again = false;
		reaper->stage = 1;
	}
	if (reaper->stage < SCANS)
		timer_arm(&reaper->scan, scan_ms[reaper->stage] - scan_ms[reaper->stage - 1], 0);
	else
		reaper->stage = SCANS;
}

static void scan_start(struct reaper *reaper)
{
	if (reaper->stage < SCANS) {
		reaper->again = true;
		return;
	}
	reaper->stage = 0;
	timer_arm(&reaper->scan, scan_ms[0], 0);
}

static void inotify_ready(void *arg, uint32_t events)
{
	struct reaper *reaper = arg;
	_Alignas(struct inotify_event) char buffer[4096];
	ssize_t size = read(reaper->inotify.fd, buffer, sizeof(buffer));
	bool renamed = false, used = false;

	(void)events;
	for (ssize_t at = 0; at < size;) {
		const struct inotify_event *event = (const void *)(buffer + at);

		at += (ssize_t)(sizeof(*event) + event->len);
		renamed |= (event->mask & IN_ATTRIB) != 0;
		used |= (event->mask & (IN_OPEN | IN_CLOSE | IN_Q_OVERFLOW)) != 0;
	}
	if (used)
		scan_start(reaper);
	if (renamed && reaper->renamed)
		reaper->renamed(reaper->arg);
	if (used && reaper->used)
		reaper->used(reaper->arg);
}

int reaper_open(struct reaper *reaper, struct loop *loop)
{
	int fd, r;

	*reaper = (struct reaper){.loop = loop, .stage = SCANS, .pid_namespace = process_namespace("pid")};
	reaper->inotify = (struct watch){.fd = -1, .ready = inotify_ready, .arg = reaper};
	reaper->scan.due = scan_due;
	reaper->scan.arg = reaper;
	r = timer_open(&reaper->scan, loop);
	if (r < 0)
		return r;
	fd = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
	if (fd < 0) {
		/* A limit of the user, easily used up by others: go on with pidfds at the next sweep, and tokens. */
		log_line("no inotify (%s): new workers are noticed within a second instead of at once", strerror(errno));
		return 0;
	}
	r = loop_add(loop, &reaper->inotify, fd, EPOLLIN);
	if (r < 0)
		close(fd);
	return r;
}

static bool is_watched(const struct reaper *reaper, uint64_t generation)
{
	for (const struct reaper_map *owner = reaper->maps; owner; owner = owner->next)
		if (owner->map.generation == generation)
			return true;
	return false;
}

int reaper_add(struct reaper *reaper, const struct map *map)
{
	struct reaper_map *owner;
	char path[32];

	if (is_watched(reaper, map->generation))
		return 0;
	owner = calloc(1, sizeof(*owner) + map->dims.workers * sizeof(owner->slots[0]));
	if (!owner)
		return -ENOMEM;
	owner->map = *map;
	owner->watch = -1;
	for (uint32_t i = 0; i < map->dims.workers; i++)
		owner->slots[i].watch.fd = -1;
	/* Through the descriptor: it must be this file, whatever has its name now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", map->fd);
	if (reaper->inotify.fd >= 0)
		owner->watch = inotify_add_watch(reaper->inotify.fd, path, IN_OPEN | IN_CLOSE | IN_ATTRIB);
	owner->next = reaper->maps;
	reaper->maps = owner;
	scan_start(reaper);
	return 0;
}

static void forget_map(struct reaper *reaper, struct reaper_map *owner)
{
	for (uint32_t i = 0; i < owner->map.dims.workers; i++)
		loop_remove(reaper->loop, &owner->slots[i].watch);
	if (owner->watch >= 0)
		inotify_rm_watch(reaper->inotify.fd, owner->watch);
	free(owner);
}

bool reaper_is_told(const struct reaper *reaper)
{
	for (const struct reaper_map *owner = reaper->maps; owner; owner = owner->next)
		if (owner->watch < 0)
			return false;
	return true;
}

void reaper_remove(struct reaper *reaper, uint64_t generation)
{
	for (struct reaper_map **at = &reaper->maps; *at; at = &(*at)->next) {
		struct reaper_map *owner = *at;

		if (owner->map.generation != generation)
			continue;
		*at = owner->next;
		forget_map(reaper, owner);
		return;
	}
}

void reaper_close(struct reaper *reaper)
{
	while (reaper->maps)
		reaper_remove(reaper, reaper->maps->map.generation);
	timer_close(&reaper->scan, reaper->loop);
	loop_remove(reaper->loop, &reaper->inotify);
}
