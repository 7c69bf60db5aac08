/* SPDX-License-Identifier: MIT */
/* What people see: sums over all shards, times that fit, and no impossible combination whatever is written meanwhile or damaged before. */
#include "inspect.h"
#include "process.h"
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "count.h"
#include "fixture.h"
#include "latency.h"
#include "override.h"
#include "random.h"
#include "transition.h"
#include "window.h"
#include "worker.h"

static struct fixture f;

static void set_up(void)
{
	struct policy policy;

	policy_private(&policy);
	policy.flags |= POLICY_BUDGET | POLICY_BULKHEAD;
	policy.limit = 8;
	policy.cooldown_ms = 1000;
	policy.cooldown_factor_ppm = 2000000;
	policy.cooldown_max_ms = 5000;
	policy.probes = 2;
	policy.probe_timeout_ms = 500;
	fixture_open(&f, &policy);
	fixture_at(&f, 20000);
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

static bool move(unsigned tag, unsigned streak, uint64_t ms_field, enum reason reason)
{
	uint64_t b = fixture_load(&f.state->breaker);

	return breaker_transition(&f.map, f.index, b, tag, streak, ms_field, reason, 0, clock_coarse_ms(&f.map), 0, 0);
}

static uint16_t generation(void)
{
	return breaker_generation(fixture_load(&f.state->breaker));
}

static void put_bucket(struct shard *shard, uint64_t tick, enum window_category category, uint16_t of, uint32_t count)
{
	fixture_store(&shard->window[tick % WINDOW_RING][category], bucket_make(window_tag(window_tick_ms(&f.policy), tick, of), count));
}

static struct shard *shard(uint32_t i)
{
	return map_shard(&f.map, f.state, i);
}

/* ---- a resource ---- */

START_TEST(a_fresh_resource)
{
	struct inspect_resource r = look();

	ck_assert_str_eq(r.name, "payments");
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.due_ms, 0);
	ck_assert(!r.probe_due);
	ck_assert_int_eq(r.reason, REASON_NONE);
	ck_assert_int_eq(r.override.mode, OVERRIDE_NONE);
	ck_assert_uint_eq(r.window_calls, 0);
	ck_assert(r.limited);
	ck_assert_uint_eq(r.limit, 8);
	ck_assert_uint_eq(r.effective, 8);
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert(r.budgeted);
	ck_assert_double_eq(r.tokens, 10);
	ck_assert_double_eq(r.capacity, 10);
	ck_assert_uint_eq(r.counters.enters, 0);
	ck_assert_uint_eq(r.latency.count, 0);
}
END_TEST

START_TEST(what_is_not_in_use_is_not_there)
{
	struct inspect_resource r;

	ck_assert_int_eq(inspect_resource(&f.map, f.index + 1, &r), -ENOENT);
	ck_assert_int_eq(inspect_resource(&f.map, UINT32_MAX, &r), -ENOENT);
	record_retire(&f.map, f.index);
	ck_assert_int_eq(inspect_resource(&f.map, f.index, &r), -ENOENT);
}
END_TEST

START_TEST(K4_open_with_no_traffic)
{
	ck_assert(move(TAG_OPEN, 0, 21000, REASON_FAILURE_RATE));
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.since_ms, 20000);
	ck_assert_uint_eq(r.due_ms, 21000);
	ck_assert(!r.probe_due);
	ck_assert_int_eq(r.reason, REASON_FAILURE_RATE);
	uint64_t word_before = fixture_load(&f.state->breaker);
	fixture_at(&f, 21000);
	r = look();
	ck_assert(r.probe_due);
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(fixture_load(&f.state->breaker), word_before);
}
END_TEST

