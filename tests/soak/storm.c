/* SPDX-License-Identifier: MIT */
/*
 * The kill storm: its driver.
 *
 * Sixteen workers call as a server does, and are killed at random moments; so are rescd, resctl, and the children that the workers fork.
 * In between everything else that happens to a host: stops, reloads, operators, restarts, larger tables, a segment whose name is removed.
 * After each volley there is a quiet point: nobody calls, nobody new dies, and the accounts of all workers must be those of the segment.
 *
 * The seed decides who is hit, when, and by what. What the hit process is doing at that moment is the scheduler's.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "driver.h"

#define VOLLEY   100u /* kills between two calms */
#define CALM_NS  (300 * MS)
#define VOLLEYS  3u /* between two quiet points */
#define GROWTHS  5u /* larger tables in a run */
#define HAPPENED 200u

const struct resource_traits traits[RESOURCES] = {
#define X(NAME, name, strict, most, probes) [R_##NAME] = {name, strict, most, probes},
        STORM_RESOURCES(X)
#undef X
};

struct storm storm = {.workers = 16, .kills = 10000};
struct report report;
struct host host;
uint64_t dice;
uint64_t started_ns;
uint64_t last_kill_ns;
bool ending;

/* ---- time and words ---- */

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sleep_us(uint64_t us)
{
	struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

	nanosleep(&t, NULL);
}

void complain(const char *format, ...)
{
	va_list args;

	/* The first one counts. */
	if (atomic_fetch_add_explicit(&storm.shared->complaints, 1, memory_order_seq_cst) != 0)
		return;
	va_start(args, format);
	vsnprintf(storm.shared->complaint, sizeof(storm.shared->complaint), format, args);
	va_end(args);
	atomic_store_explicit(&storm.shared->failed, true, memory_order_seq_cst);
}

/* What people send to end the driver. Blocked and looked for: a handler would run in a fresh child too, that is sent the same. */
const sigset_t *endings(void)
{
	static sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	return &set;
}

void look_for_endings(void)
{
	const struct timespec now = {0, 0};

	if (sigtimedwait(endings(), NULL, &now) > 0)
		complain("interrupted");
}

bool failed(void)
{
	return atomic_load_explicit(&storm.shared->failed, memory_order_seq_cst);
}

static char history[HAPPENED][120];
static uint64_t history_next;

void happened(const char *format, ...)
{
	char *line = history[history_next++ % HAPPENED];
	int n = snprintf(line, sizeof(history[0]), "%10.3f ms  ", (double)(now_ns() - started_ns) / 1e6);
	va_list args;

	va_start(args, format);
	vsnprintf(line + n, sizeof(history[0]) - (size_t)n, format, args);
	va_end(args);
}

/* ---- the storm ---- */

static bool is_over(void)
{
	return failed() || (storm.kills != 0 && report.kills >= storm.kills) || (storm.seconds != 0 && report.seconds >= storm.seconds);
}

static void volley(void)
{
	uint64_t until = report.kills + VOLLEY;

	atomic_store_explicit(&storm.shared->storm, true, memory_order_seq_cst);
	while (!is_over() && report.kills < until) {
		disaster();
		if (storm.kills != 0 && report.kills * (GROWTHS + 1) >= (uint64_t)storm.kills * (host.grown + 1) && host.grown < GROWTHS)
			grow();
		live_until(now_ns() + random_below(&dice, 10000) * UINT64_C(1000));
	}
	atomic_store_explicit(&storm.shared->storm, false, memory_order_seq_cst);
}

static void all_volleys(void)
{
	while (!is_over()) {
		for (unsigned i = 0; i < VOLLEYS && !is_over(); i++) {
			live_until(now_ns() + CALM_NS);
			volley();
		}
		if (!failed())
			quiet_point();
	}
}

/* ---- beginning and end ---- */

static void set_up(void)
{
	char *slash;

	storm.shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ssize_t n = readlink("/proc/self/exe", storm.programs, sizeof(storm.programs) - 1);
	snprintf(storm.directory, sizeof(storm.directory), "/tmp/resc-storm-XXXXXX");
	if (storm.shared == MAP_FAILED || n < 0 || mkdtemp(storm.directory) == NULL) {
		fprintf(stderr, "storm: %s\n", strerror(errno));
		exit(2);
	}
	/* BUILD/tests/soak/storm */
	storm.programs[n] = '\0';
	for (unsigned i = 0; i < 3 && (slash = strrchr(storm.programs, '/')) != NULL; i++)
		*slash = '\0';
	snprintf(storm.instance, sizeof(storm.instance), "storm-%d", (int)getpid());
	crowd_begin();
	dice = storm.seed;
	started_ns = now_ns();
}

static bool all_workers_are_gone(void)
{
	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		if ((atomic_load_explicit(&storm.shared->actors[i].phase, memory_order_seq_cst) & 0xff) != ACTOR_FREE)
			return false;
	return true;
}

