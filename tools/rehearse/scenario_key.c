/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: as daemon/config_key.c. A range that is checked in one place and documented in another is soon two ranges; here each key
 * is one row, and reading, messages, suggestions and the manual come from it.
 */
#include "scenario_key.h"

#include <stdio.h>
#include <string.h>

#include "config_near.h"
#include "config_value.h"
#include "scenario.h"

#define IN(block) (1u << (block))
#define MS        1e6
#define SECOND    1e9
#define HOUR      (3600 * SECOND)
#define MANY      1e6
#define FIGURES   (IN(SB_EXPECT) | IN(SB_RELATIVE) | IN(SB_COMPARE))
#define ALL_OF_IT "the whole rehearsal"
#define EXPECTS   "expectations, each as in `expect`"

static const char *const orders[] = {"any", "in turn", "one at a time", NULL};
static const char *const views[] = {"own", "shared", NULL};
static const char *const faults[] = {"hang", "slow", "errors", "refuse", "reset", "capacity", NULL};
static const char *const arrivals[] = {"even", "poisson", NULL};
static const char *const priorities[] = {"normal", "critical", "low", NULL};
static const char *const fallbacks[] = {"stale", "cache", "default", "empty", "alternative", "other", NULL};
static const char *const stores[] = {"before", "after", NULL};
static const char *const relations[] = {"equal", "at least", "at most", "about", NULL};
static const char *const betters[] = {"less", "more", NULL};
_Static_assert(ORDER_ANY == 0 && ORDER_SINGLE == 2, "orders[] is in the order of enum order");
_Static_assert(VIEW_OWN == 0 && VIEW_SHARED == 1, "views[] is in the order of enum view");
_Static_assert(FAULT_HANG == 0 && FAULT_CAPACITY == 5, "faults[] is in the order of enum fault_kind");
_Static_assert(ARRIVALS_EVEN == 0 && ARRIVALS_POISSON == 1, "arrivals[] is in the order of enum arrivals");
_Static_assert(RESC_NORMAL == 0 && RESC_LOW == 2, "priorities[] is in the order of enum resc_priority");
_Static_assert(KEYED_BEFORE == 1 && KEYED_AFTER == 2, "stores[] is in the order of enum keyed");
_Static_assert(IS_EQUAL == 0 && IS_ABOUT == 3, "relations[] is in the order of enum relation");