START_TEST(times_are_derived_where_the_winner_died)
{
	/* Opened for the second time in a row: 2 s of cooldown, and nobody wrote when. */
	fixture_store(&f.state->breaker, breaker_make(TAG_OPEN, 1, 99, 21500));
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.since_ms, 19500);
	ck_assert_int_eq(r.reason, REASON_NONE);
	ck_assert_uint_eq(r.reopened, 1);
	fixture_store(&f.state->breaker, breaker_make(TAG_OPEN, 0, 99, 400));
	ck_assert_uint_eq(look().since_ms, 0);
	fixture_store(&f.state->breaker, breaker_make(TAG_HALF_OPEN, 1, 99, 12345));
	ck_assert_uint_eq(look().since_ms, 12345);
	fixture_store(&f.state->breaker, breaker_make(TAG_CLOSED, 0, 99, TIME_MASK));
	ck_assert_uint_eq(look().since_ms, 20000); /* never in the future */
}
END_TEST

START_TEST(a_prepared_word_is_what_it_stands_for)
{
	fixture_store(&f.state->breaker, breaker_make(TAG_OPEN + TAG_PREPARED, 0, 99, 30000));
	ck_assert_uint_eq(look().breaker, TAG_OPEN);
}
END_TEST

START_TEST(cooldowns_grow_to_their_limit)
{
	static const uint64_t expected[] = {1000, 2000, 4000, 5000, 5000};

	for (unsigned i = 0; i < 5; i++)
		ck_assert_uint_eq(inspect_cooldown_ms(&f.policy, i), expected[i]);
	ck_assert_uint_eq(inspect_cooldown_ms(&f.policy, UINT32_MAX), 5000);
	f.policy.cooldown_ms = f.policy.cooldown_factor_ppm = f.policy.cooldown_max_ms = UINT64_MAX;
	ck_assert_uint_le(inspect_cooldown_ms(&f.policy, 31), TIME_MASK);
	f.policy.cooldown_ms = 7;
	f.policy.cooldown_factor_ppm = 1000000;
	ck_assert_uint_eq(inspect_cooldown_ms(&f.policy, 31), 7);
}
END_TEST

START_TEST(probes_that_are_out)
{
	ck_assert(move(TAG_HALF_OPEN, 0, 20000, REASON_COOLDOWN_OVER));
	unsigned g = generation();
	fixture_store(&f.state->probes[0], probe_make(1, g, 20000));
	fixture_store(&f.state->probes[5], probe_make(2, g - 1, 20000)); /* of another trial */
	ck_assert_uint_eq(look().probes_out, 1);
	fixture_store(&f.state->probes[63], probe_make(3, g, 19600));
	ck_assert_uint_eq(look().probes_out, 2);
	fixture_at(&f, 20099);
	ck_assert_uint_eq(look().probes_out, 2);
	fixture_at(&f, 20100); /* its 500 ms are over */
	ck_assert_uint_eq(look().probes_out, 1);
	for (int i = 0; i < 64; i++)
		fixture_store(&f.state->probes[i], probe_make(9, g, 20100));
	ck_assert_uint_eq(look().probes_out, 2); /* never more than the policy has */
	fixture_store(&f.state->tally, tally_make((uint16_t)g, 3, 1, 0));
	ck_assert_uint_eq(look().trial_ok, 3);
	ck_assert_uint_eq(look().trial_failed, 1);
	ck_assert(move(TAG_CLOSED, 0, 20100, REASON_PROBES_OK));
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.probes_out, 0);
	ck_assert_uint_eq(r.trial_ok, 0);
	ck_assert_uint_eq(r.trial_failed, 0);
}
END_TEST

START_TEST(a_streak_of_this_generation)
{
	fixture_store(&f.state->streak, streak_make(generation(), WORD_LIVE, 4));
	ck_assert_uint_eq(look().consecutive, 4);
	fixture_store(&f.state->streak, streak_make((uint16_t)(generation() - 1), WORD_LIVE, 4));
	ck_assert_uint_eq(look().consecutive, 0);
}
END_TEST

