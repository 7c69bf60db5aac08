/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the two views of a rehearsal are only comparable when the dependency treats them alike. So nothing here depends on the
 * order in which calls happen to arrive: what chance decides (which calls a partial failure hits, how long the work takes) is a function of
 * the seed, the dependency, the request and the try. The same call gets the same answer on both views, in the server and in the caller,
 * which both ask. Only whom a busy processor serves first is left to dice of the server's own.
 *
 * Where several faults are on, the first one of the file that stops a call decides; delays add up, and the least capacity holds.
 */
#include "script.h"

#include <math.h>

/* splitmix64 (Vigna): each number of a sequence is a hash of its place. */
static uint64_t mix(uint64_t x)
{
	uint64_t z = x + UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

/* What is drawn for a call: number 0, 1, ... of its sequence. 0 <= x < 1. */
static double draw(const struct scenario *scenario, unsigned dependency, const struct cue *cue, unsigned number)
{
	uint64_t x = mix(scenario->seed);
	x = mix(x ^ dependency);
	x = mix(x ^ ((uint64_t)cue->request << 16 | cue->try));
	x = mix(x ^ number);
	return (double)(x >> 11) * 0x1p-53;
}

uint64_t script_dice(const struct scenario *scenario, unsigned dependency, uint64_t number)
{
	return mix(mix(mix(scenario->seed) ^ dependency) + number);
}

/* The numbers of what is drawn. A fault has that of its place in the file. */
enum { DRAW_SPAN, DRAW_VALUE, DRAW_ANGLE, DRAW_FAULTS };

static bool is_for(const struct fault *fault, const struct cue *cue)
{
	if (fault->tries != 0 && cue->try > fault->tries)
		return false;
	if (fault->from_request != 0)
		return cue->number >= fault->from_request && cue->number <= fault->to_request;
	return fault_is_on(fault, cue->at_ns);
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static void stop_with(struct deal *deal, enum deal_kind kind, const struct fault *fault)
{
	if (deal->kind != DEAL_WORK)
		return;
	deal->kind = kind;
	deal->retry_after_ms = kind == DEAL_ERROR ? fault->retry_after_ms : -1;
}

static void apply(struct deal *deal, const struct fault *fault)
{
	switch (fault->kind) {
	case FAULT_HANG:
		stop_with(deal, DEAL_HANG, fault);
		break;
	case FAULT_ERRORS:
		stop_with(deal, DEAL_ERROR, fault);
		break;
	case FAULT_RESET:
		stop_with(deal, DEAL_RESET, fault);
		break;
	case FAULT_SLOW:
		deal->extra_ns += fault->latency_ns;
		break;
	case FAULT_CAPACITY:
		deal->capacity = least(deal->capacity, fault->capacity);
		break;
	case FAULT_REFUSE: /* a matter of the port, and not of a call */
		break;
	}
}

struct deal script_deal(const struct scenario *scenario, unsigned dependency, const struct cue *cue)
{
	const struct dependency *d = &scenario->dependencies[dependency];
	struct deal deal = {.kind = DEAL_WORK, .retry_after_ms = -1, .capacity = d->capacity != 0 ? d->capacity : UINT32_MAX};

	for (size_t i = 0; i < d->fault_count; i++) {
		const struct fault *fault = &d->faults[i];
		if (!is_for(fault, cue))
			continue;
		deal.during_fault = true;
		if (fault->share >= 1 || draw(scenario, dependency, cue, DRAW_FAULTS + (unsigned)i) < fault->share)
			apply(&deal, fault);
	}
	return deal;
}

/* exp(mu + sigma * a number from the normal distribution), by Box and Muller. */
static double log_normal(const struct span *span, double u, double v)
{
	double normal = sqrt(-2 * log(1 - u)) * cos(2 * M_PI * v);
	return exp(span->mu + span->sigma * normal);
}

static const struct span *span_of(const struct dependency *dependency, double x)
{
	size_t i = 0;
	for (; i + 1 < dependency->latency_count && x >= dependency->latency[i].share; i++)
		x -= dependency->latency[i].share;
	return &dependency->latency[i];
}

int64_t script_latency_ns(const struct scenario *scenario, unsigned dependency, const struct cue *cue)
{
	const struct span *span = span_of(&scenario->dependencies[dependency], draw(scenario, dependency, cue, DRAW_SPAN));
	double u = draw(scenario, dependency, cue, DRAW_VALUE);

	switch (span->kind) {
	case SPAN_UNIFORM:
		return span->from_ns + (int64_t)(u * (double)(span->to_ns - span->from_ns));
	case SPAN_LOGNORMAL: {
		double seconds = log_normal(span, u, draw(scenario, dependency, cue, DRAW_ANGLE));
		return seconds < 1e9 ? (int64_t)(seconds * 1e9) : INT64_C(1000000000000000000);
	}
	case SPAN_FIXED:
		break;
	}
	return span->from_ns;
}

bool script_is_on(const struct dependency *dependency, enum fault_kind kind, int64_t at_ns)
{
	for (size_t i = 0; i < dependency->fault_count; i++) {
		if (dependency->faults[i].kind == kind && fault_is_on(&dependency->faults[i], at_ns))
			return true;
	}
	return false;
}

bool script_listens(const struct dependency *dependency, int64_t at_ns)
{
	return !script_is_on(dependency, FAULT_REFUSE, at_ns);
}

static int64_t next_change(const struct fault *fault, int64_t at_ns)
{
	if (at_ns < fault->from_ns)
		return fault->from_ns;
	if (at_ns >= fault->to_ns)
		return SCENARIO_FOREVER;
	if (fault->down_ns == 0)
		return fault->to_ns;
	int64_t cycle_ns = fault->down_ns + fault->up_ns;
	int64_t into_ns = (at_ns - fault->from_ns) % cycle_ns;
	int64_t next_ns = at_ns - into_ns + (into_ns < fault->down_ns ? fault->down_ns : cycle_ns);
	return next_ns < fault->to_ns ? next_ns : fault->to_ns;
}

int64_t script_next_change(const struct dependency *dependency, int64_t at_ns)
{
	int64_t next_ns = SCENARIO_FOREVER;
	for (size_t i = 0; i < dependency->fault_count; i++) {
		const struct fault *fault = &dependency->faults[i];
		int64_t change_ns = fault->from_request != 0 ? SCENARIO_FOREVER : next_change(fault, at_ns);
		if (change_ns < next_ns)
			next_ns = change_ns;
	}
	return next_ns;
}
