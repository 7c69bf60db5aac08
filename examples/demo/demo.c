/* SPDX-License-Identifier: MIT */
/*
 * make demo: why one view.
 *
 * Eight prefork workers serve requests, each of which needs a price from a dependency over TCP. The dependency hangs, then answers with
 * errors, then is well again. The story is told twice, with the same requests: each worker on its own view, and all on the shared one.
 * At the end there is one table. The exit code is 0 only if the shared view was better.
 */
#include <argp.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "child.h"
#include "run.h"

struct options {
	const char *dependency;
	const char *json;
	bool quick;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	switch (key) {
	case 'd':
		options->dependency = arg;
		if (dependency_kind(arg) == NULL)
			argp_error(state, "there is no dependency \"%s\"; there are: server, redis", arg);
		return 0;
	case 'j':
		options->json = arg;
		return 0;
	case 'q':
		options->quick = true;
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

static const struct argp_option argp_options[] = {
        {"dependency", 'd', "KIND", 0, "server: a small server of the demo's own (default); redis: a real redis-server", 0},
        {"json", 'j', "FILE", 0, "Write the figures to FILE as well", 0},
        {"quick", 'q', 0, 0, "The same story in half the time", 0},
        {0},
};

static const struct argp argp = {
        .options = argp_options,
        .parser = parse,
        .doc = "Eight workers, a dependency that fails, and one shared view that stops them together."
               "\vExit codes: 0 the shared view was better; 1 it was not, or something went wrong (it is said); 2 usage.",
};

static struct timeline timeline(bool quick)
{
	const int64_t half = quick ? 500000000 : 1000000000;
	return (struct timeline){2 * half, 6 * half, 9 * half, 13 * half};
}

/* ---- the table ---- */

static void row(const char *what, const char *own, const char *shared)
{
	printf("  %-58s %14s %14s\n", what, own, shared);
}

static void row_count(const char *what, unsigned own, unsigned shared)
{
	char a[16], b[16];
	snprintf(a, sizeof(a), "%u", own);
	snprintf(b, sizeof(b), "%u", shared);
	row(what, a, b);
}

static void recovery_text(int64_t ns, char text[32])
{
	if (ns < 0)
		snprintf(text, 32, "never");
	else
		snprintf(text, 32, "%.2f s", (double)ns / 1e9);
}

static void print_table(const struct figures *own, const struct figures *shared)
{
	char a[32], b[32];

	printf("\n");
	row("", "own view each", "shared view");
	row_count("failing calls before the last worker stopped", own->failing_before_stop, shared->failing_before_stop);
	row_count("failing calls in all", own->failing, shared->failing);
	row_count("probes sent while the dependency failed", own->probes, shared->probes);
	snprintf(a, sizeof(a), "%.2f", own->attempts_worst);
	snprintf(b, sizeof(b), "%.2f", shared->attempts_worst);
	row("attempts per request that was let through, at worst", a, b);
	row_count("requests served with a fresh price", own->live, shared->live);
	row_count("requests served with the last known price", own->stale, shared->stale);
	row_count("requests whose client gave up", own->late, shared->late);
	recovery_text(own->recovered_ns, a);
	recovery_text(shared->recovered_ns, b);
	row("time until the last worker served fresh prices again", a, b);
	printf("\n"
	       "  With a view each, every worker must be hurt before it stops, and each asks by itself whether the dependency is back.\n"
	       "  With one shared view the host learns once, stops at once, and sends one probe for all.\n\n");
}

static json_t *figures_json(const struct figures *f)
{
	return json_pack("{s:i, s:i, s:i, s:f, s:i, s:i, s:i, s:f}", "failing_before_stop", (int)f->failing_before_stop, "failing",
	                 (int)f->failing, "probes", (int)f->probes, "attempts_worst", f->attempts_worst, "live", (int)f->live, "stale",
	                 (int)f->stale, "late", (int)f->late, "recovered_s", f->recovered_ns < 0 ? -1.0 : (double)f->recovered_ns / 1e9);
}

static int write_json(const char *path, const struct figures *own, const struct figures *shared)
{
	json_t *document = json_pack("{s:o, s:o}", "own", figures_json(own), "shared", figures_json(shared));
	int r = document == NULL ? -1 : json_dump_file(document, path, JSON_INDENT(2));
	json_decref(document);
	if (r != 0)
		fprintf(stderr, "demo: cannot write %s: %s\n", path, strerror(errno));
	return r;
}

/* ---- the whole ---- */

static int find_rescd(char path[PATH_MAX])
{
	ssize_t n = readlink("/proc/self/exe", path, PATH_MAX - 8);
	if (n <= 0)
		return -errno;
	path[n] = '\0';
	memcpy(strrchr(path, '/') + 1, "rescd", sizeof("rescd"));
	if (access(path, X_OK) == 0)
		return 0;
	fprintf(stderr, "demo: there is no %s; run make first\n", path);
	return -ENOENT;
}

static int tell_twice(const struct story *story, struct figures *own, struct figures *shared)
{
	printf("Eight workers ask %s for prices. It will hang, then answer with errors, then be well.\n"
	       "Breakers: . closed, O open, h half-open. Counts are for each half second; failing is the total.\n\n"
	       "1. Each worker on its own view\n",
	       story->kind->what);
	int r = run_story(story, VIEW_OWN, own);
	if (r != 0)
		return r;
	printf("\n2. All workers on the shared view\n");
	return run_story(story, VIEW_SHARED, shared);
}

static int verdict(const struct figures *own, const struct figures *shared)
{
	if (shared->failing_before_stop < own->failing_before_stop && shared->probes < own->probes && shared->recovered_ns >= 0)
		return 0;
	fprintf(stderr, "demo: the shared view was not better; that should not be\n");
	return 1;
}

int main(int argc, char **argv)
{
	struct options options = {.dependency = "server"};
	struct figures own, shared;
	char rescd[PATH_MAX];
	char dir[] = "/tmp/resc-demo-XXXXXX";

	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &options);
	if (find_rescd(rescd) != 0)
		return 1;
	if (mkdtemp(dir) == NULL) {
		fprintf(stderr, "demo: cannot make a directory in /tmp: %s\n", strerror(errno));
		return 1;
	}
	child_block_signals();
	struct story story = {rescd, dir, dependency_kind(options.dependency), timeline(options.quick), 1};
	int r = tell_twice(&story, &own, &shared);
	char log[64];
	snprintf(log, sizeof(log), "%s/redis.log", dir);
	unlink(log);
	if (rmdir(dir) != 0)
		fprintf(stderr, "demo: cannot remove %s: %s\n", dir, strerror(errno));
	if (r > 0)
		fprintf(stderr, "demo: stopped by %s\n", strsignal(r));
	if (r != 0)
		return 1;
	print_table(&own, &shared);
	if (fflush(stdout) != 0 || ferror(stdout)) {
		fprintf(stderr, "demo: cannot write the table: %s\n", strerror(errno));
		return 1;
	}
	if (options.json != NULL && write_json(options.json, &own, &shared) != 0)
		return 1;
	return verdict(&own, &shared);
}
