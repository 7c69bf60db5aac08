/* SPDX-License-Identifier: MIT */
/*
 * The retry budget.
 *
 * N workers with a budget each add up to N budgets: this is one word, {kind, epoch, tokens}, that all of them change by CAS of the exact
 * value seen. So nothing is lost or invented, whatever runs at once, and a death at any step costs nothing but (see below) an interval
 * of the floor. Tokens are counted in millionths; they are never negative and never above the capacity.
 *
 * Withdrawals. Without a threshold a retry takes its cost where all of it is there, else nothing. With one the bucket counts failures: each
 * takes its cost, down to nothing, and the retry is granted where more than the threshold is left after that. From 10 tokens and a
 * threshold of half of them, four failures are retried (9, 8, 7 and 6 are left) and the fifth (5) is not.
 *
 * Deposits. A full bucket is not written, so healthy workers only read the line and it stays shared between their caches.
 *
 * The floor. refilled_ms is the time until which it has been paid in, with the fraction of a millionth that is still owed. CAS of it from
 * t0 to now claims the interval; who wins adds per_second * (now - t0). No fraction is lost however often it is asked. Every withdrawal
 * claims before it takes, so an interval in which the bucket was full is gone when tokens start to leave it; for the same reason a claimer
 * adds no more than there was room for before its claim. A claimer that dies before it adds loses that interval, once. Deposits need not
 * claim: both only add and are capped, so their order is nothing.
 *
 * The capacity. A policy has the epoch of its capacity, and the capacity of the epoch before. Whoever touches a word of the epoch before
 * converts it in the same CAS: the filled share stays. A word that is older than that is cut to the capacity. A word that is newer than
 * the caller's policy (the caller has not reloaded yet) keeps its epoch, and the caller leaves its size alone.
 *
 * A ttl. Where the policy has one, what is deposited (the floor and the first fill too) is written into a slice of its time first, and only
 * then into the word; a withdrawal looks at the word first, and then at how much of it has not expired: see earned.c.
 *
 * Orders: the word is changed with release and loaded with acquire for the slices' sake alone; it orders nothing else. refilled_ms is
 * claimed with acquire/release because the tokens of the interval before must be seen by who claims the next one.
 */
#include "budget.h"

#include <errno.h>

#include "bounds.h"
#include "clock.h"
#include "earned.h"
#include "failpoint.h"
#include "words.h"

/* Coarse clocks of two processors may differ by a tick; this is much more. */
#define FUTURE_MS 10000u

/* ---- the word, as a policy sees it ---- */

struct level {
	uint64_t tokens;
	uint64_t capacity; /* never written above this */
	unsigned epoch;    /* to write */
};

static bool is_here(uint64_t w)
{
	return tokens_kind(w) == WORD_LIVE || tokens_kind(w) == WORD_PREPARED;
}

static uint64_t capacity_of(const struct policy *policy)
{
	return smaller(policy->budget_capacity, TOKENS_MASK);
}

static uint64_t keep_share(uint64_t tokens, uint64_t from, uint64_t to)
{
	if (from == 0 || tokens >= from)
		return to;
	return (uint64_t)((unsigned __int128)tokens * to / from);
}

static struct level level_of(uint64_t w, const struct policy *policy)
{
	unsigned mine = (unsigned)policy->budget_epoch & 0xff;
	struct level level = {.tokens = tokens_count(w), .capacity = capacity_of(policy), .epoch = mine};
	unsigned behind = (mine - tokens_epoch(w)) & 0xff; /* 128 and more: the word is newer */

	if (behind >= 128) {
		level.epoch = tokens_epoch(w);
		if (level.tokens > level.capacity)
			level.capacity = level.tokens;
	} else if (behind == 1) {
		level.tokens = keep_share(level.tokens, policy->budget_previous, level.capacity);
	} else {
		level.tokens = smaller(level.tokens, level.capacity);
	}
	return level;
}

static bool change(struct state *state, uint64_t *seen, const struct level *level, uint64_t tokens)
{
	uint64_t next = tokens_make(WORD_LIVE, level->epoch, tokens);

	return atomic_compare_exchange_weak_explicit(&state->tokens, seen, next, memory_order_acq_rel, memory_order_acquire);
}

static uint64_t tokens_word(const struct state *state)
{
	return atomic_load_explicit(&state->tokens, memory_order_acquire);
}

/* The level, for who is about to change the word. Tokens of the epoch before get a new life first, because their slices mean nothing now.
 */
static struct level level_to_change(const struct map *map, struct state *state, uint64_t seen, const struct policy *policy)
{
	struct level level = level_of(seen, policy);

	if (earned_expires(policy) && level.epoch != tokens_epoch(seen))
		earned_renew(map, state, policy);
	FAILPOINT("budget.seen");
	return level;
}

