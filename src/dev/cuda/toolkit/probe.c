/* SPDX-License-Identifier: Apache-2.0 */
/* Compiled by find_toolkit.py: names the newest functions of the toolkit that ppcli calls (CUDA 12.5) and all
 * that it calls of cuBLASLt. */
#include <cublasLt.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#define CUDA_BLAS(x) __typeof__(&cublasLt##x) has_##x;
#include "library.def"

static __typeof__(&cudaGetDriverEntryPointByVersion) by_version = cudaGetDriverEntryPointByVersion;
static __typeof__(&cuGreenCtxStreamCreate) stream_create;
static __typeof__(&cuDevSmResourceSplitByCount) split;

int main(void)
{
    return by_version && !stream_create && !split;
}
