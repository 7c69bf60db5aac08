/* SPDX-License-Identifier: MIT */
/*
 * One request of a rehearsal, played on a real segment: chains, retries, refusals, keys, patience and the end, and what is noted of them.
 * The dependency is a script.
 */
#include "rehearse/play.h"

#include <errno.h>
#include <signal.h>

#include "injection.h"
#include "named.h"

#define MS      INT64_C(1000000)
#define OFFERED 4

enum { EDGE, MIDDLE, PAYMENTS, RESOURCES };
static const char *const names[RESOURCES] = {"edge", "middle", "payments"};

static struct named n;
static resc *host;
static resc_resource *resources[RESOURCES];
static struct policy policies[RESOURCES];
static int64_t arrivals[OFFERED];
static struct load load;
static struct scenario scenario;
static struct player player;

/* ---- a dependency that follows a script ---- */

static struct {
	struct call_result answers[40]; /* of its calls; the last one goes on */
	unsigned count;
	unsigned calls;
	struct call seen[40];
	int64_t takes_ns;
	bool ends; /* the rehearsal, in the middle of a call */
} script;

struct call_result caller_call(struct caller *caller, unsigned dependency, const struct call *call)
{
	unsigned i = script.calls++;

	(void)caller;
	ck_assert_uint_eq(dependency, 0);
	if (i < 40)
		script.seen[i] = *call;
	board_sleep_until(player.board, board_now(player.board) + script.takes_ns);
	if (!script.ends)
		return script.answers[i < script.count ? i : script.count - 1];
	board_end(player.board);
	return (struct call_result){RESC_CANCELLED, -1, false};
}

struct caller *caller_new(const struct scenario *unused, struct board *board)
{
	(void)unused;
	(void)board;
	return NULL;
}

void caller_free(struct caller *caller)
{
	(void)caller;
}

static void answers(enum resc_outcome outcome)
{
	script.answers[script.count++] = (struct call_result){outcome, -1, false};
}

/* ---- the scene ---- */

static struct policy plain(void)
{
	struct policy p;

	policy_private(&p);
	p.flags &= ~(uint64_t)POLICY_BREAKER;
	p.flags |= POLICY_RETRY;
	p.attempts = 3;
	p.backoff = BACKOFF_NONE;
	return p;
}

/* The segment has the policies as they are now. */
static void raise_curtain(void)
{
	const struct segment_dims dims = {
	        .resources = 4, .workers = 16, .permits = 64, .shards = 8, .events = 64, .calls = 64, .waiting = 64, .once = 64};

	named_open_with(&n, &dims, &policies[PAYMENTS]);
	named_add(&n, "edge", &policies[EDGE]);
	named_add(&n, "middle", &policies[MIDDLE]);
	host = named_join(n.instance);
	for (int i = 0; i < RESOURCES; i++)
		resources[i] = named_lookup(host, names[i]);
	player.board = board_new(&scenario);
	ck_assert_ptr_nonnull(player.board);
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	board_start(player.board, t.tv_sec * INT64_C(1000000000) + t.tv_nsec);
}

static void set_up(void)
{
	memset(&script, 0, sizeof(script));
	for (int i = 0; i < RESOURCES; i++)
		policies[i] = plain();
	load = (struct load){.name = "users",
	                     .chain = {PAYMENTS},
	                     .chain_count = 1,
	                     .arrivals = ARRIVALS_AT,
	                     .at = arrivals,
	                     .at_count = OFFERED,
	                     .retries = true};
	scenario = (struct scenario){.loads = &load, .load_count = 1, .duration_ns = 1000000 * MS, .slowest_attempts = 100};
	for (int i = 0; i < RESOURCES; i++)
		snprintf(scenario.resources[i], sizeof(scenario.resources[i]), "%s", names[i]);
	scenario.resource_count = RESOURCES;
	player = (struct player){.scenario = &scenario, .worker = 7, .resources = resources};
}

static void use_chain(void)
{
	for (uint32_t i = 0; i < RESOURCES; i++)
		load.chain[i] = i;
	load.chain_count = RESOURCES;
}

static struct inspect_resource look_at(int resource)
{
	struct inspect_resource r;

	ck_assert_int_eq(inspect_resource(&n.map, (uint32_t)policy_find(&n.map, names[resource]), &r), 0);
	return r;
}

static void tear_down(void)
{
	for (int i = 0; i < RESOURCES; i++)
		ck_assert_uint_eq(look_at(i).in_flight, 0); /* whatever happened, nothing is held */
	resc_close(host);
	named_close(&n);
	board_free(player.board);
}

