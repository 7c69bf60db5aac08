/* SPDX-License-Identifier: MIT */
/*
 * Waiting for a permit. The protocol is in waiting.h, its model in tests/model/waiting.pml.
 *
 * Why it is so: a queue that hands a permit to its first waiter loses it when that waiter has just died or given up, and a count of waiters
 * is wrong for ever after one death. Here a permit is never handed over: it becomes free, and whoever is awake takes it. The bit says that
 * somebody may sleep, the generation that something has happened since; a wake-up too many costs a look, and one that is lost (a releaser
 * that is stopped between giving back and waking) costs one slice.
 *
 * Who writes the word: waiters set the bit; whoever gives a permit back and sees the bit adds 1 to the generation, and clears the bit where
 * nobody sleeps on, in one CAS; reapers, whoever raises a limit and whoever closes one add 1 and leave the bit alone. These wake everybody.
 * A death between the CAS and the wake-up leaves sleepers on an older generation and no bit: the reaper of the dead wakes without asking
 * the bit. A word of 0 has never been waited on, which is why the generation leaves 0 out when it wraps.
 *
 * Whoever gives back wakes the first in line alone, since the others would only look whose turn it is, and with a long line that costs more
 * than the calls themselves. The wake-up is not lost with him: he takes a permit, or goes, and in both cases looks back, and finds the bit,
 * which stays while anybody sleeps on; where he dies, the reaper wakes all; where he is stopped, the one who was woken with him, of another
 * process, passes him, and the others have their slices.
 *
 * Orders: the waiter sets the bit and then looks at the permits; the releaser frees a permit and then looks at the bit. That is the
 * store-load pattern (Dekker): the CAS on either side and the load of the bit are seq_cst, and a fence stands before the waiter's second
 * look, which reads cells in any order. So at least one of the two sees the other. The same holds for a limit that is raised, and for
 * closing.
 *
 * The queue bounds how many wait, and says who stands before whom: a cell is 0 or its waiter's {life, rank, place}, taken and given back by
 * CAS. A death leaves the cell, which the reaper clears. That somebody stands before is a reason not to look at the permits, so with him
 * that reason has to go, and others be woken: by who goes out of the queue himself, where he sees others and a free permit (Dekker again:
 * he frees his cell, then looks at the others and at the wait word; they take a cell and set the bit, and then look at his; all of it
 * seq_cst, but for the taking, which the setting of the bit follows), by the reaper of the dead, and by their own patience where he is
 * stopped.
 *
 * `passed` only grows, to a place that was drawn: by who waits beside a free permit, to the first in line, where `front` says that it has
 * not come for too long; by who goes and leaves nobody behind who was not passed, to what was drawn before he looked. Somebody who has
 * drawn and is not in the queue yet is passed then, and stands in nobody's way: he may take what he sees. Only damage makes it greater than
 * what was drawn; then nobody stands before anybody until who leaves the queue puts it right. Waiters of versions before minor 2 have any
 * numbers for places, and are passed sooner or later.
 */
#include "waiting.h"

#include "futex.h"
#include "permit.h"

#ifdef RESC_TEST_CLOCK
bool waiting_in_real_time = true;
#endif

#define TRIES          16
#define GENERATION_ONE UINT64_C(2)
#define LOW_HALF       UINT64_C(0xffffffff)

/* The next generation; never 0 as a whole. */
static uint64_t next_generation(uint64_t w)
{
	uint64_t next = (w + GENERATION_ONE) & LOW_HALF;

	return next > WAITING_BIT ? next : next + GENERATION_ONE;
}

/* How many wait, as far as `most`; and the first cell below that which is free. */
static uint32_t look_at_queue(const struct map *map, const struct state *state, uint32_t most, uint32_t *first_free)
{
	const word *cells = map_waiting(map, state);
	uint32_t taken = 0;

	*first_free = most;
	for (uint32_t i = 0; i < map->dims.waiting && taken < most; i++) {
		if (atomic_load_explicit(&cells[i], memory_order_relaxed) != 0)
			taken++;
		else if (*first_free > i)
			*first_free = i;
	}
	return taken;
}

