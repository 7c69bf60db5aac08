/* SPDX-License-Identifier: MIT */
/* Permits: never more inside than the limit, also while it changes; holders keep theirs; only the holder gives one back. */
#include "permit.h"

#include <errno.h>
#include <pthread.h>

#include "crowd.h"
#include "named.h"
#include "random.h"

static struct named n;
static uint32_t next_call;

static void with_limit(unsigned limit)
{
	struct policy p = n.policy;

	p.flags |= POLICY_BULKHEAD;
	p.limit = limit;
	named_reload(&n, &p);
}

static void set_up(void)
{
	named_open(&n, NULL);
	with_limit(10);
}

static void tear_down(void)
{
	named_close(&n);
}

struct holder {
	uint64_t permit;
	uint32_t cell;
};

static int take_from(struct holder *h, uint32_t start)
{
	h->permit = permit_make(7, ++next_call);
	return permit_acquire(&n.map, n.state, h->permit, start, &h->cell);
}

static int take(struct holder *h)
{
	return take_from(h, next_call);
}

static bool give(const struct holder *h)
{
	return permit_release(&n.map, n.state, h->cell, h->permit);
}

/* Takes until it is full. Returns how many. */
static unsigned fill(struct holder *holders)
{
	unsigned count = 0;

	while (take(&holders[count]) == 0)
		count++;
	return count;
}

/* ---- the limit ---- */

START_TEST(exactly_the_limit_is_admitted_from_wherever_one_starts)
{
	static const unsigned limits[] = {1, 2, 3, 10, 63, 64};

	for (size_t l = 0; l < sizeof limits / sizeof limits[0]; l++) {
		with_limit(limits[l]);
		for (uint32_t start = 0; start < 64; start += 7) {
			struct holder holders[65];
			unsigned count = 0;
			while (take_from(&holders[count], start) == 0)
				count++;
			ck_assert_uint_eq(count, limits[l]);
			ck_assert_uint_eq(permit_occupied(&n.map, n.state), limits[l]);
			for (unsigned i = 0; i < count; i++)
				ck_assert(give(&holders[i]));
			ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
		}
	}
}
END_TEST

START_TEST(the_home_cell_is_taken_only_when_it_is_free_and_below_the_limit)
{
	word *home = map_permit(&n.map, n.state, 9), *beyond = map_permit(&n.map, n.state, 10);

	ck_assert(permit_acquire_home(n.state, home, 9, 111));
	ck_assert(!permit_acquire_home(n.state, home, 9, 222));
	ck_assert(!permit_acquire_home(n.state, beyond, 10, 333));
	ck_assert_uint_eq(fixture_load(home), 111);
	ck_assert_uint_eq(fixture_load(beyond), 0);
	with_limit(5);
	ck_assert(permit_release(&n.map, n.state, 9, 111));
	ck_assert(!permit_acquire_home(n.state, home, 9, 444));
}
END_TEST

START_TEST(without_a_bulkhead_each_cell_can_be_used)
{
	struct policy p;
	struct holder holders[65];

	policy_private(&p);
	named_reload(&n, &p);
	ck_assert_uint_eq(fill(holders), n.map.dims.permits);
}
END_TEST

START_TEST(a_limit_beyond_the_cells_is_the_cells)
{
	struct holder holders[65];

	permit_set_limit(&n.map, n.state, 5000);
	ck_assert_uint_eq(fill(holders), n.map.dims.permits);
	permit_set_limit(&n.map, n.state, 0); /* 0 closes for good, and no configuration says so */
	ck_assert_uint_eq(limit_target(fixture_load(&n.state->limit)), 1);
}
END_TEST

/* ---- giving back ---- */

