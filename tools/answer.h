/* SPDX-License-Identifier: MIT */
/* How resctl and resctl-rehearse say something. */
#ifndef RESCTL_ANSWER_H
#define RESCTL_ANSWER_H

#include <jansson.h>
#include <stdarg.h>

#include "table.h"

/* "PROGRAM: ..." on stderr, behind what was printed so far, and safe for a terminal. */
__attribute__((format(printf, 2, 0))) void answer_complain(const char *program, const char *format, va_list args);
/* A document and a newline on stdout, indented when people read it; takes the reference. False: it could not be written. */
bool answer_json(const struct screen *screen, json_t *json);

#endif
