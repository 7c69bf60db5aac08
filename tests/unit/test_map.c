/* SPDX-License-Identifier: MIT */
/*
 * Making, opening and checking a segment: whatever is wrong with a file, attaching says so with its path and the reason, nothing crashes,
 * a worker goes on in private mode, and nothing is left behind.
 */
#include "map.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "named.h"
#include "worker.h"

static struct named n;
static char copy_instance[SEGMENT_NAME_SIZE];
static char copy_path[MAP_PATH_SIZE];
static _Alignas(struct segment_header) unsigned char page[SEGMENT_PAGE];

static struct segment_header header(void)
{
	struct segment_header h;

	memcpy(&h, page, sizeof h);
	return h;
}

/* With the right checksum: it was not damaged but made so. */
static const struct segment_header *seal(struct segment_header *h)
{
	unsigned char whole[SEGMENT_PAGE] = {0};
	struct segment_header unsealed = *h;

	unsealed.checksum = 0;
	atomic_store_explicit(&unsealed.ready, 0, memory_order_relaxed);
	memcpy(whole, &unsealed, sizeof unsealed);
	h->checksum = fnv1a(whole, sizeof whole);
	return h;
}

static void set_up(void)
{
	named_open(&n, NULL);
	named_instance(copy_instance, "copy");
	map_path(copy_path, copy_instance, 0);
	memcpy(page, n.map.base, sizeof page);
	/* The copy's own name: one that says that it is another instance's is not good in any other way. */
	struct segment_header h = header();
	memcpy(h.instance, copy_instance, sizeof h.instance);
	seal(&h);
	memcpy(page, &h, sizeof h);
}

static void tear_down(void)
{
	unlink(copy_path);
	named_close(&n);
}

/* ---- files that are nearly segments ---- */

static int copy_open(size_t size)
{
	int fd = open(copy_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fchmod(fd, 0600), 0);
	size_t there = size < n.map.size ? size : n.map.size;
	size_t first = there < sizeof page ? there : sizeof page;
	ck_assert_int_eq(pwrite(fd, n.map.base, there, 0), (ssize_t)there);
	ck_assert_int_eq(pwrite(fd, page, first, 0), (ssize_t)first);
	ck_assert_int_eq(ftruncate(fd, (off_t)size), 0);
	return fd;
}

static void copy_make(size_t size)
{
	close(copy_open(size));
}

static void put_header(const struct segment_header *h)
{
	int fd = copy_open(n.map.size);

	ck_assert_int_eq(pwrite(fd, h, sizeof *h, 0), (ssize_t)sizeof *h);
	close(fd);
}

static void put_sealed(struct segment_header *h)
{
	put_header(seal(h));
}

static uint64_t page_up(uint64_t size)
{
	return (size + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
}

/* Offsets and size that follow from dimensions and sizes. */
static void follow(struct segment_header *h)
{
	const struct segment_dims *d = &h->dims;
	uint64_t cells = ((uint64_t)d->permits + d->waiting + d->calls) * 8;
	uint64_t state = h->sizes.state + cells + (d->shards + UINT64_C(1)) * h->sizes.shard;

	h->live_offset = page_up(h->policies_offset + d->resources * (SEGMENT_LINE + UINT64_C(2) * h->sizes.policy));
	h->workers_offset = h->live_offset + SEGMENT_PAGE;
	h->states_offset = page_up(h->workers_offset + (uint64_t)d->workers * h->sizes.worker);
	h->events_offset = page_up(h->states_offset + d->resources * state);
	h->once_offset = page_up(h->events_offset + (uint64_t)d->events * h->sizes.event);
	h->total_size = page_up(h->once_offset + d->once * (UINT64_C(8) + h->sizes.once_entry));
}

/* A sealed header in front of a file of the size that it says, which is empty. */
static void put_sized(struct segment_header *h)
{
	int fd = open(copy_path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(pwrite(fd, seal(h), sizeof *h, 0), (ssize_t)sizeof *h);
	ck_assert_int_eq(ftruncate(fd, (off_t)h->total_size), 0);
	close(fd);
}

static int refused(struct resc_error *err)
{
	static const enum map_access all[] = {MAP_WORKER, MAP_OWNER, MAP_READER};
	int first = 0;

	for (size_t i = 0; i < 3; i++) {
		struct map map;
		*err = (struct resc_error){0, ""};
		int r = map_open(&map, copy_path, all[i], err);
		ck_assert_int_lt(r, 0);
		ck_assert_int_eq(err->code, r);
		ck_assert_msg(strstr(err->text, copy_path) != NULL, "the reason does not name the file: %s", err->text);
		ck_assert_int_lt(map.fd, 0);
		first = i == 0 ? r : first;
	}
	return first;
}

static void refused_with(int code, const char *word_in_text)
{
	struct resc_error err;

	ck_assert_int_eq(refused(&err), code);
	ck_assert_msg(strstr(err.text, word_in_text) != NULL, "\"%s\" is not in: %s", word_in_text, err.text);
}

/* A worker that comes now works in private mode, and says why. */
static void worker_is_private(void)
{
	struct resc_error err = {1, "x"};
	struct resc_status status;
	resc_ticket ticket;
	resc *host = resc_open(copy_instance, &err);

	ck_assert_ptr_nonnull(host);
	ck_assert_int_eq(err.code, 0);
	ck_assert_int_eq(resc_status(host, &status), 0);
	ck_assert_int_eq(status.mode, RESC_PRIVATE);
	ck_assert_msg(strstr(status.reason, copy_path) != NULL, "%s", status.reason);
	ck_assert_int_eq(resc_enter(named_lookup(host, "payments"), NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	resc_close(host);
}

START_TEST(a_copy_that_is_whole_opens)
{
	/* Without this the tests below would prove nothing. */
	struct resc_error err;
	struct segment_header h = header();
	struct map map;

	put_sealed(&h);
	ck_assert_msg(map_open(&map, copy_path, MAP_WORKER, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(map.generation, n.map.generation);
	ck_assert_uint_eq(map.size, n.map.size);
	ck_assert_int_eq(policy_find(&map, "payments"), (int)n.index);
	map_close(&map);
}
END_TEST

START_TEST(each_byte_of_the_header_flipped_is_noticed)
{
	struct resc_error err;
	int fd = copy_open(n.map.size);

	for (size_t i = 0; i < SEGMENT_PAGE; i++) {
		unsigned char flipped = page[i] ^ (unsigned char)(1u << (i % 8));
		ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)i), 1);
		refused(&err);
		flipped = page[i] ^ 0xff;
		ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)i), 1);
		refused(&err);
		ck_assert_int_eq(pwrite(fd, &page[i], 1, (off_t)i), 1);
	}
	close(fd);
}
END_TEST

