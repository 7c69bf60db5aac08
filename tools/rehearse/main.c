/* SPDX-License-Identifier: MIT */
/*
 * resctl rehearse: what a policy does, seen before an outage does it. This program plays a scenario with real processes on an instance of
 * its own, each variant on each view, and says what came of what was expected.
 *
 * What this file guarantees: whatever can be found wrong before anything is played is found then, the report's place included, for a
 * rehearsal takes minutes; and the exit code says what came of it, so that a rehearsal can be a step of a build.
 */
#include <argp.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <locale.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "answer.h"
#include "beside.h"
#include "format.h"
#include "present.h"
#include "problems.h"
#include "stage.h"
#include "streams.h"

enum exit_code {
	EXIT_GOOD = 0,        /* all that was expected is so */
	EXIT_NOT_SO = 1,      /* it is not, or the game day was stopped */
	EXIT_USAGE = 2,       /* a command line, or a scenario, that means nothing */
	EXIT_CANNOT_PLAY = 3, /* this host, or this build, cannot play it */
	EXIT_SIGNAL = 128,    /* and the number of the signal that ended it */
};

struct rehearsal {
	const char *path;
	const char *report; /* NULL: none */
	struct scenario_options options;
	bool json, check, list_figures, list_keys;
	struct screen screen;      /* stdout */
	struct screen live_screen; /* where the table is shown while it is played */
	struct live *live;         /* NULL: nowhere */
	struct scenarios scenarios;
	struct take *takes;
	size_t take_count;
	char rescd[PATH_MAX];
};

/* ---- saying things ---- */

__attribute__((format(printf, 1, 2))) static void complain(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	answer_complain("resctl rehearse", format, args);
	va_end(args);
}

static int print_json(const struct rehearsal *rehearsal, json_t *json)
{
	if (json == NULL) {
		complain("out of memory");
		return EXIT_CANNOT_PLAY;
	}
	return answer_json(&rehearsal->screen, json) ? EXIT_GOOD : EXIT_CANNOT_PLAY;
}

/* ---- the command line ---- */

enum {
	OPTION_JSON = 'j',
	OPTION_INSTANCE = 'i',
	OPTION_CONFIG = 256,
	OPTION_WORKERS,
	OPTION_VIEWS,
	OPTION_VARIANT,
	OPTION_SHORT,
	OPTION_REPORT,
	OPTION_CHECK,
	OPTION_LIST_FIGURES,
	OPTION_LIST_KEYS,
};

static const char doc[] =
        "Plays a scenario with real worker processes on an instance of its own: what happens with these settings when a dependency hangs "
        "for "
        "two minutes? Prints what was expected and what came of it, with all workers on one shared view, and with each on its own."
        "\v"
        "Nothing outside is touched, unless the scenario names an address. docs/scenarios.md tells how to write one.\n"
        "\n"
        "Examples:\n"
        "  resctl rehearse outage.json\n"
        "  resctl rehearse outage.json --config resc.json --report outage.html\n"
        "  resctl rehearse outage.json --views both --workers 32\n"
        "  resctl rehearse outage.json --check && echo good\n"
        "\n"
        "Exit codes:\n"
        "  0  all that was expected is so\n"
        "  1  something is not, or the game day was stopped\n"
        "  2  a mistake in the command line or in the scenario\n"
        "  3  it cannot be played here, or the answer could not be written\n"
        "  128 and the number of the signal that ended it";

static const struct argp_option options[] = {
        {"config", OPTION_CONFIG, "FILE", 0, "guard calls with this configuration instead of the scenario's own", 0},
        {"workers", OPTION_WORKERS, "N", 0, "so many worker processes instead of the scenario's", 0},
        {"views", OPTION_VIEWS, "shared|own|both", 0, "all workers on one view, or each on its own, or one after the other", 0},
        {"variant", OPTION_VARIANT, "NAME", 0, "only this variant", 0},
        {"short", OPTION_SHORT, NULL, 0, "in the scenario's short form, where it has one", 0},
        {"report", OPTION_REPORT, "FILE.html", 0, "also write a report with plots, one file that needs nothing else", 0},
        {"json", OPTION_JSON, NULL, 0, "answer in JSON", 0},
        {"check", OPTION_CHECK, NULL, 0, "play nothing: is this a good scenario?", 0},
        {"list-figures", OPTION_LIST_FIGURES, NULL, 0, "the figures that a scenario can expect something of", 0},
        {"list-keys", OPTION_LIST_KEYS, NULL, 0, "all keys of a scenario, and all figures, as tables in Markdown", 0},
        {"instance", OPTION_INSTANCE, "NAME", OPTION_HIDDEN, NULL, 0},
        {0},
};

