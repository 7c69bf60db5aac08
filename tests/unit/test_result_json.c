/* SPDX-License-Identifier: MIT */
/*
 * The document of a rehearsal: complete, and the same as what the figures say. With REHEARSAL_JSON=DIRECTORY two documents are left
 * there, and tests/system/test_rehearsal_schema.py holds them against the schema.
 */
#include <jansson.h>
#include <math.h>

#include "fixture.h"
#include "present.h"
#include "take.h"

/* ---- a rehearsal of two takes, made by hand ---- */

struct rehearsal {
	struct made *m;
	struct scenario variant;
	struct take takes[2];
	struct expectation expectations[3];
	struct comparison comparison;
	struct expectation day[5];
	struct scenarios scenarios;
	struct outcome outcome;
};

static struct expectation expect(const char *figure, const char *of, enum relation relation, double value)
{
	struct expectation e = {.what = {.view = -1, .to_ns = SCENARIO_FOREVER}, .relation = relation, .value = value};

	snprintf(e.what.figure, sizeof(e.what.figure), "%s", figure);
	snprintf(e.what.of, sizeof(e.what.of), "%s", of);
	return e;
}

static void make_expectations(struct rehearsal *r)
{
	static char why[] = "because";

	r->expectations[0] = expect("received", "prices", IS_ABOUT, 11);
	r->expectations[0].tolerance = 1;
	r->expectations[0].has_published = true;
	r->expectations[0].published = 12;
	r->expectations[0].why = why;
	r->expectations[1] = expect("opened_at", "prices", IS_AT_MOST, 1600); /* there is no third opening */
	r->expectations[1].what.nth = 3;
	r->expectations[1].what.view = VIEW_SHARED;
	r->expectations[2] = expect("retries_busiest_slot", "prices", IS_AT_LEAST, 1);
	r->expectations[2].what.width_ns = 10 * MS;
	r->expectations[2].relative = true;
	r->expectations[2].to = expect("offered", "users", IS_EQUAL, 0).what;
	r->expectations[2].to.from_ns = 1000 * MS;
	r->expectations[2].to.to_ns = 3000 * MS;
	r->comparison = (struct comparison){.what = expect("attempts", "prices", IS_EQUAL, 0).what, .less_is_better = true};
}

static void make_game_day(struct rehearsal *r)
{
	static char hypothesis[] = "it holds";
	struct game_day *day = &r->scenarios.game_day;

	r->day[0] = expect("success_share", "users", IS_AT_LEAST, 0.5);
	r->day[1] = expect("answered_share", "users", IS_AT_LEAST, 0.1);
	r->day[2] = expect("late", "users", IS_AT_MOST, 1);
	r->day[3] = expect("recovered_after", "stock", IS_AT_MOST, 1000); /* it never failed */
	*day = (struct game_day){
	        .given = true, .hypothesis = hypothesis, .steady = &r->day[0], .steady_count = 1, .abort = &r->day[1], .abort_count = 1};
	day->answers[QUESTION_PROTECTED] = &r->day[2];
	day->answers[QUESTION_RECOVERED] = &r->day[3];
	day->answer_count[QUESTION_PROTECTED] = day->answer_count[QUESTION_RECOVERED] = 1;
}

/* stopped: why the take on own views was; NULL: it was not. */
static json_t *rehearsal_json(struct rehearsal *r, const char *stopped)
{
	*r = (struct rehearsal){.m = made_story(VIEW_SHARED)};
	r->variant = r->m->scenario;
	snprintf(r->variant.variant, sizeof(r->variant.variant), "as it is");
	snprintf(r->variant.experiment, sizeof(r->variant.experiment), "E7");
	for (unsigned i = 0; i < 2; i++) {
		r->takes[i] = r->m->take;
		r->takes[i].scenario = &r->variant;
	}
	r->takes[0].view = VIEW_OWN;
	r->takes[0].stopped = stopped;
	if (stopped != NULL)
		r->takes[0].duration_ns = 2500 * MS;
	make_expectations(r);
	r->scenarios = (struct scenarios){
	        .items = &r->variant,
	        .count = 1,
	        .expectations = r->expectations,
	        .expectation_count = 3,
	        .comparisons = &r->comparison,
	        .comparison_count = 1,
	};
	make_game_day(r);
	ck_assert_int_eq(outcome_judge(&r->scenarios, r->takes, 2, &r->outcome), 0);
	json_t *document = result_json(&r->scenarios, r->takes, 2, &r->outcome);
	ck_assert_ptr_nonnull(document);
	return document;
}

