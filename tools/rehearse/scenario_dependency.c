/* SPDX-License-Identifier: MIT */
/*
 * Why this exists: a dependency is the lab's own server, somebody else's, or a program, and each can be told different things. A key that
 * the kind at hand would pass over in silence (a latency for somebody else's server, attempts for a fault that nobody counts) is refused.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "scenario_read.h"

#define SPANS_MOST  64u
#define FAULTS_MOST 256u
#define WORDS_MOST  64u
#define MS_NS       INT64_C(1000000)
#define SHARE_NEAR  1e-4 /* shares written with a few decimals need not add up to 1 exactly */

/* ---- latency ---- */

static void read_uniform(struct section *section, struct span *span)
{
	const struct node *node = section->at[SK_UNIFORM];
	bool good = json_is_array(node->value) && node_count(node) == 2;

	span->kind = SPAN_UNIFORM;
	if (!good)
		section->bad = !refuse(section->reading, node, SK_UNIFORM, "does not have two values");
	else if (!value_of_duration(section->reading, node->first, SK_FIXED, &span->from_ns) ||
	         !value_of_duration(section->reading, node->last, SK_FIXED, &span->to_ns))
		section->bad = true;
	else if (span->from_ns > span->to_ns)
		section_error(section, SK_UNIFORM, "the least is more than the most; the least comes first");
}

static void read_lognormal(struct section *section, struct span *span)
{
	const struct node *node = section_object(section, SK_LOGNORMAL);
	struct section inner;

	span->kind = SPAN_LOGNORMAL;
	if (!node || !section_read(section->reading, node, SB_LOGNORMAL, &inner))
		return;
	section_needs(&inner, SK_MU, "write the mean of the logarithm of seconds");
	section_needs(&inner, SK_SIGMA, "write the standard deviation of the logarithm");
	span->mu = section_number(&inner, SK_MU, 0);
	span->sigma = section_number(&inner, SK_SIGMA, 0);
}

static void read_span(struct reading *reading, const struct node *node, struct span *span)
{
	struct section section;
	unsigned kinds;

	*span = (struct span){.share = 1};
	if (!section_read(reading, node, SB_SPAN, &section))
		return;
	span->share = section_share(&section, SK_SPAN_SHARE, 1);
	kinds = (section.at[SK_FIXED] ? 1u : 0u) + (section.at[SK_UNIFORM] ? 1u : 0u) + (section.at[SK_LOGNORMAL] ? 1u : 0u);
	if (kinds != 1) {
		node_key_error(reading->problems, node, "a part is one of fixed, uniform and lognormal");
		return;
	}
	if (section.at[SK_FIXED])
		span->from_ns = section_duration(&section, SK_FIXED, 0);
	else if (section.at[SK_UNIFORM])
		read_uniform(&section, span);
	else
		read_lognormal(&section, span);
}

/* The parts add up to 1: exactly, once they do nearly. */
static void settle_shares(struct reading *reading, const struct node *list, struct dependency *dependency)
{
	double sum = 0;

	for (size_t i = 0; i < dependency->latency_count; i++)
		sum += dependency->latency[i].share;
	if (fabs(sum - 1) > SHARE_NEAR)
		node_error(reading->problems, list, "the shares of the parts add up to %.6g; they must add up to 1", sum);
	for (size_t i = 0; i < dependency->latency_count; i++)
		dependency->latency[i].share /= sum;
}

static void read_mixture(struct section *section, struct dependency *dependency)
{
	const struct node *list = section_list(section, SK_LATENCY, SPANS_MOST);
	size_t errors = section->reading->problems->errors;

	if (!list)
		return;
	if (!list->first) {
		section->bad = !refuse(section->reading, list, SK_LATENCY, "is empty");
		return;
	}
	dependency->latency = reading_memory(section->reading, node_count(list), sizeof(struct span));
	for (const struct node *node = list->first; dependency->latency && node; node = node->next)
		read_span(section->reading, node, &dependency->latency[dependency->latency_count++]);
	if (section->reading->problems->errors == errors)
		settle_shares(section->reading, list, dependency);
}

