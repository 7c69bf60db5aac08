/* SPDX-License-Identifier: MIT */
/*
 * libresc: one view of every dependency, for all the worker processes of a host.
 *
 *	resc *host = resc_open(NULL, &err);
 *	resc_resource *pay = resc_lookup(host, "payments", &err);
 *	resc_ticket ticket;
 *	int r = resc_enter(pay, NULL, &ticket);
 *	if (r != 0)
 *		return price_from_cache(r);
 *	int rc = charge(ticket.timeout_ms);
 *	resc_leave(&ticket, rc == 0 ? RESC_OK : RESC_FAIL);
 *
 * What a function returns:
 *	0	done, or yes;
 *	> 0	an answer that the caller must handle: RESC_E_OPEN, RESC_E_FULL, ... (a refusal is not a failure of the
 *		dependency), or RESC_STALE;
 *	< 0	something is broken: -errno. resc_text() has words for all of them.
 *
 * Who may call: every function may be called from any thread, also with several calls in flight in one thread.
 * After fork() the child is a new worker: it may go on with the handles of its parent, registers by itself on its first
 * call, and owns nothing of its parent's; leaving a ticket of the parent in the child is an error (-ESTALE) that changes
 * nothing. No function may be called from a signal handler, or between vfork() and exec.
 *
 * Times are nanoseconds on CLOCK_MONOTONIC unless a name says _ms.
 */
#ifndef RESC_H
#define RESC_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define RESC_VERSION_MAJOR 0
#define RESC_VERSION_MINOR 1
#define RESC_VERSION_PATCH 0
#define RESC_VERSION_STRING "0.1.0"

/* The longest name of a resource or an instance, without the NUL. Letters, digits, '.', '_', ':' and '-'. */
#define RESC_NAME_MAX 63

/* A host's shared view. One a process is enough; made by resc_open. */
typedef struct resc resc;
/* A guarded resource. Stable until resc_close, also when the segment is replaced by a larger or newer one. */
typedef struct resc_resource resc_resource;

/* Filled by functions that take one. May be NULL. code is 0 or a negative errno. */
struct resc_error {
	int code;
	char text[256];
};

/* How a call ended. */
enum resc_outcome {
	RESC_OK = 0,        /* the dependency answered well */
	RESC_FAIL = 1,      /* the dependency failed */
	RESC_TIMEOUT = 2,   /* it did not answer in time: a failure, counted apart */
	RESC_IGNORED = 3,   /* it answered correctly, but not what was wanted: a 404, a validation error */
	RESC_CANCELLED = 4, /* the caller gave up first */
};

/* Answers greater than 0. The numbers are part of the ABI. */
enum resc_answer {
	RESC_E_OPEN = 1,        /* the breaker is open */
	RESC_E_HALF_OPEN = 2,   /* half-open, and all its probes are out */
	RESC_E_FORCED_OPEN = 3, /* forced open by an operator */
	RESC_E_FULL = 4,        /* the bulkhead is full */
	RESC_E_DEADLINE = 5,    /* the deadline is already past */
	RESC_E_QUEUE_FULL = 6,  /* the bulkhead is full, and so is its queue */
	RESC_E_PRIORITY = 7,    /* the share of the bulkhead that calls of this priority may use is used up */
	RESC_E_RATE = 8,        /* the rate limit is reached */
	RESC_E_COST = 9,        /* the call costs more than the burst of the rate limit: it can never be admitted */
	RESC_E_THROTTLED = 10,  /* client-side throttle: the dependency accepts too few of the calls */
	RESC_E_RETRIES = 11,    /* this call is a retry, and too many retries are in flight */

	RESC_E_INJECTED = 32,         /* resc_enter: admitted, and failed on purpose: an operator rehearses. As a call with RESC_FAIL */
	RESC_E_INJECTED_TIMEOUT = 33, /* the same, by a latency that reached the timeout. As a call with RESC_TIMEOUT */

