/* SPDX-License-Identifier: Apache-2.0 */
/* A file of kernels, as C++: KERNELS is its name. */
#include "kernel.h"

#include KERNELS