/* What has not expired. A word that is newer than the policy is not judged: the slices are of another ttl. */
static uint64_t not_expired(const struct map *map, const struct state *state, const struct policy *policy, const struct level *level)
{
	if (!earned_expires(policy) || level->epoch != (policy->budget_epoch & 0xff))
		return level->tokens;
	return smaller(level->tokens, earned_live(map, state, policy));
}

/* Adds, up to the capacity. A full bucket is not written, but where its tokens have got a new life: that is given once. */
static int add(const struct map *map, struct state *state, const struct policy *policy, uint64_t amount)
{
	uint64_t seen = tokens_word(state);

	/* A CAS fails when somebody else's succeeded (or spuriously): the host as a whole gets on. */
	for (;;) {
		if (!is_here(seen))
			return -ESTALE;
		struct level level = level_to_change(map, state, seen, policy);
		bool renewed = earned_expires(policy) && level.epoch != tokens_epoch(seen);
		if (level.tokens >= level.capacity && !renewed)
			return 0;
		uint64_t room = level.capacity - level.tokens;
		if (change(state, &seen, &level, level.tokens + smaller(amount, room)))
			return 0;
	}
}

/* ---- the floor ---- */

/* refilled_ms is {rest:24, ms:40}: until when it has been paid, and the thousandths of a millionth that were left over. */
static uint64_t refilled_make(uint64_t rest, uint64_t ms)
{
	return rest << 40 | (ms & TIME_MASK);
}
static uint64_t refilled_ms(uint64_t w)
{
	return w & TIME_MASK;
}
static uint64_t refilled_rest(uint64_t w)
{
	return (w >> 40) % 1000;
}

/* What is due now, in millionths, and the word that says that it was paid. */
static uint64_t floor_due(const struct policy *policy, uint64_t refilled, uint64_t now_ms, uint64_t *paid)
{
	*paid = refilled;
	if (policy->budget_per_second == 0 || now_ms <= refilled_ms(refilled))
		return 0;
	unsigned __int128 thousandths = (unsigned __int128)policy->budget_per_second * (now_ms - refilled_ms(refilled));
	thousandths += refilled_rest(refilled);
	*paid = refilled_make((uint64_t)(thousandths % 1000), now_ms);
	unsigned __int128 due = thousandths / 1000;
	return due > TOKENS_MASK ? TOKENS_MASK : (uint64_t)due;
}

/*
 * A time far in the future is damage, and would stop the floor for good. But the caller's now_ms may be old (the worker was stopped since
 * it read the clock), and others have rightly paid since: so the clock is read again, after the word.
 */
static void repair(const struct map *map, struct state *state, uint64_t refilled)
{
	uint64_t now_ms = clock_coarse_ms(map);

	if (refilled_ms(refilled) <= now_ms || refilled_ms(refilled) - now_ms <= FUTURE_MS)
		return;
	atomic_compare_exchange_strong_explicit(&state->refilled_ms, &refilled, refilled_make(0, now_ms), memory_order_acq_rel,
	                                        memory_order_relaxed);
}

static void pay_floor(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms)
{
	uint64_t paid;
	/* acquire, and before the tokens: the room that we see is of this interval or later. */
	uint64_t refilled = atomic_load_explicit(&state->refilled_ms, memory_order_acquire);
	uint64_t due = floor_due(policy, refilled, now_ms & TIME_MASK, &paid);
	uint64_t w = tokens_word(state);

	if (!is_here(w))
		return;
	if (refilled_ms(refilled) > now_ms && refilled_ms(refilled) - now_ms > FUTURE_MS)
		repair(map, state, refilled);
	if (paid == refilled)
		return;
	struct level level = level_of(w, policy);
	uint64_t credit = smaller(due, level.capacity - level.tokens);
	FAILPOINT("budget.claim");
	uint64_t claimed = refilled;
	/* acq_rel: pairs with the load above in the next claimer. A failure: somebody else has claimed it. */
	if (!atomic_compare_exchange_strong_explicit(&state->refilled_ms, &refilled, paid, memory_order_acq_rel, memory_order_relaxed))
		return;
	FAILPOINT("budget.claimed");
	if (earned_expires(policy))
		credit = smaller(credit, earned_floor(map, state, policy, refilled_ms(claimed), now_ms & TIME_MASK, due));
	if (credit > 0)
		add(map, state, policy, credit);
}

/* ---- what others call ---- */

static uint64_t cost_of(const struct policy *policy, enum resc_outcome outcome)
{
	return outcome == RESC_TIMEOUT ? policy->budget_timeout_cost : policy->budget_cost;
}

/* Retries stop when no more than this is left. */
static uint64_t threshold_of(const struct policy *policy)
{
	return (uint64_t)((unsigned __int128)capacity_of(policy) * policy->budget_threshold_ppm / 1000000);
}

