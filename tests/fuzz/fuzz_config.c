/* SPDX-License-Identifier: MIT */
/*
 * Any bytes as a configuration file: read, or refused with a reason at a place; and what is read is safe to use as it is.
 */
#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "config.h"
#include "config_problem.h"
#include "map.h"
#include "policy.h"
#include "standalone.h"

static bool is_terminated(const char *text, size_t size)
{
	return memchr(text, '\0', size) != NULL;
}

static void check_problems(const struct config_problems *problems)
{
	FILE *out = fopen("/dev/null", "w");
	size_t errors = 0;

	for (size_t i = 0; i < problems->count; i++) {
		const struct config_problem *p = &problems->items[i];
		REQUIRE(is_terminated(p->path, sizeof p->path) && is_terminated(p->text, sizeof p->text) && p->text[0] != '\0');
		REQUIRE(p->line >= 0 && p->column >= 0);
		for (const char *c = p->text; *c != '\0'; c++)
			REQUIRE((unsigned char)*c >= 0x20 && *c != 0x7f);
		errors += !p->warning;
	}
	REQUIRE((problems->errors == 0) == (errors == 0));
	REQUIRE(out != NULL && config_problems_print(problems, "resc.json", out) == 0);
	fclose(out);
}

/* What a worker would make of any bytes changes nothing in what rescd accepted; and everything is found under its name. */
static void check_config(const struct config *config)
{
	struct segment_dims dims;
	uint64_t limit = 0;

	for (size_t i = 0; i < config->count; i++)
		if ((config->resources[i].policy.flags & POLICY_BULKHEAD) != 0 && config->resources[i].policy.limit > limit)
			limit = config->resources[i].policy.limit;
	REQUIRE(limit <= PERMITS_LIMIT && config->workers <= WORKERS_LIMIT && config->count <= RESOURCES_LIMIT);
	map_dims(&dims, &(struct map_needs){.resources = (uint32_t)config->count, .workers = config->workers, .permits = (uint32_t)limit});
	for (size_t i = 0; i < config->count; i++) {
		const struct config_resource *r = &config->resources[i];
		struct policy clamped = r->policy;
		policy_clamp(&clamped, &dims);
		if ((r->policy.flags & POLICY_BULKHEAD) == 0)
			clamped.limit = r->policy.limit;
		REQUIRE(memcmp(&clamped, &r->policy, sizeof clamped) == 0);
		REQUIRE(config_find(config, r->name) == r);
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
