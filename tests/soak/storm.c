/* SPDX-License-Identifier: MIT */
/*
 * The kill storm: its driver.
 *
 * Sixteen workers call as a server does, and are killed at random moments; so are rescd, resctl, and the children that the workers fork.
 * In between everything else that happens to a host: stops, reloads, operators, restarts, larger tables, a segment whose name is removed.
 * After each volley there is a quiet point: nobody calls, nobody new dies, and the accounts of all workers must be those of the segment.
 *
 * The seed decides who is hit, when, and by what. What the hit process is doing at that moment is the scheduler's.
 */
#include <argp.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/pidfd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "attach.h"
#include "storm.h"

#define MS          UINT64_C(1000000)
#define PATIENCE_NS (20000 * MS) /* a machine that is loaded may take long, a fault takes for ever */
#define RIGHT_NS    (5000 * MS)  /* "within a second", with the same in mind */
#define VOLLEY      100u         /* kills between two calms */
#define CALM_NS     (300 * MS)
#define VOLLEYS     3u /* between two quiet points */
#define GROWTHS     5u /* larger tables in a run */
#define TIMERS      256u
#define OPERATORS   8u
#define MOURNED     512u
#define HAPPENED    200u

const struct resource_traits traits[RESOURCES] = {
#define X(NAME, name, strict, most, probes) [R_##NAME] = {name, strict, most, probes},
        STORM_RESOURCES(X)
#undef X
};

struct storm storm = {.workers = 16, .kills = 10000};
static struct report report;
static struct host host;
static uint64_t dice;
static uint64_t started_ns;
static uint64_t last_kill_ns;
static bool ending;
static struct map reader = {.fd = -1};

/* ---- time and words ---- */

uint64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void sleep_us(uint64_t us)
{
	struct timespec t = {(time_t)(us / 1000000), (long)(us % 1000000 * 1000)};

	nanosleep(&t, NULL);
}

void complain(const char *format, ...)
{
	va_list args;

	/* The first one counts. */
	if (atomic_fetch_add_explicit(&storm.shared->complaints, 1, memory_order_seq_cst) != 0)
		return;
	va_start(args, format);
	vsnprintf(storm.shared->complaint, sizeof(storm.shared->complaint), format, args);
	va_end(args);
	atomic_store_explicit(&storm.shared->failed, true, memory_order_seq_cst);
}

/* What people send to end the driver. Blocked and looked for: a handler would run in a fresh child too, that is sent the same. */
static const sigset_t *endings(void)
{
	static sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGINT);
	sigaddset(&set, SIGTERM);
	return &set;
}

static void look_for_endings(void)
{
	const struct timespec now = {0, 0};

	if (sigtimedwait(endings(), NULL, &now) > 0)
		complain("interrupted");
}

static bool failed(void)
{
	return atomic_load_explicit(&storm.shared->failed, memory_order_seq_cst);
}

static char history[HAPPENED][120];
static uint64_t history_next;

void happened(const char *format, ...)
{
	char *line = history[history_next++ % HAPPENED];
	int n = snprintf(line, sizeof(history[0]), "%10.3f ms  ", (double)(now_ns() - started_ns) / 1e6);
	va_list args;

	va_start(args, format);
	vsnprintf(line + n, sizeof(history[0]) - (size_t)n, format, args);
	va_end(args);
}

/* ---- the reader's view of the segment ---- */

/* The segment that the workers use now. NULL: none at this moment. */
static const struct map *current_segment(void)
{
	char path[MAP_PATH_SIZE];

	map_path(path, storm.instance, 0);
	if (reader.base != NULL && map_is_at(&reader, path) && map_superseded_by(&reader) == 0)
		return &reader;
	if (reader.base != NULL)
		map_close(&reader);
	reader = (struct map){.fd = -1};
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
			if (!m->without_rescd && ms > (double)RIGHT_NS / 1e6)
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

static void spawn(uint32_t i)
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
		if (reader.base != NULL)
			map_close(&reader);
		speak_into("workers.log");
		actor_run(i, incarnation);
	}
	if (pid < 0)
		complain("fork: %s", strerror(errno));
	atomic_store_explicit(&a->pid, (int)pid, memory_order_seq_cst);
}

