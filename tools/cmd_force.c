/* SPDX-License-Identifier: MIT */
/*
 * resctl force: takes the decision away from a breaker, for a time and for a reason. Both must be said: an override that nobody remembers
 * is the next outage. All workers obey at their next call, whether rescd lives or not; it ends by itself, and that too needs nobody.
 */
#include <errno.h>
#include <string.h>

#include "format.h"
#include "operator.h"
#include "override.h"
#include "wall.h"
#include "why.h"

#define LONGEST_MS (UINT64_C(366) * 86400 * 1000)

enum { OPTION_FOR = 256, OPTION_UNTIL_RELEASED };

static const char doc[] = "Takes the decision away from the breaker of a resource."
                          "\v"
                          "  open      every call is refused, probes too: it never becomes half-open\n"
                          "  closed    the breaker admits every call; it still counts, and the other\n"
                          "            guards still stand\n"
                          "  disabled  the breaker decides nothing and records nothing; the other guards\n"
                          "            still stand\n"
                          "\n"
                          "All workers obey at their next call. When it ends, by itself or with resctl\n"
                          "release, the breaker is closed with a fresh window. It is kept through reloads\n"
                          "and restarts of rescd. --why and the caller's user id are seen in resctl list,\n"
                          "show and events.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl force payments open --for 30m --why \"vendor maintenance\"\n"
                          "  resctl force payments closed --for 90s --why \"false alarm\"\n"
                          "  resctl force search disabled --until-released --why \"new cluster\"";

static const struct argp_option options[] = {
        {"for", OPTION_FOR, "DURATION", 0, "how long: 90s, 30m, 2h, 1d", 0},
        {"until-released", OPTION_UNTIL_RELEASED, NULL, 0, "without an end: until resctl release", 0},
        {0},
};

struct force {
	enum override_mode mode;
	uint64_t for_ms; /* 0: until released */
	bool timed, endless;
};

struct force_input {
	struct operation operation;
	struct force force;
};

static enum override_mode mode_of(const char *name)
{
	for (unsigned mode = OVERRIDE_OPEN; mode <= OVERRIDE_DISABLED; mode++)
		if (strcmp(name, override_mode_name((enum override_mode)mode)) == 0)
			return (enum override_mode)mode;
	return OVERRIDE_NONE;
}

static void take_argument(struct force_input *input, const char *arg, struct argp_state *state)
{
	if (state->arg_num == 0) {
		input->operation.name = arg;
	} else if (state->arg_num == 1) {
		input->force.mode = mode_of(arg);
		if (input->force.mode == OVERRIDE_NONE)
			argp_error(state, "'%s': it can be forced open, closed or disabled", arg);
	} else {
		argp_error(state, "'%s': one resource and one mode at a time", arg);
	}
}

static void take_duration(struct force *force, const char *arg, struct argp_state *state)
{
	int r = duration_parse(arg, LONGEST_MS, &force->for_ms);

	force->timed = true;
	if (r == -ERANGE)
		argp_error(state, "--for %s: at least 1ms, at most 366d (without an end: --until-released)", arg);
	else if (r != 0)
		argp_error(state, "--for %s: not a duration; a number with a unit, like 90s, 30m, 2h or 1d", arg);
}

static void check_complete(const struct force_input *input, const struct argp_state *state)
{
	const struct force *force = &input->force;

	if (force->mode == OVERRIDE_NONE)
		argp_error(state, "a resource and a mode are needed: NAME open|closed|disabled");
	if (!force->timed && !force->endless)
		argp_error(state, "how long? --for DURATION, or --until-released");
	if (force->timed && force->endless)
		argp_error(state, "--for and --until-released contradict each other");
	if (input->operation.why[strspn(input->operation.why, " ")] == '\0')
		argp_error(state, "why? --why TEXT tells those who find it later");
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct force_input *input = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &input->operation;
		return 0;
	case OPTION_FOR:
		take_duration(&input->force, arg, state);
		return 0;
	case OPTION_UNTIL_RELEASED:
		input->force.endless = true;
		return 0;
	case ARGP_KEY_ARG:
		take_argument(input, arg, state);
		return 0;
	case ARGP_KEY_END:
		check_complete(input, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int act(const struct map *map, uint32_t index, const struct operation *operation)
{
	const struct force *force = operation->input;

	return override_set(map, index, force->mode, force->for_ms, operation->why);
}

/* What is there now. It need not be ours any more: a short one has ended, or another operator was as fast. */
static int report(const struct resctl *ctl, uint32_t index, const struct force *force)
{
	struct inspect_resource r;
	char text[512];

	if (ctl->json || inspect_resource(&ctl->map, index, &r) != 0)
		return operation_report(ctl, index, "done");
	const struct inspect_override *o = &r.override;
	if (o->mode != force->mode) {
		snprintf(text, sizeof(text), "%s was %s, and is %s now", r.name, override_words(force->mode), state_words(&r));
		return operation_report(ctl, index, text);
	}
	if (o->until_ms == 0)
		snprintf(text, sizeof(text), "%s is %s until it is released (resctl release %s), by %s: %s", r.name,
		         override_words(o->mode), r.name, user_text(o->uid).s, o->text);
	else
		snprintf(text, sizeof(text), "%s is %s for %s, until %s, by %s: %s", r.name, override_words(o->mode),
		         duration_setting(force->for_ms).s, time_local_zone(wall_clock_ns(&ctl->map, o->until_ms)).s, user_text(o->uid).s,
		         o->text);
	return operation_report(ctl, index, text);
}

int cmd_force(struct resctl *ctl, int argc, char **argv)
{
	const struct argp common = {operation_options, operation_parse_why, NULL, NULL, NULL, NULL, NULL};
	const struct argp_child children[] = {{&common, 0, NULL, 0}, {0}};
	const struct argp argp = {options, parse, "NAME open|closed|disabled", doc, children, NULL, NULL};
	struct force_input input = {.operation = {.name = NULL}};
	uint32_t index;

	input.operation.input = &input.force;
	command_parse(ctl, &argp, argc, argv, &input);
	int r = operation_do(ctl, &input.operation, &index, act);
	return r != 0 ? r : report(ctl, index, &input.force);
}
