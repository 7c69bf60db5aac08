/* SPDX-License-Identifier: MIT */
/*
 * The circuit breaker of a resource, shared by the whole host: one word, whose every change is one CAS (transition.c).
 *
 * Closed. A result goes into the window bucket {tick, generation} of a shard, a failure also into the streak {generation, failures}. Then,
 * and only where there was a failed or slow call within the window, the sums are compared with the thresholds. The order is: load the
 * breaker word -> count -> add up the buckets of that generation -> CAS that word. So a breaker never opens on another generation's calls.
 * Counting a bad call is followed by a full fence: of two workers that fail at the same moment, the later one sees both. A call that ends
 * well only lowers a rate, so after a look that found enough calls and too few bad ones a worker does not look again, for calls that end
 * well, until a tick later, when other calls have left the window.
 *
 * Open. The word holds the due time, drawn with its jitter by whoever opened it; all workers read the same one.
 *
 * Half-open. Probes are leases, cells {life, generation, granted}: taken by CAS of the exact old value, which must be free, of an older
 * generation, or overdue (the reaper frees those of the dead). Then the breaker word is looked at again; if it moved, the cell is given
 * back. A result first ends the lease (CAS mine -> 0; failure: it was taken over, the report is stale and touches nothing), then is counted
 * in the tally {generation, ok, failed, slow}, then the verdict is one CAS of the breaker word. A death between counting and verdict is
 * helped by the next call, which looks at the tally before it takes a lease.
 */
#include <errno.h>

#include "bucket.h"
#include "call.h"
#include "failpoint.h"
#include "inspect.h"
#include "override.h"
#include "random.h"
#include "transition.h"
#include "window.h"
#include "worker.h"

#define TRIES 64

static bool is_failure(enum resc_outcome outcome)
{
	return outcome == RESC_FAIL || outcome == RESC_TIMEOUT;
}

static bool moved(uint64_t w)
{
	return breaker_tag(w) == TAG_MOVED || breaker_tag(w) == TAG_EMPTY;
}

/*
 * When the next probe is due: after the dependency's own word where the policy asks for it, else after the cooldown of this opening;
 * lengthened by up to the jitter's share.
 */
static uint64_t draw_due_ms(const struct policy *policy, unsigned reopened, uint64_t now_ms, int64_t retry_after_ms)
{
	uint64_t cooldown = inspect_cooldown_ms(policy, reopened);

	if (retry_after_ms >= 0 && policy->retry_after_max_ms != 0) {
		cooldown = retry_after_ms == 0 ? 1 : (uint64_t)retry_after_ms;
		if (cooldown > policy->retry_after_max_ms)
			cooldown = policy->retry_after_max_ms;
	}
	uint64_t jitter = cooldown * policy->jitter_ppm / 1000000;
	return now_ms + cooldown + (jitter == 0 ? 0 : random_below(jitter + 1));
}

/* Why a breaker opens: the result that made it, and the figures for the event. */
struct opening {
	enum reason reason;
	uint64_t value[2];
	uint64_t now_ms;
	int64_t retry_after_ms;
};

static bool open_it(const struct view *v, uint64_t expected, unsigned streak, const struct opening *o)
{
	return breaker_transition(v->map, v->index, expected, TAG_OPEN, streak,
	                          draw_due_ms(&v->policy, streak, o->now_ms, o->retry_after_ms), o->reason, v->life, o->now_ms, o->value[0],
	                          o->value[1]);
}

/* At or above the threshold: bad / calls >= ppm / 1000000. */
static bool reaches(uint64_t bad, uint64_t calls, uint64_t ppm)
{
	return ppm != 0 && bad != 0 && bad * 1000000 >= calls * ppm;
}

/* ---- half-open ---- */

enum reason breaker_judge_trial(const struct policy *policy, uint64_t tally)
{
	uint64_t failed = tally_fail(tally);
	uint64_t slow = tally_slow(tally);
	uint64_t results = tally_ok(tally) + failed;

	if (policy->trial_failure_rate_ppm == 0) {
		if (failed > 0 || slow > 0)
			return failed > 0 ? REASON_PROBE_FAILED : REASON_PROBE_SLOW;
		return tally_ok(tally) >= policy->successes ? REASON_PROBES_OK : REASON_NONE;
	}
	if (results < policy->probes)
		return REASON_NONE;
	if (reaches(failed, results, policy->trial_failure_rate_ppm))
		return REASON_PROBE_FAILED;
	return reaches(slow, results, policy->slow_rate_ppm) ? REASON_PROBE_SLOW : REASON_PROBES_OK;
}

