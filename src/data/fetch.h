/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Downloading a fixed set of files whose content is known beforehand. One idea: bytes gather in
 * NAME.gz.part, and only what has the pinned digest is renamed to its final name. Whatever a server
 * or a disk does, the worst that can be left behind is a .part file, which the next try resumes or
 * discards.
 *
 *   fetch.c         which file from which source, in order; existing files; what went wrong
 *   fetch_http.c    one file over HTTP (libcurl; fetch_http_stub.c without)
 *   fetch_answer.c  one answer of a server into the .part
 *   fetch_store.c   the target folder: lock, copy, commit
 *   fetch_verify.c  digests
 *   fetch_pins.c    the built-in sets
 */
#ifndef PPCLI_DATA_FETCH_H
#define PPCLI_DATA_FETCH_H

#include <stdbool.h>
#include <stdint.h>

#include "ppcli/file.h"

struct pp_pin {
    const char *name;      /* "train-images-idx3-ubyte", without .gz */
    uint64_t bytes;        /* of the inflated file */
    const char *sha256;    /* of the inflated file: this one decides */
    const char *sha256_gz; /* of the usual .gz file: a match saves inflating it; may be NULL */
};

struct pp_fetch_set {
    const char *name;
    const char *const *mirrors; /* https URLs ending in '/', NULL-terminated, tried in order */
    const struct pp_pin *files;
    int n_files;
};

const struct pp_fetch_set *pp_fetch_set(const char *name); /* NULL: nothing to download */

struct pp_fetch_options {
    double connect_s;         /* limit for connecting */
    int low_speed_bytes;      /* slower than this many bytes a second ... */
    int low_speed_s;          /* ... for this long counts as stalled */
    double total_s;           /* limit for one transfer */
    int retries;              /* further tries at a source that may recover */
    double retry_first_s;     /* pause before the first of them, doubled each time */
    double retry_after_max_s; /* the longest Retry-After that is obeyed */
    int redirects_max;
    bool loopback_http; /* http:// to this machine is allowed (a local mirror, tests) */
};

extern const struct pp_fetch_options pp_fetch_defaults;

/* As pp_fetch_dataset(), for any set. from NULL: the set's mirrors. dir is created. Errors: those,
 * and PP_ENOINPUT (`from` is a folder that is not there), PP_EPERM. */
int pp_fetch_files(const struct pp_fetch_set *set, const char *from, const char *dir,
                   const struct pp_fetch_options *opt);

/* Whether this URL may be asked: https, or http to this machine when that is allowed. */
bool pp_url_allowed(const char *url, bool loopback_http);

/* --- fetch_verify.c ------------------------------------------------------------------------------
 * 0 when the file holds exactly the pinned content; *out_gz: it does so gzipped. PP_EFORMAT when
 * not, with both digests; PP_ENOINPUT, PP_EPERM, PP_EIO. */
int pp_verify_file(const char *path, const struct pp_pin *pin, bool *out_gz);

/* --- fetch_store.c ---------------------------------------------------------------------------- */
struct pp_store {
    char gz[PP_PATH_MAX], plain[PP_PATH_MAX]; /* final names */
    char part[PP_PATH_MAX];
    char etag[PP_PATH_MAX]; /* what the .part is a part of: ETag and URL, one line each */
};

/* Create the folder and lock it against a second download; PP_ERESOURCE when there is one. */
int pp_store_lock(const char *dir, int *out_lock);
void pp_store_unlock(const char *dir, int lock);

int pp_store_paths(const char *dir, const struct pp_pin *pin, struct pp_store *out);
int pp_store_copy(const struct pp_store *st, const char *from, uint64_t bytes_max);
int pp_store_commit(const struct pp_store *st,
                    bool gz);                          /* .part, verified -> final name, durable */
void pp_store_discard(const struct pp_store *st);      /* .part and .etag */
uint64_t pp_store_bytes_max(const struct pp_pin *pin); /* a larger file cannot be the right one */

/* --- progress: a live line on a terminal, else nothing until the file is done ------------------
 */
struct pp_progress {
    const char *name;
    bool live;
    uint64_t begin_ns, shown_ns;
};
void pp_progress_begin(struct pp_progress *pg, const char *name);
void pp_progress_show(struct pp_progress *pg, uint64_t bytes,
                      uint64_t total);        /* total 0: unknown */
void pp_progress_end(struct pp_progress *pg); /* the live line is gone */

/* --- fetch_http.c ----------------------------------------------------------------------------- */
struct pp_http;
int pp_http_open(const struct pp_fetch_options *opt, struct pp_http **out); /* PP_ERESOURCE */
void pp_http_close(struct pp_http **http);

enum pp_http_end {
    PP_HTTP_DONE,
    PP_HTTP_FAILED,      /* this file not from this source; another one may do better */
    PP_HTTP_UNREACHABLE, /* nor any other file */
    PP_HTTP_LOCAL,       /* this machine's fault: no source can help */
};

/*
 * url -> st->part, retried and resumed as opt says. *out_resumed: the beginning of the .part is
 * from an earlier run or try. Anything but PP_HTTP_DONE has recorded why (without the URL).
 */
enum pp_http_end pp_http_get(struct pp_http *http, const char *url, const struct pp_store *st,
                             uint64_t bytes_max, struct pp_progress *pg, bool *out_resumed);

#endif
