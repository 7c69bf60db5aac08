/* SPDX-License-Identifier: MIT */
/* The event loop: descriptors and timers. One thread; a callback may add and remove anything, itself included. */
#ifndef RESCD_LOOP_H
#define RESCD_LOOP_H

#include <stdbool.h>
#include <stdint.h>

struct watch {
	int fd; /* -1: not watched */
	void (*ready)(void *arg, uint32_t events);
	void *arg;
};

struct timer {
	struct watch watch;
	void (*due)(void *arg);
	void *arg;
};

struct loop {
	int epoll;
	bool stopped;
};

int loop_open(struct loop *loop);
void loop_close(struct loop *loop);
/* Runs until loop_stop. 0 or -errno of the wait itself. */
int loop_run(struct loop *loop);
void loop_stop(struct loop *loop);

/* The watch must stay where it is until loop_remove. events as in epoll_ctl(2). */
int loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events);
/* Asks for other events of a watch. */
int loop_change(struct loop *loop, struct watch *watch, uint32_t events);
/* Stops watching and closes the descriptor. Nothing is called for it any more. */
void loop_remove(struct loop *loop, struct watch *watch);

/* A timer on CLOCK_MONOTONIC, disarmed. */
int timer_open(struct timer *timer, struct loop *loop);
/* First after first_ms (0: at once), then every every_ms (0: not again). */
void timer_arm(struct timer *timer, uint64_t first_ms, uint64_t every_ms);
void timer_close(struct timer *timer, struct loop *loop);

#endif
