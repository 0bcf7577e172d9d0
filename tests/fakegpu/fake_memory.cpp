/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the devices and pinned memory of the host. A block of a device begins on a page of its
 * own and is followed by one that nobody may touch; its pages carry the device's protection key, so
 * that only threads doing the device's work get at them (where the machine has such keys). Freed
 * addresses are never handed out again. New memory begins
 * with NaN patterns.
 */
#include <algorithm>
#include <cstring>
#include <sys/mman.h>

#include "fake.h"

static const size_t PAGE = 4096;
static const size_t FILLED = 1 << 20; /* bytes of a new block; more costs too much */

struct Block {
    size_t bytes, mapped;
    int device; /* -1: pinned memory of the host */
};

static std::map<uintptr_t, Block> blocks; /* by address */

static size_t pages(size_t bytes)
{
    return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* The block that holds [p, p+bytes); end() when there is none. */
static std::map<uintptr_t, Block>::iterator find(const void *p, size_t bytes)
{
    uintptr_t at = (uintptr_t)p;
    auto it = blocks.upper_bound(at);
    if (it == blocks.begin())
        return blocks.end();
    --it;
    return at + bytes <= it->first + it->second.bytes ? it : blocks.end();
}

int fake_device_of(const void *p, size_t bytes)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    auto it = find(p, bytes);
    return it == blocks.end() ? -1 : it->second.device;
}

bool fake_reaches(cudaStream_t stream, const void *p, size_t bytes)
{
    auto s = fake_hold(fake_stream(stream));
    int of = fake_device_of(p, bytes);
    std::lock_guard<std::mutex> hold(fake_lock);
    return s != NULL && of >= 0 && fake_within(p, bytes) &&
           (of == s->device->number || (s->device->peers >> of & 1));
}

bool fake_pinned(const void *p, size_t bytes)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    auto it = find(p, bytes);
    return it != blocks.end() && it->second.device < 0;
}

static cudaError_t allocate(void **out, size_t bytes, Device *d)
{
    if (out == NULL)
        return cudaErrorInvalidValue;
    *out = NULL;
    if (bytes == 0)
        return cudaSuccess;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        if (d != NULL && bytes > fake_memory() - d->used)
            return cudaErrorMemoryAllocation;
    }
    size_t mapped = pages(bytes);
    char *p = (char *)mmap(NULL, mapped + PAGE, PROT_NONE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED || mprotect(p, mapped, PROT_READ | PROT_WRITE) != 0)
        return cudaErrorMemoryAllocation;
    memset(p, 0xff, std::min(mapped, FILLED));
    if (d != NULL && d->key >= 0 && pkey_mprotect(p, mapped, PROT_READ | PROT_WRITE, d->key) != 0)
        fake_die("pkey_mprotect failed");
    if (d != NULL)
        fake_forbid((uintptr_t)p + bytes, (uintptr_t)p + mapped);
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        blocks[(uintptr_t)p] = {bytes, mapped, d != NULL ? d->number : -1};
        if (d != NULL)
            d->used += bytes;
    }
    fake_count(d != NULL ? "blocks of device memory" : "blocks of pinned memory", 1);
    *out = p;
    return cudaSuccess;
}

/* Memory is freed when all work of its device is done, as the runtime does it; pinned memory when
 * the work of the calling thread's device is. */
static cudaError_t release(void *p, bool pinned)
{
    const Device *d = fake_current();
    if (p == NULL)
        return cudaSuccess;
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        auto it = blocks.find((uintptr_t)p);
        if (it == blocks.end() || (it->second.device < 0) != pinned)
            return cudaErrorInvalidValue;
        if (!pinned)
            d = fake_device(it->second.device);
    }
    fake_drain(d);
    {
        std::lock_guard<std::mutex> hold(fake_lock);
        auto it = blocks.find((uintptr_t)p);
        if (mmap(p, it->second.mapped, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) == MAP_FAILED)
            fake_die("cannot give back memory");
        if (!pinned)
            fake_device(it->second.device)->used -= it->second.bytes;
        blocks.erase(it);
    }
    fake_count(pinned ? "blocks of pinned memory" : "blocks of device memory", -1);
    return cudaSuccess;
}

