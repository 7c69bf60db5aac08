/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a connect timeout that is longer than the attempt, a slow rate without a word on what is slow: each value is in its
 * range, and together they are a guard that does not do what its author believes.
 *
 * An error is what contradicts itself. A warning is what works, but differently from how it reads; there are few, so that people read
 * them. What has no effect is mentioned only where the resource itself says it: the defaults are for resources of all kinds.
 */
#include "config_sense.h"

#include <inttypes.h>
#include <string.h>

#include "config_value.h"

#define MS_NS             UINT64_C(1000000)
#define TTL_CAPACITY_MOST UINT64_C(1000000) /* the words that remember when tokens were earned hold no more: see budget.c */

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
	if (draft_is_given(draft, a))
		return draft->from[a];
	return draft_is_given(draft, b) ? draft->from[b] : draft->place;
}

static uint64_t value_of(const struct policy *policy, enum key_id id)
{
	uint64_t value;

	memcpy(&value, (const char *)policy + config_keys[id].offset, sizeof(value));
	return value;
}

static void value_texts(const struct policy *policy, enum key_id a, enum key_id b, char texts[2][48], char paths[2][KEY_PATH_SIZE])
{
	key_value_text(a, value_of(policy, a), texts[0], sizeof(texts[0]));
	key_value_text(b, value_of(policy, b), texts[1], sizeof(texts[1]));
	key_path(a, paths[0]);
	key_path(b, paths[1]);
}

/* Both are durations of one unit. True: it is so. */
static bool must_not_exceed(struct reader *reader, const struct draft *draft, const struct policy *policy, enum key_id less,
                            enum key_id more)
{
	char texts[2][48], paths[2][KEY_PATH_SIZE];

	if (!are_good(draft, less, more) || value_of(policy, less) <= value_of(policy, more))
		return true;
	value_texts(policy, less, more, texts, paths);
	reader_error(reader, blame(draft, less, more), "%s (%s) is longer than %s (%s%s); make one of them fit", paths[0], texts[0],
	             paths[1], texts[1], draft_is_given(draft, more) ? "" : " by default");
	return false;
}

/* The same as a warning that says what happens. Both have one unit. */
static void should_not_exceed(struct reader *reader, const struct draft *draft, const struct policy *policy, enum key_id less,
                              enum key_id more, const char *consequence)
{
	char texts[2][48], paths[2][KEY_PATH_SIZE];

	if (!are_good(draft, less, more) || value_of(policy, less) <= value_of(policy, more))
		return;
	value_texts(policy, less, more, texts, paths);
	reader_warning(reader, blame(draft, less, more), "%s (%s%s) is more than %s (%s%s): %s", paths[0], texts[0],
	               draft_is_given(draft, less) ? "" : " by default", paths[1], texts[1],
	               draft_is_given(draft, more) ? "" : " by default", consequence);
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

	if (good && draft_is_given(draft, KEY_SLOW_RATE) && !draft_is_given(draft, KEY_SLOW_CALL))
		reader_error(reader, draft->from[KEY_SLOW_RATE],
		             "needs slow_call; say from when on a call is slow, as \"slow_call\": \"800ms\"");
	if (good && !draft_is_given(draft, KEY_SLOW_RATE))
		no_effect(reader, draft, KEY_SLOW_CALL, "without slow_rate");
	if (policy->failure_rate_ppm == 0 && policy->slow_rate_ppm == 0 && are_good(draft, KEY_FAILURE_RATE, KEY_SLOW_RATE)) {
		no_effect(reader, draft, KEY_WINDOW, "without failure_rate or slow_rate");
		no_effect(reader, draft, KEY_MIN_CALLS, "without failure_rate or slow_rate");
	}
}

uint64_t calls_in_window(const struct policy *policy)
{
	/* At most 1e15 millionths of a call a second and 86400 s. */
	unsigned __int128 calls = (unsigned __int128)policy->rate_per_second * policy->window_ms / UINT64_C(1000000000);

	return (uint64_t)calls + policy->rate_burst;
}

