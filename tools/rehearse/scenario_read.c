/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a scenario with a fault that nobody understood is a rehearsal of something else. So every value is checked against its
 * row of the table before anybody uses it, and what is refused is quoted as it was written, with what to write instead.
 *
 * A value that is refused is replaced by its default, so that reading goes on and finds everything at once; the object is marked, and
 * contradictions are not looked for in it.
 */
#include "scenario_read.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "config_near.h"
#include "config_value.h"

#define TEXTS_SHOWN 200 /* of a list of names, bytes */

/* ---- problems ---- */

bool refuse(struct reading *reading, const struct node *node, enum scenario_key id, const char *what)
{
	char value[64], expected[220];

	node_quote(node, value);
	scenario_key_expects(id, expected, sizeof(expected));
	node_error(reading->problems, node, "%s %s; write %s", value, what, expected);
	return false;
}

bool refuse_type(struct reading *reading, const struct node *node, enum scenario_key id)
{
	switch (json_typeof(node->value)) {
	case JSON_STRING:
		return refuse(reading, node, id, "is a string");
	case JSON_INTEGER:
	case JSON_REAL:
		return refuse(reading, node, id, "is a number");
	default:
		return refuse(reading, node, id, "is not allowed here");
	}
}

void section_error(struct section *section, enum scenario_key id, const char *format, ...)
{
	char text[320];
	va_list args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	section->bad = true;
	if (section->at[id])
		node_error(section->reading->problems, section->at[id], "%s", text);
	else
		node_key_error(section->reading->problems, section->node, "%s", text);
}

bool section_needs(struct section *section, enum scenario_key id, const char *remedy)
{
	if (section->at[id])
		return true;
	section_error(section, id, "\"%s\" is missing; %s", scenario_rows[id].name, remedy);
	return false;
}

void section_forbids(struct section *section, enum scenario_key id, const char *because)
{
	if (!section->at[id])
		return;
	node_key_error(section->reading->problems, section->at[id], "means nothing here: %s; leave it out", because);
	section->bad = true;
}