START_TEST(only_the_very_permit_gives_its_cell_back)
{
	struct holder h, other;

	ck_assert_int_eq(take(&h), 0);
	ck_assert(!permit_release(&n.map, n.state, h.cell, h.permit + 1));
	ck_assert(!permit_release(&n.map, n.state, h.cell + 1, h.permit));
	ck_assert(!permit_release(&n.map, n.state, n.map.dims.permits, h.permit));
	ck_assert(!permit_release(&n.map, n.state, UINT32_MAX, h.permit));
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	ck_assert(give(&h));
	ck_assert(!give(&h)); /* twice */
	ck_assert_int_eq(take_from(&other, h.cell), 0);
	ck_assert_uint_eq(other.cell, h.cell);
	ck_assert(!give(&h)); /* a cell that has another holder now */
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	ck_assert(give(&other));
}
END_TEST

/* ---- a limit that changes ---- */

START_TEST(C5_the_same_limit_again_changes_nothing)
{
	struct holder holders[101], h;

	with_limit(60);
	ck_assert_int_eq(take(&h), 0);
	uint64_t before = fixture_load(&n.state->limit);
	with_limit(60);
	ck_assert_uint_eq(fixture_load(&n.state->limit), before);
	ck_assert(give(&h));
	ck_assert_uint_eq(fill(holders), 60);
}
END_TEST

START_TEST(C5_resize_10_5_20_with_holders)
{
	struct holder holders[65], more[65];

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(take(&holders[i]), 0);
	with_limit(5);
	ck_assert_int_eq(take(&more[0]), RESC_E_FULL);
	for (int i = 0; i < 3; i++) {
		ck_assert(give(&holders[i]));
		ck_assert_int_eq(take(&more[0]), RESC_E_FULL); /* 7, 6, 5 inside */
	}
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 5);
	with_limit(20);
	ck_assert_uint_eq(fill(more), 15);
	for (int i = 3; i < 8; i++)
		ck_assert(give(&holders[i])); /* no holder lost its permit */
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 15);
}
END_TEST

START_TEST(C5_after_each_leave_below_the_new_limit_one_fits)
{
	struct holder holders[65], more;

	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(take(&holders[i]), 0);
	with_limit(5);
	for (int i = 0; i < 4; i++)
		ck_assert(give(&holders[i]));
	/* 4 inside, wherever their cells are. */
	ck_assert_int_eq(take(&more), 0);
	ck_assert_int_eq(take(&holders[0]), RESC_E_FULL);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 5);
}
END_TEST

START_TEST(settling_never_admits_more_than_the_limit_for_any_holders)
{
	for (int round = 0; round < 3000; round++) {
		struct holder holders[65], more[65];
		unsigned before = 1 + (unsigned)random_below(40), after = 1 + (unsigned)random_below(40), inside = 0;
		with_limit(before);
		unsigned count = fill(holders);
		ck_assert_uint_eq(count, before);
		for (unsigned i = 0; i < count; i++) {
			if (random_below(3) != 0)
				ck_assert(give(&holders[i]));
			else
				holders[inside++] = holders[i];
		}
		with_limit(after);
		unsigned entered = fill(more);
		ck_assert_uint_eq(entered, inside >= after ? 0 : after - inside);
		for (unsigned i = 0; i < inside; i++)
			ck_assert(give(&holders[i]));
		for (unsigned i = 0; i < entered; i++)
			ck_assert(give(&more[i]));
		ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	}
}
END_TEST

START_TEST(F7_death_before_settling_is_settled_by_the_next_caller)
{
	static const char *const points[] = {"limit.set=kill", "limit.settle=kill"};

	for (size_t i = 0; i < 2; i++) {
		struct holder holders[65];
		with_limit(10);
		pid_t pid = fork();
		if (pid == 0) {
			failpoint_set(points[i]);
			permit_set_limit(&n.map, n.state, 4);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
		ck_assert_uint_eq(limit_effective(fixture_load(&n.state->limit)), 0);
		unsigned count = fill(holders);
		ck_assert_uint_eq(count, 4);
		for (unsigned k = 0; k < count; k++)
			ck_assert(give(&holders[k]));
	}
}
END_TEST

START_TEST(who_was_on_the_way_when_the_limit_fell_looks_again)
{
	/* It has its cell, and has not looked at the limit again. */
	pid_t pid = fork();

	if (pid == 0) {
		struct holder h;
		failpoint_set("permit.taken@1=stop");
		_exit(take_from(&h, 9) == 0 ? (int)h.cell : 100);
	}
	struct puppet late = {pid, -1, -1};
	puppet_wait_stopped(&late);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	struct holder holders[65];
	with_limit(5);
	/* The late one counts as inside while it has its cell. */
	ck_assert_uint_eq(fill(holders), 4);
	kill(pid, SIGCONT);
	/* It gave cell 9 back, and then there was room for it below 5. */
	ck_assert_int_lt(fixture_wait(pid), 5);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 5);
}
END_TEST

