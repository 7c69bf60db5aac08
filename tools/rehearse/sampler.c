/* SPDX-License-Identifier: MIT */
/*
 * The stage looks at the segment as resctl does, and reading moves nothing; so what is played is not changed by being watched. Watching is
 * not free, though: on own views there is one resource for each worker, and 256 of them take a few milliseconds to read. Samples may take a
 * tenth of one processor, and come later than each 20 ms where they would take more.
 *
 * Transitions are the events of the segment's ring. A writer may still be at the place of one when a later one is there already, so an
 * event is read when it had its number for a while. On a busy host a writer may take longer than that; so in the end, when nobody writes
 * any more, all are read once again. But a ring forgets: then who was that slow is missing, and who comes too late misses some, which their
 * numbers show, or the counters (balance.c), and a take that misses some is none.
 */
#include "sampler.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "view_config.h"

#define SHARE     10 /* samples take at most one part of so many of the time */
#define SETTLE_NS INT64_C(50000000)

static size_t record_count(const struct sampler *sampler)
{
	return sampler->take->scenario->resource_count * sampler->per_resource;
}

/* ---- opening ---- */

static int find_records(struct sampler *sampler)
{
	const struct scenario *scenario = sampler->take->scenario;

	for (size_t i = 0; i < record_count(sampler); i++) {
		char name[VIEW_NAME_SIZE];
		view_resource(name, scenario->resources[i / sampler->per_resource], sampler->take->view,
		              (unsigned)(i % sampler->per_resource));
		sampler->records[i] = policy_find(sampler->map, name);
		if (sampler->records[i] >= 0)
			continue;
		fprintf(stderr, "resctl rehearse: resource '%s' is not in the segment of this rehearsal\n", name);
		return -ENOENT;
	}
	return 0;
}

int sampler_open(struct sampler *sampler, const struct map *map, struct take *take)
{
	*sampler = (struct sampler){.map = map, .take = take, .per_resource = take->view == VIEW_OWN ? take->scenario->workers : 1};
	sampler->records = calloc(record_count(sampler) + 1, sizeof(*sampler->records));
	sampler->events = calloc(map->dims.events, sizeof(*sampler->events));
	if (sampler->records != NULL && sampler->events != NULL)
		return find_records(sampler);
	fprintf(stderr, "resctl rehearse: no memory to watch the segment\n");
	return -ENOMEM;
}

void sampler_close(struct sampler *sampler)
{
	free(sampler->records);
	free(sampler->events);
	*sampler = (struct sampler){0};
}

static void *grown(void *items, size_t *room, size_t count, size_t size)
{
	if (count < *room)
		return items;
	size_t more = *room == 0 ? 256 : 2 * *room;
	void *larger = realloc(items, more * size);
	if (larger == NULL)
		fprintf(stderr, "resctl rehearse: no memory for what the segment says\n");
	else
		*room = more;
	return larger;
}

/* As the public interface names it. */
static uint8_t state_of(unsigned tag)
{
	return tag == TAG_OPEN ? RESC_BREAKER_OPEN : tag == TAG_HALF_OPEN ? RESC_HALF_OPEN : RESC_CLOSED;
}

/* ---- samples ---- */

static struct sample sample_of(const struct inspect_resource *seen)
{
	return (struct sample){
	        .breaker = state_of(seen->breaker),
	        .forced = seen->override.mode != OVERRIDE_NONE,
	        .in_flight = seen->in_flight,
	        .limit = seen->limited ? seen->limit : 0,
	        .waiting = seen->waiting,
	        .retries = seen->retries,
	        .tokens = seen->budgeted ? (float)seen->tokens : -1,
	        .rate_tokens = seen->rated ? (float)seen->rate_tokens : -1,
	        .throttle = seen->throttled ? (float)seen->throttle_ppm / 1e6f : 0,
	};
}

static int add_sample(struct sampler *sampler, size_t record, int64_t now_ns)
{
	struct take *take = sampler->take;
	struct inspect_resource seen;
	struct sample *samples = grown(take->samples, &sampler->sample_room, take->sample_count, sizeof(*samples));

	if (samples == NULL)
		return -ENOMEM;
	take->samples = samples;
	if (inspect_resource(sampler->map, (uint32_t)sampler->records[record], &seen) < 0)
		return 0;
	struct sample *sample = &samples[take->sample_count++];
	*sample = sample_of(&seen);
	sample->at_ns = now_ns;
	sample->resource = (uint16_t)(record / sampler->per_resource);
	sample->worker = (uint16_t)(record % sampler->per_resource);
	return 0;
}

