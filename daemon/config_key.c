/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a range that is checked in one place, documented in a second and quoted in a message in a third is soon three ranges.
 * Here each key is one row, and all three are made from it; the defaults are those of policy_defaults(), printed.
 *
 * A misspelt key is an error that says what was meant: see config_near.h.
 */
#include "config_key.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "config.h"
#include "config_near.h"
#include "config_value.h"
#include "policy.h"

#define MILLION   VALUE_MILLION
#define SECOND_MS UINT64_C(1000)
#define HOUR_MS   (3600 * SECOND_MS)
#define DAY_MS    (24 * HOUR_MS)
#define MS_NS     UINT64_C(1000000)
#define DAY_NS    (DAY_MS * MS_NS)

static const char *const backoffs[] = {"none", "fixed", "exponential", NULL};
static const char *const jitters[] = {"none", "full", "equal", "decorrelated", "proportional", NULL};
static const char *const outcomes[] = {"fail", "timeout", NULL};
static const char *const deposits[] = {"success", "request", NULL};
static const char *const on_deaths[] = {"unknown", "free", NULL};
static const char *const modes[] = {"enforce", "shadow", "off", NULL};
static const char *const resource_modes[] = {"enforce", "shadow", NULL};
_Static_assert(BACKOFF_NONE == 0 && BACKOFF_EXPONENTIAL == 2, "backoffs[] is in the order of enum backoff");
_Static_assert(JITTER_NONE == 0 && JITTER_PROPORTIONAL == 4, "jitters[] is in the order of enum jitter");
_Static_assert(RESC_TIMEOUT == RESC_FAIL + 1, "outcomes[] is in the order of enum resc_outcome");
_Static_assert(DEPOSIT_SUCCESS == 0 && DEPOSIT_REQUEST == 1, "deposits[] is in the order of enum deposit");
_Static_assert(ON_DEATH_UNKNOWN == 0 && ON_DEATH_FREE == 1, "on_deaths[] is in the order of enum on_death");
_Static_assert(CONFIG_WORKERS == 1024 && CONFIG_ONCE_KEYS == 16384 && CONFIG_MADE == 256 && CONFIG_IDLE_MS == HOUR_MS,
               "the defaults of the file's own keys are as they are written below");
_Static_assert(MODE_ENFORCE == 0 && MODE_SHADOW == 1 && MODE_OFF == 2, "modes[] is in the order of enum block_mode");

#define MODE_FALLBACK "the `mode` of the resource"
#define AT(field)     .offset = offsetof(struct policy, field)

