/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what the workers asked of their resources and what they were told: attempts, retries and when they came, refusals by
 * reason, and how many calls had to fail before everybody had stopped. An attempt counts by when it was asked for.
 */
#include "figures_measure.h"

#include <stdlib.h>

#include "resc.h"

/* The next attempt that the question is about, from *next on; NULL: there is no more. */
static const struct attempt_note *next_attempt(const struct inquiry *q, size_t *next)
{
	while (*next < q->take->attempt_count) {
		const struct attempt_note *attempt = &q->take->board->attempt_notes[(*next)++];
		if (note_done(&attempt->done) && asked_of(q, attempt->resource) && asked_time(q, attempt->asked_ns))
			return attempt;
	}
	return NULL;
}

static bool failed(const struct attempt_note *attempt)
{
	return attempt->answer == 0 && (attempt->outcome == RESC_FAIL || attempt->outcome == RESC_TIMEOUT);
}

static bool is_retry(const struct attempt_note *attempt)
{
	return attempt->answer == 0 && attempt->try > 1;
}

static bool is_which(const struct attempt_note *attempt, enum attempts_which which)
{
	if (which == ATTEMPTS_BROKEN)
		return attempt->answer < 0;
	if (attempt->answer != 0)
		return false;
	switch (which) {
	case ATTEMPTS_RETRIES:
		return is_retry(attempt);
	case ATTEMPTS_INJECTED:
		return attempt->injected;
	case ATTEMPTS_PROBES:
		return attempt->probe;
	case ATTEMPTS_PROBES_IN_FAULT:
		return attempt->probe && attempt->during_fault;
	case ATTEMPTS_FAILING:
		return attempt->during_fault && failed(attempt);
	default:
		return true;
	}
}

double figure_attempts(const struct inquiry *q, int which)
{
	const struct attempt_note *attempt;
	uint32_t count = 0;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		count += is_which(attempt, (enum attempts_which)which);
	return count;
}

double figure_outcomes(const struct inquiry *q, int outcome)
{
	const struct attempt_note *attempt;
	uint32_t count = 0;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		count += attempt->answer == 0 && attempt->outcome == outcome;
	return count;
}

double figure_refused(const struct inquiry *q, int answer)
{
	const struct attempt_note *attempt;
	uint32_t count = 0;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		count += answer == 0 ? attempt->answer > 0 : attempt->answer == answer;
	return count;
}

double figure_no_retry(const struct inquiry *q, int answer)
{
	const struct attempt_note *attempt;
	uint32_t count = 0;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		count += attempt->answer == 0 && attempt->retry == answer;
	return count;
}

/* ---- when retries came ---- */

static void retries_into(const struct inquiry *q, struct slots *slots)
{
	const struct attempt_note *attempt;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		if (is_retry(attempt))
			slots_add(slots, attempt->asked_ns);
}

double figure_retries_worst(const struct inquiry *q, int unused)
{
	struct slots slots = {.from_ns = q->from_ns, .width_ns = SECOND_NS};

	(void)unused;
	retries_into(q, &slots);
	double most = slots_most(&slots);
	slots_free(&slots);
	return most;
}

/* Notes are in the order in which their numbers were drawn, which is nearly that of time. */
double figure_retry_slots(const struct inquiry *q, int which)
{
	struct slots slots = {.from_ns = INT64_MAX, .width_ns = q->width_ns};
	const struct attempt_note *attempt;

	if (q->width_ns <= 0)
		return NAN;
	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		if (is_retry(attempt) && attempt->asked_ns < slots.from_ns)
			slots.from_ns = attempt->asked_ns;
	retries_into(q, &slots);
	double value = which == SLOTS_BUSIEST ? slots_most(&slots) : slots_used(&slots);
	slots_free(&slots);
	return value;
}

double figure_retries_last(const struct inquiry *q, int unused)
{
	const struct attempt_note *attempt;
	int64_t first = INT64_MAX, last = -1;

	(void)unused;
	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;) {
		if (attempt->answer == 0 && attempt->asked_ns < first)
			first = attempt->asked_ns;
		if (is_retry(attempt) && attempt->asked_ns > last)
			last = attempt->asked_ns;
	}
	return last < 0 ? NAN : (double)(last - first) / NS_PER_MS;
}

/* ---- how long good answers took ---- */

static bool went_well(const struct attempt_note *attempt)
{
	return attempt->answer == 0 && attempt->outcome == RESC_OK;
}

double figure_attempt_latency(const struct inquiry *q, int stat)
{
	const struct attempt_note *attempt;
	struct numbers times = {0};

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		if (went_well(attempt))
			numbers_add(&times, (double)(attempt->ended_ns - attempt->entered_ns) / NS_PER_MS);
	double value = numbers_stat(&times, (enum stat)stat);
	numbers_free(&times);
	return value;
}

double figure_attempt_cut_off(const struct inquiry *q, int unused)
{
	const struct attempt_note *attempt;
	uint32_t all = 0, longer = 0;

	(void)unused;
	if (q->width_ns <= 0)
		return NAN;
	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;) {
		all += went_well(attempt);
		longer += went_well(attempt) && attempt->ended_ns - attempt->entered_ns > q->width_ns;
	}
	return share_of(longer, all);
}

/* ---- until everybody had stopped ---- */

/* What a worker did while the fault was on. */
struct stop {
	bool asked;
	int64_t refused_ns; /* by the breaker, for the first time; INT64_MAX: never */
};

/* When the fault began and ended, as the calls met it; false: none did. */
static bool met_fault(const struct inquiry *q, int64_t *from_ns, int64_t *to_ns)
{
	const struct attempt_note *attempt;

	*from_ns = INT64_MAX;
	*to_ns = fault_end(q);
	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;) {
		if (attempt->answer != 0 || !attempt->during_fault)
			continue;
		if (attempt->asked_ns < *from_ns)
			*from_ns = attempt->asked_ns;
	}
	if (*to_ns < 0)
		*to_ns = INT64_MAX;
	return *from_ns != INT64_MAX;
}

static void see_stops(const struct inquiry *q, int64_t from_ns, int64_t to_ns, struct stop *stops)
{
	const struct attempt_note *attempt;

	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;) {
		if (attempt->asked_ns < from_ns || attempt->asked_ns >= to_ns || attempt->worker >= SCENARIO_WORKERS)
			continue;
		struct stop *stop = &stops[attempt->worker];
		stop->asked = true;
		if ((attempt->answer == RESC_E_OPEN || attempt->answer == RESC_E_HALF_OPEN) && attempt->entered_ns < stop->refused_ns)
			stop->refused_ns = attempt->entered_ns;
	}
}

double figure_failing_before_stop(const struct inquiry *q, int unused)
{
	struct stop stops[SCENARIO_WORKERS];
	const struct attempt_note *attempt;
	int64_t from_ns, to_ns, last_ns = 0;
	uint32_t count = 0;

	(void)unused;
	if (!met_fault(q, &from_ns, &to_ns))
		return 0;
	for (unsigned i = 0; i < SCENARIO_WORKERS; i++)
		stops[i] = (struct stop){false, INT64_MAX};
	see_stops(q, from_ns, to_ns, stops);
	for (unsigned i = 0; i < SCENARIO_WORKERS; i++)
		if (stops[i].asked && stops[i].refused_ns > last_ns)
			last_ns = stops[i].refused_ns;
	for (size_t i = 0; (attempt = next_attempt(q, &i)) != NULL;)
		count += is_which(attempt, ATTEMPTS_FAILING) && !attempt->probe && attempt->entered_ns < last_ns;
	return count;
}
