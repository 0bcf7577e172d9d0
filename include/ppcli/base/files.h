/* SPDX-License-Identifier: Apache-2.0 */
/* Files: written whole or not at all, read, mapped; and the forms JSON and protobuf. */
#ifndef PPCLI_BASE_FILES_H
#define PPCLI_BASE_FILES_H

#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "ppcli/base/base.h"

/* ---- file */

/* Opening and reading what is a file, folders, and paths. Whole-or-absent files: ppcli/base/files.h. */

/* mkdir -p, durable: each new name is flushed with the folder that holds it. 0 when the folder is there
 * afterwards. Errors: PP_EPERM, PP_EIO. */
int pp_dir_create(const char *path);

/*
 * Tell "there is nothing of that name" from "it cannot be looked at", which a run must never take for
 * the same: out->st_mode is 0 where nothing is. follow: through symbolic links, one of which may
 * lead nowhere: an error, as the disk that it names may not be mounted. Errors: PP_EPERM, PP_EIO,
 * PP_ERESOURCE. Local.
 */
int pp_path_stat(const char *path, bool follow, struct stat *out);

/* The names in a folder but "." and "..", in any order and with a NULL at the end; none where there is
 * no folder. Caller pp_free()s *out, and nothing in it. Errors: PP_EFORMAT (not a folder), those of
 * pp_path_stat(). Local. */
int pp_dir_names(const char *path, char ***out);

/*
 * Open a regular file (or a symbolic link to one) for reading. A FIFO, folder, device or socket is
 * refused without waiting on it. Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (not a regular
 * file). The descriptor is the caller's. Local.
 */
int pp_open_regular(const char *path, int *out_fd, uint64_t *out_bytes);

/* The same as a FILE. */
int pp_file_open(const char *path, FILE **out, uint64_t *out_bytes);

/*
 * A file for writing as things come, made when it is not there. flags: O_TRUNC or O_APPEND, and
 * O_NOFOLLOW where a symbolic link must not lead elsewhere. A FIFO without a reader is refused
 * without waiting. Errors: PP_EPERM, PP_ENOINPUT (no such folder), PP_EIO. Caller closes *out.
 * Local.
 */
int pp_file_append(const char *path, int flags, FILE **out);

/*
 * All of a regular file of at most `bytes_max` bytes, with a NUL after it. Caller pp_free()s
 * *out_text. Errors: those of pp_open_regular(), PP_EFORMAT (larger), PP_ERESOURCE. Local.
 */
int pp_file_read(const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes);
/* The same from a descriptor of any kind, to its end; path: for messages. */
int pp_fd_read(int fd, const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes);
/* Exactly `bytes` bytes from `offset` on. Errors: PP_EIO, PP_EFORMAT (the file became shorter). */
int pp_fd_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t bytes);

/* Behind `key` in the first line of a small file that begins with it, without the blanks and the
 * colon between ("": the first line); "" when there is none. Records no failure. Local. */
void pp_file_value(const char *path, const char *key, char *out, size_t bytes);

/* SHA-256 over size and bytes of a file, or of the files in a folder and their names. Of a file above
 * 32 MiB: its first 16 MiB and 256 pieces of the rest. Errors: those of pp_open_regular(). Local. */
int pp_path_digest(const char *path, char out[PP_SHA256_HEX]);

/* For PP_OWN(): accept NULL and -1. */
void pp_fclose_at(FILE **f);
void pp_closedir_at(DIR **d);
void pp_close_at(const int *fd);

/* Whether `dir`, which has no model.safetensors, is another kind of Hugging Face's folders (a cache
 * folder, a LoRA adapter, weights of torch.save(), a file of another name): what it is and the way
 * out into out[bytes]. Local. */
bool pp_hf_folder_is(const char *dir, char *out, size_t bytes);

