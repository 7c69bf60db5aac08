/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: somebody who corrects a configuration at night wants all mistakes at once, each with its place, and not one a try.
 *
 * What it guarantees: the list is bounded, whatever the file (a generated one can have a mistake in each of thousands of resources); errors
 * are never crowded out by warnings; a mistake in the defaults is one line, however many resources inherit it; and what comes out of the
 * file goes to terminals and logs without its control characters. When memory is short the counts still say that there were errors.
 */
#include "config_problem.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "chars.h"

static bool is_known(const struct config_problems *problems, const struct config_problem *new)
{
	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];

		bool here = p->line == new->line && p->column == new->column;

		/* What stands at no place in the file has its path alone. */
		if (here && strcmp(p->text, new->text) == 0 && (p->line > 0 || strcmp(p->path, new->path) == 0))
			return true;
	}
	return false;
}

static void append(struct config_problems *problems, const struct config_problem *new)
{
	struct config_problem *items = realloc(problems->items, (problems->count + 1) * sizeof(*items));

	if (!items)
		return;
	items[problems->count] = *new;
	problems->items = items;
	problems->count += 1;
}

void config_problems_add(struct config_problems *problems, bool warning, const char *path, int line, int column, const char *format, ...)
{
	struct config_problem new = {.warning = warning, .line = line, .column = column};
	size_t *found = warning ? &problems->warnings : &problems->errors;
	va_list args;

	snprintf(new.path, sizeof(new.path), "%s", path);
	chars_clean(new.path, sizeof(new.path));
	va_start(args, format);
	vsnprintf(new.text, sizeof(new.text), format, args);
	va_end(args);
	chars_clean(new.text, sizeof(new.text));
	if (is_known(problems, &new))
		return;
	*found += 1;
	if (*found <= CONFIG_PROBLEMS_SHOWN)
		append(problems, &new);
}

static int compare(const void *left, const void *right)
{
	const struct config_problem *a = left, *b = right;

	if (a->warning != b->warning)
		return a->warning ? 1 : -1;
	if (a->line != b->line)
		return a->line < b->line ? -1 : 1;
	if (a->column != b->column)
		return a->column < b->column ? -1 : 1;
	return strcmp(a->text, b->text);
}

/* As the last of its kind. */
static void say_how_many_more(struct config_problems *problems, bool warning)
{
	struct config_problem more = {.warning = warning, .line = INT_MAX};
	size_t found = warning ? problems->warnings : problems->errors;

	if (found <= CONFIG_PROBLEMS_SHOWN)
		return;
	snprintf(more.text, sizeof(more.text), "... and %zu more %s", found - CONFIG_PROBLEMS_SHOWN, warning ? "warnings" : "errors");
	append(problems, &more);
}

void config_problems_finish(struct config_problems *problems)
{
	say_how_many_more(problems, false);
	say_how_many_more(problems, true);
	if (problems->count > 1)
		qsort(problems->items, problems->count, sizeof(*problems->items), compare);
	for (size_t i = 0; i < problems->count; i++) {
		if (problems->items[i].line == INT_MAX)
			problems->items[i].line = 0;
	}
}

void config_problems_free(struct config_problems *problems)
{
	free(problems->items);
	*problems = (struct config_problems){0};
}

void config_problem_line(const struct config_problem *problem, const char *file, char *line, size_t size)
{
	char place[48] = "";

	if (problem->line > 0)
		snprintf(place, sizeof(place), ":%d:%d", problem->line, problem->column);
	snprintf(line, size, "%.*s%s: %s%s%s%s", CONFIG_FILE_SHOWN, file, place, problem->warning ? "warning: " : "", problem->path,
	         problem->path[0] ? ": " : "", problem->text);
}
