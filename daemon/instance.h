/* SPDX-License-Identifier: MIT */
/* The segment that an instance's name leads to: found or made, kept, and replaced. */
#ifndef RESCD_INSTANCE_H
#define RESCD_INSTANCE_H

#include <sys/types.h>

#include "map.h"
#include "reaper.h"
#include "succession.h"

struct instance {
	char name[SEGMENT_NAME_SIZE];
	char path[MAP_PATH_SIZE];
	gid_t group; /* of the segment; -1: not changed */
	mode_t mode;
	struct map map;
	struct succession succession;
	struct reaper reaper;
	bool made;              /* by this process, at its start */
	bool ephemeral;         /* it goes with this process: one that is there is refused, and closing removes it */
	int told;               /* what was said of the name last, so that it is said once */
	bool told_version;      /* that the segment is of another version, and why */
	unsigned version_pause; /* turns until the next try, where there was no room */
	bool told_older;        /* that there are older workers */
};

/* What a segment that has to be made gets before anybody sees it. 0 or -errno with err. */
struct instance_plan {
	struct segment_dims dims;
	int (*fill)(const struct map *map, const void *arg, struct resc_error *err);
	const void *arg;
};

/*
 * Finds the segment of that name, and goes on with it as it is, or makes one by the plan. name, group, mode and ephemeral are set by the
 * caller. -EBUSY: another rescd serves it; -EEXIST: it is there, and ours would be ephemeral; otherwise -errno with err, and nothing is
 * left behind.
 */
int instance_open(struct instance *instance, struct loop *loop, const struct instance_plan *plan, struct resc_error *err);

/*
 * Leaves the segment in place for the next rescd. abandon: the start failed; a segment that we made and nobody uses is removed. An
 * ephemeral one is removed by all its names, as far as they still lead to it; who is attached goes on with it.
 */
void instance_close(struct instance *instance, bool abandon);

/* A successor with these dimensions takes over, with every state. 0, -EBUSY while the last succession is not settled, or -errno. */
int instance_replace(struct instance *instance, const struct segment_dims *dims, struct resc_error *err);

/* Was the segment made by a rescd of another minor? It is used as it is, and replaced by one of ours when that can be. */
bool instance_is_of_other_version(const struct instance *instance);

/* Who may use the segment from now on. */
void instance_set_access(struct instance *instance, gid_t group, mode_t mode);
/* Where the control socket is, for resctl. */
void instance_set_control(struct instance *instance, const char *path);
/* The result of a load of the configuration. problem NULL: it succeeded. */
void instance_loaded(struct instance *instance, const char *problem);

/* Looks whether the name still leads to our segment, and sees to it that it does. */
void instance_check_name(struct instance *instance);
/* The turn of each second: heartbeat, name, former segments. */
void instance_tick(struct instance *instance);

#endif
