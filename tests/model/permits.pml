/* SPDX-License-Identifier: MIT */
/*
 * Lives, slots and permit cells (lib/worker.h, the permits of lib/segment.h), with deaths of workers and of reapers.
 *
 * Every atomic { } holds one access to shared memory or one act of the kernel, and what a process remembers for itself. Between any two
 * of them a worker may die, be stopped for ever, or be overtaken; a reaper may die too. Memory is sequentially consistent.
 *
 * A slot is 0 or a life; a cell is 0 or {life, call}; locked[life] is the kernel's lock on the byte of that life, dropped at death.
 * fetch_add gives each worker a life of its own; which one is of no importance, so here worker w has life w + 1.
 *
 * Promised
 *	- the permits of living workers are never more than the cells;
 *	- a worker's own permit is there when it leaves: nobody else frees it, nobody else has it;
 *	- a slot is claimed only when it is free, and a living worker keeps its slot;
 *	- a ticket that is left twice is told so (TWICE);
 *	- when all is quiet no cell and no slot belongs to the dead.
 *
 * Bounds	WORKERS SLOTS CELLS CALLS REAPERS; DEATHS and STOPS of workers, REAPER_DEATHS, CURIOUS (looks a reaper takes at slots
 *		of the living)
 *
 * Mutations that must fail
 *	CLAIM_BEFORE_LOCK	register: the slot first, then the lock
 *	TEST_BEFORE_LOAD	reap: ask for the lock of the slot's owner, then load the slot
 *	CELL_WITHOUT_LIFE	a cell knows its slot, not its life
 *	SLOT_FIRST		reap: free the slot, then the cells
 *	STORE_SLOT		reap: free the slot by a store
 *	STORE_CELL		reap: free the cells by a store
 *	LIVES_WRAP		lives are used again
 *	TWICE NO_CALL_NUMBER	the cell has no call number, and tickets are left twice
 */
#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef SLOTS
#define SLOTS 1
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
#ifndef CURIOUS
#define CURIOUS 0
#endif

#ifdef LIVES_WRAP
#define LIFE(w) 1
#else
#define LIFE(w) ((w) + 1)
#endif

#ifdef NO_CALL_NUMBER
#define PERMIT(life, call) ((life) * 4)
#else
#define PERMIT(life, call) ((life) * 4 + (call))
#endif
#define PERMIT_LIFE(permit) ((permit) / 4)

/* What a reaper looks for in a cell: the life that it found in the slot; or, in the mutation, the slot. */
#ifdef CELL_WITHOUT_LIFE
#define OWNER(slot_number, life) ((slot_number) + 1)
#else
#define OWNER(slot_number, life) (life)
#endif

/* Shared memory. */
byte slot[SLOTS];
byte cell[CELLS];

/* The kernel. */
bool locked[WORKERS + 1];
bool dead[WORKERS];
bool stopped[WORKERS];
bool reaper_dead[REAPERS];

/* What is really so; read by assertions alone. */
bool registered[WORKERS];
bool gone[WORKERS];
byte holds[WORKERS];      /* a bit a cell */
byte cell_worker[CELLS];  /* worker + 1 */
byte slot_worker[SLOTS];

byte deaths, stops, reaper_deaths;

inline die(w)
{
	d_step {
		dead[w] = true;
		deaths++;
		if
		:: registered[w] -> locked[LIFE(w)] = false
		:: else
		fi
	}
}

#define CAN(w) (!dead[w] && !stopped[w] && !gone[w])

active proctype Fate()
{
	do
	:: atomic { deaths < DEATHS && CAN(0) -> die(0) }
	:: atomic { deaths < DEATHS && CAN(1) -> die(1) }
#if WORKERS > 2
	:: atomic { deaths < DEATHS && CAN(2) -> die(2) }
#endif
#if STOPS > 0
	:: atomic { stops < STOPS && CAN(0) -> stopped[0] = true; stops++ }
	:: atomic { stops < STOPS && CAN(1) -> stopped[1] = true; stops++ }
#endif
	:: atomic { reaper_deaths < REAPER_DEATHS && !reaper_dead[0] -> reaper_dead[0] = true; reaper_deaths++ }
	:: break
	od
}

inline never_more_permits_than_cells()
{
	total = 0;
	k = 0;
	do
	:: k < WORKERS * CELLS ->
		total = total + (!dead[k / CELLS] && ((holds[k / CELLS] >> (k % CELLS)) & 1));
		k++
	:: else -> break
	od;
	assert(total <= CELLS);
	total = 0;
	k = 0
}

