/* SPDX-License-Identifier: MIT */
/*
 * What a guarded call costs, against what others would cost on the same machine in the same minute.
 *
 * A bare time says more about the machine than about the code. So nothing here is judged by its time: each round takes every row in turn,
 * ours between the baselines, and what is promised is a ratio of two rows of the same round, its median over the rounds. The measuring
 * process is pinned to a CPU; two_cores rows are two processes on two CPUs, each timed over the same interval. The segment is one that a
 * real rescd made.
 *
 * A virtual machine shares its cores with strangers, and their work slows ours more than it slows a loop of locked instructions such as
 * the floor. So a check that finds a promise broken measures again, a few times, before it says so.
 *
 * The first process only waits: it removes what is left, however the benchmark ended (semaphores, segments, processes, files).
 */
#include <argp.h>
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <libgen.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"
#include "resc.h"

#define CROWD           1000u
#define TABLE_RESOURCES 256u
#define TABLE_WORKERS   64u
#define IDLE_MS         4000u
/* With --check: how often the calls are measured again, and after which pause. */
#define AGAIN    3u
#define PAUSE_MS 5000u

/* ---- rows ---- */

enum row {
	FLOOR,
	SYSV_SEMAPHORE,
	ROBUST_MUTEX,
	REDIS_UNIX,
	GUARDED_CALL,
	GUARDED_CALL_LATENCY,
	REFUSED_OPEN,
	REFUSED_FULL,
	RETRY_TOKEN,
	BREAKER_ALONE,
	BULKHEAD_ALONE,
	WINDOW_CALLS,
	PRIORITY,
	QUEUE,
	RATE,
	THROTTLE,
	RETRY_CAP,
	SHADOW,
	INJECTION_ALLOWED,
	ALL_TOGETHER,
	ONCE,
	FLOOR_TWO_CORES,
	ROBUST_MUTEX_TWO_CORES,
	TWO_CORES,
	WORKERS_1000,
	WORKERS_1000_LAST,
	ATTACH,
	SNAPSHOT_256,
	ROWS
};

static const struct {
	const char *name;
	calls_fn calls; /* NULL: not a loop in this process */
	unsigned n;     /* calls a slice */
	const char *text;
} rows[ROWS] = {
        [FLOOR] = {"floor", floor_calls, 5000, "by hand: one load, one CAS, one store, one add"},
        [SYSV_SEMAPHORE] = {"sysv_semaphore", sysv_calls, 50, "a pair of semop with SEM_UNDO"},
        [ROBUST_MUTEX] = {"robust_mutex", mutex_calls, 2000, "a small breaker and a count under a robust mutex"},
        [REDIS_UNIX] = {"redis_unix", redis_calls, 5, "three commands over a Unix socket"},
        [GUARDED_CALL] = {"guarded_call", guarded_calls, 2000, "breaker with window, permit, counters"},
        [GUARDED_CALL_LATENCY] = {"guarded_call_latency", guarded_latency_calls, 1000, "the same, and its latency measured"},
        [REFUSED_OPEN] = {"refused_open", refused_open_calls, 5000, "refused by an open breaker"},
        [REFUSED_FULL] = {"refused_full", refused_full_calls, 5000, "refused by a full bulkhead of two"},
        [RETRY_TOKEN] = {"retry_token", retry_calls, 2000, "a retry granted by the budget"},
        [BREAKER_ALONE] = {"breaker_alone", breaker_alone_calls, 2000, "a breaker and no limit"},
        [BULKHEAD_ALONE] = {"bulkhead_alone", bulkhead_alone_calls, 2000, "a limit and no breaker"},
        [WINDOW_CALLS] = {"window_calls", window_calls_calls, 2000, "guarded_call, the window is the last 100 calls"},
        [PRIORITY] = {"priority", priority_calls, 1000, "guarded_call of low priority, which has half of the limit"},
        [QUEUE] = {"queue", queue_calls, 2000, "guarded_call where others may wait for a permit"},
        [RATE] = {"rate", rate_calls, 1000, "guarded_call and a rate limit"},
        [THROTTLE] = {"throttle", throttle_calls, 1000, "guarded_call and a client-side throttle"},
        [RETRY_CAP] = {"retry_cap", retry_cap_calls, 500, "guarded_call that is a retry, under a cap on those in flight"},
        [SHADOW] = {"shadow", shadow_calls, 1000, "guarded_call, all in shadow mode"},
        [INJECTION_ALLOWED] = {"injection_allowed", injection_allowed_calls, 2000,
                               "guarded_call where faults may be injected, and none are"},
        [ALL_TOGETHER] = {"all_together", all_calls, 1000, "breaker, limit, queue, rate, throttle, budget by request, timeouts"},
        [ONCE] = {"once", once_calls, 200, "an idempotency key: begun, done, and repeated"},
        [FLOOR_TWO_CORES] = {"floor_two_cores", NULL, 0, "two processes that share nothing: what the CPUs do to each other"},
        [ROBUST_MUTEX_TWO_CORES] = {"robust_mutex_two_cores", NULL, 0, "two processes, one robust mutex"},
        [TWO_CORES] = {"two_cores", NULL, 0, "guarded_call by two workers on one resource, each"},
        [WORKERS_1000] = {"workers_1000", NULL, 0, "guarded_call with 1,000 more workers registered"},
        [WORKERS_1000_LAST] = {"workers_1000_last", NULL, 0, "the same, by a worker that came after them all"},
        [ATTACH] = {"attach", attach_calls, 1, "open, look up, first call, close"},
        [SNAPSHOT_256] = {"snapshot_256", NULL, 0, "resctl snapshot of 256 resources, the whole program"},
};

