/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: what a policy does is seen at the victim. The lab's own servers are played by one process with one event loop, so that
 * there is one order of things, no lock and no scheduler between them: a request comes, the script says what becomes of it, the model of
 * the processor says when, and then it is answered, or not. Each one that comes is noted on the board, where it came.
 *
 * A port that refuses is really closed, with all its connections, and what was in work on it is lost: as a process that died. Another
 * socket stays bound to the port meanwhile, so that nobody else gets it, and nobody connects to himself by chance.
 *
 * Times are those of the board. Before the rehearsal begins it is 0.
 */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "agenda.h"
#include "children.h"
#include "loop.h"
#include "processor.h"
#include "wire.h"

#define BACKLOG 65535 /* the kernel takes what it allows */
#define TICK_NS 1000000
#define SECOND  INT64_C(1000000000)

/* A caller's. One request at a time. */
struct connection {
	struct watch watch;
	struct port *port;
	struct connection *previous, *next;
	struct work *work; /* that is in work; NULL: none, or it hangs */
	bool hangs;
	size_t length;
	unsigned char bytes[sizeof(struct wire_request)];
};

/* A dependency. */
struct port {
	struct server *server;
	const struct dependency *dependency;
	unsigned index;
	int keeper;            /* bound, and not listening */
	struct watch listener; /* fd -1: nobody listens */
	struct processor processor;
	struct connection *connections;
	uint64_t dice;     /* numbers that it has drawn */
	int64_t change_ns; /* when its script wants to be looked at */
};

struct server {
	const struct scenario *scenario;
	struct board *board;
	struct loop loop;
	struct watch timer;
	struct agenda agenda;
	bool begun; /* the rehearsal has */
	int64_t armed_ns;
	struct port ports[SCENARIO_DEPENDENCIES];
	size_t port_count;
};

/* What the parent hears. */
struct report {
	int error;
	uint16_t ports[SCENARIO_DEPENDENCIES];
};

static struct port *port_of(struct server *server, unsigned dependency)
{
	size_t i = 0;
	while (server->ports[i].index != dependency)
		i++;
	return &server->ports[i];
}

static _Noreturn void give_up(const char *what, int error)
{
	fprintf(stderr, "resctl rehearse: the servers of the dependencies: %s: %s\n", what, strerror(error));
	_exit(1);
}

/* Zeroed. */
static void *room_for(size_t size)
{
	void *memory = calloc(1, size);
	if (!memory)
		give_up("a connection or a request", ENOMEM);
	return memory;
}

static int64_t now_of(struct server *server)
{
	int64_t now_ns = board_now(server->board);
	if (now_ns < 0)
		return 0;
	server->begun = true;
	return now_ns;
}

/* ---- notes ---- */

static void note_end(struct receipt_note *note, enum receipt receipt, int64_t at_ns, bool caller_gone)
{
	if (!note)
		return;
	note->receipt = (uint8_t)receipt;
	note->answered_ns = at_ns;
	note->caller_gone = caller_gone;
	/* release: who sees it done sees the rest. */
	atomic_store_explicit(&note->done, 1, memory_order_release);
}

/* It is read now. */
static void note_begin(struct server *server, struct work *work, int64_t at_ns)
{
	struct receipt_note *note = board_receipt(server->board);
	struct cue cue = work->cue;
	work->note = note;
	if (!note)
		return;
	cue.at_ns = at_ns;
	note->received_ns = at_ns;
	note->request = cue.request;
	note->dependency = (uint16_t)work->dependency;
	note->try = cue.try;
	note->probe = work->probe;
	note->during_fault = script_deal(server->scenario, work->dependency, &cue).during_fault;
	note->receipt = RECEIPT_PENDING;
}

/* ---- connections ---- */

/* A request that was not read goes with its connection. */
static void leave_alone(struct port *port, struct work *work)
{
	work->connection = NULL;
	if (work->stage != WORK_UNREAD)
		return;
	processor_withdraw(&port->processor, work);
	free(work);
}

static void disconnect(struct connection *connection)
{
	if (connection->work)
		leave_alone(connection->port, connection->work);
	if (connection->previous)
		connection->previous->next = connection->next;
	else
		connection->port->connections = connection->next;
	if (connection->next)
		connection->next->previous = connection->previous;
	loop_remove(&connection->port->server->loop, &connection->watch);
	free(connection);
}

static void reset(struct connection *connection)
{
	wire_reset_on_close(connection->watch.fd);
	disconnect(connection);
}

