/* SPDX-License-Identifier: MIT */
/*
 * The kill storm: what its driver and its workers share.
 *
 * Why this exists: the promise is that whatever happens to any process between any two operations, the others go on and the accounts are
 * right again within a second. Single deaths at single steps are unit tests; this is the proof for what nobody thought of. So every worker
 * keeps an account of its own, in memory that the segment knows nothing of, and after each volley both are compared.
 *
 * The accounts are exact up to what a dead process was in the middle of: an operation is announced before it begins (actor.pending) and
 * entered into the account when it has returned, so each death inside an operation leaves a doubt about exactly that one.
 */
#ifndef STORM_H
#define STORM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "map.h"
#include "resc.h"

#define WORKERS_MAX 64u
#define ACTORS_MAX  (2 * WORKERS_MAX) /* a worker, and one child that it forked */
#define KEYS        8192u             /* idempotency keys whose owners are known; older ones are not asked for any more */

/* ---- what is guarded ---- */

/* X(NAME, name, strict, most, probes): strict: its accounts must add up (others come and go with the configuration). most: of calls inside;
 * 0: it is not a fixed number. probes: of a trial, where that never changes; 0: it does. */
#define STORM_RESOURCES(X)                                                                                                                 \
	X(PAY, "pay", true, 12, 0)                                                                                                         \
	X(SEARCH, "search", true, 0, 0)                                                                                                    \
	X(INDEX, "index", true, 0, 0)                                                                                                      \
	X(LEDGER, "ledger", true, 4, 2)                                                                                                    \
	X(MAIL, "mail", true, 6, 0)                                                                                                        \
	X(TRIAL, "trial", true, 0, 0)                                                                                                      \
	X(SHARD_A, "shard-a", true, 8, 0)                                                                                                  \
	X(SHARD_B, "shard-b", true, 8, 0)                                                                                                  \
	X(EXTRA, "extra", false, 0, 0)                                                                                                     \
	X(FLUX_0, "flux-0", false, 0, 0)                                                                                                   \
	X(FLUX_1, "flux-1", false, 0, 0)                                                                                                   \
	X(FLUX_2, "flux-2", false, 0, 0)                                                                                                   \
	X(FLUX_3, "flux-3", false, 0, 0)

enum storm_resource {
#define X(NAME, name, strict, most, probes) R_##NAME,
	STORM_RESOURCES(X)
#undef X
	        RESOURCES,
};

struct resource_traits {
	const char *name;
	bool strict;
	uint32_t most;
	uint32_t probes;
};
extern const struct resource_traits traits[RESOURCES];

/* The limits and rates that no configuration of the storm changes, so that what they promise can be worked out. */
#define LEDGER_CAPACITY   20u
#define LEDGER_RATIO      0.1
#define LEDGER_PER_SECOND 2.0
#define MAIL_BURST        50u
#define MAIL_PER_SECOND   400.0

/* ---- one process ---- */

enum actor_phase {
	ACTOR_FREE = 0,
	ACTOR_STARTING, /* forked, or about to be */
	ACTOR_RUNNING,
	ACTOR_PAUSED, /* between two calls, until the driver says go */
};

/* What a process is in the middle of. A word: op | resource << 8 | outcome << 16. 0: nothing. */
enum op { OP_NONE, OP_ENTER, OP_LEAVE, OP_RETRY, OP_ONCE_BEGIN, OP_ONCE_DONE, OP_ONCE_ABANDON, OP_FALLBACK, OPS };

#define LATENCY_PLACES 512u

struct actor {
	_Alignas(128) _Atomic uint32_t phase; /* {incarnation:24, enum actor_phase:8} */
	_Atomic int pid;
	_Atomic bool doomed;   /* the driver is about to kill it: what it holds may be anybody's from now on */
	_Atomic uint32_t life; /* in the segment that its last call was in */
	_Atomic uint64_t segment;
	_Atomic uint32_t pending;
	_Atomic uint32_t stops;  /* how often the driver has stopped it: then its clock says nothing about the call */
	_Atomic uint64_t agains; /* calls that said -EAGAIN */
	_Atomic uint64_t calls;
	/* {changes:32, generation:16, how many:16}: calls inside, and probes out. changes: so that two equal looks mean that nothing was
	 * given back in between. */
	_Atomic uint64_t inside[RESOURCES];
	_Atomic uint64_t probing[RESOURCES];
	/* The account: only this process writes it. Never set back, whoever comes after goes on. */
	_Atomic uint64_t counted[RESOURCES][COUNTERS];
	/* How long enter and leave took, by storm (1) and calm (0), in ns. */
	_Atomic uint64_t latency[2][LATENCY_PLACES];
};

