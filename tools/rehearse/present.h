/* SPDX-License-Identifier: MIT */
/* What people and programs see of a rehearsal. Each of these takes the same two: the takes and what came of them. */
#ifndef REHEARSE_PRESENT_H
#define REHEARSE_PRESENT_H

#include <stdio.h>

#include "table.h"
#include "verdict.h"

/* What is rehearsed, before the first take: title, experiment, about. */
void print_head(const struct screen *screen, FILE *out, const struct scenarios *scenarios);

/* The head of a take, and then a row a second while it is played: live. Called by the stage's look. */
struct live;
struct live *live_new(const struct screen *screen, FILE *out);
void live_begin(struct live *live, const struct scenario *scenario, enum view view);
void live_look(struct live *live, const struct take *take);
void live_end(struct live *live, const struct take *take);
void live_free(struct live *live);

/* Totals by view, verdicts with published and own figures side by side, comparison of the views, the game day's answers. */
void print_result(const struct screen *screen, FILE *out, const struct scenarios *scenarios, const struct take *takes, size_t take_count,
                  const struct outcome *outcome);
/* The same of what a signal ended: the totals so far, of `planned` takes, and nothing is judged. Nothing where nothing was played. */
void print_unfinished(const struct screen *screen, FILE *out, const struct scenarios *scenarios, const struct take *takes,
                      size_t take_count, size_t planned);
/* Everything, as one document; a new reference, NULL: out of memory. docs/rehearsal.schema.json is its schema. */
json_t *result_json(const struct scenarios *scenarios, const struct take *takes, size_t take_count, const struct outcome *outcome);
/* One HTML file that needs nothing else. 0 or -errno. */
int report_write(const char *path, const struct scenarios *scenarios, const struct take *takes, size_t take_count,
                 const struct outcome *outcome);

/* What a second of a take looked like: one row of the tables and of the plots. */
struct second {
	uint32_t offered;              /* requests that arrived */
	uint32_t served[SERVED_KINDS]; /* of those */
	uint32_t attempts;             /* calls that were admitted */
	uint32_t received;             /* calls that reached a dependency */
	uint32_t shed;                 /* of those: answered with an error beyond its capacity */
	uint32_t retries;              /* attempts after the first */
	uint32_t refused[16];          /* by enum resc_answer of resc_enter */
	uint32_t no_retry[8];          /* by answer of resc_retry minus RESC_E_ATTEMPTS */
	double p50_ms, p95_ms, p99_ms; /* of the requests that arrived then; NAN: none ended */
};
/* seconds of width_ns each; *count of them, to be freed. NULL: out of memory. of: a load, or -1. */
struct second *take_seconds(const struct take *take, int load, int64_t width_ns, size_t *count);

#endif