const struct key config_keys[KEYS] = {
        [KEY_INSTANCE] = {"instance", BLOCK_FILE, KEY_TEXT, .fallback = "`\"default\"`",
                          .text = "name of the segment: letters, digits and `. _ : -`, at most 63, not starting with a dot"},
        [KEY_GROUP] = {"group", BLOCK_FILE, KEY_TEXT, .fallback = "none",
                       .text = "group of the segment and the control socket; its members are workers and operators"},
        [KEY_MODE] = {"mode", BLOCK_FILE, KEY_TEXT, .fallback = "`\"0660\"`",
                      .text = "mode of the segment: `\"0600\"`, `\"0640\"` (the group may look) or `\"0660\"`; with `\"0644\"` or "
                              "`\"0664\"` all others may look "
                              "too"},
        [KEY_METRICS] = {"metrics", BLOCK_FILE, KEY_TEXT, .fallback = "no page",
                         .text = "where the metrics page is served: `\"127.0.0.1:9464\"`, `\"[::1]:9464\"`; port 0: any; `\"\"`: nowhere"},
        [KEY_CONTROL] = {"control", BLOCK_FILE, KEY_TEXT, .fallback = "from the instance",
                         .text = "absolute path of the control socket, at most 107 bytes"},
        [KEY_WORKERS] = {"workers", BLOCK_FILE, KEY_INTEGER, CONFIG_WORKERS_LEAST, WORKERS_LIMIT, 1, .fallback = "1024",
                         .text = "worker processes that the segment has room for"},
        [KEY_ONCE_KEYS] =
                {"once_keys", BLOCK_FILE, KEY_INTEGER, ONCE_SET, ONCE_LIMIT, 1, .fallback = "16384, where a resource has `once`",
                 .text = "places for idempotency keys: four times as many as are remembered at once, or new ones may find no room"},
        [KEY_MADE] = {"made", BLOCK_FILE, KEY_INTEGER, 1, RESOURCES_LIMIT, 1, .fallback = "256, where there are patterns",
                      .text = "resources that may be made at run time, from patterns"},
        [KEY_IDLE] = {"idle", BLOCK_FILE, KEY_MILLISECONDS, 0, 30 * DAY_MS, 1, .fallback = "`\"1h\"`",
                      .text = "those are retired when nobody has called them for so long; `\"0s\"`: only when there is no room"},
        [KEY_DEFAULTS] = {"defaults", BLOCK_FILE, KEY_OBJECT, .opens = BLOCK_RESOURCE, .fallback = "`{}`",
                          .text = "what all resources have, unless they say otherwise"},
        [KEY_RESOURCES] = {"resources", BLOCK_FILE, KEY_OBJECT, .fallback = "required",
                           .text = "the resources by name, and patterns, at most 16384"},

        [KEY_LATENCY] = {"latency", BLOCK_RESOURCE, KEY_BOOLEAN, .fallback = "true",
                         .text = "keep a latency histogram; false saves two clock reads a call"},
        [KEY_INJECTION] = {"injection", BLOCK_RESOURCE, KEY_BOOLEAN, .fallback = "false",
                           .text = "an operator may make calls fail or wait on purpose, for a time: see `resctl inject`"},
        [KEY_RESOURCE_MODE] = {"mode", BLOCK_RESOURCE, KEY_MODE_WORD, .words = resource_modes, .fallback = "`\"enforce\"`",
                               .text = "of the blocks that do not say it themselves; `shadow`: they decide and count, and refuse nothing"},

        [KEY_BREAKER] = {"breaker", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_BREAKER, .fallback = "off", .text = "the circuit breaker"},
        [KEY_CONSECUTIVE] = {"consecutive", BLOCK_BREAKER, KEY_INTEGER, 1, 1000000, 1, AT(consecutive), .fallback = "not used",
                             .text = "failures in a row that open it"},
        [KEY_FAILURE_RATE] = {"failure_rate", BLOCK_BREAKER, KEY_SHARE, 1, MILLION, 1, AT(failure_rate_ppm),
                              .fallback = "0.5 where neither `consecutive` nor `slow_rate` is given, otherwise not used",
                              .text = "share of failed calls in the window that opens it; equal is enough"},
        [KEY_SLOW_CALL] = {"slow_call", BLOCK_BREAKER, KEY_NANOSECONDS, 1000, DAY_NS, 1, AT(slow_call_ns), .fallback = "not used",
                           .text = "a call that takes longer is slow"},
        [KEY_SLOW_RATE] = {"slow_rate", BLOCK_BREAKER, KEY_SHARE, 1, MILLION, 1, AT(slow_rate_ppm), .fallback = "not used",
                           .text = "share of slow calls in the window that opens it; needs `slow_call`"},
        [KEY_WINDOW] = {"window", BLOCK_BREAKER, KEY_MILLISECONDS, 100, DAY_MS, 1, AT(window_ms), .other = KEY_WINDOW_CALLS,
                        .text = "how far back the rates look; or"},
        [KEY_WINDOW_CALLS] = {"window", BLOCK_BREAKER, KEY_INTEGER, 1, CALLS_LIMIT, 1, AT(window_calls), .fallback = "",
                              .text = "how many of the last calls they look at"},
        [KEY_MIN_CALLS] = {"min_calls", BLOCK_BREAKER, KEY_INTEGER, 1, 1000000, 1, AT(min_calls),
                           .text = "calls in the window before a rate can open it; at most a `window` of calls"},
        [KEY_COOLDOWN] = {"cooldown", BLOCK_BREAKER, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(cooldown_ms),
                          .text = "how long it stays open before it lets a probe through"},
        [KEY_COOLDOWN_FACTOR] = {"cooldown_factor", BLOCK_BREAKER, KEY_NUMBER, MILLION, 100 * MILLION, 1, AT(cooldown_factor_ppm),
                                 .text = "the cooldown is this many times longer each time a probe fails"},
        [KEY_COOLDOWN_MAX] = {"cooldown_max", BLOCK_BREAKER, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(cooldown_max_ms),
                              .text = "the longest cooldown that the factor makes; not shorter than `cooldown`"},
        [KEY_JITTER] = {"jitter", BLOCK_BREAKER, KEY_SHARE, 0, MILLION, 1, AT(jitter_ppm),
                        .text = "the cooldown is lengthened by a random part, up to this share, drawn once an opening"},
        [KEY_PROBES] = {"probes", BLOCK_BREAKER, KEY_INTEGER, 1, PROBES_LIMIT, 1, AT(probes),
                        .text = "probes that may be out at once on the whole host"},
        [KEY_SUCCESSES] = {"successes", BLOCK_BREAKER, KEY_INTEGER, 1, 10000, 1, AT(successes), .fallback = "as `probes`",
                           .text = "probes that must succeed to close it"},
        [KEY_TRIAL_FAILURE_RATE] =
                {"trial_failure_rate", BLOCK_BREAKER, KEY_SHARE, 1, MILLION, 1, AT(trial_failure_rate_ppm),
                 .fallback = "not used: one failure opens it again",
                 .text = "share of failed probes that opens it again, when `probes` results are in; of slow ones it is `slow_rate`"},
        [KEY_PROBE_TIMEOUT] = {"probe_timeout", BLOCK_BREAKER, KEY_MILLISECONDS, 1, HOUR_MS, 1, AT(probe_timeout_ms),
                               .text = "a probe that has not ended by then is given to somebody else"},
        [KEY_RETRY_AFTER_MAX] = {"retry_after_max", BLOCK_BREAKER, KEY_MILLISECONDS, 0, DAY_MS, 1, AT(retry_after_max_ms),
                                 .text = "how long a dependency's own word (Retry-After) may keep it open; `\"0s\"`: it is not asked"},
        [KEY_BREAKER_MODE] = {"mode", BLOCK_BREAKER, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                              .text = "`shadow`: it opens and counts, and refuses nothing; `off`: as if it were false"},

        [KEY_RETRY] = {"retry", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_RETRY, .fallback = "off", .text = "retries"},
        [KEY_ATTEMPTS] = {"attempts", BLOCK_RETRY, KEY_INTEGER, 1, 100, 1, AT(attempts), .text = "attempts a request, the first included"},
        [KEY_BACKOFF] = {"backoff", BLOCK_RETRY, KEY_WORD, AT(backoff), .words = backoffs, .text = "how the wait grows"},
        [KEY_BASE] = {"base", BLOCK_RETRY, KEY_NANOSECONDS, 1000, DAY_NS, 1, AT(base_ns), .text = "the first wait, without jitter"},
        [KEY_CAP] = {"cap", BLOCK_RETRY, KEY_NANOSECONDS, 1000, DAY_NS, 1, AT(cap_ns), .text = "the longest wait; not shorter than `base`"},
        [KEY_RETRY_JITTER] = {"jitter", BLOCK_RETRY, KEY_WORD, AT(backoff_jitter), .words = jitters,
                              .text = "how the wait w is spread: `full` 0 to w, `equal` w/2 to w, `proportional` w less or more 20 %"},
        [KEY_RETRY_ON] = {"retry_on", BLOCK_RETRY, KEY_WORDS, .scale = RESC_FAIL, AT(retry_on), .words = outcomes,
                          .text = "outcomes of an attempt after which there may be another"},
        [KEY_RETRY_MODE] = {"mode", BLOCK_RETRY, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                            .text = "`shadow`: budget and cap count, and refuse nothing; `off`: as if it were false"},
        [KEY_BUDGET] = {"budget", BLOCK_RETRY, KEY_BLOCK, .opens = BLOCK_BUDGET, .fallback = "on, where `retry` is",
                        .text = "what limits the retries of all workers of the host together: tokens, a cap on those in flight, or both"},
        [KEY_RATIO] = {"ratio", BLOCK_BUDGET, KEY_NUMBER, 0, 1000 * MILLION, 1, AT(budget_ratio),
                       .text = "tokens that a success, or a request, puts in"},
        [KEY_CAPACITY] = {"capacity", BLOCK_BUDGET, KEY_INTEGER, 1, UINT32_MAX, MILLION, AT(budget_capacity),
                          .text = "tokens at most, and at the start"},
        [KEY_PER_SECOND] = {"per_second", BLOCK_BUDGET, KEY_NUMBER, 0, 1000000 * MILLION, 1, AT(budget_per_second),
                            .text = "tokens that time puts in"},
        [KEY_DEPOSIT] = {"deposit", BLOCK_BUDGET, KEY_WORD, AT(budget_deposit), .words = deposits, .text = "what puts `ratio` in"},
        [KEY_COST] = {"cost", BLOCK_BUDGET, KEY_NUMBER, 1000, 1000 * MILLION, 1, AT(budget_cost), .text = "tokens that a retry takes"},
        [KEY_TIMEOUT_COST] = {"timeout_cost", BLOCK_BUDGET, KEY_NUMBER, 1000, 1000 * MILLION, 1, AT(budget_timeout_cost),
                              .fallback = "as `cost`", .text = "the same after a timeout"},
        [KEY_TTL] = {"ttl", BLOCK_BUDGET, KEY_MILLISECONDS, 100, DAY_MS, 1, AT(budget_ttl_ms), .fallback = "never",
                     .text = "what was put in by `ratio` is worth nothing after this; needs a `capacity` of at most 1000000"},
        [KEY_THRESHOLD] = {"threshold", BLOCK_BUDGET, KEY_SHARE, 0, MILLION, 1, AT(budget_threshold_ppm), .fallback = "not used",
                           .text = "retries stop when no more than this share of the capacity is left; then each failure takes its cost"},
        [KEY_IN_FLIGHT_FLOOR] = {"in_flight_floor", BLOCK_BUDGET, KEY_INTEGER, 0, UINT32_MAX, 1, AT(retries_floor),
                                 .fallback = "no cap; 0 where `in_flight_share` is given",
                                 .text = "retries in flight at once are at most the larger of this,"},
        [KEY_IN_FLIGHT_SHARE] = {"in_flight_share", BLOCK_BUDGET, KEY_NUMBER, 0, 1000 * MILLION, 1, AT(retries_share_ppm),
                                 .fallback = "no cap; 0 where `in_flight_floor` is given", .text = "and this share of the calls in flight"},
        [KEY_BUDGET_MODE] = {"mode", BLOCK_BUDGET, KEY_MODE_WORD, .words = modes, .fallback = "the `mode` of `retry`",
                             .text = "`shadow`: it counts what it would refuse; `off`: as if it were false"},

        [KEY_BULKHEAD] = {"bulkhead", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_BULKHEAD, .fallback = "off",
                          .text = "a limit on calls in flight"},
        [KEY_LIMIT] = {"limit", BLOCK_BULKHEAD, KEY_INTEGER, 1, PERMITS_LIMIT, 1, AT(limit), .other = KEY_LIMIT_SHARE,
                       .fallback = "required", .text = "calls in flight at once on the whole host; or"},
        [KEY_LIMIT_SHARE] = {"limit", BLOCK_BULKHEAD, KEY_SHARE, 1, 10 * MILLION, 1, AT(limit_share_ppm), .fallback = "",
                             .text = "their share of the live workers, rounded up: `0.5`, `\"50%\"`; above 1 only in percent"},
        [KEY_MAX_WAIT] = {"max_wait", BLOCK_BULKHEAD, KEY_MILLISECONDS, 0, DAY_MS, 1, AT(max_wait_ms),
                          .text = "how long a call waits for a place; `\"0s\"`: a full bulkhead refuses at once"},
        [KEY_MAX_WAITING] = {"max_waiting", BLOCK_BULKHEAD, KEY_INTEGER, 1, WAITING_LIMIT, 1, AT(max_waiting),
                             .fallback = "as many as `limit`; 64, where that is a share", .text = "calls that may wait at once"},
        [KEY_CRITICAL] = {"critical", BLOCK_BULKHEAD, KEY_SHARE, 1, MILLION, 1, AT(critical_ppm),
                          .text = "up to which share of `limit` and `max_waiting` critical calls are admitted"},
        [KEY_NORMAL] = {"normal", BLOCK_BULKHEAD, KEY_SHARE, 1, MILLION, 1, AT(normal_ppm),
                        .text = "the same for calls of normal priority"},
        [KEY_LOW] = {"low", BLOCK_BULKHEAD, KEY_SHARE, 1, MILLION, 1, AT(low_ppm), .text = "the same for calls of low priority"},
        [KEY_RETRY_AFTER] = {"retry_after", BLOCK_BULKHEAD, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(retry_after_ms), .fallback = "nothing",
                             .text = "when to come back, as a refusal tells the caller"},
        [KEY_BULKHEAD_MODE] = {"mode", BLOCK_BULKHEAD, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                               .text = "`shadow`: it counts what it would refuse; `off`: as if it were false"},

        [KEY_RATE] = {"rate", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_RATE, .fallback = "off", .text = "a limit on calls a second"},
        [KEY_RATE_PER_SECOND] = {"per_second", BLOCK_RATE, KEY_NUMBER, 1, UINT64_C(1000000000) * MILLION, 1, AT(rate_per_second),
                                 .fallback = "required", .text = "calls a second of all workers of the host together"},
        [KEY_BURST] = {"burst", BLOCK_RATE, KEY_INTEGER, 1, UINT32_MAX, 1, AT(rate_burst), .fallback = "`per_second`, rounded up",
                       .text = "calls that may come at once after a pause"},
        [KEY_RATE_MAX_WAIT] = {"max_wait", BLOCK_RATE, KEY_MILLISECONDS, 0, DAY_MS, 1, AT(rate_max_wait_ms),
                               .text = "how long a call waits for its turn; `\"0s\"`: it is refused at once"},
        [KEY_RATE_MODE] = {"mode", BLOCK_RATE, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                           .text = "`shadow`: it counts what it would refuse; `off`: as if it were false"},

        [KEY_THROTTLE] = {"throttle", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_THROTTLE, .fallback = "off",
                          .text = "refuses a part of the calls, the more of them fail; beside or instead of a breaker"},
        [KEY_K] = {"k", BLOCK_THROTTLE, KEY_NUMBER, MILLION, 1000 * MILLION, 1, AT(throttle_k_ppm),
                   .text = "calls that are let through for each one that succeeds"},
        [KEY_THROTTLE_WINDOW] = {"window", BLOCK_THROTTLE, KEY_MILLISECONDS, 100, DAY_MS, 1, AT(throttle_window_ms),
                                 .text = "how far back it looks"},
        [KEY_THROTTLE_MODE] = {"mode", BLOCK_THROTTLE, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                               .text = "`shadow`: it counts what it would refuse; `off`: as if it were false"},

        [KEY_TIMEOUT] = {"timeout", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_TIMEOUT, .fallback = "off",
                         .text = "how long a call may take; workers read it from the ticket"},
        [KEY_ATTEMPT] = {"attempt", BLOCK_TIMEOUT, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(timeout_attempt_ms), .fallback = "none",
                         .text = "one attempt"},
        [KEY_CONNECT] = {"connect", BLOCK_TIMEOUT, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(timeout_connect_ms), .fallback = "none",
                         .text = "making the connection; not longer than `attempt` and `total`"},
        [KEY_TOTAL] = {"total", BLOCK_TIMEOUT, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(timeout_total_ms), .fallback = "none",
                       .text = "all attempts and waits together; not shorter than `attempt` and `probe`"},
        [KEY_PROBE] = {"probe", BLOCK_TIMEOUT, KEY_MILLISECONDS, 1, DAY_MS, 1, AT(timeout_probe_ms), .fallback = "as `attempt`",
                       .text = "one attempt that is a probe of the breaker"},
        [KEY_TIMEOUT_MODE] =
                {"mode", BLOCK_TIMEOUT, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                 .text = "`shadow`: workers are not told, and attempts that took longer are counted; `off`: as if it were false"},

        [KEY_ONCE] = {"once", BLOCK_RESOURCE, KEY_BLOCK, .opens = BLOCK_ONCE, .fallback = "off",
                      .text = "idempotency keys: work that is repeated is noticed, and gets the stored answer"},
        [KEY_ONCE_TTL] = {"ttl", BLOCK_ONCE, KEY_MILLISECONDS, 1, 30 * DAY_MS, 1, AT(once_ttl_ms), .text = "how long a key is remembered"},
        [KEY_ONCE_MAX_WAIT] = {"max_wait", BLOCK_ONCE, KEY_MILLISECONDS, 0, HOUR_MS, 1, AT(once_max_wait_ms),
                               .text = "how long a repetition waits for the first to end; `\"0s\"`: not at all"},
        [KEY_ON_DEATH] = {"on_death", BLOCK_ONCE, KEY_WORD, AT(once_on_death), .words = on_deaths,
                          .text = "what a key is when its worker died before it was done: `unknown`, or `free` for the next"},
        [KEY_ONCE_MODE] = {"mode", BLOCK_ONCE, KEY_MODE_WORD, .words = modes, .fallback = MODE_FALLBACK,
                           .text = "`shadow`: repetitions are counted, and not held back; `off`: as if it were false"},
};

