/* SPDX-License-Identifier: Apache-2.0 */
#include "build_facts.h"

#include <stddef.h>

#include "ppcli/transport.h"
#include "build_info.h"

const struct build_fact *build_facts(void)
{
    static struct build_fact facts[] = {
        {"CBLAS", PP_BLAS_VERSION},
        {"MPI", "no"},
        {"NCCL", "no"},
        {"libcurl", PP_CURL_VERSION},
        {"zlib", PP_ZLIB_VERSION},
        {"inih", PP_INIH_VERSION},
        {"jansson", PP_JANSSON_VERSION},
        {"CUDA toolkit", PP_CUDA_VERSION},
        {"compiler", PP_COMPILER},
        {NULL, NULL},
    };
    if (pp_mpi_built()) {
        facts[1].text = pp_mpi_version();
    }
    if (pp_nccl_built()) {
        facts[2].text = pp_nccl_version();
    }
    return facts;
}
