/* SPDX-License-Identifier: MIT */
/*
 * How an override ends (lib/override.h): released by an operator or expired, by whoever sees it first, several at once.
 *
 *	end	load breaker -> load override (over? else nothing to do) -> CAS breaker -> {closed, generation + 1} -> CAS override away;
 *		on a failed CAS start again
 *
 * Meanwhile a worker moves the breaker, as under an override of mode "closed", and an operator forces the resource again as soon as the
 * first override is gone. Any of those who end it may die anywhere. Every atomic { } is one shared access.
 *
 * Promised
 *	- an override goes only after the breaker was reset for it;
 *	- nothing that the breaker came to after the override was gone is reset any more (closed may be closed once more);
 *	- the operator's next override, the same in all but its serial, is not taken away by those who ended the one before;
 *	- when all is quiet the first override is gone, if one of the enders lived.
 *
 * Bounds	ENDERS DEATHS MOVES (transitions by the worker)
 *
 * Mutations that must fail
 *	OVERRIDE_FIRST		CAS the override away, then the breaker
 *	LOAD_OVERRIDE_FIRST	load the override before the breaker
 *	STORE_BREAKER		reset by a store
 *	NO_SERIAL		overrides have no serial
 */
#ifndef ENDERS
#define ENDERS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef MOVES
#define MOVES 3
#endif

#define NONE 0
#ifdef NO_SERIAL
#define SECOND 1
#else
#define SECOND 2
#endif
#define FIRST 1

/* Shared memory. The breaker is {open, generation}; the override {until, serial}, of which only the serial matters here. */
bool open;
byte generation = 1;
byte override = FIRST;

/* What is really so. */
bool reset_done;    /* a reset since the override began */
bool ended;         /* the first override is gone */
bool forced_again;
byte ended_at;      /* the breaker's generation at that moment */
bool dead[ENDERS];
byte deaths;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[0] -> dead[0] = true; deaths++ }
	:: atomic { deaths < DEATHS && !dead[1] -> dead[1] = true; deaths++ }
	:: break
	od
}

active proctype Worker()
{
	byte g, moves;
	bool o;

	do
	:: moves < MOVES ->
		atomic { g = generation; o = open };
		atomic {
			if
			:: generation == g && open == o -> generation++; open = !open
			:: else
			fi
		};
		moves++;
		g = 0;
		o = false
	:: break
	od
}

active proctype Operator()
{
	atomic { override == NONE -> override = SECOND; forced_again = true }
}

inline load_breaker() { atomic { g = generation; o = open } }
inline load_override() { atomic { seen = override } }

inline cas_breaker()
{
	atomic {
		if
#ifdef STORE_BREAKER
		:: true ->
#else
		:: generation == g && open == o ->
#endif
			/* The override is there, or it went without a transition since: what is reset is older than its end. */
			assert(!ended || generation == ended_at);
			generation = g + 1;
			ended_at = (ended -> generation : 0);
			open = false;
			reset_done = true;
			won = true
		:: else -> won = false
		fi
	}
}

inline cas_override()
{
	atomic {
		if
		:: override == seen && seen != NONE ->
			assert(reset_done && !forced_again);
			override = NONE;
			ended = true;
			ended_at = generation
		:: else
		fi
	}
}

/* FIRST is over; SECOND is not. */
#ifdef NO_SERIAL
#define OVER(seen) ((seen) == FIRST && !forced_again)
#else
#define OVER(seen) ((seen) == FIRST)
#endif

proctype Ender(byte me)
{
	byte g, seen;
	bool o, won, over;

	{
	do
	:: true ->
#ifdef LOAD_OVERRIDE_FIRST
		load_override();
		over = OVER(seen);
		load_breaker();
#else
		load_breaker();
		atomic { seen = override; over = OVER(seen) };
#endif
		if
		:: !over -> break
		:: else
		fi;
#ifdef OVERRIDE_FIRST
		cas_override();
		cas_breaker();
#else
		cas_breaker();
		if
		:: won -> cas_override()
		:: else
		fi;
#endif
		g = 0; o = false; seen = 0; won = false; over = false
	od;
	g = 0; o = false; seen = 0; won = false
	} unless {
		atomic { dead[me] -> g = 0; o = false; seen = 0; won = false; over = false }
	}
}

active proctype Audit()
{
	timeout;
	assert(ended || deaths == ENDERS)
}

init
{
	atomic {
		run Ender(0);
		run Ender(1)
	}
}
