/* SPDX-License-Identifier: Apache-2.0 */
/* Files: written whole or not at all, read, mapped; and the formats zip, JSON and protobuf. */
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

/* ---- files, folders and paths */

/* Opens and reads regular files, folders, and paths. */

/* Creates a folder and its parents durably: each new name is flushed with the folder that holds it.
 * Succeeds if the folder exists. Errors: PP_EPERM, PP_EIO. */
int pp_dir_create(const char *path);

/*
 * Does what stat() does, but distinguishes "does not exist" from "cannot be read", which a run must
 * never confuse: out->st_mode is 0 if nothing exists at `path`. follow: follows symbolic links; a
 * link without target is an error, because the disk that it names may not be mounted. Errors:
 * PP_EPERM, PP_EIO, PP_ERESOURCE. Local.
 */
int pp_path_stat(const char *path, bool follow, struct stat *out);

/* Lists the names in a folder except "." and "..", in any order with a NULL at the end; an empty
 * list if there is no folder. Caller pp_free()s *out, and nothing in it. Errors: PP_EFORMAT (not a
 * folder), those of pp_path_stat(). Local. */
int pp_dir_names(const char *path, char ***out);

/*
 * Opens a regular file (or a symbolic link to one) for reading. A FIFO, folder, device or socket is
 * refused without waiting for it. Errors: PP_ENOINPUT, PP_EPERM, PP_EIO, PP_EFORMAT (not a regular
 * file). The caller owns the descriptor. Local.
 */
int pp_open_regular(const char *path, int *out_fd, uint64_t *out_bytes);

/* Opens a regular file for reading as pp_open_regular() does, as a FILE. Errors: the same.
 * Local. */
int pp_file_open(const char *path, FILE **out, uint64_t *out_bytes);

/*
 * Opens a file for writing that is read while it grows; creates it if it does not exist. flags:
 * O_TRUNC or O_APPEND, and O_NOFOLLOW if a symbolic link must not lead elsewhere. A FIFO without a
 * reader is refused without waiting. Errors: PP_EPERM, PP_ENOINPUT (no such folder), PP_EIO. Caller
 * closes *out. Local.
 */
int pp_file_append(const char *path, int flags, FILE **out);

/*
 * Reads a whole regular file of at most `bytes_max` bytes, and adds a NUL. Caller pp_free()s
 * *out_text. Errors: those of pp_open_regular(), PP_EFORMAT (larger), PP_ERESOURCE. Local.
 */
int pp_file_read(const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes);
/* Reads a descriptor of any kind to its end. `path` is for messages. */
int pp_fd_read(int fd, const char *path, uint64_t bytes_max, char **out_text, size_t *out_bytes);
/* Reads exactly `bytes` bytes from `offset` on. Errors: PP_EIO, PP_EFORMAT (the file became
 * shorter). */
int pp_fd_read_at(int fd, const char *path, uint64_t offset, void *dst, size_t bytes);

/* Reads a value from a small file into `out`: what follows `key` in the first line that begins with
 * it, without the blanks and the colon between them; the whole first line if `key` is ""; "" if
 * there is none. Records no failure. Local. */
void pp_file_value(const char *path, const char *key, char *out, size_t bytes);

/* Computes the SHA-256 over size and bytes of a file, or of the files in a folder and their names.
 * For a file above 32 MiB it covers the first 16 MiB and 256 pieces of the rest. Errors: those of
 * pp_open_regular(). Local. */
int pp_path_digest(const char *path, char out[PP_SHA256_HEX]);

/* Close *f, *d or *fd, for PP_OWN(). They accept NULL and -1. */
void pp_fclose_at(FILE **f);
void pp_closedir_at(DIR **d);
void pp_close_at(const int *fd);

/* Returns whether `dir`, which has no model.safetensors, is another kind of Hugging Face folder (a
 * cache folder, a LoRA adapter, weights of torch.save(), a file of another name), and puts what it
 * is and what to do into out[bytes]. Local. */
bool pp_hf_folder_is(const char *dir, char *out, size_t bytes);

/* Formats a path of at most PP_PATH_MAX bytes. Errors: PP_ECONFIG when it does not fit. */
int pp_path_format(char out[PP_PATH_MAX], const char *fmt, ...)
    __attribute__((format(printf, 2, 3)));

