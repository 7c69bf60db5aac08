/* SPDX-License-Identifier: MIT */
/*
 * Idempotency keys in one set of the table (lib/once.c): begin, done, abandon, read, expiry and reaping, with deaths between any two steps.
 * Whoever is stopped is a process that takes no step for as long as anybody likes, so stops need no step of their own.
 *
 * Every atomic { } is one shared access. A slot word is {version, owner, tag, phase}; an entry is a key and an answer, written in two steps.
 *
 *	begin	look at every slot -> CAS EMPTY -> CLAIMED -> write -> look at every slot again -> CAS CLAIMED -> RUNNING
 *	done	CAS RUNNING -> STORING -> write the answer -> CAS -> DONE
 *	settle	CAS UNKNOWN -> STORING of the settler -> write the answer -> CAS -> DONE; or CAS -> EMPTY
 *	look	a claim with our tag: give way to it, or CAS -> REVOKED (which of the two is a matter of slots and patience, here of chance)
 *
 * Promised
 *	- a key is begun only when it is free: never while it is in work, done and not expired, or unknown;
 *	- nobody writes in an entry while its slot is another's;
 *	- an answer that is read is the answer of that key;
 *	- of those who settle an unknown key one does, and nobody with what it was told before another died in settling it;
 *	- when all is quiet no slot is held by the dead.
 *
 * Workers 0 and 1 have key 1, a third one key 2, or THIRD. TAGS: the tags of the two differ.
 * Bounds	WORKERS SLOTS CALLS DEATHS EXPIRIES
 * FREE		on_death is "free"
 *
 * Mutations that must fail
 *	COMMIT_BY_STORE		RUNNING is stored, whatever the word is
 *	NO_SECOND_LOOK		commit right after writing
 *	REVOKE_FREES		a rival's slot becomes EMPTY at once
 *	REVOKE_BY_STORE		a rival's slot is revoked, whatever it has become
 *	NO_RIVALS		claims of others are not looked at
 *	STORE_EMPTY		an expired entry is freed by a store
 *	READ_ONCE		the word is not loaded again after reading
 *	STORE_DIRECTLY		no STORING: the answer is written while the word says RUNNING, and a ticket is used twice
 *	FREE_WHEN_STORING	FREE, and so is a key whose owner died in done
 *	REAP_ONCE		the reaper does not try again when a CAS fails
 *	SETTLE_BY_STORE		STORING is stored, whatever the word is
 *	SETTLE_ANY_UNKNOWN	the word may have been unknown, settled by one who died, and unknown again
 *	SETTLE_FOR_THE_DEAD	STORING keeps the owner that died
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef SLOTS
#define SLOTS 2
#endif
#ifndef CALLS
#define CALLS 1
#endif
#ifndef DEATHS
#define DEATHS 1
#endif
#ifndef THIRD
#define THIRD 2
#endif
#ifndef EXPIRIES
#define EXPIRIES 0
#endif

#define EMPTY 0
#define CLAIMED 1
#define REVOKED 2
#define RUNNING 3
#define STORING 4
#define DONE 5
#define UNKNOWN 6

#define WORD(v, o, t, p) (((v) << 8) | ((o) << 5) | ((t) << 3) | (p))
#define PHASE(w) ((w) & 7)
#define TAG(w) (((w) >> 3) & 3)
#define OWNER(w) (((w) >> 5) & 7)
#define VERSION(w) (((w) >> 8) & 15)
#define WITH(w, p) (((w) & 4088) | (p))
#define FREED(w) WORD(VERSION(w), 0, 0, EMPTY)
#define IN_WORK(w) (PHASE(w) >= CLAIMED && PHASE(w) <= STORING)

#ifdef TAGS
#define TAG_OF(k) (k)
#else
#define TAG_OF(k) 1
#endif
#define NONE 7

/* Shared memory. */
short slot[SLOTS];
byte key[SLOTS];
byte answer[SLOTS];

/* What is really so. */
#define NOBODY 0
#define HELD 1
#define IS_DONE 2
#define LOST 3
byte truth[3];        /* of a key */
bool settling[3];
byte settlers[3];     /* how many died in settling it */
bool dead[WORKERS];
bool reaped[WORKERS];
byte deaths, expiries;

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

/* What a look came to. */
#define SEES_NOTHING 0
#define SEES_KNOWN 1
#define SEES_RIVAL 2

