/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL transport of a build without NCCL: says so. */
#include "impl.h"

#include <stdio.h>

#include "ppcli/err.h"

const struct pp_transport_ops transport_nccl = {
    .name = "nccl",
    .help = "ranks have a device each, NCCL moves the messages (not in this build)",
    .caps = {.unlabelled = true},
};

bool pp_nccl_built(void)
{
    return false;
}

const char *pp_nccl_version(void)
{
    return "";
}

int pp_nccl_probe(char *why, size_t bytes)
{
    snprintf(why, bytes, "this build has no NCCL");
    return PP_ERESOURCE;
}

void pp_nccl_prepare(void)
{
}

int pp_nccl_open(struct pp_transport *inner, uint64_t timeout_ns, struct pp_transport **out)
{
    pp_transport_destroy(&inner);
    return pp_fail(PP_ERESOURCE, "this ppcli was built without NCCL: build it with -Dnccl=enabled "
                                 "(it needs the CUDA toolkit), or use run.transport = threads or "
                                 "mpi");
}
