/* SPDX-License-Identifier: MIT */
/* The lab's own server as a model: one processor, places for so many requests at once, a queue before them, and a rate of acceptance. */
#ifndef REHEARSE_PROCESSOR_H
#define REHEARSE_PROCESSOR_H

#include "board.h"
#include "script.h"

struct connection;

/* A request. */
struct work {
	enum work_stage {
		WORK_UNREAD,       /* waits for the processor */
		WORK_ON_PROCESSOR, /* has it */
		WORK_JUDGED,       /* and now it is known what becomes of it */
	} stage;
	struct connection *connection; /* NULL: its caller has gone */
	struct receipt_note *note;     /* from WORK_ON_PROCESSOR; NULL: there was no room for it */
	unsigned dependency;
	struct cue cue; /* at_ns: its arrival */
	bool probe;
	size_t index;         /* WORK_UNREAD: among those */
	enum receipt receipt; /* WORK_JUDGED: what it is going to be */
	int64_t retry_after_ms;
	int64_t latency_ns; /* how long it takes, where it is worked on */
	bool inside;        /* it has one of the places */
	bool lost;          /* its server went down */
	struct work *next;  /* in the queue for a place */
};

struct processor {
	struct work **unread; /* in no order */
	size_t unread_count, unread_room;
	bool busy;
	int64_t free_ns; /* it is, or was, busy until then */
	uint32_t inside;
	uint32_t waiting;
	struct work *first, *last; /* that wait for a place */
	double accepts;            /* tokens of accepts_per_second */
	int64_t accepts_ns;        /* ... then */
};

/* Nothing in it. */
void processor_start(struct processor *processor, const struct dependency *dependency, int64_t now_ns);

/* One more that has not been read. 0 or -ENOMEM. */
int processor_wait(struct processor *processor, struct work *work);
/* It is not there any more. */
void processor_withdraw(struct processor *processor, struct work *work);
/*
 * Takes one of those that were not read, where the processor is free: which one is a matter of the dice. It has the processor from *from_ns
 * until free_ns, and then processor_release. NULL: none.
 */
struct work *processor_begin(struct processor *processor, const struct dependency *dependency, uint64_t dice, int64_t *from_ns);
void processor_release(struct processor *processor);

/*
 * What becomes of a request that was read: when it is to be answered, and work->receipt says how; SCENARIO_FOREVER: that is not known yet,
 * it waits for a place, and processor_next will hand it out.
 */
int64_t processor_judge(struct processor *processor, const struct dependency *dependency, const struct deal *deal, struct work *work,
                        int64_t now_ns);
/* It is to be answered now. */
void processor_leave(struct processor *processor, struct work *work);
/* The next one from the queue, where fewer than that many are inside: *due_ns is when it is to be answered. NULL: none. */
struct work *processor_next(struct processor *processor, uint32_t capacity, int64_t now_ns, int64_t *due_ns);

#endif