START_TEST(each_byte_of_the_header_flipped_leaves_workers_in_private_mode)
{
	int fd = copy_open(n.map.size);

	named_quiet();
	for (size_t i = 0; i < SEGMENT_PAGE; i += i < sizeof(struct segment_header) ? 1 : 61) {
		unsigned char flipped = (unsigned char)~page[i];
		ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)i), 1);
		worker_is_private();
		ck_assert_int_eq(pwrite(fd, &page[i], 1, (off_t)i), 1);
	}
	close(fd);
}
END_TEST

START_TEST(cut_at_any_length_is_noticed)
{
	struct resc_error err;
	const size_t whole = n.map.size;
	const size_t sizes[] = {0, 1, 7, 8, 64, 255, 511, 4095, 4096, 4097, 8192, whole / 2, whole - 4096, whole - 1};

	named_quiet();
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		copy_make(sizes[i]);
		ck_assert_int_eq(refused(&err), -EBADMSG);
		worker_is_private();
	}
	copy_make(SEGMENT_PAGE - 1);
	refused_with(-EBADMSG, "too short");
	copy_make(whole - 4096);
	refused_with(-EBADMSG, "cut");
}
END_TEST

START_TEST(what_is_added_behind_the_end_changes_nothing)
{
	struct resc_error err;
	struct map map;

	copy_make(n.map.size + 4097);
	ck_assert_msg(map_open(&map, copy_path, MAP_WORKER, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(map.size, n.map.size);
	ck_assert(map_is_sound(&map));
	map_close(&map);
}
END_TEST

START_TEST(a_segment_that_is_cut_or_overwritten_under_its_users_is_not_sound)
{
	struct resc_error err;
	struct map map;
	int fd = copy_open(n.map.size);

	ck_assert_msg(map_open(&map, copy_path, MAP_WORKER, &err) == 0, "%s", err.text);
	ck_assert(map_is_sound(&map));
	for (size_t i = 0; i < offsetof(struct segment_header, ready); i += 5) {
		unsigned char flipped = (unsigned char)~page[i];
		ck_assert_int_eq(pwrite(fd, &flipped, 1, (off_t)i), 1);
		ck_assert(!map_is_sound(&map));
		ck_assert_int_eq(pwrite(fd, &page[i], 1, (off_t)i), 1);
	}
	ck_assert(map_is_sound(&map));
	ck_assert_int_eq(ftruncate(fd, (off_t)n.map.size - 1), 0);
	ck_assert(!map_is_sound(&map));
	ck_assert_int_eq(ftruncate(fd, 0), 0);
	ck_assert(!map_is_sound(&map));
	ck_assert_int_eq(ftruncate(fd, (off_t)n.map.size), 0);
	ck_assert(!map_is_sound(&map)); /* as large as it was, and zero */
	map_close(&map);
	close(fd);
}
END_TEST

START_TEST(all_zero_is_noticed)
{
	int fd = copy_open(0);

	named_quiet();
	ck_assert_int_eq(ftruncate(fd, (off_t)n.map.size), 0);
	close(fd);
	refused_with(-EBADMSG, "not a segment");
	worker_is_private();
}
END_TEST

START_TEST(random_headers_are_noticed)
{
	struct resc_error err;
	int fd = copy_open(n.map.size);

	srand(7);
	for (int round = 0; round < 300; round++) {
		unsigned char noise[SEGMENT_PAGE];
		for (size_t i = 0; i < sizeof noise; i++)
			noise[i] = (unsigned char)rand();
		/* Some come further than the magic. */
		memcpy(noise, page, (size_t)(round % 8) * 16);
		ck_assert_int_eq(pwrite(fd, noise, sizeof noise, 0), (ssize_t)sizeof noise);
		refused(&err);
	}
	close(fd);
}
END_TEST

/* ---- headers that fit together and are wrong ---- */

START_TEST(what_is_not_of_this_major_is_told_apart)
{
	struct segment_header h = header();
	char reason[128];

	h.major++;
	put_sealed(&h);
	snprintf(reason, sizeof reason, "format 2.%u, this program (resc " RESC_VERSION_STRING ") reads 1.x: upgrade this program",
	         (unsigned)SEGMENT_MINOR);
	refused_with(-EPROTO, reason);
	h = header();
	h.major--;
	put_sealed(&h);
	refused_with(-EPROTO, "upgrade rescd");
	/* Nothing more is believed of another major: not even where its checksum is. */
	h.checksum ^= 1;
	put_header(&h);
	refused_with(-EPROTO, "upgrade rescd");
	h = header();
	h.test_clock = 0;
	put_sealed(&h);
	refused_with(-EPROTO, "test clock");
	h = header();
	atomic_store_explicit(&h.ready, 0, memory_order_relaxed);
	put_sealed(&h);
	refused_with(-EAGAIN, "not complete");
	h = header();
	h.generation = 0;
	put_sealed(&h);
	refused_with(-EBADMSG, "damaged");
}
END_TEST

/* ---- other minors ---- */

static void opens(unsigned minor)
{
	struct resc_error err = {0, ""};
	struct map map;

	ck_assert_msg(map_open(&map, copy_path, MAP_WORKER, &err) == 0, "%s", err.text);
	ck_assert_uint_eq(map.minor, minor);
	ck_assert_int_eq(policy_find(&map, "payments"), (int)n.index);
	ck_assert(map_has(&map, 0));
	ck_assert(map_has(&map, 1) == (minor >= 1));
	ck_assert(!map_has(&map, SEGMENT_MINOR + 1)); /* whoever made it: this library does not know it */
	map_close(&map);
}

START_TEST(a_segment_of_an_older_minor_is_used_as_far_as_it_goes)
{
	struct segment_header h = header();

	h.minor = 0;
	for (unsigned minor = 1; minor < SEGMENT_MINORS; minor++)
		h.layouts[minor] = 0;
	put_sealed(&h);
	opens(0);
	h.layouts[0] ^= 1;
	put_sealed(&h);
	refused_with(-EPROTO, "another layout 1.0");
}
END_TEST

START_TEST(a_segment_of_a_newer_minor_is_used_as_far_as_this_library_goes)
{
	struct segment_header h = header();

	h.minor = SEGMENT_MINOR + 1;
	h.layouts[SEGMENT_MINOR + 1] = 77; /* not ours to judge */
	put_sealed(&h);
	opens(SEGMENT_MINOR + 1);
	/* Of whatever minor: beyond those that a header has hashes for, too. */
	h.minor = UINT16_MAX;
	put_sealed(&h);
	opens(UINT16_MAX);
	h.layouts[SEGMENT_MINOR] ^= 1;
	put_sealed(&h);
	refused_with(-EPROTO, "another layout");
}
END_TEST

START_TEST(a_newer_header_may_say_more_and_each_byte_of_it_is_covered)
{
	unsigned char whole[SEGMENT_PAGE];
	struct segment_header h = header();
	int fd = copy_open(n.map.size);

	h.minor = SEGMENT_MINOR + 1;
	h.checksum = 0;
	atomic_store_explicit(&h.ready, 0, memory_order_relaxed);
	memcpy(whole, page, sizeof whole);
	memcpy(whole, &h, sizeof h);
	whole[sizeof h + 8] = 1;
	h.checksum = fnv1a(whole, sizeof whole);
	atomic_store_explicit(&h.ready, SEGMENT_MAGIC, memory_order_relaxed);
	memcpy(whole, &h, sizeof h);
	ck_assert_int_eq(pwrite(fd, whole, sizeof whole, 0), (ssize_t)sizeof whole);
	opens(SEGMENT_MINOR + 1);
	whole[sizeof h + 8] = 2;
	ck_assert_int_eq(pwrite(fd, whole, sizeof whole, 0), (ssize_t)sizeof whole);
	refused_with(-EBADMSG, "checksum");
	close(fd);
}
END_TEST

START_TEST(sizes_of_records_are_checked)
{
	static const uint32_t wrong[] = {0, 1, 127, 65536 + 128, UINT32_MAX};
	struct segment_header h;
	uint32_t *const sizes[] = {&h.sizes.policy, &h.sizes.worker, &h.sizes.state, &h.sizes.shard, &h.sizes.event, &h.sizes.once_entry};

	for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
		for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
			h = header();
			h.minor = SEGMENT_MINOR + 1; /* where they need not be ours */
			*sizes[s] = wrong[i];
			put_sealed(&h);
			refused_with(-EBADMSG, "sizes");
		}
		/* Too small for what it says it has. */
		h = header();
		h.minor = SEGMENT_MINOR + 1;
		*sizes[s] -= 128;
		put_sealed(&h);
		refused_with(-EBADMSG, "sizes");
		/* In this very minor they are what they are. */
		h = header();
		*sizes[s] += 128;
		put_sealed(&h);
		refused_with(-EBADMSG, "sizes");
	}
}
END_TEST

