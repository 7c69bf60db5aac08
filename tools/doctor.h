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
	X(PERMITS_HOLDER, "permits.holder", TURN)                                                                                          \
	X(WAITING_HOLDER, "waiting.holder", TURN)                                                                                          \
	X(PROBES_OWNER, "probes.owner", TURN)                                                                                              \
	X(PROBES_GHOST, "probes.ghost", SOON)                                                                                              \
	X(PROBES_OVERDUE, "probes.overdue", TURN)                                                                                          \
	X(SHARDS_OWNER, "shards.owner", TURN)                                                                                              \
	X(SHARDS_COMMON, "shards.common", SOON)                                                                                            \
	X(WORKERS_WORD, "workers.word", SOON)                                                                                              \
	X(WORKERS_DEAD, "workers.dead", TURN)                                                                                              \
	X(WORKERS_TWICE, "workers.twice", SOON)                                                                                            \
	X(WORKERS_TOKEN, "workers.token", TURN)                                                                                            \
	X(WORKERS_IDENTITY, "workers.identity", SOON)

enum doctor_check {
#define X(NAME, id, wait) CHECK_##NAME,
	DOCTOR_CHECKS(X)
#undef X
	        CHECKS
};

/* In finding.resource: of the instance as a whole. */
#define DOCTOR_INSTANCE UINT32_MAX

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
	uint64_t turn_ms; /* how long a turn of rescd may take; 0: the default */

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
/* of: check, place, seen, more, repair and remedy. what: "permit"; NULL: the place has no number. */
__attribute__((format(printf, 4, 5))) void doctor_suspect(struct doctor *doctor, const struct finding *of, const char *what,
                                                          const char *format, ...);

enum doctor_life {
	LIFE_OF_SLOT, /* of the living, or of one whose slot is a finding of its own */
	LIFE_LOST,    /* dead, and in no slot: nobody will ever reap it */
	LIFE_STRAY,   /* its token is held, and it is in no slot: nobody will reap it when it dies */
};
/* The life in a cell that was loaded after this look began. */
enum doctor_life doctor_life(const struct doctor *doctor, uint32_t life);
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
/* The state of the resource that a finding is of. */
static inline struct state *doctor_state(const struct doctor *doctor, const struct finding *finding)
{
	return map_state(doctor->map, finding->resource);
}

/* ---- the checks ---- */

void doctor_look_at_workers(struct doctor *doctor);
void doctor_look_at_holders(struct doctor *doctor, struct state *state);

#endif
