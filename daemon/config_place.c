/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: jansson knows the line of a syntax error, but not of a value that it has accepted, and of a doubled key it keeps the
 * last and forgets the others (or, asked to reject doubles, stops at the first). "line 214, column 9" is what makes a message about one of
 * forty equal breakers useful. So the text is read a second time, for places alone.
 *
 * What it guarantees: all keys of objects, in the order of the file, with their escapes decoded, so that "\u0061" is the double of "a". One
 * flat loop, no recursion: depth costs nothing. Time is n log n in the number of keys, also where all of them are in one object.
 *
 * It is no validator. The parser has seen the text before, so commas and colons are only counted on to be where they belong; but every
 * read is inside the text, whatever it holds.
 */
#include "config_place.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct scanner {
	struct places *places;
	size_t capacity;
	const char *text;
	size_t size, at;
	int line, column;
	uint32_t inside;  /* the object or array that is open */
	uint32_t pending; /* the key that waits for its value */
	bool key_next;    /* in an object: a string here is a key */
	size_t keys_used;
};

static bool is_space(char c)
{
	return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static void advance(struct scanner *s)
{
	unsigned char c = (unsigned char)s->text[s->at++];

	if (c == '\n') {
		s->line += 1;
		s->column = 1;
	} else if ((c & 0xc0) != 0x80) {
		s->column += 1;
	}
}

/* ---- places ---- */

static int grow(struct scanner *s)
{
	size_t capacity = s->capacity ? s->capacity * 2 : 64;
	struct place *items = realloc(s->places->items, capacity * sizeof(*items));

	if (!items)
		return -ENOMEM;
	s->places->items = items;
	s->capacity = capacity;
	return 0;
}

/* A place at this point, the last child of what is open. */
static int add(struct scanner *s, const char *key, uint32_t *index)
{
	struct places *places = s->places;

	if (places->count == s->capacity && grow(s) < 0)
		return -ENOMEM;
	*index = (uint32_t)places->count++;
	places->items[*index] = (struct place){
	        .key = key,
	        .line = s->line,
	        .column = s->column,
	        .parent = s->inside,
	        .first = PLACE_NONE,
	        .last = PLACE_NONE,
	        .next = PLACE_NONE,
	        .doubles = PLACE_NONE,
	};
	if (s->inside == PLACE_NONE)
		return 0;
	struct place *parent = &places->items[s->inside];
	if (parent->first == PLACE_NONE)
		parent->first = *index;
	else
		places->items[parent->last].next = *index;
	parent->last = *index;
	return 0;
}

/* ---- strings ---- */

static unsigned hex4(const struct scanner *s, size_t at)
{
	unsigned value = 0;

	for (size_t i = at; i < at + 4 && i < s->size; i++) {
		unsigned char c = (unsigned char)s->text[i];
		value = value << 4 | (c <= '9' ? c - 48u : (c | 32u) - 87u); /* '0' is 48, 'a' is 97 */
	}
	return value & 0xffff;
}

static size_t put_utf8(char *to, unsigned c)
{
	if (c < 0x80) {
		to[0] = (char)c;
		return 1;
	}
	if (c < 0x800) {
		to[0] = (char)(0xc0 | c >> 6);
		to[1] = (char)(0x80 | (c & 0x3f));
		return 2;
	}
	if (c < 0x10000) {
		to[0] = (char)(0xe0 | c >> 12);
		to[1] = (char)(0x80 | (c >> 6 & 0x3f));
		to[2] = (char)(0x80 | (c & 0x3f));
		return 3;
	}
	to[0] = (char)(0xf0 | c >> 18);
	to[1] = (char)(0x80 | (c >> 12 & 0x3f));
	to[2] = (char)(0x80 | (c >> 6 & 0x3f));
	to[3] = (char)(0x80 | (c & 0x3f));
	return 4;
}

/* The \uXXXX whose u is at `at`, with its second half where it is a pair. Never longer than it was written. */
static size_t decode_unicode(const struct scanner *s, size_t at, char *to, size_t *taken)
{
	unsigned high = hex4(s, at + 1);

	*taken = 5;
	if (high >= 0xd800 && high <= 0xdbff && at + 10 < s->size && s->text[at + 5] == '\\' && s->text[at + 6] == 'u') {
		unsigned low = hex4(s, at + 7);
		*taken = 11;
		return put_utf8(to, 0x10000 + ((high - 0xd800) << 10) + ((low - 0xdc00) & 0x3ff));
	}
	return put_utf8(to, high);
}

static size_t decode_escape(const struct scanner *s, size_t at, char *to, size_t *taken)
{
	static const char from[] = "bfnrt", into[] = "\b\f\n\r\t";
	const char *simple;

	if (s->text[at] == 'u')
		return decode_unicode(s, at, to, taken);
	*taken = 1;
	simple = s->text[at] ? strchr(from, s->text[at]) : NULL;
	to[0] = simple ? into[simple - from] : s->text[at];
	return 1;
}

/* Goes behind the string that starts here; *end is where its closing quote is. */
static int skip_string(struct scanner *s, size_t *end)
{
	advance(s);
	while (s->at < s->size && s->text[s->at] != '"') {
		if (s->text[s->at] == '\\')
			advance(s);
		if (s->at < s->size)
			advance(s);
	}
	if (s->at >= s->size)
		return -EINVAL;
	*end = s->at;
	advance(s);
	return 0;
}

/* A decoded string and its NUL are never longer than the string and its quotes, so the keys fit into the size of the text. */
static const char *decode(struct scanner *s, size_t start, size_t end)
{
	char *key = s->places->keys + s->keys_used, *to = key;
	size_t taken;

	for (size_t i = start; i < end; i += taken) {
		if (s->text[i] == '\\' && i + 1 < end) {
			to += decode_escape(s, i + 1, to, &taken);
			taken += 1;
		} else {
			*to++ = s->text[i];
			taken = 1;
		}
	}
	*to++ = '\0';
	s->keys_used += (size_t)(to - key);
	return key;
}

/* ---- the loop ---- */

static int take_key(struct scanner *s)
{
	size_t start = s->at + 1, end;
	uint32_t index;

	if (add(s, "", &index) < 0)
		return -ENOMEM;
	if (skip_string(s, &end) < 0)
		return -EINVAL;
	s->places->items[index].key = decode(s, start, end);
	s->pending = index;
	s->key_next = false;
	return 0;
}

/* Whose value starts here: the key before it; or, in an array or at the root, a place of its own. */
static int value_place(struct scanner *s, enum place_kind kind, uint32_t *index)
{
	*index = s->pending;
	s->pending = PLACE_NONE;
	if (*index == PLACE_NONE && add(s, "", index) < 0)
		return -ENOMEM;
	struct place *place = &s->places->items[*index];
	place->kind = kind;
	place->value = s->at;
	place->length = 1;
	place->value_line = s->line;
	place->value_column = s->column;
	return 0;
}

static int take_scalar(struct scanner *s)
{
	uint32_t index;
	size_t start = s->at, end;
	int r = value_place(s, PLACE_SCALAR, &index);

	if (r < 0)
		return r;
	if (s->text[s->at] == '"') {
		r = skip_string(s, &end);
	} else {
		while (s->at < s->size && !is_space(s->text[s->at]) && !strchr(",:]}[{\"", s->text[s->at]))
			advance(s);
		r = s->at > start ? 0 : -EINVAL;
	}
	s->places->items[index].length = s->at - start;
	return r;
}

static int open_container(struct scanner *s)
{
	bool object = s->text[s->at] == '{';
	uint32_t index;
	int r = value_place(s, object ? PLACE_OBJECT : PLACE_ARRAY, &index);

	if (r < 0)
		return r;
	s->inside = index;
	s->key_next = object;
	advance(s);
	return 0;
}

static int close_container(struct scanner *s)
{
	if (s->inside == PLACE_NONE)
		return -EINVAL;
	s->inside = s->places->items[s->inside].parent;
	s->key_next = false;
	advance(s);
	return 0;
}

static int step(struct scanner *s)
{
	bool in_object = s->inside != PLACE_NONE && s->places->items[s->inside].kind == PLACE_OBJECT;

	switch (s->text[s->at]) {
	case ' ':
	case '\t':
	case '\n':
	case '\r':
	case ':':
		advance(s);
		return 0;
	case ',':
		s->key_next = in_object;
		advance(s);
		return 0;
	case '{':
	case '[':
		return open_container(s);
	case '}':
	case ']':
		return close_container(s);
	case '"':
		return s->key_next ? take_key(s) : take_scalar(s);
	default:
		return take_scalar(s);
	}
}

/* ---- doubles ---- */

static int compare_keys(const void *left, const void *right, void *arg)
{
	const struct place *items = arg, *a = &items[*(const uint32_t *)left], *b = &items[*(const uint32_t *)right];
	int order;

	if (a->parent != b->parent)
		return a->parent < b->parent ? -1 : 1;
	order = strcmp(a->key, b->key);
	return order ? order : a < b ? -1 : a > b;
}

static int find_doubles(struct places *places)
{
	uint32_t *sorted = malloc(places->count * sizeof(*sorted));
	uint32_t first = 0;

	if (!sorted)
		return -ENOMEM;
	for (size_t i = 0; i < places->count; i++)
		sorted[i] = (uint32_t)i;
	qsort_r(sorted, places->count, sizeof(*sorted), compare_keys, places->items);
	for (size_t i = 1; i < places->count; i++) {
		struct place *a = &places->items[sorted[first]], *b = &places->items[sorted[i]];

		if (a->parent != b->parent || strcmp(a->key, b->key) != 0) {
			first = (uint32_t)i;
		} else if (b->parent != PLACE_NONE && places->items[b->parent].kind == PLACE_OBJECT) {
			b->doubles = sorted[first];
			places->items[sorted[i - 1]].dropped = true;
		}
	}
	free(sorted);
	return 0;
}

int places_scan(const char *text, size_t size, struct places *out)
{
	struct scanner s = {.places = out, .text = text, .size = size, .line = 1, .column = 1, .inside = PLACE_NONE, .pending = PLACE_NONE};
	int r = 0;

	*out = (struct places){.text = text, .keys = malloc(size + 1)};
	if (!out->keys)
		return -ENOMEM;
	while (r == 0 && s.at < size)
		r = step(&s);
	if (r == 0)
		r = out->count == 0 || s.inside != PLACE_NONE ? -EINVAL : find_doubles(out);
	if (r < 0)
		places_free(out);
	return r;
}

void places_free(struct places *places)
{
	free(places->items);
	free(places->keys);
	*places = (struct places){0};
}

/* ---- paths ---- */

static bool is_plain(const char *key)
{
	return key[0] != '\0' && key[strcspn(key, ". \"\t\n\r")] == '\0';
}

/* A key with the dot before it, or the number of a value in an array: ".breaker", "[2]". */
static int path_part(const struct places *places, uint32_t index, char *part, size_t size)
{
	const struct place *place = &places->items[index], *parent = &places->items[place->parent];
	const char *key = place->key, *quote = is_plain(key) ? "" : "\"", *dot = place->parent == PLACE_ROOT ? "" : ".";
	unsigned number = 0;

	if (parent->kind != PLACE_ARRAY)
		return snprintf(part, size, "%s%s%.70s%s%s", dot, quote, key, strlen(key) > 70 ? "..." : "", quote);
	for (uint32_t i = parent->first; i != index; i = places->items[i].next)
		number += 1;
	return snprintf(part, size, "[%u]", number);
}

void places_path(const struct places *places, uint32_t index, char *path, size_t size)
{
	char part[80];
	size_t start = size - 1;

	path[start] = '\0';
	for (; index != PLACE_NONE && places->items[index].parent != PLACE_NONE; index = places->items[index].parent) {
		int length = path_part(places, index, part, sizeof(part));

		if (length < 0 || (size_t)length > start)
			break;
		start -= (size_t)length;
		memcpy(path + start, part, (size_t)length);
	}
	memmove(path, path + start, size - start);
}