/* Says what the tally of this trial demands, and does it. True: the breaker has moved, or should be looked at again. */
static bool give_verdict(const struct view *v, uint64_t w, uint64_t now_ms, int64_t retry_after_ms)
{
	uint64_t t = atomic_load_explicit(&v->state->tally, memory_order_acquire);

	if (tally_generation(t) != breaker_generation(w))
		return false;
	enum reason reason = breaker_judge_trial(&v->policy, t);
	if (reason == REASON_NONE)
		return false;
	FAILPOINT("verdict.judged");
	if (reason == REASON_PROBES_OK) {
		breaker_transition(v->map, v->index, w, TAG_CLOSED, 0, now_ms, reason, v->life, now_ms, tally_ok(t), tally_fail(t));
		return true;
	}
	const struct opening opening = {
	        .reason = reason,
	        .value = {tally_ok(t), reason == REASON_PROBE_SLOW ? tally_slow(t) : tally_fail(t)},
	        .now_ms = now_ms,
	        .retry_after_ms = retry_after_ms,
	};
	open_it(v, w, breaker_streak(w) + 1, &opening);
	return true;
}

bool breaker_help(const struct map *map, uint32_t index, const struct policy *policy, uint64_t now_ms)
{
	const struct view v = {.map = map, .index = index, .state = map_state(map, index), .policy = *policy};
	/* Acquire: pairs with the transition's CAS; before the tally. */
	uint64_t w = atomic_load_explicit(&v.state->breaker, memory_order_acquire);

	return !moved(w) && breaker_state(w) == TAG_HALF_OPEN && give_verdict(&v, w, now_ms, -1);
}

enum lease_state { LEASE_FREE, LEASE_OUT, LEASE_LOOK_AGAIN };

/* May this cell be taken by a trial of the breaker word w? */
static enum lease_state judge_lease(const struct view *v, uint64_t w, uint64_t cell, uint64_t now_ms)
{
	int8_t newer = (int8_t)(uint8_t)(probe_generation(cell) - (breaker_generation(w) & 0xff));

	if (cell == 0)
		return LEASE_FREE;
	if (newer == 0)
		return probe_age_ms(cell, now_ms) >= v->policy.probe_timeout_ms ? LEASE_FREE : LEASE_OUT;
	/* A newer generation is there only if the breaker has moved on. If it has not, the eight bits have wrapped: an old one. */
	if (newer > 0 && atomic_load_explicit(&v->state->breaker, memory_order_seq_cst) != w)
		return LEASE_LOOK_AGAIN;
	return LEASE_FREE;
}

/* One pass over the cells. 0 taken; RESC_E_HALF_OPEN all are out; CALL_AGAIN the breaker has moved. */
static int take_lease(const struct view *v, uint64_t w, struct probe *probe)
{
	for (uint32_t i = 0; i < v->policy.probes; i++) {
		word *place = &v->state->probes[i];
		uint64_t cell = atomic_load_explicit(place, memory_order_seq_cst);
		/* After the cell: a time from before it (this worker may have been stopped) would make a fresh lease look overdue. */
		uint64_t now_ms = clock_coarse_ms(v->map);
		uint64_t mine = probe_make(v->life, breaker_generation(w), now_ms);
		enum lease_state s = judge_lease(v, w, cell, now_ms);
		if (s == LEASE_LOOK_AGAIN)
			return CALL_AGAIN;
		uint64_t seen = cell;
		if (s == LEASE_OUT ||
		    !atomic_compare_exchange_strong_explicit(place, &seen, mine, memory_order_seq_cst, memory_order_relaxed))
			continue;
		FAILPOINT("probe.leased");
		if (atomic_load_explicit(&v->state->breaker, memory_order_seq_cst) != w) {
			breaker_probe_end(v->state, i, mine);
			return CALL_AGAIN;
		}
		if (cell != 0 && probe_generation(cell) == (breaker_generation(w) & 0xff))
			count(v, COUNTER_probes_reclaimed);
		*probe = (struct probe){i, mine, breaker_generation(w)};
		return 0;
	}
	return RESC_E_HALF_OPEN;
}

static int half_open_enter(const struct view *v, uint64_t w, uint64_t now_ms, struct probe *probe)
{
	if (give_verdict(v, w, now_ms, -1))
		return CALL_AGAIN;
	int r = take_lease(v, w, probe);
	if (r != RESC_E_HALF_OPEN)
		return r;
	/* Perhaps an owner is dead and nobody has noticed. */
	if (!sweep_the_dead(v))
		return r;
	return take_lease(v, w, probe);
}

