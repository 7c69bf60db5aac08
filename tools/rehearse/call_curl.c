/* SPDX-License-Identifier: MIT */
/*
 * Calls to what is not the lab's own, by libcurl: http:// and https:// as requests, tcp:// as a connection on which something is sent and
 * something must come back.
 *
 * Time limits are kept here and not by libcurl, because a caller also ends when the rehearsal does: it waits in slices, and takes its
 * transfer out when it has waited enough, which closes the connection, so that a late answer is nobody's. No proxy, whatever the
 * environment says: what is rehearsed is this dependency.
 *
 * A tcp connection is kept where the answer ended with a line; what had come after the expected part is read before the next call. Where
 * nothing is expected, each call connects.
 *
 * The server of another cannot note on the board what reached it, so its caller does.
 */
#include <curl/curl.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "caller.h"

#define DRAIN_READS 64u /* of 4 KiB: who has more to say after an answer may say it for ever */

struct curl_line {
	CURLM *multi;
	CURL *easy;
	bool is_tcp;
	bool added;           /* easy is in multi: a tcp connection lives as long */
	curl_socket_t socket; /* tcp; CURL_SOCKET_BAD: none */
	unsigned dependency;
	int lack;                    /* why this host had no socket for the last transfer; 0: it had */
	char error[CURL_ERROR_SIZE]; /* of the last transfer */
};

/* What came of a call. */
struct curl_end {
	enum resc_outcome outcome;
	enum receipt receipt;
	bool reached; /* the request was sent */
	int64_t sent_ns;
};

static struct curl_end ended(enum resc_outcome outcome, enum receipt receipt)
{
	return (struct curl_end){.outcome = outcome, .receipt = receipt};
}

/* Waited for in vain. */
static struct curl_end given_up(enum resc_outcome outcome)
{
	return ended(outcome, outcome == RESC_CANCELLED ? RECEIPT_PENDING : RECEIPT_HUNG);
}

/* ---- handles ---- */

static void prepare(void)
{
	signal(SIGPIPE, SIG_IGN); /* a TLS connection may write to who has gone */
	curl_global_init(CURL_GLOBAL_DEFAULT);
}

static size_t drop(char *bytes, size_t size, size_t count, void *arg)
{
	(void)bytes;
	(void)arg;
	return size * count;
}

/* As libcurl does it, which tells nobody why there was no socket. */
static curl_socket_t open_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *address)
{
	struct curl_line *line = arg;
	int fd = socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);

	(void)purpose;
	if (fd >= 0)
		return fd;
	if (call_is_lack(errno))
		line->lack = errno;
	return CURL_SOCKET_BAD;
}

static bool set_up(struct curl_line *line, const struct dependency *dependency)
{
	char *url = NULL;
	CURL *easy = line->easy;

	if (asprintf(&url, "%s%s", line->is_tcp ? "http" : "", dependency->address + (line->is_tcp ? strlen("tcp") : 0)) < 0)
		return false;
	bool good = curl_easy_setopt(easy, CURLOPT_URL, url) == CURLE_OK;
	free(url);
	curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	curl_easy_setopt(easy, CURLOPT_CONNECT_ONLY, line->is_tcp ? 1L : 0L);
	curl_easy_setopt(easy, CURLOPT_PROXY, "");
	curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	curl_easy_setopt(easy, CURLOPT_QUICK_EXIT, 1L); /* who gives up does not wait for the resolver */
	curl_easy_setopt(easy, CURLOPT_TCP_NODELAY, 1L);
	curl_easy_setopt(easy, CURLOPT_USERAGENT, "resctl-rehearse/" RESC_VERSION_STRING);
	curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, drop);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	curl_easy_setopt(easy, CURLOPT_OPENSOCKETDATA, line);
	curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, line->error);
	return good;
}

static struct curl_line *line_new(const struct caller *caller, unsigned number)
{
	const struct dependency *dependency = &caller->scenario->dependencies[number];
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	pthread_once(&once, prepare);

