/* SPDX-License-Identifier: MIT */
/*
 * resctl doctor: each finding, made by the damage that it is for, is found, is the only one, and is gone when it was repaired; what is
 * right, and what is only stopped, is no finding; and a repair does no harm.
 */
#include <errno.h>

#include "count.h"
#include "doctor.h"
#include "event.h"
#include "every_guard.h"
#include "injection.h"
#include "named.h"
#include "note.h"
#include "once.h"
#include "override.h"
#include "permit.h"
#include "process.h"
#include "random.h"
#include "throttle.h"
#include "transition.h"
#include "window.h"
#include "worker.h"

#define NOBODY  999u /* a life that nobody has had */
#define TURN_MS 24u  /* nobody repairs anything here by itself */

static struct named n;
static resc *host;
static resc_resource *pay;
static struct map map; /* the doctor's own: the tokens of others are held for it */
static struct doctor doctor;

static void set_up(void)
{
	struct policy policy;

	every_guard(&policy);
	policy.window_calls = 0;
	named_open(&n, &policy);
	host = named_join(n.instance);
	pay = named_lookup(host, "payments");
	resc_ticket ticket;
	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
	ck_assert_int_eq(map_open(&map, n.path, MAP_WORKER, NULL), 0);
	ck_assert_int_eq(doctor_open(&doctor, n.instance, &map), 0);
	doctor.turn_ms = TURN_MS;
}

static void tear_down(void)
{
	doctor_close(&doctor);
	map_close(&map);
	resc_close(host);
	named_close(&n);
}

static uint32_t own_life(void)
{
	struct resc_status status;

	ck_assert_int_eq(resc_status(host, &status), 0);
	return (uint32_t)status.worker;
}

static void say_all(const char *when)
{
	for (size_t i = 0; i < doctor.count; i++)
		fprintf(stderr, "%s: %s: %s %s; %s\n", when, doctor_check_id(doctor.findings[i].check), doctor.findings[i].where,
		        doctor.findings[i].text, doctor.findings[i].remedy);
}

static void expect_clean(const char *when)
{
	doctor_examine(&doctor);
	say_all(when);
	ck_assert_msg(doctor.count == 0 && !doctor.overflow, "%s: %zu findings", when, doctor.count);
}

static uint64_t now_ms(void)
{
	return clock_coarse_ms(&n.map);
}

static uint16_t generation(void)
{
	return breaker_generation(fixture_load(&n.state->breaker));
}

/* ---- damages ---- */

static void permit_of_nobody(void)
{
	fixture_store(map_permit(&n.map, n.state, 2), permit_make(NOBODY, 1));
}

static void permit_without_a_life(void)
{
	fixture_store(map_permit(&n.map, n.state, 2), permit_make(0, 77));
}

static void place_of_nobody(void)
{
	fixture_store(&map_waiting(&n.map, n.state)[2], permit_make(NOBODY, 1));
}

static void probe_of_nobody(void)
{
	fixture_store(&n.state->probes[1], probe_make(NOBODY, generation(), now_ms()));
}

static void ghost(void)
{
	fixture_store(&n.state->probes[1], probe_ghost(probe_make(1, generation(), now_ms())));
}

/* Half-open, as if the transition had been recorded. */
static void half_open(void)
{
	breaker_transition(&n.map, n.index, fixture_load(&n.state->breaker), TAG_HALF_OPEN, 0, now_ms(), REASON_COOLDOWN_OVER, 0, now_ms(),
	                   0, 0);
}

static void probe_too_long(void)
{
	half_open();
	fixture_store(&n.state->probes[0], probe_make(own_life(), generation(), now_ms()));
	named_at(&n, now_ms() + n.policy.probe_timeout_ms + 1);
	fixture_store(&n.map.daemon->heartbeat_ms, now_ms());
}

static void shard_of_nobody(void)
{
	fixture_store(&map_shard(&n.map, n.state, 3)->owner, NOBODY);
}

static void shard_of_no_worker(void)
{
	fixture_store(&map_shard(&n.map, n.state, 3)->owner, SHARD_COMMON);
}

static void shard_of_all_with_an_owner(void)
{
	fixture_store(&map_shard(&n.map, n.state, n.map.dims.shards - 1)->owner, 0);
}

static void slot_of_no_worker(void)
{
	fixture_store(&map_worker(&n.map, 5)->life, UINT64_C(1) << 40);
}

