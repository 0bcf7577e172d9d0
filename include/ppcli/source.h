/* SPDX-License-Identifier: Apache-2.0 */
/* The text of a file, plain or gzip. */
#ifndef PPCLI_SOURCE_H
#define PPCLI_SOURCE_H

#include <stddef.h>

#include "ppcli/err.h"

/* All of a file, inflated, with a NUL after it; pp_free(). Errors: PP_ENOINPUT, PP_EPERM, PP_EIO,
 * PP_EFORMAT (no regular file, empty, more than 1 GiB), PP_ERESOURCE. Local. */
int pp_source_text(const char *path, char **out, size_t *out_bytes);

#endif