static const struct request_note *played(unsigned i)
{
	ck_assert_int_eq(play(&player, &player.board->requests[i]), 0);
	return &player.board->requests[i];
}

static void is_played(unsigned i, enum served served)
{
	const struct request_note *note = played(i);

	ck_assert_uint_eq(note->served, served);
	ck_assert_uint_eq(atomic_load(&note->done), 1);
	ck_assert_uint_eq(note->worker, 7);
	ck_assert_uint_eq(atomic_load(&player.board->served[served]), 1);
}

static unsigned attempts(void)
{
	return atomic_load(&player.board->attempts);
}

static const struct attempt_note *attempt_at(unsigned i)
{
	ck_assert_uint_lt(i, attempts());
	return &player.board->attempt_notes[i];
}

/* ---- one layer ---- */

START_TEST(an_answer_is_served_and_noted)
{
	policies[PAYMENTS].flags |= POLICY_TIMEOUT;
	policies[PAYMENTS].timeout_attempt_ms = 70;
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FRESH);
	const struct attempt_note *note = attempt_at(0);
	ck_assert_uint_eq(attempts(), 1);
	ck_assert_int_eq(note->answer, 0);
	ck_assert_int_eq(note->retry, -1);
	ck_assert_int_eq(note->wait_ns, -1);
	ck_assert_uint_eq(note->outcome, RESC_OK);
	ck_assert_uint_eq(note->try, 1);
	ck_assert_uint_eq(note->resource, PAYMENTS);
	ck_assert_int_le(note->asked_ns, note->entered_ns);
	ck_assert_int_le(note->entered_ns, note->ended_ns);
	ck_assert_uint_eq(atomic_load(&note->done), 1);
	ck_assert_int_eq(script.seen[0].timeout_ms, 70);
	ck_assert_uint_eq(player.board->requests[0].attempts, 1);
}
END_TEST

START_TEST(it_is_tried_until_it_works)
{
	answers(RESC_FAIL);
	answers(RESC_TIMEOUT);
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FRESH);
	ck_assert_uint_eq(script.calls, 3);
	ck_assert_int_eq(attempt_at(0)->retry, 0);
	ck_assert_int_eq(attempt_at(1)->wait_ns, 0);
	ck_assert_uint_eq(attempt_at(2)->try, 3);
	ck_assert_int_eq(player.board->requests[0].answer, 0);
	ck_assert_uint_eq(look_at(PAYMENTS).counters.retries, 2);
}
END_TEST

START_TEST(when_attempts_are_used_up_it_has_failed)
{
	answers(RESC_FAIL);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 3);
	ck_assert_int_eq(attempt_at(2)->retry, RESC_E_ATTEMPTS);
	ck_assert_int_eq(player.board->requests[0].answer, RESC_E_ATTEMPTS);
}
END_TEST

START_TEST(a_load_without_retries_asks_once)
{
	load.retries = false;
	answers(RESC_FAIL);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 1);
	ck_assert_int_eq(attempt_at(0)->retry, -1);
}
END_TEST

START_TEST(the_dependencys_word_is_waited_for)
{
	script.answers[script.count++] = (struct call_result){RESC_FAIL, 5, true};
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FRESH);
	ck_assert_int_eq(attempt_at(0)->wait_ns, 5 * MS);
	ck_assert(attempt_at(0)->during_fault);
	ck_assert(!attempt_at(1)->during_fault);
	ck_assert_int_ge(attempt_at(1)->asked_ns, attempt_at(0)->ended_ns + 5 * MS);
}
END_TEST

START_TEST(a_refusal_calls_nobody_and_its_fallback_is_counted)
{
	resc_ticket held;

	policies[PAYMENTS].flags |= POLICY_BULKHEAD;
	policies[PAYMENTS].limit = 1;
	strcpy(load.fallback, "stale");
	raise_curtain();
	ck_assert_int_eq(resc_enter(resources[PAYMENTS], NULL, &held), 0);
	is_played(0, SERVED_FALLBACK);
	ck_assert_int_eq(resc_leave(&held, RESC_OK), 0);
	ck_assert_uint_eq(script.calls, 0);
	ck_assert_int_eq(attempt_at(0)->answer, RESC_E_FULL);
	ck_assert_int_eq(player.board->requests[0].answer, RESC_E_FULL);
	ck_assert_uint_eq(player.board->requests[0].attempts, 0);
	ck_assert_uint_eq(look_at(PAYMENTS).counters.fallback_stale, 1);
}
END_TEST

