/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "open" makes people ask "since when, why, and until when", and the answer should come without a second command. The
 * words are made here for all commands, so that list, show and events never tell different stories.
 */
#include "why.h"

#include <inttypes.h>
#include <pwd.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "snapshot_json.h"

/* ---- history ---- */

void history_read(struct history *history, const struct map *map, size_t most)
{
	if (most > map->dims.events)
		most = map->dims.events;
	history->events = calloc(most, sizeof(*history->events));
	history->count = history->events == NULL ? 0 : event_read(map, 0, history->events, most);
}

const struct event *history_find(const struct history *history, const struct inspect_resource *resource)
{
	for (size_t i = history->count; i-- > 0;) {
		const struct event *event = &history->events[i];
		if (event->kind == EVENT_BREAKER && event->generation == resource->generation && event->reason == resource->reason &&
		    strcmp(event->resource, resource->name) == 0)
			return event;
	}
	return NULL;
}

void history_free(struct history *history)
{
	free(history->events);
	*history = (struct history){0};
}

/* ---- words ---- */

__attribute__((format(printf, 1, 2))) static struct words words(const char *format, ...)
{
	struct words w;
	va_list args;

	va_start(args, format);
	vsnprintf(w.s, sizeof(w.s), format, args);
	va_end(args);
	return w;
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

const char *breaker_words(unsigned tag)
{
	return tag == TAG_HALF_OPEN ? "half-open" : breaker_name(tag);
}

const char *override_words(enum override_mode mode)
{
	static const char *const texts[] = {"not forced", "forced open", "forced closed", "disabled"};

	return texts[mode & 3];
}

const char *state_words(const struct inspect_resource *resource)
{
	if (resource->override.mode != OVERRIDE_NONE)
		return override_words(resource->override.mode);
	return resource->probe_due ? "open, probe due" : breaker_words(resource->breaker);
}

enum style state_style(const struct inspect_resource *resource)
{
	if (resource->override.mode != OVERRIDE_NONE)
		return resource->override.mode == OVERRIDE_OPEN ? STYLE_BAD : STYLE_DOUBT;
	if (resource->breaker == TAG_CLOSED)
		return STYLE_PLAIN;
	return resource->breaker == TAG_OPEN ? STYLE_BAD : STYLE_DOUBT;
}

static struct words share_words(uint64_t part, uint64_t whole, const char *how)
{
	return words("%" PRIu64 " of %" PRIu64 " calls %s (%s)", part, whole, how, percent_text(part, whole).s);
}

struct words reason_words(enum reason reason, const struct event *event)
{
	uint64_t a = event != NULL ? event->value[0] : 0, b = event != NULL ? event->value[1] : 0;

	/* No value is 0 in an event of these reasons, except where rescd wrote it for a process that had died. */
	switch (a + b == 0 ? REASON_NONE : reason) {
	case REASON_CONSECUTIVE:
		return words("%" PRIu64 " consecutive failure%s (limit %" PRIu64 ")", a, plural(a), b);
	case REASON_FAILURE_RATE:
		return share_words(a, b, "failed");
	case REASON_SLOW_RATE:
		return share_words(a, b, "were slow");
	case REASON_PROBES_OK:
		return words("%" PRIu64 " probe%s succeeded", a, plural(a));
	default:
		return words("%s", reason_text(reason));
	}
}

struct text user_text(uid_t uid)
{
	const struct passwd *user = getpwuid(uid);
	struct text t;

	if (user != NULL && user->pw_name[0] != '\0')
		snprintf(t.s, sizeof(t.s), "%s", user->pw_name);
	else
		snprintf(t.s, sizeof(t.s), "uid %u", (unsigned)uid);
	return t;
}

static struct words override_why(const struct inspect_resource *r)
{
	const struct inspect_override *o = &r->override;
	const char *text = o->text[0] != '\0' ? o->text : "no reason given";

	if (o->until_ms == 0)
		return words("until released; %s: %s", user_text(o->uid).s, text);
	return words("%s left; %s: %s", duration_text(o->until_ms - r->now_ms).s, user_text(o->uid).s, text);
}

struct words why_words(const struct inspect_resource *r, const struct history *history)
{
	struct words reason = reason_words(r->reason, history_find(history, r));

	if (r->override.mode != OVERRIDE_NONE)
		return override_why(r);
	if (r->reason == REASON_NONE)
		reason.s[0] = '\0';
	const char *separator = reason.s[0] != '\0' ? "; " : "";
	switch (r->breaker) {
	case TAG_OPEN:
		/* "probe due" stands in the state. */
		if (r->probe_due)
			return words("%.200s", reason.s);
		return words("probe in %s%s%.200s", duration_text(r->due_ms - r->now_ms).s, separator, reason.s);
	case TAG_HALF_OPEN:
		return words("%u of %" PRIu64 " probe%s out, %u ok of %" PRIu64, r->probes_out, r->policy.probes, plural(r->policy.probes),
		             r->trial_ok, r->policy.successes);
	default:
		if (r->limited && r->effective < r->limit)
			return words("limit is moving to %u: holders of earlier permits are still inside", r->limit);
		return words("%.200s", reason.s);
	}
}

struct words daemon_words(const struct inspect_daemon *d)
{
	struct text age = duration_text(d->now_ms - d->heartbeat_ms);

	if (!d->alive)
		return words("rescd is not running; last heartbeat %s ago; workers go on", age.s);
	if (d->now_ms - d->heartbeat_ms > HEARTBEAT_SILENT_MS)
		return words("rescd (pid %d) is there but silent, stopped or hung; last heartbeat %s ago; workers go on", (int)d->pid,
		             age.s);
	return words("rescd (pid %d) is running, heartbeat %s ago", (int)d->pid, age.s);
}