	struct curl_line *line = calloc(1, sizeof(*line));
	if (!line)
		return NULL;
	line->dependency = number;
	line->is_tcp = strncmp(dependency->address, "tcp:", 4) == 0;
	line->socket = CURL_SOCKET_BAD;
	line->multi = curl_multi_init();
	line->easy = curl_easy_init();
	if (line->multi && line->easy && set_up(line, dependency))
		return line;
	curl_easy_cleanup(line->easy);
	curl_multi_cleanup(line->multi);
	free(line);
	return NULL;
}

/* Ends the transfer; an unfinished one, and tcp, with its connection. */
static void take_out(struct curl_line *line)
{
	if (line->added)
		curl_multi_remove_handle(line->multi, line->easy);
	line->added = false;
	line->socket = CURL_SOCKET_BAD;
}

void curl_hang_up(struct line *line)
{
	if (!line->curl)
		return;
	take_out(line->curl);
	curl_easy_cleanup(line->curl->easy);
	curl_multi_cleanup(line->curl->multi);
	free(line->curl);
	line->curl = NULL;
}

/* ---- transfers ---- */

static CURLcode result_of(struct curl_line *line)
{
	int left;
	CURLMsg *message = curl_multi_info_read(line->multi, &left);
	return message && message->msg == CURLMSG_DONE ? message->data.result : CURLE_FAILED_INIT;
}

/* Runs the transfer to its end: RESC_OK, *code is what libcurl says. */
static enum resc_outcome transfer(const struct caller *caller, struct curl_line *line, int64_t deadline_ns, CURLcode *code)
{
	line->error[0] = '\0';
	line->lack = 0;
	curl_multi_add_handle(line->multi, line->easy);
	line->added = true;
	for (;;) {
		int running = 0;
		if (curl_multi_perform(line->multi, &running) != CURLM_OK)
			return RESC_FAIL;
		if (running == 0)
			break;
		int64_t slice_ns = call_slice_ns(deadline_ns);
		if (slice_ns == 0)
			return RESC_TIMEOUT;
		if (board_is_over(caller->board))
			return RESC_CANCELLED;
		curl_multi_poll(line->multi, NULL, 0, (int)((slice_ns + 999999) / 1000000), NULL);
	}
	*code = result_of(line);
	return RESC_OK;
}

/* What is not the dependency's failing, but a name that nobody knows or a certificate that nobody trusts. */
static bool is_our_mistake(CURLcode code)
{
	switch (code) {
	case CURLE_FAILED_INIT:
	case CURLE_URL_MALFORMAT:
	case CURLE_COULDNT_RESOLVE_HOST:
	case CURLE_OUT_OF_MEMORY:
	case CURLE_PEER_FAILED_VERIFICATION:
	case CURLE_SSL_CACERT_BADFILE:
		return true;
	default:
		return false;
	}
}

/* Of this host, and not of whom it calls. Who has several addresses may have one that is of no use here, so only programs, with their one.
 */
static int lack_of(const struct caller *caller, const struct curl_line *line, CURLcode code)
{
	long error = 0;

	if (code == CURLE_COULDNT_CONNECT && caller->scenario->dependencies[line->dependency].kind == DEPENDENCY_PROGRAM)
		curl_easy_getinfo(line->easy, CURLINFO_OS_ERRNO, &error);
	return error == EADDRNOTAVAIL ? EADDRNOTAVAIL : line->lack;
}

/* libcurl's own limits (for connecting: 300 s) are limits too. */
static struct curl_end broken(const struct caller *caller, const struct curl_line *line, CURLcode code)
{
	int lack = lack_of(caller, line, code);

	if (lack != 0)
		call_lacks(caller, line->dependency, lack);
	else if (is_our_mistake(code))
		call_complain(caller, line->dependency, line->error[0] != '\0' ? line->error : curl_easy_strerror(code));
	return code == CURLE_OPERATION_TIMEDOUT ? given_up(RESC_TIMEOUT) : ended(RESC_FAIL, RECEIPT_RESET);
}

