/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: an expectation that names a figure which nobody measures, a load that is not there or a view that is not played would
 * always hold, or never. So each is looked up here, in every variant that it speaks of, before anything is played.
 *
 * A value is written as its figure is: a number, a share, a duration (which becomes milliseconds). Divided by another figure it is a
 * number.
 */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "config_value.h"
#include "figures.h"
#include "scenario_read.h"

#define EXPECTATIONS_MOST 1000u
#define MS_NS             1e6
#define VALUE_MOST        1e12
#define FIGURES_SAID      "`resctl rehearse --list-figures` lists them"

/* ---- names ---- */

static const char *name_at(const struct scenario *scenario, enum figure_of of, size_t index)
{
	if (of == OF_LOAD)
		return scenario->loads[index].name;
	return of == OF_RESOURCE ? scenario->resources[index] : scenario->dependencies[index].name;
}

static size_t name_count(const struct scenario *scenario, enum figure_of of)
{
	if (of == OF_LOAD)
		return scenario->load_count;
	return of == OF_RESOURCE ? scenario->resource_count : scenario->dependency_count;
}

static bool has_name(const struct scenario *scenario, enum figure_of of, const char *name)
{
	for (size_t i = 0; i < name_count(scenario, of); i++) {
		if (strcmp(name_at(scenario, of, i), name) == 0)
			return true;
	}
	return false;
}

static void say_no_such(struct section *section, const struct scenario *scenario, enum figure_of of, const char *name)
{
	static const char *const what[] = {[OF_LOAD] = "load", [OF_RESOURCE] = "resource of a load", [OF_DEPENDENCY] = "dependency"};
	const char *names[SCENARIO_RESOURCES] = {NULL};
	size_t count = name_count(scenario, of);
	char advice[300];

	for (size_t i = 0; i < count && i < SCENARIO_RESOURCES; i++)
		names[i] = name_at(scenario, of, i);
	advise_name(name, names, count < SCENARIO_RESOURCES ? count : SCENARIO_RESOURCES, advice, sizeof(advice));
	if (scenario->variant[0])
		section_error(section, SK_OF, "the variant \"%s\" has no %s of that name; %s", scenario->variant, what[of], advice);
	else
		section_error(section, SK_OF, "there is no %s of that name; %s", what[of], advice);
}

/* ---- variants and views ---- */

static bool speaks_of(const struct figure_ref *ref, const struct scenario *scenario)
{
	return ref->variant[0] == '\0' || strcmp(ref->variant, scenario->variant) == 0;
}

static void check_variant(struct expecting *expecting, struct section *section, const struct figure_ref *ref)
{
	const char *names[256];
	size_t count = expecting->count < 256 ? expecting->count : 256;
	char advice[300];

	for (size_t i = 0; i < count; i++) {
		names[i] = expecting->items[i].variant;
		if (speaks_of(ref, &expecting->items[i]))
			return;
	}
	advise_name(ref->variant, names, count == 1 && !names[0][0] ? 0 : count, advice, sizeof(advice));
	section_error(section, SK_VARIANT, "there is no variant of that name; %s", advice);
}

static void check_view(struct section *section, const struct figure_ref *ref, const struct scenario *scenario)
{
	if (ref->view < 0 || scenario->views[ref->view])
		return;
	if (scenario->variant[0])
		section_error(section, SK_VIEW, "the variant \"%s\" is not played on that view; add it to `views`, or leave `view` out",
		              scenario->variant);
	else
		section_error(section, SK_VIEW, "it is not played on that view; add it to `views`, or leave `view` out");
}

/* What goes on longer than a short form ends with it. */
static void check_time(struct section *section, const struct figure_ref *ref, const struct scenario *scenario)
{
	if (ref->from_ns >= scenario->duration_ns)
		section_error(section, SK_FROM, "the rehearsal is over by then; write an earlier time");
	else if (ref->to_ns != SCENARIO_FOREVER && ref->to_ns > scenario->duration_ns && !section->reading->brief)
		section_error(section, SK_TO, "the rehearsal is over before; leave `to` out, or write an earlier time");
}

/* ---- which figure ---- */

