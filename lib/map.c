/* SPDX-License-Identifier: MIT */
/*
 * Making, opening and checking a segment.
 *
 * A segment gets its name when it is complete: it is built in a file without a name (O_TMPFILE) and linked, so no process ever sees half
 * of one, and a creator that dies at any step leaves nothing behind. The space is allocated, not only promised (posix_fallocate): a full
 * /dev/shm is an error here and never a SIGBUS in a worker.
 *
 * Opening reads the header with pread into this process's memory and checks all of it before a byte is mapped: magic, version, checksum
 * (so that every flipped byte is noticed), layout, sizes against fstat, offsets against those that follow from the sizes, boot, time
 * namespace. After that the header in the segment is not looked at again.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include "clock.h"
#include "error.h"
#include "failpoint.h"
#include "layout.h"
#include "map.h"
#include "process.h"
#include "words.h"

uint64_t fnv1a_more(uint64_t hash, const void *data, size_t size)
{
	const unsigned char *p = data;

	for (size_t i = 0; i < size; i++)
		hash = (hash ^ p[i]) * UINT64_C(0x100000001b3);
	return hash;
}

uint64_t fnv1a(const void *data, size_t size)
{
	return fnv1a_more(UINT64_C(0xcbf29ce484222325), data, size);
}

int name_check(const char *name, struct resc_error *err)
{
	static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._:-";

	if (name == NULL || name[0] == '\0')
		return error_set(err, -EINVAL, "the name is empty");
	size_t length = strnlen(name, RESC_NAME_MAX + 1);
	if (length > RESC_NAME_MAX)
		return error_set(err, -EINVAL, "the name \"%.20s...\" is longer than %d characters", name, RESC_NAME_MAX);
	if (name[0] == '.')
		return error_set(err, -EINVAL, "the name \"%s\" starts with a dot", name);
	if (strspn(name, allowed) != length)
		return error_set(err, -EINVAL, "the name has a character that is not a letter, a digit, '.', '_', ':' or '-'");
	return 0;
}

void map_path(char *path, const char *instance, uint64_t generation)
{
	if (generation == 0)
		snprintf(path, MAP_PATH_SIZE, SEGMENT_DIR SEGMENT_PREFIX "%.63s", instance);
	else
		snprintf(path, MAP_PATH_SIZE, SEGMENT_DIR SEGMENT_PREFIX "%.63s.%016llx", instance, (unsigned long long)generation);
}

static uint32_t power_of_two(uint32_t n, uint32_t least, uint32_t most)
{
	uint32_t p = least;

	while (p < n && p < most)
		p *= 2;
	return p;
}

void map_dims(struct segment_dims *dims, const struct map_needs *needs)
{
	long cpus = sysconf(_SC_NPROCESSORS_ONLN);

	memset(dims, 0, sizeof *dims);
	dims->resources = power_of_two(needs->resources, 16, RESOURCES_LIMIT);
	dims->workers = power_of_two(needs->workers, 16, WORKERS_LIMIT);
	dims->permits = power_of_two(needs->permits, 256, PERMITS_LIMIT);
	dims->calls = power_of_two(needs->calls, 64, CALLS_LIMIT);
	dims->waiting = power_of_two(needs->waiting, 64, WAITING_LIMIT);
	dims->once = power_of_two(needs->once, ONCE_SET, ONCE_LIMIT);
	dims->shards = power_of_two(cpus < 1 ? 4 : 4 * (uint32_t)cpus, 16, SHARDS_LIMIT);
	dims->events = 1024;
}

static bool is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

static bool is_dim(uint32_t n, uint32_t least, uint32_t most)
{
	return is_power_of_two(n) && n >= least && n <= most;
}

static bool dims_are_sound(const struct segment_dims *d)
{
	return d->resources >= 1 && d->resources <= RESOURCES_LIMIT && is_dim(d->workers, 1, WORKERS_LIMIT) &&
	       is_dim(d->permits, 64, PERMITS_LIMIT) && is_dim(d->shards, 4, SHARDS_LIMIT) && is_dim(d->events, 16, EVENTS_LIMIT) &&
	       is_dim(d->calls, 64, CALLS_LIMIT) && is_dim(d->waiting, 16, WAITING_LIMIT) && is_dim(d->once, ONCE_SET, ONCE_LIMIT);
}

static size_t shards_offset(const struct segment_header *h)
{
	return h->sizes.state + ((size_t)h->dims.permits + h->dims.waiting + h->dims.calls) * sizeof(word);
}

/* One shard more: for what is carried over. */
static size_t state_size(const struct segment_header *h)
{
	return shards_offset(h) + ((size_t)h->dims.shards + 1) * h->sizes.shard;
}

