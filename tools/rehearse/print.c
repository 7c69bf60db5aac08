/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the answer. First what happened, a line for each take; then what was expected and what came of it, the published figure
 * beside the own one; then what the shared view changed, and a game day's three questions. Last the one sentence that is remembered.
 *
 * What to count is a table of its own, because the published post-mortems missed it: attempts per request, retries per second, refusals
 * by reason, fallbacks used, the time that each breaker spent open.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "present.h"
#include "telling.h"

struct printing {
	const struct screen *screen;
	FILE *out;
	const struct scenarios *scenarios;
	const struct take *takes;
	size_t take_count;
	const struct outcome *outcome;
};

static void put_title(const struct printing *p, const char *title)
{
	fprintf(p->out, "\n%s", style_on(p->screen, STYLE_STRONG));
	put_wrapped(p->screen, p->out, 0, title);
	fputs(style_off(p->screen, STYLE_STRONG), p->out);
}

static void put_table(const struct printing *p, struct table *table)
{
	if (table == NULL || !table_print(table, p->out))
		fprintf(stderr, "resctl rehearse: out of memory: a table is not complete\n");
	else if (table_omitted(table)[0] != '\0')
		fprintf(p->out, "(left out for want of room: %s)\n", table_omitted(table));
	table_free(table);
}

void print_head(const struct screen *screen, FILE *out, const struct scenarios *scenarios)
{
	const struct scenario *first = &scenarios->items[0];
	char title[200];

	snprintf(title, sizeof(title), "%s%s%s", first->experiment, first->experiment[0] != '\0' ? ": " : "", first->title);
	fputs(style_on(screen, STYLE_STRONG), out);
	put_wrapped(screen, out, 0, title);
	fputs(style_off(screen, STYLE_STRONG), out);
	if (first->about != NULL)
		put_wrapped(screen, out, 0, first->about);
}

/* ---- what happened ---- */

/* Columns of the totals; those that are always there first. */
static const struct {
	const char *figure;
	const char *title;
	enum figure_unit unit;
	bool always;
	enum style style; /* where it is not 0 */
	unsigned given;   /* what became of the requests: never */
} totals[] = {
        {"offered", "OFFERED", UNIT_COUNT, true, STYLE_PLAIN, 0},    {"served", "SERVED", UNIT_COUNT, true, STYLE_PLAIN, 0},
        {"stored", "STORED", UNIT_COUNT, false, STYLE_PLAIN, 0},     {"fallback", "FALLBACK", UNIT_COUNT, false, STYLE_DOUBT, 0},
        {"failed", "FAILED", UNIT_COUNT, true, STYLE_BAD, 0},        {"late", "LATE", UNIT_COUNT, false, STYLE_BAD, 0},
        {"rejected", "REJECTED", UNIT_COUNT, false, STYLE_BAD, 0},   {"unfinished", "NOT ENDED", UNIT_COUNT, false, STYLE_DOUBT, 2},
        {"attempts", "CALLS", UNIT_COUNT, true, STYLE_PLAIN, 1},     {"refused", "REFUSED", UNIT_COUNT, false, STYLE_PLAIN, 2},
        {"received", "RECEIVED", UNIT_COUNT, false, STYLE_PLAIN, 3}, {"shed", "SHED", UNIT_COUNT, false, STYLE_BAD, 3},
        {"latency_p50", "P50", UNIT_MS, true, STYLE_PLAIN, 5},       {"latency_p99", "P99", UNIT_MS, true, STYLE_PLAIN, 4},
};
#define TOTALS (sizeof(totals) / sizeof(totals[0]))

static bool occurs(const struct printing *p, const char *figure)
{
	for (size_t i = 0; i < p->take_count; i++)
		if (whole_figure(&p->takes[i], figure, "") > 0)
			return true;
	return false;
}

/* "own", and of a take that was stopped: "own, 2.3s of 6s". */
static void add_view(struct table *table, const struct take *take)
{
	const char *view = view_name(take->view);

	if (take->duration_ns >= take->scenario->duration_ns)
		table_add(table, STYLE_PLAIN, "%s", view);
	else
		table_add(table, STYLE_DOUBT, "%s, %s of %s", view, duration_text((uint64_t)(take->duration_ns / 1000000)).s,
		          duration_text((uint64_t)(take->scenario->duration_ns / 1000000)).s);
}

static bool has_variants(const struct printing *p)
{
	return p->scenarios->count > 1 || p->scenarios->items[0].variant[0] != '\0';
}

