/* SPDX-License-Identifier: MIT */
/* Injected faults: exact in their share, always over by themselves, only where the policy allows them, and dead setters leave nothing. */
#include "injection.h"

#include <errno.h>

#include "event.h"
#include "move.h"
#include "note.h"
#include "scene.h"
#include "worker.h"

static const struct injection half = {.fail_ppm = 500000};

static struct policy allowing(uint64_t timeout_ms)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_INJECTION | POLICY_TIMEOUT;
	p.flags &= ~(uint64_t)POLICY_BREAKER;
	p.timeout_attempt_ms = timeout_ms;
	return p;
}

static void set_up(void)
{
	const struct policy p = allowing(0);

	scene_open(&p);
}

static struct inspect_injection injection(void)
{
	return named_look(&n).injection;
}

static int inject(const struct injection *i, uint64_t for_ms)
{
	return injection_set(&n.map, n.index, i, for_ms, "game day");
}

static unsigned count_events(enum event_kind kind, struct event *last)
{
	static struct event events[64];
	size_t count = event_read(&n.map, 0, events, 64);
	unsigned found = 0;

	for (size_t i = 0; i < count; i++)
		if (events[i].kind == kind) {
			*last = events[i];
			found++;
		}
	return found;
}

/* What resc_enter says; an admitted call is left as ok. */
static int call(void)
{
	resc_ticket ticket;
	int r = resc_enter(pay, NULL, &ticket);

	if (r == 0)
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	else if (r == RESC_E_INJECTED || r == RESC_E_INJECTED_TIMEOUT)
		ck_assert_int_eq(ticket.retry_after_ms, -1);
	return r;
}

static unsigned injected_of(unsigned calls)
{
	unsigned injected = 0;

	for (unsigned i = 0; i < calls; i++)
		injected += call() == RESC_E_INJECTED;
	return injected;
}

static void accounts_are(uint64_t admitted, uint64_t ok, uint64_t fail, uint64_t timeout)
{
	struct resc_counters c;

	ck_assert_int_eq(resc_counters(pay, &c), 0);
	ck_assert_uint_eq(c.enters, admitted);
	ck_assert_uint_eq(c.admitted, admitted);
	ck_assert_uint_eq(c.ended_ok, ok);
	ck_assert_uint_eq(c.ended_fail, fail);
	ck_assert_uint_eq(c.ended_timeout, timeout);
	ck_assert_uint_eq(named_look(&n).in_flight, 0);
}

/* ---- the share ---- */

START_TEST(of_any_run_of_calls_exactly_the_share)
{
	static const struct {
		uint32_t ppm;
		unsigned run;
	} shares[] = {{200000, 5}, {200000, 1000}, {500000, 2}, {333000, 1000}, {1, 1000000}, {1000000, 1}, {125000, 8}, {0, 1000}};
	static const uint32_t phases[] = {0, 500000};

	for (size_t s = 0; s < sizeof shares / sizeof shares[0]; s++)
		for (size_t p = 0; p < 2; p++)
			for (uint64_t first = 999990; first < 1000010; first += 3) {
				uint64_t fell = 0;
				for (uint64_t i = 0; i < shares[s].run; i++)
					fell += injection_falls(first + i, shares[s].ppm, phases[p]);
				ck_assert_uint_eq(fell, (uint64_t)shares[s].run * shares[s].ppm / 1000000);
			}
}
END_TEST

START_TEST(calls_fail_as_the_dependency_would)
{
	const struct injection fifth = {.fail_ppm = 200000};
	struct resc_counters c;

	ck_assert_uint_eq(injected_of(100), 0);
	ck_assert_int_eq(inject(&fifth, 60000), 0);
	ck_assert_uint_eq(injected_of(1000), 200);
	accounts_are(1100, 900, 200, 0);
	ck_assert_int_eq(resc_counters(pay, &c), 0);
	ck_assert_uint_eq(c.injected_failures, 200);
	ck_assert_uint_eq(c.injected_delays, 0);
}
END_TEST

