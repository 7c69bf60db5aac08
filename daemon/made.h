/* SPDX-License-Identifier: MIT */
/* Resources made at run time: from the patterns of the configuration, when a worker asks for a name; and retired when nobody calls them. */
#ifndef RESCD_MADE_H
#define RESCD_MADE_H

#include "config.h"
#include "instance.h"

struct made {
	struct instance *instance;
	const struct config *config; /* the one that is in force */
	uint64_t generation;         /* of the segment that seen is about */
	uint32_t size;
	/* What the last look saw of a record that was made. */
	struct made_seen {
		bool known;
		bool passed;        /* it was to make room, and could not */
		uint64_t counted;   /* the sum of its counters */
		uint64_t since_ms;  /* when that moved last, as far as was looked */
		uint64_t passed_ms; /* when it was passed over */
	} * seen;
	uint64_t looked_ms;   /* segment time of the last look at all of them */
	uint32_t count;       /* of those that were there then */
	uint64_t replaced_ns; /* when the segment was replaced because its records were used up; 0: never */
	bool told;            /* that there is no room */
	bool keys_known;      /* that keys_working is of this pass */
	bool keys_working;    /* some idempotency key is at work */
};

/* Answers all questions (request.h). Also when there may be none. */
void made_answer(struct made *made);
/* The turn of each second: questions, and those that nobody has called for too long. */
void made_tick(struct made *made);
void made_free(struct made *made);

#endif
