/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: rescd may start with nothing there, with a live segment full of open breakers, with one from before the last boot, or
 * with something that somebody else has put under the name. And the name may be taken away while it runs.
 *
 * What it guarantees:
 *	- A usable segment is never replaced at the start: a rescd that was killed and comes back changes nothing that workers see.
 *	- One rescd an instance: the lock on the segment decides, not a pid file. Whether the name still leads to what was locked is
 *	  looked at *after* locking; two that start at once cannot both win.
 *	- What is not ours is not touched: a file of another user, a link, something that is no file or that everybody may write is refused
 *	  with a word. Only a file of our own that cannot be used (another boot, another layout, damaged) is removed.
 *	- A segment of another minor (an upgrade, or the way back) serves as it is, until a successor of ours has taken over everything. One
 *	  of another major is of no use to us; while workers live in it, it is left alone.
 *	- A new segment gets its name when it is complete.
 *	- An ephemeral instance has made its segment itself, and takes away nothing but what it made.
 *	- A name that was removed by hand is noticed within a second; a successor with all states takes it, and the workers follow.
 */
#include "instance.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "chars.h"
#include "clock.h"
#include "error.h"
#include "event.h"
#include "failpoint.h"
#include "followers.h"
#include "inspect.h"
#include "layout.h"
#include "log.h"
#include "permit.h"
#include "policy.h"
#include "process.h"
#include "record.h"
#include "share.h"
#include "states.h"
#include "worker.h"

#define LOCK_TRIES    10
#define LOCK_PAUSE_NS 20000000
#define OPEN_TRIES    20
/* Until the first count of those that have not come to a successor yet: see followers.c. */
#define EXPECT_WORKERS_MS 5000u

static uint64_t load(const word *w)
{
	return atomic_load_explicit(w, memory_order_acquire);
}

static void store(word *w, uint64_t value)
{
	atomic_store_explicit(w, value, memory_order_release);
}

/* ---- what rescd says of itself in the segment ---- */

static void introduce(const struct map *map)
{
	struct segment_daemon *daemon = map->daemon;
	uint64_t now_ms = clock_coarse_ms(map);

	store(&daemon->pid, (uint64_t)getpid());
	FAILPOINT("daemon.introducing");
	store(&daemon->start_ticks, process_start_ticks(getpid()));
	store(&daemon->pid_namespace, process_namespace("pid"));
	store(&daemon->started_ms, now_ms);
	store(&daemon->heartbeat_ms, now_ms);
	if (map_has(map, 1))
		store(&daemon->version, LAYOUT_VERSION);
}

void instance_set_control(struct instance *instance, const char *path)
{
	chars_store(instance->map.daemon->control, sizeof(instance->map.daemon->control), path);
}

static void write_reload_text(struct segment_daemon *daemon, const char *text)
{
	/* Odd while it is written. A rescd that died in between left it odd. */
	uint64_t sequence = load(&daemon->reload_sequence) | 1;

	store(&daemon->reload_sequence, sequence);
	FAILPOINT("reload.writing");
	chars_store(daemon->reload_text, sizeof(daemon->reload_text), text);
	store(&daemon->reload_sequence, sequence + 1);
}

void instance_loaded(struct instance *instance, const char *problem)
{
	struct segment_daemon *daemon = instance->map.daemon;
	struct event event = {.kind = problem ? EVENT_RELOAD_FAILED : EVENT_RELOAD};

	write_reload_text(daemon, problem ? problem : "");
	store(&daemon->reload_ms, clock_coarse_ms(&instance->map));
	store(&daemon->reload_failed, problem != NULL);
	if (problem)
		store(&daemon->reloads_failed, load(&daemon->reloads_failed) + 1);
	else
		store(&daemon->reloads, load(&daemon->reloads) + 1);
	snprintf(event.text, sizeof(event.text), "%.*s", (int)sizeof(event.text) - 1, problem ? problem : "");
	event_write(&instance->map, 0, &event);
}

