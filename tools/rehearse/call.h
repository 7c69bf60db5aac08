/* SPDX-License-Identifier: MIT */
/* A caller's connection to the dependencies of a scenario. One for each thread. It knows nothing of libresc but the outcomes. */
#ifndef REHEARSE_CALL_H
#define REHEARSE_CALL_H

#include "board.h"

struct caller;

struct call {
	uint32_t request; /* index of its note */
	uint16_t try;
	bool probe;
	int64_t timeout_ms; /* -1: none */
};

struct call_result {
	enum resc_outcome outcome;
	int64_t retry_after_ms; /* the server's word; -1: none */
	bool during_fault;      /* what the lab knows of the dependency's script when it was sent */
};

/* After the fork, in the thread that uses it. NULL: out of memory. */
struct caller *caller_new(const struct scenario *scenario, struct board *board);
void caller_free(struct caller *caller);
/* One attempt. It ends within timeout_ms, or when the rehearsal is stopped (RESC_CANCELLED). */
struct call_result caller_call(struct caller *caller, unsigned dependency, const struct call *call);

#endif
