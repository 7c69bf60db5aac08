/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a rehearsal that only shows figures leaves it to its reader to see that one of them is wrong. What is expected stands in
 * the scenario, and here it is held against each take that was played. Where there is no figure nothing holds: a percentile of no requests
 * is not "at most 100 ms".
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "judging.h"

/* Shares and quotients are not exact in binary: 0.1 + 0.2 is at most 0.3. */
#define HAIR 1e-9

bool expectation_holds(const struct expectation *expectation, double value)
{
	double hair = HAIR * fmax(1, fabs(expectation->value));

	switch (expectation->relation) {
	case IS_EQUAL:
		return fabs(value - expectation->value) <= hair;
	case IS_AT_LEAST:
		return value >= expectation->value - hair;
	case IS_AT_MOST:
		return value <= expectation->value + hair;
	case IS_ABOUT:
		return fabs(value - expectation->value) <= expectation->tolerance + hair;
	}
	return false;
}

enum figure_unit expectation_unit(const struct expectation *expectation)
{
	const struct figure *figure = figure_find(expectation->what.figure);
	return expectation->relative || figure == NULL ? UNIT_RATIO : figure->unit;
}

/* ---- which take ---- */

bool is_about(const struct figure_ref *ref, const struct take *take)
{
	if (ref->variant[0] != '\0' && strcmp(ref->variant, take->scenario->variant) != 0)
		return false;
	return ref->view < 0 || ref->view == (int)take->view;
}

/* What a figure is relative to is in the same take, unless it names another variant or view. NULL: that was not played. */
static const struct take *other_take(const struct figure_ref *to, const struct takes *takes, const struct take *take)
{
	const char *variant = to->variant[0] != '\0' ? to->variant : take->scenario->variant;
	int view = to->view >= 0 ? to->view : (int)take->view;

	for (size_t i = 0; i < takes->count; i++)
		if (strcmp(takes->items[i].scenario->variant, variant) == 0 && (int)takes->items[i].view == view)
			return &takes->items[i];
	return NULL;
}

/* ---- judging ---- */

static double limited_value(const struct take *take, const struct figure_ref *ref, int64_t from_ns, int64_t to_ns)
{
	struct figure_ref limited = *ref;

	if (limited.from_ns < from_ns)
		limited.from_ns = from_ns;
	if (limited.to_ns > to_ns)
		limited.to_ns = to_ns;
	return figure_value(take, &limited);
}

bool judge(const struct expectation *expectation, const struct takes *takes, const struct take *take, int64_t from_ns, int64_t to_ns,
           struct verdict *out)
{
	const struct take *other = NULL;

	if (!is_about(&expectation->what, take) || expectation->what.from_ns >= to_ns || expectation->what.to_ns <= from_ns)
		return false;
	if (expectation->relative && (other = other_take(&expectation->to, takes, take)) == NULL)
		return false;
	double value = limited_value(take, &expectation->what, from_ns, to_ns);
	if (expectation->relative) {
		double whole = limited_value(other, &expectation->to, from_ns, to_ns);
		value = whole != 0 ? value / whole : NAN;
	}
	*out = (struct verdict){.expectation = expectation, .take = take, .value = value, .holds = expectation_holds(expectation, value)};
	return true;
}

int verdicts_add(struct verdicts *verdicts, const struct verdict *verdict)
{
	struct verdict *items = reallocarray(verdicts->items, verdicts->count + 1, sizeof(*items));

	if (items == NULL)
		return -ENOMEM;
	items[verdicts->count++] = *verdict;
	verdicts->items = items;
	verdicts->failed += !verdict->holds;
	return 0;
}

int verdicts_judge(struct verdicts *verdicts, const struct expectation *list, size_t count, const struct takes *takes)
{
	struct verdict verdict;

	for (size_t i = 0; i < count; i++) {
		for (size_t t = 0; t < takes->count; t++) {
			if (!judge(&list[i], takes, &takes->items[t], 0, SCENARIO_FOREVER, &verdict))
				continue;
			if (verdicts_add(verdicts, &verdict) != 0)
				return -ENOMEM;
		}
	}
	return 0;
}

void verdicts_free(struct verdicts *verdicts)
{
	free(verdicts->items);
	*verdicts = (struct verdicts){0};
}

/* ---- all of it ---- */

static bool game_day_is_good(const struct game_day_result *day)
{
	return !day->given || day->hypothesis_holds;
}

static size_t count_not_judged(const struct scenarios *scenarios, const struct verdicts *verdicts)
{
	size_t judged = 0;

	for (size_t i = 0; i < scenarios->expectation_count; i++) {
		size_t v = 0;
		while (v < verdicts->count && verdicts->items[v].expectation != &scenarios->expectations[i])
			v++;
		judged += v < verdicts->count;
	}
	return scenarios->expectation_count - judged;
}

int outcome_judge(const struct scenarios *scenarios, const struct take *takes, size_t take_count, struct outcome *out)
{
	const struct takes all = {takes, take_count};

	*out = (struct outcome){0};
	int r = verdicts_judge(&out->verdicts, scenarios->expectations, scenarios->expectation_count, &all);
	if (r == 0)
		r = compare_views(scenarios, &all, out);
	if (r == 0)
		r = game_day_judge(scenarios, &all, &out->game_day);
	if (r != 0) {
		outcome_free(out);
		return r;
	}
	out->not_judged = count_not_judged(scenarios, &out->verdicts);
	out->good = out->verdicts.failed == 0 && game_day_is_good(&out->game_day);
	return 0;
}

void outcome_free(struct outcome *outcome)
{
	verdicts_free(&outcome->verdicts);
	free(outcome->compared);
	game_day_free(&outcome->game_day);
	*outcome = (struct outcome){0};
}
