/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Windows over images: the matrix that makes a convolution a product, and the way back;
 * convolutions in groups, computed directly; pools. A row is a row of the image that is written,
 * and its elements are the pixels and channels of that row. One thread makes every sum, in order of
 * the windows.
 */
#include "kernels.h"
#include "vector.h"

#include "../numbers.h"

#include <math.h>

/* Returns the position that tap k of output o reads along an axis of `size` elements; -1 if it is
 * outside. */
static __device__ int tap_input(int o, int stride, int k, int pad, int size)
{
    int at = o * stride + k - pad;
    return at >= 0 && at < size ? at : -1;
}

/* Returns the output along one axis that reads element `at` with tap k; -1 if there is none. */
static __device__ int tap_output(int at, int stride, int k, int pad, int outputs)
{
    int o = at + pad - k;
    return o >= 0 && o % stride == 0 && o / stride < outputs ? o / stride : -1;
}

/* Returns the offset of element (pixel, c) of row y of image b. */
static __device__ size_t at(size_t b, int y, int pixel, int c, int H, int W, int C)
{
    return ((b * (size_t)H + (size_t)y) * (size_t)W + (size_t)pixel) * (size_t)C + (size_t)c;
}

/* ---- pictures of bytes */

KERNEL(move_pictures, pp_move_pictures)
{
    struct pp_move_pictures p = *a;
    size_t width = (size_t)p.W * (size_t)p.C;
    return launch_rows(s, (size_t)p.B * (size_t)p.H, width, [=] __device__(size_t r, int f) {
        size_t b = r / (size_t)p.H, picture = p.index[b];
        int from = moved_from(p.moves[b], p.H, p.W, (int)(r % (size_t)p.H), f / p.C);
        size_t at = picture * (size_t)p.H * (size_t)p.W + (size_t)(from < 0 ? 0 : from);
        p.pictures[r * width + (size_t)f] =
            from < 0 ? 0 : p.data[at * (size_t)p.C + (size_t)(f % p.C)];
    });
}

/* ---- a convolution's matrix */

/* Divides n by a constant for 0 <= n < 2^31, with a product and a shift. */
struct divisor {
    uint32_t factor;
    int shift;
};

static struct divisor divisor_of(int by)
{
    int shift = 0;
    while ((1ull << shift) < (uint64_t)by)
        shift++;
    uint64_t more = ((1ull << shift) - (uint64_t)by) << 32;
    return (struct divisor){(uint32_t)(more / (uint64_t)by + 1), shift};
}

static __device__ int quotient(int n, struct divisor by)
{
    return (int)(((uint32_t)((uint64_t)(uint32_t)n * by.factor >> 32) + (uint32_t)n) >> by.shift);
}

/* Returns what tap_output() returns; divides by the stride with `by`, which is faster. */
static __device__ int reader_by(int at, int stride, struct divisor by, int k, int pad, int outputs)
{
    int o = at + pad - k, q = quotient(o < 0 ? 0 : o, by);
    return o >= 0 && q * stride == o && q < outputs ? q : -1;
}

/* Copies the pixels that each output sees to a row of the matrix `to`. T is one value or several
 * values in one access, and C counts such T. */
template <typename T>
static cudaError_t columns_of(cudaStream_t s, struct pp_conv g, int C, int B, const T *x, T *to)
{
    int K = g.kh * g.kw * C;
    size_t width = (size_t)g.OW * (size_t)K;
    struct divisor by_K = divisor_of(K), by_C = divisor_of(C), by_kw = divisor_of(g.kw),
                   by_OH = divisor_of(g.OH);
    return launch_rows(s, (size_t)B * (size_t)g.OH, width, [=] __device__(size_t r, int f) {
        int b = quotient((int)r, by_OH), out = quotient(f, by_K), of = f - out * K;
        int tap = quotient(of, by_C), ky = quotient(tap, by_kw);
        int y = tap_input((int)r - b * g.OH, g.stride, ky, g.pad_top, g.H);
        int pixel = tap_input(out, g.stride, tap - ky * g.kw, g.pad_left, g.W);
        T v = {};
        if (y >= 0 && pixel >= 0)
            v = x[at((size_t)b, y, pixel, of - tap * C, g.H, g.W, C)];
        to[r * width + (size_t)f] = v;
    });
}

