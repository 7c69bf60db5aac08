/* SPDX-License-Identifier: MIT */
/*
 * resctl and rescd as functions: their main() is called again and again in one process, with an environment, arguments and a standard
 * output of the test's choice, and what they say and how they end is kept.
 *
 * The main() of each is renamed by objcopy (see the Makefile), so it is the program as it is built, and not a copy. It ends by returning,
 * by exit() (argp does that inside libc, where no linker option reaches it), or by _exit(). exit() calls what on_exit() was told of, and
 * from there control jumps back here: glibc has taken the function from its list before it calls it, and holds no lock meanwhile. What
 * was allocated then is lost, as it is in a program that ends; so lost memory is not looked for in here. Mappings are.
 */
#ifndef FUZZ_PROGRAM_H
#define FUZZ_PROGRAM_H

#include <errno.h>
#include <locale.h>
#include <sanitizer/lsan_interface.h>
#include <setjmp.h>
#include <stdbool.h>
#include <string.h>

#include "map.h"
#include "resctl.h"
#include "standalone.h"

#define SAID_MOST     ((size_t)1 << 22)
#define MAPS_MOST     4u
#define COMMANDS_MOST 64u
#define SLEEPS_MOST   25u

/* A program ends with an exit code, or in one of these. */
enum { ENDED_INTERRUPTED = 256, ENDED_WITH_OPTIONS };

/* What a program wrote to a stream. */
struct said {
	char *text; /* ends with a zero */
	size_t size;
	size_t room; /* how much the device takes; SIZE_MAX: all */
};

static struct {
	jmp_buf back;
	bool inside, told; /* told: exit() knows of us */
	void (*at_exit)(void);
	struct said out, err;
	struct map maps[MAPS_MOST]; /* that it has open; base NULL: none */
	bool terminal;
	unsigned slept;
	void (*meanwhile)(void); /* what happens while it sleeps; NULL: nothing */
	char commands[COMMANDS_MOST][32];
	unsigned count;
} program;

int resctl_main(int argc, char **argv);
int rescd_main(int argc, char **argv);
extern char **environ;

/* ---- streams ---- */

static ssize_t hear_program(void *cookie, const char *text, size_t size)
{
	struct said *said = cookie;

	if (size > said->room) {
		errno = ENOSPC;
		return 0;
	}
	said->room -= said->room == SIZE_MAX ? 0 : size;
	REQUIRE(said->size + size < SAID_MOST);
	memcpy(said->text + said->size, text, size);
	said->size += size;
	said->text[said->size] = '\0';
	return (ssize_t)size;
}

static FILE *listen_to(struct said *said, size_t room, int buffering)
{
	FILE *stream = fopencookie(said, "w", (cookie_io_functions_t){.write = hear_program});

	if (said->text == NULL)
		said->text = malloc(SAID_MOST);
	REQUIRE(stream != NULL && said->text != NULL);
	said->text[0] = '\0';
	said->size = 0;
	said->room = room;
	setvbuf(stream, NULL, buffering, 4096);
	return stream;
}

/* ---- what it may reach ---- */

/* Whoever runs a test may have a real instance: no name but the test's leads anywhere. */
static const char *program_path;

int __real_map_open(struct map *map, const char *path, enum map_access access, struct resc_error *err);
int __wrap_map_open(struct map *map, const char *path, enum map_access access, struct resc_error *err);
int __wrap_map_open(struct map *map, const char *path, enum map_access access, struct resc_error *err)
{
	if (program.inside && strncmp(path, program_path, strlen(program_path)) != 0)
		path = "/nonexistent";
	int r = __real_map_open(map, path, access, err);
	if (r != 0 || !program.inside)
		return r;
	for (unsigned i = 0; i < MAPS_MOST; i++) {
		if (program.maps[i].base != NULL)
			continue;
		program.maps[i] = *map;
		return 0;
	}
	REQUIRE(false);
	return 0;
}

void __real_map_close(struct map *map);
void __wrap_map_close(struct map *map);
void __wrap_map_close(struct map *map)
{
	for (unsigned i = 0; i < MAPS_MOST; i++)
		if (map->base != NULL && program.maps[i].base == map->base)
			program.maps[i].base = NULL;
	__real_map_close(map);
}

/* Only who was interrupted has one left. */
static void close_maps(bool interrupted)
{
	for (unsigned i = 0; i < MAPS_MOST; i++) {
		REQUIRE(program.maps[i].base == NULL || interrupted);
		map_close(&program.maps[i]);
		program.maps[i] = (struct map){.fd = -1};
	}
}

/* resctl rehearse is another program, which is not there. */
int __real_execv(const char *path, char *const argv[]);
int __wrap_execv(const char *path, char *const argv[]);
int __wrap_execv(const char *path, char *const argv[])
{
	if (!program.inside)
		return __real_execv(path, argv);
	errno = EACCES;
	return -1;
}

