/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: scripts, dashboards and tests read this document, so it must not surprise them. Every key is always there: what does not
 * apply is null, never left out. Integers are below 2^63, reals are finite, text is valid UTF-8, whatever bytes the segment holds. Keys
 * that end in _ms are milliseconds: points in time on the segment's clock (monotonic, 0 at "segment.created"), or durations: those of
 * a policy, and _age_ms and _left_ms, from and until this reading. "time" and "created" alone are wall clock.
 *
 * A document is complete or not there: out of memory anywhere gives NULL.
 */
#include "snapshot_json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "format.h"
#include "layout.h"
#include "override.h"
#include "roster.h"
#include "wall.h"

/* ---- putting values ---- */

/* One document that is being written. */
struct out {
	const struct map *map;
	struct roster roster;
	bool failed;
};

/* Both take the reference of value, and know a value that could not be made. */
static void put(struct out *out, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new_nocheck(object, key, value) != 0)
		out->failed = true;
}

static void append(struct out *out, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) != 0)
		out->failed = true;
}

static json_t *integer(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *integer_if(bool there, uint64_t n)
{
	return there ? integer(n) : json_null();
}

static json_t *real(double value)
{
	return json_real(isfinite(value) ? value : 0);
}

static json_t *real_if(bool there, double value)
{
	return there ? real(value) : json_null();
}

static json_t *share(uint64_t ppm)
{
	return real((double)ppm / 1e6);
}

static json_t *share_if(bool there, uint64_t ppm)
{
	return there ? share(ppm) : json_null();
}

/* Text of the segment comes cleaned out of the library; should it not be UTF-8 all the same, the document stays one. */
static json_t *text(const char *s)
{
	json_t *value = json_string(s);

	return value != NULL ? value : json_string("?");
}

static json_t *text_if(bool there, const char *s)
{
	return there ? text(s) : json_null();
}

static json_t *hex(uint64_t n)
{
	char digits[17];

	snprintf(digits, sizeof(digits), "%016" PRIx64, n);
	return json_string(digits);
}

static uint64_t from_until(uint64_t from, uint64_t until)
{
	return until > from ? until - from : 0;
}

/* ---- names ---- */

const char *breaker_name(unsigned tag)
{
	switch (tag) {
	case TAG_OPEN:
		return "open";
	case TAG_HALF_OPEN:
		return "half_open";
	default:
		return "closed";
	}
}

const char *daemon_status(const struct inspect_daemon *daemon)
{
	if (!daemon->alive)
		return "stopped";
	return daemon->now_ms - daemon->heartbeat_ms > HEARTBEAT_SILENT_MS ? "silent" : "running";
}

static const char *transition_value_name(enum reason reason, unsigned i)
{
	switch (reason) {
	case REASON_CONSECUTIVE:
		return i == 0 ? "failures" : "limit";
	case REASON_FAILURE_RATE:
		return i == 0 ? "failed" : "calls";
	case REASON_SLOW_RATE:
		return i == 0 ? "slow" : "calls";
	case REASON_PROBE_FAILED:
	case REASON_PROBE_SLOW:
	case REASON_PROBES_OK:
		return i == 0 ? "ok" : "failed";
	default:
		return NULL;
	}
}

const char *event_value_name(const struct event *event, unsigned i)
{
	switch (event->kind) {
	case EVENT_BREAKER:
		return transition_value_name(event->reason, i);
	case EVENT_FORCED:
		return i == 0 ? "for_ms" : NULL;
	case EVENT_INJECTED:
		return i == 0 ? NULL : "for_ms";
	case EVENT_REAPED:
		return i == 0 ? "worker" : "pid";
	case EVENT_SUPERSEDED:
		return i == 0 ? "resources" : "workers";
	default:
		return NULL;
	}
}

/* ---- a policy: null for what is off ---- */

/* A block that is on, with its mode; its keys follow. */
static json_t *block(struct out *out, const struct policy *p, enum policy_part which)
{
	json_t *o = json_object();

	put(out, o, "mode", json_string(part_mode_name(part_mode_of(p, which))));
	return o;
}

static json_t *breaker_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_BREAKER);

	put(out, o, "consecutive", integer_if(p->consecutive != 0, p->consecutive));
	put(out, o, "failure_rate", share_if(p->failure_rate_ppm != 0, p->failure_rate_ppm));
	put(out, o, "slow_rate", share_if(p->slow_rate_ppm != 0, p->slow_rate_ppm));
	put(out, o, "slow_call_ms", real_if(p->slow_call_ns != 0, (double)p->slow_call_ns / 1e6));
	put(out, o, "window_ms", integer_if(p->window_calls == 0, p->window_ms));
	put(out, o, "window_calls", integer_if(p->window_calls != 0, p->window_calls));
	put(out, o, "min_calls", integer(p->min_calls));
	put(out, o, "cooldown_ms", integer(p->cooldown_ms));
	put(out, o, "cooldown_factor", share(p->cooldown_factor_ppm));
	put(out, o, "cooldown_max_ms", integer(p->cooldown_max_ms));
	put(out, o, "jitter", share(p->jitter_ppm));
	put(out, o, "probes", integer(p->probes));
	put(out, o, "successes", integer(p->successes));
	put(out, o, "probe_timeout_ms", integer(p->probe_timeout_ms));
	put(out, o, "trial_failure_rate", share_if(p->trial_failure_rate_ppm != 0, p->trial_failure_rate_ppm));
	put(out, o, "retry_after_max_ms", integer(p->retry_after_max_ms));
	return o;
}

