/* SPDX-License-Identifier: MIT */
/*
 * Tokens that expire.
 *
 * A budget that was earned in a good hour should not pay for a storm in the next. With a ttl, what was deposited is worth nothing after it,
 * oldest first. That needs no list of deposits: who takes the oldest tokens first has, of n tokens, the n that were earned last. So at each
 * moment the bucket holds the smaller of the tokens and of what was earned within the ttl, and the cut is due only when somebody
 * withdraws: deposits in between change neither side's order.
 *
 * What was earned is kept in slices of a tenth of the ttl: earned[tick % 16] = {epoch, tick, amount}, changed by CAS of the exact value
 * seen. The last ten ticks are live, so a token lives nine to ten tenths of the ttl. A tick takes its place from one that is sixteen ticks
 * older. A slice holds at most the capacity: more of the same age makes no difference, because the bucket holds no more. So in a healthy
 * service, whose bucket is full, a few deposits a tick are written, and the rest only read.
 *
 * epoch: two bits of the policy's budget_epoch, which moves when the capacity or the ttl does. Amounts and ticks of another epoch mean
 * something else and do not count. Who converts the tokens to a new epoch first writes a slice of now that holds the whole capacity: a
 * change of the policy, and a ttl where there was none, give what is there a new life. A caller whose policy is older than the slice leaves
 * it alone.
 *
 * A process may be stopped between any two steps. A place that holds another tick is replaced only by a tick that is live by a clock that
 * was read after the place: so old news never replaces a newer slice. A withdrawer believes a sum only if the tick did not change while it
 * was added up. If it is stopped after that, and the tokens are by chance the same when it goes on, what others earned meanwhile may be
 * cut: that errs to fewer retries, once. A death between slice and tokens leaves a slice that says a deposit too much: tokens of the same
 * age may live on in its place.
 *
 * Orders: the tokens' release and acquire stand around the slices (budget.c). What is acquire here is so only that the clock is read after
 * the slice. Ticks have 22 bits: with a ttl of 10 s they come round after 48 days, and a place that nobody has written for
 * exactly that long would be live again for a ttl.
 */
#include "earned.h"

#include "bounds.h"
#include "clock.h"
#include "words.h"

#define SLICES 10u
#define AHEAD  (WINDOW_RING - SLICES) /* how many ticks another processor's clock may be ahead of ours */
#define TRIES  64

_Static_assert(WINDOW_RING > SLICES, "a tick that is live never shares a place with one that is not over");

static uint64_t slice_ms(const struct policy *policy)
{
	return larger(policy->budget_ttl_ms / SLICES, 1);
}

/* Fewer than ten where the ttl has fewer milliseconds. */
static uint64_t slices_live(const struct policy *policy)
{
	return smaller(policy->budget_ttl_ms / slice_ms(policy), SLICES);
}

static uint64_t tick_at(const struct policy *policy, uint64_t ms)
{
	return ms / slice_ms(policy) & EARNED_TICK_MASK;
}

/* Counts what is a few ticks ahead of now as live: that is another processor's clock. */
static bool is_live(const struct policy *policy, uint64_t tick, uint64_t now)
{
	return ((now + AHEAD - tick) & EARNED_TICK_MASK) < slices_live(policy) + AHEAD;
}

static bool is_of_next_policy(uint64_t w, const struct policy *policy)
{
	return ((earned_epoch(w) - policy->budget_epoch) & 3) == 1;
}

static bool is_live_now(const struct map *map, const struct policy *policy, uint64_t tick)
{
	return is_live(policy, tick, tick_at(policy, clock_coarse_ms(map)));
}

static bool same_slice(uint64_t w, const struct policy *policy, uint64_t tick)
{
	return earned_epoch(w) == (policy->budget_epoch & 3) && earned_tick(w) == tick;
}

static bool add_to_tick(const struct map *map, struct state *state, const struct policy *policy, uint64_t tick, uint64_t amount)
{
	word *place = &state->earned[tick % WINDOW_RING];
	uint64_t most = smaller(policy->budget_capacity, EARNED_MASK);
	uint64_t seen = atomic_load_explicit(place, memory_order_acquire);

	for (int i = 0; i < TRIES; i++) {
		uint64_t there = same_slice(seen, policy, tick) ? earned_amount(seen) : 0;
		if (there >= most || is_of_next_policy(seen, policy))
			return true;
		if (!is_live_now(map, policy, tick))
			return false;
		uint64_t next = earned_make((unsigned)policy->budget_epoch, tick, smaller(there + smaller(amount, most), most));
		if (atomic_compare_exchange_weak_explicit(place, &seen, next, memory_order_acquire, memory_order_acquire))
			return true;
	}
	/* 64 others were faster. A deposit that is not in its slice expires at once. */
	return false;
}