int __real_isatty(int fd);
int __wrap_isatty(int fd);
int __wrap_isatty(int fd)
{
	return program.inside ? program.terminal : __real_isatty(fd);
}

/* ---- ends ---- */

/* status + 1, so that none is 0. */
static void end_program(int status)
{
	program.inside = false;
	longjmp(program.back, status + 1);
}

static void leave_exit(int status, void *arg)
{
	(void)arg;
	program.told = false;
	if (program.inside)
		end_program(status);
}

void __real__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status) __attribute__((noreturn));
void __wrap__exit(int status)
{
	if (program.inside)
		end_program(status);
	__real__exit(status);
}

int __real_atexit(void (*function)(void));
int __wrap_atexit(void (*function)(void));
int __wrap_atexit(void (*function)(void))
{
	if (!program.inside)
		return __real_atexit(function);
	REQUIRE(program.at_exit == NULL);
	program.at_exit = function;
	return 0;
}

/* Who sleeps goes on at once. Who does nothing else is interrupted in the end, as by Control-C. */
int __real_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left);
int __wrap_nanosleep(const struct timespec *wanted, struct timespec *left)
{
	if (!program.inside)
		return __real_nanosleep(wanted, left);
	if (++program.slept == SLEEPS_MOST)
		end_program(ENDED_INTERRUPTED);
	if (program.meanwhile != NULL)
		program.meanwhile();
	return 0;
}

/* The program's part, from main() on: an exit code, or what is beyond them. */
static int run_inside(int (*entry)(int argc, char **argv), int argc, char **argv)
{
	int ended = setjmp(program.back);

	if (ended != 0)
		return ended - 1;
	program.inside = true;
	int status = entry(argc, argv);
	program.inside = false;
	return status;
}

static int run_at_exit(int argc, char **argv)
{
	void (*function)(void) = program.at_exit;

	(void)argc;
	(void)argv;
	program.at_exit = NULL;
	if (function != NULL)
		function();
	return -1;
}

/* Its exit code, or an ENDED_. The texts are there until the next run. envp and argv end with NULL. */
static int program_run(int (*entry)(int argc, char **argv), char **envp, int argc, char **argv, size_t room)
{
	FILE *own_out = stdout, *own_err = stderr;
	char **own_environ = environ;

	if (!program.told)
		REQUIRE(on_exit(leave_exit, NULL) == 0);
	program.told = true;
	program.slept = 0;
	FILE *out = stdout = listen_to(&program.out, room, _IOFBF);
	FILE *err = stderr = listen_to(&program.err, SIZE_MAX, _IONBF);
	environ = envp;
	__lsan_disable();
	int status = run_inside(entry, argc, argv);
	bool closes = program.at_exit != NULL;
	int later = run_inside(run_at_exit, 0, NULL);
	__lsan_enable();
	environ = own_environ;
	stdout = own_out;
	stderr = own_err;
	if (!closes)
		fclose(out);
	fclose(err);
	setlocale(LC_ALL, "C");
	close_maps(status == ENDED_INTERRUPTED);
	return later == -1 ? status : later;
}

/* ---- what resctl can do ---- */

/* The lines "  name ..." below "Commands". */
static void list_commands(void)
{
	char *argv[] = {(char[]){"resctl"}, (char[]){"--help"}, NULL};
	char *line, *rest;

	REQUIRE(program_run(resctl_main, (char *[]){NULL}, 2, argv, SIZE_MAX) == 0);
	char *list = strstr(program.out.text, "Commands");
	REQUIRE(list != NULL && (list = strchr(list, '\n')) != NULL);
	for (line = strtok_r(list, "\n", &rest); line != NULL && strncmp(line, "  ", 2) == 0; line = strtok_r(NULL, "\n", &rest)) {
		REQUIRE(program.count < COMMANDS_MOST);
		sscanf(line, " %31s", program.commands[program.count++]);
	}
	REQUIRE(program.count >= 10);
}

/* ---- what must be so ---- */

static bool is_json_text(const char *text, size_t size)
{
	json_t *json = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);

	json_decref(json);
	return json != NULL;
}

/* One document, or one in each line. */
static void check_json(void)
{
	const char *text = program.out.text, *end;

	if ((text[0] != '{' && text[0] != '[') || is_json_text(text, program.out.size))
		return;
	for (; *text != '\0'; text = end + 1) {
		end = strchr(text, '\n');
		REQUIRE(end != NULL && is_json_text(text, (size_t)(end - text)));
	}
}

/* What a terminal shows, and does not obey; but for our own colours, where there are some. */
static void check_out(void)
{
	for (const char *p = program.out.text; *p != '\0'; p++) {
		if (*p == '\033' && program.terminal && p[1] == '[')
			p += strspn(p + 2, "0123456789") + 2;
		else
			REQUIRE(((unsigned char)*p >= 0x20 && *p != 0x7f) || *p == '\n');
	}
}

#endif
