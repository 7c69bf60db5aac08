/* SPDX-License-Identifier: MIT */
/*
 * The record of a transition: reason, counter and event of each, exactly once, wherever its author dies or stops, and whoever comes next;
 * with what the author would have said.
 */
#include "transition.h"

#include "event.h"
#include "move.h"
#include "named.h"
#include "override.h"
#include "states.h"
#include "worker.h"

static struct named n;
static struct event events[1024];

static struct policy opens_at_once(void)
{
	struct policy p;

	policy_private(&p);
	p.failure_rate_ppm = 0;
	p.consecutive = 1;
	return p;
}

static void set_up(void)
{
	const struct segment_dims dims = {
	        .resources = 16, .workers = 16, .permits = 64, .shards = 8, .events = 1024, .calls = 64, .waiting = 16, .once = 16};
	struct policy p = opens_at_once();

	named_open_with(&n, &dims, &p);
}

static void tear_down(void)
{
	named_close(&n);
}

/* ---- what was recorded ---- */

static struct state *state_in(const struct map *map)
{
	return map_state(map, n.index);
}

static struct inspect_resource look_at(const struct map *map)
{
	struct inspect_resource r;

	ck_assert_int_eq(inspect_resource(map, n.index, &r), 0);
	return r;
}

/* The event of that transition; it is there once. */
static struct event event_of(const struct map *map, uint16_t generation)
{
	struct event found = {0};
	unsigned times = 0;

	for (size_t i = event_read(map, 0, events, 1024); i-- > 0;) {
		if (events[i].kind == EVENT_BREAKER && events[i].generation == generation) {
			found = events[i];
			times++;
		}
	}
	ck_assert_uint_eq(times, 1);
	return found;
}

/* Places of the ring that have it: more than one where its first record was not known to be complete. */
static unsigned places_with(const struct map *map, uint16_t generation)
{
	unsigned count = 0;

	for (uint32_t i = 0; i < map->dims.events; i++) {
		uint64_t stamp = fixture_load(&map_event(map, i)->stamp);
		uint64_t kind = fixture_load(&map_event(map, i)->kind);
		count += stamp != 0 && (stamp & EVENT_BUSY) == 0 && (kind & 0xff) == EVENT_BREAKER && kind >> 32 == generation;
	}
	return count;
}

static uint16_t generation_in(const struct map *map)
{
	return breaker_generation(fixture_load(&state_in(map)->breaker));
}

/* The puppet has opened it, as generation 2 at 1000 ms, and all that belongs to it is there. */
static void expect_opened_by(const struct puppet *p)
{
	struct event e = event_of(&n.map, 2);

	ck_assert_uint_eq(e.from, TAG_CLOSED);
	ck_assert_uint_eq(e.to, TAG_OPEN);
	ck_assert_int_eq(e.reason, REASON_CONSECUTIVE);
	ck_assert_uint_eq(e.value[0], 1);
	ck_assert_uint_eq(e.value[1], 1);
	ck_assert_uint_eq(e.ms, 1000);
	ck_assert_int_eq(e.pid, p->pid);
	ck_assert_uint_eq(e.uid, getuid());
	ck_assert_str_eq(e.resource, "payments");
	ck_assert_uint_eq(named_look(&n).counters.opened, 1);
	ck_assert_uint_eq(recorded_generation(fixture_load(&n.state->recorded)), generation_in(&n.map));
}

/* ---- authors ---- */

static void fail_at(struct puppet *p, const char *point, const char *action)
{
	char failpoint[64];

	snprintf(failpoint, sizeof(failpoint), "%s=%s", point, action);
	*p = puppet_start(n.instance, failpoint);
	ck_assert_int_eq(puppet_enter(p, 0), 0);
	puppet_tell(p, PUPPET_LEAVE, 0, RESC_FAIL);
}

static struct puppet killed_at(const char *point)
{
	struct puppet p;

	fail_at(&p, point, "kill");
	ck_assert_int_eq(fixture_wait(p.pid), -SIGKILL);
	puppet_close(&p);
	return p;
}

static struct puppet stopped_at(const char *point)
{
	struct puppet p;

	fail_at(&p, point, "stop");
	puppet_wait_stopped(&p);
	return p;
}

