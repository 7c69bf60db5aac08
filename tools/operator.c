/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: an operator's command must either be true when it says so, or say why it is not. The library verifies the words; here
 * is what can be in the way before that (no permission, no such name, a segment that is being replaced), in words that help.
 */
#include "operator.h"

#include <errno.h>
#include <string.h>

#include "chars.h"
#include "snapshot_json.h"

#define SEGMENTS_TRIED 8

enum { OPTION_WHY = 'w' };

const struct argp_option operation_options[] = {
        {"why", OPTION_WHY, "TEXT", 0, "the reason, for whoever looks at events later", 0},
        {0},
};

/* One line of good text, cut to what the segment holds, with a word about it when it was longer. */
static void take_why(struct operation *operation, const char *text)
{
	char copy[4 * OVERRIDE_TEXT];
	_Atomic char stored[OVERRIDE_TEXT];

	snprintf(copy, sizeof(copy), "%s", text);
	for (char *p = copy; *p != '\0'; p++)
		if (*p == '\n' || *p == '\t' || *p == '\r')
			*p = ' ';
	/* Through the segment's own form, so that what is said here is what stands there. */
	chars_store(stored, sizeof(stored), copy);
	chars_load(stored, sizeof(stored), operation->why);
	if (strlen(text) >= OVERRIDE_TEXT)
		complain("the reason is cut to its first %zu bytes", strlen(operation->why));
}

error_t operation_parse_why(int key, char *arg, struct argp_state *state)
{
	if (key != OPTION_WHY)
		return ARGP_ERR_UNKNOWN;
	take_why(state->input, arg);
	return 0;
}

error_t operation_parse(int key, char *arg, struct argp_state *state)
{
	struct operation *operation = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		if (operation->name != NULL)
			argp_error(state, "'%s': one resource at a time", arg);
		operation->name = arg;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which resource? resctl list shows them");
		return 0;
	default:
		return operation_parse_why(key, arg, state);
	}
}

int operation_do(struct resctl *ctl, const struct operation *operation, uint32_t *index,
                 int (*act)(const struct map *map, uint32_t index, const struct operation *operation))
{
	int r = -ESTALE;

	for (int i = 0; i < SEGMENTS_TRIED && r == -ESTALE; i++) {
		r = attach(ctl, MAP_WORKER);
		if (r != 0)
			return r;
		int found = find_resource(ctl, operation->name);
		if (found < 0)
			return EXIT_NOT_SO;
		*index = (uint32_t)found;
		r = act(&ctl->map, *index, operation);
	}
	if (r == -EBUSY)
		complain("%s: somebody else changed it at the same moment, again and again; look with resctl show %s, and try again",
		         operation->name, operation->name);
	else if (r == -ENOENT)
		complain("%s: it was taken out of the configuration at this moment", operation->name);
	else if (r == -EPERM)
		complain("%s: the configuration does not allow injection; set \"injection\": true for it, and resctl reload",
		         operation->name);
	else if (r == -ENOTSUP)
		complain("%s: the segment is of an older format, that has no injection; restart rescd after the upgrade", operation->name);
	else if (r == -ESTALE)
		complain("%s: the segment is being replaced again and again; try again", operation->name);
	else if (r < 0 && r != -ESRCH)
		complain("%s: %s", operation->name, strerror(-r));
	return r == 0 || r == -ESRCH ? r : EXIT_NOT_SO;
}

int operation_report(const struct resctl *ctl, uint32_t index, const char *done)
{
	char text[512];

	if (ctl->json)
		return print_json(ctl, resources_json(&ctl->map, &index, 1));
	snprintf(text, sizeof(text), "%s", done);
	screen_clean(&ctl->screen, text);
	puts(text);
	return EXIT_DONE;
}