const struct scenario_row scenario_rows[SCENARIO_KEYS] = {
        [SK_TITLE] = {"title", IN(SB_FILE), ST_TEXT, 1, 200, .fallback = "required", .text = "what is rehearsed, in one line"},
        [SK_ABOUT] = {"about", IN(SB_FILE), ST_TEXT, 1, 4000, .fallback = "nothing", .text = "one or two sentences about it"},
        [SK_EXPERIMENT] = {"experiment", IN(SB_FILE), ST_TEXT, 1, 15, .fallback = "none",
                           .text = "the published experiment that it reproduces: `\"E7\"`"},
        [SK_DURATION] = {"duration", IN(SB_FILE), ST_DURATION, 100 * MS, HOUR, .fallback = "required",
                         .text = "how long it is played, in real time"},
        [SK_WORKERS] = {"workers", IN(SB_FILE), ST_INTEGER, 1, SCENARIO_WORKERS, .fallback = "8", .text = "prefork worker processes"},
        [SK_THREADS] = {"threads", IN(SB_FILE), ST_INTEGER, 1, SCENARIO_THREADS, .fallback = "1",
                        .text = "threads of each worker, each of which has one request at a time; at most 4096 in all workers"},
        [SK_ORDER] =
                {"order", IN(SB_FILE), ST_WORD, .words = orders, .fallback = "`\"any\"`",
                 .text = "`any`: who is free takes the next request; `in turn`: request i is worker i's, modulo the workers; `one at a "
                         "time`: in turn, and the next begins when the one before has ended"},
        [SK_BACKLOG] = {"backlog", IN(SB_FILE), ST_INTEGER, 0, MANY, .fallback = "any number",
                        .text = "requests that may wait for a free thread; what comes beyond them is rejected"},
        [SK_SEED] = {"seed", IN(SB_FILE), ST_INTEGER, 0, 4294967295.0, .fallback = "1",
                     .text = "of all that is random in the load and in the lab's own dependencies"},
        [SK_VIEWS] =
                {"views", IN(SB_FILE), ST_WORDS, .words = views, .fallback = "both",
                 .text = "`own`: each worker knows what it met itself; `shared`: all know what one has met. Played one after the other"},
        [SK_CONFIGURATION] =
                {"configuration", IN(SB_FILE), ST_OBJECT, .form = "a configuration of rescd {\"resources\": {...}}",
                 .fallback = "that of `--config`",
                 .text = "as in `resc.json`, without `instance`, `group`, `mode`, `metrics`, `control` and `workers`, which are the "
                         "lab's own; `--config FILE` is used instead"},
        [SK_DEPENDENCIES] = {"dependencies", IN(SB_FILE), ST_NAMED, .opens = SB_DEPENDENCY, .fallback = "none",
                             .text = "what is called, by name, at most 16"},
        [SK_LOAD] = {"load", IN(SB_FILE), ST_NAMED, .opens = SB_LOAD, .fallback = "required", .text = "who calls, by name"},
        [SK_VARIANTS] = {"variants", IN(SB_FILE), ST_NAMED, .opens = SB_VARIANT, .fallback = "the file as it is",
                         .text = "the same with a few changes, by name; each is played"},
        [SK_EXPECT] = {"expect", IN(SB_FILE), ST_LIST, .opens = SB_EXPECT, .fallback = "nothing", .text = "what must be so in the end"},
        [SK_COMPARE] = {"compare", IN(SB_FILE), ST_LIST, .opens = SB_COMPARE, .fallback = "nothing",
                        .text = "figures for which own and shared views are put side by side"},
        [SK_GAME_DAY] = {"game_day", IN(SB_FILE), ST_OBJECT, .opens = SB_GAME_DAY, .fallback = "none",
                         .text = "a hypothesis, and the three questions: did it protect itself, was it noticed, did it recover alone?"},
        [SK_SHORT] = {"short", IN(SB_FILE), ST_OBJECT, .form = "a merge patch of the whole file {...}", .fallback = "the file as it is",
                      .text = "changes for `--short` (a JSON merge patch, RFC 7396), made before the variants are"},

        [SK_VARIANT_ABOUT] = {"about", IN(SB_VARIANT), ST_TEXT, 1, 4000, .fallback = "nothing", .text = "what is different"},
        [SK_VARIANT_VIEWS] = {"views", IN(SB_VARIANT), ST_WORDS, .words = views, .fallback = "as the file", .text = "of this variant"},
        [SK_CHANGE] =
                {"change", IN(SB_VARIANT), ST_OBJECT, .form = "a merge patch of the file {...}", .fallback = "nothing",
                 .text = "the changes: a JSON merge patch (RFC 7396) of the file, in which `null` removes a key; of `duration`, `workers`, "
                         "`threads`, `order`, `backlog`, `seed`, `configuration`, `dependencies` and `load`"},

        [SK_LATENCY] = {"latency", IN(SB_DEPENDENCY), ST_OTHER, .form = "a duration such as \"5ms\", or an array of parts [{...}]",
                        .fallback = "`\"0ms\"`",
                        .text = "response time of the lab's own server: always the same, or drawn from a mixture of the parts below"},
        [SK_CPU] =
                {"cpu", IN(SB_DEPENDENCY), ST_DURATION, 0, 10 * SECOND, .fallback = "`\"0ms\"`",
                 .text = "how long each request, refused ones too, occupies the one processor of the server, before the latency; who gives "
                         "up before it was his turn costs nothing"},
        [SK_CAPACITY] = {"capacity", IN(SB_DEPENDENCY), ST_INTEGER, 1, MANY, .fallback = "no limit",
                         .text = "requests that it works on at once"},
        [SK_QUEUE] = {"queue", IN(SB_DEPENDENCY), ST_INTEGER, 0, MANY, .fallback = "0",
                      .text = "requests beyond `capacity` that wait; the others are answered with an error"},
        [SK_ACCEPTS] = {"accepts_per_second", IN(SB_DEPENDENCY), ST_NUMBER, 1, MANY, .fallback = "no limit",
                        .text = "requests that it works on a second; the others are answered with an error"},
        [SK_FAULTS] = {"faults", IN(SB_DEPENDENCY), ST_LIST, .opens = SB_FAULT, .fallback = "none", .text = "what happens to it, and when"},
        [SK_ADDRESS] =
                {"address", IN(SB_DEPENDENCY), ST_OTHER, .form = "an address: http://HOST/..., https://HOST/... or tcp://HOST:PORT",
                 .fallback = "the lab's own server",
                 .text = "somebody else's server is called instead: by http an answer of 500 and above, and 429, is a failure; by tcp "
                         "that no connection can be made, or no `expect` comes back"},
        [SK_PROGRAM] = {"program", IN(SB_DEPENDENCY), ST_OTHER, .form = "an array of words, of which one has {port} in it",
                        .fallback = "the lab's own server",
                        .text = "a program and its arguments, which the lab starts and calls by tcp: `[\"redis-server\", \"--port\", "
                                "\"{port}\"]`"},
        [SK_SEND] = {"send", IN(SB_DEPENDENCY), ST_TEXT, 1, 4096, .fallback = "nothing", .text = "by tcp: what is written in each call"},
        [SK_EXPECTED] = {"expect", IN(SB_DEPENDENCY), ST_TEXT, 1, 256, .fallback = "nothing: a connection is enough",
                         .text = "by tcp: what the answer must begin with"},

        [SK_SPAN_SHARE] = {"share", IN(SB_SPAN), ST_SHARE, 1e-6, 1, .fallback = "1, of a single part",
                           .text = "of the requests; the parts add up to 1"},
        [SK_FIXED] = {"fixed", IN(SB_SPAN), ST_DURATION, 0, HOUR, .fallback = "none", .text = "always that time; or"},
        [SK_UNIFORM] = {"uniform", IN(SB_SPAN), ST_OTHER, .form = "two durations, the least and the most, such as [\"200ms\", \"750ms\"]",
                        .fallback = "none", .text = "anything between two times; or"},
        [SK_LOGNORMAL] = {"lognormal", IN(SB_SPAN), ST_OBJECT, .opens = SB_LOGNORMAL, .fallback = "none",
                          .text = "a log-normal distribution, of seconds"},
        [SK_MU] = {"mu", IN(SB_LOGNORMAL), ST_NUMBER, -20, 6, .fallback = "required", .text = "mean of the logarithm"},
        [SK_SIGMA] = {"sigma", IN(SB_LOGNORMAL), ST_NUMBER, 0, 5, .fallback = "required", .text = "its standard deviation"},

        [SK_KIND] = {"kind", IN(SB_FAULT), ST_WORD, .words = faults, .fallback = "required",
                     .text = "`hang`: no answer ever comes; `slow`: it comes `latency` later; `errors`: an error at once; `refuse`: nobody "
                             "listens; `reset`: the connection is reset; `capacity`: fewer at once. Of a `program`: `hang` and `refuse`"},
        [SK_FAULT_FROM] = {"from", IN(SB_FAULT), ST_DURATION, 0, HOUR, .fallback = "`\"0ms\"`", .text = "when it begins"},
        [SK_FAULT_TO] = {"to", IN(SB_FAULT), ST_DURATION, 0, HOUR, .fallback = "the end", .text = "when it is over"},
        [SK_FROM_REQUEST] = {"from_request", IN(SB_FAULT), ST_INTEGER, 1, MANY, .fallback = "1, where `to_request` is given",
                             .text = "instead of times: the first request that it hits, as they come to the dependency"},
        [SK_TO_REQUEST] = {"to_request", IN(SB_FAULT), ST_INTEGER, 1, MANY, .fallback = "the last, where `from_request` is given",
                           .text = "the last one"},
        [SK_TRIES] = {"tries", IN(SB_FAULT), ST_INTEGER, 1, 100, .fallback = "all",
                      .text = "only the first so many attempts of a request are hit; not of `refuse` and `capacity`"},
        [SK_FAULT_SHARE] = {"share", IN(SB_FAULT), ST_SHARE, 1e-6, 1, .fallback = "1",
                            .text = "of the requests that are hit, drawn for each; not of `refuse` and `capacity`"},
        [SK_UP] = {"up", IN(SB_FAULT), ST_DURATION, MS, HOUR, .fallback = "not used",
                   .text = "flapping: after `down` all is well for so long, again and again"},
        [SK_DOWN] = {"down", IN(SB_FAULT), ST_DURATION, MS, HOUR, .fallback = "not used", .text = "flapping: the fault is on for so long"},
        [SK_FAULT_LATENCY] = {"latency", IN(SB_FAULT), ST_DURATION, MS, HOUR, .fallback = "required of `slow`",
                              .text = "of `slow`: what is added to the response time"},
        [SK_RETRY_AFTER] = {"retry_after", IN(SB_FAULT), ST_DURATION, MS, HOUR, .fallback = "nothing is said",
                            .text = "of `errors`: what the server says about when to come back; whole milliseconds"},
        [SK_FAULT_CAPACITY] = {"capacity", IN(SB_FAULT), ST_INTEGER, 1, MANY, .fallback = "required of `capacity`",
                               .text = "of `capacity`: how many at once"},

        [SK_RESOURCE] = {"resource", IN(SB_LOAD), ST_OTHER, .form = "the name of a resource, or an array of names, the outermost first",
                         .fallback = "required",
                         .text = "the resource that guards its calls; or up to 8, one inside the other, of which the last makes the call"},
        [SK_DEPENDENCY] = {"dependency", IN(SB_LOAD), ST_TEXT, 1, RESC_NAME_MAX, .fallback = "that with the name of the last resource",
                           .text = "what is called"},
        [SK_WORK] = {"work", IN(SB_LOAD), ST_DURATION, 0, HOUR, .fallback = "none",
                     .text = "nothing is called, and the guarded work takes so long"},
        [SK_RATE] = {"rate", IN(SB_LOAD), ST_OTHER, .form = "a number from 0 to 1000000, or an array of them, one a second",
                     .fallback = "none", .text = "requests a second; an array has one value for each second, and its last one goes on"},
        [SK_ARRIVALS] = {"arrivals", IN(SB_LOAD), ST_WORD, .words = arrivals, .fallback = "`\"even\"`",
                         .text = "of `rate`: at even distances, or at random ones (`seed`)"},
        [SK_BURST] = {"burst", IN(SB_LOAD), ST_INTEGER, 1, SCENARIO_REQUESTS, .fallback = "none",
                      .text = "instead: so many at once, at `from`"},
        [SK_AT] = {"at", IN(SB_LOAD), ST_OTHER, .form = "an array of durations, in order, such as [\"0s\", \"5s\"]", .fallback = "none",
                   .text = "instead: one at each of these times"},
        [SK_COUNT] = {"count", IN(SB_LOAD), ST_INTEGER, 1, SCENARIO_REQUESTS, .fallback = "none",
                      .text = "instead: so many, from `from` on, one each `every`"},
        [SK_EVERY] = {"every", IN(SB_LOAD), ST_DURATION, 1000, HOUR, .fallback = "none", .text = "see `count`"},
        [SK_LOAD_FROM] = {"from", IN(SB_LOAD), ST_DURATION, 0, HOUR, .fallback = "`\"0ms\"`", .text = "when it begins"},
        [SK_LOAD_TO] = {"to", IN(SB_LOAD), ST_DURATION, 0, HOUR, .fallback = "the end", .text = "of `rate`: when it is over"},
        [SK_PRIORITY] = {"priority", IN(SB_LOAD), ST_WORD, .words = priorities, .fallback = "`\"normal\"`", .text = "of its calls"},
        [SK_COST] = {"cost", IN(SB_LOAD), ST_INTEGER, 1, MANY, .fallback = "1", .text = "of a call, in tokens of the rate limit"},
        [SK_DEADLINE] = {"deadline", IN(SB_LOAD), ST_DURATION, MS, HOUR, .fallback = "that of `timeout.total`",
                         .text = "from its arrival: when a request must be done"},
        [SK_PATIENCE] = {"patience", IN(SB_LOAD), ST_DURATION, MS, HOUR, .fallback = "endless",
                         .text = "from its arrival: when its client goes away; the work goes on"},
        [SK_FALLBACK] = {"fallback", IN(SB_LOAD), ST_WORD, .words = fallbacks, .fallback = "none: the request fails",
                         .text = "the kind of answer that is given without the dependency"},
        [SK_KEY] = {"key", IN(SB_LOAD), ST_TEXT, 1, RESC_ONCE_KEY_MAX, .fallback = "none",
                    .text = "idempotency key: `\"each\"`, one for each request; anything else is the key of all of them"},
        [SK_STORE] = {"store", IN(SB_LOAD), ST_WORD, .words = stores, .fallback = "`\"before\"`",
                      .text = "of `key`: recorded before the work is begun, or only after it, as people do without a library"},
        [SK_RETRIES] = {"retries", IN(SB_LOAD), ST_BOOLEAN, .fallback = "true", .text = "by the policies; false: one attempt"},
        [SK_RETRIED_UPSTREAM] = {"retried_upstream", IN(SB_LOAD), ST_BOOLEAN, .fallback = "false",
                                 .text = "the inner ones of several resources are told that the outermost retries"},

        [SK_FIGURE] = {"figure", FIGURES, ST_TEXT, 1, 31, .fallback = "required", .text = "one of the figures below"},
        [SK_OF] = {"of", FIGURES, ST_TEXT, 1, RESC_NAME_MAX, .fallback = "all", .text = "the load, resource or dependency"},
        [SK_VARIANT] = {"variant", FIGURES, ST_TEXT, 1, RESC_NAME_MAX, .fallback = "each", .text = "in which variant"},
        [SK_VIEW] = {"view", IN(SB_EXPECT) | IN(SB_RELATIVE), ST_WORD, .words = views, .fallback = "each", .text = "on which view"},
        [SK_FROM] = {"from", FIGURES, ST_DURATION, 0, HOUR, .fallback = "`\"0ms\"`",
                     .text = "what began then or later; not in `game_day.steady_state` and `abort`"},
        [SK_TO] = {"to", FIGURES, ST_DURATION, 0, HOUR, .fallback = "the end", .text = "and before that"},
        [SK_NTH] = {"nth", FIGURES, ST_INTEGER, 1, 10000, .fallback = "1", .text = "of transitions: which one"},
        [SK_WIDTH] = {"width", FIGURES, ST_DURATION, MS, HOUR, .fallback = "required where the figure has one",
                      .text = "of a slot of time; of `cut_off` the timeout"},
        [SK_IS] = {"is", IN(SB_EXPECT), ST_WORD, .words = relations, .fallback = "required", .text = "how it must be to `value`"},
        [SK_VALUE] = {"value", IN(SB_EXPECT), ST_OTHER, .form = "a number, a share or a duration", .fallback = "`published`",
                      .text = "a number, a share such as `\"49%\"`, or a duration, as the figure is"},
        [SK_WITHIN] = {"within", IN(SB_EXPECT), ST_OTHER, .form = "as `value`, or a part of it in percent",
                       .fallback = "required of `about`",
                       .text = "of `about`: how far off it may be, either way; as `value`, or a part of it: `\"5%\"`. Of shares: points"},
        [SK_PUBLISHED] = {"published", IN(SB_EXPECT), ST_OTHER, .form = "a number, a share or a duration", .fallback = "none",
                          .text = "the figure of others, printed beside; written as `value`"},
        [SK_RELATIVE_TO] = {"relative_to", IN(SB_EXPECT), ST_OBJECT, .opens = SB_RELATIVE, .fallback = "none",
                            .text = "divided by this figure; variant and view, where it does not say them, are the same"},
        [SK_BETTER] = {"better", IN(SB_COMPARE), ST_WORD, .words = betters, .fallback = "required",
                       .text = "what is the better of the two"},
        [SK_WHY] = {"why", IN(SB_EXPECT) | IN(SB_COMPARE), ST_TEXT, 1, 400, .fallback = "nothing", .text = "in words, for the report"},

        [SK_HYPOTHESIS] = {"hypothesis", IN(SB_GAME_DAY), ST_TEXT, 1, 1000, .fallback = "required", .text = "what will happen, it is said"},
        [SK_STEADY_STATE] = {"steady_state", IN(SB_GAME_DAY), ST_LIST, .opens = SB_EXPECT, .fallback = "none",
                             .text = EXPECTS "; looked at when the first fault begins: where one does not hold, it ends there"},
        [SK_ABORT] = {"abort", IN(SB_GAME_DAY), ST_LIST, .opens = SB_EXPECT, .fallback = "none",
                      .text = EXPECTS "; looked at each second: where one does not hold, it ends there"},
        [SK_PROTECTED] = {"protected", IN(SB_GAME_DAY), ST_LIST, .opens = SB_EXPECT, .fallback = "required",
                          .text = EXPECTS "; it protected itself when all of them hold"},
        [SK_NOTICED] = {"noticed", IN(SB_GAME_DAY), ST_LIST, .opens = SB_EXPECT, .fallback = "required",
                        .text = EXPECTS "; it was noticed when all of them hold"},
        [SK_RECOVERED] = {"recovered", IN(SB_GAME_DAY), ST_LIST, .opens = SB_EXPECT, .fallback = "required",
                          .text = EXPECTS "; it recovered alone when all of them hold"},
};

