/* SPDX-License-Identifier: MIT */
/*
 * From a segment to its successor, as rescd does it, with workers that are in the middle of calls: handles stay valid, nothing is lost,
 * nobody is admitted twice, and a ticket ends where it began.
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>

#include "budget.h"
#include "host.h"
#include "move.h"
#include "named.h"
#include "override.h"
#include "permit.h"
#include "record.h"
#include "waiting.h"
#include "worker.h"

static struct named old;  /* n of the start */
static struct named next; /* its successor */
static resc *host;
static resc_resource *pay;
static char second[MAP_PATH_SIZE]; /* the successor's own name */

static struct policy policy(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD | POLICY_BUDGET | POLICY_RETRY;
	p.limit = 4;
	p.failure_rate_ppm = 0;
	p.consecutive = 3;
	p.cooldown_ms = 200;
	p.probe_timeout_ms = 500;
	p.backoff = BACKOFF_NONE;
	p.attempts = 100;
	return p;
}

static void set_up(void)
{
	struct policy p = policy();

	named_open(&old, &p);
	host = named_join(old.instance);
	pay = named_lookup(host, "payments");
	memset(&next, 0, sizeof next);
	next.map.fd = -1;
}

static void tear_down(void)
{
	resc_close(host);
	unlink(second);
	map_close(&next.map);
	named_close(&old);
}

struct slow {
	int result;
	resc_ticket ticket;
};

/* ---- the steps of rescd ---- */

static void prepare_from(const struct named *from, struct named *to)
{
	struct segment_dims dims = from->map.dims;
	struct resc_error err;

	*to = *from;
	dims.resources *= 2;
	dims.permits *= 2;
	ck_assert_msg(map_create(&to->map, from->instance, &dims, &from->map, 0600, (gid_t)-1, &err) == 0, "%s", err.text);
	for (uint32_t i = 0; i < from->map.dims.resources; i++) {
		char name[SEGMENT_NAME_SIZE];
		struct policy p;
		uint64_t sequence;
		if (!policy_name(&from->map, i, name))
			continue;
		ck_assert_int_eq(policy_read(&from->map, i, &p, &sequence), 0);
		record_publish_moved(&to->map, i, name, &p, false);
	}
	to->state = map_state(&to->map, to->index);
	map_path(second, to->instance, to->map.generation);
	ck_assert_int_eq(map_publish(&to->map, second), 0);
}

static void announce(const struct named *from, const struct named *to)
{
	fixture_store(&from->map.daemon->superseded, to->map.generation);
}

static unsigned move_all(const struct named *from, const struct named *to)
{
	unsigned debts = 0;

	for (uint32_t i = 0; i < from->map.dims.resources; i++) {
		char name[SEGMENT_NAME_SIZE];
		if (!policy_name(&from->map, i, name))
			continue;
		move_words(&from->map, map_state(&from->map, i), &to->map, map_state(&to->map, i));
		debts += move_permits(&from->map, map_state(&from->map, i), &to->map, map_state(&to->map, i));
		move_ghosts(map_state(&from->map, i), map_state(&to->map, i));
		move_carry(&from->map, map_state(&from->map, i), &to->map, map_state(&to->map, i));
	}
	return debts;
}

static void take_the_name(const struct named *to)
{
	ck_assert_int_eq(rename(second, to->path), 0);
}

static void supersede(void)
{
	prepare_from(&old, &next);
	announce(&old, &next);
	move_all(&old, &next);
	take_the_name(&next);
}

static void both_at(uint64_t ms)
{
	named_at(&old, ms);
	if (next.map.base != NULL)
		named_at(&next, ms);
}

static int enter(resc_ticket *ticket)
{
	return resc_enter(pay, NULL, ticket);
}

static int call(enum resc_outcome outcome)
{
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	return resc_leave(&ticket, outcome);
}

static void calls(unsigned count, enum resc_outcome outcome)
{
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(call(outcome), 0);
}

static uint64_t generation(void)
{
	struct resc_status status;

	ck_assert_int_eq(resc_status(host, &status), 0);
	ck_assert_int_eq(status.mode, RESC_SHARED);
	return status.generation;
}

static struct resc_counters counters(void)
{
	struct resc_counters c;

	ck_assert_int_eq(resc_counters(pay, &c), 0);
	return c;
}

/* Old attachments are looked at once a second. */
static void look(void)
{
	named_sleep_ms(1050);
	for (int i = 0; i < 2; i++) {
		call(RESC_OK);
		named_sleep_ms(10);
	}
}

/* ---- what stays ---- */

