/* SPDX-License-Identifier: MIT */
/* What rescd does with resource states on its turn of each second, and how it looks at them without keeping them in its memory. */
#ifndef RESCD_STATES_H
#define RESCD_STATES_H

#include "map.h"

/* Indices below this may be in use. */
uint32_t states_in_use(const struct map *map);

/*
 * Gives back the page table entries of the states that were touched; the states themselves stay where they are. Without this, rescd
 * would count as large as the segment after its first scrape.
 */
void states_forget(const struct map *map);
/* The same in a pass over all states, at every so many. */
void states_forget_now_and_then(const struct map *map, uint32_t index);

/* One turn over all states. */
void states_tick(const struct map *map);

#endif
