/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a real dependency fails in ways of its own. Two faults are possible with any program, from outside: it is stopped
 * (SIGSTOP: the kernel still takes connections and requests, and nobody answers), and it is killed and started again on its port.
 *
 * It is a session of its own, so that its own children stop and die with it, and Ctrl-C is not for them; when we are killed, its guard sees
 * to that (guard.c). What it writes is kept, the end of it, and shown when it does not start or ends by itself: then it is the reason, and
 * otherwise it is in the way of the tables.
 */
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "caller.h"
#include "children.h"
#include "script.h"
#include "signals.h"

#define READY_NS  INT64_C(10000000000) /* it has this long to listen */
#define LOOK_NS   5000000
#define READS     512u /* of what it writes, a turn: 1 MiB */
#define PORT_MARK "{port}"
#define PORT_TEXT 8

static struct sockaddr_in address_of(uint16_t port)
{
	return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

/* A port that is free now. */
static int find_port(uint16_t *port)
{
	struct sockaddr_in address = address_of(0);
	socklen_t size = sizeof(address);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return -errno;
	int r = bind(fd, (struct sockaddr *)&address, size) == 0 && getsockname(fd, (struct sockaddr *)&address, &size) == 0 ? 0 : -errno;
	close(fd);
	*port = ntohs(address.sin_port);
	return r;
}

/* Does somebody listen there, and is it not this very socket that the kernel has given the same port? */
static bool is_listening(uint16_t port)
{
	struct sockaddr_in address = address_of(port);
	struct sockaddr_in own = {0};
	socklen_t size = sizeof(own);
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		return false;
	bool is = connect(fd, (struct sockaddr *)&address, sizeof(address)) == 0 && getsockname(fd, (struct sockaddr *)&own, &size) == 0 &&
	          own.sin_port != address.sin_port;
	close(fd);
	return is;
}

/* ---- what it writes ---- */

static void keep_last(struct program *program, const char *text, size_t length)
{
	size_t over = program->length + length > sizeof(program->last) ? program->length + length - sizeof(program->last) : 0;
	if (over > program->length)
		over = program->length;
	memmove(program->last, program->last + over, program->length - over);
	program->length -= over;
	memcpy(program->last + program->length, text, length);
	program->length += length;
}

static void read_output(struct program *program)
{
	char text[PROGRAM_OUTPUT];
	ssize_t n;
	/* As much as a talkative one writes until the next turn; one that writes without end waits for it. */
	for (unsigned i = 0; i < READS && program->output >= 0 && (n = read(program->output, text, sizeof(text))) > 0; i++)
		keep_last(program, text, (size_t)n);
}

static void show_output(struct program *program)
{
	read_output(program);
	if (program->length == 0)
		return;
	fprintf(stderr, "What it wrote last:\n%.*s%s", (int)program->length, program->last,
	        program->last[program->length - 1] == '\n' ? "" : "\n");
}

/* ---- its process ---- */

/* A word with its {port}s replaced; NULL: out of memory. */
static char *with_port(const char *word, const char *port)
{
	char *text = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&text, &size);
	if (!out)
		return NULL;
	for (const char *mark; (mark = strstr(word, PORT_MARK)); word = mark + strlen(PORT_MARK))
		fprintf(out, "%.*s%s", (int)(mark - word), word, port);
	fputs(word, out);
	if (fclose(out) == 0)
		return text;
	free(text);
	return NULL;
}

/* In the child. */
static _Noreturn void become(const struct program *program)
{
	char port[PORT_TEXT];
	size_t count = 0;
	while (program->dependency->program[count])
		count++;
	char **words = calloc(count + 1, sizeof(*words));
	snprintf(port, sizeof(port), "%u", program->port);
	for (size_t i = 0; words && i < count; i++) {
		words[i] = with_port(program->dependency->program[i], port);
		if (!words[i])
			_exit(126);
	}
	int input = open("/dev/null", O_RDONLY | O_CLOEXEC);
	if (!words || !words[0] || input < 0 || dup2(input, 0) < 0 || dup2(CHILD_KEPT, 1) < 0 || dup2(CHILD_KEPT, 2) < 0)
		_exit(126);
	close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
	signal(SIGPIPE, SIG_DFL);
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	execvp(words[0], words);
	dprintf(2, "cannot run %s: %s\n", words[0], strerror(errno));
	_exit(127);
}

