/* SPDX-License-Identifier: Apache-2.0 */
/* Finds whether this machine has an NVIDIA GPU, without NVIDIA's libraries. */
#ifndef PPCLI_DEV_NVIDIA_H
#define PPCLI_DEV_NVIDIA_H

#include <stdbool.h>

/* Returns whether a driver knows a GPU, even one that no run can use; false if CUDA_VISIBLE_DEVICES
 * hides all GPUs. */
bool nvidia_is_here(void);

#endif
