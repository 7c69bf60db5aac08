/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a reload that is asked for should come back with its result. SIGHUP cannot do that; a socket can.
 *
 *	-> {"command":"reload"}                    <- {"ok":true,"changed":[...],"added":[...],"removed":[...],...}
 *	-> {"command":"ping"}                      <- {"ok":true,"pid":...,"instance":...}
 *	                                           <- {"ok":false,"problems":[{"path","line","column","text"},...]}
 *
 * Who may: root, the user that rescd runs as, and members of the configured group, by what the kernel says about the peer when it
 * connected (SO_PEERCRED, SO_PEERGROUPS) and not by file modes alone. Everybody else is told why, counted and hung up on before a byte of
 * theirs is read.
 *
 * What it guarantees: no client can hold the daemon up. One line of at most 4 KiB, 16 clients at most, two seconds for each from its
 * connection to its last byte; whatever else comes is answered with an error, or hung up on, and touches nothing. Members of the group
 * cannot keep root out: some places are root's and rescd's own user's alone, and only members have a limit of commands a second.
 *
 * The name: the socket has its mode from the moment that it has a name, and nothing here changes what a link at that name leads to,
 * symbolic or hard, so that whoever may write to the directory too cannot have another file's mode or group changed. Whom resctl talks to
 * it sees for itself (control_client.c).
 */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "log.h"

static uint64_t now_ms(void)
{
	return clock_read_ns(CLOCK_MONOTONIC) / 1000000u;
}

/* ---- where ---- */

int control_path(char path[CONTROL_PATH], const char *wish, const char *instance, struct resc_error *err)
{
	const char *runtime = getenv("XDG_RUNTIME_DIR");
	int length;

	if (wish && wish[0] != '\0' && wish[0] != '/')
		return error_set(err, -EINVAL, "control socket '%s': an absolute path is needed", wish);
	if (wish && wish[0] != '\0')
		length = snprintf(path, CONTROL_PATH, "%s", wish);
	else if (geteuid() == 0)
		length = snprintf(path, CONTROL_PATH, "/run/resc/%s.sock", instance);
	else if (runtime && runtime[0] == '/')
		length = snprintf(path, CONTROL_PATH, "%s/resc/%s.sock", runtime, instance);
	else
		length = snprintf(path, CONTROL_PATH, "/tmp/resc-%u/%s.sock", (unsigned)geteuid(), instance);
	if (length < 0 || length >= CONTROL_PATH)
		return error_set(err, -ENAMETOOLONG,
		                 "the path of the control socket is longer than %d characters; choose a shorter one with --control",
		                 CONTROL_PATH - 1);
	return 0;
}

