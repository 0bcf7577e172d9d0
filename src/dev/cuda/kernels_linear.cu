/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels around the products: samples in, bias and activation, bias gradient, bfloat16 copies. */
#include "activations.h"
#include "kernels.h"
#include "launch.h"
#include "vector.h"

#include <math.h>

/* ---- samples */

/* One block a row: the row's number is read once, and its values in order. */
template <typename T>
__global__ void gather_rows(int F, const T *data, const uint32_t *index, struct pp_scaling k,
                            float *x)
{
    const T *from = data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * (size_t)F;
    float *to = x + (size_t)blockIdx.x * (size_t)F;
    for (int f = (int)threadIdx.x; f < F; f += (int)blockDim.x) {
        int c = k.channels > 0 ? f % k.channels : 0;
        float v = k.scale[c] * (float)from[f];
        to[f] = k.channels > 0 ? v + k.offset[c] : v;
    }
}

/* The same of bytes with one scale, for F a multiple of 4 and aligned pointers. */
__global__ void gather_rows4(int F4, const struct bytes4 *data, const uint32_t *index, float scale,
                             struct float4_ *x)
{
    const struct bytes4 *from =
        data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * (size_t)F4;
    struct float4_ *to = x + (size_t)blockIdx.x * (size_t)F4;
    for (int f = (int)threadIdx.x; f < F4; f += (int)blockDim.x) {
        struct bytes4 u = from[f];
        struct float4_ v;
        for (int i = 0; i < 4; i++)
            v.at[i] = scale * (float)u.at[i];
        to[f] = v;
    }
}

extern "C" cudaError_t kernels_gather(cudaStream_t s, const struct pp_gather *a)
{
    const struct pp_scaling k = a->scaling;
    if (a->B == 0)
        return cudaSuccess;
    if (a->floats) {
        PP_LAUNCH(gather_rows<float>, (unsigned)a->B, 256, 0, s, a->F, (const float *)a->data,
                  a->index, k, a->x);
    } else if (k.channels == 0 && a->F % 4 == 0 && is_aligned(a->data, 4) && is_aligned(a->x, 16)) {
        PP_LAUNCH(gather_rows4, (unsigned)a->B, 256, 0, s, a->F / 4, (const struct bytes4 *)a->data,
                  a->index, k.scale[0], (struct float4_ *)a->x);
    } else {
        PP_LAUNCH(gather_rows<uint8_t>, (unsigned)a->B, 256, 0, s, a->F, (const uint8_t *)a->data,
                  a->index, k, a->x);
    }
    return cudaGetLastError();
}

__global__ void gather_bytes(int B, const uint8_t *labels, const uint32_t *index, uint8_t *out)
{
    int r = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (r < B)
        out[r] = labels[index[r]];
}

extern "C" cudaError_t kernels_gather_labels(cudaStream_t s, int B, const uint8_t *labels,
                                             const uint32_t *index, uint8_t *out)
{
    if (B == 0)
        return cudaSuccess;
    PP_LAUNCH(gather_bytes, ((unsigned)B + 255) / 256, 256, 0, s, B, labels, index, out);
    return cudaGetLastError();
}

/* ---- bfloat16 */

__global__ void round_each(size_t n, const float *from, uint16_t *to)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        to[i] = to_bf16(from[i]);
}

__global__ void round_each4(size_t n4, const struct float4_ *from, struct half4 *to)
{
    for (size_t i = first_of_grid(); i < n4; i += threads_of_grid()) {
        struct float4_ v = from[i];
        struct half4 h;
        for (int k = 0; k < 4; k++)
            h.at[k] = to_bf16(v.at[k]);
        to[i] = h;
    }
}

extern "C" cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to)
{
    if (n == 0)
        return cudaSuccess;
    if (n % 4 == 0 && is_aligned(from, 16) && is_aligned(to, 8)) {
        PP_LAUNCH(round_each4, blocks_for(n / 4), THREADS, 0, s, n / 4,
                  (const struct float4_ *)from, (struct half4 *)to);
    } else {
        PP_LAUNCH(round_each, blocks_for(n), THREADS, 0, s, n, from, to);
    }
    return cudaGetLastError();
}

/* ---- activations */

static __device__ float activate(int act, float z)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_value(z);
#include "ppcli/activations.def"
#undef PP_ACTIVATION
    default:
        return z;
    }
}

static __device__ float activate_back(int act, float saved, float dy)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_back(saved, dy);
#include "ppcli/activations.def"
#undef PP_ACTIVATION
    default:
        return dy;
    }
}

/* A thread's column moves on by the grid's stride modulo O: one division a thread. */
__global__ void bias_activation(size_t n, int O, const float *product, const float *b, int act,
                                float *z, float *y)
{
    size_t i = first_of_grid(), stride = threads_of_grid();
    int column = (int)(i % (size_t)O), step = (int)(stride % (size_t)O);
    for (; i < n; i += stride) {
        float v = product[i] + (b ? b[column] : 0.0f);
        if (z)
            z[i] = v;
        y[i] = activate(act, v);
        column += step;
        column -= column >= O ? O : 0;
    }
}

