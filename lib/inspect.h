/* SPDX-License-Identifier: MIT */
/*
 * Reads a segment as people see it: what resctl prints, what rescd exports, from the same structs. Reading moves nothing and waits for
 * nobody. Whatever the bytes, the values are within their ranges and no impossible combination comes out: see each field.
 */
#ifndef RESC_INSPECT_H
#define RESC_INSPECT_H

#include "event.h"
#include "injection.h"
#include "map.h"
#include "once.h"
#include "policy.h"
#include "words.h"

/* The blocks of a policy, as the configuration names them. The mode of "retry" is its own: a budget may be in shadow beside it. */
enum policy_part {
	PART_BREAKER,
	PART_RETRY,
	PART_BUDGET, /* the token bucket, the cap on retries in flight, or both */
	PART_BULKHEAD,
	PART_RATE,
	PART_THROTTLE,
	PART_TIMEOUT,
	PART_ONCE,
	PARTS,
};
enum part_mode { PART_OFF, PART_SHADOW, PART_ENFORCE };

const char *part_name(enum policy_part part);
enum part_mode part_mode_of(const struct policy *policy, enum policy_part part);
const char *part_mode_name(enum part_mode mode); /* "off", "shadow", "enforce" */

struct inspect_override {
	enum override_mode mode; /* OVERRIDE_NONE: none in force (an expired one is none) */
	uint64_t until_ms;       /* segment time; 0: until released */
	uint64_t set_ms;
	uint32_t serial;
	uid_t uid;
	char text[OVERRIDE_TEXT];
};

struct inspect_injection {
	bool on; /* in force, allowed, and not over */
	struct injection what;
	uint64_t until_ms; /* segment time */
	uint64_t set_ms;
	uid_t uid;
	char text[OVERRIDE_TEXT];
};

struct inspect_latency {
	uint64_t count;
	uint64_t sum_us;
	uint64_t buckets[LATENCY_BUCKETS];
};

struct inspect_resource {
	uint32_t index;
	char name[SEGMENT_NAME_SIZE];
	struct policy policy;
	uint64_t now_ms; /* segment time of this reading */

	unsigned breaker; /* TAG_CLOSED, TAG_OPEN or TAG_HALF_OPEN */
	uint16_t generation;
	unsigned reopened;  /* times in a row that it opened again without closing */
	uint64_t since_ms;  /* when it came into this state */
	uint64_t due_ms;    /* open: when a probe is due; else 0 */
	bool probe_due;     /* open and due */
	enum reason reason; /* why it came into this state */
	struct inspect_override override;
	struct inspect_injection injection;

	uint64_t window_calls; /* of the current generation, in the window now; failures and slow are at most this */
	uint64_t window_failures;
	uint64_t window_slow;
	uint32_t consecutive; /* failures in a row now */

	uint32_t probes_out; /* live leases of the current trial; 0 unless half-open; at most policy.probes */
	uint32_t trial_ok;
	uint32_t trial_failed;

	bool limited; /* there is a bulkhead; in shadow mode it only counts */
	bool budgeted;
	bool rated;
	bool throttled;

	uint32_t in_flight; /* permits in use, bulkhead or not */
	uint32_t retries;   /* of in_flight: those that entered as a retry */
	uint32_t waiting;   /* calls that wait for a permit */
	uint32_t limit;     /* target */
	uint32_t effective; /* below the target while holders of a larger one, or of a superseded segment, are still inside */
	uint32_t debt;

	uint32_t throttle_ppm;      /* the share of calls that is refused now; at most 1000000 */
	uint64_t throttle_requests; /* in its window */
	uint64_t throttle_accepts;  /* at most the requests */

	double tokens; /* of the retry budget: 0..capacity, the floor's share of this moment included */
	double capacity;
	double rate_tokens; /* calls of cost 1 that would be admitted at once; 0..policy.rate_burst */

	struct resc_counters counters; /* enters == admitted + refusals, always */
	struct inspect_latency latency;
};

/* 0, or -ENOENT when the record is not in use. */
int inspect_resource(const struct map *map, uint32_t index, struct inspect_resource *out);
void inspect_counters(const struct map *map, const struct state *state, struct resc_counters *out);
/* The counters one by one, enters first: whoever shows them all cannot forget one. i below COUNTERS_SHOWN. */
#define COUNTERS_SHOWN (sizeof(struct resc_counters) / sizeof(uint64_t))
const char *counter_name(unsigned i);
uint64_t counter_value(const struct resc_counters *counters, unsigned i);
/* Effective cooldown of a breaker that opens for the n-th time in a row (n from 0), without jitter. */
uint64_t inspect_cooldown_ms(const struct policy *policy, unsigned reopened);

/* Upper edge, in microseconds, of a latency bucket; and the quantile q (0..1) in microseconds, 0 when nothing was measured. */
uint64_t latency_edge_us(unsigned bucket);
uint64_t latency_quantile_us(const struct inspect_latency *latency, double q);

struct inspect_worker {
	uint32_t slot;
	uint32_t life;
	pid_t pid; /* in the namespace of the worker; 0: not written yet */
	uint64_t start_ticks;
	uint64_t pid_namespace;
	bool same_namespace; /* as this process */
	uint64_t registered_ms;
	char name[16];
	bool alive;       /* its token is held */
	uint32_t version; /* see layout_version_text; 0: older than that word, or not known */
};

/* 0, or -ENOENT for a free slot. */
int inspect_worker(const struct map *map, uint32_t slot, struct inspect_worker *out);

/* Permits in use of a resource by life. lives[] gets each life once; returns how many lives (at most max). */
size_t inspect_holders(const struct map *map, uint32_t index, uint32_t *lives, uint32_t *permits, size_t max);

struct inspect_daemon {
	bool alive; /* holds the daemon lock */
	pid_t pid;
	uint64_t heartbeat_ms; /* segment time */
	uint64_t started_ms;
	uint64_t now_ms;
	uint64_t reloads;
	uint64_t reloads_failed;
	bool reload_failed; /* the last one, and it says why */
	uint64_t reload_ms;
	char reload_text[RELOAD_TEXT_SIZE];
	char control[108];
	uint32_t resources;     /* records that may be in use */
	uint32_t workers;       /* slots taken */
	uint32_t version;       /* of the rescd that runs, or ran last; 0: not known */
	uint32_t workers_older; /* of an older version than that */
	uint64_t lives_reaped;
	uint64_t lookups_refused; /* names that a pattern fits, and for which there was no room */
};

void inspect_daemon(const struct map *map, struct inspect_daemon *out);

/* The table of idempotency keys, that all resources share. working + done + unknown is at most size, expired at most done + unknown. */
void inspect_once(const struct map *map, struct once_usage *out);

#endif
