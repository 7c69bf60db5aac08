/* SPDX-License-Identifier: MIT */
/*
 * Every invariant of a live segment, looked at from outside. See doctor.c for how a suspicion becomes a finding, and doctor_*.c for the
 * checks, by what they look at.
 */
#ifndef RESCTL_DOCTOR_H
#define RESCTL_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

#include "inspect.h"
#include "map.h"

/*
 * X(NAME, id, wait). wait: how long it must stand. SOON: no step of a protocol leaves it for longer than an instant. TURN: somebody is in
 * charge (rescd on its turn of each second), and must have had the time.
 */
#define DOCTOR_CHECKS(X)                                                                                                                   \
	X(SEGMENT_SIZE, "segment.size", SOON)                                                                                              \
	X(SEGMENT_NAME, "segment.name", TURN)                                                                                              \
	X(SEGMENT_LINKS, "segment.links", TURN)                                                                                            \
	X(SEGMENT_ACCESS, "segment.access", TURN)                                                                                          \
	X(SEGMENT_LEFTOVER, "segment.leftover", TURN)                                                                                      \
	X(DAEMON_ABSENT, "daemon.absent", TURN)                                                                                            \
	X(DAEMON_SILENT, "daemon.silent", TURN)                                                                                            \
	X(DAEMON_IDENTITY, "daemon.identity", TURN)                                                                                        \
	X(DAEMON_WORDS, "daemon.words", SOON)                                                                                              \
	X(DAEMON_RECORDS, "daemon.records", TURN)                                                                                          \
	X(LIVE_NEXT_LIFE, "live.next_life", SOON)                                                                                          \
	X(LIVE_EXPECTED, "live.expected_workers", SOON)                                                                                    \
	X(LIVE_REQUEST, "live.request", TURN)                                                                                              \
	X(EVENTS_CURSOR, "events.cursor", SOON)                                                                                            \
	X(EVENTS_STAMP, "events.stamp", SOON)                                                                                              \
	X(EVENTS_WRITER, "events.writer", TURN)                                                                                            \
	X(WORKERS_WORD, "workers.word", SOON)                                                                                              \
	X(WORKERS_DEAD, "workers.dead", TURN)                                                                                              \
	X(WORKERS_TWICE, "workers.twice", SOON)                                                                                            \
	X(WORKERS_TOKEN, "workers.token", TURN)                                                                                            \
	X(WORKERS_IDENTITY, "workers.identity", SOON)                                                                                      \
	X(POLICY_NAME, "policy.name", SOON)                                                                                                \
	X(POLICY_HASH, "policy.hash", SOON)                                                                                                \
	X(POLICY_TWICE, "policy.twice", SOON)                                                                                              \
	X(POLICY_VALUES, "policy.values", SOON)                                                                                            \
	X(POLICY_CONFIGURED, "policy.configured", SOON)                                                                                    \
	X(BREAKER_STATE, "breaker.state", SOON)                                                                                            \
	X(BREAKER_DUE, "breaker.due", SOON)                                                                                                \
	X(BREAKER_VERDICT, "breaker.verdict", TURN)                                                                                        \
	X(BREAKER_TALLY, "breaker.tally", SOON)                                                                                            \
	X(BREAKER_STREAK, "breaker.streak", SOON)                                                                                          \
	X(BREAKER_REASON, "breaker.reason", SOON)                                                                                          \
	X(BREAKER_EVENT, "breaker.event", SOON)                                                                                            \
	X(BREAKER_UNTOLD, "breaker.untold", TURN)                                                                                          \
	X(OVERRIDE_WORD, "override.word", SOON)                                                                                            \
	X(OVERRIDE_OVER, "override.over", TURN)                                                                                            \
	X(OVERRIDE_TEXT, "override.text", TURN)                                                                                            \
	X(INJECTION_WORD, "injection.word", SOON)                                                                                          \
	X(INJECTION_OVER, "injection.over", TURN)                                                                                          \
	X(INJECTION_FORBIDDEN, "injection.forbidden", TURN)                                                                                \
	X(INJECTION_SETTING, "injection.setting", SOON)                                                                                    \
	X(INJECTION_TEXT, "injection.text", TURN)                                                                                          \
	X(LIMIT_WORD, "limit.word", SOON)                                                                                                  \
	X(LIMIT_DEBT, "limit.debt", SOON)                                                                                                  \
	X(LIMIT_TARGET, "limit.target", TURN)                                                                                              \
	X(LIMIT_SETTLE, "limit.settle", TURN)                                                                                              \
	X(PERMITS_HOLDER, "permits.holder", TURN)                                                                                          \
	X(WAITING_HOLDER, "waiting.holder", TURN)                                                                                          \
	X(WAITING_WORD, "waiting.word", SOON)                                                                                              \
	X(PROBES_OWNER, "probes.owner", TURN)                                                                                              \
	X(PROBES_GHOST, "probes.ghost", SOON)                                                                                              \
	X(PROBES_OVERDUE, "probes.overdue", TURN)                                                                                          \
	X(BUDGET_WORD, "budget.word", SOON)                                                                                                \
	X(BUDGET_PAID, "budget.paid", SOON)                                                                                                \
	X(RATE_WORD, "rate.word", SOON)                                                                                                    \
	X(RATE_TIME, "rate.time", SOON)                                                                                                    \
	X(THROTTLE_SHARE, "throttle.share", SOON)                                                                                          \
	X(THROTTLE_SINCE, "throttle.since", SOON)                                                                                          \
	X(SHARDS_OWNER, "shards.owner", TURN)                                                                                              \
	X(SHARDS_COMMON, "shards.common", SOON)                                                                                            \
	X(COUNTERS_ENDED, "counters.ended", TURN)                                                                                          \
	X(WINDOW_FUTURE, "window.future", SOON)                                                                                            \
	X(WINDOW_CALLS, "window.calls", SOON)                                                                                              \
	X(WINDOW_THROTTLE, "window.throttle", SOON)                                                                                        \
	X(ONCE_OWNER, "once.owner", TURN)                                                                                                  \
	X(ONCE_AWAY, "once.away", SOON)                                                                                                    \
	X(ONCE_ENTRY, "once.entry", SOON)                                                                                                  \
	X(ONCE_EXPIRES, "once.expires", SOON)                                                                                              \
	X(ONCE_TWICE, "once.twice", SOON)                                                                                                  \
	X(ONCE_CLOSED, "once.closed", SOON)

