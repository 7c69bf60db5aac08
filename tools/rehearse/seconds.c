/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what happened in each second of a take, for tables and plots: one pass over the notes for all of it. A request, with all
 * that became of it, is in the second of its arrival; an attempt and a receipt are in their own.
 */
#include <stdlib.h>

#include "figures_measure.h"
#include "present.h"

#define REFUSALS   (sizeof(((struct second *)NULL)->refused) / sizeof(uint32_t))
#define NO_RETRIES (sizeof(((struct second *)NULL)->no_retry) / sizeof(uint32_t))

struct sorting {
	const struct take *take;
	int load;
	int64_t width_ns;
	struct second *seconds;
	size_t count;
};

/* NULL: before the take or after it. */
static struct second *second_of(const struct sorting *s, int64_t at_ns)
{
	size_t i = at_ns < 0 ? s->count : (size_t)(at_ns / s->width_ns);
	return i < s->count ? &s->seconds[i] : NULL;
}

static bool is_of_load(const struct sorting *s, uint32_t request)
{
	const struct board *board = s->take->board;
	return s->load < 0 || (request < board->request_count && board->requests[request].load == (uint32_t)s->load);
}

static bool sort_percentiles(struct second *second, struct numbers *times)
{
	bool failed = times->failed;

	second->p50_ms = numbers_stat(times, STAT_P50);
	second->p95_ms = numbers_stat(times, STAT_P95);
	second->p99_ms = numbers_stat(times, STAT_P99);
	times->count = 0;
	return !failed;
}

/* They are in order of arrival: a second's latencies are complete when the next one begins. */
static bool sort_requests(const struct sorting *s)
{
	const struct board *board = s->take->board;
	struct second *now = NULL;
	struct numbers times = {0};
	bool whole = true;

	for (uint32_t i = 0; i < board->request_count; i++) {
		const struct request_note *request = &board->requests[i];
		struct second *second = second_of(s, request->arrival_ns);
		bool done = note_done(&request->done);
		if (second == NULL || !is_of_load(s, i) || (!done && request->arrival_ns >= s->take->duration_ns))
			continue;
		if (now != NULL && second != now)
			whole = sort_percentiles(now, &times) && whole;
		now = second;
		second->offered++;
		second->served[done ? request->served : SERVED_NOT_YET]++;
		if (done && request->served != SERVED_REJECTED)
			numbers_add(&times, (double)(request->ended_ns - request->arrival_ns) / NS_PER_MS);
	}
	if (now != NULL)
		whole = sort_percentiles(now, &times) && whole;
	numbers_free(&times);
	return whole;
}

static void sort_attempts(const struct sorting *s)
{
	for (size_t i = 0; i < s->take->attempt_count; i++) {
		const struct attempt_note *attempt = &s->take->board->attempt_notes[i];
		if (!note_done(&attempt->done) || !is_of_load(s, attempt->request))
			continue;
		struct second *second = second_of(s, attempt->asked_ns);
		if (second == NULL || attempt->answer < 0)
			continue;
		if (attempt->answer > 0) {
			if ((size_t)attempt->answer < REFUSALS)
				second->refused[attempt->answer]++;
			continue;
		}
		second->attempts++;
		second->retries += attempt->try > 1;
		if (attempt->retry >= RESC_E_ATTEMPTS && (size_t)(attempt->retry - RESC_E_ATTEMPTS) < NO_RETRIES)
			second->no_retry[attempt->retry - RESC_E_ATTEMPTS]++;
	}
}

static void sort_receipts(const struct sorting *s)
{
	for (size_t i = 0; i < s->take->receipt_count; i++) {
		const struct receipt_note *receipt = &s->take->board->receipt_notes[i];
		if (!note_done(&receipt->done) || !is_of_load(s, receipt->request))
			continue;
		struct second *second = second_of(s, receipt->received_ns);
		if (second == NULL)
			continue;
		second->received++;
		second->shed += receipt->receipt == RECEIPT_SHED;
	}
}

struct second *take_seconds(const struct take *take, int load, int64_t width_ns, size_t *count)
{
	struct sorting s = {.take = take, .load = load, .width_ns = width_ns};

	s.count = take->duration_ns <= 0 ? 0 : (size_t)((take->duration_ns + width_ns - 1) / width_ns);
	s.seconds = calloc(s.count + 1, sizeof(*s.seconds)); /* never of nothing */
	if (s.seconds == NULL)
		return NULL;
	for (size_t i = 0; i < s.count; i++)
		s.seconds[i].p50_ms = s.seconds[i].p95_ms = s.seconds[i].p99_ms = NAN;
	if (!sort_requests(&s)) {
		free(s.seconds);
		return NULL;
	}
	sort_attempts(&s);
	sort_receipts(&s);
	*count = s.count;
	return s.seconds;
}