/* Records that are longer than ours: everything is found all the same, and nothing overlaps. */
START_TEST(records_that_have_grown_are_found)
{
	struct segment_header h = header();
	struct resc_error err = {0, ""};
	struct map map;

	h.minor = SEGMENT_MINOR + 1;
	h.sizes = (struct segment_sizes){h.sizes.policy + 64, h.sizes.worker + 128, h.sizes.state + 256,
	                                 h.sizes.shard + 128, h.sizes.event + 128,  h.sizes.once_entry + 128};
	follow(&h);
	put_sized(&h);
	ck_assert_msg(map_open(&map, copy_path, MAP_OWNER, &err) == 0, "%s", err.text);
	for (uint32_t i = 0; i < map.dims.resources; i++) {
		const uint8_t *record = (const uint8_t *)map_policy(&map, i);
		ck_assert_ptr_eq(record, map.policies + i * (128 + 2 * h.sizes.policy));
		ck_assert_ptr_eq(map_permits(&map, map_state(&map, i)), (uint8_t *)map_state(&map, i) + h.sizes.state);
		const uint8_t *end = (uint8_t *)map_carried(&map, map_state(&map, i)) + h.sizes.shard;
		ck_assert_ptr_eq(end, (uint8_t *)map_state(&map, i) + map.state_size);
		ck_assert(end <= map.events);
	}
	ck_assert_ptr_eq(map_worker(&map, 1), map.workers + h.sizes.worker);
	ck_assert((uint8_t *)map_once_entry(&map, map.dims.once) <= map.base + map.size);
	/* A policy is written and read as far as both know it. */
	ck_assert_int_ge(record_publish(&map, "wide", &n.policy), 0);
	struct policy policy;
	uint64_t sequence;
	ck_assert_int_eq(policy_read(&map, (uint32_t)policy_find(&map, "wide"), &policy, &sequence), 0);
	ck_assert_mem_eq(&policy, &n.policy, sizeof policy);
	map_close(&map);
}
END_TEST

