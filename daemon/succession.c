/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a table that has grown, or a segment whose name was removed by hand, means a new segment, and nothing may be lost on
 * the way: no open breaker, no held permit, no counted call. The protocols for words and permits are in move.h; here is the order of the
 * names around them.
 *
 *	1 link old        NAME.<old>    the predecessor keeps a name
 *	2 link successor  NAME.<new>    complete, policies published, words empty, limits in debt
 *	3 old->superseded = <new>       workers follow on their next call
 *	4 move idempotency keys, and words, permits, counters of each resource, again and again
 *	5 rename NAME.<new> -> NAME
 *
 * Why a death anywhere is resumed (NAME leads to old before 5, to new after it; rename is atomic):
 *	before 3	superseded is 0: no worker has seen the successor; both second names are leftovers, and are unlinked
 *	3 to 5		NAME leads to old, whose superseded names the file NAME.<new>: it is opened, and 4 and 5 are done (again)
 *	in 4		each move may be cut off and repeated by anybody (move.h); what one has moved, the next finds moved
 *	after 5		NAME leads to new, whose header names its predecessor: found as NAME.<old>, superseded by new, and 4 goes on
 *	at the end	old is unlinked when its debts are 0, it has no living worker, no key is away in it (once_move.c), and 4 was done
 *			once more; workers that come late find NAME
 *
 * Two faults at once are not resumed: NAME removed by hand (old has no name then, and steps 1 and 5 cannot lead back to it) and rescd
 * killed in the microseconds of 3 to 5. Then a fresh segment is made, which all workers join.
 *
 * A segment is only superseded when it owes nothing to its own predecessor (debts 0): a debt counts the cells of one segment, not of a
 * chain of them. Workers that are idle in a former segment do not hinder; so there can be a chain, and counters go along it, oldest first.
 */
#include "succession.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "event.h"
#include "failpoint.h"
#include "log.h"
#include "move.h"
#include "once.h"
#include "permit.h"
#include "policy.h"
#include "states.h"
#include "words.h"

/* A former segment whose permits are settled is carried on each so many turns only: what is left are results of calls on their way. */
#define SETTLED_TURNS 16u
/* How long debts to a segment that is gone are waited for. */
#define FORGIVE_MS 60000u

/* ---- step 4 ---- */

static unsigned move_all(const struct map *from, const struct map *to)
{
	unsigned debts = 0, ghosts = 0;

	/* First: no key can begin until they are there. */
	once_move(from, to, ONCE_LIFE_OF_RESCD);
	event_carry(from, to);
	for (uint32_t i = 0; i < states_in_use(from); i++) {
		/* One that was retired with callers inside is brought over too; without, its record is free again. */
		if (!move_is_same(from, to, i))
			continue;
		debts += move_resource(from, to, i);
		ghosts += move_ghosts(map_state(from, i), map_state(to, i));
		FAILPOINT("succession.moved_one");
		states_forget_now_and_then(from, i);
		states_forget_now_and_then(to, i);
	}
	states_forget(from);
	states_forget(to);
	/* A probe has a permit as well. */
	return debts > ghosts ? debts : ghosts;
}

static const struct map *successor_of(const struct succession *succession, const struct map *current, unsigned i)
{
	return i + 1 < succession->count ? &succession->former[i + 1].map : current;
}

/* ---- the chain ---- */

static void drop(struct succession *succession, unsigned i, const char *why)
{
	struct former *former = &succession->former[i];
	char path[MAP_PATH_SIZE];

	map_path(path, former->map.instance, former->map.generation);
	if (map_is_at(&former->map, path) && unlink(path) < 0)
		log_line("cannot remove %s: %s", path, strerror(errno));
	log_line("former segment %016" PRIx64 " is gone: %s", former->map.generation, why);
	reaper_remove(succession->reaper, former->map.generation);
	map_close(&former->map);
	succession->count--;
	memmove(former, former + 1, (succession->count - i) * sizeof(*former));
}

static void insert(struct succession *succession, unsigned at, const struct map *map)
{
	memmove(&succession->former[at + 1], &succession->former[at], (succession->count - at) * sizeof(succession->former[0]));
	succession->former[at] = (struct former){.map = *map};
	succession->count++;
	if (reaper_add(succession->reaper, map) < 0)
		log_line("no memory to watch the workers of segment %016" PRIx64 ": whoever is in their way reaps them", map->generation);
}

static bool is_empty(const struct map *map)
{
	for (uint32_t i = 0; i < map->dims.workers; i++)
		if (atomic_load_explicit(&map_worker(map, i)->life, memory_order_acquire) != 0)
			return false;
	return true;
}

bool succession_settled(const struct succession *succession)
{
	for (unsigned i = 0; i < succession->count; i++)
		if (!succession->former[i].settled)
			return false;
	return true;
}