bool earned_add(const struct map *map, struct state *state, const struct policy *policy, uint64_t at_ms, uint64_t amount)
{
	return add_to_tick(map, state, policy, tick_at(policy, at_ms), amount);
}

uint64_t earned_since(const struct policy *policy, uint64_t now_ms)
{
	uint64_t whole = now_ms / slice_ms(policy) + 1;
	uint64_t live = slices_live(policy);

	return whole <= live ? 0 : (whole - live) * slice_ms(policy);
}

uint64_t earned_floor(const struct map *map, struct state *state, const struct policy *policy, uint64_t from_ms, uint64_t until_ms,
                      uint64_t due)
{
	uint64_t since = larger(from_ms, earned_since(policy, until_ms));
	uint64_t left = due;
	uint64_t live = 0;

	/* From the newest slice back; the last one gets what rounding has left, unless older ones have expired. */
	while (until_ms > since) {
		uint64_t start = larger(since, (until_ms - 1) / slice_ms(policy) * slice_ms(policy));
		unsigned __int128 part = (unsigned __int128)policy->budget_per_second * (until_ms - start) / 1000;
		uint64_t amount = start == from_ms ? left : smaller((uint64_t)smaller((uint64_t)part, EARNED_MASK), left);
		/* Looked at again, for who was stopped before a slice that is full. */
		if (earned_add(map, state, policy, start, amount) && is_live_now(map, policy, tick_at(policy, start)))
			live += amount;
		left -= amount;
		until_ms = start;
	}
	return live;
}

void earned_renew(const struct map *map, struct state *state, const struct policy *policy)
{
	/* False only where we were stopped for a ttl after the clock was read. */
	for (int i = 0; i < TRIES; i++)
		if (earned_add(map, state, policy, clock_coarse_ms(map), policy->budget_capacity))
			return;
}

static uint64_t sum_at(const struct state *state, const struct policy *policy, uint64_t now)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < WINDOW_RING; i++) {
		uint64_t w = atomic_load_explicit(&state->earned[i], memory_order_acquire);
		if (earned_epoch(w) == (policy->budget_epoch & 3) && is_live(policy, earned_tick(w), now))
			sum += earned_amount(w);
	}
	return sum;
}

uint64_t earned_at(const struct state *state, const struct policy *policy, uint64_t now_ms)
{
	return sum_at(state, policy, tick_at(policy, now_ms));
}

uint64_t earned_live(const struct map *map, const struct state *state, const struct policy *policy)
{
	uint64_t now = tick_at(policy, clock_coarse_ms(map));
	uint64_t sum = 0;

	for (int i = 0; i < TRIES; i++) {
		uint64_t before = now;
		sum = sum_at(state, policy, before);
		now = tick_at(policy, clock_coarse_ms(map));
		if (now == before)
			break;
	}
	return sum;
}

void earned_clean(struct state *state, const struct policy *policy)
{
	for (unsigned i = 0; i < WINDOW_RING; i++) {
		uint64_t w = atomic_load_explicit(&state->earned[i], memory_order_relaxed);
		/* A failure: somebody has just replaced it. */
		if (earned_epoch(w) != (policy->budget_epoch & 3))
			atomic_compare_exchange_strong_explicit(&state->earned[i], &w, 0, memory_order_relaxed, memory_order_relaxed);
	}
}

static bool is_newer(uint64_t w, uint64_t than)
{
	if (earned_epoch(w) != earned_epoch(than))
		return than == 0 || ((earned_epoch(w) - earned_epoch(than)) & 3) == 1;
	uint64_t ticks = (earned_tick(w) - earned_tick(than)) & EARNED_TICK_MASK;
	return ticks == 0 ? earned_amount(w) > earned_amount(than) : ticks <= EARNED_TICK_MASK / 2;
}

/*
 * The larger amount wins, so what was earned in both segments in the same tenth, while the words moved, may be there once only. After the
 * tokens have moved, all deposits that are in them are in the old slices: so who carries again before it uses the new ones misses none.
 */
void earned_carry(const struct state *old, struct state *new)
{
	for (unsigned i = 0; i < WINDOW_RING; i++) {
		uint64_t w = atomic_load_explicit(&old->earned[i], memory_order_relaxed);
		uint64_t seen = atomic_load_explicit(&new->earned[i], memory_order_relaxed);
		for (int k = 0; k < TRIES && w != 0 && is_newer(w, seen); k++)
			if (atomic_compare_exchange_strong_explicit(&new->earned[i], &seen, w, memory_order_relaxed, memory_order_relaxed))
				break;
	}
}
