/* SPDX-License-Identifier: MIT */
/*
 * Inside libresc: a host's view, its attachments and its resource handles. host.c opens and closes it, attach.c knows the segments, view.c
 * what a call needs, lookup.c the names, look.c what there is to do once a second.
 */
#ifndef RESC_HOST_H
#define RESC_HOST_H

#include <pthread.h>

#include "rcu.h"
#include "thread.h"
#include "view.h"
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
	bool damaged;   /* cut, or overwritten, under its users: nothing in it is touched any more */
	unsigned pins;  /* threads that ask rescd something in it, without the lock */
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

#define LOOK_INTERVAL_NS UINT64_C(1000000000)
#define RETIRED_LIMIT    16u /* so many retired views or attachments are worth a grace period */

/* ---- attach.c; the host's lock is held, where nothing else is said ---- */

/* Attaches somehow, in private mode if need be, and puts the host into the list that a forked child goes through. 0 or -ENOMEM. Takes no
 * lock of the host: nobody else has it yet. */
int host_attach_and_list(resc *host);
void host_unlist(resc *host);
/* The current attachment is one that can be used now, or becomes it. 0, -EAGAIN, -ENOMEM. */
int host_ensure_attached(resc *host);
/* The segment at the instance's name becomes current, and what it is superseded by. False with the reason. */
bool host_attach_shared(resc *host, struct resc_error *err);
/* Looks whether its segment was cut or overwritten: once found so, it stays. */
bool host_finds_damaged(struct attachment *a);
/* The attachment to the segment that the current one supersedes, or NULL. */
struct attachment *host_predecessor(const resc *host);
/*
 * The predecessor's segment: as we are attached to it, or opened for this look (then *opened is it, to be closed; it was closed before).
 * NULL: it is gone. *own_life: ours in it, or as it was.
 */
const struct map *host_open_predecessor(resc *host, struct map *opened, uint32_t *own_life);
/* Out of use, and freed later, when nobody can be in a call with it. */
void host_retire_view(resc *host, struct view *view);
void host_retire_attachment(resc *host, struct attachment *a);
/* Every view of an attachment (NULL: of all) goes from the handles. */
void host_forget_views(resc *host, const struct attachment *attachment);
/* Frees what was retired; all, or when it is worth a grace period. Without the lock, outside read-side sections. */
void host_collect(resc *host, bool all);

/* ---- view.c: under the lock ---- */

/* 0, -ENOENT, -EAGAIN, -ENOMEM. */
int host_refresh_view(struct resc_resource *resource);

/* ---- for calls: without the lock ---- */

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