int breaker_probe(const struct view *v, uint64_t now_ms, struct probe *probe)
{
	probe->lease = 0;
	for (int i = 0; i < TRIES; i++) {
		uint64_t w = atomic_load_explicit(&v->state->breaker, memory_order_seq_cst);
		int r;
		if (moved(w))
			return CALL_AGAIN;
		switch (breaker_state(w)) {
		case TAG_CLOSED:
			probe->generation = breaker_generation(w);
			return 0;
		case TAG_OPEN:
			if (now_ms < breaker_ms(w))
				return RESC_E_OPEN;
			breaker_transition(v->map, v->index, w, TAG_HALF_OPEN, breaker_streak(w), now_ms, REASON_COOLDOWN_OVER, v->life,
			                   now_ms, 0, 0);
			FAILPOINT("enter.half_open");
			continue;
		default:
			r = half_open_enter(v, w, now_ms, probe);
			if (r == 0)
				count(v, COUNTER_probes);
			if (r != CALL_AGAIN)
				return r;
		}
	}
	return RESC_E_HALF_OPEN;
}

bool breaker_probe_end(struct state *state, uint32_t cell, uint64_t lease)
{
	return cell < PROBES_LIMIT &&
	       atomic_compare_exchange_strong_explicit(&state->probes[cell], &lease, 0, memory_order_acq_rel, memory_order_relaxed);
}

/* One result into the tally of that trial. False: the tally is of a newer one. */
static bool count_in_tally(struct state *state, uint16_t generation, bool fail, bool slow)
{
	uint64_t t = atomic_load_explicit(&state->tally, memory_order_relaxed);
	uint64_t next;

	do {
		bool same = tally_generation(t) == generation;
		if (!same && generation_newer(tally_generation(t), generation) && t != 0)
			return false;
		unsigned ok = same ? tally_ok(t) : 0;
		unsigned failed = same ? tally_fail(t) : 0;
		unsigned slowed = same ? tally_slow(t) : 0;
		next = tally_make(generation, ok + (!fail && ok < 0xffff), failed + (fail && failed < 0xffff),
		                  slowed + (slow && slowed < 0xffff));
	} while (!atomic_compare_exchange_weak_explicit(&state->tally, &t, next, memory_order_acq_rel, memory_order_relaxed));
	return true;
}

int breaker_probe_result(const struct view *v, uint16_t generation, const struct result *result)
{
	if (result->outcome != RESC_OK && !is_failure(result->outcome))
		return 0;
	uint64_t w = atomic_load_explicit(&v->state->breaker, memory_order_acquire);
	if (moved(w))
		return CALL_AGAIN;
	if (breaker_state(w) != TAG_HALF_OPEN || breaker_generation(w) != generation)
		return RESC_STALE;
	if (!count_in_tally(v->state, generation, is_failure(result->outcome), result->slow && v->policy.slow_rate_ppm != 0))
		return RESC_STALE;
	FAILPOINT("leave.tally");
	give_verdict(v, w, result->now_ms, result->retry_after_ms);
	return 0;
}

/* ---- closed ---- */

static void count_in_window(const struct view *v, uint64_t tick, uint16_t generation, bool bad, bool slow)
{
	enum window_category category = bad ? (slow ? WINDOW_FAIL_SLOW : WINDOW_FAIL) : (slow ? WINDOW_OK_SLOW : WINDOW_OK);
	if (__builtin_expect(v->policy.window_calls != 0, 0)) {
		window_count_call(v->map, v->state, generation, category);
		return;
	}
	bucket_count_call(v, &shard_of(v)->window[tick % WINDOW_RING][category], window_tag(v->tick_ms, tick, generation),
	                  bucket_tag(WINDOW_RING, 0));
}

/* {generation:16, tick:48}: says to calls that end well that there is something to judge. */
static uint64_t generation_and_tick(uint16_t generation, uint64_t tick)
{
	return (uint64_t)generation << 48 | (tick & ((UINT64_C(1) << 48) - 1));
}

static bool worth_judging(const struct view *v, uint64_t tick, uint16_t generation)
{
	uint64_t w = atomic_load_explicit(&v->state->bad_tick, memory_order_relaxed);
	uint64_t last = w & ((UINT64_C(1) << 48) - 1);

	return w != 0 && (uint16_t)(w >> 48) == generation && last + WINDOW_BUCKETS > tick &&
	       atomic_load_explicit(v->judged, memory_order_relaxed) != generation_and_tick(generation, tick);
}

static void note_bad_call(const struct view *v, uint64_t tick, uint16_t generation)
{
	uint64_t w = generation_and_tick(generation, tick);

	/* A plain store: should an older tick overwrite a newer one, the next bad call mends it. */
	if (atomic_load_explicit(&v->state->bad_tick, memory_order_relaxed) != w)
		atomic_store_explicit(&v->state->bad_tick, w, memory_order_relaxed);
}

