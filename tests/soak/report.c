/* SPDX-License-Identifier: MIT */
/* What the storm says of itself: a line while it goes on, a page at its end, or JSON. */
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "storm.h"

/* ---- latencies: eight places an octave of nanoseconds ---- */

uint32_t latency_place(uint64_t ns)
{
	if (ns < 8)
		return (uint32_t)ns;
	unsigned octave = 63u - (unsigned)__builtin_clzll(ns);
	uint32_t place = (octave - 2) * 8 + (uint32_t)(ns >> (octave - 3) & 7);
	return place < LATENCY_PLACES ? place : LATENCY_PLACES - 1;
}

/* The upper edge of a place. */
static double place_us(uint32_t place)
{
	if (place < 8)
		return (place + 1) / 1e3;
	return (double)((UINT64_C(8) + place % 8 + 1) << (place / 8 - 1)) / 1e3;
}

struct latencies {
	uint64_t places[LATENCY_PLACES];
	uint64_t count;
};

static void collect(struct latencies *out, bool in_storm)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		for (uint32_t place = 0; place < LATENCY_PLACES; place++) {
			uint64_t n = atomic_load_explicit(&storm.shared->actors[i].latency[in_storm][place], memory_order_relaxed);
			out->places[place] += n;
			out->count += n;
		}
}

static double quantile_us(const struct latencies *l, double q)
{
	uint64_t below = 0, wanted = (uint64_t)((double)l->count * q);
	double last = 0;

	for (uint32_t place = 0; place < LATENCY_PLACES; place++) {
		below += l->places[place];
		if (l->places[place] != 0)
			last = place_us(place);
		if (below > wanted)
			return place_us(place);
	}
	return last;
}

/* ---- samples ---- */

void sample(struct samples *samples, double ms)
{
	if (samples->count == samples->room) {
		size_t room = samples->room == 0 ? 256 : 2 * samples->room;
		double *values = realloc(samples->values, room * sizeof(double));
		if (values == NULL)
			return;
		samples->values = values;
		samples->room = room;
	}
	samples->values[samples->count++] = ms;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double sample_quantile(const struct samples *samples, double q)
{
	if (samples->count == 0)
		return 0;
	size_t i = (size_t)((double)samples->count * q);
	return samples->values[i < samples->count ? i : samples->count - 1];
}

/* ---- for people ---- */

static uint64_t sum_of_calls(void)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		sum += atomic_load_explicit(&storm.shared->actors[i].calls, memory_order_relaxed);
	return sum;
}

static uint64_t forks(void)
{
	return atomic_load_explicit(&storm.shared->forks, memory_order_relaxed);
}

void report_progress(const struct report *report)
{
	struct deaths deaths = accounts_deaths();

	if (storm.json)
		return;
	printf("%s%5.0f s  %6llu kills (%llu inside an operation)  %9llu calls  %3llu restarts of rescd  %3llu quiet points%s",
	       isatty(1) ? "\r" : "", report->seconds, (unsigned long long)report->kills, (unsigned long long)deaths.inside_an_operation,
	       (unsigned long long)sum_of_calls(), (unsigned long long)report->rescd_kills, (unsigned long long)report->quiet_points,
	       isatty(1) ? "" : "\n");
	fflush(stdout);
}

static void print_latencies(const char *when, bool in_storm)
{
	struct latencies l;

	collect(&l, in_storm);
	printf("  %-24s %9llu  p50 %8.2f us  p99 %8.1f us  p99.9 %8.1f us  worst %9.1f us\n", when, (unsigned long long)l.count,
	       quantile_us(&l, 0.5), quantile_us(&l, 0.99), quantile_us(&l, 0.999), quantile_us(&l, 1));
}

static void print_samples(const char *what, const struct samples *samples)
{
	if (samples->count != 0)
		printf("  %-46s %6zu  p50 %7.1f ms  p99 %7.1f ms  worst %7.1f ms\n", what, samples->count, sample_quantile(samples, 0.5),
		       sample_quantile(samples, 0.99), sample_quantile(samples, 1));
}

