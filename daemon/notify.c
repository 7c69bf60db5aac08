/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: with Type=notify a service manager knows when rescd really serves, when it reloads and that its loop still turns.
 * The protocol is one datagram to the socket in $NOTIFY_SOCKET ('@' first: an abstract name), so it needs no library.
 */
#include "notify.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static int notify_address(struct sockaddr_un *address, socklen_t *size)
{
	const char *path = getenv("NOTIFY_SOCKET");
	size_t length = path ? strlen(path) : 0;

	if (length < 2 || length >= sizeof(address->sun_path) || (path[0] != '/' && path[0] != '@'))
		return -ENOENT;
	*address = (struct sockaddr_un){.sun_family = AF_UNIX};
	memcpy(address->sun_path, path, length);
	if (path[0] == '@')
		address->sun_path[0] = '\0';
	*size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
	return 0;
}

void notify_send(const char *state)
{
	struct sockaddr_un address;
	socklen_t size;
	int fd;

	if (notify_address(&address, &size) < 0)
		return;
	fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return;
	sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address, size);
	close(fd);
}

void notify_reloading(void)
{
	char state[64];
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	snprintf(state, sizeof(state), "RELOADING=1\nMONOTONIC_USEC=%" PRIu64,
	         (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u);
	notify_send(state);
}

uint64_t notify_watchdog_ms(void)
{
	const char *usec = getenv("WATCHDOG_USEC");
	const char *pid = getenv("WATCHDOG_PID");

	if (!usec || (pid && strtoll(pid, NULL, 10) != getpid()))
		return 0;
	return strtoull(usec, NULL, 10) / 2000u;
}
