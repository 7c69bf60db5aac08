/* SPDX-License-Identifier: MIT */
/*
 * The map of the house: what lies where in the shared segment, who writes it, and what a death leaves behind.
 *
 *	offset 0   header      1 page    written once, before the segment has a name; read-only for everybody afterwards
 *	           daemon      1 page    written by rescd; read-only in workers: superseded, heartbeat, reload result
 *	           policies              written by rescd; read-only in workers: a name and two policy copies a resource
 *	           live        1 page    next life, event cursor (and the test clock)
 *	           workers               a slot a worker
 *	           states                what admission changes, a record a resource
 *	           events                a ring
 *	           once                  idempotency keys: a slot word each, then the entries
 *
 * Each region starts on a page. Nothing in the segment is a pointer. Words that different processes write stand on lines of
 * their own (128 bytes: two cache lines, because the prefetcher fetches pairs). Every word that can change after creation is
 * atomic and naturally aligned. Sizes that differ between segments (how many resources, workers, permit cells, ...) are in
 * the header; a reader copies them into its own memory (struct map), checks them there, and believes nothing later.
 *
 * Versions. Whatever has the same major shares a segment; a minor adds and never changes. What is new in a minor is a word in room that was
 * zero (zero means: not there), or is at the end of a record, because how far it is from one record to the next is in the header (struct
 * segment_sizes), or is a region at the end. Where each word is, and since which minor, is in the table of layout.h; who uses a word that
 * is not as old as the major asks map_has() first. Counters, reasons, kinds of events and the like have numbers that are never given
 * twice: new ones come last. rescd replaces a segment of another minor by one of its own; workers of all minors follow.
 *
 * Of every version, of any major: magic, major and minor at their places, the lock bytes, and that the name leads to the segment.
 *
 * The file is /dev/shm/resc.NAME. It gets that name, by link(2) or rename(2), when it is complete: nobody ever sees half of one.
 *
 * Byte-range locks (open file description locks) on the file, beyond its end:
 *	LOCK_DAEMON        held by the rescd that owns the segment
 *	LOCK_LIFE + life   held by the worker of that life: its liveness token. The kernel drops it when the process dies.
 */
#ifndef RESC_SEGMENT_H
#define RESC_SEGMENT_H

#include <stdatomic.h>
#include <stdint.h>

#include "counters.h"
#include "resc.h"

#define SEGMENT_MAGIC 0x31676573637365ffull /* bytes ff "escseg1": not text */
#define SEGMENT_MAJOR 1
#define SEGMENT_MINOR 2
#define SEGMENT_MINORS 32u /* so many that a header has hashes for */
#define SEGMENT_PAGE 4096u
#define SEGMENT_LINE 128u
#define SEGMENT_NAME_SIZE 64u /* RESC_NAME_MAX and the NUL */
#define SEGMENT_DIR "/dev/shm/"
#define SEGMENT_PREFIX "resc."

#define LOCK_DAEMON (INT64_C(1) << 40)
#define LOCK_LIFE (INT64_C(1) << 41)

typedef _Atomic uint64_t word; /* a shared word */

/* ---- limits of the dimensions ---- */
#define RESOURCES_LIMIT 16384u
#define WORKERS_LIMIT 16384u
#define PERMITS_LIMIT 32768u
#define SHARDS_LIMIT 64u
#define EVENTS_LIMIT 65536u
#define CALLS_LIMIT 16384u   /* calls in a window by number */
#define WAITING_LIMIT 16384u /* calls that wait for a permit of one resource */
#define ONCE_LIMIT 1048576u  /* idempotency keys */

/* ---- header: page 0 ---- */

struct segment_dims {
	uint32_t resources; /* records in policies and in states */
	uint32_t workers;   /* slots; a power of two */
	uint32_t permits;   /* permit cells a resource; a power of two, at least 64 */
	uint32_t shards;    /* counter shards a resource; a power of two, at least 4; the last quarter is everybody's */
	uint32_t events;    /* places in the ring; a power of two */
	uint32_t calls;     /* places for a window by number of calls, a resource; a power of two, at least 64 */
	uint32_t waiting;   /* cells for calls that wait for a permit, a resource; a power of two, at least 16 */
	uint32_t once;      /* idempotency keys; a power of two, at least 16 (ONCE_SET) */
};

