/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and reading what is a file, folders, and paths. Whole-or-absent files: ppcli/io.h. */
#ifndef PPCLI_FILE_H
#define PPCLI_FILE_H

#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>

#include "ppcli/err.h"
#include "ppcli/sha256.h"

#define PP_PATH_MAX 4096

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

#endif
