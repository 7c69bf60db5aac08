/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: an operator's word must be there before its reason is looked for, and neither may wait for an operator who was killed
 * between the two. The order is in note.h.
 *
 * A slot says by NOTE_WRITING, or by a serial that the word does not have yet, that somebody is setting that word at this moment. The next
 * one gives it SETTER_WAIT_MS to finish, and then takes the slot: it was stopped, or is dead. (If it was stopped and goes on in the middle
 * of the text, its bytes can end up in ours. They decide nothing, and it takes an operator with SIGSTOP and bad luck.)
 */
#include "note.h"

#include <time.h>
#include <unistd.h>

#include "chars.h"
#include "failpoint.h"
#include "random.h"

#define SETTER_WAIT_MS 20

/* Waits, a little, for somebody who is setting a word of this very serial. */
static uint64_t settled(const struct override_text *slot, uint32_t serial)
{
	const struct timespec pause = {0, 1000000};
	uint64_t seen = atomic_load_explicit(&slot->serial, memory_order_acquire);

	for (int i = 0; i < SETTER_WAIT_MS && ((seen & NOTE_WRITING) != 0 || seen == serial); i++) {
		nanosleep(&pause, NULL);
		uint64_t now = atomic_load_explicit(&slot->serial, memory_order_acquire);
		if (now != seen)
			return now;
	}
	return seen;
}

uint64_t note_claim(struct override_text *slot, uint32_t serial, word *beside, uint64_t seen, uint64_t next)
{
	uint64_t mine = NOTE_WRITING | (random_next() ^ (uint64_t)getpid()) >> 1;
	uint64_t before = settled(slot, serial);
	uint64_t claim = mine;

	/* acq_rel: the note that we overwrite was somebody's, and ours comes after the mark. */
	if (!atomic_compare_exchange_strong_explicit(&slot->serial, &before, mine, memory_order_acq_rel, memory_order_relaxed))
		return 0;
	FAILPOINT("note.claimed");
	if (atomic_compare_exchange_strong_explicit(beside, &seen, next, memory_order_acq_rel, memory_order_relaxed))
		return mine;
	/* The slot may hold the note of what is now in force: it is untouched, give it back. */
	atomic_compare_exchange_strong_explicit(&slot->serial, &claim, before, memory_order_release, memory_order_relaxed);
	return 0;
}

bool note_write(struct override_text *slot, uint64_t claim, uint32_t serial, uint64_t now_ms, const char *text)
{
	/* release, each: see chars.h. */
	atomic_store_explicit(&slot->uid, getuid(), memory_order_release);
	atomic_store_explicit(&slot->at_ms, now_ms, memory_order_release);
	chars_store(slot->text, sizeof(slot->text), text);
	return atomic_compare_exchange_strong_explicit(&slot->serial, &claim, serial, memory_order_release, memory_order_relaxed);
}

bool note_read(const struct override_text *slot, uint32_t serial, struct note *note)
{
	*note = (struct note){.uid = 0};
	if (atomic_load_explicit(&slot->serial, memory_order_acquire) == serial) {
		/* acquire, each: the serial is loaded again after them. */
		note->uid = (uid_t)atomic_load_explicit(&slot->uid, memory_order_acquire);
		note->at_ms = atomic_load_explicit(&slot->at_ms, memory_order_acquire);
		chars_load(slot->text, sizeof(slot->text), note->text);
		if (atomic_load_explicit(&slot->serial, memory_order_acquire) == serial)
			return true;
	}
	*note = (struct note){.uid = 0};
	return false;
}
