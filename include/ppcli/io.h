/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file operations that make something durable, through one small table: what a save does to the
 * disk is exactly the list of calls that went through here, so that a test can record it, let any
 * one of the calls fail, or stop before and after each. Reading does not go through here.
 */
#ifndef PPCLI_IO_H
#define PPCLI_IO_H

#include <sys/types.h>

#include "ppcli/file.h"
#include "ppcli/sha256.h"

struct pp_io;

/* Each as the system call of that name: 0 or a descriptor or a count, else -1 and errno. */
struct pp_io_ops {
    int (*create)(const struct pp_io *io, const char *path); /* new file only, for writing */
    ssize_t (*write)(const struct pp_io *io, int fd, const void *data, size_t bytes);
    int (*fsync)(const struct pp_io *io, int fd);
    int (*close)(const struct pp_io *io, int fd); /* the descriptor is gone also after -1 */
    int (*rename)(const struct pp_io *io, const char *from, const char *to);
    int (*exchange)(const struct pp_io *io, const char *a, const char *b); /* swap two names */
    int (*unlink)(const struct pp_io *io, const char *path);
    int (*mkdir)(const struct pp_io *io, const char *path);
    int (*rmdir)(const struct pp_io *io, const char *path);
    /* fsync of a folder; 0 also where the file system has no such thing. */
    int (*sync_dir)(const struct pp_io *io, const char *path);
    int (*space)(const struct pp_io *io, const char *path, uint64_t *out_bytes); /* free for us */
};

/* Usually pp_io_system; a test embeds this in a bigger struct of its own. */
struct pp_io {
    const struct pp_io_ops *ops;
};

extern const struct pp_io pp_io_system;

/* The operations with EINTR repeated and errors said: "cannot <action> <path>: <errno>".
 * Errors: PP_EIO, PP_EPERM, PP_ENOINPUT, PP_ERESOURCE by errno. Local. */
int pp_io_mkdir(const struct pp_io *io, const char *path); /* also 0 when the folder is there */
int pp_io_rename(const struct pp_io *io, const char *from, const char *to);
int pp_io_unlink(const struct pp_io *io, const char *path);
int pp_io_rmdir(const struct pp_io *io, const char *path);
int pp_io_sync_dir(const struct pp_io *io, const char *path);

/* A file on its way: under a temporary name beside `path` until pp_io_commit(). */
struct pp_io_file {
    const struct pp_io *io;
    int fd; /* -1: none */
    char path[PP_PATH_MAX];
    char temp[PP_PATH_MAX];
    uint64_t bytes;       /* written so far */
    struct pp_sha256 sha; /* of them */
};

int pp_io_create(const struct pp_io *io, const char *path, struct pp_io_file *out);

/* All of the bytes. On failure the file is abandoned. */
int pp_io_write(struct pp_io_file *f, const void *data, size_t bytes);

/*
 * fsync, close, rename to its final name; out_digest (NULL: not wanted) is that of the content. The
 * name itself is durable after pp_io_sync_dir() of the folder, which is the caller's. On failure
 * the file is abandoned: after a failed fsync it is lost, and never flushed again.
 */
int pp_io_commit(struct pp_io_file *f, uint8_t out_digest[PP_SHA256_BYTES]);

/* Accepts one that was committed, abandoned or never created. Keeps the error record. */
void pp_io_abandon(struct pp_io_file *f);

/* Remove the files of this process that are on their way, before a signal ends it. For handlers: system
 * calls only. */
void pp_io_remove_temporary(void);

/* The same as a FILE of the system. */
struct pp_file_write {
    FILE *f; /* write here */
    struct pp_io_file to;
};

/* Errors: PP_EPERM, PP_EIO (also: there is something of that name and it is not a file), PP_ENOINPUT
 * (no such directory). */
int pp_file_create(const char *path, struct pp_file_write *out);

/* Make it durable under its final name. On failure the temporary file is gone and what was there
 * before is untouched. Errors: PP_EIO, PP_EPERM. */
int pp_file_commit(struct pp_file_write *w);

/* The file dir/name with this text, created and committed. Errors: of both. */
int pp_file_write_text(const char *dir, const char *name, const char *text);

/* What draw() writes, as the file `path`, created first and committed last; "-" is standard output.
 * Errors: of both and of draw(). */
int pp_file_draw(const char *path, int (*draw)(const void *ctx, FILE *f), const void *ctx);

void pp_file_abandon(struct pp_file_write *w); /* accepts one that was committed or never opened */

#endif