START_TEST(dimensions_out_of_range_are_refused)
{
	static const uint32_t bad[] = {0, 3, 5, 24, 65537, 1u << 20, 1u << 31, UINT32_MAX};
	struct segment_header h;
	uint32_t *const fields[] = {&h.dims.resources, &h.dims.workers, &h.dims.permits, &h.dims.shards, &h.dims.events};

	for (size_t f = 0; f < 5; f++) {
		for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
			h = header();
			*fields[f] = bad[i];
			put_sealed(&h);
			refused_with(-EBADMSG, "dimensions");
		}
	}
}
END_TEST

START_TEST(offsets_and_sizes_that_do_not_follow_are_refused)
{
	struct segment_header h;
	uint64_t *const fields[] = {&h.daemon_offset, &h.policies_offset, &h.live_offset, &h.workers_offset,
	                            &h.states_offset, &h.events_offset,   &h.once_offset, &h.total_size};

	for (size_t f = 0; f < sizeof fields / sizeof fields[0]; f++) {
		static const uint64_t wrong[] = {1, 4096, UINT64_MAX, UINT64_MAX / 2};
		for (size_t i = 0; i < 4; i++) {
			h = header();
			*fields[f] += wrong[i];
			put_sealed(&h);
			refused_with(-EBADMSG, "sizes");
		}
	}
}
END_TEST

START_TEST(F2_E4_another_boot_or_clock_is_refused)
{
	struct segment_header h = header();

	named_quiet();
	h.boot_id[15] ^= 1;
	put_sealed(&h);
	refused_with(-ESTALE, "last boot");
	worker_is_private();
	h = header();
	memset(h.boot_id, 0, sizeof h.boot_id);
	h.created_ns += UINT64_C(3600000000000);
	put_sealed(&h);
	refused_with(-ESTALE, "future");
	h = header();
	h.time_namespace++;
	put_sealed(&h);
	refused_with(-EXDEV, "time namespace");
	worker_is_private();
	h = header();
	h.created_ns += UINT64_C(3600000000000);
	put_sealed(&h);
	refused_with(-ESTALE, "future");
	worker_is_private();
}
END_TEST

