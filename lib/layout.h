/* SPDX-License-Identifier: MIT */
/*
 * Which word is where in a segment, and since which version: what a process asks before it believes that it shares a segment with others.
 *
 * The table names every word that two processes touch, with the minor in which it appeared. The header of a segment has a hash for each
 * minor up to its own: of name, place and size of all that is not newer. Two versions agree when their hashes of the older one's minor are
 * the same; then each knows where to find what both know, and leaves alone what it does not know.
 *
 * A change: a new word gets a line with the next SEGMENT_MINOR, which is raised once a release. A line that is there never changes; what
 * cannot be done so is a new major. tests/unit/layout.kept has what was released, and a test that compares.
 */
#ifndef RESC_LAYOUT_H
#define RESC_LAYOUT_H

#include <stdbool.h>
#include <stddef.h>

#include "segment.h"

/* X(since, record, field) */
#define SEGMENT_LAYOUT(X)						\
	X(0, segment_dims, resources)					\
	X(0, segment_dims, workers)					\
	X(0, segment_dims, permits)					\
	X(0, segment_dims, shards)					\
	X(0, segment_dims, events)					\
	X(0, segment_dims, calls)					\
	X(0, segment_dims, waiting)					\
	X(0, segment_dims, once)					\
	X(0, segment_sizes, policy)					\
	X(0, segment_sizes, worker)					\
	X(0, segment_sizes, state)					\
	X(0, segment_sizes, shard)					\
	X(0, segment_sizes, event)					\
	X(0, segment_sizes, once_entry)					\
	X(0, segment_header, magic)					\
	X(0, segment_header, major)					\
	X(0, segment_header, minor)					\
	X(0, segment_header, checksum)					\
	X(0, segment_header, ready)					\
	X(0, segment_header, total_size)				\
	X(0, segment_header, generation)				\
	X(0, segment_header, predecessor)				\
	X(0, segment_header, created_ns)				\
	X(0, segment_header, created_real_ns)				\
	X(0, segment_header, time_namespace)				\
	X(0, segment_header, boot_id)					\
	X(0, segment_header, instance)					\
	X(0, segment_header, test_clock)				\
	X(0, segment_header, dims)					\
	X(0, segment_header, sizes)					\
	X(0, segment_header, daemon_offset)				\
	X(0, segment_header, policies_offset)				\
	X(0, segment_header, live_offset)				\
	X(0, segment_header, workers_offset)				\
	X(0, segment_header, states_offset)				\
	X(0, segment_header, events_offset)				\
	X(0, segment_header, once_offset)				\
	X(0, segment_header, layouts)					\
	X(0, segment_daemon, superseded)				\
	X(0, segment_daemon, heartbeat_ms)				\
	X(0, segment_daemon, pid)					\
	X(0, segment_daemon, start_ticks)				\
	X(0, segment_daemon, pid_namespace)				\
	X(0, segment_daemon, started_ms)				\
	X(0, segment_daemon, resources)					\
	X(0, segment_daemon, patterns)					\
	X(0, segment_daemon, shares)					\
	X(1, segment_daemon, version)					\
	X(0, segment_daemon, reloads)					\
	X(0, segment_daemon, reloads_failed)				\
	X(0, segment_daemon, reload_failed)				\
	X(0, segment_daemon, reload_ms)					\
	X(0, segment_daemon, reload_sequence)				\
	X(0, segment_daemon, control)					\
	X(0, segment_daemon, reload_text)				\
	X(0, policy, flags)						\
	X(0, policy, consecutive)					\
	X(0, policy, failure_rate_ppm)					\
	X(0, policy, slow_rate_ppm)					\
	X(0, policy, slow_call_ns)					\
	X(0, policy, window_ms)						\
	X(0, policy, window_calls)					\
	X(0, policy, min_calls)						\
	X(0, policy, cooldown_ms)					\
	X(0, policy, cooldown_factor_ppm)				\
	X(0, policy, cooldown_max_ms)					\
	X(0, policy, jitter_ppm)					\
	X(0, policy, probes)						\
	X(0, policy, successes)						\
	X(0, policy, probe_timeout_ms)					\
	X(0, policy, trial_failure_rate_ppm)				\
	X(0, policy, retry_after_max_ms)				\
	X(0, policy, attempts)						\
	X(0, policy, backoff)						\
	X(0, policy, backoff_jitter)					\
	X(0, policy, base_ns)						\
	X(0, policy, cap_ns)						\
	X(0, policy, retry_on)						\
	X(0, policy, budget_ratio)					\
	X(0, policy, budget_deposit)					\
	X(0, policy, budget_cost)					\
	X(0, policy, budget_timeout_cost)				\
	X(0, policy, budget_ttl_ms)					\
	X(0, policy, budget_threshold_ppm)				\
	X(0, policy, budget_capacity)					\
	X(0, policy, budget_per_second)					\
	X(0, policy, budget_epoch)					\
	X(0, policy, budget_previous)					\
	X(0, policy, retries_floor)					\
	X(0, policy, retries_share_ppm)					\
	X(0, policy, limit)						\
	X(0, policy, limit_share_ppm)					\
	X(0, policy, max_wait_ms)					\
	X(0, policy, max_waiting)					\
	X(0, policy, critical_ppm)					\
	X(0, policy, normal_ppm)					\
	X(0, policy, low_ppm)						\
	X(0, policy, retry_after_ms)					\
	X(0, policy, rate_per_second)					\
	X(0, policy, rate_burst)					\
	X(0, policy, rate_max_wait_ms)					\
	X(0, policy, rate_epoch)					\
	X(0, policy, rate_previous_per_second)				\
	X(0, policy, rate_previous_burst)				\
	X(0, policy, throttle_k_ppm)					\
	X(0, policy, throttle_window_ms)				\
	X(0, policy, once_ttl_ms)					\
	X(0, policy, once_max_wait_ms)					\
	X(0, policy, once_on_death)					\
	X(0, policy, timeout_attempt_ms)				\
	X(0, policy, timeout_connect_ms)				\
	X(0, policy, timeout_total_ms)					\
	X(0, policy, timeout_probe_ms)					\
	X(0, policy_record, sequence)					\
	X(0, policy_record, name_hash)					\
	X(0, policy_record, name)					\
	X(0, request, state)						\
	X(0, request, name)						\
	X(0, segment_live, next_life)					\
	X(0, segment_live, next_event)					\
	X(0, segment_live, lives_reaped)				\
	X(0, segment_live, clock_ns)					\
	X(0, segment_live, expected_workers)				\
	X(0, segment_live, lookups_refused)				\
	X(0, segment_live, once_ready)					\
	X(0, segment_live, once_closed)					\
	X(1, segment_live, events_carried)				\
	X(0, segment_live, requests)					\
	X(0, worker_slot, life)						\
	X(0, worker_slot, identity)					\
	X(0, worker_slot, pid)						\
	X(0, worker_slot, start_ticks)					\
	X(0, worker_slot, pid_namespace)				\
	X(0, worker_slot, registered_ms)				\
	X(0, worker_slot, name)						\
	X(1, worker_slot, version)					\
	X(0, shard, owner)						\
	X(0, shard, window)						\
	X(0, shard, throttle)						\
	X(0, shard, counters)						\
	X(0, shard, latency_sum_us)					\
	X(0, shard, latency)						\
	X(0, override_text, serial)					\
	X(0, override_text, uid)					\
	X(0, override_text, at_ms)					\
	X(0, override_text, text)					\
	X(0, state, breaker)						\
	X(0, state, override)						\
	X(0, state, limit)						\
	X(0, state, bad_tick)						\
	X(0, state, transition)						\
	X(0, state, counted)						\
	X(0, state, streak)						\
	X(0, state, tally)						\
	X(0, state, recorded)						\
	X(0, state, proposals)						\
	X(0, proposal, what)						\
	X(0, proposal, who)						\
	X(0, proposal, numbers)						\
	X(0, proposal, check)						\
	X(0, state, swept_ms)						\
	X(0, state, tokens)						\
	X(0, state, refilled_ms)					\
	X(0, state, earned)						\
	X(0, state, rate)						\
	X(0, state, throttle)						\
	X(0, state, throttle_since)					\
	X(0, state, wait)						\
	X(0, state, calls)						\
	X(0, state, override_text)					\
	X(0, state, probes)						\
	X(2, state, drawn)						\
	X(2, state, passed)						\
	X(2, state, front)						\
	X(2, state, injection)						\
	X(2, state, injected)						\
	X(2, state, injection_setting)					\
	X(2, state, injection_text)					\
	X(0, once_entry, hash)						\
	X(0, once_entry, expires_ms)					\
	X(0, once_entry, on_death)					\
	X(0, once_entry, waiters)					\
	X(0, once_entry, key_size)					\
	X(0, once_entry, answer_size)					\
	X(0, once_entry, origin)					\
	X(0, once_entry, resource)					\
	X(0, once_entry, key)						\
	X(0, once_entry, answer)					\
	X(0, event_record, stamp)					\
	X(0, event_record, ms)						\
	X(0, event_record, kind)					\
	X(0, event_record, pid)						\
	X(0, event_record, value)					\
	X(0, event_record, resource)					\
	X(0, event_record, text)

