/* SPDX-License-Identifier: MIT */
/* resctl snapshot: the whole instance as one JSON document. What stands in it, and what it guarantees, is in snapshot_json.c. */
#include "resctl.h"

enum { OPTION_PRETTY = 256, OPTION_COMPACT };

static const char doc[] =
        "Everything about the instance as one JSON document: segment, rescd, workers, and of each resource its policy, state, override, "
        "window, probes, permits by worker, retry tokens, counters and latencies."
        "\v"
        "The document is versioned (\"version\": 1) and described by docs/snapshot.schema.json. Every key is always there; what does not "
        "apply is null. Taking it moves nothing.\n"
        "\n"
        "Examples:\n"
        "  resctl snapshot --pretty\n"
        "  resctl snapshot | jq '.resources[] | {name, state, why}'\n"
        "  resctl snapshot | jq '.resources[] | {name, by: .permits.by_worker}'";

static const struct argp_option options[] = {
        {"pretty", OPTION_PRETTY, NULL, 0, "indented (the default on a terminal)", 0},
        {"compact", OPTION_COMPACT, NULL, 0, "on one line (the default elsewhere)", 0},
        {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct resctl *ctl = state->input;

	switch (key) {
	case OPTION_PRETTY:
	case OPTION_COMPACT:
		ctl->screen.terminal = key == OPTION_PRETTY;
		return 0;
	default:
		return parse_nothing(key, arg, state);
	}
}

int cmd_snapshot(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};

	command_parse(ctl, &argp, argc, argv, ctl);
	int r = attach(ctl, MAP_READER);
	return r != 0 ? r : print_snapshot(ctl);
}
