/* SPDX-License-Identifier: Apache-2.0 */
/* Opening data files safely, and telling what a file is by its first bytes. */
#ifndef PPCLI_DATA_OPEN_H
#define PPCLI_DATA_OPEN_H

#include <stddef.h>
#include <stdint.h>

/*
 * Open a regular file (or a symbolic link to one) for reading. A FIFO, folder, device or socket is
 * refused without waiting on it. Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (not a regular
 * file). The descriptor is the caller's. Local.
 */
int pp_open_regular(const char *path, int *out_fd, uint64_t *out_bytes);

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
