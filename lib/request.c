/* SPDX-License-Identifier: MIT */
/*
 * Questions to rescd: the only place where a worker waits for it.
 *
 * Why this exists: the configuration may have patterns ("shard-*"), and the names that match them are known to the workers alone. A
 * policy is written by rescd, so a worker that needs a record puts the name into one of a few places of the segment and waits.
 *
 * The state of a place is {life:32, detail:24, phase:8}, or 0. The detail is the number of the question while it is asked, and an
 * errno when it is answered.
 *
 *	asker	CAS 0 -> {life, number, ASKING}; writes the name; CAS -> {life, number, ASKED} (release); opens and closes the segment
 *		file, which rescd's inotify sees; sleeps and looks until it is ANSWERED; CAS -> 0
 *	rescd	loads an ASKED word (acquire), copies the name, loads the word again: the same; checks the name, makes the record; CAS
 *		of that exact word -> {life, errno, ANSWERED} (release)
 *
 * Who gives up takes the question back by CAS {life, number, ASKED} -> 0. If that fails it was answered at that very moment, and the
 * answer counts. The number is why a slow rescd never answers the next question of the same worker in the same place.
 *
 * Death of the asker: before its first CAS nothing was changed; after it the word carries its life, and the reaper clears it, whatever
 * the phase. A stopped asker keeps its place, one of REQUESTS. Death or stop of rescd: before its CAS the question stands, and the
 * next rescd answers it, also when the record was made already. The asker waits a bounded time and says that nobody answers. A record
 * that was made for somebody who has given up is a resource that nobody calls, and is retired like any.
 *
 * The model is tests/model/request.pml.
 *
 * Nothing here is believed: a torn or foreign name is refused by name_check, an unknown answer is no answer. Sleeping is counted, not
 * measured, so no clock and no word in the segment can make it longer.
 */
#include "request.h"

#include <errno.h>
#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "chars.h"
#include "failpoint.h"
#include "thread.h"

#define FIRST_SLICE_NS 50000u
#define SLICE_NS       20000000u

enum phase { ASKING = 1, ASKED = 2, ANSWERED = 3 };

static uint64_t place_make(uint32_t life, uint32_t detail, enum phase phase)
{
	return (uint64_t)life << 32 | (uint64_t)(detail & 0xffffff) << 8 | (uint64_t)phase;
}

static uint32_t place_life(uint64_t w)
{
	return (uint32_t)(w >> 32);
}

static uint32_t place_detail(uint64_t w)
{
	return (uint32_t)(w >> 8) & 0xffffff;
}

static unsigned place_phase(uint64_t w)
{
	return (unsigned)w & 0xff;
}

uint32_t request_life(uint64_t w)
{
	return place_life(w);
}

bool request_is_possible(uint64_t w)
{
	return w == 0 || (place_life(w) != 0 && place_phase(w) >= ASKING && place_phase(w) <= ANSWERED);
}

static bool swap(struct request *request, uint64_t seen, uint64_t next)
{
	/* acq_rel: who takes a place writes its name after whoever had it before; who sees ASKED or ANSWERED sees what belongs to it. */
	return atomic_compare_exchange_strong_explicit(&request->state, &seen, next, memory_order_acq_rel, memory_order_relaxed);
}

/* ---- the asker ---- */

/* What is left of its patience. The slices grow: an answer usually takes some 100 us. */
struct pace {
	uint64_t slice_ns;
	uint64_t left_ns;
};

static bool sleep_a_slice(struct pace *pace)
{
	uint64_t ns = pace->slice_ns < pace->left_ns ? pace->slice_ns : pace->left_ns;
	struct timespec t = {.tv_sec = 0, .tv_nsec = (long)ns};

	if (ns == 0)
		return false;
	nanosleep(&t, NULL);
	pace->left_ns -= ns;
	pace->slice_ns = pace->slice_ns * 2 < SLICE_NS ? pace->slice_ns * 2 : SLICE_NS;
	return true;
}

/* The number of the place, or REQUESTS. */
static uint32_t take_place(const struct map *map, uint64_t asking)
{
	uint32_t i = 0;

	while (i < REQUESTS && !swap(&map->live->requests[i], 0, asking))
		i++;
	return i;
}

static void wake_rescd(const struct map *map)
{
	/* It must be this file, whatever has its name now. */
	int fd = map_reopen(map, O_RDONLY);

	if (fd >= 0)
		close(fd);
}

static int answer_of(uint64_t w)
{
	int answer = (int)place_detail(w);

	return answer == 0 || answer == ENOENT || answer == ENOSPC ? -answer : -EAGAIN;
}

static int wait_for_answer(struct request *request, uint64_t asked, struct pace *pace)
{
	uint64_t w;

	do {
		w = atomic_load_explicit(&request->state, memory_order_acquire);
	} while (w == asked && sleep_a_slice(pace));
	if (w == asked) {
		if (swap(request, asked, 0))
			return -EAGAIN;
		w = atomic_load_explicit(&request->state, memory_order_acquire);
	}
	FAILPOINT("request.answered");
	/* Anything else in our place is damage, and not ours to free. */
	if (place_phase(w) != ANSWERED || place_life(w) != place_life(asked))
		return -EAGAIN;
	swap(request, w, 0);
	return answer_of(w);
}

int request_ask(const struct map *map, uint32_t life, const char *name, uint32_t patience_ms)
{
	struct pace pace = {FIRST_SLICE_NS, (uint64_t)patience_ms * 1000000};
	uint32_t number = thread_call_number();
	uint32_t place = take_place(map, place_make(life, number, ASKING));

	while (place == REQUESTS) {
		if (!sleep_a_slice(&pace))
			return -EAGAIN;
		place = take_place(map, place_make(life, number, ASKING));
	}
	struct request *request = &map->live->requests[place];
	FAILPOINT("request.taken");
	chars_store(request->name, sizeof request->name, name);
	FAILPOINT("request.named");
	if (!swap(request, place_make(life, number, ASKING), place_make(life, number, ASKED)))
		return -EAGAIN;
	FAILPOINT("request.asked");
	wake_rescd(map);
	return wait_for_answer(request, place_make(life, number, ASKED), &pace);
}

/* ---- rescd ---- */

bool request_next(const struct map *map, struct question *question)
{
	while (question->at < REQUESTS) {
		struct request *request = &map->live->requests[question->at++];
		question->word = atomic_load_explicit(&request->state, memory_order_acquire);
		if (place_phase(question->word) != ASKED)
			continue;
		chars_load(request->name, sizeof question->name, question->name);
		if (atomic_load_explicit(&request->state, memory_order_relaxed) != question->word)
			continue; /* given up meanwhile */
		if (name_check(question->name, NULL) == 0)
			return true;
		request_answer(map, question, -EINVAL);
	}
	return false;
}

void request_answer(const struct map *map, const struct question *question, int answer)
{
	FAILPOINT("request.answering");
	swap(&map->live->requests[question->at - 1], question->word, place_make(place_life(question->word), (uint32_t)-answer, ANSWERED));
}

void request_reap(const struct map *map, uint32_t life)
{
	for (uint32_t i = 0; i < REQUESTS; i++) {
		uint64_t w = atomic_load_explicit(&map->live->requests[i].state, memory_order_relaxed);
		if (w != 0 && place_life(w) == life)
			swap(&map->live->requests[i], w, 0);
	}
}
