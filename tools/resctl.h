/* SPDX-License-Identifier: MIT */
/* What the commands of resctl share: the one context, reaching the segment, naming things, ending. */
#ifndef RESCTL_H
#define RESCTL_H

#include <argp.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "inspect.h"
#include "map.h"
#include "table.h"

/* Exit codes; in the help and the manual. */
enum exit_code {
	EXIT_DONE = 0,
	EXIT_NOT_SO = 1,     /* refused, or not so */
	EXIT_USAGE = 2,      /* a command line that means nothing */
	EXIT_NO_SEGMENT = 3, /* the segment (reload: rescd) cannot be reached */
};

struct resctl {
	const char *instance;
	bool json;
	struct screen screen; /* stdout */
	struct map map;
	bool attached;
};

/* ---- commands: one file each ---- */

struct command {
	const char *name;
	const char *arguments; /* for the list of commands */
	const char *summary;
	int (*run)(struct resctl *ctl, int argc, char **argv);
};

int cmd_list(struct resctl *ctl, int argc, char **argv);
int cmd_show(struct resctl *ctl, int argc, char **argv);
int cmd_snapshot(struct resctl *ctl, int argc, char **argv);
int cmd_workers(struct resctl *ctl, int argc, char **argv);
int cmd_events(struct resctl *ctl, int argc, char **argv);
int cmd_force(struct resctl *ctl, int argc, char **argv);
int cmd_release(struct resctl *ctl, int argc, char **argv);
int cmd_inject(struct resctl *ctl, int argc, char **argv);
int cmd_reset(struct resctl *ctl, int argc, char **argv);
int cmd_reload(struct resctl *ctl, int argc, char **argv);
int cmd_check(struct resctl *ctl, int argc, char **argv);
int cmd_doctor(struct resctl *ctl, int argc, char **argv);
int cmd_rehearse(struct resctl *ctl, int argc, char **argv);
int cmd_suggest(struct resctl *ctl, int argc, char **argv);
int cmd_version(struct resctl *ctl, int argc, char **argv);
#ifdef RESC_TEST_CLOCK
int cmd_clock(struct resctl *ctl, int argc, char **argv);
#endif

/*
 * Reads the options of one command. Those that all commands have are handled in here: the parser of a command sees the rest, with its
 * own struct as state->input. A mistake ends the program with EXIT_USAGE.
 */
void command_parse(struct resctl *ctl, const struct argp *argp, int argc, char **argv, void *own);
/* The parser of a command that has no options of its own and takes no arguments. */
error_t parse_nothing(int key, char *arg, struct argp_state *state);

/* ---- the segment ---- */

/*
 * Maps the segment of the instance that is current now, following its successors. 0, or it has said what is wrong and what helps, and
 * returns EXIT_NO_SEGMENT.
 */
int attach(struct resctl *ctl, enum map_access access);
void detach(struct resctl *ctl);
/* True when the segment that is mapped is no longer the one that the instance's workers use. */
bool is_outdated(const struct resctl *ctl);

/* Records that may be in use: loop below this. */
uint32_t resources_in_use(const struct map *map);
/* The index of a resource, or -1 after saying that there is none of that name, and which there are that look like it. */
int find_resource(const struct resctl *ctl, const char *name);

/* ---- saying things ---- */

/* "resctl: ..." on stderr. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
/* Prints a document, indented when people read it, and a newline; takes the reference. NULL is "out of memory". An exit code. */
int print_json(const struct resctl *ctl, json_t *json);
/* The same with the whole instance. */
int print_snapshot(const struct resctl *ctl);

#endif
