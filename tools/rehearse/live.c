/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: whoever watches a rehearsal sees the outage as it comes, second by second, in the form in which the experiments are
 * published: what arrived, what it was turned into, and what it did to the dependency.
 *
 * A row tells of the requests that arrived in its time, so it is printed when they have ended; at latest a second later, and says then
 * how many have not. Columns are those that can occur in this scenario. The last one is cut to what is left of the line.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "present.h"
#include "telling.h"

#define GRACE_NS      INT64_C(1000000000)
#define COLUMNS_MOST  16u
#define BREAKERS_MOST 4u
#define LETTERS_MOST  16u /* beyond, workers are counted */
#define TITLE_SIZE    20u
#define NOTE_LEAST    14u
#define NOTE_WIDE     36u
#define NOTE_SIZE     200u

enum cell {
	CELL_TIME,
	CELL_OFFERED,
	CELL_SERVED,
	CELL_STORED,
	CELL_FALLBACK,
	CELL_FAILED,
	CELL_LATE,
	CELL_REJECTED,
	CELL_CALLS,
	CELL_PER_REQUEST,
	CELL_SHED,
	CELL_BREAKER,
	CELL_NOTE,
};

struct live {
	const struct screen *screen;
	FILE *out;
	const struct scenario *scenario;
	enum view view;
	int64_t width_ns, end_ns;
	size_t printed;  /* rows */
	uint32_t waited; /* requests before this one have ended, or their rows are printed */
	struct table *table;
	struct column columns[COLUMNS_MOST];
	enum cell cells[COLUMNS_MOST];
	size_t count;
	unsigned note_width; /* 0: no limit */
	bool explained;      /* the letters */
	unsigned breaker_count;
	uint16_t breakers[BREAKERS_MOST]; /* resources */
	char titles[BREAKERS_MOST][TITLE_SIZE];
};

struct live *live_new(const struct screen *screen, FILE *out)
{
	struct live *live = calloc(1, sizeof(*live));

	if (live == NULL)
		return NULL;
	live->screen = screen;
	live->out = out;
	return live;
}

/* ---- columns ---- */

static void add_column(struct live *live, enum cell cell, const char *title, bool right, unsigned given)
{
	if (live->count == COLUMNS_MOST)
		return;
	live->columns[live->count] = (struct column){title, right, false, given};
	live->cells[live->count++] = cell;
}

static void choose_breakers(struct live *live)
{
	const struct scenario *scenario = live->scenario;
	struct policy policy;

	live->breaker_count = 0;
	for (size_t i = 0; i < scenario->resource_count && live->breaker_count < BREAKERS_MOST; i++) {
		const char *name = scenario->resources[i];
		if (!scenario_policy(scenario, name, &policy) || part_mode_of(&policy, PART_BREAKER) == PART_OFF)
			continue;
		unsigned n = live->breaker_count++;
		live->breakers[n] = (uint16_t)i;
		snprintf(live->titles[n], TITLE_SIZE, "%.*s", (int)TITLE_SIZE - 1, name);
	}
	if (live->breaker_count == 1)
		snprintf(live->titles[0], TITLE_SIZE, live->view == VIEW_OWN ? "BREAKERS" : "BREAKER");
}

static bool can_shed(const struct scenario *scenario)
{
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		const struct dependency *d = &scenario->dependencies[i];
		if (d->capacity > 0 || d->accepts_per_second > 0)
			return true;
		for (size_t f = 0; f < d->fault_count; f++)
			if (d->faults[f].kind == FAULT_CAPACITY)
				return true;
	}
	return false;
}