START_TEST(the_breaker_learns_from_injected_failures)
{
	struct policy p = allowing(0);
	const struct injection all = {.fail_ppm = 1000000};

	p.flags |= POLICY_BREAKER;
	p.consecutive = 3;
	use(p);
	ck_assert_int_eq(inject(&all, 60000), 0);
	ck_assert_uint_eq(injected_of(3), 3);
	ck_assert_int_eq(call(), RESC_E_OPEN);
	/* A probe meets it as well. */
	later(5000);
	ck_assert_int_eq(call(), RESC_E_INJECTED);
	ck_assert_int_eq(call(), RESC_E_OPEN);
	ck_assert_uint_eq(named_look(&n).counters.probes, 1);
}
END_TEST

static unsigned attempts;
static enum resc_outcome attempt(void *arg, int64_t timeout_ms, unsigned number)
{
	(void)arg;
	(void)timeout_ms;
	(void)number;
	attempts++;
	return RESC_OK;
}

START_TEST(resc_run_goes_on_as_after_a_failed_attempt)
{
	struct policy p = allowing(0);
	int last = -1;

	p.flags |= POLICY_RETRY;
	p.backoff = BACKOFF_NONE;
	p.attempts = 2;
	use(p);
	ck_assert_int_eq(inject(&half, 60000), 0);
	attempts = 0;
	ck_assert_int_eq(resc_run(pay, attempt, NULL, NULL, &last), 0); /* number 0: not injected */
	ck_assert_int_eq(resc_run(pay, attempt, NULL, NULL, &last), 0); /* 1 is, and 2 is its retry */
	ck_assert_uint_eq(attempts, 2);
	ck_assert_int_eq(last, RESC_OK);
	accounts_are(3, 2, 1, 0);
	ck_assert_uint_eq(named_look(&n).counters.retries, 1);
	ck_assert_int_eq(inject(&(struct injection){.fail_ppm = 1000000}, 60000), 0);
	ck_assert_int_eq(resc_run(pay, attempt, NULL, NULL, &last), RESC_E_ATTEMPTS);
	ck_assert_int_eq(last, RESC_FAIL);
	ck_assert_uint_eq(attempts, 2);
}
END_TEST

/* ---- latency: the clock is moved by another process while the call sleeps ---- */

static pid_t clock_runs(void)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	for (;;) {
		atomic_fetch_add_explicit(&n.map.live->clock_ns, 5000000, memory_order_relaxed);
		usleep(1000);
	}
}

static void clock_stops(pid_t pid)
{
	kill(pid, SIGKILL);
	fixture_wait(pid);
}

