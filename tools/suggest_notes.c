/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: resctl check knows what contradicts itself in a file. What contradicts the traffic shows only while it runs: a breaker
 * whose window never holds enough calls, a limit below what is inside in health, a timeout under the 99th percentile. These are the
 * settings that look right and cannot work.
 *
 * What it guarantees: a note says the numbers that it comes from, and what to change. Where there is no rate, or too few calls, what needs
 * them is not said, and what calls that an operator had fail or wait can account for is blamed on no setting. What check refuses cannot be
 * in force, and is not looked for here; what it only warns of is, as whoever asks about a running resource may not have written its file.
 */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "format.h"
#include "policy_text.h"
#include "suggest.h"

/* A timeout this many times p99.9 holds a worker for much longer than any healthy call would. */
#define LONG_TIMEOUT 3
/* What becomes of it is told for so many calls that hang. */
#define HANGING 0.05
#define MILLION 1000000u
#define MS_NS   1000000.0

static const struct {
	const char *name;
	const char *key;
} notes_table[] = {
#define X(NAME, id, key) {id, key},
        SUGGEST_NOTES(X)
#undef X
};

const char *suggest_note_name(enum suggest_note_id id)
{
	return notes_table[id].name;
}

const char *suggest_note_key(enum suggest_note_id id)
{
	return notes_table[id].key;
}

/* The facts, what was worked out from them, and what is noted so far. */
struct notes {
	const struct suggest_facts *facts;
	const struct policy *policy;
	struct suggest_timeouts timeouts;
	struct suggest_limit limit;
	struct suggest_note *list;
	size_t count;
};

__attribute__((format(printf, 4, 5))) static void note(struct notes *n, enum suggest_note_id id, enum policy_part part, const char *format,
                                                       ...)
{
	struct suggest_note *added = &n->list[n->count++];
	va_list args;

	*added = (struct suggest_note){.id = id, .shadow = part_mode_of(n->policy, part) == PART_SHADOW};
	va_start(args, format);
	vsnprintf(added->text, sizeof(added->text), format, args);
	va_end(args);
}

static bool is_on(const struct notes *n, enum policy_part part)
{
	return part_mode_of(n->policy, part) != PART_OFF;
}

static uint64_t attempt_ms(const struct notes *n, bool probe)
{
	return is_on(n, PART_TIMEOUT) ? policy_attempt_ms(n->policy, probe) : 0;
}

static uint64_t total_ms(const struct notes *n)
{
	return is_on(n, PART_TIMEOUT) ? n->policy->timeout_total_ms : 0;
}

/* Of the measured calls, those that an operator made to wait: at most all that took long. */
static double share_delayed(const struct notes *n)
{
	double delayed = (double)n->facts->counters.injected_delays, measured = (double)n->facts->latency.count;

	return measured > 0 ? fmin(delayed / measured, 1) : 0;
}

static const char *p50_at_least(const struct notes *n)
{
	return n->timeouts.p50_is_least ? "at least " : "";
}

/* ---- timeout ---- */

static void look_at_short(struct notes *n)
{
	uint64_t ms = attempt_ms(n, false);
	struct suggest_share cut = suggest_cut_off(n->facts, ms);

	if (ms == 0 || n->facts->latency.count < SUGGEST_P99_CALLS || cut.likely - share_delayed(n) <= 0.01)
		return;
	note(n, SUGGEST_NOTE_TIMEOUT_SHORT, PART_TIMEOUT,
	     "timeout.attempt is %s, and %s of the measured calls took that long or were cut off there (p50 is %s%s): raise "
	     "it, or find out why so many are slow",
	     duration_setting(ms).s, fine_percent_text(cut.likely).s, p50_at_least(n), latency_fine_text(n->timeouts.p50_us).s);
}

static void look_at_long(struct notes *n)
{
	uint64_t ms = attempt_ms(n, false);
	double p999_us = n->timeouts.p999_us, held = n->limit.rate * HANGING * (double)ms / 1000;
	char workers[200] = "";

	if (p999_us == 0 || n->timeouts.p999_is_least || (double)ms <= LONG_TIMEOUT * ceil(p999_us / 1000))
		return;
	if (n->limit.rate > 0)
		snprintf(workers, sizeof(workers), "; if 5%% of the %s calls a second hung, %s would be inside at once (live workers: %u)",
		         rate_text(n->limit.rate).s, count_text((uint64_t)ceil(fmin(held, 1e15))).s, n->facts->workers);
	note(n, SUGGEST_NOTE_TIMEOUT_LONG, PART_TIMEOUT, "timeout.attempt is %s, and 99.9%% of the calls end within %s%s: lower it",
	     duration_setting(ms).s, latency_fine_text(p999_us).s, workers);
}

