/* SPDX-License-Identifier: MIT */
/*
 * resctl events: what happened, in the order in which it happened. Reading the ring holds nobody up; --follow reads on, also into the
 * segment that replaces this one, and says so when the ring was overwritten faster than it could be read.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "attach.h"
#include "clock.h"
#include "format.h"
#include "override.h"
#include "resctl.h"
#include "snapshot_json.h"
#include "wall.h"
#include "why.h"

#define LAST_DEFAULT 20u
#define POLL_MS      100
#define LOOK_EVERY   10u /* polls between two looks at the name of the instance */

enum { OPTION_FOLLOW = 'f', OPTION_LAST = 'n', OPTION_RESOURCE = 'r' };

static const char doc[] = "What happened lately: transitions, overrides, injections, resets, reloads, deaths of workers. Oldest first."
                          "\v"
                          "The ring holds about the last thousand events. --json gives one JSON object a line, also with --follow.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl events --last 5\n"
                          "  resctl events --resource payments --follow\n"
                          "  resctl events --json | jq -r 'select(.to == \"open\") | [.time, .why] | @tsv'";

static const struct argp_option options[] = {
        {"follow", OPTION_FOLLOW, NULL, 0, "go on with what happens from now on, until interrupted", 0},
        {"last", OPTION_LAST, "N", 0, "so many of the events so far (default 20; 0: none)", 0},
        {"resource", OPTION_RESOURCE, "NAME", 0, "only those of this resource", 0},
        {0},
};

struct events {
	struct resctl *ctl;
	bool follow;
	size_t last;
	const char *resource;
	struct table *table;
	uint64_t after; /* the number of the newest that was read */
	struct event *read;
	size_t room;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct events *events = state->input;
	char *end;

	switch (key) {
	case OPTION_FOLLOW:
		events->follow = true;
		return 0;
	case OPTION_RESOURCE:
		events->resource = arg;
		return 0;
	case OPTION_LAST:
		events->last = strtoul(arg, &end, 10);
		if (arg[0] < '0' || arg[0] > '9' || *end != '\0')
			argp_error(state, "--last %s: a number is needed", arg);
		return 0;
	default:
		return parse_nothing(key, arg, state);
	}
}

/* ---- one event in words ---- */

static const struct column columns[] = {
        {"TIME", false, false, 0}, {"AGE", true, false, 2},   {"RESOURCE", false, false, 0}, {"WHAT", false, false, 0},
        {"PID", true, false, 1},   {"USER", false, false, 3}, {"WHY", false, true, 0},
};

#define COLUMN_WHAT 3

static struct words what_words(const struct event *event)
{
	const struct injection what = injection_of_event(event);
	struct words w;

	switch (event->kind) {
	case EVENT_BREAKER:
		if (event->from == TAG_EMPTY)
			snprintf(w.s, sizeof(w.s), "-> %s", breaker_words(event->to));
		else if (event->from == event->to)
			snprintf(w.s, sizeof(w.s), "%s, fresh window", breaker_words(event->to));
		else
			snprintf(w.s, sizeof(w.s), "%s -> %s", breaker_words(event->from), breaker_words(event->to));
		break;
	case EVENT_FORCED:
		snprintf(w.s, sizeof(w.s), "%s", override_words((enum override_mode)(event->value[1] & 3)));
		break;
	case EVENT_RELEASED:
		snprintf(w.s, sizeof(w.s), "override released");
		break;
	case EVENT_EXPIRED:
		snprintf(w.s, sizeof(w.s), "override expired");
		break;
	case EVENT_INJECTED:
		snprintf(w.s, sizeof(w.s), "injected: %s", injection_words(&what).s);
		break;
	case EVENT_INJECTION_ENDED:
		snprintf(w.s, sizeof(w.s), "injection %s", injection_end_name((enum injection_end)event->value[1]));
		break;
	case EVENT_REAPED:
		snprintf(w.s, sizeof(w.s), "worker reaped");
		break;
	case EVENT_RELOAD_FAILED:
		snprintf(w.s, sizeof(w.s), "reload failed");
		break;
	case EVENT_DAEMON_START:
		snprintf(w.s, sizeof(w.s), "rescd started");
		break;
	case EVENT_DAEMON_STOP:
		snprintf(w.s, sizeof(w.s), "rescd stopped");
		break;
	case EVENT_SUPERSEDED:
		snprintf(w.s, sizeof(w.s), "segment replaced");
		break;
	default:
		snprintf(w.s, sizeof(w.s), "%s", event_kind_name(event->kind));
		break;
	}
	return w;
}