	RESC_E_ATTEMPTS = 64,       /* resc_retry: all attempts used up */
	RESC_E_BUDGET = 65,         /* resc_retry: the retry budget is empty */
	RESC_E_RETRY_DEADLINE = 66, /* resc_retry: the deadline would pass before the next attempt */
	RESC_E_NOT_RETRYABLE = 67,  /* resc_retry: this outcome is not retried */
	RESC_E_UPSTREAM = 68,       /* resc_retry: already retried upstream */
	RESC_E_PUSHBACK = 69,       /* resc_retry: the server said not to retry */
	RESC_E_RETRY_IN_FLIGHT = 70, /* resc_retry: too many retries are in flight */

	RESC_STALE = 128, /* resc_leave: done, but the result came too late to count */

	RESC_ONCE_BUSY = 160,    /* resc_once_begin: the key is in progress elsewhere */
	RESC_ONCE_DONE = 161,    /* resc_once_begin: the key is done; the stored answer is in the ticket */
	RESC_ONCE_UNKNOWN = 162, /* resc_once_begin: whoever began the key died in the middle; nobody knows whether it was done */
};

/* No deadline: the value of an infinite one. */
#define RESC_NO_DEADLINE INT64_MAX

/* resc_options.flags and resc_retry_plan.flags */
#define RESC_RETRIED_UPSTREAM 1u /* this request is itself a retry of somebody upstream, so it is not retried here again */
#define RESC_RETRY            2u /* options only: this attempt is a retry: it counts as one in flight, and makes no deposit of a request */
#define RESC_NOT_IDEMPOTENT   4u /* plan only: a failed attempt may have had its effect, so it is never repeated */

/* Who is refused first when a bulkhead fills up: see its keys "critical", "normal" and "low". */
enum resc_priority { RESC_NORMAL = 0, RESC_CRITICAL = 1, RESC_LOW = 2 };

/* What a caller may say about a call. NULL is the same as RESC_OPTIONS_INIT. */
typedef struct resc_options {
	int64_t deadline_ns; /* absolute; RESC_NO_DEADLINE for none. Nobody waits for a permit or a rate beyond it */
	uint32_t flags;      /* RESC_RETRIED_UPSTREAM | RESC_RETRY, or 0 */
	uint32_t priority;   /* enum resc_priority */
	uint32_t cost;       /* in tokens of the rate limit; 0 is 1 */
	uint32_t reserved;   /* 0 */
} resc_options;

#define RESC_OPTIONS_INIT                                                                                              \
	{                                                                                                              \
		RESC_NO_DEADLINE, 0, RESC_NORMAL, 0, 0                                                                 \
	}

/*
 * An admitted call, from resc_enter to resc_leave. It belongs to the caller, who may keep it anywhere, copy it or hand it
 * to another thread of the same process; it can be left once. Only timeout_ms, retry_after_ms and probe are for the caller to read.
 */
typedef struct resc_ticket {
	union {
		int64_t timeout_ms;     /* admitted: how long this attempt may take, from now: the policy's timeout for an attempt (or for
					   a probe) and the deadline, whichever is shorter; at least 1; -1 where neither limits it */
		int64_t retry_after_ms; /* refused: when it is worth to come back, as far as that is known, for a Retry-After of one's
					   own: at least 0; -1: not known */
	};
	bool probe;         /* this call is a trial of a half-open breaker */
	uint8_t shape;      /* the rest is the library's */
	uint16_t breaker_generation;
	uint32_t permit_cell;
	uint64_t permit;
	uint64_t probe_lease;
	uint64_t segment;
	uint64_t started_ns;
	resc_resource *resource;
	uint64_t seal;
} resc_ticket;

/* ---------------------------------------------------------------- opening */

