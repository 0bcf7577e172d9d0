/* SPDX-License-Identifier: Apache-2.0 */
/* Whether an NVIDIA GPU is in this machine, asked without any of NVIDIA's libraries. */
#ifndef PPCLI_DEV_NVIDIA_H
#define PPCLI_DEV_NVIDIA_H

#include <stdbool.h>

/* A GPU that a driver knows, even one that no run can use; false where CUDA_VISIBLE_DEVICES hides all. */
bool nvidia_is_here(void);

#endif