START_TEST(the_bulkhead)
{
	for (uint32_t i = 0; i < 5; i++)
		fixture_store(map_permit(&f.map, f.state, i), permit_make(1 + i % 2, i));
	fixture_store(&f.state->limit, limit_make(3, 1, 2, 7));
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.in_flight, 5);
	ck_assert_uint_eq(r.limit, 3);
	ck_assert_uint_eq(r.effective, 1);
	ck_assert_uint_eq(r.debt, 2);
	f.policy.flags &= ~(uint64_t)POLICY_BULKHEAD;
	policy_write(&f.map, f.index, &f.policy);
	r = look();
	ck_assert(!r.limited);
	ck_assert_uint_eq(r.limit, 0);
	ck_assert_uint_eq(r.in_flight, 5);
}
END_TEST

START_TEST(retries_are_counted_among_the_calls_inside)
{
	fixture_store(map_permit(&f.map, f.state, 0), permit_make(1, 1));
	fixture_store(map_permit(&f.map, f.state, 5), permit_make(2, 1) | PERMIT_RETRY);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.in_flight, 2);
	ck_assert_uint_eq(r.retries, 1);
	/* A lowered limit that is not effective yet: holders of before may be anywhere. */
	fixture_store(map_permit(&f.map, f.state, 40), permit_make(3, 1) | PERMIT_RETRY);
	fixture_store(&f.state->limit, limit_make(8, 6, 0, 7));
	r = look();
	ck_assert_uint_eq(r.in_flight, 3);
	ck_assert_uint_eq(r.retries, 2);
}
END_TEST

START_TEST(a_bulkhead_in_shadow_mode_shows_the_limit_that_it_would_have)
{
	fixture_store(&f.state->limit, limit_make(64, 64, 0, 7));
	f.policy.flags |= POLICY_SHADOW_BULKHEAD;
	policy_write(&f.map, f.index, &f.policy);
	struct inspect_resource r = look();
	ck_assert(r.limited);
	ck_assert_uint_eq(r.limit, 8);
	ck_assert_uint_eq(r.effective, 8);
	ck_assert_uint_eq(r.debt, 0);
}
END_TEST

START_TEST(each_part_of_a_policy_has_its_mode)
{
	static const uint64_t shadows[PARTS] = {
	        [PART_BREAKER] = POLICY_SHADOW_BREAKER, [PART_BUDGET] = POLICY_SHADOW_BUDGET,     [PART_BULKHEAD] = POLICY_SHADOW_BULKHEAD,
	        [PART_RATE] = POLICY_SHADOW_RATE,       [PART_THROTTLE] = POLICY_SHADOW_THROTTLE, [PART_TIMEOUT] = POLICY_SHADOW_TIMEOUT,
	        [PART_ONCE] = POLICY_SHADOW_ONCE,
	};
	struct policy p = {.flags = 0};

	for (enum policy_part part = 0; part < PARTS; part++)
		ck_assert_int_eq(part_mode_of(&p, part), PART_OFF);
	for (enum policy_part part = 0; part < PARTS; part++) {
		p.flags = shadows[part]; /* without its block a shadow is nothing */
		ck_assert_int_eq(part_mode_of(&p, part), PART_OFF);
		p.flags = UINT32_MAX;
		ck_assert_int_eq(part_mode_of(&p, part), PART_ENFORCE);
		p.flags |= shadows[part];
		for (enum policy_part other = 0; other < PARTS; other++)
			ck_assert_int_eq(part_mode_of(&p, other), other == part && shadows[part] != 0 ? PART_SHADOW : PART_ENFORCE);
	}
}
END_TEST