/*
 * Opens the view of an instance. NULL: the instance named by the environment variable RESC_INSTANCE, else "default".
 *
 * Where there is no segment yet, or it cannot be used, the view is *private*: the same code on a segment of this process
 * alone, with the documented defaults. The reason is in resc_status, and is written to stderr once. A private view joins
 * the host's segment by itself when that appears (it looks at most once a second, during a call).
 *
 * Returns NULL only for a bad instance name or when memory is out; err says which. Costs some 100 us. Opening the same
 * instance again gives an independent view, which is a worker of its own.
 */
resc *resc_open(const char *instance, struct resc_error *err);

/*
 * Closes the view and frees its handles. No thread may be in a call of this view, and none of its tickets may be used
 * later: permits that are still held are given back. NULL is ignored.
 */
void resc_close(resc *host);

enum resc_mode { RESC_SHARED = 0, RESC_PRIVATE = 1 };

struct resc_status {
	enum resc_mode mode;
	uint64_t generation;             /* of the segment; random, never reused; 0 in private mode */
	uint64_t worker;                 /* the number of this worker's life in the segment */
	char instance[RESC_NAME_MAX + 1];
	char reason[256];                /* private mode: why. Otherwise "" */
};

/* Says what the view is attached to. Thread-safe; takes a lock of this process; not for the call path. 0 or -EINVAL. */
int resc_status(resc *host, struct resc_status *out);

/*
 * Finds a resource by name. The handle is the same for the same name, stable, and freed by resc_close.
 *
 * A name that the configuration does not have may match one of its patterns ("shard-*"): then rescd makes the resource, which takes some
 * 100 us, and at most a second and a half where rescd does not answer. When nobody calls it for long it is retired; the handle stays good,
 * and its next call has it made again.
 *
 * Errors (NULL, with err): -EINVAL bad name, -ENOENT the configuration does not have it and no pattern matches, -ENOSPC there is no room for
 * one that is made, -EAGAIN rescd has to make it and does not answer, -ENOMEM. Who is refused is refused for a second without a new question.
 * Takes a lock of this process, but not while it waits; look up once, at start, not for each call.
 */
resc_resource *resc_lookup(resc *host, const char *name, struct resc_error *err);

/* The name of a resource. Valid as long as the handle. */
const char *resc_name(const resc_resource *resource);

/* ---------------------------------------------------------------- a call */

/*
 * Asks for admission of one attempt: all guards of the resource, or none. On 0 the ticket is valid and must be left.
 * On a refusal (> 0) nothing is held, and the ticket is zeroed but for retry_after_ms. On an error (< 0) the ticket is zeroed.
 * RESC_E_INJECTED and RESC_E_INJECTED_TIMEOUT look like refusals and are none: the call was admitted, and has been left as one that failed,
 * or timed out, because an operator injects faults here (resctl inject; only where the configuration allows it). Nothing is held. Who
 * retries asks resc_retry as after an attempt with RESC_FAIL, or RESC_TIMEOUT; who does not has nothing else to do than on a refusal.
 *
 * Guards, in this order: the deadline is past (RESC_E_DEADLINE), an override (RESC_E_FORCED_OPEN), the breaker (RESC_E_OPEN), the
 * client-side throttle (RESC_E_THROTTLED), the bulkhead (RESC_E_PRIORITY, RESC_E_FULL, RESC_E_QUEUE_FULL, RESC_E_RETRIES), the rate
 * limit (RESC_E_COST, RESC_E_RATE), a probe lease of a half-open breaker (RESC_E_HALF_OPEN). A guard in shadow mode only counts.
 *
 * Waits, in a system call, only where the policy has a max_wait for the bulkhead or the rate limit, and never beyond the deadline; what
 * it waits with is given back by its death. Who waits for a permit comes in by priority and then in the order of arrival, whichever process
 * it is of; who is stopped is passed. The breaker is looked at again after a wait. And it sleeps, the ticket in hand, where an
 * operator injects a latency: at most a minute, never beyond the attempt's timeout or the deadline, and timeout_ms is shortened by it. A
 * worker with an event loop stands still for that time: leave "injection" off there, or enter in a thread.
 *
 * Errors: -EINVAL (NULL, or reserved fields set), -ENOENT (the configuration no longer has this resource); and, only where the view has to be
 * made anew (after fork(), a reload or a new segment), -ENOMEM, and -EAGAIN when the new segment cannot be used yet. Where the resource was
 * made from a pattern and retired since, rescd is asked to make it again: -ENOSPC when there is no room, -EAGAIN when it does not answer within
 * 50 ms; once a second, and at once in between. So does every call below that takes a resource.
 * Cost: tens of nanoseconds, no system call and no lock; once a second, one stat() to see that the segment is still there.
 * Also once: after fork() and when the segment was replaced (some 100 us).
 */