START_TEST(handles_stay_valid_and_the_next_call_is_in_the_successor)
{
	calls(1, RESC_OK);
	ck_assert_uint_eq(generation(), old.map.generation);
	supersede();
	calls(1, RESC_OK);
	ck_assert_uint_eq(generation(), next.map.generation);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.counters.admitted, 2);
	ck_assert_uint_eq(r.counters.ended_ok, 2);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 0);
	ck_assert_str_eq(resc_name(pay), "payments");
}
END_TEST

START_TEST(it_is_followed_before_rescd_has_moved_anything)
{
	/* rescd is killed right after the announcement. */
	calls(2, RESC_FAIL);
	prepare_from(&old, &next);
	announce(&old, &next);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(generation(), next.map.generation);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_OPEN); /* 2 there and 1 here */
	ck_assert_uint_eq(breaker_tag(fixture_load(&old.state->breaker)), TAG_MOVED);
}
END_TEST

START_TEST(an_open_breaker_stays_open_until_the_same_time)
{
	calls(3, RESC_FAIL);
	struct inspect_resource before = named_look(&old);
	ck_assert_uint_eq(before.breaker, TAG_OPEN);
	both_at(1100);
	supersede();
	struct inspect_resource r = named_look(&next);
	resc_ticket ticket;
	ck_assert_int_eq(enter(&ticket), RESC_E_OPEN);
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.due_ms, before.due_ms);
	ck_assert_uint_eq(r.generation, before.generation);
	ck_assert_uint_eq(r.since_ms, before.since_ms);
	ck_assert_int_eq(r.reason, before.reason);
	ck_assert_uint_eq(r.counters.opened, 1);
	both_at(r.due_ms - 1);
	ck_assert_int_eq(enter(&ticket), RESC_E_OPEN);
	both_at(r.due_ms);
	calls(1, RESC_OK);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
}
END_TEST

START_TEST(streak_window_budget_and_counters_come_along)
{
	int64_t wait;
	resc_retry_plan plan = RESC_RETRY_INIT;

	calls(3, RESC_OK);
	calls(2, RESC_FAIL);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_int_eq(resc_fallback(pay, "cache"), 0);
	struct inspect_resource before = named_look(&old);
	supersede();
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.consecutive, 2);
	ck_assert_uint_eq(r.window_calls, 5);
	ck_assert_uint_eq(r.window_failures, 2);
	ck_assert_double_eq(r.tokens, before.tokens);
	ck_assert_double_eq(r.tokens, 6);
	ck_assert_mem_eq(&r.counters, &before.counters, sizeof r.counters);
	ck_assert_mem_eq(&r.latency, &before.latency, sizeof r.latency);
	calls(1, RESC_FAIL);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_OPEN);
	ck_assert_int_eq(resc_retry(pay, &plan, RESC_FAIL, &wait), 0);
	ck_assert_double_eq(named_look(&next).tokens, 5);
}
END_TEST

START_TEST(tokens_that_expire_keep_their_age)
{
	struct policy p = policy();

	p.budget_ttl_ms = 10000;
	named_reload(&old, &p);
	both_at(2000);
	override_reset(&old.map, old.index, ""); /* full now */
	supersede();
	ck_assert_double_eq(named_look(&next).tokens, 10);
	both_at(11999);
	calls(1, RESC_OK); /* a tenth of a token, in the new one */
	ck_assert_double_eq(named_look(&next).tokens, 10);
	both_at(12000);
	ck_assert_double_eq_tol(named_look(&next).tokens, 0.1, 1e-9);
}
END_TEST

