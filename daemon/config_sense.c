/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a connect timeout that is longer than the attempt, a slow rate without a word on what is slow: each value is in its
 * range, and together they are a guard that does not do what its author believes.
 *
 * An error is what contradicts itself. A warning is what works, but differently from how it reads; there are few, so that people read
 * them. What has no effect is mentioned only where the resource itself says it: the defaults are for resources of all kinds.
 */
#include "config_sense.h"

#include <string.h>

#include "config_value.h"

#define MS_NS UINT64_C(1000000)

static bool is_given(const struct draft *draft, enum key_id id)
{
	return draft_is_given(draft, id);
}

static bool is_own(const struct draft *draft, enum key_id id)
{
	return draft->own[id];
}

/* A value that was refused says nothing about the others. */
static bool are_good(const struct draft *draft, enum key_id a, enum key_id b)
{
	return !draft->bad[a] && !draft->bad[b];
}

/* The place to change: of two keys that of the resource, else that of the defaults. */
static uint32_t blame(const struct draft *draft, enum key_id a, enum key_id b)
{
	if (is_own(draft, a))
		return draft->from[a];
	if (is_own(draft, b))
		return draft->from[b];
	if (is_given(draft, a))
		return draft->from[a];
	return is_given(draft, b) ? draft->from[b] : draft->place;
}

static uint64_t value_of(const struct policy *policy, enum key_id id)
{
	uint64_t value;

	memcpy(&value, (const char *)policy + config_keys[id].offset, sizeof(value));
	return value;
}

/* Both are durations of one unit. True: it is so. */
static bool must_not_exceed(struct reader *reader, const struct draft *draft, const struct policy *policy, enum key_id less,
                            enum key_id more)
{
	char a[48], b[48], low[KEY_PATH_SIZE], high[KEY_PATH_SIZE];

	if (!are_good(draft, less, more) || value_of(policy, less) <= value_of(policy, more))
		return true;
	key_value_text(less, value_of(policy, less), a, sizeof(a));
	key_value_text(more, value_of(policy, more), b, sizeof(b));
	key_path(less, low);
	key_path(more, high);
	reader_error(reader, blame(draft, less, more), "%s (%s) is longer than %s (%s%s); make one of them fit", low, a, high, b,
	             is_given(draft, more) ? "" : " by default");
	return false;
}

static void no_effect(struct reader *reader, const struct draft *draft, enum key_id id, const char *without)
{
	if (is_own(draft, id))
		reader_warning(reader, draft->from[id], "has no effect %s", without);
}

/* ---- breaker ---- */

static void check_rules(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	bool good = are_good(draft, KEY_SLOW_RATE, KEY_SLOW_CALL);

	if (good && is_given(draft, KEY_SLOW_RATE) && !is_given(draft, KEY_SLOW_CALL))
		reader_error(reader, draft->from[KEY_SLOW_RATE],
		             "needs slow_call; say from when on a call is slow, as \"slow_call\": \"800ms\"");
	if (good && !is_given(draft, KEY_SLOW_RATE))
		no_effect(reader, draft, KEY_SLOW_CALL, "without slow_rate");
	if (policy->failure_rate_ppm == 0 && policy->slow_rate_ppm == 0 && are_good(draft, KEY_FAILURE_RATE, KEY_SLOW_RATE)) {
		no_effect(reader, draft, KEY_WINDOW, "without failure_rate or slow_rate");
		no_effect(reader, draft, KEY_MIN_CALLS, "without failure_rate or slow_rate");
	}
}

static void check_cooldown(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	bool grows = policy->cooldown_factor_ppm > VALUE_MILLION;

	if (!must_not_exceed(reader, draft, policy, KEY_COOLDOWN, KEY_COOLDOWN_MAX) ||
	    !are_good(draft, KEY_COOLDOWN_FACTOR, KEY_COOLDOWN_MAX))
		return;
	if (grows && !is_given(draft, KEY_COOLDOWN_MAX))
		reader_warning(reader, draft->from[KEY_COOLDOWN_FACTOR],
		               "without cooldown_max the cooldown grows up to 24h; say how long it may become");
	if (grows && is_given(draft, KEY_COOLDOWN_MAX) && policy->cooldown_max_ms == policy->cooldown_ms)
		no_effect(reader, draft, KEY_COOLDOWN_FACTOR, "where cooldown_max is the cooldown");
	if (!grows)
		no_effect(reader, draft, KEY_COOLDOWN_MAX, "while cooldown_factor is 1");
}

