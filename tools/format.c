/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: the person who reads this was asleep a minute ago. A number should be as long as the decision needs, carry its unit,
 * and never claim more than was measured; but where a policy is shown, it must be the very value of the configuration.
 */
#include "format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "resc.h"

#define NS_PER_S UINT64_C(1000000000)

/* ---- durations ---- */

/* "2m5s", or "2m" when nothing is left over. */
static struct text two_units(uint64_t large, const char *large_name, uint64_t small, const char *small_name)
{
	struct text t;

	if (small == 0)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "%s", large, large_name);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "%s%" PRIu64 "%s", large, large_name, small, small_name);
	return t;
}

struct text duration_text(uint64_t ms)
{
	struct text t;
	uint64_t s = ms / 1000;

	if (ms < 1000)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "ms", ms);
	else if (ms < 10000)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 ".%" PRIu64 "s", s, ms / 100 % 10);
	else if (s < 60)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "s", s);
	else if (s < 3600)
		return two_units(s / 60, "m", s % 60, "s");
	else if (s < 86400)
		return two_units(s / 3600, "h", s / 60 % 60, "m");
	else
		return two_units(s / 86400, "d", s / 3600 % 24, "h");
	return t;
}

/* Units in which durations are written, largest first. Days are not among them: the configuration does not know them. */
static const struct {
	const char *name;
	uint64_t ns;
} units[] = {{"h", 3600 * NS_PER_S}, {"m", 60 * NS_PER_S}, {"s", NS_PER_S}, {"ms", 1000000}, {"us", 1000}, {"ns", 1}};

struct text duration_setting_ns(uint64_t ns)
{
	struct text t;
	size_t i = 0;

	if (ns == 0)
		return (struct text){"0ms"};
	while (ns % units[i].ns != 0)
		i++;
	snprintf(t.s, sizeof(t.s), "%" PRIu64 "%s", ns / units[i].ns, units[i].name);
	return t;
}

struct text duration_setting(uint64_t ms)
{
	struct text t;

	if (ms <= UINT64_MAX / 1000000)
		return duration_setting_ns(ms * 1000000);
	snprintf(t.s, sizeof(t.s), "%" PRIu64 "ms", ms);
	return t;
}

struct text latency_text(uint64_t us)
{
	struct text t;

	if (us < 1000)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "us", us);
	else if (us < 60000000)
		/* Three digits: 1.25ms, 12.5ms, 125ms. */
		snprintf(t.s, sizeof(t.s), "%.3g%s", (double)us / (us < 999500 ? 1e3 : 1e6), us < 999500 ? "ms" : "s");
	else
		return duration_text(us / 1000);
	return t;
}

struct text latency_fine_text(double us)
{
	if (us > 0 && us < 0.5)
		return (struct text){"<1us"};
	return latency_text((uint64_t)(us + 0.5));
}

int duration_parse(const char *text, uint64_t most_ms, uint64_t *ms)
{
	static const struct {
		const char *name;
		double ms;
	} accepted[] = {{"ms", 1}, {"s", 1e3}, {"m", 60e3}, {"h", 3600e3}, {"d", 86400e3}};
	double value = 0, digit = 1;
	const char *p = text;

	/* By hand: strtod would take the decimal point from the locale, and "inf", and hexadecimal. */
	if (*p < '0' || *p > '9')
		return -EINVAL;
	for (; *p >= '0' && *p <= '9'; p++)
		value = value * 10 + (*p - '0');
	if (*p == '.' && p[1] >= '0' && p[1] <= '9')
		for (p++; *p >= '0' && *p <= '9'; p++)
			value += (*p - '0') * (digit /= 10);
	for (size_t i = 0; i < sizeof(accepted) / sizeof(accepted[0]); i++) {
		if (strcmp(p, accepted[i].name) != 0)
			continue;
		value = value * accepted[i].ms + 0.5;
		if (value < 1 || value > (double)most_ms + 0.5)
			return -ERANGE;
		*ms = (uint64_t)value;
		return 0;
	}
	return -EINVAL;
}

/* ---- counts and shares ---- */

struct text count_text(uint64_t n)
{
	char digits[24];
	struct text t;
	size_t length = (size_t)snprintf(digits, sizeof(digits), "%" PRIu64, n), out = 0;

	for (size_t i = 0; i < length; i++) {
		if (i > 0 && (length - i) % 3 == 0)
			t.s[out++] = ',';
		t.s[out++] = digits[i];
	}
	t.s[out] = '\0';
	return t;
}

struct text count_short(uint64_t n)
{
	static const char letters[] = "kMGTPE";
	struct text t;
	uint64_t unit = 1000;
	size_t i = 0;

