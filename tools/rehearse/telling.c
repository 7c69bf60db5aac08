/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a rehearsal is read on the screen, in the report and in somebody's message to a colleague. The same figure reads the
 * same in all of them: as long as the decision needs, with its unit, and "none" where there is none instead of a zero that looks measured.
 */
#include "telling.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "inspect.h"
#include "scenario.h"

/* ---- values ---- */

struct text column_text(enum figure_unit unit, double value)
{
	struct text t;

	if (unit != UNIT_RATIO || isnan(value))
		return figure_value_text(unit, value);
	snprintf(t.s, sizeof(t.s), "%.2f", value);
	return t;
}

struct text published_words(const struct expectation *expectation)
{
	return expectation->has_published ? figure_value_text(expectation_unit(expectation), expectation->published) : (struct text){""};
}

/* ---- words ---- */

const char *served_words(enum served served)
{
	static const char *const words[] = {
	        [SERVED_NOT_YET] = "not ended",    [SERVED_FRESH] = "served",  [SERVED_FALLBACK] = "fallback",
	        [SERVED_FAILED] = "failed",        [SERVED_LATE] = "too late", [SERVED_REJECTED] = "rejected",
	        [SERVED_STORED] = "stored answer",
	};

	return words[served];
}

const char *breaker_state_word(unsigned state)
{
	return state == RESC_BREAKER_OPEN ? "open" : state == RESC_HALF_OPEN ? "half-open" : "closed";
}

const char *view_words(enum view view)
{
	return view == VIEW_SHARED ? "shared view" : "own views";
}

void take_words(const struct take *take, char *text, size_t size)
{
	const char *variant = take->scenario->variant;

	snprintf(text, size, "%s%s%s", variant, variant[0] != '\0' ? ", " : "", view_words(take->view));
}

double whole_figure(const struct take *take, const char *figure, const char *of)
{
	struct figure_ref ref = {.view = -1, .to_ns = SCENARIO_FOREVER, .nth = 1};

	snprintf(ref.figure, sizeof(ref.figure), "%s", figure);
	snprintf(ref.of, sizeof(ref.of), "%s", of);
	return figure_value(take, &ref);
}

/* ---- what is wrong with a dependency ---- */

void fault_words(const struct fault *fault, char *text, size_t size)
{
	static const char *const words[] = {
	        [FAULT_HANG] = "hangs",
	        [FAULT_SLOW] = "",
	        [FAULT_ERRORS] = "answers with errors",
	        [FAULT_REFUSE] = "refuses connections",
	        [FAULT_RESET] = "resets connections",
	        [FAULT_CAPACITY] = "",
	};
	char does[64];

	if (fault->kind == FAULT_SLOW)
		snprintf(does, sizeof(does), "answers %s later", duration_setting_ns((uint64_t)fault->latency_ns).s);
	else if (fault->kind == FAULT_CAPACITY)
		snprintf(does, sizeof(does), "works on %" PRIu32 " at once", fault->capacity);
	else
		snprintf(does, sizeof(does), "%s", words[fault->kind]);
	snprintf(text, size, "%s%s", fault->down_ns > 0 ? "now and then " : "", does);
	size_t used = strlen(text);
	if (fault->share < 1 && used < size)
		snprintf(text + used, size - used, " (%s)", figure_value_text(UNIT_SHARE, fault->share).s);
}

static void brief_words(const struct fault *fault, char *text, size_t size)
{
	static const char *const words[] = {
	        [FAULT_HANG] = "hangs",     [FAULT_SLOW] = "slow",    [FAULT_ERRORS] = "errors",
	        [FAULT_REFUSE] = "refuses", [FAULT_RESET] = "resets", [FAULT_CAPACITY] = "less capacity",
	};

	snprintf(text, size, "%s", words[fault->kind]);
}

void trouble_words(const struct scenario *scenario, int64_t from_ns, int64_t to_ns, bool brief, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t d = 0; d < scenario->dependency_count; d++) {
		const struct dependency *dependency = &scenario->dependencies[d];
		for (size_t f = 0; f < dependency->fault_count && used < size; f++) {
			const struct fault *fault = &dependency->faults[f];
			char words[80];
			if (fault->from_request != 0 || fault->from_ns >= to_ns || fault->to_ns <= from_ns)
				continue;
			if (brief)
				brief_words(fault, words, sizeof(words));
			else
				fault_words(fault, words, sizeof(words));
			/* Of a lone one nobody needs the name. */
			bool named = scenario->dependency_count > 1;
			used += (size_t)snprintf(text + used, size - used, "%s%s%s%s", used > 0 ? ", " : "", named ? dependency->name : "",
			                         named ? " " : "", words);
		}
	}
}

