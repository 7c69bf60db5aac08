/* SPDX-License-Identifier: MIT */
/*
 * What others would do.
 *
 *	floor		the least that a shared breaker and bulkhead can cost: a load of the breaker, a CAS and a store of a
 *			permit, an addition to a counter, each on lines of its own
 *	sysv_semaphore	a bulkhead of System V semaphores: a pair of semop with SEM_UNDO, so that a death gives the ticket back
 *	robust_mutex	a breaker (state, a window of counters) and a count of calls in flight under a process-shared robust
 *			mutex, locked on entering and again on leaving
 *	redis_unix	three commands a call over a Unix socket: the state, one more in flight, one less
 */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

/* ---- floor ---- */

struct floor_lines {
	_Alignas(LINE) _Atomic uint64_t breaker;
	_Alignas(LINE) _Atomic uint64_t permit;
	_Alignas(LINE) _Atomic uint64_t counter;
};

static struct floor_lines *floors, *my_floor;

void floor_use(unsigned which)
{
	my_floor = &floors[which];
}

void floor_calls(unsigned n)
{
	struct floor_lines *f = my_floor;

	for (unsigned i = 0; i < n; i++) {
		uint64_t none = 0;
		if (atomic_load_explicit(&f->breaker, memory_order_acquire) != 0)
			give_up("floor: open");
		if (!atomic_compare_exchange_strong_explicit(&f->permit, &none, 1, memory_order_acquire, memory_order_relaxed))
			give_up("floor: full");
		atomic_store_explicit(&f->permit, 0, memory_order_release);
		atomic_fetch_add_explicit(&f->counter, 1, memory_order_relaxed);
	}
}

/* ---- System V semaphore ---- */

int *sysv_id;

static void sysv_open(void)
{
	*sysv_id = semget(IPC_PRIVATE, 1, 0600);
	if (*sysv_id < 0)
		give_up("semget: %s", strerror(errno));
	struct sembuf up = {.sem_num = 0, .sem_op = 80, .sem_flg = 0};
	if (semop(*sysv_id, &up, 1) != 0)
		give_up("semop: %s", strerror(errno));
}

void sysv_calls(unsigned n)
{
	int id = *sysv_id;
	struct sembuf take = {.sem_num = 0, .sem_op = -1, .sem_flg = SEM_UNDO | IPC_NOWAIT};
	struct sembuf give = {.sem_num = 0, .sem_op = 1, .sem_flg = SEM_UNDO};

	for (unsigned i = 0; i < n; i++)
		if (semop(id, &take, 1) != 0 || semop(id, &give, 1) != 0)
			give_up("semop: %s", strerror(errno));
}

/* ---- robust mutex ---- */

#define WINDOW_SECONDS 10u
#define LIMIT          80u
#define MIN_CALLS      20u

/* No line is shared with anything else; inside, one lock guards everything, so nothing is gained by spreading it. */
struct locked_breaker {
	_Alignas(LINE) pthread_mutex_t lock;
	bool open;
	unsigned in_flight;
	uint64_t due_s;
	uint64_t admitted;
	struct {
		uint64_t second;
		unsigned ok;
		unsigned failed;
	} window[WINDOW_SECONDS];
};

static struct locked_breaker *locked;

static void mutex_open(void)
{
	pthread_mutexattr_t attributes;

	locked = shared_memory(sizeof(*locked));
	pthread_mutexattr_init(&attributes);
	pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
	if (pthread_mutex_init(&locked->lock, &attributes) != 0)
		give_up("cannot make a robust mutex");
	pthread_mutexattr_destroy(&attributes);
}

static void lock(struct locked_breaker *b)
{
	int r = pthread_mutex_lock(&b->lock);

	if (r == EOWNERDEAD)
		r = pthread_mutex_consistent(&b->lock);
	if (r != 0)
		give_up("pthread_mutex_lock: %s", strerror(r));
}

/* The cheap clock, as ours: a window needs the time. */
static uint64_t coarse_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec;
}

