/* SPDX-License-Identifier: MIT */
/* How expectations are judged: what verdicts and the game day share. */
#ifndef REHEARSE_JUDGING_H
#define REHEARSE_JUDGING_H

#include "verdict.h"

struct takes {
	const struct take *items;
	size_t count;
};

/* Is the reference about that take? */
bool is_about(const struct figure_ref *ref, const struct take *take);
/*
 * Judges one expectation in one take, looking at no more than [from_ns, to_ns) of it. False: there is nothing to judge, because that
 * take was not played, or (with a limit) because the expectation is about another time.
 */
bool judge(const struct expectation *expectation, const struct takes *takes, const struct take *take, int64_t from_ns, int64_t to_ns,
           struct verdict *out);
/* 0 or -ENOMEM. */
int verdicts_add(struct verdicts *verdicts, const struct verdict *verdict);
/* Judges all of a list, each in each take that it is about, over its own time. 0 or -ENOMEM. */
int verdicts_judge(struct verdicts *verdicts, const struct expectation *list, size_t count, const struct takes *takes);
void verdicts_free(struct verdicts *verdicts);

/* 0 or -ENOMEM. */
int game_day_judge(const struct scenarios *scenarios, const struct takes *takes, struct game_day_result *out);
void game_day_free(struct game_day_result *result);

/* 0 or -ENOMEM: each comparison for each variant that was played on both views. */
int compare_views(const struct scenarios *scenarios, const struct takes *takes, struct outcome *out);

#endif
