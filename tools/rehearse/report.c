/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a rehearsal is shown to people who were not there, and read again a year later. So the report is one file that needs
 * nothing else: no script, no font, no picture from anywhere, and it says the same on a telephone, on paper, in the dark and to a screen
 * reader. What it is about, and whether what was expected is so, stands on its first screen; below it everything that was counted.
 *
 * All text of a scenario is somebody's: it passes html_text().
 */
#include "report.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"

struct report {
	FILE *out;
	const struct scenarios *scenarios;
	const struct take *takes;
	size_t take_count;
	const struct outcome *outcome;
	unsigned pictures;
	int failed; /* -ENOMEM: a picture could not be made */
};

/* ---- text ---- */

void html_text(FILE *out, const char *text)
{
	const struct screen page = {.utf8 = true};
	char *clean = strdup(text);

	/* Without memory less is said, and the report as a whole is told to be incomplete by the chart that fails as well. */
	if (clean == NULL)
		return;
	screen_clean(&page, clean);
	for (const char *p = clean; *p != '\0'; p++) {
		switch (*p) {
		case '<':
			fputs("&lt;", out);
			break;
		case '>':
			fputs("&gt;", out);
			break;
		case '&':
			fputs("&amp;", out);
			break;
		case '"':
			fputs("&quot;", out);
			break;
		default:
			fputc(*p, out);
		}
	}
	free(clean);
}

static void put(const struct report *r, const char *before, const char *text, const char *after)
{
	fputs(before, r->out);
	html_text(r->out, text);
	fputs(after, r->out);
}

static const char *class_of(bool good)
{
	return good ? "good" : "bad";
}

/* A table scrolls inside its own box, which a keyboard can reach. */
static void begin_table(const struct report *r, const char *caption, const char *head)
{
	put(r, "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"", caption, "\"><table><caption>");
	html_text(r->out, caption);
	fprintf(r->out, "</caption><thead><tr>%s</tr></thead><tbody>\n", head);
}

static void end_table(const struct report *r)
{
	fputs("</tbody></table></div>\n", r->out);
}

/* ---- what was expected ---- */

static void put_value(const struct report *r, const struct verdict *v)
{
	if (v == NULL)
		fputs("<td></td>", r->out);
	else
		fprintf(r->out, "<td class=\"n here %s\">%s %s</td>", class_of(v->holds), v->holds ? "\342\234\223" : "\342\234\227",
		        figure_value_text(expectation_unit(v->expectation), v->value).s);
}

static void put_verdict_row(const struct report *r, const struct verdicts *verdicts, const struct verdict_row *row)
{
	char what[600];

	expectation_words(row->expectation, what, sizeof(what));
	put(r, "<tr><th scope=\"row\">", what, "");
	put(r, "<small class=\"narrow\">expected: ", expected_words(row->expectation).s, "</small>");
	if (!row->holds && row->expectation->why != NULL)
		put(r, "<small class=\"bad\">", row->expectation->why, "</small>");
	fputs("</th>", r->out);
	if (verdicts_published(verdicts))
		put(r, "<td class=\"n\">", published_words(row->expectation).s, "</td>");
	for (unsigned view = 0; view < VIEWS; view++)
		if (verdicts_view(verdicts, view))
			put_value(r, row->views[view]);
	put(r, "<td class=\"wide\">", expected_words(row->expectation).s, "</td></tr>\n");
}

/* A line above the first row of a variant, where there are several. */
static void put_variant_line(const struct report *r, const struct verdict_row *rows, size_t i)
{
	if (r->scenarios->count > 1 && (i == 0 || rows[i].scenario != rows[i - 1].scenario))
		put(r,
		    i == 0 ? "<tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">"
		           : "</tbody><tbody><tr class=\"group\"><th colspan=\"5\" scope=\"rowgroup\">",
		    rows[i].scenario->variant, "</th></tr>\n");
}

