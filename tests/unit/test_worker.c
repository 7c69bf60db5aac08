/* SPDX-License-Identifier: MIT */
/* Lives: who lives keeps what it holds, who died holds nothing, whatever the moment and the kind of the death. */
#include "worker.h"

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/prctl.h>

#include "named.h"
#include "permit.h"
#include "process.h"

static struct named n;

static void set_up(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD;
	p.limit = 8;
	named_open(&n, &p);
}

static void tear_down(void)
{
	named_close(&n);
}

/* A map of its own: tokens are of an open file description, and the one of the fixture is shared with our children. */
static struct map own_map(void)
{
	struct resc_error err;
	struct map map;

	ck_assert_msg(map_open(&map, n.path, MAP_WORKER, &err) == 0, "%s", err.text);
	return map;
}

static unsigned slots_taken(void)
{
	unsigned taken = 0;

	for (uint32_t i = 0; i < n.map.dims.workers; i++)
		taken += fixture_load(&map_worker(&n.map, i)->life) != 0;
	return taken;
}

static uint64_t reaped(void)
{
	return fixture_load(&n.map.live->lives_reaped);
}

/* ---- registering and leaving ---- */

START_TEST(a_worker_takes_a_slot_and_gives_it_back)
{
	struct map map = own_map();
	struct worker worker = {0};

	ck_assert_int_eq(worker_register(&map, &worker), 0);
	ck_assert_uint_ne(worker.life, 0);
	ck_assert_uint_eq(fixture_load(&map_worker(&n.map, worker.slot)->life), worker.life);
	ck_assert(life_is_held(&n.map, worker.life));
	struct inspect_worker w;
	ck_assert_int_eq(inspect_worker(&n.map, worker.slot, &w), 0);
	ck_assert_int_eq(w.pid, getpid());
	ck_assert_uint_eq(w.start_ticks, process_start_ticks(getpid()));
	ck_assert(w.same_namespace && w.alive);
	ck_assert_str_eq(w.name, "test_worker");

	uint32_t life = worker.life;
	worker_unregister(&map, &worker);
	ck_assert_uint_eq(slots_taken(), 0);
	ck_assert(!life_is_held(&n.map, life));
	ck_assert_uint_eq(reaped(), 0);
	worker_unregister(&map, &worker); /* harmless */
	map_close(&map);
}
END_TEST

START_TEST(a_life_is_never_used_twice)
{
	struct map map = own_map();
	uint32_t last = 0;

	for (int i = 0; i < 200; i++) {
		struct worker worker = {0};
		ck_assert_int_eq(worker_register(&map, &worker), 0);
		ck_assert_uint_eq(worker.slot, 0);
		ck_assert_uint_gt(worker.life, last);
		last = worker.life;
		worker_unregister(&map, &worker);
	}
	map_close(&map);
}
END_TEST

START_TEST(lives_that_are_used_up_are_an_error_and_do_not_wrap)
{
	struct map map = own_map();
	struct worker worker = {0};

	fixture_store(&n.map.live->next_life, UINT32_MAX);
	ck_assert_int_eq(worker_register(&map, &worker), -EOVERFLOW);
	fixture_store(&n.map.live->next_life, UINT64_MAX);
	ck_assert_int_eq(worker_register(&map, &worker), -EOVERFLOW);
	ck_assert_uint_eq(slots_taken(), 0);
	map_close(&map);
}
END_TEST

/* ---- deaths ---- */

START_TEST(F7_death_at_each_step_of_registering_leaves_nothing)
{
	static const char *const points[] = {"register.life=kill", "register.locked=kill", "register.claimed=kill"};

	for (size_t i = 0; i < 3; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct map map = own_map();
			struct worker worker = {0};
			failpoint_set(points[i]);
			worker_register(&map, &worker);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
		ck_assert_uint_eq(slots_taken(), i == 2);
		ck_assert_uint_eq(worker_sweep(&n.map, 0), i == 2);
		ck_assert_uint_eq(slots_taken(), 0);
		ck_assert_uint_eq(reaped(), i == 2);
	}
}
END_TEST

START_TEST(F7_death_while_leaving_leaves_nothing)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct map map = own_map();
		struct worker worker = {0};
		worker_register(&map, &worker);
		failpoint_set("unregister.freed=kill");
		worker_unregister(&map, &worker);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(slots_taken(), 0);
}
END_TEST