static const struct figure *find_figure(struct section *section, const char *name)
{
	const struct figure *figure = figure_find(name), *all;
	const char *names[256];
	size_t count;
	char advice[300];

	if (figure)
		return figure;
	all = figures_all(&count);
	for (size_t i = 0; i < count && i < 256; i++)
		names[i] = all[i].name;
	advise_name(name, names, count < 256 ? count : 256, advice, sizeof(advice));
	section_error(section, SK_FIGURE, "there is no figure of that name; %s", strncmp(advice, "did", 3) == 0 ? advice : FIGURES_SAID);
	return NULL;
}

static void check_everywhere(struct expecting *expecting, struct section *section, const struct figure_ref *ref,
                             const struct figure *figure)
{
	if (expecting->count > 0)
		check_variant(expecting, section, ref);
	for (size_t i = 0; i < expecting->count && !section->bad; i++) {
		const struct scenario *scenario = &expecting->items[i];

		if (!speaks_of(ref, scenario))
			continue;
		check_view(section, ref, scenario);
		check_time(section, ref, scenario);
		if (ref->of[0] != '\0' && !has_name(scenario, figure->of, ref->of))
			say_no_such(section, scenario, figure->of, ref->of);
	}
}

static void check_figure(struct section *section, const struct figure *figure, const struct figure_ref *ref)
{
	if (!figure->takes_time) {
		section_forbids(section, SK_FROM, "this figure is of the whole rehearsal");
		section_forbids(section, SK_TO, "this figure is of the whole rehearsal");
	}
	if (!figure->takes_nth)
		section_forbids(section, SK_NTH, "this figure is not one of several");
	if (!figure->takes_width)
		section_forbids(section, SK_WIDTH, "this figure has no slots and no timeout");
	else
		section_needs(section, SK_WIDTH, "this figure needs one, such as \"10ms\"");
	if (ref->from_ns >= ref->to_ns)
		section_error(section, SK_TO, "`to` must be later than `from`");
}

/* What all four kinds of references have. NULL: it is not good, and problems say so. */
static const struct figure *read_ref(struct expecting *expecting, struct section *section, struct figure_ref *ref)
{
	const char *name;
	const struct figure *figure;

	*ref = (struct figure_ref){.view = -1, .to_ns = SCENARIO_FOREVER};
	if (!section_needs(section, SK_FIGURE, "name the figure that is meant"))
		return NULL;
	name = section_text(section, SK_FIGURE, "");
	snprintf(ref->of, sizeof(ref->of), "%s", section_text(section, SK_OF, ""));
	snprintf(ref->variant, sizeof(ref->variant), "%s", section_text(section, SK_VARIANT, ""));
	ref->view = section->at[SK_VIEW] ? (int)section_word(section, SK_VIEW, 0) : -1;
	ref->from_ns = section_duration(section, SK_FROM, 0);
	ref->to_ns = section_duration(section, SK_TO, SCENARIO_FOREVER);
	ref->width_ns = section_duration(section, SK_WIDTH, 0);
	ref->nth = (uint32_t)section_integer(section, SK_NTH, 1);
	if (section->bad)
		return NULL;
	figure = find_figure(section, name);
	if (!figure)
		return NULL;
	snprintf(ref->figure, sizeof(ref->figure), "%s", name);
	check_figure(section, figure, ref);
	if (!section->bad)
		check_everywhere(expecting, section, ref, figure);
	return section->bad ? NULL : figure;
}

/* ---- values ---- */

static bool refuse_value(struct section *section, enum scenario_key id, enum figure_unit unit)
{
	static const char *const expected[] = {
	        [UNIT_COUNT] = "this figure is a number: 12",
	        [UNIT_SHARE] = "this figure is a share: 0.49 or \"49%\"",
	        [UNIT_MS] = "this figure is a time: \"301ms\"",
	        [UNIT_RATIO] = "this figure is a ratio, a number: 1.1",
	};
	char value[64];

	node_quote(section->at[id], value);
	section_error(section, id, "%s is not allowed here; %s", value, expected[unit]);
	return false;
}

static bool is_percent(const json_t *value, double *part)
{
	uint64_t ppm;

	if (!json_is_string(value) || value_percent(json_string_value(value), &ppm) < 0 || ppm == UINT64_MAX)
		return false;
	*part = (double)ppm / (double)VALUE_MILLION;
	return true;
}

