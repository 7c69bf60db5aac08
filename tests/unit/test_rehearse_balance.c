/* SPDX-License-Identifier: MIT */
/* Notes and counters of a take: they agree but for what was going on at the end, and a take in which they do not is none. */
#include "balance.h"

#include <errno.h>
#include <string.h>

#include "fixture.h"

enum { NOTES = 6 };

static struct scenario scenario = {.resources = {"prices", "stock"}, .resource_count = 2};
static struct attempt_note notes[NOTES];
static struct board board = {.attempt_notes = notes};
static struct take take;

static void note(unsigned i, unsigned resource, int answer, enum resc_outcome outcome)
{
	notes[i] = (struct attempt_note){
	        .resource = (uint16_t)resource, .try = 1, .answer = (int16_t)answer, .outcome = (uint8_t)outcome, .retry = -1, .done = 1};
}

/* Two resources; of "prices" one call failed and was tried again, and one was refused. */
static void set_up(void)
{
	memset(notes, 0, sizeof(notes));
	take = (struct take){.scenario = &scenario, .board = &board, .attempt_count = 4};
	note(0, 0, 0, RESC_FAIL);
	notes[0].retry = 0;
	note(1, 0, 0, RESC_OK);
	note(2, 0, RESC_E_OPEN, RESC_OK);
	note(3, 1, 0, RESC_TIMEOUT);
	take.tallies[0].counters =
	        (struct resc_counters){.enters = 3, .admitted = 2, .ended_ok = 1, .ended_fail = 1, .refused_open = 1, .retries = 1};
	take.tallies[1].counters = (struct resc_counters){.enters = 1, .admitted = 1, .ended_timeout = 1};
}

START_TEST(notes_and_counters_that_say_the_same_agree)
{
	ck_assert_int_eq(balance_check(&take), 0);
}
END_TEST

START_TEST(a_call_that_was_counted_and_not_noted_is_no_result)
{
	take.tallies[1].counters.enters++;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
}
END_TEST

START_TEST(a_call_that_was_noted_and_not_counted_is_no_result)
{
	take.tallies[0].counters.ended_ok--;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
}
END_TEST

START_TEST(another_reason_of_refusal_is_no_result)
{
	take.tallies[0].counters.refused_open--;
	take.tallies[0].counters.refused_half_open++;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
}
END_TEST

START_TEST(what_was_going_on_at_the_end_may_have_been_counted_once)
{
	note(4, 1, 0, RESC_OK);
	notes[4].done = 0;
	take.attempt_count = 5;
	ck_assert_int_eq(balance_check(&take), 0);
	take.tallies[1].counters.enters++;
	take.tallies[1].counters.admitted++;
	take.tallies[1].counters.ended_cancelled++;
	ck_assert_int_eq(balance_check(&take), 0);
	take.tallies[1].counters.admitted++;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
}
END_TEST

START_TEST(a_note_without_a_word_may_be_of_any_resource)
{
	take.attempt_count = 5; /* number 4 was drawn, and nothing written */
	take.tallies[1].counters.enters++;
	ck_assert_int_eq(balance_check(&take), 0);
}
END_TEST

/* From the ring of events, which forgets, and leaves out whoever is slow; and from a counter, which does neither. */
START_TEST(a_transition_that_was_counted_and_not_seen_is_no_result)
{
	struct transition_note seen[] = {{.resource = 0, .to = RESC_BREAKER_OPEN}, {.resource = 0, .to = RESC_HALF_OPEN}};

	take.transitions = seen;
	take.transition_count = 2;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
	take.tallies[0].counters.opened = take.tallies[0].counters.half_opened = 1;
	ck_assert_int_eq(balance_check(&take), 0);
	take.transition_count = 1;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
	take.transition_count = 0;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
	seen[0].resource = 1;
	take.transition_count = 2;
	ck_assert_int_eq(balance_check(&take), -EBADMSG);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        notes_and_counters_that_say_the_same_agree,
	        a_call_that_was_counted_and_not_noted_is_no_result,
	        a_call_that_was_noted_and_not_counted_is_no_result,
	        another_reason_of_refusal_is_no_result,
	        what_was_going_on_at_the_end_may_have_been_counted_once,
	        a_note_without_a_word_may_be_of_any_resource,
	        a_transition_that_was_counted_and_not_seen_is_no_result,
	};

	return FIXTURE_RUN("rehearse_balance", tests, set_up, NULL);
}
