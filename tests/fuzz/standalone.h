/* SPDX-License-Identifier: MIT */
/*
 * main() of a fuzz target without libFuzzer: runs the inputs of the files that are named, one by one, each for at most some seconds. So
 * the kept corpus is a regression test that any compiler can build.
 */
#ifndef FUZZ_STANDALONE_H
#define FUZZ_STANDALONE_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* An endless loop has no end then either; on a machine that is busy an input may take seconds. */
#define STANDALONE_SECONDS 60
#define STANDALONE_INPUT   ((size_t)1 << 20)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#ifdef FUZZ_STANDALONE
static int run_file(const char *path)
{
	FILE *file = fopen(path, "r");
	uint8_t *input = malloc(STANDALONE_INPUT);

	if (file == NULL || input == NULL) {
		perror(path);
		return 1;
	}
	size_t size = fread(input, 1, STANDALONE_INPUT, file);
	fclose(file);
	/* A copy of exactly that size, so that a byte read beyond it is noticed. */
	uint8_t *exact = malloc(size == 0 ? 1 : size);
	for (size_t i = 0; exact != NULL && i < size; i++)
		exact[i] = input[i];
	free(input);
	alarm(STANDALONE_SECONDS);
	if (exact != NULL)
		LLVMFuzzerTestOneInput(exact, size);
	alarm(0);
	free(exact);
	return exact == NULL;
}

int main(int argc, char **argv)
{
	int failed = 0;

	for (int i = 1; i < argc; i++) {
		/* Last on the screen when it crashes. */
		printf("%s\n", argv[i]);
		fflush(stdout);
		failed |= run_file(argv[i]);
	}
	return failed;
}
#endif

/* What must be so, or the input is one that found something. */
#define REQUIRE(condition)                                                                                                                 \
	do {                                                                                                                               \
		if (!(condition)) {                                                                                                        \
			fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                                            \
			abort();                                                                                                           \
		}                                                                                                                          \
	} while (0)

/* An input, taken byte by byte from its start. Behind its end there are zeros. */
struct input {
	const uint8_t *data;
	size_t size;
};

static inline uint8_t take_byte(struct input *in)
{
	if (in->size == 0)
		return 0;
	in->size--;
	return *in->data++;
}

static inline uint64_t take_number(struct input *in, unsigned bytes)
{
	uint64_t n = 0;

	while (bytes-- > 0)
		n = n << 8 | take_byte(in);
	return n;
}

#endif