static enum style what_style(const struct event *event)
{
	if (event->kind == EVENT_BREAKER)
		return event->to == TAG_OPEN ? STYLE_BAD : event->to == TAG_HALF_OPEN ? STYLE_DOUBT : STYLE_PLAIN;
	if (event->kind == EVENT_RELOAD_FAILED || event->kind == EVENT_FORCED || event->kind == EVENT_INJECTED)
		return STYLE_BAD;
	return STYLE_PLAIN;
}

static struct words event_why(const struct event *event)
{
	struct words w = {""};

	switch (event->kind) {
	case EVENT_BREAKER:
		return event->reason == REASON_NONE ? w : reason_words(event->reason, event);
	case EVENT_FORCED:
		snprintf(w.s, sizeof(w.s), "%s%s: %s", event->value[0] != 0 ? "for " : "until released",
		         event->value[0] != 0 ? duration_setting(event->value[0]).s : "", event->text);
		return w;
	case EVENT_INJECTED:
		snprintf(w.s, sizeof(w.s), "for %s: %s", duration_setting(event->value[1]).s, event->text);
		return w;
	case EVENT_REAPED:
		snprintf(w.s, sizeof(w.s), "worker %" PRIu64 " (pid %" PRIu64 ") died%s%s", event->value[0], event->value[1],
		         event->text[0] != '\0' ? ": " : "", event->text);
		return w;
	default:
		snprintf(w.s, sizeof(w.s), "%s", event->text);
		return w;
	}
}

/* The date is left out where it is today's and room is scarce. */
static struct text time_words(const struct screen *screen, uint64_t real_ns)
{
	struct text t = time_local(real_ns);

	if (screen->width != 0 && screen->width < 110 && is_today(real_ns))
		memmove(t.s, strchr(t.s, ' ') + 1, strlen(strchr(t.s, ' ')));
	return t;
}

static void add_row(const struct events *events, const struct event *event, uint64_t now_ms)
{
	const struct map *map = &events->ctl->map;
	struct table *table = events->table;

	table_add(table, STYLE_PLAIN, "%s", time_words(&events->ctl->screen, wall_clock_ns(map, event->ms)).s);
	table_add(table, STYLE_FAINT, "%s", duration_text(now_ms > event->ms ? now_ms - event->ms : 0).s);
	table_add(table, STYLE_STRONG, "%s", event->resource[0] != '\0' ? event->resource : "-");
	table_add(table, what_style(event), "%s", what_words(event).s);
	table_add(table, STYLE_PLAIN, "%d", (int)event->pid);
	table_add(table, STYLE_PLAIN, "%s", user_text(event->uid).s);
	table_add(table, STYLE_PLAIN, "%s", event_why(event).s);
}

/* ---- printing ---- */

static bool is_wanted(const struct events *events, const struct event *event)
{
	return events->resource == NULL || strcmp(events->resource, event->resource) == 0;
}

static int print_line(const struct resctl *ctl, const struct event *event)
{
	json_t *json = event_json(&ctl->map, event);

	if (json == NULL) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	/* One line each, on a terminal too: that is what reads it. */
	int r = json_dumpf(json, stdout, SNAPSHOT_JSON_FLAGS | JSON_COMPACT);
	json_decref(json);
	return r == 0 && putchar('\n') != EOF ? EXIT_DONE : EXIT_NOT_SO;
}

