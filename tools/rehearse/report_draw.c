/* SPDX-License-Identifier: MIT */
/*
 * Drawing: SVG by hand, as text. A picture is 360 units wide, of which 12 are a letter's height; the style sheet sizes both.
 *
 *	UNIT      fault
 *	 top ┌──────────────┐
 *	     │              │
 *	   0 └──────────────┘
 *	     0    1    2   3 s
 *
 * Values are of slots of time, so lines and areas are steps: a picture claims nothing between two values. Names stand in the picture where
 * there is room for them, with a halo of the background's colour; where there is none the key beside the picture has them.
 */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "report.h"

#define WIDTH  360.0
#define LEFT   40.0
#define RIGHT  350.0
#define TOP    30.0
#define HEIGHT 112.0
#define BOTTOM (TOP + HEIGHT)
#define UNIT_X 2.0
#define UNIT_Y 11.0
#define LETTER 6.6 /* a letter's width */
#define LINE   13.0
#define BANDS  150.0 /* height of all bands together, at most */
#define BAND   12.0  /* of one, at most */

/* ---- axes ---- */

/* 1, 2 or 5 times a power of ten, so that at most `most` of them fit into `span`. */
static double tick_step(double span, unsigned most)
{
	double step = pow(10, floor(log10(span / most)));

	if (step * most >= span)
		return step;
	if (2 * step * most >= span)
		return 2 * step;
	return 5 * step * most >= span ? 5 * step : 10 * step;
}

static double round_top(double top)
{
	double step = top > 0 ? tick_step(top, 4) : 1;

	return top > 0 ? ceil(top / step - 1e-9) * step : 1;
}

static double x_of(const struct drawing *d, int64_t at_ns)
{
	double share = (double)at_ns / (double)d->duration_ns;

	return LEFT + (RIGHT - LEFT) * (share < 0 ? 0 : share > 1 ? 1 : share);
}

static double y_of(double value, double top)
{
	return BOTTOM - HEIGHT * value / top;
}

static struct text tick_words(double value)
{
	struct text t;

	if (value >= 10000)
		snprintf(t.s, sizeof(t.s), "%.30sk", number_text(value / 1000, 1).s);
	else
		t = number_text(value, 3);
	return t;
}

static void draw_times(struct drawing *d, double bottom)
{
	double seconds = (double)d->duration_ns / 1e9, step = tick_step(seconds, 6);

	unsigned count = (unsigned)(seconds / step * 1.0001);

	for (unsigned i = 0; i <= count; i++) {
		double at = step * i, x = x_of(d, (int64_t)(at * 1e9));
		bool last = i == count;
		fprintf(d->out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/><text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s%s</text>", x, bottom,
		        last && x > RIGHT - 20 ? "e" : "m", last && x > RIGHT - 20 ? x + 8 : x, bottom + 16, number_text(at, 3).s,
		        last ? "\302\240s" : "");
	}
	fprintf(d->out, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, bottom, RIGHT);
}

static void draw_unit(const struct drawing *d)
{
	fprintf(d->out, "<text x=\"%.0f\" y=\"%.0f\">%s</text>", UNIT_X, UNIT_Y, d->unit);
}