/* ---- names ---- */

static bool is_in(enum scenario_key id, enum scenario_block block)
{
	return (scenario_rows[id].blocks >> block & 1) != 0;
}

enum scenario_key scenario_key_find(enum scenario_block block, const char *name)
{
	for (enum scenario_key id = 0; id < SCENARIO_KEYS; id++) {
		if (is_in(id, block) && strcmp(scenario_rows[id].name, name) == 0)
			return id;
	}
	return SK_NONE;
}

/* How the objects of a block are reached: "load.NAME.". */
static const char *block_path(enum scenario_block block)
{
	static const char *const paths[] = {
	        [SB_FILE] = "",
	        [SB_VARIANT] = "variants.NAME.",
	        [SB_DEPENDENCY] = "dependencies.NAME.",
	        [SB_SPAN] = "dependencies.NAME.latency[].",
	        [SB_LOGNORMAL] = "dependencies.NAME.latency[].lognormal.",
	        [SB_FAULT] = "dependencies.NAME.faults[].",
	        [SB_LOAD] = "load.NAME.",
	        [SB_EXPECT] = "expect[].",
	        [SB_RELATIVE] = "expect[].relative_to.",
	        [SB_COMPARE] = "compare[].",
	        [SB_GAME_DAY] = "game_day.",
	};
	return paths[block];
}

