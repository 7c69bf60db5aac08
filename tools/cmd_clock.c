/* SPDX-License-Identifier: MIT */
/*
 * resctl clock, in the test build only: there, time is a word of the segment, and tests move it. All programs on that segment see the
 * new time at once; nothing else happens by it: a cooldown that is over shows at the next call.
 */
#include "resctl.h"

#ifdef RESC_TEST_CLOCK

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "format.h"

#define LONGEST_MS (UINT64_C(10000) * 86400 * 1000)

static const char doc[] = "Shows or moves the test clock of the segment. It never goes back."
                          "\v"
                          "Examples:\n"
                          "  resctl clock show\n"
                          "  resctl clock advance 5s";

struct input {
	bool advance;
	uint64_t ms;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct input *input = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (state->arg_num == 0 && strcmp(arg, "advance") == 0)
			input->advance = true;
		else if (state->arg_num == 1 && input->advance) {
			if (duration_parse(arg, LONGEST_MS, &input->ms) != 0)
				argp_error(state, "'%s': not a duration; like 250ms, 5s or 2m", arg);
		} else if (state->arg_num > 0 || strcmp(arg, "show") != 0)
			argp_error(state, "'%s': show, or advance DURATION", arg);
		return 0;
	case ARGP_KEY_END:
		if (state->arg_num == 0 || (input->advance && input->ms == 0))
			argp_error(state, "show, or advance DURATION");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

int cmd_clock(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse, "show|advance DURATION", doc, NULL, NULL, NULL};
	struct input input = {.ms = 0};

	command_parse(ctl, &argp, argc, argv, &input);
	int r = attach(ctl, input.advance ? MAP_WORKER : MAP_READER);
	if (r != 0)
		return r;
	if (input.advance)
		/* seq_cst: a test that moves the clock expects everybody to see it afterwards. */
		atomic_fetch_add_explicit(&ctl->map.live->clock_ns, input.ms * 1000000, memory_order_seq_cst);
	uint64_t now_ms = clock_coarse_ms(&ctl->map);
	if (ctl->json)
		return print_json(ctl, json_pack("{s:I}", "now_ms", (json_int_t)now_ms));
	printf("%" PRIu64 " ms (%s) since the segment was made\n", now_ms, duration_text(now_ms).s);
	return EXIT_DONE;
}

#endif
