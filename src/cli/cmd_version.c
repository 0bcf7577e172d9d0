/* SPDX-License-Identifier: Apache-2.0 */
/* ppcli version: what was built in; the first thing a bug report needs. */
#include "ppcli/show/results.h"
#include "ppcli/comm/transport.h"
#include "build_info.h"
#include "command.h"

#define FACTS_MAX 32

static struct pp_build_fact of_transport(const struct pp_transport_ops *t)
{
    return (struct pp_build_fact){t->library, t->missing ? "no" : t->version(), t->missing};
}

const struct pp_build_fact *build_facts(void)
{
    static const struct pp_build_fact others[] = {
        {"libcurl", PP_CURL_VERSION, NULL},    {"PCRE2", PP_PCRE2_VERSION, NULL},
        {"libjpeg", PP_JPEG_VERSION, NULL},    {"libpng", PP_PNG_VERSION, NULL},
        {"zlib", PP_ZLIB_VERSION, NULL},       {"inih", PP_INIH_VERSION, NULL},
        {"jansson", PP_JANSSON_VERSION, NULL}, {"CUDA toolkit", PP_CUDA_VERSION, NULL},
        {"compiler", PP_COMPILER, NULL}};
    static struct pp_build_fact facts[FACTS_MAX + 1];
    int n = 0;
    facts[n++] = (struct pp_build_fact){"CBLAS", PP_BLAS_VERSION, NULL};
    const struct pp_transport_ops *t;
    for (int i = 0; (t = pp_transport_at(i)) != NULL && n < FACTS_MAX / 2; i++)
        if (t->library)
            facts[n++] = of_transport(t);
    for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
        facts[n++] = others[i];
    return facts;
}

int cmd_version(int argc, char **argv)
{
    PP_TRY(pp_cli_parse(argc, argv, &command_version, NULL, NULL, NULL, 0));
    printf("ppcli %s\n", PP_VERSION);
    for (const struct pp_build_fact *b = build_facts(); b->what; b++)
        printf("%s: %s\n", b->what, b->text);
    return 0;
}
