/* SPDX-License-Identifier: MIT */
/* A take that is made by hand, note by note: three workers, two resources, two loads. Times are milliseconds. */
#ifndef UNIT_TAKE_H
#define UNIT_TAKE_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "latency.h"
#include "resc.h"
#include "take.h"

#define MS INT64_C(1000000)

enum { PRICES, STOCK }; /* resources; and the dependencies "prices" and "store" */
enum { USERS, JOBS };   /* loads: of prices, and of stock */

#define TAKE_REQUESTS 32
#define TAKE_ATTEMPTS 64
#define TAKE_RECEIPTS 32
#define TAKE_SAMPLES  16
#define TAKE_MOVES    16

struct made {
	struct take take;
	struct scenario scenario;
	struct dependency dependencies[2];
	struct fault fault;
	struct load loads[2];
	struct board board;
	struct request_note requests[TAKE_REQUESTS];
	struct attempt_note attempts[TAKE_ATTEMPTS];
	struct receipt_note receipts[TAKE_RECEIPTS];
	struct sample samples[TAKE_SAMPLES];
	struct transition_note transitions[TAKE_MOVES];
};

static inline void done(_Atomic uint32_t *done)
{
	atomic_store_explicit(done, 1, memory_order_release);
}

/* An empty take of four seconds; prices hangs in the second one. To be freed. */
static inline struct made *made_new(enum view view)
{
	struct made *m = calloc(1, sizeof(*m));

	if (m == NULL)
		abort();
	m->fault = (struct fault){.kind = FAULT_HANG, .from_ns = 1000 * MS, .to_ns = 2000 * MS, .share = 1};
	m->dependencies[0] = (struct dependency){.name = "prices", .faults = &m->fault, .fault_count = 1};
	m->dependencies[1] = (struct dependency){.name = "store"};
	m->loads[USERS] = (struct load){.name = "users", .chain = {PRICES}, .chain_count = 1, .dependency = 0};
	m->loads[JOBS] = (struct load){.name = "jobs", .chain = {STOCK}, .chain_count = 1, .dependency = 1};
	m->scenario = (struct scenario){
	        .title = (char *)(uintptr_t) "made by hand",
	        .views = {true, true},
	        .duration_ns = 4000 * MS,
	        .workers = 3,
	        .threads = 1,
	        .backlog = UINT32_MAX,
	        .resources = {"prices", "stock"},
	        .resource_count = 2,
	        .dependencies = m->dependencies,
	        .dependency_count = 2,
	        .loads = m->loads,
	        .load_count = 2,
	};
	m->board.requests = m->requests;
	m->board.attempt_notes = m->attempts;
	m->board.receipt_notes = m->receipts;
	m->take = (struct take){
	        .scenario = &m->scenario,
	        .view = view,
	        .duration_ns = 4000 * MS,
	        .board = &m->board,
	        .samples = m->samples,
	        .transitions = m->transitions,
	};
	return m;
}

/* In order of arrival. Not done yet: end -1. */
static inline void made_request(struct made *m, uint32_t load, int64_t arrival, int64_t end, uint16_t worker, uint16_t attempts,
                                enum served served)
{
	struct request_note *request = &m->requests[m->board.request_count++];

	request->load = load;
	request->arrival_ns = arrival * MS;
	if (end < 0)
		return;
	request->begun_ns = arrival * MS;
	request->ended_ns = end * MS;
	request->worker = worker;
	request->attempts = attempts;
	request->served = (uint8_t)served;
	done(&request->done);
}

/* Of the request that arrived then; an attempt whose flags can be changed afterwards. */
static inline struct attempt_note *made_attempt(struct made *m, uint16_t resource, int64_t arrival, int64_t asked, int64_t entered,
                                                int64_t ended, uint16_t worker, uint16_t try)
{
	struct attempt_note *attempt = &m->attempts[m->take.attempt_count++];

	while (attempt->request + 1 < m->board.request_count && m->requests[attempt->request].arrival_ns != arrival * MS)
		attempt->request++;
	attempt->resource = resource;
	attempt->asked_ns = asked * MS;
	attempt->entered_ns = entered * MS;
	attempt->ended_ns = ended * MS;
	attempt->wait_ns = -1;
	attempt->worker = worker;
	attempt->try = try;
	attempt->retry = -1;
	done(&attempt->done);
	return attempt;
}

static inline void made_refusal(struct made *m, uint16_t resource, int64_t arrival, int64_t asked, uint16_t worker, int16_t answer)
{
	made_attempt(m, resource, arrival, asked, asked, asked, worker, 1)->answer = answer;
}

static inline struct receipt_note *made_receipt(struct made *m, uint16_t dependency, int64_t received, enum receipt what, bool during_fault)
{
	struct receipt_note *receipt = &m->receipts[m->take.receipt_count++];

	receipt->dependency = dependency;
	receipt->received_ns = received * MS;
	receipt->receipt = (uint8_t)what;
	receipt->during_fault = during_fault;
	done(&receipt->done);
	return receipt;
}

