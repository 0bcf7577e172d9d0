/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the kernels: launching one, the stored types of values, several values in one access,
 * and how a grid walks a flat array. */
#ifndef PPCLI_DEV_CUDA_VECTOR_H
#define PPCLI_DEV_CUDA_VECTOR_H

#include <stddef.h>
#include <stdint.h>

#include <cuda_runtime.h>

/*
 * The only way to launch a kernel; PP_LAUNCHED also gives the status of the launch. To compile the
 * kernels for something else than a GPU, define PP_LAUNCH first. For that reason kernels use only
 * threadIdx, blockIdx, blockDim, gridDim, __syncthreads, __shfl_*_sync, static __shared__ arrays
 * and functions of <math.h>.
 */
#ifndef PP_LAUNCH
#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__)
#endif
#define PP_LAUNCHED(...) (PP_LAUNCH(__VA_ARGS__), cudaGetLastError())

/* Defines the function of kernels.h for a row of ppcli/dev/kernels.def. The body follows; in it V
 * is the type in which values are stored. */
#define KERNEL(name, type)                                                                         \
    template <typename V>                                                                          \
    static cudaError_t name##_of(cudaStream_t s, const struct type *a, double *scratch);           \
    extern "C" cudaError_t kernels_##name(cudaStream_t s, const struct type *a,                    \
                                          enum pp_precision precision, double *scratch)            \
    {                                                                                              \
        return precision == PP_PRECISION_BF16 ? name##_of<bf16>(s, a, scratch)                     \
                                              : name##_of<float>(s, a, scratch);                   \
    }                                                                                              \
    template <typename V>                                                                          \
    static cudaError_t name##_of(cudaStream_t s, const struct type *a,                             \
                                 double *scratch __attribute__((unused)))

struct alignas(16) float4_ {
    float at[4];
};
struct float1_ {
    float at[1];
};
struct alignas(4) bytes4 {
    uint8_t at[4];
};

/* Rounds x to bf16: ties go to even, and a NaN stays a NaN. */
static __device__ inline uint16_t to_bf16(float x)
{
    union {
        float f;
        uint32_t u;
    } bits;
    bits.f = x;
    uint32_t u = bits.u;
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (uint16_t)((u >> 16) | 0x40u); /* quiet, and never an infinity */
    return (uint16_t)((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

/* A value as it is stored with run.precision = bf16: it is read as a float, and rounded when
 * written. */
struct bf16 {
    uint16_t bits;

    __device__ operator float() const
    {
        union {
            uint32_t u;
            float f;
        } all;
        all.u = (uint32_t)bits << 16;
        return all.f;
    }
    __device__ struct bf16 &operator=(float x)
    {
        bits = to_bf16(x);
        return *this;
    }
};

/* N values in one access. */
template <typename V, int N> struct alignas(N * sizeof(V)) several {
    V at[N];
};

/* Returns the N values from p on: reads them in one access if `wide`, else one by one. */
template <int N, typename V>
static __device__ inline struct several<V, N> values_at(const V *p, bool wide) {
    struct several<V, N> v;
    if (wide)
        return *(const struct several<V, N> *)p;
    for (int k = 0; k < N; k++)
        v.at[k] = p[k];
    return v;
}

template <int N, typename V>
static __device__ inline void put_values(V *p, bool wide, const struct several<V, N> &v)
{
    if (wide)
        *(struct several<V, N> *)p = v;
    for (int k = 0; !wide && k < N; k++)
        p[k] = v.at[k];
}

template <typename V> static __device__ inline void put(V *y, bool add, float v)
{
    *y = add ? (float)*y + v : v;
}

#define THREADS 256
#define WARP 32
#define ALL 0xffffffffu
#define PP_DEVICE __host__ __device__ /* for functions of src/dev that kernels and the CPU share */

static inline bool is_aligned(const void *p, uintptr_t bytes)
{
    return (uintptr_t)p % bytes == 0;
}

/* Returns whether the values at all these pointers, and at every n-th value after them, can be read
 * four at a time. A pointer may be NULL. */
template <typename V, typename... More>
static inline bool goes_by_fours(size_t n, const V *p, const More *...more)
{
    bool fours = n % 4 == 0 && is_aligned(p, 4 * sizeof(V));
    if constexpr (sizeof...(more) > 0)
        fours = fours && goes_by_fours(n, more...);
    return fours;
}

/* Returns a number of blocks for n elements. It is limited to several waves of the largest device;
 * with more elements each thread takes several. No result depends on it. */
static inline unsigned blocks_for(size_t n)
{
    size_t blocks = (n + THREADS - 1) / THREADS;
    return (unsigned)(blocks < 4096 ? blocks : 4096);
}

/* Returns the sum of the values of a warp, with the same bits in every lane. */
template <typename T> static __device__ inline T warp_sum(T v)
{
    for (int half = WARP / 2; half > 0; half /= 2)
        v += __shfl_xor_sync(ALL, v, half);
    return v;
}

/* Returns in thread 0 the sum over the THREADS threads of the block, added by halves in
 * sums[THREADS]. */
template <typename T> static __device__ inline T sum_of_block(T *sums, T mine)
{
    int t = (int)threadIdx.x;
    sums[t] = mine;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if (t < half)
            sums[t] += sums[t + half];
    }
    return sums[0];
}

static __device__ inline size_t first_of_grid(void)
{
    return (size_t)blockIdx.x * blockDim.x + threadIdx.x;
}

static __device__ inline size_t threads_of_grid(void)
{
    return (size_t)gridDim.x * blockDim.x;
}

/* Returns the entry of at[n] on which this block works: the last entry whose first block is not
 * after blockIdx.x. */
template <typename T> static __device__ inline const T *of_block(const T *at, int n)
{
    int low = 0, high = n;
    while (high - low > 1) {
        int mid = (low + high) / 2;
        if (at[mid].first <= blockIdx.x)
            low = mid;
        else
            high = mid;
    }
    return &at[low];
}

template <typename Do> __global__ void each_of(size_t n, Do do_it)
{
    for (size_t i = first_of_grid(); i < n; i += threads_of_grid())
        do_it(i);
}

/* Calls do_it(i) for i = 0 .. n - 1, in no order. */
template <typename Do> static cudaError_t launch_each(cudaStream_t s, size_t n, Do do_it)
{
    if (n == 0)
        return cudaSuccess;
    auto kernel = each_of<Do>;
    return PP_LAUNCHED(kernel, blocks_for(n), THREADS, 0, s, n, do_it);
}

template <typename Do> __global__ void each_of_rows(size_t rows, int width, Do do_it)
{
    for (size_t r = blockIdx.y; r < rows; r += gridDim.y)
        for (int f = (int)first_of_grid(); f < width; f += (int)threads_of_grid())
            do_it(r, f);
}

/* Calls do_it(row, element of the row) for all elements of all rows, in no order. */
template <typename Do>
static cudaError_t launch_rows(cudaStream_t s, size_t rows, size_t width, Do do_it)
{
    if (rows == 0)
        return cudaSuccess;
    unsigned y = (unsigned)(rows < 4096 ? rows : 4096);
    auto kernel = each_of_rows<Do>;
    return PP_LAUNCHED(kernel, dim3(blocks_for(width), y), THREADS, 0, s, rows, (int)width, do_it);
}

#endif
