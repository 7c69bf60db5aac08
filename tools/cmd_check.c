/* SPDX-License-Identifier: MIT */
/*
 * resctl check: what rescd would say to that file, without touching anything. It is the same code, so it is the same answer. The problems
 * are the answer, so they go to stdout, in the form that editors jump to: FILE:LINE:COLUMN.
 */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "config.h"
#include "problems.h"
#include "resctl.h"

enum { OPTION_DEFAULTS = 256 };

static const char doc[] =
        "Says whether rescd would take that file as its configuration: all problems at once, with their places."
        "\v"
        "Nothing is touched, and neither a segment nor rescd is needed. Exit code 1 when there is an error; warnings alone are 0.\n"
        "\n"
        "Examples:\n"
        "  resctl check /etc/resc/resc.json && resctl reload\n"
        "  resctl check --defaults\n"
        "  resctl check --json resc.json | jq -r '.problems[].path'";

static const struct argp_option options[] = {
        {"defaults", OPTION_DEFAULTS, NULL, 0, "print all keys with their defaults instead", 0},
        {0},
};

struct input {
	const char *file;
	bool defaults;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct input *input = state->input;

	switch (key) {
	case OPTION_DEFAULTS:
		input->defaults = true;
		return 0;
	case ARGP_KEY_ARG:
		if (input->file != NULL)
			argp_error(state, "'%s': one file at a time", arg);
		input->file = arg;
		return 0;
	case ARGP_KEY_END:
		if ((input->file == NULL) != input->defaults)
			argp_error(state, input->defaults ? "--defaults needs no file" : "which file?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- the answer ---- */

static int print_answer_json(const struct resctl *ctl, const char *file, bool ok, const struct config *config,
                             const struct config_problems *problems)
{
	return print_json(ctl, json_pack("{s:o, s:b, s:I, s:I, s:I, s:I, s:o}", "file", file_json(file), "ok", ok, "resources",
	                                 (json_int_t)config->count, "patterns", (json_int_t)config->pattern_count, "errors",
	                                 (json_int_t)problems->errors, "warnings", (json_int_t)problems->warnings, "problems",
	                                 problems_json(problems)));
}

static void print_answer(const struct screen *screen, const char *path, bool ok, const struct config *config,
                         const struct config_problems *problems)
{
	char file[CONFIG_FILE_SHOWN];

	problems_print(screen, stdout, path, problems);
	snprintf(file, sizeof(file), "%s", path);
	screen_clean(screen, file);

	if (ok)
		printf("%s: ok: %zu resource%s", file, config->count, config->count == 1 ? "" : "s");
	else
		printf("%s: %zu error%s", file, problems->errors, problems->errors == 1 ? "" : "s");
	if (ok && config->pattern_count > 0)
		printf(", %zu pattern%s", config->pattern_count, config->pattern_count == 1 ? "" : "s");
	if (problems->warnings > 0)
		printf(", %zu warning%s", problems->warnings, problems->warnings == 1 ? "" : "s");
	putchar('\n');
}

static int check(const struct resctl *ctl, const char *file)
{
	struct config_problems problems = {0};
	struct config config = {0};
	bool ok = config_check(file, &config, &problems) == 0;
	int r = EXIT_DONE;

	if (ctl->json)
		r = print_answer_json(ctl, file, ok, &config, &problems);
	else
		print_answer(&ctl->screen, file, ok, &config, &problems);
	config_problems_free(&problems);
	config_free(&config);
	return ok ? r : EXIT_NOT_SO;
}

int cmd_check(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {options, parse, "FILE", doc, NULL, NULL, NULL};
	struct input input = {.file = NULL};

	command_parse(ctl, &argp, argc, argv, &input);
	if (!input.defaults)
		return check(ctl, input.file);
	config_print_defaults(stdout);
	return EXIT_DONE;
}
