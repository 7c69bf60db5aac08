/* SPDX-License-Identifier: MIT */
/*
 * resc_once_begin, resc_once_done, resc_once_abandon: what a worker calls. The protocol of the table is in once.c.
 *
 * Why a call may have to go round: the view is made anew (a reload, a fork, a new segment), the keys of a superseded segment are not here
 * yet (then we bring them, once_move.c), or the old table was closed after the key was recorded in it. That last one is the reason for the
 * look at once_closed after the record: the mover closes first and reads the slots then, so either it sees our key, or we see that it is
 * closed, and take the key back before anybody is told that it was begun (both are seq_cst).
 *
 * Waiting is in slices, outside of read-side sections, for a process that is stopped or killed may never wake us. Each slice ends with a
 * look at a current view: what is waited for may have been answered in a successor.
 *
 * The ticket names segment, slot and word; done and abandon are a CAS of that word, so a copy that was used, one of a dead life, or
 * a parent's in a child (which has another life) changes nothing. The ticket of an unknown key is a right to settle it that belongs to no
 * life: whoever uses it first, in whichever process, settles under its own life. It is good in the current segment only: from a superseded
 * one the key has been copied as unknown, and has another place now.
 */
#include <errno.h>
#include <string.h>

#include "call.h"
#include "count.h"
#include "failpoint.h"
#include "futex.h"
#include "once.h"
#include "policy.h"
#include "ticket.h"
#include "waiting.h"

#define TRIES       16
#define SHADOW_SLOT UINT32_MAX /* begun although the key was known: nothing is recorded */
#define NAP_NS      1000000    /* where there is no slot to sleep on */

/* Inside this file, beside CALL_AGAIN and CALL_WAIT: the keys of the superseded segment are missing. */
#define CALL_BRING (INT32_MIN + 2)

struct beginning {
	struct once_image image;
	int64_t deadline_ns;
	int64_t until_ns; /* of waiting; 0: nobody has waited yet */
	word *place;      /* to sleep on, or NULL */
	uint32_t value;   /* while it has that */
	bool look;        /* it is time for the look of once a second */
	resc_once *once;
};

/* ---- tickets ---- */

static void clear(resc_once *once)
{
	memset(once, 0, offsetof(resc_once, answer));
}

static uint64_t seal_of(const resc_once *once)
{
	return seal_secret() ^ once->slot ^ seal_rotate(once->claim, 7) ^ seal_rotate((uint64_t)(uintptr_t)once->resource, 31) ^
	       seal_rotate(once->segment, 43);
}

static void give_ticket(resc_resource *resource, uint64_t segment, const struct once_place *place, resc_once *once)
{
	once->resource = resource;
	once->segment = segment;
	once->slot = place->slot;
	once->claim = place->seen;
	once->seal = seal_of(once);
}

/* ---- begin ---- */

/* Is there time to wait for somebody else's result? */
static bool may_wait(const struct view *v, struct beginning *b)
{
	if (v->policy.once_max_wait_ms == 0 || (v->policy.flags & POLICY_SHADOW_ONCE) != 0)
		return false;
	int64_t now_ns = resc_now_ns();
	if (b->until_ns == 0) {
		b->until_ns = now_ns + (int64_t)v->policy.once_max_wait_ms * 1000000;
		if (b->deadline_ns < b->until_ns)
			b->until_ns = b->deadline_ns;
	}
	return now_ns < b->until_ns;
}

/* In work elsewhere. CALL_AGAIN: not any more. */
static int busy(const struct view *v, struct beginning *b, const struct once_place *place)
{
	word *slot = &v->map->once_slots[place->slot];

	b->place = NULL;
	if (!may_wait(v, b))
		return RESC_ONCE_BUSY;
	/* Announce, then look: the owner turns the word, then looks for sleepers (Dekker, all seq_cst). */
	atomic_store_explicit(&map_once_entry(v->map, place->slot)->waiters, 1, memory_order_seq_cst);
	if (atomic_load_explicit(slot, memory_order_seq_cst) != place->seen)
		return CALL_AGAIN;
	b->place = slot;
	b->value = (uint32_t)place->seen;
	return CALL_WAIT;
}

/* Somebody else recorded the key. CALL_AGAIN: the slot has moved on. */
static int known(const struct view *v, struct beginning *b, resc_resource *resource, const struct once_place *place)
{
	struct once_image stored;

	if (once_phase(place->seen) == ONCE_UNKNOWN) {
		give_ticket(resource, v->generation, place, b->once);
		return RESC_ONCE_UNKNOWN;
	}
	if (once_phase(place->seen) != ONCE_DONE)
		return busy(v, b, place);
	if (once_read(v->map, place, &stored)) {
		memcpy(b->once->answer, stored.answer, stored.answer_size);
		b->once->size = stored.answer_size;
		return RESC_ONCE_DONE;
	}
	/* Moved on; or a damaged entry: then nobody can say what the answer was. */
	once_turn(v->map, place, once_with(place->seen, ONCE_UNKNOWN));
	return CALL_AGAIN;
}