/* Returns how many values to read in one access, given the channels and the alignment: as many as
 * 16 bytes hold, or 4, or 1. */
template <typename V> static int lanes_of(const struct pp_conv *g, const void *a, const void *b)
{
    int most = 16 / (int)sizeof(V);
    while (most > 1 &&
           (g->C % most || !is_aligned(a, most * sizeof(V)) || !is_aligned(b, most * sizeof(V))))
        most = most > 4 ? 4 : 1;
    return most;
}

template <typename V, int N>
static cudaError_t columns_by(cudaStream_t s, const struct pp_conv *g, int B, const V *x, V *to)
{
    typedef struct several<V, N> lanes;
    return columns_of(s, *g, g->C / N, B, (const lanes *)x, (lanes *)to);
}

template <typename V>
static cudaError_t columns(cudaStream_t s, const struct pp_conv *g, int B, const V *x, V *to)
{
    int n = lanes_of<V>(g, x, to);
    return n == 1   ? columns_by<V, 1>(s, g, B, x, to)
           : n == 4 ? columns_by<V, 4>(s, g, B, x, to)
                    : columns_by<V, 16 / sizeof(V)>(s, g, B, x, to);
}

extern "C" cudaError_t kernels_conv_columns(cudaStream_t s, bool half, const struct pp_conv *g,
                                            int B, const float *x, float *to)
{
    return half ? columns(s, g, B, (const bf16 *)x, (bf16 *)to) : columns(s, g, B, x, to);
}

template <typename V, int N>
static cudaError_t pixels_by(cudaStream_t s, const struct pp_conv *conv, int B, const V *all,
                             bool add, V *to)
{
    typedef struct several<V, N> lanes;
    const lanes *columns = (const lanes *)all;
    lanes *dx = (lanes *)to;
    struct pp_conv g = *conv;
    int C = g.C / N, K = g.kh * g.kw * C;
    size_t width = (size_t)g.W * (size_t)C;
    struct divisor by_C = divisor_of(C), by_H = divisor_of(g.H), by_stride = divisor_of(g.stride);
    return launch_rows(s, (size_t)B * (size_t)g.H, width, [=] __device__(size_t r, int f) {
        int b = quotient((int)r, by_H), pixel = quotient(f, by_C), c = f - pixel * C;
        float sum[N] = {0};
        for (int ky = 0; ky < g.kh; ky++) {
            int oy = reader_by((int)r - b * g.H, g.stride, by_stride, ky, g.pad_top, g.OH);
            for (int kx = 0; kx < g.kw && oy >= 0; kx++) {
                int ox = reader_by(pixel, g.stride, by_stride, kx, g.pad_left, g.OW);
                if (ox < 0)
                    continue;
                lanes v = columns[at((size_t)b, oy, ox, (ky * g.kw + kx) * C + c, g.OH, g.OW, K)];
                for (int k = 0; k < N; k++)
                    sum[k] += v.at[k];
            }
        }
        lanes v = {};
        if (add)
            v = dx[r * width + (size_t)f];
        for (int k = 0; k < N; k++)
            put(&v.at[k], add, sum[k]);
        dx[r * width + (size_t)f] = v;
    });
}

template <typename V>
static cudaError_t pixels(cudaStream_t s, const struct pp_conv *g, int B, const V *columns,
                          bool add, V *dx)
{
    int n = lanes_of<V>(g, columns, dx);
    return n == 1   ? pixels_by<V, 1>(s, g, B, columns, add, dx)
           : n == 4 ? pixels_by<V, 4>(s, g, B, columns, add, dx)
                    : pixels_by<V, 16 / sizeof(V)>(s, g, B, columns, add, dx);
}