/* Can there be as many calls in the window as a rate needs? */
static void check_window(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	uint64_t wanted = draft->policy.min_calls;

	if ((policy->failure_rate_ppm == 0 && policy->slow_rate_ppm == 0) || !are_good(draft, KEY_WINDOW, KEY_MIN_CALLS))
		return;
	if (policy->window_calls > 0) {
		if (wanted > policy->window_calls && draft_is_given(draft, KEY_MIN_CALLS))
			reader_warning(reader, blame(draft, KEY_MIN_CALLS, KEY_WINDOW),
			               "a window of %" PRIu64 " calls never holds min_calls (%" PRIu64 "): %" PRIu64 " is used instead",
			               policy->window_calls, wanted, policy->min_calls);
		return;
	}
	if ((policy->flags & (POLICY_RATE | POLICY_SHADOW_RATE)) != POLICY_RATE || !are_good(draft, KEY_RATE_PER_SECOND, KEY_BURST) ||
	    draft->bad[KEY_RATE_MODE] || !draft_is_given(draft, KEY_RATE_PER_SECOND) || calls_in_window(policy) >= wanted)
		return;
	reader_warning(reader, blame(draft, KEY_MIN_CALLS, KEY_WINDOW),
	               "the rate limit lets at most %" PRIu64 " calls into a window: min_calls (%" PRIu64
	               ") is never reached, and no rate opens the breaker",
	               calls_in_window(policy), wanted);
}

static void check_cooldown(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	bool grows = policy->cooldown_factor_ppm > VALUE_MILLION;

	if (!must_not_exceed(reader, draft, policy, KEY_COOLDOWN, KEY_COOLDOWN_MAX) ||
	    !are_good(draft, KEY_COOLDOWN_FACTOR, KEY_COOLDOWN_MAX))
		return;
	if (grows && !draft_is_given(draft, KEY_COOLDOWN_MAX))
		reader_warning(reader, draft->from[KEY_COOLDOWN_FACTOR],
		               "without cooldown_max the cooldown grows up to 24h; say how long it may become");
	if (grows && draft_is_given(draft, KEY_COOLDOWN_MAX) && policy->cooldown_max_ms == policy->cooldown_ms)
		no_effect(reader, draft, KEY_COOLDOWN_FACTOR, "where cooldown_max is the cooldown");
	if (!grows)
		no_effect(reader, draft, KEY_COOLDOWN_MAX, "while cooldown_factor is 1");
}

static void check_trial(struct reader *reader, const struct draft *draft)
{
	if (draft_is_given(draft, KEY_TRIAL_FAILURE_RATE) && draft_is_given(draft, KEY_SUCCESSES))
		reader_error(reader, blame(draft, KEY_TRIAL_FAILURE_RATE, KEY_SUCCESSES),
		             "with trial_failure_rate the verdict falls when all probes are in, with successes after so many; choose one "
		             "of them");
}

/* What breaker and timeout say about each other. */
static void check_against_timeout(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	uint64_t attempt_ms = policy->timeout_attempt_ms;
	enum key_id limit = policy->timeout_probe_ms > 0 ? KEY_PROBE : KEY_ATTEMPT;
	uint64_t probe_ms = value_of(policy, limit);

	if (probe_ms > 0 && are_good(draft, KEY_PROBE_TIMEOUT, limit) && policy->probe_timeout_ms < probe_ms)
		reader_warning(
		        reader, blame(draft, KEY_PROBE_TIMEOUT, limit),
		        "breaker.probe_timeout is shorter than timeout.%s: a probe may be given to somebody else while it still runs",
		        config_keys[limit].name);
	if (attempt_ms > 0 && policy->slow_rate_ppm > 0 && are_good(draft, KEY_SLOW_CALL, KEY_ATTEMPT) &&
	    policy->slow_call_ns >= attempt_ms * MS_NS)
		reader_warning(reader, blame(draft, KEY_SLOW_CALL, KEY_ATTEMPT),
		               "breaker.slow_call is not shorter than timeout.attempt: only calls that time out will be slow");
}