const char *backoff_name(uint64_t backoff)
{
	static const char *const names[] = {"none", "fixed", "exponential"};

	return names[backoff < 3 ? backoff : 0];
}

const char *jitter_name(uint64_t jitter)
{
	static const char *const names[] = {"none", "full", "equal", "decorrelated", "proportional"};

	return names[jitter < 5 ? jitter : 0];
}

const char *deposit_name(uint64_t deposit)
{
	return deposit == DEPOSIT_REQUEST ? "request" : "success";
}

const char *on_death_name(uint64_t on_death)
{
	return on_death == ON_DEATH_FREE ? "free" : "unknown";
}

/* Tokens, a cap on retries in flight, or both. */
static json_t *budget_policy(struct out *out, const struct policy *p)
{
	bool bucket = (p->flags & POLICY_BUDGET) != 0, cap = (p->flags & POLICY_RETRY_CAP) != 0;
	json_t *o = block(out, p, PART_BUDGET);

	put(out, o, "ratio", share_if(bucket, p->budget_ratio));
	put(out, o, "capacity", share_if(bucket, p->budget_capacity));
	put(out, o, "per_second", share_if(bucket, p->budget_per_second));
	put(out, o, "deposit", text_if(bucket, deposit_name(p->budget_deposit)));
	put(out, o, "cost", share_if(bucket, p->budget_cost));
	put(out, o, "timeout_cost", share_if(bucket, p->budget_timeout_cost));
	put(out, o, "ttl_ms", integer_if(bucket && p->budget_ttl_ms != 0, p->budget_ttl_ms));
	put(out, o, "threshold", share_if(bucket && p->budget_threshold_ppm != 0, p->budget_threshold_ppm));
	put(out, o, "in_flight_floor", integer_if(cap, p->retries_floor));
	put(out, o, "in_flight_share", share_if(cap, p->retries_share_ppm));
	return o;
}

static json_t *retry_on_json(struct out *out, const struct policy *p)
{
	json_t *o = json_array();

	if ((p->retry_on & 1u << RESC_FAIL) != 0)
		append(out, o, json_string("fail"));
	if ((p->retry_on & 1u << RESC_TIMEOUT) != 0)
		append(out, o, json_string("timeout"));
	return o;
}