static void read_latency(struct section *section, struct dependency *dependency)
{
	const struct node *node = section->at[SK_LATENCY];

	if (node && json_is_array(node->value)) {
		read_mixture(section, dependency);
		return;
	}
	dependency->latency = reading_memory(section->reading, 1, sizeof(struct span));
	if (!dependency->latency)
		return;
	dependency->latency_count = 1;
	dependency->latency[0] = (struct span){.kind = SPAN_FIXED, .share = 1};
	if (node && json_is_string(node->value))
		section->bad |= !value_of_duration(section->reading, node, SK_FIXED, &dependency->latency[0].from_ns);
	else if (node)
		section->bad = !refuse_type(section->reading, node, SK_LATENCY);
}

/* ---- faults ---- */

static void forbid(struct section *section, const enum scenario_key *keys, size_t count, const char *because)
{
	for (size_t i = 0; i < count; i++)
		section_forbids(section, keys[i], because);
}

#define COUNT(keys) (sizeof(keys) / sizeof((keys)[0]))

/* What only one kind of fault has. */
static void check_kind(struct section *section, const struct fault *fault)
{
	if (fault->kind != FAULT_SLOW)
		section_forbids(section, SK_FAULT_LATENCY, "only \"slow\" is later");
	else
		section_needs(section, SK_FAULT_LATENCY, "how much later does it answer?");
	if (fault->kind != FAULT_ERRORS)
		section_forbids(section, SK_RETRY_AFTER, "only \"errors\" are answers that can say it");
	if (fault->kind != FAULT_CAPACITY)
		section_forbids(section, SK_FAULT_CAPACITY, "only \"capacity\" limits it");
	else
		section_needs(section, SK_FAULT_CAPACITY, "how many does it still work on at once?");
}

/* A fault that hits requests one by one can choose among them; one that nobody reaches cannot. */
static void check_choice(struct section *section, const struct fault *fault, enum dependency_kind of)
{
	static const enum scenario_key choices[] = {SK_FROM_REQUEST, SK_TO_REQUEST, SK_TRIES, SK_FAULT_SHARE};
	static const enum scenario_key times[] = {SK_FAULT_FROM, SK_FAULT_TO, SK_UP, SK_DOWN};

	if (of == DEPENDENCY_PROGRAM) {
		forbid(section, choices, COUNT(choices), "a program is stopped as a whole");
		if (fault->kind != FAULT_HANG && fault->kind != FAULT_REFUSE)
			section_error(section, SK_KIND, "a program can only \"hang\" (it is stopped) and \"refuse\" (it is ended)");
	} else if (fault->kind == FAULT_REFUSE || fault->kind == FAULT_CAPACITY) {
		forbid(section, choices, COUNT(choices), "this kind of fault is there for all requests");
	}
	if (fault->from_request > 0)
		forbid(section, times, COUNT(times), "this fault goes by the numbers of requests");
}

static void check_times(struct section *section, const struct fault *fault, int64_t duration_ns)
{
	if (fault->from_ns >= fault->to_ns)
		section_error(section, SK_FAULT_TO, "the fault is over before it begins; `to` must be later than `from`");
	else if (fault->from_ns >= duration_ns)
		section_error(section, SK_FAULT_FROM, "the fault begins when the rehearsal is over; begin earlier, or lengthen `duration`");
	else if (fault->to_ns != SCENARIO_FOREVER && fault->to_ns > duration_ns)
		section_error(section, SK_FAULT_TO, "the rehearsal is over before; for a fault that lasts to the end, leave `to` out");
	if (fault->from_request > fault->to_request)
		section_error(section, SK_TO_REQUEST, "it is before the first one; `to_request` must be at least `from_request`");
	if (!section->at[SK_UP] != !section->at[SK_DOWN])
		section_error(section, section->at[SK_UP] ? SK_UP : SK_DOWN, "a fault that comes and goes needs both `up` and `down`");
}

static int64_t whole_ms(struct section *section, enum scenario_key id)
{
	int64_t ns = section_duration(section, id, -MS_NS);

	if (ns > 0 && ns % MS_NS != 0)
		section_error(section, id, "is not a whole number of milliseconds; round it");
	return ns / MS_NS;
}

