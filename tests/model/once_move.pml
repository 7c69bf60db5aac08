/* SPDX-License-Identifier: MIT */
/*
 * An idempotency key on its way from a superseded segment to its successor (lib/once_move.c, lib/once_call.c), with deaths between any two
 * steps. How a key is found or recorded in a table is in once.pml; here that is one step, and each table has one slot, for the one key.
 *
 *	begin, old	closed? -> record -> closed? then take it back and go to the successor; else "first"
 *	begin, new	ready? else move -> find or record
 *	move		closed = 1 -> load old -> insert it in new, RUNNING as AWAY with the old word -> ready = 1. Anyone, several at once
 *	done, abandon	where the key was recorded
 *	settle, old	UNKNOWN -> STORING -> closed? then back to UNKNOWN; else as done or abandon
 *	settle, new	UNKNOWN -> DONE or EMPTY
 *	come home	rescd: load new; AWAY -> load its origin -> load old -> CAS new to what became of it
 *	reap		a RUNNING of the dead becomes UNKNOWN, or EMPTY with FREE; a STORING becomes UNKNOWN
 *
 * Promised
 *	- "first" is said only when the key is free: not in work, not done, not unknown, in whichever table;
 *	- when all is quiet and rescd lives, the key is away only while its owner lives and works;
 *	- and what was settled as done is not unknown in the new table.
 *
 * Bounds	WORKERS CALLS DEATHS
 * FREE		on_death is "free"
 *
 * Mutations that must fail
 *	NO_SECOND_LOOK	"first" as soon as it is recorded
 *	CLOSE_LAST	move: copy, then close
 *	NO_CLOSE	move: never close
 *	READY_FIRST	move: ready, then copy
 *	ONLY_DONE	move: keys in work are not carried
 *	FREE_AWAY	rescd: what is not over in the old table is free
 *	STORE_AWAY	rescd: a store instead of a CAS, by two of them
 *	SETTLE_UNSEEN	a key of the old table is settled without a look at closed
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifdef STORE_AWAY
#define RESCDS 2
#else
#define RESCDS 1
#endif

#define EMPTY 0
#define RUNNING 1
#define DONE 2
#define UNKNOWN 3
#define AWAY 4
#define STORING 5

#define WORD(v, o, p) (((v) << 6) | ((o) << 3) | (p))
#define PHASE(w) ((w) & 7)
#define OWNER(w) (((w) >> 3) & 7)
#define VERSION(w) (((w) >> 6) & 15)
#define WITH(w, p) (((w) & 1016) | (p))
#define FREED(w) WORD(VERSION(w), 0, EMPTY)
#define NEXT(w, o, p) WORD((VERSION(w) + 1) & 15, o, p)

/* Shared memory: the slot of either table, and where an AWAY came from. */
short table[2];
short origin;
bool announced, closed, ready;
#define OLD 0
#define NEW 1

#define NOBODY 0
#define HELD 1
#define IS_DONE 2
#define LOST 3
byte truth;
bool told;         /* the owner in the old table was told that it is first */
bool dead[WORKERS];
byte deaths;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[0] -> dead[0] = true; deaths++ }
	:: atomic { deaths < DEATHS && !dead[1] -> dead[1] = true; deaths++ }
#if WORKERS > 2
	:: atomic { deaths < DEATHS && !dead[2] -> dead[2] = true; deaths++ }
#endif
	:: break
	od
}

inline copy()
{
	atomic { w = table[OLD] };
	if
	:: PHASE(w) == EMPTY
#ifdef ONLY_DONE
	:: PHASE(w) == RUNNING || PHASE(w) == STORING
#else
	:: PHASE(w) == RUNNING || PHASE(w) == STORING ->
		atomic {
			if
			:: PHASE(table[NEW]) == EMPTY -> table[NEW] = NEXT(table[NEW], 0, AWAY); origin = w
			:: else
			fi
		}
#endif
	:: PHASE(w) == DONE || PHASE(w) == UNKNOWN ->
		atomic {
			if
			:: PHASE(table[NEW]) == EMPTY -> table[NEW] = NEXT(table[NEW], 0, PHASE(w))
			:: else
			fi
		}
	fi;
	w = 0
}

inline move()
{
#ifdef READY_FIRST
	atomic { ready = true };
#endif
#if !defined(CLOSE_LAST) && !defined(NO_CLOSE)
	atomic { closed = true };
#endif
	copy();
#ifdef CLOSE_LAST
	atomic { closed = true };
#endif
	atomic { ready = true }
}

inline first()
{
	assert(truth == NOBODY);
	truth = HELD;
	won = true
}

/* In the table where it was begun. */
inline end_work(where)
{
	if
	:: atomic { table[where] == mine -> table[where] = WITH(mine, DONE); truth = IS_DONE }
	:: atomic { table[where] == mine -> table[where] = FREED(mine); truth = NOBODY }
	fi;
	atomic { won = false; mine = 0 }
}