static uint64_t page_up(uint64_t n)
{
	return (n + SEGMENT_PAGE - 1) / SEGMENT_PAGE * SEGMENT_PAGE;
}

/* All offsets follow from the dimensions and sizes; the header repeats them so that other programs can read a segment. */
static void lay_out(struct segment_header *h)
{
	const struct segment_dims *d = &h->dims;
	const struct segment_sizes *s = &h->sizes;

	h->daemon_offset = SEGMENT_PAGE;
	h->policies_offset = h->daemon_offset + SEGMENT_PAGE;
	h->live_offset = page_up(h->policies_offset + d->resources * (sizeof(struct policy_record) + 2 * (uint64_t)s->policy));
	h->workers_offset = h->live_offset + SEGMENT_PAGE;
	h->states_offset = page_up(h->workers_offset + (uint64_t)d->workers * s->worker);
	h->events_offset = page_up(h->states_offset + d->resources * (uint64_t)state_size(h));
	h->once_offset = page_up(h->events_offset + (uint64_t)d->events * s->event);
	h->total_size = page_up(h->once_offset + (uint64_t)d->once * (sizeof(word) + s->once_entry));
}

/* Of the page of a header, as it is when the segment is ready. What this version does not know in it is covered too. */
static uint64_t page_checksum(const unsigned char page[SEGMENT_PAGE])
{
	unsigned char copy[SEGMENT_PAGE];

	memcpy(copy, page, sizeof copy);
	memset(copy + offsetof(struct segment_header, checksum), 0, sizeof(uint64_t));
	memset(copy + offsetof(struct segment_header, ready), 0, sizeof(word));
	return fnv1a(copy, sizeof copy);
}

static uint64_t header_checksum(const struct segment_header *h)
{
	unsigned char page[SEGMENT_PAGE] = {0};

	memcpy(page, h, sizeof *h);
	return page_checksum(page);
}

static bool read_boot_id(uint8_t id[16])
{
	char text[64] = "";
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);

	if (fd >= 0)
		close(fd);
	memset(id, 0, 16);
	if (n <= 0)
		return false;
	unsigned digits = 0;
	for (const char *p = text; *p != '\0' && digits < 32; p++) {
		unsigned v;
		if (*p >= '0' && *p <= '9')
			v = (unsigned)(*p - '0');
		else if (*p >= 'a' && *p <= 'f')
			v = (unsigned)(*p - 'a') + 10;
		else
			continue;
		id[digits / 2] = (uint8_t)((unsigned)id[digits / 2] << 4 | v);
		digits++;
	}
	return digits == 32;
}

/* Takes over what a header says. The dims are sound. */
static void map_point(struct map *map, const struct segment_header *h)
{
	map->generation = h->generation;
	map->predecessor = h->predecessor;
	map->created_ns = h->created_ns;
	map->created_real_ns = h->created_real_ns;
	memcpy(map->instance, h->instance, sizeof map->instance);
	map->instance[sizeof map->instance - 1] = '\0';
	map->minor = h->minor;
	map->dims = h->dims;
	map->sizes = h->sizes;
	map->state_size = state_size(h);
	map->shards_offset = shards_offset(h);
	map->permit_shift = (uint32_t)__builtin_ctz(h->dims.permits / (SEGMENT_LINE / 8));
	map->daemon = (void *)(map->base + h->daemon_offset);
	map->policies = map->base + h->policies_offset;
	map->live = (void *)(map->base + h->live_offset);
	map->workers = map->base + h->workers_offset;
	map->states = map->base + h->states_offset;
	map->events = map->base + h->events_offset;
	map->once_slots = (void *)(map->base + h->once_offset);
	map->once_entries = map->base + h->once_offset + h->dims.once * sizeof(word);
}

