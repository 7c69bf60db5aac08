/* SPDX-License-Identifier: MIT */
/*
 * The accounts of the workers against those of the segment.
 *
 * For each counter: what the workers entered <= what the segment says <= that and the doubts. A doubt is an operation that a process was in
 * the middle of when it died; it may have been counted or not, once. Nothing else is allowed: a counter that is lower has lost a call, one
 * that is higher has counted one twice.
 */
#include <stdarg.h>
#include <string.h>

#include "inspect.h"
#include "policy.h"
#include "storm.h"

static uint64_t doubts[RESOURCES][OPS];
static uint64_t doubts_by_outcome[RESOURCES][RESC_CANCELLED + 1];
static uint64_t doubtful_permits[RESOURCES];
static struct deaths deaths;
static struct resc_counters last_seen[RESOURCES];
static char complaint[400];

__attribute__((format(printf, 1, 2))) static const char *wrong(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vsnprintf(complaint, sizeof(complaint), format, args);
	va_end(args);
	return complaint;
}

struct deaths accounts_deaths(void)
{
	return deaths;
}

static void doubt(uint32_t pending)
{
	uint32_t op = pending & 0xff, r = pending >> 8 & 0xff, outcome = pending >> 16;

	if (op == OP_NONE || op >= OPS || r >= RESOURCES)
		return;
	deaths.inside_an_operation++;
	doubts[r][op]++;
	if (op == OP_LEAVE && outcome <= RESC_CANCELLED)
		doubts_by_outcome[r][outcome]++;
	if (op == OP_ENTER || op == OP_LEAVE)
		doubtful_permits[r]++;
}

void accounts_close(uint32_t index)
{
	struct actor *a = &storm.shared->actors[index];
	bool held = false;

	deaths.all++;
	doubt(atomic_exchange_explicit(&a->pending, 0, memory_order_seq_cst));
	for (uint32_t r = 0; r < RESOURCES; r++) {
		uint64_t inside = atomic_load_explicit(&a->inside[r], memory_order_seq_cst);
		uint64_t probing = atomic_load_explicit(&a->probing[r], memory_order_seq_cst);
		held = held || (inside & 0xffff) != 0;
		doubtful_permits[r] += inside & 0xffff;
		/* One change more, and nothing held. */
		atomic_store_explicit(&a->inside[r], ((inside >> 32) + 1) << 32, memory_order_seq_cst);
		atomic_store_explicit(&a->probing[r], ((probing >> 32) + 1) << 32, memory_order_seq_cst);
	}
	deaths.with_permits += held;
}

/* ---- counters ---- */

/* How many of the doubts may have moved this counter. */
static uint64_t doubts_of(uint32_t r, enum counter counter)
{
	switch (counter) {
	case COUNTER_admitted:
	case COUNTER_probes:
	case COUNTER_refused_open:
	case COUNTER_refused_half_open:
	case COUNTER_refused_forced_open:
	case COUNTER_refused_full:
	case COUNTER_refused_deadline:
	case COUNTER_refused_queue_full:
	case COUNTER_refused_priority:
	case COUNTER_refused_rate:
	case COUNTER_refused_cost:
	case COUNTER_refused_throttled:
	case COUNTER_refused_retries:
		return doubts[r][OP_ENTER];
	case COUNTER_ended_ok:
		return doubts_by_outcome[r][RESC_OK];
	case COUNTER_ended_fail:
		return doubts_by_outcome[r][RESC_FAIL];
	case COUNTER_ended_timeout:
		return doubts_by_outcome[r][RESC_TIMEOUT];
	case COUNTER_ended_ignored:
		return doubts_by_outcome[r][RESC_IGNORED];
	case COUNTER_ended_cancelled:
		return doubts_by_outcome[r][RESC_CANCELLED];
	case COUNTER_stale:
		return doubts[r][OP_LEAVE];
	case COUNTER_retries:
	case COUNTER_retry_attempts:
	case COUNTER_retry_budget:
	case COUNTER_retry_deadline:
	case COUNTER_retry_not_retryable:
	case COUNTER_retry_upstream:
	case COUNTER_retry_pushback:
	case COUNTER_retry_in_flight:
		return doubts[r][OP_RETRY];
	case COUNTER_once_first:
	case COUNTER_once_replayed:
	case COUNTER_once_busy:
	case COUNTER_once_unknown:
	case COUNTER_once_full:
		return doubts[r][OP_ONCE_BEGIN];
	case COUNTER_once_done:
		return doubts[r][OP_ONCE_DONE];
	case COUNTER_fallback_cache:
		return doubts[r][OP_FALLBACK];
	default:
		return UINT64_MAX; /* nothing that a caller is told */
	}
}

