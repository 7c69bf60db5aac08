/* SPDX-License-Identifier: MIT */
/* The control socket: commands come back with their result, and nobody can hold rescd up with it. */
#include "control.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>

#include "control_client.h"
#include "fixture.h"

static char directory[] = "/tmp/resc-unit-XXXXXX";
static char path[CONTROL_PATH];
static pid_t server;

static json_t *answer_command(void *arg, const char *command)
{
	(void)arg;
	return strcmp(command, "ping") == 0 ? json_pack("{s:b}", "ok", 1) : NULL;
}

#define MEMBERS ((gid_t)60123)
#define MEMBER  ((uid_t)60124)
#define NOBODY  ((uid_t)65534)

static void serve(int ready)
{
	struct loop loop;
	struct control control = {.command = answer_command};
	struct resc_error err;

	if (loop_open(&loop) < 0 || control_open(&control, &loop, path, geteuid() == 0 ? MEMBERS : (gid_t)-1, &err) < 0)
		_exit(1);
	if (write(ready, "x", 1) != 1)
		_exit(1);
	loop_run(&loop);
	_exit(0);
}

static void start_server(void)
{
	int ready[2];
	char byte;

	ck_assert_int_eq(pipe(ready), 0);
	server = fork();
	if (server == 0)
		serve(ready[1]);
	close(ready[1]);
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	close(ready[0]);
}

static void set_up(void)
{
	strcpy(directory + strlen(directory) - 6, "XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(directory));
	ck_assert_int_eq(chmod(directory, 0755), 0);
	snprintf(path, sizeof(path), "%s/a.sock", directory);
	start_server();
}

static void tear_down(void)
{
	kill(server, SIGKILL);
	fixture_wait(server);
	unlink(path);
	rmdir(directory);
}

static int ask(const char *command, bool *ok)
{
	struct resc_error err;
	json_t *answer;
	int r = control_request(path, 0, command, 5000, &answer, &err);

	*ok = json_is_true(json_object_get(answer, "ok"));
	json_decref(answer);
	return r;
}

static int connect_raw(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), 0);
	return fd;
}

START_TEST(a_command_comes_back_with_its_result)
{
	bool ok;

	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert(ok);
	ck_assert_int_eq(ask("dance", &ok), 0);
	ck_assert(!ok);
}
END_TEST

START_TEST(nobody_there_is_said)
{
	struct resc_error err;
	json_t *answer;

	ck_assert_int_eq(control_request("/tmp/resc-unit-nothing", geteuid(), "ping", 100, &answer, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "is it running?"));
	ck_assert_int_eq(control_request("", geteuid(), "ping", 100, &answer, &err), -EINVAL);
}
END_TEST

START_TEST(a_stopped_server_does_not_hang_the_client)
{
	struct resc_error err;
	json_t *answer;

	kill(server, SIGSTOP);
	ck_assert_int_eq(control_request(path, geteuid(), "ping", 100, &answer, &err), -ETIMEDOUT);
	kill(server, SIGCONT);
}
END_TEST

#define QUEUED (CONTROL_CLIENTS + 1) /* as many as the kernel keeps for who listens */

START_TEST(a_client_waits_where_too_many_others_do)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	struct resc_error err;
	json_t *answer;
	int others[QUEUED];
	bool ok;

	kill(server, SIGSTOP);
	for (size_t i = 0; i < QUEUED; i++)
		others[i] = connect_raw();
	strcpy(address.sun_path, path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof(address)), -1);
	ck_assert_int_eq(errno, EAGAIN);
	close(fd);
	ck_assert_int_eq(control_request(path, geteuid(), "ping", 100, &answer, &err), -ETIMEDOUT);
	for (size_t i = 0; i < QUEUED; i++)
		close(others[i]);
	pid_t waker = fork();
	if (waker == 0) {
		nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
		_exit(kill(server, SIGCONT));
	}
	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert(ok);
	ck_assert_int_eq(fixture_wait(waker), 0);
}
END_TEST

