/* SPDX-License-Identifier: MIT */
/*
 * Who starts processes has to end them, also when it is killed itself. Every child asks the kernel for its death with its parent's
 * (PR_SET_PDEATHSIG), and then looks whether that came in between: a parent that was dead before the question sends nothing.
 * That is for processes that may die at any moment. rescd has something to clean up, so it goes another way: see lab_rescd.c.
 *
 * A child keeps no descriptor of its parent's: the listening socket of a dependency, inherited by a worker, would go on accepting
 * connections when the dependency refuses them; and the other end of rescd's pipe would keep rescd alive.
 *
 * Their ends are noticed with pidfds, in one poll() with the parent's sleep. The status is only looked at (WNOWAIT) until children_end,
 * which takes it: whoever started a process that is only watched here still can.
 *
 * A stop (SIGSTOP) is no end, and no pidfd tells it. The kernel keeps for the parent that a child was stopped, or has been continued, until
 * the parent asks; so none is missed, however short it was and however seldom the parent asks.
 */
#include "children.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

int children_init(struct children *children, size_t room)
{
	*children = (struct children){
	        .room = room, .items = calloc(room, sizeof(*children->items)), .fds = calloc(room, sizeof(*children->fds))};
	if (children->items == NULL || children->fds == NULL) {
		fprintf(stderr, "resctl rehearse: no memory for %zu processes\n", room);
		children_free(children);
		return -ENOMEM;
	}
	child_raise_files();
	return 0;
}

void children_free(struct children *children)
{
	for (size_t i = 0; children->fds != NULL && i < children->count; i++) {
		if (children->fds[i].fd >= 0)
			close(children->fds[i].fd);
	}
	free(children->items);
	free(children->fds);
	*children = (struct children){0};
}

void child_keep_file(int kept)
{
	unsigned first = STDERR_FILENO + 1;

	if (kept >= 0) {
		if (dup2(kept, CHILD_KEPT) < 0)
			_exit(EXIT_FAILURE);
		first = CHILD_KEPT + 1;
	}
	syscall(SYS_close_range, first, ~0U, 0);
}

const char *child_remedy(int error)
{
	switch (error) {
	case EMFILE:
		return "; a higher `ulimit -n` lets it have more";
	case EAGAIN:
		return "; a higher `ulimit -u` allows more processes and threads";
	default:
		return "";
	}
}

pid_t child_fork_with(int kept)
{
	pid_t parent = getpid();
	pid_t pid = fork();

	if (pid < 0)
		fprintf(stderr, "resctl rehearse: no further process: %s%s\n", strerror(errno), child_remedy(errno));
	if (pid != 0)
		return pid;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(EXIT_FAILURE);
	setsid();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	child_keep_file(kept);
	return 0;
}

pid_t child_fork(void)
{
	return child_fork_with(-1);
}

void child_kill(pid_t *pid)
{
	if (*pid <= 0)
		return;
	kill(*pid, SIGKILL);
	while (waitpid(*pid, NULL, 0) < 0 && errno == EINTR)
		;
	*pid = 0;
}

void child_raise_files(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max)
		return;
	files.rlim_cur = files.rlim_max;
	setrlimit(RLIMIT_NOFILE, &files);
}

int children_add(struct children *children, const char *name, pid_t pid, bool ours)
{
	if (children->count == children->room)
		return -ENOMEM;
	int fd = (int)syscall(SYS_pidfd_open, pid, 0);
	if (fd < 0) {
		int r = -errno;
		fprintf(stderr, "resctl rehearse: %s cannot be watched: %s%s\n", name, strerror(-r), child_remedy(-r));
		return r;
	}
	struct child *child = &children->items[children->count];
	*child = (struct child){.pid = pid, .ours = ours};
	snprintf(child->name, sizeof(child->name), "%s", name);
	children->fds[children->count++] = (struct pollfd){.fd = fd, .events = POLLIN};
	return 0;
}

static struct child *first_ended(struct children *children)
{
	for (size_t i = 0; i < children->count; i++) {
		if (children->fds[i].fd >= 0 && children->fds[i].revents != 0)
			return &children->items[i];
	}
	return NULL;
}

const struct child *children_wait(struct children *children, int64_t ns)
{
	struct timespec time = {.tv_sec = ns / 1000000000, .tv_nsec = ns % 1000000000};

	return ppoll(children->fds, children->count, &time, NULL) > 0 ? first_ended(children) : NULL;
}

bool child_stopped(pid_t pid, bool *goes_on)
{
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)pid, &info, WSTOPPED | WCONTINUED | WNOHANG) < 0 || info.si_pid == 0)
		return false;
	*goes_on = info.si_code == CLD_CONTINUED;
	return true;
}

const struct child *children_stopped(const struct children *children, bool *goes_on)
{
	for (size_t i = 0; i < children->count; i++) {
		if (children->fds[i].fd >= 0 && child_stopped(children->items[i].pid, goes_on))
			return &children->items[i];
	}
	return NULL;
}

void child_end_text(const struct child *child, char *text, size_t size)
{
	siginfo_t info = {0};

	if (waitid(P_PID, (id_t)child->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0)
		snprintf(text, size, "has ended");
	else if (info.si_code == CLD_EXITED)
		snprintf(text, size, "ended with %d", info.si_status);
	else
		snprintf(text, size, "was killed by signal %d (%s)", info.si_status, strsignal(info.si_status));
}

/* ---- ending ---- */

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Of those that are not ours, nobody is waited for. */
static void forget_others(struct children *children)
{
	for (size_t i = 0; i < children->count; i++) {
		if (children->items[i].ours)
			continue;
		close(children->fds[i].fd);
		children->fds[i].fd = -1;
	}
}

/* Takes the status of one that has ended, and looks at it no more. True: it ended well. */
static bool reap(struct children *children, size_t i)
{
	int status;

	close(children->fds[i].fd);
	children->fds[i].fd = -1;
	return waitpid(children->items[i].pid, &status, 0) < 0 || (WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static bool reap_ended(struct children *children, size_t *left)
{
	bool good = true;

	*left = 0;
	for (size_t i = 0; i < children->count; i++) {
		if (!children->items[i].ours || children->fds[i].fd < 0)
			continue;
		if (children->fds[i].revents != 0)
			good &= reap(children, i);
		else
			++*left;
	}
	return good;
}

bool children_end(struct children *children, int64_t patience_ns)
{
	int64_t until_ns = now_ns() + patience_ns;
	bool good = true;

	forget_others(children);
	for (size_t left = 1; left > 0;) {
		int64_t rest_ns = until_ns - now_ns();
		children_wait(children, rest_ns < 0 ? 0 : rest_ns);
		good &= reap_ended(children, &left);
		if (now_ns() >= until_ns)
			break;
	}
	for (size_t i = 0; i < children->count; i++) {
		if (children->items[i].ours && children->fds[i].fd >= 0)
			kill(children->items[i].pid, SIGKILL);
	}
	for (size_t i = 0; i < children->count; i++) {
		if (children->items[i].ours && children->fds[i].fd >= 0)
			reap(children, i);
	}
	return good;
}
