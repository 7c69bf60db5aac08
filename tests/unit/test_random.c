/* SPDX-License-Identifier: MIT */
/* Random numbers: fixed by a seed, fair, and never the same in a parent and its forked child (prefork workers are copies of one process).
 */
#include "random.h"

#include <pthread.h>

#include "fixture.h"

START_TEST(a_seed_fixes_the_sequence)
{
	uint64_t first[16];

	resc_seed(42);
	for (int i = 0; i < 16; i++)
		first[i] = random_next();
	resc_seed(42);
	for (int i = 0; i < 16; i++)
		ck_assert_uint_eq(random_next(), first[i]);
	resc_seed(43);
	ck_assert_uint_ne(random_next(), first[0]);
}
END_TEST

START_TEST(seed_0_is_a_seed_too)
{
	resc_seed(0);
	uint64_t a = random_next();
	uint64_t b = random_next();
	ck_assert_uint_ne(a, b);
	ck_assert_uint_ne(a, 0);
}
END_TEST

/* What the next number of a forked child is. */
static uint64_t child_number(void)
{
	int ends[2];
	uint64_t number = 0;

	ck_assert_int_eq(pipe(ends), 0);
	pid_t pid = fork();
	if (pid == 0) {
		number = random_next();
		_exit(write(ends[1], &number, sizeof(number)) != (ssize_t)sizeof(number));
	}
	ck_assert_int_eq(read(ends[0], &number, sizeof(number)), sizeof(number));
	ck_assert_int_eq(fixture_wait(pid), 0);
	close(ends[0]);
	close(ends[1]);
	return number;
}

START_TEST(G4_a_forked_child_has_a_sequence_of_its_own)
{
	resc_seed(42);
	random_next();
	uint64_t one = child_number();
	uint64_t other = child_number();
	uint64_t own = random_next();
	ck_assert_uint_ne(one, other);
	ck_assert_uint_ne(one, own);
	ck_assert_uint_ne(other, own);
	resc_seed(42);
	random_next();
	ck_assert_uint_eq(random_next(), own); /* the parent's went on undisturbed */
}
END_TEST

static void *thread_number(void *arg)
{
	*(uint64_t *)arg = random_next();
	return NULL;
}

START_TEST(threads_have_sequences_of_their_own)
{
	uint64_t numbers[4];
	pthread_t threads[4];

	resc_seed(42);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, thread_number, &numbers[i]), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(threads[i], NULL);
	for (int i = 0; i < 4; i++) {
		for (int j = 0; j < i; j++)
			ck_assert_uint_ne(numbers[i], numbers[j]);
	}
}
END_TEST

START_TEST(below_stays_below)
{
	static const uint64_t limits[] = {1, 2, 3, 1000, UINT64_C(1) << 32, (UINT64_C(1) << 63) + 1, UINT64_MAX};

	ck_assert_uint_eq(random_below(0), 0);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		for (int n = 0; n < 1000; n++)
			ck_assert_uint_lt(random_below(limits[i]), limits[i]);
	}
}
END_TEST

START_TEST(below_is_fair)
{
	/* n just above half of the range: without rejection the lower half of the results would come twice as often. */
	const uint64_t n = UINT64_C(3) << 62;
	unsigned low = 0;
	unsigned counts[6] = {0};

	resc_seed(7);
	for (int i = 0; i < 30000; i++)
		low += random_below(n) < n / 3;
	ck_assert_uint_gt(low, 9600);
	ck_assert_uint_lt(low, 10400);
	for (int i = 0; i < 60000; i++)
		counts[random_below(6)]++;
	for (int i = 0; i < 6; i++) {
		ck_assert_uint_gt(counts[i], 9600);
		ck_assert_uint_lt(counts[i], 10400);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_seed_fixes_the_sequence,           seed_0_is_a_seed_too, G4_a_forked_child_has_a_sequence_of_its_own,
	        threads_have_sequences_of_their_own, below_stays_below,    below_is_fair,
	};

	return FIXTURE_RUN("random", tests, NULL, NULL);
}