static void slot_of_the_dead(void)
{
	fixture_store(&map_worker(&n.map, 5)->life, NOBODY);
	fixture_store(map_permit(&n.map, n.state, 2), permit_make(NOBODY, 1));
	fixture_store(&map_shard(&n.map, n.state, 3)->owner, NOBODY);
}

static void life_in_two_slots(void)
{
	fixture_store(&map_worker(&n.map, 5)->life, own_life());
}

/* A pid that nobody has. */
static pid_t gone(void)
{
	pid_t pid = fork();

	if (pid == 0)
		_exit(0);
	ck_assert_int_eq(fixture_wait(pid), 0);
	return pid;
}

static struct worker_slot *own_slot(void)
{
	for (uint32_t i = 0; i < n.map.dims.workers; i++)
		if (fixture_load(&map_worker(&n.map, i)->life) == own_life())
			return map_worker(&n.map, i);
	ck_abort_msg("no slot");
	return NULL;
}

static void token_of_the_gone(void)
{
	fixture_store(&own_slot()->pid, (uint64_t)gone());
}

static void pid_of_nothing(void)
{
	fixture_store(&own_slot()->pid, UINT64_C(1) << 30);
}

static void lives_again(void)
{
	fixture_store(&n.map.live->next_life, 1);
}

static void lives_used_up(void)
{
	fixture_store(&n.map.live->next_life, UINT32_MAX);
}

static void workers_expected(void)
{
	fixture_store(&n.map.live->expected_workers, UINT64_C(500) << 40 | TIME_MASK);
}

static void question_of_nobody(void)
{
	fixture_store(&n.map.live->requests[3].state, (uint64_t)NOBODY << 32 | 1u << 8 | 2);
}

static void question_of_no_kind(void)
{
	fixture_store(&n.map.live->requests[3].state, (uint64_t)own_life() << 32 | 7);
}

static void events_set_back(void)
{
	half_open();
	fixture_store(&n.map.live->next_event, 0);
}

static void event_elsewhere(void)
{
	fixture_store(&map_event(&n.map, 5)->stamp, 1000);
}

static void event_of_no_writer(void)
{
	fixture_store(&map_event(&n.map, 5)->stamp, EVENT_BUSY | UINT64_C(1) << 40);
}

static void name_of_no_kind(void)
{
	policy_put_name(map_policy(&n.map, n.index), "pay/ments");
	policy_show_name(map_policy(&n.map, n.index), "pay/ments");
}

static void hash_of_another(void)
{
	policy_show_name(map_policy(&n.map, n.index), "paymentz");
}

static void name_twice(void)
{
	policy_store(&n.map, n.index + 1, &n.policy);
	policy_put_name(map_policy(&n.map, n.index + 1), "payments");
}

static word *policy_word(size_t offset)
{
	struct policy_record *record = map_policy(&n.map, n.index);

	return policy_copy(&n.map, record, fixture_load(&record->sequence)) + offset / 8;
}

static void value_out_of_range(void)
{
	fixture_store(policy_word(offsetof(struct policy, jitter_ppm)), 2000000);
}

static void not_configured(void)
{
	word *flags = policy_word(offsetof(struct policy, flags));

	fixture_store(flags, fixture_load(flags) & ~(uint64_t)POLICY_CONFIGURED);
}

static void breaker_empty(void)
{
	fixture_store(&n.state->breaker, 0);
}

static void breaker_moved(void)
{
	fixture_store(&n.state->breaker, breaker_make(TAG_MOVED, 0, generation(), 0));
}

static void due_never(void)
{
	fixture_store(&n.state->breaker, breaker_make(TAG_OPEN, 0, generation(), TIME_MASK));
}

static void verdict_not_drawn(void)
{
	half_open();
	fixture_store(&n.state->tally, tally_make(generation(), 2, 0, 0));
}

static void tally_of_later(void)
{
	fixture_store(&n.state->tally, tally_make(generation() + 1, 1, 0, 0));
}

static void streak_of_later(void)
{
	fixture_store(&n.state->streak, streak_make(generation() + 1, WORD_LIVE, 2));
}

static void streak_moved(void)
{
	fixture_store(&n.state->streak, streak_make(generation(), WORD_MOVED, 2));
}

static void reason_of_later(void)
{
	fixture_store(&n.state->transition, transition_make(generation() + 1, REASON_RESET, 0));
}

