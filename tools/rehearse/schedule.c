/* SPDX-License-Identifier: MIT */
/*
 * Why the arrivals are computed before the first process starts: an experiment compares. The same requests at the same times, on each
 * worker's own view and on the shared one, with a breaker and without; and load that does not slow down because what it calls is slow (a
 * load generator that waits for answers before it sends more hides the very waits that it should measure).
 *
 * A load is a rate over time, a staircase of one step a second, the last of which goes on. Its integral says how many requests are due up
 * to a time. An even load has request k (from 0) where the integral is k; a Poisson load where it is the sum of k + 1 exponential gaps of
 * mean 1. So both follow a changing rate without a seam at its steps, and 300 a second for 8 s are 2400 requests, exactly.
 *
 * The random numbers of a load come from the seed of the scenario and the name of the load, and from nothing else: a variant that adds a
 * load does not move the others.
 */
#include "schedule.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "map.h"

#define SECOND_NS 1000000000.0
#define SLACK     1e-6 /* of a request: rates are no exact numbers, and the last request of a second shall not fall into the next */

/* ---- random numbers ---- */

/* splitmix64, by Vigna: one word of state, good enough for gaps. */
static uint64_t dice_next(uint64_t *dice)
{
	uint64_t z = *dice += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* Exponential, of mean 1. */
static double dice_gap(uint64_t *dice)
{
	double u = (double)(dice_next(dice) >> 11) * 0x1p-53; /* [0, 1) */

	return -log1p(-u);
}

/* ---- one load ---- */

static int add(struct schedule *s, size_t *room, int64_t at_ns, uint32_t load, uint32_t number)
{
	if (s->count == SCENARIO_REQUESTS)
		return -E2BIG;
	if (s->count == *room) {
		size_t more = *room < 1024 ? 1024 : 2 * *room;
		struct arrival *items = realloc(s->items, more * sizeof(*items));
		if (items == NULL)
			return -ENOMEM;
		s->items = items;
		*room = more;
	}
	s->items[s->count++] = (struct arrival){at_ns, load, number};
	return 0;
}

static double rate_at(const struct load *load, size_t step)
{
	return load->rates[step < load->rate_count ? step : load->rate_count - 1];
}

/* Goes up the staircase; `due` is where the integral has to be for the next request, `sum` where it is when a step begins. */
static int add_by_rate(struct schedule *s, size_t *room, const struct scenario *scenario, uint32_t index)
{
	const struct load *load = &scenario->loads[index];
	uint64_t dice = scenario->seed ^ fnv1a(load->name, strlen(load->name));
	bool even = load->arrivals == ARRIVALS_EVEN;
	int64_t end_ns = load->to_ns < scenario->duration_ns ? load->to_ns : scenario->duration_ns;
	double due = even ? 0 : dice_gap(&dice), sum = 0;
	uint32_t number = 0;

	for (size_t step = 0; load->rate_count > 0; step++) {
		int64_t from_ns = load->from_ns + (int64_t)step * (int64_t)SECOND_NS;
		if (from_ns >= end_ns)
			break;
		double rate = rate_at(load, step);
		double length = (double)(end_ns - from_ns) / SECOND_NS;
		double top = sum + rate * (length < 1 ? length : 1);
		while (due < top - SLACK) {
			int64_t at_ns = from_ns + (int64_t)llround(fmax(0, due - sum) / rate * SECOND_NS);
			int r = add(s, room, at_ns, index, ++number);
			if (r < 0)
				return r;
			due += even ? 1 : dice_gap(&dice);
		}
		sum = top;
	}
	return 0;
}

static int add_by_time(struct schedule *s, size_t *room, const struct scenario *scenario, uint32_t index)
{
	const struct load *load = &scenario->loads[index];

	for (size_t i = 0; i < load->at_count && load->at[i] < scenario->duration_ns; i++) {
		int r = add(s, room, load->at[i], index, (uint32_t)i + 1);
		if (r < 0)
			return r;
	}
	return 0;
}

/* ---- all of them ---- */

static int compare(const void *a, const void *b)
{
	const struct arrival *x = a, *y = b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	if (x->load != y->load)
		return x->load < y->load ? -1 : 1;
	return x->number < y->number ? -1 : x->number > y->number;
}

int schedule_make(const struct scenario *scenario, struct schedule *out)
{
	size_t room = 0;
	int r = 0;

	*out = (struct schedule){0};
	for (uint32_t i = 0; i < scenario->load_count && r == 0; i++)
		r = scenario->loads[i].arrivals == ARRIVALS_AT ? add_by_time(out, &room, scenario, i)
		                                               : add_by_rate(out, &room, scenario, i);
	if (r < 0) {
		schedule_free(out);
		return r;
	}
	if (out->count > 0)
		qsort(out->items, out->count, sizeof(*out->items), compare);
	return 0;
}

void schedule_free(struct schedule *schedule)
{
	free(schedule->items);
	*schedule = (struct schedule){0};
}
