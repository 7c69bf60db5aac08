/* SPDX-License-Identifier: MIT */
/* What force, release, reset and inject have in common: a resource, a reason, and a word in the segment that must really change. */
#ifndef RESCTL_OPERATOR_H
#define RESCTL_OPERATOR_H

#include "resctl.h"

struct operation {
	const char *name; /* of the resource */
	char why[OVERRIDE_TEXT];
	const void *input; /* of the command */
};

/*
 * Attaches for writing, finds the resource and does it; once more on the successor where the segment was replaced at that very moment.
 * act: 0 or -errno, as the functions of override.h and injection.h. Returns what act did, with *index, or says why not: then > 0, an exit
 * code.
 */
int operation_do(struct resctl *ctl, const struct operation *operation, uint32_t *index,
                 int (*act)(const struct map *map, uint32_t index, const struct operation *operation));

/* Says how the resource is now; with --json, as resctl show does. */
int operation_report(const struct resctl *ctl, uint32_t index, const char *done);

/* The parsers for "NAME [--why TEXT]", and for the option alone; their input is a struct operation. */
extern const struct argp_option operation_options[];
error_t operation_parse(int key, char *arg, struct argp_state *state);
error_t operation_parse_why(int key, char *arg, struct argp_state *state);

#endif