/* Bytes from one record to the next. */
struct segment_sizes {
	uint32_t policy;     /* one copy of a policy; a record is its head and two of them */
	uint32_t worker;
	uint32_t state;      /* the part that is the same in every segment; cells and shards follow it */
	uint32_t shard;
	uint32_t event;
	uint32_t once_entry;
};

struct segment_header {
	uint64_t magic;
	uint16_t major;
	uint16_t minor;
	uint32_t reserved;
	uint64_t checksum;        /* FNV-1a 64 of the whole page with this field and ready 0 */
	word ready;               /* SEGMENT_MAGIC when complete; stored last (release) */
	uint64_t total_size;      /* of the file */
	uint64_t generation;      /* random, not 0: which segment this is */
	uint64_t predecessor;     /* generation of the segment that this one supersedes, or 0 */
	uint64_t created_ns;      /* CLOCK_MONOTONIC at creation; the zero of all times in the segment */
	uint64_t created_real_ns; /* wall clock at creation, for printing only */
	uint64_t time_namespace;  /* inode of /proc/self/ns/time */
	uint8_t boot_id[16];
	char instance[SEGMENT_NAME_SIZE];
	uint64_t test_clock; /* 1: made by a build with the test clock */
	struct segment_dims dims;
	struct segment_sizes sizes;
	uint64_t daemon_offset;
	uint64_t policies_offset;
	uint64_t live_offset;
	uint64_t workers_offset;
	uint64_t states_offset;
	uint64_t events_offset;
	uint64_t once_offset;
	uint64_t layouts[SEGMENT_MINORS]; /* [i]: hash of what the layout table has up to minor i; 0 beyond the segment's own */
};

/* ---- daemon: written by rescd only ---- */

#define RELOAD_TEXT_SIZE 1024u

struct segment_daemon {
	/* Read on each call by every worker; written once in the life of a segment. */
	_Alignas(SEGMENT_LINE) word superseded; /* generation of the successor, or 0 */

	_Alignas(SEGMENT_LINE) word heartbeat_ms; /* segment time of the last turn of rescd's loop */
	word pid;
	word start_ticks; /* field 22 of /proc/PID/stat */
	word pid_namespace;
	word started_ms;
	word resources; /* records in use: indices below this may be configured */
	word patterns;  /* names that the configuration has patterns for may be asked for: see request.h; 0: there are none */
	word shares;    /* records at and beyond this index have no limit that is a share of the workers: see share.h */
	word version;   /* since 1: of rescd, see layout_version */

	_Alignas(SEGMENT_LINE) word reloads;      /* successful ones, the first load included */
	word reloads_failed;                      /* since the segment was made */
	word reload_failed;                       /* 1: the last one failed, and reload_text says why */
	word reload_ms;                           /* when the last one was tried */
	word reload_sequence;                     /* odd while reload_text is written; readers copy and look again */
	_Atomic char control[108];                /* path of the control socket, or "" */
	_Atomic char reload_text[RELOAD_TEXT_SIZE];
};

/* ---- policies: written by rescd only ---- */

/* struct policy flags */
#define POLICY_CONFIGURED 1u     /* the configuration has this resource */
#define POLICY_LATENCY 2u        /* measure: two reads of the fine clock a call */
#define POLICY_BREAKER 4u
#define POLICY_BUDGET 8u         /* a token bucket for retries */
#define POLICY_BULKHEAD 16u
#define POLICY_RETRY 32u
#define POLICY_RATE 64u
#define POLICY_THROTTLE 128u
#define POLICY_ONCE 256u
#define POLICY_RETRY_CAP 512u    /* a cap on retries in flight */
#define POLICY_TIMEOUT 1024u
#define POLICY_MADE 2048u        /* made at run time from a pattern; may be retired when idle */
#define POLICY_INJECTION 4096u   /* an operator may have calls fail: see injection.h */
/* The block decides and counts, and refuses nothing. */
#define POLICY_SHADOW_BREAKER (UINT64_C(1) << 32)
#define POLICY_SHADOW_BUDGET (UINT64_C(1) << 33)
#define POLICY_SHADOW_BULKHEAD (UINT64_C(1) << 34)
#define POLICY_SHADOW_RATE (UINT64_C(1) << 35)
#define POLICY_SHADOW_THROTTLE (UINT64_C(1) << 36)
#define POLICY_SHADOW_TIMEOUT (UINT64_C(1) << 37)
#define POLICY_SHADOW_ONCE (UINT64_C(1) << 38)

