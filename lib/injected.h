/* SPDX-License-Identifier: MIT */
/* Injected faults, on the side of a call. See injection.c. Apart from injection.h, whose readers know of no views. */
#ifndef RESC_INJECTED_H
#define RESC_INJECTED_H

#include "view.h"

/* What happens to one call. */
struct injected {
	bool fails;
	uint32_t latency_ms; /* it waits so long first; 0: not at all */
	uint32_t serial;     /* of what was in force */
};
/* For a call that is admitted, where the policy allows it: draws. False: nothing happens to it. In a read-side section. */
bool injection_draw(const struct view *v, uint64_t now_ms, struct injected *injected);
/* Is what was drawn under that serial still in force? Yes where nobody can say. In a read-side section. */
bool injection_goes_on(const struct view *v, uint32_t serial);

#endif
