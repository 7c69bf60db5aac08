/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: timeouts and limits are usually guessed, and the numbers to work them out from are in the segment. A timeout is a bet on
 * how many healthy calls it may cut off; the histogram knows that share for every candidate.
 *
 * What it guarantees: no share is more exact than what was measured. Calls go into buckets of an eighth, and inside a bucket they are taken
 * to be spread evenly; the buckets' edges bound the share. The histogram holds every call that ended, also those that failed, timed out or
 * were given up, and does not say which these are. So of the calls that took longer, at most all were healthy (most), and at least those
 * that the others cannot account for (least). Where a timeout cuts calls off today, nothing says how long they would have taken: they
 * count as longer than any timeout beyond it in `most`, and a quantile among them is only known to be no shorter.
 *
 * The limit is Little's law with the 99th percentile instead of the mean, as Hystrix' manual had it, or what was seen inside, if that is
 * more: the law knows averages, and calls come in bursts.
 */
#include "suggest.h"

#include <math.h>
#include <stdlib.h>

#include "bounds.h"
#include "latency.h"

#define PADDING 1.2

static const struct {
	const char *name;
	const char *text;
} whys[] = {
#define X(NAME, name, text) {#name, text},
        SUGGEST_WHYS(X)
#undef X
};

const char *suggest_why_name(enum suggest_why why)
{
	return whys[why].name;
}

const char *suggest_why_text(enum suggest_why why)
{
	return whys[why].text;
}

/* ---- the histogram ---- */

static double low_edge_us(unsigned bucket)
{
	return bucket == 0 ? 0 : (double)latency_edge_us(bucket - 1);
}

/* How far into its bucket a time is, 0 to 1. The last bucket has no end: what is in it took longer than whatever is asked for. */
static double part_of(unsigned bucket, double us)
{
	double low = low_edge_us(bucket), part = (us - low) / ((double)latency_edge_us(bucket) - low);

	return bucket == LATENCY_BUCKETS - 1 || part < 0 ? 0 : part > 1 ? 1 : part;
}

static unsigned bucket_of(double us)
{
	return us >= (double)latency_edge_us(LATENCY_BUCKETS - 1) ? LATENCY_BUCKETS - 1 : us > 0 ? latency_bucket((uint64_t)us) : 0;
}

/* The calls that took so long or longer: with even spread, and what they are at least and at most. */
static struct suggest_share calls_beyond(const struct inspect_latency *latency, double us)
{
	unsigned bucket = bucket_of(us);
	double above = 0, inside = (double)latency->buckets[bucket], part = part_of(bucket, us);

	for (unsigned i = bucket + 1; i < LATENCY_BUCKETS; i++)
		above += (double)latency->buckets[i];
	return (struct suggest_share){
	        .likely = above + inside * (1 - part),
	        .least = us > low_edge_us(bucket) ? above : above + inside,
	        .most = above + inside,
	};
}

double suggest_calls_beyond(const struct inspect_latency *latency, double us)
{
	return calls_beyond(latency, us).likely;
}

double suggest_quantile_us(const struct inspect_latency *latency, double q)
{
	double rank = q * (double)latency->count, seen = 0;

	for (unsigned i = 0; i < LATENCY_BUCKETS; i++) {
		double inside = (double)latency->buckets[i], low = low_edge_us(i);

		if (inside > 0 && seen + inside >= rank)
			return low + ((double)latency_edge_us(i) - low) * fmax(rank - seen, 0) / inside;
		seen += inside;
	}
	return 0;
}

/* ---- who is in it ---- */

/* Of the measured calls, as far as the counters tell: calls from before they were measured are counted too. */
struct mixture {
	double measured;
	double not_healthy;
	double failed;
	double injected;
	double delayed;
	double timed_out;
	double cut_at_us; /* 0: timed out somewhere */
};

/*
 * Where calls are cut off today; 0: elsewhere. Too few of the measured calls took that long (timers are not exact) where the timeout was a
 * shorter one before, or the callers had less time left.
 */
static double cut_at_us(const struct suggest_facts *facts, double timed_out)
{
	double us = (double)facts->policy.timeout_attempt_ms * 1000;

	if (timed_out <= 0 || part_mode_of(&facts->policy, PART_TIMEOUT) != PART_ENFORCE ||
	    calls_beyond(&facts->latency, us * 0.9).most < timed_out)
		return 0;
	return us;
}

static struct mixture mixture_of(const struct suggest_facts *facts)
{
	const struct resc_counters *c = &facts->counters;
	double timed_out = (double)c->ended_timeout, failed = (double)c->ended_fail + (double)c->ended_cancelled;
	double ended = (double)c->ended_ok + (double)c->ended_ignored + failed + timed_out;
	double measured = (double)facts->latency.count;
	double scale = ended > measured ? measured / ended : 1;

