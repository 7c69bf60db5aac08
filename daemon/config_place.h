/* SPDX-License-Identifier: MIT */
/* Where each key of a JSON text stands. */
#ifndef RESCD_CONFIG_PLACE_H
#define RESCD_CONFIG_PLACE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLACE_NONE UINT32_MAX
#define PLACE_ROOT 0u

enum place_kind { PLACE_SCALAR, PLACE_OBJECT, PLACE_ARRAY };

/* A key and its value; the root, and objects and arrays inside arrays, have key "". Lines and columns (characters) start at 1. */
struct place {
	const char *key; /* decoded */
	enum place_kind kind;
	int line, column;                   /* of the key; where there is none, of the value */
	int value_line, value_column;       /* of the value */
	size_t value, length;               /* the value as it is written: offset and bytes; of an object or array the bracket */
	uint32_t parent, first, last, next; /* indices or PLACE_NONE */
	uint32_t doubles;                   /* the first key of the same name in the same object, or PLACE_NONE */
	bool dropped;                       /* there is a later one, whose value the parser kept */
};

struct places {
	const char *text; /* the caller's */
	struct place *items;
	size_t count;
	char *keys;
};

/*
 * Scans a text that a JSON parser has accepted; it must stay where it is. 0, -ENOMEM, or -EINVAL for a text that no parser would have
 * accepted (whatever the bytes, it does not read beyond them, and ends).
 */
int places_scan(const char *text, size_t size, struct places *out);
void places_free(struct places *places);

/* The path of a place, as resources.payments.breaker or load.users.at[2]; keys that would be ambiguous in it are quoted. Cut at the left to
 * fit. */
void places_path(const struct places *places, uint32_t index, char *path, size_t size);

#endif