int resc_enter(resc_resource *resource, const resc_options *options, resc_ticket *ticket);

/*
 * Reports the outcome and gives back what the ticket holds. The ticket is zeroed.
 *
 * Returns 0; RESC_STALE when everything was given back but the result came too late to count for the breaker (it has moved
 * on, or the probe's lease was taken over); or an error that changed nothing: -EINVAL (not a ticket, zeroed, damaged, or
 * an unknown outcome; the same variable left a second time, because it is zeroed by then), -ESTALE (a copy of one that was left, or a ticket
 * of a parent process or an earlier life). A call that began in private mode and ends after its view has joined the host is RESC_STALE.
 */
int resc_leave(resc_ticket *ticket, enum resc_outcome outcome);

/*
 * As resc_leave, with the dependency's own word on when to come back (a Retry-After header, in milliseconds; below 0: it said nothing).
 * Where this very result opens the breaker, the next probe is due after that time instead of the cooldown, at most after the
 * policy's retry_after_max (which may switch this off), lengthened by the jitter. Otherwise it changes nothing: late failures never
 * move a due time.
 */
int resc_leave_after(resc_ticket *ticket, enum resc_outcome outcome, int64_t retry_after_ms);
/*
 * Reads the value of a Retry-After header: seconds ("120"), or an HTTP date, which is compared with the wall clock of this host (a date
 * in the past is 0). 0 with *ms, or -EINVAL. Thread-safe, does not depend on the locale.
 */
int resc_retry_after_parse(const char *text, int64_t *ms);

/* ---------------------------------------------------------------- retries */

/* resc_retry_plan.pushback_ms: the server said nothing. */
#define RESC_NO_PUSHBACK INT64_MIN

/* A request and its attempts. Start with RESC_RETRY_INIT; one for each request; not shared between threads. */
typedef struct resc_retry_plan {
	uint32_t attempts;        /* attempts that ended so far; counted by resc_retry */
	uint32_t flags;           /* RESC_RETRIED_UPSTREAM | RESC_NOT_IDEMPOTENT, or 0 */
	int64_t deadline_ns;      /* of the whole request; absolute */
	int64_t previous_wait_ns; /* the library's */
	int64_t pushback_ms;      /* the server's word on the attempt that has just ended (grpc-retry-pushback-ms, Retry-After): set it
				     before resc_retry, which uses it once. At least 0: wait exactly that long; below 0: do not retry */
} resc_retry_plan;

#define RESC_RETRY_INIT                                                                                                \
	{                                                                                                              \
		0, 0, RESC_NO_DEADLINE, 0, RESC_NO_PUSHBACK                                                            \
	}

