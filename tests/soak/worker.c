/* SPDX-License-Identifier: MIT */
/*
 * A worker of the storm: calls in a loop, and an account of what each call said.
 *
 * Every operation is announced before it begins and entered when it has returned. What a worker holds is written down after it has got it
 * and struck out before it gives it back, so that at any moment what is written down is really held: then nobody else may have it.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "storm.h"

#define SELF        (&storm.shared->actors[self])
#define ONCE_TTL_NS UINT64_C(3000000000) /* as in the configuration */

static uint32_t self;
static uint32_t incarnation;
static uint64_t seed;
static resc *host;
static resc_resource *handles[RESOURCES];
static bool is_child;
static uint32_t calls_left = UINT32_MAX;

/* ---- the account ---- */

static void begin(enum op op, uint32_t r, unsigned outcome)
{
	/* Release: it stands there before the operation begins, also for a driver that reads it after a SIGKILL. */
	atomic_store_explicit(&SELF->pending, (uint32_t)op | r << 8 | outcome << 16, memory_order_release);
	atomic_signal_fence(memory_order_seq_cst);
}

static void add(uint32_t r, unsigned counter)
{
	_Atomic uint64_t *place = &SELF->counted[r][counter];

	/* Relaxed: nobody else writes it. */
	atomic_store_explicit(place, atomic_load_explicit(place, memory_order_relaxed) + 1, memory_order_relaxed);
}

static void end(void)
{
	atomic_store_explicit(&SELF->pending, 0, memory_order_release);
}

static uint32_t stops(void)
{
	return atomic_load_explicit(&SELF->stops, memory_order_relaxed);
}

/* How long a call took, unless we were stopped in it. */
static void note_latency(uint64_t ns, uint32_t stops_before)
{
	if (stops() != stops_before)
		return;
	bool in_storm = atomic_load_explicit(&storm.shared->storm, memory_order_relaxed);
	_Atomic uint64_t *place = &SELF->latency[in_storm][latency_place(ns)];

	atomic_store_explicit(place, atomic_load_explicit(place, memory_order_relaxed) + 1, memory_order_relaxed);
}

/* ---- who holds what ---- */

static void hold(_Atomic uint64_t *place, uint16_t generation, int change)
{
	uint64_t w = atomic_load_explicit(place, memory_order_relaxed);
	uint64_t many = (w & 0xffff) + (uint64_t)(int64_t)change;

	/* seq_cst: between two that each write theirs and look at the other's, one sees both. */
	atomic_store_explicit(place, ((w >> 32) + 1) << 32 | (uint64_t)generation << 16 | (many & 0xffff), memory_order_seq_cst);
}

/* How many are held by those who are not about to be killed, in two looks that found the same: so all of them at one moment. 0: the looks
 * differ. generation below 0: any. */
static uint32_t held_at_once(size_t offset, int generation)
{
	uint64_t first[ACTORS_MAX];
	uint32_t sum = 0;

	for (uint32_t i = 0; i < 2 * storm.workers; i++) {
		const struct actor *a = &storm.shared->actors[i];
		first[i] = atomic_load_explicit((const _Atomic uint64_t *)((const char *)a + offset), memory_order_seq_cst);
	}
	for (uint32_t i = 0; i < 2 * storm.workers; i++) {
		const struct actor *a = &storm.shared->actors[i];
		if (atomic_load_explicit((const _Atomic uint64_t *)((const char *)a + offset), memory_order_seq_cst) != first[i])
			return 0;
		if (!atomic_load_explicit(&a->doomed, memory_order_seq_cst) &&
		    (generation < 0 || (uint16_t)(first[i] >> 16) == (uint16_t)generation))
			sum += (uint32_t)(first[i] & 0xffff);
	}
	return sum;
}

static void check_inside(uint32_t r)
{
	uint32_t most = atomic_load_explicit(&storm.shared->most[r], memory_order_seq_cst);
	uint32_t held = held_at_once(offsetof(struct actor, inside) + r * sizeof(uint64_t), -1);

	/* A larger limit may have been announced meanwhile: that is done before it is loaded. */
	if (most != 0 && held > most && held > atomic_load_explicit(&storm.shared->most[r], memory_order_seq_cst))
		complain("%s: %u calls inside at once, and the limit is %u", traits[r].name, held, most);
}

