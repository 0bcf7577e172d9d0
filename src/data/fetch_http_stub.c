/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces fetch_http.c in a build without libcurl: copying from folders still works. */
#include "fetch_http.h"

#include "ppcli/base/base.h"

enum pp_http_end pp_http_get(const char *url, const char *part, uint64_t bytes_max,
                             const struct pp_fetch_limits *limits, bool *out_resumed)
{
    pp_fail(PP_ERESOURCE, "this ppcli was built without libcurl and cannot download; get the "
                          "files another way and use --from DIR");
    return PP_HTTP_LOCAL;
}
