/* SPDX-License-Identifier: MIT */
/*
 * rescd: keeps the segment of an instance.
 *
 * Why this exists: workers need nobody on their call path, but somebody has to make the segment, put the policies of the configuration
 * into it, take back what the dead held before anybody misses it, and show the host's view to people. That is all; a host whose rescd
 * is dead goes on as it was.
 *
 * What it guarantees: it stays in the foreground, says one line a fact, and leaves the segment in place when it is stopped or killed: the
 * next one goes on with it. A configuration that cannot be used never replaces one that is.
 *
 * With --ephemeral the instance is its parent's: a test, a prefork master, a laboratory. Nothing tells a process more surely that its
 * parent is gone, SIGKILL included, than the end of a pipe that nobody else holds. So that is what ends it, and what it made goes with it.
 *
 * Exit codes: 0 stopped by a signal, or its parent is gone; 1 cannot start, or cannot go on; 2 usage.
 */
#include <argp.h>
#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apply.h"
#include "config.h"
#include "control.h"
#include "error.h"
#include "event.h"
#include "failpoint.h"
#include "instance.h"
#include "log.h"
#include "loop.h"
#include "made.h"
#include "metrics.h"
#include "notify.h"
#include "start_over.h"
#include "states.h"

#define DEFAULT_CONFIG "/etc/resc/resc.json"
#define TICK_MS        1000u
#define QUESTIONS_MS   20u
#define DEBTS_MS       10u

struct options {
	const char *config;
	const char *instance;
	const char *control;
	const char *metrics;
	bool ephemeral;
	bool verbose;
};

struct rescd {
	struct options options;
	struct config config;
	struct loop loop;
	struct watch signals;
	struct watch parent; /* standard input, with --ephemeral */
	struct timer tick;
	struct timer watchdog;
	struct timer questions; /* to look for them, where inotify does not say that there are some */
	struct timer debts;     /* of a successor: not for each death, because workers often die together */
	struct instance instance;
	struct made made;
	struct control control;
	struct metrics metrics[2]; /* one serves; the other is for a change of the address */
	unsigned serving;
	int signal; /* that stopped it */
};

/* ---- options ---- */

static const char doc[] = "Keeps the shared view that the workers of this host have of their dependencies.\v"
                          "rescd makes the segment /dev/shm/resc.INSTANCE from the configuration, or goes on with the one that is there, "
                          "takes back what dead "
                          "workers held, serves the metrics page, and stays in the foreground. It may be stopped and started at any time: "
                          "workers do not need "
                          "it, and their breakers, permits and budgets stay as they are.\n"
                          "\n"
                          "SIGHUP loads the configuration again; 'resctl reload' does the same and says what came of it. SIGTERM and "
                          "SIGINT stop it and leave "
                          "the segment in place.\n"
                          "\n"
                          "With --ephemeral the instance lives as long as this process and whoever holds the other end of the pipe (or "
                          "socket) that is its standard input: at the end of that, as by SIGTERM, it stops and removes the segment. A "
                          "segment that is there already is refused.\n"
                          "\n"
                          "Examples:\n"
                          "  rescd --config resc.json\n"
                          "  rescd --config resc.json --instance staging --metrics 127.0.0.1:0 --verbose\n"
                          "\n"
                          "'resctl check FILE' says whether a configuration is good without touching anything.\n"
                          "Exit codes: 0 stopped by a signal or the end of standard input, 1 cannot start, 2 usage.";