int waiting_join(const struct map *map, struct state *state, uint64_t mine, uint32_t most, uint32_t *cell)
{
	word *cells = map_waiting(map, state);
	uint32_t first_free;

	if (most > map->dims.waiting)
		most = map->dims.waiting;
	/* Each try that fails is a cell that somebody else has taken meanwhile. */
	for (uint32_t tries = 0; tries < most; tries++) {
		uint64_t none = 0;
		if (look_at_queue(map, state, most, &first_free) >= most || first_free >= most)
			return RESC_E_QUEUE_FULL;
		/* relaxed: a cell only counts; what orders waiters and releasers is the wait word. */
		if (atomic_compare_exchange_strong_explicit(&cells[first_free], &none, mine, memory_order_relaxed, memory_order_relaxed)) {
			*cell = first_free;
			FAILPOINT("waiting.joined");
			return 0;
		}
	}
	return RESC_E_QUEUE_FULL;
}

/* ---- the line ---- */

/* Up, or down where damage has put it above what was drawn. */
static void raise_passed(struct state *state, uint64_t seen, uint64_t to)
{
	/* Relaxed: who stands before whom is a matter of politeness. One try: where it fails another has raised it. */
	if (seen != to)
		atomic_compare_exchange_strong_explicit(&state->passed, &seen, to, memory_order_relaxed, memory_order_relaxed);
}

/* How far a place is beyond `passed`; 0: it is passed, or is none that was drawn by now. */
static uint32_t beyond(uint64_t cell, uint64_t passed, uint64_t drawn)
{
	uint32_t ahead = (waiting_place(cell) - (uint32_t)passed) & PLACE_MASK;

	return cell != 0 && passed < drawn && ahead <= drawn - passed ? ahead : 0;
}

struct line {
	uint64_t drawn; /* when it was looked at */
	uint64_t passed;
	unsigned all;     /* in the queue */
	unsigned before;  /* of those who are not passed, before the one who asks */
	uint64_t first;   /* of these, as it is in the queue */
	uint32_t nearest; /* its place, beyond passed */
};

/* Also where the number is damage. */
static unsigned rank_of(uint64_t cell)
{
	return waiting_rank(cell) < WAITING_RANKS ? waiting_rank(cell) : WAITING_CRITICAL;
}

/* As `mine` sees it; a newcomer has no place, and stands behind all of its rank. ranks: bits; of the others nobody can come in. */
static struct line look_at_line(const struct map *map, const struct state *state, uint64_t mine, unsigned ranks)
{
	const word *cells = map_waiting(map, state);
	/* Before the cells: who draws later stands behind. */
	struct line line = {.drawn = atomic_load_explicit(&state->drawn, memory_order_seq_cst),
	                    .passed = atomic_load_explicit(&state->passed, memory_order_relaxed)};
	const uint32_t own = waiting_place(mine) == 0 ? UINT32_MAX : beyond(mine, line.passed, line.drawn);

	for (uint32_t i = 0; i < map->dims.waiting; i++) {
		/* seq_cst: who goes out has freed its own cell by such a CAS. */
		uint64_t w = atomic_load_explicit(&cells[i], memory_order_seq_cst);
		uint32_t place = beyond(w, line.passed, line.drawn);
		unsigned rank = rank_of(w);
		line.all += w != 0;
		if (place == 0 || (ranks >> rank & 1) == 0 || rank < rank_of(mine) || (rank == rank_of(mine) && place >= own))
			continue;
		line.before++;
		if (line.before > 1 && (rank < rank_of(line.first) || (rank == rank_of(line.first) && place > line.nearest)))
			continue;
		line.first = w;
		line.nearest = place;
	}
	return line;
}

/* So many can have a permit of those who may hold that many. */
static uint64_t room_of(uint64_t share, const struct permit_use *use)
{
	uint64_t left = share > use->held ? share - use->held : 0;

	return left < use->free ? left : use->free;
}

