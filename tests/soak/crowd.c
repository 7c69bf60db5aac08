/* SPDX-License-Identifier: MIT */
/*
 * All processes of the storm under the driver's hand: workers, the children that these fork, rescd, resctl. Who dies is buried, entered
 * into the accounts and replaced; what was put off is done when it is due.
 *
 * Nobody is hit who is not ours: workers, rescd and resctl are our children and keep their numbers until they are waited for, and children
 * of workers are hit through pidfds.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attach.h"
#include "driver.h"

#define MOURNED   512u
#define OPERATORS 8u
#define TIMERS    256u

/* ---- the reader's view of the segment ---- */

static struct map reader = {.fd = -1};

void forget_segment(void)
{
	if (reader.base != NULL)
		map_close(&reader);
	reader = (struct map){.fd = -1};
}

/* The segment that the workers use now. NULL: none at this moment. */
const struct map *current_segment(void)
{
	char path[MAP_PATH_SIZE];

	map_path(path, storm.instance, 0);
	if (reader.base != NULL && map_is_at(&reader, path) && map_superseded_by(&reader) == 0)
		return &reader;
	forget_segment();
	if (open_current(&reader, storm.instance, MAP_READER, NULL) < 0) {
		reader = (struct map){.fd = -1};
		return NULL;
	}
	return &reader;
}

/* ---- those who died, until nothing of them is left ---- */

static struct mourned {
	uint64_t segment;
	uint64_t killed_ns;
	uint32_t life;
	bool without_rescd;
} mourned[MOURNED];
static unsigned mourned_count;
static uint64_t killed_ns[ACTORS_MAX];

static void mourn(uint32_t index)
{
	const struct actor *a = &storm.shared->actors[index];
	uint32_t life = atomic_load_explicit(&a->life, memory_order_relaxed);

	if (life == 0 || mourned_count == MOURNED || killed_ns[index] == 0)
		return;
	mourned[mourned_count++] = (struct mourned){
	        .segment = atomic_load_explicit(&a->segment, memory_order_relaxed), .killed_ns = killed_ns[index], .life = life};
}

static bool is_registered(const struct map *map, uint32_t life)
{
	for (uint32_t i = 0; i < map->dims.workers; i++)
		if (atomic_load_explicit(&map_worker(map, i)->life, memory_order_acquire) == life)
			return true;
	return false;
}

static void look_for_the_dead(void)
{
	const struct map *map = mourned_count == 0 ? NULL : current_segment();

	for (unsigned i = 0; map != NULL && i < mourned_count;) {
		struct mourned *m = &mourned[i];
		m->without_rescd = m->without_rescd || host.down_until_ns != 0 || host.stopped || host.disturbed_ns > m->killed_ns;
		if (m->segment == map->generation && is_registered(map, m->life)) {
			i++;
			continue;
		}
		double ms = (double)(now_ns() - m->killed_ns) / 1e6;
		/* In a segment that was superseded meanwhile there is no looking. */
		if (m->segment == map->generation) {
			sample(m->without_rescd ? &report.reaped_without_rescd : &report.reaped, ms);
			if (!m->without_rescd && ms > (double)PATIENCE_NS / 1e6)
				complain("life %u was still registered %.0f ms after its death", m->life, ms);
		}
		*m = mourned[--mourned_count];
	}
}

/* ---- workers ---- */

/* What a process says to people goes to a file of the run. */
static void speak_into(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", storm.directory, name);
	int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
	if (fd >= 0)
		dup2(fd, STDERR_FILENO);
	if (fd >= 0)
		close(fd);
}

void spawn(uint32_t i)
{
	struct actor *a = &storm.shared->actors[i];
	uint32_t incarnation = (atomic_load_explicit(&a->phase, memory_order_seq_cst) >> 8) + 1;

	atomic_store_explicit(&a->phase, incarnation << 8 | ACTOR_STARTING, memory_order_seq_cst);
	atomic_store_explicit(&a->life, 0, memory_order_seq_cst);
	/* Only now: what the one before had is nobody's. */
	atomic_store_explicit(&a->doomed, false, memory_order_seq_cst);
	killed_ns[i] = 0;
	pid_t driver = getpid();
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (getppid() != driver)
			_exit(0);
		forget_segment();
		speak_into("workers.log");
		actor_run(i, incarnation);
	}
	if (pid < 0)
		complain("fork: %s", strerror(errno));
	atomic_store_explicit(&a->pid, (int)pid, memory_order_seq_cst);
}

