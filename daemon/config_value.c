/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: "1.5s" read by strtod() is one second in a process whose locale writes "1,5s", and 0.1 + 0.2 in doubles is not 0.3. So
 * these are integers in fixed point from the first digit on.
 *
 * What it guarantees: exact or refused. Nothing overflows, whatever the digits; what is too large is said to be UINT64_MAX, so that the
 * range check of the caller refuses it with the range.
 */
#include "config_value.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define BILLION    UINT64_C(1000000000)
#define WHOLE_MOST (UINT64_MAX / 10 - 1)

static const struct {
	const char *name;
	uint64_t ns;
} units[] = {{"us", 1000}, {"ms", 1000000}, {"s", BILLION}, {"m", 60 * BILLION}, {"h", 3600 * BILLION}};

struct decimal {
	uint64_t whole;
	uint64_t billionths;
	const char *rest; /* what follows it */
};

static int is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/* Digits, and where there is a point at least one more. 0, -EINVAL, or -EDOM (more than nine decimals that matter). */
static int read_decimal(const char *text, struct decimal *out)
{
	uint64_t place = BILLION / 10;

	*out = (struct decimal){0};
	if (!is_digit(*text))
		return -EINVAL;
	for (; is_digit(*text); text++)
		out->whole = out->whole > WHOLE_MOST ? UINT64_MAX : out->whole * 10 + (uint64_t)(*text - '0');
	if (*text == '.') {
		if (!is_digit(*++text))
			return -EINVAL;
		for (; is_digit(*text); text++, place /= 10) {
			if (place == 0 && *text != '0')
				return -EDOM;
			out->billionths += place * (uint64_t)(*text - '0');
		}
	}
	out->rest = text;
	return 0;
}

/* The decimal times that factor. */
static int scale(const struct decimal *decimal, uint64_t factor, uint64_t *out)
{
	unsigned __int128 fraction = (unsigned __int128)decimal->billionths * factor;
	unsigned __int128 sum = (unsigned __int128)decimal->whole * factor + fraction / BILLION;

	if (fraction % BILLION != 0)
		return -EDOM;
	*out = decimal->whole == UINT64_MAX || sum > UINT64_MAX ? UINT64_MAX : (uint64_t)sum;
	return 0;
}

int value_duration(const char *text, uint64_t *ns)
{
	struct decimal decimal;
	int r = read_decimal(text, &decimal);

	for (size_t i = 0; r == 0 && i < sizeof(units) / sizeof(units[0]); i++) {
		if (strcmp(decimal.rest, units[i].name) == 0)
			return scale(&decimal, units[i].ns, ns);
	}
	return r < 0 ? r : -EINVAL;
}

int value_percent(const char *text, uint64_t *ppm)
{
	struct decimal decimal;
	int r = read_decimal(text, &decimal);

	if (r < 0)
		return r;
	return strcmp(decimal.rest, "%") == 0 ? scale(&decimal, VALUE_MILLION / 100, ppm) : -EINVAL;
}

int value_millionths(double number, uint64_t *millionths)
{
	double scaled = number * 1e6 + 0.5;

	if (number < 0)
		return -ERANGE;
	*millionths = scaled < 1.8e19 ? (uint64_t)scaled : UINT64_MAX;
	return *millionths == 0 && number > 0 ? -EDOM : 0;
}

void value_duration_text(uint64_t ns, char text[VALUE_TEXT_SIZE])
{
	size_t i = sizeof(units) / sizeof(units[0]);

	while (i > 0 && (ns == 0 || ns % units[i - 1].ns != 0))
		i -= 1;
	if (ns == 0)
		snprintf(text, VALUE_TEXT_SIZE, "0s");
	else if (i == 0)
		snprintf(text, VALUE_TEXT_SIZE, "%" PRIu64 ".%03" PRIu64 "us", ns / 1000, ns % 1000);
	else
		snprintf(text, VALUE_TEXT_SIZE, "%" PRIu64 "%s", ns / units[i - 1].ns, units[i - 1].name);
}

void value_millionths_text(uint64_t millionths, char text[VALUE_TEXT_SIZE])
{
	int length = snprintf(text, VALUE_TEXT_SIZE, "%" PRIu64 ".%06" PRIu64, millionths / VALUE_MILLION, millionths % VALUE_MILLION);

	while (length > 0 && text[length - 1] == '0')
		text[--length] = '\0';
	if (length > 0 && text[length - 1] == '.')
		text[length - 1] = '\0';
}