static void draw_values(const struct drawing *d, double top)
{
	double step = tick_step(top, 4);
	unsigned count = (unsigned)(top / step * 1.0001);

	for (unsigned i = 0; i <= count; i++) {
		double value = step * i, y = y_of(value, top);
		if (value > 0)
			fprintf(d->out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/>", LEFT, y, RIGHT);
		fprintf(d->out, "<text class=\"e\" x=\"%.1f\" y=\"%.1f\">%s</text>", LEFT - 5, y + 4, tick_words(value).s);
	}
	draw_unit(d);
}

/* How many letters a line above the picture that is used up to there has room for, from *at on: where the time is shaded, if it can be. */
static double room_in_line(double length, double from, double used, double *at)
{
	*at = fmax(fmin(from, RIGHT - LETTER * length), used);
	return floor((RIGHT - *at) / LETTER);
}

/* In the line next to the picture, or else in the one of the unit; in part where neither has room for all. used: of both lines. */
static void draw_trouble_words(const struct drawing *d, const char *words, double from, double *used)
{
	double length = (double)strlen(words), at, room = room_in_line(length, from, used[0], &at), above;
	size_t line = room < length && room_in_line(length, from, used[1], &above) >= length ? 1 : 0;

	if (line == 1)
		room = room_in_line(length, from, used[1], &at);
	bool whole = room >= length;
	if (!whole && room < 8)
		return;
	char text[sizeof(((struct trouble *)0)->words)];
	snprintf(text, sizeof(text), "%.*s%s", whole ? (int)length : (int)room - 2, words, whole ? "" : "..");
	fprintf(d->out, "<text class=\"f\" x=\"%.1f\" y=\"%.1f\">", at, line == 0 ? TOP - 5 : UNIT_Y);
	html_text(d->out, text);
	fputs("</text>", d->out);
	used[line] = at + LETTER * ((double)strlen(text) + 1);
}

static void draw_troubles(const struct drawing *d, double bottom)
{
	double used[2] = {LEFT, UNIT_X + LETTER * ((double)strlen(d->unit) + 1)};

	for (size_t i = 0; i < d->troubles->count; i++) {
		const struct trouble *t = &d->troubles->items[i];
		double from = x_of(d, t->from_ns), to = x_of(d, t->to_ns);
		fprintf(d->out, "<path class=\"fault\" d=\"M%.1f %.1fH%.1fV%.1fH%.1fZ\"/>", from, TOP, fmax(to, from + 1), bottom, from);
		/* The same words again say nothing new. */
		if (i == 0 || strcmp(t->words, t[-1].words) != 0)
			draw_trouble_words(d, t->words, from, used);
	}
}

static void begin_picture(struct drawing *d, double height)
{
	unsigned n = d->number++;

	fprintf(d->out, "<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-labelledby=\"t%u d%u\"><title id=\"t%u\">", WIDTH, height, n, n,
	        n);
	html_text(d->out, d->title);
	fprintf(d->out, "</title><desc id=\"d%u\">", n);
}

/* ---- lines ---- */

static void draw_line(const struct drawing *d, const struct chart *c, const struct series *s, double top)
{
	bool pen = false;
	double last = NAN;

	fprintf(d->out, "<path class=\"line %s%s\" d=\"", s->color, strcmp(s->name, "limit") == 0 ? " dash" : "");
	for (size_t i = 0; i < c->slots; i++) {
		double value = s->values[i];
		double x = x_of(d, (int64_t)i * c->slot_ns), next = x_of(d, (int64_t)(i + 1) * c->slot_ns);
		if (isnan(value)) {
			if (pen)
				fprintf(d->out, "H%.1f", x);
			pen = false;
			continue;
		}
		if (!pen)
			fprintf(d->out, "M%.1f %.1f", x, y_of(value, top));
		else if (value != last)
			fprintf(d->out, "H%.1fV%.1f", x, y_of(value, top));
		pen = true;
		last = value;
		/* A gap or the end is drawn up to there. */
		if (i + 1 == c->slots)
			fprintf(d->out, "H%.1f", next);
	}
	fputs("\"/>", d->out);
}

static void draw_name(const struct drawing *d, const struct series *s, const char *class, double x, double y)
{
	fprintf(d->out, "<text class=\"l %s\" x=\"%.1f\" y=\"%.1f\">", class, x, y);
	html_text(d->out, s->name);
	fputs("</text>", d->out);
}

/* Where a name stands. */
struct place {
	double x, y; /* the middle of its base line */
	double half; /* of its width */
};

static bool is_taken(const struct place *places, size_t count, const struct place *p)
{
	for (size_t i = 0; i < count; i++)
		if (fabs(places[i].x - p->x) < places[i].half + p->half && fabs(places[i].y - p->y) < LINE)
			return true;
	return false;
}

/* Whether a line steps through that height at the beginning of a slot. */
static bool steps_through(const struct series *s, size_t slot, double y, double top)
{
	if (slot == 0 || isnan(s->values[slot]) || isnan(s->values[slot - 1]))
		return false;
	double a = y_of(s->values[slot - 1], top), b = y_of(s->values[slot], top);
	return a != b && y > fmin(a, b) - LINE / 2 && y < fmax(a, b) + LINE / 2;
}

/* How far the other lines are from where the name of line n would stand, above or below its own: the nearest of all slots beneath it. */
static double room_for(const struct drawing *d, const struct chart *c, size_t n, const struct place *p, double top)
{
	double room = HEIGHT;

	for (size_t i = 0; i < c->slots; i++) {
		double x = x_of(d, (int64_t)i * c->slot_ns), next = x_of(d, (int64_t)(i + 1) * c->slot_ns);
		if (next < p->x - p->half || x > p->x + p->half)
			continue;
		for (size_t m = 0; m < c->count; m++) {
			double value = c->series[m].values[i];
			double distance = isnan(value) ? HEIGHT : fabs(y_of(value, top) - (p->y - 4));
			if (steps_through(&c->series[m], i, p->y - 4, top))
				distance = 0;
			/* Its own line may touch it, and must not cross it. */
			room = fmin(room, m == n ? distance + LINE / 2 : distance);
		}
	}
	return room;
}

/* Beside its line where most room is, clear of names that stand there already. Where there is nothing the key has to do. */
static bool find_place(const struct drawing *d, const struct chart *c, size_t n, double top, const struct place *taken, size_t count,
                       struct place *out)
{
	const struct series *s = &c->series[n];
	double best = 0;

	out->half = LETTER * (double)strlen(s->name) / 2;
	for (size_t i = 0; i < c->slots; i++) {
		for (int side = 0; side < 2 && !isnan(s->values[i]); side++) {
			struct place p = {.half = out->half};
			p.x = fmin(fmax(x_of(d, (int64_t)i * c->slot_ns + c->slot_ns / 2), LEFT + p.half + 2), RIGHT - p.half - 2);
			p.y = y_of(s->values[i], top) + (side == 0 ? -4 : LINE - 1);
			if (p.y < TOP + 9 || p.y > BOTTOM - 2 || is_taken(taken, count, &p))
				continue;
			double room = room_for(d, c, n, &p, top);
			if (room <= best + 0.1)
				continue;
			best = room;
			out->x = p.x;
			out->y = p.y;
		}
	}
	return best > 0;
}

static void draw_line_names(const struct drawing *d, const struct chart *c, double top)
{
	struct place places[CHART_SERIES] = {{0}};
	size_t count = 0;

	for (size_t n = 0; n < c->count; n++) {
		char class[32];
		if (!find_place(d, c, n, top, places, count, &places[count]))
			continue;
		snprintf(class, sizeof(class), "m %s", c->series[n].color);
		draw_name(d, &c->series[n], class, places[count].x, places[count].y);
		count++;
	}
}

/* ---- areas ---- */

/* The sum of the series below number n, in a slot. */
static double below(const struct chart *c, size_t n, size_t slot)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += c->series[i].values[slot];
	return sum;
}

