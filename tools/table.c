/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a table is read at 80 columns on somebody's telephone as well as on a wide screen, and by grep. So: a row is one line;
 * columns are as wide as what stands in them; where the line is too short the last column is cut first and then the least
 * needed columns go, by name, so that the reader knows what he does not see. A pipe gets everything. Where the last column is what the
 * row is about, it is broken between words instead of cut.
 *
 * It is also the gate to the terminal: what comes out of a segment is other people's text. Every cell passes screen_clean().
 */
#include "table.h"

#include <langinfo.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <wchar.h>

#define GAP            2u
#define COLUMNS_MAX    16u
#define FLEXIBLE_LEAST 32u /* below this, another column is given up first */
#define CELL_SIZE      512u

/* ---- the screen ---- */

static unsigned screen_width(int fd)
{
	const char *wish = getenv("COLUMNS");
	unsigned long columns = wish == NULL ? 0 : strtoul(wish, NULL, 10);
	struct winsize size;

	if (columns >= 20 && columns <= 1000)
		return (unsigned)columns;
	if (ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20)
		return size.ws_col;
	return 80;
}

void screen_look_at(struct screen *screen, FILE *stream)
{
	const char *no_color = getenv("NO_COLOR"), *term = getenv("TERM");

	screen->terminal = isatty(fileno(stream));
	screen->color = screen->terminal && (no_color == NULL || no_color[0] == '\0') && term != NULL && strcmp(term, "dumb") != 0;
	/* A pipe may end in anything, but what reads it is not a terminal that obeys. */
	screen->utf8 = !screen->terminal || strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
	screen->width = screen->terminal ? screen_width(fileno(stream)) : 0;
}

void screen_look(struct screen *screen)
{
	screen_look_at(screen, stdout);
}

const char *style_on(const struct screen *screen, enum style style)
{
	static const char *const sequences[] = {
	        [STYLE_PLAIN] = "",        [STYLE_BAD] = "\033[31m",   [STYLE_DOUBT] = "\033[33m",
	        [STYLE_FAINT] = "\033[2m", [STYLE_STRONG] = "\033[1m",
	};

	return screen->color ? sequences[style] : "";
}

const char *style_off(const struct screen *screen, enum style style)
{
	return screen->color && style != STYLE_PLAIN ? "\033[0m" : "";
}

/*
 * U+200E and U+200F, U+2028 to U+202E, U+2066 to U+2069, U+061C, U+FEFF: line separators and marks that change the direction of what
 * follows, so that a line could say something else than its bytes.
 */
static bool is_deceptive(const unsigned char *p)
{
	if (p[0] == 0xd8)
		return p[1] == 0x9c;
	if (p[0] == 0xef)
		return p[1] == 0xbb && p[2] == 0xbf;
	if (p[0] != 0xe2)
		return false;
	return (p[1] == 0x80 && ((p[2] >= 0x8e && p[2] <= 0x8f) || (p[2] >= 0xa8 && p[2] <= 0xae))) ||
	       (p[1] == 0x81 && p[2] >= 0xa6 && p[2] <= 0xa9);
}

/* The bytes of the good character at p, or 0: not UTF-8, or nothing that should reach a screen. A NUL ends it wherever it stands. */
static size_t good_character(const unsigned char *p)
{
	size_t length = p[0] < 0x80 ? 1 : p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;

	if (length == 1)
		return p[0] >= 0x20 && p[0] != 0x7f;
	for (size_t i = 1; i < length; i++)
		if ((p[i] & 0xc0) != 0x80)
			return 0;
	if (p[0] == 0xc2 && p[1] < 0xa0) /* C1 controls */
		return 0;
	return length > 1 && is_deceptive(p) ? 0 : length;
}

void screen_clean(const struct screen *screen, char *text)
{
	unsigned char *in = (unsigned char *)text, *out = in;

	while (*in != '\0') {
		size_t length = good_character(in);

		if (length == 1 || (length > 1 && screen->utf8)) {
			memmove(out, in, length);
			out += length;
		} else {
			*out++ = '?';
		}
		in += length == 0 ? 1 : length;
	}
	*out = '\0';
}