extern "C" cudaError_t kernels_conv_pixels(cudaStream_t s, bool half, const struct pp_conv *g,
                                           int B, const float *columns, bool add, float *dx)
{
    return half ? pixels(s, g, B, (const bf16 *)columns, add, (bf16 *)dx)
                : pixels(s, g, B, columns, add, dx);
}

/* ---- convolutions in groups */

template <typename V>
static cudaError_t group_forward(cudaStream_t s, const struct pp_conv_forward *a)
{
    struct pp_conv g = *a->g;
    struct pp_conv_forward p = *a;
    const V *all = (const V *)p.x;
    V *to = (V *)p.y;
    size_t width = (size_t)g.OW * (size_t)g.O;
    return launch_rows(s, (size_t)p.B * (size_t)g.OH, width, [=] __device__(size_t r, int f) {
        int o = f % g.O, C = g.C / g.groups;
        float sum = p.b ? p.b[o] : 0.0f;
        for (int tap = 0; tap < g.kh * g.kw; tap++) {
            int y = tap_input((int)(r % (size_t)g.OH), g.stride, tap / g.kw, g.pad_top, g.H);
            int pixel = tap_input(f / g.O, g.stride, tap % g.kw, g.pad_left, g.W);
            const float *w = p.W + at(0, o, tap, 0, g.O, g.kh * g.kw, C);
            const V *x =
                all + at(r / (size_t)g.OH, y, pixel, o / (g.O / g.groups) * C, g.H, g.W, g.C);
            for (int c = 0; c < C && y >= 0 && pixel >= 0; c++)
                sum = fmaf((float)x[c], w[c], sum);
        }
        to[r * width + (size_t)f] = p.relu && sum < 0.0f ? 0.0f : sum;
    });
}

extern "C" cudaError_t kernels_conv_group_forward(cudaStream_t s, bool half,
                                                  const struct pp_conv_forward *a)
{
    return half ? group_forward<bf16>(s, a) : group_forward<float>(s, a);
}

template <typename V>
static cudaError_t group_backward_input(cudaStream_t s, const struct pp_conv_backward_input *a)
{
    struct pp_conv g = *a->g;
    struct pp_conv_backward_input p = *a;
    const V *all = (const V *)p.dz;
    V *dx = (V *)p.dx;
    size_t width = (size_t)g.W * (size_t)g.C;
    return launch_rows(s, (size_t)p.B * (size_t)g.H, width, [=] __device__(size_t r, int f) {
        int C = g.C / g.groups, O = g.O / g.groups, first = f % g.C / C * O;
        float sum = 0.0f;
        for (int tap = 0; tap < g.kh * g.kw; tap++) {
            int oy = tap_output((int)(r % (size_t)g.H), g.stride, tap / g.kw, g.pad_top, g.OH);
            int ox = tap_output(f / g.C, g.stride, tap % g.kw, g.pad_left, g.OW);
            const V *dz = all + at(r / (size_t)g.H, oy, ox, first, g.OH, g.OW, g.O);
            for (int o = 0; o < O && oy >= 0 && ox >= 0; o++)
                sum = fmaf((float)dz[o],
                           p.W[at(0, first + o, tap, f % g.C % C, g.O, g.kh * g.kw, C)], sum);
        }
        put(dx + r * width + f, p.add, sum);
    });
}

extern "C" cudaError_t kernels_conv_group_backward_input(cudaStream_t s, bool half,
                                                         const struct pp_conv_backward_input *a)
{
    return half ? group_backward_input<bf16>(s, a) : group_backward_input<float>(s, a);
}

/* Computes the weight gradient of a convolution with groups. A block has one weight: its threads
 * share the outputs, and add up their sums by halves. */
