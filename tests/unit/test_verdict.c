/* SPDX-License-Identifier: MIT */
/* What came of expectations: each relation at its edges, in the takes that they are about; the comparison of views; the game day. */
#include "verdict.h"

#include <math.h>

#include "fixture.h"
#include "take.h"

/* ---- scenarios made by hand ---- */

static struct figure_ref ref(const char *figure, const char *of)
{
	struct figure_ref r = {.view = -1, .to_ns = SCENARIO_FOREVER};

	snprintf(r.figure, sizeof(r.figure), "%s", figure);
	snprintf(r.of, sizeof(r.of), "%s", of);
	return r;
}

static struct expectation expect(const char *figure, const char *of, enum relation relation, double value)
{
	return (struct expectation){.what = ref(figure, of), .relation = relation, .value = value};
}

static void judge_all(struct expectation *list, size_t count, const struct take *takes, size_t take_count, struct outcome *out)
{
	const struct scenarios scenarios = {.expectations = list, .expectation_count = count};

	ck_assert_int_eq(outcome_judge(&scenarios, takes, take_count, out), 0);
}

static bool holds(struct expectation expectation, const struct take *take)
{
	struct outcome outcome;

	judge_all(&expectation, 1, take, 1, &outcome);
	ck_assert_uint_eq(outcome.verdicts.count, 1);
	bool is = outcome.verdicts.items[0].holds;
	ck_assert_int_eq(outcome.good, is);
	ck_assert_uint_eq(outcome.verdicts.failed, is ? 0 : 1);
	outcome_free(&outcome);
	return is;
}

/* ---- relations ---- */

/* 13 users came, 6 of them were served. */
START_TEST(a_relation_holds_up_to_its_edge)
{
	struct made *m = made_story(VIEW_SHARED);
	struct expectation about = expect("offered", "users", IS_ABOUT, 15);

	ck_assert(holds(expect("offered", "users", IS_EQUAL, 13), &m->take));
	ck_assert(!holds(expect("offered", "users", IS_EQUAL, 12), &m->take));
	ck_assert(!holds(expect("offered", "users", IS_EQUAL, 14), &m->take));
	ck_assert(holds(expect("offered", "users", IS_AT_LEAST, 13), &m->take));
	ck_assert(!holds(expect("offered", "users", IS_AT_LEAST, 13.5), &m->take));
	ck_assert(holds(expect("offered", "users", IS_AT_MOST, 13), &m->take));
	ck_assert(!holds(expect("offered", "users", IS_AT_MOST, 12.5), &m->take));
	about.tolerance = 2;
	ck_assert(holds(about, &m->take));
	about.value = 11;
	ck_assert(holds(about, &m->take));
	about.tolerance = 1.9;
	ck_assert(!holds(about, &m->take));
	about.value = 15;
	ck_assert(!holds(about, &m->take));
	free(m);
}
END_TEST

/* Three tenths are 0.3, although no binary number is. */
START_TEST(the_last_bit_of_a_share_decides_nothing)
{
	struct made *m = made_story(VIEW_SHARED);
	const double tenth = 0.1;

	ck_assert(holds(expect("accepted_share", "prices", IS_EQUAL, tenth + tenth + tenth), &m->take));
	ck_assert(holds(expect("accepted_share", "prices", IS_AT_LEAST, tenth + tenth + tenth), &m->take));
	ck_assert(holds(expect("accepted_share", "prices", IS_AT_MOST, 0.3), &m->take));
	ck_assert(!holds(expect("accepted_share", "prices", IS_AT_MOST, 0.2999), &m->take));
	free(m);
}
END_TEST

START_TEST(where_there_is_no_figure_nothing_holds)
{
	struct made *m = made_story(VIEW_SHARED);
	struct expectation about = expect("recovered_after", "stock", IS_ABOUT, 100);

	about.tolerance = INFINITY;
	ck_assert(!holds(about, &m->take));
	for (int relation = IS_EQUAL; relation <= IS_ABOUT; relation++)
		ck_assert(!holds(expect("recovered_after", "stock", (enum relation)relation, 100), &m->take));
	free(m);
}
END_TEST

/* ---- which takes ---- */

/* The same take on both views and in two variants. */
struct takes {
	struct made *m;
	struct scenario variants[2];
	struct take items[4];
};