static void events_ahead(void)
{
	fixture_store(&n.state->recorded, recorded_make(TAG_CLOSED, (uint16_t)(generation() + 1)));
}

static void event_missing(void)
{
	fixture_store(&n.state->recorded, recorded_make(TAG_CLOSED, (uint16_t)(generation() - 1)));
}

static void override_moved(void)
{
	fixture_store(&n.state->override, override_make(WORD_MOVED, OVERRIDE_OPEN, 3, 0));
}

static void override_over(void)
{
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 10, "maintenance"), 0);
	named_at(&n, now_ms() + 20);
}

static void override_without_text(void)
{
	ck_assert_int_eq(override_set(&n.map, n.index, OVERRIDE_OPEN, 0, "maintenance"), 0);
	fixture_store(&n.state->override_text[override_serial(fixture_load(&n.state->override)) & 1].serial, NOTE_WRITING | 5);
}

static void inject(uint64_t for_ms)
{
	const struct injection half = {.fail_ppm = 500000};

	ck_assert_int_eq(injection_set(&n.map, n.index, &half, for_ms, "game day"), 0);
}

static void injection_moved(void)
{
	fixture_store(&n.state->injection, injection_make(WORD_MOVED, false, 3, 0));
}

static void injection_for_ever(void)
{
	inject(10000);
	fixture_store(&n.state->injection, fixture_load(&n.state->injection) | TIME_MASK);
}

static void injection_over(void)
{
	inject(10);
	named_at(&n, now_ms() + 20);
}

static void injection_not_allowed(void)
{
	struct policy policy = n.policy;

	inject(10000);
	policy.flags &= ~(uint64_t)POLICY_INJECTION;
	named_reload(&n, &policy);
}

static void injection_of_nothing(void)
{
	inject(10000);
	fixture_store(&n.state->injection_setting[1], setting_make(7, 1, 0, 0));
}

static void injection_without_text(void)
{
	inject(10000);
	fixture_store(&n.state->injection_text[1].serial, NOTE_WRITING | 5);
}

static void limit_to(unsigned target, unsigned effective, unsigned debt)
{
	fixture_store(&n.state->limit, limit_make(target, effective, debt, 7));
}

static void limit_above_target(void)
{
	limit_to(3, 9, 0);
}

static void limit_closed(void)
{
	limit_to(0, 0, 0);
}

static void limit_in_debt(void)
{
	limit_to(3, 2, 1);
}

static void limit_of_another_policy(void)
{
	limit_to(5, 5, 0);
}

static void limit_not_settled(void)
{
	limit_to(3, 0, 0);
}

static void wait_word(void)
{
	fixture_store(&n.state->wait, UINT64_C(1) << 40 | 2);
}

static void tokens_moved(void)
{
	fixture_store(&n.state->tokens, tokens_make(WORD_MOVED, 0, 0));
}

static void floor_of_later(void)
{
	fixture_store(&n.state->refilled_ms, now_ms() + 3600000);
}

static void rate_moved(void)
{
	fixture_store(&n.state->rate, rate_make(WORD_MOVED, 0, 0));
}

static void rate_used_up(void)
{
	fixture_store(&n.state->rate, rate_make(WORD_LIVE, (unsigned)n.policy.rate_epoch, RATE_TIME_MASK));
}

static void throttles_more_than_all(void)
{
	fixture_store(&n.state->throttle, throttle_make(now_ms(), 0, 0xfffff));
}

static void throttle_of_later(void)
{
	fixture_store(&n.state->throttle_since, TIME_MASK);
}

static void ended_and_never_admitted(void)
{
	count_common(&n.map, n.state, COUNTER_ended_fail, 5);
}

static void bucket_of_later(void)
{
	uint64_t tick_ms = window_tick_ms(&n.policy);
	uint64_t tick = now_ms() / tick_ms + 5;

	fixture_store(&map_shard(&n.map, n.state, 2)->window[tick % WINDOW_RING][WINDOW_FAIL],
	              bucket_make(window_tag(tick_ms, tick, generation()), 50));
}

static void carried_bucket_of_later(void)
{
	fixture_store(&map_carried(&n.map, n.state)->throttle[3][0], bucket_make(now_ms() + 60000, 50));
}

static void call_of_later(void)
{
	fixture_store(map_calls(&n.map, n.state) + 5, call_make(generation(), WINDOW_FAIL, (UINT64_C(1) << 30) + 5));
}

