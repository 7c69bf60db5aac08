/* SPDX-License-Identifier: MIT */
/* The client-side throttle: the dependency sees about K times what it accepts, and the window is that of the whole host. */
#include "record.h"
#include "throttle.h"

#include <pthread.h>

#include "call.h"
#include "fixture.h"
#include "move.h"
#include "override.h"
#include "random.h"
#include "window.h"

#define PPM UINT64_C(1000000)

static struct fixture f;
static struct view v; /* of a worker that has a shard for itself */

static struct policy plan(uint64_t k_ppm, uint64_t window_ms)
{
	struct policy policy;

	policy_defaults(&policy);
	policy.flags |= POLICY_CONFIGURED | POLICY_THROTTLE;
	policy.throttle_k_ppm = k_ppm;
	policy.throttle_window_ms = window_ms;
	return policy;
}

/* As host.c fills it; own: the shard of that number, or less than 0: it counts in the common one. */
static struct view view_of(int own)
{
	struct view made = {
	        .map = &f.map,
	        .state = f.state,
	        .index = f.index,
	        .own = own < 0 ? NULL : map_shard(&f.map, f.state, (uint32_t)own),
	        .owner_thread = thread_self(),
	        .common = map_shard(&f.map, f.state, map_first_common_shard(&f.map)),
	        .throttle_tick_ms = window_bucket_ms(f.policy.throttle_window_ms),
	        .throttle_factor = UINT64_MAX / window_bucket_ms(f.policy.throttle_window_ms) + 1,
	        .policy = f.policy,
	};
	return made;
}

/* Another policy, by a reload. */
static void reload(uint64_t k_ppm, uint64_t window_ms)
{
	struct policy policy = plan(k_ppm, window_ms);
	uint64_t sequence;

	policy_write(&f.map, f.index, &policy);
	ck_assert_int_eq(policy_read(&f.map, f.index, &f.policy, &sequence), 0);
	v = view_of(0);
}

static void set_up(void)
{
	struct policy policy = plan(2 * PPM, 120000);

	fixture_open(&f, &policy);
	fixture_at(&f, 0);
	v = view_of(0);
	resc_seed(1);
}

static void tear_down(void)
{
	map_close(&f.map);
}

static void count_times(const struct view *view, uint64_t n, bool accepted, uint64_t now_ms)
{
	for (uint64_t i = 0; i < n; i++)
		throttle_count(view, accepted, now_ms);
}

struct seen {
	uint64_t requests;
	uint64_t accepts;
	uint32_t ppm;
};

static struct seen look(uint64_t now_ms)
{
	struct seen seen;

	seen.ppm = throttle_now(&f.map, f.state, &f.policy, now_ms, &seen.requests, &seen.accepts);
	return seen;
}

static uint32_t kept_share(void)
{
	return throttle_ppm(fixture_load(&f.state->throttle));
}

static uint64_t kept_ms(void)
{
	return throttle_ms(fixture_load(&f.state->throttle));
}

/* How many of 100000 calls are refused. */
static uint64_t refusals(uint64_t now_ms)
{
	uint64_t n = 0;

	for (int i = 0; i < 100000; i++)
		n += throttle_refuses(&v, now_ms);
	return n;
}

/* ---- the share ---- */

START_TEST(nothing_is_refused_before_the_first_call)
{
	ck_assert_uint_eq(refusals(0), 0);
	ck_assert_uint_eq(look(0).requests, 0);
	ck_assert_uint_eq(look(0).ppm, 0);
}
END_TEST

START_TEST(nothing_is_refused_while_half_of_the_calls_are_accepted)
{
	for (int i = 0; i < 5000; i++) {
		count_times(&v, 1, true, 0);
		ck_assert(!throttle_refuses(&v, 0));
		count_times(&v, 1, false, 0);
		ck_assert(!throttle_refuses(&v, 0));
	}
	ck_assert_uint_eq(look(0).requests, 10000);
	ck_assert_uint_eq(look(0).accepts, 5000);
}
END_TEST

