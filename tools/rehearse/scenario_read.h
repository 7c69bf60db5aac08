/* SPDX-License-Identifier: MIT */
/* The objects of a scenario, read key by key against the table of scenario_key.h. */
#ifndef REHEARSE_SCENARIO_READ_H
#define REHEARSE_SCENARIO_READ_H

#include "config.h"
#include "node.h"
#include "scenario.h"
#include "scenario_key.h"

/* One scenario (a variant of a form of the file) while it is read. */
struct reading {
	struct config_problems *problems;
	const struct scenario_options *options;
	struct scenario *scenario; /* what it becomes */
	const struct node *root;   /* of the file, with the changes */
	bool brief;                /* with "short": what would last longer than the rehearsal is cut */
	struct config config;      /* its configuration, as rescd would have it */
	bool has_config;           /* it is good */
	bool short_of_memory;
};

/* An object of the file. */
struct section {
	struct reading *reading;
	const struct node *node;
	const struct node *at[SCENARIO_KEYS]; /* the value of each key; NULL: it is not given */
	bool bad;                             /* something in it was refused, so no contradictions are made up from it */
};

/* Reads the keys of an object. False: it is none, and a problem says so. */
bool section_read(struct reading *reading, const struct node *node, enum scenario_block kind, struct section *out);
/* The value of a key; where it is not given, or refused (with a problem), the fallback. Durations in nanoseconds. */
int64_t section_duration(struct section *section, enum scenario_key id, int64_t fallback);
uint64_t section_integer(struct section *section, enum scenario_key id, uint64_t fallback);
double section_number(struct section *section, enum scenario_key id, double fallback);
double section_share(struct section *section, enum scenario_key id, double fallback);
bool section_boolean(struct section *section, enum scenario_key id, bool fallback);
unsigned section_word(struct section *section, enum scenario_key id, unsigned fallback);
const char *section_text(struct section *section, enum scenario_key id, const char *fallback);
/* The same as a copy; NULL: not given, refused, or no memory. */
char *section_text_copy(struct section *section, enum scenario_key id);
/* A set of 1 << index of the word. */
unsigned section_words(struct section *section, enum scenario_key id, unsigned fallback);
/* The object or array under a key; NULL: not given, or refused. */
const struct node *section_object(struct section *section, enum scenario_key id);
const struct node *section_list(struct section *section, enum scenario_key id, size_t most);

/* One value, for those that stand in arrays or can be of several types. False: refused, with a problem. */
bool value_of_duration(struct reading *reading, const struct node *node, enum scenario_key id, int64_t *ns);
bool value_of_number(struct reading *reading, const struct node *node, enum scenario_key id, double least, double most, double *number);
/* "12 is a number; write ...": always false. */
bool refuse(struct reading *reading, const struct node *node, enum scenario_key id, const char *what);
bool refuse_type(struct reading *reading, const struct node *node, enum scenario_key id);

/* The key must be there. False: it is not, and a problem says so. */
bool section_needs(struct section *section, enum scenario_key id, const char *remedy);
/* A problem when the key is given: it means nothing because ... */
void section_forbids(struct section *section, enum scenario_key id, const char *because);
/* A problem at a key, or at the object where it is not given. */
__attribute__((format(printf, 3, 4))) void section_error(struct section *section, enum scenario_key id, const char *format, ...);

/* A name of the scenario's own (a load, a dependency, a variant): any words, but not too long. */
void check_label(struct reading *reading, const struct node *node);

/* Memory for what the scenario keeps; NULL: none, and the reading knows. */
void *reading_memory(struct reading *reading, size_t count, size_t size);
char *reading_copy(struct reading *reading, const char *text);

/* ---- the parts of a scenario ---- */

/* "; did you mean \"users\"?", or a list of the names, or "". */
void advise_name(const char *name, const char *const *names, size_t count, char *advice, size_t size);

void configuration_read(struct reading *reading);
/* The policy that a resource of that name has. NULL: there is none. */
const struct policy *configuration_policy(const struct reading *reading, const char *name);
void dependencies_read(struct reading *reading, const struct node *node);
void dependency_free(struct dependency *dependency);
void loads_read(struct reading *reading, const struct node *node);
void load_free(struct load *load);
/* How many requests the loads will be, or a few more. */
double scenario_requests(const struct scenario *scenario);
/* What follows from all parts together. */
void scenario_check(struct reading *reading);

/* ---- what is said about all variants together ---- */

/* The scenarios, with the views that the file gives them; none: they have errors, and names are not looked up. */
struct expecting {
	struct reading *reading; /* for its problems and memory */
	const struct scenario *items;
	size_t count;
};

void expectations_read(struct expecting *expecting, const struct node *root, struct scenarios *out);
void expectations_free(struct scenarios *scenarios);

#endif
