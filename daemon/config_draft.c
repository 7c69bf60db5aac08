/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "the window of payments is 10s" is not enough to say what is wrong with it; whether payments, the defaults or the
 * program said so decides which line of the file a message points to. A draft keeps both, the value and its place.
 *
 * What it guarantees: keys are merged one by one, and a block is on when the object or the false nearest to the resource says so. A value
 * that is refused leaves the one before in force, and is marked, so that no contradiction is made up from it.
 *
 * A message quotes the value as it is written in the file, and says what to write. Numbers are never printed from doubles.
 */
#include "config_draft.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "config_value.h"
#include "policy.h"

#define MS_NS UINT64_C(1000000)

/* ---- problems ---- */

static void add(struct reader *reader, bool warning, uint32_t place, bool at_key, const char *format, va_list args)
{
	const struct place *at = &reader->places.items[place];
	char path[192], text[320];

	places_path(&reader->places, place, path, sizeof(path));
	vsnprintf(text, sizeof(text), format, args);
	config_problems_add(reader->problems, warning, path, at_key ? at->line : at->value_line, at_key ? at->column : at->value_column,
	                    "%s", text);
}

void reader_error(struct reader *reader, uint32_t place, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(reader, false, place, false, format, args);
	va_end(args);
}

void reader_key_error(struct reader *reader, uint32_t place, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(reader, false, place, true, format, args);
	va_end(args);
}

void reader_warning(struct reader *reader, uint32_t place, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(reader, true, place, false, format, args);
	va_end(args);
}

/* The value as it is written. */
static void quote(const struct reader *reader, uint32_t place, char text[64])
{
	const struct place *at = &reader->places.items[place];

	if (at->kind != PLACE_SCALAR)
		snprintf(text, 64, "%s", at->kind == PLACE_OBJECT ? "an object" : "an array");
	else
		snprintf(text, 64, "%.*s%s", at->length > 40 ? 40 : (int)at->length, reader->places.text + at->value,
		         at->length > 40 ? "..." : "");
}

/* "50 is out of range; write a whole number from 1 to 10". Always false. */
static bool refuse(struct reader *reader, enum key_id id, uint32_t place, const char *what)
{
	char value[64], expected[160];

	quote(reader, place, value);
	key_expects(id, expected, sizeof(expected));
	reader_error(reader, place, "%s %s; write %s", value, what, expected);
	return false;
}

static bool refuse_type(struct reader *reader, enum key_id id, const json_t *value, uint32_t place)
{
	switch (json_typeof(value)) {
	case JSON_STRING:
		return refuse(reader, id, place, "is a string");
	case JSON_INTEGER:
	case JSON_REAL:
		return refuse(reader, id, place, "is a number");
	default:
		return refuse(reader, id, place, "is not allowed here");
	}
}

/* ---- values ---- */

static bool in_range(struct reader *reader, enum key_id id, uint32_t place, uint64_t value)
{
	const struct key *key = &config_keys[id];

	return value >= key->least && value <= key->most ? true : refuse(reader, id, place, "is out of range");
}

/* 50.0 and 1e2 are refused: who writes a count as a measured number may have confused two keys. */
static bool read_integer(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	json_int_t number = json_integer_value(value);

	if (json_is_real(value))
		return refuse(reader, id, place, "has a point or an exponent");
	if (!json_is_integer(value))
		return refuse_type(reader, id, value, place);
	if (number < 0)
		return refuse(reader, id, place, "is out of range");
	if (!in_range(reader, id, place, (uint64_t)number))
		return false;
	*stored = (uint64_t)number * config_keys[id].scale;
	return true;
}

static bool read_number(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	uint64_t millionths;
	int r = value_millionths(json_number_value(value), &millionths);

	if (r == -EDOM)
		return refuse(reader, id, place, "is less than one in a million");
	if (r < 0)
		return refuse(reader, id, place, "is out of range");
	if (!in_range(reader, id, place, millionths))
		return false;
	*stored = millionths;
	return true;
}