	timed_out = fmin(ceil(timed_out * scale), measured);
	return (struct mixture){
	        .measured = measured,
	        /* However those ended that were made to wait: the time is not the dependency's. */
	        .not_healthy = fmin(ceil((failed + (double)c->ended_timeout + (double)c->injected_delays) * scale), measured),
	        .failed = fmin(ceil(failed * scale), measured),
	        .injected = fmin(ceil((double)larger(c->injected_failures, c->injected_delays) * scale), measured),
	        .delayed = fmin(ceil((double)c->injected_delays * scale), measured),
	        .timed_out = timed_out,
	        .cut_at_us = cut_at_us(facts, timed_out),
	};
}

/* ---- what a timeout cuts off ---- */

static double share_of(double part, double whole)
{
	return part <= 0 || whole <= 0 ? 0 : part >= whole ? 1 : part / whole;
}

static struct suggest_share cut_off(const struct inspect_latency *latency, const struct mixture *m, double us)
{
	struct suggest_share beyond = calls_beyond(latency, us), cut;
	bool hides = m->timed_out > 0 && (m->cut_at_us == 0 || us > m->cut_at_us);

	/* Who was cut off later than here took longer than this, wherever in the bucket. */
	if (m->cut_at_us > 0 && us <= m->cut_at_us) {
		beyond.least = fmax(beyond.least, m->timed_out);
		beyond.likely = fmax(beyond.likely, m->timed_out);
		beyond.most = fmax(beyond.most, m->timed_out);
	}
	double most = fmin(beyond.most + (hides ? m->timed_out : 0), m->measured);

	cut.least = share_of(beyond.least - m->not_healthy, m->measured - m->not_healthy);
	cut.most = share_of(most, m->measured - fmax(m->not_healthy - most, 0));
	cut.likely = fmin(fmax(share_of(beyond.likely, m->measured), cut.least), cut.most);
	return cut;
}

struct suggest_share suggest_cut_off(const struct suggest_facts *facts, uint64_t ms)
{
	struct mixture m = mixture_of(facts);

	return cut_off(&facts->latency, &m, (double)ms * 1000);
}

/* ---- candidates ---- */

uint64_t suggest_round_up(double value)
{
	static const double steps[] = {1, 1.2, 1.5, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9};
	double unit = 1;

	while (value > unit * 10 && unit < 1e15)
		unit *= 10;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		double step = steps[i] * unit;

		/* Where it is no whole number, another one is next. */
		if (step >= value && step == floor(step))
			return (uint64_t)step;
	}
	return (uint64_t)(unit * 10);
}

/* In its place; the same number twice has two reasons. */
static void add_candidate(struct suggest_timeouts *out, uint64_t ms, enum suggest_why why)
{
	size_t at = 0;

	if (ms == 0)
		return;
	while (at < out->count && out->list[at].ms < ms)
		at++;
	if (at == out->count || out->list[at].ms != ms) {
		for (size_t i = out->count++; i > at; i--)
			out->list[i] = out->list[i - 1];
		out->list[at] = (struct suggest_timeout){.ms = ms};
	}
	out->list[at].why |= 1u << why;
}

static void add_quantile(struct suggest_timeouts *out, double us, bool is_least, enum suggest_why why, enum suggest_why padded)
{
	if (us == 0 || is_least)
		return;
	add_candidate(out, (uint64_t)fmax(ceil(us / 1000), 1), why);
	add_candidate(out, suggest_round_up(us * PADDING / 1000), padded);
}

/* The quantile, no further than where calls are cut off, or where the last bucket begins, which has no end. */
static double quantile(const struct suggest_facts *facts, const struct mixture *m, double q, unsigned calls, bool *is_least)
{
	double us = suggest_quantile_us(&facts->latency, q);

	*is_least = false;
	if (facts->latency.count < calls)
		return 0;
	*is_least = us > SUGGEST_LONGEST_US || (m->timed_out > 0 && (1 - q) * m->measured < m->timed_out);
	us = fmin(us, SUGGEST_LONGEST_US);
	return *is_least && m->cut_at_us > 0 ? fmin(us, m->cut_at_us) : us;
}

static void find_quantiles(const struct suggest_facts *facts, const struct mixture *m, struct suggest_timeouts *out)
{

	out->p50_us = quantile(facts, m, 0.5, 1, &out->p50_is_least);
	out->p99_us = quantile(facts, m, 0.99, SUGGEST_P99_CALLS, &out->p99_is_least);
	out->p999_us = quantile(facts, m, 0.999, SUGGEST_P999_CALLS, &out->p999_is_least);
}