START_TEST(a_slowed_call_has_less_time_left)
{
	const struct injection slow = {.share_ppm = 1000000, .latency_ms = 300};
	resc_ticket ticket;

	use(allowing(5000));
	ck_assert_int_eq(inject(&slow, 60000), 0);
	pid_t pid = clock_runs();
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	clock_stops(pid);
	ck_assert_int_le(ticket.timeout_ms, 4700);
	ck_assert_int_ge(ticket.timeout_ms, 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	accounts_are(1, 1, 0, 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.injected_delays, 1);
	ck_assert_uint_eq(r.counters.injected_failures, 0);
	ck_assert_uint_eq(r.latency.count, 1);
	ck_assert_uint_ge(r.latency.sum_us, 300000);
}
END_TEST

START_TEST(a_latency_that_reaches_the_timeout_is_a_timeout)
{
	const struct injection slow = {.share_ppm = 1000000, .latency_ms = 300};
	resc_options by_deadline = RESC_OPTIONS_INIT;
	resc_ticket ticket;

	use(allowing(200));
	ck_assert_int_eq(inject(&slow, 60000), 0);
	pid_t pid = clock_runs();
	ck_assert_int_eq(call(), RESC_E_INJECTED_TIMEOUT);
	use(allowing(0));
	by_deadline.deadline_ns = resc_deadline_after_ms(100);
	int r = resc_enter(pay, &by_deadline, &ticket);
	clock_stops(pid);
	ck_assert_int_eq(r, RESC_E_INJECTED_TIMEOUT);
	accounts_are(2, 0, 0, 2);
}
END_TEST

START_TEST(slow_first_and_then_a_failure)
{
	const struct injection both = {.fail_ppm = 1000000, .share_ppm = 1000000, .latency_ms = 100};

	ck_assert_int_eq(inject(&both, 60000), 0);
	pid_t pid = clock_runs();
	ck_assert_int_eq(call(), RESC_E_INJECTED);
	clock_stops(pid);
	accounts_are(1, 0, 1, 0);
	ck_assert_uint_ge(named_look(&n).latency.sum_us, 100000);
}
END_TEST

START_TEST(who_sleeps_is_woken_when_it_is_stopped)
{
	const struct injection slow = {.share_ppm = 1000000, .latency_ms = 60000};

	ck_assert_int_eq(inject(&slow, 60000), 0);
	pid_t pid = fork();
	if (pid == 0) {
		while (named_look(&n).counters.injected_delays == 0)
			usleep(1000);
		_exit(injection_stop(&n.map, n.index, "enough") == 0 ? 0 : 1);
	}
	ck_assert_int_eq(call(), 0); /* the clock stands: it would sleep for ever */
	ck_assert_int_eq(fixture_wait(pid), 0);
}
END_TEST

START_TEST(who_was_to_fail_after_a_wait_goes_on_when_it_is_over)
{
	const struct injection both = {.fail_ppm = 1000000, .share_ppm = 1000000, .latency_ms = 60000};

	for (int stopped = 0; stopped < 2; stopped++) {
		uint64_t waiting = named_look(&n).counters.injected_delays + 1;

		ck_assert_int_eq(inject(&both, 30000), 0);
		pid_t pid = fork();
		if (pid == 0) {
			while (named_look(&n).counters.injected_delays < waiting)
				usleep(1000);
			if (stopped == 0)
				later(30000);
			_exit(stopped == 0 || injection_stop(&n.map, n.index, "enough") == 0 ? 0 : 1);
		}
		ck_assert_int_eq(call(), 0);
		ck_assert_int_eq(fixture_wait(pid), 0);
	}
	accounts_are(2, 2, 0, 0);
}
END_TEST

/* ---- its end ---- */

START_TEST(it_says_what_and_why_and_until_when)
{
	const struct injection i = {.fail_ppm = 125000, .share_ppm = 500000, .latency_ms = 300};
	struct event event;

	ck_assert_int_eq(inject(&i, 60000), 0);
	struct inspect_injection in = injection();
	ck_assert(in.on);
	ck_assert_mem_eq(&in.what, &i, sizeof i);
	ck_assert_uint_eq(in.until_ms, 61000);
	ck_assert_uint_eq(in.set_ms, 1000);
	ck_assert_uint_eq(in.uid, getuid());
	ck_assert_str_eq(in.text, "game day");
	ck_assert_uint_eq(count_events(EVENT_INJECTED, &event), 1);
	ck_assert_uint_eq(setting_fail_ppm(event.value[0]), 125000);
	ck_assert_uint_eq(setting_share_ppm(event.value[0]), 500000);
	ck_assert_uint_eq(setting_latency_ms(event.value[0]), 300);
	ck_assert_uint_eq(event.value[1], 60000);
	ck_assert_str_eq(event.text, "game day");
}
END_TEST

START_TEST(it_is_over_by_itself_and_said_once)
{
	struct event event;

	ck_assert_int_eq(inject(&half, 60000), 0);
	at(60999);
	ck_assert(injection().on);
	ck_assert_uint_eq(injected_of(10), 5);
	at(61000);
	ck_assert(!injection().on); /* a reader moves nothing */
	ck_assert(injection_is_on(fixture_load(&n.state->injection)));
	ck_assert_uint_eq(injected_of(10), 0);
	ck_assert(!injection_is_on(fixture_load(&n.state->injection)));
	injection_expire(&n.map, n.index, 0, 61000);
	ck_assert_uint_eq(count_events(EVENT_INJECTION_ENDED, &event), 1);
	ck_assert_uint_eq(event.value[1], INJECTION_EXPIRED);
	ck_assert_str_eq(event.text, "game day");
	ck_assert_int_eq(injection_stop(&n.map, n.index, ""), -ESRCH);
}
END_TEST

START_TEST(stopped_at_once)
{
	struct event event;

	ck_assert_int_eq(inject(&half, 60000), 0);
	ck_assert_int_eq(injection_stop(&n.map, n.index, "enough"), 0);
	ck_assert_uint_eq(injected_of(10), 0);
	ck_assert_uint_eq(count_events(EVENT_INJECTION_ENDED, &event), 1);
	ck_assert_uint_eq(event.value[1], INJECTION_STOPPED);
	ck_assert_str_eq(event.text, "enough");
}
END_TEST

START_TEST(the_newest_counts_with_its_own_setting)
{
	const struct injection all = {.fail_ppm = 1000000};

	ck_assert_int_eq(inject(&half, 60000), 0);
	ck_assert_int_eq(inject(&all, 30000), 0);
	ck_assert_uint_eq(injection().until_ms, 31000);
	ck_assert_uint_eq(injected_of(10), 10);
	ck_assert_int_eq(inject(&half, 60000), 0);
	ck_assert_uint_eq(injected_of(10), 5);
}
END_TEST

START_TEST(what_the_policy_does_not_allow_is_not_injected)
{
	struct policy p = allowing(0);
	struct event event;

	ck_assert_int_eq(inject(&half, 60000), 0);
	p.flags &= ~(uint64_t)POLICY_INJECTION;
	use(p);
	/* At once, with the word still there. */
	ck_assert(injection_is_on(fixture_load(&n.state->injection)));
	ck_assert(!injection().on);
	ck_assert_uint_eq(injected_of(10), 0);
	ck_assert_int_eq(inject(&half, 60000), -EPERM);
	injection_forbid(&n.map, n.index);
	injection_forbid(&n.map, n.index);
	ck_assert_uint_eq(count_events(EVENT_INJECTION_ENDED, &event), 1);
	ck_assert_uint_eq(event.value[1], INJECTION_FORBIDDEN);
	p.flags |= POLICY_INJECTION;
	use(p);
	ck_assert_uint_eq(injected_of(10), 0);
}
END_TEST

START_TEST(out_of_range_is_refused)
{
	ck_assert_int_eq(inject(&half, 0), -EINVAL);
	ck_assert_int_eq(inject(&half, INJECTION_MOST_MS + 1), -EINVAL);
	ck_assert_int_eq(inject(&half, INJECTION_MOST_MS), 0);
	ck_assert_int_eq(inject(&(struct injection){.fail_ppm = 1000001}, 1000), -EINVAL);
	ck_assert_int_eq(inject(&(struct injection){.share_ppm = 1000000}, 1000), -EINVAL);
	ck_assert_int_eq(inject(&(struct injection){.latency_ms = 100}, 1000), -EINVAL);
	ck_assert_int_eq(inject(&(struct injection){.share_ppm = 1, .latency_ms = INJECTION_LATENCY_MOST_MS + 1}, 1000), -EINVAL);
	ck_assert_int_eq(injection_set(&n.map, 3, &half, 1000, ""), -ENOENT);
}
END_TEST

START_TEST(an_end_that_is_too_far_away_is_none)
{
	ck_assert_int_eq(inject(&half, 60000), 0);
	uint64_t w = fixture_load(&n.state->injection);
	fixture_store(&n.state->injection, injection_make(WORD_LIVE, true, injection_serial(w), TIME_MASK));
	ck_assert(!injection().on);
	ck_assert_uint_eq(injected_of(10), 0);
	ck_assert(!injection_is_on(fixture_load(&n.state->injection)));
}
END_TEST

START_TEST(a_setting_of_another_is_not_believed)
{
	ck_assert_int_eq(inject(&half, 60000), 0);
	fixture_store(&n.state->injection_setting[1], setting_make(7, 1000000, 0, 0));
	ck_assert(!injection().on);
	ck_assert_uint_eq(injected_of(10), 0);
}
END_TEST

/* ---- deaths ---- */

static int die_at(const char *point, bool setting)
{
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set(point);
		if (setting)
			injection_set(&n.map, n.index, &half, 60000, "of the dead");
		else
			injection_stop(&n.map, n.index, "of the dead");
		_exit(0);
	}
	return fixture_wait(pid);
}

