/* SPDX-License-Identifier: MIT */
/*
 * The event ring. A writer takes a number (fetch_add), claims its place (CAS of the stamp to BUSY|life), fills it, and stamps it
 * (release). A place whose writer is stopped is skipped by later writers; of a dead one it is freed by the reaper, or taken by the next
 * writer that comes by. Readers copy and look at the stamp again. value[] says what decided: consecutive: failures, limit; failure_rate:
 * failed, calls; slow_rate: slow, calls; probe_*: ok, failed of the trial; forced: milliseconds it lasts (0: no end), mode; injected: the
 * setting (see words.h), milliseconds; injection_ended: the setting, enum injection_end; reaped: life, pid.
 */
#ifndef RESC_EVENT_H
#define RESC_EVENT_H

#include <sys/types.h>

#include "map.h"

struct event {
	uint64_t number; /* from 1, without gaps unless a place was skipped */
	uint64_t ms;     /* segment time */
	enum event_kind kind;
	unsigned from; /* breaker_tag, for BREAKER */
	unsigned to;
	enum reason reason;
	uint16_t generation;
	pid_t pid;
	uid_t uid;
	uint64_t value[2];
	char resource[SEGMENT_NAME_SIZE]; /* "" for the whole instance */
	char text[EVENT_TEXT];
};

/* number, ms, pid and uid are filled in here. life: the writer's, or 0 (who has none). Some 300 ns; without a life three system calls. */
void event_write(const struct map *map, uint32_t life, struct event *event);
/*
 * For an event that several may write, of which one is enough: number alone is filled in here (and ms where it is 0), and nothing is
 * written (number 0) when *done is not `before` any more after a place was claimed. Who finds it done later than that has written it twice.
 */
void event_write_unless(const struct map *map, uint32_t life, struct event *event, const word *done, uint64_t before);
/* For rescd, again and again: what was written in a superseded segment from live->events_carried on, as it was but for its number. */
void event_carry(const struct map *from, const struct map *to);

/*
 * Copies the newest events, oldest first, at most max of them, with numbers above `after`. Transitions and deaths that are there twice
 * (written for a slow writer by rescd) are given once. Returns how many.
 */
size_t event_read(const struct map *map, uint64_t after, struct event *events, size_t max);

const char *event_kind_name(enum event_kind kind);
const char *reason_name(enum reason reason);
const char *reason_text(enum reason reason);

#endif
