/* SPDX-License-Identifier: MIT */
/* A text that is put together piece by piece; what does not fit is cut. */
#ifndef RESCTL_LINE_H
#define RESCTL_LINE_H

#include <stddef.h>
#include <stdint.h>

struct line {
	char s[1024];
	size_t used;
};

__attribute__((format(printf, 2, 3))) void say(struct line *line, const char *format, ...);
/* The same, with "; " in front where there is something already. */
__attribute__((format(printf, 2, 3))) void say_also(struct line *line, const char *format, ...);

/* "s" but for one. */
const char *plural(uint64_t n);

#endif
