/* SPDX-License-Identifier: MIT */
/*
 * What a resource's own past says about its settings: a timeout, a limit, and which of today's settings cannot work. Arithmetic on plain
 * structs: no segment, no clock, no screen.
 */
#ifndef RESCTL_SUGGEST_H
#define RESCTL_SUGGEST_H

#include <stdbool.h>
#include <stddef.h>

#include "inspect.h"

/* Below so many measured calls a quantile is a matter of luck, and not told. */
#define SUGGEST_P99_CALLS  100u
#define SUGGEST_P999_CALLS 1000u

/* What took longer is in the histogram's last bucket, which has no end. */
#define SUGGEST_LONGEST_US ((double)latency_edge_us(LATENCY_BUCKETS - 2))

/* How a number of calls at once was spread over the samples; all 0 without samples. */
struct suggest_spread {
	uint32_t samples;
	uint32_t p50;
	uint32_t p99;
	uint32_t p999;
	uint32_t most;
};

/* The calls of a span of time. Without a watch: of the life of the segment, and no samples. */
struct suggest_load {
	bool watched;
	double seconds; /* of the segment's clock; 0: it did not move, and nothing has a rate */
	uint64_t asked; /* whatever came of it */
	uint64_t admitted;
	uint64_t no_room;  /* refused by the bulkhead */
	uint64_t measured; /* of the calls that ended */
	uint64_t sum_us;   /* of these */
	uint64_t failed;   /* of the calls that ended; or timed out, were given up, or made to wait by an operator; at most */
	struct suggest_spread in_flight;
	struct suggest_spread waiting;
	struct suggest_spread retries;
};

struct suggest_facts {
	struct policy policy;
	struct inspect_latency latency; /* of all calls that ended, whatever came of them */
	struct resc_counters counters;  /* of the same calls, and of those from before they were measured */
	bool only_watched;              /* both are of the calls of the load alone; else of all since the segment was made */
	struct suggest_load load;
	uint32_t workers; /* alive */
	uint32_t limit;   /* of the bulkhead now, in whatever mode; 0: none */
};

/* ---- timeouts ---- */

/* Why a timeout is a candidate. */
#define SUGGEST_WHYS(X)                                                                                                                    \
	X(P99, p99, "p99")                                                                                                                 \
	X(P99_PADDED, p99_padded, "p99 + 20%, rounded up")                                                                                 \
	X(P999, p999, "p99.9")                                                                                                             \
	X(P999_PADDED, p999_padded, "p99.9 + 20%, rounded up")                                                                             \
	X(ROUND, round, "a usual number")                                                                                                  \
	X(PRESENT, present, "timeout.attempt today")

enum suggest_why {
#define X(NAME, name, text) SUGGEST_##NAME,
	SUGGEST_WHYS(X)
#undef X
	        SUGGEST_WHY_COUNT
};
const char *suggest_why_name(enum suggest_why why);
const char *suggest_why_text(enum suggest_why why);

/* A share of calls, 0 to 1, and what it can be at least and at most. */
struct suggest_share {
	double likely;
	double least;
	double most;
};

struct suggest_timeout {
	uint64_t ms;
	unsigned why;             /* bits: 1 << enum suggest_why */
	struct suggest_share cut; /* the healthy calls that it would have cut off */
};

#define SUGGEST_TIMEOUTS 16u

struct suggest_timeouts {
	uint64_t measured;
	uint64_t not_healthy; /* of these: failed, timed out, given up by their caller, or made to wait by an operator; at most */
	uint64_t failed;      /* of these: failed, or given up by their caller */
	uint64_t injected;    /* of these: had to fail or wait by an operator, see injection.h; at least, one may do both */
	uint64_t delayed;     /* of these: had to wait, so they may be among those that timed out */
	uint64_t timed_out;   /* of these: cut off by whatever timeout they had; how long they would have taken nobody knows */
	uint64_t cut_at_ms;   /* and that was timeout.attempt, so they took at least this; 0: another, earlier or of the callers' own */
	/* Microseconds; 0: too few calls. Where the quantile lies among the calls that were cut off, or that took longer than what is
	 * measured, it is at least this: *_is_least. */
	double p50_us, p99_us, p999_us;
	bool p50_is_least, p99_is_least, p999_is_least;
	size_t count;
	struct suggest_timeout list[SUGGEST_TIMEOUTS]; /* the shortest first */
	int recommended;                               /* index; -1: none, for want of calls, or because the tail is cut off */
};

