/* SPDX-License-Identifier: MIT */
/*
 * The number that seals tickets: drawn once in a process, inherited by its children, who may not leave their parent's tickets anyway. It is
 * no secret from the process itself; it only makes it unlikely that bytes which were never a ticket look like one.
 */
#include "ticket.h"

#include <sys/random.h>

_Atomic uint64_t seal_number;

uint64_t seal_draw(void)
{
	uint64_t fresh = 0;
	uint64_t none = 0;

	if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh)
		fresh = UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)(uintptr_t)&seal_number;
	fresh |= 1;
	/* Relaxed: the number is all there is to see. A failure: another thread was quicker, and its number counts. */
	return atomic_compare_exchange_strong_explicit(&seal_number, &none, fresh, memory_order_relaxed, memory_order_relaxed) ? fresh
	                                                                                                                       : none;
}
