/* SPDX-License-Identifier: MIT */
/*
 * Dependencies of a rehearsal and their callers: each fault is met by a real call over a real connection, and stands on the board. Times
 * are lower bounds, or far apart: the machine may be busy.
 */
#include <check.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dependency.h"
#include "fixture.h"
#include "rehearse/call.h"
#include "rehearse/wire.h"

#define MS      INT64_C(1000000)
#define OFFERED 64
#define FOREVER SCENARIO_FOREVER
#define SOON_MS 5000 /* a call that gets an answer gets it well before */

static int64_t arrivals[OFFERED];
static struct span latency;
static struct fault faults[2];
static struct dependency dependency;
static struct load load;
static struct scenario scenario;
static struct board *board;
static struct dependencies *running;
static struct caller *caller;
static pid_t foreign; /* a server that is not the lab's */

static int64_t clock_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static void nap(int64_t ms)
{
	nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * MS}, NULL);
}

/* The lab's own server, which answers at once. */
static void set_up(void)
{
	latency = (struct span){.kind = SPAN_FIXED, .share = 1};
	dependency =
	        (struct dependency){.name = "prices", .kind = DEPENDENCY_SERVER, .latency = &latency, .latency_count = 1, .faults = faults};
	load = (struct load){.name = "users", .chain_count = 1, .arrivals = ARRIVALS_AT, .at = arrivals, .at_count = OFFERED};
	scenario = (struct scenario){
	        .duration_ns = 60000 * MS,
	        .workers = 1,
	        .threads = 1,
	        .seed = 1,
	        .dependencies = &dependency,
	        .dependency_count = 1,
	        .loads = &load,
	        .load_count = 1,
	        .slowest_attempts = 100,
	};
}

static void tear_down(void)
{
	caller_free(caller);
	dependencies_stop(running);
	board_free(board);
	if (foreign > 0) {
		kill(foreign, SIGKILL);
		waitpid(foreign, NULL, 0);
	}
	if (dependency.kind == DEPENDENCY_ADDRESS)
		free(dependency.address);
	foreign = 0;
	caller = NULL;
	running = NULL;
	board = NULL;
}

static void fault(enum fault_kind kind, int64_t from_ms, int64_t to_ms)
{
	faults[dependency.fault_count++] = (struct fault){
	        .kind = kind,
	        .from_ns = from_ms * MS,
	        .to_ns = to_ms == FOREVER ? FOREVER : to_ms * MS,
	        .share = 1,
	        .retry_after_ms = -1,
	};
}

static void play(void)
{
	pid_t children[SCENARIO_DEPENDENCIES + 1];
	size_t count;

	board = board_new(&scenario);
	ck_assert_ptr_nonnull(board);
	running = dependencies_start(&scenario, board, children, &count);
	ck_assert_ptr_nonnull(running);
	ck_assert_uint_eq(count, dependency.kind == DEPENDENCY_ADDRESS ? 0 : 1);
	caller = caller_new(&scenario, board);
	ck_assert_ptr_nonnull(caller);
	board_start(board, clock_ns());
}

static struct call_result call_as(uint32_t number, uint16_t try, int64_t timeout_ms)
{
	struct call call = {.request = number - 1, .try = try, .timeout_ms = timeout_ms};
	return caller_call(caller, 0, &call);
}

static enum resc_outcome call(int64_t timeout_ms)
{
	return call_as(1, 1, timeout_ms).outcome;
}

/* A server that is not there takes its turn to come back, and has none where the processors are taken. Until then a call fails, unreceived.
 */
static enum resc_outcome call_when_back(int64_t timeout_ms)
{
	const int64_t most_ns = board_now(board) + 20000 * MS;
	enum resc_outcome outcome = RESC_FAIL;

	while (outcome == RESC_FAIL && board_now(board) < most_ns) {
		nap(1);
		outcome = call(timeout_ms);
	}
	return outcome;
}

static void until(int64_t ms)
{
	while (board_now(board) < ms * MS)
		nap(1);
}

static uint32_t received(void)
{
	return atomic_load_explicit(&board->receipts, memory_order_relaxed);
}

