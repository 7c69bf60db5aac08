/* SPDX-License-Identifier: MIT */
/*
 * resctl list: the first thing that is typed at night. One line a resource, so that it can be read down and put through grep; what is
 * not normal has colour and a reason; below the table, what is true of the whole host.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "line.h"
#include "resctl.h"
#include "snapshot_json.h"
#include "split.h"
#include "why.h"

static const char doc[] = "Every resource of the instance in one line."
                          "\v"
                          "  STATE      closed; open; \"open, probe due\": the cooldown is over, the next\n"
                          "             call is a probe; half-open; \"(shadow)\" behind these: the breaker\n"
                          "             counts, and refuses nothing; no breaker; or the override: forced\n"
                          "             open, forced closed, disabled\n"
                          "  SINCE      how long it has been so\n"
                          "  IN FLIGHT  calls inside now / the bulkhead's limit\n"
                          "  WINDOW     failed / counted calls in the breaker's window\n"
                          "  REFUSED    calls refused since the segment was made, by any guard\n"
                          "  RETRY      tokens in the retry budget\n"
                          "  P99        of the latency of admitted calls since the segment was made\n"
                          "  WHY        what is injected, what decided it, what comes next, what the other guards do now,\n"
                          "             and which of them are in shadow mode\n"
                          "\n"
                          "On a terminal that is too narrow, columns are left out, and named below the\n"
                          "table. A pipe gets all of them. --json gives the document of resctl snapshot.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl list\n"
                          "  resctl list | grep -E 'open|forced|disabled'\n"
                          "  resctl --instance shop list";

static const struct column columns[] = {
        {"NAME", false, false, 0},     {"STATE", false, false, 0}, {"SINCE", true, false, 1},
        {"IN FLIGHT", true, false, 2}, {"WINDOW", true, false, 3}, {"REFUSED", true, false, 4},
        {"RETRY", true, false, 5},     {"P99", true, false, 6},    {"WHY", false, true, 0},
};

struct tally {
	unsigned all, open, half_open, forced, injected, shadow, made;
};

static void count_state(struct tally *tally, const struct inspect_resource *r)
{
	enum part_mode mode = part_mode_of(&r->policy, PART_BREAKER);

	tally->all++;
	tally->made += (r->policy.flags & POLICY_MADE) != 0;
	tally->injected += r->injection.on;
	if (r->override.mode != OVERRIDE_NONE)
		tally->forced++;
	else if (mode == PART_SHADOW)
		tally->shadow += r->breaker != TAG_CLOSED;
	else if (mode == PART_ENFORCE && r->breaker == TAG_OPEN)
		tally->open++;
	else if (mode == PART_ENFORCE && r->breaker == TAG_HALF_OPEN)
		tally->half_open++;
}

static void add_load(struct table *table, const struct inspect_resource *r)
{
	if (r->limited)
		table_add(table, r->in_flight >= r->limit ? STYLE_DOUBT : STYLE_PLAIN, "%u/%u", r->in_flight, r->limit);
	else
		table_add(table, STYLE_PLAIN, "%u", r->in_flight);
	if (r->window_calls > 0)
		table_add(table, STYLE_PLAIN, "%s/%s %4s", count_short(r->window_failures).s, count_short(r->window_calls).s,
		          percent_text(r->window_failures, r->window_calls).s);
	else
		table_add(table, STYLE_FAINT, "-");
	table_add(table, STYLE_PLAIN, "%s", count_short(r->counters.enters - r->counters.admitted).s);
}

static void add_row(struct table *table, const struct inspect_resource *r, const struct history *history)
{
	uint64_t since = r->override.mode != OVERRIDE_NONE ? r->override.set_ms : r->since_ms;

	table_add(table, STYLE_STRONG, "%s", r->name);
	table_add(table, state_style(r), "%s", state_words(r));
	if (part_mode_of(&r->policy, PART_BREAKER) == PART_OFF && r->override.mode == OVERRIDE_NONE)
		table_add(table, STYLE_FAINT, "-");
	else
		table_add(table, STYLE_PLAIN, "%s", duration_text(r->now_ms - since).s);
	add_load(table, r);
	if (r->budgeted)
		table_add(table, r->tokens < 1 ? STYLE_DOUBT : STYLE_PLAIN, "%s", number_text(r->tokens, 1).s);
	else
		table_add(table, STYLE_FAINT, "-");
	if (r->latency.count > 0)
		table_add(table, STYLE_PLAIN, "%s", latency_text(latency_quantile_us(&r->latency, 0.99)).s);
	else
		table_add(table, STYLE_FAINT, "-");
	table_add(table, why_style(r), "%s", why_words(r, history).s);
}

static void add_rows(const struct resctl *ctl, struct table *table, struct tally *tally)
{
	struct inspect_resource resource;
	struct history history;

	history_read(&history, &ctl->map, SIZE_MAX);
	for (uint32_t i = 0; i < resources_in_use(&ctl->map); i++) {
		if (inspect_resource(&ctl->map, i, &resource) != 0)
			continue;
		count_state(tally, &resource);
		add_row(table, &resource, &history);
	}
	history_free(&history);
}

/* ---- below the table ---- */