/* False: nobody is there any more. */
static bool say(struct connection *connection, enum wire_status status, int64_t retry_after_ms)
{
	struct wire_answer answer = {.magic = WIRE_MAGIC, .status = status, .retry_after_ms = retry_after_ms};
	connection->work = NULL;
	if (send(connection->watch.fd, &answer, sizeof(answer), MSG_NOSIGNAL) == (ssize_t)sizeof(answer))
		return true;
	disconnect(connection);
	return false;
}

/* ---- time ---- */

static int64_t next_ns_of(const struct server *server)
{
	int64_t next_ns = agenda_due_ns(&server->agenda);
	for (size_t i = 0; i < server->port_count; i++) {
		if (server->ports[i].change_ns < next_ns)
			next_ns = server->ports[i].change_ns;
	}
	return next_ns;
}

/* When is there something to do? Until the rehearsal begins its clock is looked at each TICK_NS. */
static void arm(struct server *server)
{
	if (!server->begun)
		return;
	int64_t next_ns = next_ns_of(server);
	if (next_ns == server->armed_ns)
		return;
	server->armed_ns = next_ns;
	/* No time at all disarms it. */
	int64_t at_ns = next_ns > INT64_MAX - server->board->start_ns ? 0 : server->board->start_ns + next_ns;
	struct itimerspec when = {.it_value = {.tv_sec = at_ns / SECOND, .tv_nsec = at_ns % SECOND}};
	timerfd_settime(server->timer.fd, TFD_TIMER_ABSTIME, &when, NULL);
}

/* ---- work ---- */

static void plan(struct server *server, struct work *work, int64_t due_ns)
{
	if (agenda_add(&server->agenda, due_ns, work) != 0)
		give_up("a request", ENOMEM);
	arm(server);
}

/* Those that wait get the places that are free. */
static void fill_places(struct port *port, int64_t now_ns)
{
	struct server *server = port->server;
	while (port->processor.first) {
		struct cue cue = port->processor.first->cue;
		cue.at_ns = now_ns;
		int64_t due_ns;
		uint32_t capacity = script_deal(server->scenario, port->index, &cue).capacity;
		struct work *work = processor_next(&port->processor, capacity, now_ns, &due_ns);
		if (!work)
			return;
		plan(server, work, due_ns);
	}
}

static void answer(struct port *port, struct work *work, int64_t at_ns)
{
	processor_leave(&port->processor, work);
	bool heard = work->connection && say(work->connection, work->receipt == RECEIPT_OK ? WIRE_OK : WIRE_ERROR, work->retry_after_ms);
	note_end(work->note, work->receipt, now_of(port->server), !heard);
	free(work);
	fill_places(port, at_ns);
}

static void hang(struct work *work)
{
	note_end(work->note, RECEIPT_HUNG, 0, false);
	if (work->connection) {
		work->connection->work = NULL;
		work->connection->hangs = true;
	}
	free(work);
}

static void break_off(struct work *work, int64_t at_ns)
{
	note_end(work->note, RECEIPT_RESET, at_ns, !work->connection);
	if (work->connection) {
		work->connection->work = NULL;
		reset(work->connection);
	}
	free(work);
}

/* It was read: what becomes of it? */
static void judge(struct port *port, struct work *work, int64_t at_ns)
{
	const struct scenario *scenario = port->server->scenario;
	struct cue cue = work->cue;
	cue.at_ns = at_ns;
	struct deal deal = script_deal(scenario, port->index, &cue);

	if (deal.kind == DEAL_HANG) {
		hang(work);
	} else if (deal.kind == DEAL_RESET) {
		break_off(work, at_ns);
	} else {
		work->latency_ns = script_latency_ns(scenario, port->index, &cue) + deal.extra_ns;
		int64_t due_ns = processor_judge(&port->processor, port->dependency, &deal, work, at_ns);
		if (due_ns <= at_ns)
			answer(port, work, at_ns);
		else if (due_ns != SCENARIO_FOREVER)
			plan(port->server, work, due_ns);
	}
}

/* Gives the processor to one of those that wait for it, where it is free. */
static void read_next(struct port *port)
{
	struct server *server = port->server;
	int64_t from_ns;
	uint64_t dice = script_dice(server->scenario, port->index, port->dice++);
	struct work *work = processor_begin(&port->processor, port->dependency, dice, &from_ns);
	if (!work)
		return;
	note_begin(server, work, from_ns);
	plan(server, work, port->processor.free_ns);
}

/* What was planned for it is due. */
static void go_on(struct server *server, struct work *work, int64_t due_ns)
{
	struct port *port = port_of(server, work->dependency);
	if (work->lost) {
		free(work);
	} else if (work->stage == WORK_JUDGED) {
		answer(port, work, due_ns);
	} else {
		processor_release(&port->processor);
		judge(port, work, due_ns);
		read_next(port);
	}
}