static void kill_worker(uint32_t i)
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
static void aim_at_worker(uint32_t i, uint64_t delay_ns)
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

/* A child of a worker, and no other process that has its number now: its pidfd is older than the look at its phase. */
static void kill_child(uint32_t i)
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
	bool is_doctor; /* who must find nothing, whatever goes on, but that rescd is dead */
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
	if (o->is_doctor && rescd_was_there && WIFEXITED(status) && WEXITSTATUS(status) != 0)
		complain("resctl doctor ended with %d in the storm; what it found is in resctl.log", WEXITSTATUS(status));
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

static void operate(const char *const *words, uint64_t kill_after_ns)
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

static bool operators_are_gone(void)
{
	for (unsigned i = 0; i < OPERATORS; i++)
		if (operators[i].pid != 0)
			return false;
	return true;
}

static void end_rescd(int signal)
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
static void run_timers(bool all)
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

static void live_until(uint64_t until_ns)
{
	do {
		turn();
		uint64_t now = now_ns();
		if (now < until_ns)
			sleep_us(until_ns - now < MS ? (until_ns - now) / 1000 : 1000);
	} while (now_ns() < until_ns && !failed());
}

/* False, with a complaint: it never came. */
static bool wait_for(bool (*condition)(void), const char *what)
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

/* ---- disasters: each is drawn from the dice alone ---- */

static void hit_workers(uint32_t draw)
{
	/* One; seldom several at the same moment, or all. */
	uint32_t many = draw % 512 == 0 ? storm.workers : draw % 16 == 0 ? 2 + draw / 16 % 4 : 1;

	for (uint32_t n = 0; n < many; n++) {
		uint32_t i = random_below(&dice, storm.workers);
		uint64_t delay = random_below(&dice, 3000);
		if (many == storm.workers)
			kill_worker(n);
		else if (random_below(&dice, 4) == 0)
			kill_worker(i);
		else
			aim_at_worker(i, delay);
	}
}

static void stop_worker(uint32_t draw)
{
	uint32_t i = random_below(&dice, storm.workers);
	uint64_t length = random_below(&dice, 8) == 0 ? 400 * MS : (uint64_t)random_below(&dice, 60) * MS;
	int pid = atomic_load_explicit(&storm.shared->actors[i].pid, memory_order_seq_cst);

	if (atomic_load_explicit(&storm.shared->actors[i].doomed, memory_order_seq_cst))
		return;
	atomic_fetch_add_explicit(&storm.shared->actors[i].stops, 1, memory_order_seq_cst);
	kill((pid_t)pid, SIGSTOP);
	later(length, draw % 3 == 0 ? LATER_KILL_WORKER : LATER_CONTINUE_WORKER, i, pid);
	report.stops++;
	happened("stop worker %u for %llu ms%s", i, (unsigned long long)(length / MS), draw % 3 == 0 ? ", then kill" : "");
}

static void reload(uint32_t draw)
{
	host.variant = random_below(&dice, 16);
	host_configure(&host);
	report.reloads++;
	if (draw % 3 == 0) {
		operate((const char *const[]){"reload", NULL}, draw % 2 == 0 ? random_below(&dice, 6000) * UINT64_C(1000) + 1 : 0);
		return;
	}
	host_hang_up(&host);
	happened("configuration %u, SIGHUP", host.variant);
}

static void an_operator(uint32_t draw)
{
	/* Not those whose budget or rate is checked: a reset fills them. */
	static const enum storm_resource whom[] = {R_PAY, R_SEARCH, R_INDEX, R_TRIAL};
	const char *name = traits[whom[draw % 4]].name;
	uint64_t kill_after = draw % 2 == 0 ? random_below(&dice, 5000) * UINT64_C(1000) + 1 : 0;

	switch (draw / 8 % 7) {
	case 0:
		operate((const char *const[]){"force", name, "open", "--for", "40ms", "--why", "storm", NULL}, kill_after);
		break;
	case 1:
		operate((const char *const[]){"force", name, "closed", "--for", "60ms", "--why", "storm", NULL}, kill_after);
		break;
	case 2:
		operate((const char *const[]){"force", name, "disabled", "--for", "60ms", "--why", "storm", NULL}, kill_after);
		break;
	case 3:
		operate((const char *const[]){"release", name, NULL}, kill_after);
		break;
	case 4:
		operate((const char *const[]){"reset", name, "--why", "storm", NULL}, kill_after);
		break;
	case 5:
		operate((const char *const[]){"doctor", NULL}, kill_after);
		break;
	default:
		operate((const char *const[]){"snapshot", NULL}, kill_after);
	}
}

