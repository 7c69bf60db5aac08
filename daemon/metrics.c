/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a host's view of its dependencies belongs on the pages that people are paged from. Names, units and types follow the
 * Prometheus conventions; a scraper that asks for OpenMetrics gets that. One page, two dialects: the dialects differ in where
 * the suffix of a counter stands and in how the page ends, and nowhere else here.
 *
 * What it guarantees: every series of a configured resource is there from the first scrape, at 0, so that rate() and alerts work
 * before the first failure; those of a removed resource are gone. Counters never go back while the segment lives. All values of a
 * resource come from one reading (inspect.h), the same that resctl prints.
 *
 * The server runs inside rescd's own loop: libmicrohttpd gives its epoll descriptor to ours, and has no thread. A page is made in
 * memory as a whole, so a slow reader costs a buffer for some seconds and holds nothing up. A connection lasts some seconds at most,
 * whatever it does: libmicrohttpd's own timeout is for silence, and one byte now and then would keep a place for ever.
 */
#include "metrics.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <microhttpd.h>
#include <netdb.h>
#include <stdio_ext.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "inspect.h"
#include "log.h"
#include "override.h"
#include "states.h"

#define CONNECTION_TIMEOUT_S 5u
#define RUNS_AT_ONCE         64u

/* ---- the page ---- */

struct page {
	FILE *out;
	bool openmetrics;
	struct inspect_resource *resources;
	const struct inspect_resource *end;
};

enum family_type { COUNTER, GAUGE, HISTOGRAM, INFO };

static void family(const struct page *page, const char *name, enum family_type type, const char *help)
{
	static const char *const words[] = {"counter", "gauge", "histogram", "info"};
	const char *suffix = "", *kind = words[type];

	/* OpenMetrics names the family, the older text names the sample. */
	if (type == COUNTER && !page->openmetrics)
		suffix = "_total";
	if (type == INFO && !page->openmetrics) {
		suffix = "_info";
		kind = "gauge";
	}
	fprintf(page->out, "# HELP %s%s %s\n# TYPE %s%s %s\n", name, suffix, help, name, suffix, kind);
}

