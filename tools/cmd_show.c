/* SPDX-License-Identifier: MIT */
/*
 * resctl show: one resource in sentences, for whoever has to decide what to do about it. The policy comes last, with effective values
 * in the units of the configuration, so that it can be compared with the file.
 */
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "resctl.h"
#include "roster.h"
#include "snapshot_json.h"
#include "wall.h"
#include "why.h"

static const char doc[] =
        "All about one or several resources: state and why, override, window, permits by worker, retry budget, counters, latencies, and "
        "the "
        "policy as it is in force."
        "\v"
        "Counters and latencies are since the segment was made. --json gives an array of resources as in resctl snapshot.\n"
        "\n"
        "Examples:\n"
        "  resctl show payments\n"
        "  resctl show payments ledger\n"
        "  resctl show --json payments | jq '.[0].counters'";

/* ---- text that is put together ---- */

struct line {
	char s[1024];
	size_t used;
};

__attribute__((format(printf, 2, 3))) static void say(struct line *line, const char *format, ...)
{
	va_list args;

	if (line->used >= sizeof(line->s))
		return;
	va_start(args, format);
	line->used += (size_t)vsnprintf(line->s + line->used, sizeof(line->s) - line->used, format, args);
	va_end(args);
}

static const char *plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

/* ---- state ---- */

static void print_state(const struct screen *screen, const struct inspect_resource *r, const struct history *history)
{
	struct line line = {.used = 0};

	say(&line, "%s for %s", breaker_words(r->breaker), duration_text(r->now_ms - r->since_ms).s);
	if (r->reason != REASON_NONE)
		say(&line, ", because %s", reason_words(r->reason, history_find(history, r)).s);
	print_field(screen, "state", r->override.mode == OVERRIDE_NONE ? state_style(r) : STYLE_PLAIN, "%s", line.s);
	if (r->breaker == TAG_OPEN && r->probe_due)
		print_field(screen, "", STYLE_PLAIN, "the cooldown is over: the next call is a probe");
	else if (r->breaker == TAG_OPEN)
		print_field(screen, "", STYLE_PLAIN, "the next probe is due in %s", duration_text(r->due_ms - r->now_ms).s);
	if (r->breaker == TAG_HALF_OPEN)
		print_field(screen, "", STYLE_PLAIN, "%u of %" PRIu64 " probe%s out; %u ok, %u failed; %" PRIu64 " ok close%s it",
		            r->probes_out, r->policy.probes, plural(r->policy.probes), r->trial_ok, r->trial_failed, r->policy.successes,
		            r->policy.successes == 1 ? "s" : "");
	if (r->reopened > 0)
		print_field(screen, "", STYLE_PLAIN, "it has opened again %u time%s without closing in between", r->reopened,
		            plural(r->reopened));
}

static void print_override(const struct screen *screen, const struct map *map, const struct inspect_resource *r)
{
	static const char *const effects[] = {
	        "",
	        "every call is refused, also probes",
	        "the breaker admits every call, and still records",
	        "the breaker decides nothing and records nothing; the other guards stand",
	};
	const struct inspect_override *o = &r->override;

	print_field(screen, "override", state_style(r), "%s for %s by %s: %s", override_words(o->mode),
	            duration_text(r->now_ms - o->set_ms).s, user_text(o->uid).s, o->text[0] != '\0' ? o->text : "no reason given");
	print_field(screen, "", STYLE_PLAIN, "%s", effects[o->mode & 3]);
	if (o->until_ms == 0)
		print_field(screen, "", STYLE_PLAIN, "until it is released: resctl release %s", r->name);
	else
		print_field(screen, "", STYLE_PLAIN, "it ends by itself in %s, at %s", duration_text(o->until_ms - r->now_ms).s,
		            time_local_zone(wall_clock_ns(map, o->until_ms)).s);
}

static void print_window(const struct screen *screen, const struct inspect_resource *r)
{
	struct line line = {.used = 0};

	if ((r->policy.flags & POLICY_BREAKER) == 0)
		return;
	if (r->window_calls == 0)
		say(&line, "no calls in the last %s", duration_setting(r->policy.window_ms).s);
	else
		say(&line, "%s of %s calls failed (%s), %s slow, in the last %s", count_text(r->window_failures).s,
		    count_text(r->window_calls).s, percent_text(r->window_failures, r->window_calls).s, count_text(r->window_slow).s,
		    duration_setting(r->policy.window_ms).s);
	if (r->consecutive > 0)
		say(&line, "; %s failure%s in a row", count_text(r->consecutive).s, plural(r->consecutive));
	print_field(screen, "window", STYLE_PLAIN, "%s", line.s);
}

