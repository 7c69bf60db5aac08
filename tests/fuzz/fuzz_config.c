/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a configuration file: read, or refused with a reason at a place; and what is read is safe to use as it is.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "config.h"
#include "config_problem.h"
#include "policy.h"
#include "standalone.h"

static bool is_terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static void check_problems(const struct config_problems *problems)
{
	char line[CONFIG_LINE_SIZE];
	size_t errors = 0;

	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];
		REQUIRE(is_terminated(p->path, sizeof p->path) && is_terminated(p->text, sizeof p->text) && p->text[0] != '\0');
		REQUIRE(p->line >= 0 && p->column >= 0);
		for (const char *c = p->text; *c != '\0'; c++)
			REQUIRE((unsigned char)*c >= 0x20 && *c != 0x7f);
		errors += !p->warning;
		config_problem_line(p, "resc.json", line, sizeof line);
		REQUIRE(strstr(line, p->text) != NULL);
	}
	REQUIRE((problems->errors == 0) == (errors == 0));
}

/* What a worker would make of any bytes changes nothing in what rescd accepted. */
static void check_policy(const struct config_resource *resource)
{
	const struct segment_dims dims = {.permits = PERMITS_LIMIT, .calls = CALLS_LIMIT, .waiting = WAITING_LIMIT};
	struct policy clamped = resource->policy;

	policy_clamp(&clamped, &dims);
	/* Without a bulkhead the limit may be 0, and means nothing. */
	if ((resource->policy.flags & POLICY_BULKHEAD) == 0)
		clamped.limit = resource->policy.limit;
	REQUIRE(memcmp(&clamped, &resource->policy, sizeof clamped) == 0);
	REQUIRE((resource->policy.flags & POLICY_BULKHEAD) == 0 || resource->policy.limit_share_ppm > 0 || resource->policy.limit > 0);
	REQUIRE((resource->policy.flags & POLICY_RATE) == 0 || resource->policy.rate_per_second > 0);
}

static void check_config(const struct config *config)
{
	REQUIRE(config->workers <= WORKERS_LIMIT && config->once_keys <= ONCE_LIMIT);
	REQUIRE(config->count + config->made <= RESOURCES_LIMIT);
	for (size_t i = 0; i < config->count; i++) {
		check_policy(&config->resources[i]);
		REQUIRE(config_find(config, config->resources[i].name) == &config->resources[i]);
	}
	for (size_t i = 0; i < config->pattern_count; i++) {
		check_policy(&config->patterns[i]);
		/* The first that fits is the longest, and a pattern fits itself. */
		REQUIRE(config_match(config, config->patterns[i].name) == &config->patterns[i]);
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct config config;
	struct config_problems problems = {0};
	int r = config_parse((const char *)data, size, &config, &problems);

	REQUIRE(r == 0 || r == -EINVAL);
	REQUIRE((r == 0) == (problems.errors == 0));
	check_problems(&problems);
	if (r == 0)
		check_config(&config);
	config_free(&config);
	config_problems_free(&problems);
	return 0;
}