/* The note, which is complete, now or soon. */
static const struct receipt_note *receipt(uint32_t number)
{
	const struct receipt_note *note = &board->receipt_notes[number - 1];
	ck_assert_uint_le(number, received());
	for (int i = 0; i < 5000 && atomic_load_explicit(&note->done, memory_order_acquire) == 0; i++)
		nap(1);
	ck_assert_uint_eq(atomic_load_explicit(&note->done, memory_order_acquire), 1);
	return note;
}

/* ---- the lab's own server ---- */

START_TEST(a_call_is_answered_and_noted)
{
	play();
	struct call asked = {.request = 4, .try = 2, .probe = true, .timeout_ms = SOON_MS};
	struct call_result result = caller_call(caller, 0, &asked);
	ck_assert_int_eq(result.outcome, RESC_OK);
	ck_assert_int_eq(result.retry_after_ms, -1);
	ck_assert(!result.during_fault);

	const struct receipt_note *note = receipt(1);
	ck_assert_uint_eq(received(), 1);
	ck_assert_uint_eq(note->receipt, RECEIPT_OK);
	ck_assert_uint_eq(note->request, 4);
	ck_assert_uint_eq(note->try, 2);
	ck_assert(note->probe && !note->during_fault && !note->caller_gone);
	ck_assert_int_ge(note->received_ns, 0);
	ck_assert_int_ge(note->answered_ns, note->received_ns);
}
END_TEST

START_TEST(a_thousand_calls_are_a_thousand_receipts)
{
	play();
	for (int i = 0; i < 1000; i++)
		ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_uint_eq(received(), 1000);
}
END_TEST

START_TEST(an_answer_takes_its_latency)
{
	latency.from_ns = 30 * MS;
	play();
	int64_t begun_ns = clock_ns();
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_int_ge(clock_ns() - begun_ns, 30 * MS);
	ck_assert_int_ge(receipt(1)->answered_ns - receipt(1)->received_ns, 30 * MS);
}
END_TEST

START_TEST(E3_the_charge_is_done_although_the_client_has_gone)
{
	latency.from_ns = 60 * MS;
	play();
	ck_assert_int_eq(call(20), RESC_TIMEOUT);
	const struct receipt_note *note = receipt(1);
	ck_assert_uint_eq(note->receipt, RECEIPT_OK);
	ck_assert(note->caller_gone);
	ck_assert_int_ge(note->answered_ns - note->received_ns, 60 * MS);
}
END_TEST

START_TEST(a_late_answer_is_not_taken_for_the_next_ones)
{
	/* The first request is slow, and so is its answer; the next one gets an error. */
	fault(FAULT_SLOW, 0, FOREVER);
	faults[0].latency_ns = 60 * MS;
	faults[0].from_request = faults[0].to_request = 1;
	fault(FAULT_ERRORS, 0, FOREVER);
	faults[1].from_request = faults[1].to_request = 2;
	play();
	ck_assert_int_eq(call_as(1, 1, 10).outcome, RESC_TIMEOUT);
	ck_assert_int_eq(call_as(2, 1, SOON_MS).outcome, RESC_FAIL);
	receipt(1); /* answered by now */
	ck_assert_int_eq(call_as(2, 2, SOON_MS).outcome, RESC_FAIL);
	ck_assert_int_eq(call_as(3, 1, SOON_MS).outcome, RESC_OK);
}
END_TEST

START_TEST(E1_one_that_hangs_never_answers_a_kept_connection_neither)
{
	fault(FAULT_HANG, 0, FOREVER);
	faults[0].from_request = 2, faults[0].to_request = 2;
	play();
	ck_assert_int_eq(call_as(1, 1, SOON_MS).outcome, RESC_OK);
	int64_t begun_ns = clock_ns();
	struct call_result result = call_as(2, 1, 50);
	ck_assert_int_eq(result.outcome, RESC_TIMEOUT);
	ck_assert(result.during_fault);
	ck_assert_int_ge(clock_ns() - begun_ns, 50 * MS);
	ck_assert_uint_eq(receipt(2)->receipt, RECEIPT_HUNG);
	ck_assert_int_eq(receipt(2)->answered_ns, 0);
	ck_assert(receipt(2)->during_fault);
	ck_assert_int_eq(call_as(3, 1, SOON_MS).outcome, RESC_OK);
}
END_TEST

