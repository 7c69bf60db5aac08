/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what there is to say of a resource depends on its policy, so sentences are put together from pieces; one buffer of fixed
 * size, that never overflows, is enough for all of them.
 */
#include "line.h"

#include <stdarg.h>
#include <stdio.h>

static void add(struct line *line, const char *format, va_list args)
{
	if (line->used >= sizeof(line->s))
		return;
	line->used += (size_t)vsnprintf(line->s + line->used, sizeof(line->s) - line->used, format, args);
}

void say(struct line *line, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(line, format, args);
	va_end(args);
}

void say_also(struct line *line, const char *format, ...)
{
	va_list args;

	if (line->used > 0)
		say(line, "; ");
	va_start(args, format);
	add(line, format, args);
	va_end(args);
}

const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}
