/* SPDX-License-Identifier: MIT */
/*
 * Words for numbers. Every value that a public function returns has one sentence, and every answer has the short name that the snapshot
 * and the metrics use; both come from the tables in counters.h, so there is no second list to keep. Static strings, no locale, no
 * lock: safe in a signal handler and in a child between fork and exec.
 */
#include <errno.h>
#include <string.h>

#include "counters.h"
#include "resc.h"

static const char *answer_text(int result)
{
	switch (result) {
#define X(NAME, name, text)                                                                                                                \
	case RESC_E_##NAME:                                                                                                                \
		return text;
		RESC_REFUSALS(X)
		RESC_RETRY_REFUSALS(X)
		RESC_INJECTED_ANSWERS(X)
#undef X
#define X(NAME, name, text)                                                                                                                \
	case RESC_ONCE_##NAME:                                                                                                             \
		return text;
		RESC_ONCE_ANSWERS(X)
#undef X
	case RESC_STALE:
		return "done, but the result came too late to count: the breaker had moved on";
	default:
		return "an answer that this version of the library does not know";
	}
}

/* What these codes mean when they come from here; the system's words are about files. */
static const char *error_text(int code)
{
	switch (code) {
	case EINVAL:
		return "an argument is not valid: a NULL, a damaged or zeroed ticket, an unknown outcome, or a reserved field that is not "
		       "0";
	case ENOENT:
		return "the configuration does not have this resource";
	case ESTALE:
		return "the ticket is stale: already left, or of a parent process or an earlier life";
	case ENOMEM:
		return "out of memory";
	case ENOSPC:
		return "no room: the table is full, or the buffer is too small";
	default:
		return NULL;
	}
}

const char *resc_text(int result)
{
	if (result == 0)
		return "done";
	if (result > 0)
		return answer_text(result);
	/* Not -result: INT_MIN has no opposite. */
	const char *text = result < -4095 ? NULL : error_text(-result);
#ifdef __GLIBC__
	if (text == NULL && result >= -4095)
		text = strerrordesc_np(-result);
#endif
	return text != NULL ? text : "the system reported an error that has no text here";
}

const char *resc_answer_name(int result)
{
	if (result == 0)
		return "ok";
	if (result < 0)
		return "error";
	switch (result) {
#define X(NAME, name, text)                                                                                                                \
	case RESC_E_##NAME:                                                                                                                \
		return #name;
		RESC_REFUSALS(X)
		RESC_RETRY_REFUSALS(X)
		RESC_INJECTED_ANSWERS(X)
#undef X
#define X(NAME, name, text)                                                                                                                \
	case RESC_ONCE_##NAME:                                                                                                             \
		return "once_" #name;
		RESC_ONCE_ANSWERS(X)
#undef X
	case RESC_STALE:
		return "stale";
	default:
		return "unknown";
	}
}

const char *resc_version(void)
{
	return RESC_VERSION_STRING;
}
