/* SPDX-License-Identifier: MIT */
/* The event ring: complete, in order, each transition once, and no writer that is stopped or dead is in anybody's way. */
#include "event.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>

#include "named.h"
#include "worker.h"

static struct fixture f;
static struct event read_back[4096];

static void set_up(void)
{
	fixture_open(&f, NULL);
}
static void tear_down(void)
{
	map_close(&f.map);
}

static uint64_t write_one(enum event_kind kind, const char *resource, uint16_t generation, const char *text)
{
	struct event event = {.kind = kind, .generation = generation, .from = TAG_CLOSED, .to = TAG_OPEN, .reason = REASON_CONSECUTIVE};

	event.value[0] = 5;
	event.value[1] = UINT64_C(1) << 40;
	strncpy(event.resource, resource, sizeof(event.resource) - 1);
	strncpy(event.text, text, sizeof(event.text) - 1);
	event_write(&f.map, 0, &event);
	return event.number;
}

static size_t read_all(void)
{
	return event_read(&f.map, 0, read_back, 4096);
}

START_TEST(an_event_comes_back_as_it_was)
{
	fixture_at(&f, 1234);
	ck_assert_uint_eq(write_one(EVENT_BREAKER, "payments", 65535, "vendor maintenance"), 1);
	ck_assert_uint_eq(read_all(), 1);
	struct event *e = &read_back[0];
	ck_assert_uint_eq(e->number, 1);
	ck_assert_uint_eq(e->ms, 1234);
	ck_assert_int_eq(e->kind, EVENT_BREAKER);
	ck_assert_uint_eq(e->from, TAG_CLOSED);
	ck_assert_uint_eq(e->to, TAG_OPEN);
	ck_assert_int_eq(e->reason, REASON_CONSECUTIVE);
	ck_assert_uint_eq(e->generation, 65535);
	ck_assert_int_eq(e->pid, getpid());
	ck_assert_uint_eq(e->uid, getuid());
	ck_assert_uint_eq(e->value[0], 5);
	ck_assert_uint_eq(e->value[1], UINT64_C(1) << 40);
	ck_assert_str_eq(e->resource, "payments");
	ck_assert_str_eq(e->text, "vendor maintenance");
}
END_TEST

START_TEST(an_empty_ring_has_nothing)
{
	ck_assert_uint_eq(read_all(), 0);
}
END_TEST

START_TEST(the_newest_come_oldest_first)
{
	for (uint16_t i = 1; i <= 10; i++)
		write_one(EVENT_RELOAD, "", i, "");
	ck_assert_uint_eq(event_read(&f.map, 0, read_back, 3), 3);
	for (unsigned i = 0; i < 3; i++)
		ck_assert_uint_eq(read_back[i].number, 8 + i);
	ck_assert_uint_eq(event_read(&f.map, 8, read_back, 10), 2);
	ck_assert_uint_eq(read_back[0].number, 9);
	ck_assert_uint_eq(event_read(&f.map, 10, read_back, 10), 0);
	ck_assert_uint_eq(event_read(&f.map, UINT64_MAX, read_back, 10), 0);
	ck_assert_uint_eq(event_read(&f.map, 0, read_back, 0), 0);
}
END_TEST

START_TEST(a_full_ring_keeps_the_newest)
{
	uint32_t size = f.map.dims.events;

	for (uint32_t i = 0; i < 3 * size + 7; i++)
		write_one(EVENT_RELOAD, "", 0, "");
	ck_assert_uint_eq(read_all(), size);
	ck_assert_uint_eq(read_back[0].number, 2 * size + 8);
	ck_assert_uint_eq(read_back[size - 1].number, 3 * size + 7);
}
END_TEST

START_TEST(a_transition_that_is_there_twice_is_given_once)
{
	write_one(EVENT_BREAKER, "payments", 7, "winner");
	write_one(EVENT_BREAKER, "mail", 7, "another resource");
	write_one(EVENT_BREAKER, "payments", 7, "rescd");
	write_one(EVENT_BREAKER, "payments", 8, "the next one");
	write_one(EVENT_FORCED, "payments", 8, "no transition");
	write_one(EVENT_FORCED, "payments", 8, "no transition");
	ck_assert_uint_eq(read_all(), 5);
	ck_assert_str_eq(read_back[0].text, "winner");
	ck_assert_str_eq(read_back[1].text, "another resource");
	ck_assert_str_eq(read_back[2].text, "the next one");
	/* Whoever has read the first one already does not get it again as the second one. */
	ck_assert_uint_eq(event_read(&f.map, 2, read_back, 10), 3);
	ck_assert_str_eq(read_back[0].text, "the next one");
}
END_TEST

