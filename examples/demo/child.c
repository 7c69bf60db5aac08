/* SPDX-License-Identifier: MIT */
/*
 * Child processes that never outlive the demo.
 *
 * Three things see to it. Each child asks the kernel to be killed when its parent dies. The parent takes SIGINT, SIGTERM and SIGHUP
 * only where it sleeps, so that there is one way out and it passes the cleanup. And children are in process groups of their own, so that
 * Ctrl-C does not kill half of them before the parent has looked.
 */
#include "child.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "resc.h"

static void ending_signals(sigset_t *set)
{
	sigemptyset(set);
	sigaddset(set, SIGINT);
	sigaddset(set, SIGTERM);
	sigaddset(set, SIGHUP);
	sigaddset(set, SIGQUIT);
}

void child_block_signals(void)
{
	sigset_t set;
	ending_signals(&set);
	sigprocmask(SIG_BLOCK, &set, NULL);
	/* A reader that went away (`make demo | head`) is an error of a write and not a sudden death. */
	signal(SIGPIPE, SIG_IGN);
}

int child_sleep_until(int64_t ns)
{
	sigset_t set;
	ending_signals(&set);
	for (;;) {
		int64_t left = ns - resc_now_ns();
		if (left < 0)
			left = 0; /* still a look at the signals */
		struct timespec t = {.tv_sec = left / 1000000000, .tv_nsec = left % 1000000000};
		int got = sigtimedwait(&set, NULL, &t);
		if (got > 0)
			return got;
		if (errno != EINTR)
			return 0;
	}
}

pid_t child_fork(void)
{
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid > 0)
		return pid;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent) /* it died before the line above */
		_exit(1);
	setpgid(0, 0);
	signal(SIGPIPE, SIG_DFL);
	sigset_t set;
	ending_signals(&set);
	sigprocmask(SIG_UNBLOCK, &set, NULL);
	return 0;
}

pid_t child_start(char *const argv[], const char *log)
{
	pid_t pid = child_fork();
	if (pid != 0)
		return pid;

	int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int out = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (in < 0 || out < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0)
		_exit(126);
	execvp(argv[0], argv);
	dprintf(2, "cannot run %s: %s\n", argv[0], strerrordesc_np(errno));
	_exit(127);
}

bool child_ended(pid_t *pid)
{
	if (*pid > 0 && waitpid(*pid, NULL, WNOHANG) == *pid)
		*pid = 0;
	return *pid <= 0;
}

bool child_wait(pid_t *pid, int64_t timeout_ms)
{
	int64_t deadline = resc_deadline_after_ms(timeout_ms);
	while (!child_ended(pid)) {
		if (resc_now_ns() >= deadline)
			return false;
		nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
	}
	return true;
}

void child_stop(pid_t *pid, int signal)
{
	if (child_ended(pid))
		return;
	kill(*pid, signal);
	if (child_wait(pid, 2000))
		return;
	kill(*pid, SIGKILL);
	waitpid(*pid, NULL, 0);
	*pid = 0;
}