/* In a place where everybody may write, somebody else may have been first: what we make there ourselves must be ours alone. */
static int check_directory(const char *directory, struct resc_error *err)
{
	struct stat st;

	if (stat(directory, &st) < 0 || !S_ISDIR(st.st_mode))
		return error_set(err, -ENOTDIR, "%s is not a directory: choose another place with --control", directory);
	if (strncmp(directory, "/tmp/resc-", 10) == 0 &&
	    (lstat(directory, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != geteuid() || (st.st_mode & 022) != 0))
		return error_set(err, -EPERM, "%s is not ours alone: remove it, or choose another place with --control", directory);
	/* No error: the volumes that the containers of a pod share are like that. */
	if ((st.st_uid != 0 && st.st_uid != geteuid()) || (st.st_mode & (S_IWOTH | S_ISVTX)) == S_IWOTH)
		log_line("warning: others than we may put another control socket in the place of ours: %s belongs to uid %u and has mode "
		         "%04o",
		         directory, (unsigned)st.st_uid, (unsigned)(st.st_mode & 07777));
	return 0;
}

/* Makes the directory if it is not there. */
static int prepare_directory(const char *socket_path, struct resc_error *err)
{
	char directory[CONTROL_PATH];
	const char *slash = strrchr(socket_path, '/');

	if (!slash || slash == socket_path)
		return 0;
	snprintf(directory, sizeof(directory), "%.*s", (int)(slash - socket_path), socket_path);
	if (mkdir(directory, geteuid() == 0 ? 0755 : 0700) < 0 && errno != EEXIST)
		return error_set(err, -errno, "cannot make %s for the control socket: %s", directory, strerror(errno));
	return check_directory(directory, err);
}

/* Does anybody listen there? The lock is that of our instance; another instance may have been given the same path. */
static bool is_alive(const struct sockaddr_un *address)
{
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	bool alive = fd >= 0 && (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 || errno == EAGAIN);

	if (fd >= 0)
		close(fd);
	return alive;
}

static int remove_leftover(const char *path, struct resc_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct stat st;

	if (lstat(path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(err, -errno, "cannot look at %s: %s", path, strerror(errno));
	if (!S_ISSOCK(st.st_mode))
		return error_set(err, -EEXIST, "%s is there and is not a socket: remove it, or choose another place with --control", path);
	snprintf(address.sun_path, sizeof(address.sun_path), "%s", path);
	if (is_alive(&address))
		return error_set(err, -EADDRINUSE, "%s is in use by another process: choose another place with --control", path);
	if (unlink(path) < 0)
		return error_set(err, -errno, "cannot remove the old socket %s: %s", path, strerror(errno));
	return 0;
}

/*
 * Our socket, at its name, as a descriptor that stays with it whatever becomes of the name: neither a link is followed, nor is what
 * somebody else has put there changed. -ESTALE: it is not ours.
 */
static int open_socket(const struct control *control, struct stat *st)
{
	int fd = open(control->path, O_PATH | O_NOFOLLOW | O_CLOEXEC);

	if (fd < 0)
		return -errno;
	if (fstat(fd, st) == 0 && S_ISSOCK(st->st_mode) && st->st_uid == geteuid())
		return fd;
	close(fd);
	return -ESTALE;
}

static void give_to_group(const struct control *control, int fd)
{
	if (control->group != (gid_t)-1 && fchownat(fd, "", (uid_t)-1, control->group, AT_EMPTY_PATH) < 0)
		log_line("%s cannot get the group %u: %s", control->path, (unsigned)control->group, strerror(errno));
}

/* What we have just made has the mode that we gave it, and one name. */
static int take_name(struct control *control, struct resc_error *err)
{
	struct stat st;
	int fd = open_socket(control, &st);

	if (fd < 0 && fd != -ESTALE)
		return error_set(err, fd, "cannot look at %s: %s", control->path, strerror(-fd));
	bool fresh = fd >= 0 && (st.st_mode & 07777) == CONTROL_MODE && st.st_nlink == 1;
	if (fresh)
		give_to_group(control, fd);
	if (fd >= 0)
		close(fd);
	if (!fresh)
		return error_set(err, -EPERM, "%s was replaced by somebody while we made it: choose another place with --control",
		                 control->path);
	control->dev = st.st_dev;
	control->ino = st.st_ino;
	return 0;
}

static int bind_socket(struct control *control, int fd, struct resc_error *err)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	mode_t mask;
	int r;

	memcpy(address.sun_path, control->path, sizeof(control->path));
	/* The name gets the mode of the socket. Nobody is let in before listen(), when the group is set too. */
	if (fchmod(fd, CONTROL_MODE) < 0)
		return error_set(err, -errno, "cannot set the mode of %s: %s", control->path, strerror(errno));
	mask = umask(0);
	r = bind(fd, (struct sockaddr *)&address, sizeof(address)) < 0 ? -errno : 0;
	umask(mask);
	if (r < 0)
		return error_set(err, r, "cannot bind the control socket %s: %s", control->path, strerror(-r));
	r = take_name(control, err);
	if (r < 0)
		return r;
	if (listen(fd, CONTROL_CLIENTS) < 0)
		return error_set(err, -errno, "cannot listen on %s: %s", control->path, strerror(errno));
	return 0;
}

/* ---- who ---- */

static bool peer_in_group(int fd, gid_t primary, gid_t group)
{
	gid_t groups[NGROUPS_MAX > 1024 ? 1024 : NGROUPS_MAX];
	socklen_t size = sizeof(groups);

	if (group == (gid_t)-1)
		return false;
	if (primary == group)
		return true;
	if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &size) < 0)
		return false;
	for (size_t i = 0; i < size / sizeof(groups[0]); i++)
		if (groups[i] == group)
			return true;
	return false;
}

/* What is known of a peer. */
struct peer {
	uid_t uid; /* -1: not even that */
	pid_t pid; /* 0: not in our pid namespace */
	bool may;
	bool first; /* root, or rescd's own user */
};

static struct peer peer_of(const struct control *control, int fd)
{
	struct ucred cred = {.uid = (uid_t)-1, .gid = (gid_t)-1};
	socklen_t size = sizeof(cred);
	struct peer peer = {.uid = (uid_t)-1};

	if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &size) < 0)
		return peer;
	peer.uid = cred.uid;
	peer.pid = cred.pid;
	peer.first = cred.uid == 0 || cred.uid == geteuid();
	peer.may = peer.first || peer_in_group(fd, cred.gid, control->group);
	return peer;
}

/* ---- a client ---- */

static void hang_up(struct control_client *client)
{
	struct control *control = client->control;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		if (control->clients[i] == client)
			control->clients[i] = NULL;
	loop_remove(control->loop, &client->watch);
	free(client->answer);
	free(client);
}

static json_t *refusal(const char *text)
{
	return json_pack("{s:b, s:[{s:s, s:i, s:i, s:s}]}", "ok", 0, "problems", "path", "", "line", 0, "column", 0, "text", text);
}

