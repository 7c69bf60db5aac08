/* SPDX-License-Identifier: MIT */
/* Every value that a public function returns has a sentence and a name; text from a segment is always clean. */
#include <errno.h>
#include <limits.h>

#include "chars.h"
#include "counters.h"
#include "fixture.h"
#include "resc.h"

START_TEST(every_answer_has_a_sentence_and_a_name)
{
#define X(NAME, name, text)                                                                                                                \
	ck_assert_str_eq(resc_text(RESC_E_##NAME), text);                                                                                  \
	ck_assert_str_eq(resc_answer_name(RESC_E_##NAME), #name);
	RESC_REFUSALS(X)
	RESC_RETRY_REFUSALS(X)
	RESC_INJECTED_ANSWERS(X)
#undef X
	ck_assert_str_eq(resc_text(0), "done");
	ck_assert_str_eq(resc_answer_name(0), "ok");
	ck_assert_str_eq(resc_answer_name(RESC_STALE), "stale");
	ck_assert_str_eq(resc_answer_name(-EINVAL), "error");
	ck_assert_str_eq(resc_answer_name(99), "unknown");
}
END_TEST

START_TEST(no_value_is_without_text)
{
	static const int odd[] = {INT_MIN, INT_MIN + 1, -100000, -4096, -4095, -134, -1, 99, 4095, INT_MAX};

	for (size_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++)
		ck_assert_uint_gt(strlen(resc_text(odd[i])), 0);
	for (int code = -200; code <= 200; code++) {
		ck_assert_ptr_nonnull(resc_text(code));
		ck_assert_ptr_nonnull(resc_answer_name(code));
	}
	ck_assert_ptr_nonnull(strstr(resc_text(-ESTALE), "stale"));
}
END_TEST

START_TEST(the_version_is_that_of_the_header)
{
	ck_assert_str_eq(resc_version(), RESC_VERSION_STRING);
}
END_TEST

/* Stores and loads in a field of eight bytes. */
static const char *through(const char *text)
{
	static _Atomic char field[8];
	static char out[8];

	chars_store(field, sizeof(field), text);
	chars_load(field, sizeof(field), out);
	return out;
}

START_TEST(text_is_cut_between_characters)
{
	ck_assert_str_eq(through("short"), "short");
	ck_assert_str_eq(through("1234567"), "1234567");
	ck_assert_str_eq(through("12345678"), "1234567");
	ck_assert_str_eq(through("123456\xc3\xa4"), "123456");       /* a umlaut does not fit */
	ck_assert_str_eq(through("12345\xc3\xa4"), "12345\xc3\xa4"); /* now it does */
	ck_assert_str_eq(through("12345\xe2\x82\xac"), "12345");
	ck_assert_str_eq(through(""), "");
	ck_assert_str_eq(through(NULL), "");
}
END_TEST

START_TEST(text_that_is_no_utf8_is_made_harmless)
{
	ck_assert_str_eq(through("a\x1b[2Jb"), "a?[2Jb");
	ck_assert_str_eq(through("a\nb\x7f"), "a?b?");
	ck_assert_str_eq(through("\xff\xfe"), "??");
	ck_assert_str_eq(through("\xc0\xaf"), "??");           /* overlong */
	ck_assert_str_eq(through("\xed\xa0\x80"), "???");      /* a surrogate */
	ck_assert_str_eq(through("\xf4\x90\x80\x80"), "????"); /* above U+10FFFF */
	ck_assert_str_eq(through("\xc2\x9b"), "??");           /* a C1 control */
	ck_assert_str_eq(through("\xe2\x82"), "??");           /* not complete */
	ck_assert_str_eq(through("\xf0\x9f\x98\x80"), "\xf0\x9f\x98\x80");
}
END_TEST

START_TEST(a_field_without_its_nul_is_terminated)
{
	_Atomic char field[4];
	char out[4];

	for (int i = 0; i < 4; i++)
		atomic_store_explicit(&field[i], 'x', memory_order_relaxed);
	chars_load(field, sizeof(field), out);
	ck_assert_str_eq(out, "xxx");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        every_answer_has_a_sentence_and_a_name, no_value_is_without_text,
	        the_version_is_that_of_the_header,      text_is_cut_between_characters,
	        text_that_is_no_utf8_is_made_harmless,  a_field_without_its_nul_is_terminated,
	};

	return FIXTURE_RUN("text", tests, NULL, NULL);
}