static void draw_area(const struct drawing *d, const struct chart *c, size_t n, double top)
{
	double last = below(c, n + 1, 0);

	fprintf(d->out, "<path class=\"area %s\" d=\"M%.1f %.1f", c->series[n].color, LEFT, y_of(last, top));
	for (size_t i = 1; i < c->slots; i++) {
		double value = below(c, n + 1, i);
		if (value != last)
			fprintf(d->out, "H%.1fV%.1f", x_of(d, (int64_t)i * c->slot_ns), y_of(value, top));
		last = value;
	}
	last = below(c, n, c->slots - 1);
	fprintf(d->out, "H%.1fV%.1f", x_of(d, (int64_t)c->slots * c->slot_ns), y_of(last, top));
	for (size_t i = c->slots - 1; i-- > 0;) {
		double value = below(c, n, i);
		if (value != last)
			fprintf(d->out, "H%.1fV%.1f", x_of(d, (int64_t)(i + 1) * c->slot_ns), y_of(value, top));
		last = value;
	}
	fprintf(d->out, "H%.1fZ\"/>", LEFT);
}

/* In the widest part of its area, where that has room for the letters. */
static void draw_area_name(const struct drawing *d, const struct chart *c, size_t n, double top)
{
	double need = LETTER * (double)strlen(c->series[n].name) + 4, slot = x_of(d, c->slot_ns) - LEFT, best = LINE, x = 0, y = 0;
	size_t span = slot > 0 ? (size_t)ceil(need / slot) : c->slots + 1;

	for (size_t from = 0; from + span <= c->slots; from++) {
		double floor_y = BOTTOM, roof_y = TOP;
		for (size_t i = from; i < from + span; i++) {
			floor_y = fmin(floor_y, y_of(below(c, n, i), top));
			roof_y = fmax(roof_y, y_of(below(c, n + 1, i), top));
		}
		if (floor_y - roof_y <= best)
			continue;
		best = floor_y - roof_y;
		x = LEFT + slot * ((double)from + (double)span / 2);
		y = (floor_y + roof_y) / 2 + 4;
	}
	if (x > 0)
		draw_name(d, &c->series[n], "on m", x, y);
}

