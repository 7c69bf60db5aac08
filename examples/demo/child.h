/* SPDX-License-Identifier: MIT */
#ifndef DEMO_CHILD_H
#define DEMO_CHILD_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* The signals that end the demo. The parent keeps them blocked and takes them where it sleeps: see child_sleep_until. */
void child_block_signals(void);
/* Sleeps until a time (resc_now_ns). 0, or the number of the signal that ended it. */
int child_sleep_until(int64_t ns);

/* fork(2), but no child survives this process, and Ctrl-C reaches this process alone. 0 in the child, its pid, or -errno. */
pid_t child_fork(void);
/* Starts a program with its output in a file. argv[0] is looked up in PATH. Its pid, or -errno. */
pid_t child_start(char *const argv[], const char *log);
/* Has it ended? Reaps it then and sets *pid to 0. */
bool child_ended(pid_t *pid);
/* Waits for it to end by itself; false after timeout_ms. */
bool child_wait(pid_t *pid, int64_t timeout_ms);
/* Ends it: this signal, two seconds, SIGKILL. */
void child_stop(pid_t *pid, int signal);

#endif
