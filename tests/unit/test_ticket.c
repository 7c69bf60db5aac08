/* SPDX-License-Identifier: MIT */
/*
 * A ticket that is not good: left twice, a copy, zeroed, damaged, garbage, of another process or of a closed view. Leaving it is an error,
 * and not a byte of the segment changes.
 */
#include <errno.h>

#include "named.h"
#include "permit.h"
#include "random.h"

static struct named n;
static resc *host;
static resc_resource *pay;
static uint8_t *before;

static void set_up(void)
{
	struct policy p;

	policy_private(&p);
	p.flags |= POLICY_BULKHEAD | POLICY_BUDGET;
	p.limit = 8;
	p.consecutive = 3;
	p.cooldown_ms = 100;
	p.probe_timeout_ms = 500;
	named_open(&n, &p);
	host = named_join(n.instance);
	pay = named_lookup(host, "payments");
	before = malloc(n.map.size);
	ck_assert_ptr_nonnull(before);
}

static void tear_down(void)
{
	free(before);
	resc_close(host);
	named_close(&n);
}

static void remember(void)
{
	memcpy(before, n.map.base, n.map.size);
}

static void unchanged(void)
{
	/* Not ck_assert_mem_eq: it would print the segment. */
	ck_assert(memcmp(before, n.map.base, n.map.size) == 0);
}

/* Leaving it fails with that, whatever the outcome said, and changes nothing. */
static void is_refused(const resc_ticket *ticket, int expected)
{
	for (int outcome = RESC_OK; outcome <= RESC_CANCELLED; outcome++) {
		resc_ticket copy = *ticket;
		remember();
		ck_assert_int_eq(resc_leave(&copy, (enum resc_outcome)outcome), expected);
		unchanged();
	}
}

static resc_ticket entered(void)
{
	resc_ticket ticket;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	return ticket;
}

static resc_ticket probe(void)
{
	for (int i = 0; i < 3; i++) {
		resc_ticket ticket = entered();
		ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), 0);
	}
	named_at(&n, named_look(&n).due_ms);
	resc_ticket ticket = entered();
	ck_assert(ticket.probe);
	return ticket;
}

/* ---- twice ---- */

START_TEST(left_twice)
{
	resc_ticket ticket = entered();

	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	is_refused(&ticket, -EINVAL); /* it was zeroed */
	resc_ticket zero;
	memset(&zero, 0, sizeof zero);
	ck_assert_mem_eq(&ticket, &zero, sizeof zero);
	is_refused(&zero, -EINVAL);
}
END_TEST

START_TEST(a_copy_left_after_the_original)
{
	resc_ticket ticket = entered(), copy = ticket;

	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	is_refused(&copy, -ESTALE);
	/* Also when somebody else, or the same worker, has the cell now. */
	resc_ticket next = entered();
	is_refused(&copy, -ESTALE);
	struct puppet other = puppet_start(n.instance, NULL);
	ck_assert_int_eq(puppet_enter(&other, 0), 0);
	is_refused(&copy, -ESTALE);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 2);
	ck_assert_int_eq(resc_leave(&next, RESC_OK), 0);
	ck_assert_int_eq(puppet_leave(&other, 0, RESC_OK), 0);
	puppet_quit(&other);
}
END_TEST

START_TEST(a_copy_can_be_left_instead_of_the_original_once)
{
	resc_ticket ticket = entered(), copy = ticket;

	ck_assert_int_eq(resc_leave(&copy, RESC_OK), 0);
	is_refused(&ticket, -ESTALE);
	ck_assert_uint_eq(named_look(&n).counters.ended_ok, 1);
}
END_TEST

START_TEST(a_copy_of_a_probe_left_after_the_original)
{
	resc_ticket ticket = probe(), copy = ticket;

	ck_assert_int_eq(resc_leave(&ticket, RESC_IGNORED), 0);
	is_refused(&copy, -ESTALE);
	ck_assert_uint_eq(named_look(&n).breaker, TAG_HALF_OPEN);
	resc_ticket next = entered();
	ck_assert(next.probe);
	is_refused(&copy, -ESTALE);
	ck_assert_int_eq(resc_leave(&next, RESC_OK), 0);
	is_refused(&copy, -ESTALE);
	ck_assert_uint_eq(named_look(&n).breaker, TAG_CLOSED);
}
END_TEST

