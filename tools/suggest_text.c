/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a suggestion that nobody can check is an opinion. So each number stands beside what it was worked out from, a share
 * beside what it is at least and at most, and what is not known is said in words, with what to do to know it.
 */
#include "suggest_text.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "format.h"
#include "line.h"

/* ---- latency ---- */

static bool is_measuring(const struct suggest_facts *facts)
{
	return (facts->policy.flags & POLICY_LATENCY) != 0;
}

static void say_quantile(struct line *line, const char *name, double us, bool is_least)
{
	if (us > 0)
		say(line, "%s%s %s%s", line->used > 0 ? ", " : "", name, is_least ? "at least " : "", latency_fine_text(us).s);
}

static void print_latency(const struct screen *screen, const struct suggest_facts *facts, const struct suggest_timeouts *t)
{
	struct line line = {.used = 0};

	if (t->measured == 0 && !is_measuring(facts)) {
		print_field(screen, "latency", STYLE_DOUBT, "not measured: write \"latency\": true, reload, and ask again after %s calls",
		            count_text(SUGGEST_P999_CALLS).s);
		return;
	}
	if (t->measured == 0) {
		print_field(screen, "latency", STYLE_DOUBT, "no call has ended %s, so there is nothing to work out a timeout from",
		            facts->only_watched ? "while it watched" : "yet");
		return;
	}
	say_quantile(&line, "p50", t->p50_us, t->p50_is_least);
	say_quantile(&line, "p99", t->p99_us, t->p99_is_least);
	say_quantile(&line, "p99.9", t->p999_us, t->p999_is_least);
	print_field(screen, "latency", STYLE_PLAIN, "%s, of %s call%s measured %s", line.s, count_text(t->measured).s, plural(t->measured),
	            facts->only_watched ? "while it watched" : "since the segment was made");
	if (t->measured < SUGGEST_P99_CALLS)
		print_field(screen, "", STYLE_DOUBT, "too few for a p99, which needs %u, and for a p99.9, which needs %s",
		            SUGGEST_P99_CALLS, count_text(SUGGEST_P999_CALLS).s);
	else if (t->measured < SUGGEST_P999_CALLS)
		print_field(screen, "", STYLE_DOUBT, "too few for a p99.9, which needs %s", count_text(SUGGEST_P999_CALLS).s);
	if (!is_measuring(facts) && facts->policy.slow_rate_ppm == 0)
		print_field(screen, "", STYLE_DOUBT, "\"latency\" is false now: these are from before");
}

static const char *were(uint64_t count)
{
	return count == 1 ? "was" : "were";
}

/* What the histogram cannot tell apart, or does not know. */
static void print_doubts(const struct screen *screen, const struct suggest_timeouts *t)
{
	if (t->failed > 0)
		print_field(
		        screen, "", STYLE_DOUBT,
		        "%s of them failed or %s given up, and are among these times too: the shares below have a range where that matters",
		        count_text(t->failed).s, were(t->failed));
	if (t->injected > 0)
		print_field(screen, "", STYLE_DOUBT,
		            "at least %s of them failed or waited because an operator injected it: ask with --only-watched "
		            "when nothing is injected",
		            count_text(t->injected).s);
	if (t->timed_out == 0)
		return;
	if (t->cut_at_ms > 0)
		print_field(screen, "", STYLE_DOUBT,
		            "%s of them %s cut off, at %s today: what they would have taken is not known, and a longer timeout "
		            "may cut off as many",
		            count_text(t->timed_out).s, were(t->timed_out), duration_setting(t->cut_at_ms).s);
	else
		print_field(screen, "", STYLE_DOUBT,
		            "%s of them %s cut off by other timeouts than today's: what they would have taken is not known",
		            count_text(t->timed_out).s, were(t->timed_out));
}

/* ---- timeouts ---- */

static const struct column columns[] = {
        {"  TIMEOUT", true, false, 0}, {"CUTS OFF", true, false, 0}, {"BETWEEN", false, false, 0}, {"WHY", false, true, 0}};

static void add_range(struct table *table, const struct suggest_share *cut)
{
	struct text least = fine_percent_text(cut->least), most = fine_percent_text(cut->most);

	table_add(table, STYLE_PLAIN, "%s", fine_percent_text(cut->likely).s);
	if (strcmp(least.s, most.s) == 0)
		table_add(table, STYLE_FAINT, "-");
	else
		table_add(table, STYLE_FAINT, "%s and %s", least.s, most.s);
}