static bool read_value(struct section *section, enum scenario_key id, enum figure_unit unit, double *value)
{
	const json_t *json = section->at[id]->value;
	uint64_t ns;

	if (unit == UNIT_MS) {
		if (!json_is_string(json) || value_duration(json_string_value(json), &ns) < 0 || ns == UINT64_MAX)
			return refuse_value(section, id, unit);
		*value = (double)ns / MS_NS;
		return true;
	}
	if (json_is_number(json))
		*value = json_number_value(json);
	else if (unit == UNIT_COUNT || !is_percent(json, value))
		return refuse_value(section, id, unit);
	if (*value >= 0 && *value <= (unit == UNIT_SHARE ? 1 : VALUE_MOST))
		return true;
	return refuse_value(section, id, unit);
}

/* "5%" is a part of the value; of shares it is points. */
static bool read_tolerance(struct section *section, enum figure_unit unit, struct expectation *expectation)
{
	double part;

	if (unit != UNIT_SHARE && is_percent(section->at[SK_WITHIN]->value, &part)) {
		expectation->tolerance = part * fabs(expectation->value);
		return true;
	}
	return read_value(section, SK_WITHIN, unit, &expectation->tolerance);
}

static void read_values(struct section *section, enum figure_unit unit, struct expectation *expectation)
{
	if (!section->at[SK_PUBLISHED])
		section_needs(section, SK_VALUE, "write it, or `published` where that is what is expected");
	if (expectation->relation != IS_ABOUT)
		section_forbids(section, SK_WITHIN, "only `about` has it");
	else
		section_needs(section, SK_WITHIN, "how far off may it be?");
	if (section->bad)
		return;
	if (section->at[SK_PUBLISHED])
		expectation->has_published = read_value(section, SK_PUBLISHED, unit, &expectation->published);
	expectation->value = expectation->published;
	if (section->at[SK_VALUE])
		read_value(section, SK_VALUE, unit, &expectation->value);
	if (section->at[SK_WITHIN] && !section->bad)
		read_tolerance(section, unit, expectation);
}

/* ---- expectations ---- */

static void read_relative(struct expecting *expecting, struct section *section, struct expectation *expectation)
{
	const struct node *node = section_object(section, SK_RELATIVE_TO);
	struct section inner;

	expectation->relative = node != NULL;
	if (node && section_read(expecting->reading, node, SB_RELATIVE, &inner))
		read_ref(expecting, &inner, &expectation->to);
}

/* timed: what it speaks of has its own time, and the expectation cannot say another. */
static void read_expectation(struct expecting *expecting, const struct node *node, bool timed, struct expectation *out)
{
	const struct figure *figure;
	struct section section;

	if (!section_read(expecting->reading, node, SB_EXPECT, &section))
		return;
	if (timed) {
		section_forbids(&section, SK_FROM, "it is looked at while it is played, at its own times");
		section_forbids(&section, SK_TO, "it is looked at while it is played, at its own times");
	}
	out->why = section_text_copy(&section, SK_WHY);
	out->relation = (enum relation)section_word(&section, SK_IS, IS_EQUAL);
	section_needs(&section, SK_IS, "write one of \"equal\", \"at least\", \"at most\" and \"about\"");
	figure = read_ref(expecting, &section, &out->what);
	read_relative(expecting, &section, out);
	if (figure)
		read_values(&section, out->relative ? UNIT_RATIO : figure->unit, out);
}

static void read_list(struct expecting *expecting, struct section *section, enum scenario_key id, struct expectation **items, size_t *count)
{
	const struct node *list = section_list(section, id, EXPECTATIONS_MOST);

	if (!list)
		return;
	*items = reading_memory(expecting->reading, node_count(list), sizeof(struct expectation));
	for (const struct node *node = list->first; *items && node; node = node->next)
		read_expectation(expecting, node, id == SK_STEADY_STATE || id == SK_ABORT, &(*items)[(*count)++]);
}

/* ---- comparisons ---- */

