/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the emulated cuBLASLt share: a product, checked, and how it is done. */
#ifndef FAKE_LT_H
#define FAKE_LT_H

#include <cstdint>
#include <cublasLt.h>

#include "fake_gpu.h"

enum {
    PLAIN,
    BLOCKS,
    SPLIT,
    ALGORITHMS
};
enum {
    SPLITS = 4,
    WIDE = 16
};

struct Layout {
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld;
    int32_t batch; /* 0: one */
    int64_t stride;
};

struct Desc {
    cublasComputeType_t compute;
    cudaDataType scale, bias_type;
    bool bias_typed;
    cublasOperation_t trans_a, trans_b;
    uint32_t epilogue;
    void *bias;
    int32_t sms;
};

struct Preference {
    uint64_t workspace;
    uint32_t schemes;
    uint32_t align[4];
};

struct Algo {
    int32_t id;
    int32_t splits;
    uint32_t scheme;
};

/* The shape of one product, all checked. D[m][n] = op(A)[m][k] * op(B)[k][n]. */
struct Product {
    Desc d;
    Layout a, b, c, out;
    uint64_t m, n, k;
};

/* One product waiting for its turn. */
struct Job {
    Product p;
    float alpha, beta;
    const void *a, *b, *c;
    void *out;
    float *workspace;
    int algorithm;
    bool drop_nan;
};

static inline size_t bytes_of(cudaDataType t)
{
    return t == CUDA_R_32F ? 4 : t == CUDA_R_16BF ? 2 : 0;
}

static inline bool has_bias(uint32_t epilogue)
{
    return epilogue != CUBLASLT_EPILOGUE_DEFAULT && epilogue != CUBLASLT_EPILOGUE_RELU;
}

/* Do the product (a Job) in this thread. */
void fake_multiply(void *job);
/* Bytes of workspace that an algorithm needs. */
size_t fake_workspace(const Product &p, int algorithm);

#endif
