/* SPDX-License-Identifier: MIT */
/*
 * A real dependency: a redis-server of the demo's own, on an ephemeral port, with its files in the demo's directory.
 *
 * Its faults are two that operators meet. A hang: SIGSTOP, so the kernel still accepts and nobody answers. Errors: a replica
 * that has lost its master and does not serve old data answers every GET with -MASTERDOWN. It is made a replica of a port where
 * nobody listens *before* the hang, so that waking it up goes from one fault to the next without a healthy moment between.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "child.h"
#include "dependency.h"

#define ITEMS 100

/* Sends a command and expects a status line. 0 or -EIO. */
static int order(const struct dependency *dependency, const char *command)
{
	char text[256];
	size_t length = strlen(command);
	if (send(dependency->control, command, length, MSG_NOSIGNAL) != (ssize_t)length)
		return -EIO;
	struct pollfd p = {.fd = dependency->control, .events = POLLIN};
	if (poll(&p, 1, 2000) != 1)
		return -EIO;
	ssize_t n = recv(dependency->control, text, sizeof(text) - 1, 0);
	if (n > 0 && text[0] == '+')
		return 0;
	text[n > 0 ? n : 0] = '\0';
	fprintf(stderr, "demo: redis-server refused \"%.*s\": %s\n", (int)strcspn(command, "\r\n"), command, text);
	return -EIO;
}

static int fill(const struct dependency *dependency)
{
	for (unsigned item = 0; item < ITEMS; item++) {
		char command[64];
		snprintf(command, sizeof(command), "SET price:%u %u\r\n", item, 1000 + item);
		int r = order(dependency, command);
		if (r != 0)
			return r;
	}
	return order(dependency, "CONFIG SET replica-serve-stale-data no\r\n");
}

/* Waits until it listens. */
static int greet(struct dependency *dependency)
{
	int64_t deadline_ns = resc_deadline_after_ms(5000);
	while (resc_now_ns() < deadline_ns && !child_ended(&dependency->pid)) {
		dependency->control = dependency_dial(dependency->port, deadline_ns);
		if (dependency->control >= 0)
			return fill(dependency);
		if (child_sleep_until(resc_now_ns() + 20000000) != 0)
			return -EINTR;
	}
	return -ECHILD;
}

static int start(struct dependency *dependency, const char *dir)
{
	/* NOLINTNEXTLINE(cert-env33-c): a fixed command; the shell looks through PATH */
	if (system("command -v redis-server >/dev/null") != 0) {
		fprintf(stderr, "demo: there is no redis-server here. Install it (Debian: apt install redis-server), or run the demo "
		                "without DEP=redis.\n");
		return -ENOENT;
	}
	/* A port that was free a moment ago; somebody else may take it meanwhile, so a few tries. */
	for (int attempt = 0; attempt < 3; attempt++) {
		int listener = dependency_listen(&dependency->port);
		if (listener < 0)
			return -errno;
		close(listener);

		char port[8];
		char log[512];
		snprintf(port, sizeof(port), "%u", dependency->port);
		snprintf(log, sizeof(log), "%s/redis.log", dir);
		char *const argv[] = {
		        "redis-server",         "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no", "--dir",
		        (char *)(uintptr_t)dir, NULL};
		dependency->pid = child_start(argv, log);
		if (dependency->pid < 0)
			return dependency->pid;
		int r = greet(dependency);
		if (r == 0 || r == -EINTR)
			return r;
		dependency->kind->stop(dependency);
	}
	fprintf(stderr, "demo: redis-server does not start; try it by hand: redis-server --port 0\n");
	return -ECHILD;
}

static int set(struct dependency *dependency, enum fault fault)
{
	int r;
	switch (fault) {
	case FAULT_HANG:
		r = order(dependency, "REPLICAOF 127.0.0.1 1\r\n");
		return r != 0 || kill(dependency->pid, SIGSTOP) == 0 ? r : -errno;
	case FAULT_ERRORS:
		return kill(dependency->pid, SIGCONT) == 0 ? 0 : -errno;
	default:
		kill(dependency->pid, SIGCONT);
		return order(dependency, "REPLICAOF NO ONE\r\n");
	}
}

static void stop(struct dependency *dependency)
{
	if (dependency->control >= 0)
		close(dependency->control);
	dependency->control = -1;
	child_stop(&dependency->pid, SIGKILL); /* it may be stopped; it has nothing to save */
}

static int request(char *text, size_t size, unsigned item, bool probe)
{
	(void)probe;
	return snprintf(text, size, "GET price:%u\r\n", item % ITEMS);
}

/* "$4\r\n1017\r\n", or "-MASTERDOWN ...\r\n". */
static enum reply reply(const char *text, size_t length)
{
	const char *end = memmem(text, length, "\r\n", 2);
	if (!end)
		return REPLY_MORE;
	if (text[0] != '$' || text[1] == '-')
		return REPLY_ERROR;
	size_t first = (size_t)(end - text) + 2;
	return memmem(text + first, length - first, "\r\n", 2) ? REPLY_GOOD : REPLY_MORE;
}

const struct dependency_kind dependency_redis = {
        .name = "redis",
        .what = "a real redis-server",
        .counts_itself = false,
        .start = start,
        .set = set,
        .stop = stop,
        .request = request,
        .reply = reply,
};
