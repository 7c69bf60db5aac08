/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: rescd waits for signals, timers, sockets, pidfds and inotify in one place, and one thread does all the work, so that
 * nothing in the daemon needs a lock.
 *
 * What it guarantees: one event a turn. epoll gives level-triggered events in rotation, so nobody starves, and a callback may remove
 * and free any watch: no event of the same batch can still point to it, because there is no batch.
 */
#include "loop.h"

#include <errno.h>
#include <stddef.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

int loop_open(struct loop *loop)
{
	loop->stopped = false;
	loop->epoll = epoll_create1(EPOLL_CLOEXEC);
	return loop->epoll < 0 ? -errno : 0;
}

void loop_close(struct loop *loop)
{
	if (loop->epoll >= 0)
		close(loop->epoll);
	loop->epoll = -1;
}

int loop_run(struct loop *loop)
{
	while (!loop->stopped) {
		struct epoll_event event;
		int n = epoll_wait(loop->epoll, &event, 1, -1);

		if (n < 0 && errno != EINTR)
			return -errno;
		if (n == 1) {
			struct watch *watch = event.data.ptr;
			watch->ready(watch->arg, event.events);
		}
	}
	return 0;
}

void loop_stop(struct loop *loop)
{
	loop->stopped = true;
}

int loop_add(struct loop *loop, struct watch *watch, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	watch->fd = -1;
	if (epoll_ctl(loop->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	watch->fd = fd;
	return 0;
}

int loop_change(struct loop *loop, struct watch *watch, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = watch};

	return epoll_ctl(loop->epoll, EPOLL_CTL_MOD, watch->fd, &event) < 0 ? -errno : 0;
}

void loop_remove(struct loop *loop, struct watch *watch)
{
	if (watch->fd < 0)
		return;
	epoll_ctl(loop->epoll, EPOLL_CTL_DEL, watch->fd, NULL);
	close(watch->fd);
	watch->fd = -1;
}

static void timer_ready(void *arg, uint32_t events)
{
	struct timer *timer = arg;
	uint64_t expirations;

	(void)events;
	/* Several expirations at once are one turn: what a turn does looks at the clock itself. */
	if (read(timer->watch.fd, &expirations, sizeof(expirations)) == sizeof(expirations))
		timer->due(timer->arg);
}

int timer_open(struct timer *timer, struct loop *loop)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	int r;

	if (fd < 0)
		return -errno;
	timer->watch.ready = timer_ready;
	timer->watch.arg = timer;
	r = loop_add(loop, &timer->watch, fd, EPOLLIN);
	if (r < 0)
		close(fd);
	return r;
}

static struct timespec from_ms(uint64_t ms)
{
	return (struct timespec){.tv_sec = (time_t)(ms / 1000u), .tv_nsec = (long)(ms % 1000u) * 1000000L};
}

void timer_arm(struct timer *timer, uint64_t first_ms, uint64_t every_ms)
{
	struct itimerspec when = {.it_value = from_ms(first_ms), .it_interval = from_ms(every_ms)};

	/* A value of zero would disarm it. */
	if (first_ms == 0)
		when.it_value.tv_nsec = 1;
	timerfd_settime(timer->watch.fd, 0, &when, NULL);
}

void timer_close(struct timer *timer, struct loop *loop)
{
	loop_remove(loop, &timer->watch);
}
