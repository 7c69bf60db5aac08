/* SPDX-License-Identifier: MIT */
/*
 * What the lab's callers and its servers say to each other over TCP on 127.0.0.1. A request, an answer, and so on: one at a time on a
 * connection, which is kept. Both ends are the same program on the same host, so there is no byte order to settle; but anybody may
 * connect to a port, and so the magic number is looked at, and whatever else stands in a message.
 */
#ifndef REHEARSE_WIRE_H
#define REHEARSE_WIRE_H

#include <assert.h>
#include <stdint.h>
#include <sys/socket.h>

#define WIRE_MAGIC UINT32_C(0x72657363)

struct wire_request {
	uint32_t magic;
	uint32_t request; /* index of its note on the board */
	uint16_t try;
	uint8_t probe;
	uint8_t unused[5];
};

enum wire_status { WIRE_OK, WIRE_ERROR };

struct wire_answer {
	uint32_t magic;
	uint32_t status;
	int64_t retry_after_ms; /* -1: nothing said */
};

static_assert(sizeof(struct wire_request) == 16 && sizeof(struct wire_answer) == 16, "no holes");

/* When this one is closed, the other end hears of it at once, whatever is under way; and no port is kept for what may still come. */
static inline void wire_reset_on_close(int fd)
{
	struct linger linger = {.l_onoff = 1, .l_linger = 0};
	setsockopt(fd, SOL_SOCKET, SO_LINGER, &linger, sizeof(linger));
}

#endif
