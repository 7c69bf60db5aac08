/* SPDX-License-Identifier: MIT */
/*
 * What the processes of the demo share among themselves: one anonymous mapping, made before the first fork.
 *
 * It is the demo's notebook and nothing more. How the workers coordinate is not in here: that is in the segment of libresc.
 * Each word has one writer, named beside it, or is only ever added to.
 */
#ifndef DEMO_BOARD_H
#define DEMO_BOARD_H

#include <stdatomic.h>
#include <stdint.h>

#define DEMO_WORKERS  8u
#define DEMO_REQUESTS 4096u /* remembered for each worker */
#define DEMO_LINE     128u  /* words of different writers stand this far apart */

enum fault { FAULT_NONE, FAULT_HANG, FAULT_ERRORS };

/* What a client got. */
enum served {
	SERVED_LIVE,  /* a fresh price */
	SERVED_STALE, /* the last known price: the fallback */
	SERVED_LATE,  /* nothing in time: the client had gone */
	SERVED_KINDS
};

/* One request of a client. Times are nanoseconds since the run began. */
struct request {
	int64_t arrived_ns;
	int64_t begun_ns; /* later than arrived_ns when the worker was still busy with the request before */
	int64_t ended_ns;
	unsigned attempts; /* calls that went to the dependency */
	enum served served;
};

/* A worker's own pages: written by that worker alone. The parent reads `count` and `served` while it runs, the rest afterwards. */
struct lane {
	_Alignas(DEMO_LINE) _Atomic unsigned count;
	_Atomic unsigned served[SERVED_KINDS];
	_Atomic unsigned stopped;      /* 1: it was refused while the dependency failed: it has stopped calling */
	unsigned failing_when_stopped; /* calls that had failed by then, on the whole host, probes not counted */
	struct request requests[DEMO_REQUESTS];
};

struct board {
	_Alignas(DEMO_LINE) _Atomic int fault; /* enum fault; written by the parent */

	/* What reached the dependency, counted by its own server (for Redis: by the callers, when they have sent). */
	_Alignas(DEMO_LINE) _Atomic unsigned calls;
	_Atomic unsigned failing;        /* of these, while a fault was on */
	_Atomic unsigned failing_probes; /* of these, probes */

	/* Workers that wait for the dependency at this moment, and the most there have been. Written by all workers. */
	_Alignas(DEMO_LINE) _Atomic unsigned inside;
	_Atomic unsigned inside_most;

	_Alignas(DEMO_LINE) int64_t start_ns; /* of the run; written by the parent before the workers exist */
	int64_t end_ns;
	int64_t patience_ns; /* how long a client waits */
	int64_t period_ns;   /* mean time between two requests of a worker */
	uint64_t seed;

	struct lane lanes[DEMO_WORKERS];
};

/* The dependency got a call. */
static inline void board_count_call(struct board *board, int probe)
{
	/* Relaxed: these are totals; nobody concludes from one of them what another holds. */
	atomic_fetch_add_explicit(&board->calls, 1, memory_order_relaxed);
	if (atomic_load_explicit(&board->fault, memory_order_relaxed) == FAULT_NONE)
		return;
	atomic_fetch_add_explicit(&board->failing, 1, memory_order_relaxed);
	if (probe)
		atomic_fetch_add_explicit(&board->failing_probes, 1, memory_order_relaxed);
}

/* A small generator (splitmix64), so that both runs see the same requests. */
static inline uint64_t board_random(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

#endif