/* ---- names ---- */

/* Is it the second row of a key with two types? */
static bool is_other(enum key_id id)
{
	return id > 0 && config_keys[id - 1].other == id;
}

enum key_id key_find(enum block block, const char *name)
{
	for (enum key_id id = 0; id < KEYS; id++) {
		if (config_keys[id].block == block && strcmp(config_keys[id].name, name) == 0)
			return id;
	}
	return KEY_NONE;
}

static const char *block_name(enum block block)
{
	for (enum key_id id = 0; id < KEYS; id++) {
		if (config_keys[id].type == KEY_BLOCK && config_keys[id].opens == block)
			return config_keys[id].name;
	}
	return "";
}

void key_path(enum key_id id, char path[KEY_PATH_SIZE])
{
	enum block block = config_keys[id].block;

	if (block == BLOCK_FILE || block == BLOCK_RESOURCE)
		snprintf(path, KEY_PATH_SIZE, "%s", config_keys[id].name);
	else
		snprintf(path, KEY_PATH_SIZE, "%s%s.%s", block == BLOCK_BUDGET ? "retry." : "", block_name(block), config_keys[id].name);
}

static enum key_id nearest(enum block block, const char *name)
{
	enum key_id found = KEY_NONE;
	unsigned shortest = NEAR_NOT;

