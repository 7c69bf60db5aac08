/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a figure that is computed in two places means two things before long. Here a name has one definition, which scenarios
 * are checked against, which people read in the manual, and which stands beside the function that computes it.
 */
#include "figures.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "figures_table.h"

#define NOT   false, false, false
#define TIME  true, false, false
#define NTH   true, true, false
#define WIDTH true, false, true
#define SPAN  false, false, true

static const struct figure figures[] = {
#define X(name, of, unit, asked, measure, which, text, definition) {#name, OF_##of, UNIT_##unit, asked, text, definition},
        FIGURES(X)
#undef X
};
#define FIGURE_COUNT (sizeof(figures) / sizeof(figures[0]))

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
		         size < 10 ? number_text(value, 1).s : count_text((uint64_t)llround(fmax(value, 0))).s);
	else
		return number_text(value, 2);
	return t;
}