/* An idempotency key of the last seconds. */
struct key_place {
	_Atomic uint64_t number;  /* which one; a newer one takes the place over */
	_Atomic uint64_t owner;   /* who was told that it is the first: {actor + 1:32, incarnation:32}, or 0 */
	_Atomic uint64_t done_ns; /* when its answer was stored; 0: it was not */
};

struct shared {
	_Atomic uint32_t pause; /* 0: go; 1: no calls but those that keep up with the segment; 2: none at all */
	_Atomic bool storm;     /* kills are going on: for the latencies */
	_Atomic bool end;
	_Atomic bool failed; /* complaint says why: the first one */
	_Atomic uint32_t complaints;
	_Atomic uint32_t most[RESOURCES]; /* calls inside at once, by the largest limit that may be in force; 0: not known */
	_Atomic uint32_t failing_ppm[RESOURCES];
	_Atomic uint64_t next_key;
	_Atomic uint64_t forks;
	char complaint[512];
	struct key_place keys[KEYS];
	struct actor actors[ACTORS_MAX];
};

struct storm {
	/* as asked for */
	uint64_t seed;
	uint32_t kills;
	uint32_t workers;
	uint32_t seconds; /* 0: until the kills are done */
	bool json;
	/* of this run */
	char instance[RESC_NAME_MAX + 1];
	char directory[64];
	char programs[512]; /* where rescd and resctl are */
	struct shared *shared;
};
extern struct storm storm;

/* ---- pieces ---- */

static inline uint64_t random_next(uint64_t *state)
{
	/* splitmix64 */
	uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}
static inline uint32_t random_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(random_next(state) % n);
}

uint64_t now_ns(void);
void sleep_us(uint64_t us);
/* The first complaint stays, and ends the storm. May be called by any process. */
__attribute__((format(printf, 1, 2))) void complain(const char *format, ...);
/* Into the list of what happened last, which is shown when something is wrong. */
__attribute__((format(printf, 1, 2))) void happened(const char *format, ...);

/* worker.c */
_Noreturn void actor_run(uint32_t index, uint32_t number);

/* host.c: rescd, its configuration, resctl */
struct host {
	pid_t rescd;
	bool stopped;
	uint64_t down_until_ns; /* 0: it runs */
	uint64_t disturbed_ns;  /* when something last happened to it */
	unsigned variant;       /* of the configuration */
	unsigned grown;         /* how often the tables were made larger */
};
void host_configure(struct host *host);
void host_start(struct host *host);
/* SIGHUP. */
void host_hang_up(const struct host *host);
/* Starts resctl; its pid. Its output goes to a file of the run. */
pid_t host_resctl(const char *const *words);
/* The same, and waits: the exit code, or -signal. Its output stands in *output (size bytes) where that is not NULL. */
int host_ask(const char *const *words, char *output, size_t size);
/* It serves the segment that the name leads to. */
bool host_is_ready(const struct host *host);
/* The last configuration is loaded, and nobody is inside beyond its limits. */
void host_limits_are_in_force(const struct host *host);

/* accounts.c */
/* A process has died, or an actor ended: what it was in the middle of stays in doubt. */
void accounts_close(uint32_t index);
/* The accounts against the segment. "" when everything adds up, else what does not. */
const char *accounts_check(const struct map *map);
/* Nobody calls: no permit, lease, place in a queue or key in work is left, and limits are what they are meant to be. */
const char *accounts_idle(const struct map *map);
/* Those who live are registered, and nobody else. */
const char *accounts_workers(const struct map *map);
/* No counter is lower than the last time. */
void accounts_watch(const struct map *map);
/* The budget and the rate that never change have not given out more than they had. elapsed_ns: since before they were made. */
const char *accounts_drawn(const struct map *map, uint64_t elapsed_ns);
/* Does this segment still wait for something from the one before: permits, probes, keys in work? */
bool accounts_owed(const struct map *map);
struct deaths {
	uint64_t all;
	uint64_t inside_an_operation;
	uint64_t with_permits;
};
struct deaths accounts_deaths(void);

/* report.c */
uint32_t latency_place(uint64_t ns);
struct report {
	uint64_t kills;
	uint64_t worker_kills, child_kills, rescd_kills, resctl_kills;
	uint64_t stops, reloads, removals, growths, quiet_points;
	double seconds;
	double slowest_ms; /* of exact and exact_after_rescd, and what was wrong until then */
	char slowest[400];
	/* ms, sorted when reported */
	struct samples {
		double *values;
		size_t count, room;
	} reaped, reaped_without_rescd, exact, exact_after_rescd;
};
void sample(struct samples *samples, double ms);
void report_progress(const struct report *report);
void report_print(const struct report *report, const char *doctor);

#endif
