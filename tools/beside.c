/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a program that starts another must start the one of its own version, whatever PATH says and wherever a package was
 * unpacked. So it looks where its own file is, and not into a path that was fixed when it was compiled.
 */
#include "beside.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int find_beside(const char *const places[], char *path, size_t size)
{
	char own[PATH_MAX];
	ssize_t length = readlink("/proc/self/exe", own, sizeof(own) - 1);

	if (length < 0)
		return -errno;
	own[length] = '\0';
	char *slash = strrchr(own, '/');
	if (slash == NULL)
		return -ENOENT;
	*slash = '\0';
	for (size_t i = 0; places[i] != NULL; i++) {
		int needed = snprintf(path, size, "%s/%s", own, places[i]);
		if (needed > 0 && (size_t)needed < size && access(path, X_OK) == 0)
			return 0;
	}
	return -ENOENT;
}
