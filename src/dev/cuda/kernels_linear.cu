/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels around the products: samples in, bias and activation, weights as bfloat16. */
#include "activations.h"
#include "kernels.h"
#include "ppcli/conf/config.h"
#include "vector.h"

/* ---- samples */

/* Copies rows of the data set to x, scaled. A block has one row: it reads the row's number once,
 * and the row's values in order. */
template <typename T, typename V>
__global__ void gather_rows(int F, size_t stride, const T *data, const uint32_t *index,
                            struct pp_scaling k, V *x)
{
    const T *from = data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * stride;
    V *to = x + (size_t)blockIdx.x * (size_t)F;
    for (int f = (int)threadIdx.x; f < F; f += (int)blockDim.x) {
        int c = k.channels > 0 ? f % k.channels : 0;
        float v = k.scale[c] * (float)from[f];
        to[f] = k.channels > 0 ? v + k.offset[c] : v;
    }
}

/* Copies rows of bytes as gather_rows() does, four at a time: they have one scale, their length is
 * a multiple of 4, and all pointers are aligned. */
template <typename V>
__global__ void gather_rows4(int F4, const struct bytes4 *data, const uint32_t *index, float scale,
                             struct several<V, 4> *x)
{
    const struct bytes4 *from =
        data + (size_t)(index ? index[blockIdx.x] : blockIdx.x) * (size_t)F4;
    struct several<V, 4> *to = x + (size_t)blockIdx.x * (size_t)F4;
    for (int f = (int)threadIdx.x; f < F4; f += (int)blockDim.x) {
        struct bytes4 u = from[f];
        struct several<V, 4> v;
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

template <typename T, typename V>
static cudaError_t gather_from(cudaStream_t s, const struct pp_gather *a)
{
    auto kernel = gather_rows<T, V>;
    return PP_LAUNCHED(kernel, (unsigned)a->B, 256, 0, s, a->F, a->stride, (const T *)a->data,
                       a->index, a->scaling, (V *)a->x);
}

template <typename V> static cudaError_t gather_to(cudaStream_t s, const struct pp_gather *a)
{
    if (a->B == 0)
        return cudaSuccess;
    bool fours = a->element == PP_U8 && a->scaling.channels == 0 && a->F % 4 == 0 &&
                 a->stride == (size_t)a->F && is_aligned(a->data, 4) &&
                 is_aligned(a->x, 4 * sizeof(V));
    if (fours) {
        return PP_LAUNCHED(gather_rows4<V>, (unsigned)a->B, 256, 0, s, a->F / 4,
                           (const struct bytes4 *)a->data, a->index, a->scaling.scale[0],
                           (struct several<V, 4> *)a->x);
    }
    return a->element == PP_U8    ? gather_from<uint8_t, V>(s, a)
           : a->element == PP_U16 ? gather_from<uint16_t, V>(s, a)
           : a->element == PP_U32 ? gather_from<uint32_t, V>(s, a)
                                  : gather_from<float, V>(s, a);
}

KERNEL(gather, pp_gather)
{
    return a->f32 ? gather_to<float>(s, a) : gather_to<V>(s, a);
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
        struct several<bf16, 4> h;
        for (int k = 0; k < 4; k++)
            h.at[k] = v.at[k];
        ((struct several<bf16, 4> *)to)[i] = h;
    });
}

/* ---- activations */

static __device__ float activate(int act, float z)
{
    switch (act) {
#define PP_ACTIVATION(NAME, word, ...)                                                             \
    case PP_ACT_##NAME:                                                                            \
        return word##_value(z);
#include "ppcli/conf/activations.def"
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
#include "ppcli/conf/activations.def"
    default:
        return dy;
    }
}

/* Adds the bias to the product and applies the activation, N values of a row of O at a time. A
 * thread's column advances by the stride of the grid modulo O, so that each thread divides only
 * once. */
template <typename V, int N>
__global__ void bias_activation(size_t n, int O, const struct several<V, N> *product,
                                const struct several<float, N> *b, int act, struct several<V, N> *z,
                                struct several<V, N> *y)
{
    size_t i = first_of_grid(), stride = threads_of_grid();
    int column = (int)(i % (size_t)O), step = (int)(stride % (size_t)O);
    for (; i < n; i += stride) {
        struct several<V, N> v = product[i], a;
        struct several<float, N> bias = {
        };
        if (b)
            bias = b[column];
        for (int k = 0; k < N; k++) {
            float before = b ? v.at[k] + bias.at[k] : (float)v.at[k];
            v.at[k] = before;
            a.at[k] = activate(act, before);
        }
        if (z)
            z[i] = v;
        y[i] = a;
        column += step;
        column -= column >= O ? O : 0;
    }
}

template <typename V, int N>
static cudaError_t bias_activation_by(cudaStream_t s, size_t n, int O, const float *product,
                                      const float *b, int act, float *z, float *y)
{
    auto kernel = bias_activation<V, N>;
    return PP_LAUNCHED(kernel, blocks_for(n / N), THREADS, 0, s, n / N, O / N,
                       (const struct several<V, N> *)product, (const struct several<float, N> *)b,
                       (int)act, (struct several<V, N> *)z, (struct several<V, N> *)y);
}

template <typename V>
static cudaError_t bias_activation_of(cudaStream_t s, size_t n, int O, const float *product,
                                      const float *b, int act, float *z, float *y)
{
    bool fours = goes_by_fours((size_t)O, (const V *)product, b, (const V *)z, (const V *)y);
    if (n == 0)
        return cudaSuccess;
    return fours ? bias_activation_by<V, 4>(s, n, O, product, b, act, z, y)
                 : bias_activation_by<V, 1>(s, n, O, product, b, act, z, y);
}

extern "C" cudaError_t kernels_bias_activation(cudaStream_t s, bool half, int B, int O,
                                               const float *product, const float *b, int act,
                                               float *z, float *y)
{
    size_t n = (size_t)B * (size_t)O;
    return half ? bias_activation_of<bf16>(s, n, O, product, b, act, z, y)
                : bias_activation_of<float>(s, n, O, product, b, act, z, y);
}

KERNEL(activate_forward, pp_activate)
{
    int O = a->n % 4 ? 1 : 4; /* without a bias any width is right, and this one takes fours */
    return bias_activation_of<V>(s, a->n, O, a->x, NULL, a->act, NULL, a->y);
}

template <typename V, int N>
static cudaError_t backs_by(cudaStream_t s, const struct pp_activate_backward *a)
{
    typedef struct several<V, N> lanes;
    const lanes *saved = (const lanes *)a->saved, *dy = (const lanes *)a->dy;
    lanes *dx = (lanes *)a->dx;
    int act = (int)a->act;
    bool add = a->add;
    return launch_each(s, a->n / N, [=] __device__(size_t i) {
        lanes of = {}, d = dy[i], before = {};
        if (saved)
            of = saved[i];
        if (add)
            before = dx[i];
        for (int k = 0; k < N; k++) {
            float dz = activate_back(act, of.at[k], d.at[k]);
            d.at[k] = add ? before.at[k] + dz : dz;
        }
        dx[i] = d;
    });
}

KERNEL(activate_backward, pp_activate_backward)
{
    bool fours = goes_by_fours(a->n, (const V *)a->saved, (const V *)a->dy, (const V *)a->dx);
    return fours ? backs_by<V, 4>(s, a) : backs_by<V, 1>(s, a);
}
