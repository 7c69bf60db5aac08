/* SPDX-License-Identifier: MIT */
/*
 * The host of the storm: its rescd, the configurations that take turns, and resctl.
 *
 * The configurations differ in limits, rates, windows and cooldowns, in a resource that is there or not, and in how large the tables are:
 * that only grows, and each step of it means a new segment. What the checks work out from (the limit, the probes and the budget of
 * "ledger", the rate of "mail") stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "inspect.h"
#include "storm.h"

#define VARIANTS 4u

/* What differs from one configuration to the next. */
static const struct variant {
	unsigned pay_limit, shard_limit;
	const char *pay_window, *cooldown, *search_rate, *index_limit, *trial_mode;
	double pay_failures;
	bool extra;
} variants[VARIANTS] = {
        {12, 8, "1s", "20ms", "5000", "0.5", "shadow", 0.5, true},
        {3, 4, "500ms", "50ms", "2000", "0.25", "shadow", 0.3, false},
        {7, 8, "2s", "10ms", "20000", "\"150%\"", "enforce", 0.5, true},
        {5, 2, "20", "100ms", "3000", "4", "shadow", 0.8, false},
};

static void write_resources(FILE *f, const struct variant *v)
{
	fprintf(f,
	        "\"pay\": {\"breaker\": {\"failure_rate\": %g, \"window\": %s%s%s, \"min_calls\": 10, \"cooldown\": \"%s\", \"jitter\": "
	        "0.1, "
	        "\"slow_call\": \"2ms\", \"slow_rate\": 0.9}, \"retry\": {\"attempts\": 3, \"budget\": {\"ratio\": 0.2, \"capacity\": 30, "
	        "\"in_flight_floor\": 2, \"in_flight_share\": 0.5}}, \"bulkhead\": {\"limit\": %u, \"max_wait\": \"10ms\", "
	        "\"max_waiting\": 6, "
	        "\"low\": 0.5, \"normal\": 0.8}, \"timeout\": {\"attempt\": \"800ms\"}, \"once\": {\"ttl\": \"3s\"}},\n",
	        v->pay_failures, strchr(v->pay_window, 's') ? "\"" : "", v->pay_window, strchr(v->pay_window, 's') ? "\"" : "", v->cooldown,
	        v->pay_limit);
	fprintf(f, "\"search\": {\"throttle\": {\"k\": 1.5, \"window\": \"1s\"}, \"rate\": {\"per_second\": %s, \"burst\": 100}},\n",
	        v->search_rate);
	fprintf(f,
	        "\"index\": {\"breaker\": {\"consecutive\": 5, \"cooldown\": \"%s\", \"probes\": 3, \"trial_failure_rate\": 0.5}, "
	        "\"retry\": "
	        "{\"backoff\": \"none\", \"budget\": {\"deposit\": \"request\", \"ratio\": 0.1, \"capacity\": 50, \"ttl\": \"1s\"}}, "
	        "\"bulkhead\": {\"limit\": %s}},\n",
	        v->cooldown, v->index_limit);
	fprintf(f,
	        "\"ledger\": {\"breaker\": {\"failure_rate\": 0.5, \"window\": 50, \"min_calls\": 20, \"cooldown\": \"30ms\", \"probes\": "
	        "2}, "
	        "\"retry\": {\"attempts\": 5, \"budget\": {\"ratio\": %g, \"capacity\": %u, \"per_second\": %g}}, \"bulkhead\": "
	        "{\"limit\": %u, "
	        "\"max_wait\": \"20ms\"}},\n",
	        LEDGER_RATIO, LEDGER_CAPACITY, LEDGER_PER_SECOND, traits[R_LEDGER].most);
	fprintf(f,
	        "\"mail\": {\"rate\": {\"per_second\": %g, \"burst\": %u, \"max_wait\": \"5ms\"}, \"bulkhead\": {\"limit\": %u}, \"once\": "
	        "{\"ttl\": "
	        "\"3s\", \"max_wait\": \"5ms\", \"on_death\": \"free\"}},\n",
	        MAIL_PER_SECOND, MAIL_BURST, traits[R_MAIL].most);
	fprintf(f,
	        "\"trial\": {\"mode\": \"%s\", \"breaker\": {\"consecutive\": 3, \"cooldown\": \"%s\"}, \"throttle\": {\"window\": "
	        "\"500ms\"}, "
	        "\"bulkhead\": {\"limit\": 2, \"low\": 0.5}, \"rate\": {\"per_second\": 100}, \"retry\": {\"budget\": {\"capacity\": "
	        "5}}},\n",
	        v->trial_mode, v->cooldown);
	if (v->extra)
		fprintf(f, "\"extra\": {\"breaker\": {\"consecutive\": 3, \"cooldown\": \"%s\"}, \"bulkhead\": {\"limit\": 2}},\n",
		        v->cooldown);
	fprintf(f,
	        "\"shard-*\": {\"breaker\": {\"consecutive\": 5, \"cooldown\": \"%s\"}, \"bulkhead\": {\"limit\": %u}},\n"
	        "\"flux-*\": {\"breaker\": {\"consecutive\": 5, \"cooldown\": \"%s\"}}\n",
	        v->cooldown, v->shard_limit, v->cooldown);
}