static void check_breaker(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	check_rules(reader, draft, policy);
	check_window(reader, draft, policy);
	check_cooldown(reader, draft, policy);
	check_trial(reader, draft);
	check_against_timeout(reader, draft, policy);
}

/* ---- retry ---- */

static void check_refill(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	if (!are_good(draft, KEY_RATIO, KEY_PER_SECOND) || policy->budget_ratio > 0)
		return;
	no_effect(reader, draft, KEY_TTL, "while ratio is 0: only what was put in by it expires");
	no_effect(reader, draft, KEY_DEPOSIT, "while ratio is 0");
	if (policy->budget_per_second == 0)
		reader_warning(
		        reader, blame(draft, KEY_RATIO, KEY_PER_SECOND),
		        "with ratio 0 and per_second 0 nothing refills the budget: retries stop for good when the capacity is spent");
}

static void check_tokens(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	if (policy->budget_ttl_ms > 0 && policy->budget_capacity > TTL_CAPACITY_MOST * VALUE_MILLION &&
	    are_good(draft, KEY_TTL, KEY_CAPACITY))
		reader_error(reader, blame(draft, KEY_TTL, KEY_CAPACITY),
		             "with ttl the capacity can be at most %" PRIu64 "; make it smaller, or leave ttl out", TTL_CAPACITY_MOST);
	if (policy->budget_threshold_ppm == VALUE_MILLION)
		reader_warning(reader, draft->from[KEY_THRESHOLD], "retries stop at a full budget already: there will be none");
	should_not_exceed(reader, draft, policy, KEY_COST, KEY_CAPACITY, "there will be no retries");
	check_refill(reader, draft, policy);
}

static void check_retry(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	if (policy->backoff != BACKOFF_NONE && are_good(draft, KEY_BACKOFF, KEY_BACKOFF))
		must_not_exceed(reader, draft, policy, KEY_BASE, KEY_CAP);
	if ((policy->flags & POLICY_BUDGET) != 0)
		check_tokens(reader, draft, policy);
	if ((policy->flags & POLICY_RETRY_CAP) != 0 && policy->retries_floor == 0 && policy->retries_share_ppm == 0 &&
	    are_good(draft, KEY_IN_FLIGHT_FLOOR, KEY_IN_FLIGHT_SHARE))
		reader_warning(reader, blame(draft, KEY_IN_FLIGHT_FLOOR, KEY_IN_FLIGHT_SHARE),
		               "with in_flight_floor 0 and in_flight_share 0 there will be no retries");
	if ((policy->flags & (POLICY_BUDGET | POLICY_RETRY_CAP)) == 0 && draft_mode(draft, BLOCK_RETRY) == MODE_SHADOW)
		no_effect(reader, draft, KEY_RETRY_MODE, "without a budget: nothing else refuses a retry");
}

/* ---- the others ---- */

static void check_priorities(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	static const char consequence[] = "the less important calls get in where the others do not";

	should_not_exceed(reader, draft, policy, KEY_LOW, KEY_NORMAL, consequence);
	should_not_exceed(reader, draft, policy, KEY_NORMAL, KEY_CRITICAL, consequence);
}

static void check_bulkhead(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	if (!draft_is_given(draft, KEY_LIMIT) && !draft->flawed)
		reader_key_error(reader, draft->block_place[BLOCK_BULKHEAD],
		                 "limit is missing; say how many calls may be in flight at once, as \"limit\": 80");
	if (policy->max_wait_ms == 0 && are_good(draft, KEY_MAX_WAIT, KEY_MAX_WAITING))
		no_effect(reader, draft, KEY_MAX_WAITING, "without max_wait: a full bulkhead refuses at once");
	check_priorities(reader, draft, policy);
}