/* Members of the group keep to a number of commands a second, all of them together: a reload reads the whole configuration. */
static bool too_many(struct control *control, const struct control_client *client)
{
	uint64_t second = now_ms() / 1000;

	if (client->first)
		return false;
	if (control->second != second) {
		control->second = second;
		control->commands = 0;
	}
	return ++control->commands > CONTROL_COMMANDS;
}

static json_t *answer_line(struct control_client *client)
{
	json_t *request = json_loadb(client->line, client->used, JSON_REJECT_DUPLICATES, NULL);
	const char *command = json_string_value(json_object_get(request, "command"));
	json_t *answer;

	if (!command || json_object_size(request) != 1) {
		answer = refusal("a line like {\"command\":\"reload\"} or {\"command\":\"ping\"} is expected");
	} else if (too_many(client->control, client)) {
		answer = refusal("too many commands in this second; try again in the next one");
	} else {
		log_debug("control: '%.32s' of uid %u, pid %d", command, (unsigned)client->uid, (int)client->pid);
		answer = client->control->command(client->control->arg, command);
		FAILPOINT("control.answering");
		if (!answer)
			answer = refusal("unknown command: reload and ping are known");
	}
	json_decref(request);
	return answer;
}

static void send_more(struct control_client *client)
{
	while (client->sent < client->size) {
		ssize_t n = send(client->watch.fd, client->answer + client->sent, client->size - client->sent, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EAGAIN)
			return;
		if (n < 0 && errno != EINTR)
			break;
		if (n > 0)
			client->sent += (size_t)n;
	}
	hang_up(client);
}

static void answer_client(struct control_client *client)
{
	json_t *answer = answer_line(client);
	char *text = answer ? json_dumps(answer, JSON_COMPACT) : NULL;
	char *line = text ? realloc(text, strlen(text) + 1) : NULL;

	json_decref(answer);
	if (!line) {
		free(text);
		hang_up(client);
		return;
	}
	client->size = strlen(line) + 1;
	line[client->size - 1] = '\n';
	client->answer = line;
	/* The two seconds were for the line. The work is done: the answer gets its own. */
	client->until_ms = now_ms() + CONTROL_TIMEOUT_MS;
	if (loop_change(client->control->loop, &client->watch, EPOLLOUT) < 0) {
		hang_up(client);
		return;
	}
	send_more(client);
}

static void read_more(struct control_client *client)
{
	size_t room = sizeof(client->line) - client->used;
	ssize_t n = recv(client->watch.fd, client->line + client->used, room, MSG_DONTWAIT);
	char *end;

	if (n < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (n < 0 || (n == 0 && client->used == 0)) {
		hang_up(client);
		return;
	}
	end = memchr(client->line + client->used, '\n', (size_t)n);
	client->used += (size_t)n;
	if (!end && n > 0 && client->used < sizeof(client->line))
		return;
	if (end)
		client->used = (size_t)(end - client->line);
	answer_client(client); /* a line too long, or cut off, is answered as what it is: not a command */
}

static void client_ready(void *arg, uint32_t events)
{
	struct control_client *client = arg;

	(void)events;
	if (client->answer)
		send_more(client);
	else
		read_more(client);
}

static void timeout_due(void *arg)
{
	struct control *control = arg;
	uint64_t now = now_ms();
	bool waiting = false;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++) {
		struct control_client *client = control->clients[i];

		if (client && now >= client->until_ms)
			hang_up(client);
		waiting |= control->clients[i] != NULL;
	}
	loop_change(control->loop, &control->listener, EPOLLIN);
	if (waiting)
		timer_arm(&control->timeout, CONTROL_TIMEOUT_MS / 8, 0);
}

/* One line a second, so that nobody can fill the log. */
static void tell_refused(struct control *control, const struct peer *peer)
{
	uint64_t now = now_ms();

	control->refused++;
	control->untold++;
	if (control->told_ms != 0 && now - control->told_ms < 1000)
		return;
	control->told_ms = now;
	if (control->untold > 1)
		log_line("control: refused uid %u, pid %d; %u in all since the last such line", (unsigned)peer->uid, (int)peer->pid,
		         control->untold);
	else
		log_line("control: refused uid %u, pid %d", (unsigned)peer->uid, (int)peer->pid);
	control->untold = 0;
}

