/* SPDX-License-Identifier: MIT */
/*
 * The table of figures.
 *
 *	X(name, OF, UNIT, asked, measure, which, text, definition)
 *
 * asked: what can be said of it besides OF: NOT (nothing: it is of the whole take), TIME (from, to), NTH (that, and nth), WIDTH (time and
 * width), SPAN (width alone).
 * measure(inquiry, which) computes it: see figures_measure.h.
 */
#ifndef REHEARSE_FIGURES_TABLE_H
#define REHEARSE_FIGURES_TABLE_H

#define REQUEST_FIGURES(X)                                                                                                                 \
	X(offered, LOAD, COUNT, TIME, figure_requests, REQUESTS_OFFERED, "requests offered", "requests that arrived")                      \
	X(served, LOAD, COUNT, TIME, figure_requests, SERVED_FRESH, "requests served fresh",                                               \
	  "requests that got an answer of the dependency")                                                                                 \
	X(fallback, LOAD, COUNT, TIME, figure_requests, SERVED_FALLBACK, "requests answered by a fallback",                                \
	  "requests that got an answer without the dependency")                                                                            \
	X(failed, LOAD, COUNT, TIME, figure_requests, SERVED_FAILED, "requests failed", "requests that got an error")                      \
	X(late, LOAD, COUNT, TIME, figure_requests, SERVED_LATE, "requests too late",                                                      \
	  "requests that got nothing before their client's patience ended")                                                                \
	X(rejected, LOAD, COUNT, TIME, figure_requests, SERVED_REJECTED, "requests rejected",                                              \
	  "requests that found no room in the backlog; no worker ever had them")                                                           \
	X(stored, LOAD, COUNT, TIME, figure_requests, SERVED_STORED, "requests answered from the store",                                   \
	  "requests that got the stored answer of their idempotency key")                                                                  \
	X(unfinished, LOAD, COUNT, TIME, figure_requests, SERVED_NOT_YET, "requests unfinished",                                           \
	  "requests that had arrived and had not ended when the take did")                                                                 \
	X(success_share, LOAD, SHARE, TIME, figure_request_share, SHARE_SUCCESS, "share of requests served",                               \
	  "(served + stored) / offered")                                                                                                   \
	X(answered_share, LOAD, SHARE, TIME, figure_request_share, SHARE_ANSWERED, "share of requests answered",                           \
	  "(served + stored + fallback) / offered")                                                                                        \
	X(error_share, LOAD, SHARE, TIME, figure_request_share, SHARE_ERROR, "share of requests not answered", "1 - answered_share")       \
	X(latency_mean, LOAD, MS, TIME, figure_latency, STAT_MEAN, "mean latency",                                                         \
	  "from arrival to end, of requests that ended and were not rejected")                                                             \
	X(latency_p50, LOAD, MS, TIME, figure_latency, STAT_P50, "median latency",                                                         \
	  "of these times the least that half of them do not exceed")                                                                      \
	X(latency_p95, LOAD, MS, TIME, figure_latency, STAT_P95, "p95 latency", "the same for 95 % of them")                               \
	X(latency_p99, LOAD, MS, TIME, figure_latency, STAT_P99, "p99 latency", "the same for 99 % of them")                               \
	X(latency_max, LOAD, MS, TIME, figure_latency, STAT_MAX, "longest latency", "the longest of these times")                          \
	X(served_latency_p50, LOAD, MS, TIME, figure_served_latency, STAT_P50, "median latency of those served",                           \
	  "from arrival to end, of requests that were served fresh or from the store: the least that half of them do not exceed")          \
	X(served_latency_p95, LOAD, MS, TIME, figure_served_latency, STAT_P95, "p95 latency of those served", "the same for 95 % of them") \
	X(served_latency_p99, LOAD, MS, TIME, figure_served_latency, STAT_P99, "p99 latency of those served", "the same for 99 % of them") \
	X(served_latency_max, LOAD, MS, TIME, figure_served_latency, STAT_MAX, "longest latency of those served",                          \
	  "the longest of these times")                                                                                                    \
	X(wait_mean, LOAD, MS, TIME, figure_wait, STAT_MEAN, "mean wait",                                                                  \
	  "from arrival to the first admission by a resource (to the end where there was none), of requests that ended and were not "      \
	  "rejected")                                                                                                                      \
	X(wait_p50, LOAD, MS, TIME, figure_wait, STAT_P50, "median wait", "of these times the least that half of them do not exceed")      \
	X(wait_p95, LOAD, MS, TIME, figure_wait, STAT_P95, "p95 wait", "the same for 95 % of them")                                        \
	X(wait_max, LOAD, MS, TIME, figure_wait, STAT_MAX, "longest wait", "the longest of these times")                                   \
	X(attempts_per_request, LOAD, RATIO, TIME, figure_attempts_per_request, 0, "attempts a request",                                   \
	  "attempts that were admitted, at all layers, by request; of requests that ended and had at least one")                           \
	X(attempts_per_request_worst, LOAD, RATIO, TIME, figure_attempts_per_request, 1, "attempts a request, in the worst second",        \
	  "the same of the requests that arrived in one second: the largest; seconds are counted from `from`")

