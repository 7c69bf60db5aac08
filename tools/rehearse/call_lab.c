/* SPDX-License-Identifier: MIT */
/*
 * Calls to the lab's own servers.
 *
 * A connection is kept from call to call, and given up when a call on it did not end well: a late answer goes down with the connection on
 * which it comes, and the server sees that its caller has gone. A connection that was closed between two calls is noticed before the
 * next one is sent, and made anew: that is not a failure of the dependency. What happens after that is.
 *
 * The first connection is made before the rehearsal begins, as workers with a pool have it: clients that call together reach the server
 * together.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "caller.h"
#include "wire.h"

#define DIAL_NS INT64_C(1000000000) /* connecting in advance takes no longer */

void lab_hang_up(struct line *line)
{
	if (line->fd < 0)
		return;
	wire_reset_on_close(line->fd);
	close(line->fd);
	line->fd = -1;
}

/* Was it closed from the other side, or is there something on it that nobody asked for? */
static bool is_usable(const struct line *line)
{
	char byte;
	return line->fd >= 0 && recv(line->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0 && errno == EAGAIN;
}

/* A connection that is refused is the dependency's failure; one that this host cannot even try is ours. */
static enum resc_outcome refused(const struct caller *caller, unsigned dependency, int error)
{
	if (error != ECONNREFUSED && error != ECONNRESET && error != ETIMEDOUT)
		call_lacks(caller, dependency, error);
	return RESC_FAIL;
}

static int dial(const struct dependency *dependency)
{
	/* tcp://127.0.0.1:PORT */
	unsigned long port = strtoul(strrchr(dependency->address, ':') + 1, NULL, 10);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	if (connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 || errno == EINPROGRESS)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static enum resc_outcome connect_to(struct caller *caller, unsigned dependency, int64_t deadline_ns)
{
	struct line *line = &caller->lines[dependency];
	int error = 0;
	socklen_t size = sizeof(error);

	lab_hang_up(line);
	line->fd = dial(&caller->scenario->dependencies[dependency]);
	if (line->fd < 0) {
		error = -line->fd;
		line->fd = -1;
		return refused(caller, dependency, error);
	}
	enum resc_outcome outcome = call_await(caller, line->fd, POLLOUT, deadline_ns);
	if (outcome != RESC_OK)
		return outcome;
	if (getsockopt(line->fd, SOL_SOCKET, SO_ERROR, &error, &size) < 0)
		error = errno;
	return error == 0 ? RESC_OK : refused(caller, dependency, error);
}

void lab_dial(struct caller *caller, unsigned dependency)
{
	if (connect_to(caller, dependency, call_clock_ns() + DIAL_NS) != RESC_OK)
		lab_hang_up(&caller->lines[dependency]);
}

/* Reads the answer. Bytes that are missing are waited for. */
static enum resc_outcome hear(const struct caller *caller, int fd, int64_t deadline_ns, struct wire_answer *answer)
{
	unsigned char *bytes = (unsigned char *)answer;
	size_t length = 0;

	while (length < sizeof(*answer)) {
		enum resc_outcome outcome = call_await(caller, fd, POLLIN, deadline_ns);
		if (outcome != RESC_OK)
			return outcome;
		ssize_t n = recv(fd, bytes + length, sizeof(*answer) - length, 0);
		if (n > 0)
			length += (size_t)n;
		else if (n == 0 || (errno != EAGAIN && errno != EINTR))
			return RESC_FAIL;
	}
	return answer->magic == WIRE_MAGIC ? RESC_OK : RESC_FAIL;
}

static enum resc_outcome ask(struct caller *caller, unsigned dependency, const struct call *call, struct wire_answer *answer)
{
	struct line *line = &caller->lines[dependency];
	int64_t deadline_ns = call_deadline_ns(call);
	struct wire_request request = {
	        .magic = WIRE_MAGIC,
	        .request = call->request,
	        .try = call->try,
	        .probe = call->probe,
	};

	if (!is_usable(line)) {
		enum resc_outcome outcome = connect_to(caller, dependency, deadline_ns);
		if (outcome != RESC_OK)
			return outcome;
	}
	if (send(line->fd, &request, sizeof(request), MSG_NOSIGNAL) != (ssize_t)sizeof(request))
		return RESC_FAIL;
	return hear(caller, line->fd, deadline_ns, answer);
}

enum resc_outcome lab_call(struct caller *caller, unsigned dependency, const struct call *call, struct call_result *result)
{
	struct wire_answer answer;
	enum resc_outcome outcome = ask(caller, dependency, call, &answer);
	if (outcome != RESC_OK) {
		lab_hang_up(&caller->lines[dependency]);
		return outcome;
	}
	result->retry_after_ms = answer.retry_after_ms;
	return answer.status == WIRE_OK ? RESC_OK : RESC_FAIL;
}
