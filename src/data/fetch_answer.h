/* SPDX-License-Identifier: Apache-2.0 */
/* One answer of a server while it arrives: libcurl's callbacks write it into the .part file. Used
 * by fetch_http.c only. */
#ifndef PPCLI_DATA_FETCH_ANSWER_H
#define PPCLI_DATA_FETCH_ANSWER_H

#include <curl/curl.h>

#include "fetch.h"

/* Why the body callback stopped a transfer. */
enum pp_answer_stop {
    GO_ON,
    TOO_LARGE,
    NOT_DATA,
    WRONG_RANGE,
    OTHER_BODY,
    WRITE_FAILED
};

/* One request and its answer. */
struct pp_answer {
    const struct pp_store *st;
    const char *url; /* the source's, before redirects: what an ETag belongs to */
    struct pp_progress *pg;
    CURL *curl;
    int fd;
    uint64_t bytes_max;
    uint64_t offset; /* asked for: the .part's size, or 0 */
    uint64_t at;     /* bytes in the .part now */
    uint64_t other;  /* bytes of a body that is not the file */
    long status;
    bool begun;
    enum pp_answer_stop stop;
    int write_errno;
    uint8_t head[4];
    char etag[256], type[64];
    bool have_range;
    uint64_t range_first;
};

/* CURLOPT_HEADERFUNCTION and CURLOPT_WRITEFUNCTION; user is the struct pp_answer. */
size_t pp_answer_on_header(char *line, size_t size, size_t count, void *user);
size_t pp_answer_on_body(char *data, size_t size, size_t count, void *user);

/* The answer is the file, or a part of it: get the .part ready. false: a->stop says why not. */
bool pp_answer_begin(struct pp_answer *a);

/* The strong ETag under which this URL's .part was begun; false when it cannot be resumed. */
bool pp_answer_read_etag(const struct pp_store *st, const char *url, char etag[256]);

#endif
