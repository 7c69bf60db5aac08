/* SPDX-License-Identifier: MIT */
/*
 * Windows by number of calls, trials that are judged by a rate, and due times that the dependency names: through enter and leave, as
 * workers use them.
 */
#include <pthread.h>

#include "move.h"
#include "scene.h"
#include "window.h"

static struct policy last_calls(uint64_t calls, uint64_t min_calls, uint64_t failure_rate_ppm)
{
	struct policy p;

	policy_private(&p);
	p.window_calls = calls;
	p.min_calls = min_calls;
	p.failure_rate_ppm = failure_rate_ppm;
	p.cooldown_ms = 1000;
	return p;
}

static struct inspect_resource look(void)
{
	return named_look(&n);
}

static unsigned state(void)
{
	return look().breaker;
}

static int call_for(enum resc_outcome outcome, uint64_t took_ms)
{
	resc_ticket ticket;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	later(took_ms);
	return resc_leave(&ticket, outcome);
}

static void calls(unsigned count, enum resc_outcome outcome)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(call_for(outcome, 0), 0);
}

/* A thread that has no shard of its own. */
static void *fail_once(void *arg)
{
	(void)arg;
	ck_assert_int_eq(call_for(RESC_FAIL, 0), 0);
	return NULL;
}

static void another_thread_fails(void)
{
	pthread_t thread;

	ck_assert_int_eq(pthread_create(&thread, NULL, fail_once, NULL), 0);
	pthread_join(thread, NULL);
}

static struct policy last_ms(uint64_t window_ms)
{
	struct policy p;

	policy_private(&p);
	p.window_ms = window_ms;
	p.min_calls = 1000;
	return p;
}

/* ---- ticks of another length ---- */

START_TEST(H6_after_a_longer_window_everybody_is_counted_at_once)
{
	use(last_ms(10000));
	at(3600000);
	calls(1, RESC_FAIL);
	for (unsigned i = 0; i < WINDOW_RING; i++) {
		another_thread_fails();
		later(1000);
	}
	use(last_ms(100000));
	calls(1, RESC_FAIL);
	for (unsigned i = 0; i < 5; i++) {
		another_thread_fails();
		later(10000);
	}
	ck_assert_uint_eq(look().window_failures, 6);
}
END_TEST

START_TEST(H6_no_call_comes_back_when_its_tick_has_the_same_number_again)
{
	use(last_ms(10000));
	at(100000); /* tick 100 */
	calls(1, RESC_FAIL);
	another_thread_fails();
	ck_assert_uint_eq(look().window_failures, 2);
	use(last_ms(100000));
	at(1000000); /* tick 100 */
	ck_assert_uint_eq(look().window_failures, 0);
}
END_TEST

/* ---- the last N calls ---- */

START_TEST(the_window_is_the_last_n_calls_and_no_other)
{
	use(last_calls(10, 10, 500000));
	calls(4, RESC_FAIL);
	calls(6, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED); /* 4 of 10 */
	calls(4, RESC_OK);                      /* pushes the failures out */
	ck_assert_uint_eq(look().window_failures, 0);
	ck_assert_uint_eq(look().window_calls, 10);
	calls(4, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL); /* 5 of 10: equal is enough */
	ck_assert_uint_eq(state(), TAG_OPEN);
	ck_assert_int_eq(look().reason, REASON_FAILURE_RATE);
}
END_TEST