static void put_verdicts(struct report *r, const struct verdicts *verdicts, const char *caption)
{
	char head[400];
	size_t count;
	struct verdict_row *rows = verdict_rows(verdicts, &count);

	if (rows == NULL) {
		r->failed = verdicts->count > 0 ? -ENOMEM : r->failed;
		return;
	}
	snprintf(head, sizeof(head), "<th scope=\"col\">What</th>%s%s%s<th scope=\"col\" class=\"wide\">Expected</th>",
	         verdicts_published(verdicts) ? "<th scope=\"col\" class=\"n\">Published</th>" : "",
	         verdicts_view(verdicts, VIEW_OWN) ? "<th scope=\"col\" class=\"n\">Own views</th>" : "",
	         verdicts_view(verdicts, VIEW_SHARED) ? "<th scope=\"col\" class=\"n\">Shared view</th>" : "");
	begin_table(r, caption, head);
	for (size_t i = 0; i < count; i++) {
		put_variant_line(r, rows, i);
		put_verdict_row(r, verdicts, &rows[i]);
	}
	end_table(r);
	free(rows);
}

/* ---- first screen ---- */

static void put_head(struct report *r)
{
	const struct scenario *first = &r->scenarios->items[0];
	char words[600];

	put(r,
	    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
	    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"><title>",
	    first->title, "</title>\n<link rel=\"icon\" href=\"data:,\"><style>");
	fprintf(r->out, "%s</style></head>\n<body><main>\n<header><p class=\"kicker\">Rehearsal", report_style);
	if (first->experiment[0] != '\0')
		put(r, " of experiment ", first->experiment, "");
	put(r, "</p><h1>", first->title, "</h1>\n");
	outcome_words(r->outcome, words, sizeof(words));
	if (r->outcome->verdicts.count == 0 && !r->outcome->game_day.given)
		put(r, "<p class=\"verdict\">", words, "</p>\n");
	else
		put(r, r->outcome->good ? "<p class=\"verdict good\">\342\234\223 " : "<p class=\"verdict bad\">\342\234\227 ", words,
		    "</p>\n");
	if (first->about != NULL)
		put(r, "<p>", first->about, "</p>\n");
	fputs("</header>\n", r->out);
	put_verdicts(r, &r->outcome->verdicts, "What was expected, and what came of it");
}

static void put_compared(const struct report *r)
{
	static const char *const marks[] = {
	        [BETTER_SHARED] = "the shared view is better", [BETTER_OWN] = "own views are better", [BETTER_NONE] = "no difference"};

	if (r->outcome->compared_count == 0)
		return;
	fputs("<section><h2>What the shared view changed</h2><ul>\n", r->out);
	for (size_t i = 0; i < r->outcome->compared_count; i++) {
		const struct compared *c = &r->outcome->compared[i];
		char words[700];
		compared_words(c, words, sizeof(words));
		fputs("<li>", r->out);
		if (c->variant[0] != '\0')
			put(r, "<span class=\"note\">", c->variant, ":</span> ");
		html_text(r->out, words);
		/* That there is none, the words themselves say where both views have a value. */
		if (c->better != BETTER_NONE || isnan(c->own) || isnan(c->shared))
			fprintf(r->out, ": <strong>%s</strong>", marks[c->better]);
		fputs(".", r->out);
		if (c->comparison->why != NULL)
			put(r, " ", c->comparison->why, "");
		fputs("</li>\n", r->out);
	}
	fputs("</ul></section>\n", r->out);
}

/* ---- the game day ---- */

