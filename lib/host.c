/* SPDX-License-Identifier: MIT */
/*
 * A host's view: opening and closing it.
 *
 * A call never waits for anything here. It finds its resource's view through one pointer (in a read-side section), checks four words, and
 * goes. Only when one of them has changed does it come here, under the host's lock (resource_refresh):
 *
 *	policy sequence	the configuration changed: the view is built anew (view.c)
 *	superseded	the segment has a successor: this worker registers there (attach.c), the resource's words are moved (move.c)
 *	epoch		this is a forked child: it registers as a worker of its own, and leaves the parent's attachments alone
 *	view is NULL	first call, or the attachment changed
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "error.h"
#include "host.h"

_Thread_local struct thread thread_data;
_Atomic uint32_t thread_next_block;
#ifdef RCU_TSAN
char rcu_tsan_tag;
#endif

resc *resc_open(const char *instance, struct resc_error *err)
{
	/* secure_: whoever runs a setuid program must not choose for it. */
	if (instance == NULL)
		instance = secure_getenv("RESC_INSTANCE");
	if (instance == NULL || instance[0] == '\0')
		instance = "default";
	if (name_check(instance, err) != 0)
		return NULL;
	resc *host = calloc(1, sizeof *host);
	if (host == NULL) {
		error_set(err, -ENOMEM, "out of memory");
		return NULL;
	}
	pthread_mutex_init(&host->lock, NULL);
	snprintf(host->instance, sizeof host->instance, "%s", instance);
	atomic_store_explicit(&host->next_look_ns, real_coarse_ns() + LOOK_INTERVAL_NS, memory_order_relaxed);
	if (host_attach_and_list(host) != 0) {
		error_set(err, -ENOMEM, "out of memory");
		pthread_mutex_destroy(&host->lock);
		free(host);
		return NULL;
	}
	error_set(err, 0, "%s", "");
	return host;
}

void resc_close(resc *host)
{
	if (host == NULL)
		return;
	host_unlist(host);
	pthread_mutex_lock(&host->lock);
	host_forget_views(host, NULL);
	while (host->current != NULL) {
		struct attachment *a = host->current;
		host->current = a->older;
		host_retire_attachment(host, a);
	}
	pthread_mutex_unlock(&host->lock);
	host_collect(host, true);
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
	host_ensure_attached(host);
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
