/* SPDX-License-Identifier: MIT */
/*
 * The rate limit.
 *
 * N workers with a limit each let N times as much through. This is one word, {kind, epoch, time}, that all of them change by CAS of the
 * exact value seen. The time is the theoretical arrival time of GCRA: when the bucket will be full again. Taking moves it on, its
 * distance from now is what is missing, and nobody has to refill anything. So a token is neither lost nor invented whatever runs at
 * once, idle time counts to the last fraction, no more than a full bucket is ever saved up, and a death at any step leaves at most one
 * take without a call.
 *
 * Rounding. A token's time is 4e15 / per_second quarters of a nanosecond, seldom a whole number. What is taken is rounded up, once an
 * operation whatever its cost, so the long-run rate is never above the limit. The depth (what a full bucket holds, as time) is what
 * `burst` single tokens take, rounding included, so that all of them are there at once; but always less than burst + 1 exact tokens.
 * From
 *
 *	sum of what was taken in any span <= depth + the span
 *
 * follows: in any second at most burst + rate. A depth of more than 4.5 years (a burst of hundreds at one token in days) is cut to that,
 * and a cost that is above it counts as above the burst. The word itself ends 9 years after the segment was made, which is not after the
 * boot.
 *
 * Waiting. Whoever may wait takes a time in the future: the word is then beyond now + depth by as much as the last of them has to wait.
 * They go in the order in which they took, and nobody has to wake them.
 *
 * Giving back. Where nobody has changed the word since, it becomes what it was. Otherwise the amount is subtracted, with two limits that
 * keep the promise above: what the bucket would have run over in the meantime is lost, and nothing comes back while somebody waits,
 * whose time was reckoned with ours. What was taken in another epoch, or before the word moved to a successor, does not come back.
 *
 * Another rate or burst. A policy has the epoch of these, and the numbers of the epoch before. Whoever touches a word of the epoch
 * before first converts it, by a CAS of its own: the share that is filled stays, and so do times that somebody waits for. Who finds
 * another epoch than its policy's reads the policy again first: it may be the policy that is old, because the caller was stopped. A word
 * that is neither of the policy's epoch nor of the one before was not touched for several changes, or is damaged, and is cut to what the
 * bucket can lack. A time further in the future than anybody may wait (a day, whatever a policy says: so no reload makes an honest time
 * look wrong) is damage as well: the bucket counts as empty.
 *
 * The word orders nothing else, so its accesses are relaxed. Succession moves it like the tokens of the budget: see move.h.
 */
#include "rate.h"

#include <errno.h>

#include "bounds.h"
#include "clock.h"
#include "failpoint.h"
#include "policy.h"
#include "words.h"

#define COLD __attribute__((cold, noinline))

#define UNITS_NS   UINT64_C(4)                     /* in a nanosecond */
#define UNITS_RATE (UNITS_NS * 1000000000 * TOKEN) /* in a second, by the millionths of per_second */
#define DEPTH_MOST (UINT64_C(1) << 59)
#define WAIT_MOST  (UNITS_NS * 86400 * 1000000000u) /* what policy_clamp allows */
#define TRIES      1000                             /* a CAS fails when somebody else's succeeded: so often in a row never happens */

/* ---- a policy, in the units of the word ---- */

/* The time of so many tokens, rounded up; anything above DEPTH_MOST where it is above. */
static uint64_t time_of_tokens(uint64_t tokens, uint64_t per_second)
{
	unsigned __int128 t = (unsigned __int128)tokens * UNITS_RATE + (per_second - 1);

	/* The usual case is spared the long division. */
	if (__builtin_expect(t >> 64 == 0, 1))
		return (uint64_t)t / per_second;
	t /= per_second;
	return t > DEPTH_MOST ? DEPTH_MOST + 1 : (uint64_t)t;
}

/* The rounding of a burst of single tokens could come to a whole token: the depth stays below that. */
COLD static uint64_t depth_of_many(uint64_t per_second, uint64_t burst, uint64_t token)
{
	unsigned __int128 singles = (unsigned __int128)burst * token;
	unsigned __int128 below = (unsigned __int128)(burst + 1) * UNITS_RATE / per_second - 1;
	unsigned __int128 depth = singles < below ? singles : below;

	return depth > DEPTH_MOST ? DEPTH_MOST : (uint64_t)depth;
}

struct rate_limit rate_limit_of(uint64_t per_second, uint64_t burst)
{
	struct rate_limit l = {.per_second = per_second == 0 ? 1 : per_second, .burst = burst == 0 ? 1 : burst};

	l.token = time_of_tokens(1, l.per_second);
	/* Each of them is rounded by less than one unit. */
	if (__builtin_expect(l.burst + 3 > l.token || __builtin_mul_overflow(l.burst, l.token, &l.depth), 0))
		l.depth = depth_of_many(l.per_second, l.burst, l.token);
	l.depth = smaller(l.depth, DEPTH_MOST);
	return l;
}