static void check_probes(uint32_t r, const resc_ticket *t)
{
	uint32_t held = held_at_once(offsetof(struct actor, probing) + r * sizeof(uint64_t), t->breaker_generation);

	if (traits[r].probes != 0 && held > traits[r].probes)
		complain("%s: %u probes out at once in one trial, and %u may be", traits[r].name, held, traits[r].probes);
}

/* ---- calls ---- */

static void learn_life(void)
{
	struct resc_status status;

	if (resc_status(host, &status) != 0 || status.mode != RESC_SHARED)
		complain("worker %u has fallen into private mode: %s", self, status.reason);
	atomic_store_explicit(&SELF->life, (uint32_t)status.worker, memory_order_relaxed);
	atomic_store_explicit(&SELF->segment, status.generation, memory_order_release);
}

static unsigned refusal_counter(int answer)
{
	static const unsigned counters[] = {
#define X(NAME, name, text) [RESC_E_##NAME] = COUNTER_refused_##name,
	        RESC_REFUSALS(X)
#undef X
	};

	return counters[answer];
}

/* Asks for a call. 0: it is inside. Everything else was dealt with. */
static int enter(uint32_t r, const resc_options *options, resc_ticket *ticket)
{
	begin(OP_ENTER, r, 0);
	uint32_t stopped = stops();
	uint64_t started = now_ns();
	int answer = resc_enter(handles[r], options, ticket);
	uint64_t took = now_ns() - started;
	if (answer == 0)
		add(r, COUNTER_admitted);
	else if (answer > 0)
		add(r, refusal_counter(answer));
	else if (answer == -EAGAIN)
		atomic_fetch_add_explicit(&SELF->agains, 1, memory_order_relaxed);
	/* Still in the middle of it: what is held is written down first. */
	if (answer == 0)
		hold(&SELF->inside[r], 0, 1);
	if (answer == 0 && ticket->probe) {
		hold(&SELF->probing[r], ticket->breaker_generation, 1);
		add(r, COUNTER_probes);
	}
	end();
	if (answer < 0 && answer != -EAGAIN && (traits[r].strict || (answer != -ENOENT && answer != -ENOSPC)))
		complain("%s: resc_enter said %d: %s", traits[r].name, answer, resc_text(answer));
	/* Those wait, as their policies say. */
	if (r != R_PAY && r != R_LEDGER && r != R_MAIL)
		note_latency(took, stopped);
	atomic_store_explicit(&SELF->calls, atomic_load_explicit(&SELF->calls, memory_order_relaxed) + 1, memory_order_relaxed);
	if (answer != 0)
		return answer;
	check_inside(r);
	if (ticket->probe)
		check_probes(r, ticket);
	if (ticket->segment != atomic_load_explicit(&SELF->segment, memory_order_relaxed))
		learn_life();
	return 0;
}

static void leave(uint32_t r, resc_ticket *ticket, enum resc_outcome outcome)
{
	static const unsigned counters[] = {
	        [RESC_OK] = COUNTER_ended_ok,           [RESC_FAIL] = COUNTER_ended_fail,           [RESC_TIMEOUT] = COUNTER_ended_timeout,
	        [RESC_IGNORED] = COUNTER_ended_ignored, [RESC_CANCELLED] = COUNTER_ended_cancelled,
	};

	begin(OP_LEAVE, r, outcome);
	if (ticket->probe)
		hold(&SELF->probing[r], ticket->breaker_generation, -1);
	hold(&SELF->inside[r], 0, -1);
	uint32_t stopped = stops();
	uint64_t started = now_ns();
	int answer = resc_leave(ticket, outcome);
	uint64_t took = now_ns() - started;
	if (answer >= 0)
		add(r, counters[outcome]);
	if (answer == RESC_STALE)
		add(r, COUNTER_stale);
	end();
	note_latency(took, stopped);
	if (answer != 0 && answer != RESC_STALE)
		complain("%s: resc_leave of a living worker's call said %d: %s", traits[r].name, answer, resc_text(answer));
}

