/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloads files whose content is known beforehand. Bytes are collected in NAME.part, and only a
 * file with the pinned digest is renamed to its final name. Whatever a server or a disk does, the
 * worst that can remain is a .part, which the next try resumes or discards.
 */
#ifndef PPCLI_DATA_FETCH_H
#define PPCLI_DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

struct pp_pin {
    const char *name; /* "train-images-idx3-ubyte.gz" */
    uint64_t bytes;
    const char *sha256; /* of the file or of its inflated content */
};

struct pp_fetch_set {
    const char *name, *help;
    const char *mirrors[5]; /* URLs, NULL-terminated */
    struct pp_pin files[9]; /* name NULL ends the list */
};

extern const struct pp_fetch_set pp_fetch_sets[]; /* from downloads.def; name NULL ends the list */

struct pp_fetch_limits {
    double connect_s;         /* for connecting */
    int low_speed_s;          /* seconds below 1 KiB/s that count as a stall */
    int retries;              /* retries at a server that may recover */
    double retry_first_s;     /* pause before the first retry, doubled each time */
    double retry_after_max_s; /* the longest Retry-After that is obeyed */
    bool http;                /* http:// to this machine is allowed, also in `from` */
};

extern const struct pp_fetch_limits pp_fetch_limits; /* the default limits */

/*
 * Downloads all files of the set into `dir`, which is created. `from` is NULL for the mirrors in
 * order, or an https or file URL, an http URL of this machine, or a folder. Good files that exist
 * are kept. Errors: PP_EIO (network), PP_EFORMAT (digest), PP_ERESOURCE (another download into
 * `dir` is running, or built without libcurl and `from` is not a folder), PP_ECONFIG, PP_ENOINPUT
 * (`from` is a folder without the files), PP_EPERM.
 */
int pp_fetch(const struct pp_fetch_set *set, const char *from, const char *dir,
             const struct pp_fetch_limits *limits);

/* Returns how many of the set's files exist in `dir`, by name; *out_files is how many the set
 * has. */
int pp_fetch_there(const struct pp_fetch_set *set, const char *dir, int *out_files);

#endif
