/* SPDX-License-Identifier: Apache-2.0 */
/* Telling what a data file is by its first bytes. */
#ifndef PPCLI_DATA_OPEN_H
#define PPCLI_DATA_OPEN_H

#include <stddef.h>
#include <stdint.h>

enum pp_magic {
    PP_MAGIC_OTHER,
    PP_MAGIC_GZIP,
    PP_MAGIC_IDX,
    PP_MAGIC_MARKUP
};

enum pp_magic pp_magic_of(const uint8_t *b, size_t n);

/* The first bytes for a message: "3c 21 64 6f (HTML or XML?)"; returns out. */
const char *pp_magic_text(const uint8_t *b, size_t n, char *out, size_t bytes);

#endif