enum backoff { BACKOFF_NONE, BACKOFF_FIXED, BACKOFF_EXPONENTIAL };
enum deposit { DEPOSIT_SUCCESS, DEPOSIT_REQUEST };
enum on_death { ON_DEATH_UNKNOWN, ON_DEATH_FREE };
enum jitter { JITTER_NONE, JITTER_FULL, JITTER_EQUAL, JITTER_DECORRELATED, JITTER_PROPORTIONAL };

/* Rates are parts per million; tokens are millionths of a token. 0 in a limit means: not used. All fields are 64 bits, so that a
 * copy is a plain run of atomic words. policy_clamp() makes any bytes safe to use. */
struct policy {
	uint64_t flags;
	/* breaker */
	uint64_t consecutive;      /* failures in a row; 0: off */
	uint64_t failure_rate_ppm; /* 1..1000000; 0: off */
	uint64_t slow_rate_ppm;    /* 1..1000000; 0: off */
	uint64_t slow_call_ns;     /* slow is strictly longer */
	uint64_t window_ms;        /* 100..86400000; not used where window_calls is */
	uint64_t window_calls;     /* the window is the last so many calls, at most dims.calls; 0: a window of time */
	uint64_t min_calls;
	uint64_t cooldown_ms; /* at least 1 */
	uint64_t cooldown_factor_ppm; /* 1000000 = does not grow */
	uint64_t cooldown_max_ms;
	uint64_t jitter_ppm;
	uint64_t probes;    /* 1..PROBES_LIMIT, at most this many out at once */
	uint64_t successes; /* that close it */
	uint64_t probe_timeout_ms;
	uint64_t trial_failure_rate_ppm; /* the verdict falls when `probes` results are in; 0: one failure opens, `successes` close */
	uint64_t retry_after_max_ms;     /* how long a dependency's own word may keep it open; 0: not asked */
	/* retry */
	uint64_t attempts; /* the first one included; 1: no retries */
	uint64_t backoff;
	uint64_t backoff_jitter;
	uint64_t base_ns;
	uint64_t cap_ns;
	uint64_t retry_on;          /* bits: 1 << outcome */
	uint64_t budget_ratio;      /* deposited a success, or a request */
	uint64_t budget_deposit;    /* enum deposit */
	uint64_t budget_cost;       /* of a retry */
	uint64_t budget_timeout_cost; /* of a retry after a time-out */
	uint64_t budget_ttl_ms;     /* what was deposited is worth nothing after this; 0: never */
	uint64_t budget_threshold_ppm; /* of the capacity: retries stop when no more than this is left; 0: when it is empty */
	uint64_t budget_capacity;
	uint64_t budget_per_second; /* the floor */
	uint64_t budget_epoch;      /* low 8 bits; moves when the capacity or the ttl changes */
	uint64_t budget_previous;   /* the capacity of the epoch before */
	uint64_t retries_floor;     /* POLICY_RETRY_CAP: retries in flight are at most the larger of this */
	uint64_t retries_share_ppm; /* and this share of the calls in flight */
	/* bulkhead */
	uint64_t limit; /* 1..dims.permits; only with POLICY_BULKHEAD */
	uint64_t limit_share_ppm; /* instead of limit: of the live workers, rounded up; 0: limit counts */
	uint64_t max_wait_ms;     /* 0: a full bulkhead refuses at once */
	uint64_t max_waiting;     /* 1..dims.waiting */
	uint64_t critical_ppm;    /* the share of the limit (and of the queue) up to which calls of that priority are admitted */
	uint64_t normal_ppm;
	uint64_t low_ppm;
	uint64_t retry_after_ms;  /* what a refusal by this guard says; 0: nothing */
	/* rate limit */
	uint64_t rate_per_second; /* millionths of a token; at least 1 */
	uint64_t rate_burst;      /* whole tokens, at least 1 */
	uint64_t rate_max_wait_ms;
	uint64_t rate_epoch;      /* low 2 bits; moves when rate_per_second or rate_burst changes */
	uint64_t rate_previous_per_second;
	uint64_t rate_previous_burst;
	/* client-side throttle */
	uint64_t throttle_k_ppm;  /* at least 1000000 */
	uint64_t throttle_window_ms;
	/* idempotency */
	uint64_t once_ttl_ms;
	uint64_t once_max_wait_ms;
	uint64_t once_on_death;   /* enum on_death */
	/* timeout */
	uint64_t timeout_attempt_ms; /* 0: none */
	uint64_t timeout_connect_ms;
	uint64_t timeout_total_ms;
	uint64_t timeout_probe_ms;
	uint64_t reserved[6];
};

