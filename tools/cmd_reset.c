/* SPDX-License-Identifier: MIT */
/* resctl reset: forgets what a breaker has learnt. For when it is known that the dependency is well again, and waiting would cost. */
#include "operator.h"
#include "override.h"
#include "why.h"

static const char doc[] =
        "Closes the breaker of a resource, with a fresh window, no failures in a row, a full retry budget and a full rate limit."
        "\v"
        "Counters stay, calls in flight stay, an override stays (see resctl release), and so does what is injected. If the dependency "
        "still fails, the breaker opens again by its policy.\n"
        "\n"
        "Examples:\n"
        "  resctl reset payments --why \"certificate renewed\"";

static int act(const struct map *map, uint32_t index, const struct operation *operation)
{
	return override_reset(map, index, operation->why);
}

int cmd_reset(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {operation_options, operation_parse, "NAME", doc, NULL, NULL, NULL};
	struct operation operation = {.name = NULL};
	struct inspect_resource resource;
	char done[200];
	uint32_t index;

	command_parse(ctl, &argp, argc, argv, &operation);
	int r = operation_do(ctl, &operation, &index, act);
	if (r != 0)
		return r;
	bool forced = inspect_resource(&ctl->map, index, &resource) == 0 && resource.override.mode != OVERRIDE_NONE;
	snprintf(done, sizeof(done), "%s is reset: closed, with a fresh window, a full retry budget and a full rate limit%s%s",
	         operation.name, forced ? "; it stays " : "", forced ? override_words(resource.override.mode) : "");
	return operation_report(ctl, index, done);
}
