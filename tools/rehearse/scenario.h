/* SPDX-License-Identifier: MIT */
/*
 * A scenario as it is rehearsed: workers, a configuration, dependencies with their faults, a load, and what is expected of it all.
 * docs/scenarios.md lists the keys of the file. What scenario_load hands out is complete and sound: nobody checks it again.
 *
 * Times are nanoseconds; those of a script are since the start of the rehearsal. Shares are 0..1.
 */
#ifndef REHEARSE_SCENARIO_H
#define REHEARSE_SCENARIO_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "config_problem.h"
#include "resc.h"

#define SCENARIO_NAME         (RESC_NAME_MAX + 1)
#define SCENARIO_WORKERS      256u     /* at most */
#define SCENARIO_THREADS      1024u    /* a worker, at most */
#define SCENARIO_CALLERS      4096u    /* workers times threads, at most */
#define SCENARIO_REQUESTS     1000000u /* at most */
#define SCENARIO_CHAIN        8u       /* resources that one request goes through, one inside the other */
#define SCENARIO_RESOURCES    64u      /* that the load names */
#define SCENARIO_DEPENDENCIES 16u
#define SCENARIO_FOREVER      INT64_MAX

/* ---- dependencies ---- */

/* One part of a mixture of response times. */
struct span {
	enum span_kind { SPAN_FIXED, SPAN_UNIFORM, SPAN_LOGNORMAL } kind;
	double share;     /* of the mixture; they add up to 1 */
	int64_t from_ns;  /* fixed: the time; uniform: the least */
	int64_t to_ns;    /* uniform: the most */
	double mu, sigma; /* log-normal, of seconds */
};

enum fault_kind {
	FAULT_HANG,     /* takes requests and never answers them */
	FAULT_SLOW,     /* answers latency_ns later */
	FAULT_ERRORS,   /* answers with an error at once, and with retry_after_ms where that is not -1 */
	FAULT_REFUSE,   /* nobody listens: connections are refused */
	FAULT_RESET,    /* the connection is reset when the request is there */
	FAULT_CAPACITY, /* works on at most `capacity` requests at once */
};

struct fault {
	enum fault_kind kind;
	int64_t from_ns, to_ns; /* [from, to); SCENARIO_FOREVER: to the end */
	uint32_t from_request;  /* ... or for requests of these numbers, from 1, [from, to]; 0: by time */
	uint32_t to_request;
	uint32_t tries;         /* only attempts up to this one of a request; 0: all */
	double share;           /* of the requests that it hits: partial failure. 1: all. Not for refuse and capacity */
	int64_t up_ns, down_ns; /* flapping: the fault is on for down_ns, then off for up_ns, and so on; down_ns 0: always on */
	int64_t latency_ns;
	int64_t retry_after_ms;
	uint32_t capacity;
};

struct dependency {
	char name[SCENARIO_NAME];
	enum dependency_kind {
		DEPENDENCY_SERVER,  /* the lab's own */
		DEPENDENCY_ADDRESS, /* somebody else's: http://, https:// or tcp:// */
		DEPENDENCY_PROGRAM, /* a program that the lab starts, called by tcp */
	} kind;
	/* the lab's own server */
	struct span *latency; /* at least one */
	size_t latency_count;
	int64_t cpu_ns;    /* the one processor of the server is busy this long with each request, refused ones too */
	uint32_t capacity; /* requests that it works on at once; beyond them it queues, and beyond that it answers with an error; 0: no
	                      limit */
	uint32_t queue;
	double accepts_per_second; /* what is beyond is answered with an error; 0: no limit */
	struct fault *faults;      /* of a program: hang (it is stopped) and refuse (it is ended, and started again) */
	size_t fault_count;
	/* an address: the whole of it, or tcp://HOST:PORT; of a program tcp://127.0.0.1:PORT, made at run time */
	char *address;
	char *send;   /* tcp: what is written ... */
	char *expect; /* ... and what must come back (a prefix); NULL: that a connection can be made is enough */
	/* a program: its words; {port} is the port that it is to listen on */
	char **program; /* NULL at the end */
};

/* ---- load ---- */

enum arrivals { ARRIVALS_EVEN, ARRIVALS_POISSON, ARRIVALS_AT };

/* How a request uses its idempotency key. */
enum keyed {
	KEYED_NOT,
	KEYED_BEFORE /* resc_once_begin, the work, resc_once_done */,
	KEYED_AFTER /* looked up, and stored after the work */
};

struct load {
	char name[SCENARIO_NAME];       /* that of its last resource where the file says none; unique */
	uint32_t chain[SCENARIO_CHAIN]; /* resources, the outermost first: indices into scenario.resources */
	size_t chain_count;
	int dependency; /* index; -1: none is called (the front door alone), and work_ns passes inside */
	int64_t work_ns;
	enum arrivals arrivals;
	int64_t from_ns, to_ns;
	double *rates; /* a second, one for each second since from_ns; the last one goes on */
	size_t rate_count;
	int64_t *at; /* ARRIVALS_AT: when, in order ("at", "burst", or "count" and "every") */
	size_t at_count;
	enum resc_priority priority;
	uint32_t cost;
	int64_t deadline_ns; /* from its arrival; 0: the policy's total timeout alone */
	int64_t patience_ns; /* its client has gone that long after the arrival; 0: it waits */
	char fallback[16];   /* a kind of resc_fallback; "": none, the request fails */
	enum keyed keyed;
	char *key;             /* keyed: the same for all its requests; NULL: one for each */
	bool retries;          /* by the policies; false: one attempt */
	bool retried_upstream; /* inner resources of the chain are told that the edge retries */
};

