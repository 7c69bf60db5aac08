/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what stands at the path of a configuration after an accident is often no text at all: a directory that a container
 * runtime made for a missing mount, a file of NUL bytes after a power cut, a file that a full disk left empty, a FIFO. A JSON parser says
 * "'[' or '{' expected near end of file" to all of them. Here each gets its own words, before any parsing.
 *
 * What it guarantees: it never blocks on a FIFO or a device, and reads at most CONFIG_SIZE_LIMIT bytes, whatever the size is said to be and
 * however the file grows meanwhile. Symbolic links are followed anew each time: a mounted configuration is often replaced by a swapped
 * link.
 */
#include "config_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"

#define LIMIT_TEXT "the limit is 4 MiB; is it a configuration file?"
_Static_assert(CONFIG_SIZE_LIMIT / 1024 / 1024 == 4, "LIMIT_TEXT says so");

__attribute__((format(printf, 3, 4))) static int refuse(struct config_problems *problems, int code, const char *format, ...);

static int refuse(struct config_problems *problems, int code, const char *format, ...)
{
	char text[256];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	config_problems_add(problems, false, "", 0, 0, "%s", text);
	return code;
}

static const char *what_it_is(mode_t mode)
{
	switch (mode & S_IFMT) {
	case S_IFDIR:
		return "a directory";
	case S_IFIFO:
		return "a FIFO";
	case S_IFSOCK:
		return "a socket";
	case S_IFCHR:
	case S_IFBLK:
		return "a device";
	default:
		return "something else";
	}
}

static const char *remedy(int error)
{
	switch (error) {
	case ENOENT:
	case ENOTDIR:
		return "; write one, or name another";
	case EACCES:
		return "; make it readable for the user that runs this program";
	default:
		return "";
	}
}

static int open_file(const char *path, struct config_problems *problems)
{
	/* O_NONBLOCK: a FIFO without a writer would hold us for ever. It changes nothing for regular files. */
	int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	struct stat st;

	if (fd < 0 && errno == ENXIO)
		return refuse(problems, -EINVAL, "is a socket or a device, not a regular file");
	if (fd < 0)
		return refuse(problems, -errno, "cannot be opened: %s%s", strerror(errno), remedy(errno));
	if (fstat(fd, &st) < 0) {
		int error = errno;

		close(fd);
		return refuse(problems, -error, "cannot be examined: %s", strerror(error));
	}
	if (S_ISREG(st.st_mode))
		return fd;
	close(fd);
	return refuse(problems, -EINVAL, "is %s, not a regular file", what_it_is(st.st_mode));
}

/* One byte more than the limit is enough to know that it is too large. */
static ssize_t read_all(int fd, char *text)
{
	size_t used = 0;

	while (used <= CONFIG_SIZE_LIMIT) {
		ssize_t r = read(fd, text + used, CONFIG_SIZE_LIMIT + 1 - used);

		if (r < 0 && errno == EINTR)
			continue;
		if (r < 0)
			return -errno;
		if (r == 0)
			break;
		used += (size_t)r;
	}
	return (ssize_t)used;
}

int config_file_read(const char *path, char **text, size_t *size, struct config_problems *problems)
{
	int fd = open_file(path, problems);
	char *shorter;
	ssize_t r;

	if (fd < 0)
		return fd;
	*text = malloc(CONFIG_SIZE_LIMIT + 1);
	if (!*text) {
		close(fd);
		return refuse(problems, -ENOMEM, "does not fit in memory");
	}
	r = read_all(fd, *text);
	close(fd);
	if (r < 0) {
		free(*text);
		return refuse(problems, (int)r, "cannot be read: %s", strerror((int)-r));
	}
	*size = (size_t)r;
	shorter = realloc(*text, *size + 1);
	if (shorter)
		*text = shorter;
	return 0;
}

static bool is_blank(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++) {
		if (!strchr(" \t\r\n", text[i]) || text[i] == '\0')
			return false;
	}
	return true;
}

static int line_of(const char *text, const char *at)
{
	int line = 1;

	for (; text < at; text++)
		line += *text == '\n';
	return line;
}

int config_text_check(const char *text, size_t size, struct config_problems *problems)
{
	const char *nul = size > 0 ? memchr(text, '\0', size) : NULL;

	if (size > CONFIG_SIZE_LIMIT)
		return refuse(problems, -EINVAL, "is too large; " LIMIT_TEXT);
	if (size >= 2 && (memcmp(text, "\xff\xfe", 2) == 0 || memcmp(text, "\xfe\xff", 2) == 0))
		return refuse(problems, -EINVAL, "is UTF-16; save it as UTF-8");
	if (size >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0)
		return refuse(problems, -EINVAL, "starts with a byte-order mark; save it as UTF-8 without one");
	if (nul)
		return refuse(problems, -EINVAL, "has a NUL byte in line %d: it is not a text, or was damaged; write it again",
		              line_of(text, nul));
	if (is_blank(text, size))
		return refuse(problems, -EINVAL, "is empty; the least that is valid is {\"resources\": {}}");
	return 0;
}