/* Mode and group of the segment as they should be, whoever changed them. */
static void apply_access(const struct instance *instance)
{
	struct stat st;

	if (fstat(instance->map.fd, &st) < 0)
		return;
	if (instance->group != (gid_t)-1 && st.st_gid != instance->group && fchown(instance->map.fd, (uid_t)-1, instance->group) < 0)
		log_line("%s cannot get the group %u: %s", instance->path, (unsigned)instance->group, strerror(errno));
	/* After the group: its change may clear bits of the mode. */
	if ((st.st_mode & 07777) != instance->mode && fchmod(instance->map.fd, instance->mode) < 0)
		log_line("%s cannot get the mode %04o: %s", instance->path, (unsigned)instance->mode, strerror(errno));
}

void instance_set_access(struct instance *instance, gid_t group, mode_t mode)
{
	if (instance->group == group && instance->mode == mode)
		return;
	instance->group = group;
	instance->mode = mode;
	apply_access(instance);
}

/* ---- what is there ---- */

static int other_rescd(const struct instance *instance, uint64_t pid, struct resc_error *err)
{
	if (pid == 0)
		return error_set(err, -EBUSY, "another rescd serves instance '%s'", instance->name);
	return error_set(err, -EBUSY, "another rescd (pid %" PRIu64 ") serves instance '%s'; stop it, or choose another --instance", pid,
	                 instance->name);
}

static int refuse_foreign(const char *path, const struct stat *st, struct resc_error *err)
{
	if (S_ISLNK(st->st_mode))
		return error_set(err, -ELOOP, "%s is a symbolic link, and not from rescd: remove it", path);
	if (!S_ISREG(st->st_mode))
		return error_set(err, -ENOTSUP, "%s is not a regular file, and not from rescd: remove it", path);
	if (st->st_uid != geteuid() && st->st_uid != 0)
		return error_set(err, -EPERM, "%s belongs to uid %u, and we are uid %u: remove it, or run rescd as that user", path,
		                 (unsigned)st->st_uid, (unsigned)geteuid());
	if ((st->st_mode & S_IWOTH) != 0)
		return error_set(err, -EPERM, "%s is writable for everybody (mode %04o), so nothing in it can be believed: remove it", path,
		                 (unsigned)(st->st_mode & 07777));
	return 0;
}

/* A segment of ours that map_open refused, and that is good for nobody any more. why says for what. */
static int remove_unusable(const struct instance *instance, int fd, const char *why, struct resc_error *err)
{
	struct map locked = {.fd = fd};
	struct stat named, opened;

	if (map_lock_daemon(&locked) < 0)
		return other_rescd(instance, 0, err);
	if (fstat(fd, &opened) < 0 || lstat(instance->path, &named) < 0 || opened.st_ino != named.st_ino || opened.st_dev != named.st_dev)
		return 0; /* it is gone already: look again */
	if (unlink(instance->path) < 0)
		return error_set(err, -errno, "%s; it cannot be removed: %s", why, strerror(errno));
	log_line("removed a segment that cannot be used any more: %s", why);
	return 0;
}

/* Does some worker live in it? The locks that say it are at the same place in every version. */
static bool is_lived_in(int fd)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = LOCK_LIFE, .l_len = 0};

	return fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