struct policy_record {
	_Alignas(SEGMENT_LINE) word sequence; /* copy (sequence & 1) is valid */
	word name_hash;                       /* FNV-1a 64 of the name; 0: no resource here. Stored after the name (release) */
	_Atomic char name[SEGMENT_NAME_SIZE];
	_Alignas(SEGMENT_LINE) word copies[]; /* two, sizes.policy bytes each */
};

/* ---- live ---- */

/*
 * A worker that looks up a name which no record has asks rescd for one: see request.h. The states are in request.h; a death leaves
 * {state, life}, which the reaper clears.
 */
#define REQUESTS 32u
struct request {
	word state; /* {life:32, answer:24, phase:8}, or 0 */
	_Atomic char name[SEGMENT_NAME_SIZE];
};

struct segment_live {
	_Alignas(SEGMENT_LINE) word next_life; /* fetch_add by whoever registers; lives start at 1 and fit in 32 bits */
	_Alignas(SEGMENT_LINE) word next_event;
	_Alignas(SEGMENT_LINE) word lives_reaped; /* workers that died without leaving, since the segment was made */
	_Alignas(SEGMENT_LINE) word clock_ns; /* test clock; unused in release builds */
	_Alignas(SEGMENT_LINE) word expected_workers; /* {workers:24, until_ms:40}: on their way from a superseded segment: see share.h */
	word lookups_refused;                         /* names that were asked for and for which there was no room */
	word once_ready; /* of a successor: 1 when the keys of the superseded segment are here: see once.h */
	word once_closed; /* of a superseded segment: 1 when no key can begin here any more */
	word events_carried; /* of a superseded segment: events below this number are in its successor's ring */
	_Alignas(SEGMENT_LINE) struct request requests[REQUESTS];
};

/* ---- worker slots ---- */

struct worker_slot {
	/* 0 FREE, or the life (32 bits). Register: CAS 0 -> life, after its byte is locked. Leave: CAS life -> 0, then unlock. Reap: any
	 * number of processes, after every cell of that life: CAS life -> 0. */
	_Alignas(SEGMENT_LINE) word life;
	/* For people and pidfds; written by the owner right after the CAS. Valid while identity == life. */
	word identity;
	word pid;
	word start_ticks;
	word pid_namespace;
	word registered_ms;
	_Atomic char name[16]; /* /proc/self/comm */
	word version;          /* since 1: {life:32, version:32}, valid while its life is the slot's: see layout_version */
};

/* ---- resource states ---- */

#define PROBES_LIMIT 64u
#define WINDOW_BUCKETS 10u /* that make up a window */
#define WINDOW_RING 16u    /* places; more than WINDOW_BUCKETS so that a slow clock never hits a live bucket */
#define LATENCY_BUCKETS 208u
#define OVERRIDE_TEXT 128u

/* What a word of a resource is, where a segment can be superseded. The breaker keeps this in its state bits: see words.h. */
enum word_kind { WORD_EMPTY = 0, WORD_PREPARED = 1, WORD_LIVE = 2, WORD_MOVED = 3 };

/* How a call is counted in a window: exactly one category a call. */
enum window_category { WINDOW_OK, WINDOW_OK_SLOW, WINDOW_FAIL, WINDOW_FAIL_SLOW, WINDOW_CATEGORIES };

/*
 * Indices into shard.counters. Each table of counters.h has a range, with room: workers and rescd of different minors count in one segment,
 * so a number never gets another meaning. Whoever carries or adds up counters for others does it with all of them, known or not.
 */
