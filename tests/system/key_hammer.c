/* SPDX-License-Identifier: MIT */
/*
 * key_hammer INSTANCE RESOURCE KEYS SEED LOG: begins random ones of so many idempotency keys until it is killed, or its input ends.
 *
 * Why this exists: "each key is first once" is a promise about all processes of a host, some of which die. So each one writes into a
 * common file what it was told, a line at a time: "F key pid" before it starts on a key, "D key pid" when it is done, "U key pid" where
 * nobody knew what became of it, which it settles, "X key r" for an answer that is wrong. At its end it says how often it got which answer.
 */
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "resc.h"

static int log_file;

static void tell(char what, unsigned key, int number)
{
	char line[64];
	int length = snprintf(line, sizeof(line), "%c %u %d\n", what, key, number);

	/* O_APPEND: lines of several processes do not mix. */
	if (write(log_file, line, (size_t)length) != length)
		_exit(7);
}

/* Until input says something, or ends. */
static bool shall_end(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};

	return poll(&input, 1, 0) > 0;
}

static void work(resc_once *once, unsigned number, const char *key, unsigned *seed)
{
	/* Long enough that most of those who are killed are killed at work. */
	const struct timespec takes = {.tv_nsec = (long)(rand_r(seed) % 30000000)};

	tell('F', number, (int)getpid());
	nanosleep(&takes, NULL);
	if (resc_once_done(once, key, strlen(key)) == 0)
		tell('D', number, (int)getpid());
	else
		tell('X', number, 0);
}

/* Its owner was killed while it stored the answer: so the work was done, and this is the answer. */
static void settle(resc_once *once, unsigned number, const char *key)
{
	tell('U', number, (int)getpid());
	resc_once_done(once, key, strlen(key));
}

int main(int argc, char **argv)
{
	unsigned first = 0, replayed = 0, busy = 0;
	struct resc_error err = {0};
	resc_once once;
	char key[32];

	if (argc != 6)
		return 2;
	log_file = open(argv[5], O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
	resc *host = resc_open(argv[1], &err);
	resc_resource *resource = host == NULL ? NULL : resc_lookup(host, argv[2], &err);
	if (log_file < 0 || resource == NULL) {
		fprintf(stderr, "%s\n", err.text);
		return 1;
	}
	unsigned keys = (unsigned)strtoul(argv[3], NULL, 10);
	unsigned seed = (unsigned)strtoul(argv[4], NULL, 10);
	while (!shall_end()) {
		unsigned number = (unsigned)rand_r(&seed) % keys;
		snprintf(key, sizeof(key), "order-%u", number);
		int r = resc_once_begin(resource, key, strlen(key), NULL, &once);
		if (r == 0)
			work(&once, number, key, &seed);
		else if (r == RESC_ONCE_UNKNOWN)
			settle(&once, number, key);
		else if (r == RESC_ONCE_DONE && (once.size != strlen(key) || memcmp(once.answer, key, once.size) != 0))
			tell('X', number, r);
		else if (r != RESC_ONCE_DONE && r != RESC_ONCE_BUSY)
			tell('X', number, r);
		first += r == 0;
		replayed += r == RESC_ONCE_DONE;
		busy += r == RESC_ONCE_BUSY;
	}
	resc_close(host);
	printf("{\"first\": %u, \"replayed\": %u, \"busy\": %u}\n", first, replayed, busy);
	return 0;
}
