/* SPDX-License-Identifier: MIT */
/*
 * Inside libresc: a host's view, its attachments and its resource handles. See host.c.
 */
#ifndef RESC_HOST_H
#define RESC_HOST_H

#include <pthread.h>

#include "map.h"
#include "process.h"
#include "rate.h"
#include "rcu.h"
#include "thread.h"
#include "worker.h"

/* One segment as this process is registered in it. The newest is current; older ones stay until none of our permits is in them. */
struct attachment {
	struct map map;
	struct worker worker;
	uint64_t epoch;                      /* of the process that registered */
	uint64_t used[RESOURCES_LIMIT / 64]; /* a bit for each resource that we ever had a view of */
	struct attachment *older;
	uint64_t order; /* grows from each to the next */
	bool quiet;     /* replaced, and no call can take anything in it any more */
	unsigned pins;  /* threads that ask rescd something in it, without the lock */
};

/*
 * Everything that a call of one resource needs, found once: immutable after it was published, replaced as a whole, freed after a grace
 * period. It is current as long as four words are as they were: see view_is_current.
 */
struct view {
	struct attachment *attachment;
	const struct map *map;
	struct policy_record *record;
	struct state *state;
	struct shard *own;        /* this worker's alone, or NULL */
	const void *owner_thread; /* who adds to `own` without atomics */
	struct shard *common;     /* everybody's */
	uint64_t generation;      /* of the segment */
	uint64_t epoch;
	uint64_t superseded;      /* as it was seen */
	uint64_t sequence;        /* of the policy */
	uint64_t tick_ms;         /* of the breaker's window */
	uint64_t tick_factor;     /* 2^64 / tick, rounded up: see view_tick */
	uint64_t throttle_factor; /* the same for the window of the throttle */
	word *home;               /* the permit cell to try first */
	uint32_t index;
	uint32_t life;
	uint32_t start;   /* its number */
	word *judged;     /* {generation:16, tick:48}: judged_last, in a view that is otherwise constant */
	word judged_last; /* the window was added up in this tick, with enough calls, and did not trip: see breaker.c */
	struct rate_limit rate_limit;
	bool measure; /* read the fine clock */
	bool plain;   /* nothing but breaker, bulkhead, budget and timeouts, all enforced: the other guards are not looked at */
	bool waits;   /* calls may wait for a permit, so whoever gives one back says so */
	bool private_mode;
	struct policy policy;
	struct view *next_retired;
};

/* rescd made no record, and is not asked again before that time or the next configuration. answer 0: nothing of the kind. */
struct refusal {
	int answer;
	uint64_t until_ns; /* real coarse clock */
	uint64_t reloads;
};

struct resc_resource {
	struct view *_Atomic view; /* NULL: look again */
	resc *host;
	struct resc_resource *next;
	struct refusal refusal; /* the host's lock is held */
	char name[SEGMENT_NAME_SIZE];
};

#define REFUSALS 16u

struct resc {
	pthread_mutex_t lock; /* of everything below but next_look_ns; never taken on the call path */
	struct attachment *current;
	struct resc_resource *resources;
	struct view *retired_views;
	struct attachment *retired_attachments;
	unsigned retired;
	uint64_t unanswered_until_ns; /* rescd did not answer: it is not asked before; 0: it did; real coarse clock */
	struct refusal refusals[REFUSALS];
	char refused_names[REFUSALS][SEGMENT_NAME_SIZE];
	_Atomic uint64_t next_look_ns; /* when to look again whether the segment is still the host's; real coarse clock */
	bool explained;                /* the reason for private mode was written to stderr */
	char instance[SEGMENT_NAME_SIZE];
	char reason[256];
	resc *next; /* in the process's list */
};

/* now_ms / tick without a division: exact, because now_ms < 2^40 and tick < 2^24. */
static inline uint64_t view_tick(const struct view *v, uint64_t now_ms)
{
	return (uint64_t)((unsigned __int128)now_ms * v->tick_factor >> 64);
}

static inline uint64_t view_throttle_tick(const struct view *v, uint64_t now_ms)
{
	return (uint64_t)((unsigned __int128)now_ms * v->throttle_factor >> 64);
}

static inline bool view_is_current(const struct view *v)
{
	/* Acquire on both: a new policy, or a successor, is complete when it is announced. */
	return v != NULL && atomic_load_explicit(&v->record->sequence, memory_order_acquire) == v->sequence &&
	       atomic_load_explicit(&v->map->daemon->superseded, memory_order_acquire) == v->superseded && process_epoch() == v->epoch;
}

/* Makes the view of a resource anew; where it was retired, rescd is asked for it, briefly. Takes the host's lock; not inside a read-side
 * section. 0, -ENOENT, -ENOSPC, -EAGAIN, -ENOMEM. */
int resource_refresh(struct resc_resource *resource);

/* A permit was given back in the segment of `a`, which was superseded: its successor owes less. The host's lock is held. */
void host_lower_debt(resc *host, const struct attachment *a, struct state *old, const char *name);

/* Once a second: is there (again) a segment of the host, is it still the one we use, can an old one be let go? */
void host_look(resc *host);

/* Brings the idempotency keys of the superseded segment into the current one, where nobody has yet. False: they cannot be had now. */
bool host_bring_keys(resc *host);

/* The attachment of this process that has that segment and life, or NULL. The host's lock is held. */
struct attachment *host_attachment(resc *host, uint64_t generation, uint32_t life);
/* Does the current segment come from that attachment's, by superseding? The host's lock is held. */
bool host_follows(const resc *host, const struct attachment *a);

static inline uint64_t real_coarse_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static inline bool host_look_is_due(const resc *host, uint64_t coarse_ns)
{
#ifdef RESC_TEST_CLOCK
	coarse_ns = real_coarse_ns();
#endif
	return __builtin_expect(coarse_ns >= atomic_load_explicit(&host->next_look_ns, memory_order_relaxed), 0);
}

#endif