START_TEST(holders_by_life)
{
	static const uint32_t cells[] = {9, 2, 9, 7, 2, 9};
	uint32_t lives[4], permits[4];

	ck_assert_uint_eq(inspect_holders(&f.map, f.index, lives, permits, 4), 0);
	for (uint32_t i = 0; i < 6; i++)
		fixture_store(map_permit(&f.map, f.state, i * 11), permit_make(cells[i], i));
	ck_assert_uint_eq(inspect_holders(&f.map, f.index, lives, permits, 4), 3);
	ck_assert(lives[0] == 2 && lives[1] == 7 && lives[2] == 9);
	ck_assert(permits[0] == 2 && permits[1] == 1 && permits[2] == 3);
	ck_assert_uint_eq(inspect_holders(&f.map, f.index, lives, permits, 1), 1);
	ck_assert_uint_eq(inspect_holders(&f.map, f.index, lives, permits, 0), 0);
	ck_assert_uint_eq(inspect_holders(&f.map, UINT32_MAX, lives, permits, 4), 0);
}
END_TEST

/* ---- the window ---- */

START_TEST(B2_a_window_is_ten_ticks_and_no_longer)
{
	/* 10 s in ticks of 1 s; now is tick 20: 11..20 count. */
	uint16_t g = generation();

	put_bucket(shard(0), 10, WINDOW_FAIL, g, 100);
	ck_assert_uint_eq(look().window_calls, 0);
	put_bucket(shard(0), 11, WINDOW_FAIL, g, 1);
	put_bucket(shard(1), 20, WINDOW_OK, g, 2);
	put_bucket(shard(3), 20, WINDOW_OK_SLOW, g, 4);
	put_bucket(map_carried(&f.map, f.state), 15, WINDOW_FAIL_SLOW, g, 8);
	put_bucket(shard(2), 21, WINDOW_FAIL, g, 100); /* somebody's clock is ahead */
	put_bucket(shard(2), 16, WINDOW_FAIL, (uint16_t)(g - 1), 100);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.window_calls, 15);
	ck_assert_uint_eq(r.window_failures, 9);
	ck_assert_uint_eq(r.window_slow, 12);
	fixture_at(&f, 20999);
	ck_assert_uint_eq(look().window_failures, 9);
	fixture_at(&f, 21000);
	ck_assert_uint_eq(look().window_failures, 108);
	fixture_at(&f, UINT64_C(3600000) * 24 * 365);
	ck_assert_uint_eq(look().window_calls, 0);
}
END_TEST

START_TEST(a_window_at_the_beginning_of_time)
{
	fixture_at(&f, 500);
	put_bucket(shard(0), 0, WINDOW_OK, generation(), 3);
	ck_assert_uint_eq(look().window_calls, 3);
}
END_TEST

START_TEST(ticks_are_rounded_up)
{
	struct policy policy = {0};

	ck_assert_uint_eq(window_tick_ms(&policy), 1);
	policy.window_ms = 101;
	ck_assert_uint_eq(window_tick_ms(&policy), 11);
	policy.window_ms = 100;
	ck_assert_uint_eq(window_tick_ms(&policy), 10);
	policy.window_ms = UINT64_MAX;
	ck_assert_uint_gt(window_tick_ms(&policy), UINT64_MAX / 10);
}
END_TEST

START_TEST(any_time_is_safe)
{
	uint64_t sums[WINDOW_CATEGORIES];
	struct policy policy = f.policy;

	window_sum(&f.map, f.state, &policy, UINT64_MAX, 0, sums);
	window_sum(&f.map, f.state, &policy, 0, 0, sums);
	policy.window_calls = UINT64_MAX;
	window_sum(&f.map, f.state, &policy, 0, 0, sums);
	ck_assert_uint_eq(sums[WINDOW_OK], 0);
}
END_TEST

/* ---- counters ---- */

