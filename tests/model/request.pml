/* SPDX-License-Identifier: MIT */
/*
 * Questions to rescd (lib/request.c) in one place of the segment, with deaths of askers, of rescd and of reapers, and with askers that give up.
 *
 * The word of the place is {life, number, phase}, or 0. A name is two words that must be read as a pair.
 *	asker	CAS 0 -> {life, number, ASKING}; the name; CAS -> ASKED; wait until it is ANSWERED, or CAS ASKED -> 0 and go; CAS -> 0
 *	rescd	load the word: ASKED; copy the name; load it again: the same; make the record; CAS of that word -> ANSWERED
 *	reap	load the word: of a dead life; CAS of that word -> 0
 *
 * Every atomic { } holds one access to shared memory, and what a process remembers for itself. Between any two of them an asker, rescd or
 * a reaper may die; rescd is started again, and the reaper's work is done again by the other. To be stopped is not to go on for a while, which
 * any process may do here at any time. Memory is sequentially consistent.
 *
 * Promised
 *	- rescd makes no name that nobody has asked for;
 *	- who is answered has a record of its name;
 *	- a living asker's place is its own until it gives it back;
 *	- when all is quiet the place is free.
 *
 * Bounds	ASKERS QUESTIONS (of each) DEATHS (of askers) DAEMON_DEATHS REAPER_DEATHS
 *
 * Mutations that must fail
 *	NO_NUMBER	the word has no number: a late answer answers the next question
 *	NO_SECOND_LOOK	rescd does not look at the word again after the name
 *	ASKED_FIRST	the asker says ASKED before the name is there
 *	STORE_ANSWER	rescd stores its answer
 *	STORE_REAP	the reaper stores 0
 *	NO_REAP		nobody reaps
 */
#ifndef ASKERS
#define ASKERS 2
#endif
#ifndef QUESTIONS
#define QUESTIONS 2
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef DAEMON_DEATHS
#define DAEMON_DEATHS 1
#endif
#ifndef REAPER_DEATHS
#define REAPER_DEATHS 1
#endif

#define ASKING   1
#define ASKED    2
#define ANSWERED 3

#ifdef NO_NUMBER
#define WORD(life, number, phase) ((life) * 16 + (phase))
#else
#define WORD(life, number, phase) ((life) * 16 + (number) * 4 + (phase))
#endif
#define PHASE(word) ((word) & 3)
#define LIFE(word)  ((word) / 16)
#define NAMES	    (ASKERS * QUESTIONS + 1)

/* Shared memory. Lives start at 1. */
byte place, name_a, name_b;
bool made[NAMES];

bool dead[ASKERS + 1], gone[ASKERS + 1];
bool daemon_dead, reaper_dead[2];
byte deaths, daemon_deaths, reaper_deaths;

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && !dead[1] && !gone[1] -> dead[1] = true; deaths++ }
	:: atomic { deaths < DEATHS && !dead[2] && !gone[2] -> dead[2] = true; deaths++ }
	:: atomic { daemon_deaths < DAEMON_DEATHS -> daemon_dead = true; daemon_deaths++ }
	:: atomic { reaper_deaths < REAPER_DEATHS && !reaper_dead[0] -> reaper_dead[0] = true; reaper_deaths++ }
	:: break
	od
}

proctype Asker(byte me)
{
	byte number, name;

	{
	do
	:: atomic { number < QUESTIONS && place == 0 ->
			number++;
			name = (me - 1) * QUESTIONS + number;
			place = WORD(me, number, ASKING) };
#ifdef ASKED_FIRST
		atomic { assert(place == WORD(me, number, ASKING)); place = WORD(me, number, ASKED) };
#endif
		atomic { name_a = name };
		atomic { name_b = name };
#ifndef ASKED_FIRST
		atomic { assert(place == WORD(me, number, ASKING)); place = WORD(me, number, ASKED) };
#endif
		if
		:: atomic { place != WORD(me, number, ASKED) -> assert(place == WORD(me, number, ANSWERED) && made[name]) };
			atomic { assert(place == WORD(me, number, ANSWERED)); place = 0 }
		:: atomic { place == WORD(me, number, ASKED) -> place = 0 }
		fi
	:: atomic { number == QUESTIONS -> gone[me] = true; number = 0; name = 0; break }
	od
	} unless {
		dead[me]
	}
}

active proctype Rescd()
{
	byte word, a, b;

start:
	{
end:
	do
	:: atomic { PHASE(place) == ASKED -> word = place };
		atomic { a = name_a };
		atomic { b = name_b };
#ifndef NO_SECOND_LOOK
		if
		:: atomic { place == word -> skip }
		:: atomic { place != word -> word = 0; a = 0; b = 0; goto end }
		fi;
#endif
		atomic { assert(a == b && a != 0); made[a] = true; a = 0; b = 0 };
#ifdef STORE_ANSWER
		atomic { place = word - ASKED + ANSWERED; word = 0 }
#else
		atomic { if :: place == word -> place = word - ASKED + ANSWERED :: else fi; word = 0 }
#endif
	od
	} unless {
		atomic { daemon_dead -> daemon_dead = false; word = 0; a = 0; b = 0 };
		goto start
	}
}

proctype Reaper(byte me)
{
	byte word;

	{
end:
	do
	:: atomic { place != 0 && dead[LIFE(place)] -> word = place };
#ifdef STORE_REAP
		atomic { place = 0; word = 0 }
#else
		atomic { if :: place == word -> place = 0 :: else fi; word = 0 }
#endif
	od
	} unless {
		reaper_dead[me]
	}
}

init
{
	atomic {
		run Asker(1);
		run Asker(2);
#ifndef NO_REAP
		run Reaper(0);
		run Reaper(1)
#endif
	}
	/* All is quiet. */
	timeout -> assert(place == 0)
}