static void put_game_day(struct report *r)
{
	const struct game_day_result *day = &r->outcome->game_day;
	const char *hypothesis = r->scenarios->game_day.hypothesis;

	if (!day->given)
		return;
	fputs("<section><h2>Game day</h2>\n", r->out);
	if (hypothesis != NULL)
		put(r, "<p><strong>Hypothesis:</strong> ", hypothesis, "</p>\n");
	fprintf(r->out, "<p><strong>Steady state before the fault:</strong> <span class=\"%s\">%s</span></p>\n", class_of(day->steady),
	        day->steady ? "yes" : "no");
	put_verdicts(r, &day->steady_state, "The steady state");
	if (day->aborted != NULL) {
		char words[500];
		aborted_words(day, words, sizeof(words));
		put(r, "<p class=\"verdict bad\">Stopped ", words, "</p>\n");
	}
	for (unsigned q = 0; q < QUESTIONS && day->aborted == NULL; q++) {
		const struct answer *answer = &day->answers[q];
		if (answer->because.count == 0) /* not asked, or stopped before */
			continue;
		fprintf(r->out, "<h3>%s <span class=\"%s\">%s</span></h3>\n", question_words(q), class_of(answer->yes),
		        answer->yes ? "Yes." : "No.");
		put_verdicts(r, &answer->because, "Because");
	}
	fputs("</section>\n", r->out);
}

/* ---- what to count ---- */

/* Columns of the totals. What became of the requests is all there: those that ended in no other way, where there are any. */
static const struct {
	const char *figure;
	const char *title;
	bool always;
} totals[] = {
        {"offered", "Offered", true},
        {"served", "Served", true},
        {"stored", "Stored", false},
        {"fallback", "Fallback", true},
        {"failed", "Failed", true},
        {"late", "Too late", true},
        {"rejected", "Rejected", false},
        {"unfinished", "Not ended", false},
        {"attempts_per_request", "Calls a request", true},
        {"attempts_per_request_worst", "at worst", true},
        {"retries_per_second_worst", "Retries/s at worst", true},
};
#define TOTALS (sizeof(totals) / sizeof(totals[0]))

static bool is_shown(const struct report *r, size_t n)
{
	bool shown = totals[n].always;

	for (size_t i = 0; i < r->take_count && !shown; i++)
		shown = whole_figure(&r->takes[i], totals[n].figure, "") > 0;
	return shown;
}

static void put_total(const struct report *r, const struct take *take, const char *figure)
{
	double value = whole_figure(take, figure, "");

	fprintf(r->out, "<td class=\"n\">%s</td>", isnan(value) ? "\342\200\223" : column_text(figure_find(figure)->unit, value).s);
}

static void put_counts(const struct report *r)
{
	char words[400], head[1200];
	size_t used = (size_t)snprintf(head, sizeof(head), "<th scope=\"col\">Take</th>");

	fputs("<section><h2>What to count</h2>\n", r->out);
	for (size_t n = 0; n < TOTALS; n++)
		if (is_shown(r, n))
			used += (size_t)snprintf(head + used, sizeof(head) - used, "<th scope=\"col\" class=\"n\">%s</th>",
			                         totals[n].title);
	snprintf(head + used, sizeof(head) - used, "<th scope=\"col\">Breaker open</th><th scope=\"col\">Refused</th>");
	begin_table(r, "Totals of each take", head);
	for (size_t i = 0; i < r->take_count; i++) {
		const struct take *take = &r->takes[i];
		take_words(take, words, sizeof(words));
		put(r, "<tr><th scope=\"row\">", words, "</th>");
		for (size_t n = 0; n < TOTALS; n++)
			if (is_shown(r, n))
				put_total(r, take, totals[n].figure);
		open_words(take, words, sizeof(words));
		put(r, "<td class=\"words\">", words[0] != '\0' ? words : "\342\200\223", "</td>");
		refusals_words(take, words, sizeof(words));
		put(r, "<td class=\"words\">", words[0] != '\0' ? words : "\342\200\223", "</td></tr>\n");
	}
	end_table(r);
	fputs("</section>\n", r->out);
}

/* ---- pictures ---- */

/* The takes of one variant. */
struct pair {
	const struct take *takes[VIEWS];
	struct troubles troubles[VIEWS];
	size_t count;
};

static void put_key(const struct report *r, const struct chart *charts, size_t count)
{
	fputs("<ul class=\"key\">", r->out);
	for (size_t i = 0; i < count; i++) {
		for (size_t n = 0; n < charts[i].count; n++) {
			bool told = false;
			for (size_t m = 0; i > 0 && m < charts[0].count; m++)
				told |= strcmp(charts[0].series[m].name, charts[i].series[n].name) == 0;
			if (told)
				continue;
			fprintf(r->out, "<li><i class=\"%s\"></i>", charts[i].series[n].color);
			put(r, "", charts[i].series[n].name, "</li>");
		}
	}
	fputs("</ul>", r->out);
}