static void choose_columns(struct live *live)
{
	const struct scenario *scenario = live->scenario;
	bool stored = false, fallback = false, late = false, calls = false;

	for (size_t i = 0; i < scenario->load_count; i++) {
		const struct load *load = &scenario->loads[i];
		stored |= load->keyed != KEYED_NOT;
		fallback |= load->fallback[0] != '\0';
		late |= load->patience_ns > 0;
		calls |= load->dependency >= 0;
	}
	live->count = 0;
	add_column(live, CELL_TIME, "TIME", true, 0);
	add_column(live, CELL_OFFERED, "OFFERED", true, 0);
	add_column(live, CELL_SERVED, "SERVED", true, 0);
	if (stored)
		add_column(live, CELL_STORED, "STORED", true, 0);
	if (fallback)
		add_column(live, CELL_FALLBACK, "FALLBACK", true, 0);
	add_column(live, CELL_FAILED, "FAILED", true, 0);
	if (late)
		add_column(live, CELL_LATE, "LATE", true, 0);
	if (scenario->backlog != UINT32_MAX)
		add_column(live, CELL_REJECTED, "REJECTED", true, 0);
	add_column(live, CELL_CALLS, calls ? "CALLS" : "ADMITTED", true, 1);
	add_column(live, CELL_PER_REQUEST, "PER REQUEST", true, 3);
	if (can_shed(scenario))
		add_column(live, CELL_SHED, "SHED", true, 2);
	for (unsigned i = 0; i < live->breaker_count; i++)
		add_column(live, CELL_BREAKER, live->titles[i], false, i == 0 ? 0 : 3 + i);
	add_column(live, CELL_NOTE, "", false, 0);
}

static unsigned letters_width(const struct live *live)
{
	if (live->view == VIEW_SHARED)
		return (unsigned)strlen("half-open");
	return live->scenario->workers <= LETTERS_MOST ? live->scenario->workers : (unsigned)strlen("256 open");
}

/* The note gets what the line has left, and at least so much that it is worth reading: then the table gives other columns up. */
static void set_widths(struct live *live)
{
	unsigned used = 0;

	for (size_t i = 0; i + 1 < live->count; i++) {
		unsigned width = (unsigned)strlen(live->columns[i].title);
		if (live->cells[i] == CELL_BREAKER && letters_width(live) > width)
			width = letters_width(live);
		table_widen(live->table, i, width);
		used += width + 2;
	}
	live->note_width = NOTE_LEAST;
	if (live->screen->width > used + NOTE_LEAST)
		live->note_width = live->screen->width - used;
	if (live->screen->width == 0)
		live->note_width = NOTE_SIZE;
	else
		table_widen(live->table, live->count - 1, live->note_width);
}

void live_begin(struct live *live, const struct scenario *scenario, enum view view)
{
	char words[160];

	live->scenario = scenario;
	live->view = view;
	live->width_ns = row_width(scenario->duration_ns);
	live->end_ns = scenario->duration_ns;
	live->printed = 0;
	live->waited = 0;
	choose_breakers(live);
	choose_columns(live);
	table_free(live->table);
	live->table = table_new(live->screen, live->columns, live->count);
	if (live->table != NULL)
		set_widths(live);
	snprintf(words, sizeof(words), "%s%s%s", scenario->variant, scenario->variant[0] != '\0' ? ", " : "", view_words(view));
	screen_clean(live->screen, words);
	fprintf(live->out, "\n%s%s%s: %" PRIu32 " worker%s", style_on(live->screen, STYLE_STRONG), words,
	        style_off(live->screen, STYLE_STRONG), scenario->workers, scenario->workers == 1 ? "" : "s");
	if (scenario->threads > 1)
		fprintf(live->out, " of %" PRIu32 " threads", scenario->threads);
	fprintf(live->out, ", %s\n", duration_text((uint64_t)(scenario->duration_ns / 1000000)).s);
	if (!live->explained && live->breaker_count > 0 && view == VIEW_OWN && scenario->workers <= LETTERS_MOST) {
		fputs("(a breaker each: . closed, h half-open, O open)\n", live->out);
		live->explained = true;
	}
	fflush(live->out);
}

/* ---- a row ---- */