/* Inserts a key, as the worker who is there. */
static struct once_place key(enum once_phase phase, uint32_t owner, uint64_t expires_ms)
{
	struct once_place place;
	struct once_image image;

	once_image_init(&image, "payments", "order-1", 7);
	image.expires_ms = expires_ms;
	ck_assert_int_eq(once_insert(&n.map, &image, own_life(), phase, owner, now_ms(), &place), ONCE_INSERTED);
	return place;
}

static void key_of_nobody(void)
{
	key(ONCE_RUNNING, NOBODY, now_ms() + 1000);
}

static void key_away(void)
{
	key(ONCE_AWAY, 3, now_ms() + 1000);
}

static void key_damaged(void)
{
	struct once_place place = key(ONCE_DONE, 0, now_ms() + 1000);

	fixture_store(&map_once_entry(&n.map, place.slot)->key[0], 1);
}

static void key_without_size(void)
{
	struct once_place place = key(ONCE_DONE, 0, now_ms() + 1000);

	fixture_store(&map_once_entry(&n.map, place.slot)->key_size, 0);
}

static void key_for_ever(void)
{
	key(ONCE_DONE, 0, TIME_MASK);
}

static void key_twice(void)
{
	struct once_place place = key(ONCE_DONE, 0, now_ms() + 1000);
	uint32_t other = place.slot ^ 1;

	for (size_t i = 0; i < sizeof(struct once_entry) / 8; i++)
		fixture_store((word *)(void *)map_once_entry(&n.map, other) + i,
		              fixture_load((word *)(void *)map_once_entry(&n.map, place.slot) + i));
	fixture_store(&n.map.once_slots[other], place.seen);
}

static void keys_closed(void)
{
	fixture_store(&n.map.live->once_closed, 1);
}

static void file_cut(void)
{
	ck_assert_int_eq(truncate(n.path, (off_t)n.map.size - SEGMENT_PAGE), 0);
}

static void name_gone(void)
{
	ck_assert_int_eq(unlink(n.path), 0);
}

static void second_path(char *path)
{
	map_path(path, n.instance, n.map.generation);
}

static void second_name(void)
{
	char path[MAP_PATH_SIZE];

	second_path(path);
	ck_assert_int_eq(link(n.path, path), 0);
}

static void for_everybody(void)
{
	ck_assert_int_eq(chmod(n.path, 0662), 0);
}

static void successor_begun(void)
{
	char path[MAP_PATH_SIZE];
	struct map successor;

	ck_assert_int_eq(map_create(&successor, n.instance, &n.map.dims, &n.map, 0600, (gid_t)-1, NULL), 0);
	map_path(path, n.instance, successor.generation);
	ck_assert_int_eq(map_publish(&successor, path), 0);
	map_close(&successor);
}

static void rescd_gone(void)
{
	struct flock lock = {.l_type = F_UNLCK, .l_whence = SEEK_SET, .l_start = LOCK_DAEMON, .l_len = 1};

	ck_assert_int_eq(fcntl(n.map.fd, F_OFD_SETLK, &lock), 0);
}

static void rescd_silent(void)
{
	named_at(&n, now_ms() + 10000);
}

static void rescd_another(void)
{
	fixture_store(&n.map.daemon->pid, (uint64_t)gone());
	fixture_store(&n.map.daemon->pid_namespace, process_namespace("pid"));
}

static void records_too_many(void)
{
	fixture_store(&n.map.daemon->resources, 1000000);
}

static void record_not_counted(void)
{
	fixture_store(&n.map.daemon->resources, 0);
}