static void print_tally(const struct tally *t, const struct inspect_daemon *d, const char *instance)
{
	printf("%u resource%s in instance \"%s\"", t->all, plural(t->all), instance);
	if (t->made > 0)
		printf(", %u made from patterns", t->made);
	if (t->open > 0)
		printf(", %u open", t->open);
	if (t->half_open > 0)
		printf(", %u half-open", t->half_open);
	if (t->forced > 0)
		printf(", %u forced", t->forced);
	if (t->injected > 0)
		printf(", %u with injected faults", t->injected);
	if (t->shadow > 0)
		printf(", %u would be open (shadow)", t->shadow);
	printf("; %u worker%s attached", d->workers, plural(d->workers));
	if (d->workers_older > 0)
		printf(", %u with an older library than rescd", d->workers_older);
	putchar('\n');
}

static void print_faint(const struct screen *screen, const char *text)
{
	printf("%s%s%s\n", style_on(screen, STYLE_FAINT), text, style_off(screen, STYLE_FAINT));
}

static void print_daemon(const struct screen *screen, const struct inspect_daemon *d)
{
	enum style style = strcmp(daemon_status(d), "running") == 0 ? STYLE_PLAIN : STYLE_DOUBT;
	char problems[RELOAD_TEXT_SIZE];

	printf("%s%s%s\n", style_on(screen, style), daemon_words(d).s, style_off(screen, style));
	if (!d->reload_failed)
		return;
	snprintf(problems, sizeof(problems), "%s", d->reload_text);
	screen_clean(screen, problems);
	printf("%sthe last reload failed %s ago, the policies before it go on: %s%s\n", style_on(screen, STYLE_BAD),
	       duration_text(d->now_ms - d->reload_ms).s, problems, style_off(screen, STYLE_BAD));
}

/* Tables that are (nearly) full: what is refused then is not in any row above. */
static void print_room(const struct resctl *ctl, const struct inspect_daemon *d)
{
	struct once_usage once;

	inspect_once(&ctl->map, &once);
	uint32_t taken = once.working + once.done + once.unknown - once.expired;
	/* Sets of 16 fill up before the table does: see resc_once(3). */
	if (taken > once.size / 2)
		printf("%sidempotency keys: %u of %u places are taken; raise once_keys, or lower ttl%s\n",
		       style_on(&ctl->screen, STYLE_DOUBT), taken, once.size, style_off(&ctl->screen, STYLE_DOUBT));
	if (d->lookups_refused > 0)
		printf("%sno room for new names of a pattern: %s lookup%s refused so far; raise made%s\n",
		       style_on(&ctl->screen, STYLE_DOUBT), count_text(d->lookups_refused).s, plural(d->lookups_refused),
		       style_off(&ctl->screen, STYLE_DOUBT));
}

static int print_list(const struct resctl *ctl)
{
	struct table *table = table_new(&ctl->screen, columns, sizeof(columns) / sizeof(columns[0]));
	struct tally tally = {0};
	struct inspect_daemon daemon;
	bool complete = false;

	if (table != NULL) {
		add_rows(ctl, table, &tally);
		complete = table_print(table, stdout);
	}
	if (!complete) {
		table_free(table);
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	inspect_daemon(&ctl->map, &daemon);
	putchar('\n');
	print_tally(&tally, &daemon, ctl->map.instance);
	print_daemon(&ctl->screen, &daemon);
	print_room(ctl, &daemon);
	split_tell(ctl->map.instance);
	if (table_omitted(table)[0] != '\0') {
		char note[240];
		snprintf(note, sizeof(note), "not shown in %u columns: %s (all: resctl list | less -S)", ctl->screen.width,
		         table_omitted(table));
		print_faint(&ctl->screen, note);
	}
	table_free(table);
	return EXIT_DONE;
}

int cmd_list(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse_nothing, NULL, doc, NULL, NULL, NULL};

	command_parse(ctl, &argp, argc, argv, NULL);
	int r = attach(ctl, MAP_READER);
	if (r != 0)
		return r;
	return ctl->json ? print_snapshot(ctl) : print_list(ctl);
}