#define COUNTERS_REFUSED 72
#define COUNTERS_FALLBACK 94
#define COUNTERS 110
enum counter {
#define X(name, text) COUNTER_##name,
	RESC_COUNTERS(X)
#undef X
	COUNTERS_GENERAL_END,
	COUNTERS_REFUSED_BEFORE = COUNTERS_REFUSED - 1,
#define X(NAME, name, text) COUNTER_refused_##name,
	RESC_REFUSALS(X)
#undef X
	COUNTERS_REFUSED_END,
	COUNTERS_FALLBACK_BEFORE = COUNTERS_FALLBACK - 1,
#define X(name, text) COUNTER_fallback_##name,
	RESC_FALLBACKS(X)
#undef X
	COUNTERS_FALLBACK_END,
};
_Static_assert(COUNTERS_GENERAL_END <= COUNTERS_REFUSED && COUNTERS_REFUSED_END <= COUNTERS_FALLBACK && COUNTERS_FALLBACK_END <= COUNTERS,
               "the counters fit their ranges; more room: at the end of struct shard, in a new minor");

/*
 * A share of a resource's windows, counters and latencies. owner: 0 nobody; a life: that worker's alone, and only its claiming
 * thread adds to it, with plain loads and stores; SHARD_COMMON: everybody's, with atomic adds. A reader sums all shards.
 * A death leaves an owner; the reaper sets it to 0, and the next worker goes on counting where the dead one stopped.
 */
#define SHARD_COMMON UINT64_MAX
struct shard {
	_Alignas(SEGMENT_LINE) word owner;
	word window[WINDOW_RING][WINDOW_CATEGORIES]; /* {tick:28, generation:12, count:24}: see window_tag */
	word throttle[WINDOW_RING][2];               /* {began_ms:40, count:24}: requests, accepted; see throttle.c */
	word counters[COUNTERS];
	word latency_sum_us;
	word latency[LATENCY_BUCKETS];
};

struct override_text {
	word serial; /* the override whose text this is, or NOTE_WRITING */
	word uid;
	word at_ms;
	_Atomic char text[OVERRIDE_TEXT];
};

/*
 * What the record of a transition will say, written before its CAS: so whoever completes the record of a dead author knows it. Plain
 * words of no claim; a reader believes them when the check fits the breaker word that was installed. See transition.c.
 */
#define PROPOSALS 3u
struct proposal {
	word what;    /* {generation:16, reason:8, ms:40} */
	word who;     /* {uid:32, pid:32} */
	word numbers; /* {value[0]:32, value[1]:32} */
	word check;   /* over all of them and the breaker word that they are about */
};

struct state {
	/* Read by every call, written by transitions. */
	_Alignas(SEGMENT_LINE) word breaker;
	word override;    /* {kind:2, mode:2, serial:20, until_ms:40}: see words.h, as for all of these */
	word limit;       /* {target:16, effective:16, debt:16, version:16} changed only by CAS of the whole word */
	word bad_tick;    /* {generation:16, tick:48}: the last bucket with a failed or slow call; successes look for a verdict only then */
	word transition;  /* {generation:16, reason:8, ms:40}: the last transition, by who won it, after the CAS */
	word counted[3];  /* {generation:16, count:48}: closed, opened, half-opened, and the last transition that was counted there */
	word injection;   /* since 2: {kind:2, on:2, serial:20, until_ms:40}: see injection.h, also for injected and its text */

	/* Written by failures and probes. */
	_Alignas(SEGMENT_LINE) word streak; /* {generation:16, kind:2, 0:14, failures:32} */
	word tally;                         /* {generation:16, ok:16, fail:16, slow:16} of the trial of that generation */
	word recorded;                      /* {state:3, generation:16}: the last transition whose record is complete; see transition.c */
	word swept_ms;                      /* real coarse clock when somebody last looked for the dead among the holders */
	struct proposal proposals[PROPOSALS];

	/* Written by deposits and withdrawals. */
	_Alignas(SEGMENT_LINE) word tokens; /* {kind:2, epoch:8, tokens:54} in millionths */
	word refilled_ms;                   /* {rest:24, ms:40}: until when the floor has been paid in; see budget.c */
	_Alignas(SEGMENT_LINE) word earned[WINDOW_RING]; /* {epoch:2, tick:22, amount:40}: deposits that have not expired; see earned.c */