static const struct argp_option options[] = {
        {"config", 'c', "FILE", 0, "Configuration (default " DEFAULT_CONFIG ")", 0},
        {"instance", 'i', "NAME", 0, "Instance, instead of the configuration's", 0},
        {"control", 's', "PATH", 0, "Control socket (default: below /run/resc, $XDG_RUNTIME_DIR/resc or /tmp/resc-UID)", 0},
        {"metrics", 'm', "HOST:PORT", 0, "Address of the metrics page, instead of the configuration's; port 0: any; empty: none", 0},
        {"ephemeral", 'e', NULL, 0, "Live as long as standard input, a pipe that the parent holds; then remove the segment", 0},
        {"verbose", 'v', NULL, 0, "Say more", 0},
        {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *chosen = state->input;
	struct resc_error err;

	switch (key) {
	case 'c':
		chosen->config = arg;
		return 0;
	case 'i':
		if (name_check(arg, &err) < 0)
			argp_error(state, "--instance: %s", err.text);
		chosen->instance = arg;
		return 0;
	case 's':
		chosen->control = arg;
		return 0;
	case 'm':
		chosen->metrics = arg;
		return 0;
	case 'e':
		chosen->ephemeral = true;
		return 0;
	case 'v':
		chosen->verbose = true;
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is not an option; the configuration is given with --config FILE", arg);
		return 0;
	default:
		return ARGP_ERR_UNKNOWN;
	}
}

/* ---- configuration ---- */

static const char *metrics_wish(const struct rescd *d, const struct config *config)
{
	return d->options.metrics ? d->options.metrics : config->metrics;
}

static void log_problems(const struct config_problems *problems, const char *file)
{
	char line[CONFIG_LINE_SIZE];

	for (size_t i = 0; i < problems->count; i++) {
		config_problem_line(&problems->items[i], file, line, sizeof(line));
		log_line("%s", line);
	}
}

static json_t *problem_json(const char *path, int line, int column, const char *text)
{
	return json_pack("{s:s, s:i, s:i, s:s}", "path", path, "line", line, "column", column, "text", text);
}

static json_t *failure(json_t *problems)
{
	return json_pack("{s:b, s:o}", "ok", 0, "problems", problems);
}

static json_t *problems_json(const struct config_problems *problems, bool warnings)
{
	json_t *array = json_array();

	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];

		if (p->warning == warnings)
			json_array_append_new(array, problem_json(p->path, p->line, p->column, p->text));
	}
	return array;
}

/* What the segment shows of a failed reload: the first problem, and how many there are. */
static void note_failure(struct rescd *d, const json_t *problems)
{
	const json_t *first = json_array_get(problems, 0);
	const char *path = json_string_value(json_object_get(first, "path"));
	int line = (int)json_integer_value(json_object_get(first, "line"));
	char text[RELOAD_TEXT_SIZE], where[48] = "", more[32] = "";

	if (line > 0)
		snprintf(where, sizeof(where), "%d:%d:", line, (int)json_integer_value(json_object_get(first, "column")));
	if (json_array_size(problems) > 1)
		snprintf(more, sizeof(more), " (and %zu more)", json_array_size(problems) - 1);
	snprintf(text, sizeof(text), "%.300s:%s %.200s%s%.400s%s", d->options.config, where, path ? path : "", path && path[0] ? ": " : "",
	         json_string_value(json_object_get(first, "text")), more);
	instance_loaded(&d->instance, text);
	log_line("not loaded, the configuration before stays in force: %s", text);
}

/* ---- reload ---- */

static json_t *cannot_change(const char *key)
{
	return problem_json(key, 0, 0, "cannot change while rescd runs: restart it");
}

/* What a running rescd cannot follow. NULL: nothing. */
static json_t *frozen_keys(const struct rescd *d, const struct config *config)
{
	json_t *problems = json_array();

	if (!d->options.instance && strcmp(config->instance, d->instance.name) != 0)
		json_array_append_new(problems, cannot_change("instance"));
	if (!d->options.control && strcmp(config->control, d->config.control) != 0)
		json_array_append_new(problems, cannot_change("control"));
	if (json_array_size(problems) > 0)
		return problems;
	json_decref(problems);
	return NULL;
}

/* Listens at another address, if it is one; nobody is answered there before commit_metrics. */
static int prepare_metrics(struct rescd *d, const char *wish, struct resc_error *err)
{
	return strcmp(d->metrics[d->serving].address, wish) == 0
	               ? 0
	               : metrics_open(&d->metrics[!d->serving], &d->loop, &d->instance.map, wish, err);
}

static void commit_metrics(struct rescd *d, const char *wish)
{
	if (strcmp(d->metrics[d->serving].address, wish) == 0)
		return;
	metrics_close(&d->metrics[d->serving]);
	d->serving = !d->serving;
	log_line("metrics are served at '%s' now", wish);
}

/* What can fail comes first, so that a reload is done as a whole or not at all. */
static json_t *apply_loaded(struct rescd *d, const struct config *config)
{
	json_t *report = json_pack("{s:b}", "ok", 1);
	const char *wish = metrics_wish(d, config);
	struct resc_error err = {0};
	int r = prepare_metrics(d, wish, &err);

	if (r == 0)
		r = apply_config(&d->instance, config, report, &err);
	if (r == 0) {
		commit_metrics(d, wish);
		return report;
	}
	metrics_close(&d->metrics[!d->serving]);
	json_decref(report);
	return failure(json_pack("[o]", problem_json("", 0, 0, err.text)));
}