/* What a slot's values are, for whoever points at it. */
static void draw_hits(const struct drawing *d, const struct chart *c)
{
	for (size_t i = 0; i < c->slots; i++) {
		double x = x_of(d, (int64_t)i * c->slot_ns), next = x_of(d, (int64_t)(i + 1) * c->slot_ns);
		fprintf(d->out, "<path class=\"hit\" d=\"M%.1f %.1fH%.1fV%.1fH%.1fZ\"><title>%s to %s s", x, TOP, next, BOTTOM, x,
		        number_text((double)((int64_t)i * c->slot_ns) / 1e9, 3).s,
		        number_text((double)((int64_t)(i + 1) * c->slot_ns) / 1e9, 3).s);
		for (size_t n = 0; n < c->count; n++) {
			double value = c->series[n].values[i];
			if (isnan(value) || (value == 0 && c->stacked))
				continue;
			fputs("\n", d->out);
			html_text(d->out, c->series[n].name);
			fprintf(d->out, ": %s %s", number_text(value, 2).s, d->unit);
		}
		fputs("</title></path>", d->out);
	}
}

/* ---- a chart ---- */

static void describe(const struct drawing *d, const struct chart *c)
{
	for (size_t n = 0; n < c->count; n++) {
		const struct series *s = &c->series[n];
		double most = NAN;
		size_t at = 0;
		for (size_t i = 0; i < c->slots; i++) {
			if (isnan(s->values[i]) || (!isnan(most) && s->values[i] <= most))
				continue;
			most = s->values[i];
			at = i;
		}
		if (isnan(most))
			continue;
		fputs(n > 0 ? "; " : "", d->out);
		html_text(d->out, s->name);
		fprintf(d->out, ": at most %s %s, at %s s", number_text(most, 2).s, d->unit,
		        number_text((double)((int64_t)at * c->slot_ns) / 1e9, 3).s);
	}
	for (size_t i = 0; i < d->troubles->count; i++) {
		const struct trouble *t = &d->troubles->items[i];
		fputs(". From ", d->out);
		fprintf(d->out, "%s to %s s: ", number_text((double)t->from_ns / 1e9, 3).s, number_text((double)t->to_ns / 1e9, 3).s);
		html_text(d->out, t->words);
	}
}

void draw_chart(struct drawing *d, const struct chart *chart, double top)
{
	top = round_top(top);
	begin_picture(d, BOTTOM + 22);
	describe(d, chart);
	fputs("</desc>", d->out);
	draw_troubles(d, BOTTOM);
	draw_values(d, top);
	for (size_t n = 0; n < chart->count && chart->stacked; n++)
		draw_area(d, chart, n, top);
	for (size_t n = 0; n < chart->count && !chart->stacked; n++)
		draw_line(d, chart, &chart->series[n], top);
	draw_times(d, BOTTOM);
	for (size_t n = 0; n < chart->count && chart->stacked; n++)
		draw_area_name(d, chart, n, top);
	if (!chart->stacked)
		draw_line_names(d, chart, top);
	if (chart->hover)
		draw_hits(d, chart);
	fputs("</svg>\n", d->out);
}