/* Numbers that are part of the layout as well: X(since, constant). */
#define SEGMENT_CONSTANTS(X)                                            \
	X(0, SEGMENT_PAGE)                                              \
	X(0, SEGMENT_LINE)                                              \
	X(0, COUNTERS_REFUSED)                                          \
	X(0, COUNTERS_FALLBACK)                                         \
	X(0, WINDOW_BUCKETS)                                            \
	X(0, ONCE_SET)

struct layout_entry {
	unsigned since;
	const char *record; /* "": a constant, which is the offset */
	const char *field;
	size_t offset;
	size_t size;
};
/* The table, in this order; entry `i`, or NULL at its end. */
const struct layout_entry *layout_entry(size_t i);

/* What both know of a segment of that minor. */
static inline unsigned layout_common(unsigned minor)
{
	const unsigned ours = SEGMENT_MINOR;

	return minor < ours ? minor : ours;
}

/* The hash of what the table has up to that minor. */
uint64_t layout_hash(unsigned minor);
/* How far apart the records of this version are. */
void layout_sizes(struct segment_sizes *sizes);
/* Does a segment of that minor with these sizes have room for what it says it has? */
bool layout_sizes_are_sound(const struct segment_sizes *sizes, unsigned minor);

/*
 * The version of a program, in words of the segment: its library's, then the minor of its layout, so that the larger is the newer. 0: a
 * program of before there was such a word.
 */
#define LAYOUT_VERSION                                                                                                 \
	((uint32_t)RESC_VERSION_MAJOR << 24 | (uint32_t)RESC_VERSION_MINOR << 16 | (uint32_t)RESC_VERSION_PATCH << 8 |  \
	 (uint32_t)SEGMENT_MINOR)

struct layout_version_text {
	char library[16]; /* "0.1.0" */
	char format[16];  /* "1.2" */
};
/* Both "" for 0. */
struct layout_version_text layout_version_text(uint32_t version);

#endif
