/* SPDX-License-Identifier: MIT */
/* Learns of the deaths of workers and gives back what they held. */
#ifndef RESCD_REAPER_H
#define RESCD_REAPER_H

#include <stdint.h>
#include <sys/types.h>

#include "loop.h"
#include "map.h"

struct reaper_map;

struct reaper {
	struct loop *loop;
	struct watch inotify;
	struct timer scan;
	unsigned stage; /* of the scans that follow a change of the segment file */
	bool again;     /* another change came during them */
	unsigned turn;
	bool told_no_pidfd; /* said once that there are no descriptors left */
	uint64_t pid_namespace;
	struct reaper_map *maps;
	/* The file of a segment lost a name: perhaps it was removed. May be NULL. */
	void (*renamed)(void *arg);
	/* Somebody opened or closed it: a worker comes or goes, or has a question (request.h). May be NULL. */
	void (*used)(void *arg);
	/* Permits came back in a segment that has a successor, which owes less now. May be NULL. */
	void (*freed)(void *arg);
	void *arg;
};

int reaper_open(struct reaper *reaper, struct loop *loop);
void reaper_close(struct reaper *reaper);

/* Watches the workers of a segment, if it does not yet, until reaper_remove, which must come before map_close. */
int reaper_add(struct reaper *reaper, const struct map *map);
void reaper_remove(struct reaper *reaper, uint64_t generation);

/* Is it told when somebody opens the file of a segment? Where inotify is used up by others, it is not. */
bool reaper_is_told(const struct reaper *reaper);

/* The turn of each second: looks at every slot, which for workers of other pid namespaces is the only sure way. */
void reaper_tick(struct reaper *reaper);

#endif