static void begin_row(const struct report *r, const char *title, const char *of, const char *text)
{
	put(r, "<div class=\"plots\"><div><h3>", title, "");
	if (of[0] != '\0')
		put(r, " <span class=\"small\">", of, "</span>");
	put(r, "</h3><p class=\"small\">", text, "</p>");
}

/* "Own views", where it begins something. */
static void put_view(const struct report *r, const struct take *take)
{
	const char *view = view_words(take->view);

	fprintf(r->out, "%c%s", view[0] - 'a' + 'A', view + 1);
}

static void begin_figure(const struct report *r, const struct take *take)
{
	fputs("<figure><figcaption>", r->out);
	put_view(r, take);
	fputs("</figcaption>", r->out);
}

static struct drawing begin_drawing(const struct report *r, const struct pair *pair, size_t i, const char *title, const char *unit)
{
	return (struct drawing){.out = r->out,
	                        .number = r->pictures,
	                        .troubles = &pair->troubles[i],
	                        .duration_ns = pair->takes[i]->scenario->duration_ns,
	                        .title = title,
	                        .unit = unit};
}

static const char *row_subject(const struct row *row, const struct scenario *scenario, uint16_t index)
{
	return row->of == ROW_OF_RESOURCE ? scenario->resources[index] : row->of == ROW_OF_LOAD ? scenario->loads[index].name : "";
}

static void put_row(struct report *r, const struct pair *pair, const struct row *row, uint16_t index)
{
	struct chart charts[VIEWS] = {{0}};
	double top = 0;
	size_t series = 0;

	for (size_t i = 0; i < pair->count; i++) {
		int error = row->make(pair->takes[i], index, &charts[i]);
		if (error != 0)
			r->failed = error;
		/* The same scale, so that the views can be compared by eye. */
		top = fmax(top, chart_top(&charts[i]));
		series += charts[i].count;
	}
	if (series > 0) {
		const char *of = row_subject(row, pair->takes[0]->scenario, index);
		begin_row(r, row->title, of, row->text);
		put_key(r, charts, pair->count);
		fputs("</div>\n", r->out);
		for (size_t i = 0; i < pair->count; i++) {
			char title[200];
			snprintf(title, sizeof(title), "%s%s%s, %s", row->title, of[0] != '\0' ? " of " : "", of,
			         view_words(pair->takes[i]->view));
			struct drawing d = begin_drawing(r, pair, i, title, row->unit);
			begin_figure(r, pair->takes[i]);
			if (charts[i].count > 0)
				draw_chart(&d, &charts[i], top);
			else
				fputs("<p class=\"small\">None.</p>", r->out);
			fputs("</figure>\n", r->out);
			r->pictures = d.number;
		}
		fputs("</div>\n", r->out);
	}
	for (size_t i = 0; i < pair->count; i++)
		chart_free(&charts[i]);
}

static void put_bands(struct report *r, const struct pair *pair, uint16_t resource)
{
	const char *name = pair->takes[0]->scenario->resources[resource];

	if (part_mode_of(&pair->takes[0]->tallies[resource].policy, PART_BREAKER) == PART_OFF)
		return;
	begin_row(r, "Breaker", name,
	          "On own views one band a worker: each learns alone. On the shared view there is one breaker for all.");
	fputs("<ul class=\"key\"><li><i class=\"closed\"></i>closed</li><li><i class=\"fallback\"></i>half-open</li>"
	      "<li><i class=\"failed\"></i>open</li></ul></div>\n",
	      r->out);
	for (size_t i = 0; i < pair->count; i++) {
		char title[200];
		snprintf(title, sizeof(title), "Breaker of %s, %s", name, view_words(pair->takes[i]->view));
		struct drawing d = begin_drawing(r, pair, i, title, pair->takes[i]->view == VIEW_OWN ? "worker" : "");
		begin_figure(r, pair->takes[i]);
		draw_bands(&d, pair->takes[i], resource);
		fputs("</figure>\n", r->out);
		r->pictures = d.number;
	}
	fputs("</div>\n", r->out);
}