START_TEST(an_override_comes_along_with_its_text)
{
	/* The texts of two serials in a row are in two places. */
	for (int sets = 1; sets <= 2; sets++) {
		resc_ticket ticket;
		for (int i = 0; i < sets; i++)
			ck_assert_int_eq(override_set(&old.map, old.index, OVERRIDE_OPEN, 2000, i == 0 ? "first" : "second"), 0);
		supersede();
		ck_assert_int_eq(enter(&ticket), RESC_E_FORCED_OPEN);
		struct inspect_resource r = named_look(&next);
		ck_assert_int_eq(r.override.mode, OVERRIDE_OPEN);
		ck_assert_uint_eq(r.override.until_ms, 3000);
		ck_assert_str_eq(r.override.text, sets == 1 ? "first" : "second");
		ck_assert_uint_eq(r.override.uid, getuid());
		/* In the old one nothing can be forced any more. */
		ck_assert_int_eq(override_set(&old.map, old.index, OVERRIDE_CLOSED, 0, ""), -ESTALE);
		ck_assert_int_eq(override_release(&old.map, old.index, ""), -ESTALE);
		both_at(3000);
		ck_assert_int_eq(enter(&ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
		tear_down();
		set_up();
	}
}
END_TEST

START_TEST(counters_never_go_back_for_a_worker_that_follows_before_rescd_carries)
{
	calls(50, RESC_OK);
	calls(2, RESC_FAIL);
	resc_fallback(pay, "stale");
	struct resc_counters before = counters();
	prepare_from(&old, &next);
	announce(&old, &next);
	struct resc_counters after = counters();
	ck_assert_uint_eq(generation(), next.map.generation);
	ck_assert_mem_eq(&before, &after, sizeof before);
	/* Carried on again by rescd: not twice. */
	move_all(&old, &next);
	after = counters();
	ck_assert_mem_eq(&before, &after, sizeof before);
}
END_TEST

START_TEST(results_never_outrun_calls_on_the_way)
{
	resc_ticket tickets[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	prepare_from(&old, &next);
	announce(&old, &next);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
		calls(1, RESC_OK);
		struct resc_counters c = counters();
		ck_assert_uint_le(c.ended_ok, c.admitted);
		ck_assert_uint_eq(c.admitted, 4 + (unsigned)i);
	}
	move_all(&old, &next);
	ck_assert_uint_eq(counters().ended_ok, 6);
}
END_TEST

/* ---- tickets ---- */

START_TEST(C5_permits_of_before_count_against_the_limit_and_are_given_back_where_they_were_taken)
{
	resc_ticket before[3], after[5];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&before[i]), 0);
	supersede();
	ck_assert_int_eq(enter(&after[0]), 0);
	ck_assert_int_eq(enter(&after[1]), RESC_E_FULL); /* 3 there and 1 here */
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 3);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 1);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(resc_leave(&before[i], RESC_OK), 0);
		ck_assert_uint_eq(permit_occupied(&old.map, old.state), 2 - (unsigned)i);
		move_all(&old, &next);
		ck_assert_int_eq(enter(&after[1 + i]), 0);
		ck_assert_int_eq(enter(&after[4]), RESC_E_FULL);
	}
	ck_assert_uint_eq(named_look(&next).debt, 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(resc_leave(&after[i], RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 0);
}
END_TEST

START_TEST(C5_a_permit_that_is_given_back_is_free_without_rescd)
{
	resc_ticket before[4], after;

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter(&before[i]), 0);
	supersede(); /* and then rescd is killed */
	ck_assert_int_eq(enter(&after), RESC_E_FULL);
	for (int i = 0; i < 4; i++) {
		resc_ticket more;
		ck_assert_int_eq(resc_leave(&before[i], RESC_OK), 0);
		ck_assert_int_eq(enter(&more), 0);
		ck_assert_int_eq(enter(&after), RESC_E_FULL);
	}
}
END_TEST

START_TEST(C1_permits_of_the_dead_in_the_old_segment)
{
	struct puppet p = puppet_start(old.instance, NULL);
	resc_ticket tickets[5];

	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(puppet_enter(&p, i), 0);
	supersede();
	ck_assert_int_eq(enter(&tickets[0]), RESC_E_FULL);
	puppet_kill(&p);
	worker_sweep(&old.map, 0); /* as rescd does in former segments */
	ck_assert_uint_eq(move_all(&old, &next), 0);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	ck_assert_int_eq(enter(&tickets[4]), RESC_E_FULL);
}
END_TEST

START_TEST(C1_permits_of_the_dead_in_the_old_segment_count_again_without_rescd)
{
	struct puppet p = puppet_start(old.instance, NULL);
	resc_ticket tickets[5];

	for (uint32_t i = 0; i < 4; i++)
		ck_assert_int_eq(puppet_enter(&p, i), 0);
	supersede(); /* and then rescd is killed, and the holder */
	ck_assert_int_eq(enter(&tickets[0]), RESC_E_FULL);
	puppet_kill(&p);
	named_sleep_ms(1050);
	/* A refused call looks, once a second. */
	for (int i = 0; i < 20 && enter(&tickets[0]) != 0; i++)
		named_sleep_ms(10);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	ck_assert_int_eq(enter(&tickets[4]), RESC_E_FULL);
}
END_TEST

START_TEST(a_copy_of_a_ticket_of_before_is_stale)
{
	resc_ticket ticket, copy;

	ck_assert_int_eq(enter(&ticket), 0);
	copy = ticket;
	supersede();
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
	ck_assert_uint_eq(named_look(&next).consecutive, 1);
	ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
	ck_assert_uint_eq(named_look(&next).consecutive, 1);
	ck_assert_uint_eq(named_look(&next).counters.ended_fail, 1);
}
END_TEST

