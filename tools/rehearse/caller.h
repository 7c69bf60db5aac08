/* SPDX-License-Identifier: MIT */
/* The inside of a caller: the two ways of calling, by call_lab.c and call_curl.c. */
#ifndef REHEARSE_CALLER_H
#define REHEARSE_CALLER_H

#include "call.h"

#define CALL_SLICE_NS INT64_C(90000000) /* nobody waits longer than this without a look whether the rehearsal is over */

struct curl_line;

/* A caller's way to one dependency. */
struct line {
	int fd;                 /* the lab's own server: its connection; -1: none */
	struct curl_line *curl; /* other dependencies; NULL: not called yet */
};

struct caller {
	const struct scenario *scenario;
	struct board *board;
	struct line lines[SCENARIO_DEPENDENCIES];
};

int64_t call_clock_ns(void);
/* When a call that begins now must have ended; INT64_MAX: it may take as long as it likes. */
int64_t call_deadline_ns(const struct call *call);
/* How long to wait until the next look: at most until the deadline, which may have passed: 0. */
int64_t call_slice_ns(int64_t deadline_ns);
/* RESC_OK: that can be done on it now; else RESC_TIMEOUT or RESC_CANCELLED. */
enum resc_outcome call_await(const struct caller *caller, int fd, short events, int64_t deadline_ns);
/* This call could not even be tried, and that is not the dependency's fault. Said once a take, whoever is first. */
void call_complain(const struct caller *caller, unsigned dependency, const char *why);

/* The same, for want of something that this host has too little of: then what was played is worth nothing, and the stage ends it. */
void call_lacks(const struct caller *caller, unsigned dependency, int error);
/* Is an error of socket() of that kind? */
bool call_is_lack(int error);

/* retry_after_ms of the result is -1 before. */
enum resc_outcome lab_call(struct caller *caller, unsigned dependency, const struct call *call, struct call_result *result);
/* Connects, so that the first call need not; where that fails, it will. */
void lab_dial(struct caller *caller, unsigned dependency);
void lab_hang_up(struct line *line);
enum resc_outcome curl_call(struct caller *caller, unsigned dependency, const struct call *call, struct call_result *result);
void curl_hang_up(struct line *line);

#endif
