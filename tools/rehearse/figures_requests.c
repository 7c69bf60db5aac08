/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what the clients of the load got. Everything here counts a request by its arrival, so that the requests of a second are
 * the same on each view, whatever became of them and when.
 */
#include "figures_measure.h"

#include <stdlib.h>

/* The schedule goes to the end of the scenario; a take may have been stopped before, and then not all of it arrived. */
static bool arrived(const struct inquiry *q, const struct request_note *request)
{
	return request->arrival_ns < q->take->duration_ns || note_done(&request->done);
}

static bool is_asked(const struct inquiry *q, const struct request_note *request)
{
	return asked_of(q, request->load) && asked_time(q, request->arrival_ns) && arrived(q, request);
}

static int served_of(const struct request_note *request)
{
	return note_done(&request->done) ? request->served : SERVED_NOT_YET;
}

/* counts[] of each enum served; returns all. */
static uint32_t count_requests(const struct inquiry *q, uint32_t counts[SERVED_KINDS])
{
	const struct board *board = q->take->board;
	uint32_t all = 0;

	for (uint32_t i = 0; i < board->request_count; i++) {
		const struct request_note *request = &board->requests[i];
		if (!is_asked(q, request))
			continue;
		counts[served_of(request)]++;
		all++;
	}
	return all;
}

double figure_requests(const struct inquiry *q, int served)
{
	uint32_t counts[SERVED_KINDS] = {0};
	uint32_t all = count_requests(q, counts);

	return served == REQUESTS_OFFERED ? all : counts[served];
}

double figure_request_share(const struct inquiry *q, int share)
{
	uint32_t counts[SERVED_KINDS] = {0};
	uint32_t all = count_requests(q, counts);
	uint32_t good = counts[SERVED_FRESH] + counts[SERVED_STORED];

	if (share != SHARE_SUCCESS)
		good += counts[SERVED_FALLBACK];
	return share_of(share == SHARE_ERROR ? all - good : good, all);
}

/* Ended, and a worker had it: it has a latency and a wait. */
static bool was_worked_on(const struct request_note *request)
{
	int served = served_of(request);
	return served != SERVED_NOT_YET && served != SERVED_REJECTED;
}

static bool was_served(const struct request_note *request)
{
	int served = served_of(request);
	return served == SERVED_FRESH || served == SERVED_STORED;
}

static double latency_of(const struct inquiry *q, bool (*counts)(const struct request_note *request), int stat)
{
	const struct board *board = q->take->board;
	struct numbers times = {0};

	for (uint32_t i = 0; i < board->request_count; i++) {
		const struct request_note *request = &board->requests[i];
		if (is_asked(q, request) && counts(request))
			numbers_add(&times, (double)(request->ended_ns - request->arrival_ns) / NS_PER_MS);
	}
	double value = numbers_stat(&times, (enum stat)stat);
	numbers_free(&times);
	return value;
}

double figure_latency(const struct inquiry *q, int stat)
{
	return latency_of(q, was_worked_on, stat);
}

/* Where many are refused at once, the latency of all says how quickly that is done. */
double figure_served_latency(const struct inquiry *q, int stat)
{
	return latency_of(q, was_served, stat);
}

/* By request: when the first of its resources let it in; -1: none did. NULL: out of memory. */
static int64_t *first_admissions(const struct take *take)
{
	const struct board *board = take->board;
	int64_t *first = malloc((board->request_count + 1) * sizeof(*first));

	if (first == NULL)
		return NULL;
	for (uint32_t i = 0; i < board->request_count; i++)
		first[i] = -1;
	for (size_t i = 0; i < take->attempt_count; i++) {
		const struct attempt_note *attempt = &board->attempt_notes[i];
		if (!note_done(&attempt->done) || attempt->answer != 0 || attempt->request >= board->request_count)
			continue;
		int64_t *at = &first[attempt->request];
		if (*at < 0 || attempt->entered_ns < *at)
			*at = attempt->entered_ns;
	}
	return first;
}

double figure_wait(const struct inquiry *q, int stat)
{
	const struct board *board = q->take->board;
	int64_t *first = first_admissions(q->take);
	struct numbers times = {.failed = first == NULL};

	for (uint32_t i = 0; first != NULL && i < board->request_count; i++) {
		const struct request_note *request = &board->requests[i];
		if (!is_asked(q, request) || !was_worked_on(request))
			continue;
		int64_t end_ns = first[i] >= 0 ? first[i] : request->ended_ns;
		numbers_add(&times, (double)(end_ns - request->arrival_ns) / NS_PER_MS);
	}
	double value = numbers_stat(&times, (enum stat)stat);
	numbers_free(&times);
	free(first);
	return value;
}

/* Requests that arrived in [from, to), ended, and made an attempt; *attempts: theirs. They lie in order of arrival: *next is where to
 * begin, and then where the next interval does. */
static uint32_t tried(const struct inquiry *q, int64_t to_ns, uint32_t *next, uint64_t *attempts)
{
	const struct board *board = q->take->board;
	uint32_t count = 0;

	*attempts = 0;
	for (; *next < board->request_count && board->requests[*next].arrival_ns < to_ns; ++*next) {
		const struct request_note *request = &board->requests[*next];
		if (!is_asked(q, request) || !note_done(&request->done) || request->attempts == 0)
			continue;
		count++;
		*attempts += request->attempts;
	}
	return count;
}

double figure_attempts_per_request(const struct inquiry *q, int worst)
{
	const struct board *board = q->take->board;
	uint64_t attempts;
	uint32_t next = 0;
	double most = NAN;

	if (!worst) {
		uint32_t count = tried(q, INT64_MAX, &next, &attempts);
		return share_of((double)attempts, count);
	}
	while (next < board->request_count && board->requests[next].arrival_ns < q->from_ns)
		next++;
	while (next < board->request_count && board->requests[next].arrival_ns < q->to_ns) {
		int64_t second = (board->requests[next].arrival_ns - q->from_ns) / SECOND_NS;
		uint32_t count = tried(q, q->from_ns + (second + 1) * SECOND_NS, &next, &attempts);
		most = fmax(most, share_of((double)attempts, count));
	}
	return most;
}