/*
 * An attempt has just ended with this outcome: shall there be another one? Ask after, or before, resc_leave: the answer is
 * the same. 0: yes, after *wait_ns; the host's retry budget was charged. Otherwise RESC_E_NOT_RETRYABLE, RESC_E_UPSTREAM,
 * RESC_E_PUSHBACK, RESC_E_ATTEMPTS, RESC_E_RETRY_DEADLINE, RESC_E_RETRY_IN_FLIGHT or RESC_E_BUDGET, and nothing was taken (but with a
 * threshold each failure is charged, as gRPC does); or -EINVAL, -ENOENT. Enter the next attempt with RESC_RETRY in its options.
 * In shadow mode would_budget counts here what the tokens would have refused. What the cap on retries in flight would have refused is
 * counted by resc_enter alone.
 *
 * Backoff and jitter: "Exponential Backoff And Jitter" (AWS Architecture Blog, 2015); the budget is a token bucket as in
 * Finagle's RetryBudget. Does not sleep. Cost: as a call, plus a random number.
 */
int resc_retry(resc_resource *resource, resc_retry_plan *plan, enum resc_outcome outcome, int64_t *wait_ns);

/*
 * Does one attempt: called by resc_run, in the calling thread. timeout_ms as in resc_ticket; attempt counts from 1.
 */
typedef enum resc_outcome (*resc_attempt_fn)(void *arg, int64_t timeout_ms, unsigned attempt);

/*
 * A whole request in one call: admission, the attempt, its outcome, and further attempts with backoff inside the deadline
 * (options->deadline_ns or the policy's total timeout, whichever comes first). Sleeps between attempts.
 *
 * Returns 0 when an attempt ended with RESC_OK, RESC_IGNORED or RESC_CANCELLED; else the refusal that ended it: of admission
 * (RESC_E_OPEN, ...) or of a further attempt (RESC_E_ATTEMPTS, ...); or -errno. *last (may be NULL) gets the last outcome,
 * or -1 when no attempt was made. An attempt that an operator's injection made fail is one with that outcome; the function is not called.
 */
int resc_run(resc_resource *resource, resc_attempt_fn attempt, void *arg, const resc_options *options, int *last);

/* ---------------------------------------------------------------- idempotency */

#define RESC_ONCE_KEY_MAX    255 /* bytes of a key */
#define RESC_ONCE_ANSWER_MAX 512 /* bytes of a stored answer */

/* A key that is in work or unknown, or a stored answer. The caller's; size and answer are for the caller to read, the rest is the library's. */
typedef struct resc_once {
	resc_resource *resource;
	uint64_t segment;
	uint64_t claim;
	uint32_t slot;
	uint32_t size; /* bytes of the answer */
	uint64_t seal;
	unsigned char answer[RESC_ONCE_ANSWER_MAX];
} resc_once;

/*
 * Says whether this process is the first of the host to work on a key (1 to RESC_ONCE_KEY_MAX bytes, any bytes; keys of different
 * resources are different). The key is recorded before this returns, so that work that is repeated, by whatever worker, is noticed
 * also while the first is still at it. Needs "once" in the policy of the resource.
 *
 *	0			first: do the work, then resc_once_done (or resc_once_abandon, when nothing was done)
 *	RESC_ONCE_DONE		it was done: once->answer, once->size
 *	RESC_ONCE_BUSY		it is in progress elsewhere, still after the policy's max_wait (cut to the deadline of the options)
 *	RESC_ONCE_UNKNOWN	who began it died in the middle (policy on_death "unknown"; with "free" the key is free again). Whoever
 *				finds out what became of the work (the dependency knows) may settle the key for everybody with
 *				this ticket: resc_once_done, or resc_once_abandon when nothing was done. Of several one succeeds
 *
 * Errors, and then nothing was recorded: -EINVAL, -ENOENT as resc_enter; -ENOTSUP the policy has no "once"; -ENOSPC the table is full of
 * keys that have not expired: do not do the work, or do it knowing that a repetition will not be noticed; -EAGAIN as resc_enter.
 * Cost: some 200 ns; a system call only to wait. Any thread; not in signal handlers. The ticket of a parent is not the child's
 * (but to settle an unknown key any copy serves).
 */
