/* SPDX-License-Identifier: MIT */
/* One run of the story: a rescd, a dependency, eight workers, and what happens to them. See run.c. */
#ifndef DEMO_RUN_H
#define DEMO_RUN_H

#include "dependency.h"

enum view { VIEW_OWN, VIEW_SHARED };

/* When what happens, in nanoseconds since the start. */
struct timeline {
	int64_t hang_ns;
	int64_t errors_ns;
	int64_t recovery_ns;
	int64_t end_ns;
};

struct figures {
	unsigned failing_before_stop; /* calls that failed before the last worker stopped calling */
	unsigned failing;             /* all calls that reached the dependency while it failed */
	unsigned probes;              /* of these, probes */
	double attempts_worst;        /* attempts a request, in the worst quarter of a second */
	unsigned live;
	unsigned stale;
	unsigned late;
	int64_t recovered_ns; /* until the last worker served a fresh price again; -1: one never did */
};

struct story {
	const char *rescd; /* path of the program */
	const char *dir;   /* for files; the caller removes it */
	const struct dependency_kind *kind;
	struct timeline timeline;
	uint64_t seed;
};

/* 0 with the figures; -errno, after saying why on stderr; or the number of a signal. Leaves nothing behind. */
int run_story(const struct story *story, enum view view, struct figures *figures);

#endif