static struct curl_end judge(CURL *easy, int64_t *retry_after_ms)
{
	long status = 0;
	struct curl_header *header;
	curl_easy_getinfo(easy, CURLINFO_RESPONSE_CODE, &status);
	if (curl_easy_header(easy, "Retry-After", 0, CURLH_HEADER, -1, &header) == CURLHE_OK)
		(void)resc_retry_after_parse(header->value, retry_after_ms); /* nothing that can be read: nothing said */
	if (status >= 500 || status == 429)
		return ended(RESC_FAIL, RECEIPT_ERROR);
	return ended(status >= 400 ? RESC_IGNORED : RESC_OK, RECEIPT_OK);
}

static struct curl_end call_http(const struct caller *caller, struct curl_line *line, int64_t deadline_ns, int64_t *retry_after_ms)
{
	int64_t begun_ns = board_now(caller->board);
	curl_off_t before_us = 0;
	CURLcode code = CURLE_OK;

	enum resc_outcome outcome = transfer(caller, line, deadline_ns, &code);
	struct curl_end end = outcome != RESC_OK ? given_up(outcome)
	                      : code != CURLE_OK ? broken(caller, line, code)
	                                         : judge(line->easy, retry_after_ms);
	curl_easy_getinfo(line->easy, CURLINFO_PRETRANSFER_TIME_T, &before_us);
	end.reached = before_us > 0;
	end.sent_ns = begun_ns + before_us * 1000;
	take_out(line);
	return end;
}

/* ---- tcp ---- */

/* The kernel may give a socket that connects to a port nobody listens on this very port, and then it hears itself. */
static bool is_itself(CURL *easy)
{
	long here = 0;
	long there = 0;
	char *host_here = NULL;
	char *host_there = NULL;
	curl_easy_getinfo(easy, CURLINFO_LOCAL_PORT, &here);
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_PORT, &there);
	curl_easy_getinfo(easy, CURLINFO_LOCAL_IP, &host_here);
	curl_easy_getinfo(easy, CURLINFO_PRIMARY_IP, &host_there);
	return here == there && host_here && host_there && strcmp(host_here, host_there) == 0;
}

static struct curl_end dial(const struct caller *caller, struct curl_line *line, int64_t deadline_ns)
{
	CURLcode code = CURLE_OK;
	take_out(line);
	enum resc_outcome outcome = transfer(caller, line, deadline_ns, &code);
	if (outcome != RESC_OK)
		return given_up(outcome);
	if (code != CURLE_OK)
		return broken(caller, line, code);
	if (curl_easy_getinfo(line->easy, CURLINFO_ACTIVESOCKET, &line->socket) != CURLE_OK || is_itself(line->easy))
		return ended(RESC_FAIL, RECEIPT_RESET);
	return ended(RESC_OK, RECEIPT_OK);
}

/* Reads what is there. False: it was closed, or it does not come to an end. *last is the last byte, where there was one. */
static bool drain(struct curl_line *line, char *last)
{
	char bytes[4096];
	for (unsigned reads = 0; reads < DRAIN_READS; reads++) {
		size_t n = 0;
		CURLcode code = curl_easy_recv(line->easy, bytes, sizeof(bytes), &n);
		if (code == CURLE_AGAIN)
			return true;
		if (code != CURLE_OK || n == 0)
			return false;
		*last = bytes[n - 1];
	}
	return false;
}

static struct curl_end send_all(const struct caller *caller, struct curl_line *line, const char *text, int64_t deadline_ns)
{
	size_t left = strlen(text);
	while (left > 0) {
		size_t n = 0;
		CURLcode code = curl_easy_send(line->easy, text, left, &n);
		if (code == CURLE_AGAIN) {
			enum resc_outcome outcome = call_await(caller, line->socket, POLLOUT, deadline_ns);
			if (outcome != RESC_OK)
				return given_up(outcome);
		} else if (code != CURLE_OK) {
			return broken(caller, line, code);
		}
		text += n;
		left -= n;
	}
	return ended(RESC_OK, RECEIPT_OK);
}

