/* SPDX-License-Identifier: MIT */
/* The table of all keys: from it come reading, ranges, messages, suggestions and the manual. */
#ifndef RESCD_CONFIG_KEY_H
#define RESCD_CONFIG_KEY_H

#include <stddef.h>
#include <stdint.h>

enum block {
	BLOCK_FILE,
	BLOCK_RESOURCE,
	BLOCK_BREAKER,
	BLOCK_RETRY,
	BLOCK_BUDGET,
	BLOCK_BULKHEAD,
	BLOCK_RATE,
	BLOCK_THROTTLE,
	BLOCK_TIMEOUT,
	BLOCK_ONCE,
	BLOCKS
};

/* What a block does; BLOCK_RESOURCE: what its blocks do that do not say it themselves. */
enum block_mode { MODE_ENFORCE, MODE_SHADOW, MODE_OFF };

enum key_type {
	KEY_TEXT,
	KEY_BOOLEAN,
	KEY_INTEGER,      /* stored times scale */
	KEY_NUMBER,       /* stored in millionths */
	KEY_SHARE,        /* stored in parts per million */
	KEY_MILLISECONDS, /* a duration */
	KEY_NANOSECONDS,  /* a duration */
	KEY_WORD,         /* stored as its index */
	KEY_WORDS,        /* an array of words; stored as bits, the first word as bit `scale` */
	KEY_MODE_WORD,    /* a word of enum block_mode, which the draft keeps */
	KEY_BLOCK,        /* an object, or false */
	KEY_OBJECT,       /* an object */
};

enum key_id {
	KEY_INSTANCE,
	KEY_GROUP,
	KEY_MODE,
	KEY_METRICS,
	KEY_CONTROL,
	KEY_WORKERS,
	KEY_ONCE_KEYS,
	KEY_MADE,
	KEY_IDLE,
	KEY_DEFAULTS,
	KEY_RESOURCES,
	KEY_LATENCY,
	KEY_INJECTION,
	KEY_RESOURCE_MODE,
	KEY_BREAKER,
	KEY_CONSECUTIVE,
	KEY_FAILURE_RATE,
	KEY_SLOW_CALL,
	KEY_SLOW_RATE,
	KEY_WINDOW,
	KEY_WINDOW_CALLS,
	KEY_MIN_CALLS,
	KEY_COOLDOWN,
	KEY_COOLDOWN_FACTOR,
	KEY_COOLDOWN_MAX,
	KEY_JITTER,
	KEY_PROBES,
	KEY_SUCCESSES,
	KEY_TRIAL_FAILURE_RATE,
	KEY_PROBE_TIMEOUT,
	KEY_RETRY_AFTER_MAX,
	KEY_BREAKER_MODE,
	KEY_RETRY,
	KEY_ATTEMPTS,
	KEY_BACKOFF,
	KEY_BASE,
	KEY_CAP,
	KEY_RETRY_JITTER,
	KEY_RETRY_ON,
	KEY_RETRY_MODE,
	KEY_BUDGET,
	KEY_RATIO,
	KEY_CAPACITY,
	KEY_PER_SECOND,
	KEY_DEPOSIT,
	KEY_COST,
	KEY_TIMEOUT_COST,
	KEY_TTL,
	KEY_THRESHOLD,
	KEY_IN_FLIGHT_FLOOR,
	KEY_IN_FLIGHT_SHARE,
	KEY_BUDGET_MODE,
	KEY_BULKHEAD,
	KEY_LIMIT,
	KEY_LIMIT_SHARE,
	KEY_MAX_WAIT,
	KEY_MAX_WAITING,
	KEY_CRITICAL,
	KEY_NORMAL,
	KEY_LOW,
	KEY_RETRY_AFTER,
	KEY_BULKHEAD_MODE,
	KEY_RATE,
	KEY_RATE_PER_SECOND,
	KEY_BURST,
	KEY_RATE_MAX_WAIT,
	KEY_RATE_MODE,
	KEY_THROTTLE,
	KEY_K,
	KEY_THROTTLE_WINDOW,
	KEY_THROTTLE_MODE,
	KEY_TIMEOUT,
	KEY_ATTEMPT,
	KEY_CONNECT,
	KEY_TOTAL,
	KEY_PROBE,
	KEY_TIMEOUT_MODE,
	KEY_ONCE,
	KEY_ONCE_TTL,
	KEY_ONCE_MAX_WAIT,
	KEY_ON_DEATH,
	KEY_ONCE_MODE,
	KEYS,
	KEY_NONE = KEYS,
};

struct key {
	const char *name;
	enum block block; /* where it is written */
	enum key_type type;
	uint64_t least, most; /* as people write it, but a number or share in millionths and a duration in milli- or nanoseconds */
	uint64_t scale;
	size_t offset;            /* in struct policy; of the file's own keys and of modes: not used */
	const char *const *words; /* of KEY_WORD, KEY_WORDS and KEY_MODE_WORD, with NULL at the end */
	enum key_id other;        /* the row behind this one: the same key as a value of another type; 0: there is none */
	enum block opens;         /* of KEY_BLOCK */
	const char *fallback;     /* the default in words, where it is not the value of policy_defaults() */
	const char *text;         /* for the manual */
};

extern const struct key config_keys[KEYS];

/* "breaker.window"; of the file: "workers"; of resources as in their block. */
#define KEY_PATH_SIZE 64
void key_path(enum key_id id, char path[KEY_PATH_SIZE]);

/* The key of that name in that block, or KEY_NONE. */
enum key_id key_find(enum block block, const char *name);
/* What to do instead of an unknown key, for a message: the key that was meant, the block where it belongs, or the keys that there are. */
void key_advice(enum block block, const char *name, char *advice, size_t size);
/* What to write for that key: "a whole number from 1 to 100". Of a key with two types both, whichever row it is. */
void key_expects(enum key_id id, char *text, size_t size);
/* The value that a policy has for that key, as it would be written. */
void key_value_text(enum key_id id, uint64_t stored, char *text, size_t size);

#endif