static const struct damage {
	enum doctor_check check;
	void (*make)(void);
	bool repairable;
} damages[] = {
        {CHECK_SEGMENT_SIZE, file_cut, false},
        {CHECK_SEGMENT_NAME, name_gone, false},
        {CHECK_SEGMENT_LINKS, second_name, false},
        {CHECK_SEGMENT_ACCESS, for_everybody, false},
        {CHECK_SEGMENT_LEFTOVER, successor_begun, false},
        {CHECK_DAEMON_ABSENT, rescd_gone, false},
        {CHECK_DAEMON_SILENT, rescd_silent, false},
        {CHECK_DAEMON_IDENTITY, rescd_another, false},
        {CHECK_DAEMON_WORDS, records_too_many, false},
        {CHECK_DAEMON_RECORDS, record_not_counted, false},
        {CHECK_LIVE_NEXT_LIFE, lives_again, true},
        {CHECK_LIVE_NEXT_LIFE, lives_used_up, false},
        {CHECK_LIVE_EXPECTED, workers_expected, true},
        {CHECK_LIVE_REQUEST, question_of_nobody, true},
        {CHECK_LIVE_REQUEST, question_of_no_kind, true},
        {CHECK_EVENTS_CURSOR, events_set_back, true},
        {CHECK_EVENTS_STAMP, event_elsewhere, true},
        {CHECK_EVENTS_WRITER, event_of_no_writer, true},
        {CHECK_WORKERS_WORD, slot_of_no_worker, true},
        {CHECK_WORKERS_DEAD, slot_of_the_dead, true},
        {CHECK_WORKERS_TWICE, life_in_two_slots, true},
        {CHECK_WORKERS_TOKEN, token_of_the_gone, false},
        {CHECK_WORKERS_IDENTITY, pid_of_nothing, false},
        {CHECK_POLICY_NAME, name_of_no_kind, false},
        {CHECK_POLICY_HASH, hash_of_another, false},
        {CHECK_POLICY_TWICE, name_twice, false},
        {CHECK_POLICY_VALUES, value_out_of_range, false},
        {CHECK_POLICY_CONFIGURED, not_configured, false},
        {CHECK_BREAKER_STATE, breaker_empty, true},
        {CHECK_BREAKER_STATE, breaker_moved, true},
        {CHECK_BREAKER_DUE, due_never, true},
        {CHECK_BREAKER_VERDICT, verdict_not_drawn, true},
        {CHECK_BREAKER_TALLY, tally_of_later, true},
        {CHECK_BREAKER_STREAK, streak_of_later, true},
        {CHECK_BREAKER_STREAK, streak_moved, true},
        {CHECK_BREAKER_REASON, reason_of_later, true},
        {CHECK_BREAKER_EVENT, events_ahead, true},
        {CHECK_BREAKER_UNTOLD, event_missing, true},
        {CHECK_OVERRIDE_WORD, override_moved, true},
        {CHECK_OVERRIDE_OVER, override_over, true},
        {CHECK_OVERRIDE_TEXT, override_without_text, false},
        {CHECK_INJECTION_WORD, injection_moved, true},
        {CHECK_INJECTION_WORD, injection_for_ever, true},
        {CHECK_INJECTION_OVER, injection_over, true},
        {CHECK_INJECTION_FORBIDDEN, injection_not_allowed, true},
        {CHECK_INJECTION_SETTING, injection_of_nothing, true},
        {CHECK_INJECTION_TEXT, injection_without_text, false},
        {CHECK_LIMIT_WORD, limit_above_target, true},
        {CHECK_LIMIT_WORD, limit_closed, true},
        {CHECK_LIMIT_DEBT, limit_in_debt, true},
        {CHECK_LIMIT_TARGET, limit_of_another_policy, true},
        {CHECK_LIMIT_SETTLE, limit_not_settled, true},
        {CHECK_PERMITS_HOLDER, permit_of_nobody, true},
        {CHECK_PERMITS_HOLDER, permit_without_a_life, true},
        {CHECK_WAITING_HOLDER, place_of_nobody, true},
        {CHECK_WAITING_WORD, wait_word, true},
        {CHECK_PROBES_OWNER, probe_of_nobody, true},
        {CHECK_PROBES_GHOST, ghost, true},
        {CHECK_PROBES_OVERDUE, probe_too_long, true},
        {CHECK_BUDGET_WORD, tokens_moved, true},
        {CHECK_BUDGET_PAID, floor_of_later, true},
        {CHECK_RATE_WORD, rate_moved, true},
        {CHECK_RATE_TIME, rate_used_up, true},
        {CHECK_THROTTLE_SHARE, throttles_more_than_all, true},
        {CHECK_THROTTLE_SINCE, throttle_of_later, true},
        {CHECK_SHARDS_OWNER, shard_of_nobody, true},
        {CHECK_SHARDS_COMMON, shard_of_no_worker, true},
        {CHECK_SHARDS_COMMON, shard_of_all_with_an_owner, true},
        {CHECK_COUNTERS_ENDED, ended_and_never_admitted, false},
        {CHECK_WINDOW_FUTURE, bucket_of_later, true},
        {CHECK_WINDOW_CALLS, call_of_later, true},
        {CHECK_WINDOW_THROTTLE, carried_bucket_of_later, true},
        {CHECK_ONCE_OWNER, key_of_nobody, true},
        {CHECK_ONCE_AWAY, key_away, true},
        {CHECK_ONCE_ENTRY, key_damaged, true},
        {CHECK_ONCE_ENTRY, key_without_size, true},
        {CHECK_ONCE_EXPIRES, key_for_ever, true},
        {CHECK_ONCE_TWICE, key_twice, false},
        {CHECK_ONCE_CLOSED, keys_closed, true},
};
#define DAMAGES (sizeof(damages) / sizeof(damages[0]))

