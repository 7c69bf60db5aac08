/* SPDX-License-Identifier: MIT */
/* Retry-After: seconds and the three dates of HTTP, strictly, in any locale, and nothing that wraps. */
#include "retry_after.h"

#include <errno.h>
#include <locale.h>
#include <time.h>

#include "fixture.h"

/* Sun, 06 Nov 1994 08:49:37 GMT */
#define THEN INT64_C(784111777000)

static int64_t read_at(const char *text, int64_t now_ms)
{
	int64_t ms = -77;

	ck_assert_msg(retry_after_parse(text, now_ms, &ms) == 0, "\"%s\"", text);
	return ms;
}

START_TEST(seconds)
{
	ck_assert_int_eq(read_at("120", THEN), 120000);
	ck_assert_int_eq(read_at("0", THEN), 0);
	ck_assert_int_eq(read_at("0000000000000000000000000000001", THEN), 1000);
	ck_assert_int_eq(read_at("9223372036854775", THEN), INT64_C(9223372036854775000));
	ck_assert_int_eq(read_at("9223372036854776", THEN), INT64_MAX);
	ck_assert_int_eq(read_at("18446744073709551617", THEN), INT64_MAX); /* 2^64 + 1 is not 1 */
}
END_TEST

START_TEST(the_three_dates)
{
	static const char *const dates[] = {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"};

	for (size_t i = 0; i < 3; i++) {
		ck_assert_int_eq(read_at(dates[i], THEN - 2500), 2500);
		ck_assert_int_eq(read_at(dates[i], THEN), 0);
		ck_assert_int_eq(read_at(dates[i], THEN + 1), 0);
		ck_assert_int_eq(read_at(dates[i], THEN + 3600000), 0);
	}
	ck_assert_int_eq(read_at("Wed Nov 16 08:49:37 1994", THEN), INT64_C(864000000));
}
END_TEST

START_TEST(dates_far_away_do_not_wrap)
{
	ck_assert_int_eq(read_at("Fri, 31 Dec 9999 23:59:59 GMT", 0), INT64_C(253402300799000));
	ck_assert_int_eq(read_at("Sat, 01 Jan 0000 00:00:00 GMT", THEN), 0);
	ck_assert_int_eq(read_at("Thu, 01 Jan 1970 00:00:01 GMT", 0), 1000);
	ck_assert_int_eq(read_at("Thu, 29 Feb 2024 00:00:00 GMT", INT64_C(1709164800000) - 1), 1);
	ck_assert_int_eq(read_at("Sat, 31 Dec 2016 23:59:60 GMT", INT64_C(1483228800000) - 5), 5); /* a leap second */
}
END_TEST

START_TEST(a_year_of_two_digits_is_at_most_50_years_ahead)
{
	const int64_t in_2026 = INT64_C(1780000000000);

	ck_assert_int_gt(read_at("Thursday, 01-Jan-76 00:00:00 GMT", in_2026), INT64_C(49) * 365 * 86400000);
	ck_assert_int_eq(read_at("Thursday, 01-Jan-77 00:00:00 GMT", in_2026), 0);
	ck_assert_int_eq(read_at("Sunday, 06-Nov-94 08:49:37 GMT", in_2026), 0);
	/* At the end of a century the next one is near. */
	ck_assert_int_eq(read_at("Saturday, 01-Jan-00 00:00:00 GMT", INT64_C(946684799000)), 1000);
}
END_TEST

START_TEST(what_is_neither_is_refused)
{
	static const char *const bad[] = {
	        "",
	        " ",
	        "-1",
	        "+1",
	        "1.5",
	        " 120",
	        "120 ",
	        "120s",
	        "0x10",
	        "soon",
	        "Sun, 06 Nov 1994 08:49:37",
	        "Sun, 06 Nov 1994 08:49:37 UTC",
	        "Sun, 06 Nov 1994 08:49:37 GMT ",
	        " Sun, 06 Nov 1994 08:49:37 GMT",
	        "Sun, 06 Nov 1994 08:49:37 +0000",
	        "sun, 06 nov 1994 08:49:37 gmt",
	        "Sun,06 Nov 1994 08:49:37 GMT",
	        "Sun, 6 Nov 1994 08:49:37 GMT",
	        "Sun, 06 Nov 94 08:49:37 GMT",
	        "Sun, 06 Nov 1994 8:49:37 GMT",
	        "Sun, 06 Nov 1994 24:00:00 GMT",
	        "Sun, 06 Nov 1994 08:60:37 GMT",
	        "Sun, 06 Nov 1994 08:49:61 GMT",
	        "Sun, 00 Nov 1994 08:49:37 GMT",
	        "Sun, 31 Nov 1994 08:49:37 GMT",
	        "Wed, 29 Feb 2023 08:49:37 GMT",
	        "Sun, 06 Foo 1994 08:49:37 GMT",
	        "Xyz, 06 Nov 1994 08:49:37 GMT",
	        "Sun, 06-Nov-94 08:49:37 GMT",
	        "Sunday, 06 Nov 1994 08:49:37 GMT",
	        "Sunday, 06-Nov-1994 08:49:37 GMT",
	        "Sun Nov 6 08:49:37 1994",
	        "Sun Nov  6 08:49:37 1994 GMT",
	        "Sun Nov  6 08:49:37 94",
	        "1994-11-06T08:49:37Z",
	        "Sun, 06 Nov 1994 08:49:3",
	        "Sun, 06 Nov ",
	        "Sun",
	};
	int64_t ms = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(retry_after_parse(bad[i], THEN, &ms) == -EINVAL, "\"%s\"", bad[i]);
	ck_assert_int_eq(resc_retry_after_parse(NULL, &ms), -EINVAL);
	ck_assert_int_eq(resc_retry_after_parse("1", NULL), -EINVAL);
	ck_assert_int_eq(ms, 77);
}
END_TEST

START_TEST(every_beginning_of_a_date_is_refused)
{
	static const char *const dates[] = {"Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"};
	char text[40];
	int64_t ms;

	for (size_t i = 0; i < 3; i++) {
		for (size_t length = 0; length < strlen(dates[i]); length++) {
			memcpy(text, dates[i], length);
			text[length] = '\0';
			ck_assert_msg(retry_after_parse(text, THEN, &ms) == -EINVAL, "\"%s\"", text);
		}
	}
}
END_TEST

START_TEST(dates_are_compared_with_the_wall_clock)
{
	time_t later = time(NULL) + 120;
	struct tm date;
	char text[40];
	int64_t ms;

	ck_assert_ptr_nonnull(gmtime_r(&later, &date));
	strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &date);
	ck_assert_int_eq(resc_retry_after_parse(text, &ms), 0);
	ck_assert_int_gt(ms, 60000); /* a slow machine */
	ck_assert_int_le(ms, 120000);
	ck_assert_int_eq(resc_retry_after_parse("120", &ms), 0);
	ck_assert_int_eq(ms, 120000);
}
END_TEST

START_TEST(neither_locale_nor_time_zone_matter)
{
	ck_assert_int_eq(setenv("TZ", "Asia/Kathmandu", 1), 0);
	tzset();
	setlocale(LC_ALL, "de_DE.UTF-8"); /* where it is installed */
	ck_assert_int_eq(read_at("Sun, 06 Nov 1994 08:49:37 GMT", THEN - 2500), 2500);
	ck_assert_int_eq(read_at("Tue, 06 Dec 1994 08:49:37 GMT", THEN), INT64_C(30) * 86400000);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        seconds,
	        the_three_dates,
	        dates_far_away_do_not_wrap,
	        a_year_of_two_digits_is_at_most_50_years_ahead,
	        what_is_neither_is_refused,
	        every_beginning_of_a_date_is_refused,
	        dates_are_compared_with_the_wall_clock,
	        neither_locale_nor_time_zone_matter,
	};

	return FIXTURE_RUN("retry_after", tests, NULL, NULL);
}