static void let_finish(struct puppet *p)
{
	kill(p->pid, SIGCONT);
	int64_t answer = puppet_answer(p);
	ck_assert(answer == 0 || answer == RESC_STALE);
}

static bool move_to(unsigned tag, enum reason reason)
{
	return breaker_transition(&n.map, n.index, fixture_load(&n.state->breaker), tag, 0, 2000, reason, 0, 2000, 0, 0);
}

/* ---- who comes next ---- */

static void next_transition(void)
{
	ck_assert(move_to(TAG_HALF_OPEN, REASON_COOLDOWN_OVER));
	ck_assert_uint_eq(event_of(&n.map, 3).from, TAG_OPEN);
	ck_assert_uint_eq(named_look(&n).counters.half_opened, 1);
}

static void turn_of_rescd(void)
{
	states_tick(&n.map);
}

static void reap(void)
{
	worker_sweep(&n.map, 0);
}

static void reset_by_an_operator(void)
{
	ck_assert_int_eq(override_reset(&n.map, n.index, ""), 0);
	ck_assert_int_eq(event_of(&n.map, 3).reason, REASON_RESET);
}

static void force_by_an_operator(void)
{
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 0, ""), 0);
}

static const struct {
	void (*comes)(void);
	bool only_for_the_dead;
} next[] = {{next_transition, false}, {turn_of_rescd, false}, {reap, true}, {reset_by_an_operator, false}, {force_by_an_operator, false}};
#define NEXT (int)(sizeof(next) / sizeof(next[0]))

static const char *const points[] = {"transition.won", "transition.explained", "transition.recorded",
                                     "event.claimed",  "event.filled",         "transition.event"};
#define POINTS (int)(sizeof(points) / sizeof(points[0]))

START_TEST(F7_the_record_of_a_dead_author_is_completed_by_whoever_comes_next)
{
	struct puppet p = killed_at(points[_i % POINTS]);

	ck_assert_uint_eq(generation_in(&n.map), 2);
	next[_i / POINTS].comes();
	expect_opened_by(&p);
	turn_of_rescd();
	expect_opened_by(&p);
}
END_TEST

START_TEST(F7_an_author_that_was_stopped_adds_nothing_to_a_record_that_others_completed)
{
	const char *point = points[_i % POINTS];

	if (next[_i / POINTS].only_for_the_dead)
		return;
	struct puppet p = stopped_at(point);
	next[_i / POINTS].comes();
	expect_opened_by(&p);
	let_finish(&p);
	expect_opened_by(&p);
	ck_assert(move_to(TAG_CLOSED, REASON_RESET));
	expect_opened_by(&p);
	/* Who has filled its place, or written the event, has written it: the reader gives it once. */
	bool wrote = strcmp(point, "event.filled") == 0 || strcmp(point, "transition.event") == 0;
	ck_assert_uint_eq(places_with(&n.map, 2), wrote ? 2 : 1);
	puppet_quit(&p);
}
END_TEST

START_TEST(F7_a_death_before_the_transition_leaves_nothing)
{
	static const char *const before[] = {"transition.claimed", "transition.proposed"};
	struct puppet p = killed_at(before[_i]);

	turn_of_rescd();
	ck_assert_uint_eq(generation_in(&n.map), 1);
	/* The transition that it did not come to is made by another, and is that one's. */
	struct puppet other = puppet_start(n.instance, NULL);
	ck_assert_int_eq(puppet_enter(&other, 0), 0);
	ck_assert_int_eq(puppet_leave(&other, 0, RESC_FAIL), 0);
	struct event e = event_of(&n.map, 2);
	ck_assert_int_eq(e.pid, other.pid);
	ck_assert_int_ne(e.pid, p.pid);
	ck_assert_uint_eq(named_look(&n).counters.opened, 1);
	puppet_quit(&other);
}
END_TEST