static void takes_make(struct takes *t)
{
	t->m = made_story(VIEW_SHARED);
	for (unsigned i = 0; i < 2; i++) {
		t->variants[i] = t->m->scenario;
		snprintf(t->variants[i].variant, sizeof(t->variants[i].variant), "%s", i == 0 ? "without" : "with");
	}
	for (unsigned i = 0; i < 4; i++) {
		t->items[i] = t->m->take;
		t->items[i].scenario = &t->variants[i / 2];
		t->items[i].view = i % 2 == 0 ? VIEW_OWN : VIEW_SHARED;
	}
}

START_TEST(an_expectation_is_judged_in_each_take_that_it_is_about)
{
	struct takes t;
	struct outcome outcome;
	struct expectation list[4];

	takes_make(&t);
	for (unsigned i = 0; i < 4; i++)
		list[i] = expect("offered", "users", IS_EQUAL, 13);
	snprintf(list[1].what.variant, sizeof(list[1].what.variant), "with");
	list[2].what.view = VIEW_OWN;
	snprintf(list[3].what.variant, sizeof(list[3].what.variant), "without");
	list[3].what.view = VIEW_SHARED;
	judge_all(list, 4, t.items, 4, &outcome);
	ck_assert_uint_eq(outcome.verdicts.count, 4 + 2 + 2 + 1);
	ck_assert_ptr_eq(outcome.verdicts.items[4].take, &t.items[2]);
	ck_assert_ptr_eq(outcome.verdicts.items[5].take, &t.items[3]);
	ck_assert_ptr_eq(outcome.verdicts.items[7].take, &t.items[2]);
	ck_assert_ptr_eq(outcome.verdicts.items[8].take, &t.items[1]);
	outcome_free(&outcome);
	free(t.m);
}
END_TEST

START_TEST(one_that_fails_in_one_take_is_not_good)
{
	struct takes t;
	struct outcome outcome;
	struct expectation expectation = expect("offered", "users", IS_AT_LEAST, 13);

	takes_make(&t);
	t.items[3].duration_ns = 3400 * MS;
	judge_all(&expectation, 1, t.items, 4, &outcome);
	ck_assert_uint_eq(outcome.verdicts.count, 4);
	ck_assert_uint_eq(outcome.verdicts.failed, 1);
	ck_assert(!outcome.verdicts.items[3].holds);
	ck_assert(!outcome.good);
	outcome_free(&outcome);
	free(t.m);
}
END_TEST

START_TEST(nothing_expected_is_good)
{
	struct outcome outcome;

	judge_all(NULL, 0, NULL, 0, &outcome);
	ck_assert(outcome.good);
	ck_assert(!outcome.game_day.given);
	outcome_free(&outcome);
}
END_TEST

/* ---- relative ones ---- */

START_TEST(a_figure_is_relative_to_another_one)
{
	struct made *m = made_story(VIEW_SHARED);
	struct expectation expectation = expect("received", "prices", IS_EQUAL, 10.0 / 13);

	expectation.relative = true;
	expectation.to = ref("offered", "users");
	ck_assert(holds(expectation, &m->take));
	expectation.to = ref("offered", "users"); /* nobody came then */
	expectation.to.from_ns = 3900 * MS;
	ck_assert(!holds(expectation, &m->take));
	free(m);
}
END_TEST

/* ... in the same take, or in that of another variant or view. */
START_TEST(what_it_is_relative_to_may_be_in_another_take)
{
	struct takes t;
	struct outcome outcome;
	struct expectation expectation = expect("offered", "users", IS_EQUAL, 13.0 / 12);

	takes_make(&t);
	t.items[1].duration_ns = 3400 * MS; /* without, shared: 12 came */
	expectation.relative = true;
	expectation.to = ref("offered", "users");
	snprintf(expectation.what.variant, sizeof(expectation.what.variant), "with");
	snprintf(expectation.to.variant, sizeof(expectation.to.variant), "without");
	judge_all(&expectation, 1, t.items, 4, &outcome);
	ck_assert_uint_eq(outcome.verdicts.count, 2);
	ck_assert(!outcome.verdicts.items[0].holds); /* own to own: 1 */
	ck_assert(outcome.verdicts.items[1].holds);
	outcome_free(&outcome);
	ck_assert_uint_eq(outcome.not_judged, 0);
	/* That variant was not played: there is nothing to judge. */
	judge_all(&expectation, 1, t.items + 2, 2, &outcome);
	ck_assert_uint_eq(outcome.verdicts.count, 0);
	ck_assert_uint_eq(outcome.not_judged, 1);
	outcome_free(&outcome);
	free(t.m);
}
END_TEST

