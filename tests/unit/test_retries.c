/* SPDX-License-Identifier: MIT */
/* The cap on retries in flight: the larger of a floor and a share, from the permit cells, with the same answer before and after a leave. */
#include "retries.h"

#include "fixture.h"
#include "permit.h"

static struct fixture f;

static void set_up(void)
{
	fixture_open(&f, NULL);
}

static void tear_down(void)
{
	map_close(&f.map);
}

static void cap(uint64_t floor, uint64_t share_ppm)
{
	f.policy.flags |= POLICY_RETRY_CAP;
	f.policy.retries_floor = floor;
	f.policy.retries_share_ppm = share_ppm;
	policy_clamp(&f.policy, &f.map.dims);
}

/* So many calls inside, the first of them retries. */
static void inside(unsigned calls, unsigned retries)
{
	for (uint32_t i = 0; i < f.map.dims.permits; i++)
		fixture_store(map_permit(&f.map, f.state, i), 0);
	/* Not side by side, and not from the first cell. */
	for (unsigned i = 0; i < calls; i++)
		fixture_store(map_permit(&f.map, f.state, (i * 7 + 5) % f.map.dims.permits),
		              permit_make(3, i + 1) | (i < retries ? PERMIT_RETRY : 0));
}

static bool ask(void)
{
	return retries_fit(&f.map, f.state, &f.policy, false);
}
static bool enter(void)
{
	return retries_fit(&f.map, f.state, &f.policy, true);
}

START_TEST(cells_are_counted)
{
	unsigned calls = 99;

	ck_assert_uint_eq(retries_count(&f.map, f.state, &calls), 0);
	ck_assert_uint_eq(calls, 0);
	inside(40, 13);
	ck_assert_uint_eq(retries_count(&f.map, f.state, &calls), 13);
	ck_assert_uint_eq(calls, 40);
	inside(f.map.dims.permits, f.map.dims.permits);
	ck_assert_uint_eq(retries_count(&f.map, f.state, &calls), f.map.dims.permits);
	ck_assert_uint_eq(calls, f.map.dims.permits);
}
END_TEST

START_TEST(what_a_call_is_numbered_does_not_make_it_a_retry)
{
	unsigned calls;

	fixture_store(map_permit(&f.map, f.state, 0), permit_make(UINT32_MAX, UINT32_MAX));
	ck_assert_uint_eq(retries_count(&f.map, f.state, &calls), 0);
	ck_assert_uint_eq(calls, 1);
}
END_TEST

START_TEST(L08_a_quarter_of_the_calls_but_ten_at_least)
{
	cap(10, 250000);
	inside(20, 9);
	ck_assert(ask());
	inside(20, 10);
	ck_assert(!ask());
	ck_assert(enter()); /* it is the tenth */
	inside(20, 11);
	ck_assert(!enter());
	/* From 44 calls on the share is the larger one; it rounds down. */
	inside(43, 10);
	ck_assert(!ask());
	inside(44, 10);
	ck_assert(ask());
	inside(47, 11);
	ck_assert(!ask());
}
END_TEST

START_TEST(L09_unlimited_is_unlimited)
{
	cap(UINT32_MAX, 1000000);
	inside(f.map.dims.permits, f.map.dims.permits);
	ck_assert(ask());
	ck_assert(enter());
	cap(UINT32_MAX, 1000000000);
	ck_assert(ask());
	cap(0, 1000000000); /* a thousand retries a call */
	ck_assert(ask());
	ck_assert(enter());
}
END_TEST

START_TEST(L19_as_many_as_calls_but_a_hundred_at_least)
{
	cap(100, 1000000);
	inside(f.map.dims.permits, 0);
	ck_assert(ask());
	inside(f.map.dims.permits, f.map.dims.permits); /* 64 */
	ck_assert(ask());
}
END_TEST

START_TEST(no_floor_and_no_share_is_no_retry)
{
	cap(0, 0);
	ck_assert(!ask());
	ck_assert(!enter());
	inside(60, 0);
	ck_assert(!ask());
}
END_TEST

START_TEST(D5_a_lone_failing_call_gets_the_same_answer_before_and_after_its_leave)
{
	static const struct {
		uint64_t floor;
		uint64_t share;
		bool answer;
	} caps[] = {{0, 1000000, true}, {0, 500000, false}, {0, 999999, false}, {0, 2000000, true}, {1, 0, true}, {0, 0, false}};

	for (size_t i = 0; i < sizeof caps / sizeof caps[0]; i++) {
		cap(caps[i].floor, caps[i].share);
		inside(1, 0);
		ck_assert_int_eq(ask(), caps[i].answer);
		inside(0, 0);
		ck_assert_int_eq(ask(), caps[i].answer);
		/* As the retry that it is now: inside, and when that has failed too, before and after its leave. */
		inside(1, 1);
		ck_assert_int_eq(enter(), caps[i].answer);
		inside(0, 0);
		ck_assert_int_eq(enter(), caps[i].answer);
	}
}
END_TEST

START_TEST(D5_six_that_fail_together_may_all_retry)
{
	cap(0, 1000000);
	/* All ask, then one after the other leaves and comes back as a retry: the cap does not shrink under them. */
	inside(6, 0);
	ck_assert(ask());
	for (unsigned back = 0; back < 6; back++) {
		inside(6, back); /* before its leave */
		ck_assert(ask());
		inside(5, back); /* after it */
		ck_assert(ask());
		inside(6, back + 1); /* inside again */
		ck_assert(enter());
	}
	/* Where they have all left before the first comes back. */
	for (unsigned back = 1; back <= 6; back++) {
		inside(back - 1, back - 1);
		ck_assert(ask());
		inside(back, back);
		ck_assert(enter());
	}
}
END_TEST

START_TEST(whatever_the_bits_it_answers)
{
	for (uint32_t i = 0; i < f.map.dims.permits; i++)
		fixture_store(map_permit(&f.map, f.state, i), UINT64_MAX - i);
	f.policy.retries_floor = UINT64_MAX;
	f.policy.retries_share_ppm = UINT64_MAX;
	policy_clamp(&f.policy, &f.map.dims);
	ck_assert(ask());
	f.policy.retries_floor = 0;
	ck_assert(ask());
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        cells_are_counted,
	        what_a_call_is_numbered_does_not_make_it_a_retry,
	        L08_a_quarter_of_the_calls_but_ten_at_least,
	        L09_unlimited_is_unlimited,
	        L19_as_many_as_calls_but_a_hundred_at_least,
	        no_floor_and_no_share_is_no_retry,
	        D5_a_lone_failing_call_gets_the_same_answer_before_and_after_its_leave,
	        D5_six_that_fail_together_may_all_retry,
	        whatever_the_bits_it_answers,
	};

	return FIXTURE_RUN("retries", tests, set_up, tear_down);
}