static uint64_t time_of(const struct map *map, uint64_t now_ns)
{
	uint64_t ns = now_ns <= map->created_ns ? 0 : now_ns - map->created_ns;

	return smaller(ns, RATE_TIME_MASK / UNITS_NS) * UNITS_NS;
}

/* ---- the word, as a policy sees it ---- */

static bool is_here(uint64_t w)
{
	return rate_kind(w) == WORD_LIVE || rate_kind(w) == WORD_PREPARED;
}

/* How far it is ahead of now. */
static uint64_t ahead_of(uint64_t w, uint64_t now)
{
	return rate_time(w) > now ? rate_time(w) - now : 0;
}

static unsigned epoch_of(const struct policy *policy)
{
	return (unsigned)policy->rate_epoch & 3;
}

/* How far it is ahead by this policy, after conversion and repair. */
static uint64_t ahead_by(uint64_t w, const struct policy *policy, const struct rate_limit *l, uint64_t now)
{
	unsigned behind = (epoch_of(policy) - rate_epoch(w)) & 3;
	bool before = behind == 1;
	struct rate_limit of = before ? rate_limit_of(policy->rate_previous_per_second, policy->rate_previous_burst) : *l;
	uint64_t ahead = ahead_of(w, now);

	if (ahead > of.depth + WAIT_MOST)
		return l->depth;
	if (behind == 0)
		return ahead;
	if (!before)
		return smaller(ahead, l->depth);
	if (ahead > of.depth)
		return l->depth + (ahead - of.depth);
	/* Rounded up: no conversion invents anything. */
	return (uint64_t)(((unsigned __int128)ahead * l->depth + of.depth - 1) / of.depth);
}

/* Neither to be converted nor to be repaired. */
static inline bool is_sound(uint64_t w, const struct policy *policy, const struct rate_limit *l, uint64_t now)
{
	return rate_epoch(w) == epoch_of(policy) && ahead_of(w, now) <= l->depth + WAIT_MOST;
}

/* What a caller knows. */
struct rate_look {
	const struct policy *policy;
	struct rate_limit limit;
	uint64_t now;
	uint64_t seen;
	struct policy fresh; /* filled when the caller's is old */
};

static struct rate_limit limit_by(const struct policy *policy)
{
	return rate_limit_of(policy->rate_per_second, policy->rate_burst);
}

/* The policy as it is now. */
static bool read_policy(const struct map *map, const struct state *state, struct rate_look *look)
{
	uint64_t sequence;

	if (policy_read(map, map_index(map, state), &look->fresh, &sequence) != 0)
		return false;
	look->policy = &look->fresh;
	look->limit = limit_by(&look->fresh);
	return true;
}

/*
 * The word is not sound: makes it so, or finds that the caller's policy or time is old (it was stopped), and looks again. A time that is
 * old would take honest times for damage, so the clock is read after the word.
 */
COLD static void mend(const struct map *map, struct state *state, struct rate_look *look)
{
	if (rate_epoch(look->seen) != epoch_of(look->policy))
		read_policy(map, state, look);
	look->now = time_of(map, clock_fine_ns(map));
	if (is_sound(look->seen, look->policy, &look->limit, look->now))
		return;
	uint64_t time = look->now + ahead_by(look->seen, look->policy, &look->limit, look->now);
	uint64_t next = rate_make(WORD_LIVE, epoch_of(look->policy), smaller(time, RATE_TIME_MASK));
	FAILPOINT("rate.mend");
	/* relaxed: the word is all there is to see. A failure: somebody else has mended it or has taken. */
	if (atomic_compare_exchange_strong_explicit(&state->rate, &look->seen, next, memory_order_relaxed, memory_order_relaxed))
		look->seen = next;
}

/* ---- what others call ---- */

/* One try, of a word that is sound. RESC_E_RATE; RESC_E_COST; 0: where the CAS succeeds, it is taken. */
static inline int reckon(const struct rate_look *look, uint32_t cost, uint64_t most_wait, struct rate_taken *taken, uint64_t *wait_ns)
{
	const struct rate_limit *l = &look->limit;
	uint64_t amount = cost == 1 ? l->token : time_of_tokens(cost, l->per_second);

	*wait_ns = 0;
	/* The depth is less than the time of burst + 1. */
	if (amount > l->depth)
		return RESC_E_COST;
	uint64_t after = look->now + ahead_of(look->seen, look->now) + amount;
	uint64_t wait = after - look->now > l->depth ? after - look->now - l->depth : 0;
	*wait_ns = (wait + UNITS_NS - 1) / UNITS_NS;
	if (wait > most_wait || after > RATE_TIME_MASK)
		return RESC_E_RATE;
	taken->before = rate_make(WORD_LIVE, epoch_of(look->policy), rate_time(look->seen));
	taken->after = rate_make(WORD_LIVE, epoch_of(look->policy), after);
	taken->amount = amount;
	taken->depth = l->depth;
	return 0;
}

