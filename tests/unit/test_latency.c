/* SPDX-License-Identifier: MIT */
/* The histogram's buckets: no gap, no overlap, an eighth wide at most, and edges that agree with where values go. */
#include "latency.h"

#include "fixture.h"
#include "inspect.h"

START_TEST(small_values_have_their_own_bucket)
{
	for (uint64_t us = 0; us < 16; us++)
		ck_assert_uint_eq(latency_bucket(us), us);
}
END_TEST

START_TEST(an_edge_is_the_first_value_of_the_next_bucket)
{
	for (unsigned bucket = 0; bucket + 1 < LATENCY_BUCKETS; bucket++) {
		uint64_t edge = latency_edge_us(bucket);
		ck_assert_uint_eq(latency_bucket(edge - 1), bucket);
		ck_assert_uint_eq(latency_bucket(edge), bucket + 1);
	}
}
END_TEST

START_TEST(a_bucket_is_at_most_an_eighth_wide)
{
	for (unsigned bucket = 8; bucket < LATENCY_BUCKETS; bucket++) {
		uint64_t low = latency_edge_us(bucket - 1);
		ck_assert_uint_le((latency_edge_us(bucket) - low) * 8, low);
	}
}
END_TEST

START_TEST(everything_above_is_in_the_last_bucket)
{
	ck_assert_uint_eq(latency_edge_us(LATENCY_BUCKETS - 1), UINT64_C(1) << 28);
	ck_assert_uint_eq(latency_edge_us(UINT32_MAX), UINT64_C(1) << 28);
	ck_assert_uint_eq(latency_bucket(UINT64_C(1) << 28), LATENCY_BUCKETS - 1);
	ck_assert_uint_eq(latency_bucket(UINT64_MAX), LATENCY_BUCKETS - 1);
}
END_TEST

START_TEST(quantiles)
{
	struct inspect_latency latency = {0};

	ck_assert_uint_eq(latency_quantile_us(&latency, 0.99), 0);
	latency.buckets[latency_bucket(100)] = 99;
	latency.buckets[latency_bucket(5000)] = 1;
	latency.count = 100;
	uint64_t usual = latency_edge_us(latency_bucket(100));
	uint64_t worst = latency_edge_us(latency_bucket(5000));
	ck_assert_uint_eq(latency_quantile_us(&latency, 0.5), usual);
	ck_assert_uint_eq(latency_quantile_us(&latency, 0.99), usual);
	ck_assert_uint_eq(latency_quantile_us(&latency, 0.991), worst);
	ck_assert_uint_eq(latency_quantile_us(&latency, 1), worst);
	ck_assert_uint_eq(latency_quantile_us(&latency, 7), worst);
	ck_assert_uint_eq(latency_quantile_us(&latency, 0), usual);
	ck_assert_uint_eq(latency_quantile_us(&latency, -1), usual);
	ck_assert_uint_eq(latency_quantile_us(&latency, strtod("nan", NULL)), usual);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        small_values_have_their_own_bucket,
	        an_edge_is_the_first_value_of_the_next_bucket,
	        a_bucket_is_at_most_an_eighth_wide,
	        everything_above_is_in_the_last_bucket,
	        quantiles,
	};

	return FIXTURE_RUN("latency", tests, NULL, NULL);
}