START_TEST(errors_come_at_once_with_the_servers_word)
{
	latency.from_ns = 60000 * MS;
	fault(FAULT_ERRORS, 0, FOREVER);
	faults[0].retry_after_ms = 2000;
	play();
	struct call_result result = call_as(1, 1, SOON_MS);
	ck_assert_int_eq(result.outcome, RESC_FAIL);
	ck_assert_int_eq(result.retry_after_ms, 2000);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_ERROR);
}
END_TEST

START_TEST(a_reset_is_a_failure_of_a_request_that_was_received)
{
	fault(FAULT_RESET, 0, FOREVER);
	faults[0].tries = 1;
	play();
	ck_assert_int_eq(call_as(1, 1, SOON_MS).outcome, RESC_FAIL);
	ck_assert_uint_eq(received(), 1);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_RESET);
	ck_assert_int_eq(call_as(1, 2, SOON_MS).outcome, RESC_OK);
}
END_TEST

START_TEST(who_refuses_is_not_there_and_comes_back)
{
	fault(FAULT_REFUSE, 100, 300);
	play();
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	until(150);
	int64_t begun_ns = clock_ns();
	struct call_result result = call_as(1, 1, 60000);
	const uint32_t late = board_now(board) >= 300 * MS && result.outcome == RESC_OK; /* who was held up until then met nothing */
	ck_assert(late || result.outcome == RESC_FAIL);
	ck_assert(board_now(board) >= 300 * MS || result.during_fault);
	ck_assert_int_lt(clock_ns() - begun_ns, 10000 * MS);
	ck_assert_uint_eq(received(), 1 + late);
	until(300);
	ck_assert_int_eq(call_when_back(SOON_MS), RESC_OK);
	ck_assert_uint_eq(received(), 2 + late);
}
END_TEST

START_TEST(who_refuses_from_the_beginning_does_so)
{
	fault(FAULT_REFUSE, 0, FOREVER);
	play();
	for (int i = 0; i < 20; i++)
		ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_uint_eq(received(), 0);
}
END_TEST

START_TEST(what_is_in_work_is_lost_when_the_server_goes_down)
{
	latency.from_ns = 400 * MS;
	fault(FAULT_REFUSE, 150, FOREVER);
	play();
	int64_t begun_ns = clock_ns();
	ck_assert_int_eq(call(60000), RESC_FAIL);
	ck_assert_int_lt(clock_ns() - begun_ns, 10000 * MS);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_RESET);
	nap(400); /* when it would have been due */
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_RESET);
}
END_TEST

START_TEST(a_connection_that_was_closed_between_two_calls_is_no_failure)
{
	fault(FAULT_REFUSE, 100, 101);
	play();
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	until(200);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_uint_eq(received(), 2);
}
END_TEST

/* ---- several callers ---- */

struct client {
	pthread_t thread;
	uint32_t number;
	int64_t timeout_ms;
	struct call_result result;
	int64_t took_ns;
};

static void *call_once(void *arg)
{
	struct client *client = arg;
	struct caller *own = caller_new(&scenario, board);
	struct call asked = {.request = client->number - 1, .try = 1, .timeout_ms = client->timeout_ms};
	int64_t begun_ns = clock_ns();
	client->result = caller_call(own, 0, &asked);
	client->took_ns = clock_ns() - begun_ns;
	caller_free(own);
	return NULL;
}

static void call_together(struct client *clients, uint32_t count, int64_t timeout_ms)
{
	for (uint32_t i = 0; i < count; i++) {
		clients[i] = (struct client){.number = i + 1, .timeout_ms = timeout_ms};
		ck_assert_int_eq(pthread_create(&clients[i].thread, NULL, call_once, &clients[i]), 0);
	}
	for (uint32_t i = 0; i < count; i++)
		pthread_join(clients[i].thread, NULL);
}

static uint32_t count_receipts(enum receipt kind)
{
	uint32_t count = 0;
	for (uint32_t i = 1; i <= received(); i++)
		count += receipt(i)->receipt == kind;
	return count;
}

static int64_t first_received_ns(void)
{
	int64_t first_ns = FOREVER;
	for (uint32_t i = 1; i <= received(); i++)
		first_ns = receipt(i)->received_ns < first_ns ? receipt(i)->received_ns : first_ns;
	return first_ns;
}