/* ---- debts, and closing for good ---- */

START_TEST(a_limit_in_debt_admits_what_is_left)
{
	struct holder holders[65];

	fixture_store(&n.state->limit, limit_make(10, 0, 10, 1));
	ck_assert_uint_eq(fill(holders), 0);
	fixture_store(&n.state->limit, limit_make(10, 0, 4, 1));
	ck_assert_uint_eq(fill(holders), 6);
	ck_assert_int_eq(take(&holders[10]), RESC_E_FULL);
	uint64_t w = fixture_load(&n.state->limit);
	fixture_store(&n.state->limit, limit_make(10, limit_effective(w), 1, 1));
	ck_assert_uint_eq(fill(&holders[6]), 3);
	/* A debt above the target, when the limit was lowered meanwhile: nobody, and no wrap. */
	fixture_store(&n.state->limit, limit_make(3, 0, 10, 1));
	ck_assert_int_eq(take(&holders[20]), RESC_E_FULL);
	ck_assert(!permit_settle(&n.map, n.state));
}
END_TEST

START_TEST(closed_for_good_admits_nobody_and_takes_permits_back)
{
	struct holder h, more;

	ck_assert_int_eq(take(&h), 0);
	permit_close(n.state);
	ck_assert_int_eq(take(&more), -ESTALE);
	permit_set_limit(&n.map, n.state, 20);
	ck_assert_int_eq(take(&more), -ESTALE);
	ck_assert(!permit_settle(&n.map, n.state));
	ck_assert(give(&h));
	uint64_t w = fixture_load(&n.state->limit);
	permit_close(n.state);
	ck_assert_uint_eq(fixture_load(&n.state->limit), w);
}
END_TEST

START_TEST(a_damaged_limit_is_bounded_by_the_cells)
{
	alarm(20);
	for (int i = 0; i < 3000; i++) {
		struct holder h;
		fixture_store(&n.state->limit, random_next());
		int r = take_from(&h, (uint32_t)random_next());
		ck_assert(r == 0 || r == RESC_E_FULL || r == -ESTALE);
		if (r == 0) {
			ck_assert_uint_lt(h.cell, n.map.dims.permits);
			ck_assert(give(&h));
		}
	}
}
END_TEST

/* ---- many at once ---- */

#define THREADS 4

static struct crowd crowd;
static atomic_bool done;

static void *come_and_go(void *arg)
{
	uint32_t life = (uint32_t)(uintptr_t)arg;
	uintptr_t entered = 0;

	for (uint32_t call = 1; !atomic_load(&done) && call < 400000; call++) {
		uint64_t permit = permit_make(life, call);
		uint32_t cell;
		if (permit_acquire(&n.map, n.state, permit, call * 5, &cell) != 0) {
			sched_yield();
			continue;
		}
		crowd_enter(&crowd);
		if (call % 8 == 0) /* so that more are inside than there are processors */
			sched_yield();
		entered++;
		crowd_leave(&crowd);
		ck_assert(permit_release(&n.map, n.state, cell, permit));
	}
	return (void *)entered;
}