	if (n < 10000) {
		snprintf(t.s, sizeof(t.s), "%" PRIu64, n);
		return t;
	}
	while (i + 2 < sizeof(letters) && n / unit >= 1000) {
		unit *= 1000;
		i++;
	}
	/* Cut, not rounded: 99,999 calls are not 100k yet. */
	if (n / unit < 100)
		snprintf(t.s, sizeof(t.s), "%" PRIu64 ".%" PRIu64 "%c", n / unit, n % unit / (unit / 10), letters[i]);
	else
		snprintf(t.s, sizeof(t.s), "%" PRIu64 "%c", n / unit, letters[i]);
	return t;
}

struct text number_text(double value, int decimals)
{
	struct text t;

	snprintf(t.s, sizeof(t.s), "%.*f", decimals, value < 1e15 ? value : 1e15);
	if (strchr(t.s, '.') == NULL)
		return t;
	char *end = t.s + strlen(t.s);
	while (end[-1] == '0')
		*--end = '\0';
	if (end[-1] == '.')
		end[-1] = '\0';
	return t;
}

struct text rate_text(double per_second)
{
	if (per_second > 0 && per_second < 0.005)
		return (struct text){"<0.01"};
	/* Whatever is more than that was not counted. */
	return per_second < 10 ? number_text(per_second, 2) : count_text((uint64_t)(per_second < 1e15 ? per_second + 0.5 : 1e15));
}

struct text share_text(uint64_t ppm)
{
	struct text t;

	snprintf(t.s, sizeof(t.s), "%.30s%%", number_text((double)ppm / 1e4, 4).s);
	return t;
}

struct text percent_text(uint64_t part, uint64_t whole)
{
	struct text t = {""};

	if (whole == 0)
		return t;
	unsigned rounded = (unsigned)((double)part / (double)whole * 100 + 0.5);
	if (rounded == 0 && part > 0)
		return (struct text){"<1%"};
	if (rounded >= 100 && part < whole)
		return (struct text){">99%"};
	snprintf(t.s, sizeof(t.s), "%u%%", rounded > 100 ? 100 : rounded);
	return t;
}

struct text fine_percent_text(double share)
{
	struct text t;

	if (share > 0 && share < 0.00005)
		return (struct text){"<0.01%"};
	snprintf(t.s, sizeof(t.s), "%.30s%%", number_text(share > 0 ? share * 100 : 0, 2).s);
	return t;
}

/* ---- wall clock ---- */

static struct tm local(uint64_t real_ns)
{
	time_t s = (time_t)(real_ns / NS_PER_S);
	struct tm tm = {.tm_mday = 1};

	localtime_r(&s, &tm);
	return tm;
}

static struct text time_print(const struct tm *tm, uint64_t real_ns, const char *format, const char *zone)
{
	char seconds[24], after[12];
	struct text t;

	strftime(seconds, sizeof(seconds), format, tm);
	strftime(after, sizeof(after), zone, tm);
	snprintf(t.s, sizeof(t.s), "%s.%03u%s", seconds, (unsigned)(real_ns / 1000000 % 1000), after);
	return t;
}

struct text time_local(uint64_t real_ns)
{
	struct tm tm = local(real_ns);

	return time_print(&tm, real_ns, "%Y-%m-%d %H:%M:%S", "");
}

struct text time_local_zone(uint64_t real_ns)
{
	struct tm tm = local(real_ns);

	return time_print(&tm, real_ns, "%Y-%m-%d %H:%M:%S", "%z");
}

struct text time_utc(uint64_t real_ns)
{
	time_t s = (time_t)(real_ns / NS_PER_S);
	struct tm tm = {.tm_mday = 1};

	gmtime_r(&s, &tm);
	return time_print(&tm, real_ns, "%Y-%m-%dT%H:%M:%S", "Z");
}

bool is_today(uint64_t real_ns)
{
	struct tm then = local(real_ns), now = local((uint64_t)time(NULL) * NS_PER_S);

	return then.tm_year == now.tm_year && then.tm_yday == now.tm_yday;
}

/* ---- names ---- */

static unsigned least(unsigned a, unsigned b, unsigned c)
{
	unsigned m = a < b ? a : b;

	return m < c ? m : c;
}

unsigned name_distance(const char *a, const char *b)
{
	unsigned row[RESC_NAME_MAX + 2];
	size_t length = strnlen(b, RESC_NAME_MAX);

	for (unsigned j = 0; j <= length; j++)
		row[j] = j;
	for (unsigned i = 1; a[i - 1] != '\0'; i++) {
		unsigned diagonal = row[0];
		row[0] = i;
		for (unsigned j = 1; j <= length; j++) {
			unsigned above = row[j];
			row[j] = least(row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1]));
			diagonal = above;
		}
	}
	return row[length];
}