/* The first in line, beside a free permit: how long has that been so? Whoever looks writes it down for all. */
static bool has_had_its_turn(struct state *state, uint64_t first, uint64_t now_ms)
{
	/* Relaxed: as `passed`. */
	uint64_t seen = atomic_load_explicit(&state->front, memory_order_relaxed);

	if (front_place(seen) == waiting_place(first))
		return front_age_ms(seen, now_ms) >= WAITING_PATIENCE_MS;
	atomic_compare_exchange_strong_explicit(&state->front, &seen, front_make(waiting_place(first), now_ms), memory_order_relaxed,
	                                        memory_order_relaxed);
	return false;
}

/* Nobody can come. */
static void forget_front(struct state *state)
{
	uint64_t seen = atomic_load_explicit(&state->front, memory_order_relaxed);

	if (seen != 0)
		atomic_compare_exchange_strong_explicit(&state->front, &seen, 0, memory_order_relaxed, memory_order_relaxed);
}

bool waiting_is_turn(const struct map *map, struct state *state, uint64_t mine, const struct waiting_shares *shares, uint64_t now_ms)
{
	const struct permit_use use = permit_use(map, state);
	const uint64_t room = room_of(shares->of[rank_of(mine)], &use);
	uint32_t passed_life = 0;
	unsigned ranks = 0;

	if (use.free == 0)
		forget_front(state);
	if (room == 0 || waiting_is_nobody(state))
		return true;
	for (unsigned rank = 0; rank < WAITING_RANKS; rank++)
		ranks |= room_of(shares->of[rank], &use) != 0 ? 1u << rank : 0;
	for (int i = 0; i < TRIES; i++) {
		struct line line = look_at_line(map, state, mine, ranks);
		/* The last one died, or came from an older version, which does not look back. */
		if (line.all == 0)
			raise_passed(state, line.passed, line.drawn);
		if (line.before < room)
			return true;
		/* It is the process that is stopped, so its other calls do not come either. */
		if (permit_life(line.first) != passed_life && !has_had_its_turn(state, line.first, now_ms))
			return false;
		FAILPOINT("waiting.passing");
		raise_passed(state, line.passed, line.passed + line.nearest);
		passed_life = permit_life(line.first);
	}
	return false;
}

/* Who went may have been the reason why others sleep beside a free permit. */
static void look_back(const struct map *map, struct state *state)
{
	struct line line = look_at_line(map, state, 0, UINT_MAX);

	if (line.before == 0)
		raise_passed(state, line.passed, line.drawn);
	if (line.all != 0 && permit_use(map, state).free != 0)
		waiting_signal_next(map, state);
}

void waiting_leave(const struct map *map, struct state *state, uint32_t cell, uint64_t mine)
{
	if (cell >= map->dims.waiting ||
	    !atomic_compare_exchange_strong_explicit(&map_waiting(map, state)[cell], &mine, 0, memory_order_seq_cst, memory_order_relaxed))
		return;
	FAILPOINT("waiting.left");
	if (map_has(map, 2))
		look_back(map, state);
}

/* ---- the word ---- */

uint32_t waiting_announce(struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->wait, memory_order_seq_cst);

	/* Each try that fails is a generation that has gone by, or a bit that another waiter has set. */
	for (int i = 0; i < TRIES && (w & WAITING_BIT) == 0; i++)
		if (atomic_compare_exchange_strong_explicit(&state->wait, &w, w | WAITING_BIT, memory_order_seq_cst, memory_order_seq_cst))
			w |= WAITING_BIT;
	/* Without the bit nobody would wake us: then a value that the word does not have any more, which ends the sleep at once. */
	if ((w & WAITING_BIT) == 0)
		w = (w - GENERATION_ONE) | WAITING_BIT;
	atomic_thread_fence(memory_order_seq_cst);
	FAILPOINT("waiting.announced");
	return (uint32_t)w;
}

void waiting_sleep(struct state *state, uint32_t value, uint32_t bits, uint64_t ns)
{
	FAILPOINT("waiting.sleep");
	/* Whatever ends it (woken, too late, a signal, a value that has moved, memory that is gone), the caller looks again. */
	futex_wait_for(&state->wait, value, bits, clock_read_ns(CLOCK_MONOTONIC) + (ns < WAITING_SLICE_NS ? ns : WAITING_SLICE_NS));
}