START_TEST(beyond_its_capacity_and_queue_it_sheds)
{
	struct client clients[10];
	latency.from_ns = 400 * MS;
	dependency.capacity = 3;
	dependency.queue = 2;
	play();
	call_together(clients, 10, 60000);
	ck_assert_uint_eq(count_receipts(RECEIPT_OK), 5);
	ck_assert_uint_eq(count_receipts(RECEIPT_SHED), 5);
	/* Who waited for a place was answered when the first ones had been, and then as long again. */
	unsigned second = 0;
	for (uint32_t i = 1; i <= 10; i++)
		second += receipt(i)->receipt == RECEIPT_OK && receipt(i)->answered_ns >= first_received_ns() + 2 * latency.from_ns;
	ck_assert_uint_eq(second, 2);
}
END_TEST

START_TEST(its_one_processor_serves_one_after_the_other_the_refused_ones_too)
{
	struct client clients[10];
	dependency.cpu_ns = 20 * MS;
	dependency.capacity = 1;
	latency.from_ns = 30 * MS;
	play();
	call_together(clients, 10, 60000);
	int64_t last_ns = 0;
	for (uint32_t i = 1; i <= 10; i++)
		last_ns = receipt(i)->answered_ns > last_ns ? receipt(i)->answered_ns : last_ns;
	ck_assert_int_ge(last_ns - first_received_ns(), 10 * dependency.cpu_ns);
	ck_assert_uint_ge(count_receipts(RECEIPT_SHED), 1);
	ck_assert_uint_ge(count_receipts(RECEIPT_OK), 2);
}
END_TEST

START_TEST(E4_who_gives_up_before_he_was_read_was_not_received)
{
	struct client clients[10];
	dependency.cpu_ns = 300 * MS;
	play();
	call_together(clients, 10, 100);
	ck_assert_uint_eq(received(), 1);
	ck_assert(receipt(1)->caller_gone);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_OK);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_uint_eq(received(), 2);
}
END_TEST

START_TEST(what_was_not_read_goes_down_with_the_server)
{
	struct client clients[10];
	dependency.cpu_ns = 60000 * MS;
	fault(FAULT_REFUSE, 200, 300);
	play();
	call_together(clients, 10, 60000);
	ck_assert_uint_eq(received(), 1);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_RESET);
	until(300);
	ck_assert_int_eq(call_when_back(100), RESC_TIMEOUT); /* it is there again, and busy with this one */
	ck_assert_uint_eq(received(), 2);
}
END_TEST

static void *end_soon(void *arg)
{
	(void)arg;
	nap(50);
	board_end(board);
	return NULL;
}

START_TEST(who_waits_without_a_limit_ends_when_the_rehearsal_does)
{
	pthread_t thread;
	fault(FAULT_HANG, 0, FOREVER);
	play();
	pthread_create(&thread, NULL, end_soon, NULL);
	ck_assert_int_eq(call(-1), RESC_CANCELLED);
	pthread_join(thread, NULL);
	ck_assert_int_eq(call(-1), RESC_CANCELLED); /* and nobody calls any more */
	ck_assert_uint_eq(received(), 1);
}
END_TEST

static void *end_with_its_dependencies(void *arg)
{
	nap(50);
	board_end(board);
	dependencies_stop(running);
	running = NULL;
	return arg;
}

START_TEST(a_dependency_that_is_ended_with_the_rehearsal_has_not_failed)
{
	pthread_t thread;
	fault(FAULT_HANG, 0, FOREVER);
	play();
	pthread_create(&thread, NULL, end_with_its_dependencies, NULL);
	ck_assert_int_eq(call(-1), RESC_CANCELLED);
	pthread_join(thread, NULL);
}
END_TEST

START_TEST(what_was_not_answered_at_the_end_is_pending)
{
	latency.from_ns = 60000 * MS;
	play();
	ck_assert_int_eq(call(20), RESC_TIMEOUT);
	ck_assert_uint_eq(atomic_load_explicit(&board->receipt_notes[0].done, memory_order_acquire), 0);
	board_end(board);
	dependencies_stop(running);
	running = NULL;
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_PENDING);
	ck_assert_int_eq(receipt(1)->answered_ns, 0);
}
END_TEST

/* ---- strangers ---- */