/* The longest padded quantile that there are enough calls for; none where that one lies beyond what was let run. */
static enum suggest_why best_why(const struct suggest_timeouts *out)
{
	if (out->p999_us > 0)
		return out->p999_is_least ? SUGGEST_WHY_COUNT : SUGGEST_P999_PADDED;
	return out->p99_us > 0 && !out->p99_is_least ? SUGGEST_P99_PADDED : SUGGEST_WHY_COUNT;
}

void suggest_timeouts(const struct suggest_facts *facts, struct suggest_timeouts *out)
{
	static const uint64_t usual_ms[] = {200, 300, 500, 800};
	struct mixture m = mixture_of(facts);

	*out = (struct suggest_timeouts){.measured = facts->latency.count,
	                                 .not_healthy = (uint64_t)m.not_healthy,
	                                 .failed = (uint64_t)m.failed,
	                                 .injected = (uint64_t)m.injected,
	                                 .delayed = (uint64_t)m.delayed,
	                                 .timed_out = (uint64_t)m.timed_out,
	                                 .cut_at_ms = m.timed_out > 0 ? (uint64_t)(m.cut_at_us / 1000) : 0,
	                                 .recommended = -1};
	if (out->measured == 0)
		return;
	find_quantiles(facts, &m, out);
	add_quantile(out, out->p99_us, out->p99_is_least, SUGGEST_P99, SUGGEST_P99_PADDED);
	add_quantile(out, out->p999_us, out->p999_is_least, SUGGEST_P999, SUGGEST_P999_PADDED);
	for (size_t i = 0; i < sizeof(usual_ms) / sizeof(usual_ms[0]); i++)
		add_candidate(out, usual_ms[i], SUGGEST_ROUND);
	if ((facts->policy.flags & POLICY_TIMEOUT) != 0)
		add_candidate(out, facts->policy.timeout_attempt_ms, SUGGEST_PRESENT);
	for (size_t i = 0; i < out->count; i++) {
		out->list[i].cut = cut_off(&facts->latency, &m, (double)out->list[i].ms * 1000);
		if (best_why(out) != SUGGEST_WHY_COUNT && (out->list[i].why & 1u << best_why(out)) != 0)
			out->recommended = (int)i;
	}
}

/* ---- calls at once ---- */

static int compare(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;

	return (x > y) - (x < y);
}

struct suggest_spread suggest_spread(uint32_t *values, size_t count)
{
	if (count == 0)
		return (struct suggest_spread){0};
	qsort(values, count, sizeof(*values), compare);
	return (struct suggest_spread){.samples = (uint32_t)smaller(count, UINT32_MAX),
	                               .p50 = values[(count - 1) / 2],
	                               .p99 = values[(size_t)ceil(0.99 * (double)count) - 1],
	                               .p999 = values[(size_t)ceil(0.999 * (double)count) - 1],
	                               .most = values[count - 1]};
}

static void find_inside(const struct suggest_facts *facts, struct suggest_limit *out)
{
	const struct suggest_load *load = &facts->load;
	const struct inspect_latency *all = &facts->latency;

	if (load->seconds > 0)
		out->rate = ((double)load->admitted + (double)load->no_room) / load->seconds;
	if (load->measured > 0)
		out->mean_us = (double)load->sum_us / (double)load->measured;
	else if (all->count > 0)
		out->mean_us = (double)all->sum_us / (double)all->count;
	if (all->count >= SUGGEST_P99_CALLS)
		out->p99_us = suggest_quantile_us(all, 0.99);
	out->inside = out->rate * out->mean_us / 1e6;
	out->inside_p99 = out->rate * out->p99_us / 1e6;
}

void suggest_limit(const struct suggest_facts *facts, struct suggest_limit *out)
{
	const struct suggest_load *load = &facts->load;
	bool enforced = part_mode_of(&facts->policy, PART_BULKHEAD) == PART_ENFORCE;

	*out = (struct suggest_limit){0};
	find_inside(facts, out);
	out->held_down = enforced && (load->no_room > 0 || load->waiting.most > 0 ||
	                              (load->in_flight.samples > 0 && facts->limit > 0 && load->in_flight.most >= facts->limit));
	double wanted = fmax(fmax(load->in_flight.p999 * SUGGEST_HEADROOM, out->inside * SUGGEST_HEADROOM), out->inside_p99);

	out->limit = (uint32_t)fmin(ceil(wanted), PERMITS_LIMIT);
}
