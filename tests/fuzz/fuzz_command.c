/* SPDX-License-Identifier: MIT */
/*
 * Any command line, in any environment, on any terminal, whatever rescd answers: resctl and rescd end with an exit code that the manual
 * knows, say on stderr what was wrong, and on stdout nothing that a terminal would obey.
 *
 * An input is text. Its first lines are the environment (NAME=value) up to an empty line; then each line is an argument. "%3" is the third
 * command of resctl, and "%*" all of them one after the other: the list is from its own help, so that a new command is tried at once. \001
 * in an argument stands for a line feed. Some names are for the test, and no program sees them:
 *
 *	PROGRAM=rescd	it is rescd's command line, up to where the configuration would be read
 *	TTY=		stdout is a terminal, as wide as COLUMNS says
 *	ROOM=N		stdout takes N bytes, and no more: a full disk
 *	ANSWER=text	what comes out of rescd's control socket, then it hangs up; without it nothing comes
 *
 * The instance is a real one, with a resource that is forced and one that was reset. Each run finds it as it was.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "../unit/every_guard.h"
#include "chars.h"
#include "config.h"
#include "override.h"
#include "program.h"
#include "record.h"
#include "resctl.h"

#define LINES_MAX 48u

static const struct segment_dims small = {
        .resources = 4, .workers = 4, .permits = 64, .shards = 4, .events = 16, .calls = 64, .waiting = 16, .once = 16};

/* Of the process. */
static struct {
	bool ready;
	char instance[32];
	char variable[64];
	char path[MAP_PATH_SIZE];
	char directory[48];
	char good[80], bad[80]; /* configurations */
	char socket_path[80];
	int listener;
	struct map map;
	uint8_t *pristine;
} base;

/* Of one input. */
static struct {
	char *text;
	char *envp[LINES_MAX + 2];
	char *argv[LINES_MAX + 2];
	int argc;
	bool rescd;
	size_t room;
	const char *answer; /* NULL: none */
	int peer;
} now;

/* ---- what programs meet ---- */

/* Who follows events sleeps between two looks. */
static void somebody_resets(void)
{
	override_reset(&base.map, program.slept % 3, "meanwhile");
	atomic_fetch_add_explicit(&base.map.live->clock_ns, 100000000, memory_order_relaxed);
}

/* Who waits for rescd's answer waits here. A piece comes at a time. */
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout)
{
	if (!program.inside)
		return __real_poll(fds, count, timeout);
	if (now.answer == NULL)
		return 0;
	if (now.peer < 0)
		now.peer = accept(base.listener, NULL, NULL);
	size_t size = strlen(now.answer) < 7 ? strlen(now.answer) : 7;
	if (size == 0)
		shutdown(now.peer, SHUT_RDWR);
	else
		REQUIRE(send(now.peer, now.answer, size, MSG_NOSIGNAL) == (ssize_t)size);
	now.answer += size;
	return __real_poll(fds, count, timeout);
}

/* rescd has read its options when it comes here. */
int __real_config_load(const char *path, struct config *out, struct config_problems *problems);
int __wrap_config_load(const char *path, struct config *out, struct config_problems *problems);
int __wrap_config_load(const char *path, struct config *out, struct config_problems *problems)
{
	if (program.inside && now.rescd)
		end_program(ENDED_WITH_OPTIONS);
	return __real_config_load(path, out, problems);
}

/* "good.json" and "bad.json" are there, and nothing else of the file system. */
int __real_config_check(const char *path, struct config *out, struct config_problems *problems);
int __wrap_config_check(const char *path, struct config *out, struct config_problems *problems);
int __wrap_config_check(const char *path, struct config *out, struct config_problems *problems)
{
	bool good = strcmp(path, "good.json") == 0, bad = strcmp(path, "bad.json") == 0;

	return __real_config_check(good ? base.good : bad ? base.bad : "/nonexistent", out, problems);
}

/* ---- the instance ---- */

static void clean_up(void)
{
	unlink(base.path);
	unlink(base.socket_path);
	unlink(base.good);
	unlink(base.bad);
	rmdir(base.directory);
}