/* Where a copy goes from and to. -1: memory of the host. Unlike the runtime, the whole range must
 * lie within one block. */
struct Way {
    int from, to;
};

static cudaError_t way_of(const void *dst, const void *src, size_t n, cudaMemcpyKind kind, Way *out)
{
    std::lock_guard<std::mutex> hold(fake_lock);
    auto from = find(src, 1), to = find(dst, 1);
    if ((from != blocks.end() && find(src, n) == blocks.end()) ||
        (to != blocks.end() && find(dst, n) == blocks.end()))
        return cudaErrorInvalidValue;
    Way w = {from == blocks.end() ? -1 : from->second.device,
             to == blocks.end() ? -1 : to->second.device};
    cudaMemcpyKind right = w.from < 0 ? w.to < 0 ? cudaMemcpyHostToHost : cudaMemcpyHostToDevice
                           : w.to < 0 ? cudaMemcpyDeviceToHost
                                      : cudaMemcpyDeviceToDevice;
    *out = w;
    return kind == right || kind == cudaMemcpyDefault ? cudaSuccess : cudaErrorInvalidValue;
}

static cudaError_t copy(void *dst, const void *src, size_t n, cudaMemcpyKind kind, cudaStream_t s)
{
    if (n == 0)
        return cudaSuccess;
    Way w;
    cudaError_t e = way_of(dst, src, n, kind, &w);
    if (e != cudaSuccess)
        return e;
    std::shared_ptr<CUstream_st> stream = fake_hold(fake_stream(s));
    if (stream == NULL)
        return cudaErrorInvalidResourceHandle;
    fake_touch("cudaMemcpyAsync", src, n, false);
    fake_touch("cudaMemcpyAsync", dst, n, true);
    Work work;
    work.any_memory = true;
    work.device = stream->device;
    bool pageable_from = w.from < 0 && !fake_pinned(src, n);
    bool pageable_to = w.to < 0 && !fake_pinned(dst, n);
    if ((pageable_from || pageable_to) && fake_stream_captured(stream.get()))
        return fake_invalidate(stream->capture, cudaErrorStreamCaptureUnsupported);
    if (pageable_from) { /* taken before the call returns */
        auto taken = std::make_shared<std::vector<char>>((const char *)src, (const char *)src + n);
        work.run = [=] { memcpy(dst, taken->data(), n); };
    } else {
        work.run = [=] { memmove(dst, src, n); };
        if (w.from < 0 && w.to >= 0) {
            work.source = src;
            work.source_bytes = n;
        }
    }
    e = fake_put(stream.get(), std::move(work));
    if (e == cudaSuccess && pageable_to)
        fake_wait_stream(stream);
    return e;
}

extern "C" {

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    FAKE_ENTER();
    return fake_leave(allocate(out, bytes, fake_current()));
}

cudaError_t cudaFree(void *p)
{
    FAKE_ENTER();
    return fake_leave(release(p, false));
}

cudaError_t cudaHostAlloc(void **out, size_t bytes, unsigned)
{
    FAKE_ENTER();
    return fake_leave(allocate(out, bytes, NULL));
}

cudaError_t cudaFreeHost(void *p)
{
    FAKE_ENTER();
    return fake_leave(release(p, true));
}

cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total)
{
    FAKE_ENTER();
    std::lock_guard<std::mutex> hold(fake_lock);
    *total = fake_memory();
    *free_bytes = *total - fake_current()->used;
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t s)
{
    FAKE_ENTER();
    return fake_leave(copy(dst, src, n, kind, s));
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t n, cudaStream_t s)
{
    FAKE_ENTER();
    if (n == 0)
        return cudaSuccess;
    std::shared_ptr<CUstream_st> stream = fake_hold(fake_stream(s));
    if (stream == NULL)
        return fake_leave(cudaErrorInvalidResourceHandle);
    if (fake_device_of(p, n) < 0)
        return fake_leave(cudaErrorInvalidValue);
    fake_touch("cudaMemsetAsync", p, n, true);
    Work work;
    work.device = stream->device;
    work.run = [=] { memset(p, value, n); };
    return fake_leave(fake_put(stream.get(), std::move(work)));
}
}
