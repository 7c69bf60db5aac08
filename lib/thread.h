/* SPDX-License-Identifier: MIT */
/*
 * What the library keeps for each thread: an address that stands for it, and call numbers, taken in blocks so that threads do not meet.
 */
#ifndef RESC_THREAD_H
#define RESC_THREAD_H

#include <stdatomic.h>
#include <stdint.h>

#define CALL_BLOCK 4096u

struct thread {
	uint32_t next_call;
	uint32_t calls_left;
};

extern _Thread_local struct thread thread_data;
extern _Atomic uint32_t thread_next_block;

static inline const void *thread_self(void)
{
	return &thread_data;
}

/* Unique in this process until 2^32 calls later. */
static inline uint32_t thread_call_number(void)
{
	if (__builtin_expect(thread_data.calls_left == 0, 0)) {
		/* Relaxed: only the number matters. */
		thread_data.next_call = atomic_fetch_add_explicit(&thread_next_block, CALL_BLOCK, memory_order_relaxed);
		thread_data.calls_left = CALL_BLOCK;
	}
	thread_data.calls_left--;
	return thread_data.next_call++;
}

#endif