/* ---- comparison of the views ---- */

static struct compared compared(const char *figure, bool less, double own, double shared, char text[128])
{
	static struct comparison comparison;
	struct made *m[2] = {made_new(VIEW_OWN), made_new(VIEW_SHARED)};
	const struct scenarios scenarios = {.comparisons = &comparison, .comparison_count = 1};
	struct outcome outcome;

	comparison = (struct comparison){.what = ref(figure, ""), .less_is_better = less};
	m[0]->take.tallies[PRICES].counters.fallback_stale = (uint64_t)own;
	m[1]->take.tallies[PRICES].counters.fallback_stale = (uint64_t)shared;
	made_sample(m[0], PRICES, 20, 0, 0)->throttle = (float)own;
	made_sample(m[1], PRICES, 20, 0, 0)->throttle = (float)shared;
	if (own > 0)
		made_move(m[0], PRICES, 0, (int64_t)own, RESC_CLOSED, RESC_BREAKER_OPEN);
	if (shared > 0)
		made_move(m[1], PRICES, 0, (int64_t)shared, RESC_CLOSED, RESC_BREAKER_OPEN);
	const struct take takes[] = {m[0]->take, m[1]->take};
	ck_assert_int_eq(outcome_judge(&scenarios, takes, 2, &outcome), 0);
	ck_assert_uint_eq(outcome.compared_count, 1);
	struct compared result = outcome.compared[0];
	compared_text(&result, text, 128);
	outcome_free(&outcome);
	free(m[0]);
	free(m[1]);
	return result;
}

static void check_compared(const char *figure, bool less, double own, double shared, enum better better, const char *text)
{
	char said[128];

	ck_assert_int_eq(compared(figure, less, own, shared, said).better, better);
	ck_assert_str_eq(said, text);
}

START_TEST(the_better_view_is_said_and_by_how_much)
{
	check_compared("fallbacks", true, 100, 72, BETTER_SHARED, "100 on own views, 72 on the shared one: 28% fewer");
	check_compared("fallbacks", false, 100, 72, BETTER_OWN, "100 on own views, 72 on the shared one: 28% fewer");
	check_compared("fallbacks", false, 100, 150, BETTER_SHARED, "100 on own views, 150 on the shared one: 50% more");
	check_compared("fallbacks", true, 20, 160, BETTER_OWN, "20 on own views, 160 on the shared one: 8 times as many");
	check_compared("fallbacks", true, 0, 5, BETTER_OWN, "0 on own views, 5 on the shared one: 5 more");
	check_compared("fallbacks", true, 5, 0, BETTER_SHARED, "5 on own views, 0 on the shared one: 100% fewer");
	check_compared("throttle_most", false, 0.25, 0.75, BETTER_SHARED, "25% on own views, 75% on the shared one: 50 points more");
	check_compared("opened_at", true, 2000, 1000, BETTER_SHARED, "2,000ms on own views, 1,000ms on the shared one: 50% less");
}
END_TEST

START_TEST(what_could_be_chance_is_no_difference)
{
	check_compared("fallbacks", true, 243, 243, BETTER_NONE, "243 on own views, 243 on the shared one: no difference");
	check_compared("fallbacks", true, 1000, 981, BETTER_NONE, "1,000 on own views, 981 on the shared one: no difference");
	check_compared("fallbacks", true, 2, 1, BETTER_NONE, "2 on own views, 1 on the shared one: no difference");
	check_compared("throttle_most", true, 0.0025, 0, BETTER_NONE, "0.25% on own views, 0% on the shared one: no difference");
	check_compared("opened_at", true, 20, 18, BETTER_NONE, "20ms on own views, 18ms on the shared one: no difference");
}
END_TEST