	for (enum key_id id = 0; id < KEYS; id++) {
		unsigned d = config_keys[id].block == block ? near_distance(config_keys[id].name, name) : NEAR_NOT;

		if (d < shortest) {
			shortest = d;
			found = id;
		}
	}
	return found;
}

static void list_keys(enum block block, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "the keys here are");
	const char *comma = " ";

	for (enum key_id id = 0; id < KEYS && used < size; id++) {
		if (config_keys[id].block != block || is_other(id))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s", comma, config_keys[id].name);
		comma = ", ";
	}
}

/* Where a key belongs, in words. */
static void say_where(enum key_id id, char *text, size_t size)
{
	char path[KEY_PATH_SIZE];

	key_path(id, path);
	if (config_keys[id].block == BLOCK_FILE)
		snprintf(text, size, "it belongs at the top of the file");
	else if (config_keys[id].block == BLOCK_RESOURCE)
		snprintf(text, size, "it belongs directly in a resource");
	else
		snprintf(text, size, "it belongs in %.*s", (int)(strrchr(path, '.') - path), path);
}

void key_advice(enum block block, const char *name, char *advice, size_t size)
{
	enum key_id id = nearest(block, name);

	if (id != KEY_NONE) {
		snprintf(advice, size, "did you mean \"%s\"?", config_keys[id].name);
		return;
	}
	for (enum block other = 0; other < BLOCKS; other++) {
		id = key_find(other, name);
		if (id != KEY_NONE) {
			say_where(id, advice, size);
			return;
		}
	}
	list_keys(block, advice, size);
}

