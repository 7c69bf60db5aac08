/* SPDX-License-Identifier: MIT */
/*
 * The event ring: what happened lately, written by whoever did it, read by resctl and rescd. It is a record, never an input: nothing in
 * the library decides by it, so an event that is lost with its writer costs a line of history and nothing else.
 *
 * Writer: n = fetch_add(next_event) -> stamp of place n mod size: busy with somebody alive, or of a later number: take another n -> CAS
 * stamp -> BUSY|life -> fields (release stores) -> CAS stamp BUSY|life -> n+1 (release).
 * Reader: stamp (acquire) is n+1 -> fields (acquire loads) -> stamp again. A reader that saw one field of a newer writer also sees
 * that writer's claim, so it notices. Nobody waits: a writer passes a busy place, a reader leaves it out.
 *
 * A writer that is stopped keeps one place. A dead one too, until a reaper sets BUSY|life -> 0, or another writer comes by and finds that
 * nobody holds the token of that life; then the last CAS of a writer that was not dead after all fails, and its event is dropped. Who has
 * no slot (rescd, resctl: life 0) takes a life for the event, and gives its token back after it: so the place of one that was killed there
 * is found free like any other. Only in a private segment, which lives no longer than its process, no token can be asked for.
 */
#include "event.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "chars.h"
#include "clock.h"
#include "failpoint.h"
#include "words.h"
#include "worker.h"

#define CLAIM_TRIES 16

/* ---- writing ---- */

static struct event_record *event_place(const struct map *map, uint64_t n)
{
	return map_event(map, (uint32_t)n & (map->dims.events - 1));
}

/* Nobody will ever finish what is being written there. A life that is our own is another thread of ours. */
static bool is_abandoned(const struct map *map, uint64_t stamp, uint32_t own_life)
{
	uint64_t life = stamp & ~EVENT_BUSY;

	if (map->private_mode || life == 0 || life == own_life)
		return false;
	return life > UINT32_MAX || !life_is_held(map, (uint32_t)life); /* no life looks like the first: damage */
}

/* Takes a number and its place. NULL: every place that was tried is busy (or the ring is damaged); the event is dropped. */
static struct event_record *claim(const struct map *map, uint32_t life, uint64_t *number)
{
	for (int i = 0; i < CLAIM_TRIES; i++) {
		/* relaxed: the number only spreads the writers; the stamp decides. */
		uint64_t n = atomic_fetch_add_explicit(&map->live->next_event, 1, memory_order_relaxed) & ~EVENT_BUSY;
		struct event_record *record = event_place(map, n);
		uint64_t stamp = atomic_load_explicit(&record->stamp, memory_order_relaxed);
		bool busy = (stamp & EVENT_BUSY) != 0;
		if (n + 1 == EVENT_BUSY || (busy ? !is_abandoned(map, stamp, life) : stamp > n))
			continue;
		/* acq_rel: our fields come after the claim, and after those of the writer before us. */
		if (atomic_compare_exchange_strong_explicit(&record->stamp, &stamp, EVENT_BUSY | life, memory_order_acq_rel,
		                                            memory_order_relaxed)) {
			*number = n + 1;
			return record;
		}
	}
	return NULL;
}

static uint64_t kind_make(const struct event *event)
{
	return (uint64_t)(event->kind & 0xff) | (uint64_t)(event->from & 0xff) << 8 | (uint64_t)(event->to & 0xff) << 16 |
	       (uint64_t)(event->reason & 0xff) << 24 | (uint64_t)event->generation << 32;
}

static void fill(struct event_record *record, const struct event *event)
{
	/* release, each: see the head comment. */
	atomic_store_explicit(&record->ms, event->ms, memory_order_release);
	atomic_store_explicit(&record->kind, kind_make(event), memory_order_release);
	atomic_store_explicit(&record->pid, (uint64_t)(uint32_t)event->pid | (uint64_t)event->uid << 32, memory_order_release);
	atomic_store_explicit(&record->value[0], event->value[0], memory_order_release);
	atomic_store_explicit(&record->value[1], event->value[1], memory_order_release);
	chars_store(record->resource, sizeof(record->resource), event->resource);
	chars_store(record->text, sizeof(record->text), event->text);
}