START_TEST(each_damage_is_found_and_nothing_else_and_is_gone_when_it_was_repaired)
{
	const struct damage *damage = &damages[_i];
	const char *id = doctor_check_id(damage->check);

	expect_clean("before");
	damage->make();
	doctor_examine(&doctor);
	if (doctor.count != 1)
		say_all(id);
	ck_assert_msg(doctor.count == 1, "%s: %zu findings", id, doctor.count);
	ck_assert_str_eq(doctor_check_id(doctor.findings[0].check), id);
	ck_assert_msg((doctor.findings[0].repair != NULL) == damage->repairable, "%s", id);
	ck_assert(doctor.findings[0].remedy != NULL && doctor.findings[0].text[0] != '\0');
	size_t left = doctor_repair(&doctor);
	ck_assert_msg(left == (damage->repairable ? 0 : 1), "%s: %zu left", id, left);
	ck_assert_msg(doctor.findings[0].repaired == damage->repairable, "%s", id);
	if (damage->repairable)
		expect_clean(id);
}
END_TEST

/* What was seen in it before is not looked at any more, and is not gone because of that. */
START_TEST(a_file_that_is_cut_in_the_middle_of_an_examination_is_the_finding)
{
	ended_and_never_admitted();
	doctor_examine(&doctor);
	ck_assert_uint_eq(doctor.count, 1);
	file_cut();
	ck_assert_uint_eq(doctor_repair(&doctor), 1);
	ck_assert_uint_eq(doctor.count, 1);
	ck_assert_int_eq(doctor.findings[0].check, CHECK_SEGMENT_SIZE);
	ck_assert(!doctor.findings[0].repaired);
}
END_TEST

START_TEST(each_check_has_a_damage_that_it_is_for)
{
	for (enum doctor_check check = 0; check < CHECKS; check++) {
		bool there = false;
		for (size_t i = 0; i < DAMAGES; i++)
			there = there || damages[i].check == check;
		ck_assert_msg(there, "%s", doctor_check_id(check));
	}
}
END_TEST

/* The slots of the living are theirs: where one was damaged, its worker has to be restarted, and goes on until then. */
START_TEST(what_a_living_worker_holds_is_never_taken_from_it)
{
	resc_ticket ticket;

	ck_assert_int_eq(resc_enter(pay, NULL, &ticket), 0);
	fixture_store(&own_slot()->life, 0);
	doctor_examine(&doctor);
	ck_assert_uint_ge(doctor.count, 2); /* the permit, and the shard */
	size_t found = doctor.count;
	ck_assert_uint_eq(doctor_repair(&doctor), found);
	ck_assert_int_eq(resc_leave(&ticket, RESC_OK), 0);
}
END_TEST

/* ---- what is stopped ---- */

/* Where the author of a transition is stopped, its event is missing until rescd, who is not here, writes it: that is said. */
static const struct stop {
	const char *failpoint;
	bool event_missing;
} stops[] = {
        {"register.locked=stop", false}, {"register.claimed=stop", false},   {"permit.looked=stop", false},
        {"permit.taken=stop", false},    {"waiting.joined=stop", false},     {"leave.released=stop", false},
        {"leave.counted=stop", false},   {"transition.recorded=stop", true}, {"event.claimed=stop", true},
        {"rate.take=stop", false},       {"budget.claimed=stop", false},     {"once.claimed=stop", false},
        {"once.storing=stop", false},    {"probe.leased=stop", false},       {"leave.tally=stop", false},
};
#define STOPS (sizeof(stops) / sizeof(stops[0]))