/* ---- values in words ---- */

static void put_words(const char *const *words, const char *comma, char *text, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; words[i] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", i ? comma : "", words[i]);
}

static uint64_t duration_ns(const struct key *key, uint64_t value)
{
	return key->type == KEY_MILLISECONDS ? value * MS_NS : value;
}

/* One end of the range of a key. */
static void bound_text(const struct key *key, uint64_t bound, char text[VALUE_TEXT_SIZE])
{
	if (key->type == KEY_INTEGER)
		snprintf(text, VALUE_TEXT_SIZE, "%" PRIu64, bound);
	else if (key->type == KEY_NUMBER || key->type == KEY_SHARE)
		value_millionths_text(bound, text);
	else
		value_duration_text(duration_ns(key, bound), text);
}

static void row_expects(const struct key *key, char *text, size_t size)
{
	char least[VALUE_TEXT_SIZE], most[VALUE_TEXT_SIZE], words[128];

	bound_text(key, key->least, least);
	bound_text(key, key->most, most);
	switch (key->type) {
	case KEY_TEXT:
		snprintf(text, size, "a string");
		return;
	case KEY_BOOLEAN:
		snprintf(text, size, "true or false");
		return;
	case KEY_INTEGER:
		snprintf(text, size, "a whole number from %s to %s", least, most);
		return;
	case KEY_NUMBER:
		snprintf(text, size, "a number from %s to %s", least, most);
		return;
	case KEY_SHARE:
		if (key->most > MILLION)
			snprintf(text, size, "a share of the live workers, such as 0.5 or \"50%%\", at most \"%" PRIu64 "%%\"",
			         key->most / (MILLION / 100));
		else
			snprintf(text, size, "a share %s, such as 0.25 or \"25%%\"", key->least > 0 ? "above 0, at most 1" : "from 0 to 1");
		return;
	case KEY_MILLISECONDS:
	case KEY_NANOSECONDS:
		snprintf(text, size, "a duration from \"%s\" to \"%s\", such as \"500ms\"", least, most);
		return;
	case KEY_WORD:
	case KEY_MODE_WORD:
		put_words(key->words, ", ", words, sizeof(words));
		snprintf(text, size, "one of %s", words);
		return;
	case KEY_WORDS:
		put_words(key->words, ", ", words, sizeof(words));
		snprintf(text, size, "an array of one or more of %s, each once", words);
		return;
	case KEY_BLOCK:
		snprintf(text, size, "an object {...}, or false to switch it off");
		return;
	case KEY_OBJECT:
		snprintf(text, size, "an object {...}");
		return;
	}
}