/* Somebody else has written it meanwhile: see event_write_unless. */
static bool is_done(const word *done, uint64_t before)
{
	/* acquire: as whoever changed it meant it */
	return done != NULL && atomic_load_explicit(done, memory_order_acquire) != before;
}

static void write_as(const struct map *map, uint32_t life, struct event *event, const word *done, uint64_t before)
{
	struct event_record *record = claim(map, life, &event->number);

	if (record == NULL)
		return;
	FAILPOINT("event.claimed");
	uint64_t mine = EVENT_BUSY | life;
	if (is_done(done, before)) {
		event->number = 0;
	} else {
		fill(record, event);
		FAILPOINT("event.filled");
	}
	/* release: the fields are there before the stamp says so. A failure: somebody took us for dead. */
	atomic_compare_exchange_strong_explicit(&record->stamp, &mine, event->number, memory_order_release, memory_order_relaxed);
}

void event_write_unless(const struct map *map, uint32_t life, struct event *event, const word *done, uint64_t before)
{
	uint32_t taken = 0;

	if (event->ms == 0)
		event->ms = clock_coarse_ms(map);
	event->number = 0;
	/* Without one it is written all the same: only its place could not be taken back from the dead. */
	if (life == 0 && map_has_descriptor(map) && life_take(map, map->fd, &taken) == 0)
		life = taken;
	write_as(map, life, event, done, before);
	if (taken != 0)
		life_give_back(map->fd, taken);
}

void event_write(const struct map *map, uint32_t life, struct event *event)
{
	event->ms = 0;
	event->pid = getpid();
	event->uid = getuid();
	event_write_unless(map, life, event, NULL, 0);
}

/* ---- reading ---- */

static void unpack(struct event *event, uint64_t kind, uint64_t pid)
{
	unsigned reason = (unsigned)(kind >> 24) & 0xff;

	event->kind = (enum event_kind)(kind & 0xff);
	event->from = (unsigned)(kind >> 8) & 3;
	event->to = (unsigned)(kind >> 16) & 3;
	event->reason = reason < REASONS ? (enum reason)reason : REASON_NONE;
	event->generation = (uint16_t)(kind >> 32);
	event->pid = (pid_t)(pid & INT32_MAX);
	event->uid = (uid_t)(pid >> 32);
}

/* Copies event n. False when it is not there (yet, or any more), or is none. */
static bool copy(const struct map *map, uint64_t n, struct event *event)
{
	const struct event_record *record = event_place(map, n);

	if (atomic_load_explicit(&record->stamp, memory_order_acquire) != n + 1)
		return false;
	event->number = n + 1;
	event->ms = atomic_load_explicit(&record->ms, memory_order_acquire) & TIME_MASK;
	uint64_t kind = atomic_load_explicit(&record->kind, memory_order_acquire);
	uint64_t pid = atomic_load_explicit(&record->pid, memory_order_acquire);
	event->value[0] = atomic_load_explicit(&record->value[0], memory_order_acquire) & INT64_MAX;
	event->value[1] = atomic_load_explicit(&record->value[1], memory_order_acquire) & INT64_MAX;
	chars_load(record->resource, sizeof(record->resource), event->resource);
	chars_load(record->text, sizeof(record->text), event->text);
	if (atomic_load_explicit(&record->stamp, memory_order_acquire) != n + 1 || (kind & 0xff) >= EVENT_KINDS)
		return false;
	unpack(event, kind, pid);
	return true;
}

/*
 * The transitions and deaths found so far: a hash table of indices into events[], so that the second record of one is found without
 * looking at all pairs. Without memory for it, both are given.
 */
struct seen {
	const struct event *events;
	uint32_t *slots; /* index + 1, or 0 */
	size_t mask;
};

static void seen_open(struct seen *seen, const struct event *events, size_t max)
{
	size_t size = 16;
	while (size < 2 * max)
		size *= 2;
	seen->events = events;
	seen->slots = calloc(size, sizeof(*seen->slots));
	seen->mask = size - 1;
}

/* A transition has its generation, a death its life and pid. */
static bool is_same(const struct event *a, const struct event *b)
{
	if (a->kind != b->kind)
		return false;
	if (a->kind == EVENT_REAPED)
		return a->value[0] == b->value[0] && a->value[1] == b->value[1];
	return a->generation == b->generation && a->to == b->to && strcmp(a->resource, b->resource) == 0;
}