static void take_over(struct rescd *d, struct config *config, const json_t *report)
{
	char text[128];

	snprintf(text, sizeof(text), "%zu changed, %zu added, %zu removed", json_array_size(json_object_get(report, "changed")),
	         json_array_size(json_object_get(report, "added")), json_array_size(json_object_get(report, "removed")));
	config_free(&d->config);
	d->config = *config;
	instance_set_access(&d->instance, d->config.gid, d->config.mode);
	control_group(&d->control, d->config.gid);
	instance_loaded(&d->instance, NULL);
	log_line("loaded %s: %s", d->options.config, text);
}

static json_t *load_and_apply(struct rescd *d)
{
	struct config_problems problems = {0};
	struct config config = {0};
	int r = config_load(d->options.config, &config, &problems);
	json_t *answer, *frozen;

	log_problems(&problems, d->options.config);
	if (r < 0) {
		answer = failure(problems_json(&problems, false));
	} else {
		frozen = frozen_keys(d, &config);
		answer = frozen ? failure(frozen) : apply_loaded(d, &config);
	}
	json_object_set_new(answer, "warnings", problems_json(&problems, true));
	config_problems_free(&problems);
	if (json_is_true(json_object_get(answer, "ok")))
		take_over(d, &config, answer);
	else
		config_free(&config);
	return answer;
}

static json_t *reload(struct rescd *d)
{
	json_t *answer;

	notify_reloading();
	answer = load_and_apply(d);
	if (!json_is_true(json_object_get(answer, "ok")))
		note_failure(d, json_object_get(answer, "problems"));
	malloc_trim(0);
	notify_send("READY=1");
	return answer;
}

static json_t *command(void *arg, const char *name)
{
	struct rescd *d = arg;
	char generation[17];

	if (strcmp(name, "reload") == 0)
		return reload(d);
	if (strcmp(name, "ping") != 0)
		return NULL;
	snprintf(generation, sizeof(generation), "%016" PRIx64, d->instance.map.generation);
	return json_pack("{s:b, s:i, s:s, s:s, s:s}", "ok", 1, "pid", (int)getpid(), "instance", d->instance.name, "generation", generation,
	                 "version", RESC_VERSION_STRING);
}

/* ---- turning ---- */

static void tick(void *arg)
{
	struct rescd *d = arg;

	start_over_if_damaged();
	instance_tick(&d->instance);
	reaper_tick(&d->instance.reaper);
	made_tick(&d->made);
	states_tick(&d->instance.map);
	metrics_tick(&d->metrics[d->serving]);
	if (!reaper_is_told(&d->instance.reaper))
		timer_arm(&d->questions, QUESTIONS_MS, 0);
}

static void permits_freed(void *arg)
{
	struct rescd *d = arg;

	timer_arm(&d->debts, DEBTS_MS, 0);
}

static void pay_debts(void *arg)
{
	struct rescd *d = arg;

	succession_debts(&d->instance.succession, &d->instance.map);
}

static void renamed(void *arg)
{
	struct rescd *d = arg;

	instance_check_name(&d->instance);
}

static void asked(void *arg)
{
	struct rescd *d = arg;

	made_answer(&d->made);
}

static void look_for_questions(void *arg)
{
	struct rescd *d = arg;

	made_answer(&d->made);
	if (d->config.pattern_count > 0 && !reaper_is_told(&d->instance.reaper))
		timer_arm(&d->questions, QUESTIONS_MS, 0);
}

static void watchdog(void *arg)
{
	(void)arg;
	notify_send("WATCHDOG=1");
}

static const char *end_name(const struct rescd *d)
{
	if (d->signal != 0)
		return d->signal == SIGTERM ? "SIGTERM" : "SIGINT";
	return d->loop.stopped ? "the end of standard input" : "no signal";
}

static void signal_ready(void *arg, uint32_t events)
{
	struct rescd *d = arg;
	struct signalfd_siginfo info;

	(void)events;
	if (read(d->signals.fd, &info, sizeof(info)) != sizeof(info))
		return;
	if (info.ssi_signo == SIGHUP) {
		json_decref(reload(d));
		return;
	}
	d->signal = (int)info.ssi_signo;
	loop_stop(&d->loop);
}

static sigset_t awaited_signals(void)
{
	sigset_t set;

	sigemptyset(&set);
	sigaddset(&set, SIGHUP);
	sigaddset(&set, SIGTERM);
	sigaddset(&set, SIGINT);
	return set;
}

/* The first thing of all: whoever has written a new configuration does not know whether we have started already, and his SIGHUP must not be
 * our end. What comes before we listen is done then. */
static void block_signals(void)
{
	const sigset_t set = awaited_signals();

	sigprocmask(SIG_BLOCK, &set, NULL);
	signal(SIGPIPE, SIG_IGN);
	/* A file that may not grow so far is an error, which is told with its size. */
	signal(SIGXFSZ, SIG_IGN);
}

