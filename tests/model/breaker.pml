/* SPDX-License-Identifier: MIT */
/*
 * The breaker: one word, the streak of failures, probes as leases, the tally of a trial (lib/words.h).
 *
 *	word	{state, generation, time}; each transition is one CAS of it and adds 1 to the generation
 *	streak	{generation, count}: consecutive failures; a failure of an older streak's generation starts it anew
 *	tally	{generation, ok, fail} of the trial of that generation
 *	probe	0 or {life, generation, granted}
 *
 *	closed	a failing call has loaded the word -> counts in the streak (CAS) -> if it is long enough: CAS the word that it loaded
 *	open	due: CAS to half-open, then go on as everybody does there; not due: refused
 *	half-open	help a verdict: is the tally of this generation complete? CAS the word. Else take a probe that is free, of an older
 *		generation, overdue, or of a dead owner, by CAS of the exact value seen -> load the word again; if it moved, give the probe back
 *		and start over
 *	leave	of a probe: CAS the own lease -> 0; if that fails it was taken over: stale, touch nothing -> count in the tally (CAS; a newer
 *		generation there: drop) -> verdict -> CAS the word. Neutral: the lease only.
 *
 * Every atomic { } is one shared access, and what a process remembers for itself. Callers die or stop for ever anywhere; time passes at
 * any moment. When all is quiet and the last probe overdue, one more caller comes.
 *
 * Promised
 *	- a probe goes out only while the breaker is half-open in its generation;
 *	- no more probes of a generation are out than there may be (leases that are overdue or of the dead not counted);
 *	- a generation opens only after its own streak was long enough, or after its own trial failed;
 *	- it closes only after enough probes of that generation ended well, each of which held its lease to the end;
 *	- no probe ends a lease that is not its own;
 *	- the last caller is served by a closed breaker, refused by an open one that is not due, or gets a probe: nothing is stuck, and it does
 *	  not go round for ever;
 *	- EXACT (without deaths and stops): no success that counts is missing from the tally.
 *
 * Bounds	CALLERS PROBES SUCCESSES FAILURES CALLS TIME DEATHS STOPS; START the first state
 *
 * Mutations that must fail
 *	COUNT_FIRST		leave of a probe: count, then end the lease
 *	FAIL_DIRECTLY		a failed probe opens the breaker without ending its lease first
 *	TRIP_LATE		the word is loaded after the streak was counted
 *	FAILURES=2 STREAK_WITHOUT_GENERATION	failures of another generation count
 *	RECLAIM_UNEQUAL		a lease of any other generation is taken over, newer ones too
 *	NO_SECOND_LOOK		the word is not loaded again after the lease was taken
 *	NO_HELP			nobody helps a verdict whose author died
 *	STATE_ALONE		the CAS of the word compares the state alone
 *	EXACT SUCCESSES=2 STORE_TALLY	who moves to half-open clears the tally by a store
 */
#ifndef CALLERS
#define CALLERS 2
#endif
#ifndef PROBES
#define PROBES 1
#endif
#ifndef SUCCESSES
#define SUCCESSES 1
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#ifndef CALLS
#define CALLS 2
#endif
#ifndef TIME
#define TIME 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef STOPS
#define STOPS 1
#endif
#ifndef START
#define START OPEN
#endif

#define PROBE_TIMEOUT 1
#define COOLDOWN 1
#define GENERATIONS 6 /* the search ends beyond */
#define LAST CALLERS  /* the caller that comes when all is quiet */

/* How a probe's call ends. */
#define NEUTRAL 0
#define GOOD 1
#define BAD 2

#define CLOSED 0
#define OPEN 1
#define HALF_OPEN 2

/* A probe: the owner + 1 (0: free), the generation, the time of the grant. */
#define LEASE(owner, g, at) ((owner) + 1 + 8 * (g) + 128 * (at))
#define LEASE_OWNER(l) (((l) & 7) - 1)
#define LEASE_GENERATION(l) (((l) >> 3) & 15)
#define LEASE_AT(l) ((l) >> 7)

/* Shared memory. The parts of one word are always read and written together. */
byte state = START, generation = 1, since;
byte streak_generation, streak;
byte tally_generation, tally_ok, tally_fail;
short probe[PROBES];