bool scenario_policy(const struct scenario *scenario, const char *resource, struct policy *policy)
{
	struct config_problems problems = {0};
	struct config config = {0};
	char *text = json_dumps(scenario->configuration, JSON_COMPACT);
	bool found = false;

	if (text != NULL && config_parse(text, strlen(text), &config, &problems) == 0) {
		const struct config_resource *r = config_find(&config, resource);
		if (r == NULL)
			r = config_match(&config, resource);
		found = r != NULL;
		if (found)
			*policy = r->policy;
	}
	config_problems_free(&problems);
	config_free(&config);
	free(text);
	return found;
}

/* ---- sentences ---- */

/* As they stand in the table: one that is asked of both views is one. */
static void count_expectations(const struct outcome *outcome, size_t *held, size_t *all)
{
	struct verdict_row *rows = verdict_rows(&outcome->verdicts, all);

	*held = 0;
	for (size_t i = 0; rows != NULL && i < *all; i++)
		*held += rows[i].holds;
	if (rows == NULL) { /* there are none, or no memory */
		*all = outcome->verdicts.count;
		*held = *all - outcome->verdicts.failed;
	}
	free(rows);
}

void aborted_words(const struct game_day_result *day, char *text, size_t size)
{
	char take[160];

	take_words(day->aborted_take, take, sizeof(take));
	snprintf(text, size, "(%s): %s", take, day->aborted);
}

static void game_day_words(const struct game_day_result *day, char *text, size_t size)
{
	char words[500];

	if (day->aborted != NULL) {
		aborted_words(day, words, sizeof(words));
		snprintf(text, size, "The game day was stopped %s.", words);
	} else if (!day->steady) {
		snprintf(text, size, "The game day found no steady state to begin with.");
	} else {
		snprintf(text, size, "The hypothesis of the game day %s.", day->hypothesis_holds ? "holds" : "does not hold");
	}
}

void outcome_words(const struct outcome *outcome, char *text, size_t size)
{
	size_t held, all, used = 0;

	count_expectations(outcome, &held, &all);
	text[0] = '\0';
	if (outcome->game_day.given) {
		game_day_words(&outcome->game_day, text, size);
		used = strlen(text);
	}
	const char *gap = used > 0 ? " " : "";
	if (all == 0 && used == 0)
		snprintf(text, size, "%s; this is what happened.",
		         outcome->not_judged > 0 ? "Nothing was expected of what was played" : "Nothing was expected");
	else if (all == 1)
		snprintf(text + used, size - used, "%sWhat was expected %s.", gap, held == 1 ? "holds" : "does not hold");
	else if (all == 2 && held == all)
		snprintf(text + used, size - used, "%sBoth expectations hold.", gap);
	else if (all > 0 && held == all)
		snprintf(text + used, size - used, "%sAll %zu expectations hold.", gap, all);
	else if (all > 0)
		snprintf(text + used, size - used, "%s%zu of %zu expectations %s not hold.", gap, all - held, all,
		         all - held == 1 ? "does" : "do");
	used = strlen(text);
	if (all > 0 && outcome->not_judged > 0)
		snprintf(text + used, size - used, " %zu more could not be judged without what was left out.", outcome->not_judged);
}

static void put_list(char *text, size_t size, const char *format, const char *value, const char *name)
{
	size_t used = strlen(text);

	if (used < size)
		snprintf(text + used, size - used, format, used > 0 ? ", " : "", value, name);
}

struct text refusal_word(int answer)
{
	struct text t;

	snprintf(t.s, sizeof(t.s), "%s", resc_answer_name(answer));
	for (char *p = strchr(t.s, '_'); p != NULL; p = strchr(p, '_'))
		*p = '-';
	return t;
}

void refusals_words(const struct take *take, char *text, size_t size)
{
	text[0] = '\0';
	for (int answer = RESC_E_OPEN; answer <= RESC_E_RETRIES; answer++) {
		char figure[32];
		snprintf(figure, sizeof(figure), "refused_%s", resc_answer_name(answer));
		double n = whole_figure(take, figure, "");
		if (n > 0)
			put_list(text, size, "%s%s %s", figure_value_text(UNIT_COUNT, n).s, refusal_word(answer).s);
	}
}

void open_words(const struct take *take, char *text, size_t size)
{
	const struct scenario *scenario = take->scenario;

	text[0] = '\0';
	for (size_t i = 0; i < scenario->resource_count; i++) {
		if (part_mode_of(&take->tallies[i].policy, PART_BREAKER) == PART_OFF)
			continue;
		double ms = whole_figure(take, "open_time", scenario->resources[i]);
		/* Of a lone one nobody needs the name. */
		put_list(text, size, scenario->resource_count > 1 ? "%s%s %s" : "%s%s", duration_text(isnan(ms) ? 0 : (uint64_t)ms).s,
		         scenario->resources[i]);
	}
}

/* Variant and view are another matter. */
static bool same_figure(const struct figure_ref *a, const struct figure_ref *b)
{
	return strcmp(a->figure, b->figure) == 0 && strcmp(a->of, b->of) == 0 && a->from_ns == b->from_ns && a->to_ns == b->to_ns &&
	       a->nth == b->nth && a->width_ns == b->width_ns;
}

