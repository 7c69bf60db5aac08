/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a parser says what it expected, and people need to know what they wrote. So its words are kept, and what helps is put
 * behind them; and the place is where the unexpected begins, not where the parser noticed.
 */
#include "config_syntax.h"

#include <string.h>

/* What people write that is not JSON, by what the parser says about it. */
static const char *syntax_remedy(const char *text)
{
	static const struct {
		const char *part, *remedy;
	} remedies[] = {
	        {"expected near end of file", "; a quote, bracket or brace is not closed, or the file was cut"},
	        {"near '/", "; JSON has no comments"},
	        {"near '#", "; JSON has no comments"},
	        {"near ''", "; strings stand in double quotes"},
	        {"string or '}' expected near", "; a key in double quotes is needed, and no comma after the last one"},
	        {"'}' expected near", "; a comma is missing before it"},
	        {"too big integer", "; write a smaller one"},
	        {"real number overflow", "; write a smaller one"},
	        {"unable to decode byte", "; save the file as UTF-8"},
	        {"end of file expected", "; one object is the whole file"},
	        {"premature end of input", "; a quote, bracket or brace is not closed, or the file was cut"},
	        {"JSON_ALLOW_NUL", "; a string cannot hold a NUL character"},
	};

	for (size_t i = 0; i < sizeof(remedies) / sizeof(remedies[0]); i++) {
		if (strstr(text, remedies[i].part))
			return remedies[i].remedy;
	}
	return "";
}

/* jansson says where the token that it did not expect ends; people look for where it starts. */
static int column_of(const json_error_t *error, const char *text)
{
	const char *near = strstr(error->text, "near '");
	size_t length, position = error->position > 0 ? (size_t)error->position : 0;
	int column = error->column > 0 ? error->column : 1;

	if (!near)
		return column;
	near += strlen("near '");
	length = strlen(near) - 1;
	if (length == 0 || length > position || memcmp(near, text + position - length, length) != 0)
		return column;
	for (size_t i = position - length + 1; i < position; i++)
		column -= ((unsigned char)text[i] & 0xc0) != 0x80;
	return column > 0 ? column : 1;
}

json_t *config_json(const char *text, size_t size, struct config_problems *problems)
{
	json_error_t error;
	/* Any value, so that a text that is no object gets our words; doubled keys are found later, all of them. */
	json_t *root = json_loadb(text, size, JSON_DECODE_ANY, &error);

	if (!root)
		config_problems_add(problems, false, "", error.line > 0 ? error.line : 1, column_of(&error, text), "this is not JSON: %s%s",
		                    error.text, syntax_remedy(error.text));
	return root;
}
