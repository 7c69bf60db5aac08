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
#include "line.h"
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

const char *breaker_words(unsigned tag)
{
	return tag == TAG_HALF_OPEN ? "half-open" : breaker_name(tag);
}

const char *override_words(enum override_mode mode)
{
	static const char *const texts[] = {"not forced", "forced open", "forced closed", "disabled"};

	return texts[mode & 3];
}

const char *breaker_state_words(const struct inspect_resource *resource)
{
	switch (part_mode_of(&resource->policy, PART_BREAKER)) {
	case PART_OFF:
		return "no breaker";
	case PART_SHADOW:
		return resource->breaker == TAG_OPEN        ? "open (shadow)"
		       : resource->breaker == TAG_HALF_OPEN ? "half-open (shadow)"
		                                            : "closed (shadow)";
	default:
		return breaker_words(resource->breaker);
	}
}

const char *state_words(const struct inspect_resource *resource)
{
	if (resource->override.mode != OVERRIDE_NONE)
		return override_words(resource->override.mode);
	if (part_mode_of(&resource->policy, PART_BREAKER) == PART_ENFORCE && resource->probe_due)
		return "open, probe due";
	return breaker_state_words(resource);
}

enum style state_style(const struct inspect_resource *resource)
{
	if (resource->override.mode != OVERRIDE_NONE)
		return resource->override.mode == OVERRIDE_OPEN ? STYLE_BAD : STYLE_DOUBT;
	enum part_mode mode = part_mode_of(&resource->policy, PART_BREAKER);
	if (resource->breaker == TAG_CLOSED || mode == PART_OFF)
		return STYLE_PLAIN;
	return resource->breaker == TAG_OPEN && mode == PART_ENFORCE ? STYLE_BAD : STYLE_DOUBT;
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
	case REASON_PROBE_FAILED:
		return a + b == 1 ? words("%s", reason_text(reason)) : words("%" PRIu64 " of %" PRIu64 " probes failed", b, a + b);
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

struct text injection_words(const struct injection *i)
{
	bool slows = i->latency_ms != 0 && i->share_ppm != 0;
	struct text fail = {""}, wait = {""}, t;

	if (i->fail_ppm != 0)
		snprintf(fail.s, sizeof(fail.s), "%.10s fail", share_text(i->fail_ppm).s);
	if (slows)
		snprintf(wait.s, sizeof(wait.s), "%.10s%s+%.9s", i->share_ppm < 1000000 ? share_text(i->share_ppm).s : "",
		         i->share_ppm < 1000000 ? " " : "", duration_setting(i->latency_ms).s);
	snprintf(t.s, sizeof(t.s), "%.16s%s%.21s", fail.s, i->fail_ppm != 0 && slows ? ", " : "", wait.s);
	return t;
}

static void say_injection(struct line *line, const struct inspect_resource *r)
{
	if (r->injection.on)
		say_also(line, "injected: %s, %s left", injection_words(&r->injection.what).s,
		         duration_text(r->injection.until_ms - r->now_ms).s);
}

static struct words override_why(const struct inspect_resource *r)
{
	const struct inspect_override *o = &r->override;
	const char *text = o->text[0] != '\0' ? o->text : "no reason given";

	if (o->until_ms == 0)
		return words("until released; %s: %s", user_text(o->uid).s, text);
	return words("%s left; %s: %s", duration_text(o->until_ms - r->now_ms).s, user_text(o->uid).s, text);
}

/* What the breaker waits for, and why it is where it is. */
static void say_breaker(struct line *line, const struct inspect_resource *r, const struct history *history)
{
	if (part_mode_of(&r->policy, PART_BREAKER) == PART_OFF)
		return;
	if (r->breaker == TAG_HALF_OPEN) {
		say_also(line, "%u of %" PRIu64 " probe%s out", r->probes_out, r->policy.probes, plural(r->policy.probes));
		if (r->policy.trial_failure_rate_ppm != 0)
			say(line, ", %u ok and %u failed of %" PRIu64, r->trial_ok, r->trial_failed, r->policy.probes);
		else
			say(line, ", %u of %" PRIu64 " ok", r->trial_ok, r->policy.successes);
		return;
	}
	/* "probe due" stands in the state, unless the mode does. */
	if (r->breaker == TAG_OPEN && !r->probe_due)
		say_also(line, "probe in %s", duration_text(r->due_ms - r->now_ms).s);
	else if (r->probe_due && part_mode_of(&r->policy, PART_BREAKER) == PART_SHADOW)
		say_also(line, "probe due");
	if (r->reason != REASON_NONE)
		say_also(line, "%s", reason_words(r->reason, history_find(history, r)).s);
}

static const char *would(const struct inspect_resource *r, enum policy_part part)
{
	return part_mode_of(&r->policy, part) == PART_SHADOW ? "would refuse" : "refuses";
}

static bool is_full(const struct inspect_resource *r)
{
	return r->limited && r->in_flight >= r->effective;
}

static bool is_spent(const struct inspect_resource *r)
{
	return r->rated && r->rate_tokens < 1;
}

enum style why_style(const struct inspect_resource *r)
{
	enum style style = state_style(r);

	if (style != STYLE_PLAIN)
		return style;
	return r->injection.on || r->throttle_ppm > 0 || r->waiting > 0 || is_full(r) || is_spent(r) ? STYLE_DOUBT : STYLE_PLAIN;
}

/* What the other guards do now. */
static void say_guards(struct line *line, const struct inspect_resource *r)
{
	if (r->throttle_ppm > 0)
		say_also(line, "the throttle %s %s of the calls", would(r, PART_THROTTLE), percent_text(r->throttle_ppm, 1000000).s);
	if (is_full(r))
		say_also(line, "the bulkhead is full%s", part_mode_of(&r->policy, PART_BULKHEAD) == PART_SHADOW ? " (shadow)" : "");
	if (r->waiting > 0)
		say_also(line, "%u wait%s for a permit", r->waiting, r->waiting == 1 ? "s" : "");
	if (is_spent(r))
		say_also(line, "the rate limit is reached%s", part_mode_of(&r->policy, PART_RATE) == PART_SHADOW ? " (shadow)" : "");
	if (r->limited && r->effective < r->limit)
		say_also(line, "limit is moving to %u: holders of earlier permits are still inside", r->limit);
}

/* Guards that only count. That the breaker is one of them stands in the state. */
static void say_shadows(struct line *line, const struct inspect_resource *r)
{
	const char *lead = "in shadow mode: ";

	for (enum policy_part part = PART_RETRY; part < PARTS; part++) {
		if (part_mode_of(&r->policy, part) != PART_SHADOW)
			continue;
		if (lead[0] == 'i')
			say_also(line, "%s%s", lead, part_name(part));
		else
			say(line, "%s%s", lead, part_name(part));
		lead = ", ";
	}
}

struct words why_words(const struct inspect_resource *r, const struct history *history)
{
	struct line line = {.used = 0};

	/* That it was meant comes before what came of it. */
	say_injection(&line, r);
	if (r->override.mode != OVERRIDE_NONE) {
		say_also(&line, "%s", override_why(r).s);
		return words("%.255s", line.s);
	}
	/* An open breaker is all that counts; while nothing is refused by it, the other guards come first. */
	if (r->breaker == TAG_CLOSED || part_mode_of(&r->policy, PART_BREAKER) != PART_ENFORCE)
		say_guards(&line, r);
	say_breaker(&line, r, history);
	say_shadows(&line, r);
	return words("%.255s", line.s);
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
