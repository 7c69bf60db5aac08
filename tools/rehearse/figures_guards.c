/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what the segment itself says: its guards at each look, and what it counted and measured by the end. On own views each
 * worker has its own; calls inside are added up, and of a budget or a throttle the worst worker's counts.
 */
#include "figures_measure.h"
#include "suggest.h"

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

static void add_endings(struct resc_counters *sum, const struct resc_counters *counters)
{
#define X(NAME, name, text) sum->ended_##name += counters->ended_##name;
	RESC_OUTCOMES(X)
#undef X
}

/* What resctl suggest would read. Of several resources together there is no policy, and so no timeout that they all had. */
static void gather(const struct inquiry *q, struct suggest_facts *facts)
{
	*facts = (struct suggest_facts){0};
	for (uint32_t i = 0; i < q->take->scenario->resource_count; i++) {
		if (!asked_of(q, i))
			continue;
		add_latency(&facts->latency, &q->take->tallies[i].latency);
		add_endings(&facts->counters, &q->take->tallies[i].counters);
	}
	if (q->of >= 0)
		facts->policy = q->take->tallies[q->of].policy;
}

double figure_histogram(const struct inquiry *q, int stat)
{
	struct suggest_facts facts;

	gather(q, &facts);
	return facts.latency.count == 0 ? NAN : suggest_quantile_us(&facts.latency, stat_quantile((enum stat)stat)) / 1e3;
}

double figure_cut_off(const struct inquiry *q, int unused)
{
	struct suggest_facts facts;

	(void)unused;
	gather(q, &facts);
	if (facts.latency.count == 0 || q->width_ns < (int64_t)NS_PER_MS)
		return NAN;
	return suggest_cut_off(&facts, (uint64_t)q->width_ns / (uint64_t)NS_PER_MS).likely;
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
