/* SPDX-License-Identifier: Apache-2.0 */
/* Downloads one file over HTTP: fetch_http.c with libcurl, fetch_http_stub.c without. */
#ifndef PPCLI_DATA_FETCH_HTTP_H
#define PPCLI_DATA_FETCH_HTTP_H

#include "ppcli/data/dataset.h"

enum pp_http_end {
    PP_HTTP_DONE,
    PP_HTTP_FAILED,      /* this server does not have the file; another one may */
    PP_HTTP_UNREACHABLE, /* this server does not have any file */
    PP_HTTP_LOCAL,       /* a failure of this machine: no server can help */
    PP_HTTP_AGAIN,       /* inside fetch_http.c only: try again */
    PP_HTTP_START_OVER,  /* try again without the .part */
};

/* Downloads `url` into the file `part`, resuming and retrying within `limits`. *out_resumed tells
 * whether a part of the file existed before. For every result but PP_HTTP_DONE an error is
 * recorded, without the URL. */
enum pp_http_end pp_http_get(const char *url, const char *part, uint64_t bytes_max,
                             const struct pp_fetch_limits *limits, bool *out_resumed);

#endif