START_TEST(counters_are_summed_and_add_up)
{
	for (uint32_t i = 0; i < f.map.dims.shards; i++) {
		fixture_store(&shard(i)->counters[COUNTER_admitted], 10);
		fixture_store(&shard(i)->counters[COUNTER_refused_open], 1);
	}
	fixture_store(&map_carried(&f.map, f.state)->counters[COUNTER_admitted], 1000);
	fixture_store(&map_carried(&f.map, f.state)->counters[COUNTER_refused_full], 7);
	count_common(&f.map, f.state, COUNTER_probes_reclaimed, 2);
	struct resc_counters c = look().counters;
	ck_assert_uint_eq(c.admitted, 1000 + 10 * f.map.dims.shards);
	ck_assert_uint_eq(c.refused_open, f.map.dims.shards);
	ck_assert_uint_eq(c.enters, c.admitted + c.refused_open + 7);
	ck_assert_uint_eq(c.probes_reclaimed, 2);
}
END_TEST

START_TEST(counters_saturate_together)
{
	fixture_store(&shard(0)->counters[COUNTER_admitted], UINT64_MAX);
	fixture_store(&shard(1)->counters[COUNTER_refused_open], UINT64_MAX - 5);
	fixture_store(&shard(2)->counters[COUNTER_refused_open], UINT64_MAX - 5);
	struct resc_counters c = look().counters;
	ck_assert_uint_eq(c.enters, c.admitted + c.refused_open);
	ck_assert_uint_le(c.enters, INT64_MAX);
}
END_TEST

START_TEST(latencies_are_summed)
{
	fixture_store(&shard(0)->latency[latency_bucket(100)], 3);
	fixture_store(&map_carried(&f.map, f.state)->latency[latency_bucket(100)], 4);
	fixture_store(&shard(1)->latency_sum_us, 700);
	struct inspect_resource r = look();
	ck_assert_uint_eq(r.latency.count, 7);
	ck_assert_uint_eq(r.latency.buckets[latency_bucket(100)], 7);
	ck_assert_uint_eq(r.latency.sum_us, 700);
}
END_TEST

/* ---- workers and the daemon ---- */

START_TEST(a_worker_and_its_death)
{
	struct fixture shared;
	struct inspect_worker w;
	int ready[2];
	char byte;

	fixture_open_shared(&shared, NULL);
	ck_assert_int_eq(inspect_worker(&shared.map, 0, &w), -ENOENT);
	ck_assert_int_eq(inspect_worker(&shared.map, UINT32_MAX, &w), -ENOENT);
	ck_assert_int_eq(pipe(ready), 0);
	pid_t pid = fork();
	if (pid == 0) {
		/* A description of its own: locks on the one that it shares with us would not be seen by us. */
		char path[64];
		struct worker worker;
		snprintf(path, sizeof(path), "/proc/self/fd/%d", shared.map.fd);
		shared.map.fd = open(path, O_RDWR);
		if (worker_register(&shared.map, &worker) != 0 || write(ready[1], &worker.slot, 1) != 1)
			_exit(1);
		pause();
	}
	ck_assert_int_eq(read(ready[0], &byte, 1), 1);
	uint32_t slot = 0;
	while (slot < shared.map.dims.workers && inspect_worker(&shared.map, slot, &w) != 0)
		slot++;
	ck_assert_uint_lt(slot, shared.map.dims.workers);
	ck_assert_int_eq(w.pid, pid);
	ck_assert(w.alive);
	ck_assert(w.same_namespace);
	ck_assert_uint_eq(w.start_ticks, process_start_ticks(pid));
	ck_assert_uint_gt(strlen(w.name), 0);
	struct inspect_daemon d;
	inspect_daemon(&shared.map, &d);
	ck_assert_uint_eq(d.workers, 1);
	kill(pid, SIGKILL);
	fixture_wait(pid);
	ck_assert_int_eq(inspect_worker(&shared.map, slot, &w), 0);
	ck_assert(!w.alive);
	map_close(&shared.map);
}
END_TEST

START_TEST(a_worker_that_has_not_written_who_it_is)
{
	struct inspect_worker w;

	fixture_store(&map_worker(&f.map, 3)->life, 77);
	fixture_store(&map_worker(&f.map, 3)->identity, 76);
	fixture_store(&map_worker(&f.map, 3)->pid, 1);
	ck_assert_int_eq(inspect_worker(&f.map, 3, &w), 0);
	ck_assert_uint_eq(w.life, 77);
	ck_assert_int_eq(w.pid, 0);
	fixture_store(&map_worker(&f.map, 3)->life, UINT64_MAX);
	ck_assert_int_eq(inspect_worker(&f.map, 3, &w), -ENOENT);
}
END_TEST

