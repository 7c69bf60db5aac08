/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a game day is an experiment with an end to it. First there must be a steady state, or what comes after says nothing;
 * while it goes on, some things must hold each second, or it is stopped before it does harm; and at the end there are three questions to
 * answer: did it protect itself, was it noticed, did it recover alone.
 *
 * A request counts by its arrival, so a second can only be judged when its requests had time to end: a grace after it. What has not ended
 * by then is counted as what it is: not answered. The steady state is judged just before the first fault begins, over the time until then
 * but for the last moments.
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "figures_measure.h"
#include "judging.h"

#define NO_STEADY_STATE "no steady state: "
#define ABORTED         "aborted: "
#define STEADY_EDGE_NS  INT64_C(500000000) /* before the first fault: not looked at any more, at most half of the time */
#define LOOK_NS         INT64_C(250000000) /* looks are not further apart */

/* ---- the steady state ---- */

/* When the first fault begins; without a fault by time when a call first met one; without that never. */
static int64_t first_fault(const struct take *take)
{
	const struct scenario *scenario = take->scenario;
	int64_t from_ns = SCENARIO_FOREVER;

	for (size_t d = 0; d < scenario->dependency_count; d++) {
		for (size_t f = 0; f < scenario->dependencies[d].fault_count; f++) {
			const struct fault *fault = &scenario->dependencies[d].faults[f];
			if (fault->from_request == 0 && fault->from_ns < from_ns)
				from_ns = fault->from_ns;
		}
	}
	for (size_t i = 0; from_ns == SCENARIO_FOREVER && i < take->receipt_count; i++) {
		const struct receipt_note *receipt = &take->board->receipt_notes[i];
		if (note_done(&receipt->done) && receipt->during_fault)
			from_ns = receipt->received_ns;
	}
	return from_ns;
}

/* The end of the time over which the steady state is judged. */
static int64_t steady_end(int64_t fault_ns)
{
	if (fault_ns == SCENARIO_FOREVER)
		return SCENARIO_FOREVER;
	return fault_ns - (fault_ns / 2 < STEADY_EDGE_NS ? fault_ns / 2 : STEADY_EDGE_NS);
}

static int judge_steady(const struct game_day *day, const struct takes *takes, struct verdicts *out)
{
	struct verdict verdict;

	for (size_t i = 0; i < day->steady_count; i++) {
		for (size_t t = 0; t < takes->count; t++) {
			const struct take *take = &takes->items[t];
			if (judge(&day->steady[i], takes, take, 0, steady_end(first_fault(take)), &verdict) &&
			    verdicts_add(out, &verdict) != 0)
				return -ENOMEM;
		}
	}
	return 0;
}

/* ---- while it is played ---- */

/* "no steady state: users: share of requests answered: 41%, expected at least 99%" */
static bool stop(const struct verdict *verdict, const char *kind, const char *when, const char **stopped)
{
	const struct expectation *expectation = verdict->expectation;
	struct board *board = verdict->take->board;
	char what[128], expected[96];

	figure_text(&expectation->what, what, sizeof(what));
	expectation_text(expectation, expected, sizeof(expected));
	snprintf(board->why_stopped, sizeof(board->why_stopped), "%s%s%s: %s, expected %s", kind, what, when,
	         figure_value_text(expectation_unit(expectation), verdict->value).s, expected);
	*stopped = board->why_stopped;
	return true;
}

static bool look_at_steady(const struct game_day *day, const struct take *take, const char **stopped)
{
	const struct takes alone = {take, 1};
	int64_t fault_ns = first_fault(take), now_ns = take->duration_ns;
	struct verdict verdict;

	/* Once: later looks would see the same requests, with what became of them after the fault. */
	if (now_ns < fault_ns - LOOK_NS || now_ns > fault_ns + LOOK_NS)
		return false;
	for (size_t i = 0; i < day->steady_count; i++)
		if (judge(&day->steady[i], &alone, take, 0, steady_end(fault_ns), &verdict) && !verdict.holds)
			return stop(&verdict, NO_STEADY_STATE, "", stopped);
	return false;
}

/* A second in which there is nothing to judge is no reason to stop. */
static bool look_at_second(const struct game_day *day, const struct take *take, int64_t second, const char **stopped)
{
	const struct takes alone = {take, 1};
	struct verdict verdict;
	char when[64];

	for (size_t i = 0; i < day->abort_count; i++) {
		if (!judge(&day->abort[i], &alone, take, second * SECOND_NS, (second + 1) * SECOND_NS, &verdict))
			continue;
		if (verdict.holds || isnan(verdict.value))
			continue;
		snprintf(when, sizeof(when), ", from %llds to %llds", (long long)second, (long long)second + 1);
		return stop(&verdict, ABORTED, when, stopped);
	}
	return false;
}

bool game_day_look(const struct scenarios *scenarios, const struct take *take, const char **stopped)
{
	const struct game_day *day = &scenarios->game_day;
	int64_t last = (take->duration_ns - GAME_DAY_GRACE_NS) / SECOND_NS - 1;

	if (!day->given)
		return false;
	if (look_at_steady(day, take, stopped))
		return true;
	/* The one before, too, and all that nobody has looked at: looks may be late. */
	int64_t first = take->board->looked_until < last - 1 ? take->board->looked_until : last - 1;
	take->board->looked_until = last + 1 > 0 ? last + 1 : 0;
	for (int64_t second = first > 0 ? first : 0; second <= last; second++)
		if (look_at_second(day, take, second, stopped))
			return true;
	return false;
}

/* ---- afterwards ---- */

static bool stopped_by(const struct take *take, const char *kind)
{
	return take->stopped != NULL && strncmp(take->stopped, kind, strlen(kind)) == 0;
}

int game_day_judge(const struct scenarios *scenarios, const struct takes *takes, struct game_day_result *out)
{
	const struct game_day *day = &scenarios->game_day;
	bool asked = false, cut = false;

	out->given = day->given;
	if (!day->given)
		return 0;
	int r = judge_steady(day, takes, &out->steady_state);
	out->steady = out->steady_state.failed == 0;
	for (size_t t = 0; t < takes->count; t++) {
		const struct take *take = &takes->items[t];
		cut |= take->stopped != NULL;
		out->steady &= !stopped_by(take, NO_STEADY_STATE);
		if (out->aborted == NULL && stopped_by(take, ABORTED)) {
			out->aborted = take->stopped + strlen(ABORTED);
			out->aborted_take = take;
		}
	}
	out->hypothesis_holds = out->steady && !cut;
	/* What was stopped has not shown anything. */
	for (unsigned q = 0; q < QUESTIONS && r == 0 && !cut; q++) {
		struct answer *answer = &out->answers[q];
		r = verdicts_judge(&answer->because, day->answers[q], day->answer_count[q], takes);
		answer->yes = answer->because.count > 0 && answer->because.failed == 0;
		asked |= answer->because.count > 0;
		out->hypothesis_holds &= answer->yes || answer->because.count == 0;
	}
	out->hypothesis_holds &= asked;
	return r;
}

void game_day_free(struct game_day_result *result)
{
	verdicts_free(&result->steady_state);
	for (unsigned q = 0; q < QUESTIONS; q++)
		verdicts_free(&result->answers[q].because);
}