/* Calls that fail, so that each guard has something to do: the failpoint is met before long. */
_Noreturn static void call_until_stopped(const char *failpoint)
{
	struct resc_once once;

	failpoint_set(failpoint);
	resc *own = named_join(n.instance);
	resc_resource *resource = named_lookup(own, "payments");
	bool hold = strcmp(failpoint, "waiting.joined=stop") == 0;
	for (int i = 0; i < 200; i++) {
		resc_retry_plan plan = RESC_RETRY_INIT;
		resc_ticket ticket;
		int64_t wait_ns;
		named_at(&n, now_ms() + 100);
		fixture_store(&n.map.daemon->heartbeat_ms, now_ms());
		if (resc_enter(resource, NULL, &ticket) == 0 && !hold)
			resc_leave(&ticket, RESC_FAIL);
		resc_retry(resource, &plan, RESC_FAIL, &wait_ns);
		if (resc_once_begin(resource, &i, sizeof i, NULL, &once) == 0)
			resc_once_done(&once, "x", 1);
	}
	_exit(0);
}

START_TEST(F7_a_worker_that_is_stopped_at_a_step_looks_like_no_damage)
{
	int status;
	pid_t pid = fork();

	if (pid == 0)
		call_until_stopped(stops[_i].failpoint);
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert_msg(WIFSTOPPED(status), "%s was not met", stops[_i].failpoint);
	if (!stops[_i].event_missing)
		expect_clean(stops[_i].failpoint);
	doctor_examine(&doctor);
	for (size_t i = 0; i < doctor.count; i++)
		ck_assert_uint_eq(doctor.findings[i].check, CHECK_BREAKER_UNTOLD);
	kill(pid, SIGKILL);
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
}
END_TEST

/* ---- under load ---- */

_Noreturn static void call_for_ever(unsigned seed)
{
	struct resc_once once;

	resc_seed(seed);
	resc *own = named_join(n.instance);
	resc_resource *resource = named_lookup(own, "payments");
	for (uint32_t i = seed;; i++) {
		resc_ticket ticket;
		resc_retry_plan plan = RESC_RETRY_INIT;
		int64_t wait_ns;
		enum resc_outcome outcome = random_below(2) == 0 ? RESC_FAIL : RESC_OK;
		if (resc_enter(resource, NULL, &ticket) == 0)
			resc_leave(&ticket, outcome);
		if (outcome == RESC_FAIL)
			resc_retry(resource, &plan, outcome, &wait_ns);
		uint32_t one_of_few = i % 8;
		if (i % 64 < 8 && resc_once_begin(resource, &one_of_few, sizeof one_of_few, NULL, &once) == 0)
			resc_once_done(&once, "x", 1);
		if (i % 512 == 0) {
			resc_close(own);
			own = named_join(n.instance);
			resource = named_lookup(own, "payments");
		}
	}
}

/* Without waiting: the clock stands still between our steps. */
static void make_busy(pid_t *crew, unsigned count)
{
	struct policy p = n.policy;

	p.max_wait_ms = p.rate_max_wait_ms = p.once_max_wait_ms = 0;
	p.once_ttl_ms = 200;
	p.cooldown_ms = 100;
	p.rate_per_second = 1000000 * TOKEN;
	p.rate_burst = 1000000;
	named_reload(&n, &p);
	for (unsigned i = 0; i < count; i++) {
		crew[i] = fork();
		if (crew[i] == 0)
			call_for_ever(i + 1);
	}
}

static void end_crew(const pid_t *crew, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		kill(crew[i], SIGKILL);
	for (unsigned i = 0; i < count; i++)
		ck_assert_int_eq(fixture_wait(crew[i]), -SIGKILL);
}

#define CREW 4u

/* The other half of reliable: nothing is found where nothing is wrong. Breakers open, try and close, keys expire, workers come and go. */
START_TEST(a_busy_segment_that_is_right_is_clean_on_every_look)
{
	uint64_t end_ns = clock_read_ns(CLOCK_MONOTONIC) + 1500000000;
	unsigned examinations = 0;
	pid_t crew[CREW];

	make_busy(crew, CREW);
	doctor.turn_ms = 4000;
	while (clock_read_ns(CLOCK_MONOTONIC) < end_ns) {
		named_at(&n, now_ms() + 50);
		fixture_store(&n.map.daemon->heartbeat_ms, now_ms());
		expect_clean("busy");
		examinations++;
	}
	ck_assert_uint_ge(examinations, 3);
	ck_assert_uint_gt(named_look(&n).counters.opened, 0);
	end_crew(crew, CREW);
	/* The crew is dead now, and each of them is a finding until it is repaired. */
	doctor.turn_ms = TURN_MS;
	doctor_examine(&doctor);
	ck_assert_uint_ge(doctor.count, 1);
	ck_assert_uint_eq(doctor_repair(&doctor), 0);
	expect_clean("after the crew");
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
}
END_TEST

