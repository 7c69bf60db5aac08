/* SPDX-License-Identifier: MIT */
/* Deadlines: saturating, infinite stays infinite, a live one is never 0, a child is never past its parent. */
#include "deadline.h"

#include <errno.h>

#include "fixture.h"

#define MS  INT64_C(1000000)
#define NOW (INT64_C(1000) * MS)

static word test_now;

static void set_up(void)
{
	fixture_store(&test_now, (uint64_t)NOW);
	deadline_use_clock(&test_now);
}

static void tear_down(void)
{
	deadline_use_clock(NULL);
}

START_TEST(the_real_clock_is_monotonic_time)
{
	deadline_use_clock(NULL);
	int64_t before = (int64_t)clock_read_ns(CLOCK_MONOTONIC);
	int64_t now = resc_now_ns();
	ck_assert_int_ge(now, before);
	ck_assert_int_le(now, (int64_t)clock_read_ns(CLOCK_MONOTONIC));
}
END_TEST

START_TEST(after)
{
	ck_assert_int_eq(resc_deadline_after_ms(250), NOW + 250 * MS);
	ck_assert_int_eq(resc_deadline_after_ms(0), NOW);
	ck_assert_int_eq(resc_deadline_after_ms(-1), NOW);
	ck_assert_int_eq(resc_deadline_after_ms(INT64_MIN), NOW);
	ck_assert_int_eq(resc_deadline_after_ms(INT64_MAX), RESC_NO_DEADLINE);
	int64_t most = (INT64_MAX - NOW) / MS;
	ck_assert_int_eq(resc_deadline_after_ms(most), NOW + most * MS);
	ck_assert_int_eq(resc_deadline_after_ms(most + 1), RESC_NO_DEADLINE);
}
END_TEST

START_TEST(a_child_is_never_past_its_parent)
{
	ck_assert_int_eq(resc_deadline_within_ms(NOW + 100 * MS, 250), NOW + 100 * MS);
	ck_assert_int_eq(resc_deadline_within_ms(NOW + 300 * MS, 250), NOW + 250 * MS);
	ck_assert_int_eq(resc_deadline_within_ms(RESC_NO_DEADLINE, 250), NOW + 250 * MS);
	ck_assert_int_eq(resc_deadline_within_ms(RESC_NO_DEADLINE, INT64_MAX), RESC_NO_DEADLINE);
	ck_assert_int_eq(resc_deadline_within_ms(NOW - 1, 250), NOW - 1);
}
END_TEST

START_TEST(what_is_left_is_rounded_up)
{
	ck_assert_int_eq(resc_deadline_left_ms(RESC_NO_DEADLINE), -1);
	ck_assert_int_eq(resc_deadline_left_ms(NOW), 0);
	ck_assert_int_eq(resc_deadline_left_ms(NOW - 1), 0);
	ck_assert_int_eq(resc_deadline_left_ms(0), 0);
	ck_assert_int_eq(resc_deadline_left_ms(INT64_MIN), 0);
	ck_assert_int_eq(resc_deadline_left_ms(NOW + 1), 1);
	ck_assert_int_eq(resc_deadline_left_ms(NOW + MS), 1);
	ck_assert_int_eq(resc_deadline_left_ms(NOW + MS + 1), 2);
	ck_assert_int_gt(resc_deadline_left_ms(INT64_MAX - 1), INT64_C(9000000000000));
}
END_TEST

START_TEST(headers_are_read)
{
	int64_t deadline = 77;

	ck_assert_int_eq(resc_deadline_parse("250", &deadline), 0);
	ck_assert_int_eq(deadline, NOW + 250 * MS);
	ck_assert_int_eq(resc_deadline_parse("0", &deadline), 0);
	ck_assert_int_eq(deadline, NOW);
	ck_assert_int_eq(resc_deadline_parse("0000000000000000000000001", &deadline), 0);
	ck_assert_int_eq(deadline, NOW + MS);
	ck_assert_int_eq(resc_deadline_parse("infinite", &deadline), 0);
	ck_assert_int_eq(deadline, RESC_NO_DEADLINE);
	ck_assert_int_eq(resc_deadline_parse("9223372036854775807", &deadline), 0);
	ck_assert_int_eq(deadline, RESC_NO_DEADLINE);
	ck_assert_int_eq(resc_deadline_parse("18446744073709551617", &deadline), 0); /* 2^64 + 1 is not 1 */
	ck_assert_int_eq(deadline, RESC_NO_DEADLINE);
}
END_TEST

