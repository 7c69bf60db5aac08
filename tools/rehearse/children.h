/* SPDX-License-Identifier: MIT */
/* The processes of a stage. See children.c. */
#ifndef REHEARSE_CHILDREN_H
#define REHEARSE_CHILDREN_H

#include <poll.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define CHILD_NAME 32

struct child {
	char name[CHILD_NAME];
	pid_t pid;
	bool ours; /* to be ended and waited for here; else only watched */
};

struct children {
	struct child *items;
	struct pollfd *fds; /* a pidfd each; -1: it has ended */
	size_t count, room;
};

/* For so many, and the descriptors that they need. 0, or -ENOMEM after saying so on stderr. */
int children_init(struct children *children, size_t room);
void children_free(struct children *children);

/*
 * A child process that does not outlive this one, in a session of its own, so that signals of a terminal reach the parent alone. As fork():
 * 0 in the child, which has no descriptors but the first three. -1 after saying on stderr why.
 */
pid_t child_fork(void);
/* The same, but one descriptor of the parent's stays open in the child, as CHILD_KEPT. */
pid_t child_fork_with(int kept);
#define CHILD_KEPT 3
/* In a child that was forked otherwise: closes all descriptors but the first three and that one, which becomes CHILD_KEPT; -1: none. */
void child_keep_file(int kept);
/* Kills it, waits for it, and makes it 0, which is nobody. For who started it, and has not given it to children_add as ours. */
void child_kill(pid_t *pid);
/* What whoever sees a message with that error can do, to be printed after it; "" where nothing is known. */
const char *child_remedy(int error);
/* This process may have as many descriptors as the host allows it. */
void child_raise_files(void);

/* From now on its end is noticed. 0, or -errno after saying on stderr why. */
int children_add(struct children *children, const char *name, pid_t pid, bool ours);
/* Waits for so long, or until one of them ends, or a signal comes. The one that has ended, or NULL. */
const struct child *children_wait(struct children *children, int64_t ns);
/* Was this child process stopped since the last time that it was asked? *goes_on: it does again, however short that was. */
bool child_stopped(pid_t pid, bool *goes_on);
/* The first of them that was; NULL: none. */
const struct child *children_stopped(const struct children *children, bool *goes_on);
/* "was killed by signal 9 (Killed)", "ended with 1" */
void child_end_text(const struct child *child, char *text, size_t size);
/* Waits for our own to end by themselves, for so long, and ends those that did not. True: none of them failed by itself. */
bool children_end(struct children *children, int64_t patience_ns);

#endif
