/* SPDX-License-Identifier: MIT */
/*
 * The table of idempotency keys.
 *
 * Why these do not alarm falsely: an entry is complete before its slot says that it is committed, and what says where the key is found
 * is not written again while it is. It is copied, and judged only where the slot word is the same afterwards.
 *	once.owner
 *		a slot in work carries its owner's life, like any cell (doctor_holders.c). Claims of rescd, which has no life,
 *		are freed by the next rescd and not judged
 *	once.away
 *		a key is away only in a successor
 *	once.entry
 *		it can be found: hash, tag and set are those of its resource and key
 *	once.expires
 *		the longest ttl is 30 days
 *	once.twice
 *		of two who begin one key at once, one commits, and an expired key is gone before another is committed
 *	once.closed
 *		the table is closed by who moves it to a successor, which was announced before
 */
#include <inttypes.h>
#include <string.h>

#include "clock.h"
#include "doctor.h"
#include "once.h"
#include "words.h"

#define TTL_MOST_MS (UINT64_C(30) * 86400000)

/* ---- repairs ---- */

static void reap_keys(const struct doctor *d, const struct finding *f)
{
	once_reap(d->map, once_owner(f->seen));
}

static void bring_home(const struct doctor *d, const struct finding *f)
{
	/* As rescd does where the segment before is gone: nobody can say any more what became of it. */
	once_turn(d->map, &(struct once_place){f->place, f->seen}, once_with(f->seen, ONCE_UNKNOWN));
}

static void free_slot(const struct doctor *d, const struct finding *f)
{
	once_turn(d->map, &(struct once_place){f->place, f->seen}, once_freed(f->seen));
}

static void shorten(const struct doctor *d, const struct finding *f)
{
	/* Were the slot another key's by now, the time would be too. */
	doctor_swap(&map_once_entry(d->map, f->place)->expires_ms, f->more, (clock_coarse_ms(d->map) + TTL_MOST_MS) & TIME_MASK);
}

static void open_table(const struct doctor *d, const struct finding *f)
{
	if (map_superseded_by(d->map) == 0)
		doctor_swap(&d->map->live->once_closed, f->seen, 0);
}

/* ---- checks ---- */

static bool is_committed(uint64_t w)
{
	return once_phase(w) >= ONCE_RUNNING;
}

static bool is_over(uint64_t w)
{
	return once_phase(w) == ONCE_DONE || once_phase(w) == ONCE_UNKNOWN;
}

static void look_at_owner(struct doctor *d, uint32_t slot, uint64_t w)
{
	const struct finding f = {
	        .check = CHECK_ONCE_OWNER, .place = slot, .seen = w, .repair = reap_keys, .remedy = "end what it began: free or unknown"};
	bool in_work = once_phase(w) >= ONCE_CLAIMED && once_phase(w) <= ONCE_STORING;

	if (in_work && once_owner(w) != ONCE_LIFE_OF_RESCD)
		doctor_look_at_holder(d, &f, "key", once_owner(w));
}

static void look_at_entry(struct doctor *d, uint32_t slot, uint64_t w)
{
	const struct once_place place = {slot, w};
	struct finding f = {.check = CHECK_ONCE_ENTRY, .place = slot, .seen = w};
	struct once_image image;
	bool read = once_read(d->map, &place, &image);

	/* Not read: the slot has moved on, or the sizes are damaged. */
	if (!read && doctor_load(&d->map->once_slots[slot]) != w)
		return;
	f.repair = is_over(w) ? free_slot : NULL;
	f.remedy = is_over(w) ? "free its place" : "its place is free again when its worker ends it";
	if (!read || !once_fits(d->map, &place, &image)) {
		doctor_suspect(d, &f, "key", "is damaged: nobody finds it");
		return;
	}
	f.check = CHECK_ONCE_EXPIRES;
	f.more = image.expires_ms;
	f.repair = shorten;
	f.remedy = "let it expire in 30 days";
	if (is_over(w) && image.expires_ms > clock_coarse_ms(d->map) + TTL_MOST_MS + DOCTOR_FUTURE_MS)
		doctor_suspect(d, &f, "key", "expires in %" PRIu64 " days; no ttl is longer than 30",
		               (image.expires_ms - clock_coarse_ms(d->map)) / 86400000);
}

static void look_at_slot(struct doctor *d, uint32_t slot)
{
	struct finding f = {.check = CHECK_ONCE_AWAY,
	                    .place = slot,
	                    .seen = doctor_load(&d->map->once_slots[slot]),
	                    .repair = bring_home,
	                    .remedy = "make it unknown"};

	if (f.seen == 0)
		return;
	look_at_owner(d, slot, f.seen);
	if (once_phase(f.seen) == ONCE_AWAY && d->map->predecessor == 0)
		doctor_suspect(d, &f, "key", "is away in a segment before this one, and there was none");
	if (is_committed(f.seen))
		look_at_entry(d, slot, f.seen);
}

static bool same_key(const struct map *map, const struct once_place *a, const struct once_place *b)
{
	struct once_image x, y;

	return once_tag(a->seen) == once_tag(b->seen) && once_read(map, a, &x) && once_read(map, b, &y) && once_fits(map, a, &x) &&
	       once_fits(map, b, &y) && x.hash == y.hash && x.key_size == y.key_size && memcmp(x.key, y.key, sizeof(x.key)) == 0 &&
	       memcmp(x.resource, y.resource, sizeof(x.resource)) == 0;
}

/* All pairs of a set: a key can be in one set only. */
static void look_for_doubles(struct doctor *d, uint32_t set)
{
	struct once_place places[ONCE_SET];

	for (uint32_t i = 0; i < ONCE_SET; i++)
		places[i] = (struct once_place){set + i, doctor_load(&d->map->once_slots[set + i])};
	for (uint32_t i = 0; i < ONCE_SET; i++) {
		for (uint32_t k = i + 1; k < ONCE_SET && is_committed(places[i].seen); k++) {
			const struct finding f = {.check = CHECK_ONCE_TWICE,
			                          .place = set + k,
			                          .seen = places[k].seen,
			                          .more = places[i].seen,
			                          .remedy = "look what was done for that key: it may have been begun twice"};
			if (is_committed(places[k].seen) && same_key(d->map, &places[i], &places[k]))
				doctor_suspect(d, &f, "key", "is in place %" PRIu32 " too", set + i);
		}
	}
}

void doctor_look_at_once(struct doctor *doctor)
{
	struct finding f = {.check = CHECK_ONCE_CLOSED, .place = DOCTOR_ONE, .seen = doctor_load(&doctor->map->live->once_closed)};

	f.repair = open_table;
	f.remedy = "open it";
	if (f.seen != 0 && map_superseded_by(doctor->map) == 0)
		doctor_suspect(doctor, &f, "keys", "are closed as in a superseded segment: none can begin");
	for (uint32_t i = 0; i < doctor->map->dims.once; i++)
		look_at_slot(doctor, i);
	for (uint32_t set = 0; set < doctor->map->dims.once; set += ONCE_SET)
		look_for_doubles(doctor, set);
}