__attribute__((noinline)) static bool locked_enter(struct locked_breaker *b)
{
	bool admitted = false;

	lock(b);
	if (b->open && coarse_seconds() >= b->due_s)
		b->open = false;
	if (!b->open && b->in_flight < LIMIT) {
		b->in_flight++;
		b->admitted++;
		admitted = true;
	}
	pthread_mutex_unlock(&b->lock);
	return admitted;
}

static bool too_many_failed(const struct locked_breaker *b, uint64_t now)
{
	unsigned ok = 0, failed = 0;

	for (unsigned i = 0; i < WINDOW_SECONDS; i++) {
		if (b->window[i].second + WINDOW_SECONDS <= now)
			continue;
		ok += b->window[i].ok;
		failed += b->window[i].failed;
	}
	return ok + failed >= MIN_CALLS && failed >= ok;
}

__attribute__((noinline)) static void locked_leave(struct locked_breaker *b, bool failed)
{
	uint64_t now = coarse_seconds();

	lock(b);
	b->in_flight--;
	unsigned i = (unsigned)(now % WINDOW_SECONDS);
	if (b->window[i].second != now) {
		b->window[i].second = now;
		b->window[i].ok = b->window[i].failed = 0;
	}
	if (failed)
		b->window[i].failed++;
	else
		b->window[i].ok++;
	if (failed && too_many_failed(b, now)) {
		b->open = true;
		b->due_s = now + 5;
	}
	pthread_mutex_unlock(&b->lock);
}

void mutex_calls(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		if (!locked_enter(locked))
			give_up("robust mutex: refused");
		locked_leave(locked, false);
	}
}

/* ---- Redis ---- */

static int redis_fd = -1;

static int redis_connect(const char *path)
{
	struct sockaddr_un address = {.sun_family = AF_UNIX};
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

	if (fd < 0)
		give_up("socket: %s", strerror(errno));
	memcpy(address.sun_path, path, strlen(path) + 1);
	if (connect(fd, (const struct sockaddr *)&address, sizeof(address)) == 0)
		return fd;
	close(fd);
	return -1;
}

const char *redis_open(const char *directory)
{
	char path[sizeof(((struct sockaddr_un *)NULL)->sun_path)];

	snprintf(path, sizeof(path), "%s/redis.sock", directory);
	pid_t pid = fork();
	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (pid == 0) {
		int nothing = open("/dev/null", O_RDWR);
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		cpu_unpin();
		dup2(nothing, STDOUT_FILENO);
		dup2(nothing, STDERR_FILENO);
		execlp("redis-server", "redis-server", "--port", "0", "--unixsocket", path, "--save", "", "--appendonly", "no", "--dir",
		       directory, "--daemonize", "no", (char *)NULL);
		_exit(127);
	}
	for (unsigned i = 0; i < 300; i++) {
		redis_fd = redis_connect(path);
		if (redis_fd >= 0)
			return NULL;
		sleep_ms(10);
	}
	return "no redis-server";
}

/* Each of our commands has an answer of one line. */
static void redis_command(const char *command)
{
	char answer[256];
	size_t length = 0;
	size_t size = strlen(command);

	if (write(redis_fd, command, size) != (ssize_t)size)
		give_up("redis: %s", strerror(errno));
	do {
		ssize_t n = read(redis_fd, answer + length, sizeof(answer) - length);
		if (n <= 0)
			give_up("redis: connection lost");
		length += (size_t)n;
	} while (length < sizeof(answer) && answer[length - 1] != '\n');
	if (answer[0] == '-')
		give_up("redis: %.*s", (int)length, answer);
}

void redis_calls(unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		redis_command("*2\r\n$3\r\nGET\r\n$14\r\npayments:state\r\n");
		redis_command("*2\r\n$4\r\nINCR\r\n$17\r\npayments:inflight\r\n");
		redis_command("*2\r\n$4\r\nDECR\r\n$17\r\npayments:inflight\r\n");
	}
}

void baselines_open(void)
{
	floors = shared_memory(2 * sizeof(*floors));
	floor_use(0);
	sysv_open();
	mutex_open();
}
