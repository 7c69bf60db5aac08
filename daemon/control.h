/* SPDX-License-Identifier: MIT */
/* The control socket: a line of JSON in, a line of JSON out. */
#ifndef RESCD_CONTROL_H
#define RESCD_CONTROL_H

#include <jansson.h>
#include <sys/types.h>

#include "loop.h"
#include "resc.h"

#define CONTROL_MODE       0660
#define CONTROL_CLIENTS    16
#define CONTROL_FIRST      4  /* of these for root and the user of rescd alone */
#define CONTROL_COMMANDS   20 /* a second, from members of the group */
#define CONTROL_LINE       4096
#define CONTROL_PATH       108 /* what fits a socket address, and the segment */
#define CONTROL_TIMEOUT_MS 2000

struct control;

struct control_client {
	struct watch watch; /* fd -1: free */
	struct control *control;
	uid_t uid;
	pid_t pid;
	bool first; /* root, or the user of rescd */
	uint64_t until_ms;
	size_t used;
	char line[CONTROL_LINE];
	char *answer; /* being sent; NULL: the line is being read */
	size_t sent;
	size_t size;
};

struct control {
	struct loop *loop;
	struct watch listener;
	struct timer timeout;
	char path[CONTROL_PATH];
	dev_t dev; /* of the socket that we made: what lies at path later may be another's */
	ino_t ino;
	gid_t group;      /* whose members may command, or -1 */
	uint64_t refused; /* connections of those who may not */
	unsigned untold;  /* of them not in the log yet */
	uint64_t told_ms;
	uint64_t second; /* and the commands of members in it */
	unsigned commands;
	/* Answers a command: an object, for the caller to free. */
	json_t *(*command)(void *arg, const char *command);
	void *arg;
	struct control_client *clients[CONTROL_CLIENTS];
};

/*
 * The path of the socket: the wish (absolute, from the configuration or the command line), or where this user's sockets are:
 * /run/resc/INSTANCE.sock for root, $XDG_RUNTIME_DIR/resc/INSTANCE.sock, /tmp/resc-UID/INSTANCE.sock. 0, or -EINVAL, -ENAMETOOLONG.
 */
int control_path(char path[CONTROL_PATH], const char *wish, const char *instance, struct resc_error *err);

/* Listens at the path; a socket that a dead rescd left there is replaced. The caller holds the lock of the instance. */
int control_open(struct control *control, struct loop *loop, const char *path, gid_t group, struct resc_error *err);
/* Other members from now on. */
void control_group(struct control *control, gid_t group);
/* Hangs up, and removes the socket if it is still ours. */
void control_close(struct control *control);

#endif