#define ATTEMPT_FIGURES(X)                                                                                                                 \
	X(attempts, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_ADMITTED, "attempts", "attempts that were admitted, and ended")       \
	X(oks, RESOURCE, COUNT, TIME, figure_outcomes, RESC_OK, "attempts that went well", "of these: ended ok")                           \
	X(failures, RESOURCE, COUNT, TIME, figure_outcomes, RESC_FAIL, "attempts failed", "of these: failed; time-outs are not included")  \
	X(timeouts, RESOURCE, COUNT, TIME, figure_outcomes, RESC_TIMEOUT, "time-outs", "of these: timed out")                              \
	X(ignored, RESOURCE, COUNT, TIME, figure_outcomes, RESC_IGNORED, "attempts ignored",                                               \
	  "of these: ended with an outcome that does "                                                                                     \
	  "not count")                                                                                                                     \
	X(cancelled, RESOURCE, COUNT, TIME, figure_outcomes, RESC_CANCELLED, "attempts cancelled", "of these: given up by their caller")   \
	X(retries, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_RETRIES, "retries", "of these: second and later ones of a request")    \
	X(retries_per_second_worst, RESOURCE, COUNT, TIME, figure_retries_worst, 0, "retries in the worst second",                         \
	  "the most retries that were asked for in one second; seconds are counted from `from`")                                           \
	X(injected, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_INJECTED, "failures injected",                                        \
	  "attempts whose failure was resctl inject's")                                                                                    \
	X(probes, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_PROBES, "probes", "attempts that were trials of a half-open breaker")   \
	X(probes_in_fault, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_PROBES_IN_FAULT, "probes while the dependency failed",         \
	  "of these: sent while a fault was on")                                                                                           \
	X(failing_calls, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_FAILING, "failing calls",                                        \
	  "attempts that were sent while a fault was on, and failed or timed out")                                                         \
	X(failing_before_stop, RESOURCE, COUNT, TIME, figure_failing_before_stop, 0, "failing calls before the last worker stopped",       \
	  "failing calls, probes not included, that were admitted before the last worker was refused by its breaker for the first time "   \
	  "in the fault; of the workers that asked in the fault. All of them when one was never refused")                                  \
	X(attempt_latency_p50, RESOURCE, MS, TIME, figure_attempt_latency, STAT_P50, "median response time",                               \
	  "from admission to end, of attempts that ended ok: the least that half of them do not exceed")                                   \
	X(attempt_latency_p99, RESOURCE, MS, TIME, figure_attempt_latency, STAT_P99, "p99 response time", "the same for 99 % of them")     \
	X(attempt_latency_p999, RESOURCE, MS, TIME, figure_attempt_latency, STAT_P999, "p99.9 response time",                              \
	  "the same for 99.9 % of them")                                                                                                   \
	X(attempt_cut_off, RESOURCE, SHARE, WIDTH, figure_attempt_cut_off, 0, "share of good answers that were slower",                    \
	  "the share of attempts that ended ok, and took longer than `width`")                                                             \
	X(retries_busiest_slot, RESOURCE, COUNT, WIDTH, figure_retry_slots, SLOTS_BUSIEST, "retries in the busiest slot",                  \
	  "the most retries that were asked for in a slot of `width`; the first slot begins with the first retry")                         \
	X(retries_slots, RESOURCE, COUNT, WIDTH, figure_retry_slots, SLOTS_USED, "slots with retries",                                     \
	  "of these slots those with at least one retry")                                                                                  \
	X(retries_last, RESOURCE, MS, TIME, figure_retries_last, 0, "time of the last retry",                                              \
	  "from when the first attempt was asked for to when the last retry was")                                                          \
	X(fallbacks, RESOURCE, COUNT, NOT, figure_fallbacks, 0, "fallbacks", "what the segment counted of resc_fallback, all kinds")

