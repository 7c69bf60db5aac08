/* SPDX-License-Identifier: MIT */
/* The script of a fault, as questions that everybody asks who plays it, draws it or counts by it. */
#include "scenario.h"
#include "scenario_key.h"

const char *fault_name(enum fault_kind kind)
{
	return scenario_rows[SK_KIND].words[kind];
}

const char *view_name(enum view view)
{
	return scenario_rows[SK_VIEWS].words[view];
}

bool fault_is_on(const struct fault *fault, int64_t at_ns)
{
	if (fault->from_request > 0 || at_ns < fault->from_ns || at_ns >= fault->to_ns)
		return false;
	return fault->down_ns == 0 || (at_ns - fault->from_ns) % (fault->down_ns + fault->up_ns) < fault->down_ns;
}

bool scenario_fault_time(const struct scenario *scenario, int64_t *from_ns, int64_t *to_ns)
{
	bool found = false;

	for (size_t i = 0; i < scenario->dependency_count; i++) {
		for (size_t j = 0; j < scenario->dependencies[i].fault_count; j++) {
			const struct fault *fault = &scenario->dependencies[i].faults[j];
			int64_t to = fault->to_ns < scenario->duration_ns ? fault->to_ns : scenario->duration_ns;

			if (fault->from_request > 0)
				continue;
			*from_ns = found && *from_ns < fault->from_ns ? *from_ns : fault->from_ns;
			*to_ns = found && *to_ns > to ? *to_ns : to;
			found = true;
		}
	}
	return found;
}
