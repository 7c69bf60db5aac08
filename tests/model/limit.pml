/* SPDX-License-Identifier: MIT */
/*
 * A bulkhead whose limit changes while calls are inside, and which may move to a new segment (lib/move.h, the limit of lib/words.h).
 *
 * The limit is one word {target, effective, debt, version}; every change is one CAS of the whole word.
 *	set	{T, 0 if lower else effective, debt, version + 1}; a raise while there is a debt raises the debt by as much
 *	settle	load the word, look at all cells, e = the largest e <= target - debt with e + occupied cells at or beyond e <= target - debt;
 *		if that is more than effective: CAS
 *	acquire	load the word, CAS a cell below effective, load the word again; a cell that is no longer below is given back, start over
 *	move	(MOVE) the new segment's word is born {target, 0, debt = target}; publish; close the old word for good {0, 0, 0};
 *		occupied = old cells that are taken; debt = min(debt, occupied). Anybody does the last three, again and again.
 * Tickets never move: a permit is given back in the segment where it was taken.
 *
 * Every atomic { } is one shared access. Workers and the daemon may die between any two.
 *
 * Promised
 *	- at each grant, the permits granted over both segments are not more than the limit that was set for that segment;
 *	- nobody loses a permit that he holds;
 *	- when all is quiet and nobody holds anything, whoever comes finds the whole limit, whoever died in the middle (also the daemon).
 *
 * Bounds	WORKERS CELLS CALLS DEATHS DAEMON_DEATHS; without MOVE the daemon sets CELLS -> 1 -> CELLS -> 1; with MOVE it
 *		moves to a limit of NEW_TARGET, and then sets THEN, if given
 *
 * Mutations that must fail
 *	ONLY_THE_TARGET		no effective limit: the passes get shorter, holders beyond are forgotten
 *	NO_SECOND_LOOK		acquire does not load the word again
 *	NO_VERSION		settle's CAS does not compare the version
 *	MOVE NO_DEBT		the new word is born without a debt
 *	MOVE COUNT_FIRST	the old cells are counted before the old word is closed
 *	MOVE THEN=1 STORE_DEBT	the debt is lowered by a store of the word, not by CAS
 *	MOVE NEW_TARGET=1 THEN=2 PLAIN_RAISE	a raise leaves the debt as it is
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CELLS
#define CELLS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef DAEMON_DEATHS
#define DAEMON_DEATHS 1
#endif
#ifndef NEW_TARGET
#define NEW_TARGET CELLS
#endif

#ifdef MOVE
#define SEGMENTS 2
#else
#define SEGMENTS 1
#endif
#define CLOSED 0 /* the target of a closed word */

/* Shared memory: the limit words, and the cells of each segment in a row. */
byte target[2] = { CELLS, NEW_TARGET };
byte effective[2] = { CELLS, 0 };
#ifdef NO_DEBT
byte debt[2];
#else
byte debt[2] = { 0, NEW_TARGET };
#endif
byte version[2];
byte cell[SEGMENTS * CELLS];
byte current; /* the segment that is published */

#ifdef NO_DEBT
#define BIRTH effective[1] = NEW_TARGET
#else
#define BIRTH skip
#endif

bool dead[WORKERS];
bool gone[WORKERS];
bool daemon_dead;
byte deaths, daemon_deaths;
/* What is really so; read by assertions alone. */
byte granted[WORKERS];
byte wanted[2] = { CELLS, NEW_TARGET };

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[0] && !gone[0] -> dead[0] = true; deaths++ }
	:: atomic { deaths < DEATHS && !dead[1] && !gone[1] -> dead[1] = true; deaths++ }
	:: atomic { daemon_deaths < DAEMON_DEATHS -> daemon_dead = true; daemon_deaths++ }
	:: break
	od
}

inline never_more_than_wanted(s)
{
	k = 0;
	total = 0;
	do
	:: k < WORKERS -> total = total + (dead[k] -> 0 : granted[k]); k++
	:: else -> break
	od;
	assert(total <= wanted[s]);
	total = 0;
	k = 0
}

#define ROOM(t, d) ((t) > (d) -> (t) - (d) : 0)

/* The largest e that keeps e and the occupied cells at or beyond e within the room. */
inline settle(s)
{
	atomic { t = target[s]; f = effective[s]; d = debt[s]; v = version[s] };
	k = CELLS;
	occupied = 0;
	best = (ROOM(t, d) == CELLS -> CELLS : 255);
	do
	:: atomic { k > 0 ->
		k--;
		occupied = occupied + (cell[s * CELLS + k] != 0);
		if
		:: best == 255 && k + occupied <= ROOM(t, d) && k <= ROOM(t, d) -> best = k
		:: else
		fi }
	:: else -> break
	od;
	settled = false;
	if
	:: best != 255 && best > f ->
		atomic {
			if
#ifdef NO_VERSION
			:: target[s] == t && effective[s] == f && debt[s] == d ->
#else
			:: target[s] == t && effective[s] == f && debt[s] == d && version[s] == v ->
#endif
				effective[s] = best
			:: else
			fi
		};
		settled = true
	:: else
	fi;
	k = 0; occupied = 0; best = 0; t = 0; f = 0; d = 0; v = 0
}

/* Closes the old word and lowers the debt of the new one. */
inline count_old()
{
	k = 0;
	occupied = 0;
	do
	:: atomic { k < CELLS -> occupied = occupied + (cell[k] != 0); k++ }
	:: else -> break
	od;
	k = 0
}