/* Bytes of the character at p and the columns that it takes. In a locale that does not know it, a byte is a column. */
static size_t character_at(const char *p, unsigned *columns)
{
	mbstate_t state = {0};
	wchar_t wide;
	size_t length = mbrtowc(&wide, p, strlen(p), &state);

	*columns = 1;
	if (length == 0 || length > 4)
		return 1;
	int width = wcwidth(wide);
	*columns = width < 0 ? 1 : (unsigned)width;
	return length;
}

unsigned text_columns(const char *text)
{
	unsigned sum = 0, columns;

	for (const char *p = text; *p != '\0'; sum += columns)
		p += character_at(p, &columns);
	return sum;
}

/* Prints at most `most` columns of text, with ".." at the end when it was cut. */
static void put_cut(FILE *out, const char *text, unsigned most)
{
	unsigned used = 0, columns;
	bool fits = text_columns(text) <= most;

	for (const char *p = text; *p != '\0';) {
		size_t length = character_at(p, &columns);

		if (!fits && used + columns + 2 > most)
			break;
		fwrite(p, 1, length, out);
		used += columns;
		p += length;
	}
	if (!fits)
		fputs(most >= 2 ? ".." : "", out);
}

static void put_blanks(FILE *out, unsigned n)
{
	fprintf(out, "%*s", (int)n, "");
}

/* ---- tables ---- */

struct cell {
	const char *text; /* the table's own */
	enum style style;
};

struct table {
	const struct screen *screen;
	const struct column *columns;
	size_t count;
	unsigned width[COLUMNS_MAX];
	bool omitted[COLUMNS_MAX];
	char omitted_titles[160];
	struct cell *cells;
	size_t used;
	size_t room;
	bool wraps; /* the flexible column is broken, and not cut */
	bool titled;
	bool failed;
};

struct table *table_new(const struct screen *screen, const struct column *columns, size_t count)
{
	struct table *table = count > COLUMNS_MAX ? NULL : calloc(1, sizeof(*table));

	if (table == NULL)
		return NULL;
	table->screen = screen;
	table->columns = columns;
	table->count = count;
	for (size_t i = 0; i < count; i++)
		table->width[i] = (unsigned)strlen(columns[i].title);
	return table;
}

static bool make_room(struct table *table)
{
	if (table->used < table->room)
		return true;
	size_t room = table->room == 0 ? 64 : table->room * 2;
	struct cell *cells = realloc(table->cells, room * sizeof(*cells));
	if (cells == NULL)
		return false;
	table->cells = cells;
	table->room = room;
	return true;
}

void table_wrap(struct table *table)
{
	table->wraps = true;
}

void table_widen(struct table *table, size_t column, unsigned width)
{
	if (width > table->width[column])
		table->width[column] = width;
}

