/* SPDX-License-Identifier: MIT */
/*
 * What somebody holds: permits, places in the queue, probe leases, shards. Each cell names a life, and each life stands in a slot for as
 * long as it holds anything, so whoever dies is reaped through its slot. A cell whose life is in no slot comes back by nobody.
 *
 * Why these do not alarm falsely: a life is in its slot before its first cell is taken and until after its last one is freed, by its
 * owner and by every reaper. A cell that stood on an earlier look, and whose life is in no slot of a roster that was read after that,
 * has no slot, however long its owner may have been stopped (doctor.c). A dead worker that is in its slot still is a finding of the slot
 * (doctor_workers.c), and what it holds is told there.
 *	probes.ghost
 *		stands for a lease that is out in the superseded segment; where there never was one, there is none
 *	probes.overdue
 *		a lease of the trial that is going on, older than probe_timeout by a clock that was read after it: by the
 *		protocol anybody may take it over, whether its owner lives or not. rescd does each second
 *	shards.common
 *		the last quarter is marked before the name is visible, and a worker's claim is a life: nothing else is written
 *
 * Not findings, because they are legal: more leases than `probes` (it was lowered while they were out), leases of an older trial (owners
 * that are slow; the next trial takes the cells), a life in two shards of different resources.
 */
#include <inttypes.h>

#include "call.h"
#include "clock.h"
#include "count.h"
#include "doctor.h"
#include "permit.h"
#include "words.h"

/* ---- repairs ---- */

static void give_permit_back(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);

	if (permit_release(d->map, state, f->place, f->seen))
		count_common(d->map, state, COUNTER_permits_reclaimed, 1);
	waiting_wake_all(state);
}

static void leave_queue(const struct doctor *d, const struct finding *f)
{
	waiting_leave(d->map, doctor_state(d, f), f->place, f->seen);
}

static void end_lease(const struct doctor *d, const struct finding *f)
{
	struct state *state = doctor_state(d, f);

	if (breaker_probe_end(state, f->place, f->seen))
		count_common(d->map, state, COUNTER_probes_reclaimed, 1);
}

static void free_shard(const struct doctor *d, const struct finding *f)
{
	/* As a reaper does: the next worker goes on counting in it. */
	doctor_swap(&map_shard(d->map, doctor_state(d, f), f->place)->owner, f->seen, 0);
}

static void mark_common(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&map_shard(d->map, doctor_state(d, f), f->place)->owner, f->seen, SHARD_COMMON);
}

/* ---- checks ---- */

static void look_at_permits(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_PERMITS_HOLDER, .repair = give_permit_back, .remedy = "give the permit back"};

	for (f.place = 0; f.place < d->map->dims.permits; f.place++) {
		f.seen = doctor_load(map_permit(d->map, state, f.place));
		if (f.seen != 0)
			doctor_look_at_holder(d, &f, "permit", permit_life(f.seen));
	}
}

static void look_at_queue(struct doctor *d, const struct state *state)
{
	struct finding f = {.check = CHECK_WAITING_HOLDER, .repair = leave_queue, .remedy = "free the place"};

	for (f.place = 0; f.place < d->map->dims.waiting; f.place++) {
		f.seen = doctor_load(&map_waiting(d->map, state)[f.place]);
		if (f.seen != 0)
			doctor_look_at_holder(d, &f, "waiting", permit_life(f.seen));
	}
}

static bool is_overdue(const struct doctor *d, const struct state *state, uint64_t lease)
{
	uint64_t breaker = doctor_load(&state->breaker);
	uint64_t age_ms = probe_age_ms(lease, clock_coarse_ms(d->map));

	/* An age in the upper half of its 24 bits is a lease from the future: any call takes it over. */
	return d->has_policy && breaker_tag(breaker) == TAG_HALF_OPEN && probe_generation(lease) == (breaker_generation(breaker) & 0xff) &&
	       age_ms > d->policy.probe_timeout_ms && age_ms < 0x800000;
}

static void look_at_lease(struct doctor *d, const struct state *state, uint32_t cell)
{
	struct finding f = {.check = CHECK_PROBES_OWNER,
	                    .place = cell,
	                    .seen = doctor_load(&state->probes[cell]),
	                    .repair = end_lease,
	                    .remedy = "end the lease"};

	if (f.seen == 0)
		return;
	if (!probe_is_ghost(f.seen))
		doctor_look_at_holder(d, &f, "probe", probe_life(f.seen));
	f.check = CHECK_PROBES_GHOST;
	if (probe_is_ghost(f.seen) && d->map->predecessor == 0)
		doctor_suspect(d, &f, "probe", "is of a segment before this one, and there was none");
	f.check = CHECK_PROBES_OVERDUE;
	if (is_overdue(d, state, f.seen))
		doctor_suspect(d, &f, "probe", "is out for longer than probe_timeout (%" PRIu64 " ms)", d->policy.probe_timeout_ms);
}

static void look_at_shard(struct doctor *d, const struct state *state, uint32_t shard)
{
	bool common = shard >= map_first_common_shard(d->map);
	struct finding f = {.check = CHECK_SHARDS_COMMON, .place = shard, .seen = doctor_load(&map_shard(d->map, state, shard)->owner)};

	if (common && f.seen != SHARD_COMMON && d->visible) {
		f.repair = mark_common;
		f.remedy = "mark it as everybody's";
		doctor_suspect(d, &f, "shard", "is everybody's, and is marked as %016" PRIx64 "'s", f.seen);
	}
	if (common || f.seen == 0)
		return;
	f.repair = free_shard;
	f.remedy = "free the shard";
	if (f.seen > UINT32_MAX) {
		doctor_suspect(d, &f, "shard", "belongs to %016" PRIx64 ", which is no worker", f.seen);
		return;
	}
	f.check = CHECK_SHARDS_OWNER;
	doctor_look_at_holder(d, &f, "shard", (uint32_t)f.seen);
}

void doctor_look_at_holders(struct doctor *doctor)
{
	const struct state *state = map_state(doctor->map, doctor->resource);

	look_at_permits(doctor, state);
	look_at_queue(doctor, state);
	for (uint32_t i = 0; i < PROBES_LIMIT; i++)
		look_at_lease(doctor, state, i);
	for (uint32_t i = 0; i < doctor->map->dims.shards; i++)
		look_at_shard(doctor, state, i);
}
