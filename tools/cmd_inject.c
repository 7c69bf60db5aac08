/* SPDX-License-Identifier: MIT */
/*
 * resctl inject: a game day on a live host. A share of the calls of a resource fails, or waits, on purpose, so that people see what
 * breaker, retries, fallbacks and alarms make of it before the dependency shows them. It always ends by itself, soon, and only where the
 * configuration allows it; and those who find it must be able to read that it was meant: so the reason is asked for.
 */
#include <errno.h>
#include <string.h>

#include "config_value.h"
#include "format.h"
#include "injection.h"
#include "operator.h"
#include "wall.h"
#include "why.h"

enum { OPTION_FAIL = 256, OPTION_LATENCY, OPTION_LATENCY_SHARE, OPTION_FOR, OPTION_STOP };

static const char doc[] = "Makes a share of the calls of a resource fail or wait, on purpose, for a time."
                          "\v"
                          "The shares are exact over all workers of the host: with --fail 20% every fifth\n"
                          "call fails, whichever worker makes it. A call that is chosen has been admitted\n"
                          "by all guards, and does not go to the dependency where it fails: resc_enter\n"
                          "leaves it as a failure, and says so to the caller. So breaker, retry budget,\n"
                          "counters and alarms see what they would see. One that waits has that much less\n"
                          "of its timeout left; where the latency reaches the timeout, it is a time-out.\n"
                          "\n"
                          "It ends by itself, with or without rescd. --stop ends it at once, also for\n"
                          "calls that wait. Only resources whose configuration has \"injection\": true\n"
                          "can be injected; taking that away ends it too. Probes are not spared.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl inject payments --fail 20% --for 60s --why \"game day\"\n"
                          "  resctl inject payments --latency 300ms --for 5m --why \"slow vendor\"\n"
                          "  resctl inject payments --fail 5% --latency 2s --latency-share 30% --for 5m \\\n"
                          "    --why \"both\"\n"
                          "  resctl inject payments --stop";

static const struct argp_option options[] = {
        {"fail", OPTION_FAIL, "SHARE", 0, "so many of the calls fail: 20%, 0.5%", 0},
        {"latency", OPTION_LATENCY, "DURATION", 0, "calls wait so long first: 300ms, 2s; at most 1m", 0},
        {"latency-share", OPTION_LATENCY_SHARE, "SHARE", 0, "only so many of them wait (default: 100%)", 0},
        {"for", OPTION_FOR, "DURATION", 0, "how long: 60s, 10m; at most 1h", 0},
        {"stop", OPTION_STOP, NULL, 0, "end what is injected", 0},
        {0},
};

struct inject {
	struct injection what;
	uint64_t for_ms;
	bool shared; /* --latency-share was given */
	bool stop;
};

struct inject_input {
	struct operation operation;
	struct inject inject;
};

static uint32_t take_share(const char *option, const char *arg, struct argp_state *state)
{
	uint64_t ppm = 0;
	int r = value_percent(arg, &ppm);

	if (r == -EDOM)
		argp_error(state, "%s %s: finer than one call in a million", option, arg);
	else if (r != 0)
		argp_error(state, "%s %s: not a share; a percentage is needed, like 20%% or 0.5%%", option, arg);
	else if (ppm == 0 || ppm > VALUE_MILLION)
		argp_error(state, "%s %s: more than 0%%, at most 100%%", option, arg);
	return (uint32_t)ppm;
}

static uint64_t take_duration(const char *option, const char *arg, uint64_t most_ms, struct argp_state *state)
{
	uint64_t ms = 0;
	int r = duration_parse(arg, most_ms, &ms);

	if (r == -ERANGE)
		argp_error(state, "%s %s: at least 1ms, at most %s", option, arg, duration_setting(most_ms).s);
	else if (r != 0)
		argp_error(state, "%s %s: not a duration; a number with a unit, like 300ms, 60s or 10m", option, arg);
	return ms;
}

static void check_stop(const struct inject *inject, const struct argp_state *state)
{
	if (inject->what.fail_ppm != 0 || inject->what.latency_ms != 0 || inject->shared || inject->for_ms != 0)
		argp_error(state, "--stop ends what is injected: it goes with --why alone");
}