static void label_value(FILE *out, const char *text)
{
	size_t plain = strspn(text, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-");

	fwrite(text, 1, plain, out); /* all of it, nearly always: these are the characters of names */
	for (text += plain; *text; text++) {
		if (*text == '\n')
			fputs("\\n", out);
		else if (*text == '"' || *text == '\\')
			fprintf(out, "\\%c", *text);
		else if ((unsigned char)*text >= ' ' && (unsigned char)*text < 0x7f)
			fputc(*text, out); /* what is not text is left out: the page stays UTF-8 whatever lies in the segment */
	}
}

/* metric{resource="...",key="value"}; key may be NULL. The value follows. */
static void series(const struct page *page, const char *metric, const struct inspect_resource *r, const char *key, const char *value)
{
	fprintf(page->out, "%s{resource=\"", metric);
	label_value(page->out, r->name);
	if (value) {
		fprintf(page->out, "\",%s=\"", key);
		label_value(page->out, value);
	}
	fputs("\"} ", page->out);
}

static void number(const struct page *page, uint64_t value)
{
	fprintf(page->out, "%" PRIu64 "\n", value);
}

/* Not printf's %f: it would follow a locale, and lose digits. millionths keep what the segment keeps. */
static void millionths(FILE *out, uint64_t value)
{
	fprintf(out, "%" PRIu64 ".%06" PRIu64, value / 1000000u, value % 1000000u);
}

static void seconds(const struct page *page, uint64_t value_us)
{
	millionths(page->out, value_us);
	fputc('\n', page->out);
}

typedef uint64_t (*value_fn)(const struct inspect_resource *r);

static void gauge(const struct page *page, const char *name, const char *help, value_fn value)
{
	family(page, name, GAUGE, help);
	for (const struct inspect_resource *r = page->resources; r < page->end; r++) {
		series(page, name, r, NULL, NULL);
		number(page, value(r));
	}
}

static uint64_t state_of(const struct inspect_resource *r)
{
	return r->breaker == TAG_OPEN ? 1 : r->breaker == TAG_HALF_OPEN ? 2 : 0;
}
static uint64_t probe_due_of(const struct inspect_resource *r)
{
	return r->probe_due;
}
static uint64_t in_use_of(const struct inspect_resource *r)
{
	return r->in_flight;
}
static uint64_t limit_of(const struct inspect_resource *r)
{
	return r->limited ? r->limit : 0;
}
static uint64_t probes_out_of(const struct inspect_resource *r)
{
	return r->probes_out;
}
static uint64_t window_calls_of(const struct inspect_resource *r)
{
	return r->window_calls;
}
static uint64_t window_failures_of(const struct inspect_resource *r)
{
	return r->window_failures;
}
static uint64_t window_slow_of(const struct inspect_resource *r)
{
	return r->window_slow;
}
static uint64_t consecutive_of(const struct inspect_resource *r)
{
	return r->consecutive;
}
static uint64_t waiting_of(const struct inspect_resource *r)
{
	return r->waiting;
}
static uint64_t retries_of(const struct inspect_resource *r)
{
	return r->retries;
}
static uint64_t rate_burst_of(const struct inspect_resource *r)
{
	return r->rated ? r->policy.rate_burst : 0;
}
static uint64_t throttle_requests_of(const struct inspect_resource *r)
{
	return r->throttle_requests;
}
static uint64_t throttle_accepts_of(const struct inspect_resource *r)
{
	return r->throttle_accepts;
}

/* ---- counters ---- */

/*
 * A family is one counter of that name; or, where it has a label, all counters whose name begins so, and the rest of the name is the value
 * of the label. A counter that is added to a table is on the page by that; where it needs a family of its own a unit test says so.
 */
struct counter_family {
	const char *name;
	const char *label;
	const char *counter;
	const char *help;
};

static const struct counter_family families[] = {
        {"resc_enters", NULL, "enters", "Calls that asked for admission: admitted and refused."},
        {"resc_admitted", NULL, "admitted", "Calls admitted."},
        {"resc_waited_calls", NULL, "waited", "Calls admitted after waiting for a permit or for the rate limit."},
        {"resc_calls", "outcome", "ended_", "Admitted calls that ended, by outcome."},
        {"resc_refusals", "reason", "refused_", "Calls refused, by the guard that refused."},
        {"resc_would_refuse", "reason", "would_", "What guards in shadow mode would have refused, by guard."},
        {"resc_slow_calls", NULL, "slow", "Calls that took longer than slow_call."},
        {"resc_stale_results", NULL, "stale", "Results that came too late to count."},
        {"resc_untracked_calls", NULL, "untracked", "Calls admitted without a permit cell, because none was left and no limit is set."},
        {"resc_fallbacks", "kind", "fallback_", "Answers that were given without the dependency, by kind."},
        {"resc_once", "event", "once_", "Idempotency keys begun (first) and done, and what repeated ones were told."},
        {"resc_probes", NULL, "probes", "Probes admitted."},
        {"resc_probes_reclaimed", NULL, "probes_reclaimed", "Probe leases taken back from dead or overdue owners."},
        {"resc_permits_reclaimed", NULL, "permits_reclaimed", "Permits taken back from dead owners."},
        {"resc_retries", NULL, "retries", "Retries granted."},
        {"resc_injection_calls", "fault", "injected_", "Admitted calls that drew a fault which an operator injects, by fault."},
        {"resc_retries_refused", "reason", "retry_", "Retries refused, by reason."},
};

static bool is_of_family(const struct counter_family *f, const char *counter)
{
	return f->label ? strncmp(counter, f->counter, strlen(f->counter)) == 0 : strcmp(counter, f->counter) == 0;
}

/* The rest of the counter's name; or all of it, where that is the name of an answer, as "retry_deadline" is. */
static const char *label_of(const struct counter_family *f, const char *counter)
{
	static const char *const answers[] = {
#define X(NAME, name, text) #name,
	        RESC_RETRY_REFUSALS(X)
#undef X
	};

	for (size_t i = 0; i < sizeof(answers) / sizeof(answers[0]); i++)
		if (strcmp(counter, answers[i]) == 0)
			return counter;
	return counter + strlen(f->counter);
}

static void write_family(const struct page *page, const struct counter_family *f)
{
	struct {
		unsigned counter;
		const char *label;
	} members[COUNTERS_SHOWN];
	size_t count = 0;
	char sample[64];

	for (unsigned i = 0; i < COUNTERS_SHOWN; i++)
		if (is_of_family(f, counter_name(i))) {
			members[count].counter = i;
			members[count++].label = f->label ? label_of(f, counter_name(i)) : NULL;
		}
	family(page, f->name, COUNTER, f->help);
	snprintf(sample, sizeof(sample), "%s_total", f->name);
	for (const struct inspect_resource *r = page->resources; r < page->end; r++)
		for (size_t i = 0; i < count; i++) {
			series(page, sample, r, f->label, members[i].label);
			number(page, counter_value(&r->counters, members[i].counter));
		}
}

static void write_counters(const struct page *page)
{
	for (size_t i = 0; i < sizeof(families) / sizeof(families[0]); i++)
		write_family(page, &families[i]);
}

/* ---- the parts of the page ---- */

static void write_modes(const struct page *page)
{
	family(page, "resc_policy_mode", GAUGE,
	       "Mode of each block of the policy: 0 off, 1 shadow (counts, and refuses nothing), 2 enforce.");
	for (const struct inspect_resource *r = page->resources; r < page->end; r++)
		for (enum policy_part b = 0; b < PARTS; b++) {
			series(page, "resc_policy_mode", r, "policy", part_name(b));
			number(page, part_mode_of(&r->policy, b));
		}
}

static void write_breakers(const struct page *page)
{
	static const enum override_mode modes[] = {OVERRIDE_OPEN, OVERRIDE_CLOSED, OVERRIDE_DISABLED};

	gauge(page, "resc_breaker_state", "State of the breaker: 0 closed, 1 open, 2 half-open.", state_of);
	gauge(page, "resc_breaker_probe_due", "1 while the breaker is open, its cooldown is over and no call has come yet.", probe_due_of);
	family(page, "resc_override_info", GAUGE, "1 for the mode that an operator has forced the resource into.");
	for (const struct inspect_resource *r = page->resources; r < page->end; r++)
		for (size_t m = 0; m < sizeof(modes) / sizeof(modes[0]); m++) {
			series(page, "resc_override_info", r, "mode", override_mode_name(modes[m]));
			number(page, r->override.mode == modes[m]);
		}
	family(page, "resc_transitions", COUNTER, "Moves of the breaker, by the state that it moved to.");
	for (const struct inspect_resource *r = page->resources; r < page->end; r++) {
		series(page, "resc_transitions_total", r, "to", "closed");
		number(page, r->counters.closed);
		series(page, "resc_transitions_total", r, "to", "open");
		number(page, r->counters.opened);
		series(page, "resc_transitions_total", r, "to", "half_open");
		number(page, r->counters.half_opened);
	}
	gauge(page, "resc_window_calls", "Calls in the breaker's window now.", window_calls_of);
	gauge(page, "resc_window_failures", "Failed calls in the breaker's window now.", window_failures_of);
	gauge(page, "resc_window_slow", "Slow calls in the breaker's window now.", window_slow_of);
	gauge(page, "resc_consecutive_failures", "Failures in a row now.", consecutive_of);
	gauge(page, "resc_probes_out", "Probes that are out now.", probes_out_of);
}

static void write_permits(const struct page *page)
{
	gauge(page, "resc_permits_in_use", "Calls that are inside now, on the whole host.", in_use_of);
	gauge(page, "resc_permits_limit", "Limit of the bulkhead on calls inside; 0: none.", limit_of);
	gauge(page, "resc_permits_waiting", "Calls that wait for a permit now.", waiting_of);
}

/* The budget's numbers are doubles with six digits behind the point that mean something. */
static uint64_t to_millionths(double value)
{
	return value <= 0 ? 0 : value >= 1e12 ? UINT64_C(1000000000000000000) : (uint64_t)(value * 1e6 + 0.5);
}

static void tokens(const struct page *page, const char *name, const char *help, double (*value)(const struct inspect_resource *r))
{
	family(page, name, GAUGE, help);
	for (const struct inspect_resource *r = page->resources; r < page->end; r++) {
		series(page, name, r, NULL, NULL);
		seconds(page, to_millionths(value(r)));
	}
}

static double retry_tokens_of(const struct inspect_resource *r)
{
	return r->budgeted ? r->tokens : 0;
}
static double retry_capacity_of(const struct inspect_resource *r)
{
	return r->budgeted ? r->capacity : 0;
}
static double rate_tokens_of(const struct inspect_resource *r)
{
	return r->rated ? r->rate_tokens : 0;
}
static double rate_per_second_of(const struct inspect_resource *r)
{
	return r->rated ? (double)r->policy.rate_per_second / (double)TOKEN : 0;
}
static double throttle_of(const struct inspect_resource *r)
{
	return (double)r->throttle_ppm / 1e6;
}

static void write_retries(const struct page *page)
{
	gauge(page, "resc_retries_in_flight", "Of the calls that are inside now, those that are retries.", retries_of);
	tokens(page, "resc_retry_tokens", "Tokens in the retry budget now; 0 where there is no budget.", retry_tokens_of);
	tokens(page, "resc_retry_tokens_capacity", "Tokens that the retry budget can hold; 0 where there is no budget.", retry_capacity_of);
}

static void write_rate(const struct page *page)
{
	tokens(page, "resc_rate_tokens", "Calls that the rate limit would admit at once now; 0 where there is no rate limit.",
	       rate_tokens_of);
	gauge(page, "resc_rate_burst", "Calls that the rate limit admits at once at most; 0 where there is no rate limit.", rate_burst_of);
	tokens(page, "resc_rate_limit_per_second", "Calls a second of the rate limit; 0 where there is no rate limit.", rate_per_second_of);
	tokens(page, "resc_throttle_ratio", "Share of the calls that the client-side throttle refuses now, 0 to 1.", throttle_of);
	gauge(page, "resc_throttle_requests", "Requests in the throttle's window now.", throttle_requests_of);
	gauge(page, "resc_throttle_accepts", "Of the requests in the throttle's window, those that the dependency accepted.",
	      throttle_accepts_of);
}

static double injected_failures_of(const struct inspect_resource *r)
{
	return (double)r->injection.what.fail_ppm / 1e6;
}
static double injected_delays_of(const struct inspect_resource *r)
{
	return (double)r->injection.what.share_ppm / 1e6;
}
static double injected_latency_of(const struct inspect_resource *r)
{
	return (double)r->injection.what.latency_ms / 1e3;
}
static double injection_left_of(const struct inspect_resource *r)
{
	return r->injection.on ? (double)(r->injection.until_ms - r->now_ms) / 1e3 : 0;
}

static void write_injection(const struct page *page)
{
	tokens(page, "resc_injection_fail_ratio", "Share of the calls that an operator's injection makes fail now, 0 to 1.",
	       injected_failures_of);
	tokens(page, "resc_injection_latency_ratio", "Share of the calls that an operator's injection slows down now, 0 to 1.",
	       injected_delays_of);
	tokens(page, "resc_injection_latency_seconds", "How long those are made to wait.", injected_latency_of);
	tokens(page, "resc_injection_left_seconds", "How long an operator's injection goes on; 0: there is none.", injection_left_of);
}

/* ---- latencies ---- */

/* Wanted upper edges in microseconds. The real ones are those of the segment's buckets, the first that is not below. */
static const uint64_t edges_us[] = {100,   250,    500,    1000,   2500,    5000,    10000,   25000,
                                    50000, 100000, 250000, 500000, 1000000, 2500000, 5000000, 10000000};
#define EDGES (sizeof(edges_us) / sizeof(edges_us[0]))

static unsigned edge_bucket(uint64_t wanted_us)
{
	unsigned bucket = 0;

	while (bucket < LATENCY_BUCKETS - 1 && latency_edge_us(bucket) < wanted_us)
		bucket++;
	return bucket;
}

static void histogram_bucket(const struct page *page, const struct inspect_resource *r, const char *le, uint64_t count)
{
	series(page, "resc_latency_seconds_bucket", r, "le", le);
	number(page, count);
}

static void write_latency(const struct page *page)
{
	unsigned last[EDGES];
	char le[EDGES][32];

	for (size_t e = 0; e < EDGES; e++) {
		uint64_t us;

		last[e] = edge_bucket(edges_us[e]);
		us = latency_edge_us(last[e]);
		snprintf(le[e], sizeof(le[e]), "%" PRIu64 ".%06" PRIu64, us / 1000000u, us % 1000000u);
	}
	family(page, "resc_latency_seconds", HISTOGRAM, "How long admitted calls took, where the policy measures it.");
	for (const struct inspect_resource *r = page->resources; r < page->end; r++) {
		uint64_t below = 0, total = 0;
		unsigned bucket = 0;

		for (size_t e = 0; e < EDGES; e++) {
			for (; bucket <= last[e]; bucket++)
				below += r->latency.buckets[bucket];
			histogram_bucket(page, r, le[e], below);
		}
		/* The count is the sum of the buckets of this reading: readers refuse a histogram whose parts disagree. */
		for (unsigned b = 0; b < LATENCY_BUCKETS; b++)
			total += r->latency.buckets[b];
		histogram_bucket(page, r, "+Inf", total);
		series(page, "resc_latency_seconds_sum", r, NULL, NULL);
		seconds(page, r->latency.sum_us);
		series(page, "resc_latency_seconds_count", r, NULL, NULL);
		number(page, total);
	}
}

/* ---- the host ---- */

static void single(const struct page *page, const char *name, enum family_type type, const char *help, uint64_t value)
{
	family(page, name, type, help);
	fprintf(page->out, "%s%s %" PRIu64 "\n", name, type == COUNTER ? "_total" : "", value);
}

static uint64_t count_made(const struct page *page)
{
	uint64_t count = 0;

	for (const struct inspect_resource *r = page->resources; r < page->end; r++)
		count += (r->policy.flags & POLICY_MADE) != 0;
	return count;
}

static void write_keys(const struct page *page, const struct map *map)
{
	struct once_usage usage;

	inspect_once(map, &usage);
	const struct {
		const char *state;
		uint32_t count;
	} states[] = {{"working", usage.working}, {"done", usage.done}, {"unknown", usage.unknown}};

	family(page, "resc_once_keys", GAUGE, "Idempotency keys in the table now, by state, those that have expired included.");
	for (size_t i = 0; i < sizeof(states) / sizeof(states[0]); i++)
		fprintf(page->out, "resc_once_keys{state=\"%s\"} %" PRIu32 "\n", states[i].state, states[i].count);
	single(page, "resc_once_keys_expired", GAUGE, "Of these keys, those that have expired: a new key may take their place.",
	       usage.expired);
	single(page, "resc_once_keys_limit", GAUGE, "Places for idempotency keys.", usage.size);
}

static void write_host(const struct page *page, const struct map *map)
{
	struct inspect_daemon d;

	inspect_daemon(map, &d);
	family(page, "resc_build", INFO, "The version of rescd.");
	fprintf(page->out, "resc_build_info{version=\"%s\"} 1\n", RESC_VERSION_STRING);
	family(page, "resc_instance", INFO, "The instance, and the generation of its segment.");
	fputs("resc_instance_info{instance=\"", page->out);
	label_value(page->out, map->instance);
	fprintf(page->out, "\",generation=\"%016" PRIx64 "\"} 1\n", map->generation);
	single(page, "resc_workers", GAUGE, "Workers that are attached now.", d.workers);
	single(page, "resc_workers_limit", GAUGE, "Places for workers.", map->dims.workers);
	single(page, "resc_workers_reaped", COUNTER, "Workers that died without leaving.", d.lives_reaped);
	single(page, "resc_resources", GAUGE, "Resources in use: configured, or made from a pattern.",
	       (uint64_t)(page->end - page->resources));
	single(page, "resc_resources_made", GAUGE, "Of the resources, those that were made at run time from a pattern.", count_made(page));
	single(page, "resc_lookups_refused", COUNTER, "Lookups of a name that a pattern fits, for which there was no room.",
	       d.lookups_refused);
	write_keys(page, map);
	single(page, "resc_segment_size_bytes", GAUGE, "Size of the segment.", map->size);
	single(page, "resc_config_reload_success", GAUGE, "1 when the last load of the configuration succeeded, 0 when it failed.",
	       !d.reload_failed);
	single(page, "resc_config_reloads", COUNTER, "Loads of the configuration that succeeded, the first included.", d.reloads);
	single(page, "resc_config_reloads_failed", COUNTER, "Loads of the configuration that failed.", d.reloads_failed);
	family(page, "resc_config_last_reload_timestamp_seconds", GAUGE,
	       "When the configuration was last tried to load, on the wall clock.");
	fputs("resc_config_last_reload_timestamp_seconds ", page->out);
	seconds(page, map->created_real_ns / 1000u + d.reload_ms * 1000u);
}

static int read_resources(struct page *page, const struct map *map)
{
	uint32_t records = states_in_use(map);
	struct inspect_resource *next = calloc(records ? records : 1, sizeof(*next));

	if (!next)
		return -ENOMEM;
	page->resources = next;
	for (uint32_t i = 0; i < records; i++) {
		if (inspect_resource(map, i, next) == 0)
			next++;
		states_forget_now_and_then(map, i);
	}
	page->end = next;
	states_forget(map);
	return 0;
}

int metrics_write(FILE *out, const struct map *map, bool openmetrics)
{
	struct page page = {.out = out, .openmetrics = openmetrics};
	int r = read_resources(&page, map);

	if (r < 0)
		return r;
	__fsetlocking(out, FSETLOCKING_BYCALLER); /* one thread, and tens of thousands of small writes */
	write_host(&page, map);
	write_breakers(&page);
	write_modes(&page);
	write_counters(&page);
	write_permits(&page);
	write_retries(&page);
	write_rate(&page);
	write_injection(&page);
	write_latency(&page);
	if (openmetrics)
		fputs("# EOF\n", out);
	free(page.resources);
	return ferror(out) ? -ENOMEM : 0;
}

/* ---- the server ---- */

static enum MHD_Result reply(struct MHD_Connection *connection, unsigned status, const char *type, char *body, size_t size,
                             enum MHD_ResponseMemoryMode mode)
{
	struct MHD_Response *response = MHD_create_response_from_buffer(size, body, mode);
	enum MHD_Result result;

	if (!response)
		return MHD_NO;
	MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, type);
	if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
		MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
	result = MHD_queue_response(connection, status, response);
	MHD_destroy_response(response);
	return result;
}

