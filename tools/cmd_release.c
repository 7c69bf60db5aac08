/* SPDX-License-Identifier: MIT */
/* resctl release: ends an override before its time. The breaker decides again, closed and with a fresh window. */
#include <errno.h>
#include <string.h>

#include "operator.h"
#include "override.h"

static const char doc[] = "Ends an override: the breaker decides again. It is closed then, with a fresh window."
                          "\v"
                          "Exit code 1 when nothing was forced.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl release payments\n"
                          "  resctl release payments --why \"the vendor is back early\"";

static int act(const struct map *map, uint32_t index, const struct operation *operation)
{
	return override_release(map, index, operation->why);
}

int cmd_release(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {operation_options, operation_parse, "NAME", doc, NULL, NULL, NULL};
	struct operation operation = {.name = NULL};
	char done[160];
	uint32_t index;

	command_parse(ctl, &argp, argc, argv, &operation);
	int r = operation_do(ctl, &operation, &index, act);
	if (r == -ESRCH) {
		complain("%s is not forced: there is nothing to release", operation.name);
		return EXIT_NOT_SO;
	}
	snprintf(done, sizeof(done), "%s is released: closed, with a fresh window", operation.name);
	return r != 0 ? r : operation_report(ctl, index, done);
}
