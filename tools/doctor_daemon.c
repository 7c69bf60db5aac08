/* SPDX-License-Identifier: MIT */
/*
 * rescd, and what it says of itself. Its words are written by it alone, so the remedy is always a person's.
 *
 * Why these do not alarm falsely:
 *	daemon.absent
 *		nobody held its lock on any look
 *	daemon.silent
 *		the lock is held, and the heartbeat, which comes each second, is old and has not moved
 *	daemon.identity
 *		a rescd introduces itself a few milliseconds after it got the lock. Judged in its own pid namespace only
 *	daemon.words
 *		counts of records never pass the records that there are
 *	daemon.records
 *		a name is made visible a moment before it is counted
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>

#include "doctor.h"
#include "format.h"
#include "policy.h"
#include "process.h"
#include "snapshot_json.h"

static void look_at_life(struct doctor *d, const struct inspect_daemon *daemon)
{
	struct finding f = {.check = CHECK_DAEMON_ABSENT, .place = DOCTOR_ONE, .remedy = "start it; workers go on without it"};
	uint64_t age_ms = daemon->now_ms - daemon->heartbeat_ms;

	if (!daemon->alive) {
		doctor_suspect(d, &f, "rescd", "is not running; its last heartbeat was %s ago", duration_text(age_ms).s);
		return;
	}
	f.check = CHECK_DAEMON_SILENT;
	f.seen = daemon->heartbeat_ms;
	f.remedy = "restart it; workers go on without it";
	if (age_ms > HEARTBEAT_SILENT_MS)
		doctor_suspect(d, &f, "rescd", "(pid %d) is stopped or hung; its last heartbeat was %s ago", (int)daemon->pid,
		               duration_text(age_ms).s);
}

static void look_at_identity(struct doctor *d, const struct inspect_daemon *daemon)
{
	struct finding f = {
	        .check = CHECK_DAEMON_IDENTITY,
	        .place = DOCTOR_ONE,
	        .seen = (uint64_t)daemon->pid,
	        .more = doctor_load(&d->map->daemon->start_ticks),
	        .remedy = "restart rescd; if it says that another one is there, look who has the segment open: fuser -v " SEGMENT_DIR
	                SEGMENT_PREFIX "*",
	};
	uint64_t namespace = doctor_load(&d->map->daemon->pid_namespace);

	if (!daemon->alive || daemon->pid <= 0 || namespace == 0 || namespace != process_namespace("pid"))
		return;
	bool gone = kill(daemon->pid, 0) != 0 && errno == ESRCH;
	uint64_t ticks = gone ? 0 : process_start_ticks(daemon->pid);
	if (gone || (ticks != 0 && ticks != f.more))
		doctor_suspect(d, &f, "rescd", "is not the process that it says it is (pid %d), and somebody holds its lock",
		               (int)daemon->pid);
}

static void look_at_count(struct doctor *d, uint32_t place, uint64_t count, const char *what)
{
	const struct finding f = {.check = CHECK_DAEMON_WORDS,
	                          .place = place,
	                          .seen = count,
	                          .remedy = "remove the segment's name while rescd runs: it makes a successor with all states"};

	if (count > d->map->dims.resources)
		doctor_suspect(d, &f, "word", "says %" PRIu64 " %s, and there is room for %" PRIu32, count, what, d->map->dims.resources);
}

static void look_at_records(struct doctor *d)
{
	struct finding f = {.check = CHECK_DAEMON_RECORDS, .remedy = "restart rescd"};
	char name[SEGMENT_NAME_SIZE];
	uint64_t counted = doctor_load(&d->map->daemon->resources);

	for (uint64_t i = counted; i < d->map->dims.resources; i++) {
		f.place = (uint32_t)i;
		f.seen = counted;
		if (policy_name(d->map, f.place, name))
			doctor_suspect(d, &f, "record", "is in use and is not counted: rescd does not look at it, resctl does not show it");
	}
}

void doctor_look_at_daemon(struct doctor *doctor)
{
	struct inspect_daemon daemon;

	inspect_daemon(doctor->map, &daemon);
	look_at_life(doctor, &daemon);
	look_at_identity(doctor, &daemon);
	look_at_count(doctor, 0, doctor_load(&doctor->map->daemon->resources), "records in use");
	look_at_count(doctor, 1, doctor_load(&doctor->map->daemon->shares), "records with shares");
	look_at_records(doctor);
}