/* Those that cost it nothing, or are not worked on, do not wait for the processor. */
static bool needs_processor(const struct port *port, const struct work *work)
{
	if (port->dependency->cpu_ns == 0)
		return false;
	enum deal_kind kind = script_deal(port->server->scenario, port->index, &work->cue).kind;
	return kind != DEAL_HANG && kind != DEAL_RESET;
}

static void take(struct connection *connection, const struct wire_request *request)
{
	struct port *port = connection->port;
	struct server *server = port->server;
	struct work *work = room_for(sizeof(*work));
	work->connection = connection;
	connection->work = work;
	work->dependency = port->index;
	work->probe = request->probe != 0;
	work->cue = (struct cue){
	        .at_ns = now_of(server),
	        .request = request->request,
	        .number = server->board->requests[request->request].number,
	        .try = request->try,
	};
	if (!needs_processor(port, work)) {
		work->stage = WORK_ON_PROCESSOR;
		note_begin(server, work, work->cue.at_ns);
		judge(port, work, work->cue.at_ns);
		return;
	}
	if (processor_wait(&port->processor, work) != 0)
		give_up("a request", ENOMEM);
	read_next(port);
}

static void hear(void *arg, uint32_t events)
{
	struct connection *connection = arg;
	unsigned char *end = connection->bytes + connection->length;
	ssize_t n = recv(connection->watch.fd, end, sizeof(connection->bytes) - connection->length, 0);

	(void)events;
	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	/* Its caller has gone; or it is none of ours, and speaks before it was answered. */
	if (n <= 0 || connection->work || connection->hangs) {
		disconnect(connection);
		return;
	}
	connection->length += (size_t)n;
	if (connection->length < sizeof(connection->bytes))
		return;
	connection->length = 0;

	struct wire_request request;
	memcpy(&request, connection->bytes, sizeof(request));
	if (request.magic == WIRE_MAGIC && request.request < connection->port->server->board->request_count)
		take(connection, &request);
	else
		disconnect(connection);
}

/* ---- ports ---- */

static void welcome(struct port *port, int fd)
{
	struct connection *connection = room_for(sizeof(*connection));
	int on = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	connection->port = port;
	connection->watch.ready = hear;
	connection->watch.arg = connection;
	int r = loop_add(&port->server->loop, &connection->watch, fd, EPOLLIN);
	if (r < 0)
		give_up("a connection", -r);
	connection->next = port->connections;
	if (connection->next)
		connection->next->previous = connection;
	port->connections = connection;
}

static void open_door(void *arg, uint32_t events)
{
	struct port *port = arg;

	(void)events;
	for (;;) {
		int fd = accept4(port->listener.fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd >= 0)
			welcome(port, fd);
		else if (errno == EMFILE || errno == ENFILE)
			give_up("too many connections at once; a higher `ulimit -n` lets it have more", errno);
		else if (errno != EINTR && errno != ECONNABORTED)
			return;
	}
}