int rate_take(const struct map *map, struct state *state, const struct policy *policy, uint32_t cost, uint64_t now_ns,
              uint64_t most_wait_ns, struct rate_taken *taken, uint64_t *wait_ns)
{
	const struct rate_limit limit = limit_by(policy);

	return rate_take_by(map, state, policy, &limit, cost, now_ns, most_wait_ns, taken, wait_ns);
}

int rate_take_by(const struct map *map, struct state *state, const struct policy *policy, const struct rate_limit *limit, uint32_t cost,
                 uint64_t now_ns, uint64_t most_wait_ns, struct rate_taken *taken, uint64_t *wait_ns)
{
	struct rate_look look;
	struct rate_taken take;
	uint64_t most_wait = smaller(most_wait_ns, WAIT_MOST / UNITS_NS) * UNITS_NS;

	*taken = (struct rate_taken){0, 0, 0, 0};
	*wait_ns = 0;
	look.policy = policy;
	look.limit = *limit;
	look.now = time_of(map, now_ns);
	look.seen = atomic_load_explicit(&state->rate, memory_order_relaxed);
	for (int i = 0; i < TRIES && is_here(look.seen); i++) {
		if (__builtin_expect(!is_sound(look.seen, look.policy, &look.limit, look.now), 0)) {
			mend(map, state, &look);
			continue;
		}
		int r = reckon(&look, cost == 0 ? 1 : cost, most_wait, &take, wait_ns);
		if (r != 0)
			return r;
		FAILPOINT("rate.take");
		if (atomic_compare_exchange_weak_explicit(&state->rate, &look.seen, take.after, memory_order_relaxed,
		                                          memory_order_relaxed)) {
			*taken = take;
			FAILPOINT("rate.taken");
			return 0;
		}
	}
	*wait_ns = 0;
	return -ESTALE;
}

/* Others have taken since. What can go back of the amount: see above. */
static uint64_t returnable(const struct rate_taken *t, uint64_t seen, uint64_t now)
{
	uint64_t began = rate_time(t->after) - t->amount;
	uint64_t run_over = now > began ? now - began : 0;

	if (!is_here(seen) || rate_epoch(seen) != rate_epoch(t->after) || ahead_of(seen, now) > t->depth || run_over >= t->amount)
		return 0;
	return smaller(t->amount - run_over, rate_time(seen));
}

void rate_give_back(const struct map *map, struct state *state, struct rate_taken *taken)
{
	struct rate_taken t = *taken;
	uint64_t seen = t.after;

	*taken = (struct rate_taken){0, 0, 0, 0};
	FAILPOINT("rate.giving_back");
	if (t.amount == 0 ||
	    atomic_compare_exchange_strong_explicit(&state->rate, &seen, t.before, memory_order_relaxed, memory_order_relaxed))
		return;
	uint64_t now = time_of(map, clock_fine_ns(map));
	for (int i = 0; i < TRIES; i++) {
		uint64_t back = returnable(&t, seen, now);
		if (back == 0 ||
		    atomic_compare_exchange_weak_explicit(&state->rate, &seen, seen - back, memory_order_relaxed, memory_order_relaxed))
			return;
	}
}

bool rate_is_possible(const struct map *map, const struct state *state, const struct policy *policy)
{
	const struct rate_limit limit = limit_by(policy);
	uint64_t w = atomic_load_explicit(&state->rate, memory_order_acquire);

	/* The clock after the word. */
	return !is_here(w) || rate_epoch(w) != epoch_of(policy) || is_sound(w, policy, &limit, time_of(map, clock_fine_ns(map)));
}

void rate_settle(const struct map *map, struct state *state)
{
	struct rate_look look;

	if (!read_policy(map, state, &look))
		return;
	look.now = time_of(map, clock_fine_ns(map));
	look.seen = atomic_load_explicit(&state->rate, memory_order_relaxed);
	for (int i = 0; i < TRIES && is_here(look.seen) && !is_sound(look.seen, look.policy, &look.limit, look.now); i++)
		mend(map, state, &look);
}

int rate_fill(struct state *state)
{
	uint64_t seen = atomic_load_explicit(&state->rate, memory_order_relaxed);

	/* Full is full in every epoch. */
	for (int i = 0; i < TRIES && is_here(seen); i++)
		if (atomic_compare_exchange_weak_explicit(&state->rate, &seen, rate_make(WORD_LIVE, rate_epoch(seen), 0),
		                                          memory_order_relaxed, memory_order_relaxed))
			return 0;
	return -ESTALE;
}

uint64_t rate_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ns)
{
	struct rate_limit l = limit_by(policy);
	uint64_t now = time_of(map, now_ns);
	uint64_t full = l.burst * TOKEN;
	uint64_t w = atomic_load_explicit(&state->rate, memory_order_relaxed);

	if (!is_here(w))
		return 0;
	uint64_t ahead = ahead_by(w, policy, &l, now);
	if (ahead == 0)
		return full;
	uint64_t left = ahead < l.depth ? l.depth - ahead : 0;
	unsigned __int128 there = (unsigned __int128)left * l.per_second / (UNITS_RATE / TOKEN);
	return there > full ? full : (uint64_t)there;
}
