/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One fuzz target a file, fuzz_NAME.c: it gives bytes to one reader and checks more than that it
 * survives (what was accepted must print and read back as the same, sizes must fit the input). A
 * target is linked twice: to libFuzzer (scripts/fuzz.sh), and to replay.c, which runs the corpus
 * and some mutations of it in the normal suite.
 */
#ifndef PPCLI_TESTS_FUZZ_H
#define PPCLI_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ppcli/base/base.h"

/* 0 always; a finding ends the process. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A regular file of these bytes without a name; its path, valid until the same `f` is used again.
 * A target has a static one for each file it needs, from {-1}. */
struct fuzz_file {
    int fd;
    char path[64];
};

static inline const char *fuzz_file(struct fuzz_file *f, const void *data, size_t size)
{
    if (f->fd < 0) {
        f->fd = memfd_create("fuzz", MFD_CLOEXEC);
        pp_assert(f->fd >= 0);
        snprintf(f->path, sizeof(f->path), "/proc/self/fd/%d", f->fd);
    }
    ssize_t n = pwrite(f->fd, data, size, 0);
    pp_assert(n == (ssize_t)size && ftruncate(f->fd, (off_t)size) == 0);
    return f->path;
}

/* One of the codes that hostile bytes may cause, with one line of text without control bytes. */
static inline void fuzz_refused(int rc)
{
    const struct pp_error *e = pp_error_get();
    pp_assert(rc == PP_EFORMAT || rc == PP_ERESOURCE || rc == PP_ENOINPUT || rc == PP_ECONFIG ||
              rc == PP_EUSAGE);
    pp_assert(e->code == rc && e->text[0] != '\0');
    for (const char *p = e->text; *p; p++)
        pp_assert((unsigned char)*p >= 0x20 && *p != 0x7F);
}

#endif
