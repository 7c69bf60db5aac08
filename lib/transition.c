/* SPDX-License-Identifier: MIT */
/*
 * A transition is one CAS of the breaker word; it adds one to the generation. The word alone decides. Everything else here is the record of
 * it: why and when (state.transition), how often (state.counted), and the event. The record of each transition is made exactly once,
 * whoever dies or stops wherever, by one rule: nobody moves a breaker on before the record of its last transition is complete.
 *
 * Who writes, in which order, what a death there leaves, who repairs:
 *
 *	1 complete	the record of the transition before, if its author has not: steps 4 to 7, by anybody, several at once. It is that
 *			of the breaker word if `recorded` is not of its generation, and the word is the same before and after that look
 *	2 propose	what this record will say, into state.proposals: a death leaves a proposal that nobody will look for
 *	3 CAS		the breaker word: from here on there is a transition without its record
 *	4 transition	reason and time, by CAS from an older one
 *	5 counted	{generation, count} by CAS to {this generation, count + 1}: who finds this generation there does not count again
 *	6 event		into the ring; a second one is dropped by its writer, or given once by event_read
 *	7 recorded	{state, generation}: complete
 *
 * A death or a stop between 3 and 7 is repaired by whoever comes next: who makes the next transition (1), who reaps the dead author,
 * rescd on its turn of each second, resctl. What the record says they know from the proposal of this very breaker word.
 *
 * Why a slow one changes nothing that it should not: each of 4, 5 and 7 loads its place, then the breaker, and goes on only if that is
 * still of the generation; then it replaces exactly what it saw. By the rule, a breaker that has moved on means that the place has got
 * its value of this generation since, or had it: the CAS fails, or puts there what is there. 6 looks at `recorded` when it has a place
 * in the ring. (Generations are 16 bits. A count would be missed if a breaker went once around them without once coming into that state,
 * which takes 65536 resets in a row by an operator.)
 *
 * A proposal is four plain words, claimed by the CAS of the first. Late stores of somebody who was stopped there may mix two proposals;
 * so the last word has a check over all of them and the breaker word that they are about, and what does not fit is not believed. Then,
 * and when more than PROPOSALS wanted to make the same transition at the same moment, the record of a dead author has no reason.
 *
 * In a superseded segment the record of the last transition is completed before the breaker word moves (move.c); there is none to
 * complete in a word that has moved, or is only prepared.
 */
#include "transition.h"

#include <unistd.h>

#include "event.h"
#include "failpoint.h"
#include "policy.h"

#define RECORD_TRIES   8
#define COMPLETE_TRIES 64

/* What the record of one transition says. */
struct account {
	unsigned from;
	enum reason reason;
	uint64_t ms;
	uint64_t value[2];
	uint64_t who;
};

/* ---- proposals ---- */

static uint64_t proposal_check(uint64_t breaker, uint64_t what, uint64_t who, uint64_t numbers)
{
	const uint64_t all[] = {breaker, what, who, numbers};

	return fnv1a(all, sizeof(all));
}

/* A place that has no proposal of this generation yet. NULL: as many are making the same transition as there are places. */
static struct proposal *claim_proposal(struct state *state, uint64_t what)
{
	for (unsigned i = 0; i < PROPOSALS; i++) {
		struct proposal *p = &state->proposals[i];
		uint64_t seen = atomic_load_explicit(&p->what, memory_order_relaxed);
		if (seen != 0 && transition_generation(seen) == transition_generation(what))
			continue;
		/* acquire: the words of the one before do not come after ours, unless he was stopped between them. */
		if (atomic_compare_exchange_strong_explicit(&p->what, &seen, what, memory_order_acquire, memory_order_relaxed))
			return p;
	}
	return NULL;
}

