/* SPDX-License-Identifier: MIT */
/* Ours: each row as a worker would call it, through the public API alone. */
#include <stdio.h>

#include "bench.h"
#include "resc.h"

#define FULL_LIMIT 2 /* of the resource "full" in the configuration */

static resc *host;
static char instance_name[64];
static resc_resource *guarded, *measured, *opened, *full, *retried;
static resc_resource *breaker, *bulkhead, *by_calls, *priority, *queue, *rate, *throttle, *cap, *shadow, *allowed, *all, *once;
static resc_ticket inside[FULL_LIMIT];

static resc_resource *lookup(const char *name)
{
	struct resc_error err;
	resc_resource *resource = resc_lookup(host, name, &err);

	if (resource == NULL)
		give_up("resc_lookup %s: %s", name, err.text);
	return resource;
}

static void open_the_breaker(void)
{
	resc_ticket ticket;

	if (resc_enter(opened, NULL, &ticket) == 0)
		resc_leave(&ticket, RESC_FAIL);
}

static void fill_the_bulkhead(void)
{
	for (unsigned i = 0; i < FULL_LIMIT; i++) {
		int r = resc_enter(full, NULL, &inside[i]);
		if (r != 0)
			give_up("resc_enter: %s", resc_text(r));
	}
}

void guarded_open(const char *instance)
{
	struct resc_error err;
	struct resc_status status;

	snprintf(instance_name, sizeof(instance_name), "%s", instance);
	host = resc_open(instance, &err);
	if (host == NULL)
		give_up("resc_open: %s", err.text);
	if (resc_status(host, &status) != 0 || status.mode != RESC_SHARED)
		give_up("not attached to the segment: %s", status.reason);
	guarded = lookup("guarded");
	measured = lookup("measured");
	opened = lookup("opened");
	full = lookup("full");
	retried = lookup("retried");
	breaker = lookup("breaker");
	bulkhead = lookup("bulkhead");
	by_calls = lookup("calls");
	priority = lookup("priority");
	queue = lookup("queue");
	rate = lookup("rate");
	throttle = lookup("throttle");
	cap = lookup("cap");
	shadow = lookup("shadow");
	allowed = lookup("allowed");
	all = lookup("all");
	once = lookup("once");
	open_the_breaker();
	fill_the_bulkhead();
}

void guarded_close(void)
{
	resc_close(host);
	host = NULL;
}

static inline void admitted_calls_with(resc_resource *resource, const resc_options *options, unsigned n)
{
	resc_ticket ticket;

	for (unsigned i = 0; i < n; i++) {
		int r = resc_enter(resource, options, &ticket);
		if (r != 0)
			give_up("resc_enter %s: %s", resc_name(resource), resc_text(r));
		r = resc_leave(&ticket, RESC_OK);
		if (r != 0)
			give_up("resc_leave %s: %s", resc_name(resource), resc_text(r));
	}
}

static inline void admitted_calls(resc_resource *resource, unsigned n)
{
	admitted_calls_with(resource, NULL, n);
}

static inline void refused_calls(resc_resource *resource, unsigned n, int answer)
{
	resc_ticket ticket;

	for (unsigned i = 0; i < n; i++) {
		int r = resc_enter(resource, NULL, &ticket);
		if (r != answer)
			give_up("resc_enter %s: %s, and not: %s", resc_name(resource), resc_text(r), resc_text(answer));
	}
}

void guarded_calls(unsigned n)
{
	admitted_calls(guarded, n);
}

void guarded_latency_calls(unsigned n)
{
	admitted_calls(measured, n);
}

void refused_open_calls(unsigned n)
{
	refused_calls(opened, n, RESC_E_OPEN);
}

void refused_full_calls(unsigned n)
{
	refused_calls(full, n, RESC_E_FULL);
}

void retry_calls(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		resc_retry_plan plan = RESC_RETRY_INIT;
		int64_t wait_ns;
		int r = resc_retry(retried, &plan, RESC_FAIL, &wait_ns);
		if (r != 0)
			give_up("resc_retry: %s", resc_text(r));
	}
}

/* What a process pays once: the view, a handle, a first call (which registers), and the end. */
void attach_calls(unsigned n)
{
	struct resc_error err;
	resc_ticket ticket;

	for (unsigned i = 0; i < n; i++) {
		resc *own = resc_open(instance_name, &err);
		resc_resource *resource = own == NULL ? NULL : resc_lookup(own, "guarded", &err);
		if (resource == NULL)
			give_up("attach: %s", err.text);
		int r = resc_enter(resource, NULL, &ticket);
		if (r != 0 || resc_leave(&ticket, RESC_OK) != 0)
			give_up("attach: %s", resc_text(r));
		resc_close(own);
	}
}

/* ---- one policy each, and all together ---- */

void breaker_alone_calls(unsigned n)
{
	admitted_calls(breaker, n);
}

void bulkhead_alone_calls(unsigned n)
{
	admitted_calls(bulkhead, n);
}

void window_calls_calls(unsigned n)
{
	admitted_calls(by_calls, n);
}

void priority_calls(unsigned n)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = RESC_LOW;
	admitted_calls_with(priority, &options, n);
}

void queue_calls(unsigned n)
{
	admitted_calls(queue, n);
}

void rate_calls(unsigned n)
{
	admitted_calls(rate, n);
}

void throttle_calls(unsigned n)
{
	admitted_calls(throttle, n);
}

void retry_cap_calls(unsigned n)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.flags = RESC_RETRY;
	admitted_calls_with(cap, &options, n);
}

void shadow_calls(unsigned n)
{
	admitted_calls(shadow, n);
}

void injection_allowed_calls(unsigned n)
{
	admitted_calls(allowed, n);
}

void all_calls(unsigned n)
{
	admitted_calls(all, n);
}

void once_calls(unsigned n)
{
	static uint64_t key;

	for (unsigned i = 0; i < n; i++) {
		resc_once ticket;
		key++;
		int r = resc_once_begin(once, &key, sizeof(key), NULL, &ticket);
		if (r != 0 || resc_once_done(&ticket, "done", 4) != 0)
			give_up("resc_once_begin: %s", resc_text(r));
		r = resc_once_begin(once, &key, sizeof(key), NULL, &ticket);
		if (r != RESC_ONCE_DONE)
			give_up("resc_once_begin again: %s", resc_text(r));
	}
}
