/* SPDX-License-Identifier: MIT */
/* The two views: the same policies, for all workers together or for each one alone. See view_config.c. */
#ifndef REHEARSE_VIEW_CONFIG_H
#define REHEARSE_VIEW_CONFIG_H

#include "scenario.h"

#define VIEW_NAME_SIZE (SCENARIO_NAME + 12)

/* The name under which a worker looks up a resource: "prices", or on its own view "prices.3". May be too long for a resource. */
void view_resource(char name[VIEW_NAME_SIZE], const char *resource, enum view view, unsigned worker);

/*
 * The configuration for rescd; a new reference. NULL: problem says why, or is NULL where memory is out; it lives as long as the program.
 */
json_t *view_configuration(const struct scenario *scenario, enum view view, const char **problem);

#endif
