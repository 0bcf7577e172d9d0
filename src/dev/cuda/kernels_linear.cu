/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels around the products: samples in, bias and activation, bias gradient, bfloat16 copies. */
#include "activations.h"
#include "columns.h"

/* ---- samples */

/* One block a row: the row's number is read once, and its values in order. */
template <typename T>
__global__ void gather_rows(int F, size_t stride, const T *data, const uint32_t *index,
                            struct pp_scaling k, float *x)
{
    const T *from = data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * stride;
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

template <typename T>
__global__ void gather_targets(int P, size_t stride, const T *data, const uint32_t *index,
                               int64_t ignored, int32_t *targets)
{
    const T *from = data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * stride;
    int32_t *to = targets + (size_t)blockIdx.x * (size_t)P;
    for (int p = (int)threadIdx.x; p < P; p += (int)blockDim.x)
        to[p] = (int64_t)from[p] == ignored - 1 ? -1 : (int32_t)from[p];
}

#define GATHER(type)                                                                               \
    PP_LAUNCHED(gather_rows<type>, (unsigned)a->B, 256, 0, s, a->F, a->stride,                     \
              (const type *)a->data, a->index, a->scaling, a->x)

KERNEL(gather, pp_gather)
{
    if (a->B == 0)
        return cudaSuccess;
    bool fours = a->element == PP_U8 && a->scaling.channels == 0 && a->F % 4 == 0 &&
                 a->stride == (size_t)a->F && is_aligned(a->data, 4) && is_aligned(a->x, 16);
    if (fours) {
        return PP_LAUNCHED(gather_rows4, (unsigned)a->B, 256, 0, s, a->F / 4,
                         (const struct bytes4 *)a->data, a->index, a->scaling.scale[0],
                         (struct float4_ *)a->x);
    }
    return a->element == PP_U8    ? GATHER(uint8_t)
           : a->element == PP_U16 ? GATHER(uint16_t)
           : a->element == PP_U32 ? GATHER(uint32_t)
                                  : GATHER(float);
}

#define TARGETS(type)                                                                              \
    PP_LAUNCH(gather_targets<type>, (unsigned)a->B, threads, 0, s, a->P, a->stride,                \
              (const type *)a->data + a->first, a->index, a->ignored, a->targets)

KERNEL(targets, pp_targets)
{
    unsigned threads = a->P < 32 ? 32 : 256;
    if (a->B == 0)
        return cudaSuccess;
    if (a->element == PP_U8)
        TARGETS(uint8_t);
    else if (a->element == PP_U16)
        TARGETS(uint16_t);
    else
        TARGETS(uint32_t);
    return cudaGetLastError();
}

/* ---- bfloat16 */

extern "C" cudaError_t kernels_to_bf16(cudaStream_t s, size_t n, const float *from, uint16_t *to)
{
    if (n % 4 || !is_aligned(from, 16) || !is_aligned(to, 8))
        return launch_each(s, n, [=] __device__(size_t i) { to[i] = to_bf16(from[i]); });
    return launch_each(s, n / 4, [=] __device__(size_t i) {
        struct float4_ v = ((const struct float4_ *)from)[i];
        struct half4 h;
        for (int k = 0; k < 4; k++)
            h.at[k] = to_bf16(v.at[k]);
        ((struct half4 *)to)[i] = h;
    });
}

/* ---- activations */

static __device__ float activate(int act, float z)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_value(z);
#include "ppcli/activations.def"
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
    default:
        return dy;
    }
}

/* V: one float or four, of which a row has O. A thread's column moves on by the grid's stride modulo
 * O: one division a thread. */
template <typename V>
__global__ void bias_activation(size_t n, int O, const V *product, const V *b, int act, V *z, V *y)
{
    size_t i = first_of_grid(), stride = threads_of_grid();
    int column = (int)(i % (size_t)O), step = (int)(stride % (size_t)O);
    for (; i < n; i += stride) {
        V v = product[i], bias = {}, a;
        if (b)
            bias = b[column];
        for (size_t k = 0; k < sizeof(V) / sizeof(float); k++) {
            v.at[k] = b ? v.at[k] + bias.at[k] : v.at[k];
            a.at[k] = activate(act, v.at[k]);
        }
        if (z)
            z[i] = v;
        y[i] = a;
        column += step;
        column -= column >= O ? O : 0;
    }
}

#define BIAS_ACTIVATION(V, lanes)                                                                  \
    PP_LAUNCHED(bias_activation<V>, blocks_for(n / (lanes)), THREADS, 0, s, n / (lanes),           \
              O / (lanes), (const V *)product, (const V *)b, (int)act, (V *)z, (V *)y)

extern "C" cudaError_t kernels_bias_activation(cudaStream_t s, int B, int O, const float *product,
                                               const float *b, enum pp_activation act, float *z,
                                               float *y)
{
    size_t n = (size_t)B * (size_t)O;
    if (n == 0)
        return cudaSuccess;
    bool fours = O % 4 == 0 && is_aligned(product, 16) && is_aligned(b, 16) && is_aligned(z, 16) &&
                 is_aligned(y, 16);
    return fours ? BIAS_ACTIVATION(struct float4_, 4) : BIAS_ACTIVATION(struct float1_, 1);
}

KERNEL(activate_forward, pp_activate)
{
    int O = a->n % 4 ? 1 : 4; /* no bias: any width is right, this one goes by fours */
    return kernels_bias_activation(s, (int)(a->n / (size_t)O), O, a->x, NULL, a->act, NULL, a->y);
}

/* V: one float or four. */
template <typename V>
static cudaError_t backs_of(cudaStream_t s, const struct pp_activate_backward *a)
{
    const V *saved = (const V *)a->saved, *dy = (const V *)a->dy;
    V *dx = (V *)a->dx;
    int act = (int)a->act;
    bool add = a->add;
    return launch_each(s, a->n * sizeof(float) / sizeof(V), [=] __device__(size_t i) {
        V of = {}, d = dy[i], before = {};
        if (saved)
            of = saved[i];
        if (add)
            before = dx[i];
        for (size_t k = 0; k < sizeof(V) / sizeof(float); k++) {
            float dz = activate_back(act, of.at[k], d.at[k]);
            d.at[k] = add ? before.at[k] + dz : dz;
        }
        dx[i] = d;
    });
}

KERNEL(activate_backward, pp_activate_backward)
{
    bool fours =
        a->n % 4 == 0 && is_aligned(a->saved, 16) && is_aligned(a->dy, 16) && is_aligned(a->dx, 16);
    return fours ? backs_of<struct float4_>(s, a) : backs_of<struct float1_>(s, a);
}

/* ---- bias gradient */

extern "C" cudaError_t kernels_bias_gradient(cudaStream_t s, int B, int O, const float *dz,
                                             float beta, float *db, double *scratch)
{
    auto get = [=] __device__(size_t r, int c, double *out) {
        *out = (double)dz[r * (size_t)O + (size_t)c];
    };
    auto take = [=] __device__(int c, const double *sums) {
        put(db + c, beta != 0.0f, (float)*sums);
    };
    if (B == 0 && beta != 0.0f)
        return cudaSuccess;
    return sum_columns<1>(s, (size_t)B, O, get, take, scratch);
}
