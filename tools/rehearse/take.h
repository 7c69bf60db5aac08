/* SPDX-License-Identifier: MIT */
/*
 * A take: one variant of a scenario, played once on one view, and everything that was noted of it. Made by the stage, read by the figures,
 * the tables and the report.
 */
#ifndef REHEARSE_TAKE_H
#define REHEARSE_TAKE_H

#include "board.h"
#include "inspect.h"

#define SAMPLE_NS INT64_C(20000000) /* between two looks at the segment */

/* A resource as it was at a moment. On own views there is one a worker. */
struct sample {
	int64_t at_ns;
	uint16_t resource;
	uint16_t worker; /* own views: whose; shared: 0 */
	uint8_t breaker; /* enum resc_breaker_state */
	bool forced;
	uint32_t in_flight;
	uint32_t limit; /* 0: none */
	uint32_t waiting;
	uint32_t retries;
	float tokens;      /* of the retry budget; -1: none */
	float rate_tokens; /* -1: no rate limit */
	float throttle;    /* the share that is refused */
};

/* A transition of a breaker, from the events of the segment. */
struct transition_note {
	int64_t at_ns;
	uint16_t resource;
	uint16_t worker;  /* own views: whose; shared: 0 */
	uint8_t from, to; /* enum resc_breaker_state */
	char why[64];
};

/* What the segment counted of a resource; own views: the sum over the workers' own. */
struct tally {
	struct resc_counters counters;
	struct inspect_latency latency;
	struct policy policy;
};

struct take {
	const struct scenario *scenario;
	enum view view;
	int64_t duration_ns;                 /* as played: shorter when it was stopped */
	const char *stopped;                 /* NULL: it went to its end; else why not: a text that lives as long as the take */
	struct board *board;                 /* notes */
	size_t attempt_count, receipt_count; /* that have room on the board */
	struct sample *samples;              /* in order of time */
	size_t sample_count;
	struct transition_note *transitions; /* in order of time */
	size_t transition_count;
	struct tally tallies[SCENARIO_RESOURCES];
};

void take_free(struct take *take);

#endif
