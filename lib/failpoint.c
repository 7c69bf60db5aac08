/* SPDX-License-Identifier: MIT */
/*
 * Failpoints: "SIGKILL between these two operations" as a test, and not as luck. See failpoint.h for what they are; release builds have
 * nothing of this file.
 *
 *	NAME[@N]=ACTION[,NAME[@N]=ACTION...]	N: at the N-th time only, counted in each process from its start (a forked child goes on)
 *
 *	kill		SIGKILL
 *	stop		SIGSTOP; goes on with SIGCONT
 *	exit:STATUS	_exit
 *	sleep:MS	in real time
 *	wait:FILE	until FILE exists
 *	touch:FILE	makes FILE, so that a test knows that we are here
 *
 * The environment is read at the first point that is met. A specification that cannot be read ends the process: a misspelt failpoint that
 * did nothing would be a test that passes. Tables are never freed (another thread may be looking at one); only their counts change.
 */
#ifdef RESC_TEST_CLOCK

#include "failpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define POINTS    16
#define NAME_SIZE 64
#define FILE_SIZE 256

enum action { ACTION_KILL, ACTION_STOP, ACTION_EXIT, ACTION_SLEEP, ACTION_WAIT, ACTION_TOUCH };

struct point {
	char name[NAME_SIZE];
	unsigned long only; /* 0: each time */
	enum action action;
	unsigned long number; /* status, or milliseconds */
	char file[FILE_SIZE];
	atomic_ulong hits;
};

struct table {
	struct table *before; /* keeps the older ones reachable */
	size_t count;
	struct point points[POINTS];
};

static struct table *_Atomic active;
static void (*_Atomic watcher)(void);
static pthread_once_t environment_read = PTHREAD_ONCE_INIT;

/* ---- reading a specification ---- */

static bool read_number(const char *text, unsigned long *number)
{
	char *end;

	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*number = strtoul(text, &end, 10);
	return errno == 0 && *end == '\0';
}

static bool read_file(const char *text, char *file)
{
	size_t length = strlen(text);

	if (length == 0 || length >= FILE_SIZE)
		return false;
	memcpy(file, text, length + 1);
	return true;
}

static bool read_action(char *text, struct point *point)
{
	static const struct {
		const char *name;
		enum action action;
		enum { NOTHING, NUMBER, NAME } argument;
	} actions[] = {
	        {"kill", ACTION_KILL, NOTHING},  {"stop", ACTION_STOP, NOTHING}, {"exit", ACTION_EXIT, NUMBER},
	        {"sleep", ACTION_SLEEP, NUMBER}, {"wait", ACTION_WAIT, NAME},    {"touch", ACTION_TOUCH, NAME},
	};
	char *argument = strchr(text, ':');

	if (argument != NULL)
		*argument++ = '\0';
	for (size_t i = 0; i < sizeof(actions) / sizeof(actions[0]); i++) {
		if (strcmp(text, actions[i].name) != 0)
			continue;
		point->action = actions[i].action;
		if (actions[i].argument == NOTHING)
			return argument == NULL;
		if (argument == NULL)
			return false;
		return actions[i].argument == NUMBER ? read_number(argument, &point->number) : read_file(argument, point->file);
	}
	return false;
}

/* "NAME[@N]=ACTION"; text is taken apart. */
static bool read_point(char *text, struct point *point)
{
	char *action = strchr(text, '=');

	if (action == NULL)
		return false;
	*action++ = '\0';
	char *only = strchr(text, '@');
	if (only != NULL) {
		*only++ = '\0';
		if (!read_number(only, &point->only) || point->only == 0)
			return false;
	}
	size_t length = strlen(text);
	if (length == 0 || length >= NAME_SIZE)
		return false;
	memcpy(point->name, text, length + 1);
	return read_action(action, point);
}

static bool read_points(char *text, struct table *table)
{
	char *rest;

	for (char *one = strtok_r(text, ",", &rest); one != NULL; one = strtok_r(NULL, ",", &rest)) {
		if (table->count == POINTS || !read_point(one, &table->points[table->count]))
			return false;
		table->count++;
	}
	return true;
}

static int install(const char *spec)
{
	struct table *table = calloc(1, sizeof(*table));
	char *copy = strdup(spec == NULL ? "" : spec);

	if (table == NULL || copy == NULL || !read_points(copy, table)) {
		free(table);
		free(copy);
		return -EINVAL;
	}
	free(copy);
	/* relaxed to load: only the address is kept. release to store: pairs with the load in failpoint_hit. */
	table->before = atomic_load_explicit(&active, memory_order_relaxed);
	atomic_store_explicit(&active, table, memory_order_release);
	return 0;
}

static void read_environment(void)
{
	const char *spec = getenv("RESC_FAILPOINT");

	if (install(spec) == 0)
		return;
	fprintf(stderr, "resc: RESC_FAILPOINT=%s: not a list of NAME[@N]=kill|stop|exit:STATUS|sleep:MS|wait:FILE|touch:FILE\n", spec);
	abort();
}

int failpoint_set(const char *spec)
{
	pthread_once(&environment_read, read_environment); /* so that it does not come later, and replace this one */
	return install(spec);
}

void failpoint_watch(void (*met)(void))
{
	/* release: what the watcher needs is there when it is called. Pairs with the load in failpoint_hit. */
	atomic_store_explicit(&watcher, met, memory_order_release);
}

/* ---- doing it ---- */

static void sleep_ms(unsigned long ms)
{
	struct timespec left = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};

	int r;

	do
		r = nanosleep(&left, &left);
	while (r != 0 && errno == EINTR);
}

static void touch(const char *file)
{
	int fd = open(file, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);

	if (fd >= 0)
		close(fd);
}

static void act(const struct point *point)
{
	int saved = errno;

	switch (point->action) {
	case ACTION_KILL:
		kill(getpid(), SIGKILL);
		break;
	case ACTION_STOP:
		kill(getpid(), SIGSTOP);
		break;
	case ACTION_EXIT:
		_exit((int)(point->number & 0xff));
	case ACTION_SLEEP:
		sleep_ms(point->number);
		break;
	case ACTION_WAIT:
		while (access(point->file, F_OK) != 0)
			sleep_ms(1);
		break;
	case ACTION_TOUCH:
		touch(point->file);
		break;
	}
	errno = saved;
}

void failpoint_hit(const char *name)
{
	pthread_once(&environment_read, read_environment);
	struct table *table = atomic_load_explicit(&active, memory_order_acquire);
	void (*met)(void) = atomic_load_explicit(&watcher, memory_order_acquire);

	if (met != NULL)
		met();
	for (size_t i = 0; i < table->count; i++) {
		struct point *point = &table->points[i];
		if (strcmp(point->name, name) != 0)
			continue;
		/* relaxed: a count. */
		unsigned long hit = atomic_fetch_add_explicit(&point->hits, 1, memory_order_relaxed) + 1;
		if (point->only == 0 || point->only == hit)
			act(point);
	}
}

#endif
