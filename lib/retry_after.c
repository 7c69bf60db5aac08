/* SPDX-License-Identifier: MIT */
/*
 * Retry-After: a server's own word on when to come back, as seconds or as one of the three dates of HTTP (RFC 9110, 5.6.7 and 10.2.3):
 *
 *	Sun, 06 Nov 1994 08:49:37 GMT	IMF-fixdate, what is sent today
 *	Sunday, 06-Nov-94 08:49:37 GMT	RFC 850: a year more than 50 years ahead is one of the century before
 *	Sun Nov  6 08:49:37 1994	asctime
 *
 * Read by hand, because strptime follows the locale of the program and would also take what is none of these. Case counts, as the RFC says;
 * which day of the week it is does not, because a server that is wrong about that has still said when. A date is the one thing here
 * that needs the wall clock: hosts share no other. It is turned into milliseconds from now at once, and nothing wraps.
 */
#include "retry_after.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>
#include <time.h>

#include "digits.h"
#include "resc.h"

static const char *const months[] = {"Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
static const char *const short_days[] = {"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
static const char *const long_days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};

/* What is left to read. NULL: it was something else. */
struct cursor {
	const char *at;
};

static void take_text(struct cursor *c, const char *text)
{
	size_t length = strlen(text);

	if (c->at != NULL)
		c->at = strncmp(c->at, text, length) == 0 ? c->at + length : NULL;
}

/* Which of the names it is. */
static int take_name(struct cursor *c, const char *const *names, int count)
{
	for (int i = 0; i < count && c->at != NULL; i++) {
		struct cursor after = *c;
		take_text(&after, names[i]);
		if (after.at == NULL)
			continue;
		*c = after;
		return i;
	}
	c->at = NULL;
	return 0;
}

static int take_digits(struct cursor *c, size_t count)
{
	if (c->at == NULL || strnlen(c->at, count) < count) {
		c->at = NULL;
		return 0;
	}
	int64_t number = digits_read(c->at, count);
	c->at = number < 0 ? NULL : c->at + count;
	return (int)number;
}

static void take_time(struct cursor *c, struct tm *date)
{
	date->tm_hour = take_digits(c, 2);
	take_text(c, ":");
	date->tm_min = take_digits(c, 2);
	take_text(c, ":");
	date->tm_sec = take_digits(c, 2);
}

static bool is_whole(const struct cursor *c)
{
	return c->at != NULL && *c->at == '\0';
}

static bool read_fixdate(const char *text, struct tm *date)
{
	struct cursor c = {text};

	take_name(&c, short_days, 7);
	take_text(&c, ", ");
	date->tm_mday = take_digits(&c, 2);
	take_text(&c, " ");
	date->tm_mon = take_name(&c, months, 12);
	take_text(&c, " ");
	date->tm_year = take_digits(&c, 4) - 1900;
	take_text(&c, " ");
	take_time(&c, date);
	take_text(&c, " GMT");
	return is_whole(&c);
}

/* The year with these last digits that is at most 50 years ahead. As tm_year. */
static int nearest_year(int last_digits, int64_t now_ms)
{
	time_t now = (time_t)(now_ms / 1000);
	struct tm today;

	if (gmtime_r(&now, &today) == NULL)
		return last_digits;
	int year = today.tm_year - today.tm_year % 100 + last_digits;
	if (year > today.tm_year + 50)
		year -= 100;
	else if (year <= today.tm_year - 50)
		year += 100;
	return year;
}

static bool read_rfc850(const char *text, int64_t now_ms, struct tm *date)
{
	struct cursor c = {text};

	take_name(&c, long_days, 7);
	take_text(&c, ", ");
	date->tm_mday = take_digits(&c, 2);
	take_text(&c, "-");
	date->tm_mon = take_name(&c, months, 12);
	take_text(&c, "-");
	date->tm_year = nearest_year(take_digits(&c, 2), now_ms);
	take_text(&c, " ");
	take_time(&c, date);
	take_text(&c, " GMT");
	return is_whole(&c);
}

static bool read_asctime(const char *text, struct tm *date)
{
	struct cursor c = {text};

	take_name(&c, short_days, 7);
	take_text(&c, " ");
	date->tm_mon = take_name(&c, months, 12);
	take_text(&c, " ");
	if (c.at != NULL && *c.at == ' ') {
		c.at++;
		date->tm_mday = take_digits(&c, 1);
	} else {
		date->tm_mday = take_digits(&c, 2);
	}
	take_text(&c, " ");
	take_time(&c, date);
	take_text(&c, " ");
	date->tm_year = take_digits(&c, 4) - 1900;
	return is_whole(&c);
}

/* Seconds since 1970 of a date that there is. 60 is a leap second, which is the next minute's first for the clock. */
static bool to_seconds(const struct tm *date, int64_t *seconds)
{
	struct tm day = {.tm_year = date->tm_year, .tm_mon = date->tm_mon, .tm_mday = date->tm_mday};

	if (date->tm_hour > 23 || date->tm_min > 59 || date->tm_sec > 60)
		return false;
	/* timegm turns the 30th of February into a day of March. */
	*seconds = (int64_t)timegm(&day) + INT64_C(3600) * date->tm_hour + INT64_C(60) * date->tm_min + date->tm_sec;
	return day.tm_mday == date->tm_mday && day.tm_mon == date->tm_mon;
}

int retry_after_parse(const char *text, int64_t now_ms, int64_t *ms)
{
	struct tm date = {0};
	int64_t seconds = digits_read(text, strlen(text));

	if (seconds >= 0) {
		*ms = seconds > INT64_MAX / 1000 ? INT64_MAX : seconds * 1000;
		return 0;
	}
	if (!read_fixdate(text, &date) && !read_rfc850(text, now_ms, &date) && !read_asctime(text, &date))
		return -EINVAL;
	if (!to_seconds(&date, &seconds))
		return -EINVAL;
	/* A year has four digits, so nothing overflows. */
	*ms = seconds * 1000 > now_ms ? seconds * 1000 - now_ms : 0;
	return 0;
}

int resc_retry_after_parse(const char *text, int64_t *ms)
{
	struct timespec now;

	if (text == NULL || ms == NULL)
		return -EINVAL;
	clock_gettime(CLOCK_REALTIME, &now);
	return retry_after_parse(text, now.tv_sec < 0 ? 0 : (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000, ms);
}
