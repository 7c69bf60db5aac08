/* SPDX-License-Identifier: MIT */
/*
 * The report of takes that were made up: every picture is in it, and no text of a scenario is markup. And the same takes on a screen: lines
 * that fit it, and nothing that it would obey.
 */
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "present.h"
#include "report.h"
#include "telling.h"

#define HOSTILE       "<script>alert('a')</script> & \"b\" \033[31m\342\200\256"
#define SECOND        INT64_C(1000000000)
#define RATE          40
#define SECONDS       8
#define REQUEST_COUNT (RATE * SECONDS)
#define WORKERS       8

static struct fault hang = {.kind = FAULT_HANG, .from_ns = 2 * SECOND, .to_ns = 4 * SECOND, .share = 1, .retry_after_ms = -1};
static struct dependency dependency = {.name = "prices", .faults = &hang, .fault_count = 1, .capacity = 4};
static struct load load = {.name = "users", .chain_count = 1, .fallback = "stale", .patience_ns = SECOND, .retries = true};
static struct expectation expectations[2];
static struct comparison comparison = {.what = {.figure = "attempts", .view = -1, .to_ns = SCENARIO_FOREVER}, .less_is_better = true};

static struct scenario item = {
        .title = (char *)(uintptr_t) "A title " HOSTILE,
        .about = (char *)(uintptr_t) "About " HOSTILE,
        .experiment = "E7",
        .variant = "with a <b>reaker",
        .views = {true, true},
        .duration_ns = SECONDS * SECOND,
        .workers = WORKERS,
        .threads = 1,
        .backlog = UINT32_MAX,
        .resources = {"prices"},
        .resource_count = 1,
        .dependencies = &dependency,
        .dependency_count = 1,
        .loads = &load,
        .load_count = 1,
};

/* ---- takes ---- */

static bool is_open(int64_t at)
{
	return at >= hang.from_ns + SECOND / 4 && at < hang.to_ns;
}

static void note_request(struct board *board, uint32_t i)
{
	struct request_note *request = &board->requests[i];
	int64_t at = (int64_t)i * SECOND / RATE;
	bool bad = at >= hang.from_ns && at < hang.to_ns, refused = is_open(at);
	struct attempt_note *attempt = &board->attempt_notes[i];
	struct receipt_note *receipt = &board->receipt_notes[i];

	*request = (struct request_note){.arrival_ns = at, .begun_ns = at, .number = i + 1, .worker = (uint16_t)(i % WORKERS)};
	request->ended_ns = at + (refused ? 20000 : bad ? SECOND / 10 : SECOND / 50);
	request->served = bad ? i % 3 == 0 ? SERVED_FAILED : SERVED_FALLBACK : SERVED_FRESH;
	request->attempts = !refused;
	request->answer = (int16_t)(refused ? RESC_E_OPEN : 0);
	*attempt = (struct attempt_note){.asked_ns = at, .entered_ns = at, .ended_ns = request->ended_ns, .wait_ns = -1, .retry = -1};
	attempt->request = i;
	attempt->worker = request->worker;
	attempt->try = (uint16_t)(bad && i % 2 ? 2 : 1);
	attempt->answer = request->answer;
	attempt->outcome = bad ? RESC_TIMEOUT : RESC_OK;
	attempt->during_fault = bad;
	*receipt = (struct receipt_note){.received_ns = at, .answered_ns = bad ? 0 : request->ended_ns, .request = i, .try = 1};
	receipt->receipt = bad ? RECEIPT_HUNG : i % 20 == 0 ? RECEIPT_SHED : RECEIPT_OK;
	atomic_store(&request->done, 1);
	atomic_store(&attempt->done, 1);
	atomic_store(&receipt->done, !refused);
}

