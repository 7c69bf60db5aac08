/* SPDX-License-Identifier: MIT */
/*
 * From a name to a handle, and a handle's view made anew.
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

#include "error.h"
#include "host.h"
#include "request.h"

#define ASK_TRIES 3

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
	int r = host_refresh_view(resource);

	/* More than once where the segment is replaced, or the record retired, in between. */
	for (int i = 0; i < ASK_TRIES && r == -ENOENT; i++) {
		int asked = ask(resource->host, resource->name, patience_ms, refusal);
		if (asked != 0)
			return asked;
		r = host_refresh_view(resource);
	}
	return r;
}

int resource_refresh(struct resc_resource *resource)
{
	resc *host = resource->host;

	pthread_mutex_lock(&host->lock);
	int r = refresh_or_ask(resource, REQUEST_CALL_PATIENCE_MS, &resource->refusal);
	pthread_mutex_unlock(&host->lock);
	host_collect(host, false);
	return r;
}

/* ---- handles ---- */

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
	host_retire_view(host, atomic_load_explicit(&resource->view, memory_order_relaxed));
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
	host_collect(host, false);
	if (resource != NULL)
		error_set(err, 0, "%s", "");
	return resource;
}

const char *resc_name(const resc_resource *resource)
{
	return resource == NULL ? "" : resource->name;
}
