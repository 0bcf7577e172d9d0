/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI transport of a build without MPI: says so. */
#include "impl.h"

#include "ppcli/err.h"

const struct pp_transport_ops transport_mpi = {
    .name = "mpi",
    .help = "ranks are MPI processes (not in this build)",
    .caps = {.shared_slots = false, .processes = true},
};

bool pp_mpi_built(void)
{
    return false;
}

const char *pp_mpi_version(void)
{
    return "";
}

int pp_mpi_open(struct pp_transport **out)
{
    return pp_fail(PP_ERESOURCE,
                   "this ppcli was built without MPI: build it with -Dmpi=enabled, or "
                   "run the ranks as threads (run.transport = threads)");
}