template <typename V>
__global__ void group_weight(struct pp_conv g, int B, const V *dz, const V *x, bool adds, float *dW)
{
    __shared__ float sums[THREADS];
    int C = g.C / g.groups, taps = g.kh * g.kw, t = (int)threadIdx.x;
    int tap = (int)blockIdx.x / C % taps, o = (int)blockIdx.x / C / taps;
    int c = o / (g.O / g.groups) * C + (int)blockIdx.x % C, pixels = g.OH * g.OW;
    float sum = 0.0f;
    for (size_t i = (size_t)t; i < (size_t)B * (size_t)pixels; i += THREADS) {
        int of = (int)(i % (size_t)pixels);
        int y = tap_input(of / g.OW, g.stride, tap / g.kw, g.pad_top, g.H);
        int pixel = tap_input(of % g.OW, g.stride, tap % g.kw, g.pad_left, g.W);
        if (y >= 0 && pixel >= 0)
            sum = fmaf((float)dz[i * (size_t)g.O + (size_t)o],
                       (float)x[at(i / (size_t)pixels, y, pixel, c, g.H, g.W, g.C)], sum);
    }
    sum = sum_of_block(sums, sum);
    if (t == 0)
        put(dW + blockIdx.x, adds, sum);
}

template <typename V>
static cudaError_t group_backward_weight(cudaStream_t s, const struct pp_conv *g, int B,
                                         const V *dz, const V *x, bool adds, float *dW)
{
    return PP_LAUNCHED(group_weight<V>, (unsigned)(g->O * g->kh * g->kw * (g->C / g->groups)),
                       THREADS, 0, s, *g, B, dz, x, adds, dW);
}

extern "C" cudaError_t kernels_conv_group_backward_weight(cudaStream_t s, bool half,
                                                          const struct pp_conv *g, int B,
                                                          const float *dz, const float *x,
                                                          bool adds, float *dW)
{
    return half ? group_backward_weight(s, g, B, (const bf16 *)dz, (const bf16 *)x, adds, dW)
                : group_backward_weight(s, g, B, dz, x, adds, dW);
}

extern "C" cudaError_t kernels_add_bf16(cudaStream_t s, size_t n, const void *from, bool adds,
                                        float *dW)
{
    const bf16 *v = (const bf16 *)from;
    return launch_each(s, n, [=] __device__(size_t i) { put(dW + i, adds, v[i]); });
}

/* ---- pools */

KERNEL(max_pool_forward, pp_max_pool_forward)
{
    struct pp_conv g = *a->g;
    struct pp_max_pool_forward p = *a;
    const V *x = (const V *)p.x;
    V *to = (V *)p.y;
    size_t width = (size_t)g.OW * (size_t)g.C;
    return launch_rows(s, (size_t)p.B * (size_t)g.OH, width, [=] __device__(size_t r, int f) {
        int best = -1;
        float most = 0.0f;
        for (int tap = 0; tap < g.kh * g.kw; tap++) {
            int y = tap_input((int)(r % (size_t)g.OH), g.stride, tap / g.kw, g.pad_top, g.H);
            int pixel = tap_input(f / g.C, g.stride, tap % g.kw, g.pad_left, g.W);
            if (y < 0 || pixel < 0)
                continue;
            float v = x[at(r / (size_t)g.OH, y, pixel, f % g.C, g.H, g.W, g.C)];
            if (best < 0 || v > most || v != v) {
                best = tap;
                most = v;
            }
        }
        to[r * width + (size_t)f] = most;
        if (p.taken)
            p.taken[r * width + (size_t)f] = (uint8_t)best;
    });
}

/* Returns how many pixels of the window of output o lie inside the image along one axis. */
static __device__ int count_inside(int o, int stride, int k, int pad, int size)
{
    int from = o * stride - pad, to = from + k;
    return (to < size ? to : size) - (from > 0 ? from : 0);
}