unsigned succession_debts(const struct succession *succession, const struct map *current)
{
	unsigned debts = 0;

	for (unsigned i = 0; i < succession->count; i++)
		if (!succession->former[i].settled)
			debts += move_all(&succession->former[i].map, successor_of(succession, current, i));
	return debts;
}

/* What the oldest one superseded is gone, with whatever was still to come from there. */
static void close_chain(const struct succession *succession, const struct map *current)
{
	once_settle(NULL, succession->count > 0 ? &succession->former[0].map : current);
}

/* ---- debts to nobody ---- */

static bool owes(const struct map *map)
{
	for (uint32_t i = 0; i < states_in_use(map); i++)
		if (limit_debt(atomic_load_explicit(&map_state(map, i)->limit, memory_order_relaxed)) != 0)
			return true;
	return false;
}

/*
 * Its name was removed by hand, and the rescd that had it open is dead: whoever is still inside there pays back when he leaves, but who
 * dies there does not, and nobody can look. Such calls may go on for long, so a bulkhead is given its whole limit back only after
 * FORGIVE_MS: rather a few calls too many then than a few too few for ever.
 */
static void forgive(struct succession *succession, const struct map *current)
{
	uint64_t now_ms = clock_coarse_ms(current);

	if (succession->gone == 0)
		return;
	if (succession->gone != current->predecessor || !owes(current)) {
		succession->gone = 0;
		return;
	}
	if (now_ms - succession->gone_ms < FORGIVE_MS)
		return;
	for (uint32_t i = 0; i < states_in_use(current); i++)
		permit_forgive(current, map_state(current, i));
	log_line("former segment %016" PRIx64 " cannot be found: permits that were out there count as given back", succession->gone);
	succession->gone = 0;
}

void succession_tick(struct succession *succession, const struct map *current)
{
	bool all = ++succession->turn % SETTLED_TURNS == 0;

	for (unsigned i = 0; i < succession->count;) {
		struct former *former = &succession->former[i];
		const struct map *to = successor_of(succession, current, i);
		bool empty = is_empty(&former->map); /* before the last carry: who has left counts nothing any more */

		if (!former->settled || empty || all)
			former->settled = move_all(&former->map, to) == 0;
		bool keys = once_settle(&former->map, to);
		/* Only the oldest: those behind it would lose what it still has to give. */
		if (i == 0 && former->settled && keys && empty)
			drop(succession, i, "nobody is in it any more");
		else
			i++;
	}
	forgive(succession, current);
	if (all)
		close_chain(succession, current);
}

/* ---- superseding ---- */

static void remove_name(const struct map *map)
{
	char path[MAP_PATH_SIZE];

	map_path(path, map->instance, map->generation);
	if (map_is_at(map, path))
		unlink(path);
}

/* Steps 4 and 5. *current is superseded by *successor already: from here on there is only forward. */
static void finish(struct succession *succession, struct map *current, const struct map *successor, const char *path)
{
	char second[MAP_PATH_SIZE];

	map_path(second, successor->instance, successor->generation);
	if (succession->count == SUCCESSION_MAX)
		drop(succession, 0, "too many have followed it");
	insert(succession, succession->count, current);
	*current = *successor;
	succession->former[succession->count - 1].settled = move_all(&succession->former[succession->count - 1].map, current) == 0;
	FAILPOINT("succession.moved");
	if (rename(second, path) < 0)
		log_line("cannot rename %s to %s: %s; new workers find it all the same, by the old one", second, path, strerror(errno));
	FAILPOINT("succession.renamed");
	log_line("segment %016" PRIx64 " is superseded by %016" PRIx64 " (%zu bytes)", successor->predecessor, successor->generation,
	         successor->size);
}

int succession_supersede(struct succession *succession, struct map *current, struct map *successor, const char *path,
                         struct resc_error *err)
{
	char second[MAP_PATH_SIZE];
	int r;

	map_path(second, current->instance, current->generation);
	r = map_publish(current, second);
	/* -ENOENT: it has no name left at all, it was removed by hand; then it stays without one. */
	if (r < 0 && r != -ENOENT && !map_is_at(current, second))
		return error_set(err, r, "cannot link %s: %s", second, strerror(-r));
	FAILPOINT("succession.old_linked");
	map_path(second, successor->instance, successor->generation);
	r = map_publish(successor, second);
	if (r < 0) {
		remove_name(current);
		return error_set(err, r, "cannot link %s: %s", second, strerror(-r));
	}
	FAILPOINT("succession.linked");
	/* release: who follows finds the successor complete. */
	atomic_store_explicit(&current->daemon->superseded, successor->generation, memory_order_release);
	FAILPOINT("succession.superseded");
	finish(succession, current, successor, path);
	return 0;
}

