/* SPDX-License-Identifier: MIT */
/*
 * The demo's own dependency: a server of prices, in a process of its own.
 *
 * A line in, a line out: "PRICE 17 call" -> "OK 1017". Healthy, it answers in 2 to 5 ms. Hanging, it accepts and reads but never answers.
 * With errors, it answers "ERR" at once. The parent switches that in the board; the server looks at it for each request, and counts there
 * what it got: the figures of the demo are those of the victim and not those of the callers.
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "child.h"
#include "dependency.h"

#define CALLERS      64
#define NEVER        INT64_MAX
#define ANSWER_MIN   2000000u /* ns */
#define ANSWER_RANGE 3000000u

struct caller {
	int fd;            /* -1: free */
	int64_t answer_ns; /* when to answer: NEVER unless a request is due */
	size_t length;
	char line[64];
};

struct server {
	struct board *board;
	int listener;
	uint64_t random;
	struct caller callers[CALLERS];
};

static void hang_up(struct caller *caller)
{
	close(caller->fd);
	caller->fd = -1;
}

static void say(struct caller *caller, const char *text)
{
	caller->answer_ns = NEVER;
	caller->length = 0;
	if (send(caller->fd, text, strlen(text), MSG_NOSIGNAL) < 0)
		hang_up(caller);
}

/* PRICE and a number. */
static bool read_item(const char *line, unsigned long *item)
{
	static const char request[] = "PRICE ";
	char *end;
	if (strncmp(line, request, sizeof(request) - 1) != 0)
		return false;
	line += sizeof(request) - 1;
	*item = strtoul(line, &end, 10);
	return end != line && *item <= 1000000;
}

static void answer(struct caller *caller)
{
	unsigned long item;
	char text[32];
	if (!read_item(caller->line, &item)) {
		say(caller, "ERR what?\n");
		return;
	}
	snprintf(text, sizeof(text), "OK %lu\n", 1000 + item);
	say(caller, text);
}

/* A request is complete. */
static void take(struct server *server, struct caller *caller)
{
	board_count_call(server->board, strstr(caller->line, " probe") != NULL);
	switch (atomic_load_explicit(&server->board->fault, memory_order_acquire)) {
	case FAULT_HANG:
		return;
	case FAULT_ERRORS:
		say(caller, "ERR out of order\n");
		return;
	default:
		caller->answer_ns = resc_now_ns() + ANSWER_MIN + (int64_t)(board_random(&server->random) % ANSWER_RANGE);
	}
}

static void listen_to(struct server *server, struct caller *caller)
{
	ssize_t n = recv(caller->fd, caller->line + caller->length, sizeof(caller->line) - 1 - caller->length, 0);
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n <= 0) {
		hang_up(caller);
		return;
	}
	caller->length += (size_t)n;
	caller->line[caller->length] = '\0';
	if (strchr(caller->line, '\n'))
		take(server, caller);
	else if (caller->length == sizeof(caller->line) - 1)
		hang_up(caller);
}

static void welcome(struct server *server)
{
	int fd = accept4(server->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
	if (fd < 0)
		return;
	for (int i = 0; i < CALLERS; i++) {
		if (server->callers[i].fd >= 0)
			continue;
		server->callers[i] = (struct caller){.fd = fd, .answer_ns = NEVER};
		return;
	}
	close(fd);
}

/* Answers what is due, and says how long nothing else will be. */
static struct timespec answer_due(struct server *server)
{
	int64_t now_ns = resc_now_ns();
	int64_t next_ns = now_ns + 1000000000;
	for (int i = 0; i < CALLERS; i++) {
		struct caller *caller = &server->callers[i];
		if (caller->fd < 0)
			continue;
		if (caller->answer_ns <= now_ns)
			answer(caller);
		else if (caller->answer_ns < next_ns)
			next_ns = caller->answer_ns;
	}
	return (struct timespec){.tv_sec = (next_ns - now_ns) / 1000000000, .tv_nsec = (next_ns - now_ns) % 1000000000};
}

static _Noreturn void serve(struct server *server)
{
	for (;;) {
		struct timespec wait = answer_due(server);
		struct pollfd fds[CALLERS + 1];
		fds[CALLERS] = (struct pollfd){.fd = server->listener, .events = POLLIN};
		for (int i = 0; i < CALLERS; i++)
			fds[i] = (struct pollfd){.fd = server->callers[i].fd, .events = POLLIN};
		if (ppoll(fds, CALLERS + 1, &wait, NULL) < 0)
			continue;
		for (int i = 0; i < CALLERS; i++) {
			if (fds[i].revents)
				listen_to(server, &server->callers[i]);
		}
		if (fds[CALLERS].revents)
			welcome(server);
	}
}

static int start(struct dependency *dependency, const char *dir)
{
	(void)dir;
	int listener = dependency_listen(&dependency->port);
	if (listener < 0) {
		int error = -errno;
		fprintf(stderr, "demo: cannot listen on 127.0.0.1: %s\n", strerror(-error));
		return error;
	}
	pid_t pid = child_fork();
	if (pid == 0) {
		struct server server = {.board = dependency->board, .listener = listener, .random = 1};
		for (int i = 0; i < CALLERS; i++)
			server.callers[i].fd = -1;
		serve(&server);
	}
	close(listener);
	if (pid < 0) {
		fprintf(stderr, "demo: cannot fork the price server: %s\n", strerror(-pid));
		return pid;
	}
	dependency->pid = pid;
	return 0;
}

static int set(struct dependency *dependency, enum fault fault)
{
	(void)dependency; /* the server reads the board */
	(void)fault;
	return 0;
}

static void stop(struct dependency *dependency)
{
	child_stop(&dependency->pid, SIGKILL);
}

static int request(char *text, size_t size, unsigned item, bool probe)
{
	return snprintf(text, size, "PRICE %u %s\n", item, probe ? "probe" : "call");
}

static enum reply reply(const char *text, size_t length)
{
	if (!memchr(text, '\n', length))
		return REPLY_MORE;
	return length > 3 && memcmp(text, "OK ", 3) == 0 ? REPLY_GOOD : REPLY_ERROR;
}

const struct dependency_kind dependency_server = {
        .name = "server",
        .what = "the demo's own price server",
        .counts_itself = true,
        .start = start,
        .set = set,
        .stop = stop,
        .request = request,
        .reply = reply,
};