START_TEST(the_daemon)
{
	struct inspect_daemon d;
	struct segment_daemon *s = f.map.daemon;

	inspect_daemon(&f.map, &d);
	ck_assert(!d.alive);
	ck_assert_str_eq(d.reload_text, "");
	fixture_store(&s->reload_failed, 1);
	fixture_store(&s->heartbeat_ms, 19000);
	fixture_store(&s->pid, 4711);
	const char text[] = "line 3: unknown key";
	for (size_t i = 0; i < sizeof(text); i++)
		atomic_store_explicit(&s->reload_text[i], text[i], memory_order_relaxed);
	inspect_daemon(&f.map, &d);
	ck_assert(d.reload_failed);
	ck_assert_str_eq(d.reload_text, text);
	ck_assert_int_eq(d.pid, 4711);
	ck_assert_uint_eq(d.heartbeat_ms, 19000);
	ck_assert_uint_eq(d.now_ms, 20000);
	fixture_store(&s->reload_sequence, 1); /* rescd died in the middle of writing */
	inspect_daemon(&f.map, &d);
	ck_assert_str_eq(d.reload_text, "");
}
END_TEST

START_TEST(the_lock_of_the_daemon_says_that_it_lives)
{
	struct fixture shared;
	struct inspect_daemon d;

	fixture_open_shared(&shared, NULL);
	inspect_daemon(&shared.map, &d);
	ck_assert(d.alive); /* that is us */
	/* Another description of the same file, as resctl has one. */
	char path[64];
	struct map other = f.map;
	snprintf(path, sizeof(path), "/proc/self/fd/%d", shared.map.fd);
	other.private_mode = false;
	other.access = MAP_READER;
	other.fd = open(path, O_RDONLY);
	other.dev = shared.map.dev;
	other.ino = shared.map.ino;
	ck_assert_int_ge(other.fd, 0);
	inspect_daemon(&other, &d);
	ck_assert(d.alive);
	map_close(&shared.map);
	inspect_daemon(&other, &d);
	ck_assert(!d.alive);
	close(other.fd);
}
END_TEST

/* ---- any bytes ---- */

static void expect_text(const char *text, size_t size)
{
	char copy[RELOAD_TEXT_SIZE];
	size_t length = strnlen(text, size);

	ck_assert_uint_lt(length, size);
	memcpy(copy, text, length + 1);
	for (size_t i = 0; i < length; i++)
		ck_assert_uint_ge((unsigned char)text[i], 0x20);
}

