/* SPDX-License-Identifier: MIT */
/*
 * Notes: what an operator leaves beside a word that he changes (the reason, who, when), for those who find it at night.
 *
 * A word that has notes carries a serial, and there are two slots by its lowest bit: so the note of the next value can be written while the
 * one in force is read. Claim the slot of serial + 1 -> write -> stamp it with that serial -> CAS the word. The word is what counts; a note
 * is found by the serial, so one that belongs to another value is never shown. A death leaves a slot that the next setter takes over.
 */
#ifndef RESC_NOTE_H
#define RESC_NOTE_H

#include <stdbool.h>
#include <sys/types.h>

#include "segment.h"

/* In the serial of a slot, with a random number below it: somebody is writing here. */
#define NOTE_WRITING (UINT64_C(1) << 63)

/*
 * Takes the slot, and makes of the word beside it, which was `seen`, `next` (seen itself: leaves it). Waits some 20 ms for somebody who is
 * at it: who writes, or has written the note of that serial, which the word does not have yet. The mark of the claim; 0: somebody else was
 * faster, look at the word again.
 */
uint64_t note_claim(struct override_text *slot, uint32_t serial, word *beside, uint64_t seen, uint64_t next);
/* Writes it, with the caller's uid, and stamps it. False: the slot was taken over meanwhile. */
bool note_write(struct override_text *slot, uint64_t claim, uint32_t serial, uint64_t now_ms, const char *text);

struct note {
	uid_t uid;
	uint64_t at_ms; /* segment time */
	char text[OVERRIDE_TEXT];
};

/* False, and all of it 0, when the slot has the note of another serial, or is being written. */
bool note_read(const struct override_text *slot, uint32_t serial, struct note *note);

#endif