static void header_fill(struct segment_header *h, const char *instance, const struct segment_dims *dims, const struct map *predecessor)
{
	memset(h, 0, sizeof *h);
	h->magic = SEGMENT_MAGIC;
	h->major = SEGMENT_MAJOR;
	h->minor = SEGMENT_MINOR;
	for (unsigned minor = 0; minor <= SEGMENT_MINOR; minor++)
		h->layouts[minor] = layout_hash(minor);
	layout_sizes(&h->sizes);
	if (getrandom(&h->generation, sizeof h->generation, 0) != (ssize_t)sizeof h->generation)
		h->generation = clock_read_ns(CLOCK_REALTIME) ^ ((uint64_t)getpid() << 40);
	h->generation |= 1;
	h->predecessor = predecessor == NULL ? 0 : predecessor->generation;
	h->created_ns = predecessor == NULL ? clock_read_ns(CLOCK_MONOTONIC) : predecessor->created_ns;
	h->created_real_ns = predecessor == NULL ? clock_read_ns(CLOCK_REALTIME) : predecessor->created_real_ns;
	h->time_namespace = process_namespace("time");
	read_boot_id(h->boot_id);
	snprintf(h->instance, sizeof h->instance, "%s", instance);
	h->dims = *dims;
#ifdef RESC_TEST_CLOCK
	h->test_clock = 1;
#endif
	lay_out(h);
	h->checksum = header_checksum(h);
}

/* Writes the header into fresh zeroed memory and starts what does not start at zero. */
static void map_start(struct map *map, struct segment_header *h, const struct map *predecessor)
{
	map_point(map, h);
	memcpy(map->base, h, sizeof *h);
	/* Relaxed: nobody else can see this memory yet; publication is link(2), rename(2) or nothing. */
	atomic_store_explicit(&map->live->next_life, 1, memory_order_relaxed);
	atomic_store_explicit(&map->live->clock_ns,
	                      predecessor == NULL ? h->created_ns
	                                          : atomic_load_explicit(&predecessor->live->clock_ns, memory_order_relaxed),
	                      memory_order_relaxed);
	struct segment_header *shared = (void *)map->base;
	atomic_store_explicit(&shared->ready, SEGMENT_MAGIC, memory_order_release);
}

int map_lock_daemon(const struct map *map)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_DAEMON, .l_len = 1};

	if (fcntl(map->fd, F_OFD_SETLK, &lock) == 0)
		return 0;
	return errno == EACCES ? -EAGAIN : -errno;
}

