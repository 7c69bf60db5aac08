/* SPDX-License-Identifier: MIT */
/*
 * The dependencies of a take, together. Where they listen is known when they do: their addresses are written into the scenario, before
 * the workers are forked, and taken out again at the end.
 */
#include "dependency.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "children.h"
#include "guard.h"
#include "program.h"
#include "server.h"

struct dependencies {
	const struct scenario *scenario;
	struct board *board;
	pid_t server;
	struct guard guard; /* of the programs */
	struct program programs[SCENARIO_DEPENDENCIES];
	size_t program_count;
};

static int set_address(struct dependency *dependency, uint16_t port)
{
	char *address;
	if (asprintf(&address, "tcp://127.0.0.1:%u", port) < 0) {
		fprintf(stderr, "resctl rehearse: no memory for the dependencies\n");
		return -ENOMEM;
	}
	free(dependency->address);
	dependency->address = address;
	return 0;
}

static void forget_addresses(const struct scenario *scenario)
{
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		struct dependency *dependency = &scenario->dependencies[i];
		if (dependency->kind == DEPENDENCY_ADDRESS)
			continue;
		free(dependency->address);
		dependency->address = NULL;
	}
}

static bool has_server(const struct scenario *scenario)
{
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		if (scenario->dependencies[i].kind == DEPENDENCY_SERVER)
			return true;
	}
	return false;
}

static int start_servers(struct dependencies *dependencies)
{
	const struct scenario *scenario = dependencies->scenario;
	uint16_t ports[SCENARIO_DEPENDENCIES];
	int r = 0;

	if (!has_server(scenario))
		return 0;
	pid_t pid = server_start(scenario, dependencies->board, ports);
	if (pid < 0)
		return pid;
	dependencies->server = pid;
	for (size_t i = 0; r == 0 && i < scenario->dependency_count; i++) {
		if (scenario->dependencies[i].kind == DEPENDENCY_SERVER)
			r = set_address(&scenario->dependencies[i], ports[i]);
	}
	return r;
}

static bool has_program(const struct scenario *scenario)
{
	for (size_t i = 0; i < scenario->dependency_count; i++) {
		if (scenario->dependencies[i].kind == DEPENDENCY_PROGRAM)
			return true;
	}
	return false;
}

static int start_programs(struct dependencies *dependencies)
{
	const struct scenario *scenario = dependencies->scenario;
	int r = has_program(scenario) ? guard_start(&dependencies->guard) : 0;

	for (size_t i = 0; r == 0 && i < scenario->dependency_count; i++) {
		struct dependency *dependency = &scenario->dependencies[i];
		if (dependency->kind != DEPENDENCY_PROGRAM)
			continue;
		struct program *program = &dependencies->programs[dependencies->program_count++];
		r = program_start(program, dependency, &dependencies->guard);
		if (r == 0)
			r = set_address(dependency, program->port);
	}
	return r;
}

struct dependencies *dependencies_start(const struct scenario *scenario, struct board *board, pid_t *children, size_t *count)
{
	struct dependencies *dependencies = calloc(1, sizeof(*dependencies));
	*count = 0;
	if (!dependencies) {
		fprintf(stderr, "resctl rehearse: no memory for the dependencies\n");
		return NULL;
	}
	dependencies->scenario = scenario;
	dependencies->board = board;
	dependencies->guard = GUARD_NONE;
	if (start_servers(dependencies) != 0 || start_programs(dependencies) != 0) {
		dependencies_stop(dependencies);
		return NULL;
	}
	if (dependencies->server > 0)
		children[(*count)++] = dependencies->server;
	if (dependencies->guard.pid > 0)
		children[(*count)++] = dependencies->guard.pid;
	return dependencies;
}

int dependencies_turn(struct dependencies *dependencies, int64_t now_ns)
{
	for (size_t i = 0; i < dependencies->program_count; i++) {
		int r = program_turn(&dependencies->programs[i], now_ns);
		if (r != 0)
			return r;
	}
	return 0;
}

/* The servers were ended in the middle of their work, and cannot say themselves what of it was not answered. */
static void end_notes(const struct board *board)
{
	uint32_t count = atomic_load_explicit(&board->receipts, memory_order_acquire);
	for (uint32_t i = 0; i < count && i < board->receipt_room; i++) {
		struct receipt_note *note = &board->receipt_notes[i];
		if (note->receipt == RECEIPT_PENDING)
			atomic_store_explicit(&note->done, 1, memory_order_release);
	}
}

void dependencies_stop(struct dependencies *dependencies)
{
	if (!dependencies)
		return;
	child_kill(&dependencies->server);
	end_notes(dependencies->board);
	for (size_t i = 0; i < dependencies->program_count; i++)
		program_end(&dependencies->programs[i]);
	guard_end(&dependencies->guard);
	forget_addresses(dependencies->scenario);
	free(dependencies);
}
