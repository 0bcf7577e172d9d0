/* SPDX-License-Identifier: Apache-2.0 */
/* The NCCL transport of a build without NCCL. */
#include "impl.h"

const struct pp_transport_ops transport_nccl = {
    .name = "nccl",
    .help = "ranks have a device each, NCCL moves the messages (not in this build)",
    .caps = {.unlabelled = true},
    .joins_threads = true,
    .joins_processes = true,
    .needs_device = true,
    .missing = "this build has no NCCL (-Dnccl=enabled)",
    .library = "NCCL",
};
