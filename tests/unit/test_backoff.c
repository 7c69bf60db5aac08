/* SPDX-License-Identifier: MIT */
/* Backoff and jitter: the ranges that the names promise, the cap, and no wrap whatever the numbers. */
#include "backoff.h"

#include "fixture.h"

#define MS    UINT64_C(1000000)
#define DRAWS 2000

static struct policy plan(enum backoff backoff, enum jitter jitter)
{
	struct policy policy;

	policy_defaults(&policy);
	policy.backoff = backoff;
	policy.backoff_jitter = jitter;
	policy.base_ns = 100 * MS;
	policy.cap_ns = 2000 * MS;
	return policy;
}

/* Draws many: all within low..high, and they come near both ends. */
static void expect_range(const struct policy *policy, unsigned attempts, uint64_t previous, uint64_t low, uint64_t high)
{
	uint64_t least = UINT64_MAX;
	uint64_t most = 0;

	resc_seed(1);
	for (int i = 0; i < DRAWS; i++) {
		uint64_t wait = backoff_wait_ns(policy, attempts, previous);
		least = wait < least ? wait : least;
		most = wait > most ? wait : most;
	}
	ck_assert_uint_ge(least, low);
	ck_assert_uint_le(most, high);
	ck_assert_uint_le(least, low + (high - low) / 50);
	ck_assert_uint_ge(most, high - (high - low) / 50);
}

START_TEST(none_does_not_wait)
{
	for (int jitter = JITTER_NONE; jitter <= JITTER_PROPORTIONAL; jitter++) {
		struct policy policy = plan(BACKOFF_NONE, (enum jitter)jitter);
		ck_assert_uint_eq(backoff_wait_ns(&policy, 1, 0), 0);
		ck_assert_uint_eq(backoff_wait_ns(&policy, 9, 100 * MS), 0);
	}
}
END_TEST

START_TEST(fixed)
{
	struct policy policy = plan(BACKOFF_FIXED, JITTER_NONE);

	ck_assert_uint_eq(backoff_wait_ns(&policy, 1, 0), 100 * MS);
	ck_assert_uint_eq(backoff_wait_ns(&policy, 9, 100 * MS), 100 * MS);
	policy.cap_ns = 30 * MS;
	ck_assert_uint_eq(backoff_wait_ns(&policy, 1, 0), 30 * MS);
}
END_TEST

START_TEST(exponential_doubles_up_to_the_cap)
{
	static const uint64_t expected_ms[] = {100, 200, 400, 800, 1600, 2000, 2000};
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_NONE);

	for (unsigned i = 0; i < 7; i++)
		ck_assert_uint_eq(backoff_wait_ns(&policy, i + 1, 0), expected_ms[i] * MS);
	ck_assert_uint_eq(backoff_wait_ns(&policy, 0, 0), 100 * MS);
}
END_TEST

START_TEST(the_ranges_of_jitter)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_FULL);
	expect_range(&policy, 3, 0, 0, 400 * MS);
	policy.backoff_jitter = JITTER_EQUAL;
	expect_range(&policy, 3, 0, 200 * MS, 400 * MS);
	policy.backoff_jitter = JITTER_PROPORTIONAL;
	expect_range(&policy, 3, 0, 320 * MS, 480 * MS);
	policy.backoff_jitter = JITTER_DECORRELATED;
	expect_range(&policy, 1, 0, 100 * MS, 300 * MS);
	expect_range(&policy, 2, 250 * MS, 100 * MS, 750 * MS);
}
END_TEST

START_TEST(the_cap_is_never_passed)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_PROPORTIONAL);

	expect_range(&policy, 9, 0, 1600 * MS, 2000 * MS);
	policy.backoff_jitter = JITTER_DECORRELATED;
	resc_seed(1);
	for (uint64_t i = 0, wait = 0; i < DRAWS; i++) {
		wait = backoff_wait_ns(&policy, 2, wait);
		ck_assert_uint_ge(wait, 100 * MS);
		ck_assert_uint_le(wait, 2000 * MS);
	}
}
END_TEST

START_TEST(proportional_jitter_does_not_gather_at_the_cap)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_PROPORTIONAL);
	unsigned at_cap = 0;

	resc_seed(1);
	for (int i = 0; i < DRAWS; i++)
		at_cap += backoff_wait_ns(&policy, 9, 0) == policy.cap_ns;
	ck_assert_uint_lt(at_cap, DRAWS / 100);
}
END_TEST

START_TEST(no_cap_is_no_cap)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_NONE);

	policy.cap_ns = 0;
	ck_assert_uint_eq(backoff_wait_ns(&policy, 11, 0), 102400 * MS);
}
END_TEST