static void note_samples(struct take *take)
{
	unsigned workers = take->view == VIEW_OWN ? WORKERS : 1;
	size_t looks = (size_t)(item.duration_ns / SAMPLE_NS);

	take->samples = calloc(looks * workers, sizeof(*take->samples));
	ck_assert_ptr_nonnull(take->samples);
	for (size_t i = 0; i < looks * workers; i++) {
		int64_t at = (int64_t)(i / workers) * SAMPLE_NS;
		take->samples[take->sample_count++] = (struct sample){.at_ns = at,
		                                                      .worker = (uint16_t)(i % workers),
		                                                      .breaker = is_open(at) ? RESC_BREAKER_OPEN : RESC_CLOSED,
		                                                      .in_flight = (uint32_t)(i % 5),
		                                                      .limit = 5,
		                                                      .waiting = (uint32_t)(i % 3),
		                                                      .tokens = is_open(at) ? 2 : 10,
		                                                      .rate_tokens = (float)(i % 7),
		                                                      .throttle = is_open(at) ? 0.5F : 0};
	}
}

static void add_transition(struct take *take, uint16_t worker, int64_t at_ns, unsigned from, unsigned to)
{
	take->transitions[take->transition_count++] =
	        (struct transition_note){.at_ns = at_ns, .worker = worker, .from = (uint8_t)from, .to = (uint8_t)to, .why = "5 in a row"};
}

static void note_transitions(struct take *take)
{
	unsigned workers = take->view == VIEW_OWN ? WORKERS : 1;

	take->transitions = calloc(WORKERS * 4, sizeof(*take->transitions));
	ck_assert_ptr_nonnull(take->transitions);
	for (uint16_t w = 0; w < workers; w++)
		add_transition(take, w, hang.from_ns + SECOND / 4 + w * SECOND / 20, RESC_CLOSED, RESC_BREAKER_OPEN);
	for (uint16_t w = 0; w < workers; w++)
		add_transition(take, w, hang.to_ns + w * SECOND / 20, RESC_BREAKER_OPEN, RESC_HALF_OPEN);
	for (uint16_t w = 0; w < workers; w++)
		add_transition(take, w, hang.to_ns + SECOND / 2 + w * SECOND / 20, RESC_HALF_OPEN, RESC_CLOSED);
}

static void make_take(struct take *take, enum view view)
{
	struct board *board = aligned_alloc(BOARD_LINE, (sizeof(*board) + BOARD_LINE - 1) / BOARD_LINE * BOARD_LINE);

	ck_assert_ptr_nonnull(board);
	memset(board, 0, sizeof(*board));
	board->request_count = board->attempt_room = board->receipt_room = REQUEST_COUNT;
	board->requests = calloc(REQUEST_COUNT, sizeof(*board->requests));
	board->attempt_notes = calloc(REQUEST_COUNT, sizeof(*board->attempt_notes));
	board->receipt_notes = calloc(REQUEST_COUNT, sizeof(*board->receipt_notes));
	for (uint32_t i = 0; i < REQUEST_COUNT; i++)
		note_request(board, i);
	*take = (struct take){.scenario = &item, .view = view, .duration_ns = item.duration_ns, .board = board};
	take->attempt_count = take->receipt_count = REQUEST_COUNT;
	policy_defaults(&take->tallies[0].policy);
	take->tallies[0].policy.flags |= POLICY_BREAKER;
	note_samples(take);
	note_transitions(take);
}

static void free_take(struct take *take)
{
	free(take->board->requests);
	free(take->board->attempt_notes);
	free(take->board->receipt_notes);
	free(take->board);
	free(take->samples);
	free(take->transitions);
}

/* ---- the report ---- */

static struct take takes[VIEWS];
static struct scenarios scenarios = {.items = &item,
                                     .count = 1,
                                     .expectations = expectations,
                                     .expectation_count = 2,
                                     .comparisons = &comparison,
                                     .comparison_count = 1};
static char path[] = "/tmp/resc-report-XXXXXX";
static char *report;

