/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: an expectation that does not hold is read by somebody who did not write it. What was measured, of what and when, and
 * what was expected of it must be said in words, and always in the same ones.
 */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "verdict.h"

/* Adds to a text of that size; *used may pass it, and then nothing more is added. */
__attribute__((format(printf, 4, 5))) static void add(char *text, size_t size, size_t *used, const char *format, ...)
{
	va_list args;

	if (*used >= size)
		return;
	va_start(args, format);
	int n = vsnprintf(text + *used, size - *used, format, args);
	va_end(args);
	*used += n > 0 ? (size_t)n : 0;
}

static const char *ordinal(uint32_t n)
{
	if (n / 10 % 10 == 1)
		return "th";
	return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

void figure_text(const struct figure_ref *ref, char *text, size_t size)
{
	const struct figure *figure = figure_find(ref->figure);
	size_t used = 0;

	text[0] = '\0';
	if (ref->of[0] != '\0')
		add(text, size, &used, "%s: ", ref->of);
	add(text, size, &used, "%s", figure == NULL ? ref->figure : figure->text);
	if (figure == NULL)
		return;
	if (figure->takes_nth)
		add(text, size, &used, " (%u%s)", ref->nth == 0 ? 1 : ref->nth, ordinal(ref->nth == 0 ? 1 : ref->nth));
	if (figure->takes_width)
		add(text, size, &used, " (%s)", duration_setting_ns((uint64_t)ref->width_ns).s);
	if (!figure->takes_time)
		return;
	if (ref->from_ns > 0 || ref->to_ns != SCENARIO_FOREVER)
		add(text, size, &used, ",");
	if (ref->from_ns > 0)
		add(text, size, &used, " from %s", duration_setting_ns((uint64_t)ref->from_ns).s);
	if (ref->to_ns != SCENARIO_FOREVER)
		add(text, size, &used, " to %s", duration_setting_ns((uint64_t)ref->to_ns).s);
}

struct text expected_words(const struct expectation *expectation)
{
	static const char *const words[] = {[IS_EQUAL] = "", [IS_AT_LEAST] = "at least ", [IS_AT_MOST] = "at most ", [IS_ABOUT] = ""};
	enum figure_unit unit = expectation_unit(expectation);
	struct text t, value = figure_value_text(unit, expectation->value), within = figure_value_text(unit, expectation->tolerance);

	if (expectation->relation == IS_ABOUT)
		snprintf(t.s, sizeof(t.s), "%.14s within %.14s", value.s, within.s);
	else
		snprintf(t.s, sizeof(t.s), "%s%.28s", words[expectation->relation], value.s);
	return t;
}

void expectation_text(const struct expectation *expectation, char *text, size_t size)
{
	size_t used = 0;

	add(text, size, &used, "%s", expected_words(expectation).s);
	if (expectation->has_published)
		add(text, size, &used, ", published %s", figure_value_text(expectation_unit(expectation), expectation->published).s);
}
