/* SPDX-License-Identifier: MIT */
/*
 * The clock word of a segment of the test build, for programs that move time themselves. Starting resctl for each step costs
 * milliseconds; a program that takes ten thousand steps finds the word by the header instead.
 */
#ifndef RESC_TEST_CLOCK_H
#define RESC_TEST_CLOCK_H

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment.h"

/* A segment by its present name. base is NULL where there is none. */
struct clock_view {
	const struct segment_header *base;
	size_t size;
};

static inline struct clock_view clock_open(const char *instance)
{
	struct clock_view view = {NULL, 0};
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), SEGMENT_DIR SEGMENT_PREFIX "%s", instance);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	if (fd < 0)
		return view;
	if (fstat(fd, &st) == 0 && st.st_size >= (off_t)SEGMENT_PAGE) {
		void *base = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

		if (base != MAP_FAILED)
			view = (struct clock_view){base, (size_t)st.st_size};
	}
	close(fd);
	return view;
}

/* NULL: not a segment, or one whose time is the real one. */
static inline word *clock_word(const struct clock_view *view)
{
	const struct segment_header *header = view->base;

	if (header == NULL || header->magic != SEGMENT_MAGIC || !header->test_clock || header->live_offset + SEGMENT_PAGE > view->size)
		return NULL;
	return &((struct segment_live *)((char *)(uintptr_t)header + header->live_offset))->clock_ns;
}

static inline void clock_close(struct clock_view *view)
{
	if (view->base != NULL)
		munmap((void *)(uintptr_t)view->base, view->size);
	view->base = NULL;
}

#endif
