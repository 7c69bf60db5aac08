/* SPDX-License-Identifier: MIT */
/*
 * The record of a transition (lib/transition.c): why, how often, and the event; each once, wherever its author dies or is stopped.
 *
 *	word		{kind, generation, mark}: the mark stands for the time in it, by which the words of two authors differ
 *	recorded	the generation whose record is complete
 *	told		{generation, reason}
 *	counted		{generation, count}, one for each state that a breaker can come into
 *	proposal	{generation, reason} and, in another word, the rest of it with a check over both and the word that it is about
 *
 *	author	complete the record of the generation before -> claim a proposal (CAS) -> write the rest of it -> CAS the word -> its own record
 *	complete	load the word -> load recorded; are they of one generation? done -> load the word again; another one? start again. Else
 *		look for the proposal of this word, and make the record
 *	record	told -> counted -> event -> recorded. Each: load it; there already? done -> load the word; of another generation? done -> CAS.
 *		The event: is `recorded` still what it was before? write it
 *	MOVE	mover: load the new word -> complete the record in the old one -> raise the new `recorded` to it -> CAS the new word -> prepared ->
 *		CAS the old one -> MOVED; on a failed CAS start again. Authors go on where the word counts.
 *
 * Authors die or stop for ever anywhere (nobody looks which of the two it was); who goes on late is every other order of steps. rescd looks
 * once at any moment, and once when all is quiet. Every atomic { } is one shared access.
 *
 * Promised
 *	- a breaker moves on only when the record of its last transition is complete;
 *	- when all is quiet and rescd has looked once, each transition is counted once and its event was written, before those of later ones;
 *	- an event gives the reason of the transition's author, or none; none only where somebody was cut off within a proposal before, or
 *	  there were more authors than places.
 *
 * Bounds	AUTHORS TRANSITIONS (that each tries) PLACES DEATHS LOOKS (of rescd before the end); MOVE: a successor, MOVERS
 *
 * Mutations that must fail
 *	NO_HELP			nobody completes the record of the generation before
 *	HELP_LATE		the record of the generation before is completed after the CAS of the next
 *	COUNT_BY_ADD		counted by an addition, and then marked
 *	NO_SECOND_LOOK		the word is not loaded again before a place of the record is changed
 *	LOOK_ONCE		recorded, then the word, and no look whether it has moved on in between
 *	RECORDED_FIRST		`recorded` before the event
 *	PROPOSE_LATE		the proposal is written after the CAS
 *	COVER			a proposal of this very generation is overwritten
 *	NO_CHECK		a proposal is believed by its generation alone
 *	MOVE MOVE_INCOMPLETE	the word is moved with the record of its last transition missing
 *	MOVE MOVERS=2 STORE_RECORDED	the new `recorded` is stored, and can be set back
 */
#ifndef AUTHORS
#define AUTHORS 2
#endif
#ifndef TRANSITIONS
#define TRANSITIONS 1
#endif
#ifndef PLACES
#define PLACES 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef LOOKS
#define LOOKS 1
#endif
#ifndef MOVERS
#define MOVERS 1
#endif
#ifdef MOVE
#define SEGMENTS 2
#else
#define SEGMENTS 1
#endif

#define GENERATIONS 8

#define EMPTY 0
#define LIVE 1
#define PREPARED 2
#define MOVED 3
#define WORD(kind, g, mark) ((kind) * 256 + (g) * 8 + (mark))
#define KIND(w) ((w) >> 8)
#define GENERATION(w) (((w) >> 3) & 31)
#define MARK(w) ((w) & 7)
#define STATE(g) ((g) & 1) /* closed, open, closed ... */

/* Shared memory, for each segment. Two fields with one index are one word. */
short word[2];
byte recorded[2];
byte told_generation[2], told_reason[2];
byte counted_generation[4], counted[4];
byte proposal_generation[4], proposal_by[4]; /* the reason: who proposes, + 1 */
byte rest_generation[4], rest_by[4];         /* the rest and its check */

/* What is really so. */
byte author_of[GENERATIONS];
byte event_reason[GENERATIONS];
bool event[GENERATIONS];
byte latest = 1;
bool cut_off; /* somebody is between the two words of a proposal: dead, or slow */
bool dead[AUTHORS];
byte deaths;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[0] -> dead[0] = true; deaths++ }
#if AUTHORS > 1
	:: atomic { deaths < DEATHS && !dead[1] -> dead[1] = true; deaths++ }
#endif
#if AUTHORS > 2
	:: atomic { deaths < DEATHS && !dead[2] -> dead[2] = true; deaths++ }
#endif
	:: break
	od
}

#ifdef NO_SECOND_LOOK
#define STILL(g) true
#else
#define STILL(g) (GENERATION(word[m]) == (g))
#endif