static json_t *retry_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_RETRY);

	put(out, o, "attempts", integer(p->attempts));
	put(out, o, "backoff", json_string(backoff_name(p->backoff)));
	put(out, o, "jitter", json_string(jitter_name(p->backoff_jitter)));
	put(out, o, "base_ms", real((double)p->base_ns / 1e6));
	put(out, o, "cap_ms", real((double)p->cap_ns / 1e6));
	put(out, o, "retry_on", retry_on_json(out, p));
	put(out, o, "budget", part_mode_of(p, PART_BUDGET) != PART_OFF ? budget_policy(out, p) : json_null());
	return o;
}

static json_t *bulkhead_policy(struct out *out, const struct policy *p)
{
	bool of_workers = p->limit_share_ppm != 0;
	json_t *o = block(out, p, PART_BULKHEAD);

	put(out, o, "limit", integer_if(!of_workers, p->limit));
	put(out, o, "limit_share", share_if(of_workers, p->limit_share_ppm));
	put(out, o, "max_wait_ms", integer(p->max_wait_ms));
	put(out, o, "max_waiting", integer(p->max_waiting));
	put(out, o, "critical", share(p->critical_ppm));
	put(out, o, "normal", share(p->normal_ppm));
	put(out, o, "low", share(p->low_ppm));
	put(out, o, "retry_after_ms", integer_if(p->retry_after_ms != 0, p->retry_after_ms));
	return o;
}

static json_t *rate_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_RATE);

	put(out, o, "per_second", share(p->rate_per_second));
	put(out, o, "burst", integer(p->rate_burst));
	put(out, o, "max_wait_ms", integer(p->rate_max_wait_ms));
	return o;
}

static json_t *throttle_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_THROTTLE);

	put(out, o, "k", share(p->throttle_k_ppm));
	put(out, o, "window_ms", integer(p->throttle_window_ms));
	return o;
}

static json_t *once_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_ONCE);

	put(out, o, "ttl_ms", integer(p->once_ttl_ms));
	put(out, o, "max_wait_ms", integer(p->once_max_wait_ms));
	put(out, o, "on_death", json_string(on_death_name(p->once_on_death)));
	return o;
}

static json_t *timeout_policy(struct out *out, const struct policy *p)
{
	json_t *o = block(out, p, PART_TIMEOUT);

	put(out, o, "attempt_ms", integer_if(p->timeout_attempt_ms != 0, p->timeout_attempt_ms));
	put(out, o, "connect_ms", integer_if(p->timeout_connect_ms != 0, p->timeout_connect_ms));
	put(out, o, "total_ms", integer_if(p->timeout_total_ms != 0, p->timeout_total_ms));
	put(out, o, "probe_ms", integer_if(p->timeout_probe_ms != 0, p->timeout_probe_ms));
	return o;
}

static json_t *policy_json(struct out *out, const struct policy *p)
{
	static const struct {
		enum policy_part which;
		json_t *(*make)(struct out *out, const struct policy *p);
	} makers[] = {
	        {PART_BREAKER, breaker_policy}, {PART_RETRY, retry_policy},       {PART_BULKHEAD, bulkhead_policy},
	        {PART_RATE, rate_policy},       {PART_THROTTLE, throttle_policy}, {PART_TIMEOUT, timeout_policy},
	        {PART_ONCE, once_policy},
	};
	json_t *o = json_object();

	for (size_t i = 0; i < sizeof(makers) / sizeof(makers[0]); i++)
		put(out, o, part_name(makers[i].which),
		    part_mode_of(p, makers[i].which) != PART_OFF ? makers[i].make(out, p) : json_null());
	put(out, o, "latency", json_boolean(p->flags & POLICY_LATENCY));
	put(out, o, "injection", json_boolean(p->flags & POLICY_INJECTION));
	return o;
}

/* ---- a resource ---- */

