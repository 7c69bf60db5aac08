/* SPDX-License-Identifier: MIT */
/*
 * A host's view: opening, joining, forking, and following the segment from one to the next.
 *
 * A call never waits for anything here. It finds its resource's view through one pointer (in a read-side section), checks four words, and
 * goes. Only when one of them has changed does it come here, under the host's lock:
 *
 *	policy sequence	the configuration changed: the view is built anew
 *	superseded	the segment has a successor: it is opened, this worker registers there, the resource's words are moved (move.h)
 *	epoch		this is a forked child: it registers as a worker of its own, and forgets the parent's attachments untouched
 *	view is NULL	first call, or the attachment changed
 *
 * Once a second one call looks whether the name still leads to our segment (it may have been removed and made again by hand), whether a
 * host's segment has appeared for a private view, and whether an old segment can be let go.
 *
 * Old attachments: tickets never move, so a superseded segment stays mapped as long as a cell of it carries our life.
 *
 * A name that no record has may match a pattern of the configuration: then rescd is asked to make one (request.h), without the lock,
 * because that may take a while; the attachment is pinned meanwhile. So does a call whose resource was retired, but more briefly. Who
 * was refused is refused again at once for a second, and for that long nobody here asks a rescd that did not answer: neither a loop of
 * lookups nor one of calls becomes a load for it, and a stopped rescd costs a worker little.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "deadline.h"
#include "error.h"
#include "host.h"
#include "move.h"
#include "once.h"
#include "policy.h"
#include "record.h"
#include "request.h"
#include "share.h"
#include "window.h"
#include "words.h"

#define LOOK_INTERVAL_NS UINT64_C(1000000000)
#define RETIRED_LIMIT    16u
#define ASK_TRIES        3

_Thread_local struct thread thread_data;
_Atomic uint32_t thread_next_block;
#ifdef RCU_TSAN
char rcu_tsan_tag;
#endif

/* The process context: all open views, for fork. */
static pthread_mutex_t list_lock = PTHREAD_MUTEX_INITIALIZER;
static resc *open_hosts;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

/* ---- fork ---- */

static void before_fork(void)
{
	pthread_mutex_lock(&list_lock);
	for (resc *h = open_hosts; h != NULL; h = h->next)
		pthread_mutex_lock(&h->lock);
	urcu_bp_before_fork();
}

static void unlock_all(void)
{
	for (resc *h = open_hosts; h != NULL; h = h->next)
		pthread_mutex_unlock(&h->lock);
	pthread_mutex_unlock(&list_lock);
}

static void after_fork_parent(void)
{
	urcu_bp_after_fork_parent();
	unlock_all();
}

static void close_descriptor(struct attachment *a)
{
	if (a->map.fd >= 0)
		close(a->map.fd);
	a->map.fd = -1;
}

