/* SPDX-License-Identifier: MIT */
/* The signals that end a rehearsal: SIGINT, SIGTERM, SIGHUP; and SIGCONT, which tells that it was stopped. See signals.c. */
#ifndef REHEARSE_SIGNALS_H
#define REHEARSE_SIGNALS_H

#include <signal.h>
#include <stdbool.h>

#define SIGNALS_THAT_END 3

struct signals_before {
	struct sigaction actions[SIGNALS_THAT_END], went_on, child;
};

/* From now on they are noted, and none has come yet; and what became of a child can be asked. */
void signals_catch(struct signals_before *before);
void signals_restore(const struct signals_before *before);
/* The last one that ends it; 0: none came. */
int signals_came(void);
/* Did this process go on, after a stop, since this was asked last? */
bool signals_went_on(void);

#endif