/* ---- several doctors, and one that is killed ---- */

static void damage_permits(uint32_t count)
{
	for (uint32_t i = 0; i < count; i++)
		fixture_store(map_permit(&n.map, n.state, i), permit_make(NOBODY + i % 2, i + 1));
	fixture_store(&map_worker(&n.map, 5)->life, NOBODY);
}

/* In another process, with a map of its own. */
static pid_t another_doctor(const char *failpoint)
{
	pid_t pid = fork();

	if (pid != 0)
		return pid;
	failpoint_set(failpoint);
	struct map own;
	struct doctor other;
	if (map_open(&own, n.path, MAP_WORKER, NULL) != 0 || doctor_open(&other, n.instance, &own) != 0)
		_exit(2);
	other.turn_ms = TURN_MS;
	doctor_examine(&other);
	_exit(doctor_repair(&other) == 0 ? 0 : 1);
}

START_TEST(several_doctors_at_once_repair_once)
{
	pid_t others[3];

	damage_permits(40);
	for (unsigned i = 0; i < 3; i++)
		others[i] = another_doctor(NULL);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_int_eq(fixture_wait(others[i]), 0);
	expect_clean("after three doctors");
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	ck_assert_uint_eq(named_look(&n).counters.permits_reclaimed, 40);
	ck_assert_uint_eq(fixture_load(&n.map.live->lives_reaped), 1);
}
END_TEST

START_TEST(a_doctor_that_is_killed_in_the_middle_leaves_the_rest_to_the_next)
{
	damage_permits(40);
	ck_assert_int_eq(fixture_wait(another_doctor("reap.permit@7=kill")), -SIGKILL);
	unsigned left = permit_occupied(&n.map, n.state);
	ck_assert_msg(left > 0 && left < 40, "%u", left);
	ck_assert_int_eq(fixture_wait(another_doctor(NULL)), 0);
	ck_assert_uint_eq(permit_occupied(&n.map, n.state), 0);
	ck_assert_uint_eq(named_look(&n).counters.permits_reclaimed, 40);
	expect_clean("after the second");
}
END_TEST

/* ---- any bytes ---- */

#define ROUNDS 40

/* More is wrong than the list holds: it says so, and each repair leaves less. */
START_TEST(any_bytes_neither_crash_it_nor_keep_it)
{
	uint8_t *bytes = n.map.base + SEGMENT_PAGE;
	size_t size = n.map.size - SEGMENT_PAGE;

	resc_seed(4711);
	uint64_t *good = malloc(size);
	ck_assert_ptr_nonnull(good);
	memcpy(good, bytes, size);
	doctor.turn_ms = 1;
	for (int round = 0; round < ROUNDS; round++) {
		unsigned sparse = 1u << random_below(12);
		for (size_t i = 0; i < size / 8; i++)
			if (random_below(sparse) == 0)
				((uint64_t *)(void *)bytes)[i] = random_next() >> random_below(64);
		named_at(&n, 1000);
		doctor_examine(&doctor);
		ck_assert_uint_le(doctor.count, DOCTOR_FINDINGS);
		doctor_repair(&doctor);
	}
	memcpy(bytes, good, size);
	free(good);
	expect_clean("the good bytes");
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        each_check_has_a_damage_that_it_is_for,
	        a_file_that_is_cut_in_the_middle_of_an_examination_is_the_finding,
	        what_a_living_worker_holds_is_never_taken_from_it,
	        a_busy_segment_that_is_right_is_clean_on_every_look,
	        several_doctors_at_once_repair_once,
	        a_doctor_that_is_killed_in_the_middle_leaves_the_rest_to_the_next,
	        any_bytes_neither_crash_it_nor_keep_it,
	};
	TCase *tcase = FIXTURE_CASE("doctor", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, each_damage_is_found_and_nothing_else_and_is_gone_when_it_was_repaired, 0, DAMAGES);
	tcase_add_loop_test(tcase, F7_a_worker_that_is_stopped_at_a_step_looks_like_no_damage, 0, STOPS);
	return named_run(fixture_suite("doctor", tcase));
}