static void read_fault(struct reading *reading, const struct node *node, enum dependency_kind of, struct fault *fault)
{
	struct section section;
	bool by_number;

	*fault = (struct fault){.to_ns = SCENARIO_FOREVER, .share = 1, .retry_after_ms = -1};
	if (!section_read(reading, node, SB_FAULT, &section) || !section_needs(&section, SK_KIND, "what is the fault?"))
		return;
	by_number = section.at[SK_FROM_REQUEST] || section.at[SK_TO_REQUEST];
	fault->kind = (enum fault_kind)section_word(&section, SK_KIND, 0);
	fault->from_ns = section_duration(&section, SK_FAULT_FROM, 0);
	fault->to_ns = section_duration(&section, SK_FAULT_TO, SCENARIO_FOREVER);
	fault->from_request = (uint32_t)section_integer(&section, SK_FROM_REQUEST, by_number);
	fault->to_request = (uint32_t)section_integer(&section, SK_TO_REQUEST, by_number ? UINT32_MAX : 0);
	fault->tries = (uint32_t)section_integer(&section, SK_TRIES, 0);
	fault->share = section_share(&section, SK_FAULT_SHARE, 1);
	fault->up_ns = section_duration(&section, SK_UP, 0);
	fault->down_ns = section_duration(&section, SK_DOWN, 0);
	fault->latency_ns = section_duration(&section, SK_FAULT_LATENCY, 0);
	fault->retry_after_ms = whole_ms(&section, SK_RETRY_AFTER);
	fault->capacity = (uint32_t)section_integer(&section, SK_FAULT_CAPACITY, 0);
	if (reading->brief && fault->to_ns > reading->scenario->duration_ns)
		fault->to_ns = SCENARIO_FOREVER;
	if (section.bad)
		return;
	check_kind(&section, fault);
	check_choice(&section, fault, of);
	check_times(&section, fault, reading->scenario->duration_ns);
}

static void read_faults(struct section *section, struct dependency *dependency)
{
	const struct node *list = section_list(section, SK_FAULTS, FAULTS_MOST);

	if (!list)
		return;
	if (dependency->kind == DEPENDENCY_ADDRESS) {
		section_forbids(section, SK_FAULTS, "the lab has no hand in somebody else's server (`resctl inject` makes its calls fail)");
		return;
	}
	dependency->faults = reading_memory(section->reading, node_count(list), sizeof(struct fault));
	for (const struct node *node = list->first; dependency->faults && node; node = node->next)
		read_fault(section->reading, node, dependency->kind, &dependency->faults[dependency->fault_count++]);
}

/* ---- where it is ---- */

/* HOST:PORT, and nothing behind it. */
static bool is_host_and_port(const char *text)
{
	const char *colon = strrchr(text, ':');
	size_t digits = colon ? strspn(colon + 1, "0123456789") : 0;

	return colon && colon != text && digits > 0 && digits <= 5 && colon[1 + digits] == '\0' && strtoul(colon + 1, NULL, 10) <= 65535 &&
	       strtoul(colon + 1, NULL, 10) > 0 && text[strcspn(text, "/@ ")] == '\0';
}

static bool is_address(const char *text)
{
	size_t start = strncmp(text, "http://", 7) == 0 ? 7 : strncmp(text, "https://", 8) == 0 ? 8 : 0;

	for (const char *c = text; *c; c++) {
		if ((unsigned char)*c <= ' ' || (unsigned char)*c == 0x7f)
			return false;
	}
	if (strncmp(text, "tcp://", 6) == 0)
		return is_host_and_port(text + 6);
	return start > 0 && text[start] != '\0' && text[start] != '/' && strlen(text) < 2000;
}

static void read_address(struct section *section, struct dependency *dependency)
{
	const struct node *node = section->at[SK_ADDRESS];
	const char *text = json_string_value(node->value);

	dependency->kind = DEPENDENCY_ADDRESS;
	if (!text)
		section->bad = !refuse_type(section->reading, node, SK_ADDRESS);
	else if (!is_address(text))
		section->bad = !refuse(section->reading, node, SK_ADDRESS, "is not an address that can be called");
	else
		dependency->address = reading_copy(section->reading, text);
	if (text && strncmp(text, "tcp://", 6) != 0) {
		section_forbids(section, SK_SEND, "only tcp:// has it");
		section_forbids(section, SK_EXPECTED, "only tcp:// has it");
	}
}

