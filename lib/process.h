/* SPDX-License-Identifier: MIT */
/*
 * Which process is this? A forked child must notice that it is one, however it was forked (fork, clone, _Fork), without a system call on
 * the call path: the epoch lives in a page that the kernel wipes in children (MADV_WIPEONFORK). And what tells processes apart for others.
 */
#ifndef RESC_PROCESS_H
#define RESC_PROCESS_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

extern _Atomic uint64_t *_Atomic process_epoch_page;

/* Makes the page, or a new epoch in a child. Thread-safe. */
uint64_t process_epoch_renew(void);

/* A number that differs between a process and its forked children; never 0. */
static inline uint64_t process_epoch(void)
{
	/* Acquire: the page is mapped when its address can be seen. */
	_Atomic uint64_t *page = atomic_load_explicit(&process_epoch_page, memory_order_acquire);
	uint64_t epoch = page == NULL ? 0 : atomic_load_explicit(page, memory_order_relaxed);
	return __builtin_expect(epoch != 0, 1) ? epoch : process_epoch_renew();
}

/* Zeroed memory that a forked child finds zeroed, too. NULL: there is none, or the kernel cannot do that. Never freed. */
void *process_wiped_memory(size_t size);
/* Field 22 of /proc/PID/stat, found after the last ')'. 0 when it cannot be read. */
uint64_t process_start_ticks(pid_t pid);
/* The same of its text. */
uint64_t process_stat_start(const char *stat);
/* The inode of /proc/self/ns/NAME, or 0. */
uint64_t process_namespace(const char *name);

#endif
