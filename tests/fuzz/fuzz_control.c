/* SPDX-License-Identifier: MIT */
/*
 * Any bytes to the control socket, in pieces of any size: each client gets one line of JSON, or is hung up on, and nobody who did not send
 * exactly one command is obeyed. The real socket and the real event loop, in one process.
 *
 * An input is pieces: a byte that says how long one is (255: the sender hangs up here), and its bytes.
 */
#include <errno.h>
#include <jansson.h>
#include <stdbool.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "control.h"
#include "standalone.h"

#define HANG_UP 255

static struct {
	bool ready;
	char directory[48];
	char path[CONTROL_PATH];
	struct loop loop;
	struct control control;

	/* Of one input. */
	struct watch peer;
	struct input in;
	bool said_all;
	bool obeyed;
	char sent[2 * CONTROL_LINE];
	size_t sent_size;
	char answer[CONTROL_LINE];
	size_t answered;
} fuzz;

/* ---- rescd's side ---- */

/* Only a whole line that is an object with one key gets this far. */
static json_t *obey(void *arg, const char *command)
{
	char text[CONTROL_LINE + 1];
	const char *end = memchr(fuzz.sent, '\n', fuzz.sent_size);
	size_t length = end == NULL ? fuzz.sent_size : (size_t)(end - fuzz.sent);

	(void)arg;
	REQUIRE(!fuzz.obeyed && length <= CONTROL_LINE);
	fuzz.obeyed = true;
	memcpy(text, fuzz.sent, length);
	text[length] = '\0';
	REQUIRE(strstr(text, "{") != NULL && (strstr(text, "command") != NULL || strchr(text, '\\') != NULL));
	return strcmp(command, "ping") == 0 ? json_pack("{s:b}", "ok", 1) : NULL;
}

/* ---- the peer's side ---- */

static void say_next(void)
{
	uint8_t piece[HANG_UP];
	size_t size = take_byte(&fuzz.in);

	if (fuzz.in.size == 0 || size == HANG_UP || fuzz.sent_size + size > sizeof fuzz.sent) {
		fuzz.said_all = true;
		shutdown(fuzz.peer.fd, SHUT_WR);
		return;
	}
	if (size > fuzz.in.size)
		size = fuzz.in.size;
	for (size_t i = 0; i < size; i++)
		piece[i] = take_byte(&fuzz.in);
	/* A failure: rescd has heard enough, and hung up. */
	ssize_t n = send(fuzz.peer.fd, piece, size, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (n > 0) {
		memcpy(fuzz.sent + fuzz.sent_size, piece, (size_t)n);
		fuzz.sent_size += (size_t)n;
	}
}

static void hear(void)
{
	size_t room = sizeof fuzz.answer - fuzz.answered;
	ssize_t n = recv(fuzz.peer.fd, fuzz.answer + fuzz.answered, room, MSG_DONTWAIT);

	if (n < 0 && errno == EAGAIN)
		return;
	if (n > 0) {
		fuzz.answered += (size_t)n;
		REQUIRE(fuzz.answered < sizeof fuzz.answer);
		return;
	}
	loop_stop(&fuzz.loop);
}

static void peer_ready(void *arg, uint32_t events)
{
	(void)arg;
	if ((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0)
		hear();
	else
		say_next();
	loop_change(&fuzz.loop, &fuzz.peer, fuzz.said_all ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

/* ---- running ---- */

static void clean_up(void)
{
	unlink(fuzz.path);
	rmdir(fuzz.directory);
}

static void start(void)
{
	struct resc_error err;

	snprintf(fuzz.directory, sizeof fuzz.directory, "/tmp/resc-fuzz-%d-XXXXXX", (int)getpid());
	REQUIRE(mkdtemp(fuzz.directory) != NULL);
	snprintf(fuzz.path, sizeof fuzz.path, "%s/control.sock", fuzz.directory);
	atexit(clean_up);
	fuzz.control.command = obey;
	fuzz.peer.fd = -1;
	REQUIRE(loop_open(&fuzz.loop) == 0 && control_open(&fuzz.control, &fuzz.loop, fuzz.path, (gid_t)-1, &err) == 0);
	fuzz.ready = true;
}

static void connect_peer(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, fuzz.path, sizeof address.sun_path);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	fuzz.peer = (struct watch){.fd = -1, .ready = peer_ready};
	REQUIRE(loop_add(&fuzz.loop, &fuzz.peer, fd, EPOLLIN | EPOLLOUT) == 0);
}

/* One line, which is an object that says whether it was done. */
static void check_answer(void)
{
	json_t *answer = json_loadb(fuzz.answer, fuzz.answered, JSON_REJECT_DUPLICATES, NULL);

	REQUIRE(fuzz.answer[fuzz.answered - 1] == '\n');
	REQUIRE(memchr(fuzz.answer, '\n', fuzz.answered) == fuzz.answer + fuzz.answered - 1);
	REQUIRE(json_is_boolean(json_object_get(answer, "ok")));
	REQUIRE(fuzz.obeyed || json_is_false(json_object_get(answer, "ok")));
	json_decref(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!fuzz.ready)
		start();
	fuzz.in = (struct input){data, size};
	fuzz.said_all = fuzz.obeyed = fuzz.loop.stopped = false;
	fuzz.sent_size = fuzz.answered = 0;
	connect_peer();
	REQUIRE(loop_run(&fuzz.loop) == 0);
	loop_remove(&fuzz.loop, &fuzz.peer);
	if (fuzz.answered > 0)
		check_answer();
	else
		REQUIRE(!fuzz.obeyed);
	return 0;
}