static int dial_stranger(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET,
	                              .sin_port = htons((uint16_t)strtoul(strrchr(dependency.address, ':') + 1, NULL, 10)),
	                              .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

static void is_shown_out(const void *bytes, size_t size)
{
	char byte;
	int fd = dial_stranger();
	ck_assert_int_eq(send(fd, bytes, size, MSG_NOSIGNAL), (ssize_t)size);
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	close(fd);
}

START_TEST(a_stranger_is_shown_out_and_nothing_noted)
{
	struct wire_request beyond = {.magic = WIRE_MAGIC, .request = OFFERED, .try = 1};
	play();
	is_shown_out("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 16);
	is_shown_out(&beyond, sizeof(beyond));
	ck_assert_uint_eq(received(), 0);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
}
END_TEST

START_TEST(who_speaks_before_he_was_answered_is_shown_out)
{
	struct wire_request request = {.magic = WIRE_MAGIC, .try = 1};
	char byte;
	fault(FAULT_HANG, 0, FOREVER);
	play();
	int fd = dial_stranger();
	ck_assert_int_eq(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
	ck_assert_int_eq(send(fd, &request, sizeof(request), MSG_NOSIGNAL), sizeof(request));
	ck_assert_int_le(recv(fd, &byte, 1, 0), 0);
	close(fd);
	ck_assert_uint_eq(received(), 1);
}
END_TEST

/* ---- addresses: a server of somebody else's ---- */

static int listener = -1;

static uint16_t listen_anywhere(void)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t size = sizeof(address);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, sizeof(address)), 0);
	ck_assert_int_eq(listen(listener, 16), 0);
	ck_assert_int_eq(getsockname(listener, (struct sockaddr *)&address, &size), 0);
	return ntohs(address.sin_port);
}

/* An answer for each request of a connection; "" hangs up without a word; NULL: says nothing. */
static const char *const *answers;

static void serve(int fd, const char *const **next)
{
	char bytes[2048];
	while (recv(fd, bytes, sizeof(bytes), 0) > 0) {
		const char *answer = *(*next)++;
		if (!answer)
			pause();
		if (*answer == '\0')
			break;
		if (send(fd, answer, strlen(answer), MSG_NOSIGNAL) < 0)
			break;
	}
	close(fd);
}

/* In a process of its own, one connection after the other. */
static void play_foreign(const char *scheme, const char *const *script)
{
	char *address;
	uint16_t port = listen_anywhere();
	ck_assert_int_gt(asprintf(&address, "%s://127.0.0.1:%u%s", scheme, port, *scheme == 'h' ? "/health" : ""), 0);
	dependency.kind = DEPENDENCY_ADDRESS;
	dependency.address = address;
	answers = script;
	pid_t parent = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		while (getppid() == parent)
			serve(accept(listener, NULL, NULL), &answers);
		_exit(0);
	}
	ck_assert_int_gt(pid, 0);
	foreign = pid;
	close(listener);
	play();
}

START_TEST(http_answers_are_judged_by_their_status)
{
	static const char *const script[] = {
	        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
	        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
	        "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nRetry-After: 7\r\n\r\n",
	        "HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nRetry-After: soon\r\n\r\n",
	        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n",
	        "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: http://127.0.0.1:1/\r\n\r\n",
	};
	static const struct {
		enum resc_outcome outcome;
		int64_t retry_after_ms;
		enum receipt receipt;
	} expected[] = {
	        {RESC_OK, -1, RECEIPT_OK},      {RESC_IGNORED, -1, RECEIPT_OK}, {RESC_FAIL, 7000, RECEIPT_ERROR},
	        {RESC_FAIL, -1, RECEIPT_ERROR}, {RESC_FAIL, -1, RECEIPT_ERROR}, {RESC_OK, -1, RECEIPT_OK},
	};
	setenv("http_proxy", "http://127.0.0.1:1", 1); /* whatever the environment says */
	play_foreign("http", script);
	for (uint32_t i = 0; i < 6; i++) {
		struct call_result result = call_as(i + 1, 1, SOON_MS);
		ck_assert_int_eq(result.outcome, expected[i].outcome);
		ck_assert_int_eq(result.retry_after_ms, expected[i].retry_after_ms);
		ck_assert_uint_eq(received(), i + 1);
		ck_assert_uint_eq(receipt(i + 1)->receipt, expected[i].receipt);
		ck_assert_uint_eq(receipt(i + 1)->request, i);
		ck_assert_int_ge(receipt(i + 1)->answered_ns, receipt(i + 1)->received_ns);
	}
}
END_TEST