static void add_timeout(struct table *table, const struct suggest_timeout *timeout, bool recommended)
{
	struct line why = {.used = 0};

	if (recommended)
		say(&why, "recommended");
	for (unsigned i = 0; i < SUGGEST_WHY_COUNT; i++)
		if ((timeout->why & 1u << i) != 0)
			say_also(&why, "%s", suggest_why_text(i));
	table_add(table, recommended ? STYLE_STRONG : STYLE_PLAIN, "%s", duration_setting(timeout->ms).s);
	add_range(table, &timeout->cut);
	table_add(table, recommended ? STYLE_STRONG : STYLE_PLAIN, "%s", why.s);
}

static bool print_candidates(const struct screen *screen, const struct suggest_timeouts *t)
{
	struct table *table = table_new(screen, columns, sizeof(columns) / sizeof(columns[0]));
	bool complete;

	if (table == NULL)
		return false;
	for (size_t i = 0; i < t->count; i++)
		add_timeout(table, &t->list[i], (int)i == t->recommended);
	putchar('\n');
	complete = table_print(table, stdout);
	putchar('\n');
	table_free(table);
	return complete;
}

/* How many calls would be inside for nothing where some hang. */
static void say_hanging(struct line *line, const struct suggest_facts *facts, double rate, uint64_t ms)
{
	double held = rate * 0.01 * (double)ms / 1000;

	if (held >= 0.1)
		say(line, "; if 1%% of the %s calls a second hung, %s would be inside at once (live workers: %u)", rate_text(rate).s,
		    rate_text(held).s, facts->workers);
}

static void print_timeout(const struct screen *screen, const struct suggest_facts *facts, const struct suggest_timeouts *t, double rate)
{
	struct line line = {.used = 0};

	if (t->recommended >= 0) {
		const struct suggest_timeout *best = &t->list[t->recommended];

		say(&line, "\"attempt\": \"%s\" cuts off %s of healthy calls", duration_setting(best->ms).s,
		    fine_percent_text(best->cut.likely).s);
		say_hanging(&line, facts, rate, best->ms);
	} else if (fmax(t->p99_us, t->p999_us) >= SUGGEST_LONGEST_US) {
		say(&line, "none can be recommended: too many calls took longer than %s, and how much longer is not measured",
		    latency_fine_text(SUGGEST_LONGEST_US).s);
	} else if ((t->p99_is_least || t->p999_is_least) && t->delayed > 0 && t->delayed >= t->timed_out) {
		say(&line, "none can be recommended: too many calls were cut off, perhaps all by what an operator injected");
	} else if (t->p99_is_least || t->p999_is_least) {
		say(&line,
		    "none can be recommended: too many calls were cut off. Raise the timeout, or put it in shadow mode, and "
		    "ask again with --only-watched, which leaves these out, for some %s calls",
		    count_text(SUGGEST_P999_CALLS).s);
	} else {
		say(&line, "none can be recommended yet: too few calls are measured");
	}
	print_field(screen, "timeout", t->recommended >= 0 ? STYLE_STRONG : STYLE_DOUBT, "%s", line.s);
}

/* ---- calls at once ---- */

static void print_spread(const struct screen *screen, const char *label, const struct suggest_spread *s)
{
	if (s->most > 0)
		print_field(screen, label, STYLE_PLAIN, "p50 %u, p99 %u, p99.9 %u, most %u", s->p50, s->p99, s->p999, s->most);
}

static void print_load(const struct screen *screen, const struct suggest_facts *facts, const struct suggest_limit *l)
{
	const struct suggest_load *load = &facts->load;
	struct line line = {.used = 0};

	if (load->watched)
		print_field(screen, "watched", STYLE_PLAIN, "for %s: %u looks at the calls inside%s",
		            duration_text((uint64_t)(load->seconds * 1000 + 0.5)).s, load->in_flight.samples,
		            load->in_flight.most == 0 ? "; there were none" : "");
	print_spread(screen, "inside", &load->in_flight);
	print_spread(screen, "waiting", &load->waiting);
	print_spread(screen, "retries", &load->retries);
	if (l->rate <= 0)
		return;
	say(&line, "%s calls a second%s", rate_text(l->rate).s, load->watched ? "" : ", on average since the segment was made");
	if (l->mean_us > 0)
		say(&line, ", %s each: %s inside by Little's law", latency_fine_text(l->mean_us).s, number_text(l->inside, 2).s);
	if (l->p99_us > 0)
		say(&line, ", %s where each takes as long as p99", number_text(l->inside_p99, 2).s);
	print_field(screen, "load", STYLE_PLAIN, "%s", line.s);
}