/* map_open has failed with err. 0: it was dealt with, look again. */
static int deal_with(const struct instance *instance, struct resc_error *err)
{
	char why[sizeof(err->text)];
	struct stat st;
	int fd, r;

	if (lstat(instance->path, &st) < 0)
		return errno == ENOENT ? 0 : error_set(err, -errno, "cannot look at %s: %s", instance->path, strerror(errno));
	r = refuse_foreign(instance->path, &st, err);
	if (r < 0)
		return r;
	/* Damaged, incomplete, another boot, another major: useless. Another time namespace: in use elsewhere. Anything else: not its
	 * fault. */
	if (err->code != -EBADMSG && err->code != -EAGAIN && err->code != -ESTALE && err->code != -EPROTO)
		return err->code;
	snprintf(why, sizeof(why), "%s", err->text);
	fd = open(instance->path, O_RDWR | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
	if (fd < 0)
		return errno == ENOENT ? 0 : error_set(err, -errno, "cannot open %s: %s", instance->path, strerror(errno));
	if (err->code == -EPROTO && is_lived_in(fd))
		r = error_set(err, -EBUSY, "%.170s. Workers live in it: stop them first, or remove it by hand", why);
	else
		r = remove_unusable(instance, fd, why, err);
	close(fd);
	return r;
}

/* Who restarts us at once after a kill may be quicker than the kernel, which drops the dead one's lock when it closes its files. */
static int lock_patiently(const struct map *map)
{
	const struct timespec pause = {.tv_nsec = LOCK_PAUSE_NS};
	int r = map_lock_daemon(map);

	for (int i = 0; i < LOCK_TRIES && r == -EAGAIN; i++) {
		nanosleep(&pause, NULL);
		r = map_lock_daemon(map);
	}
	return r;
}

/* ---- finding and making ---- */

/* By this process, before it started over (start_over.c): its number and its start stay. */
static bool made_by_us(const struct map *map)
{
	return load(&map->daemon->pid) == (uint64_t)getpid() && load(&map->daemon->start_ticks) == process_start_ticks(getpid()) &&
	       load(&map->daemon->pid_namespace) == process_namespace("pid");
}

static int adopt(struct instance *instance, struct resc_error *err)
{
	struct stat st;
	int r;

	if (instance->ephemeral && !made_by_us(&instance->map))
		return error_set(
		        err, -EEXIST,
		        "--ephemeral makes its own instance, and %s exists: choose another --instance, or remove it if nobody uses it",
		        instance->path);
	instance->made = instance->ephemeral;

	if (fstat(instance->map.fd, &st) < 0)
		return error_set(err, -errno, "cannot look at %s: %s", instance->path, strerror(errno));
	r = refuse_foreign(instance->path, &st, err);
	if (r < 0)
		return r;
	r = lock_patiently(&instance->map);
	if (r == -EAGAIN && map_is_held(&instance->map, LOCK_DAEMON) == 0)
		return error_set(err, -EBUSY, "a process that may only read %s keeps a lock on it: find it with lslocks, and end it",
		                 instance->path);
	if (r == -EAGAIN)
		return other_rescd(instance, load(&instance->map.daemon->pid), err);
	if (r < 0)
		return error_set(err, r, "cannot lock %s: %s", instance->path, strerror(-r));
	FAILPOINT("adopt.locked");
	if (!map_is_at(&instance->map, instance->path))
		return -EAGAIN; /* superseded or removed while we locked: look again */
	r = succession_resume(&instance->succession, &instance->map, instance->path, err);
	if (r == -ENOLINK) {
		succession_close(&instance->succession);
		log_line("%s was superseded by a segment that is gone: its states are lost, a fresh one is made", instance->path);
		return unlink(instance->path) < 0 && errno != ENOENT ? error_set(err, -errno, "cannot remove %s", instance->path) : -EAGAIN;
	}
	if (r == 0)
		log_line("re-attached to %s, made %" PRIu64 " s ago, with all its states", instance->path,
		         clock_coarse_ms(&instance->map) / 1000);
	return r;
}

static int make(struct instance *instance, const struct instance_plan *plan, struct resc_error *err)
{
	int r = map_create(&instance->map, instance->name, &plan->dims, NULL, instance->mode, instance->group, err);

	if (r < 0)
		return r;
	r = plan->fill(&instance->map, plan->arg, err);
	introduce(&instance->map);
	states_forget(&instance->map);
	FAILPOINT("create.filled");
	if (r == 0)
		r = map_publish(&instance->map, instance->path);
	FAILPOINT("create.named");
	if (r == -EEXIST)
		return -EAGAIN; /* another rescd was quicker: look again */
	if (r < 0)
		return err->code ? r : error_set(err, r, "cannot name the segment %s: %s", instance->path, strerror(-r));
	instance->made = true;
	log_line("made %s: %zu bytes, %" PRIu32 " resources, %" PRIu32 " workers, %" PRIu32 " permits each at most", instance->path,
	         instance->map.size, instance->map.dims.resources, instance->map.dims.workers, instance->map.dims.permits);
	return succession_resume(&instance->succession, &instance->map, instance->path, err);
}

static int find_or_make(struct instance *instance, const struct instance_plan *plan, struct resc_error *err)
{
	int r = map_open(&instance->map, instance->path, MAP_OWNER, err);

	if (r == 0)
		r = adopt(instance, err);
	else if (r == -ENOENT)
		r = (err->code = 0, make(instance, plan, err));
	else
		return (r = deal_with(instance, err)) == 0 ? -EAGAIN : r;
	if (r < 0)
		map_close(&instance->map);
	return r;
}

int instance_open(struct instance *instance, struct loop *loop, const struct instance_plan *plan, struct resc_error *err)
{
	int r;

	map_path(instance->path, instance->name, 0);
	instance->map.fd = -1;
	r = reaper_open(&instance->reaper, loop);
	if (r < 0)
		return error_set(err, r, "cannot watch for workers: %s", strerror(-r));
	instance->succession.reaper = &instance->reaper;
	for (int tries = 0; tries < OPEN_TRIES; tries++) {
		err->code = 0;
		r = find_or_make(instance, plan, err);
		if (r != -EAGAIN)
			break;
	}
	if (r == -EAGAIN)
		error_set(err, r, "%s changes too fast: somebody else makes and removes it", instance->path);
	if (r == 0 && (r = reaper_add(&instance->reaper, &instance->map)) < 0)
		error_set(err, r, "no memory for %" PRIu32 " workers", instance->map.dims.workers);
	if (r == 0) {
		apply_access(instance);
		introduce(&instance->map);
	}
	return r;
}

static bool somebody_lives(const struct map *map)
{
	for (uint32_t i = 0; i < map->dims.workers; i++)
		if (load(&map_worker(map, i)->life) != 0)
			return true;
	return false;
}

static bool is_to_go(const struct instance *instance, bool abandon)
{
	return instance->made && instance->map.base && (instance->ephemeral || (abandon && !somebody_lives(&instance->map)));
}

void instance_close(struct instance *instance, bool abandon)
{
	if (is_to_go(instance, abandon)) {
		if (map_is_at(&instance->map, instance->path))
			unlink(instance->path);
		succession_remove_names(&instance->succession, &instance->map);
	}
	succession_close(&instance->succession);
	reaper_close(&instance->reaper);
	map_close(&instance->map);
}

/* ---- replacing ---- */

static void copy_daemon(const struct map *from, const struct map *to)
{
	struct segment_daemon *old = from->daemon, *new = to->daemon;

	store(&new->reloads, load(&old->reloads));
	store(&new->reloads_failed, load(&old->reloads_failed));
	store(&new->reload_failed, load(&old->reload_failed));
	store(&new->reload_ms, load(&old->reload_ms));
	for (size_t i = 0; i < sizeof(new->control); i++)
		atomic_store_explicit(&new->control[i], atomic_load_explicit(&old->control[i], memory_order_relaxed), memory_order_relaxed);
	for (size_t i = 0; i < sizeof(new->reload_text); i++)
		atomic_store_explicit(&new->reload_text[i], atomic_load_explicit(&old->reload_text[i], memory_order_relaxed),
		                      memory_order_relaxed);
	introduce(to);
	store(&new->started_ms, load(&old->started_ms));
	store(&new->patterns, load(&old->patterns));
	store(&to->live->lives_reaped, load(&from->live->lives_reaped));
	store(&to->live->lookups_refused, load(&from->live->lookups_refused));
}

/* History goes on: the numbers too, and times have the same zero. Nobody sees the successor yet. */
static void copy_events(const struct map *from, const struct map *to)
{
	uint64_t next = load(&from->live->next_event);

	/* What is written after this look, while workers do not know yet of the successor, is carried over by event_carry. */
	if (map_has(from, 1))
		store(&from->live->events_carried, next);
	if (from->dims.events != to->dims.events)
		return;
	for (uint32_t i = 0; i < from->dims.events; i++) {
		struct event_record *old = map_event(from, i), *new = map_event(to, i);
		uint64_t stamp = load(&old->stamp);

		if ((stamp & EVENT_BUSY) != 0 || stamp == 0 || stamp > next)
			continue;
		store(&new->ms, load(&old->ms));
		store(&new->kind, load(&old->kind));
		store(&new->pid, load(&old->pid));
		store(&new->value[0], load(&old->value[0]));
		store(&new->value[1], load(&old->value[1]));
		for (size_t c = 0; c < sizeof(new->resource); c++)
			atomic_store_explicit(&new->resource[c], atomic_load_explicit(&old->resource[c], memory_order_acquire),
			                      memory_order_relaxed);
		for (size_t c = 0; c < sizeof(new->text); c++)
			atomic_store_explicit(&new->text[c], atomic_load_explicit(&old->text[c], memory_order_acquire),
			                      memory_order_relaxed);
		if (load(&old->stamp) == stamp)
			store(&new->stamp, stamp);
	}
	store(&to->live->next_event, next);
}

static void copy_records(const struct map *from, const struct map *to)
{
	for (uint32_t i = 0; i < states_in_use(from); i++) {
		char name[SEGMENT_NAME_SIZE];
		bool retired = !policy_name(from, i, name);
		struct policy policy;
		uint64_t sequence;

		/* A retired one with callers inside comes along, so that they count if its name comes back; others free their record. */
		if (retired && (!policy_name_any(from, i, name) || permit_occupied(from, map_state(from, i)) == 0))
			continue;
		if (policy_read(from, i, &policy, &sequence) == 0)
			record_publish_moved(to, i, name, &policy, retired);
		states_forget_now_and_then(from, i);
		states_forget_now_and_then(to, i);
	}
}

static void report_replaced(struct instance *instance)
{
	struct event event = {.kind = EVENT_SUPERSEDED, .value = {instance->map.dims.resources, instance->map.dims.workers}};

	snprintf(event.text, sizeof(event.text),
	         "%016" PRIx64 " by %016" PRIx64 ": %" PRIu32 " resources, %" PRIu32 " workers, %" PRIu32 " permits",
	         instance->map.predecessor, instance->map.generation, instance->map.dims.resources, instance->map.dims.workers,
	         instance->map.dims.permits);
	event_write(&instance->map, 0, &event);
}

int instance_replace(struct instance *instance, const struct segment_dims *dims, struct resc_error *err)
{
	struct map successor;
	int r;

	if (!succession_settled(&instance->succession))
		succession_tick(&instance->succession, &instance->map);
	if (!succession_settled(&instance->succession))
		return error_set(
		        err, -EBUSY,
		        "the segment was replaced a short while ago, and %u calls that began before that are still inside; it can be "
		        "replaced again when they have ended",
		        succession_debts(&instance->succession, &instance->map));
	r = map_create(&successor, instance->name, dims, &instance->map, instance->mode, instance->group, err);
	if (r < 0)
		return r;
	share_expect(&successor, share_workers(&instance->map), clock_coarse_ms(&successor) + EXPECT_WORKERS_MS);
	copy_records(&instance->map, &successor);
	copy_daemon(&instance->map, &successor);
	copy_events(&instance->map, &successor);
	r = succession_supersede(&instance->succession, &instance->map, &successor, instance->path, err);
	if (r < 0) {
		map_close(&successor);
		return r;
	}
	if (reaper_add(&instance->reaper, &instance->map) < 0)
		log_line("no memory to watch %" PRIu32 " workers: whoever is in their way reaps them", instance->map.dims.workers);
	report_replaced(instance);
	return 0;
}

bool instance_is_of_other_version(const struct instance *instance)
{
	return instance->map.minor != SEGMENT_MINOR;
}

#define VERSION_PAUSE 60u /* turns, of a second each */

/* Again and again, until it can be done. */
static void follow_version(struct instance *instance)
{
	const unsigned minor = instance->map.minor;
	struct resc_error err = {0};

	if (!instance_is_of_other_version(instance))
		return;
	if (instance->version_pause > 0) {
		instance->version_pause--;
		return;
	}
	int r = instance_replace(instance, &instance->map.dims, &err);
	if (r == 0) {
		log_line("the segment has format %d.%d now, as this rescd: it had %d.%u", SEGMENT_MAJOR, SEGMENT_MINOR, SEGMENT_MAJOR,
		         minor);
		return;
	}
	if (!instance->told_version)
		log_line("the segment keeps format %d.%u for now, this rescd has %d.%d: %s", SEGMENT_MAJOR, minor, SEGMENT_MAJOR,
		         SEGMENT_MINOR, err.text);
	instance->told_version = true;
	/* Each try takes what room there is, for a moment, from everybody who needs some. */
	if (r == -ENOSPC)
		instance->version_pause = VERSION_PAUSE;
}

static void report_older_workers(struct instance *instance)
{
	struct inspect_daemon daemon;

	inspect_daemon(&instance->map, &daemon);
	if ((daemon.workers_older > 0) == instance->told_older)
		return;
	instance->told_older = daemon.workers_older > 0;
	if (instance->told_older)
		log_line("%" PRIu32 " of %" PRIu32
		         " workers have an older library than this rescd (%s, format %d.%d): they go on with what they know",
		         daemon.workers_older, daemon.workers, RESC_VERSION_STRING, SEGMENT_MAJOR, SEGMENT_MINOR);
	else
		log_line("no worker has an older library than this rescd any more");
}

/* ---- the name ---- */

enum told { TOLD_NOTHING, TOLD_REMOVED, TOLD_FOREIGN };

static void tell_once(struct instance *instance, enum told what, const char *text, const char *more)
{
	if (instance->told != (int)what)
		log_line("%s %s%s%s", instance->path, text, more ? ": " : "", more ? more : "");
	instance->told = (int)what;
}

static void replace_removed(struct instance *instance)
{
	struct resc_error err = {0};
	int r = instance_replace(instance, &instance->map.dims, &err);

	if (r < 0) {
		tell_once(instance, TOLD_REMOVED, "was removed, and cannot be replaced yet; workers that have it go on with it", err.text);
		return;
	}
	instance->told = TOLD_NOTHING;
	log_line("%s was removed by somebody: replaced by a successor with all states", instance->path);
}

/* The last step of a supersession that could not be done. */
static bool leads_to_former(struct instance *instance)
{
	char second[MAP_PATH_SIZE];

	for (unsigned i = 0; i < instance->succession.count; i++)
		if (map_is_at(&instance->succession.former[i].map, instance->path)) {
			map_path(second, instance->name, instance->map.generation);
			return map_is_at(&instance->map, second) && rename(second, instance->path) == 0;
		}
	return false;
}

void instance_check_name(struct instance *instance)
{
	struct stat st;

	if (map_is_at(&instance->map, instance->path)) {
		instance->told = TOLD_NOTHING;
		return;
	}
	if (lstat(instance->path, &st) < 0 && errno == ENOENT)
		replace_removed(instance);
	else if (!leads_to_former(instance))
		tell_once(instance, TOLD_FOREIGN,
		          "leads to a file that is not ours any more; it is left alone. Workers that are attached go on; remove it, and "
		          "ours comes back",
		          NULL);
}

void instance_tick(struct instance *instance)
{
	store(&instance->map.daemon->heartbeat_ms, clock_coarse_ms(&instance->map));
	instance_check_name(instance);
	succession_tick(&instance->succession, &instance->map);
	followers_expect(&instance->succession, &instance->map);
	follow_version(instance);
	report_older_workers(instance);
}