/* One more failure in a row. Returns how many; 0 when the streak is of a newer generation. */
static uint32_t lengthen_streak(struct state *state, uint16_t generation)
{
	uint64_t s = atomic_load_explicit(&state->streak, memory_order_relaxed);
	uint64_t next;

	do {
		bool same = streak_generation(s) == generation;
		if (streak_kind(s) == WORD_MOVED || (!same && generation_newer(streak_generation(s), generation)))
			return 0;
		uint32_t n = same ? streak_failures(s) : 0;
		next = streak_make(generation, WORD_LIVE, n == UINT32_MAX ? n : n + 1);
	} while (!atomic_compare_exchange_weak_explicit(&state->streak, &s, next, memory_order_seq_cst, memory_order_relaxed));
	return streak_failures(next);
}

/* A success: the healthy case reads one word that nobody writes. */
static void end_streak(struct state *state, uint16_t generation)
{
	uint64_t s = atomic_load_explicit(&state->streak, memory_order_relaxed);

	while (streak_failures(s) != 0 && streak_generation(s) == generation && streak_kind(s) != WORD_MOVED &&
	       !atomic_compare_exchange_weak_explicit(&state->streak, &s, streak_make(generation, WORD_LIVE, 0), memory_order_relaxed,
	                                              memory_order_relaxed))
		;
}

static bool forced(const struct view *v)
{
	return override_mode(atomic_load_explicit(&v->state->override, memory_order_acquire)) != OVERRIDE_NONE;
}

/* Adds up the window of the breaker word w, and opens it if a rate is reached. */
static void judge_window(const struct view *v, uint64_t w, uint64_t tick, const struct result *result)
{
	uint64_t sums[WINDOW_CATEGORIES];

	window_sum(v->map, v->state, &v->policy, result->now_ms, breaker_generation(w), sums);
	FAILPOINT("trip.summed");
	uint64_t failed = sums[WINDOW_FAIL] + sums[WINDOW_FAIL_SLOW];
	uint64_t slow = sums[WINDOW_OK_SLOW] + sums[WINDOW_FAIL_SLOW];
	uint64_t calls = sums[WINDOW_OK] + sums[WINDOW_OK_SLOW] + failed;
	if (calls < v->policy.min_calls)
		return;
	bool too_many_failed = reaches(failed, calls, v->policy.failure_rate_ppm);
	if (!too_many_failed && !reaches(slow, calls, v->policy.slow_rate_ppm)) {
		atomic_store_explicit(v->judged, generation_and_tick(breaker_generation(w), tick), memory_order_relaxed);
		return;
	}
	const struct opening opening = {
	        .reason = too_many_failed ? REASON_FAILURE_RATE : REASON_SLOW_RATE,
	        .value = {too_many_failed ? failed : slow, calls},
	        .now_ms = result->now_ms,
	        .retry_after_ms = result->retry_after_ms,
	};
	open_it(v, w, 0, &opening);
}

/* A window by number of calls has no ticks: only another bad call can raise its rate, and that looks by itself. */
static uint64_t tick_of(const struct view *v, uint64_t now_ms)
{
	return __builtin_expect(v->policy.window_calls != 0, 0) ? 1 : view_tick(v, now_ms);
}

/* A failure has been counted, or a call that makes the window worth a look: does the breaker open? */
static void judge(const struct view *v, uint64_t w, uint64_t tick, uint32_t row, const struct result *result)
{
	if (v->policy.consecutive == 0 || row < v->policy.consecutive) {
		if (v->policy.failure_rate_ppm != 0 || v->policy.slow_rate_ppm != 0)
			judge_window(v, w, tick, result);
		return;
	}
	const struct opening opening = {
	        .reason = REASON_CONSECUTIVE,
	        .value = {row, v->policy.consecutive},
	        .now_ms = result->now_ms,
	        .retry_after_ms = result->retry_after_ms,
	};
	open_it(v, w, 0, &opening);
}

int breaker_result(const struct view *v, uint16_t generation, const struct result *result)
{
	/* Acquire: pairs with the transition's CAS. Loaded before anything is counted: see above. */
	uint64_t w = atomic_load_explicit(&v->state->breaker, memory_order_acquire);
	enum resc_outcome outcome = result->outcome;
	bool fail = is_failure(outcome);

	if (moved(w))
		return CALL_AGAIN;
	if (breaker_generation(w) != generation)
		return RESC_STALE;
	if (outcome == RESC_IGNORED || outcome == RESC_CANCELLED || breaker_state(w) != TAG_CLOSED)
		return 0;
	uint64_t tick = tick_of(v, result->now_ms);
	count_in_window(v, tick, generation, fail, result->slow);
	uint32_t row = 0;
	if (fail)
		row = lengthen_streak(v->state, generation);
	else
		end_streak(v->state, generation);
	if (fail || result->slow) {
		note_bad_call(v, tick, generation);
		/* What we counted is visible before we add up what others counted. */
		atomic_thread_fence(memory_order_seq_cst);
		FAILPOINT("leave.counted");
	} else if (!worth_judging(v, tick, generation)) {
		return 0;
	}
	if (!forced(v))
		judge(v, w, tick, row, result);
	return 0;
}