byte now = 1;
bool dead[CALLERS + 1], stopped[CALLERS + 1], gone[CALLERS + 1];
byte deaths, stops;

/* What is really so; read by assertions alone. */
bool probing[CALLERS + 1];
byte probing_generation[CALLERS + 1], probing_since[CALLERS + 1];
byte ended_ok[GENERATIONS + 2];
bool ended_fail[GENERATIONS + 2];
byte failed_in_a_row[GENERATIONS + 2];
bool last_admitted;
byte last_turns;

#define CAN(c) (!dead[c] && !stopped[c] && !gone[c])

active proctype Fate()
{
	do
	:: atomic { now < TIME -> now++ }
	:: atomic { deaths < DEATHS && CAN(0) -> dead[0] = true; probing[0] = false; deaths++ }
	:: atomic { deaths < DEATHS && CAN(1) -> dead[1] = true; probing[1] = false; deaths++ }
#if CALLERS > 2
	:: atomic { deaths < DEATHS && CAN(2) -> dead[2] = true; probing[2] = false; deaths++ }
#endif
	:: atomic { stops < STOPS && CAN(0) -> stopped[0] = true; stops++ }
	:: atomic { stops < STOPS && CAN(1) -> stopped[1] = true; stops++ }
	:: break
	od
}

#ifdef STATE_ALONE
#define WORD_IS_STILL(s, g) (state == (s))
#else
#define WORD_IS_STILL(s, g) (state == (s) && generation == (g))
#endif
#define BEYOND (generation >= GENERATIONS && me != LAST)

/* ---- the transitions: each is one CAS of the word that was loaded as {s, g} ---- */

inline trip(s, g, at)
{
	if
	:: WORD_IS_STILL(s, g) ->
		assert(failed_in_a_row[generation] >= FAILURES);
		if
		:: BEYOND -> goto out
		:: else
		fi;
		state = OPEN;
		since = at;
		generation++
	:: else
	fi
}

inline reopen(g, at)
{
	if
	:: WORD_IS_STILL(HALF_OPEN, g) ->
		assert(ended_fail[generation]);
		if
		:: BEYOND -> goto out
		:: else
		fi;
		state = OPEN;
		since = at;
		generation++
	:: else
	fi
}

inline close(g)
{
	if
	:: WORD_IS_STILL(HALF_OPEN, g) ->
		assert(ended_ok[generation] >= SUCCESSES);
		if
		:: BEYOND -> goto out
		:: else
		fi;
		state = CLOSED;
		since = 0;
		generation++
	:: else
	fi
}

inline verdict(g, at)
{
	atomic {
		if
		:: fail > 0 -> reopen(g, at)
		:: fail == 0 && ok >= SUCCESSES -> close(g)
		:: else
		fi
	}
}

inline never_too_many_probes(g)
{
	n = 0;
	k = 0;
	do
	:: k <= CALLERS ->
		n = n + (probing[k] && !dead[k] && probing_generation[k] == g && now - probing_since[k] < PROBE_TIMEOUT);
		k++
	:: else -> break
	od;
	assert(n <= PROBES);
	n = 0;
	k = 0
}

/* ---- an ordinary call of generation g fails ---- */

inline count_failure(g)
{
	do
	:: atomic { n = streak; k = streak_generation };
		if
#ifndef STREAK_WITHOUT_GENERATION
		:: k > g -> n = 0; break /* late: the breaker has moved on */
#endif
		:: else ->
			atomic {
				if
				:: streak == n && streak_generation == k ->
#ifndef STREAK_WITHOUT_GENERATION
					n = (k == g -> n : 0);
#endif
					n = (n < 3 -> n + 1 : n);
					streak = n;
					streak_generation = g;
					failed_in_a_row[g] = (failed_in_a_row[g] < 3 -> failed_in_a_row[g] + 1 : 3);
					break
				:: else
				fi
			}
		fi
	od;
	k = 0
}

/* A success ends the streak. The streak of the model's generation only counts upwards where a trip was due already. */
inline count_success(g)
{
	atomic { n = streak; k = streak_generation };
	if
	:: k == g && n > 0 ->
		atomic {
			if
			:: streak == n && streak_generation == k ->
				streak = 0;
				failed_in_a_row[g] = (failed_in_a_row[g] >= FAILURES -> failed_in_a_row[g] : 0)
			:: else
			fi
		}
	:: else
	fi;
	n = 0;
	k = 0
}

