/* SPDX-License-Identifier: MIT */
/*
 * What the charts of a take show: load, what clients got, refusals by reason, latencies, permits, tokens, the throttle. Each maker fills
 * one chart from the notes, and leaves out what was nothing throughout; a chart without a series is not drawn.
 *
 * What is of requests and calls comes by take_seconds, in slots of which at most eighty fit the picture; what is of the segment from the
 * samples.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "inspect.h"
#include "report.h"

#define SLOTS_MOST        80
#define SLOTS_LEAST       20
#define SLOT_REQUESTS     5
#define SAMPLE_SLOTS_MOST 150
#define BRIDGE_NS         INT64_C(500000000)
#define COUNT_OF(a)       (sizeof(a) / sizeof((a)[0]))

/* ---- charts ---- */

void chart_free(struct chart *chart)
{
	for (size_t i = 0; i < chart->count; i++)
		free(chart->series[i].values);
	chart->count = 0;
}

double chart_top(const struct chart *chart)
{
	double top = 0;

	for (size_t slot = 0; slot < chart->slots; slot++) {
		double sum = 0;
		for (size_t i = 0; i < chart->count; i++) {
			double value = chart->series[i].values[slot];
			if (isnan(value))
				continue;
			sum = chart->stacked ? sum + value : fmax(sum, value);
		}
		top = fmax(top, sum);
	}
	return top;
}

/* All gaps. NULL: out of memory. */
static struct series *add_series(struct chart *chart, const char *name, const char *color)
{
	double *values = chart->count < CHART_SERIES ? calloc(chart->slots + 1, sizeof(*values)) : NULL;

	if (values == NULL)
		return NULL;
	for (size_t i = 0; i < chart->slots; i++)
		values[i] = NAN;
	struct series *s = &chart->series[chart->count++];
	snprintf(s->name, sizeof(s->name), "%s", name);
	s->color = color;
	s->values = values;
	return s;
}

/* The shortest slot of a round length of which at most `most` fit the take, and at least `least`. */
static int64_t slot_ns(int64_t duration_ns, int64_t most, int64_t least)
{
	static const int64_t parts[] = {1, 2, 5};

	for (int64_t power = 1000000;; power *= 10)
		for (size_t i = 0; i < COUNT_OF(parts); i++)
			if (parts[i] * power >= least && duration_ns <= parts[i] * power * most)
				return parts[i] * power;
}

static void set_slots(struct chart *chart, const struct take *take, int64_t most, int64_t least)
{
	chart->slot_ns = slot_ns(take->duration_ns, most, least);
	chart->slots = (size_t)((take->duration_ns + chart->slot_ns - 1) / chart->slot_ns);
	/* Of a take that was stopped at once there is one, of nothing. */
	if (chart->slots == 0)
		chart->slots = 1;
}

/* ---- of requests and calls ---- */

/* Slots in which there are some requests: 50 a second are 2 and 3 in a row of 50 ms, which looks like a load that shakes. */
static void set_request_slots(struct chart *chart, const struct take *take)
{
	int64_t requests = take->board->request_count, least = take->duration_ns / SLOTS_LEAST;

	if (requests > 0 && take->duration_ns / requests * SLOT_REQUESTS < least)
		least = take->duration_ns / requests * SLOT_REQUESTS;
	set_slots(chart, take, SLOTS_MOST, least);
}

/* One value of a second, for a series. */
struct part {
	const char *name;
	const char *color;
	size_t offset; /* of a uint32_t in struct second */
	bool always;
};
#define IN_SECOND(member) offsetof(struct second, member)

static double part_value(const struct second *second, size_t offset)
{
	uint32_t n;

	memcpy(&n, (const char *)second + offset, sizeof(n));
	return n;
}

static bool occurs(const struct second *seconds, size_t count, size_t offset)
{
	for (size_t i = 0; i < count; i++)
		if (part_value(&seconds[i], offset) > 0)
			return true;
	return false;
}

/* The last one may be cut short. */
static double slot_length(const struct chart *chart, const struct take *take, size_t slot)
{
	int64_t left = take->duration_ns - (int64_t)slot * chart->slot_ns;

	return left > 0 && left < chart->slot_ns ? (double)left : (double)chart->slot_ns;
}