int resc_once_begin(resc_resource *resource, const void *key, size_t key_size, const resc_options *options, resc_once *once);
/*
 * Stores the answer (at most RESC_ONCE_ANSWER_MAX bytes; may be empty) for whoever repeats the key until it expires. 0; -EINVAL not the ticket of
 * a key in work or unknown, or too large an answer (and the key stays as it is); -ESTALE it is not this process's any more, or the unknown
 * key is not as it was (settled by somebody else, begun anew after its ttl, or the segment was replaced): begin again to see.
 */
int resc_once_done(resc_once *once, const void *answer, size_t size);
/* Nothing was done, or it was undone: the key is free again at once. 0, -EINVAL, -ESTALE. */
int resc_once_abandon(resc_once *once);

/* ---------------------------------------------------------------- deadlines */

/* Now, on the clock of all deadlines. */
int64_t resc_now_ns(void);
/* A deadline this many milliseconds from now. Negative counts as 0; too large saturates to RESC_NO_DEADLINE. */
int64_t resc_deadline_after_ms(int64_t ms);
/* A child's deadline: this many milliseconds from now, but never past the parent's. */
int64_t resc_deadline_within_ms(int64_t parent_ns, int64_t ms);
/* Milliseconds left, rounded up so that a live deadline is never 0; 0 when past; -1 when there is none. */
int64_t resc_deadline_left_ms(int64_t deadline_ns);
/* Reads a header value: a decimal number of milliseconds from now ("250"), or "infinite". 0, or -EINVAL. */
int resc_deadline_parse(const char *text, int64_t *deadline_ns);
/* Writes what is left as a header value, NUL-terminated. The length, or -ENOSPC when it does not fit. */
int resc_deadline_format(int64_t deadline_ns, char *text, size_t size);
/*
 * The same for the header grpc-timeout: at most 8 digits and a unit, H M S m u n ("250m" is 250 ms; gRPC over HTTP/2, PROTOCOL-HTTP2).
 * Reading is strict: anything else is -EINVAL. Writing uses the finest unit that fits, rounded up; without a deadline there is
 * nothing to send, and the text is "" (length 0).
 */
int resc_deadline_parse_grpc(const char *text, int64_t *deadline_ns);
int resc_deadline_format_grpc(int64_t deadline_ns, char *text, size_t size);

/* ---------------------------------------------------------------- what else is counted, and what can be asked */

/*
 * Counts a fallback: the caller answered without the dependency. A fallback hides an outage, so it should be seen.
 * kind: "stale", "cache", "default", "empty", "alternative", or anything else (counted as "other"). 0, -EINVAL, -ENOENT.
 */
int resc_fallback(resc_resource *resource, const char *kind);

enum resc_breaker_state { RESC_CLOSED = 0, RESC_BREAKER_OPEN = 1, RESC_HALF_OPEN = 2 };

/* A resource as it is now. Reading moves nothing. */
struct resc_state {
	enum resc_breaker_state breaker;
	bool probe_due;          /* open, and the cooldown is over: the next call will be a probe */
	uint16_t generation;     /* grows by one with each transition of the breaker */
	uint32_t probes_out;
	uint32_t in_flight;      /* calls that are inside now, on the whole host */
	uint32_t limit;          /* of the bulkhead; 0: none */
	int64_t due_ms;          /* open: milliseconds until a probe is due (0: now). Otherwise -1 */
	bool forced;             /* an override is in force */
	double retry_tokens;     /* -1: no budget */
	uint32_t waiting;        /* calls that wait for a permit */
	uint32_t retries;        /* of in_flight: those that entered with RESC_RETRY */
	double rate_tokens;      /* calls that the rate limit would admit at once; -1: no rate limit */
	double throttle;         /* share of the calls that the client-side throttle refuses; -1: none */
};

/* 0, -EINVAL, -ENOENT. Cost: a pass over the permits. */
int resc_state(resc_resource *resource, struct resc_state *out);

