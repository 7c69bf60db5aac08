/* SPDX-License-Identifier: MIT */
/*
 * A figure is worth nothing if a note is missing. Each question to a resource is kept twice, by two programs that know nothing of each
 * other: the caller notes it on the board, and libresc counts it in the segment. So each take is its own test: where the two disagree, one
 * of them is wrong, and there is no result.
 *
 * Transitions of a breaker are events in a ring, which forgets, and whose reader leaves out whoever is slow to write; how many there were
 * is counted as well, and exactly.
 *
 * They agree exactly but for what was going on at the end. A note's number is drawn before resc_enter, and the note is done after
 * everything that it tells of was counted; so of a note that is not done the segment may have counted anything, once at most, and nothing
 * without a note. One whose worker was killed before it wrote the first word does not even say of which resource it is, and may be of any.
 */
#include "balance.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#define ENTRIES(X)                                                                                                                         \
	X("admitted", admitted)                                                                                                            \
	X("ended ok", ended_ok)                                                                                                            \
	X("ended in failure", ended_fail)                                                                                                  \
	X("timed out", ended_timeout)                                                                                                      \
	X("ended as ignored", ended_ignored)                                                                                               \
	X("were cancelled", ended_cancelled)                                                                                               \
	X("were granted a retry", retries)                                                                                                 \
	X("opened the breaker", opened)                                                                                                    \
	X("made the breaker half-open", half_opened)

struct book {
	struct resc_counters noted; /* by the notes that are done */
	uint64_t open;              /* that are not; of nobody knows which resource they were: too */
};

static void book_refusal(struct resc_counters *noted, int answer)
{
	switch (answer) {
#define X(NAME, name, text)                                                                                                                \
	case RESC_E_##NAME:                                                                                                                \
		noted->refused_##name++;                                                                                                   \
		return;
		RESC_REFUSALS(X)
#undef X
	default:
		return;
	}
}

static void book_outcome(struct resc_counters *noted, unsigned outcome)
{
	switch (outcome) {
#define X(NAME, name, text)                                                                                                                \
	case RESC_##NAME:                                                                                                                  \
		noted->ended_##name++;                                                                                                     \
		return;
		RESC_OUTCOMES(X)
#undef X
	default:
		return;
	}
}

static void book_attempt(struct resc_counters *noted, const struct attempt_note *note)
{
	noted->enters++;
	if (note->answer != 0) {
		book_refusal(noted, note->answer);
		return;
	}
	noted->admitted++;
	book_outcome(noted, note->outcome);
	noted->retries += note->retry == 0;
}

static bool is_done(const struct attempt_note *note)
{
	/* acquire: what it tells */
	return atomic_load_explicit(&note->done, memory_order_acquire) != 0;
}

static void book_transition(struct resc_counters *noted, const struct transition_note *transition)
{
	noted->opened += transition->to == RESC_BREAKER_OPEN;
	noted->half_opened += transition->to == RESC_HALF_OPEN;
}

static void keep_books(const struct take *take, struct book *books)
{
	uint64_t of_anybody = 0;

	for (size_t i = 0; i < take->attempt_count; i++) {
		const struct attempt_note *note = &take->board->attempt_notes[i];
		if (is_done(note))
			book_attempt(&books[note->resource].noted, note);
		else if (note->try == 0)
			of_anybody++;
		else
			books[note->resource].open++;
	}
	for (size_t i = 0; i < take->transition_count; i++)
		book_transition(&books[take->transitions[i].resource].noted, &take->transitions[i]);
	for (size_t i = 0; i < take->scenario->resource_count; i++)
		books[i].open += of_anybody;
}

static bool agree(const struct take *take, size_t resource, const struct book *book, const char *what, uint64_t noted, uint64_t counted)
{
	if (noted <= counted && counted - noted <= book->open)
		return true;
	fprintf(stderr,
	        "resctl rehearse: resource '%s': the notes of the workers and the counters of the segment do not agree: %s: %" PRIu64
	        " noted (and %" PRIu64 " not finished), %" PRIu64 " counted; so there is no result\n",
	        take->scenario->resources[resource], what, noted, book->open, counted);
	return false;
}

static bool is_balanced(const struct take *take, size_t resource, const struct book *book)
{
	const struct resc_counters *counted = &take->tallies[resource].counters;
	bool good = true;

#define CHECK(what, name)               good = good && agree(take, resource, book, what, book->noted.name, counted->name);
#define CHECK_REFUSED(NAME, name, text) CHECK("refused: " text, refused_##name)
	CHECK("asked", enters)
	RESC_REFUSALS(CHECK_REFUSED)
	ENTRIES(CHECK)
#undef CHECK_REFUSED
#undef CHECK
	return good;
}

int balance_check(const struct take *take)
{
	struct book books[SCENARIO_RESOURCES] = {0};

	keep_books(take, books);
	for (size_t i = 0; i < take->scenario->resource_count; i++) {
		if (!is_balanced(take, i, &books[i]))
			return -EBADMSG;
	}
	return 0;
}