static bool read_share(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	uint64_t ppm;
	int r;

	if (json_is_number(value))
		return read_number(reader, id, value, place, stored);
	if (!json_is_string(value))
		return refuse_type(reader, id, value, place);
	r = value_percent(json_string_value(value), &ppm);
	if (r == -EDOM)
		return refuse(reader, id, place, "is finer than one in a million");
	if (r < 0)
		return refuse(reader, id, place, "is not a share");
	if (!in_range(reader, id, place, ppm))
		return false;
	*stored = ppm;
	return true;
}

static bool read_duration(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	bool ms = config_keys[id].type == KEY_MILLISECONDS;
	uint64_t ns, unit = ms ? MS_NS : 1;
	int r;

	if (json_is_number(value))
		return refuse(reader, id, place,
		              id == KEY_WINDOW ? "has no unit (a window by number of calls is not supported by this version)"
		                               : "has no unit");
	if (!json_is_string(value))
		return refuse_type(reader, id, value, place);
	r = value_duration(json_string_value(value), &ns);
	if (r == -EDOM)
		return refuse(reader, id, place, "is finer than a nanosecond");
	if (r < 0)
		return refuse(reader, id, place, "is not a duration (a number and us, ms, s, m or h)");
	if (ns / unit < config_keys[id].least || ns / unit > config_keys[id].most)
		return refuse(reader, id, place, "is out of range");
	if (ns % unit != 0)
		return refuse(reader, id, place, "is not a whole number of milliseconds");
	*stored = ns / unit;
	return true;
}

static bool read_word(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	const char *const *words = config_keys[id].words, *text = json_string_value(value);

	if (!text)
		return refuse_type(reader, id, value, place);
	for (uint64_t i = 0; words[i]; i++) {
		if (strcmp(words[i], text) == 0) {
			*stored = i;
			return true;
		}
	}
	return refuse(reader, id, place, "is unknown");
}

static bool read_boolean(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	if (!json_is_boolean(value))
		return refuse_type(reader, id, value, place);
	*stored = json_is_true(value);
	return true;
}

bool read_value(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	switch (config_keys[id].type) {
	case KEY_BOOLEAN:
		return read_boolean(reader, id, value, place, stored);
	case KEY_INTEGER:
		return read_integer(reader, id, value, place, stored);
	case KEY_NUMBER:
		return json_is_number(value) ? read_number(reader, id, value, place, stored) : refuse_type(reader, id, value, place);
	case KEY_SHARE:
		return read_share(reader, id, value, place, stored);
	case KEY_MILLISECONDS:
	case KEY_NANOSECONDS:
		return read_duration(reader, id, value, place, stored);
	case KEY_WORD:
		return read_word(reader, id, value, place, stored);
	default:
		return refuse_type(reader, id, value, place);
	}
}

const char *read_text(struct reader *reader, enum key_id id, const json_t *value, uint32_t place)
{
	const char *text = json_string_value(value);

	if (!text)
		refuse_type(reader, id, value, place);
	return text;
}

bool read_object(struct reader *reader, enum key_id id, const json_t *value, uint32_t place)
{
	return json_is_object(value) ? true : refuse_type(reader, id, value, place);
}

/* ---- keys ---- */

void read_doubles(struct reader *reader)
{
	for (uint32_t i = 0; i < reader->places.count; i++) {
		uint32_t first = reader->places.items[i].doubles;

		if (first != PLACE_NONE)
			reader_key_error(reader, i, "doubled key; it is already in line %d", reader->places.items[first].line);
	}
}

enum key_id read_key(struct reader *reader, enum block block, uint32_t place)
{
	const struct place *at = &reader->places.items[place];
	enum key_id id = key_find(block, at->key);
	char advice[256];

	if (at->dropped)
		return KEY_NONE;
	if (id != KEY_NONE)
		return id;
	if (key_unsupported(block, at->key)) {
		reader_key_error(reader, place, "%s", key_unsupported(block, at->key));
		return KEY_NONE;
	}
	key_advice(block, at->key, advice, sizeof(advice));
	reader_key_error(reader, place, "unknown key; %s", advice);
	return KEY_NONE;
}

/* ---- drafts ---- */

void draft_start(struct draft *draft)
{
	*draft = (struct draft){.place = PLACE_ROOT};
	policy_defaults(&draft->policy);
	for (size_t i = 0; i < BLOCKS; i++)
		draft->block_place[i] = PLACE_NONE;
	for (size_t i = 0; i < KEYS; i++)
		draft->from[i] = PLACE_NONE;
	/* Retries without a budget add up to storms: to have them, somebody must write so. */
	draft->on[BLOCK_BUDGET] = true;
}