START_TEST(a_view_without_the_figure_is_not_compared)
{
	check_compared("opened_at", true, 0, 1500, BETTER_NONE, "none on own views, 1,500ms on the shared one");
	check_compared("opened_at", true, 0, 0, BETTER_NONE, "none on own views, none on the shared one");
}
END_TEST

START_TEST(each_variant_that_was_played_on_both_views_is_compared)
{
	struct takes t;
	struct outcome outcome;
	struct comparison comparisons[2] = {{.what = ref("received", "prices")}, {.what = ref("received", "prices")}};
	const struct scenarios scenarios = {.comparisons = comparisons, .comparison_count = 2};

	takes_make(&t);
	snprintf(comparisons[1].what.variant, sizeof(comparisons[1].what.variant), "with");
	ck_assert_int_eq(outcome_judge(&scenarios, t.items, 4, &outcome), 0);
	ck_assert_uint_eq(outcome.compared_count, 3);
	ck_assert_str_eq(outcome.compared[0].variant, "without");
	ck_assert_str_eq(outcome.compared[2].variant, "with");
	outcome_free(&outcome);
	ck_assert_int_eq(outcome_judge(&scenarios, t.items, 3, &outcome), 0); /* "with" on own views alone */
	ck_assert_uint_eq(outcome.compared_count, 1);
	outcome_free(&outcome);
	free(t.m);
}
END_TEST

/* ---- the game day ---- */

struct day {
	struct made *m;
	struct expectation steady, stop, answers[QUESTIONS];
	struct scenarios scenarios;
};

/* All of it holds in the story, but for a steady state that is asked to be too good by those who want that. */
static void day_make(struct day *d)
{
	d->m = made_story(VIEW_SHARED);
	d->steady = expect("latency_p99", "users", IS_AT_MOST, 30);
	d->stop = expect("answered_share", "users", IS_AT_LEAST, 0.4);
	d->answers[QUESTION_PROTECTED] = expect("received", "prices", IS_AT_MOST, 10);
	d->answers[QUESTION_NOTICED] = expect("opened_at", "prices", IS_AT_MOST, 1500);
	d->answers[QUESTION_RECOVERED] = expect("recovered_after", "prices", IS_AT_MOST, 1300);
	struct game_day *day = &d->scenarios.game_day;
	*day = (struct game_day){.given = true, .steady = &d->steady, .steady_count = 1, .abort = &d->stop, .abort_count = 1};
	for (unsigned q = 0; q < QUESTIONS; q++) {
		day->answers[q] = &d->answers[q];
		day->answer_count[q] = 1;
	}
}

static struct game_day_result day_judge(const struct day *d, bool good)
{
	struct outcome outcome;

	ck_assert_int_eq(outcome_judge(&d->scenarios, &d->m->take, 1, &outcome), 0);
	ck_assert_int_eq(outcome.good, good);
	struct game_day_result result = outcome.game_day;
	for (unsigned q = 0; q < QUESTIONS; q++)
		result.answers[q].because.items = NULL;
	outcome_free(&outcome);
	return result;
}

START_TEST(a_game_day_answers_three_questions)
{
	struct day d = {0};

	day_make(&d);
	struct game_day_result result = day_judge(&d, true);
	ck_assert(result.given && result.steady && result.hypothesis_holds);
	ck_assert_ptr_null(result.aborted);
	for (unsigned q = 0; q < QUESTIONS; q++)
		ck_assert(result.answers[q].yes);
	free(d.m);
}
END_TEST

START_TEST(one_no_refutes_the_hypothesis)
{
	for (unsigned q = 0; q < QUESTIONS; q++) {
		struct day d = {0};
		day_make(&d);
		d.answers[q].value -= 1;
		struct game_day_result result = day_judge(&d, false);
		ck_assert(result.steady && !result.hypothesis_holds);
		for (unsigned other = 0; other < QUESTIONS; other++)
			ck_assert_int_eq(result.answers[other].yes, other != q);
		free(d.m);
	}
}
END_TEST

