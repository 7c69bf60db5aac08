/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: means, percentiles and busiest slots, over as many notes as there are. A percentile is a value that was really measured
 * (nearest rank): nothing is made up between two of them.
 */
#include "figures_measure.h"

#include <stdlib.h>
#include <string.h>

void numbers_add(struct numbers *numbers, double value)
{
	if (numbers->failed)
		return;
	if (numbers->count == numbers->room) {
		size_t room = numbers->room == 0 ? 256 : numbers->room * 2;
		double *values = realloc(numbers->values, room * sizeof(*values));
		if (values == NULL) {
			numbers->failed = true;
			return;
		}
		numbers->values = values;
		numbers->room = room;
	}
	numbers->values[numbers->count++] = value;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

double stat_quantile(enum stat stat)
{
	static const double quantiles[] = {
	        [STAT_MEAN] = 1, [STAT_P50] = 0.5, [STAT_P95] = 0.95, [STAT_P99] = 0.99, [STAT_P999] = 0.999, [STAT_MAX] = 1};
	return quantiles[stat];
}

double numbers_stat(struct numbers *numbers, enum stat stat)
{
	if (numbers->failed || numbers->count == 0)
		return NAN;
	if (stat == STAT_MEAN) {
		double sum = 0;
		for (size_t i = 0; i < numbers->count; i++)
			sum += numbers->values[i];
		return sum / (double)numbers->count;
	}
	qsort(numbers->values, numbers->count, sizeof(*numbers->values), by_value);
	/* A hair below: 0.95 times 20 is 19, whatever the last bit of the product says. */
	double rank = ceil(stat_quantile(stat) * (double)numbers->count - 1e-9);
	return numbers->values[rank < 1 ? 0 : (size_t)rank - 1];
}

void numbers_free(struct numbers *numbers)
{
	free(numbers->values);
	*numbers = (struct numbers){0};
}

void slots_add(struct slots *slots, int64_t at_ns)
{
	if (slots->failed || at_ns < slots->from_ns)
		return;
	size_t slot = (size_t)((at_ns - slots->from_ns) / slots->width_ns);
	if (slot >= slots->count) {
		size_t count = slot + 1 > slots->count * 2 ? slot + 1 : slots->count * 2;
		uint32_t *counts = reallocarray(slots->counts, count, sizeof(*counts));
		if (counts == NULL) {
			slots->failed = true;
			return;
		}
		memset(counts + slots->count, 0, (count - slots->count) * sizeof(*counts));
		slots->counts = counts;
		slots->count = count;
	}
	slots->counts[slot]++;
}

double slots_most(const struct slots *slots)
{
	uint32_t most = 0;
	for (size_t i = 0; i < slots->count; i++)
		if (slots->counts[i] > most)
			most = slots->counts[i];
	return slots->failed ? NAN : (double)most;
}

double slots_used(const struct slots *slots)
{
	size_t used = 0;
	for (size_t i = 0; i < slots->count; i++)
		used += slots->counts[i] > 0;
	return slots->failed ? NAN : (double)used;
}

void slots_free(struct slots *slots)
{
	free(slots->counts);
	slots->counts = NULL;
	slots->count = 0;
}
