/* SPDX-License-Identifier: MIT */
/*
 * Attachments: the segments that this process is registered in, the newest of them current.
 *
 * Attaching opens a segment, checks it (map.c) and registers as a worker (worker.c); where that is not possible, a private segment does. A
 * segment that says it is superseded is followed to its successor, as far as it goes.
 *
 * fork(): the parent's liveness tokens are not in the child (worker.c). A child of fork() closes the descriptors of all open views, which
 * are of no use to it. It forgets the parent's attachments, untouched, with its first call.
 *
 * Letting go: whoever is in a call may still use a view or an attachment that was replaced. They are retired under the host's lock, and
 * freed after a grace period, which is waited for without it, and only when there is enough to free.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "deadline.h"
#include "error.h"
#include "failpoint.h"
#include "host.h"
#include "move.h"
#include "policy.h"
#include "words.h"

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

static void after_fork_child(void)
{
	urcu_bp_after_fork_child();
	for (resc *h = open_hosts; h != NULL; h = h->next) {
		for (struct attachment *a = h->current; a != NULL; a = a->older)
			map_close_descriptor(&a->map);
		for (struct attachment *a = h->retired_attachments; a != NULL; a = a->older)
			map_close_descriptor(&a->map);
	}
	unlock_all();
}

static void watch_forks(void)
{
	pthread_atfork(before_fork, after_fork_parent, after_fork_child);
}

/* ---- letting go ---- */

bool host_finds_damaged(struct attachment *a)
{
	a->damaged = a->damaged || !map_is_sound(&a->map);
	return a->damaged;
}

void host_retire_view(resc *host, struct view *view)
{
	if (view == NULL)
		return;
	view->next_retired = host->retired_views;
	host->retired_views = view;
	host->retired++;
}

/* Every view of an attachment must be gone from the handles before the attachment is. */
void host_forget_views(resc *host, const struct attachment *attachment)
{
	for (struct resc_resource *r = host->resources; r != NULL; r = r->next) {
		struct view *v = atomic_load_explicit(&r->view, memory_order_relaxed);
		if (v == NULL || (attachment != NULL && v->attachment != attachment))
			continue;
		atomic_store_explicit(&r->view, NULL, memory_order_release);
		host_retire_view(host, v);
	}
}

void host_retire_attachment(resc *host, struct attachment *a)
{
	host_forget_views(host, a);
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
	if (a->epoch == process_epoch() && !a->map.private_mode) {
		if (host_finds_damaged(a))
			worker_forsake(&a->worker);
		else
			worker_unregister_from(&a->map, &a->worker, a->used);
	}
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
void host_collect(resc *host, bool all)
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
		FAILPOINT("attach.opened");
		r = worker_register(&a->map, &a->worker);
		if (r == -ENOSPC)
			error_set(err, r, "all %u worker slots of %s are taken; raise \"workers\"", a->map.dims.workers, path);
		else if (r == -EBUSY)
			error_set(err, r, "cannot register in %s: another process holds locks that are not its own", path);
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
			host_forget_views(host, NULL);
			push_attachment(host, a);
			return true;
		}
		free_attachment(a);
	}
	return false;
}

/* Has a successor taken words over? Then the segment is good for tickets that were given out in it, and for no call any more. */
static bool is_left_behind(const struct map *map)
{
	for (uint32_t i = 0; i < map->dims.resources; i++)
		if (breaker_tag(atomic_load_explicit(&map_state(map, i)->breaker, memory_order_acquire)) == TAG_MOVED)
			return true;
	return false;
}

/*
 * The name leads to a segment that was left behind: only its successor will do. It is out of reach for instance in a container that has
 * the one file mounted, and not the directory.
 */
static bool pass_by(resc *host, struct attachment *left, uint64_t successor, struct resc_error *err)
{
	bool there = follow(host, successor, err);

	free_attachment(left);
	if (there) {
		host->reason[0] = '\0';
		return true;
	}
	error_set(err, -ENOLINK,
	          "the segment was superseded by %016llx, which cannot be reached from here: " SEGMENT_DIR
	          " has to be the same directory as that of rescd",
	          (unsigned long long)successor);
	return false;
}

/* The segment at the instance's name becomes current, and what it is superseded by. False with the reason. */
bool host_attach_shared(resc *host, struct resc_error *err)
{
	char path[MAP_PATH_SIZE];

	map_path(path, host->instance, 0);
	struct attachment *a = attach_path(path, err);
	if (a == NULL)
		return false;
	uint64_t successor = map_superseded_by(&a->map);
	if (successor != 0 && is_left_behind(&a->map))
		return pass_by(host, a, successor, err);
	host_forget_views(host, NULL);
	push_attachment(host, a);
	host->reason[0] = '\0';
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
	host_forget_views(host, NULL);
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
		map_close_descriptor(&a->map);
		host_retire_attachment(host, a);
	}
}

static int attach_somehow(resc *host)
{
	struct resc_error err = {0, ""};

	return host_attach_shared(host, &err) ? 0 : attach_private(host, &err);
}

/* Somebody has cut or overwritten the segment. Zeros must not be taken for "closed, and nothing in use". */
static int leave_damaged(resc *host)
{
	host->explained = false;
	return attach_somehow(host);
}

/* The current attachment is one that can be used now. The lock is held. */
int host_ensure_attached(resc *host)
{
	struct resc_error err = {0, ""};

	forget_parent(host);
	if (host->current == NULL)
		return attach_somehow(host);
	if (host_finds_damaged(host->current))
		return leave_damaged(host);
	for (int i = 0; i < 8; i++) {
		uint64_t successor = host->current->map.private_mode ? 0 : map_superseded_by(&host->current->map);
		if (successor == 0 || successor == host->current->map.generation)
			return 0;
		if (follow(host, successor, &err))
			continue;
		/* The successor is gone: whatever the instance's name leads to, or a private view. */
		char path[MAP_PATH_SIZE];
		map_path(path, host->instance, 0);
		if (map_is_at(&host->current->map, path) && !is_left_behind(&host->current->map))
			return 0; /* it was only announced; the old one still counts */
		return attach_somehow(host);
	}
	return -EAGAIN;
}

struct attachment *host_attachment(resc *host, uint64_t generation, uint32_t life)
{
	for (struct attachment *a = host->current; a != NULL; a = a->older)
		if (a->map.generation == generation && a->worker.life == life && a->epoch == process_epoch() && !a->damaged)
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

/* The attachment to the segment that the current one supersedes, or NULL. */
struct attachment *host_predecessor(const resc *host)
{
	struct attachment *a = host->current->older;

	while (a != NULL && (a->map.generation != host->current->map.predecessor || host_finds_damaged(a)))
		a = a->older;
	return a;
}

/* ---- the list of the process ---- */

/* Under the lock of the list: a child that is forked meanwhile would keep a descriptor that it does not know of. */
int host_attach_and_list(resc *host)
{
	pthread_once(&fork_once, watch_forks);
	pthread_mutex_lock(&list_lock);
	int r = attach_somehow(host);
	if (r == 0) {
		host->next = open_hosts;
		open_hosts = host;
	}
	pthread_mutex_unlock(&list_lock);
	return r;
}

void host_unlist(resc *host)
{
	pthread_mutex_lock(&list_lock);
	for (resc **link = &open_hosts; *link != NULL; link = &(*link)->next) {
		if (*link != host)
			continue;
		*link = host->next;
		break;
	}
	pthread_mutex_unlock(&list_lock);
}
