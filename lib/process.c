/* SPDX-License-Identifier: MIT */
/*
 * The process's epoch, and what the kernel says of a process: see process.h.
 *
 * The page is anonymous, private and MADV_WIPEONFORK, so a child reads 0 there whatever way it was made, and draws a new epoch. Where the
 * kernel refuses the advice (before 4.14), pthread_atfork does the same for fork() alone.
 */
#include "process.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "segment.h"

_Atomic uint64_t *_Atomic process_epoch_page;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Atomic uint64_t fallback_page;

static void wipe(void)
{
	atomic_store_explicit(atomic_load_explicit(&process_epoch_page, memory_order_relaxed), 0, memory_order_relaxed);
}

void *process_wiped_memory(size_t size)
{
	void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
		return NULL;
	if (madvise(memory, size, MADV_WIPEONFORK) == 0)
		return memory;
	munmap(memory, size);
	return NULL;
}

static void make_page(void)
{
	void *page = process_wiped_memory(SEGMENT_PAGE);

	atomic_store_explicit(&process_epoch_page, page == NULL ? &fallback_page : page, memory_order_release);
	if (page == NULL)
		pthread_atfork(NULL, NULL, wipe);
}

uint64_t process_epoch_renew(void)
{
	uint64_t fresh = 0;
	uint64_t none = 0;

	pthread_once(&once, make_page);
	_Atomic uint64_t *page = atomic_load_explicit(&process_epoch_page, memory_order_acquire);
	if (getrandom(&fresh, sizeof fresh, GRND_NONBLOCK) != (ssize_t)sizeof fresh)
		fresh = ((uint64_t)getpid() << 32) ^ (uint64_t)(uintptr_t)&fresh;
	fresh |= 1;
	/* Relaxed: the epoch orders nothing, it is only compared. The first thread of a child wins. */
	if (!atomic_compare_exchange_strong_explicit(page, &none, fresh, memory_order_relaxed, memory_order_relaxed))
		return none;
	return fresh;
}

uint64_t process_namespace(const char *name)
{
	char path[64];
	struct stat st;

	snprintf(path, sizeof path, "/proc/self/ns/%s", name);
	return stat(path, &st) == 0 ? (uint64_t)st.st_ino : 0;
}

uint64_t process_stat_start(const char *stat)
{
	/* The name in parentheses may itself have spaces and parentheses: fields are counted after the last one. */
	const char *p = strrchr(stat, ')');

	for (int field = 2; p != NULL && field < 22; field++)
		p = strchr(p + 1, ' ');
	return p == NULL ? 0 : strtoull(p + 1, NULL, 10);
}

uint64_t process_start_ticks(pid_t pid)
{
	char text[1024];
	char path[64];

	snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t n = read(fd, text, sizeof text - 1);
	close(fd);
	if (n <= 0)
		return 0;
	text[n] = '\0';
	return process_stat_start(text);
}