/* ---- retry ---- */

/* The longest wait before that retry, in milliseconds: see backoff.c. */
static double longest_wait_ms(const struct policy *p, unsigned retry, double previous_ms)
{
	double most = p->cap_ns == 0 ? INFINITY : (double)p->cap_ns / MS_NS, base = fmin((double)p->base_ns / MS_NS, most);
	double wait = p->backoff == BACKOFF_EXPONENTIAL ? fmin(ldexp(base, (int)retry - 1), most) : base;

	if (p->backoff == BACKOFF_NONE)
		return 0;
	if (p->backoff_jitter == JITTER_DECORRELATED)
		return fmin(3 * fmax(previous_ms, base), most);
	return p->backoff_jitter == JITTER_PROPORTIONAL ? fmin(1.2 * wait, most) : wait;
}

static void look_at_total(struct notes *n)
{
	double attempt = (double)attempt_ms(n, false), total = (double)total_ms(n), spent = attempt, wait = 0;
	unsigned fit = 1;

	if (attempt == 0 || total == 0 || !is_on(n, PART_RETRY))
		return;
	for (unsigned i = 1; i < n->policy->attempts; i++) {
		wait = longest_wait_ms(n->policy, i, wait);
		spent += wait + attempt;
		fit += spent <= total;
	}
	if (spent <= total)
		return;
	note(n, SUGGEST_NOTE_RETRY_TOTAL, PART_RETRY,
	     "%u attempts of %s and the waits between them take up to %s, and timeout.total is %s: where each times out there "
	     "is time for %u; make attempt shorter, total longer, or attempts fewer",
	     (unsigned)n->policy->attempts, duration_setting((uint64_t)attempt).s, duration_text((uint64_t)fmin(spent, 1e15)).s,
	     duration_setting((uint64_t)total).s, fit);
}

static bool has_bucket(const struct notes *n)
{
	return is_on(n, PART_RETRY) && n->policy->attempts > 1 && (n->policy->flags & POLICY_BUDGET) != 0 && n->policy->budget_cost > 0;
}

static void look_at_capacity(struct notes *n)
{
	double retries = (double)(n->policy->attempts - 1), room = (double)n->policy->budget_capacity / (double)n->policy->budget_cost;

	if (!has_bucket(n) || floor(room) >= retries)
		return;
	note(n, SUGGEST_NOTE_BUDGET_CAPACITY, PART_BUDGET,
	     "a full retry budget pays for %s retries, and %u attempts need %s: one request uses it up, and not all attempts are made",
	     number_text(floor(room), 0).s, (unsigned)n->policy->attempts, number_text(retries, 0).s);
}

/* The share of requests that may fail in all their attempts, so that what comes in still pays for the retries. */
static double share_paid_for(const struct notes *n)
{
	const struct policy *p = n->policy;
	double ratio = (double)p->budget_ratio / (double)p->budget_cost, retries = (double)(p->attempts - 1);
	double floor_part = n->limit.rate > 0 ? (double)p->budget_per_second / (double)p->budget_cost / n->limit.rate : 0;

	/* Each success pays in, or each request. */
	if (p->budget_deposit == DEPOSIT_SUCCESS)
		return (ratio + floor_part) / (retries + ratio);
	return (ratio + floor_part) / retries;
}

static void look_at_ratio(struct notes *n)
{
	const struct resc_counters *c = &n->facts->counters;
	double ok = (double)c->ended_ok + (double)c->ended_ignored, bad = (double)c->ended_fail + (double)c->ended_timeout;
	double injected = (double)c->injected_failures + (double)c->injected_delays;
	double failing = bad > injected ? (bad - injected) / (ok + bad - injected) : 0;

	if (!has_bucket(n) || ok + bad < SUGGEST_P99_CALLS || c->retry_budget == 0 || failing <= share_paid_for(n))
		return;
	note(n, SUGGEST_NOTE_BUDGET_RATIO, PART_BUDGET,
	     "%s of the calls fail, and the retry budget pays for all %u attempts of at most %s: it was empty for %s retries; "
	     "where that is not an outage that it should damp, attempts are too many or ratio too small",
	     fine_percent_text(failing).s, (unsigned)n->policy->attempts, fine_percent_text(share_paid_for(n)).s,
	     count_text(c->retry_budget).s);
}