/* load: -1 for all. */
static int add_parts(struct chart *chart, const struct take *take, int load, const struct part *parts, size_t part_count)
{
	size_t count;
	int r = 0;

	set_request_slots(chart, take);
	struct second *seconds = take_seconds(take, load, chart->slot_ns, &count);
	if (seconds == NULL)
		return -ENOMEM;
	for (size_t n = 0; n < part_count && r == 0; n++) {
		if (!parts[n].always && !occurs(seconds, count, parts[n].offset))
			continue;
		struct series *s = add_series(chart, parts[n].name, parts[n].color);
		r = s == NULL ? -ENOMEM : 0;
		for (size_t i = 0; s != NULL && i < chart->slots; i++)
			s->values[i] = i < count ? part_value(&seconds[i], parts[n].offset) * 1e9 / slot_length(chart, take, i) : 0;
	}
	free(seconds);
	return r;
}

static int make_load(const struct take *take, uint16_t resource, struct chart *out)
{
	static const struct part parts[] = {
	        {"offered", "grey", IN_SECOND(offered), true},
	        {"calls", "blue", IN_SECOND(attempts), true},
	        {"retries", "red", IN_SECOND(retries), false},
	        {"shed", "purple", IN_SECOND(shed), false},
	};

	(void)resource;
	out->hover = true;
	return add_parts(out, take, -1, parts, COUNT_OF(parts));
}

static int answers_of(const struct take *take, int load, struct chart *out)
{
	static const struct part parts[] = {
	        {"served", "served", IN_SECOND(served[SERVED_FRESH]), true},
	        {"stored answer", "stored", IN_SECOND(served[SERVED_STORED]), false},
	        {"fallback", "fallback", IN_SECOND(served[SERVED_FALLBACK]), false},
	        {"failed", "failed", IN_SECOND(served[SERVED_FAILED]), false},
	        {"too late", "late", IN_SECOND(served[SERVED_LATE]), false},
	        {"rejected", "rejected", IN_SECOND(served[SERVED_REJECTED]), false},
	        {"not ended", "waiting", IN_SECOND(served[SERVED_NOT_YET]), false},
	};

	out->stacked = true;
	out->hover = true;
	return add_parts(out, take, load, parts, COUNT_OF(parts));
}

static int make_answers(const struct take *take, uint16_t index, struct chart *out)
{
	(void)index;
	return answers_of(take, -1, out);
}

static int make_load_answers(const struct take *take, uint16_t index, struct chart *out)
{
	return answers_of(take, index, out);
}

static int make_refusals(const struct take *take, uint16_t resource, struct chart *out)
{
	static const struct part parts[] = {
	        {"open", "failed", IN_SECOND(refused[RESC_E_OPEN]), false},
	        {"half-open", "fallback", IN_SECOND(refused[RESC_E_HALF_OPEN]), false},
	        {"full", "late", IN_SECOND(refused[RESC_E_FULL]), false},
	        {"queue full", "rejected", IN_SECOND(refused[RESC_E_QUEUE_FULL]), false},
	        {"priority", "served", IN_SECOND(refused[RESC_E_PRIORITY]), false},
	        {"rate", "stored", IN_SECOND(refused[RESC_E_RATE]), false},
	        {"cost", "waiting", IN_SECOND(refused[RESC_E_COST]), false},
	        {"throttled", "served", IN_SECOND(refused[RESC_E_THROTTLED]), false},
	        {"retries", "stored", IN_SECOND(refused[RESC_E_RETRIES]), false},
	        {"deadline", "waiting", IN_SECOND(refused[RESC_E_DEADLINE]), false},
	};

	(void)resource;
	out->stacked = true;
	out->hover = true;
	return add_parts(out, take, -1, parts, COUNT_OF(parts));
}

static int make_latency(const struct take *take, uint16_t resource, struct chart *out)
{
	size_t count;

	(void)resource;
	set_request_slots(out, take);
	struct second *seconds = take_seconds(take, -1, out->slot_ns, &count);
	if (seconds == NULL)
		return -ENOMEM;
	struct series *p99 = add_series(out, "p99", "red"), *p95 = add_series(out, "p95", "orange"), *p50 = add_series(out, "p50", "blue");
	for (size_t i = 0; p50 != NULL && p95 != NULL && p99 != NULL && i < out->slots && i < count; i++) {
		p50->values[i] = seconds[i].p50_ms;
		p95->values[i] = seconds[i].p95_ms;
		p99->values[i] = seconds[i].p99_ms;
	}
	free(seconds);
	out->hover = true;
	return p50 == NULL || p95 == NULL || p99 == NULL ? -ENOMEM : 0;
}