static uint64_t entered(uint32_t r, unsigned counter)
{
	uint64_t sum = 0;

	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		sum += atomic_load_explicit(&storm.shared->actors[i].counted[r][counter], memory_order_relaxed);
	return sum;
}

/* Where a counter stands among those of counter_value: in the order of the tables, enters first. 0: no counter has this number. */
enum shown {
	SHOWN_enters,
#define X(name, text) SHOWN_##name,
	RESC_COUNTERS(X)
#undef X
#define X(NAME, name, text) SHOWN_refused_##name,
	        RESC_REFUSALS(X)
#undef X
#define X(name, text) SHOWN_fallback_##name,
	                RESC_FALLBACKS(X)
#undef X
	                        SHOWN,
};
_Static_assert(SHOWN == COUNTERS_SHOWN, "the same tables");

static const unsigned shown_as[COUNTERS] = {
#define X(name, text) [COUNTER_##name] = SHOWN_##name,
        RESC_COUNTERS(X)
#undef X
#define X(NAME, name, text) [COUNTER_refused_##name] = SHOWN_refused_##name,
                RESC_REFUSALS(X)
#undef X
#define X(name, text) [COUNTER_fallback_##name] = SHOWN_fallback_##name,
                        RESC_FALLBACKS(X)
#undef X
};

static const char *check_counters(uint32_t r, const struct resc_counters *counters)
{
	uint64_t all_entered = 0, all_counted = counters->enters;

	for (unsigned c = 0; c < COUNTERS; c++) {
		uint64_t doubtful = doubts_of(r, (enum counter)c);
		if (shown_as[c] == 0 || doubtful == UINT64_MAX)
			continue;
		uint64_t mine = entered(r, c), there = counter_value(counters, shown_as[c]);
		if (there > mine + doubtful || (there < mine && traits[r].strict))
			return wrong("%s: %s is %llu in the segment, and the workers counted %llu (%llu in doubt)", traits[r].name,
			             counter_name(shown_as[c]), (unsigned long long)there, (unsigned long long)mine,
			             (unsigned long long)doubtful);
		if (c == COUNTER_admitted || (c >= COUNTER_refused_open && c <= COUNTER_refused_retries))
			all_entered += mine;
	}
	/* Together too: a death in resc_enter is counted as one thing at most. */
	if (all_counted > all_entered + doubts[r][OP_ENTER])
		return wrong("%s: %llu calls in the segment, and the workers made %llu (%llu in doubt)", traits[r].name,
		             (unsigned long long)all_counted, (unsigned long long)all_entered, (unsigned long long)doubts[r][OP_ENTER]);
	/* Only the dead lose permits. */
	if (counters->permits_reclaimed > doubtful_permits[r])
		return wrong("%s: %llu permits were taken from the dead, and they had %llu at most", traits[r].name,
		             (unsigned long long)counters->permits_reclaimed, (unsigned long long)doubtful_permits[r]);
	return "";
}

static bool find(const struct map *map, uint32_t r, struct inspect_resource *out)
{
	int index = policy_find_any(map, traits[r].name);

	return index >= 0 && inspect_resource(map, (uint32_t)index, out) == 0;
}

const char *accounts_check(const struct map *map)
{
	struct inspect_resource seen;

	for (uint32_t r = 0; r < RESOURCES; r++) {
		if (!find(map, r, &seen)) {
			if (traits[r].strict)
				return wrong("%s is not in the segment", traits[r].name);
			continue;
		}
		const char *what = check_counters(r, &seen.counters);
		if (what[0] != '\0')
			return what;
	}
	return "";
}

void accounts_watch(const struct map *map)
{
	struct inspect_resource seen;

	for (uint32_t r = 0; r < RESOURCES; r++) {
		if (!traits[r].strict || !find(map, r, &seen))
			continue;
		for (unsigned i = 0; i < COUNTERS_SHOWN; i++)
			if (counter_value(&seen.counters, i) < counter_value(&last_seen[r], i))
				complain("%s: the counter %s went back from %llu to %llu", traits[r].name, counter_name(i),
				         (unsigned long long)counter_value(&last_seen[r], i),
				         (unsigned long long)counter_value(&seen.counters, i));
		last_seen[r] = seen.counters;
	}
}

