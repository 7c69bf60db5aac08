/* SPDX-License-Identifier: MIT */
/*
 * resctl: looks at an instance, and lets an operator decide over its breakers.
 *
 * Everything but reload works on the segment itself, so it works while rescd is dead or stopped. Looking maps the segment read-only and
 * moves nothing.
 *
 * What this file guarantees for all commands: an answer that could not be written (a closed pipe, a full disk) is a failure and not a
 * success; the exit code says who is to act; a segment never becomes somebody's standard output (see streams.c).
 */
#include "resctl.h"

#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "answer.h"
#include "format.h"
#include "snapshot_json.h"
#include "streams.h"

static const struct command commands[] = {
        {"list", "", "every resource: state, why, load", cmd_list},
        {"show", "NAME...", "all about it, with its effective policy", cmd_show},
        {"events", "[--follow]", "what happened lately", cmd_events},
        {"workers", "", "who is attached, and holds what", cmd_workers},
        {"snapshot", "", "everything, as one JSON document", cmd_snapshot},
        {"force", "NAME open|closed|disabled", "take the decision away from the breaker", cmd_force},
        {"release", "NAME", "give it back", cmd_release},
        {"inject", "NAME", "let a share of its calls fail, for a time", cmd_inject},
        {"reset", "NAME", "closed, fresh window, full retry budget", cmd_reset},
        {"reload", "", "let rescd read its configuration again", cmd_reload},
        {"check", "FILE", "is this a good configuration?", cmd_check},
        {"doctor", "[--fix]", "is everything in the segment right?", cmd_doctor},
        {"rehearse", "SCENARIO", "play an outage before it comes", cmd_rehearse},
        {"suggest", "NAME", "a timeout and a limit, from what was seen", cmd_suggest},
        {"version", "", "of the program and the segment's format", cmd_version},
#ifdef RESC_TEST_CLOCK
        {"clock", "show|advance DURATION", "the test clock of the segment", cmd_clock},
#endif
};
#define COMMANDS (sizeof(commands) / sizeof(commands[0]))

/* ---- options that all commands have ---- */

enum { OPTION_JSON = 'j', OPTION_INSTANCE = 'i' };

static const struct argp_option common_options[] = {
        {NULL, 0, NULL, 0, "With every command:", 9},
        {"instance", OPTION_INSTANCE, "NAME", 0, "the instance (default: $RESC_INSTANCE, else \"default\")", 9},
        {"json", OPTION_JSON, NULL, 0, "answer in JSON", 9},
        {0},
};

