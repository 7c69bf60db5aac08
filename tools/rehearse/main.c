/* SPDX-License-Identifier: MIT */
/*
 * resctl rehearse: what a policy does, seen before an outage does it. This program plays a scenario with real processes on an instance of
 * its own.
 */
#include <stdio.h>

#include "present.h"
#include "stage.h"

int main(int argc, char **argv)
{
	(void)argc;
	fprintf(stderr, "%s: cannot play scenarios yet\n", argv[0]);
	return 1;
}
