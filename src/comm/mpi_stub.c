/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI transport of a build without MPI. */
#include "impl.h"

const struct pp_transport_ops transport_mpi = {
    .name = "mpi",
    .help = "ranks are MPI processes (not in this build)",
    .caps = {.processes = true},
    .joins_processes = true,
    .is_world = true,
    .missing = "this build has no MPI (-Dmpi=enabled)",
    .library = "MPI",
};
