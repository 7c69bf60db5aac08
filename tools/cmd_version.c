/* SPDX-License-Identifier: MIT */
/* resctl version: which program, and which segments it can read. Needs no segment. */
#include <inttypes.h>

#include "layout.h"
#include "resctl.h"

static const char doc[] = "The version of resctl, and the format of the segments that it reads."
                          "\v"
                          "Programs whose layouts differ do not share a segment: upgrade rescd and the workers' library together.\n"
                          "\n"
                          "Examples:\n"
                          "  resctl version\n"
                          "  resctl version --json | jq -r .layout";

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
		return print_json(ctl, json_pack("{s:s, s:s, s:s, s:b}", "version", RESC_VERSION_STRING, "format", format, "layout", layout,
		                                 "test_build", test));
	printf("resctl %s, segment format %s, layout %s%s\n", RESC_VERSION_STRING, format, layout,
	       test ? ", test build (test clock and failpoints)" : "");
	return EXIT_DONE;
}