START_TEST(a_death_that_two_reapers_tell_is_given_once)
{
	struct event death = {.kind = EVENT_REAPED, .value = {17, 4711}, .text = "2 permits"};
	struct event another = {.kind = EVENT_REAPED, .value = {18, 4711}};

	event_write(&f.map, 0, &death);
	death.text[0] = '0';
	event_write(&f.map, 5, &death);
	event_write(&f.map, 5, &another);
	ck_assert_uint_eq(read_all(), 2);
	ck_assert_str_eq(read_back[0].text, "2 permits");
	ck_assert_uint_eq(read_back[1].value[0], 18);
}
END_TEST

START_TEST(a_busy_place_is_passed_by)
{
	/* F7: a writer that stopped in the middle of event 3. */
	write_one(EVENT_RELOAD, "", 0, "");
	write_one(EVENT_RELOAD, "", 0, "");
	fixture_store(&map_event(&f.map, 2)->stamp, EVENT_BUSY | 77);
	ck_assert_uint_eq(write_one(EVENT_RELOAD, "", 0, ""), 4);
	ck_assert_uint_eq(read_all(), 3);
	ck_assert_uint_eq(fixture_load(&map_event(&f.map, 2)->stamp), EVENT_BUSY | 77);
	for (uint32_t i = 0; i < f.map.dims.events; i++)
		write_one(EVENT_RELOAD, "", 0, "");
	ck_assert_uint_eq(read_all(), f.map.dims.events - 1);
	fixture_store(&map_event(&f.map, 2)->stamp, 0); /* reaped */
	for (uint32_t i = 0; i < f.map.dims.events; i++)
		write_one(EVENT_RELOAD, "", 0, "");
	ck_assert_uint_eq(read_all(), f.map.dims.events);
}
END_TEST

START_TEST(a_slow_writer_does_not_cover_a_newer_event)
{
	write_one(EVENT_RELOAD, "", 0, "");
	fixture_store(&map_event(&f.map, 1)->stamp, f.map.dims.events + 2); /* the next lap was here */
	ck_assert_uint_eq(write_one(EVENT_RELOAD, "", 0, ""), 3);
	ck_assert_uint_eq(fixture_load(&map_event(&f.map, 1)->stamp), f.map.dims.events + 2);
}
END_TEST

START_TEST(a_ring_of_busy_places_does_not_hang)
{
	for (uint32_t i = 0; i < f.map.dims.events; i++)
		fixture_store(&map_event(&f.map, i)->stamp, UINT64_MAX);
	ck_assert_uint_eq(write_one(EVENT_RELOAD, "", 0, ""), 0);
	ck_assert_uint_eq(read_all(), 0);
	fixture_store(&f.map.live->next_event, UINT64_MAX - 3);
	write_one(EVENT_RELOAD, "", 0, "");
	ck_assert_uint_eq(read_all(), 0);
}
END_TEST

START_TEST(F7_death_in_the_middle_of_an_event)
{
	struct fixture shared;

	fixture_open_shared(&shared, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct event event = {.kind = EVENT_RELOAD};
		failpoint_set("event.claimed=kill");
		event_write(&shared.map, 9, &event);
		_exit(0);
	}
	ck_assert_int_eq(fixture_wait(pid), -SIGKILL);
	ck_assert_uint_eq(fixture_load(&map_event(&shared.map, 0)->stamp), EVENT_BUSY | 9);
	struct event event = {.kind = EVENT_RELOAD};
	event_write(&shared.map, 10, &event);
	ck_assert_uint_eq(event_read(&shared.map, 0, read_back, 10), 1);
	ck_assert_uint_eq(read_back[0].number, 2);
	map_close(&shared.map);
}
END_TEST

START_TEST(a_writer_that_was_reaped_alive_drops_its_event)
{
	/* The reaper has freed the place, and another event is there: the late stamp must not succeed. */
	struct fixture shared;

	fixture_open_shared(&shared, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct event event = {.kind = EVENT_RELOAD};
		failpoint_set("event.claimed=stop");
		event_write(&shared.map, 9, &event);
		_exit(0);
	}
	int status;
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	fixture_store(&map_event(&shared.map, 0)->stamp, 0);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert_uint_eq(fixture_load(&map_event(&shared.map, 0)->stamp), 0);
	ck_assert_uint_eq(event_read(&shared.map, 0, read_back, 10), 0);
	map_close(&shared.map);
}
END_TEST

/* ---- writers without a slot: rescd, resctl ---- */

