/* SPDX-License-Identifier: MIT */
/*
 * The client-side throttle: an alternative to an open breaker for a dependency that fails in part. However many calls are offered, it sees
 * about K times as many as it accepts: a few too many, so that it is noticed at once when it accepts more.
 *
 * Counting. Requests are calls that ended and calls that the throttle refused; accepts are those that the dependency answered. Both stand
 * in buckets of a shard, {when the bucket began, count}, a tenth of the window each, WINDOW_BUCKETS of them count. The tag is a time and
 * not a number of a tick, so a bucket is still right when another policy has a longer or shorter window, and one that is too old never
 * counts, however long nobody called. Request first, accept second; a death between the two leaves a request without an accept.
 *
 * The share. Adding up all shards costs a few loads for each bucket of each shard (16 to 64 shards; about a microsecond), too much for each
 * call of a busy worker. So it is worked out now and then and kept in one word of the state, {ms, every, ppm}, which each call reads:
 *	by time		whoever finds it older than a 128th of the window (or a millisecond) works it out, before it decides or after it
 *			has counted: many workers may each be too slow for what follows, and accepts leave the window by themselves;
 *	by number	while there are fewer than 1024 requests in the window, after each call that is counted: so a host that is just
 *			beginning to see failures reacts call by call. With more, after each 2^every calls in a bucket of a shard, at
 *			most a 128th of the requests, at most 64.
 * Several may do so at once; each stores what it found, and the last one counts. A death leaves the share that was there. Nothing waits.
 *
 * throttle_since cuts off what was before, for a reset: the buckets themselves belong to their workers, and nobody else may change them. A
 * bucket that began before counts no more, so counting begins anew with the next one.
 *
 * All accesses are relaxed: each word says one thing, and a share that misses the newest call is as good.
 */
#include "throttle.h"

#include "bucket.h"
#include "failpoint.h"
#include "random.h"
#include "window.h"

#define PPM             UINT64_C(1000000)
#define SHARE_AGE_PART  128
#define CALL_BY_CALL    1024
#define EVERY_MOST      6 /* 2^6 calls */
#define EVERY_PART_LOG2 7
#define FUTURE_MS       10000 /* coarse clocks of two processors may differ by a tick; this is much more */

_Static_assert(UINT64_C(1) * (SHARDS_LIMIT + 1) * WINDOW_BUCKETS * BUCKET_MAX < UINT64_MAX / 1000000000, "K * accepts fits in 64 bits");

struct sums {
	uint64_t requests;
	uint64_t accepts;
};

/* What the window is made of: the buckets that began at last_ms, last_ms - tick_ms, ..., and not before since_ms. */
struct span {
	uint64_t tick_ms;
	uint64_t last;
	uint64_t since_ms;
};

static struct span span_of(const struct state *state, const struct policy *policy, uint64_t now_ms)
{
	uint64_t since_ms = atomic_load_explicit(&state->throttle_since, memory_order_relaxed);
	uint64_t tick_ms = window_bucket_ms(policy->throttle_window_ms);

	/* Damage would switch the throttle off for good. */
	if (since_ms > now_ms + FUTURE_MS)
		since_ms = 0;
	return (struct span){tick_ms, now_ms / tick_ms, since_ms};
}

static void add_shard(const struct shard *shard, const struct span *span, struct sums *sums)
{
	for (uint64_t i = 0; i < WINDOW_BUCKETS && i <= span->last; i++) {
		uint64_t tick = span->last - i;
		const word *bucket = shard->throttle[tick % WINDOW_RING];
		if (tick * span->tick_ms < span->since_ms)
			return;
		sums->requests += bucket_count_of(&bucket[0], tick * span->tick_ms);
		sums->accepts += bucket_count_of(&bucket[1], tick * span->tick_ms);
	}
}

uint32_t throttle_now(const struct map *map, const struct state *state, const struct policy *policy, uint64_t now_ms, uint64_t *requests,
                      uint64_t *accepts)
{
	struct span span = span_of(state, policy, now_ms);
	struct sums sums = {0, 0};

	for (uint32_t i = 0; i < map->dims.shards; i++)
		add_shard(map_shard(map, state, i), &span, &sums);
	add_shard(map_carried(map, state), &span, &sums);
	*requests = sums.requests;
	*accepts = sums.accepts;
	uint64_t all = sums.requests * PPM;
	uint64_t due = sums.accepts * policy->throttle_k_ppm;
	return all > due ? (uint32_t)((all - due) / (sums.requests + 1)) : 0;
}

static unsigned every_of(uint64_t requests)
{
	if (requests < CALL_BY_CALL)
		return 0;
	unsigned log2 = 63 - (unsigned)__builtin_clzll(requests);
	return log2 - EVERY_PART_LOG2 < EVERY_MOST ? log2 - EVERY_PART_LOG2 : EVERY_MOST;
}

COLD static uint32_t work_out(const struct view *v, uint64_t now_ms)
{
	uint64_t requests, accepts;
	uint32_t ppm = throttle_now(v->map, v->state, &v->policy, now_ms, &requests, &accepts);

	FAILPOINT("throttle.summed");
	atomic_store_explicit(&v->state->throttle, throttle_make(now_ms, every_of(requests), ppm), memory_order_relaxed);
	return ppm;
}

/* From the future: damage, unless it is so little that this worker only read its clock before another one did. */
static bool is_old(const struct view *v, uint64_t w, uint64_t now_ms)
{
	if (throttle_ms(w) > now_ms)
		return throttle_ms(w) > now_ms + FUTURE_MS;
	uint64_t age_ms = v->policy.throttle_window_ms / SHARE_AGE_PART;
	return now_ms - throttle_ms(w) > (age_ms == 0 ? 1 : age_ms);
}

bool throttle_refuses(const struct view *v, uint64_t now_ms)
{
	uint64_t w = atomic_load_explicit(&v->state->throttle, memory_order_relaxed);
	uint32_t ppm = __builtin_expect(is_old(v, w, now_ms), 0) ? work_out(v, now_ms) : throttle_ppm(w);

	return ppm != 0 && random_below(PPM) < ppm;
}

void throttle_count(const struct view *v, bool accepted, uint64_t now_ms)
{
	uint64_t tick = view_throttle_tick(v, now_ms);
	uint64_t tick_ms = v->throttle_tick_ms;
	uint64_t began_ms = tick * tick_ms;
	word *bucket = shard_of(v)->throttle[tick % WINDOW_RING];
	uint32_t n = bucket_count_call(v, &bucket[0], began_ms, WINDOW_RING * tick_ms);

	FAILPOINT("throttle.requested");
	/* A bucket that is full takes no accepts either, so its share stays. */
	if (accepted && n != 0)
		bucket_count_call(v, &bucket[1], began_ms, WINDOW_RING * tick_ms);
	uint64_t w = atomic_load_explicit(&v->state->throttle, memory_order_relaxed);
	/* With K at least 1 a call that was accepted never makes the share larger, so where it is 0 it stays 0. */
	bool matters = !accepted || throttle_ppm(w) != 0;
	bool due = matters && n != 0 && (n & ((1u << throttle_every(w)) - 1)) == 0;
	if (due || is_old(v, w, now_ms))
		work_out(v, now_ms);
}

void throttle_forget(struct state *state, uint64_t now_ms)
{
	atomic_store_explicit(&state->throttle_since, now_ms + 1, memory_order_relaxed);
	atomic_store_explicit(&state->throttle, throttle_make(now_ms, 0, 0), memory_order_relaxed);
}