static void expect_possible(const struct inspect_resource *r)
{
	const struct resc_counters *c = &r->counters;

	expect_text(r->name, sizeof(r->name));
	ck_assert_uint_ge(r->breaker, TAG_CLOSED);
	ck_assert_uint_le(r->breaker, TAG_HALF_OPEN);
	ck_assert_uint_le(r->since_ms, r->now_ms);
	ck_assert(r->breaker == TAG_OPEN || (r->due_ms == 0 && !r->probe_due));
	ck_assert_int_lt(r->reason, REASONS);
	ck_assert_int_le(r->override.mode, OVERRIDE_DISABLED);
	ck_assert(r->override.mode == OVERRIDE_NONE || r->override.until_ms == 0 || r->override.until_ms > r->now_ms);
	expect_text(r->override.text, sizeof(r->override.text));
	ck_assert_uint_le(r->window_failures, r->window_calls);
	ck_assert_uint_le(r->window_slow, r->window_calls);
	ck_assert_uint_le(r->probes_out, r->breaker == TAG_HALF_OPEN ? r->policy.probes : 0);
	ck_assert_uint_le(r->in_flight, f.map.dims.permits);
	ck_assert_uint_le(r->retries, r->in_flight);
	ck_assert_uint_le(r->waiting, f.map.dims.waiting);
	ck_assert_double_ge(r->rate_tokens, 0);
	ck_assert_double_le(r->rate_tokens, r->rated ? (double)r->policy.rate_burst : 0);
	ck_assert_uint_le(r->throttle_ppm, r->throttled ? 1000000 : 0);
	ck_assert_uint_le(r->throttle_accepts, r->throttle_requests);
	ck_assert_uint_le(r->throttle_requests, r->throttled ? INT64_MAX : 0);
	ck_assert_uint_le(r->effective, r->limit);
	ck_assert_uint_le(r->limit, f.map.dims.permits);
	ck_assert_double_ge(r->tokens, 0);
	ck_assert_double_le(r->tokens, r->capacity);
	ck_assert_uint_le(c->enters, INT64_MAX);
	uint64_t refused = 0;
#define X(NAME, name, text) refused += c->refused_##name;
	RESC_REFUSALS(X)
#undef X
	ck_assert_uint_eq(c->enters, c->admitted + refused);
	ck_assert_uint_le(r->latency.count, INT64_MAX);
	ck_assert_uint_le(latency_quantile_us(&r->latency, 0.99), UINT64_C(1) << 28);
}

static void look_at_everything(void)
{
	static struct event events[1024];
	static uint32_t lives[256], permits[256];
	struct inspect_resource r;
	struct inspect_worker w;
	struct inspect_daemon d;

	for (uint32_t i = 0; i < f.map.dims.resources; i++) {
		if (inspect_resource(&f.map, i, &r) == 0)
			expect_possible(&r);
		ck_assert_uint_le(inspect_holders(&f.map, i, lives, permits, 256), 256);
	}
	for (uint32_t i = 0; i < f.map.dims.workers; i++) {
		if (inspect_worker(&f.map, i, &w) == 0) {
			ck_assert_int_ge(w.pid, 0);
			expect_text(w.name, sizeof(w.name));
		}
	}
	struct once_usage usage;
	inspect_once(&f.map, &usage);
	ck_assert_uint_eq(usage.size, f.map.dims.once);
	ck_assert_uint_le((uint64_t)usage.working + usage.done + usage.unknown, usage.size);
	ck_assert_uint_le(usage.expired, usage.done + usage.unknown);
	inspect_daemon(&f.map, &d);
	ck_assert_uint_le(d.lookups_refused, INT64_MAX);
	ck_assert_uint_le(d.workers, f.map.dims.workers);
	ck_assert_uint_le(d.resources, f.map.dims.resources);
	ck_assert_uint_le(d.heartbeat_ms, d.now_ms);
	expect_text(d.reload_text, sizeof(d.reload_text));
	expect_text(d.control, sizeof(d.control));
	for (size_t i = event_read(&f.map, 0, events, 1024); i-- > 0;) {
		expect_text(events[i].resource, sizeof(events[i].resource));
		expect_text(events[i].text, sizeof(events[i].text));
	}
}

static void fill(uint64_t (*value)(void))
{
	uint8_t *at = f.map.base + SEGMENT_PAGE;

	for (; at < f.map.base + f.map.size; at += 8) {
		uint64_t w = value();
		memcpy(at, &w, 8);
	}
}

static uint64_t sparse(void)
{
	return random_below(3) != 0 ? 0 : random_next() >> random_below(64);
}
static uint64_t ones(void)
{
	return UINT64_MAX;
}
static uint64_t zeros(void)
{
	return 0;
}

START_TEST(any_bytes_in_the_segment)
{
	look_at_everything();
	fill(zeros);
	look_at_everything();
	fill(ones);
	look_at_everything();
	resc_seed(11);
	for (int i = 0; i < 4; i++) {
		fill(random_next);
		look_at_everything();
		fill(sparse);
		look_at_everything();
	}
}
END_TEST

