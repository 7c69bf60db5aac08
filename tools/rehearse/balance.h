/* SPDX-License-Identifier: MIT */
/* Two books of one take, compared: what the callers noted, and what the segment counted. */
#ifndef REHEARSE_BALANCE_H
#define REHEARSE_BALANCE_H

#include "take.h"

/* For a take whose totals were read after its last worker had ended. 0, or -EBADMSG after saying on stderr which number does not agree. */
int balance_check(const struct take *take);

#endif
