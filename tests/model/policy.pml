/* SPDX-License-Identifier: MIT */
/*
 * Policies in the segment: two copies and a sequence (lib/policy.h). One writer, which dies in the middle and is started again; readers
 * never wait for it.
 *
 * A policy is two words that must be read as a pair. The writer's stores go through a buffer that lets them out in any order, except
 * that a release store waits for those before it and a fence empties it; a death empties it too (the kernel does, before the lock of the
 * dead writer is handed on).
 *
 * Promised
 *	- a reader takes no torn pair, and none older than one it has taken before;
 *	- once the writer is quiet or dead, the pair that the sequence names is whole, so the next reader succeeds at once.
 *
 * Bounds	READERS READS TRIES (looks before a reader keeps the values it had) POLICIES DEATHS
 *
 * Mutations that must fail
 *	ONE_COPY	a single copy, and an odd sequence while it is written: hangs readers when the writer dies
 *	NO_SECOND_LOOK	the reader does not look at the sequence again
 *	ACCEPT_NEXT	the reader accepts the next sequence too
 *	OWN_MEMORY	a restarted writer starts with the copy that it believes to be next, not with (sequence + 1) & 1
 *	NO_FENCE	no fence between the store of the sequence and the next fill
 */
#ifndef READERS
#define READERS 1
#endif
#ifndef READS
#define READS 2
#endif
#ifndef TRIES
#define TRIES 3
#endif
#ifndef POLICIES
#define POLICIES 3
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define EMPTY 255

/* Shared memory: word a and word b of each copy, and the sequence. */
byte a[2], b[2], sequence;

/* The writer's store buffer: at most one store waits for each word. */
byte waiting_a[2] = EMPTY, waiting_b[2] = EMPTY, waiting_sequence = EMPTY;
#define DRAINED (waiting_a[0] == EMPTY && waiting_a[1] == EMPTY && waiting_b[0] == EMPTY && waiting_b[1] == EMPTY && \
		 waiting_sequence == EMPTY)

bool writer_dead;
byte deaths;
byte policy = 1; /* the next one; after a death another than the one half written */

active proctype StoreBuffer()
{
	do
	:: atomic { waiting_a[0] != EMPTY -> a[0] = waiting_a[0]; waiting_a[0] = EMPTY }
	:: atomic { waiting_a[1] != EMPTY -> a[1] = waiting_a[1]; waiting_a[1] = EMPTY }
	:: atomic { waiting_b[0] != EMPTY -> b[0] = waiting_b[0]; waiting_b[0] = EMPTY }
	:: atomic { waiting_b[1] != EMPTY -> b[1] = waiting_b[1]; waiting_b[1] = EMPTY }
	:: atomic { waiting_sequence != EMPTY -> sequence = waiting_sequence; waiting_sequence = EMPTY }
	od
}

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS -> writer_dead = true; deaths++ }
	:: break
	od
}

active proctype Writer()
{
	byte s, copy;
	byte own_next = 1; /* the mutation's private memory of the next copy */

start:
	{
	do
	:: policy <= POLICIES ->
		/* A store that waits is seen by who made it. */
		atomic { s = (waiting_sequence == EMPTY -> sequence : waiting_sequence) };
#ifdef ONE_COPY
		s = (s & 1 -> s + 1 : s);
		atomic { DRAINED -> waiting_sequence = s + 1 };
		atomic { DRAINED };
		copy = 0;
#elif defined(OWN_MEMORY)
		copy = own_next;
		own_next = 1 - own_next;
#else
		copy = (s + 1) & 1;
#endif
		atomic { waiting_a[copy] == EMPTY -> waiting_a[copy] = policy };
		atomic { waiting_b[copy] == EMPTY -> waiting_b[copy] = policy };
		/* Release. */
#ifdef ONE_COPY
		atomic { DRAINED -> waiting_sequence = s + 2 };
#elif defined(OWN_MEMORY)
		atomic { DRAINED -> waiting_sequence = (((s + 1) & 1) == copy -> s + 1 : s + 2) };
#else
		atomic { DRAINED -> waiting_sequence = s + 1 };
#endif
#ifndef NO_FENCE
		atomic { DRAINED };
#endif
		policy++
	:: else -> break
	od
	} unless {
		atomic { writer_dead -> writer_dead = false; policy++; s = 0; copy = 0; own_next = 1 };
		atomic { DRAINED };
		goto start
	}
}

proctype Reader()
{
	byte s, x, y, reads, tries, last;
	bool b_first;

	do
	:: reads < READS ->
		reads++;
		tries = 0;
		do
		:: tries < TRIES ->
			atomic { s = sequence };
#ifdef ONE_COPY
			if
			:: s & 1 -> tries++; goto next
			:: else -> s = 0
			fi;
#endif
			/* The words are copied in any order. */
			if
			:: b_first = false
			:: b_first = true
			fi;
			if
			:: b_first -> atomic { y = b[s & 1] }; atomic { x = a[s & 1] }
			:: else -> atomic { x = a[s & 1] }; atomic { y = b[s & 1] }
			fi;
#ifdef NO_SECOND_LOOK
			if
			:: true ->
#elif defined(ACCEPT_NEXT)
			if
			:: atomic { sequence == s || sequence == s + 1 } ->
#elif defined(ONE_COPY)
			if
			:: atomic { !(sequence & 1) } ->
#else
			if
			:: atomic { sequence == s } ->
#endif
				assert(x == y && x >= last);
				last = x;
				break
			:: else -> tries++
			fi;
next:			skip
		:: else -> break
		od;
		s = 0; x = 0; y = 0; tries = 0; b_first = false
	:: else -> break
	od
}

/* The writer is quiet or dead. */
active proctype Audit()
{
	timeout;
#ifdef ONE_COPY
	assert(!(sequence & 1))
#else
	assert(a[sequence & 1] == b[sequence & 1])
#endif
}

init
{
	atomic {
		run Reader();
#if READERS > 1
		run Reader()
#endif
	}
}
