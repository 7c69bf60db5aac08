/* SPDX-License-Identifier: MIT */
/* Why a resource is as it is, in words. */
#ifndef RESCTL_WHY_H
#define RESCTL_WHY_H

#include "event.h"
#include "format.h"
#include "inspect.h"
#include "table.h"

struct words {
	char s[256];
};

/* The newest events, for the values that decided something. */
struct history {
	struct event *events;
	size_t count;
};

/* Without memory the history is empty, and reasons come without values. */
void history_read(struct history *history, const struct map *map, size_t most);
/* The transition that brought the resource where it is; NULL when it is not in the ring any more. */
const struct event *history_find(const struct history *history, const struct inspect_resource *resource);
void history_free(struct history *history);

/* "closed", "open", "open, probe due", "half-open"; these "(shadow)" where the breaker only counts; "no breaker"; or the override:
 * "forced open", "forced closed", "disabled". */
const char *state_words(const struct inspect_resource *resource);
enum style state_style(const struct inspect_resource *resource);
const char *breaker_words(unsigned tag);
/* The state without the override and without what is due: "open", "open (shadow)". */
const char *breaker_state_words(const struct inspect_resource *resource);
const char *override_words(enum override_mode mode);
/* What is injected: "20% fail, +300ms", "20% fail, 50% +300ms". */
struct text injection_words(const struct injection *injection);
/* Of the reason: also where the breaker is closed and another guard refuses. */
enum style why_style(const struct inspect_resource *resource);
/* What decided a transition: "5 consecutive failures (limit 5)". event may be NULL. */
struct words reason_words(enum reason reason, const struct event *event);
/* One line for a list: the reason and what comes next, or the override's reason and end. "" for a resource of which there is nothing to
 * say. */
struct words why_words(const struct inspect_resource *resource, const struct history *history);
/* The name of a user, or "uid 1234". Asks the name service, so only where people read it. */
struct text user_text(uid_t uid);
/* "rescd (pid 12) is running, heartbeat 0.3s ago", or what is wrong and what that means. */
struct words daemon_words(const struct inspect_daemon *daemon);

#endif