void table_add(struct table *table, enum style style, const char *format, ...)
{
	char text[CELL_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	screen_clean(table->screen, text);

	char *copy = make_room(table) ? strdup(text) : NULL;
	if (copy == NULL) {
		table->failed = true;
		return;
	}
	table_widen(table, table->used % table->count, text_columns(copy));
	table->cells[table->used++] = (struct cell){copy, style};
}

/* Columns of a line; a flexible column counts with what it needs at least. */
static unsigned line_width(const struct table *table)
{
	unsigned sum = 0;

	for (size_t i = 0; i < table->count; i++) {
		if (table->omitted[i])
			continue;
		unsigned width = table->width[i];
		if (table->columns[i].flexible && width > FLEXIBLE_LEAST)
			width = FLEXIBLE_LEAST;
		sum += (sum > 0 ? GAP : 0) + width;
	}
	return sum;
}

static size_t least_needed(const struct table *table)
{
	size_t at = table->count;
	unsigned highest = 0;

	for (size_t i = 0; i < table->count; i++) {
		if (!table->omitted[i] && table->columns[i].given > highest) {
			highest = table->columns[i].given;
			at = i;
		}
	}
	return at;
}

static void fit(struct table *table)
{
	while (table->screen->width != 0 && line_width(table) > table->screen->width) {
		size_t i = least_needed(table);
		if (i == table->count)
			return;
		table->omitted[i] = true;
	}
}

/* Breaks text between words to lines of `most` columns, which begin `at` columns from the left. */
static void put_broken(FILE *out, const char *text, unsigned at, unsigned most)
{
	unsigned used = 0;

	while (*text != '\0') {
		size_t length = strcspn(text, " ");
		char word[CELL_SIZE];

		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		unsigned columns = text_columns(word);
		if (used > 0 && used + 1 + columns > most) {
			fputc('\n', out);
			put_blanks(out, at);
			used = 0;
		}
		fputs(used > 0 ? " " : "", out);
		put_cut(out, word, most);
		used += columns + (used > 0);
		text += length;
		text += strspn(text, " ");
	}
}

static void put_cell(const struct table *table, const struct cell *cell, bool flexible, unsigned at, FILE *out)
{
	unsigned columns = text_columns(cell->text), width = table->screen->width, most = flexible && width > at ? width - at : columns;

	if (table->wraps && most < columns)
		put_broken(out, cell->text, at, most);
	else
		put_cut(out, cell->text, most);
}

static void put_row(const struct table *table, const struct cell *cells, FILE *out)
{
	unsigned at = 0, blanks = 0;

	for (size_t i = 0; i < table->count; i++) {
		if (table->omitted[i])
			continue;
		const struct column *column = &table->columns[i];
		unsigned columns = text_columns(cells[i].text), width = table->width[i];
		if (column->right)
			blanks += width - columns;
		if (columns > 0) {
			/* Blanks are put before text only, so that no line ends with them. */
			put_blanks(out, blanks);
			at += blanks;
			blanks = 0;
			fputs(style_on(table->screen, cells[i].style), out);
			put_cell(table, &cells[i], column->flexible, at, out);
			fputs(style_off(table->screen, cells[i].style), out);
			at += columns;
		}
		blanks += GAP + (column->right ? 0 : width - columns);
	}
	fputc('\n', out);
}

static void put_titles(struct table *table, FILE *out)
{
	struct cell titles[COLUMNS_MAX];

	for (size_t i = 0; i < table->count; i++)
		titles[i] = (struct cell){table->columns[i].title, STYLE_FAINT};
	put_row(table, titles, out);
	table->titled = true;
}

static void forget_rows(struct table *table)
{
	for (size_t i = 0; i < table->used; i++)
		free((char *)table->cells[i].text);
	table->used = 0;
}

bool table_print(struct table *table, FILE *out)
{
	fit(table);
	if (!table->titled)
		put_titles(table, out);
	for (size_t i = 0; i + table->count <= table->used && !table->failed; i += table->count)
		put_row(table, &table->cells[i], out);
	forget_rows(table);
	return !table->failed;
}

const char *table_omitted(struct table *table)
{
	char *text = table->omitted_titles;
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < table->count && used < sizeof(table->omitted_titles); i++)
		if (table->omitted[i])
			used += (size_t)snprintf(text + used, sizeof(table->omitted_titles) - used, "%s%s", used > 0 ? ", " : "",
			                         table->columns[i].title);
	return text;
}

void table_free(struct table *table)
{
	if (table == NULL)
		return;
	forget_rows(table);
	free(table->cells);
	free(table);
}

/* ---- fields ---- */

static void put_words(const struct screen *screen, const char *text)
{
	unsigned at = FIELD_INDENT, words = 0;

	while (*text != '\0') {
		size_t length = strcspn(text, " ");
		char word[CELL_SIZE];

		snprintf(word, sizeof(word), "%.*s", (int)length, text);
		unsigned columns = text_columns(word);
		if (words > 0 && screen->width != 0 && at + 1 + columns > screen->width) {
			printf("\n%*s", (int)FIELD_INDENT, "");
			at = FIELD_INDENT;
			words = 0;
		}
		printf("%s%s", words > 0 ? " " : "", word);
		at += columns + (words > 0);
		words++;
		text += length;
		text += strspn(text, " ");
	}
}

void print_field(const struct screen *screen, const char *label, enum style style, const char *format, ...)
{
	char text[1024 + CELL_SIZE];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	screen_clean(screen, text);
	printf("  %-*s", (int)FIELD_INDENT - 2, label);
	fputs(style_on(screen, style), stdout);
	put_words(screen, text);
	fputs(style_off(screen, style), stdout);
	fputc('\n', stdout);
}
