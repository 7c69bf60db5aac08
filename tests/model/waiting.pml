/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a permit in the order of arrival (lib/waiting.h), with deaths of waiters, holders and reapers, and with callers that give up.
 *
 * The wait word is {generation, waiters}, and a futex: who sleeps does so on the value that it saw. The line is a cell for each waiter with
 * the place that it has drawn (drawn + 1), and a place up to which nobody is waited for (passed).
 *	come	where passed is not behind drawn, or fewer stand in the line than cells are free: look at the permits. Else draw, stand in line
 *	wait	CAS the bit on; where all cells are taken, or fewer stand before than cells are free: look at the permits; else, or if there was
 *		none, sleep while the word has that value; from the start
 *	go	out of the line, for whatever reason: load drawn; nobody else is in it: raise passed to that; else, if a cell is free: as give
 *	pass	(STOPS) a whole slice beside a free cell: raise passed to the place of the first who stood before, and go on
 *	give	free the cell; load the word; where the bit is set: look who is the first in line; CAS {generation, set} -> {generation + 1, set},
 *		then wake him, whatever became of the CAS; where nobody else is in line: {generation + 1, clear}, then wake all
 *	reap	free the cells of the dead; where the word is not 0: generation + 1, the bit as it is; wake all; free the slot, last
 *	raise	(RAISE) the limit goes from 1 to CELLS, while somebody holds the first cell for ever; then as the reaper
 * The generation leaves 0 out when it wraps: a word of 0 has never been waited on.
 *
 * Every atomic { } holds one access to shared memory or one act of the kernel (to compare and to go to sleep is one), and what a process
 * remembers for itself. Between any two of them a worker may die, and where there are STOPS it may be stopped for ever; only then do sleeps end
 * by themselves (slices). A reaper may die too. Memory is sequentially consistent.
 *
 * Promised
 *	- a permit is there when its holder leaves;
 *	- when all is quiet nobody sleeps beside a free cell, and nobody sleeps for a cell of the dead;
 *	- nobody sleeps more often beside a free cell than there are others before whom it could come: each is passed once.
 *
 * Bounds	WORKERS CELLS CALLS REAPERS; DEATHS and STOPS of workers, REAPER_DEATHS; RAISE
 *
 * Mutations that must fail
 *	NO_SECOND_LOOK		wait: the bit, and to sleep
 *	NO_GENERATION		the word is the bit alone
 *	WAKE_ONE		give: one sleeper is woken
 *	WAKE_SECOND		give: the first in line sleeps on
 *	CLEAR_ALWAYS		give: the bit is cleared, though others than the first sleep on
 *	SIGNAL_FIRST		give: the word first, then the cell
 *	LOOK_FIRST		give: the bit is loaded before the cell is free
 *	SLOT_FIRST		reap: the slot first
 *	REAP_IF_FREED		reap: wakes only where a cell was freed
 *	REAP_IF_BIT		reap: wakes only where the bit is set
 *	REAP_WITHOUT_WORD	reap: wakes, and leaves the word as it is
 *	COUNTER			waiters are counted
 *	RAISE RAISE_SILENTLY	raise: nobody is woken
 *	STOPS=1 NO_SLICES	a releaser is stopped between the cell and the word, and sleeps do not end by themselves
 *	GO_SILENTLY		go: nobody is woken
 *	GO_FIRST_LOOK		go: the permits first, then out of the line
 *	STOPS=1 NO_PASSING	who stands before is waited for, also when it does not come
 */
#ifndef WORKERS
#define WORKERS 3
#endif
#ifndef CELLS
#define CELLS 1
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef REAPERS
#define REAPERS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 0
#endif
#ifndef REAPER_DEATHS
#define REAPER_DEATHS 1
#endif

#if STOPS > 0 && !defined(NO_SLICES)
#define SLICES
#endif

/* Shared memory. reaped: the slot is free. */
byte cell[CELLS];
byte generation;
bool waiters;
bool reaped[WORKERS];
byte line[WORKERS];
byte drawn, passed;
#ifdef RAISE
byte limit = 1;
#else
#define limit CELLS
#endif
#ifdef COUNTER
byte counter;
#endif

