/* SPDX-License-Identifier: MIT */
/* The values of a JSON text as a tree that says of each where it is written, also after one text was merged over another. */
#ifndef REHEARSE_NODE_H
#define REHEARSE_NODE_H

#include <jansson.h>
#include <stdbool.h>

#include "config_place.h"
#include "config_problem.h"

/* A text that was read. */
struct source {
	const char *file; /* NULL: the scenario, which a message need not name */
	struct places places;
	json_t *root;
};

struct node {
	const char *key; /* "" at the root and in an array */
	json_t *value;   /* of the source; of an object or an array only its type counts: what is in it are the children */
	const struct source *source;
	uint32_t place;
	struct node *first, *last, *next;
};

/* Nodes live until all of them are freed. Starts as {0}. */
struct nodes {
	struct node_block *blocks;
	size_t used; /* of the first block */
};

/* The tree of a text. NULL: out of memory. */
struct node *node_tree(struct nodes *nodes, const struct source *source);
/* A node like that one, without its children and beside nobody. NULL: out of memory. */
struct node *node_copy(struct nodes *nodes, const struct node *node);
void node_append(struct node *parent, struct node *child);
void nodes_free(struct nodes *nodes);

/* What stands under that key of an object. NULL: nothing. */
const struct node *node_child(const struct node *node, const char *key);
size_t node_count(const struct node *node);
/* The value with all that is in it, a new reference. NULL: out of memory. */
json_t *node_json(const struct node *node);

/* A value as it is written, for messages: "twelve", 12, an object. */
void node_quote(const struct node *node, char text[64]);
/* Adds a problem at the value, or at its key. */
__attribute__((format(printf, 3, 4))) void node_error(struct config_problems *problems, const struct node *node, const char *format, ...);
__attribute__((format(printf, 3, 4))) void node_key_error(struct config_problems *problems, const struct node *node, const char *format,
                                                          ...);
__attribute__((format(printf, 3, 4))) void node_warning(struct config_problems *problems, const struct node *node, const char *format, ...);

#endif
