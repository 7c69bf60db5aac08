/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a retry storm is a storm because refused requests cost the server too. A server that really burnt its processor would
 * show that, and with it how busy the machine was on which the rehearsal runs. So the processor is a model: each request has it for cpu_ns
 * of time, one after the other in the order in which they came, those too that are refused in the end; and the answer cannot come before
 * that. On a loaded machine it comes out the same.
 *
 * A request that is accepted has a place from its arrival until it is answered. Its caller may have gone long ago: a server does not know
 * that, and works on. What hangs or is reset takes neither place nor processor.
 */
#include "processor.h"

/* Tokens for this long, at least one. */
#define ACCEPT_BURST_S 0.1

static double burst(const struct dependency *dependency)
{
	double tokens = dependency->accepts_per_second * ACCEPT_BURST_S;
	return tokens > 1 ? tokens : 1;
}

void processor_start(struct processor *processor, const struct dependency *dependency, int64_t now_ns)
{
	*processor = (struct processor){.free_ns = now_ns, .accepts = burst(dependency), .accepts_ns = now_ns};
}

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

int64_t processor_take(struct processor *processor, const struct dependency *dependency, const struct deal *deal, struct work *work,
                       int64_t now_ns)
{
	processor->free_ns = (processor->free_ns > now_ns ? processor->free_ns : now_ns) + dependency->cpu_ns;
	work->ready_ns = processor->free_ns;
	work->retry_after_ms = deal->retry_after_ms;
	if (deal->kind == DEAL_ERROR) {
		work->receipt = RECEIPT_ERROR;
		return work->ready_ns;
	}

	bool has_room = processor->inside < deal->capacity;
	if ((!has_room && processor->waiting >= dependency->queue) || !is_accepted(processor, dependency, now_ns)) {
		work->receipt = RECEIPT_SHED;
		return work->ready_ns;
	}
	work->receipt = RECEIPT_OK;
	if (!has_room) {
		queue(processor, work);
		return SCENARIO_FOREVER;
	}
	enter(processor, work);
	return work->ready_ns + work->latency_ns;
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
	*due_ns = (work->ready_ns > now_ns ? work->ready_ns : now_ns) + work->latency_ns;
	return work;
}