enum order {
	ORDER_ANY,     /* who is free takes the next request, as processes that accept from one socket do */
	ORDER_IN_TURN, /* request i belongs to worker i modulo workers */
	ORDER_SINGLE,  /* in turn, and one at a time on the whole host: one client in a loop, which is late when an answer is */
};

/* ---- expectations ---- */

enum relation { IS_EQUAL, IS_AT_LEAST, IS_AT_MOST, IS_ABOUT };

enum view { VIEW_OWN, VIEW_SHARED, VIEWS };

/* Which figure: see figures.h. */
struct figure_ref {
	char figure[32];
	char of[SCENARIO_NAME];      /* a load, resource or dependency; "": all */
	char variant[SCENARIO_NAME]; /* "": each variant that is run */
	int view;                    /* enum view; -1: each view that is run */
	int64_t from_ns, to_ns;      /* what happened then; 0 and SCENARIO_FOREVER: all of it */
	int64_t width_ns;            /* of a slot, or a candidate timeout */
	uint32_t nth;                /* of a transition, from 1 */
};

struct expectation {
	struct figure_ref what;
	bool relative; /* divided by this one, of the same rehearsal */
	struct figure_ref to;
	enum relation relation;
	double value;
	double tolerance; /* IS_ABOUT: either way */
	bool has_published;
	double published; /* to be printed beside */
	char *why;        /* NULL: nothing said */
};

/* What is better on one view, for the sentence that says by how much. */
struct comparison {
	struct figure_ref what; /* view: both */
	bool less_is_better;
	char *why;
};

enum question { QUESTION_PROTECTED, QUESTION_NOTICED, QUESTION_RECOVERED, QUESTIONS };

struct game_day {
	bool given;
	char *hypothesis;
	struct expectation *steady; /* looked at before the first fault; not so: the rehearsal is stopped there */
	size_t steady_count;
	struct expectation *abort; /* looked at each second; one that does not hold any more stops the rehearsal */
	size_t abort_count;
	struct expectation *answers[QUESTIONS]; /* yes when all of them hold */
	size_t answer_count[QUESTIONS];
};

/* ---- all of it, for one variant ---- */

struct scenario {
	char *title;
	char *about;                 /* NULL: nothing */
	char experiment[16];         /* "E7"; "": none */
	char variant[SCENARIO_NAME]; /* ""; the only one */
	char *variant_about;         /* NULL: nothing */
	bool views[VIEWS];           /* to be run */
	int64_t duration_ns;
	uint32_t workers, threads;
	enum order order;
	uint32_t backlog; /* requests that may wait for a free worker; UINT32_MAX: any number */
	uint64_t seed;
	json_t *configuration;                             /* as rescd reads it; its instance, metrics and control are the lab's */
	char resources[SCENARIO_RESOURCES][SCENARIO_NAME]; /* that the load names */
	size_t resource_count;
	struct dependency *dependencies;
	size_t dependency_count;
	struct load *loads;
	size_t load_count;
	uint32_t slowest_attempts; /* the most attempts that one request can make */
};

/* A file: its variants, and what is said about them together. */
struct scenarios {
	struct scenario *items;
	size_t count;
	struct expectation *expectations;
	size_t expectation_count;
	struct comparison *comparisons;
	size_t comparison_count;
	struct game_day game_day;
};

struct scenario_options {
	const char *config;  /* a configuration file, instead of the scenario's own; NULL: none */
	uint32_t workers;    /* instead of the scenario's; 0: no */
	int views;           /* 0: the scenario's; else a set of 1 << enum view */
	bool brief;          /* with the changes of its "short" */
	const char *variant; /* this one alone; NULL: all */
};

/*
 * Reads a scenario. 0, and *out is to be given to scenarios_free; or -errno, and the problems say why, all of them, each with path, line
 * and column. The configuration is checked too, as rescd would; its problems have the path configuration.…
 */
int scenarios_load(const char *path, const struct scenario_options *options, struct scenarios *out, struct config_problems *problems);
/* The same for text (tests, fuzzing). */
int scenarios_parse(const char *text, size_t size, const struct scenario_options *options, struct scenarios *out,
                    struct config_problems *problems);
void scenarios_free(struct scenarios *scenarios);

const char *fault_name(enum fault_kind kind);
const char *view_name(enum view view); /* "own", "shared" */
/* Is the fault on at that time? (Those by request number: no.) */
bool fault_is_on(const struct fault *fault, int64_t at_ns);
/* When the first fault begins and the last one ends, by time; false: there is none. */
bool scenario_fault_time(const struct scenario *scenario, int64_t *from_ns, int64_t *to_ns);

/* The table of all keys, in Markdown, as it stands in docs/scenarios.md. */
void scenario_print_keys(FILE *out);
/* The same of all figures. */
void scenario_print_figures(FILE *out);

#endif