START_TEST(a_refusal_has_no_ticket)
{
	resc_ticket tickets[8], ticket;

	for (int i = 0; i < 8; i++)
		tickets[i] = entered();
	memset(&ticket, 0xa5, sizeof ticket);
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), RESC_E_FULL);
	is_refused(&ticket, -EINVAL);
	memset(&ticket, 0xa5, sizeof ticket);
	resc_options options = RESC_OPTIONS_INIT;
	options.flags = 0x80;
	ck_assert_int_eq(resc_enter(pay, &options, &ticket), -EINVAL);
	is_refused(&ticket, -EINVAL);
	for (int i = 0; i < 8; i++)
		ck_assert_int_eq(resc_leave(&tickets[i], RESC_OK), 0);
}
END_TEST

/* ---- garbage ---- */

START_TEST(random_bytes_are_no_tickets)
{
	resc_ticket live = entered();

	remember();
	for (int i = 0; i < 50000; i++) {
		uint64_t noise[sizeof(resc_ticket) / 8];
		resc_ticket ticket;
		for (size_t k = 0; k < sizeof noise / sizeof noise[0]; k++)
			noise[k] = random_next();
		memcpy(&ticket, noise, sizeof ticket);
		if (i % 2 == 0)
			ticket.shape = live.shape; /* these come further */
		ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), -EINVAL);
		if (i % 1000 == 0)
			unchanged();
	}
	unchanged();
	ck_assert_int_eq(resc_leave(&live, RESC_OK), 0);
}
END_TEST

START_TEST(each_bit_of_a_ticket_flipped)
{
	resc_ticket live = entered();
	/* What the caller may write over, and what is only padding, is not sealed. */
	const size_t first = offsetof(resc_ticket, probe);

	remember();
	for (size_t bit = first * 8; bit < sizeof live * 8; bit++) {
		unsigned char bytes[sizeof live];
		resc_ticket damaged;
		memcpy(bytes, &live, sizeof bytes);
		bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
		memcpy(&damaged, bytes, sizeof damaged);
		ck_assert_msg(resc_leave(&damaged, RESC_FAIL) == -EINVAL, "bit %zu of byte %zu", bit % 8, bit / 8);
	}
	unchanged();
	live.timeout_ms = -77;
	ck_assert_int_eq(resc_leave(&live, RESC_OK), 0);
}
END_TEST

START_TEST(fields_of_two_tickets_mixed)
{
	resc_ticket a = entered(), b = entered();

	for (size_t field = offsetof(resc_ticket, permit_cell); field < sizeof a; field += 4) {
		resc_ticket mixed = a;
		memcpy((char *)&mixed + field, (const char *)&b + field, 4);
		if (memcmp(&mixed, &a, sizeof a) != 0)
			is_refused(&mixed, -EINVAL);
	}
	ck_assert_int_eq(resc_leave(&a, RESC_OK), 0);
	ck_assert_int_eq(resc_leave(&b, RESC_OK), 0);
}
END_TEST

