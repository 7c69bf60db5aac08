/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the log of a daemon is read at night, often through somebody else's collector. So a line is one fact, is written
 * with one write(2) (lines of several processes that share a stderr do not mix), says when it was unless the journal says it
 * already, and holds no control characters: names and reasons come from files and from other processes.
 */
#include "log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "chars.h"

#define LINE_SIZE 2048

static struct {
	bool verbose;
	bool journal;
} context;

/* systemd sets JOURNAL_STREAM to device:inode of the stream; it is inherited, so it must be compared with what stderr is now. */
static bool stderr_is_journal(void)
{
	const char *stream = getenv("JOURNAL_STREAM");
	struct stat st;
	char *end;

	if (!stream || fstat(STDERR_FILENO, &st) < 0 || strtoull(stream, &end, 10) != st.st_dev || *end != ':')
		return false;
	return strtoull(end + 1, &end, 10) == st.st_ino && *end == '\0';
}

void log_setup(bool verbose)
{
	context.verbose = verbose;
	context.journal = stderr_is_journal();
}

static size_t stamp(char *line, size_t size)
{
	struct timespec now;
	struct tm tm;
	size_t used;

	if (context.journal)
		return 0;
	clock_gettime(CLOCK_REALTIME, &now);
	if (!gmtime_r(&now.tv_sec, &tm))
		return 0;
	used = strftime(line, size, "%Y-%m-%dT%H:%M:%S", &tm);
	return used + (size_t)snprintf(line + used, size - used, ".%03ldZ ", now.tv_nsec / 1000000);
}

static void write_line(const char *format, va_list args)
{
	char line[LINE_SIZE];
	size_t used = stamp(line, sizeof(line));
	int length;
	ssize_t written;

	used += (size_t)snprintf(line + used, sizeof(line) - used, "rescd: ");
	length = vsnprintf(line + used, sizeof(line) - used - 1, format, args);
	if (length < 0)
		return;
	used = used + (size_t)length > sizeof(line) - 2 ? sizeof(line) - 2 : used + (size_t)length;
	line[used] = '\0';
	chars_clean(line, sizeof(line));
	line[used++] = '\n';
	/* A log that cannot be written is no reason to stop serving. */
	written = write(STDERR_FILENO, line, used);
	(void)written;
}

void log_line(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	write_line(format, args);
	va_end(args);
}

void log_debug(const char *format, ...)
{
	va_list args;

	if (!context.verbose)
		return;
	va_start(args, format);
	write_line(format, args);
	va_end(args);
}
