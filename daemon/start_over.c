/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: whoever may write the segment's file may also cut it. A touch of what is gone is a SIGBUS, and where the file grows
 * again there are zeros, which look like "nothing is configured, nothing in use". Nothing in such a segment can be believed any more.
 *
 * What it guarantees: rescd notices it within a second, by the size and the header, or at the SIGBUS, and starts over by executing itself.
 * So it does what it does at each start with a segment that cannot be used: it removes it and makes a fresh one, which the workers join.
 * Where it is a former one, it goes on with the current one, without that.
 * A SIGBUS of another cause keeps its meaning.
 */
#include "start_over.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static char **arguments;
static const struct instance *watched;

/* Also in the signal handler: nothing here but system calls and reads. Descriptors are all close-on-exec. */
static void start_over(void)
{
	static const char text[] = "rescd: a segment was cut or overwritten by somebody: starting over\n";

	/* Nobody may be reading it. */
	ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)written;
	/* Never by a name that could lead elsewhere. Where it fails, we end, and the supervisor starts us. */
	execv("/proc/self/exe", arguments);
}

/* A touch is what ends in the handler, and nobody touches a segment while he changes these lists. */
static bool is_damaged(void)
{
	if (watched->map.base && !map_is_sound(&watched->map))
		return true;
	for (unsigned i = 0; i < watched->succession.count; i++)
		if (!map_is_sound(&watched->succession.former[i].map))
			return true;
	return false;
}

void start_over_if_damaged(void)
{
	if (is_damaged())
		start_over();
}

static void bus_error(int number)
{
	start_over_if_damaged();
	/* Not that, or it could not be done: the touch is repeated, and ends us. */
	signal(number, SIG_DFL);
}

void start_over_prepare(char **argv, const struct instance *instance)
{
	/* Not blocked in the handler: what is executed there would start with it blocked. */
	struct sigaction action = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};

	arguments = argv;
	watched = instance;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}