START_TEST(the_share_is_that_of_the_formula)
{
	count_times(&v, 30, true, 0);
	count_times(&v, 69, false, 0);
	/* (99 - 2 * 30) / 100 */
	ck_assert_uint_eq(look(0).ppm, 390000);
	ck_assert_uint_eq(kept_share(), 390000);
	uint64_t n = refusals(0);
	ck_assert_uint_ge(n, 38500);
	ck_assert_uint_le(n, 39500);
	/* Asking counts nothing. */
	ck_assert_uint_eq(look(0).requests, 99);
	reload(1100000, 120000);
	ck_assert_uint_eq(look(0).ppm, 660000);
	reload(1000 * PPM, 120000);
	ck_assert_uint_eq(look(0).ppm, 0);
}
END_TEST

START_TEST(with_the_clock_stopped_it_reacts_call_by_call)
{
	for (uint64_t i = 1; i < 1024; i++) {
		throttle_count(&v, false, 5);
		ck_assert_uint_eq(kept_share(), i * PPM / (i + 1));
	}
	/* The first failure makes every other call a refusal. */
	throttle_forget(f.state, 5);
	ck_assert_uint_eq(refusals(5), 0);
	throttle_count(&v, false, 120000);
	uint64_t n = refusals(120000);
	ck_assert_uint_ge(n, 49000);
	ck_assert_uint_le(n, 51000);
}
END_TEST

START_TEST(a_busy_worker_works_it_out_after_each_64_calls)
{
	uint64_t changes = 0;
	uint32_t before;

	count_times(&v, 8192, true, 0);
	count_times(&v, 8192, false, 0);
	before = kept_share();
	for (int i = 0; i < 6400; i++) {
		throttle_count(&v, false, 0);
		changes += kept_share() != before;
		before = kept_share();
	}
	ck_assert_uint_eq(changes, 100);
	ck_assert_uint_eq(kept_share(), look(0).ppm);
}
END_TEST

START_TEST(the_kept_share_is_never_further_off_than_a_hundredth)
{
	for (int i = 0; i < 30000; i++) {
		throttle_count(&v, random_below(4) == 0, 0);
		ck_assert_int_le(abs((int)kept_share() - (int)look(0).ppm), 10000);
	}
}
END_TEST

START_TEST(an_old_share_is_worked_out_before_the_decision)
{
	count_times(&v, 10, false, 60000);
	/* 120 s / 128 = 937 ms. */
	throttle_refuses(&v, 60937);
	ck_assert_uint_eq(kept_ms(), 60000);
	throttle_refuses(&v, 60938);
	ck_assert_uint_eq(kept_ms(), 60938);
	ck_assert_uint_eq(refusals(60000 + 120000), 0);
}
END_TEST

START_TEST(an_old_share_of_0_is_worked_out_by_who_counts)
{
	/* Many calls were accepted, so it is worked out after each 64; now there are few, and all fail. Nobody asks while the share is 0.
	 */
	count_times(&v, 9000, true, 0);
	for (uint64_t ms = 12000; ms < 120000; ms += 1000)
		throttle_count(&v, false, ms);
	ck_assert(throttle_is_idle(f.state));
	throttle_count(&v, false, 120000);
	ck_assert_uint_eq(kept_share(), 109 * PPM / 110);
	ck_assert(!throttle_is_idle(f.state));
}
END_TEST

START_TEST(E6_the_shortest_window)
{
	reload(2 * PPM, 100);
	count_times(&v, 3, false, 1000);
	ck_assert_uint_eq(look(1099).requests, 3);
	ck_assert_uint_eq(look(1100).requests, 0);
	throttle_refuses(&v, 1001);
	ck_assert_uint_eq(kept_ms(), 1000);
	throttle_refuses(&v, 1002);
	ck_assert_uint_eq(kept_ms(), 1002);

	struct policy zero;
	uint64_t requests, accepts;
	memset(&zero, 0, sizeof zero);
	ck_assert_uint_le(throttle_now(&f.map, f.state, &zero, 1000, &requests, &accepts), PPM);
}
END_TEST

/* ---- the window ---- */