static void write_file(char *path, const char *name, const char *text)
{
	snprintf(path, sizeof base.good, "%s/%s", base.directory, name);
	FILE *file = fopen(path, "w");

	REQUIRE(file != NULL && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void make_directory(void)
{
	snprintf(base.directory, sizeof base.directory, "/tmp/resc-fuzz-%d-XXXXXX", (int)getpid());
	REQUIRE(mkdtemp(base.directory) != NULL);
	write_file(base.good, "good.json", "{\"resources\": {\"payments\": {\"timeout\": {\"total\": \"1s\"}}}}\n");
	write_file(base.bad, "bad.json",
	           "{\"resources\": {\"payments\": {\"limit\": 3, \"\\u001b[31m\\u202e\": 1}}, \"grupp\": \"www-data\"}\n");
}

static void listen_for_clients(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};

	snprintf(base.socket_path, sizeof base.socket_path, "%s/control.sock", base.directory);
	memcpy(address.sun_path, base.socket_path, sizeof base.socket_path);
	base.listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	REQUIRE(base.listener >= 0 && bind(base.listener, (struct sockaddr *)&address, sizeof address) == 0);
	REQUIRE(listen(base.listener, 8) == 0);
}

static void make_instance(void)
{
	static const char *const names[] = {"payments", "ledger", "search"};
	struct resc_error err;
	struct policy policy;

	snprintf(base.instance, sizeof base.instance, "fuzz-%d", (int)getpid());
	snprintf(base.variable, sizeof base.variable, "RESC_INSTANCE=%s", base.instance);
	map_path(base.path, base.instance, 0);
	program_path = base.path;
	REQUIRE(map_create(&base.map, base.instance, &small, NULL, 0600, (gid_t)-1, &err) == 0);
	every_guard(&policy);
	for (int i = 0; i < 3; i++)
		REQUIRE(record_publish(&base.map, names[i], &policy) == i);
	atomic_store_explicit(&base.map.daemon->resources, 3, memory_order_release);
	chars_store(base.map.daemon->control, sizeof base.map.daemon->control, base.socket_path);
	REQUIRE(override_set(&base.map, 1, OVERRIDE_OPEN, 3600000, "maintenance") == 0);
	REQUIRE(override_reset(&base.map, 2, "tidy") == 0);
	REQUIRE(map_publish(&base.map, base.path) == 0);
	base.pristine = malloc(base.map.size);
	REQUIRE(base.pristine != NULL);
	memcpy(base.pristine, base.map.base, base.map.size);
}

static void start(void)
{
	make_directory();
	listen_for_clients();
	atexit(clean_up);
	make_instance();
	program.meanwhile = somebody_resets;
	list_commands();
	base.ready = true;
}

/* ---- an input ---- */

/* True: it is the test's, and not the program's. */
static bool take_own(const char *line)
{
	if (strncmp(line, "ARGP_HELP_FMT", 13) == 0) /* libc's, and no matter of ours */
		return true;
	if (strncmp(line, "PROGRAM=", 8) == 0)
		return now.rescd = strcmp(line + 8, "rescd") == 0, true;
	if (strncmp(line, "TTY=", 4) == 0)
		return program.terminal = true;
	if (strncmp(line, "ROOM=", 5) == 0)
		return now.room = strtoul(line + 5, NULL, 10), true;
	if (strncmp(line, "ANSWER=", 7) == 0)
		return now.answer = line + 7, true;
	return false;
}

static char *take_line(char **rest)
{
	char *line = *rest, *end = strchr(line, '\n');

	if (end != NULL)
		*end = '\0';
	*rest = end == NULL ? line + strlen(line) : end + 1;
	for (char *p = line; *p != '\0'; p++)
		if (*p == '\001')
			*p = '\n';
	return line;
}

/* --HANG, however short, is libc's: its argp then sleeps for an hour. */
static char *take_word(char **rest)
{
	char *argument = take_line(rest);

	if (strncmp(argument, "--H", 3) == 0)
		argument[2] = 'h';
	return argument;
}

static void read_input(const uint8_t *data, size_t size)
{
	char *rest, *line;
	unsigned n = 0;

	memset(&now, 0, sizeof now);
	now.room = SIZE_MAX;
	now.peer = -1;
	program.terminal = false;
	now.text = malloc(size + 1);
	REQUIRE(now.text != NULL);
	memcpy(now.text, data, size);
	now.text[size] = '\0';
	for (rest = now.text; *rest != '\0' && *(line = take_line(&rest)) != '\0';)
		if (!take_own(line) && strchr(line, '=') != NULL && n < LINES_MAX)
			now.envp[n++] = line;
	/* The first of a name counts. */
	now.envp[n] = base.variable;
	now.argv[now.argc++] = now.rescd ? "rescd" : "resctl";
	while (*rest != '\0' && now.argc < (int)LINES_MAX)
		now.argv[now.argc++] = take_word(&rest);
}

/* ---- what must be so ---- */

/* An option by its name. */
static bool is_said(const char *argument)
{
	const char *end = strncmp(argument, "--", 2) == 0 ? strchr(argument, '=') : NULL;
	size_t size = end == NULL ? strlen(argument) : (size_t)(end - argument);

	/* Behind "resctl COMMAND: ". */
	const char *text = strstr(program.err.text, ": ");

	if (text != NULL && size == 0)
		return strstr(text, "''") != NULL;
	return text != NULL && memmem(text, strlen(text), argument, size) != NULL;
}

/* The argument that is meant; or what is missing is asked for. */
static void check_usage(void)
{
	/* The last is how getopt says a letter. */
	static const char *const asks[] = {"?", " needed", " needs ", "contradict", "NAME", "DURATION", "instance: ", " -- '"};
	bool named = false;

	for (size_t i = 0; i < sizeof asks / sizeof asks[0]; i++)
		named |= strstr(program.err.text, asks[i]) != NULL;
	for (int i = 1; i < now.argc; i++)
		named |= is_said(now.argv[i]);
	REQUIRE(named && program.out.size == 0);
}

static bool wants_json(void)
{
	for (int i = 1; i < now.argc; i++)
		if (strcmp(now.argv[i], "--json") == 0 || strcmp(now.argv[i], "-j") == 0)
			return true;
	return false;
}

static void check(int status)
{
	const char *name = now.rescd ? "rescd" : "resctl";

	check_out();
	/* The device's own reason, and not what errno was last. */
	if (strncmp(program.err.text, "resctl: the answer could", 24) == 0)
		REQUIRE(now.room != SIZE_MAX && strstr(program.err.text, strerror(ENOSPC)) != NULL);
	if (status == ENDED_INTERRUPTED || status == ENDED_WITH_OPTIONS)
		return;
	REQUIRE(status >= 0 && status <= (now.rescd ? EXIT_USAGE : EXIT_NO_SEGMENT));
	if (status == EXIT_USAGE)
		check_usage();
	if (now.room == SIZE_MAX && wants_json())
		check_json();
	/* "Not so" can be an answer: all that is wrong with a file. */
	if (status == 0 || (status == EXIT_NOT_SO && program.out.size > 0))
		return;
	REQUIRE(strncmp(program.err.text, name, strlen(name)) == 0 && program.err.text[program.err.size - 1] == '\n');
}

/* ---- running ---- */

static void run_once(void)
{
	char *argv[LINES_MAX + 2];
	const char *answer = now.answer;

	/* Programs move the words in their argv about. */
	memcpy(argv, now.argv, sizeof argv);
	int status = program_run(now.rescd ? rescd_main : resctl_main, now.envp, now.argc, argv, now.room);
	check(status);
	memcpy(base.map.base, base.pristine, base.map.size);
	now.answer = answer;
	if (now.peer >= 0)
		close(now.peer);
	now.peer = -1;
	/* Who gave up before it asked is still in the queue. */
	for (int fd = accept(base.listener, NULL, NULL); fd >= 0; fd = accept(base.listener, NULL, NULL))
		close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!base.ready)
		start();
	read_input(data, size);
	if (now.argc > 1 && strcmp(now.argv[1], "%*") == 0) {
		for (unsigned i = 0; i < program.count; i++) {
			now.argv[1] = program.commands[i];
			run_once();
		}
	} else {
		if (now.argc > 1 && now.argv[1][0] == '%')
			now.argv[1] = program.commands[strtoul(now.argv[1] + 1, NULL, 10) % program.count];
		run_once();
	}
	free(now.text);
	return 0;
}