static json_t *override_json(struct out *out, const struct inspect_resource *r)
{
	const struct inspect_override *override = &r->override;
	bool ends = override->until_ms != 0;
	json_t *o;

	if (override->mode == OVERRIDE_NONE)
		return json_null();
	o = json_object();
	put(out, o, "mode", json_string(override_mode_name(override->mode)));
	put(out, o, "set_ms", integer(override->set_ms));
	put(out, o, "until_ms", integer_if(ends, override->until_ms));
	put(out, o, "left_ms", integer_if(ends, from_until(r->now_ms, override->until_ms)));
	put(out, o, "uid", integer(override->uid));
	put(out, o, "why", text(override->text));
	return o;
}

static json_t *injection_json(struct out *out, const struct inspect_resource *r)
{
	const struct inspect_injection *injection = &r->injection;
	json_t *o;

	if (!injection->on)
		return json_null();
	o = json_object();
	put(out, o, "fail", share(injection->what.fail_ppm));
	put(out, o, "latency_ms", integer(injection->what.latency_ms));
	put(out, o, "latency_share", share(injection->what.share_ppm));
	put(out, o, "set_ms", integer(injection->set_ms));
	put(out, o, "until_ms", integer(injection->until_ms));
	put(out, o, "left_ms", integer(from_until(r->now_ms, injection->until_ms)));
	put(out, o, "uid", integer(injection->uid));
	put(out, o, "why", text(injection->text));
	return o;
}

static json_t *window_json(struct out *out, const struct inspect_resource *r)
{
	json_t *o = json_object();
	bool any = r->window_calls > 0;

	put(out, o, "length_ms", integer_if(r->policy.window_calls == 0, r->policy.window_ms));
	put(out, o, "length_calls", integer_if(r->policy.window_calls != 0, r->policy.window_calls));
	put(out, o, "calls", integer(r->window_calls));
	put(out, o, "failures", integer(r->window_failures));
	put(out, o, "slow", integer(r->window_slow));
	put(out, o, "failure_rate", real_if(any, any ? (double)r->window_failures / (double)r->window_calls : 0));
	put(out, o, "slow_rate", real_if(any, any ? (double)r->window_slow / (double)r->window_calls : 0));
	put(out, o, "consecutive_failures", integer(r->consecutive));
	return o;
}

static json_t *probes_json(struct out *out, const struct inspect_resource *r)
{
	json_t *o = json_object();

	put(out, o, "out", integer(r->probes_out));
	put(out, o, "limit", integer(r->policy.probes));
	put(out, o, "ok", integer(r->trial_ok));
	put(out, o, "failed", integer(r->trial_failed));
	return o;
}

static json_t *permits_json(struct out *out, const struct inspect_resource *r, uint32_t in_use)
{
	json_t *o = json_object(), *holders = json_array();

	for (size_t i = 0; i < out->roster.held; i++) {
		const struct roster_worker *worker = roster_find(&out->roster, out->roster.lives[i]);
		json_t *holder = json_object();

		put(out, holder, "worker", integer(out->roster.lives[i]));
		put(out, holder, "pid",
		    integer_if(worker != NULL && worker->seen.pid > 0, worker != NULL ? (uint64_t)worker->seen.pid : 0));
		put(out, holder, "permits", integer(out->roster.permits[i]));
		append(out, holders, holder);
	}
	put(out, o, "in_use", integer(in_use));
	put(out, o, "limit", integer_if(r->limited, r->limit));
	put(out, o, "effective", integer_if(r->limited, r->effective));
	put(out, o, "debt", integer_if(r->limited, r->debt));
	put(out, o, "waiting", integer(r->waiting));
	put(out, o, "by_worker", holders);
	return o;
}

static json_t *retry_json(struct out *out, const struct inspect_resource *r, uint32_t in_flight)
{
	json_t *o = json_object();

	put(out, o, "tokens", real_if(r->budgeted, r->tokens));
	put(out, o, "capacity", real_if(r->budgeted, r->capacity));
	put(out, o, "in_flight", integer(in_flight));
	return o;
}

