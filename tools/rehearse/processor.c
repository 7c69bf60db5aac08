/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a retry storm is a storm because refused requests cost the server too. A server that really burnt its processor would
 * show that, and with it how busy the machine was on which the rehearsal runs. So the processor is a model: each request has it for cpu_ns
 * of time, one after the other, those too that are refused in the end. On a loaded machine it comes out the same.
 *
 * A request is read when it gets the processor, and not before: nobody knows of it until then, and one whose caller has gone by then costs
 * nothing, because with the connection it has gone too. Which of those that wait is next is chance, as it is with the threads of a server
 * that wait for a processor: with a queue in order of arrival, an overload longer than the callers' patience would serve nobody at all.
 * Whether there is a place for it is seen when it was read; it keeps the place until it is answered, although its caller may have
 * gone meanwhile: a server does not know that, and works on. What hangs or is reset takes neither place nor processor.
 */
#include "processor.h"

#include <errno.h>
#include <stdlib.h>

/* Tokens for this long, at least one. */
#define ACCEPT_BURST_S 0.1

static double burst(const struct dependency *dependency)
{
	double tokens = dependency->accepts_per_second * ACCEPT_BURST_S;
	return tokens > 1 ? tokens : 1;
}

void processor_start(struct processor *processor, const struct dependency *dependency, int64_t now_ns)
{
	*processor = (struct processor){
	        .unread = processor->unread,
	        .unread_room = processor->unread_room,
	        .free_ns = now_ns,
	        .accepts = burst(dependency),
	        .accepts_ns = now_ns,
	};
}

/* ---- the processor ---- */

int processor_wait(struct processor *processor, struct work *work)
{
	if (processor->unread_count == processor->unread_room) {
		size_t room = processor->unread_room == 0 ? 64 : 2 * processor->unread_room;
		struct work **unread = realloc(processor->unread, room * sizeof(struct work *));
		if (!unread)
			return -ENOMEM;
		processor->unread = unread;
		processor->unread_room = room;
	}
	work->stage = WORK_UNREAD;
	work->index = processor->unread_count;
	processor->unread[processor->unread_count++] = work;
	return 0;
}

void processor_withdraw(struct processor *processor, struct work *work)
{
	struct work *last = processor->unread[--processor->unread_count];
	processor->unread[work->index] = last;
	last->index = work->index;
}

struct work *processor_begin(struct processor *processor, const struct dependency *dependency, uint64_t dice, int64_t *from_ns)
{
	if (processor->busy || processor->unread_count == 0)
		return NULL;
	struct work *work = processor->unread[dice % processor->unread_count];
	processor_withdraw(processor, work);
	work->stage = WORK_ON_PROCESSOR;
	/* From when the one before it was through, and not from when somebody got round to it. */
	*from_ns = processor->free_ns > work->cue.at_ns ? processor->free_ns : work->cue.at_ns;
	processor->free_ns = *from_ns + dependency->cpu_ns;
	processor->busy = true;
	return work;
}

void processor_release(struct processor *processor)
{
	processor->busy = false;
}

/* ---- places ---- */

static bool is_accepted(struct processor *processor, const struct dependency *dependency, int64_t now_ns)
{
	if (dependency->accepts_per_second <= 0)
		return true;
	double most = burst(dependency);
	double since_s = (double)(now_ns - processor->accepts_ns) * 1e-9;
	double tokens = processor->accepts + since_s * dependency->accepts_per_second;
	processor->accepts = tokens < most ? tokens : most;
	processor->accepts_ns = now_ns;
	/* A token that is whole but for what rounding took from it is whole. */
	if (processor->accepts < 1 - 1e-9)
		return false;
	processor->accepts -= 1;
	return true;
}

static void queue(struct processor *processor, struct work *work)
{
	work->next = NULL;
	if (processor->last)
		processor->last->next = work;
	else
		processor->first = work;
	processor->last = work;
	processor->waiting++;
}

static void enter(struct processor *processor, struct work *work)
{
	work->inside = true;
	processor->inside++;
}

int64_t processor_judge(struct processor *processor, const struct dependency *dependency, const struct deal *deal, struct work *work,
                        int64_t now_ns)
{
	work->stage = WORK_JUDGED;
	work->retry_after_ms = deal->retry_after_ms;
	if (deal->kind == DEAL_ERROR) {
		work->receipt = RECEIPT_ERROR;
		return now_ns;
	}

	bool has_room = processor->inside < deal->capacity;
	if ((!has_room && processor->waiting >= dependency->queue) || !is_accepted(processor, dependency, now_ns)) {
		work->receipt = RECEIPT_SHED;
		return now_ns;
	}
	work->receipt = RECEIPT_OK;
	if (!has_room) {
		queue(processor, work);
		return SCENARIO_FOREVER;
	}
	enter(processor, work);
	return now_ns + work->latency_ns;
}

void processor_leave(struct processor *processor, struct work *work)
{
	if (!work->inside)
		return;
	work->inside = false;
	processor->inside--;
}

struct work *processor_next(struct processor *processor, uint32_t capacity, int64_t now_ns, int64_t *due_ns)
{
	struct work *work = processor->first;
	if (!work || processor->inside >= capacity)
		return NULL;
	processor->first = work->next;
	if (!processor->first)
		processor->last = NULL;
	processor->waiting--;
	enter(processor, work);
	*due_ns = now_ns + work->latency_ns;
	return work;
}
