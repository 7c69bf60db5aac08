/* SPDX-License-Identifier: MIT */
/*
 * The figures of a take: each is defined once, in one table, from which come the expectations of scenarios, the tables, the JSON and
 * the manual.
 */
#ifndef REHEARSE_FIGURES_H
#define REHEARSE_FIGURES_H

#include "take.h"

/* Of what a figure can be asked. */
enum figure_of { OF_LOAD, OF_RESOURCE, OF_DEPENDENCY };
enum figure_unit { UNIT_COUNT, UNIT_SHARE, UNIT_MS, UNIT_RATIO };

struct figure {
	const char *name;
	enum figure_of of;
	enum figure_unit unit;
	bool takes_nth, takes_width;
	const char *text; /* for people: "requests served with a fresh answer" */
};

/* NULL: there is none of that name. */
const struct figure *figure_find(const char *name);
/* All of them, for the manual and for messages. */
const struct figure *figures_all(size_t *count);

/*
 * The value of a figure in a take. variant and view of the reference are the caller's business. NAN where there is none (the third opening
 * of a breaker that opened twice; a percentile of nothing).
 */
double figure_value(const struct take *take, const struct figure_ref *ref);

#endif
