/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled by find_toolkit.py: what the kernels need of nvcc and of its runtime's headers. */
#include <cuda_bf16.h>
#include <cuda_runtime.h>

template <typename F> __global__ void apply(const __grid_constant__ int4 n, F f, float *x)
{
    if (threadIdx.x < (unsigned)n.x)
        x[threadIdx.x] = f(x[threadIdx.x]);
}

extern "C" cudaError_t probe(cudaStream_t s, float *x)
{
    apply<<<1, 32, 0, s>>>(
        int4{}, [] __device__(float v) { return v + 1; }, x);
    return cudaGetLastError();
}