static void read_program(struct section *section, struct dependency *dependency)
{
	const struct node *list = section_list(section, SK_PROGRAM, WORDS_MOST);
	bool port = false;
	size_t count = 0;

	dependency->kind = DEPENDENCY_PROGRAM;
	if (!list)
		return;
	dependency->program = reading_memory(section->reading, node_count(list) + 1, sizeof(char *));
	for (const struct node *node = list->first; dependency->program && node; node = node->next) {
		const char *text = json_string_value(node->value);

		if (!text) {
			section->bad = !refuse_type(section->reading, node, SK_PROGRAM);
			return;
		}
		port |= strstr(text, "{port}") != NULL;
		dependency->program[count++] = reading_copy(section->reading, text);
	}
	if (!list->first || json_string_length(list->first->value) == 0)
		section_error(section, SK_PROGRAM, "the name of the program is missing; it is the first word");
	else if (!port)
		section_error(section, SK_PROGRAM, "no word has {port} in it; the lab chooses the port, and must tell the program");
}

static void forbid_servers_keys(struct section *section)
{
	static const enum scenario_key keys[] = {SK_LATENCY, SK_CPU, SK_CAPACITY, SK_QUEUE, SK_ACCEPTS};

	forbid(section, keys, COUNT(keys), "it belongs to the lab's own server, without `address` and `program`");
}

static void read_server(struct section *section, struct dependency *dependency)
{
	read_latency(section, dependency);
	dependency->cpu_ns = section_duration(section, SK_CPU, 0);
	dependency->capacity = (uint32_t)section_integer(section, SK_CAPACITY, 0);
	dependency->queue = (uint32_t)section_integer(section, SK_QUEUE, 0);
	dependency->accepts_per_second = section_number(section, SK_ACCEPTS, 0);
	if (dependency->capacity == 0)
		section_forbids(section, SK_QUEUE, "without `capacity` nothing waits");
	section_forbids(section, SK_SEND, "only a program or a tcp:// address has it");
	section_forbids(section, SK_EXPECTED, "only a program or a tcp:// address has it");
}

static void read_tcp(struct section *section, struct dependency *dependency)
{
	dependency->send = section_text_copy(section, SK_SEND);
	dependency->expect = section_text_copy(section, SK_EXPECTED);
}

static void read_dependency(struct reading *reading, const struct node *node, struct dependency *dependency)
{
	struct section section;

	snprintf(dependency->name, sizeof(dependency->name), "%s", node->key);
	check_label(reading, node);
	if (!section_read(reading, node, SB_DEPENDENCY, &section))
		return;
	if (section.at[SK_ADDRESS] && section.at[SK_PROGRAM]) {
		section_error(&section, SK_PROGRAM, "it is somebody else's server, or a program; leave `address` or `program` out");
		return;
	}
	if (section.at[SK_ADDRESS])
		read_address(&section, dependency);
	else if (section.at[SK_PROGRAM])
		read_program(&section, dependency);
	if (dependency->kind == DEPENDENCY_SERVER) {
		read_server(&section, dependency);
	} else {
		forbid_servers_keys(&section);
		read_tcp(&section, dependency);
	}
	read_faults(&section, dependency);
}

void dependencies_read(struct reading *reading, const struct node *node)
{
	struct scenario *scenario = reading->scenario;
	size_t count = node_count(node);

	if (count > SCENARIO_DEPENDENCIES) {
		node_error(reading->problems, node, "%zu dependencies are too many; there can be %u", count, SCENARIO_DEPENDENCIES);
		return;
	}
	scenario->dependencies = reading_memory(reading, count, sizeof(struct dependency));
	for (const struct node *child = node->first; scenario->dependencies && child; child = child->next)
		read_dependency(reading, child, &scenario->dependencies[scenario->dependency_count++]);
}

void dependency_free(struct dependency *dependency)
{
	free(dependency->latency);
	free(dependency->faults);
	free(dependency->address);
	free(dependency->send);
	free(dependency->expect);
	for (char **one = dependency->program; one && *one; one++)
		free(*one);
	free(dependency->program);
}
