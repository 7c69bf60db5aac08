/* SPDX-License-Identifier: MIT */
/* Talks to the control socket of a rescd: what resctl reload uses. */
#ifndef RESCD_CONTROL_CLIENT_H
#define RESCD_CONTROL_CLIENT_H

#include <jansson.h>
#include <sys/types.h>

#include "resc.h"

/*
 * Sends {"command": command} to the socket at path and waits for the answer, at most timeout_ms. 0 and *answer is an object, for the
 * caller to json_decref; it says in "ok" whether the command succeeded. Otherwise -errno with err: -ENOENT or -ECONNREFUSED nobody
 * listens there, -EACCES, -EPERM it is served by somebody else than root, ourselves and owner, who owns the segment; -ETIMEDOUT, -EPROTO
 * the answer was none.
 */
int control_request(const char *path, uid_t owner, const char *command, int timeout_ms, json_t **answer, struct resc_error *err);

#endif