/* One that comes to that point in the middle of event 1, with a descriptor, and so with tokens, of its own. */
static pid_t writer_without_a_slot(const struct named *n, const char *failpoint)
{
	pid_t pid = fork();

	if (pid == 0) {
		struct event event = {.kind = EVENT_RELOAD};
		struct resc_error err;
		struct map map;
		failpoint_set(failpoint);
		if (map_open(&map, n->path, MAP_OWNER, &err) == 0)
			event_write(&map, 0, &event);
		_exit(0);
	}
	return pid;
}

/* Somebody has a lock in that file, whoever it is. */
static bool has_a_lock(int file)
{
	struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
	char path[64];

	snprintf(path, sizeof path, "/proc/self/fd/%d", file);
	int fd = open(path, O_RDWR | O_CLOEXEC);
	ck_assert_int_eq(fcntl(fd, F_OFD_GETLK, &lock), 0);
	close(fd);
	return lock.l_type != F_UNLCK;
}

START_TEST(an_event_locks_nothing_in_a_file_that_has_got_the_number_of_the_descriptor)
{
	int foreign = memfd_create("foreign", MFD_CLOEXEC);
	struct event event = {.kind = EVENT_RELOAD};
	struct resc_error err;
	struct named n;
	int status;

	named_open(&n, NULL);
	pid_t pid = fork();
	if (pid == 0) {
		struct map map;
		if (map_open(&map, n.path, MAP_WORKER, &err) != 0)
			_exit(1);
		dup2(foreign, map.fd);
		failpoint_set("event.filled=stop");
		event_write(&map, 0, &event);
		_exit(0);
	}
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	ck_assert(WIFSTOPPED(status));
	bool locked = has_a_lock(foreign);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert(!locked);
	ck_assert_uint_eq(event_read(&n.map, 0, read_back, 16), 1);
	close(foreign);
	named_close(&n);
}
END_TEST

static size_t events_after_two_laps(const struct named *n)
{
	for (uint32_t i = 0; i < 2 * n->map.dims.events; i++) {
		struct event event = {.kind = EVENT_RELOAD};
		event_write(&n->map, 0, &event);
	}
	return event_read(&n->map, 0, read_back, 4096);
}

START_TEST(F7_the_place_of_a_killed_writer_without_a_slot_is_used_again)
{
	static const char *const points[] = {"event.claimed=kill", "event.filled=kill"};
	struct named n;

	named_open(&n, NULL);
	ck_assert_int_eq(fixture_wait(writer_without_a_slot(&n, points[_i])), -SIGKILL);
	ck_assert_uint_ne(fixture_load(&map_event(&n.map, 0)->stamp) & EVENT_BUSY, 0);
	ck_assert_uint_eq(events_after_two_laps(&n), n.map.dims.events);
	named_close(&n);
}
END_TEST

START_TEST(F7_a_stopped_writer_without_a_slot_keeps_its_place_and_its_event_whole)
{
	struct named n;
	int status;

	named_open(&n, NULL);
	pid_t pid = writer_without_a_slot(&n, "event.claimed=stop");
	ck_assert_int_eq(waitpid(pid, &status, WUNTRACED), pid);
	uint64_t stamp = fixture_load(&map_event(&n.map, 0)->stamp);
	ck_assert(life_is_held(&n.map, (uint32_t)stamp));
	ck_assert_uint_eq(events_after_two_laps(&n), n.map.dims.events - 1);
	ck_assert_uint_eq(fixture_load(&map_event(&n.map, 0)->stamp), stamp);
	kill(pid, SIGCONT);
	ck_assert_int_eq(fixture_wait(pid), 0);
	ck_assert(!life_is_held(&n.map, (uint32_t)stamp));
	/* Its event has come too late to be among the newest, and its place is free for the next lap. */
	ck_assert_uint_eq(fixture_load(&map_event(&n.map, 0)->stamp), 1);
	ck_assert_uint_eq(events_after_two_laps(&n), n.map.dims.events);
	named_close(&n);
}
END_TEST

START_TEST(a_writer_without_a_slot_gives_its_token_back)
{
	struct named n;

	named_open(&n, NULL);
	events_after_two_laps(&n);
	struct map other;
	struct resc_error err;
	ck_assert_int_eq(map_open(&other, n.path, MAP_READER, &err), 0); /* another descriptor: it sees what this one holds */
	uint64_t lives = fixture_load(&n.map.live->next_life);
	ck_assert_uint_gt(lives, n.map.dims.events);
	for (uint32_t life = 1; life < lives; life++)
		ck_assert(!life_is_held(&other, life));
	map_close(&other);
	named_close(&n);
}
END_TEST