START_TEST(garbage_is_answered_and_hurts_nobody)
{
	static const char *const lines[] = {
	        "\n", "{}\n", "[]\n", "{\"command\":1}\n", "{\"command\":\"ping\",\"x\":1}\n", "{\"command\":\"ping\"} 1\n"};
	bool ok;

	for (size_t i = 0; i < sizeof(lines) / sizeof(lines[0]); i++) {
		char answer[512] = "";
		int fd = connect_raw();

		ck_assert_int_eq(send(fd, lines[i], strlen(lines[i]), 0), (int)strlen(lines[i]));
		ck_assert_int_gt(recv(fd, answer, sizeof(answer) - 1, 0), 0);
		ck_assert_ptr_nonnull(strstr(answer, "\"ok\":false"));
		close(fd);
	}
	ck_assert_int_eq(ask("ping", &ok), 0);
}
END_TEST

START_TEST(a_line_without_end_is_cut_off)
{
	static char flood[3 * CONTROL_LINE];
	char answer[512] = "";
	int fd = connect_raw();
	bool ok;

	memset(flood, 'x', sizeof(flood));
	send(fd, flood, sizeof(flood), MSG_NOSIGNAL);
	recv(fd, answer, sizeof(answer) - 1, 0);
	close(fd);
	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert(ok);
}
END_TEST

START_TEST(silent_clients_are_hung_up_on)
{
	int fds[CONTROL_CLIENTS + 4];
	time_t start = time(NULL);
	ssize_t got;
	char byte;
	bool ok;

	for (size_t i = 0; i < CONTROL_CLIENTS + 4; i++)
		fds[i] = connect_raw();
	for (size_t i = 0; i < CONTROL_CLIENTS + 4; i++) {
		while ((got = recv(fds[i], &byte, 1, 0)) == 1) /* those for whom there was no place are told so */
			;
		ck_assert_int_eq(got, 0);
		close(fds[i]);
	}
	ck_assert_int_le(time(NULL) - start, 1 + 2 * CONTROL_TIMEOUT_MS / 1000);
	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert(ok);
}
END_TEST

/* ---- who may ---- */

/* Runs it as that user, in that group, and in one more group, in a child; its exit status. */
static int run_as(uid_t uid, gid_t gid, gid_t also, int (*what)(void))
{
	pid_t pid = fork();

	if (pid == 0) {
		if (setgroups(also == (gid_t)-1 ? 0 : 1, &also) != 0 || setgid(gid) != 0 || setuid(uid) != 0)
			_exit(99);
		_exit(what());
	}
	return fixture_wait(pid);
}

/* 0: it was answered well; 1: refused, with words; 2: it could not even connect. */
static int ping_status(void)
{
	struct resc_error err;
	json_t *answer;
	const char *text;
	int status;

	if (control_request(path, 0, "ping", 5000, &answer, &err) < 0)
		return err.code == -EACCES ? 2 : 90;
	text = json_string_value(json_object_get(json_array_get(json_object_get(answer, "problems"), 0), "text"));
	if (json_is_true(json_object_get(answer, "ok")))
		status = 0;
	else
		status = text && strstr(text, "not allowed: uid") && strstr(text, "join the group") ? 1 : 91;
	json_decref(answer);
	return status;
}

START_TEST(F5_root_its_own_user_and_members_may_and_nobody_else)
{
	ck_assert_int_eq(ping_status(), 0);
	if (geteuid() != 0)
		return;
	ck_assert_int_eq(run_as(MEMBER, MEMBERS, (gid_t)-1, ping_status), 0);
	ck_assert_int_eq(run_as(MEMBER, NOBODY, MEMBERS, ping_status), 0); /* by a supplementary group */
	ck_assert_int_eq(run_as(NOBODY, NOBODY, (gid_t)-1, ping_status), 2);
	/* The mode of the file is not what decides. */
	ck_assert_int_eq(chmod(path, 0777), 0);
	ck_assert_int_eq(run_as(NOBODY, NOBODY, (gid_t)-1, ping_status), 1);
	ck_assert_int_eq(run_as(NOBODY, NOBODY, 60125, ping_status), 1);
	ck_assert_int_eq(run_as(MEMBER, MEMBERS, (gid_t)-1, ping_status), 0);
}
END_TEST

