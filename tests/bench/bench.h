/* SPDX-License-Identifier: MIT */
/* What the parts of the benchmark share. See bench.c for what is measured and why it is measured like that. */
#ifndef BENCH_H
#define BENCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#define ROUNDS 11u
#define PARTS  4u /* turns of a round */
#define LINE   128u

/* ---- measure.c ---- */

/* Says what is wrong and ends the benchmark; whoever started it cleans up. */
__attribute__((noreturn, format(printf, 1, 2))) void give_up(const char *format, ...);

/* Memory that forked children share with us. Never freed: it goes with the process. */
void *shared_memory(size_t size);

uint64_t now_ns(void);
void sleep_ms(unsigned ms);
/* The first two CPUs this process may use; false where there is one only. */
bool cpus_find(void);
/* 0 or 1. */
void cpu_pin(unsigned which);
/* Back to all CPUs: for daemons and idle children. */
void cpu_unpin(void);

/* Does so many calls. */
typedef void (*calls_fn)(unsigned n);

/* ns a call: the median of slices of n calls. */
double time_calls(calls_fn calls, unsigned n);
/* The same in a forked child, on the first CPU, the fastest of PARTS; finish (may be NULL) runs there at the end. */
double time_calls_in_child(calls_fn calls, unsigned n, void (*finish)(void));
/* ns a call each, of two forked processes pinned to two CPUs that call at the same time. prepare(which) runs first in each. */
double time_two_cores(calls_fn calls, void (*prepare)(unsigned which), void (*finish)(void));

double median(const double *values, unsigned n);

/* ---- baselines.c ---- */

/* What all of them need is made once. */
void baselines_open(void);
void floor_calls(unsigned n);
/* Which of two sets of lines floor_calls uses: processes that share nothing. */
void floor_use(unsigned which);
void sysv_calls(unsigned n);
void mutex_calls(unsigned n);
/* 0, or the reason why there is none. */
const char *redis_open(const char *directory);
void redis_calls(unsigned n);
/* The id of the semaphore set, in memory that is shared with whoever cleans up; -1: none. */
extern int *sysv_id;

/* ---- guarded.c ---- */

void guarded_open(const char *instance);
/* In a forked child: it is a worker of its own, and leaves. */
void guarded_close(void);
void guarded_calls(unsigned n);
void guarded_latency_calls(unsigned n);
void refused_open_calls(unsigned n);
void refused_full_calls(unsigned n);
void retry_calls(unsigned n);
void attach_calls(unsigned n);
void breaker_alone_calls(unsigned n);
void bulkhead_alone_calls(unsigned n);
void window_calls_calls(unsigned n);
void priority_calls(unsigned n);
void injection_allowed_calls(unsigned n);
void queue_calls(unsigned n);
void rate_calls(unsigned n);
void throttle_calls(unsigned n);
void retry_cap_calls(unsigned n);
void shadow_calls(unsigned n);
void all_calls(unsigned n);
void once_calls(unsigned n);

/* ---- daemon.c ---- */

struct daemon {
	pid_t pid;
	char instance[64];
};

/* Starts rescd with this configuration, and waits until its segment is there. */
void daemon_start(struct daemon *daemon, const char *program, const char *directory, const char *instance, const char *configuration);
void daemon_stop(struct daemon *daemon);
uint64_t process_resident_bytes(pid_t pid);
/* CPU time used so far. */
uint64_t process_cpu_ns(pid_t pid);

/* Processes that attach (in the way that is given), and then wait to be killed. */
struct crowd {
	pid_t *pids;
	unsigned n;
};
void crowd_gather(struct crowd *crowd, unsigned n, void (*attach)(unsigned which));
void crowd_disperse(struct crowd *crowd);

/* ns from start to end of a program whose output goes nowhere. */
double time_program(char *const argv[]);

#endif