int budget_withdraw(const struct map *map, struct state *state, const struct policy *policy, enum resc_outcome outcome, uint64_t now_ms)
{
	uint64_t cost = cost_of(policy, outcome);
	bool failures = policy->budget_threshold_ppm != 0;

	pay_floor(map, state, policy, now_ms);
	uint64_t seen = tokens_word(state);
	/* As in add: a CAS fails when somebody else's succeeded. */
	for (;;) {
		if (!is_here(seen))
			return -ESTALE;
		struct level level = level_to_change(map, state, seen, policy);
		uint64_t there = not_expired(map, state, policy, &level);
		if (!failures && there < cost)
			return 1;
		uint64_t left = there - smaller(cost, there);
		if (left != level.tokens && !change(state, &seen, &level, left))
			continue;
		FAILPOINT("budget.taken");
		return !failures || left > threshold_of(policy) ? 0 : 1;
	}
}

int budget_deposit(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms)
{
	if (policy->budget_ratio == 0)
		return 0;
	if (earned_expires(policy)) {
		if (!is_here(tokens_word(state)))
			return -ESTALE;
		if (!earned_add(map, state, policy, now_ms, policy->budget_ratio))
			return 0;
		FAILPOINT("budget.earned");
	}
	FAILPOINT("budget.depositing");
	return add(map, state, policy, policy->budget_ratio);
}

/*
 * Writes a word of the epoch before as it is in this one, so that the next capacity finds the share and not only a number; and what has
 * expired is taken out, so that no change of the policy gives it a new life.
 */
static void convert(const struct map *map, struct state *state, const struct policy *policy)
{
	uint64_t seen = tokens_word(state);

	while (is_here(seen)) {
		struct level level = level_to_change(map, state, seen, policy);
		uint64_t there = not_expired(map, state, policy, &level);
		if ((level.epoch == tokens_epoch(seen) && there == level.tokens) || change(state, &seen, &level, there))
			return;
	}
}

void budget_settle(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms)
{
	pay_floor(map, state, policy, now_ms);
	convert(map, state, policy);
	earned_clean(state, policy);
	/* Time without a floor passes unpaid. A failure: somebody has just claimed; that will do. */
	uint64_t refilled = atomic_load_explicit(&state->refilled_ms, memory_order_acquire);
	uint64_t here = refilled_make(refilled_rest(refilled), now_ms);
	if (refilled_ms(refilled) < (now_ms & TIME_MASK))
		atomic_compare_exchange_strong_explicit(&state->refilled_ms, &refilled, here, memory_order_acq_rel, memory_order_relaxed);
}

void budget_start(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms)
{
	uint64_t full = tokens_make(WORD_LIVE, (unsigned)policy->budget_epoch, capacity_of(policy));

	if (earned_expires(policy))
		earned_renew(map, state, policy);
	atomic_store_explicit(&state->refilled_ms, refilled_make(0, now_ms), memory_order_relaxed);
	atomic_store_explicit(&state->tokens, full, memory_order_release);
}

void budget_carry(const struct state *old, struct state *new)
{
	/* acquire, acq_rel: as in pay_floor. An interval that was claimed in the old segment is not paid again in the new one. */
	uint64_t paid = atomic_load_explicit(&old->refilled_ms, memory_order_acquire);
	uint64_t seen = atomic_load_explicit(&new->refilled_ms, memory_order_relaxed);

	while (refilled_ms(seen) < refilled_ms(paid) &&
	       !atomic_compare_exchange_weak_explicit(&new->refilled_ms, &seen, paid, memory_order_acq_rel, memory_order_relaxed))
		;
	earned_carry(old, new);
}

int budget_fill(const struct map *map, struct state *state, const struct policy *policy)
{
	if (earned_expires(policy) && is_here(tokens_word(state)))
		earned_renew(map, state, policy);
	return add(map, state, policy, TOKENS_MASK);
}

/* The most that can be there now, the floor's share of this moment included: what has not expired. */
static uint64_t most_now(const struct state *state, const struct policy *policy, uint64_t refilled, uint64_t now_ms)
{
	uint64_t paid;
	uint64_t since = earned_since(policy, now_ms);

	if (refilled_ms(refilled) > since)
		since = refilled_ms(refilled);
	return earned_at(state, policy, now_ms) + floor_due(policy, refilled_make(0, since), now_ms, &paid);
}

uint64_t budget_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms)
{
	(void)map;
	uint64_t paid;
	uint64_t refilled = atomic_load_explicit(&state->refilled_ms, memory_order_acquire);
	uint64_t w = tokens_word(state);
	if (!is_here(w))
		return 0;
	now_ms &= TIME_MASK;
	struct level level = level_of(w, policy);
	uint64_t due = floor_due(policy, refilled, now_ms, &paid);
	uint64_t there = smaller(level.tokens + smaller(due, level.capacity - level.tokens), capacity_of(policy));
	/* A word of another epoch gets a new life, or is not judged. */
	if (earned_expires(policy) && tokens_epoch(w) == (policy->budget_epoch & 0xff))
		there = smaller(there, most_now(state, policy, refilled, now_ms));
	return there;
}