/* 0: try again. */
static int ask_for_retry(uint32_t r, resc_retry_plan *plan, enum resc_outcome outcome)
{
	static const unsigned counters[] = {
	        [RESC_E_ATTEMPTS] = COUNTER_retry_attempts,         [RESC_E_BUDGET] = COUNTER_retry_budget,
	        [RESC_E_RETRY_DEADLINE] = COUNTER_retry_deadline,   [RESC_E_NOT_RETRYABLE] = COUNTER_retry_not_retryable,
	        [RESC_E_UPSTREAM] = COUNTER_retry_upstream,         [RESC_E_PUSHBACK] = COUNTER_retry_pushback,
	        [RESC_E_RETRY_IN_FLIGHT] = COUNTER_retry_in_flight,
	};
	int64_t wait_ns;

	begin(OP_RETRY, r, outcome);
	int answer = resc_retry(handles[r], plan, outcome, &wait_ns);
	if (answer >= 0)
		add(r, answer == 0 ? COUNTER_retries : counters[answer]);
	end();
	if (answer < 0 && answer != -EAGAIN && (traits[r].strict || (answer != -ENOENT && answer != -ENOSPC)))
		complain("%s: resc_retry said %d: %s", traits[r].name, answer, resc_text(answer));
	return answer;
}

/* ---- what a worker does with its time ---- */

static void work(void)
{
	uint32_t kind = random_below(&seed, 10);

	if (kind < 4)
		return;
	if (kind < 9)
		sleep_us(random_below(&seed, 200));
	else
		sleep_us(random_below(&seed, 3000));
}

static enum resc_outcome draw_outcome(uint32_t r)
{
	static const enum resc_outcome bad[] = {RESC_FAIL, RESC_FAIL, RESC_TIMEOUT};
	static const enum resc_outcome good[] = {RESC_OK, RESC_OK, RESC_OK, RESC_OK, RESC_OK, RESC_OK, RESC_IGNORED, RESC_CANCELLED};

	if (random_below(&seed, 1000000) < atomic_load_explicit(&storm.shared->failing_ppm[r], memory_order_relaxed))
		return bad[random_below(&seed, 3)];
	return good[random_below(&seed, 8)];
}

static resc_options draw_options(void)
{
	static const uint32_t priorities[] = {RESC_NORMAL, RESC_NORMAL, RESC_CRITICAL, RESC_LOW};
	resc_options options = RESC_OPTIONS_INIT;

	options.priority = priorities[random_below(&seed, 4)];
	uint32_t deadline = random_below(&seed, 16);
	if (deadline == 0)
		options.deadline_ns = resc_now_ns() - 1;
	else if (deadline < 4)
		options.deadline_ns = resc_deadline_after_ms(1 + random_below(&seed, 100));
	return options;
}

/* ---- attaching ---- */

/* A view that is shared. A private one is closed and opened again: its calls would be in nobody's account. */
static void open_host(void)
{
	struct resc_error err;
	struct resc_status status;

	for (;;) {
		if (host == NULL)
			host = resc_open(storm.instance, &err);
		if (host == NULL)
			complain("resc_open: %s", err.text);
		if (resc_status(host, &status) == 0 && status.mode == RESC_SHARED)
			break;
		resc_close(host);
		host = NULL;
		memset(handles, 0, sizeof(handles));
		sleep_us(2000);
	}
	learn_life();
}

/* Is there a handle? One of a pattern needs rescd, which may be dead. */
static bool look_up(uint32_t r)
{
	struct resc_error err = {0, ""};

	if (handles[r] != NULL)
		return true;
	handles[r] = resc_lookup(host, traits[r].name, &err);
	bool may_be_missing = !traits[r].strict && (err.code == -ENOENT || err.code == -ENOSPC);
	if (handles[r] == NULL && err.code != -EAGAIN && !may_be_missing)
		complain("%s: resc_lookup said %d: %s", traits[r].name, err.code, err.text);
	return handles[r] != NULL;
}