static void propose(struct state *state, uint64_t breaker, const struct account *account)
{
	uint64_t what = transition_make(breaker_generation(breaker), account->reason, account->ms);
	uint64_t numbers = numbers_make(account->value[0], account->value[1]);
	struct proposal *p = claim_proposal(state, what);

	if (p == NULL)
		return;
	FAILPOINT("transition.claimed");
	/* relaxed: the CAS of the breaker word is a release, and who looks for the proposal has seen that word. */
	atomic_store_explicit(&p->who, account->who, memory_order_relaxed);
	atomic_store_explicit(&p->numbers, numbers, memory_order_relaxed);
	atomic_store_explicit(&p->check, proposal_check(breaker, what, account->who, numbers), memory_order_relaxed);
}

/* What its author said of the transition that made this breaker word. False: nothing is known. */
static bool recall(const struct state *state, uint64_t breaker, struct account *account)
{
	for (unsigned i = 0; i < PROPOSALS; i++) {
		const struct proposal *p = &state->proposals[i];
		/* relaxed: the breaker word was loaded with acquire. */
		uint64_t what = atomic_load_explicit(&p->what, memory_order_relaxed);
		uint64_t who = atomic_load_explicit(&p->who, memory_order_relaxed);
		uint64_t numbers = atomic_load_explicit(&p->numbers, memory_order_relaxed);
		uint64_t check = atomic_load_explicit(&p->check, memory_order_relaxed);
		if (transition_generation(what) != breaker_generation(breaker) || transition_reason(what) >= REASONS ||
		    check != proposal_check(breaker, what, who, numbers))
			continue;
		account->reason = (enum reason)transition_reason(what);
		account->ms = transition_ms(what);
		account->who = who;
		account->value[0] = numbers_first(numbers);
		account->value[1] = numbers_second(numbers);
		return true;
	}
	return false;
}

/* ---- the record ---- */

static bool has_moved_on(const struct state *state, uint16_t generation)
{
	/* acquire, after the acquire load of the place that is about to be replaced: see the head comment. */
	return breaker_generation(atomic_load_explicit(&state->breaker, memory_order_acquire)) != generation;
}

static void put(const struct state *state, word *place, uint64_t value, uint16_t generation, bool (*is_there)(uint64_t, uint16_t))
{
	for (int i = 0; i < RECORD_TRIES; i++) {
		uint64_t seen = atomic_load_explicit(place, memory_order_acquire);
		if (is_there(seen, generation) || has_moved_on(state, generation))
			return;
		/* release: who reads the record sees the breaker word that it speaks of, and what was recorded before. */
		if (atomic_compare_exchange_strong_explicit(place, &seen, value, memory_order_acq_rel, memory_order_relaxed))
			return;
	}
}

/* One without a reason may be replaced by its author, who knows it. */
static bool has_reason(uint64_t w, uint16_t generation)
{
	return transition_generation(w) == generation && transition_reason(w) != REASON_NONE;
}

static bool is_recorded(uint64_t w, uint16_t generation)
{
	return recorded_generation(w) == generation;
}

static void count_once(struct state *state, unsigned to, uint16_t generation)
{
	word *place = &state->counted[to - TAG_CLOSED];

	for (int i = 0; i < RECORD_TRIES; i++) {
		uint64_t seen = atomic_load_explicit(place, memory_order_acquire);
		if ((seen != 0 && counted_generation(seen) == generation) || has_moved_on(state, generation))
			return;
		if (atomic_compare_exchange_strong_explicit(place, &seen, counted_make(generation, counted_count(seen) + 1),
		                                            memory_order_acq_rel, memory_order_relaxed))
			return;
	}
}

static void write_event(const struct map *map, uint32_t index, uint64_t breaker, const struct account *account, uint32_t life,
                        uint64_t recorded)
{
	struct event event = {
	        .kind = EVENT_BREAKER,
	        .from = account->from,
	        .to = breaker_state(breaker),
	        .reason = account->reason,
	        .generation = breaker_generation(breaker),
	        .value = {account->value[0], account->value[1]},
	        .ms = account->ms,
	        .pid = (pid_t)who_pid(account->who),
	        .uid = who_uid(account->who),
	};

	policy_name_any(map, index, event.resource);
	event_write_unless(map, life, &event, &map_state(map, index)->recorded, recorded);
}

