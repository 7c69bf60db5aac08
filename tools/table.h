/* SPDX-License-Identifier: MIT */
/* Aligned text for a screen or a pipe. */
#ifndef RESCTL_TABLE_H
#define RESCTL_TABLE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

/* Where text goes to. */
struct screen {
	bool terminal;  /* people read it */
	bool color;     /* terminal, and nobody said NO_COLOR */
	bool utf8;      /* it shows UTF-8 */
	unsigned width; /* columns; 0: no limit, it is a pipe or a file */
};

enum style { STYLE_PLAIN, STYLE_BAD, STYLE_DOUBT, STYLE_FAINT, STYLE_STRONG };

/* Looks at stdout, the locale, NO_COLOR, TERM and COLUMNS. setlocale must have been called. */
void screen_look(struct screen *screen);
/* The same of another stream. */
void screen_look_at(struct screen *screen, FILE *stream);
/* The sequences around a styled text; "" without colour. */
const char *style_on(const struct screen *screen, enum style style);
const char *style_off(const struct screen *screen, enum style style);

/* Makes text safe and honest on that screen, in place: no control or direction characters; ASCII where it shows no UTF-8. */
void screen_clean(const struct screen *screen, char *text);
/* Columns that text takes. */
unsigned text_columns(const char *text);

struct column {
	const char *title;
	bool right;     /* numbers */
	bool flexible;  /* the last one only: cut, or broken, to what is left of the line */
	unsigned given; /* given up when the line is too short; the highest first; 0: never */
};

struct table;

/* columns must live as long as the table. NULL: out of memory. */
struct table *table_new(const struct screen *screen, const struct column *columns, size_t count);
/* The flexible column is broken between words to what is left of the line, and not cut. */
void table_wrap(struct table *table);
/* That column is at least so wide. */
void table_widen(struct table *table, size_t column, unsigned width);
/* The next cell, from left to right. */
__attribute__((format(printf, 3, 4))) void table_add(struct table *table, enum style style, const char *format, ...);
/*
 * Prints the rows that were added since the last time. Widths only grow, and the titles are printed once, so that a table can be
 * printed piece by piece. Returns whether memory was enough.
 */
bool table_print(struct table *table, FILE *out);
/* Titles of the columns that were left out for want of room, "P99, RETRY"; "" when none. */
const char *table_omitted(struct table *table);
void table_free(struct table *table);

/*
 * "label     text text", the text broken between words to the width of the screen, each line indented to the column. For what has
 * no columns of its own. label "" goes on under the last one.
 */
__attribute__((format(printf, 4, 5))) void print_field(const struct screen *screen, const char *label, enum style style, const char *format,
                                                       ...);
#define FIELD_INDENT 13u

#endif