START_TEST(the_window_forgets)
{
	/* Ticks of 12 s: a call of the tick that begins at 60 s counts until 180 s. */
	count_times(&v, 4, false, 60000);
	count_times(&v, 4, false, 71999);
	count_times(&v, 1, true, 72000);
	ck_assert_uint_eq(look(179999).requests, 9);
	ck_assert_uint_eq(look(180000).requests, 1);
	ck_assert_uint_eq(look(180000).ppm, 0);
	ck_assert_uint_eq(look(191999).accepts, 1);
	ck_assert_uint_eq(look(192000).requests, 0);
}
END_TEST

START_TEST(no_old_call_comes_back_however_long_nobody_called)
{
	count_times(&v, 4, false, 60000);
	for (uint64_t ms = 180000; ms < 20000000; ms += 1000)
		ck_assert_uint_eq(look(ms).requests, 0);
	ck_assert_uint_eq(look(TIME_MASK).requests, 0);
	count_times(&v, 1, false, TIME_MASK);
	ck_assert_uint_eq(look(TIME_MASK).requests, 1);
}
END_TEST

START_TEST(random_calls_are_counted_as_a_list_would)
{
	static uint64_t times[20000];
	static bool accepted[20000];
	size_t n = 0, first = 0;

	reload(2 * PPM, 1000);
	for (uint64_t ms = 0; n < 20000; ms += random_below(4) == 0 ? random_below(200) : 0) {
		times[n] = ms;
		accepted[n] = random_below(2) == 0;
		throttle_count(&v, accepted[n++], ms);
		struct seen expected = {0, 0, 0};
		while (times[first] / 100 + 10 <= ms / 100)
			first++;
		for (size_t i = first; i < n; i++) {
			expected.requests++;
			expected.accepts += accepted[i];
		}
		struct seen seen = look(ms);
		ck_assert_uint_eq(seen.requests, expected.requests);
		ck_assert_uint_eq(seen.accepts, expected.accepts);
	}
}
END_TEST

START_TEST(another_window_takes_what_belongs_to_it_and_nothing_older)
{
	/* Idle for half of the time that there is: ticks twice as long then have the numbers of the last ones. */
	reload(2 * PPM, 60000);
	for (uint64_t ms = 540000; ms < 600000; ms += 6000)
		throttle_count(&v, false, ms);
	reload(2 * PPM, 120000);
	ck_assert_uint_eq(look(1200000 - 1).requests, 0);
	reload(2 * PPM, 60000);
	ck_assert_uint_eq(look(600000 - 1).requests, 10);
	reload(2 * PPM, 30000);
	ck_assert_uint_le(look(600000 - 1).requests, 5);
}
END_TEST

START_TEST(all_workers_share_it)
{
	struct view second = view_of(1);
	struct view crowd = view_of(-1);

	count_times(&v, 10, false, 0);
	count_times(&second, 20, true, 0);
	count_times(&crowd, 30, false, 0);
	ck_assert_uint_eq(look(0).requests, 60);
	ck_assert_uint_eq(look(0).accepts, 20);
	ck_assert_uint_eq(kept_share(), look(0).ppm);
	ck_assert_uint_eq(kept_share(), 20 * PPM / 61);
}
END_TEST

START_TEST(a_worker_that_was_stopped_erases_nothing_newer)
{
	/* Both ticks have the same place in the ring. */
	struct view crowd = view_of(-1);

	count_times(&crowd, 8, true, 16 * 12000);
	throttle_count(&crowd, false, 0);
	ck_assert_uint_eq(look(16 * 12000).requests, 8);
	ck_assert_uint_eq(look(16 * 12000).accepts, 8);
}
END_TEST

/* ---- E16 ---- */

struct load {
	uint64_t offered;   /* calls a second */
	uint64_t accepting; /* at most so many a second are accepted */
	uint64_t seconds;
};

struct outcome {
	uint64_t sent;
	uint64_t accepted;
};

/* Several workers offer their calls evenly; the dependency accepts the first calls of each tenth of a second. */
static struct outcome offer(const struct view *workers, size_t n, const struct load *load, uint64_t from_ms)
{
	struct outcome sum = {0, 0};
	uint64_t left = 0, tenth = 0;

