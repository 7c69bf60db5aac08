/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: dashboards, notebooks and the tests of this project read a rehearsal as one document, so it has everything: what was
 * played, every figure of every load, resource and dependency, each second, each transition, each expectation with what was published and
 * what was measured, the comparison of the views and the game day's answers. Every key is always there: what there is not is null. Keys
 * that end in _ms are milliseconds, points in time since the start of the take; shares are 0 to 1. docs/rehearsal.schema.json describes it.
 *
 * A document is complete or not there: out of memory anywhere gives NULL.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "figures_measure.h"
#include "present.h"
#include "resc.h"

#define RESULT_VERSION 1 /* another one when a key changes its meaning or goes */

/* One document that is being written. */
struct out {
	const struct scenarios *scenarios;
	bool failed;
};

/* Both take the reference of value, and know a value that could not be made. */
static void put(struct out *out, json_t *object, const char *key, json_t *value)
{
	if (json_object_set_new(object, key, value) != 0)
		out->failed = true;
}

static void append(struct out *out, json_t *array, json_t *value)
{
	if (json_array_append_new(array, value) != 0)
		out->failed = true;
}

/* A number as short as it is: 72, not 72.0. */
static json_t *number(double value)
{
	if (!isfinite(value))
		return json_null();
	if (value == floor(value) && fabs(value) < 9e15)
		return json_integer((json_int_t)value);
	return json_real(value);
}

static json_t *text(const char *s)
{
	return s == NULL ? json_null() : json_string(s);
}

static json_t *text_unless_empty(const char *s)
{
	return s[0] == '\0' ? json_null() : json_string(s);
}

static json_t *ms(int64_t ns)
{
	return ns == SCENARIO_FOREVER ? json_null() : number((double)ns / NS_PER_MS);
}

/* ---- the scenario ---- */

static json_t *fault_json(struct out *out, const struct fault *fault)
{
	bool by_time = fault->from_request == 0;
	json_t *o = json_object();

	put(out, o, "kind", text(fault_name(fault->kind)));
	put(out, o, "from_ms", by_time ? ms(fault->from_ns) : json_null());
	put(out, o, "to_ms", by_time ? ms(fault->to_ns) : json_null());
	put(out, o, "from_request", by_time ? json_null() : json_integer(fault->from_request));
	put(out, o, "to_request", by_time ? json_null() : json_integer(fault->to_request));
	put(out, o, "tries", fault->tries == 0 ? json_null() : json_integer(fault->tries));
	put(out, o, "share", number(fault->share));
	put(out, o, "down_ms", fault->down_ns == 0 ? json_null() : ms(fault->down_ns));
	put(out, o, "up_ms", fault->down_ns == 0 ? json_null() : ms(fault->up_ns));
	put(out, o, "latency_ms", fault->kind == FAULT_SLOW ? ms(fault->latency_ns) : json_null());
	put(out, o, "capacity", fault->kind == FAULT_CAPACITY ? json_integer(fault->capacity) : json_null());
	return o;
}

static json_t *dependency_json(struct out *out, const struct dependency *dependency)
{
	static const char *const kinds[] = {
	        [DEPENDENCY_SERVER] = "server", [DEPENDENCY_ADDRESS] = "address", [DEPENDENCY_PROGRAM] = "program"};
	json_t *o = json_object(), *faults = json_array();

	for (size_t i = 0; i < dependency->fault_count; i++)
		append(out, faults, fault_json(out, &dependency->faults[i]));
	put(out, o, "name", text(dependency->name));
	put(out, o, "kind", text(kinds[dependency->kind]));
	put(out, o, "faults", faults);
	return o;
}

static json_t *load_json(struct out *out, const struct scenario *scenario, const struct load *load)
{
	json_t *o = json_object(), *chain = json_array();

	for (size_t i = 0; i < load->chain_count; i++)
		append(out, chain, text(scenario->resources[load->chain[i]]));
	put(out, o, "name", text(load->name));
	put(out, o, "resources", chain);
	put(out, o, "dependency", load->dependency < 0 ? json_null() : text(scenario->dependencies[load->dependency].name));
	return o;
}

