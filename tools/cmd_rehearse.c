/* SPDX-License-Identifier: MIT */
/*
 * resctl rehearse: a program of its own, resctl-rehearse, so that resctl itself does without an HTTP client and never starts a process. It
 * takes all options, also --help, so they are described in one place.
 */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "beside.h"
#include "resctl.h"

#define EXIT_CANNOT_PLAY 3 /* as of resctl-rehearse */

int cmd_rehearse(struct resctl *ctl, int argc, char **argv)
{
	static const char *const places[] = {"resctl-rehearse", "../libexec/resc/resctl-rehearse", NULL};
	char program[PATH_MAX], json[] = "--json";
	char **words = calloc((size_t)argc + 2, sizeof(*words));
	size_t count = 0;

	if (words == NULL) {
		complain("out of memory");
		return EXIT_CANNOT_PLAY;
	}
	words[count++] = argv[0];
	if (ctl->json) /* said before the command */
		words[count++] = json;
	for (int i = 1; i < argc; i++)
		words[count++] = argv[i];
	int r = find_beside(places, program, sizeof(program));
	if (r == 0) {
		execv(program, words);
		r = -errno;
	}
	if (r == -ENOENT)
		complain("the program resctl-rehearse is neither beside resctl nor in ../libexec/resc; install it with resctl");
	else
		complain("resctl-rehearse cannot be started: %s", strerror(-r));
	free(words);
	return EXIT_CANNOT_PLAY;
}