static void store(struct draft *draft, enum key_id id, uint64_t stored)
{
	if (id == KEY_LATENCY)
		draft->policy.flags = stored ? draft->policy.flags | POLICY_LATENCY : draft->policy.flags & ~(uint64_t)POLICY_LATENCY;
	else
		memcpy((char *)&draft->policy + config_keys[id].offset, &stored, sizeof(stored));
}

static void take_value(struct reader *reader, struct draft *draft, enum key_id id, const json_t *value, uint32_t place)
{
	uint64_t stored = 0;

	draft->from[id] = place;
	draft->own |= KEY_BIT(id);
	if (!read_value(reader, id, value, place, &stored)) {
		draft->bad |= KEY_BIT(id);
		return;
	}
	draft->bad &= ~KEY_BIT(id);
	store(draft, id, stored);
}

static void take_keys(struct reader *reader, struct draft *draft, enum block block, const json_t *object, uint32_t place);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as config_keys nests blocks, whatever the file says */
static void take_block(struct reader *reader, struct draft *draft, enum key_id id, const json_t *value, uint32_t place)
{
	enum block block = config_keys[id].opens;

	if (json_is_false(value)) {
		draft->on[block] = false;
		return;
	}
	if (!json_is_object(value)) {
		draft->flawed = true;
		refuse_type(reader, id, value, place);
		return;
	}
	draft->on[block] = true;
	draft->block_place[block] = place;
	take_keys(reader, draft, block, value, place);
}

/* NOLINTNEXTLINE(misc-no-recursion): see take_block */
static void take_keys(struct reader *reader, struct draft *draft, enum block block, const json_t *object, uint32_t place)
{
	for (uint32_t i = reader->places.items[place].first; i != PLACE_NONE; i = reader->places.items[i].next) {
		enum key_id id = read_key(reader, block, i);
		const json_t *value = json_object_get(object, reader->places.items[i].key);

		if (id == KEY_NONE || !value)
			draft->flawed = true;
		else if (config_keys[id].type == KEY_BLOCK)
			take_block(reader, draft, id, value, i);
		else
			take_value(reader, draft, id, value, i);
	}
}

void draft_read(struct reader *reader, struct draft *draft, const json_t *object, uint32_t place)
{
	draft->place = place;
	draft->own = 0;
	take_keys(reader, draft, BLOCK_RESOURCE, object, place);
}

/* ---- the policy ---- */

static bool is_given(const struct draft *draft, enum key_id id)
{
	return draft->from[id] != PLACE_NONE;
}

/* The rules that open a breaker are those that are given; a breaker without any has the failure rate of the defaults. */
static void settle_breaker(const struct draft *draft, struct policy *policy)
{
	if (!is_given(draft, KEY_FAILURE_RATE) && (is_given(draft, KEY_CONSECUTIVE) || is_given(draft, KEY_SLOW_RATE)))
		policy->failure_rate_ppm = 0;
	if (!is_given(draft, KEY_SUCCESSES))
		policy->successes = policy->probes;
}

struct policy draft_policy(const struct draft *draft)
{
	static const struct {
		enum block block;
		uint64_t flag;
	} flags[] = {{BLOCK_BREAKER, POLICY_BREAKER}, {BLOCK_RETRY, POLICY_RETRY}, {BLOCK_BULKHEAD, POLICY_BULKHEAD}};
	struct policy policy = draft->policy;

	policy.flags |= POLICY_CONFIGURED;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (draft->on[flags[i].block])
			policy.flags |= flags[i].flag;
	}
	if (draft->on[BLOCK_RETRY] && draft->on[BLOCK_BUDGET])
		policy.flags |= POLICY_BUDGET;
	policy.budget_previous = policy.budget_capacity;
	settle_breaker(draft, &policy);
	if (!draft->on[BLOCK_TIMEOUT]) {
		policy.timeout_attempt_ms = 0;
		policy.timeout_connect_ms = 0;
		policy.timeout_total_ms = 0;
	}
	return policy;
}