START_TEST(time_does_not_empty_it)
{
	use(last_calls(4, 4, 750000));
	calls(2, RESC_FAIL);
	later(86400000);
	calls(1, RESC_OK);
	ck_assert_uint_eq(look().window_calls, 3);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(min_calls_may_be_reached_by_a_call_that_ends_well)
{
	use(last_calls(100, 10, 500000));
	calls(9, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_OK); /* the tenth */
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(neutral_outcomes_take_no_place)
{
	use(last_calls(4, 4, 500000));
	calls(2, RESC_FAIL);
	calls(50, RESC_IGNORED);
	calls(50, RESC_CANCELLED);
	ck_assert_uint_eq(look().window_calls, 2);
	calls(1, RESC_OK);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(L03_min_calls_above_the_window_means_a_full_window)
{
	use(last_calls(5, 10, 500000));
	ck_assert_uint_eq(look().policy.min_calls, 5);
	calls(4, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

START_TEST(slow_and_failed_are_two_tallies_of_one_call)
{
	struct policy p = last_calls(4, 4, 1000000);

	p.slow_call_ns = 100000000;
	p.slow_rate_ppm = 500000;
	use(p);
	ck_assert_int_eq(call_for(RESC_FAIL, 101), 0);
	ck_assert_int_eq(call_for(RESC_OK, 100), 0); /* not longer: not slow */
	ck_assert_uint_eq(look().window_slow, 1);
	ck_assert_uint_eq(look().window_failures, 1);
	ck_assert_uint_eq(look().window_calls, 2);
	calls(1, RESC_OK);
	ck_assert_int_eq(call_for(RESC_OK, 101), 0);
	ck_assert_uint_eq(state(), TAG_OPEN);
	ck_assert_int_eq(look().reason, REASON_SLOW_RATE);
}
END_TEST

START_TEST(a_transition_empties_it)
{
	use(last_calls(4, 2, 1000000));
	calls(2, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
	later(1000);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_uint_eq(look().window_calls, 0);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(H6_another_size_keeps_the_calls_that_are_there)
{
	use(last_calls(64, 64, 500000));
	calls(6, RESC_OK);
	calls(3, RESC_FAIL);
	use(last_calls(4, 4, 1000000));
	ck_assert_uint_eq(look().window_calls, 4);
	ck_assert_uint_eq(look().window_failures, 3);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
}
END_TEST

/* A writer that was stopped between its number and its place comes back laps later: the newer call stays. */
START_TEST(a_late_writer_does_not_cover_a_newer_call)
{
	use(last_calls(64, 64, 1000000));
	calls(1, RESC_OK);
	word *ring = map_calls(&n.map, map_state(&n.map, n.index));
	uint64_t first = atomic_load(&ring[0]);
	calls(64, RESC_OK);
	uint64_t newer = atomic_load(&ring[0]);
	ck_assert_uint_ne(first, newer);
	atomic_store(&map_state(&n.map, n.index)->calls, 0);
	window_count_call(&n.map, map_state(&n.map, n.index), look().generation, WINDOW_FAIL);
	ck_assert_uint_eq(atomic_load(&ring[0]), newer);
	atomic_store(&map_state(&n.map, n.index)->calls, 65);
	ck_assert_uint_eq(look().window_failures, 0);
	ck_assert_uint_eq(look().window_calls, 64);
}
END_TEST

#define THREADS 4
#define EACH    2000

static void *count_many(void *arg)
{
	for (unsigned i = 0; i < EACH; i++)
		window_count_call(&n.map, map_state(&n.map, n.index), 7, (enum window_category)(uintptr_t)arg);
	return NULL;
}

START_TEST(workers_count_into_one_ring_and_none_is_counted_twice)
{
	pthread_t threads[THREADS];
	uint64_t sums[WINDOW_CATEGORIES];
	struct policy p = last_calls(64, 64, 1000000);

	for (uintptr_t i = 0; i < THREADS; i++)
		ck_assert_int_eq(pthread_create(&threads[i], NULL, count_many, (void *)i), 0);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(atomic_load(&map_state(&n.map, n.index)->calls), THREADS * EACH);
	window_sum(&n.map, map_state(&n.map, n.index), &p, 0, 7, sums);
	ck_assert_uint_eq(sums[0] + sums[1] + sums[2] + sums[3], 64);
}
END_TEST

START_TEST(a_successor_goes_on_with_the_same_calls)
{
	struct segment_dims larger = n.map.dims;
	struct named next;

	use(last_calls(8, 8, 500000));
	calls(5, RESC_OK);
	calls(2, RESC_FAIL);
	larger.calls = 128;
	named_open_with(&next, &larger, &n.policy);
	struct state *old = map_state(&n.map, n.index), *new = map_state(&next.map, next.index);
	atomic_store(&new->breaker, 0);
	atomic_store(&new->override, 0);
	atomic_store(&new->streak, 0);
	atomic_store(&new->tokens, 0);
	move_words(&n.map, old, &next.map, new);
	move_carry(&n.map, old, &next.map, new);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.window_calls, 7);
	ck_assert_uint_eq(r.window_failures, 2);
	ck_assert_uint_eq(atomic_load(&new->calls), 7);
	named_close(&next);
}
END_TEST

START_TEST(H6_a_successor_gets_the_window_as_it_is_now_and_not_older_ticks)
{
	const uint64_t window_ms[] = {10000, 100000, 10000};
	struct policy after = last_ms(window_ms[_i + 1]);
	struct named next = n;
	struct resc_error err;

	use(last_ms(window_ms[_i]));
	at(3600000);
	for (unsigned i = 0; i < WINDOW_RING; i++) {
		another_thread_fails();
		later(window_ms[_i] / 10);
	}
	use(after);
	calls(3, RESC_FAIL);
	later(window_ms[_i + 1] / 10);
	calls(4, RESC_FAIL);
	ck_assert_uint_eq(look().window_failures, 7);
	ck_assert_int_eq(map_create(&next.map, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err), 0);
	record_publish_moved(&next.map, n.index, "payments", &after, false);
	next.state = map_state(&next.map, n.index);
	move_words(&n.map, n.state, &next.map, next.state);
	for (unsigned i = 0; i < 2; i++)
		move_carry(&n.map, n.state, &next.map, next.state);
	ck_assert_uint_eq(named_look(&next).window_failures, 7);
	map_close(&next.map);
}
END_TEST

/* ---- a trial with a rate of its own ---- */

static void open_with(struct policy p)
{
	p.failure_rate_ppm = 0;
	p.consecutive = 1;
	use(p);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_OPEN);
	later(p.cooldown_ms);
}

static struct policy trial(uint64_t probes, uint64_t rate_ppm)
{
	struct policy p = last_calls(100, 100, 0);

	p.probes = probes;
	p.trial_failure_rate_ppm = rate_ppm;
	return p;
}

START_TEST(the_verdict_falls_when_all_results_are_in)
{
	open_with(trial(4, 500000));
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN); /* one failure does not decide */
	calls(2, RESC_OK);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED); /* 1 of 4 */
}
END_TEST

START_TEST(equal_to_the_rate_of_the_trial_opens_again)
{
	open_with(trial(4, 500000));
	calls(2, RESC_FAIL);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_OPEN);
	ck_assert_int_eq(look().reason, REASON_PROBE_FAILED);
	ck_assert_uint_eq(look().reopened, 1);
}
END_TEST

START_TEST(A4_neutral_results_are_not_results_of_the_trial)
{
	open_with(trial(2, 1000000));
	calls(20, RESC_IGNORED);
	calls(1, RESC_FAIL);
	calls(20, RESC_CANCELLED);
	ck_assert_uint_eq(state(), TAG_HALF_OPEN);
	calls(1, RESC_OK);
	ck_assert_uint_eq(state(), TAG_CLOSED);
}
END_TEST

START_TEST(A11_the_slow_rate_judges_a_trial_by_rate_too)
{
	struct policy p = trial(2, 1000000);

	p.slow_call_ns = 100000000;
	p.slow_rate_ppm = 1000000;
	open_with(p);
	ck_assert_int_eq(call_for(RESC_OK, 101), 0);
	ck_assert_int_eq(call_for(RESC_OK, 99), 0);
	ck_assert_uint_eq(state(), TAG_CLOSED); /* one of two is not all */
	calls(1, RESC_FAIL);
	later(1000);
	ck_assert_int_eq(call_for(RESC_FAIL, 101), 0); /* slow as well: one call in both tallies */
	ck_assert_int_eq(call_for(RESC_OK, 101), 0);
	ck_assert_uint_eq(state(), TAG_OPEN);
	ck_assert_int_eq(look().reason, REASON_PROBE_SLOW);
}
END_TEST

/* ---- the dependency's own word ---- */

static int fail_with(int64_t retry_after_ms)
{
	resc_ticket ticket;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	return resc_leave_after(&ticket, RESC_FAIL, retry_after_ms);
}

static struct policy asked(void)
{
	struct policy p = last_calls(100, 100, 0);

	p.consecutive = 2;
	p.retry_after_max_ms = 60000;
	return p;
}

START_TEST(the_result_that_opens_it_names_the_due_time)
{
	use(asked());
	ck_assert_int_eq(fail_with(30000), 0); /* does not open it: says nothing */
	ck_assert_uint_eq(state(), TAG_CLOSED);
	ck_assert_int_eq(fail_with(7000), 0);
	ck_assert_uint_eq(look().due_ms, scene_ms + 7000);
}
END_TEST

START_TEST(its_word_is_cut_to_what_the_policy_allows)
{
	use(asked());
	fail_with(-1);
	fail_with(INT64_MAX);
	ck_assert_uint_eq(look().due_ms, scene_ms + 60000);
}
END_TEST

START_TEST(without_a_word_or_with_a_policy_that_does_not_ask_the_cooldown_counts)
{
	struct policy p = asked();

	use(p);
	fail_with(9000);
	fail_with(-5);
	ck_assert_uint_eq(look().due_ms, scene_ms + 1000);
	later(1000);
	p.retry_after_max_ms = 0;
	use(p);
	fail_with(9000);
	ck_assert_uint_eq(look().due_ms, scene_ms + 1000);
}
END_TEST

START_TEST(a_word_of_zero_is_due_at_once_and_jitter_only_lengthens)
{
	struct policy p = asked();

	use(p);
	fail_with(-1);
	fail_with(0);
	ck_assert_uint_eq(look().due_ms, scene_ms + 1);
	later(1);
	p.jitter_ppm = 500000;
	use(p);
	fail_with(10000);
	ck_assert_uint_ge(look().due_ms, scene_ms + 10000);
	ck_assert_uint_le(look().due_ms, scene_ms + 15000);
}
END_TEST

START_TEST(late_failures_never_move_the_due_time)
{
	resc_ticket late;

	use(asked());
	ck_assert_int_eq(resc_enter(pay, NULL, &late), 0);
	fail_with(-1);
	fail_with(2000);
	uint64_t due = look().due_ms;
	ck_assert_int_eq(resc_leave_after(&late, RESC_FAIL, 50000), RESC_STALE);
	ck_assert_uint_eq(look().due_ms, due);
}
END_TEST

START_TEST(a_probe_that_fails_names_the_next_due_time)
{
	use(asked());
	fail_with(-1);
	fail_with(-1);
	later(1000);
	ck_assert_int_eq(fail_with(20000), 0);
	ck_assert_uint_eq(look().due_ms, scene_ms + 20000);
	ck_assert_uint_eq(look().reopened, 1);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        H6_after_a_longer_window_everybody_is_counted_at_once,
	        H6_no_call_comes_back_when_its_tick_has_the_same_number_again,
	        the_window_is_the_last_n_calls_and_no_other,
	        time_does_not_empty_it,
	        min_calls_may_be_reached_by_a_call_that_ends_well,
	        neutral_outcomes_take_no_place,
	        L03_min_calls_above_the_window_means_a_full_window,
	        slow_and_failed_are_two_tallies_of_one_call,
	        a_transition_empties_it,
	        H6_another_size_keeps_the_calls_that_are_there,
	        a_late_writer_does_not_cover_a_newer_call,
	        workers_count_into_one_ring_and_none_is_counted_twice,
	        a_successor_goes_on_with_the_same_calls,
	        the_verdict_falls_when_all_results_are_in,
	        equal_to_the_rate_of_the_trial_opens_again,
	        A4_neutral_results_are_not_results_of_the_trial,
	        A11_the_slow_rate_judges_a_trial_by_rate_too,
	        the_result_that_opens_it_names_the_due_time,
	        its_word_is_cut_to_what_the_policy_allows,
	        without_a_word_or_with_a_policy_that_does_not_ask_the_cooldown_counts,
	        a_word_of_zero_is_due_at_once_and_jitter_only_lengthens,
	        late_failures_never_move_the_due_time,
	        a_probe_that_fails_names_the_next_due_time,
	};
	TCase *tcase = FIXTURE_CASE("window", tests, scene_set_up, scene_tear_down);

	tcase_add_loop_test(tcase, H6_a_successor_gets_the_window_as_it_is_now_and_not_older_ticks, 0, 2);
	return fixture_run(fixture_suite("window", tcase));
}
