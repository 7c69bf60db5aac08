/* SPDX-License-Identifier: MIT */
/* The layout table at work: see layout.h. */
#include <stdio.h>
#include <string.h>

#include "layout.h"
#include "map.h"

/* Far more than a record will ever have; so that sums of sizes stay in 64 bits. */
#define SIZE_MOST 65536u

static const struct layout_entry table[] = {
#define X(since, type, field) {since, #type, #field, offsetof(struct type, field), sizeof(((struct type *)0)->field)},
        SEGMENT_LAYOUT(X)
#undef X
#define X(since, constant) {since, "", #constant, constant, 0},
                SEGMENT_CONSTANTS(X)
#undef X
};
#define ENTRIES (sizeof table / sizeof table[0])

_Static_assert(SEGMENT_MINOR < SEGMENT_MINORS, "the header has a hash for each minor");

const struct layout_entry *layout_entry(size_t i)
{
	return i < ENTRIES ? &table[i] : NULL;
}

static uint64_t hash_entry(uint64_t hash, const struct layout_entry *entry)
{
	const uint64_t place[2] = {entry->offset, entry->size};

	hash = fnv1a_more(hash, entry->record, strlen(entry->record) + 1);
	hash = fnv1a_more(hash, entry->field, strlen(entry->field) + 1);
	return fnv1a_more(hash, place, sizeof place);
}

uint64_t layout_hash(unsigned minor)
{
	uint64_t hash = fnv1a("", 0);

	for (size_t i = 0; i < ENTRIES; i++)
		if (table[i].since <= minor)
			hash = hash_entry(hash, &table[i]);
	return hash;
}

void layout_sizes(struct segment_sizes *sizes)
{
	*sizes = (struct segment_sizes){
	        .policy = sizeof(struct policy),
	        .worker = sizeof(struct worker_slot),
	        .state = sizeof(struct state),
	        .shard = sizeof(struct shard),
	        .event = sizeof(struct event_record),
	        .once_entry = sizeof(struct once_entry),
	};
}

/* Where the last word ends that a record has in that minor. */
static size_t extent(const char *record, unsigned minor)
{
	size_t end = 0;

	for (size_t i = 0; i < ENTRIES; i++)
		if (table[i].since <= minor && strcmp(table[i].record, record) == 0 && table[i].offset + table[i].size > end)
			end = table[i].offset + table[i].size;
	return end;
}

static bool is_sound(uint32_t size, uint32_t step, const char *record, unsigned minor)
{
	return size % step == 0 && size <= SIZE_MOST && size >= extent(record, minor);
}

bool layout_sizes_are_sound(const struct segment_sizes *sizes, unsigned minor)
{
	struct segment_sizes ours;

	layout_sizes(&ours);
	if (minor == SEGMENT_MINOR)
		return memcmp(sizes, &ours, sizeof ours) == 0;
	minor = layout_common(minor);
	return is_sound(sizes->policy, SEGMENT_LINE / 2, "policy", minor) && is_sound(sizes->worker, SEGMENT_LINE, "worker_slot", minor) &&
	       is_sound(sizes->state, SEGMENT_LINE, "state", minor) && is_sound(sizes->shard, SEGMENT_LINE, "shard", minor) &&
	       is_sound(sizes->event, SEGMENT_LINE, "event_record", minor) &&
	       is_sound(sizes->once_entry, SEGMENT_LINE, "once_entry", minor);
}

struct layout_version_text layout_version_text(uint32_t version)
{
	struct layout_version_text text = {"", ""};

	if (version == 0)
		return text;
	snprintf(text.library, sizeof text.library, "%u.%u.%u", version >> 24, version >> 16 & 0xff, version >> 8 & 0xff);
	snprintf(text.format, sizeof text.format, "%u.%u", (unsigned)SEGMENT_MAJOR, version & 0xff);
	return text;
}
