/* SPDX-License-Identifier: Apache-2.0 */
/* The CUDA backend of a build without CUDA: it has a name, and says why it cannot run. */

#include "ppcli/dev/backend.h"
#include "nvidia.h"

static int probe(char *why, size_t bytes)
{
    snprintf(why, bytes,
             "this build has no CUDA backend: build ppcli where nvcc is, or use run.backend = cpu");
    return PP_ERESOURCE;
}

/* Returns the bytes of a value as the backend cuda does. A build without CUDA needs it for plans of
 * runs on other machines. */
static size_t value_bytes(const struct pp_backend_choice *choice)
{
    return choice->precision == PP_PRECISION_BF16 ? sizeof(uint16_t) : sizeof(float);
}

const struct pp_backend_ops backend_cuda = {
    .name = "cuda",
    .help = "NVIDIA GPUs (not in this build)",
    .own_memory = true,
    .probe = probe,
    .is_here = nvidia_is_here,
    .value_bytes = value_bytes,
    .logits_unit = 64,
};
