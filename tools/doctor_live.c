/* SPDX-License-Identifier: MIT */
/*
 * What all workers of the instance share: numbers of lives, questions to rescd, the event ring.
 *
 * Why these do not alarm falsely:
 *	live.next_life
 *		a life is taken from it before it is in a slot, and the roster was read before this word: so it is larger. At
 *		its end, after 2^32 registrations, nobody can register any more, which is a finding as well
 *	live.expected_workers
 *		rescd says for how long, some seconds ahead, before anybody can see the segment
 *	live.request
 *		a place carries the life of its asker, like any cell (doctor_holders.c); the phases are three
 *	events.cursor, events.stamp
 *		a stamp is a number that the cursor had given out before, and stands at the place of that number; stamps are
 *		read before the cursor. Where most of them are of the future, it is the cursor that was set back
 *	events.writer
 *		a place that is being written carries its writer's life. Whose it is does not matter here: rescd and resctl take one for
 *		each event, and may be stopped with it; what a dead one leaves is its reaper's, or the next writer's who comes by
 */
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "doctor.h"
#include "request.h"
#include "share.h"
#include "words.h"

#define EXPECTED_MOST_MS 600000u

static struct segment_live *live_of(const struct doctor *d)
{
	return d->map->live;
}

/* ---- lives ---- */

static void raise_next_life(const struct doctor *d, const struct finding *f)
{
	uint64_t next = doctor_load(&live_of(d)->next_life);

	/* Who registers meanwhile moves it: then they have lives that are free, or try again. */
	if (next <= f->seen)
		doctor_swap(&live_of(d)->next_life, next, f->seen + 1);
}

static void look_at_next_life(struct doctor *d)
{
	struct finding f = {.check = CHECK_LIVE_NEXT_LIFE, .place = DOCTOR_ONE, .repair = raise_next_life, .remedy = "raise it"};

	for (size_t i = 0; i < d->worker_count; i++)
		if (d->workers[i].held && d->workers[i].life > f.seen)
			f.seen = d->workers[i].life;
	uint64_t next = doctor_load(&live_of(d)->next_life);
	if (next <= f.seen && f.seen + 1 < UINT32_MAX)
		doctor_suspect(d, &f, "next life", "is %" PRIu64 ", and worker %" PRIu64 " is there", next, f.seen);
	f.repair = NULL;
	f.seen = 0;
	f.remedy = "remove the segment's name while rescd runs: its successor begins with 1";
	if (next >= UINT32_MAX)
		doctor_suspect(d, &f, "next life", "is %" PRIu64 ": no worker can register any more", next);
}

/* ---- workers that are expected ---- */

static void expect_nobody(const struct doctor *d, const struct finding *f)
{
	if (doctor_swap(&live_of(d)->expected_workers, f->seen, 0))
		share_recount(d->map);
}

static void look_at_expected(struct doctor *d)
{
	const struct finding f = {.check = CHECK_LIVE_EXPECTED,
	                          .place = DOCTOR_ONE,
	                          .seen = doctor_load(&live_of(d)->expected_workers),
	                          .repair = expect_nobody,
	                          .remedy = "expect nobody"};
	uint64_t now_ms = clock_coarse_ms(d->map);
	uint64_t until_ms = f.seen & TIME_MASK;

	if (f.seen != 0 && (until_ms > now_ms + EXPECTED_MOST_MS || f.seen >> 40 > WORKERS_LIMIT))
		doctor_suspect(d, &f, "expected", "are %" PRIu64 " workers for another %" PRIu64 " ms: limits that are shares are too high",
		               f.seen >> 40, until_ms > now_ms ? until_ms - now_ms : 0);
}

/* ---- questions to rescd ---- */

static void take_question_back(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&live_of(d)->requests[f->place].state, f->seen, 0);
}