static int watch_signals(struct rescd *d)
{
	const sigset_t set = awaited_signals();
	int fd, r;

	d->signals = (struct watch){.fd = -1, .ready = signal_ready, .arg = d};
	fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
	if (fd < 0)
		return -errno;
	r = loop_add(&d->loop, &d->signals, fd, EPOLLIN);
	if (r < 0)
		close(fd);
	return r;
}

/* ---- the parent ---- */

static void parent_gone(void *arg, uint32_t events)
{
	struct rescd *d = arg;

	(void)events;
	loop_stop(&d->loop);
}

/* Where an end comes when the other side is gone. A terminal, a file or /dev/null never ends, or has ended already. */
static bool has_other_end(int fd)
{
	struct stat st;
	int type = 0;
	socklen_t size = sizeof(type);

	if (fstat(fd, &st) < 0)
		return false;
	if (S_ISSOCK(st.st_mode))
		return getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &size) == 0 && type != SOCK_DGRAM;
	return S_ISFIFO(st.st_mode);
}

/* Nothing is read: an end shows behind whatever was written. */
static int watch_parent(struct rescd *d, struct resc_error *err)
{
	int r;

	if (!has_other_end(STDIN_FILENO))
		return error_set(
		        err, -EINVAL,
		        "--ephemeral ends with standard input, which must be a pipe or a stream socket whose other end the parent holds");
	d->parent = (struct watch){.fd = -1, .ready = parent_gone, .arg = d};
	r = loop_add(&d->loop, &d->parent, STDIN_FILENO, EPOLLRDHUP);
	return r < 0 ? error_set(err, r, "cannot watch standard input: %s", strerror(-r)) : 0;
}

/* ---- starting and stopping ---- */

static int load_first(struct rescd *d)
{
	struct config_problems problems = {0};
	int r = config_load(d->options.config, &d->config, &problems);

	log_problems(&problems, d->options.config);
	if (r < 0)
		log_line("cannot start: the configuration cannot be used");
	config_problems_free(&problems);
	return r;
}

static int start_loop(struct rescd *d, struct resc_error *err)
{
	uint64_t watchdog_ms = notify_watchdog_ms();
	int r = loop_open(&d->loop);

	d->tick = (struct timer){.watch.fd = -1, .due = tick, .arg = d};
	d->watchdog = (struct timer){.watch.fd = -1, .due = watchdog, .arg = d};
	d->questions = (struct timer){.watch.fd = -1, .due = look_for_questions, .arg = d};
	d->debts = (struct timer){.watch.fd = -1, .due = pay_debts, .arg = d};
	if (r == 0)
		r = watch_signals(d);
	if (r == 0)
		r = timer_open(&d->tick, &d->loop);
	if (r == 0)
		r = timer_open(&d->watchdog, &d->loop);
	if (r == 0)
		r = timer_open(&d->questions, &d->loop);
	if (r == 0)
		r = timer_open(&d->debts, &d->loop);
	if (r < 0)
		return error_set(err, r, "no event loop: %s", strerror(-r));
	timer_arm(&d->tick, TICK_MS, TICK_MS);
	if (watchdog_ms > 0)
		timer_arm(&d->watchdog, watchdog_ms, watchdog_ms);
	return d->options.ephemeral ? watch_parent(d, err) : 0;
}

/* A segment that was there before follows the configuration, as by a reload. */
static int start_instance(struct rescd *d, struct resc_error *err)
{
	struct instance *instance = &d->instance;
	struct instance_plan plan = {apply_dims(&d->config), apply_fresh, &d->config};
	json_t *report;
	int r;

	snprintf(instance->name, sizeof(instance->name), "%s", d->options.instance ? d->options.instance : d->config.instance);
	instance->group = d->config.gid;
	instance->mode = d->config.mode;
	instance->ephemeral = d->options.ephemeral;
	r = instance_open(instance, &d->loop, &plan, err);
	if (r < 0)
		return r;
	d->made = (struct made){.instance = instance, .config = &d->config};
	instance->reaper.renamed = renamed;
	instance->reaper.used = asked;
	instance->reaper.freed = permits_freed;
	instance->reaper.arg = d;
	report = json_object();
	r = apply_config(instance, &d->config, report, err);
	json_decref(report);
	/* The workers have their policies, and need their reaper: that a change cannot be made now is no reason not to serve. */
	instance_loaded(instance, r < 0 ? err->text : NULL);
	if (r < 0)
		log_line("the segment keeps the policies that it has: %s", err->text);
	return 0;
}

