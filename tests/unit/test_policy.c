/* SPDX-License-Identifier: MIT */
/* Policies in the segment: a reader has a whole one or the one before, whatever happened to the writer; a name keeps its record. */
#include "policy.h"
#include "record.h"

#include <errno.h>
#include <pthread.h>

#include "backoff.h"
#include "named.h"
#include "permit.h"
#include "random.h"

static struct named n;

static void set_up(void)
{
	named_open(&n, NULL);
}

static void tear_down(void)
{
	named_close(&n);
}

/* A policy whose every field says the same number. */
static struct policy numbered(uint64_t number)
{
	struct policy p;

	policy_private(&p);
	p.consecutive = p.min_calls = p.cooldown_ms = p.slow_call_ns = p.base_ns = p.cap_ns = number;
	p.timeout_attempt_ms = p.timeout_connect_ms = p.timeout_total_ms = number;
	p.limit = 1;
	return p;
}

static bool is_whole(const struct policy *p)
{
	return p->consecutive == p->min_calls && p->min_calls == p->cooldown_ms && p->cooldown_ms == p->slow_call_ns &&
	       p->slow_call_ns == p->base_ns && p->base_ns == p->cap_ns && p->cap_ns == p->timeout_attempt_ms &&
	       p->timeout_attempt_ms == p->timeout_connect_ms && p->timeout_connect_ms == p->timeout_total_ms;
}

static struct policy reading(uint64_t *sequence)
{
	struct policy p;

	ck_assert_int_eq(policy_read(&n.map, n.index, &p, sequence), 0);
	return p;
}

/* ---- two copies ---- */

START_TEST(what_was_written_is_read)
{
	struct policy p = numbered(77);
	uint64_t before, after;

	reading(&before);
	policy_write(&n.map, n.index, &p);
	struct policy there = reading(&after);
	ck_assert_uint_eq(after, before + 1);
	ck_assert_mem_eq(&there, &p, sizeof p);
}
END_TEST

START_TEST(a_write_leaves_the_copy_before_it)
{
	struct policy_record *record = map_policy(&n.map, n.index);
	struct policy p = numbered(1), q = numbered(2);
	word before[sizeof(struct policy) / 8];

	policy_write(&n.map, n.index, &p);
	uint64_t s = fixture_load(&record->sequence);
	memcpy(before, policy_copy(&n.map, record, s), sizeof before);
	policy_write(&n.map, n.index, &q);
	ck_assert_uint_eq(fixture_load(&record->sequence), s + 1);
	ck_assert_mem_eq(before, policy_copy(&n.map, record, s), sizeof before);
}
END_TEST

static int write_and_die(const char *failpoint, uint64_t number)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct policy p = numbered(number);
		failpoint_set(failpoint);
		policy_write(&n.map, n.index, &p);
		_exit(0);
	}
	return fixture_wait(pid);
}

START_TEST(F7_death_of_the_writer_leaves_the_old_policy_and_the_next_one_writes)
{
	static const char *const points[] = {"policy.half=kill", "policy.filled=kill"};

	for (uint64_t round = 0; round < 6; round++) {
		uint64_t sequence, again;
		struct policy old = numbered(100 + round), next = numbered(300 + round);
		policy_write(&n.map, n.index, &old);
		reading(&sequence);
		ck_assert_int_eq(write_and_die(points[round % 2], 200 + round), -SIGKILL);
		struct policy there = reading(&again);
		ck_assert_uint_eq(again, sequence);
		ck_assert_mem_eq(&there, &old, sizeof old);
		policy_write(&n.map, n.index, &next);
		there = reading(&again);
		ck_assert_uint_eq(again, sequence + 1);
		ck_assert_mem_eq(&there, &next, sizeof next);
	}
}
END_TEST

START_TEST(F7_nobody_waits_for_a_stopped_writer)
{
	struct policy old = numbered(5);
	uint64_t sequence;

	policy_write(&n.map, n.index, &old);
	pid_t pid = fork();
	if (pid == 0) {
		struct policy p = numbered(6);
		failpoint_set("policy.half=stop");
		policy_write(&n.map, n.index, &p);
		_exit(0);
	}
	struct puppet stopped = {pid, -1, -1};
	puppet_wait_stopped(&stopped);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(reading(&sequence).consecutive, 5);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(reading(&sequence).consecutive, 6);
}
END_TEST

