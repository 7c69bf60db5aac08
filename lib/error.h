/* SPDX-License-Identifier: MIT */
/* Fills a caller's struct resc_error, which may be NULL, and hands the code on: return error_set(err, -EINVAL, ...). */
#ifndef RESC_ERROR_H
#define RESC_ERROR_H

#include <stdarg.h>
#include <stdio.h>

#include "resc.h"

__attribute__((format(printf, 3, 4))) static inline int error_set(struct resc_error *err, int code, const char *format, ...)
{
	if (err == NULL)
		return code;
	va_list args;
	va_start(args, format);
	err->code = code;
	vsnprintf(err->text, sizeof err->text, format, args);
	va_end(args);
	return code;
}

#endif