/* The key is recorded as ours. CALL_AGAIN: too late, this table is closed. */
static int recorded(const struct view *v, struct beginning *b, resc_resource *resource, const struct once_place *place)
{
	if (__builtin_expect(once_is_closed(v->map), 0)) {
		once_turn(v->map, place, once_freed(place->seen));
		return CALL_AGAIN;
	}
	give_ticket(resource, v->generation, place, b->once);
	return 0;
}

static int ask(const struct view *v, struct beginning *b, resc_resource *resource, uint64_t now_ms)
{
	struct once_place place;
	int r = RESC_ONCE_BUSY;

	for (int i = 0; i < TRIES; i++) {
		switch (once_insert(v->map, &b->image, v->life, ONCE_RUNNING, v->life, now_ms, &place)) {
		case ONCE_INSERTED:
			return recorded(v, b, resource, &place);
		case ONCE_KNOWN:
			r = known(v, b, resource, &place);
			break;
		case ONCE_CONTESTED:
			b->place = NULL;
			r = may_wait(v, b) ? CALL_WAIT : RESC_ONCE_BUSY;
			break;
		case ONCE_FULL:
			r = -ENOSPC;
			break;
		}
		/* The holder of the key, or who fills the set, may be dead. */
		bool helps = r == RESC_ONCE_BUSY || r == CALL_WAIT || r == -ENOSPC;
		if (r != CALL_AGAIN && !(helps && sweep_the_dead(v)))
			return r;
	}
	return r == CALL_AGAIN || r == CALL_WAIT ? RESC_ONCE_BUSY : r;
}

static void count_answer(const struct view *v, int answer)
{
	enum counter counter = COUNTER_once_busy;

	if (answer == 0)
		counter = COUNTER_once_first;
	else if (answer == RESC_ONCE_DONE)
		counter = COUNTER_once_replayed;
	else if (answer == RESC_ONCE_UNKNOWN)
		counter = COUNTER_once_unknown;
	else if (answer == -ENOSPC)
		counter = COUNTER_once_full;
	count(v, counter);
}

/* In shadow mode everybody is first. */
static int in_shadow(const struct view *v, struct beginning *b, resc_resource *resource, int answer)
{
	const struct once_place nowhere = {.slot = SHADOW_SLOT};

	clear(b->once);
	give_ticket(resource, v->generation, &nowhere, b->once);
	count(v, answer == -ENOSPC ? COUNTER_once_full : COUNTER_would_once);
	return 0;
}

static int begin(const struct view *v, struct beginning *b, resc_resource *resource)
{
	uint64_t coarse_ns = clock_coarse_ns(v->map);
	uint64_t now_ms = clock_to_ms(v->map, coarse_ns);

	b->look = host_look_is_due(resource->host, coarse_ns);
	if ((v->policy.flags & POLICY_ONCE) == 0)
		return -ENOTSUP;
	if (!once_is_ready(v->map))
		return CALL_BRING;
	if (once_is_closed(v->map))
		return CALL_AGAIN;
	b->image.expires_ms = now_ms + v->policy.once_ttl_ms;
	b->image.on_death = v->policy.once_on_death;
	int r = ask(v, b, resource, now_ms);
	if (r == CALL_AGAIN || r == CALL_WAIT)
		return r;
	if (r != 0 && (v->policy.flags & POLICY_SHADOW_ONCE) != 0)
		return in_shadow(v, b, resource, r);
	count_answer(v, r);
	return r;
}

static int try_to_begin(struct beginning *b, resc_resource *resource)
{
	read_lock();
	/* Acquire: the view is complete when it can be seen. */
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	int r = view_is_current(v) ? begin(v, b, resource) : CALL_AGAIN;
	read_unlock();
	return r;
}

static void sleep_a_slice(const struct beginning *b)
{
	int64_t left_ns = b->until_ns - resc_now_ns();
	uint64_t ns = left_ns <= 0 ? 1 : (uint64_t)left_ns;

	if (ns > WAITING_SLICE_NS)
		ns = WAITING_SLICE_NS;
	if (b->place != NULL) {
		futex_wait(b->place, b->value, ns);
		return;
	}
	const struct timespec nap = {.tv_nsec = NAP_NS};
	nanosleep(&nap, NULL);
}

/* What has to be done before the next try. 0, or the error that ends it. */
static int prepare(int why, resc_resource *resource)
{
	int r = 0;

	if (why == CALL_BRING)
		host_bring_keys(resource->host);
	else
		r = resource_refresh(resource);
	return r == -EAGAIN ? 0 : r;
}

/* Waiting is bounded by its time, everything else by the number of tries. */
static int begin_until_answered(struct beginning *b, resc_resource *resource)
{
	for (int i = 0; i < TRIES;) {
		int r = try_to_begin(b, resource);
		if (r == CALL_WAIT) {
			sleep_a_slice(b);
			continue;
		}
		if (r != CALL_BRING && r != CALL_AGAIN)
			return r;
		r = prepare(r, resource);
		if (r != 0)
			return r;
		i++;
	}
	return -EAGAIN;
}