static json_t *rate_json(struct out *out, const struct inspect_resource *r)
{
	json_t *o = json_object();

	put(out, o, "tokens", real_if(r->rated, r->rate_tokens));
	put(out, o, "burst", integer_if(r->rated, r->policy.rate_burst));
	put(out, o, "per_second", share_if(r->rated, r->policy.rate_per_second));
	return o;
}

static json_t *throttle_json(struct out *out, const struct inspect_resource *r)
{
	json_t *o = json_object();

	put(out, o, "share", share_if(r->throttled, r->throttle_ppm));
	put(out, o, "requests", integer_if(r->throttled, r->throttle_requests));
	put(out, o, "accepts", integer_if(r->throttled, r->throttle_accepts));
	return o;
}

static json_t *counters_json(struct out *out, const struct resc_counters *counters)
{
	json_t *o = json_object();

	for (unsigned i = 0; i < COUNTERS_SHOWN; i++)
		put(out, o, counter_name(i), integer(counter_value(counters, i)));
	return o;
}

/* The buckets that are not empty, as [upper edge in microseconds, count]. */
static json_t *latency_json(struct out *out, const struct inspect_latency *latency)
{
	static const struct {
		const char *key;
		double q;
	} quantiles[] = {{"p50_us", 0.5}, {"p90_us", 0.9}, {"p99_us", 0.99}, {"p999_us", 0.999}};
	json_t *o = json_object(), *buckets = json_array();

	put(out, o, "count", integer(latency->count));
	put(out, o, "sum_us", integer(latency->sum_us));
	for (size_t i = 0; i < sizeof(quantiles) / sizeof(quantiles[0]); i++)
		put(out, o, quantiles[i].key, integer_if(latency->count > 0, latency_quantile_us(latency, quantiles[i].q)));
	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		if (latency->buckets[i] == 0)
			continue;
		json_t *bucket = json_array();
		append(out, bucket, integer(latency_edge_us(i)));
		append(out, bucket, integer(latency->buckets[i]));
		append(out, buckets, bucket);
	}
	put(out, o, "buckets", buckets);
	return o;
}

static void put_state(struct out *out, json_t *o, const struct inspect_resource *r)
{
	bool open = r->breaker == TAG_OPEN;

	put(out, o, "state", json_string(breaker_name(r->breaker)));
	put(out, o, "mode", json_string(part_mode_name(part_mode_of(&r->policy, PART_BREAKER))));
	put(out, o, "since_ms", integer(r->since_ms));
	put(out, o, "since_age_ms", integer(from_until(r->since_ms, r->now_ms)));
	put(out, o, "why", json_string(reason_name(r->reason)));
	put(out, o, "why_text", json_string(reason_text(r->reason)));
	put(out, o, "opened_since_ms", integer_if(open, r->since_ms));
	put(out, o, "due_ms", integer_if(open, r->due_ms));
	put(out, o, "due_left_ms", integer_if(open, from_until(r->now_ms, r->due_ms)));
	put(out, o, "probe_due", json_boolean(r->probe_due));
	put(out, o, "generation", integer(r->generation));
	put(out, o, "reopened", integer(r->reopened));
}

static json_t *resource_json(struct out *out, const struct inspect_resource *r)
{
	json_t *o = json_object();
	uint32_t in_use = roster_take(&out->roster, out->map, r);

	put(out, o, "name", text(r->name));
	put(out, o, "made", json_boolean(r->policy.flags & POLICY_MADE));
	put_state(out, o, r);
	put(out, o, "override", override_json(out, r));
	put(out, o, "injection", injection_json(out, r));
	put(out, o, "window", window_json(out, r));
	put(out, o, "probes", probes_json(out, r));
	put(out, o, "permits", permits_json(out, r, in_use));
	put(out, o, "retry", retry_json(out, r, r->retries < in_use ? r->retries : in_use));
	put(out, o, "rate", rate_json(out, r));
	put(out, o, "throttle", throttle_json(out, r));
	put(out, o, "counters", counters_json(out, &r->counters));
	put(out, o, "latency", latency_json(out, &r->latency));
	put(out, o, "policy", policy_json(out, &r->policy));
	return o;
}

