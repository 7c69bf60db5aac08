/* SPDX-License-Identifier: MIT */
/*
 * The retry budget (lib/budget.c): tokens, and the floor that time pays in.
 *
 *	withdraw	read the clock -> pay the floor -> load tokens -> enough? CAS tokens -> tokens - 1; on a failed CAS again
 *	pay		load refilled -> load tokens (how much room is there?) -> CAS refilled -> the time of the clock: claims the interval -> add
 *			the smaller of what is due and of the room; a failed CAS: somebody else has claimed it
 *	deposit		add 1, up to the capacity
 *	add		load tokens -> full? done -> CAS; on a failed CAS again
 *
 * Each unit of time is due one token. Callers die or stop for ever anywhere; time passes at any moment. Every atomic { } is one shared access.
 *
 * Promised
 *	- never below 0, never above the capacity;
 *	- nothing is invented: what was taken and what is there is at most what was there, was deposited, and time has paid;
 *	- each unit of time is paid once at most;
 *	- calls that do not overlap find, without deposits, exactly as much as there is in a bucket that is filled at the very moment: what time pays
 *	  into a full one is gone. (Calls that overlap may find more, never more than the first three allow: who has claimed and was stopped
 *	  adds late what had room then.)
 *
 * Bounds	WORKERS CALLS CAPACITY START TIME DEATHS DEPOSITS (0: calls withdraw only)
 *
 * Mutations that must fail
 *	STORE_TOKENS		tokens are changed by a store
 *	ADD_FIRST		the floor is added first and then claimed
 *	STORE_REFILLED		the interval is claimed by a store
 *	NO_CAP			nobody looks at the capacity
 *	NO_PAY			who withdraws does not pay the floor first
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#ifndef START
#define START 1
#endif
#ifndef TIME
#define TIME 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef DEPOSITS
#define DEPOSITS 0
#endif

#define MORE(a, b) ((a) > (b) -> (a) : (b))
#define LESS(a, b) ((a) < (b) -> (a) : (b))

/* Shared memory. */
byte tokens = START, refilled;

byte now;
bool dead[WORKERS];
byte deaths;

/* What is really so. */
byte paid_in, deposited, taken, given_up;
byte ideal = START;      /* a bucket that is filled at the very moment */
byte due_to_add[WORKERS]; /* claimed, and not added yet */
byte inside; /* calls */
bool overlap;

active proctype Fate()
{
	do
	:: atomic { now < TIME -> now++; ideal = LESS(ideal + 1, CAPACITY) }
	:: atomic { deaths < DEATHS && !dead[0] -> dead[0] = true; deaths++; given_up = given_up + due_to_add[0]; due_to_add[0] = 0 }
	:: atomic { deaths < DEATHS && !dead[1] -> dead[1] = true; deaths++; given_up = given_up + due_to_add[1]; due_to_add[1] = 0 }
	:: break
	od
}

inline nothing_is_invented()
{
	assert(tokens <= CAPACITY);
	assert(paid_in <= now);
	assert(tokens + taken <= START + deposited + paid_in);
	assert(DEPOSITS || overlap || tokens <= ideal)
}

inline add(amount)
{
	do
	:: atomic { seen = tokens };
#ifndef NO_CAP
		if
		:: seen >= CAPACITY -> break
		:: else
		fi;
#endif
		atomic {
			if
#ifdef STORE_TOKENS
			:: true ->
#else
			:: tokens == seen ->
#endif
#ifdef NO_CAP
				tokens = seen + amount;
#else
				tokens = LESS(seen + amount, CAPACITY);
#endif
				due_to_add[me] = 0;
				nothing_is_invented();
				break
			:: else
			fi
		}
	od;
	seen = 0
}

inline pay()
{
	atomic { from = refilled };
	atomic { seen = tokens; credit = (now_ms > from -> LESS(now_ms - from, CAPACITY - seen) : 0) };
	if
	:: now_ms > from ->
#ifdef ADD_FIRST
		atomic { paid_in = paid_in + credit };
		add(credit);
		atomic {
			if
			:: refilled == from -> refilled = now_ms
			:: else
			fi
		}
#else
		atomic {
			if
#ifdef STORE_REFILLED
			:: true ->
#else
			:: refilled == from ->
#endif
				refilled = now_ms;
				won = true;
				paid_in = paid_in + credit;
				due_to_add[me] = credit
			:: else -> won = false
			fi
		};
		if
		:: won && credit > 0 -> add(credit)
		:: else
		fi;
		due_to_add[me] = 0
#endif
	:: else
	fi;
	atomic { from = 0; credit = 0; seen = 0; won = false }
}

inline withdraw()
{
	do
	:: atomic { seen = tokens };
		if
		:: seen == 0 -> break /* no retry */
		:: else
		fi;
		atomic {
			if
#ifdef STORE_TOKENS
			:: true ->
#else
			:: tokens == seen ->
#endif
				tokens = seen - 1;
				taken++;
				overlap = overlap || now_ms < now;
				assert(DEPOSITS || overlap || ideal > 0);
				ideal = MORE(ideal, 1) - 1;
				nothing_is_invented();
				break
			:: else
			fi
		}
	od;
	seen = 0
}

proctype Worker(byte me)
{
	byte calls, now_ms, from, seen, credit;
	bool won;

	{
	do
	:: calls == CALLS -> break
	:: else ->
		atomic { calls++; inside++; overlap = overlap || inside > 1 };
		if
		:: true ->
			atomic { now_ms = now };
#ifndef NO_PAY
			pay();
#endif
			withdraw()
#if DEPOSITS
		:: true ->
			atomic { deposited++ };
			add(1)
#endif
		fi;
		atomic { now_ms = 0; inside-- }
	od
	} unless {
		atomic { dead[me] -> calls = 0; now_ms = 0; from = 0; seen = 0; credit = 0; won = false }
	}
}

/* When all is quiet: what is due now, had somebody paid it, makes up what there should be. */
active proctype Audit()
{
	atomic {
		timeout;
		nothing_is_invented();
		assert(DEPOSITS || LESS(tokens + (now - refilled), CAPACITY) + given_up >= ideal);
		assert(DEPOSITS || overlap || LESS(tokens + (now - refilled), CAPACITY) <= ideal)
	}
}

init
{
	atomic {
		run Worker(0);
		run Worker(1)
	}
}