/* What was seen unknown in the old table, in mine. */
inline settle_old()
{
	atomic {
		if
		:: table[OLD] == mine -> mine = WORD(VERSION(mine), me + 1, STORING); table[OLD] = mine; won = true
		:: else -> mine = 0
		fi
	};
	if
	:: won ->
#ifndef SETTLE_UNSEEN
		atomic { shut = closed };
#endif
		if
		:: shut -> atomic { table[OLD] == mine -> table[OLD] = WITH(mine, UNKNOWN); mine = 0; won = false }
		:: !shut -> atomic { assert(truth == LOST || truth == NOBODY); truth = HELD }; end_work(OLD)
		fi
	:: else
	fi
}

proctype Worker(byte me)
{
	short w, mine;
	byte calls;
	bool follows, won, shut;

	{
	do
	:: calls < CALLS ->
		atomic { calls++; follows = follows || announced };
		if
		:: !follows ->
			atomic { shut = closed };
			if
			:: !shut && PHASE(table[OLD]) == UNKNOWN ->
				atomic { mine = table[OLD]; mine = (PHASE(mine) == UNKNOWN -> mine : 0) };
				if
				:: mine != 0 -> settle_old()
				:: else
				fi
			:: !shut ->
				atomic {
					if
					:: PHASE(table[OLD]) == EMPTY ->
						mine = NEXT(table[OLD], me + 1, RUNNING);
						table[OLD] = mine;
						told = false;
#ifdef NO_SECOND_LOOK
						told = true;
						first()
#endif
					:: else
					fi
				};
#ifndef NO_SECOND_LOOK
				if
				:: mine != 0 ->
					atomic {
						shut = closed;
						if
						:: !shut -> told = true; first()
						:: else
						fi
					};
					if
					:: shut -> atomic { table[OLD] == mine -> table[OLD] = FREED(mine); mine = 0 }
					:: else
					fi
				:: else
				fi;
#endif
				if
				:: won -> end_work(OLD)
				:: else
				fi
			:: else
			fi
		:: else ->
			if
			:: atomic { !ready -> skip }; move()
			:: atomic { ready -> skip }
			fi;
			atomic {
				if
				:: PHASE(table[NEW]) == UNKNOWN -> table[NEW] = WITH(table[NEW], DONE); truth = IS_DONE
				:: PHASE(table[NEW]) == UNKNOWN -> table[NEW] = FREED(table[NEW]); truth = NOBODY
				:: PHASE(table[NEW]) == EMPTY ->
					mine = NEXT(table[NEW], me + 1, RUNNING);
					table[NEW] = mine;
					first()
				:: else
				fi
			};
			if
			:: won -> end_work(NEW)
			:: else
			fi
		fi
	:: calls == CALLS -> break
	od
	} unless {
		atomic { dead[me] -> w = 0; mine = 0; calls = 0; follows = false; won = false; shut = false }
	}
}

#ifdef FREE
#define AFTER(w) FREED(w)
#define TRUTH_AFTER NOBODY
#else
#define AFTER(w) WITH(w, UNKNOWN)
#define TRUTH_AFTER LOST
#endif

active proctype Reaper()
{
	byte where;

	do
	:: atomic { PHASE(table[OLD]) == RUNNING && dead[OWNER(table[OLD]) - 1] -> where = OLD;
		truth = (told -> TRUTH_AFTER : truth);
		table[where] = AFTER(table[where]) }
	:: atomic { PHASE(table[OLD]) == STORING && dead[OWNER(table[OLD]) - 1] ->
		truth = LOST;
		table[OLD] = WITH(table[OLD], UNKNOWN) }
	:: atomic { PHASE(table[NEW]) == RUNNING && dead[OWNER(table[NEW]) - 1] -> where = NEW;
		truth = TRUTH_AFTER;
		table[where] = AFTER(table[where]) }
	od
}

inline turn(next)
{
	atomic {
		if
#ifdef STORE_AWAY
		:: true ->
#else
		:: table[NEW] == n ->
#endif
			table[NEW] = next
#ifndef STORE_AWAY
		:: else
#endif
		fi
	}
}

proctype Rescd()
{
	short n, from, o, w;

	atomic { announced = true };
	move();
	do
	:: atomic { PHASE(table[NEW]) == AWAY -> n = table[NEW] };
		atomic { from = origin };
		atomic { o = table[OLD] };
		if
		:: VERSION(o) != VERSION(from) || PHASE(o) == EMPTY -> turn(FREED(n))
		:: VERSION(o) == VERSION(from) && PHASE(o) == DONE -> turn(WITH(n, DONE))
		:: VERSION(o) == VERSION(from) && PHASE(o) == UNKNOWN -> turn(WITH(n, UNKNOWN))
#ifdef FREE_AWAY
		:: VERSION(o) == VERSION(from) && PHASE(o) == RUNNING -> turn(FREED(n))
#else
		:: VERSION(o) == VERSION(from) && PHASE(o) == RUNNING
#endif
		:: VERSION(o) == VERSION(from) && PHASE(o) == STORING
		fi;
		atomic { n = 0; from = 0; o = 0 }
	od
}

active proctype Audit()
{
	timeout;
	assert(ready && (PHASE(table[NEW]) != AWAY || table[OLD] == origin));
	assert(truth != IS_DONE || PHASE(table[NEW]) == DONE)
}

init
{
	atomic {
		run Worker(0);
		run Worker(1);
#if WORKERS > 2
		run Worker(2);
#endif
		run Rescd();
#if RESCDS > 1
		run Rescd()
#endif
	}
}