START_TEST(a_result_of_before_counts_in_the_successor)
{
	resc_ticket tickets[3];

	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	supersede();
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_FAIL), 0);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_uint_eq(r.counters.ended_fail, 3);
	ck_assert_uint_eq(r.counters.admitted, 3);
}
END_TEST

/* ---- probes ---- */

static resc_ticket probe(void)
{
	resc_ticket ticket;

	calls(3, RESC_FAIL);
	both_at(named_look(&old).due_ms);
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert(ticket.probe);
	return ticket;
}

START_TEST(a_probe_of_before_is_still_the_only_one_and_its_result_counts)
{
	resc_ticket ticket = probe(), another;

	supersede();
	ck_assert_int_eq(enter(&another), RESC_E_HALF_OPEN);
	ck_assert_uint_eq(named_look(&next).probes_out, 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.probes_out, 0);
	calls(1, RESC_OK);
}
END_TEST

START_TEST(a_neutral_probe_of_before_makes_room_for_the_next)
{
	resc_ticket ticket = probe(), another;

	supersede();
	ck_assert_int_eq(enter(&another), RESC_E_HALF_OPEN);
	ck_assert_int_eq(resc_leave(&ticket, RESC_CANCELLED), 0);
	ck_assert_int_eq(enter(&another), 0);
	ck_assert(another.probe);
	ck_assert_int_eq(resc_leave(&another, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
}
END_TEST

START_TEST(A2_an_overdue_probe_of_before_is_taken_over)
{
	resc_ticket ticket = probe(), another, third;

	supersede();
	both_at(named_look(&next).now_ms + 500);
	ck_assert_int_eq(enter(&another), 0);
	ck_assert(another.probe);
	ck_assert_int_eq(enter(&third), RESC_E_HALF_OPEN);
	/* Late: it is counted, and touches nothing. */
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), RESC_STALE);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.breaker, TAG_HALF_OPEN);
	ck_assert_uint_eq(r.trial_failed, 0);
	ck_assert_uint_eq(r.probes_out, 1);
	ck_assert_int_eq(resc_leave(&another, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
}
END_TEST

START_TEST(A1_a_probe_of_before_whose_owner_died_is_replaced)
{
	struct puppet p = puppet_start(old.instance, NULL);
	resc_ticket another;

	calls(3, RESC_FAIL);
	both_at(named_look(&old).due_ms);
	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	supersede();
	puppet_kill(&p);
	ck_assert_int_eq(enter(&another), RESC_E_HALF_OPEN);
	/* As rescd does it each second: nobody waits for the end of the lease. */
	worker_sweep(&old.map, 0);
	move_all(&old, &next);
	move_all(&old, &next);
	ck_assert_int_eq(enter(&another), 0);
	ck_assert(another.probe);
	ck_assert_int_eq(resc_leave(&another, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
}
END_TEST

START_TEST(a_probe_of_before_that_ends_while_rescd_looks_still_counts)
{
	resc_ticket ticket = probe();

	supersede();
	/* Its lease has ended in the old segment, and rescd comes by before its owner has removed the ghost. */
	uint64_t lease = ticket.probe_lease;
	fixture_store(&old.state->probes[0], 0);
	move_all(&old, &next);
	ck_assert_uint_eq(fixture_load(&next.state->probes[0]), probe_orphan(lease));
	fixture_store(&old.state->probes[0], lease);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
	ck_assert_uint_eq(named_look(&next).probes_out, 0);
}
END_TEST

START_TEST(F7_a_lease_of_before_that_was_given_back_at_the_last_look_leaves_no_ghost)
{
	struct puppet p = puppet_start(old.instance, "probe.leased@1=stop");
	resc_ticket another;

	calls(3, RESC_FAIL);
	both_at(named_look(&old).due_ms);
	puppet_tell(&p, PUPPET_ENTER, 0, RESC_OK);
	puppet_wait_stopped(&p);
	supersede();
	kill(p.pid, SIGCONT);
	/* It finds that the breaker has moved, gives its lease back, and comes in by the successor: where its ghost is out. */
	ck_assert_int_eq(puppet_answer(&p), RESC_E_HALF_OPEN);
	move_all(&old, &next);
	move_all(&old, &next);
	ck_assert_uint_eq(named_look(&next).probes_out, 0);
	ck_assert_int_eq(enter(&another), 0);
	ck_assert(another.probe);
	ck_assert_int_eq(resc_leave(&another, RESC_OK), 0);
	puppet_quit(&p);
}
END_TEST

/* ---- words that are on their way ---- */

START_TEST(F7_a_move_that_was_cut_off_is_done_again)
{
	/* Prepared in the successor, and then the old word moved on: the newer one counts. */
	prepare_from(&old, &next);
	uint64_t w = fixture_load(&old.state->breaker);
	fixture_store(&next.state->breaker, breaker_make(breaker_state(w) + TAG_PREPARED, 0, breaker_generation(w), breaker_ms(w)));
	fixture_store(&next.state->streak, streak_make(breaker_generation(w), WORD_PREPARED, 0));
	fixture_store(&next.state->tokens, tokens_make(WORD_PREPARED, 0, 123));
	fixture_store(&next.state->override, override_make(WORD_PREPARED, OVERRIDE_OPEN, 9, 0));
	calls(3, RESC_FAIL);
	announce(&old, &next);
	move_all(&old, &next);
	struct inspect_resource r = named_look(&next);
	ck_assert_uint_eq(r.breaker, TAG_OPEN);
	ck_assert_int_eq(r.override.mode, OVERRIDE_NONE);
	ck_assert_double_eq(r.tokens, r.capacity);
	ck_assert(!breaker_is_prepared(fixture_load(&next.state->breaker)));
}
END_TEST

START_TEST(F7_a_word_that_moved_and_is_still_marked_is_live)
{
	supersede();
	uint64_t w = fixture_load(&next.state->breaker);
	fixture_store(&next.state->breaker, breaker_make(breaker_tag(w) + TAG_PREPARED, 0, breaker_generation(w), breaker_ms(w)));
	calls(3, RESC_FAIL);
	resc_ticket ticket;
	ck_assert_int_eq(enter(&ticket), RESC_E_OPEN);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_OPEN);
}
END_TEST

START_TEST(moving_twice_changes_nothing)
{
	calls(2, RESC_FAIL);
	supersede();
	calls(1, RESC_OK);
	uint64_t breaker = fixture_load(&next.state->breaker), streak = fixture_load(&next.state->streak);
	struct inspect_resource before = named_look(&next);
	for (int i = 0; i < 5; i++)
		move_all(&old, &next);
	struct inspect_resource after = named_look(&next);
	ck_assert_uint_eq(fixture_load(&next.state->breaker), breaker);
	ck_assert_uint_eq(fixture_load(&next.state->streak), streak);
	ck_assert_mem_eq(&before, &after, sizeof before);
}
END_TEST

START_TEST(a_worker_that_comes_late_finds_everything)
{
	calls(3, RESC_FAIL);
	supersede();
	struct puppet p = puppet_start(old.instance, NULL);
	ck_assert_int_eq(puppet_enter(&p, 0), RESC_E_OPEN);
	ck_assert_uint_eq(named_look(&next).counters.refused_open, 1);
	puppet_quit(&p);
}
END_TEST

static bool is_mapped(const struct named *n)
{
	char line[512], inode[32];
	FILE *maps = fopen("/proc/self/maps", "re");
	unsigned count = 0;

	snprintf(inode, sizeof inode, " %lu ", (unsigned long)n->map.ino);
	while (fgets(line, sizeof line, maps) != NULL)
		count += strstr(line, inode) != NULL && strstr(line, "/dev/shm") != NULL;
	fclose(maps);
	/* The test itself has it mapped once, in one piece; a worker in two (read-only, and writable). */
	return count > 1;
}

START_TEST(F7_with_rescd_dead_a_resource_is_moved_whoever_calls_it_first_and_when)
{
	struct policy p = policy();
	resc_ticket ticket;

	named_add(&old, "ledger", &p);
	calls(3, RESC_FAIL);
	/* rescd dies when it has announced the successor, and moves nothing. We follow with a call of one resource, and let go of the old.
	 */
	prepare_from(&old, &next);
	announce(&old, &next);
	resc_resource *ledger = named_lookup(host, "ledger");
	ck_assert_int_eq(resc_enter(ledger, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	host_look(host);
	host_look(host);
	ck_assert(!is_mapped(&old));
	/* The first call of the other one comes later. */
	ck_assert_int_eq(enter(&ticket), RESC_E_OPEN);
}
END_TEST

START_TEST(a_worker_that_comes_between_follows)
{
	/* Announced, and the name still leads to the old one. */
	prepare_from(&old, &next);
	announce(&old, &next);
	struct puppet p = puppet_start(old.instance, NULL);
	ck_assert_int_eq(puppet_enter(&p, 0), 0);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 1);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
	ck_assert_int_eq(puppet_leave(&p, 0, RESC_OK), 0);
	puppet_quit(&p);
}
END_TEST

START_TEST(an_announcement_without_a_successor_leaves_it_where_it_is)
{
	fixture_store(&old.map.daemon->superseded, UINT64_C(0x1234567890abcdef));
	calls(20, RESC_OK);
	ck_assert_uint_eq(generation(), old.map.generation);
	ck_assert_uint_eq(named_look(&old).counters.ended_ok, 20);
}
END_TEST

START_TEST(a_resource_that_the_successor_does_not_have)
{
	resc_ticket ticket, another;

	ck_assert_int_eq(enter(&ticket), 0);
	prepare_from(&old, &next);
	record_retire(&next.map, next.index);
	announce(&old, &next);
	ck_assert_int_eq(enter(&another), -ENOENT);
	ck_assert_int_ge(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
}
END_TEST

/* The successor left out the record that was retired and empty; then the configuration named it again. What is in the old segment is
 * another time's. */
START_TEST(a_resource_that_came_back_in_the_successor_begins_anew)
{
	struct policy p = policy();
	resc_ticket probe;
	uint64_t at = 1000;

	for (int i = 0; i < 3; i++) {
		calls(3, RESC_FAIL);
		both_at(at += 400);
		calls(1, RESC_OK);
	}
	calls(2, RESC_FAIL);
	record_retire(&old.map, old.index);
	prepare_from(&old, &next);
	announce(&old, &next);
	ck_assert_int_eq(record_publish(&next.map, "payments", &p), (int)old.index);
	both_at(at);
	move_resource(&old.map, &next.map, old.index);
	ck_assert_uint_eq(named_look(&next).consecutive, 0);
	calls(3, RESC_FAIL);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_OPEN);
	both_at(at += 400);
	ck_assert_int_eq(enter(&probe), 0);
	ck_assert(probe.probe);
	ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
	move_resource(&old.map, &next.map, old.index);
	ck_assert_uint_eq(named_look(&next).breaker, TAG_CLOSED);
}
END_TEST

static enum resc_outcome note_timeout(void *arg, int64_t timeout_ms, unsigned attempt)
{
	(void)attempt;
	*(int64_t *)arg = timeout_ms;
	return RESC_OK;
}

START_TEST(the_total_timeout_holds_in_the_first_request_after_it)
{
	struct policy p = policy();
	int64_t timeout_ms = 0;

	p.timeout_total_ms = 750;
	named_reload(&old, &p);
	supersede();
	generation(); /* it has followed, and this resource was not called yet */
	ck_assert_int_eq(resc_run(pay, note_timeout, &timeout_ms, NULL, NULL), 0);
	ck_assert_int_eq(timeout_ms, 750);
}
END_TEST

/* ---- letting go ---- */

static unsigned slots_taken(const struct named *n)
{
	unsigned taken = 0;

	for (uint32_t i = 0; i < n->map.dims.workers; i++)
		taken += fixture_load(&map_worker(&n->map, i)->life) != 0;
	return taken;
}

START_TEST(the_old_mapping_is_let_go_after_the_last_ticket)
{
	resc_ticket tickets[2];

	ck_assert_int_eq(enter(&tickets[0]), 0);
	ck_assert_int_eq(enter(&tickets[1]), 0);
	supersede();
	look();
	ck_assert(is_mapped(&old));
	ck_assert_uint_eq(slots_taken(&old), 1);
	ck_assert_int_eq(resc_leave(&tickets[0], RESC_OK), 0);
	look();
	ck_assert(is_mapped(&old));
	ck_assert_uint_eq(slots_taken(&old), 1);
	ck_assert_int_eq(resc_leave(&tickets[1], RESC_OK), 0);
	look();
	ck_assert_uint_eq(slots_taken(&old), 0);
	ck_assert(!is_mapped(&old));
	ck_assert_uint_eq(slots_taken(&next), 1);
}
END_TEST

START_TEST(the_old_mapping_is_let_go_after_the_last_ticket_without_a_cell)
{
	struct policy p = policy();
	resc_ticket ticket;

	p.flags &= ~(uint64_t)POLICY_BULKHEAD;
	named_reload(&old, &p);
	for (uint32_t i = 0; i < old.map.dims.permits; i++)
		fixture_store(map_permit(&old.map, old.state, i), permit_make(GHOST_LIFE, i + 1));
	ck_assert_int_eq(enter(&ticket), 0);
	ck_assert_uint_eq(named_look(&old).counters.untracked, 1);
	supersede();
	call(RESC_OK);
	host_look(host);
	ck_assert_uint_eq(slots_taken(&old), 1);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(named_look(&next).counters.ended_ok, 2);
	host_look(host);
	ck_assert_uint_eq(slots_taken(&old), 0);
	ck_assert(!is_mapped(&old));
}
END_TEST

START_TEST(F6_an_old_segment_that_is_cut_is_let_go_untouched)
{
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	supersede();
	call(RESC_OK);
	ck_assert_int_eq(ftruncate(old.map.fd, 0), 0);
	host_look(host);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), -ESTALE);
	ck_assert(!is_mapped(&old));
	ck_assert_int_eq(call(RESC_OK), 0);
}
END_TEST

START_TEST(F6_a_view_of_a_segment_that_is_cut_is_closed_untouched)
{
	ck_assert_int_eq(ftruncate(old.map.fd, 0), 0);
	resc_close(host);
	host = NULL;
}
END_TEST

/* ---- calls that found the old segment before it was replaced ---- */

static char gate[64], arrived[64];

/* A call that has its view, and stops before it takes a permit, until the gate opens. */
static void *slow_call(void *arg)
{
	struct slow *slow = arg;

	slow->result = enter(&slow->ticket);
	return NULL;
}

static pthread_t start_slow_call(struct slow *slow)
{
	pthread_t thread;
	char points[256];

	snprintf(gate, sizeof gate, "/tmp/unit-gate-%d", (int)getpid());
	snprintf(arrived, sizeof arrived, "/tmp/unit-arrived-%d", (int)getpid());
	unlink(gate);
	unlink(arrived);
	snprintf(points, sizeof points, "permit.looked@1=touch:%s,permit.looked@1=wait:%s", arrived, gate);
	ck_assert_int_eq(failpoint_set(points), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, slow_call, slow), 0);
	while (access(arrived, F_OK) != 0)
		named_sleep_ms(1);
	return thread;
}