/* ---- durable files */

/*
 * The file operations that make something durable, through one small table. What a save does to the
 * disk is exactly the list of calls through this table, so that a test can record it, let any call
 * fail, or stop before and after each. Reading does not go through it.
 */

struct pp_io;

/* Each does the system call of that name: returns 0 or a descriptor or a count, else -1 and
 * errno. */
struct pp_io_ops {
    int (*create)(const struct pp_io *io, const char *path); /* creates a new file for writing */
    ssize_t (*write)(const struct pp_io *io, int fd, const void *data, size_t bytes);
    int (*fsync)(const struct pp_io *io, int fd);
    int (*close)(const struct pp_io *io, int fd); /* the descriptor is closed even after -1 */
    int (*rename)(const struct pp_io *io, const char *from, const char *to);
    int (*exchange)(const struct pp_io *io, const char *a, const char *b); /* swap two names */
    int (*unlink)(const struct pp_io *io, const char *path);
    int (*mkdir)(const struct pp_io *io, const char *path);
    int (*rmdir)(const struct pp_io *io, const char *path);
    /* fsync of a folder; 0 also if the file system does not support it. */
    int (*sync_dir)(const struct pp_io *io, const char *path);
    /* free bytes for this user */
    int (*space)(const struct pp_io *io, const char *path, uint64_t *out_bytes);
};

/* Usually pp_io_system; a test embeds this in a struct of its own. */
struct pp_io {
    const struct pp_io_ops *ops;
};

extern const struct pp_io pp_io_system;

/* The operations with EINTR repeated and errors reported: "cannot <action> <path>: <errno>".
 * Errors: PP_EIO, PP_EPERM, PP_ENOINPUT, PP_ERESOURCE by errno. Local. */
int pp_io_mkdir(const struct pp_io *io, const char *path); /* succeeds if the folder exists */
int pp_io_rename(const struct pp_io *io, const char *from, const char *to);
int pp_io_unlink(const struct pp_io *io, const char *path);
int pp_io_rmdir(const struct pp_io *io, const char *path);
int pp_io_sync_dir(const struct pp_io *io, const char *path);

/* A file being written: under a temporary name near `path` until pp_io_commit(). */
struct pp_io_file {
    const struct pp_io *io;
    int fd; /* -1: not open */
    char path[PP_PATH_MAX];
    char temp[PP_PATH_MAX];
    uint64_t bytes;       /* bytes written so far */
    struct pp_sha256 sha; /* hash of these bytes */
};

int pp_io_create(const struct pp_io *io, const char *path, struct pp_io_file *out);

/* Writes all of the bytes. On failure the file is abandoned. */
int pp_io_write(struct pp_io_file *f, const void *data, size_t bytes);

/*
 * Flushes and closes the file and renames it to its final name; out_digest (may be NULL) gets the
 * digest of the content. The name itself is durable after pp_io_sync_dir() of the folder, which the
 * caller does. On failure the file is abandoned: after a failed fsync it is lost, and never flushed
 * again.
 */
int pp_io_commit(struct pp_io_file *f, uint8_t out_digest[PP_SHA256_BYTES]);

/* Removes the temporary file. Accepts a file that was committed, abandoned or never created. Keeps
 * the error record. */
void pp_io_abandon(struct pp_io_file *f);

/* Removes the temporary files of this process before a signal ends it. For signal handlers: system
 * calls only. */
void pp_io_remove_temporary(void);

/* A file being written, like struct pp_io_file, as a FILE. */
struct pp_file_write {
    FILE *f; /* write here */
    struct pp_io_file to;
};

/* Creates a file at `path` for writing, under a temporary name. Errors: PP_EPERM, PP_EIO (also: the
 * path exists and is not a file), PP_ENOINPUT (no such folder). */
int pp_file_create(const char *path, struct pp_file_write *out);

/* Makes the file durable under its final name. On failure the temporary file is removed and an
 * older file is untouched. Errors: PP_EIO, PP_EPERM. */
int pp_file_commit(struct pp_file_write *w);