/* ---- a probe of generation g ends ---- */

#define HOLDS_LEASE (probe[place] == lease)

inline count_probe(g)
{
	do
	:: atomic { k = tally_generation; ok = tally_ok; fail = tally_fail };
		if
		:: k > g -> ok = 0; fail = 0; break
		:: else ->
			atomic {
				if
				:: tally_generation == k && tally_ok == ok && tally_fail == fail ->
					if
					:: k != g -> ok = 0; fail = 0
					:: else
					fi;
					ok = ok + (outcome == GOOD && ok < 3);
					fail = fail + (outcome == BAD && fail < 3);
					tally_generation = g;
					tally_ok = ok;
					tally_fail = fail;
#ifdef COUNT_FIRST
					/* What counts is a result whose lease was held: the ghost knows. */
					ended_ok[g] = ended_ok[g] + (outcome == GOOD && HOLDS_LEASE && ended_ok[g] < 3);
					ended_fail[g] = ended_fail[g] || (outcome == BAD && HOLDS_LEASE);
#endif
					break
				:: else
				fi
			}
		fi
	od;
	k = 0
}

inline end_lease(g)
{
	atomic {
		probing[me] = false;
		if
		:: HOLDS_LEASE ->
			probe[place] = 0;
			won = true;
#ifndef COUNT_FIRST
			ended_ok[g] = ended_ok[g] + (outcome == GOOD && ended_ok[g] < 3);
			ended_fail[g] = ended_fail[g] || outcome == BAD;
#endif
		:: else -> won = false
		fi
	}
}

inline forget()
{
	s = 0; g = 0; due = 0; at = 0; place = 0; lease = 0; seen = 0; candidate = 0; found = false; won = false; outcome = 0;
	ok = 0; fail = 0; n = 0; k = 0; i = 0
}