static void open_gate(pthread_t thread)
{
	close(open(gate, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
	pthread_join(thread, NULL);
	unlink(gate);
	unlink(arrived);
}

static void *look_once(void *arg)
{
	host_look(arg);
	return NULL;
}

START_TEST(a_call_that_was_on_its_way_is_not_inside_the_closed_segment)
{
	struct slow slow;
	resc_ticket tickets[4];

	calls(1, RESC_OK);
	pthread_t thread = start_slow_call(&slow);
	supersede();
	open_gate(thread);
	ck_assert_int_eq(slow.result, 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 1);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	ck_assert_int_eq(enter(&tickets[3]), RESC_E_FULL);
	ck_assert_int_eq(resc_leave(&slow.ticket, RESC_OK), 0);
}
END_TEST

START_TEST(a_call_that_was_on_its_way_keeps_its_permit_when_the_old_segment_is_let_go)
{
	/* The worker has followed, and this resource was not moved yet: its old bulkhead is open. */
	struct slow slow;
	pthread_t looker;

	calls(1, RESC_OK);
	pthread_t thread = start_slow_call(&slow);
	prepare_from(&old, &next);
	announce(&old, &next);
	ck_assert_uint_eq(generation(), next.map.generation);
	pthread_create(&looker, NULL, look_once, host);
	named_sleep_ms(50);
	open_gate(thread);
	pthread_join(looker, NULL);
	ck_assert_int_eq(slow.result, 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 1);
	ck_assert_uint_eq(slots_taken(&old), 1);
	ck_assert_int_eq(resc_leave(&slow.ticket, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
	host_look(host);
	ck_assert_uint_eq(slots_taken(&old), 0);
}
END_TEST

START_TEST(from_one_to_the_next_many_times_with_a_long_call)
{
	struct named chain[6];
	resc_ticket ticket;

	ck_assert_int_eq(enter(&ticket), 0);
	chain[0] = old;
	for (int i = 1; i < 6; i++) {
		prepare_from(&chain[i - 1], &chain[i]);
		announce(&chain[i - 1], &chain[i]);
		move_all(&chain[i - 1], &chain[i]);
		take_the_name(&chain[i]);
		calls(2, RESC_OK);
		calls(1, RESC_FAIL);
		calls(1, RESC_OK);
		ck_assert_uint_eq(generation(), chain[i].map.generation);
		ck_assert_uint_eq(counters().ended_ok, 3 * (unsigned)i);
		ck_assert_uint_eq(counters().ended_fail, (unsigned)i);
	}
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
	ck_assert_uint_eq(counters().ended_ok, 16);
	for (int i = 1; i < 6; i++)
		map_close(&chain[i].map);
}
END_TEST

START_TEST(a_view_that_is_closed_gives_back_what_it_holds_in_both)
{
	resc_ticket a, b;

	ck_assert_int_eq(enter(&a), 0);
	supersede();
	ck_assert_int_eq(enter(&b), 0);
	resc_close(host);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 0);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 0);
	ck_assert_uint_eq(slots_taken(&old) + slots_taken(&next), 0);
	host = named_join(old.instance);
}
END_TEST

START_TEST(G4_a_child_of_a_worker_with_tickets_in_both_owns_nothing)
{
	resc_ticket a, b;

	ck_assert_int_eq(enter(&a), 0);
	supersede();
	ck_assert_int_eq(enter(&b), 0);
	pid_t pid = fork();
	if (pid == 0) {
		resc_ticket copy = a;
		ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
		copy = b;
		ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
		calls(2, RESC_OK);
		copy = a;
		ck_assert_int_eq(resc_leave(&copy, RESC_FAIL), -ESTALE);
		resc_close(host);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(permit_occupied(&old.map, old.state), 1);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 1);
	ck_assert_int_eq(resc_leave(&a, RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&b, RESC_OK), 0);
}
END_TEST

START_TEST(a_call_that_waits_goes_on_waiting_in_the_successor)
{
	struct policy p = policy();
	resc_ticket tickets[4];
	struct slow slow = {.result = -1};
	pthread_t thread;

	p.max_wait_ms = 60000;
	named_reload(&old, &p);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(enter(&tickets[i]), 0);
	ck_assert_int_eq(pthread_create(&thread, NULL, slow_call, &slow), 0);
	while (waiting_count(&old.map, old.state) != 1)
		named_sleep_ms(1);
	supersede();
	/* Four are inside there; here it has its place in the queue. */
	while (waiting_count(&next.map, next.state) != 1)
		named_sleep_ms(1);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 0);
	ck_assert_int_eq(resc_leave(&tickets[0], RESC_OK), 0);
	pthread_join(thread, NULL);
	ck_assert_int_eq(slow.result, 0);
	ck_assert_uint_eq(waiting_count(&old.map, old.state), 0);
	ck_assert_uint_eq(waiting_count(&next.map, next.state), 0);
	ck_assert_uint_eq(permit_occupied(&next.map, next.state), 1);
	ck_assert_int_eq(resc_leave(&slow.ticket, RESC_OK), 0);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        handles_stay_valid_and_the_next_call_is_in_the_successor,
	        it_is_followed_before_rescd_has_moved_anything,
	        an_open_breaker_stays_open_until_the_same_time,
	        streak_window_budget_and_counters_come_along,
	        tokens_that_expire_keep_their_age,
	        an_override_comes_along_with_its_text,
	        counters_never_go_back_for_a_worker_that_follows_before_rescd_carries,
	        results_never_outrun_calls_on_the_way,
	        C5_permits_of_before_count_against_the_limit_and_are_given_back_where_they_were_taken,
	        C5_a_permit_that_is_given_back_is_free_without_rescd,
	        C1_permits_of_the_dead_in_the_old_segment,
	        C1_permits_of_the_dead_in_the_old_segment_count_again_without_rescd,
	        a_copy_of_a_ticket_of_before_is_stale,
	        a_result_of_before_counts_in_the_successor,
	        a_probe_of_before_is_still_the_only_one_and_its_result_counts,
	        a_neutral_probe_of_before_makes_room_for_the_next,
	        A2_an_overdue_probe_of_before_is_taken_over,
	        A1_a_probe_of_before_whose_owner_died_is_replaced,
	        a_probe_of_before_that_ends_while_rescd_looks_still_counts,
	        F7_a_lease_of_before_that_was_given_back_at_the_last_look_leaves_no_ghost,
	        F7_a_move_that_was_cut_off_is_done_again,
	        F7_a_word_that_moved_and_is_still_marked_is_live,
	        moving_twice_changes_nothing,
	        a_worker_that_comes_late_finds_everything,
	        F7_with_rescd_dead_a_resource_is_moved_whoever_calls_it_first_and_when,
	        a_worker_that_comes_between_follows,
	        an_announcement_without_a_successor_leaves_it_where_it_is,
	        a_resource_that_the_successor_does_not_have,
	        a_resource_that_came_back_in_the_successor_begins_anew,
	        the_total_timeout_holds_in_the_first_request_after_it,
	        the_old_mapping_is_let_go_after_the_last_ticket,
	        the_old_mapping_is_let_go_after_the_last_ticket_without_a_cell,
	        F6_an_old_segment_that_is_cut_is_let_go_untouched,
	        F6_a_view_of_a_segment_that_is_cut_is_closed_untouched,
	        a_call_that_was_on_its_way_is_not_inside_the_closed_segment,
	        a_call_that_was_on_its_way_keeps_its_permit_when_the_old_segment_is_let_go,
	        from_one_to_the_next_many_times_with_a_long_call,
	        a_view_that_is_closed_gives_back_what_it_holds_in_both,
	        G4_a_child_of_a_worker_with_tickets_in_both_owns_nothing,
	        a_call_that_waits_goes_on_waiting_in_the_successor,
	};

	return NAMED_RUN("supersede", tests, set_up, tear_down);
}