/* Writes the file dir/name with this text: creates and commits it. Errors: those of
 * pp_file_create() and pp_file_commit(). */
int pp_file_write_text(const char *dir, const char *name, const char *text);

/* Writes what draw() prints to the file `path`, which it creates first and commits last; "-" is
 * standard output. Errors: those of pp_file_create(), pp_file_commit() and draw(). */
int pp_file_draw(const char *path, int (*draw)(const void *ctx, FILE *f), const void *ctx);

/* accepts a file that was committed or never opened */
void pp_file_abandon(struct pp_file_write *w);

/* ---- mapped files */

/*
 * Mapped files that survive what other processes do to them. A page that is lost, because the file
 * was cut or its disk fails, is replaced by zeros instead of ending the process by SIGBUS; the
 * owner asks later whether the file is unchanged.
 */

struct pp_mapping {
    uint8_t *at;
    size_t bytes;
    /* Identify the file, for pp_mapping_check(). */
    int fd;
    bool writes;
    bool lost; /* lost pages were replaced by zeros */
    int64_t modified[2];
    char path[PP_PATH_MAX];
    struct pp_mapping
        *next; /* list of all mappings ever made: closed ones have no bytes and are reused */
};

/* Maps the first `bytes` bytes of an open file, shared with all processes that map it. Takes fd
 * over, also on failure. Errors: PP_ERESOURCE. Local. */
int pp_mapping_open(const char *path, int fd, size_t bytes, bool writes, struct pp_mapping **out);
void pp_mapping_close(struct pp_mapping **m); /* accepts NULL in *m */

/* Checks that the file still holds what it held when it was mapped; if this process writes to it,
 * only that no page is lost. Needs a system call: for every step, not for every sample. Errors:
 * PP_EFORMAT (cut, extended or written to by others), PP_EIO (a page cannot be read). Any thread.
 * Local. */
int pp_mapping_check(const struct pp_mapping *m);

/* ---- zip archives */

/* Archives read from their directory at the end, in a mapped file. All offsets are checked: what is
 * found lies in the archive, and no two entries overlap. */

struct pp_zip_entry {
    const char *name; /* unique, without control characters */
    const uint8_t *data;
    size_t stored;    /* bytes at data */
    size_t bytes;     /* of the content */
    uint32_t crc;     /* CRC-32 of the content, as the archive says it */
    int method;       /* 0: data is the content; 8: deflated */
    size_t header;    /* offset of its header in the archive */
    size_t directory; /* offset of its entry in the directory */
};

struct pp_zip {
    char path[PP_PATH_MAX]; /* for messages */
    const uint8_t *at;      /* [bytes] the archive */
    size_t bytes;
    struct pp_mapping *map;       /* owned; NULL: the caller owns the bytes */
    struct pp_zip_entry *entries; /* [n] in the order of the directory; owned, as those below */
    int n;
    const struct pp_zip_entry **by_name;
    char *names;
};

/* Opens an archive. The caller owns *out. Errors: those of pp_open_regular(), PP_EFORMAT in one line
 * that names the file, PP_ERESOURCE. Local. */
int pp_zip_open(const char *path, struct pp_zip **out);
void pp_zip_close(struct pp_zip **z); /* accepts NULL in *z */

const struct pp_zip_entry *pp_zip_find(const struct pp_zip *z, const char *name); /* NULL: none */

/* Reads a stored entry and compares it with its CRC-32. Errors: PP_EFORMAT (differs). */
int pp_zip_check(const struct pp_zip *z, const struct pp_zip_entry *e);

/* Copies an archive to `path`, byte for byte but for the content of stored entries and their CRC-32:
 * change() may overwrite content[e->bytes], which holds the old one. Whole or not at all: on failure
 * `path` is unchanged; the name is durable after pp_io_sync_dir() of its folder. Errors:
 * those of pp_io_*() and of change(); PP_EFORMAT if an entry is damaged. */
int pp_zip_copy(const struct pp_zip *z, const char *path,
                int (*change)(void *ctx, const struct pp_zip_entry *e, uint8_t *content),
                void *ctx);

/* ---- writing JSON */