inline lower_debt()
{
#ifdef STORE_DEBT
	atomic { d = debt[1]; t = target[1]; f = effective[1]; v = version[1] };
	atomic { target[1] = t; effective[1] = f; debt[1] = (occupied < d -> occupied : d); version[1] = v };
#else
	do
	:: atomic { d = debt[1]; t = target[1]; f = effective[1]; v = version[1] };
		if
		:: d <= occupied -> break
		:: else ->
			atomic {
				if
				:: debt[1] == d && target[1] == t && effective[1] == f && version[1] == v -> debt[1] = occupied; break
				:: else
				fi
			}
		fi
	od;
#endif
	occupied = 0; d = 0; t = 0; f = 0; v = 0
}

inline close_old()
{
	atomic { target[0] = CLOSED; effective[0] = 0; debt[0] = 0 }
}

inline help_move()
{
#ifdef COUNT_FIRST
	count_old();
	close_old();
#else
	close_old();
	count_old();
#endif
	lower_debt()
}

proctype Worker(byte me)
{
	byte calls, s, i, below, t, f, d, v, k, occupied, best, total, turns;
	bool got, settled;

	{
	do
	:: calls < CALLS ->
		calls++;
		turns = 0;
again:
		atomic { s = current };
		atomic { below = effective[s]; i = 0; got = false };
		do
		:: atomic { i < below ->
			if
			:: cell[s * CELLS + i] == 0 -> cell[s * CELLS + i] = me + 1; got = true; break
			:: else -> i++
			fi }
		:: else -> break
		od;
		if
		:: got ->
			/* The second look: this is where the permit is granted. */
			atomic {
#ifndef NO_SECOND_LOOK
				if
				:: i < effective[s] -> granted[me]++; never_more_than_wanted(s)
				:: else -> got = false
				fi
#else
				granted[me]++;
				never_more_than_wanted(s)
#endif
			};
			if
			:: !got ->
				atomic { cell[s * CELLS + i] = 0 };
				goto again
			:: else
			fi;
			atomic { granted[me]-- };
			atomic { assert(cell[s * CELLS + i] == me + 1); cell[s * CELLS + i] = 0 }
		:: else ->
			/* Before it is said that all is full: help, settle, and try once more if that helped. */
#ifdef MOVE
			if
			:: s == 0 && current != 0 -> goto again
			:: s == 1 && debt[1] > 0 -> help_move()
			:: else
			fi;
#endif
#ifndef ONLY_THE_TARGET
			settle(s);
			if
			:: settled && turns < 2 -> turns++; goto again
			:: else
			fi
#endif
		fi;
		atomic { s = 0; i = 0; below = 0; got = false; settled = false; turns = 0 }
	:: else -> break
	od;
	gone[me] = true
	} unless {
		atomic { dead[me] ->
			calls = 0; s = 0; i = 0; below = 0; t = 0; f = 0; d = 0; v = 0; k = 0; occupied = 0; best = 0; total = 0; turns = 0;
			got = false; settled = false }
	}
}

/* What permits.pml shows: cells of the dead become free at some time. */
active proctype Reaper()
{
	do
	:: atomic { cell[0] != 0 && dead[cell[0] - 1] -> cell[0] = 0 }
	:: atomic { cell[1] != 0 && dead[cell[1] - 1] -> cell[1] = 0 }
#if SEGMENTS * CELLS > 2
	:: atomic { cell[2] != 0 && dead[cell[2] - 1] -> cell[2] = 0 }
	:: atomic { cell[3] != 0 && dead[cell[3] - 1] -> cell[3] = 0 }
#endif
	od
}

#ifdef ONLY_THE_TARGET
#define EFFECTIVE_AFTER(s, new) new
#else
#define EFFECTIVE_AFTER(s, new) ((new) < target[s] -> 0 : effective[s])
#endif
#ifdef PLAIN_RAISE
#define DEBT_AFTER(s, new) debt[s]
#else
#define DEBT_AFTER(s, new) (debt[s] > 0 && (new) > target[s] -> debt[s] + (new) - target[s] : debt[s])
#endif

inline set_limit(s, new)
{
	atomic {
		effective[s] = EFFECTIVE_AFTER(s, new);
		debt[s] = DEBT_AFTER(s, new);
		target[s] = new;
		wanted[s] = new;
		version[s]++
	}
}

active proctype Daemon()
{
	byte k, occupied, d, t, f, v;

	{
#ifdef MOVE
	BIRTH;
	atomic { current = 1 };
#ifdef THEN
	set_limit(1, THEN);
#endif
	help_move()
#else
	set_limit(0, 1);
	set_limit(0, CELLS);
	set_limit(0, 1)
#endif
	} unless {
		atomic { daemon_dead -> k = 0; occupied = 0; d = 0; t = 0; f = 0; v = 0 }
	}
}

/* When nothing moves any more, a fresh caller finds the whole limit. */
active proctype LastCaller()
{
	byte k, occupied, d, t, f, v, best, n;
	bool settled;

	timeout;
	n = 0;
	do
	:: n < SEGMENTS * CELLS -> assert(cell[n] == 0); n++
	:: else -> break
	od;
	k = 0;
#ifdef MOVE
	if
	:: current == 1 -> help_move()
	:: else
	fi;
#endif
	settle(current);
	assert(target[current] == wanted[current] && effective[current] == target[current] && debt[current] == 0)
}

init
{
	atomic {
		run Worker(0);
		run Worker(1);
#if WORKERS > 2
		run Worker(2)
#endif
	}
}