/* ---- breaker ---- */

static bool has_rate(const struct notes *n)
{
	return is_on(n, PART_BREAKER) && (n->policy->failure_rate_ppm != 0 || n->policy->slow_rate_ppm != 0);
}

static void look_at_window(struct notes *n)
{
	const struct policy *p = n->policy;
	/* Of those that an open breaker refused each would have been in the window of a closed one. */
	double rate = n->facts->load.seconds > 0 ? (double)n->facts->load.asked / n->facts->load.seconds : 0;
	double calls = rate * (double)p->window_ms / 1000;
	struct line why = {.used = 0};

	if (policy_is_blind(p, &why))
		note(n, SUGGEST_NOTE_BREAKER_BLIND, PART_BREAKER, "%s", why.s);
	else if (has_rate(n) && p->window_calls == 0 && rate > 0 && calls < (double)p->min_calls)
		note(n, SUGGEST_NOTE_BREAKER_QUIET, PART_BREAKER,
		     "at %s calls a second a window of %s holds about %s calls, and min_calls is %s: no rate can open it at "
		     "this load; lower min_calls, use a longer window or one of the last N calls, or add consecutive",
		     rate_text(rate).s, duration_setting(p->window_ms).s, number_text(calls, calls < 10 ? 1 : 0).s,
		     count_text(p->min_calls).s);
}

static void look_at_never_slow(struct notes *n)
{
	const struct policy *p = n->policy;
	uint64_t ms = attempt_ms(n, false);

	if (!is_on(n, PART_BREAKER) || p->slow_rate_ppm == 0 || ms == 0 || (double)p->slow_call_ns < (double)ms * MS_NS)
		return;
	note(n, SUGGEST_NOTE_BREAKER_NEVER_SLOW, PART_BREAKER,
	     "slow_call is %s, and timeout.attempt cuts calls off at %s: none is slow before it times out; lower slow_call",
	     duration_setting_ns(p->slow_call_ns).s, duration_setting(ms).s);
}

static void look_at_always_slow(struct notes *n)
{
	const struct policy *p = n->policy;
	const struct inspect_latency *l = &n->facts->latency;
	double slow = l->count > 0 ? suggest_calls_beyond(l, (double)p->slow_call_ns / 1000) / (double)l->count : 0;

	if (!is_on(n, PART_BREAKER) || p->slow_rate_ppm == 0 || l->count < SUGGEST_P99_CALLS ||
	    (slow - share_delayed(n)) * MILLION < (double)p->slow_rate_ppm)
		return;
	note(n, SUGGEST_NOTE_BREAKER_ALWAYS_SLOW, PART_BREAKER,
	     "%s of the measured calls took longer than slow_call (%s; p50 is %s%s), and slow_rate is %s: so many open it; "
	     "raise slow_call, or find out why so many are slow",
	     fine_percent_text(slow).s, duration_setting_ns(p->slow_call_ns).s, p50_at_least(n), latency_fine_text(n->timeouts.p50_us).s,
	     share_text(p->slow_rate_ppm).s);
}

static void look_at_trial(struct notes *n)
{
	const struct policy *p = n->policy;
	uint64_t ms = attempt_ms(n, true);

	if (!is_on(n, PART_BREAKER) || ms == 0)
		return;
	if (p->cooldown_ms < ms)
		note(n, SUGGEST_NOTE_BREAKER_COOLDOWN, PART_BREAKER,
		     "cooldown is %s, and a probe may take %s: where it hangs, somebody is inside with a probe for most of the "
		     "outage; make cooldown longer, or timeout.probe shorter",
		     duration_setting(p->cooldown_ms).s, duration_setting(ms).s);
	if (p->probe_timeout_ms < ms)
		note(n, SUGGEST_NOTE_BREAKER_PROBE, PART_BREAKER,
		     "probe_timeout is %s, and a probe may take %s: it may be given to somebody else while it still runs; make "
		     "probe_timeout longer, or timeout.probe shorter",
		     duration_setting(p->probe_timeout_ms).s, duration_setting(ms).s);
}

