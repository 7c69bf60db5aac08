/* SPDX-License-Identifier: MIT */
/*
 * What a worker can ask and count beside its calls: state, counters, fallbacks. Reading moves nothing.
 */
#include <errno.h>
#include <string.h>

#include "call.h"
#include "inspect.h"

/* Runs fn with a current view. 0 or -errno. */
static int with_view(resc_resource *resource, void (*fn)(const struct view *, void *), void *arg)
{
	for (int i = 0; i < 4; i++) {
		read_lock();
		const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
		bool current = view_is_current(v);
		if (current)
			fn(v, arg);
		read_unlock();
		if (current)
			return 0;
		int r = resource_refresh(resource);
		if (r < 0)
			return r;
	}
	return -EAGAIN;
}

static void read_state(const struct view *v, void *arg)
{
	struct inspect_resource in;
	struct resc_state *out = arg;

	if (inspect_resource(v->map, v->index, &in) != 0)
		return;
	out->breaker = in.breaker == TAG_OPEN ? RESC_BREAKER_OPEN : in.breaker == TAG_HALF_OPEN ? RESC_HALF_OPEN : RESC_CLOSED;
	out->probe_due = in.probe_due;
	out->generation = in.generation;
	out->probes_out = in.probes_out;
	out->in_flight = in.in_flight;
	out->limit = in.limited ? in.limit : 0;
	out->due_ms = in.breaker != TAG_OPEN ? -1 : in.due_ms > in.now_ms ? (int64_t)(in.due_ms - in.now_ms) : 0;
	out->forced = in.override.mode != OVERRIDE_NONE;
	out->retry_tokens = in.budgeted ? in.tokens : -1;
	out->waiting = in.waiting;
	out->retries = in.retries;
	out->rate_tokens = in.rated ? in.rate_tokens : -1;
	out->throttle = in.throttled ? (double)in.throttle_ppm / 1e6 : -1;
}

int resc_state(resc_resource *resource, struct resc_state *out)
{
	if (resource == NULL || out == NULL)
		return -EINVAL;
	memset(out, 0, sizeof *out);
	return with_view(resource, read_state, out);
}

static int64_t limit_ms(uint64_t ms)
{
	return ms == 0 ? -1 : (int64_t)ms;
}

static void read_timeouts(const struct view *v, void *arg)
{
	struct resc_timeouts *out = arg;

	if ((v->policy.flags & POLICY_SHADOW_TIMEOUT) != 0)
		return;
	out->attempt_ms = limit_ms(v->policy.timeout_attempt_ms);
	out->connect_ms = limit_ms(v->policy.timeout_connect_ms);
	out->total_ms = limit_ms(v->policy.timeout_total_ms);
	out->probe_ms = limit_ms(v->policy.timeout_probe_ms);
}

int resc_timeouts(resc_resource *resource, struct resc_timeouts *out)
{
	if (resource == NULL || out == NULL)
		return -EINVAL;
	*out = (struct resc_timeouts){-1, -1, -1, -1};
	return with_view(resource, read_timeouts, out);
}

static void read_counters(const struct view *v, void *arg)
{
	inspect_counters(v->map, v->state, arg);
}

int resc_counters_sized(resc_resource *resource, struct resc_counters *out, size_t size)
{
	struct resc_counters known = {0};

	if (resource == NULL || out == NULL)
		return -EINVAL;
	int r = with_view(resource, read_counters, &known);
	memset(out, 0, size);
	memcpy(out, &known, size < sizeof known ? size : sizeof known);
	return r;
}

static void count_fallback(const struct view *v, void *arg)
{
	count(v, *(enum counter *)arg);
}

int resc_fallback(resc_resource *resource, const char *kind)
{
	static const char *const names[] = {
#define X(name, text) #name,
	        RESC_FALLBACKS(X)
#undef X
	};
	static const enum counter counters[] = {
#define X(name, text) COUNTER_fallback_##name,
	        RESC_FALLBACKS(X)
#undef X
	};
	enum counter counter = COUNTER_fallback_other;

	if (resource == NULL || kind == NULL)
		return -EINVAL;
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
		if (strcmp(names[i], kind) == 0)
			counter = counters[i];
	return with_view(resource, count_fallback, &counter);
}