/* Every slot but our own. */
inline look(own_slot)
{
	i = 0;
	seen = SEES_NOTHING;
	room = NONE;
	do
	:: i == own_slot -> i++
	:: i < SLOTS && i != own_slot ->
		atomic { w = slot[i] };
		if
		:: PHASE(w) == EMPTY -> room = i; i++
		:: PHASE(w) == EMPTY && room != NONE -> i++ /* which one is taken is of no importance */
		:: PHASE(w) == REVOKED || (PHASE(w) != EMPTY && TAG(w) != TAG_OF(k)) -> i++
#ifdef NO_RIVALS
		:: PHASE(w) == CLAIMED && TAG(w) == TAG_OF(k) -> i++
#else
		:: PHASE(w) == CLAIMED && TAG(w) == TAG_OF(k) -> seen = SEES_RIVAL; i++
		:: PHASE(w) == CLAIMED && TAG(w) == TAG_OF(k) ->
			atomic {
				if
#ifdef REVOKE_BY_STORE
				:: true ->
#else
				:: slot[i] == w ->
#endif
#ifdef REVOKE_FREES
					slot[i] = FREED(w);
#else
					slot[i] = WITH(w, REVOKED);
#endif
					i++
				:: slot[i] != w
				fi
			}
#endif
		:: PHASE(w) >= RUNNING && TAG(w) == TAG_OF(k) ->
			atomic { e = key[i] };
			atomic {
				if
				:: slot[i] != w /* again */
				:: slot[i] == w && e != k -> i++
				:: slot[i] == w && e == k -> seen = SEES_KNOWN; found = w; told = settlers[k]; break
				:: slot[i] == w && e == k && PHASE(w) >= DONE && expiries < EXPIRIES -> expiries++; goto_expire = true
				fi
			};
			if
			:: goto_expire ->
				atomic {
					goto_expire = false;
					if
#ifdef STORE_EMPTY
					:: true ->
#else
					:: slot[i] == w ->
#endif
						slot[i] = FREED(w);
						truth[k] = (truth[k] >= IS_DONE -> NOBODY : truth[k])
					:: slot[i] != w
					fi
				}
			:: else
			fi
		fi;
		e = 0
	:: i >= SLOTS -> break
	od
}

inline read_answer()
{
	atomic { e = answer[i] };
#ifdef READ_ONCE
	assert(e == k);
#else
	atomic { assert(slot[i] != found || e == k) };
#endif
	e = 0
}

/* Our claim, revoked or not. */
inline give_up()
{
	atomic { if :: slot[own] == mine -> slot[own] = FREED(mine) :: else fi };
	atomic { if :: slot[own] == WITH(mine, REVOKED) -> slot[own] = FREED(mine) :: else fi }
}

/* By nobody but the owner of the slot. */
#define MAY_WRITE (OWNER(slot[own]) == me + 1 && VERSION(slot[own]) == VERSION(mine))
inline write_key(value)
{
	atomic { assert(MAY_WRITE); key[own] = value }
}
inline write_answer(value)
{
	atomic { assert(MAY_WRITE); answer[own] = value }
}

inline done()
{
#ifdef STORE_DIRECTLY
	write_answer(k);
	atomic {
		if
		:: slot[own] == mine -> slot[own] = WITH(mine, DONE); truth[k] = IS_DONE
		:: else
		fi
	}
#else
	atomic {
		if
		:: slot[own] == mine -> slot[own] = WITH(mine, STORING); won = true
		:: else -> won = false
		fi
	};
	if
	:: won ->
		write_answer(k);
		atomic { assert(slot[own] == WITH(mine, STORING)); slot[own] = WITH(mine, DONE); truth[k] = IS_DONE; won = false }
	:: else
	fi
#endif
}

#ifdef SETTLE_FOR_THE_DEAD
#define SETTLER OWNER(found)
#else
#define SETTLER (me + 1)
#endif

/* The key is unknown in slot i, by the word in found. */
inline settle()
{
	atomic { own = i; mine = WORD(VERSION(found), SETTLER, TAG(found), STORING) };
	/* The dependency may take any time to answer. */
	atomic {
		if
#if defined(SETTLE_BY_STORE)
		:: true ->
#elif defined(SETTLE_ANY_UNKNOWN)
		:: VERSION(slot[own]) == VERSION(found) && PHASE(slot[own]) == UNKNOWN ->
#else
		:: slot[own] == found ->
#endif
			assert(truth[k] == LOST && settlers[k] == told);
			slot[own] = mine;
			truth[k] = HELD;
			settling[k] = true;
			won = true
		:: else
		fi
	};
	if
	:: won ->
		if
		:: write_answer(k);
			atomic { assert(slot[own] == mine); slot[own] = WITH(mine, DONE); truth[k] = IS_DONE; settling[k] = false }
		:: atomic { assert(slot[own] == mine); slot[own] = FREED(mine); truth[k] = NOBODY; settling[k] = false }
		fi
	:: else
	fi
}

