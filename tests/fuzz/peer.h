/* SPDX-License-Identifier: MIT */
/*
 * Somebody at the other end of a socket that rescd serves, in the same event loop: says an input piece by piece, and hears the answer until
 * he is hung up on, or, where rescd has more patience than a test, until nothing has come for some turns. An input is pieces: a byte that
 * says how long one is (255: he stops here), and its bytes.
 */
#ifndef FUZZ_PEER_H
#define FUZZ_PEER_H

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "loop.h"
#include "standalone.h"

#define HANG_UP   255
#define PEER_SAYS 8192u
#define PEER_ROOM (1u << 20)
#define IDLE_MOST 16u

static struct {
	struct loop *loop;
	struct watch watch;
	struct input in;
	bool said_all;
	bool impatient;
	unsigned idle; /* turns since he has said all, and nothing came */
	char sent[PEER_SAYS + 1];
	size_t sent_size;
	char answer[PEER_ROOM];
	size_t answered;
} peer;

static void peer_says(void)
{
	uint8_t piece[HANG_UP];
	size_t size = take_byte(&peer.in);

	if (peer.in.size == 0 || size == HANG_UP || peer.sent_size + size > PEER_SAYS) {
		peer.said_all = true;
		shutdown(peer.watch.fd, SHUT_WR);
		return;
	}
	if (size > peer.in.size)
		size = peer.in.size;
	for (size_t i = 0; i < size; i++)
		piece[i] = take_byte(&peer.in);
	/* A failure: rescd has heard enough, and hung up. */
	ssize_t n = send(peer.watch.fd, piece, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		memcpy(peer.sent + peer.sent_size, piece, (size_t)n);
		peer.sent_size += (size_t)n;
	}
}

static void peer_hears(void)
{
	size_t room = sizeof peer.answer - peer.answered;
	ssize_t n = recv(peer.watch.fd, peer.answer + peer.answered, room, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0) {
		peer.answered += (size_t)n;
		REQUIRE(peer.answered < sizeof peer.answer);
		return;
	}
	loop_stop(peer.loop);
}

static void peer_ready(void *arg, uint32_t events)
{
	(void)arg;
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
		peer_hears();
	else if (!peer.said_all)
		peer_says();
	else if (++peer.idle == IDLE_MOST)
		loop_stop(peer.loop);
	loop_change(peer.loop, &peer.watch, peer.said_all && !peer.impatient ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

/* On a connected socket, until it is hung up on. */
static void peer_talk(struct loop *loop, int fd, const uint8_t *data, size_t size)
{
	peer.loop = loop;
	peer.in = (struct input){data, size};
	peer.said_all = loop->stopped = false;
	peer.sent_size = peer.answered = peer.idle = 0;
	peer.watch = (struct watch){.fd = -1, .ready = peer_ready};
	REQUIRE(loop_add(loop, &peer.watch, fd, EPOLLIN | EPOLLOUT) == 0);
	REQUIRE(loop_run(loop) == 0);
	loop_remove(loop, &peer.watch);
}

#endif
