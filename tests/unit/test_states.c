/* SPDX-License-Identifier: MIT */
/* What rescd's turn of each second does for resources that nobody calls. */
#include "states.h"

#include "event.h"
#include "fixture.h"
#include "inspect.h"
#include "override.h"
#include "permit.h"

static struct fixture f;

static void set_up(void)
{
	fixture_open_shared(&f, NULL);
	fixture_at(&f, 1000);
}

static void tear_down(void)
{
	map_close(&f.map);
}

static unsigned count_transitions(uint16_t generation, struct event *last)
{
	static struct event events[64];
	size_t count = event_read(&f.map, 0, events, 64);
	unsigned found = 0;

	for (size_t i = 0; i < count; i++)
		if (events[i].kind == EVENT_BREAKER && events[i].generation == generation) {
			*last = events[i];
			found++;
		}
	return found;
}

/* A winner that died right after its CAS. */
static void move_breaker(unsigned tag)
{
	uint64_t w = fixture_load(&f.state->breaker);

	fixture_store(&f.state->breaker, breaker_make(tag, 0, breaker_generation(w) + 1u, 5000));
}

START_TEST(F7_the_event_of_a_dead_winner_is_written_once)
{
	uint16_t generation = (uint16_t)(breaker_generation(fixture_load(&f.state->breaker)) + 1);
	struct event event;

	states_tick(&f.map);
	move_breaker(TAG_OPEN);
	states_tick(&f.map);
	ck_assert_uint_eq(count_transitions(generation, &event), 1);
	ck_assert_uint_eq(event.from, TAG_CLOSED);
	ck_assert_uint_eq(event.to, TAG_OPEN);
	ck_assert_str_eq(event.resource, "payments");
	states_tick(&f.map);
	states_tick(&f.map);
	ck_assert_uint_eq(count_transitions(generation, &event), 1);
}
END_TEST

START_TEST(A1_an_overdue_probe_that_nobody_asks_for_is_freed)
{
	uint64_t timeout_ms = f.policy.probe_timeout_ms;
	uint16_t generation;
	struct inspect_resource r;

	move_breaker(TAG_HALF_OPEN);
	generation = breaker_generation(fixture_load(&f.state->breaker));
	fixture_store(&f.state->recorded, recorded_make(TAG_HALF_OPEN, generation));
	fixture_store(&f.state->probes[0], probe_make(7, generation, 1000));
	fixture_at(&f, 1000 + timeout_ms);
	states_tick(&f.map);
	ck_assert_uint_ne(fixture_load(&f.state->probes[0]), 0);
	fixture_at(&f, 1001 + timeout_ms);
	states_tick(&f.map);
	ck_assert_uint_eq(fixture_load(&f.state->probes[0]), 0);
	ck_assert_int_eq(inspect_resource(&f.map, f.index, &r), 0);
	ck_assert_uint_eq(r.counters.probes_reclaimed, 1);
}
END_TEST

START_TEST(a_probe_of_this_very_moment_is_not_overdue)
{
	move_breaker(TAG_HALF_OPEN);
	/* granted a millisecond after the time that the tick will read: 24 bits make that a great age */
	fixture_store(&f.state->probes[0], probe_make(7, breaker_generation(fixture_load(&f.state->breaker)), 1001));
	states_tick(&f.map);
	ck_assert_uint_ne(fixture_load(&f.state->probes[0]), 0);
}
END_TEST

START_TEST(F7_the_verdict_of_a_trial_is_drawn_without_calls)
{
	move_breaker(TAG_HALF_OPEN);
	uint16_t generation = breaker_generation(fixture_load(&f.state->breaker));

	fixture_store(&f.state->tally, tally_make(generation, (unsigned)f.policy.successes - 1, 0, 0));
	states_tick(&f.map);
	ck_assert_uint_eq(breaker_tag(fixture_load(&f.state->breaker)), TAG_HALF_OPEN);
	fixture_store(&f.state->tally, tally_make(generation, (unsigned)f.policy.successes, 0, 0));
	states_tick(&f.map);
	ck_assert_uint_eq(breaker_tag(fixture_load(&f.state->breaker)), TAG_CLOSED);
}
END_TEST

START_TEST(an_override_ends_without_calls)
{
	ck_assert_int_eq(override_set(&f.map, f.index, OVERRIDE_OPEN, 2000, "vendor maintenance"), 0);
	fixture_at(&f, 2999);
	states_tick(&f.map);
	ck_assert_int_eq(override_mode(fixture_load(&f.state->override)), OVERRIDE_OPEN);
	fixture_at(&f, 3000);
	states_tick(&f.map);
	ck_assert_int_eq(override_mode(fixture_load(&f.state->override)), OVERRIDE_NONE);
}
END_TEST

START_TEST(C5_a_lowered_limit_settles_without_calls)
{
	uint32_t cell;

	permit_set_limit(&f.map, f.state, 4);
	ck_assert_int_eq(permit_acquire(&f.map, f.state, permit_make(7, 1), 3, &cell), 0);
	permit_set_limit(&f.map, f.state, 1);
	ck_assert_uint_eq(limit_effective(fixture_load(&f.state->limit)), 0);
	states_tick(&f.map);
	ck_assert_uint_eq(limit_effective(fixture_load(&f.state->limit)), 0);
	ck_assert(permit_release(&f.map, f.state, cell, permit_make(7, 1)));
	states_tick(&f.map);
	ck_assert_uint_eq(limit_effective(fixture_load(&f.state->limit)), 1);
}
END_TEST

START_TEST(a_turn_over_any_bytes_ends)
{
	unsigned seed = 1;

	for (int round = 0; round < 50; round++) {
		uint8_t *bytes = (uint8_t *)f.state;

		for (size_t i = 0; i < f.map.state_size; i++)
			bytes[i] = (uint8_t)rand_r(&seed);
		states_tick(&f.map);
		states_tick(&f.map);
	}
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        F7_the_event_of_a_dead_winner_is_written_once,
	        A1_an_overdue_probe_that_nobody_asks_for_is_freed,
	        F7_the_verdict_of_a_trial_is_drawn_without_calls,
	        a_probe_of_this_very_moment_is_not_overdue,
	        an_override_ends_without_calls,
	        C5_a_lowered_limit_settles_without_calls,
	        a_turn_over_any_bytes_ends,
	};

	return FIXTURE_RUN("states", tests, set_up, tear_down);
}