/* A larger limit may be in force before rescd says so. The lower one is waited for: see the quiet points. */
static void announce_limits(const struct variant *v, bool lower)
{
	const unsigned limits[RESOURCES] = {[R_PAY] = v->pay_limit,
	                                    [R_SHARD_A] = v->shard_limit,
	                                    [R_SHARD_B] = v->shard_limit,
	                                    [R_LEDGER] = traits[R_LEDGER].most,
	                                    [R_MAIL] = traits[R_MAIL].most};

	for (uint32_t r = 0; r < RESOURCES; r++)
		if (lower || limits[r] > atomic_load_explicit(&storm.shared->most[r], memory_order_seq_cst))
			atomic_store_explicit(&storm.shared->most[r], limits[r], memory_order_seq_cst);
}

void host_configure(struct host *host)
{
	const struct variant *v = &variants[host->variant % VARIANTS];
	char path[128], fresh[140];

	announce_limits(v, false);
	snprintf(path, sizeof(path), "%s/resc.json", storm.directory);
	snprintf(fresh, sizeof(fresh), "%s.new", path);
	FILE *f = fopen(fresh, "w");
	if (f == NULL) {
		complain("%s: %s", fresh, strerror(errno));
		return;
	}
	/* In turns, so that each is a new segment. Room for all that is made from patterns: those that must add up would be retired else.
	 */
	fprintf(f,
	        "{\"workers\": %u, \"once_keys\": %u, \"made\": 6,\n\"defaults\": {\"timeout\": {\"attempt\": \"1s\"}},\n\"resources\": "
	        "{\n",
	        (2 * storm.workers + 32) << (host->grown + 1) / 2, 16384u << host->grown / 2);
	write_resources(f, v);
	fprintf(f, "}}\n");
	fclose(f);
	rename(fresh, path);
}

void host_limits_are_in_force(const struct host *host)
{
	announce_limits(&variants[host->variant % VARIANTS], true);
}

/* ---- programs ---- */

_Noreturn static void become(const char *program, char *const *words, const char *output)
{
	char path[600], log[160];
	sigset_t none;

	snprintf(path, sizeof(path), "%s/%s", storm.programs, program);
	snprintf(log, sizeof(log), "%s/%s", storm.directory, output);
	int fd = open(log, O_WRONLY | O_CREAT | O_APPEND, 0600);
	int null = open("/dev/null", O_RDONLY);
	if (fd >= 0) {
		dup2(fd, STDOUT_FILENO);
		dup2(fd, STDERR_FILENO);
	}
	dup2(null, STDIN_FILENO);
	closefrom(3);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	unsetenv("NOTIFY_SOCKET");
	execv(path, words);
	dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
	_exit(127);
}

void host_start(struct host *host)
{
	char config[128], control[128];
	char *words[] = {"rescd", "--config", config, "--instance", storm.instance, "--control", control, "--metrics", "127.0.0.1:0", NULL};

	snprintf(config, sizeof(config), "%s/resc.json", storm.directory);
	snprintf(control, sizeof(control), "%s/control.sock", storm.directory);
	host->rescd = fork();
	if (host->rescd == 0)
		become("rescd", words, "rescd.log");
	if (host->rescd < 0)
		complain("fork: %s", strerror(errno));
	host->stopped = false;
	host->down_until_ns = 0;
	host->disturbed_ns = now_ns();
}

/* A program cannot do anything about a signal that comes before its first step: then it reads the new file anyway. */
static bool has_begun(pid_t pid)
{
	char path[64], line[256];
	uint64_t blocked = 0;

	snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
	FILE *f = fopen(path, "r");
	while (f != NULL && fgets(line, sizeof(line), f) != NULL)
		if (strncmp(line, "SigBlk:", 7) == 0)
			blocked = strtoull(line + 7, NULL, 16);
	if (f != NULL)
		fclose(f);
	return (blocked >> (SIGHUP - 1) & 1) != 0;
}

void host_hang_up(const struct host *host)
{
	if (host->rescd > 0 && has_begun(host->rescd))
		kill(host->rescd, SIGHUP);
}

static pid_t start_resctl(const char *const *words, const char *output)
{
	char *all[16] = {"resctl", "--instance", storm.instance};

	for (unsigned i = 0; i < 12 && words[i] != NULL; i++)
		all[i + 3] = (char *)(uintptr_t)words[i];
	pid_t pid = fork();
	if (pid == 0)
		become("resctl", all, output);
	return pid;
}

pid_t host_resctl(const char *const *words)
{
	return start_resctl(words, "resctl.log");
}

int host_ask(const char *const *words, char *output, size_t size)
{
	char path[128];
	int status = 0;

	snprintf(path, sizeof(path), "%s/answer", storm.directory);
	unlink(path);
	pid_t pid = start_resctl(words, "answer");
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (output != NULL) {
		FILE *f = fopen(path, "r");
		size_t n = f == NULL ? 0 : fread(output, 1, size - 1, f);
		output[n] = '\0';
		if (f != NULL)
			fclose(f);
	}
	return WIFSIGNALED(status) ? -WTERMSIG(status) : WEXITSTATUS(status);
}

bool host_is_ready(const struct host *host)
{
	struct inspect_daemon daemon;
	struct map map;
	char path[MAP_PATH_SIZE];

	map_path(path, storm.instance, 0);
	if (map_open(&map, path, MAP_READER, NULL) != 0)
		return false;
	inspect_daemon(&map, &daemon);
	bool ready = daemon.alive && daemon.pid == host->rescd && map_superseded_by(&map) == 0;
	map_close(&map);
	return ready;
}