static atomic_bool writing;

static void *write_many(void *arg)
{
	(void)arg;
	for (uint64_t i = 1; i <= 60000; i++) {
		struct policy p = numbered(i % 1000 + 1);
		policy_write(&n.map, n.index, &p);
	}
	atomic_store(&writing, false);
	return NULL;
}

START_TEST(no_reader_ever_sees_a_torn_policy)
{
	pthread_t writer;
	unsigned long whole = 0, newest = 0;
	struct policy first = numbered(1);

	policy_write(&n.map, n.index, &first);
	atomic_store(&writing, true);
	pthread_create(&writer, NULL, write_many, NULL);
	while (atomic_load(&writing)) {
		struct policy p;
		uint64_t sequence;
		if (policy_read(&n.map, n.index, &p, &sequence) != 0)
			continue; /* the writer was too fast: an answer, not a torn policy */
		ck_assert(is_whole(&p));
		ck_assert_uint_ge(sequence, newest);
		newest = sequence;
		whole++;
	}
	pthread_join(writer, NULL);
	ck_assert_uint_gt(whole, 0);
}
END_TEST

START_TEST(a_reader_that_was_stopped_has_a_whole_policy)
{
	/* It has half of a copy when both are written anew: once is the other copy, twice is this one. */
	for (unsigned writes = 1; writes <= 3; writes++) {
		struct policy p = numbered(50);
		policy_write(&n.map, n.index, &p);
		pid_t pid = fork();
		if (pid == 0) {
			uint64_t sequence;
			failpoint_set("policy.reading@1=stop");
			p = reading(&sequence);
			_exit(is_whole(&p) ? (int)p.consecutive : 1);
		}
		struct puppet reader = {pid, -1, -1};
		puppet_wait_stopped(&reader);
		for (unsigned i = 1; i <= writes; i++) {
			p = numbered(50 + i);
			policy_write(&n.map, n.index, &p);
		}
		kill(pid, SIGCONT);
		ck_assert_int_eq(fixture_wait(pid), (int)(50 + writes));
	}
}
END_TEST

/* ---- any bytes are safe ---- */

START_TEST(defaults_and_what_rescd_writes_are_not_changed_by_the_clamp)
{
	struct policy p, clamped;

	policy_defaults(&p);
	p.limit = 1;
	clamped = p;
	policy_clamp(&clamped, &n.map.dims);
	ck_assert_mem_eq(&clamped, &p, sizeof p);
	policy_private(&p);
	ck_assert((p.flags & (POLICY_BREAKER | POLICY_CONFIGURED)) == (POLICY_BREAKER | POLICY_CONFIGURED));
	ck_assert((p.flags & (POLICY_BULKHEAD | POLICY_BUDGET | POLICY_RETRY)) == 0);
}
END_TEST

static bool inside(uint64_t value, uint64_t least, uint64_t most)
{
	return value >= least && value <= most;
}

START_TEST(random_bytes_are_put_inside_their_ranges)
{
	for (int round = 0; round < 20000; round++) {
		struct policy p;
		uint64_t words[sizeof p / 8];
		for (size_t i = 0; i < sizeof p / 8; i++)
			words[i] = random_next() >> random_below(64);
		memcpy(&p, words, sizeof p);
		policy_clamp(&p, &n.map.dims);
		ck_assert(inside(p.failure_rate_ppm, 0, 1000000) && inside(p.slow_rate_ppm, 0, 1000000));
		ck_assert(inside(p.window_ms, 100, 86400000) && inside(p.min_calls, 1, UINT32_MAX));
		ck_assert(inside(p.cooldown_ms, 1, 86400000) && inside(p.cooldown_factor_ppm, 1000000, 100000000));
		ck_assert(inside(p.probes, 1, PROBES_LIMIT) && inside(p.successes, 1, 10000) && inside(p.jitter_ppm, 0, 1000000));
		ck_assert(inside(p.probe_timeout_ms, 1, 3600000) && inside(p.limit, 1, n.map.dims.permits));
		ck_assert(inside(p.attempts, 1, 100) && inside(p.backoff, 0, 2) && inside(p.backoff_jitter, 0, 4));
		ck_assert(inside(p.budget_capacity, TOKEN, TOKENS_MASK) && inside(p.budget_previous, TOKEN, TOKENS_MASK));
		ck_assert_uint_le(backoff_wait_ns(&p, (unsigned)p.attempts, words[0]), INT64_MAX);
		struct policy again = p;
		policy_clamp(&again, &n.map.dims);
		ck_assert_mem_eq(&again, &p, sizeof p);
	}
}
END_TEST