static void print_totals(const struct printing *p, const char *title)
{
	struct column columns[TOTALS + 2];
	size_t chosen[TOTALS], count = 0, names = 0;

	if (has_variants(p))
		columns[names++] = (struct column){"VARIANT", false, false, 0};
	columns[names++] = (struct column){"VIEW", false, false, 0};
	for (size_t i = 0; i < TOTALS; i++) {
		if (!totals[i].always && !occurs(p, totals[i].figure))
			continue;
		columns[names + count] = (struct column){totals[i].title, true, false, totals[i].given};
		chosen[count++] = i;
	}
	struct table *table = table_new(p->screen, columns, names + count);
	for (size_t t = 0; table != NULL && t < p->take_count; t++) {
		if (has_variants(p))
			table_add(table, STYLE_PLAIN, "%s", p->takes[t].scenario->variant);
		add_view(table, &p->takes[t]);
		for (size_t i = 0; i < count; i++) {
			double value = whole_figure(&p->takes[t], totals[chosen[i]].figure, "");
			table_add(table, value > 0 ? totals[chosen[i]].style : STYLE_PLAIN, "%s",
			          isnan(value) ? "-" : figure_value_text(totals[chosen[i]].unit, value).s);
		}
	}
	put_title(p, title);
	put_table(p, table);
}

/* ---- by load ---- */

static const char *const load_figures[] = {"offered", "served", "fallback", "failed", "late", "error_share", "latency_p50", "latency_p99"};
static const char *const load_titles[] = {"OFFERED", "SERVED", "FALLBACK", "FAILED", "LATE", "ERRORS", "P50", "P99"};
#define LOAD_FIGURES (sizeof(load_figures) / sizeof(load_figures[0]))

static void add_load(const struct printing *p, struct table *table, const struct take *take, const char *load)
{
	table_add(table, STYLE_PLAIN, "%s", load);
	if (has_variants(p))
		table_add(table, STYLE_PLAIN, "%s", take->scenario->variant);
	add_view(table, take);
	for (size_t i = 0; i < LOAD_FIGURES; i++) {
		double value = whole_figure(take, load_figures[i], load);
		table_add(table, STYLE_PLAIN, "%s", isnan(value) ? "-" : figure_value_text(figure_find(load_figures[i])->unit, value).s);
	}
}

/* Where there are several: who paid for whom. */
static void print_loads(const struct printing *p)
{
	struct column columns[LOAD_FIGURES + 3];
	size_t count = 0;
	bool several = false;

	for (size_t t = 0; t < p->take_count; t++)
		several |= p->takes[t].scenario->load_count > 1;
	if (!several)
		return;
	columns[count++] = (struct column){"LOAD", false, false, 0};
	if (has_variants(p))
		columns[count++] = (struct column){"VARIANT", false, false, 0};
	columns[count++] = (struct column){"VIEW", false, false, 0};
	for (unsigned i = 0; i < LOAD_FIGURES; i++)
		columns[count++] = (struct column){load_titles[i], true, false, i};
	struct table *table = table_new(p->screen, columns, count);
	for (size_t t = 0; table != NULL && t < p->take_count; t++)
		for (size_t n = 0; n < p->takes[t].scenario->load_count; n++)
			add_load(p, table, &p->takes[t], p->takes[t].scenario->loads[n].name);
	put_title(p, "By load");
	put_table(p, table);
}

/* ---- what to count ---- */

static void add_figure(struct table *table, const struct take *take, const char *figure, enum figure_unit unit)
{
	double value = whole_figure(take, figure, "");

	table_add(table, STYLE_PLAIN, "%s", isnan(value) ? "-" : column_text(unit, value).s);
}