proctype Worker(byte me; byte k)
{
	short w, mine, found;
	byte i, own, room, seen, e, calls, told;
	bool won, goto_expire;

	{
	do
	:: calls < CALLS ->
		atomic { calls++; own = NONE };
		look(NONE);
		if
		:: seen == SEES_KNOWN && PHASE(found) == DONE -> read_answer()
		:: seen == SEES_KNOWN && PHASE(found) == UNKNOWN -> settle()
		:: seen == SEES_NOTHING && room != NONE ->
			/* Load and CAS of that word. */
			atomic {
				if
				:: PHASE(slot[room]) == EMPTY ->
					own = room;
					mine = WORD((VERSION(slot[own]) + 1) & 15, me + 1, TAG_OF(k), CLAIMED);
					slot[own] = mine
				:: else -> own = NONE
				fi
			};
			if
			:: own != NONE ->
				write_answer(0);
				write_key(k);
#ifdef NO_SECOND_LOOK
				seen = SEES_NOTHING;
#else
				look(own);
#endif
				atomic {
					won = false;
					if
#ifdef COMMIT_BY_STORE
					:: seen == SEES_NOTHING ->
#else
					:: seen == SEES_NOTHING && slot[own] == mine ->
#endif
						assert(truth[k] == NOBODY);
						truth[k] = HELD;
						mine = WITH(mine, RUNNING);
						slot[own] = mine;
						won = true
					:: else
					fi
				};
				if
				:: won -> won = false;
					if
					:: done()
#ifdef STORE_DIRECTLY
						; done() /* a copy of the ticket */
#endif
					:: atomic { slot[own] == mine -> slot[own] = FREED(mine); truth[k] = NOBODY }
					fi
				:: else -> give_up()
				fi
			:: else
			fi
		:: else
		fi;
		atomic { w = 0; mine = 0; found = 0; i = 0; own = 0; room = 0; seen = 0; e = 0; told = 0; won = false; goto_expire = false }
	:: calls == CALLS -> break
	od
	} unless {
		atomic { dead[me] -> w = 0; mine = 0; found = 0; i = 0; own = 0; room = 0; seen = 0; e = 0; calls = 0; told = 0; won = false; goto_expire = false }
	}
}

/* What a word of the dead becomes. */
#ifdef FREE
#ifdef FREE_WHEN_STORING
#define FREES(w) true
#else
#define FREES(w) (PHASE(w) != STORING)
#endif
#else
#define FREES(w) (PHASE(w) < RUNNING)
#endif

inline reap_slot(life)
{
	do
	:: atomic { w = slot[i] };
		if
		:: OWNER(w) != life || !IN_WORK(w) -> break
		:: else
		fi;
		atomic {
			if
			:: slot[i] == w && FREES(w) ->
				/* Work that was done is never free again. */
				assert(PHASE(w) != STORING);
				if
				:: PHASE(w) >= RUNNING -> truth[key[i]] = NOBODY
				:: else
				fi;
				slot[i] = FREED(w);
				break
			:: slot[i] == w && !FREES(w) ->
				if
				:: settling[key[i]] -> settling[key[i]] = false; settlers[key[i]]++
				:: else
				fi;
				truth[key[i]] = LOST;
				slot[i] = WITH(w, UNKNOWN);
				break
#ifdef REAP_ONCE
			:: slot[i] != w -> break
#else
			:: slot[i] != w
#endif
			fi
		}
	od
}

active proctype Reaper()
{
	byte n, i;
	short w;

	do
	:: atomic { dead[0] && !reaped[0] -> n = 0 };
		i = 0;
		do
		:: i < SLOTS -> reap_slot(1); i++
		:: i == SLOTS -> break
		od;
		atomic { reaped[0] = true; i = 0; w = 0 }
	:: atomic { dead[1] && !reaped[1] -> n = 1 };
		i = 0;
		do
		:: i < SLOTS -> reap_slot(2); i++
		:: i == SLOTS -> break
		od;
		atomic { reaped[1] = true; i = 0; w = 0 }
#if WORKERS > 2
	:: atomic { dead[2] && !reaped[2] -> n = 2 };
		i = 0;
		do
		:: i < SLOTS -> reap_slot(3); i++
		:: i == SLOTS -> break
		od;
		atomic { reaped[2] = true; i = 0; w = 0 }
#endif
	od
}

active proctype Audit()
{
	byte s;

	timeout;
	atomic {
		do
		:: s < SLOTS ->
			assert(!IN_WORK(slot[s]) || !dead[OWNER(slot[s]) - 1]);
			s++
		:: else -> break
		od
	}
}

init
{
	atomic {
		run Worker(0, 1);
		run Worker(1, 1);
#if WORKERS > 2
		run Worker(2, THIRD)
#endif
	}
}