START_TEST(random_copies_in_the_segment_are_read_clamped)
{
	struct policy_record *record = map_policy(&n.map, n.index);

	for (int round = 0; round < 2000; round++) {
		uint64_t sequence;
		for (size_t copy = 0; copy < 2; copy++)
			for (size_t i = 0; i < sizeof(struct policy) / 8; i++)
				fixture_store(&policy_copy(&n.map, record, copy)[i], random_next());
		fixture_store(&record->sequence, random_next());
		struct policy p = reading(&sequence);
		ck_assert(inside(p.limit, 1, n.map.dims.permits) && inside(p.probes, 1, PROBES_LIMIT));
		named_look(&n);
	}
}
END_TEST

/* ---- names and records ---- */

START_TEST(a_name_is_found_until_it_is_retired)
{
	char name[SEGMENT_NAME_SIZE];

	ck_assert_int_eq(policy_find(&n.map, "payments"), (int)n.index);
	ck_assert_int_eq(policy_find(&n.map, "payment"), -ENOENT);
	ck_assert_int_eq(policy_find(&n.map, ""), -ENOENT);
	record_retire(&n.map, n.index);
	ck_assert_int_eq(policy_find(&n.map, "payments"), -ENOENT);
	ck_assert_int_eq(policy_find_any(&n.map, "payments"), (int)n.index);
	ck_assert(!policy_name(&n.map, n.index, name));
	ck_assert(policy_name_any(&n.map, n.index, name));
	ck_assert_str_eq(name, "payments");
}
END_TEST

START_TEST(H6_removed_and_added_again_is_closed_and_full_with_the_same_counters_and_holders)
{
	struct policy p;
	resc_ticket inside_ticket, ticket;

	policy_private(&p);
	p.flags |= POLICY_BUDGET;
	p.consecutive = 2;
	named_reload(&n, &p);
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	ck_assert_int_eq(resc_enter(pay, NULL, &inside_ticket), 0);
	for (int i = 0; i < 2; i++) {
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
		ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
	}
	ck_assert_uint_eq(named_look(&n).breaker, TAG_OPEN);
	fixture_store(&n.state->tokens, tokens_make(WORD_LIVE, 0, 0));

	record_retire(&n.map, n.index);
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), -ENOENT);
	ck_assert_int_eq(record_publish(&n.map, "payments", &p), (int)n.index);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.breaker, TAG_CLOSED);
	ck_assert_uint_eq(r.window_calls, 0);
	ck_assert_uint_eq(r.consecutive, 0);
	ck_assert_double_eq(r.tokens, r.capacity);
	ck_assert_uint_eq(r.in_flight, 1);
	ck_assert_uint_eq(r.counters.admitted, 3);
	ck_assert_uint_eq(r.counters.ended_fail, 2);
	/* The handle of before goes on, and who was inside gives back its permit without touching the new one's breaker. */
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&inside_ticket, RESC_FAIL), RESC_STALE);
	r = named_look(&n);
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert_uint_eq(r.consecutive, 0);
	ck_assert_uint_eq(r.window_calls, 1);
	resc_close(host);
}
END_TEST

