/* SPDX-License-Identifier: MIT */
/* How a rehearsal is told: the words and numbers that the screen and the report have in common. */
#ifndef REHEARSE_TELLING_H
#define REHEARSE_TELLING_H

#include <stdio.h>

#include "format.h"
#include "table.h"
#include "verdict.h"

/* A value in a column: as figure_value_text(), but a ratio always has two decimals, so that the points stand below each other. */
struct text column_text(enum figure_unit unit, double value);
/* "72", or "" where nothing is published. */
struct text published_words(const struct expectation *expectation);

const char *served_words(enum served served); /* "served", "fallback", ... */
const char *breaker_state_word(unsigned state);
/* "shared view", "own views" */
const char *view_words(enum view view);

/* "with a breaker, own views": only what distinguishes this take from the others. */
void take_words(const struct take *take, char *text, size_t size);

/* A figure of the whole take. of: "" for all. */
double whole_figure(const struct take *take, const char *figure, const char *of);

/* What is wrong with one dependency: "hangs", "answers 800ms later"; 5% of the requests: "hangs (5%)". */
void fault_words(const struct fault *fault, char *text, size_t size);
/* What is wrong with the dependencies between these times: "prices hangs", "hangs" where there is only one; "": nothing that is known by
 * time. brief: its kind in a word, where there is little room: "slow". */
void trouble_words(const struct scenario *scenario, int64_t from_ns, int64_t to_ns, bool brief, char *text, size_t size);

/* The policy of a resource, as rescd would read it; false: there is none. */
bool scenario_policy(const struct scenario *scenario, const char *resource, struct policy *policy);

/* "half-open": why resc_enter refused, in a word. */
struct text refusal_word(int answer);
/* "12 open, 3 full": refusals of all resources by reason; "": none. */
void refusals_words(const struct take *take, char *text, size_t size);
/* "1.2s prices, 0ms stock": how long the breakers were open; "": there are none. */
void open_words(const struct take *take, char *text, size_t size);

/* One expectation of one variant: what came of it on each view. */
struct verdict_row {
	const struct expectation *expectation;
	const struct scenario *scenario;
	const struct verdict *views[VIEWS]; /* NULL: not asked of that view */
	bool holds;
};

/* In the order of the variants; *count of them, to be freed. NULL: none, or out of memory. */
struct verdict_row *verdict_rows(const struct verdicts *verdicts, size_t *count);
/* What an expectation is about: "prices: calls received, divided by the same on own views". */
void expectation_words(const struct expectation *expectation, char *text, size_t size);
/* Whether anything was asked of that view; whether anything is published. */
bool verdicts_view(const struct verdicts *verdicts, enum view view);
bool verdicts_published(const struct verdicts *verdicts);
/* Why a game day was stopped, after that word: "(with a breaker, own views): users: share of requests answered: 41%, expected ...". */
void aborted_words(const struct game_day_result *day, char *text, size_t size);
/* The result in a sentence. */
void outcome_words(const struct outcome *outcome, char *text, size_t size);
/* "prices: calls received: 412 on own views, 72 on the shared one: 83% fewer" */
void compared_words(const struct compared *compared, char *text, size_t size);
const char *question_words(enum question question);

/* Of a table by time: a second, but where that would be too few rows or too many. */
int64_t row_width(int64_t duration_ns);

/* Breaks text between words to the width of the screen, from column `indent` on, where the first line is already; then a line feed. */
void put_wrapped(const struct screen *screen, FILE *out, unsigned indent, const char *text);

#endif