/* ---- workers, daemon, segment ---- */

/* Of a program; null where that is too old to have said it. */
static void put_version(struct out *out, json_t *o, uint32_t version)
{
	const struct layout_version_text t = layout_version_text(version);

	put(out, o, "version", text_if(version != 0, t.library));
	put(out, o, "format", text_if(version != 0, t.format));
}

static json_t *worker_json(struct out *out, const struct roster_worker *worker, uint64_t now_ms)
{
	const struct inspect_worker *w = &worker->seen;
	bool known = w->pid > 0;
	json_t *o = json_object();

	put(out, o, "worker", integer(w->life));
	put(out, o, "slot", integer(w->slot));
	put(out, o, "pid", integer_if(known, (uint64_t)w->pid));
	put(out, o, "pid_namespace", integer_if(known, w->pid_namespace));
	put(out, o, "same_namespace", json_boolean(w->same_namespace));
	put(out, o, "start_ticks", integer_if(known, w->start_ticks));
	put(out, o, "name", text_if(known, w->name));
	put(out, o, "registered_ms", integer_if(known, w->registered_ms));
	put(out, o, "age_ms", integer_if(known, from_until(w->registered_ms, now_ms)));
	put(out, o, "alive", json_boolean(w->alive));
	put_version(out, o, w->version);
	put(out, o, "permits", integer(worker->permits));
	put(out, o, "probes", integer(worker->probes));
	return o;
}

static json_t *roster_json(struct out *out)
{
	uint64_t now_ms = clock_coarse_ms(out->map);
	json_t *array = json_array();

	for (size_t i = 0; i < out->roster.count; i++)
		append(out, array, worker_json(out, &out->roster.workers[i], now_ms));
	return array;
}

static json_t *reload_json(struct out *out, const struct inspect_daemon *d)
{
	json_t *o = json_object();

	put(out, o, "done", integer(d->reloads));
	put(out, o, "failed", integer(d->reloads_failed));
	put(out, o, "last_failed", json_boolean(d->reload_failed));
	put(out, o, "last_ms", integer(d->reload_ms));
	put(out, o, "problems", text_if(d->reload_failed, d->reload_text));
	return o;
}

static json_t *daemon_json(struct out *out)
{
	struct inspect_daemon d;
	json_t *o = json_object();

	inspect_daemon(out->map, &d);
	put(out, o, "status", json_string(daemon_status(&d)));
	put(out, o, "alive", json_boolean(d.alive));
	put(out, o, "pid", integer_if(d.pid > 0, (uint64_t)d.pid));
	put_version(out, o, d.version);
	put(out, o, "workers_older", integer(d.workers_older));
	put(out, o, "started_ms", integer(d.started_ms));
	put(out, o, "heartbeat_ms", integer(d.heartbeat_ms));
	put(out, o, "heartbeat_age_ms", integer(from_until(d.heartbeat_ms, d.now_ms)));
	put(out, o, "control", text(d.control));
	put(out, o, "reload", reload_json(out, &d));
	put(out, o, "workers_reaped", integer(d.lives_reaped));
	put(out, o, "lookups_refused", integer(d.lookups_refused));
	return o;
}

static json_t *dims_json(struct out *out)
{
	const struct segment_dims *dims = &out->map->dims;
	json_t *o = json_object();

	put(out, o, "resources", integer(dims->resources));
	put(out, o, "workers", integer(dims->workers));
	put(out, o, "permits", integer(dims->permits));
	put(out, o, "shards", integer(dims->shards));
	put(out, o, "events", integer(dims->events));
	put(out, o, "calls", integer(dims->calls));
	put(out, o, "waiting", integer(dims->waiting));
	put(out, o, "once", integer(dims->once));
	return o;
}