static json_t *variant_json(struct out *out, const struct scenario *scenario)
{
	static const char *const orders[] = {[ORDER_ANY] = "any", [ORDER_IN_TURN] = "in turn", [ORDER_SINGLE] = "one at a time"};
	json_t *o = json_object(), *resources = json_array(), *loads = json_array(), *dependencies = json_array();

	for (size_t i = 0; i < scenario->resource_count; i++)
		append(out, resources, text(scenario->resources[i]));
	for (size_t i = 0; i < scenario->load_count; i++)
		append(out, loads, load_json(out, scenario, &scenario->loads[i]));
	for (size_t i = 0; i < scenario->dependency_count; i++)
		append(out, dependencies, dependency_json(out, &scenario->dependencies[i]));
	put(out, o, "name", text_unless_empty(scenario->variant));
	put(out, o, "about", text(scenario->variant_about));
	put(out, o, "duration_ms", ms(scenario->duration_ns));
	put(out, o, "workers", json_integer(scenario->workers));
	put(out, o, "threads", json_integer(scenario->threads));
	put(out, o, "order", text(orders[scenario->order]));
	put(out, o, "backlog", scenario->backlog == UINT32_MAX ? json_null() : json_integer(scenario->backlog));
	put(out, o, "seed", json_integer((json_int_t)(scenario->seed & INT64_MAX)));
	put(out, o, "configuration", scenario->configuration == NULL ? json_null() : json_incref(scenario->configuration));
	put(out, o, "resources", resources);
	put(out, o, "loads", loads);
	put(out, o, "dependencies", dependencies);
	return o;
}

/* ---- figures ---- */

/* All figures that can be asked of a name, over the whole take. Those that need a width are in the expectations alone. */
static json_t *figures_json(struct out *out, const struct take *take, enum figure_of of, const char *name)
{
	struct figure_ref ref = {.view = -1, .to_ns = SCENARIO_FOREVER, .nth = 1};
	size_t count;
	const struct figure *figures = figures_all(&count);
	json_t *o = json_object();

	strncpy(ref.of, name, sizeof(ref.of) - 1);
	for (size_t i = 0; i < count; i++) {
		if (figures[i].of != of || figures[i].takes_width)
			continue;
		strncpy(ref.figure, figures[i].name, sizeof(ref.figure) - 1);
		ref.figure[sizeof(ref.figure) - 1] = '\0';
		put(out, o, figures[i].name, number(figure_value(take, &ref)));
	}
	return o;
}

static json_t *definitions_json(struct out *out)
{
	size_t count;
	const struct figure *figures = figures_all(&count);
	json_t *all = json_object();

	for (size_t i = 0; i < count; i++) {
		json_t *o = json_object();
		put(out, o, "of", text(figure_of_name(figures[i].of)));
		put(out, o, "unit", text(figure_unit_name(figures[i].unit)));
		put(out, o, "text", text(figures[i].text));
		put(out, o, "definition", text(figures[i].definition));
		put(out, all, figures[i].name, o);
	}
	return all;
}

/* ---- takes ---- */

static void put_served(struct out *out, json_t *o, const uint32_t served[SERVED_KINDS])
{
	/* As the figures are called. */
	static const char *const names[] = {
	        [SERVED_NOT_YET] = "unfinished", [SERVED_FRESH] = "served",      [SERVED_FALLBACK] = "fallback", [SERVED_FAILED] = "failed",
	        [SERVED_LATE] = "late",          [SERVED_REJECTED] = "rejected", [SERVED_STORED] = "stored",
	};

	for (unsigned i = 0; i < SERVED_KINDS; i++)
		put(out, o, names[i], json_integer(served[i]));
}

static json_t *refused_json(struct out *out, const struct second *second)
{
	json_t *o = json_object();

#define X(NAME, name, text) put(out, o, #name, json_integer(second->refused[RESC_E_##NAME]));
	RESC_REFUSALS(X)
#undef X
	return o;
}

static json_t *no_retry_json(struct out *out, const struct second *second)
{
	json_t *o = json_object();

#define X(NAME, name, text) put(out, o, #name, json_integer(second->no_retry[RESC_E_##NAME - RESC_E_ATTEMPTS]));
	RESC_RETRY_REFUSALS(X)
#undef X
	return o;
}

static json_t *second_json(struct out *out, const struct second *second, size_t number_of)
{
	json_t *o = json_object();

	put(out, o, "second", json_integer((json_int_t)number_of));
	put(out, o, "offered", json_integer(second->offered));
	put_served(out, o, second->served);
	put(out, o, "attempts", json_integer(second->attempts));
	put(out, o, "retries", json_integer(second->retries));
	put(out, o, "received", json_integer(second->received));
	put(out, o, "shed", json_integer(second->shed));
	put(out, o, "refused", refused_json(out, second));
	put(out, o, "no_retry", no_retry_json(out, second));
	put(out, o, "latency_p50_ms", number(second->p50_ms));
	put(out, o, "latency_p95_ms", number(second->p95_ms));
	put(out, o, "latency_p99_ms", number(second->p99_ms));
	return o;
}

