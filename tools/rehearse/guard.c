/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a child of ours dies with us because it asks the kernel for that (children.c), but the children of a foreign program ask
 * for nothing: a shell that starts a server, a server with workers of its own. While we live we kill its whole process group. If we are
 * killed, somebody else has to, who is told which groups there are, and hears of our death as rescd does: the other end of a socket is
 * closed, whatever we died of. It asks for no death of its own, and has a session of its own, out of reach of who kills ours.
 */
#include "guard.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "children.h"
#include "scenario.h"

/* A program that is started anew is forgotten before it is watched again, so there are never more. */
struct groups {
	pid_t items[SCENARIO_DEPENDENCIES];
};

static void replace(struct groups *groups, pid_t from, pid_t to)
{
	for (size_t i = 0; i < SCENARIO_DEPENDENCIES; i++) {
		if (groups->items[i] != from)
			continue;
		groups->items[i] = to;
		return;
	}
}

/* A number: watch it; below 0: forget it. Each is a message of its own. */
static void listen_to(int fd, struct groups *groups)
{
	pid_t word;
	ssize_t n;

	while ((n = recv(fd, &word, sizeof(word), 0)) == (ssize_t)sizeof(word) || (n < 0 && errno == EINTR)) {
		if (n > 0 && word > 0)
			replace(groups, 0, word);
		else if (n > 0)
			replace(groups, -word, 0);
	}
}

static _Noreturn void be_guard(int fd)
{
	struct groups groups = {0};

	setsid();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	prctl(PR_SET_NAME, "rehearse-guard");
	child_keep_file(fd);
	listen_to(CHILD_KEPT, &groups);
	for (size_t i = 0; i < SCENARIO_DEPENDENCIES; i++) {
		if (groups.items[i] > 0)
			kill(-groups.items[i], SIGKILL);
	}
	_exit(EXIT_SUCCESS);
}

int guard_start(struct guard *guard)
{
	int ends[2];

	*guard = GUARD_NONE;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) < 0) {
		int r = -errno;
		fprintf(stderr, "resctl rehearse: nobody to end the programs with this process: %s%s\n", strerror(-r), child_remedy(-r));
		return r;
	}
	pid_t pid = fork();
	if (pid == 0)
		be_guard(ends[1]);
	close(ends[1]);
	if (pid < 0) {
		fprintf(stderr, "resctl rehearse: no further process: %s%s\n", strerror(errno), child_remedy(errno));
		close(ends[0]);
		return -EAGAIN;
	}
	*guard = (struct guard){.pid = pid, .fd = ends[0]};
	return 0;
}

static void tell(struct guard *guard, pid_t word)
{
	while (guard->fd >= 0 && send(guard->fd, &word, sizeof(word), MSG_NOSIGNAL) < 0 && errno == EINTR)
		;
}

void guard_watch(struct guard *guard, pid_t group)
{
	tell(guard, group);
}

void guard_forget(struct guard *guard, pid_t group)
{
	tell(guard, -group);
}

void guard_end(struct guard *guard)
{
	if (guard->fd >= 0)
		close(guard->fd);
	child_kill(&guard->pid);
	*guard = GUARD_NONE;
}