#define REFUSAL_FIGURES(X)                                                                                                                 \
	X(refused, RESOURCE, COUNT, TIME, figure_refused, 0, "refusals", "attempts that were not admitted")                                \
	X(refused_open, RESOURCE, COUNT, TIME, figure_refused, RESC_E_OPEN, "refusals by an open breaker", "of these: RESC_E_OPEN")        \
	X(refused_half_open, RESOURCE, COUNT, TIME, figure_refused, RESC_E_HALF_OPEN, "refusals by a half-open breaker",                   \
	  "of these: RESC_E_HALF_OPEN")                                                                                                    \
	X(refused_forced_open, RESOURCE, COUNT, TIME, figure_refused, RESC_E_FORCED_OPEN, "refusals by an operator",                       \
	  "of these: RESC_E_FORCED_OPEN")                                                                                                  \
	X(refused_full, RESOURCE, COUNT, TIME, figure_refused, RESC_E_FULL, "refusals by a full bulkhead", "of these: RESC_E_FULL")        \
	X(refused_queue_full, RESOURCE, COUNT, TIME, figure_refused, RESC_E_QUEUE_FULL, "refusals by a full queue",                        \
	  "of these: RESC_E_QUEUE_FULL")                                                                                                   \
	X(refused_priority, RESOURCE, COUNT, TIME, figure_refused, RESC_E_PRIORITY, "refusals by priority", "of these: RESC_E_PRIORITY")   \
	X(refused_rate, RESOURCE, COUNT, TIME, figure_refused, RESC_E_RATE, "refusals by the rate limit", "of these: RESC_E_RATE")         \
	X(refused_cost, RESOURCE, COUNT, TIME, figure_refused, RESC_E_COST, "refusals of a cost beyond the burst",                         \
	  "of these: RESC_E_COST")                                                                                                         \
	X(refused_throttled, RESOURCE, COUNT, TIME, figure_refused, RESC_E_THROTTLED, "refusals by the throttle",                          \
	  "of these: RESC_E_THROTTLED")                                                                                                    \
	X(refused_retries, RESOURCE, COUNT, TIME, figure_refused, RESC_E_RETRIES, "refusals of a retry too many in flight",                \
	  "of these: RESC_E_RETRIES")                                                                                                      \
	X(refused_deadline, RESOURCE, COUNT, TIME, figure_refused, RESC_E_DEADLINE, "refusals by the deadline",                            \
	  "of these: RESC_E_DEADLINE")                                                                                                     \
	X(broken, RESOURCE, COUNT, TIME, figure_attempts, ATTEMPTS_BROKEN, "calls that libresc could not judge",                           \
	  "attempts that resc_enter answered with an error (-errno)")                                                                      \
	X(retry_attempts, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_ATTEMPTS, "retries refused: attempts used up",                    \
	  "attempts after which resc_retry said RESC_E_ATTEMPTS")                                                                          \
	X(retry_budget, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_BUDGET, "retries refused: budget empty", "RESC_E_BUDGET")           \
	X(retry_deadline, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_RETRY_DEADLINE, "retries refused: deadline too near",             \
	  "RESC_E_RETRY_DEADLINE")                                                                                                         \
	X(retry_not_retryable, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_NOT_RETRYABLE, "retries refused: not retryable",             \
	  "RESC_E_NOT_RETRYABLE")                                                                                                          \
	X(retry_upstream, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_UPSTREAM, "retries refused: retried upstream", "RESC_E_UPSTREAM") \
	X(retry_pushback, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_PUSHBACK, "retries refused: the server said not to",              \
	  "RESC_E_PUSHBACK")                                                                                                               \
	X(retry_in_flight, RESOURCE, COUNT, TIME, figure_no_retry, RESC_E_RETRY_IN_FLIGHT, "retries refused: too many in flight",          \
	  "RESC_E_RETRY_IN_FLIGHT")

#define BREAKER_FIGURES(X)                                                                                                                 \
	X(opened, RESOURCE, COUNT, TIME, figure_transitions, RESC_BREAKER_OPEN, "times a breaker opened",                                  \
	  "transitions to open, of all breakers of the view")                                                                              \
	X(half_opened, RESOURCE, COUNT, TIME, figure_transitions, RESC_HALF_OPEN, "times a breaker became half-open",                      \
	  "transitions to half-open, of all breakers of the view")                                                                         \
	X(closed, RESOURCE, COUNT, TIME, figure_transitions, RESC_CLOSED, "times a breaker closed",                                        \
	  "transitions to closed, of all breakers of the view")                                                                            \
	X(opened_at, RESOURCE, MS, NTH, figure_transition_at, RESC_BREAKER_OPEN, "time when a breaker opened",                             \
	  "since the start: of the `nth` transition to open, of all breakers of the view in order of time")                                \
	X(half_opened_at, RESOURCE, MS, NTH, figure_transition_at, RESC_HALF_OPEN, "time when a breaker became half-open",                 \
	  "the same for half-open")                                                                                                        \
	X(closed_at, RESOURCE, MS, NTH, figure_transition_at, RESC_CLOSED, "time when a breaker closed", "the same for closed")            \
	X(open_time, RESOURCE, MS, TIME, figure_open_time, 0, "time that a breaker was not closed",                                        \
	  "open or half-open; on own views the mean over the workers; of several resources their sum")                                     \
	X(recovered_after, RESOURCE, MS, NOT, figure_recovered_after, 0, "time to recover",                                                \
	  "from the end of the last fault until the last worker had served a fresh answer again; of the workers that ended a request "     \
	  "after the fault; none when one of these never did")

