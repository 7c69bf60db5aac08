/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: whoever may write the segment's file may also cut it. A touch of what is gone is a SIGBUS, and where the file grows
 * again there are zeros, which look like "nothing is configured, nothing in use". Nothing in such a segment can be believed any more.
 *
 * What it guarantees: rescd notices it within a second, by the size and the header, or at the SIGBUS, and starts over by executing itself.
 * So it does what it does at each start with a segment that cannot be used: it removes it and makes a fresh one, which the workers join.
 * A SIGBUS of another cause keeps its meaning.
 */
#include "start_over.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

static char **arguments;
static const struct map *watched;

/* Also in the signal handler: nothing here but system calls and reads. Descriptors are all close-on-exec. */
static void start_over(void)
{
	static const char text[] = "the segment was cut or overwritten by somebody: starting over with a fresh one\n";

	/* Nobody may be reading it. */
	ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);
	(void)written;
	/* Never by a name that could lead elsewhere. Where it fails, we end, and the supervisor starts us. */
	execv("/proc/self/exe", arguments);
}

void start_over_if_damaged(void)
{
	if (watched->base && !map_is_sound(watched))
		start_over();
}

static void bus_error(int number)
{
	start_over_if_damaged();
	/* Not that, or it could not be done: the touch is repeated, and ends us. */
	signal(number, SIG_DFL);
}

void start_over_prepare(char **argv, const struct map *map)
{
	/* Not blocked in the handler: what is executed there would start with it blocked. */
	struct sigaction action = {.sa_handler = bus_error, .sa_flags = SA_NODEFER};

	arguments = argv;
	watched = map;
	sigemptyset(&action.sa_mask);
	sigaction(SIGBUS, &action, NULL);
}
