/* SPDX-License-Identifier: MIT */
/*
 * A rehearsal must not touch an instance that serves real workers, and must leave nothing behind. So each take has an instance of its own,
 * and a rescd that lives on a pipe (--ephemeral): the kernel closes the other end when this process dies, of whatever, and then rescd
 * removes what it made. It has a session of its own, so that it is there to do that when a whole process group is killed.
 *
 * If somebody kills both, the segment is left. The next rehearsal takes it away: its name says whose it was, and the lock of its rescd
 * says that nobody has it any more.
 *
 * The configuration is handed over in anonymous memory: there is no file that could be left, or read by others. Nothing that the
 * environment says to a rescd or a worker is meant for these. A runtime directory is, where it can be used: after su it is somebody else's.
 */
#include "lab_rescd.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "children.h"
#include "control.h"
#include "error.h"
#include "inspect.h"
#include "signals.h"

#define PREFIX        "rehearse-"
#define CONFIG_FD     3
#define FIRST_FREE_FD 10 /* our own descriptors are above those that the child gets */
#define STEP_NS       2000000
#define START_STEPS   5000u /* 10 s */
#define END_STEPS     2500u /* 5 s */

static void sleep_a_step(void)
{
	const struct timespec step = {.tv_nsec = STEP_NS};

	nanosleep(&step, NULL);
}

static void close_fd(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

/* The same file, above those that the child gets; -1 with errno. EINVAL: there is no number above them. */
static int move_up(int fd)
{
	int moved = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FREE_FD);
	int error = errno == EINVAL ? EMFILE : errno;

	if (fd >= 0)
		close(fd);
	errno = error;
	return moved;
}

/* ---- starting ---- */

static int write_configuration(json_t *configuration)
{
	int fd = move_up(memfd_create("rehearsal.json", MFD_CLOEXEC));

	if (fd < 0 || json_dumpfd(configuration, fd, JSON_COMPACT) == 0)
		return fd;
	close(fd);
	errno = EIO;
	return -1;
}

struct plan {
	const char *program;
	int config, input, log;
};