static void look_at_requests(struct doctor *d)
{
	struct finding f = {.check = CHECK_LIVE_REQUEST, .repair = take_question_back, .remedy = "free the place"};

	for (f.place = 0; f.place < REQUESTS; f.place++) {
		f.seen = doctor_load(&live_of(d)->requests[f.place].state);
		if (f.seen != 0 && !request_is_possible(f.seen))
			doctor_suspect(d, &f, "question", "says %016" PRIx64 ", which is none", f.seen);
		else if (f.seen != 0)
			doctor_look_at_holder(d, &f, "question", request_life(f.seen));
	}
}

void doctor_look_at_live(struct doctor *doctor)
{
	look_at_next_life(doctor);
	look_at_expected(doctor);
	look_at_requests(doctor);
}

/* ---- the event ring ---- */

static void free_place(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&map_event(d->map, f->place)->stamp, f->seen, 0);
}

static void raise_cursor(const struct doctor *d, const struct finding *f)
{
	uint64_t next = doctor_load(&live_of(d)->next_event);

	if (next < f->seen)
		doctor_swap(&live_of(d)->next_event, next, f->seen);
}

static bool is_at_its_place(const struct doctor *d, uint32_t place, uint64_t stamp)
{
	return ((stamp - 1) & (d->map->dims.events - 1)) == place;
}

/* The stamps of events that are there: how many, how many of them are above a number, and the newest. */
struct ring {
	uint32_t stamped;
	uint32_t above;
	uint64_t newest;
};

static struct ring read_ring(const struct doctor *d, uint64_t number)
{
	struct ring ring = {0};

	for (uint32_t i = 0; i < d->map->dims.events; i++) {
		uint64_t stamp = doctor_load(&map_event(d->map, i)->stamp);
		if (stamp == 0 || (stamp & EVENT_BUSY) != 0 || !is_at_its_place(d, i, stamp))
			continue;
		ring.stamped++;
		ring.above += stamp > number;
		ring.newest = stamp > ring.newest ? stamp : ring.newest;
	}
	return ring;
}

static void look_at_place(struct doctor *d, uint32_t place)
{
	struct finding f = {.check = CHECK_EVENTS_STAMP,
	                    .place = place,
	                    .seen = doctor_load(&map_event(d->map, place)->stamp),
	                    .repair = free_place,
	                    .remedy = "free the place"};
	uint64_t cursor = doctor_load(&live_of(d)->next_event) & ~EVENT_BUSY;

	if (f.seen == 0)
		return;
	if ((f.seen & EVENT_BUSY) == 0) {
		if (f.seen > cursor || !is_at_its_place(d, place, f.seen))
			doctor_suspect(d, &f, "event", "is stamped %" PRIu64 ", which is not there yet, or elsewhere", f.seen);
		return;
	}
	f.check = CHECK_EVENTS_WRITER;
	if ((f.seen & ~EVENT_BUSY) > UINT32_MAX)
		doctor_suspect(d, &f, "event", "is being written by %016" PRIx64 ", which is nobody", f.seen & ~EVENT_BUSY);
}

/* True: it is the cursor that is wrong, and the stamps are right. */
static bool cursor_was_set_back(struct doctor *d)
{
	uint64_t newest = read_ring(d, 0).newest;
	/* After the stamps. */
	uint64_t cursor = doctor_load(&live_of(d)->next_event) & ~EVENT_BUSY;
	struct ring ring = read_ring(d, cursor);
	const struct finding f = {
	        .check = CHECK_EVENTS_CURSOR, .place = DOCTOR_ONE, .seen = newest, .repair = raise_cursor, .remedy = "raise it"};

	if (newest <= cursor || ring.above <= ring.stamped / 2)
		return false;
	doctor_suspect(d, &f, "cursor", "was set back: it is at %" PRIu64 ", and the newest event is %" PRIu64, cursor, newest);
	return true;
}

void doctor_look_at_events(struct doctor *doctor)
{
	if (cursor_was_set_back(doctor))
		return;
	for (uint32_t i = 0; i < doctor->map->dims.events; i++)
		look_at_place(doctor, i);
}
