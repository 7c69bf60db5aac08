/* SPDX-License-Identifier: MIT */
/*
 * What stands in segments has its place and its number for good: layout.kept is compared with what the sources say. Lines may be added,
 * for what is new; a line that was in a release and changes, or is gone, means that two versions misread each other.
 *
 *	build/test/tests/unit/test_layout --print > tests/unit/layout.kept
 */
#include "layout.h"

#include <stdio.h>

#include "event.h"
#include "fixture.h"

static void print_table(FILE *out)
{
	const struct layout_entry *entry;

	for (size_t i = 0; (entry = layout_entry(i)) != NULL; i++)
		if (entry->record[0] == '\0')
			fprintf(out, "constant %s %zu since 1.%u\n", entry->field, entry->offset, entry->since);
		else
			fprintf(out, "word %s.%s at %zu size %zu since 1.%u\n", entry->record, entry->field, entry->offset, entry->size,
			        entry->since);
}

static void print_numbers(FILE *out)
{
#define X(name, text) fprintf(out, "counter %s %d\n", #name, COUNTER_##name);
	RESC_COUNTERS(X)
#undef X
#define X(NAME, name, text) fprintf(out, "counter refused_%s %d\n", #name, COUNTER_refused_##name);
	RESC_REFUSALS(X)
#undef X
#define X(name, text) fprintf(out, "counter fallback_%s %d\n", #name, COUNTER_fallback_##name);
	RESC_FALLBACKS(X)
#undef X
#define X(NAME, name) fprintf(out, "event %s %d\n", #name, EVENT_##NAME);
	RESC_EVENTS(X)
#undef X
#define X(NAME, name, text) fprintf(out, "reason %s %d\n", #name, REASON_##NAME);
	RESC_REASONS(X)
#undef X
#define X(NAME, name, text) fprintf(out, "outcome %s %d\n", #name, RESC_##NAME);
	RESC_OUTCOMES(X)
#undef X
}

/* What programs are compiled with. */
static void print_public(FILE *out)
{
#define PLACE(counter)       fprintf(out, "field resc_counters.%s at %zu\n", #counter, offsetof(struct resc_counters, counter));
#define X(name, text)        PLACE(name)
#define XR(NAME, name, text) PLACE(refused_##name)
#define XF(name, text)       PLACE(fallback_##name)
	PLACE(enters) RESC_COUNTERS(X) RESC_REFUSALS(XR) RESC_FALLBACKS(XF)
#undef XF
#undef XR
#undef X
#undef PLACE
}

static void print_flags(FILE *out)
{
#define FLAG(name) fprintf(out, "value %s %llx\n", #name, (unsigned long long)(name));
	FLAG(POLICY_CONFIGURED)
	FLAG(POLICY_LATENCY)
	FLAG(POLICY_BREAKER)
	FLAG(POLICY_BUDGET)
	FLAG(POLICY_BULKHEAD)
	FLAG(POLICY_RETRY)
	FLAG(POLICY_RATE)
	FLAG(POLICY_THROTTLE)
	FLAG(POLICY_ONCE)
	FLAG(POLICY_RETRY_CAP)
	FLAG(POLICY_TIMEOUT)
	FLAG(POLICY_MADE)
	FLAG(POLICY_INJECTION)
	FLAG(POLICY_SHADOW_BREAKER)
	FLAG(POLICY_SHADOW_BUDGET)
	FLAG(POLICY_SHADOW_BULKHEAD)
	FLAG(POLICY_SHADOW_RATE)
	FLAG(POLICY_SHADOW_THROTTLE)
	FLAG(POLICY_SHADOW_TIMEOUT)
	FLAG(POLICY_SHADOW_ONCE)
	FLAG(BACKOFF_EXPONENTIAL)
	FLAG(DEPOSIT_REQUEST)
	FLAG(ON_DEATH_FREE)
	FLAG(JITTER_PROPORTIONAL)
	FLAG(WORD_MOVED)
	FLAG(WINDOW_FAIL_SLOW)
	FLAG(TAG_MOVED)
	FLAG(OVERRIDE_DISABLED)
#undef FLAG
}

