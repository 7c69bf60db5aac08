/* SPDX-License-Identifier: MIT */
/*
 * resctl suggest: settings for one resource, from what the host has seen of it. What is worked out, and how, stands in suggest.c and
 * suggest_notes.c; here are the command line and the watching.
 *
 * Latencies are there since the segment was made, how many calls are inside at once is not: so that is watched, for a while, by looking at
 * the permits. It moves nothing, costs the workers nothing, and works with rescd dead. A segment that was replaced meanwhile is one that
 * nobody uses any more: then the watch begins again on its successor.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "clock.h"
#include "format.h"
#include "resctl.h"
#include "retries.h"
#include "share.h"
#include "suggest_text.h"
#include "waiting.h"

#define WATCH_MS       3000u
#define WATCH_MOST_MS  UINT64_C(3600000)
#define LOOK_MS        20u
#define SEGMENTS_TRIED 8

enum { OPTION_WATCH = 'w', OPTION_ONLY_WATCHED = 'o' };

static const char doc[] =
        "Suggests a timeout and a bulkhead limit for a resource from what was seen of it, and lists today's settings that cannot work."
        "\v"
        "Timeouts come from all latencies since the segment was made: each candidate with the share of healthy calls that it would have "
        "cut off. The limit comes from the calls that are inside while it watches, and from their rate and latency. Nothing is changed.\n"
        "\n"
        "What was cut off by a shorter timeout, or was slow in an outage, stays in these latencies. --only-watched leaves out all but the "
        "calls that end while it watches: let it watch for some thousand of them.\n"
        "\n"
        "Watch at a busy time. With --watch 0 the rate is the average since the segment was made, and nothing is known of calls at once.\n"
        "\n"
        "Examples:\n"
        "  resctl suggest payments\n"
        "  resctl suggest payments --watch 60s\n"
        "  resctl suggest payments --watch 10m --only-watched\n"
        "  resctl suggest payments --json | jq '.recommended_timeout_ms, .limit.recommended'";

static const struct argp_option options[] = {
        {"watch", OPTION_WATCH, "DURATION", 0, "how long to look at the calls inside (default 3s, at most 1h; 0: not at all)", 0},
        {"only-watched", OPTION_ONLY_WATCHED, NULL, 0, "timeouts from the watched calls alone", 0},
        {0},
};

struct suggest_input {
	const char *name;
	uint64_t watch_ms;
	bool only_watched;
};

static void take_watch(struct suggest_input *input, const char *arg, struct argp_state *state)
{
	int r = strcmp(arg, "0") == 0 ? (input->watch_ms = 0, 0) : duration_parse(arg, WATCH_MOST_MS, &input->watch_ms);

	if (r == -ERANGE)
		argp_error(state, "--watch %s: at most 1h; 0 watches nothing", arg);
	else if (r != 0)
		argp_error(state, "--watch %s: not a duration; a number with a unit, like 500ms, 10s or 5m", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct suggest_input *input = state->input;

	switch (key) {
	case OPTION_WATCH:
		take_watch(input, arg, state);
		return 0;
	case OPTION_ONLY_WATCHED:
		input->only_watched = true;
		return 0;
	case ARGP_KEY_ARG:
		if (input->name != NULL)
			argp_error(state, "'%s': one resource at a time", arg);
		input->name = arg;
		return 0;
	case ARGP_KEY_END:
		if (input->name == NULL)
			argp_error(state, "which resource? resctl list shows them");
		if (input->only_watched && input->watch_ms == 0)
			argp_error(state, "--only-watched needs calls that are watched, and --watch is 0");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- watching ---- */

struct samples {
	size_t count;
	size_t room;
	uint32_t *in_flight, *waiting, *retries;
};

static bool samples_open(struct samples *s, uint64_t watch_ms)
{
	*s = (struct samples){.room = (size_t)((watch_ms + LOOK_MS - 1) / LOOK_MS)};
	s->in_flight = calloc(3 * s->room + 1, sizeof(uint32_t));
	s->waiting = s->in_flight + s->room;
	s->retries = s->waiting + s->room;
	return s->in_flight != NULL;
}

static void samples_take(struct samples *s, const struct map *map, const struct state *state)
{
	unsigned calls = 0;

	s->retries[s->count] = retries_count(map, state, &calls);
	s->in_flight[s->count] = calls;
	s->waiting[s->count] = waiting_count(map, state);
	s->count++;
}

static void watch(struct samples *s, const struct resctl *ctl, uint32_t index)
{
	const struct timespec pause = {.tv_nsec = LOOK_MS * 1000000L};
	const struct state *state = map_state(&ctl->map, index);

	while (s->count < s->room && map_superseded_by(&ctl->map) == 0) {
		samples_take(s, &ctl->map, state);
		nanosleep(&pause, NULL);
	}
}