static void make_scenario(void)
{
	item.configuration = json_pack("{s:{s:{s:{s:i}}}}", "resources", "prices", "breaker", "consecutive", 5);
	ck_assert_ptr_nonnull(item.configuration);
	for (size_t i = 0; i < 2; i++)
		expectations[i] = (struct expectation){.what = {.figure = "served", .view = -1, .to_ns = SCENARIO_FOREVER},
		                                       .relation = IS_AT_LEAST,
		                                       .value = i == 0 ? 1 : 1e6,
		                                       .has_published = i == 0,
		                                       .published = 72,
		                                       .why = (char *)(uintptr_t) "because " HOSTILE};
}

static char *read_all(const char *name)
{
	FILE *file = fopen(name, "re");
	char *text = calloc(1, 1 << 20);

	ck_assert(file != NULL && text != NULL);
	ck_assert_uint_gt(fread(text, 1, (1 << 20) - 1, file), 0);
	fclose(file);
	return text;
}

static void set_up(void)
{
	struct outcome outcome;
	int fd = mkstemp(path);

	ck_assert_int_ge(fd, 0);
	close(fd);
	make_scenario();
	for (unsigned view = 0; view < VIEWS; view++)
		make_take(&takes[view], view);
	ck_assert_int_eq(outcome_judge(&scenarios, takes, VIEWS, &outcome), 0);
	ck_assert_int_eq(report_write(path, &scenarios, takes, VIEWS, &outcome), 0);
	outcome_free(&outcome);
	report = read_all(path);
	unlink(path);
}

static void tear_down(void)
{
	for (unsigned view = 0; view < VIEWS; view++)
		free_take(&takes[view]);
	json_decref(item.configuration);
	free(report);
}

static unsigned count(const char *text, const char *what)
{
	unsigned n = 0;

	for (const char *p = strstr(text, what); p != NULL; p = strstr(p + 1, what))
		n++;
	return n;
}

START_TEST(every_picture_is_there_for_each_view)
{
	static const char *const titles[] = {"Load",   "What clients got", "Refused, by reason", "Breaker", "Latency", "Bulkhead",
	                                     "Tokens", "Throttle"};

	for (size_t i = 0; i < sizeof(titles) / sizeof(titles[0]); i++) {
		char heading[64];
		snprintf(heading, sizeof(heading), "<h3>%s", titles[i]);
		ck_assert_msg(count(report, heading) == 1, "%s", titles[i]);
	}
	ck_assert_uint_eq(count(report, "<svg "), 2 * sizeof(titles) / sizeof(titles[0]));
	ck_assert_uint_eq(count(report, "<svg "), count(report, "</svg>"));
	ck_assert_uint_eq(count(report, "<svg "), count(report, "</desc>"));
	ck_assert_uint_eq(count(report, "nan"), 0);
	ck_assert_uint_eq(count(report, "inf"), 0);
}
END_TEST

START_TEST(no_text_is_markup)
{
	ck_assert_ptr_null(strstr(report, "<script"));
	ck_assert_ptr_null(strstr(report, "<b>reaker"));
	ck_assert_ptr_nonnull(strstr(report, "&lt;script&gt;"));
	ck_assert_ptr_nonnull(strstr(report, "with a &lt;b&gt;reaker"));
	for (const char *p = report; *p != '\0'; p++)
		ck_assert_msg((unsigned char)*p >= 0x20 || *p == '\n', "byte %d", *p);
	ck_assert_ptr_null(strstr(report, "\342\200\256"));
}
END_TEST

START_TEST(nothing_is_from_elsewhere)
{
	static const char *const words[] = {"http:", "https:", "url(", "@import", "src="};

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		ck_assert_msg(strstr(report, words[i]) == NULL, "%s", words[i]);
}
END_TEST

START_TEST(expectations_stand_before_everything_else)
{
	const char *table = strstr(report, "<table>"), *section = strstr(report, "<section>");

	ck_assert(table != NULL && section != NULL && table < section);
	ck_assert_ptr_nonnull(strstr(report, "1 of 2 expectations does not hold."));
	ck_assert_uint_eq(count(report, ">72<"), 1);
}
END_TEST