proctype Caller(byte me)
{
	byte calls, s, g, due, at, place, outcome, ok, fail, n, k, i;
	short lease, seen, candidate;
	bool found, won;

	{
	if
	:: me == LAST -> atomic { timeout -> now = TIME + PROBE_TIMEOUT + COOLDOWN;
#ifdef EXACT
		assert(state != HALF_OPEN || ended_ok[generation] == 0 ||
		       (tally_generation == generation && tally_ok == ended_ok[generation]))
#endif
		}
	:: else
	fi;
	do
	:: calls == (me == LAST -> 1 : CALLS) -> break
	:: else ->
		calls++;
again:
		if
		:: me == LAST -> last_turns++; assert(last_turns < 4 * SUCCESSES + 6)
		:: else
		fi;
		atomic { forget(); s = state; g = generation; due = since + COOLDOWN };
		atomic { at = now };
		if
		:: s == CLOSED -> goto ordinary
		:: s == OPEN && at < due -> goto next /* refused */
		:: s == OPEN && at >= due ->
			atomic {
				if
				:: WORD_IS_STILL(OPEN, g) ->
					if
					:: BEYOND -> goto out
					:: else
					fi;
					state = HALF_OPEN;
					since = at;
					generation++;
					won = true
				:: else
				fi
			};
#ifdef STORE_TALLY
			if
			:: won -> atomic { tally_generation = g + 1; tally_ok = 0; tally_fail = 0 }
			:: else
			fi;
#endif
			goto again
		:: s == HALF_OPEN
		fi;

		/* Half-open: first help a verdict. */
#ifndef NO_HELP
		atomic {
			ok = (tally_generation == g -> tally_ok : 0);
			fail = (tally_generation == g -> tally_fail : 0)
		};
		if
		:: fail > 0 || ok >= SUCCESSES -> verdict(g, at); goto again
		:: else
		fi;
#else
		atomic { ok = (tally_generation == g -> tally_ok : 0); fail = (tally_generation == g -> tally_fail : 0) };
		if
		:: fail > 0 || ok >= SUCCESSES -> goto next /* enough results: somebody will see to it */
		:: else
		fi;
#endif
		/* Look for a probe. */
		i = 0;
		do
		:: i < PROBES ->
			atomic {
				seen = probe[i];
				if
				:: seen == 0 -> found = true
#ifdef RECLAIM_UNEQUAL
				:: seen != 0 && LEASE_GENERATION(seen) != g -> found = true
#else
				:: seen != 0 && LEASE_GENERATION(seen) < g -> found = true
				:: seen != 0 && LEASE_GENERATION(seen) > g -> goto again
#endif
				:: seen != 0 && LEASE_GENERATION(seen) == g ->
					found = at >= LEASE_AT(seen) + PROBE_TIMEOUT || dead[LEASE_OWNER(seen)]
				fi;
				if
				:: found -> place = i; candidate = seen; break
				:: else -> i++
				fi
			}
		:: else -> break
		od;
		if
		:: !found -> goto next /* refused: all probes are out */
		:: else
		fi;
		atomic {
			lease = LEASE(me, g, at);
			if
			:: probe[place] == candidate -> probe[place] = lease; won = true
			:: else -> won = false
			fi
		};
		if
		:: !won -> goto again
		:: else
		fi;
		/* The second look. */
		atomic {
#ifndef NO_SECOND_LOOK
			won = WORD_IS_STILL(HALF_OPEN, g);
#endif
			if
			:: won ->
				assert(state == HALF_OPEN && generation == g);
				probing[me] = true;
				probing_generation[me] = g;
				probing_since[me] = at;
				never_too_many_probes(g)
			:: else
			fi
		};
		if
		:: !won ->
			atomic {
				if
				:: HOLDS_LEASE -> probe[place] = 0
				:: else
				fi
			};
			goto again
		:: else
		fi;
		if
		:: me == LAST -> last_admitted = true
		:: else
		fi;

		/* The probe's call, and its end. */
		if
		:: outcome = GOOD
		:: me != LAST -> outcome = BAD
		:: me != LAST -> outcome = NEUTRAL
		fi;
#ifdef FAIL_DIRECTLY
		if
		:: outcome == BAD ->
			atomic { probing[me] = false; ended_fail[g] = ended_fail[g] || HOLDS_LEASE };
			atomic { fail = 1; ok = 0 };
			verdict(g, at);
			atomic {
				if
				:: HOLDS_LEASE -> probe[place] = 0
				:: else
				fi
			};
			goto next
		:: else
		fi;
#endif
#ifdef COUNT_FIRST
		if
		:: outcome != NEUTRAL -> count_probe(g)
		:: else
		fi;
		end_lease(g);
		if
		:: !won || outcome == NEUTRAL -> goto next
		:: else
		fi;
#else
		end_lease(g);
		if
		:: !won || outcome == NEUTRAL -> goto next
		:: else
		fi;
		count_probe(g);
#endif
		atomic { at = now };
		verdict(g, at);
		goto next;

ordinary:
		if
		:: me == LAST -> last_admitted = true; goto next
		:: else
		fi;
		if
		:: true -> count_success(g); goto next
		:: true -> goto next
		:: true -> skip
		fi;
#ifdef TRIP_LATE
		count_failure(g);
		i = g;
		if
		:: n >= FAILURES -> atomic { s = state; g = generation }; atomic { at = now };
			if
			:: s == CLOSED -> atomic { trip(s, g, at) }
			:: else
			fi
		:: else
		fi;
#else
		count_failure(g);
		if
		:: n >= FAILURES -> atomic { at = now }; atomic { trip(s, g, at) }
		:: else
		fi;
#endif
next:
		atomic { probing[me] = false; forget() };
		if
		:: me == LAST && state == HALF_OPEN && last_admitted -> last_admitted = false; goto again
		:: me == LAST && state == HALF_OPEN && !last_admitted -> assert(false) /* half-open, and a fresh caller gets no probe */
		:: else
		fi
	od;
out:
	atomic { probing[me] = false; forget(); gone[me] = true }
	} unless {
		atomic { (dead[me] || stopped[me]) -> forget(); calls = 0 }
	}
}

init
{
	byte c;

	atomic {
		do
		:: c <= CALLERS -> run Caller(c); c++
		:: else -> break
		od;
		c = 0
	}
}