	for (uint64_t i = 0; i < load->offered * load->seconds; i++) {
		uint64_t ms = from_ms + i * 1000 / load->offered;
		const struct view *w = &workers[i % n];
		if (ms / 100 != tenth) {
			tenth = ms / 100;
			left = load->accepting / 10;
		}
		if (throttle_refuses(w, ms)) {
			throttle_count(w, false, ms);
			continue;
		}
		bool accepted = left > 0;
		left -= accepted;
		sum.sent++;
		sum.accepted += accepted;
		throttle_count(w, accepted, ms);
	}
	return sum;
}

static void check_steady(uint64_t k_ppm, uint64_t offered)
{
	const struct view workers[] = {view_of(0), view_of(1), view_of(-1)};
	const struct load warm = {.offered = offered, .accepting = 50, .seconds = 40};
	const struct load load = {.offered = offered, .accepting = 50, .seconds = 60};

	offer(workers, 3, &warm, 0);
	struct outcome o = offer(workers, 3, &load, 40000);
	uint64_t most = o.accepted * k_ppm / PPM;
	uint64_t expected = offered * 60 < most ? offered * 60 : most;
	ck_assert_msg(o.sent * 10 >= expected * 9 && o.sent * 10 <= expected * 11, "K %g, %d calls/s offered: %d sent, %d expected",
	              (double)k_ppm / 1e6, (int)offered, (int)o.sent, (int)expected);
	/* And what it could accept, it was sent; but for tenths of a second in which chance sent less. */
	ck_assert_uint_ge(o.accepted * 100, 90 * (offered < 50 ? offered * 60 : 50 * 60));
}

START_TEST(E16_the_dependency_sees_about_k_times_what_it_accepts)
{
	static const uint64_t ks[] = {1500000, 2000000, 3000000};
	static const uint64_t offered[] = {20, 50, 80, 100, 200, 500, 2000, 10000};

	reload(ks[_i], 10000);
	for (size_t i = 0; i < sizeof(offered) / sizeof(offered[0]); i++) {
		tear_down();
		set_up();
		reload(ks[_i], 10000);
		check_steady(ks[_i], offered[i]);
	}
}
END_TEST

START_TEST(E16_it_recovers_by_itself)
{
	const struct load failing = {.offered = 200, .accepting = 0, .seconds = 60};
	const struct load healthy = {.offered = 200, .accepting = 1000, .seconds = 120};

	reload(2 * PPM, 10000);
	struct outcome o = offer(&v, 1, &failing, 0);
	/* Of 12000 calls hardly any: but it still finds out when the dependency is back. */
	ck_assert_uint_le(o.sent, 120);
	ck_assert_uint_ge(o.sent, 1);
	offer(&v, 1, &healthy, 60000);
	ck_assert_uint_eq(look(180000).ppm, 0);
	o = offer(&v, 1, &healthy, 180000);
	ck_assert_uint_eq(o.sent, 200 * 120);
}
END_TEST

/* ---- reset, another name, succession ---- */

START_TEST(reset_forgets)
{
	count_times(&v, 50, false, 60000);
	fixture_at(&f, 61000);
	ck_assert_int_eq(override_reset(&f.map, f.index, "test"), 0);
	ck_assert_uint_eq(look(61000).requests, 0);
	ck_assert_uint_eq(refusals(61000), 0);
	/* It counts again from the next bucket on. */
	count_times(&v, 50, false, 71999);
	ck_assert_uint_eq(look(71999).requests, 0);
	count_times(&v, 7, false, 72000);
	ck_assert_uint_eq(look(72000).requests, 7);
}
END_TEST

START_TEST(a_record_that_is_used_again_has_seen_nothing)
{
	count_times(&v, 50, false, 60000);
	fixture_at(&f, 61000);
	record_retire(&f.map, f.index);
	ck_assert_int_eq(record_publish(&f.map, "payments", &f.policy), (int)f.index);
	ck_assert_uint_eq(look(61000).requests, 0);
	ck_assert_uint_eq(refusals(61000), 0);
}
END_TEST

START_TEST(the_first_use_of_a_record_counts_from_the_first_call)
{
	count_times(&v, 1, false, 0);
	ck_assert_uint_eq(look(0).requests, 1);
}
END_TEST