START_TEST(F7_death_of_a_setter_before_the_word)
{
	static const char *const points[] = {"note.claimed=kill", "injection.claimed=kill", "injection.setting=kill",
	                                     "injection.text=kill"};
	const struct injection all = {.fail_ppm = 1000000};

	for (size_t i = 0; i < 4; i++) {
		ck_assert_int_eq(inject(&all, 60000), 0);
		ck_assert_int_eq(die_at(points[i], true), -SIGKILL);
		ck_assert_uint_eq(injection().what.fail_ppm, 1000000);
		ck_assert_str_eq(injection().text, "game day");
		ck_assert_uint_eq(injected_of(4), 4);
		ck_assert_int_eq(injection_set(&n.map, n.index, &half, 60000, "of the living"), 0);
		ck_assert_uint_eq(injection().what.fail_ppm, 500000);
		ck_assert_str_eq(injection().text, "of the living");
	}
}
END_TEST

START_TEST(F7_death_of_a_setter_after_the_word)
{
	ck_assert_int_eq(die_at("injection.set=kill", true), -SIGKILL);
	ck_assert_str_eq(injection().text, "of the dead");
	ck_assert_uint_eq(injected_of(4), 2);
}
END_TEST

START_TEST(F7_death_of_who_ends_it)
{
	ck_assert_int_eq(inject(&half, 60000), 0);
	ck_assert_int_eq(die_at("injection.ending=kill", false), -SIGKILL);
	ck_assert(injection().on);
	ck_assert_int_eq(die_at("injection.gone=kill", false), -SIGKILL);
	ck_assert(!injection().on);
	ck_assert_int_eq(injection_stop(&n.map, n.index, ""), -ESRCH);
}
END_TEST