/*
 * Writes JSON as a stream, without allocation, to a FILE that the caller owns. Strings are escaped,
 * invalid UTF-8 bytes become U+FFFD, numbers are printed so that they read back to the same value,
 * NaN and infinities become null. Write errors stay in the FILE's error flag: check it once at the
 * end.
 */

#define PP_JSON_DEPTH 16

struct pp_json {
    FILE *f;
    int indent; /* spaces per level; 0 writes everything on one line */
    int depth;
    bool any[PP_JSON_DEPTH];      /* something was written at this level */
    bool is_array[PP_JSON_DEPTH]; /* which bracket closes this level */
};

/* Begins an object, which the last pp_json_end() closes. */
struct pp_json pp_json_begin(FILE *f, int indent);

/* Write a value with its key. `key` is NULL inside arrays. */
void pp_json_object(struct pp_json *j, const char *key);
void pp_json_array(struct pp_json *j, const char *key);
/* closes the innermost level; the outermost also ends the line */
void pp_json_end(struct pp_json *j);

void pp_json_str(struct pp_json *j, const char *key, const char *value); /* NULL writes null */
void pp_json_int(struct pp_json *j, const char *key, int64_t value);
void pp_json_uint(struct pp_json *j, const char *key, uint64_t value);
void pp_json_dbl(struct pp_json *j, const char *key, double value);
void pp_json_bool(struct pp_json *j, const char *key, bool value);
void pp_json_raw(struct pp_json *j, const char *key, const char *value); /* value is JSON text */

/* ---- reading JSON */

/* Reads JSON that may be hostile: limits are checked before the parser sees it. */

/* Limits of a text: one value needs up to fifty times its bytes once it is parsed. */
struct pp_json_limits {
    int depth;       /* nesting of brackets; 1: an object of plain values */
    size_t items;    /* commas above the innermost level */
    int inner_items; /* values in one bracket of the innermost level */
};

/*
 * Parses an object. Refuses any other value, duplicate keys, invalid UTF-8, NUL characters, text
 * after the object, and more than the limits allow. Caller decref's *out. Errors: PP_EFORMAT
 * beginning with `label`, PP_ERESOURCE. Local.
 */
int pp_json_read(const char *label, const char *text, size_t bytes,
                 const struct pp_json_limits *limits, json_t **out);

/*
 * Parses any JSON value with jansson's own flags and without limits. *out is NULL if the text is
 * damaged, and *e (may be NULL) describes the damage. Use this instead of jansson's own functions,
 * which cannot handle failed allocations. The caller decref's *out. Errors: PP_ERESOURCE. Local.
 */
int pp_json_load(const char *text, size_t bytes, size_t flags, json_error_t *e, json_t **out);

/* Copies `text` for a message: characters that are not printable ASCII become '?', and it is cut;
 * returns out. */
#define PP_JSON_SHOWN 160
const char *pp_json_shown(const char *text, char out[PP_JSON_SHOWN]);

/* ---- protobuf */

/* A byte buffer that grows, and the wire format of protobuf messages. */

struct pp_bytes { /* begins as {0} */
    uint8_t *at;  /* [n]; owned */
    size_t n, capacity;
    bool lost; /* some bytes were lost for lack of memory */
};

void pp_bytes_fini(struct pp_bytes *b);
void pp_bytes_put(struct pp_bytes *b, const void *data, size_t n);
void pp_bytes_little(struct pp_bytes *b, uint64_t value, int n); /* writes its n low bytes */

/* The key of a field: its number and the encoding of its value. */
enum pp_wire {
    PP_WIRE_VARINT = 0,
    PP_WIRE_FIXED64 = 1,
    PP_WIRE_LENGTH = 2,
    PP_WIRE_FIXED32 = 5
};

void pp_bytes_varint(struct pp_bytes *b, uint64_t value);
void pp_bytes_key(struct pp_bytes *b, int field, enum pp_wire wire);
/* Append a field to the message: a whole number, a float, bytes (or a message), a text. */
void pp_bytes_int(struct pp_bytes *b, int field, int64_t value);
void pp_bytes_float(struct pp_bytes *b, int field, float value);
void pp_bytes_part(struct pp_bytes *b, int field, const void *data, size_t n);
void pp_bytes_text(struct pp_bytes *b, int field, const char *text);

#endif