/* The policy's time limits, for a caller that sets its own: milliseconds, -1 where there is none, or only one in shadow mode. */
struct resc_timeouts {
	int64_t attempt_ms; /* one attempt: also in each ticket, there cut to the deadline */
	int64_t connect_ms; /* connecting, a part of an attempt */
	int64_t total_ms;   /* a request with all its attempts: resc_run keeps it by itself */
	int64_t probe_ms;   /* one attempt that is a probe: in the ticket of one, instead of attempt_ms */
};

/* 0, -EINVAL, -ENOENT. Cost: a few nanoseconds. */
int resc_timeouts(resc_resource *resource, struct resc_timeouts *out);

/*
 * The host's counters of a resource, summed over all workers. The fields are the names of RESC_COUNTERS and the like. Later versions add
 * fields at the end, and nowhere else.
 */
struct resc_counters {
	uint64_t enters; /* = admitted + all refused_* */
	uint64_t admitted;
	uint64_t ended_ok;
	uint64_t ended_fail;
	uint64_t ended_timeout;
	uint64_t ended_ignored;
	uint64_t ended_cancelled;
	uint64_t slow;
	uint64_t stale;
	uint64_t probes;
	uint64_t probes_reclaimed;
	uint64_t permits_reclaimed;
	uint64_t untracked;
	uint64_t opened;
	uint64_t half_opened;
	uint64_t closed;
	uint64_t retries;
	uint64_t retry_attempts;
	uint64_t retry_budget;
	uint64_t retry_deadline;
	uint64_t retry_not_retryable;
	uint64_t retry_upstream;
	uint64_t retry_pushback;
	uint64_t retry_in_flight;
	uint64_t waited;
	uint64_t would_open;
	uint64_t would_half_open;
	uint64_t would_full;
	uint64_t would_priority;
	uint64_t would_rate;
	uint64_t would_throttle;
	uint64_t would_timeout;
	uint64_t would_budget;
	uint64_t would_once;
	uint64_t once_first;
	uint64_t once_done;
	uint64_t once_replayed;
	uint64_t once_busy;
	uint64_t once_unknown;
	uint64_t once_full;
	uint64_t refused_open;
	uint64_t refused_half_open;
	uint64_t refused_forced_open;
	uint64_t refused_full;
	uint64_t refused_deadline;
	uint64_t refused_queue_full;
	uint64_t refused_priority;
	uint64_t refused_rate;
	uint64_t refused_cost;
	uint64_t refused_throttled;
	uint64_t refused_retries;
	uint64_t fallback_stale;
	uint64_t fallback_cache;
	uint64_t fallback_default;
	uint64_t fallback_empty;
	uint64_t fallback_alternative;
	uint64_t fallback_other;
	uint64_t injected_failures;
	uint64_t injected_delays;
};

/*
 * size: of the structure as the program knows it. A program that was built with another version than the library that runs gets the counters
 * that both know, and 0 in the others. 0, -EINVAL, -ENOENT. Cost: a few microseconds.
 */
int resc_counters_sized(resc_resource *resource, struct resc_counters *out, size_t size);
static inline int resc_counters(resc_resource *resource, struct resc_counters *out)
{
	return resc_counters_sized(resource, out, sizeof *out);
}

/* One sentence for any value that a function here returns. Static; never NULL. Safe everywhere, signal handlers included. */
const char *resc_text(int result);
/* The short name of an answer as the snapshot and the metrics spell it: "open", "full", ... ; "ok" for 0, "error" for < 0. */
const char *resc_answer_name(int result);
/* The version of the library that runs: "0.1.0". */
const char *resc_version(void);

/*
 * Fixes the sequence of random numbers (jitter) of the calling thread, for tests. By default each thread of each process
 * has its own, seeded by the kernel; a forked child gets a new one.
 */
void resc_seed(uint64_t seed);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif
