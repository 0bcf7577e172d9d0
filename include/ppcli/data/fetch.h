/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloading files whose content is known beforehand. Bytes gather in NAME.part, and only what has
 * the pinned digest is renamed to its final name. Whatever a server or a disk does, the worst that
 * can be left is a .part, which the next try resumes or discards.
 */
#ifndef PPCLI_DATA_FETCH_H
#define PPCLI_DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

struct pp_pin {
    const char *name; /* "train-images-idx3-ubyte.gz" */
    uint64_t bytes;
    const char *sha256; /* of the file or of what it inflates to */
};

struct pp_fetch_set {
    const char *name, *help;
    const char *mirrors[5]; /* URLs, NULL-terminated */
    struct pp_pin files[9]; /* name NULL ends */
};

extern const struct pp_fetch_set pp_fetch_sets[]; /* of downloads.def; name NULL ends */

struct pp_fetch_limits {
    double connect_s;         /* for connecting */
    int low_speed_s;          /* less than 1 KiB/s for this long is a stall */
    int retries;              /* further tries at a server that may recover */
    double retry_first_s;     /* pause before the first of them, doubled each time */
    double retry_after_max_s; /* the longest Retry-After that is obeyed */
    bool http;                /* http:// to this machine is allowed; so it is in `from` */
};

extern const struct pp_fetch_limits pp_fetch_limits; /* the usual ones */

/*
 * All files of the set into `dir`, which is made. from: NULL = its mirrors in order; else an https
 * or file URL, an http URL of this machine, or a folder. Good files that are there are kept.
 * Errors: PP_EIO (network), PP_EFORMAT (digest), PP_ERESOURCE (another download into dir is
 * running, or built without libcurl and `from` is not a folder), PP_ECONFIG, PP_ENOINPUT (`from` is a
 * folder without the files), PP_EPERM.
 */
int pp_fetch(const struct pp_fetch_set *set, const char *from, const char *dir,
             const struct pp_fetch_limits *limits);

/* How many of the set's *out_files files are in `dir`, by name. */
int pp_fetch_there(const struct pp_fetch_set *set, const char *dir, int *out_files);

#endif
