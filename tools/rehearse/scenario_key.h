/* SPDX-License-Identifier: MIT */
/* The table of all keys of a scenario: from it come reading, ranges, messages, suggestions and the manual. */
#ifndef REHEARSE_SCENARIO_KEY_H
#define REHEARSE_SCENARIO_KEY_H

#include <stdbool.h>
#include <stddef.h>

/* An object of the file, by the keys that it can have. */
enum scenario_block {
	SB_FILE,
	SB_VARIANT,
	SB_DEPENDENCY,
	SB_SPAN,
	SB_LOGNORMAL,
	SB_FAULT,
	SB_LOAD,
	SB_EXPECT,
	SB_RELATIVE,
	SB_COMPARE,
	SB_GAME_DAY,
	SCENARIO_BLOCKS
};

enum scenario_type {
	ST_TEXT,
	ST_BOOLEAN,
	ST_INTEGER,
	ST_NUMBER,
	ST_SHARE,
	ST_DURATION, /* least and most in nanoseconds */
	ST_WORD,
	ST_WORDS,  /* an array of one or more words */
	ST_OBJECT, /* an object; of the block that it opens, or any */
	ST_NAMED,  /* an object whose keys are names, and whose values are objects of the block that it opens */
	ST_LIST,   /* an array of objects of the block that it opens */
	ST_OTHER,  /* `form` says what */
};

enum scenario_key {
	SK_TITLE,
	SK_ABOUT,
	SK_EXPERIMENT,
	SK_DURATION,
	SK_WORKERS,
	SK_THREADS,
	SK_ORDER,
	SK_BACKLOG,
	SK_SEED,
	SK_VIEWS,
	SK_CONFIGURATION,
	SK_DEPENDENCIES,
	SK_LOAD,
	SK_VARIANTS,
	SK_EXPECT,
	SK_COMPARE,
	SK_GAME_DAY,
	SK_SHORT,
	SK_LATENCY,
	SK_CPU,
	SK_CAPACITY,
	SK_QUEUE,
	SK_ACCEPTS,
	SK_FAULTS,
	SK_ADDRESS,
	SK_PROGRAM,
	SK_SEND,
	SK_EXPECTED,
	SK_SPAN_SHARE,
	SK_FIXED,
	SK_UNIFORM,
	SK_LOGNORMAL,
	SK_MU,
	SK_SIGMA,
	SK_KIND,
	SK_FAULT_FROM,
	SK_FAULT_TO,
	SK_FROM_REQUEST,
	SK_TO_REQUEST,
	SK_TRIES,
	SK_FAULT_SHARE,
	SK_UP,
	SK_DOWN,
	SK_FAULT_LATENCY,
	SK_RETRY_AFTER,
	SK_FAULT_CAPACITY,
	SK_RESOURCE,
	SK_DEPENDENCY,
	SK_WORK,
	SK_RATE,
	SK_ARRIVALS,
	SK_BURST,
	SK_AT,
	SK_COUNT,
	SK_EVERY,
	SK_LOAD_FROM,
	SK_LOAD_TO,
	SK_PRIORITY,
	SK_COST,
	SK_DEADLINE,
	SK_PATIENCE,
	SK_FALLBACK,
	SK_KEY,
	SK_STORE,
	SK_RETRIES,
	SK_RETRIED_UPSTREAM,
	SK_VARIANT_ABOUT,
	SK_VARIANT_VIEWS,
	SK_CHANGE,
	SK_FIGURE,
	SK_OF,
	SK_VARIANT,
	SK_VIEW,
	SK_FROM,
	SK_TO,
	SK_NTH,
	SK_WIDTH,
	SK_IS,
	SK_VALUE,
	SK_WITHIN,
	SK_PUBLISHED,
	SK_RELATIVE_TO,
	SK_WHY,
	SK_BETTER,
	SK_HYPOTHESIS,
	SK_STEADY_STATE,
	SK_ABORT,
	SK_PROTECTED,
	SK_NOTICED,
	SK_RECOVERED,
	SCENARIO_KEYS,
	SK_NONE = SCENARIO_KEYS,
};

struct scenario_row {
	const char *name;
	unsigned blocks; /* where it is written: a set of 1 << enum scenario_block */
	enum scenario_type type;
	double least, most;
	const char *const *words; /* of ST_WORD and ST_WORDS, with NULL at the end */
	enum scenario_block opens;
	const char *form;     /* of ST_OTHER and ST_OBJECT: what to write, in words */
	const char *fallback; /* the default in words */
	const char *text;     /* for the manual */
};

extern const struct scenario_row scenario_rows[SCENARIO_KEYS];

/* The key of that name in that block, or SK_NONE. */
enum scenario_key scenario_key_find(enum scenario_block block, const char *name);
/* What to do instead of an unknown key, for a message. */
void scenario_key_advice(enum scenario_block block, const char *name, char *advice, size_t size);
/* What to write for that key: "a whole number from 1 to 100". */
void scenario_key_expects(enum scenario_key id, char *text, size_t size);

#endif
