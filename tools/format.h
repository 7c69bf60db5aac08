/* SPDX-License-Identifier: MIT */
/* Quantities as people read and write them. Each function returns a small text by value, good for one printf argument. */
#ifndef RESCTL_FORMAT_H
#define RESCTL_FORMAT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct text {
	char s[40];
};

/* About how long: "0ms", "250ms", "3.2s", "42s", "2m5s", "1h12m", "3d4h". */
struct text duration_text(uint64_t ms);
/* Exactly, as the configuration writes it: "250ms", "10s", "90s", "2m"; duration_setting_ns also "1500us". */
struct text duration_setting(uint64_t ms);
struct text duration_setting_ns(uint64_t ns);
/* A measured time in three digits: "812us", "8.12ms", "1.25s". */
struct text latency_text(uint64_t us);
/* The same, worked out and so not whole: "<1us" below half of one. */
struct text latency_fine_text(double us);
/* Calls a second: "0.25", "9.5", "1,204". */
struct text rate_text(double per_second);
/* "1,204,332". */
struct text count_text(uint64_t n);
/* Five columns at most: "1204", "12.3k", "4.1M". */
struct text count_short(uint64_t n);
/* A share in parts per million, exactly: "50%", "12.5%". */
struct text share_text(uint64_t ppm);
/* "25%"; "<1%" and ">99%" where rounding would say none or all. Empty when whole is 0. */
struct text percent_text(uint64_t part, uint64_t whole);
/* A share from 0 to 1 in hundredths of a percent: "2.8%", "0.56%"; "<0.01%" where rounding would say none. */
struct text fine_percent_text(double share);
/* A number with at most `decimals` digits behind the point and no zeros at its end: "12.4", "20". */
struct text number_text(double value, int decimals);

/* Wall clock. time_local: "2025-11-30 04:12:07.123"; time_local_zone: with "+0100"; time_utc: RFC 3339, "2025-11-30T03:12:07.123Z". */
struct text time_local(uint64_t real_ns);
struct text time_local_zone(uint64_t real_ns);
struct text time_utc(uint64_t real_ns);
bool is_today(uint64_t real_ns);

/* "250ms", "1.5s", "2m", "1h", "1d" in milliseconds. 0; -EINVAL: not a duration; -ERANGE: nothing, or more than most_ms. */
int duration_parse(const char *text, uint64_t most_ms, uint64_t *ms);

/* The edit distance of two names, for "did you mean". */
unsigned name_distance(const char *a, const char *b);

#endif