static void wake(struct state *state, uint64_t seen, uint64_t next, uint32_t bits)
{
	/* One try: where it fails, another has moved the generation on. It may be dead before it wakes anybody, so we wake all the same. */
	atomic_compare_exchange_strong_explicit(&state->wait, &seen, next, memory_order_seq_cst, memory_order_relaxed);
	FAILPOINT("signal.moved");
	futex_wake_some(&state->wait, bits);
}

void waiting_wake(struct state *state, uint64_t seen)
{
	wake(state, seen, next_generation(seen) & ~WAITING_BIT, WAITING_ANY);
}

/* Of each rank the first in line, but for one life. */
static void find_first(const struct map *map, const struct state *state, const struct line *now, const uint64_t *except, uint64_t *found)
{
	const word *cells = map_waiting(map, state);

	for (uint32_t i = 0; i < map->dims.waiting; i++) {
		uint64_t w = atomic_load_explicit(&cells[i], memory_order_relaxed);
		uint32_t place = beyond(w, now->passed, now->drawn);
		unsigned rank = rank_of(w);
		if (place == 0 || (except != NULL && permit_life(w) == permit_life(except[rank])))
			continue;
		if (found[rank] == 0 || place < beyond(found[rank], now->passed, now->drawn))
			found[rank] = w;
	}
}

/* Who was passed comes whenever he can; and how many there are in all. */
static uint32_t who_was_passed(const struct map *map, const struct state *state, const struct line *now, unsigned *all)
{
	const word *cells = map_waiting(map, state);
	uint32_t bits = 0;

	for (uint32_t i = 0; i < map->dims.waiting; i++) {
		/* seq_cst: the permit was freed by such a CAS. Who is found here may go before the next look, and looks back then. */
		uint64_t w = atomic_load_explicit(&cells[i], memory_order_seq_cst);
		*all += w != 0;
		if (w != 0 && beyond(w, now->passed, now->drawn) == 0)
			bits |= waiting_bit(w);
	}
	return bits;
}

/* Whose turn it may be; and, lest that one does not come, the first behind him who is of another process. */
static uint32_t who_is_next(const struct map *map, const struct state *state)
{
	uint64_t first[WAITING_RANKS] = {0}, other[WAITING_RANKS] = {0};
	unsigned all = 0;

	const struct line now = {.drawn = atomic_load_explicit(&state->drawn, memory_order_seq_cst),
	                         .passed = atomic_load_explicit(&state->passed, memory_order_relaxed)};
	uint32_t bits = who_was_passed(map, state, &now, &all);
	if (all <= 2)
		return WAITING_ANY;
	find_first(map, state, &now, NULL, first);
	find_first(map, state, &now, first, other);
	for (unsigned rank = 0; rank < WAITING_RANKS; rank++)
		bits |= (first[rank] != 0 ? waiting_bit(first[rank]) : 0) | (other[rank] != 0 ? waiting_bit(other[rank]) : 0);
	return bits;
}

void waiting_wake_next(const struct map *map, struct state *state, uint64_t seen)
{
	uint32_t bits = map_has(map, 2) ? who_is_next(map, state) : WAITING_ANY;

	if (bits == WAITING_ANY)
		waiting_wake(state, seen);
	else
		wake(state, seen, next_generation(seen), bits); /* others sleep on, so the bit stays */
}

void waiting_wake_all(struct state *state)
{
	uint64_t w = atomic_load_explicit(&state->wait, memory_order_seq_cst);

	if (w == 0)
		return;
	/* A second try is for a waiter who has set the bit in between; any other change has moved the generation on. */
	for (int i = 0; i < 2; i++)
		if (atomic_compare_exchange_strong_explicit(&state->wait, &w, next_generation(w), memory_order_seq_cst,
		                                            memory_order_seq_cst))
			break;
	FAILPOINT("signal.moved");
	futex_wake_all(&state->wait);
}

unsigned waiting_count(const struct map *map, const struct state *state)
{
	uint32_t first_free;

	return look_at_queue(map, state, map->dims.waiting, &first_free);
}
