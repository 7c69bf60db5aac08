/* SPDX-License-Identifier: MIT */
/* The script of a dependency: what happens to a call that is made at that time. Nothing is remembered between two calls. */
#ifndef REHEARSE_SCRIPT_H
#define REHEARSE_SCRIPT_H

#include "scenario.h"

/* A call, as a script sees it. */
struct cue {
	int64_t at_ns;
	uint32_t request; /* index of its note: what chance decides is a matter of this and the try, and not of who plays it, and when */
	uint32_t number;  /* in its load, from 1 */
	uint16_t try;
};

struct deal {
	enum deal_kind { DEAL_WORK, DEAL_HANG, DEAL_ERROR, DEAL_RESET } kind;
	bool during_fault; /* a fault is on for calls like this one, also where its share spares this very one */
	int64_t extra_ns;  /* slower by this */
	int64_t retry_after_ms;
	uint32_t capacity; /* requests at once; UINT32_MAX: no limit */
};

struct deal script_deal(const struct scenario *scenario, unsigned dependency, const struct cue *cue);
/* How long the work on it takes, without faults: drawn from the mixture. */
int64_t script_latency_ns(const struct scenario *scenario, unsigned dependency, const struct cue *cue);
/* For the server: the number-th thing that is left to chance and not a matter of a call. */
uint64_t script_dice(const struct scenario *scenario, unsigned dependency, uint64_t number);

/* Is there anybody who listens? */
bool script_listens(const struct dependency *dependency, int64_t at_ns);
/* Is one of its faults of that kind on, by time? */
bool script_is_on(const struct dependency *dependency, enum fault_kind kind, int64_t at_ns);
/* When, after at_ns, a fault goes on or off by time; SCENARIO_FOREVER: never again. */
int64_t script_next_change(const struct dependency *dependency, int64_t at_ns);

#endif