static json_t *seconds_json(struct out *out, const struct take *take, int load)
{
	size_t count;
	struct second *seconds = take_seconds(take, load, SECOND_NS, &count);
	json_t *all = json_array();

	out->failed |= seconds == NULL;
	for (size_t i = 0; seconds != NULL && i < count; i++)
		append(out, all, second_json(out, &seconds[i], i));
	free(seconds);
	return all;
}

static const char *breaker_state_name(unsigned state)
{
	return state == RESC_BREAKER_OPEN ? "open" : state == RESC_HALF_OPEN ? "half_open" : "closed";
}

static json_t *transitions_json(struct out *out, const struct take *take)
{
	json_t *all = json_array();

	for (size_t i = 0; i < take->transition_count; i++) {
		const struct transition_note *transition = &take->transitions[i];
		json_t *o = json_object();
		put(out, o, "at_ms", ms(transition->at_ns));
		put(out, o, "resource", text(take->scenario->resources[transition->resource]));
		put(out, o, "worker", take->view == VIEW_OWN ? json_integer(transition->worker) : json_null());
		put(out, o, "from", text(breaker_state_name(transition->from)));
		put(out, o, "to", text(breaker_state_name(transition->to)));
		put(out, o, "why", text(transition->why));
		append(out, all, o);
	}
	return all;
}

static json_t *loads_json(struct out *out, const struct take *take)
{
	json_t *all = json_object();

	for (size_t i = 0; i < take->scenario->load_count; i++) {
		json_t *o = figures_json(out, take, OF_LOAD, take->scenario->loads[i].name);
		put(out, o, "seconds", seconds_json(out, take, (int)i));
		put(out, all, take->scenario->loads[i].name, o);
	}
	return all;
}

static json_t *take_json(struct out *out, const struct take *take)
{
	const struct scenario *scenario = take->scenario;
	json_t *o = json_object(), *resources = json_object(), *dependencies = json_object();

	for (size_t i = 0; i < scenario->resource_count; i++)
		put(out, resources, scenario->resources[i], figures_json(out, take, OF_RESOURCE, scenario->resources[i]));
	for (size_t i = 0; i < scenario->dependency_count; i++)
		put(out, dependencies, scenario->dependencies[i].name,
		    figures_json(out, take, OF_DEPENDENCY, scenario->dependencies[i].name));
	put(out, o, "variant", text_unless_empty(scenario->variant));
	put(out, o, "view", text(view_name(take->view)));
	put(out, o, "duration_ms", ms(take->duration_ns));
	put(out, o, "stopped", text(take->stopped));
	put(out, o, "loads", loads_json(out, take));
	put(out, o, "resources", resources);
	put(out, o, "dependencies", dependencies);
	put(out, o, "seconds", seconds_json(out, take, -1));
	put(out, o, "transitions", transitions_json(out, take));
	return o;
}

/* ---- what came of them ---- */

static void put_ref(struct out *out, json_t *o, const struct figure_ref *ref)
{
	put(out, o, "figure", text(ref->figure));
	put(out, o, "of", text_unless_empty(ref->of));
	put(out, o, "from_ms", ms(ref->from_ns));
	put(out, o, "to_ms", ms(ref->to_ns));
	put(out, o, "nth", ref->nth == 0 ? json_null() : json_integer(ref->nth));
	put(out, o, "width_ms", ref->width_ns == 0 ? json_null() : ms(ref->width_ns));
}

/* What a figure is relative to may be of another take. */
static json_t *relative_json(struct out *out, const struct figure_ref *ref)
{
	json_t *o = json_object();

	put_ref(out, o, ref);
	put(out, o, "variant", text_unless_empty(ref->variant));
	put(out, o, "view", ref->view < 0 ? json_null() : text(view_name((enum view)ref->view)));
	return o;
}

static json_t *verdict_json(struct out *out, const struct verdict *verdict)
{
	static const char *const relations[] = {
	        [IS_EQUAL] = "equal", [IS_AT_LEAST] = "at least", [IS_AT_MOST] = "at most", [IS_ABOUT] = "about"};
	const struct expectation *expectation = verdict->expectation;
	char what[256];
	json_t *o = json_object();

	figure_text(&expectation->what, what, sizeof(what));
	put_ref(out, o, &expectation->what);
	put(out, o, "variant", text_unless_empty(verdict->take->scenario->variant));
	put(out, o, "view", text(view_name(verdict->take->view)));
	put(out, o, "relative_to", expectation->relative ? relative_json(out, &expectation->to) : json_null());
	put(out, o, "unit", text(figure_unit_name(expectation_unit(expectation))));
	put(out, o, "is", text(relations[expectation->relation]));
	put(out, o, "value", number(expectation->value));
	put(out, o, "within", expectation->relation == IS_ABOUT ? number(expectation->tolerance) : json_null());
	put(out, o, "published", expectation->has_published ? number(expectation->published) : json_null());
	put(out, o, "measured", number(verdict->value));
	put(out, o, "holds", json_boolean(verdict->holds));
	put(out, o, "text", text(what));
	put(out, o, "expected", text(expected_words(expectation).s));
	put(out, o, "why", text(expectation->why));
	return o;
}