void kill_worker(uint32_t i)
{
	struct actor *a = &storm.shared->actors[i];

	if (atomic_load_explicit(&a->doomed, memory_order_seq_cst))
		return;
	atomic_store_explicit(&a->doomed, true, memory_order_seq_cst);
	killed_ns[i] = last_kill_ns = now_ns();
	kill((pid_t)atomic_load_explicit(&a->pid, memory_order_seq_cst), SIGKILL);
	report.kills++;
	report.worker_kills++;
	happened("kill worker %u, pending %x", i, atomic_load_explicit(&a->pending, memory_order_seq_cst));
}

/* At a moment when it is in the middle of an operation, where there is one soon. */
void aim_at_worker(uint32_t i, uint64_t delay_ns)
{
	const struct actor *a = &storm.shared->actors[i];
	uint64_t deadline = now_ns() + MS / 2;

	while (atomic_load_explicit(&a->pending, memory_order_acquire) == 0 && now_ns() < deadline)
		;
	for (uint64_t until = now_ns() + delay_ns; now_ns() < until;)
		;
	kill_worker(i);
}

static int child_fds[WORKERS_MAX]; /* pidfds of children that were killed */

void crowd_begin(void)
{
	/* Orphans of killed workers come to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (uint32_t i = 0; i < WORKERS_MAX; i++)
		child_fds[i] = -1;
}

/* A child of a worker, and no other process that has its number now: its pidfd is older than the look at its phase. */
void kill_child(uint32_t i)
{
	struct actor *a = &storm.shared->actors[storm.workers + i];
	uint32_t phase = atomic_load_explicit(&a->phase, memory_order_seq_cst);
	int pid = atomic_load_explicit(&a->pid, memory_order_seq_cst);

	if (child_fds[i] >= 0 || (phase & 0xff) < ACTOR_RUNNING || pid <= 0)
		return;
	int fd = pidfd_open(pid, 0);
	if (fd < 0)
		return;
	atomic_store_explicit(&a->doomed, true, memory_order_seq_cst);
	uint32_t again = atomic_load_explicit(&a->phase, memory_order_seq_cst);
	if (again >> 8 != phase >> 8 || (again & 0xff) == ACTOR_FREE) {
		atomic_store_explicit(&a->doomed, false, memory_order_seq_cst);
		close(fd);
		return;
	}
	killed_ns[storm.workers + i] = last_kill_ns = now_ns();
	pidfd_send_signal(fd, SIGKILL, NULL, 0);
	child_fds[i] = fd;
	report.kills++;
	report.child_kills++;
	happened("kill child of slot %u", i);
}

static void look_after_children(void)
{
	for (uint32_t i = 0; i < storm.workers; i++) {
		struct pollfd waited = {.fd = child_fds[i], .events = POLLIN};
		struct actor *a = &storm.shared->actors[storm.workers + i];
		if (child_fds[i] < 0 || poll(&waited, 1, 0) <= 0)
			continue;
		mourn(storm.workers + i);
		accounts_close(storm.workers + i);
		atomic_store_explicit(&a->phase, atomic_load_explicit(&a->phase, memory_order_seq_cst) & ~0xffu, memory_order_seq_cst);
		atomic_store_explicit(&a->doomed, false, memory_order_seq_cst);
		close(child_fds[i]);
		child_fds[i] = -1;
	}
}

/* A worker that died between saying that it forks and the first step of its child: that child finds that nobody expects it. */
static void forget_unborn_child(uint32_t i)
{
	struct actor *a = &storm.shared->actors[storm.workers + i];
	uint32_t phase = atomic_load_explicit(&a->phase, memory_order_seq_cst);

	if ((phase & 0xff) == ACTOR_STARTING)
		atomic_compare_exchange_strong_explicit(&a->phase, &phase, phase & ~0xffu, memory_order_seq_cst, memory_order_seq_cst);
}

static void worker_died(uint32_t i, int status)
{
	struct actor *a = &storm.shared->actors[i];

	if (!atomic_load_explicit(&a->doomed, memory_order_seq_cst) && !ending)
		complain("worker %u ended by itself: status %x", i, (unsigned)status);
	if (ending && !(WIFEXITED(status) && WEXITSTATUS(status) == 0) && !atomic_load_explicit(&a->doomed, memory_order_seq_cst))
		complain("worker %u did not end well: status %x", i, (unsigned)status);
	mourn(i);
	accounts_close(i);
	forget_unborn_child(i);
	atomic_store_explicit(&a->pid, 0, memory_order_seq_cst);
	if (ending)
		atomic_store_explicit(&a->phase, atomic_load_explicit(&a->phase, memory_order_seq_cst) & ~0xffu, memory_order_seq_cst);
	else
		spawn(i);
}

/* ---- rescd and operators ---- */

static struct operator_ {
	uint64_t kill_ns; /* 0: not at all */
	pid_t pid;
	bool killed;
	bool is_doctor; /* who must find nothing, whatever goes on, but that rescd is dead or that there is no segment to look at */
	uint64_t began_ns;
} operators[OPERATORS];
static bool rescd_shall_end;

static void rescd_died(int status)
{
	if (!rescd_shall_end)
		complain("rescd ended by itself: status %x; its log is rescd.log", (unsigned)status);
	rescd_shall_end = false;
	host.rescd = 0;
	host.stopped = false;
	host.disturbed_ns = now_ns();
}

static void operator_ended(struct operator_ *o, int status)
{
	if (WIFSIGNALED(status) && !o->killed)
		complain("resctl was ended by signal %d", WTERMSIG(status));
	bool rescd_was_there = host.rescd > 0 && !host.stopped && !rescd_shall_end && host.disturbed_ns < o->began_ns;
	if (o->is_doctor && rescd_was_there && WIFEXITED(status) && WEXITSTATUS(status) == 1)
		complain("resctl doctor found something in the storm: see resctl.log");
	o->pid = 0;
}

static void look_after_operators(void)
{
	for (unsigned i = 0; i < OPERATORS; i++) {
		struct operator_ *o = &operators[i];
		if (o->pid == 0 || o->killed || o->kill_ns == 0 || now_ns() < o->kill_ns)
			continue;
		kill(o->pid, SIGKILL);
		o->killed = true;
		report.kills++;
		report.resctl_kills++;
		happened("kill resctl");
	}
}

void operate(const char *const *words, uint64_t kill_after_ns)
{
	unsigned i = 0;

	while (i < OPERATORS && operators[i].pid != 0)
		i++;
	if (i == OPERATORS)
		return;
	operators[i] = (struct operator_){.kill_ns = kill_after_ns == 0 ? 0 : now_ns() + kill_after_ns,
	                                  .is_doctor = strcmp(words[0], "doctor") == 0,
	                                  .began_ns = now_ns()};
	operators[i].pid = host_resctl(words);
	happened("resctl %s %s%s", words[0], words[1] != NULL ? words[1] : "", kill_after_ns != 0 ? ", killed soon" : "");
}

bool operators_are_gone(void)
{
	for (unsigned i = 0; i < OPERATORS; i++)
		if (operators[i].pid != 0)
			return false;
	return true;
}

bool rescd_is_ending(void)
{
	return rescd_shall_end;
}

void end_rescd(int signal)
{
	if (host.rescd <= 0 || rescd_shall_end)
		return;
	rescd_shall_end = true;
	kill(host.rescd, signal);
	if (host.stopped)
		kill(host.rescd, SIGCONT);
	host.disturbed_ns = now_ns();
	if (signal == SIGKILL) {
		report.kills++;
		report.rescd_kills++;
		last_kill_ns = now_ns();
	}
}

/* ---- what is to be done later ---- */

enum later { LATER_CONTINUE_WORKER, LATER_KILL_WORKER, LATER_CONTINUE_RESCD };
static struct timer {
	uint64_t due_ns;
	enum later what;
	uint32_t i;
	int pid;
} timers[TIMERS];
static unsigned timer_count;

static void later(uint64_t after_ns, enum later what, uint32_t i, int pid)
{
	if (timer_count < TIMERS)
		timers[timer_count++] = (struct timer){now_ns() + after_ns, what, i, pid};
}

void stop_worker_for(uint32_t i, uint64_t length_ns, bool then_kill)
{
	struct actor *a = &storm.shared->actors[i];
	int pid = atomic_load_explicit(&a->pid, memory_order_seq_cst);

	if (atomic_load_explicit(&a->doomed, memory_order_seq_cst))
		return;
	atomic_fetch_add_explicit(&a->stops, 1, memory_order_seq_cst);
	kill((pid_t)pid, SIGSTOP);
	later(length_ns, then_kill ? LATER_KILL_WORKER : LATER_CONTINUE_WORKER, i, pid);
	report.stops++;
	happened("stop worker %u for %llu ms%s", i, (unsigned long long)(length_ns / MS), then_kill ? ", then kill" : "");
}

void stop_rescd_for(uint64_t length_ns)
{
	if (host.rescd <= 0 || host.stopped)
		return;
	kill(host.rescd, SIGSTOP);
	host.stopped = true;
	later(length_ns, LATER_CONTINUE_RESCD, 0, host.rescd);
	report.stops++;
	happened("stop rescd for %llu ms", (unsigned long long)(length_ns / MS));
}

static void do_later(const struct timer *t)
{
	if (t->what == LATER_CONTINUE_RESCD) {
		if (t->pid == host.rescd && host.stopped) {
			kill(host.rescd, SIGCONT);
			host.stopped = false;
			host.disturbed_ns = now_ns();
		}
		return;
	}
	if (atomic_load_explicit(&storm.shared->actors[t->i].pid, memory_order_seq_cst) != t->pid)
		return;
	if (t->what == LATER_KILL_WORKER)
		kill_worker(t->i);
	else
		kill((pid_t)t->pid, SIGCONT);
}

/* all: those that are not due too. */
void run_timers(bool all)
{
	for (unsigned i = 0; i < timer_count;) {
		struct timer t = timers[i];
		if (!all && now_ns() < t.due_ns) {
			i++;
			continue;
		}
		timers[i] = timers[--timer_count];
		do_later(&t);
	}
}

/* ---- one turn of the driver ---- */

static void bury(pid_t pid, int status)
{
	if (pid == host.rescd) {
		rescd_died(status);
		return;
	}
	for (unsigned i = 0; i < OPERATORS; i++)
		if (operators[i].pid == pid) {
			operator_ended(&operators[i], status);
			return;
		}
	for (uint32_t i = 0; i < storm.workers; i++)
		if (atomic_load_explicit(&storm.shared->actors[i].pid, memory_order_seq_cst) == (int)pid) {
			worker_died(i, status);
			return;
		}
	/* Else a child whose parent is dead: it has become ours. Its pidfd says what there is to say. */
}

/* Everything that is due, but no new disaster. */
static void turn(void)
{
	static uint64_t next_watch;
	int status;
	pid_t pid;

	look_for_endings();
	while ((pid = waitpid(-1, &status, WNOHANG)) > 0)
		bury(pid, status);
	look_after_children();
	look_after_operators();
	run_timers(false);
	if (host.rescd == 0 && !ending && now_ns() >= host.down_until_ns)
		host_start(&host);
	look_for_the_dead();
	if (now_ns() >= next_watch) {
		const struct map *map = current_segment();
		if (map != NULL)
			accounts_watch(map);
		next_watch = now_ns() + 20 * MS;
	}
	report.seconds = (double)(now_ns() - started_ns) / 1e9;
}

void live_until(uint64_t until_ns)
{
	do {
		turn();
		uint64_t now = now_ns();
		if (now < until_ns)
			sleep_us(until_ns - now < MS ? (until_ns - now) / 1000 : 1000);
	} while (now_ns() < until_ns && !failed());
}

/* False, with a complaint: it never came. */
bool wait_for(bool (*condition)(void), const char *what)
{
	uint64_t deadline = now_ns() + PATIENCE_NS;

	while (!condition()) {
		if (failed())
			return false;
		if (now_ns() > deadline) {
			complain("not within %llu s: %s", (unsigned long long)(PATIENCE_NS / 1000 / MS), what);
			return false;
		}
		live_until(now_ns() + MS);
	}
	return true;
}

/* ---- the end of all ---- */

/* By their numbers, which are still theirs: nobody has waited for them. */
void kill_everybody(void)
{
	ending = true;
	atomic_store_explicit(&storm.shared->end, true, memory_order_seq_cst);
	for (uint32_t i = 0; i < storm.workers; i++) {
		int pid = atomic_load_explicit(&storm.shared->actors[i].pid, memory_order_seq_cst);
		if (pid > 0)
			kill((pid_t)pid, SIGKILL);
		kill_child(i);
	}
	for (unsigned i = 0; i < OPERATORS; i++)
		if (operators[i].pid > 0)
			kill(operators[i].pid, SIGKILL);
	if (host.rescd > 0)
		kill(host.rescd, SIGKILL);
	while (waitpid(-1, NULL, 0) > 0 || errno == EINTR)
		;
	char prefix[MAP_PATH_SIZE];
	snprintf(prefix, sizeof(prefix), SEGMENT_PREFIX "%s", storm.instance);
	remove_files(SEGMENT_DIR, prefix);
}