static enum MHD_Result reply_text(struct MHD_Connection *connection, unsigned status, const char *text)
{
	return reply(connection, status, "text/plain; charset=utf-8", (char *)(uintptr_t)text, strlen(text), MHD_RESPMEM_PERSISTENT);
}

static bool wants_openmetrics(struct MHD_Connection *connection)
{
	const char *accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);

	return accept && strcasestr(accept, "application/openmetrics-text");
}

/* What is rescd's own, and not in the segment. */
static void write_own(FILE *out, const struct metrics *metrics, bool openmetrics)
{
	const struct page page = {.out = out, .openmetrics = openmetrics};

	if (metrics->refused)
		single(&page, "resc_control_refused", COUNTER, "Connections to the control socket of those who may not command.",
		       *metrics->refused);
}

static enum MHD_Result reply_page(struct MHD_Connection *connection, const struct metrics *metrics)
{
	bool openmetrics = wants_openmetrics(connection);
	char *body = NULL;
	size_t size = 0;
	FILE *out = open_memstream(&body, &size);
	int r = -ENOMEM;

	if (out) {
		write_own(out, metrics, openmetrics);
		r = metrics_write(out, metrics->map, openmetrics);
	}
	if (out && fclose(out) != 0)
		r = -ENOMEM;
	if (r < 0) {
		free(body);
		return reply_text(connection, MHD_HTTP_INTERNAL_SERVER_ERROR, "out of memory\n");
	}
	return reply(connection, MHD_HTTP_OK,
	             openmetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
	                         : "text/plain; version=0.0.4; charset=utf-8",
	             body, size, MHD_RESPMEM_MUST_FREE);
}