static void check_start(const struct inject_input *input, const struct argp_state *state)
{
	const struct inject *inject = &input->inject;

	if (inject->what.fail_ppm == 0 && inject->what.latency_ms == 0)
		argp_error(state, "inject what? --fail SHARE, --latency DURATION, or both (or --stop)");
	if (inject->shared && inject->what.latency_ms == 0)
		argp_error(state, "--latency-share says how many calls wait; --latency DURATION says how long");
	if (inject->for_ms == 0)
		argp_error(state, "how long? --for DURATION, at most %s", duration_setting(INJECTION_MOST_MS).s);
	if (input->operation.why[strspn(input->operation.why, " ")] == '\0')
		argp_error(state, "why? --why TEXT tells those who find it");
}

static void check_complete(struct inject_input *input, const struct argp_state *state)
{
	if (input->operation.name == NULL)
		argp_error(state, "which resource? resctl list shows them");
	if (input->inject.stop)
		check_stop(&input->inject, state);
	else
		check_start(input, state);
	if (input->inject.what.latency_ms != 0 && !input->inject.shared)
		input->inject.what.share_ppm = VALUE_MILLION;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct inject_input *input = state->input;
	struct inject *inject = &input->inject;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &input->operation;
		return 0;
	case OPTION_FAIL:
		inject->what.fail_ppm = take_share("--fail", arg, state);
		return 0;
	case OPTION_LATENCY:
		inject->what.latency_ms = (uint32_t)take_duration("--latency", arg, INJECTION_LATENCY_MOST_MS, state);
		return 0;
	case OPTION_LATENCY_SHARE:
		inject->what.share_ppm = take_share("--latency-share", arg, state);
		inject->shared = true;
		return 0;
	case OPTION_FOR:
		inject->for_ms = take_duration("--for", arg, INJECTION_MOST_MS, state);
		return 0;
	case OPTION_STOP:
		inject->stop = true;
		return 0;
	case ARGP_KEY_END:
		check_complete(input, state);
		return 0;
	case ARGP_KEY_ARG:
		if (input->operation.name != NULL)
			argp_error(state, "'%s': one resource at a time", arg);
		input->operation.name = arg;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int act(const struct map *map, uint32_t index, const struct operation *operation)
{
	const struct inject *inject = operation->input;

	return inject->stop ? injection_stop(map, index, operation->why)
	                    : injection_set(map, index, &inject->what, inject->for_ms, operation->why);
}

/* What is there now. It need not be ours any more: a short one has ended, or another operator was as fast. */
static int report(const struct resctl *ctl, uint32_t index, const struct inject *inject)
{
	struct inspect_resource r;
	char text[512];

	if (ctl->json || inspect_resource(&ctl->map, index, &r) != 0)
		return operation_report(ctl, index, "done");
	const struct inspect_injection *i = &r.injection;
	if (inject->stop)
		snprintf(text, sizeof(text), "%s: nothing is injected any more", r.name);
	else if (!i->on)
		snprintf(text, sizeof(text), "%s: %s was injected, and is over", r.name, injection_words(&inject->what).s);
	else
		snprintf(text, sizeof(text), "%s: injecting %s for %s, until %s, by %s: %s (end it: resctl inject %s --stop)", r.name,
		         injection_words(&i->what).s, duration_setting(i->until_ms - i->set_ms).s,
		         time_local_zone(wall_clock_ns(&ctl->map, i->until_ms)).s, user_text(i->uid).s, i->text, r.name);
	return operation_report(ctl, index, text);
}

int cmd_inject(struct resctl *ctl, int argc, char **argv)
{
	const struct argp common = {operation_options, operation_parse_why, NULL, NULL, NULL, NULL, NULL};
	const struct argp_child children[] = {{&common, 0, NULL, 0}, {0}};
	const struct argp argp = {options, parse, "NAME", doc, children, NULL, NULL};
	struct inject_input input = {.operation = {.name = NULL}};
	uint32_t index;

	input.operation.input = &input.inject;
	command_parse(ctl, &argp, argc, argv, &input);
	int r = operation_do(ctl, &input.operation, &index, act);
	if (r == -ESRCH) {
		complain("%s: nothing is injected: there is nothing to stop", input.operation.name);
		return EXIT_NOT_SO;
	}
	return r != 0 ? r : report(ctl, index, &input.inject);
}
