/* SPDX-License-Identifier: MIT */
/*
 * Text in the segment: fixed arrays of atomic bytes. Other processes may write while we read, and a damaged segment may hold anything;
 * what comes out of chars_load is always terminated, valid UTF-8 and free of control characters, so it can go to a terminal or into JSON.
 *
 * Stores are releases and loads are acquires, byte by byte. That is what a sequence or stamp beside the text relies on: a reader that
 * has seen a byte of a newer text also sees that the stamp has changed. (It needs no fences, which TSan does not understand.)
 */
#ifndef RESC_CHARS_H
#define RESC_CHARS_H

#include <stdatomic.h>
#include <stddef.h>

/* Stores text, cut between characters to fit with its NUL, and zeroes the rest. NULL is "". */
void chars_store(_Atomic char *to, size_t size, const char *text);
/* The same into plain memory. */
void chars_copy(char *to, size_t size, const char *text);
/* Copies size bytes out, and cleans them. */
void chars_load(const _Atomic char *from, size_t size, char *to);
/* Terminates text in a buffer of that size; what is not printable, valid UTF-8 becomes '?'. */
void chars_clean(char *text, size_t size);

#endif
