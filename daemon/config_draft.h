/* SPDX-License-Identifier: MIT */
/* A resource while its configuration is read: values, and where each of them comes from. */
#ifndef RESCD_CONFIG_DRAFT_H
#define RESCD_CONFIG_DRAFT_H

#include <jansson.h>

#include "config_key.h"
#include "config_place.h"
#include "config_problem.h"
#include "segment.h"

/* A text that is being read. */
struct reader {
	struct places places;
	struct config_problems *problems;
};

struct draft {
	struct policy policy;
	uint32_t place;               /* of the resource */
	uint32_t block_place[BLOCKS]; /* of the object that switched a block on; PLACE_NONE: nobody did */
	uint32_t from[KEYS];          /* the place of each value; PLACE_NONE: it is the default of the program */
	bool own[KEYS];               /* keys that the resource has itself */
	bool bad[KEYS];               /* keys whose value was refused */
	bool on[BLOCKS];              /* an object, and not false; see draft_is_on */
	uint8_t mode[BLOCKS];         /* enum block_mode, where a mode is given */
	bool flawed;                  /* something was not understood, so what is missing may be there under another name */
};

/* What a resource has when nothing is said. */
void draft_start(struct draft *draft);
/* Reads the block of a resource, or the defaults, over what the draft has. */
void draft_read(struct reader *reader, struct draft *draft, const json_t *object, uint32_t place);
/* Is it given, by the resource or by the defaults? Of a key with two types: its first row. */
bool draft_is_given(const struct draft *draft, enum key_id id);
/* Is the block there, and not off? */
bool draft_is_on(const struct draft *draft, enum block block);
/* What it does where it is on. */
enum block_mode draft_mode(const struct draft *draft, enum block block);
/* The policy that it makes. */
struct policy draft_policy(const struct draft *draft);

/* Reads one value, checks type and range. False: refused, with a problem. */
bool read_value(struct reader *reader, enum key_id id, const json_t *value, uint32_t place, uint64_t *stored);
/* The same for those whose value is text. NULL: refused. */
const char *read_text(struct reader *reader, enum key_id id, const json_t *value, uint32_t place);
/* The same for those whose value is an object. */
bool read_object(struct reader *reader, enum key_id id, const json_t *value, uint32_t place);
/* Adds a problem for each doubled key, wherever it is. */
void read_doubles(struct reader *reader);
/* What key stands at that place. KEY_NONE: not to be used: unknown, and a problem says so; or the parser kept its double. */
enum key_id read_key(struct reader *reader, enum block block, uint32_t place);

/* Problems at the value of a place, and at its key. */
__attribute__((format(printf, 3, 4))) void reader_error(struct reader *reader, uint32_t place, const char *format, ...);
__attribute__((format(printf, 3, 4))) void reader_key_error(struct reader *reader, uint32_t place, const char *format, ...);
__attribute__((format(printf, 3, 4))) void reader_warning(struct reader *reader, uint32_t place, const char *format, ...);

#endif
