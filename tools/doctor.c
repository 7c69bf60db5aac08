/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: when something looks wrong at night, somebody must be able to ask whether the segment is right, and get an answer that
 * can be relied on both ways: what it finds is wrong, and what is wrong it finds. It is for a segment under full load, with rescd alive,
 * stopped or dead, and takes part in nothing: it holds no life, no lock and no cell.
 *
 * Why it does not alarm falsely. Words move while it looks, so what a look sees is only a suspicion. A suspicion is a check, a place and
 * the exact words that were seen there. It becomes a finding when every look finds the same again, over a time in which whoever is in
 * charge must have acted: an instant, where no step of a protocol leaves such words (SOON); some turns of rescd, where it or anybody else
 * repairs this by itself (TURN); less where no rescd was there all the time, because then nobody is in charge. And each check is made so
 * that a process that is *stopped* at any step does not look like damage, for as long as it may be stopped: the head comment of each file
 * says why. What only looks odd (a futex bit that nobody waits for, a lease that its owner returns late, a count that the next user cuts)
 * is legal in some protocol and no finding.
 *
 * Why a repair does no harm. It is done with the words that stood all this time, through the function of the library that the protocol has
 * for it, or by a CAS of exactly the word seen to what any process of that protocol might write. So several doctors, reapers and workers at
 * once do it once, and a doctor that is killed in the middle leaves what a reaper leaves that is killed: work for the next one. What
 * belongs to a living process is never touched.
 *
 * A damaged segment may be wrong everywhere: the list has room for so many findings, every loop is bounded by the sizes in struct map, and
 * whatever is read is put inside its range before it is used. Policies and what rescd says of itself are rescd's alone; there the remedy is
 * for a person.
 */
#include "doctor.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bounds.h"
#include "chars.h"
#include "clock.h"
#include "policy.h"
#include "worker.h"

#define SOON_MS       100u
#define TURN_MS       4000u /* rescd needs two turns of a second for some; a loaded host may be late */
#define LOOKS         3u    /* at least */
#define PAUSE_MOST_MS UINT64_C(200)
/* Nobody is in charge when no rescd was there all the time. A restart of rescd is shorter than this. */
#define TURN_WITHOUT_RESCD_PART 4u

enum wait { WAIT_SOON, WAIT_TURN };

static const struct {
	const char *id;
	enum wait wait;
} checks[CHECKS] = {
#define X(NAME, check_id, check_wait) [CHECK_##NAME] = {check_id, WAIT_##check_wait},
        DOCTOR_CHECKS(X)
#undef X
};

const char *doctor_check_id(enum doctor_check check)
{
	return checks[check].id;
}

int doctor_open(struct doctor *doctor, const char *instance, const struct map *map)
{
	*doctor = (struct doctor){
	        .instance = instance,
	        .map = map,
	        .turn_ms = TURN_MS,
	        .findings = calloc(DOCTOR_FINDINGS, sizeof(*doctor->findings)),
	        .workers = calloc(map->dims.workers, sizeof(*doctor->workers)),
	};
	if (doctor->findings != NULL && doctor->workers != NULL)
		return 0;
	doctor_close(doctor);
	return -ENOMEM;
}

void doctor_close(struct doctor *doctor)
{
	free(doctor->findings);
	free(doctor->workers);
	doctor->findings = NULL;
	doctor->workers = NULL;
}

/* ---- suspicions ---- */

static int compare(uint64_t a, uint64_t b)
{
	return a < b ? -1 : a > b;
}

/* By what it is: the order in which they are found again. */
static int by_place(const void *left, const void *right)
{
	const struct finding *a = left, *b = right;
	int order = compare(a->check, b->check);

	if (order == 0)
		order = compare(a->resource, b->resource);
	if (order == 0)
		order = compare(a->place, b->place);
	if (order == 0)
		order = compare(a->seen, b->seen);
	return order;
}

/* The instance first, then the resources as they stand in the segment. */
static int by_resource(const void *left, const void *right)
{
	const struct finding *a = left, *b = right;
	int order = compare((uint32_t)(a->resource + 1), (uint32_t)(b->resource + 1));

	return order != 0 ? order : by_place(a, b);
}

static struct finding *find(const struct doctor *d, enum doctor_check check, uint32_t place, uint64_t seen)
{
	const struct finding key = {.check = check, .resource = d->resource, .place = place, .seen = seen};

	return d->count == 0 ? NULL : bsearch(&key, d->findings, d->count, sizeof(key), by_place);
}

