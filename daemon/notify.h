/* SPDX-License-Identifier: MIT */
/* What rescd tells the service manager that started it. */
#ifndef RESCD_NOTIFY_H
#define RESCD_NOTIFY_H

#include <stdint.h>

/* Sends a state ("READY=1") where a manager listens. Never waits; a manager that does not listen is not an error. */
void notify_send(const char *state);
/* RELOADING=1 with the time that the protocol asks for. Ends with the next READY=1. */
void notify_reloading(void);
/* How often WATCHDOG=1 is wanted, in milliseconds: half of what the manager waits. 0: not wanted from this process. */
uint64_t notify_watchdog_ms(void);

#endif
