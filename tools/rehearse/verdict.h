/* SPDX-License-Identifier: MIT */
/* What came of the expectations of a scenario. */
#ifndef REHEARSE_VERDICT_H
#define REHEARSE_VERDICT_H

#include "figures.h"

/* One expectation in one take (variant and view). */
struct verdict {
	const struct expectation *expectation;
	const struct take *take;
	double value; /* NAN: there is no such figure, and it does not hold */
	bool holds;
};

struct verdicts {
	struct verdict *items;
	size_t count;
	size_t failed;
};

/* Own view and shared one, side by side, of one variant. */
struct compared {
	const struct comparison *comparison;
	const char *variant;
	double own, shared;
	enum better { BETTER_SHARED, BETTER_OWN, BETTER_NONE } better;
};

struct answer {
	bool yes;
	struct verdicts because;
};

struct game_day_result {
	bool given;
	bool steady;                     /* the steady state was there */
	const char *aborted;             /* NULL: no */
	const struct take *aborted_take; /* in which one that was, of all the first */
	struct verdicts steady_state;
	struct answer answers[QUESTIONS]; /* nothing in because: not asked, or stopped before there was an answer */
	bool hypothesis_holds;            /* all that is asked: yes; with a steady state to begin with, and to the end */
};

struct outcome {
	struct verdicts verdicts;
	struct compared *compared;
	size_t compared_count;
	struct game_day_result game_day;
	size_t not_judged; /* expectations about views or variants that were not played */
	bool good;         /* everything that was expected is so */
};

/*
 * 0 or -ENOMEM. takes: all that were played. An expectation without a variant (or view) is judged in each take; one that is relative to a
 * take that was not played is not judged.
 */
int outcome_judge(const struct scenarios *scenarios, const struct take *takes, size_t take_count, struct outcome *out);
void outcome_free(struct outcome *outcome);

/*
 * The game day while it is played, from the stage's look: true: stop here, and *stopped says why ("no steady state: ...", "aborted: ..."),
 * a text that lives as long as the take's board. Without a game day never. Requests have GAME_DAY_GRACE_NS to end before they count.
 */
#define GAME_DAY_GRACE_NS INT64_C(1000000000)
bool game_day_look(const struct scenarios *scenarios, const struct take *take, const char **stopped);

/* A value, NAN too, against what is expected. */
bool expectation_holds(const struct expectation *expectation, double value);
/* The unit of its values: a figure relative to another one is a ratio. */
enum figure_unit expectation_unit(const struct expectation *expectation);
/* "at most 1.1", "72 within 3"; and with what was published: "at most 1.1, published 1.07". */
struct text expected_words(const struct expectation *expectation);
void expectation_text(const struct expectation *expectation, char *text, size_t size);
/* "users: share of requests served, from 1s to 6s". Variant and view are the caller's to say. */
void figure_text(const struct figure_ref *ref, char *text, size_t size);
/* "100 on own views, 72 on the shared one: 28% fewer"; "243 on own views, 243 on the shared one: no difference". */
void compared_text(const struct compared *compared, char *text, size_t size);

#endif