START_TEST(threads_are_never_more_than_the_limit)
{
	pthread_t threads[THREADS];
	uintptr_t sum = 0;

	with_limit(2);
	atomic_store(&done, false);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, come_and_go, (void *)(i + 1));
	named_sleep_ms(400);
	atomic_store(&done, true);
	for (int i = 0; i < THREADS; i++) {
		void *entered;
		pthread_join(threads[i], &entered);
		sum += (uintptr_t)entered;
	}
	ck_assert_uint_gt(sum, 100); /* nobody is promised a turn, but somebody always gets in */
	ck_assert_uint_le(crowd_most(&crowd), 2);
	ck_assert_uint_ge(crowd_most(&crowd), 1);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

/*
 * With a limit that moves, at each moment the ones inside are at most the largest limit of the last while. So: lower the limit, wait until
 * they have gone, and from then on it is the new one that counts.
 */
START_TEST(C5_threads_are_never_more_than_the_limit_while_it_moves)
{
	pthread_t threads[THREADS];

	with_limit(4);
	atomic_store(&done, false);
	for (uintptr_t i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, come_and_go, (void *)(i + 1));
	for (int round = 0; round < 150; round++) {
		unsigned limit = 1 + (unsigned)random_below(4);
		with_limit(limit);
		/* Who is inside now came in under a limit of before, if it is beyond this one. */
		while (permit_occupied(&n.map, n.state) > limit)
			sched_yield();
		named_sleep_ms(1);
		crowd_forget(&crowd);
		named_sleep_ms(1);
		ck_assert_uint_le(crowd_most(&crowd), limit);
	}
	atomic_store(&done, true);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

/* ---- as workers see it ---- */

START_TEST(B9_a_full_bulkhead_refuses_by_its_name_and_counts_nothing_else)
{
	resc_ticket tickets[10], ticket;
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");

	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(resc_enter(pay, NULL, &tickets[i]), 0);
	struct inspect_resource before = named_look(&n);
	for (int i = 0; i < 100; i++)
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), RESC_E_FULL);
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), -EINVAL); /* of a refusal there is no ticket */
	struct inspect_resource after = named_look(&n);
	ck_assert_uint_eq(after.counters.refused_full, 100);
	ck_assert_uint_eq(after.counters.enters, before.counters.enters + 100);
	ck_assert_uint_eq(after.window_calls, 0);
	ck_assert_uint_eq(after.consecutive, 0);
	ck_assert_uint_eq(after.breaker, TAG_CLOSED);
	ck_assert_uint_eq(after.in_flight, 10);
	for (int i = 0; i < 10; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
	ck_assert_uint_eq(named_look(&n).in_flight, 0);
	resc_close(host);
}
END_TEST