enum doctor_check {
#define X(NAME, id, wait) CHECK_##NAME,
	DOCTOR_CHECKS(X)
#undef X
	        CHECKS
};

/* In finding.resource: of the instance as a whole. */
#define DOCTOR_INSTANCE UINT32_MAX
/* In finding.place: there is one only. */
#define DOCTOR_ONE UINT32_MAX

struct doctor;

/* What stands in the way of a promise. The same check, resource, place and words on every look: it stands. */
struct finding {
	enum doctor_check check;
	uint32_t resource;
	uint32_t place; /* number of the cell, slot, ... */
	uint64_t seen;  /* the word that is wrong: a repair is a CAS of it */
	uint64_t more;  /* what else must stay as it is */
	/* Repairs through a function of the protocol that the word belongs to. NULL: the remedy is for a person. */
	void (*repair)(const struct doctor *doctor, const struct finding *finding);
	const char *remedy; /* "give the permit back"; without a repair: "start rescd" */
	unsigned look;      /* the last one that found it */
	bool repaired;
	char name[SEGMENT_NAME_SIZE]; /* of the resource */
	char where[32];               /* "permit 3" */
	char text[256];
};

/* A worker slot that is taken. */
struct doctor_worker {
	uint32_t life;
	uint32_t slot;
	bool held; /* its token */
};

#define DOCTOR_FINDINGS 1024u

struct doctor {
	const char *instance;
	const struct map *map;
	uint64_t turn_ms; /* how long it stands what rescd would repair on its turns */