static enum MHD_Result answer(void *arg, struct MHD_Connection *connection, const char *url, const char *method, const char *version,
                              const char *upload, size_t *upload_size, void **request)
{
	const struct metrics *metrics = arg;
	static int seen;

	(void)version;
	(void)upload;
	if (!*request) { /* the headers are there; the answer is due when the request is complete */
		*request = &seen;
		return MHD_YES;
	}
	if (*upload_size > 0) { /* a body that nobody asked for is read and dropped */
		*upload_size = 0;
		return MHD_YES;
	}
	if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
		return reply_text(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD\n");
	if (strcmp(url, "/metrics") == 0)
		return reply_page(connection, metrics);
	if (strcmp(url, "/healthz") == 0)
		return reply_text(connection, MHD_HTTP_OK, "ok\n");
	return reply_text(connection, MHD_HTTP_NOT_FOUND, "not here: /metrics and /healthz are\n");
}

static void http_ready(void *arg, uint32_t events)
{
	struct metrics *metrics = arg;
	unsigned long long left;

	(void)events;
	/* Edge-triggered inside: what it has read and not looked at yet makes no new event. */
	for (unsigned i = 0; i < RUNS_AT_ONCE; i++) {
		MHD_run(metrics->http);
		if (MHD_get_timeout(metrics->http, &left) != MHD_YES || left > 0)
			return;
	}
}

/* getaddrinfo takes any number, and cuts it. */
static bool is_port(const char *text)
{
	size_t digits = strspn(text, "0123456789");

	return digits > 0 && digits <= 5 && text[digits] == '\0' && strtoul(text, NULL, 10) <= 65535;
}

/* "127.0.0.1:9464", "[::1]:9464", ":9464" (all addresses). */
static int resolve(const char *address, struct addrinfo **found, struct resc_error *err)
{
	struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
	const char *colon = strrchr(address, ':');
	char host[64];
	int length, r;

	if (!colon || (size_t)(colon - address) >= sizeof(host) || !is_port(colon + 1))
		return error_set(err, -EINVAL, "metrics '%s': HOST:PORT is expected, as 127.0.0.1:9464", address);
	length = (int)(colon - address);
	snprintf(host, sizeof(host), "%.*s", length, address);
	if (host[0] == '[' && length > 1 && host[length - 1] == ']') {
		host[length - 1] = '\0';
		memmove(host, host + 1, strlen(host));
	}
	r = getaddrinfo(host[0] ? host : NULL, colon + 1, &hints, found);
	return r == 0 ? 0 : error_set(err, -EINVAL, "metrics '%s': %s", address, gai_strerror(r));
}

static int listen_at(const struct addrinfo *where)
{
	int fd = socket(where->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	int on = 1, code;

	if (fd < 0)
		return -errno;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, where->ai_addr, where->ai_addrlen) == 0 && listen(fd, METRICS_CONNECTIONS) == 0)
		return fd;
	code = -errno;
	close(fd);
	return code;
}