static void print_counts(const struct printing *p)
{
	struct column columns[10];
	size_t count = 0;

	if (has_variants(p))
		columns[count++] = (struct column){"VARIANT", false, false, 0};
	columns[count++] = (struct column){"VIEW", false, false, 0};
	columns[count++] = (struct column){"CALLS/REQUEST", true, false, 0};
	columns[count++] = (struct column){"WORST", true, false, 3};
	columns[count++] = (struct column){"WORST RETRIES/S", true, false, 2};
	columns[count++] = (struct column){"FALLBACKS", true, false, 4};
	columns[count++] = (struct column){"BREAKER OPEN", false, false, 1};
	columns[count++] = (struct column){"REFUSED", false, true, 0};
	struct table *table = table_new(p->screen, columns, count);
	if (table != NULL)
		table_wrap(table);
	for (size_t t = 0; table != NULL && t < p->take_count; t++) {
		const struct take *take = &p->takes[t];
		char words[400];
		if (has_variants(p))
			table_add(table, STYLE_PLAIN, "%s", take->scenario->variant);
		add_view(table, take);
		add_figure(table, take, "attempts_per_request", UNIT_RATIO);
		add_figure(table, take, "attempts_per_request_worst", UNIT_RATIO);
		add_figure(table, take, "retries_per_second_worst", UNIT_COUNT);
		add_figure(table, take, "fallback", UNIT_COUNT);
		open_words(take, words, sizeof(words));
		table_add(table, STYLE_PLAIN, "%s", words[0] != '\0' ? words : "-");
		refusals_words(take, words, sizeof(words));
		table_add(table, STYLE_PLAIN, "%s", words[0] != '\0' ? words : "-");
	}
	put_title(p, "What to count (worst: in the worst second)");
	put_table(p, table);
}

/* ---- what was expected ---- */

/* Once for both views. */
static void print_why(const struct printing *p, const struct verdict_row *row)
{
	const char *variant = row->scenario->variant, *why = row->expectation->why;
	char what[600], values[160] = "", words[1400];

	for (unsigned view = 0; view < VIEWS; view++) {
		const struct verdict *v = row->views[view];
		size_t used = strlen(values);
		if (v != NULL && !v->holds)
			snprintf(values + used, sizeof(values) - used, "%s%s on %s", used > 0 ? ", " : "",
			         figure_value_text(expectation_unit(v->expectation), v->value).s,
			         view == VIEW_OWN ? "own views" : "the shared view");
	}
	expectation_words(row->expectation, what, sizeof(what));
	snprintf(words, sizeof(words), "%s%s%s%s: expected %s, and it was %s%s%s", what, variant[0] != '\0' ? " (" : "", variant,
	         variant[0] != '\0' ? ")" : "", expected_words(row->expectation).s, values, why != NULL ? ": " : "",
	         why != NULL ? why : "");
	fprintf(p->out, "%snot so%s: ", style_on(p->screen, STYLE_BAD), style_off(p->screen, STYLE_BAD));
	put_wrapped(p->screen, p->out, (unsigned)strlen("not so: "), words);
}

static void add_verdict_row(const struct printing *p, struct table *table, const struct verdicts *verdicts, const struct verdict_row *row)
{
	enum figure_unit unit = expectation_unit(row->expectation);
	char words[600];

	table_add(table, row->holds ? STYLE_PLAIN : STYLE_BAD, "%s", row->holds ? "ok" : "NOT SO");
	if (verdicts_published(verdicts))
		table_add(table, STYLE_PLAIN, "%s", published_words(row->expectation).s);
	for (unsigned view = 0; view < VIEWS; view++) {
		const struct verdict *v = row->views[view];
		if (verdicts_view(verdicts, view))
			table_add(table, v == NULL || v->holds ? STYLE_STRONG : STYLE_BAD, "%s",
			          v == NULL ? "" : figure_value_text(unit, v->value).s);
	}
	table_add(table, STYLE_PLAIN, "%s", expected_words(row->expectation).s);
	expectation_words(row->expectation, words, sizeof(words));
	if (has_variants(p))
		table_add(table, STYLE_PLAIN, "%s (%s)", words, row->scenario->variant);
	else
		table_add(table, STYLE_PLAIN, "%s", words);
}

static void print_verdicts(const struct printing *p, const struct verdicts *verdicts)
{
	struct column columns[6];
	size_t count = 0, row_count;
	struct verdict_row *rows = verdict_rows(verdicts, &row_count);

	columns[count++] = (struct column){"", false, false, 0};
	if (verdicts_published(verdicts))
		columns[count++] = (struct column){"PUBLISHED", true, false, 0};
	if (verdicts_view(verdicts, VIEW_OWN))
		columns[count++] = (struct column){"OWN", true, false, 0};
	if (verdicts_view(verdicts, VIEW_SHARED))
		columns[count++] = (struct column){"SHARED", true, false, 0};
	columns[count++] = (struct column){"EXPECTED", false, false, 0};
	columns[count++] = (struct column){"WHAT", false, true, 0};
	struct table *table = rows == NULL ? NULL : table_new(p->screen, columns, count);
	if (table != NULL)
		table_wrap(table);
	for (size_t i = 0; table != NULL && i < row_count; i++)
		add_verdict_row(p, table, verdicts, &rows[i]);
	if (verdicts->count > 0)
		put_table(p, table);
	for (size_t i = 0; rows != NULL && i < row_count; i++)
		if (!rows[i].holds)
			print_why(p, &rows[i]);
	free(rows);
}