START_TEST(http_that_does_not_answer_is_a_timeout_and_stands_on_the_board)
{
	static const char *const script[] = {NULL};
	play_foreign("http", script);
	int64_t begun_ns = clock_ns();
	ck_assert_int_eq(call(60), RESC_TIMEOUT);
	ck_assert_int_ge(clock_ns() - begun_ns, 60 * MS);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_HUNG);
}
END_TEST

START_TEST(http_that_hangs_up_has_failed)
{
	static const char *const script[] = {"", "", "", ""};
	play_foreign("http", script);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_RESET);
}
END_TEST

START_TEST(http_calls_end_with_the_rehearsal)
{
	static const char *const script[] = {NULL};
	pthread_t thread;
	play_foreign("http", script);
	pthread_create(&thread, NULL, end_soon, NULL);
	ck_assert_int_eq(call(-1), RESC_CANCELLED);
	pthread_join(thread, NULL);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_PENDING);
}
END_TEST

START_TEST(nobody_at_an_address_is_a_failure_and_nothing_received)
{
	static char address[64];
	uint16_t port = listen_anywhere();
	close(listener);
	dependency.kind = DEPENDENCY_ADDRESS;
	dependency.address = address;
	snprintf(address, sizeof(address), "http://127.0.0.1:%u/", port);
	play();
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	snprintf(address, sizeof(address), "tcp://127.0.0.1:%u", port);
	caller_free(caller);
	caller = caller_new(&scenario, board);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_uint_eq(received(), 0);
	ck_assert_uint_eq(atomic_load_explicit(&board->complaints, memory_order_relaxed), 0);
	dependency.address = NULL;
}
END_TEST

START_TEST(who_cannot_even_try_says_why_once)
{
	/* A label of more than 63 letters: no name server is asked. */
	static char address[] = "http://xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx.invalid/";
	char text[1024] = "";
	FILE *file = tmpfile();
	dependency.kind = DEPENDENCY_ADDRESS;
	dependency.address = address;
	play();
	dup2(fileno(file), 2);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_uint_eq(received(), 0);
	ck_assert_uint_eq(atomic_load_explicit(&board->complaints, memory_order_relaxed), 2);
	rewind(file);
	ck_assert_uint_gt(fread(text, 1, sizeof(text) - 1, file), 0);
	fclose(file);
	ck_assert_msg(strncmp(text, "resctl rehearse: dependency prices: a worker cannot call it: ", 61) == 0, "%s", text);
	ck_assert_ptr_eq(strchr(text, '\n'), text + strlen(text) - 1);
	dependency.address = NULL;
}
END_TEST

static char ping[] = "PING\r\n";
static char pong[] = "+PONG";

START_TEST(tcp_sends_and_expects)
{
	static const char *const script[] = {"+PONG\r\n", "-ERR\r\n", "+PONG\r\n", "+PONG\r\n"};
	dependency.send = ping;
	dependency.expect = pong;
	play_foreign("tcp", script);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL); /* and this connection is given up */
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_uint_eq(receipt(2)->receipt, RECEIPT_ERROR);
	ck_assert_uint_eq(received(), 4);
}
END_TEST

START_TEST(tcp_that_does_not_answer_is_a_timeout)
{
	static const char *const script[] = {NULL};
	dependency.send = ping;
	dependency.expect = pong;
	play_foreign("tcp", script);
	ck_assert_int_eq(call(60), RESC_TIMEOUT);
	ck_assert_uint_eq(receipt(1)->receipt, RECEIPT_HUNG);
}
END_TEST

START_TEST(tcp_that_was_closed_between_two_calls_is_connected_anew)
{
	static const char *const script[] = {"+PONG\r\n", "", "+PONG\r\n"};
	dependency.send = ping;
	dependency.expect = pong;
	play_foreign("tcp", script);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
}
END_TEST

START_TEST(tcp_alone_is_that_a_connection_can_be_made)
{
	static const char *const script[] = {NULL};
	play_foreign("tcp", script);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	ck_assert_uint_eq(received(), 2);
}
END_TEST

/* ---- programs ---- */

/* Answers a line with "+PONG". */
#define ECHO_SERVER                                                                                                                        \
	"import socket,sys\n"                                                                                                              \
	"s=socket.create_server(('127.0.0.1',int(sys.argv[1])))\n"                                                                         \
	"while True:\n"                                                                                                                    \
	" c=s.accept()[0]\n"                                                                                                               \
	" while c.recv(99): c.sendall(b'+PONG\\r\\n')\n"

