/* SPDX-License-Identifier: MIT */
/* Overrides and resets: what an operator says holds at once, says why, ends once, and no death in the middle leaves a resource stuck. */
#include "override.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "budget.h"
#include "event.h"
#include "failpoint.h"
#include "fixture.h"
#include "inspect.h"
#include "transition.h"

static struct fixture f;
static struct event events[1024];

static void set_up(void)
{
	fixture_open_shared(&f, NULL);
	fixture_at(&f, 1000);
}

static void tear_down(void)
{
	map_close(&f.map);
}

static struct inspect_resource look(void)
{
	struct inspect_resource r;

	ck_assert_int_eq(inspect_resource(&f.map, f.index, &r), 0);
	return r;
}

static unsigned count_events(enum event_kind kind)
{
	size_t count = event_read(&f.map, 0, events, 1024);
	unsigned found = 0;

	for (size_t i = 0; i < count; i++) {
		if (events[i].kind == kind)
			events[found++] = events[i];
	}
	return found;
}

static bool open_breaker(void)
{
	uint64_t b = fixture_load(&f.state->breaker);
	uint64_t now = clock_coarse_ms(&f.map);

	return breaker_transition(&f.map, f.index, b, TAG_OPEN, 0, now + 5000, REASON_CONSECUTIVE, 0, now, 5, 5);
}

/* ---- setting and releasing ---- */

START_TEST(forced_at_once_with_reason_uid_and_end)
{
	uint64_t breaker = fixture_load(&f.state->breaker);

	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 2000, "vendor maintenance"), 0);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_OPEN);
	ck_assert_uint_eq(r.override.until_ms, 3000);
	ck_assert_uint_eq(r.override.set_ms, 1000);
	ck_assert_uint_eq(r.override.uid, getuid());
	ck_assert_str_eq(r.override.text, "vendor maintenance");
	ck_assert_uint_eq(fixture_load(&f.state->breaker), breaker); /* beside the breaker, not in it */
	ck_assert_uint_eq(count_events(EVENT_FORCED), 1);
	ck_assert_str_eq(events[0].text, "vendor maintenance");
	ck_assert_str_eq(events[0].resource, "payments");
	ck_assert_uint_eq(events[0].uid, getuid());
	ck_assert_uint_eq(events[0].value[0], 2000);
	ck_assert_uint_eq(events[0].value[1], OVERRIDE_OPEN);
}
END_TEST

START_TEST(the_newest_override_counts_with_its_own_text)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 2000, "first"), 0);
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_DISABLED, 0, "second"), 0);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_DISABLED);
	ck_assert_uint_eq(r.override.until_ms, 0);
	ck_assert_str_eq(r.override.text, "second");
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_CLOSED, 1, NULL), 0);
	r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_CLOSED);
	ck_assert_str_eq(r.override.text, "");
}
END_TEST

START_TEST(released_is_closed_with_a_fresh_window)
{
	ck_assert(open_breaker());
	uint16_t generation = breaker_generation(fixture_load(&f.state->breaker));
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, "why"), 0);
	fixture_at(&f, 9000);
	ck_assert_int_eq(override_release(&f.map, f.index, "all well"), 0);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_NONE);
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.generation, generation + 1);
	ck_assert_uint_eq(r.since_ms, 9000);
	ck_assert_int_eq(r.reason, REASON_OVERRIDE_OVER);
	ck_assert_uint_eq(r.counters.closed, 1);
	ck_assert_uint_eq(count_events(EVENT_RELEASED), 1);
	ck_assert_str_eq(events[0].text, "all well");
	ck_assert_int_eq(override_release(&f.map, f.index, "again"), -ESRCH);
	ck_assert_uint_eq(count_events(EVENT_RELEASED), 1);
}
END_TEST

START_TEST(expires_by_itself_and_once)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 2000, "vendor maintenance"), 0);
	ck_assert(!override_expire(&f.map, f.index, 1, 2999));
	ck_assert_int_eq(look().override.mode, OVERRIDE_OPEN);
	fixture_at(&f, 3000);
	ck_assert_int_eq(look().override.mode, OVERRIDE_NONE); /* a reader sees none, and moves nothing */
	ck_assert_int_eq(override_mode(fixture_load(&f.state->override)), OVERRIDE_OPEN);
	ck_assert(override_expire(&f.map, f.index, 1, 3000));
	ck_assert(override_expire(&f.map, f.index, 1, 3001));
	ck_assert_uint_eq(count_events(EVENT_EXPIRED), 1);
	ck_assert_str_eq(events[0].text, "vendor maintenance");
	ck_assert_uint_eq(count_events(EVENT_BREAKER), 1);
}
END_TEST