static void list_names(const char *const *names, size_t count, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (size_t i = 0; i < count && used < size && used < TEXTS_SHOWN; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%.63s", i ? ", " : "", names[i]);
}

void advise_name(const char *name, const char *const *names, size_t count, char *advice, size_t size)
{
	const char *found = NULL;
	unsigned shortest = NEAR_NOT;
	char list[TEXTS_SHOWN + 80];

	for (size_t i = 0; i < count; i++) {
		unsigned d = near_distance(names[i], name);

		if (d < shortest) {
			shortest = d;
			found = names[i];
		}
	}
	list_names(names, count, list, sizeof(list));
	if (found)
		snprintf(advice, size, "did you mean \"%.63s\"?", found);
	else if (count > 0)
		snprintf(advice, size, "there are: %s", list);
	else
		snprintf(advice, size, "there are none");
}

void check_label(struct reading *reading, const struct node *node)
{
	size_t length = strlen(node->key);

	if (length == 0)
		node_key_error(reading->problems, node, "the name is empty; write one, such as \"users\"");
	else if (length >= SCENARIO_NAME)
		node_key_error(reading->problems, node, "the name is longer than %d bytes", (int)SCENARIO_NAME - 1);
	for (size_t i = 0; i < length; i++) {
		if (iscntrl((unsigned char)node->key[i])) {
			node_key_error(reading->problems, node, "the name has a control character");
			return;
		}
	}
}

/* ---- memory ---- */

void *reading_memory(struct reading *reading, size_t count, size_t size)
{
	void *memory = calloc(count > 0 ? count : 1, size);

	if (!memory)
		reading->short_of_memory = true;
	return memory;
}

char *reading_copy(struct reading *reading, const char *text)
{
	char *copy = text ? strdup(text) : NULL;

	if (text && !copy)
		reading->short_of_memory = true;
	return copy;
}

/* ---- objects ---- */

static void take_key(struct section *section, enum scenario_block kind, const struct node *child)
{
	enum scenario_key id = scenario_key_find(kind, child->key);
	char advice[256];

	if (id != SK_NONE) {
		section->at[id] = child;
		return;
	}
	scenario_key_advice(kind, child->key, advice, sizeof(advice));
	node_key_error(section->reading->problems, child, "unknown key; %s", advice);
	section->bad = true;
}

bool section_read(struct reading *reading, const struct node *node, enum scenario_block kind, struct section *out)
{
	*out = (struct section){.reading = reading, .node = node};
	if (!json_is_object(node->value)) {
		char value[64];

		node_quote(node, value);
		node_error(reading->problems, node, "%s is not allowed here; write an object {...}", value);
		out->bad = true;
		return false;
	}
	for (const struct node *child = node->first; child; child = child->next)
		take_key(out, kind, child);
	return true;
}

const struct node *section_object(struct section *section, enum scenario_key id)
{
	const struct node *node = section->at[id];

	if (!node || json_is_object(node->value))
		return node;
	refuse_type(section->reading, node, id);
	section->bad = true;
	return NULL;
}

const struct node *section_list(struct section *section, enum scenario_key id, size_t most)
{
	const struct node *node = section->at[id];

	if (!node)
		return NULL;
	if (!json_is_array(node->value)) {
		refuse_type(section->reading, node, id);
	} else if (node_count(node) > most) {
		node_error(section->reading->problems, node, "%zu are too many; there can be %zu", node_count(node), most);
	} else {
		return node;
	}
	section->bad = true;
	return NULL;
}

/* ---- values ---- */

bool value_of_duration(struct reading *reading, const struct node *node, enum scenario_key id, int64_t *ns)
{
	uint64_t value;
	int r;

	if (json_is_number(node->value))
		return refuse(reading, node, id, "has no unit");
	if (!json_is_string(node->value))
		return refuse_type(reading, node, id);
	r = value_duration(json_string_value(node->value), &value);
	if (r == -EDOM)
		return refuse(reading, node, id, "is finer than a nanosecond");
	if (r < 0)
		return refuse(reading, node, id, "is not a duration (a number and us, ms, s, m or h)");
	if ((double)value < scenario_rows[id].least || (double)value > scenario_rows[id].most)
		return refuse(reading, node, id, "is out of range");
	*ns = (int64_t)value;
	return true;
}

bool value_of_number(struct reading *reading, const struct node *node, enum scenario_key id, double least, double most, double *number)
{
	if (!json_is_number(node->value))
		return refuse_type(reading, node, id);
	*number = json_number_value(node->value);
	return *number >= least && *number <= most ? true : refuse(reading, node, id, "is out of range");
}

static bool value_of_share(struct reading *reading, const struct node *node, enum scenario_key id, double *share)
{
	uint64_t ppm;
	int r;

	if (json_is_number(node->value))
		return value_of_number(reading, node, id, scenario_rows[id].least, scenario_rows[id].most, share);
	if (!json_is_string(node->value))
		return refuse_type(reading, node, id);
	r = value_percent(json_string_value(node->value), &ppm);
	if (r == -EDOM)
		return refuse(reading, node, id, "is finer than one in a million");
	if (r < 0)
		return refuse(reading, node, id, "is not a share");
	if (ppm == 0 || ppm > VALUE_MILLION)
		return refuse(reading, node, id, "is out of range");
	*share = (double)ppm / (double)VALUE_MILLION;
	return true;
}

static bool value_of_integer(struct reading *reading, const struct node *node, enum scenario_key id, uint64_t *number)
{
	json_int_t value = json_integer_value(node->value);

	if (json_is_real(node->value))
		return refuse(reading, node, id, "has a point or an exponent");
	if (!json_is_integer(node->value))
		return refuse_type(reading, node, id);
	if ((double)value < scenario_rows[id].least || (double)value > scenario_rows[id].most)
		return refuse(reading, node, id, "is out of range");
	*number = (uint64_t)value;
	return true;
}

static bool value_of_word(struct reading *reading, const struct node *node, enum scenario_key id, unsigned *index)
{
	const char *const *words = scenario_rows[id].words;
	const char *text = json_string_value(node->value);

	if (!text)
		return refuse_type(reading, node, id);
	for (*index = 0; words[*index]; *index += 1) {
		if (strcmp(words[*index], text) == 0)
			return true;
	}
	return refuse(reading, node, id, "is unknown");
}

static bool value_of_text(struct reading *reading, const struct node *node, enum scenario_key id, const char **text)
{
	size_t length = json_string_length(node->value);

	if (!json_is_string(node->value))
		return refuse_type(reading, node, id);
	if ((double)length < scenario_rows[id].least)
		return refuse(reading, node, id, "is empty");
	if ((double)length > scenario_rows[id].most)
		return refuse(reading, node, id, "is too long");
	*text = json_string_value(node->value);
	return true;
}

/* ---- the value of a key ---- */

int64_t section_duration(struct section *section, enum scenario_key id, int64_t fallback)
{
	int64_t ns = 0;

	if (!section->at[id])
		return fallback;
	if (value_of_duration(section->reading, section->at[id], id, &ns))
		return ns;
	section->bad = true;
	return fallback;
}

uint64_t section_integer(struct section *section, enum scenario_key id, uint64_t fallback)
{
	uint64_t number = 0;

	if (!section->at[id])
		return fallback;
	if (value_of_integer(section->reading, section->at[id], id, &number))
		return number;
	section->bad = true;
	return fallback;
}

double section_number(struct section *section, enum scenario_key id, double fallback)
{
	double number = 0;

	if (!section->at[id])
		return fallback;
	if (value_of_number(section->reading, section->at[id], id, scenario_rows[id].least, scenario_rows[id].most, &number))
		return number;
	section->bad = true;
	return fallback;
}

double section_share(struct section *section, enum scenario_key id, double fallback)
{
	double share = 0;

	if (!section->at[id])
		return fallback;
	if (value_of_share(section->reading, section->at[id], id, &share))
		return share;
	section->bad = true;
	return fallback;
}

bool section_boolean(struct section *section, enum scenario_key id, bool fallback)
{
	if (!section->at[id])
		return fallback;
	if (json_is_boolean(section->at[id]->value))
		return json_is_true(section->at[id]->value);
	section->bad = true;
	refuse_type(section->reading, section->at[id], id);
	return fallback;
}

unsigned section_word(struct section *section, enum scenario_key id, unsigned fallback)
{
	unsigned index = 0;

	if (!section->at[id])
		return fallback;
	if (value_of_word(section->reading, section->at[id], id, &index))
		return index;
	section->bad = true;
	return fallback;
}

const char *section_text(struct section *section, enum scenario_key id, const char *fallback)
{
	const char *text = fallback;

	if (!section->at[id])
		return fallback;
	if (value_of_text(section->reading, section->at[id], id, &text))
		return text;
	section->bad = true;
	return fallback;
}

char *section_text_copy(struct section *section, enum scenario_key id)
{
	return reading_copy(section->reading, section_text(section, id, NULL));
}

unsigned section_words(struct section *section, enum scenario_key id, unsigned fallback)
{
	const struct node *list = section_list(section, id, 8);
	unsigned set = 0, index;

	if (!list)
		return fallback;
	for (const struct node *one = list->first; one; one = one->next) {
		if (!value_of_word(section->reading, one, id, &index)) {
			section->bad = true;
			return fallback;
		}
		if ((set >> index & 1) != 0)
			section->bad = !refuse(section->reading, list, id, "has a word twice");
		set |= 1u << index;
	}
	if (set == 0)
		section->bad = !refuse(section->reading, list, id, "is empty");
	return set ? set : fallback;
}
