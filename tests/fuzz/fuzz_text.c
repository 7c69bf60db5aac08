/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a value that comes in a header or on a command line, or from the kernel about a process: read, or refused, and what is read
 * means the same when it is written and read again.
 *
 * An input is a byte that says what it is, and the text (up to a zero byte, as all of them are strings).
 */
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "deadline.h"
#include "format.h"
#include "map.h"
#include "process.h"
#include "resc.h"
#include "retry_after.h"
#include "standalone.h"
#include "table.h"

/* It stands still. */
static const word clock_ns = UINT64_C(123456789012345);

static void deadline(const char *text)
{
	char written[32], again[32];
	int64_t first, second;
	int r = resc_deadline_parse(text, &first);

	REQUIRE(r == 0 || r == -EINVAL);
	if (r != 0)
		return;
	REQUIRE(first >= resc_now_ns());
	REQUIRE(resc_deadline_format(first, written, sizeof written) == (int)strlen(written));
	REQUIRE(resc_deadline_parse(written, &second) == 0 && second == first);
	REQUIRE(resc_deadline_format(first, again, strlen(written)) == -ENOSPC);
	REQUIRE(resc_deadline_within_ms(first, INT64_MAX) == first);
}

/* Rounded up, by less than the unit that fits. */
static void grpc_timeout(const char *text)
{
	char written[32];
	int64_t first, second;
	int r = resc_deadline_parse_grpc(text, &first);

	REQUIRE(r == 0 || r == -EINVAL);
	if (r != 0)
		return;
	REQUIRE(first >= resc_now_ns());
	int length = resc_deadline_format_grpc(first, written, sizeof written);
	REQUIRE(length == (int)strlen(written) && length <= 9);
	if (first == RESC_NO_DEADLINE)
		return;
	REQUIRE(length >= 2 && resc_deadline_parse_grpc(written, &second) == 0 && second >= first);
	REQUIRE(resc_deadline_left_ms(second) - resc_deadline_left_ms(first) <= 3600000);
}

static void retry_after(const char *text)
{
	int64_t early, late;
	int r = retry_after_parse(text, INT64_C(1700000000000), &early);

	REQUIRE(r == 0 || r == -EINVAL);
	REQUIRE(retry_after_parse(text, INT64_C(1700000001000), &late) == r);
	/* Seconds from now, or a date, which comes nearer. */
	if (r == 0)
		REQUIRE(early >= 0 && (late == early || late == (early > 1000 ? early - 1000 : 0)));
}

static void duration(const char *text)
{
	const uint64_t most = UINT64_C(366) * 86400000;
	uint64_t ms, again;
	int r = duration_parse(text, most, &ms);

	REQUIRE(r == 0 || r == -EINVAL || r == -ERANGE);
	if (r != 0)
		return;
	REQUIRE(ms >= 1 && ms <= most);
	/* The exact form; configurations know other units. */
	struct text written = duration_setting(ms);
	REQUIRE(duration_parse(written.s, most, &again) == 0 && again == ms);
}

static void name(const char *text)
{
	struct resc_error err = {0, ""};

	if (name_check(text, &err) == 0)
		REQUIRE(text[0] != '\0' && strlen(text) < SEGMENT_NAME_SIZE && strchr(text, '/') == NULL && text[0] != '.');
	else
		REQUIRE(err.text[0] != '\0' && memchr(err.text, '\0', sizeof err.text) != NULL);
	if (strlen(text) <= RESC_NAME_MAX)
		REQUIRE(name_distance(text, "payments") == name_distance("payments", text));
	else
		name_distance(text, text);
}

/* A process may call itself anything of at most 15 bytes. */
static void stat_line(const char *text)
{
	char line[512];

	process_stat_start(text);
	snprintf(line, sizeof line,
	         "501 (%.15s) S 1 501 501 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 8640217 2621440 128 18446744073709551615", text);
	REQUIRE(process_stat_start(line) == 8640217);
}

/* Numbers for people fit, whatever they are. */
static void number(const char *text)
{
	uint64_t n = 0;

	memcpy(&n, text, strlen(text) < sizeof n ? strlen(text) : sizeof n);
	const struct text all[] = {duration_text(n), duration_setting(n), duration_setting_ns(n), latency_text(n), count_text(n),
	                           count_short(n),   share_text(n),       percent_text(n / 3, n), time_local(n),   time_utc(n)};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
		REQUIRE(memchr(all[i].s, '\0', sizeof all[i].s) != NULL && (all[i].s[0] != '\0' || n == 0));
	REQUIRE(strlen(resc_text((int)n)) > 0);
}

/* On a screen it has no control characters, whatever it can show. */
static void screen(const char *text)
{
	const struct screen screens[] = {{.utf8 = true}, {.utf8 = false}};
	char *copy = strdup(text);

	REQUIRE(copy != NULL);
	for (int i = 0; i < 2; i++) {
		screen_clean(&screens[i], copy);
		REQUIRE(strlen(copy) <= strlen(text) && text_columns(copy) <= strlen(copy) * 2);
		for (const char *p = copy; *p != '\0'; p++)
			REQUIRE((unsigned char)*p >= 0x20 && *p != 0x7f && (i == 0 || (unsigned char)*p < 0x80));
	}
	free(copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static void (*const kinds[])(const char *text) = {deadline, grpc_timeout, retry_after, duration, name, stat_line, number, screen};
	char *text;

	if (size == 0)
		return 0;
	text = strndup((const char *)data + 1, size - 1);
	REQUIRE(text != NULL);
	deadline_use_clock(&clock_ns);
	kinds[data[0] % (sizeof kinds / sizeof kinds[0])](text);
	free(text);
	return 0;
}