/* ---- permits, budget ---- */

static void print_holders(const struct screen *screen, const struct roster *roster)
{
	for (size_t i = 0; i < roster->held; i++) {
		const struct roster_worker *worker = roster_find(roster, roster->lives[i]);
		uint32_t n = roster->permits[i];

		if (worker == NULL || worker->seen.pid <= 0)
			print_field(screen, "", STYLE_PLAIN, "%u by worker %u", n, roster->lives[i]);
		else
			print_field(screen, "", worker->seen.alive ? STYLE_PLAIN : STYLE_BAD, "%u by worker %u (pid %d, %s%s%s)", n,
			            roster->lives[i], (int)worker->seen.pid, worker->seen.name,
			            worker->seen.same_namespace ? "" : ", in another pid namespace",
			            worker->seen.alive ? "" : ", dead, not reaped yet");
	}
}

static void print_permits(const struct screen *screen, const struct map *map, const struct inspect_resource *r, struct roster *roster)
{
	uint32_t in_use = roster_take(roster, map, r);

	if (!r->limited)
		print_field(screen, "in flight", STYLE_PLAIN, "%u call%s; no bulkhead limits them", in_use, plural(in_use));
	else
		print_field(screen, "in flight", in_use >= r->limit ? STYLE_DOUBT : STYLE_PLAIN, "%u of %u permits in use", in_use,
		            r->limit);
	if (r->limited && r->effective < r->limit)
		print_field(screen, "", STYLE_DOUBT, "only %u can be had now: holders of earlier permits are still inside", r->effective);
	print_holders(screen, roster);
}

static void print_retry(const struct screen *screen, const struct inspect_resource *r)
{
	const struct resc_counters *c = &r->counters;
	uint64_t refused = c->retry_attempts + c->retry_budget + c->retry_deadline + c->retry_not_retryable + c->retry_upstream;

	if (r->budgeted)
		print_field(screen, "retries", r->tokens < 1 ? STYLE_DOUBT : STYLE_PLAIN, "%s of %s tokens in the budget",
		            number_text(r->tokens, 2).s, number_text(r->capacity, 2).s);
	if (c->retries + refused == 0)
		return;
	print_field(screen, r->budgeted ? "" : "retries", STYLE_PLAIN,
	            "%s granted, %s refused: attempts used up %s, budget empty %s, deadline %s, not retryable %s, retried upstream %s",
	            count_text(c->retries).s, count_text(refused).s, count_text(c->retry_attempts).s, count_text(c->retry_budget).s,
	            count_text(c->retry_deadline).s, count_text(c->retry_not_retryable).s, count_text(c->retry_upstream).s);
}

/* ---- counters ---- */

/* "open 12, full 3": those that are not 0. */
static void say_counts(struct line *line, const char *const names[], const uint64_t counts[], size_t n)
{
	bool first = true;

	for (size_t i = 0; i < n; i++) {
		if (counts[i] == 0)
			continue;
		say(line, "%s%s %s", first ? "" : ", ", names[i], count_text(counts[i]).s);
		first = false;
	}
	if (first)
		say(line, "none");
}

static void print_calls(const struct screen *screen, const struct resc_counters *c)
{
	static const char *const refusals[] = {
#define X(NAME, name, text) #name,
	        RESC_REFUSALS(X)
#undef X
	};
	const uint64_t refused[] = {
#define X(NAME, name, text) c->refused_##name,
	        RESC_REFUSALS(X)
#undef X
	};
	static const char *const outcomes[] = {
#define X(NAME, name, text) #name,
	        RESC_OUTCOMES(X)
#undef X
	};
	const uint64_t ended[] = {
#define X(NAME, name, text) c->ended_##name,
	        RESC_OUTCOMES(X)
#undef X
	};
	struct line line = {.used = 0};

	say(&line, "%s asked, %s admitted, %s refused", count_text(c->enters).s, count_text(c->admitted).s,
	    count_text(c->enters - c->admitted).s);
	print_field(screen, "calls", STYLE_PLAIN, "%s", line.s);
	line = (struct line){.used = 0};
	say(&line, "refused: ");
	say_counts(&line, refusals, refused, sizeof(refused) / sizeof(refused[0]));
	print_field(screen, "", STYLE_PLAIN, "%s", line.s);
	line = (struct line){.used = 0};
	say(&line, "ended: ");
	say_counts(&line, outcomes, ended, sizeof(ended) / sizeof(ended[0]));
	print_field(screen, "", STYLE_PLAIN, "%s", line.s);
}

