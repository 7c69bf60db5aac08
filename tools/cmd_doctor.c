/* SPDX-License-Identifier: MIT */
/*
 * resctl doctor: is the segment right? What is checked, and why a finding is one, stands in doctor.c and the files beside it; here are the
 * command line and the answer.
 *
 * Without --fix the segment is mapped read-only, so whoever may look may ask. With it, it is mapped as a worker maps it: what only rescd
 * writes cannot be touched by mistake either. A segment that was superseded during the examination is none that anybody uses: then the
 * examination starts again on its successor.
 */
#include <inttypes.h>
#include <string.h>

#include "doctor.h"
#include "line.h"
#include "resctl.h"

#define SEGMENTS_TRIED 8

enum { OPTION_FIX = 'F' };

static const char doc[] =
        "Checks every invariant of the live segment: says what is wrong, and what it would do about it; with --fix it does it."
        "\v"
        "It works under full load, and with rescd alive, stopped or dead. A finding is what stands on "
        "several looks, for longer than whoever is in charge needs to repair it, so a segment that is "
        "right is clean, and takes one look; one that is not takes some seconds.\n"
        "\n"
        "--fix goes through the library's own protocols: it does no harm while workers call, and never "
        "touches what belongs to a living process.\n"
        "\n"
        "Exit codes:\n"
        "  0  clean, or everything was repaired\n"
        "  1  findings are left\n"
        "  3  the segment cannot be reached, or cannot be used\n"
        "\n"
        "Examples:\n"
        "  resctl doctor\n"
        "  resctl doctor --fix\n"
        "  resctl doctor --json | jq '.findings[] | {id, resource, place, text}'";

static const struct argp_option options[] = {
        {"fix", OPTION_FIX, NULL, 0, "repair what can be repaired", 0},
        {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
	bool *fix = state->input;

	if (key != OPTION_FIX)
		return parse_nothing(key, arg, state);
	*fix = true;
	return 0;
}

/* ---- the answer in JSON ---- */

static json_t *finding_json(const struct finding *f)
{
	bool of_resource = f->resource != DOCTOR_INSTANCE;

	return json_pack("{s:s, s:s?, s:s, s:s, s:s?, s:s?, s:b}", "id", doctor_check_id(f->check), "resource",
	                 of_resource ? f->name : NULL, "place", f->where, "text", f->text, "repair", f->repair != NULL ? f->remedy : NULL,
	                 "advice", f->repair == NULL ? f->remedy : NULL, "repaired", f->repaired);
}

static json_t *report_json(const struct doctor *d, size_t left)
{
	json_t *findings = json_array();

	for (size_t i = 0; i < d->count; i++)
		json_array_append_new(findings, finding_json(&d->findings[i]));
	return json_pack("{s:s, s:b, s:i, s:i, s:i, s:b, s:o}", "instance", d->instance, "clean", left == 0 && !d->overflow, "checks",
	                 CHECKS, "resources", (int)d->resources, "workers", (int)d->alive, "more", d->overflow, "findings", findings);
}

/* ---- the answer for people ---- */

static void print_finding(const struct resctl *ctl, const struct finding *f)
{
	if (f->repaired)
		print_field(&ctl->screen, f->where, STYLE_PLAIN, "%s; repaired", f->text);
	else if (f->repair != NULL)
		print_field(&ctl->screen, f->where, STYLE_BAD, "%s; would %s: resctl doctor --fix", f->text, f->remedy);
	else
		print_field(&ctl->screen, f->where, STYLE_BAD, "%s; %s", f->text, f->remedy);
}

static void print_heading(const struct screen *screen, const struct finding *f)
{
	char name[SEGMENT_NAME_SIZE];

	snprintf(name, sizeof(name), "%s", f->resource == DOCTOR_INSTANCE ? "the instance" : f->name);
	screen_clean(screen, name);
	printf("%s%s%s\n", style_on(screen, STYLE_STRONG), name, style_off(screen, STYLE_STRONG));
}

static void print_report(const struct resctl *ctl, const struct doctor *d, size_t left)
{
	size_t repairable = 0;

	for (size_t i = 0; i < d->count; i++) {
		if (i == 0 || d->findings[i].resource != d->findings[i - 1].resource)
			print_heading(&ctl->screen, &d->findings[i]);
		print_finding(ctl, &d->findings[i]);
		repairable += !d->findings[i].repaired && d->findings[i].repair != NULL;
	}
	if (d->count > 0)
		putchar('\n');
	if (left == 0)
		printf("clean");
	else
		printf("%zu finding%s, of which resctl doctor --fix can repair %zu", left, plural(left), repairable);
	if (d->count > left)
		printf("; %zu repaired", d->count - left);
	printf(": %d checks over %" PRIu32 " resource%s, %" PRIu32 " worker%s\n", CHECKS, d->resources, plural(d->resources), d->alive,
	       plural(d->alive));
	if (d->overflow)
		printf("there is more than is listed here: ask again when this is repaired\n");
}

/* ---- the command ---- */

static int examine(struct resctl *ctl, bool fix)
{
	struct doctor doctor;

	if (doctor_open(&doctor, ctl->instance, &ctl->map) != 0) {
		complain("out of memory");
		return EXIT_NOT_SO;
	}
	doctor_examine(&doctor);
	/* Of one that was cut meanwhile nothing must be touched: that is the finding. */
	if (map_is_sound(&ctl->map) && map_superseded_by(&ctl->map) != 0) {
		doctor_close(&doctor);
		return -1;
	}
	size_t left = fix ? doctor_repair(&doctor) : doctor.count;
	int r = ctl->json ? print_json(ctl, report_json(&doctor, left)) : EXIT_DONE;
	if (!ctl->json)
		print_report(ctl, &doctor, left);
	if (r == EXIT_DONE && (left > 0 || doctor.overflow))
		r = EXIT_NOT_SO;
	doctor_close(&doctor);
	return r;
}

int cmd_doctor(struct resctl *ctl, int argc, char **argv)
{
	const struct argp argp = {options, parse, NULL, doc, NULL, NULL, NULL};
	bool fix = false;

	command_parse(ctl, &argp, argc, argv, &fix);
	for (int i = 0; i < SEGMENTS_TRIED; i++) {
		int r = attach(ctl, fix ? MAP_WORKER : MAP_READER);
		if (r == 0)
			r = examine(ctl, fix);
		if (r >= 0)
			return r;
	}
	complain("the segment of instance \"%s\" is being replaced again and again; try again", ctl->instance);
	return EXIT_NO_SEGMENT;
}
