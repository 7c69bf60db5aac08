/* SPDX-License-Identifier: MIT */
/*
 * The figures of a take: each is defined once, in one table, from which come the expectations of scenarios, the tables, the JSON and
 * the manual.
 *
 * What counts when: a request by its arrival, an attempt by when it was asked for, a receipt by when it was received, a transition and a
 * sample by their own time. On own views a figure of a resource is about the workers' own together.
 */
#ifndef REHEARSE_FIGURES_H
#define REHEARSE_FIGURES_H

#include "format.h"
#include "take.h"

/* Of what a figure can be asked. */
enum figure_of { OF_LOAD, OF_RESOURCE, OF_DEPENDENCY };
enum figure_unit { UNIT_COUNT, UNIT_SHARE, UNIT_MS, UNIT_RATIO };

struct figure {
	const char *name;
	enum figure_of of;
	enum figure_unit unit;
	bool takes_time; /* from and to: it can be asked of a part of the take */
	bool takes_nth;
	bool takes_width;       /* and there is none without */
	const char *text;       /* for people: "requests served fresh" */
	const char *definition; /* for the manual: what exactly is counted */
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

/* "1,204", "98.2%", "301ms", "1.07"; NAN: "none". */
struct text figure_value_text(enum figure_unit unit, double value);
/* "load", "resource", "dependency". */
const char *figure_of_name(enum figure_of of);
/* "count", "share", "ms", "ratio". */
const char *figure_unit_name(enum figure_unit unit);

#endif