START_TEST(a_past_deadline_is_refused)
{
	load.deadline_ns = 1;
	raise_curtain();
	named_at(&n, 100000);
	is_played(0, SERVED_FAILED);
	ck_assert_int_eq(attempt_at(0)->answer, RESC_E_DEADLINE);
}
END_TEST

START_TEST(an_injected_failure_is_an_attempt_that_failed)
{
	policies[PAYMENTS].flags |= POLICY_INJECTION;
	raise_curtain();
	const struct injection injection = {.fail_ppm = 1000000};
	ck_assert_int_eq(injection_set(&n.map, (uint32_t)policy_find(&n.map, "payments"), &injection, 60000, "a rehearsal"), 0);
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 0);
	ck_assert_uint_eq(attempts(), 3);
	ck_assert(attempt_at(0)->injected);
	ck_assert_int_eq(attempt_at(0)->answer, 0);
	ck_assert_uint_eq(attempt_at(0)->outcome, RESC_FAIL);
	ck_assert_uint_eq(player.board->requests[0].attempts, 3);
}
END_TEST

START_TEST(work_without_a_dependency_takes_its_time)
{
	load.dependency = -1;
	load.work_ns = 3 * MS;
	raise_curtain();
	is_played(0, SERVED_FRESH);
	ck_assert_int_ge(attempt_at(0)->ended_ns, attempt_at(0)->entered_ns + 3 * MS);
}
END_TEST

START_TEST(work_is_cut_off_by_the_timeout)
{
	load.dependency = -1;
	load.work_ns = 1000000 * MS;
	load.retries = false;
	policies[PAYMENTS].flags |= POLICY_TIMEOUT;
	policies[PAYMENTS].timeout_attempt_ms = 2;
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(attempt_at(0)->outcome, RESC_TIMEOUT);
}
END_TEST

/* ---- chains ---- */

START_TEST(each_layer_multiplies_the_attempts)
{
	use_chain();
	answers(RESC_FAIL);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 27);
	ck_assert_uint_eq(attempts(), 3 + 9 + 27);
	ck_assert_uint_eq(player.board->requests[0].attempts, 3 + 9 + 27);
	ck_assert_uint_eq(script.seen[26].try, 27);
	ck_assert_uint_eq(look_at(MIDDLE).counters.admitted, 9);
}
END_TEST

START_TEST(when_the_edge_alone_retries_it_is_three)
{
	use_chain();
	load.retried_upstream = true;
	answers(RESC_FAIL);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 3);
	ck_assert_uint_eq(look_at(PAYMENTS).counters.retry_upstream, 3);
	ck_assert_uint_eq(look_at(EDGE).counters.retries, 2);
}
END_TEST

START_TEST(no_layer_has_more_time_than_the_one_above)
{
	use_chain();
	policies[EDGE].flags |= POLICY_TIMEOUT;
	policies[EDGE].timeout_attempt_ms = 300;
	policies[MIDDLE].flags |= POLICY_TIMEOUT;
	policies[MIDDLE].timeout_total_ms = 200;
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FRESH);
	ck_assert_int_gt(script.seen[0].timeout_ms, 0);
	ck_assert_int_le(script.seen[0].timeout_ms, 200);
}
END_TEST

START_TEST(a_time_out_goes_up_as_one_and_a_refusal_as_a_failure)
{
	use_chain();
	load.retries = false;
	answers(RESC_TIMEOUT);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(look_at(EDGE).counters.ended_timeout, 1);
	resc_ticket held;
	policies[PAYMENTS].flags |= POLICY_BULKHEAD;
	policies[PAYMENTS].limit = 1;
	n.index = (uint32_t)policy_find(&n.map, "payments");
	named_reload(&n, &policies[PAYMENTS]);
	ck_assert_int_eq(resc_enter(resources[PAYMENTS], NULL, &held), 0);
	ck_assert_uint_eq(played(1)->served, SERVED_FAILED);
	ck_assert_int_eq(resc_leave(&held, RESC_OK), 0);
	ck_assert_uint_eq(look_at(EDGE).counters.ended_fail, 1);
}
END_TEST

/* ---- patience ---- */

START_TEST(who_has_gone_got_nothing_and_the_work_went_on)
{
	load.patience_ns = 2 * MS;
	strcpy(load.fallback, "stale");
	script.takes_ns = 10 * MS;
	answers(RESC_FAIL);
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_LATE);
	ck_assert_uint_eq(script.calls, 2);
	ck_assert_int_eq(player.board->requests[0].ended_ns, 2 * MS);
	ck_assert_uint_eq(look_at(PAYMENTS).counters.fallback_stale, 0);
}
END_TEST

/* ---- keys ---- */

