/* SPDX-License-Identifier: MIT */
/*
 * A segment as this process sees it: mapped, checked, its sizes copied out. Everything that reads or writes a segment does it
 * through one of these. See segment.h for what lies where.
 */
#ifndef RESC_MAP_H
#define RESC_MAP_H

#include <sys/types.h>

#include "segment.h"

enum map_access {
	MAP_WORKER, /* header, daemon and policies read-only; the rest read-write */
	MAP_OWNER,  /* rescd: everything but the header read-write */
	MAP_READER, /* everything read-only */
};

struct map {
	int fd; /* rescd's carries the daemon's lock; a worker's may be closed behind our back: see map_reopen. -1 in private mode */
	bool private_mode;
	enum map_access access;
	uint8_t *base;
	size_t size;
	dev_t dev;
	ino_t ino;
	uint64_t generation;
	uint64_t predecessor;
	uint64_t created_ns;
	uint64_t created_real_ns;
	char instance[SEGMENT_NAME_SIZE];
	unsigned minor;             /* of whoever made it: see map_has */
	struct segment_dims dims;   /* checked: within the limits, powers of two where promised */
	struct segment_sizes sizes; /* checked: a record has room for all that map_has */
	uint32_t permit_shift;      /* the permit cells are spread over 1 << permit_shift lines */
	size_t state_size;          /* bytes from one resource state to the next, cells and shards included */
	size_t shards_offset;       /* of its shards in a state */
	struct segment_daemon *daemon;
	uint8_t *policies;
	struct segment_live *live;
	uint8_t *workers;
	uint8_t *states;
	uint8_t *events;
	word *once_slots;
	uint8_t *once_entries;
};

/* "/dev/shm/resc.NAME", or with a generation "/dev/shm/resc.NAME.0123456789abcdef". size at least MAP_PATH_SIZE. */
#define MAP_PATH_SIZE 128
void map_path(char *path, const char *instance, uint64_t generation);
/* 0, or -EINVAL with the reason: empty, too long, a character that does not belong in a name. */
int name_check(const char *name, struct resc_error *err);

/* What a configuration needs room for. 0: as little as there can be. */
struct map_needs {
	uint32_t resources;
	uint32_t workers;
	uint32_t permits; /* the largest limit of a bulkhead */
	uint32_t calls;   /* the largest window by number of calls */
	uint32_t waiting; /* the longest queue */
	uint32_t once;    /* idempotency keys */
};
/* Dimensions for it. Rounded up, with room to grow. */
void map_dims(struct segment_dims *dims, const struct map_needs *needs);

/*
 * Makes a complete segment that has no name yet (O_TMPFILE, fallocated, mode and group set, daemon lock taken), mapped as MAP_OWNER.
 * A death before map_publish leaves nothing. gid (gid_t)-1: not changed. predecessor: the segment that this one will supersede, whose
 * zero of time it keeps, or NULL. 0 or -errno with err.
 */
int map_create(struct map *map, const char *instance, const struct segment_dims *dims, const struct map *predecessor, mode_t mode,
               gid_t gid, struct resc_error *err);
/* Takes LOCK_DAEMON: this process is the rescd of that segment, until it dies or closes it. 0; -EAGAIN another one is; -errno. */
int map_lock_daemon(const struct map *map);
/*
 * Does the holder of that byte's lock live? Holders lock for writing, for which the file must be writable. A lock for reading, which
 * everybody can take who may only look at the file, is no sign of life. 1, 0, or -errno when the kernel cannot say.
 */
int map_is_held(const struct map *map, int64_t byte);
/* Gives it a name; -EEXIST when the name is taken. */
int map_publish(const struct map *map, const char *path);
/* A segment in anonymous memory, for private mode. */
int map_private(struct map *map, const char *instance, struct resc_error *err);
/* Opens and checks. Nothing of a segment is used before all checks passed. -ENOENT when there is none. */
int map_open(struct map *map, const char *path, enum map_access access, struct resc_error *err);
/* True: the name at path leads to this very segment. False: to another one, or to nothing. One stat(). */
bool map_is_at(const struct map *map, const char *path);
/* Unmaps and closes. In a forked child too (it closes the child's copies). */
void map_close(struct map *map);

/*
 * A worker's program is not ours: it may close all descriptors that it does not know of, as daemons do, and open other files under their
 * numbers. So a descriptor is never used, nor closed, before fstat has said that it still is this segment's.
 */
