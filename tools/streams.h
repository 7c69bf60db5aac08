/* SPDX-License-Identifier: MIT */
/* The standard streams of a program that answers on stdout. */
#ifndef RESCTL_STREAMS_H
#define RESCTL_STREAMS_H

/*
 * At the beginning of main. A standard stream that was closed is made one that only fails, and when the program ends with an answer that
 * could not be written (a closed pipe, a full disk), it says so and its exit code is `failed`, whatever else it would have been.
 */
void streams_guard(const char *program, int failed);

#endif
