/* SPDX-License-Identifier: MIT */
/* How figures are computed: what is asked, which notes that is about, and the functions that the table of figures names. */
#ifndef REHEARSE_FIGURES_MEASURE_H
#define REHEARSE_FIGURES_MEASURE_H

#include <math.h>

#include "figures.h"

#define NS_PER_MS 1e6
#define SECOND_NS INT64_C(1000000000)

/* A reference whose names have been looked up. */
struct inquiry {
	const struct take *take;
	int of; /* index of the load, resource or dependency; -1: all */
	int64_t from_ns, to_ns;
	int64_t width_ns;
	uint32_t nth;
};

static inline bool asked_time(const struct inquiry *q, int64_t ns)
{
	return ns >= q->from_ns && ns < q->to_ns;
}
static inline bool asked_of(const struct inquiry *q, uint32_t index)
{
	return q->of < 0 || index == (uint32_t)q->of;
}

/* A note that its writer is done with: everything in it may be read. */
static inline bool note_done(const _Atomic uint32_t *done)
{
	/* Acquire: pairs with the writer's release; what he noted before is seen. */
	return atomic_load_explicit(done, memory_order_acquire) != 0;
}

static inline double share_of(double part, double whole)
{
	return whole > 0 ? part / whole : NAN;
}

/* Does a load of this resource's lead to that dependency? resource -1: does any? */
bool resource_leads_to(const struct scenario *scenario, int resource, unsigned dependency);
bool load_uses(const struct load *load, int resource);
/* When the last fault ends of the dependencies that a resource leads to; -1: there was none, or it was still on at the end of the take. */
int64_t fault_end(const struct inquiry *q);

/* ---- numbers ---- */

enum stat { STAT_MEAN, STAT_P50, STAT_P95, STAT_P99, STAT_P999, STAT_MAX };

struct numbers {
	double *values;
	size_t count, room;
	bool failed; /* out of memory: there is no figure */
};

void numbers_add(struct numbers *numbers, double value);
/* NAN: there are none. Sorts them. */
double numbers_stat(struct numbers *numbers, enum stat stat);
void numbers_free(struct numbers *numbers);
/* 0.5 for STAT_P50, and so on; 1 for the rest. */
double stat_quantile(enum stat stat);

/* How often something happened in each slot of a length. */
struct slots {
	int64_t from_ns, width_ns;
	uint32_t *counts;
	size_t count;
	bool failed;
};

void slots_add(struct slots *slots, int64_t at_ns);
/* The most in one slot, and how many slots had any; NAN: out of memory. */
double slots_most(const struct slots *slots);
double slots_used(const struct slots *slots);
void slots_free(struct slots *slots);

/* ---- the functions of the table ---- */

#define REQUESTS_OFFERED (-1) /* beside enum served */
enum request_share { SHARE_SUCCESS, SHARE_ANSWERED, SHARE_ERROR };
double figure_requests(const struct inquiry *q, int served);
double figure_request_share(const struct inquiry *q, int share);
double figure_latency(const struct inquiry *q, int stat);
double figure_served_latency(const struct inquiry *q, int stat);
double figure_wait(const struct inquiry *q, int stat);
double figure_attempts_per_request(const struct inquiry *q, int worst);

enum attempts_which {
	ATTEMPTS_ADMITTED,
	ATTEMPTS_RETRIES,
	ATTEMPTS_INJECTED,
	ATTEMPTS_PROBES,
	ATTEMPTS_PROBES_IN_FAULT,
	ATTEMPTS_FAILING,
	ATTEMPTS_BROKEN,
};
enum slots_which { SLOTS_BUSIEST, SLOTS_USED };
double figure_attempts(const struct inquiry *q, int which);
double figure_outcomes(const struct inquiry *q, int outcome);
double figure_refused(const struct inquiry *q, int answer);
double figure_no_retry(const struct inquiry *q, int answer);
double figure_retries_worst(const struct inquiry *q, int unused);
double figure_retry_slots(const struct inquiry *q, int which);
double figure_retries_last(const struct inquiry *q, int unused);
double figure_attempt_latency(const struct inquiry *q, int stat);
double figure_attempt_cut_off(const struct inquiry *q, int unused);
double figure_failing_before_stop(const struct inquiry *q, int unused);

double figure_transitions(const struct inquiry *q, int to);
double figure_transition_at(const struct inquiry *q, int to);
double figure_open_time(const struct inquiry *q, int unused);
double figure_recovered_after(const struct inquiry *q, int unused);

double figure_permits(const struct inquiry *q, int waiting);
double figure_least(const struct inquiry *q, int rate);
double figure_throttle(const struct inquiry *q, int unused);
double figure_histogram(const struct inquiry *q, int stat);
double figure_cut_off(const struct inquiry *q, int unused);
double figure_fallbacks(const struct inquiry *q, int unused);

enum received_which {
	RECEIVED_ALL,
	RECEIVED_IN_FAULT,
	RECEIVED_ANSWERED,
	RECEIVED_COMPLETED,
	RECEIVED_ERRORS,
	RECEIVED_SHED,
	RECEIVED_HUNG,
	RECEIVED_RESET,
	RECEIVED_PENDING,
};
double figure_received(const struct inquiry *q, int which);
double figure_received_worst(const struct inquiry *q, int unused);
double figure_accepted_share(const struct inquiry *q, int unused);
double figure_amplification(const struct inquiry *q, int unused);

#endif
