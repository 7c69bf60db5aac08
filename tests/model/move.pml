/* SPDX-License-Identifier: MIT */
/*
 * A word (breaker, override, streak, tokens) moves from a superseded segment to its successor (lib/move.h) while workers change it.
 *
 *	mover	r = load new (empty or prepared) -> w = load old; MOVED: done -> CAS new r -> prepared|w -> CAS old w -> MOVED;
 *		on a failed CAS start again
 *	worker	w = load old; MOVED: use the new one instead; every change is a CAS of the exact word seen, and takes "prepared" off
 *
 * Anybody moves, several at once, and any of them may die anywhere. Every atomic { } is one shared access. The word's value is the number
 * of changes made to it, so a lost or a doubled change is seen at once.
 *
 * Promised
 *	- every change is made to the newest value; none is lost, none comes back;
 *	- there is no moment without a word: who finds MOVED finds a word in the new place;
 *	- when all is quiet and a mover lived, the new word counts and is the newest.
 *
 * Bounds	WORKERS CHANGES MOVERS DEATHS
 *
 * Mutations that must fail
 *	MARK_FIRST	MOVED goes into the old word before the new one is prepared
 *	NO_MARK		copy, then switch
 *	STORE_NEW	the new word is prepared by a store
 *	NEW_FROM_OLD	the mover loads the old word before the new one
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CHANGES
#define CHANGES 2
#endif
#ifndef MOVERS
#define MOVERS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define EMPTY 0
#define MOVED 255
#define PREPARED 128
#define VALUE(w) ((w) & 127)

/* Shared memory. */
byte old = 1;
byte new = EMPTY;
bool switched; /* the mutation's switch */

byte newest = 1; /* what is really so */
bool dead[MOVERS];
byte deaths;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[0] -> dead[0] = true; deaths++ }
#if MOVERS > 1
	:: atomic { deaths < DEATHS && !dead[1] -> dead[1] = true; deaths++ }
#endif
	:: break
	od
}

/* One CAS of the word seen to the next value. */
inline change(where)
{
	atomic {
		if
		:: where == seen ->
			assert(VALUE(seen) == newest);
			where = VALUE(seen) + 1;
			newest = VALUE(seen) + 1;
			changes++
		:: else
		fi
	}
}

proctype Worker()
{
	byte seen, changes;

	do
	:: changes < CHANGES ->
#ifdef NO_MARK
		atomic { seen = switched };
		if
		:: seen == 0 ->
			atomic { seen = old };
			change(old)
		:: else ->
			atomic { seen = new };
			change(new)
		fi;
#else
		atomic { seen = old };
		if
		:: seen != MOVED -> change(old)
		:: else ->
			atomic { seen = new; assert(seen != EMPTY) };
			change(new)
		fi;
#endif
		seen = 0
	:: else -> break
	od
}

proctype Mover(byte me)
{
	byte r, w;
	bool done;

	{
	do
	:: !done ->
#ifdef NO_MARK
		atomic { w = old };
		atomic { new = w };
		atomic { switched = true; done = true }
#elif defined(MARK_FIRST)
		atomic { w = old };
		if
		:: w == MOVED -> done = true
		:: else ->
			atomic {
				if
				:: old == w -> old = MOVED; r = 1
				:: else -> r = 0
				fi
			};
			if
			:: r == 1 -> atomic { new = w; done = true }
			:: else
			fi
		fi
#else
#ifdef NEW_FROM_OLD
		atomic { w = old };
		atomic { r = new };
#else
		atomic { r = new };
		atomic { w = old };
#endif
		if
		:: w == MOVED -> done = true
		:: w != MOVED && (r == EMPTY || r > PREPARED) ->
			atomic {
				if
#ifdef STORE_NEW
				:: true -> new = PREPARED | w
#else
				:: new == r -> new = PREPARED | w
				:: else -> w = 0
#endif
				fi
			};
			if
			:: w != 0 ->
				atomic {
					if
					:: old == w -> old = MOVED; done = true
					:: else
					fi
				}
			:: else
			fi
		:: else /* the new word is in use: the old one will be MOVED when it is looked at again */
		fi
#endif
		;
		r = 0;
		w = 0
	:: else -> break
	od
	} unless {
		atomic { dead[me] -> r = 0; w = 0; done = false }
	}
}

active proctype Audit()
{
	timeout;
#ifdef NO_MARK
	assert(!switched || new == newest)
#else
	assert(old == MOVED -> VALUE(new) == newest : old == newest);
	assert(old == MOVED || deaths == MOVERS)
#endif
}

init
{
	atomic {
		run Worker();
#if WORKERS > 1
		run Worker();
#endif
		run Mover(0);
#if MOVERS > 1
		run Mover(1)
#endif
	}
}
