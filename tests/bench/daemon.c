/* SPDX-License-Identifier: MIT */
/* A rescd of our own, crowds of workers, and what a process costs by /proc. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define START_MS 5000u

static void write_file(const char *path, const char *text)
{
	FILE *file = fopen(path, "w");

	if (file == NULL || fputs(text, file) == EOF || fclose(file) != 0)
		give_up("%s: %s", path, strerror(errno));
}

static void run_daemon(const char *program, const char *directory, const char *instance, const char *config)
{
	char control[300], log[300];

	snprintf(control, sizeof(control), "%s/%s.sock", directory, instance);
	snprintf(log, sizeof(log), "%s/%s.log", directory, instance);
	int fd = open(log, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	cpu_unpin();
	unsetenv("NOTIFY_SOCKET");
	execl(program, "rescd", "--config", config, "--instance", instance, "--control", control, "--metrics", "", (char *)NULL);
	dprintf(STDERR_FILENO, "%s: %s\n", program, strerror(errno));
	_exit(127);
}

static void show_log(const char *directory, const char *instance)
{
	char path[300], line[1024];

	snprintf(path, sizeof(path), "%s/%s.log", directory, instance);
	FILE *log = fopen(path, "r");
	while (log != NULL && fgets(line, sizeof(line), log) != NULL)
		fprintf(stderr, "  %s", line);
	if (log != NULL)
		fclose(log);
}

void daemon_start(struct daemon *daemon, const char *program, const char *directory, const char *instance, const char *configuration)
{
	char config[300], segment[200];
	struct stat found;

	snprintf(daemon->instance, sizeof(daemon->instance), "%s", instance);
	snprintf(config, sizeof(config), "%s/%s.json", directory, instance);
	snprintf(segment, sizeof(segment), "/dev/shm/resc.%s", instance);
	write_file(config, configuration);
	daemon->pid = fork();
	if (daemon->pid < 0)
		give_up("fork: %s", strerror(errno));
	if (daemon->pid == 0)
		run_daemon(program, directory, instance, config);
	for (unsigned i = 0; i < START_MS; i++) {
		if (stat(segment, &found) == 0)
			return;
		if (waitpid(daemon->pid, NULL, WNOHANG) != 0)
			break;
		sleep_ms(1);
	}
	show_log(directory, instance);
	give_up("%s did not start", program);
}

void daemon_stop(struct daemon *daemon)
{
	kill(daemon->pid, SIGTERM);
	while (waitpid(daemon->pid, NULL, 0) < 0 && errno == EINTR)
		;
}

/* ---- /proc ---- */

uint64_t process_resident_bytes(pid_t pid)
{
	char path[64], line[256];
	unsigned long long kib = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *status = fopen(path, "r");
	if (status == NULL)
		give_up("%s: %s", path, strerror(errno));
	while (kib == 0 && fgets(line, sizeof(line), status) != NULL)
		if (strncmp(line, "VmRSS:", 6) == 0)
			kib = strtoull(line + 6, NULL, 10);
	fclose(status);
	return (uint64_t)kib * 1024;
}

uint64_t process_cpu_ns(pid_t pid)
{
	char path[64], line[128];

	snprintf(path, sizeof(path), "/proc/%d/schedstat", (int)pid);
	FILE *schedstat = fopen(path, "r");
	if (schedstat == NULL || fgets(line, sizeof(line), schedstat) == NULL)
		give_up("%s: %s", path, strerror(errno));
	fclose(schedstat);
	return strtoull(line, NULL, 10);
}

/* ---- crowds ---- */

static void be_one_of_the_crowd(pid_t parent, unsigned which, void (*attach)(unsigned which), atomic_uint *ready)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);
	cpu_unpin();
	attach(which);
	atomic_fetch_add_explicit(ready, 1, memory_order_release);
	for (;;)
		pause();
}

void crowd_gather(struct crowd *crowd, unsigned n, void (*attach)(unsigned which))
{
	static atomic_uint *ready;
	pid_t parent = getpid();

	ready = ready == NULL ? shared_memory(sizeof(*ready)) : ready;
	atomic_store(ready, 0);
	crowd->pids = calloc(n, sizeof(*crowd->pids));
	if (crowd->pids == NULL)
		give_up("no memory");
	for (crowd->n = 0; crowd->n < n; crowd->n++) {
		pid_t pid = fork();
		if (pid < 0)
			give_up("fork of worker %u: %s", crowd->n, strerror(errno));
		if (pid == 0)
			be_one_of_the_crowd(parent, crowd->n, attach, ready);
		crowd->pids[crowd->n] = pid;
	}
	for (unsigned ms = 0; atomic_load_explicit(ready, memory_order_acquire) < n; ms++) {
		if (ms > 60000)
			give_up("only %u of %u workers attached", atomic_load(ready), n);
		for (unsigned i = 0; i < n && ms % 100 == 99; i++)
			if (waitpid(crowd->pids[i], NULL, WNOHANG) > 0)
				give_up("worker %u of %u could not attach", i, n);
		sleep_ms(1);
	}
}

void crowd_disperse(struct crowd *crowd)
{
	for (unsigned i = 0; i < crowd->n; i++)
		kill(crowd->pids[i], SIGKILL);
	for (unsigned i = 0; i < crowd->n; i++)
		while (waitpid(crowd->pids[i], NULL, 0) < 0 && errno == EINTR)
			;
	free(crowd->pids);
	crowd->pids = NULL;
	crowd->n = 0;
}

/* ---- programs ---- */

double time_program(char *const argv[])
{
	posix_spawn_file_actions_t actions;
	pid_t pid;
	int status;

	posix_spawn_file_actions_init(&actions);
	posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
	uint64_t start = now_ns();
	int r = posix_spawn(&pid, argv[0], &actions, NULL, argv, environ);
	if (r != 0)
		give_up("%s: %s", argv[0], strerror(r));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			give_up("waitpid: %s", strerror(errno));
	uint64_t took = now_ns() - start;
	posix_spawn_file_actions_destroy(&actions);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		give_up("%s failed", argv[0]);
	return (double)took;
}