static json_t *verdicts_json(struct out *out, const struct verdicts *verdicts)
{
	json_t *all = json_array();

	for (size_t i = 0; i < verdicts->count; i++)
		append(out, all, verdict_json(out, &verdicts->items[i]));
	return all;
}

static json_t *compared_json(struct out *out, const struct compared *compared)
{
	static const char *const better[] = {[BETTER_SHARED] = "shared", [BETTER_OWN] = "own", [BETTER_NONE] = "none"};
	char sentence[256];
	json_t *o = json_object();

	compared_text(compared, sentence, sizeof(sentence));
	put_ref(out, o, &compared->comparison->what);
	put(out, o, "variant", text_unless_empty(compared->variant));
	put(out, o, "own", number(compared->own));
	put(out, o, "shared", number(compared->shared));
	put(out, o, "wanted", text(compared->comparison->less_is_better ? "less" : "more"));
	put(out, o, "better", text(better[compared->better]));
	put(out, o, "text", text(sentence));
	put(out, o, "why", text(compared->comparison->why));
	return o;
}

/* null: the scenario does not ask this. */
static json_t *answer_json(struct out *out, const struct answer *answer)
{
	json_t *o;

	if (answer->because.count == 0)
		return json_null();
	o = json_object();
	put(out, o, "yes", json_boolean(answer->yes));
	put(out, o, "because", verdicts_json(out, &answer->because));
	return o;
}

static json_t *game_day_json(struct out *out, const struct game_day_result *result)
{
	json_t *o;

	if (!result->given)
		return json_null();
	o = json_object();
	put(out, o, "hypothesis", text(out->scenarios->game_day.hypothesis));
	put(out, o, "steady", json_boolean(result->steady));
	put(out, o, "steady_state", verdicts_json(out, &result->steady_state));
	put(out, o, "aborted", text(result->aborted));
	put(out, o, "protected", answer_json(out, &result->answers[QUESTION_PROTECTED]));
	put(out, o, "noticed", answer_json(out, &result->answers[QUESTION_NOTICED]));
	put(out, o, "recovered", answer_json(out, &result->answers[QUESTION_RECOVERED]));
	put(out, o, "holds", json_boolean(result->hypothesis_holds));
	return o;
}

static json_t *scenario_json(struct out *out)
{
	const struct scenario *first = out->scenarios->count > 0 ? &out->scenarios->items[0] : NULL;
	json_t *o = json_object(), *variants = json_array();

	for (size_t i = 0; i < out->scenarios->count; i++)
		append(out, variants, variant_json(out, &out->scenarios->items[i]));
	put(out, o, "title", text(first == NULL ? NULL : first->title));
	put(out, o, "about", text(first == NULL ? NULL : first->about));
	put(out, o, "experiment", first == NULL ? json_null() : text_unless_empty(first->experiment));
	put(out, o, "variants", variants);
	return o;
}

json_t *result_json(const struct scenarios *scenarios, const struct take *takes, size_t take_count, const struct outcome *outcome)
{
	struct out out = {.scenarios = scenarios};
	json_t *o = json_object(), *played = json_array(), *comparisons = json_array();

	for (size_t i = 0; i < take_count; i++)
		append(&out, played, take_json(&out, &takes[i]));
	for (size_t i = 0; i < outcome->compared_count; i++)
		append(&out, comparisons, compared_json(&out, &outcome->compared[i]));
	put(&out, o, "version", json_integer(RESULT_VERSION));
	put(&out, o, "resc", text(RESC_VERSION_STRING));
	put(&out, o, "good", json_boolean(outcome->good));
	put(&out, o, "scenario", scenario_json(&out));
	put(&out, o, "takes", played);
	put(&out, o, "expectations", verdicts_json(&out, &outcome->verdicts));
	put(&out, o, "comparisons", comparisons);
	put(&out, o, "game_day", game_day_json(&out, &outcome->game_day));
	put(&out, o, "figures", definitions_json(&out));
	if (!out.failed)
		return o;
	json_decref(o);
	return NULL;
}