static void check_rate(struct reader *reader, const struct draft *draft)
{
	if (!draft_is_given(draft, KEY_RATE_PER_SECOND) && !draft->flawed)
		reader_key_error(reader, draft->block_place[BLOCK_RATE],
		                 "per_second is missing; say how many calls a second there may be, as \"per_second\": 500");
}

/* Who waits longer than the whole request may take waits for nothing. */
static void check_waits(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	static const char consequence[] = "the deadline passes before the wait ends";

	if (draft_is_on(draft, BLOCK_BULKHEAD))
		should_not_exceed(reader, draft, policy, KEY_MAX_WAIT, KEY_TOTAL, consequence);
	if (draft_is_on(draft, BLOCK_RATE))
		should_not_exceed(reader, draft, policy, KEY_RATE_MAX_WAIT, KEY_TOTAL, consequence);
	if (!draft_is_on(draft, BLOCK_ONCE))
		return;
	should_not_exceed(reader, draft, policy, KEY_ONCE_MAX_WAIT, KEY_TOTAL, consequence);
	should_not_exceed(reader, draft, policy, KEY_TOTAL, KEY_ONCE_TTL, "a key may be forgotten while its request is still tried");
}

static void check_timeout(struct reader *reader, const struct draft *draft, const struct policy *policy)
{
	static const enum key_id order[][2] = {
	        {KEY_CONNECT, KEY_ATTEMPT}, {KEY_CONNECT, KEY_TOTAL}, {KEY_ATTEMPT, KEY_TOTAL}, {KEY_PROBE, KEY_TOTAL}};
	bool any = draft_is_given(draft, KEY_ATTEMPT) || draft_is_given(draft, KEY_CONNECT) || draft_is_given(draft, KEY_TOTAL);

	if (!any && !draft_is_given(draft, KEY_PROBE) && !draft->flawed)
		reader_warning(reader, draft->block_place[BLOCK_TIMEOUT], "has no effect without attempt, connect, total or probe");
	for (size_t i = 0; i < sizeof(order) / sizeof(order[0]); i++) {
		if (draft_is_given(draft, order[i][0]) && draft_is_given(draft, order[i][1]))
			must_not_exceed(reader, draft, policy, order[i][0], order[i][1]);
	}
	if (!draft_is_on(draft, BLOCK_BREAKER))
		no_effect(reader, draft, KEY_PROBE, "without a breaker: there are no probes");
	if (draft_is_given(draft, KEY_TOTAL))
		check_waits(reader, draft, policy);
}

/* Shadow mode of a whole resource is how people try out guards; that it also lets repeated work through is easily overlooked. */
static void check_once(struct reader *reader, const struct draft *draft)
{
	if (draft_mode(draft, BLOCK_RESOURCE) == MODE_SHADOW && !draft_is_given(draft, KEY_ONCE_MODE))
		reader_warning(reader, draft->block_place[BLOCK_ONCE],
		               "in shadow mode repeated keys are counted, and not held back; to hold them back, write \"mode\": "
		               "\"enforce\" in once");
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

	if (draft_is_on(draft, BLOCK_BREAKER))
		check_breaker(reader, draft, &policy);
	if (draft_is_on(draft, BLOCK_RETRY))
		check_retry(reader, draft, &policy);
	if (draft_is_on(draft, BLOCK_BULKHEAD))
		check_bulkhead(reader, draft, &policy);
	if (draft_is_on(draft, BLOCK_RATE))
		check_rate(reader, draft);
	if (draft_is_on(draft, BLOCK_TIMEOUT))
		check_timeout(reader, draft, &policy);
	if (draft_is_on(draft, BLOCK_ONCE))
		check_once(reader, draft);
	if (!guards_something(draft) && !draft->flawed)
		reader_warning(reader, draft->place, CONFIG_NOTHING_ON);
}