static _Noreturn void be_rescd(const struct lab_rescd *rescd, const struct plan *plan)
{
	static const char *const not_for_it[] = {"RESC_INSTANCE", "RESC_FAILPOINT", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"};
	char path[32];

	for (size_t i = 0; i < sizeof(not_for_it) / sizeof(*not_for_it); i++)
		unsetenv(not_for_it[i]);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", CONFIG_FD);
	setsid();
	signal(SIGINT, SIG_DFL);
	signal(SIGTERM, SIG_DFL);
	signal(SIGHUP, SIG_DFL);
	dup2(plan->input, STDIN_FILENO);
	dup2(plan->config, CONFIG_FD);
	if (plan->log >= 0) {
		dup2(plan->log, STDOUT_FILENO);
		dup2(plan->log, STDERR_FILENO);
	}
	syscall(SYS_close_range, CONFIG_FD + 1, ~0U, 0);
	execl(plan->program, "rescd", "--ephemeral", "--config", path, "--instance", rescd->instance, "--metrics", "", (char *)NULL);
	dprintf(STDERR_FILENO, "%s: %s\n", plan->program, strerror(errno));
	_exit(EXIT_FAILURE);
}

static int fork_rescd(struct lab_rescd *rescd, const struct plan *plan)
{
	rescd->pid = fork();
	if (rescd->pid == 0)
		be_rescd(rescd, plan);
	if (rescd->pid > 0)
		return 0;
	rescd->pid = 0;
	return -errno;
}

static int open_and_fork(struct lab_rescd *rescd, const char *program, json_t *configuration, bool verbose)
{
	int ends[2] = {-1, -1};
	struct plan plan = {.program = program, .input = -1, .log = -1};
	int r = -1;

	plan.config = write_configuration(configuration);
	if (plan.config >= 0)
		r = pipe2(ends, O_CLOEXEC);
	if (r == 0) {
		plan.input = move_up(ends[0]);
		rescd->life = move_up(ends[1]);
		if (!verbose)
			plan.log = rescd->log = move_up(memfd_create("rescd.log", MFD_CLOEXEC));
		r = plan.input < 0 || rescd->life < 0 || (!verbose && rescd->log < 0) ? -1 : 0;
	}
	r = r < 0 ? -errno : fork_rescd(rescd, &plan);
	close_fd(&plan.config);
	close_fd(&plan.input);
	return r;
}

/* ---- until it is ready ---- */

static bool has_ended(const struct lab_rescd *rescd)
{
	siginfo_t info = {0};

	return waitid(P_PID, (id_t)rescd->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid != 0;
}

/* The control socket is the last of what it makes. */
static bool is_ready(struct lab_rescd *rescd)
{
	struct inspect_daemon daemon;
	struct resc_error err;
	char path[MAP_PATH_SIZE];

	map_path(path, rescd->instance, 0);
	if (rescd->map.base == NULL && map_open(&rescd->map, path, MAP_READER, &err) < 0) {
		rescd->map.base = NULL;
		return false;
	}
	inspect_daemon(&rescd->map, &daemon);
	return daemon.control[0] != '\0';
}

static int wait_until_ready(struct lab_rescd *rescd)
{
	for (unsigned i = 0; i < START_STEPS; i++) {
		if (is_ready(rescd))
			return 0;
		if (has_ended(rescd))
			break;
		if (signals_came() != 0)
			return -EINTR;
		sleep_a_step();
	}
	fprintf(stderr, "resctl rehearse: the rescd of this rehearsal does not start%s\n", has_ended(rescd) ? ":" : " within 10 s:");
	lab_rescd_tell(rescd);
	return -ECHILD;
}

/* rescd has its control socket in there, or, where there is none, in a place that is always there. */
static void forget_useless_directory(const char *instance)
{
	const char *directory = getenv("XDG_RUNTIME_DIR");
	char path[CONTROL_PATH];
	struct resc_error err;

	if (directory != NULL && (access(directory, W_OK | X_OK) != 0 || control_path(path, NULL, instance, &err) < 0))
		unsetenv("XDG_RUNTIME_DIR");
}

int lab_rescd_start(struct lab_rescd *rescd, const char *program, json_t *configuration, bool verbose)
{
	static unsigned takes;

	*rescd = (struct lab_rescd){.life = -1, .log = -1};
	snprintf(rescd->instance, sizeof(rescd->instance), PREFIX "%ld-%u", (long)getpid(), ++takes);
	forget_useless_directory(rescd->instance);
	int r = open_and_fork(rescd, program, configuration, verbose);
	if (r == 0)
		return wait_until_ready(rescd);
	fprintf(stderr, "resctl rehearse: the rescd of this rehearsal cannot be started: %s%s\n", strerror(-r), child_remedy(-r));
	return r;
}

void lab_rescd_tell(const struct lab_rescd *rescd)
{
	char text[4096];
	ssize_t size;

	for (off_t at = 0; rescd->log >= 0 && (size = pread(rescd->log, text, sizeof(text), at)) > 0; at += size)
		fwrite(text, 1, (size_t)size, stderr);
}

/* ---- ending ---- */

static void remove_left(const char *instance)
{
	char path[MAP_PATH_SIZE], socket[CONTROL_PATH];
	struct resc_error err;

	map_path(path, instance, 0);
	unlink(path);
	if (control_path(socket, NULL, instance, &err) == 0)
		unlink(socket);
}

void lab_rescd_stop(struct lab_rescd *rescd)
{
	if (rescd->map.base != NULL)
		map_close(&rescd->map);
	rescd->map.base = NULL;
	close_fd(&rescd->life);
	if (rescd->pid > 0) {
		/* One that somebody has stopped would not hear of it. */
		kill(rescd->pid, SIGCONT);
		for (unsigned i = 0; i < END_STEPS && !has_ended(rescd); i++)
			sleep_a_step();
		child_kill(&rescd->pid);
		remove_left(rescd->instance);
	}
	rescd->pid = 0;
	close_fd(&rescd->log);
}

/* ---- what others left ---- */

/* Nobody serves it, and whose it was is gone. A file that is no segment is not ours to judge. */
static bool is_abandoned(const char *instance)
{
	struct map map;
	struct resc_error err;
	char path[MAP_PATH_SIZE];
	long pid = strtol(instance + strlen(PREFIX), NULL, 10);

	/* Ours is of one that had our number before us. */
	if (pid <= 0 || (pid != getpid() && (kill((pid_t)pid, 0) == 0 || errno != ESRCH)))
		return false;
	map_path(path, instance, 0);
	if (map_open(&map, path, MAP_READER, &err) < 0)
		return false;
	int held = map_is_held(&map, LOCK_DAEMON);
	map_close(&map);
	return held == 0;
}

void lab_rescd_sweep(void)
{
	static const char prefix[] = SEGMENT_PREFIX PREFIX;
	DIR *directory = opendir(SEGMENT_DIR);
	struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		const char *instance = entry->d_name + strlen(SEGMENT_PREFIX);
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && strlen(instance) < SEGMENT_NAME_SIZE && is_abandoned(instance))
			remove_left(instance);
	}
	if (directory != NULL)
		closedir(directory);
}