/* A setter who was stopped with his claim, and goes on after another one has taken his slot over, changes nothing. */
START_TEST(who_lost_his_slot_does_not_change_the_setting)
{
	const struct injection all = {.fail_ppm = 1000000};
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set("injection.claimed@1=stop");
		_exit(injection_set(&n.map, n.index, &all, 60000, "late") == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	ck_assert_int_eq(inject(&half, 60000), 0);
	uint64_t setting = fixture_load(&n.state->injection_setting[1]);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0); /* he has begun again, as the next one */
	ck_assert_uint_eq(fixture_load(&n.state->injection_setting[1]), setting);
	ck_assert_uint_eq(injection().what.fail_ppm, 1000000);
	ck_assert_str_eq(injection().text, "late");
}
END_TEST

static pid_t setter(const char *points, const struct injection *i, const char *text)
{
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set(points);
		_exit(injection_set(&n.map, n.index, i, 60000, text) == 0 ? 0 : 1);
	}
	return pid;
}

static pid_t stopped_setter(const char *points, const struct injection *i, const char *text)
{
	int status;
	pid_t pid = setter(points, i, text);

	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	return pid;
}

static int goes_on(pid_t pid)
{
	kill(pid, SIGCONT);
	return fixture_wait(pid);
}

static const struct injection every = {.fail_ppm = 1000000};
/* Before the word is marked, and after. */
static const char *const late_points[] = {"note.claimed@1=stop,injection.setting=kill", "injection.claimed@1=stop,injection.setting=kill"};

/* His setting was in its place; another one put his own there, and died. */
START_TEST(who_was_overtaken_does_not_set_what_another_wanted)
{
	pid_t slow = stopped_setter("injection.text@1=stop", &half, "slow");

	ck_assert_int_eq(fixture_wait(setter("injection.setting=kill", &every, "dead")), -SIGKILL);
	ck_assert_int_eq(goes_on(slow), 0);
	ck_assert(injection().on);
	ck_assert_uint_eq(injection().what.fail_ppm, 500000);
	ck_assert_str_eq(injection().text, "slow");
}
END_TEST

/* He has the place of one whose setting is there, and who then was the first to set the word. */
START_TEST(who_comes_too_late_leaves_what_is_in_force_alone)
{
	for (size_t i = 0; i < 2; i++) {
		pid_t first = stopped_setter("injection.text@1=stop", &half, "first");
		pid_t late = stopped_setter(late_points[i], &every, "late");

		ck_assert_int_eq(goes_on(first), 0);
		ck_assert_int_eq(goes_on(late), -SIGKILL);
		ck_assert(injection().on);
		ck_assert_uint_eq(injection().what.fail_ppm, 500000);
		ck_assert_str_eq(injection().text, "first");
	}
}
END_TEST