/* What breaker and timeout say about each other. */
static void check_against_timeout(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	uint64_t attempt_ms = policy->timeout_attempt_ms;

	if (attempt_ms == 0)
		return;
	if (are_good(draft, KEY_PROBE_TIMEOUT, KEY_ATTEMPT) && policy->probe_timeout_ms < attempt_ms)
		reader_warning(
		        reader, blame(draft, KEY_PROBE_TIMEOUT, KEY_ATTEMPT),
		        "breaker.probe_timeout is shorter than timeout.attempt: a probe may be given to somebody else while it still runs");
	if (policy->slow_rate_ppm > 0 && are_good(draft, KEY_SLOW_CALL, KEY_ATTEMPT) && policy->slow_call_ns >= attempt_ms * MS_NS)
		reader_warning(reader, blame(draft, KEY_SLOW_CALL, KEY_ATTEMPT),
		               "breaker.slow_call is not shorter than timeout.attempt: only calls that time out will be slow");
}

/* ---- the others ---- */

static void check_retry(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	if (policy->backoff != BACKOFF_NONE && are_good(draft, KEY_BACKOFF, KEY_BACKOFF))
		must_not_exceed(reader, draft, policy, KEY_BASE, KEY_CAP);
	if ((policy->flags & POLICY_BUDGET) != 0 && are_good(draft, KEY_RATIO, KEY_PER_SECOND) && policy->budget_ratio == 0 &&
	    policy->budget_per_second == 0)
		reader_warning(
		        reader, blame(draft, KEY_RATIO, KEY_PER_SECOND),
		        "with ratio 0 and per_second 0 nothing refills the budget: retries stop for good when the capacity is spent");
}

static void check_bulkhead(struct reader *reader, const struct draft *draft)
{
	if (!is_given(draft, KEY_LIMIT) && !draft->flawed)
		reader_key_error(reader, draft->block_place[BLOCK_BULKHEAD],
		                 "limit is missing; say how many calls may be in flight at once, as \"limit\": 80");
}

static void check_timeout(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	bool attempt = is_given(draft, KEY_ATTEMPT), connect = is_given(draft, KEY_CONNECT), total = is_given(draft, KEY_TOTAL);

	if (!attempt && !connect && !total && !draft->flawed)
		reader_warning(reader, draft->block_place[BLOCK_TIMEOUT], "has no effect without attempt, connect or total");
	if (connect && attempt)
		must_not_exceed(reader, draft, policy, KEY_CONNECT, KEY_ATTEMPT);
	if (connect && total)
		must_not_exceed(reader, draft, policy, KEY_CONNECT, KEY_TOTAL);
	if (attempt && total)
		must_not_exceed(reader, draft, policy, KEY_ATTEMPT, KEY_TOTAL);
}

static void check_rate(struct reader *reader, const struct draft *draft)
{
	if (!is_given(draft, KEY_RATE_PER_SECOND) && !draft->flawed)
		reader_key_error(reader, draft->block_place[BLOCK_RATE],
		                 "per_second is missing; say how many calls a second there may be, as \"per_second\": 500");
}

static bool guards_something(const struct draft *draft)
{
	for (enum block block = BLOCK_BREAKER; block < BLOCKS; block++) {
		if (block != BLOCK_BUDGET && draft_is_on(draft, block))
			return true;
	}
	return false;
}

void draft_check(struct reader *reader, const struct draft *draft)
{
	const struct policy policy = draft_policy(draft);

	if (draft_is_on(draft, BLOCK_BREAKER)) {
		check_rules(reader, draft, &policy);
		check_cooldown(reader, draft, &policy);
		check_against_timeout(reader, draft, &policy);
	}
	if (draft_is_on(draft, BLOCK_RETRY))
		check_retry(reader, draft, &policy);
	if (draft_is_on(draft, BLOCK_BULKHEAD))
		check_bulkhead(reader, draft);
	if (draft_is_on(draft, BLOCK_RATE))
		check_rate(reader, draft);
	if (draft_is_on(draft, BLOCK_TIMEOUT))
		check_timeout(reader, draft, &policy);
	if (!guards_something(draft) && !draft->flawed)
		reader_warning(reader, draft->place, "no block is on, so nothing guards this resource");
}
