/* SPDX-License-Identifier: MIT */
/* The parts of the driver, to each other. */
#ifndef STORM_DRIVER_H
#define STORM_DRIVER_H

#include <signal.h>

#include "storm.h"

#define MS          UINT64_C(1000000)
#define PATIENCE_NS (20000 * MS) /* a machine that is loaded may take long, a fault takes for ever */

extern struct report report;
extern struct host host;
extern uint64_t dice;
extern uint64_t started_ns;
extern uint64_t last_kill_ns;
extern bool ending; /* nobody who dies is replaced */

/* storm.c */
bool failed(void);
const sigset_t *endings(void);
void look_for_endings(void);
void remove_files(const char *directory, const char *prefix);

/* crowd.c */
/* The segment that the workers use now. NULL: none at this moment. */
const struct map *current_segment(void);
void forget_segment(void);
void crowd_begin(void);
void spawn(uint32_t i);
void kill_worker(uint32_t i);
void aim_at_worker(uint32_t i, uint64_t delay_ns);
void kill_child(uint32_t i);
void stop_worker_for(uint32_t i, uint64_t length_ns, bool then_kill);
void stop_rescd_for(uint64_t length_ns);
void end_rescd(int signal);
bool rescd_is_ending(void);
/* resctl, which is killed after so long. 0: it is not. */
void operate(const char *const *words, uint64_t kill_after_ns);
bool operators_are_gone(void);
/* all: also what is not due yet. */
void run_timers(bool all);
void live_until(uint64_t until_ns);
/* False, with a complaint: it never came. */
bool wait_for(bool (*condition)(void), const char *what);
void kill_everybody(void);

/* disasters.c */
void disaster(void);
void grow(void);
bool rescd_is_ready(void);

/* quiet.c */
void quiet_point(void);
bool no_former_segments(void);
const char *doctors_last_word(void);

#endif
