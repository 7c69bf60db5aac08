/* SPDX-License-Identifier: MIT */
/*
 * Named places between the steps of a protocol, in the test build only. RESC_FAILPOINT in the environment of a process (or
 * failpoint_set in its code) says what happens at which: "permit.taken=kill", "breaker.trip=stop", "register.locked=sleep:200",
 * "leave.freed@3=kill" (the third time). Several are separated by commas. In release builds nothing of this exists.
 *
 * failpoint_watch is for a test that is itself somebody else between two steps: it is called at each point that is met.
 */
#ifndef RESC_FAILPOINT_H
#define RESC_FAILPOINT_H

#ifdef RESC_TEST_CLOCK
void failpoint_hit(const char *name);
/* Replaces what RESC_FAILPOINT said. NULL: none. 0 or -EINVAL. */
int failpoint_set(const char *spec);
/* NULL: nobody. */
void failpoint_watch(void (*met)(void));
#define FAILPOINT(name) failpoint_hit(name)
#else
#define FAILPOINT(name) ((void)0)
#endif

#endif