START_TEST(what_is_no_number_of_milliseconds_is_refused)
{
	static const char *const bad[] = {"",    " ",    "-1",    "+1",       " 1",        "1 ",  "1.5",
	                                  "1e3", "0x10", "250ms", "Infinite", "infinite ", "inf", "nan"};
	int64_t deadline = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(resc_deadline_parse(bad[i], &deadline) == -EINVAL, "\"%s\"", bad[i]);
	ck_assert_int_eq(resc_deadline_parse(NULL, &deadline), -EINVAL);
	ck_assert_int_eq(resc_deadline_parse("1", NULL), -EINVAL);
	ck_assert_int_eq(deadline, 77);
}
END_TEST

START_TEST(headers_are_written)
{
	char text[24];

	ck_assert_int_eq(resc_deadline_format(NOW + 250 * MS, text, sizeof(text)), 3);
	ck_assert_str_eq(text, "250");
	ck_assert_int_eq(resc_deadline_format(NOW + 1, text, sizeof(text)), 1);
	ck_assert_str_eq(text, "1");
	ck_assert_int_eq(resc_deadline_format(NOW, text, sizeof(text)), 1);
	ck_assert_str_eq(text, "0");
	ck_assert_int_eq(resc_deadline_format(RESC_NO_DEADLINE, text, sizeof(text)), 8);
	ck_assert_str_eq(text, "infinite");
	ck_assert_int_eq(resc_deadline_format(NOW + 250 * MS, text, 4), 3);
	ck_assert_int_eq(resc_deadline_format(NOW + 250 * MS, text, 3), -ENOSPC);
	ck_assert_int_eq(resc_deadline_format(NOW, NULL, 0), -ENOSPC);
}
END_TEST

START_TEST(a_deadline_survives_the_header)
{
	static const int64_t left[] = {0, 1, 2, 999, 86400000};
	char text[24];
	int64_t back;

	for (size_t i = 0; i < sizeof(left) / sizeof(left[0]); i++) {
		ck_assert_int_gt(resc_deadline_format(NOW + left[i] * MS, text, sizeof(text)), 0);
		ck_assert_int_eq(resc_deadline_parse(text, &back), 0);
		ck_assert_int_eq(back, NOW + left[i] * MS);
	}
}
END_TEST

/* ---- grpc-timeout ---- */

START_TEST(grpc_headers_are_read)
{
	static const struct {
		const char *text;
		int64_t ns;
	} good[] = {
	        {"250m", 250 * MS},
	        {"1H", 3600000 * MS},
	        {"1M", 60000 * MS},
	        {"2S", 2000 * MS},
	        {"7u", 7000},
	        {"9n", 9},
	        {"99999999n", 99999999},
	        {"0n", 0},
	        {"0H", 0},
	        {"00000001m", MS},
	        {"99999999u", INT64_C(99999999000)},
	        {"99999999m", INT64_C(99999999) * MS},
	        {"99999999S", INT64_C(99999999) * 1000 * MS},
	};
	int64_t deadline;

	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		ck_assert_msg(resc_deadline_parse_grpc(good[i].text, &deadline) == 0, "\"%s\"", good[i].text);
		ck_assert_msg(deadline == NOW + good[i].ns, "\"%s\"", good[i].text);
	}
	ck_assert_int_eq(resc_deadline_parse_grpc("99999999M", &deadline), 0);
	ck_assert_int_eq(deadline, NOW + INT64_C(99999999) * 60000 * MS);
	ck_assert_int_eq(resc_deadline_parse_grpc("99999999H", &deadline), 0);
	ck_assert_int_eq(deadline, RESC_NO_DEADLINE); /* it does not wrap */
}
END_TEST