/* The newest look at each worker's breaker of a resource before that time: states[worker]. */
static void states_at(const struct take *take, uint16_t resource, int64_t at_ns, uint8_t *states, unsigned count)
{
	unsigned found = 0;

	memset(states, UINT8_MAX, count);
	for (size_t i = take->sample_count; i-- > 0 && found < count;) {
		const struct sample *s = &take->samples[i];
		if (s->at_ns > at_ns || s->resource != resource || s->worker >= count || states[s->worker] != UINT8_MAX)
			continue;
		states[s->worker] = s->breaker;
		found++;
	}
}

static void add_breaker(struct live *live, const struct take *take, uint16_t resource, int64_t at_ns)
{
	uint8_t states[SCENARIO_WORKERS];
	unsigned count = live->view == VIEW_OWN ? live->scenario->workers : 1, open = 0;
	char letters[LETTERS_MOST + 1];

	states_at(take, resource, at_ns, states, count);
	for (unsigned i = 0; i < count; i++)
		open += states[i] == RESC_BREAKER_OPEN;
	enum style style = open > 0 ? STYLE_BAD : STYLE_PLAIN;
	if (live->view == VIEW_SHARED) {
		style = states[0] == RESC_HALF_OPEN ? STYLE_DOUBT : style;
		table_add(live->table, style, "%s", states[0] == UINT8_MAX ? "?" : breaker_state_word(states[0]));
		return;
	}
	if (count > LETTERS_MOST) {
		table_add(live->table, style, "%u open", open);
		return;
	}
	for (unsigned i = 0; i < count; i++)
		letters[i] = states[i] == RESC_BREAKER_OPEN ? 'O'
		             : states[i] == RESC_HALF_OPEN  ? 'h'
		             : states[i] == RESC_CLOSED     ? '.'
		                                            : '?';
	letters[count] = '\0';
	table_add(live->table, style, "%s", letters);
}

static void add_note(struct live *live, const struct second *s, int64_t from_ns)
{
	char note[NOTE_SIZE];
	size_t used;
	bool refused = false;

	bool brief = live->note_width <= NOTE_WIDE;
	trouble_words(live->scenario, from_ns, from_ns + live->width_ns, brief, note, sizeof(note) / 2);
	used = strlen(note);
	for (int i = 1; i < (int)(sizeof(s->refused) / sizeof(s->refused[0])) && used < sizeof(note); i++) {
		if (s->refused[i] == 0)
			continue;
		const char *before = refused ? ", " : used > 0 ? "; " : "";
		/* Where there is little room, the reason has to do. */
		if (!refused && !brief)
			before = used > 0 ? "; refused: " : "refused: ";
		used += (size_t)snprintf(note + used, sizeof(note) - used, "%s%" PRIu32 " %s", before, s->refused[i], refusal_word(i).s);
		refused = true;
	}
	if (s->served[SERVED_NOT_YET] > 0 && used < sizeof(note))
		snprintf(note + used, sizeof(note) - used, "%s%" PRIu32 " not ended", used > 0 ? "; " : "", s->served[SERVED_NOT_YET]);
	if (strlen(note) > live->note_width)
		snprintf(note + live->note_width - 2, 3, "..");
	table_add(live->table, STYLE_PLAIN, "%s", note);
}

static void add_count(struct live *live, uint32_t n, enum style style)
{
	table_add(live->table, n > 0 ? style : STYLE_PLAIN, "%s", count_text(n).s);
}

static void add_per_request(struct live *live, const struct second *s)
{
	if (s->offered == 0)
		table_add(live->table, STYLE_PLAIN, "-");
	else
		table_add(live->table, s->attempts > 2 * s->offered ? STYLE_BAD : STYLE_PLAIN, "%.2f", (double)s->attempts / s->offered);
}

/* The last row may be a short one. */
static int64_t row_end(const struct live *live, int64_t from_ns)
{
	int64_t end = from_ns + live->width_ns;

	return end < live->end_ns ? end : live->end_ns;
}