/* A short form may leave a view out, and then nothing is compared. */
static void check_both_views(struct expecting *expecting, struct section *section, const struct figure_ref *ref)
{
	for (size_t i = 0; i < expecting->count; i++) {
		const struct scenario *scenario = &expecting->items[i];

		if (section->reading->brief || !speaks_of(ref, scenario) || (scenario->views[VIEW_OWN] && scenario->views[VIEW_SHARED]))
			continue;
		section_error(section, SK_VARIANT,
		              "there is nothing to compare: not both views are played; write \"views\": [\"own\", \"shared\"]");
		return;
	}
}

static void read_comparison(struct expecting *expecting, const struct node *node, struct comparison *out)
{
	struct section section;

	if (!section_read(expecting->reading, node, SB_COMPARE, &section))
		return;
	out->why = section_text_copy(&section, SK_WHY);
	out->less_is_better = section_word(&section, SK_BETTER, 0) == 0;
	section_needs(&section, SK_BETTER, "write \"less\" or \"more\"");
	if (read_ref(expecting, &section, &out->what))
		check_both_views(expecting, &section, &out->what);
}

static void read_comparisons(struct expecting *expecting, struct section *section, struct scenarios *out)
{
	const struct node *list = section_list(section, SK_COMPARE, EXPECTATIONS_MOST);

	if (!list)
		return;
	out->comparisons = reading_memory(expecting->reading, node_count(list), sizeof(struct comparison));
	for (const struct node *node = list->first; out->comparisons && node; node = node->next)
		read_comparison(expecting, node, &out->comparisons[out->comparison_count++]);
}

/* ---- game days ---- */

static void check_faults(struct expecting *expecting, struct section *section)
{
	int64_t from, to;

	for (size_t i = 0; i < expecting->count; i++) {
		if (scenario_fault_time(&expecting->items[i], &from, &to))
			continue;
		section_error(section, SK_STEADY_STATE,
		              "the steady state ends with the first fault, and there is none that begins at a time");
		return;
	}
}

static void read_game_day(struct expecting *expecting, const struct node *node, struct game_day *out)
{
	static const enum scenario_key questions[] = {SK_PROTECTED, SK_NOTICED, SK_RECOVERED};
	struct section section;

	if (!section_read(expecting->reading, node, SB_GAME_DAY, &section))
		return;
	out->given = true;
	section_needs(&section, SK_HYPOTHESIS, "write what will happen");
	out->hypothesis = section_text_copy(&section, SK_HYPOTHESIS);
	read_list(expecting, &section, SK_STEADY_STATE, &out->steady, &out->steady_count);
	read_list(expecting, &section, SK_ABORT, &out->abort, &out->abort_count);
	if (out->steady_count > 0)
		check_faults(expecting, &section);
	for (size_t i = 0; i < QUESTIONS; i++) {
		section_needs(&section, questions[i], "write how the answer is found, [{...}]");
		read_list(expecting, &section, questions[i], &out->answers[i], &out->answer_count[i]);
		if (section.at[questions[i]] && out->answer_count[i] == 0 && json_is_array(section.at[questions[i]]->value))
			section_error(&section, questions[i], "is empty; write how the answer is found, [{...}]");
	}
}

/* ---- all of it ---- */

void expectations_read(struct expecting *expecting, const struct node *root, struct scenarios *out)
{
	struct section section;

	/* Unknown keys of the file were told when the scenarios were read. */
	if (!section_read(expecting->reading, root, SB_FILE, &section))
		return;
	read_list(expecting, &section, SK_EXPECT, &out->expectations, &out->expectation_count);
	read_comparisons(expecting, &section, out);
	if (section_object(&section, SK_GAME_DAY))
		read_game_day(expecting, section.at[SK_GAME_DAY], &out->game_day);
}

static void free_list(struct expectation *items, size_t count)
{
	for (size_t i = 0; i < count; i++)
		free(items[i].why);
	free(items);
}

void expectations_free(struct scenarios *scenarios)
{
	struct game_day *day = &scenarios->game_day;

	free_list(scenarios->expectations, scenarios->expectation_count);
	for (size_t i = 0; i < scenarios->comparison_count; i++)
		free(scenarios->comparisons[i].why);
	free(scenarios->comparisons);
	free(day->hypothesis);
	free_list(day->steady, day->steady_count);
	free_list(day->abort, day->abort_count);
	for (size_t i = 0; i < QUESTIONS; i++)
		free_list(day->answers[i], day->answer_count[i]);
}