START_TEST(what_is_no_grpc_timeout_is_refused)
{
	static const char *const bad[] = {"",     "1",    "m",   "250", "123456789m", "000000001m", "1234567890123456789012345m",
	                                  "1h",   "1s",   "1ms", " 1m", "1m ",        "1 m",        "-1m",
	                                  "+1m",  "1.5S", "1N",  "1U",  "0x1m",       "infinite",   "\xc2\xb2m",
	                                  "1\nm", "1Sm"};
	int64_t deadline = 77;

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		ck_assert_msg(resc_deadline_parse_grpc(bad[i], &deadline) == -EINVAL, "\"%s\"", bad[i]);
	ck_assert_int_eq(resc_deadline_parse_grpc(NULL, &deadline), -EINVAL);
	ck_assert_int_eq(resc_deadline_parse_grpc("1m", NULL), -EINVAL);
	ck_assert_int_eq(deadline, 77);
}
END_TEST

START_TEST(grpc_headers_are_written_in_the_finest_unit_that_fits)
{
	static const struct {
		int64_t left;
		const char *text;
	} cases[] = {
	        {-1, "0n"},
	        {0, "0n"},
	        {1, "1n"},
	        {99999999, "99999999n"},
	        {100000000, "100000u"},
	        {100000001, "100001u"}, /* up */
	        {INT64_C(99999999000), "99999999u"},
	        {INT64_C(99999999001), "100000m"},
	        {INT64_C(99999999) * MS, "99999999m"},
	        {INT64_C(99999999) * MS + 1, "100000S"},
	        {INT64_C(99999999) * 1000 * MS, "99999999S"},
	        {INT64_C(99999999) * 1000 * MS + 1, "1666667M"},
	};
	char text[16];

	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		int length = resc_deadline_format_grpc(NOW + cases[i].left, text, sizeof(text));
		ck_assert_str_eq(text, cases[i].text);
		ck_assert_int_eq(length, (int)strlen(text));
	}
	/* 153722868 minutes would be 9 digits. */
	ck_assert_int_eq(resc_deadline_format_grpc(INT64_MAX - 1, text, sizeof(text)), 8);
	ck_assert_str_eq(text, "2562048H");
	ck_assert_int_eq(resc_deadline_format_grpc(INT64_MIN, text, sizeof(text)), 2);
	ck_assert_str_eq(text, "0n");
}
END_TEST

START_TEST(without_a_deadline_there_is_no_grpc_timeout_to_send)
{
	char text[16] = "x";

	ck_assert_int_eq(resc_deadline_format_grpc(RESC_NO_DEADLINE, text, sizeof(text)), 0);
	ck_assert_str_eq(text, "");
	ck_assert_int_eq(resc_deadline_format_grpc(RESC_NO_DEADLINE, text, 0), -ENOSPC);
	ck_assert_int_eq(resc_deadline_format_grpc(NOW + 250 * MS, text, 8), 7);
	ck_assert_str_eq(text, "250000u");
	ck_assert_int_eq(resc_deadline_format_grpc(NOW + 250 * MS, text, 7), -ENOSPC);
	ck_assert_int_eq(resc_deadline_format_grpc(NOW, NULL, 0), -ENOSPC);
}
END_TEST

START_TEST(a_grpc_deadline_is_never_shortened_and_hardly_lengthened)
{
	char text[16];
	int64_t back;

	for (int64_t left = 1; left < INT64_C(1) << 60; left = left * 3 + 7) {
		ck_assert_int_gt(resc_deadline_format_grpc(NOW + left, text, sizeof(text)), 0);
		ck_assert_int_eq(resc_deadline_parse_grpc(text, &back), 0);
		ck_assert_int_ge(back, NOW + left);
		ck_assert_int_le(back - NOW - left, left / 99999);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        the_real_clock_is_monotonic_time,
	        after,
	        a_child_is_never_past_its_parent,
	        what_is_left_is_rounded_up,
	        headers_are_read,
	        what_is_no_number_of_milliseconds_is_refused,
	        headers_are_written,
	        a_deadline_survives_the_header,
	        grpc_headers_are_read,
	        what_is_no_grpc_timeout_is_refused,
	        grpc_headers_are_written_in_the_finest_unit_that_fits,
	        without_a_deadline_there_is_no_grpc_timeout_to_send,
	        a_grpc_deadline_is_never_shortened_and_hardly_lengthened,
	};

	return FIXTURE_RUN("deadline", tests, set_up, tear_down);
}