/* The same for O a multiple of 4 and aligned pointers; O4 = O / 4. */
__global__ void bias_activation4(size_t n4, int O4, const struct float4_ *product,
                                 const struct float4_ *b, int act, struct float4_ *z,
                                 struct float4_ *y)
{
    size_t i = first_of_grid(), stride = threads_of_grid();
    int column = (int)(i % (size_t)O4), step = (int)(stride % (size_t)O4);
    for (; i < n4; i += stride) {
        struct float4_ v = product[i], a;
        if (b) {
            struct float4_ bias = b[column];
            for (int k = 0; k < 4; k++)
                v.at[k] += bias.at[k];
        }
        for (int k = 0; k < 4; k++)
            a.at[k] = activate(act, v.at[k]);
        if (z)
            z[i] = v;
        y[i] = a;
        column += step;
        column -= column >= O4 ? O4 : 0;
    }
}

extern "C" cudaError_t kernels_bias_activation(cudaStream_t s, int B, int O, const float *product,
                                               const float *b, enum pp_activation act, float *z,
                                               float *y)
{
    size_t n = (size_t)B * (size_t)O;
    if (n == 0)
        return cudaSuccess;
    if (O % 4 == 0 && is_aligned(product, 16) && is_aligned(b, 16) && is_aligned(z, 16) &&
        is_aligned(y, 16)) {
        PP_LAUNCH(bias_activation4, blocks_for(n / 4), THREADS, 0, s, n / 4, O / 4,
                  (const struct float4_ *)product, (const struct float4_ *)b, (int)act,
                  (struct float4_ *)z, (struct float4_ *)y);
    } else {
        PP_LAUNCH(bias_activation, blocks_for(n), THREADS, 0, s, n, O, product, b, (int)act, z, y);
    }
    return cudaGetLastError();
}

__global__ void back_each(size_t n, int act, const float *saved, const float *dy, bool add,
                          float *dx)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid()) {
        float dz = activate_back(act, saved ? saved[i] : 0.0f, dy[i]);
        dx[i] = add ? dx[i] + dz : dz;
    }
}

__global__ void back_each4(size_t n4, int act, const struct float4_ *saved,
                           const struct float4_ *dy, bool add, struct float4_ *dx)
{
    struct float4_ s = {{0.0f, 0.0f, 0.0f, 0.0f}};
    for (size_t i = first_of_grid(); i < n4; i += threads_of_grid()) {
        struct float4_ d = dy[i], before = s;
        if (saved)
            s = saved[i];
        if (add)
            before = dx[i];
        for (int k = 0; k < 4; k++) {
            float dz = activate_back(act, s.at[k], d.at[k]);
            d.at[k] = add ? before.at[k] + dz : dz;
        }
        dx[i] = d;
    }
}

extern "C" cudaError_t kernels_activate_backward(cudaStream_t s,
                                                 const struct pp_activate_backward *a)
{
    if (a->n == 0)
        return cudaSuccess;
    if (a->n % 4 == 0 && is_aligned(a->saved, 16) && is_aligned(a->dy, 16) &&
        is_aligned(a->dx, 16)) {
        PP_LAUNCH(back_each4, blocks_for(a->n / 4), THREADS, 0, s, a->n / 4, (int)a->act,
                  (const struct float4_ *)a->saved, (const struct float4_ *)a->dy, a->add,
                  (struct float4_ *)a->dx);
    } else {
        PP_LAUNCH(back_each, blocks_for(a->n), THREADS, 0, s, a->n, (int)a->act, a->saved, a->dy,
                  a->add, a->dx);
    }
    return cudaGetLastError();
}

/* ---- bias gradient */

#define COLUMNS 32
#define LANES 32 /* rows r, r + LANES, ... of a column are one lane's; part of the result */

/* Reads are whole lines: the threads of a warp have neighbouring columns. */
__global__ void column_sums(int B, int O, const float *dz, float beta, float *db)
{
    __shared__ float sums[LANES][COLUMNS + 1];
    int column = (int)(blockIdx.x * COLUMNS + threadIdx.x), lane = (int)threadIdx.y;
    float sum = 0.0f;
    if (column < O)
        for (int r = lane; r < B; r += LANES)
            sum += dz[(size_t)r * (size_t)O + (size_t)column];
    sums[lane][threadIdx.x] = sum;
    for (int half = LANES / 2; half > 0; half /= 2) {
        __syncthreads();
        if (lane < half)
            sums[lane][threadIdx.x] += sums[lane + half][threadIdx.x];
    }
    if (lane == 0 && column < O) {
        float before = beta != 0.0f ? db[column] : 0.0f;
        db[column] = before + sums[0][threadIdx.x];
    }
}

extern "C" cudaError_t kernels_bias_gradient(cudaStream_t s, int B, int O, const float *dz,
                                             float beta, float *db)
{
    if (B == 0 && beta != 0.0f)
        return cudaSuccess;
    dim3 block(COLUMNS, LANES);
    PP_LAUNCH(column_sums, ((unsigned)O + COLUMNS - 1) / COLUMNS, block, 0, s, B, O, dz, beta, db);
    return cudaGetLastError();
}