/* Steps 4 to 7. recorded: the word as it was before them. */
static void make_record(const struct map *map, uint32_t index, uint64_t breaker, const struct account *account, uint32_t life,
                        uint64_t recorded)
{
	struct state *state = map_state(map, index);
	uint16_t generation = breaker_generation(breaker);
	unsigned to = breaker_state(breaker);

	put(state, &state->transition, transition_make(generation, account->reason, account->ms), generation, has_reason);
	FAILPOINT("transition.explained");
	/* A reset of a closed breaker gives it a new generation, but it did not close. */
	if (account->from != to)
		count_once(state, to, generation);
	FAILPOINT("transition.recorded");
	write_event(map, index, breaker, account, life, recorded);
	FAILPOINT("transition.event");
	put(state, &state->recorded, recorded_make(to, generation), generation, is_recorded);
}

static bool is_settled(uint64_t breaker)
{
	return breaker_tag(breaker) == TAG_EMPTY || breaker_tag(breaker) >= TAG_MOVED;
}

static void complete(const struct map *map, uint32_t index, uint64_t breaker, uint64_t recorded, uint32_t life)
{
	struct account account = {.from = recorded_state(recorded), .who = who_make((uint32_t)getpid(), getuid())};

	if (!recall(map_state(map, index), breaker, &account) && breaker_state(breaker) != TAG_OPEN)
		account.ms = breaker_ms(breaker);
	make_record(map, index, breaker, &account, life, recorded);
}

uint64_t transition_complete(const struct map *map, uint32_t index, uint32_t life)
{
	struct state *state = map_state(map, index);
	uint64_t breaker = atomic_load_explicit(&state->breaker, memory_order_acquire);

	for (int i = 0; i < COMPLETE_TRIES; i++) {
		uint64_t recorded = atomic_load_explicit(&state->recorded, memory_order_acquire);
		if (is_settled(breaker) || is_recorded(recorded, breaker_generation(breaker)))
			return breaker;
		/* The breaker was of one word before and after: so what was recorded then is the transition before this one. */
		uint64_t again = atomic_load_explicit(&state->breaker, memory_order_acquire);
		if (again == breaker) {
			complete(map, index, breaker, recorded, life);
			return breaker;
		}
		breaker = again;
	}
	return 0;
}

/* ---- the transition ---- */

bool breaker_transition(const struct map *map, uint32_t index, uint64_t expected, unsigned tag, unsigned streak, uint64_t ms_field,
                        enum reason reason, uint32_t life, uint64_t now_ms, uint64_t v0, uint64_t v1)
{
	struct state *state = map_state(map, index);
	uint64_t next = breaker_make(tag, streak, breaker_generation(expected) + 1u, ms_field);
	const struct account account = {
	        .from = breaker_state(expected),
	        .reason = reason,
	        .ms = now_ms,
	        .value = {v0, v1},
	        .who = who_make((uint32_t)getpid(), getuid()),
	};

	if (transition_complete(map, index, life) != expected)
		return false;
	/* relaxed: it has been read. One that is newer belongs to a transition that our CAS will lose to. */
	uint64_t recorded = atomic_load_explicit(&state->recorded, memory_order_relaxed);
	propose(state, next, &account);
	FAILPOINT("transition.proposed");
	/* acq_rel: what the winner saw (tallies, windows) comes before the new generation for everybody who loads it with acquire. */
	if (!atomic_compare_exchange_strong_explicit(&state->breaker, &expected, next, memory_order_acq_rel, memory_order_relaxed))
		return false;
	FAILPOINT("transition.won");
	make_record(map, index, next, &account, life, recorded);
	return true;
}