START_TEST(a_closed_view_gives_its_permits_back)
{
	resc_ticket ticket;
	resc *host = named_join(n.instance);

	ck_assert_int_eq(resc_enter(named_lookup(host, "payments"), NULL, &ticket), 0);
	resc_close(host);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

START_TEST(without_a_limit_a_call_without_a_cell_is_admitted_and_counted)
{
	resc_ticket tickets[70];
	struct policy p;

	policy_private(&p);
	named_reload(&n, &p);
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	for (int i = 0; i < 70; i++)
		ck_assert_int_eq(resc_enter(pay, NULL, &tickets[i]), 0);
	struct inspect_resource r = named_look(&n);
	ck_assert_uint_eq(r.in_flight, 64);
	ck_assert_uint_eq(r.counters.untracked, 6);
	ck_assert(!r.limited);
	for (int i = 0; i < 70; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
	r = named_look(&n);
	ck_assert_uint_eq(r.in_flight, 0);
	ck_assert_uint_eq(r.counters.ended_ok, 70);
	resc_close(host);
}
END_TEST

static void fill_all_cells(void)
{
	for (uint32_t i = 0; i < n.map.dims.permits; i++)
		fixture_store(map_permit(&n.map, n.state, i), permit_make(UINT32_MAX - 1, i + 1));
}

static uint64_t untracked(void)
{
	return named_look(&n).counters.untracked;
}

START_TEST(a_call_without_a_cell_is_left_once_too)
{
	resc_ticket tickets[70], copies[70];
	struct policy p;

	policy_private(&p);
	named_reload(&n, &p);
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	fill_all_cells();
	for (int round = 0; round < 300; round++) {
		for (int i = 0; i < 70; i++)
			ck_assert_int_eq(resc_enter(pay, NULL, &tickets[i]), 0);
		memcpy(copies, tickets, sizeof copies);
		for (int i = 0; i < 70; i++)
			ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
		for (int i = 0; i < 70; i++)
			ck_assert_int_eq(resc_leave(&copies[i], RESC_OK), -ESTALE);
	}
	ck_assert_uint_eq(untracked(), 21000);
	ck_assert_uint_eq(named_look(&n).counters.ended_ok, 21000);
	/* Nor is a parent's its child's. */
	ck_assert_int_eq(resc_enter(pay, NULL, &tickets[0]), 0);
	pid_t pid = fork();
	if (pid == 0)
		_exit(resc_leave(&tickets[0], RESC_OK) == -ESTALE ? 0 : 1);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_int_eq(resc_leave(&tickets[0], RESC_OK), 0);
	resc_close(host);
}
END_TEST

START_TEST(a_call_without_a_cell_that_is_refused_is_not_counted_as_one)
{
	resc_ticket ticket, probe;
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_RATE;
	p.rate_per_second = 1;
	p.rate_burst = 1;
	named_reload(&n, &p);
	resc *host = named_join(n.instance);
	resc_resource *pay = named_lookup(host, "payments");
	fill_all_cells();
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_uint_eq(untracked(), 1);
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), RESC_E_RATE);
	ck_assert_uint_eq(untracked(), 1);
	/* Nor where the probes are out: a resource that is plain, and one that is not. */
	p.probes = 1;
	for (unsigned i = 0; i < 2; i++) {
		p.flags = (p.flags & ~(uint64_t)POLICY_RATE) | POLICY_BREAKER | (i == 0 ? 0 : POLICY_THROTTLE);
		named_reload(&n, &p);
		fixture_store(&n.state->breaker, breaker_make(TAG_HALF_OPEN, 0, (uint16_t)(7 + i), 1000));
		ck_assert_int_eq(resc_enter(pay, NULL, &probe), 0);
		ck_assert_uint_eq(untracked(), 2 + i);
		ck_assert_int_eq(resc_enter(pay, NULL, &ticket), RESC_E_HALF_OPEN);
		ck_assert_uint_eq(untracked(), 2 + i);
		ck_assert_int_eq(resc_leave(&probe, RESC_OK), 0);
	}
	resc_close(host);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        exactly_the_limit_is_admitted_from_wherever_one_starts,
	        the_home_cell_is_taken_only_when_it_is_free_and_below_the_limit,
	        without_a_bulkhead_each_cell_can_be_used,
	        a_limit_beyond_the_cells_is_the_cells,
	        only_the_very_permit_gives_its_cell_back,
	        C5_the_same_limit_again_changes_nothing,
	        C5_resize_10_5_20_with_holders,
	        C5_after_each_leave_below_the_new_limit_one_fits,
	        settling_never_admits_more_than_the_limit_for_any_holders,
	        F7_death_before_settling_is_settled_by_the_next_caller,
	        who_was_on_the_way_when_the_limit_fell_looks_again,
	        a_limit_in_debt_admits_what_is_left,
	        closed_for_good_admits_nobody_and_takes_permits_back,
	        a_damaged_limit_is_bounded_by_the_cells,
	        threads_are_never_more_than_the_limit,
	        C5_threads_are_never_more_than_the_limit_while_it_moves,
	        B9_a_full_bulkhead_refuses_by_its_name_and_counts_nothing_else,
	        a_closed_view_gives_its_permits_back,
	        without_a_limit_a_call_without_a_cell_is_admitted_and_counted,
	        a_call_without_a_cell_is_left_once_too,
	        a_call_without_a_cell_that_is_refused_is_not_counted_as_one,
	};

	return NAMED_RUN("permit", tests, set_up, tear_down);
}