int resc_once_begin(resc_resource *resource, const void *key, size_t key_size, const resc_options *options, resc_once *once)
{
	struct beginning b = {.deadline_ns = RESC_NO_DEADLINE, .once = once};

	if (once == NULL)
		return -EINVAL;
	clear(once);
	if (resource == NULL || key == NULL || key_size == 0 || key_size > RESC_ONCE_KEY_MAX)
		return -EINVAL;
	if (options != NULL && !options_are_sound(options))
		return -EINVAL;
	if (options != NULL)
		b.deadline_ns = options->deadline_ns;
	once_image_init(&b.image, resource->name, key, key_size);
	int r = begin_until_answered(&b, resource);
	if (b.look)
		host_look(resource->host);
	return r;
}

/* ---- done, abandon ---- */

struct ending {
	struct once_place place;
	const void *answer;
	size_t size;
	bool done; /* or abandoned */
};

static bool settles(const struct ending *e)
{
	return once_phase(e->place.seen) == ONCE_UNKNOWN;
}

/*
 * The mover closes first and reads then, and we take first and look then (all seq_cst): either it sees our STORING, and what comes of it
 * is brought over, or we see that it is closed.
 */
static bool take_unless_closed(const struct map *map, uint32_t life, struct once_place *place)
{
	if (!once_take(map, life, place))
		return false;
	if (!once_is_closed(map))
		return true;
	once_turn(map, place, once_with(place->seen, ONCE_UNKNOWN));
	return false;
}

static int end_in(const struct map *map, const struct policy *policy, uint32_t life, const struct ending *e)
{
	struct once_place place = e->place;

	if (place.slot >= map->dims.once)
		return -EINVAL;
	if (settles(e) && !take_unless_closed(map, life, &place))
		return -ESTALE;
	if (!e->done)
		return once_turn(map, &place, once_freed(place.seen)) ? 0 : -ESTALE;
	if (!settles(e) && !once_take(map, life, &place))
		return -ESTALE;
	uint64_t expires_ms = clock_coarse_ms(map) + policy->once_ttl_ms;
	return once_store(map, &place, e->answer, e->size, expires_ms) ? 0 : -ESTALE;
}

/* In the current segment. CALL_AGAIN: it is not the ticket's, or not ours. */
static int end_here(resc_resource *resource, uint64_t segment, const struct ending *e)
{
	int r = CALL_AGAIN;

	read_lock();
	/* Acquire: the view is complete when it can be seen. */
	const struct view *v = atomic_load_explicit(&resource->view, memory_order_acquire);
	bool ours = v != NULL && v->generation == segment && v->epoch == process_epoch();
	if (ours && (settles(e) || v->life == once_owner(e->place.seen))) {
		r = end_in(v->map, &v->policy, v->life, e);
		if (r == 0 && e->done)
			count(v, COUNTER_once_done);
	}
	read_unlock();
	return r;
}

/* It needs a life of this process, and the view may have none yet (after fork(), a reload). */
COLD static int settle_again(resc_resource *resource, uint64_t segment, const struct ending *e)
{
	int r = resource_refresh(resource) < 0 ? CALL_AGAIN : end_here(resource, segment, e);

	return r == CALL_AGAIN ? -ESTALE : r;
}

/* It was begun in a segment that is not the current one, or by another process: found among the older ones, or stale. */
COLD static int end_elsewhere(resc_resource *resource, uint64_t segment, const struct ending *e)
{
	resc *host = resource->host;
	struct policy policy;
	uint64_t sequence;
	int r = -ESTALE;

	pthread_mutex_lock(&host->lock);
	const struct attachment *a = host_attachment(host, segment, once_owner(e->place.seen));
	int index = a == NULL ? -ENOENT : policy_find_any(&a->map, resource->name);
	if (index >= 0 && policy_read(&a->map, (uint32_t)index, &policy, &sequence) == 0) {
		r = end_in(&a->map, &policy, a->worker.life, e);
		if (r == 0 && e->done)
			count_common(&a->map, map_state(&a->map, (uint32_t)index), COUNTER_once_done, 1);
	}
	pthread_mutex_unlock(&host->lock);
	return r;
}

static int end(resc_once *once, struct ending *e)
{
	resc_resource *resource = once->resource;

	e->place = (struct once_place){once->slot, once->claim};
	if (once->slot == SHADOW_SLOT) {
		clear(once);
		return 0;
	}
	int r = end_here(resource, once->segment, e);
	if (r == CALL_AGAIN)
		r = settles(e) ? settle_again(resource, once->segment, e) : end_elsewhere(resource, once->segment, e);
	/* What is stale stays stale: a copy of it fails in the same way. */
	clear(once);
	return r;
}

static bool is_ticket(const resc_once *once)
{
	return once != NULL && once->resource != NULL && once->seal == seal_of(once);
}

int resc_once_done(resc_once *once, const void *answer, size_t size)
{
	struct ending e = {.answer = answer, .size = size, .done = true};

	if (!is_ticket(once) || size > RESC_ONCE_ANSWER_MAX || (answer == NULL && size > 0))
		return -EINVAL;
	return end(once, &e);
}

int resc_once_abandon(resc_once *once)
{
	struct ending e = {.done = false};

	return is_ticket(once) ? end(once, &e) : -EINVAL;
}