static json_t *once_json(struct out *out)
{
	struct once_usage usage;
	json_t *o = json_object();

	inspect_once(out->map, &usage);
	put(out, o, "size", integer(usage.size));
	put(out, o, "working", integer(usage.working));
	put(out, o, "done", integer(usage.done));
	put(out, o, "unknown", integer(usage.unknown));
	put(out, o, "expired", integer(usage.expired));
	return o;
}

static json_t *segment_json(struct out *out)
{
	const struct map *map = out->map;
	json_t *o = json_object();
	char format[16];

	put(out, o, "generation", hex(map->generation));
	put(out, o, "predecessor", map->predecessor != 0 ? hex(map->predecessor) : json_null());
	put(out, o, "created", json_string(time_utc(wall_clock_ns(map, 0)).s));
	put(out, o, "size", integer(map->size));
	snprintf(format, sizeof(format), "%d.%u", SEGMENT_MAJOR, map->minor);
	put(out, o, "format", json_string(format));
	put(out, o, "layout", hex(layout_hash(map->minor)));
	put(out, o, "dims", dims_json(out));
	return o;
}

/* ---- documents ---- */

static bool out_open(struct out *out, const struct map *map)
{
	*out = (struct out){.map = map};
	return roster_open(&out->roster, map) == 0;
}

/* The end of a document: the reference, or NULL if something is missing in it. */
static json_t *out_close(struct out *out, json_t *document)
{
	roster_close(&out->roster);
	if (!out->failed)
		return document;
	json_decref(document);
	return NULL;
}

/* The text of a document that is written piece by piece. */
struct buffer {
	char *text;
	size_t size;
	size_t room;
};

static int buffer_add(const char *piece, size_t size, void *arg)
{
	struct buffer *buffer = arg;

	if (buffer->room - buffer->size < size) {
		size_t room = 2 * (buffer->room + size) + 65536;
		char *more = realloc(buffer->text, room);
		if (more == NULL)
			return -1;
		buffer->text = more;
		buffer->room = room;
	}
	memcpy(buffer->text + buffer->size, piece, size);
	buffer->size += size;
	return 0;
}

static void add_text(struct out *out, struct buffer *buffer, const char *piece)
{
	if (buffer_add(piece, strlen(piece), buffer) != 0)
		out->failed = true;
}

/* Takes the reference. */
static void add_json(struct out *out, struct buffer *buffer, json_t *json, size_t flags)
{
	if (json_dump_callback(json, buffer_add, buffer, SNAPSHOT_JSON_FLAGS | JSON_COMPACT | flags) != 0)
		out->failed = true;
	json_decref(json);
}

/* Resource after resource, each freed before the next one: half of the time of building them all would go into fresh memory. */
static void add_resources(struct out *out, struct buffer *buffer)
{
	uint64_t records = atomic_load_explicit(&out->map->daemon->resources, memory_order_acquire);
	struct inspect_resource resource;
	const char *separator = "";

	for (uint32_t i = 0; i < out->map->dims.resources && i < records; i++) {
		if (inspect_resource(out->map, i, &resource) != 0)
			continue;
		add_text(out, buffer, separator);
		add_json(out, buffer, resource_json(out, &resource), 0);
		separator = ",";
	}
}

static json_t *head_json(struct out *out)
{
	uint64_t now_ms = clock_coarse_ms(out->map);
	json_t *o = json_object();

	put(out, o, "version", integer(SNAPSHOT_VERSION));
	put(out, o, "resc", json_string(RESC_VERSION_STRING));
	put(out, o, "instance", text(out->map->instance));
	put(out, o, "time", json_string(time_utc(wall_clock_ns(out->map, now_ms)).s));
	put(out, o, "now_ms", integer(now_ms));
	put(out, o, "segment", segment_json(out));
	put(out, o, "daemon", daemon_json(out));
	put(out, o, "once", once_json(out));
	return o;
}

