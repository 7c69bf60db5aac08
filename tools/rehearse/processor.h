/* SPDX-License-Identifier: MIT */
/* The lab's own server as a model: one processor, places for so many requests at once, a queue before them, and a rate of acceptance. */
#ifndef REHEARSE_PROCESSOR_H
#define REHEARSE_PROCESSOR_H

#include "board.h"
#include "script.h"

struct connection;

/* A request that will be answered. */
struct work {
	struct work *next;             /* in the queue */
	struct connection *connection; /* NULL: its caller has gone */
	struct receipt_note *note;     /* NULL: there was no room for it */
	unsigned dependency;
	struct cue cue;
	enum receipt receipt; /* what it is going to be */
	int64_t retry_after_ms;
	int64_t ready_ns;   /* the processor is through with it */
	int64_t latency_ns; /* and then it takes this */
	bool inside;        /* it has one of the places */
	bool lost;          /* its server went down */
};

struct processor {
	int64_t free_ns; /* nothing to do from then on */
	uint32_t inside;
	uint32_t waiting;
	struct work *first, *last; /* that wait for a place */
	double accepts;            /* tokens of accepts_per_second */
	int64_t accepts_ns;        /* ... then */
};

/* Nothing in it. */
void processor_start(struct processor *processor, const struct dependency *dependency, int64_t now_ns);
/*
 * A request has come. When it is to be answered, and work->receipt says how; SCENARIO_FOREVER: that is not known yet, it waits for a
 * place, and processor_next will hand it out.
 */
int64_t processor_take(struct processor *processor, const struct dependency *dependency, const struct deal *deal, struct work *work,
                       int64_t now_ns);
/* It is to be answered now. */
void processor_leave(struct processor *processor, struct work *work);
/* The next one from the queue, where fewer than that many are inside: *due_ns is when it is to be answered. NULL: none. */
struct work *processor_next(struct processor *processor, uint32_t capacity, int64_t now_ns, int64_t *due_ns);

#endif