const char *accounts_drawn(const struct map *map, uint64_t elapsed_ns)
{
	struct inspect_resource seen;
	double seconds = (double)elapsed_ns / 1e9;

	if (!find(map, R_LEDGER, &seen))
		return wrong("ledger is not in the segment");
	double had = LEDGER_CAPACITY + LEDGER_RATIO * (double)seen.counters.ended_ok + LEDGER_PER_SECOND * seconds + 1;
	if ((double)seen.counters.retries > had)
		return wrong("ledger: %llu retries were granted, and the budget had %.1f at most",
		             (unsigned long long)seen.counters.retries, had);
	if (!find(map, R_MAIL, &seen))
		return wrong("mail is not in the segment");
	had = MAIL_BURST + MAIL_PER_SECOND * seconds + 1;
	if ((double)seen.counters.admitted > had)
		return wrong("mail: %llu calls were admitted, and the rate limit allowed %.1f at most",
		             (unsigned long long)seen.counters.admitted, had);
	return "";
}

/* ---- what the dead leave ---- */

static bool state_owes(const struct state *state)
{
	bool owes = limit_debt(atomic_load_explicit(&state->limit, memory_order_relaxed)) != 0;

	for (uint32_t i = 0; i < PROBES_LIMIT; i++)
		owes = owes || probe_life(atomic_load_explicit(&state->probes[i], memory_order_relaxed)) == GHOST_LIFE;
	return owes;
}

bool accounts_owed(const struct map *map)
{
	bool owed = false;

	for (uint32_t i = 0; i < map->dims.resources; i++)
		owed = owed || state_owes(map_state(map, i));
	for (uint32_t i = 0; i < map->dims.once; i++)
		owed = owed || once_phase(atomic_load_explicit(&map->once_slots[i], memory_order_relaxed)) == ONCE_AWAY;
	return owed;
}

static bool is_living(uint32_t life, uint64_t generation)
{
	for (uint32_t i = 0; i < 2 * storm.workers; i++) {
		const struct actor *a = &storm.shared->actors[i];
		if ((atomic_load_explicit(&a->phase, memory_order_seq_cst) & 0xff) != ACTOR_FREE &&
		    atomic_load_explicit(&a->life, memory_order_relaxed) == life &&
		    atomic_load_explicit(&a->segment, memory_order_relaxed) == generation)
			return true;
	}
	return false;
}

const char *accounts_workers(const struct map *map)
{
	struct inspect_worker worker;
	uint32_t registered = 0, living = 0;

	for (uint32_t i = 0; i < map->dims.workers; i++) {
		if (inspect_worker(map, i, &worker) != 0)
			continue;
		if (!is_living(worker.life, map->generation))
			return wrong("worker slot %u still has life %u (pid %d), which is over", i, worker.life, (int)worker.pid);
		registered++;
	}
	for (uint32_t i = 0; i < 2 * storm.workers; i++)
		living += (atomic_load_explicit(&storm.shared->actors[i].phase, memory_order_seq_cst) & 0xff) != ACTOR_FREE;
	if (registered != living)
		return wrong("%u workers are alive, and %u are registered", living, registered);
	return "";
}

static const char *check_resource(const struct inspect_resource *seen)
{
	if (seen->in_flight != 0 || seen->waiting != 0 || seen->probes_out != 0)
		return wrong("%s: nobody calls, and there are %u calls inside, %u waiting, %u probes out", seen->name, seen->in_flight,
		             seen->waiting, seen->probes_out);
	if (seen->debt != 0 || seen->effective != seen->limit)
		return wrong("%s: nobody calls, and the limit is %u of %u (debt %u)", seen->name, seen->effective, seen->limit, seen->debt);
	return "";
}

const char *accounts_idle(const struct map *map)
{
	struct inspect_resource seen;
	struct once_usage keys;
	const char *what = "";

	for (uint32_t i = 0; i < map->dims.resources && what[0] == '\0'; i++)
		if (inspect_resource(map, i, &seen) == 0)
			what = check_resource(&seen);
	if (what[0] != '\0')
		return what;
	inspect_once(map, &keys);
	if (keys.working != 0)
		return wrong("nobody works, and %u idempotency keys are in work", keys.working);
	return "";
}
