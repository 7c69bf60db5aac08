/* SPDX-License-Identifier: MIT */
/* The table of all keys: from it come reading, ranges, messages, suggestions and the manual. */
#ifndef RESCD_CONFIG_KEY_H
#define RESCD_CONFIG_KEY_H

#include <stddef.h>
#include <stdint.h>

enum block { BLOCK_FILE, BLOCK_RESOURCE, BLOCK_BREAKER, BLOCK_RETRY, BLOCK_BUDGET, BLOCK_BULKHEAD, BLOCK_TIMEOUT, BLOCKS };

enum key_type {
	KEY_TEXT,
	KEY_BOOLEAN,
	KEY_INTEGER,      /* stored times scale */
	KEY_NUMBER,       /* stored in millionths */
	KEY_SHARE,        /* stored in parts per million */
	KEY_MILLISECONDS, /* a duration */
	KEY_NANOSECONDS,  /* a duration */
	KEY_WORD,         /* stored as its index */
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
	KEY_DEFAULTS,
	KEY_RESOURCES,
	KEY_LATENCY,
	KEY_BREAKER,
	KEY_CONSECUTIVE,
	KEY_FAILURE_RATE,
	KEY_SLOW_CALL,
	KEY_SLOW_RATE,
	KEY_WINDOW,
	KEY_MIN_CALLS,
	KEY_COOLDOWN,
	KEY_COOLDOWN_FACTOR,
	KEY_COOLDOWN_MAX,
	KEY_JITTER,
	KEY_PROBES,
	KEY_SUCCESSES,
	KEY_PROBE_TIMEOUT,
	KEY_RETRY,
	KEY_ATTEMPTS,
	KEY_BACKOFF,
	KEY_BASE,
	KEY_CAP,
	KEY_RETRY_JITTER,
	KEY_BUDGET,
	KEY_RATIO,
	KEY_CAPACITY,
	KEY_PER_SECOND,
	KEY_BULKHEAD,
	KEY_LIMIT,
	KEY_TIMEOUT,
	KEY_ATTEMPT,
	KEY_CONNECT,
	KEY_TOTAL,
	KEYS,
	KEY_NONE = KEYS,
};

#define KEY_BIT(id) (UINT64_C(1) << (id))
_Static_assert(KEYS <= 64, "a set of keys is one word");

struct key {
	const char *name;
	enum block block; /* where it is written */
	enum key_type type;
	uint64_t least, most; /* as people write it, but a number or share in millionths and a duration in milli- or nanoseconds */
	uint64_t scale;
	size_t offset;            /* in struct policy; of the file's own keys: not used */
	const char *const *words; /* of KEY_WORD, with NULL at the end */
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
/* Why a key that is known from elsewhere is refused, or NULL. */
const char *key_unsupported(enum block block, const char *name);
/* What to write for that key: "a whole number from 1 to 100". */
void key_expects(enum key_id id, char *text, size_t size);
/* The value that a policy has for that key, as it would be written. */
void key_value_text(enum key_id id, uint64_t stored, char *text, size_t size);

#endif