static uint64_t now_ms(void)
{
	return clock_read_ns(CLOCK_MONOTONIC) / 1000000u;
}

static void connection_changed(void *arg, struct MHD_Connection *connection, void **context, enum MHD_ConnectionNotificationCode code)
{
	struct metrics *metrics = arg;
	struct metrics_connection *mine = *context;
	const union MHD_ConnectionInfo *info;

	if (code == MHD_CONNECTION_NOTIFY_CLOSED && mine)
		mine->fd = -1;
	info = code == MHD_CONNECTION_NOTIFY_STARTED ? MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD) : NULL;
	for (size_t i = 0; info && i < METRICS_CONNECTIONS; i++) {
		if (metrics->connections[i].fd >= 0)
			continue;
		metrics->connections[i] = (struct metrics_connection){info->connect_fd, now_ms() + UINT64_C(1000) * CONNECTION_TIMEOUT_S};
		*context = &metrics->connections[i];
		return;
	}
}

static int start_server(struct metrics *metrics, int listener)
{
	const union MHD_DaemonInfo *info;
	int epoll;

	metrics->http = MHD_start_daemon(MHD_USE_EPOLL, 0, NULL, NULL, answer, metrics, MHD_OPTION_LISTEN_SOCKET, listener,
	                                 MHD_OPTION_CONNECTION_LIMIT, (unsigned)METRICS_CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT,
	                                 CONNECTION_TIMEOUT_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)16384,
	                                 MHD_OPTION_NOTIFY_CONNECTION, connection_changed, metrics, MHD_OPTION_END);
	if (!metrics->http)
		return -ENOMEM;
	info = MHD_get_daemon_info(metrics->http, MHD_DAEMON_INFO_EPOLL_FD);
	/* A descriptor of our own for the same epoll, so that the watch can close what it watches. */
	epoll = info ? fcntl(info->epoll_fd, F_DUPFD_CLOEXEC, 3) : -1;
	if (epoll < 0 || loop_add(metrics->loop, &metrics->watch, epoll, EPOLLIN) < 0) {
		if (epoll >= 0)
			close(epoll);
		MHD_stop_daemon(metrics->http); /* closes the listener too */
		metrics->http = NULL;
		return -ENOMEM;
	}
	return 0;
}