static int add_samples(struct sampler *sampler)
{
	int64_t now_ns = board_now(sampler->take->board);

	if (now_ns < sampler->next_ns)
		return 0;
	for (size_t i = 0; i < record_count(sampler); i++) {
		int r = add_sample(sampler, i, now_ns);
		if (r < 0)
			return r;
	}
	int64_t pause_ns = SHARE * (board_now(sampler->take->board) - now_ns);
	sampler->next_ns = now_ns + (pause_ns < SAMPLE_NS ? SAMPLE_NS : pause_ns);
	return 0;
}

/* ---- transitions ---- */

/* Which record is it of? -1: of none that the load calls. */
static int record_of(const struct sampler *sampler, const char *name)
{
	int index = policy_find(sampler->map, name);

	for (size_t i = 0; index >= 0 && i < record_count(sampler); i++) {
		if (sampler->records[i] == index)
			return (int)i;
	}
	return -1;
}

static int add_transition(struct sampler *sampler, const struct event *event, unsigned record)
{
	struct take *take = sampler->take;
	struct transition_note *notes = grown(take->transitions, &sampler->transition_room, take->transition_count, sizeof(*notes));

	if (notes == NULL)
		return -ENOMEM;
	take->transitions = notes;
	int64_t at_ns = (int64_t)(sampler->map->created_ns + event->ms * 1000000) - take->board->start_ns;
	struct transition_note *note = &notes[take->transition_count++];
	for (; note > notes && note[-1].at_ns > at_ns; note--)
		note[0] = note[-1];
	*note = (struct transition_note){
	        .at_ns = at_ns,
	        .resource = (uint16_t)(record / sampler->per_resource),
	        .worker = (uint16_t)(record % sampler->per_resource),
	        .from = state_of(event->from),
	        .to = state_of(event->to),
	};
	snprintf(note->why, sizeof(note->why), "%s", reason_text(event->reason));
	return 0;
}

static uint64_t events_now(const struct sampler *sampler)
{
	return atomic_load_explicit(&sampler->map->live->next_event, memory_order_acquire);
}

/* The events that had their numbers for long enough. */
static uint64_t settled(struct sampler *sampler)
{
	int64_t now_ns = board_now(sampler->take->board);

	if (now_ns >= sampler->settle_ns) {
		sampler->settled = sampler->unsettled;
		sampler->unsettled = events_now(sampler);
		sampler->settle_ns = now_ns + SETTLE_NS;
	}
	return sampler->settled;
}

static int add_transitions(struct sampler *sampler, uint64_t up_to)
{
	uint64_t now = events_now(sampler);

	if (up_to <= sampler->last_event)
		return 0;
	if (now > sampler->last_event && now - sampler->last_event > sampler->map->dims.events) {
		fprintf(stderr, "resctl rehearse: more transitions at once than this process could read: the rehearsal needs a faster "
		                "host, or fewer workers\n");
		return -EOVERFLOW;
	}
	size_t count = event_read(sampler->map, sampler->last_event, sampler->events, sampler->map->dims.events);
	for (size_t i = 0; i < count && sampler->events[i].number <= up_to; i++) {
		const struct event *event = &sampler->events[i];
		int record = event->kind == EVENT_BREAKER ? record_of(sampler, event->resource) : -1;
		int r = record < 0 ? 0 : add_transition(sampler, event, (unsigned)record);
		if (r < 0)
			return r;
	}
	sampler->last_event = up_to;
	return 0;
}

int sampler_turn(struct sampler *sampler)
{
	int r = add_samples(sampler);

	return r < 0 ? r : add_transitions(sampler, settled(sampler));
}

/* ---- totals ---- */

static void add_counters(struct resc_counters *to, const struct resc_counters *from)
{
	uint64_t *sum = (uint64_t *)to;
	const uint64_t *more = (const uint64_t *)from;

	/* Nothing but counters, in whatever order. */
	for (size_t i = 0; i < sizeof(*to) / sizeof(*sum); i++)
		sum[i] += more[i];
}

static void add_latency(struct inspect_latency *to, const struct inspect_latency *from)
{
	to->count += from->count;
	to->sum_us += from->sum_us;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		to->buckets[i] += from->buckets[i];
}

/* From the first one on, where the ring has not forgotten it. */
static void read_transitions_again(struct sampler *sampler)
{
	if (events_now(sampler) > sampler->map->dims.events)
		return;
	sampler->last_event = 0;
	sampler->take->transition_count = 0;
}

int sampler_total(struct sampler *sampler)
{
	struct take *take = sampler->take;

	read_transitions_again(sampler);
	int r = add_transitions(sampler, events_now(sampler));

	for (size_t i = 0; i < record_count(sampler); i++) {
		struct tally *tally = &take->tallies[i / sampler->per_resource];
		struct inspect_resource seen;
		if (inspect_resource(sampler->map, (uint32_t)sampler->records[i], &seen) < 0)
			continue;
		add_counters(&tally->counters, &seen.counters);
		add_latency(&tally->latency, &seen.latency);
		tally->policy = seen.policy;
	}
	return r;
}
