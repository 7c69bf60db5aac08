/* SPDX-License-Identifier: MIT */
/*
 * resctl show: one resource in sentences, for whoever has to decide what to do about it. The policy comes last, with effective values
 * in the units of the configuration, so that it can be compared with the file.
 */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "line.h"
#include "policy_text.h"
#include "resctl.h"
#include "roster.h"
#include "snapshot_json.h"
#include "wall.h"
#include "why.h"

static const char doc[] =
        "All about one or several resources: state and why, override, window, permits by worker, retry budget, rate limit, throttle, "
        "latencies, counters, and the policy as it is in force."
        "\v"
        "Counters and latencies are since the segment was made. --json gives an array of resources as in resctl snapshot.\n"
        "\n"
        "Examples:\n"
        "  resctl show payments\n"
        "  resctl show payments ledger\n"
        "  resctl show --json payments | jq '.[0].counters'";

/* ---- state ---- */

static void print_state(const struct screen *screen, const struct inspect_resource *r, const struct history *history)
{
	struct line line = {.used = 0};

	if (part_mode_of(&r->policy, PART_BREAKER) == PART_OFF) {
		print_field(screen, "state", STYLE_PLAIN, "no breaker");
		return;
	}
	say(&line, "%s for %s", breaker_state_words(r), duration_text(r->now_ms - r->since_ms).s);
	if (r->reason != REASON_NONE)
		say(&line, ", because %s", reason_words(r->reason, history_find(history, r)).s);
	print_field(screen, "state", r->override.mode == OVERRIDE_NONE ? state_style(r) : STYLE_PLAIN, "%s", line.s);
	/* An override is obeyed in any mode. */
	if (part_mode_of(&r->policy, PART_BREAKER) == PART_SHADOW && r->override.mode == OVERRIDE_NONE)
		print_field(screen, "", STYLE_PLAIN, "in shadow mode it refuses nothing, and counts what it would have refused");
	if (r->breaker == TAG_OPEN && r->probe_due)
		print_field(screen, "", STYLE_PLAIN, "the cooldown is over: the next call is a probe");
	else if (r->breaker == TAG_OPEN)
		print_field(screen, "", STYLE_PLAIN, "the next probe is due in %s", duration_text(r->due_ms - r->now_ms).s);
	if (r->breaker == TAG_HALF_OPEN && r->policy.trial_failure_rate_ppm != 0)
		print_field(screen, "", STYLE_PLAIN,
		            "%u of %" PRIu64 " probe%s out; %u ok, %u failed; the verdict falls with %" PRIu64 " results", r->probes_out,
		            r->policy.probes, plural(r->policy.probes), r->trial_ok, r->trial_failed, r->policy.probes);
	else if (r->breaker == TAG_HALF_OPEN)
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

static void print_injection(const struct screen *screen, const struct map *map, const struct inspect_resource *r)
{
	const struct inspect_injection *i = &r->injection;

	if (!i->on)
		return;
	print_field(screen, "injected", STYLE_DOUBT, "%s for %s by %s: %s", injection_words(&i->what).s,
	            duration_text(r->now_ms - i->set_ms).s, user_text(i->uid).s, i->text[0] != '\0' ? i->text : "no reason given");
	print_field(screen, "", STYLE_PLAIN, "it ends by itself in %s, at %s; at once: resctl inject %s --stop",
	            duration_text(i->until_ms - r->now_ms).s, time_local_zone(wall_clock_ns(map, i->until_ms)).s, r->name);
}

static void print_window(const struct screen *screen, const struct inspect_resource *r)
{
	struct window_text window = window_words(&r->policy);
	struct line line = {.used = 0};

	if ((r->policy.flags & POLICY_BREAKER) == 0)
		return;
	if (r->window_calls == 0)
		say(&line, r->policy.window_calls != 0 ? "no calls counted yet, %s" : "no calls %s", window.s);
	else
		say(&line, "%s of %s calls failed (%s), %s slow, %s", count_text(r->window_failures).s, count_text(r->window_calls).s,
		    percent_text(r->window_failures, r->window_calls).s, count_text(r->window_slow).s, window.s);
	if (r->consecutive > 0)
		say(&line, "; %s failure%s in a row", count_text(r->consecutive).s, plural(r->consecutive));
	print_field(screen, "window", STYLE_PLAIN, "%s", line.s);
}

/* ---- counters ---- */

static bool has_prefix(const char *name, const char *prefix)
{
	return strncmp(name, prefix, strlen(prefix)) == 0;
}

static uint64_t prefix_sum(const struct resc_counters *c, const char *prefix)
{
	uint64_t sum = 0;

	for (unsigned i = 0; i < COUNTERS_SHOWN; i++)
		sum += has_prefix(counter_name(i), prefix) ? counter_value(c, i) : 0;
	return sum;
}

/* "refused: open 12, forced open 3": the counters with that prefix that are not 0. Nothing when there is none. */
static void say_prefix(struct line *line, const char *lead, const struct resc_counters *c, const char *prefix)
{
	const char *separator = lead;

	for (unsigned i = 0; i < COUNTERS_SHOWN; i++) {
		char name[64];

		if (!has_prefix(counter_name(i), prefix) || counter_value(c, i) == 0)
			continue;
		snprintf(name, sizeof(name), "%s", counter_name(i) + strlen(prefix));
		for (char *p = name; *p != '\0'; p++)
			if (*p == '_')
				*p = ' ';
		say(line, "%s%s %s", separator, name, count_text(counter_value(c, i)).s);
		separator = ", ";
	}
}

static void print_prefix(const struct screen *screen, const char *label, const char *lead, const struct resc_counters *c,
                         const char *prefix)
{
	struct line line = {.used = 0};

	say_prefix(&line, lead, c, prefix);
	if (line.used > 0)
		print_field(screen, label, STYLE_PLAIN, "%s", line.s);
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
		print_field(screen, "in flight", in_use >= r->limit ? STYLE_DOUBT : STYLE_PLAIN, "%u of %u permits in use%s", in_use,
		            r->limit,
		            part_mode_of(&r->policy, PART_BULKHEAD) == PART_SHADOW ? "; in shadow mode, more are admitted too" : "");
	if (r->waiting > 0)
		print_field(screen, "", STYLE_DOUBT, "%u call%s wait%s for a permit", r->waiting, plural(r->waiting),
		            r->waiting == 1 ? "s" : "");
	if ((r->policy.flags & POLICY_RETRY_CAP) != 0)
		print_field(screen, "", STYLE_PLAIN, "retries among them: %u; at most %s, or %s of the calls if that is more", r->retries,
		            count_text(r->policy.retries_floor).s, share_text(r->policy.retries_share_ppm).s);
	else if (r->retries > 0)
		print_field(screen, "", STYLE_PLAIN, "retries among them: %u", r->retries);
	if (r->limited && r->effective < r->limit)
		print_field(screen, "", STYLE_DOUBT, "only %u can be had now: holders of earlier permits are still inside", r->effective);
	print_holders(screen, roster);
}

static void print_retry(const struct screen *screen, const struct inspect_resource *r)
{
	const struct resc_counters *c = &r->counters;
	uint64_t refused = prefix_sum(c, "retry_");
	struct line line = {.used = 0};

	if (r->budgeted)
		print_field(screen, "retries", r->tokens < 1 ? STYLE_DOUBT : STYLE_PLAIN, "%s of %s tokens in the budget",
		            number_text(r->tokens, 2).s, number_text(r->capacity, 2).s);
	if (c->retries + refused == 0)
		return;
	say(&line, "%s granted, %s refused", count_text(c->retries).s, count_text(refused).s);
	if (refused > 0)
		say_prefix(&line, ": ", c, "retry_");
	print_field(screen, r->budgeted ? "" : "retries", STYLE_PLAIN, "%s", line.s);
}

static void print_rate(const struct screen *screen, const struct inspect_resource *r)
{
	if (!r->rated)
		return;
	print_field(screen, "rate limit", r->rate_tokens < 1 ? STYLE_DOUBT : STYLE_PLAIN,
	            "%s of %s calls could go at once; %s a second come back%s", number_text(r->rate_tokens, 1).s,
	            count_text(r->policy.rate_burst).s, number_text((double)r->policy.rate_per_second / (double)TOKEN, 6).s,
	            part_mode_of(&r->policy, PART_RATE) == PART_SHADOW ? "; in shadow mode, more are admitted too" : "");
}

static void print_throttle(const struct screen *screen, const struct inspect_resource *r)
{
	bool shadow = part_mode_of(&r->policy, PART_THROTTLE) == PART_SHADOW;
	struct text window = duration_setting(r->policy.throttle_window_ms);

	if (!r->throttled)
		return;
	if (r->throttle_requests == 0)
		print_field(screen, "throttle", STYLE_PLAIN, "no requests in the last %s", window.s);
	else
		print_field(screen, "throttle", r->throttle_ppm > 0 ? STYLE_DOUBT : STYLE_PLAIN,
		            "%s %s of the calls: %s of %s requests were accepted in the last %s", shadow ? "would refuse" : "refuses",
		            r->throttle_ppm > 0 ? percent_text(r->throttle_ppm, 1000000).s : "none", count_text(r->throttle_accepts).s,
		            count_text(r->throttle_requests).s, window.s);
}

/* ---- so far ---- */

static void print_calls(const struct screen *screen, const struct resc_counters *c)
{
	struct line line = {.used = 0};

	say(&line, "%s asked, %s admitted, %s refused", count_text(c->enters).s, count_text(c->admitted).s,
	    count_text(c->enters - c->admitted).s);
	if (c->waited > 0)
		say_also(&line, "%s %s admitted after waiting", count_text(c->waited).s, c->waited == 1 ? "was" : "were");
	print_field(screen, "calls", STYLE_PLAIN, "%s", line.s);
	print_prefix(screen, "", "refused: ", c, "refused_");
	print_prefix(screen, "", "guards in shadow mode would have refused: ", c, "would_");
	print_prefix(screen, "", "ended: ", c, "ended_");
	print_prefix(screen, "", "drew an injected fault: ", c, "injected_");
}

static void print_moves(const struct screen *screen, const struct resc_counters *c)
{
	const struct {
		const char *name;
		uint64_t count;
	} moves[] = {
	        {"opened", c->opened},
	        {"half-opened", c->half_opened},
	        {"closed", c->closed},
	        {"probes", c->probes},
	        {"slow calls", c->slow},
	        {"stale results", c->stale},
	        {"probes reclaimed", c->probes_reclaimed},
	        {"permits reclaimed", c->permits_reclaimed},
	        {"untracked calls", c->untracked},
	};
	struct line line = {.used = 0};

	for (size_t i = 0; i < sizeof(moves) / sizeof(moves[0]); i++)
		if (moves[i].count > 0)
			say(&line, "%s%s %s", line.used > 0 ? ", " : "", moves[i].name, count_text(moves[i].count).s);
	if (line.used > 0)
		print_field(screen, "so far", STYLE_PLAIN, "%s", line.s);
	print_prefix(screen, "fallbacks", "", c, "fallback_");
	print_prefix(screen, "keys", "", c, "once_");
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
	print_injection(screen, &ctl->map, r);
	print_state(screen, r, history);
	print_window(screen, r);
	print_permits(screen, &ctl->map, r, roster);
	print_retry(screen, r);
	print_rate(screen, r);
	print_throttle(screen, r);
	print_latency(screen, r);
	print_calls(screen, &r->counters);
	print_moves(screen, &r->counters);
	printf("\n  policy in force%s\n", r->policy.flags & POLICY_MADE ? ", made from a pattern; retired when it is idle" : "");
	print_policy(screen, &ctl->map, r);
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
