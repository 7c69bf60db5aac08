/* SPDX-License-Identifier: MIT */
/* The configuration file: read, checked as a whole, and turned into policies. docs/configuration.md lists the keys. */
#ifndef RESCD_CONFIG_H
#define RESCD_CONFIG_H

#include <stdio.h>
#include <sys/types.h>

#include "config_problem.h"
#include "segment.h"

#define CONFIG_SIZE_LIMIT    ((size_t)4 << 20) /* of a file: room for RESOURCES_LIMIT resources with a few keys each */
#define CONFIG_MODE          0660
#define CONFIG_GROUP_SIZE    64
#define CONFIG_METRICS_SIZE  64
#define CONFIG_CONTROL_SIZE  108 /* what fits a socket address */
#define CONFIG_WORKERS       1024u
#define CONFIG_WORKERS_LEAST 16u
#define CONFIG_ONCE_KEYS     16384u
#define CONFIG_MADE          256u
#define CONFIG_IDLE_MS       UINT64_C(3600000)

struct config_resource {
	char name[SEGMENT_NAME_SIZE];
	struct policy policy; /* effective: merged over the defaults; flags say which blocks are on */
};

struct config {
	char instance[SEGMENT_NAME_SIZE];
	char group[CONFIG_GROUP_SIZE];     /* "": none */
	gid_t gid;                         /* of that group; (gid_t)-1: none, or not looked up */
	mode_t mode;                       /* of the segment: 0600, 0640, 0644, 0660 or 0664 */
	char metrics[CONFIG_METRICS_SIZE]; /* HOST:PORT, checked; "": no metrics page */
	char control[CONFIG_CONTROL_SIZE]; /* absolute path of the control socket; "": the default one */
	uint32_t workers;                  /* that the segment shall have room for */
	uint32_t once_keys;                /* idempotency keys that the segment shall have room for; 0: no resource has "once" */
	uint32_t made;                     /* resources that may be made at run time, from patterns; 0: there are none */
	uint64_t idle_ms;                  /* those are retired when nobody has called them for so long; 0: only when there is no room */
	size_t count;
	struct config_resource *resources; /* in the order of the file */
	uint32_t *index;                   /* of the resources by name: see config_find */
	size_t pattern_count;
	struct config_resource *patterns; /* their names end with '*', the only one; longest first */
};

/*
 * The same for all four: 0, and *out is to be given to config_free; or a negative errno, and *out is empty: -EINVAL for a bad file, what
 * open(2) or read(2) said, or -ENOMEM. The problems say why, all of them, errors before warnings; there may be warnings with 0 as well.
 * They are to be given to config_problems_free either way.
 */

/* Text alone, which need not end with a NUL: the host is not looked at. */
int config_parse(const char *text, size_t size, struct config *out, struct config_problems *problems);
/* A file, for use: a group that this host does not have is an error. */
int config_load(const char *path, struct config *out, struct config_problems *problems);
/* A file, for 'resctl check': it may be meant for another host, so that is a warning. */
int config_check(const char *path, struct config *out, struct config_problems *problems);

/* Frees what *config holds, and empties it. An empty one may be freed. */
void config_free(struct config *config);

/* The resource of that name, or NULL. */
const struct config_resource *config_find(const struct config *config, const char *name);

/* The pattern that a name which is not in resources matches: the longest, or NULL. */
const struct config_resource *config_match(const struct config *config, const char *name);

/* The table of all keys, in Markdown, as it stands in docs/configuration.md. */
void config_print_defaults(FILE *out);

#endif
