/* SPDX-License-Identifier: MIT */
/* From one segment to the next: the segments before the current one, until they are empty. */
#ifndef RESCD_SUCCESSION_H
#define RESCD_SUCCESSION_H

#include "map.h"
#include "reaper.h"

#define SUCCESSION_MAX 8u

struct succession {
	struct reaper *reaper;
	unsigned count;
	unsigned turn;
	uint64_t gone; /* generation of a segment that the current one owes to, and that nobody finds any more; 0: none */
	uint64_t gone_ms;
	/* Oldest first; each is superseded by the one after it, the last one by the current segment. */
	struct former {
		struct map map;
		bool settled; /* nobody holds a permit in it any more, and nobody can get one */
	} former[SUCCESSION_MAX];
};

/*
 * Makes successor the current segment. path is the name of the instance; it leads to *current, or to nothing. On success *current is
 * the successor, what *current was is the youngest of the former ones. On failure nothing has changed, and the successor is still the
 * caller's: -errno with err.
 */
int succession_supersede(struct succession *succession, struct map *current, struct map *successor, const char *path,
                         struct resc_error *err);

/*
 * At the start, with the segment that has the name: goes on where a rescd before may have died, finds the former segments, and removes
 * what dead builds left. -ENOLINK: *current is superseded by a segment that is gone.
 */
int succession_resume(struct succession *succession, struct map *current, const char *path, struct resc_error *err);

/* Each second: brings over what is still in former segments, and lets go of those that are empty. */
void succession_tick(struct succession *succession, const struct map *current);

/* True when the successor of the last supersession owes nothing to its predecessor. Only then may it be superseded itself. */
bool succession_settled(const struct succession *succession);
/* Calls that are still inside former segments and keep succession_settled false. */
unsigned succession_debts(const struct succession *succession, const struct map *current);

/* Of an instance that goes: the names that its segments have beside the instance's. */
void succession_remove_names(const struct succession *succession, const struct map *current);

void succession_close(struct succession *succession);

#endif