/* The descriptor carries the parent's liveness token: while a child holds it open, the parent seems alive. */
static void after_fork_child(void)
{
	urcu_bp_after_fork_child();
	for (resc *h = open_hosts; h != NULL; h = h->next) {
		for (struct attachment *a = h->current; a != NULL; a = a->older)
			close_descriptor(a);
		for (struct attachment *a = h->retired_attachments; a != NULL; a = a->older)
			close_descriptor(a);
	}
	unlock_all();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- letting go ---- */

static void retire_view(resc *host, struct view *view)
{
	if (view == NULL)
		return;
	view->next_retired = host->retired_views;
	host->retired_views = view;
	host->retired++;
}

/* Every view of an attachment must be gone from the handles before the attachment is. */
static void forget_views(resc *host, const struct attachment *attachment)
{
	for (struct resc_resource *r = host->resources; r != NULL; r = r->next) {
		struct view *v = atomic_load_explicit(&r->view, memory_order_relaxed);
		if (v == NULL || (attachment != NULL && v->attachment != attachment))
			continue;
		atomic_store_explicit(&r->view, NULL, memory_order_release);
		retire_view(host, v);
	}
}

static void retire_attachment(resc *host, struct attachment *a)
{
	forget_views(host, a);
	a->older = host->retired_attachments;
	host->retired_attachments = a;
	host->retired = RETIRED_LIMIT;
}

#ifdef RESC_TEST_CLOCK
static const struct attachment *test_clock_of;
#endif

static void forget_clock(const struct attachment *a)
{
#ifdef RESC_TEST_CLOCK
	if (test_clock_of == a)
		deadline_use_clock(NULL);
#else
	(void)a;
#endif
}

static void free_attachment(struct attachment *a)
{
	forget_clock(a);
	/* A parent's registration is the parent's. */
	if (a->epoch == process_epoch() && a->map.fd >= 0)
		worker_unregister_from(&a->map, &a->worker, a->used);
	map_close(&a->map);
	free(a);
}

/* Takes the attachments that can be freed off the list of the retired. The lock is held. */
static struct attachment *take_unpinned(resc *host)
{
	struct attachment **link = &host->retired_attachments;
	struct attachment *taken = NULL;

	while (*link != NULL) {
		struct attachment *a = *link;
		/* The pins of a parent's threads are not there in the child. */
		if (a->pins != 0 && a->epoch == process_epoch()) {
			link = &a->older;
			continue;
		}
		*link = a->older;
		a->older = taken;
		taken = a;
	}
	return taken;
}

/* Frees what nobody can use any more, when it is worth a grace period. Called without the lock, outside read-side sections. */
static void collect(resc *host, bool all)
{
	pthread_mutex_lock(&host->lock);
	struct view *views = NULL;
	struct attachment *attachments = NULL;
	if (all || host->retired >= RETIRED_LIMIT) {
		views = host->retired_views;
		attachments = take_unpinned(host);
		host->retired_views = NULL;
		host->retired = 0;
	}
	pthread_mutex_unlock(&host->lock);
	if (views == NULL && attachments == NULL)
		return;
	wait_for_readers();
	while (views != NULL) {
		struct view *v = views;
		views = v->next_retired;
		free(v);
	}
	while (attachments != NULL) {
		struct attachment *a = attachments;
		attachments = a->older;
		free_attachment(a);
	}
}

/* ---- attaching ---- */

/* Test build: deadlines follow the clock of the newest segment. */
static void follow_clock(const struct attachment *a)
{
#ifdef RESC_TEST_CLOCK
	test_clock_of = a;
	deadline_use_clock(&a->map.live->clock_ns);
#else
	(void)a;
#endif
}

static void push_attachment(resc *host, struct attachment *a)
{
	follow_clock(a);
	a->older = host->current;
	a->order = a->older == NULL ? 1 : a->older->order + 1;
	host->current = a;
}

static struct attachment *attachment_new(void)
{
	struct attachment *a = calloc(1, sizeof *a);

	if (a != NULL) {
		a->epoch = process_epoch();
		a->map.fd = -1;
	}
	return a;
}

/* Opens the segment at a path and registers in it. NULL with the reason. */
static struct attachment *attach_path(const char *path, struct resc_error *err)
{
	struct attachment *a = attachment_new();

	if (a == NULL) {
		error_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	int r = map_open(&a->map, path, MAP_WORKER, err);
	if (r == 0) {
		r = worker_register(&a->map, &a->worker);
		if (r == -ENOSPC)
			error_set(err, r, "all %u worker slots of %s are taken; raise \"workers\"", a->map.dims.workers, path);
		else if (r != 0)
			error_set(err, r, "cannot register in %s: %s", path, strerror(-r));
	}
	if (r != 0) {
		map_close(&a->map);
		free(a);
		return NULL;
	}
	return a;
}

static uint64_t superseded_by(const struct map *map)
{
	return atomic_load_explicit(&map->daemon->superseded, memory_order_acquire);
}

/*
 * From a segment that says it is superseded to its successor: at the instance's name, or at the successor's own until it gets that.
 * True when there is a new current attachment.
 */
static bool follow(resc *host, uint64_t successor, struct resc_error *err)
{
	char path[MAP_PATH_SIZE];

	for (int i = 0; i < 2; i++) {
		map_path(path, host->instance, i == 0 ? successor : 0);
		struct attachment *a = attach_path(path, err);
		if (a == NULL)
			continue;
		if (a->map.generation == successor) {
			forget_views(host, NULL);
			push_attachment(host, a);
			return true;
		}
		free_attachment(a);
	}
	return false;
}

/* The segment at the instance's name becomes current, and what it is superseded by. False with the reason. */
static bool attach_shared(resc *host, struct resc_error *err)
{
	char path[MAP_PATH_SIZE];

	map_path(path, host->instance, 0);
	struct attachment *a = attach_path(path, err);
	if (a == NULL)
		return false;
	forget_views(host, NULL);
	push_attachment(host, a);
	host->reason[0] = '\0';
	uint64_t successor = superseded_by(&a->map);
	if (successor != 0)
		follow(host, successor, err);
	return true;
}

static int attach_private(resc *host, const struct resc_error *why)
{
	struct attachment *a = attachment_new();
	struct resc_error err = {0, ""};

	if (a == NULL || map_private(&a->map, host->instance, &err) != 0) {
		free(a);
		return -ENOMEM;
	}
	worker_register(&a->map, &a->worker);
	forget_views(host, NULL);
	push_attachment(host, a);
	snprintf(host->reason, sizeof host->reason, "%s", why->text);
	if (!host->explained) {
		fprintf(stderr, "resc: instance %s: private mode: %s\n", host->instance, host->reason);
		host->explained = true;
	}
	return 0;
}

/* In a forked child: the parent's attachments are not ours. They are unmapped, and nothing in them is touched. */
static void forget_parent(resc *host)
{
	while (host->current != NULL && host->current->epoch != process_epoch()) {
		struct attachment *a = host->current;
		host->current = a->older;
		close_descriptor(a);
		retire_attachment(host, a);
	}
}

static int attach_somehow(resc *host)
{
	struct resc_error err = {0, ""};

	return attach_shared(host, &err) ? 0 : attach_private(host, &err);
}

/* The current attachment is one that can be used now. The lock is held. */
static int ensure_attached(resc *host)
{
	struct resc_error err = {0, ""};

	forget_parent(host);
	if (host->current == NULL)
		return attach_somehow(host);
	for (int i = 0; i < 8; i++) {
		uint64_t successor = host->current->map.private_mode ? 0 : superseded_by(&host->current->map);
		if (successor == 0 || successor == host->current->map.generation)
			return 0;
		if (follow(host, successor, &err))
			continue;
		/* The successor is gone: whatever the instance's name leads to, or a private view. */
		char path[MAP_PATH_SIZE];
		map_path(path, host->instance, 0);
		if (map_is_at(&host->current->map, path))
			return 0; /* it was only announced; the old one still counts */
		return attach_somehow(host);
	}
	return -EAGAIN;
}

struct attachment *host_attachment(resc *host, uint64_t generation, uint32_t life)
{
	for (struct attachment *a = host->current; a != NULL; a = a->older)
		if (a->map.generation == generation && a->worker.life == life && a->epoch == process_epoch())
			return a;
	return NULL;
}

bool host_follows(const resc *host, const struct attachment *a)
{
	const struct attachment *x = host->current;

	while (x != NULL && x != a && x->older != NULL && x->map.predecessor == x->older->map.generation)
		x = x->older;
	return x == a;
}

void host_lower_debt(resc *host, const struct attachment *a, struct state *old, const char *name)
{
	struct attachment *successor = host->current;

	while (successor != NULL && successor->older != a)
		successor = successor->older;
	int index = successor == NULL || successor->map.predecessor != a->map.generation ? -ENOENT : policy_find_any(&successor->map, name);
	if (index >= 0)
		move_permits(&a->map, old, &successor->map, map_state(&successor->map, (uint32_t)index));
}

/* ---- views ---- */

/* A shard for this worker alone, the one that it has already, or NULL. */
static struct shard *claim_shard(const struct map *map, struct state *state, uint32_t life)
{
	uint32_t claimable = map_first_common_shard(map);

	for (uint32_t i = 0; i < claimable; i++) {
		struct shard *shard = map_shard(map, state, i);
		if (atomic_load_explicit(&shard->owner, memory_order_relaxed) == life)
			return shard;
	}
	for (uint32_t i = 0; i < claimable; i++) {
		struct shard *shard = map_shard(map, state, i);
		uint64_t none = 0;
		/* Acquire pairs with the release of whoever freed it: we go on counting from what the last owner left. */
		if (atomic_load_explicit(&shard->owner, memory_order_relaxed) == 0 &&
		    atomic_compare_exchange_strong_explicit(&shard->owner, &none, life, memory_order_acq_rel, memory_order_relaxed))
			return shard;
	}
	return NULL;
}

/* The attachment to the segment that the current one supersedes, or NULL. */
static struct attachment *predecessor_of_current(const resc *host)
{
	struct attachment *a = host->current->older;

	while (a != NULL && a->map.generation != host->current->map.predecessor)
		a = a->older;
	return a;
}

/* In a successor: the resource's words are moved before its first call there. */
static void move_resource(resc *host, const struct map *map, uint32_t index)
{
	const struct attachment *before = predecessor_of_current(host);

	if (before == NULL || !move_is_same(&before->map, map, index))
		return;
	struct state *old = map_state(&before->map, index);
	struct state *new = map_state(map, index);
	move_words(&before->map, old, map, new);
	move_permits(&before->map, old, map, new);
	/* So that no counter goes back for who looks here before rescd has carried them. */
	move_carry(&before->map, old, map, new);
}

static int find_index(const struct attachment *a, const char *name)
{
	int index = policy_find(&a->map, name);
	struct policy policy;

	if (index >= 0 || !a->map.private_mode)
		return index;
	policy_private(&policy);
	return record_publish(&a->map, name, &policy);
}

/* Are there guards that an ordinary call has to be asked for one by one? */
static bool is_plain(const struct policy *p)
{
	const uint64_t others = POLICY_RATE | POLICY_THROTTLE | POLICY_RETRY_CAP | POLICY_SHADOW_BREAKER | POLICY_SHADOW_BULKHEAD;
	bool shares = (p->flags & POLICY_BULKHEAD) != 0 &&
	              (p->max_wait_ms != 0 || p->retry_after_ms != 0 || p->critical_ppm + p->normal_ppm + p->low_ppm != 3000000);
	bool deposits = (p->flags & POLICY_BUDGET) != 0 && p->budget_deposit == DEPOSIT_REQUEST;

	return (p->flags & others) == 0 && !shares && !deposits;
}

/*
 * Workers start at different cells, below the limit. In shadow mode nothing holds them back from a cell that a share does not have any
 * more: then the start is beyond all of them, and they look from the first below the limit of the moment.
 */
static void choose_home(struct view *v, const struct attachment *a)
{
	const uint32_t cells = a->map.dims.permits;
	bool limited = (v->policy.flags & POLICY_BULKHEAD) != 0;

	v->start = a->worker.slot % (limited ? share_limit(&a->map, &v->policy) : cells);
	v->home = map_permit(&a->map, v->state, v->start);
	if (limited && (v->policy.flags & POLICY_SHADOW_BULKHEAD) != 0 && v->policy.limit_share_ppm != 0)
		v->start += cells;
}

static void fill_view(struct view *v, struct attachment *a, uint32_t index, const struct view *before)
{
	v->attachment = a;
	a->used[index / 64] |= UINT64_C(1) << index % 64;
	v->map = &a->map;
	v->index = index;
	v->record = &a->map.policies[index];
	v->state = map_state(&a->map, index);
	v->generation = a->map.generation;
	v->epoch = a->epoch;
	v->superseded = superseded_by(&a->map);
	v->life = a->worker.life;
	v->private_mode = a->map.private_mode;
	choose_home(v, a);
	v->judged = &v->judged_last;
	v->own = claim_shard(&a->map, v->state, v->life);
	/* Another thread may still be in a call with the view before: the shard's thread stays the same for this life. */
	bool same_life = before != NULL && before->life == v->life && before->generation == v->generation && before->epoch == v->epoch;
	v->owner_thread = same_life && before->own != NULL ? before->owner_thread : thread_self();
	v->common = map_shard(&a->map, v->state, a->map.dims.shards - 1 - a->worker.slot % (a->map.dims.shards / 4));
	v->tick_ms = window_tick_ms(&v->policy);
	v->tick_factor = UINT64_MAX / v->tick_ms + 1;
	v->throttle_factor = UINT64_MAX / window_bucket_ms(v->policy.throttle_window_ms) + 1;
	bool slow_matters = (v->policy.flags & POLICY_BREAKER) != 0 && v->policy.slow_rate_ppm != 0;
	v->measure = (v->policy.flags & (POLICY_LATENCY | POLICY_SHADOW_TIMEOUT)) != 0 || slow_matters;
	v->rate_limit = rate_limit_of(v->policy.rate_per_second, v->policy.rate_burst);
	v->plain = is_plain(&v->policy);
	v->waits = (v->policy.flags & (POLICY_BULKHEAD | POLICY_SHADOW_BULKHEAD)) == POLICY_BULKHEAD && v->policy.max_wait_ms != 0;
}

static int build_view(struct resc_resource *resource, struct attachment *a, struct view **out)
{
	struct view *v = NULL;
	int index = find_index(a, resource->name);

	if (index < 0)
		return index;
	move_resource(resource->host, &a->map, (uint32_t)index);
	unsigned tag = breaker_tag(atomic_load_explicit(&map_state(&a->map, (uint32_t)index)->breaker, memory_order_acquire));
	if (tag == TAG_EMPTY)
		return -EAGAIN; /* a successor that we cannot fill */
	if (posix_memalign((void **)&v, SEGMENT_LINE, sizeof *v) != 0)
		return -ENOMEM;
	memset(v, 0, sizeof *v);
	int r = policy_read(&a->map, (uint32_t)index, &v->policy, &v->sequence);
	if (r == 0 && (v->policy.flags & POLICY_CONFIGURED) == 0)
		r = -ENOENT;
	if (r != 0) {
		free(v);
		return r;
	}
	fill_view(v, a, (uint32_t)index, atomic_load_explicit(&resource->view, memory_order_relaxed));
	*out = v;
	return 0;
}

static int refresh_locked(struct resc_resource *resource)
{
	resc *host = resource->host;
	struct view *fresh = NULL;
	int r = ensure_attached(host);

	if (r == 0)
		r = build_view(resource, host->current, &fresh);
	if (r != 0)
		return r;
	/* Release: the view is complete when it can be seen. */
	retire_view(host, atomic_exchange_explicit(&resource->view, fresh, memory_order_acq_rel));
	return 0;
}

/* ---- names without a record ---- */

static uint64_t reloads_of(const struct attachment *a)
{
	return atomic_load_explicit(&a->map.daemon->reloads, memory_order_relaxed);
}

/* Was this refused less than a second ago, and did no configuration come since? */
static bool still_refused(const resc *host, const struct refusal *refusal)
{
	return refusal->answer != 0 && real_coarse_ns() < refusal->until_ns && refusal->reloads == reloads_of(host->current);
}

/*
 * Asks rescd for a record of that name, and gives the lock back meanwhile: what was known of the host may be different afterwards.
 * 0: worth to look again. -ENOENT, -ENOSPC, -EAGAIN as request_ask.
 */
static int ask_unlocked(resc *host, const char *name, uint32_t patience_ms)
{
	struct attachment *a = host->current;

	/* It did not answer the last one: then this one is to see whether it is back, and answers usually take some 100 us. */
	if (host->unanswered_until_ns != 0)
		patience_ms = REQUEST_CALL_PATIENCE_MS;
	a->pins++;
	pthread_mutex_unlock(&host->lock);
	int r = request_ask(&a->map, a->worker.life, name, patience_ms);
	pthread_mutex_lock(&host->lock);
	a->pins--;
	/* It may have been replaced, and its collection put off. */
	if (a != host->current)
		host->retired = RETIRED_LIMIT;
	host->unanswered_until_ns = r == -EAGAIN ? real_coarse_ns() + LOOK_INTERVAL_NS : 0;
	return r;
}

static int ask(resc *host, const char *name, uint32_t patience_ms, struct refusal *refusal)
{
	const struct attachment *a = host->current;

	if (a->map.private_mode || atomic_load_explicit(&a->map.daemon->patterns, memory_order_relaxed) == 0)
		return -ENOENT;
	if (still_refused(host, refusal))
		return refusal->answer;
	uint64_t reloads = reloads_of(a);
	int r = real_coarse_ns() < host->unanswered_until_ns ? -EAGAIN : ask_unlocked(host, name, patience_ms);
	*refusal = (struct refusal){r, real_coarse_ns() + LOOK_INTERVAL_NS, reloads};
	return r;
}

/* Makes the view, after asking rescd for the record if there is none. The lock is held, and may have been given back for a while. */
static int refresh_or_ask(struct resc_resource *resource, uint32_t patience_ms, struct refusal *refusal)
{
	int r = refresh_locked(resource);

	/* More than once where the segment is replaced, or the record retired, in between. */
	for (int i = 0; i < ASK_TRIES && r == -ENOENT; i++) {
		int asked = ask(resource->host, resource->name, patience_ms, refusal);
		if (asked != 0)
			return asked;
		r = refresh_locked(resource);
	}
	return r;
}

int resource_refresh(struct resc_resource *resource)
{
	resc *host = resource->host;

	pthread_mutex_lock(&host->lock);
	int r = refresh_or_ask(resource, REQUEST_CALL_PATIENCE_MS, &resource->refusal);
	pthread_mutex_unlock(&host->lock);
	collect(host, false);
	return r;
}

/* ---- once a second ---- */

static bool holds_cells(const struct attachment *a)
{
	char name[SEGMENT_NAME_SIZE];

	if (once_holds(&a->map, a->worker.life))
		return true;
	for (uint32_t i = 0; i < a->map.dims.resources; i++) {
		if ((a->used[i / 64] >> i % 64 & 1) == 0 || !policy_name_any(&a->map, i, name))
			continue;
		const struct state *state = map_state(&a->map, i);
		for (uint32_t c = 0; c < a->map.dims.permits; c++)
			if (permit_life(atomic_load_explicit(map_permit(&a->map, state, c), memory_order_relaxed)) == a->worker.life)
				return true;
	}
	return false;
}

/* Attachments that are not current and may still be in the hands of a call: the newest of them, or 0. */
static uint64_t newest_that_is_busy(const resc *host)
{
	for (const struct attachment *a = host->current == NULL ? NULL : host->current->older; a != NULL; a = a->older)
		if (!a->quiet)
			return a->order;
	return 0;
}

/*
 * A call that found its view before the attachment was replaced may take a cell in it at any moment until it ends. So first a grace period,
 * for all attachments up to `order`; then a look at the cells.
 */
static void let_go_of_old(resc *host, uint64_t order)
{
	struct attachment **link = host->current == NULL ? NULL : &host->current->older;

	while (link != NULL && *link != NULL) {
		struct attachment *a = *link;
		a->quiet = a->quiet || a->order <= order;
		if (!a->quiet || (a->worker.life != 0 && holds_cells(a))) {
			link = &a->older;
			continue;
		}
		*link = a->older;
		retire_attachment(host, a);
	}
}

/* The predecessor's segment: as we are attached to it, or opened for this look. NULL: it is gone, or nobody owes it anything. */
static const struct map *open_predecessor(resc *host, struct map *opened, uint32_t *own_life)
{
	const struct map *map = &host->current->map;
	char path[MAP_PATH_SIZE];

	const struct attachment *a = predecessor_of_current(host);
	if (a != NULL) {
		*own_life = a->worker.life; /* our own lock does not show on our own descriptor */
		return &a->map;
	}
	map_path(path, host->instance, map->predecessor);
	if (map_open(opened, path, MAP_WORKER, NULL) != 0)
		return NULL;
	return opened->generation == map->predecessor ? opened : NULL;
}

/* Does a resource that we use still lack permits that are out in the segment before? */
static bool owes(const struct map *map, const struct resc_resource *resource, uint32_t *index)
{
	int found = policy_find_any(map, resource->name);

	if (found < 0)
		return false;
	*index = (uint32_t)found;
	return limit_debt(atomic_load_explicit(&map_state(map, *index)->limit, memory_order_relaxed)) != 0;
}

/* With rescd dead, whoever uses a resource sees to it that permits which were given back in the segment before count again. */
static void pay_debts(resc *host)
{
	const struct map *map = &host->current->map;
	struct map opened = {.fd = -1};
	const struct map *before = NULL;
	uint32_t own_life = 0;
	uint32_t index;

	if (map->private_mode || map->predecessor == 0)
		return;
	for (struct resc_resource *r = host->resources; r != NULL; r = r->next) {
		if (!owes(map, r, &index))
			continue;
		if (before == NULL) {
			before = open_predecessor(host, &opened, &own_life);
			if (before == NULL)
				break;
			worker_sweep(before, own_life);
		}
		if (!move_is_same(before, map, index))
			continue;
		/* Closing is the mover's. Where it is closed, what is left there only gets less. */
		if (limit_target(atomic_load_explicit(&map_state(before, index)->limit, memory_order_seq_cst)) == 0)
			move_permits(before, map_state(before, index), map, map_state(map, index));
	}
	map_close(&opened);
}

bool host_bring_keys(resc *host)
{
	struct map opened = {.fd = -1};
	uint32_t own_life = 0;
	bool there = false;

	pthread_mutex_lock(&host->lock);
	if (ensure_attached(host) == 0) {
		const struct attachment *a = host->current;
		const struct map *before = once_is_ready(&a->map) ? NULL : open_predecessor(host, &opened, &own_life);
		/* Nobody else's successor, and not one that was only announced. */
		if (before != NULL && superseded_by(before) == a->map.generation)
			once_move(before, &a->map, a->worker.life);
		there = once_is_ready(&a->map);
	}
	map_close(&opened);
	pthread_mutex_unlock(&host->lock);
	return there;
}

void host_look(resc *host)
{
	char path[MAP_PATH_SIZE];
	struct resc_error err = {0, ""};

	/* One thread looks; the others go on. */
	if (pthread_mutex_trylock(&host->lock) != 0)
		return;
	atomic_store_explicit(&host->next_look_ns, real_coarse_ns() + LOOK_INTERVAL_NS, memory_order_relaxed);
	map_path(path, host->instance, 0);
	if (ensure_attached(host) == 0 && (host->current->map.private_mode || !map_is_at(&host->current->map, path))) {
		if (attach_shared(host, &err))
			host->explained = false;
		else if (host->current->map.private_mode)
			snprintf(host->reason, sizeof host->reason, "%s", err.text);
	}
	if (host->current != NULL)
		pay_debts(host);
	uint64_t order = newest_that_is_busy(host);
	pthread_mutex_unlock(&host->lock);
	if (order != 0)
		wait_for_readers();
	pthread_mutex_lock(&host->lock);
	let_go_of_old(host, order);
	pthread_mutex_unlock(&host->lock);
	collect(host, false);
}

/* ---- the public calls ---- */

/* Under the lock of the list: a child that is forked meanwhile would keep a descriptor that it does not know of, and with it our token. */
static int attach_and_list(resc *host)
{
	pthread_mutex_lock(&list_lock);
	int r = attach_somehow(host);
	if (r == 0) {
		host->next = open_hosts;
		open_hosts = host;
	}
	pthread_mutex_unlock(&list_lock);
	return r;
}

resc *resc_open(const char *instance, struct resc_error *err)
{
	if (instance == NULL)
		instance = getenv("RESC_INSTANCE");
	if (instance == NULL || instance[0] == '\0')
		instance = "default";
	if (name_check(instance, err) != 0)
		return NULL;
	resc *host = calloc(1, sizeof *host);
	if (host == NULL) {
		error_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	pthread_once(&fork_once, watch_forks);
	pthread_mutex_init(&host->lock, NULL);
	snprintf(host->instance, sizeof host->instance, "%s", instance);
	atomic_store_explicit(&host->next_look_ns, real_coarse_ns() + LOOK_INTERVAL_NS, memory_order_relaxed);
	if (attach_and_list(host) != 0) {
		error_set(err, -ENOMEM, "out of memory");
		pthread_mutex_destroy(&host->lock);
		free(host);
		return NULL;
	}
	error_set(err, 0, "%s", "");
	return host;
}

static void unlist(resc *host)
{
	pthread_mutex_lock(&list_lock);
	resc **link = &open_hosts;
	while (*link != NULL && *link != host)
		link = &(*link)->next;
	if (*link == host)
		*link = host->next;
	pthread_mutex_unlock(&list_lock);
}

void resc_close(resc *host)
{
	if (host == NULL)
		return;
	unlist(host);
	pthread_mutex_lock(&host->lock);
	forget_views(host, NULL);
	while (host->current != NULL) {
		struct attachment *a = host->current;
		host->current = a->older;
		retire_attachment(host, a);
	}
	pthread_mutex_unlock(&host->lock);
	collect(host, true);
	while (host->resources != NULL) {
		struct resc_resource *r = host->resources;
		host->resources = r->next;
		free(r);
	}
	pthread_mutex_destroy(&host->lock);
	free(host);
}

int resc_status(resc *host, struct resc_status *out)
{
	if (host == NULL || out == NULL)
		return -EINVAL;
	memset(out, 0, sizeof *out);
	pthread_mutex_lock(&host->lock);
	ensure_attached(host);
	const struct attachment *a = host->current;
	out->mode = a == NULL || a->map.private_mode ? RESC_PRIVATE : RESC_SHARED;
	if (out->mode == RESC_SHARED) {
		out->generation = a->map.generation;
		out->worker = a->worker.life;
	} else {
		snprintf(out->reason, sizeof out->reason, "%s", host->reason);
	}
	snprintf(out->instance, sizeof out->instance, "%s", host->instance);
	pthread_mutex_unlock(&host->lock);
	return 0;
}

static struct resc_resource *find_handle(resc *host, const char *name)
{
	for (struct resc_resource *r = host->resources; r != NULL; r = r->next)
		if (strcmp(r->name, name) == 0)
			return r;
	return NULL;
}

static void explain_lookup(const resc *host, const char *name, int r, bool asked, struct resc_error *err)
{
	const char *instance = host->instance;

	if (r == -ENOENT && asked)
		error_set(err, r, "the configuration of instance %s has no resource \"%s\", and no pattern that matches it", instance,
		          name);
	else if (r == -ENOENT)
		error_set(err, r, "the configuration of instance %s has no resource \"%s\"", instance, name);
	else if (r == -ENOSPC && asked)
		error_set(err, r,
		          "instance %s has no room for resource \"%s\", and none that was made from a pattern is idle; raise \"made\" (the "
		          "log "
		          "of rescd says more)",
		          instance, name);
	else if (r == -EAGAIN && asked)
		error_set(err, r,
		          "resource \"%s\" has to be made by rescd, and that of instance %s does not answer: is it dead, or stopped?", name,
		          instance);
	else
		error_set(err, r, "cannot use resource \"%s\": %s", name, strerror(-r));
}

/* Where it is remembered that a name without a handle was refused. Two that share a place only ask more often. */
static struct refusal *refusal_of(resc *host, const char *name)
{
	struct refusal *refusal = &host->refusals[fnv1a(name, strlen(name)) % REFUSALS];

	if (strcmp(host->refused_names[refusal - host->refusals], name) != 0) {
		snprintf(host->refused_names[refusal - host->refusals], SEGMENT_NAME_SIZE, "%s", name);
		*refusal = (struct refusal){0};
	}
	return refusal;
}

static struct resc_resource *handle_new(resc *host, const char *name)
{
	struct resc_resource *resource = calloc(1, sizeof *resource);

	if (resource != NULL) {
		resource->host = host;
		snprintf(resource->name, sizeof resource->name, "%s", name);
	}
	return resource;
}

/* Puts a handle with its view into the list, unless another thread has found the same name meanwhile. */
static struct resc_resource *list_handle(resc *host, struct resc_resource *resource)
{
	struct resc_resource *other = find_handle(host, resource->name);

	if (other == NULL) {
		resource->next = host->resources;
		host->resources = resource;
		return resource;
	}
	retire_view(host, atomic_load_explicit(&resource->view, memory_order_relaxed));
	free(resource);
	return other;
}

static resc_resource *lookup_locked(resc *host, const char *name, struct resc_error *err)
{
	struct resc_resource *resource = find_handle(host, name);
	struct refusal refusal;

	if (resource != NULL)
		return resource;
	resource = handle_new(host, name);
	if (resource == NULL) {
		error_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	/* A copy: the place may be another name's while the lock is not held. */
	refusal = *refusal_of(host, name);
	int r = refresh_or_ask(resource, REQUEST_PATIENCE_MS, &refusal);
	*refusal_of(host, name) = refusal;
	if (r == 0)
		return list_handle(host, resource);
	explain_lookup(host, name, r, refusal.answer == r, err);
	free(resource);
	return NULL;
}

resc_resource *resc_lookup(resc *host, const char *name, struct resc_error *err)
{
	if (host == NULL) {
		error_set(err, -EINVAL, "resc_lookup without a host");
		return NULL;
	}
	if (name_check(name, err) != 0)
		return NULL;
	pthread_mutex_lock(&host->lock);
	resc_resource *resource = lookup_locked(host, name, err);
	pthread_mutex_unlock(&host->lock);
	collect(host, false);
	if (resource != NULL)
		error_set(err, 0, "%s", "");
	return resource;
}

const char *resc_name(const resc_resource *resource)
{
	return resource == NULL ? "" : resource->name;
}
