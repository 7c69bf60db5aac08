/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: resctl reload must come back with what rescd said, not with "signal sent". One line out, one line in, then the
 * socket is closed. The wait has an end, so that a stopped rescd does not hang the operator's shell.
 *
 * The path comes from the segment, where every worker can write. So before anything is said the kernel is asked who listens there
 * (SO_PEERCRED): it has to be root, ourselves, or the owner of the segment. Nobody else's "ok" is shown to an operator.
 */
#include "control_client.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "error.h"

#define ANSWER_MAX (4u << 20)

static int64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int wait_for(int fd, short events, int64_t until_ms)
{
	for (;;) {
		struct pollfd poll_fd = {.fd = fd, .events = events};
		int64_t left = until_ms - now_ms();
		int n = left <= 0 ? 0 : poll(&poll_fd, 1, (int)left);

		if (n > 0)
			return 0;
		if (n == 0)
			return -ETIMEDOUT;
		if (errno != EINTR)
			return -errno;
	}
}

/* Where too many others wait to be taken, or rescd is stopped, the kernel says EAGAIN at once, and nothing can be polled. */
static int connect_until(int fd, const struct sockaddr_un *address, int64_t until_ms)
{
	const struct timespec pause = {.tv_nsec = 10000000};

	while (connect(fd, (const struct sockaddr *)address, sizeof(*address)) < 0) {
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (now_ms() >= until_ms)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
	}
	return 0;
}

static int no_answer(int timeout_ms, struct resc_error *err)
{
	return error_set(err, -ETIMEDOUT, "rescd did not answer within %d ms; it may be stopped", timeout_ms);
}

static int connect_to(const char *path, int timeout_ms, int64_t until_ms, struct resc_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd, r;

	if (!path || path[0] == '\0' || strlen(path) >= sizeof(address.sun_path))
		return error_set(err, -EINVAL, "no usable control socket: '%s'", path ? path : "");
	memcpy(address.sun_path, path, strlen(path) + 1);
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(err, -errno, "no socket: %s", strerror(errno));
	r = connect_until(fd, &address, until_ms);
	if (r == 0)
		return fd;
	close(fd);
	if (r == -ETIMEDOUT)
		return no_answer(timeout_ms, err);
	return error_set(err, r, "cannot reach rescd at %s: %s%s", path, strerror(-r),
	                 r == -ENOENT || r == -ECONNREFUSED ? " (is it running?)" : "");
}

/* Who made the socket listen. */
static int check_server(int fd, uid_t owner, const char *path, struct resc_error *err)
{
	struct ucred server = {.uid = (uid_t)-1};
	socklen_t size = sizeof(server);

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &server, &size) < 0)
		return error_set(err, -errno, "cannot find out who serves %s: %s", path, strerror(errno));
	if (server.uid == 0 || server.uid == geteuid() || server.uid == owner)
		return 0;
	return error_set(
	        err, -EPERM,
	        "%s is served by uid %u (pid %d), who is neither root nor the owner of the segment: that is not rescd, and somebody "
	        "wrote this path into the segment or took the name",
	        path, (unsigned)server.uid, (int)server.pid);
}

static int send_all(int fd, const char *text, size_t size, int64_t until_ms)
{
	while (size > 0) {
		ssize_t n = send(fd, text, size, MSG_NOSIGNAL);

		if (n >= 0) {
			text += n;
			size -= (size_t)n;
			continue;
		}
		if (errno != EAGAIN && errno != EINTR)
			return -errno;
		if (wait_for(fd, POLLOUT, until_ms) < 0)
			return -ETIMEDOUT;
	}
	return 0;
}

/* Room for at least one more byte. */
static int make_room(char **text, size_t used, size_t *room)
{
	size_t more = *room == 0 ? 4096 : *room * 2;
	char *larger;

	if (used < *room)
		return 0;
	if (*room >= ANSWER_MAX)
		return -EPROTO;
	larger = realloc(*text, more);
	if (!larger)
		return -ENOMEM;
	*text = larger;
	*room = more;
	return 0;
}

/* Reads up to the end of the line or of the stream. *text is allocated, also on errors. */
static int receive_line(int fd, char **text, size_t *size, int64_t until_ms)
{
	size_t room = 0;

	for (;;) {
		ssize_t n;
		int r = make_room(text, *size, &room);

		if (r == 0)
			r = wait_for(fd, POLLIN, until_ms);
		if (r < 0)
			return r;
		n = recv(fd, *text + *size, room - *size, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			return 0;
		*size += (size_t)n;
		if ((*text)[*size - 1] == '\n')
			return 0;
	}
}

static int exchange(int fd, const char *command, int timeout_ms, int64_t until_ms, json_t **answer, struct resc_error *err)
{
	char line[256], *text = NULL;
	size_t size = 0;
	int r;

	r = snprintf(line, sizeof(line), "{\"command\":\"%s\"}\n", command);
	if (r < 0 || (size_t)r >= sizeof(line))
		return error_set(err, -EINVAL, "the command is too long");
	r = send_all(fd, line, (size_t)r, until_ms);
	if (r == 0 || r == -EPIPE || r == -ECONNRESET) /* it may have answered and hung up before it read all */
		r = receive_line(fd, &text, &size, until_ms);
	if (r == 0)
		*answer = json_loadb(text ? text : "", size, JSON_REJECT_DUPLICATES, NULL);
	free(text);
	if (r == -ETIMEDOUT)
		return no_answer(timeout_ms, err);
	if (r < 0)
		return error_set(err, r, "the connection to rescd broke: %s", strerror(-r));
	if (!json_is_object(*answer)) {
		json_decref(*answer);
		*answer = NULL;
		return error_set(err, -EPROTO, "rescd hung up without an answer");
	}
	return 0;
}

int control_request(const char *path, uid_t owner, const char *command, int timeout_ms, json_t **answer, struct resc_error *err)
{
	int64_t until_ms = now_ms() + timeout_ms;
	int fd = connect_to(path, timeout_ms, until_ms, err);
	int r;

	*answer = NULL;
	if (fd < 0)
		return fd;
	r = check_server(fd, owner, path, err);
	if (r == 0)
		r = exchange(fd, command, timeout_ms, until_ms, answer, err);
	close(fd);
	return r;
}