/* The first look writes down what it sees, the others only whether that stands. */
static bool is_first(const struct doctor *d)
{
	return d->look == 1;
}

bool doctor_wants(const struct doctor *doctor, enum doctor_check check, uint32_t place, uint64_t seen)
{
	return is_first(doctor) ? !doctor->overflow : find(doctor, check, place, seen) != NULL;
}

void doctor_suspect(struct doctor *doctor, const struct finding *of, const char *what, const char *format, ...)
{
	va_list args;

	if (!is_first(doctor)) {
		struct finding *known = find(doctor, of->check, of->place, of->seen);
		if (known != NULL && known->more == of->more)
			known->look = doctor->look;
		return;
	}
	if (doctor->count == DOCTOR_FINDINGS) {
		doctor->overflow = true;
		return;
	}
	struct finding *f = &doctor->findings[doctor->count++];
	*f = *of;
	f->resource = doctor->resource;
	f->look = doctor->look;
	memcpy(f->name, doctor->name, sizeof(f->name));
	if (of->place == DOCTOR_ONE)
		snprintf(f->where, sizeof(f->where), "%s", what);
	else
		snprintf(f->where, sizeof(f->where), "%s %u", what, (unsigned)of->place);
	va_start(args, format);
	vsnprintf(f->text, sizeof(f->text), format, args);
	va_end(args);
}

static void drop_what_is_gone(struct doctor *d)
{
	size_t kept = 0;

	for (size_t i = 0; i < d->count; i++)
		if (d->findings[i].look == d->look)
			d->findings[kept++] = d->findings[i];
	d->count = kept;
}

/* ---- lives ---- */

static int by_life(const void *left, const void *right)
{
	const struct doctor_worker *a = left, *b = right;
	int order = compare(a->life, b->life);

	return order != 0 ? order : compare(a->slot, b->slot);
}

/*
 * Who is here, at the beginning of each look. A slot has its life from before the first cell of that life until after the last one. So a
 * cell that stood on the look before, and whose life is in no slot of this roster, which was read after that, belongs to no slot at all.
 */
static void call_the_roll(struct doctor *d)
{
	d->worker_count = 0;
	d->alive = 0;
	for (uint32_t i = 0; i < d->map->dims.workers; i++) {
		uint64_t life = doctor_load(&map_worker(d->map, i)->life);
		if (life == 0 || life > UINT32_MAX)
			continue;
		struct doctor_worker worker = {(uint32_t)life, i, life_is_held(d->map, (uint32_t)life)};
		d->workers[d->worker_count++] = worker;
		d->alive += worker.held;
	}
	qsort(d->workers, d->worker_count, sizeof(*d->workers), by_life);
}

static int life_in_worker(const void *key, const void *worker)
{
	return compare(*(const uint32_t *)key, ((const struct doctor_worker *)worker)->life);
}

static bool is_in_slot(const struct doctor *d, uint32_t life)
{
	return bsearch(&life, d->workers, d->worker_count, sizeof(*d->workers), life_in_worker) != NULL;
}

void doctor_look_at_holder(struct doctor *doctor, const struct finding *of, const char *what, uint32_t life)
{
	struct finding f = *of;

	if (!doctor_wants(doctor, f.check, f.place, f.seen) || is_in_slot(doctor, life))
		return;
	/* Of the living, or nobody's. Life 0 is nobody's in any case. */
	f.more = life != 0 && life_is_held(doctor->map, life);
	if (f.more == 0) {
		doctor_suspect(doctor, &f, what, "belongs to worker %" PRIu32 ", who is dead and in no slot: nobody reaps it", life);
		return;
	}
	f.repair = NULL;
	f.remedy = "restart that worker: what it holds when it dies does not come back";
	doctor_suspect(doctor, &f, what, "belongs to worker %" PRIu32 ", who lives and is in no slot: its slot was damaged", life);
}

/* ---- looking ---- */

static void look_at_resource(struct doctor *d, uint32_t index)
{
	uint64_t sequence;

	if (!policy_name_any(d->map, index, d->name))
		return;
	/* acquire: pairs with policy_show_name: who sees the hash sees the state that was made for it. */
	d->visible = atomic_load_explicit(&map_policy(d->map, index)->name_hash, memory_order_acquire) != 0;
	chars_clean(d->name, sizeof(d->name));
	d->resource = index;
	d->has_policy = policy_read(d->map, index, &d->policy, &sequence) == 0;
	d->resources += d->visible;
	doctor_look_at_policy(d);
	doctor_look_at_holders(d);
	/* What only who looks up the name can meet. The words of one that is retired are made anew when it comes back. */
	if (!d->visible)
		return;
	doctor_look_at_breaker(d);
	doctor_look_at_injection(d);
	doctor_look_at_limit(d);
	doctor_look_at_tokens(d);
	doctor_look_at_windows(d);
}

