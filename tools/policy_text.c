/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a policy is a dozen numbers, and what people get wrong about them is how they work together. "min_calls 20" and
 * "failure_rate 50%" read as if ten failures would open the breaker; with 15 calls in the window they do not. So each block is printed
 * twice: with effective values in the units of the file, to be compared with it, and with what follows from them, in a sentence. Where the
 * numbers contradict each other, so that a guard can never act, a warning says so.
 *
 * The arithmetic is that of the library (breaker.c): a rate is reached at equal or above, with at least one failure.
 */
#include "policy_text.h"

#include <inttypes.h>
#include <stdio.h>

#include "config_sense.h"
#include "format.h"
#include "line.h"
#include "share.h"
#include "snapshot_json.h"

#define MILLION 1000000u

/* ---- arithmetic ---- */

/*
 * The failures (or slow calls) that a rate needs at least, and among how many calls: below min_calls nothing is decided.
 * 50 % with min_calls 20: 10 of 20.
 */
static uint64_t rate_least(uint64_t rate_ppm, uint64_t min_calls)
{
	uint64_t least = (rate_ppm * min_calls + MILLION - 1) / MILLION;

	return least > 0 ? least : 1;
}

/* The most calls that the window can hold, as far as the policy limits them: by its own length, or by the rate limit. UINT64_MAX: any. */
static uint64_t window_most(const struct policy *p)
{
	if (p->window_calls != 0)
		return p->window_calls;
	return part_mode_of(p, PART_RATE) == PART_ENFORCE ? calls_in_window(p) : UINT64_MAX;
}

/* ---- words ---- */

struct window_text window_words(const struct policy *p)
{
	struct window_text t;

	if (p->window_calls != 0)
		snprintf(t.s, sizeof(t.s), "of the last %s calls", count_text(p->window_calls).s);
	else
		snprintf(t.s, sizeof(t.s), "in the last %s", duration_setting(p->window_ms).s);
	return t;
}

