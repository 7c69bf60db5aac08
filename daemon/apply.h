/* SPDX-License-Identifier: MIT */
/* From a configuration to the policies in the segment. */
#ifndef RESCD_APPLY_H
#define RESCD_APPLY_H

#include <jansson.h>

#include "config.h"
#include "instance.h"

/* How large a segment for that configuration is made. */
struct segment_dims apply_dims(const struct config *config);

/* Publishes all resources in a new segment (struct instance_plan.fill; arg is the configuration). */
int apply_fresh(const struct map *map, const void *arg, struct resc_error *err);

/*
 * Makes the segment follow the configuration: writes what differs, adds, retires, and replaces the segment by a larger one where it is too
 * small. report, an object, gets "changed", "added", "removed" (arrays of names) and "replaced" (a boolean). 0; or -errno with err, and
 * then nothing was changed.
 */
int apply_config(struct instance *instance, const struct config *config, json_t *report, struct resc_error *err);

#endif
