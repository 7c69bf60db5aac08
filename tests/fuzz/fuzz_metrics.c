/* SPDX-License-Identifier: MIT */
/*
 * Any bytes to the metrics page, in pieces of any size: an HTTP answer with a code that we know, or no answer; and a page that is complete.
 * The real server and the real event loop; the connection is a pair of sockets, so that no ports are used up.
 *
 * An input is what a peer says (peer.h).
 */
#include <microhttpd.h>
#include <netinet/in.h>

#include "../unit/every_guard.h"
#include "map.h"
#include "metrics.h"
#include "peer.h"
#include "record.h"

static struct {
	bool ready;
	struct loop loop;
	struct map map;
	struct metrics metrics;
} fuzz;

static void start(void)
{
	struct resc_error err;
	struct policy policy;

	REQUIRE(map_private(&fuzz.map, "fuzz", &err) == 0);
	every_guard(&policy);
	REQUIRE(record_publish(&fuzz.map, "payments", &policy) == 0);
	REQUIRE(loop_open(&fuzz.loop) == 0);
	REQUIRE(metrics_open(&fuzz.metrics, &fuzz.loop, &fuzz.map, "127.0.0.1:0", &err) == 0);
	/* An incomplete request has some seconds to be completed. */
	peer.impatient = true;
	fuzz.ready = true;
}

/* The peer's end. */
static int connect_peer(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int ends[2];

	REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) == 0);
	REQUIRE(MHD_add_connection(fuzz.metrics.http, ends[1], (struct sockaddr *)&address, sizeof address) == MHD_YES);
	return ends[0];
}

/* Of the first answer, where there are several. */
static void check_answer(void)
{
	static const char *const codes[] = {" 100", " 200", " 400", " 404", " 405", " 413", " 414", " 417", " 431", " 500", " 501", " 505"};
	const char *text = peer.answer, *end = memmem(text, peer.answered, "\r\n\r\n", 4);
	bool known = false;

	REQUIRE(peer.answered > 12 && strncmp(text, "HTTP/1.", 7) == 0 && end != NULL);
	for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
		known |= strncmp(text + 8, codes[i], 4) == 0;
	REQUIRE(known);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (!fuzz.ready)
		start();
	int fd = connect_peer();
	/* It is taken at the next turn of the server, which a connection that came through the port would bring about. */
	MHD_run(fuzz.metrics.http);
	peer_talk(&fuzz.loop, fd, data, size);
	metrics_tick(&fuzz.metrics);
	if (peer.answered > 0)
		check_answer();
	return 0;
}