START_TEST(its_window_goes_to_the_successor)
{
	struct map to;
	struct resc_error err;
	struct view crowd = view_of(-1);
	uint64_t requests, accepts;

	ck_assert_int_eq(map_create(&to, "unit", &f.map.dims, &f.map, 0600, (gid_t)-1, &err), 0);
	record_publish_moved(&to, f.index, "payments", &f.policy, false);
	struct state *new = map_state(&to, f.index);
	count_times(&v, 5, true, 60000);
	count_times(&crowd, 9, false, 60000);
	count_times(&crowd, 6, false, 72000);
	fixture_store(&to.live->clock_ns, to.created_ns + UINT64_C(72000) * 1000000);
	for (int i = 0; i < 2; i++) {
		move_words(&f.map, f.state, &to, new);
		move_carry(&f.map, f.state, &to, new);
		ck_assert_uint_eq(throttle_now(&to, new, &f.policy, 72000, &requests, &accepts), 10 * PPM / 21);
		ck_assert_uint_eq(requests, 20);
		ck_assert_uint_eq(accepts, 5);
		ck_assert_uint_eq(throttle_ppm(fixture_load(&new->throttle)), 10 * PPM / 21);
	}
	ck_assert_uint_eq(throttle_now(&to, new, &f.policy, 180000, &requests, &accepts), 6 * PPM / 7);
	/* A call that was still counted in the old one. */
	throttle_count(&crowd, false, 72000);
	move_carry(&f.map, f.state, &to, new);
	throttle_now(&to, new, &f.policy, 72000, &requests, &accepts);
	ck_assert_uint_eq(requests, 21);
	map_close(&to);
}
END_TEST

START_TEST(what_was_forgotten_is_forgotten_in_the_successor)
{
	struct map to;
	struct resc_error err;
	uint64_t requests, accepts;

	ck_assert_int_eq(map_create(&to, "unit", &f.map.dims, &f.map, 0600, (gid_t)-1, &err), 0);
	record_publish_moved(&to, f.index, "payments", &f.policy, false);
	struct state *new = map_state(&to, f.index);
	count_times(&v, 50, false, 60000);
	throttle_forget(f.state, 60000);
	move_words(&f.map, f.state, &to, new);
	move_carry(&f.map, f.state, &to, new);
	ck_assert_uint_eq(throttle_now(&to, new, &f.policy, 60000, &requests, &accepts), 0);
	map_close(&to);
}
END_TEST

/* ---- damage and limits ---- */

START_TEST(D4_full_buckets_keep_their_share_and_nothing_overflows)
{
	word *bucket = v.own->throttle[0];

	fixture_store(&bucket[0], bucket_make(0, BUCKET_MAX));
	fixture_store(&bucket[1], bucket_make(0, BUCKET_MAX / 4));
	fixture_store(&f.state->throttle, throttle_make(0, 0, 123));
	count_times(&v, 100, true, 0);
	ck_assert_uint_eq(bucket_count(fixture_load(&bucket[1])), BUCKET_MAX / 4);
	/* Nothing was counted, so there was nothing to work out. */
	ck_assert_uint_eq(kept_share(), 123);
	ck_assert_uint_eq(look(0).ppm, 500000);

	for (uint32_t i = 0; i < f.map.dims.shards; i++)
		for (uint64_t tick = 0; tick < WINDOW_BUCKETS; tick++)
			for (int k = 0; k < 2; k++)
				fixture_store(&map_shard(&f.map, f.state, i)->throttle[tick][k], bucket_make(tick * 12000, BUCKET_MAX));
	reload(1000 * PPM, 120000);
	ck_assert_uint_eq(look(119999).ppm, 0);
	reload(PPM, 120000);
	ck_assert_uint_eq(look(119999).ppm, 0);
	for (uint32_t i = 0; i < f.map.dims.shards; i++)
		for (uint64_t tick = 0; tick < WINDOW_BUCKETS; tick++)
			fixture_store(&map_shard(&f.map, f.state, i)->throttle[tick][1], 0);
	ck_assert_uint_ge(look(119999).ppm, PPM - 1);
}
END_TEST