/* "the 21st" */
static const char *ordinal(uint64_t n)
{
	if (n % 100 / 10 == 1)
		return "th";
	return n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

static struct text tokens_text(uint64_t millionths)
{
	return number_text((double)millionths / (double)TOKEN, 6);
}

static void print_part(const struct screen *screen, const struct policy *p, enum policy_part part,
                       void (*words)(struct line *line, const struct policy *p))
{
	struct line line = {.used = 0};

	if (part_mode_of(p, part) == PART_OFF)
		return;
	if (part_mode_of(p, part) == PART_SHADOW)
		say(&line, "in shadow mode, refuses nothing: ");
	words(&line, p);
	print_field(screen, part_name(part), part_mode_of(p, part) == PART_SHADOW ? STYLE_DOUBT : STYLE_PLAIN, "%s", line.s);
}

/* ---- breaker ---- */

static bool has_rate(const struct policy *p)
{
	return p->failure_rate_ppm != 0 || p->slow_rate_ppm != 0;
}

static void say_window(struct line *line, const struct policy *p)
{
	if (p->window_calls != 0)
		say(line, "window %" PRIu64 ", ", p->window_calls);
	else
		say(line, "window %s, ", duration_setting(p->window_ms).s);
	say(line, "min_calls %" PRIu64 ", ", p->min_calls);
}

static void say_breaker(struct line *line, const struct policy *p)
{
	if (p->consecutive != 0)
		say(line, "consecutive %" PRIu64 ", ", p->consecutive);
	if (p->failure_rate_ppm != 0)
		say(line, "failure_rate %s, ", share_text(p->failure_rate_ppm).s);
	if (p->slow_rate_ppm != 0)
		say(line, "slow_rate %s, slow_call %s, ", share_text(p->slow_rate_ppm).s, duration_setting_ns(p->slow_call_ns).s);
	if (has_rate(p)) /* nothing else looks at it */
		say_window(line, p);
	say(line, "cooldown %s", duration_setting(p->cooldown_ms).s);
	if (p->cooldown_factor_ppm != MILLION)
		say(line, ", cooldown_factor %s, cooldown_max %s", number_text((double)p->cooldown_factor_ppm / 1e6, 6).s,
		    duration_setting(p->cooldown_max_ms).s);
	say(line, ", jitter %s, probes %" PRIu64, share_text(p->jitter_ppm).s, p->probes);
	if (p->trial_failure_rate_ppm != 0)
		say(line, ", trial_failure_rate %s", share_text(p->trial_failure_rate_ppm).s);
	else
		say(line, ", successes %" PRIu64, p->successes);
	say(line, ", probe_timeout %s, retry_after_max %s", duration_setting(p->probe_timeout_ms).s,
	    duration_setting(p->retry_after_max_ms).s);
}

/* "opens when at least 20 calls in 10s were counted and 50% of them failed: the 10th failure of 20 calls at the earliest" */
static void print_rate(const struct screen *screen, const struct policy *p, const char *opens, uint64_t ppm, const char *how,
                       const char *what)
{
	uint64_t least = rate_least(ppm, p->min_calls);
	struct line line = {.used = 0};

	if (p->window_calls == 0)
		say(&line, "%s at least %s call%s in %s were counted and %s of them %s", opens, count_text(p->min_calls).s,
		    plural(p->min_calls), duration_setting(p->window_ms).s, share_text(ppm).s, how);
	else if (p->min_calls >= p->window_calls)
		say(&line, "%s %s of the last %s calls %s", opens, share_text(ppm).s, count_text(p->window_calls).s, how);
	else
		say(&line, "%s %s of the last %s calls %s, once at least %s %s counted", opens, share_text(ppm).s,
		    count_text(p->window_calls).s, how, count_text(p->min_calls).s, p->min_calls == 1 ? "was" : "were");
	print_field(screen, "", STYLE_PLAIN, "%s: the %s%s %s of %s calls at the earliest", line.s, count_text(least).s, ordinal(least),
	            what, count_text(p->min_calls).s);
}

static void print_opening(const struct screen *screen, const struct policy *p)
{
	const char *opens = "opens when";

	if (p->consecutive != 0) {
		print_field(screen, "", STYLE_PLAIN, "opens after %s failure%s in a row", count_text(p->consecutive).s,
		            plural(p->consecutive));
		opens = "or when";
	}
	if (p->failure_rate_ppm != 0) {
		print_rate(screen, p, opens, p->failure_rate_ppm, "failed", "failure");
		opens = "or when";
	}
	if (p->slow_rate_ppm != 0) {
		char how[64];
		snprintf(how, sizeof(how), "took longer than %s", duration_setting_ns(p->slow_call_ns).s);
		print_rate(screen, p, opens, p->slow_rate_ppm, how, "slow call");
	}
}

bool policy_is_blind(const struct policy *p, struct line *why)
{
	uint64_t most = window_most(p);

	if (part_mode_of(p, PART_BREAKER) == PART_OFF || !has_rate(p) || most >= p->min_calls)
		return false;
	if (p->window_calls != 0)
		say(why, "no rate can open it: min_calls is %s, and the window holds %s calls", count_text(p->min_calls).s,
		    count_text(most).s);
	else
		say(why, "no rate can open it: min_calls is %s, and the rate limit lets at most %s calls into %s",
		    count_text(p->min_calls).s, count_text(most).s, duration_setting(p->window_ms).s);
	return true;
}

static void print_unreachable(const struct screen *screen, const struct policy *p)
{
	struct line line = {.used = 0};

	if (policy_is_blind(p, &line))
		print_field(screen, "", STYLE_BAD, "warning: %s", line.s);
}

static void print_trial(const struct screen *screen, const struct policy *p)
{
	struct line line = {.used = 0};

	say(&line, "stays open for %s", duration_setting(p->cooldown_ms).s);
	if (p->jitter_ppm != 0)
		say(&line, " plus up to %s", share_text(p->jitter_ppm).s);
	if (p->cooldown_factor_ppm != MILLION)
		say(&line, ", each time in a row %s times longer, up to %s", number_text((double)p->cooldown_factor_ppm / 1e6, 6).s,
		    duration_setting(p->cooldown_max_ms).s);
	if (p->trial_failure_rate_ppm == 0) {
		say(&line, "; then %" PRIu64 " probe%s at a time: %" PRIu64 " ok close%s it, one failed%s opens it again", p->probes,
		    plural(p->probes), p->successes, p->successes == 1 ? "s" : "", p->slow_rate_ppm != 0 ? " or slow" : "");
	} else {
		say(&line, "; then %" PRIu64 " probe%s decide%s: it opens again when %s of them failed", p->probes, plural(p->probes),
		    p->probes == 1 ? "s" : "", share_text(p->trial_failure_rate_ppm).s);
		if (p->slow_rate_ppm != 0)
			say(&line, " or %s were slow", share_text(p->slow_rate_ppm).s);
		say(&line, ", else it closes");
	}
	print_field(screen, "", STYLE_PLAIN, "%s", line.s);
}

static void print_breaker(const struct screen *screen, const struct policy *p)
{
	print_part(screen, p, PART_BREAKER, say_breaker);
	if (part_mode_of(p, PART_BREAKER) == PART_OFF)
		return;
	print_opening(screen, p);
	print_unreachable(screen, p);
	print_trial(screen, p);
}

/* ---- the other blocks ---- */

static void say_retry_on(struct line *line, const struct policy *p)
{
	bool fail = (p->retry_on & 1u << RESC_FAIL) != 0, timeout = (p->retry_on & 1u << RESC_TIMEOUT) != 0;

	say(line, ", retry_on %s", fail && timeout ? "fail and timeout" : fail ? "fail" : timeout ? "timeout" : "nothing");
}

static void say_retry(struct line *line, const struct policy *p)
{
	say(line, "attempts %" PRIu64 ", backoff %s", p->attempts, backoff_name(p->backoff));
	if (p->backoff != BACKOFF_NONE)
		say(line, ", base %s, cap %s, jitter %s", duration_setting_ns(p->base_ns).s, duration_setting_ns(p->cap_ns).s,
		    jitter_name(p->backoff_jitter));
	say_retry_on(line, p);
}

static void say_bucket(struct line *line, const struct policy *p)
{
	say(line, "ratio %s, capacity %s, per_second %s, deposit %s", tokens_text(p->budget_ratio).s, tokens_text(p->budget_capacity).s,
	    tokens_text(p->budget_per_second).s, deposit_name(p->budget_deposit));
	if (p->budget_cost != TOKEN)
		say(line, ", cost %s", tokens_text(p->budget_cost).s);
	if (p->budget_timeout_cost != p->budget_cost)
		say(line, ", timeout_cost %s", tokens_text(p->budget_timeout_cost).s);
	if (p->budget_ttl_ms != 0)
		say(line, ", ttl %s", duration_setting(p->budget_ttl_ms).s);
	if (p->budget_threshold_ppm != 0)
		say(line, ", threshold %s", share_text(p->budget_threshold_ppm).s);
}

static void say_budget(struct line *line, const struct policy *p)
{
	bool bucket = (p->flags & POLICY_BUDGET) != 0;

	if (bucket)
		say_bucket(line, p);
	if ((p->flags & POLICY_RETRY_CAP) != 0)
		say(line, "%sin_flight_floor %" PRIu64 ", in_flight_share %s", bucket ? ", " : "", p->retries_floor,
		    tokens_text(p->retries_share_ppm).s);
}

static void say_bulkhead(struct line *line, const struct policy *p)
{
	if (p->limit_share_ppm != 0)
		say(line, "limit %s of the live workers", share_text(p->limit_share_ppm).s);
	else
		say(line, "limit %" PRIu64, p->limit);
	say(line, ", max_wait %s", duration_setting(p->max_wait_ms).s);
	if (p->max_wait_ms != 0)
		say(line, ", max_waiting %" PRIu64, p->max_waiting);
	if (p->critical_ppm != MILLION)
		say(line, ", critical %s", share_text(p->critical_ppm).s);
	if (p->normal_ppm != MILLION)
		say(line, ", normal %s", share_text(p->normal_ppm).s);
	if (p->low_ppm != MILLION)
		say(line, ", low %s", share_text(p->low_ppm).s);
	if (p->retry_after_ms != 0)
		say(line, ", retry_after %s", duration_setting(p->retry_after_ms).s);
}

static void say_rate(struct line *line, const struct policy *p)
{
	say(line, "per_second %s, burst %" PRIu64 ", max_wait %s", tokens_text(p->rate_per_second).s, p->rate_burst,
	    duration_setting(p->rate_max_wait_ms).s);
}

static void say_throttle(struct line *line, const struct policy *p)
{
	say(line, "k %s, window %s", tokens_text(p->throttle_k_ppm).s, duration_setting(p->throttle_window_ms).s);
}

static void say_timeout(struct line *line, const struct policy *p)
{
	const struct {
		const char *name;
		uint64_t ms;
	} limits[] = {{"attempt", p->timeout_attempt_ms},
	              {"connect", p->timeout_connect_ms},
	              {"total", p->timeout_total_ms},
	              {"probe", p->timeout_probe_ms}};

	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
		say(line, "%s%s %s", i > 0 ? ", " : "", limits[i].name, limits[i].ms == 0 ? "none" : duration_setting(limits[i].ms).s);
}

static void say_once(struct line *line, const struct policy *p)
{
	say(line, "ttl %s, max_wait %s, on_death %s", duration_setting(p->once_ttl_ms).s, duration_setting(p->once_max_wait_ms).s,
	    on_death_name(p->once_on_death));
}

/* At least one: or calls of that priority would never come in. */
static void print_priority(const struct screen *screen, const char *name, uint64_t ppm, uint64_t limit)
{
	uint64_t most = limit * ppm / MILLION;

	if (ppm < MILLION)
		print_field(screen, "", STYLE_PLAIN, "%s priority is refused when %" PRIu64 " of the %" PRIu64 " %s in use", name,
		            most > 1 ? most : 1, limit, most > 1 ? "are" : "is");
}

static void print_shares(const struct screen *screen, const struct map *map, const struct inspect_resource *r)
{
	const struct policy *p = &r->policy;
	unsigned workers = share_workers(map);

	if (!r->limited)
		return;
	if (p->limit_share_ppm != 0)
		print_field(screen, "", STYLE_PLAIN, "that is %u with %u live worker%s", r->limit, workers, plural(workers));
	print_priority(screen, "critical", p->critical_ppm, r->limit);
	print_priority(screen, "normal", p->normal_ppm, r->limit);
	print_priority(screen, "low", p->low_ppm, r->limit);
}

static void print_off(const struct screen *screen, const struct policy *p)
{
	struct line line = {.used = 0};

	for (enum policy_part part = 0; part < PARTS; part++)
		if (part_mode_of(p, part) == PART_OFF)
			say(&line, "%s%s", line.used > 0 ? ", " : "", part_name(part));
	if (line.used > 0)
		print_field(screen, "off", STYLE_FAINT, "%s", line.s);
}

void print_policy(const struct screen *screen, const struct map *map, const struct inspect_resource *r)
{
	const struct policy *p = &r->policy;

	print_breaker(screen, p);
	print_part(screen, p, PART_RETRY, say_retry);
	print_part(screen, p, PART_BUDGET, say_budget);
	print_part(screen, p, PART_BULKHEAD, say_bulkhead);
	print_shares(screen, map, r);
	print_part(screen, p, PART_RATE, say_rate);
	print_part(screen, p, PART_THROTTLE, say_throttle);
	print_part(screen, p, PART_TIMEOUT, say_timeout);
	print_part(screen, p, PART_ONCE, say_once);
	print_off(screen, p);
	print_field(screen, "latency", STYLE_PLAIN, "%s", p->flags & POLICY_LATENCY ? "true" : "false");
	print_field(screen, "injection", STYLE_PLAIN, "%s", p->flags & POLICY_INJECTION ? "true" : "false");
}
