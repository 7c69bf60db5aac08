/* SPDX-License-Identifier: MIT */
/* The parts of the report: text, charts of a take, and how a chart is drawn. */
#ifndef REHEARSE_REPORT_H
#define REHEARSE_REPORT_H

#include <stdio.h>

#include "present.h"
#include "telling.h"

/* ---- text ---- */

/* Any bytes, as HTML shows them: nothing in them is markup, or moves what stands around. */
void html_text(FILE *out, const char *text);
/* The style sheet, between <style> and </style>. */
extern const char report_style[];

/* ---- charts ---- */

#define CHART_SERIES 12u

struct series {
	char name[32];
	const char *color; /* a class of the style sheet */
	double *values;    /* one a slot; NAN: a gap */
};

/* What one chart shows of one take. */
struct chart {
	bool stacked; /* areas on top of each other; otherwise lines */
	bool hover;   /* each slot tells its values to whoever points at it */
	int64_t slot_ns;
	size_t slots;
	size_t count;
	struct series series[CHART_SERIES];
};

/* A time at which something was wrong with a dependency. */
struct trouble {
	int64_t from_ns, to_ns;
	char words[128];
};
#define TROUBLES_MOST 64u

struct troubles {
	size_t count;
	struct trouble items[TROUBLES_MOST];
};

/* Of a whole take. Beyond TROUBLES_MOST (a dependency that flaps for long) times are joined. */
void troubles_find(const struct take *take, struct troubles *out);

void chart_free(struct chart *chart);
/* The highest value, stacked ones together. */
double chart_top(const struct chart *chart);

/* ---- drawing ---- */

struct drawing {
	FILE *out;
	unsigned number; /* of the next picture in the document */
	const struct troubles *troubles;
	int64_t duration_ns;
	const char *title; /* of the picture, for who does not see it */
	const char *unit;  /* over the axis */
};

/* One picture: axes from 0 to top and from 0 to the duration, the troubles behind. */
void draw_chart(struct drawing *drawing, const struct chart *chart, double top);
/* The breakers of a resource as bands over time, one a worker on own views. */
void draw_bands(struct drawing *drawing, const struct take *take, uint16_t resource);

/* ---- the charts of a take ---- */

/* What a row of the report is about. */
enum row_of { ROW_OF_TAKE, ROW_OF_LOAD, ROW_OF_RESOURCE };

/* One row of the report: the same chart of each view. Rows of loads are there where there are several. */
struct row {
	const char *title;
	const char *text;
	const char *unit;
	/* 0, -ENOMEM; a chart without series has nothing to show. index: of the load or the resource. */
	int (*make)(const struct take *take, uint16_t index, struct chart *out);
	enum row_of of;
	bool last; /* below the breakers */
};
extern const struct row report_rows[];
extern const size_t report_row_count;

#endif
