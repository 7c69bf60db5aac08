/* SPDX-License-Identifier: MIT */
/* A segment as JSON: docs/snapshot.schema.json describes it, and tests hold the two together. */
#ifndef RESCTL_SNAPSHOT_JSON_H
#define RESCTL_SNAPSHOT_JSON_H

#include <jansson.h>

#include "event.h"
#include "inspect.h"

#define SNAPSHOT_VERSION 1
/* For json_dump*: 0.1 is written as 0.1. */
#define SNAPSHOT_JSON_FLAGS JSON_REAL_PRECISION(15)

/* The document as compact text of that size, without a NUL, for free(); NULL when memory was not enough. */
char *snapshot_text(const struct map *map, size_t *size);
/* Each returns a new reference, or NULL when memory was not enough: never a part. */
json_t *snapshot_json(const struct map *map);
/* An array of "resources", for these indices; those that are not in use any more are left out. */
json_t *resources_json(const struct map *map, const uint32_t *indices, size_t count);
json_t *workers_json(const struct map *map);
json_t *event_json(const struct map *map, const struct event *event);

/* Names as JSON and people spell them. */
const char *breaker_name(unsigned tag);                         /* "closed", "open", "half_open" */
const char *daemon_status(const struct inspect_daemon *daemon); /* "running", "silent", "stopped" */
/* As the configuration spells them. */
const char *backoff_name(uint64_t backoff);
const char *jitter_name(uint64_t jitter);
const char *deposit_name(uint64_t deposit);
const char *on_death_name(uint64_t on_death);
/* What an event's values mean, for its kind and reason; NULL: it has no such value. */
const char *event_value_name(const struct event *event, unsigned i);

/* rescd turns its loop each second; after this it is silent: stopped, or hung. */
#define HEARTBEAT_SILENT_MS 5000u

#endif