/* How words are packed: all bits of each part. */
static void print_packing(FILE *out)
{
	const struct {
		const char *name;
		uint64_t parts[4];
	} words[] = {
	        {"breaker",
	         {breaker_make(7, 0, 0, 0), breaker_make(0, 31, 0, 0), breaker_make(0, 0, 65535, 0), breaker_make(0, 0, 0, TIME_MASK)}},
	        {"limit", {limit_make(65535, 0, 0, 0), limit_make(0, 65535, 0, 0), limit_make(0, 0, 65535, 0), limit_make(0, 0, 0, 65535)}},
	        {"override",
	         {override_make(3, 0, 0, 0), override_make(0, 3, 0, 0), override_make(0, 0, 0xfffff, 0),
	          override_make(0, 0, 0, TIME_MASK)}},
	        {"injection",
	         {injection_make(3, 0, 0, 0), injection_make(0, 1, 0, 0), injection_make(0, 0, 0xfffff, 0),
	          injection_make(0, 0, 0, TIME_MASK)}},
	        {"setting",
	         {setting_make(15, 0, 0, 0), setting_make(0, 0xfffff, 0, 0), setting_make(0, 0, 0xfffff, 0),
	          setting_make(0, 0, 0, 0xfffff)}},
	        {"streak", {streak_make(65535, 0, 0), streak_make(0, 3, 0), streak_make(0, 0, UINT32_MAX), 0}},
	        {"rate", {rate_make(3, 0, 0), rate_make(0, 3, 0), rate_make(0, 0, UINT64_MAX >> 4), 0}},
	        {"permit", {permit_make(UINT32_MAX, 0), permit_make(0, UINT32_MAX >> 1), PERMIT_RETRY, 0}},
	        {"waiting", {waiting_make(UINT32_MAX, 0, 0), waiting_make(0, 3, 0), waiting_make(0, 0, UINT64_MAX), 0}},
	        {"front", {front_make(UINT32_MAX, 0), front_make(0, UINT64_MAX), 0, 0}},
	};

	for (size_t i = 0; i < sizeof words / sizeof words[0]; i++)
		fprintf(out, "packing %s %016llx %016llx %016llx %016llx\n", words[i].name, (unsigned long long)words[i].parts[0],
		        (unsigned long long)words[i].parts[1], (unsigned long long)words[i].parts[2],
		        (unsigned long long)words[i].parts[3]);
}

static void print_all(FILE *out)
{
	print_table(out);
	print_numbers(out);
	print_public(out);
	print_flags(out);
	print_packing(out);
	for (unsigned minor = 0; minor <= SEGMENT_MINOR; minor++)
		fprintf(out, "layout 1.%u %016llx\n", minor, (unsigned long long)layout_hash(minor));
}

START_TEST(what_was_given_a_place_or_a_number_keeps_it)
{
	const char *root = getenv("RESC_SOURCE");
	char path[512], kept[256], line[256];
	char *text = NULL;
	size_t size;
	unsigned lines = 0;

	FILE *out = open_memstream(&text, &size);
	print_all(out);
	fclose(out);
	snprintf(path, sizeof path, "%s/tests/unit/layout.kept", root ? root : ".");
	FILE *file = fopen(path, "re");
	ck_assert_msg(file != NULL, "cannot open %s", path);
	FILE *now = fmemopen(text, size, "r");
	while (fgets(kept, sizeof kept, file) != NULL) {
		ck_assert_msg(fgets(line, sizeof line, now) != NULL && strcmp(kept, line) == 0,
		              "kept:  %snow:   %sWhat was released never changes: new words have a minor of their own, and new names come "
		              "last in "
		              "their table. What was not released is written anew by test_layout --print > %s",
		              kept, line, path);
		lines++;
	}
	ck_assert_msg(fgets(line, sizeof line, now) == NULL, "not kept yet: %s", line);
	ck_assert_uint_gt(lines, 250);
	fclose(now);
	fclose(file);
	free(text);
}
END_TEST

START_TEST(a_minor_has_all_of_the_one_before_and_another_hash)
{
	for (unsigned minor = 1; minor <= SEGMENT_MINOR; minor++)
		ck_assert_uint_ne(layout_hash(minor), layout_hash(minor - 1));
	ck_assert_uint_eq(layout_hash(SEGMENT_MINOR + 1), layout_hash(SEGMENT_MINOR));
}
END_TEST

START_TEST(versions_are_in_order)
{
	struct layout_version_text text = layout_version_text(LAYOUT_VERSION);

	ck_assert_str_eq(text.library, RESC_VERSION_STRING);
	ck_assert_str_eq(layout_version_text(0).library, "");
	text = layout_version_text(UINT32_MAX);
	ck_assert_str_eq(text.library, "255.255.255");
	ck_assert_str_eq(text.format, "1.255");
}
END_TEST

static void nothing(void) {}

int main(int argc, char **argv)
{
	const TTest *const tests[] = {
	        what_was_given_a_place_or_a_number_keeps_it,
	        a_minor_has_all_of_the_one_before_and_another_hash,
	        versions_are_in_order,
	};

	if (argc == 2 && strcmp(argv[1], "--print") == 0) {
		print_all(stdout);
		return 0;
	}
	return FIXTURE_RUN("layout", tests, nothing, nothing);
}