/* Somebody who is dead wanted just what the one wants who is the first to set the word. */
START_TEST(the_same_setting_for_the_second_time_is_not_taken_for_the_first)
{
	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(fixture_wait(setter("injection.setting=kill", &half, "dead")), -SIGKILL);
		pid_t late = stopped_setter(late_points[i], &every, "late");
		ck_assert_int_eq(inject(&half, 60000), 0);
		ck_assert_int_eq(goes_on(late), -SIGKILL);
		ck_assert(injection().on);
		ck_assert_uint_eq(injection().what.fail_ppm, 500000);
		ck_assert_str_eq(injection().text, "game day");
	}
}
END_TEST

/* What many left behind who died takes nothing from those who come later, nor from what is in force but some milliseconds. */
START_TEST(F7_death_of_many_setters)
{
	ck_assert_int_eq(inject(&half, 60000), 0);
	uint64_t serial = injection_serial(fixture_load(&n.state->injection));
	for (unsigned i = 1; i <= 9; i++) {
		ck_assert_int_eq(fixture_wait(setter("injection.setting=kill", &every, "dead")), -SIGKILL);
		ck_assert_uint_eq(injection().what.fail_ppm, 500000);
		ck_assert_str_eq(injection().text, "game day");
		ck_assert_uint_eq(injection().until_ms, 61000 - i);
		ck_assert_uint_eq(injection_serial(fixture_load(&n.state->injection)), serial);
	}
	ck_assert_int_eq(injection_stop(&n.map, n.index, "enough"), 0);
	ck_assert_int_eq(fixture_wait(setter("injection.setting=kill", &every, "dead")), -SIGKILL);
	ck_assert(!injection().on);
	ck_assert_int_eq(injection_stop(&n.map, n.index, ""), -ESRCH);
	for (unsigned i = 0; i < 20; i++) {
		ck_assert_int_eq(inject(i % 2 == 0 ? &half : &every, 60000), 0);
		ck_assert_uint_eq(injection().what.fail_ppm, i % 2 == 0 ? 500000 : 1000000);
		ck_assert_uint_eq(injection().until_ms, 61000);
		ck_assert_str_eq(injection().text, "game day");
	}
}
END_TEST

/* Between a word and its event others may have set two more, the second one in the place of the first. */
START_TEST(an_event_tells_its_own_setting)
{
	static const char *const points[] = {"injection.set=stop", "injection.gone=stop"};
	const struct injection all = {.fail_ppm = 1000000};
	static struct event events[64];

	for (size_t i = 0; i < 2; i++) {
		int status;
		pid_t pid = fork();

		if (pid == 0) {
			failpoint_set(points[i]);
			_exit(i == 0 ? injection_set(&n.map, n.index, &half, 60000, "slow") : injection_stop(&n.map, n.index, "slow"));
		}
		ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
		ck_assert_int_eq(inject(&all, 60000), 0);
		ck_assert_int_eq(inject(&all, 60000), 0);
		kill(pid, SIGCONT);
		fixture_wait(pid);
		size_t count = event_read(&n.map, 0, events, 64);
		ck_assert_str_eq(events[count - 1].text, "slow");
		ck_assert_uint_eq(injection_of_event(&events[count - 1]).fail_ppm, 500000);
		ck_assert_int_eq(inject(&half, 60000), 0);
	}
}
END_TEST

/* A call that was drawn is counted; its owner's death gives its permit back, like any other's. */
START_TEST(F7_death_while_an_injected_call_sleeps)
{
	const struct injection slow = {.share_ppm = 1000000, .latency_ms = 60000};

	ck_assert_int_eq(inject(&slow, 60000), 0);
	pid_t pid = fork();
	if (pid == 0) {
		call();
		_exit(0);
	}
	while (named_look(&n).counters.injected_delays == 0)
		usleep(1000);
	kill(pid, SIGKILL);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_int_eq(injection_stop(&n.map, n.index, ""), 0);
	ck_assert_uint_eq(worker_sweep(&n.map, 0), 1);
	ck_assert_uint_eq(named_look(&n).in_flight, 0);
	ck_assert_uint_eq(named_look(&n).counters.injected_delays, 1);
}
END_TEST

/* ---- another segment ---- */

static struct named successor_of(void)
{
	struct named successor = n;
	struct resc_error err;