#define GUARD_FIGURES(X)                                                                                                                   \
	X(permits_most, RESOURCE, COUNT, TIME, figure_permits, 0, "calls inside at once, at most",                                         \
	  "the most permits in use at a look at the segment, one each 20 ms; own views: of all workers together")                          \
	X(waiting_most, RESOURCE, COUNT, TIME, figure_permits, 1, "calls waiting at once, at most",                                        \
	  "the same of calls that wait for a "                                                                                             \
	  "permit")                                                                                                                        \
	X(tokens_least, RESOURCE, RATIO, TIME, figure_least, 0, "retry tokens, at least",                                                  \
	  "the fewest tokens that a retry budget had at such a look; own views: of any worker")                                            \
	X(rate_tokens_least, RESOURCE, RATIO, TIME, figure_least, 1, "rate tokens, at least", "the same of a rate limit")                  \
	X(throttle_most, RESOURCE, SHARE, TIME, figure_throttle, 0, "share refused by the throttle, at most",                              \
	  "the largest share of calls that a throttle refused at such a look; own views: of any worker")                                   \
	X(histogram_p50, RESOURCE, MS, NOT, figure_histogram, STAT_P50, "median by the histogram",                                         \
	  "of what the segment measured of all calls, as resctl suggest says it")                                                          \
	X(histogram_p99, RESOURCE, MS, NOT, figure_histogram, STAT_P99, "p99 by the histogram", "the same for 99 % of them")               \
	X(histogram_p999, RESOURCE, MS, NOT, figure_histogram, STAT_P999, "p99.9 by the histogram", "the same for 99.9 % of them")         \
	X(cut_off, RESOURCE, SHARE, SPAN, figure_cut_off, 0, "share of good calls that a timeout would cut off",                           \
	  "by the histogram of the segment, as resctl suggest says it: the share of healthy calls that a timeout of `width` would have "   \
	  "cut off")

#define DEPENDENCY_FIGURES(X)                                                                                                              \
	X(received, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_ALL, "calls received", "calls that reached the dependency")         \
	X(received_in_fault, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_IN_FAULT, "calls received in a fault",                     \
	  "of these: while a fault was on")                                                                                                \
	X(received_per_second_worst, DEPENDENCY, COUNT, TIME, figure_received_worst, 0, "calls received in the worst second",              \
	  "the most calls that reached it in one second; seconds are counted from `from`")                                                 \
	X(answered, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_ANSWERED, "calls answered",                                         \
	  "received, worked on, and answered to a caller who was still there")                                                             \
	X(completed, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_COMPLETED, "works completed",                                      \
	  "received, and worked on to the end, whether the caller was still there or not")                                                 \
	X(errors, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_ERRORS, "calls answered with an error",                               \
	  "received, and answered with an error by its fault")                                                                             \
	X(shed, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_SHED, "calls shed",                                                     \
	  "received, and answered with an error because they were beyond its capacity")                                                    \
	X(hung, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_HUNG, "calls never answered", "received, and never answered")           \
	X(reset, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_RESET, "calls reset", "received, and their connection reset")          \
	X(pending, DEPENDENCY, COUNT, TIME, figure_received, RECEIVED_PENDING, "calls pending",                                            \
	  "received, and not answered yet when the take ended")                                                                            \
	X(accepted_share, DEPENDENCY, SHARE, TIME, figure_accepted_share, 0, "share of calls accepted", "answered / received")             \
	X(amplification, DEPENDENCY, RATIO, TIME, figure_amplification, 0, "calls received a request",                                     \
	  "received / requests offered by the loads that call it")

#define FIGURES(X)                                                                                                                         \
	REQUEST_FIGURES(X)                                                                                                                 \
	ATTEMPT_FIGURES(X)                                                                                                                 \
	REFUSAL_FIGURES(X)                                                                                                                 \
	BREAKER_FIGURES(X)                                                                                                                 \
	GUARD_FIGURES(X)                                                                                                                   \
	DEPENDENCY_FIGURES(X)

#endif