START_TEST(a_view_alone_has_its_pictures_side_by_side_and_is_judged_where_something_was_expected)
{
	struct scenarios nothing = scenarios;
	struct outcome outcome;

	ck_assert_ptr_nonnull(strstr(report, "<div class=\"beside\">"));
	ck_assert_ptr_null(strstr(report, "<div class=\"alone\">"));
	free(report);
	nothing.expectation_count = nothing.comparison_count = 0;
	ck_assert_int_eq(outcome_judge(&nothing, takes, 1, &outcome), 0);
	ck_assert_int_eq(report_write(path, &nothing, takes, 1, &outcome), 0);
	outcome_free(&outcome);
	report = read_all(path);
	unlink(path);
	ck_assert_ptr_nonnull(strstr(report, "<div class=\"alone\">"));
	ck_assert_ptr_nonnull(strstr(report, "<p class=\"verdict\">Nothing was expected"));
}
END_TEST

/* The report of the takes as they are now. */
static void write_again(void)
{
	struct outcome outcome;

	free(report);
	ck_assert_int_eq(outcome_judge(&scenarios, takes, VIEWS, &outcome), 0);
	ck_assert_int_eq(report_write(path, &scenarios, takes, VIEWS, &outcome), 0);
	outcome_free(&outcome);
	report = read_all(path);
	unlink(path);
}

START_TEST(what_has_no_column_of_its_own_has_one_where_it_occurs)
{
	ck_assert_ptr_null(strstr(report, ">Rejected<"));
	ck_assert_ptr_null(strstr(report, ">Not ended<"));
	takes[0].board->requests[0].served = SERVED_REJECTED;
	atomic_store(&takes[0].board->requests[1].done, 0);
	write_again();
	ck_assert_ptr_nonnull(strstr(report, ">Rejected<"));
	ck_assert_ptr_nonnull(strstr(report, ">Not ended<"));
	ck_assert_ptr_null(strstr(report, ">Stored<"));
}
END_TEST

START_TEST(a_breaker_is_in_no_state_after_the_end_of_a_take_that_was_stopped)
{
	ck_assert_uint_gt(count(report, "to 8 s</title></path>"), 0);
	for (unsigned view = 0; view < VIEWS; view++)
		takes[view].duration_ns = 5 * SECOND;
	write_again();
	ck_assert_uint_eq(count(report, "to 8 s</title></path>"), 0);
	ck_assert_uint_gt(count(report, "to 5 s</title></path>"), 0);
}
END_TEST

/* Two faults at once: each has its words, whole. */
START_TEST(every_fault_has_its_words_in_the_picture)
{
	static struct fault slow = {.kind = FAULT_SLOW, .from_ns = 3 * SECOND, .to_ns = 5 * SECOND, .share = 1, .latency_ns = SECOND / 8};
	static struct dependency both[2];

	both[0] = dependency;
	both[1] = (struct dependency){.name = "the-store", .faults = &slow, .fault_count = 1};
	hang.kind = FAULT_ERRORS;
	item.dependencies = both;
	item.dependency_count = 2;
	write_again();
	ck_assert_uint_eq(count(report, ">prices answers with errors</text>"), count(report, "<svg "));
	ck_assert_uint_eq(count(report, ">the-store answers 125ms later</text>"), count(report, "<svg "));
	item.dependencies = &dependency;
	item.dependency_count = 1;
	hang.kind = FAULT_HANG;
}
END_TEST

START_TEST(no_difference_is_said_once)
{
	ck_assert_ptr_nonnull(strstr(report, "no difference"));
	ck_assert_ptr_null(strstr(report, "no difference: <strong>no difference"));
}
END_TEST

START_TEST(what_cannot_be_written_is_told)
{
	struct outcome outcome;

	ck_assert_int_eq(outcome_judge(&scenarios, takes, VIEWS, &outcome), 0);
	ck_assert_int_eq(report_write("/nonexistent/report.html", &scenarios, takes, VIEWS, &outcome), -ENOENT);
	ck_assert_int_eq(report_write("/dev/full", &scenarios, takes, VIEWS, &outcome), -ENOSPC);
	outcome_free(&outcome);
}
END_TEST

/* ---- on a screen ---- */