START_TEST(the_dead_hold_nothing_and_the_living_everything)
{
	struct puppet a = puppet_start(n.instance, NULL), b = puppet_start(n.instance, NULL);

	for (uint32_t i = 0; i < 3; i++) {
		ck_assert_int_eq(puppet_enter(&a, i), 0);
		ck_assert_int_eq(puppet_enter(&b, i), 0);
	}
	uint32_t life = puppet_life(&a);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 0);
	puppet_kill(&a);
	ck_assert(!life_is_held(&n.map, life));
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.in_flight, 3);
	ck_assert_uint_eq(r.counters.permits_reclaimed, 3);
	for (uint32_t i = 0; i < 3; i++)
		ck_assert_int_eq(puppet_leave(&b, i, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	puppet_quit(&b);
}
END_TEST

START_TEST(a_zombie_is_dead)
{
	struct puppet p = puppet_start(n.instance, NULL);
	siginfo_t info;

	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	kill(p.pid, SIGKILL);
	ck_assert_int_eq(waitid(P_PID, (id_t)p.pid, &info, WEXITED | WNOWAIT), 0);
	ck_assert_int_eq(kill(p.pid, 0), 0); /* it answers */
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	ck_assert_int_eq(fixture_wait(p.pid), -SIGKILL);
	puppet_close(&p);
}
END_TEST

START_TEST(who_exits_without_leaving_is_dead)
{
	pid_t pid = fork();

	if (pid == 0) {
		resc_ticket ticket;
		resc_enter(named_lookup(named_join(n.instance), "payments"), NULL, &ticket);
		_exit(7);
	}
	ck_assert_int_eq(fixture_wait(pid), 7);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

START_TEST(to_be_stopped_is_not_to_be_dead)
{
	struct puppet p = puppet_start(n.instance, NULL);

	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	puppet_stop(&p);
	for (int i = 0; i < 20; i++)
		ck_assert_uint_eq(worker_sweep(&n.map, 0), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	kill(p.pid, SIGCONT);
	ck_assert_int_eq(puppet_leave(&p, 0, RESC_OK), 0);
	puppet_quit(&p);
}
END_TEST

START_TEST(a_token_is_seen_from_another_process_and_dropped_with_its_owner)
{
	struct puppet p = puppet_start(n.instance, NULL);
	uint32_t life = puppet_life(&p);
	pid_t pid = fork();

	if (pid == 0) {
		struct map map = own_map();
		_exit(life_is_held(&map, life) && !life_is_held(&map, life + 1) ? 0 : 1);
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert(life_is_held(&n.map, life));
	puppet_kill(&p);
	ck_assert(!life_is_held(&n.map, life));
}
END_TEST

START_TEST(a_life_hangs_on_no_descriptor)
{
	struct map map = own_map();
	struct worker worker = {0};
	int pair[2];

	ck_assert_int_eq(worker_register(&map, &worker), 0);
	close(map.fd);
	ck_assert(life_is_held(&n.map, worker.life));
	ck_assert(life_is_held(&map, worker.life)); /* it finds another way to ask */
	/* Another file under that number is asked nothing, and is not closed. */
	ck_assert_int_eq(pipe(pair), 0);
	ck_assert(pair[0] == map.fd || dup2(pair[0], map.fd) == map.fd);
	ck_assert(life_is_held(&map, worker.life));
	int fd = map.fd;
	worker_unregister(&map, &worker);
	ck_assert_uint_eq(slots_taken(), 0);
	map_close(&map);
	ck_assert_int_ge(fcntl(fd, F_GETFD), 0);
	close(fd);
	close(pair[1]);
}
END_TEST

/* ---- reaping ---- */

static void take_everything(const struct map *map, uint32_t life)
{
	struct state *state = map_state(map, n.index);

	for (uint32_t i = 0; i < 3; i++)
		fixture_store(map_permit(map, state, i), permit_make(life, i));
	fixture_store(&state->probes[0], probe_make(life, 1, 1000));
	fixture_store(&state->probes[5], probe_make(life, 1, 1000));
	fixture_store(&map_waiting(map, state)[2], permit_make(life, 7));
	fixture_store(&map_shard(map, state, 0)->owner, life);
	fixture_store(&map_event(map, 3)->stamp, EVENT_BUSY | life);
}

static unsigned cells_of(const struct map *map, uint32_t life)
{
	struct state *state = map_state(map, n.index);
	unsigned count = fixture_load(&map_shard(map, state, 0)->owner) == life;

	for (uint32_t i = 0; i < map->dims.permits; i++)
		count += permit_life(fixture_load(map_permit(map, state, i))) == life;
	for (uint32_t i = 0; i < PROBES_LIMIT; i++)
		count += probe_life(fixture_load(&state->probes[i])) == life;
	for (uint32_t i = 0; i < map->dims.waiting; i++)
		count += permit_life(fixture_load(&map_waiting(map, state)[i])) == life;
	for (uint32_t i = 0; i < map->dims.events; i++)
		count += fixture_load(&map_event(map, i)->stamp) == (EVENT_BUSY | life);
	return count;
}

/* A worker that died with something of each kind. */
static struct worker dead_worker(void)
{
	int from[2];
	struct worker worker;

	ck_assert_int_eq(pipe(from), 0);
	pid_t pid = fork();
	if (pid == 0) {
		struct map map = own_map();
		struct worker mine = {0};
		if (worker_register(&map, &mine) != 0 || write(from[1], &mine, sizeof mine) != (ssize_t)sizeof mine)
			_exit(1);
		take_everything(&map, mine.life);
		kill(getpid(), SIGKILL);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_int_eq(read(from[0], &worker, sizeof worker), (ssize_t)sizeof worker);
	close(from[0]);
	close(from[1]);
	return worker;
}

/* Locks of a process that may only read the file. */
static int lock_for_reading(off_t start, off_t length)
{
	struct flock lock = {.l_type = F_RDLCK, .l_whence = SEEK_SET, .l_start = start, .l_len = length};
	int fd = open(n.path, O_RDONLY | O_CLOEXEC);

	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(fcntl(fd, F_OFD_SETLK, &lock), 0);
	return fd;
}

START_TEST(a_lock_of_somebody_who_may_only_read_keeps_no_dead_one_alive)
{
	struct puppet a = puppet_start(n.instance, NULL);

	ck_assert_int_eq(puppet_enter(&a, 0), 0);
	uint32_t life = puppet_life(&a);
	puppet_kill(&a);
	int fd = lock_for_reading(LOCK_LIFE + life, 1);
	ck_assert(!life_is_held(&n.map, life));
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	close(fd);
}
END_TEST

START_TEST(lives_that_somebody_has_locked_are_an_error_that_takes_nothing)
{
	struct map map = own_map();
	struct worker worker = {0};
	int fd = lock_for_reading(LOCK_LIFE, 0);

	ck_assert_int_eq(worker_register(&map, &worker), -EBUSY);
	ck_assert_uint_eq(slots_taken(), 0);
	close(fd);
	ck_assert_int_eq(worker_register(&map, &worker), 0);
	worker_unregister(&map, &worker);
	map_close(&map);
}
END_TEST

START_TEST(each_cell_of_each_kind_is_freed_and_no_other)
{
	struct worker dead = dead_worker();
	uint32_t other = dead.life + 100;

	fixture_store(map_permit(&n.map, n.state, 9), permit_make(other, 1));
	fixture_store(&n.state->probes[9], probe_make(other, 1, 1000));
	fixture_store(&map_shard(&n.map, n.state, 1)->owner, other);
	fixture_store(&map_event(&n.map, 4)->stamp, EVENT_BUSY | other);
	fixture_store(&map_waiting(&n.map, n.state)[9], permit_make(other, 1));
	ck_assert_uint_eq(cells_of(&n.map, dead.life), 8);
	ck_assert(worker_reap(&n.map, dead.slot, dead.life, false, 0));
	ck_assert_uint_eq(cells_of(&n.map, dead.life), 0);
	ck_assert_uint_eq(slots_taken(), 0);
	ck_assert_uint_eq(fixture_load(map_permit(&n.map, n.state, 9)), permit_make(other, 1));
	ck_assert_uint_eq(fixture_load(&n.state->probes[9]), probe_make(other, 1, 1000));
	ck_assert_uint_eq(fixture_load(&map_waiting(&n.map, n.state)[9]), permit_make(other, 1));
	ck_assert_uint_eq(fixture_load(&map_shard(&n.map, n.state, 1)->owner), other);
	ck_assert_uint_eq(fixture_load(&map_event(&n.map, 4)->stamp), EVENT_BUSY | other);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.permits_reclaimed, 3);
	ck_assert_uint_eq(r.counters.probes_reclaimed, 2);
	ck_assert_uint_eq(reaped(), 1);
}
END_TEST

START_TEST(F7_death_of_a_reaper_at_each_step_is_finished_by_the_next)
{
	static const char *const points[] = {"reap.dead=kill", "reap.permit@2=kill", "reap.probe=kill", "reap.waiting=kill",
	                                     "reap.cells=kill"};

	for (size_t i = 0; i < 5; i++) {
		struct worker dead = dead_worker();
		pid_t pid = fork();
		if (pid == 0) {
			struct map map = own_map();
			failpoint_set(points[i]);
			worker_sweep(&map, 0);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
		ck_assert_uint_eq(slots_taken(), 1); /* the slot is freed last */
		ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
		ck_assert_uint_eq(cells_of(&n.map, dead.life), 0);
		ck_assert_uint_eq(slots_taken(), 0);
		ck_assert_uint_eq(reaped(), i + 1);
		ck_assert_uint_eq(named_look(&n).counters.permits_reclaimed, 3 * (i + 1));
	}
}
END_TEST

START_TEST(a_slow_reaper_takes_nothing_from_the_next_owner_of_the_slot)
{
	static const char *const points[] = {"reap.dead=stop", "reap.permit=stop", "reap.cells=stop"};

	for (size_t i = 0; i < 3; i++) {
		struct worker dead = dead_worker();
		pid_t pid = fork();
		if (pid == 0) {
			struct map map = own_map();
			failpoint_set(points[i]);
			worker_reap(&map, dead.slot, dead.life, false, 0);
			_exit(0);
		}
		struct puppet slow = {pid, -1, -1};
		puppet_wait_stopped(&slow);
		ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
		struct puppet next = puppet_start(n.instance, NULL);
		for (uint32_t t = 0; t < 8; t++)
			ck_assert_int_eq(puppet_enter(&next, t), 0);
		kill(pid, SIGCONT);
		ck_assert_int_eq(fixture_wait(pid), 0);
		ck_assert_uint_eq(slots_taken(), 1);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 8);
		for (uint32_t t = 0; t < 8; t++)
			ck_assert_int_eq(puppet_leave(&next, t, RESC_OK), 0);
		puppet_quit(&next);
	}
}
END_TEST

START_TEST(who_lives_is_not_reaped_nor_oneself_nor_another_life_of_the_slot)
{
	struct puppet p = puppet_start(n.instance, NULL);
	uint32_t life = puppet_life(&p);
	struct map map = own_map();
	struct worker mine = {0};

	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	ck_assert_int_eq(worker_register(&map, &mine), 0);
	ck_assert(!worker_reap(&map, 0, life, false, mine.life));
	ck_assert(!worker_reap(&map, mine.slot, mine.life, false, mine.life));
	ck_assert(worker_reap(&map, 0, life + 1000, false, mine.life)); /* that one is gone from there */
	ck_assert(!worker_reap(&map, n.map.dims.workers, life, false, mine.life));
	ck_assert(!worker_reap(&map, 0, 0, false, mine.life));
	ck_assert_uint_eq(worker_sweep(&map, mine.life), 0);
	ck_assert_uint_eq(slots_taken(), 2);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	worker_unregister(&map, &mine);
	map_close(&map);
	puppet_quit(&p);
}
END_TEST

START_TEST(a_pidfd_that_said_so_needs_no_token)
{
	/* As by a child of vfork() of the dead one, which is in its memory until the exec, the token is still held. */
	struct worker dead = dead_worker();
	struct map map = own_map();
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = LOCK_LIFE + dead.life, .l_len = 1};

	ck_assert_int_eq(fcntl(map.fd, F_OFD_SETLK, &lock), 0);
	ck_assert(!worker_reap(&n.map, dead.slot, dead.life, false, 0));
	ck_assert(worker_reap(&n.map, dead.slot, dead.life, true, 0));
	ck_assert_uint_eq(cells_of(&n.map, dead.life), 0);
	map_close(&map);
}
END_TEST

START_TEST(a_damaged_slot_is_freed)
{
	fixture_store(&map_worker(&n.map, 3)->life, UINT64_MAX);
	worker_sweep(&n.map, 0);
	ck_assert_uint_eq(slots_taken(), 0);
}
END_TEST

START_TEST(sweeps_from_calls_are_at_most_one_in_an_interval)
{
	dead_worker();
	ck_assert(worker_sweep_maybe(&n.map, n.state, 100000, 0));
	dead_worker();
	ck_assert(!worker_sweep_maybe(&n.map, n.state, 100000 + SWEEP_INTERVAL_MS - 1, 0));
	ck_assert(worker_sweep_maybe(&n.map, n.state, 100000 + SWEEP_INTERVAL_MS, 0));
	/* A time in the future is damage, and hinders nobody. */
	dead_worker();
	fixture_store(&n.state->swept_ms, UINT64_MAX);
	ck_assert(worker_sweep_maybe(&n.map, n.state, 200000, 0));
}
END_TEST

/* ---- a full table ---- */

static void register_and_die(unsigned count)
{
	for (unsigned i = 0; i < count; i++) {
		pid_t pid = fork();
		if (pid == 0) {
			struct map map = own_map();
			struct worker worker = {0};
			_exit(worker_register(&map, &worker) == 0 ? 0 : 1);
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
	}
}

START_TEST(F10_a_table_full_of_the_dead_has_room)
{
	struct map map = own_map();
	struct worker worker = {0};

	register_and_die(n.map.dims.workers);
	ck_assert_uint_eq(slots_taken(), n.map.dims.workers);
	ck_assert_int_eq(worker_register(&map, &worker), 0);
	ck_assert_uint_eq(slots_taken(), 1);
	worker_unregister(&map, &worker);
	map_close(&map);
}
END_TEST

START_TEST(F10_a_table_full_of_the_living_is_an_error_that_takes_nothing)
{
	struct map maps[17];
	struct worker workers[17] = {0};

	for (int i = 0; i < 16; i++) {
		maps[i] = own_map();
		ck_assert_int_eq(worker_register(&maps[i], &workers[i]), 0);
	}
	maps[16] = own_map();
	ck_assert_int_eq(worker_register(&maps[16], &workers[16]), -ENOSPC);
	ck_assert_uint_eq(workers[16].life, 0);
	ck_assert_uint_eq(slots_taken(), 16);
	ck_assert(!life_is_held(&n.map, 17));
	/* A worker works all the same, and says why it is alone. */
	named_quiet();
	resc *host = resc_open(n.instance, NULL);
	struct resc_status status;
	resc_status(host, &status);
	ck_assert_int_eq(status.mode, RESC_PRIVATE);
	ck_assert_msg(strstr(status.reason, "\"workers\"") != NULL, "%s", status.reason);
	resc_close(host);
	for (int i = 0; i < 17; i++) {
		worker_unregister(&maps[i], &workers[i]);
		map_close(&maps[i]);
	}
}
END_TEST

START_TEST(F10_many_come_at_once_to_a_table_full_of_the_dead)
{
	for (int round = 0; round < 12; round++) {
		pid_t pids[8];
		int gate[2];
		register_and_die(n.map.dims.workers);
		ck_assert_int_eq(pipe(gate), 0);
		for (int i = 0; i < 8; i++) {
			pids[i] = fork();
			if (pids[i] != 0)
				continue;
			char c;
			struct map map = own_map();
			struct worker worker = {0};
			close(gate[1]);
			if (read(gate[0], &c, 1) != 0)
				_exit(2);
			/* Nobody leaves before all are there: the table has room for 16. */
			_exit(worker_register(&map, &worker) == 0 ? 0 : 1);
		}
		close(gate[0]);
		close(gate[1]);
		for (int i = 0; i < 8; i++)
			ck_assert_int_eq(fixture_wait(pids[i]), 0);
		worker_sweep(&n.map, 0);
		ck_assert_uint_eq(slots_taken(), 0);
	}
}
END_TEST

START_TEST(F10_room_that_somebody_else_makes_is_room)
{
	/* It finds the table full; before it looks for the dead, they are reaped by another. */
	register_and_die(n.map.dims.workers);
	pid_t pid = fork();
	if (pid == 0) {
		struct map map = own_map();
		struct worker worker = {0};
		failpoint_set("register.full=stop");
		_exit(worker_register(&map, &worker) == 0 ? 0 : 1);
	}
	struct puppet late = {pid, -1, -1};
	puppet_wait_stopped(&late);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), n.map.dims.workers);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
}
END_TEST

START_TEST(G5_generations_of_workers_use_no_more_than_their_slots)
{
	for (int i = 0; i < 60; i++) {
		struct puppet p = puppet_start(n.instance, NULL);
		/* Full of the dead: a call looks for them, but not more often than once in SWEEP_INTERVAL_MS. */
		int64_t r = puppet_enter(&p, 0);
		for (int tries = 0; r == RESC_E_FULL && tries < 20; tries++) {
			named_sleep_ms(SWEEP_INTERVAL_MS / 2);
			r = puppet_enter(&p, 0);
		}
		ck_assert_int_eq(r, 0);
		if (i % 2 != 0) {
			puppet_kill(&p);
			continue;
		}
		ck_assert_int_eq(puppet_leave(&p, 0, RESC_OK), 0);
		puppet_quit(&p);
	}
	worker_sweep(&n.map, 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(slots_taken(), 0);
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert_uint_eq(r.counters.admitted, 60);
	ck_assert_uint_eq(r.counters.ended_ok, 30);
}
END_TEST

START_TEST(C1_holders_that_are_killed_anywhere_in_a_call_give_the_permit_back)
{
	static const char *const points[] = {"permit.taken=kill", "enter.admitted=kill", "leave.permit=kill", "leave.counted=kill", NULL};

	for (int round = 0; round < 40; round++) {
		const char *point = points[round % 5];
		struct puppet p = puppet_start(n.instance, point);
		puppet_tell(&p, PUPPET_ENTER, 0, RESC_OK);
		if (puppet_answer(&p) == 0) {
			puppet_tell(&p, PUPPET_LEAVE, 0, RESC_FAIL);
			if (point == NULL)
				ck_assert_int_eq(puppet_answer(&p), 0);
		}
		if (point == NULL)
			kill(p.pid, SIGKILL);
		ck_assert_int_eq(fixture_wait(p.pid), -SIGKILL);
		puppet_close(&p);
		worker_sweep(&n.map, 0);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
		ck_assert_uint_eq(slots_taken(), 0);
	}
}
END_TEST

START_TEST(C1_a_full_bulkhead_of_the_dead_has_room_for_the_next_call)
{
	struct puppet holders[2], next = puppet_start(n.instance, NULL);

	for (int i = 0; i < 2; i++) {
		holders[i] = puppet_start(n.instance, NULL);
		for (uint32_t t = 0; t < 4; t++)
			ck_assert_int_eq(puppet_enter(&holders[i], t), 0);
	}
	ck_assert_int_eq(puppet_enter(&next, 0), RESC_E_FULL);
	puppet_kill(&holders[0]);
	puppet_kill(&holders[1]);
	named_sleep_ms(SWEEP_INTERVAL_MS + 20);
	/* Nobody reaps but the call itself. */
	ck_assert_int_eq(puppet_enter(&next, 0), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	puppet_quit(&next);
}
END_TEST

/* ---- fork ---- */

START_TEST(G4_a_forked_child_owns_nothing_and_becomes_a_worker)
{
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	resc_ticket ticket, childs;
	struct resc_status parent, child;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	resc_status(host, &parent);
	pid_t pid = fork();
	if (pid == 0) {
		resc_ticket copy = ticket;
		ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
		ck_assert_int_eq(resc_enter(pay, NULL, &childs), 0);
		resc_status(host, &child);
		ck_assert_int_eq(child.mode, RESC_SHARED);
		ck_assert_uint_ne(child.worker, parent.worker);
		copy = ticket;
		ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 2);
		_exit(0); /* without leaving */
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&n).counters.ended_fail, 0);
	resc_close(host);
	ck_assert_uint_eq(slots_taken(), 0);
}
END_TEST

START_TEST(G4_a_child_that_closes_or_exits_takes_nothing_from_its_parent)
{
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	resc_ticket ticket;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	for (int how = 0; how < 4; how++) {
		pid_t pid = fork();
		if (pid == 0) {
			resc_ticket mine;
			if (how >= 2)
				ck_assert_int_eq(resc_enter(pay, NULL, &mine), 0);
			if (how % 2 == 0)
				resc_close(host);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
		worker_sweep(&n.map, 0);
		ck_assert_uint_eq(slots_taken(), 1);
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	}
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	resc_close(host);
}
END_TEST

START_TEST(G4_a_child_does_not_keep_its_dead_parent_alive)
{
	int gate[2], from[2];
	char c;

	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(pipe(from), 0);
	pid_t parent = fork();
	if (parent == 0) {
		resc *host = named_join(n.instance);
		resc_ticket ticket;
		resc_enter(named_lookup(host, "payments"), NULL, &ticket);
		if (fork() == 0) {
			/* It never makes a call. */
			close(gate[1]);
			close(from[0]);
			if (write(from[1], "x", 1) != 1 || read(gate[0], &c, 1) != 0)
				_exit(1);
			_exit(0);
		}
		pause();
	}
	ck_assert_int_eq(read(from[0], &c, 1), 1);
	kill(parent, SIGKILL);
	ck_assert_int_eq(fixture_wait(parent), -SIGKILL);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	close(gate[1]);
}
END_TEST

static void *open_in_thread(void *arg)
{
	(void)arg;
	return resc_open(n.instance, NULL);
}

START_TEST(G4_nor_one_that_was_forked_while_another_thread_opened_a_view)
{
	int gate[2], from[2];
	char c;

	ck_assert_int_eq(pipe(gate), 0);
	ck_assert_int_eq(pipe(from), 0);
	pid_t parent = fork();
	if (parent == 0) {
		pthread_t thread;
		resc_close(named_join(n.instance)); /* from now on forks are watched */
		failpoint_set("register.claimed=sleep:200");
		pthread_create(&thread, NULL, open_in_thread, NULL);
		while (slots_taken() == 0)
			sched_yield();
		if (fork() == 0) {
			close(gate[1]);
			/* Only now it has been through what a fork does in a child. */
			_exit(write(from[1], "c", 1) == 1 && read(gate[0], &c, 1) == 0 ? 0 : 1);
		}
		pthread_join(thread, NULL);
		if (write(from[1], "x", 1) == 1)
			pause();
		_exit(1);
	}
	for (int i = 0; i < 2; i++)
		ck_assert_int_eq(read(from[0], &c, 1), 1);
	kill(parent, SIGKILL);
	ck_assert_int_eq(fixture_wait(parent), -SIGKILL);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	close(gate[1]);
}
END_TEST

START_TEST(G4_eight_forked_children_call_at_once)
{
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	pid_t pids[8];

	for (int i = 0; i < 8; i++) {
		pids[i] = fork();
		if (pids[i] != 0)
			continue;
		for (int k = 0; k < 500; k++) {
			resc_ticket ticket;
			ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
			ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		}
		resc_close(host);
		_exit(0);
	}
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.admitted, 4000);
	ck_assert_uint_eq(r.counters.ended_ok, 4000);
	ck_assert_uint_eq(r.window_calls, 4000);
	ck_assert_uint_eq(slots_taken(), 1);
	resc_close(host);
}
END_TEST

START_TEST(G4_a_program_that_is_run_gets_no_descriptor_of_the_segment)
{
	resc *host = named_join(n.instance);
	DIR *directory = opendir("/proc/self/fd");
	unsigned found = 0;

	for (const struct dirent *e; (e = readdir(directory)) != NULL;) {
		char path[300], target[256];
		snprintf(path, sizeof path, "/proc/self/fd/%s", e->d_name);
		ssize_t length = readlink(path, target, sizeof target - 1);
		if (length <= 0)
			continue;
		target[length] = '\0';
		if (strncmp(target, SEGMENT_DIR, strlen(SEGMENT_DIR)) != 0)
			continue;
		ck_assert((fcntl(atoi(e->d_name), F_GETFD) & FD_CLOEXEC) != 0);
		found++;
	}
	closedir(directory);
	ck_assert_uint_ge(found, 1);
	char *arguments[] = {(char *)(uintptr_t) "true", NULL};
	pid_t pid;
	ck_assert_int_eq(posix_spawnp(&pid, "true", NULL, NULL, arguments, NULL), 0);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 0);
	resc_close(host);
}
END_TEST

/* ---- who a process is ---- */

START_TEST(G1_the_start_time_of_a_process_whatever_its_name)
{
	uint64_t ticks = process_start_ticks(getpid());

	ck_assert_uint_gt(ticks, 0);
	static const char *const names[] = {"a) b (c", ") 1 2 3", "((", "))))", "    ", ")"};
	for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
		ck_assert_int_eq(prctl(PR_SET_NAME, names[i]), 0);
		ck_assert_uint_eq(process_start_ticks(getpid()), ticks);
	}
}
END_TEST