/* ---- what the shared view changed ---- */

static void print_compared(const struct printing *p)
{
	static const char *const marks[] = {[BETTER_SHARED] = "shared", [BETTER_OWN] = "own", [BETTER_NONE] = "neither"};

	put_title(p, "What the shared view changed (better: shared, own, or neither)");
	for (size_t i = 0; i < p->outcome->compared_count; i++) {
		const struct compared *c = &p->outcome->compared[i];
		char words[700], text[1000];
		compared_words(c, words, sizeof(words));
		const char *why = c->comparison->why;
		snprintf(text, sizeof(text), "%s%s%s%s%s", c->variant, c->variant[0] != '\0' ? ": " : "", words, why != NULL ? ". " : "",
		         why != NULL ? why : "");
		enum style style = c->better == BETTER_OWN ? STYLE_DOUBT : STYLE_PLAIN;
		fprintf(p->out, "%s%-9s%s", style_on(p->screen, style), marks[c->better], style_off(p->screen, style));
		put_wrapped(p->screen, p->out, 9, text);
	}
}

/* ---- the game day ---- */

static void print_game_day(const struct printing *p)
{
	const struct game_day_result *day = &p->outcome->game_day;
	const char *hypothesis = p->scenarios->game_day.hypothesis;

	put_title(p, "Game day");
	if (hypothesis != NULL) {
		fputs("hypothesis: ", p->out);
		put_wrapped(p->screen, p->out, 12, hypothesis);
	}
	fprintf(p->out, "steady state before the fault: %s\n", day->steady ? "yes" : "NO");
	print_verdicts(p, &day->steady_state);
	if (day->aborted != NULL) {
		char words[500];
		aborted_words(day, words, sizeof(words));
		fprintf(p->out, "%sstopped%s ", style_on(p->screen, STYLE_BAD), style_off(p->screen, STYLE_BAD));
		put_wrapped(p->screen, p->out, (unsigned)strlen("stopped "), words);
		return;
	}
	for (unsigned q = 0; q < QUESTIONS; q++) {
		enum style style = day->answers[q].yes ? STYLE_STRONG : STYLE_BAD;
		if (day->answers[q].because.count == 0) /* not asked, or stopped before */
			continue;
		fprintf(p->out, "\n%s %s%s%s\n", question_words(q), style_on(p->screen, style), day->answers[q].yes ? "Yes." : "NO.",
		        style_off(p->screen, style));
		print_verdicts(p, &day->answers[q].because);
	}
}

void print_result(const struct screen *screen, FILE *out, const struct scenarios *scenarios, const struct take *takes, size_t take_count,
                  const struct outcome *outcome)
{
	const struct printing p = {screen, out, scenarios, takes, take_count, outcome};
	char words[600];

	print_totals(&p, "What happened");
	print_loads(&p);
	print_counts(&p);
	if (outcome->verdicts.count > 0) {
		put_title(&p, "What was expected");
		print_verdicts(&p, &outcome->verdicts);
	}
	if (outcome->compared_count > 0)
		print_compared(&p);
	if (outcome->game_day.given)
		print_game_day(&p);
	outcome_words(outcome, words, sizeof(words));
	fputc('\n', out);
	fputs(style_on(screen, outcome->good ? STYLE_STRONG : STYLE_BAD), out);
	put_wrapped(screen, out, 0, words);
	fputs(style_off(screen, STYLE_STRONG), out);
}

void print_unfinished(const struct screen *screen, FILE *out, const struct scenarios *scenarios, const struct take *takes,
                      size_t take_count, size_t planned)
{
	/* Stopped before everybody was there: nothing of it happened. */
	if (take_count > 0 && takes[take_count - 1].duration_ns == 0)
		take_count--;
	const struct printing p = {screen, out, scenarios, takes, take_count, NULL};
	char words[200];

	if (take_count == 0)
		return;
	print_totals(&p, "What happened until it was stopped");
	print_loads(&p);
	print_counts(&p);
	size_t whole = take_count - (takes[take_count - 1].duration_ns < takes[take_count - 1].scenario->duration_ns);
	snprintf(words, sizeof(words), "Not complete: %zu of %zu takes went to the end. Nothing was judged.", whole, planned);
	fprintf(out, "\n%s", style_on(screen, STYLE_BAD));
	put_wrapped(screen, out, 0, words);
	fputs(style_off(screen, STYLE_BAD), out);
}