START_TEST(an_event_that_another_has_written_meanwhile_is_dropped)
{
	word done;
	struct event event = {.kind = EVENT_RELOAD};

	fixture_store(&done, 7);
	event_write_unless(&f.map, 0, &event, &done, 6);
	ck_assert_uint_eq(event.number, 0);
	ck_assert_uint_eq(read_all(), 0);
	ck_assert_uint_eq(fixture_load(&map_event(&f.map, 0)->stamp), 0);
	event_write_unless(&f.map, 0, &event, &done, 7);
	ck_assert_uint_eq(event.number, 2);
	ck_assert_uint_eq(read_all(), 1);
}
END_TEST

START_TEST(damage_gives_clean_events_or_none)
{
	write_one(EVENT_BREAKER, "payments", 1, "");
	struct event_record *record = map_event(&f.map, 0);
	fixture_store(&record->pid, UINT64_MAX);
	fixture_store(&record->value[0], UINT64_MAX);
	fixture_store(&record->ms, UINT64_MAX);
	fixture_store(&record->kind, UINT64_C(0xffffffffffffff00) | EVENT_BREAKER);
	for (unsigned i = 0; i < sizeof(record->text); i++)
		atomic_store_explicit(&record->text[i], (char)0x9b, memory_order_relaxed);
	ck_assert_uint_eq(read_all(), 1);
	ck_assert_int_ge(read_back[0].pid, 0);
	ck_assert_uint_le(read_back[0].value[0], INT64_MAX);
	ck_assert_uint_le(read_back[0].ms, TIME_MASK);
	ck_assert_int_eq(read_back[0].reason, REASON_NONE);
	ck_assert_uint_le(read_back[0].from, TAG_HALF_OPEN);
	ck_assert_uint_eq(strlen(read_back[0].text), EVENT_TEXT - 1);
	ck_assert_uint_eq(strspn(read_back[0].text, "?"), EVENT_TEXT - 1);
	fixture_store(&record->kind, EVENT_KINDS);
	ck_assert_uint_eq(read_all(), 0);
}
END_TEST

/* ---- several at once ---- */

#define WRITERS 4
#define WRITES  2000

static atomic_bool finished;

static void *write_many(void *arg)
{
	for (unsigned i = 0; i < WRITES; i++) {
		struct event event = {.kind = EVENT_RELOAD, .generation = (uint16_t)i};
		/* Fields that agree with each other: a torn event would not. */
		uint64_t stamp = (uint64_t)(uintptr_t)arg << 32 | i;
		event.value[0] = stamp;
		event.value[1] = ~stamp & INT64_MAX;
		snprintf(event.resource, sizeof(event.resource), "%016llx", (unsigned long long)stamp);
		snprintf(event.text, sizeof(event.text), "%016llx", (unsigned long long)stamp);
		event_write(&f.map, (uint32_t)(uintptr_t)arg, &event);
	}
	return NULL;
}

static void expect_whole(size_t count)
{
	char text[32];

	for (size_t i = 0; i < count; i++) {
		struct event *e = &read_back[i];
		ck_assert_uint_eq(e->value[0], ~e->value[1] & INT64_MAX);
		snprintf(text, sizeof(text), "%016llx", (unsigned long long)e->value[0]);
		ck_assert_str_eq(e->resource, text);
		ck_assert_str_eq(e->text, text);
		ck_assert_uint_eq(e->generation, e->value[0] & 0xffff);
		if (i > 0)
			ck_assert_uint_gt(e->number, e[-1].number);
	}
}

static void *read_many(void *arg)
{
	(void)arg;
	while (!atomic_load_explicit(&finished, memory_order_acquire))
		expect_whole(event_read(&f.map, 0, read_back, 4096));
	return NULL;
}

START_TEST(writers_and_a_reader_at_once)
{
	pthread_t writers[WRITERS], reader;

	atomic_store(&finished, false);
	pthread_create(&reader, NULL, read_many, NULL);
	for (uintptr_t i = 0; i < WRITERS; i++)
		pthread_create(&writers[i], NULL, write_many, (void *)(i + 1));
	for (unsigned i = 0; i < WRITERS; i++)
		pthread_join(writers[i], NULL);
	atomic_store_explicit(&finished, true, memory_order_release);
	pthread_join(reader, NULL);
	size_t count = read_all();
	expect_whole(count);
	/* A writer that was passed by a whole lap takes another number; nothing else leaves a gap. */
	ck_assert_uint_ge(count, f.map.dims.events - WRITERS);
}
END_TEST