/* ---- bulkhead, rate limit, throttle ---- */

static void look_at_limit(struct notes *n)
{
	uint32_t limit = n->facts->limit, workers = n->facts->workers, most = n->facts->load.in_flight.most;

	if (!is_on(n, PART_BULKHEAD) || limit == 0)
		return;
	if ((double)limit < n->limit.inside)
		note(n, SUGGEST_NOTE_BULKHEAD_TIGHT, PART_BULKHEAD,
		     "%s calls a second of %s each are %s calls inside on average, and the limit is %u: %s", rate_text(n->limit.rate).s,
		     latency_fine_text(n->limit.mean_us).s, number_text(n->limit.inside, 1).s, limit,
		     n->facts->load.failed == 0 ? "it refuses while all is well; raise it"
		                                : "it refuses; raise it, unless they take so long because something fails");
	else if (workers > 1 && limit >= workers && most <= workers && !n->limit.held_down)
		note(n, SUGGEST_NOTE_BULKHEAD_IDLE, PART_BULKHEAD,
		     "the limit is %u, and there are %u live workers: where each has one call at a time, it never refuses "
		     "anything; choose one below that, so that some workers stay free when this dependency hangs",
		     limit, workers);
}

static void look_at_wait(struct notes *n, enum suggest_note_id id, enum policy_part part, uint64_t wait_ms)
{
	uint64_t total = total_ms(n), attempt = attempt_ms(n, false), limit = total != 0 ? total : attempt;

	if (!is_on(n, part) || limit == 0 || wait_ms <= limit)
		return;
	note(n, id, part, "max_wait is %s, and timeout.%s %s: %s", duration_setting(wait_ms).s, total != 0 ? "total" : "attempt",
	     duration_setting(limit).s,
	     total != 0 ? "the deadline passes before the wait ends" : "a caller may wait longer to be let in than for the answer");
}

static void look_at_rate(struct notes *n)
{
	double allowed = (double)n->policy->rate_per_second / (double)TOKEN, seconds = n->facts->load.seconds;
	double asked = (double)n->facts->load.asked / seconds;

	/* A burst that it allows is no contradiction. */
	if (!is_on(n, PART_RATE) || seconds <= 0 || (double)n->facts->load.asked <= allowed * seconds + (double)n->policy->rate_burst)
		return;
	note(n, SUGGEST_NOTE_RATE_TIGHT, PART_RATE,
	     "%s calls a second were asked for, and per_second is %s: it refuses, or lets wait, %s of them", rate_text(asked).s,
	     number_text(allowed, 6).s, fine_percent_text(1 - allowed / asked).s);
}

static void look_at_throttle(struct notes *n)
{
	if (!is_on(n, PART_THROTTLE) || n->policy->throttle_k_ppm > MILLION)
		return;
	note(n, SUGGEST_NOTE_THROTTLE_K, PART_THROTTLE,
	     "k is %s: it refuses as soon as one call fails, and what it refuses cannot show that all is well again; 2 is usual",
	     number_text((double)n->policy->throttle_k_ppm / MILLION, 6).s);
}

size_t suggest_notes(const struct suggest_facts *facts, struct suggest_note notes[SUGGEST_NOTE_COUNT])
{
	struct notes n = {.facts = facts, .policy = &facts->policy, .list = notes};

	suggest_timeouts(facts, &n.timeouts);
	suggest_limit(facts, &n.limit);
	look_at_short(&n);
	look_at_long(&n);
	look_at_total(&n);
	look_at_capacity(&n);
	look_at_ratio(&n);
	look_at_window(&n);
	look_at_never_slow(&n);
	look_at_always_slow(&n);
	look_at_trial(&n);
	look_at_limit(&n);
	look_at_wait(&n, SUGGEST_NOTE_BULKHEAD_WAIT, PART_BULKHEAD, facts->policy.max_wait_ms);
	look_at_wait(&n, SUGGEST_NOTE_RATE_WAIT, PART_RATE, facts->policy.rate_max_wait_ms);
	look_at_rate(&n);
	look_at_throttle(&n);
	return n.count;
}