static int hog(void)
{
	int fds[2 * CONTROL_CLIENTS];
	bool ok;

	for (size_t i = 0; i < 2 * CONTROL_CLIENTS; i++)
		fds[i] = connect_raw();
	(void)fds;
	/* Nobody of the group gets in beside them, and is told so at once. */
	return ask("ping", &ok) == 0 && !ok ? (pause(), 0) : 90;
}

START_TEST(members_who_take_every_place_do_not_keep_root_out)
{
	bool ok;

	if (geteuid() != 0)
		return;
	pid_t pid = fork();
	if (pid == 0)
		_exit(run_as(MEMBER, MEMBERS, (gid_t)-1, hog));
	for (int i = 0; i < 50; i++) {
		ck_assert_int_eq(ask("ping", &ok), 0);
		ck_assert(ok);
	}
	kill(pid, SIGKILL);
	fixture_wait(pid);
}
END_TEST

static int ask_too_often(void)
{
	int good = 0, seconds = 0;
	struct timespec start, now;
	bool ok = true;

	clock_gettime(CLOCK_MONOTONIC, &start);
	while (ok && good < 1000) {
		if (ask("ping", &ok) != 0)
			return 90;
		good += ok;
	}
	clock_gettime(CLOCK_MONOTONIC, &now);
	seconds = (int)(now.tv_sec - start.tv_sec) + 2;
	return !ok && good >= CONTROL_COMMANDS && good <= seconds * CONTROL_COMMANDS ? 0 : 91;
}

START_TEST(members_keep_to_a_number_of_commands_a_second_and_root_does_not)
{
	bool ok;

	if (geteuid() != 0)
		return;
	ck_assert_int_eq(run_as(MEMBER, MEMBERS, (gid_t)-1, ask_too_often), 0);
	for (int i = 0; i < 3 * CONTROL_COMMANDS; i++) {
		ck_assert_int_eq(ask("ping", &ok), 0);
		ck_assert(ok);
	}
}
END_TEST

static int listen_there(void)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM, 0);

	strcpy(address.sun_path, path);
	if (bind(fd, (struct sockaddr *)&address, sizeof(address)) != 0 || listen(fd, 5) != 0)
		return 90;
	int client = accept(fd, NULL, NULL);
	char byte;
	/* Not a byte is said to somebody who is not rescd. */
	return recv(client, &byte, 1, 0) == 0 ? 0 : 91;
}

START_TEST(F5_a_client_says_nothing_to_somebody_who_is_not_rescd)
{
	struct resc_error err = {0, ""};
	json_t *answer;
	int r;

	if (geteuid() != 0)
		return;
	kill(server, SIGKILL);
	fixture_wait(server);
	ck_assert_int_eq(unlink(path), 0);
	ck_assert_int_eq(chmod(directory, 0777), 0);
	server = fork();
	if (server == 0)
		_exit(run_as(NOBODY, NOBODY, (gid_t)-1, listen_there));
	do
		r = control_request(path, 0, "ping", 5000, &answer, &err);
	while (r == -ENOENT || r == -ECONNREFUSED);
	ck_assert_int_eq(r, -EPERM);
	ck_assert_msg(strstr(err.text, "uid 65534") != NULL, "%s", err.text);
	ck_assert_int_eq(fixture_wait(server), 0);
	unlink(path);
	ck_assert_int_eq(chmod(directory, 0755), 0);
	start_server();
}
END_TEST

START_TEST(F5_the_socket_has_its_mode_and_group_whatever_the_umask)
{
	struct stat st;
	mode_t mask = umask(0077);

	kill(server, SIGKILL);
	fixture_wait(server);
	start_server();
	umask(mask);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, CONTROL_MODE);
	ck_assert_uint_eq(st.st_gid, geteuid() == 0 ? MEMBERS : getegid());
}
END_TEST

