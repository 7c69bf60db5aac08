/* SPDX-License-Identifier: MIT */
/* Reads a configuration file into memory, or says why not. */
#ifndef RESCD_CONFIG_FILE_H
#define RESCD_CONFIG_FILE_H

#include "config_problem.h"

/* 0, and *text is to be freed; or -errno with a problem: what open(2) said, or -EINVAL for what is no regular file or too large. */
int config_file_read(const char *path, char **text, size_t *size, struct config_problems *problems);
/* What no parser need see: nothing at all, NUL bytes, a byte-order mark, too much. 0, or -EINVAL with a problem. */
int config_text_check(const char *text, size_t size, struct config_problems *problems);

#endif
