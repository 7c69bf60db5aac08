/* SPDX-License-Identifier: MIT */
/* All that is wrong with a file, as an answer. */
#ifndef RESCTL_PROBLEMS_H
#define RESCTL_PROBLEMS_H

#include <jansson.h>
#include <stdio.h>

#include "config_problem.h"
#include "table.h"

/* One line each, in the form that editors jump to: FILE:LINE:COLUMN. Made safe for the screen. */
void problems_print(const struct screen *screen, FILE *out, const char *file, const struct config_problems *problems);
/* A new reference; NULL: out of memory. */
json_t *problems_json(const struct config_problems *problems);
/* The name of a file, which need not be UTF-8. A new reference; NULL: out of memory. */
json_t *file_json(const char *file);

#endif
