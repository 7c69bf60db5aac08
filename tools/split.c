/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a segment whose name was removed by hand lives on in the processes that have it mapped. rescd puts it back within a
 * second, but where it was dead too, workers are split: what resctl shows is true of those that have joined the new segment, and says
 * nothing of those that have not called since. So it says that there are such.
 *
 * They are found in /proc/PID/maps, as far as that may be read: a file of this instance's name, on the file system that is /dev/shm here
 * and not in some container, whose inode no name there leads to. Former segments of a replacement have names until nobody is in them.
 */
#include "split.h"

#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>

#include "map.h"
#include "resctl.h"

#define NAMED_MAX 64u

/* The files that have a name of the instance. */
struct named {
	dev_t device; /* that they are on */
	ino_t inodes[NAMED_MAX];
	unsigned count;
};

/* "NAME", or "NAME.0123456789abcdef"; what follows is after *end. */
static bool is_of_instance(const char *name, const char *instance, const char **end)
{
	size_t length = strlen(instance);

	if (strncmp(name, instance, length) != 0)
		return false;
	name += length;
	if (name[0] == '.' && strspn(name + 1, "0123456789abcdef") == 16)
		name += 17;
	*end = name;
	return true;
}

static void find_named(const char *instance, struct named *named)
{
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;
	const char *end;
	struct stat st;

	named->device = directory != NULL && fstat(dirfd(directory), &st) == 0 ? st.st_dev : 0;
	named->count = 0;
	while (directory != NULL && (entry = readdir(directory)) != NULL && named->count < NAMED_MAX)
		if (strncmp(entry->d_name, SEGMENT_PREFIX, strlen(SEGMENT_PREFIX)) == 0 &&
		    is_of_instance(entry->d_name + strlen(SEGMENT_PREFIX), instance, &end) && *end == '\0' &&
		    fstatat(dirfd(directory), entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
			named->inodes[named->count++] = st.st_ino;
	if (directory != NULL)
		closedir(directory);
}

static bool is_named(const struct named *named, uint64_t inode)
{
	for (unsigned i = 0; i < named->count; i++)
		if (named->inodes[i] == inode)
			return true;
	return false;
}

/* A line of /proc/PID/maps: addresses, rights, offset, device, inode, path. */
static bool is_lost(const char *line, const char *instance, const struct named *named)
{
	const size_t length = strlen(SEGMENT_DIR SEGMENT_PREFIX);
	unsigned major, minor;
	uint64_t inode;
	const char *end;
	int at = 0;

	if (sscanf(line, "%*s %*s %*s %x:%x %" SCNu64 " %n", &major, &minor, &inode, &at) != 3 || at == 0)
		return false;
	return makedev(major, minor) == named->device && strncmp(line + at, SEGMENT_DIR SEGMENT_PREFIX, length) == 0 &&
	       is_of_instance(line + at + length, instance, &end) && strcmp(end, " (deleted)\n") == 0 && !is_named(named, inode);
}

static bool has_lost_one(const char *pid, const char *instance, const struct named *named)
{
	char path[64], line[512];
	bool lost = false;

	snprintf(path, sizeof(path), "/proc/%.20s/maps", pid);
	FILE *maps = fopen(path, "re");
	while (maps != NULL && !lost && fgets(line, sizeof(line), maps) != NULL)
		lost = is_lost(line, instance, named);
	if (maps != NULL)
		fclose(maps);
	return lost;
}

void split_tell(const char *instance)
{
	DIR *directory = opendir("/proc");
	const struct dirent *entry;
	struct named named;
	unsigned count = 0;
	long pid = 0;

	find_named(instance, &named);
	while (directory != NULL && (entry = readdir(directory)) != NULL)
		if (isdigit((unsigned char)entry->d_name[0]) && has_lost_one(entry->d_name, instance, &named) && count++ == 0)
			pid = strtol(entry->d_name, NULL, 10);
	if (directory != NULL)
		closedir(directory);
	if (count > 0)
		complain("split: %u process%s (pid %ld%s) still %s a segment of this instance that was removed, and %s not in these "
		         "numbers; each joins the one of this name with its next call",
		         count, count == 1 ? "" : "es", pid, count == 1 ? "" : ", ...", count == 1 ? "has" : "have",
		         count == 1 ? "is" : "are");
}
