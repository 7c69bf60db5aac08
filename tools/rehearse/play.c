/* SPDX-License-Identifier: MIT */
/*
 * One request. What a policy does is seen only if requests are made the way programs make them, so nothing here looks behind the public
 * interface: admission, the call within the ticket's timeout, its outcome, the question whether to try again, the wait.
 *
 * A chain is a request through several services, each of which guards its call to the next one. The attempt of one layer is the whole
 * request of the layer below, with all its retries: that is how retries multiply. A layer has at most the time that the ticket of the layer
 * above gave it; it passes a time-out on as a time-out, and everything else that went wrong, refusals included, as a failure.
 *
 * A key belongs to the last resource of the chain, the one that does the work. KEYED_BEFORE records it before the work. KEYED_AFTER looks
 * whether it is done (begin, and abandon where it was not), and records it after the work: the well-known mistake. Work that was refused
 * or failed was not done, so its key is free again; of work that timed out nobody knows, so its key stays in work, and who repeats it hears
 * that it is busy.
 *
 * Patience. The client goes, the work does not: whoever works on it does not notice, as a server does not. What the client got is late,
 * and it got that when its patience ended.
 *
 * A fault that was injected with resctl is an attempt that failed, and is retried as one.
 *
 * The end of the rehearsal is no outcome. Who is in the middle gives back what it holds, and leaves its notes undone.
 */
#include "play.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

struct request {
	struct player *player;
	struct request_note *note;
	const struct load *load;
	uint32_t index;
	uint16_t tries[SCENARIO_RESOURCES];
	int answer;        /* the last one of libresc */
	bool over;         /* the rehearsal ended before it did */
	bool during_fault; /* the last call was */
	int error;         /* a negative answer of libresc */
};

/* ---- what cannot be ---- */

static enum resc_outcome broken(struct request *q, const char *what, uint32_t resource, int r)
{
	fprintf(stderr, "resctl rehearse: worker %u: %s of '%s': %s\n", q->player->worker, what, q->player->scenario->resources[resource],
	        resc_text(r));
	q->error = r;
	return RESC_CANCELLED;
}

static bool has_ended_early(const struct request *q)
{
	return q->over || q->error != 0;
}

/* ---- notes ---- */

static struct attempt_note *new_attempt(struct request *q, uint32_t resource)
{
	struct attempt_note *note = board_attempt(q->player->board);

	if (note == NULL)
		note = &q->player->spare;
	note->asked_ns = board_now(q->player->board);
	note->request = q->index;
	note->worker = (uint16_t)q->player->worker;
	note->resource = (uint16_t)resource;
	note->try = ++q->tries[resource];
	note->wait_ns = -1;
	note->retry = -1;
	return note;
}

static void attempt_done(struct attempt_note *note)
{
	/* release: the note is complete */
	atomic_store_explicit(&note->done, 1, memory_order_release);
}

static void note_refusal(struct request *q, struct attempt_note *note, int answer)
{
	note->answer = (int16_t)answer;
	note->entered_ns = note->ended_ns = board_now(q->player->board);
	q->answer = answer;
	attempt_done(note);
}

/* ---- the innermost: the call ---- */

struct reply {
	enum resc_outcome outcome;
	int64_t retry_after_ms; /* -1: none */
};

/* Work that no dependency does: the time passes inside. */
static struct reply work(struct request *q, int64_t timeout_ms)
{
	bool in_time = timeout_ms < 0 || q->load->work_ns <= timeout_ms * 1000000;
	int64_t ns = in_time ? q->load->work_ns : timeout_ms * 1000000;

	if (!board_sleep_until(q->player->board, board_now(q->player->board) + ns)) {
		q->over = true;
		return (struct reply){RESC_CANCELLED, -1};
	}
	return (struct reply){in_time ? RESC_OK : RESC_TIMEOUT, -1};
}

static struct reply call(struct request *q, const struct attempt_note *note, int64_t timeout_ms)
{
	const struct call call = {.request = q->index, .try = note->try, .probe = note->probe, .timeout_ms = timeout_ms};

	if (q->load->dependency < 0)
		return work(q, timeout_ms);
	struct call_result result = caller_call(q->player->caller, (unsigned)q->load->dependency, &call);
	q->during_fault = result.during_fault;
	if (result.outcome == RESC_CANCELLED && board_is_over(q->player->board))
		q->over = true;
	return (struct reply){result.outcome, result.retry_after_ms};
}

/* ---- a layer ---- */

static struct reply play_layer(struct request *q, size_t layer, int64_t deadline_ns);

/* NOLINTNEXTLINE(misc-no-recursion): as deep as the chain, at most SCENARIO_CHAIN */
static struct reply play_inside(struct request *q, size_t layer, const struct attempt_note *note, int64_t deadline_ns, int64_t timeout_ms)
{
	if (layer + 1 == q->load->chain_count)
		return call(q, note, timeout_ms);
	struct reply reply = play_layer(q, layer + 1, timeout_ms < 0 ? deadline_ns : resc_deadline_within_ms(deadline_ns, timeout_ms));
	/* The word of the dependency was for the layer that called it. */
	reply.retry_after_ms = -1;
	return reply;
}

