/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in a segment, or a file that was cut, and each command of resctl on it, or a rescd that finds it at its start, or whose segment
 * goes bad while it runs: they end in time with an exit code that the manual knows, a word on stderr where it is not 0, JSON that is JSON,
 * and nothing that a terminal would obey.
 *
 * An input: the number of the command (of those that resctl's own help lists; from 128 on: rescd), a byte of bits, the arguments, three
 * bytes of a size, and then damage (damage.h). It is done, and the program runs; then the segment is as it was.
 */
#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <jansson.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "../unit/every_guard.h"
#include "damage.h"
#include "loop.h"
#include "override.h"
#include "policy.h"
#include "program.h"
#include "record.h"

#define HEAD       6u
#define TIMERS_MAX 8u
#define TURNS      3u

#define RESCD 0x80u
/* The bits. */
#define ANSWER_JSON 0x01u
#define TERMINAL    0x02u
#define CUT         0x04u
#define LATER       0x08u /* rescd: damage comes while it runs */

static const struct segment_dims small = {
        .resources = 4, .workers = 4, .permits = 64, .shards = 4, .events = 16, .calls = 64, .waiting = 16, .once = 16};

/* Of the process. */
static struct {
	bool ready;
	char instance[32];
	char variable[64];
	char path[MAP_PATH_SIZE];
	char kept[MAP_PATH_SIZE + 8]; /* another name of the file: rescd may take away the first */
	char directory[48];
	char config[80], control[80];
	struct map map;
	uint8_t *pristine;
} base;

/* Of one input. */
static struct {
	struct damage damage;
	const uint8_t *later; /* rescd's damage, while it runs; NULL: it was there before */
	size_t later_size;
	struct timer *timers[TIMERS_MAX];
	unsigned timer_count;
	unsigned lines; /* that rescd logged */
	bool cut;       /* nothing of the file may be touched */
} now;

/* ---- rescd's turns ---- */

int __real_timer_open(struct timer *timer, struct loop *loop);
int __wrap_timer_open(struct timer *timer, struct loop *loop);
int __wrap_timer_open(struct timer *timer, struct loop *loop)
{
	REQUIRE(now.timer_count < TIMERS_MAX);
	now.timers[now.timer_count++] = timer;
	return __real_timer_open(timer, loop);
}

/* A second passes, and each timer is due. */
int __wrap_loop_run(struct loop *loop);
int __wrap_loop_run(struct loop *loop)
{
	(void)loop;
	for (unsigned turn = 0; turn < TURNS; turn++) {
		if (!now.cut)
			atomic_fetch_add_explicit(&base.map.live->clock_ns, 1000000000, memory_order_relaxed);
		for (unsigned i = 0; i < now.timer_count; i++)
			now.timers[i]->due(now.timers[i]->arg);
		if (turn == 0 && now.later != NULL)
			damage_do(&now.damage, &base.map, now.later, now.later_size);
	}
	return 0;
}

void __wrap_log_line(const char *format, ...);
void __wrap_log_line(const char *format, ...)
{
	(void)format;
	now.lines++;
}

/* ---- the instance ---- */

static void clean_up(void)
{
	unlink(base.path);
	unlink(base.kept);
	unlink(base.config);
	unlink(base.control);
	rmdir(base.directory);
}

static void make_directory(void)
{
	snprintf(base.directory, sizeof base.directory, "/tmp/resc-fuzz-%d-XXXXXX", (int)getpid());
	REQUIRE(mkdtemp(base.directory) != NULL);
	snprintf(base.config, sizeof base.config, "%s/resc.json", base.directory);
	snprintf(base.control, sizeof base.control, "%s/control.sock", base.directory);
	FILE *file = fopen(base.config, "w");
	REQUIRE(file != NULL);
	fputs("{\"resources\": {\"payments\": {\"bulkhead\": {\"limit\": 8}, \"rate\": {\"per_second\": 5}}, \"ledger\": {\"bulkhead\": "
	      "{\"limit\": \"50%\"}}, \"shard-*\": {\"breaker\": {\"consecutive\": 5}}}}\n",
	      file);
	REQUIRE(fclose(file) == 0);
}

static void fill(const struct map *map)
{
	static const char *const names[RESOURCES] = {"payments", "ledger", "search"};
	struct policy policy;

	every_guard(&policy);
	for (int i = 0; i < (int)RESOURCES; i++)
		REQUIRE(record_publish(map, names[i], &policy) == i);
	atomic_store_explicit(&map->daemon->resources, RESOURCES, memory_order_release);
	REQUIRE(override_set(map, 1, OVERRIDE_OPEN, 3600000, "maintenance") == 0);
	REQUIRE(override_reset(map, 2, "tidy") == 0);
}

/* Opened again, so that nobody holds the lock of its rescd. */
static void make_instance(void)
{
	struct resc_error err;
	struct map made;

	snprintf(base.instance, sizeof base.instance, "fuzz-%d", (int)getpid());
	snprintf(base.variable, sizeof base.variable, "RESC_INSTANCE=%s", base.instance);
	map_path(base.path, base.instance, 0);
	snprintf(base.kept, sizeof base.kept, "%s.kept", base.path);
	program_path = base.path;
	REQUIRE(map_create(&made, base.instance, &small, NULL, 0600, (gid_t)-1, &err) == 0);
	fill(&made);
	REQUIRE(map_publish(&made, base.path) == 0 && link(base.path, base.kept) == 0);
	REQUIRE(map_open(&base.map, base.path, MAP_OWNER, &err) == 0);
	map_close(&made);
	/* Nobody writes there but us. */
	REQUIRE(mprotect(base.map.base, SEGMENT_PAGE, PROT_READ | PROT_WRITE) == 0);
	base.pristine = malloc(base.map.size);
	REQUIRE(base.pristine != NULL);
	memcpy(base.pristine, base.map.base, base.map.size);
}

static void start(void)
{
	make_directory();
	atexit(clean_up);
	make_instance();
	list_commands();
	base.ready = true;
}

/* Under its name, and as it was; and what rescd made besides is gone. */
static void restore(void)
{
	char pattern[MAP_PATH_SIZE + 8];
	glob_t found;

	snprintf(pattern, sizeof pattern, "%s.*", base.path);
	if (glob(pattern, 0, NULL, &found) == 0)
		for (size_t i = 0; i < found.gl_pathc; i++)
			if (strcmp(found.gl_pathv[i], base.kept) != 0)
				unlink(found.gl_pathv[i]);
	globfree(&found);
	if (!map_is_at(&base.map, base.path)) {
		unlink(base.path);
		REQUIRE(link(base.kept, base.path) == 0);
	}
	REQUIRE(ftruncate(base.map.fd, (off_t)base.map.size) == 0);
	memcpy(base.map.base, base.pristine, base.map.size);
}

/* ---- programs ---- */

static void run_resctl(const char *command, uint8_t arguments, bool json)
{
	static const char *const some[][6] = {
	        {NULL},
	        {"payments"},
	        {"payments", "open", "--for=1m", "--why=x"},
	        {"--follow"},
	        {"--resource=ledger"},
	        {"advance", "5s"},
	        {"ledger", "search"},
	        {"payments", "--watch=0"},
	        {"payments", "--watch=60ms", "--only-watched"},
	};
	const char *const *more = some[arguments % (sizeof some / sizeof some[0])];
	char *envp[] = {base.variable, (char[]){"TERM=xterm"}, (char[]){"LC_ALL=C.UTF-8"}, NULL};
	char *argv[10] = {(char[]){"resctl"}, (char *)(uintptr_t)command};
	int argc = 2;

	for (; *more != NULL; more++)
		argv[argc++] = (char *)(uintptr_t)*more;
	if (json)
		argv[argc++] = (char[]){"--json"};
	int status = program_run(resctl_main, envp, argc, argv, SIZE_MAX);
	check_out();
	if (status == ENDED_INTERRUPTED)
		return;
	REQUIRE(status >= EXIT_DONE && status <= EXIT_NO_SEGMENT);
	check_json();
	REQUIRE(status == 0 || program.out.size > 0 || strncmp(program.err.text, "resctl", 6) == 0);
}

static void run_rescd(void)
{
	char *envp[] = {NULL};
	char *argv[] = {(char[]){"rescd"},      (char[]){"--config"},   base.config,
	                (char[]){"--instance"}, base.instance,          (char[]){"--control"},
	                base.control,           (char[]){"--metrics="}, NULL};
	sigset_t signals;

	pthread_sigmask(SIG_BLOCK, NULL, &signals);
	int status = program_run(rescd_main, envp, 8, argv, SIZE_MAX);
	pthread_sigmask(SIG_SETMASK, &signals, NULL);
	REQUIRE((status == 0 || status == 1) && now.lines > 0);
}

/* ---- running ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!base.ready)
		start();
	memset(&now, 0, sizeof now);
	if (size < HEAD)
		return 0;
	bool rescd = (data[0] & RESCD) != 0;
	uint8_t bits = data[1];
	size_t length = ((size_t)data[3] << 16 | (size_t)data[4] << 8 | data[5]) % (base.map.size + SEGMENT_PAGE);

	program.terminal = (bits & TERMINAL) != 0;
	if (rescd && (bits & LATER) != 0) {
		now.later = data + HEAD;
		now.later_size = size - HEAD;
	} else {
		damage_do(&now.damage, &base.map, data + HEAD, size - HEAD);
		now.cut = (bits & CUT) != 0;
		if (now.cut)
			REQUIRE(ftruncate(base.map.fd, (off_t)length) == 0);
	}
	if (rescd)
		run_rescd();
	else
		run_resctl(program.commands[data[0] % program.count], data[2], (bits & ANSWER_JSON) != 0);
	restore();
	return 0;
}