static char *words[8];

static void program(const char *const *line)
{
	size_t i = 0;
	for (; line[i]; i++)
		words[i] = (char *)(uintptr_t)line[i];
	words[i] = NULL;
	dependency.kind = DEPENDENCY_PROGRAM;
	dependency.program = words;
	dependency.send = ping;
	dependency.expect = pong;
}

static void turn_until(int64_t ms)
{
	while (board_now(board) < ms * MS) {
		ck_assert_int_eq(dependencies_turn(running, board_now(board)), 0);
		nap(2);
	}
	/* The nap may have been a long one: what was due meanwhile is done now. */
	ck_assert_int_eq(dependencies_turn(running, board_now(board)), 0);
}

/* Until it answers again; its program takes the time that it takes to start. */
static void turn_until_it_works(void)
{
	for (int i = 0; i < 1000; i++) {
		ck_assert_int_eq(dependencies_turn(running, board_now(board)), 0);
		if (call(SOON_MS) == RESC_OK)
			return;
		nap(5);
	}
	ck_abort_msg("it does not come back");
}

START_TEST(a_program_is_started_stopped_and_goes_on)
{
	static const char *const line[] = {"/usr/bin/python3", "-S", "-c", ECHO_SERVER, "{port}", NULL};
	program(line);
	fault(FAULT_HANG, 100, 300);
	play();
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	turn_until(120);
	struct call_result result = call_as(1, 1, 50);
	ck_assert(board_now(board) >= 300 * MS || (result.outcome == RESC_TIMEOUT && result.during_fault));
	turn_until(300);
	turn_until_it_works();
}
END_TEST

START_TEST(a_program_is_killed_and_started_again_on_its_port)
{
	static const char *const line[] = {"/usr/bin/python3", "-S", "-c", ECHO_SERVER, "{port}", NULL};
	char before[64];
	program(line);
	fault(FAULT_REFUSE, 100, 200);
	play();
	snprintf(before, sizeof(before), "%s", dependency.address);
	ck_assert_int_eq(call(SOON_MS), RESC_OK);
	turn_until(120);
	ck_assert(call(SOON_MS) == RESC_FAIL || board_now(board) >= 200 * MS);
	turn_until(200);
	turn_until_it_works();
	ck_assert_str_eq(before, dependency.address);
}
END_TEST

static void does_not_start(const char *said)
{
	pid_t children[SCENARIO_DEPENDENCIES + 1];
	size_t count;
	char text[4096] = "";
	FILE *file = tmpfile();
	int kept = dup(2);

	dup2(fileno(file), 2);
	board = board_new(&scenario);
	running = dependencies_start(&scenario, board, children, &count);
	dup2(kept, 2);
	close(kept);
	rewind(file);
	(void)!fread(text, 1, sizeof(text) - 1, file);
	fclose(file);
	ck_assert_ptr_null(running);
	ck_assert_msg(strstr(text, said) != NULL, "%s", text);
	ck_assert_msg(strstr(text, "prices") != NULL, "%s", text);
}

START_TEST(a_program_that_is_not_there_is_named)
{
	static const char *const line[] = {"no-such-program-anywhere", "{port}", NULL};
	program(line);
	does_not_start("cannot run no-such-program-anywhere: No such file or directory");
}
END_TEST

START_TEST(what_a_program_wrote_before_it_ended_is_shown)
{
	static const char *const line[] = {"/bin/sh", "-c", "echo bad port {port} >&2; exit 3", NULL};
	program(line);
	does_not_start("has ended by itself, with status 3");
	ck_assert_ptr_null(dependency.address);
}
END_TEST

START_TEST(a_program_that_ends_by_itself_ends_the_take)
{
	static const char *const line[] = {
	        "/usr/bin/python3", "-S", "-c", "import socket,sys\ns=socket.create_server(('127.0.0.1',int(sys.argv[1])))\ns.accept()\n",
	        "{port}",           NULL};
	int r = 0;
	program(line);
	freopen("/dev/null", "w", stderr);
	play();
	for (int i = 0; i < 5000 && r == 0; i++) {
		r = dependencies_turn(running, board_now(board));
		nap(1);
	}
	ck_assert_int_eq(r, -ECHILD);
}
END_TEST