int metrics_open(struct metrics *metrics, struct loop *loop, const struct map *map, const char *address, struct resc_error *err)
{
	struct addrinfo *found = NULL;
	int fd, r;

	*metrics = (struct metrics){.loop = loop, .map = map, .refused = metrics->refused};
	for (size_t i = 0; i < METRICS_CONNECTIONS; i++)
		metrics->connections[i].fd = -1;
	metrics->watch = (struct watch){.fd = -1, .ready = http_ready, .arg = metrics};
	if (!address || address[0] == '\0')
		return 0;
	if (strlen(address) >= sizeof(metrics->address))
		return error_set(err, -EINVAL, "metrics '%s': too long", address);
	r = resolve(address, &found, err);
	if (r < 0)
		return r;
	if (!found)
		return error_set(err, -EINVAL, "metrics '%s': no address", address);
	fd = listen_at(found);
	freeaddrinfo(found);
	if (fd < 0)
		return error_set(err, fd, "metrics '%s': cannot listen: %s", address, strerror(-fd));
	r = start_server(metrics, fd);
	if (r < 0)
		return error_set(err, r, "metrics '%s': the HTTP server does not start", address);
	snprintf(metrics->address, sizeof(metrics->address), "%s", address);
	return 0;
}

unsigned metrics_port(const struct metrics *metrics)
{
	const union MHD_DaemonInfo *info = metrics->http ? MHD_get_daemon_info(metrics->http, MHD_DAEMON_INFO_LISTEN_FD) : NULL;
	struct sockaddr_storage name = {0};
	socklen_t size = sizeof(name);
	char port[8];

	if (!info || getsockname(info->listen_fd, (struct sockaddr *)&name, &size) < 0 ||
	    getnameinfo((struct sockaddr *)&name, size, NULL, 0, port, sizeof(port), NI_NUMERICSERV) != 0)
		return 0;
	return (unsigned)strtoul(port, NULL, 10);
}

void metrics_tick(struct metrics *metrics)
{
	uint64_t now = now_ms();

	if (!metrics->http)
		return;
	/* The end of the stream is an event like any other for whoever owns the descriptor. */
	for (size_t i = 0; i < METRICS_CONNECTIONS; i++)
		if (metrics->connections[i].fd >= 0 && now >= metrics->connections[i].until_ms)
			shutdown(metrics->connections[i].fd, SHUT_RDWR);
	MHD_run(metrics->http);
}

void metrics_close(struct metrics *metrics)
{
	if (!metrics->http)
		return;
	loop_remove(metrics->loop, &metrics->watch);
	MHD_stop_daemon(metrics->http);
	metrics->http = NULL;
	metrics->address[0] = '\0';
}