void key_expects(enum key_id id, char *text, size_t size)
{
	const struct key *key = &config_keys[is_other(id) ? id - 1 : id];
	size_t used;

	row_expects(key, text, size);
	used = strlen(text);
	if (key->other == 0 || used + sizeof(", or ") > size)
		return;
	snprintf(text + used, size - used, ", or ");
	used = strlen(text);
	row_expects(&config_keys[key->other], text + used, size - used);
}

/* A set as it would be written: ["fail", "timeout"]. */
static void set_text(const struct key *key, uint64_t stored, char *text, size_t size)
{
	const char *words[8] = {NULL};
	size_t count = 0, used = (size_t)snprintf(text, size, "[");

	for (uint64_t i = 0; key->words[i] && count < 7; i++) {
		if ((stored >> key->scale >> i & 1) != 0)
			words[count++] = key->words[i];
	}
	put_words(words, ", ", text + used, size - used);
	used = strlen(text);
	snprintf(text + used, size - used, "]");
}

void key_value_text(enum key_id id, uint64_t stored, char *text, size_t size)
{
	const struct key *key = &config_keys[id];
	char value[VALUE_TEXT_SIZE];

	if (key->type == KEY_WORD) {
		snprintf(text, size, "\"%s\"", key->words[stored]);
		return;
	}
	if (key->type == KEY_WORDS) {
		set_text(key, stored, text, size);
		return;
	}
	bound_text(key, key->type == KEY_INTEGER ? stored / key->scale : stored, value);
	if (key->type == KEY_MILLISECONDS || key->type == KEY_NANOSECONDS)
		snprintf(text, size, "\"%s\"", value);
	else
		snprintf(text, size, "%s", value);
}

