/* SPDX-License-Identifier: Apache-2.0 */
/*
 * cuBLASLt, loaded when it is first needed: linking it would cost every command 52 ms at its start,
 * also those that never compute.
 */
#ifndef PPCLI_DEV_CUDA_LIBRARY_H
#define PPCLI_DEV_CUDA_LIBRARY_H

#include <stddef.h>

#include <cublasLt.h>

/* The functions, typed as the header declares them: blas->Matmul is cublasLtMatmul. */
struct cuda_blas {
#define CUDA_BLAS(x) __typeof__(&cublasLt##x) x;
#include "library.def"
#undef CUDA_BLAS
};

/*
 * The library, loaded by the first call of the process and kept. Any thread. NULL and the reason
 * with what would work in *why when it cannot be used; no failure is recorded.
 */
const struct cuda_blas *cuda_blas_load(char *why, size_t bytes);

/* "13.1.0". Any thread. */
void cuda_blas_version(const struct cuda_blas *blas, char *out, size_t bytes);

#endif