START_TEST(any_bytes_and_an_operator)
{
	resc_seed(12);
	fill(random_next);
	for (uint32_t i = 0; i < 16; i++) {
		override_set(&f.map, i, OVERRIDE_OPEN, 5, "x");
		override_expire(&f.map, i, 0, TIME_MASK);
		override_release(&f.map, i, "x");
		override_reset(&f.map, i, "x");
	}
	look_at_everything();
}
END_TEST

/* ---- while others write ---- */

static atomic_bool finished;

/* Opens, tries and closes for ever, as a breaker would, with calls that are counted. */
static void *churn(void *arg)
{
	struct shard *mine = shard(*(uint32_t *)arg);

	while (!atomic_load_explicit(&finished, memory_order_acquire)) {
		atomic_fetch_add_explicit(&mine->counters[COUNTER_admitted], 1, memory_order_release);
		uint64_t b = fixture_load(&f.state->breaker);
		uint64_t now = clock_coarse_ms(&f.map);
		static const unsigned next[] = {TAG_OPEN, TAG_OPEN, TAG_HALF_OPEN, TAG_CLOSED};
		unsigned tag = next[breaker_state(b)];
		breaker_transition(&f.map, f.index, b, tag, 0, tag == TAG_OPEN ? now + 1000 : now, REASON_CONSECUTIVE, 0, now, 0, 0);
		atomic_fetch_add_explicit(&mine->counters[COUNTER_ended_fail], 1, memory_order_release);
		fixture_at(&f, now + 1);
	}
	return NULL;
}

START_TEST(A10_no_impossible_combination_while_others_write)
{
	pthread_t threads[2];
	uint32_t shards[2] = {0, 1};
	struct inspect_resource before = look();

	atomic_store(&finished, false);
	for (int i = 0; i < 2; i++)
		pthread_create(&threads[i], NULL, churn, &shards[i]);
	for (int i = 0; i < 2000; i++) {
		struct inspect_resource r = look();
		expect_possible(&r);
		ck_assert(r.breaker != TAG_OPEN || r.due_ms > 0);
		ck_assert_uint_le(r.counters.ended_fail, r.counters.admitted);
		ck_assert_uint_ge(r.counters.admitted, before.counters.admitted);
		ck_assert_uint_ge(r.counters.opened, before.counters.opened);
		ck_assert_uint_ge(r.counters.enters, before.counters.enters);
		before = r;
	}
	atomic_store_explicit(&finished, true, memory_order_release);
	for (int i = 0; i < 2; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(look().counters.ended_fail, look().counters.admitted);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        a_fresh_resource,
	        what_is_not_in_use_is_not_there,
	        K4_open_with_no_traffic,
	        times_are_derived_where_the_winner_died,
	        a_prepared_word_is_what_it_stands_for,
	        cooldowns_grow_to_their_limit,
	        probes_that_are_out,
	        a_streak_of_this_generation,
	        the_bulkhead,
	        retries_are_counted_among_the_calls_inside,
	        a_bulkhead_in_shadow_mode_shows_the_limit_that_it_would_have,
	        each_part_of_a_policy_has_its_mode,
	        holders_by_life,
	        B2_a_window_is_ten_ticks_and_no_longer,
	        a_window_at_the_beginning_of_time,
	        ticks_are_rounded_up,
	        any_time_is_safe,
	        counters_are_summed_and_add_up,
	        counters_saturate_together,
	        latencies_are_summed,
	        a_worker_and_its_death,
	        a_worker_that_has_not_written_who_it_is,
	        the_daemon,
	        the_lock_of_the_daemon_says_that_it_lives,
	        any_bytes_in_the_segment,
	        any_bytes_and_an_operator,
	        A10_no_impossible_combination_while_others_write,
	};

	return FIXTURE_RUN("inspect", tests, set_up, tear_down);
}