static void use_keys(enum keyed keyed)
{
	load.keyed = keyed;
	load.retries = false;
	policies[PAYMENTS].flags |= POLICY_ONCE;
	policies[PAYMENTS].once_ttl_ms = 60000;
}

START_TEST(a_key_stored_before_the_work_is_worked_on_once)
{
	char key[] = "order-1";

	load.key = key;
	use_keys(KEYED_BEFORE);
	answers(RESC_FAIL);
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FAILED); /* nothing was done: the key is free */
	is_played(1, SERVED_FRESH);
	is_played(2, SERVED_STORED);
	ck_assert_uint_eq(script.calls, 2);
}
END_TEST

START_TEST(of_work_that_timed_out_nobody_knows_so_its_key_stays_in_work)
{
	char key[] = "order-1";

	load.key = key;
	use_keys(KEYED_BEFORE);
	answers(RESC_TIMEOUT);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_int_eq(played(1)->answer, RESC_ONCE_BUSY);
	ck_assert_uint_eq(script.calls, 1);
}
END_TEST

START_TEST(a_key_stored_after_the_work_is_stored_all_the_same)
{
	char key[] = "order-1";

	load.key = key;
	use_keys(KEYED_AFTER);
	answers(RESC_OK);
	raise_curtain();
	is_played(0, SERVED_FRESH);
	is_played(1, SERVED_STORED);
	ck_assert_uint_eq(script.calls, 1);
}
END_TEST

START_TEST(a_key_for_each_request_holds_back_nobody)
{
	use_keys(KEYED_BEFORE);
	answers(RESC_OK);
	raise_curtain();
	for (unsigned i = 0; i < OFFERED; i++)
		ck_assert_uint_eq(played(i)->served, SERVED_FRESH);
	ck_assert_uint_eq(script.calls, OFFERED);
}
END_TEST

/* ---- the end ---- */

START_TEST(who_is_in_the_middle_at_the_end_gives_back_and_notes_nothing)
{
	use_chain();
	script.ends = true;
	raise_curtain();
	const struct request_note *note = played(0);
	ck_assert_uint_eq(atomic_load(&note->done), 0);
	ck_assert_uint_eq(note->served, SERVED_NOT_YET);
	ck_assert_uint_eq(attempts(), 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(atomic_load(&attempt_at(i)->done), 0);
	ck_assert_uint_eq(look_at(EDGE).counters.ended_cancelled, 1);
}
END_TEST

START_TEST(what_no_scenario_can_mean_is_an_error)
{
	raise_curtain();
	record_retire(&n.map, (uint32_t)policy_find(&n.map, "payments"));
	named_quiet();
	ck_assert_int_eq(play(&player, &player.board->requests[0]), -ENOENT);
	ck_assert_int_ge(record_publish(&n.map, "payments", &policies[PAYMENTS]), 0);
}
END_TEST

START_TEST(without_room_for_notes_it_goes_on_and_the_board_knows)
{
	scenario.slowest_attempts = 0; /* a lie: there is room for one each */
	load.at_count = 1;
	answers(RESC_FAIL);
	raise_curtain();
	is_played(0, SERVED_FAILED);
	ck_assert_uint_eq(script.calls, 3);
	ck_assert_uint_gt(attempts(), player.board->attempt_room);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        an_answer_is_served_and_noted,
	        it_is_tried_until_it_works,
	        when_attempts_are_used_up_it_has_failed,
	        a_load_without_retries_asks_once,
	        the_dependencys_word_is_waited_for,
	        a_refusal_calls_nobody_and_its_fallback_is_counted,
	        a_past_deadline_is_refused,
	        an_injected_failure_is_an_attempt_that_failed,
	        work_without_a_dependency_takes_its_time,
	        work_is_cut_off_by_the_timeout,
	        each_layer_multiplies_the_attempts,
	        when_the_edge_alone_retries_it_is_three,
	        no_layer_has_more_time_than_the_one_above,
	        a_time_out_goes_up_as_one_and_a_refusal_as_a_failure,
	        who_has_gone_got_nothing_and_the_work_went_on,
	        a_key_stored_before_the_work_is_worked_on_once,
	        of_work_that_timed_out_nobody_knows_so_its_key_stays_in_work,
	        a_key_stored_after_the_work_is_stored_all_the_same,
	        a_key_for_each_request_holds_back_nobody,
	        who_is_in_the_middle_at_the_end_gives_back_and_notes_nothing,
	        what_no_scenario_can_mean_is_an_error,
	        without_room_for_notes_it_goes_on_and_the_board_knows,
	};

	return NAMED_RUN("rehearse_play", tests, set_up, tear_down);
}
