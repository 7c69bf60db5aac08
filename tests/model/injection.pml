/* SPDX-License-Identifier: MIT */
/*
 * Injected faults (lib/injection.h): operators set them, anybody ends what is over, an operator stops it, and calls take their numbers.
 *
 *	set	w = load word -> b = load the setting in the place of the next serial -> CAS w -> the same, marked -> CAS setting b ->
 *		{serial 2 above that of b, mine} -> CAS the marked word -> {on, that serial}; on a failed CAS start again
 *	end	w = load word (over? stopped? else nothing to do) -> CAS w -> {off, its serial}
 *	call	w = load word -> load the setting in the place of its serial; of another serial: not injected -> take a number
 *
 * The mark is what nobody else expects: an end one millisecond earlier, or a number where nothing is in force. Of those who have loaded a
 * word only the first one marks it, so of all setters only the last one to mark it can set it; and a setting never has a value for the
 * second time, so whoever loaded it before does not change it any more. Two setters inject the same, so nothing but the serial tells
 * their settings apart. Serials of settings have four bits, as in the segment. The text of the reason decides nothing, and is not here.
 *
 * Nobody asks whether somebody lives, so who dies or is stopped for ever is one who takes no step for as long as anybody likes, and needs
 * no step of its own. Every atomic { } is one shared access.
 *
 * Promised
 *	- what is in force does what the operator asked for who set it, from its first moment to its last: nobody changes its setting;
 *	- a call that was stopped anywhere meets what it saw in force, or nothing;
 *	- who ends one takes away no later one;
 *	- no two calls have the same number;
 *	- when all is quiet, what is over is gone.
 *
 * Bounds	SETTERS TRIES CALLERS STOPPERS
 *
 * Mutations that must fail
 *	NO_MARK NEXT_SERIAL	the serial is the next one whatever is in its place, and nobody marks the word
 *	NO_MARK		the word is not marked: a setter who was overtaken sets it all the same
 *	NEXT_SERIAL	who overtakes a setter gives his setting the same serial
 *	MARK_FIRST	the word is marked, then the setting is loaded
 *	BELIEVE		a call does not look whose setting it is
 *	STORE_END	who ends it stores "off"
 *	COUNT_BY_STORE	numbers are loaded and stored
 */
#ifndef SETTERS
#define SETTERS 2
#endif
#ifndef TRIES
#define TRIES 2
#endif
#ifndef CALLERS
#define CALLERS 1
#endif
#ifndef STOPPERS
#define STOPPERS 0
#endif

#define FIRST 2 /* the serial of what is in force, and over, at the beginning */

typedef setting {
	byte serial;
	byte value
}

/* Shared memory: the word, the settings by serial & 1, and the counter of calls. */
bool on = true;
byte serial = FIRST;
byte mark;
setting settings[2];
byte numbers;

/* What is really so. */
byte wanted = 9; /* by who set what is in force */
bool taken[4];   /* numbers */

inline check() { assert(!on || (settings[serial & 1].serial == (serial & 15) && settings[serial & 1].value == wanted)) }

inline load_word() { atomic { was_on = on; was = serial; marked = mark } }

#define SEEN (on == was_on && serial == was && mark == marked)

inline load_setting() { atomic { before.serial = settings[(was + 1) & 1].serial; before.value = settings[(was + 1) & 1].value } }

inline mark_word()
{
	atomic {
		if
		:: SEEN -> mark++; marked++
		:: else -> lost = true
		fi
	}
}

proctype Setter(byte value)
{
	byte tries, was, marked, next;
	setting before;
	bool was_on, lost;

	do
	:: tries < TRIES ->
		tries++;
		load_word();
#ifdef MARK_FIRST
		mark_word();
		load_setting();
#else
		load_setting();
#ifndef NO_MARK
		mark_word();
#endif
#endif
		if
		:: !lost ->
			atomic {
#ifdef NEXT_SERIAL
				next = was + 1;
#else
				next = was + 1 + ((before.serial + 2 - (was + 1)) & 14);
#endif
				if
				:: settings[next & 1].serial == before.serial && settings[next & 1].value == before.value ->
					settings[next & 1].serial = next & 15;
					settings[next & 1].value = value;
					check()
				:: else -> lost = true
				fi
			}
		:: else
		fi;
		if
		:: !lost ->
			atomic {
				if
				:: SEEN ->
					on = true;
					serial = next;
					mark = 0;
					wanted = value;
					tries = TRIES;
					check()
				:: else
				fi
			}
		:: else
		fi;
		atomic { was_on = false; was = 0; marked = 0; next = 0; before.serial = 0; before.value = 0; lost = false }
	:: else -> break
	od
}

inline end_what_was_seen()
{
	atomic {
		if
#ifdef STORE_END
		:: true ->
			assert(!on || serial == was);
#else
		:: SEEN ->
#endif
			on = false;
			serial = was;
			mark = 0;
			check()
		:: else
		fi
	}
}

/* What was in force at the beginning is over; the others are not. */
active proctype Ender()
{
	byte was, marked;
	bool was_on;

	do
	:: true ->
		load_word();
		if
		:: was_on && was == FIRST -> end_what_was_seen()
		:: else -> break
		fi
	od;
	was = 0;
	marked = 0;
	was_on = false
}

proctype Stopper()
{
	byte was, marked;
	bool was_on;

	do
	:: true ->
		load_word();
		if
		:: was_on -> end_what_was_seen()
		:: else -> break
		fi
	od;
	was = 0;
	marked = 0
}

proctype Caller()
{
	byte was, meant, number;

	atomic { on -> was = serial; meant = wanted };
	atomic {
		if
#ifdef BELIEVE
		:: true
#else
		:: settings[was & 1].serial == (was & 15)
#endif
			-> assert(settings[was & 1].value == meant)
		:: else -> was = 0
		fi
	};
	if
	:: was != 0 ->
#ifdef COUNT_BY_STORE
		atomic { number = numbers };
		atomic { numbers = number + 1; assert(!taken[number]); taken[number] = true }
#else
		atomic { number = numbers; numbers++; assert(!taken[number]); taken[number] = true }
#endif
	:: else
	fi;
	was = 0;
	meant = 0;
	number = 0
}

active proctype Audit()
{
	timeout;
	assert(!on || serial != FIRST)
}

init
{
	byte i;

	atomic {
		settings[FIRST & 1].serial = FIRST;
		settings[FIRST & 1].value = wanted;
		settings[(FIRST + 1) & 1].serial = FIRST - 1;
		settings[(FIRST + 1) & 1].value = 8;
		run Setter(1);
		run Setter(2);
#if SETTERS > 2
		run Setter(1);
#endif
		do
		:: i < CALLERS -> run Caller(); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i < STOPPERS -> run Stopper(); i++
		:: else -> break
		od;
		i = 0
	}
}
