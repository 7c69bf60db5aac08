/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a figure that is computed in two places means two things before long. Here a name has one definition, which scenarios
 * are checked against, which people read in the manual, and which stands beside the function that computes it. Nothing is counted while
 * a rehearsal goes on: figures are read off the notes, as often as anybody asks, also while they are still being written. Where memory
 * does not suffice there is no value (NAN).
 */
#include "figures.h"

#include <stdio.h>
#include <string.h>

#include "figures_measure.h"
#include "figures_table.h"

/* What can be said of a figure; and the table's words for it. */
enum {
	TAKES_TIME = 1,
	TAKES_NTH = 2,
	TAKES_WIDTH = 4,
	ASKED_NOT = 0,
	ASKED_TIME = TAKES_TIME,
	ASKED_NTH = TAKES_TIME | TAKES_NTH,
	ASKED_WIDTH = TAKES_TIME | TAKES_WIDTH,
	ASKED_SPAN = TAKES_WIDTH,
};

static const struct figure figures[] = {
#define X(name, of, unit, asked, measure, which, text, definition)                                                                         \
	{#name,                                                                                                                            \
	 OF_##of,                                                                                                                          \
	 UNIT_##unit,                                                                                                                      \
	 (ASKED_##asked & TAKES_TIME) != 0,                                                                                                \
	 (ASKED_##asked & TAKES_NTH) != 0,                                                                                                 \
	 (ASKED_##asked & TAKES_WIDTH) != 0,                                                                                               \
	 text,                                                                                                                             \
	 definition},
        FIGURES(X)
#undef X
};
#define FIGURE_COUNT (sizeof(figures) / sizeof(figures[0]))

/* Beside figures[]: the two come from the same table. */
static const struct measure {
	double (*value)(const struct inquiry *q, int which);
	int which;
} measures[] = {
#define X(name, of, unit, asked, measure, which, text, definition) {measure, which},
        FIGURES(X)
#undef X
};

const struct figure *figures_all(size_t *count)
{
	*count = FIGURE_COUNT;
	return figures;
}

const struct figure *figure_find(const char *name)
{
	for (size_t i = 0; i < FIGURE_COUNT; i++)
		if (strcmp(figures[i].name, name) == 0)
			return &figures[i];
	return NULL;
}

/* The index of what a figure is asked of; -1: all; -2: there is none of that name. */
static int find_of(const struct scenario *scenario, enum figure_of of, const char *name)
{
	size_t count = of == OF_LOAD ? scenario->load_count : of == OF_RESOURCE ? scenario->resource_count : scenario->dependency_count;

	if (name[0] == '\0')
		return -1;
	for (size_t i = 0; i < count; i++) {
		const char *other = of == OF_LOAD       ? scenario->loads[i].name
		                    : of == OF_RESOURCE ? scenario->resources[i]
		                                        : scenario->dependencies[i].name;
		if (strcmp(name, other) == 0)
			return (int)i;
	}
	return -2;
}

double figure_value(const struct take *take, const struct figure_ref *ref)
{
	const struct figure *figure = figure_find(ref->figure);

	if (figure == NULL)
		return NAN;
	struct inquiry inquiry = {
	        .take = take,
	        .of = find_of(take->scenario, figure->of, ref->of),
	        .from_ns = figure->takes_time ? ref->from_ns : 0,
	        .to_ns = figure->takes_time ? ref->to_ns : SCENARIO_FOREVER,
	        .width_ns = ref->width_ns,
	        .nth = ref->nth,
	};
	const struct measure *measure = &measures[figure - figures];
	return inquiry.of < -1 ? NAN : measure->value(&inquiry, measure->which);
}

const char *figure_of_name(enum figure_of of)
{
	static const char *const names[] = {"load", "resource", "dependency"};
	return names[of];
}

const char *figure_unit_name(enum figure_unit unit)
{
	static const char *const names[] = {"count", "share", "ms", "ratio"};
	return names[unit];
}

/* Three digits are enough to compare, and more would claim more than a rehearsal knows; a count is exact. */
struct text figure_value_text(enum figure_unit unit, double value)
{
	double size = fabs(value);
	struct text t;

	if (isnan(value))
		return (struct text){"none"};
	if (unit == UNIT_COUNT && value >= 0)
		return count_text((uint64_t)llround(value));
	if (unit == UNIT_SHARE)
		snprintf(t.s, sizeof(t.s), "%.30s%%", number_text(value * 100, size < 0.01 ? 2 : 1).s);
	else if (unit == UNIT_MS)
		snprintf(t.s, sizeof(t.s), "%.30sms",
		         size < 100 ? number_text(value, 1).s : count_text((uint64_t)llround(fmax(value, 0))).s);
	else
		return number_text(value, 2);
	return t;
}