/* The kernel. */
bool dead[WORKERS];
bool stopped[WORKERS];
bool asleep[WORKERS];
bool reaper_dead[REAPERS];

/* What is really so; read by assertions alone. */
bool gone[WORKERS];

byte deaths, stops, reaper_deaths;

#define FOREVER (WORKERS + 1) /* a holder who does nothing else */
#define CAN(w) (!dead[w] && !stopped[w] && !gone[w])

#ifdef RAISE
#define FREE(c) (cell[c] == 0 && (c) < limit)
#else
#define FREE(c) (cell[c] == 0)
#endif
#if CELLS > 1
#define SOME_FREE (FREE(0) || FREE(1))
#else
#define SOME_FREE FREE(0)
#endif

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && CAN(0) -> dead[0] = true; asleep[0] = false; deaths++ }
	:: atomic { deaths < DEATHS && CAN(1) -> dead[1] = true; asleep[1] = false; deaths++ }
#if WORKERS > 2
	:: atomic { deaths < DEATHS && CAN(2) -> dead[2] = true; asleep[2] = false; deaths++ }
#endif
#if STOPS > 0
	:: atomic { stops < STOPS && CAN(0) -> stopped[0] = true; stops++ }
	:: atomic { stops < STOPS && CAN(1) -> stopped[1] = true; stops++ }
#endif
	:: atomic { reaper_deaths < REAPER_DEATHS && !reaper_dead[0] -> reaper_dead[0] = true; reaper_deaths++ }
	:: break
	od
}

inline wake_everybody()
{
	k = 0;
	do
	:: k < WORKERS -> asleep[k] = false; k++
	:: else -> break
	od;
	k = 0
}

inline wake_all()
{
	d_step { wake_everybody() }
}

inline wake_one()
{
	if
	:: atomic { asleep[0] -> asleep[0] = false }
	:: atomic { asleep[1] -> asleep[1] = false }
#if WORKERS > 2
	:: atomic { asleep[2] -> asleep[2] = false }
#endif
	:: else
	fi
}

#define NEXT(g) ((g) == 3 -> 1 : (g) + 1)

inline look()
{
	i = 0;
	got = false;
	do
	:: atomic { i < limit ->
		if
		:: cell[i] == 0 -> cell[i] = me + 1; got = true; break
		:: else -> i++
		fi }
	:: else -> break
	od
}

/* Others, one by one. */
#define NEXT_TO(me) (((me) + 1) % WORKERS)
#define LAST_TO(me) (((me) + 2) % WORKERS)

/* Who stands before place p (0: behind all), and the first of them. */
#define LOOK_AT(w) if :: line[w] > f && (p == 0 || line[w] < p) -> n++; d = (d == 0 || line[w] < d -> line[w] : d) :: else fi

#if CELLS > 1
#define LOOK_AT_CELLS atomic { o = (cell[0] != 0 -> 1 : 0) }; atomic { o = o + (1 < limit && cell[1] != 0 -> 1 : 0); turn = o >= limit }
#else
#define LOOK_AT_CELLS atomic { o = (cell[0] != 0 -> 1 : 0); turn = o >= limit }
#endif

/* Where all cells are taken a look at the permits says so. */
inline is_my_turn()
{
	LOOK_AT_CELLS;
	if
	:: atomic { turn -> o = 0; n = 0; d = 0 }
	:: atomic { else -> f = passed; n = 0; d = 0 };
#if WORKERS > 2
		atomic { LOOK_AT(LAST_TO(me)) };
#endif
		atomic { LOOK_AT(NEXT_TO(me)); turn = (n == 0 || o + n < limit); o = 0; f = 0; n = 0; d = (turn -> 0 : d) }
	fi
}

#define RAISE_PASSED passed = (passed < d -> d : passed); d = 0

inline stand_in_line()
{
	atomic { drawn++; p = drawn };
	atomic { line[me] = p }
}

