/* SPDX-License-Identifier: MIT */
/*
 * See chars.h. UTF-8 as RFC 3629 has it: no overlong forms, no surrogates, nothing above U+10FFFF. C1 controls (U+0080..U+009F) count as
 * control characters: terminals obey some of them.
 */
#include "chars.h"

#include <string.h>

/* How many bytes the sequence that starts with this byte has; 0 for a byte that cannot start one. */
static size_t sequence_length(unsigned char lead)
{
	if (lead < 0x80)
		return 1;
	if (lead >= 0xc2 && lead <= 0xdf)
		return 2;
	if (lead >= 0xe0 && lead <= 0xef)
		return 3;
	if (lead >= 0xf0 && lead <= 0xf4)
		return 4;
	return 0;
}

/* The length of the good character at text, or 0. */
static size_t character(const unsigned char *text, size_t left)
{
	size_t length = sequence_length(text[0]);

	if (length == 0 || length > left)
		return 0;
	if (length == 1)
		return text[0] >= 0x20 && text[0] != 0x7f;
	for (size_t i = 1; i < length; i++) {
		if ((text[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((text[0] == 0xc2 && text[1] < 0xa0) || (text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] > 0x9f) ||
	    (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] > 0x8f))
		return 0;
	return length;
}

void chars_clean(char *text, size_t size)
{
	if (size == 0)
		return;
	text[size - 1] = '\0';
	size_t end = strlen(text);
	for (size_t i = 0; i < end;) {
		size_t length = character((const unsigned char *)text + i, end - i);
		if (length == 0)
			text[i] = '?';
		i += length == 0 ? 1 : length;
	}
}

/* The longest prefix of text that fits below size and does not end inside a character. */
static size_t cut(const char *text, size_t size)
{
	size_t length = strnlen(text, size);

	if (length < size)
		return length;
	length = size - 1;
	while (length > 0 && ((unsigned char)text[length] & 0xc0) == 0x80)
		length--;
	return length;
}

void chars_store(_Atomic char *to, size_t size, const char *text)
{
	size_t length = text == NULL ? 0 : cut(text, size);

	for (size_t i = 0; i < size; i++)
		atomic_store_explicit(&to[i], i < length ? text[i] : '\0', memory_order_release);
}

void chars_copy(char *to, size_t size, const char *text)
{
	size_t length = text == NULL ? 0 : cut(text, size);

	memcpy(to, text == NULL ? "" : text, length);
	memset(to + length, 0, size - length);
}

void chars_load(const _Atomic char *from, size_t size, char *to)
{
	for (size_t i = 0; i < size; i++)
		to[i] = atomic_load_explicit(&from[i], memory_order_acquire);
	chars_clean(to, size);
}
