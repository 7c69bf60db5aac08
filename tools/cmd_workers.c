/* SPDX-License-Identifier: MIT */
/*
 * resctl workers: who is attached, and who sits on what. Alive is what the kernel says of the worker's liveness token, so it is true for
 * workers in other pid namespaces too, whose pid means nothing here.
 */
#include <inttypes.h>

#include "clock.h"
#include "format.h"
#include "layout.h"
#include "resctl.h"
#include "roster.h"
#include "snapshot_json.h"

static const char doc[] = "The worker processes that are attached to the instance."
                          "\v"
                          "  WORKER   the number of its life in this segment; never used twice\n"
                          "  PID      of the process; in its own pid namespace where PLACE is elsewhere\n"
                          "  PERMITS  calls that it has in flight now, over all resources\n"
                          "  PROBES   trial calls of half-open breakers that it has in flight\n"
                          "  ALIVE    whether it holds its liveness token; the dead are reaped by rescd,\n"
                          "           or by the next worker that they hinder\n"
                          "  VERSION  of its library, and the newest segment format that it knows\n"
                          "\n"
                          "Examples:\n"
                          "  resctl workers\n"
                          "  resctl workers --json | jq '.[] | select(.permits > 0)'";

static const struct column columns[] = {
        {"WORKER", true, false, 0}, {"PID", true, false, 0},      {"NAME", false, false, 0},
        {"AGE", true, false, 0},    {"PERMITS", true, false, 0},  {"PROBES", true, false, 0},
        {"ALIVE", false, false, 0}, {"VERSION", false, false, 0}, {"PLACE", false, false, 1},
};

/* Those that are too old to say it, and those that register just now. */
static void add_version(struct table *table, const struct roster_worker *worker)
{
	const struct layout_version_text text = layout_version_text(worker->seen.version);

	if (worker->seen.version == 0)
		table_add(table, STYLE_FAINT, "%s", worker->seen.pid > 0 ? "older" : "?");
	else
		table_add(table, STYLE_PLAIN, "%s (%s)", text.library, text.format);
}

static void add_row(struct table *table, const struct roster_worker *worker, uint64_t now_ms)
{
	const struct inspect_worker *w = &worker->seen;
	bool known = w->pid > 0;

	table_add(table, STYLE_PLAIN, "%" PRIu32, w->life);
	table_add(table, STYLE_PLAIN, known ? "%d" : "?", (int)w->pid);
	table_add(table, STYLE_STRONG, "%s", known ? w->name : "?");
	table_add(table, STYLE_PLAIN, "%s", known && now_ms >= w->registered_ms ? duration_text(now_ms - w->registered_ms).s : "?");
	table_add(table, STYLE_PLAIN, "%" PRIu64, worker->permits);
	table_add(table, STYLE_PLAIN, "%" PRIu64, worker->probes);
	table_add(table, w->alive ? STYLE_PLAIN : STYLE_BAD, "%s", w->alive ? "yes" : "dead");
	add_version(table, worker);
	if (!known || w->same_namespace)
		table_add(table, STYLE_FAINT, "%s", known ? "here" : "registering");
	else
		table_add(table, STYLE_FAINT, "elsewhere (pid namespace %" PRIu64 ")", w->pid_namespace);
}

static void take_all(struct roster *roster, const struct map *map)
{
	struct inspect_resource resource;

	for (uint32_t i = 0; i < resources_in_use(map); i++)
		if (inspect_resource(map, i, &resource) == 0)
			roster_take(roster, map, &resource);
}

static bool print_table(const struct resctl *ctl, const struct roster *roster)
{
	struct table *table = table_new(&ctl->screen, columns, sizeof(columns) / sizeof(columns[0]));
	uint64_t now_ms = clock_coarse_ms(&ctl->map);
	bool complete;

	if (table == NULL)
		return false;
	for (size_t i = 0; i < roster->count; i++)
		add_row(table, &roster->workers[i], now_ms);
	complete = table_print(table, stdout);
	table_free(table);
	return complete;
}

static int print_workers(const struct resctl *ctl)
{
	struct roster roster;
	size_t dead = 0;
	bool complete;

	if (roster_open(&roster, &ctl->map) != 0) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	take_all(&roster, &ctl->map);
	complete = print_table(ctl, &roster);
	for (size_t i = 0; i < roster.count; i++)
		dead += !roster.workers[i].seen.alive;
	printf("\n%zu worker%s attached to instance \"%s\", of %" PRIu32 " that it has room for", roster.count,
	       roster.count == 1 ? "" : "s", ctl->map.instance, ctl->map.dims.workers);
	if (dead > 0)
		printf("; %zu of them dead and not reaped yet", dead);
	putchar('\n');
	roster_close(&roster);
	if (!complete)
		complain("out of memory");
	return complete ? EXIT_DONE : EXIT_NOT_SO;
}

int cmd_workers(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse_nothing, NULL, doc, NULL, NULL, NULL};

	command_parse(ctl, &argp, argc, argv, NULL);
	int r = attach(ctl, MAP_READER);
	if (r != 0)
		return r;
	return ctl->json ? print_json(ctl, workers_json(&ctl->map)) : print_workers(ctl);
}
