/* SPDX-License-Identifier: MIT */
/* Random numbers for jitter and starting points: one generator a thread, no lock, no system call after the first. Not for secrets. */
#ifndef RESC_RANDOM_H
#define RESC_RANDOM_H

#include <stdint.h>

uint64_t random_next(void);
/* 0..n-1, each equally likely; 0 for n = 0. */
uint64_t random_below(uint64_t n);

#endif
