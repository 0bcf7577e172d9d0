/* SPDX-License-Identifier: Apache-2.0 */
/* One file over HTTP: fetch_http.c with libcurl, fetch_http_stub.c without. */
#ifndef PPCLI_DATA_FETCH_HTTP_H
#define PPCLI_DATA_FETCH_HTTP_H

#include "ppcli/data/fetch.h"

enum pp_http_end {
    PP_HTTP_DONE,
    PP_HTTP_FAILED,      /* this file not from this server; another one may do better */
    PP_HTTP_UNREACHABLE, /* nor any other file */
    PP_HTTP_LOCAL,       /* this machine's fault: no server can help */
    PP_HTTP_AGAIN,       /* inside fetch_http.c only: worth another try */
    PP_HTTP_START_OVER,  /* the same, without the .part */
};

/* url -> the file `part`, resumed and retried within `limits`. *out_resumed: its beginning was
 * there before. Anything but PP_HTTP_DONE has recorded why, without the URL. */
enum pp_http_end pp_http_get(const char *url, const char *part, uint64_t bytes_max,
                             const struct pp_fetch_limits *limits, bool *out_resumed);

#endif
