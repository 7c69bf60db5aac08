/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "the same, without a breaker" should be one line, and not a second copy of the scenario that is forgotten when the first
 * one changes. RFC 7396 is the merge that people know.
 *
 * It is stricter in one point: a null that removes nothing is a typing error more often than not, and is told.
 */
#include "patch.h"

/* Appends a child, or what its change makes of it. 0 or -1. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
static int append_changed(struct nodes *nodes, struct node *merged, const struct node *child, const struct node *change,
                          struct config_problems *problems)
{
	struct node *made;

	if (change && json_is_null(change->value))
		return 0;
	if (change) {
		made = patch_apply(nodes, child, change, problems);
	} else {
		made = node_copy(nodes, child);
		if (made) {
			made->first = child->first;
			made->last = child->last;
		}
	}
	if (!made)
		return -1;
	node_append(merged, made);
	return 0;
}

/* What the patch has and the target has not. */
/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
static int append_new(struct nodes *nodes, struct node *merged, const struct node *target, const struct node *patch,
                      struct config_problems *problems)
{
	for (const struct node *change = patch->first; change; change = change->next) {
		struct node *made;

		if (target && node_child(target, change->key))
			continue;
		if (json_is_null(change->value)) {
			if (problems)
				node_error(problems, change, "null removes a key, and there is none of that name to remove");
			continue;
		}
		made = patch_apply(nodes, NULL, change, problems);
		if (!made)
			return -1;
		node_append(merged, made);
	}
	return 0;
}

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the parser allows */
struct node *patch_apply(struct nodes *nodes, const struct node *target, const struct node *patch, struct config_problems *problems)
{
	bool both = target && json_is_object(target->value) && json_is_object(patch->value);
	struct node *merged = node_copy(nodes, both ? target : patch);

	if (!merged)
		return NULL;
	if (!json_is_object(patch->value)) {
		merged->first = patch->first;
		merged->last = patch->last;
		return merged;
	}
	for (const struct node *child = both ? target->first : NULL; child; child = child->next) {
		if (append_changed(nodes, merged, child, node_child(patch, child->key), problems) < 0)
			return NULL;
	}
	return append_new(nodes, merged, both ? target : NULL, patch, problems) < 0 ? NULL : merged;
}
