/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bytes of a data file, inflated when it is gzip, which its first bytes tell. A gzip file may
 * have several members, one after the other; anything else after the last of them is refused, and
 * so is a stream that is cut short or fails its checksum.
 */
#ifndef PPCLI_DATA_SOURCE_H
#define PPCLI_DATA_SOURCE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pp_source;

enum pp_source_kind {
    PP_SOURCE_RAW, /* as it is, also when it is gzip */
    PP_SOURCE_INFLATED
};

/* Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (no regular file, empty), PP_ERESOURCE; every
 * text begins with the path, which must outlive *out. Local. */
int pp_source_open(const char *path, enum pp_source_kind kind, struct pp_source **out);
void pp_source_close(struct pp_source **s); /* accepts NULL inside */
bool pp_source_is_gzip(const struct pp_source *s);

/* Up to n bytes; *out_got < n only at the end, after every check has passed. */
int pp_source_read(struct pp_source *s, void *out, size_t n, size_t *out_got);

/* Exactly n bytes, which `what` ("data", "header") is made of. Errors: PP_EFORMAT too. */
int pp_source_pull(struct pp_source *s, void *out, size_t n, const char *what);

/* All of a file, inflated, with a NUL after it; pp_free(). Errors: those of pp_source_open() and of
 * reading; PP_EFORMAT (more than 1 GiB). */
int pp_source_text(const char *path, char **out, size_t *out_bytes);

/* PP_EFORMAT unless all has been read. */
int pp_source_finish(struct pp_source *s);

/*
 * PP_EFORMAT when a file of this size cannot hold `bytes` in all, so that nothing is allocated for
 * a header that lies: a plain file has exactly as many, a gzip file at most 1032 times its size.
 */
int pp_source_holds(const struct pp_source *s, uint64_t bytes);

/* The file's first bytes, for a message: "3c 21 64 6f (a web page?)"; returns out. */
const char *pp_source_head(const struct pp_source *s, char *out, size_t bytes);

/* The files in a tar archive, gzipped or plain, whose names end in `suffix`, into dir without their
 * folders. One that is there in the right size stays. Errors: those of reading; PP_EFORMAT: no tar
 * archive; PP_EPERM, PP_EIO. Local. */
int pp_tar_unpack(const char *path, const char *dir, const char *suffix);

#endif