	struct finding *findings;
	size_t count;
	bool overflow; /* there was more than fits */
	unsigned look;
	uint64_t began_ns;
	bool daemon_seen; /* on any look */
	uint32_t resources;
	uint32_t alive; /* workers */

	/* ---- of the look that is going on ---- */
	struct doctor_worker *workers; /* by life */
	size_t worker_count;
	uint32_t resource;
	char name[SEGMENT_NAME_SIZE];
	bool visible; /* the resource can be looked up */
	struct policy policy;
	bool has_policy;
};

/* map must stay mapped, for writing where repairs are wanted. 0 or -ENOMEM. */
int doctor_open(struct doctor *doctor, const char *instance, const struct map *map);
void doctor_close(struct doctor *doctor);
/* Looks until each suspicion is gone, or has stood for its time. What is in findings[] then stands, in the order of resources. */
void doctor_examine(struct doctor *doctor);
/* Repairs what can be repaired, and looks whether it is. Returns how many findings are left. */
size_t doctor_repair(struct doctor *doctor);
const char *doctor_check_id(enum doctor_check check);

/* ---- for the checks ---- */

/* Is it worth the work of finding out more? */
bool doctor_wants(const struct doctor *doctor, enum doctor_check check, uint32_t place, uint64_t seen);
/* of: check, place, seen, more, repair and remedy. what: "permit", of that number. */
__attribute__((format(printf, 4, 5))) void doctor_suspect(struct doctor *doctor, const struct finding *of, const char *what,
                                                          const char *format, ...);

/*
 * A cell that names a life (0: damage), loaded after this look began. of: check, place, seen, and the repair for a life that is over and in
 * no slot, so that nobody will ever reap it.
 */
void doctor_look_at_holder(struct doctor *doctor, const struct finding *of, const char *what, uint32_t life);

/* Coarse clocks of two processors may differ by a tick; this is much more. */
#define DOCTOR_FUTURE_MS 10000u
static inline uint64_t doctor_load(const word *w)
{
	/* acquire: what the author of the word had done before is seen by the loads that follow. */
	return atomic_load_explicit(w, memory_order_acquire);
}
/* That exact word becomes the other. For words that no function of the library changes in this way. */
static inline bool doctor_swap(word *place, uint64_t seen, uint64_t next)
{
	/* seq_cst: as strong as any protocol's own step. */
	return atomic_compare_exchange_strong_explicit(place, &seen, next, memory_order_seq_cst, memory_order_relaxed);
}
/*
 * A word of a resource that is empty, or has moved, where nothing will ever fill it: in no successor, or with none. The word was loaded
 * before; the successor is announced before anything moves.
 */
static inline bool doctor_is_lost(const struct doctor *doctor, bool empty, bool moved)
{
	return (empty && doctor->map->predecessor == 0) || (moved && map_superseded_by(doctor->map) == 0);
}
/* The state of the resource that a finding is of. */
static inline struct state *doctor_state(const struct doctor *doctor, const struct finding *finding)
{
	return map_state(doctor->map, finding->resource);
}

/* ---- the checks: a file each. First those of the instance, then those of one resource, doctor->resource ---- */

/* False: the file was cut, and must not be touched any more. */
bool doctor_look_at_file(struct doctor *doctor);
void doctor_look_at_daemon(struct doctor *doctor);
void doctor_look_at_live(struct doctor *doctor);
void doctor_look_at_events(struct doctor *doctor);
void doctor_look_at_workers(struct doctor *doctor);
void doctor_look_at_names(struct doctor *doctor);
void doctor_look_at_once(struct doctor *doctor);

void doctor_look_at_policy(struct doctor *doctor);
void doctor_look_at_holders(struct doctor *doctor);
void doctor_look_at_breaker(struct doctor *doctor);
void doctor_look_at_injection(struct doctor *doctor);
void doctor_look_at_limit(struct doctor *doctor);
void doctor_look_at_tokens(struct doctor *doctor);
void doctor_look_at_windows(struct doctor *doctor);

#endif