START_TEST(without_an_end_it_does_not_expire)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_CLOSED, 0, ""), 0);
	ck_assert(!override_expire(&f.map, f.index, 1, TIME_MASK));
	ck_assert_int_eq(look().override.mode, OVERRIDE_CLOSED);
}
END_TEST

START_TEST(an_endless_time_saturates)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, UINT64_MAX, ""), 0);
	ck_assert_uint_eq(look().override.until_ms, TIME_MASK);
}
END_TEST

START_TEST(one_that_is_over_cannot_be_released)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 1, ""), 0);
	fixture_at(&f, 1001);
	ck_assert_int_eq(override_release(&f.map, f.index, ""), -ESRCH);
	ck_assert_uint_eq(count_events(EVENT_EXPIRED), 1);
	ck_assert_uint_eq(count_events(EVENT_RELEASED), 0);
}
END_TEST

START_TEST(a_new_one_over_one_that_is_over)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 1, "old"), 0);
	fixture_at(&f, 2000);
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_CLOSED, 100, "new"), 0);
	ck_assert_uint_eq(count_events(EVENT_EXPIRED), 1);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_CLOSED);
	ck_assert_str_eq(r.override.text, "new");
}
END_TEST

START_TEST(serials_wrap)
{
	fixture_store(&f.state->override, override_make(WORD_LIVE, OVERRIDE_NONE, 0xfffff, 0));
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, "wrapped"), 0);
	ck_assert_uint_eq(override_serial(fixture_load(&f.state->override)), 0);
	ck_assert_str_eq(look().override.text, "wrapped");
}
END_TEST

START_TEST(what_is_not_there_is_an_error)
{
	ck_assert_int_eq(override_set(&f.map, f.index + 1, OVERRIDE_OPEN, 0, ""), -ENOENT);
	ck_assert_int_eq(override_set(&f.map, UINT32_MAX, OVERRIDE_OPEN, 0, ""), -ENOENT);
	ck_assert_int_eq(override_release(&f.map, UINT32_MAX, ""), -ENOENT);
	ck_assert_int_eq(override_reset(&f.map, f.index + 1, ""), -ENOENT);
	ck_assert(!override_expire(&f.map, UINT32_MAX, 0, 0));
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_NONE, 0, ""), -EINVAL);
	ck_assert_int_eq(override_set(&f.map, f.index, (enum override_mode)4, 0, ""), -EINVAL);
	fixture_store(&f.state->breaker, 0);
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, ""), -ENOENT);
	ck_assert_uint_eq(event_read(&f.map, 0, events, 10), 0);
}
END_TEST

START_TEST(words_that_have_moved_send_the_caller_on)
{
	uint64_t override = fixture_load(&f.state->override);

	fixture_store(&f.state->override, override_make(WORD_MOVED, OVERRIDE_OPEN, 1, 0));
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, ""), -ESTALE);
	ck_assert_int_eq(override_release(&f.map, f.index, ""), -ESTALE);
	ck_assert(!override_expire(&f.map, f.index, 0, 5000));
	ck_assert_int_eq(look().override.mode, OVERRIDE_NONE);
	fixture_store(&f.state->override, override);
	fixture_store(&f.state->breaker, breaker_make(TAG_MOVED, 0, 1, 0));
	ck_assert_int_eq(override_reset(&f.map, f.index, ""), -ESTALE);
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, ""), -ESTALE);
}
END_TEST

START_TEST(long_texts_are_cut_between_characters)
{
	char text[300];

	for (size_t i = 0; i + 1 < sizeof(text); i += 2)
		memcpy(text + i, "\xc3\xa4", 2);
	text[298] = '\0';
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, text), 0);
	ck_assert_uint_eq(strlen(look().override.text), OVERRIDE_TEXT - 2);
	ck_assert_uint_eq(count_events(EVENT_FORCED), 1);
	ck_assert_uint_eq(strlen(events[0].text), EVENT_TEXT - 2);
	ck_assert_ptr_null(strchr(events[0].text, '?'));
}
END_TEST

/* ---- resetting ---- */

