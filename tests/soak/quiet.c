/* SPDX-License-Identifier: MIT */
/*
 * A quiet point: nobody calls, nobody new dies, and everything must add up.
 *
 * First as it stands, which is timed from the last kill; then, when the workers have had a moment to keep up with the segment, also what
 * takes longer: former segments are gone, the last configuration is loaded, the doctor is content.
 */
#include <dirent.h>
#include <string.h>

#include "driver.h"

static bool all_paused(void)
{
	for (uint32_t i = 0; i < 2 * storm.workers; i++) {
		uint32_t phase = atomic_load_explicit(&storm.shared->actors[i].phase, memory_order_seq_cst) & 0xff;
		if (phase != ACTOR_PAUSED && phase != ACTOR_FREE)
			return false;
	}
	return true;
}

static const char *verdict = "";
static char last_wrong[400];

static bool accounts_are_exact(void)
{
	const struct map *map = current_segment();

	verdict = map == NULL ? "there is no segment" : accounts_check(map);
	if (verdict[0] == '\0')
		verdict = accounts_idle(map);
	if (verdict[0] != '\0')
		snprintf(last_wrong, sizeof(last_wrong), "%s", verdict);
	return verdict[0] == '\0';
}

/* Only the segment of the name is left. */
bool no_former_segments(void)
{
	char prefix[MAP_PATH_SIZE];
	DIR *directory = opendir(SEGMENT_DIR);
	const struct dirent *entry;
	bool found = false;

	snprintf(prefix, sizeof(prefix), SEGMENT_PREFIX "%s.", storm.instance);
	while (directory != NULL && (entry = readdir(directory)) != NULL)
		found = found || strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
	if (directory != NULL)
		closedir(directory);
	return !found;
}

static bool everything_is_clean(void)
{
	const struct map *map = current_segment();

	if (!no_former_segments()) {
		verdict = "a former segment is still there";
		return false;
	}
	verdict = map == NULL ? "there is no segment" : accounts_workers(map);
	return verdict[0] == '\0';
}

static bool is_reloaded(void)
{
	return host_ask((const char *const[]){"reload", NULL}, NULL, 0) == 0;
}

static bool wait_for_verdict(bool (*condition)(void), uint64_t patience_ns)
{
	uint64_t deadline = now_ns() + patience_ns;

	while (!condition()) {
		if (failed())
			return false;
		if (now_ns() > deadline) {
			complain("%s", verdict);
			return false;
		}
		live_until(now_ns() + MS / 2);
	}
	return true;
}

static char doctors_word[4096] = "was not asked";

static void ask_doctor(void)
{
	int r = host_ask((const char *const[]){"doctor", NULL}, doctors_word, sizeof(doctors_word));

	doctors_word[strcspn(doctors_word, "\n")] = '\0';
	if (r != 0)
		complain("resctl doctor ended with %d: %s", r, doctors_word);
}

const char *doctors_last_word(void)
{
	return doctors_word;
}

static void pause_workers(uint32_t how)
{
	atomic_store_explicit(&storm.shared->pause, how, memory_order_seq_cst);
	if (how == 2)
		wait_for(all_paused, "all workers have ended their calls");
}

void quiet_point(void)
{
	uint64_t asked_ns = now_ns();

	last_wrong[0] = '\0';

	atomic_store_explicit(&storm.shared->storm, false, memory_order_seq_cst);
	run_timers(true);
	bool disturbed = host.rescd <= 0 || rescd_is_ending() || host.disturbed_ns + 200 * MS > asked_ns;
	host.down_until_ns = 0;
	pause_workers(2);
	wait_for(rescd_is_ready, "rescd is ready");
	if (!wait_for_verdict(accounts_are_exact, PATIENCE_NS))
		return;
	double ms = (double)(now_ns() - last_kill_ns) / 1e6;
	sample(disturbed ? &report.exact_after_rescd : &report.exact, ms);
	if (ms > report.slowest_ms) {
		report.slowest_ms = ms;
		snprintf(report.slowest, sizeof(report.slowest), "%s", last_wrong);
	}
	pause_workers(1);
	wait_for(operators_are_gone, "resctl ends");
	wait_for(is_reloaded, "the last configuration is loaded");
	wait_for_verdict(everything_is_clean, PATIENCE_NS);
	pause_workers(2);
	host_limits_are_in_force(&host);
	if (wait_for_verdict(accounts_are_exact, PATIENCE_NS)) {
		const struct map *map = current_segment();
		const char *drawn = map == NULL ? "there is no segment" : accounts_drawn(map, now_ns() - started_ns);
		if (drawn[0] != '\0')
			complain("%s", drawn);
		ask_doctor();
	}
	report.quiet_points++;
	report_progress(&report);
	happened("quiet point %llu", (unsigned long long)report.quiet_points);
	pause_workers(0);
}