/* Where that one is, or where it would be put. */
static uint32_t *seen_find(const struct seen *seen, const struct event *event)
{
	size_t i = fnv1a(event->resource, strlen(event->resource)) + event->generation + event->value[0] * (event->kind == EVENT_REAPED);
	for (;; i++) {
		uint32_t *slot = &seen->slots[i & seen->mask];
		if (*slot == 0)
			return slot;
		const struct event *other = &seen->events[*slot - 1];
		if (is_same(other, event))
			return slot;
	}
}

/*
 * Goes back from the newest. events[] is filled from its end; one that turns up again, further back, was the first record of it, and the
 * later one is given up (number 0). Also the places at or below `after` are looked at for that: whoever reads on and on gets each once.
 */
static size_t collect(const struct map *map, uint64_t after, struct event *events, size_t max, struct seen *seen)
{
	uint64_t next = atomic_load_explicit(&map->live->next_event, memory_order_acquire) & ~EVENT_BUSY;
	uint64_t first = next < map->dims.events ? 0 : next - map->dims.events;
	size_t at = max;
	size_t singles = 0;

	for (uint64_t n = next; n-- > first;) {
		bool wanted = n + 1 > after && at > 0;
		struct event event;
		if (!wanted && singles == 0)
			break;
		if (!copy(map, n, &event))
			continue;
		bool single = (event.kind == EVENT_BREAKER || event.kind == EVENT_REAPED) && seen->slots != NULL;
		uint32_t *slot = single ? seen_find(seen, &event) : NULL;
		if (single && *slot != 0)
			events[*slot - 1].number = 0;
		if (!wanted)
			continue;
		events[--at] = event;
		if (single) {
			*slot = (uint32_t)at + 1;
			singles++;
		}
	}
	return at;
}

size_t event_read(const struct map *map, uint64_t after, struct event *events, size_t max)
{
	struct seen seen;
	size_t count = 0;

	if (max > map->dims.events)
		max = map->dims.events;
	if (max == 0)
		return 0;
	seen_open(&seen, events, max);
	for (size_t i = collect(map, after, events, max, &seen); i < max; i++) {
		if (events[i].number != 0)
			events[count++] = events[i];
	}
	free(seen.slots);
	return count;
}

/* ---- of a superseded segment ---- */

void event_carry(const struct map *from, const struct map *to)
{
	if (!map_has(from, 1))
		return;
	uint64_t next = atomic_load_explicit(&from->live->next_event, memory_order_acquire) & ~EVENT_BUSY;
	uint64_t n = atomic_load_explicit(&from->live->events_carried, memory_order_relaxed);

	if (n > next || next - n > from->dims.events)
		n = next < from->dims.events ? 0 : next - from->dims.events;
	for (; n < next; n++) {
		struct event event;
		uint64_t stamp = atomic_load_explicit(&event_place(from, n)->stamp, memory_order_acquire);
		/* Somebody is writing it: the next time. What the dead have begun holds up nobody: who has no slot is not reaped. */
		if ((stamp & EVENT_BUSY) != 0 && !is_abandoned(from, stamp, 0))
			return;
		if (copy(from, n, &event))
			event_write_unless(to, 0, &event, NULL, 0);
		/* release: after the event. A death before it, and the event is there twice; a transition is given once all the same. */
		atomic_store_explicit(&from->live->events_carried, n + 1, memory_order_release);
	}
}

/* ---- names ---- */

const char *event_kind_name(enum event_kind kind)
{
	static const char *const names[EVENT_KINDS] = {
#define X(NAME, name) #name,
	        RESC_EVENTS(X)
#undef X
	};
	return (unsigned)kind < EVENT_KINDS ? names[kind] : "unknown";
}

const char *reason_name(enum reason reason)
{
	static const char *const names[REASONS] = {
#define X(NAME, name, text) #name,
	        RESC_REASONS(X)
#undef X
	};
	return (unsigned)reason < REASONS ? names[reason] : "unknown";
}

const char *reason_text(enum reason reason)
{
	static const char *const texts[REASONS] = {
#define X(NAME, name, text) text,
	        RESC_REASONS(X)
#undef X
	};
	return (unsigned)reason < REASONS ? texts[reason] : "a reason that this version does not know";
}
