/* SPDX-License-Identifier: MIT */
/*
 * Counters, outcomes, refusals and events: each defined once.
 *
 * From these tables come the struct that a program gets (resc_counters), the words in the segment, the JSON of the
 * snapshot, the metrics, the manual and the compile-time checks. A name that is not in a table does not exist.
 *
 * Their numbers stand in segments, where workers and rescd of other versions read them: a new one comes last in its table, and none is
 * ever removed. tests/unit/layout.kept has the numbers that were given.
 *
 * RESC_OUTCOMES(X):  X(NAME, name, text)       how a call ended, as the caller says it to resc_leave
 * RESC_REFUSALS(X):  X(NAME, name, text)       why resc_enter did not admit; each is a counter "refused_<name>"
 * RESC_INJECTED_ANSWERS(X): X(NAME, name, text) what resc_enter says of a call whose outcome an operator has made
 * RESC_ONCE_ANSWERS(X): X(NAME, name, text)    what resc_once_begin says of a key that is known
 * RESC_COUNTERS(X):  X(name, text)             everything else that only ever grows
 * RESC_FALLBACKS(X): X(name, text)             what a caller did instead; each is a counter "fallback_<name>"
 * RESC_EVENTS(X):    X(NAME, name)             what the event ring records
 * RESC_REASONS(X):   X(NAME, name, text)       why a breaker moved
 */
#ifndef RESC_COUNTERS_H
#define RESC_COUNTERS_H

#define RESC_OUTCOMES(X)                                                                                               \
	X(OK, ok, "the dependency answered well")                                                                      \
	X(FAIL, fail, "the dependency failed")                                                                         \
	X(TIMEOUT, timeout, "the dependency did not answer in time (a failure, counted apart)")                        \
	X(IGNORED, ignored, "the dependency answered correctly, but not what was wanted (a 404, a validation error)")  \
	X(CANCELLED, cancelled, "the caller gave up first")

#define RESC_REFUSALS(X)                                                                                               \
	X(OPEN, open, "the breaker is open")                                                                           \
	X(HALF_OPEN, half_open, "the breaker is half-open and all its probes are out")                                 \
	X(FORCED_OPEN, forced_open, "an operator has forced the breaker open")                                         \
	X(FULL, full, "the bulkhead is full")                                                                          \
	X(DEADLINE, deadline, "the deadline is already past")                                                          \
	X(QUEUE_FULL, queue_full, "the bulkhead is full, and so is its queue")                                         \
	X(PRIORITY, priority, "the share of the bulkhead that calls of this priority may use is used up")              \
	X(RATE, rate, "the rate limit is reached")                                                                     \
	X(COST, cost, "the call costs more than the burst of the rate limit, so it can never be admitted")             \
	X(THROTTLED, throttled, "throttled: the dependency accepts too few of the calls")                              \
	X(RETRIES, retries, "too many retries are in flight")

/* Answers of resc_retry. They are not refusals of a call: the call had its outcome already. */
#define RESC_RETRY_REFUSALS(X)                                                                                         \
	X(ATTEMPTS, attempts, "all attempts of the policy are used up")                                                \
	X(BUDGET, budget, "the retry budget is empty")                                                                 \
	X(RETRY_DEADLINE, retry_deadline, "the deadline would pass before the next attempt")                           \
	X(NOT_RETRYABLE, not_retryable, "this outcome is not retried")                                                 \
	X(UPSTREAM, upstream, "the call was already retried upstream; only one layer retries")                         \
	X(PUSHBACK, pushback, "the server said not to retry")                                                          \
	X(RETRY_IN_FLIGHT, retry_in_flight, "too many retries are in flight")

/* Answers of resc_enter that are no refusals: the call was admitted, and has had its outcome from an operator. */
#define RESC_INJECTED_ANSWERS(X)                                                                                       \
	X(INJECTED, injected, "an operator injected a failure: the call counts as one that the dependency failed")     \
	X(INJECTED_TIMEOUT, injected_timeout, "an operator injected a latency that reached the timeout of the attempt")

/* Answers of resc_once_begin beside "first" (0). */
#define RESC_ONCE_ANSWERS(X)                                                                                           \
	X(BUSY, busy, "the key is in progress elsewhere")                                                              \
	X(DONE, done, "the key is done, and its answer is stored")                                                     \
	X(UNKNOWN, unknown, "whoever began the key died in the middle; nobody knows whether it was done")