static uint32_t parse_workers(const char *arg, const struct argp_state *state)
{
	char *end;
	unsigned long n = strtoul(arg, &end, 10);

	if (arg[0] < '0' || arg[0] > '9' || *end != '\0' || n < 1 || n > SCENARIO_WORKERS)
		argp_error(state, "--workers %s: a number from 1 to %u is needed", arg, SCENARIO_WORKERS);
	return (uint32_t)n;
}

static int parse_views(const char *arg, const struct argp_state *state)
{
	if (strcmp(arg, "both") == 0)
		return 1 << VIEW_OWN | 1 << VIEW_SHARED;
	for (unsigned view = 0; view < VIEWS; view++)
		if (strcmp(arg, view_name(view)) == 0)
			return 1 << view;
	argp_error(state, "--views %s: shared, own or both is needed", arg);
	return 0;
}

static error_t parse_end(const struct rehearsal *rehearsal, const struct argp_state *state)
{
	if (rehearsal->list_figures && rehearsal->path != NULL)
		argp_error(state, "'%s': --list-figures needs no scenario", rehearsal->path);
	if (rehearsal->list_keys && rehearsal->path != NULL)
		argp_error(state, "'%s': --list-keys needs no scenario", rehearsal->path);
	if (rehearsal->path == NULL && !rehearsal->list_figures && !rehearsal->list_keys)
		argp_error(state, "which scenario?");
	if (rehearsal->check && rehearsal->report != NULL)
		argp_error(state, "--report and --check contradict each other: a report is of what was played");
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct rehearsal *rehearsal = state->input;

	switch (key) {
	case OPTION_CONFIG:
		rehearsal->options.config = arg;
		return 0;
	case OPTION_WORKERS:
		rehearsal->options.workers = parse_workers(arg, state);
		return 0;
	case OPTION_VIEWS:
		rehearsal->options.views = parse_views(arg, state);
		return 0;
	case OPTION_VARIANT:
		rehearsal->options.variant = arg;
		return 0;
	case OPTION_SHORT:
		rehearsal->options.brief = true;
		return 0;
	case OPTION_REPORT:
		rehearsal->report = arg;
		return 0;
	case OPTION_JSON:
		rehearsal->json = true;
		return 0;
	case OPTION_CHECK:
		rehearsal->check = true;
		return 0;
	case OPTION_LIST_FIGURES:
		rehearsal->list_figures = true;
		return 0;
	case OPTION_LIST_KEYS:
		rehearsal->list_keys = true;
		return 0;
	case OPTION_INSTANCE:
		argp_error(state, "--instance %s: a rehearsal has an instance of its own, and no other is touched", arg);
		return 0;
	case ARGP_KEY_ARG:
		if (rehearsal->path != NULL)
			argp_error(state, "'%s': one scenario at a time", arg);
		rehearsal->path = arg;
		return 0;
	case ARGP_KEY_END:
		return parse_end(rehearsal, state);
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- what is answered without playing ---- */

static int list_figures_json(const struct rehearsal *rehearsal)
{
	size_t count;
	const struct figure *figures = figures_all(&count);
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++) {
		const struct figure *f = &figures[i];
		json_t *item = json_pack("{s:s, s:s, s:s, s:b, s:b, s:b, s:s, s:s}", "name", f->name, "of", figure_of_name(f->of), "unit",
		                         figure_unit_name(f->unit), "time", f->takes_time, "nth", f->takes_nth, "width", f->takes_width,
		                         "text", f->text, "definition", f->definition);
		if (json_array_append_new(array, item) != 0) {
			json_decref(array);
			return print_json(rehearsal, NULL);
		}
	}
	return print_json(rehearsal, array);
}

static int list_figures(const struct rehearsal *rehearsal)
{
	static const struct column columns[] = {{"FIGURE", false, false, 0},
	                                        {"OF", false, false, 0},
	                                        {"UNIT", false, false, 0},
	                                        {"WITH", false, false, 1},
	                                        {"WHAT", false, true, 0}};
	size_t count;
	const struct figure *figures = figures_all(&count);

	if (rehearsal->json)
		return list_figures_json(rehearsal);
	struct table *table = table_new(&rehearsal->screen, columns, sizeof(columns) / sizeof(columns[0]));
	for (size_t i = 0; table != NULL && i < count; i++) {
		const struct figure *f = &figures[i];
		table_add(table, STYLE_STRONG, "%s", f->name);
		table_add(table, STYLE_PLAIN, "%s", figure_of_name(f->of));
		table_add(table, STYLE_PLAIN, "%s", figure_unit_name(f->unit));
		table_add(table, STYLE_PLAIN, "%s", f->takes_nth ? "nth" : f->takes_width ? "width" : "");
		table_add(table, STYLE_PLAIN, "%s: %s", f->text, f->definition);
	}
	bool complete = table != NULL && table_print(table, stdout);
	table_free(table);
	if (!complete)
		complain("out of memory");
	return complete ? EXIT_GOOD : EXIT_CANNOT_PLAY;
}

static int list_keys(void)
{
	scenario_print_keys(stdout);
	putchar('\n');
	scenario_print_figures(stdout);
	return EXIT_GOOD;
}

static size_t count_takes(const struct scenarios *scenarios, int64_t *length_ns)
{
	size_t takes = 0;

	*length_ns = 0;
	for (size_t i = 0; i < scenarios->count; i++) {
		for (unsigned view = 0; view < VIEWS; view++) {
			if (!scenarios->items[i].views[view])
				continue;
			*length_ns += scenarios->items[i].duration_ns;
			takes++;
		}
	}
	return takes;
}

/* "3 variants, 6 takes, 36s of playing" */
static void print_size(const struct rehearsal *rehearsal, FILE *out)
{
	int64_t length_ns;
	size_t variants = rehearsal->scenarios.count, takes = count_takes(&rehearsal->scenarios, &length_ns);

	if (variants > 1)
		fprintf(out, "%zu variants, ", variants);
	fprintf(out, "%zu take%s, %s of playing", takes, takes == 1 ? "" : "s", duration_text((uint64_t)(length_ns / 1000000)).s);
}

static int answer_check(const struct rehearsal *rehearsal, bool good, const struct config_problems *problems)
{
	char file[CONFIG_FILE_SHOWN];

	if (rehearsal->json) {
		int r = print_json(rehearsal,
		                   json_pack("{s:o, s:b, s:I, s:I, s:I, s:o}", "file", file_json(rehearsal->path), "ok", good, "variants",
		                             (json_int_t)rehearsal->scenarios.count, "errors", (json_int_t)problems->errors, "warnings",
		                             (json_int_t)problems->warnings, "problems", problems_json(problems)));
		return good ? r : EXIT_USAGE;
	}
	problems_print(&rehearsal->screen, stdout, rehearsal->path, problems);
	snprintf(file, sizeof(file), "%s", rehearsal->path);
	screen_clean(&rehearsal->screen, file);
	if (good) {
		printf("%s: ok: ", file);
		print_size(rehearsal, stdout);
	} else {
		printf("%s: %zu error%s", file, problems->errors, problems->errors == 1 ? "" : "s");
	}
	if (problems->warnings > 0)
		printf(", %zu warning%s", problems->warnings, problems->warnings == 1 ? "" : "s");
	putchar('\n');
	return good ? EXIT_GOOD : EXIT_USAGE;
}

/* ---- playing ---- */

#ifndef RESC_TEST_CLOCK

/* Before minutes are spent on it. Where there was no file, there is none until there is a report. */
static int check_report(const char *path)
{
	const int flags = O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY;
	int fd = open(path, flags | O_CREAT | O_EXCL, 0666);
	bool made = fd >= 0;

	if (fd < 0 && errno == EEXIST)
		fd = open(path, flags | O_CREAT, 0666);
	if (made)
		unlink(path);
	if (fd >= 0)
		return close(fd) == 0 ? EXIT_GOOD : EXIT_CANNOT_PLAY;
	complain("--report %s: it cannot be written: %s", path, strerror(errno));
	return EXIT_USAGE;
}

static int prepare(struct rehearsal *rehearsal)
{
	static const char *const places[] = {"rescd", "../../sbin/rescd", NULL};
	int64_t length_ns;

	rehearsal->takes = calloc(count_takes(&rehearsal->scenarios, &length_ns) + 1, sizeof(*rehearsal->takes));
	if (rehearsal->takes == NULL) {
		complain("out of memory");
		return EXIT_CANNOT_PLAY;
	}
	if (find_beside(places, rehearsal->rescd, sizeof(rehearsal->rescd)) != 0) {
		complain("the program rescd is neither beside resctl-rehearse nor in ../../sbin; install it with resctl");
		return EXIT_CANNOT_PLAY;
	}
	return rehearsal->report == NULL ? EXIT_GOOD : check_report(rehearsal->report);
}

static bool look(void *arg, const struct take *take, const char **stopped)
{
	struct rehearsal *rehearsal = arg;

	if (rehearsal->live != NULL)
		live_look(rehearsal->live, take);
	return game_day_look(&rehearsal->scenarios, take, stopped);
}

static int play_take(struct rehearsal *rehearsal, const struct scenario *scenario, enum view view)
{
	const struct stage_options stage = {.rescd = rehearsal->rescd, .look = look, .arg = rehearsal};
	struct take *take = &rehearsal->takes[rehearsal->take_count];

	if (rehearsal->live != NULL)
		live_begin(rehearsal->live, scenario, view);
	int r = stage_play(scenario, view, &stage, take);
	if (r < 0)
		return EXIT_CANNOT_PLAY;
	rehearsal->take_count++;
	if (rehearsal->live != NULL)
		live_end(rehearsal->live, take);
	return r > 0 ? EXIT_SIGNAL + r : EXIT_GOOD;
}

static int play(struct rehearsal *rehearsal)
{
	stage_sweep();
	for (size_t i = 0; i < rehearsal->scenarios.count; i++) {
		const struct scenario *scenario = &rehearsal->scenarios.items[i];
		for (unsigned view = 0; view < VIEWS; view++) {
			int r = scenario->views[view] ? play_take(rehearsal, scenario, view) : EXIT_GOOD;
			if (r != EXIT_GOOD)
				return r;
		}
	}
	return EXIT_GOOD;
}

static int write_report(const struct rehearsal *rehearsal, const struct outcome *outcome)
{
	char file[CONFIG_FILE_SHOWN];
	int r = report_write(rehearsal->report, &rehearsal->scenarios, rehearsal->takes, rehearsal->take_count, outcome);

	if (r != 0) {
		complain("the report %s could not be written: %s", rehearsal->report, strerror(-r));
		return EXIT_CANNOT_PLAY;
	}
	if (rehearsal->json)
		return EXIT_GOOD;
	snprintf(file, sizeof(file), "%s", rehearsal->report);
	screen_clean(&rehearsal->screen, file);
	printf("Report: %s\n", file);
	return EXIT_GOOD;
}

static int present(const struct rehearsal *rehearsal, const struct outcome *outcome)
{
	const struct scenarios *s = &rehearsal->scenarios;
	int r = EXIT_GOOD;

	if (rehearsal->json)
		r = print_json(rehearsal, result_json(s, rehearsal->takes, rehearsal->take_count, outcome));
	else
		print_result(&rehearsal->screen, stdout, s, rehearsal->takes, rehearsal->take_count, outcome);
	if (r == EXIT_GOOD && rehearsal->report != NULL)
		r = write_report(rehearsal, outcome);
	return r != EXIT_GOOD || outcome->good ? r : EXIT_NOT_SO;
}

/* Beside a document there is somebody to be told only on a terminal. */
static int begin_live(struct rehearsal *rehearsal)
{
	FILE *out = rehearsal->json ? stderr : stdout;

	screen_look_at(&rehearsal->live_screen, out);
	if (rehearsal->json && !rehearsal->live_screen.terminal)
		return EXIT_GOOD;
	print_head(&rehearsal->live_screen, out, &rehearsal->scenarios);
	print_size(rehearsal, out);
	fputc('\n', out);
	rehearsal->live = live_new(&rehearsal->live_screen, out);
	if (rehearsal->live != NULL)
		return EXIT_GOOD;
	complain("out of memory");
	return EXIT_CANNOT_PLAY;
}

static int judge(const struct rehearsal *rehearsal)
{
	struct outcome outcome;

	if (outcome_judge(&rehearsal->scenarios, rehearsal->takes, rehearsal->take_count, &outcome) != 0) {
		complain("out of memory");
		return EXIT_CANNOT_PLAY;
	}
	int r = present(rehearsal, &outcome);
	outcome_free(&outcome);
	return r;
}

/* Who has watched for a minute and stops it wants to see what came of that minute. */
static void tell_interrupted(const struct rehearsal *rehearsal, int number)
{
	const struct scenarios *s = &rehearsal->scenarios;
	int64_t length_ns;

	if (rehearsal->live != NULL)
		print_unfinished(&rehearsal->live_screen, rehearsal->json ? stderr : stdout, s, rehearsal->takes, rehearsal->take_count,
		                 count_takes(s, &length_ns));
	complain("ended by a signal: %s%s", strsignal(number), rehearsal->report != NULL ? "; no report is written" : "");
}

static int rehearse(struct rehearsal *rehearsal)
{
	int r = prepare(rehearsal);

	if (r == EXIT_GOOD)
		r = begin_live(rehearsal);
	if (r == EXIT_GOOD)
		r = play(rehearsal);
	if (r == EXIT_GOOD)
		r = judge(rehearsal);
	else if (r > EXIT_SIGNAL)
		tell_interrupted(rehearsal, r - EXIT_SIGNAL);
	live_free(rehearsal->live);
	for (size_t i = 0; i < rehearsal->take_count; i++)
		take_free(&rehearsal->takes[i]);
	free(rehearsal->takes);
	return r;
}

#else

/* Time stands still in here until somebody moves it, and a dependency that hangs hangs in real time. */
static int rehearse(struct rehearsal *rehearsal)
{
	(void)rehearsal;
	complain("this is a build with the test clock, which reads scenarios and cannot play them; a release build can");
	return EXIT_CANNOT_PLAY;
}

#endif

static int run(struct rehearsal *rehearsal)
{
	struct config_problems problems = {0};
	int r;

	if (rehearsal->list_keys)
		return list_keys();
	if (rehearsal->list_figures)
		return list_figures(rehearsal);
	bool good = scenarios_load(rehearsal->path, &rehearsal->options, &rehearsal->scenarios, &problems) == 0;
	if (rehearsal->check) {
		r = answer_check(rehearsal, good, &problems);
	} else {
		problems_print(&(struct screen){0}, stderr, rehearsal->path, &problems);
		r = good ? rehearse(rehearsal) : EXIT_USAGE;
	}
	config_problems_free(&problems);
	scenarios_free(&rehearsal->scenarios);
	return r;
}

int main(int argc, char **argv)
{
	const struct argp argp = {options, parse, "SCENARIO", doc, NULL, NULL, NULL};
	struct rehearsal rehearsal = {.path = NULL};

	streams_guard("resctl rehearse", EXIT_CANNOT_PLAY);
	setlocale(LC_CTYPE, "");
	screen_look(&rehearsal.screen);
	argp_program_version = "resctl rehearse " RESC_VERSION_STRING;
	argp_err_exit_status = EXIT_USAGE;
	setenv("ARGP_HELP_FMT", "no-dup-args-note", 0);
	if (argp_parse(&argp, argc, argv, 0, NULL, &rehearsal) != 0)
		return EXIT_USAGE;
	return run(&rehearsal);
}
