/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The arithmetic of the emulated cuBLASLt: products rounded to TF32 or bf16 as they come in, sums
 * in f32 in the order of the algorithm.
 */
#include <algorithm>
#include <cstring>
#include <vector>

#include "fake_lt.h"

size_t fake_workspace(const Product &p, int algorithm)
{
    return algorithm == SPLIT ? p.m * p.n * sizeof(float) * SPLITS : 0;
}

/* op(X) as f32 [rows][cols], row by row. */
static std::vector<float> packed(const void *x, const Layout &l, bool trans, bool tf32)
{
    size_t rows = trans ? l.cols : l.rows, cols = trans ? l.rows : l.cols;
    std::vector<float> out(rows * cols);
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++) {
            size_t at = trans ? r * (size_t)l.ld + c : c * (size_t)l.ld + r;
            out[r * cols + c] = load(x, l.type, at, tf32);
        }
    return out;
}

/* sum[n] += a[from..to) * b[from..to)[n]. */
static void accumulate(const float *a, const float *b, size_t n, size_t from, size_t to, float *sum)
{
    for (size_t k = from; k < to; k++)
        for (size_t j = 0; j < n; j++)
            sum[j] += a[k] * b[k * n + j];
}

/* One row of the product, in the order of the algorithm. */
static void row(const Job &job, const float *a, const float *b, size_t i, std::vector<float> *sum)
{
    size_t n = job.p.n, k = job.p.k;
    std::fill(sum->begin(), sum->end(), 0.0f);
    if (job.algorithm == PLAIN) {
        accumulate(a, b, n, 0, k, sum->data());
        return;
    }
    size_t step = job.algorithm == BLOCKS ? 32 : (k + SPLITS - 1) / SPLITS;
    std::vector<float> part(n);
    for (size_t at = 0, s = 0; at < k; at += step, s++) {
        std::fill(part.begin(), part.end(), 0.0f);
        accumulate(a, b, n, at, std::min(at + step, k), part.data());
        if (job.algorithm ==
            SPLIT) /* where a real one keeps its parts: shared by mistake, it shows */
            memcpy(job.workspace + (s * job.p.m + i) * n, part.data(), n * sizeof(float));
        const float *from =
            job.algorithm == SPLIT ? job.workspace + (s * job.p.m + i) * n : part.data();
        for (size_t j = 0; j < n; j++)
            (*sum)[j] += from[j];
    }
}

static float finish(const Job &job, size_t i, float v)
{
    uint32_t e = job.p.d.epilogue;
    if (e == CUBLASLT_EPILOGUE_BIAS || e == CUBLASLT_EPILOGUE_RELU_BIAS)
        v += load(job.p.d.bias, job.p.out.type, i, false);
    if (e == CUBLASLT_EPILOGUE_RELU_BIAS)
        v = v > 0.0f || (v != v && !job.drop_nan) ? v : 0.0f;
    return v;
}

/* Sums of the columns of op(B). */
static void bias_gradient(const Job &job, const std::vector<float> &b)
{
    const Product &p = job.p;
    for (size_t i = 0; i < p.n; i++) {
        float sum = 0.0f;
        for (size_t k = 0; k < p.k; k++)
            sum += b[k * p.n + i];
        store(p.d.bias, p.out.type, i, sum);
    }
}

void fake_multiply(void *arg)
{
    const Job &job = *(const Job *)arg;
    const Product &p = job.p;
    bool tf32 = p.d.compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    std::vector<float> a = packed(job.a, p.a, p.d.trans_a != CUBLAS_OP_N, tf32);
    std::vector<float> b = packed(job.b, p.b, p.d.trans_b != CUBLAS_OP_N, tf32);
    std::vector<float> sum(p.n);
    for (size_t i = 0; i < p.m; i++) {
        row(job, a.data() + i * p.k, b.data(), i, &sum);
        for (size_t j = 0; j < p.n; j++) {
            float v = job.alpha * sum[j];
            if (job.beta != 0.0f) /* with 0 the old content is not read */
                v += job.beta * load(job.c, p.c.type, j * (size_t)p.c.ld + i, false);
            store(job.out, p.out.type, j * (size_t)p.out.ld + i, finish(job, i, v));
        }
    }
    if (p.d.epilogue == CUBLASLT_EPILOGUE_BGRADB)
        bias_gradient(job, b);
}