static void look_everything_up(void)
{
	/* Before the first call: no call inside a call has to wait for a lookup. */
	for (uint32_t r = 0; r < RESOURCES; r++)
		while (!look_up(r) && traits[r].strict)
			sleep_us(10000);
}

/* ---- children ---- */

static void be_a_child(uint32_t index, uint32_t number, const resc_ticket *held)
{
	struct actor *a = &storm.shared->actors[index];
	uint32_t starting = number << 8 | ACTOR_STARTING;
	resc_ticket copy = *held;

	self = index;
	incarnation = number;
	is_child = true;
	atomic_store_explicit(&a->pid, (int)getpid(), memory_order_seq_cst);
	/* The driver may have given up on us: a parent that died in the middle of a fork. */
	if (!atomic_compare_exchange_strong_explicit(&a->phase, &starting, number << 8 | ACTOR_RUNNING, memory_order_seq_cst,
	                                             memory_order_seq_cst))
		_exit(0);
	seed ^= UINT64_C(0x5bd1e995) * (index + 1);
	int answer = resc_leave(&copy, RESC_OK);
	if (answer != -ESTALE)
		complain("a child that left its parent's call was told %d", answer);
	calls_left = 20 + random_below(&seed, 400);
	open_host();
	look_everything_up();
}

/* A fork in the middle of a call. True in the child: it is a worker of its own, until it has made some calls, or is killed. */
static bool fork_a_child(const resc_ticket *held)
{
	uint32_t index = storm.workers + self;
	struct actor *a = &storm.shared->actors[index % ACTORS_MAX];
	uint32_t none = atomic_load_explicit(&a->phase, memory_order_seq_cst);

	if (is_child || (none & 0xff) != ACTOR_FREE)
		return false;
	uint32_t number = (none >> 8) + 1;
	atomic_store_explicit(&a->pid, 0, memory_order_seq_cst);
	if (!atomic_compare_exchange_strong_explicit(&a->phase, &none, number << 8 | ACTOR_STARTING, memory_order_seq_cst,
	                                             memory_order_seq_cst))
		return false;
	atomic_fetch_add_explicit(&storm.shared->forks, 1, memory_order_relaxed);
	pid_t pid = fork();
	if (pid == 0)
		be_a_child(index, number, held);
	else if (pid < 0)
		atomic_store_explicit(&a->phase, number << 8 | ACTOR_FREE, memory_order_seq_cst);
	return pid == 0;
}

/* ---- whole calls ---- */

/* Another call inside a call. */
static void call_inside(uint32_t r)
{
	resc_options options = draw_options();
	resc_ticket ticket;

	if (handles[r] == NULL || enter(r, &options, &ticket) != 0)
		return;
	work();
	leave(r, &ticket, draw_outcome(r));
}

/* A call, with its retries, and now and then with another inside it, or a fork. */
static void call(uint32_t r)
{
	resc_retry_plan plan = RESC_RETRY_INIT;
	resc_options options = draw_options();
	resc_ticket ticket;

	while (enter(r, &options, &ticket) == 0) {
		work();
		if (random_below(&seed, 16) == 0)
			call_inside(random_below(&seed, RESOURCES));
		/* The call is the parent's. */
		if (random_below(&seed, 300) == 0 && fork_a_child(&ticket))
			return;
		enum resc_outcome outcome = draw_outcome(r);
		leave(r, &ticket, outcome);
		if ((outcome != RESC_FAIL && outcome != RESC_TIMEOUT) || ask_for_retry(r, &plan, outcome) != 0)
			return;
		options.flags |= RESC_RETRY;
	}
}

static void fall_back(uint32_t r)
{
	begin(OP_FALLBACK, r, 0);
	int answer = resc_fallback(handles[r], "cache");
	if (answer == 0)
		add(r, COUNTER_fallback_cache);
	end();
	if (answer < 0 && traits[r].strict && answer != -EAGAIN)
		complain("%s: resc_fallback said %d: %s", traits[r].name, answer, resc_text(answer));
}

