/* SPDX-License-Identifier: Apache-2.0 */
/* In place of fetch_http.c where libcurl is absent: folders still work. */
#include "fetch.h"

#include "ppcli/err.h"

int pp_http_open(const struct pp_fetch_options *opt, struct pp_http **out)
{
    return pp_fail(PP_ERESOURCE, "this ppcli was built without libcurl and cannot download; get "
                                 "the files another way and use --from DIR");
}

void pp_http_close(struct pp_http **http)
{
}

enum pp_http_end pp_http_get(struct pp_http *http, const char *url, const struct pp_store *st,
                             uint64_t bytes_max, struct pp_progress *pg, bool *out_resumed)
{
    return PP_HTTP_LOCAL;
}
