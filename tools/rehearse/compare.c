/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the sentence that says what the shared view is good for, and says as plainly where it makes no difference. Two takes are
 * never quite the same, so a difference that could be chance is none: less than 2 %, one call, two milliseconds, half a point of a share.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "judging.h"

#define NOISE 0.02

static const double least_difference[] = {[UNIT_COUNT] = 1, [UNIT_SHARE] = 0.005, [UNIT_MS] = 2, [UNIT_RATIO] = 0.02};

static enum figure_unit unit_of(const struct comparison *comparison)
{
	const struct figure *figure = figure_find(comparison->what.figure);
	return figure == NULL ? UNIT_RATIO : figure->unit;
}

static enum better better_view(const struct comparison *comparison, double own, double shared)
{
	if (isnan(own) || isnan(shared))
		return BETTER_NONE;
	if (fabs(own - shared) <= fmax(least_difference[unit_of(comparison)], NOISE * fmax(own, shared)))
		return BETTER_NONE;
	return (shared < own) == comparison->less_is_better ? BETTER_SHARED : BETTER_OWN;
}

static const struct take *on_view(const struct takes *takes, const struct take *take, enum view view)
{
	for (size_t i = 0; i < takes->count; i++)
		if (takes->items[i].view == view && strcmp(takes->items[i].scenario->variant, take->scenario->variant) == 0)
			return &takes->items[i];
	return NULL;
}

static int add(struct outcome *out, const struct comparison *comparison, const struct take *own, const struct take *shared)
{
	struct compared *list = reallocarray(out->compared, out->compared_count + 1, sizeof(*list));

	if (list == NULL)
		return -ENOMEM;
	out->compared = list;
	struct compared *compared = &list[out->compared_count++];
	*compared = (struct compared){
	        .comparison = comparison,
	        .variant = own->scenario->variant,
	        .own = figure_value(own, &comparison->what),
	        .shared = figure_value(shared, &comparison->what),
	};
	compared->better = better_view(comparison, compared->own, compared->shared);
	return 0;
}

int compare_views(const struct scenarios *scenarios, const struct takes *takes, struct outcome *out)
{
	for (size_t i = 0; i < scenarios->comparison_count; i++) {
		const struct comparison *comparison = &scenarios->comparisons[i];
		for (size_t t = 0; t < takes->count; t++) {
			const struct take *own = &takes->items[t];
			const char *variant = comparison->what.variant;
			if (own->view != VIEW_OWN || (variant[0] != '\0' && strcmp(variant, own->scenario->variant) != 0))
				continue;
			const struct take *shared = on_view(takes, own, VIEW_SHARED);
			if (shared != NULL && add(out, comparison, own, shared) != 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* ---- the sentence ---- */

static const char *more_word(enum figure_unit unit, bool less)
{
	if (unit == UNIT_COUNT)
		return less ? "fewer" : "more";
	return less ? "less" : "more";
}

/* "28% fewer", "2.4 times as many", "47 points more": the shared view against own ones. */
static struct text difference(enum figure_unit unit, double own, double shared)
{
	const char *which = more_word(unit, shared < own);
	struct text t;

	if (unit == UNIT_SHARE)
		snprintf(t.s, sizeof(t.s), "%.16s points %s", number_text(fabs(shared - own) * 100, 1).s, which);
	else if (shared < own)
		snprintf(t.s, sizeof(t.s), "%.0f%% %s", (1 - shared / own) * 100, which);
	else if (shared < 2 * own)
		snprintf(t.s, sizeof(t.s), "%.0f%% %s", (shared / own - 1) * 100, which);
	else if (own > 0)
		snprintf(t.s, sizeof(t.s), "%.16s times as %s", number_text(shared / own, 1).s, unit == UNIT_COUNT ? "many" : "much");
	else
		snprintf(t.s, sizeof(t.s), "%.16s %s", figure_value_text(unit, shared).s, which);
	return t;
}

void compared_text(const struct compared *compared, char *text, size_t size)
{
	enum figure_unit unit = unit_of(compared->comparison);
	struct text own = figure_value_text(unit, compared->own), shared = figure_value_text(unit, compared->shared);

	const char *said = "no difference";
	struct text by;

	if (compared->better != BETTER_NONE) {
		by = difference(unit, compared->own, compared->shared);
		said = by.s;
	}
	if (isnan(compared->own) || isnan(compared->shared))
		snprintf(text, size, "%s on own views, %s on the shared one", own.s, shared.s);
	else
		snprintf(text, size, "%s on own views, %s on the shared one: %s", own.s, shared.s, said);
}
