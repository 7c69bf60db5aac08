/* SPDX-License-Identifier: MIT */
/* The control socket: commands come back with their result, and nobody can hold rescd up with it. */
#include "control.h"

#include <errno.h>
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

static void serve(int ready)
{
	struct loop loop;
	struct control control = {.command = answer_command};
	struct resc_error err;

	if (loop_open(&loop) < 0 || control_open(&control, &loop, path, (gid_t)-1, &err) < 0)
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
	int r = control_request(path, command, 5000, &answer, &err);

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

	ck_assert_int_eq(control_request("/tmp/resc-unit-nothing", "ping", 100, &answer, &err), -ENOENT);
	ck_assert_ptr_nonnull(strstr(err.text, "is it running?"));
	ck_assert_int_eq(control_request("", "ping", 100, &answer, &err), -EINVAL);
}
END_TEST

START_TEST(a_stopped_server_does_not_hang_the_client)
{
	struct resc_error err;
	json_t *answer;

	kill(server, SIGSTOP);
	ck_assert_int_eq(control_request(path, "ping", 100, &answer, &err), -ETIMEDOUT);
	kill(server, SIGCONT);
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
	char byte;
	bool ok;

	for (size_t i = 0; i < CONTROL_CLIENTS + 4; i++)
		fds[i] = connect_raw();
	for (size_t i = 0; i < CONTROL_CLIENTS + 4; i++) {
		ck_assert_int_eq(recv(fds[i], &byte, 1, 0), 0);
		close(fds[i]);
	}
	ck_assert_int_le(time(NULL) - start, 1 + 2 * CONTROL_TIMEOUT_MS / 1000);
	ck_assert_int_eq(ask("ping", &ok), 0);
	ck_assert(ok);
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
	        garbage_is_answered_and_hurts_nobody,
	        a_line_without_end_is_cut_off,
	        silent_clients_are_hung_up_on,
	        K2_a_leftover_of_the_dead_is_replaced_and_a_live_one_is_not,
	        what_is_no_socket_is_not_removed,
	        paths_are_checked,
	};

	return FIXTURE_RUN("control", tests, set_up, tear_down);
}