static int launch(struct program *program)
{
	int pipe[2];
	if (pipe2(pipe, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = child_fork_with(pipe[1]);
	if (pid == 0)
		become(program);
	close(pipe[1]);
	if (pid < 0) {
		close(pipe[0]);
		return -EAGAIN;
	}
	guard_watch(program->guard, pid);
	fcntl(pipe[0], F_SETFL, O_NONBLOCK);
	program->output = pipe[0];
	program->length = 0;
	program->pid = pid;
	program->stopped = false;
	return 0;
}

static void kill_group(struct program *program)
{
	kill(-program->pid, SIGKILL);
	guard_forget(program->guard, program->pid);
}

/* What it had started ends with it, before its number can be another's. */
static bool has_ended(struct program *program, int *status)
{
	siginfo_t info = {0};
	if (waitid(P_PID, (id_t)program->pid, &info, WEXITED | WNOHANG | WNOWAIT) < 0 || info.si_pid == 0)
		return false;
	kill_group(program);
	waitpid(program->pid, status, 0);
	program->pid = 0;
	return true;
}

void program_end(struct program *program)
{
	if (program->pid > 0)
		kill_group(program);
	child_kill(&program->pid);
	if (program->output >= 0)
		close(program->output);
	program->output = -1;
}

static int say_ended(struct program *program, int status)
{
	bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;

	fprintf(stderr, "resctl rehearse: dependency %s: %s has ended by itself, with %s %d%s\n", program->dependency->name,
	        program->dependency->program[0], WIFSIGNALED(status) ? "signal" : "status",
	        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status),
	        well ? "; one that goes into the background must be told to stay in the foreground, or it is not ended with the rehearsal"
	             : "");
	show_output(program);
	program_end(program);
	return -ECHILD;
}

/* Who has stopped it need not be known: the script has not, or wants it to stay so. */
static bool is_meddled_with(const struct program *program, bool *goes_on)
{
	return child_stopped(program->pid, goes_on) && *goes_on == program->stopped;
}

static int say_meddled_with(const struct program *program, bool goes_on)
{
	fprintf(stderr, "resctl rehearse: dependency %s: %s was %s, and not by its script; so there is no result\n",
	        program->dependency->name, program->dependency->program[0], goes_on ? "continued" : "stopped");
	return -ECHILD;
}

static int say_deaf(struct program *program)
{
	fprintf(stderr,
	        "resctl rehearse: dependency %s: %s does not listen on 127.0.0.1:%u after %d s; its words must tell it to, by {port}\n",
	        program->dependency->name, program->dependency->program[0], program->port, (int)(READY_NS / 1000000000));
	show_output(program);
	program_end(program);
	return -ETIMEDOUT;
}

static int await_ready(struct program *program)
{
	int64_t until_ns = call_clock_ns() + READY_NS;
	int status;
	while (!is_listening(program->port)) {
		read_output(program);
		if (has_ended(program, &status))
			return say_ended(program, status);
		if (call_clock_ns() >= until_ns)
			return say_deaf(program);
		if (signals_came() != 0) {
			program_end(program);
			return -EINTR;
		}
		nanosleep(&(struct timespec){.tv_nsec = LOOK_NS}, NULL);
	}
	return 0;
}

static int say_broken(const struct dependency *dependency, int error)
{
	fprintf(stderr, "resctl rehearse: dependency %s: cannot start %s: %s%s\n", dependency->name, dependency->program[0],
	        strerror(-error), child_remedy(-error));
	return error;
}

int program_start(struct program *program, const struct dependency *dependency, struct guard *guard)
{
	*program = (struct program){.dependency = dependency, .guard = guard, .output = -1};
	int r = find_port(&program->port);
	if (r == 0)
		r = launch(program);
	return r == 0 ? await_ready(program) : say_broken(dependency, r);
}

/* ---- its script ---- */

static void follow_hang(struct program *program, int64_t at_ns)
{
	bool hangs = script_is_on(program->dependency, FAULT_HANG, at_ns);
	if (program->pid == 0 || hangs == program->stopped)
		return;
	kill(-program->pid, hangs ? SIGSTOP : SIGCONT);
	program->stopped = hangs;
}

int program_turn(struct program *program, int64_t at_ns)
{
	int status;
	bool goes_on;
	read_output(program);
	if (program->pid > 0 && has_ended(program, &status))
		return say_ended(program, status);
	if (program->pid > 0 && is_meddled_with(program, &goes_on))
		return say_meddled_with(program, goes_on);
	if (!script_listens(program->dependency, at_ns))
		program_end(program);
	else if (program->pid == 0) {
		int r = launch(program);
		if (r != 0)
			return say_broken(program->dependency, r);
	}
	follow_hang(program, at_ns);
	return 0;
}