START_TEST(F2_a_boot_that_is_not_known_is_not_another_one)
{
	/* rescd ran where /proc does not tell the boot: the clock has to do. */
	struct segment_header h = header();
	struct resc_error err;
	struct map map;

	memset(h.boot_id, 0, sizeof h.boot_id);
	put_sealed(&h);
	ck_assert_msg(map_open(&map, copy_path, MAP_WORKER, &err) == 0, "%s", err.text);
	map_close(&map);
}
END_TEST

START_TEST(F5_a_segment_of_another_name_is_refused)
{
	struct segment_header h = header();

	named_quiet();
	memcpy(h.instance, n.instance, sizeof h.instance);
	put_sealed(&h);
	refused_with(-EBADMSG, "copied or renamed");
	refused_with(-EBADMSG, n.instance);
	worker_is_private();
	memset(h.instance, 'x', sizeof h.instance);
	put_sealed(&h);
	refused_with(-EBADMSG, "damaged");
	/* The live one itself under another name is no copy, and still not that instance. */
	ck_assert_int_eq(unlink(copy_path), 0);
	ck_assert_int_eq(link(n.path, copy_path), 0);
	refused_with(-EBADMSG, "copied or renamed");
}
END_TEST

START_TEST(F3_a_segment_of_another_generation_is_refused_under_the_name_of_one)
{
	char path[MAP_PATH_SIZE];
	struct resc_error err;
	struct map map;

	map_path(path, n.instance, n.map.generation);
	ck_assert_int_eq(map_publish(&n.map, path), 0);
	ck_assert_msg(map_open(&map, path, MAP_READER, &err) == 0, "%s", err.text);
	map_close(&map);
	ck_assert_int_eq(unlink(path), 0);
	map_path(path, n.instance, n.map.generation + 2);
	ck_assert_int_eq(map_publish(&n.map, path), 0);
	ck_assert_int_eq(map_open(&map, path, MAP_READER, &err), -EBADMSG);
	ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* ---- things that are no segments at all ---- */

START_TEST(F5_other_kinds_of_files_are_refused_at_once)
{
	struct resc_error err;

	alarm(20); /* a FIFO must not be waited for */
	named_quiet();
	ck_assert_int_eq(symlink(n.path, copy_path), 0);
	refused_with(-ELOOP, "symbolic link");
	worker_is_private();
	ck_assert_int_eq(unlink(copy_path), 0);

	ck_assert_int_eq(mkfifo(copy_path, 0600), 0);
	refused_with(-ENOTSUP, "regular file");
	worker_is_private();
	ck_assert_int_eq(unlink(copy_path), 0);

	ck_assert_int_eq(mkdir(copy_path, 0700), 0);
	refused(&err);
	worker_is_private();
	ck_assert_int_eq(rmdir(copy_path), 0);

	struct sockaddr_un address = {.sun_family = AF_UNIX};
	snprintf(address.sun_path, sizeof address.sun_path, "%.107s", copy_path);
	int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_eq(bind(fd, (struct sockaddr *)&address, sizeof address), 0);
	refused(&err);
	worker_is_private();
	close(fd);
}
END_TEST

START_TEST(F5_what_everybody_can_write_is_refused)
{
	named_quiet();
	copy_make(n.map.size);
	ck_assert_int_eq(chmod(copy_path, 0602), 0);
	refused_with(-EPERM, "everybody");
	worker_is_private();
}
END_TEST

START_TEST(F5_foreign_files_are_refused)
{
	struct resc_error err;
	struct map map;

	if (geteuid() != 0)
		return;
	copy_make(n.map.size);
	ck_assert_int_eq(chown(copy_path, 12345, 12345), 0);
	ck_assert_int_eq(chmod(copy_path, 0664), 0);
	/* Only a process that is not root can be deceived by a file of somebody else. */
	pid_t pid = fork();
	if (pid == 0) {
		if (setgroups(0, NULL) != 0 || setgid(65534) != 0 || setuid(65534) != 0)
			_exit(3);
		int r = map_open(&map, copy_path, MAP_READER, &err);
		_exit(r == -EPERM && strstr(err.text, "12345") != NULL ? 0 : 1);
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
}
END_TEST

START_TEST(none_is_said_to_be_none)
{
	named_quiet();
	refused_with(-ENOENT, "is rescd running?");
	worker_is_private();
}
END_TEST

/* ---- names ---- */

START_TEST(names_are_letters_digits_and_four_signs)
{
	static const char *const good[] = {"a", "Z", "0", "payments", "a.b", "a_b", "a:b", "a-b", "-", "shard-17.eu:west_1"};
	static const char *const bad[] = {"",    ".",    "..",       ".hidden", "a/b", "/",    "../x", "a b",
	                                  "a\n", "a\tb", "\xc3\xa4", "a%b",     "a*",  "a\\b", "\x7f"};
	struct resc_error err;
	char longest[70];

	for (size_t i = 0; i < sizeof good / sizeof good[0]; i++)
		ck_assert_msg(name_check(good[i], &err) == 0, "%s", good[i]);
	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
		err = (struct resc_error){0, ""};
		ck_assert_msg(name_check(bad[i], &err) == -EINVAL, "%s", bad[i]);
		ck_assert_uint_gt(strlen(err.text), 0);
		ck_assert_int_eq(name_check(bad[i], NULL), -EINVAL);
		/* "" is the default instance for resc_open. */
		ck_assert(bad[i][0] == '\0' || resc_open(bad[i], &err) == NULL);
		ck_assert_int_eq(err.code, -EINVAL);
	}
	ck_assert_int_eq(name_check(NULL, &err), -EINVAL);
	memset(longest, 'x', sizeof longest);
	longest[RESC_NAME_MAX + 1] = '\0';
	ck_assert_int_eq(name_check(longest, &err), -EINVAL);
	longest[RESC_NAME_MAX] = '\0';
	ck_assert_int_eq(name_check(longest, &err), 0);
}
END_TEST

START_TEST(the_longest_name_is_kept_whole)
{
	struct segment_dims dims;
	struct resc_error err;
	struct map made, opened;
	char path[MAP_PATH_SIZE], second[MAP_PATH_SIZE], name[SEGMENT_NAME_SIZE];
	int length = snprintf(name, sizeof name, "unit-%d-", (int)named_program);

	memset(name + length, 'y', (size_t)(RESC_NAME_MAX - length));
	name[RESC_NAME_MAX] = '\0';
	map_dims(&dims, &(struct map_needs){.resources = 1, .workers = 1});
	map_path(path, name, 0);
	ck_assert_int_eq(map_create(&made, name, &dims, NULL, 0600, (gid_t)-1, &err), 0);
	ck_assert_int_eq(map_publish(&made, path), 0);
	map_path(second, name, made.generation);
	ck_assert_int_eq(map_publish(&made, second), 0);
	ck_assert_msg(map_open(&opened, second, MAP_READER, &err) == 0, "%s", err.text);
	ck_assert_str_eq(opened.instance, name);
	unlink(path);
	unlink(second);
	map_close(&opened);
	map_close(&made);
}
END_TEST

/* ---- making ---- */

static unsigned entries(void)
{
	DIR *directory = opendir(SEGMENT_DIR);
	char prefix[64];
	unsigned count = 0;

	ck_assert_ptr_nonnull(directory);
	snprintf(prefix, sizeof prefix, SEGMENT_PREFIX "unit-%d-%d-", (int)named_program, (int)getpid());
	for (const struct dirent *e; (e = readdir(directory)) != NULL;)
		count += strncmp(e->d_name, prefix, strlen(prefix)) == 0;
	closedir(directory);
	return count;
}

START_TEST(F2_F11_a_segment_without_a_name_leaves_nothing)
{
	struct segment_dims dims;
	struct resc_error err;
	struct map map;
	unsigned before = entries();

	ck_assert_uint_eq(before, 1);
	map_dims(&dims, &(struct map_needs){.resources = 1, .workers = 1});
	for (int killed = 0; killed < 2; killed++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (map_create(&map, copy_instance, &dims, NULL, 0600, (gid_t)-1, &err) != 0)
				_exit(1);
			if (killed)
				kill(getpid(), SIGKILL);
			map_close(&map);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), killed ? -SIGKILL : 0);
		ck_assert_uint_eq(entries(), before);
	}
}
END_TEST