START_TEST(many_who_were_stopped_in_the_same_transition_do_not_hide_the_reason_of_its_author)
{
	/* As many as there are places have proposed and lost; then the author dies before it has recorded anything. */
	struct puppet losers[PROPOSALS - 1];

	for (unsigned i = 0; i < PROPOSALS - 1; i++) {
		named_at(&n, 800 + i); /* another due time: another word */
		losers[i] = stopped_at("transition.proposed");
	}
	named_at(&n, 1000);
	struct puppet p = killed_at("transition.won");
	for (unsigned i = 0; i < PROPOSALS - 1; i++) {
		let_finish(&losers[i]);
		puppet_quit(&losers[i]);
	}
	turn_of_rescd();
	struct event e = event_of(&n.map, 2);
	ck_assert_int_eq(e.pid, p.pid);
	ck_assert_uint_eq(e.ms, 1000);
	ck_assert_int_eq(e.reason, REASON_CONSECUTIVE);
}
END_TEST

START_TEST(more_than_there_are_places_leave_a_record_without_a_reason)
{
	struct puppet losers[PROPOSALS];

	for (unsigned i = 0; i < PROPOSALS; i++) {
		named_at(&n, 800 + i);
		losers[i] = stopped_at("transition.proposed");
	}
	named_at(&n, 1000);
	killed_at("transition.won");
	turn_of_rescd();
	struct event e = event_of(&n.map, 2);
	ck_assert_int_eq(e.reason, REASON_NONE);
	ck_assert_uint_eq(e.to, TAG_OPEN);
	ck_assert_uint_eq(named_look(&n).counters.opened, 1);
	for (unsigned i = 0; i < PROPOSALS; i++) {
		let_finish(&losers[i]);
		puppet_kill(&losers[i]);
	}
}
END_TEST

START_TEST(a_proposal_of_another_word_is_not_believed)
{
	uint64_t w = fixture_load(&n.state->breaker);
	struct puppet loser = stopped_at("transition.proposed");

	/* An operator's reset was faster, and was killed before it could say anything, also before. */
	fixture_store(&n.state->breaker, breaker_make(TAG_CLOSED, 0, breaker_generation(w) + 1u, 1500));
	turn_of_rescd();
	struct event e = event_of(&n.map, 2);
	ck_assert_int_eq(e.reason, REASON_NONE);
	ck_assert_uint_eq(e.to, TAG_CLOSED);
	ck_assert_uint_eq(e.ms, 1500);
	ck_assert_uint_eq(named_look(&n).counters.closed, 0); /* it was closed before */
	puppet_kill(&loser);
}
END_TEST

START_TEST(a_proposal_whose_words_do_not_belong_together_is_not_believed)
{
	killed_at("transition.won");
	for (unsigned i = 0; i < PROPOSALS; i++) {
		word *numbers = &n.state->proposals[i].numbers;
		fixture_store(numbers, fixture_load(numbers) + 1);
	}
	turn_of_rescd();
	struct event e = event_of(&n.map, 2);
	ck_assert_int_eq(e.reason, REASON_NONE);
	ck_assert_uint_eq(e.value[0], 0);
	ck_assert_uint_eq(named_look(&n).counters.opened, 1);
}
END_TEST

/* ---- into another segment ---- */

static struct map successor(void)
{
	struct resc_error err;
	struct map to;

