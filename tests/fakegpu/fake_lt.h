/* SPDX-License-Identifier: Apache-2.0 */
/* What the two halves of the emulated cuBLASLt share: a product, checked, and how it is done. */
#ifndef FAKE_LT_H
#define FAKE_LT_H

#include <cstdint>
#include <cstring>
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
    return epilogue != CUBLASLT_EPILOGUE_DEFAULT;
}

static inline float bits_float(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static inline uint32_t float_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* To nearest, ties to even, keeping 23 - drop bits. NaN stays one. */
static inline float rounded(float f, int drop)
{
    uint32_t b = float_bits(f), half = 1u << (drop - 1);
    if (f != f)
        return bits_float(b | 0x400000u);
    b += half - 1 + (b >> drop & 1);
    return bits_float(b & ~((1u << drop) - 1));
}

static inline float load(const void *p, cudaDataType type, size_t i, bool tf32)
{
    if (type == CUDA_R_16BF)
        return bits_float((uint32_t)((const uint16_t *)p)[i] << 16);
    float f = ((const float *)p)[i];
    return tf32 ? rounded(f, 13) : f;
}

static inline void store(void *p, cudaDataType type, size_t i, float f)
{
    if (type == CUDA_R_16BF)
        ((uint16_t *)p)[i] = (uint16_t)(float_bits(rounded(f, 16)) >> 16);
    else
        ((float *)p)[i] = f;
}

/* Do the product (a Job) in this thread. */
void fake_multiply(void *job);
/* Bytes of workspace that an algorithm needs. */
size_t fake_workspace(const Product &p, int algorithm);

#endif