START_TEST(every_kind_and_reason_has_a_name)
{
	for (int kind = 0; kind < EVENT_KINDS; kind++)
		ck_assert_str_ne(event_kind_name((enum event_kind)kind), "unknown");
	for (int reason = 0; reason < REASONS; reason++) {
		ck_assert_str_ne(reason_name((enum reason)reason), "unknown");
		ck_assert_uint_gt(strlen(reason_text((enum reason)reason)), 0);
	}
	ck_assert_str_eq(event_kind_name(EVENT_DAEMON_START), "daemon_start");
	ck_assert_str_eq(event_kind_name((enum event_kind)255), "unknown");
	ck_assert_str_eq(reason_name((enum reason)255), "unknown");
	ck_assert_ptr_nonnull(reason_text((enum reason)255));
}
END_TEST

START_TEST(what_was_written_after_the_copy_is_carried_over_once_as_it_was)
{
	struct map successor;
	struct resc_error err;

	ck_assert_int_eq(map_private(&successor, "successor", &err), 0);
	write_one(EVENT_BREAKER, "payments", 7, "before the copy");
	fixture_store(&f.map.live->events_carried, 1);
	fixture_at(&f, 1500);
	write_one(EVENT_BREAKER, "payments", 8, "after it");
	write_one(EVENT_FORCED, "ledger", 1, "by hand");
	/* Somebody is in the middle of the next one: it comes later, and so does what is behind it. */
	struct event_record *busy = map_event(&f.map, 3);
	fixture_store(&f.map.live->next_event, 4);
	fixture_store(&busy->stamp, EVENT_BUSY | 5);
	write_one(EVENT_RESET, "ledger", 2, "behind");
	event_carry(&f.map, &successor);
	ck_assert_uint_eq(event_read(&successor, 0, read_back, 16), 2);
	ck_assert_str_eq(read_back[0].text, "after it");
	ck_assert_uint_eq(read_back[0].ms, 1500);
	ck_assert_uint_eq(read_back[0].generation, 8);
	ck_assert_str_eq(read_back[1].text, "by hand");
	fixture_store(&busy->stamp, 0);
	for (int i = 0; i < 3; i++)
		event_carry(&f.map, &successor);
	ck_assert_uint_eq(event_read(&successor, 0, read_back, 16), 3);
	ck_assert_str_eq(read_back[2].text, "behind");
	map_close(&successor);
}
END_TEST

START_TEST(F7_a_writer_without_a_slot_that_was_killed_does_not_hold_up_what_is_carried_over)
{
	struct event behind = {.kind = EVENT_RELOAD};
	struct resc_error err;
	struct map successor;
	struct named n;

	named_open(&n, NULL);
	ck_assert_int_eq(map_private(&successor, "successor", &err), 0);
	ck_assert_int_eq(fixture_wait(writer_without_a_slot(&n, "event.filled=kill")), -SIGKILL);
	/* Nobody reaps it, and nobody writes a whole lap in a segment that has a successor. */
	event_write(&n.map, 0, &behind);
	event_carry(&n.map, &successor);
	ck_assert_uint_eq(event_read(&successor, 0, read_back, 16), 1);
	map_close(&successor);
	named_close(&n);
}
END_TEST

int main(void)
{
	const TTest *const tests[] = {
	        an_event_comes_back_as_it_was,
	        an_empty_ring_has_nothing,
	        the_newest_come_oldest_first,
	        a_full_ring_keeps_the_newest,
	        a_transition_that_is_there_twice_is_given_once,
	        a_death_that_two_reapers_tell_is_given_once,
	        a_busy_place_is_passed_by,
	        a_slow_writer_does_not_cover_a_newer_event,
	        a_ring_of_busy_places_does_not_hang,
	        F7_death_in_the_middle_of_an_event,
	        a_writer_that_was_reaped_alive_drops_its_event,
	        F7_a_stopped_writer_without_a_slot_keeps_its_place_and_its_event_whole,
	        a_writer_without_a_slot_gives_its_token_back,
	        an_event_locks_nothing_in_a_file_that_has_got_the_number_of_the_descriptor,
	        an_event_that_another_has_written_meanwhile_is_dropped,
	        damage_gives_clean_events_or_none,
	        writers_and_a_reader_at_once,
	        every_kind_and_reason_has_a_name,
	        what_was_written_after_the_copy_is_carried_over_once_as_it_was,
	        F7_a_writer_without_a_slot_that_was_killed_does_not_hold_up_what_is_carried_over,
	};
	TCase *tcase = FIXTURE_CASE("event", tests, set_up, tear_down);

	tcase_add_loop_test(tcase, F7_the_place_of_a_killed_writer_without_a_slot_is_used_again, 0, 2);
	return named_run(fixture_suite("event", tcase));
}