	ck_assert_msg(map_create(&to, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	record_publish_moved(&to, n.index, "payments", &n.policy, false);
	return to;
}

static void move(const struct map *to)
{
	move_words(&n.map, n.state, to, state_in(to));
	move_carry(&n.map, n.state, to, state_in(to));
}

START_TEST(F7_a_record_is_complete_before_its_transition_moves_to_a_successor)
{
	struct puppet p = killed_at(points[_i]);
	struct map to = successor();

	move(&to);
	move(&to);
	ck_assert_uint_eq(generation_in(&to), 2);
	ck_assert_int_eq(event_of(&n.map, 2).pid, p.pid);
	struct inspect_resource r = look_at(&to);
	ck_assert_uint_eq(r.counters.opened, 1);
	ck_assert_int_eq(r.reason, REASON_CONSECUTIVE);
	ck_assert_uint_eq(r.since_ms, 1000);
	/* And the next one there goes on from it. */
	states_tick(&to);
	uint64_t w = fixture_load(&state_in(&to)->breaker);
	ck_assert(breaker_transition(&to, n.index, w, TAG_HALF_OPEN, 0, 2000, REASON_COOLDOWN_OVER, 0, 2000, 0, 0));
	ck_assert_uint_eq(event_of(&to, 3).from, TAG_OPEN);
	ck_assert_uint_eq(look_at(&to).counters.opened, 1);
	ck_assert_uint_eq(look_at(&to).counters.half_opened, 1);
	map_close(&to);
}
END_TEST

START_TEST(F7_an_author_that_was_stopped_while_its_transition_moved_adds_nothing)
{
	struct puppet p = stopped_at(points[_i]);
	struct map to = successor();

	move(&to);
	uint64_t w = fixture_load(&state_in(&to)->breaker);
	ck_assert(breaker_transition(&to, n.index, w, TAG_HALF_OPEN, 0, 2000, REASON_COOLDOWN_OVER, 0, 2000, 0, 0));
	let_finish(&p);
	move(&to);
	states_tick(&to);
	struct inspect_resource r = look_at(&to);
	ck_assert_uint_eq(r.counters.opened, 1);
	ck_assert_uint_eq(r.counters.half_opened, 1);
	ck_assert_int_eq(r.reason, REASON_COOLDOWN_OVER);
	ck_assert_uint_eq(recorded_generation(fixture_load(&state_in(&to)->recorded)), 3);
	map_close(&to);
	puppet_kill(&p);
}
END_TEST

/* ---- several at once ---- */

#define TRANSITIONS 150 /* of each author; all of them fit into the ring, also if some are there twice */

_Noreturn static void make_transitions(unsigned i)
{
	struct resc_error err;
	struct worker worker = {0};
	struct map map; /* of its own, and with it a token of its own */

	if (map_open(&map, n.path, MAP_WORKER, &err) != 0 || worker_register(&map, &worker) != 0)
		_exit(1);
	for (unsigned made = 0; made < TRANSITIONS;) {
		uint64_t w = fixture_load(&state_in(&map)->breaker);
		unsigned tag = breaker_state(w) % 3 + 1;
		made += breaker_transition(&map, n.index, w, tag, 0, made, REASON_RESET, worker.life, made, made, i);
	}
	_exit(0);
}

START_TEST(each_transition_of_many_authors_is_recorded_once)
{
	pid_t pids[3];

	for (unsigned i = 0; i < 3; i++) {
		pids[i] = fork();
		if (pids[i] == 0)
			make_transitions(i);
	}
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(fixture_wait(pids[i]), 0);
	ck_assert_uint_eq(generation_in(&n.map), 3 * TRANSITIONS + 1);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.counters.opened, TRANSITIONS);
	ck_assert_uint_eq(r.counters.half_opened, TRANSITIONS);
	ck_assert_uint_eq(r.counters.closed, TRANSITIONS);
	for (uint16_t generation = 2; generation <= 3 * TRANSITIONS + 1; generation++)
		event_of(&n.map, generation);
}
END_TEST

int main(void)
{
	TCase *tcase = tcase_create("transition");

	tcase_add_checked_fixture(tcase, set_up, tear_down);
	tcase_set_timeout(tcase, 120);
	tcase_add_loop_test(tcase, F7_the_record_of_a_dead_author_is_completed_by_whoever_comes_next, 0, NEXT * POINTS);
	tcase_add_loop_test(tcase, F7_an_author_that_was_stopped_adds_nothing_to_a_record_that_others_completed, 0, NEXT * POINTS);
	tcase_add_loop_test(tcase, F7_a_death_before_the_transition_leaves_nothing, 0, 2);
	tcase_add_test(tcase, many_who_were_stopped_in_the_same_transition_do_not_hide_the_reason_of_its_author);
	tcase_add_test(tcase, more_than_there_are_places_leave_a_record_without_a_reason);
	tcase_add_test(tcase, a_proposal_of_another_word_is_not_believed);
	tcase_add_test(tcase, a_proposal_whose_words_do_not_belong_together_is_not_believed);
	tcase_add_loop_test(tcase, F7_a_record_is_complete_before_its_transition_moves_to_a_successor, 0, POINTS);
	tcase_add_loop_test(tcase, F7_an_author_that_was_stopped_while_its_transition_moved_adds_nothing, 0, POINTS);
	tcase_add_test(tcase, each_transition_of_many_authors_is_recorded_once);
	return named_run(fixture_suite("transition", tcase));
}