START_TEST(F5_the_mode_does_not_depend_on_the_umask)
{
	static const mode_t modes[] = {0600, 0660, 0640};
	struct segment_dims dims;
	struct resc_error err;
	struct stat st;
	mode_t before = umask(077);

	map_dims(&dims, &(struct map_needs){.resources = 1, .workers = 1});
	for (size_t i = 0; i < 3; i++) {
		struct map map;
		ck_assert_int_eq(map_create(&map, "unit", &dims, NULL, modes[i], getegid(), &err), 0);
		ck_assert_int_eq(fstat(map.fd, &st), 0);
		ck_assert_uint_eq(st.st_mode & 07777, modes[i]);
		/* The space is there, not only promised. */
		ck_assert_int_ge(st.st_blocks * 512, (int64_t)map.size);
		map_close(&map);
	}
	umask(before);
}
END_TEST

START_TEST(unsound_dimensions_are_not_made)
{
	static const struct segment_dims bad[] = {
	        {0, 16, 64, 8, 64, 64, 16, 16},    {1, 15, 64, 8, 64, 64, 16, 16},       {1, 16, 32, 8, 64, 64, 16, 16},
	        {1, 16, 64, 2, 64, 64, 16, 16},    {1, 16, 64, 8, 15, 64, 16, 16},       {1, 0, 64, 8, 64, 64, 16, 16},
	        {1, 16, 65536, 8, 64, 64, 16, 16}, {1, 16, 64, 128, 64, 64, 16, 16},     {20000, 16, 64, 8, 64, 64, 16, 16},
	        {1, 32768, 64, 8, 64, 64, 16, 16}, {1, 16, 64, 8, 131072, 64, 16, 16},   {1, 16, 64, 8, 64, 63, 16, 16},
	        {1, 16, 64, 8, 64, 32768, 16, 16}, {1, 16, 64, 8, 64, 64, 0, 16},        {1, 16, 64, 8, 64, 64, 32768, 16},
	        {1, 16, 64, 8, 64, 64, 16, 8},     {1, 16, 64, 8, 64, 64, 16, 1u << 21},
	};
	struct resc_error err;
	struct map map;

	for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
		ck_assert_int_eq(map_create(&map, "unit", &bad[i], NULL, 0600, (gid_t)-1, &err), -EINVAL);
}
END_TEST