static void rehearsal_free(struct rehearsal *r, json_t *document)
{
	json_decref(document);
	outcome_free(&r->outcome);
	free(r->m);
}

/* "takes.1.loads.users.served" */
static json_t *at(json_t *document, const char *path)
{
	char copy[128], *rest = copy, *key;

	snprintf(copy, sizeof(copy), "%s", path);
	while ((key = strsep(&rest, ".")) != NULL)
		document = json_is_array(document) ? json_array_get(document, (size_t)atoi(key)) : json_object_get(document, key);
	ck_assert_msg(document != NULL, "there is no %s", path);
	return document;
}

/* ---- tests ---- */

START_TEST(it_can_be_left_for_the_schema)
{
	static const char *const stopped[] = {NULL, "aborted: by hand"};
	const char *directory = getenv("REHEARSAL_JSON");
	struct rehearsal r;
	char path[512];

	for (unsigned i = 0; i < 2; i++) {
		json_t *document = rehearsal_json(&r, stopped[i]);
		if (directory != NULL) {
			snprintf(path, sizeof(path), "%s/%s.json", directory, i == 0 ? "whole" : "stopped");
			ck_assert_int_eq(json_dump_file(document, path, JSON_INDENT(1)), 0);
		}
		rehearsal_free(&r, document);
	}
}
END_TEST

/* Each figure that needs no width is there, for each load, resource and dependency, with the value that figure_value says. */
START_TEST(it_has_every_figure)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, NULL);
	size_t count;
	const struct figure *figures = figures_all(&count);
	static const char *const places[] = {"takes.1.loads.users", "takes.1.resources.prices", "takes.1.dependencies.prices"};

	for (size_t i = 0; i < count; i++) {
		struct figure_ref ref = {.view = -1, .to_ns = SCENARIO_FOREVER};
		json_t *value = json_object_get(at(document, places[figures[i].of]), figures[i].name);
		ck_assert_ptr_nonnull(json_object_get(at(document, "figures"), figures[i].name));
		ck_assert_msg((value == NULL) == figures[i].takes_width, "%s", figures[i].name);
		snprintf(ref.figure, sizeof(ref.figure), "%s", figures[i].name);
		snprintf(ref.of, sizeof(ref.of), "%s", figures[i].of == OF_LOAD ? "users" : "prices");
		double expected = figure_value(&r.takes[1], &ref);
		if (value != NULL && isnan(expected))
			ck_assert_msg(json_is_null(value), "%s", figures[i].name);
		else if (value != NULL)
			ck_assert_double_eq_tol(json_number_value(value), expected, 1e-9);
	}
	rehearsal_free(&r, document);
}
END_TEST

START_TEST(what_there_is_not_is_null)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, NULL);

	ck_assert(json_is_null(at(document, "takes.1.resources.stock.recovered_after")));
	ck_assert(json_is_null(at(document, "takes.1.stopped")));
	ck_assert(json_is_null(at(document, "takes.1.loads.jobs.seconds.1.latency_p50_ms")));
	ck_assert(json_is_null(at(document, "scenario.variants.0.backlog")));
	ck_assert(json_is_null(at(document, "expectations.2.measured"))); /* the third opening */
	ck_assert(json_is_null(at(document, "game_day.noticed")));
	rehearsal_free(&r, document);
}
END_TEST