inline wake_the_next()
{
	LOOK_AT_CELLS;
	if
	:: atomic { !turn -> o = 0 };
		load();
		signal()
	:: atomic { else -> o = 0; turn = false }
	fi
}

inline go_out_of_line()
{
#ifdef GO_FIRST_LOOK
	wake_the_next();
#endif
	atomic { line[me] = 0; p = 0 };
	atomic { d = drawn };
#if WORKERS > 2
	atomic { n = (line[LAST_TO(me)] != 0 -> 1 : 0) };
#endif
	atomic { n = n + (line[NEXT_TO(me)] != 0 -> 1 : 0) };
	if
	:: atomic { n == 0 -> RAISE_PASSED }
	:: atomic { else -> n = 0; d = 0 };
#if !defined(GO_SILENTLY) && !defined(GO_FIRST_LOOK)
		wake_the_next()
#endif
	fi
}

inline announce()
{
	atomic { g = generation; b = waiters };
	do
	:: b -> break
	:: else ->
		atomic {
			if
			:: generation == g && !waiters -> waiters = true; b = true
			:: else ->
				g = generation;
				b = waiters
			fi
		}
	od
#ifdef COUNTER
	;
	atomic { counter++ }
#endif
}

#ifdef NO_GENERATION
#define UNCHANGED waiters
#else
#define UNCHANGED (generation == g && waiters)
#endif

inline sleep()
{
	atomic {
		if
		:: UNCHANGED -> asleep[me] = true
		:: else
		fi;
		g = 0; b = false; i = 0
	};
	if
	:: atomic { !asleep[me] -> d = 0 }
#ifdef SLICES
	:: atomic { asleep[me] && SOME_FREE -> asleep[me] = false; slept = slept + (turn -> 0 : 1); assert(slept <= WORKERS) };
#ifdef NO_PASSING
		d = 0
#else
		atomic { RAISE_PASSED } /* where it was its turn, d is 0 */
#endif
#endif
	fi
}

/* Of the two others, with places d and n, the first is woken. (In the code those who were passed too: a wake-up too many costs a look.) */
#define BOTH_WAIT (d != 0 && n != 0)
#ifdef WAKE_SECOND
#define FIRST (n < d)
#else
#define FIRST (d < n)
#endif

#ifdef CLEAR_ALWAYS
#define BIT_AFTER false
#else
#define BIT_AFTER BOTH_WAIT
#endif

/* The word that was seen is {g, b}. */
inline signal()
{
	if
	:: b ->
#if WORKERS > 2 && !defined(WAKE_ONE)
		atomic { d = line[NEXT_TO(me)] };
		atomic { n = line[LAST_TO(me)] };
#endif
		atomic {
			if
			:: generation == g && waiters -> generation = NEXT(g); waiters = BIT_AFTER
			:: else
			fi;
			g = 0; b = false
		};
#ifdef WAKE_ONE
		wake_one()
#else
		if
		:: atomic { BOTH_WAIT ->
			if
			:: FIRST -> asleep[NEXT_TO(me)] = false
			:: else -> asleep[LAST_TO(me)] = false
			fi;
			d = 0; n = 0 }
		:: else -> d_step { wake_everybody(); d = 0; n = 0 }
		fi
#endif
	:: else
	fi
}

inline load()
{
	atomic { g = generation; b = waiters }
}

inline give_back()
{
	atomic { assert(cell[i] == me + 1); cell[i] = 0 }
}