struct results {
	double ns[ROWS][ROUNDS];
	bool have[ROWS];
	const char *skipped[ROWS];
	/* What floor took in the round of a row, which need not be the round of that number in another phase. */
	double floor_ns[ROWS][ROUNDS];
	uint64_t daemon_bytes;
	double daemon_idle; /* share of a core */
};

static void keep(struct results *r, enum row row, unsigned round, double ns, double floor_ns)
{
	r->ns[row][round] = ns;
	r->floor_ns[row][round] = floor_ns;
	r->have[row] = true;
}

/* ---- options ---- */

struct options {
	bool check;
	const char *json;
	char rescd[400];
	char resctl[400];
};

static const struct argp_option argp_options[] = {
        {"check", 'c', NULL, 0, "Exit with 1 when a promise is broken, also when measured again", 0},
        {"json", 'j', "FILE", 0, "Write the results there too", 0},
        {"rescd", 'd', "PATH", 0, "The rescd to use (default: beside this program)", 0},
        {"resctl", 't', "PATH", 0, "The resctl to use (default: beside this program)", 0},
        {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;

	switch (key) {
	case 'c':
		options->check = true;
		return 0;
	case 'j':
		options->json = arg;
		return 0;
	case 'd':
		snprintf(options->rescd, sizeof(options->rescd), "%s", arg);
		return 0;
	case 't':
		snprintf(options->resctl, sizeof(options->resctl), "%s", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static void find_programs(struct options *options)
{
	char self[300];
	ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);

	if (n <= 0)
		give_up("/proc/self/exe: %s", strerror(errno));
	self[n] = '\0';
	const char *directory = dirname(self);
	snprintf(options->rescd, sizeof(options->rescd), "%s/rescd", directory);
	snprintf(options->resctl, sizeof(options->resctl), "%s/resctl", directory);
}

/* ---- configurations ---- */

#define BREAKER "\"breaker\": { \"failure_rate\": 0.5, \"window\": \"10s\", \"min_calls\": 20, \"cooldown\": \"5s\" }"

#define LIMIT(n)       "\"bulkhead\": { \"limit\": " #n " }"
#define QUEUE_BULKHEAD "\"bulkhead\": { \"limit\": 80, \"max_wait\": \"50ms\", \"max_waiting\": 40 }"
#define RATE_LIMIT     "\"rate\": { \"per_second\": 1000000000, \"burst\": 1000000 }"

/* Keys live longer than a slice takes, also where the coarse clock moves in steps of milliseconds, and all that are alive have room. */
/* clang-format off */
static const char calls_configuration[] =
        "{ \"workers\": 1200, \"once_keys\": 131072, \"defaults\": { \"latency\": false }, \"resources\": {\n"
        "  \"guarded\":  { " BREAKER ", " LIMIT(80) " },\n"
        "  \"measured\": { " BREAKER ", " LIMIT(80) ", \"latency\": true },\n"
        "  \"opened\":   { \"breaker\": { \"consecutive\": 1, \"cooldown\": \"1h\" }, " LIMIT(80) " },\n"
        "  \"full\":     { " BREAKER ", " LIMIT(2) " },\n"
        "  \"retried\":  { " BREAKER ", \"retry\": { \"attempts\": 3, \"backoff\": \"exponential\", \"base\": \"100ms\",\n"
        "                \"cap\": \"2s\", \"jitter\": \"full\",\n"
        "                \"budget\": { \"ratio\": 0.1, \"capacity\": 1000000, \"per_second\": 1000000 } } },\n"
        "  \"breaker\":  { " BREAKER " },\n"
        "  \"bulkhead\": { " LIMIT(80) " },\n"
        "  \"calls\":    { \"breaker\": { \"failure_rate\": 0.5, \"window\": 100, \"min_calls\": 20 }, " LIMIT(80) " },\n"
        "  \"priority\": { " BREAKER ", \"bulkhead\": { \"limit\": 80, \"low\": 0.5 } },\n"
        "  \"queue\":    { " BREAKER ", " QUEUE_BULKHEAD " },\n"
        "  \"rate\":     { " BREAKER ", " LIMIT(80) ", " RATE_LIMIT " },\n"
        "  \"throttle\": { " BREAKER ", " LIMIT(80) ", \"throttle\": {} },\n"
        "  \"cap\":      { " BREAKER ", " LIMIT(80) ",\n"
        "                \"retry\": { \"budget\": { \"in_flight_floor\": 10, \"in_flight_share\": 0.2 } } },\n"
        "  \"shadow\":   { \"mode\": \"shadow\", " BREAKER ", " LIMIT(80) ", " RATE_LIMIT ", \"throttle\": {} },\n"
        "  \"allowed\":  { " BREAKER ", " LIMIT(80) ", \"injection\": true },\n"
        "  \"all\":      { " BREAKER ", " QUEUE_BULKHEAD ", " RATE_LIMIT ", \"throttle\": {}, \"timeout\": { \"attempt\": \"1s\" },\n"
        "                \"retry\": { \"budget\": { \"deposit\": \"request\", \"in_flight_floor\": 10 } } },\n"
        "  \"once\":     { \"once\": { \"ttl\": \"100ms\" } }\n"
        "} }\n";
/* clang-format on */

static char *table_configuration(void)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);

	if (out == NULL)
		give_up("no memory");
	fprintf(out, "{ \"workers\": %u, \"resources\": {\n", TABLE_WORKERS);
	for (unsigned i = 0; i < TABLE_RESOURCES; i++)
		fprintf(out,
		        "  \"dependency-%03u\": { " BREAKER ", \"bulkhead\": { \"limit\": 80 },"
		        " \"retry\": { \"attempts\": 3, \"budget\": { \"ratio\": 0.1, \"capacity\": 20, \"per_second\": 1 } } }%s\n",
		        i, i + 1 < TABLE_RESOURCES ? "," : "");
	fputs("} }\n", out);
	fclose(out);
	return text;
}

/* ---- measuring: calls ---- */

/* One turn of one row; the fastest turn of a round is kept. */
static double faster(double ns, enum row row)
{
	double again = time_calls(rows[row].calls, rows[row].n);

	return ns == 0 || again < ns ? again : ns;
}

static void measure_loops(struct results *r, unsigned round)
{
	double ns[ROWS] = {0};

	for (unsigned part = 0; part < PARTS; part++)
		for (enum row row = 0; row < ROWS; row++)
			if (rows[row].calls != NULL && r->skipped[row] == NULL)
				ns[row] = faster(ns[row], row);
	for (enum row row = 0; row < ROWS; row++)
		if (ns[row] > 0)
			keep(r, row, round, ns[row], ns[FLOOR]);
}

static void measure_pairs(struct results *r, unsigned round)
{
	double floor_ns = r->ns[FLOOR][round];

	keep(r, FLOOR_TWO_CORES, round, time_two_cores(floor_calls, floor_use, NULL), floor_ns);
	keep(r, TWO_CORES, round, time_two_cores(guarded_calls, NULL, guarded_close), floor_ns);
	keep(r, ROBUST_MUTEX_TWO_CORES, round, time_two_cores(mutex_calls, NULL, NULL), floor_ns);
}

static void first_call(unsigned which)
{
	(void)which;
	guarded_calls(1);
}

static void measure_crowd(struct results *r)
{
	struct crowd crowd;

	crowd_gather(&crowd, CROWD, first_call);
	for (unsigned round = 0; round < ROUNDS; round++) {
		double floor_ns = 0, ns = 0;
		for (unsigned part = 0; part < PARTS; part++) {
			floor_ns = faster(floor_ns, FLOOR);
			ns = faster(ns, GUARDED_CALL);
		}
		keep(r, WORKERS_1000, round, ns, floor_ns);
		keep(r, WORKERS_1000_LAST, round, time_calls_in_child(guarded_calls, rows[GUARDED_CALL].n, guarded_close), floor_ns);
	}
	crowd_disperse(&crowd);
}

static void measure_calls(struct results *r, bool two_cpus)
{
	for (unsigned round = 0; round < ROUNDS; round++) {
		measure_loops(r, round);
		if (two_cpus)
			measure_pairs(r, round);
	}
	measure_crowd(r);
}

/* ---- measuring: a host with 256 resources ---- */

static char table_instance[64];

static void attach_to_table(unsigned which)
{
	struct resc_error err;
	resc_ticket ticket;
	resc *host = resc_open(table_instance, &err);

	if (host == NULL)
		give_up("resc_open: %s", err.text);
	for (unsigned i = 0; i < 8; i++) {
		char name[RESC_NAME_MAX + 1];
		snprintf(name, sizeof(name), "dependency-%03u", (which * 8 + i) % TABLE_RESOURCES);
		resc_resource *resource = resc_lookup(host, name, &err);
		if (resource == NULL)
			give_up("resc_lookup: %s", err.text);
		if (resc_enter(resource, NULL, &ticket) == 0)
			resc_leave(&ticket, RESC_OK);
	}
}

static void measure_table(struct results *r, const struct options *options, const char *directory, const char *instance)
{
	struct daemon daemon = {0};
	struct crowd crowd;
	char name[64], *program = strdup(options->resctl), snapshot[] = "snapshot", option[] = "--instance";
	char *argv[] = {program, snapshot, option, table_instance, NULL};
	char *configuration = table_configuration();

	snprintf(name, sizeof(name), "%s-table", instance);
	snprintf(table_instance, sizeof(table_instance), "%s", name);
	daemon_start(&daemon, options->rescd, directory, name, configuration);
	crowd_gather(&crowd, TABLE_WORKERS, attach_to_table);
	for (unsigned round = 0; round < ROUNDS; round++) {
		double fastest = 0;
		for (unsigned part = 0; part < PARTS; part++) {
			double ns = time_program(argv);
			fastest = part == 0 || ns < fastest ? ns : fastest;
		}
		keep(r, SNAPSHOT_256, round, fastest, time_calls(floor_calls, rows[FLOOR].n));
	}

	sleep_ms(1000);
	uint64_t cpu = process_cpu_ns(daemon.pid), start = now_ns();
	sleep_ms(IDLE_MS);
	r->daemon_idle = (double)(process_cpu_ns(daemon.pid) - cpu) / (double)(now_ns() - start);
	r->daemon_bytes = process_resident_bytes(daemon.pid);
	crowd_disperse(&crowd);
	daemon_stop(&daemon);
	free(configuration);
	free(program);
}

/* ---- what came out ---- */

static double ns_of(const struct results *r, enum row row)
{
	return median(r->ns[row], ROUNDS);
}

static double ratio_to_floor(const struct results *r, enum row row)
{
	double ratios[ROUNDS];

	for (unsigned i = 0; i < ROUNDS; i++)
		ratios[i] = r->ns[row][i] / r->floor_ns[row][i];
	return median(ratios, ROUNDS);
}

/* Of two rows of the same rounds; rows of different phases meet through the floor of each. */
static double ratio(const struct results *r, enum row a, enum row b)
{
	double ratios[ROUNDS];

	/* Copies of the same measurement, or of others: NOLINTNEXTLINE(bugprone-suspicious-memory-comparison,cert-exp42-c,cert-flp37-c) */
	if (memcmp(r->floor_ns[a], r->floor_ns[b], sizeof(r->floor_ns[a])) != 0)
		return ratio_to_floor(r, a) / ratio_to_floor(r, b);
	for (unsigned i = 0; i < ROUNDS; i++)
		ratios[i] = r->ns[a][i] / r->ns[b][i];
	return median(ratios, ROUNDS);
}

static void print_table(const struct results *r)
{
	printf("%-24s %14s %10s\n", "", "ns", "x floor");
	for (enum row row = 0; row < ROWS; row++) {
		if (r->have[row])
			printf("%-24s %14.1f %10.2f   %s\n", rows[row].name, ns_of(r, row), ratio_to_floor(r, row), rows[row].text);
		else
			printf("%-24s %14s %10s   %s\n", rows[row].name, "-", "-", r->skipped[row] != NULL ? r->skipped[row] : "skipped");
	}
	printf("\nrescd with %u resources and %u workers: %.1f MiB resident, %.3f %% of a core idle\n", TABLE_RESOURCES, TABLE_WORKERS,
	       (double)r->daemon_bytes / 1048576, r->daemon_idle * 100);
	if (r->have[TWO_CORES])
		printf("two_cores / guarded_call: %.2f\n", ratio(r, TWO_CORES, GUARDED_CALL));
}

static void write_json(const struct results *r, const char *path)
{
	const char *comma = "";
	FILE *out = fopen(path, "w");

	if (out == NULL)
		give_up("%s: %s", path, strerror(errno));
	fputs("{\n  \"rows\": [", out);
	for (enum row row = 0; row < ROWS; row++) {
		if (!r->have[row])
			continue;
		fprintf(out, "%s\n    {\"name\": \"%s\", \"ns\": %.2f, \"ratio_to_floor\": %.3f}", comma, rows[row].name, ns_of(r, row),
		        ratio_to_floor(r, row));
		comma = ",";
	}
	fprintf(out, "\n  ],\n  \"facts\": {\"rescd_rss_256x64\": %llu, \"rescd_idle\": %.6f}\n}\n", (unsigned long long)r->daemon_bytes,
	        r->daemon_idle);
	if (fclose(out) != 0)
		give_up("%s: %s", path, strerror(errno));
}

/* ---- promises ---- */

enum side { AT_MOST, AT_LEAST };

/* Of rows: these can be measured again. */
static const struct {
	enum row row;
	enum side side;
	double limit;
	enum row of;
} promises[] = {
        {GUARDED_CALL, AT_MOST, 3, FLOOR},          {SYSV_SEMAPHORE, AT_LEAST, 10, GUARDED_CALL},
        {ROBUST_MUTEX, AT_LEAST, 1, GUARDED_CALL},  {ROBUST_MUTEX_TWO_CORES, AT_LEAST, 5, TWO_CORES},
        {REFUSED_OPEN, AT_MOST, 1, GUARDED_CALL},   {TWO_CORES, AT_MOST, 1.2, GUARDED_CALL},
        {WORKERS_1000, AT_MOST, 1.1, GUARDED_CALL}, {ALL_TOGETHER, AT_MOST, 2.5, GUARDED_CALL},
};
#define PROMISES (sizeof(promises) / sizeof(promises[0]))

static bool keeps(enum side side, double value, double limit)
{
	return side == AT_MOST ? value <= limit : value >= limit;
}

static bool can_be_judged(const struct results *r, size_t i)
{
	return r->have[promises[i].row] && r->have[promises[i].of];
}

static bool ratios_keep_their_promises(const struct results *r)
{
	for (size_t i = 0; i < PROMISES; i++)
		if (can_be_judged(r, i) && !keeps(promises[i].side, ratio(r, promises[i].row, promises[i].of), promises[i].limit))
			return false;
	return true;
}

static unsigned judge_ratio(const struct results *r, size_t i)
{
	if (!can_be_judged(r, i))
		return 0;
	double value = ratio(r, promises[i].row, promises[i].of);
	bool kept = keeps(promises[i].side, value, promises[i].limit);
	printf("promise: %s %s %.1f x %s: %.2f %s\n", rows[promises[i].row].name,
	       promises[i].side == AT_MOST ? "<=" : ">=", promises[i].limit, rows[promises[i].of].name, value, kept ? "ok" : "BROKEN");
	return !kept;
}

static unsigned judge(const char *text, double value, double limit, const char *unit)
{
	printf("promise: %s < %g %s: %.3f %s\n", text, limit, unit, value, value < limit ? "ok" : "BROKEN");
	return !(value < limit);
}

/* How many are broken. */
static unsigned judge_all(const struct results *r)
{
	unsigned broken = 0;

	putchar('\n');
	for (size_t i = 0; i < PROMISES; i++)
		broken += judge_ratio(r, i);
	broken += judge("attach", ns_of(r, ATTACH) / 1e6, 1, "ms");
	broken += judge("snapshot_256", ns_of(r, SNAPSHOT_256) / 1e6, 50, "ms");
	broken += judge("rescd_rss_256x64", (double)r->daemon_bytes / 1048576, 8, "MiB");
	broken += judge("rescd_idle", r->daemon_idle * 100, 0.2, "% of a core");
	if (broken > 0)
		printf("%u broken\n", broken);
	return broken;
}

/* ---- the two processes ---- */

static int measure_all(const struct options *options, const char *directory, const char *instance)
{
	static struct results r;
	struct daemon daemon = {0};
	bool two_cpus = cpus_find();

	daemon_start(&daemon, options->rescd, directory, instance, calls_configuration);
	r.skipped[REDIS_UNIX] = redis_open(directory);
	if (r.skipped[REDIS_UNIX] != NULL)
		printf("redis_unix is skipped: %s\n", r.skipped[REDIS_UNIX]);
	if (!two_cpus)
		printf("the rows of two cores are skipped: there is one CPU\n");
	baselines_open();
	guarded_open(instance);
	cpu_pin(0);
	measure_calls(&r, two_cpus);
	for (unsigned again = 0; options->check && again < AGAIN && !ratios_keep_their_promises(&r); again++) {
		printf("A promise was broken. Something else may have been at work on this machine: measuring again.\n");
		fflush(stdout);
		sleep_ms(PAUSE_MS);
		measure_calls(&r, two_cpus);
	}
	measure_table(&r, options, directory, instance);
	guarded_close();
	daemon_stop(&daemon);

	print_table(&r);
	if (options->json != NULL)
		write_json(&r, options->json);
	unsigned broken = judge_all(&r);
	fflush(stdout);
	return options->check && broken > 0 ? 1 : 0;
}

static int remove_one(const char *path, const struct stat *about, int type, struct FTW *ftw)
{
	(void)about;
	(void)type;
	(void)ftw;
	return remove(path);
}

static void clean_up(pid_t group, const char *directory, const char *instance)
{
	char pattern[100];
	glob_t found;

	kill(-group, SIGKILL);
	snprintf(pattern, sizeof(pattern), "/dev/shm/resc.%s*", instance);
	if (glob(pattern, 0, NULL, &found) == 0) {
		for (size_t i = 0; i < found.gl_pathc; i++)
			unlink(found.gl_pathv[i]);
		globfree(&found);
	}
	if (*sysv_id >= 0)
		semctl(*sysv_id, 0, IPC_RMID);
	nftw(directory, remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

/* Waits for the measuring process, or for a signal that ends it. Returns its exit code. */
static int watch(pid_t child, const sigset_t *signals)
{
	int status;

	for (;;) {
		int signal = sigwaitinfo(signals, NULL);
		if (signal == SIGCHLD && waitpid(child, &status, WNOHANG) == child)
			return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
		if (signal == SIGINT || signal == SIGTERM || signal == SIGHUP)
			return 128 + signal;
	}
}

int main(int argc, char **argv)
{
	static const struct argp argp = {
	        argp_options, parse_option, NULL, "Measures what a guarded call costs, against baselines of the same run.",
	        NULL,         NULL,         NULL};
	struct options options = {0};
	char directory[] = "/tmp/resc-bench.XXXXXX", instance[32];
	struct rlimit files = {0};
	sigset_t signals, before;

	find_programs(&options);
	if (argp_parse(&argp, argc, argv, 0, NULL, &options) != 0)
		return 2;
	if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGCHLD);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, &before);
	if (mkdtemp(directory) == NULL)
		give_up("%s: %s", directory, strerror(errno));
	snprintf(instance, sizeof(instance), "bench-%d", (int)getpid());
	sysv_id = shared_memory(sizeof(*sysv_id));
	*sysv_id = -1;

	pid_t child = fork();
	if (child < 0)
		give_up("fork: %s", strerror(errno));
	if (child == 0) {
		setpgid(0, 0);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		sigprocmask(SIG_SETMASK, &before, NULL);
		_exit(measure_all(&options, directory, instance));
	}
	setpgid(child, child);
	int r = watch(child, &signals);
	clean_up(child, directory, instance);
	return r;
}
