/* SPDX-License-Identifier: MIT */
/*
 * The file: its name, its size, who may use it, and what lies beside it. The header was checked, byte by byte, when it was mapped.
 *
 * Why these do not alarm falsely:
 *	segment.size
 *		a segment never changes its size
 *	segment.name
 *		a name that leads elsewhere while nothing has superseded this segment was changed by hand; rescd brings it back,
 *		or ends a replacement that a dead one began, on its next turn or its start
 *	segment.links
 *		a segment has a second name only while rescd replaces it, which takes less than a turn
 *	segment.access
 *		rescd sets mode and group when it starts; no configuration lets others write
 *	segment.leftover
 *		rescd holds its lock on the segment, on its former ones, and on a successor that it builds; and a former one in
 *		which workers live is in use. What has neither is left over from a rescd that was killed; one that starts
 *		removes it
 */
#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "doctor.h"
#include "worker.h"

#define FOREIGN_BITS (S_IWOTH | S_IXUSR | S_IXGRP | S_IXOTH | S_ISUID | S_ISGID | S_ISVTX)

static bool is_cut(struct doctor *d, const struct stat *st)
{
	const struct finding f = {.check = CHECK_SEGMENT_SIZE,
	                          .place = DOCTOR_ONE,
	                          .remedy = "restart rescd and all workers: who touches what is missing is killed by SIGBUS"};

	if (st->st_size >= (off_t)d->map->size)
		return false;
	doctor_suspect(d, &f, "file", "was cut to %lld of %zu bytes", (long long)st->st_size, d->map->size);
	return true;
}

static void look_at_stat(struct doctor *d, const struct stat *st)
{
	struct finding f = {.check = CHECK_SEGMENT_LINKS, .place = DOCTOR_ONE, .seen = st->st_nlink};

	if (st->st_nlink > 1) {
		f.remedy = "look for them with ls -li " SEGMENT_DIR SEGMENT_PREFIX "*; a rescd that starts removes what another has left";
		doctor_suspect(d, &f, "file", "has %u names", (unsigned)st->st_nlink);
	}
	f.check = CHECK_SEGMENT_ACCESS;
	f.seen = st->st_mode;
	f.remedy = "restart rescd: it sets mode and group as configured";
	if ((st->st_mode & FOREIGN_BITS) != 0)
		doctor_suspect(d, &f, "file", "has the mode %04o", (unsigned)(st->st_mode & 07777));
}

/* The segment that this one supersedes has still its name: the last step of the replacement is missing. */
static bool is_predecessor(const struct doctor *d, const char *path)
{
	struct map map;
	bool is = map_open(&map, path, MAP_READER, NULL) == 0 && map.generation == d->map->predecessor;

	map_close(&map);
	return is;
}

static void look_at_name(struct doctor *d)
{
	struct finding f = {.check = CHECK_SEGMENT_NAME, .place = DOCTOR_ONE};
	char path[MAP_PATH_SIZE];
	struct stat st = {0};

	map_path(path, d->map->instance, 0);
	if (map_is_at(d->map, path) || map_superseded_by(d->map) != 0)
		return;
	bool there = lstat(path, &st) == 0;
	f.seen = there ? st.st_ino : 0;
	if (!there) {
		f.remedy = "start rescd, which makes it again; workers go on with what they have";
		doctor_suspect(d, &f, "name", "%s is gone", path);
	} else if (d->map->predecessor != 0 && is_predecessor(d, path)) {
		f.remedy = "start rescd, which ends it; workers find the segment all the same";
		doctor_suspect(d, &f, "name", "%s leads to the former segment: its replacement was cut off", path);
	} else {
		f.remedy = "remove that file, and let rescd bring ours back; workers that start now do not share anything";
		doctor_suspect(d, &f, "name", "%s leads to another file", path);
	}
}

/* ---- what lies beside it ---- */

static bool somebody_lives(const struct map *map)
{
	for (uint32_t i = 0; i < map->dims.workers; i++) {
		uint64_t life = doctor_load(&map_worker(map, i)->life);
		if (life != 0 && life <= UINT32_MAX && life_is_held(map, (uint32_t)life))
			return true;
	}
	return false;
}

static void look_at_other(struct doctor *d, const char *name)
{
	struct finding f = {.check = CHECK_SEGMENT_LEFTOVER, .place = DOCTOR_ONE, .remedy = "start rescd, which removes it"};
	char path[MAP_PATH_SIZE];
	struct map map;

	snprintf(path, sizeof(path), SEGMENT_DIR "%.100s", name);
	/* What cannot be opened is another format's, or nobody's. */
	if (map_open(&map, path, MAP_READER, NULL) != 0)
		return;
	f.seen = map.generation;
	bool ours = map.generation != d->map->generation && strcmp(map.instance, d->map->instance) == 0;
	if (ours && map_is_held(&map, LOCK_DAEMON) == 0 && !somebody_lives(&map))
		doctor_suspect(d, &f, "file", "%s is a %s, and nobody is in it", path,
		               map.predecessor == d->map->generation ? "successor that was begun" : "former segment");
	map_close(&map);
}

static void look_beside(struct doctor *d)
{
	DIR *directory = opendir(SEGMENT_DIR);
	char prefix[MAP_PATH_SIZE];
	const struct dirent *entry;

	snprintf(prefix, sizeof(prefix), SEGMENT_PREFIX "%.63s.", d->map->instance);
	size_t length = strlen(prefix);
	while (directory != NULL && (entry = readdir(directory)) != NULL)
		if (strncmp(entry->d_name, prefix, length) == 0 && strlen(entry->d_name) == length + 16)
			look_at_other(d, entry->d_name);
	if (directory != NULL)
		closedir(directory);
}

bool doctor_look_at_file(struct doctor *doctor)
{
	struct stat st;

	if (doctor->map->fd < 0 || fstat(doctor->map->fd, &st) != 0)
		return true;
	if (is_cut(doctor, &st))
		return false;
	look_at_stat(doctor, &st);
	look_at_name(doctor);
	look_beside(doctor);
	return true;
}