char *snapshot_text(const struct map *map, size_t *size)
{
	struct buffer buffer = {0};
	struct out out;

	if (!out_open(&out, map))
		return NULL;
	add_text(&out, &buffer, "{");
	add_json(&out, &buffer, head_json(&out), JSON_EMBED);
	add_text(&out, &buffer, ",\"resources\":[");
	add_resources(&out, &buffer);
	/* After the resources: what the workers hold has been summed up on the way. */
	add_text(&out, &buffer, "],\"workers\":");
	add_json(&out, &buffer, roster_json(&out), 0);
	add_text(&out, &buffer, "}");
	roster_close(&out.roster);
	if (out.failed) {
		free(buffer.text);
		return NULL;
	}
	*size = buffer.size;
	return buffer.text;
}

json_t *snapshot_json(const struct map *map)
{
	size_t size;
	char *compact = snapshot_text(map, &size);
	json_t *json = compact == NULL ? NULL : json_loadb(compact, size, 0, NULL);

	free(compact);
	return json;
}

json_t *resources_json(const struct map *map, const uint32_t *indices, size_t count)
{
	struct inspect_resource resource;
	struct out out;

	if (!out_open(&out, map))
		return NULL;
	json_t *array = json_array();
	for (size_t i = 0; i < count; i++)
		if (inspect_resource(map, indices[i], &resource) == 0)
			append(&out, array, resource_json(&out, &resource));
	return out_close(&out, array);
}

json_t *workers_json(const struct map *map)
{
	struct inspect_resource resource;
	struct out out;

	if (!out_open(&out, map))
		return NULL;
	for (uint32_t i = 0; i < map->dims.resources; i++)
		if (inspect_resource(map, i, &resource) == 0)
			roster_take(&out.roster, map, &resource);
	json_t *array = roster_json(&out);
	return out_close(&out, array);
}

/* What was injected is packed in one of the values. */
static void put_injected(struct out *out, json_t *o, const struct event *event)
{
	const struct injection what = injection_of_event(event);

	put(out, o, "fail", share(what.fail_ppm));
	put(out, o, "latency_ms", integer(what.latency_ms));
	put(out, o, "latency_share", share(what.share_ppm));
	if (event->kind == EVENT_INJECTION_ENDED)
		put(out, o, "end", json_string(injection_end_name((enum injection_end)event->value[1])));
}

static json_t *event_values(struct out *out, const struct event *event)
{
	json_t *o = json_object();

	if (event->kind == EVENT_INJECTED || event->kind == EVENT_INJECTION_ENDED)
		put_injected(out, o, event);
	for (unsigned i = 0; i < 2; i++) {
		const char *name = event_value_name(event, i);
		if (name != NULL)
			put(out, o, name, integer(event->value[i]));
	}
	return o;
}

json_t *event_json(const struct map *map, const struct event *event)
{
	struct out out = {.map = map};
	bool breaker = event->kind == EVENT_BREAKER, forced = event->kind == EVENT_FORCED;
	json_t *o = json_object();

	put(&out, o, "number", integer(event->number));
	put(&out, o, "time", json_string(time_utc(wall_clock_ns(map, event->ms)).s));
	put(&out, o, "ms", integer(event->ms));
	put(&out, o, "kind", json_string(event_kind_name(event->kind)));
	put(&out, o, "resource", text_if(event->resource[0] != '\0', event->resource));
	/* rescd, who writes it for a process that died in between, does not know where from. */
	put(&out, o, "from", breaker && event->from != TAG_EMPTY ? json_string(breaker_name(event->from)) : json_null());
	put(&out, o, "to", breaker ? json_string(breaker_name(event->to)) : json_null());
	put(&out, o, "why", breaker ? json_string(reason_name(event->reason)) : json_null());
	put(&out, o, "generation", integer(event->generation));
	put(&out, o, "mode", forced ? json_string(override_mode_name((enum override_mode)(event->value[1] & 3))) : json_null());
	put(&out, o, "values", event_values(&out, event));
	put(&out, o, "pid", integer((uint64_t)event->pid));
	put(&out, o, "uid", integer(event->uid));
	put(&out, o, "text", text(event->text));
	return out_close(&out, o);
}
