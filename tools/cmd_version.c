/* SPDX-License-Identifier: MIT */
/* resctl version: which program, and which segments it can read. Needs no segment. */
#include <inttypes.h>

#include "layout.h"
#include "resctl.h"

static const char doc[] = "The version of resctl, and the formats of segments that it reads."
                          "\v"
                          "A format is major.minor. Whatever has the same major shares a segment: see upgrading.md. The layout is\n"
                          "a hash of what this version knows; programs of one format have the same.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl version\n"
                          "  resctl version --json | jq -r .format";

int cmd_version(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse_nothing, NULL, doc, NULL, NULL, NULL};
	char layout[17], format[16];
#ifdef RESC_TEST_CLOCK
	const bool test = true;
#else
	const bool test = false;
#endif

	command_parse(ctl, &argp, argc, argv, NULL);
	snprintf(layout, sizeof(layout), "%016" PRIx64, layout_hash(SEGMENT_MINOR));
	snprintf(format, sizeof(format), "%d.%d", SEGMENT_MAJOR, SEGMENT_MINOR);
	if (ctl->json)
		return print_json(ctl, json_pack("{s:s, s:s, s:i, s:s, s:b}", "version", RESC_VERSION_STRING, "format", format,
		                                 "reads_major", SEGMENT_MAJOR, "layout", layout, "test_build", test));
	printf("resctl %s, segment format %s (reads every %d.x), layout %s%s\n", RESC_VERSION_STRING, format, SEGMENT_MAJOR, layout,
	       test ? ", test build (test clock and failpoints)" : "");
	return EXIT_DONE;
}
