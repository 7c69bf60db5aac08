/* SPDX-License-Identifier: MIT */
/*
 * Any bytes in a segment: what resctl makes of them must be a complete document with values in their ranges, and printable text.
 *
 * An input is damage (damage.h) of a private segment. It is done, looked at, and undone, so that each input means the same whenever it
 * is run.
 */
#include <jansson.h>
#include <math.h>
#include <stdbool.h>

#include "damage.h"
#include "event.h"
#include "inspect.h"
#include "map.h"
#include "override.h"
#include "policy.h"
#include "record.h"
#include "snapshot_json.h"
#include "standalone.h"
#include "table.h"
#include "why.h"

static struct {
	struct map map;
	bool ready;
	FILE *sink;
} fuzz;

/* ---- the segment ---- */

static void start(void)
{
	static const char *const names[RESOURCES] = {"payments", "ledger", "search"};
	struct resc_error err;
	struct policy policy;

	REQUIRE(map_private(&fuzz.map, "fuzz", &err) == 0);
	policy_defaults(&policy);
	policy.flags |= POLICY_CONFIGURED | POLICY_BREAKER | POLICY_BUDGET | POLICY_RETRY | POLICY_BULKHEAD;
	policy.consecutive = 5;
	policy.limit = 80;
	for (uint32_t i = 0; i < RESOURCES; i++)
		REQUIRE(record_publish(&fuzz.map, names[i], &policy) == (int)i);
	atomic_store_explicit(&fuzz.map.daemon->resources, RESOURCES, memory_order_release);
	REQUIRE(override_set(&fuzz.map, 1, OVERRIDE_OPEN, 3600000, "maintenance") == 0);
	REQUIRE(override_reset(&fuzz.map, 2, "tidy") == 0);
	fuzz.sink = fopen("/dev/null", "w");
	REQUIRE(fuzz.sink != NULL);
	fuzz.ready = true;
}

/* ---- what must be so ---- */

static void check_values(const json_t *value)
{
	const json_t *item;
	const char *key;
	size_t i;

	if (json_is_integer(value))
		REQUIRE(json_integer_value(value) >= 0);
	if (json_is_real(value))
		REQUIRE(isfinite(json_real_value(value)) && json_real_value(value) >= 0);
	json_array_foreach(value, i, item) check_values(item);
	json_object_foreach((json_t *)(uintptr_t)value, key, item) check_values(item);
}

static json_int_t number(const json_t *object, const char *part, const char *key)
{
	return json_integer_value(json_object_get(json_object_get(object, part), key));
}

static void check_resource(const json_t *r)
{
	bool open = strcmp(json_string_value(json_object_get(r, "state")), "open") == 0;
	const json_t *counters = json_object_get(r, "counters"), *value;
	json_int_t enters = number(r, "counters", "admitted");
	const char *key;

	REQUIRE(json_is_null(json_object_get(r, "due_ms")) == !open && json_is_null(json_object_get(r, "opened_since_ms")) == !open);
	REQUIRE(number(r, "probes", "out") <= number(r, "probes", "limit"));
	REQUIRE(number(r, "window", "failures") <= number(r, "window", "calls"));
	REQUIRE(number(r, "window", "slow") <= number(r, "window", "calls"));
	REQUIRE(number(r, "retry", "in_flight") <= number(r, "permits", "in_use"));
	REQUIRE(number(r, "throttle", "accepts") <= number(r, "throttle", "requests"));
	REQUIRE(json_number_value(json_object_get(json_object_get(r, "rate"), "tokens")) <= (double)number(r, "rate", "burst"));
	json_object_foreach((json_t *)(uintptr_t)counters, key, value) if (strncmp(key, "refused_", 8) == 0) enters +=
	        json_integer_value(value);
	REQUIRE(enters == number(r, "counters", "enters"));
}

static void check_snapshot(void)
{
	const json_t *resource;
	size_t size, i;
	char *text = snapshot_text(&fuzz.map, &size);

	REQUIRE(text != NULL);
	json_t *document = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
	REQUIRE(json_object_size(document) == 10);
	check_values(document);
	json_array_foreach(json_object_get(document, "resources"), i, resource) check_resource(resource);
	json_decref(document);
	free(text);
}

/* What people see: every cell on one line, and nothing that a terminal would obey. */
static void check_text(const char *text, size_t size)
{
	for (size_t i = 0; i < size; i++)
		REQUIRE(((unsigned char)text[i] >= 0x20 && text[i] != 0x7f) || text[i] == '\n');
}

static void check_words(void)
{
	static const struct column columns[] = {{"NAME", false, false, 0}, {"STATE", false, false, 0}, {"WHY", false, true, 0}};
	const struct screen screen = {.terminal = true, .width = 80};
	struct inspect_resource resource;
	struct inspect_daemon daemon;
	struct history history;
	char *text = NULL;
	size_t size = 0;

	FILE *out = open_memstream(&text, &size);
	struct table *table = table_new(&screen, columns, 3);
	REQUIRE(out != NULL && table != NULL);
	history_read(&history, &fuzz.map, SIZE_MAX);
	for (uint32_t i = 0; i < fuzz.map.dims.resources; i++) {
		if (inspect_resource(&fuzz.map, i, &resource) != 0)
			continue;
		table_add(table, STYLE_PLAIN, "%s", resource.name);
		table_add(table, state_style(&resource), "%s", state_words(&resource));
		table_add(table, STYLE_PLAIN, "%s", why_words(&resource, &history).s);
	}
	inspect_daemon(&fuzz.map, &daemon);
	REQUIRE(daemon_words(&daemon).s[0] != '\0' && table_print(table, out) && fclose(out) == 0);
	check_text(text, size);
	free(text);
	table_free(table);
	history_free(&history);
}

static void check_events(void)
{
	struct history history;

	history_read(&history, &fuzz.map, SIZE_MAX);
	for (size_t i = 0; i < history.count; i++) {
		json_t *event = event_json(&fuzz.map, &history.events[i]);
		REQUIRE(event != NULL && json_dumpf(event, fuzz.sink, SNAPSHOT_JSON_FLAGS) == 0);
		check_values(event);
		json_decref(event);
	}
	history_free(&history);
}

/* ---- running ---- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct damage damage;

	if (!fuzz.ready)
		start();
	damage_do(&damage, &fuzz.map, data, size);
	check_snapshot();
	check_words();
	check_events();
	json_t *workers = workers_json(&fuzz.map);
	REQUIRE(json_is_array(workers));
	json_decref(workers);
	damage_undo(&damage);
	return 0;
}