/* All that is printed of both takes, to be freed. */
static char *print_all(const struct screen *screen)
{
	struct outcome outcome;
	char *text = NULL;
	size_t size;
	FILE *out = open_memstream(&text, &size);
	struct live *live = live_new(screen, out);

	ck_assert(out != NULL && live != NULL);
	ck_assert_int_eq(outcome_judge(&scenarios, takes, VIEWS, &outcome), 0);
	print_head(screen, out, &scenarios);
	for (unsigned view = 0; view < VIEWS; view++) {
		live_begin(live, &item, view);
		live_end(live, &takes[view]);
	}
	print_result(screen, out, &scenarios, takes, VIEWS, &outcome);
	live_free(live);
	outcome_free(&outcome);
	ck_assert_int_eq(fclose(out), 0);
	return text;
}

START_TEST(lines_fit_the_screen)
{
	static const unsigned widths[] = {80, 100, 200};

	takes[VIEW_OWN].stopped = "aborted: users: share of requests answered, from 3s to 4s: 48.3%, expected at least 50%";
	takes[VIEW_OWN].duration_ns = 5 * SECOND;
	takes[VIEW_OWN].board->requests[0].served = SERVED_LATE;
	for (size_t i = 0; i < sizeof(widths) / sizeof(widths[0]); i++) {
		const struct screen screen = {.terminal = true, .utf8 = true, .width = widths[i]};
		char *text = print_all(&screen), *rest = text;
		for (const char *line = strsep(&rest, "\n"); line != NULL; line = strsep(&rest, "\n"))
			ck_assert_msg(strlen(line) <= widths[i], "%u: %s", widths[i], line);
		free(text);
	}
}
END_TEST

START_TEST(what_was_expected_is_broken_between_words_and_not_cut)
{
	const struct screen screen = {.terminal = true, .utf8 = true, .width = 72};
	char *text = print_all(&screen), *from = strstr(text, "What was expected"), *to = strstr(text, "not so: ");

	ck_assert(from != NULL && to != NULL);
	*to = '\0';
	ck_assert_ptr_nonnull(strstr(from, "requests"));
	ck_assert_msg(strstr(from, "..") == NULL, "%s", from);
	free(text);
}
END_TEST

START_TEST(a_narrow_screen_is_told_the_fault_in_a_word)
{
	const struct screen screen = {.terminal = true, .utf8 = true, .width = 98};

	hang.kind = FAULT_ERRORS;
	char *text = print_all(&screen);
	ck_assert_ptr_nonnull(strstr(text, "OOOOOOOO  errors; 30 open\n"));
	free(text);
	hang.kind = FAULT_HANG;
}
END_TEST

START_TEST(a_game_day_says_which_take_it_was_stopped_in)
{
	const struct screen pipe = {.utf8 = true};

	scenarios.game_day.given = true;
	takes[VIEW_SHARED].stopped = "aborted: it went badly";
	char *text = print_all(&pipe);
	ck_assert_ptr_nonnull(strstr(text, "\nstopped (with a <b>reaker, shared view): it went badly\n"));
	ck_assert_ptr_nonnull(strstr(text, "The game day was stopped (with a <b>reaker, shared view): it went badly."));
	free(text);
	write_again();
	ck_assert_ptr_nonnull(strstr(report, "Stopped (with a &lt;b&gt;reaker, shared view): it went badly</p>"));
	scenarios.game_day.given = false;
}
END_TEST

START_TEST(a_screen_obeys_nothing)
{
	for (int color = 0; color < 2; color++) {
		const struct screen screen = {.terminal = true, .color = color != 0, .width = 120};
		char *text = print_all(&screen);
		ck_assert_int_eq(strchr(text, '\033') != NULL, color);
		ck_assert_ptr_null(strstr(text, "\033[31m\342"));
		ck_assert_ptr_null(strstr(text, "\342\200\256"));
		for (const char *p = text; *p != '\0'; p++)
			ck_assert_msg((*p >= 0x20 && *p < 0x7f) || *p == '\n' || *p == '\033', "byte %d", *p);
		free(text);
	}
}
END_TEST