/* ---- of the segment ---- */

/* What of a sample; NAN: it has none. */
typedef double (*sampled)(const struct sample *sample);

static double in_use(const struct sample *s)
{
	return s->in_flight;
}

static double limit(const struct sample *s)
{
	return s->limit > 0 ? (double)s->limit : (double)NAN;
}

static double waiting(const struct sample *s)
{
	return s->waiting;
}

static double retry_tokens(const struct sample *s)
{
	return s->tokens >= 0 ? (double)s->tokens : NAN;
}

static double rate_tokens(const struct sample *s)
{
	return s->rate_tokens >= 0 ? (double)s->rate_tokens : NAN;
}

static double throttled(const struct sample *s)
{
	return (double)s->throttle * 100;
}

/* A look at the segment may be late; a line that ends for a moment would say that there was nothing. */
static void bridge(const struct chart *chart, double *values)
{
	size_t most = (size_t)(BRIDGE_NS / chart->slot_ns), gap = 0;

	for (size_t i = 1; i < chart->slots; i++) {
		if (isnan(values[i])) {
			gap++;
			continue;
		}
		for (; gap > 0 && gap <= most && gap < i; gap--)
			values[i - gap] = values[i - gap - 1];
		gap = 0;
	}
}

/*
 * On own views the workers' together: their sum at the end of each slot, or (share) their mean. On the shared view the value that says most
 * of a slot: the highest, or (least) the lowest.
 */
static int add_samples(struct chart *chart, const struct take *take, uint16_t resource, const char *name, const char *color, sampled of,
                       bool mean, bool least)
{
	double last[SCENARIO_WORKERS];
	unsigned workers = take->view == VIEW_OWN ? take->scenario->workers : 1;
	struct series *series = add_series(chart, name, color);

	if (series == NULL)
		return -ENOMEM;
	for (unsigned i = 0; i < workers; i++)
		last[i] = NAN;
	for (size_t i = 0; i < take->sample_count; i++) {
		const struct sample *s = &take->samples[i];
		size_t slot = (size_t)(s->at_ns / chart->slot_ns);
		double value = of(s);
		if (s->resource != resource || s->worker >= workers || s->at_ns < 0 || slot >= chart->slots || isnan(value))
			continue;
		double *at = &series->values[slot];
		if (workers == 1) {
			*at = least ? fmin(*at, value) : fmax(*at, value);
			continue;
		}
		last[s->worker] = value;
		double sum = 0;
		for (unsigned w = 0; w < workers; w++)
			sum += isnan(last[w]) ? 0 : last[w];
		*at = mean ? sum / workers : sum;
	}
	bridge(chart, series->values);
	return 0;
}

static bool sampled_anything(const struct take *take, uint16_t resource, sampled of)
{
	for (size_t i = 0; i < take->sample_count; i++)
		if (take->samples[i].resource == resource && of(&take->samples[i]) > 0)
			return true;
	return false;
}

static int make_permits(const struct take *take, uint16_t resource, struct chart *out)
{
	int r = 0;

	set_slots(out, take, SAMPLE_SLOTS_MOST, SAMPLE_NS);
	if (!sampled_anything(take, resource, limit))
		return 0;
	r = add_samples(out, take, resource, "limit", "grey", limit, false, false);
	if (r == 0)
		r = add_samples(out, take, resource, "in use", "blue", in_use, false, false);
	if (r == 0 && sampled_anything(take, resource, waiting))
		r = add_samples(out, take, resource, "waiting", "orange", waiting, false, false);
	return r;
}

static int make_tokens(const struct take *take, uint16_t resource, struct chart *out)
{
	int r = 0;

	set_slots(out, take, SAMPLE_SLOTS_MOST, SAMPLE_NS);
	if (sampled_anything(take, resource, retry_tokens))
		r = add_samples(out, take, resource, "retry tokens", "green", retry_tokens, false, true);
	if (r == 0 && sampled_anything(take, resource, rate_tokens))
		r = add_samples(out, take, resource, "rate tokens", "purple", rate_tokens, false, true);
	return r;
}