START_TEST(a_damaged_share_lasts_until_it_is_worked_out)
{
	fixture_store(&f.state->throttle, UINT64_MAX);
	ck_assert(!throttle_refuses(&v, 1000));
	ck_assert_uint_eq(kept_ms(), 1000);
	/* Another worker has read its clock a little later: that is no damage. */
	fixture_store(&f.state->throttle, throttle_make(1010, 0, PPM));
	ck_assert(throttle_refuses(&v, 1000));
}
END_TEST

START_TEST(a_damaged_beginning_does_not_switch_it_off)
{
	fixture_store(&f.state->throttle_since, UINT64_MAX);
	count_times(&v, 9, false, 1000);
	ck_assert_uint_eq(look(1000).ppm, 900000);
}
END_TEST

START_TEST(whatever_the_bits_it_ends_and_the_share_is_at_most_1)
{
	for (int i = 0; i < 20000; i++) {
		uint64_t ms = random_next() >> 24 >> random_below(40);
		for (int k = 0; k < 8; k++)
			fixture_store(&v.own->throttle[random_below(WINDOW_RING)][k & 1], random_next() >> random_below(64));
		fixture_store(&f.state->throttle, random_next());
		fixture_store(&f.state->throttle_since, random_next() >> random_below(64));
		throttle_refuses(&v, ms);
		throttle_count(&v, random_below(2) == 0, ms);
		ck_assert_uint_lt(look(ms).ppm, PPM);
	}
}
END_TEST

/* ---- many at once ---- */

#define THREADS 4
#define CALLS   50000

static void *count_in_crowd(void *argument)
{
	const struct view *view = argument;
	bool refused = false;

	for (int i = 0; i < CALLS; i++) {
		throttle_count(view, i % 4 == 0, (uint64_t)i % 100 * 1000);
		refused |= throttle_refuses(view, (uint64_t)i % 100 * 1000);
	}
	return refused ? argument : NULL;
}

START_TEST(threads_lose_no_call)
{
	pthread_t threads[THREADS];
	void *refused;

	/* The view of one thread: the others count in the common shard. Times go back and forth within the window. */
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, count_in_crowd, &v);
	count_times(&v, CALLS, false, 99999);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(threads[i], &refused);
		ck_assert_ptr_nonnull(refused);
	}
	ck_assert_uint_eq(look(99999).requests, (THREADS + 1) * CALLS);
	ck_assert_uint_eq(look(99999).accepts, THREADS * CALLS / 4);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        nothing_is_refused_before_the_first_call,
	        nothing_is_refused_while_half_of_the_calls_are_accepted,
	        the_share_is_that_of_the_formula,
	        with_the_clock_stopped_it_reacts_call_by_call,
	        a_busy_worker_works_it_out_after_each_64_calls,
	        the_kept_share_is_never_further_off_than_a_hundredth,
	        an_old_share_is_worked_out_before_the_decision,
	        an_old_share_of_0_is_worked_out_by_who_counts,
	        E6_the_shortest_window,
	        the_window_forgets,
	        no_old_call_comes_back_however_long_nobody_called,
	        random_calls_are_counted_as_a_list_would,
	        another_window_takes_what_belongs_to_it_and_nothing_older,
	        all_workers_share_it,
	        a_worker_that_was_stopped_erases_nothing_newer,
	        E16_it_recovers_by_itself,
	        reset_forgets,
	        a_record_that_is_used_again_has_seen_nothing,
	        the_first_use_of_a_record_counts_from_the_first_call,
	        its_window_goes_to_the_successor,
	        what_was_forgotten_is_forgotten_in_the_successor,
	        D4_full_buckets_keep_their_share_and_nothing_overflows,
	        a_damaged_share_lasts_until_it_is_worked_out,
	        a_damaged_beginning_does_not_switch_it_off,
	        whatever_the_bits_it_ends_and_the_share_is_at_most_1,
	        threads_lose_no_call,
	};
	TCase *tcase = FIXTURE_CASE("throttle", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, E16_the_dependency_sees_about_k_times_what_it_accepts, 0, 3);
	return fixture_run(fixture_suite("throttle", tcase));
}
