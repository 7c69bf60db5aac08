/* SPDX-License-Identifier: MIT */
/* The signals that end a rehearsal: SIGINT, SIGTERM, SIGHUP. See signals.c. */
#ifndef REHEARSE_SIGNALS_H
#define REHEARSE_SIGNALS_H

#include <signal.h>

#define SIGNALS 3

struct signals_before {
	struct sigaction actions[SIGNALS];
};

/* From now on they are noted, and none has come yet. */
void signals_catch(struct signals_before *before);
void signals_restore(const struct signals_before *before);
/* The last one that came; 0: none. */
int signals_came(void);

#endif