START_TEST(reset_is_closed_fresh_and_full_and_leaves_the_override)
{
	ck_assert(open_breaker());
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_DISABLED, 0, "stay"), 0);
	while (budget_withdraw(&f.map, f.state, &f.policy, RESC_FAIL, 1000) == 0)
		continue;
	ck_assert_int_eq(override_reset(&f.map, f.index, "new start"), 0);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_int_eq(r.reason, REASON_RESET);
	ck_assert_int_eq(r.override.mode, OVERRIDE_DISABLED);
	ck_assert_uint_eq(budget_now(&f.map, f.state, &f.policy, 1000), f.policy.budget_capacity);
	ck_assert_uint_eq(count_events(EVENT_RESET), 1);
	ck_assert_str_eq(events[0].text, "new start");
}
END_TEST

START_TEST(reset_of_a_closed_breaker_is_a_new_generation_but_no_close)
{
	uint16_t generation = breaker_generation(fixture_load(&f.state->breaker));

	ck_assert_int_eq(override_reset(&f.map, f.index, ""), 0);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.generation, generation + 1);
	ck_assert_uint_eq(r.counters.closed, 0);
}
END_TEST

/* ---- deaths between the steps ---- */

enum what { SET, RELEASE, EXPIRE, RESET };

static int die_at(const char *point, enum what what)
{
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set(point);
		if (what == SET)
			override_set(&f.map, f.index, OVERRIDE_OPEN, 5000, "of the dead");
		else if (what == RELEASE)
			override_release(&f.map, f.index, "of the dead");
		else if (what == RESET)
			override_reset(&f.map, f.index, "of the dead");
		else
			override_expire(&f.map, f.index, 0, clock_coarse_ms(&f.map));
		_exit(0);
	}
	return fixture_wait(pid);
}

START_TEST(F7_death_of_a_setter_before_the_word)
{
	static const char *const points[] = {"note.claimed=kill", "override.text=kill"};

	for (size_t i = 0; i < 2; i++) {
		ck_assert_int_eq(die_at(points[i], SET), -SIGKILL);
		ck_assert_int_eq(look().override.mode, OVERRIDE_NONE);
		ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_CLOSED, 0, "of the living"), 0);
		ck_assert_str_eq(look().override.text, "of the living");
		ck_assert_int_eq(override_release(&f.map, f.index, ""), 0);
	}
}
END_TEST

START_TEST(F7_death_of_a_setter_after_the_word)
{
	ck_assert_int_eq(die_at("override.set=kill", SET), -SIGKILL);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_OPEN);
	ck_assert_str_eq(r.override.text, "of the dead");
}
END_TEST

START_TEST(F7_death_between_closing_and_releasing)
{
	ck_assert(open_breaker());
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 0, "why"), 0);
	ck_assert_int_eq(die_at("override.closed=kill", RELEASE), -SIGKILL);
	struct inspect_resource r = look();
	ck_assert_int_eq(r.override.mode, OVERRIDE_OPEN); /* still in force */
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_int_eq(override_release(&f.map, f.index, "again"), 0);
	ck_assert_int_eq(look().override.mode, OVERRIDE_NONE);
	ck_assert_uint_eq(count_events(EVENT_RELEASED), 1);
}
END_TEST

START_TEST(F7_death_between_closing_and_expiring)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 10, "why"), 0);
	fixture_at(&f, 2000);
	ck_assert_int_eq(die_at("override.closed=kill", EXPIRE), -SIGKILL);
	ck_assert(override_expire(&f.map, f.index, 0, 2000));
	ck_assert_uint_eq(count_events(EVENT_EXPIRED), 1);
}
END_TEST

START_TEST(F7_death_of_the_winner_of_a_transition)
{
	ck_assert_int_eq(die_at("transition.won=kill", RESET), -SIGKILL);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.since_ms, 1000); /* from the word */
	ck_assert_int_eq(r.reason, REASON_NONE);
	/* What rescd sees: the record of the last transition is not complete. The next one completes it, and its own. */
	ck_assert_uint_ne(recorded_generation(fixture_load(&f.state->recorded)), r.generation);
	ck_assert_int_eq(override_reset(&f.map, f.index, ""), 0);
	ck_assert_uint_eq(recorded_generation(fixture_load(&f.state->recorded)), look().generation);
	ck_assert_uint_eq(count_events(EVENT_BREAKER), 2);
	ck_assert_int_eq(events[0].reason, REASON_RESET);
}
END_TEST

START_TEST(a_stopped_winner_does_not_cover_the_next_transition)
{
	int status;
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set("transition.won=stop");
		override_reset(&f.map, f.index, "slow");
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	fixture_at(&f, 2000);
	ck_assert(open_breaker());
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.reason, REASON_CONSECUTIVE);
	ck_assert_uint_eq(r.since_ms, 2000);
	ck_assert_uint_eq(recorded_generation(fixture_load(&f.state->recorded)), r.generation);
	ck_assert_uint_eq(count_events(EVENT_BREAKER), 2);
}
END_TEST