static inline struct sample *made_sample(struct made *m, uint16_t resource, int64_t at, uint32_t in_flight, uint32_t waiting)
{
	struct sample *sample = &m->samples[m->take.sample_count++];

	*sample = (struct sample){
	        .resource = resource, .at_ns = at * MS, .in_flight = in_flight, .waiting = waiting, .tokens = -1, .rate_tokens = -1};
	return sample;
}

static inline void made_move(struct made *m, uint16_t resource, uint16_t worker, int64_t at, unsigned from, unsigned to)
{
	struct transition_note *transition = &m->transitions[m->take.transition_count++];

	*transition = (struct transition_note){
	        .resource = resource, .worker = worker, .at_ns = at * MS, .from = (uint8_t)from, .to = (uint8_t)to, .why = "by hand"};
}

/* ---- a story: everything that there is a figure of ---- */

static inline void story_requests(struct made *m)
{
	made_request(m, USERS, 0, 10, 0, 1, SERVED_FRESH);
	made_request(m, JOBS, 50, 55, 2, 1, SERVED_FRESH);
	made_request(m, USERS, 100, 130, 1, 1, SERVED_FRESH);
	made_request(m, USERS, 500, 500, 0, 0, SERVED_REJECTED);
	made_request(m, USERS, 1000, 1100, 0, 2, SERVED_FALLBACK);
	made_request(m, USERS, 1200, 1500, 1, 3, SERVED_FAILED);
	made_request(m, USERS, 1400, 2400, 2, 1, SERVED_LATE);
	made_request(m, USERS, 1600, 1602, 0, 0, SERVED_FALLBACK);
	made_request(m, USERS, 1900, 1950, 0, 1, SERVED_FALLBACK);
	made_request(m, USERS, 2100, 2120, 0, 1, SERVED_FRESH);
	made_request(m, USERS, 2200, 2250, 1, 1, SERVED_FRESH);
	made_request(m, USERS, 3000, 3005, 2, 0, SERVED_STORED);
	made_request(m, USERS, 3200, 3300, 2, 1, SERVED_FRESH);
	made_request(m, USERS, 3500, -1, 0, 0, SERVED_NOT_YET);
	made_request(m, JOBS, 3600, 3680, 2, 1, SERVED_FRESH);
	made_request(m, USERS, 4500, -1, 0, 0, SERVED_NOT_YET); /* the take ends before it arrives */
}

/* How an attempt ended, and what resc_retry said. */
static inline void ended(struct attempt_note *attempt, enum resc_outcome outcome, int16_t retry, bool during_fault)
{
	attempt->outcome = (uint8_t)outcome;
	attempt->retry = retry;
	attempt->during_fault = during_fault;
}

static inline void story_prices(struct made *m)
{
	struct attempt_note *a;

	made_attempt(m, PRICES, 0, 0, 0, 10, 0, 1);
	made_attempt(m, PRICES, 100, 105, 110, 130, 1, 1);
	ended(made_attempt(m, PRICES, 1000, 1000, 1000, 1050, 0, 1), RESC_FAIL, 0, true);
	ended(made_attempt(m, PRICES, 1000, 1060, 1060, 1100, 0, 2), RESC_TIMEOUT, RESC_E_BUDGET, true);
	ended(made_attempt(m, PRICES, 1200, 1200, 1250, 1300, 1, 1), RESC_TIMEOUT, 0, true);
	ended(a = made_attempt(m, PRICES, 1200, 1310, 1310, 1390, 1, 2), RESC_FAIL, 0, true);
	a->injected = true;
	ended(made_attempt(m, PRICES, 1200, 1400, 1400, 1450, 1, 3), RESC_FAIL, RESC_E_ATTEMPTS, true);
	ended(made_attempt(m, PRICES, 1400, 1410, 1420, 2400, 2, 1), RESC_TIMEOUT, RESC_E_RETRY_DEADLINE, true);
	made_refusal(m, PRICES, 1600, 1600, 0, RESC_E_OPEN);
	made_refusal(m, PRICES, 1200, 1700, 1, RESC_E_HALF_OPEN);
	made_refusal(m, PRICES, 1400, 1800, 2, RESC_E_OPEN);
	ended(made_attempt(m, PRICES, 1200, 1850, 1850, 1860, 1, 1), RESC_FAIL, -1, true);
	ended(a = made_attempt(m, PRICES, 1900, 1900, 1900, 1950, 0, 1), RESC_FAIL, -1, true);
	a->probe = true;
	made_attempt(m, PRICES, 2100, 2100, 2100, 2120, 0, 1)->probe = true;
	made_attempt(m, PRICES, 2200, 2200, 2210, 2250, 1, 1);
	made_attempt(m, PRICES, 3200, 3200, 3210, 3300, 2, 1);
	/* Still going on: it has a number, and nothing in it may be believed. */
	atomic_store_explicit(&made_attempt(m, PRICES, 3500, 3500, 3500, 3500, 0, 1)->done, 0, memory_order_relaxed);
}

