/* SPDX-License-Identifier: MIT */
/* What suggest.h worked out, for people and for programs. */
#ifndef RESCTL_SUGGEST_TEXT_H
#define RESCTL_SUGGEST_TEXT_H

#include <jansson.h>

#include "suggest.h"
#include "table.h"

/* False: memory was not enough for all of it. */
bool suggest_print(const struct screen *screen, const char *name, const struct suggest_facts *facts);
/* Every key is always there. NULL: out of memory. */
json_t *suggest_json(const char *name, const struct suggest_facts *facts);

#endif
