/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a scenario: read, or refused with a reason at a place; and what is read is sound, because nobody checks it again. The first
 * byte says how it is asked for: in its short form, with other workers, on one view.
 */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "figures.h"
#include "scenario.h"
#include "standalone.h"

#define ASK_BRIEF   1u
#define ASK_WORKERS 2u
#define ASK_VIEW    4u

static void check_problems(const struct config_problems *problems)
{
	size_t errors = 0;

	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];

		REQUIRE(memchr(p->path, '\0', sizeof p->path) && memchr(p->text, '\0', sizeof p->text) && p->text[0] != '\0');
		REQUIRE(p->line >= 0 && p->column >= 0);
		for (const char *c = p->text; *c != '\0'; c++)
			REQUIRE((unsigned char)*c >= 0x20 && *c != 0x7f);
		errors += !p->warning;
	}
	REQUIRE((problems->errors == 0) == (errors == 0));
}

static void check_dependency(const struct dependency *d, int64_t duration_ns)
{
	double sum = 0;

	REQUIRE(d->kind != DEPENDENCY_SERVER || d->latency_count > 0);
	REQUIRE((d->kind == DEPENDENCY_ADDRESS) == (d->address != NULL) && (d->kind == DEPENDENCY_PROGRAM) == (d->program != NULL));
	for (size_t i = 0; i < d->latency_count; i++) {
		REQUIRE(d->latency[i].from_ns >= 0 && (d->latency[i].kind != SPAN_UNIFORM || d->latency[i].to_ns >= d->latency[i].from_ns));
		sum += d->latency[i].share;
	}
	REQUIRE(d->latency_count == 0 || fabs(sum - 1) < 1e-9);
	for (size_t i = 0; i < d->fault_count; i++) {
		const struct fault *f = &d->faults[i];

		REQUIRE(f->from_ns >= 0 && f->from_ns < f->to_ns && f->from_ns < duration_ns && f->share > 0 && f->share <= 1);
		REQUIRE((f->up_ns > 0) == (f->down_ns > 0) && f->from_request <= f->to_request);
		REQUIRE(f->kind != FAULT_SLOW || f->latency_ns > 0);
		REQUIRE(f->kind != FAULT_CAPACITY || f->capacity > 0);
	}
}

static void check_load(const struct scenario *s, const struct load *l)
{
	REQUIRE(l->name[0] != '\0' && l->chain_count >= 1 && l->chain_count <= SCENARIO_CHAIN);
	for (size_t i = 0; i < l->chain_count; i++)
		REQUIRE(l->chain[i] < s->resource_count);
	REQUIRE(l->dependency >= -1 && l->dependency < (int)s->dependency_count && l->work_ns >= 0 && l->cost >= 1);
	if (l->arrivals != ARRIVALS_AT) {
		REQUIRE(l->rate_count > 0 && l->from_ns >= 0 && l->from_ns < l->to_ns && l->to_ns <= s->duration_ns);
		return;
	}
	REQUIRE(l->at_count > 0);
	for (size_t i = 0; i < l->at_count; i++)
		REQUIRE(l->at[i] >= (i > 0 ? l->at[i - 1] : 0) && l->at[i] < s->duration_ns);
}

static void check_scenario(const struct scenario *s)
{
	REQUIRE(s->title && s->duration_ns > 0 && s->workers >= 1 && s->threads >= 1 && s->workers * s->threads <= SCENARIO_CALLERS);
	REQUIRE(s->views[VIEW_OWN] || s->views[VIEW_SHARED]);
	REQUIRE(json_is_object(s->configuration) && s->load_count > 0 && s->slowest_attempts >= 1);
	for (size_t i = 0; i < s->dependency_count; i++)
		check_dependency(&s->dependencies[i], s->duration_ns);
	for (size_t i = 0; i < s->load_count; i++)
		check_load(s, &s->loads[i]);
}

static void check_expectation(const struct expectation *e)
{
	REQUIRE(figure_find(e->what.figure) != NULL && (!e->relative || figure_find(e->to.figure) != NULL));
	REQUIRE(isfinite(e->value) && isfinite(e->tolerance) && e->tolerance >= 0 && e->what.from_ns < e->what.to_ns);
}

static void check_all(const struct scenarios *scenarios)
{
	REQUIRE(scenarios->count > 0);
	for (size_t i = 0; i < scenarios->count; i++)
		check_scenario(&scenarios->items[i]);
	for (size_t i = 0; i < scenarios->expectation_count; i++)
		check_expectation(&scenarios->expectations[i]);
	for (size_t i = 0; i < scenarios->comparison_count; i++)
		REQUIRE(figure_find(scenarios->comparisons[i].what.figure) != NULL);
	for (size_t i = 0; i < QUESTIONS; i++)
		REQUIRE(scenarios->game_day.given == (scenarios->game_day.answer_count[i] > 0));
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct scenarios scenarios;
	struct config_problems problems = {0};
	unsigned asked = size > 0 && data[0] != '{' ? data[0] : 0;
	const struct scenario_options options = {
	        .brief = (asked & ASK_BRIEF) != 0,
	        .workers = (asked & ASK_WORKERS) != 0 ? 3 : 0,
	        .views = (asked & ASK_VIEW) != 0 ? 1 << VIEW_OWN : 0,
	};
	size_t skip = asked != 0;
	int r = scenarios_parse((const char *)data + skip, size - skip, &options, &scenarios, &problems);

	REQUIRE(r == 0 || r == -EINVAL);
	REQUIRE((r == 0) == (problems.errors == 0));
	check_problems(&problems);
	if (r == 0)
		check_all(&scenarios);
	scenarios_free(&scenarios);
	config_problems_free(&problems);
	return 0;
}
