/* SPDX-License-Identifier: MIT */
/*
 * Names and policies, which rescd alone writes.
 *
 * Why these do not alarm falsely: a name is written before its hash, which is taken away first, and the policy before either; a record
 * belongs to one name for the life of the segment. So whoever reads the hash first finds what belongs to it. Of the two copies of a policy
 * the one that the sequence names is judged, and only where the sequence is the same before and after it was copied; the other one may be
 * half of the next. rescd writes no value that policy_clamp changes.
 *
 * Flags that this version does not know are no finding: a newer rescd may have written them.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "bounds.h"
#include "doctor.h"
#include "policy.h"

#define RELOAD  "resctl reload: rescd writes it again"
#define REPLACE "remove the segment's name while rescd runs: it makes a successor with all states"

/* ---- names, over all records ---- */

struct name {
	uint64_t hash;
	uint32_t index;
};

static int by_hash(const void *left, const void *right)
{
	const struct name *a = left, *b = right;

	if (a->hash != b->hash)
		return a->hash < b->hash ? -1 : 1;
	return a->index < b->index ? -1 : a->index > b->index;
}

static size_t read_names(const struct map *map, struct name *names)
{
	char name[SEGMENT_NAME_SIZE];
	size_t count = 0;

	for (uint32_t i = 0; i < map->dims.resources; i++)
		if (policy_name_any(map, i, name))
			names[count++] = (struct name){policy_name_hash(name), i};
	return count;
}

static void suspect_double(struct doctor *d, const struct name *first, const struct name *second)
{
	const struct finding f = {
	        .check = CHECK_POLICY_TWICE, .place = second->index, .seen = second->hash, .more = first->index, .remedy = REPLACE};
	char name[SEGMENT_NAME_SIZE], other[SEGMENT_NAME_SIZE];

	if (policy_name_any(d->map, first->index, name) && policy_name_any(d->map, second->index, other) && strcmp(name, other) == 0)
		doctor_suspect(d, &f, "record", "has the same name as record %" PRIu32, first->index);
}

void doctor_look_at_names(struct doctor *doctor)
{
	struct name *names = calloc(doctor->map->dims.resources, sizeof(*names));
	size_t count = names == NULL ? 0 : read_names(doctor->map, names);

	if (count > 0)
		qsort(names, count, sizeof(*names), by_hash);
	for (size_t i = 1; i < count; i++)
		if (names[i].hash == names[i - 1].hash)
			suspect_double(doctor, &names[i - 1], &names[i]);
	free(names);
}

/* ---- one record ---- */

static void look_at_name(struct doctor *d, const struct policy_record *record)
{
	struct finding f = {.check = CHECK_POLICY_HASH, .place = DOCTOR_ONE, .remedy = "restart rescd"};
	char name[SEGMENT_NAME_SIZE];

	f.seen = doctor_load(&record->name_hash);
	if (!policy_name_any(d->map, d->resource, name))
		return;
	f.more = policy_name_hash(name);
	if (f.seen != 0 && f.seen != f.more)
		doctor_suspect(d, &f, "name", "is not found: its hash is %016" PRIx64 ", not %016" PRIx64, f.seen, f.more);
	f.check = CHECK_POLICY_NAME;
	f.seen = f.more;
	f.remedy = REPLACE;
	if (name_check(name, NULL) != 0)
		doctor_suspect(d, &f, "name", "has characters that no name has");
}

static void look_at_values(struct doctor *d)
{
	struct finding f = {.check = CHECK_POLICY_VALUES, .place = DOCTOR_ONE, .remedy = RELOAD};
	struct policy raw, clamped;

	/* Not now: rescd is writing. */
	if (!policy_read_raw(d->map, d->resource, &raw, &f.seen))
		return;
	f.more = fnv1a(&raw, sizeof(raw));
	clamped = raw;
	policy_clamp(&clamped, &d->map->dims);
	/* What a segment of an older minor does not have reads as 0, perhaps outside of its range, and is not used. */
	if (memcmp(&raw, &clamped, smaller(sizeof(raw), d->map->sizes.policy)) != 0)
		doctor_suspect(d, &f, "policy", "has values outside their ranges; calls use the nearest that are inside");
	f.check = CHECK_POLICY_CONFIGURED;
	if (d->visible && (raw.flags & POLICY_CONFIGURED) == 0)
		doctor_suspect(d, &f, "policy", "says that nobody has configured it: calls get an error");
}

void doctor_look_at_policy(struct doctor *doctor)
{
	look_at_name(doctor, map_policy(doctor->map, doctor->resource));
	look_at_values(doctor);
}