START_TEST(a_slow_ender_does_not_close_what_opened_later)
{
	/* It loads the words, and stops before its CAS; others end the override, and the breaker opens by itself. */
	int status;

	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 10, ""), 0);
	fixture_at(&f, 2000);
	pid_t pid = fork();
	if (pid == 0) {
		failpoint_set("override.ending=stop");
		override_expire(&f.map, f.index, 0, 2000);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(override_expire(&f.map, f.index, 0, 2000));
	ck_assert(open_breaker());
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(look().breaker, TAG_OPEN);
	ck_assert_uint_eq(count_events(EVENT_EXPIRED), 1);
}
END_TEST

/* ---- many at once ---- */

#define THREADS 4

static void *expire_now(void *arg)
{
	(void)arg;
	ck_assert(override_expire(&f.map, f.index, 1, clock_coarse_ms(&f.map)));
	return NULL;
}

START_TEST(many_see_the_end_and_one_says_so)
{
	for (unsigned round = 1; round <= 50; round++) {
		pthread_t threads[THREADS];
		ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 10, "round"), 0);
		fixture_at(&f, 1000 + round * 20);
		for (int i = 0; i < THREADS; i++)
			pthread_create(&threads[i], NULL, expire_now, NULL);
		for (int i = 0; i < THREADS; i++)
			pthread_join(threads[i], NULL);
		ck_assert_uint_eq(count_events(EVENT_EXPIRED), round);
	}
}
END_TEST

static void *set_many(void *arg)
{
	char text[32] = "operator 0";
	int done = 0;

	text[9] = (char)('0' + (intptr_t)arg);
	while (done < 20) {
		int r = override_set(&f.map, f.index, (enum override_mode)(1 + (intptr_t)arg % 3), (uint64_t)(intptr_t)arg * 100000, text);
		ck_assert(r == 0 || r == -EBUSY);
		done++;
	}
	return NULL;
}

START_TEST(operators_at_once_leave_a_whole_override)
{
	pthread_t threads[3];

	for (intptr_t i = 0; i < 3; i++)
		pthread_create(&threads[i], NULL, set_many, (void *)(i + 1));
	for (int i = 0; i < 3; i++)
		pthread_join(threads[i], NULL);
	struct inspect_resource r = look();
	/* Text, mode and time are of the same operator. */
	unsigned who = (unsigned)(r.override.text[9] - '0');
	ck_assert_uint_ge(who, 1);
	ck_assert_uint_eq(r.override.mode, 1 + who % 3);
	ck_assert_uint_eq(r.override.until_ms, 1000 + who * 100000);
}
END_TEST

START_TEST(modes_have_names)
{
	ck_assert_str_eq(override_mode_name(OVERRIDE_NONE), "none");
	ck_assert_str_eq(override_mode_name(OVERRIDE_OPEN), "open");
	ck_assert_str_eq(override_mode_name(OVERRIDE_CLOSED), "closed");
	ck_assert_str_eq(override_mode_name(OVERRIDE_DISABLED), "disabled");
	ck_assert_str_eq(override_mode_name((enum override_mode)99), "unknown");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        forced_at_once_with_reason_uid_and_end,
	        the_newest_override_counts_with_its_own_text,
	        released_is_closed_with_a_fresh_window,
	        expires_by_itself_and_once,
	        without_an_end_it_does_not_expire,
	        an_endless_time_saturates,
	        one_that_is_over_cannot_be_released,
	        a_new_one_over_one_that_is_over,
	        serials_wrap,
	        what_is_not_there_is_an_error,
	        words_that_have_moved_send_the_caller_on,
	        long_texts_are_cut_between_characters,
	        reset_is_closed_fresh_and_full_and_leaves_the_override,
	        reset_of_a_closed_breaker_is_a_new_generation_but_no_close,
	        F7_death_of_a_setter_before_the_word,
	        F7_death_of_a_setter_after_the_word,
	        F7_death_between_closing_and_releasing,
	        F7_death_between_closing_and_expiring,
	        F7_death_of_the_winner_of_a_transition,
	        a_stopped_winner_does_not_cover_the_next_transition,
	        a_slow_ender_does_not_close_what_opened_later,
	        many_see_the_end_and_one_says_so,
	        operators_at_once_leave_a_whole_override,
	        modes_have_names,
	};

	return FIXTURE_RUN("override", tests, set_up, tear_down);
}