static int make_throttle(const struct take *take, uint16_t resource, struct chart *out)
{
	set_slots(out, take, SAMPLE_SLOTS_MOST, SAMPLE_NS);
	if (!sampled_anything(take, resource, throttled))
		return 0;
	return add_samples(out, take, resource, "refused", "red", throttled, true, false);
}

const struct row report_rows[] = {
        {"Load", "Requests that arrived, and the calls that they were turned into.", "a second", make_load, ROW_OF_TAKE, false},
        {"What clients got", "Requests by the time of their arrival.", "a second", make_answers, ROW_OF_TAKE, false},
        {"What clients got", "Of this load alone.", "a second", make_load_answers, ROW_OF_LOAD, false},
        {"Refused, by reason", "Calls that a guard did not admit.", "a second", make_refusals, ROW_OF_TAKE, false},
        {"Latency", "Of requests, from arrival to end, by the time of their arrival.", "ms", make_latency, ROW_OF_TAKE, true},
        {"Bulkhead", "Calls inside, and calls that wait. On own views all workers together.", "calls", make_permits, ROW_OF_RESOURCE, true},
        {"Tokens", "What the retry budget and the rate limit have left. On own views all workers together.", "tokens", make_tokens,
         ROW_OF_RESOURCE, true},
        {"Throttle", "The share of calls that is refused. On own views the workers' mean.", "%", make_throttle, ROW_OF_RESOURCE, true},
};
const size_t report_row_count = COUNT_OF(report_rows);

/* ---- what was wrong ---- */

static void add_trouble(struct troubles *out, const struct take *take, const struct dependency *dependency, const struct fault *fault,
                        int64_t from_ns, int64_t to_ns)
{
	char does[64];

	to_ns = to_ns < take->duration_ns ? to_ns : take->duration_ns;
	if (from_ns >= to_ns)
		return;
	fault_words(fault, does, sizeof(does));
	/* No room: the last one goes on. */
	if (out->count == TROUBLES_MOST) {
		out->items[TROUBLES_MOST - 1].to_ns = to_ns;
		return;
	}
	struct trouble *t = &out->items[out->count++];
	t->from_ns = from_ns;
	t->to_ns = to_ns;
	if (take->scenario->dependency_count > 1)
		snprintf(t->words, sizeof(t->words), "%.24s %s", dependency->name, does);
	else
		snprintf(t->words, sizeof(t->words), "%s", does);
}

static void find_flaps(struct troubles *out, const struct take *take, const struct dependency *dependency, const struct fault *fault)
{
	int64_t end = fault->to_ns < take->duration_ns ? fault->to_ns : take->duration_ns;

	for (int64_t at = fault->from_ns; at < end; at += fault->down_ns + fault->up_ns)
		add_trouble(out, take, dependency, fault, at, at + fault->down_ns < end ? at + fault->down_ns : end);
}

/* A fault of certain requests is where those were that it hit. */
static void find_by_request(struct troubles *out, const struct take *take, size_t number, const struct fault *fault)
{
	int64_t from = INT64_MAX, to = 0;

	for (size_t i = 0; i < take->receipt_count; i++) {
		const struct receipt_note *r = &take->board->receipt_notes[i];
		/* Acquire: the note is complete. */
		if (atomic_load_explicit(&r->done, memory_order_acquire) == 0 || !r->during_fault || r->dependency != number)
			continue;
		int64_t end = r->answered_ns > r->received_ns ? r->answered_ns : r->received_ns;
		from = r->received_ns < from ? r->received_ns : from;
		to = end > to ? end : to;
	}
	if (from < to)
		add_trouble(out, take, &take->scenario->dependencies[number], fault, from, to);
}

void troubles_find(const struct take *take, struct troubles *out)
{
	const struct scenario *scenario = take->scenario;

	out->count = 0;
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		const struct dependency *dependency = &scenario->dependencies[i];
		for (size_t f = 0; f < dependency->fault_count; f++) {
			const struct fault *fault = &dependency->faults[f];
			if (fault->from_request != 0)
				find_by_request(out, take, i, fault);
			else if (fault->down_ns > 0)
				find_flaps(out, take, dependency, fault);
			else
				add_trouble(out, take, dependency, fault, fault->from_ns, fault->to_ns);
		}
	}
}
