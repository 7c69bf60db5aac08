/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a variant of a scenario is the file with a few values changed, and what is wrong with the whole may stand in either
 * part. jansson's values know nothing of lines, and true, false and null are one object each for the whole process; so the places of
 * config_place.c and the values of jansson are put side by side here, and merged side by side (patch.c).
 *
 * Nodes are never changed once they are in a tree, so trees can have branches in common. No recursion is deeper than the parser of jansson
 * lets a text be (2048).
 */
#include "node.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_NODES 256u

struct node_block {
	struct node_block *next;
	struct node nodes[BLOCK_NODES];
};

/* ---- making ---- */

static struct node *allocate(struct nodes *nodes)
{
	if (!nodes->blocks || nodes->used == BLOCK_NODES) {
		struct node_block *block = calloc(1, sizeof(*block));

		if (!block)
			return NULL;
		block->next = nodes->blocks;
		nodes->blocks = block;
		nodes->used = 0;
	}
	return &nodes->blocks->nodes[nodes->used++];
}

void nodes_free(struct nodes *nodes)
{
	while (nodes->blocks) {
		struct node_block *next = nodes->blocks->next;

		free(nodes->blocks);
		nodes->blocks = next;
	}
	nodes->used = 0;
}

void node_append(struct node *parent, struct node *child)
{
	if (parent->last)
		parent->last->next = child;
	else
		parent->first = child;
	parent->last = child;
}

struct node *node_copy(struct nodes *nodes, const struct node *node)
{
	struct node *copy = allocate(nodes);

	if (copy)
		*copy = (struct node){.key = node->key, .value = node->value, .source = node->source, .place = node->place};
	return copy;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
static struct node *make(struct nodes *nodes, const struct source *source, uint32_t place, json_t *value)
{
	const struct place *items = source->places.items;
	struct node *node = allocate(nodes);
	size_t number = 0;

	if (!node)
		return NULL;
	*node = (struct node){.key = items[place].key, .value = value, .source = source, .place = place};
	for (uint32_t i = items[place].first; i != PLACE_NONE; i = items[i].next) {
		json_t *inner = json_is_array(value) ? json_array_get(value, number++) : json_object_get(value, items[i].key);
		struct node *child;

		if (items[i].dropped)
			continue;
		child = make(nodes, source, i, inner);
		if (!child)
			return NULL;
		node_append(node, child);
	}
	return node;
}

struct node *node_tree(struct nodes *nodes, const struct source *source)
{
	return make(nodes, source, PLACE_ROOT, source->root);
}

/* ---- looking ---- */

const struct node *node_child(const struct node *node, const char *key)
{
	for (const struct node *child = json_is_object(node->value) ? node->first : NULL; child; child = child->next) {
		if (strcmp(child->key, key) == 0)
			return child;
	}
	return NULL;
}

size_t node_count(const struct node *node)
{
	size_t count = 0;

	for (const struct node *child = node->first; child; child = child->next)
		count += 1;
	return count;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
static int put_children(json_t *into, const struct node *node)
{
	for (const struct node *child = node->first; child; child = child->next) {
		json_t *value = node_json(child);

		if (!value || (json_is_array(into) ? json_array_append_new(into, value) : json_object_set_new(into, child->key, value)) < 0)
			return -1;
	}
	return 0;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
json_t *node_json(const struct node *node)
{
	json_t *value;

	if (!json_is_object(node->value) && !json_is_array(node->value))
		return json_incref(node->value);
	value = json_is_object(node->value) ? json_object() : json_array();
	if (value && put_children(value, node) < 0) {
		json_decref(value);
		return NULL;
	}
	return value;
}

/* ---- problems ---- */

void node_quote(const struct node *node, char text[64])
{
	const struct place *at = &node->source->places.items[node->place];

	if (at->kind != PLACE_SCALAR)
		snprintf(text, 64, "%s", at->kind == PLACE_OBJECT ? "an object" : "an array");
	else
		snprintf(text, 64, "%.*s%s", at->length > 40 ? 40 : (int)at->length, node->source->places.text + at->value,
		         at->length > 40 ? "..." : "");
}

static void add(struct config_problems *problems, bool warning, const struct node *node, bool at_key, const char *format, va_list args)
{
	const struct place *at = &node->source->places.items[node->place];
	int line = at_key ? at->line : at->value_line, column = at_key ? at->column : at->value_column;
	char path[192], text[320];

	places_path(&node->source->places, node->place, path, sizeof(path));
	vsnprintf(text, sizeof(text), format, args);
	if (node->source->file) {
		char other[192];

		snprintf(other, sizeof(other), "%.80s:%d:%d%s%.90s", node->source->file, line, column, path[0] ? ": " : "", path);
		config_problems_add(problems, warning, other, 0, 0, "%s", text);
	} else {
		config_problems_add(problems, warning, path, line, column, "%s", text);
	}
}

void node_error(struct config_problems *problems, const struct node *node, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(problems, false, node, false, format, args);
	va_end(args);
}

void node_key_error(struct config_problems *problems, const struct node *node, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(problems, false, node, true, format, args);
	va_end(args);
}

void node_warning(struct config_problems *problems, const struct node *node, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	add(problems, true, node, false, format, args);
	va_end(args);
}
