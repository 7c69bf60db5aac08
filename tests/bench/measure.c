/* SPDX-License-Identifier: MIT */
/*
 * Clocks, CPUs, medians, and children that measure.
 *
 * A number from one run of one loop is worth little on a machine that is shared. So a loop is cut into slices of a tenth of a millisecond
 * or so, most of which no other process disturbs, and their median is one measurement. In a round the rows take turns several times, and of
 * each the fastest turn counts: a neighbour can only make it slower. What is compared is taken from the same round, and the median over the
 * rounds is the result. Two processes side by side, which may take turns in their progress, are measured by the mean of their slices.
 */
#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "bench.h"

#define SLICES           25u
#define TWO_CORES_MS     60u
#define TWO_CORES_SLICE  1000u
#define TWO_CORES_SLICES 16384u

static cpu_set_t all_cpus;
static size_t cpu[2];

void give_up(const char *format, ...)
{
	va_list args;

	fflush(stdout);
	fputs("bench: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputc('\n', stderr);
	_exit(1);
}

void *shared_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		give_up("no memory: %s", strerror(errno));
	return memory;
}

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sleep_ms(unsigned ms)
{
	struct timespec left = {.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000};

	while (nanosleep(&left, &left) != 0 && errno == EINTR)
		;
}

bool cpus_find(void)
{
	unsigned found = 0;

	if (sched_getaffinity(0, sizeof(all_cpus), &all_cpus) != 0)
		give_up("sched_getaffinity: %s", strerror(errno));
	for (size_t i = 0; i < CPU_SETSIZE && found < 2; i++)
		if (CPU_ISSET(i, &all_cpus))
			cpu[found++] = i;
	return found == 2;
}

void cpu_pin(unsigned which)
{
	cpu_set_t one;

	CPU_ZERO(&one);
	CPU_SET(cpu[which], &one);
	if (sched_setaffinity(0, sizeof(one), &one) != 0)
		give_up("cannot pin to CPU %zu: %s", cpu[which], strerror(errno));
}

void cpu_unpin(void)
{
	sched_setaffinity(0, sizeof(all_cpus), &all_cpus);
}

/* ---- medians ---- */

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double median(const double *values, unsigned n)
{
	double sorted[64];

	if (n == 0 || n > 64)
		return 0;
	memcpy(sorted, values, n * sizeof(*values));
	qsort(sorted, n, sizeof(*sorted), compare);
	return n % 2 == 1 ? sorted[n / 2] : (sorted[n / 2 - 1] + sorted[n / 2]) / 2;
}

/* Without the tenth that is fastest and the tenth that is slowest: what is left out is where one of the two was off its CPU. */
static double middle_mean(double *values, unsigned n)
{
	unsigned out = n / 10;
	double sum = 0;

	qsort(values, n, sizeof(*values), compare);
	for (unsigned i = out; i < n - out; i++)
		sum += values[i];
	return sum / (n - 2 * out);
}

double time_calls(calls_fn calls, unsigned n)
{
	double ns[SLICES];

	calls(n);
	for (unsigned i = 0; i < SLICES; i++) {
		uint64_t start = now_ns();
		calls(n);
		ns[i] = (double)(now_ns() - start) / n;
	}
	return median(ns, SLICES);
}

/* ---- children ---- */

/* What the parent and its measuring children say to each other. */
struct meeting {
	_Alignas(LINE) atomic_uint ready;
	_Alignas(LINE) atomic_bool go;
	_Alignas(LINE) atomic_bool stop;
	_Alignas(LINE) double ns[2];
};

static struct meeting *meeting(void)
{
	static struct meeting *one;

	if (one == NULL)
		one = shared_memory(sizeof(*one));
	memset(one, 0, sizeof(*one));
	return one;
}

static pid_t fork_child(void)
{
	pid_t parent = getpid();

	fflush(stdout);
	pid_t pid = fork();
	if (pid < 0)
		give_up("fork: %s", strerror(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != parent)
			_exit(1);
	}
	return pid;
}

static void wait_for(pid_t pid)
{
	int status;

	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			give_up("waitpid: %s", strerror(errno));
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
		give_up("a measuring process failed");
}

double time_calls_in_child(calls_fn calls, unsigned n, void (*finish)(void))
{
	struct meeting *m = meeting();
	pid_t pid = fork_child();

	if (pid == 0) {
		cpu_pin(0);
		m->ns[0] = time_calls(calls, n);
		for (unsigned i = 1; i < PARTS; i++) {
			double ns = time_calls(calls, n);
			m->ns[0] = ns < m->ns[0] ? ns : m->ns[0];
		}
		if (finish != NULL)
			finish();
		_exit(0);
	}
	wait_for(pid);
	return m->ns[0];
}

static void measure_beside_another(struct meeting *m, unsigned which, calls_fn calls)
{
	static double ns[TWO_CORES_SLICES];
	unsigned n = 0;

	calls(10 * TWO_CORES_SLICE);
	atomic_fetch_add_explicit(&m->ready, 1, memory_order_release);
	while (!atomic_load_explicit(&m->go, memory_order_acquire))
		;
	while (!atomic_load_explicit(&m->stop, memory_order_relaxed) && n < TWO_CORES_SLICES) {
		uint64_t start = now_ns();
		calls(TWO_CORES_SLICE);
		ns[n++] = (double)(now_ns() - start) / TWO_CORES_SLICE;
	}
	m->ns[which] = n == 0 ? 0 : middle_mean(ns, n);
}

double time_two_cores(calls_fn calls, void (*prepare)(unsigned which), void (*finish)(void))
{
	struct meeting *m = meeting();
	pid_t pids[2];

	for (unsigned which = 0; which < 2; which++) {
		pids[which] = fork_child();
		if (pids[which] != 0)
			continue;
		cpu_pin(which);
		if (prepare != NULL)
			prepare(which);
		measure_beside_another(m, which, calls);
		if (finish != NULL)
			finish();
		_exit(0);
	}
	while (atomic_load_explicit(&m->ready, memory_order_acquire) < 2) {
		if (waitpid(pids[0], NULL, WNOHANG) != 0 || waitpid(pids[1], NULL, WNOHANG) != 0)
			give_up("a measuring process failed");
		sleep_ms(1);
	}
	atomic_store_explicit(&m->go, true, memory_order_release);
	sleep_ms(TWO_CORES_MS);
	atomic_store_explicit(&m->stop, true, memory_order_relaxed);
	wait_for(pids[0]);
	wait_for(pids[1]);
	return (m->ns[0] + m->ns[1]) / 2;
}