/* Nobody is in a former segment any more. */
static bool all_have_followed(void)
{
	const struct map *map = current_segment();

	for (uint32_t i = 0; map != NULL && i < 2 * storm.workers; i++) {
		const struct actor *a = &storm.shared->actors[i];
		uint32_t phase = atomic_load_explicit(&a->phase, memory_order_seq_cst) & 0xff;
		if (phase >= ACTOR_RUNNING && atomic_load_explicit(&a->segment, memory_order_seq_cst) != map->generation)
			return false;
	}
	return map != NULL;
}

/*
 * A segment whose name was removed is known to the rescd of that moment, and after that to nobody. What is still to come from there when it
 * is killed comes late or never: two faults at once, see daemon/succession.c. This storm is about one at a time.
 */
static bool depends_on_this_rescd(void)
{
	static uint64_t removals;
	const struct map *map = removals == report.removals ? NULL : current_segment();

	if (map != NULL && all_have_followed() && !accounts_owed(map))
		removals = report.removals;
	return removals != report.removals;
}

static void hit_rescd(uint32_t draw)
{
	uint64_t length = (uint64_t)random_below(&dice, 300) * MS;

	if (depends_on_this_rescd())
		return;
	switch (draw % 4) {
	case 0:
	case 1:
		happened("kill rescd, down for %llu ms", (unsigned long long)(length / MS));
		end_rescd(SIGKILL);
		host.down_until_ns = now_ns() + length;
		break;
	case 2:
		if (host.rescd <= 0 || host.stopped)
			return;
		happened("stop rescd for %llu ms", (unsigned long long)(length / MS));
		kill(host.rescd, SIGSTOP);
		host.stopped = true;
		report.stops++;
		later(length, LATER_CONTINUE_RESCD, 0, host.rescd);
		break;
	default:
		happened("terminate rescd, down for %llu ms", (unsigned long long)(length / MS));
		end_rescd(SIGTERM);
		host.down_until_ns = now_ns() + length;
	}
}

static bool name_is_there(void)
{
	char path[MAP_PATH_SIZE];

	map_path(path, storm.instance, 0);
	return access(path, F_OK) == 0;
}

static bool rescd_is_ready(void)
{
	return host_is_ready(&host);
}

/* Somebody removes the name of the segment, and rescd puts it back. One fault at a time here too: rescd lives until then, and no worker is
 * still in the segment before, which would find no name where it looks for the next. */
static void remove_segment(void)
{
	char path[MAP_PATH_SIZE];

	if (host.rescd <= 0 || host.stopped || rescd_shall_end || !rescd_is_ready())
		return;
	wait_for(all_have_followed, "all workers are in the current segment");
	happened("remove the segment");
	map_path(path, storm.instance, 0);
	unlink(path);
	report.removals++;
	wait_for(name_is_there, "a removed segment is put back");
	wait_for(rescd_is_ready, "rescd serves it");
	happened("it is back");
}

static void change_health(void)
{
	static const uint32_t failing[] = {0, 10000, 50000, 600000, 1000000};
	uint32_t r = random_below(&dice, RESOURCES);

	atomic_store_explicit(&storm.shared->failing_ppm[r], failing[random_below(&dice, 5)], memory_order_relaxed);
}

static void disaster(void)
{
	uint32_t kind = random_below(&dice, 1000);
	uint32_t draw = random_below(&dice, 1u << 20);

	if (kind < 730)
		hit_workers(draw);
	else if (kind < 780)
		kill_child(draw % storm.workers);
	else if (kind < 830)
		stop_worker(draw);
	else if (kind < 865)
		reload(draw);
	else if (kind < 900)
		an_operator(draw);
	else if (kind < 925)
		hit_rescd(draw);
	else if (kind < 929)
		remove_segment();
	else
		change_health();
}

