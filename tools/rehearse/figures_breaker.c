/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what the breakers did and when, from the events of the segment, and how long it took until everybody was served again.
 * On own views there is a breaker a worker, and what is counted is all of them.
 */
#include "figures_measure.h"

#include "resc.h"

static bool is_asked(const struct inquiry *q, const struct transition_note *transition)
{
	return asked_of(q, transition->resource) && asked_time(q, transition->at_ns);
}

double figure_transitions(const struct inquiry *q, int to)
{
	uint32_t count = 0;

	for (size_t i = 0; i < q->take->transition_count; i++)
		count += q->take->transitions[i].to == to && is_asked(q, &q->take->transitions[i]);
	return count;
}

double figure_transition_at(const struct inquiry *q, int to)
{
	uint32_t nth = q->nth == 0 ? 1 : q->nth;

	for (size_t i = 0; i < q->take->transition_count; i++) {
		const struct transition_note *transition = &q->take->transitions[i];
		if (transition->to == to && is_asked(q, transition) && --nth == 0)
			return (double)transition->at_ns / NS_PER_MS;
	}
	return NAN;
}

static int64_t clamp(int64_t ns, int64_t from_ns, int64_t to_ns)
{
	return ns < from_ns ? from_ns : ns > to_ns ? to_ns : ns;
}

/* A breaker that is not closed any more counts from then on, one that closes until then, and the others to the end. */
double figure_open_time(const struct inquiry *q, int unused)
{
	const struct take *take = q->take;
	int64_t to_ns = q->to_ns < take->duration_ns ? q->to_ns : take->duration_ns;
	int64_t from_ns = q->from_ns < to_ns ? q->from_ns : to_ns, sum_ns = 0;

	(void)unused;
	for (size_t i = 0; i < take->transition_count; i++) {
		const struct transition_note *transition = &take->transitions[i];
		int64_t left_ns = to_ns - clamp(transition->at_ns, from_ns, to_ns);
		if (!asked_of(q, transition->resource))
			continue;
		if (transition->from == RESC_CLOSED)
			sum_ns += left_ns;
		if (transition->to == RESC_CLOSED)
			sum_ns -= left_ns;
	}
	uint32_t breakers = take->view == VIEW_OWN && take->scenario->workers > 0 ? take->scenario->workers : 1;
	return (double)sum_ns / NS_PER_MS / breakers;
}

/* ---- recovery ---- */

bool load_uses(const struct load *load, int resource)
{
	if (resource < 0)
		return true;
	for (size_t i = 0; i < load->chain_count; i++)
		if (load->chain[i] == (uint32_t)resource)
			return true;
	return false;
}

bool resource_leads_to(const struct scenario *scenario, int resource, unsigned dependency)
{
	for (size_t i = 0; i < scenario->load_count; i++)
		if (scenario->loads[i].dependency == (int)dependency && load_uses(&scenario->loads[i], resource))
			return true;
	return false;
}

/* Of a fault that is given by the numbers of requests: when the last call met it. */
static int64_t last_met(const struct inquiry *q, unsigned dependency)
{
	const struct board *board = q->take->board;
	int64_t last_ns = -1;

	for (size_t i = 0; i < q->take->receipt_count; i++) {
		const struct receipt_note *receipt = &board->receipt_notes[i];
		if (note_done(&receipt->done) && receipt->dependency == dependency && receipt->during_fault &&
		    receipt->received_ns > last_ns)
			last_ns = receipt->received_ns;
	}
	return last_ns;
}

int64_t fault_end(const struct inquiry *q)
{
	const struct scenario *scenario = q->take->scenario;
	int64_t end_ns = -1;

	for (unsigned d = 0; d < scenario->dependency_count; d++) {
		const struct dependency *dependency = &scenario->dependencies[d];
		if (!resource_leads_to(scenario, q->of, d))
			continue;
		for (size_t f = 0; f < dependency->fault_count; f++) {
			const struct fault *fault = &dependency->faults[f];
			int64_t to_ns = fault->from_request != 0 ? last_met(q, d) : fault->to_ns;
			if (to_ns > end_ns)
				end_ns = to_ns;
		}
	}
	return end_ns < q->take->duration_ns ? end_ns : -1;
}

/* What a worker did after the fault. */
struct recovery {
	bool asked;
	int64_t fresh_ns; /* the end of its first fresh answer; INT64_MAX: none */
};

static void see_recovery(const struct inquiry *q, int64_t end_ns, struct recovery *workers)
{
	const struct board *board = q->take->board;

	for (uint32_t i = 0; i < board->request_count; i++) {
		const struct request_note *request = &board->requests[i];
		if (!note_done(&request->done) || request->ended_ns < end_ns || request->served == SERVED_REJECTED)
			continue;
		if (request->worker >= SCENARIO_WORKERS || !load_uses(&q->take->scenario->loads[request->load], q->of))
			continue;
		struct recovery *worker = &workers[request->worker];
		worker->asked = true;
		if (request->served == SERVED_FRESH && request->ended_ns < worker->fresh_ns)
			worker->fresh_ns = request->ended_ns;
	}
}

double figure_recovered_after(const struct inquiry *q, int unused)
{
	struct recovery workers[SCENARIO_WORKERS];
	int64_t end_ns = fault_end(q), last_ns = -1;

	(void)unused;
	if (end_ns < 0)
		return NAN;
	for (unsigned i = 0; i < SCENARIO_WORKERS; i++)
		workers[i] = (struct recovery){false, INT64_MAX};
	see_recovery(q, end_ns, workers);
	for (unsigned i = 0; i < SCENARIO_WORKERS; i++)
		if (workers[i].asked && workers[i].fresh_ns > last_ns)
			last_ns = workers[i].fresh_ns;
	return last_ns < 0 || last_ns == INT64_MAX ? NAN : (double)(last_ns - end_ns) / NS_PER_MS;
}
