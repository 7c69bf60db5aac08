/* SPDX-License-Identifier: MIT */
/*
 * Any bytes to the control socket, in pieces of any size: each client gets one line of JSON, or is hung up on, and nobody who did not send
 * exactly one command is obeyed. The real socket and the real event loop, in one process.
 *
 * An input is what a peer says (peer.h).
 */
#include <jansson.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "control.h"
#include "peer.h"

static struct {
	bool ready;
	char directory[48];
	char path[CONTROL_PATH];
	struct loop loop;
	struct control control;

	bool obeyed; /* in this input */
} fuzz;

/* ---- rescd's side ---- */

/* Only a whole line that is an object with one key gets this far. */
static json_t *obey(void *arg, const char *command)
{
	char text[CONTROL_LINE + 1];
	const char *end = memchr(peer.sent, '\n', peer.sent_size);
	size_t length = end == NULL ? peer.sent_size : (size_t)(end - peer.sent);

	(void)arg;
	REQUIRE(!fuzz.obeyed && length <= CONTROL_LINE);
	fuzz.obeyed = true;
	memcpy(text, peer.sent, length);
	text[length] = '\0';
	REQUIRE(strstr(text, "{") != NULL && (strstr(text, "command") != NULL || strchr(text, '\\') != NULL));
	return strcmp(command, "ping") == 0 ? json_pack("{s:b}", "ok", 1) : NULL;
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
	REQUIRE(loop_open(&fuzz.loop) == 0 && control_open(&fuzz.control, &fuzz.loop, fuzz.path, (gid_t)-1, &err) == 0);
	fuzz.ready = true;
}

static int connect_peer(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	memcpy(address.sun_path, fuzz.path, sizeof address.sun_path);
	REQUIRE(fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
	return fd;
}

/* One line, which is an object that says whether it was done. */
static void check_answer(void)
{
	json_t *answer = json_loadb(peer.answer, peer.answered, JSON_REJECT_DUPLICATES, NULL);

	REQUIRE(peer.answer[peer.answered - 1] == '\n');
	REQUIRE(memchr(peer.answer, '\n', peer.answered) == peer.answer + peer.answered - 1);
	REQUIRE(json_is_boolean(json_object_get(answer, "ok")));
	REQUIRE(fuzz.obeyed || json_is_false(json_object_get(answer, "ok")));
	json_decref(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!fuzz.ready)
		start();
	fuzz.obeyed = false;
	peer_talk(&fuzz.loop, connect_peer(), data, size);
	if (peer.answered > 0)
		check_answer();
	else
		REQUIRE(!fuzz.obeyed);
	return 0;
}