START_TEST(H6_permits_can_be_given_back_while_the_resource_is_retired)
{
	resc_ticket ticket;
	resc *host = named_join(n.instance);

	ck_assert_int_eq(resc_enter(named_lookup(host, "payments"), NULL, &ticket), 0);
	record_retire(&n.map, n.index);
	ck_assert_int_ge(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	struct resc_error err;
	ck_assert_ptr_null(resc_lookup(host, "other", &err));
	ck_assert_int_eq(err.code, -ENOENT);
	resc_close(host);
}
END_TEST

START_TEST(H6_results_of_before_it_was_removed_do_not_count_after_it_came_back)
{
	resc_ticket before, ticket;
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
	ck_assert_int_eq(resc_enter(pay, NULL, &before), 0);
	record_retire(&n.map, n.index);
	ck_assert_int_eq(record_publish(&n.map, "payments", &n.policy), (int)n.index);
	ck_assert_uint_eq(named_look(&n).window_calls, 0);
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&before, RESC_FAIL), RESC_STALE);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.window_calls, 1);
	ck_assert_uint_eq(r.window_failures, 0);
	ck_assert_uint_eq(r.in_flight, 0);
	resc_close(host);
}
END_TEST

START_TEST(F10_a_full_table_says_so_and_the_others_stay)
{
	char name[32];

	for (uint32_t i = 1; i < n.map.dims.resources; i++) {
		snprintf(name, sizeof name, "resource-%u", i);
		ck_assert_int_ge(record_publish(&n.map, name, &n.policy), 0);
	}
	ck_assert_int_eq(record_publish(&n.map, "one-more", &n.policy), -ENOSPC);
	ck_assert_int_eq(policy_find(&n.map, "one-more"), -ENOENT);
	ck_assert_int_eq(policy_find(&n.map, "payments"), (int)n.index);
	/* A retired name keeps its record: another one does not get it. */
	record_retire(&n.map, n.index);
	ck_assert_int_eq(record_publish(&n.map, "one-more", &n.policy), -ENOSPC);
	ck_assert_int_eq(record_publish(&n.map, "payments", &n.policy), (int)n.index);
}
END_TEST

START_TEST(F7_death_in_the_middle_of_publishing_shows_nothing)
{
	pid_t pid = fork();

	if (pid == 0) {
		failpoint_set("publish.state=kill");
		record_publish(&n.map, "half", &n.policy);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_int_eq(policy_find(&n.map, "half"), -ENOENT);
	int index = record_publish(&n.map, "half", &n.policy);
	ck_assert_int_eq(index, (int)n.index + 1);
	ck_assert_int_eq(policy_find(&n.map, "half"), index);
}
END_TEST

START_TEST(a_changed_capacity_is_a_new_epoch_and_nothing_else_is)
{
	struct policy p;
	uint64_t sequence;

	policy_private(&p);
	policy_write(&n.map, n.index, &p);
	uint64_t epoch = reading(&sequence).budget_epoch;
	p.cooldown_ms = 99;
	policy_write(&n.map, n.index, &p);
	ck_assert_uint_eq(reading(&sequence).budget_epoch, epoch);
	uint64_t capacity = p.budget_capacity;
	p.budget_capacity = 7 * TOKEN;
	policy_write(&n.map, n.index, &p);
	struct policy there = reading(&sequence);
	ck_assert_uint_eq(there.budget_epoch, (epoch + 1) & 0xff);
	ck_assert_uint_eq(there.budget_previous, capacity);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        what_was_written_is_read,
	        a_write_leaves_the_copy_before_it,
	        F7_death_of_the_writer_leaves_the_old_policy_and_the_next_one_writes,
	        F7_nobody_waits_for_a_stopped_writer,
	        no_reader_ever_sees_a_torn_policy,
	        a_reader_that_was_stopped_has_a_whole_policy,
	        defaults_and_what_rescd_writes_are_not_changed_by_the_clamp,
	        random_bytes_are_put_inside_their_ranges,
	        random_copies_in_the_segment_are_read_clamped,
	        a_name_is_found_until_it_is_retired,
	        H6_removed_and_added_again_is_closed_and_full_with_the_same_counters_and_holders,
	        H6_permits_can_be_given_back_while_the_resource_is_retired,
	        H6_results_of_before_it_was_removed_do_not_count_after_it_came_back,
	        F10_a_full_table_says_so_and_the_others_stay,
	        F7_death_in_the_middle_of_publishing_shows_nothing,
	        a_changed_capacity_is_a_new_epoch_and_nothing_else_is,
	};

	return NAMED_RUN("policy", tests, set_up, tear_down);
}