inline put_told(g, reason)
{
	do
	:: atomic {
			seen = told_generation[m];
			said = told_reason[m];
			if
			:: seen == g && said != 0 -> break
			:: else
			fi
		};
		if
		:: atomic { STILL(g) -> skip }
		:: atomic { !STILL(g) -> break }
		fi;
		atomic {
			if
			:: told_generation[m] == seen && told_reason[m] == said -> told_generation[m] = g; told_reason[m] = reason; break
			:: else
			fi
		}
	od
}

inline count_it(g)
{
#ifdef COUNT_BY_ADD
	atomic { seen = counted_generation[m * 2 + STATE(g)] };
	if
	:: seen != g ->
		atomic { counted[m * 2 + STATE(g)]++ };
		atomic { counted_generation[m * 2 + STATE(g)] = g }
	:: else
	fi
#else
	do
	:: atomic {
			seen = counted_generation[m * 2 + STATE(g)];
			said = counted[m * 2 + STATE(g)];
			if
			:: seen == g -> break
			:: else
			fi
		};
		if
		:: atomic { STILL(g) -> skip }
		:: atomic { !STILL(g) -> break }
		fi;
		atomic {
			if
			:: counted_generation[m * 2 + STATE(g)] == seen && counted[m * 2 + STATE(g)] == said ->
				counted_generation[m * 2 + STATE(g)] = g;
				counted[m * 2 + STATE(g)] = said + 1;
				break
			:: else
			fi
		}
	od
#endif
}

inline write_event(g, reason)
{
	if
	:: atomic { recorded[m] == before -> skip };
		atomic {
			if
			:: !event[g] ->
				assert(g == GENERATIONS - 1 || !event[g + 1]);
				/* Gives the author's reason, or none; and none only if a proposal was spoilt. */
				assert(reason == author_of[g] || reason == 0);
				assert(reason != 0 || cut_off || PLACES < AUTHORS);
				event[g] = true;
				event_reason[g] = reason
			:: else
			fi
		}
	:: atomic { recorded[m] != before -> skip }
	fi
}

inline put_recorded(g)
{
	do
	:: atomic {
			seen = recorded[m];
			if
			:: seen == g -> break
			:: else
			fi
		};
		if
		:: atomic { STILL(g) -> skip }
		:: atomic { !STILL(g) -> break }
		fi;
		atomic {
			if
			:: recorded[m] == seen -> recorded[m] = g; break
			:: else
			fi
		}
	od
}

inline make_record(g, reason)
{
	put_told(g, reason);
	count_it(g);
#ifdef RECORDED_FIRST
	put_recorded(g);
	atomic { before = recorded[m] };
	write_event(g, reason);
#else
	write_event(g, reason);
	put_recorded(g);
#endif
	atomic { seen = 0; said = 0; before = 0 }
}

#ifdef NO_CHECK
#define FITS(i) (proposal_generation[m * 2 + i] == GENERATION(w))
#else
#define FITS(i) (proposal_generation[m * 2 + i] == GENERATION(w) && rest_generation[m * 2 + i] == GENERATION(w) && \
		 rest_by[m * 2 + i] == proposal_by[m * 2 + i] && proposal_by[m * 2 + i] == MARK(w))
#endif

/* Leaves the word whose record is complete in w. The words of a proposal are loaded one by one in the code; its check makes that one. */
inline complete()
{
	do
#ifdef LOOK_ONCE
	:: atomic { before = recorded[m] };
		atomic { w = word[m] };
		break
#else
	:: atomic { w = word[m] };
		atomic {
			before = recorded[m];
			if
			:: KIND(w) != LIVE || GENERATION(w) == before -> break
			:: else
			fi
		};
		if
		:: atomic { word[m] == w -> break }
		:: atomic { word[m] != w -> skip }
		fi
#endif
	od;
	if
	:: KIND(w) == LIVE && GENERATION(w) != before ->
		atomic {
			reason = (FITS(0) -> proposal_by[m * 2] : 0);
#if PLACES > 1
			reason = (reason == 0 && FITS(1) -> proposal_by[m * 2 + 1] : reason)
#endif
		};
		make_record(GENERATION(w), reason);
		reason = 0
	:: else -> before = 0
	fi
}

inline propose()
{
	i = 0;
	do
	:: i < PLACES ->
		atomic { seen = proposal_generation[m * 2 + i]; said = proposal_by[m * 2 + i] };
		if
#ifndef COVER
		:: seen == g -> i++
		:: seen != g ->
#else
		:: true ->
#endif
			atomic {
				if
				:: proposal_generation[m * 2 + i] == seen && proposal_by[m * 2 + i] == said ->
					proposal_generation[m * 2 + i] = g;
					proposal_by[m * 2 + i] = me + 1;
					seen = 99
				:: else -> i++
				fi
			};
			if
			:: seen == 99 ->
				atomic {
					/* What was there may be of a transition that nobody has recorded: then this came late. */
					cut_off = cut_off || g <= GENERATION(word[m]);
					rest_generation[m * 2 + i] = g;
					rest_by[m * 2 + i] = me + 1
				};
				break
			:: else
			fi
		fi
	:: else -> break
	od;
	atomic { i = 0; seen = 0; said = 0 }
}

