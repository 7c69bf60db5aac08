/* SPDX-License-Identifier: MIT */
/*
 * resctl reload: the one command that needs rescd alive. It comes back with what rescd made of the file: what changed, or everything that
 * is wrong with it; a bad file changes nothing.
 */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "control_client.h"
#include "resctl.h"
#include "why.h"

#define TIMEOUT_MS 10000

static const char doc[] =
        "Lets rescd read its configuration again, and says what came of it: what changed, or all that is wrong with the file. A bad file "
        "changes nothing."
        "\v"
        "Every state, window and permit stays. Exit code 1 when the file is bad, 3 when rescd does not run.\n"
        "\n"
        "Examples:\n"
        "  resctl check /etc/resc/resc.json && resctl reload\n"
        "  resctl reload --json | jq -r '.changed[]'";

/* ---- answers ---- */

static void print_names(const struct screen *screen, const char *label, const json_t *names)
{
	char text[1024];
	size_t used = 0, i;
	const json_t *name;

	if (json_array_size(names) == 0)
		return;
	text[0] = '\0';
	json_array_foreach(names, i, name)
	{
		const char *s = json_string_value(name);
		if (s == NULL)
			continue;
		if (used + strlen(s) + 24 > sizeof(text)) {
			snprintf(text + used, sizeof(text) - used, " and %zu more", json_array_size(names) - i);
			break;
		}
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%s%s", used > 0 ? ", " : "", s);
	}
	print_field(screen, label, STYLE_PLAIN, "%s", text);
}

static void print_changes(const struct resctl *ctl, const json_t *answer)
{
	static const char *const keys[] = {"changed", "added", "removed"};
	size_t sum = 0;

	for (size_t i = 0; i < 3; i++)
		sum += json_array_size(json_object_get(answer, keys[i]));
	puts(sum > 0 ? "reloaded:" : "reloaded: no resource has changed");
	for (size_t i = 0; i < 3; i++)
		print_names(&ctl->screen, keys[i], json_object_get(answer, keys[i]));
	if (json_is_true(json_object_get(answer, "replaced")))
		print_field(&ctl->screen, "segment", STYLE_PLAIN, "replaced by a larger one; the workers follow at their next call");
}

/* On stderr, with a label before each; warnings come with success too. */
static void print_problems(const json_t *problems, const char *label)
{
	const json_t *problem;
	size_t i;

	json_array_foreach(problems, i, problem)
	{
		const char *path = json_string_value(json_object_get(problem, "path")),
		           *text = json_string_value(json_object_get(problem, "text"));
		int line = (int)json_integer_value(json_object_get(problem, "line")),
		    column = (int)json_integer_value(json_object_get(problem, "column"));
		char place[64] = "";

		if (line > 0)
			snprintf(place, sizeof(place), "line %d, column %d: ", line, column);
		complain("%s%s%s%s%s", label, place, path != NULL ? path : "", path != NULL && path[0] != '\0' ? ": " : "",
		         text != NULL ? text : "?");
	}
}

static int report(const struct resctl *ctl, json_t *answer)
{
	bool ok = json_is_true(json_object_get(answer, "ok"));

	if (ctl->json) {
		int r = print_json(ctl, answer);
		return r != EXIT_DONE ? r : ok ? EXIT_DONE : EXIT_NOT_SO;
	}
	if (ok)
		print_changes(ctl, answer);
	print_problems(json_object_get(answer, "problems"), "");
	print_problems(json_object_get(answer, "warnings"), "warning: ");
	if (!ok)
		complain("the configuration was not loaded; the one before stays in force");
	json_decref(answer);
	return ok ? EXIT_DONE : EXIT_NOT_SO;
}

/* ---- reaching rescd ---- */

static int explain(const struct resctl *ctl, int code, const struct resc_error *err)
{
	struct inspect_daemon daemon;

	complain("%s", err->text);
	if (code == -ETIMEDOUT) {
		inspect_daemon(&ctl->map, &daemon);
		complain("%s; the reload may still happen when it goes on", daemon_words(&daemon).s);
	}
	if (code == -EACCES)
		complain("root, the user of rescd and members of the configured group may reload");
	return EXIT_NO_SEGMENT;
}

static uid_t segment_owner(const struct resctl *ctl)
{
	struct stat st;

	return fstat(ctl->map.fd, &st) == 0 ? st.st_uid : 0;
}

/* A stopped rescd must not look like a resctl that hangs. */
static void say_that_we_wait(int number)
{
	_Static_assert(TIMEOUT_MS == 10000, "as the text says");
	static const char text[] = "resctl: rescd has not answered yet; waiting up to 10 s\n";
	const int interrupted = errno;
	ssize_t written = write(STDERR_FILENO, text, sizeof(text) - 1);

	/* Whoever cannot read it gets the answer all the same. */
	(void)written;
	(void)number;
	errno = interrupted;
}

static int reload(const struct resctl *ctl)
{
	struct resc_error err = {0, ""};
	struct inspect_daemon daemon;
	json_t *answer = NULL;

	inspect_daemon(&ctl->map, &daemon);
	if (!daemon.alive) {
		complain("%s", daemon_words(&daemon).s);
		complain("start it (systemctl start rescd, or rescd --config FILE): it reads the configuration when it starts");
		return EXIT_NO_SEGMENT;
	}
	signal(SIGALRM, say_that_we_wait);
	alarm(1);
	int r = control_request(daemon.control, segment_owner(ctl), "reload", TIMEOUT_MS, &answer, &err);
	alarm(0);
	return r < 0 ? explain(ctl, r, &err) : report(ctl, answer);
}

int cmd_reload(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {NULL, parse_nothing, NULL, doc, NULL, NULL, NULL};

	command_parse(ctl, &argp, argc, argv, NULL);
	int r = attach(ctl, MAP_READER);
	return r != 0 ? r : reload(ctl);
}