static void look_at_instance(struct doctor *d)
{
	d->resource = DOCTOR_INSTANCE;
	d->name[0] = '\0';
	doctor_look_at_daemon(d);
	doctor_look_at_live(d);
	doctor_look_at_events(d);
	doctor_look_at_workers(d);
	doctor_look_at_names(d);
	doctor_look_at_once(d);
}

static bool knows_of_cut(const struct doctor *d)
{
	return d->count == 1 && d->findings[0].check == CHECK_SEGMENT_SIZE;
}

static void look(struct doctor *d)
{
	struct inspect_daemon daemon;

	d->look++;
	d->resource = DOCTOR_INSTANCE;
	d->resources = 0;
	if (doctor_look_at_file(d)) {
		inspect_daemon(d->map, &daemon);
		d->daemon_seen = d->daemon_seen || daemon.alive;
		call_the_roll(d);
		look_at_instance(d);
		for (uint32_t i = 0; i < d->map->dims.resources; i++)
			look_at_resource(d, i);
	} else if (!is_first(d) && !knows_of_cut(d)) {
		/* Cut meanwhile. What was suspected cannot be looked at any more, and is not gone because of that. */
		d->count = 0;
		d->look = 1;
		doctor_look_at_file(d);
	}
	if (is_first(d))
		qsort(d->findings, d->count, sizeof(*d->findings), by_place);
}

static uint64_t time_needed_ns(const struct doctor *d, enum doctor_check check)
{
	uint64_t turn_ms = d->daemon_seen ? d->turn_ms : d->turn_ms / TURN_WITHOUT_RESCD_PART;

	return (checks[check].wait == WAIT_SOON && turn_ms > SOON_MS ? SOON_MS : turn_ms) * 1000000;
}

/* All that are left have stood for their time. */
static bool is_certain(const struct doctor *d)
{
	uint64_t age_ns = clock_read_ns(CLOCK_MONOTONIC) - d->began_ns;

	if (d->count > 0 && d->look < LOOKS)
		return false;
	for (size_t i = 0; i < d->count; i++)
		if (age_ns < time_needed_ns(d, d->findings[i].check))
			return false;
	return true;
}

/* What moves is gone after an instant, mostly; what stands is looked at now and then. */
static void pause_between_looks(const struct doctor *d)
{
	const uint64_t longest_ms = smaller(d->turn_ms / LOOKS, PAUSE_MOST_MS);
	uint64_t ms = smaller(UINT64_C(10) << smaller(d->look, LOOKS), longest_ms);
	const struct timespec pause = {.tv_nsec = (long)ms * 1000000};

	nanosleep(&pause, NULL);
}

void doctor_examine(struct doctor *doctor)
{
	doctor->count = 0;
	doctor->look = 0;
	doctor->overflow = false;
	doctor->daemon_seen = false;
	look(doctor);
	/* After the look: that long, at least, each of them was there. */
	doctor->began_ns = clock_read_ns(CLOCK_MONOTONIC);
	while (!is_certain(doctor)) {
		pause_between_looks(doctor);
		look(doctor);
		drop_what_is_gone(doctor);
	}
	doctor->overflow = doctor->overflow && doctor->count > 0;
	qsort(doctor->findings, doctor->count, sizeof(*doctor->findings), by_resource);
}

size_t doctor_repair(struct doctor *doctor)
{
	size_t left = 0;

	for (size_t i = 0; i < doctor->count; i++)
		if (doctor->findings[i].repair != NULL)
			doctor->findings[i].repair(doctor, &doctor->findings[i]);
	qsort(doctor->findings, doctor->count, sizeof(*doctor->findings), by_place);
	if (doctor->count > 0)
		look(doctor);
	for (size_t i = 0; i < doctor->count; i++) {
		struct finding *f = &doctor->findings[i];
		f->repaired = f->look != doctor->look;
		left += !f->repaired;
	}
	qsort(doctor->findings, doctor->count, sizeof(*doctor->findings), by_resource);
	return left;
}
