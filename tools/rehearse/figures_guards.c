/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what the segment itself says: its guards at each look, and what it counted and measured by the end. On own views each
 * worker has its own; calls inside are added up, and of a budget or a throttle the worst worker's counts.
 */
#include "figures_measure.h"

#include <stdlib.h>

/* The most calls that were inside (or waiting) at one look: the samples of one moment together. */
double figure_permits(const struct inquiry *q, int waiting)
{
	const struct take *take = q->take;
	uint32_t sum = 0, most = 0;

	for (size_t i = 0; i < take->sample_count; i++) {
		const struct sample *sample = &take->samples[i];
		if (i > 0 && sample->at_ns != take->samples[i - 1].at_ns)
			sum = 0;
		if (!asked_of(q, sample->resource) || !asked_time(q, sample->at_ns))
			continue;
		sum += waiting ? sample->waiting : sample->in_flight;
		if (sum > most)
			most = sum;
	}
	return most;
}

double figure_least(const struct inquiry *q, int rate)
{
	double least = NAN;

	for (size_t i = 0; i < q->take->sample_count; i++) {
		const struct sample *sample = &q->take->samples[i];
		double tokens = (double)(rate ? sample->rate_tokens : sample->tokens);
		if (tokens >= 0 && asked_of(q, sample->resource) && asked_time(q, sample->at_ns))
			least = fmin(least, tokens);
	}
	return least;
}

double figure_throttle(const struct inquiry *q, int unused)
{
	double most = NAN;

	(void)unused;
	for (size_t i = 0; i < q->take->sample_count; i++) {
		const struct sample *sample = &q->take->samples[i];
		if (asked_of(q, sample->resource) && asked_time(q, sample->at_ns))
			most = fmax(most, (double)sample->throttle);
	}
	return most;
}

/* ---- the histogram ---- */

static void add_latency(struct inspect_latency *sum, const struct inspect_latency *latency)
{
	sum->count += latency->count;
	sum->sum_us += latency->sum_us;
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++)
		sum->buckets[i] += latency->buckets[i];
}

static struct inspect_latency *measured(const struct inquiry *q)
{
	struct inspect_latency *sum = calloc(1, sizeof(*sum));

	for (uint32_t i = 0; sum != NULL && i < q->take->scenario->resource_count; i++)
		if (asked_of(q, i))
			add_latency(sum, &q->take->tallies[i].latency);
	return sum;
}

double figure_histogram(const struct inquiry *q, int stat)
{
	struct inspect_latency *latency = measured(q);
	double value = NAN;

	if (latency != NULL && latency->count > 0)
		value = (double)latency_quantile_us(latency, stat_quantile((enum stat)stat)) / 1e3;
	free(latency);
	return value;
}

/* Inside the bucket of the timeout the calls are taken to be spread evenly. */
double figure_cut_off(const struct inquiry *q, int unused)
{
	struct inspect_latency *latency = measured(q);
	double us = (double)q->width_ns / 1e3, beyond = 0, value = NAN;

	(void)unused;
	for (unsigned i = 0; latency != NULL && i < LATENCY_BUCKETS; i++) {
		double low = i == 0 ? 0 : (double)latency_edge_us(i - 1), high = (double)latency_edge_us(i);
		beyond += (double)latency->buckets[i] * fmin(fmax((high - us) / (high - low), 0), 1);
	}
	if (latency != NULL && q->width_ns > 0)
		value = share_of(beyond, (double)latency->count);
	free(latency);
	return value;
}

/* ---- counters ---- */

double figure_fallbacks(const struct inquiry *q, int unused)
{
	uint64_t sum = 0;

	(void)unused;
	for (uint32_t i = 0; i < q->take->scenario->resource_count; i++) {
		const struct resc_counters *counters = &q->take->tallies[i].counters;
		if (!asked_of(q, i))
			continue;
#define X(name, text) sum += counters->fallback_##name;
		RESC_FALLBACKS(X)
#undef X
	}
	return (double)sum;
}
