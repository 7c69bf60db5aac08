/* SPDX-License-Identifier: MIT */
/*
 * The names of the segments while one supersedes another, twice in a row (daemon/succession.c, lib/attach.c): rescd may be killed between any
 * two steps and is started again; workers come, follow, change the word and leave at any moment.
 *
 *	supersede	link the old one's second name -> link the successor's -> old.superseded = successor -> move the word -> rename the
 *			successor's second name to NAME
 *	resume		open NAME -> superseded? open that one's second name, move, rename, again -> its predecessors by their second names, as far as
 *			each is superseded by the next -> unlink every other second name
 *	tick		the oldest former one: is it empty? move once more -> unlink it if it was
 *	worker		open NAME -> is there a successor? open its second name, or NAME where that leads to it; neither: NAME all the same -> register
 *			-> leave where it was. A call changes the word where it has not moved.
 *
 * How a word moves is in move.pml: here it is one step. A chain is made only when the former ones are settled, that is, moved.
 *
 * Promised
 *	- after each death rescd finds what it needs: a successor that was announced can be opened;
 *	- a worker that follows comes to the word: it is where he is, or he may bring it there, or rescd does;
 *	- when all is quiet, NAME leads to the segment that has the word and that nothing supersedes, and no other name is left.
 *
 * Bounds	SEGMENTS (ever made) WORKERS CALLS DEATHS
 *
 * Mutations that must fail
 *	ANNOUNCE_FIRST	the successor is announced before it has a name
 *	RENAME_FIRST	the successor gets NAME before it is announced
 *	FORGET		a rescd that is started again does not go on with a successor that was announced
 *	SWEEP_FIRST	it unlinks what it does not know before it has looked what was announced
 *	KEEP_LEFTOVERS	it unlinks nothing
 */
#ifndef SEGMENTS
#define SEGMENTS 3
#endif
#ifndef WORKERS
#define WORKERS 1
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif

#define NONE 7
#define MOST 4 /* segments that there is room for here */

/* /dev/shm, and what stands in the segments. The number of a segment is its generation; NONE: no successor, no predecessor. */
byte name;             /* where NAME leads */
bool second[MOST]; /* NAME.<generation> is there */
byte superseded[MOST] = NONE;
byte predecessor[MOST] = NONE;
byte inside[MOST]; /* workers registered */
byte word_in;          /* the segment in which the word counts */

byte made = 1, deaths;
bool dead;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead -> dead = true; deaths++ }
	:: break
	od
}

/* Steps 4 and 5: only forward. */
inline finish()
{
	former[current] = true;
	atomic {
		if
		:: word_in == current -> word_in = next
		:: else
		fi
	};
#ifndef RENAME_FIRST
	atomic { name = next; second[next] = false };
#endif
	atomic { current = next; next = 0 }
}

inline supersede()
{
	atomic { next = made; made++; predecessor[next] = current };
	atomic { second[current] = true };
#ifdef ANNOUNCE_FIRST
	atomic { superseded[current] = next };
	atomic { second[next] = true };
#else
	atomic { second[next] = true };
#ifdef RENAME_FIRST
	atomic { name = next; second[next] = false };
#endif
	atomic { superseded[current] = next };
#endif
	finish()
}

inline unlink_leftovers()
{
#ifndef KEEP_LEFTOVERS
	i = 0;
	do
	:: i < SEGMENTS ->
		atomic {
			if
			:: second[i] && !former[i] -> second[i] = false
			:: else
			fi;
			i++
		}
	:: else -> break
	od;
	i = 0
#endif
	skip
}

inline resume()
{
	atomic { current = name };
#ifdef SWEEP_FIRST
	unlink_leftovers();
#endif
#ifndef FORGET
	do
	:: atomic { superseded[current] != NONE -> next = superseded[current] };
		assert(second[next] && predecessor[next] == current);
		finish()
	:: atomic { superseded[current] == NONE -> break }
	od;
#endif
	/* Its predecessors, by their second names. */
	atomic { i = current };
	do
	:: atomic { predecessor[i] != NONE && second[predecessor[i]] && superseded[predecessor[i]] == i -> i = predecessor[i]; former[i] = true }
	:: atomic { !(predecessor[i] != NONE && second[predecessor[i]] && superseded[predecessor[i]] == i) -> i = 0; break }
	od;
	unlink_leftovers()
}

/* The oldest former segment. */
#define OLDEST (former[0] -> 0 : (former[1] -> 1 : (former[2] -> 2 : 3)))
#define ANY_FORMER (former[0] || former[1] || former[2] || former[3])

active proctype Rescd()
{
	byte current, next, i;
	bool former[MOST];

start:
	{
	resume();
	do
	/* All former ones are settled, and there is a new configuration. */
	:: made < SEGMENTS && !former[word_in] -> supersede()
	/* Its turn: the word of a former one moves, if it has not. */
	:: former[word_in] ->
		atomic {
			if
			:: former[word_in] -> word_in = superseded[word_in]
			:: else
			fi
		}
	:: atomic { ANY_FORMER && inside[OLDEST] == 0 -> i = OLDEST };
		atomic {
			if
			:: word_in == i -> word_in = superseded[i]
			:: else
			fi
		};
		atomic { second[i] = false; former[i] = false; i = 0 }
	od
	} unless {
		atomic {
			dead -> dead = false;
			current = 0; next = 0; i = 0;
			former[0] = false; former[1] = false; former[2] = false; former[3] = false
		};
		goto start
	}
}

proctype Worker()
{
	byte calls, s, next, to;

	do
	:: calls == CALLS -> break
	:: else ->
		calls++;
		atomic { s = name };
		atomic { inside[s]++ };
		do
		:: atomic { next = superseded[s] };
			if
			:: next == NONE -> break
			:: else
			fi;
			/* Its own name, then the instance's if that leads to it. */
			if
			:: atomic { second[next] -> to = next }
			:: atomic { !second[next] -> to = NONE }
			fi;
			atomic {
				if
				:: to == NONE && (name == next || name != s) -> to = name
				:: else
				fi
			};
			if
			:: to == NONE -> break /* it was only announced: the old one still counts */
			:: else
			fi;
			atomic {
				inside[to]++;
				/* Brings the word, where it holds both. */
				if
				:: word_in == s && to == next -> word_in = to
				:: else
				fi;
				inside[s]--;
				s = to;
				to = 0
			}
		od;
		/* A call: the word is here, or on its way here. */
		atomic { assert(word_in == s || superseded[s] != NONE || (predecessor[s] != NONE && superseded[predecessor[s]] == s)) };
		atomic { inside[s]--; s = 0; next = 0; to = 0 }
	od
}

active proctype Audit()
{
	atomic {
		timeout;
		assert(word_in == name && superseded[name] == NONE);
		assert(!second[0] && !second[1] && !second[2] && !second[3])
	}
}

init
{
	atomic {
		run Worker();
#if WORKERS > 1
		run Worker()
#endif
	}
}
