/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: whoever asks resctl asks about the segment that the workers use now. The name of an instance leads there, except in
 * the short time while rescd replaces a segment by a larger one: then the old one says which is its successor, and that is followed.
 * Where rescd has died in the middle of that, the successor may be without the states and counters that belong in it: then they are moved
 * here, as every worker does for the resources that it calls. Who may not write sees what is there.
 * A successor that is not there means that two faults met; then the numbers of the old segment would be stale, and are not shown.
 *
 * Where there is nothing to attach to, the message says what would help, and which instances there are.
 */
#include "attach.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "error.h"
#include "format.h"
#include "move.h"
#include "policy.h"
#include "resctl.h"
#include "split.h"

#define OPENS_MAX 32

static int open_once(struct map *map, const char *instance, uint64_t generation, enum map_access access, struct resc_error *err)
{
	char path[MAP_PATH_SIZE];

	map_path(path, instance, generation);
	return map_open(map, path, access, err);
}

/* From the segment at the name of that generation (0: of the instance) to the one that supersedes it. */
static void move_states(const char *instance, uint64_t from, uint64_t to)
{
	struct map old, new;

	if (open_once(&old, instance, from, MAP_WORKER, NULL) < 0)
		return;
	if (open_once(&new, instance, to, MAP_WORKER, NULL) == 0) {
		for (uint32_t i = 0; i < old.dims.resources && map_superseded_by(&old) == new.generation; i++)
			if (move_is_same(&old, &new, i))
				move_resource(&old, &new, i);
		map_close(&new);
	}
	map_close(&old);
}

int open_current(struct map *map, const char *instance, enum map_access access, struct resc_error *err)
{
	const struct timespec pause = {0, 2000000};
	uint64_t next = 0;

	for (int i = 0; i < OPENS_MAX; i++) {
		uint64_t wanted = next;
		int r = open_once(map, instance, wanted, access, err);
		if (r < 0 && (wanted == 0 || r != -ENOENT))
			return r;
		if (r == 0) {
			next = map_superseded_by(map);
			if (next == 0)
				return 0;
			map_close(map);
			move_states(instance, wanted, next);
			continue;
		}
		/* The successor has just got the name of the instance, or it is gone: look again from there. */
		next = 0;
		nanosleep(&pause, NULL);
	}
	return error_set(err, -ENOLINK,
	                 "the segment of instance \"%s\" was replaced by one that is gone; restart rescd, workers will join its new one",
	                 instance);
}

/* ---- what helps ---- */

/* "a", or "a.0123456789abcdef" of a segment that is being replaced. */
static bool is_instance(const char *name)
{
	const char *dot = strrchr(name, '.');

	return name_check(name, NULL) == 0 && !(dot != NULL && strlen(dot + 1) == 16 && strspn(dot + 1, "0123456789abcdef") == 16);
}

static void list_instances(char *out, size_t size)
{
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;
	size_t used = 0;

	out[0] = '\0';
	while (directory != NULL && (entry = readdir(directory)) != NULL && used < size) {
		if (strncmp(entry->d_name, SEGMENT_PREFIX, strlen(SEGMENT_PREFIX)) != 0)
			continue;
		const char *name = entry->d_name + strlen(SEGMENT_PREFIX);
		if (is_instance(name) && used + strlen(name) + 8 < size)
			used += (size_t)snprintf(out + used, size - used, "%s%s", used > 0 ? ", " : "", name);
	}
	if (directory != NULL)
		closedir(directory);
}

/* Who may, by name, and the key of the configuration that lets more people. */
static void explain_mode(const char *path, enum map_access access)
{
	const struct group *group;
	struct stat st;
	char name[64];

	if (lstat(path, &st) != 0)
		return;
	group = getgrgid(st.st_gid);
	if (group != NULL)
		snprintf(name, sizeof(name), "\"%.48s\"", group->gr_name);
	else
		snprintf(name, sizeof(name), "%u", (unsigned)st.st_gid);
	if ((st.st_mode & (access == MAP_READER ? S_IRGRP : S_IWGRP)) != 0)
		complain("root and the members of group %s may: use sudo, or join the group", name);
	else
		complain("root and its owner, uid %u, may: use sudo", (unsigned)st.st_uid);
	if (access == MAP_READER)
		complain("\"mode\": \"0664\" in the configuration lets all users look");
}

static void explain(const struct resctl *ctl, int code, enum map_access access, const struct resc_error *err)
{
	char path[MAP_PATH_SIZE], others[400];

	map_path(path, ctl->instance, 0);
	if (code == -EACCES) {
		complain("%s", err->text);
		explain_mode(path, access);
		return;
	}
	if (code != -ENOENT) {
		complain("%s", err->text);
		return;
	}
	complain("instance \"%s\" has no segment (%s): rescd has not been started for it", ctl->instance, path);
	split_tell(ctl->instance);
	list_instances(others, sizeof(others));
	if (others[0] != '\0')
		complain("instances here: %s (choose with --instance)", others);
	else
		complain("start it with: rescd --config FILE");
}

int attach(struct resctl *ctl, enum map_access access)
{
	struct resc_error err = {0, ""};
	struct map map;

	int r = open_current(&map, ctl->instance, access, &err);
	if (r < 0) {
		explain(ctl, r, access, &err);
		return EXIT_NO_SEGMENT;
	}
	detach(ctl);
	ctl->map = map;
	ctl->attached = true;
	return 0;
}

void detach(struct resctl *ctl)
{
	if (ctl->attached)
		map_close(&ctl->map);
	ctl->attached = false;
}

bool is_outdated(const struct resctl *ctl)
{
	char path[MAP_PATH_SIZE];

	map_path(path, ctl->instance, 0);
	return map_superseded_by(&ctl->map) != 0 || !map_is_at(&ctl->map, path);
}

/* ---- resources by name ---- */

uint32_t resources_in_use(const struct map *map)
{
	uint64_t n = atomic_load_explicit(&map->daemon->resources, memory_order_acquire);

	return n < map->dims.resources ? (uint32_t)n : map->dims.resources;
}

/* Is a name near enough that it may have been meant? A beginning, or a third of it mistyped at most. */
static bool is_near(const char *meant, const char *name)
{
	size_t length = strlen(name);

	return name_distance(meant, name) <= (length < 6 ? 1 : length / 3) ||
	       (strlen(meant) >= 3 && strncmp(meant, name, strlen(meant)) == 0);
}

int find_resource(const struct resctl *ctl, const char *name)
{
	char other[SEGMENT_NAME_SIZE], near[256] = "";
	size_t used = 0, count = 0;
	int index = policy_find(&ctl->map, name);

	if (index >= 0)
		return index;
	for (uint32_t i = 0; i < resources_in_use(&ctl->map); i++) {
		if (!policy_name(&ctl->map, i, other))
			continue;
		count++;
		/* NOLINTNEXTLINE(readability-suspicious-call-argument): what was typed may be meant as a beginning of the other */
		if (is_near(name, other) && used + strlen(other) + 8 < sizeof(near))
			used += (size_t)snprintf(near + used, sizeof(near) - used, "%s%s", used > 0 ? ", " : "", other);
	}
	if (used > 0)
		complain("instance \"%s\" has no resource \"%s\"; did you mean: %s?", ctl->instance, name, near);
	else
		complain("instance \"%s\" has no resource \"%s\"; resctl list shows the %zu that it has", ctl->instance, name, count);
	return -1;
}
