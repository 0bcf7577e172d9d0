/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Included in front of a .cu file to compile it as C++: a kernel becomes a function that one thread
 * of a block runs. Blocks run one after another, the threads of a block as coroutines that change
 * places where they wait for each other. A launch of the file is work of a stream.
 */
#ifndef FAKE_KERNEL_H
#define FAKE_KERNEL_H

#include <cuda_runtime.h>
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <tuple>

struct FakeThread {
    uint3 thread, block, block_size, grid_size;
};
extern __thread struct FakeThread fake_thread;
int fake_number_in_block();

/* Of the block that this thread of the host runs: how many barriers there were, of the block and of
 * each warp. kernel: NULL outside of one. */
struct FakeWatch {
    const char *kernel;
    uint32_t block, warps[32];
};
extern thread_local FakeWatch fake_watch;

/* Of a shuffle or vote: what each lane of a warp gave. */
const uint64_t *fake_exchange(unsigned mask, uint64_t value, const char *what, int *lane);
int fake_syncthreads(int predicate); /* returns that of any thread */
cudaError_t fake_launch(const char *name, dim3 grid, dim3 block, size_t shared, cudaStream_t stream,
                        std::function<void()> kernel);

/* Ends the program where p is neither NULL nor memory that a kernel of the stream may touch, or lies
 * at no multiple of `align`: the emulation could read it, a device could not. */
void fake_check_pointer(const char *name, cudaStream_t stream, const void *p, size_t align);

template <typename T> void fake_check(const char *name, cudaStream_t stream, const T &value)
{
    if constexpr (std::is_pointer<T>::value)
        fake_check_pointer(name, stream, value, alignof(typename std::remove_pointer<T>::type));
}

/* The arguments are taken at the launch, as what the kernel declares. */
template <typename... P, typename... A>
cudaError_t fake_launch_with(const char *name, void (*kernel)(P...), dim3 grid, dim3 block,
                             size_t shared, cudaStream_t stream, A... args)
{
    std::tuple<typename std::decay<P>::type...> taken(args...);
    std::apply([&](const auto &...a) { (fake_check(name, stream, a), ...); }, taken);
    return fake_launch(name, grid, block, shared, stream, [=] { std::apply(kernel, taken); });
}

#define threadIdx fake_thread.thread
#define blockIdx fake_thread.block
#define blockDim fake_thread.block_size
#define gridDim fake_thread.grid_size
#define warpSize 32

/* One block at a time runs in a thread of the host, so this is memory of the block. */
#undef __shared__
#define __shared__ static __thread
#undef __grid_constant__
#define __grid_constant__
#undef __launch_bounds__
#define __launch_bounds__(...)

#define __syncthreads() (void)fake_syncthreads(0)
#define __syncthreads_or(predicate) fake_syncthreads((predicate) != 0)
#define __threadfence() ((void)0)

template <typename T>
T fake_shuffle(unsigned mask, T value, const char *what, int from(int, int), int by, int width)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t given = 0;
    memcpy(&given, &value, sizeof value);
    int lane;
    const uint64_t *all = fake_exchange(mask, given, what, &lane);
    int source = from(lane % width, by);
    if (source < 0 || source >= width)
        return value;
    source += lane / width * width;
    if (!(mask >> source & 1)) /* undefined there: make it show */
        memset(&value, 0xff, sizeof value);
    else
        memcpy(&value, &all[source], sizeof value);
    return value;
}

template <typename T> T __shfl_sync(unsigned mask, T value, int lane, int width = 32)
{
    return fake_shuffle(
        mask, value, "__shfl_sync", [](int, int by) { return by; }, lane % width, width);
}

template <typename T> T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32)
{
    return fake_shuffle(
        mask, value, "__shfl_xor_sync", [](int at, int d) { return at ^ d; }, by, width);
}

inline unsigned __ballot_sync(unsigned mask, int predicate)
{
    int lane;
    const uint64_t *all = fake_exchange(mask, predicate != 0, "__ballot_sync", &lane);
    unsigned votes = 0;
    for (int i = 0; i < 32; i++)
        if (mask >> i & 1 && all[i] != 0)
            votes |= 1u << i;
    return votes;
}

inline int __popc(unsigned v)
{
    return __builtin_popcount(v);
}

inline void __syncwarp(unsigned mask = 0xffffffffu)
{
    int lane;
    (void)fake_exchange(mask, 0, "__syncwarp", &lane);
}

/* Blocks take turns and coroutines do not interrupt each other: plain code is atomic. */
template <typename T> T atomicAdd(T *at, T by)
{
    static_assert(!std::is_floating_point<T>::value, "sums of floats have a fixed order here");
    return __atomic_fetch_add(at, by, __ATOMIC_RELAXED);
}

template <typename To, typename From> To fake_bits(From v)
{
    static_assert(sizeof(To) == sizeof(From), "same size");
    To out;
    memcpy(&out, &v, sizeof out);
    return out;
}

#define fmaf(a, b, c) ((a) * (b) + (c)) /* rounded twice: a call for each would be slow */
using std::max;
using std::min;

#define PP_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    fake_launch_with(#kernel, kernel, dim3(grid), dim3(block), shared_bytes, stream, __VA_ARGS__)

#endif
