/* SPDX-License-Identifier: MIT */
/*
 * What the processes of a rehearsal tell each other, and what they note down: anonymous shared memory, made before the first fork. It is
 * the lab's notebook and nothing more: how workers coordinate is in the segment of libresc, and not in here.
 *
 * Notes are facts with their times; nobody computes a figure while it happens. A note has one writer: a request the caller that took it, an
 * attempt and a receipt whoever drew its number. `done` of a note is stored last (release); a note without it is of something that
 * was going on when the rehearsal ended, or whose worker is dead. Times are nanoseconds since start_ns.
 */
#ifndef REHEARSE_BOARD_H
#define REHEARSE_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "scenario.h"

#define BOARD_LINE 128u

/* What a request's client got. */
enum served {
	SERVED_NOT_YET,  /* in work, or still waiting for a worker, when the rehearsal ended */
	SERVED_FRESH,    /* an answer of the dependency */
	SERVED_FALLBACK, /* an answer without it */
	SERVED_FAILED,   /* an error */
	SERVED_LATE,     /* nothing before its patience ended */
	SERVED_REJECTED, /* there was no room in the backlog */
	SERVED_STORED,   /* the stored answer of its idempotency key */
	SERVED_KINDS,
};

/* A request of the load. arrival_ns, load and number are written before the first fork: the schedule; in order of arrival. One at a time, a
 * request comes later where the one before it ended too late. */
struct request_note {
	int64_t arrival_ns;
	int64_t begun_ns; /* a worker took it */
	int64_t ended_ns; /* of one that is late: when its client went */
	uint32_t load;
	uint32_t number; /* from 1, in its load */
	uint16_t worker;
	uint16_t attempts; /* calls that its resources admitted, all layers */
	uint8_t served;    /* enum served */
	int16_t answer;    /* the last answer of libresc: 0, a refusal of resc_enter, or an answer of resc_retry */
	_Atomic uint32_t done;
};

/* One question to a resource, admitted or not. */
struct attempt_note {
	int64_t asked_ns;   /* before resc_enter */
	int64_t entered_ns; /* after it */
	int64_t ended_ns;   /* after resc_leave; refused: as entered_ns */
	int64_t wait_ns;    /* after it, as resc_retry said; -1: no other attempt */
	uint32_t request;   /* index of the note */
	uint16_t worker;
	uint16_t resource; /* index in scenario.resources */
	uint16_t try;      /* of this resource in this request, from 1 */
	int16_t answer;    /* of resc_enter: 0, or the refusal */
	int16_t retry;     /* of resc_retry after it: 0, or why not; -1: not asked */
	uint8_t outcome;   /* enum resc_outcome, where it was admitted */
	bool probe;
	bool during_fault; /* a fault of the dependency was on when it was sent */
	bool injected;     /* the failure was resctl inject's */
	_Atomic uint32_t done;
};

/* How a dependency dealt with a request that reached it. */
enum receipt {
	RECEIPT_OK,    /* worked on, and answered (its caller may have gone) */
	RECEIPT_ERROR, /* an error, by its fault */
	RECEIPT_SHED,  /* an error: beyond its capacity */
	RECEIPT_HUNG,  /* never answered */
	RECEIPT_RESET,
	RECEIPT_PENDING, /* not answered yet when the rehearsal ended */
	RECEIPTS,
};

/* A request that has reached a dependency: by its own server, or of a foreign one by the caller. */
struct receipt_note {
	int64_t received_ns;
	int64_t answered_ns; /* or when the work was done; 0: never */
	uint32_t request;
	uint16_t dependency;
	uint16_t try;
	uint8_t receipt; /* enum receipt */
	bool probe;
	bool during_fault;
	bool caller_gone; /* the work was done, and nobody was there to hear of it */
	_Atomic uint32_t done;
};

/* Read and added to by all callers. */
struct board {
	/* written by the parent before the first fork */
	int64_t start_ns; /* CLOCK_MONOTONIC; 0 until everybody is there */
	uint32_t request_count;
	uint32_t attempt_room;
	uint32_t receipt_room;

	/* by the parent alone, for its game day */
	int64_t looked_until; /* the seconds before this one have been looked at */
	char why_stopped[320];

	_Alignas(BOARD_LINE) _Atomic uint32_t ready;    /* callers that are there */
	_Alignas(BOARD_LINE) _Atomic uint32_t go;       /* futex: 1 when start_ns is set */
	_Alignas(BOARD_LINE) _Atomic uint32_t stop;     /* futex: 1: the rehearsal is over; who is idle ends */
	_Alignas(BOARD_LINE) _Atomic uint32_t next;     /* ORDER_ANY: index of the next request that nobody has taken */
	_Alignas(BOARD_LINE) _Atomic uint32_t ended;    /* requests that have ended; ORDER_SINGLE: whose turn it is */
	_Alignas(BOARD_LINE) _Atomic uint32_t attempts; /* numbers drawn; beyond attempt_room they are lost, and that is an error */
	_Alignas(BOARD_LINE) _Atomic uint32_t receipts;

	int64_t shift_ns; /* ORDER_SINGLE: by how much the schedule is late; of whose turn it is */

	/* the line before the door, where there is a backlog: under its lock. See turn.c */
	_Alignas(BOARD_LINE) _Atomic uint32_t door; /* 1: locked */
	uint32_t line_head;                         /* the first that may be waiting */
	uint32_t line_end;                          /* the first that nobody has looked at */
	uint32_t line_waiting;

	_Alignas(BOARD_LINE) _Atomic uint32_t complaints; /* calls that could not even be tried: the first one says why */
	_Atomic int lacked;                               /* the errno of one that this host had not the means for; 0: none */

	/* for the live table: relaxed totals */
	_Alignas(BOARD_LINE) _Atomic uint64_t served[SERVED_KINDS];

	struct request_note *requests; /* the same address in all processes: they are forked */
	struct attempt_note *attempt_notes;
	struct receipt_note *receipt_notes;
};

/* A board with the schedule of a scenario on it. NULL with errno; E2BIG: more requests than SCENARIO_REQUESTS. */
struct board *board_new(const struct scenario *scenario);
void board_free(struct board *board);
/* The next note, or NULL when there is no room. */
struct attempt_note *board_attempt(struct board *board);
struct receipt_note *board_receipt(struct board *board);
/* Nanoseconds since the start; below 0 before it. */
int64_t board_now(const struct board *board);

/* The parent, once: the rehearsal starts then (CLOCK_MONOTONIC), and is over. Wake whoever waits for it. */
void board_start(struct board *board, int64_t start_ns);
void board_end(struct board *board);
bool board_is_over(const struct board *board);
/* A caller: until board_start. False: there will be none. */
bool board_wait_for_start(struct board *board);
/* Sleeps until that time of the rehearsal. False: it is over. */
bool board_sleep_until(struct board *board, int64_t at_ns);

/* A request has ended: its note is complete but for done. */
void board_request_ended(struct board *board, struct request_note *note, enum served served);

#endif