proctype Worker(byte me)
{
	byte my_slot, i, looked, call, ticket, old_ticket, old_cell, k, total;

	{
#ifndef CLAIM_BEFORE_LOCK
	atomic { locked[LIFE(me)] = true; registered[me] = true };
#endif
	/* CAS 0 -> life. Where every slot is taken this waits; the real one says -ENOSPC. */
	atomic {
		if
		:: slot[0] == 0 -> my_slot = 0
		:: slot[SLOTS - 1] == 0 -> my_slot = SLOTS - 1
		fi;
		assert(slot_worker[my_slot] == 0 || dead[slot_worker[my_slot] - 1]);
		slot[my_slot] = LIFE(me);
		slot_worker[my_slot] = me + 1
	};
#ifdef CLAIM_BEFORE_LOCK
	atomic { locked[LIFE(me)] = true; registered[me] = true };
#endif

	do
	:: call < CALLS ->
		/* Enter: one pass from a starting point of its own, CAS 0 -> {life, call}. */
		atomic { call++; looked = 0; if :: i = 0 :: i = CELLS - 1 fi };
		do
		:: atomic { looked < CELLS ->
			if
			:: cell[i] == 0 ->
				ticket = PERMIT(OWNER(my_slot, LIFE(me)), call);
				cell[i] = ticket;
				cell_worker[i] = me + 1;
				holds[me] = holds[me] | (1 << i);
				never_more_permits_than_cells();
				break
			:: else ->
				i = (i + 1) % CELLS;
				looked++
			fi }
		:: atomic { looked == CELLS -> ticket = 0; break }
		od;
#ifdef TWICE
		/* An earlier ticket is left once more while a call of this worker is inside: it must be refused. */
		if
		:: atomic { ticket != 0 && old_ticket != 0 ->
			assert(cell[old_cell] != old_ticket) }
		:: else
		fi;
#endif
		/* Leave: CAS ticket -> 0. */
		if
		:: atomic { ticket != 0 ->
			holds[me] = holds[me] & (255 - (1 << i)) };
			atomic {
				assert(cell[i] == ticket && cell_worker[i] == me + 1);
				cell[i] = 0;
				cell_worker[i] = 0;
				old_ticket = ticket;
				old_cell = i
			}
		:: else
		fi
	:: else -> break
	od;

	atomic { assert(slot[my_slot] == LIFE(me) && slot_worker[my_slot] == me + 1); slot[my_slot] = 0; slot_worker[my_slot] = 0 };
	atomic { locked[LIFE(me)] = false; registered[me] = false; gone[me] = true }
	} unless {
		atomic { (dead[me] || stopped[me]) ->
			my_slot = 0; i = 0; looked = 0; call = 0; ticket = 0; old_ticket = 0; old_cell = 0; k = 0; total = 0 }
	}
}

/* CAS every cell of that owner to 0. */
inline free_cells(owner)
{
	i = 0;
	do
	:: atomic { i < CELLS ->
		seen = cell[i];
		if
		:: seen != 0 && PERMIT_LIFE(seen) == owner
		:: else -> seen = 0; i++
		fi };
		if
		:: atomic { seen != 0 ->
			if
#ifdef STORE_CELL
			:: cell[i] != 0 ->
#else
			:: cell[i] == seen ->
#endif
				assert(dead[cell_worker[i] - 1]);
				cell[i] = 0;
				cell_worker[i] = 0
			:: else
			fi;
			seen = 0;
			i++ }
		:: seen == 0
		fi
	:: i == CELLS -> i = 0; break
	od
}

inline free_slot()
{
	atomic {
		if
#ifdef STORE_SLOT
		:: true ->
#else
		:: slot[s] == life ->
#endif
			assert(slot_worker[s] == 0 || dead[slot_worker[s] - 1]);
			slot[s] = 0;
			slot_worker[s] = 0
		:: else
		fi
	}
}

#define LEFT_BEHIND(n) (slot[n] != 0 && !locked[slot[n]])

proctype Reaper(byte me)
{
	byte s, life, i, seen, looks;
	bool is_dead;

	{
again:
	do
	:: atomic { looks < CURIOUS && slot[0] != 0 -> looks++; s = 0; break }
	:: atomic { LEFT_BEHIND(0) -> s = 0; break }
#if SLOTS > 1
	:: atomic { looks < CURIOUS && slot[1] != 0 -> looks++; s = 1; break }
	:: atomic { LEFT_BEHIND(1) -> s = 1; break }
#endif
	od;
#ifdef TEST_BEFORE_LOAD
	atomic { is_dead = slot[s] == 0 || !locked[slot[s]] };
	atomic { life = slot[s]; is_dead = is_dead && life != 0 };
#else
	atomic { life = slot[s] };
	if
	:: life == 0 -> goto done
	:: else
	fi;
	atomic { is_dead = !locked[life] };
#endif
	if
	:: is_dead ->
#ifdef SLOT_FIRST
		free_slot();
		free_cells(OWNER(s, life))
#else
		free_cells(OWNER(s, life));
		free_slot()
#endif
	:: else
	fi;
done:
	atomic { s = 0; life = 0; is_dead = false; goto again }
	} unless {
		atomic { reaper_dead[me] -> s = 0; life = 0; i = 0; seen = 0; looks = 0; is_dead = false }
	}
}

active proctype Audit()
{
	byte n;

	timeout;
	atomic {
		n = 0;
		do
		:: n < CELLS ->
			assert(cell[n] == 0 || !dead[cell_worker[n] - 1]);
			n++
		:: else -> break
		od;
		n = 0;
		do
		:: n < SLOTS ->
			assert(slot[n] == 0 || locked[slot[n]]);
			n++
		:: else -> break
		od
	}
}

init
{
	atomic {
		run Worker(0);
		run Worker(1);
#if WORKERS > 2
		run Worker(2);
#endif
		run Reaper(0);
#if REAPERS > 1
		run Reaper(1)
#endif
	}
}
