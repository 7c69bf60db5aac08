/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: two commands read files, and a mistake in either is told in the same form. Names of files and keys come from anywhere:
 * nothing in them reaches a terminal that would obey it.
 */
#include "problems.h"

void problems_print(const struct screen *screen, FILE *out, const char *file, const struct config_problems *problems)
{
	char line[CONFIG_LINE_SIZE];

	for (size_t i = 0; i < problems->count; i++) {
		config_problem_line(&problems->items[i], file, line, sizeof(line));
		screen_clean(screen, line);
		fprintf(out, "%s\n", line);
	}
}

json_t *problems_json(const struct config_problems *problems)
{
	json_t *array = json_array();

	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];
		if (json_array_append_new(array, json_pack("{s:b, s:i, s:i, s:s, s:s}", "warning", p->warning, "line", p->line, "column",
		                                           p->column, "path", p->path, "text", p->text)) != 0) {
			json_decref(array);
			return NULL;
		}
	}
	return array;
}

json_t *file_json(const char *file)
{
	json_t *name = json_string(file);

	return name != NULL ? name : json_string("?");
}