/* Those above the breakers, or below them. */
static void put_rows(struct report *r, const struct pair *pair, bool last)
{
	const struct scenario *scenario = pair->takes[0]->scenario;

	for (size_t i = 0; i < report_row_count; i++) {
		const struct row *row = &report_rows[i];
		size_t count = row->of == ROW_OF_RESOURCE ? scenario->resource_count : 1;
		if (row->of == ROW_OF_LOAD)
			count = scenario->load_count > 1 ? scenario->load_count : 0;
		for (size_t n = 0; n < count && row->last == last; n++)
			put_row(r, pair, row, (uint16_t)n);
	}
}

/* ---- second by second ---- */

static void put_seconds(struct report *r, const struct take *take)
{
	static const enum served shown[] = {SERVED_FRESH, SERVED_FALLBACK, SERVED_FAILED, SERVED_LATE};
	int64_t width = row_width(take->scenario->duration_ns);
	size_t count;
	struct second *seconds = take_seconds(take, -1, width, &count);

	if (seconds == NULL) {
		r->failed = -ENOMEM;
		return;
	}
	fprintf(r->out, "<details><summary>Figures by time, %s</summary>\n", view_words(take->view));
	begin_table(r, "Figures by time",
	            "<th scope=\"col\" class=\"n\">Until</th><th scope=\"col\" class=\"n\">Offered</th><th scope=\"col\" "
	            "class=\"n\">Served</th>"
	            "<th scope=\"col\" class=\"n\">Fallback</th><th scope=\"col\" class=\"n\">Failed</th><th scope=\"col\" class=\"n\">Too "
	            "late</th>"
	            "<th scope=\"col\" class=\"n\">Calls</th><th scope=\"col\" class=\"n\">Retries</th><th scope=\"col\" "
	            "class=\"n\">Refused</th>"
	            "<th scope=\"col\" class=\"n\">p50</th><th scope=\"col\" class=\"n\">p99</th>");
	for (size_t i = 0; i < count; i++) {
		const struct second *s = &seconds[i];
		uint32_t refused = 0;
		for (size_t n = 0; n < sizeof(s->refused) / sizeof(s->refused[0]); n++)
			refused += s->refused[n];
		fprintf(r->out, "<tr><th scope=\"row\" class=\"n\">%s s</th><td class=\"n\">%" PRIu32 "</td>",
		        number_text((double)((int64_t)(i + 1) * width) / 1e9, 2).s, s->offered);
		for (size_t n = 0; n < sizeof(shown) / sizeof(shown[0]); n++)
			fprintf(r->out, "<td class=\"n\">%" PRIu32 "</td>", s->served[shown[n]]);
		fprintf(r->out, "<td class=\"n\">%" PRIu32 "</td><td class=\"n\">%" PRIu32 "</td><td class=\"n\">%" PRIu32 "</td>",
		        s->attempts, s->retries, refused);
		fprintf(r->out, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
		        isnan(s->p50_ms) ? "\342\200\223" : figure_value_text(UNIT_MS, s->p50_ms).s,
		        isnan(s->p99_ms) ? "\342\200\223" : figure_value_text(UNIT_MS, s->p99_ms).s);
	}
	end_table(r);
	fputs("</details>\n", r->out);
	free(seconds);
}

/* ---- a variant ---- */