static enum scenario_key nearest(enum scenario_block block, const char *name)
{
	enum scenario_key found = SK_NONE;
	unsigned shortest = NEAR_NOT;

	for (enum scenario_key id = 0; id < SCENARIO_KEYS; id++) {
		unsigned d = is_in(id, block) ? near_distance(scenario_rows[id].name, name) : NEAR_NOT;

		if (d < shortest) {
			shortest = d;
			found = id;
		}
	}
	return found;
}

static void list_keys(enum scenario_block block, char *text, size_t size)
{
	size_t used = (size_t)snprintf(text, size, "the keys here are");
	const char *comma = " ";

	for (enum scenario_key id = 0; id < SCENARIO_KEYS && used < size; id++) {
		if (!is_in(id, block))
			continue;
		used += (size_t)snprintf(text + used, size - used, "%s%s", comma, scenario_rows[id].name);
		comma = ", ";
	}
}

void scenario_key_advice(enum scenario_block block, const char *name, char *advice, size_t size)
{
	enum scenario_key id = nearest(block, name);

	if (id != SK_NONE) {
		snprintf(advice, size, "did you mean \"%s\"?", scenario_rows[id].name);
		return;
	}
	for (enum scenario_block other = 0; other < SCENARIO_BLOCKS; other++) {
		if (scenario_key_find(other, name) == SK_NONE)
			continue;
		if (other == SB_FILE)
			snprintf(advice, size, "it belongs at the top of the file");
		else
			snprintf(advice, size, "it belongs in %.*s", (int)strlen(block_path(other)) - 1, block_path(other));
		return;
	}
	list_keys(block, advice, size);
}