START_TEST(F5_a_link_at_the_name_of_the_socket_is_not_followed)
{
	struct control control = {.command = answer_command};
	char target[CONTROL_PATH], name[CONTROL_PATH];
	struct loop loop;
	struct resc_error err;
	struct stat st;

	snprintf(target, sizeof(target), "%.80s/target", directory);
	snprintf(name, sizeof(name), "%.80s/name", directory);
	ck_assert_int_eq(close(open(target, O_CREAT | O_WRONLY, 0600)), 0);
	ck_assert_int_eq(symlink(target, name), 0);
	ck_assert_int_eq(loop_open(&loop), 0);
	ck_assert_int_eq(control_open(&control, &loop, name, MEMBERS, &err), -EEXIST);
	control_close(&control);
	/* Nor one that is put there later. */
	snprintf(control.path, sizeof(control.path), "%s", name);
	control.listener.fd = 0;
	control.group = (gid_t)-1;
	control_group(&control, MEMBERS);
	/* Nor is a file of another name taken for it. */
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(link(target, name), 0);
	control.group = (gid_t)-1;
	control_group(&control, MEMBERS);
	ck_assert_int_eq(stat(target, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0600);
	ck_assert_uint_eq(st.st_gid, getegid());
	loop_close(&loop);
	ck_assert_int_eq(unlink(name), 0);
	ck_assert_int_eq(unlink(target), 0);
}
END_TEST

START_TEST(K2_a_leftover_of_the_dead_is_replaced_and_a_live_one_is_not)
{
	struct loop loop;
	struct control control = {.command = answer_command};
	struct resc_error err;
	struct stat st;
	bool ok;

	ck_assert_int_eq(loop_open(&loop), 0);
	ck_assert_int_eq(control_open(&control, &loop, path, (gid_t)-1, &err), -EADDRINUSE);
	control_close(&control);
	loop_close(&loop);
	ck_assert_int_eq(ask("ping", &ok), 0);
	kill(server, SIGKILL);
	fixture_wait(server);
	start_server();
	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert_int_eq(stat(path, &st), 0);
	ck_assert_uint_eq(st.st_mode & 07777, 0660);
}
END_TEST

START_TEST(what_is_no_socket_is_not_removed)
{
	struct control control = {.command = answer_command};
	char file[CONTROL_PATH];
	struct loop loop;
	struct resc_error err;
	FILE *out;

	snprintf(file, sizeof(file), "%.80s/file", directory);
	out = fopen(file, "w");
	ck_assert_ptr_nonnull(out);
	fclose(out);
	ck_assert_int_eq(loop_open(&loop), 0);
	ck_assert_int_eq(control_open(&control, &loop, file, (gid_t)-1, &err), -EEXIST);
	control_close(&control);
	loop_close(&loop);
	ck_assert_int_eq(unlink(file), 0);
}
END_TEST

START_TEST(paths_are_checked)
{
	char out[CONTROL_PATH], longer[200];
	struct resc_error err;

	memset(longer, 'x', sizeof(longer));
	longer[0] = '/';
	longer[sizeof(longer) - 1] = '\0';
	ck_assert_int_eq(control_path(out, "relative", "a", &err), -EINVAL);
	ck_assert_int_eq(control_path(out, longer, "a", &err), -ENAMETOOLONG);
	ck_assert_int_eq(control_path(out, "/x/y", "a", &err), 0);
	ck_assert_str_eq(out, "/x/y");
	ck_assert_int_eq(control_path(out, "", "a", &err), 0);
	ck_assert_ptr_nonnull(strstr(out, "/a.sock"));
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_command_comes_back_with_its_result,
	        nobody_there_is_said,
	        a_stopped_server_does_not_hang_the_client,
	        a_client_waits_where_too_many_others_do,
	        garbage_is_answered_and_hurts_nobody,
	        a_line_without_end_is_cut_off,
	        silent_clients_are_hung_up_on,
	        F5_root_its_own_user_and_members_may_and_nobody_else,
	        members_who_take_every_place_do_not_keep_root_out,
	        members_keep_to_a_number_of_commands_a_second_and_root_does_not,
	        F5_a_client_says_nothing_to_somebody_who_is_not_rescd,
	        F5_the_socket_has_its_mode_and_group_whatever_the_umask,
	        F5_a_link_at_the_name_of_the_socket_is_not_followed,
	        K2_a_leftover_of_the_dead_is_replaced_and_a_live_one_is_not,
	        what_is_no_socket_is_not_removed,
	        paths_are_checked,
	};

	return FIXTURE_RUN("control", tests, set_up, tear_down);
}
