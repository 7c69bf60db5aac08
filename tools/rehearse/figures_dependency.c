/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what reached the dependency. That is what the patterns are for, and no caller can see it: each knows its own calls
 * alone, and not whether somebody still worked on them when it had gone. A receipt counts by when it was received.
 */
#include "figures_measure.h"

static const struct receipt_note *next_receipt(const struct inquiry *q, size_t *next)
{
	while (*next < q->take->receipt_count) {
		const struct receipt_note *receipt = &q->take->board->receipt_notes[(*next)++];
		if (note_done(&receipt->done) && asked_of(q, receipt->dependency) && asked_time(q, receipt->received_ns))
			return receipt;
	}
	return NULL;
}

static bool is_which(const struct receipt_note *receipt, enum received_which which)
{
	switch (which) {
	case RECEIVED_ALL:
		return true;
	case RECEIVED_IN_FAULT:
		return receipt->during_fault;
	case RECEIVED_ANSWERED:
		return receipt->receipt == RECEIPT_OK && !receipt->caller_gone;
	case RECEIVED_COMPLETED:
		return receipt->receipt == RECEIPT_OK;
	case RECEIVED_ERRORS:
		return receipt->receipt == RECEIPT_ERROR;
	case RECEIVED_SHED:
		return receipt->receipt == RECEIPT_SHED;
	case RECEIVED_HUNG:
		return receipt->receipt == RECEIPT_HUNG;
	case RECEIVED_RESET:
		return receipt->receipt == RECEIPT_RESET;
	case RECEIVED_PENDING:
		return receipt->receipt == RECEIPT_PENDING;
	}
	return false;
}

double figure_received(const struct inquiry *q, int which)
{
	const struct receipt_note *receipt;
	uint32_t count = 0;

	for (size_t i = 0; (receipt = next_receipt(q, &i)) != NULL;)
		count += is_which(receipt, (enum received_which)which);
	return count;
}

double figure_received_worst(const struct inquiry *q, int unused)
{
	struct slots slots = {.from_ns = q->from_ns, .width_ns = SECOND_NS};
	const struct receipt_note *receipt;

	(void)unused;
	for (size_t i = 0; (receipt = next_receipt(q, &i)) != NULL;)
		slots_add(&slots, receipt->received_ns);
	double most = slots_most(&slots);
	slots_free(&slots);
	return most;
}

double figure_accepted_share(const struct inquiry *q, int unused)
{
	(void)unused;
	return share_of(figure_received(q, RECEIVED_ANSWERED), figure_received(q, RECEIVED_ALL));
}

double figure_amplification(const struct inquiry *q, int unused)
{
	const struct scenario *scenario = q->take->scenario;
	struct inquiry of_load = *q;
	double offered = 0;

	(void)unused;
	for (size_t i = 0; i < scenario->load_count; i++) {
		if (scenario->loads[i].dependency < 0 || !asked_of(q, (uint32_t)scenario->loads[i].dependency))
			continue;
		of_load.of = (int)i;
		offered += figure_requests(&of_load, REQUESTS_OFFERED);
	}
	return share_of(figure_received(q, RECEIVED_ALL), offered);
}