/* Reads as much as is expected, and compares. */
static struct curl_end expect(const struct caller *caller, struct curl_line *line, const char *text, int64_t deadline_ns, char *last)
{
	char bytes[4096];
	size_t left = strlen(text);
	while (left > 0) {
		size_t n = 0;
		CURLcode code = curl_easy_recv(line->easy, bytes, sizeof(bytes), &n);
		if (code == CURLE_AGAIN) {
			enum resc_outcome outcome = call_await(caller, line->socket, POLLIN, deadline_ns);
			if (outcome != RESC_OK)
				return given_up(outcome);
			continue;
		}
		if (code != CURLE_OK || n == 0)
			return broken(caller, line, code);
		size_t part = n < left ? n : left;
		if (memcmp(bytes, text, part) != 0)
			return ended(RESC_FAIL, RECEIPT_ERROR);
		*last = bytes[n - 1];
		text += part;
		left -= part;
	}
	return ended(RESC_OK, RECEIPT_OK);
}

static struct curl_end talk(const struct caller *caller, struct curl_line *line, const struct dependency *dependency, int64_t deadline_ns)
{
	struct curl_end end = ended(RESC_OK, RECEIPT_OK);
	char last = '\0';

	if (dependency->send)
		end = send_all(caller, line, dependency->send, deadline_ns);
	if (end.outcome == RESC_OK && dependency->expect)
		end = expect(caller, line, dependency->expect, deadline_ns, &last);
	if (end.outcome != RESC_OK || !drain(line, &last) || last != '\n')
		take_out(line);
	return end;
}

static struct curl_end call_tcp(const struct caller *caller, struct curl_line *line, const struct dependency *dependency,
                                int64_t deadline_ns)
{
	char last;
	if (line->socket == CURL_SOCKET_BAD || !drain(line, &last)) {
		struct curl_end end = dial(caller, line, deadline_ns);
		if (end.outcome != RESC_OK) {
			take_out(line);
			return end;
		}
	}
	int64_t sent_ns = board_now(caller->board);
	struct curl_end end = talk(caller, line, dependency, deadline_ns);
	end.reached = true;
	end.sent_ns = sent_ns;
	return end;
}

/* ---- a call ---- */

static void note(const struct caller *caller, unsigned dependency, const struct call *call, const struct curl_end *end, bool during_fault)
{
	struct receipt_note *note = board_receipt(caller->board);
	if (!note)
		return;
	note->received_ns = end->sent_ns;
	note->answered_ns = end->receipt == RECEIPT_HUNG || end->receipt == RECEIPT_PENDING ? 0 : board_now(caller->board);
	note->request = call->request;
	note->dependency = (uint16_t)dependency;
	note->try = call->try;
	note->receipt = (uint8_t)end->receipt;
	note->probe = call->probe;
	note->during_fault = during_fault;
	/* release: who sees it done sees the rest. */
	atomic_store_explicit(&note->done, 1, memory_order_release);
}

enum resc_outcome curl_call(struct caller *caller, unsigned dependency, const struct call *call, struct call_result *result)
{
	const struct dependency *d = &caller->scenario->dependencies[dependency];
	struct line *line = &caller->lines[dependency];
	int64_t deadline_ns = call_deadline_ns(call);

	if (!line->curl)
		line->curl = line_new(caller, dependency);
	if (!line->curl) {
		call_lacks(caller, dependency, ENOMEM);
		return RESC_FAIL;
	}
	struct curl_end end = line->curl->is_tcp ? call_tcp(caller, line->curl, d, deadline_ns)
	                                         : call_http(caller, line->curl, deadline_ns, &result->retry_after_ms);
	if (end.reached)
		note(caller, dependency, call, &end, result->during_fault);
	return end.outcome;
}
