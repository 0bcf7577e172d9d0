/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way to launch a kernel. What compiles the kernels for something else than a GPU defines
 * PP_LAUNCH first; the kernels therefore use only threadIdx, blockIdx, blockDim, gridDim,
 * __syncthreads, __shfl_*_sync, static __shared__ arrays and functions of <math.h>.
 */
#ifndef PPCLI_DEV_CUDA_LAUNCH_H
#define PPCLI_DEV_CUDA_LAUNCH_H

#include <cuda_runtime.h>

#ifndef PP_LAUNCH
#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif

/* A function of kernels.h for a row of ppcli/kernels.def. */
#define KERNEL(name, type)                                                                         \
    extern "C" cudaError_t kernels_##name(cudaStream_t s, const struct type *a,                    \
                                          double *scratch __attribute__((unused)))

#endif