static void add_row(struct live *live, const struct take *take, const struct second *s, int64_t from_ns)
{
	unsigned breaker = 0;

	for (size_t i = 0; i < live->count; i++) {
		switch (live->cells[i]) {
		case CELL_TIME:
			table_add(live->table, STYLE_PLAIN, "%ss", number_text((double)row_end(live, from_ns) / 1e9, 2).s);
			break;
		case CELL_OFFERED:
			add_count(live, s->offered, STYLE_PLAIN);
			break;
		case CELL_SERVED:
			add_count(live, s->served[SERVED_FRESH], STYLE_PLAIN);
			break;
		case CELL_STORED:
			add_count(live, s->served[SERVED_STORED], STYLE_PLAIN);
			break;
		case CELL_FALLBACK:
			add_count(live, s->served[SERVED_FALLBACK], STYLE_DOUBT);
			break;
		case CELL_FAILED:
			add_count(live, s->served[SERVED_FAILED], STYLE_BAD);
			break;
		case CELL_LATE:
			add_count(live, s->served[SERVED_LATE], STYLE_BAD);
			break;
		case CELL_REJECTED:
			add_count(live, s->served[SERVED_REJECTED], STYLE_BAD);
			break;
		case CELL_CALLS:
			add_count(live, s->attempts, STYLE_PLAIN);
			break;
		case CELL_PER_REQUEST:
			add_per_request(live, s);
			break;
		case CELL_SHED:
			add_count(live, s->shed, STYLE_BAD);
			break;
		case CELL_BREAKER:
			add_breaker(live, take, live->breakers[breaker++], from_ns + live->width_ns);
			break;
		case CELL_NOTE:
			add_note(live, s, from_ns);
			break;
		}
	}
}

/* ---- while it is played ---- */

static void print_rows(struct live *live, const struct take *take, size_t until)
{
	size_t count;
	struct second *seconds = take_seconds(take, -1, live->width_ns, &count);

	for (; seconds != NULL && live->table != NULL && live->printed < until && live->printed < count; live->printed++) {
		struct second *s = &seconds[live->printed];
		/* One client in a loop: what it has not come to yet has not arrived. */
		if (live->scenario->order == ORDER_SINGLE) {
			s->offered -= s->served[SERVED_NOT_YET];
			s->served[SERVED_NOT_YET] = 0;
		}
		add_row(live, take, s, (int64_t)live->printed * live->width_ns);
	}
	free(seconds);
	if (live->table != NULL)
		table_print(live->table, live->out);
	fflush(live->out);
}

/* Whether all requests that arrived before that time have ended. Acquire: the note is complete. */
static bool all_ended(struct live *live, const struct board *board, int64_t before_ns)
{
	for (; live->waited < board->request_count && board->requests[live->waited].arrival_ns < before_ns; live->waited++)
		if (atomic_load_explicit(&board->requests[live->waited].done, memory_order_acquire) == 0)
			return false;
	return true;
}

void live_look(struct live *live, const struct take *take)
{
	int64_t now = board_now(take->board);
	size_t until = live->printed;

	for (;;) {
		int64_t end = (int64_t)(until + 1) * live->width_ns;
		if (end > now || end > live->scenario->duration_ns || (!all_ended(live, take->board, end) && now < end + GRACE_NS))
			break;
		until++;
	}
	if (until > live->printed)
		print_rows(live, take, until);
}

void live_end(struct live *live, const struct take *take)
{
	char why[400];

	live->end_ns = take->duration_ns;
	print_rows(live, take, SIZE_MAX);
	if (live->table != NULL && table_omitted(live->table)[0] != '\0')
		fprintf(live->out, "(left out for want of room: %s)\n", table_omitted(live->table));
	if (take->stopped != NULL) {
		snprintf(why, sizeof(why), "stopped after %ss: %s", number_text((double)take->duration_ns / 1e9, 1).s, take->stopped);
		fputs(style_on(live->screen, STYLE_BAD), live->out);
		put_wrapped(live->screen, live->out, 0, why);
		fputs(style_off(live->screen, STYLE_BAD), live->out);
	}
	fflush(live->out);
}

void live_free(struct live *live)
{
	if (live == NULL)
		return;
	table_free(live->table);
	free(live);
}