static bool rescd_is_gone(void)
{
	return host.rescd <= 0;
}

static unsigned open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned n = 0;

	while (directory != NULL && readdir(directory) != NULL)
		n++;
	if (directory != NULL)
		closedir(directory);
	return n;
}

void remove_files(const char *directory, const char *prefix)
{
	DIR *d = opendir(directory);
	const struct dirent *entry;
	char path[512];

	while (d != NULL && (entry = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%.255s", directory, entry->d_name);
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && entry->d_name[0] != '.')
			unlink(path);
	}
	if (d != NULL)
		closedir(d);
}

/* Everybody goes home, and nothing is left. */
static void wind_up(void)
{
	char path[MAP_PATH_SIZE];

	ending = true;
	atomic_store_explicit(&storm.shared->end, true, memory_order_seq_cst);
	wait_for(all_workers_are_gone, "all workers end");
	end_rescd(SIGTERM);
	wait_for(rescd_is_gone, "rescd ends");
	if (!no_former_segments())
		complain("a former segment is left in /dev/shm");
	map_path(path, storm.instance, 0);
	if (unlink(path) != 0)
		complain("%s: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/control.sock", storm.directory);
	if (access(path, F_OK) == 0)
		complain("%s is left", path);
}

static void copy_file(const char *from, const char *to)
{
	char buffer[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	while (in >= 0 && out >= 0 && (n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			break;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
}

/* What is needed to find out why: the segments as they are, and what happened last. */
static void keep_evidence(void)
{
	char from[400], to[400];
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		if (strncmp(entry->d_name, SEGMENT_PREFIX, strlen(SEGMENT_PREFIX)) != 0 || strstr(entry->d_name, storm.instance) == NULL)
			continue;
		snprintf(from, sizeof(from), "%s%.255s", SEGMENT_DIR, entry->d_name);
		snprintf(to, sizeof(to), "%s/%.255s", storm.directory, entry->d_name);
		copy_file(from, to);
	}
	if (directory != NULL)
		closedir(directory);
	snprintf(to, sizeof(to), "%s/happened", storm.directory);
	FILE *f = fopen(to, "w");
	for (uint64_t i = history_next > HAPPENED ? history_next - HAPPENED : 0; f != NULL && i < history_next; i++)
		fprintf(f, "%s\n", history[i % HAPPENED]);
	if (f != NULL)
		fclose(f);
}

static int give_up(void)
{
	keep_evidence();
	kill_everybody();
	printf("\nstorm: %s\nstorm: seed %llu, after %llu kills; the segment, the log of rescd and what happened last are in %s\n",
	       storm.shared->complaint, (unsigned long long)storm.seed, (unsigned long long)report.kills, storm.directory);
	return 1;
}

/* ---- main ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	char *rest = arg;
	unsigned long long number = arg == NULL ? 0 : strtoull(arg, &rest, 10);

	if (arg != NULL && (*rest != '\0' || rest == arg))
		argp_error(state, "\"%s\" is not a number", arg);
	switch (key) {
	case 's':
		storm.seed = number;
		return 0;
	case 'k':
		storm.kills = (uint32_t)number;
		return 0;
	case 'w':
		if (number < 2 || number > WORKERS_MAX)
			argp_error(state, "between 2 and %u workers", WORKERS_MAX);
		storm.workers = (uint32_t)number;
		return 0;
	case 't':
		storm.seconds = (uint32_t)number;
		return 0;
	case 'j':
		storm.json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
        {"seed", 's', "N", 0, "Replay this schedule; by default another one each time", 0},
        {"kills", 'k', "N", 0, "End after so many SIGKILLs (10000); 0: no end", 0},
        {"workers", 'w', "N", 0, "Workers (16)", 0},
        {"seconds", 't', "N", 0, "End after so many seconds", 0},
        {"json", 'j', NULL, 0, "The report as one JSON document", 0},
        {NULL, 0, NULL, 0, NULL, 0},
};

int main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL, "Kills workers, rescd and resctl under load, and compares the accounts.",
	                                 NULL,    NULL,  NULL};

	storm.seed = now_ns() / 1000 % 1000000;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	set_up();
	if (!storm.json)
		printf("storm: seed %llu\n", (unsigned long long)storm.seed);
	fflush(stdout);
	sigprocmask(SIG_BLOCK, endings(), NULL);
	unsigned descriptors = open_descriptors();
	host_configure(&host);
	host_limits_are_in_force(&host);
	host_start(&host);
	wait_for(rescd_is_ready, "rescd is ready");
	for (uint32_t i = 0; i < storm.workers; i++)
		spawn(i);
	all_volleys();
	if (!failed())
		wind_up();
	forget_segment();
	if (!failed() && open_descriptors() != descriptors)
		complain("descriptors of the driver were opened and not closed");
	if (failed())
		return give_up();
	remove_files(storm.directory, "");
	rmdir(storm.directory);
	report_print(&report, doctors_last_word());
	return 0;
}
