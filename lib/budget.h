/* SPDX-License-Identifier: MIT */
/*
 * The retry budget: a token bucket for all workers of the host together. A success (or a request) deposits `ratio`, a retry
 * withdraws its cost, and a floor of `per_second` flows in by itself. See budget.c.
 */
#ifndef RESC_BUDGET_H
#define RESC_BUDGET_H

#include "map.h"
#include "words.h"

/*
 * A retry after that outcome (a time-out may cost more). Without a threshold: takes its cost where it is there. With one: takes the cost
 * in any case, down to 0, and the retry is granted where more than the threshold is left, as gRPC's retry throttling does (gRFC A6).
 * 0 granted; 1 not; -ESTALE the word has moved to the successor (or is not there yet), and nothing was taken.
 */
int budget_withdraw(const struct map *map, struct state *state, const struct policy *policy, enum resc_outcome outcome, uint64_t now_ms);
/* Then a deposit changes nothing, which is the usual case of a healthy host. (Where tokens expire, it would renew their life.) */
static inline bool budget_is_full(const struct state *state, const struct policy *policy)
{
	uint64_t full = tokens_make(WORD_LIVE, (unsigned)policy->budget_epoch, policy->budget_capacity);

	/* relaxed: as in budget.c. */
	return policy->budget_ttl_ms == 0 && atomic_load_explicit(&state->tokens, memory_order_relaxed) == full;
}
/* A success, or a request: as the policy says. 0; -ESTALE as above, and nothing was deposited. A full bucket is only read. */
int budget_deposit(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms);
/*
 * Pays the floor in by this policy until now, starts counting from here, and converts tokens that are still of the epoch before. For
 * rescd, before it writes another policy: so a new rate counts from this moment and not for the time before, and the share that is
 * filled is kept also where nobody has touched the budget since the last change of its capacity.
 */
void budget_settle(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms);
/* A full bucket, paid until now. For a record that nobody can look up. */
void budget_start(const struct map *map, struct state *state, const struct policy *policy, uint64_t now_ms);
/*
 * What stands beside the tokens, from a superseded segment to its successor: until when the floor was paid, and when tokens were earned.
 * Anyone, several at once, any number of times; before and after the tokens are moved.
 */
void budget_carry(const struct state *old, struct state *new);
/* Fills it, for an operator's reset. 0, or -ESTALE. */
int budget_fill(const struct map *map, struct state *state, const struct policy *policy);
/* Millionths of a token that are there now, the floor's share of this moment included. Writes nothing. */
uint64_t budget_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms);

#endif