START_TEST(published_and_measured_stand_side_by_side)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, NULL);

	ck_assert_uint_eq(json_array_size(at(document, "expectations")), 5);
	ck_assert_str_eq(json_string_value(at(document, "expectations.0.view")), "own");
	ck_assert_int_eq(json_integer_value(at(document, "expectations.0.published")), 12);
	ck_assert_int_eq(json_integer_value(at(document, "expectations.0.measured")), 10);
	ck_assert(json_is_true(at(document, "expectations.0.holds")));
	ck_assert(json_is_false(at(document, "expectations.2.holds")));
	ck_assert_str_eq(json_string_value(at(document, "expectations.3.relative_to.figure")), "offered");
	ck_assert_str_eq(json_string_value(at(document, "expectations.3.unit")), "ratio");
	ck_assert_str_eq(json_string_value(at(document, "comparisons.0.better")), "none");
	ck_assert(json_is_false(at(document, "good")));
	rehearsal_free(&r, document);
}
END_TEST

START_TEST(the_game_day_has_its_answers_and_why)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, NULL);

	ck_assert(json_is_true(at(document, "game_day.steady")));
	ck_assert(json_is_true(at(document, "game_day.protected.yes")));
	ck_assert(json_is_false(at(document, "game_day.recovered.yes")));
	ck_assert(json_is_false(at(document, "game_day.holds")));
	ck_assert_uint_eq(json_array_size(at(document, "game_day.recovered.because")), 2);
	r.outcome.game_day.given = false;
	json_t *without = result_json(&r.scenarios, r.takes, 2, &r.outcome);
	ck_assert(json_is_null(at(without, "game_day")));
	json_decref(without);
	rehearsal_free(&r, document);
}
END_TEST

START_TEST(a_take_that_was_stopped_says_so)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, "aborted: by hand");

	ck_assert_str_eq(json_string_value(at(document, "takes.0.stopped")), "aborted: by hand");
	ck_assert_int_eq(json_integer_value(at(document, "takes.0.duration_ms")), 2500);
	ck_assert_uint_eq(json_array_size(at(document, "takes.0.seconds")), 3);
	ck_assert_uint_eq(json_array_size(at(document, "takes.0.transitions")), 5);
	ck_assert_int_eq(json_integer_value(at(document, "takes.0.transitions.0.worker")), 0);
	ck_assert(json_is_null(at(document, "takes.1.transitions.0.worker")));
	ck_assert_str_eq(json_string_value(at(document, "game_day.aborted")), "by hand");
	ck_assert(json_is_null(at(document, "game_day.protected")));
	rehearsal_free(&r, document);
}
END_TEST

START_TEST(nothing_played_is_a_document_too)
{
	const struct scenarios scenarios = {0};
	struct outcome outcome;

	ck_assert_int_eq(outcome_judge(&scenarios, NULL, 0, &outcome), 0);
	json_t *document = result_json(&scenarios, NULL, 0, &outcome);
	ck_assert(json_is_null(at(document, "scenario.title")));
	ck_assert_uint_eq(json_array_size(at(document, "takes")), 0);
	json_decref(document);
	outcome_free(&outcome);
}
END_TEST

/* ---- out of memory ---- */

static size_t left;

static void *scarce(size_t size)
{
	if (left == 0)
		return NULL;
	left--;
	return malloc(size);
}

/* With room for one thing more at each attempt, in steps, until it suffices: nothing, or all of it. */
START_TEST(a_document_is_complete_or_not_there)
{
	struct rehearsal r;
	json_t *document = rehearsal_json(&r, NULL), *again = NULL;

	for (size_t room = 0; again == NULL; room += 97) {
		left = room;
		json_set_alloc_funcs(scarce, free);
		again = result_json(&r.scenarios, r.takes, 2, &r.outcome);
		json_set_alloc_funcs(malloc, free);
	}
	ck_assert(json_equal(document, again));
	json_decref(again);
	rehearsal_free(&r, document);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        it_can_be_left_for_the_schema,
	        it_has_every_figure,
	        what_there_is_not_is_null,
	        published_and_measured_stand_side_by_side,
	        the_game_day_has_its_answers_and_why,
	        a_take_that_was_stopped_says_so,
	        nothing_played_is_a_document_too,
	        a_document_is_complete_or_not_there,
	};

	return FIXTURE_RUN("result_json", tests, NULL, NULL);
}
