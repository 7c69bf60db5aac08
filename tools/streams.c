/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: an answer that nobody could read is no success; and a program that is started with its standard output closed gets the
 * number 1 for the next file that it opens. That would be a segment, and the next printf would write into it. Whoever closed it gets an
 * error from the end of the program instead.
 */
#include "streams.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Of the process: atexit takes no argument. */
static struct {
	const char *program;
	int failed;
} guard;

static void finish_output(void)
{
	bool failed = ferror(stdout) != 0;

	if (fclose(stdout) == 0 && !failed)
		return;
	fprintf(stderr, "%s: the answer could not be written: %s\n", guard.program, strerror(errno != 0 ? errno : EIO));
	_exit(guard.failed);
}

void streams_guard(const char *program, int failed)
{
	guard.program = program;
	guard.failed = failed;
	for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd)
			_exit(failed);
	atexit(finish_output);
}