START_TEST(a_second_is_told_as_it_was)
{
	const struct screen pipe = {.utf8 = true};
	char *text = print_all(&pipe);

	/* 40 arrive a second; in the third one the first quarter hangs, and the rest is refused. */
	ck_assert_ptr_nonnull(strstr(text, "TIME  OFFERED  SERVED  FALLBACK  FAILED  LATE  CALLS  PER REQUEST  SHED  BREAKERS"));
	ck_assert_ptr_nonnull(strstr(text, "  1s       40      40         0       0     0     40         1.00     2  ........"));
	ck_assert_ptr_nonnull(
	        strstr(text, "  3s       40       0        27      13     0     10         0.25     0  OOOOOOOO  hangs; refused: 30 open"));
	/* A ratio has its decimals, so that they stand below each other. */
	ck_assert_ptr_nonnull(strstr(text, "own              1.00   1.00 "));
	ck_assert_ptr_nonnull(strstr(text, "NOT SO"));
	ck_assert_ptr_nonnull(strstr(text, "1 of 2 expectations does not hold."));
	free(text);
}
END_TEST

/* What a figure is divided by is said as far as it is another one. */
START_TEST(what_is_divided_by_what_is_said)
{
	static const struct {
		struct figure_ref to;
		const char *words;
	} cases[] = {
	        {{.figure = "failing_calls", .of = "prices", .view = VIEW_OWN}, "the same on own views"},
	        {{.figure = "failing_calls", .of = "prices", .view = VIEW_SHARED}, "the same on the shared view"},
	        {{.figure = "failing_calls", .of = "prices", .variant = "as it is", .view = -1}, "the same"},
	        {{.figure = "failing_calls", .of = "prices", .variant = "before", .view = VIEW_OWN}, "the same of before on own views"},
	        {{.figure = "offered", .view = -1}, "requests offered"},
	};

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct expectation e = {.what = {.figure = "failing_calls", .of = "prices", .variant = "as it is", .view = -1},
		                        .relative = true,
		                        .to = cases[i].to};
		char text[200], wanted[200];
		e.what.to_ns = e.to.to_ns = SCENARIO_FOREVER;
		expectation_words(&e, text, sizeof(text));
		snprintf(wanted, sizeof(wanted), "prices: failing calls, divided by %s", cases[i].words);
		ck_assert_str_eq(text, wanted);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("the report of a rehearsal");
	TCase *tcase = tcase_create("report");
	SRunner *runner = srunner_create(suite);

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_add_test(tcase, a_view_alone_has_its_pictures_side_by_side_and_is_judged_where_something_was_expected);
	tcase_add_test(tcase, what_is_divided_by_what_is_said);
	tcase_add_test(tcase, every_picture_is_there_for_each_view);
	tcase_add_test(tcase, no_text_is_markup);
	tcase_add_test(tcase, nothing_is_from_elsewhere);
	tcase_add_test(tcase, expectations_stand_before_everything_else);
	tcase_add_test(tcase, what_has_no_column_of_its_own_has_one_where_it_occurs);
	tcase_add_test(tcase, a_breaker_is_in_no_state_after_the_end_of_a_take_that_was_stopped);
	tcase_add_test(tcase, every_fault_has_its_words_in_the_picture);
	tcase_add_test(tcase, no_difference_is_said_once);
	tcase_add_test(tcase, what_cannot_be_written_is_told);
	tcase_add_test(tcase, what_was_expected_is_broken_between_words_and_not_cut);
	tcase_add_test(tcase, a_narrow_screen_is_told_the_fault_in_a_word);
	tcase_add_test(tcase, a_game_day_says_which_take_it_was_stopped_in);
	tcase_add_test(tcase, lines_fit_the_screen);
	tcase_add_test(tcase, a_screen_obeys_nothing);
	tcase_add_test(tcase, a_second_is_told_as_it_was);
	suite_add_tcase(suite, tcase);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? 0 : 1;
}