static void print_limit(const struct screen *screen, const struct suggest_facts *facts, const struct suggest_limit *l)
{
	uint32_t workers = facts->workers;

	if (l->limit == 0) {
		print_field(screen, "limit", STYLE_DOUBT, "none can be recommended without calls: watch at a busy time, with --watch");
		return;
	}
	print_field(screen, "limit", STYLE_STRONG,
	            "\"limit\": %" PRIu32 " is half as much again as was inside, or the rate times p99, whichever is more", l->limit);
	if (!facts->load.watched)
		print_field(screen, "", STYLE_DOUBT,
		            "this is from averages, which know nothing of bursts: watch at a busy time, with --watch");
	else if (facts->load.asked < SUGGEST_P99_CALLS)
		print_field(screen, "", STYLE_DOUBT,
		            "%s call%s came in while it watched, which is few: watch longer, or at a busy time, with --watch",
		            count_text(facts->load.asked).s, plural(facts->load.asked));
	if (l->held_down)
		print_field(screen, "", STYLE_DOUBT,
		            "today's limit of %" PRIu32 " was reached: without it there might have been more inside", facts->limit);
	if (workers > 0 && l->limit >= workers)
		print_field(screen, "", STYLE_DOUBT,
		            "there %s %" PRIu32 " live worker%s: where each has one call at a time, a limit of %" PRIu32
		            " or more never refuses anything%s",
		            workers == 1 ? "is" : "are", workers, plural(workers), workers,
		            workers == 1 ? "" : ". Whoever wants workers left over when this dependency hangs has to choose less");
	else if (workers > 0)
		print_field(screen, "", STYLE_PLAIN, "that is %s of the %" PRIu32 " live workers: the others stay free when it hangs",
		            percent_text(l->limit, workers).s, workers);
}

/* ---- notes ---- */

static void print_notes(const struct screen *screen, const struct suggest_facts *facts)
{
	struct suggest_note notes[SUGGEST_NOTE_COUNT];
	size_t count = suggest_notes(facts, notes);

	if (count == 0)
		print_field(screen, "settings", STYLE_PLAIN, "nothing in today's policy contradicts this");
	for (size_t i = 0; i < count; i++)
		print_field(screen, i == 0 ? "settings" : "", STYLE_BAD, "%s%s", notes[i].shadow ? "in shadow mode: " : "", notes[i].text);
}

bool suggest_print(const struct screen *screen, const char *name, const struct suggest_facts *facts)
{
	char title[SEGMENT_NAME_SIZE];
	struct suggest_timeouts timeouts;
	struct suggest_limit limit;
	bool complete = true;

	suggest_timeouts(facts, &timeouts);
	suggest_limit(facts, &limit);
	snprintf(title, sizeof(title), "%s", name);
	screen_clean(screen, title);
	printf("%s%s%s\n", style_on(screen, STYLE_STRONG), title, style_off(screen, STYLE_STRONG));
	print_latency(screen, facts, &timeouts);
	print_doubts(screen, &timeouts);
	if (timeouts.measured > 0) {
		complete = print_candidates(screen, &timeouts);
		print_timeout(screen, facts, &timeouts, limit.rate);
	}
	print_load(screen, facts, &limit);
	print_limit(screen, facts, &limit);
	print_notes(screen, facts);
	return complete;
}

/* ---- JSON ---- */

static json_t *integer(uint64_t n)
{
	return json_integer(n > INT64_MAX ? INT64_MAX : (json_int_t)n);
}

static json_t *integer_if(bool there, uint64_t n)
{
	return there ? integer(n) : json_null();
}

static json_t *real_if(bool there, double value)
{
	return there && isfinite(value) ? json_real(value) : json_null();
}