START_TEST(dimensions_are_rounded_up_and_sound)
{
	static const uint32_t wishes[] = {0, 1, 15, 16, 17, 100, 1000, 16384};
	struct segment_dims dims;
	struct resc_error err;

	for (size_t i = 0; i < sizeof wishes / sizeof wishes[0]; i++) {
		map_dims(&dims, &(struct map_needs){.resources = 1, .workers = wishes[i], .permits = wishes[i]});
		ck_assert_uint_ge(dims.workers, wishes[i]);
		ck_assert_uint_ge(dims.permits, wishes[i]);
		struct map map;
		ck_assert_msg(map_create(&map, "unit", &dims, NULL, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
		map_close(&map);
		map_dims(&dims, &(struct map_needs){.resources = wishes[i], .workers = 1, .permits = 1});
		ck_assert_uint_ge(dims.resources, wishes[i]);
	}
}
END_TEST

START_TEST(a_name_that_is_taken_stays_with_its_owner)
{
	struct segment_dims dims;
	struct resc_error err;
	struct map other;

	map_dims(&dims, &(struct map_needs){.resources = 1, .workers = 1});
	ck_assert_int_eq(map_create(&other, n.instance, &dims, NULL, 0600, (gid_t)-1, &err), 0);
	ck_assert_uint_ne(other.generation, n.map.generation);
	ck_assert_int_eq(map_publish(&other, n.path), -EEXIST);
	ck_assert(map_is_at(&n.map, n.path));
	ck_assert(!map_is_at(&other, n.path));
	map_close(&other);
}
END_TEST

START_TEST(F3_removed_and_made_again_is_another_segment)
{
	struct segment_dims dims;
	struct resc_error err;
	struct map other;

	ck_assert_int_eq(unlink(n.path), 0);
	ck_assert(!map_is_at(&n.map, n.path));
	map_dims(&dims, &(struct map_needs){.resources = 1, .workers = 1});
	ck_assert_int_eq(map_create(&other, n.instance, &dims, NULL, 0600, (gid_t)-1, &err), 0);
	ck_assert_int_eq(map_publish(&other, n.path), 0);
	ck_assert(!map_is_at(&n.map, n.path));
	ck_assert(map_is_at(&other, n.path));
	map_close(&other);
}
END_TEST

/* ---- what is mapped how ---- */

static int writes(enum map_access access, size_t offset)
{
	struct resc_error err;
	struct map map;
	pid_t pid = fork();

	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		if (map_open(&map, n.path, access, &err) != 0)
			_exit(1);
		*(volatile uint8_t *)(map.base + offset) = 0;
		_exit(0);
	}
	return fixture_wait(pid);
}

static size_t offset_of(const void *p)
{
	return (size_t)((const uint8_t *)p - n.map.base);
}

START_TEST(a_worker_cannot_write_what_is_the_daemons)
{
	const size_t daemons[] = {0, offset_of(n.map.daemon), offset_of(n.map.policies)};
	const size_t workers[] = {offset_of(n.map.live) + 2048, offset_of(n.map.workers) + 100, offset_of(n.map.states) + 8,
	                          offset_of(n.map.events)};

	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(writes(MAP_WORKER, daemons[i]), -SIGSEGV);
	ck_assert_int_eq(writes(MAP_OWNER, 0), -SIGSEGV);
	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(writes(MAP_READER, workers[i]), -SIGSEGV);
		ck_assert_int_eq(writes(MAP_WORKER, workers[i]), 0);
	}
	ck_assert_int_eq(writes(MAP_OWNER, daemons[1] + 3000), 0);
}
END_TEST