/* ---- facts ---- */

/* Counters only grow, but for damage. */
static uint64_t grown(uint64_t before, uint64_t after)
{
	return after > before ? after - before : 0;
}

static uint64_t no_room(const struct resc_counters *c)
{
	return c->refused_full + c->refused_queue_full + c->refused_priority;
}

static uint64_t failed(const struct resc_counters *c)
{
	return c->ended_fail + c->ended_timeout + c->ended_cancelled + c->injected_delays;
}

static void fill_load(struct suggest_load *load, const struct inspect_resource *from, const struct inspect_resource *to, struct samples *s)
{
	*load = (struct suggest_load){
	        .watched = s->count > 0,
	        .seconds = (double)grown(from->now_ms, to->now_ms) / 1000,
	        .asked = grown(from->counters.enters, to->counters.enters),
	        .admitted = grown(from->counters.admitted, to->counters.admitted),
	        .no_room = grown(no_room(&from->counters), no_room(&to->counters)),
	        .measured = grown(from->latency.count, to->latency.count),
	        .failed = grown(failed(&from->counters), failed(&to->counters)),
	        .sum_us = grown(from->latency.sum_us, to->latency.sum_us),
	        .in_flight = suggest_spread(s->in_flight, s->count),
	        .waiting = suggest_spread(s->waiting, s->count),
	        .retries = suggest_spread(s->retries, s->count),
	};
}

/* Of the calls that ended in between. */
static void subtract(struct suggest_facts *facts, const struct inspect_resource *from)
{
	uint64_t before[COUNTERS_SHOWN], after[COUNTERS_SHOWN];
	struct inspect_latency *l = &facts->latency;

	memcpy(before, &from->counters, sizeof(before));
	memcpy(after, &facts->counters, sizeof(after));
	for (unsigned i = 0; i < COUNTERS_SHOWN; i++)
		after[i] = grown(before[i], after[i]);
	memcpy(&facts->counters, after, sizeof(after));
	l->count = 0;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		l->count += l->buckets[i] = grown(from->latency.buckets[i], l->buckets[i]);
	l->sum_us = grown(from->latency.sum_us, l->sum_us);
	facts->only_watched = true;
}

/* 0, or an exit code; -1: the segment was replaced meanwhile. */
static int gather(const struct resctl *ctl, uint32_t index, bool only_watched, struct samples *s, struct suggest_facts *facts)
{
	struct inspect_resource from = {0}, to;

	/* Whoever waits for it should know for how long. */
	if (s->room > 0 && ctl->screen.terminal && !ctl->json)
		fprintf(stderr, "looking at the calls inside for %s ...\n", duration_text(s->room * LOOK_MS).s);
	if (s->room > 0 && inspect_resource(&ctl->map, index, &from) != 0)
		return -1;
	watch(s, ctl, index);
	if (map_superseded_by(&ctl->map) != 0 || inspect_resource(&ctl->map, index, &to) != 0)
		return -1;
	*facts = (struct suggest_facts){.policy = to.policy,
	                                .latency = to.latency,
	                                .counters = to.counters,
	                                .workers = share_taken(&ctl->map),
	                                .limit = to.limited ? to.limit : 0};
	fill_load(&facts->load, &from, &to, s);
	if (only_watched)
		subtract(facts, &from);
	return EXIT_DONE;
}

static int answer(const struct resctl *ctl, const char *name, const struct suggest_facts *facts)
{
	if (ctl->json)
		return print_json(ctl, suggest_json(name, facts));
	if (suggest_print(&ctl->screen, name, facts))
		return EXIT_DONE;
	complain("out of memory");
	return EXIT_NOT_SO;
}

static int suggest(struct resctl *ctl, const struct suggest_input *input)
{
	int index = find_resource(ctl, input->name);
	struct suggest_facts facts;
	struct samples samples;

	if (index < 0)
		return EXIT_NOT_SO;
	if (!samples_open(&samples, input->watch_ms)) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	int r = gather(ctl, (uint32_t)index, input->only_watched, &samples, &facts);
	free(samples.in_flight);
	return r == EXIT_DONE ? answer(ctl, input->name, &facts) : r;
}

int cmd_suggest(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {options, parse, "NAME", doc, NULL, NULL, NULL};
	struct suggest_input input = {.watch_ms = WATCH_MS};

	command_parse(ctl, &argp, argc, argv, &input);
	for (int i = 0; i < SEGMENTS_TRIED; i++) {
		int r = attach(ctl, MAP_READER);
		if (r == 0)
			r = suggest(ctl, &input);
		if (r >= 0)
			return r;
	}
	complain("the segment of instance \"%s\" is being replaced again and again; try again", ctl->instance);
	return EXIT_NO_SEGMENT;
}