static json_t *whys_json(unsigned why)
{
	json_t *array = json_array();

	for (unsigned i = 0; i < SUGGEST_WHY_COUNT; i++)
		if ((why & 1u << i) != 0)
			json_array_append_new(array, json_string(suggest_why_name(i)));
	return array;
}

static json_t *candidates_json(const struct suggest_timeouts *t)
{
	json_t *array = json_array();

	for (size_t i = 0; i < t->count; i++) {
		const struct suggest_timeout *c = &t->list[i];

		json_array_append_new(array, json_pack("{s:o, s:o, s:f, s:f, s:f, s:b}", "ms", integer(c->ms), "why", whys_json(c->why),
		                                       "cuts_off", c->cut.likely, "cuts_off_least", c->cut.least, "cuts_off_most",
		                                       c->cut.most, "recommended", (int)i == t->recommended));
	}
	return array;
}

static json_t *latency_json(const struct suggest_facts *facts, const struct suggest_timeouts *t)
{
	return json_pack("{s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:b, s:b}", "only_watched", facts->only_watched,
	                 "measuring", is_measuring(facts), "measured", integer(t->measured), "not_healthy", integer(t->not_healthy),
	                 "injected", integer(t->injected), "timed_out", integer(t->timed_out), "cut_off_at_ms",
	                 integer_if(t->cut_at_ms > 0, t->cut_at_ms), "p50_us", real_if(t->p50_us > 0, t->p50_us), "p99_us",
	                 real_if(t->p99_us > 0, t->p99_us), "p999_us", real_if(t->p999_us > 0, t->p999_us), "p50_is_least", t->p50_is_least,
	                 "p99_is_least", t->p99_is_least, "p999_is_least", t->p999_is_least);
}

static json_t *spread_json(const struct suggest_spread *s)
{
	if (s->samples == 0)
		return json_null();
	return json_pack("{s:o, s:o, s:o, s:o}", "p50", integer(s->p50), "p99", integer(s->p99), "p999", integer(s->p999), "most",
	                 integer(s->most));
}

static json_t *load_json(const struct suggest_facts *facts, const struct suggest_limit *l)
{
	const struct suggest_load *load = &facts->load;
	bool rate = load->seconds > 0;

	return json_pack("{s:b, s:f, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "watched", load->watched, "seconds", load->seconds,
	                 "samples", integer(load->in_flight.samples), "in_flight", spread_json(&load->in_flight), "waiting",
	                 spread_json(&load->waiting), "retries", spread_json(&load->retries), "calls", integer(load->asked),
	                 "calls_per_second", real_if(rate, l->rate), "mean_us", real_if(l->mean_us > 0, l->mean_us), "inside",
	                 real_if(rate && l->mean_us > 0, l->inside), "inside_p99", real_if(rate && l->p99_us > 0, l->inside_p99), "workers",
	                 integer(facts->workers));
}

static json_t *limit_json(const struct suggest_facts *facts, const struct suggest_limit *l)
{
	return json_pack("{s:o, s:o, s:b}", "present", integer_if(facts->limit > 0, facts->limit), "recommended",
	                 integer_if(l->limit > 0, l->limit), "reached", l->held_down);
}

static json_t *notes_json(const struct suggest_facts *facts)
{
	struct suggest_note notes[SUGGEST_NOTE_COUNT];
	size_t count = suggest_notes(facts, notes);
	json_t *array = json_array();

	for (size_t i = 0; i < count; i++)
		json_array_append_new(array, json_pack("{s:s, s:s, s:b, s:s}", "id", suggest_note_name(notes[i].id), "key",
		                                       suggest_note_key(notes[i].id), "shadow", notes[i].shadow, "text", notes[i].text));
	return array;
}

json_t *suggest_json(const char *name, const struct suggest_facts *facts)
{
	struct suggest_timeouts timeouts;
	struct suggest_limit limit;

	suggest_timeouts(facts, &timeouts);
	suggest_limit(facts, &limit);
	uint64_t best_ms = timeouts.recommended >= 0 ? timeouts.list[timeouts.recommended].ms : 0;
	return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "resource", name, "latency", latency_json(facts, &timeouts), "timeouts",
	                 candidates_json(&timeouts), "recommended_timeout_ms", integer_if(best_ms > 0, best_ms), "load",
	                 load_json(facts, &limit), "limit", limit_json(facts, &limit), "settings", notes_json(facts));
}