static void print_moves(const struct screen *screen, const struct resc_counters *c)
{
	static const char *const names[] = {"opened",           "half-opened",       "closed",
	                                    "probes",           "slow calls",        "stale results",
	                                    "probes reclaimed", "permits reclaimed", "untracked calls"};
	const uint64_t counts[] = {c->opened,           c->half_opened,       c->closed,   c->probes, c->slow, c->stale,
	                           c->probes_reclaimed, c->permits_reclaimed, c->untracked};
	static const char *const fallbacks[] = {
#define X(name, text) #name,
	        RESC_FALLBACKS(X)
#undef X
	};
	const uint64_t fell[] = {
#define X(name, text) c->fallback_##name,
	        RESC_FALLBACKS(X)
#undef X
	};
	struct line line = {.used = 0};

	say_counts(&line, names, counts, sizeof(counts) / sizeof(counts[0]));
	print_field(screen, "so far", STYLE_PLAIN, "%s", line.s);
	line = (struct line){.used = 0};
	say_counts(&line, fallbacks, fell, sizeof(fell) / sizeof(fell[0]));
	print_field(screen, "fallbacks", STYLE_PLAIN, "%s", line.s);
}

static void print_latency(const struct screen *screen, const struct inspect_resource *r)
{
	const struct inspect_latency *l = &r->latency;

	if ((r->policy.flags & POLICY_LATENCY) == 0 && l->count == 0)
		print_field(screen, "latency", STYLE_PLAIN, "not measured");
	else if (l->count == 0)
		print_field(screen, "latency", STYLE_PLAIN, "no call measured yet");
	else
		print_field(screen, "latency", STYLE_PLAIN, "p50 %s, p90 %s, p99 %s, p99.9 %s, mean %s, of %s calls",
		            latency_text(latency_quantile_us(l, 0.5)).s, latency_text(latency_quantile_us(l, 0.9)).s,
		            latency_text(latency_quantile_us(l, 0.99)).s, latency_text(latency_quantile_us(l, 0.999)).s,
		            latency_text(l->sum_us / l->count).s, count_text(l->count).s);
}

/* ---- policy ---- */

static void say_breaker(struct line *line, const struct policy *p)
{
	if (p->consecutive != 0)
		say(line, "consecutive %" PRIu64 ", ", p->consecutive);
	if (p->failure_rate_ppm != 0)
		say(line, "failure_rate %s, ", share_text(p->failure_rate_ppm).s);
	if (p->slow_rate_ppm != 0)
		say(line, "slow_rate %s, slow_call %s, ", share_text(p->slow_rate_ppm).s, duration_setting_ns(p->slow_call_ns).s);
	say(line, "window %s, min_calls %" PRIu64 ", cooldown %s", duration_setting(p->window_ms).s, p->min_calls,
	    duration_setting(p->cooldown_ms).s);
	if (p->cooldown_factor_ppm != 1000000)
		say(line, ", cooldown_factor %s, cooldown_max %s", number_text((double)p->cooldown_factor_ppm / 1e6, 6).s,
		    duration_setting(p->cooldown_max_ms).s);
	say(line, ", jitter %s, probes %" PRIu64 ", successes %" PRIu64 ", probe_timeout %s", share_text(p->jitter_ppm).s, p->probes,
	    p->successes, duration_setting(p->probe_timeout_ms).s);
}

static void say_retry(struct line *line, const struct policy *p)
{
	say(line, "attempts %" PRIu64 ", backoff %s", p->attempts, backoff_name(p->backoff));
	if (p->backoff != BACKOFF_NONE)
		say(line, ", base %s, cap %s, jitter %s", duration_setting_ns(p->base_ns).s, duration_setting_ns(p->cap_ns).s,
		    jitter_name(p->backoff_jitter));
}

static const char *timeout_words(uint64_t ms, struct text *t)
{
	if (ms == 0)
		return "none";
	*t = duration_setting(ms);
	return t->s;
}

