/* SPDX-License-Identifier: MIT */
/*
 * Jitter is there so that workers do not all do the same thing at the same time. Prefork workers are copies of one process: a generator
 * that survives fork() would give all of them the same "random" waits. So each thread has its own, seeded by the kernel, and it is
 * seeded again when the process epoch says that this is another process than the one that seeded it.
 *
 * xoshiro256** by Blackman and Vigna; its state is filled by splitmix64 from one 64-bit seed. random_below is Lemire's multiplication with
 * rejection ("Fast Random Integer Generation in an Interval", 2019).
 */
#include "random.h"

#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "process.h"
#include "resc.h"

static _Thread_local struct {
	uint64_t epoch; /* of the process that seeded it; 0: nobody */
	uint64_t s[4];
} generator;

static uint64_t splitmix64(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static void seed_with(uint64_t seed)
{
	for (int i = 0; i < 4; i++)
		generator.s[i] = splitmix64(&seed);
	generator.epoch = process_epoch();
}

/* Where the kernel has no random numbers to give (a seccomp filter, early boot), what differs between threads and moments. */
static uint64_t poor_seed(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec ^ (uint64_t)getpid() << 20 ^ (uint64_t)(uintptr_t)&generator;
}

static void seed_by_kernel(void)
{
	uint64_t seed;

	if (getrandom(&seed, sizeof(seed), GRND_NONBLOCK) != (ssize_t)sizeof(seed))
		seed = poor_seed();
	seed_with(seed);
}

void resc_seed(uint64_t seed)
{
	seed_with(seed);
}

static uint64_t rotate(uint64_t x, int k)
{
	return x << k | x >> (64 - k);
}

uint64_t random_next(void)
{
	if (generator.epoch != process_epoch())
		seed_by_kernel();

	uint64_t *s = generator.s;
	uint64_t result = rotate(s[1] * 5, 7) * 9;
	uint64_t t = s[1] << 17;
	s[2] ^= s[0];
	s[3] ^= s[1];
	s[1] ^= s[2];
	s[0] ^= s[3];
	s[2] ^= t;
	s[3] = rotate(s[3], 45);
	return result;
}

uint64_t random_below(uint64_t n)
{
	unsigned __int128 product = (unsigned __int128)random_next() * n;

	if ((uint64_t)product < n) {
		/* The lowest 2^64 mod n values would make some results more likely than others. Rejected less than every other time. */
		uint64_t unfair = (0 - n) % n;
		while ((uint64_t)product < unfair)
			product = (unsigned __int128)random_next() * n;
	}
	return (uint64_t)(product >> 64);
}
