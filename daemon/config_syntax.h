/* SPDX-License-Identifier: MIT */
/* A text parsed as JSON, or what is wrong with it. */
#ifndef RESCD_CONFIG_SYNTAX_H
#define RESCD_CONFIG_SYNTAX_H

#include <jansson.h>

#include "config_problem.h"

/* Any value, doubled keys too, of which the last is kept. A new reference, or NULL with a problem. */
json_t *config_json(const char *text, size_t size, struct config_problems *problems);

#endif