START_TEST(what_a_program_started_ends_with_it)
{
	static const char *const line[] = {"/usr/bin/python3",
	                                   "-S",
	                                   "-c",
	                                   "import os,socket,sys\n"
	                                   "s=socket.create_server(('127.0.0.1',int(sys.argv[1])))\n"
	                                   "r,w=os.pipe()\n"
	                                   "if os.fork(): os.read(r,1); os._exit(0)\n"
	                                   "s.accept()\n"
	                                   "os.write(w,b'x')\n"
	                                   "while True: s.accept()\n",
	                                   "{port}",
	                                   NULL};
	int r = 0;
	program(line);
	dependency.send = dependency.expect = NULL;
	freopen("/dev/null", "w", stderr);
	play();
	for (int i = 0; i < 5000 && r == 0; i++) {
		r = dependencies_turn(running, board_now(board));
		nap(1);
	}
	ck_assert_int_eq(r, -ECHILD);
	for (int i = 0; i < 1000 && call(SOON_MS) == RESC_OK; i++)
		nap(5);
	ck_assert_int_eq(call(SOON_MS), RESC_FAIL);
}
END_TEST

/* ---- who is killed leaves nothing ---- */

START_TEST(the_servers_die_with_the_process_that_started_them)
{
	int ends[2];
	uint16_t port = 0;
	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		play();
		port = (uint16_t)strtoul(strrchr(dependency.address, ':') + 1, NULL, 10);
		(void)!write(ends[1], &port, sizeof(port));
		pause();
	}
	ck_assert_int_eq(read(ends[0], &port, sizeof(port)), sizeof(port));
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int refused = 0;
	for (int i = 0; i < 2000 && !refused; i++) {
		int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		refused = connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0 && errno == ECONNREFUSED;
		close(fd);
		nap(1);
	}
	ck_assert(refused);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_call_is_answered_and_noted,
	        a_thousand_calls_are_a_thousand_receipts,
	        an_answer_takes_its_latency,
	        E3_the_charge_is_done_although_the_client_has_gone,
	        a_late_answer_is_not_taken_for_the_next_ones,
	        E1_one_that_hangs_never_answers_a_kept_connection_neither,
	        errors_come_at_once_with_the_servers_word,
	        a_reset_is_a_failure_of_a_request_that_was_received,
	        who_refuses_is_not_there_and_comes_back,
	        who_refuses_from_the_beginning_does_so,
	        what_is_in_work_is_lost_when_the_server_goes_down,
	        a_connection_that_was_closed_between_two_calls_is_no_failure,
	        beyond_its_capacity_and_queue_it_sheds,
	        its_one_processor_serves_one_after_the_other_the_refused_ones_too,
	        E4_who_gives_up_before_he_was_read_was_not_received,
	        what_was_not_read_goes_down_with_the_server,
	        who_waits_without_a_limit_ends_when_the_rehearsal_does,
	        a_dependency_that_is_ended_with_the_rehearsal_has_not_failed,
	        what_was_not_answered_at_the_end_is_pending,
	        a_stranger_is_shown_out_and_nothing_noted,
	        who_speaks_before_he_was_answered_is_shown_out,
	        http_answers_are_judged_by_their_status,
	        http_that_does_not_answer_is_a_timeout_and_stands_on_the_board,
	        http_that_hangs_up_has_failed,
	        http_calls_end_with_the_rehearsal,
	        nobody_at_an_address_is_a_failure_and_nothing_received,
	        who_cannot_even_try_says_why_once,
	        tcp_sends_and_expects,
	        tcp_that_does_not_answer_is_a_timeout,
	        tcp_that_was_closed_between_two_calls_is_connected_anew,
	        tcp_alone_is_that_a_connection_can_be_made,
	        a_program_is_started_stopped_and_goes_on,
	        a_program_is_killed_and_started_again_on_its_port,
	        a_program_that_is_not_there_is_named,
	        what_a_program_wrote_before_it_ended_is_shown,
	        a_program_that_ends_by_itself_ends_the_take,
	        what_a_program_started_ends_with_it,
	        the_servers_die_with_the_process_that_started_them,
	};

	return FIXTURE_RUN("rehearse_dependency", tests, set_up, tear_down);
}