/* ---- resuming ---- */

static int open_former(struct map *map, const char *instance, uint64_t generation, struct resc_error *err)
{
	char path[MAP_PATH_SIZE];
	int r;

	map_path(path, instance, generation);
	r = map_open(map, path, MAP_OWNER, err);
	if (r < 0)
		return r;
	if (map->generation == generation && strcmp(map->instance, instance) == 0 && map_lock_daemon(map) == 0)
		return 0;
	map_close(map);
	return error_set(err, -ENOLINK, "%s is not the segment that its name says", path);
}

static int go_forward(struct succession *succession, struct map *current, const char *path, struct resc_error *err)
{
	uint64_t next;

	for (unsigned i = 0; i < SUCCESSION_MAX && (next = map_superseded_by(current)) != 0; i++) {
		struct map successor;

		if (open_former(&successor, current->instance, next, err) < 0)
			return -ENOLINK;
		if (successor.predecessor != current->generation) {
			map_close(&successor);
			return error_set(err, -ENOLINK, "segment %016" PRIx64 " is superseded by one that does not know it",
			                 current->generation);
		}
		log_line("going on with a supersession that was cut off");
		finish(succession, current, &successor, path);
	}
	return 0;
}

static void find_predecessors(struct succession *succession, const struct map *current)
{
	while (succession->count < SUCCESSION_MAX) {
		const struct map *oldest = succession->count ? &succession->former[0].map : current;
		struct map map;

		if (oldest->predecessor == 0 || open_former(&map, current->instance, oldest->predecessor, NULL) < 0)
			return;
		if (map_superseded_by(&map) != oldest->generation) {
			map_close(&map);
			return;
		}
		insert(succession, 0, &map);
	}
}

static bool is_known(const struct succession *succession, uint64_t generation)
{
	for (unsigned i = 0; i < succession->count; i++)
		if (succession->former[i].map.generation == generation)
			return true;
	return false;
}

/* Is the file a segment of this instance and generation, also when it cannot be used any more? "a.0123456789abcdef" is a legal instance. */
static bool is_ours(const char *path, const char *instance, uint64_t generation)
{
	struct segment_header header;
	int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	bool ours = fd >= 0 && pread(fd, &header, sizeof(header), 0) == (ssize_t)sizeof(header) && header.magic == SEGMENT_MAGIC &&
	            header.generation == generation && strncmp(header.instance, instance, sizeof(header.instance)) == 0;

	if (fd >= 0)
		close(fd);
	return ours;
}

static void remove_leftovers(const struct succession *succession, const char *instance)
{
	DIR *directory = opendir(SEGMENT_DIR);
	char prefix[MAP_PATH_SIZE], path[MAP_PATH_SIZE];
	const struct dirent *entry;
	size_t length;

	snprintf(prefix, sizeof(prefix), SEGMENT_PREFIX "%.63s.", instance);
	length = strlen(prefix);
	while (directory && (entry = readdir(directory))) {
		char *end;
		uint64_t generation;

		if (strncmp(entry->d_name, prefix, length) != 0 || strlen(entry->d_name) != length + 16)
			continue;
		generation = strtoull(entry->d_name + length, &end, 16);
		if (*end != '\0' || is_known(succession, generation))
			continue;
		map_path(path, instance, generation);
		if (is_ours(path, instance, generation) && unlink(path) == 0)
			log_line("removed %s, which a dead rescd left", path);
	}
	if (directory)
		closedir(directory);
}

/* A rescd that died while it moved keys left claims; it held the lock that we hold now. */
static void free_claims(const struct succession *succession, const struct map *current)
{
	for (unsigned i = 0; i < succession->count; i++)
		once_reap(&succession->former[i].map, ONCE_LIFE_OF_RESCD);
	once_reap(current, ONCE_LIFE_OF_RESCD);
}

int succession_resume(struct succession *succession, struct map *current, const char *path, struct resc_error *err)
{
	int r = go_forward(succession, current, path, err);

	if (r < 0)
		return r;
	find_predecessors(succession, current);
	if (succession->count == 0 && current->predecessor != 0) {
		succession->gone = current->predecessor;
		succession->gone_ms = clock_coarse_ms(current);
	}
	free_claims(succession, current);
	close_chain(succession, current);
	remove_leftovers(succession, current->instance);
	succession_tick(succession, current);
	return 0;
}

void succession_remove_names(const struct succession *succession, const struct map *current)
{
	for (unsigned i = 0; i < succession->count; i++)
		remove_name(&succession->former[i].map);
	remove_name(current);
}

void succession_close(struct succession *succession)
{
	while (succession->count > 0) {
		struct map *map = &succession->former[--succession->count].map;

		reaper_remove(succession->reaper, map->generation);
		map_close(map);
	}
}