START_TEST(permit_cells_are_each_there_once_and_apart)
{
	struct segment_dims dims = {
	        .resources = 1, .workers = 16, .permits = 256, .shards = 8, .events = 64, .calls = 64, .waiting = 16, .once = 16};
	struct resc_error err;
	struct map map;
	bool seen[256] = {false};

	ck_assert_int_eq(map_create(&map, "unit", &dims, NULL, 0600, (gid_t)-1, &err), 0);
	const struct state *state = map_state(&map, 0);
	for (uint32_t i = 0; i < dims.permits; i++) {
		ptrdiff_t place = map_permit(&map, state, i) - map_permits(&map, state);
		ck_assert(place >= 0 && place < 256 && !seen[place]);
		seen[place] = true;
		ptrdiff_t next = map_permit(&map, state, (i + 1) % 256) - map_permits(&map, state);
		ck_assert(place / (SEGMENT_LINE / 8) != next / (SEGMENT_LINE / 8));
	}
	ck_assert_ptr_eq(map_waiting(&map, state), map_permits(&map, state) + 256);
	ck_assert_ptr_eq(map_calls(&map, state), map_waiting(&map, state) + 16);
	ck_assert_ptr_eq(map_shard(&map, state, 0), map_calls(&map, state) + 64);
	ck_assert_ptr_eq(map_carried(&map, state), map_shard(&map, state, 0) + dims.shards);
	ck_assert_uint_eq((uintptr_t)map_shard(&map, state, dims.shards + 1) - (uintptr_t)state, map.state_size);
	map_close(&map);
}
END_TEST

START_TEST(a_successor_keeps_the_zero_of_time)
{
	struct resc_error err;
	struct map next;

	named_at(&n, 5000);
	ck_assert_int_eq(map_create(&next, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	ck_assert_uint_eq(next.predecessor, n.map.generation);
	ck_assert_uint_ne(next.generation, n.map.generation);
	ck_assert_uint_eq(next.created_ns, n.map.created_ns);
	ck_assert_uint_eq(clock_coarse_ms(&next), 5000);
	map_close(&next);
}
END_TEST

START_TEST(a_private_segment_has_no_file_and_one_worker)
{
	struct resc_error err;
	struct worker worker = {0};
	struct map map;
	unsigned before = entries();

	ck_assert_int_eq(map_private(&map, "unit", &err), 0);
	ck_assert(map.private_mode);
	ck_assert_int_lt(map.fd, 0);
	ck_assert_uint_eq(entries(), before);
	ck_assert_int_eq(worker_register(&map, &worker), 0);
	ck_assert_uint_eq(worker_sweep(&map, 0), 0);
	worker_unregister(&map, &worker);
	map_close(&map);
	map_close(&map); /* harmless */
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_copy_that_is_whole_opens,
	        each_byte_of_the_header_flipped_is_noticed,
	        each_byte_of_the_header_flipped_leaves_workers_in_private_mode,
	        cut_at_any_length_is_noticed,
	        what_is_added_behind_the_end_changes_nothing,
	        a_segment_that_is_cut_or_overwritten_under_its_users_is_not_sound,
	        all_zero_is_noticed,
	        random_headers_are_noticed,
	        what_is_not_of_this_major_is_told_apart,
	        a_segment_of_an_older_minor_is_used_as_far_as_it_goes,
	        a_segment_of_a_newer_minor_is_used_as_far_as_this_library_goes,
	        a_newer_header_may_say_more_and_each_byte_of_it_is_covered,
	        sizes_of_records_are_checked,
	        records_that_have_grown_are_found,
	        dimensions_out_of_range_are_refused,
	        offsets_and_sizes_that_do_not_follow_are_refused,
	        F2_E4_another_boot_or_clock_is_refused,
	        F2_a_boot_that_is_not_known_is_not_another_one,
	        F5_a_segment_of_another_name_is_refused,
	        F3_a_segment_of_another_generation_is_refused_under_the_name_of_one,
	        F5_other_kinds_of_files_are_refused_at_once,
	        F5_what_everybody_can_write_is_refused,
	        F5_foreign_files_are_refused,
	        none_is_said_to_be_none,
	        names_are_letters_digits_and_four_signs,
	        the_longest_name_is_kept_whole,
	        F2_F11_a_segment_without_a_name_leaves_nothing,
	        F5_the_mode_does_not_depend_on_the_umask,
	        unsound_dimensions_are_not_made,
	        dimensions_are_rounded_up_and_sound,
	        a_name_that_is_taken_stays_with_its_owner,
	        F3_removed_and_made_again_is_another_segment,
	        a_worker_cannot_write_what_is_the_daemons,
	        permit_cells_are_each_there_once_and_apart,
	        a_successor_keeps_the_zero_of_time,
	        a_private_segment_has_no_file_and_one_worker,
	};

	return NAMED_RUN("map", tests, set_up, tear_down);
}