void suggest_timeouts(const struct suggest_facts *facts, struct suggest_timeouts *out);
/* What a timeout of so many milliseconds would have cut off. All 0 when nothing was measured. */
struct suggest_share suggest_cut_off(const struct suggest_facts *facts, uint64_t ms);
/* With linear interpolation inside a bucket: how many calls took so long or longer, and the quantile q, in microseconds. */
double suggest_calls_beyond(const struct inspect_latency *latency, double us);
double suggest_quantile_us(const struct inspect_latency *latency, double q);
/* The next number at or above that people write: 1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9 times a power of ten; at least 1. */
uint64_t suggest_round_up(double value);

/* ---- calls at once ---- */

/* Samples are few and hosts have busier hours: a limit has so much room above what was seen. */
#define SUGGEST_HEADROOM 1.5

struct suggest_limit {
	double rate;    /* calls a second that want to be inside: admitted, or refused for want of room; 0: not known */
	double mean_us; /* 0: not measured */
	double p99_us;
	double inside;     /* Little's law: rate times mean; 0: not known */
	double inside_p99; /* rate times p99 */
	bool held_down;    /* the present limit was reached: without it there might have been more */
	uint32_t limit;    /* 0: nothing to go by */
};

void suggest_limit(const struct suggest_facts *facts, struct suggest_limit *out);
/* Sorts the values. */
struct suggest_spread suggest_spread(uint32_t *values, size_t count);

/* ---- settings that cannot work ---- */

/* X(NAME, id, key): key is what to change, or the first of what does not fit together. */
#define SUGGEST_NOTES(X)                                                                                                                   \
	X(TIMEOUT_SHORT, "timeout.short", "timeout.attempt")                                                                               \
	X(TIMEOUT_LONG, "timeout.long", "timeout.attempt")                                                                                 \
	X(RETRY_TOTAL, "retry.total", "timeout.total")                                                                                     \
	X(BUDGET_CAPACITY, "budget.capacity", "retry.budget.capacity")                                                                     \
	X(BUDGET_RATIO, "budget.ratio", "retry.budget.ratio")                                                                              \
	X(BREAKER_BLIND, "breaker.blind", "breaker.min_calls")                                                                             \
	X(BREAKER_QUIET, "breaker.quiet", "breaker.min_calls")                                                                             \
	X(BREAKER_NEVER_SLOW, "breaker.never_slow", "breaker.slow_call")                                                                   \
	X(BREAKER_ALWAYS_SLOW, "breaker.always_slow", "breaker.slow_call")                                                                 \
	X(BREAKER_COOLDOWN, "breaker.cooldown", "breaker.cooldown")                                                                        \
	X(BREAKER_PROBE, "breaker.probe", "breaker.probe_timeout")                                                                         \
	X(BULKHEAD_TIGHT, "bulkhead.tight", "bulkhead.limit")                                                                              \
	X(BULKHEAD_IDLE, "bulkhead.idle", "bulkhead.limit")                                                                                \
	X(BULKHEAD_WAIT, "bulkhead.wait", "bulkhead.max_wait")                                                                             \
	X(RATE_TIGHT, "rate.tight", "rate.per_second")                                                                                     \
	X(RATE_WAIT, "rate.wait", "rate.max_wait")                                                                                         \
	X(THROTTLE_K, "throttle.k", "throttle.k")

enum suggest_note_id {
#define X(NAME, id, key) SUGGEST_NOTE_##NAME,
	SUGGEST_NOTES(X)
#undef X
	        SUGGEST_NOTE_COUNT
};

struct suggest_note {
	enum suggest_note_id id;
	bool shadow; /* the guard refuses nothing yet */
	char text[400];
};

const char *suggest_note_name(enum suggest_note_id id);
const char *suggest_note_key(enum suggest_note_id id);
/* At most one of each; how many. What needs a rate or measured calls is left out where there are none. */
size_t suggest_notes(const struct suggest_facts *facts, struct suggest_note notes[SUGGEST_NOTE_COUNT]);

#endif