static resc_options options_of(const struct request *q, size_t layer, int64_t deadline_ns)
{
	resc_options options = RESC_OPTIONS_INIT;

	options.deadline_ns = deadline_ns;
	options.priority = q->load->priority;
	options.cost = q->load->cost;
	if (layer > 0 && q->load->retried_upstream)
		options.flags = RESC_RETRIED_UPSTREAM;
	return options;
}

/* The answer of resc_enter where it is none of admission. */
static struct reply refused(struct request *q, struct attempt_note *note, uint32_t resource, int answer)
{
	if (answer < 0)
		return (struct reply){broken(q, "resc_enter", resource, answer), -1};
	note_refusal(q, note, answer);
	return (struct reply){answer == RESC_E_DEADLINE ? RESC_TIMEOUT : RESC_FAIL, -1};
}

/* Admitted, and made to fail by an operator: libresc has counted and given back everything. */
static struct reply injected(struct request *q, struct attempt_note *note, int answer)
{
	struct reply reply = {answer == RESC_E_INJECTED ? RESC_FAIL : RESC_TIMEOUT, -1};

	note->entered_ns = note->ended_ns = board_now(q->player->board);
	note->injected = true;
	note->outcome = (uint8_t)reply.outcome;
	q->note->attempts++;
	q->answer = 0;
	return reply;
}

/* One attempt, from the question to the outcome. False: it was refused. */
/* NOLINTNEXTLINE(misc-no-recursion): see play_inside */
static bool attempt(struct request *q, size_t layer, const resc_options *options, struct attempt_note *note, struct reply *reply)
{
	uint32_t resource = q->load->chain[layer];
	resc_ticket ticket;
	int r = resc_enter(q->player->resources[resource], options, &ticket);

	if (r == RESC_E_INJECTED || r == RESC_E_INJECTED_TIMEOUT) {
		*reply = injected(q, note, r);
		return true;
	}
	if (r != 0) {
		*reply = refused(q, note, resource, r);
		return false;
	}
	note->entered_ns = board_now(q->player->board);
	note->probe = ticket.probe;
	q->note->attempts++;
	q->answer = 0;
	*reply = play_inside(q, layer, note, options->deadline_ns, ticket.timeout_ms);
	r = resc_leave_after(&ticket, reply->outcome, reply->retry_after_ms);
	if (r < 0)
		reply->outcome = broken(q, "resc_leave_after", resource, r);
	note->ended_ns = board_now(q->player->board);
	note->outcome = (uint8_t)reply->outcome;
	note->during_fault = q->during_fault;
	return true;
}

/* Shall there be another attempt? Where it shall, this returns when its time has come. */
static bool again(struct request *q, uint32_t resource, struct attempt_note *note, resc_retry_plan *plan, const struct reply *reply)
{
	int64_t wait_ns;

	if (!q->load->retries || (reply->outcome != RESC_FAIL && reply->outcome != RESC_TIMEOUT)) {
		attempt_done(note);
		return false;
	}
	if (reply->retry_after_ms >= 0)
		plan->pushback_ms = reply->retry_after_ms;
	int r = resc_retry(q->player->resources[resource], plan, reply->outcome, &wait_ns);
	if (r < 0) {
		broken(q, "resc_retry", resource, r);
		return false;
	}
	note->retry = (int16_t)r;
	note->wait_ns = r == 0 ? wait_ns : -1;
	attempt_done(note);
	q->answer = r;
	if (r != 0)
		return false;
	q->over = !board_sleep_until(q->player->board, board_now(q->player->board) + wait_ns);
	return !q->over;
}

/* The policy's total timeout, or the deadline that it was given: whichever comes first. */
static int64_t layer_deadline(struct request *q, uint32_t resource, int64_t deadline_ns)
{
	struct resc_timeouts timeouts;
	int r = resc_timeouts(q->player->resources[resource], &timeouts);

	if (r < 0)
		broken(q, "resc_timeouts", resource, r);
	return r < 0 || timeouts.total_ms < 0 ? deadline_ns : resc_deadline_within_ms(deadline_ns, timeouts.total_ms);
}

/* NOLINTNEXTLINE(misc-no-recursion): see play_inside */
static struct reply play_layer(struct request *q, size_t layer, int64_t deadline_ns)
{
	uint32_t resource = q->load->chain[layer];
	struct reply reply = {RESC_CANCELLED, -1};
	resc_options options = options_of(q, layer, layer_deadline(q, resource, deadline_ns));
	resc_retry_plan plan = RESC_RETRY_INIT;

	plan.flags = options.flags;
	plan.deadline_ns = options.deadline_ns;
	while (!has_ended_early(q)) {
		struct attempt_note *note = new_attempt(q, resource);
		if (!attempt(q, layer, &options, note, &reply) || has_ended_early(q))
			break;
		if (!again(q, resource, note, &plan, &reply))
			break;
		options.flags |= RESC_RETRY;
	}
	return reply;
}

/* ---- keys ---- */

