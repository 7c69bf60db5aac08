/* SPDX-License-Identifier: MIT */
/* The log of rescd: one line a fact, to stderr. */
#ifndef RESCD_LOG_H
#define RESCD_LOG_H

#include <stdbool.h>

/* Looks once at what stderr is; verbose lets log_debug through. */
void log_setup(bool verbose);

void log_line(const char *format, ...) __attribute__((format(printf, 1, 2)));
/* Only with --verbose. */
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