proctype Author(byte me)
{
	short w, expected;
	byte tries, m, g, i, seen, said, before, reason;
	bool won;

	{
	do
	:: tries == TRANSITIONS -> break
	:: else ->
		tries++;
again:
		/* The segment whose word counts. */
		atomic {
			m = (SEGMENTS > 1 && KIND(word[0]) == MOVED -> 1 : 0);
			expected = word[m]
		};
#ifndef NO_HELP
#ifndef HELP_LATE
		complete();
		if
		:: w != expected -> goto next
		:: else
		fi;
#endif
#endif
		atomic { before = recorded[m]; w = 0 };
		g = GENERATION(expected) + 1;
		if
		:: g >= GENERATIONS -> goto out
		:: else
		fi;
#ifndef PROPOSE_LATE
		propose();
#endif
		atomic {
			if
			:: word[m] == expected ->
#ifndef NO_HELP
#ifndef HELP_LATE
				assert(recorded[m] == GENERATION(expected) && before == recorded[m]);
#endif
#endif
				word[m] = WORD(LIVE, g, me + 1);
				author_of[g] = me + 1;
				latest = g;
				won = true
			:: else -> won = false
			fi
		};
		if
		:: !won -> goto next
		:: else
		fi;
#ifdef PROPOSE_LATE
		propose();
#endif
#ifdef HELP_LATE
		atomic { i = before; w = expected };
		if
		:: i != g - 1 -> before = i; make_record(g - 1, 0); before = i
		:: else
		fi;
		w = 0;
		i = 0;
#endif
		make_record(g, me + 1);
next:
		atomic { w = 0; expected = 0; g = 0; i = 0; seen = 0; said = 0; before = 0; reason = 0; won = false; m = 0 }
	od;
out:
	atomic { w = 0; expected = 0; g = 0; i = 0; seen = 0; said = 0; before = 0; reason = 0; won = false; m = 0 }
	} unless {
		atomic { dead[me] -> w = 0; expected = 0; tries = 0; g = 0; i = 0; seen = 0; said = 0; before = 0; reason = 0; won = false; m = 0 }
	}
}

#ifdef MOVE
/* Moves the word of segment 0 to segment 1. */
proctype Mover()
{
	short r, w, from;
	byte m, seen, said, before, reason;

	do
	:: true ->
		atomic { r = word[1] };
#ifdef MOVE_INCOMPLETE
		atomic { w = word[0] };
#else
		complete();
#endif
		if
		:: KIND(w) == MOVED || KIND(r) == LIVE -> break
		:: else
		fi;
#ifdef STORE_RECORDED
		atomic { recorded[1] = GENERATION(w) };
#else
		do
		:: atomic { seen = recorded[1] };
			if
			:: seen >= GENERATION(w) -> break
			:: else
			fi;
			atomic {
				if
				:: recorded[1] == seen -> recorded[1] = GENERATION(w); break
				:: else
				fi
			}
		od;
#endif
		seen = 0;
		atomic {
			if
			:: word[1] == r -> word[1] = WORD(PREPARED, GENERATION(w), MARK(w)); from = 1
			:: else -> from = 0
			fi
		};
		if
		:: from == 1 ->
			atomic {
				if
				:: word[0] == w -> word[0] = WORD(MOVED, GENERATION(w), MARK(w))
				:: else
				fi
			}
		:: else
		fi;
		atomic { r = 0; w = 0; from = 0 }
	od;
	atomic { r = 0; w = 0; from = 0 }
}
#endif

/* rescd looks once at any moment, and once when all is quiet; then everything is there. */
active proctype Rescd()
{
	short w;
	byte m, g, i, seen, said, before, reason, closed, opened;

#if LOOKS > 0
	complete();
#endif
	atomic { timeout -> w = 0 };
#ifdef MOVE
	atomic { m = (KIND(word[0]) == MOVED -> 1 : 0) };
#endif
	complete();
	atomic {
		w = 0;
		assert(recorded[m] == latest);
		g = 2;
		do
		:: g <= latest ->
			assert(event[g]);
			opened = opened + (STATE(g) == 0);
			closed = closed + (STATE(g) == 1);
			g++
		:: else -> break
		od;
		assert(counted[0] + counted[2] == opened);
		assert(counted[1] + counted[3] == closed);
		assert(told_generation[m] != latest || told_reason[m] == author_of[latest] || told_reason[m] == 0)
	}
}

init
{
	byte c;

	atomic {
		word[0] = WORD(LIVE, 1, 0);
		recorded[0] = 1;
		do
		:: c < AUTHORS -> run Author(c); c++
		:: else -> break
		od;
#ifdef MOVE
		c = 0;
		do
		:: c < MOVERS -> run Mover(); c++
		:: else -> break
		od;
#endif
		c = 0
	}
}