static error_t parse_common(int key, char *arg, struct argp_state *state)
{
	struct resctl *ctl = state->input;

	switch (key) {
	case OPTION_INSTANCE:
		ctl->instance = arg;
		return 0;
	case OPTION_JSON:
		ctl->json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp common_argp = {common_options, parse_common, NULL, NULL, NULL, NULL, NULL};

static void check_instance(const struct resctl *ctl, const struct argp_state *state)
{
	struct resc_error err;

	if (name_check(ctl->instance, &err) != 0)
		argp_error(state, "instance: %s", err.text);
}

/* ---- the options of one command ---- */

struct command_input {
	struct resctl *ctl;
	void *own;
};

static error_t parse_command(int key, char *arg, struct argp_state *state)
{
	struct command_input *input = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = input->own;
		state->child_inputs[1] = input->ctl;
		return 0;
	case ARGP_KEY_SUCCESS:
		check_instance(input->ctl, state);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

void command_parse(struct resctl *ctl, const struct argp *argp, int argc, char **argv, void *own)
{
	const struct argp_child children[] = {{argp, 0, NULL, 0}, {&common_argp, 0, NULL, 9}, {0}};
	const struct argp whole = {NULL, parse_command, NULL, NULL, children, NULL, NULL};
	struct command_input input = {ctl, own};

	/* argp ends the program itself where the words are wrong; what comes back here is a fault of ours, or no memory. */
	error_t r = argp_parse(&whole, argc, argv, 0, NULL, &input);
	if (r != 0) {
		complain("%s", strerror(r));
		exit(EXIT_USAGE);
	}
}

error_t parse_nothing(int key, char *arg, struct argp_state *state)
{
	if (key == ARGP_KEY_ARG)
		argp_error(state, "'%s': this command takes no arguments", arg);
	return ARGP_ERR_UNKNOWN;
}

/* ---- the command line before the command ---- */

struct line {
	struct resctl *ctl;
	int argc;
	char **argv;
};

static error_t parse_line(int key, char *arg, struct argp_state *state)
{
	struct line *line = state->input;

	(void)arg;
	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = line->ctl;
		return 0;
	case ARGP_KEY_ARG:
		line->argc = state->argc - state->next + 1;
		line->argv = &state->argv[state->next - 1];
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which command?");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* The list of commands comes from the table, so that the help cannot differ from it. */
static char *help_text(int key, const char *text, void *input)
{
	char *out = NULL;
	size_t size = 0;

	(void)input;
	if (key != ARGP_KEY_HELP_PRE_DOC)
		return (char *)(uintptr_t)text;
	FILE *stream = open_memstream(&out, &size);
	if (stream == NULL)
		return (char *)(uintptr_t)text;
	fprintf(stream, "%s\n\nCommands (resctl COMMAND --help tells more of each):\n", text);
	for (size_t i = 0; i < COMMANDS; i++) {
		const struct command *c = &commands[i];
		int used = fprintf(stream, "  %s%s%s", c->name, c->arguments[0] != '\0' ? " " : "", c->arguments);
		fprintf(stream, "%*s%s\n", used < 35 ? 35 - used : 2, "", c->summary);
	}
	fclose(stream);
	return out;
}

static const char help_doc[] = "Looks at the dependencies that the workers of this host share, and decides\nover their breakers."
                               "\v"
                               "Examples:\n"
                               "  resctl list\n"
                               "  resctl show payments\n"
                               "  resctl events --follow\n"
                               "  resctl force payments open --for 30m --why \"vendor maintenance, ticket 4711\"\n"
                               "  resctl release payments\n"
                               "  resctl snapshot | jq '.resources[] | select(.state != \"closed\") | .name'\n"
                               "\n"
                               "All but reload and rehearse work on the shared segment itself: also while\n"
                               "rescd is dead. rehearse plays on an instance of its own.\n"
                               "\n"
                               "Exit codes:\n"
                               "  0  done\n"
                               "  1  refused, or not so: no such resource, nothing to release, a bad file,\n"
                               "     an answer that could not be written\n"
                               "  2  a mistake in the command line\n"
                               "  3  the segment (for reload: rescd) cannot be reached";

static const struct command *find_command(const char *name)
{
	for (size_t i = 0; i < COMMANDS; i++)
		if (strcmp(commands[i].name, name) == 0)
			return &commands[i];
	return NULL;
}

static int unknown_command(const char *name)
{
	const char *nearest = NULL;
	unsigned distance = 3;

	for (size_t i = 0; i < COMMANDS; i++) {
		unsigned d = name_distance(name, commands[i].name);
		if (d < distance) {
			distance = d;
			nearest = commands[i].name;
		}
	}
	if (nearest != NULL)
		complain("there is no command '%s'; did you mean '%s'?", name, nearest);
	else
		complain("there is no command '%s'; resctl --help lists them", name);
	return EXIT_USAGE;
}

static int run_command(struct resctl *ctl, int argc, char **argv)
{
	const struct command *command = find_command(argv[0]);
	char title[64];

	if (command == NULL)
		return unknown_command(argv[0]);
	/* What argp says begins with this. */
	snprintf(title, sizeof(title), "resctl %s", command->name);
	argv[0] = title;
	return command->run(ctl, argc, argv);
}

/* "resctl help" and "resctl help list" are the same as --help. */
static int run(const struct argp *argp, struct resctl *ctl, const struct line *line)
{
	char title[] = "resctl", option[] = "--help";

	if (strcmp(line->argv[0], "help") != 0)
		return run_command(ctl, line->argc, line->argv);
	if (line->argc > 1)
		return run_command(ctl, 2, (char *[]){line->argv[1], option, NULL});
	argp_help(argp, stdout, ARGP_HELP_STD_HELP & ~(unsigned)ARGP_HELP_EXIT_OK, title);
	return EXIT_DONE;
}

/* ---- saying things ---- */

void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	answer_complain("resctl", format, args);
	va_end(args);
}

int print_json(const struct resctl *ctl, json_t *json)
{
	if (json == NULL) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	return answer_json(&ctl->screen, json) ? EXIT_DONE : EXIT_NOT_SO;
}

int print_snapshot(const struct resctl *ctl)
{
	size_t size;

	if (ctl->screen.terminal)
		return print_json(ctl, snapshot_json(&ctl->map));
	char *text = snapshot_text(&ctl->map, &size);
	if (text == NULL) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	size_t written = fwrite(text, 1, size, stdout);
	free(text);
	return written == size && putchar('\n') != EOF ? EXIT_DONE : EXIT_NOT_SO;
}

/* ---- beginning and end ---- */

int main(int argc, char **argv)
{
	const struct argp_child children[] = {{&common_argp, 0, NULL, 9}, {0}};
	const struct argp argp = {NULL, parse_line, "COMMAND [ARGUMENT...]", help_doc, children, help_text, NULL};
	const char *instance = getenv("RESC_INSTANCE");
	struct resctl ctl = {.instance = instance != NULL && instance[0] != '\0' ? instance : "default"};
	struct line line = {.ctl = &ctl};

	streams_guard("resctl", EXIT_NOT_SO);
	setlocale(LC_CTYPE, "");
	setlocale(LC_TIME, "C");
	screen_look(&ctl.screen);
	argp_program_version = "resctl " RESC_VERSION_STRING;
	argp_err_exit_status = EXIT_USAGE;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	if (argp_parse(&argp, argc, argv, ARGP_IN_ORDER, NULL, &line) != 0 || line.argc == 0)
		return EXIT_USAGE;
	int r = run(&argp, &ctl, &line);
	detach(&ctl);
	return r;
}
