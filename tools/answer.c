/* SPDX-License-Identifier: MIT */
/*
 * The two programs speak alike: a complaint goes to stderr in one line that no terminal obeys, whatever names are in it, and a document to
 * stdout, complete or told not to be.
 */
#include "answer.h"

#include "snapshot_json.h"

void answer_complain(const char *program, const char *format, va_list args)
{
	const struct screen plain = {0};
	char text[2048];

	vsnprintf(text, sizeof(text), format, args);
	screen_clean(&plain, text);
	fflush(stdout);
	fprintf(stderr, "%s: %s\n", program, text);
}

bool answer_json(const struct screen *screen, json_t *json)
{
	size_t flags = SNAPSHOT_JSON_FLAGS | JSON_ENCODE_ANY | (screen->terminal ? JSON_INDENT(2) : JSON_COMPACT);
	int r = json_dumpf(json, stdout, flags);

	json_decref(json);
	return r == 0 && fputc('\n', stdout) != EOF;
}