static void print_page(const struct report *r, const char *doctor)
{
	struct deaths deaths = accounts_deaths();

	printf("\n%llu kills survived in %.0f s: %llu workers, %llu children, %llu rescd, %llu resctl\n", (unsigned long long)r->kills,
	       r->seconds, (unsigned long long)r->worker_kills, (unsigned long long)r->child_kills, (unsigned long long)r->rescd_kills,
	       (unsigned long long)r->resctl_kills);
	printf("  %llu of the workers died inside an operation, %llu with permits; %llu calls went on\n",
	       (unsigned long long)deaths.inside_an_operation, (unsigned long long)deaths.with_permits, (unsigned long long)sum_of_calls());
	printf("  and %llu stops, %llu reloads, %llu removals of the segment, %llu larger tables, %llu forks\n",
	       (unsigned long long)r->stops, (unsigned long long)r->reloads, (unsigned long long)r->removals,
	       (unsigned long long)r->growths, (unsigned long long)forks());
	printf("enter and leave of the others\n");
	print_latencies("while kills go on", true);
	print_latencies("in between", false);
	printf("from SIGKILL until nothing of the dead is left\n");
	print_samples("rescd alive", &r->reaped);
	print_samples("rescd dead, stopped or starting", &r->reaped_without_rescd);
	printf("from the last kill until all accounts are exact\n");
	print_samples("rescd alive", &r->exact);
	print_samples("rescd dead before, started for it", &r->exact_after_rescd);
	if (r->slowest[0] != '\0')
		printf("  until the slowest was over: %s\n", r->slowest);
	printf("%llu times the accounts of all workers were compared with the segment, and were exact\nresctl doctor: %s\n",
	       (unsigned long long)r->quiet_points, doctor);
}

/* ---- for programs ---- */

static json_t *json_samples(const struct samples *s)
{
	return json_pack("{s:I, s:f, s:f, s:f}", "count", (json_int_t)s->count, "p50_ms", sample_quantile(s, 0.5), "p99_ms",
	                 sample_quantile(s, 0.99), "worst_ms", sample_quantile(s, 1));
}

static json_t *json_latencies(bool in_storm)
{
	struct latencies l;

	collect(&l, in_storm);
	return json_pack("{s:I, s:f, s:f, s:f, s:f}", "count", (json_int_t)l.count, "p50_us", quantile_us(&l, 0.5), "p99_us",
	                 quantile_us(&l, 0.99), "p999_us", quantile_us(&l, 0.999), "worst_us", quantile_us(&l, 1));
}

static void print_json(const struct report *r, const char *doctor)
{
	struct deaths deaths = accounts_deaths();
	json_t *document = json_pack("{s:I, s:f, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:I, s:I, s:{s:I, s:I, s:I, s:I, s:I}, s:I, s:s}",
	                             "seed", (json_int_t)storm.seed, "seconds", r->seconds, "kills", "all", (json_int_t)r->kills, "workers",
	                             (json_int_t)r->worker_kills, "children", (json_int_t)r->child_kills, "rescd",
	                             (json_int_t)r->rescd_kills, "resctl", (json_int_t)r->resctl_kills, "calls", (json_int_t)sum_of_calls(),
	                             "died_inside_an_operation", (json_int_t)deaths.inside_an_operation, "died_with_permits",
	                             (json_int_t)deaths.with_permits, "others", "stops", (json_int_t)r->stops, "reloads",
	                             (json_int_t)r->reloads, "removals", (json_int_t)r->removals, "growths", (json_int_t)r->growths,
	                             "forks", (json_int_t)forks(), "quiet_points", (json_int_t)r->quiet_points, "doctor", doctor);

	json_object_set_new(document, "latency_in_storm", json_latencies(true));
	json_object_set_new(document, "latency_in_calm", json_latencies(false));
	json_object_set_new(document, "reaped", json_samples(&r->reaped));
	json_object_set_new(document, "reaped_without_rescd", json_samples(&r->reaped_without_rescd));
	json_object_set_new(document, "exact", json_samples(&r->exact));
	json_object_set_new(document, "exact_after_rescd", json_samples(&r->exact_after_rescd));
	json_dumpf(document, stdout, JSON_INDENT(2));
	putchar('\n');
	json_decref(document);
}

void report_print(const struct report *report, const char *doctor)
{
	const struct samples *all[] = {&report->reaped, &report->reaped_without_rescd, &report->exact, &report->exact_after_rescd};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
		if (all[i]->count != 0)
			qsort(all[i]->values, all[i]->count, sizeof(double), by_size);
	if (storm.json)
		print_json(report, doctor);
	else
		print_page(report, doctor);
}