static void put_setting(const struct report *r, const struct scenario *s)
{
	char *configuration = json_dumps(s->configuration, JSON_INDENT(2));

	fprintf(r->out, "<p class=\"note\">%" PRIu32 " worker%s", s->workers, s->workers == 1 ? "" : "s");
	if (s->threads > 1)
		fprintf(r->out, " of %" PRIu32 " threads", s->threads);
	fprintf(r->out, ", %s.", duration_text((uint64_t)(s->duration_ns / 1000000)).s);
	for (size_t i = 0; i < s->dependency_count; i++) {
		for (size_t f = 0; f < s->dependencies[i].fault_count; f++) {
			const struct fault *fault = &s->dependencies[i].faults[f];
			char words[80];
			fault_words(fault, words, sizeof(words));
			put(r, " ", s->dependencies[i].name, " ");
			html_text(r->out, words);
			if (fault->from_request != 0)
				fprintf(r->out, " for requests %" PRIu32 " to %" PRIu32 ".", fault->from_request, fault->to_request);
			else if (fault->to_ns < s->duration_ns)
				fprintf(r->out, " from %s to %s s.", number_text((double)fault->from_ns / 1e9, 2).s,
				        number_text((double)fault->to_ns / 1e9, 2).s);
			else
				fprintf(r->out, " from %s s on.", number_text((double)fault->from_ns / 1e9, 2).s);
		}
	}
	fputs("</p>\n", r->out);
	if (configuration == NULL)
		return;
	fputs("<details><summary>The configuration</summary><pre>", r->out);
	for (char *line = configuration, *end; line != NULL; line = end) {
		end = strchr(line, '\n');
		if (end != NULL)
			*end++ = '\0';
		put(r, "", line, "\n");
	}
	fputs("</pre></details>\n", r->out);
	free(configuration);
}

static void put_stopped(const struct report *r, const struct take *take)
{
	if (take->stopped == NULL)
		return;
	fputs("<p class=\"bad\">", r->out);
	put_view(r, take);
	fprintf(r->out, ", stopped after %s s: ", number_text((double)take->duration_ns / 1e9, 1).s);
	put(r, "", take->stopped, "</p>\n");
}

static void put_variant(struct report *r, const struct scenario *scenario)
{
	struct pair pair = {.count = 0};

	for (size_t i = 0; i < r->take_count && pair.count < VIEWS; i++) {
		if (r->takes[i].scenario != scenario)
			continue;
		troubles_find(&r->takes[i], &pair.troubles[pair.count]);
		pair.takes[pair.count++] = &r->takes[i];
	}
	if (pair.count == 0)
		return;
	put(r, "<section><h2>", scenario->variant[0] != '\0' ? scenario->variant : "Over time", "</h2>\n");
	if (scenario->variant_about != NULL)
		put(r, "<p>", scenario->variant_about, "</p>\n");
	put_setting(r, scenario);
	for (size_t i = 0; i < pair.count; i++)
		put_stopped(r, pair.takes[i]);
	/* A view alone has the width for two pictures side by side. */
	fprintf(r->out, "<div class=\"%s\">", pair.count == 1 ? "alone" : "beside");
	put_rows(r, &pair, false);
	for (uint16_t n = 0; n < scenario->resource_count; n++)
		put_bands(r, &pair, n);
	put_rows(r, &pair, true);
	fputs("</div>\n", r->out);
	for (size_t i = 0; i < pair.count; i++)
		put_seconds(r, pair.takes[i]);
	fputs("</section>\n", r->out);
}

int report_write(const char *path, const struct scenarios *scenarios, const struct take *takes, size_t take_count,
                 const struct outcome *outcome)
{
	struct report r = {NULL, scenarios, takes, take_count, outcome, 1, 0};

	r.out = fopen(path, "we");
	if (r.out == NULL)
		return -errno;
	put_head(&r);
	put_compared(&r);
	put_game_day(&r);
	put_counts(&r);
	for (size_t i = 0; i < scenarios->count; i++)
		put_variant(&r, &scenarios->items[i]);
	fputs("<footer>Made by resctl rehearse " RESC_VERSION_STRING
	      ": real processes, a real segment, an instance of its own. Shaded: a fault of the "
	      "dependency. Point at a picture for its figures.</footer>\n</main></body></html>\n",
	      r.out);
	bool failed = ferror(r.out) != 0;
	if (fclose(r.out) != 0 || failed)
		return errno != 0 ? -errno : -EIO;
	return r.failed;
}