START_TEST(nothing_wraps)
{
	static const uint64_t sizes[] = {0, 1, UINT64_C(1) << 62, INT64_MAX, UINT64_MAX};
	static const unsigned attempts[] = {0, 1, 2, 63, 64, 65, UINT32_MAX};

	for (int n = 0; n < 5 * 5 * 7 * 5 * 3 * 5; n++) {
		int left = n;
		struct policy policy = plan((enum backoff)(left % 3), (enum jitter)(left / 3 % 5));
		left /= 15;
		policy.base_ns = sizes[left % 5];
		policy.cap_ns = sizes[left / 5 % 5];
		left /= 25;
		uint64_t wait = backoff_wait_ns(&policy, attempts[left % 7], sizes[left / 7]);
		ck_assert_uint_le(wait, INT64_MAX);
		if (policy.cap_ns != 0)
			ck_assert_uint_le(wait, policy.cap_ns);
	}
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_NONE);
	policy.base_ns = UINT64_C(1) << 62;
	policy.cap_ns = 0;
	ck_assert_uint_eq(backoff_wait_ns(&policy, 3, 0), INT64_MAX);
}
END_TEST

/* ---- many clients that fail together ---- */

#define RETRIES 5

struct herd {
	unsigned busiest; /* retries in the busiest slot of time */
	unsigned slots;   /* that have any */
	uint64_t last_ms;
};

/* So many clients fail at the same moment, and each of their retries fails too, at once. */
static struct herd stampede(const struct policy *policy, unsigned clients, uint64_t slot_ms)
{
	static unsigned counts[4096];
	struct herd herd = {0, 0, 0};

	memset(counts, 0, sizeof(counts));
	resc_seed(3);
	for (unsigned c = 0; c < clients; c++) {
		uint64_t wait = 0;
		uint64_t at = 0;
		for (unsigned i = 1; i <= RETRIES; i++) {
			wait = backoff_wait_ns(policy, i, wait);
			at += wait;
			ck_assert_uint_lt(at / (slot_ms * MS), 4096);
			counts[at / (slot_ms * MS)]++;
			herd.last_ms = at / MS > herd.last_ms ? at / MS : herd.last_ms;
		}
	}
	for (unsigned i = 0; i < 4096; i++) {
		herd.slots += counts[i] > 0;
		herd.busiest = counts[i] > herd.busiest ? counts[i] : herd.busiest;
	}
	return herd;
}

START_TEST(E5_jitter_breaks_up_a_thundering_herd)
{
	struct policy policy = plan(BACKOFF_FIXED, JITTER_NONE);
	struct herd herd = stampede(&policy, 200, 10);
	ck_assert_uint_eq(herd.busiest, 200);
	ck_assert_uint_eq(herd.slots, 5);
	ck_assert_uint_eq(herd.last_ms, 500);
	policy = plan(BACKOFF_EXPONENTIAL, JITTER_NONE);
	herd = stampede(&policy, 200, 10);
	ck_assert_uint_eq(herd.busiest, 200);
	ck_assert_uint_eq(herd.slots, 5);
	ck_assert_uint_eq(herd.last_ms, 3100);
	policy = plan(BACKOFF_EXPONENTIAL, JITTER_FULL);
	herd = stampede(&policy, 200, 10);
	ck_assert_uint_lt(herd.busiest, 50);
	ck_assert_uint_gt(herd.slots, 150);
	ck_assert_uint_le(herd.last_ms, 3100);
}
END_TEST

START_TEST(E12_a_hundred_that_reconnect_do_not_come_together)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_NONE);

	policy.base_ns = 500 * MS;
	policy.cap_ns = 30000 * MS;
	struct herd herd = stampede(&policy, 100, 100);
	ck_assert_uint_eq(herd.busiest, 100);
	ck_assert_uint_eq(herd.last_ms, 15500);
	policy.backoff_jitter = JITTER_FULL;
	herd = stampede(&policy, 100, 100);
	ck_assert_uint_lt(herd.busiest, 40);
	ck_assert_uint_le(herd.last_ms, 15500);
}
END_TEST

#define CHILDREN 16

/* Prefork workers are copies of one process, which may have drawn already. */
START_TEST(G4_forked_workers_do_not_wait_for_the_same_time)
{
	struct policy policy = plan(BACKOFF_EXPONENTIAL, JITTER_FULL);
	uint64_t waits[CHILDREN + 1];
	int ends[2];

	resc_seed(42);
	backoff_wait_ns(&policy, 3, 0);
	ck_assert_int_eq(pipe(ends), 0);
	for (int i = 0; i < CHILDREN; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			uint64_t wait = backoff_wait_ns(&policy, 3, 0);
			_exit(write(ends[1], &wait, sizeof(wait)) != (ssize_t)sizeof(wait));
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
		ck_assert_int_eq(read(ends[0], &waits[i], sizeof(waits[i])), sizeof(waits[i]));
	}
	waits[CHILDREN] = backoff_wait_ns(&policy, 3, 0);
	for (int i = 0; i <= CHILDREN; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(waits[i], waits[j]); /* of 400 million */
	}
	close(ends[0]);
	close(ends[1]);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        none_does_not_wait,
	        fixed,
	        exponential_doubles_up_to_the_cap,
	        the_ranges_of_jitter,
	        the_cap_is_never_passed,
	        proportional_jitter_does_not_gather_at_the_cap,
	        no_cap_is_no_cap,
	        nothing_wraps,
	        E5_jitter_breaks_up_a_thundering_herd,
	        E12_a_hundred_that_reconnect_do_not_come_together,
	        G4_forked_workers_do_not_wait_for_the_same_time,
	};

	return FIXTURE_RUN("backoff", tests, NULL, NULL);
}