/* Prints the wanted ones of events->read[0..count), at most the newest `most` of them. */
static int print_some(const struct events *events, size_t count, size_t most)
{
	uint64_t now_ms = clock_coarse_ms(&events->ctl->map);
	size_t wanted = 0, passed = 0;
	int r = EXIT_DONE;

	for (size_t i = 0; i < count; i++)
		wanted += is_wanted(events, &events->read[i]);
	for (size_t i = 0; i < count && r == EXIT_DONE; i++) {
		const struct event *event = &events->read[i];
		if (!is_wanted(events, event) || passed++ + most < wanted)
			continue;
		if (events->ctl->json)
			r = print_line(events->ctl, event);
		else
			add_row(events, event, now_ms);
	}
	if (!events->ctl->json && !table_print(events->table, stdout)) {
		complain("out of memory");
		r = EXIT_NOT_SO;
	}
	return fflush(stdout) == 0 ? r : EXIT_NOT_SO;
}

static size_t read_new(struct events *events)
{
	size_t count = event_read(&events->ctl->map, events->after, events->read, events->room);

	if (count > 0)
		events->after = events->read[count - 1].number;
	return count;
}

static bool make_room(struct events *events)
{
	size_t room = events->ctl->map.dims.events;

	if (room <= events->room)
		return true;
	free(events->read);
	events->read = calloc(room, sizeof(*events->read));
	events->room = events->read == NULL ? 0 : room;
	return events->read != NULL;
}

/* ---- following ---- */

/* Goes over to the segment that is current now. Where there is none, this one is read on. */
static void move_on(struct events *events)
{
	uint64_t before = events->ctl->map.generation;
	struct map map;

	if (open_current(&map, events->ctl->instance, MAP_READER, NULL) != 0)
		return;
	if (map.generation == before) {
		map_close(&map);
		return;
	}
	/* A successor has the events of the one before, with their numbers; any other segment begins anew. */
	if (map.predecessor != before)
		events->after = 0;
	detach(events->ctl);
	events->ctl->map = map;
	events->ctl->attached = true;
}

static void tell_gap(const struct events *events, uint64_t before, size_t count)
{
	if (count == events->room && before != 0 && events->read[0].number > before + 1)
		complain("%" PRIu64 " events were overwritten before they could be read", events->read[0].number - before - 1);
}

static int follow(struct events *events)
{
	const struct timespec pause = {0, POLL_MS * 1000000L};

	for (unsigned turn = 1;; turn++) {
		nanosleep(&pause, NULL);
		if (turn % LOOK_EVERY == 0 && is_outdated(events->ctl))
			move_on(events);
		if (!make_room(events)) {
			complain("out of memory");
			return EXIT_NOT_SO;
		}
		uint64_t before = events->after;
		size_t count = read_new(events);
		if (count == 0)
			continue;
		tell_gap(events, before, count);
		int r = print_some(events, count, SIZE_MAX / 2);
		if (r != EXIT_DONE)
			return r;
	}
}

/* A resource may have been removed from the configuration and still have events: then they are shown, and nothing is missing. */
static int check_resource(const struct events *events, size_t count)
{
	if (events->resource == NULL)
		return EXIT_DONE;
	for (size_t i = 0; i < count; i++)
		if (is_wanted(events, &events->read[i]))
			return EXIT_DONE;
	return find_resource(events->ctl, events->resource) >= 0 ? EXIT_DONE : EXIT_NOT_SO;
}

static int print_events(struct events *events)
{
	size_t count = read_new(events);
	int r = check_resource(events, count);

	/* What is still to come should stand below what is there. */
	if (events->follow)
		table_widen(events->table, COLUMN_WHAT, (unsigned)strlen("half-open -> closed"));
	if (r == EXIT_DONE)
		r = print_some(events, count, events->last);
	return r == EXIT_DONE && events->follow ? follow(events) : r;
}

int cmd_events(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	struct events events = {.ctl = ctl, .last = LAST_DEFAULT};

	command_parse(ctl, &argp, argc, argv, &events);
	int r = attach(ctl, MAP_READER);
	if (r != 0)
		return r;
	events.table = table_new(&ctl->screen, columns, sizeof(columns) / sizeof(columns[0]));
	if (events.table == NULL || !make_room(&events)) {
		complain("out of memory");
		r = EXIT_NOT_SO;
	} else {
		r = print_events(&events);
	}
	table_free(events.table);
	free(events.read);
	return r;
}