/* ---- idempotency keys ---- */

static uint64_t owner_word(void)
{
	return (uint64_t)(self + 1) << 32 | incarnation;
}

static bool owner_lives(uint64_t owner)
{
	const struct actor *a = &storm.shared->actors[(owner >> 32) - 1];

	uint32_t phase = atomic_load_explicit(&a->phase, memory_order_seq_cst);

	return phase >> 8 == (uint32_t)owner && (phase & 0xff) != ACTOR_FREE && !atomic_load_explicit(&a->doomed, memory_order_seq_cst);
}

/* The library said that we are the first. Nobody else who lives may have heard the same, and nobody may have done it lately. */
static void claim_key(uint32_t r, struct key_place *place, uint64_t number)
{
	uint64_t owner = atomic_exchange_explicit(&place->owner, owner_word(), memory_order_seq_cst);
	uint64_t done = atomic_load_explicit(&place->done_ns, memory_order_seq_cst);

	if (atomic_load_explicit(&place->number, memory_order_seq_cst) != number)
		return; /* so old that its place is another's */
	if (owner != 0 && owner != owner_word() && owner_lives(owner))
		complain("%s: key %llu was given to two living workers", traits[r].name, (unsigned long long)number);
	if (done != 0 && now_ns() - done < ONCE_TTL_NS / 2)
		complain("%s: key %llu was done, and is first again", traits[r].name, (unsigned long long)number);
}

static void end_key(uint32_t r, struct key_place *place, resc_once *once, uint64_t number)
{
	bool done = random_below(&seed, 8) != 0;

	/* Struck out before, so that whoever comes after finds nobody. */
	atomic_store_explicit(&place->owner, 0, memory_order_seq_cst);
	begin(done ? OP_ONCE_DONE : OP_ONCE_ABANDON, r, 0);
	int answer = done ? resc_once_done(once, &number, sizeof(number)) : resc_once_abandon(once);
	if (done && answer == 0)
		add(r, COUNTER_once_done);
	end();
	if (answer == 0 && done)
		atomic_store_explicit(&place->done_ns, now_ns(), memory_order_seq_cst);
	if (answer != 0)
		complain("%s: a living worker's key %llu ended with %d: %s", traits[r].name, (unsigned long long)number, answer,
		         resc_text(answer));
}

static struct key_place *place_of(uint64_t number)
{
	struct key_place *place = &storm.shared->keys[number % KEYS];
	uint64_t seen = atomic_load_explicit(&place->number, memory_order_seq_cst);

	if (seen == number)
		return place;
	if (seen > number ||
	    !atomic_compare_exchange_strong_explicit(&place->number, &seen, number, memory_order_seq_cst, memory_order_seq_cst))
		return seen == number ? place : NULL;
	atomic_store_explicit(&place->owner, 0, memory_order_seq_cst);
	atomic_store_explicit(&place->done_ns, 0, memory_order_seq_cst);
	return place;
}

static void once(void)
{
	resc_once ticket;
	/* Several come with the same key, at about the same time. */
	uint64_t number = atomic_fetch_add_explicit(&storm.shared->next_key, 1, memory_order_seq_cst) / 4 + 1;
	uint32_t r = number % 2 == 0 ? R_PAY : R_MAIL;
	struct key_place *place = place_of(number);
	char key[32];

	if (place == NULL)
		return;
	int size = snprintf(key, sizeof(key), "key-%llu", (unsigned long long)number);
	begin(OP_ONCE_BEGIN, r, 0);
	int answer = resc_once_begin(handles[r], key, (size_t)size, NULL, &ticket);
	if (answer == 0)
		add(r, COUNTER_once_first);
	else if (answer == RESC_ONCE_BUSY)
		add(r, COUNTER_once_busy);
	else if (answer == RESC_ONCE_DONE)
		add(r, COUNTER_once_replayed);
	else if (answer == RESC_ONCE_UNKNOWN)
		add(r, COUNTER_once_unknown);
	else if (answer == -ENOSPC)
		add(r, COUNTER_once_full);
	end();
	if (answer == RESC_ONCE_DONE && (ticket.size != sizeof(number) || memcmp(ticket.answer, &number, sizeof(number)) != 0))
		complain("%s: the answer of key %llu is not what was stored", traits[r].name, (unsigned long long)number);
	if (answer < 0 && answer != -ENOSPC && answer != -EAGAIN)
		complain("%s: resc_once_begin said %d: %s", traits[r].name, answer, resc_text(answer));
	if (answer != 0)
		return;
	claim_key(r, place, number);
	work();
	end_key(r, place, &ticket, number);
}