	/* Each written by calls where its policy is on. */
	_Alignas(SEGMENT_LINE) word rate;     /* {kind:2, epoch:2, time:60}: see rate.h */
	_Alignas(SEGMENT_LINE) word throttle; /* {ms:40, every:4, ppm:20}: the share that is refused, as it was last worked out; see throttle.c */
	word throttle_since;                  /* ms: buckets that began before do not count */
	_Alignas(SEGMENT_LINE) word wait;     /* {0:32, generation:31, waiters:1}: see waiting.h; the low half is a futex */
	word drawn;                           /* since 2: places in line that were given out; only grows */
	word passed;                          /* since 2: up to this place nobody is waited for */
	word front;                           /* since 2: {place:30, ms:34}: the first in line, and since when it has been seen beside a free permit */
	_Alignas(SEGMENT_LINE) word calls;    /* calls that were counted in a window by number of calls; see window.h */

	_Alignas(SEGMENT_LINE) struct override_text override_text[2]; /* by serial & 1 */

	/* {life:32, generation:8, granted_ms:24}, or 0 */
	_Alignas(SEGMENT_LINE) word probes[PROBES_LIMIT];

	/* Since 2. Written where faults are injected, and only then. */
	_Alignas(SEGMENT_LINE) word injected;     /* calls that came to an injection; only grows */
	_Alignas(SEGMENT_LINE) word injection_setting[2]; /* {serial:4, fail_ppm:20, share_ppm:20, latency_ms:20}, by serial & 1 */
	struct override_text injection_text[2];   /* by serial & 1 */

	/*
	 * then, by sizes and dims:
	 *	word permits[dims.permits]	{life:32, retry:1, call:31}, or 0
	 *	word waiting[dims.waiting]	{life:32, rank:2, place:30}, or 0: calls that wait for a permit; before 2 {life:32, call:32}
	 *	word calls[dims.calls]		{generation:16, category:3, number:45}: the ring of a window by number of calls
	 *	struct shard shards[dims.shards]
	 *	struct shard carried		what was carried over from a superseded segment: only grows; summed with the shards
	 */
};

/* ---- idempotency keys: word slots[dims.once], then struct once_entry entries[dims.once] ---- */

#define ONCE_SET 16u /* a key can be in the slots of one set only */

/* Written by the owner of the slot alone (see once.c), all in words; text and bytes are filled up with zeros. */
struct once_entry {
	_Alignas(SEGMENT_LINE) word hash; /* of resource and key, all 64 bits */
	word expires_ms;
	word on_death;                    /* enum on_death */
	word waiters;                     /* 1: somebody sleeps on this slot; written by them */
	word key_size;
	word answer_size;
	word origin;                      /* AWAY: the slot word in the superseded segment */
	word resource[SEGMENT_NAME_SIZE / 8];
	word key[256 / 8];
	word answer[RESC_ONCE_ANSWER_MAX / 8];
};

/* ---- event ring ---- */

#define EVENT_TEXT 128u
#define EVENT_BUSY (UINT64_C(1) << 63)

struct event_record {
	/* 0 never used; EVENT_BUSY | life: being written by that life (rescd and resctl take one for each event); else number + 1 */
	_Alignas(SEGMENT_LINE) word stamp;
	word ms;
	word kind;       /* enum event_kind | from << 8 | to << 16 | reason << 24 | generation << 32 */
	word pid;        /* pid | uid << 32 */
	word value[2];   /* what decided it: see event.h */
	_Atomic char resource[SEGMENT_NAME_SIZE];
	_Atomic char text[EVENT_TEXT];
};

/* ---- layout checks ---- */

_Static_assert(sizeof(struct segment_header) <= SEGMENT_PAGE, "header fits its page");
_Static_assert(sizeof(struct segment_daemon) <= SEGMENT_PAGE, "daemon fits its page");
_Static_assert(sizeof(struct segment_live) <= SEGMENT_PAGE, "live fits its page");
_Static_assert(sizeof(struct policy) % 64 == 0, "records of policies start on lines");
_Static_assert(sizeof(word) == 8 && ATOMIC_LLONG_LOCK_FREE == 2, "lock-free 64-bit words");

enum event_kind {
#define X(NAME, name) EVENT_##NAME,
	RESC_EVENTS(X)
#undef X
	EVENT_KINDS
};

enum reason {
#define X(NAME, name, text) REASON_##NAME,
	RESC_REASONS(X)
#undef X
	REASONS
};

#endif
