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
	bool steady;         /* the steady state was there */
	const char *aborted; /* NULL: no */
	struct verdicts steady_state;
	struct answer answers[QUESTIONS];
	bool hypothesis_holds; /* all three yes */
};

struct outcome {
	struct verdicts verdicts;
	struct compared *compared;
	size_t compared_count;
	struct game_day_result game_day;
	bool good; /* everything that was expected is so */
};

/* 0 or -ENOMEM. takes: all that were played. */
int outcome_judge(const struct scenarios *scenarios, const struct take *takes, size_t take_count, struct outcome *out);
void outcome_free(struct outcome *outcome);

/*
 * The game day while it is played, from the stage's look: true: stop here, and *stopped says why ("no steady state: ...", "aborted: ..."),
 * a text that lives as long as the scenarios. Without a game day never.
 */
bool game_day_look(const struct scenarios *scenarios, const struct take *take, const char **stopped);

/* "at most 1.1, published 1.07" */
void expectation_text(const struct expectation *expectation, char *text, size_t size);
/* "share of requests served of users, seconds 1 to 6" */
void figure_text(const struct figure_ref *ref, char *text, size_t size);

#endif