/* ---- values in words ---- */

static void put_words(const char *const *words, char *text, size_t size)
{
	size_t used = 0;

	for (size_t i = 0; words[i] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s\"%s\"", i ? ", " : "", words[i]);
}

static void bound_text(const struct scenario_row *row, double bound, char text[VALUE_TEXT_SIZE])
{
	if (row->type == ST_DURATION && bound > 0 && bound < MS)
		snprintf(text, VALUE_TEXT_SIZE, "%lldus", (long long)(bound / 1000));
	else if (row->type == ST_DURATION && bound <= 0)
		snprintf(text, VALUE_TEXT_SIZE, "0ms");
	else if (row->type == ST_DURATION)
		value_duration_text((uint64_t)bound, text);
	else
		snprintf(text, VALUE_TEXT_SIZE, "%lld", (long long)bound);
}

void scenario_key_expects(enum scenario_key id, char *text, size_t size)
{
	const struct scenario_row *row = &scenario_rows[id];
	char least[VALUE_TEXT_SIZE], most[VALUE_TEXT_SIZE], words[128];

	bound_text(row, row->least, least);
	bound_text(row, row->most, most);
	switch (row->type) {
	case ST_TEXT:
		snprintf(text, size, "a string of at most %s bytes", most);
		return;
	case ST_BOOLEAN:
		snprintf(text, size, "true or false");
		return;
	case ST_INTEGER:
		snprintf(text, size, "a whole number from %s to %s", least, most);
		return;
	case ST_NUMBER:
		snprintf(text, size, "a number from %s to %s", least, most);
		return;
	case ST_SHARE:
		snprintf(text, size, "a share above 0, at most 1, such as 0.25 or \"25%%\"");
		return;
	case ST_DURATION:
		snprintf(text, size, "a duration from \"%s\" to \"%s\", such as \"500ms\"", least, most);
		return;
	case ST_WORD:
	case ST_WORDS:
		put_words(row->words, words, sizeof(words));
		snprintf(text, size, row->type == ST_WORD ? "one of %s" : "an array of one or more of %s, each once", words);
		return;
	case ST_NAMED:
		snprintf(text, size, "an object with names as keys {\"NAME\": {...}}");
		return;
	case ST_LIST:
		snprintf(text, size, "an array of objects [{...}]");
		return;
	case ST_OBJECT:
	case ST_OTHER:
		snprintf(text, size, "%s", row->form ? row->form : "an object {...}");
		return;
	}
}