/* Tables that do not fit any more: a new segment. */
static void grow(void)
{
	host.grown++;
	host_configure(&host);
	report.growths++;
	host_hang_up(&host);
	happened("larger tables: %u", host.grown);
}

/* ---- quiet points ---- */

static bool all_paused(void)
{
	for (uint32_t i = 0; i < 2 * storm.workers; i++) {
		uint32_t phase = atomic_load_explicit(&storm.shared->actors[i].phase, memory_order_seq_cst) & 0xff;
		if (phase != ACTOR_PAUSED && phase != ACTOR_FREE)
			return false;
	}
	return true;
}

static const char *verdict = "";
static char last_wrong[400];

static bool accounts_are_exact(void)
{
	const struct map *map = current_segment();

	verdict = map == NULL ? "there is no segment" : accounts_check(map);
	if (verdict[0] == '\0')
		verdict = accounts_idle(map);
	if (verdict[0] != '\0')
		snprintf(last_wrong, sizeof(last_wrong), "%s", verdict);
	return verdict[0] == '\0';
}

/* Only the segment of the name is left. */
static bool no_former_segments(void)
{
	char prefix[MAP_PATH_SIZE];
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;
	bool found = false;

	snprintf(prefix, sizeof(prefix), SEGMENT_PREFIX "%s.", storm.instance);
	while (directory != NULL && (entry = readdir(directory)) != NULL)
		found = found || strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	if (directory != NULL)
		closedir(directory);
	return !found;
}

static bool everything_is_clean(void)
{
	const struct map *map = current_segment();

	if (!no_former_segments()) {
		verdict = "a former segment is still there";
		return false;
	}
	verdict = map == NULL ? "there is no segment" : accounts_workers(map);
	return verdict[0] == '\0';
}

static bool is_reloaded(void)
{
	return host_ask((const char *const[]){"reload", NULL}, NULL, 0) == 0;
}

static bool wait_for_verdict(bool (*condition)(void), uint64_t patience_ns)
{
	uint64_t deadline = now_ns() + patience_ns;

	while (!condition()) {
		if (failed())
			return false;
		if (now_ns() > deadline) {
			complain("%s", verdict);
			return false;
		}
		live_until(now_ns() + MS / 2);
	}
	return true;
}

static char doctors_word[4096] = "was not asked";

static void ask_doctor(void)
{
	int r = host_ask((const char *const[]){"doctor", NULL}, doctors_word, sizeof(doctors_word));

	doctors_word[strcspn(doctors_word, "\n")] = '\0';
	if (r != 0)
		complain("resctl doctor ended with %d: %s", r, doctors_word);
}

static void pause_workers(uint32_t how)
{
	atomic_store_explicit(&storm.shared->pause, how, memory_order_seq_cst);
	if (how == 2)
		wait_for(all_paused, "all workers have ended their calls");
}

static void quiet_point(void)
{
	uint64_t asked_ns = now_ns();

	last_wrong[0] = '\0';

	atomic_store_explicit(&storm.shared->storm, false, memory_order_seq_cst);
	run_timers(true);
	bool disturbed = host.rescd <= 0 || rescd_shall_end || host.disturbed_ns + 200 * MS > asked_ns;
	host.down_until_ns = 0;
	pause_workers(2);
	wait_for(rescd_is_ready, "rescd is ready");
	if (!wait_for_verdict(accounts_are_exact, RIGHT_NS))
		return;
	double ms = (double)(now_ns() - last_kill_ns) / 1e6;
	sample(disturbed ? &report.exact_after_rescd : &report.exact, ms);
	if (ms > report.slowest_ms) {
		report.slowest_ms = ms;
		snprintf(report.slowest, sizeof(report.slowest), "%s", last_wrong);
	}
	pause_workers(1);
	wait_for(operators_are_gone, "resctl ends");
	wait_for(is_reloaded, "the last configuration is loaded");
	wait_for_verdict(everything_is_clean, PATIENCE_NS);
	pause_workers(2);
	host_limits_are_in_force(&host);
	if (wait_for_verdict(accounts_are_exact, RIGHT_NS)) {
		const char *drawn = accounts_drawn(&reader, now_ns() - started_ns);
		if (drawn[0] != '\0')
			complain("%s", drawn);
		ask_doctor();
	}
	report.quiet_points++;
	report_progress(&report);
	happened("quiet point %llu", (unsigned long long)report.quiet_points);
	pause_workers(0);
}

