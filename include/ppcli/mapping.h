/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Files in memory that outlive what others do to them. A page that is gone, because the file was cut
 * or its disk fails, is replaced by zeros instead of ending the process by SIGBUS; the owner asks
 * afterwards whether the file is still what it was.
 */
#ifndef PPCLI_MAPPING_H
#define PPCLI_MAPPING_H

#include "ppcli/file.h"

struct pp_mapping {
    uint8_t *at;
    size_t bytes;
    /* The file's own, for pp_mapping_check(). */
    int fd;
    bool writes;
    bool lost; /* pages of it were replaced */
    int64_t modified[2];
    char path[PP_PATH_MAX];
    struct pp_mapping
        *next; /* of all there ever were: closed ones have no bytes and are used again */
};

/* The first `bytes` bytes of an open file, shared with all who have it open. Takes fd over, also when it
 * fails. Errors: PP_ERESOURCE. Local. */
int pp_mapping_open(const char *path, int fd, size_t bytes, bool writes, struct pp_mapping **out);
void pp_mapping_close(struct pp_mapping **m); /* accepts NULL in *m */

/* Whether what was read until now is what the file held when it was mapped; of one that is written to
 * here, only whether all of it is there. A system call: for every step, not for every sample. Errors:
 * PP_EFORMAT (cut, extended or written to by others), PP_EIO (a page cannot be read). Any thread.
 * Local. */
int pp_mapping_check(const struct pp_mapping *m);

#endif