/* What the scenario does not ask is neither a yes nor a no; one that asks nothing has no hypothesis that could hold. */
START_TEST(a_question_that_is_not_asked_is_not_answered)
{
	struct day d = {0};

	day_make(&d);
	d.scenarios.game_day.answer_count[QUESTION_NOTICED] = 0;
	struct game_day_result result = day_judge(&d, true);
	ck_assert(result.hypothesis_holds && !result.answers[QUESTION_NOTICED].yes);
	d.scenarios.game_day.answer_count[QUESTION_PROTECTED] = d.scenarios.game_day.answer_count[QUESTION_RECOVERED] = 0;
	result = day_judge(&d, false);
	ck_assert(!result.hypothesis_holds);
	free(d.m);
}
END_TEST

START_TEST(without_a_steady_state_the_hypothesis_is_not_tested)
{
	struct day d = {0};

	day_make(&d);
	d.steady.value = 29; /* one took 30 ms */
	struct game_day_result result = day_judge(&d, false);
	ck_assert(!result.steady && !result.hypothesis_holds);
	/* After the fault has begun, and in the last moments before, it may be worse. */
	d.steady = expect("rejected", "users", IS_EQUAL, 0);
	ck_assert(day_judge(&d, true).steady);
	d.m->requests[3].arrival_ns = 499 * MS;
	ck_assert(!day_judge(&d, false).steady);
	free(d.m);
}
END_TEST

static const char *look(const struct day *d, int64_t now_ms)
{
	const char *stopped = NULL;

	d->m->take.duration_ns = now_ms * MS;
	ck_assert_int_eq(game_day_look(&d->scenarios, &d->m->take, &stopped), stopped != NULL);
	return stopped;
}

START_TEST(a_good_day_is_not_stopped)
{
	struct day d = {0};

	day_make(&d);
	for (int64_t now = 0; now < 6000; now += 200)
		ck_assert_ptr_null(look(&d, now));
	ck_assert_ptr_nonnull(look(&d, 6000)); /* who came at 4,500 was still not answered */
	d.scenarios.game_day.given = false;
	d.steady.value = d.stop.value = 2;
	for (int64_t now = 0; now <= 6000; now += 200)
		ck_assert_ptr_null(look(&d, now));
	free(d.m);
}
END_TEST

START_TEST(it_is_stopped_just_before_the_fault_without_a_steady_state)
{
	struct day d = {0};

	day_make(&d);
	d.steady.value = 29;
	ck_assert_ptr_null(look(&d, 700));
	ck_assert_str_eq(look(&d, 800), "no steady state: users: p99 latency: 30ms, expected at most 29ms");
	d.m->take.stopped = d.m->board.why_stopped;
	struct game_day_result result = day_judge(&d, false);
	ck_assert(!result.steady);
	ck_assert_ptr_null(result.aborted);
	for (unsigned q = 0; q < QUESTIONS; q++) /* it was never put to the test */
		ck_assert(!result.answers[q].yes && result.answers[q].because.count == 0);
	free(d.m);
}
END_TEST

/* In the second one 5 came: 3 were answered by the fallback (60 %). */
START_TEST(a_second_that_is_too_bad_aborts_when_its_requests_had_time_to_end)
{
	struct day d = {0};

	day_make(&d);
	d.stop.value = 0.61;
	ck_assert_ptr_null(look(&d, 2900)); /* second 0: 2 of 3 */
	ck_assert_str_eq(look(&d, 3000), "aborted: users: share of requests answered, from 1s to 2s: 60%, expected at least 61%");
	d.m->take.stopped = d.m->board.why_stopped;
	struct game_day_result result = day_judge(&d, false);
	ck_assert_str_eq(result.aborted, "users: share of requests answered, from 1s to 2s: 60%, expected at least 61%");
	ck_assert_ptr_eq(result.aborted_take, &d.m->take);
	ck_assert(result.steady && !result.hypothesis_holds);
	free(d.m);
}
END_TEST

START_TEST(a_late_look_sees_the_second_before_too)
{
	struct day d = {0};

	day_make(&d);
	d.stop.value = 0.61;
	ck_assert_ptr_nonnull(look(&d, 4100));
	ck_assert_ptr_null(look(&d, 5100)); /* second 2: all; second 3: 2 of 3 */
	free(d.m);
}
END_TEST

START_TEST(a_look_that_is_later_still_sees_all_that_nobody_has_looked_at)
{
	struct day d = {0};

	day_make(&d);
	d.stop.value = 0.61;
	ck_assert_ptr_null(look(&d, 1900));
	ck_assert_ptr_nonnull(look(&d, 5100)); /* second 1; the lab may have stood still for so long */
	free(d.m);
}
END_TEST