#define RESC_COUNTERS(X)                                                                                               \
	X(admitted, "calls admitted")                                                                                  \
	X(ended_ok, "admitted calls that ended ok")                                                                    \
	X(ended_fail, "admitted calls that failed, time-outs not included")                                            \
	X(ended_timeout, "admitted calls that timed out")                                                              \
	X(ended_ignored, "admitted calls whose outcome does not count (ignored)")                                      \
	X(ended_cancelled, "admitted calls that their caller gave up")                                                 \
	X(slow, "calls that took longer than slow_call")                                                               \
	X(stale, "results that came too late to count: the breaker had moved on")                                      \
	X(probes, "probes admitted")                                                                                   \
	X(probes_reclaimed, "probe leases taken back from dead or overdue owners")                                     \
	X(permits_reclaimed, "permits taken back from dead owners")                                                    \
	X(untracked, "calls admitted without a permit cell because none was left (no bulkhead limit set)")             \
	X(opened, "times the breaker opened")                                                                          \
	X(half_opened, "times the breaker became half-open")                                                           \
	X(closed, "times the breaker closed")                                                                          \
	X(retries, "retries granted")                                                                                  \
	X(retry_attempts, "retries refused: attempts used up")                                                         \
	X(retry_budget, "retries refused: budget empty")                                                               \
	X(retry_deadline, "retries refused: deadline too near")                                                        \
	X(retry_not_retryable, "retries refused: outcome not retryable")                                               \
	X(retry_upstream, "retries refused: already retried upstream")                                                 \
	X(retry_pushback, "retries refused: the server said not to")                                                   \
	X(retry_in_flight, "retries refused: too many in flight")                                                      \
	X(waited, "calls admitted after waiting for a permit or for the rate limit")                                   \
	X(would_open, "calls that a breaker in shadow mode would have refused (open)")                                 \
	X(would_half_open, "calls that a breaker in shadow mode would have refused (half-open)")                       \
	X(would_full, "calls that a bulkhead in shadow mode would have refused (full)")                                \
	X(would_priority, "calls that a bulkhead in shadow mode would have refused (priority)")                        \
	X(would_rate, "calls that a rate limit in shadow mode would have refused")                                     \
	X(would_throttle, "calls that a throttle in shadow mode would have refused")                                   \
	X(would_timeout, "calls that took longer than the attempt timeout, which is in shadow mode")                   \
	X(would_budget, "retries a budget in shadow mode would have refused: tokens when asked, cap at entry")         \
	X(would_once, "repeated keys that idempotency in shadow mode would have held back")                            \
	X(once_first, "idempotency keys begun")                                                                        \
	X(once_done, "idempotency keys done, with their answer stored")                                                \
	X(once_replayed, "repeated keys that got the stored answer")                                                   \
	X(once_busy, "repeated keys that were in progress elsewhere")                                                  \
	X(once_unknown, "repeated keys whose first caller died in the middle")                                         \
	X(once_full, "keys refused because the table was full")                                                        \
	X(injected_failures, "admitted calls that drew an injected failure")                                            \
	X(injected_delays, "admitted calls that drew an injected latency")

#define RESC_FALLBACKS(X)                                                                                              \
	X(stale, "an older answer")                                                                                    \
	X(cache, "an answer from a cache")                                                                             \
	X(default, "a fixed answer")                                                                                   \
	X(empty, "an empty answer")                                                                                    \
	X(alternative, "another dependency")                                                                           \
	X(other, "anything else")

#define RESC_EVENTS(X)                                                                                                 \
	X(BREAKER, breaker)                                                                                            \
	X(FORCED, forced)                                                                                              \
	X(RELEASED, released)                                                                                          \
	X(EXPIRED, expired)                                                                                            \
	X(RESET, reset)                                                                                                \
	X(RELOAD, reload)                                                                                              \
	X(RELOAD_FAILED, reload_failed)                                                                                \
	X(REAPED, reaped)                                                                                              \
	X(DAEMON_START, daemon_start)                                                                                  \
	X(DAEMON_STOP, daemon_stop)                                                                                    \
	X(SUPERSEDED, superseded)                                                                                      \
	X(INJECTED, injected)                                                                                          \
	X(INJECTION_ENDED, injection_ended)

#define RESC_REASONS(X)                                                                                                \
	X(NONE, none, "nothing happened yet")                                                                          \
	X(CONSECUTIVE, consecutive, "consecutive failures reached the limit")                                          \
	X(FAILURE_RATE, failure_rate, "the failure rate reached the threshold")                                        \
	X(SLOW_RATE, slow_rate, "the slow-call rate reached the threshold")                                            \
	X(COOLDOWN_OVER, cooldown_over, "the cooldown was over and a call came")                                       \
	X(PROBE_FAILED, probe_failed, "a probe failed")                                                                \
	X(PROBE_SLOW, probe_slow, "a probe was too slow")                                                              \
	X(PROBES_OK, probes_ok, "enough probes succeeded")                                                             \
	X(OVERRIDE_OVER, override_over, "an override ended")                                                           \
	X(RESET, reset, "an operator reset it")

#endif