proctype Worker(byte me)
{
	byte calls, i, g, k, o, f, n, d, p, slept, at;
	bool got, b, turn;

	{
	do
	:: calls < CALLS ->
		calls++;
		atomic { f = passed };
		atomic { turn = (f >= drawn); f = 0 };
		if
		:: turn
		:: else -> is_my_turn(); d = 0
		fi;
		if
		:: turn -> look();
			if
			:: got -> goto inside
			:: else
			fi
		:: else
		fi;
		stand_in_line();
		do
		::
			announce();
#ifndef NO_SECOND_LOOK
			is_my_turn();
			if
			:: turn -> look()
			:: else -> got = false
			fi;
#else
			turn = true;
#endif
			if
#ifdef COUNTER
			:: got -> atomic { counter-- }; break
#else
			:: got -> break
#endif
			/* It has waited long enough, and looks a last time. */
			:: !got && calls == 1 && me == 0 ->
				if
				:: !turn -> look()
				:: else
				fi;
				break
			:: !got
			fi;
			sleep()
#ifdef COUNTER
			;
			atomic { counter-- }
#endif
#ifdef NO_SECOND_LOOK
			;
			look();
			if
			:: got -> break
			:: else
			fi
#endif
		od;
		atomic { at = i; g = 0; b = false; slept = 0 };
		go_out_of_line();
		atomic { i = at; at = 0 };
		if
		:: got
		:: else -> goto next
		fi;
inside:
#if defined(SIGNAL_FIRST)
		load();
		signal();
		give_back();
#elif defined(LOOK_FIRST)
		load();
		give_back();
		signal();
#else
		give_back();
		load();
		signal();
#endif
next:
		atomic { i = 0; g = 0; b = false; got = false; turn = false; n = 0; d = 0 }
	:: else -> break
	od;
	gone[me] = true
	} unless {
		atomic { (dead[me] || stopped[me]) -> calls = 0; i = 0; g = 0; k = 0; got = false; b = false; o = 0; f = 0; n = 0; d = 0; p = 0; slept = 0; at = 0;
			turn = false }
	}
}

/* A reaper, and whoever raises a limit. */
inline move_and_wake()
{
#ifdef REAP_WITHOUT_WORD
	wake_all()
#else
	load();
	if
	:: g == 0 && !b
	:: else ->
		do
		:: atomic {
			if
			:: generation == g && waiters == b -> generation = NEXT(g); break
			:: else -> g = generation; b = waiters
			fi }
		od;
#ifdef REAP_IF_BIT
		if
		:: b -> wake_all()
		:: else
		fi
#else
		wake_all()
#endif
	fi
#endif
}

proctype Reaper(byte me)
{
	byte w, i, g, k;
	bool b, freed;

	{
	do
	:: atomic {
		if
		:: dead[0] && !reaped[0] -> w = 0
		:: dead[1] && !reaped[1] -> w = 1
#if WORKERS > 2
		:: dead[2] && !reaped[2] -> w = 2
#endif
		fi };
#ifdef SLOT_FIRST
		atomic { reaped[w] = true };
#endif
		do
		:: atomic { i < CELLS ->
			if
			:: cell[i] == w + 1 -> cell[i] = 0; freed = true
			:: else
			fi;
			i++ }
		:: else -> break
		od;
		atomic { line[w] = 0 };
#ifdef REAP_IF_FREED
		if
		:: freed -> move_and_wake()
		:: else
		fi;
#else
		move_and_wake();
#endif
		atomic { reaped[w] = true; w = 0; i = 0; g = 0; b = false; freed = false }
	od
	} unless {
		atomic { reaper_dead[me] -> w = 0; i = 0; g = 0; k = 0; b = false; freed = false }
	}
}

#ifdef RAISE
active proctype Daemon()
{
	byte g, k;
	bool b;

	atomic { limit = CELLS };
#ifndef RAISE_SILENTLY
	move_and_wake();
#endif
	atomic { g = 0; b = false }
}
#endif

/* When nothing moves any more. */
active proctype Auditor()
{
	byte w;

	timeout;
	atomic {
		w = 0;
		do
		:: w < WORKERS ->
			assert(!asleep[w] || stopped[w] || !SOME_FREE);
			assert(!asleep[w] || stopped[w] || cell[0] == 0 || cell[0] == FOREVER || !dead[cell[0] - 1]);
			w++
		:: else -> break
		od;
#ifdef COUNTER
		assert(counter == asleep[0] + asleep[1] + asleep[WORKERS - 1]);
#endif
		w = 0
	}
}

init
{
	byte n;

	atomic {
#ifdef RAISE
		cell[0] = FOREVER;
#endif
		n = 0;
		do
		:: n < WORKERS -> run Worker(n); n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < REAPERS -> run Reaper(n); n++
		:: else -> break
		od
	}
}
