/* SPDX-License-Identifier: MIT */
/* What the segment says while a take is played. See sampler.c. */
#ifndef REHEARSE_SAMPLER_H
#define REHEARSE_SAMPLER_H

#include "take.h"

struct sampler {
	const struct map *map;
	struct take *take;
	int *records; /* by resource, and on own views by worker: indices in the segment */
	unsigned per_resource;
	size_t sample_room, transition_room;
	int64_t next_ns;     /* when the next samples are due */
	uint64_t last_event; /* all up to this number were read */
	uint64_t settled;    /* all up to this one may be read */
	uint64_t unsettled;  /* all up to this one from settle_ns on */
	int64_t settle_ns;
	struct event *events;
};

/* All workers have looked up what they call. 0, or -errno after saying on stderr what is wrong. */
int sampler_open(struct sampler *sampler, const struct map *map, struct take *take);
/* Again and again: samples where they are due, and the transitions up to now. 0 or -errno, said on stderr. */
int sampler_turn(struct sampler *sampler);
/* At the end, when no worker lives any more: the last transitions, and the totals. 0 or -errno. */
int sampler_total(struct sampler *sampler);
void sampler_close(struct sampler *sampler);

#endif