static void print_policy(const struct screen *screen, const struct policy *p)
{
	struct line line = {.used = 0};
	struct text attempt, connect, total;

	printf("\n  policy in force\n");
	if (p->flags & POLICY_BREAKER)
		say_breaker(&line, p);
	print_field(screen, "breaker", STYLE_PLAIN, "%s", line.used > 0 ? line.s : "off");
	line = (struct line){.used = 0};
	if (p->flags & POLICY_RETRY)
		say_retry(&line, p);
	print_field(screen, "retry", STYLE_PLAIN, "%s", line.used > 0 ? line.s : "off");
	if (p->flags & POLICY_BUDGET)
		print_field(screen, "budget", STYLE_PLAIN, "ratio %s, capacity %s, per_second %s",
		            number_text((double)p->budget_ratio / 1e6, 6).s, number_text((double)p->budget_capacity / 1e6, 6).s,
		            number_text((double)p->budget_per_second / 1e6, 6).s);
	else
		print_field(screen, "budget", STYLE_PLAIN, "off");
	if (p->flags & POLICY_BULKHEAD)
		print_field(screen, "bulkhead", STYLE_PLAIN, "limit %" PRIu64, p->limit);
	else
		print_field(screen, "bulkhead", STYLE_PLAIN, "off");
	print_field(screen, "timeout", STYLE_PLAIN, "attempt %s, connect %s, total %s", timeout_words(p->timeout_attempt_ms, &attempt),
	            timeout_words(p->timeout_connect_ms, &connect), timeout_words(p->timeout_total_ms, &total));
	print_field(screen, "latency", STYLE_PLAIN, "%s", p->flags & POLICY_LATENCY ? "true" : "false");
}

/* ---- the command ---- */

static void print_resource(const struct resctl *ctl, const struct inspect_resource *r, struct roster *roster, const struct history *history)
{
	const struct screen *screen = &ctl->screen;
	char name[SEGMENT_NAME_SIZE];

	snprintf(name, sizeof(name), "%s", r->name);
	screen_clean(screen, name);
	printf("%s%s%s\n", style_on(screen, STYLE_STRONG), name, style_off(screen, STYLE_STRONG));
	if (r->override.mode != OVERRIDE_NONE)
		print_override(screen, &ctl->map, r);
	print_state(screen, r, history);
	print_window(screen, r);
	print_permits(screen, &ctl->map, r, roster);
	print_retry(screen, r);
	print_latency(screen, r);
	print_calls(screen, &r->counters);
	print_moves(screen, &r->counters);
	print_policy(screen, &r->policy);
}

static int print_all(const struct resctl *ctl, const uint32_t *indices, size_t count)
{
	struct inspect_resource resource;
	struct inspect_daemon daemon;
	struct history history;
	struct roster roster;

	if (roster_open(&roster, &ctl->map) != 0) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	history_read(&history, &ctl->map, SIZE_MAX);
	for (size_t i = 0; i < count; i++) {
		if (inspect_resource(&ctl->map, indices[i], &resource) != 0)
			continue;
		print_resource(ctl, &resource, &roster, &history);
		putchar('\n');
	}
	inspect_daemon(&ctl->map, &daemon);
	printf("%s\n", daemon_words(&daemon).s);
	history_free(&history);
	roster_close(&roster);
	return EXIT_DONE;
}

struct show {
	char **names;
	int count;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct show *show = state->input;

	switch (key) {
	case ARGP_KEY_ARG:
		(void)arg;
		show->names = &state->argv[state->next - 1];
		show->count = state->argc - (state->next - 1);
		state->next = state->argc;
		return 0;
	case ARGP_KEY_NO_ARGS:
		argp_error(state, "which resource? resctl list shows them");
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static int show_names(const struct resctl *ctl, const struct show *show)
{
	uint32_t *indices = calloc((size_t)show->count, sizeof(*indices));
	size_t found = 0;

	if (indices == NULL) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	for (int i = 0; i < show->count; i++) {
		int index = find_resource(ctl, show->names[i]);
		if (index >= 0)
			indices[found++] = (uint32_t)index;
	}
	int r = EXIT_DONE;
	if (found > 0)
		r = ctl->json ? print_json(ctl, resources_json(&ctl->map, indices, found)) : print_all(ctl, indices, found);
	free(indices);
	return found == (size_t)show->count ? r : EXIT_NOT_SO;
}

int cmd_show(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse, "NAME...", doc, NULL, NULL, NULL};
	struct show show = {0};

	command_parse(ctl, &argp, argc, argv, &show);
	int r = attach(ctl, MAP_READER);
	return r != 0 ? r : show_names(ctl, &show);
}
