/* SPDX-License-Identifier: MIT */
/* What tests of idempotency keys say in one word. Keys and answers are text. */
#ifndef UNIT_KEYS_H
#define UNIT_KEYS_H

#include <check.h>
#include <string.h>

#include "resc.h"

static inline int begin(resc_resource *resource, const char *key, resc_once *once)
{
	return resc_once_begin(resource, key, strlen(key), NULL, once);
}

/* What a begin says; the key is given back where it was first. */
static inline int ask(resc_resource *resource, const char *key)
{
	resc_once once;
	int r = begin(resource, key, &once);

	if (r == 0)
		ck_assert_int_eq(resc_once_abandon(&once), 0);
	return r;
}

static inline void do_it(resc_resource *resource, const char *key, const char *answer)
{
	resc_once once;

	ck_assert_int_eq(begin(resource, key, &once), 0);
	ck_assert_int_eq(resc_once_done(&once, answer, strlen(answer)), 0);
}

static inline void expect_answer(resc_resource *resource, const char *key, const char *answer)
{
	resc_once once;

	ck_assert_int_eq(begin(resource, key, &once), RESC_ONCE_DONE);
	ck_assert_uint_eq(once.size, strlen(answer));
	ck_assert_mem_eq(once.answer, answer, once.size);
}

#endif