void expectation_words(const struct expectation *expectation, char *text, size_t size)
{
	static const char *const on[] = {[VIEW_OWN] = " on own views", [VIEW_SHARED] = " on the shared view"};
	const struct figure_ref *what = &expectation->what, *to = &expectation->to;
	char words[256] = "the same";

	figure_text(what, text, size);
	size_t used = strlen(text);
	if (!expectation->relative || used >= size)
		return;
	if (!same_figure(what, to))
		figure_text(to, words, sizeof(words));
	bool elsewhere = to->variant[0] != '\0' && strcmp(to->variant, what->variant) != 0;
	snprintf(text + used, size - used, ", divided by %s%s%s%s", words, elsewhere ? " of " : "", elsewhere ? to->variant : "",
	         to->view < 0 ? "" : on[to->view]);
}

/* ---- verdicts by row ---- */

static struct verdict_row *find_row(struct verdict_row *rows, size_t count, const struct verdict *v)
{
	for (size_t i = 0; i < count; i++)
		if (rows[i].expectation == v->expectation && rows[i].scenario == v->take->scenario)
			return &rows[i];
	return NULL;
}

/* Variants are items of one array, so the order of their addresses is that of the file. */
static void sort_rows(struct verdict_row *rows, size_t count)
{
	for (size_t i = 1; i < count; i++) {
		struct verdict_row row = rows[i];
		size_t at = i;
		for (; at > 0 && rows[at - 1].scenario > row.scenario; at--)
			rows[at] = rows[at - 1];
		rows[at] = row;
	}
}

struct verdict_row *verdict_rows(const struct verdicts *verdicts, size_t *count)
{
	struct verdict_row *rows = verdicts->count == 0 ? NULL : calloc(verdicts->count, sizeof(*rows));

	*count = 0;
	for (size_t i = 0; rows != NULL && i < verdicts->count; i++) {
		const struct verdict *v = &verdicts->items[i];
		struct verdict_row *row = find_row(rows, *count, v);
		if (row == NULL) {
			row = &rows[(*count)++];
			*row = (struct verdict_row){.expectation = v->expectation, .scenario = v->take->scenario, .holds = true};
		}
		row->views[v->take->view] = v;
		row->holds &= v->holds;
	}
	sort_rows(rows, *count);
	return rows;
}

bool verdicts_view(const struct verdicts *verdicts, enum view view)
{
	for (size_t i = 0; i < verdicts->count; i++)
		if (verdicts->items[i].take->view == view)
			return true;
	return false;
}

bool verdicts_published(const struct verdicts *verdicts)
{
	for (size_t i = 0; i < verdicts->count; i++)
		if (verdicts->items[i].expectation->has_published)
			return true;
	return false;
}

/* ---- comparisons ---- */

void compared_words(const struct compared *compared, char *text, size_t size)
{
	char what[256], views[256];

	figure_text(&compared->comparison->what, what, sizeof(what));
	compared_text(compared, views, sizeof(views));
	snprintf(text, size, "%s: %s", what, views);
}

const char *question_words(enum question question)
{
	static const char *const words[] = {
	        [QUESTION_PROTECTED] = "Did it protect itself?",
	        [QUESTION_NOTICED] = "Was it noticed?",
	        [QUESTION_RECOVERED] = "Did it recover alone?",
	};

	return words[question];
}

/* ---- rows by time ---- */

int64_t row_width(int64_t duration_ns)
{
	static const int64_t shorter_ms[] = {500, 250, 100, 50, 20, 10}, longer_s[] = {2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600};
	int64_t width = 1000000000;

	for (size_t i = 0; i < sizeof(shorter_ms) / sizeof(shorter_ms[0]) && duration_ns / width < 4; i++)
		width = shorter_ms[i] * 1000000;
	for (size_t i = 0; i < sizeof(longer_s) / sizeof(longer_s[0]) && duration_ns / width > 60; i++)
		width = longer_s[i] * 1000000000;
	return width;
}

/* ---- paragraphs ---- */

void put_wrapped(const struct screen *screen, FILE *out, unsigned indent, const char *text)
{
	unsigned at = indent, words = 0;

	while (*text != '\0') {
		size_t length = strcspn(text, " \n\t");
		char piece[512];

		snprintf(piece, sizeof(piece), "%.*s", (int)length, text);
		screen_clean(screen, piece);
		unsigned columns = text_columns(piece);
		if (words > 0 && screen->width != 0 && at + 1 + columns > screen->width) {
			fprintf(out, "\n%*s", (int)indent, "");
			at = indent;
			words = 0;
		}
		if (length > 0) {
			fprintf(out, "%s%s", words > 0 ? " " : "", piece);
			at += columns + (words > 0);
			words++;
		}
		text += length;
		text += strspn(text, " \n\t");
	}
	fputc('\n', out);
}
