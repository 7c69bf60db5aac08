/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "the window of payments is 10s" is not enough to say what is wrong with it; whether payments, the defaults or the
 * program said so decides which line of the file a message points to. A draft keeps both, the value and its place.
 *
 * What it guarantees: keys are merged one by one, and a block is on when the object or the false nearest to the resource says so, and no
 * mode switches it off. A value that is refused leaves the one before in force, and is marked, so that no contradiction is made up from it.
 *
 * A key whose value can be of two types (a window of time or of calls) is two rows of the table; what the draft knows of it, it keeps under
 * the first.
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
	char value[64], expected[200];

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

/* A share above 1 is written in percent: who writes "limit": 10.0 may have meant ten calls. */
static bool number_in_range(struct reader *reader, enum key_id id, uint32_t place, uint64_t value)
{
	if (config_keys[id].type == KEY_SHARE && value > VALUE_MILLION)
		return refuse(reader, id, place, "is out of range");
	return in_range(reader, id, place, value);
}

static bool read_number(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	uint64_t millionths;
	int r = value_millionths(json_number_value(value), &millionths);

	if (r == -EDOM)
		return refuse(reader, id, place, "is less than one in a million");
	if (r < 0)
		return refuse(reader, id, place, "is out of range");
	if (!number_in_range(reader, id, place, millionths))
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
		return refuse(reader, id, place, "has no unit");
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

static bool find_word(enum key_id id, const char *text, uint64_t *index)
{
	const char *const *words = config_keys[id].words;

	for (*index = 0; words[*index]; *index += 1) {
		if (strcmp(words[*index], text) == 0)
			return true;
	}
	return false;
}

static bool read_word(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	if (!json_is_string(value))
		return refuse_type(reader, id, value, place);
	return find_word(id, json_string_value(value), stored) ? true : refuse(reader, id, place, "is unknown");
}

/* Nothing twice, and not nothing: an empty set is a guard that never acts, and there are clearer ways to say so. */
static bool read_words(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored)
{
	uint64_t bits = 0, index;

	if (!json_is_array(value))
		return refuse_type(reader, id, value, place);
	for (size_t i = 0; i < json_array_size(value); i++) {
		const char *text = json_string_value(json_array_get(value, i));

		if (!text || !find_word(id, text, &index))
			return refuse(reader, id, place, "has a value that is unknown");
		if ((bits >> config_keys[id].scale >> index & 1) != 0)
			return refuse(reader, id, place, "has a word twice");
		bits |= UINT64_C(1) << config_keys[id].scale << index;
	}
	if (bits == 0)
		return refuse(reader, id, place, "is empty");
	*stored = bits;
	return true;
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
	case KEY_MODE_WORD:
		return read_word(reader, id, value, place, stored);
	case KEY_WORDS:
		return read_words(reader, id, value, place, stored);
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

static void put_field(struct draft *draft, enum key_id id, uint64_t value)
{
	memcpy((char *)&draft->policy + config_keys[id].offset, &value, sizeof(value));
}

static void put_flag(struct draft *draft, uint64_t flag, bool on)
{
	draft->policy.flags = on ? draft->policy.flags | flag : draft->policy.flags & ~flag;
}

static void store(struct draft *draft, enum key_id id, uint64_t stored)
{
	const struct key *key = &config_keys[id];

	if (key->type == KEY_BOOLEAN) {
		put_flag(draft, id == KEY_LATENCY ? POLICY_LATENCY : POLICY_INJECTION, stored != 0);
		return;
	}
	if (key->type == KEY_MODE_WORD) {
		draft->mode[key->block] = (uint8_t)stored;
		return;
	}
	put_field(draft, id, stored);
	/* What the defaults may have said in the other way does not count any more; 0 there says that this one counts. */
	if (key->other != 0)
		put_field(draft, key->other, 0);
}

/* The row for a value of that type, of a key that has two. */
static enum key_id row_for(enum key_id id, const json_t *value)
{
	enum key_id other = config_keys[id].other;

	if (other == 0)
		return id;
	if (config_keys[other].type == KEY_SHARE)
		return json_is_real(value) || json_is_string(value) ? other : id;
	return json_is_number(value) ? other : id;
}

static void take_value(struct reader *reader, struct draft *draft, enum key_id id, const json_t *value, uint32_t place)
{
	enum key_id row = row_for(id, value);
	uint64_t stored = 0;

	draft->from[id] = place;
	draft->own[id] = true;
	draft->bad[id] = !read_value(reader, row, value, place, &stored);
	if (!draft->bad[id])
		store(draft, row, stored);
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
	memset(draft->own, 0, sizeof(draft->own));
	take_keys(reader, draft, BLOCK_RESOURCE, object, place);
}

/* ---- the policy ---- */

bool draft_is_given(const struct draft *draft, enum key_id id)
{
	return draft->from[id] != PLACE_NONE;
}

/* The key of that block's mode. */
static enum key_id mode_key(enum block block)
{
	enum key_id id = 0;

	while (id < KEYS && (config_keys[id].block != block || config_keys[id].type != KEY_MODE_WORD))
		id += 1;
	return id;
}

/* Whose mode a block has where it has none itself. */
static enum block outer_block(enum block block)
{
	if (block == BLOCK_RESOURCE)
		return BLOCK_FILE;
	return block == BLOCK_BUDGET ? BLOCK_RETRY : BLOCK_RESOURCE;
}

enum block_mode draft_mode(const struct draft *draft, enum block block)
{
	for (; block != BLOCK_FILE; block = outer_block(block)) {
		if (draft_is_given(draft, mode_key(block)))
			return draft->mode[block];
	}
	return MODE_ENFORCE;
}

static bool is_on(const struct draft *draft, enum block block)
{
	return draft->on[block] && draft_mode(draft, block) != MODE_OFF;
}

bool draft_is_on(const struct draft *draft, enum block block)
{
	return is_on(draft, block) && (block != BLOCK_BUDGET || is_on(draft, BLOCK_RETRY));
}

/* The rules that open a breaker are those that are given; a breaker without any has the failure rate of the defaults. */
static void settle_breaker(const struct draft *draft, struct policy *policy)
{
	if (!draft_is_given(draft, KEY_FAILURE_RATE) && (draft_is_given(draft, KEY_CONSECUTIVE) || draft_is_given(draft, KEY_SLOW_RATE)))
		policy->failure_rate_ppm = 0;
	if (!draft_is_given(draft, KEY_SUCCESSES))
		policy->successes = policy->probes;
	/* A window never holds more calls than its size, so more than that would mean never. */
	if (policy->window_calls > 0 && policy->min_calls > policy->window_calls)
		policy->min_calls = policy->window_calls;
}

/* Who gives the cap on retries in flight alone wants that, and no tokens beside it. */
static void settle_budget(const struct draft *draft, struct policy *policy)
{
	static const enum key_id tokens[] = {KEY_RATIO, KEY_CAPACITY,     KEY_PER_SECOND, KEY_DEPOSIT,
	                                     KEY_COST,  KEY_TIMEOUT_COST, KEY_TTL,        KEY_THRESHOLD};
	bool cap = draft_is_given(draft, KEY_IN_FLIGHT_FLOOR) || draft_is_given(draft, KEY_IN_FLIGHT_SHARE), bucket = !cap;

	for (size_t i = 0; i < sizeof(tokens) / sizeof(tokens[0]); i++)
		bucket |= draft_is_given(draft, tokens[i]);
	if (!draft_is_on(draft, BLOCK_BUDGET))
		cap = bucket = false;
	policy->flags |= (cap ? POLICY_RETRY_CAP : 0u) | (bucket ? POLICY_BUDGET : 0u);
	if (!draft_is_given(draft, KEY_TIMEOUT_COST))
		policy->budget_timeout_cost = policy->budget_cost;
	policy->budget_previous = policy->budget_capacity;
}

static void settle_bulkhead(const struct draft *draft, struct policy *policy)
{
	if (policy->limit_share_ppm > 0)
		policy->limit = 1; /* not used, but in its range */
	if (draft_is_given(draft, KEY_LIMIT) && policy->limit_share_ppm == 0 && !draft_is_given(draft, KEY_MAX_WAITING))
		policy->max_waiting = policy->limit < WAITING_LIMIT ? policy->limit : WAITING_LIMIT;
}

static void settle_rate(const struct draft *draft, struct policy *policy)
{
	if (draft_is_given(draft, KEY_RATE_PER_SECOND) && !draft_is_given(draft, KEY_BURST))
		policy->rate_burst = (policy->rate_per_second + VALUE_MILLION - 1) / VALUE_MILLION;
	policy->rate_previous_per_second = policy->rate_per_second;
	policy->rate_previous_burst = policy->rate_burst;
}

static void settle_timeout(const struct draft *draft, struct policy *policy)
{
	if (draft_is_on(draft, BLOCK_TIMEOUT))
		return;
	policy->timeout_attempt_ms = 0;
	policy->timeout_connect_ms = 0;
	policy->timeout_total_ms = 0;
	policy->timeout_probe_ms = 0;
}

struct policy draft_policy(const struct draft *draft)
{
	/* A retry plan refuses nothing but by its budget, so it has no shadow of its own. */
	static const struct {
		enum block block;
		uint64_t flag, shadow;
	} flags[] = {
	        {BLOCK_BREAKER, POLICY_BREAKER, POLICY_SHADOW_BREAKER},
	        {BLOCK_RETRY, POLICY_RETRY, 0},
	        {BLOCK_BUDGET, 0, POLICY_SHADOW_BUDGET}, /* its flags: settle_budget */
	        {BLOCK_BULKHEAD, POLICY_BULKHEAD, POLICY_SHADOW_BULKHEAD},
	        {BLOCK_RATE, POLICY_RATE, POLICY_SHADOW_RATE},
	        {BLOCK_THROTTLE, POLICY_THROTTLE, POLICY_SHADOW_THROTTLE},
	        {BLOCK_TIMEOUT, POLICY_TIMEOUT, POLICY_SHADOW_TIMEOUT},
	        {BLOCK_ONCE, POLICY_ONCE, POLICY_SHADOW_ONCE},
	};
	struct policy policy = draft->policy;

	policy.flags |= POLICY_CONFIGURED;
	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		if (!draft_is_on(draft, flags[i].block))
			continue;
		policy.flags |= flags[i].flag;
		if (draft_mode(draft, flags[i].block) == MODE_SHADOW)
			policy.flags |= flags[i].shadow;
	}
	settle_breaker(draft, &policy);
	settle_budget(draft, &policy);
	settle_bulkhead(draft, &policy);
	settle_rate(draft, &policy);
	settle_timeout(draft, &policy);
	return policy;
}
