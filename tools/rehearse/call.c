/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a worker calls each dependency the same way, whoever is behind it. Servers of the lab are called in its own tiny
 * protocol (a call of ours must cost little, or the rehearsal measures itself), everything else with libcurl.
 */
#include "caller.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "children.h"
#include "script.h"

#define MS_NS INT64_C(1000000)

int64_t call_clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

int64_t call_deadline_ns(const struct call *call)
{
	int64_t now_ns = call_clock_ns();
	return call->timeout_ms < 0 || call->timeout_ms > (INT64_MAX - now_ns) / MS_NS ? INT64_MAX : now_ns + call->timeout_ms * MS_NS;
}

int64_t call_slice_ns(int64_t deadline_ns)
{
	int64_t left_ns = deadline_ns - call_clock_ns();
	if (left_ns > CALL_SLICE_NS)
		return CALL_SLICE_NS;
	return left_ns > 0 ? left_ns : 0;
}

enum resc_outcome call_await(const struct caller *caller, int fd, short events, int64_t deadline_ns)
{
	for (;;) {
		struct pollfd p = {.fd = fd, .events = events};
		struct timespec slice = {.tv_nsec = (long)call_slice_ns(deadline_ns)};
		if (ppoll(&p, 1, &slice, NULL) > 0)
			return RESC_OK;
		if (call_clock_ns() >= deadline_ns)
			return RESC_TIMEOUT;
		if (board_is_over(caller->board))
			return RESC_CANCELLED;
	}
}

void call_complain(const struct caller *caller, unsigned dependency, const char *why)
{
	/* relaxed: only who is the first */
	if (atomic_fetch_add_explicit(&caller->board->complaints, 1, memory_order_relaxed) == 0)
		fprintf(stderr, "resctl rehearse: dependency %s: a worker cannot call it: %s\n",
		        caller->scenario->dependencies[dependency].name, why);
}

bool call_is_lack(int error)
{
	return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

void call_lacks(const struct caller *caller, unsigned dependency, int error)
{
	char why[192];

	snprintf(why, sizeof(why), "%s%s", strerror(error),
	         error == EADDRNOTAVAIL
	                 ? ": no port of this host is free; fewer calls that connect, or a wider net.ipv4.ip_local_port_range"
	                 : child_remedy(error));
	call_complain(caller, dependency, why);
	/* relaxed: whichever */
	atomic_store_explicit(&caller->board->lacked, error, memory_order_relaxed);
}

struct caller *caller_new(const struct scenario *scenario, struct board *board)
{
	struct caller *caller = malloc(sizeof(*caller));
	if (!caller)
		return NULL;
	child_raise_files(); /* each thread has a connection to each dependency */
	*caller = (struct caller){.scenario = scenario, .board = board};
	for (size_t i = 0; i < SCENARIO_DEPENDENCIES; i++)
		caller->lines[i].fd = -1;
	for (unsigned i = 0; i < scenario->dependency_count; i++) {
		if (scenario->dependencies[i].kind == DEPENDENCY_SERVER)
			lab_dial(caller, i);
	}
	return caller;
}

void caller_free(struct caller *caller)
{
	if (!caller)
		return;
	for (size_t i = 0; i < SCENARIO_DEPENDENCIES; i++) {
		lab_hang_up(&caller->lines[i]);
		curl_hang_up(&caller->lines[i]);
	}
	free(caller);
}

static bool is_during_fault(const struct caller *caller, unsigned dependency, const struct call *call)
{
	struct cue cue = {
	        .at_ns = board_now(caller->board),
	        .request = call->request,
	        .number = caller->board->requests[call->request].number,
	        .try = call->try,
	};
	return script_deal(caller->scenario, dependency, &cue).during_fault;
}

struct call_result caller_call(struct caller *caller, unsigned dependency, const struct call *call)
{
	struct call_result result = {.retry_after_ms = -1, .during_fault = is_during_fault(caller, dependency, call)};
	if (board_is_over(caller->board))
		result.outcome = RESC_CANCELLED;
	else if (caller->scenario->dependencies[dependency].kind == DEPENDENCY_SERVER)
		result.outcome = lab_call(caller, dependency, call, &result);
	else
		result.outcome = curl_call(caller, dependency, call, &result);
	/* At the end the dependencies are ended too. That is no failure of theirs. */
	if (result.outcome == RESC_FAIL && board_is_over(caller->board))
		result.outcome = RESC_CANCELLED;
	return result;
}