/* ---- the manual ---- */

static const char *type_name(enum scenario_type type)
{
	static const char *const names[] = {
	        [ST_TEXT] = "string",
	        [ST_BOOLEAN] = "boolean",
	        [ST_INTEGER] = "whole number",
	        [ST_NUMBER] = "number",
	        [ST_SHARE] = "share",
	        [ST_DURATION] = "duration",
	        [ST_WORD] = "word",
	        [ST_WORDS] = "array of words",
	        [ST_OBJECT] = "object",
	        [ST_NAMED] = "objects by name",
	        [ST_LIST] = "array of objects",
	};
	return names[type];
}

static void range_text(const struct scenario_row *row, char *text, size_t size)
{
	char least[VALUE_TEXT_SIZE], most[VALUE_TEXT_SIZE];

	text[0] = '\0';
	if (row->words) {
		put_words(row->words, text, size);
	} else if (row->type == ST_TEXT) {
		snprintf(text, size, "at most %lld bytes", (long long)row->most);
	} else if (row->type == ST_SHARE) {
		snprintf(text, size, "above 0 – 1");
	} else if (row->most > 0) {
		bound_text(row, row->least, least);
		bound_text(row, row->most, most);
		snprintf(text, size, "%s – %s", least, most);
	}
}

/* The block where a key is listed: the first that has it. */
static enum scenario_block first_block(enum scenario_key id)
{
	enum scenario_block block = 0;

	while (!is_in(id, block))
		block += 1;
	return block;
}

void scenario_print_keys(FILE *out)
{
	char range[160];

	fputs("| key | value | range | default | meaning |\n| --- | --- | --- | --- | --- |\n", out);
	for (enum scenario_key id = 0; id < SCENARIO_KEYS; id++) {
		const struct scenario_row *row = &scenario_rows[id];

		range_text(row, range, sizeof(range));
		fprintf(out, "| `%s%s` | %s | %s | %s | %s |\n", block_path(first_block(id)), row->name,
		        row->type == ST_OTHER ? row->form : type_name(row->type), range, row->fallback, row->text);
	}
}