/* A short word to somebody who gets no place. It fits what the kernel keeps for them; who is not told after all is hung up on. */
static void turn_away(int fd, const char *text)
{
	json_t *answer = refusal(text);
	char line[512];
	size_t size = answer ? json_dumpb(answer, line, sizeof(line) - 1, JSON_COMPACT) : 0;

	json_decref(answer);
	if (size == 0 || size > sizeof(line) - 1)
		return;
	line[size++] = '\n';
	if (send(fd, line, size, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
		log_debug("control: %s", strerror(errno));
}

static void refuse(struct control *control, int fd, const struct peer *peer)
{
	char text[256], group[32] = "a group (none is configured)";

	if (control->group != (gid_t)-1)
		snprintf(group, sizeof(group), "group %u", (unsigned)control->group);
	snprintf(text, sizeof(text),
	         "not allowed: uid %u is not root, not uid %u that rescd runs as, and not in %s; use sudo, or join the group",
	         (unsigned)peer->uid, (unsigned)geteuid(), group);
	turn_away(fd, text);
	tell_refused(control, peer);
}

/* A free place. Some are for root and rescd's own user alone. */
static size_t free_place(const struct control *control, const struct peer *peer)
{
	size_t place = peer->first ? 0 : CONTROL_FIRST;

	while (place < CONTROL_CLIENTS && control->clients[place])
		place++;
	return place;
}

static int admit(struct control *control, int fd)
{
	struct peer peer = peer_of(control, fd);
	struct control_client *client;
	size_t place;
	int r;

	if (!peer.may) {
		refuse(control, fd, &peer);
		return -EPERM;
	}
	place = free_place(control, &peer);
	if (place == CONTROL_CLIENTS) {
		turn_away(fd, "too many clients; try again");
		return -EBUSY;
	}
	client = calloc(1, sizeof(*client));
	if (!client)
		return -ENOMEM;
	client->control = control;
	client->uid = peer.uid;
	client->pid = peer.pid;
	client->first = peer.first;
	client->until_ms = now_ms() + CONTROL_TIMEOUT_MS;
	client->watch = (struct watch){.fd = -1, .ready = client_ready, .arg = client};
	r = loop_add(control->loop, &client->watch, fd, EPOLLIN);
	if (r < 0) {
		free(client);
		return r;
	}
	control->clients[place] = client;
	timer_arm(&control->timeout, CONTROL_TIMEOUT_MS / 8, 0);
	return 0;
}

static void listener_ready(void *arg, uint32_t events)
{
	struct control *control = arg;
	int fd = accept4(control->listener.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

	(void)events;
	if (fd >= 0 && admit(control, fd) < 0)
		close(fd);
	if (fd >= 0 || (errno != EMFILE && errno != ENFILE && errno != ENOMEM && errno != ENOBUFS))
		return;
	/* Whoever waits cannot be taken now, and would be reported again and again: look again a little later. */
	loop_change(control->loop, &control->listener, 0);
	timer_arm(&control->timeout, CONTROL_TIMEOUT_MS / 8, 0);
}

/* ---- the socket ---- */

void control_group(struct control *control, gid_t group)
{
	struct stat st;
	int fd;

	if (control->listener.fd < 0 || control->group == group)
		return;
	control->group = group;
	fd = open_socket(control, &st);
	if (fd >= 0 && st.st_dev == control->dev && st.st_ino == control->ino)
		give_to_group(control, fd);
	else
		log_line("%s is not our control socket any more: somebody has replaced it", control->path);
	if (fd >= 0)
		close(fd);
}

int control_open(struct control *control, struct loop *loop, const char *path, gid_t group, struct resc_error *err)
{
	int fd, r;

	control->loop = loop;
	control->group = group;
	control->listener = (struct watch){.fd = -1, .ready = listener_ready, .arg = control};
	control->timeout.watch.fd = -1;
	control->timeout.due = timeout_due;
	control->timeout.arg = control;
	snprintf(control->path, sizeof(control->path), "%s", path);
	memset(control->path + strlen(control->path), 0, sizeof(control->path) - strlen(control->path));
	r = prepare_directory(path, err);
	if (r == 0)
		r = remove_leftover(path, err);
	if (r < 0)
		return r;
	fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return error_set(err, -errno, "no control socket: %s", strerror(errno));
	r = bind_socket(control, fd, err);
	if (r == 0 && (r = loop_add(loop, &control->listener, fd, EPOLLIN)) < 0)
		error_set(err, r, "cannot watch the control socket: %s", strerror(-r));
	if (r < 0) {
		close(fd);
		return r;
	}
	r = timer_open(&control->timeout, loop);
	return r < 0 ? error_set(err, r, "no timer for the control socket: %s", strerror(-r)) : 0;
}

void control_close(struct control *control)
{
	struct stat st;

	for (size_t i = 0; i < CONTROL_CLIENTS; i++)
		if (control->clients[i])
			hang_up(control->clients[i]);
	if (control->listener.fd >= 0 && lstat(control->path, &st) == 0 && st.st_dev == control->dev && st.st_ino == control->ino)
		unlink(control->path);
	loop_remove(control->loop, &control->listener);
	timer_close(&control->timeout, control->loop);
}