/* ---- the loop ---- */

/* Keeps up with the segment: follows to a new one, and lets go of old ones. A call that is refused because its time is over. */
static void keep_up(void)
{
	resc_options options = RESC_OPTIONS_INIT;
	resc_ticket ticket;

	options.deadline_ns = resc_now_ns() - 1;
	for (uint32_t r = 0; r < RESOURCES; r++)
		if (traits[r].strict)
			enter(r, &options, &ticket);
	learn_life();
}

static void wait_while_paused(void)
{
	struct actor *a = SELF;
	uint64_t next = 0;

	while (atomic_load_explicit(&storm.shared->pause, memory_order_seq_cst) != 0 &&
	       !atomic_load_explicit(&storm.shared->end, memory_order_seq_cst)) {
		bool still = atomic_load_explicit(&storm.shared->pause, memory_order_seq_cst) == 2;
		atomic_store_explicit(&a->phase, incarnation << 8 | (still ? ACTOR_PAUSED : ACTOR_RUNNING), memory_order_seq_cst);
		if (!still && now_ns() >= next) {
			keep_up();
			next = now_ns() + 50000000;
		}
		sleep_us(2000);
	}
	atomic_store_explicit(&a->phase, incarnation << 8 | ACTOR_RUNNING, memory_order_seq_cst);
}

static void one_thing(void)
{
	static const uint32_t often[] = {R_PAY, R_SEARCH, R_INDEX, R_LEDGER, R_MAIL, R_TRIAL, R_SHARD_A, R_SHARD_B};
	uint32_t r = random_below(&seed, 8) != 0 ? often[random_below(&seed, 8)] : random_below(&seed, RESOURCES);
	uint32_t what = random_below(&seed, 100);

	if (!look_up(r))
		return;
	if (what < 3)
		fall_back(r);
	else if (what < 15)
		once();
	else
		call(r);
}

_Noreturn static void leave_the_stage(void)
{
	/* Half of the children end as a program that never heard of us does. */
	if (!is_child || random_below(&seed, 2) == 0)
		resc_close(host);
	if (is_child)
		atomic_store_explicit(&SELF->phase, incarnation << 8 | ACTOR_FREE, memory_order_seq_cst);
	_exit(0);
}

void actor_run(uint32_t index, uint32_t number)
{
	self = index;
	incarnation = number;
	seed = storm.seed ^ (uint64_t)index << 48 ^ (uint64_t)number << 20;
	random_next(&seed);
	resc_seed(random_next(&seed));
	signal(SIGCHLD, SIG_IGN);
	atomic_store_explicit(&SELF->phase, incarnation << 8 | ACTOR_RUNNING, memory_order_seq_cst);
	open_host();
	look_everything_up();
	while (calls_left-- > 0 && !atomic_load_explicit(&storm.shared->end, memory_order_seq_cst)) {
		if (atomic_load_explicit(&storm.shared->pause, memory_order_seq_cst) != 0)
			wait_while_paused();
		one_thing();
		/* Mostly as a server: a call, and a pause. Now and then as fast as it goes, so that deaths hit calls and not sleep. */
		if (random_below(&seed, 256) == 0)
			for (uint32_t i = random_below(&seed, 300); i > 0; i--)
				one_thing();
		else
			sleep_us(random_below(&seed, 800));
	}
	leave_the_stage();
}