START_TEST(a_second_in_which_nobody_came_aborts_nothing)
{
	struct day d = {0};

	day_make(&d);
	d.stop = expect("latency_max", "jobs", IS_AT_MOST, 80);
	for (int64_t now = 0; now <= 6000; now += 200)
		ck_assert_ptr_null(look(&d, now));
	free(d.m);
}
END_TEST

START_TEST(what_must_hold_for_a_time_is_looked_at_then)
{
	struct day d = {0};

	day_make(&d);
	d.stop.value = 0.61;
	d.stop.what.from_ns = 2000 * MS;
	for (int64_t now = 0; now <= 4000; now += 200)
		ck_assert_ptr_null(look(&d, now));
	free(d.m);
}
END_TEST

/* ---- words ---- */

START_TEST(figures_and_expectations_are_said_in_words)
{
	char text[128];
	struct figure_ref r = ref("success_share", "users");
	struct expectation e = expect("received", "prices", IS_ABOUT, 72);

	figure_text(&r, text, sizeof(text));
	ck_assert_str_eq(text, "users: share of requests served");
	r.from_ns = 1000 * MS;
	figure_text(&r, text, sizeof(text));
	ck_assert_str_eq(text, "users: share of requests served, from 1s");
	r.to_ns = 2500 * MS;
	figure_text(&r, text, sizeof(text));
	ck_assert_str_eq(text, "users: share of requests served, from 1s to 2500ms");
	r = ref("opened_at", "");
	r.nth = 22;
	figure_text(&r, text, sizeof(text));
	ck_assert_str_eq(text, "time when a breaker opened (22nd)");
	r = ref("retries_slots", "prices");
	r.width_ns = 10 * MS;
	figure_text(&r, text, sizeof(text));
	ck_assert_str_eq(text, "prices: slots with retries (10ms)");
	figure_text(&r, text, 8);
	ck_assert_str_eq(text, "prices:");

	e.tolerance = 3;
	expectation_text(&e, text, sizeof(text));
	ck_assert_str_eq(text, "72 within 3");
	e.relation = IS_AT_MOST;
	e.has_published = true;
	e.published = 72;
	expectation_text(&e, text, sizeof(text));
	ck_assert_str_eq(text, "at most 72, published 72");
	e.relative = true;
	e.relation = IS_EQUAL;
	e.value = 1.1;
	e.published = 1.07;
	expectation_text(&e, text, sizeof(text));
	ck_assert_str_eq(text, "1.1, published 1.07");
	e = expect("latency_p99", "users", IS_AT_LEAST, 301);
	expectation_text(&e, text, sizeof(text));
	ck_assert_str_eq(text, "at least 301ms");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_relation_holds_up_to_its_edge,
	        the_last_bit_of_a_share_decides_nothing,
	        where_there_is_no_figure_nothing_holds,
	        an_expectation_is_judged_in_each_take_that_it_is_about,
	        one_that_fails_in_one_take_is_not_good,
	        nothing_expected_is_good,
	        a_figure_is_relative_to_another_one,
	        what_it_is_relative_to_may_be_in_another_take,
	        the_better_view_is_said_and_by_how_much,
	        what_could_be_chance_is_no_difference,
	        a_view_without_the_figure_is_not_compared,
	        each_variant_that_was_played_on_both_views_is_compared,
	        a_game_day_answers_three_questions,
	        one_no_refutes_the_hypothesis,
	        a_question_that_is_not_asked_is_not_answered,
	        without_a_steady_state_the_hypothesis_is_not_tested,
	        a_good_day_is_not_stopped,
	        it_is_stopped_just_before_the_fault_without_a_steady_state,
	        a_second_that_is_too_bad_aborts_when_its_requests_had_time_to_end,
	        a_late_look_sees_the_second_before_too,
	        a_look_that_is_later_still_sees_all_that_nobody_has_looked_at,
	        a_second_in_which_nobody_came_aborts_nothing,
	        what_must_hold_for_a_time_is_looked_at_then,
	        figures_and_expectations_are_said_in_words,
	};

	return FIXTURE_RUN("verdict", tests, NULL, NULL);
}
