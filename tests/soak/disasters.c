/* SPDX-License-Identifier: MIT */
/* What happens to the host of the storm. Each disaster takes the same number of throws of the dice whatever it finds, so that a seed
 * replays. */
#include <signal.h>
#include <unistd.h>

#include "driver.h"

static void hit_workers(uint32_t draw)
{
	/* One; seldom several at the same moment, or all. */
	uint32_t many = draw % 512 == 0 ? storm.workers : draw % 16 == 0 ? 2 + draw / 16 % 4 : 1;

	for (uint32_t n = 0; n < many; n++) {
		uint32_t i = random_below(&dice, storm.workers);
		uint64_t delay = random_below(&dice, 3000);
		if (many == storm.workers)
			kill_worker(n);
		else if (random_below(&dice, 4) == 0)
			kill_worker(i);
		else
			aim_at_worker(i, delay);
	}
}

static void stop_worker(uint32_t draw)
{
	uint32_t i = random_below(&dice, storm.workers);
	uint64_t length = random_below(&dice, 8) == 0 ? 400 * MS : (uint64_t)random_below(&dice, 60) * MS;

	stop_worker_for(i, length, draw % 3 == 0);
}

static void reload(uint32_t draw)
{
	host.variant = random_below(&dice, 16);
	host_configure(&host);
	report.reloads++;
	if (draw % 3 == 0) {
		operate((const char *const[]){"reload", NULL}, draw % 2 == 0 ? random_below(&dice, 6000) * UINT64_C(1000) + 1 : 0);
		return;
	}
	host_hang_up(&host);
	happened("configuration %u, SIGHUP", host.variant);
}

static void an_operator(uint32_t draw)
{
	/* Not those whose budget or rate is checked: a reset fills them. */
	static const enum storm_resource whom[] = {R_PAY, R_SEARCH, R_INDEX, R_TRIAL};
	const char *name = traits[whom[draw % 4]].name;
	uint64_t kill_after = draw % 2 == 0 ? random_below(&dice, 5000) * UINT64_C(1000) + 1 : 0;

	switch (draw / 8 % 7) {
	case 0:
		operate((const char *const[]){"force", name, "open", "--for", "40ms", "--why", "storm", NULL}, kill_after);
		break;
	case 1:
		operate((const char *const[]){"force", name, "closed", "--for", "60ms", "--why", "storm", NULL}, kill_after);
		break;
	case 2:
		operate((const char *const[]){"force", name, "disabled", "--for", "60ms", "--why", "storm", NULL}, kill_after);
		break;
	case 3:
		operate((const char *const[]){"release", name, NULL}, kill_after);
		break;
	case 4:
		operate((const char *const[]){"reset", name, "--why", "storm", NULL}, kill_after);
		break;
	case 5:
		operate((const char *const[]){"doctor", NULL}, kill_after);
		break;
	default:
		operate((const char *const[]){"snapshot", NULL}, kill_after);
	}
}

/* Nobody is in a former segment any more. */
static bool all_have_followed(void)
{
	const struct map *map = current_segment();

	for (uint32_t i = 0; map != NULL && i < 2 * storm.workers; i++) {
		const struct actor *a = &storm.shared->actors[i];
		uint32_t phase = atomic_load_explicit(&a->phase, memory_order_seq_cst) & 0xff;
		if (phase >= ACTOR_RUNNING && atomic_load_explicit(&a->segment, memory_order_seq_cst) != map->generation)
			return false;
	}
	return map != NULL;
}

/*
 * A segment whose name was removed is known to the rescd of that moment, and after that to nobody. What is still to come from there when it
 * is killed comes late or never: two faults at once, see daemon/succession.c. This storm is about one at a time.
 */
static bool depends_on_this_rescd(void)
{
	static uint64_t removals;
	const struct map *map = removals == report.removals ? NULL : current_segment();

	if (map != NULL && all_have_followed() && !accounts_owed(map))
		removals = report.removals;
	return removals != report.removals;
}

static void hit_rescd(uint32_t draw)
{
	uint64_t length = (uint64_t)random_below(&dice, 300) * MS;

	if (depends_on_this_rescd())
		return;
	switch (draw % 4) {
	case 0:
	case 1:
		happened("kill rescd, down for %llu ms", (unsigned long long)(length / MS));
		end_rescd(SIGKILL);
		host.down_until_ns = now_ns() + length;
		break;
	case 2:
		stop_rescd_for(length);
		break;
	default:
		happened("terminate rescd, down for %llu ms", (unsigned long long)(length / MS));
		end_rescd(SIGTERM);
		host.down_until_ns = now_ns() + length;
	}
}

static bool name_is_there(void)
{
	char path[MAP_PATH_SIZE];

	map_path(path, storm.instance, 0);
	return access(path, F_OK) == 0;
}

bool rescd_is_ready(void)
{
	return host_is_ready(&host);
}

/* Somebody removes the name of the segment, and rescd puts it back. One fault at a time here too: rescd lives until then, and no worker is
 * still in the segment before, which would find no name where it looks for the next. */
static void remove_segment(void)
{
	char path[MAP_PATH_SIZE];

	if (host.rescd <= 0 || host.stopped || rescd_is_ending() || !rescd_is_ready())
		return;
	wait_for(all_have_followed, "all workers are in the current segment");
	happened("remove the segment");
	map_path(path, storm.instance, 0);
	unlink(path);
	report.removals++;
	wait_for(name_is_there, "a removed segment is put back");
	wait_for(rescd_is_ready, "rescd serves it");
	happened("it is back");
}

static void change_health(void)
{
	static const uint32_t failing[] = {0, 10000, 50000, 600000, 1000000};
	uint32_t r = random_below(&dice, RESOURCES);

	atomic_store_explicit(&storm.shared->failing_ppm[r], failing[random_below(&dice, 5)], memory_order_relaxed);
}

void disaster(void)
{
	uint32_t kind = random_below(&dice, 1000);
	uint32_t draw = random_below(&dice, 1u << 20);

	if (kind < 730)
		hit_workers(draw);
	else if (kind < 780)
		kill_child(draw % storm.workers);
	else if (kind < 830)
		stop_worker(draw);
	else if (kind < 865)
		reload(draw);
	else if (kind < 900)
		an_operator(draw);
	else if (kind < 925)
		hit_rescd(draw);
	else if (kind < 929)
		remove_segment();
	else
		change_health();
}

/* Tables that do not fit any more: a new segment. */
void grow(void)
{
	host.grown++;
	host_configure(&host);
	report.growths++;
	host_hang_up(&host);
	happened("larger tables: %u", host.grown);
}