static int create_in(int fd, struct map *map, const char *instance, const struct segment_dims *dims, const struct map *predecessor,
                     mode_t mode, gid_t gid, struct resc_error *err)
{
	struct segment_header header;
	int r;

	header_fill(&header, instance, dims, predecessor);
	/* The group before the mode: a change of group may clear mode bits. fchmod, so that the umask does not matter. */
	if (gid != (gid_t)-1 && fchown(fd, (uid_t)-1, gid) != 0)
		return error_set(err, -errno, "cannot give the segment to group %u: %s", (unsigned)gid, strerror(errno));
	if (fchmod(fd, mode) != 0)
		return error_set(err, -errno, "cannot set the mode of the segment: %s", strerror(errno));
	do
		r = posix_fallocate(fd, 0, (off_t)header.total_size);
	while (r == EINTR);
	if (r != 0)
		return error_set(err, -r, "cannot allocate %llu bytes in %s: %s", (unsigned long long)header.total_size, SEGMENT_DIR,
		                 strerror(r));
	FAILPOINT("create.sized");
	r = map_lock_daemon(map);
	if (r != 0)
		return error_set(err, r, "cannot lock the new segment: %s", strerror(-r));
	void *base = mmap(NULL, header.total_size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return error_set(err, -errno, "cannot map the new segment: %s", strerror(errno));
	map->base = base;
	map->size = header.total_size;
	FAILPOINT("create.locked");
	map_start(map, &header, predecessor);
	FAILPOINT("create.header");
	return 0;
}

int map_create(struct map *map, const char *instance, const struct segment_dims *dims, const struct map *predecessor, mode_t mode,
               gid_t gid, struct resc_error *err)
{
	memset(map, 0, sizeof *map);
	map->fd = -1;
	if (!dims_are_sound(dims))
		return error_set(err, -EINVAL, "the dimensions of the segment are out of range");
	int fd = open(SEGMENT_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (fd < 0)
		return error_set(err, -errno, "cannot make a file in %s: %s", SEGMENT_DIR, strerror(errno));
	struct stat st;
	if (fstat(fd, &st) != 0) {
		close(fd);
		return error_set(err, -errno, "cannot look at the new segment: %s", strerror(errno));
	}
	map->fd = fd;
	map->dev = st.st_dev;
	map->ino = st.st_ino;
	FAILPOINT("create.opened");
	int r = create_in(fd, map, instance, dims, predecessor, mode, gid, err);
	if (r != 0) {
		map_close(map);
		return r;
	}
	map->access = MAP_OWNER;
	return 0;
}

int map_publish(const struct map *map, const char *path)
{
	char self[64];

	snprintf(self, sizeof self, "/proc/self/fd/%d", map->fd);
	return linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0 ? 0 : -errno;
}

int map_private(struct map *map, const char *instance, struct resc_error *err)
{
	const struct segment_dims dims = {
	        .resources = 64, .workers = 16, .permits = 256, .shards = 8, .events = 256, .calls = 64, .waiting = 64, .once = 256};
	struct segment_header header;

	memset(map, 0, sizeof *map);
	map->fd = -1;
	map->private_mode = true;
	map->access = MAP_OWNER;
	header_fill(&header, instance, &dims, NULL);
	/* MAP_PRIVATE: a forked child has a copy of its own. It makes a fresh one on its first call. */
	void *base = mmap(NULL, header.total_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (base == MAP_FAILED)
		return error_set(err, -errno, "cannot map %llu bytes: %s", (unsigned long long)header.total_size, strerror(errno));
	map->base = base;
	map->size = header.total_size;
	map_start(map, &header, NULL);
	return 0;
}

/* What kind of file is it, and may we trust it? Root's, ours, or of a group that we are in; never writable for the world. */
static int check_file(const struct stat *st, const char *path, struct resc_error *err)
{
	gid_t groups[256];
	int n = getgroups(256, groups);

	if (!S_ISREG(st->st_mode))
		return error_set(err, -ENOTSUP, "%s is not a regular file", path);
	if ((st->st_mode & S_IWOTH) != 0)
		return error_set(err, -EPERM, "%s is writable for everybody (mode %04o); remove it and restart rescd", path,
		                 (unsigned)(st->st_mode & 07777));
	if (st->st_uid == 0 || st->st_uid == geteuid() || geteuid() == 0 || st->st_gid == getegid())
		return 0;
	for (int i = 0; i < n; i++)
		if (groups[i] == st->st_gid)
			return 0;
	return error_set(err, -EPERM, "%s belongs to uid %u, who is neither root nor we, and its group %u is not ours", path,
	                 (unsigned)st->st_uid, (unsigned)st->st_gid);
}

/* A newer minor may have regions more, behind those that are known here. */
static bool offsets_follow(const struct segment_header *h)
{
	struct segment_header expected = *h;

	lay_out(&expected);
	return h->daemon_offset == expected.daemon_offset && h->policies_offset == expected.policies_offset &&
	       h->live_offset == expected.live_offset && h->workers_offset == expected.workers_offset &&
	       h->states_offset == expected.states_offset && h->events_offset == expected.events_offset &&
	       h->once_offset == expected.once_offset &&
	       (h->minor > SEGMENT_MINOR ? h->total_size >= expected.total_size : h->total_size == expected.total_size);
}

/*
 * The header says of which instance and generation it is, and the name where it was found has to agree: a segment that was copied or
 * renamed is full of somebody else's states, however whole it is.
 */
static int check_name(const struct segment_header *h, const char *path, struct resc_error *err)
{
	char by_instance[MAP_PATH_SIZE], by_generation[MAP_PATH_SIZE];

	if (strnlen(h->instance, sizeof h->instance) == sizeof h->instance)
		return error_set(err, -EBADMSG, "the header of %s is damaged (name)", path);
	map_path(by_instance, h->instance, 0);
	map_path(by_generation, h->instance, h->generation);
	if (strcmp(path, by_instance) == 0 || strcmp(path, by_generation) == 0)
		return 0;
	return error_set(err, -EBADMSG, "%s is a segment of instance \"%s\" (%016llx): it was copied or renamed", path, h->instance,
	                 (unsigned long long)h->generation);
}

static int check_place(const struct segment_header *h, const char *path, struct resc_error *err)
{
	static const uint8_t unknown[16];
	uint8_t boot_id[16];
	uint64_t time_namespace = process_namespace("time");

	/* Where /proc does not tell it, one side cannot know: the clock is looked at below all the same. */
	if (read_boot_id(boot_id) && memcmp(h->boot_id, unknown, sizeof unknown) != 0 && memcmp(boot_id, h->boot_id, sizeof boot_id) != 0)
		return error_set(err, -ESTALE, "%s was made before the last boot; restart rescd", path);
	if (time_namespace != 0 && h->time_namespace != 0 && time_namespace != h->time_namespace)
		return error_set(err, -EXDEV, "%s belongs to another time namespace: its clock is not ours", path);
	if (h->created_ns > clock_read_ns(CLOCK_MONOTONIC))
		return error_set(err, -ESTALE, "%s was made in the future of our monotonic clock", path);
	return 0;
}

/* The same major, and what both versions know is at the same places. */
static int check_layout(const struct segment_header *h, const char *path, struct resc_error *err)
{
	const unsigned minor = layout_common(h->minor);

	if (h->layouts[minor] == layout_hash(minor))
		return 0;
	return error_set(err, -EPROTO, "%s has another layout %u.%u (%016llx) than this program (%016llx): one of the two is no release",
	                 path, h->major, minor, (unsigned long long)h->layouts[minor], (unsigned long long)layout_hash(minor));
}

static int check_sizes(const struct segment_header *h, uint64_t file_size, const char *path, struct resc_error *err)
{
	if (!dims_are_sound(&h->dims) || !layout_sizes_are_sound(&h->sizes, h->minor) || !offsets_follow(h) || h->generation == 0)
		return error_set(err, -EBADMSG, "the header of %s is damaged (dimensions and sizes)", path);
	/* What somebody has added behind the end is nobody's business. */
	if (h->total_size > file_size)
		return error_set(err, -EBADMSG, "%s has %llu bytes, its header says %llu: it was cut", path, (unsigned long long)file_size,
		                 (unsigned long long)h->total_size);
	return 0;
}

static int check_header(const unsigned char *page, const struct segment_header *h, const char *path, struct resc_error *err)
{
#ifdef RESC_TEST_CLOCK
	const uint64_t test_clock = 1;
#else
	const uint64_t test_clock = 0;
#endif
	if (h->magic != SEGMENT_MAGIC)
		return error_set(err, -EBADMSG, "%s is not a segment of resc (magic %016llx)", path, (unsigned long long)h->magic);
	if (h->major != SEGMENT_MAJOR)
		return error_set(err, -EPROTO, "%s has format %u.%u, this program (resc %s) reads %u.x: upgrade %s", path, h->major,
		                 h->minor, RESC_VERSION_STRING, SEGMENT_MAJOR, h->major > SEGMENT_MAJOR ? "this program" : "rescd");
	if (atomic_load_explicit(&h->ready, memory_order_relaxed) != SEGMENT_MAGIC)
		return error_set(err, -EAGAIN, "%s is not complete", path);
	if (h->checksum != page_checksum(page))
		return error_set(err, -EBADMSG, "the header of %s is damaged (checksum)", path);
	if (h->test_clock != test_clock)
		return error_set(err, -EPROTO, "%s was made by a build %s the test clock, this is one %s it", path,
		                 h->test_clock ? "with" : "without", test_clock ? "with" : "without");
	return check_layout(h, path, err);
}

static int open_checked(int fd, struct map *map, const char *path, enum map_access access, struct resc_error *err)
{
	_Alignas(struct segment_header) unsigned char page[SEGMENT_PAGE];
	struct segment_header header;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return error_set(err, -errno, "cannot look at %s: %s", path, strerror(errno));
	int r = check_file(&st, path, err);
	if (r != 0)
		return r;
	if (st.st_size < (off_t)SEGMENT_PAGE || pread(fd, page, sizeof page, 0) != (ssize_t)sizeof page)
		return error_set(err, -EBADMSG, "%s has %lld bytes: too short for a segment", path, (long long)st.st_size);
	memcpy(&header, page, sizeof header);
	r = check_header(page, &header, path, err);
	if (r == 0)
		r = check_sizes(&header, (uint64_t)st.st_size, path, err);
	if (r == 0)
		r = check_name(&header, path, err);
	if (r == 0)
		r = check_place(&header, path, err);
	if (r != 0)
		return r;
	void *base = mmap(NULL, header.total_size, PROT_READ, MAP_SHARED, fd, 0);
	if (base == MAP_FAILED)
		return error_set(err, -errno, "cannot map %s: %s", path, strerror(errno));
	uint64_t writable = access == MAP_OWNER ? header.daemon_offset : header.live_offset;
	if (access != MAP_READER && mprotect((uint8_t *)base + writable, header.total_size - writable, PROT_READ | PROT_WRITE) != 0) {
		r = error_set(err, -errno, "cannot map %s for writing: %s", path, strerror(errno));
		munmap(base, header.total_size);
		return r;
	}
	map->base = base;
	map->size = header.total_size;
	map->dev = st.st_dev;
	map->ino = st.st_ino;
	map_point(map, &header);
	return 0;
}

/* Whose it is and who we are: that is what has to be changed. */
static int refused_by_mode(const char *path, enum map_access access, struct resc_error *err)
{
	const char *what = access == MAP_READER ? "read" : "written";
	struct stat st;

	if (lstat(path, &st) != 0)
		return error_set(err, -EACCES, "%s may not be %s by uid %u: Permission denied", path, what, (unsigned)geteuid());
	return error_set(err, -EACCES, "%s may not be %s by uid %u: Permission denied (owner %u, group %u, mode %04o)", path, what,
	                 (unsigned)geteuid(), (unsigned)st.st_uid, (unsigned)st.st_gid, (unsigned)(st.st_mode & 07777));
}

static int open_file(const char *path, enum map_access access, struct resc_error *err)
{
	int fd = open(path, (access == MAP_READER ? O_RDONLY : O_RDWR) | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);

	if (fd >= 0)
		return fd;
	if (errno == ENOENT)
		return error_set(err, -ENOENT, "there is no %s; is rescd running?", path);
	if (errno == ELOOP)
		return error_set(err, -ELOOP, "%s is a symbolic link; remove it", path);
	if (errno == EACCES)
		return refused_by_mode(path, access, err);
	return error_set(err, -errno, "cannot open %s: %s", path, strerror(errno));
}

int map_open(struct map *map, const char *path, enum map_access access, struct resc_error *err)
{
	memset(map, 0, sizeof *map);
	map->fd = -1;
	int fd = open_file(path, access, err);
	if (fd < 0)
		return fd;
	int r = open_checked(fd, map, path, access, err);
	if (r != 0) {
		close(fd);
		return r;
	}
	map->fd = fd;
	map->access = access;
	return 0;
}

static bool is_file_of(const struct map *map, int fd)
{
	struct stat st;

	return fstat(fd, &st) == 0 && st.st_dev == map->dev && st.st_ino == map->ino;
}

bool map_has_descriptor(const struct map *map)
{
	return is_file_of(map, map->fd);
}

int map_reopen(const struct map *map, int flags)
{
	char path[MAP_PATH_SIZE];

	if (map_has_descriptor(map)) {
		snprintf(path, sizeof path, "/proc/self/fd/%d", map->fd);
		int fd = open(path, flags | O_CLOEXEC);
		if (fd >= 0)
			return fd;
	}
	/* The program has closed our descriptor, or there is no /proc: by its names, as long as it has one. */
	for (int i = 0; i < 2; i++) {
		map_path(path, map->instance, i == 0 ? 0 : map->generation);
		int fd = open(path, flags | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
		if (fd < 0)
			continue;
		if (is_file_of(map, fd))
			return fd;
		close(fd);
		errno = ESTALE;
	}
	return -errno;
}

int map_is_held(const struct map *map, int64_t byte)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
	bool ours = map_has_descriptor(map);
	int fd = ours ? map->fd : map_reopen(map, O_RDONLY);

	if (fd < 0)
		return fd;
	int r = fcntl(fd, F_OFD_GETLK, &lock) == 0 ? lock.l_type != F_UNLCK : -errno;
	if (!ours)
		close(fd);
	return r;
}

bool map_is_sound(const struct map *map)
{
	const struct segment_header *header = (const void *)map->base;
	struct stat st;

	if (map->private_mode)
		return true;
	/* First its size: what lies beyond the end must not be touched. */
	if (fstat(map->fd, &st) == 0 && st.st_dev == map->dev && st.st_ino == map->ino && (uint64_t)st.st_size < map->size)
		return false;
	return header->magic == SEGMENT_MAGIC && header->generation == map->generation && header->checksum == page_checksum(map->base);
}

void map_close_descriptor(struct map *map)
{
	if (map_has_descriptor(map))
		close(map->fd);
	map->fd = -1;
}

bool map_is_at(const struct map *map, const char *path)
{
	struct stat st;

	return lstat(path, &st) == 0 && st.st_dev == map->dev && st.st_ino == map->ino;
}

void map_close(struct map *map)
{
	if (map->base != NULL)
		munmap(map->base, map->size);
	map->base = NULL;
	map_close_descriptor(map);
}