static inline void story_stock(struct made *m)
{
	static const int16_t refusals[] = {RESC_E_FORCED_OPEN, RESC_E_FULL, RESC_E_QUEUE_FULL, RESC_E_QUEUE_FULL, RESC_E_PRIORITY,
	                                   RESC_E_RATE,        RESC_E_COST, RESC_E_THROTTLED,  RESC_E_RETRIES,    RESC_E_DEADLINE};
	static const int16_t no_retries[] = {RESC_E_NOT_RETRYABLE, RESC_E_UPSTREAM, RESC_E_PUSHBACK, RESC_E_RETRY_IN_FLIGHT};

	ended(made_attempt(m, STOCK, 50, 50, 50, 55, 2, 1), RESC_IGNORED, -1, false);
	for (size_t i = 0; i < sizeof(refusals) / sizeof(refusals[0]); i++)
		made_refusal(m, STOCK, 50, 300, 2, refusals[i]);
	made_refusal(m, STOCK, 50, 400, 2, -22);
	for (size_t i = 0; i < sizeof(no_retries) / sizeof(no_retries[0]); i++)
		ended(made_attempt(m, STOCK, 50, 2500, 2500, 2510, 2, 1), RESC_FAIL, no_retries[i], false);
	ended(made_attempt(m, STOCK, 3600, 3600, 3600, 3680, 2, 1), RESC_CANCELLED, -1, false);
}

static inline void story_receipts(struct made *m)
{
	made_receipt(m, 0, 0, RECEIPT_OK, false);
	made_receipt(m, 1, 50, RECEIPT_OK, false);
	made_receipt(m, 0, 112, RECEIPT_OK, false);
	made_receipt(m, 0, 1001, RECEIPT_HUNG, true);
	made_receipt(m, 0, 1061, RECEIPT_HUNG, true);
	made_receipt(m, 0, 1251, RECEIPT_ERROR, true);
	made_receipt(m, 0, 1311, RECEIPT_SHED, true);
	made_receipt(m, 0, 1401, RECEIPT_RESET, true);
	made_receipt(m, 0, 1421, RECEIPT_PENDING, true);
	made_receipt(m, 0, 2101, RECEIPT_OK, false);
	made_receipt(m, 0, 2211, RECEIPT_OK, false)->caller_gone = true;
	atomic_store_explicit(&made_receipt(m, 0, 3500, RECEIPT_OK, false)->done, 0, memory_order_relaxed);
}

static inline void story_segment(struct made *m)
{
	struct sample *sample;
	struct tally *tally = &m->take.tallies[PRICES];

	made_sample(m, PRICES, 20, 2, 1)->tokens = 9;
	sample = made_sample(m, STOCK, 20, 3, 0);
	sample->rate_tokens = 4.5f;
	sample->throttle = 0.25f;
	made_sample(m, PRICES, 40, 4, 0)->tokens = 3.5f;
	sample = made_sample(m, STOCK, 40, 0, 5);
	sample->rate_tokens = 2;
	sample->throttle = 0.5f;

	tally->counters.fallback_stale = 3;
	tally->counters.fallback_cache = 1;
	m->take.tallies[STOCK].counters.fallback_other = 2;
	tally->counters.ended_ok = 1000;
	tally->latency.count = 1000;
	tally->latency.sum_us = 980 * 10000 + 20 * 100000;
	tally->latency.buckets[latency_bucket(10000)] = 980;
	tally->latency.buckets[latency_bucket(100000)] = 20;
}

/* What the shared breaker of prices did. */
static inline void story_breaker(struct made *m)
{
	made_move(m, PRICES, 0, 1500, RESC_CLOSED, RESC_BREAKER_OPEN);
	made_move(m, PRICES, 0, 1900, RESC_BREAKER_OPEN, RESC_HALF_OPEN);
	made_move(m, PRICES, 0, 1950, RESC_HALF_OPEN, RESC_BREAKER_OPEN);
	made_move(m, PRICES, 0, 2100, RESC_BREAKER_OPEN, RESC_HALF_OPEN);
	made_move(m, PRICES, 0, 2120, RESC_HALF_OPEN, RESC_CLOSED);
}

static inline struct made *made_story(enum view view)
{
	struct made *m = made_new(view);

	story_requests(m);
	story_prices(m);
	story_stock(m);
	story_receipts(m);
	story_segment(m);
	story_breaker(m);
	return m;
}

#endif