/* Returns the number by which the sum over a window is divided. */
static __device__ float window_size(const struct pp_conv *g, bool all, int oy, int ox)
{
    int taps = g->kh * g->kw, n = count_inside(oy, g->stride, g->kh, g->pad_top, g->H) *
                                  count_inside(ox, g->stride, g->kw, g->pad_left, g->W);
    return (float)(all ? taps : n);
}

/* Returns the convolution with H limited to the rows of the sample before its padding. */
static __device__ struct pp_conv without_padding(struct pp_conv g, const uint32_t *lengths,
                                                 const uint32_t *index, size_t sample)
{
    g.H = lengths ? (int)lengths[index[sample]] : g.H;
    return g;
}

KERNEL(avg_pool_forward, pp_avg_pool)
{
    struct pp_conv g = *a->g;
    struct pp_avg_pool p = *a;
    const V *x = (const V *)p.x;
    V *to = (V *)p.y;
    size_t width = (size_t)g.OW * (size_t)g.C;
    return launch_rows(s, (size_t)p.B * (size_t)g.OH, width, [=] __device__(size_t r, int f) {
        int oy = (int)(r % (size_t)g.OH), ox = f / g.C;
        struct pp_conv w = without_padding(g, p.lengths, p.index, r / (size_t)g.OH);
        float sum = 0.0f;
        for (int tap = 0; tap < g.kh * g.kw; tap++) {
            int y = tap_input(oy, g.stride, tap / g.kw, g.pad_top, w.H);
            int pixel = tap_input(ox, g.stride, tap % g.kw, g.pad_left, g.W);
            if (y >= 0 && pixel >= 0)
                sum += x[at(r / (size_t)g.OH, y, pixel, f % g.C, g.H, g.W, g.C)];
        }
        to[r * width + (size_t)f] = sum / window_size(&w, p.count_padding, oy, ox);
    });
}

/* Adds up the gradients of all windows that contain a pixel, the upper and left windows first. With
 * `taken` counts only the windows whose maximum is the pixel; else divides each gradient by the
 * size of its window. */
template <typename V>
static cudaError_t pool_back(cudaStream_t s, struct pp_conv g, int B, const uint8_t *taken,
                             const struct pp_avg_pool *avg, const V *dy, bool add, V *dx)
{
    struct pp_avg_pool p = avg ? *avg : (struct pp_avg_pool){};
    size_t width = (size_t)g.W * (size_t)g.C;
    return launch_rows(s, (size_t)B * (size_t)g.H, width, [=] __device__(size_t r, int f) {
        float sum = 0.0f;
        struct pp_conv w = without_padding(g, p.lengths, p.index, r / (size_t)g.H);
        for (int tap = g.kh * g.kw - 1; tap >= 0 && (int)(r % (size_t)g.H) < w.H; tap--) {
            int oy = tap_output((int)(r % (size_t)g.H), g.stride, tap / g.kw, g.pad_top, g.OH);
            int ox = tap_output(f / g.C, g.stride, tap % g.kw, g.pad_left, g.OW);
            if (oy < 0 || ox < 0)
                continue;
            size_t i = at(r / (size_t)g.H, oy, ox, f % g.C, g.OH, g.OW, g.C);
            if (!taken)
                sum += dy[i] / window_size(&w, p.count_padding, oy, ox);
            else if (taken[i] == tap)
                sum += dy[i];
        }
        put(dx + r * width + f, add, sum);
    });
}

KERNEL(max_pool_backward, pp_max_pool_backward)
{
    return pool_back(s, *a->g, a->B, a->taken, NULL, (const V *)a->dy, a->add, (V *)a->dx);
}

KERNEL(avg_pool_backward, pp_avg_pool)
{
    return pool_back(s, *a->g, a->B, NULL, a, (const V *)a->x, a->add, (V *)a->y);
}