static int start_services(struct rescd *d, struct resc_error *err)
{
	char path[CONTROL_PATH];
	const char *wish = d->options.control ? d->options.control : d->config.control;
	int r = control_path(path, wish, d->instance.name, err);

	d->control.command = command;
	d->control.arg = d;
	d->metrics[0].refused = d->metrics[1].refused = &d->control.refused;
	if (r == 0)
		r = control_open(&d->control, &d->loop, path, d->config.gid, err);
	if (r < 0)
		return r;
	instance_set_control(&d->instance, path);
	log_line("commands are taken at %s", path);
	r = metrics_open(&d->metrics[d->serving], &d->loop, &d->instance.map, metrics_wish(d, &d->config), err);
	if (r == 0 && d->metrics[d->serving].http)
		log_line("metrics are served at '%s', port %u", metrics_wish(d, &d->config), metrics_port(&d->metrics[d->serving]));
	return r;
}

static void write_event(struct rescd *d, enum event_kind kind, const char *text)
{
	struct event event = {.kind = kind};

	snprintf(event.text, sizeof(event.text), "%s", text);
	event_write(&d->instance.map, 0, &event);
}

static int start(struct rescd *d, struct resc_error *err)
{
	int r = start_loop(d, err);

	if (r == 0)
		r = start_instance(d, err);
	if (r == 0)
		r = start_services(d, err);
	if (r < 0)
		return r;
	write_event(d, EVENT_DAEMON_START, "rescd " RESC_VERSION_STRING);
	/* A rescd before may have died in the middle of an answer. */
	made_answer(&d->made);
	log_line("serving instance '%s': %zu resource%s, %zu pattern%s", d->instance.name, d->config.count, d->config.count == 1 ? "" : "s",
	         d->config.pattern_count, d->config.pattern_count == 1 ? "" : "s");
	malloc_trim(0);
	notify_send("READY=1");
	return 0;
}

static void stop(struct rescd *d, bool failed)
{
	if (d->instance.map.base && !failed) {
		write_event(d, EVENT_DAEMON_STOP, end_name(d));
		instance_set_control(&d->instance, "");
	}
	metrics_close(&d->metrics[d->serving]);
	if (d->control.loop)
		control_close(&d->control);
	if (d->instance.path[0])
		instance_close(&d->instance, failed);
	made_free(&d->made);
	timer_close(&d->tick, &d->loop);
	timer_close(&d->watchdog, &d->loop);
	timer_close(&d->questions, &d->loop);
	timer_close(&d->debts, &d->loop);
	loop_remove(&d->loop, &d->signals);
	loop_remove(&d->loop, &d->parent);
	loop_close(&d->loop);
	config_free(&d->config);
}

/* A pidfd for each worker, and room for the rest. */
static void raise_limits(void)
{
	struct rlimit files;

	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max;
		setrlimit(RLIMIT_NOFILE, &files);
	}
	/* One thread, small objects, and one large page now and then that shall go back to the system at once. */
	mallopt(M_ARENA_MAX, 1);
	mallopt(M_MMAP_THRESHOLD, 128 * 1024);
	mallopt(M_TRIM_THRESHOLD, 128 * 1024);
}

static int serve(struct rescd *d)
{
	struct resc_error err = {0};
	int r = start(d, &err);

	if (r < 0) {
		log_line("cannot start: %s", err.text[0] ? err.text : strerror(-r));
		stop(d, true);
		return 1;
	}
	r = loop_run(&d->loop);
	notify_send("STOPPING=1");
	if (r < 0)
		log_line("cannot go on: %s", strerror(-r));
	else
		log_line("stopped by %s; the segment %s", end_name(d), d->options.ephemeral ? "is removed" : "stays in place");
	stop(d, false);
	return r < 0 ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct rescd context = {.options = {.config = DEFAULT_CONFIG}, .loop = {.epoll = -1}, .signals = {.fd = -1}, .parent = {.fd = -1}};
	const struct argp argp = {options, parse_option, NULL, doc, NULL, NULL, NULL};

	/* Assigned: a definition of ours would be hidden from argp, by -fvisibility. */
	argp_program_version = "rescd " RESC_VERSION_STRING;
	block_signals();
	argp_err_exit_status = 2;
	argp_parse(&argp, argc, argv, 0, NULL, &context.options);
	log_setup(context.options.verbose);
	raise_limits();
	start_over_prepare(argv, &context.instance);
	FAILPOINT("start.loading");
	if (load_first(&context) < 0)
		return 1;
	return serve(&context);
}