/* ---- the manual ---- */

static const char *type_name(enum key_type type)
{
	static const char *const names[] = {
	        [KEY_TEXT] = "string",          [KEY_BOOLEAN] = "boolean",       [KEY_INTEGER] = "whole number",  [KEY_NUMBER] = "number",
	        [KEY_SHARE] = "share",          [KEY_MILLISECONDS] = "duration", [KEY_NANOSECONDS] = "duration",  [KEY_WORD] = "word",
	        [KEY_WORDS] = "array of words", [KEY_MODE_WORD] = "word",        [KEY_BLOCK] = "object or false", [KEY_OBJECT] = "object",
	};
	return names[type];
}

static void range_text(const struct key *key, char *text, size_t size)
{
	char least[VALUE_TEXT_SIZE], most[VALUE_TEXT_SIZE];

	text[0] = '\0';
	if (key->words) {
		put_words(key->words, ", ", text, size);
	} else if (key->most > 0) {
		bound_text(key, key->least, least);
		bound_text(key, key->most, most);
		snprintf(text, size, "%s – %s", key->type == KEY_SHARE && key->least > 0 ? "above 0" : least, most);
	}
}

static void default_text(enum key_id id, char *text, size_t size)
{
	struct policy policy;
	char value[VALUE_TEXT_SIZE + 16];
	uint64_t stored;

	if (config_keys[id].fallback) {
		snprintf(text, size, "%s", config_keys[id].fallback);
		return;
	}
	policy_defaults(&policy);
	memcpy(&stored, (const char *)&policy + config_keys[id].offset, sizeof(stored));
	key_value_text(id, stored, value, sizeof(value));
	snprintf(text, size, value[0] == '"' || value[0] == '[' ? "`%s`" : "%s", value);
}

void config_print_defaults(FILE *out)
{
	char path[KEY_PATH_SIZE], range[160], value[160];

	fputs("| key | value | range | default | meaning |\n| --- | --- | --- | --- | --- |\n", out);
	for (enum key_id id = 0; id < KEYS; id++) {
		key_path(id, path);
		range_text(&config_keys[id], range, sizeof(range));
		default_text(id, value, sizeof(value));
		fprintf(out, "| `%s` | %s | %s | %s | %s |\n", path, type_name(config_keys[id].type), range, value, config_keys[id].text);
	}
}