START_TEST(G1_who_is_gone_has_no_start_time)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(process_start_ticks(pid), 0);
	ck_assert_uint_ne(process_namespace("pid"), 0);
	ck_assert_uint_eq(process_namespace("no-such"), 0);
}
END_TEST

START_TEST(F8_attaching_changes_nothing)
{
	struct puppet p = puppet_start(n.instance, NULL);

	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	ck_assert_int_eq(puppet_enter(&p, 1), 0);
	ck_assert_int_eq(puppet_leave(&p, 1, RESC_FAIL), 0);
	uint64_t breaker = fixture_load(&n.state->breaker), streak = fixture_load(&n.state->streak);
	struct inspect_resource before = named_look(&n);
	for (int i = 0; i < 10; i++) {
		struct puppet other = puppet_start(n.instance, NULL);
		puppet_life(&other);
		puppet_quit(&other);
	}
	struct inspect_resource after = named_look(&n);
	ck_assert_uint_eq(fixture_load(&n.state->breaker), breaker);
	ck_assert_uint_eq(fixture_load(&n.state->streak), streak);
	ck_assert_mem_eq(&before, &after, sizeof before);
	puppet_quit(&p);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_worker_takes_a_slot_and_gives_it_back,
	        a_life_is_never_used_twice,
	        lives_that_are_used_up_are_an_error_and_do_not_wrap,
	        F7_death_at_each_step_of_registering_leaves_nothing,
	        F7_death_while_leaving_leaves_nothing,
	        the_dead_hold_nothing_and_the_living_everything,
	        a_zombie_is_dead,
	        who_exits_without_leaving_is_dead,
	        to_be_stopped_is_not_to_be_dead,
	        a_token_is_seen_from_another_process_and_dropped_with_its_owner,
	        a_lock_of_somebody_who_may_only_read_keeps_no_dead_one_alive,
	        lives_that_somebody_has_locked_are_an_error_that_takes_nothing,
	        a_life_hangs_on_no_descriptor,
	        each_cell_of_each_kind_is_freed_and_no_other,
	        F7_death_of_a_reaper_at_each_step_is_finished_by_the_next,
	        a_slow_reaper_takes_nothing_from_the_next_owner_of_the_slot,
	        who_lives_is_not_reaped_nor_oneself_nor_another_life_of_the_slot,
	        a_pidfd_that_said_so_needs_no_token,
	        a_damaged_slot_is_freed,
	        sweeps_from_calls_are_at_most_one_in_an_interval,
	        F10_a_table_full_of_the_dead_has_room,
	        F10_a_table_full_of_the_living_is_an_error_that_takes_nothing,
	        F10_many_come_at_once_to_a_table_full_of_the_dead,
	        F10_room_that_somebody_else_makes_is_room,
	        G5_generations_of_workers_use_no_more_than_their_slots,
	        C1_holders_that_are_killed_anywhere_in_a_call_give_the_permit_back,
	        C1_a_full_bulkhead_of_the_dead_has_room_for_the_next_call,
	        G4_a_forked_child_owns_nothing_and_becomes_a_worker,
	        G4_a_child_that_closes_or_exits_takes_nothing_from_its_parent,
	        G4_a_child_does_not_keep_its_dead_parent_alive,
	        G4_nor_one_that_was_forked_while_another_thread_opened_a_view,
	        G4_eight_forked_children_call_at_once,
	        G4_a_program_that_is_run_gets_no_descriptor_of_the_segment,
	        G1_the_start_time_of_a_process_whatever_its_name,
	        G1_who_is_gone_has_no_start_time,
	        F8_attaching_changes_nothing,
	};

	return NAMED_RUN("worker", tests, set_up, tear_down);
}