	ck_assert_int_eq(map_create(&successor.map, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	atomic_store(&successor.map.live->clock_ns, atomic_load(&n.map.live->clock_ns));
	record_publish_moved(&successor.map, n.index, "payments", &n.policy, false);
	successor.state = map_state(&successor.map, n.index);
	return successor;
}

START_TEST(it_moves_with_setting_text_and_numbers)
{
	const struct injection i = {.fail_ppm = 200000, .share_ppm = 100000, .latency_ms = 9};

	ck_assert_int_eq(inject(&i, 60000), 0);
	fixture_store(&n.state->injected, 17);
	struct named successor = successor_of();
	move_resource(&n.map, &successor.map, n.index);
	struct inspect_injection in = named_look(&successor).injection;
	ck_assert(in.on);
	ck_assert_mem_eq(&in.what, &i, sizeof i);
	ck_assert_str_eq(in.text, "game day");
	ck_assert_uint_eq(fixture_load(&successor.state->injected), 17);
	ck_assert_int_eq(injection_stop(&n.map, n.index, ""), -ESTALE);
	ck_assert_int_eq(injection_stop(&successor.map, n.index, ""), 0);
	map_close(&successor.map);
}
END_TEST

/* A mover dies before it has marked the old word, and what is injected is replaced before another one goes on. */
START_TEST(F7_a_mover_that_dies_leaves_no_old_setting)
{
	const struct injection all = {.fail_ppm = 1000000};
	struct injection none = {.share_ppm = 1, .latency_ms = 1};

	ck_assert_int_eq(inject(&none, 60000), 0);
	ck_assert_int_eq(inject(&none, 60000), 0);
	struct named successor = successor_of();
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("move.prepared@2=kill"); /* the word of the override is first */
		move_resource(&n.map, &successor.map, n.index);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(injection_kind(fixture_load(&successor.state->injection)), WORD_PREPARED);
	ck_assert_int_eq(inject(&all, 60000), 0);
	move_resource(&n.map, &successor.map, n.index);
	ck_assert(named_look(&successor).injection.on);
	ck_assert_uint_eq(named_look(&successor).injection.what.fail_ppm, 1000000);
	map_close(&successor.map);
}
END_TEST

START_TEST(a_segment_of_an_older_format_has_none)
{
	n.map.minor = 1;
	ck_assert_int_eq(inject(&half, 60000), -ENOTSUP);
	ck_assert(!injection().on);
	n.map.minor = SEGMENT_MINOR;
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        of_any_run_of_calls_exactly_the_share,
	        calls_fail_as_the_dependency_would,
	        the_breaker_learns_from_injected_failures,
	        resc_run_goes_on_as_after_a_failed_attempt,
	        a_slowed_call_has_less_time_left,
	        a_latency_that_reaches_the_timeout_is_a_timeout,
	        slow_first_and_then_a_failure,
	        who_sleeps_is_woken_when_it_is_stopped,
	        who_was_to_fail_after_a_wait_goes_on_when_it_is_over,
	        it_says_what_and_why_and_until_when,
	        it_is_over_by_itself_and_said_once,
	        stopped_at_once,
	        the_newest_counts_with_its_own_setting,
	        what_the_policy_does_not_allow_is_not_injected,
	        out_of_range_is_refused,
	        an_end_that_is_too_far_away_is_none,
	        a_setting_of_another_is_not_believed,
	        F7_death_of_a_setter_before_the_word,
	        F7_death_of_a_setter_after_the_word,
	        F7_death_of_who_ends_it,
	        who_lost_his_slot_does_not_change_the_setting,
	        who_was_overtaken_does_not_set_what_another_wanted,
	        who_comes_too_late_leaves_what_is_in_force_alone,
	        the_same_setting_for_the_second_time_is_not_taken_for_the_first,
	        F7_death_of_many_setters,
	        an_event_tells_its_own_setting,
	        F7_death_while_an_injected_call_sleeps,
	        it_moves_with_setting_text_and_numbers,
	        F7_a_mover_that_dies_leaves_no_old_setting,
	        a_segment_of_an_older_format_has_none,
	};

	return NAMED_RUN("injection", tests, set_up, scene_tear_down);
}