/* ---- breakers ---- */

static const char *state_color(unsigned state)
{
	return state == RESC_BREAKER_OPEN ? "failed" : state == RESC_HALF_OPEN ? "fallback" : "closed";
}

/* From the transition before `from`, on. Half-open is often too short to see: it is drawn at least a line wide. */
static void draw_state(const struct drawing *d, unsigned state, int64_t from_ns, int64_t to_ns, double y, double height)
{
	double from = x_of(d, from_ns), to = x_of(d, to_ns);

	if (state == RESC_HALF_OPEN)
		to = fmax(to, from + 1.5);
	fprintf(d->out, "<path class=\"area %s\" d=\"M%.1f %.1fH%.1fV%.1fH%.1fZ\"><title>%s from %s to %s s</title></path>",
	        state_color(state), from, y, to, y + height, from, breaker_state_word(state), number_text((double)from_ns / 1e9, 3).s,
	        number_text((double)to_ns / 1e9, 3).s);
	const char *name = breaker_state_word(state);
	if (height >= LINE && to - from > LETTER * (double)strlen(name) + 4)
		fprintf(d->out, "<text class=\"l on m\" x=\"%.1f\" y=\"%.1f\">%s</text>", (from + to) / 2, y + height / 2 + 4, name);
}

/* Half-open states on top, so that none is hidden by what comes after it. */
static void draw_band(const struct drawing *d, const struct take *take, uint16_t resource, uint16_t worker, double y, double height)
{
	for (unsigned pass = 0; pass < 2; pass++) {
		unsigned state = RESC_CLOSED;
		int64_t since = 0;
		for (size_t i = 0; i <= take->transition_count; i++) {
			const struct transition_note *t = i < take->transition_count ? &take->transitions[i] : NULL;
			if (t != NULL && (t->resource != resource || t->worker != worker))
				continue;
			int64_t until = t == NULL || t->at_ns > take->duration_ns ? take->duration_ns : t->at_ns;
			if ((state == RESC_HALF_OPEN) == (pass == 1) && until > since)
				draw_state(d, state, since, until, y, height);
			since = until;
			state = t == NULL ? state : t->to;
		}
	}
}

static void describe_bands(const struct drawing *d, const struct take *take, uint16_t resource)
{
	unsigned opened = 0;

	for (size_t i = 0; i < take->transition_count; i++)
		opened += take->transitions[i].resource == resource && take->transitions[i].to == RESC_BREAKER_OPEN;
	fprintf(d->out, "%u opening%s in all.", opened, opened == 1 ? "" : "s");
}

void draw_bands(struct drawing *d, const struct take *take, uint16_t resource)
{
	unsigned count = take->view == VIEW_OWN ? take->scenario->workers : 1;
	double step = take->view == VIEW_OWN ? fmin(BAND, BANDS / count) : 2 * BAND, bottom = TOP + step * count;
	unsigned named = step >= BAND ? 1 : (unsigned)ceil(BAND / step);

	begin_picture(d, bottom + 22);
	describe_bands(d, take, resource);
	fputs("</desc>", d->out);
	draw_troubles(d, bottom);
	draw_unit(d);
	for (unsigned i = 0; i < count; i++) {
		double y = TOP + step * i;
		draw_band(d, take, resource, (uint16_t)i, y, step > 4 ? step - 1 : step);
		if (take->view == VIEW_OWN && i % named == 0)
			fprintf(d->out, "<text class=\"e\" x=\"%.1f\" y=\"%.1f\">%u</text>", LEFT - 5, y + step / 2 + 4, i + 1);
	}
	if (take->view == VIEW_SHARED)
		fprintf(d->out, "<text class=\"e\" x=\"%.1f\" y=\"%.1f\">all</text>", LEFT - 5, TOP + step / 2 + 4);
	draw_times(d, bottom);
	fputs("</svg>\n", d->out);
}
