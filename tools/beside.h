/* SPDX-License-Identifier: MIT */
/* Programs that belong together find each other. */
#ifndef RESCTL_BESIDE_H
#define RESCTL_BESIDE_H

#include <stddef.h>

/*
 * The path of a program that was built or installed together with this one: the first of the places, relative to the directory in which
 * this program's file is, that can be executed. places ends with NULL. 0, or -errno (-ENOENT: in none of them).
 */
int find_beside(const char *const places[], char *path, size_t size);

#endif