static resc_resource *last_resource(const struct request *q)
{
	return q->player->resources[q->load->chain[q->load->chain_count - 1]];
}

static int begin_key(const struct request *q, int64_t deadline_ns, resc_once *once)
{
	const struct load *load = q->load;
	resc_options options = RESC_OPTIONS_INIT;
	char key[RESC_ONCE_KEY_MAX];
	int size = load->key != NULL ? snprintf(key, sizeof(key), "%s", load->key)
	                             : snprintf(key, sizeof(key), "%s %u", load->name, (unsigned)q->note->number);

	options.deadline_ns = deadline_ns;
	return resc_once_begin(last_resource(q), key, (size_t)size < sizeof(key) ? (size_t)size : sizeof(key) - 1, &options, once);
}

static void key_is_broken(struct request *q, const char *what, int r)
{
	broken(q, what, q->load->chain[q->load->chain_count - 1], r);
}

static void settle_key(struct request *q, resc_once *once, enum resc_outcome outcome)
{
	int r = 0;

	if (outcome == RESC_OK || outcome == RESC_IGNORED)
		r = resc_once_done(once, "done", 4);
	else if (outcome == RESC_FAIL)
		r = resc_once_abandon(once);
	/* Somebody else may settle a key that has expired meanwhile. */
	if (r < 0 && r != -ESTALE)
		key_is_broken(q, "resc_once_done", r);
}

/* -ENOSPC, no room for another key, is an answer: the work is not done. */
static bool key_refused(struct request *q, int r)
{
	if (r < 0 && r != -ENOSPC)
		key_is_broken(q, "resc_once_begin", r);
	q->answer = r;
	return r != 0;
}

static enum served play_before(struct request *q, int64_t deadline_ns, enum resc_outcome *outcome)
{
	resc_once once;
	int r = begin_key(q, deadline_ns, &once);

	if (r == RESC_ONCE_DONE)
		return SERVED_STORED;
	if (key_refused(q, r))
		return SERVED_FAILED;
	*outcome = play_layer(q, 0, deadline_ns).outcome;
	if (q->error == 0)
		settle_key(q, &once, *outcome);
	return SERVED_NOT_YET;
}

static enum served play_after(struct request *q, int64_t deadline_ns, enum resc_outcome *outcome)
{
	resc_once once;
	int r = begin_key(q, deadline_ns, &once);

	if (r == RESC_ONCE_DONE)
		return SERVED_STORED;
	if (r == 0)
		resc_once_abandon(&once);
	else if (r < 0 && key_refused(q, r))
		return SERVED_FAILED;
	*outcome = play_layer(q, 0, deadline_ns).outcome;
	if ((*outcome == RESC_OK || *outcome == RESC_IGNORED) && begin_key(q, RESC_NO_DEADLINE, &once) == 0)
		settle_key(q, &once, *outcome);
	return SERVED_NOT_YET;
}

/* ---- all of it ---- */

static enum served serve(struct request *q, int64_t deadline_ns, enum resc_outcome *outcome)
{
	switch (q->load->keyed) {
	case KEYED_BEFORE:
		return play_before(q, deadline_ns, outcome);
	case KEYED_AFTER:
		return play_after(q, deadline_ns, outcome);
	case KEYED_NOT:
		break;
	}
	*outcome = play_layer(q, 0, deadline_ns).outcome;
	return SERVED_NOT_YET;
}

/* What its client got. */
static enum served served_as(struct request *q, enum served served, enum resc_outcome outcome)
{
	const struct load *load = q->load;

	if (load->patience_ns != 0 && q->note->ended_ns > q->note->arrival_ns + load->patience_ns) {
		q->note->ended_ns = q->note->arrival_ns + load->patience_ns;
		return SERVED_LATE;
	}
	if (served == SERVED_STORED)
		return served;
	if (served == SERVED_NOT_YET && (outcome == RESC_OK || outcome == RESC_IGNORED))
		return SERVED_FRESH;
	if (load->fallback[0] == '\0')
		return SERVED_FAILED;
	int r = resc_fallback(last_resource(q), load->fallback);
	if (r < 0)
		key_is_broken(q, "resc_fallback", r);
	return SERVED_FALLBACK;
}

int play(struct player *player, struct request_note *note)
{
	struct request q = {.player = player,
	                    .note = note,
	                    .load = &player->scenario->loads[note->load],
	                    .index = (uint32_t)(note - player->board->requests)};
	enum resc_outcome outcome = RESC_CANCELLED;
	int64_t deadline_ns = RESC_NO_DEADLINE;

	note->worker = (uint16_t)player->worker;
	note->begun_ns = board_now(player->board);
	if (q.load->deadline_ns != 0)
		deadline_ns = player->board->start_ns + note->arrival_ns + q.load->deadline_ns;
	enum served served = serve(&q, deadline_ns, &outcome);
	if (has_ended_early(&q))
		return q.error;
	note->ended_ns = board_now(player->board);
	note->answer = (int16_t)q.answer;
	served = served_as(&q, served, outcome);
	if (q.error != 0)
		return q.error;
	board_request_ended(player->board, note, served);
	return 0;
}
