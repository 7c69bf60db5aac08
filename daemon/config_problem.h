/* SPDX-License-Identifier: MIT */
/* What is wrong with a configuration file: where, what, and what helps. */
#ifndef RESCD_CONFIG_PROBLEM_H
#define RESCD_CONFIG_PROBLEM_H

#include <stdbool.h>
#include <stddef.h>

#define CONFIG_PROBLEMS_SHOWN 100 /* errors, and as many warnings; then one line says how many more */

struct config_problem {
	bool warning;     /* the file can be used as it is */
	int line, column; /* from 1, in characters; 0: not at a place in the file */
	char path[192];   /* resources.payments.breaker.window; "": the file */
	char text[320];   /* message; remedy */
};

/* Starts as {0}. */
struct config_problems {
	size_t count; /* items */
	struct config_problem *items;
	size_t errors, warnings; /* found, shown or not */
};

/* Adds one, unless the same words were said about the same place. Control characters of the file do not get into it. */
__attribute__((format(printf, 6, 7))) void config_problems_add(struct config_problems *problems, bool warning, const char *path, int line,
                                                               int column, const char *format, ...);
/* Puts errors before warnings, each in the order of the file, and says how many are not shown. After the last config_problems_add. */
void config_problems_finish(struct config_problems *problems);
void config_problems_free(struct config_problems *problems);

#define CONFIG_FILE_SHOWN 1024
#define CONFIG_LINE_SIZE  (CONFIG_FILE_SHOWN + sizeof(struct config_problem) + 64)
/* "FILE:LINE:COLUMN: PATH: message; remedy", without a line feed. A warning has "warning: " before its path. */
void config_problem_line(const struct config_problem *problem, const char *file, char *line, size_t size);

#endif