/* snprintf into a path buffer of PP_PATH_MAX bytes. Errors: PP_ECONFIG when it does not fit. */
int pp_path_format(char out[PP_PATH_MAX], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- io */

/*
 * The file operations that make something durable, through one small table: what a save does to the
 * disk is exactly the list of calls that went through here, so that a test can record it, let any
 * one of the calls fail, or stop before and after each. Reading does not go through here.
 */

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

/* ---- mapping */

/*
 * Files in memory that outlive what others do to them. A page that is gone, because the file was cut
 * or its disk fails, is replaced by zeros instead of ending the process by SIGBUS; the owner asks
 * afterwards whether the file is still what it was.
 */

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

/* ---- json */

/*
 * JSON writer: streaming, no allocation, onto a FILE the caller owns. Strings are escaped, invalid
 * UTF-8 bytes become U+FFFD, numbers are printed so that they read back to the same value, NaN and
 * infinities become null. Write errors stay in the FILE's error flag: check it once at the end.
 */

#define PP_JSON_DEPTH 16

struct pp_json {
    FILE *f;
    int indent; /* spaces per level; 0 writes everything on one line */
    int depth;
    bool any[PP_JSON_DEPTH];      /* something was written at this level */
    bool is_array[PP_JSON_DEPTH]; /* which bracket closes this level */
};

/* An object, which the last pp_json_end() closes. */
struct pp_json pp_json_begin(FILE *f, int indent);

/* key is NULL inside arrays. */
void pp_json_object(struct pp_json *j, const char *key);
void pp_json_array(struct pp_json *j, const char *key);
void pp_json_end(struct pp_json *j); /* closes the innermost; the outermost adds a newline */

void pp_json_str(struct pp_json *j, const char *key, const char *value); /* NULL writes null */
void pp_json_int(struct pp_json *j, const char *key, int64_t value);
void pp_json_uint(struct pp_json *j, const char *key, uint64_t value);
void pp_json_dbl(struct pp_json *j, const char *key, double value);
void pp_json_bool(struct pp_json *j, const char *key, bool value);
void pp_json_raw(struct pp_json *j, const char *key, const char *value); /* JSON already */

/* ---- json in */

/* Reading JSON that may be hostile: bounded before the parser sees it. */

/* What may be in a text: one value needs up to fifty times its bytes once it is parsed. */
struct pp_json_limits {
    int depth;       /* of open brackets; 1: an object of plain values */
    size_t items;    /* commas above the innermost level */
    int inner_items; /* values in one bracket of the innermost level */
};

/*
 * Parse an object. Refused: any other value, duplicate keys, invalid UTF-8, NUL characters, text
 * after the object, more than the limits allow. Caller decref's *out.
 * Errors: PP_EFORMAT beginning with `label`, PP_ERESOURCE. Local.
 */
int pp_json_read(const char *label, const char *text, size_t bytes,
                 const struct pp_json_limits *limits, json_t **out);

/*
 * The parser alone, with jansson's own flags and no limits: *out NULL where the text is damaged,
 * and *e (may be NULL) says how. jansson itself is not called for parsing: it cannot do without
 * memory. PP_ERESOURCE when there is none. Caller decref's *out. Local.
 */
int pp_json_load(const char *text, size_t bytes, size_t flags, json_error_t *e, json_t **out);

/* `text` for a message: what is not printable ASCII becomes '?', and it is cut; returns out. */
#define PP_JSON_SHOWN 160
const char *pp_json_shown(const char *text, char out[PP_JSON_SHOWN]);

/* ---- protobuf */

/* Bytes that grow, and the wire format of protobuf messages made of them. */

struct pp_bytes { /* begins as {0} */
    uint8_t *at;  /* [n]; owned */
    size_t n, room;
    bool lost; /* there was no memory for some */
};

void pp_bytes_fini(struct pp_bytes *b);
void pp_bytes_put(struct pp_bytes *b, const void *data, size_t n);
void pp_bytes_little(struct pp_bytes *b, uint64_t value, int n); /* its n low bytes */

/* The key of a field: its number and how its value is laid out. */
enum pp_wire {
    PP_WIRE_VARINT = 0,
    PP_WIRE_FIXED64 = 1,
    PP_WIRE_LENGTH = 2,
    PP_WIRE_FIXED32 = 5
};

void pp_bytes_varint(struct pp_bytes *b, uint64_t value);
void pp_bytes_key(struct pp_bytes *b, int field, enum pp_wire wire);
/* Fields: a whole number, a float, bytes or a message, a text. */
void pp_bytes_int(struct pp_bytes *b, int field, int64_t value);
void pp_bytes_float(struct pp_bytes *b, int field, float value);
void pp_bytes_part(struct pp_bytes *b, int field, const void *data, size_t n);
void pp_bytes_text(struct pp_bytes *b, int field, const char *text);

#endif
