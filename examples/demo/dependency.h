/* SPDX-License-Identifier: MIT */
/*
 * The dependency that fails: the demo's own price server, or a real Redis. Both speak over TCP on 127.0.0.1.
 */
#ifndef DEMO_DEPENDENCY_H
#define DEMO_DEPENDENCY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "board.h"
#include "resc.h"

struct dependency;

enum reply { REPLY_MORE, REPLY_GOOD, REPLY_ERROR };

struct dependency_kind {
	const char *name;
	const char *what;   /* for people */
	bool counts_itself; /* it counts what reaches it; otherwise its callers do */
	/* Starts it: pid, port and what else it needs. 0 or -errno, after saying why on stderr. dir is for its files. */
	int (*start)(struct dependency *dependency, const char *dir);
	/* Switches its fault. board->fault has been set. 0 or -errno. */
	int (*set)(struct dependency *dependency, enum fault fault);
	void (*stop)(struct dependency *dependency);
	/* One request as bytes; its length. */
	int (*request)(char *text, size_t size, unsigned item, bool probe);
	/* What came back so far. */
	enum reply (*reply)(const char *text, size_t length);
};

struct dependency {
	const struct dependency_kind *kind;
	struct board *board;
	pid_t pid;
	uint16_t port;
	int control; /* a connection of the parent's, or -1 */
};

extern const struct dependency_kind dependency_server; /* server.c */
extern const struct dependency_kind dependency_redis;  /* redis.c */

/* By name: "server" or "redis"; NULL when there is no such kind. */
const struct dependency_kind *dependency_kind(const char *name);

int dependency_start(struct dependency *dependency, const struct dependency_kind *kind, struct board *board, const char *dir);
int dependency_set(struct dependency *dependency, enum fault fault);
void dependency_stop(struct dependency *dependency);

/*
 * The caller's side. Asks for the price of an item; *connection is kept for the next call (-1: none yet). timeout_ms is what the ticket
 * says. This function knows nothing of libresc but the outcomes.
 */
enum resc_outcome dependency_ask(const struct dependency *dependency, int *connection, unsigned item, bool probe, int64_t timeout_ms);
/* A connection to 127.0.0.1, or -1 with errno. */
int dependency_dial(uint16_t port, int64_t deadline_ns);
/* A socket that listens on an ephemeral port of 127.0.0.1, or -1 with errno. */
int dependency_listen(uint16_t *port);

#endif
