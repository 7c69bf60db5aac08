/* SPDX-License-Identifier: MIT */
/* The metrics page: GET /metrics, and /healthz. */
#ifndef RESCD_METRICS_H
#define RESCD_METRICS_H

#include <stdio.h>

#include "loop.h"
#include "map.h"

struct MHD_Daemon;

#define METRICS_CONNECTIONS 32

struct metrics_connection {
	int fd; /* -1: none */
	uint64_t until_ms;
};

struct metrics {
	struct loop *loop;
	const struct map *map;   /* the segment to show; may be another one at the next request */
	struct MHD_Daemon *http; /* NULL: no page */
	struct watch watch;
	char address[64];        /* as configured */
	const uint64_t *refused; /* connections that the control socket refused; set before metrics_open, by whoever has such a socket */
	struct metrics_connection connections[METRICS_CONNECTIONS];
};

/* Serves at HOST:PORT or [HOST]:PORT; "" serves nowhere. On failure nothing is served. 0 or -errno with err. */
int metrics_open(struct metrics *metrics, struct loop *loop, const struct map *map, const char *address, struct resc_error *err);
/* Where it really listens, for port 0: the port, or 0. */
unsigned metrics_port(const struct metrics *metrics);
/* Ends connections whose time is over. Called each second. */
void metrics_tick(struct metrics *metrics);
void metrics_close(struct metrics *metrics);

/* Writes the page: Prometheus text 0.0.4, or OpenMetrics 1.0. 0 or -ENOMEM. */
int metrics_write(FILE *out, const struct map *map, bool openmetrics);

#endif