bool map_has_descriptor(const struct map *map);
/* A new description of the very file that is mapped, whatever has its name now. -errno: it cannot be reached any more. */
int map_reopen(const struct map *map, int flags);
/*
 * Is it still as large as it was made, and its header what it was? Who cuts the file under its users kills those that touch what is gone,
 * and where it grows again they would read zeros. Some microseconds.
 */
bool map_is_sound(const struct map *map);
/* Closes the descriptor, and keeps the mapping. */
void map_close_descriptor(struct map *map);

/* The generation of its successor, or 0. */
static inline uint64_t map_superseded_by(const struct map *map)
{
	/* Acquire: the successor is complete when it is announced. */
	return atomic_load_explicit(&map->daemon->superseded, memory_order_acquire);
}

/* May a word be touched that is in the layout since that minor? Not where the segment is older, nor where this library is. */
static inline bool map_has(const struct map *map, unsigned since)
{
	const unsigned ours = SEGMENT_MINOR;

	return since <= map->minor && since <= ours;
}

uint64_t fnv1a(const void *data, size_t size);
/* The same, going on from the hash of what came before. */
uint64_t fnv1a_more(uint64_t hash, const void *data, size_t size);

/* ---- records. An index that comes from the segment is checked by the caller ---- */

static inline struct policy_record *map_policy(const struct map *map, uint32_t index)
{
	return (struct policy_record *)(void *)(map->policies +
	                                        (size_t)index * (sizeof(struct policy_record) + 2 * (size_t)map->sizes.policy));
}

static inline struct worker_slot *map_worker(const struct map *map, uint32_t slot)
{
	return (struct worker_slot *)(void *)(map->workers + (size_t)slot * map->sizes.worker);
}

static inline struct event_record *map_event(const struct map *map, uint32_t place)
{
	return (struct event_record *)(void *)(map->events + (size_t)place * map->sizes.event);
}

static inline struct once_entry *map_once_entry(const struct map *map, uint32_t slot)
{
	return (struct once_entry *)(void *)(map->once_entries + (size_t)slot * map->sizes.once_entry);
}

static inline struct state *map_state(const struct map *map, uint32_t index)
{
	return (struct state *)(void *)(map->states + (size_t)index * map->state_size);
}

/* The number of a state that map_state gave out. */
static inline uint32_t map_index(const struct map *map, const struct state *state)
{
	return (uint32_t)((size_t)((const uint8_t *)state - map->states) / map->state_size);
}

static inline word *map_permits(const struct map *map, const struct state *state)
{
	return (word *)((uintptr_t)state + map->sizes.state);
}

/* The permit cells of a resource, for whoever goes through them: what a loop with atomic accesses would load again and again. */
struct map_cells {
	word *first;
	uint32_t shift;
};

static inline struct map_cells map_cells(const struct map *map, const struct state *state)
{
	return (struct map_cells){map_permits(map, state), map->permit_shift};
}

/* Where the cell of that number is: consecutive numbers are on different lines, so that a small limit still has no shared lines. */
static inline word *map_cell(struct map_cells cells, uint32_t cell)
{
	return cells.first + (size_t)(cell & ((1u << cells.shift) - 1)) * (SEGMENT_LINE / 8) + (cell >> cells.shift);
}

static inline word *map_permit(const struct map *map, const struct state *state, uint32_t cell)
{
	return map_cell(map_cells(map, state), cell);
}

/* The shards before this one are claimed by workers; from this one on, a power of two, they are SHARD_COMMON from the start. */
static inline uint32_t map_first_common_shard(const struct map *map)
{
	return map->dims.shards - map->dims.shards / 4;
}

static inline struct shard *map_shard(const struct map *map, const struct state *state, uint32_t index)
{
	return (struct shard *)((uintptr_t)state + map->shards_offset + (size_t)index * map->sizes.shard);
}

/* What a superseded segment counted: behind the shards, and like one that is nobody's. */
static inline struct shard *map_carried(const struct map *map, const struct state *state)
{
	return map_shard(map, state, map->dims.shards);
}

/* The cells of calls that wait for a permit. */
static inline word *map_waiting(const struct map *map, const struct state *state)
{
	return map_permits(map, state) + map->dims.permits;
}

/* The ring of a window by number of calls. */
static inline word *map_calls(const struct map *map, const struct state *state)
{
	return map_waiting(map, state) + map->dims.waiting;
}

#endif