START_TEST(a_permit_that_was_reaped)
{
	/* As after a life that was taken for dead: its cells are free or another's. */
	resc_ticket ticket = entered();
	word *cell = NULL;

	for (uint32_t i = 0; i < n.map.dims.permits; i++)
		if (fixture_load(map_permit(&n.map, n.state, i)) != 0)
			cell = map_permit(&n.map, n.state, i);
	uint64_t permit = fixture_load(cell);
	fixture_store(cell, 0);
	is_refused(&ticket, -ESTALE);
	fixture_store(cell, permit_make(4711, 1));
	is_refused(&ticket, -ESTALE);
	fixture_store(cell, permit);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

/* ---- of another process, another life, another segment ---- */

START_TEST(G4_of_the_parent_in_a_forked_child)
{
	resc_ticket ticket = entered();

	for (int called = 0; called < 2; called++) {
		pid_t pid = fork();
		if (pid == 0) {
			if (called) {
				/* The child is a worker already, perhaps with a cell of its own. */
				resc_ticket mine = entered();
				is_refused(&ticket, -ESTALE);
				ck_assert_int_eq(resc_leave(&mine, RESC_OK), 0);
			}
			is_refused(&ticket, -ESTALE);
			_exit(0);
		}
		ck_assert_int_eq(fixture_wait(pid), 0);
	}
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

START_TEST(of_a_generation_of_the_breaker_that_is_over)
{
	resc_ticket ticket = entered();
	resc_ticket trial = probe();

	ck_assert_int_eq(resc_leave(&trial, RESC_OK), 0);
	uint64_t breaker = fixture_load(&n.state->breaker), streak = fixture_load(&n.state->streak);
	uint64_t bad_tick = fixture_load(&n.state->bad_tick), tally = fixture_load(&n.state->tally);
	struct inspect_resource was = named_look(&n);
	ck_assert_int_eq(resc_leave(&ticket, RESC_FAIL), RESC_STALE);
	/* Its permit is given back and it is counted; the breaker has nothing of it. */
	struct inspect_resource is = named_look(&n);
	ck_assert_uint_eq(fixture_load(&n.state->breaker), breaker);
	ck_assert_uint_eq(fixture_load(&n.state->streak), streak);
	ck_assert_uint_eq(fixture_load(&n.state->bad_tick), bad_tick);
	ck_assert_uint_eq(fixture_load(&n.state->tally), tally);
	ck_assert_uint_eq(is.window_calls, was.window_calls);
	ck_assert_uint_eq(is.in_flight, was.in_flight - 1);
	ck_assert_uint_eq(is.counters.stale, was.counters.stale + 1);
	ck_assert_uint_eq(is.counters.ended_fail, was.counters.ended_fail + 1);
}
END_TEST

START_TEST(of_a_segment_that_is_gone)
{
	/* Removed and made again by hand: another segment, with nothing of ours in it. */
	resc_ticket ticket = entered();
	struct named other = n;
	struct resc_error err;

	unlink(n.path);
	ck_assert_int_eq(map_create(&other.map, n.instance, &n.map.dims, NULL, 0600, (gid_t)-1, &err), 0);
	named_at(&other, 1000);
	named_add(&other, "payments", &n.policy);
	ck_assert_int_eq(map_publish(&other.map, n.path), 0);
	named_sleep_ms(1100);
	/* Within a second a call looks, and joins the new one. */
	for (int i = 0; i < 3; i++) {
		resc_ticket t = entered();
		resc_leave(&t, RESC_OK);
	}
	struct resc_status status;
	ck_assert_int_eq(resc_status(host, &status), 0);
	ck_assert_uint_eq(status.generation, other.map.generation);
	uint64_t breaker = fixture_load(&other.state->breaker);
	struct inspect_resource was = named_look(&other);
	int r = resc_leave(&ticket, RESC_FAIL);
	ck_assert(r == 0 || r == RESC_STALE);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0); /* given back where it was taken */
	struct inspect_resource is = named_look(&other);
	ck_assert_uint_eq(fixture_load(&other.state->breaker), breaker);
	ck_assert_uint_eq(is.window_calls, was.window_calls);
	ck_assert_uint_eq(is.consecutive, was.consecutive);
	ck_assert_uint_le(is.counters.ended_ok + is.counters.ended_fail, is.counters.admitted);
	map_close(&other.map);
}
END_TEST

START_TEST(of_another_view_of_the_same_process)
{
	/* Two views are two workers; a ticket knows its own. */
	resc *second = named_join(n.instance);
	resc_resource *again = named_lookup(second, "payments");
	resc_ticket a = entered(), b;

	ck_assert_int_eq(resc_enter(again, NULL, &b), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 2);
	resc_close(second);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 1);
	ck_assert_int_eq(resc_leave(&a, RESC_OK), 0);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        left_twice,
	        a_copy_left_after_the_original,
	        a_copy_can_be_left_instead_of_the_original_once,
	        a_copy_of_a_probe_left_after_the_original,
	        a_refusal_has_no_ticket,
	        random_bytes_are_no_tickets,
	        each_bit_of_a_ticket_flipped,
	        fields_of_two_tickets_mixed,
	        a_permit_that_was_reaped,
	        G4_of_the_parent_in_a_forked_child,
	        of_a_generation_of_the_breaker_that_is_over,
	        of_a_segment_that_is_gone,
	        of_another_view_of_the_same_process,
	};

	return NAMED_RUN("ticket", tests, set_up, tear_down);
}
