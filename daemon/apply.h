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

/* The policy that a resource made from that pattern has in that segment. */
struct policy apply_pattern(const struct config_resource *pattern, const struct map *map);

/* Records that a successor takes over: those in use, and retired ones with callers inside. */
uint32_t apply_records_kept(const struct map *map);
/* Replaces the segment by one that has room for the configuration and for so many records. As instance_replace. */
int apply_replace(struct instance *instance, const struct config *config, uint32_t resources, struct resc_error *err);

#endif
