/* SPDX-License-Identifier: MIT */
/*
 * Worker slots: one a living worker, and nobody in two.
 *
 * Why these do not alarm falsely:
 *	workers.word
 *		no step writes a word above 32 bits into a slot
 *	workers.dead
 *		a token that is not held was held before the slot was claimed, so its life has ended, and never begins again;
 *		who leaves by itself frees the slot before the token. It stands for the turns in which anybody may reap it
 *	workers.twice
 *		a life is claimed once. Between freeing one slot and claiming another there is none
 *	workers.token
 *		the process that wrote this identity is gone from our own pid namespace, and somebody still holds its token: a
 *		child that it made behind the library's back. rescd sees such a death by its pidfd. Not repaired: were the pid
 *		itself damaged, a living worker would be reaped
 *	workers.identity
 *		who has registered writes its identity before it makes a call; it may be stopped before that, so an identity
 *		that is missing is none. One that is there is the owner's, and says so by the life beside it
 */
#include <errno.h>
#include <inttypes.h>
#include <signal.h>

#include "clock.h"
#include "doctor.h"
#include "policy.h"
#include "share.h"
#include "words.h"
#include "worker.h"

#define PID_MOST (UINT64_C(1) << 22) /* the kernel's PID_MAX_LIMIT */

/* ---- repairs ---- */

static void free_slot(const struct doctor *d, const struct finding *f)
{
	doctor_swap(&map_worker(d->map, f->place)->life, f->seen, 0);
	share_recount(d->map);
}

static void reap(const struct doctor *d, const struct finding *f)
{
	if (worker_reap(d->map, f->place, (uint32_t)f->seen, false, 0))
		share_recount(d->map);
}

/* ---- checks ---- */

/* What a life holds in all resources, for people. */
static void count_cells(const struct map *map, uint32_t life, unsigned *permits, unsigned *probes)
{
	char name[SEGMENT_NAME_SIZE];

	for (uint32_t i = 0; i < map->dims.resources; i++) {
		if (!policy_name_any(map, i, name))
			continue;
		const struct state *state = map_state(map, i);
		for (uint32_t c = 0; c < map->dims.permits; c++)
			*permits += permit_life(doctor_load(map_permit(map, state, c))) == life;
		for (uint32_t c = 0; c < PROBES_LIMIT; c++)
			*probes += probe_life(doctor_load(&state->probes[c])) == life;
	}
}

static void suspect_dead(struct doctor *d, const struct inspect_worker *worker)
{
	const struct finding f = {.check = CHECK_WORKERS_DEAD,
	                          .place = worker->slot,
	                          .seen = worker->life,
	                          .repair = reap,
	                          .remedy = "take back what it holds"};
	unsigned permits = 0, probes = 0;

	if (doctor_wants(d, f.check, f.place, f.seen))
		count_cells(d->map, worker->life, &permits, &probes);
	doctor_suspect(d, &f, "slot", "worker %" PRIu32 " (pid %d, %s) is dead and holds %u permit%s and %u probe%s", worker->life,
	               (int)worker->pid, worker->name[0] != '\0' ? worker->name : "?", permits, permits == 1 ? "" : "s", probes,
	               probes == 1 ? "" : "s");
}

static void look_at_word(struct doctor *d, uint32_t slot)
{
	const struct finding f = {.check = CHECK_WORKERS_WORD,
	                          .place = slot,
	                          .seen = doctor_load(&map_worker(d->map, slot)->life),
	                          .repair = free_slot,
	                          .remedy = "free the slot"};

	if (f.seen > UINT32_MAX)
		doctor_suspect(d, &f, "slot", "holds %016" PRIx64 ", which is no worker", f.seen);
}

static void look_at_identity(struct doctor *d, const struct inspect_worker *worker)
{
	const struct worker_slot *slot = map_worker(d->map, worker->slot);
	struct finding f = {.check = CHECK_WORKERS_IDENTITY, .place = worker->slot, .seen = worker->life};
	uint64_t pid = doctor_load(&slot->pid);
	uint64_t registered_ms = doctor_load(&slot->registered_ms);

	/* Not written yet: inspect says pid 0. Then the words are the last occupant's. */
	if (doctor_load(&slot->identity) != worker->life)
		return;
	f.more = pid ^ registered_ms << 23;
	f.remedy = "restart that worker: only what is shown of it is wrong";
	if (pid == 0 || pid > PID_MOST || registered_ms > clock_coarse_ms(d->map) + DOCTOR_FUTURE_MS)
		doctor_suspect(d, &f, "slot", "worker %" PRIu32 " says pid %" PRIu64 ", registered at %" PRIu64 " ms: that cannot be",
		               worker->life, pid, registered_ms);
	if (pid == 0 || pid > PID_MOST || !worker->same_namespace || kill((pid_t)pid, 0) == 0 || errno != ESRCH)
		return;
	f.check = CHECK_WORKERS_TOKEN;
	f.remedy = "start rescd, which takes back what it holds; or end the process that still has its descriptor of the segment open";
	doctor_suspect(d, &f, "slot", "worker %" PRIu32 " (pid %d, %s) is gone, and a child of it keeps its liveness token", worker->life,
	               (int)worker->pid, worker->name);
}

/*
 * Which of two slots stays is the same for all who look: the one that its owner wrote its identity into, or the lower one. The others are
 * freed; were it the owner's own, its life would still be reaped by the one that stays.
 */
static uint32_t slot_that_stays(const struct doctor *d, size_t first, size_t end)
{
	for (size_t i = first; i < end; i++)
		if (doctor_load(&map_worker(d->map, d->workers[i].slot)->identity) == d->workers[i].life)
			return d->workers[i].slot;
	return d->workers[first].slot;
}

static void look_for_doubles(struct doctor *d)
{
	for (size_t first = 0, end; first < d->worker_count; first = end) {
		for (end = first + 1; end < d->worker_count && d->workers[end].life == d->workers[first].life;)
			end++;
		uint32_t stays = end - first > 1 ? slot_that_stays(d, first, end) : 0;
		for (size_t i = first; end - first > 1 && i < end; i++) {
			const struct finding f = {.check = CHECK_WORKERS_TWICE,
			                          .place = d->workers[i].slot,
			                          .seen = d->workers[i].life,
			                          .more = stays,
			                          .repair = free_slot,
			                          .remedy = "free the slot"};
			if (f.place != stays)
				doctor_suspect(d, &f, "slot", "worker %" PRIu32 " is in slot %" PRIu32 " too", d->workers[i].life, stays);
		}
	}
}

void doctor_look_at_workers(struct doctor *doctor)
{
	struct inspect_worker worker;

	for (uint32_t i = 0; i < doctor->map->dims.workers; i++)
		look_at_word(doctor, i);
	look_for_doubles(doctor);
	for (size_t i = 0; i < doctor->worker_count; i++) {
		const struct doctor_worker *w = &doctor->workers[i];
		if (inspect_worker(doctor->map, w->slot, &worker) != 0 || worker.life != w->life)
			continue; /* left meanwhile */
		if (!worker.alive)
			suspect_dead(doctor, &worker);
		else
			look_at_identity(doctor, &worker);
	}
}
