/* SPDX-License-Identifier: MIT */
/*
 * How a worker calls the dependency: a plain client with a time limit, as it would be without libresc.
 *
 * A connection is kept from call to call. One that timed out is closed, because its answer may still come and would be taken for the
 * answer to the next question.
 */
#include "dependency.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

const struct dependency_kind *dependency_kind(const char *name)
{
	if (strcmp(name, dependency_server.name) == 0)
		return &dependency_server;
	if (strcmp(name, dependency_redis.name) == 0)
		return &dependency_redis;
	return NULL;
}

int dependency_start(struct dependency *dependency, const struct dependency_kind *kind, struct board *board, const char *dir)
{
	*dependency = (struct dependency){.kind = kind, .board = board, .control = -1};
	return kind->start(dependency, dir);
}

int dependency_set(struct dependency *dependency, enum fault fault)
{
	/* Release: the server that sees the fault also sees what the parent wrote before. */
	atomic_store_explicit(&dependency->board->fault, fault, memory_order_release);
	return dependency->kind->set(dependency, fault);
}

void dependency_stop(struct dependency *dependency)
{
	if (dependency->kind)
		dependency->kind->stop(dependency);
}

static struct sockaddr_in loopback(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

int dependency_listen(uint16_t *port)
{
	struct sockaddr_in address = loopback(0);
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	if (bind(fd, (struct sockaddr *)&address, size) < 0 || listen(fd, 128) < 0 ||
	    getsockname(fd, (struct sockaddr *)&address, &size) < 0) {
		close(fd);
		return -1;
	}
	*port = ntohs(address.sin_port);
	return fd;
}

/* Waits for a socket. False with errno ETIMEDOUT, or another. */
static bool wait_for(int fd, short events, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		int64_t left = resc_deadline_left_ms(deadline_ns);
		int ready = poll(&p, 1, left > 60000 ? 60000 : (int)left);
		if (ready > 0)
			return true;
		if (ready < 0 && errno != EINTR)
			return false;
		if (left == 0) {
			errno = ETIMEDOUT;
			return false;
		}
	}
}

int dependency_dial(uint16_t port, int64_t deadline_ns)
{
	struct sockaddr_in address = loopback(port);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));

	int failed = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? errno : 0;
	if (failed == EINPROGRESS) {
		socklen_t size = sizeof(failed);
		failed = 0;
		if (!wait_for(fd, POLLOUT, deadline_ns) || getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &size) < 0)
			failed = errno;
	}
	if (failed == 0)
		return fd;
	close(fd);
	errno = failed;
	return -1;
}

/* Reads until the reply is complete. */
static enum reply read_reply(const struct dependency *dependency, int fd, int64_t deadline_ns)
{
	char text[256];
	size_t length = 0;
	while (length < sizeof(text)) {
		if (!wait_for(fd, POLLIN, deadline_ns))
			return REPLY_MORE;
		ssize_t n = recv(fd, text + length, sizeof(text) - length, 0);
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			continue;
		if (n <= 0)
			return REPLY_ERROR;
		length += (size_t)n;
		enum reply reply = dependency->kind->reply(text, length);
		if (reply != REPLY_MORE)
			return reply;
	}
	return REPLY_ERROR;
}

enum resc_outcome dependency_ask(const struct dependency *dependency, int *connection, unsigned item, bool probe, int64_t timeout_ms)
{
	int64_t deadline_ns = timeout_ms < 0 ? RESC_NO_DEADLINE : resc_deadline_after_ms(timeout_ms);
	if (*connection < 0)
		*connection = dependency_dial(dependency->port, deadline_ns);
	if (*connection < 0)
		return errno == ETIMEDOUT ? RESC_TIMEOUT : RESC_FAIL;

	char text[128];
	int length = dependency->kind->request(text, sizeof(text), item, probe);
	enum reply reply = REPLY_ERROR;
	if (send(*connection, text, (size_t)length, MSG_NOSIGNAL) == length) {
		if (!dependency->kind->counts_itself)
			board_count_call(dependency->board, probe);
		reply = read_reply(dependency, *connection, deadline_ns);
	}
	if (reply == REPLY_GOOD)
		return RESC_OK;

	close(*connection);
	*connection = -1;
	return reply == REPLY_MORE ? RESC_TIMEOUT : RESC_FAIL;
}