/* A socket on that port, 0: any. The descriptor, or -errno. */
static int bind_to(uint16_t number)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int on = 1;
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 && bind(fd, (struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	int error = -errno;
	close(fd);
	return error;
}

static uint16_t number_of(int fd)
{
	struct sockaddr_in address = {0};
	socklen_t size = sizeof(address);
	getsockname(fd, (struct sockaddr *)&address, &size);
	return ntohs(address.sin_port);
}

static int go_up(struct port *port, int64_t now_ns)
{
	processor_start(&port->processor, port->dependency, now_ns);
	int fd = bind_to(number_of(port->keeper));
	if (fd < 0)
		return fd;
	int r = listen(fd, BACKLOG) == 0 ? 0 : -errno;
	if (r == 0)
		r = loop_add(&port->server->loop, &port->listener, fd, EPOLLIN);
	if (r < 0)
		close(fd);
	return r;
}

static void lose(struct work *work, int64_t now_ns)
{
	note_end(work->note, RECEIPT_RESET, now_ns, !work->connection);
	if (work->connection)
		work->connection->work = NULL;
	work->connection = NULL;
	work->lost = true;
}

/* As a process that dies. */
static void go_down(struct port *port, int64_t now_ns)
{
	struct agenda *agenda = &port->server->agenda;

	loop_remove(&port->server->loop, &port->listener);
	for (size_t i = 0; i < agenda->count; i++) {
		struct work *work = agenda->items[i].work;
		if (work->dependency == port->index && !work->lost)
			lose(work, now_ns);
	}
	for (struct work *work = port->processor.first, *next; work; work = next) {
		next = work->next;
		lose(work, now_ns);
		free(work);
	}
	for (struct connection *connection = port->connections, *next; connection; connection = next) {
		next = connection->next;
		reset(connection);
	}
	processor_start(&port->processor, port->dependency, now_ns);
}

static void follow_script(struct port *port, int64_t now_ns)
{
	bool listens = script_listens(port->dependency, now_ns);
	if (listens && port->listener.fd < 0) {
		int r = go_up(port, now_ns);
		if (r < 0)
			give_up(port->dependency->name, -r);
	} else if (!listens && port->listener.fd >= 0) {
		go_down(port, now_ns);
	}
	port->change_ns = script_next_change(port->dependency, now_ns);
	fill_places(port, now_ns);
}

static void keep_time(void *arg, uint32_t events)
{
	struct server *server = arg;
	uint64_t expirations;

	(void)events;
	if (read(server->timer.fd, &expirations, sizeof(expirations)) < 0)
		return;
	server->armed_ns = -1;
	int64_t now_ns = now_of(server);
	for (size_t i = 0; i < server->port_count; i++) {
		if (server->ports[i].change_ns <= now_ns)
			follow_script(&server->ports[i], now_ns);
	}
	for (int64_t due_ns; (due_ns = agenda_due_ns(&server->agenda)) <= now_ns;)
		go_on(server, agenda_take(&server->agenda), due_ns);
	arm(server);
}

/* ---- the process ---- */

static int open_clock(struct server *server)
{
	int fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	if (fd < 0)
		return -errno;
	server->timer.ready = keep_time;
	server->timer.arg = server;
	struct itimerspec tick = {.it_value = {.tv_nsec = TICK_NS}, .it_interval = {.tv_nsec = TICK_NS}};
	timerfd_settime(fd, 0, &tick, NULL);
	return loop_add(&server->loop, &server->timer, fd, EPOLLIN);
}

static int open_port(struct server *server, unsigned dependency, uint16_t *number)
{
	struct port *port = &server->ports[server->port_count++];
	*port = (struct port){
	        .server = server,
	        .dependency = &server->scenario->dependencies[dependency],
	        .index = dependency,
	        .listener = {.fd = -1, .ready = open_door, .arg = port},
	        .keeper = bind_to(0),
	};
	if (port->keeper < 0)
		return port->keeper;
	*number = number_of(port->keeper);
	follow_script(port, 0);
	return 0;
}

static int open_all(struct server *server, struct report *report)
{
	int r = loop_open(&server->loop);
	if (r == 0)
		r = open_clock(server);
	for (unsigned i = 0; r == 0 && i < server->scenario->dependency_count; i++) {
		if (server->scenario->dependencies[i].kind == DEPENDENCY_SERVER)
			r = open_port(server, i, &report->ports[i]);
	}
	return r;
}

static _Noreturn void live(const struct scenario *scenario, struct board *board)
{
	static struct server server;
	struct report report = {0};

	prctl(PR_SET_NAME, "rehearse-server");
	child_raise_files();

	server.scenario = scenario;
	server.board = board;
	server.armed_ns = -1;
	report.error = open_all(&server, &report);
	if (write(CHILD_KEPT, &report, sizeof(report)) != (ssize_t)sizeof(report) || report.error != 0)
		_exit(1);
	close(CHILD_KEPT);
	give_up("the event loop", -loop_run(&server.loop));
}

/* It comes soon, and whole: a signal that ends the rehearsal waits so long. */
static int hear_report(int fd, struct report *report)
{
	ssize_t n;

	do
		n = read(fd, report, sizeof(*report));
	while (n < 0 && errno == EINTR);
	return n == (ssize_t)sizeof(*report) ? 0 : -EPIPE;
}

pid_t server_start(const struct scenario *scenario, struct board *board, uint16_t *ports)
{
	struct report report = {.error = -EPIPE};
	int pipe[2];
	if (pipe2(pipe, O_CLOEXEC) < 0) {
		int r = -errno;
		fprintf(stderr, "resctl rehearse: cannot start the servers of the dependencies: %s%s\n", strerror(-r), child_remedy(-r));
		return r;
	}
	pid_t pid = child_fork_with(pipe[1]);
	if (pid == 0)
		live(scenario, board);
	close(pipe[1]);
	if (pid < 0)
		report.error = -EAGAIN;
	else if (hear_report(pipe[0], &report) != 0)
		report.error = -EPIPE; /* it has said itself what is wrong */
	close(pipe[0]);
	if (report.error != 0) {
		child_kill(&pid);
		fprintf(stderr, "resctl rehearse: cannot start the servers of the dependencies: %s%s\n", strerror(-report.error),
		        child_remedy(-report.error));
		return report.error;
	}
	memcpy(ports, report.ports, sizeof(report.ports));
	return pid;
}