/* ---- the storm ---- */

static bool is_over(void)
{
	return failed() || (storm.kills != 0 && report.kills >= storm.kills) || (storm.seconds != 0 && report.seconds >= storm.seconds);
}

static void volley(void)
{
	uint64_t until = report.kills + VOLLEY;

	atomic_store_explicit(&storm.shared->storm, true, memory_order_seq_cst);
	while (!is_over() && report.kills < until) {
		disaster();
		if (storm.kills != 0 && report.kills * (GROWTHS + 1) >= (uint64_t)storm.kills * (host.grown + 1) && host.grown < GROWTHS)
			grow();
		live_until(now_ns() + random_below(&dice, 10000) * UINT64_C(1000));
	}
	atomic_store_explicit(&storm.shared->storm, false, memory_order_seq_cst);
}

static void all_volleys(void)
{
	while (!is_over()) {
		for (unsigned i = 0; i < VOLLEYS && !is_over(); i++) {
			live_until(now_ns() + CALM_NS);
			volley();
		}
		if (!failed())
			quiet_point();
	}
}

/* ---- beginning and end ---- */

static void set_up(void)
{
	char *slash;

	storm.shared = mmap(NULL, sizeof(struct shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	ssize_t n = readlink("/proc/self/exe", storm.programs, sizeof(storm.programs) - 1);
	snprintf(storm.directory, sizeof(storm.directory), "/tmp/resc-storm-XXXXXX");
	if (storm.shared == MAP_FAILED || n < 0 || mkdtemp(storm.directory) == NULL) {
		fprintf(stderr, "storm: %s\n", strerror(errno));
		exit(2);
	}
	/* BUILD/tests/soak/storm */
	storm.programs[n] = '\0';
	for (unsigned i = 0; i < 3 && (slash = strrchr(storm.programs, '/')) != NULL; i++)
		*slash = '\0';
	snprintf(storm.instance, sizeof(storm.instance), "storm-%d", (int)getpid());
	/* Orphans of killed workers come to us. */
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	for (uint32_t i = 0; i < WORKERS_MAX; i++)
		child_fds[i] = -1;
	dice = storm.seed;
	started_ns = now_ns();
}

static bool all_workers_are_gone(void)
{
	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		if ((atomic_load_explicit(&storm.shared->actors[i].phase, memory_order_seq_cst) & 0xff) != ACTOR_FREE)
			return false;
	return true;
}

static bool rescd_is_gone(void)
{
	return host.rescd <= 0;
}

static unsigned open_descriptors(void)
{
	DIR *directory = opendir("/proc/self/fd");
	unsigned n = 0;

	while (directory != NULL && readdir(directory) != NULL)
		n++;
	if (directory != NULL)
		closedir(directory);
	return n;
}

static void remove_files(const char *directory, const char *prefix)
{
	DIR *d = opendir(directory);
	const struct dirent *entry;
	char path[512];

	while (d != NULL && (entry = readdir(d)) != NULL) {
		snprintf(path, sizeof(path), "%s/%.255s", directory, entry->d_name);
		if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0 && entry->d_name[0] != '.')
			unlink(path);
	}
	if (d != NULL)
		closedir(d);
}

/* Everybody goes home, and nothing is left. */
static void wind_up(void)
{
	char path[MAP_PATH_SIZE];

	ending = true;
	atomic_store_explicit(&storm.shared->end, true, memory_order_seq_cst);
	wait_for(all_workers_are_gone, "all workers end");
	end_rescd(SIGTERM);
	wait_for(rescd_is_gone, "rescd ends");
	if (!no_former_segments())
		complain("a former segment is left in /dev/shm");
	map_path(path, storm.instance, 0);
	if (unlink(path) != 0)
		complain("%s: %s", path, strerror(errno));
	snprintf(path, sizeof(path), "%s/control.sock", storm.directory);
	if (access(path, F_OK) == 0)
		complain("%s is left", path);
}

static void copy_file(const char *from, const char *to)
{
	char buffer[65536];
	int in = open(from, O_RDONLY | O_CLOEXEC), out = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	ssize_t n;

	while (in >= 0 && out >= 0 && (n = read(in, buffer, sizeof(buffer))) > 0)
		if (write(out, buffer, (size_t)n) != n)
			break;
	if (in >= 0)
		close(in);
	if (out >= 0)
		close(out);
}

/* What is needed to find out why: the segments as they are, and what happened last. */
static void keep_evidence(void)
{
	char from[400], to[400];
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;

	while (directory != NULL && (entry = readdir(directory)) != NULL) {
		if (strncmp(entry->d_name, SEGMENT_PREFIX, strlen(SEGMENT_PREFIX)) != 0 || strstr(entry->d_name, storm.instance) == NULL)
			continue;
		snprintf(from, sizeof(from), "%s%.255s", SEGMENT_DIR, entry->d_name);
		snprintf(to, sizeof(to), "%s/%.255s", storm.directory, entry->d_name);
		copy_file(from, to);
	}
	if (directory != NULL)
		closedir(directory);
	snprintf(to, sizeof(to), "%s/happened", storm.directory);
	FILE *f = fopen(to, "w");
	for (uint64_t i = history_next > HAPPENED ? history_next - HAPPENED : 0; f != NULL && i < history_next; i++)
		fprintf(f, "%s\n", history[i % HAPPENED]);
	if (f != NULL)
		fclose(f);
}

/* By their numbers, which are still theirs: nobody has waited for them. */
static void kill_everybody(void)
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

static int give_up(void)
{
	keep_evidence();
	kill_everybody();
	printf("\nstorm: %s\nstorm: seed %llu, after %llu kills; the segment, the log of rescd and what happened last are in %s\n",
	       storm.shared->complaint, (unsigned long long)storm.seed, (unsigned long long)report.kills, storm.directory);
	return 1;
}

/* ---- main ---- */

static error_t parse(int key, char *arg, struct argp_state *state)
{
	char *rest = arg;
	unsigned long long number = arg == NULL ? 0 : strtoull(arg, &rest, 10);

	if (arg != NULL && (*rest != '\0' || rest == arg))
		argp_error(state, "\"%s\" is not a number", arg);
	switch (key) {
	case 's':
		storm.seed = number;
		return 0;
	case 'k':
		storm.kills = (uint32_t)number;
		return 0;
	case 'w':
		if (number < 2 || number > WORKERS_MAX)
			argp_error(state, "between 2 and %u workers", WORKERS_MAX);
		storm.workers = (uint32_t)number;
		return 0;
	case 't':
		storm.seconds = (uint32_t)number;
		return 0;
	case 'j':
		storm.json = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option options[] = {
        {"seed", 's', "N", 0, "Replay this schedule; by default another one each time", 0},
        {"kills", 'k', "N", 0, "End after so many SIGKILLs (10000); 0: no end", 0},
        {"workers", 'w', "N", 0, "Workers (16)", 0},
        {"seconds", 't', "N", 0, "End after so many seconds", 0},
        {"json", 'j', NULL, 0, "The report as one JSON document", 0},
        {NULL, 0, NULL, 0, NULL, 0},
};

int main(int argc, char **argv)
{
	static const struct argp argp = {options, parse, NULL, "Kills workers, rescd and resctl under load, and compares the accounts.",
	                                 NULL,    NULL,  NULL};

	storm.seed = now_ns() / 1000 % 1000000;
	argp_parse(&argp, argc, argv, 0, NULL, NULL);
	set_up();
	if (!storm.json)
		printf("storm: seed %llu\n", (unsigned long long)storm.seed);
	fflush(stdout);
	sigprocmask(SIG_BLOCK, endings(), NULL);
	unsigned descriptors = open_descriptors();
	host_configure(&host);
	host_limits_are_in_force(&host);
	host_start(&host);
	wait_for(rescd_is_ready, "rescd is ready");
	for (uint32_t i = 0; i < storm.workers; i++)
		spawn(i);
	all_volleys();
	if (!failed())
		wind_up();
	if (reader.base != NULL)
		map_close(&reader);
	if (!failed() && open_descriptors() != descriptors)
		complain("descriptors of the driver were opened and not closed");
	if (failed())
		return give_up();
	remove_files(storm.directory, "");
	rmdir(storm.directory);
	report_print(&report, doctors_word);
	return 0;
}
